// parts.js - which bytes of a file are missing, and several requests for them at a time.
//
// Metadata say it so: `done` bytes are there from the beginning on. If there are more behind them,
// `gaps` has what is missing, as [from, to).
import { bodyChunks } from './chunks.js';
import {
    cancel, isResumable, mayHideEncoding, onlyModel, requestPart, sameFile, wrongSize
} from './http.js';
import { BitNetError } from '../errors.js';

const SHARE = 8 << 20; // a request for fewer bytes is not worth it

/** -> [{ at, end }] in order, none of them empty. end is Infinity while the size is unknown. */
export function gapsOf({ done, size, gaps }) {
    if (gaps) return gaps.map(([at, end]) => ({ at, end }));
    return done === size ? [] : [{ at: done, end: size ?? Infinity }];
}

/** How many bytes are there. */
export const loadedOf = meta =>
    meta.gaps ? meta.gaps.reduce((n, [at, end]) => n - (end - at), meta.size) : meta.done;

/** How long the file is at least that has them. */
export function reachOf({ done, size, gaps }) {
    const [at, end] = gaps?.at(-1) ?? [done, size];
    return gaps && end < size ? size : at;
}

function setGaps(meta, gaps) {
    const [first] = gaps,
        simple = !first || (gaps.length === 1 && first.end >= (meta.size ?? Infinity));
    meta.done = first ? first.at : meta.size;
    meta.gaps = simple ? undefined : gaps.map(({ at, end }) => [at, end]);
}

/** Downloads what meta lacks. response begins at the first gap; while there is much left of a gap, its
 * second half is asked for by another request. A server that does not send parts leaves it to the first
 * one. What a request that fails has not got is left to others, if there were others; else its error is
 * thrown.
 *
 * write(bytes, at) stores some; then saved() may wait until they are safe. meta is changed as they come. */
export async function fetchParts({ url, meta, response }, job, { write, saved, forgetTotal }) {
    const gaps = gapsOf(meta),
        busy = new Map(), // gap -> the end of its request
        stop = new AbortController(),
        own = Object.assign(Object.create(job), { signal: stop.signal }),
        fresh = loadedOf(meta) === 0;
    let most = job.connections,
        peak = 0, // how many there were at a time
        failures = 0,
        asked = null, // a request that is not answered yet
        failure = null, // of the last request that failed
        fatal = null; // what no other request can mend

    const abort = () => stop.abort();
    if (!gaps.length) gaps.push({ at: 0, end: 0 }); // an empty file
    job.signal.addEventListener('abort', abort);
    try {
        begin(gaps[0], response);
        while (gaps.length) {
            const part = !asked && busy.size < most && next();
            if (part) asked = ask(part);
            const all = [...busy.values(), asked].filter(Boolean);
            if (!all.length) throw failure;
            await Promise.race(all);
            if (!fatal) continue;
            abort();
            await Promise.all([...busy.values(), asked]);
            throw fatal;
        }
    } finally {
        job.signal.removeEventListener('abort', abort);
        abort();
        await asked;
    }

    /** A gap that nobody fetches, or half of the largest. */
    function next() {
        const free = gaps.find(gap => !busy.has(gap));
        if (free) return free;
        const of = gaps.reduce((a, b) => (b.end - b.at > a.end - a.at ? b : a)),
            rest = of.end - of.at;
        if (rest < 2 * SHARE || rest === Infinity || !isResumable(meta)) return null;
        return { at: of.at + Math.ceil(rest / 2), end: of.end, of };
    }

    async function ask({ of, ...part }) {
        try {
            const { response, fits } = await requestPart(url, meta, part, own);
            if (!fits) {
                cancel(response);
                if (response.status === 200 && sameFile(meta, response) === 'same')
                    meta.ranges = false;
                throw new BitNetError('ERR_NETWORK', 'the server does not send parts of this file');
            }
            if (!of) begin(gaps.find(gap => gap.at === part.at), response);
            else if (!gaps.includes(of) || of.at >= part.at) cancel(response); // it was faster
            else {
                of.end = part.at;
                gaps.splice(gaps.indexOf(of) + 1, 0, part);
                begin(part, response);
            }
            asked = null;
        } catch (error) {
            asked = null;
            failed(error);
        }
    }

    function begin(gap, response) {
        const end = receive(gap, response).then(
            () => {
                busy.delete(gap);
                gaps.splice(gaps.indexOf(gap), 1);
                setGaps(meta, gaps);
            },
            error => {
                busy.delete(gap);
                failed(error);
            }
        );
        busy.set(gap, end);
        peak = Math.max(peak, busy.size);
    }

    function failed(error) {
        if (['ERR_NETWORK', 'ERR_HTTP', 'ERR_CORS_OR_NETWORK'].includes(error.code)) {
            failure = error;
            failures++;
            most = Math.max(busy.size + (asked ? 1 : 0), peak - failures);
        } else fatal ??= error;
    }

    async function receive(gap, response) {
        let until = gap.end; // what this response has, though another request may get a part of it
        const body = bodyChunks(response, own),
            chunks = gap.at === 0 ? onlyModel(body, response) : body;
        for await (const chunk of chunks) {
            let n = Math.min(chunk.length, gap.end - gap.at);
            if (n < chunk.length && gap.end === until) {
                if (!fresh || gaps.length > 1 || !mayHideEncoding(response))
                    throw surplus(gap, chunk);
                Object.assign(meta, { size: null, encoded: true });
                until = gap.end = Infinity;
                n = chunk.length;
                forgetTotal();
            }
            write(chunk.subarray(0, n), gap.at);
            gap.at += n;
            setGaps(meta, gaps);
            await saved();
            if (gap.at === gap.end && gap.end < until) return;
        }
        if (gap.end === Infinity) meta.size = gap.end = gap.at;
        if (gap.at < gap.end) throw wrongSize(loadedOf(meta), meta.size);
    }

    /** Not to be resumed: the bytes may be wrong. */
    function surplus(gap, chunk) {
        fatal = wrongSize(gap.at + chunk.length, meta.size);
        gaps.splice(0, gaps.length, { at: 0, end: meta.size });
        setGaps(meta, gaps);
        return fatal;
    }
}
