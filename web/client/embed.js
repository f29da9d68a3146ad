// Texts to vectors, in pieces: an abort takes effect between two of them, and so does another call.
import { abortable } from './connection.js';

const SHORT = 250; // ms; a piece that takes less is followed by one of twice the size
const MOST = 1 << 16; // characters of a piece

/** The texts from number `first` on, until they have so many characters. */
function pieceOf(texts, first, characters) {
    let end = first,
        length = 0;
    while (end < texts.length && length < characters) length += 1 + texts[end++].length;
    return texts.slice(first, end);
}

/** Returns the vectors, in the order of the texts, and how many tokens were read. */
export async function embed(connection, texts, options, { signal, onProgress }) {
    const vectors = [];
    let tokens = 0,
        characters = 1000;
    signal?.throwIfAborted();
    while (vectors.length < texts.length) {
        const first = vectors.length,
            start = performance.now();
        const piece = pieceOf(texts, first, characters);
        const call = connection.call('embed', { texts: piece, first, ...options });
        const got = await abortable(call, signal, () => connection.cancel(call.id));
        vectors.push(...got.vectors);
        tokens += got.tokens;
        onProgress?.({ done: vectors.length, total: texts.length });
        if (performance.now() - start < SHORT) characters = Math.min(2 * characters, MOST);
    }
    return { vectors, tokens };
}
