// http.js - requests for a model's file, and what servers say about it.
import { gapsOf, loadedOf } from './parts.js';
import { joined } from '../bytes.js';
import { abortError, BitNetError } from '../errors.js';

export const isNode = typeof process === 'object' && !!process.versions?.node;

export async function request(url, headers, job, allowed = [], method = 'GET') {
    const own = new AbortController(),
        abort = () => own.abort(),
        { signal } = own;
    let response;
    if (job.signal.aborted) abort();
    job.signal.addEventListener('abort', abort); // for its body, too
    try {
        // no-store: the browser's HTTP cache would keep a second copy
        const all = { ...job.headers, ...headers },
            asked = fetch(url, { method, headers: all, cache: 'no-store', signal });
        response = await patiently(asked, job, `from ${url}`);
    } catch (error) {
        abort();
        if (job.signal.aborted) throw abortError();
        throw error instanceof BitNetError ? error : unreachable(url, error);
    }
    if (response.ok || allowed.includes(response.status)) return response;
    throw await refused(url, response, job);
}

/** The server's own words are more helpful than its number. */
async function refused(url, response, job) {
    const { status, statusText } = response;
    const said = response.headers.get('x-error-message') || (await firstWords(response));
    cancel(response);
    const parts = [`${url}: HTTP ${status} ${statusText}`.trim(), said];
    if (status === 401 || status === 403) parts.push(advice(job));
    return new BitNetError('ERR_HTTP', parts.filter(Boolean).join(': '), status);
}

const advice = ({ headers = {} }) =>
    Object.keys(headers).some(name => name.toLowerCase() === 'authorization')
        ? 'the Authorization that was sent does not do; has its account accepted the licence?'
        : "if the model has a licence, accept it on the model's page, and send a token: the option " +
          "headers: { Authorization: 'Bearer ...' }";

/** Of a text that is not a page, within 2 seconds. */
async function firstWords(response) {
    const isText = /^text\/(?!html)|json|xml/.test(contentType(response));
    return isText ? wordsOf(await firstBytes(response)) : '';
}

/** What comes first, perhaps nothing. */
async function firstBytes(response) {
    const reader = response.body?.getReader();
    if (!reader) return new Uint8Array(0);
    const late = new Promise(resolve => setTimeout(resolve, 2000, {}));
    const { value } = await Promise.race([reader.read(), late]).catch(() => ({}));
    reader.cancel().catch(() => {});
    return value ?? new Uint8Array(0);
}

/** The SHA-256 in the pointer that git has in place of a large file; undefined if that is no pointer, or
 * cannot be had: then the file is not checked. */
export async function pointedHash(url, job) {
    const own = Object.assign(Object.create(job), { stallSeconds: 10, onSilence() {} });
    try {
        const text = new TextDecoder().decode(await firstBytes(await request(url, {}, own)));
        return /^version https:\/\/git-lfs\S*\noid sha256:([0-9a-f]{64})\n/.exec(text)?.[1];
    } catch (error) {
        if (job.signal.aborted) throw error;
        return undefined;
    }
}

/** The first ones of a text, in one line. */
function wordsOf(bytes) {
    const text = new TextDecoder().decode(bytes.subarray(0, 1000)),
        line = text.replace(/[\s\p{C}]+/gu, ' ').trim();
    return line.length > 160 ? `${line.slice(0, 160).trim()} ...` : line;
}

const contentType = response =>
    (response.headers.get('content-type') ?? '').split(';')[0].trim().toLowerCase();

