// cache.js - the bytes of a model, from a URL, a File or Blob, an ArrayBuffer, or in Node a path; from
// several of them, or the name of a part, if it is in several files (split.js).
//
//   const source = await openSource(url, { signal, onProgress });
//   for (const reader = source.stream().getReader(); ;) ...      Uint8Arrays from offset 0
//   source.close();                  or discard(), if the bytes turn out to be wrong
//
// Downloads are kept in the browser's private file system (OPFS), or else in the Cache API. A later
// load makes no request at all. In OPFS a model is three files, named by a hash of its URL:
//
//   KEY.json   the URL, what the server said about the file, how much of it is safely on the disk
//   KEY.part   the download; the next load resumes it there
//   KEY.gguf   the same file, renamed after its size was checked
//
// so only a complete file ever has the last name. A Web Lock for each model lets readers share it and
// excludes downloads and removals, in other tabs too.
//
// Runs in a dedicated worker, because only there can a file be written in place, and in Node, which
// caches nothing. list, remove, clear and persist also work on a page.
import {
    blobChunks, bodyChunks, counted, nodeFileChunks, startProgress, streamOf
} from './chunks.js';
import {
    cancel, headOf, isNode, onlyModel, pointedHash, request, sameFile, sizeOf, TELL_AFTER
} from './http.js';
import { saveFile } from './opfs.js';
import { loadedOf } from './parts.js';
import { saveResponse } from './responses.js';
import { inOrder, partsOf, readHead, wholeHead } from './split.js';
import { keyOf, lock, stores, storeToWrite, withLock } from './stores.js';
import { abortError, BitNetError } from '../errors.js';

const LOOK_MS = 1000; // how often a tab looks for how far another one is
const DISCARD_MS = 1000; // how long what is wrong waits for tabs that read it

/** cache: 'auto' or 'none'; cacheName: a URL that stands for that of the source in the cache; headers:
 * of requests, as an object; connections: requests at a time; stallSeconds: how long nothing may come;
 * pointer: where a hub says the file's SHA-256.
 *
 * -> { size, cache: 'opfs' | 'cache' | 'memory' | 'none', fromCache, notes, stream(), discard(),
 * close() }. size is null if the server does not send it and nothing is cached. The reader must
 * check that as many bytes arrive. notes are sentences for the user: why something is not cached.
 * sha256, of what was downloaded now, if the hub says it: it is not checked here.
 * 'memory': the browser cannot keep files. 'none': the source needs no cache, must not use it, or
 * there is no room.
 *
 * onProgress({ phase: 'download' | 'read', loaded, total, bytesPerSecond, secondsLeft, fromCache,
 * cache, stalledSeconds?, elsewhere? }): total and secondsLeft are null while unknown. elsewhere: it is
 * another tab that downloads. stalledSeconds: nothing came for so long. A model that is to be cached is
 * downloaded before openSource returns, and read by stream(). One that is not is downloaded by stream(),
 * which can then be called only once. */
export async function openSource(source, { cache = 'auto', ...options } = {}) {
    const job = startJob(options),
        { signal } = options;
    try {
        if (signal?.aborted) throw abortError();
        const parts = Array.isArray(source) ? source : splitNames(source);
        return parts ? await wholeSource(parts, cache, job) : await partSource(source, cache, job);
    } catch (error) {
        job.end();
        throw signal?.aborted ? abortError() : error;
    }
}

async function partSource(source, cache, job) {
    if (source instanceof Blob) return blobSource(source, job);
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
        return blobSource(new Blob([source]), job);
    }
    const url = isNode ? nodeUrl(source) : browserUrl(source);
    if (isNode && url.protocol === 'file:') return nodeFileSource(url, job);
    url.hash = '';
    const file = await urlSource(url, cache, job);
    if (job.pointer && !file.fromCache) file.sha256 = await pointedHash(job.pointer, job);
    return file;
}

/** -> [{ url, size, loaded, complete, date }], the latest first. An interrupted download is not
 * complete; its size is null if the server did not send it. */
export async function list() {
    const found = [];
    for (const store of await stores()) found.push(...(await store.entries()));
    return found.sort((a, b) => (a.date < b.date ? 1 : -1));
}

/** Deletes what is kept for this URL. Returns whether there was anything. ERR_BUSY while it is being
 * downloaded or read. */
export async function remove(url) {
    let found = false;
    for (const store of await stores()) {
        const key = await keyOf(url);
        await withLock(key, { ifAvailable: true }, async () => {
            found = (await store.remove(key)) || found;
        });
    }
    return found;
}

/** Deletes everything that is not in use. ERR_BUSY if something was. */
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

/** Asks the browser to keep models when disk space runs short. Only a page can ask, and some browsers
 * ask their user, so call it when there is a model worth keeping. */
export async function persist() {
    try {
        const storage = navigator.storage;
        return (await storage.persisted()) || (await storage.persist());
    } catch {
        return false;
    }
}

/** A source of what is kept for this URL, without a request. ERR_IO: there is nothing complete. */
export async function openKept(url, options = {}) {
    const job = startJob(options);
    for (const store of await stores()) {
        const source = await storedSource(store, await keyOf(url), job, true);
        if (source) return source;
    }
    job.end();
    throw notKept(url);
}

