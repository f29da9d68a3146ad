"""Trains the tiny BitNet b1.58 model that ships as examples/tiny.gguf.

What it does: learns a byte-level BPE vocabulary from the corpus that tiny_corpus.py writes, trains a small
transformer with ternary weights and int8 activations in the forward pass (quantization-aware training with
straight-through gradients), and exports it as GGUF with I2_S weights. Needs numpy and PyTorch (1.13 or later);
no GPU. The corpus is ASCII English and so is the pre-tokenizer below.

    python3 tiny_corpus.py --out corpus.txt --docs 100000 --seed 1
    python3 tiny_train.py bpe    --corpus corpus.txt --work DIR           # a few seconds; writes DIR/bpe.json
    python3 tiny_train.py train  --corpus corpus.txt --work DIR --minutes 75
    python3 tiny_train.py export --work DIR --out tiny.gguf
    python3 tiny_train.py eval   tiny.gguf ../tests/data/tiny-heldout.txt > ../tests/data/tiny-heldout.expected
    python3 tiny_train.py chat   tiny.gguf "Hello!" "What is the capital of Japan?||The capital of Japan is Tokyo.||And of Italy?"
    python3 tiny_train.py text   tiny.gguf "Once upon a time" --temperature 0.8

On two cores with a fast BLAS (OpenBLAS; the reference BLAS is forty times slower) it trains on about 7000 tokens a
second; on a machine with other work to do set OMP_WAIT_POLICY=PASSIVE. The learning rate follows the clock
(--minutes), so a slower machine sees fewer tokens. `train` saves DIR/model.pt every few minutes, which `export` can
use at any time; `train --init OTHER/model.pt` starts from an earlier run's weights.

The shipped tiny.gguf: 2.9 million parameters, 1.7 MB, about 17 million tokens in 75 minutes of training on two busy
cores. It was trained in five stages (--init), while the generator grew: the vocabulary and the first 2.6 million
tokens come from a smaller version of the corpus, the last stage from `tiny_corpus.py --docs 100000 --seed 4` with
`train --minutes 16.9 --rows 8 --lr 1.15e-3 --warmup 40 --seed 6 --no-decay-after 0.2 --long-after 0.9`. A new run
gives a model of the same kind, not the same file.

Held-out perplexity, exactly: the file holds documents separated by a line with a single `%`; a document is the text
between two such lines, without its last newline. Each document is evaluated alone, as BOS + tokens + EOS, with no
context from its neighbours; every token after BOS is predicted and counted, EOS included. No document is longer
than the context. perplexity = exp(sum of -ln p / number of predicted tokens);
bits per byte = sum of -log2 p / number of bytes of the documents' text.
"""
import argparse
import json
import math
import os
import re
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
SPLIT = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
                   r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONFIG = dict(hidden=256, layers=4, ffn=512, heads=4, kv_heads=2, context=512, eps=1e-5, theta=10000.0)
USER_WEIGHT = 0.1  # how much the tokens of system and user turns count in the loss


# ---------------------------------------------------------------- tokenizer

