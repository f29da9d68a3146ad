#!/usr/bin/env python3
"""Write the Unicode tables of bitnet.h from the Unicode Character Database, version 15.0.

    tests/checks/unicode_tables.py                    print the generated block
    tests/checks/unicode_tables.py --write bitnet.h   put it between the two marker lines of bitnet.h
    tests/checks/unicode_tables.py --check bitnet.h   exit 1 if the block in bitnet.h is any other text
    tests/checks/unicode_tables.py --digest           print the numbers that tests/unit/test_tokenizer.c knows

The data (UnicodeData.txt, PropList.txt, CaseFolding.txt, CompositionExclusions.txt) is read from /usr/share/unicode, where the
Debian package `unicode-data` puts it; `--data DIR` reads it from elsewhere. Data of any other
version, or none, ends with exit status 2, so that a check that could not run is never taken for
one that passed. Python standard library only.

Classes: 1 letter = general category L*, 2 number = N*, 3 space = White_Space, 4 mark = M*, 0 all the
rest.
The tables: all code points in order as runs of one class, each run one 16-bit number
`length << 3 | class` (runs longer than 8191 are cut), plus the first code point of every 16th run
so that a look-up is a short binary search and a short walk. CR and LF are class 3 there; the
128-entry ASCII table, which comes first in every look-up, gives them class 5 of their own.
Punctuation (general category P*) beyond ASCII, which only one pre-tokenizer asks for, is a table of
its own: one number `first << 6 | length` for each run.

NFC, which one tokenizer wants: the runs of code points that NFC may change or that may change what
is before them, and the canonical decompositions. A decomposition is the lower 16 bits of its first
code point and a place in a list of all second code points, whose upper bits are the first one's, too.
Number 0 of that list is "none", and the last one is "none, the first is of plane 2".
"""

import argparse
import os
import sys

VERSION = "15.0.0"
BEGIN = "/* begin of tables written by tests/checks/unicode_tables.py from Unicode %s */" % VERSION
END = "/* end of tables written by tests/checks/unicode_tables.py */"
OTHER, LETTER, NUMBER, SPACE, MARK, NEWLINE = range(6)
MAX_RUN = (1 << 13) - 1
STRIDE = 16             # runs per index entry
WIDTH = 96


def die(status, text):
    sys.stderr.write("unicode_tables.py: %s\n" % text)
    sys.exit(status)


