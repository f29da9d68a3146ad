#!/usr/bin/env python3
"""The innermost loops of the kernels, as compilers make them at -O2.

    inner_loops.py check COMPILER prints each loop that keeps a vector in memory (it stores the vector
                                to the stack and loads it again), and, where llvm-mca-19 is
                                installed, each loop for prompts that takes over 15 % more cycles
                                than its bound
    inner_loops.py table COMPILER...
                                prints for the loops for prompts what llvm-mca-19 expects of CPUs:
                                cycles an iteration, the bound of ports and width, and the bound
    inner_loops.py embed COMPILER
                                prints what llvm-mca-19 expects of ARM CPUs that read a text with
                                the embedding model of 0.6B: cycles of each part of the work

COMPILER may have flags, such as "clang --target=aarch64-linux-gnu". A vector that a loop only loads
from the stack is a constant, and no slower than one from elsewhere in memory. Run from the
repository's root."""
import re
import shutil
import subprocess
import sys

SOURCE = '''
#define BITNET_TL2
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
const bitnet_kernels *find(const char *name);
const bitnet_kernels *find(const char *name) { return bitnet_kernels_find(name); }
'''

# Functions whose innermost loops may spill, how many vectors, and why.
ALLOWED = {
    # 16 dots of 2 vectors each in 16 registers. 2 x 2 of them need no spills and are 8 to 24 %
    # slower on Zen 3, for they read twice as much from the L2 cache.
    'bitnet__dotrows_f32_avx2': 31,
    'bitnet__tile_dots4_avx2': 31,
    # gcc 12: 2 of 12 sums, with 2 vectors of weights, 2 masks and 1 of bytes, in 16 registers.
    'bitnet__tiles_i2s_avxvnni': 2,
    # clang makes codes ahead of their turn; a statement against that costs more than the spills do.
    'bitnet__tiles_tl2_avx2': 6,
    # clang: 4 sums, 12 constants and 4 times what bitnet__expf needs, in 32 registers.
    'bitnet__softmax_neon': 1,
    # Once, when a model is loaded.
    'bitnet__pack_tl2_avx2': 4,
}

# How a target's instructions are recognized. stack: a place at a fixed distance in the frame.
# store: what a line that stores there looks like.
X86 = {
    'branch': r'j\w+\s+(\.L\w+)', 'end': r'(jmp|ret\w*)\b', 'vector': r'%[xyz]mm',
    'stack': r'-?\d*\(%r[sb]p\)', 'store': r'.*\)$', 'frame': r'movq\s+%rsp, %rbp',
}
ARM = {
    'branch': r'(?:b(?:\.?[a-z][a-z])?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\d+,)\s+(\.L\w+)',
    'end': r'(b|br|ret)\b(?!\.)', 'vector': r'\b[qdv]\d',
    'stack': r'\[(?:sp|x29)(?:, #?-?\d+)?\]', 'store': r'st', 'frame': r'',
}

# What multiplies weights in the loops that read prompts, and the CPUs to look at, with the
# instructions that the model of one lacks.
WORK = r'(\{vex\} *)?(vpmaddubsw|vpdpbusd|smlal2?|sdot|smmla)\b'
ARMS = ['cortex-a53', 'cortex-a76', 'neoverse-n1', 'apple-m1']
PROMPTS = {
    'bitnet__multiply_avx2': ['znver2', 'znver3', 'znver4', 'icelake-server'],
    'bitnet__multiply_avxvnni': ['alderlake'],
    'bitnet__multiply_avx512vnni': ['znver4', 'icelake-server'],
    'bitnet__panels_neon': ARMS,
    'bitnet__panels_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__panels_i8mm': ['neoverse-n2', 'neoverse-v1'],
    'bitnet__dotrows_groups_neon': ARMS,
    'bitnet__dotrows_groups_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__dotrows_groups_i8mm': ['neoverse-n2', 'neoverse-v1'],
}
# For information: CPUs on which nothing hides a latency, and the model of Zen 4, where a broadcast
# takes the ports of vpdpbusd.
NOT_CHECKED = [('bitnet__panels_neon', 'cortex-a53'), ('bitnet__panels_dotprod', 'cortex-a55'),
               ('bitnet__dotrows_groups_neon', 'cortex-a53'),
               ('bitnet__dotrows_groups_dotprod', 'cortex-a55'),
               ('bitnet__multiply_avx512vnni', 'znver4')]

