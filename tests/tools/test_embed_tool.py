"""Tests of the command examples/embed, from the outside.

    python3 test_embed_tool.py PATH_TO_EMBED PATH_TO_MODEL

The model is examples/tiny.gguf or another one. BITNET_TEST_DATA has models of embeddings with reference vectors
(../shared). Prints a line for each case (ok, FAIL, skip) and at the end `embed: N passed, N failed, N skipped`; exit
code 1 if a case failed. RUN in the environment is put in front of the program (an emulator). Needs Python's standard
library alone.
"""
import array
import ast
import errno
import glob
import itertools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

from cases import check, here, path, read, run_all, say, shared, tmp, write

program, tiny = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
models = os.path.join(shared, "models")
USE = ["-m", tiny, "--pooling", "last"]       # tiny.gguf is no model of embeddings, but has rows


class Run:
    """The program's exit code and outputs."""

    def __init__(self, *args, text=b"", stdout=subprocess.PIPE, env=None):
        done = subprocess.run(os.environ.get("RUN", "").split() + [program, *map(str, args)], stdout=stdout,
                              input=text if isinstance(text, bytes) else text.encode(), stderr=subprocess.PIPE,
                              timeout=600, env={**os.environ, **(env or {})})
        self.rc, self.out, self.err = done.returncode, done.stdout or b"", done.stderr.decode(errors="replace")

    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]

    def vectors(self):
        return [row["embedding"] for row in self.rows()]

    def __str__(self):
        return "exit code %d, stderr: %s" % (self.rc, self.err[:200])


def fails(name, code, words, *args, text=b""):
    """That exit code, nothing on stdout, one line on stderr that has the words."""
    r = Run(*args, text=text)
    check(name, r.rc == code and not r.out and r.err.count("\n") == 1 and words in r.err, r)


def floats(values):
    return array.array("f", values)


def le_floats(data):
    a = array.array("f", data)
    if sys.byteorder == "big":
        a.byteswap()
    return a


def npy(rows, cols, data, kind="<f4", order="False", version=1, shape=None):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (kind, order, shape or "(%d, %d)" % (rows, cols))
    size = struct.pack("<H", len(text) + 1) if version == 1 else struct.pack("<I", len(text) + 1)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + b"\n" + data


def npy_arrays(data):
    """The arrays that follow each other in a file: (type, shape, bytes)."""
    found = []
    while data:
        size = struct.unpack("<H", data[8:10])[0]
        assert data[:8] == b"\x93NUMPY\x01\x00" and (10 + size) % 64 == 0 and data[9 + size:10 + size] == b"\n"
        head = ast.literal_eval(data[10:10 + size].decode())
        assert sorted(head) == ["descr", "fortran_order", "shape"] and head["fortran_order"] is False
        length = math.prod(head["shape"]) * int(head["descr"][2])
        found.append((head["descr"], head["shape"], data[10 + size:10 + size + length]))
        data = data[10 + size + length:]
    return found


def cosine(a, b):
    dot, aa, bb = (math.fsum(x * y for x, y in zip(p, q)) for p, q in ((a, b), (a, a), (b, b)))
    return dot / math.sqrt(aa) / math.sqrt(bb) if aa and bb else 0.0


# ---- vectors are those of the reference ----

def test_reference():
    for name in "q", "g", "gw":
        model = os.path.join(models, name + ".gguf")
        if not os.path.exists(model):
            say("skip", "reference-" + name, "models/%s.gguf is not in BITNET_TEST_DATA" % name)
            continue
        with open(os.path.join(models, name + ".json")) as f:
            ids = ",".join(map(str, json.load(f)["tokens"]))
        with open(os.path.join(models, name + ".embedding.f32"), "rb") as f:
            wanted = le_floats(f.read())
        r = Run("-m", model, "--tokens", ids, "--kv-type", "f32", "--format", "json")
        got = json.loads(r.out)["data"][0]["embedding"] if r.rc == 0 else []
        far = max((abs(x - y) for x, y in zip(got, wanted)), default=1)
        check("reference-" + name, len(got) == len(wanted) and far < 1e-5, "off by %g; %s" % (far, r))
        same = Run("-m", model, "--jsonl", "--kv-type", "f32", text='{"input": [%s]}' % ids)
        check("reference-%s-jsonl" % name, same.rc == 0 and same.vectors()[0] == got, same)


# ---- formats, batches, threads ----

WORDS = "the cat sat on a mat while rain fell over old hills and rivers ran to seas of green light".split()


def lines(n, seed):
    r = random.Random(seed)
    return ["".join(r.choice(WORDS) + " " for _ in range(r.randint(1, 30))).strip() for _ in range(n)]