def read_lines(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            return f.read().split("\n")
    except OSError as e:
        die(2, "cannot read the Unicode data: %s" % e)


def categories(folder):
    """All ranges of assigned code points: (first, last, general category)."""
    first = 0
    for line in read_lines(folder, "UnicodeData.txt"):
        if not line:
            continue
        fields = line.split(";")
        cp, name, category = int(fields[0], 16), fields[1], fields[2]
        if name.endswith(", First>"):       # a range is two lines: ", First>" and ", Last>"
            first = cp
            continue
        if not name.endswith(", Last>"):
            first = cp
        yield first, cp, category


def load_classes(folder):
    """One class per code point, as a bytearray of 0x110000."""
    props = read_lines(folder, "PropList.txt")
    if props[0].strip() != "# PropList-%s.txt" % VERSION:
        die(2, "%s holds %r, wanted version %s" % (folder, props[0], VERSION))
    classes = bytearray(0x110000)
    for first, last, category in categories(folder):
        value = {"L": LETTER, "N": NUMBER, "M": MARK}.get(category[0], OTHER)
        for c in range(first, last + 1):
            classes[c] = value
    for line in props:
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and fields[1].strip() == "White_Space":
            ends = fields[0].strip().split("..")
            for c in range(int(ends[0], 16), int(ends[-1], 16) + 1):
                if classes[c] != OTHER:
                    die(1, "U+%04X is both a space and something else" % c)
                classes[c] = SPACE
    return classes


def load_punctuation(folder):
    """1 for each code point beyond ASCII of general category P*, as a bytearray of 0x110000."""
    flags = bytearray(0x110000)
    for first, last, category in categories(folder):
        if category[0] == "P" and first > 0x7F:
            for c in range(first, last + 1):
                flags[c] = 1
    return flags


def check_folding(folder):
    """bitnet__contraction() knows one character beyond ASCII that folds to a letter it looks for."""
    found = set()
    for line in read_lines(folder, "CaseFolding.txt"):
        fields = [f.strip() for f in line.split("#")[0].split(";")]
        if len(fields) >= 3 and fields[1] in ("C", "S") and len(fields[2]) == 4:
            if chr(int(fields[2], 16)) in "strevmld" and int(fields[0], 16) > 0x7F:
                found.add((int(fields[0], 16), chr(int(fields[2], 16))))
    if found != {(0x17F, "s")}:
        die(1, "case folding reaches the contractions from %s" % sorted(found))


def make_runs(classes):
    """(runs as numbers, first code points of every STRIDE-th run, end of the last run, first code
    point and length of a run of marks far behind it)."""
    runs, index = [], []
    far = [c for c in range(0xE0000, 0x110000) if classes[c] != OTHER]
    if [classes[c] for c in far] != [MARK] * (far[-1] + 1 - far[0]):
        die(1, "from U+E0000 on there is more than one run of marks")
    end = max(c for c in range(0xE0000) if classes[c] != OTHER) + 1
    start = 0
    while start < end:
        stop = start + 1
        while stop < end and classes[stop] == classes[start] and stop - start < MAX_RUN:
            stop += 1
        if len(runs) % STRIDE == 0:
            index.append(start)
        runs.append((stop - start) << 3 | classes[start])
        start = stop
    return runs, index, end, far[0], len(far)


def rows(numbers, form, per_row=0):
    """The numbers as initialiser lines, filled to WIDTH or per_row to a line."""
    lines, line = [], []
    for text in [form % n for n in numbers]:
        full = len("    " + ",".join(line + [text])) + 1 > WIDTH
        if full or (per_row and len(line) == per_row):
            lines.append("    " + ",".join(line) + ",")
            line = []
        line.append(text)
    return lines + ["    " + ",".join(line)]


def make_punctuation(flags):
    """Runs of punctuation as numbers `first << 6 | length`, in order."""
    runs, start = [], 0
    for c in range(0x110000):
        if flags[c]:
            if c == 0 or not flags[c - 1]:
                start = c
            if c == 0x10FFFF or not flags[c + 1]:
                if c + 1 - start > 63:
                    die(1, "the run of punctuation from U+%04X is too long" % start)
                runs.append(start << 6 | (c + 1 - start))
    return runs


def make_block(classes, flags, folder):
    runs, index, end, far, far_count = make_runs(classes)
    ascii_classes = [NEWLINE if c in (10, 13) else classes[c] for c in range(128)]
    punctuation = make_punctuation(flags)
    bytes_used = 128 + 2 * len(runs) + 4 * len(index)
    out = [BEGIN]
    out += ["/* %d bytes: %d runs; from U+%04X on there is only a run of marks far away. */"
            % (bytes_used, len(runs), end)]
    out += ["enum { BITNET__CLASS_RUNS = %d, BITNET__CLASS_INDEX = %d, BITNET__CLASS_STRIDE = %d,"
            % (len(runs), len(index), STRIDE)]
    out += ["       BITNET__FAR_MARKS = 0x%X, BITNET__FAR_COUNT = %d };" % (far, far_count)]
    out += ["static const uint8_t bitnet__ascii_class[128] = {"]
    out += rows(ascii_classes, "%d", 32) + ["};"]
    out += ["static const uint16_t bitnet__class_runs[BITNET__CLASS_RUNS] = {"]
    out += rows(runs, "%d") + ["};"]
    out += ["static const uint32_t bitnet__class_index[BITNET__CLASS_INDEX] = {"]
    out += rows(index, "0x%X") + ["};"]
    out += ["/* %d bytes: runs of punctuation beyond ASCII, `first << 6 | length`. */"
            % (4 * len(punctuation))]
    out += ["enum { BITNET__PUNCTUATION_RUNS = %d };" % len(punctuation)]
    out += ["static const uint32_t bitnet__punctuation[BITNET__PUNCTUATION_RUNS] = {"]
    out += rows(punctuation, "0x%X") + ["};"]
    out += make_nfc(folder) + [END]
    return "\n".join(out) + "\n"


def load_canonical(folder):
    """(combining classes, canonical decompositions one step deep, what NFC never composes)."""
    classes, parts = {}, {}
    for line in read_lines(folder, "UnicodeData.txt"):
        fields = line.split(";")
        if len(fields) < 6:
            continue
        cp = int(fields[0], 16)
        if fields[3] != "0":
            classes[cp] = int(fields[3])
        if fields[5] and not fields[5].startswith("<"):
            parts[cp] = tuple(int(f, 16) for f in fields[5].split())
    excluded = set()
    for line in read_lines(folder, "CompositionExclusions.txt"):
        text = line.split("#")[0].strip()
        if text:
            excluded.add(int(text, 16))
    for cp, p in parts.items():             # singletons, and what begins with a mark
        if len(p) == 1 or cp in classes or p[0] in classes:
            excluded.add(cp)
        if len(p) > 2 or (len(p) == 2 and p[1] in parts):
            die(1, "U+%04X has a decomposition of another form" % cp)
    for cp in parts:
        depth = 0
        while cp in parts:
            cp, depth = parts[cp][0], depth + len(parts[cp]) - 1
        if depth > 3:
            die(1, "U+%04X decomposes to more than 4 code points" % cp)
    return classes, parts, excluded


def runs_of(points, longest):
    """[first, length] of the runs in a sorted list."""
    runs = []
    for c in points:
        if runs and c == runs[-1][0] + runs[-1][1] and runs[-1][1] < longest:
            runs[-1][1] += 1
        else:
            runs.append([c, 1])
    return runs


def table(kind, name, count, numbers, form):
    return ["static const %s bitnet__%s[%s] = {" % (kind, name, count)] + rows(numbers, form) + ["};"]


def make_nfc(folder):
    classes, parts, excluded = load_canonical(folder)
    composed = sorted(c for c in parts if c not in excluded)
    seconds = [0] + sorted(set(p[1] for p in parts.values() if len(p) == 2))
    hangul = list(range(0x1161, 0x1176)) + list(range(0x11A8, 0x11C3))
    moving = sorted(set(classes) | (set(parts) & excluded) | set(parts[c][1] for c in composed)
                    | set(hangul))
    if moving[0] < 0x300:
        die(1, "NFC changes U+%04X" % moving[0])
    unstable = [first << 11 | n for first, n in runs_of(moving, 2047)]
    marks = []
    for first, n in runs_of(sorted(classes), 1 << 20):
        start = first
        for c in range(first, first + n):   # cut where the class changes
            if c + 1 == first + n or classes[c + 1] != classes[c] or c - start == 6:
                marks.append(start << 11 | (c - start + 1) << 8 | classes[c])
                start = c + 1
    points = sorted(parts)
    seconds += [0x20000]
    entries = []
    for c in points:
        first, second = parts[c] if len(parts[c]) == 2 else (parts[c][0], parts[c][0] & 0x20000)
        entries.append((first, seconds.index(second)))
        if (first ^ second) >> 16 or len(seconds) > 256:
            die(1, "U+%04X has its first code point in another plane than its second" % c)
    runs, at, starts = runs_of(points, 1 << 20), 0, []
    for first, n in runs:
        starts.append(at)
        at += n
    order = sorted((points.index(c) for c in composed),
                   key=lambda i: entries[i])
    size = 4 * (len(unstable) + len(marks) + len(seconds) + len(runs))
    size += 3 * len(entries) + 2 * (len(starts) + 1 + len(order))
    out = ["/* %d bytes: NFC. Code points that are not stable, `first << 11 | length`. */" % size]
    out += ["enum {",
            "    BITNET__UNSTABLE_RUNS = %d, BITNET__MARK_RUNS = %d, BITNET__SECONDS = %d,"
            % (len(unstable), len(marks), len(seconds)),
            "    BITNET__FULL_RUNS = %d, BITNET__FULL_ENTRIES = %d, BITNET__COMPOSED = %d"
            % (len(runs), len(entries), len(order)), "};"]
    gap, first = max((b - a, a) for a, b in zip(moving, moving[1:]) if b < 0x10000)
    out[-2:] = ["%s," % out[-2],
                "    BITNET__STABLE_FROM = 0x%X, BITNET__STABLE_COUNT = %d     /* the longest run */"
                % (first + 1, gap - 1), "};"]
    out += table("uint32_t", "unstable", "BITNET__UNSTABLE_RUNS", unstable, "0x%X")
    out += ["/* Combining classes, `first << 11 | length << 8 | class`. */"]
    out += table("uint32_t", "marks", "BITNET__MARK_RUNS", marks, "0x%X")
    out += ["/* Canonical decompositions: of a run's code points, from entry start[run] on. */"]
    out += table("uint32_t", "full_first", "BITNET__FULL_RUNS", [r[0] for r in runs], "0x%X")
    out += table("uint16_t", "full_start", "BITNET__FULL_RUNS + 1", starts + [at], "%d")
    out += ["/* The lower 16 bits of an entry's first code point, and the place of its second one in",
            "   bitnet__seconds: see bitnet__full_entry. */"]
    out += table("uint16_t", "full_codes", "BITNET__FULL_ENTRIES", [e[0] & 0xFFFF for e in entries], "0x%X")
    out += table("uint8_t", "full_seconds", "BITNET__FULL_ENTRIES", [e[1] for e in entries], "%d")
    out += table("uint32_t", "seconds", "BITNET__SECONDS", seconds, "0x%X")
    out += ["/* The entries that NFC composes, sorted by first code point, then second. */"]
    out += table("uint16_t", "composed", "BITNET__COMPOSED", order, "%d")
    return out


def split_header(path):
    """Text before the block, the block, text after it."""
    try:
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
    except OSError as e:
        die(2, str(e))
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        die(1, "%s has no block between '%s' and '%s'" % (path, BEGIN, END))
    start, stop = text.index(BEGIN), text.index(END) + len(END) + 1
    return text[:start], text[start:stop], text[stop:]


def fnv1a64(data):
    h = 0xCBF29CE484222325
    for c in data:
        h = ((h ^ c) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def digest(classes, flags):
    """FNV-1a over one byte per code point, and how many code points each class has."""
    return "fnv1a64 0x%016x letters %d numbers %d spaces %d marks %d\nfnv1a64 0x%016x punctuation %d" % (
        fnv1a64(classes), classes.count(LETTER), classes.count(NUMBER), classes.count(SPACE),
        classes.count(MARK),
        fnv1a64(flags), flags.count(1))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", default="/usr/share/unicode", help="folder of UnicodeData.txt")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--write", metavar="HEADER", help="replace the block in this file")
    what.add_argument("--check", metavar="HEADER", help="fail if the block in this file differs")
    what.add_argument("--digest", action="store_true", help="print a checksum of the classes")
    args = p.parse_args()
    classes = load_classes(args.data)
    check_folding(args.data)
    flags = load_punctuation(args.data)
    block = make_block(classes, flags, args.data)
    if args.digest:
        print(digest(classes, flags))
    elif args.check:
        if split_header(args.check)[1] != block:
            die(1, "the tables in %s are not those of Unicode %s; run --write" % (args.check, VERSION))
        print("unicode_tables.py: %s agrees with Unicode %s" % (args.check, VERSION))
    elif args.write:
        before, _, after = split_header(args.write)
        with open(args.write, "w", encoding="utf-8", newline="") as f:
            f.write(before + block + after)
    else:
        sys.stdout.write(block)


if __name__ == "__main__":
    main()