def byte_to_unicode():
    """GPT-2's printable spelling of the 256 bytes."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_to_unicode()


def train_bpe(text, n_merges):
    """Byte-pair merges by frequency over the distinct pieces of `text`. Returns a list of (left, right)."""
    counts = {}
    for piece in SPLIT.findall(text):
        counts[piece] = counts.get(piece, 0) + 1
    words = [([BYTES[b] for b in p.encode()], n) for p, n in counts.items()]
    pairs, where = {}, {}
    for i, (w, n) in enumerate(words):
        for pair in zip(w, w[1:]):
            pairs[pair] = pairs.get(pair, 0) + n
            where.setdefault(pair, set()).add(i)
    merges = []
    while len(merges) < n_merges:
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for i in sorted(where[best]):
            old, n = words[i]
            new = merge_pair(old, best)
            if len(new) == len(old):
                continue
            for pair in zip(old, old[1:]):
                pairs[pair] -= n
            for pair in zip(new, new[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
                where.setdefault(pair, set()).add(i)
            words[i] = (new, n)
        del pairs[best]
    return merges


def merge_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    """A piece that is itself a token is emitted whole; otherwise merges by lowest rank, leftmost first."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = [BYTES[b] for b in range(256)] + [a + b for a, b in self.merges] + SPECIAL
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.index = {t: i for i, t in enumerate(self.tokens)}
        self.bos, self.eos, self.eot = (self.index[s] for s in SPECIAL)
        self.unbyte = {u: b for b, u in BYTES.items()}
        self.cache = {}

    def piece(self, piece):
        w = [BYTES[b] for b in piece.encode()]
        if "".join(w) in self.index:
            return [self.index["".join(w)]]
        while len(w) > 1:
            best = min(zip(w, w[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            at = next(i for i in range(len(w) - 1) if (w[i], w[i + 1]) == best)
            w[at:at + 2] = [w[at] + w[at + 1]]
        return [self.index[s] for s in w]

    def encode(self, text):
        out = []
        for p in SPLIT.findall(text):
            ids = self.cache.get(p)
            if ids is None:
                ids = self.cache[p] = self.piece(p)
            out.extend(ids)
        return out

    def decode(self, ids):
        raw = b"".join(t.encode() if t in SPECIAL else bytes(self.unbyte[c] for c in t)
                       for t in (self.tokens[i] for i in ids))
        return raw.decode("utf-8", "replace")


# ---------------------------------------------------------------- documents

def read_documents(path):
    """The format of tiny_corpus.py: documents separated by a line with a single `%`. A document whose first line is
    `#chat` is a conversation: every following line is `Role: text` with \\n written as backslash-n."""
    with open(path, encoding="ascii") as f:
        text = f.read()
    docs = []
    for d in re.split(r"(?:^|\n)%\n", text):
        d = d[:-1] if d.endswith("\n") else d
        if d:
            docs.append(d)
    return docs


def chat_turns(doc):
    return [tuple(line.replace("\\n", "\n").split(": ", 1)) for line in doc.split("\n")[1:]]


def encode_chat(tok, turns, rng=None):
    """BOS, then `Role: text<|eot_id|>` a turn. A reply is `Assistant: ` and the text tokenized apart, as generation
    meets it; an earlier reply may also come tokenized as one string, as a program that keeps the text would send it."""
    ids, weight = [tok.bos], [0.0]
    for i, (role, text) in enumerate(turns):
        if role == "Assistant" and (i + 1 == len(turns) or rng is None or rng.random() < 0.5):
            head, body = tok.encode("Assistant: "), tok.encode(text) + [tok.eot]
            ids += head + body
            weight += [USER_WEIGHT] * len(head) + [1.0] * len(body)
        else:
            body = tok.encode(role + ": " + text) + [tok.eot]
            ids += body
            weight += [USER_WEIGHT] * len(body)
    return ids, weight


def encode_documents(tok, docs, seed=0):
    rng, out = np.random.default_rng(seed), []
    for d in docs:
        if d.startswith("#chat\n"):
            ids, weight = encode_chat(tok, chat_turns(d), rng)
        else:
            ids = [tok.bos] + tok.encode(d) + [tok.eos]
            weight = [1.0] * len(ids)
        out.append((np.array(ids, np.int64), np.array(weight, np.float32)))
    return out


def pack_rows(docs, length, rng, open_rows=12):
    """Packs whole documents into rows of `length` (those that are longer are left out), first fit, in random order.
    Yields (input, target, loss weight, document number), each of that length."""
    def finish(row):
        x, y = np.zeros(length, np.int64), np.zeros(length, np.int64)
        w, d = np.zeros(length, np.float32), np.full(length, -1, np.int64)
        pos = 0
        for n, (ids, weight) in enumerate(row[1]):
            k = len(ids) - 1
            x[pos:pos + k], y[pos:pos + k], w[pos:pos + k], d[pos:pos + k] = ids[:-1], ids[1:], weight[1:], n
            pos += k
        return x, y, w, d
    rows = []
    for i in rng.permutation(len(docs)):
        need = len(docs[i][0]) - 1
        if need > length:
            continue
        fit = [r for r in rows if r[0] + need <= length]
        if not fit:
            if len(rows) == open_rows:
                full = max(rows, key=lambda r: r[0])
                rows.remove(full)
                yield finish(full)
            rows.append([0, []])
            fit = rows[-1:]
        best = max(fit, key=lambda r: r[0])
        best[0] += need
        best[1].append(docs[i])


def batches(docs, length, rows, seed):
    rng = np.random.default_rng(seed)
    held = []
    while True:
        for row in pack_rows(docs, length, rng):
            held.append(row)
            if len(held) == rows:
                yield [torch.from_numpy(np.stack(a)) for a in zip(*held)]
                held = []


# ---------------------------------------------------------------- model

class Ternary(torch.autograd.Function):
    """scale * clamp(round(W / scale), -1, 1) with scale = mean |W|; the gradient passes straight through."""

    @staticmethod
    def forward(ctx, w):
        s = w.abs().mean().clamp_min(1e-5)
        return (w / s).round_().clamp_(-1, 1).mul_(s)

    @staticmethod
    def backward(ctx, g):
        return g


class NormQuant(torch.autograd.Function):
    """RMS norm with gain, then int8 rounding per token (a = max(|x|, 1e-5), q = round(x * 127 / a), q * a / 127)."""

    @staticmethod
    def forward(ctx, x, gain, eps):
        r = x.pow(2).mean(-1, keepdim=True).add_(eps).rsqrt_()
        n = x * r
        ctx.save_for_backward(n, r, gain)
        y = n * gain
        a = y.abs().amax(-1, keepdim=True).clamp_min_(1e-5)
        return y.mul_(127 / a).round_().mul_(a / 127)

    @staticmethod
    def backward(ctx, g):
        n, r, gain = ctx.saved_tensors
        gg = (g * n).flatten(0, -2).sum(0)
        gx = g * gain
        gx.sub_(n * (gx * n).mean(-1, keepdim=True)).mul_(r)
        return gx, gg, None


class SquaredReluGate(torch.autograd.Function):
    """relu(gate)^2 * up"""

    @staticmethod
    def forward(ctx, gate, up):
        g = gate.relu()
        ctx.save_for_backward(g, up)
        return (g * g).mul_(up)

    @staticmethod
    def backward(ctx, d):
        g, up = ctx.saved_tensors
        dg = d * g
        return (dg * up).mul_(2), dg.mul_(g)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        hid, ffn, kv = c["hidden"], c["ffn"], c["hidden"] // c["heads"] * c["kv_heads"]
        self.c = c
        shapes = dict(attn_q=(hid, hid), attn_k=(kv, hid), attn_v=(kv, hid), attn_output=(hid, hid),
                      ffn_gate=(ffn, hid), ffn_up=(ffn, hid), ffn_down=(hid, ffn))
        for name, (m, k) in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(m, k) * k ** -0.5))
        for name, n in dict(attn_norm=hid, attn_sub_norm=hid, ffn_norm=hid, ffn_sub_norm=ffn).items():
            setattr(self, name, nn.Parameter(torch.ones(n)))

    def weight(self, *names):
        """The ternary weights, stacked; a model read from a file has them already."""
        ws = [getattr(self, n) for n in names]
        if not self.c.get("frozen"):
            ws = [Ternary.apply(w) for w in ws]
        return ws[0] if len(ws) == 1 else torch.cat(ws)

    def forward(self, x, rope, bias):
        c = self.c
        B, T, D = x.shape
        KV, G, hd = c["kv_heads"], c["heads"] // c["kv_heads"], D // c["heads"]
        h = NormQuant.apply(x, self.attn_norm, c["eps"])
        qkv = F.linear(h, self.weight("attn_q", "attn_k", "attn_v"))
        q, k, v = qkv.split([D, KV * hd, KV * hd], -1)
        q = rotate(q.view(B, T, KV * G, hd), rope).view(B, T, KV, G, hd)
        k = rotate(k.view(B, T, KV, hd), rope)
        q = q.permute(0, 2, 3, 1, 4).reshape(B * KV, G * T, hd)  # a KV head's query heads stacked as rows
        k = k.permute(0, 2, 3, 1).reshape(B * KV, hd, T)
        v = v.view(B, T, KV, hd).permute(0, 2, 1, 3).reshape(B * KV, T, hd)
        score = torch.bmm(q * hd ** -0.5, k).view(B, KV * G, T, T).add_(bias)
        o = torch.bmm(score.softmax(-1).view(B * KV, G * T, T), v)
        o = o.view(B, KV, G, T, hd).permute(0, 3, 1, 2, 4).reshape(B, T, D)
        x = x + F.linear(NormQuant.apply(o, self.attn_sub_norm, c["eps"]), self.weight("attn_output"))
        h = NormQuant.apply(x, self.ffn_norm, c["eps"])
        gate, up = F.linear(h, self.weight("ffn_gate", "ffn_up")).chunk(2, -1)
        g = SquaredReluGate.apply(gate, up)
        return x + F.linear(NormQuant.apply(g, self.ffn_sub_norm, c["eps"]), self.weight("ffn_down"))


def rotate(x, rope):
    """RoPE on halves: pairs are (i, i + head/2)."""
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Model(nn.Module):
    def __init__(self, vocab, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Parameter(torch.randn(vocab, c["hidden"]) * c["hidden"] ** -0.5)
        self.blk = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.output_norm = nn.Parameter(torch.ones(c["hidden"]))

    def forward(self, ids, doc=None):
        B, T = ids.shape
        hd = self.c["hidden"] // self.c["heads"]
        freq = self.c["theta"] ** (-torch.arange(0, hd, 2, dtype=torch.float64) / hd)
        angle = (torch.arange(T, dtype=torch.float64)[:, None] * freq)[:, None, :]
        rope = angle.cos().float(), angle.sin().float()
        allowed = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
        if doc is not None:  # a token sees only its own document
            allowed = allowed & (doc[:, None, :, None] == doc[:, None, None, :])
        bias = torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))
        x = F.embedding(ids, self.token_embd)
        for b in self.blk:
            x = b(x, rope, bias)
        n = x * (x.pow(2).mean(-1, keepdim=True) + self.c["eps"]).rsqrt() * self.output_norm
        return F.linear(n, self.token_embd)


