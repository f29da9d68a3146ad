// made.mjs - a model with random weights of a size that shows what memory holds of it: TQ2_0 with one
// scale, which is packed anew when it is loaded.
import {
    BOOL, FLOAT32, LIST, STRING, U32, ggufParts, spelledBytes
} from '../../web/page/gguf.js';

const DIM = 1024,
    FFN = 4096,
    HEADS = 8,
    KV_HEADS = 2,
    HEAD_DIM = 128,
    LAYERS = 12;
const F32 = 0,
    TQ2_0 = 35,
    BLOCK = 66; // bytes of 256 weights

function keys() {
    const size = (name, n) => [`llama.${name}`, U32, n];
    return [
        ['general.architecture', STRING, 'llama'],
        size('context_length', 64),
        size('embedding_length', DIM),
        size('block_count', LAYERS),
        size('feed_forward_length', FFN),
        size('attention.head_count', HEADS),
        size('attention.head_count_kv', KV_HEADS),
        ['llama.attention.layer_norm_rms_epsilon', FLOAT32, 1e-5],
        ['tokenizer.ggml.model', STRING, 'gpt2'],
        ['tokenizer.ggml.pre', STRING, 'llama-bpe'],
        ['tokenizer.ggml.tokens', LIST, spelledBytes()],
        ['tokenizer.ggml.merges', LIST, []],
        ['tokenizer.ggml.add_bos_token', BOOL, false]
    ];
}

/** -> [name, columns, rows], rows 0: a vector. */
function tensors() {
    const all = [['token_embd.weight', DIM, 256, F32]];
    for (let i = 0; i < LAYERS; i++) {
        const add = (name, ...size) => all.push([`blk.${i}.${name}.weight`, ...size]);
        add('attn_norm', DIM, 0);
        add('attn_q', DIM, HEADS * HEAD_DIM);
        add('attn_k', DIM, KV_HEADS * HEAD_DIM);
        add('attn_v', DIM, KV_HEADS * HEAD_DIM);
        add('attn_output', HEADS * HEAD_DIM, DIM);
        add('ffn_norm', DIM, 0);
        add('ffn_gate', DIM, FFN);
        add('ffn_up', DIM, FFN);
        add('ffn_down', FFN, DIM);
    }
    return [...all, ['output_norm.weight', DIM, 0]];
}

function floats(n) {
    let state = 1;
    const random = () => (state = (state * 48271) % 2147483647) / 2147483647 - 0.5;
    return Buffer.from(Float32Array.from({ length: n }, random).buffer);
}

function ternary(n) {
    const out = Buffer.alloc((n / 256) * BLOCK);
    let state = 1;
    for (let i = 0; i < out.length; i++) {
        state = (state * 48271) % 2147483647;
        out[i] = [0x00, 0x55, 0xaa, 0x16, 0x61, 0x92, 0x29, 0x84][state % 8]; // codes 0 to 2
    }
    for (let i = 64; i < out.length; i += BLOCK) out.writeUInt16LE(0x2400, i); // 1/64
    return out;
}

/** The file. */
export function madeModel() {
    const matrices = new Map(); // those of one size are equal
    function tensor([name, columns, rows, type = rows ? TQ2_0 : F32]) {
        const n = columns * (rows || 1),
            size = `${n} ${type}`;
        if (!matrices.has(size)) matrices.set(size, type === F32 ? floats(n) : ternary(n));
        return { name, type, dims: rows ? [columns, rows] : [columns], data: matrices.get(size) };
    }
    return Buffer.concat(ggufParts(keys(), tensors().map(tensor)));
}
