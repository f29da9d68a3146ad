"""Tests of the command examples/perplexity, from the outside.

    python3 test_perplexity.py PATH_TO_PERPLEXITY PATH_TO_TOKEN_LOGITS PATH_TO_MODEL

The model is examples/tiny.gguf, PATH_TO_TOKEN_LOGITS is token_logits.c compiled. Tokens and logits come from there; all
that is made of them (chunks, perplexities, files of log-probabilities, KL statistics) is computed here a second time,
from the definitions. BITNET_TEST_DATA has further models and a reference in float64, which needs numpy (../shared).
Prints a line for each case (ok, FAIL, skip) and at the end `perplexity: N passed, N failed, N skipped`; exit code 1 if
a case failed. Needs Python's standard library alone.
"""
import array
import glob
import math
import os
import re
import resource
import signal
import struct
import subprocess
import sys

from cases import check, here, path, read, run_all, say, shared, tmp, write

program, logits_of, tiny = (os.path.abspath(x) for x in sys.argv[1:4])


class Run:
    """The program's exit code and outputs."""

    def __init__(self, *args, text=b"", limit=None, stdout=subprocess.PIPE):
        def at_most():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run([program, *map(str, args)], input=text, stdout=stdout, stderr=subprocess.PIPE,
                              timeout=600, preexec_fn=at_most if limit else None)
        self.rc, self.out = done.returncode, (done.stdout or b"").decode()
        self.err = done.stderr.decode(errors="replace")

    def chunks(self):
        """The perplexity after each chunk."""
        found = re.findall(r"\[(\d+)\](\d+\.\d{4}),", self.out)
        assert [int(i) for i, _ in found] == list(range(1, len(found) + 1))
        return [float(x) for _, x in found]

    def final(self):
        found = re.search(r"^Final estimate: PPL = (\d+\.\d{4}) \+/- (\d+\.\d{5})$", self.out, re.M)
        return (float(found[1]), float(found[2])) if found else (math.nan, math.nan)

    def __str__(self):
        return "exit code %d, stderr: %s" % (self.rc, self.err[-250:])


def fails(name, code, words, *args):
    """That exit code, nothing on stdout, one line on stderr that has the words."""
    r = Run("-q", *args)
    check(name, r.rc == code and not r.out and r.err.count("\n") == 1 and words in r.err, r)


# ---- the reference: from logits ----

def ask(model, what, data):
    done = subprocess.run([logits_of, model, what], input=data, stdout=subprocess.PIPE, check=True)
    out = array.array("i" if what == "tokens" else "f")
    out.frombytes(done.stdout)
    return out


def tokens_of(model, text):
    return list(ask(model, "tokens", text))


def rows_of(model, kv, tokens):
    """The logits after each token."""
    out = ask(model, kv, array.array("i", tokens).tobytes())
    n = len(out) // len(tokens)
    return [out[i * n:(i + 1) * n] for i in range(len(tokens))]


def log_total(row):
    top = max(row)
    return top + math.log(math.fsum(math.exp(x - top) for x in row))


def scored(model, kv, tokens, n_ctx, first, step, n_chunks, bos):
    """For each chunk a list of (row of logits, the next token)."""
    out = []
    for i in range(n_chunks):
        chunk = tokens[i * step:i * step + n_ctx]
        rows = rows_of(model, kv, ([bos] if bos is not None else chunk[:1]) + chunk[1:])
        out.append([(rows[p], chunk[p + 1]) for p in range(first, n_ctx - 1)])
    return out


def perplexities(chunks):
    """After each chunk; and the mean of -ln p with its uncertainty after each."""
    nlls, ppl, means = [], [], []
    for chunk in chunks:
        nlls += [log_total(row) - row[t] for row, t in chunk]
        n, mean = len(nlls), math.fsum(nlls) / len(nlls)
        variance = math.fsum((x - mean) ** 2 for x in nlls) / n
        ppl.append(math.exp(mean))
        means.append((mean, math.sqrt(variance / (n - 1))))
    return ppl, means


with open(os.path.join(here, "../data/tiny-heldout.txt"), "rb") as f:
    TEXT = f.read().replace(b"\0", b"\n")[:6000].rstrip(b"\n") + b"\n"
FILE = write("text", TEXT)
TOKENS = tokens_of(tiny, TEXT[:-1])
BOS = TOKENS[0]
TINY = ["-m", tiny, "-f", FILE]


