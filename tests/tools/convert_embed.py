"""What tests/tools/test_convert_embed.sh needs: text embeddings in Hugging Face's form.

    convert_embed.py new ARCH MODEL.gguf       a small random model, qwen3 or gemma3
    convert_embed.py make MODEL.gguf DIR KIND  DIR/hf, and DIR/want.gguf, which it is to become
    convert_embed.py vocab VOCAB.gguf DIR      DIR/hf with that vocabulary and a network of zeros
    convert_embed.py same VOCAB.gguf A.gguf    has A the vocabulary's keys?
    convert_embed.py half MODEL.gguf OUT.gguf  scales that are F16, for TQ1_0 and TQ2_0
    convert_embed.py break BASE DIR            DIR/CASE for each of CASES: a folder of BASE, damaged
    convert_embed.py cases                     "name folder word" for each

KIND is words with '-' between them: exact (want.gguf is MODEL.gguf), bf16, f16 or f32 (the weights'
dtype); plain (names without "model."), shards, pairs (merges as such), newer (keys as later
versions write them), frame (tokenizer.json, not tokenizer_config.json, says what is put around a
text), window (it is kept), odd (floats that are no F16s), ids (more special tokens), beyond (a
token that the model has no row for), head and untied (a head, the embedding's or its own), mean or
cls (pooling).

Everything is worked out here from the definitions; only the standard library is needed.
"""
import fractions
import json
import os
import random
import shutil
import struct
import sys

import convert_hf as hf
from convert_hf import ARR, BOOL, F32, I2_S, I32, STR, U32, Damage, put

F16 = 1
SPLIT = hf.PATTERN.replace("{1,3}", "")
MARK = "\u2581"
PROJECTIONS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS = {"attn_norm": "input_layernorm", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm"}
OTHERS = {"qwen3": {"ffn_norm": "post_attention_layernorm"},
          "gemma3": {"post_attention_norm": "post_attention_layernorm",
                     "ffn_norm": "pre_feedforward_layernorm",
                     "post_ffw_norm": "post_feedforward_layernorm"}}


def hf_name(name, arch):
    parts = name.split(".")
    if parts[0] in ("token_embd", "output_norm"):
        return {"token_embd": "embed_tokens", "output_norm": "norm"}[parts[0]] + ".weight"
    part = parts[2]
    if part.endswith("_norm_in"):
        where = PROJECTIONS[part[:-8]] + ".norm"
    else:
        where = {**PROJECTIONS, **NORMS, **OTHERS[arch]}[part]
    return "layers.%s.%s.weight" % (parts[1], where)


# ---- small models ----

def gpt2_characters():
    codes = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    return [chr(c) for c in codes] + [chr(256 + i) for i in range(68)]


def new_vocab(arch):
    """Tokens, types, scores, merges as pairs; all of GGUF's."""
    words = ["in", "th", "the", "then", "an", "and"]
    pairs = [("i", "n"), ("t", "h"), ("th", "e"), ("the", "n"), ("a", "n"), ("an", "d")]
    if arch == "qwen3":
        tokens = gpt2_characters() + words
        types = [1] * len(tokens) + [3, 3, 3, 4] + [5] * 3
        tokens += ["<|endoftext|>", "<|im_end|>", "<think>", "plain"]
        tokens += ["[PAD%d]" % i for i in range(len(tokens), len(tokens) + 3)]
        return tokens, types, None, pairs
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "[image]", "\n", "\n\n", MARK * 2, "<b>"]
    types = [3, 3, 3, 3, 3, 4, 4, 4, 3]
    scores = [-1000.0] * len(tokens)
    tokens += ["<0x%02X>" % i for i in range(256)]
    types += [6] * 256
    pairs = [("\n", "\n"), (MARK, MARK)] + pairs + [("t", "hen")]    # another way, too late
    letters = [MARK] + [chr(c) for c in range(0x61, 0x7b)] + ["hen", "\u00e4"]
    tokens += letters + words
    scores += [0.0] * (256 + len(letters)) + [-2.0 - i for i in range(len(words))]
    types += [1] * (len(letters) + len(words))
    return tokens, types, scores, pairs


