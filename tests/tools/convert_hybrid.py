"""What tests/tools/test_convert_hybrid.sh needs: models with two kinds of layers (architecture qwen35).

    convert_hybrid.py new MODEL.gguf KIND      a small random one, Q2_0 in blocks of 64 or PQ2_0
    convert_hybrid.py make MODEL.gguf DIR KIND DIR/hf, the folder with these weights
    convert_hybrid.py break BASE DIR           DIR/CASE for each of CASES: BASE/hf, damaged
    convert_hybrid.py cases                    "name word" for each
    convert_hybrid.py compare A.gguf B.gguf    the same tensors, and keys of network and pre-tokenizer
    convert_hybrid.py unfold MODEL.gguf        MODEL's numbers, undone, against PLAIN's:
                      PLAIN.gguf               prints the largest difference
    convert_hybrid.py change IN OUT KEY VALUE  another value of a key, of an array the first ones; "-": without it

KIND of new: words with '-' between them: 64 or 128 (weights in a block), bf16 (ssm_alpha and ssm_beta are
not ternary), fold (keys of a Hadamard fold).
Of make: f16, bf16 or f32; whole (with vision, as a Qwen3_5ForConditionalGeneration), shards. Only the standard
library is needed. Everything is worked out here from the definitions.
"""
import json
import math
import os
import random
import struct
import sys

import convert_embed as embed
import convert_groups as groups
import convert_hf as hf
from convert_hf import ARR, BOOL, F32, I32, STR, U32, put

BF16, Q2_0, PQ2_0 = 30, 42, 142
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
NAMES = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "attn_qkv": "linear_attn.in_proj_qkv",
         "attn_gate": "linear_attn.in_proj_z", "ssm_alpha": "linear_attn.in_proj_a",
         "ssm_beta": "linear_attn.in_proj_b", "ssm_conv1d": "linear_attn.conv1d",
         "ssm_dt": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log", "ssm_norm": "linear_attn.norm",
         "ssm_out": "linear_attn.out_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
FOLD = "prism.hadamard."
KEY_HEADS, VALUE_HEADS, SIZE = 2, 8, 64


# ---- models ----

