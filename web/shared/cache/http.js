// http.js - requests for a model's file, and what servers say about it.
import { abortError, BitNetError } from '../errors.js';

export const isNode = typeof process === 'object' && !!process.versions?.node;

export async function request(url, headers, job, allowed = [], method = 'GET') {
    let response;
    try {
        // no-store: the browser's HTTP cache would keep a second copy
        response = await fetch(url, { method, headers, cache: 'no-store', signal: job.signal });
    } catch (error) {
        throw job.signal.aborted ? abortError() : unreachable(url, error);
    }
    if (response.ok || allowed.includes(response.status)) return response;
    cancel(response);
    throw new BitNetError(
        'ERR_HTTP',
        `${url}: HTTP ${response.status} ${response.statusText}`.trim(),
        response.status
    );
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

/** -> { response, meta, at }: the file from offset `at` on. That is where `partial` (metadata, or
 * null) ends if the server still has the same file and can send the rest, else 0. */
export async function requestRest(url, partial, job) {
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
        return requestAll(url, job); // Range may have needed a preflight too
    }
    if (response.status === 200) return wholeFile(url, response);
    if (isRest(response, partial, ifRange)) {
        partial.size ??= contentRange(response)?.total ?? null;
        return { response, meta: partial, at: partial.done };
    }
    cancel(response);
    return requestAll(url, job);
}

export async function requestAll(url, job) {
    return wholeFile(url, await request(url, {}, job));
}

function wholeFile(url, response) {
    const date = new Date().toISOString();
    const meta = {
        url,
        date,
        id: `${date} ${Math.random()}`,
        size: sizeOf(response),
        done: 0,
        etag: response.headers.get('etag'),
        lastModified: response.headers.get('last-modified'),
        encoded: isEncoded(response)
    };
    return { response, meta, at: 0 };
}

/** Without an ETag or a date it is unknown whether the rest belongs to the same file. In a compressed
 * transfer the offset of the rest is unknown. */
export function isResumable(meta) {
    return !meta.encoded && !!(meta.etag || meta.lastModified);
}

/** If-Range does not accept a weak ETag. */
function strongTag(meta) {
    return meta.etag && !meta.etag.startsWith('W/') ? meta.etag : meta.lastModified;
}

function isRest(response, partial, ifRange) {
    if (response.status !== 206 || isEncoded(response)) return false;
    const range = contentRange(response);
    if (range) {
        const { start, total } = range,
            { done, size } = partial;
        if (start !== done || (total ?? size) !== (size ?? total)) return false;
    } else if (sizeOf(response) === null || sizeOf(response) !== partial.size - partial.done) {
        return false; // no Content-Range: the length must match
    }
    const etag = response.headers.get('etag'),
        date = response.headers.get('last-modified');
    if (etag && partial.etag) return etag === partial.etag;
    if (date && partial.lastModified) return date === partial.lastModified;
    return !!ifRange; // with If-Range, 206 means the same file
}

function contentRange(response) {
    const match = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
    return match && { start: Number(match[1]), total: match[2] === '*' ? null : Number(match[2]) };
}
