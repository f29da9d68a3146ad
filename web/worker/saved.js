// saved.js - a session as bytes: SAVED, the SHA-256 of the held messages, their length, they as JSON,
// and the state, which has a checksum of its own.
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

export function save({ session }) {
    const chat = encoder.encode(JSON.stringify(held[session]));
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

/** The held messages of a saved session, of which any byte may be wrong. */
function savedChat(bytes) {
    const damaged = new BitNetError('ERR_FORMAT', 'these bytes are no saved session');
    const begins = (start, expected) => expected.every((byte, i) => bytes[start + i] === byte);
    if (bytes.length < HEAD || !begins(0, SAVED)) throw damaged;
    const end = HEAD + new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEAD - 4, true);
    if (end > bytes.length) throw damaged;
    const text = bytes.slice(HEAD, end);
    if (!begins(SAVED.length, sha256(text))) throw damaged;
    let chat;
    try {
        chat = JSON.parse(decoder.decode(text));
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
    if (!Array.isArray(chat) || !chat.every(valid)) throw damaged;
    const messages = chat.map(({ role, content, end, cut }) => ({ role, content, end, cut }));
    return { messages, state: bytes.subarray(end) };
}

/** On failure the session is as before. */
export function restore({ session, bytes }) {
    const { messages, state } = savedChat(bytes);
    withBytes(state, (at, n) => check(bw._bw_restore(session, at, n)));
    held[session] = messages.filter(m => m.end <= bw._bw_held(session));
    return bw._bw_held(session);
}

export function clear({ session }) {
    bw._bw_clear(session);
    held[session] = [];
}