def new(path, kind):
    words, rng = kind.split("-"), random.Random(kind)
    block, number = (64, Q2_0) if "64" in words else (128, PQ2_0)
    layers, dim, ffn, heads, kv, head = 4, 256, 512, 4, 2, 64
    inner, mixed = VALUE_HEADS * SIZE, (2 * KEY_HEADS + VALUE_HEADS) * SIZE
    tokens, types, _, pairs = embed.new_vocab("qwen3")
    sizes = {"context_length": 512, "embedding_length": dim, "block_count": layers,
             "feed_forward_length": ffn, "rope.dimension_count": 16, "attention.head_count": heads,
             "attention.head_count_kv": kv, "attention.key_length": head,
             "attention.value_length": head, "full_attention_interval": 4, "ssm.conv_kernel": 4,
             "ssm.state_size": SIZE, "ssm.group_count": KEY_HEADS,
             "ssm.time_step_rank": VALUE_HEADS, "ssm.inner_size": inner}
    keys = {"general.architecture": (STR, "qwen35"), "general.name": (STR, "x")}
    keys.update(("qwen35." + k, (U32, v)) for k, v in sizes.items())
    keys["qwen35.attention.layer_norm_rms_epsilon"] = F32, hf.f32(1e-6)
    keys["qwen35.rope.freq_base"] = F32, 1e7
    keys["qwen35.rope.dimension_sections"] = ARR, (I32, [3, 3, 2, 0])
    keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"] = (STR, "gpt2"), (STR, "qwen35")
    keys["tokenizer.ggml.tokens"] = ARR, (STR, tokens)
    keys["tokenizer.ggml.token_type"] = ARR, (I32, types)
    keys["tokenizer.ggml.merges"] = ARR, (STR, [" ".join(p) for p in pairs])
    keys["tokenizer.ggml.eos_token_id"] = U32, tokens.index("<|im_end|>")
    keys["tokenizer.ggml.add_bos_token"] = BOOL, False
    tensors, folded = {}, []

    def floats(name, dims, low, high):
        n = math.prod(dims)
        tensors[name] = 0, dims, struct.pack("<%df" % n, *(
            rng.randint(int(128 * low), int(128 * high)) / 128 for _ in range(n)))

    def linear(name, rows, cols):
        tensors[name + ".weight"] = number, [cols, rows], b"".join(groups.block(
            struct.unpack("<e", struct.pack("<e", rng.uniform(0.05, 0.2)))[0],
            bytes(rng.choices((0, 1, 2), k=block))) for _ in range(rows * cols // block))
        folded.append(name + ".weight")

    def narrow(name):
        if "bf16" not in words:
            linear(name, VALUE_HEADS, dim)
            folded.pop()
            return
        tensors[name + ".weight"] = BF16, [dim, VALUE_HEADS], b"".join(
            struct.pack("<H", hf.to_bf16(rng.gauss(0, 0.06))) for _ in range(VALUE_HEADS * dim))

    linear("token_embd", len(tokens), dim)
    folded.pop()
    for i in range(layers):
        b = "blk.%d." % i
        floats(b + "attn_norm.weight", [dim], 0.5, 1.5)
        if i < 3:
            linear(b + "attn_qkv", mixed, dim)
            linear(b + "attn_gate", inner, dim)
            narrow(b + "ssm_alpha")
            narrow(b + "ssm_beta")
            floats(b + "ssm_conv1d.weight", [4, mixed], -1, 1)
            floats(b + "ssm_dt.bias", [VALUE_HEADS], -4, 1)
            tensors[b + "ssm_a"] = 0, [VALUE_HEADS], b"".join(
                struct.pack("<f", -math.exp(hf.f32(rng.uniform(-2, 2.5)))) for _ in range(VALUE_HEADS))
            floats(b + "ssm_norm.weight", [SIZE], 0.5, 1.5)
            linear(b + "ssm_out", dim, inner)
        else:
            linear(b + "attn_q", 2 * heads * head, dim)
            linear(b + "attn_k", kv * head, dim)
            linear(b + "attn_v", kv * head, dim)
            floats(b + "attn_q_norm.weight", [head], 0.5, 1.5)
            floats(b + "attn_k_norm.weight", [head], 0.5, 1.5)
            linear(b + "attn_output", dim, heads * head)
        floats(b + "post_attention_norm.weight", [dim], 0.5, 1.5)
        linear(b + "ffn_gate", ffn, dim)
        linear(b + "ffn_up", ffn, dim)
        linear(b + "ffn_down", dim, ffn)
    floats("output_norm.weight", [dim], 0.5, 1.5)
    linear("output", len(tokens), dim)
    if "fold" in words:
        widths = [dim, inner]          # inner is ffn, too
        keys[FOLD + "version"], keys[FOLD + "block_size"] = (U32, 1), (U32, 256)
        keys[FOLD + "transform"] = STR, "normalized-sylvester-walsh-hadamard"
        keys[FOLD + "axis"], keys[FOLD + "sign_mode"] = (STR, "input-last-dimension"), (STR, "explicit")
        keys[FOLD + "sign_widths"] = ARR, (I32, widths)
        keys[FOLD + "sign_values"] = ARR, (I32, [rng.choice((-1, 1)) for _ in range(sum(widths))])
        keys[FOLD + "weight_names"] = ARR, (STR, folded)
        keys[FOLD + "inverse_weight_names"] = ARR, (STR, ["token_embd.weight"])
        keys[FOLD + "gdn_v_grouped"] = BOOL, True
    hf.write_gguf(path, keys, tensors)


# ---- folders: there, the value heads of a key head are together ----

def grouped(items, head, key_heads, first=0):
    """Items in Hugging Face's order; a head is so many of them."""
    tail = items[first:]
    n = len(tail) // head
    each = n // key_heads
    out = list(items[:first])
    for h in range(n):                 # theirs; ours is h % each * key_heads + h // each
        ours = h % each * key_heads + h // each
        out += tail[ours * head:(ours + 1) * head]
    return out


def numbers(kind, dims, raw):
    if kind == 0:
        return list(struct.unpack("<%df" % (len(raw) // 4), raw))
    if kind == 1:
        return list(struct.unpack("<%de" % (len(raw) // 2), raw))
    if kind == BF16:
        return [hf.from_bf16(b) for b in struct.unpack("<%dH" % (len(raw) // 2), raw)]
    size = groups.block_size(kind, dims, raw)
    return [(c - 1) * d for d, codes in groups.blocks_of(raw, size, kind) for c in codes]


def make(path, folder, kind):
    words = kind.split("-")
    keys, tensors = hf.read_gguf(path)
    get = lambda k: keys["qwen35." + k][1]
    n_k, n_v, size = get("ssm.group_count"), get("ssm.time_step_rank"), get("ssm.state_size")
    prefix = "model.language_model." if "whole" in words else "model."
    made = {}
    for name, (number, dims, raw) in tensors.items():
        parts = name.split(".")
        part = parts[2] if parts[0] == "blk" else parts[0]
        where = prefix + {"token_embd": "embed_tokens", "output_norm": "norm"}.get(part, "")
        if part == "output":
            where = "lm_head"
        if parts[0] == "blk":
            where = prefix + "layers.%s.%s" % (parts[1], NAMES[part])
        shape, x = dims[::-1], numbers(number, dims, raw)
        dtype = "F32" if number == 0 else "BF16" if number == BF16 else words[0].upper()
        cols = dims[0] if len(dims) > 1 else len(x)
        rows = [x[i:i + cols] for i in range(0, len(x), cols)]
        if part in ("attn_qkv", "ssm_conv1d"):
            rows = grouped(rows, size, n_k, 2 * n_k * size)
        if part == "attn_gate":
            rows = grouped(rows, size, n_k)
        if part in ("ssm_alpha", "ssm_beta"):
            rows = grouped(rows, 1, n_k)
        if part in ("ssm_a", "ssm_dt"):
            rows = [grouped(rows[0], 1, n_k)]
        if part == "ssm_out":
            rows = [grouped(r, size, n_k) for r in rows]
        x = [v for r in rows for v in r]
        if part.endswith("norm") and part != "ssm_norm":
            x = [v - 1 for v in x]
        if part == "ssm_a":
            x = [math.log(-v) for v in x]
        if part == "ssm_conv1d":
            shape = [shape[0], 1, shape[1]]
        store = hf.STORE[dtype]
        made[where + ("" if part in ("ssm_a", "ssm_dt") else ".weight")] = dtype, shape, b"".join(
            map(store, x))
    if "whole" in words:
        made["model.visual.patch_embed.proj.weight"] = "BF16", [2, 3], bytes(12)
    made["mtp.fc.weight"] = "BF16", [2, 3], bytes(12)
    place = os.path.join(folder, "hf")
    kinds = ["full_attention" if (i + 1) % get("full_attention_interval") == 0 else "linear_attention"
             for i in range(get("block_count"))]
    text = {"attention_bias": False, "attn_output_gate": True, "eos_token_id": 0,
            "full_attention_interval": get("full_attention_interval"), "head_dim": get("attention.key_length"),
            "hidden_act": "silu", "hidden_size": get("embedding_length"), "layer_types": kinds,
            "intermediate_size": get("feed_forward_length"), "linear_conv_kernel_dim": get("ssm.conv_kernel"),
            "linear_key_head_dim": size, "linear_value_head_dim": size, "linear_num_key_heads": n_k,
            "linear_num_value_heads": n_v, "mamba_ssm_dtype": "float32", "model_type": "qwen3_5_text",
            "max_position_embeddings": get("context_length"), "mtp_num_hidden_layers": 1,
            "num_attention_heads": get("attention.head_count"), "num_hidden_layers": get("block_count"),
            "num_key_value_heads": get("attention.head_count_kv"), "output_gate_type": "swish",
            "partial_rotary_factor": get("rope.dimension_count") / get("attention.key_length"),
            "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "vocab_size": tensors["token_embd.weight"][1][1],
            "rope_parameters": {"mrope_interleaved": True, "rope_type": "default", "rope_theta": 10000000,
                                "mrope_section": get("rope.dimension_sections")[1][:3],
                                "partial_rotary_factor":
                                    get("rope.dimension_count") / get("attention.key_length")}}
    eos = keys["tokenizer.ggml.eos_token_id"][1]
    if "whole" in words:
        config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
                  "text_config": text, "vision_config": {"depth": 1}, "image_token_id": 5,
                  "tie_word_embeddings": False}
    else:
        config = {"architectures": ["Qwen3_5ForCausalLM"], **text, "eos_token_id": eos}
    embed.SPLIT = SPLIT
    embed.make_config = lambda keys, words: config
    embed.write_folder(place, keys, made, words, random.Random(kind))
    token = keys["tokenizer.ggml.tokens"][1][1][eos]
    hf.Damage(place).json("tokenizer_config.json", lambda x: put(x, "eos_token", token))


def compare(a, b):
    (a_keys, a_tensors), (b_keys, b_tensors) = hf.read_gguf(a), hf.read_gguf(b)
    for name in sorted(set(a_tensors) | set(b_tensors)):
        if name.endswith("ssm_a") and all(abs(x - y) <= 3e-7 * abs(x) for x, y in zip(
                numbers(*a_tensors[name]), numbers(*b_tensors[name]))):
            continue                   # of another program's model A_log is rounded
        if a_tensors.get(name) != b_tensors.get(name):
            sys.exit("%s differs: %.60s %.60s" % (name, a_tensors.get(name), b_tensors.get(name)))
    for name in sorted(set(a_keys) | set(b_keys)):
        if name.startswith(("qwen35.", FOLD, "tokenizer.ggml.eos", "tokenizer.ggml.pre")) and \
                a_keys.get(name) != b_keys.get(name):
            sys.exit("%s differs: %.60s %.60s" % (name, a_keys.get(name), b_keys.get(name)))


# ---- the fold, undone: w = s * H(row), and ssm_out's value heads in turn ----

def hadamard(x):
    n, h = len(x), 1
    while h < n:
        x = [v for i in range(0, n, 2 * h) for v in
             [x[j] + x[j + h] for j in range(i, i + h)] + [x[j] - x[j + h] for j in range(i, i + h)]]
        h *= 2
    return [v / math.sqrt(n) for v in x]


def unfold(path, plain):
    (keys, tensors), (_, others) = hf.read_gguf(path), hf.read_gguf(plain)
    get = lambda k: keys[FOLD + k][1]
    signs, at = {}, 0
    for width in get("sign_widths")[1]:
        signs[width] = get("sign_values")[1][at:at + width]
        at += width
    n_k, n_v = keys["qwen35.ssm.group_count"][1], keys["qwen35.ssm.time_step_rank"][1]
    most = 0.0
    for name, (kind, dims, raw) in tensors.items():
        other = others[name]
        assert other[1] == dims, name
        if name not in get("weight_names")[1] + get("inverse_weight_names")[1]:
            assert other == (kind, dims, raw), name
            continue
        x, y, cols, size = numbers(kind, dims, raw), numbers(*other), dims[0], get("block_size")
        for row in range(0, dims[1], 7):
            r = [s * v for at in range(0, cols, size) for s, v in zip(
                signs[cols][at:at + size], hadamard(x[row * cols + at:row * cols + at + size]))]
            if "ssm_out" in name:      # grouped: value head g * each + r is head r * n_k + g
                d, each = cols // n_v, n_v // n_k
                r = [v for h in range(n_v) for v in
                     r[(h % n_k * each + h // n_k) * d:(h % n_k * each + h // n_k + 1) * d]]
            most = max(most, max(abs(a - b) for a, b in zip(r, y[row * cols:(row + 1) * cols])))
    assert not any(k.startswith(FOLD) for k in hf.read_gguf(plain)[0])
    print("%.1e" % most)


def change(path, out, key, value):
    keys, tensors = hf.read_gguf(path)
    if value == "-":
        del keys[key]
    else:
        kind, old = keys[key]
        if kind != STR:
            value = json.loads(value)
        keys[key] = kind, (old[0], value + old[1][len(value):]) if kind == ARR else value
    hf.write_gguf(out, keys, tensors)


# ---- damage ----

def config(*path):
    return lambda d: d.json("config.json", lambda x: put(x, *path))


CASES = {
    "no-gate": ("attn_output_gate false is not supported; only true is", config("attn_output_gate", False)),
    "gate-type": ("output_gate_type 'sigmoid' is not", config("output_gate_type", "sigmoid")),
    "other-layers": ("layer_types 'full_attention' is not supported", config(
        "layer_types", ["full_attention"] * 4)),
    "few-layers": ("'layer_types' is not an array of num_hidden_layers", config("layer_types", [])),
    "interval": ("'full_attention_interval' is not an integer from 1", config("full_attention_interval", 0)),
    "value-size": ("'linear_value_head_dim' is not linear_key_head_dim", config("linear_value_head_dim", 32)),
    "heads": ("'linear_num_value_heads' is no multiple", config("linear_num_value_heads", 5)),
    "no-heads": ("'linear_num_key_heads' is missing", lambda d: d.json(
        "config.json", lambda x: x.pop("linear_num_key_heads"))),
    "other-heads": ("its shape is not what config.json says", config("linear_num_value_heads", 10)),
    "rotary": ("'partial_rotary_factor' is not from 2 / head_dim to 1", config(
        "rope_parameters", "partial_rotary_factor", 1.5)),
    "sections": ("'mrope_section' is not an array of three", config("rope_parameters", "mrope_section", [8])),
    "section": ("'mrope_section' has what is no number of pairs", config(
        "rope_parameters", "mrope_section", [3, 3, 99])),
    "scaled": ("rope_type 'yarn' is not supported; default is", config("rope_parameters", "rope_type", "yarn")),
    "experts": ("num_experts 8 is not supported", config("num_experts", 8)),
    "class": ("of model_type qwen3_5_text only Qwen3_5ForCausalLM", config("architectures", ["Qwen3_5Model"])),
    "missing": ("linear_attn.A_log' is missing", lambda d: d.header(
        lambda t: t.replace(b"layers.1.linear_attn.A_log", b"layers.1.linear_attn.B_log"))),
    "other-tensor": ("the model has no place for it", lambda d: d.header(
        lambda t: t.replace(b"mtp.fc.weight", b"mto.fc.weight"))),
    "not-ternary": ("they are not -s, 0 and s", lambda d: d.data(
        "model.layers.0.linear_attn.in_proj_qkv.weight", struct.pack("<2e", 1.0, 2.0))),
    "pattern": ("pattern.Regex is '", lambda d: d.text("tokenizer.json", "\\\\p{M}]+", "\\\\p{M}]*")),
}

if __name__ == "__main__":
    hf.command_line(CASES, {"new": new, "make": make, "compare": compare, "unfold": unfold, "change": change})
