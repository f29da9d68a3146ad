// chunks.js - the bytes of a source, piece by piece, and how far that is: async generators of Uint8Array.
import { lost, patiently } from './http.js';
import { abortError, BitNetError } from '../errors.js';

const SLICE = 4 << 20; // bytes read at a time
const AHEAD = 4; // slices of a blob that are asked for at a time
const REPORT_MS = 100;
const SILENT_MS = 2000; // without a byte of any request
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
        const { bytesRead, buffer } = await file
            .read(new Uint8Array(SLICE), 0, SLICE, at)
            .catch(error => {
                throw new BitNetError('ERR_IO', `the file cannot be read: ${error.message}`);
            });
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
            const read = reader.read().catch(error => {
                throw lost(received, error.message, job);
            });
            const { done, value } = await patiently(read, job, `after ${received} bytes`);
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

/** Reports how far a job is, at most each REPORT_MS, and when nothing comes. */
export function startProgress(job, fixed, loaded, total) {
    let bytesPerSecond = 0,
        time = performance.now(),
        before = loaded,
        last = time; // when the last bytes came

    function report(at, more) {
        const ms = at - time,
            speed = ms > 0 ? ((loaded - before) / ms) * 1000 : 0;
        const weight = bytesPerSecond ? 1 - Math.exp(-ms / SMOOTH_MS) : 1;
        bytesPerSecond += (speed - bytesPerSecond) * weight;
        time = at;
        before = loaded;
        const left = secondsLeft(),
            now = { loaded, total, bytesPerSecond, secondsLeft: left };
        job.onProgress?.({ fromCache: false, ...fixed, ...now, ...more });
    }

    function secondsLeft() {
        if (loaded === total) return 0;
        return total && bytesPerSecond ? (total - loaded) / bytesPerSecond : null;
    }

    job.onSilence = seconds => {
        const now = performance.now();
        if (now - last < SILENT_MS || now - time < REPORT_MS) return; // others of its requests go on
        bytesPerSecond = 0;
        before = loaded;
        report(now, { stalledSeconds: seconds });
    };
    report(time);
    return {
        add(bytes) {
            loaded += bytes;
            last = performance.now();
            if (last - time >= REPORT_MS && loaded !== total) report(last);
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
