#!/usr/bin/env python3
"""Changes one instruction of the kernels at a time, and sees bitnet_selftest or examples/crosscheck
find each change.

  python3 tests/machines/planted.py [--seed N] [--count N | --all] [--only GLOB] [--verbose]
                                    [x86] [arm] [arm32] [wasm]

Without a machine's name all of them. Sites are drawn from the seed: `count` of each machine, or all
there are; --only those of functions with such names. A change is an addition into a subtraction, a
shift, a mask or a comparison into another, or another constant. Ends with "N passed, N failed, N
skipped".

The changes are made in the text after the preprocessor. There each function of each instruction set
stands by itself, in plain C. Assembly would compile faster, but what no result shows must be listed
with its reason (planted.txt), by a function's name and the text of the change; and assembly is
another text with each compiler. One compilation holds some hundred changes that do not overlap,
each as (planted != N ? old : new), and the program gets N. So a change costs part of a self-test.

A change that crashes, or runs too long, is found. One that does not compile does not count. The
conditions of if and ?: stay as they are: most choose between two ways to the same result."""
import argparse, bisect, fnmatch, os, random, re, shlex, shutil, subprocess, sys, time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = re.compile(r'''[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'
                       |<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S''', re.X)
OPERATORS = {'+': '-', '-': '+', '*': '+', '<<': '>>', '>>': '<<', '&': '|', '|': '&', '<': '>=',
             '>=': '<', '>': '<=', '<=': '>', '==': '!=', '!=': '==', '+=': '-=', '-=': '+=',
             '|=': '&=', '&=': '|=', '<<=': '>>=', '>>=': '<<='}
ASSIGNMENTS = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}
# Words of the names of intrinsics, and of helpers with such names. On ARM they begin with v, and
# end with q where the vector is a whole one.
WORDS = dict(pair.split(':') for pair in '''
    add:sub sub:add adds:subs subs:adds addl:subl addw:subw mul:add mull:addl mla:mls mlal:mlsl
    fma:fms fmadd:fmsub min:max max:min padd:pmax and:or or:and orr:and xor:or eor:orr andnot:and
    bic:and srli:slli slli:srli srl:sll srai:srli shr:shl shl:shr unpacklo:unpackhi
    unpackhi:unpacklo zip1:zip2 zip2:zip1 trn1:trn2 trn2:trn1 low:high high:low movehl:movelh
    cmpgt:cmpeq cmpeq:cmpgt cgt:cge cge:cgt gt:ge ge:gt lt:le le:lt packs:packus cvtepu8:cvtepi8
    cvtepi8:cvtepu8'''.split())
KEYWORDS = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'else', 'do', 'case', 'goto'}
APART = {'__attribute__', '__asm__', 'sizeof', '_Static_assert', '_mm_prefetch',
         '__builtin_prefetch', 'bitnet__make_ahead'}         # what they take is not changed
# What a change leaves without a value, or reads or writes outside an array, must be seen.
CFLAGS = '''-O1 -fno-tree-sra -ftrivial-auto-var-init=pattern -fsanitize=bounds
            -fsanitize-undefined-trap-on-error -w -I.'''.split()
BATCH = 100

Function = namedtuple('Function', 'name target first last')      # the tokens between its braces
Site = namedtuple('Site', 'function at new first last')          # tokens first to last stand twice
Equal = namedtuple('Equal', 'function change after')             # patterns of planted.txt
Machine = namedtuple('Machine', 'name compiler emulator exe link crosscheck')


# ---- the sites ----

