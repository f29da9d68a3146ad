/* The bytes of a model, from a URL, a File or Blob, an ArrayBuffer, or in Node a path.
 *
 *   const source = await openSource(url, { signal, onProgress });
 *   for (const reader = source.stream().getReader(); ;) ...      Uint8Arrays from offset 0
 *   source.close();                  or discard(), if the bytes turn out to be wrong
 *
 * Downloads are kept in the browser's private file system (OPFS), or else in the Cache API. A later
 * load makes no request at all. In OPFS a model is three files, named by a hash of its URL:
 *
 *   KEY.json   the URL, what the server said about the file, how much of it is safely on the disk
 *   KEY.part   the download; the next load resumes it there
 *   KEY.gguf   the same file, renamed after its size was checked
 *
 * so only a complete file ever has the last name. A Web Lock for each model lets readers share it and
 * excludes downloads and removals, in other tabs too.
 *
 * Runs in a dedicated worker, because only there can a file be written in place, and in Node, which
 * caches nothing. list, remove, clear and persist also work on a page. */
import { BitNetError, abortError } from './errors.js';

const FOLDER = 'bitnet-cache';
const SLICE = 4 << 20;                    // bytes read at a time
const AHEAD = 4;                          // slices of a blob that are asked for at a time
const CHECKPOINT_MS = 1000;               // a killed tab loses at most this time's download
const REPORT_MS = 100;
const SMOOTH_MS = 2000;                   // time constant of the displayed speed
const META_BYTES = 4096;                  // one block: new metadata replace all of the old
const SPARE_BYTES = 1 << 20;              // storage that must stay free beside the model
const CACHE_URL = 'https://bitnet.invalid/';

const isNode = typeof process === 'object' && !!process.versions?.node;

/* -> { size, cache: 'opfs' | 'cache' | 'memory' | 'none', fromCache, notes, stream(), discard(),
 * close() }. size is null if the server does not send it and nothing is cached. The reader must
 * check that as many bytes arrive. notes are sentences for the user: why something is not cached.
 * 'memory': the browser cannot keep files. 'none': the source needs no cache, must not use it, or
 * there is no room.
 *
 * onProgress({ phase: 'download' | 'read', loaded, total, bytesPerSecond, secondsLeft, fromCache,
 * cache }): total and secondsLeft are null while unknown. A model that is to be cached is downloaded
 * before openSource returns, and read by stream(). One that is not is downloaded by stream(), which
 * can then be called only once. */
export async function openSource(source, { cache = 'auto', signal, onProgress } = {}) {
    const job = startJob(signal, onProgress);
    try {
        if (signal?.aborted) throw abortError();
        if (source instanceof Blob) return blobSource(source, job);
        if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
            return blobSource(new Blob([source]), job);
        }
        const url = isNode ? nodeUrl(source) : browserUrl(source);
        if (isNode && url.protocol === 'file:') return await nodeFileSource(url, job);
        url.hash = '';
        return await urlSource(url, cache, job);
    } catch (error) {
        job.end();
        throw signal?.aborted ? abortError() : error;
    }
}

/* -> [{ url, size, loaded, complete, date }], the latest first. An interrupted download is not
 * complete; its size is null if the server did not send it. */
export async function list() {
    const found = [];
    for (const store of await stores()) found.push(...await store.entries());
    return found.sort((a, b) => (a.date < b.date ? 1 : -1));
}

/* Deletes what is kept for this URL. Returns whether there was anything. ERR_BUSY while it is being
 * downloaded or read. */
export async function remove(url) {
    let found = false;
    for (const store of await stores()) {
        const key = await keyOf(url);
        await withLock(key, { ifAvailable: true }, async () => {
            found = await store.remove(key) || found;
        });
    }
    return found;
}

/* Deletes everything that is not in use. ERR_BUSY if something was. */
export async function clear() {
    let busy;
    for (const { url } of await list()) {
        try {
            await remove(url);
        } catch (error) {
            busy = error;
        }
    }
    if (busy) throw busy;
}

/* Asks the browser to keep models when disk space runs short. Only a page can ask, and some browsers
 * ask their user, so call it when there is a model worth keeping. */
export async function persist() {
    try {
        const storage = navigator.storage;
        return await storage.persisted() || await storage.persist();
    } catch {
        return false;
    }
}