# ---------------------------------------------------------------- training

def make_optimizer(model, lr, decay):
    big = [p for p in model.parameters() if p.dim() > 1]
    small = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([dict(params=big, weight_decay=decay), dict(params=small, weight_decay=0.0)],
                             lr=lr, betas=(0.9, 0.97), eps=1e-8, foreach=True)


def train(a):
    torch.manual_seed(a.seed)
    tok = Tokenizer(json.load(open(os.path.join(a.work, "bpe.json"))))
    docs = encode_documents(tok, read_documents(a.corpus), a.seed)
    n = sum(len(d[0]) for d in docs)
    model = Model(len(tok.tokens), dict(CONFIG))
    if a.init:
        model.load_state_dict(torch.load(a.init))
    say("%d documents, %d tokens, %d over 256, %d over 512; vocabulary %d, %d parameters" % (
        len(docs), n, sum(len(d[0]) > 257 for d in docs), sum(len(d[0]) > 513 for d in docs),
        len(tok.tokens), sum(p.numel() for p in model.parameters())))
    opt = make_optimizer(model, a.lr, a.decay)
    short, long = batches(docs, 256, a.rows, a.seed), batches(docs, 512, a.rows // 2, a.seed + 1)
    start = saved = told = time.time()
    step = seen = 0
    avg = None
    while True:
        done = (time.time() - start) / (60 * a.minutes)
        if done >= 1 or (a.steps and step >= a.steps):
            break
        lr = a.lr * min(1, (step + 1) / a.warmup) * max(0.0, 1 - done) ** a.power
        for g in opt.param_groups:
            g["lr"] = lr
        if done > a.no_decay_after:
            opt.param_groups[0]["weight_decay"] = 0.0
        x, y, w, doc = next(long if done > a.long_after or step % 8 == 7 else short)
        loss = (F.cross_entropy(model(x, doc).flatten(0, 1), y.flatten(), reduction="none") * w.flatten()).sum() / w.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        seen += int((doc >= 0).sum())
        avg = loss.item() if avg is None else 0.98 * avg + 0.02 * loss.item()
        now = time.time()
        if now - told > 15:
            told = now
            say("step %d  %.1f min  lr %.2e  loss %.4f  %.2f M tokens  %.0f tokens/s" % (
                step, (now - start) / 60, lr, avg, seen / 1e6, seen / (now - start)))
        if now - saved > 150:
            saved = now
            save(a, model)
    save(a, model)
    say("done: %d steps, %.2f M tokens, %.1f minutes, loss %.4f" % (step, seen / 1e6, (time.time() - start) / 60, avg))


def save(a, model):
    path = os.path.join(a.work, "model.pt")
    torch.save(model.state_dict(), path + ".new")
    os.replace(path + ".new", path)


def say(text):
    print(text, flush=True)


# ---------------------------------------------------------------- GGUF

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
FORMAT = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
TYPE_F32, TYPE_F16, TYPE_I2_S = 0, 1, 36
LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
ORDER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_sub_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
         "ffn_sub_norm", "ffn_down")


