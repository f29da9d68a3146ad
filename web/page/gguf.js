// gguf.js - writes a model's file in the GGUF format, from keys and tensors that are made here.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

/** The types of keys: of a list the elements are strings. */
export const U32 = 4,
    FLOAT32 = 6,
    BOOL = 7,
    STRING = 8,
    LIST = 9;

/** GPT-2's spelling of the 256 bytes: those without a look of their own get one from 256 on. */
export function spelledBytes() {
    let shifted = 256;
    const plain = b => (b > 32 && b < 127) || (b > 160 && b !== 173);
    return Array.from({ length: 256 }, (_, b) => String.fromCharCode(plain(b) ? b : shifted++));
}

const WIDTH = 32; // tensors begin at multiples of it
const padded = n => Math.ceil(n / WIDTH) * WIDTH;

/** The file, in parts for a Blob. keys: [name, type, value]. tensors: { name, type, dims, data }, where
 * type is GGUF's number and data are bytes. */
export function ggufParts(keys, tensors) {
    const parts = [];
    let size = 0;
    function bytes(b) {
        parts.push(b);
        size += b.length;
    }
    function number(set, width, n) {
        const view = new DataView(new ArrayBuffer(width));
        view[set](0, n, true);
        bytes(new Uint8Array(view.buffer));
    }
    const u32 = n => number('setUint32', 4, n),
        u64 = n => number('setBigUint64', 8, BigInt(n)),
        align = () => bytes(new Uint8Array(padded(size) - size));
    function text(s) {
        const b = new TextEncoder().encode(s);
        u64(b.length);
        bytes(b);
    }
    const writers = {
        [U32]: u32,
        [FLOAT32]: n => number('setFloat32', 4, n),
        [BOOL]: yes => number('setUint8', 1, Number(yes)),
        [STRING]: text,
        [LIST](all) {
            u32(STRING);
            u64(all.length);
            all.forEach(text);
        }
    };
    bytes(new TextEncoder().encode('GGUF'));
    u32(3); // the version
    u64(tensors.length);
    u64(keys.length);
    for (const [name, type, value] of keys) {
        text(name);
        u32(type);
        writers[type](value);
    }
    let at = 0;
    for (const { name, type, dims, data } of tensors) {
        text(name);
        u32(dims.length);
        dims.forEach(u64);
        u32(type);
        u64(at);
        at += padded(data.length);
    }
    align();
    for (const { data } of tensors) {
        bytes(data);
        align();
    }
    return parts;
}
