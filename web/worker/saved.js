// saved.js - a session as bytes: SAVED, the SHA-256 of what is held of the chat, its length, it as JSON,
// and the state, which has a checksum of its own. The JSON, with more of a session that writes:
//
//     { messages, style, prompt, opened, reply, rng, begun of a chat }
//
// The messages are those before the reply, whose tokens follow the first `prompt` ones. opened: what
// the chat template has written of it. rng: where the sampler is, as two halves. Versions before
// 1.0 wrote the messages alone of a session that does not write: in which style these were read is not
// known, so they are read anew.
import { BitNetError } from '../shared/errors.js';
import { held } from './chat.js';
import { bw, bytesAt, check, decoder, encoder, heap, outOfMemory, withBytes } from './module.js';

const SAVED = encoder.encode('bitnet-session1\n');
const HEAD = SAVED.length + 32 + 4;

function sha256(bytes) {
    bw._bw_sha256_begin();
    withBytes(bytes, (at, n) => bw._bw_sha256_add(at, n));
    return bytesAt(bw._bw_sha256_end(), 32);
}

/** Where the text was that a restored session wrote, and all its tokens; until it has written that to
 * its end, or begins another one. */
export const stopped = [];

export function save({ session }) {
    const messages = held[session];
    return bytesOf(session, { messages, style: messages.style });
}

/** The bytes of a session that writes this text. */
export function savedText(session, { prompt, opened, chat, reply, rng }) {
    const { known: messages = [], begun, style } = chat ?? {};
    return bytesOf(session, { messages, prompt, opened, reply, rng, begun, style });
}

function bytesOf(session, what) {
    const chat = encoder.encode(JSON.stringify(what));
    const size = bw._bw_state_bytes(session);
    const out = new Uint8Array(HEAD + chat.length + size);
    out.set(SAVED);
    out.set(sha256(chat), SAVED.length);
    new DataView(out.buffer).setUint32(HEAD - 4, chat.length, true);
    out.set(chat, HEAD);
    const at = bw._malloc(size) >>> 0;
    if (!at) throw outOfMemory(size);
    try {
        check(bw._bw_save(session, at, size));
        out.set(heap().subarray(at, at + size), out.length - size);
    } finally {
        bw._free(at);
    }
    return out;
}

const isHalf = n => Number.isSafeInteger(n) && n >= 0 && n < 2 ** 32;

/** What a saved session wrote; null: these are no such things. */
function textOf({ messages, prompt, opened, reply, rng, begun, style }) {
    const texts = [opened, reply, ...(begun === undefined ? [] : [begun, style])];
    const valid =
        texts.every(text => typeof text === 'string') &&
        Number.isSafeInteger(prompt) &&
        prompt > 0 &&
        Array.isArray(rng) &&
        rng.length === 2 &&
        rng.every(isHalf);
    const chat = begun === undefined ? undefined : { known: messages, begun, style };
    return valid ? { prompt, opened, reply, rng, chat } : null;
}

/** The held messages of a saved session, of which any byte may be wrong, and what it wrote, if it did. */
function savedChat(bytes) {
    const damaged = new BitNetError('ERR_FORMAT', 'these bytes are no saved session');
    const begins = (start, expected) => expected.every((byte, i) => bytes[start + i] === byte);
    if (bytes.length < HEAD || !begins(0, SAVED)) throw damaged;
    const end = HEAD + new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEAD - 4, true);
    if (end > bytes.length) throw damaged;
    const json = bytes.slice(HEAD, end);
    if (!begins(SAVED.length, sha256(json))) throw damaged;
    let what;
    try {
        what = JSON.parse(decoder.decode(json));
    } catch {
        throw damaged;
    }
    let last = 0; // a reply has at least one token; other messages say 0
    const valid = m =>
        typeof m?.role === 'string' &&
        typeof m.content === 'string' &&
        Number.isSafeInteger(m.end) &&
        (m.end === 0 || m.end > last) &&
        (last = m.end || last) < 2 ** 31 &&
        typeof m.cut === 'boolean';
    const chat = Array.isArray(what) ? what : what?.messages;
    if (!Array.isArray(chat) || !chat.every(valid)) throw damaged;
    const messages = chat.map(({ role, content, end, cut }) => ({ role, content, end, cut }));
    const text = what.prompt === undefined ? undefined : textOf({ ...what, messages });
    const { style } = what;
    if (text === null || (style !== undefined && typeof style !== 'string')) throw damaged;
    const known = style === undefined ? [] : messages;
    return { messages: known, style, text, state: bytes.subarray(end) };
}

/** On failure the session is as before. */
export function restore({ session, bytes }) {
    const { messages, style, text, state } = savedChat(bytes);
    withBytes(state, (at, n) => check(bw._bw_restore(session, at, n)));
    const n = bw._bw_held(session);
    held[session] = Object.assign(messages.filter(m => m.end <= n), { style });
    delete stopped[session];
    if (text && text.prompt < n) {
        check(bw._bw_take(session, 0, 0));
        const tokens = new Int32Array(bytesAt(bw._bw_tokens(), 4 * n).buffer);
        stopped[session] = { ...text, tokens };
    }
    return n;
}

export function clear({ session }) {
    bw._bw_clear(session);
    held[session] = [];
    delete stopped[session];
}