class Text:
    """The library as the preprocessor leaves it: the tokens of its kernels, and their sites."""
    def __init__(self, text):
        # AVX2 looks sums up, even if this CPU would not: else nothing there could be found.
        text = re.sub(r'bitnet__multiplies_twice\(void\) {', r'\g<0> return 0;', text)
        self.text = re.sub(r'(?m)^# \d+ .*$', '', text)
        self.tok, self.pos, self.place = [], [], []
        kernels, at, path, line = kernel_lines(), 0, '', 0
        for source in text.split('\n'):
            marker = re.match(r'# (\d+) "([^"]*)"', source)
            if marker:
                path, line, source = os.path.basename(marker[2]), int(marker[1]) - 1, ''
            elif not source.startswith('#') and \
                    (path.startswith('bitnet_kernels') or path == 'bitnet.h' and line in kernels):
                for t in TOKEN.finditer(source):
                    self.tok.append(t[0])
                    self.pos.append(at + t.start())
                    self.place.append((path, line))
            at += len(source) + 1
            line += 1
        self.other, self.around, stack = {}, [], []            # brackets: the partner, those around
        for i, t in enumerate(self.tok):
            if t in ')]}':
                self.other[i] = stack.pop()
                self.other[self.other[i]] = i
            self.around.append(stack[-1] if stack else -1)
            if t in '([{': stack.append(i)
        self.known = set(re.findall(r'\b([A-Za-z_]\w*) ?\(', self.text))
        self.sites, self.twins = [], {}
        for f in self.functions():
            for s in self.sites_of(f):
                self.sites.append(s)
                self.twins.setdefault(self.source(s), []).append(s)

    def source(self, s):
        """Where in the headers a site is. Those of several instruction sets may be in one place."""
        first = s.at
        while first > s.function.first and self.place[first - 1] == self.place[s.at]: first -= 1
        return self.place[s.at], s.at - first

    def functions(self):
        i = begin = 0
        while i < len(self.tok):
            if self.tok[i] == ';': begin = i + 1
            elif self.tok[i] in '([': i = self.other[i]
            elif self.tok[i] == '{':
                end, name, target, at = self.other[i], '', '', begin
                while self.tok[i - 1] == ')' and at < i:
                    if self.tok[at] == '__attribute__':
                        words = self.tok[at + 1:self.other[at + 1]]
                        if 'target' in words:
                            target = ''.join(w[1:-1] for w in words if w[0] == '"')
                        at = self.other[at + 1]
                    elif self.tok[at + 1] == '(' and not name: name = self.tok[at]
                    at += 1
                if name.startswith('bitnet__'): yield Function(name, target, i + 1, end - 1)
                i, begin = end, end + 1 if name else begin
            i += 1

    def sites_of(self, f):
        apart = self.apart(f)
        for i in range(f.first, f.last + 1):
            new = None if i in apart else self.changed(i)
            span = new and not self.chooses(f, i) and self.span(f, i)
            if span: yield Site(f, i, new, *span)

    def apart(self, f):
        """Tokens that must be constants, or are no instructions."""
        out, i = set(), f.first
        while i <= f.last:
            t, end, begins = self.tok[i], i, self.tok[i - 1] in (';', '{', '}')
            if t in APART and self.tok[i + 1] == '(': end = self.other[i + 1]
            elif begins and t in ('static', 'typedef', 'enum', 'struct'):
                while self.tok[end] != ';': end = self.other.get(end, end) + 1
            elif t == 'case':
                while self.tok[end] != ':': end += 1
            elif begins and re.match(r'\w', t) and t not in KEYWORDS: out |= self.sizes(i)
            out.update(range(i, end + 1) if end > i else [])
            i = end + 1
        return out

    def sizes(self, i):
        """The sizes of arrays, if there is a declaration at i."""
        out, value, t = set(), False, self.tok
        if not (re.match('[A-Za-z_]', t[i + 1]) or t[i + 1] == '*' and self.glued(i + 1) or
                t[i + 1] == '(' and t[i + 2] == '*' and t[self.other[i + 1] + 1] == '['): return out
        while t[i] != ';':
            if t[i] in '=,': value = t[i] == '='
            elif t[i] in '([{':
                if not value: out.update(range(i, self.other[i] + 1))
                i = self.other[i]
            i += 1
        return out

    def glued(self, i):
        """Has it no space before or after it? So are operators that take one operand."""
        end = self.pos[i] + len(self.tok[i])
        return not (self.text[self.pos[i] - 1].isspace() and self.text[end].isspace())

    def chooses(self, f, i):
        """Is it in the condition of an if or ?:"""
        while i >= f.first and self.tok[i] != '{':
            at = i
            while self.tok[at] not in (';', ',', ':', '?', ')', ']', '}'):
                at = (self.other[at] if self.tok[at] in '([{' else at) + 1
            if self.tok[at] == '?': return True
            i = self.around[i]
            if self.tok[i - 1] == 'if': return True
        return False

    def changed(self, i):
        """What token i becomes. None: it stays."""
        t = self.tok[i]
        if t in OPERATORS: return None if self.glued(i) else OPERATORS[t]
        if t[0].isdigit(): return constant(t)
        if self.tok[i + 1] == '(' and re.match(r'_mm|v[a-z]+\d?q?_|wasm_|bitnet__', t):
            words = t.split('_')
            for n, word in enumerate(words):
                v, core, q = re.match(r'(v?)(\w*?)(q?)$', word).groups()
                new = '_'.join(words[:n] + [v + WORDS.get(core, '?') + q] + words[n + 1:])
                if new in self.known: return new
        return None

    def span(self, f, i):
        """The innermost call around token i, since its arguments may have to be constants; without
        a call, the expression. None: there is no such thing."""
        t = self.tok
        at = i + 1 if t[i + 1] == '(' and re.match('[A-Za-z_]', t[i]) else self.around[i]
        while at >= f.first and t[at] != '{' and t[at - 1] not in KEYWORDS:
            if t[at] == '(' and re.match('[A-Za-z_]', t[at - 1]):
                return None if t[at - 2] in ('.', '->') else (at - 1, self.other[at])
            at = self.around[at]
        assigns, first, last = t[i] in ASSIGNMENTS, i, i
        while True:
            before = t[first - 1]
            if before in (';', '{', '}', ',', '(', '[', 'return', 'else', 'do') or \
                    not assigns and (before in ASSIGNMENTS or before in '?:'): break
            if before in ')]':
                if t[self.other[first - 1] - 1] in KEYWORDS: break
                first = self.other[first - 1]
            else: first -= 1
        while True:
            after = t[last + 1]
            if after in (';', ',', ')', ']', '}') or not assigns and after in '?:': break
            if after in ASSIGNMENTS: return None
            last = self.other[last + 1] if after in '([{' else last + 1
        return first, last

    def describe(self, s):
        name = re.match('[A-Za-z_]', self.tok[s.at])
        return f'{self.tok[s.at] if name else " ".join(self.tok[s.at - 2:s.at + 3])} -> {s.new}'

    def after(self, s):
        return ' '.join(self.tok[s.at + 1:s.at + 49])

    def plant(self, sites):
        """The text with all of these, which do not overlap; and the first line of each."""
        pieces, out, at, lines = [], [], 0, {}
        for n, s in enumerate(sites, 1):
            old = self.tok[s.first:s.last + 1]
            new = old[:s.at - s.first] + [s.new] + old[s.at - s.first + 1:]
            pieces.append((s.first, 0, s.last, n, f'((planted_hit[{n}] = 1, planted != {n})\n'
                           f'? ({" ".join(old)})\n: ({" ".join(new)})\n)'))
            for t in self.twins[self.source(s)]:
                old = ' '.join(self.tok[t.first:t.last + 1])
                if all(t.last < other.first or other.last < t.first for other in sites):
                    pieces.append((t.first, 1, t.last, n, f'(planted_twin[{n}] = 1, ({old}))'))
        line = 2
        for first, twin, last, n, piece in sorted(pieces):
            begin = self.pos[first]
            if begin < at: continue                  # a twin within another one
            line += self.text.count('\n', at, begin)
            if not twin: lines[line] = n - 1
            out += [self.text[at:begin], piece]
            line += piece.count('\n')
            at = self.pos[last] + len(self.tok[last])
        count = len(sites)
        return f'int planted; const int planted_count = {count}; unsigned char ' \
               f'planted_hit[{count + 1}], planted_twin[{count + 1}];\n' + ''.join(out) + \
               self.text[at:], lines


