// chunks.js - the bytes of a source, piece by piece, and how far that is: async generators of Uint8Array.
import { lost } from './http.js';
import { abortError, BitNetError } from '../errors.js';

const SLICE = 4 << 20; // bytes read at a time
const AHEAD = 4; // slices of a blob that are asked for at a time
const REPORT_MS = 100;
const SMOOTH_MS = 2000; // time constant of the displayed speed

/** Several slices are on their way at a time: the browser reads them in another process. */
export async function* blobChunks(blob) {
    const slices = [];
    const ask = at => {
        const slice = blob.slice(at, at + SLICE).arrayBuffer();
        slice.catch(() => {}); // the reader may have left
        slices.push(slice);
    };
    for (let at = 0; at < blob.size || slices.length; at += SLICE) {
        if (at < blob.size) ask(at);
        if (at + SLICE < blob.size && slices.length < AHEAD) continue;
        let buffer;
        try {
            buffer = await slices.shift();
        } catch (error) {
            // the user has changed or moved the file
            throw new BitNetError('ERR_IO', `the file cannot be read: ${error.message}`);
        }
        yield new Uint8Array(buffer);
    }
}

export async function* nodeFileChunks(file) {
    for (let at = 0; ;) {
        const { bytesRead, buffer } = await file.read(new Uint8Array(SLICE), 0, SLICE, at);
        if (!bytesRead) return;
        yield buffer.subarray(0, bytesRead);
        at += bytesRead;
    }
}

export async function* bodyChunks(response, job) {
    const reader = response.body?.getReader();
    if (!reader) return;
    let received = 0;
    try {
        for (;;) {
            const { done, value } = await reader.read().catch(error => {
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

export async function* counted(chunks, progress, job) {
    for await (const chunk of chunks) {
        if (job.signal.aborted) throw abortError();
        progress.add(chunk.length);
        yield chunk;
    }
    progress.finish();
}

export function streamOf(generator) {
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

export function startProgress(job, fixed, loaded, total) {
    let bytesPerSecond = 0,
        time = performance.now(),
        before = loaded;

    function report(now) {
        const ms = now - time,
            speed = ms > 0 ? ((loaded - before) / ms) * 1000 : 0;
        const weight = bytesPerSecond ? 1 - Math.exp(-ms / SMOOTH_MS) : 1;
        bytesPerSecond += (speed - bytesPerSecond) * weight;
        time = now;
        before = loaded;
        const { phase, fromCache = false, cache } = fixed;
        job.onProgress?.({
            phase,
            loaded,
            total,
            bytesPerSecond,
            secondsLeft: secondsLeft(),
            fromCache,
            cache
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
        forgetTotal() {
            total = null;
        }
    };
}