/* A source of what is kept for this URL, without a request. ERR_IO: there is nothing complete. */
export async function openKept(url, { signal, onProgress } = {}) {
    const job = startJob(signal, onProgress);
    for (const store of await stores()) {
        const source = await storedSource(store, await keyOf(url), job, true);
        if (source) return source;
    }
    job.end();
    throw notKept(url);
}

/* Does the server still have the file that is kept? -> 'same', 'changed', or 'unknown' if it says
 * neither the tag nor the date of a file. */
export async function check(url, { signal } = {}) {
    const job = startJob(signal);
    try {
        signal?.throwIfAborted();
        const meta = await keptMeta(url);
        const response = await headOf(browserUrl(url).href, job);
        cancel(response);
        const size = meta.encoded ? null : sizeOf(response);      // of the compressed transfer
        if (size !== null && meta.size !== null && size !== meta.size) return 'changed';
        return sameFile(meta, response);
    } catch (error) {
        signal?.throwIfAborted();
        throw error;
    } finally {
        job.end();
    }
}

async function keptMeta(url) {
    for (const store of await stores()) {
        const meta = await store.find(await keyOf(url));
        if (meta) return meta;
    }
    throw notKept(url);
}

const notKept = (url) => new BitNetError('ERR_IO', `no complete download of ${url} is kept`);

// ---- sources ----

/* A job's signal is aborted by the caller's signal or by close(). */
function startJob(signal, onProgress) {
    const controller = new AbortController();
    const abort = () => controller.abort();
    signal?.addEventListener('abort', abort);
    return {
        signal: controller.signal,
        onProgress,
        end() {
            signal?.removeEventListener('abort', abort);
            abort();
        }
    };
}

function browserUrl(source) {
    try {
        return new URL(source, globalThis.location?.href);
    } catch {
        throw new BitNetError('ERR_ARG', `'${source}' is not a URL`);
    }
}

function nodeUrl(source) {
    if (source instanceof URL) return source;
    if (/^(https?|file|data|blob):/i.test(source)) return browserUrl(source);
    return { protocol: 'file:', path: String(source) };
}

/* parts has chunks(), an async generator of Uint8Arrays, and what the caller sees. */
function makeSource(job, parts) {
    const { size, cache, fromCache = false, notes = [], phase = 'read' } = parts;
    let open = true;
    return {
        size, cache, fromCache, notes,
        stream() {
            if (!open) throw new BitNetError('ERR_ARG', 'the source is closed');
            const progress = startProgress(job, { phase, fromCache, cache }, 0, size);
            return streamOf(counted(parts.chunks(), progress, job));
        },
        close() {
            if (!open) return;
            open = false;
            job.end();
            parts.close?.();
        },
        async discard() {
            this.close();
            await parts.discard?.();
        }
    };
}

function blobSource(blob, job) {
    return makeSource(job, { size: blob.size, cache: 'none', chunks: () => blobChunks(blob) });
}

async function nodeFileSource(url, job) {
    const { open } = await import('node:fs/promises');
    try {
        const file = await open(url.path ?? url);
        return makeSource(job, {
            size: (await file.stat()).size, cache: 'none',
            chunks: () => nodeFileChunks(file),
            close: () => file.close().catch(() => {})
        });
    } catch (error) {
        throw new BitNetError('ERR_IO', error.message);
    }
}

async function urlSource(url, cache, job) {
    const web = /^https?:$/.test(url.protocol);
    if (cache === 'none' || isNode || !web) return directSource(url, job, { cache: 'none' });
    const store = await storeToWrite();
    if (!store) {
        return directSource(url, job, {
            cache: 'memory',
            notes: ['not cached: this browser (or a private window) keeps no files for pages']
        });
    }
    const { source, note, response } = await cachedSource(store, url.href, job);
    return source ?? directSource(url, job, { cache: 'none', notes: [note] }, response);
}

/* -> { source }, or { note, response? }: why it cannot be cached, and the download if it is still
 * at its beginning. */
async function cachedSource(store, url, job) {
    const key = await keyOf(url);
    for (let fromCache = true;;) {
        const source = await storedSource(store, key, job, fromCache);
        if (source) return { source };
        const refused = await withLock(key, { signal: job.signal }, async () => {
            if (await store.find(key)) return null;       // another tab has downloaded it
            fromCache = false;
            return store.save(key, url, job);
        });
        if (refused) return refused;
    }
}