def new(arch, path):
    rng = random.Random(arch)
    gemma = arch == "gemma3"
    layers, dim, heads, kv, head, ffn = (7, 64, 2, 1, 64, 192) if gemma else (2, 256, 4, 1, 96, 384)
    tokens, types, scores, pairs = new_vocab(arch)
    sizes = {"vocab_size": len(tokens), "context_length": 512, "embedding_length": dim,
             "block_count": layers, "feed_forward_length": ffn, "rope.dimension_count": head,
             "attention.head_count": heads, "attention.head_count_kv": kv,
             "attention.key_length": head, "attention.value_length": head, "pooling_type": 3}
    if gemma:
        sizes["attention.sliding_window"] = 8
    keys = {"general.architecture": (STR, arch), "general.name": (STR, "x")}
    keys.update((arch + "." + k, (U32, v)) for k, v in sizes.items())
    keys[arch + ".attention.layer_norm_rms_epsilon"] = F32, hf.f32(1e-6)
    keys[arch + ".rope.freq_base"] = F32, 10000.0 if gemma else 1e6
    keys["general.file_type"] = U32, 40
    t = "tokenizer.ggml."
    keys[t + "model"] = STR, "llama" if gemma else "gpt2"
    keys[t + "pre"] = STR, "default" if gemma else "qwen2"
    keys[t + "tokens"] = ARR, (STR, tokens)
    keys[t + "token_type"] = ARR, (I32, types)
    if gemma:
        keys[t + "scores"] = ARR, (F32, scores)
        keys[t + "add_space_prefix"] = BOOL, False
        keys[t + "bos_token_id"] = U32, 2
    else:
        keys[t + "merges"] = ARR, (STR, [" ".join(p) for p in pairs])
    keys[t + "eos_token_id"] = U32, 1 if gemma else tokens.index("<|endoftext|>")
    keys[t + "add_bos_token"] = BOOL, gemma
    keys[t + "add_eos_token"] = BOOL, True
    tensors = {}

    def norm(name, n):
        tensors[name + ".weight"] = F16, [n], b"".join(
            struct.pack("<e", rng.randint(64, 192) / 128) for _ in range(n))

    def linear(name, rows, cols):
        codes = bytes(rng.choices((0, 1, 2), (3, 4, 3), k=rows * cols))
        norm(name + "_norm_in", cols)
        tensors[name + ".weight"] = I2_S, [cols, rows], hf.pack(codes, rng.uniform(0.05, 0.2))

    tensors["token_embd.weight"] = F16, [dim, len(tokens)], b"".join(
        struct.pack("<e", rng.gauss(0, 0.05)) for _ in range(dim * len(tokens)))
    for i in range(layers):
        b = "blk.%d." % i
        for part in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm")
                                                 if gemma else ()):
            norm(b + part, dim)
        for part in ("attn_q_norm", "attn_k_norm"):
            norm(b + part, head)
        for part, rows, cols in (("attn_q", heads * head, dim), ("attn_k", kv * head, dim),
                                 ("attn_v", kv * head, dim), ("attn_output", dim, heads * head),
                                 ("ffn_gate", ffn, dim), ("ffn_up", ffn, dim),
                                 ("ffn_down", dim, ffn)):
            linear(b + part, rows, cols)
    norm("output_norm", dim)
    hf.write_gguf(path, keys, tensors)


# ---- folders ----

def exact_weights(codes, scale):
    """F32 weights that round to these codes, and whose mean absolute value is this very scale."""
    n = len(codes)
    ones = n - codes.count(1)
    big = hf.f32(scale * n / ones * (1 - 2.0 ** -20))
    left = fractions.Fraction(scale) * n - fractions.Fraction(big) * ones
    assert 0 < left < scale / 2, float(left)
    table = [struct.pack("<f", v) for v in (-big, 0, big)]
    stored, zero = hf.spread(codes, table), 4 * codes.index(1)   # a weight that rounds to 0
    return stored[:zero] + struct.pack("<f", float(left)) + stored[zero + 4:]