# The embedding model of 0.6B: layers, elements of a hidden state, of the FFN, of the queries, of
# the keys or values, and of a head.
LAYERS, DIM, FFN, Q, KV, HEAD = 28, 1024, 3072, 2048, 1024, 128
NORMS = LAYERS * (7 * DIM + FFN + 2 * Q + KV)  # before 7 linear layers, attention and FFN; of heads
INPUTS, OUTPUTS = LAYERS * (5 * DIM + FFN + Q), LAYERS * (2 * DIM + Q + 2 * KV)  # not the gate's
SCORES = LAYERS * Q // HEAD                    # a position that a token sees
# The loops that do most of its work: part, function, vector instructions by which to know the loop
# (of several the one that loads least), items of an iteration, items a token, or a token and
# position. Of panels an item is a product.
TERNARY = LAYERS * (DIM * (2 * Q + 2 * KV) + 3 * DIM * FFN)
PANELS = {'bitnet__panels_neon': 256, 'bitnet__panels_dotprod': 1024, 'bitnet__panels_i8mm': 1024}
PARTS = [
    ('attention', 'scores_f16', {'fmla': 16, 'fcvtl': 0}, 64, SCORES * HEAD),
    ('attention', 'sumrows_f16', {'fmla': 16, 'fcvtl': 0}, 64, SCORES * HEAD),
    ('attention', 'softmax', {'fmaxnm': 1, 'fadd': 0}, 4, SCORES),
    ('attention', 'softmax', {'fmaxnm': 4}, 16, SCORES),
    ('attention', 'softmax', {'fmul': 2, 'fsub': 2, 'fmaxnm': 0}, 4, SCORES),
    ('gate', 'sigmoid_gate', {'fdiv': 1}, 4, LAYERS * FFN),
    ('norms', 'rmsnorm', {'fmul': 4, 'fadd': 4}, 16, NORMS),
    ('norms', 'rmsnorm', {'fmul': 2, 'fadd': 0}, 4, NORMS),
    ('others', 'quantize', {'fabs': 1}, 4, INPUTS),
    ('others', 'quantize', {'fcvtns': 4}, 16, INPUTS),
    ('others', 'dequantize', {'scvtf': 1}, 4, OUTPUTS),
    ('others', 'rope', {'fmul': 6}, 8, LAYERS * (Q + KV)),
    ('others', 'store_f16', {'fcvtn': 1}, 8, LAYERS * 2 * KV),
]
SEEN = [128, 512, 4096]                        # tokens of a text
BLOCK = 16                                     # tokens that see the positions up to the last one's


