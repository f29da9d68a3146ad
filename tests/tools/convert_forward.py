"""Does what convert made of a Hugging Face folder compute what the folder's network computes?

    convert_forward.py FOLDER MODEL.gguf PATH_TO_TOKEN_LOGITS

The network is transformers' LlamaForCausalLM or BitNetForCausalLM with bitnet's linear layers, or
MiniCPM's, in float64, read from the folder alone: rotary pairs (i, half + i), weights as their quantization_config
says. The other logits are the library's, with an F32 KV cache. Both round activations to 8 bits, in
which a last bit may differ; hence the bound of 2 %. Needs numpy.
"""
import json
import os
import struct
import subprocess
import sys

import numpy as np

TOKENS = [7, 42, 99, 260, 7, 300, 11, 5, 200, 42]


def read_tensors(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        raw = open(os.path.join(folder, name), "rb").read()
        n, = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + n])
        for key, t in header.items():
            if key == "__metadata__":
                continue
            data = raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            kind = {"U8": "u1", "F16": "<f2", "F32": "<f4", "BF16": "<u2"}[t["dtype"]]
            x = np.frombuffer(data, kind)
            if t["dtype"] == "BF16":
                x = (x.astype(np.uint32) << 16).view(np.float32)
            out[key] = (x if kind == "u1" else x.astype(np.float64)).reshape(t["shape"])
    return out


def unpack(packed):                    # rows m, m + out/4, ... in bits 1-0, 3-2, ...
    return np.concatenate([(packed >> s & 3).astype(np.float64) - 1 for s in (0, 2, 4, 6)])


def forward(folder, tokens):
    config = json.load(open(os.path.join(folder, "config.json")))
    tensors = read_tensors(folder)
    q = config.get("quantization_config") or {}
    rounds = config["model_type"] == "bitnet" or q.get("quantization_mode") == "online"
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim, eps = config["hidden_size"], config["rms_norm_eps"]
    size = dim // heads
    rope = config.get("rope_parameters") or dict(config.get("rope_scaling") or {},
                                                 rope_theta=config["rope_theta"])
    frequency = rope["rope_theta"] ** (-np.arange(0, size, 2) / size)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        frequency = frequency / rope["factor"]
    if kind == "longrope":             # of a context that is not longer than the trained one
        frequency = frequency / np.array(rope["short_factor"])
    if kind == "llama3":               # as transformers' modeling_rope_utils has it
        length = 2 * np.pi / frequency
        old, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor",
                                            "high_freq_factor"))
        smooth = (old / length - low) / (high - low)
        between = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
        frequency = np.where(length > old / low, frequency / rope["factor"],
                             np.where(length < old / high, frequency, between))
    angle = np.arange(len(tokens))[:, None] * frequency
    cos = np.concatenate([np.cos(angle)] * 2, -1)[:, None]
    sin = np.concatenate([np.sin(angle)] * 2, -1)[:, None]

    def turn(x):
        half = np.concatenate([-x[..., size // 2:], x[..., :size // 2]], -1)
        return x * cos + half * sin

    def norm(x, *names):
        gain = next(tensors[n + ".weight"] for n in names if n + ".weight" in tensors)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain

    def linear(x, name):
        w, scale = tensors[name + ".weight"], tensors.get(name + ".weight_scale")
        if scale is not None:
            factor = scale[0] if q.get("linear_class") == "autobitlinear" else 1 / scale[0]
            w = unpack(w)
        elif rounds:
            factor = max(np.abs(w).mean(), 1e-5)
            w = np.clip(np.round(w / factor), -1, 1)
        else:
            factor = np.abs(w).max()
            w = w / factor
        step = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
        return np.clip(np.round(x * step), -128, 127) @ w.T * factor / step

    x = tensors["model.embed_tokens.weight"][tokens] * config.get("scale_emb", 1)
    added = config["scale_depth"] / np.sqrt(config["num_hidden_layers"]) if "scale_depth" in config else 1
    n = len(tokens)
    sub = config["model_type"] == "bitnet"
    for i in range(config["num_hidden_layers"]):
        b = "model.layers.%d." % i
        a = b + "self_attn."
        h = norm(x, b + "input_layernorm")
        query = turn(linear(h, a + "q_proj").reshape(n, heads, size))
        key = np.repeat(turn(linear(h, a + "k_proj").reshape(n, kv, size)), heads // kv, 1)
        value = np.repeat(linear(h, a + "v_proj").reshape(n, kv, size), heads // kv, 1)
        score = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(size)
        score = np.where(np.tril(np.ones((n, n), bool)), score, -np.inf)
        score = np.exp(score - score.max(-1, keepdims=True))
        out = np.einsum("hqk,khd->qhd", score / score.sum(-1, keepdims=True), value).reshape(n, dim)
        if sub:
            out = norm(out, a + "attn_sub_norm", a + "inner_attn_ln")
        x = x + linear(out, a + "o_proj") * added
        h = norm(x, b + "post_attention_layernorm")
        gate, up = linear(h, b + "mlp.gate_proj"), linear(h, b + "mlp.up_proj")
        act = np.maximum(gate, 0) ** 2 if config["hidden_act"] == "relu2" else gate / (1 + np.exp(-gate))
        h = act * up
        if sub:
            h = norm(h, b + "mlp.ffn_sub_norm", b + "mlp.ffn_layernorm")
        x = x + linear(h, b + "mlp.down_proj") * added
    head = tensors.get("lm_head.weight") if not config.get("tie_word_embeddings") else None
    last = norm(x, "model.norm") / (dim / config.get("dim_model_base", dim))
    return last @ (tensors["model.embed_tokens.weight"] if head is None else head).T


want = forward(sys.argv[1], TOKENS)
done = subprocess.run([sys.argv[3], sys.argv[2], "f32"], input=struct.pack("<%di" % len(TOKENS), *TOKENS),
                      stdout=subprocess.PIPE)
got = np.frombuffer(done.stdout, "=f4").astype(np.float64)
if got.size != want.size:
    sys.exit("%d logits, not %d" % (got.size, want.size))
got = got.reshape(want.shape)
error = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
same = (got.argmax(-1) == want.argmax(-1)).all()
print("error %.3g" % error)
if not (error < 0.02 and same):
    sys.exit("error %.3g, %s argmax" % (error, "the same" if same else "another"))