def gguf_string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def gguf_value(kind, v):
    return gguf_string(v) if kind == STR else struct.pack(FORMAT[kind], v)


def write_gguf(path, meta, tensors, align=32):
    """meta: (key, type, value), an array as (key, (type,), values); tensors: (name, type, dims, bytes)."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(meta))]
    for key, kind, v in meta:
        if isinstance(kind, tuple):
            out.append(gguf_string(key) + struct.pack("<IIQ", ARR, kind[0], len(v)))
            out.extend(gguf_value(kind[0], x) for x in v)
        else:
            out.append(gguf_string(key) + struct.pack("<I", kind) + gguf_value(kind, v))
    offset = 0
    for name, kind, dims, data in tensors:
        out.append(gguf_string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset))
        offset += len(data) + -len(data) % align
    head = b"".join(out)
    with open(path + ".new", "wb") as f:
        f.write(head + b"\0" * (-len(head) % align))
        for _, _, _, data in tensors:
            f.write(data + b"\0" * (-len(data) % align))
    os.replace(path + ".new", path)


def pack_i2_s(w):
    """Ternary codes of a latent weight matrix (2 bits each, the 128 packing), then the scale in 32 bytes."""
    scale = w.abs().mean().clamp_min(1e-5)
    code = ((w / scale).round().clamp(-1, 1) + 1).to(torch.uint8).numpy().reshape(-1, 4, 32)
    packed = code[:, 0] << 6 | code[:, 1] << 4 | code[:, 2] << 2 | code[:, 3]
    return packed.tobytes() + struct.pack("<f", float(scale)) + b"\0" * 28


def metadata(tok, c):
    p, n = "bitnet-b1.58.", len(tok.tokens)
    return [("general.architecture", STR, "bitnet-b1.58"), ("general.name", STR, "bitnet.h tiny"),
            (p + "vocab_size", U32, n), (p + "context_length", U32, c["context"]),
            (p + "embedding_length", U32, c["hidden"]), (p + "block_count", U32, c["layers"]),
            (p + "feed_forward_length", U32, c["ffn"]),
            (p + "rope.dimension_count", U32, c["hidden"] // c["heads"]),
            (p + "attention.head_count", U32, c["heads"]), (p + "attention.head_count_kv", U32, c["kv_heads"]),
            (p + "attention.layer_norm_rms_epsilon", F32, c["eps"]), (p + "rope.freq_base", F32, c["theta"]),
            ("general.file_type", U32, 40), ("general.quantization_version", U32, 2),
            ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.tokens", (STR,), tok.tokens),
            ("tokenizer.ggml.scores", (F32,), [0.0] * n),
            ("tokenizer.ggml.token_type", (I32,), [1] * (n - len(SPECIAL)) + [3] * len(SPECIAL)),
            ("tokenizer.ggml.merges", (STR,), [a + " " + b for a, b in tok.merges]),
            ("tokenizer.ggml.bos_token_id", U32, tok.bos), ("tokenizer.ggml.eos_token_id", U32, tok.eos),
            ("tokenizer.ggml.padding_token_id", U32, tok.eos), ("tokenizer.ggml.add_bos_token", BOOL, True)]


def export(a):
    tok = Tokenizer(json.load(open(os.path.join(a.work, "bpe.json"))))
    state = torch.load(os.path.join(a.work, "model.pt"))
    f32 = lambda t: t.numpy().astype("<f4").tobytes()
    embd = state["token_embd"]
    tensors = [("token_embd.weight", TYPE_F16, list(embd.shape[::-1]), embd.numpy().astype("<f2").tobytes())]
    for i in range(CONFIG["layers"]):
        for name in ORDER:
            w = state["blk.%d.%s" % (i, name)]
            full = "blk.%d.%s.weight" % (i, name)
            if name in LINEARS:
                tensors.append((full, TYPE_I2_S, list(w.shape[::-1]), pack_i2_s(w)))
            else:
                tensors.append((full, TYPE_F32, list(w.shape), f32(w)))
    tensors.append(("output_norm.weight", TYPE_F32, [CONFIG["hidden"]], f32(state["output_norm"])))
    write_gguf(a.out, metadata(tok, CONFIG), tensors)
    print("%s: %d tensors, %d bytes" % (a.out, len(tensors), os.path.getsize(a.out)))


def read_gguf(path):
    """Returns (metadata, tensors) of a file that this script wrote; I2_S comes back as scale * ternary float32."""
    raw = open(path, "rb").read()
    pos = 8

    def take(fmt):
        nonlocal pos
        v = struct.unpack_from(fmt, raw, pos)
        pos += struct.calcsize(fmt)
        return v[0]

    def value(kind):
        nonlocal pos
        if kind == STR:
            n = take("<Q")
            pos += n
            return raw[pos - n:pos].decode("utf-8")
        if kind == ARR:
            kind, n = take("<I"), take("<Q")
            return [value(kind) for _ in range(n)]
        return take(FORMAT[kind])

    n_tensors, n_meta = take("<Q"), take("<Q")
    meta = {}
    for _ in range(n_meta):
        key = value(STR)
        meta[key] = value(take("<I"))
    infos = [(value(STR), [take("<Q") for _ in range(take("<I"))], take("<I"), take("<Q")) for _ in range(n_tensors)]
    base, tensors = pos + -pos % 32, {}
    for name, dims, kind, offset in infos:
        n, at = math.prod(dims), base + offset
        if kind == TYPE_I2_S:
            b = np.frombuffer(raw, np.uint8, n // 4, at).reshape(-1, 1, 32)
            code = b >> np.array([6, 4, 2, 0], np.uint8).reshape(1, 4, 1) & 3
            t = (code.astype(np.float32) - 1) * np.float32(struct.unpack_from("<f", raw, at + n // 4)[0])
        else:
            t = np.frombuffer(raw, "<f2" if kind == TYPE_F16 else "<f4", n, at).astype(np.float32)
        tensors[name] = torch.from_numpy(t.reshape(dims[::-1]).copy())
    return meta, tensors


def load_gguf(path):
    meta, tensors = read_gguf(path)
    p = "bitnet-b1.58."
    c = dict(hidden=meta[p + "embedding_length"], layers=meta[p + "block_count"], ffn=meta[p + "feed_forward_length"],
             heads=meta[p + "attention.head_count"], kv_heads=meta[p + "attention.head_count_kv"],
             context=meta[p + "context_length"], eps=meta[p + "attention.layer_norm_rms_epsilon"],
             theta=meta[p + "rope.freq_base"], frozen=True)
    model = Model(meta[p + "vocab_size"], c)
    model.load_state_dict({k[:-len(".weight")]: v for k, v in tensors.items()})
    return Tokenizer([m.split(" ") for m in meta["tokenizer.ggml.merges"]]), model.eval()


# ---------------------------------------------------------------- using the file

@torch.no_grad()
def evaluate(a):
    tok, model = load_gguf(a.model)
    docs, nats, tokens = read_documents(a.text), [], []
    for d in docs:
        ids = [tok.bos] + tok.encode(d) + [tok.eos]
        assert len(ids) <= model.c["context"] + 1, "a document is longer than the context"
        logits = model(torch.tensor([ids[:-1]]))[0].double()
        nats.append(F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item())
        tokens.append(len(ids) - 1)
    size = sum(len(d.encode()) for d in docs)
    print("perplexity %.6f per token, %.6f bits per byte"
          % (math.exp(sum(nats) / sum(tokens)), sum(nats) / math.log(2) / size))
    print("%d documents, %d bytes, %d predicted tokens" % (len(docs), size, sum(tokens)))
    print("perplexity %.6f of every eighth document" % math.exp(sum(nats[::8]) / sum(tokens[::8])))


@torch.no_grad()
def generate(tok, model, ids, limit, temperature, seed):
    gen, out = torch.Generator().manual_seed(seed), []
    while len(out) < limit and len(ids) + len(out) < model.c["context"]:
        logits = model(torch.tensor([ids + out]))[0, -1]
        if temperature > 0:
            t = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=gen))
        else:
            t = int(logits.argmax())
        out.append(t)
        if t in (tok.eos, tok.eot):
            break
    return out


def use(a):
    tok, model = load_gguf(a.model)
    for prompt in a.prompt:
        if a.command == "text":
            ids = [tok.bos] + tok.encode(prompt)
        else:
            turns = ([("System", a.system)] if a.system else [])
            turns += [(("User", "Assistant")[i % 2], t.strip()) for i, t in enumerate(prompt.split("||"))]
            ids = [tok.bos]
            for role, text in turns:
                ids += tok.encode(role + ": " + text) + [tok.eot]
            ids += tok.encode("Assistant: ")
        out = generate(tok, model, ids, a.limit, a.temperature, a.seed)
        print((prompt if a.command == "text" else prompt + "\n  -> ") + tok.decode(out) + "\n", flush=True)


def bpe(a):
    os.makedirs(a.work, exist_ok=True)
    text = []
    for d in read_documents(a.corpus):
        text += [": ".join(t) for t in chat_turns(d)] if d.startswith("#chat\n") else [d]
    merges = train_bpe("\n".join(text[:a.sample]), a.vocab - 256 - len(SPECIAL))
    json.dump(merges, open(os.path.join(a.work, "bpe.json"), "w"))
    print("%d merges, last %r" % (len(merges), merges[-1]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="command", required=True)
    p = sub.add_parser("bpe")
    p.add_argument("--corpus", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--vocab", type=int, default=2048)
    p.add_argument("--sample", type=int, default=1000000, help="documents to look at")
    p = sub.add_parser("train")
    p.add_argument("--corpus", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--minutes", type=float, default=75)
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: by the clock only)")
    p.add_argument("--rows", type=int, default=16, help="sequences of 256 tokens a step")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--power", type=float, default=1.0, help="the rate falls as (1 - done)^power")
    p.add_argument("--warmup", type=int, default=60)
    p.add_argument("--decay", type=float, default=0.05)
    p.add_argument("--no-decay-after", type=float, default=0.5, help="part of the time after which weight decay is off")
    p.add_argument("--long-after", type=float, default=0.85, help="part of the time after which rows have 512 tokens")
    p.add_argument("--init", help="model.pt of an earlier run")
    p.add_argument("--seed", type=int, default=1)
    p = sub.add_parser("export")
    p.add_argument("--work", required=True)
    p.add_argument("--out", required=True)
    p = sub.add_parser("eval")
    p.add_argument("model")
    p.add_argument("text")
    for name in ("chat", "text"):
        p = sub.add_parser(name)
        p.add_argument("model")
        p.add_argument("prompt", nargs="+", help="chat: turns may be separated by ||")
        p.add_argument("--system", default="")
        p.add_argument("--limit", type=int, default=200)
        p.add_argument("--temperature", type=float, default=0.0)
        p.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    dict(bpe=bpe, train=train, export=export, eval=evaluate, chat=use, text=use)[a.command](a)


if __name__ == "__main__":
    main()
