// opfs.js - models in the browser's private file system.
import { blobChunks, startProgress } from './chunks.js';
import { cancel, isResumable, requestRest } from './http.js';
import { fetchParts, gapsOf, loadedOf, reachOf } from './parts.js';
import { entryOf, FOLDER, isStorageError, noRoom, storageFailed } from './stores.js';
import { BitNetError } from '../errors.js';

const CHECKPOINT_MS = 1000; // a killed tab loses at most this time's download
const META_BYTES = 4096; // one block: new metadata replace all of the old

export async function opfsStore() {
    let dir;
    try {
        const root = await navigator.storage.getDirectory();
        dir = await root.getDirectoryHandle(FOLDER, { create: true });
    } catch {
        return null; // a private window
    }
    return {
        name: 'opfs',
        find: key => findFile(dir, key),
        known: key => readMeta(dir, key),
        async reader(key) {
            const file = await fileIn(dir, `${key}.gguf`);
            return () => blobChunks(file);
        },
        save: (key, url, job) => saveFile(dir, key, url, job),
        remove: key => removeFiles(dir, key),
        entries: () => fileEntries(dir)
    };
}

async function findFile(dir, key) {
    const meta = await readMeta(dir, key);
    const file = meta && (await fileIn(dir, `${key}.gguf`));
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
        return null; // none, or a crash while it was written
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

/** A tab that was just closed may hold the file a moment longer than the lock. (await, because the
 * handle's methods were asynchronous in early versions.) */
async function openToWrite(dir, name) {
    const file = await dir.getFileHandle(name, { create: true });
    for (let tries = 0; ; tries++) {
        try {
            return await file.createSyncAccessHandle();
        } catch (error) {
            if (error.name !== 'NoModificationAllowedError' || tries === 20) throw error;
            await new Promise(resolve => setTimeout(resolve, 50));
        }
    }
}

async function saveFile(dir, key, url, job) {
    try {
        await removeEntry(dir, `${key}.gguf`); // if it exists, its size was wrong
        const partial = await readPartial(dir, key);
        if (partial && !gapsOf(partial).length) return await keepFile(dir, key, partial);
        const rest = await requestRest(url, partial, job),
            { response, meta } = rest,
            there = await fileIn(dir, `${key}.part`);
        const note =
            (await noRoom(meta.size - (there?.size ?? 0))) ?? (await prepareFile(dir, key, meta));
        if (note && loadedOf(meta)) {
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
            if (!loadedOf(meta) || !isResumable(meta)) await removeFiles(dir, key);
            throw error;
        }
        return await keepFile(dir, key, meta);
    } catch (error) {
        if (!isStorageError(error, job)) throw error;
        await removeFiles(dir, key).catch(() => {});
        return storageFailed(error);
    }
}

/** The metadata tell what was flushed. The file may have more, but that is not reliable. */
async function readPartial(dir, key) {
    const meta = await readMeta(dir, key),
        file = await fileIn(dir, `${key}.part`);
    return meta && file && file.size >= reachOf(meta) ? meta : null;
}

/** -> why there is no room, or null. Extends the file to its full size, because estimates may be wrong.
 * Writes the metadata first, because old metadata describe other bytes. */
async function prepareFile(dir, key, meta) {
    try {
        await writeMeta(dir, key, meta);
        const handle = await openToWrite(dir, `${key}.part`);
        try {
            await handle.truncate(meta.size ?? meta.done);
        } finally {
            await handle.truncate(reachOf(meta));
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

async function downloadFile(dir, key, rest, job) {
    const { meta } = rest,
        fixed = { phase: 'download', cache: 'opfs' };
    const progress = startProgress(job, fixed, loadedOf(meta), meta.size),
        handle = await openToWrite(dir, `${key}.part`);
    let time = performance.now(),
        saving = null;
    try {
        try {
            await fetchParts(rest, job, { write, saved, forgetTotal: progress.forgetTotal });
        } finally {
            await saving;
            await checkpoint();
        }
    } finally {
        await handle.close();
    }
    progress.finish();

    function write(bytes, at) {
        if (handle.write(bytes, { at }) !== bytes.length) {
            throw new DOMException('the disk is full', 'QuotaExceededError');
        }
        progress.add(bytes.length);
    }

    async function saved() {
        if (saving || performance.now() - time < CHECKPOINT_MS) return;
        saving = checkpoint();
        try {
            await saving;
        } finally {
            saving = null;
            time = performance.now();
        }
    }

    /** Other requests write meanwhile: what they add is not flushed yet. */
    async function checkpoint() {
        const now = { ...meta };
        await handle.flush();
        await writeMeta(dir, key, now);
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
        found = (await removeEntry(dir, `${key}.${end}`)) || found;
    }
    return found;
}

async function fileEntries(dir) {
    const names = [];
    for await (const name of dir.keys()) names.push(name);
    const found = [];
    for (const key of new Set(names.map(name => name.split('.')[0]))) {
        const meta = (await readMeta(dir, key)) ?? {
            url: `unknown:${key}`,
            size: null,
            done: 0,
            date: ''
        };
        found.push(entryOf(meta, !!(await findFile(dir, key))));
    }
    return found;
}
