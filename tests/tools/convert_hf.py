"""What tests/tools/test_convert_hf.sh needs: models in Hugging Face's form, and what is wrong with them.

    convert_hf.py make MODEL.gguf DIR KIND     DIR/hf, and DIR/want.gguf, which it is to become
    convert_hf.py break BASE DIR               DIR/CASE for each of CASES: BASE/KIND/hf, damaged
    convert_hf.py vary BASE DIR                the same for TAKEN: BASE/KIND/hf, and what changes nothing
    convert_hf.py varied                       "name kind" for each
    convert_hf.py template DIR                 puts DIR/hf's chat template into a file of its own
    convert_hf.py change A.gguf B.gguf WHAT NAMES...    see change()
    convert_hf.py zeros DIR NAME               zeros in the folder's tensors of that name
    convert_hf.py template-list DIR            makes its template a list without "default"
    convert_hf.py cases                        "name word" for each, the word one of its error's
    convert_hf.py compare A.gguf B.gguf [tensors]   same keys (but general.name) and tensors

KIND is words with '-' between them: auto or div (packed, the scale multiplies or divides; bf16scale
or f32scale), bf16, f16 or f32 (weights as floats); shards, pad (rows without a token), pairs
(merges as such), ascii (escapes in JSON), newer (keys as later versions write them), older
(1bitLLM's names and SiLU), untied (a head of its own), extras (tensors that GGUF has no use for);
llama (a LlamaForCausalLM: no sub-norms, and rows of q and k in Hugging Face's order), exact (floats
that are -s, 0 and s), online (floats that are rounded), linear, llama3 or longrope (RoPE's scaling),
minicpm (beside llama: a MiniCPMForCausalLM, which is the same with three factors), bare
(nothing says whether BOS is added), falcon or digits (Falcon-E's tokenizer, with a Split or Digits),
and SentencePiece's: spm (tokenizer.model, added_tokens.json), prepend or metaspace (tokenizer.json).
Everything is worked out here from the definitions, with exact sums; only the standard library is
needed.
"""
import array
import fractions
import json
import math
import os
import random
import shutil
import struct
import sys

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", 10: "Q",
           11: "q"}
I2_S = 36
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_sub_norm": "self_attn.attn_sub_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "ffn_sub_norm": "mlp.ffn_sub_norm"}
OLDER = {"attn_sub_norm": "self_attn.inner_attn_ln", "ffn_sub_norm": "mlp.ffn_layernorm"}


# ---- GGUF ----

