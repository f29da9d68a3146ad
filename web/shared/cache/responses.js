// responses.js - models in the Cache API: whole responses, which cannot be resumed.
import { startJob } from './cache.js';
import { bodyChunks, counted, startProgress, streamOf } from './chunks.js';
import { mayHideEncoding, onlyModel, requestAll, wrongSize } from './http.js';
import { entryOf, FOLDER, noRoom, storageFailed } from './stores.js';
import { abortError, BitNetError } from '../errors.js';

const CACHE_URL = 'https://bitnet.invalid/';

export async function cacheStore() {
    let cache;
    try {
        cache = await caches.open(FOLDER);
    } catch {
        return null;
    }
    return {
        name: 'cache',
        place: cache,
        find: async key => (await cache.match(`${CACHE_URL}${key}.json`))?.json(),
        async reader(key) {
            return () => responseChunks(cache, key);
        },
        async remove(key) {
            const found = await cache.delete(`${CACHE_URL}${key}.json`);
            return (await cache.delete(CACHE_URL + key)) || found;
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
        for await (const chunk of bodyChunks(response, startJob({}))) yield chunk;
    } catch (error) {
        throw new BitNetError('ERR_IO', `the cache cannot be read: ${error.message}`);
    }
}

/** Downloads into a store's place. put() keeps nothing of a stream that fails. The metadata are written
 * after it has succeeded. */
export async function saveResponse(cache, key, url, job) {
    const { response, meta } = await requestAll(url, job);
    const note = await noRoom(meta.size);
    if (note) return { note, response };
    const progress = startProgress(job, { phase: 'download', cache: 'cache' }, 0, meta.size);
    let failure;
    const body = (async function* () {
        try {
            const chunks = onlyModel(bodyChunks(response, job), response);
            for await (const chunk of counted(chunks, progress, job)) {
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