def test_formats():
    text = "\n".join(lines(5, 1))
    jsonl = Run(*USE, text=text)
    rows = jsonl.rows() if jsonl.rc == 0 else []
    wanted = floats(x for row in rows for x in row["embedding"])
    dim = len(rows[0]["embedding"]) if rows else 0
    check("jsonl", [row["index"] for row in rows] == list(range(5)) and dim > 0, jsonl)
    norm = max(abs(cosine(v["embedding"], v["embedding"]) - 1) + abs(math.fsum(x * x for x in v["embedding"]) - 1)
               for v in rows)
    check("normalised", norm < 1e-6, norm)

    def same(name, values):
        check(name, floats(values) == wanted, "other numbers")

    whole = json.loads(Run(*USE, "--format", "json", text=text).out)
    check("json-openai", whole["object"] == "list" and {x["object"] for x in whole["data"]} == {"embedding"})
    same("json", (x for row in whole["data"] for x in row["embedding"]))
    llama = Run(*USE, "--embd-output-format", "json", text=text)
    check("json-as-llama", json.loads(llama.out) == whole, llama)
    for option in ("--format", "array"), ("--embd-output-format", "array"):
        same("array " + option[0], (x for row in json.loads(Run(*USE, *option, text=text).out) for x in row))
    for option in ("--format", "text"), ("--embd-output-format", "raw"):
        out = Run(*USE, *option, text=text).out.decode()
        same("text " + option[0], (float(x) for line in out.splitlines() for x in line.split(" ")))
    out = Run(*USE, "--format", "csv", text=text).out.decode()
    same("csv", (float(x) for line in out.splitlines() for x in line.split(",")))
    raw = Run(*USE, "--format", "raw", text=text).out
    same("raw", le_floats(raw))
    Run(*USE, "--format", "npy", "-o", path("a.npy"), text=text)
    check("npy", npy_arrays(read("a.npy")) == [("<f4", (5, dim), raw)], read("a.npy")[:128])
    with open(path("b.npy"), "wb") as f:
        Run(*USE, "--format", "npy", text=text, stdout=f)
    check("npy-redirected", read("a.npy") == read("b.npy"), "another file")
    Run(*USE, "--format", "npy", "-o", path("none.npy"))
    check("npy-no-rows", npy_arrays(read("none.npy")) == [("<f4", (0, dim), b"")], read("none.npy")[:128])
    check("no-part-left", not [x for x in os.listdir(tmp) if x.endswith(".part")], os.listdir(tmp))
    fails("npy-pipe", 2, "-o FILE", *USE, "--format", "npy", text=text)
    with open(path("c.npy"), "ab") as f:
        r = Run(*USE, "--format", "npy", text=text, stdout=f)
    check("npy-append", r.rc == 2 and not read("c.npy"), r)
    for bits in 8, 4, 2, 1:
        packed = Run(*USE, "--format", "raw", "--bits", bits, text=text).out
        Run(*USE, "--format", "npy", "--bits", bits, "-o", path("p.npy"), text=text)
        kind = "|i1" if bits == 8 else "|u1"
        check("bits-%d-npy" % bits, npy_arrays(read("p.npy")) == [(kind, (5, dim * bits // 8), packed)],
              read("p.npy")[:99])
        rows = [wanted[i * dim:(i + 1) * dim] for i in range(5)]
        if bits == 8:
            codes = [round(x * (127.0 / max(map(abs, v)))) & 255 for v in rows for x in v]
            check("bits-8", bytes(codes) == packed, "other codes")
        if bits == 1:
            signs = [packed[i // 8] >> i % 8 & 1 for i in range(5 * dim)]
            check("bits-1", signs == [int(x >= 0) for x in wanted], "other signs")


def test_batches():
    text = "\n".join(lines(600, 2)) + "\n"
    wanted = Run(*USE, "--format", "raw", text=text)
    check("many", wanted.rc == 0 and len(wanted.out) % 600 == 0 and len(wanted.out) > 0, wanted)
    for args in ("-t", 1), ("-t", 3, "-b", 7), ("-np", 1), ("-ub", 33, "--parallel", 5), ("-c", 64):
        got = Run(*USE, "--format", "raw", *args, text=text)
        check("many %s" % " ".join(map(str, args)), got.out == wanted.out and got.rc == 0, got)
    one = Run(*USE, "--format", "raw", "-p", lines(600, 2)[433]).out
    check("alone", one and wanted.out[433 * len(one):434 * len(one)] == one, "another vector")


# ---- input ----

def one(text, *args):
    """The vector of a whole text."""
    r = Run(*USE, "--embd-separator", "", "-p", text, *args)
    return r.vectors()[0] if r.rc == 0 and len(r.rows()) == 1 else r


def test_input():
    a, b = one("one text"), one("another")
    r = Run(*USE, text="one text\n\n \t\nanother\r\n\r\n")
    check("lines", r.rc == 0 and r.vectors() == [a, b] and "passed over: 3" in r.err, r)
    check("no-last-newline", Run(*USE, text="one text\nanother").vectors() == [a, b])
    check("file", Run(*USE, "-f", write("in.txt", "one text\nanother\n")).vectors() == [a, b])
    check("file-stdin", Run(*USE, "-f", "-", text="one text").vectors() == [a])
    check("prompt", Run(*USE, "-p", "one text\nanother").vectors() == [a, b])
    check("separator", Run(*USE, "--embd-separator", "<#sep#>", text="one text<#sep#>another").vectors() == [a, b])
    check("separator-in-part", Run(*USE, "--embd-separator", "aab", text="one textaaabanother").vectors() ==
          [one("one texta"), b])
    check("whole", one("one text\nanother") not in (a, b))
    mark = b"\xef\xbb\xbf"
    r = Run(*USE, text=mark + b"one text\r\nanother\r\n")
    check("mark-stdin", r.vectors() == [a, b], r)
    check("mark-file", Run(*USE, "-f", write("in.txt", mark + b"one text\nanother")).vectors() == [a, b])
    check("mark-whole", Run(*USE, "-f", write("in.txt", mark + b"one text"), "--embd-separator", "").vectors() == [a])
    check("mark-separator", Run(*USE, "--embd-separator", "#", text=mark + b"one text#another").vectors() == [a, b])
    check("mark-later", Run(*USE, text=b"one text\n" + mark + b"another").vectors() not in ([a, b], [a]))
    r = Run(*USE, text=mark + b"\r\none text")
    check("mark-alone", r.vectors() == [a] and "passed over: 1" in r.err, r)
    r = Run(*USE, "--jsonl", text=mark + b'{"text": "one text", "id": 1}\r\n{"text": "another"}\r\n')
    check("mark-jsonl", r.rc == 0 and r.vectors() == [a, b], r)

    # control tokens that a text spells
    def size(text, *args):
        r = Run(*USE, "-c", 2, "-p", text, *args)
        return int(r.err.split("it has ")[1].split()[0]) if "it has " in r.err else r

    check("special", size("<|eot_id|><|eot_id|>") == 3 and size("<|begin_of_text|><|eot_id|><|eot_id|>") == 3,
          size("<|eot_id|><|eot_id|>"))
    check("special-bos-once", Run(*USE, "-p", "<|begin_of_text|>one text").vectors() == [a])
    check("special-off", size("<|eot_id|><|eot_id|>", "--no-parse-special") > 8)
    check("special-jsonl", Run(*USE, "--jsonl", text='{"text": "<|begin_of_text|>one text"}').vectors() == [a])
    cut = Run(*USE, "-c", 3, "--cut", "-p", "<|eot_id|>" * 5), Run(*USE, "-c", 3, "-p", "<|eot_id|>" * 2)
    check("special-cut", cut[0].rc == 0 and cut[0].out == cut[1].out, cut)

    nothing = Run(*USE)
    check("nothing", nothing.rc == 0 and nothing.out == b"", nothing)

    r = Run(*USE, text=b"one text\nbad \xff\nanother\nbad \xed\xa0\x80\n")
    rows = r.rows()
    check("invalid-utf8", r.rc == 1 and [x["object"] for x in rows] == ["embedding", "error", "embedding", "error"] and
          rows[0]["embedding"] == a and rows[2]["embedding"] == b and "line 2: byte 5 is not valid UTF-8" in r.err and
          "line 4: byte 5" in r.err and "2 of 4 texts failed" in r.err, r)
    r = Run(*USE, "--embd-separator", "#", text=b"one\ntext\n#bad \xff#another")
    check("lines-of-separator", r.rc == 1 and "line 3: byte 5" in r.err and len(r.rows()) == 3, r)
    r = Run(*USE, "--format", "raw", text=b"one text\nbad \xff\nanother\n")
    got, dim = le_floats(r.out), len(a)
    check("invalid-nan", r.rc == 1 and got[:dim] == floats(a) and all(map(math.isnan, got[dim:2 * dim])) and
          got[2 * dim:] == floats(b), r)
    r = Run(*USE, "--format", "raw", "--bits", 8, text=b"one text\nbad \xff\n")
    check("invalid-packed", r.rc == 1 and r.out[dim:] == bytes(dim) and any(r.out[:dim]), r)
    r = Run(*USE, "--format", "array", text=b"bad \xff\none text\n")
    check("invalid-array", json.loads(r.out) == [None, a], r)
    r = Run(*USE, text=b"one text\n" + b"long " * 1000000 + b"\nanother\n")
    check("huge-line", r.rc == 1 and len(r.rows()) == 3 and "line 2: it has more than 4 MB" in r.err and
          r.rows()[2]["embedding"] == b, r)
    check("nul", Run(*USE, text=b"a\0b\n").rc == 0)
    fails("file-missing", 1, "nowhere.txt", *USE, "-f", path("nowhere.txt"))
    fails("file-folder", 1, tmp, *USE, "-f", tmp)


def test_jsonl():
    a = one("one text")
    good = ['{"text": "one text", "id": "x\\"\\u00e9"}', '{"input": "one text", "id": {"n": [1, null]}, "more": 1}',
            '{"text": "one\\u0020text", "id": 7}', '{"text": "one text"}']
    r = Run(*USE, "--jsonl", text="\n".join(good))
    rows = r.rows()
    check("jsonl-in", r.rc == 0 and [x["embedding"] for x in rows] == 4 * [a], r)
    check("jsonl-ids", [x.get("id", "none") for x in rows] == ['x"\u00e9', {"n": [1, None]}, 7, "none"], r.out[:200])
    r = Run(*USE, "--jsonl", "--format", "csv", text="\n".join(good))
    first = [line.rsplit('",', 1)[0] + '"' for line in r.out.decode().splitlines()]
    check("csv-ids", [json.loads(x[1:-1].replace('""', '"') or '"none"') for x in first] ==
          ['x"\u00e9', {"n": [1, None]}, 7, "none"], first)
    bad = ['{"text": ""}', '[1]', '"x"', '{"nothing": 1}', 'x', '{"text": 5}', '{"input": ["a"]}', '{"input": [-1]}',
           '{"input": [99999999]}', '{"input": [1e0]}', '{"input": []}', '{"text": [1]}', '{"input": [99999999999]}',
           '{"text": "\\ud800"}', '{"text": "x"', '[' * 5000]
    r = Run(*USE, "--jsonl", text="\n".join(bad + good[3:]))
    check("jsonl-bad", r.rc == 1 and [x["object"] for x in r.rows()] == ["error"] * len(bad) + ["embedding"], r)
    for i, line in enumerate(bad):
        check("jsonl-bad " + line[:30], "line %d: " % (i + 1) in r.err, r.err)
    r = Run(*USE, "--tokens", "5,99999999")
    check("tokens-vocabulary", r.rc == 1 and "token 99999999 is not in the vocabulary" in r.err, r)


def test_options():
    task = one("Instruct: find it\nQuery: one text")
    r = Run(*USE, "--query", "find it", text="one text\nanother\n")
    check("query", r.rc == 0 and r.vectors() == [task, one("Instruct: find it\nQuery: another")], r)
    r = Run(*USE, "--query", "find it", "--jsonl", text='{"text": "one text"}\n{"input": [1]}')
    check("query-jsonl", r.rc == 1 and r.rows()[0]["embedding"] == task and "not tokens" in r.err, r)
    raw, unit = one("one text", "--embd-normalize", -1), one("one text")
    check("raw", raw == one("one text", "--raw") and abs(cosine(raw, unit) - 1) < 1e-6 and
          abs(math.fsum(x * x for x in raw) - 1) > 1e-3, raw[:3])
    top, total = max(map(abs, raw)), math.fsum(map(abs, raw))
    for way, factor in (0, 32760 / top), (1, 1 / total):
        got = one("one text", "--embd-normalize", way)
        check("normalize-%d" % way, all(abs(x * factor - y) <= 1e-6 * abs(y) for x, y in zip(raw, got)), got[:3])
    poolings = [one("one text", "--pooling", name) for name in ("mean", "cls", "last", "first")]
    check("pooling", poolings[1] == poolings[3] and poolings[2] == unit and poolings[0] not in poolings[1:], "")
    check("kv-type", one("one text", "--kv-type", "f32") != unit and one("one text", "--kv-type", "f16") == unit, "")

    text = "one text\n" + "many words " * 40 + "\nanother\n"
    r = Run(*USE, "-c", 16, text=text)
    check("too-long", r.rc == 1 and "line 2: it has" in r.err and "--cut" in r.err and len(r.rows()) == 3 and
          r.rows()[2]["embedding"] == one("another"), r)
    r = Run(*USE, "-c", 16, "--cut", text=text)
    check("cut", r.rc == 0 and len(r.vectors()) == 3, r)
    r = Run(*USE, "-ngl", 99, "-p", "one text")
    check("gpu", r.rc == 0 and "-ngl" in r.err and r.vectors() == [unit], r)
    check("quiet", Run(*USE, "--log-disable", "-ngl", 99, text="\n\none text").err == "")


def test_usage():
    r = Run("--help")
    check("help", r.rc == 0 and all(x in r.out.decode() for x in ("--embd-normalize", "--bits", "exit codes")), r)
    for args in [], ["index"], ["search"]:
        r = Run(*args, "--version")
        check("version " + "".join(args), r.rc == 0 and re.fullmatch(rb"embed \d+\.\d+\.\d+.*\n", r.out) and not r.err, r)
    fails("no-model", 2, "-m MODEL", text="x")
    fails("bad-flag", 2, "--bogus", *USE, "--bogus")
    fails("stray-word", 2, "stray", *USE, "stray")
    fails("missing-value", 2, "-m needs a value", "-m")
    fails("bad-number", 2, "-b 0", *USE, "-b", 0)
    fails("bad-number-tail", 2, "2x", *USE, "-t", "2x")
    fails("bad-bits", 2, "8, 4, 2 or 1", *USE, "--bits", 3, "--format", "raw")
    fails("bits-json", 2, "npy or raw", *USE, "--bits", 8)
    fails("bad-format", 2, "jsonl", *USE, "--format", "xml")
    fails("bad-llama-format", 2, "json, array or raw", *USE, "--embd-output-format", "json+")
    fails("two-formats", 2, "exclude", *USE, "--embd-output-format", "raw", "--format", "npy")
    fails("pooling-none", 2, "mean, cls", *USE, "--pooling", "none")
    fails("bad-kv", 2, "f16, f32 or i8", *USE, "--kv-type", "q8_0")
    fails("bad-tokens", 2, "commas", *USE, "--tokens", "1,,2")
    for name in "-m", "-p", "-f", "--query", "--tokens", "-o", "--format", "--bits", "--pooling", "--kv-type":
        fails("empty " + name, 2, "embed: %s: the value (" % name, *USE, "-p", "x", name, "")
    fails("empty search --query", 2, "--query: the value (TASK) is empty", "search", "x.npy", "x", *USE, "--query", "")
    fails("empty search --vector", 2, "--vector: the value (FILE.npy) is empty", "search", "x.npy", "--vector", "")
    fails("two-inputs", 2, "exclude", *USE, "-p", "x", "-f", "y")
    fails("jsonl-separator", 2, "--jsonl", *USE, "--jsonl", "--embd-separator", "x")
    fails("k-without-search", 2, "embed does not use -k", *USE, "-k", 3)
    fails("index-nothing", 2, "folder", "index")
    fails("index-without-model", 2, "-m MODEL", "index", tmp)
    fails("index-without-name", 2, "-o NAME", "index", tmp, *USE)
    fails("search-nothing", 2, "NAME.npy", "search")
    fails("search-without-text", 2, "text", "search", "x.npy", *USE)
    fails("model-missing", 3, "nowhere.gguf", "-m", path("nowhere.gguf"), "-p", "x")
    fails("model-not-gguf", 3, "not a GGUF", "-m", write("no.gguf", "x" * 100), "-p", "x")
    fails("model-no-embeddings", 3, "--pooling", "-m", tiny, "-p", "x")
    fails("output-folder", 1, "not a file", *USE, "-p", "x", "-o", tmp)
    fails("output-nowhere", 1, "nowhere", *USE, "-p", "x", "-o", path("nowhere/x"))
    if os.path.exists("/dev/full"):
        for name in "json", "jsonl", "csv", "raw", "array", "text":
            with open("/dev/full", "wb") as f:
                r = Run(*USE, "--format", name, text="\n".join(lines(40, 3)), stdout=f)
            check("full " + name, r.rc == 1 and "cannot write" in r.err and "No space" in r.err, r)
    else:
        say("skip", "full", "there is no /dev/full here")


# ---- what an output replaces ----

def test_output():
    """Never with a device that matters: if this failed, it would be gone."""
    os.makedirs(path("outputs"))
    pipe, target, link = path("outputs/pipe"), path("outputs/v.npy"), path("link.npy")
    os.mkfifo(pipe)
    wanted = Run(*USE, "-p", "x").out
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        r = Run(*USE, "-p", "x", "-o", pipe)
        if not stat.S_ISFIFO(os.lstat(pipe).st_mode) or r.rc:
            reader.kill()
        check("output-pipe", r.rc == 0 and not r.out and reader.stdout.read() == wanted, r)
    check("output-pipe-stays", stat.S_ISFIFO(os.lstat(pipe).st_mode))
    keep = os.open(pipe, os.O_RDWR)         # nobody waits for another end
    fails("output-pipe-npy", 2, "needs a file", *USE, "-p", "x", "--format", "npy", "-o", pipe)
    os.close(keep)
    if os.path.exists("/dev/stdout"):
        r = Run(*USE, "-p", "x", "-o", "/dev/stdout")
        check("output-stdout", r.rc == 0 and r.out == wanted, r)
    r = Run(*USE, "-f", os.devnull, "-o", os.devnull)
    check("output-null", r.rc == 0 and not r.out, r)
    write("in.txt", "one text")
    fails("output-is-input", 2, "it is the input", *USE, "-f", path("in.txt"), "-o", path("in.txt"))
    os.link(path("in.txt"), path("outputs/same"))
    fails("output-is-input-link", 2, "it is the input", *USE, "-f", path("in.txt"), "-o", path("outputs/same"))
    os.unlink(path("outputs/same"))
    check("input-stays", read("in.txt") == b"one text")
    shutil.copy(tiny, path("model.gguf"))
    fails("output-is-model", 2, "it is the model", "-m", path("model.gguf"), "--pooling", "last", "-p", "x", "-o",
          path("model.gguf"))
    write("outputs/v.npy.part", "other")
    wanted = Run(*USE, "--format", "raw", "-p", "x").out
    os.symlink("outputs/v.npy", link)
    fails("output-link-to-nothing", 1, "it is a link that leads nowhere", *USE, "-p", "x", "--format", "raw", "-o", link)
    check("output-link-to-nothing-stays", os.path.islink(link) and not os.path.exists(link))
    write("outputs/v.npy", "old")
    r = Run(*USE, "-p", "x", "--format", "raw", "-o", link)
    check("output-link", r.rc == 0 and os.path.islink(link) and not os.path.islink(target) and
          read("outputs/v.npy") == wanted, r)
    r = Run(*USE, "-p", "x", "--format", "raw", "-o", target)
    check("output-again", r.rc == 0 and read("outputs/v.npy") == wanted, r)
    check("output-beside", sorted(os.listdir(path("outputs"))) == ["pipe", "v.npy", "v.npy.part"] and
          read("outputs/v.npy.part") == b"other", os.listdir(path("outputs")))
    before = os.umask(0o022)
    for mode in 0o600, 0o640, 0o444:
        os.chmod(target, mode)
        r = Run(*USE, "-p", "x", "--format", "raw", "-o", target)
        check("output-permissions-%o" % mode, r.rc == 0 and stat.S_IMODE(os.stat(target).st_mode) == mode, r)
    os.remove(target)
    r = Run(*USE, "-p", "x", "--format", "raw", "-o", target)
    check("output-permissions-new", r.rc == 0 and stat.S_IMODE(os.stat(target).st_mode) == 0o644, r)
    os.umask(before)
    # the program gets the process of the shell, which takes the first name for its file
    taken = 'echo other > "$0.$$-0.part" && exec "$@"'
    args = os.environ.get("RUN", "").split() + [program, *USE, "-p", "x", "--format", "raw", "-o", target]
    done = subprocess.run(["sh", "-c", taken, target, *args], stderr=subprocess.PIPE, timeout=600)
    parts = [x for x in os.listdir(path("outputs")) if x.endswith("-0.part")]
    check("output-name-taken", done.returncode == 0 and read("outputs/v.npy") == wanted and len(parts) == 1 and
          read("outputs/" + parts[0]) == b"other\n", (done.stderr, parts))


# ---- the index of a folder ----

def test_closed_streams():
    """What is said where descriptors are closed does not get into a file that is written."""
    os.makedirs(path("streams"))
    write("streams/a.txt", "A text.")
    write("streams/b.bin", b"\xff")         # a note says that it is skipped
    for name, closed in ("open", ""), ("closed-2", "2>&-"), ("closed-1", ">&-"), ("closed", "<&- >&- 2>&-"):
        r = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", *os.environ.get("RUN", "").split(), program, "index",
                            path("streams"), *USE, "-o", path(name)], capture_output=True, timeout=600)
        check("index-streams-" + name, r.returncode == 0 and all(
            read(name + x) == read("open" + x) for x in (".npy", ".i8.npy", ".jsonl")), r)
    r = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *os.environ.get("RUN", "").split(), program, *USE],
                       capture_output=True, timeout=600)
    check("stdin-closed", r.returncode == 1 and b"cannot read standard input" in r.stderr, r)


def paragraphs(n, seed):
    return "\n\n".join("\n".join(x.capitalize() + "." for x in lines(6, seed + i)) for i in range(n))


def test_index():
    folder = path("notes")
    os.makedirs(os.path.join(folder, "sub", ".git"))
    files = {"a.txt": "A short note about cats.", "b.md": paragraphs(9, 10),
             "sub/long.txt": " ".join(" ".join(lines(60, 4)).split()),
             "sub/chinese.txt": "a" + "".join(chr(0x4e00 + i * 7 % 5000) for i in range(3000)),
             "white.txt": " \n\n\t", "none.txt": "", "sub/.git/config": "hidden", ".hidden.txt": "hidden"}
    files.update({name + ".txt": "Text " + name for name in "zkxcwqe"})
    files["sentences.md"] = " ".join(x + "." for x in lines(40, 5))
    for name, text in files.items():
        write("notes/" + name, text)
    write("notes/picture.png", b"\x89PNG\0\0\xff")
    write("notes/nul.txt", b"a\0b")
    os.symlink("a.txt", os.path.join(folder, "link.txt"))
    r = Run("index", folder, *USE, "-o", os.path.join(folder, "index"))
    check("index", r.rc == 0 and "files" in r.err, r)
    skipped = ["skipped %s/%s" % (folder, x) for x in ("picture.png", "nul.txt", "link.txt")]
    check("index-skips", all(x in r.err for x in skipped) and "2 hidden" in r.err and
          r.err.count("skipped") == 4, r.err)
    made = {x: read("notes/index" + x) for x in (".npy", ".i8.npy", ".jsonl")} if r.rc == 0 else {}
    again = Run("index", folder, *USE, "-o", os.path.join(folder, "index"))
    check("index-again", made and made == {x: read("notes/index" + x) for x in made} and
          again.err == r.err, again)
    left = write("notes/index.jsonl.1-0.part", made.get(".jsonl", b""))
    again = Run("index", folder, *USE, "-o", os.path.join(folder, "index"))
    check("index-leftover", made == {x: read("notes/index" + x) for x in made} and
          "skipped %s: it is an index that another run has not finished" % left in again.err, again)
    os.remove(left)
    check("index-no-part", not [x for x in os.listdir(folder) if x.endswith(".part")], os.listdir(folder))
    entries = [json.loads(line) for line in made[".jsonl"].splitlines()]
    head, entries = entries[0], entries[1:]
    (kind, shape, data), (_, _, mark) = npy_arrays(made[".npy"])
    check("index-rows", kind == "<f4" and shape == (len(entries), head["dim"]), (kind, shape, len(entries)))
    size, rest = 4 * head["dim"], made[".jsonl"].splitlines(keepends=True)[1:]
    rows_hash = hashed(data[i:i + size] for i in range(0, len(data), size))
    check("index-hashes", head["index"] == 2 and head["rows"] == len(entries) and
          head["vectors"] == "%016x" % rows_hash and head["passages"] == "%016x" % hashed(rest) and
          mark == npy_arrays(made[".i8.npy"])[2][2] == struct.pack("<Q", rows_hash), head)
    pieces = {}
    for e in entries:
        with open(e["file"], "rb") as f:
            text = f.read()[e["offset"]:e["offset"] + e["length"]].decode()
        pieces.setdefault(os.path.relpath(e["file"], folder), []).append(text)
        words = " ".join(text.split()).encode()[:120].decode(errors="ignore")
        if e["text"] != words or e["length"] != len(text.encode()):
            check("index-first-words", False, e)
    wanted = {name for name, text in files.items() if text.strip() and "/." not in "/" + name}
    check("index-files", set(pieces) == wanted, set(pieces) ^ wanted)
    lost = [name for name in wanted if "".join("".join(pieces[name]).split()) != "".join(files[name].split())]
    check("index-complete", not lost, lost)
    check("index-sizes", all(len(p.split()) <= 200 and len(p.encode()) <= 2000 for x in pieces.values() for p in x))
    sentences = pieces["sentences.md"]
    check("index-sentences", all(p.endswith(".") for p in sentences) and len(sentences) > 2, sentences)
    order = list(dict.fromkeys(os.path.relpath(e["file"], folder) for e in entries))
    check("index-order", order == sorted(order), order)
    whole = files["b.md"]
    ends = [whole.find(p) + len(p) for p in pieces["b.md"]]
    check("index-paragraphs", all(whole[e:e + 2] == "\n\n" for e in ends[:-1]), ends)
    vectors = le_floats(data)
    dim = head["dim"]
    for row in 0, len(entries) // 2, len(entries) - 1:
        text = pieces_of(entries, folder, row)
        check("index-vector-%d" % row, floats(one(text, "--cut")) == vectors[row * dim:(row + 1) * dim], text[:40])
        r = Run("search", os.path.join(folder, "index.npy"), text, *USE, "-k", 3, "--json", "--cut")
        hits = json.loads(r.out)["results"] if r.rc == 0 else [{}]
        best = hits[0]
        check("search-itself-%d" % row, best.get("row") == row and abs(best["score"] - 1) < 1e-6 and len(hits) == 3 and
              best.get("file") == entries[row]["file"] and best["offset"] == entries[row]["offset"], r)
    r = Run("search", os.path.join(folder, "index.npy"), "A short note about cats.", *USE, "-k", 1)
    line = " 1.000000  %s/a.txt:0  A short note about cats.\n" % folder
    check("search-text", r.rc == 0 and r.out.decode() == line, r.out)
    os.makedirs(path("windows"))
    write("windows/a.txt", b"\xef\xbb\xbfA short note about cats.\r\n")
    Run("index", path("windows"), *USE, "-o", path("w"))
    r = Run("search", path("w.npy"), "A short note about cats.", *USE, "-k", 1)
    line = " 1.000000  %s:3  A short note about cats.\n" % path("windows/a.txt")
    check("search-windows", r.rc == 0 and r.out.decode() == line, r.out)
    r = Run("search", os.path.join(folder, "index.npy"), "cats", *USE, "--query", "find", "--json")
    v = one("Instruct: find\nQuery: cats")
    best = json.loads(r.out)["results"][0]
    check("search-query", abs(best["score"] - max(cosine(v, vectors[i * dim:(i + 1) * dim])
                                                  for i in range(len(entries)))) < 1e-6, r)
    index = os.path.join(folder, "index.npy")
    for args in [], ["--cut"]:
        r = Run("search", index, "cats", *USE, "-c", 5, *args)
        check("search-short-context" + "".join(args), r.rc == 1 and not r.out and "--cut" not in r.err and
              re.search(r"it has 5 tokens, and \d+ are needed; -c makes it longer$", r.err), r)
    fails("search-other-pooling", 1, "another model", "search", index, "x", "-m", tiny, "--pooling", "mean")
    other = os.path.join(models, "q.gguf")
    if os.path.exists(other):
        fails("search-other-model", 1, "another model", "search", index, "x", "-m", other)
    else:
        say("skip", "search-other-model", "models/q.gguf is not in BITNET_TEST_DATA")
    for content in "{}\n", "x", "[]", '{"probe": 1}':
        write("notes/index.jsonl", content)
        r = Run("search", index, "cats", *USE)
        check("jsonl-hostile " + content.strip(), r.rc == 1 and ".jsonl" in r.err or "another model" in r.err, r)
    damaged = b'\n{"file":5}\nxx\n[1]\n{"file":"a\\nb","offset":-1}'
    write("notes/index.jsonl", made[".jsonl"].splitlines()[0] + damaged)
    fails("jsonl-damaged", 1, "its lines are not those that were written", "search", index, "cats", *USE)
    os.remove(os.path.join(folder, "index.jsonl"))
    r = Run("search", index, "cats", *USE, "-k", 2)
    check("jsonl-missing", r.rc == 0 and r.out.decode().count("  row ") == 2, r)
    os.makedirs(path("empty"))
    fails("index-empty", 1, "no text", "index", path("empty"), *USE, "-o", path("empty/x"))
    check("index-empty-leaves", os.listdir(path("empty")) == [], os.listdir(path("empty")))
    os.makedirs(path("own"))
    write("own/b.txt", "A text.")
    for ending, content in ((".jsonl", "my dear diary"), (".jsonl", ""), (".jsonl", '{"text": "a line"}\n'),
                            (".npy", "not an array"), (".i8.npy", b"\x93NUMP")):
        own = write("own/diary" + ending, content)
        fails("index-own %s %r" % (ending, content), 1, "%s: what is there is no index" % own, "index", path("own"),
              *USE, "-o", path("own/diary"))
        check("index-own-stays %s %r" % (ending, content), sorted(os.listdir(path("own"))) == ["b.txt", "diary" + ending] and
              read("own/diary" + ending) == (content if isinstance(content, bytes) else content.encode()), own)
        os.remove(own)
    Run("index", path("own"), *USE, "-o", path("own/v"))
    for ending in ".jsonl", ".i8.npy":
        os.remove(path("own/v" + ending))
    own = write("own/v.i8.npy", "not an array")
    fails("index-own-copies", 1, "v.i8.npy: what is there is no index", "index", path("own/v.npy"))
    check("index-own-copies-stays", read("own/v.i8.npy") == b"not an array")
    fails("index-missing", 1, "nowhere", "index", path("nowhere"), *USE, "-o", path("x"))


def hashed(pieces):
    """npy_hash of pieces that follow each other."""
    h = 0
    for p in pieces:
        h = (h + len(p)) % 2 ** 64
        for i in range(0, len(p), 8):
            h = (h ^ int.from_bytes(p[i:i + 8], "little")) * 0x9e3779b97f4a7c15 % 2 ** 64
            h ^= h >> 32
    return h


def test_index_together():
    """Files of two indexes never name wrong passages."""
    endings = ".npy", ".i8.npy", ".jsonl"
    for name, texts in ("one", ("The sky is blue.", "Bread is made of flour.")), ("two", ("Ants live.", "Rain fell.")):
        os.makedirs(path("together-" + name))
        for i, text in enumerate(texts):
            write("together-%s/%d.txt" % (name, i), text)
        r = Run("index", path("together-" + name), *USE, "-o", path("t-" + name))
        check("together-" + name, r.rc == 0, r)
    made = {(name, x): read("t-" + name + x) for name in ("one", "two") for x in endings}
    for names in itertools.product(("one", "two"), ("one", "two", None), ("one", "two", None)):
        for name, x in zip(names, endings):
            if name:
                write("t" + x, made[name, x])
            elif os.path.exists(path("t" + x)):
                os.remove(path("t" + x))
        r = Run("search", path("t.npy"), "The sky is blue.", *USE, "-k", 1)
        same = set(names) - {None} == {names[0]}
        check("together %s %s %s" % names, r.rc == (0 if same else 1) and (same or not r.out) and
              (same or "another file" in r.err or "not of the same run" in r.err), r)
    head, *rest = made["one", ".jsonl"].splitlines(keepends=True)
    write("t.npy", made["one", ".npy"])
    for name, lines_, words in (("swapped", rest[::-1], "not those that were written"),
                                ("one-less", rest[:1], "not those that were written"),
                                ("one-more", rest + rest[:1], "not those that were written"),
                                ("a-name", [rest[0].replace(b"0.txt", b"1.txt"), rest[1]], "not those that were written")):
        write("t.jsonl", b"".join([head] + lines_))
        fails("together-" + name, 1, words, "search", path("t.npy"), "The sky is blue.", *USE, "-q")
    old = {k: v for k, v in json.loads(head).items() if k not in ("rows", "vectors", "passages")}
    write("t.jsonl", json.dumps({**old, "index": 1}).encode() + b"\n" + b"".join(rest))
    fails("together-older", 1, "another version of embed", "search", path("t.npy"), "The sky is blue.", *USE, "-q")


def test_index_faults():
    """A file that cannot be read, or a name that cannot be given, leaves the old index or one that is refused."""
    library = path("faults.so")
    if os.environ.get("RUN") or subprocess.run(
            [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", os.path.join(here, "../faults.c"), "-o", library,
             "-ldl"], stderr=subprocess.DEVNULL).returncode:
        say("skip", "index-faults", "a library for LD_PRELOAD cannot be made")
        return
    base = {"LD_PRELOAD": library, "ASAN_OPTIONS": "verify_asan_link_order=0"}
    os.makedirs(path("faults/sub"))
    for name in "a", "b", "sub/c":
        write("faults/%s.txt" % name, "The text of %s." % name)
    command = ["index", path("faults"), *USE, "-o", path("f")]
    check("faults-none", Run(*command, env=base).rc == 0)
    endings = ".npy", ".i8.npy", ".jsonl"
    old = {x: read("f" + x) for x in endings}
    write("faults/d.txt", "One more.")

    def stays(name):
        check(name + "-stays", old == {x: read("f" + x) for x in endings} and
              not [x for x in os.listdir(tmp) if x.endswith(".part")], os.listdir(tmp))

    for word in "a.txt", "sub", "sub/c.txt":
        for reason in errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM:
            r = Run(*command, env={**base, "FAULT_PATH": "faults/" + word, "FAULT_ERRNO": str(reason)})
            check("faults %s %s" % (word, errno.errorcode[reason]), r.rc == 1 and "no new index" in r.err and
                  "cannot read %s: %s" % (path("faults/" + word), os.strerror(reason)) in r.err, r)
            stays("faults %s %s" % (word, errno.errorcode[reason]))
    r = Run(*command, env={**base, "FAULT_PATH": "faults/b.txt", "FAULT_AFTER": "1"})
    check("faults-later", r.rc == 1 and "cannot read %s: Permission" % path("faults/b.txt") in r.err, r)
    stays("faults-later")
    r = Run(*command, env={**base, "FAULT_FDOPEN": "1"})
    check("faults-no-stream", r.rc == 1 and "Cannot allocate memory" in r.err, r)
    stays("faults-no-stream")
    r = Run(*command, env={**base, "FAULT_FSYNC": "1"})
    check("faults-sync", r.rc == 1 and "cannot write to %s: Input/output error" % path("f.npy") in r.err, r)
    stays("faults-sync")
    for n in 1, 2, 3:
        r = Run(*command, env={**base, "FAULT_RENAME": str(n)})
        check("faults-rename-%d" % n, r.rc == 1 and "Input/output error" in r.err, r)
        r = Run("search", path("f.npy"), "The text of b.", *USE, "-k", 1)
        check("faults-rename-%d-search" % n, b"/b.txt:0  The text of b." in r.out if n == 1 else
              r.rc == 1 and not r.out and "makes it again" in r.err, r)
    r = Run(*command, env={**base, "FAULT_PATH": "faults/b.txt", "FAULT_ERRNO": str(errno.ENOENT)})
    check("faults-gone", r.rc == 0 and "skipped %s: it is not there any more" % path("faults/b.txt") in r.err, r)
    r = Run("search", path("f.npy"), "One more.", *USE, "-k", 1)
    check("faults-mended", r.rc == 0 and b"/d.txt:0  One more." in r.out, r)


def test_stopped():
    """A signal ends an index that takes minutes, and leaves nothing of it."""
    os.mkdir(path("long"))
    write("long/0.txt", "The sky is blue. " * 60000)
    for i in range(1, 40):
        os.link(path("long/0.txt"), path("long/%d.txt" % i))
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        p = subprocess.Popen([program, "index", path("long"), *USE, "-t", "1", "-o", path("stopped")],
                             stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        while p.poll() is None and not glob.glob(path("stopped.jsonl.*.part")):
            time.sleep(0.01)
        p.send_signal(number)
        err = p.communicate(timeout=60)[1]
        check("stopped-%d" % number, p.returncode == 130 and err == b"embed: stopped\n" and not glob.glob(path("stopped*")),
              (p.returncode, err, glob.glob(path("stopped*"))))


def pieces_of(entries, folder, row):
    with open(entries[row]["file"], "rb") as f:
        return f.read()[entries[row]["offset"]:entries[row]["offset"] + entries[row]["length"]].decode()


# ---- search is exact ----

def pack(rows):
    return struct.pack("<%df" % sum(map(len, rows)), *(x for row in rows for x in row))


def compare(name, rows, query, k=10):
    """The same hits with and without int8 copies, and those of sums in Python. Returns the exact count."""
    dim = len(query)
    rows = [list(floats(row)) for row in rows]
    query = list(floats(query))
    write("v.npy", npy(len(rows), dim, pack(rows)))
    write("q.npy", npy(1, dim, pack([query])))
    made = Run("index", path("v.npy"))
    fast = Run("search", path("v.npy"), "--vector", path("q.npy"), "-k", k, "--json")
    one_thread = Run("search", path("v.npy"), "--vector", path("q.npy"), "-k", k, "--json", "-t", 1)
    slow = Run("search", path("v.npy"), "--vector", path("q.npy"), "-k", k, "--json", "--all")
    check(name + "-same", made.rc == 0 and fast.rc == 0 and fast.out == slow.out == one_thread.out, (made, fast, slow))
    if fast.rc:
        return len(rows)
    hits = json.loads(slow.out)["results"]
    scores = [cosine(row, query) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (-scores[i], i))[:k]
    check(name + "-scores", len(hits) == len(order) and
          all(abs(h["score"] - scores[i]) < 1e-8 for h, i in zip(hits, order)) and
          all(abs(h["score"] - scores[h["row"]]) < 1e-8 for h in hits) and
          all((-p["score"], p["row"]) < (-q["score"], q["row"]) for p, q in zip(hits, hits[1:])),
          (hits[:3], order[:3], [scores[i] for i in order[:3]]))
    (_, (n, width), codes), (_, _, extra), _ = npy_arrays(read("v.i8.npy"))
    extra = le_floats(extra)
    worst = 0.0
    for i, row in enumerate(rows[:40]):
        a, r = extra[i], extra[n + i]
        size = math.sqrt(math.fsum(x * x for x in row))
        size = size or 1.0
        e = math.sqrt(math.fsum((x / size - a * (codes[i * width + j] - 128)) ** 2 for j, x in enumerate(row)))
        worst = max(worst, e - r)
    check(name + "-residual", worst <= 0 and width % 64 == 0, worst)
    return int(fast.err.split(", ")[1].split()[0])


def test_search():
    r = random.Random(7)

    def normal(n, dim, scale=1.0):
        return [[r.gauss(0, 1) * scale for _ in range(dim)] for _ in range(n)]

    exact = compare("random", normal(3000, 128), normal(1, 128)[0])
    check("prefilter", 10 <= exact < 600, exact)
    for dim in 1, 7, 64, 100, 130:
        compare("dim-%d" % dim, normal(500, dim), normal(1, dim)[0])
    base = normal(1, 96)[0]
    compare("equal", [base] * 700, normal(1, 96)[0], 25)
    compare("zeros", [[0.0] * 64] * 300 + normal(20, 64) + [[0.0] * 64] * 30, normal(1, 64)[0], 340)
    outliers = normal(900, 64)
    for row in outliers[::3]:
        row[r.randrange(64)] = r.choice((-1, 1)) * 10.0 ** r.uniform(3, 38)
    compare("outliers", outliers, normal(1, 64)[0], 20)
    compare("outlier-query", outliers, [1e30] + normal(1, 63)[0], 20)
    near = [[x + r.gauss(0, 1e-4) for x in base] for _ in range(1500)]
    compare("near", near, base, 12)
    compare("near-opposite", near, [-x for x in base], 12)
    compare("tiny", normal(300, 64, 1e-42), normal(1, 64, 1e-40)[0], 20)
    compare("mixed", normal(100, 64, 1e-40) + normal(100, 64, 1e37) + normal(100, 64), normal(1, 64, 1e-20)[0], 50)
    sparse = [[float(i == j) for j in range(64)] for i in range(64)]
    compare("one-hot", sparse * 5, sparse[17], 9)
    compare("k-over-n", normal(5, 64), normal(1, 64)[0], 100)
    compare("many-shares", normal(20000, 16), normal(1, 16)[0], 7)
    signs = [[r.choice((-1.0, 1.0)) for _ in range(64)] for _ in range(4000)]
    compare("signs", signs, signs[5], 60)


def test_many_hits():
    """Each hit has its own line, and finding them takes no longer than a few times what printing rows does."""
    n, r = 100000, random.Random(9)
    rows = [struct.pack("<2f", r.random(), r.random()) for _ in range(n)]
    lines_ = [b'{"file":"%d"}\n' % i for i in range(n)]
    mark = hashed(rows)
    write("m.npy", npy(n, 2, b"".join(rows)) + npy(1, 8, struct.pack("<Q", mark), kind="|u1"))
    q = write("mq.npy", npy(1, 2, struct.pack("<2f", 1, 0)))
    made = Run("index", path("m.npy"))
    args = ["search", path("m.npy"), "--vector", q, "-k", n, "-q"]

    def used(*more):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = Run(*args, *more)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    without, least = used()
    head = {"index": 2, "rows": n, "vectors": "%016x" % mark, "passages": "%016x" % hashed(lines_)}
    write("m.jsonl", json.dumps(head).encode() + b"\n" + b"".join(lines_))
    done, most = used()
    check("many-hits", made.rc == 0 and without.rc == 0 and done.rc == 0 and
          len(done.out.splitlines()) == n, (made, without, done))
    check("many-hits-time", most < 8 * least + 0.5, "%.2f s, and %.2f s without lines" % (most, least))
    hits = json.loads(used("--json")[0].out)["results"]
    check("many-hits-lines", sorted(h["row"] for h in hits) == list(range(n)) and
          all(h["file"] == str(h["row"]) for h in hits), hits[:3])


def test_hostile():
    dim, n = 8, 5
    r = random.Random(3)
    data = pack([[r.gauss(0, 1) for _ in range(dim)] for _ in range(n)])
    good = npy(n, dim, data)
    q = write("hq.npy", npy(1, dim, data[:4 * dim]))

    def search(name, *args):
        return Run("search", path(name), "--vector", q, *args)

    write("h.npy", good)
    check("hostile-good", search("h.npy").rc == 0, search("h.npy"))
    check("hostile-flat-query", Run("search", path("h.npy"), "--vector",
                                    write("flat.npy", npy(1, dim, data[:4 * dim], shape="(8,)"))).rc == 0)
    for version in 2, 3:
        write("h.npy", npy(n, dim, data, version=version))
        check("version-%d" % version, search("h.npy").rc == 0, search("h.npy"))
    bad = {
        "empty": b"", "magic": b"x" + good[1:], "version": good[:6] + b"\x09" + good[7:],
        "other-type": npy(n, dim, data, kind="<f8"), "big-endian": npy(n, dim, data, kind=">f4"),
        "object": npy(n, dim, data, kind="|O"), "fortran": npy(n, dim, data, order="True"),
        "order": npy(n, dim, data, order="Maybe"), "one-number": npy(n, dim, data, shape="40"),
        "scalar": npy(n, dim, data, shape="()"), "three": npy(n, dim, data, shape="(5, 4, 2)"),
        "no-columns": npy(n, 0, data), "negative": npy(n, dim, data, shape="(-5, 8)"),
        "overflow": npy(n, dim, data, shape="(4611686018427387904, 4)"),
        "overflow-2": npy(n, dim, data, shape="(18446744073709551615, 8)"),
        "overflow-3": npy(n, dim, data, shape="(5, 99999999999999999999999)"),
        "truncated": good[:-1], "one-too-many": npy(n + 1, dim, data), "wide": npy(1, 70000, bytes(280000)),
        "header-length": good[:8] + b"\xff\xff" + good[10:], "twice": good.replace(b"'shape'", b"'descr'"),
        "key": good.replace(b"'shape'", b"'shame'"), "long-key": good.replace(b"'shape'", b"'" + b"s" * 5 + b"'"),
        "structured": npy(n, dim, data, kind="X").replace(b"'X'", b"[('a', '<f4')]"),
        "comma": good.replace(b"False,", b"False "), "folder": None}
    said = {"empty": "this is no .npy", "magic": "this is no .npy", "version": "its version",
            "other-type": "its elements are of another type", "big-endian": "its elements are of another type",
            "fortran": "it is in Fortran's order", "three": "its shape", "truncated": "it is truncated",
            "one-too-many": "it is truncated", "overflow": "it is truncated", "key": "its header has an unknown key"}
    for name, content in bad.items():
        if content is None:
            os.makedirs(path("h-folder.npy"))
            for command in (["search", path("h-folder.npy"), "--vector", q], ["index", path("h-folder.npy")]):
                fails("hostile-folder " + command[0], 1, "h-folder.npy", *command)
            continue
        write("h.npy", content)
        words = "h.npy: " + said.get(name, "")
        fails("hostile-%s search" % name, 1, words, "search", path("h.npy"), "--vector", q, "-q")
        fails("hostile-%s index" % name, 1, words, "index", path("h.npy"))
    header = len(good) - len(data)
    codes = set()
    for size in range(0, header, 3):
        write("h.npy", good[:size])
        codes.add(search("h.npy").rc)
    check("hostile-cut", codes == {1}, codes)
    codes = set()
    for i in range(0, header, 2):
        changed = bytearray(good)
        changed[i] ^= 1 << r.randrange(8)
        write("h.npy", bytes(changed))
        codes.add(search("h.npy", "-q").rc)
    check("hostile-flips", codes <= {0, 1}, codes)
    fails("missing", 1, "none-here.npy", "search", path("none-here.npy"), "--vector", q)
    write("h.npy", good)
    fails("query-missing", 1, "none-here.npy", "search", path("h.npy"), "--vector", path("none-here.npy"), "-q")
    for name, values in (("dim", [1.0] * 7), ("zero", [0.0] * 8), ("nan", [math.nan] * 8),
                         ("infinity", [math.inf] + [1.0] * 7)):
        fails("query-" + name, 1, "vector" if name != "dim" else "8 numbers", "search", path("h.npy"), "--vector",
              write("bad-q.npy", npy(1, len(values), pack([values]))), "-q")

    # rows that are no numbers, and int8 copies that are not those of the rows
    for name, value in ("nan", math.nan), ("infinity", math.inf):
        rows = [[1.0] * dim for _ in range(n)]
        rows[3][5] = value
        write("h.npy", npy(n, dim, pack(rows)))
        fails("row-%s index" % name, 1, "row 3", "index", path("h.npy"))
        fails("row-%s search" % name, 1, "row 3", "search", path("h.npy"), "--vector", q, "--all")
    write("h.npy", good)
    Run("index", path("h.npy"))
    copy = read("h.i8.npy")
    write("h.npy", npy(n, dim, pack([[r.gauss(0, 1) for _ in range(dim)] for _ in range(n)])))
    fails("stale", 1, "another vector", "search", path("h.npy"), "--vector", q)
    write("h.npy", npy(n - 1, dim, data[:-4 * dim]))
    fails("stale-rows", 1, "another file", "search", path("h.npy"), "--vector", q)
    write("h.npy", good)
    for size in range(0, len(copy), 7):
        write("h.i8.npy", copy[:size])
        r2 = search("h.npy")
        if r2.rc != 1 or "h.i8.npy" not in r2.err:
            check("copy-cut-%d" % size, False, r2)
            break
    else:
        check("copy-cut", True)
    mark = copy[-136:]
    floats_at = len(copy) - len(mark) - 8 * n
    write("h.i8.npy", copy[:-136])
    fails("copy-without-mark", 1, "older version", "search", path("h.npy"), "--vector", q)
    write("h.npy", good + copy[-136:-1] + bytes([copy[-1] ^ 1]))
    write("h.i8.npy", copy)
    fails("copy-other-mark", 1, "another file", "search", path("h.npy"), "--vector", q)
    fails("rows-other-mark", 1, "h.npy: it is damaged", "index", path("h.npy"))
    check("rows-other-mark-stays", read("h.i8.npy") == copy)
    write("h.npy", good)
    for name, value in ("nan", math.nan), ("infinity", math.inf), ("negative", -1.0), ("large", 1e38):
        write("h.i8.npy", copy[:floats_at] + struct.pack("<f", value) * (2 * n) + mark)
        r2 = search("h.npy")
        check("copy-" + name, r2.rc in (0, 1), r2)
    if os.path.exists("/dev/full"):
        write("h.i8.npy", copy)
        with open("/dev/full", "wb") as f:
            for option in [], ["--json"]:
                r2 = Run("search", path("h.npy"), "--vector", q, *option, stdout=f)
                check("full search %s" % option, r2.rc == 1 and "cannot write" in r2.err and "No space" in r2.err, r2)


sys.exit(run_all("embed", [
    test_reference, test_formats, test_batches, test_input, test_jsonl, test_options, test_usage, test_output,
    test_closed_streams, test_index, test_index_together, test_index_faults, test_stopped, test_search, test_many_hits,
    test_hostile
]))
