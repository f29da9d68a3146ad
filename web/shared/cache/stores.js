// stores.js - where models are kept, and the locks that keep tabs apart.
import { browserUrl } from './cache.js';
import { isNode } from './http.js';
import { opfsStore } from './opfs.js';
import { loadedOf } from './parts.js';
import { cacheStore } from './responses.js';
import { abortError, BitNetError } from '../errors.js';

export const FOLDER = 'bitnet-cache';
const SPARE_BYTES = 1 << 20; // storage that must stay free beside the model

// ---- locks ----

/** -> a function that releases it. */
export function lock(key, options) {
    return new Promise((resolve, reject) => {
        navigator.locks
            .request(`${FOLDER}/${key}`, options, held => {
                if (held) return new Promise(resolve);
                throw new BitNetError('ERR_BUSY', 'the model is in use, perhaps in another tab');
            })
            .catch(error => reject(options.signal?.aborted ? abortError() : error));
    });
}

export async function withLock(key, options, action) {
    const release = await lock(key, options);
    try {
        return await action();
    } finally {
        release();
    }
}

// ---- stores ----

/** A store has find(key) -> the metadata of a complete model; known(key), if it keeps such things -> also
 * those of a download, which another tab may be at; reader(key) -> a function that makes its chunks;
 * remove(key) -> whether there was anything; entries(); and its place, for the function that saves a
 * download there or returns { note, response? } like cachedSource. */
export async function stores() {
    if (!canKeep()) return [];
    return [await opfsStore(), await cacheStore()].filter(store => store);
}

export async function storeToWrite() {
    const methods = globalThis.FileSystemFileHandle?.prototype;
    if (!canKeep()) return null;
    return (methods?.createSyncAccessHandle && methods.move && (await opfsStore())) || cacheStore();
}

function canKeep() {
    return !isNode && !!globalThis.navigator?.locks && !!globalThis.crypto?.subtle;
}

/** Only where there are stores: elsewhere there may be no crypto.subtle. */
export async function keyOf(url) {
    if (String(url).startsWith('unknown:')) return String(url).slice(8); // from entries()
    const absolute = browserUrl(url);
    absolute.hash = '';
    const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(absolute.href));
    return Array.from(new Uint8Array(hash, 0, 16), b => b.toString(16).padStart(2, '0')).join('');
}

export function entryOf(meta, complete) {
    const { url, size, date } = meta;
    return { url, size, loaded: loadedOf(meta), complete, date };
}

/** A sentence for the user if the browser has no room for so many bytes, else null. */
export async function noRoom(bytes) {
    if (!(bytes > 0) || !navigator.storage?.estimate) return null;
    const { quota, usage } = await navigator.storage.estimate().catch(() => ({}));
    if (!(quota - usage < bytes + SPARE_BYTES)) return null;
    return (
        `not cached: the browser has room for ${megabytes(quota - usage)} more, ` +
        `and this takes ${megabytes(bytes)}`
    );
}

function megabytes(bytes) {
    return `${Math.max(0, bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

/** Firefox throws the second one, without a message, when a file is extended. */
export function storageFailed({ name, message }) {
    const full = ['QuotaExceededError', 'NS_ERROR_FILE_NO_DEVICE_SPACE'].includes(name);
    return { note: `not cached: ${full ? "the browser's storage is full" : message || name}` };
}

/** Errors of the network and aborts go to the caller. All others come from the storage. */
export function isStorageError(error, job) {
    return !(error instanceof BitNetError) && !job.signal.aborted;
}