/* A complete model, locked against removal until it is closed; null if there is none. */
async function storedSource(store, key, job, fromCache) {
    const release = await lock(key, { mode: 'shared', signal: job.signal });
    let source = null;
    try {
        const meta = await store.find(key);
        if (!meta) return null;
        source = makeSource(job, {
            size: meta.size, cache: store.name, fromCache,
            chunks: await store.reader(key),
            close: release,
            discard: () => withLock(key, {}, async () => {
                // not if another tab has removed it and downloaded it again
                if ((await store.find(key))?.id === meta.id) await store.remove(key);
            })
        });
        return source;
    } finally {
        if (!source) release();
    }
}

/* Straight from the network. */
async function directSource(url, job, parts, response) {
    response ??= await request(url, {}, job);
    let taken = false;
    return makeSource(job, {
        ...parts, size: sizeOf(response), phase: 'download',
        chunks() {
            if (taken) throw new BitNetError('ERR_ARG', 'a source not cached can be read once');
            taken = true;
            return bodyChunks(response, job);
        }
    });
}

// ---- chunks: async generators of Uint8Array ----

/* Several slices are on their way at a time: the browser reads them in another process. */
async function* blobChunks(blob) {
    const slices = [];
    const ask = (at) => {
        const slice = blob.slice(at, at + SLICE).arrayBuffer();
        slice.catch(() => {});                    // the reader may have left
        slices.push(slice);
    };
    for (let at = 0; at < blob.size || slices.length; at += SLICE) {
        if (at < blob.size) ask(at);
        if (at + SLICE < blob.size && slices.length < AHEAD) continue;
        let buffer;
        try {
            buffer = await slices.shift();
        } catch (error) {                         // the user has changed or moved the file
            throw new BitNetError('ERR_IO', `the file cannot be read: ${error.message}`);
        }
        yield new Uint8Array(buffer);
    }
}

async function* nodeFileChunks(file) {
    for (let at = 0;;) {
        const { bytesRead, buffer } = await file.read(new Uint8Array(SLICE), 0, SLICE, at);
        if (!bytesRead) return;
        yield buffer.subarray(0, bytesRead);
        at += bytesRead;
    }
}