def constant(t):
    """Another number of the same type. None: there is none."""
    digits, suffix = re.fullmatch(r'(0x[0-9a-f]+|[\d.]+(?:e[+-]?\d+)?)([ulf]*)', t, re.I).groups()
    if digits[:2] in ('0x', '0X'):                   # without its lowest bit, if it has more
        n = int(digits, 16)
        return hex(n & (n - 1) if n & (n - 1) else n ^ 3) + suffix
    if digits.isdigit(): return str(int(digits) + (-1 if int(digits) > 1 else 1)) + suffix
    return f'{t} * 1.001{suffix}' if float(digits) else '1.0' + suffix


def kernel_lines():
    """The lines of section @kernels of bitnet.h."""
    lines = open('bitnet.h', encoding='utf-8').read().split('\n')
    heads = [n for n, l in enumerate(lines, 1)
             if re.match(r'   @\w+  ', l) and lines[n - 2].startswith('/* ====')] + [len(lines)]
    begin = next(n for n in heads if lines[n - 1].startswith('   @kernels '))
    return range(begin, heads[heads.index(begin) + 1])


# ---- the trials ----

def machines():
    cc, run = (shlex.split(os.environ.get(*v)) for v in (('CC', 'cc'), ('RUN', '')))
    relaxed = os.environ.get('EMCC_RELAXED')
    emcc = shlex.split(relaxed or os.environ.get('EMCC', 'emcc')) + ['-msimd128']
    node = ['node']
    for option in '--no-experimental-fetch', '--experimental-wasm-relaxed-simd':
        if shutil.which('node') and not subprocess.run(node + [option, '-e', '0'],
                                                       capture_output=True).returncode:
            node.append(option)
    os.environ.setdefault('NODE_PATH', '/usr/share/nodejs')
    yield Machine('x86', cc, run, '', ['-lpthread'], True)
    for name, compiler, emulator in (('arm', 'aarch64-linux-gnu-gcc', 'qemu-aarch64'),
                                     ('arm32', 'arm-linux-gnueabihf-gcc', 'qemu-arm')):
        yield Machine(name, [compiler], [emulator, '-cpu', 'max'], '', ['-static', '-lpthread'],
                      True)
    yield Machine('wasm', emcc + ['-mrelaxed-simd'] * bool(relaxed), node, '.js',
                  ['-sEXIT_RUNTIME=1', '-sTOTAL_STACK=1MB'], False)


