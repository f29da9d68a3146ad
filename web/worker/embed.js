// embed.js - the vectors of texts.
import { bw, bytesAt, checkAbort, failure, NUMBERS, POOLINGS, turn, withTexts } from './module.js';

/** The vectors of texts, of which the first has this number in the caller's list. */
export async function embed({ texts, first, pooling, raw, cut }, signal) {
    await turn(); // a cancel may have come
    checkAbort(signal);
    const tokens = withTexts(texts, (...all) =>
        bw._bw_embed(...all, POOLINGS.indexOf(pooling), raw, cut)
    );
    if (tokens < 0) {
        const e = failure(tokens);
        e.message = e.message.replace(/^input (\d+)/, (_, i) => `texts[${first + Number(i)}]`);
        throw e;
    }
    const size = 4 * bw._bw_number(NUMBERS.indexOf('dims')),
        start = bw._bw_vectors() >>> 0;
    const vectors = texts.map((_, i) => new Float32Array(bytesAt(start + i * size, size).buffer));
    return { vectors, tokens };
}