def near(got, wanted, digits):
    """Are they the wanted numbers, rounded to so many digits?"""
    far = 0.51 * 10 ** -digits
    return len(got) == len(wanted) and all(abs(x - y) <= far + 1e-9 * abs(y) for x, y in zip(got, wanted))


def test_perplexity():
    for n_ctx in 64, 63, 200:
        n = len(TOKENS) // n_ctx
        ppl, means = perplexities(scored(tiny, "f16", TOKENS, n_ctx, n_ctx // 2, n_ctx, n, BOS))
        r = Run(*TINY, "-c", n_ctx)
        check("ppl-%d" % n_ctx, r.rc == 0 and near(r.chunks(), ppl, 4), (r, r.out[:99], ppl[:3]))
        mean, unsure = means[-1]
        check("final-%d" % n_ctx, near(r.final()[:1], ppl[-1:], 4) and near(r.final()[1:], [unsure * ppl[-1]], 5),
              (r.out[-60:], ppl[-1], unsure * ppl[-1]))
        says = "perplexity: calculating perplexity over %d chunks, n_ctx=%d, batch_size=%d, n_seq=%d\n" % (
            n, n_ctx, 2048 // n_ctx * n_ctx, 2048 // n_ctx)
        check("says-%d" % n_ctx, says in r.err and "perplexity: tokenizing the input ..\n" in r.err and
              re.search(r"perplexity: \d+\.\d\d seconds per pass - ETA \d+\.\d\d minutes\n", r.err), r.err)
        r = Run(*TINY, "-c", n_ctx, "--chunks", 3)
        check("chunks-%d" % n_ctx, near(r.chunks(), ppl[:3], 4) and len(r.chunks()) == 3, r.out)
    lines = [tuple(map(float, x.split())) for x in Run(*TINY, "-c", 200, "--ppl-output-type", 1).out.splitlines()[:-1]]
    at, got, logs, unsure = zip(*lines)
    check("type-1", list(at) == [200 * i for i in range(n)] and near(got, ppl, 4) and
          near(logs, [m for m, _ in means], 6) and near(unsure, [u for _, u in means], 6),
          (lines[:2], ppl[:2], means[:2]))
    small = Run("-m", tiny, "-f", FILE, "-c", 3, "--chunks", 1)
    check("one-row", small.rc == 0 and len(small.chunks()) == 1 and small.final()[1] == 0, small.out)
    f32, _ = perplexities(scored(tiny, "f32", TOKENS, 200, 100, 200, n, BOS))
    r = Run(*TINY, "-c", 200, "--kv-type", "f32")
    check("f32", near(r.chunks(), f32, 4) and r.out != Run(*TINY, "-c", 200).out, (r.out, f32))
    check("prompt", Run("-m", tiny, "-p", TEXT[:-1].decode(), "-c", 64).out == Run(*TINY, "-c", 64).out)
    check("stdin", Run("-m", tiny, "-f", "-", "-c", 64, text=TEXT).out == Run(*TINY, "-c", 64).out)
    mark = b"\xef\xbb\xbf"
    check("mark", Run("-m", tiny, "-f", write("mark", mark + TEXT), "-c", 64).out == Run(*TINY, "-c", 64).out)
    check("crlf-at-the-end", Run("-m", tiny, "-f", "-", "-c", 64, text=mark + TEXT[:-1] + b"\r\n").out ==
          Run(*TINY, "-c", 64).out)
    check("text-of-a-token", Run("-m", tiny, "-p", "<|eot_id|>" * 8, "-c", 8).rc == 0 and
          Run("-m", tiny, "-p", "<|eot_id|>" * 8, "-c", 8).out.count("]") > 2)
    check("long-names", Run("--model", tiny, "--file", FILE, "--ctx-size", 64, "--log-disable").err == "")


def test_stride():
    n_ctx, stride = 80, 40
    size = n_ctx + stride // 2
    n = (len(TOKENS) - size + stride - 1) // stride
    ppl, _ = perplexities(scored(tiny, "f16", TOKENS, size, size - stride - 1, stride, n, None))
    r = Run(*TINY, "-c", n_ctx, "--ppl-stride", stride)
    check("stride", r.rc == 0 and near(r.chunks(), ppl, 4) and near(r.final()[:1], ppl[-1:], 4),
          (r, r.out[:99], ppl[:3]))
    fails("stride-too-large", 2, "--ppl-stride", *TINY, "-c", 16, "--ppl-stride", 40)
    fails("stride-base", 2, "exclude", *TINY, "--ppl-stride", 4, "--kl-divergence-base", path("x"))


def test_same_bits():
    """With any batch, threads and kernel: also the file, which holds all log-probabilities."""
    wanted = Run(*TINY, "-c", 64, "--kl-divergence-base", path("wanted"))
    check("save", wanted.rc == 0 and wanted.out == Run(*TINY, "-c", 64).out and "saving all logits to" in wanted.err,
          wanted)
    for args in (["-b", 64], ["-b", 1], ["-b", 130, "-ub", 7], ["-ub", 1, "-t", 1], ["-t", 5], ["-b", 100000],
                 ["--kernel", "scalar"]):
        r = Run(*TINY, "-c", 64, "--save-all-logits", path("got"), *args)
        check("same-bits %s" % " ".join(map(str, args)), r.rc == 0 and r.out == wanted.out and
              read("got") == read("wanted"), r)


# ---- files of log-probabilities ----

class Base:
    """A file in llama.cpp's format, read as its perplexity.cpp reads it."""

    def __init__(self, data):
        assert data[:8] == b"_logits_"
        self.n_ctx, self.n_vocab, self.n_chunks = struct.unpack("<3i", data[8:20])
        n = self.n_ctx * self.n_chunks
        self.tokens = list(struct.unpack("<%di" % n, data[20:20 + 4 * n]))
        self.rows = []
        at, size = 20 + 4 * n, 2 * (4 + (self.n_vocab + 1) // 2 * 2)
        while at < len(data):
            scale, smallest = struct.unpack("<2f", data[at:at + 8])
            codes = struct.unpack("<%dH" % self.n_vocab, data[at + 8:at + 8 + 2 * self.n_vocab])
            assert len(data) - at >= size and not any(data[at + 8 + 2 * self.n_vocab:at + size])
            self.rows.append((scale, smallest, codes))
            at += size


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def pack_row(row):
    """As perplexity.cpp's log_softmax packs it; Python's doubles, rounded to floats after each step."""
    largest, smallest = max(row), min(row)
    smallest = max(smallest, f32(largest - 16))
    log_sum = f32(math.log(math.fsum(math.exp(x - largest) for x in row)))
    scale = f32(f32(largest - smallest) / 65535)
    inverse = f32(1 / scale) if scale else 0
    codes = [round(f32(inverse * f32(x - smallest))) if x > smallest else 0 for x in row]
    return scale, f32(f32(smallest - largest) - log_sum), codes


def test_base(model=tiny, name="tiny"):
    tokens = tokens_of(model, TEXT[:-1])
    n_ctx = 64
    chunks = scored(model, "f16", tokens, n_ctx, 32, n_ctx, len(tokens) // n_ctx, tokens[0])
    r = Run("-m", model, "-f", FILE, "-c", n_ctx, "--kl-divergence-base", path("base"))
    b = Base(read("base"))
    rows = [row for chunk in chunks for row, _ in chunk]
    check("base-header " + name, r.rc == 0 and b.tokens == tokens[:n_ctx * len(chunks)] and
          (b.n_ctx, b.n_vocab, b.n_chunks) == (n_ctx, len(rows[0]), len(chunks)), r)
    check("base-rows " + name, len(b.rows) == len(rows), (len(b.rows), len(rows)))
    worst = worst_scale = 0
    for (scale, smallest, codes), row in zip(b.rows, rows):
        wanted = pack_row(row)
        worst = max(worst, max(map(lambda x, y: abs(x - y), codes, wanted[2])))
        worst_scale = max(worst_scale, abs(scale - wanted[0]) / scale, abs(smallest - wanted[1]))
    check("base-codes " + name, worst == 0 and worst_scale < 4e-6, (worst, worst_scale))
    check("base-no-part " + name, not [x for x in os.listdir(tmp) if x.endswith(".part")], os.listdir(tmp))


def test_odd_vocabulary():
    """A row has an even number of codes, also of a vocabulary without its last token."""
    odd = write("odd.gguf", without_last_token(tiny))
    test_base(odd, "odd")
    r = Run("-m", odd, "--kl-divergence-base", path("base"), "--kl-divergence")
    check("odd-kld", r.rc == 0 and abs(statistic(r, "Mean    KLD")) < 1e-5, r)


def without_last_token(gguf):
    """The bytes of a GGUF file whose vocabulary is a token shorter: the last row of the embedding is left unused."""
    with open(gguf, "rb") as f:
        data = f.read()
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    n_tensors, n_keys = struct.unpack("<QQ", data[8:24])
    at, out = 24, bytearray(data[:24])

    def skip(kind, p):
        return p + (8 + struct.unpack("<Q", data[p:p + 8])[0] if kind == 8 else sizes[kind])

    for _ in range(n_keys):
        begin = at
        at = skip(8, at)
        key, kind = data[begin + 8:at].decode(), struct.unpack("<I", data[at:at + 4])[0]
        at += 4
        if kind != 9:
            end = skip(kind, at)
            value = data[at:end]
            if key.endswith("vocab_size"):
                value = struct.pack("<I", struct.unpack("<I", value)[0] - 1)
            out += data[begin:at] + value
            at = end
            continue
        element, n = struct.unpack("<IQ", data[at:at + 12])
        shorter = key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")
        ends = [at + 12]
        for _ in range(n):
            ends.append(skip(element, ends[-1]))
        out += data[begin:at] + struct.pack("<IQ", element, n - shorter) + data[at + 12:ends[-2 if shorter else -1]]
        at = ends[-1]
    for _ in range(n_tensors):
        begin = at
        at = skip(8, at)
        name, n_dims = data[begin + 8:at].decode(), struct.unpack("<I", data[at:at + 4])[0]
        dims = list(struct.unpack("<%dQ" % n_dims, data[at + 4:at + 4 + 8 * n_dims]))
        if name in ("token_embd.weight", "output.weight"):
            dims[1] -= 1
        rest = at + 4 + 8 * n_dims
        out += data[begin:at + 4] + struct.pack("<%dQ" % n_dims, *dims) + data[rest:rest + 12]
        at = rest + 12
    return bytes(out) + bytes(-len(out) % 32) + data[at + -at % 32:]


# ---- KL divergence ----

def statistic(r, name):
    found = re.search("^" + re.escape(name) + r" *: +(-?\d+\.\d+)", r.out, re.M)
    return float(found[1]) if found else math.nan


def first_largest(x):
    return list(x).index(max(x))


def statistics(base, chunks):
    """All that is printed, from a base's rows and the rows of logits: {name: (value, uncertainty or None)}."""
    q, b, klds, diffs, same = [], [], [], [], []
    for (scale, smallest, codes), (row, t) in zip(base.rows, (x for chunk in chunks for x in chunk)):
        total = log_total(row)
        logs = [smallest + scale * c for c in codes]
        q.append(total - row[t])
        b.append(-logs[t])
        klds.append(math.fsum(math.exp(x) * (x - (y - total)) for x, y in zip(logs, row) if x > -16))
        diffs.append(math.exp(-q[-1]) - math.exp(-b[-1]))
        same.append(first_largest(row) == first_largest(codes))
    n = len(q)

    def mean(x):
        m = math.fsum(x) / n
        return m, math.sqrt(math.fsum((y - m) ** 2 for y in x) / n / (n - 1))

    (mq, uq), (mb, ub) = mean(q), mean(b)
    covariance = math.fsum((x - mq) * (y - mb) for x, y in zip(q, b)) / n / (n - 1)
    ratio = mq - mb, math.sqrt(max(0, uq * uq + ub * ub - 2 * covariance))
    ppl, ppl_base = (math.exp(mq), uq * math.exp(mq)), (math.exp(mb), ub * math.exp(mb))
    square = mean([x * x for x in diffs])
    p = sum(same) / n
    out = {"Mean PPL(Q)": ppl, "Mean PPL(base)": ppl_base, "Mean ln(PPL(Q)/PPL(base))": ratio,
           "Cor(ln(PPL(Q)), ln(PPL(base)))": (100 * covariance / uq / ub, None),
           "Mean PPL(Q)/PPL(base)": (math.exp(ratio[0]), math.exp(ratio[0]) * ratio[1]),
           "Mean PPL(Q)-PPL(base)": (ppl[0] - ppl_base[0], math.sqrt(max(0, ppl[1] ** 2 + ppl_base[1] ** 2 -
                                                                        2 * ppl[0] * ppl_base[0] * covariance))),
           "Mean    KLD": mean(klds), "Mean    Δp": [100 * x for x in mean(diffs)],
           "RMS Δp": (100 * math.sqrt(square[0]), 50 / math.sqrt(square[0]) * square[1]),
           "Same top p": (100 * p, 100 * math.sqrt(p * (1 - p) / (n - 1)))}
    for name, values, factor in ("KLD", sorted(klds), 1), ("Δp", sorted(diffs), 100):
        for label, place in (("Maximum", 1), ("99.9%  ", .999), ("99.0%  ", .99), ("95.0%  ", .95), ("90.0%  ", .9),
                             ("75.0%  ", .75), ("Median ", .5), ("25.0%  ", .25), ("10.0%  ", .1), (" 5.0%  ", .05),
                             (" 1.0%  ", .01), (" 0.1%  ", .001), ("Minimum", 0)):
            if name == "Δp" or label[:2] not in ("75", "25"):
                i = int(place * (n - 1))
                w = place * (n - 1) - i
                out[label + " " + name] = factor * ((1 - w) * values[i] + w * values[min(i + 1, n - 1)]), None
    return out


def compare_statistics(name, r, wanted):
    for key, (value, unsure) in wanted.items():
        found = re.search("^" + re.escape(key) + r" *: +(-?\d+\.(\d+))(?: ± +(\d+\.(\d+)))?", r.out, re.M)
        good = found and near([float(found[1])], [value], len(found[2]) - 0.05) and (
            unsure is None or (found[3] and near([float(found[3])], [unsure], len(found[4]) - 0.05)))
        if not good:
            check(name, False, (key, found and found[0], value, unsure, str(r)))
            return
    check(name, r.rc == 0)
    check(name + "-complete", len(re.findall(r"^[^\[=\n]{8,30}: ", r.out, re.M)) == len(wanted), r.out)


def test_kld():
    n_ctx = 64
    Run(*TINY, "-c", n_ctx, "--kl-divergence-base", path("base"))
    base = Base(read("base"))
    itself = Run("-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence")
    check("itself", itself.rc == 0 and abs(statistic(itself, "Mean    KLD")) < 1e-5 and
          abs(statistic(itself, "Maximum KLD")) < 1e-3 and statistic(itself, "Same top p") > 99.9 and
          statistic(itself, "Cor(ln(PPL(Q)), ln(PPL(base)))") > 90, itself)
    f32_run = Run("-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "--kv-type", "f32")
    chunks = scored(tiny, "f32", TOKENS, n_ctx, 32, n_ctx, base.n_chunks, BOS)
    compare_statistics("f32-statistics", f32_run, statistics(base, chunks))
    check("f32-small", 0 < statistic(f32_run, "Mean    KLD") < 1e-3, f32_run.out[-300:])

    # another model: some signs of the embedding, which tiny.gguf has in front as F16, are changed
    with open(tiny, "rb") as f:
        changed = bytearray(f.read())
    for i in range(100001, 1000000, 800):
        changed[i] ^= 0x80
    other = Run("-m", write("other.gguf", changed), "--kl-divergence-base", path("base"), "--kl-divergence")
    chunks = scored(path("other.gguf"), "f16", TOKENS, n_ctx, 32, n_ctx, base.n_chunks, BOS)
    compare_statistics("other-statistics", other, statistics(base, chunks))
    check("other-differs", statistic(other, "Mean    KLD") > 1e-3, other.out[-300:])
    table = [re.findall(r"-?\d+\.?\d*", x) for x in f32_run.out.splitlines()[2:2 + base.n_chunks]]
    check("table", f32_run.out.startswith("\nchunk             PPL               ln(PPL(Q)/PPL(base))") and
          [int(x[0]) for x in table] == list(range(1, base.n_chunks + 1)) and all(len(x) == 11 for x in table) and
          abs(float(table[-1][1]) - statistic(f32_run, "Mean PPL(Q)")) < 1e-4 and
          abs(float(table[-1][5]) - statistic(f32_run, "Mean    KLD")) < 1e-5 and
          abs(float(table[-1][9]) - statistic(f32_run, "Same top p")) < 1e-3, table[-1:])
    for args in ["-b", 64], ["-ub", 9, "-t", 3], ["-f", FILE], ["-c", 512]:
        r = Run("-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "--kv-type", "f32", *args)
        check("kld %s" % args[0], r.rc == 0 and r.out == f32_run.out, r)
    r = Run("-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "--chunks", 2)
    check("few", r.rc == 0 and "Mean" not in r.out and "100 are needed" in r.err and r.out.count("\n") == 4, (r, r.out))

    # a base that llama.cpp could have written, of logits that are known
    rows = [pack_row(row) for chunk in chunks for row, _ in chunk]
    write("theirs", b"_logits_" + struct.pack("<3i", n_ctx, base.n_vocab, base.n_chunks) +
          struct.pack("<%di" % len(base.tokens), *base.tokens) +
          b"".join(struct.pack("<2f%dH" % base.n_vocab, scale, low, *codes) for scale, low, codes in rows))
    r = Run("-m", path("other.gguf"), "--kl-divergence-base", path("theirs"), "--kl-divergence")
    check("theirs", r.rc == 0 and abs(statistic(r, "Mean    KLD")) < 1e-5, r)
    fails("other-text", 1, "another text", "-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "-f",
          write("other-text", TEXT.replace(b"e", b"a")))
    fails("shorter-text", 1, "another text", "-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "-p",
          "x")
    fails("short-context", 1, "-c 32", "-m", tiny, "--kl-divergence-base", path("base"), "--kl-divergence", "-c", 32)


def test_hostile():
    n_ctx, n_chunks = 4, 2
    Run(*TINY, "-c", n_ctx, "--chunks", n_chunks, "--kl-divergence-base", path("small"))
    good = read("small")
    b = Base(good)
    check("small", (b.n_ctx, b.n_chunks, len(b.rows)) == (4, 2, 2), len(b.rows))
    first_row = 20 + 4 * n_ctx * n_chunks
    use = ["-m", tiny, "--kl-divergence-base", path("h"), "--kl-divergence"]

    def refused(name, data, words):
        write("h", data)
        r = Run("-q", *use)
        table = r.out.startswith("\nchunk") and r.out.count("\n") == 2      # rows are read when they are needed
        check("hostile-" + name, r.rc == 1 and r.err.count("\n") == 1 and words in r.err and (not r.out or table), r)

    wrong = []
    for size in [*range(60), *range(61, len(good), 97), len(good) - 1]:
        write("h", good[:size])
        r = Run("-q", *use)
        words = "no file of log-probabilities" if size < 8 else "truncated"
        if r.rc != 1 or words not in r.err or r.err.count("\n") != 1:
            wrong.append((size, str(r)))
    check("hostile-cut", not wrong, wrong)

    def with_int(at, value):
        return good[:at] + struct.pack("<i", value) + good[at + 4:]

    refused("magic", b"_logitz_" + good[8:], "no file of log-probabilities")
    refused("gguf", b"GGUF" + bytes(100), "no file of log-probabilities")
    for value in 0, 2, -1, 2 ** 31 - 1:
        refused("n_ctx-%d" % value, with_int(8, value), "damaged")
    refused("n_ctx-huge", with_int(8, 1 << 20), "truncated")
    for value in 2047, 2049, 2 ** 31 - 1:
        refused("n_vocab-%d" % value, with_int(12, value), "vocabulary")
    for value in 0, -5:
        refused("n_vocab-%d" % value, with_int(12, value), "damaged")
        refused("n_chunks-%d" % value, with_int(16, value), "damaged")
    refused("n_chunks-huge", with_int(16, 2 ** 31 - 1), "truncated")
    refused("n_chunks-1", with_int(16, 1), "bytes follow")
    refused("longer", good + b"x", "bytes follow")
    for value in -1, 2048, 2 ** 31 - 1:
        refused("token-%d" % value, with_int(24, value), "token 1 is %d" % value)
    for row in range(2):
        at = first_row + row * (len(good) - first_row) // 2
        for name, value in ("nan", math.nan), ("infinity", math.inf), ("negative", -1.0), ("large", 1.0):
            refused("scale-%s-%d" % (name, row), good[:at] + struct.pack("<f", value) + good[at + 4:],
                    "row %d is damaged" % row)
        for name, value in ("nan", math.nan), ("infinity", math.inf), ("positive", 1.0), ("small", -math.inf):
            refused("smallest-%s-%d" % (name, row), good[:at + 4] + struct.pack("<f", value) + good[at + 8:],
                    "row %d is damaged" % row)
    refused("shifted", good[:first_row] + bytes(1) + good[first_row:-1], "row 0 is damaged")
    codes = set()
    for i in range(0, first_row + 40):
        write("h", good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1:])
        codes.add(Run("-q", *use).rc)
    check("hostile-flips", codes <= {0, 1} and 1 in codes, codes)
    os.makedirs(path("folder"))
    fails("base-folder", 1, "not a file", "-m", tiny, "--kl-divergence-base", path("folder"), "--kl-divergence")
    fails("base-missing", 1, "cannot open", "-m", tiny, "--kl-divergence-base", path("nowhere"), "--kl-divergence")


# ---- what goes wrong ----

def test_wrong():
    r = Run("--help")
    check("help", r.rc == 0 and all(x in r.out for x in ("--kl-divergence-base", "--ppl-stride", "exit codes")), r)
    fails("no-model", 2, "-m MODEL")
    fails("no-text", 2, "-f TEXT", "-m", tiny)
    fails("two-texts", 2, "exclude", *TINY, "-p", "x")
    fails("no-base", 2, "--kl-divergence-base", "-m", tiny, "--kl-divergence")
    fails("bad-flag", 2, "--bogus", *TINY, "--bogus")
    fails("stray-word", 2, "stray", *TINY, "stray")
    fails("missing-value", 2, "-c needs a value", *TINY, "-c")
    fails("bad-number", 2, "-c 2:", *TINY, "-c", 2)
    fails("bad-number-tail", 2, "2x", *TINY, "-t", "2x")
    fails("no-chunks", 2, "--chunks 0", *TINY, "--chunks", 0)
    fails("bad-kv", 2, "f16, f32 or i8", *TINY, "--kv-type", "q8_0")
    fails("bad-kernel", 2, "nothing", *TINY, "--kernel", "nothing")
    check("gpu", "-ngl is ignored" in Run(*TINY, "-c", 64, "-ngl", 99).err)
    fails("model-missing", 3, "nowhere.gguf", "-m", path("nowhere.gguf"), "-p", "x")
    fails("text-missing", 1, "nowhere.txt", "-m", tiny, "-f", path("nowhere.txt"))
    fails("text-folder", 1, tmp, "-m", tiny, "-f", tmp)
    fails("text-empty", 1, "1024", "-m", tiny, "-f", write("empty", ""))
    two = len(tokens_of(tiny, TEXT[:-1])) // 2
    fails("text-short", 1, "only %d tokens" % len(TOKENS), *TINY, "-c", two + 1)
    check("text-just-long-enough", Run(*TINY, "-c", two).rc == 0)
    for name in "q", "gw":
        model = os.path.join(shared, "models", name + ".gguf")
        if os.path.exists(model):
            fails("no-head " + name, 3, "embeddings", "-m", model, "-f", FILE)
        else:
            say("skip", "no-head " + name, "models/%s.gguf is not in BITNET_TEST_DATA" % name)
    other = os.path.join(here, "../data/a.gguf")
    Run(*TINY, "-c", 64, "--kl-divergence-base", path("base"))
    fails("other-vocabulary", 1, "vocabulary has 2048 tokens, that of the model 1040", "-m", other,
          "--kl-divergence-base", path("base"), "--kl-divergence")

    # a NaN in the head's row of a token that the text does not have; the embedding begins at 72448
    with open(tiny, "rb") as f:
        damaged = bytearray(f.read())
    damaged[72448 + 512 * 2040:72450 + 512 * 2040] = b"\x00\x7e"
    fails("nan", 1, "the logits after token 32 of chunk 1 are no numbers", "-m", write("nan.gguf", damaged), "-f", FILE,
          "-c", 64)

    # a base is complete or not there
    before = read("base")
    for limit in 10, 5000, 300000:
        r = Run(*TINY, "-c", 64, "--kl-divergence-base", path("base"), "--kv-type", "f32", limit=limit)
        check("full-%d" % limit, r.rc == 1 and "cannot write to" in r.err and read("base") == before and
              not glob.glob(path("base.*part")), r)
    write("text", TEXT)
    fails("base-is-text", 2, "it is the model, or the text", *TINY[:2], "-f", path("text"), "-c", 64,
          "--kl-divergence-base", path("text"))
    check("text-stays", read("text") == TEXT)
    write("notes", "what the user wrote")
    fails("base-is-other", 1, "it is there, and is no base", *TINY, "-c", 64, "--kl-divergence-base", path("notes"))
    check("other-stays", read("notes") == b"what the user wrote")
    write("notes", "")
    check("base-empty", Run(*TINY, "-c", 64, "--kl-divergence-base", path("notes")).rc == 0)
    fails("base-nowhere", 1, "cannot write", *TINY, "-c", 64, "--kl-divergence-base", path("nowhere/x"))
    fails("base-device", 1, "not a file", *TINY, "-c", 64, "--kl-divergence-base", "/dev/null")
    if os.path.exists("/dev/full"):
        for args in [], ["--kl-divergence-base", path("base"), "--kl-divergence"]:
            with open("/dev/full", "wb") as f:
                r = Run(*(TINY if not args else TINY[:2]), "-c", 64, *args, stdout=f)
            check("full-output %s" % args[-1:], r.rc == 1 and "cannot write to standard output" in r.err, r)
    else:
        say("skip", "full-output", "there is no /dev/full here")
    for number in signal.SIGINT, signal.SIGTERM:
        write("long", TEXT * 60)
        p = subprocess.Popen([program, "-m", tiny, "-f", path("long"), "-c", "64", "-b", "64", "--kl-divergence-base",
                              path("base")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        begun = p.stdout.read(4)
        p.send_signal(number)
        out, err = p.communicate(timeout=60)
        check("signal-%d" % number, begun[:3] == b"[1]" and p.returncode == 130 and b"Final" not in out and
              out.endswith(b",\n") and re.search(rb"stopped after \d+ of \d+ chunks\n$", err) and
              read("base") == before and not glob.glob(path("base.*part")), (p.returncode, out[-40:], err[-99:]))
    # within a pass, of 8192 tokens
    p = subprocess.Popen([program, "-m", tiny, "-f", path("long"), "-c", "16384", "-b", "1", "-ub", "65536"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    said = b""
    while b"calculating" not in said and p.poll() is None:
        said += p.stderr.read(1)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    check("signal-in-pass", p.returncode == 130 and not out and err.endswith(b"stopped after 0 of 5 chunks\n") and
          b"seconds per pass" not in err, (p.returncode, out, err))


def test_closed_streams():
    """What is said where descriptors are closed does not get into a base that is written."""
    for name, closed in ("open", ""), ("closed-2", "2>&-"), ("closed-0", "<&-"):
        r = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", program, "-m", tiny, "-f", FILE, "-c", "64", "--kl-divergence-base",
                            path(name)], capture_output=True, timeout=600)
        check("streams-" + name, r.returncode == 0 and read(name) == read("open"), r)
    r = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", program, "-m", tiny, "-f", FILE, "-c", "64", "--kl-divergence-base",
                        path("closed-1")], capture_output=True, timeout=600)
    check("streams-closed-1", r.returncode == 1 and not os.path.exists(path("closed-1")), r)


def test_float64():
    """Against the reference in float64, which numpy computes from the model's definition. Both round activations to 8
    bits, so a value in the middle between two of them may differ, and all that follows: here none does."""
    script = os.path.join(shared, "oracle", "bitnet_ref.py")
    pythons = [x for x in (sys.executable, "/usr/bin/python3") if os.path.exists(x) and
               subprocess.run([x, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0]
    if not pythons or not os.path.exists(script):
        say("skip", "float64", "oracle/bitnet_ref.py is not in BITNET_TEST_DATA" if pythons else
            "numpy is not installed")
        return
    model, n_ctx, n_chunks = os.path.join(here, "../data/b.gguf"), 32, 2
    use = ["-m", model, "-f", FILE, "-c", n_ctx, "--chunks", n_chunks, "--kv-type", "f32"]
    Run(*use, "--kl-divergence-base", path("base"))
    r = Run(*use, "--ppl-output-type", 1)
    tokens, nlls = Base(read("base")).tokens, []
    for i in range(n_chunks):
        ids = [tokens[0]] + tokens[i * n_ctx + 1:(i + 1) * n_ctx]
        subprocess.run([pythons[0], script, model, path("ref"), "--tokens", ",".join(map(str, ids))], check=True)
        rows = array.array("f", read("ref.logits.f32"))
        n = len(rows) // n_ctx
        for p in range(n_ctx // 2, n_ctx - 1):
            nlls.append(log_total(rows[p * n:(p + 1) * n]) - rows[p * n + ids[p + 1]])
    got, wanted = float(r.out.splitlines()[n_chunks - 1].split()[2]), math.fsum(nlls) / len(nlls)
    check("float64", abs(got - wanted) < 1e-5, (got, wanted, r))


sys.exit(run_all("perplexity", [
    test_perplexity, test_stride, test_same_bits, test_base, test_odd_vocabulary, test_kld, test_hostile,
    test_wrong, test_closed_streams, test_float64
]))
