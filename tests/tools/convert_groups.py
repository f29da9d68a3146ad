"""What tests/tools/test_convert_groups.sh needs: models whose groups of weights have a scale each.

    convert_groups.py new MODEL.gguf KIND      a small random qwen3, type Q2_0, PTQ1_0 or Q1_0
    convert_groups.py to MODEL.gguf OUT.gguf N NUMBER   what it is in blocks of N under that number
    convert_groups.py make MODEL.gguf DIR KIND DIR/hf, a Qwen3ForCausalLM with these weights
    convert_groups.py break BASE DIR           DIR/CASE for each of CASES: BASE/hf, damaged
    convert_groups.py cases                    "name word" for each

KIND of new: words with '-' between them: 64 or 128 (weights in a block), pq (number 142, else 42),
ptq (PTQ1_0, number 143), q1 (Q1_0, number 41), yarn, untied, equal (neighbours in a pair of blocks have one scale, or one has
only zeros), zeros (every fifth block, too), loose (such blocks have a scale), minus (such blocks
of Q1_0 are -0), signs (else no weight is 0), one (all blocks have one scale), two (the weight at TWO
is 2), wide (rows are whole blocks of 256), bf16 (scales that are BF16 too).
Of make: f32, f16 or bf16, shards. Everything is worked out here from the definition; only the
standard library is needed.
"""
import os
import random
import struct

import convert_embed as embed
import convert_hf as hf
from convert_hf import ARR, BOOL, F32, I32, STR, U32, put

Q = "model.layers.0.self_attn.q_proj.weight"
TWO = "blk.1.ffn_up", 3, 130           # a tensor, a row and a column


# ---- blocks: an F16, then weight j in bits 2 (j % 4) of byte j / 4, as weight + 1; in Q1_0 in bit
# ---- j % 8 of byte j / 8, 1 for weight 1 and 0 for -1, and where the F16 is 0, all are 0; in PTQ1_0
# ---- the F16 is last, and bytes hold every 16th of 80, every 8th of 40 and every second of 8 weights,
# ---- as digits of base 3 of a fraction of 243 in 256ths ----

Q1_0, PTQ1_0 = 41, 143
NUMBERS = Q1_0, 42, 142, PTQ1_0
DIGITS = [range(j, 80, 16) for j in range(16)] + [range(j, 120, 8) for j in range(80, 88)] + [
    range(j, 128, 2) for j in (120, 121)]
CODES = [bytes(b >> shift & 3 for shift in (0, 2, 4, 6)) for b in range(256)]
BITS = [bytes((b >> shift & 1) << 1 for shift in range(8)) for b in range(256)]