def read_gguf(path):
    raw = open(path, "rb").read()
    at = 8

    def take(form):
        nonlocal at
        v, = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize(form)
        return v

    def value(kind):
        nonlocal at
        if kind == STR:
            n = take("Q")
            at += n
            return raw[at - n:at].decode()
        if kind == ARR:
            kind = take("I")
            return kind, [value(kind) for _ in range(take("Q"))]
        return take(FORMATS[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    keys, tensors = {}, {}
    for _ in range(n_keys):
        name = value(STR)
        kind = take("I")
        keys[name] = kind, value(kind)
    for _ in range(n_tensors):
        name = value(STR)
        dims = [take("Q") for _ in range(take("I"))]
        tensors[name] = take("I"), dims, take("Q")
    start = (at + 31) // 32 * 32
    ends = sorted([offset for _, _, offset in tensors.values()] + [len(raw) - start])
    for name, (kind, dims, offset) in tensors.items():
        n = 1
        for d in dims:
            n *= d
        size = {0: 4 * n, 1: 2 * n, 30: 2 * n, I2_S: n // 4 + 32, 41: n // 128 * 18,
                142: n // 128 * 34, 143: n // 128 * 28}.get(kind)
        if kind == 42:                 # blocks of 64 or of 128: what its room says
            room = ends[ends.index(offset) + 1] - offset
            size = next(s for s in (n // 64 * 18, n // 128 * 34) if 0 <= room - s < 32)
        assert start + offset + size <= len(raw)
        tensors[name] = kind, dims, raw[start + offset:start + offset + size]
    return keys, tensors


def write_gguf(path, keys, tensors):
    def value(kind, v):
        if kind == STR:
            v = v.encode()
            return struct.pack("<Q", len(v)) + v
        if kind == ARR:
            return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
        return struct.pack("<" + FORMATS[kind], v)

    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), b""
    for name, (kind, v) in keys.items():
        head += value(STR, name) + struct.pack("<I", kind) + value(kind, v)
    for name, (kind, dims, raw) in tensors.items():
        head += value(STR, name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind,
                                               len(data))
        data += raw + bytes(-len(raw) % 32)
    open(path, "wb").write(head + bytes(-len(head) % 32) + data)


def compare(a, b, what=""):
    (a_keys, a_tensors), (b_keys, b_tensors) = read_gguf(a), read_gguf(b)
    for x, y in ((a_tensors, b_tensors), (a_keys, b_keys))[:1 if what else 2]:
        for name in sorted(set(x) | set(y)):
            if name != "general.name" and x.get(name) != y.get(name):
                sys.exit("%s differs: %.60s %.60s" % (name, x.get(name), y.get(name)))


# ---- numbers ----

FIELDS = [bytes(b >> shift & 3 for b in range(256)) for shift in (6, 4, 2, 0)]
LOW_BITS = bytes(b & 15 for b in range(256))


def unpack(raw):                       # I2_S, 128 weights in 32 bytes
    return b"".join(raw[i:i + 32].translate(t) for i in range(0, len(raw) - 32, 32) for t in FIELDS)


def together(parts, shifts):           # no field is over 2 bits, so that nothing carries
    number = 0
    for part, shift in zip(parts, shifts):
        number |= int.from_bytes(part, "little") << shift
    return number.to_bytes(len(parts[0]), "little")


def pack(codes, scale):
    lanes = [b"".join(codes[i + 32 * k:i + 32 * k + 32] for i in range(0, len(codes), 128))
             for k in range(4)]
    return together(lanes, (6, 4, 2, 0)) + struct.pack("<f", scale) + bytes(28)


def spread(picks, stored):
    """stored[i], all of one length, for each byte i of picks."""
    width = len(stored[0])
    out = bytearray(len(picks) * width)
    for k in range(width):
        out[k::width] = picks.translate(bytes(s[k] for s in stored).ljust(256))
    return bytes(out)


def pack_hf(codes):
    n = len(codes) // 4
    return together([codes[k * n:k * n + n] for k in range(4)], (0, 2, 4, 6))


def to_bf16(x):                        # its 16 bits: nearest, ties to even
    bits, = struct.unpack("<I", struct.pack("<f", x))
    return bits + 0x7fff + (bits >> 16 & 1) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


STORE = {"BF16": lambda x: struct.pack("<H", to_bf16(x)), "F16": lambda x: struct.pack("<e", x),
         "F32": lambda x: struct.pack("<f", x)}
LOAD = {"BF16": lambda b: from_bf16(struct.unpack("<H", b)[0]),
        "F16": lambda b: struct.unpack("<e", b)[0], "F32": lambda b: struct.unpack("<f", b)[0]}


def weights(codes, dtype, rng, ties):
    """Floats that round to these codes, and their scale, or with ties to others, returned too."""
    if ties:                           # mean 1: 0.5 is a tie, 0.5 + ulp is none
        ulp = {"BF16": 2.0 ** -8, "F16": 2.0 ** -11, "F32": 2.0 ** -24}[dtype]
        table = [-1.5, -0.5, 0.5, 1.5, 0.5 + ulp, 1.5 - 2 * ulp]
        picks = bytes([4, 4, 5, 3]) + bytes([0, 1, 2, 3]) * (len(codes) // 4 - 1)
    else:
        unit = 2.0 ** rng.randint(-8, -4)
        table = [-unit * (1 + i / 16) for i in range(16)] + [unit * (i - 8) / 32 for i in range(16)]
        table += [unit * (1 + i / 16) for i in range(16)]
        picks = together([rng.randbytes(len(codes)).translate(LOW_BITS), codes], (0, 4))
    stored = [STORE[dtype](v) for v in table]
    assert [LOAD[dtype](b) for b in stored] == table
    total = sum(fractions.Fraction(abs(v)) * picks.count(i) for i, v in enumerate(table))
    scale = f32(float(max(total / len(codes), fractions.Fraction(1e-5))))
    rounded = [max(-1, min(1, round(fractions.Fraction(v) / fractions.Fraction(scale)))) + 1
               for v in table]         # round() of a Fraction: ties to even
    return spread(picks, stored), picks.translate(bytes(rounded).ljust(256)), scale


# ---- rows of q and k: a head's pair i is rows i and half + i in Hugging Face's form, 2i and 2i + 1 in
# ---- GGUF's llama; converters there do w.reshape(heads, 2, half, -1).swapaxes(1, 2)

def reorder(codes, rows, head, to_gguf):
    n = len(codes) // rows
    row = [codes[i * n:i * n + n] for i in range(rows)]
    out = [None] * rows
    for first in range(0, rows, head):
        for j in range(2):
            for i in range(head // 2):
                theirs, ours = first + j * (head // 2) + i, first + 2 * i + j
                if to_gguf:
                    out[ours] = row[theirs]
                else:
                    out[theirs] = row[ours]
    return b"".join(out)


def rope_factors(theta, head, factor, low, high, original):    # LLaMA 3.1's, in double
    out = []
    for i in range(head // 2):
        length = 2 * math.pi * theta ** (2 * i / head)
        smooth = (original / length - low) / (high - low)
        out.append(1.0 if length < original / high else factor if length > original / low
                   else 1 / ((1 - smooth) / factor + smooth))
    return out


# ---- models ----

def write_safetensors(path, tensors, dump):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = dump(header)
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, raw in tensors.values():
            f.write(raw)


def make_tensors(tensors, words, rng, padding, head, theta):
    """What Hugging Face has, and what it is to become. head: rows of a head."""
    hf, want, tied = {}, {}, False
    dtype = "BF16" if "f32scale" not in words else "F32"
    for kind in ("bf16", "f16", "f32"):
        dtype = kind.upper() if kind in words else dtype
    for name, (kind, dims, raw) in tensors.items():
        parts = name.split(".")
        where = {"token_embd": "embed_tokens", "output_norm": "norm"}.get(parts[0])
        if not where:
            old = OLDER.get(parts[2]) if "older" in words else None
            where = "layers.%s.%s" % (parts[1], old or NAMES[parts[2]])
        where = "model.%s.weight" % where
        if "llama" in words and "sub_norm" in name:
            continue
        moves = "llama" in words and parts[-2] in ("attn_q", "attn_k")
        shape = dims[::-1]
        if kind != I2_S:
            old, new = ("F16", dtype) if kind == 1 else ("F32", dtype)
            if dtype == "F32":
                new = old              # nothing is rounded
            step = 2 if old == "F16" else 4
            if parts[0] == "token_embd":
                shape[0] += padding
                dims = [dims[0], shape[0]]
                raw += raw[:padding * dims[0] * step]
            if old != new:
                cast = {}              # of few numbers each
                values = [raw[i:i + step] for i in range(0, len(raw), step)]
                for v in set(values):
                    cast[v] = STORE[new](LOAD[old](v))
                hf[where] = new, shape, b"".join([cast[v] for v in values])
                back = {v: STORE[old](LOAD[new](c)) for v, c in cast.items()}
                raw = b"".join([back[v] for v in values])
            else:
                hf[where] = new, shape, raw
            want[name] = kind, dims, raw
            continue
        codes, scale = unpack(raw), struct.unpack("<f", raw[-32:-28])[0]
        if moves:
            codes = reorder(codes, shape[0], head, False)
        if "auto" in words or "div" in words:
            stored = STORE[dtype](1 / scale if "div" in words else scale)
            scale = f32(1 / LOAD[dtype](stored)) if "div" in words else LOAD[dtype](stored)
            hf[where] = "U8", [shape[0] // 4, shape[1]], pack_hf(codes)
            hf[where + "_scale"] = dtype, [1], stored
        elif "exact" in words:
            stored = [STORE[dtype](x * scale) for x in (-1, 0, 1)]
            scale = LOAD[dtype](stored[2])
            hf[where] = dtype, shape, spread(codes, stored)
        else:
            stored, codes, scale = weights(codes, dtype, rng, not tied)
            tied = True
            hf[where] = dtype, shape, stored
        if moves:
            codes = reorder(codes, shape[0], head, True)
        want[name] = kind, dims, pack(codes, scale)
    if "untied" in words or "extras" in words:
        kind, dims, raw = want["token_embd.weight"]
        rows = lambda raw: [raw[i:i + len(raw) // dims[1]]
                            for i in range(0, len(raw), len(raw) // dims[1])]
        turn = lambda raw: b"".join(rows(raw)[::-1])
        hf["lm_head.weight"] = hf[EMBED][:2] + (turn(hf[EMBED][2]),)
        if "untied" in words:
            want["output.weight"] = kind, dims, turn(raw)
    if "extras" in words:
        hf["model.layers.0.self_attn.rotary_emb.inv_freq"] = "F32", [4], bytes(16)
    if "llama3" in words:
        factors = rope_factors(theta, head, *LLAMA3)
        want["rope_freqs.weight"] = 0, [head // 2], b"".join(struct.pack("<f", x) for x in factors)
    if "longrope" in words:
        for name, factors in zip(("long", "short"), longrope(head)):
            want["rope_factors_%s.weight" % name] = 0, [head // 2], b"".join(
                struct.pack("<f", x) for x in factors)
    return hf, want


LLAMA3 = 8.0, 1.0, 4.0, 64             # factor, low, high, original length


def longrope(head):                    # long and short factors
    return [[1 + i / 7 for i in range(head // 2)], [1 + i / 31 for i in range(head // 2)]]


def make_keys(keys, words, padding):
    old = keys["general.architecture"][1]
    arch = ("bitnet" if "older" in words else "minicpm" if "minicpm" in words else
            "llama" if "llama" in words else old)
    names = ["vocab_size", "context_length", "embedding_length", "block_count",
             "feed_forward_length", "rope.dimension_count", "attention.head_count",
             "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base"]
    want = {"general.architecture": (STR, arch), "general.name": (STR, "x")}
    for name in names:
        want[arch + "." + name] = keys[old + "." + name]
    n = len(keys["tokenizer.ggml.tokens"][1][1])
    pads = range(n, n + padding)
    want[arch + ".vocab_size"] = U32, n + padding
    want["general.file_type"], want["general.quantization_version"] = (U32, 40), (U32, 2)
    want["tokenizer.ggml.model"] = STR, "gpt2"
    want["tokenizer.ggml.pre"] = STR, "llama-bpe"
    want["tokenizer.ggml.tokens"] = ARR, (STR, keys["tokenizer.ggml.tokens"][1][1] +
                                          ["[PAD%d]" % i for i in pads])
    want["tokenizer.ggml.scores"] = ARR, (F32, [0.0] * (n + padding))
    want["tokenizer.ggml.token_type"] = ARR, (I32, keys["tokenizer.ggml.token_type"][1][1] +
                                              [5] * padding)
    want["tokenizer.ggml.merges"] = keys["tokenizer.ggml.merges"]
    for name in ("bos", "eos", "padding"):
        name = "tokenizer.ggml.%s_token_id" % name
        if name in keys:
            want[name] = keys[name]
    want["tokenizer.ggml.add_bos_token"] = BOOL, "bare" not in words
    if "older" in words:
        want["bitnet.hidden_activation"] = STR, "silu"
    if "minicpm" in words:
        layers = want[arch + ".block_count"][1]
        for name, v in (("embedding", 12), ("residual", 1.4 / layers ** 0.5),
                        ("logit", want[arch + ".embedding_length"][1] / 96)):
            want["minicpm.%s_scale" % name] = F32, v
    if "longrope" in words:
        want[arch + ".rope.scaling.type"] = STR, "longrope"
    if "linear" in words:
        want[arch + ".rope.scaling.type"] = STR, "linear"
        want[arch + ".rope.scaling.factor"] = F32, 2.0
    if "falcon" in words or "digits" in words:
        want["tokenizer.ggml.pre"] = STR, "falcon_e"
        del want["tokenizer.ggml.scores"]
    if spm_kind(words):
        want.update(make_spm(n + padding, words)[0])
        del want["tokenizer.ggml.merges"]
    want["tokenizer.chat_template"] = STR, "{{ 'Ä\n' }}"
    if "newer" in words or "generation" in words:
        ends = [want["tokenizer.ggml.eos_token_id"][1], 0] + [5] * ("generation" in words)
        want["tokenizer.ggml.eos_token_ids"] = ARR, (I32, ends)
    return want


def make_config(want, words):
    arch = want["general.architecture"][1]
    get = lambda name: want[arch + "." + name][1]
    config = {"architectures": ["BitnetForCausalLM" if "div" in words else "BitNetForCausalLM"],
              "bos_token_id": want["tokenizer.ggml.bos_token_id"][1],
              "eos_token_id": want["tokenizer.ggml.eos_token_id"][1], "hidden_act": "relu2",
              "hidden_size": get("embedding_length"),
              "intermediate_size": get("feed_forward_length"),
              "max_position_embeddings": get("context_length"), "model_type": "bitnet",
              "rms_norm_eps": float("%.8g" % get("attention.layer_norm_rms_epsilon")),
              "num_attention_heads": get("attention.head_count"),
              "num_hidden_layers": get("block_count"),
              "num_key_value_heads": get("attention.head_count_kv"),
              "rope_theta": get("rope.freq_base"), "rope_scaling": None,
              "tie_word_embeddings": "untied" not in words, "use_cache": True,
              "vocab_size": get("vocab_size")}
    if "llama" in words:
        config.update(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu",
                      mlp_bias=False, attention_bias=False, pretraining_tp=1)
    if "linear" in words:
        config["rope_scaling"] = {"type": "linear", "factor": 2.0}
    if "minicpm" in words:
        config.update(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=12,
                      scale_depth=1.4, dim_model_base=96, mup_denominator=32)
    if "longrope" in words:
        long, short = longrope(get("rope.dimension_count"))
        config["rope_scaling"] = {"rope_type": "longrope", "long_factor": long, "short_factor": short,
                                  "original_max_position_embeddings": get("context_length")}
    if "llama3" in words:
        config["rope_scaling"] = dict(zip(("factor", "low_freq_factor", "high_freq_factor",
                                           "original_max_position_embeddings"), LLAMA3),
                                      rope_type="llama3")
    if "online" in words:
        config["quantization_config"] = {"quant_method": "bitnet", "linear_class": "autobitlinear",
                                         "quantization_mode": "online"}
    if "older" in words:
        config["hidden_act"] = "silu"
        del config["tie_word_embeddings"]
    if "newer" in words:
        config["rope_parameters"] = config.pop("rope_scaling") or {"rope_type": "default"}
        config["rope_parameters"]["rope_theta"] = config.pop("rope_theta")
        config["eos_token_id"] = [config["eos_token_id"], 0]
    if "generation" in words:          # its file says where texts end
        config["eos_token_id"] = [7, 8]
    if "auto" in words:
        config["quantization_config"] = {"quant_method": "bitnet", "linear_class": "autobitlinear",
                                         "quantization_mode": "offline"}
    if "div" in words:                 # without a linear_class that is what it is
        config["quantization_config"] = {"quant_method": "bitnet"}
        if "newer" in words:
            config["quantization_config"]["linear_class"] = "bitlinear"
    return config


# ---- SentencePiece ----

MARK = "\u2581"


def spm_kind(words):
    return [w for w in words if w in ("spm", "prepend", "metaspace")]


def make_spm(size, words):
    """The keys of a vocabulary, its pieces, the tokens that were added later, and its merges."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [("<0x%02X>" % b, 0.0, 6) for b in range(256)]
    rng, parts, merges = random.Random(size), [MARK] + list("abcdefghij"), []
    while len(parts) < size - 259 - 3:
        a, b = rng.choice(parts), rng.choice(parts)
        if a + b not in parts and len(a + b) < 12:
            parts.append(a + b)
            merges.append((a, b))
    parts = parts[11:] + parts[:11]    # characters come last
    pieces += [(p, -float(i), 1) for i, p in enumerate(parts)]
    added = [("<line>", 4), ("<pad>", 3)]
    tokens = pieces + [(t, -1000.0, kind) for t, kind in added] + [("[PAD%d]" % (size - 1), -10000.0, 5)]
    if "spm" not in words:             # scores are ranks, by the first merge of a token
        rank = {}
        for i, (a, b) in enumerate(merges):
            rank.setdefault(a + b, i)
        tokens = [(t, -1000.0 if kind in (3, 4) else -10000.0 if kind == 5 else
                   -float(rank.get(t, 0)), kind) for t, _, kind in tokens]
    keys = {"tokenizer.ggml.model": (STR, "llama"), "tokenizer.ggml.pre": (STR, "default"),
            "tokenizer.ggml.tokens": (ARR, (STR, [t for t, _, _ in tokens])),
            "tokenizer.ggml.scores": (ARR, (F32, [x for _, x, _ in tokens])),
            "tokenizer.ggml.token_type": (ARR, (I32, [kind for _, _, kind in tokens])),
            "tokenizer.ggml.bos_token_id": (U32, 1), "tokenizer.ggml.eos_token_id": (U32, 2),
            "tokenizer.ggml.unknown_token_id": (U32, 0),
            "tokenizer.ggml.padding_token_id": (U32, len(pieces) + 1),
            "tokenizer.ggml.add_space_prefix": (BOOL, True)}
    return keys, pieces, [(len(pieces) + i, t, kind) for i, (t, kind) in enumerate(added)], merges


def pb_varint(v):
    v %= 1 << 64
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def pb(number, v):                     # a field of a message of protocol buffers
    if isinstance(v, bytes):
        return pb_varint(number << 3 | 2) + pb_varint(len(v)) + v
    if isinstance(v, float):
        return pb_varint(number << 3 | 5) + struct.pack("<f", v)
    return pb_varint(number << 3) + pb_varint(v)


def spm_model(pieces, trainer=((3, 2), (35, 1), (43, -1)),
              normalizer=((1, b"identity"), (3, 1), (4, 0), (5, 1))):
    return b"".join([pb(1, pb(1, t.encode()) + pb(2, score) + (pb(3, kind) if kind != 1 else b""))
                     for t, score, kind in pieces] +
                    [pb(2, b"".join(pb(*f) for f in trainer)),
                     pb(3, b"".join(pb(*f) for f in normalizer))])


def added_token(i, text, special):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def frame(bos, i):                     # a token in front of a text
    text = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": text, "pair": text,
            "special_tokens": {bos: {"id": bos, "ids": [i], "tokens": [bos]}}}


def byte_level(**changed):
    return dict({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                 "use_regex": True}, **changed)


def spm_tokenizer(pieces, added, merges, words):
    lines = [added_token(i, pieces[i][0], True) for i in range(3)]
    lines += [added_token(i, t, kind == 3) for i, t, kind in added]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    newer = "metaspace" in words
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": lines,
            "normalizer": None if newer else {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": MARK}, replace]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True,
                              "prepend_scheme": "first", "split": False} if newer else None,
            "post_processor": frame("<s>", 1),
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {t: i for i, (t, _, _) in enumerate(pieces)},
                      "merges": [list(m) if newer else " ".join(m) for m in merges]}}


def make_tokenizer(keys, words):
    tokens, types = keys["tokenizer.ggml.tokens"][1][1], keys["tokenizer.ggml.token_type"][1][1]
    merges = keys["tokenizer.ggml.merges"][1][1]
    added = [added_token(i, t, types[i] == 3) for i, t in enumerate(tokens) if types[i] != 1]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
             "invert": False}
    if "pairs" in words:               # another way to say it
        split.update(behavior="Removed", invert=True)
    steps = [split, byte_level(use_regex=False)]
    falcon = "falcon" in words or "digits" in words
    if falcon:
        steps = [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                 {"type": "Digits", "individual_digits": True} if "digits" in words else
                 dict(split, pattern={"Regex": "[0-9]"})]
    bos = keys["tokenizer.ggml.bos_token_id"][1]
    level = byte_level(add_prefix_space=True, trim_offsets=False)
    return {"version": "1.0", "truncation": {"direction": "Right", "max_length": 8, "stride": 0,
                                             "strategy": "LongestFirst"},
            "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "post_processor": level if "bare" in words else
            {"type": "Sequence", "processors": [level, frame(tokens[bos], bos)]},
            "decoder": byte_level(add_prefix_space=True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": "" if "pairs" in words else None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": not falcon,
                      "vocab": {t: i for i, t in enumerate(tokens) if types[i] == 1},
                      "merges": [m.split(" ") for m in merges] if "pairs" in words else merges}}


def make(model, folder, kind):
    words, rng = kind.split("-"), random.Random(kind)
    keys, tensors = read_gguf(model)
    dump = lambda x: json.dumps(x, ensure_ascii="ascii" in words).encode()
    to = os.path.join(folder, "hf")
    os.makedirs(to, exist_ok=True)
    save = lambda name, x: open(os.path.join(to, name), "wb").write(dump(x))
    padding = 5 if "pad" in words else 0
    want = make_keys(keys, words, padding)
    old = keys["general.architecture"][1]
    hf, want_tensors = make_tensors(tensors, words, rng, padding,
                                    keys[old + ".rope.dimension_count"][1],
                                    keys[old + ".rope.freq_base"][1])
    write_gguf(os.path.join(folder, "want.gguf"), want, want_tensors)
    save("config.json", make_config(want, words))
    if "generation" in words:
        save("generation_config.json", {
            "eos_token_id": want["tokenizer.ggml.eos_token_ids"][1][1], "temperature": 0.6})
    config = {"add_bos_token": True, "chat_template": want["tokenizer.chat_template"][1]}
    if "bare" in words:
        del config["add_bos_token"]
    if spm_kind(words):
        arch = want["general.architecture"][1]
        _, pieces, added, merges = make_spm(want[arch + ".vocab_size"][1] if "llama" in words else
                                            len(want["tokenizer.ggml.tokens"][1][1]), words)
        config["unk_token"] = "<unk>"
    if "spm" in words:
        open(os.path.join(to, "tokenizer.model"), "wb").write(spm_model(pieces))
        save("added_tokens.json", {t: i for i, t, _ in added})
        config["added_tokens_decoder"] = {str(i): {"content": t, "special": kind == 3}
                                          for i, t, kind in added[1:]}
        config["added_tokens_decoder"]["1"] = {"content": "<s>", "special": True}
    elif spm_kind(words):
        save("tokenizer.json", spm_tokenizer(pieces, added, merges, words))
    else:
        save("tokenizer.json", make_tokenizer(keys, words))
    if "newer" in words:
        config["chat_template"] = [{"name": "tool", "template": "x"},
                                   {"name": "default", "template": config["chat_template"]}]
    if "tokenizer.ggml.padding_token_id" in want:
        pad = want["tokenizer.ggml.tokens"][1][1][want["tokenizer.ggml.padding_token_id"][1]]
        config["pad_token"] = {"content": pad} if "newer" in words else pad
    save("tokenizer_config.json", config)
    if "shards" not in words:
        write_safetensors(os.path.join(to, "model.safetensors"), hf, dump)
        return
    names, index = list(hf), {}
    rng.shuffle(names)
    for i in range(3):
        shard = "model-%05d-of-00003.safetensors" % (i + 1)
        write_safetensors(os.path.join(to, shard), {n: hf[n] for n in names[i::3]}, dump)
        index.update((n, shard) for n in names[i::3])
    save("model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": index})


# ---- damage ----

def rewrite(path, data):               # a file of its own: its links elsewhere keep the old one
    os.remove(path)
    with open(path, "wb") as f:
        f.write(data)


class Damage:
    """A folder with a model, with what the cases below do to it."""
    def __init__(self, folder):
        self.dir = folder
        self.shards = sorted(f for f in os.listdir(self.dir) if f.endswith(".safetensors"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def json(self, name, change):      # change(the document) in place
        doc = json.load(open(self.path(name)))
        change(doc)
        rewrite(self.path(name), json.dumps(doc).encode())

    def text(self, name, old, new):
        text = open(self.path(name)).read()
        assert old in text, old
        rewrite(self.path(name), text.replace(old, new, 1).encode())

    def header(self, change, shard=0):     # change(header's text) gives another
        path = self.path(self.shards[shard])
        raw = open(path, "rb").read()
        n, = struct.unpack("<Q", raw[:8])
        text = change(raw[8:8 + n])
        text = text if isinstance(text, bytes) else json.dumps(text).encode()
        rewrite(path, struct.pack("<Q", len(text)) + text + raw[8 + n:])

    def tensors(self, change, shard=0):    # change(header as a dict, its tensors' names)
        def both(text):
            header = json.loads(text)
            change(header, [n for n in header if n != "__metadata__"])
            return header
        self.header(both, shard)

    def raw(self, change, shard=0):
        path = self.path(self.shards[shard])
        data = bytearray(open(path, "rb").read())
        rewrite(path, change(data))

    def data(self, name, put, shard=0):    # the first bytes of a tensor's data
        def change(raw):
            n, = struct.unpack("<Q", raw[:8])
            at = 8 + n + json.loads(raw[8:8 + n])[name]["data_offsets"][0]
            raw[at:at + len(put)] = put
            return raw
        self.raw(change, shard)


LAST = "last"


def put(where, *path):                 # put(doc, key, key..., value); LAST: behind a list's end
    for key in path[:-2]:
        where = where[key]
    if path[-2] == LAST:
        where.append(path[-1])
    else:
        where[path[-2]] = path[-1]


Q = "model.layers.0.self_attn.q_proj.weight"
EMBED = "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"
TEMPLATE = "chat_template.jinja"


def merge_shards(d):                   # tensors twice: a shard under another's name
    os.replace(d.path(d.shards[0]), d.path(d.shards[1]))
    open(d.path(d.shards[0]), "wb").write(open(d.path(d.shards[1]), "rb").read())


def lose_tensor(d, name):              # under another name
    for i in range(len(d.shards)):
        d.header(lambda text: text.replace(b'"%s"' % name.encode(), b'"model.other"'), i)


def reshard(d, new):
    d.text(INDEX, d.shards[0], new)


def unreadable(d, name, make):         # make(path) puts something else in the place of the file
    os.remove(d.path(name))
    make(d.path(name))


def link_to_itself(path):
    os.symlink(os.path.basename(path), path)


def link_to_nothing(path):
    os.symlink("nothing", path)


def template_file(d):                  # the template in a file of its own
    config = json.load(open(d.path("tokenizer_config.json")))
    open(d.path(TEMPLATE), "w").write(config.pop("chat_template"))
    rewrite(d.path("tokenizer_config.json"), json.dumps(config).encode())


def generation(**fields):
    return lambda d: open(d.path("generation_config.json"), "w").write(json.dumps(fields))


# name: the kind of model, a word of the error, the damage
def spm(trainer=None, normalizer=None, pieces=None, cut=0, more=b""):
    """tokenizer.model, other than it should be."""
    def damage(d):
        made = pieces or make_spm(300, ["spm"])[1]
        args = {k: v for k, v in (("trainer", trainer), ("normalizer", normalizer)) if v}
        data = spm_model(made, **args) + more
        rewrite(d.path("tokenizer.model"), data[:len(data) - cut])
    return damage


def unmade(d):                         # a token that no merge makes, where that matters
    def change(x):
        x["model"]["merges"].pop()
        x["model"]["ignore_merges"] = not x["model"]["ignore_merges"]
    d.json("tokenizer.json", change)


# what changes the tokens: its name, the kind of model, a word of the error, where it is, the value
PRE, POST, DECODER, MODEL = "pre_tokenizer", "post_processor", "decoder", "model"
TOKENIZERS = [
    ("digits", "auto", "pretokenizers[1].type is 'Digits', and only ByteLevel", PRE, "pretokenizers", 1,
     {"type": "Digits", "individual_digits": True}),
    ("more", "auto", "pretokenizers[2].type is 'Punctuation', which is not known", PRE, "pretokenizers",
     LAST, {"type": "Punctuation", "behavior": "Isolated"}),
    ("alone", "auto", "pre_tokenizer.type is 'ByteLevel', and only Split", PRE, byte_level()),
    ("prefix", "auto", "[1].add_prefix_space is true, and only false", PRE, "pretokenizers", 1,
     "add_prefix_space", True),
    ("regex-too", "auto", "[1].use_regex is true, and only false", PRE, "pretokenizers", 1, "use_regex",
     True),
    ("removed", "auto", "[0].behavior is 'Removed', and only Isolated", PRE, "pretokenizers", 0,
     "behavior", "Removed"),
    ("merged", "auto", "[0].behavior is 'MergedWithNext'", PRE, "pretokenizers", 0, "behavior",
     "MergedWithNext"),
    ("string", "auto", "[0].pattern.String is ' ', which is not known", PRE, "pretokenizers", 0, "pattern",
     {"String": " "}),
    ("field", "auto", "[0].limit is 3, which is not known", PRE, "pretokenizers", 0, "limit", 3),
    ("lowercase", "auto", "normalizer.type is 'Lowercase'", "normalizer", {"type": "Lowercase"}),
    ("nfkc", "auto", "normalizer.normalizers[0].type is 'NFKC'", "normalizer",
     {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}),
    ("strip", "auto", "normalizer.type is 'Strip'", "normalizer",
     {"type": "Strip", "strip_left": True, "strip_right": True}),
    ("suffix", "auto", "model.end_of_word_suffix is '</w>', and only '' is", MODEL, "end_of_word_suffix",
     "</w>"),
    ("subword", "auto", "model.continuing_subword_prefix is '##'", MODEL, "continuing_subword_prefix",
     "##"),
    ("dropout", "auto", "model.dropout is 0.1, and only 0 or 0.0", MODEL, "dropout", 0.1),
    ("model-field", "auto", "model.max_input_chars_per_word is 100", MODEL, "max_input_chars_per_word",
     100),
    ("bert", "auto", "post_processor.type is 'BertProcessing'", POST,
     {"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 2]}),
    ("two-ids", "auto", "what is not one token", POST, {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"x": {"id": "x", "ids": [1, 2], "tokens": ["a", "b"]}}}),
    ("no-text", "auto", "leaves out the text", POST, {"type": "TemplateProcessing", "single": []}),
    ("two-texts", "auto", "or two texts", POST, {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 2}),
    ("single-text", "auto", "is not an array", POST, {"type": "TemplateProcessing", "single": "$A"}),
    ("two-frames", "auto", "post_processor.processors[2].type is 'TemplateProcessing', which", POST,
     "processors", LAST, frame("a", 1)),
    ("wordpiece", "auto", "decoder.type is 'WordPiece', and only ByteLevel", DECODER,
     {"type": "WordPiece", "prefix": "##", "cleanup": True}),
    ("no-bytes", "auto", "decoder.decoders[1].type is 'Fuse'", DECODER,
     {"type": "Sequence", "decoders": [byte_level(), {"type": "Fuse"}]}),
    ("lstrip", "auto", "added_tokens[0].lstrip is true, and only false", "added_tokens", 0, "lstrip", True),
    ("rstrip", "auto", "added_tokens[1].rstrip is true", "added_tokens", 1, "rstrip", True),
    ("word", "auto", "added_tokens[0].single_word is true", "added_tokens", 0, "single_word", True),
    ("normalized", "llama-exact-f16-prepend", "added_tokens[3].normalized is true", "added_tokens", 3,
     "normalized", True),
    ("spm-split", "older-bf16-metaspace", "pre_tokenizer.split is true, and only false", PRE, "split",
     True),
    ("spm-never", "older-bf16-metaspace", "prepend_scheme is 'never', and only first or always", PRE,
     "prepend_scheme", "never"),
    ("spm-strip", "older-bf16-metaspace", "decoders[3].start is 2, and only 1", DECODER, "decoders", 3,
     "start", 2),
    ("spm-merges", "older-bf16-metaspace", "model.dropout is 0.5", MODEL, "dropout", 0.5),
]


MINICPM = "llama-minicpm-exact-bf16-longrope-spm"
CASES = {
    "llama-class": ("llama-exact-bf16", "of model_type llama only LlamaForCausalLM", lambda d: d.json(
        "config.json", lambda x: put(x, "architectures", ["LlamaForSequenceClassification"]))),
    "llama-bias": ("llama-exact-bf16", "mlp_bias", lambda d: d.json(
        "config.json", lambda x: put(x, "mlp_bias", True))),
    "llama-not-ternary": ("llama-exact-bf16", "q_proj.weight' at offset", lambda d: d.data(
        Q, b"\x80\x3f\x00\x40")),
    "llama-nan": ("llama-exact-bf16", "is none of -s, 0 and s", lambda d: d.data(Q, b"\xc0\x7f")),
    "llama-masters": ("llama-exact-bf16", "quantization_mode is not online", lambda d: d.data(
        Q, b"\x80\x3f\x81\x3f")),
    "llama-rope-no-type": ("llama-exact-bf16", "rope_type", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", {"factor": 8.0}))),
    "llama-rope-factors": ("llama-exact-bf16", "'high_freq_factor' is not over", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}))),
    "minicpm-no-scale": (MINICPM, "'scale_depth' is missing", lambda d: d.json(
        "config.json", lambda x: x.pop("scale_depth"))),
    "minicpm-scale": (MINICPM, "'scale_emb' is not a positive number", lambda d: d.json(
        "config.json", lambda x: put(x, "scale_emb", 0))),
    "minicpm-base": (MINICPM, "'dim_model_base' is not a positive number", lambda d: d.json(
        "config.json", lambda x: put(x, "dim_model_base", "256"))),
    "minicpm-experts": (MINICPM, "num_experts 8", lambda d: d.json(
        "config.json", lambda x: put(x, "num_experts", 8))),
    "minicpm-class": (MINICPM, "of model_type minicpm only MiniCPMForCausalLM", lambda d: d.json(
        "config.json", lambda x: put(x, "architectures", ["MiniCPM3ForCausalLM"]))),
    "llama-scaled": ("llama-exact-bf16", "scale_emb 12", lambda d: d.json(
        "config.json", lambda x: put(x, "scale_emb", 12))),
    "longrope-no-list": (MINICPM, "'short_factor' is not an array", lambda d: d.json(
        "config.json", lambda x: x["rope_scaling"].pop("short_factor"))),
    "longrope-long": (MINICPM, "'long_factor' is not an array of half", lambda d: d.json(
        "config.json", lambda x: x["rope_scaling"]["long_factor"].append(1.0))),
    "longrope-zero": (MINICPM, "'long_factor' has what is not a number", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", "long_factor", 3, 0))),
    "longrope-text": (MINICPM, "'short_factor' has what is not a number", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", "short_factor", 0, "1"))),
    "longrope-longer": (MINICPM, "original_max_position_embeddings 32 is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", "original_max_position_embeddings", 32))),
    "longrope-factor": (MINICPM, "attention_factor 1.2 is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", "attention_factor", 1.2))),
    "spm-truncated": ("llama-div-spm", "tokenizer.model: offset", spm(cut=1)),
    "spm-empty": ("llama-div-spm", "there are no pieces", lambda d: rewrite(
        d.path("tokenizer.model"), b"")),
    "spm-text": ("llama-div-spm", "not a SentencePiece model", lambda d: rewrite(
        d.path("tokenizer.model"), b"version 1")),
    "spm-long-number": ("llama-div-spm", "has no end", spm(more=b"\x18" + b"\x80" * 11)),
    "spm-unigram": ("llama-div-spm", "model_type", spm(trainer=((3, 1),))),
    "spm-suffix": ("llama-div-spm", "treat_whitespace_as_suffix", spm(trainer=((3, 2), (24, 1)))),
    "spm-charsmap": ("llama-div-spm", "precompiled_charsmap", spm(normalizer=((2, b"x"), (4, 0)))),
    "spm-strips": ("llama-div-spm", "remove_extra_whitespaces", spm(normalizer=((3, 1),))),
    "spm-escapes": ("llama-div-spm", "escape_whitespaces", spm(normalizer=((4, 0), (5, 0)))),
    "spm-no-text": ("llama-div-spm", "the text of a piece", spm(pieces=[("", 0.0, 1)])),
    "spm-nul": ("llama-div-spm", "the text of a piece", spm(pieces=[("a\0b", 0.0, 1)])),
    "spm-nan": ("llama-div-spm", "not a finite number", spm(pieces=[("a", float("nan"), 1)])),
    "spm-type": ("llama-div-spm", "not in 1 .. 6", spm(pieces=[("a", 0.0, 7)])),
    "spm-twice": ("llama-div-spm", "tokenizer.model: ", spm(
        pieces=make_spm(300, ["spm"])[1] + [("a", 0.0, 1)])),
    "spm-too-many": ("llama-div-spm", "more than vocab_size", lambda d: d.json(
        "config.json", lambda x: put(x, "vocab_size", 300))),
    "spm-added-over": ("llama-div-spm", "added_tokens.json: the added token", lambda d: d.json(
        "added_tokens.json", lambda x: put(x, "<line>", 10 ** 6))),
    "spm-added-other": ("llama-div-spm", "has the id of '<unk>'", lambda d: d.json(
        "added_tokens.json", lambda x: put(x, "<line>", 0))),
    "spm-added-list": ("llama-div-spm", "is not an object", lambda d: rewrite(
        d.path("added_tokens.json"), b"[1]")),
    "spm-later-id": ("llama-div-spm", "tokenizer_config.json: the added token", lambda d: d.json(
        "tokenizer_config.json", lambda x: put(x, "added_tokens_decoder", "1x", {"content": "y"}))),
    "spm-prepends-twice": ("llama-exact-f16-prepend", "normalizer.normalizers[2].type is 'Prepend'", lambda d: d.json(
        "tokenizer.json", lambda x: x["normalizer"]["normalizers"].append(
            {"type": "Prepend", "prepend": "x"}))),
    "falcon-triples": ("llama-exact-f32-falcon", "Falcon-E's", lambda d: d.text(
        "tokenizer.json", '"[0-9]"', '"[0-9][0-9][0-9]"')),

    "header-over-file": ("auto", "longer than the file",
                         lambda d: d.raw(lambda r: struct.pack("<Q", len(r) - 7) + r[8:])),
    "header-huge": ("auto", "longer than 16 MB",
                    lambda d: d.raw(lambda r: struct.pack("<Q", 1 << 63) + r[8:])),
    "header-no-object": ("auto", "does not begin with", lambda d: d.header(lambda t: b" " + t)),
    "header-cut": ("auto", "JSON at offset", lambda d: d.header(lambda t: t.rstrip()[:-1])),
    "header-after": ("auto", "text after the value", lambda d: d.header(lambda t: t + b"{}")),
    "header-utf8": ("auto", "not UTF-8", lambda d: d.header(
        lambda t: t.replace(b"pt", b"\xc0\x80"))),
    "header-twice": ("auto", "occurs twice", lambda d: d.header(
        lambda t: t.rstrip()[:-1] + b', "__met\\u0061data__": {}}')),
    "header-deep": ("auto", "nested too deeply", lambda d: d.header(
        lambda t: t.replace(b'"pt"', b"[" * 100000 + b"]" * 100000))),
    "empty-file": ("auto", "is not a safetensors file", lambda d: d.raw(lambda r: b"")),
    "offsets-overlap": ("auto", "overlaps", lambda d: d.tensors(
        lambda h, n: put(h, n[1], "data_offsets", [
            h[n[1]]["data_offsets"][0] - 2, h[n[1]]["data_offsets"][1] - 2]))),
    "offsets-hole": ("auto", "a hole", lambda d: d.tensors(lambda h, n: h.pop(n[1]))),
    "offsets-outside": ("auto", "outside the file", lambda d: d.tensors(
        lambda h, n: put(h, n[-1], "data_offsets", 1, h[n[-1]]["data_offsets"][1] + 1))),
    "offsets-backwards": ("auto", "outside the file", lambda d: d.tensors(
        lambda h, n: h[n[0]]["data_offsets"].reverse())),
    "offsets-2^53": ("auto", "outside the file", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "data_offsets", 1, 2 ** 53 + 1))),
    "offsets-2^64": ("auto", "integer of 64 bits", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "data_offsets", 1, 2 ** 64))),
    "offsets-float": ("auto", "integer of 64 bits", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "data_offsets", 0, 0.0))),
    "offsets-negative": ("auto", "integer of 64 bits", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "data_offsets", 0, -1))),
    "offsets-three": ("auto", "data_offsets", lambda d: d.tensors(
        lambda h, n: h[n[0]]["data_offsets"].append(0))),
    "shape-larger": ("auto", "does not match its shape and dtype", lambda d: d.tensors(
        lambda h, n: h[n[0]]["shape"].append(2))),
    "shape-2^53": ("auto", "shape is too large", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "shape", [2 ** 53 + 1, 2 ** 53 + 1]))),
    "shape-nested": ("auto", "integer of 64 bits", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "shape", [[1], 2]))),
    "shape-long": ("auto", "more than 8", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "shape", [1] * 9))),
    "shape-other": ("auto", "what config.json says", lambda d: d.tensors(
        lambda h, n: h[EMBED]["shape"].reverse())),
    "dtype-unknown": ("auto", "dtype 'U9'", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "dtype", "U9"))),
    "dtype-wrong": ("auto", "not supported here", lambda d: d.tensors(
        lambda h, n: put(h, Q, "dtype", "I8"))),
    "key-extra": ("auto", "must have dtype", lambda d: d.tensors(
        lambda h, n: put(h, n[0], "x", 1))),
    "file-truncated": ("auto", "outside the file", lambda d: d.raw(lambda r: r[:-1])),
    "file-longer": ("auto", "no tensor owns", lambda d: d.raw(lambda r: r + b"\0")),
    "file-missing-adapter": ("auto", "an adapter has to be merged", lambda d: (
        os.remove(d.path("model.safetensors")), open(d.path("adapter_config.json"), "w").close())),
    "file-missing-bin": ("auto", "but pytorch_model.bin, which is not read", lambda d: (
        os.remove(d.path("model.safetensors")), open(d.path("pytorch_model.bin"), "w").close())),
    "file-missing-bins": ("auto", "but pytorch_model.bin.index.json", lambda d: (
        os.remove(d.path("model.safetensors")),
        open(d.path("pytorch_model.bin.index.json"), "w").close())),
    "file-pointer": ("auto", "model.safetensors: this is a pointer of git-lfs", lambda d: rewrite(
        d.path("model.safetensors"), b"version https://git-lfs.github.com/spec/v1\noid x\n")),
    "tokenizer-pointer": ("auto", "tokenizer.json: this is a pointer of git-lfs", lambda d: rewrite(
        d.path("tokenizer.json"), b"version https://git-lfs.github.com/spec/v1\noid x\n")),
    "file-missing": ("auto", "neither model.safetensors nor",
                     lambda d: os.remove(d.path("model.safetensors"))),
    "file-a-folder": ("auto", "config.json: cannot be read: it is not a file",
                      lambda d: unreadable(d, "config.json", os.mkdir)),
    # a file that may be missing, but is there
    "config-a-folder": ("auto", "tokenizer_config.json: cannot be read: it is not a file",
                        lambda d: unreadable(d, "tokenizer_config.json", os.mkdir)),
    "config-a-pipe": ("auto", "tokenizer_config.json: cannot be read: it is not a file",
                      lambda d: unreadable(d, "tokenizer_config.json", os.mkfifo)),
    "config-a-link-to-itself": ("auto", "tokenizer_config.json: cannot be read: Too many levels",
                                lambda d: unreadable(d, "tokenizer_config.json", link_to_itself)),
    "config-a-link-to-nothing": ("auto", "tokenizer_config.json: cannot be read: No such file",
                                 lambda d: unreadable(d, "tokenizer_config.json", link_to_nothing)),
    "template-a-pipe": ("auto", "chat_template.jinja: cannot be read: it is not a file",
                        lambda d: (template_file(d), unreadable(d, TEMPLATE, os.mkfifo))),
    "template-a-link-to-itself": ("auto", "chat_template.jinja: cannot be read: Too many levels",
                                  lambda d: (template_file(d),
                                             unreadable(d, TEMPLATE, link_to_itself))),
    "template-long": ("auto", "chat_template.jinja is not a text of under 1 MB",
                      lambda d: (template_file(d), open(d.path(TEMPLATE), "w").write("x" * (1 << 20)))),
    "model-a-pipe": ("auto-shards", "model.safetensors: cannot be read: it is not a file",
                     lambda d: os.mkfifo(d.path("model.safetensors"))),
    "model-a-link-to-itself": ("auto-shards", "model.safetensors: cannot be read: Too many levels",
                               lambda d: link_to_itself(d.path("model.safetensors"))),
    "index-a-folder": ("auto-shards", INDEX + ": cannot be read: it is not a file",
                       lambda d: unreadable(d, INDEX, os.mkdir)),
    "shard-truncated": ("auto-shards", "outside the file", lambda d: d.raw(lambda r: r[:-1], 2)),
    "shard-missing": ("auto-shards", "00003.safetensors: cannot be read: No such file or directory",
                      lambda d: os.remove(d.path(d.shards[1]))),
    "shard-lacks": ("auto-shards", "is not in model-0000", lambda d: d.json(INDEX, lambda x: put(
        x, "weight_map", "model.other", d.shards[0]))),
    "shard-other": ("auto-shards", "is not in model-0000", lambda d: d.json(INDEX, lambda x: put(
        x, "weight_map", EMBED, d.shards[(d.shards.index(x["weight_map"][EMBED]) + 1) % 3]))),
    "shard-twice": ("auto-shards", "also in another file", merge_shards),
    "shard-unmapped": ("auto-shards", "missing in weight_map",
                       lambda d: d.json(INDEX, lambda x: x["weight_map"].pop(EMBED))),
    "shard-dots": ("auto-shards", "not the name of a file", lambda d: reshard(d, "../" + d.shards[0])),
    "shard-slash": ("auto-shards", "not the name of a file", lambda d: reshard(d, "a/" + d.shards[0])),
    "shard-nul": ("auto-shards", "not the name of a file",
                  lambda d: reshard(d, d.shards[0] + "\\u0000")),
    "shard-number": ("auto-shards", "not the name of a file",
                     lambda d: d.json(INDEX, lambda x: put(x, "weight_map", EMBED, 1))),
    "index-no-map": ("auto-shards", "no weight_map", lambda d: d.json(
        INDEX, lambda x: x.pop("weight_map"))),
    "index-twice": ("auto-shards", "occurs twice", lambda d: d.text(
        INDEX, '"weight_map": {', '"weight_map": {"%s": "x", ' % EMBED)),
    "tensor-missing": ("auto", "'model.layers.0.self_attn.q_proj.weight' is missing",
                       lambda d: lose_tensor(d, Q)),
    "tensor-extra": ("auto", "has no place for it", lambda d: d.json("config.json", lambda x: put(
        x, "num_hidden_layers", x["num_hidden_layers"] - 1))),
    "scale-missing": ("auto", "weight_scale is missing", lambda d: lose_tensor(d, Q + "_scale")),
    "scale-zero": ("div", "not usable as a scale", lambda d: d.data(Q + "_scale", b"\0\0")),
    "scale-nan": ("auto", "not usable as a scale", lambda d: d.data(Q + "_scale", b"\xff\x7f")),
    "code-3": ("auto", "invalid code 3", lambda d: d.data(Q, b"\x03")),
    "code-3-high": ("auto", "invalid code 3", lambda d: d.data(Q, b"\xd5")),
    "weight-nan": ("bf16", "not a usable number", lambda d: d.data(Q, b"\xc0\x7f")),
    "weight-inf": ("f32", "not a usable number", lambda d: d.data(Q, b"\0\0\x80\xff")),
    "embed-too-large": ("bf16", "too large for F16", lambda d: d.data(EMBED, b"\x80\x47")),
    "embed-nan": ("bf16", "is not finite", lambda d: d.data(EMBED, b"\xc0\x7f")),
    "norm-nan": ("bf16", "is not finite", lambda d: d.data("model.norm.weight", b"\xc0\x7f")),
    "config-missing": ("auto", "config.json: cannot be read: No such file or directory",
                       lambda d: os.remove(d.path("config.json"))),
    "config-twice": ("auto", "occurs twice", lambda d: d.text(
        "config.json", '"hidden_size"', '"hidden_size": 1, "hidden_size"')),
    "config-arch": ("auto", "'GemmaForCausalLM' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "architectures", ["GemmaForCausalLM"]))),
    "config-no-size": ("auto", "'hidden_size' is missing",
                       lambda d: d.json("config.json", lambda x: x.pop("hidden_size"))),
    "config-2^53": ("auto", "'vocab_size' is not an integer", lambda d: d.json(
        "config.json", lambda x: put(x, "vocab_size", 2 ** 53))),
    "config-heads": ("auto", "num_attention_heads", lambda d: d.json(
        "config.json", lambda x: put(x, "num_attention_heads", 3))),
    "config-head-dim": ("auto", "head_dim", lambda d: d.json(
        "config.json", lambda x: put(x, "head_dim", 8))),
    "config-act": ("auto", "'gelu' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "hidden_act", "gelu"))),
    "config-bias": ("auto", "attention_bias", lambda d: d.json(
        "config.json", lambda x: put(x, "attention_bias", True))),
    "config-rope": ("auto", "rope_type 'dynamic' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_scaling", {"type": "dynamic"}))),
    "config-eps": ("auto", "layer_norm_rms_epsilon' at offset", lambda d: d.json(
        "config.json", lambda x: put(x, "rms_norm_eps", 5))),
    "config-no-eos": ("auto", "eos_token_id is not the id", lambda d: d.json(
        "config.json", lambda x: put(x, "eos_token_id", []))),
    "config-ends": ("auto", "config.json: eos_token_id[1] is not the id of a token", lambda d: d.json(
        "config.json", lambda x: put(x, "eos_token_id", [x["eos_token_id"], 10 ** 6]))),
    "generation-eos": ("auto", "generation_config.json: eos_token_id is not the id of a token",
                       generation(eos_token_id=10 ** 6)),
    "generation-ends": ("auto", "generation_config.json: eos_token_id has more than 4 tokens",
                        generation(eos_token_id=[0, 1, 2, 3, 4])),
    "config-nan": ("auto", "'rms_norm_eps' is not a positive number", lambda d: d.json(
        "config.json", lambda x: put(x, "rms_norm_eps", float("nan")))),
    "config-infinity": ("auto", "'rope_theta' is not a positive number", lambda d: d.json(
        "config.json", lambda x: put(x, "rope_theta", float("inf")))),
    "config-two-ropes": ("auto", "'rope_scaling' and rope_parameters are both", lambda d: d.json(
        "config.json", lambda x: x.update(rope_scaling={"type": "linear", "factor": 2.0},
                                          rope_parameters={"rope_type": "default"}))),
    "config-rope-part": ("auto-newer", "partial_rotary_factor 0.5 is not supported; only 1",
                         lambda d: d.json("config.json", lambda x: put(
                             x, "rope_parameters", "partial_rotary_factor", 0.5))),
    "config-layers": ("auto", "layer_types 'sliding_attention' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "layer_types", ["full_attention", "sliding_attention"]))),
    "config-unconverted": ("auto", "modules_to_not_convert 'model.layers.0' is not supported",
                           lambda d: d.json("config.json", lambda x: put(
                               x, "quantization_config", "modules_to_not_convert",
                               ["lm_head", "model.layers.0"]))),
    **{"config-field-" + name: ("auto", "%s %s is not supported; only" % (name, json.dumps(value)),
                                (lambda n, v: lambda d: d.json("config.json", lambda x: put(x, n, v)))(
                                    name, value))
       for name, value in (("attention_bias", True), ("use_sliding_window", True),
                           ("partial_rotary_factor", 0.5), ("final_logit_softcapping", 30.0),
                           ("logit_scale", 0.0625), ("embedding_multiplier", 12), ("num_experts", 8),
                           ("weight_bits", 2), ("clip_qkv", 8.0), ("qk_layernorm", True))},
    "config-untied": ("auto", "'lm_head.weight' is missing", lambda d: d.json(
        "config.json", lambda x: put(x, "tie_word_embeddings", False))),
    "quant-none": ("auto", "no quantization_config", lambda d: d.json(
        "config.json", lambda x: x.pop("quantization_config"))),
    "quant-method": ("auto", "'gptq' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "quantization_config", "quant_method", "gptq"))),
    "quant-class": ("auto", "'otherlinear' is not supported", lambda d: d.json(
        "config.json", lambda x: put(x, "quantization_config", "linear_class", "otherlinear"))),
    "quant-norm": ("auto", "use_rms_norm", lambda d: d.json(
        "config.json", lambda x: put(x, "quantization_config", "use_rms_norm", True))),
    "merges-missing": ("auto", "there are no merges", lambda d: d.json(
        "tokenizer.json", lambda x: x["model"].pop("merges"))),
    "merges-empty": ("auto", "there are no merges", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "merges", []))),
    "merge-of-three": ("auto", "not two tokens", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "merges", 0, "a b c"))),
    "merge-of-one": ("auto", "not two tokens", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "merges", 0, ["a"]))),
    "merge-blank": ("auto", "not two tokens", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "merges", 0, ["a b", "c"]))),
    "merge-unknown": ("auto", "is not a token", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "merges", 0, "zzzzq zzzzq"))),
    "vocab-missing": ("auto", "no model.vocab", lambda d: d.json(
        "tokenizer.json", lambda x: x["model"].pop("vocab"))),
    "vocab-hole": ("auto", "no token has the id", lambda d: d.json(
        "tokenizer.json", lambda x: x["model"]["vocab"].pop(next(iter(x["model"]["vocab"]))))),
    "vocab-same-id": ("auto", "another token has its id", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "vocab", "qqqqq", 7))),
    "vocab-same-added": ("auto", "another token has its id", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "added_tokens", 0, "id", 7))),
    "vocab-over": ("auto", "vocab_size", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "vocab", "qqqqq", 10 ** 6))),
    "vocab-nul": ("auto", "not the text of a token", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "added_tokens", 0, "content", "a\0b"))),
    "tokenizer-missing": ("auto", "neither tokenizer.json nor tokenizer.model", lambda d: os.remove(
        d.path("tokenizer.json"))),
    "tokenizer-split": ("auto", "pre_tokenizer.pretokenizers[0].pattern.Regex is '", lambda d: d.text(
        "tokenizer.json", "{1,3}", "{1,2}")),
    "tokenizer-no-split": ("auto", "pre_tokenizer.type is null, and only Split", lambda d: d.json(
        "tokenizer.json", lambda x: x.pop("pre_tokenizer"))),
    "tokenizer-later-flag": ("auto", "added_tokens_decoder.7.rstrip is true, and only false", lambda d: d.json(
        "tokenizer_config.json", lambda x: put(x, "added_tokens_decoder", {"7": {"rstrip": True}}))),
    "tokenizer-spm-flag": ("llama-div-spm", "added_tokens_decoder.1.lstrip is true", lambda d: d.json(
        "tokenizer_config.json", lambda x: put(x, "added_tokens_decoder", "1", "lstrip", True))),
    "tokenizer-merges": ("auto", "model.ignore_merges is false, but only true is supported", unmade),
    "tokenizer-keeps": ("llama-exact-f32-falcon", "model.ignore_merges is true, but only false", unmade),
    **{"tokenizer-" + name: (kind, word, (lambda path: lambda d: d.json(
        "tokenizer.json", lambda x: put(x, *path)))(path))
       for name, kind, word, *path in TOKENIZERS},
    "tokenizer-normalizer": ("auto", "normalizer", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "normalizer", {"type": "NFC"}))),
    "tokenizer-type": ("auto", "only BPE", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "type", "Unigram"))),
    "tokenizer-fallback": ("auto", "byte_fallback", lambda d: d.json(
        "tokenizer.json", lambda x: put(x, "model", "byte_fallback", True))),
    "tokenizer-surrogate": ("auto", "surrogate", lambda d: d.text(
        "tokenizer.json", '"1.0"', '"\\ud800x"')),
    "bos-outside": ("auto", "bos_token_id", lambda d: d.json(
        "config.json", lambda x: put(x, "bos_token_id", 10 ** 9))),
    "template-number": ("auto", "chat_template", lambda d: d.json(
        "tokenizer_config.json", lambda x: put(x, "chat_template", 1))),
}

def zeros(name, kind, raw):            # numbers that are all zero
    if kind == I2_S:
        return b"\x55" * (len(raw) - 32) + raw[-32:]
    return bytes(len(raw)) if kind != 0 else struct.pack("<2f", 0.0, -0.0) * (len(raw) // 8)


def change(path, out, what, *names):
    """GGUF: part (of a split file), eps (one that is too large), gate (a key of its own), zeros (in
    tensors of these names)."""
    keys, tensors = read_gguf(path)
    arch = keys["general.architecture"][1]
    if what == "part":
        keys.update({"split.no": (2, 1), "split.count": (2, 3)})
    elif what == "eps":
        keys[arch + ".attention.layer_norm_rms_epsilon"] = F32, 5.0
    elif what == "gate":
        keys[arch + ".hidden_activation"] = STR, names[0]
    for name, (kind, dims, raw) in tensors.items():
        if what == "zeros" and any(n in name for n in names):
            tensors[name] = kind, dims, zeros(name, kind, raw)
    write_gguf(out, keys, tensors)


def config_has(**fields):
    return lambda d: d.json("config.json", lambda x: x.update(fields))


def template_beside(d):                # the file, and an older template
    template_file(d)
    d.json("tokenizer_config.json", lambda x: put(x, "chat_template", "OLD"))
    open(d.path("chat_template.json"), "w").write('{"chat_template": "OLD"}')


# what changes nothing: name, the kind of model, what is done to it
TAKEN = {
    "nan": ("auto", config_has(initializer_range=float("nan"), x=[-float("inf"), float("inf")])),
    "pad-minus": ("auto", config_has(pad_token_id=-1)),
    "pad-over": ("auto", config_has(pad_token_id=10 ** 6)),
    "pad-unknown": ("auto", lambda d: d.json("tokenizer_config.json", lambda x: put(
        x, "pad_token", "no such"))),
    "rope-empty": ("auto", config_has(rope_scaling={}, rope_parameters={})),
    "rope-no-theta": ("auto-newer", lambda d: d.json("config.json", lambda x: put(
        x, "rope_theta", x["rope_parameters"].pop("rope_theta")))),
    "fields": ("auto", config_has(attention_dropout=0.5, sliding_window=7, pretraining_tp=2, xyz={})),
    "fields-off": ("auto", config_has(attention_bias=None, mlp_bias=False, logit_scale=1,
                                      final_logit_softcapping=None, partial_rotary_factor=1.0)),
    "byte-order-mark": ("auto", lambda d: d.text("config.json", "{", "\ufeff{")),
    "template": ("auto", template_beside),
    "template-empty": ("auto", lambda d: open(d.path(TEMPLATE), "w").write("\n")),
    "generation": ("auto", generation(eos_token_id=None, do_sample=True)),
    "sequence": ("auto", lambda d: d.json("tokenizer.json", lambda x: put(
        x, "normalizer", {"type": "Sequence", "normalizers": []}))),
    "no-decoder": ("auto", lambda d: d.json("tokenizer.json", lambda x: x.pop("decoder"))),
    "no-whole": ("auto", lambda d: d.json("tokenizer.json", lambda x: x["model"].pop("ignore_merges"))),
    "whole": ("llama-exact-f32-falcon", lambda d: d.json("tokenizer.json", lambda x: put(
        x, "model", "ignore_merges", True))),
}


def break_all(cases, base, to):
    for name, (kind, *_, damage) in cases.items():
        folder = os.path.join(to, name)
        shutil.copytree(os.path.join(base, kind, "hf"), folder, copy_function=os.link)
        damage(Damage(folder))


def command_line(cases, commands):
    """For modules that make other kinds of models. break MADE DIR: DIR/CASE for each of the cases, MADE/hf damaged;
    cases: their names and words; else one of the commands."""
    command, *args = sys.argv[1:]
    if command == "break":
        break_all({name: ("", *case) for name, case in cases.items()}, *args)
    elif command == "cases":
        for name, (word, _) in cases.items():
            print(name, word)
    else:
        commands[command](*args)


if __name__ == "__main__":
    command = sys.argv[1]
    if command == "make":
        make(*sys.argv[2:])
    elif command == "zeros":
        place = Damage(sys.argv[2])
        with open(place.path("model.safetensors"), "rb") as f:
            header = json.loads(f.read(*struct.unpack("<Q", f.read(8))))
        for name, t in header.items():
            if sys.argv[3] in name:
                place.data(name, bytes(t["data_offsets"][1] - t["data_offsets"][0]))
    elif command == "change":
        change(*sys.argv[2:])
    elif command in ("break", "vary"):
        break_all(CASES if command == "break" else TAKEN, *sys.argv[2:])
    elif command == "varied":
        for name, (kind, _) in TAKEN.items():
            print(name, kind)
    elif command == "template":
        template_file(Damage(os.path.join(sys.argv[2], "hf")))
    elif command == "template-list":
        Damage(sys.argv[2]).json("tokenizer_config.json", lambda x: put(
            x, "chat_template", [{"name": "tool_use", "template": "x"}]))
    elif command == "cases":
        for name, (kind, word, _) in CASES.items():
            print(name, kind, word)
    else:
        compare(*sys.argv[2:])