/** Does the server still have the file that is kept? -> 'same', 'changed', or 'unknown' if it says
 * neither the tag nor the date of a file. */
export async function check(url, { signal, headers } = {}) {
    const job = startJob({ signal, headers });
    try {
        signal?.throwIfAborted();
        const meta = await keptMeta(url);
        const response = await headOf(browserUrl(url).href, job);
        cancel(response);
        const size = meta.encoded ? null : sizeOf(response); // of the compressed transfer
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

const notKept = url => new BitNetError('ERR_IO', `no complete download of ${url} is kept`);

// ---- sources ----

/** A job's signal is aborted by the caller's signal or by close(). */
export function startJob(options) {
    const { signal, onProgress, headers, connections = 4, stallSeconds = 60, pointer } = options,
        cacheName = options.cacheName && browserUrl(options.cacheName).href;
    const controller = new AbortController();
    const abort = () => controller.abort();
    signal?.addEventListener('abort', abort);
    return {
        onProgress,
        headers,
        connections,
        stallSeconds,
        cacheName,
        pointer,
        signal: controller.signal,
        /** Before there is any answer; startProgress puts its own here. */
        onSilence(stalledSeconds) {
            const nothing = { loaded: 0, total: null, bytesPerSecond: 0, secondsLeft: null };
            onProgress?.({ phase: 'download', ...nothing, fromCache: false, stalledSeconds });
        },
        end() {
            signal?.removeEventListener('abort', abort);
            abort();
        }
    };
}

export function browserUrl(source) {
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

/** parts has chunks(), an async generator of Uint8Arrays, and what the caller sees. */
function makeSource(job, parts) {
    const { size, cache, fromCache = false, notes = [], phase = 'read', once = false } = parts;
    let open = true;
    return {
        size,
        cache,
        fromCache,
        notes,
        once,
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

// ---- a model in several files ----

/** The parts of the file of this name, or null. */
function splitNames(source) {
    if (typeof source !== 'string' && !(source instanceof URL)) return null;
    return partsOf(String(source));
}

/** All parts as one file. Those that can be kept are downloaded before this returns, one after the
 * other. */
async function wholeSource(names, cache, job) {
    const cacheNames = job.cacheName ? partsOf(job.cacheName) : [];
    if (cacheNames?.length !== (job.cacheName ? names.length : 0))
        throw new BitNetError('ERR_ARG', 'cacheName: it has to name a part as the address does');
    let loaded = 0,
        total = null,
        telling = true;
    const tell = p => {
        if (p.phase !== 'download' || !telling) return;
        const now = loaded + p.loaded,
            left = total && p.bytesPerSecond ? (total - now) / p.bytesPerSecond : null;
        job.onProgress?.({ ...p, loaded: now, total, secondsLeft: left });
    };
    const open = async i => {
        const its = { cacheName: cacheNames[i], pointer: undefined, onProgress: tell },
            own = startJob({ ...job, ...its });
        try {
            return await partSource(names[i], cache, own);
        } catch (error) {
            own.end();
            throw error;
        }
    };
    const parts = [],
        close = () => parts.forEach(part => part.source.close());
    let suspects = []; // the parts that are wrong, if something is
    try {
        total = await totalSize(names, cacheNames, job);
        for (let i = 0; i < names.length; i++) {
            telling = true;
            const source = await open(i),
                { size } = source;
            parts.push({ source, size, open: () => open(i) });
            if (size === null)
                throw new BitNetError('ERR_NETWORK', `${names[i]}: the server does not say its size`);
            telling = false;
            suspects = [parts[i]];
            parts[i].head = await readHead(source.stream());
            loaded += size;
        }
        suspects = parts;
        const ordered = inOrder(parts),
            head = wholeHead(ordered),
            sources = parts.map(part => part.source);
        return makeSource(job, {
            size: ordered.reduce((n, { bytes, zeros }) => n + bytes + zeros, head.length),
            cache: sources[0].cache,
            fromCache: sources.every(source => source.fromCache),
            notes: [...new Set(sources.flatMap(source => source.notes))],
            phase: sources.some(source => source.once) ? 'download' : 'read',
            chunks: () => wholeChunks(ordered, head),
            close,
            discard: () => Promise.all(parts.map(part => part.source.discard()))
        });
    } catch (error) {
        close();
        const isWrong = ['ERR_FORMAT', 'ERR_TRUNCATED', 'ERR_UNSUPPORTED'].includes(error.code);
        if (isWrong) await Promise.all(suspects.map(part => part.source.discard()));
        throw error;
    }
}

/** What the parts have together, or null. A part that is not there is found out so, too. */
async function totalSize(names, cacheNames, job) {
    let total = 0;
    for (const [i, name] of names.entries()) {
        if (!/^https?:/i.test(name)) return null;
        const meta = await keptMeta(cacheNames[i] ?? name).catch(() => null),
            response = meta ? null : await headOf(name, job);
        if (response) cancel(response);
        const size = meta ? meta.size : sizeOf(response);
        if (size === null) return null;
        total += size;
    }
    return total;
}

async function* wholeChunks(parts, head) {
    yield head;
    for (const part of parts) {
        if (part.source.once) {
            part.source.close(); // its beginning has been read
            part.source = await part.open();
        }
        let before = part.head.at,
            left = part.bytes;
        const reader = part.source.stream().getReader();
        try {
            for (let r; !(r = await reader.read()).done; ) {
                const piece = r.value.subarray(Math.min(before, r.value.length));
                before -= r.value.length - piece.length;
                left -= piece.length;
                if (piece.length) yield piece;
            }
        } finally {
            reader.cancel().catch(() => {});
        }
        if (left) throw new BitNetError('ERR_IO', 'a part of the model has changed its size');
        if (part.zeros) yield new Uint8Array(part.zeros);
    }
}

// ---- one file ----

function blobSource(blob, job) {
    return makeSource(job, { size: blob.size, cache: 'none', chunks: () => blobChunks(blob) });
}

async function nodeFileSource(url, job) {
    const { open } = await import('node:fs/promises');
    let file;
    try {
        file = await open(url.path ?? url);
        const about = await file.stat();
        if (about.isDirectory()) throw new Error(`${url.path ?? url} is a folder`);
        return makeSource(job, {
            size: about.size,
            cache: 'none',
            chunks: () => nodeFileChunks(file),
            close: () => file.close().catch(() => {})
        });
    } catch (error) {
        await file?.close();
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

/** -> { source }, or { note, response? }: why it cannot be cached, and the download if it is still
 * at its beginning. */
async function cachedSource(store, url, job) {
    const key = await keyOf(job.cacheName ?? url);
    for (let fromCache = true; ;) {
        let release;
        try {
            const source = await storedSource(store, key, job, fromCache);
            if (source) return { source };
            release = await patientLock(store, key, job, {});
        } catch (error) {
            if (error.code !== 'ERR_BUSY') throw error;
            return { note: `not cached: ${error.message}` };
        }
        try {
            if (await store.find(key)) continue; // another tab has downloaded it
            fromCache = false;
            // not by a method of the store: a page, which saves nothing, need not have them
            const save = store.name === 'opfs' ? saveFile : saveResponse,
                refused = await save(store.place, key, url, job);
            if (refused) return refused;
        } finally {
            release();
        }
    }
}

/** A lock, which another tab may have: tells meanwhile how far that is. ERR_BUSY if nothing comes there
 * for more than stallSeconds: a frozen tab keeps its lock. */
async function patientLock(store, key, job, options) {
    const fixed = { phase: 'download', cache: store.name, elsewhere: true },
        { onSilence } = job,
        stop = new AbortController(),
        abort = () => stop.abort();
    let progress = null,
        before = 0,
        silent = 0;
    const timer = setInterval(async () => {
        const meta = await store.known?.(key),
            loaded = meta ? loadedOf(meta) : before; // perhaps they are just being written
        if (stop.signal.aborted) return;
        silent = loaded === before ? silent + 1 : 0;
        if (!progress && (meta || silent > 1))
            progress = startProgress(job, fixed, loaded, meta?.size ?? null);
        else if (loaded > before) progress.add(loaded - before);
        before = loaded;
        if (!store.known) return;
        if (silent > job.stallSeconds) abort();
        else if (silent >= TELL_AFTER) job.onSilence(silent);
    }, LOOK_MS);
    job.signal.addEventListener('abort', abort);
    try {
        return await lock(key, { ...options, signal: stop.signal });
    } catch (error) {
        if (job.signal.aborted || !stop.signal.aborted) throw error;
        throw new BitNetError('ERR_BUSY', 'another tab has begun to download this, and stopped');
    } finally {
        abort(); // what is looked up now is not told any more
        clearInterval(timer);
        job.signal.removeEventListener('abort', abort);
        job.onSilence = onSilence;
    }
}

/** A complete model, locked against removal until it is closed; null if there is none. */
async function storedSource(store, key, job, fromCache) {
    const release = await patientLock(store, key, job, { mode: 'shared' });
    let source = null;
    try {
        const meta = await store.find(key);
        if (!meta) return null;
        source = makeSource(job, {
            size: meta.size,
            cache: store.name,
            fromCache,
            chunks: await store.reader(key),
            close: release,
            // a tab that still reads it, perhaps a frozen one, will find out itself
            discard: () =>
                withLock(key, { signal: AbortSignal.timeout(DISCARD_MS) }, async () => {
                    // not if another tab has removed it and downloaded it again
                    if ((await store.find(key))?.id === meta.id) await store.remove(key);
                }).catch(() => {})
        });
        return source;
    } finally {
        if (!source) release();
    }
}

/** Straight from the network. */
async function directSource(url, job, parts, response) {
    response ??= await request(url, {}, job);
    let taken = false;
    return makeSource(job, {
        ...parts,
        size: sizeOf(response),
        phase: 'download',
        once: true,
        chunks() {
            if (taken) throw new BitNetError('ERR_ARG', 'a source not cached can be read once');
            taken = true;
            return onlyModel(bodyChunks(response, job), response);
        }
    });
}
