// measure.js - how fast this machine computes. A model of two layers is made here, which have the
// shapes of a real one's and mean nothing. It writes for a moment, with the same kernels and threads.
import { BitNet } from './bitnet.js';
import { FLOAT32, LIST, STRING, U32, ggufParts, spelledBytes } from './gguf.js';

const DIM = 2048,
    FFN = 6144,
    KV = 1024,
    HEAD = 128,
    LAYERS = 2,
    VOCABULARY = 256;
const WEIGHTS = LAYERS * (2 * DIM * DIM + 2 * DIM * KV + 3 * DIM * FFN); // read for each token
const F32 = 0, // types of tensors in a GGUF file
    F16 = 1,
    I2_S = 36;
const MS = 400; // to write for
const UNTIMED = 3; // tokens in front: the first ones wake threads and warm the caches

/** Norms and scales are 1, the ternary weights a pattern, the embedding's rows differ. */
function dataOf(type, dims) {
    const n = dims.reduce((a, b) => a * b, 1);
    if (type === F32) return new Uint8Array(new Float32Array(n).fill(1).buffer);
    if (type === F16)
        return new Uint8Array(Uint16Array.from({ length: n }, (_, i) => 0x3800 + (i % 911)).buffer);
    const data = new Uint8Array(n / 4 + 32).fill(0b01_00_10_01); // 0, -1, 1, 0
    new DataView(data.buffer).setFloat32(n / 4, 1, true);
    return data;
}

function tensors() {
    const list = [];
    const add = (name, type, ...dims) =>
        list.push({ name: `${name}.weight`, type, dims, data: dataOf(type, dims) });
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
        ['tokenizer.ggml.tokens', LIST, spelledBytes()],
        ['tokenizer.ggml.merges', LIST, []],
    ];
    return new Blob(ggufParts(keys, tensors()));
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