def convert_floats(raw, dtype, shift, factor):
    """What the folder has in the place of these F16s, and what becomes of it."""
    values = [raw[i:i + 2] for i in range(0, len(raw), 2)]
    put_in = {v: hf.STORE[dtype]((hf.LOAD["F16"](v) - shift) * factor) for v in set(values)}
    back = {v: struct.pack("<e", hf.f32(hf.LOAD[dtype](b) + shift)) for v, b in put_in.items()}
    return b"".join([put_in[v] for v in values]), b"".join([back[v] for v in values])


def make_tensors(arch, tensors, words, rng):
    folder, want = {}, {}
    dtype = next((k.upper() for k in ("bf16", "f16") if k in words), "F32")
    prefix = "" if "plain" in words else "model."
    for name, (kind, dims, raw) in tensors.items():
        where, shape = prefix + hf_name(name, arch), dims[::-1]
        if kind == I2_S:
            codes, scale = hf.unpack(raw), struct.unpack("<f", raw[-32:-28])[0]
            if "exact" in words:
                stored = exact_weights(codes, scale)
            else:
                stored, codes, scale = hf.weights(codes, dtype, rng, name == "blk.0.attn_q.weight")
            folder[where] = dtype, shape, stored
            want[name] = kind, dims, hf.pack(codes, scale)
            continue
        shift = arch == "gemma3" and len(dims) == 1 and not name.endswith("_norm_in.weight")
        stored, back = convert_floats(raw, dtype, int(shift), 0.999 if "odd" in words else 1)
        folder[where] = dtype, shape, stored
        want[name] = kind, dims, back
    if "head" in words or "untied" in words:
        folder["lm_head.weight"] = folder[prefix + "embed_tokens.weight"]
    return folder, want


def make_config(keys, words):
    arch = keys["general.architecture"][1]
    get = lambda name: keys[arch + "." + name][1]
    gemma = arch == "gemma3"
    eos = keys["tokenizer.ggml.eos_token_id"][1]
    config = {"architectures": ["Gemma3TextModel" if gemma else "Qwen3Model"],
              "model_type": "gemma3_text" if gemma else "qwen3",
              "hidden_activation" if gemma else "hidden_act":
                  "gelu_pytorch_tanh" if gemma else "silu",
              "attention_bias": False, "eos_token_id": eos if gemma else eos + 1,
              "head_dim": get("attention.key_length"), "hidden_size": get("embedding_length"),
              "intermediate_size": get("feed_forward_length"),
              "max_position_embeddings": get("context_length"),
              "num_attention_heads": get("attention.head_count"),
              "num_hidden_layers": get("block_count"),
              "num_key_value_heads": get("attention.head_count_kv"), "rms_norm_eps": 1e-6,
              "rope_scaling": None, "rope_theta": get("rope.freq_base"),
              "tie_word_embeddings": "untied" not in words, "vocab_size": get("vocab_size")}
    if "tokenizer.ggml.bos_token_id" in keys:
        config["bos_token_id"] = keys["tokenizer.ggml.bos_token_id"][1]
    theta = config["rope_theta"]
    if gemma:
        config.update(query_pre_attn_scalar=get("attention.key_length"),
                      attn_logit_softcapping=None, rope_local_base_freq=10000.0)
        if arch + ".attention.sliding_window" in keys:
            config["sliding_window"] = get("attention.sliding_window")
            config["sliding_window_pattern"] = 6
    else:
        config.update(sliding_window=None, use_sliding_window=False)
    if "newer" in words:
        for name in ("rope_theta", "rope_local_base_freq", "rope_scaling",
                     "sliding_window_pattern"):
            config.pop(name, None)
        rope = lambda base: {"rope_type": "default", "rope_theta": base}
        config["rope_parameters"] = rope(theta)
        if gemma:
            config["rope_parameters"] = {"full_attention": rope(theta),
                                         "sliding_attention": rope(10000.0)}
            config["layer_types"] = ["sliding_attention" if (i + 1) % 6 else "full_attention"
                                     for i in range(config["num_hidden_layers"])]
    return config


