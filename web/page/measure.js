// measure.js - how fast this machine computes. A model of two layers is made here, which have the
// shapes of a real one's and mean nothing. It writes for a moment, with the same kernels and threads.
import { BitNet } from './bitnet.js';

const DIM = 2048,
    FFN = 6144,
    KV = 1024,
    HEAD = 128,
    LAYERS = 2,
    VOCABULARY = 256;
const WEIGHTS = LAYERS * (2 * DIM * DIM + 2 * DIM * KV + 3 * DIM * FFN); // read for each token
const F32 = 0, // types of tensors and of keys in a GGUF file
    F16 = 1,
    I2_S = 36;
const U32 = 4,
    FLOAT32 = 6,
    STRING = 8,
    ARRAY = 9;
const MS = 400; // to write for
const UNTIMED = 3; // tokens in front: the first ones wake threads and warm the caches

/** GPT-2's spelling of the 256 bytes. */
function spelling() {
    let shifted = 256;
    const plain = b => (b > 32 && b < 127) || (b > 160 && b !== 173);
    return Array.from({ length: 256 }, (_, b) => String.fromCharCode(plain(b) ? b : shifted++));
}

function tensors() {
    const list = [];
    const add = (name, type, ...dims) => list.push({ name: `${name}.weight`, type, dims });
    add('token_embd', F16, DIM, VOCABULARY);
    add('output_norm', F32, DIM);
    for (let i = 0; i < LAYERS; i++) {
        for (const [name, n] of [['attn_norm', DIM], ['attn_sub_norm', DIM], ['ffn_norm', DIM]])
            add(`blk.${i}.${name}`, F32, n);
        add(`blk.${i}.ffn_sub_norm`, F32, FFN);
        add(`blk.${i}.attn_q`, I2_S, DIM, DIM);
        add(`blk.${i}.attn_k`, I2_S, DIM, KV);
        add(`blk.${i}.attn_v`, I2_S, DIM, KV);
        add(`blk.${i}.attn_output`, I2_S, DIM, DIM);
        add(`blk.${i}.ffn_gate`, I2_S, DIM, FFN);
        add(`blk.${i}.ffn_up`, I2_S, DIM, FFN);
        add(`blk.${i}.ffn_down`, I2_S, FFN, DIM);
    }
    return list;
}

/** Writes the header's values, little-endian. */
class Writer {
    #parts = [];
    size = 0;

    bytes(b) {
        this.#parts.push(b);
        this.size += b.length;
    }

    number(n, set, width) {
        const view = new DataView(new ArrayBuffer(width));
        view[set](0, n, true);
        this.bytes(new Uint8Array(view.buffer));
    }

    u32(n) {
        this.number(n, 'setUint32', 4);
    }

    u64(n) {
        this.number(BigInt(n), 'setBigUint64', 8);
    }

    text(s) {
        const b = new TextEncoder().encode(s);
        this.u64(b.length);
        this.bytes(b);
    }

    key(name, type, value) {
        this.text(name);
        this.u32(type);
        if (type === U32) this.u32(value);
        else if (type === FLOAT32) this.number(value, 'setFloat32', 4);
        else if (type === STRING) this.text(value);
        else {
            this.u32(STRING);
            this.u64(value.length);
            for (const s of value) this.text(s);
        }
    }

    align() {
        this.bytes(new Uint8Array((32 - (this.size % 32)) % 32));
    }

    parts() {
        return this.#parts;
    }
}

const count = dims => dims.reduce((a, b) => a * b, 1);
const BYTES = {
    [F32]: n => 4 * n,
    [F16]: n => 2 * n,
    [I2_S]: n => n / 4 + 32,
};

/** Norms and scales are 1, the ternary weights a pattern, the embedding's rows differ. */
function dataOf({ type, dims }) {
    const n = count(dims);
    if (type === F32) return new Uint8Array(new Float32Array(n).fill(1).buffer);
    if (type === F16)
        return new Uint8Array(Uint16Array.from({ length: n }, (_, i) => 0x3800 + (i % 911)).buffer);
    const data = new Uint8Array(BYTES[I2_S](n)).fill(0b01_00_10_01); // 0, -1, 1, 0
    new DataView(data.buffer).setFloat32(n / 4, 1, true);
    return data;
}

/** The model's file. */
function file() {
    const keys = [
        ['general.architecture', STRING, 'bitnet-b1.58'],
        ['bitnet-b1.58.context_length', U32, 512],
        ['bitnet-b1.58.embedding_length', U32, DIM],
        ['bitnet-b1.58.block_count', U32, LAYERS],
        ['bitnet-b1.58.feed_forward_length', U32, FFN],
        ['bitnet-b1.58.attention.head_count', U32, DIM / HEAD],
        ['bitnet-b1.58.attention.head_count_kv', U32, KV / HEAD],
        ['bitnet-b1.58.rope.dimension_count', U32, HEAD],
        ['bitnet-b1.58.rope.freq_base', FLOAT32, 10000],
        ['bitnet-b1.58.attention.layer_norm_rms_epsilon', FLOAT32, 1e-5],
        ['tokenizer.ggml.model', STRING, 'gpt2'],
        ['tokenizer.ggml.pre', STRING, 'llama-bpe'],
        ['tokenizer.ggml.tokens', ARRAY, spelling()],
        ['tokenizer.ggml.merges', ARRAY, []],
    ];
    const list = tensors(),
        w = new Writer();
    w.bytes(new TextEncoder().encode('GGUF'));
    w.u32(3);
    w.u64(list.length);
    w.u64(keys.length);
    for (const key of keys) w.key(...key);
    let at = 0;
    for (const t of list) {
        w.text(t.name);
        w.u32(t.dims.length);
        for (const n of t.dims) w.u64(n);
        w.u32(t.type);
        w.u64(at);
        at += Math.ceil(BYTES[t.type](count(t.dims)) / 32) * 32;
    }
    w.align();
    for (const t of list) {
        w.bytes(dataOf(t));
        w.align();
    }
    return new Blob(w.parts());
}

/** ms for a token: the median of runs of tokens, as other work on the machine comes in bursts. */
function usualTime(times) {
    const n = Math.min(8, times.length - 1),
        runs = [];
    for (let i = 0; i + n < times.length; i += n) runs.push((times[i + n] - times[i]) / n);
    return runs.sort((a, b) => a - b)[runs.length >> 1];
}

/** How many weights it reads in a second, with these options of BitNet.load. */
export async function measure(options = {}) {
    const model = await BitNet.load(file(), { ...options, context: 512, cache: 'none' }),
        times = [];
    const onToken = () => times.push(performance.now()),
        isEnough = () => times.length > 2 * UNTIMED && times.at(-1) - times[0] > MS;
    try {
        const pieces = model.generate('a', { maxTokens: 400, onToken });
        while (!isEnough() && !(await pieces.next()).done);
        return (WEIGHTS * 1000) / usualTime(times.slice(UNTIMED));
    } finally {
        await model.free();
    }
}