async function* bodyChunks(response, job) {
    const reader = response.body?.getReader();
    if (!reader) return;
    let received = 0;
    try {
        for (;;) {
            const { done, value } = await reader.read().catch((error) => {
                throw lost(received, error.message, job);
            });
            if (done) return;
            received += value.length;
            yield value;
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

async function* counted(chunks, progress, job) {
    for await (const chunk of chunks) {
        if (job.signal.aborted) throw abortError();
        progress.add(chunk.length);
        yield chunk;
    }
    progress.finish();
}

function streamOf(generator) {
    return new ReadableStream({
        async pull(controller) {
            const { done, value } = await generator.next();
            if (done) controller.close();
            else controller.enqueue(value);
        },
        cancel: () => generator.return()
    });
}

// ---- progress ----

function startProgress(job, fixed, loaded, total) {
    let bytesPerSecond = 0, time = performance.now(), before = loaded;

    function report(now) {
        const ms = now - time, speed = ms > 0 ? (loaded - before) / ms * 1000 : 0;
        const weight = bytesPerSecond ? 1 - Math.exp(-ms / SMOOTH_MS) : 1;
        bytesPerSecond += (speed - bytesPerSecond) * weight;
        time = now;
        before = loaded;
        const { phase, fromCache = false, cache } = fixed;
        job.onProgress?.({
            phase, loaded, total, bytesPerSecond, secondsLeft: secondsLeft(), fromCache, cache
        });
    }

    function secondsLeft() {
        if (loaded === total) return 0;
        return total && bytesPerSecond ? (total - loaded) / bytesPerSecond : null;
    }

    report(time);
    return {
        add(bytes) {
            loaded += bytes;
            const now = performance.now();
            if (now - time >= REPORT_MS && loaded !== total) report(now);
        },
        finish() {
            total = loaded;
            report(performance.now());
        },
        forgetTotal() { total = null; }
    };
}

// ---- HTTP ----

async function request(url, headers, job, allowed = [], method = 'GET') {
    let response;
    try {
        // no-store: the browser's HTTP cache would keep a second copy
        response = await fetch(url, { method, headers, cache: 'no-store', signal: job.signal });
    } catch (error) {
        throw job.signal.aborted ? abortError() : unreachable(url, error);
    }
    if (response.ok || allowed.includes(response.status)) return response;
    cancel(response);
    throw new BitNetError('ERR_HTTP',
        `${url}: HTTP ${response.status} ${response.statusText}`.trim(), response.status);
}

/* What a server says of a file. Some answer no HEAD, or not with 200; then a GET is begun. */
async function headOf(url, job) {
    const response = await request(url, {}, job, [400, 403, 404, 405, 500, 501], 'HEAD');
    return response.ok ? response : request(url, {}, job);
}

/* Weak and strong tags of the same file may differ in W/ only. */
function sameFile(meta, response) {
    const etag = response.headers.get('etag'), date = response.headers.get('last-modified');
    const bare = (tag) => tag.replace(/^W\//, '');
    if (etag && meta.etag) return bare(etag) === bare(meta.etag) ? 'same' : 'changed';
    if (date && meta.lastModified) return date === meta.lastModified ? 'same' : 'changed';
    return 'unknown';
}

function cancel(response) {
    response.body?.cancel().catch(() => {});
}

/* fetch does not say which of the two it was, to keep pages from probing networks. */
function unreachable(url, error) {
    const why = error.cause?.message ?? error.message;
    if (isNode) return new BitNetError('ERR_NETWORK', `cannot reach ${url}: ${why}`);
    const offline = navigator.onLine === false ? ' (the browser is offline)' : '';
    return new BitNetError('ERR_CORS_OR_NETWORK', `cannot fetch ${url}: either the network ` +
        `failed${offline}, or the server does not let other sites read it (CORS): ${why}`);
}

function lost(received, why, job) {
    if (job.signal.aborted) return abortError();
    return new BitNetError('ERR_NETWORK',
        `the connection was lost after ${received} bytes: ${why}`);
}

function wrongSize(loaded, size) {
    return new BitNetError('ERR_NETWORK', loaded > size ?
        `the server sent more than the ${size} bytes it announced` :
        `the server sent ${loaded} bytes of ${size}`);
}

/* The size of the whole file, or null. If the transfer is compressed, Content-Length is not the size
 * of the file. */
function sizeOf(response) {
    if (isEncoded(response)) return null;
    const length = response.headers.get('content-length');
    return /^\d+$/.test(length ?? '') ? Number(length) : null;
}

function isEncoded(response) {
    const encoding = response.headers.get('content-encoding');
    return !!encoding && encoding.toLowerCase() !== 'identity';
}

/* Content-Encoding of another site is visible only if its server exposes it; few do. */
function mayHideEncoding(response) {
    return response.type === 'cors' && !response.headers.has('content-encoding');
}

/* -> { response, meta, at }: the file from offset `at` on. That is where `partial` (metadata, or
 * null) ends if the server still has the same file and can send the rest, else 0. */
async function requestRest(url, partial, job) {
    if (!partial?.done || !isResumable(partial)) return requestAll(url, job);
    const ifRange = new URL(url).origin === globalThis.location?.origin && strongTag(partial);
    const headers = { Range: `bytes=${partial.done}-` };
    // for other sites it needs a preflight, which many refuse; then isRest must decide
    if (ifRange) headers['If-Range'] = ifRange;
    let response;
    try {
        response = await request(url, headers, job, [416]);
    } catch (error) {
        if (error.code !== 'ERR_CORS_OR_NETWORK') throw error;
        return requestAll(url, job);              // Range may have needed a preflight too
    }
    if (response.status === 200) return wholeFile(url, response);
    if (isRest(response, partial, ifRange)) {
        partial.size ??= contentRange(response)?.total ?? null;
        return { response, meta: partial, at: partial.done };
    }
    cancel(response);
    return requestAll(url, job);
}

async function requestAll(url, job) {
    return wholeFile(url, await request(url, {}, job));
}

function wholeFile(url, response) {
    const date = new Date().toISOString();
    const meta = {
        url, date, id: `${date} ${Math.random()}`, size: sizeOf(response), done: 0,
        etag: response.headers.get('etag'), lastModified: response.headers.get('last-modified'),
        encoded: isEncoded(response)
    };
    return { response, meta, at: 0 };
}

/* Without an ETag or a date it is unknown whether the rest belongs to the same file. In a compressed
 * transfer the offset of the rest is unknown. */
function isResumable(meta) {
    return !meta.encoded && !!(meta.etag || meta.lastModified);
}

/* If-Range does not accept a weak ETag. */
function strongTag(meta) {
    return meta.etag && !meta.etag.startsWith('W/') ? meta.etag : meta.lastModified;
}

function isRest(response, partial, ifRange) {
    if (response.status !== 206 || isEncoded(response)) return false;
    const range = contentRange(response);
    if (range) {
        const { start, total } = range, { done, size } = partial;
        if (start !== done || (total ?? size) !== (size ?? total)) return false;
    } else if (sizeOf(response) === null || sizeOf(response) !== partial.size - partial.done) {
        return false;                             // no Content-Range: the length must match
    }
    const etag = response.headers.get('etag'), date = response.headers.get('last-modified');
    if (etag && partial.etag) return etag === partial.etag;
    if (date && partial.lastModified) return date === partial.lastModified;
    return !!ifRange;                             // with If-Range, 206 means the same file
}

function contentRange(response) {
    const match = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
    return match && { start: Number(match[1]), total: match[2] === '*' ? null : Number(match[2]) };
}

// ---- locks ----

/* -> a function that releases it. */
function lock(key, options) {
    return new Promise((resolve, reject) => {
        navigator.locks.request(`${FOLDER}/${key}`, options, (held) => {
            if (held) return new Promise(resolve);
            throw new BitNetError('ERR_BUSY', 'the model is in use, perhaps in another tab');
        }).catch((error) => reject(options.signal?.aborted ? abortError() : error));
    });
}

async function withLock(key, options, action) {
    const release = await lock(key, options);
    try {
        return await action();
    } finally {
        release();
    }
}

// ---- stores ----

/* A store has find(key) -> the metadata of a complete model; reader(key) -> a function that makes
 * its chunks; save(key, url, job), which downloads it or returns { note, response? } like
 * cachedSource; remove(key) -> whether there was anything; entries(). */
async function stores() {
    if (!canKeep()) return [];
    return [await opfsStore(), await cacheStore()].filter((store) => store);
}

async function storeToWrite() {
    const methods = globalThis.FileSystemFileHandle?.prototype;
    if (!canKeep()) return null;
    return (methods?.createSyncAccessHandle && methods.move && await opfsStore()) ||
        cacheStore();
}

function canKeep() {
    return !isNode && !!globalThis.navigator?.locks && !!globalThis.crypto?.subtle;
}

/* Only where there are stores: elsewhere there may be no crypto.subtle. */
async function keyOf(url) {
    if (String(url).startsWith('unknown:')) return String(url).slice(8);    // from entries()
    const absolute = browserUrl(url);
    absolute.hash = '';
    const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(absolute.href));
    return Array.from(new Uint8Array(hash, 0, 16), (b) => b.toString(16).padStart(2, '0')).join('');
}

function entryOf({ url, size, done, date }, complete) {
    return { url, size, loaded: done, complete, date };
}

/* A sentence for the user if the browser has no room for so many bytes, else null. */
async function noRoom(bytes) {
    if (!(bytes > 0) || !navigator.storage?.estimate) return null;
    const { quota, usage } = await navigator.storage.estimate().catch(() => ({}));
    if (!(quota - usage < bytes + SPARE_BYTES)) return null;
    return `not cached: the browser has room for ${megabytes(quota - usage)} more, ` +
        `and this takes ${megabytes(bytes)}`;
}

function megabytes(bytes) {
    return `${Math.max(0, bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

/* Firefox throws the second one, without a message, when a file is extended. */
function storageFailed({ name, message }) {
    const full = ['QuotaExceededError', 'NS_ERROR_FILE_NO_DEVICE_SPACE'].includes(name);
    return { note: `not cached: ${full ? 'the browser\'s storage is full' : message || name}` };
}

/* Errors of the network and aborts go to the caller. All others come from the storage. */
function isStorageError(error, job) {
    return !(error instanceof BitNetError) && !job.signal.aborted;
}

// ---- OPFS ----

async function opfsStore() {
    let dir;
    try {
        const root = await navigator.storage.getDirectory();
        dir = await root.getDirectoryHandle(FOLDER, { create: true });
    } catch {
        return null;                              // a private window
    }
    return {
        name: 'opfs',
        find: (key) => findFile(dir, key),
        async reader(key) {
            const file = await fileIn(dir, `${key}.gguf`);
            return () => blobChunks(file);
        },
        save: (key, url, job) => saveFile(dir, key, url, job),
        remove: (key) => removeFiles(dir, key),
        entries: () => fileEntries(dir)
    };
}

async function findFile(dir, key) {
    const meta = await readMeta(dir, key);
    const file = meta && await fileIn(dir, `${key}.gguf`);
    return file && file.size === meta.size ? meta : null;
}

async function fileIn(dir, name) {
    try {
        return await (await dir.getFileHandle(name)).getFile();
    } catch (error) {
        if (error.name === 'NotFoundError') return null;
        throw error;
    }
}

async function readMeta(dir, key) {
    try {
        return JSON.parse(await (await fileIn(dir, `${key}.json`)).text());
    } catch {
        return null;                              // none, or a crash while it was written
    }
}

async function writeMeta(dir, key, meta) {
    const text = new TextEncoder().encode(JSON.stringify(meta).padEnd(META_BYTES));
    const handle = await openToWrite(dir, `${key}.json`);
    try {
        handle.write(text, { at: 0 });
        await handle.truncate(text.length);
        await handle.flush();
    } finally {
        await handle.close();
    }
}

/* A tab that was just closed may hold the file a moment longer than the lock. (await, because the
 * handle's methods were asynchronous in early versions.) */
async function openToWrite(dir, name) {
    const file = await dir.getFileHandle(name, { create: true });
    for (let tries = 0;; tries++) {
        try {
            return await file.createSyncAccessHandle();
        } catch (error) {
            if (error.name !== 'NoModificationAllowedError' || tries === 20) throw error;
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
    }
}

async function saveFile(dir, key, url, job) {
    try {
        await removeEntry(dir, `${key}.gguf`);    // if it exists, its size was wrong
        const partial = await readPartial(dir, key);
        if (partial && partial.done === partial.size) return await keepFile(dir, key, partial);
        const rest = await requestRest(url, partial, job), { response, meta, at } = rest;
        const note = await noRoom(meta.size - at) ?? await prepareFile(dir, key, rest);
        if (note && at) {
            cancel(response);
            return { note };
        }
        if (note) {
            await removeFiles(dir, key);
            return { note, response };
        }
        try {
            await downloadFile(dir, key, rest, job);
        } catch (error) {
            if (!meta.done || !isResumable(meta)) await removeFiles(dir, key);
            throw error;
        }
        return await keepFile(dir, key, meta);
    } catch (error) {
        if (!isStorageError(error, job)) throw error;
        await removeFiles(dir, key).catch(() => {});
        return storageFailed(error);
    }
}

/* `done` counts the bytes that were flushed. The file may have more, but they are not reliable. */
async function readPartial(dir, key) {
    const meta = await readMeta(dir, key), file = await fileIn(dir, `${key}.part`);
    return meta && file && file.size >= meta.done ? meta : null;
}

/* -> why there is no room, or null. Extends the file to its full size, because estimates may be wrong.
 * Writes the metadata first, because old metadata describe other bytes. */
async function prepareFile(dir, key, { meta, at }) {
    try {
        await writeMeta(dir, key, { ...meta, done: at });
        const handle = await openToWrite(dir, `${key}.part`);
        try {
            await handle.truncate(meta.size ?? at);
        } finally {
            await handle.truncate(at);
            await handle.close();
        }
        return null;
    } catch (error) {
        return storageFailed(error).note;
    }
}

async function keepFile(dir, key, meta) {
    await writeMeta(dir, key, { ...meta, date: new Date().toISOString() });
    await (await dir.getFileHandle(`${key}.part`)).move(`${key}.gguf`);
    return null;
}

async function downloadFile(dir, key, { response, meta, at }, job) {
    const progress = startProgress(job, { phase: 'download', cache: 'opfs' }, at, meta.size);
    const handle = await openToWrite(dir, `${key}.part`);
    try {
        try {
            await writeBody();
        } finally {
            await checkpoint();
        }
    } finally {
        await handle.close();
    }
    if (meta.size !== null && meta.done < meta.size) throw wrongSize(meta.done, meta.size);
    meta.size = meta.done;
    progress.finish();

    async function writeBody() {
        let saved = performance.now();
        meta.done = at;
        for await (const chunk of bodyChunks(response, job)) {
            if (meta.size !== null && meta.done + chunk.length > meta.size) surplus(chunk.length);
            if (handle.write(chunk, { at: meta.done }) !== chunk.length) {
                throw new DOMException('the disk is full', 'QuotaExceededError');
            }
            meta.done += chunk.length;
            progress.add(chunk.length);
            if (performance.now() - saved >= CHECKPOINT_MS) {
                await checkpoint();
                saved = performance.now();
            }
        }
    }

    async function checkpoint() {
        await handle.flush();
        await writeMeta(dir, key, meta);
    }

    function surplus(length) {
        if (at === 0 && mayHideEncoding(response)) {
            meta.size = null;
            meta.encoded = true;
            progress.forgetTotal();
        } else {
            const error = wrongSize(meta.done + length, meta.size);
            meta.done = 0;                        // not to be resumed: the bytes may be wrong
            throw error;
        }
    }
}

async function removeEntry(dir, name) {
    try {
        await dir.removeEntry(name);
        return true;
    } catch (error) {
        if (error.name === 'NotFoundError') return false;
        if (error.name !== 'NoModificationAllowedError') throw error;
        throw new BitNetError('ERR_BUSY', 'the model is in use, perhaps in another tab');
    }
}

async function removeFiles(dir, key) {
    let found = false;
    for (const end of ['gguf', 'part', 'json']) {
        found = await removeEntry(dir, `${key}.${end}`) || found;
    }
    return found;
}

async function fileEntries(dir) {
    const names = [];
    for await (const name of dir.keys()) names.push(name);
    const found = [];
    for (const key of new Set(names.map((name) => name.split('.')[0]))) {
        const meta = await readMeta(dir, key) ??
            { url: `unknown:${key}`, size: null, done: 0, date: '' };
        found.push(entryOf(meta, !!await findFile(dir, key)));
    }
    return found;
}

// ---- Cache API: whole responses, no resume ----

async function cacheStore() {
    let cache;
    try {
        cache = await caches.open(FOLDER);
    } catch {
        return null;
    }
    const find = async (key) => (await cache.match(`${CACHE_URL}${key}.json`))?.json();
    return {
        name: 'cache',
        find,
        async reader(key) {
            return () => responseChunks(cache, key);
        },
        save: (key, url, job) => saveResponse(cache, key, url, job),
        async remove(key) {
            const found = await cache.delete(`${CACHE_URL}${key}.json`);
            return await cache.delete(CACHE_URL + key) || found;
        },
        async entries() {
            const found = [];
            for (const { url } of await cache.keys()) {
                if (!url.endsWith('.json')) continue;
                found.push(entryOf(await (await cache.match(url)).json(), true));
            }
            return found;
        }
    };
}

async function* responseChunks(cache, key) {
    const response = await cache.match(CACHE_URL + key);
    try {
        for await (const chunk of bodyChunks(response, startJob())) yield chunk;
    } catch (error) {
        throw new BitNetError('ERR_IO', `the cache cannot be read: ${error.message}`);
    }
}

/* put() keeps nothing of a stream that fails. The metadata are written after it has succeeded. */
async function saveResponse(cache, key, url, job) {
    const { response, meta } = await requestAll(url, job);
    const note = await noRoom(meta.size);
    if (note) return { note, response };
    const progress = startProgress(job, { phase: 'download', cache: 'cache' }, 0, meta.size);
    let failure;
    const body = (async function* () {
        try {
            for await (const chunk of counted(bodyChunks(response, job), progress, job)) {
                meta.done += chunk.length;
                yield chunk;
            }
            const hidden = mayHideEncoding(response) && meta.done > meta.size;
            if (meta.size !== null && meta.size !== meta.done && !hidden) {
                throw wrongSize(meta.done, meta.size);
            }
        } catch (error) {
            failure = error;
            throw error;
        }
    })();
    try {
        await cache.put(CACHE_URL + key, new Response(streamOf(body)));
        if (meta.done > meta.size) meta.encoded = true;
        meta.size = meta.done;
        await cache.put(`${CACHE_URL}${key}.json`, new Response(JSON.stringify(meta)));
        return null;
    } catch (error) {
        if (failure || job.signal.aborted) throw failure ?? abortError();
        await cache.delete(CACHE_URL + key);
        return storageFailed(error);
    }
}