def gemma_merges(tokens, types, scores, words):
    """Merges of which token t is the -scores[t]-th; the others make tokens that have lower ranks,
    or are user-defined."""
    have, ranked = set(tokens), {}
    for t, kind, score in zip(tokens, types, scores):
        if kind == 1 and score < 0:
            ranked.setdefault(int(-score), t)
    merges = []
    for rank in range(max(ranked) + 1):
        t = ranked.get(rank, MARK * 2)
        cut = next((i for i in range(1, len(t)) if t[:i] in have and t[i:] in have), 1)
        merges.append([t[:cut], t[cut:]])
    if have >= {"hen", "then"}:
        merges.append(["t", "hen"])        # another way to a token, which has its rank already
    return merges if "pairs" in words else [" ".join(m) for m in merges]


def make_tokenizer(keys, words):
    get = lambda name: keys["tokenizer.ggml." + name][1]
    tokens, types = get("tokens")[1], get("token_type")[1]
    gemma = get("model") == "llama"
    looks = ("<think>", "<b>", "[image]")          # control tokens that are not called special
    added = [{"id": i, "content": t, "special": types[i] == 3 and t not in looks}
             for i, t in enumerate(tokens) if types[i] in (3, 4)]
    if "beyond" in words:
        added.append({"id": len(tokens), "content": "<image>", "special": True})
    vocab = {t: i for i, t in enumerate(tokens) if types[i] in (1, 6) or (gemma and types[i] != 5)}
    frame = [{"Sequence": {"id": "A", "type_id": 0}}]
    if get("add_bos_token"):
        frame.insert(0, {"SpecialToken": {"id": tokens[get("bos_token_id")], "type_id": 0}})
    frame.append({"SpecialToken": {"id": tokens[get("eos_token_id")], "type_id": 0}})
    post = {"type": "TemplateProcessing", "single": frame, "pair": frame, "special_tokens": {}}
    blank = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": False}
    if gemma:
        merges = gemma_merges(tokens, types, get("scores")[1], words)
    else:
        merges = [m.split(" ") if "pairs" in words else m for m in get("merges")[1]]
    return {"added_tokens": added,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
            if gemma else {"type": "NFC"},
            "pre_tokenizer": (None if "newer" in words else blank) if gemma else
            {"type": "Sequence", "pretokenizers": [split, level]},
            "post_processor": {"type": "Sequence", "processors": [level, post]}
            if "frame" in words else None,
            "model": {"type": "BPE", "byte_fallback": gemma, "vocab": vocab, "merges": merges}}


def make_tokenizer_config(keys, words):
    gemma = keys["tokenizer.ggml.model"][1] == "llama"
    config = {} if "frame" in words else {"add_bos_token": gemma}
    if gemma and "frame" not in words:
        config["add_eos_token"] = True
    if "ids" in words:
        config.update(unk_token={"content": "<unk>"}, pad_token="<pad>")
    return config


def make_keys(keys, words):
    arch = keys["general.architecture"][1]
    want = dict(keys)
    if "window" not in words:
        want.pop(arch + ".attention.sliding_window", None)
    if "ids" in words:
        want["tokenizer.ggml.unknown_token_id"] = U32, 3
        want["tokenizer.ggml.padding_token_id"] = U32, 0
    want[arch + ".pooling_type"] = U32, 1 if "mean" in words else 2 if "cls" in words else 3
    return want