def compiled(compiler):
    """(target, assembly)"""
    command = compiler.split()
    flags = ['-O2', '-std=c99', '-w', '-I.', '-x', 'c', '-S', '-', '-o', '-']
    text = subprocess.run(command + flags, input=SOURCE, stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout
    return (ARM if re.search(r'(?m)^\s+stp\s', text) else X86), text


def functions(text):
    """(name, lines): labels and instructions of each function."""
    name, lines = '', []
    for line in text.splitlines():
        start = re.match(r'(bitnet__\w+)[\w.]*:', line)
        if start:
            name, lines = start.group(1), []
        elif re.match(r'\s*\.size\s', line):
            if name and not name.endswith('_scalar'):
                yield name, lines
            name = ''
        else:
            line = re.sub(r'\s*(# |//|\t#).*', '', line).strip()
            if re.match(r'\.L\w+:|[a-z{]', line):
                lines.append(line)


def innermost(lines, target):
    """The natural loops with no other in them: lists of instructions."""
    blocks, labels = [[]], {}
    for line in lines:
        if line.startswith('.'):
            if blocks[-1]:
                blocks.append([])
            labels[line.rstrip(':')] = len(blocks) - 1
        else:
            blocks[-1].append(line)
            if re.match(target['branch'], line) or re.match(target['end'], line):
                blocks.append([])
    before = [[] for _ in blocks]              # the blocks from which one is reached
    for i, block in enumerate(blocks):
        last = block[-1] if block else ''
        branch = re.match(target['branch'], last)
        if branch and branch.group(1) in labels:
            before[labels[branch.group(1)]].append(i)
        if not re.match(target['end'], last) and i + 1 < len(blocks):
            before[i + 1].append(i)
    every = (1 << len(blocks)) - 1
    on_way = [1] + [every] * (len(blocks) - 1)     # bits: the blocks on each way from the start
    changed = True
    while changed:
        changed = False
        for i in range(1, len(blocks)):
            bits = every
            for j in before[i]:
                bits &= on_way[j]
            bits |= 1 << i
            changed |= bits != on_way[i]
            on_way[i] = bits
    loops = {}                                 # by the block where they begin
    for head, sources in enumerate(before):
        for source in sources:
            if on_way[source] >> head & 1 and on_way[source] != every:
                body, work = loops.setdefault(head, {head}), [source]
                while work:
                    i = work.pop()
                    if i not in body:
                        body.add(i)
                        work += before[i]
    for head, body in loops.items():
        if not any(other in body for other in loops if other != head):
            yield [line for i in sorted(body) for line in blocks[i]]


def spilled(loop, target, frame):
    """The places of the stack that a loop stores vectors to and loads them from."""
    stored, loaded = set(), set()
    for line in loop:
        place = re.search(target['stack'], line)
        if place and re.search(target['vector'], line) and (frame or '%rbp' not in line):
            (stored if re.match(target['store'], line) else loaded).add(place.group(0))
    return stored & loaded


def simulated(loop, target, cpu, apart=0):
    """(cycles an iteration, bound of ports and width) by llvm-mca. A load waits for the stores
    before it, unless all are apart: 1."""
    triple, more = (('aarch64-linux-gnu', '+dotprod,+i8mm') if target is ARM else
                    ('x86_64-linux-gnu', '+avxvnni,+avx512vl,+avx512bw'))
    times = 300
    run = subprocess.run(['llvm-mca-19', '-mtriple=' + triple, '-mcpu=' + cpu, '-mattr=' + more,
                          '-iterations=%d' % times, '-noalias=%d' % apart,
                          '-instruction-info=0', '-resource-pressure=0'],
                         input='\n'.join(loop), stdout=subprocess.PIPE, check=True,
                         universal_newlines=True)
    cycles = re.search(r'Total Cycles:\s+(\d+)', run.stdout)
    ports = re.search(r'Block RThroughput:\s+([\d.]+)', run.stdout)
    return int(cycles.group(1)) / times, float(ports.group(1))


def unchained(loop, target):
    """A loop of AVX2 whose additions do not wait for those of the step before."""
    return [re.sub(r'^(vpaddw.*, )%ymm\d+$', r'\1%ymm31', line) for line in loop
            if not (re.search(target['stack'], line) and re.match(target['store'], line))]


def bounds(name, loop, target):
    """(CPU, cycles, bound of ports and width, bound). llvm-mca gives additions ports that
    multiplications need, of which its bound takes no account; so the bound is what it expects of
    the loop without its chain, if that is more."""
    for cpu in PROMPTS[name]:
        cycles, ports = simulated(loop, target, cpu)
        bound = ports
        if any(line.startswith('vpaddw') for line in loop):
            bound = max(ports, simulated(unchained(loop, target), target, cpu)[0])
        yield cpu, cycles, ports, bound


def multiplications(loop):
    return sum(bool(re.match(WORK, line)) for line in loop)


def check(compiler):
    target, text = compiled(compiler)
    loops = []
    for name, lines in functions(text):
        frame = any(re.match(target['frame'], line) for line in lines)
        own = list(innermost(lines, target))
        loops += own
        for loop in own:
            n = len(spilled(loop, target, frame))
            if n > ALLOWED.get(name, 0):
                print('%s: %s: a loop of %d instructions keeps %d vectors in memory' %
                      (compiler, name, len(loop), n))
        if name in PROMPTS and shutil.which('llvm-mca-19'):
            loop = max(own, key=multiplications)
            for cpu, cycles, ports, bound in bounds(name, loop, target):
                if cycles > 1.15 * bound and (name, cpu) not in NOT_CHECKED:
                    print('%s: %s: on %s an iteration takes %.1f cycles, not %.1f' %
                          (compiler, name, cpu, cycles, bound))
    if sum(map(bool, map(multiplications, loops))) < 10:
        print('%s: of %d loops, too few multiply weights' % (compiler, len(loops)))


def table(compilers):
    print('%-30s %-15s %12s %7s %6s %6s' %
          ('loop', 'CPU', 'instructions', 'cycles', 'ports', 'bound'))
    for compiler in compilers:
        print(compiler)
        target, text = compiled(compiler)
        for name, lines in functions(text):
            if name in PROMPTS:
                loop = max(innermost(lines, target), key=multiplications)
                for row in bounds(name, loop, target):
                    print('%-30s %-15s %12d %7.1f %6.1f %6.1f' %
                          ((name, row[0], len(loop)) + row[1:]))


def loop_with(loops, wanted):
    """The one of these loops with so many of some vector instructions; see PARTS."""
    def count(loop, name):
        return sum(bool(re.match(name + r'\s+v', line)) for line in loop)

    def loaded(loop):
        return sum(len(re.findall(r'\bq\d+', line)) for line in loop if line.startswith('ld'))
    return min((loop for loop in loops if all(count(loop, i) == n for i, n in wanted.items())),
               key=loaded)


def parts_of(loops, panels, target, cpu):
    """{part: [cycles a token, bound of ports and width]}; of attention, a token and position."""
    loop = max(loops[panels], key=multiplications)
    costs = {'ternary': [x * TERNARY / PANELS[panels] for x in simulated(loop, target, cpu)]}
    for part, name, wanted, items, times in PARTS:
        loop = loop_with(loops['bitnet__%s_neon' % name], wanted)
        cost = costs.setdefault(part, [0, 0])
        for i, x in enumerate(simulated(loop, target, cpu, 1)):
            cost[i] += x * times / items
    return costs


def embed(compiler):
    print('Million cycles a token (share of the bound of ports and width), attention in texts of')
    print('%d, %d, %d tokens; of sigmoid_gate and rmsnorm cycles for 16 elements' % tuple(SEEN))
    print('%-23s %-12s' % ('panels', 'CPU') + '%13s' * 7 % (
        'ternary', 'gate', 'norms', 'others', *SEEN) + '%13s%8s' % ('sigmoid_gate', 'rmsnorm'))
    target, text = compiled(compiler)
    loops = {name: list(innermost(lines, target)) for name, lines in functions(text)}
    for panels in PANELS:
        for cpu in PROMPTS[panels]:
            if cpu in ('cortex-a53', 'cortex-a55'):
                continue                       # nothing hides a latency
            costs = parts_of(loops, panels, target, cpu)
            attention = costs.pop('attention')
            rows = list(costs.values()) + [[x * (n + BLOCK) / 2 for x in attention] for n in SEEN]
            print('%-23s %-12s' % (panels, cpu) +
                  ''.join('%7.2f (%3.0f%%)' % (x / 1e6, 100 * y / x) for x, y in rows) +
                  '%13.1f%8.1f' % (costs['gate'][0] / (LAYERS * FFN) * 16,
                                   costs['norms'][0] / NORMS * 16))


if len(sys.argv) == 3 and sys.argv[1] == 'check':
    check(sys.argv[2])
elif len(sys.argv) >= 3 and sys.argv[1] == 'table':
    table(sys.argv[2:])
elif len(sys.argv) == 3 and sys.argv[1] == 'embed':
    embed(sys.argv[2])
else:
    sys.exit(__doc__)