def block(d, codes, number=42):
    if number == PTQ1_0:
        values = [sum(codes[k] * 3 ** (4 - i) for i, k in enumerate(places)) for places in DIGITS]
        return bytes(-(-256 * v // 243) for v in values) + struct.pack("<e", d)
    if number != Q1_0:
        return struct.pack("<e", d) + hf.together([codes[i::4] for i in range(4)], (0, 2, 4, 6))
    zeros = set(codes) == {1}
    assert zeros or set(codes) <= {0, 2}
    return struct.pack("<e", 0.0 if zeros else d) + bytes(
        sum((c > 0) << i for i, c in enumerate(codes[at:at + 8])) for at in range(0, len(codes), 8))


def blocks_of(raw, n, number=42):
    """[(scale, codes)] of a tensor in blocks of n."""
    if number == PTQ1_0:
        out = []
        for at in range(0, len(raw), 28):
            codes = bytearray(128)
            for byte, places in zip(raw[at:at + 26], DIGITS):
                for k in places:
                    codes[k], byte = byte * 3 >> 8, byte * 3 & 255
            out.append((struct.unpack_from("<e", raw, at + 26)[0], bytes(codes)))
        return out
    table, size, out = BITS if number == Q1_0 else CODES, n // (8 if number == Q1_0 else 4), []
    for at in range(0, len(raw), 2 + size):
        d, = struct.unpack_from("<e", raw, at)
        codes = b"".join([table[b] for b in raw[at + 2:at + 2 + size]])
        out.append((d, bytes([1]) * n if number == Q1_0 and d == 0 else codes))
    return out


def block_size(kind, dims, raw):
    if kind in (Q1_0, PTQ1_0):
        return 128
    n = dims[0] * (dims[1] if len(dims) > 1 else 1)
    return next(size for size in (64, 128) if n // size * (2 + size // 4) == len(raw))


def reblock(raw, old, new, was=42, number=42):
    have = blocks_of(raw, old, was)
    if old > new:                      # a block becomes two
        return b"".join([block(d, codes[i:i + new]) for d, codes in have
                         for i in range(0, old, new)])
    if old == new:
        return b"".join([block(d, codes, number) for d, codes in have])
    out = b""
    for (d, a), (e, b) in zip(have[::2], have[1::2]):
        live = {x for x, codes in ((d, a), (e, b)) if set(codes) != {1}}
        assert len(live) < 2
        out += block(live.pop() if live else d, a + b, number)
    return out


# ---- models ----

def new(path, kind):
    words, rng = kind.split("-"), random.Random(kind)
    size = 64 if "64" in words else 128
    number = (Q1_0 if "q1" in words else PTQ1_0 if "ptq" in words else 142 if "pq" in words else 42)
    signs = number == Q1_0 or "signs" in words
    layers, dim, heads, kv, head, ffn = 2, 256, 2, 1, 128, (512 if "wide" in words else 384)
    tokens, types, _, pairs = embed.new_vocab("qwen3")
    sizes = {"vocab_size": len(tokens), "context_length": 512, "embedding_length": dim,
             "block_count": layers, "feed_forward_length": ffn, "rope.dimension_count": head,
             "attention.head_count": heads, "attention.head_count_kv": kv,
             "attention.key_length": head, "attention.value_length": head}
    keys = {"general.architecture": (STR, "qwen3"), "general.name": (STR, "x")}
    keys.update(("qwen3." + k, (U32, v)) for k, v in sizes.items())
    keys["qwen3.attention.layer_norm_rms_epsilon"] = F32, hf.f32(1e-6)
    keys["qwen3.rope.freq_base"] = F32, 1e6
    if "yarn" in words:
        keys["qwen3.rope.scaling.type"] = STR, "yarn"
        keys["qwen3.rope.scaling.factor"] = F32, 4.0
        keys["qwen3.rope.scaling.original_context_length"] = U32, 64
        keys["qwen3.rope.scaling.yarn_beta_fast"] = F32, 32.0
        keys["qwen3.rope.scaling.yarn_beta_slow"] = F32, 2.0
    keys["general.file_type"], keys["general.quantization_version"] = file_type(number), (U32, 2)
    keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"] = (STR, "gpt2"), (STR, "qwen2")
    keys["tokenizer.ggml.tokens"] = ARR, (STR, tokens)
    keys["tokenizer.ggml.token_type"] = ARR, (I32, types)
    keys["tokenizer.ggml.merges"] = ARR, (STR, [" ".join(p) for p in pairs])
    keys["tokenizer.ggml.eos_token_id"] = U32, tokens.index("<|im_end|>")
    keys["tokenizer.ggml.add_bos_token"] = BOOL, False
    tensors = {}

    def norm(name, n):
        tensors[name + ".weight"] = 0, [n], b"".join(
            struct.pack("<f", rng.randint(64, 192) / 128) for _ in range(n))

    def linear(name, rows, cols):
        raw, last = b"", 0.0
        for i in range(rows * cols // size):
            d, = struct.unpack("<e", struct.pack("<e", rng.uniform(0.05, 0.2)))
            if "bf16" in words:
                d = hf.from_bf16(hf.to_bf16(d) & ~7)
            if "one" in words:
                d = 0.125
            codes = bytes(rng.choices((0, 1, 2), (1, 0, 1) if signs else (3, 4, 3), k=size))
            if "equal" in words and i % 2:
                d, codes = (last, codes) if rng.random() < 0.8 else (0.0, bytes([1]) * size)
            if "zeros" in words and i % 5 == 4:
                d, codes = d if "loose" in words else 0.0, bytes([1]) * size
            if "two" in words and (name, i) == (TWO[0], (TWO[1] * cols + TWO[2]) // size):
                at = TWO[2] % size
                codes = codes[:at] + bytes([3]) + codes[at + 1:]
            made, last = block(d, codes, number), d
            raw += bytes(len(made)) if "minus" in words and d == 0 else made
        tensors[name + ".weight"] = number, [cols, rows], raw

    linear("token_embd", len(tokens), dim)
    for i in range(layers):
        b = "blk.%d." % i
        norm(b + "attn_norm", dim)
        linear(b + "attn_q", heads * head, dim)
        linear(b + "attn_k", kv * head, dim)
        linear(b + "attn_v", kv * head, dim)
        norm(b + "attn_q_norm", head)
        norm(b + "attn_k_norm", head)
        linear(b + "attn_output", dim, heads * head)
        norm(b + "ffn_norm", dim)
        linear(b + "ffn_gate", ffn, dim)
        linear(b + "ffn_up", ffn, dim)
        linear(b + "ffn_down", dim, ffn)
    norm("output_norm", dim)
    if "untied" in words:
        linear("output", len(tokens), dim)
    hf.write_gguf(path, keys, tensors)


def file_type(number):
    return U32, {Q1_0: 40, PTQ1_0: 129}.get(number, 41)


def to(path, out, size, number):
    keys, tensors = hf.read_gguf(path)
    keys["general.file_type"] = file_type(number)
    for name, (kind, dims, raw) in tensors.items():
        if kind in NUMBERS:
            old = block_size(kind, dims, raw)
            tensors[name] = number, dims, reblock(raw, old, size, kind, number)
    hf.write_gguf(out, keys, tensors)


def make(path, folder, kind):
    words = kind.split("-")
    keys, tensors = hf.read_gguf(path)
    dtype = words[0].upper()
    made = {}
    for name, (number, dims, raw) in tensors.items():
        where = "lm_head.weight" if name == "output.weight" else "model." + embed.hf_name(name, "qwen3")
        if number not in NUMBERS:
            made[where] = "F32", dims[::-1], raw
            continue
        stored = b""
        for d, codes in blocks_of(raw, block_size(number, dims, raw), number):
            table = [hf.STORE[dtype](x * d) for x in (-1, 0, 1)]
            assert hf.LOAD[dtype](table[2]) == d
            stored += hf.spread(codes, table)
        made[where] = dtype, dims[::-1], stored
    embed.write_folder(os.path.join(folder, "hf"), keys, made, words, random.Random(kind))
    place = hf.Damage(os.path.join(folder, "hf"))

    def config(x):
        x["architectures"] = ["Qwen3ForCausalLM"]
        x["eos_token_id"] = keys["tokenizer.ggml.eos_token_id"][1]
        x["tie_word_embeddings"] = "output.weight" not in tensors
        if "qwen3.rope.scaling.type" in keys:
            x["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "beta_slow": 2.0,
                                 "original_max_position_embeddings": 64}
    place.json("config.json", config)


# ---- damage ----

CASES = {
    "not-ternary": ("columns 0 to 127: they are not -s, 0 and s",
                    lambda d: d.data(Q, struct.pack("<2e", 1.0, 2.0))),
    "nan": ("row 0, columns 0 to 127: they are not -s",
            lambda d: d.data(Q, b"\xff\x7f")),
    "two-scales": ("row 0, columns 0 to 127: they are not -s", lambda d: d.data(
        Q, struct.pack("<2e", 1.0, -1.0009765625))),
    "bias": ("attention_bias", lambda d: d.json(
        "config.json", lambda x: put(x, "attention_bias", True))),
    "class": ("of model_type qwen3 only Qwen3ForCausalLM", lambda d: d.json(
        "config.json", lambda x: put(x, "architectures", ["Qwen3ForSequenceClassification"]))),
    "yarn-factor": ("attention_factor", lambda d: d.json("config.json", lambda x: put(
        x, "rope_scaling", {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5,
                            "original_max_position_embeddings": 64}))),
    "yarn-length": ("original_max_position_embeddings", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", {"rope_type": "yarn", "factor": 4.0}))),
}

if __name__ == "__main__":
    hf.command_line(CASES, {"new": new, "make": make, "to": lambda a, b, c, d: to(a, b, int(c), int(d))})