def write_pooling(to, words, save):
    os.makedirs(os.path.join(to, "1_Pooling"), exist_ok=True)
    known = {"mean": "mean_tokens", "cls": "cls_token"}
    mode = next((m for m in known if m in words), "lasttoken")
    flags = {"pooling_mode_" + k: k == known.get(mode, mode)
             for k in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    kinds = ("Transformer", "Pooling", "Normalize")
    save("modules.json", [{"idx": i, "name": str(i), "path": "" if i != 1 else "1_Pooling",
                           "type": "sentence_transformers.models." + k}
                          for i, k in enumerate(kinds)])
    save("1_Pooling/config.json", {"word_embedding_dimension": 1, "pooling_mode": mode}
         if "newer" in words else {"word_embedding_dimension": 1, **flags, "include_prompt": True})


def write_folder(to, keys, tensors, words, rng):
    dump = lambda x: json.dumps(x).encode()
    save = lambda name, x: open(os.path.join(to, name), "wb").write(dump(x))
    os.makedirs(to, exist_ok=True)
    save("config.json", make_config(keys, words))
    save("tokenizer.json", make_tokenizer(keys, words))
    save("tokenizer_config.json", make_tokenizer_config(keys, words))
    write_pooling(to, words, save)
    if "shards" not in words:
        hf.write_safetensors(os.path.join(to, "model.safetensors"), tensors, dump)
        return
    names, index = list(tensors), {}
    rng.shuffle(names)
    for i in range(2):
        shard = "model-%05d-of-00002.safetensors" % (i + 1)
        hf.write_safetensors(os.path.join(to, shard), {n: tensors[n] for n in names[i::2]}, dump)
        index.update((n, shard) for n in names[i::2])
    save("model.safetensors.index.json", {"weight_map": index})


def make(model, folder, kind):
    words, rng = kind.split("-"), random.Random(kind)
    keys, tensors = hf.read_gguf(model)
    if keys["tokenizer.ggml.model"][1] == "gpt2" and "frame" in words:
        keys["tokenizer.ggml.eos_token_id"] = U32, keys["tokenizer.ggml.eos_token_id"][1] + 1
    stored, want = make_tensors(keys["general.architecture"][1], tensors, words, rng)
    write_folder(os.path.join(folder, "hf"), keys, stored, words, rng)
    hf.write_gguf(os.path.join(folder, "want.gguf"), make_keys(keys, words), want)


# ---- whole vocabularies ----

def vocab(path, folder):
    """The smallest network: one layer, rows of 64, weights of 0."""
    keys, _ = hf.read_gguf(path)
    arch = keys["general.architecture"][1]
    n = len(keys["tokenizer.ggml.tokens"][1][1])
    sizes = {"vocab_size": n, "context_length": 64, "embedding_length": 64, "block_count": 1,
             "feed_forward_length": 64, "attention.head_count": 1, "attention.head_count_kv": 1,
             "attention.key_length": 64}
    keys.update((arch + "." + k, (U32, v)) for k, v in sizes.items())
    keys[arch + ".rope.freq_base"] = F32, 10000.0
    names = {"embed_tokens.weight": [n, 64], "norm.weight": [64]}
    for part in [*PROJECTIONS, *(p + "_norm_in" for p in PROJECTIONS), *NORMS, *OTHERS[arch]]:
        shape = [64, 64] if part in PROJECTIONS else [64]
        names[hf_name("blk.0.%s.weight" % part, arch)] = shape
    tensors = {k: ("F16", s, bytes(2 * s[0] * (s[1] if len(s) > 1 else 1)))
               for k, s in names.items()}
    write_folder(os.path.join(folder, "hf"), keys, tensors, ["pairs"], None)


def same(path, other):
    a, b = hf.read_gguf(path)[0], hf.read_gguf(other)[0]
    for name in a:
        if name == "tokenizer.ggml.bos_token_id" and not a["tokenizer.ggml.add_bos_token"][1]:
            continue                       # of no use
        if a[name] != b.get(name):
            sys.exit("%s differs" % name)


def half(model, out):
    keys, tensors = hf.read_gguf(model)
    for name, (kind, dims, raw) in tensors.items():
        if kind == I2_S:
            scale, = struct.unpack("<f", raw[-32:-28])
            scale, = struct.unpack("<e", struct.pack("<e", scale))
            tensors[name] = kind, dims, raw[:-32] + struct.pack("<f", scale) + bytes(28)
    hf.write_gguf(out, keys, tensors)


# ---- damage ----

Q_NORM = "model.layers.0.self_attn.q_proj.norm.weight"
CONFIG, TOKENIZER, MODULES = "config.json", "tokenizer.json", "modules.json"
POOLING = "1_Pooling/config.json"


def change(name, *path):               # the document's value at this path becomes the last of it
    return lambda d: d.json(name, lambda x: put(x, *path))


def drop(name, *path):
    def cut(x):
        for key in path[:-1]:
            x = x[key]
        x.pop(path[-1])
    return lambda d: d.json(name, cut)


def step(kind, path="2_X"):            # another one at the end of modules.json
    return lambda d: d.json(MODULES, lambda x: x.append({"type": "a.b." + kind, "path": path}))


def frame(*tokens):                    # what tokenizer.json puts in front of a text
    return lambda d: d.json(TOKENIZER, lambda x: put(x, "post_processor", {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": t}} for t in tokens] + [{"Sequence": {"id": "A"}}]}))


# name: the folder, a word of the error, the damage
CASES = {
    "norm-in-missing": ("qwen3-f32", "'%s' is missing" % Q_NORM,
                        lambda d: hf.lose_tensor(d, Q_NORM)),
    "norm-in-missing-plain": ("gemma3-plain", "tensor '%s' is missing" % Q_NORM[6:],
                              lambda d: hf.lose_tensor(d, Q_NORM[6:])),
    "q-norm-missing": ("gemma3-f32", "q_norm.weight' is missing", lambda d: hf.lose_tensor(
        d, "model.layers.6.self_attn.q_norm.weight")),
    "post-norm-missing": ("gemma3-f32", "post_feedforward_layernorm.weight' is missing",
                          lambda d: hf.lose_tensor(
                              d, "model.layers.0.post_feedforward_layernorm.weight")),
    "layer-extra": ("qwen3-f32", "tensor 'model.layers.1.", change(
        CONFIG, "num_hidden_layers", 1)),
    "bias-extra": ("qwen3-head", "the model has no place for it", lambda d: d.header(
        lambda text: text.replace(b'"lm_head.weight"', b'"lm_head.bias"'))),
    "type-other": ("qwen3-f32", "'Qwen3Model' is not supported", change(
        CONFIG, "model_type", "qwen2")),
    "act-other": ("gemma3-f32", "hidden_activation 'gelu' is not supported; gelu_pytorch_tanh",
                  change(CONFIG, "hidden_activation", "gelu")),
    "act-missing": ("qwen3-f32", "'hidden_act' is missing", drop(CONFIG, "hidden_act")),
    "head-dim": ("qwen3-f32", "its shape is not what", change(CONFIG, "head_dim", 64)),
    "scalar": ("gemma3-f32", "query_pre_attn_scalar", change(
        CONFIG, "query_pre_attn_scalar", 100)),
    "softcapping": ("gemma3-f32", "attn_logit_softcapping", change(
        CONFIG, "attn_logit_softcapping", 50.0)),
    "bidirectional": ("gemma3-f32", "use_bidirectional_attention", change(
        CONFIG, "use_bidirectional_attention", True)),
    "qwen-window": ("qwen3-f32", "use_sliding_window", change(
        CONFIG, "use_sliding_window", True)),
    "yarn": ("qwen3-f32", "rope_type 'yarn'", change(CONFIG, "rope_scaling", {"type": "yarn"})),
    "rope-of-layers": ("gemma3-newer", "rope_type 'yarn' is not supported", change(
        CONFIG, "rope_parameters", "full_attention", "rope_type", "yarn")),
    "modules-missing": ("qwen3-f32", "modules.json is missing, which says how tokens become one "
                        "vector; say it with --pooling", lambda d: os.remove(d.path(MODULES))),
    "modules-no-list": ("qwen3-f32", "modules.json: JSON at offset 0", lambda d: hf.rewrite(
        d.path(MODULES), b"{}")),
    "modules-dense": ("qwen3-f32", "modules.json: step 3 is 'Dense'", step("Dense")),
    "modules-two": ("qwen3-f32", "step 3 is 'Pooling'; only one", step("Pooling")),
    "modules-none": ("qwen3-f32", "modules.json: there is no Pooling", lambda d: d.json(
        MODULES, lambda x: x.pop(1))),
    "modules-path": ("qwen3-f32", "path of Pooling is not the name of a folder", change(
        MODULES, 1, "path", "../x")),
    "modules-dots": ("qwen3-f32", "path of Pooling is not the name of a folder", change(
        MODULES, 1, "path", "..")),
    "modules-long": ("qwen3-f32", "path of Pooling is not the name of a folder", change(
        MODULES, 1, "path", "x" * 200)),
    "modules-number": ("qwen3-f32", "step 1 is '?'", change(MODULES, 1, "type", 1)),
    "pooling-missing": ("qwen3-f32", POOLING + ": cannot be read: No such file",
                        lambda d: os.remove(d.path(POOLING))),
    "pooling-max": ("qwen3-f32", POOLING + ": pooling 'pooling_mode_max_tokens' is not supported",
                    lambda d: d.json(POOLING, lambda x: x.update(pooling_mode_lasttoken=False,
                                                                 pooling_mode_max_tokens=True))),
    "pooling-two": ("qwen3-f32", "2 kinds of pooling are set", change(
        POOLING, "pooling_mode_mean_tokens", True)),
    "pooling-none": ("qwen3-f32", "pooling '' is not supported", change(
        POOLING, "pooling_mode_lasttoken", False)),
    "pooling-newer": ("gemma3-newer", "pooling 'weightedmean' is not supported", change(
        POOLING, "pooling_mode", "weightedmean")),
    "no-nfc": ("qwen3-f32", "only NFC is supported", change(TOKENIZER, "normalizer", None)),
    "nfkc": ("qwen3-f32", "only NFC is supported", change(
        TOKENIZER, "normalizer", "type", "NFKC")),
    "other-split": ("qwen3-f32", "pre_tokenizer.pretokenizers[0].pattern.Regex is '", lambda d: d.text(
        TOKENIZER, r"|\\p{N}|", r"|\\p{N}{1,2}|")),
    "no-endoftext": ("qwen3-f32", "no token is '<|endoftext|>', which ends", lambda d: d.text(
        TOKENIZER, "<|endoftext|>", "<|end|>")),
    "prefix-blank": ("gemma3-f32", "normalizer.normalizers[0].type is 'Prepend'", change(TOKENIZER, "normalizer", {
        "type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}]})),
    "replaces-other": ("gemma3-f32", "normalizer.content is '_'", change(
        TOKENIZER, "normalizer", "content", "_")),
    "gemma-split": ("gemma3-f32", "pre_tokenizer.replacement is null", change(
        TOKENIZER, "pre_tokenizer", {"type": "Metaspace"})),
    "merge-of-nothing": ("gemma3-f32", "merge 2, 'zz zz': its result is not a token", change(
        TOKENIZER, "model", "merges", 2, "zz zz")),
    "byte-missing": ("gemma3-f32", "no token for the single byte 0x41", lambda d: d.text(
        TOKENIZER, '"<0x41>"', '"<0x4X>"')),
    "vocab-over": ("gemma3-f32", "vocab_size", change(TOKENIZER, "model", "vocab", "qqq", 10 ** 6)),
    "qwen-added-over": ("qwen3-f32", "vocab_size", change(TOKENIZER, "added_tokens", 0, "id", 999)),
    "two-in-front": ("gemma3-f32", "two tokens on a side", frame("<bos>", "<bos>")),
    "no-token-in-front": ("gemma3-f32", "around a text what is not one token", frame("<x>")),
    "unk-unknown": ("gemma3-f32", "no token has the text of unk_token", change(
        "tokenizer_config.json", "unk_token", "<x>")),
}

if __name__ == "__main__":
    command = sys.argv[1]
    if command == "break":
        for case, (base, _, damage) in CASES.items():
            to = os.path.join(sys.argv[3], case)
            shutil.copytree(os.path.join(sys.argv[2], base, "hf"), to, copy_function=os.link)
            damage(Damage(to))
    elif command == "cases":
        for case, (base, text, _) in CASES.items():
            print(case, base, text)
    else:
        {"new": new, "make": make, "vocab": vocab, "same": same, "half": half}[command](
            *sys.argv[2:])