/** Passes on a file from its first byte. What is no model is refused before the rest of it comes. */
export async function* onlyModel(chunks, response) {
    const MAGIC = 'GGUF';
    let head = new Uint8Array(0);
    for await (const chunk of chunks) {
        if (head.length >= MAGIC.length) {
            yield chunk;
            continue;
        }
        head = joined([head, chunk]);
        if (head.length < MAGIC.length) continue;
        if (String.fromCharCode(...head.subarray(0, MAGIC.length)) !== MAGIC) throw noModel(head);
        yield head;
    }
    if (head.length < MAGIC.length) throw noModel(head);

    function noModel(bytes) {
        const type = contentType(response) || 'a file without a type',
            words = wordsOf(bytes),
            where = /^https?:[^?#]*/.exec(response.url)?.[0]; // a signed URL's secrets are not for eyes
        const what = `this is not a GGUF file: the server sent ${type}`;
        return new BitNetError(
            'ERR_FORMAT',
            (where ? `${where}: ${what}` : what) + (words ? `, which begins with "${words}"` : '')
        );
    }
}

// ---- silence ----

const TICK_MS = 1000;
export const TELL_AFTER = 3; // seconds without a byte

/** Settles as the promise does, but not after more than job.stallSeconds. They are counted, not
 * measured: a computer that slept did not wait. */
export function patiently(promise, job, where) {
    return new Promise((resolve, reject) => {
        let seconds = 0;
        const timer = setInterval(() => {
            seconds++;
            if (seconds >= job.stallSeconds) {
                const text = `nothing came for ${job.stallSeconds} seconds ${where}`;
                settle(reject)(new BitNetError('ERR_NETWORK', text));
            } else if (seconds >= TELL_AFTER) job.onSilence(seconds);
        }, TICK_MS);
        const settle = action => value => {
            clearInterval(timer);
            action(value);
        };
        promise.then(settle(resolve), settle(reject));
    });
}

/** What a server says of a file. Some answer no HEAD, or not with 200; then a GET is begun. */
export async function headOf(url, job) {
    const response = await request(url, {}, job, [400, 403, 404, 405, 500, 501], 'HEAD');
    return response.ok ? response : request(url, {}, job);
}

/** Weak and strong tags of the same file may differ in W/ only. */
export function sameFile(meta, response) {
    const etag = response.headers.get('etag'),
        date = response.headers.get('last-modified');
    const bare = tag => tag.replace(/^W\//, '');
    if (etag && meta.etag) return bare(etag) === bare(meta.etag) ? 'same' : 'changed';
    if (date && meta.lastModified) return date === meta.lastModified ? 'same' : 'changed';
    return 'unknown';
}

export function cancel(response) {
    response.body?.cancel().catch(() => {});
}

/** fetch does not say which of the two it was, to keep pages from probing networks. */
function unreachable(url, error) {
    const why = error.cause?.message ?? error.message;
    if (isNode) return new BitNetError('ERR_NETWORK', `cannot reach ${url}: ${why}`);
    const offline = navigator.onLine === false ? ' (the browser is offline)' : '';
    return new BitNetError(
        'ERR_CORS_OR_NETWORK',
        `cannot fetch ${url}: either the network ` +
            `failed${offline}, or the server does not let other sites read it (CORS): ${why}`
    );
}

export function lost(received, why, job) {
    if (job.signal.aborted) return abortError();
    return new BitNetError(
        'ERR_NETWORK',
        `the connection was lost after ${received} bytes: ${why}`
    );
}

export function wrongSize(loaded, size) {
    return new BitNetError(
        'ERR_NETWORK',
        loaded > size
            ? `the server sent more than the ${size} bytes it announced`
            : `the server sent ${loaded} bytes of ${size}`
    );
}

/** The size of the whole file, or null. If the transfer is compressed, Content-Length is not the size
 * of the file. */
export function sizeOf(response) {
    if (isEncoded(response)) return null;
    const length = response.headers.get('content-length');
    return /^\d+$/.test(length ?? '') ? Number(length) : null;
}

function isEncoded(response) {
    const encoding = response.headers.get('content-encoding');
    return !!encoding && encoding.toLowerCase() !== 'identity';
}

/** Content-Encoding of another site is visible only if its server exposes it; few do. */
export function mayHideEncoding(response) {
    return response.type === 'cors' && !response.headers.has('content-encoding');
}

/** -> { url, response, meta }. If the server still has the file of `partial` (metadata, or null) and
 * can send parts, meta is `partial`, and the response begins at its first gap; else both are new. */
export async function requestRest(url, partial, job) {
    if (!partial || !loadedOf(partial) || !isResumable(partial)) return requestAll(url, job);
    let part;
    try {
        part = await requestPart(url, partial, gapsOf(partial)[0], job);
    } catch (error) {
        if (error.code !== 'ERR_CORS_OR_NETWORK') throw error;
        return requestAll(url, job); // Range may have needed a preflight too
    }
    const { response, fits } = part;
    if (fits) {
        partial.size ??= contentRange(response)?.total ?? null;
        return { url, response, meta: partial };
    }
    if (response.status === 200) {
        const whole = wholeFile(url, response, job);
        if (sameFile(partial, response) === 'same') whole.meta.ranges = false;
        return whole;
    }
    cancel(response);
    return requestAll(url, job);
}

/** -> { response, fits: whether it is this part of the file that meta are of }. */
export async function requestPart(url, meta, part, job) {
    const ifRange = new URL(url).origin === globalThis.location?.origin && strongTag(meta);
    const headers = { Range: `bytes=${part.at}-${part.end < meta.size ? part.end - 1 : ''}` };
    // for other sites it needs a preflight, which many refuse; then isPart must decide
    if (ifRange) headers['If-Range'] = ifRange;
    const response = await request(url, headers, job, [416]);
    return { response, fits: isPart(response, meta, part, ifRange) };
}

export async function requestAll(url, job) {
    return wholeFile(url, await request(url, {}, job), job);
}

function wholeFile(url, response, { cacheName = url }) {
    const date = new Date().toISOString();
    const meta = {
        url: cacheName,
        date,
        id: `${date} ${Math.random()}`,
        size: sizeOf(response),
        done: 0,
        etag: response.headers.get('etag'),
        lastModified: response.headers.get('last-modified'),
        encoded: isEncoded(response)
    };
    if (response.headers.get('accept-ranges') === 'none') meta.ranges = false;
    return { url, response, meta };
}

/** Without an ETag or a date it is unknown whether the rest belongs to the same file. In a compressed
 * transfer the offset of the rest is unknown. */
export function isResumable(meta) {
    return !meta.encoded && meta.ranges !== false && !!(meta.etag || meta.lastModified);
}

/** If-Range does not accept a weak ETag. */
function strongTag(meta) {
    return meta.etag && !meta.etag.startsWith('W/') ? meta.etag : meta.lastModified;
}

function isPart(response, meta, { at, end }, ifRange) {
    if (response.status !== 206 || isEncoded(response)) return false;
    const range = contentRange(response),
        { size } = meta;
    if (range) {
        if (range.start !== at || (range.total ?? size) !== (size ?? range.total)) return false;
    } else if (sizeOf(response) !== end - at) {
        return false; // no Content-Range: the length must match
    }
    const etag = response.headers.get('etag'),
        date = response.headers.get('last-modified');
    if (etag && meta.etag) return etag === meta.etag;
    if (date && meta.lastModified) return date === meta.lastModified;
    return !!ifRange; // with If-Range, 206 means the same file
}

function contentRange(response) {
    const match = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
    return match && { start: Number(match[1]), total: match[2] === '*' ? null : Number(match[2]) };
}