class Trial:
    """The changes of one machine."""
    def __init__(self, machine, options, equal):
        self.m, self.options, self.equal, self.how = machine, options, equal, Counter()
        self.fitted = set()
        self.dir = f'build/planted/{machine.name}'
        self.program = machine.emulator + [f'{self.dir}/planted{machine.exe}']

    def run(self):
        for tool in self.m.compiler[:1] + self.m.emulator[:1]:
            if not shutil.which(tool):
                print(f'skip {self.m.name}: {tool} is not installed')
                return
        self.flags = [f for f in CFLAGS if not subprocess.run(       # those that it knows
            self.m.compiler + [f, '-E', '-'], input=b'', capture_output=True).returncode]
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        with open(f'{self.dir}/library.c', 'w') as f:
            f.write('#define BITNET_IMPLEMENTATION\n#include "bitnet.h"\n')
        self.compiler('-E', f'{self.dir}/library.c', '-o', f'{self.dir}/library.i')
        self.text = Text(open(f'{self.dir}/library.i', encoding='utf-8').read())
        sites = self.draw()
        self.compile_programs()
        while sites:
            batch, rest, end = [], [], -1
            for s in sorted(sites[:BATCH], key=lambda s: (s.first, s.last)):
                (batch if s.first > end else rest).append(s)
                end = max(end, s.last)
            sites = rest + sites[BATCH:]
            self.batch(batch)
        for how, n in sorted(self.how.items()): print(f'{self.m.name}: {n} {how}')

    def draw(self):
        sites = self.text.sites[:]
        random.Random(self.options.seed).shuffle(sites)
        sites = [s for s in sites if not self.is_equal(s)]
        print(f'{self.m.name}: {len(sites)} changes, and {len(self.text.sites) - len(sites)} equal '
              f'ones; seed {self.options.seed}', flush=True)
        sites = [s for s in sites if fnmatch.fnmatch(s.function.name, self.options.only)]
        drawn = sites[:None if self.options.all else self.options.count]
        flags = cpu_flags() if self.m.name == 'x86' and not self.m.emulator else None
        can = [s for s in drawn if flags is None or not s.function.target or
               all(re.sub('[-_]', '', t) in flags for t in s.function.target.split(','))]
        if len(can) < len(drawn):
            print(f'skip {self.m.name}: {len(drawn) - len(can)} where this CPU lacks instructions')
            self.how['skipped'] += len(drawn) - len(can)
        return can

    def is_equal(self, s):
        """Is it listed? Counts the entries that fit it."""
        fits = [e for e in self.equal if fnmatch.fnmatchcase(s.function.name, e.function) and
                fnmatch.fnmatchcase(self.text.describe(s), e.change) and
                fnmatch.fnmatchcase(self.text.after(s), e.after)]
        self.fitted.update(fits)
        return bool(fits)

    def compiler(self, *arguments, may_fail=False):
        command = self.m.compiler + self.flags + list(arguments)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode and not may_fail:
            sys.exit(f'FAIL {shlex.join(command)}\n{done.stderr[-3000:]}')
        return done

    def compile_programs(self):
        folder = 'examples/crosscheck'
        files = [f'{folder}/{f}' for f in sorted(os.listdir(folder)) if f.endswith('.c')]
        self.objects = []
        for f in [f'{HERE}/planted.c'] + files * self.m.crosscheck:
            self.objects.append(f'{self.dir}/{os.path.basename(f)}.o')
            main = ['-Dmain=crosscheck_main'] if f == f'{folder}/crosscheck.c' else []
            self.compiler('-DBITNET__IMPLEMENTED', *['-DCROSSCHECK'] * self.m.crosscheck, *main,
                          '-c', f, '-o', self.objects[-1])

    def batch(self, sites):
        sites = self.compile(sites)
        begin = time.time()
        done = subprocess.run(self.program + ['0'], stdout=subprocess.PIPE, text=True)
        if done.returncode: sys.exit(f'FAIL {self.m.name}: without a fault\n{done.stdout}')
        self.limit = 10 + 10 * (time.time() - begin)
        tables, twins = {}, set()
        for kind, name, *numbers in (l.split() for l in done.stdout.splitlines()):
            for n in map(int, numbers):
                if kind == 'table': tables.setdefault(n, []).append(name)
                else: twins.add(n)
        self.report = self.crosscheck(0) if self.m.crosscheck else None
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda n: self.found(n, tables.get(n, [])),
                                  range(1, len(sites) + 1)))
        for n, (s, how) in enumerate(zip(sites, found), 1):
            if not how and n not in tables:
                how = 'skipped' if n in twins else ''      # the compiler leaves it out here
            self.how[how or 'not found'] += 1
            if not how:
                self.note('FAIL ', s, ('not found' if n in tables else 'never reached') +
                          f' @ {self.text.after(s)[:60]}')
            elif self.options.verbose: self.note('', s, how)

    def note(self, verdict, s, how):
        path, line = self.text.place[s.at]
        print(f'{verdict}{self.m.name}, {path}:{line}, {s.function.name}: {self.text.describe(s)}: '
              f'{how}', flush=True)

    def compile(self, sites):
        """Compiles the library with those that do compile, and returns these."""
        path, step = f'{self.dir}/planted.i', ['-fsyntax-only']
        while True:
            text, lines = self.text.plant(sites)
            with open(path, 'w', encoding='utf-8') as f: f.write(text)
            done = self.compiler(*step, path, may_fail=True)
            if done.returncode:
                bad = self.blamed(done.stderr, lines, sites)
                if not bad: sys.exit(f'FAIL {self.m.name}: cannot compile\n{done.stderr[-3000:]}')
                self.how['do not compile'] += len(bad)
                sites = [s for n, s in enumerate(sites) if n not in bad]
            elif step[0] == '-c': break
            else: step = ['-c', '-o', f'{self.dir}/library.o']
        self.compiler(f'{self.dir}/library.o', *self.objects, '-o', self.program[-1], *self.m.link)
        return sites

    def blamed(self, messages, lines, sites):
        """The sites that a compiler's messages name first; else those of the functions that they
        name; else all constants, since the assembler names nothing."""
        bad, begins = set(), sorted(lines)
        for message in re.split(r'\n(?=In function|\S+: error:)', messages):
            for line in map(int, re.findall(r'planted\.i:(\d+)', message)):
                begin = begins[bisect.bisect_right(begins, line) - 1]
                if 'error:' in message and begin <= line <= begin + 3:
                    bad.add(lines[begin])
                    break
        names = set(re.findall(r'[‘\'](bitnet__\w+)[’\']', messages))
        bad = bad or {n for n, s in enumerate(sites) if s.function.name in names}
        return bad or {n for n, s in enumerate(sites) if s.new[0].isdigit()}

    def found(self, n, tables):
        """By what it is found; '': not at all."""
        try:
            done = subprocess.run(self.program + [str(n)] + tables, timeout=self.limit,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if done.returncode == 1: return 'found by the self-test'
            if done.returncode: return 'found by a crash'
            different = self.report and self.crosscheck(n, timeout=self.limit) != self.report
            return 'found by crosscheck' if different else ''
        except subprocess.TimeoutExpired: return 'found by taking too long'

    def crosscheck(self, n, timeout=None):
        done = subprocess.run(self.program + [str(n), 'crosscheck'], timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.returncode, done.stdout


def entry(line):
    function, change = (part.strip() for part in line.split(' | ')[:2])
    change, _, after = change.partition(' @ ')
    return Equal(function, change, after or '*')


def cpu_flags():
    found = re.search(r'(?m)^flags\s*:(.*)$', open('/proc/cpuinfo').read())
    return {re.sub('[-_]', '', f) for f in found[1].split()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--count', type=int, default=60)
    p.add_argument('--all', action='store_true')
    p.add_argument('--only', default='*')
    p.add_argument('--verbose', action='store_true')
    p.add_argument('machine', nargs='*')
    options, how = p.parse_args(), Counter()
    listed = open(f'{HERE}/planted.txt', encoding='utf-8').read().splitlines()
    equal = [entry(l) for l in listed if l and l[0] != '#']
    unused = set(equal)
    for m in machines():
        if not options.machine or m.name in options.machine:
            trial = Trial(m, options, equal)
            trial.run()
            how += trial.how
            unused -= trial.fitted
    for e in sorted(unused) if options.verbose else []: print('fits nothing here:', *e)
    passed = sum(n for kind, n in how.items() if kind.startswith('found'))
    print(f'{passed} passed, {how["not found"]} failed, {how["skipped"]} skipped')
    sys.exit(how['not found'] != 0)


main()
