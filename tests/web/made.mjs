// made.mjs - a model with random weights of a size that shows what memory holds of it: TQ2_0 with one
// scale, which is packed anew when it is loaded.
const DIM = 1024,
    FFN = 4096,
    HEADS = 8,
    KV_HEADS = 2,
    HEAD_DIM = 128,
    LAYERS = 12;
const F32 = 0,
    TQ2_0 = 35,
    BLOCK = 66; // bytes of 256 weights
const [U32, FLOAT, BOOL, STRING, ARRAY] = [4, 6, 7, 8, 9]; // of metadata

const bytesOf = (Type, ...numbers) => Buffer.from(new Type(numbers).buffer);
const u32 = n => bytesOf(Uint32Array, n),
    u64 = n => bytesOf(BigUint64Array, BigInt(n));
const string = text => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)]);
const key = (name, type, value) => Buffer.concat([string(name), u32(type), value]);

/** GPT-2's spelling of each byte: those without a look of their own get one from 256 on. */
function spelledBytes() {
    const looks = b => (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
    let next = 256;
    return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(looks(b) ? b : next++));
}

function keys() {
    const size = (name, n) => key(`llama.${name}`, U32, u32(n));
    const list = values => Buffer.concat([u32(STRING), u64(values.length), ...values.map(string)]);
    return [
        key('general.architecture', STRING, string('llama')),
        size('context_length', 64),
        size('embedding_length', DIM),
        size('block_count', LAYERS),
        size('feed_forward_length', FFN),
        size('attention.head_count', HEADS),
        size('attention.head_count_kv', KV_HEADS),
        key('llama.attention.layer_norm_rms_epsilon', FLOAT, bytesOf(Float32Array, 1e-5)),
        key('tokenizer.ggml.model', STRING, string('gpt2')),
        key('tokenizer.ggml.pre', STRING, string('llama-bpe')),
        key('tokenizer.ggml.tokens', ARRAY, list(spelledBytes())),
        key('tokenizer.ggml.merges', ARRAY, list([])),
        key('tokenizer.ggml.add_bos_token', BOOL, Buffer.from([0]))
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
    const matrices = new Map(), // those of one size are equal
        directory = [],
        data = [];
    let offset = 0;
    for (const [name, columns, rows, type = rows ? TQ2_0 : F32] of tensors()) {
        const n = columns * (rows || 1);
        const size = `${n} ${type}`;
        if (!matrices.has(size)) matrices.set(size, type === F32 ? floats(n) : ternary(n));
        const bytes = matrices.get(size);
        const dims = rows ? [u32(2), u64(columns), u64(rows)] : [u32(1), u64(columns)];
        directory.push(string(name), ...dims, u32(type), u64(offset));
        data.push(bytes); // each of whole 32 bytes
        offset += bytes.length;
    }
    const metadata = keys();
    const head = Buffer.concat([
        Buffer.from('GGUF'),
        u32(3),
        u64(tensors().length),
        u64(metadata.length),
        ...metadata,
        ...directory
    ]);
    return Buffer.concat([head, Buffer.alloc((32 - (head.length % 32)) % 32), ...data]);
}
