#!/usr/bin/env python3
"""The innermost loops of the kernels, as compilers make them at -O2.

    inner_loops.py check COMPILER prints each loop that keeps a vector in memory (it stores the vector
                                to the stack and loads it again), and, where llvm-mca-19 is
                                installed, each loop for prompts that takes over 15 % more cycles
                                than its bound
    inner_loops.py table COMPILER...
                                prints for the loops for prompts what llvm-mca-19 expects of CPUs:
                                cycles an iteration, the bound of ports and width, the bound, and
                                the share of the peak: of the multiplications alone
    inner_loops.py embed COMPILER
                                prints what llvm-mca-19 expects of ARM CPUs that read a text with
                                the embedding model of 0.6B: cycles of each part of the work
    inner_loops.py text COMPILER
                                prints the same of reading and writing with BitNet b1.58-2B-4T, and
                                from it and the published bandwidth of some machines the tokens a
                                second that build/bench would measure there at best

COMPILER may have flags, such as "clang --target=aarch64-linux-gnu". A vector that a loop only loads
from the stack is a constant, and no slower than one from elsewhere in memory. Run from the
repository's root."""
import functools
import re
import shutil
import subprocess
import sys

SOURCE = '''
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
const bitnet_kernels *find(const char *name);
const bitnet_kernels *find(const char *name) { return bitnet_kernels_find(name); }
'''

# Functions whose innermost loops may spill, how many vectors, and why. Loops that call a function are
# not looked at: they copy structs for it.
ALLOWED = {
    # 16 dots of 2 vectors each in 16 registers. 2 x 2 of them need no spills and are 8 to 24 %
    # slower on Zen 3, for they read twice as much from the L2 cache.
    'bitnet__dotrows_f32_avx2': 31,
    'bitnet__tile_dots4_avx2': 31,
    # clang makes codes ahead of their turn; a statement against that costs more than the spills do.
    'bitnet__tiles_tl2_avx2': 6,
    # 4 sums, 12 constants and 4 times what bitnet__expf needs, in 32 registers.
    'bitnet__softmax_neon': 2,
    # Once for 64 positions: a pointer to 4 vectors keeps them in memory.
    'bitnet__weigh_i8_avx512vnni': 4,
    # Once, when a model is loaded.
    'bitnet__pack_tl2_avx2': 4,
    # One of 100 to 160 instructions; AMX's is a vector of codes that is read twice.
    'bitnet__transpose_keys_avx2': 1,
    'bitnet__dotrows_groups_avxvnni': 1,
    'bitnet__panels_tl2_amx': 1,
    # Two of 16 sums: through memory they take no longer than the loop's 32 operations.
    'bitnet__delta_rule_neon': 2,
}

# A unit of blocks as they lie in a file is a loop of 200 to 900 instructions: spills are few of them.
UNITS = r'bitnet__(run|rest)_\d+_\d_\w+'


def allowed(name):
    return 40 if re.fullmatch(UNITS, name) else ALLOWED.get(name, 0)


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
WORK = r'(\{vex\}\s*)?(vpmaddubsw|vpdpbusd|smlal2?|sdot|u?smmla)\b'
ARMS = ['cortex-a53', 'cortex-a76', 'neoverse-n1', 'apple-m1']
PROMPTS = {
    'bitnet__multiply_avx2': ['haswell', 'skylake', 'icelake-server', 'znver2', 'znver3', 'znver4'],
    'bitnet__multiply_avxvnni': ['alderlake'],
    'bitnet__multiply_group_apart_avxvnni': ['alderlake'],
    'bitnet__multiply_avx512vnni': ['znver4', 'icelake-server'],
    'bitnet__dotrows_groups_avx2': ['haswell', 'skylake', 'icelake-server', 'znver2', 'znver3',
                                    'znver4'],
    'bitnet__panels_neon': ARMS,
    'bitnet__panels_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__panels_i8mm': ['neoverse-n2', 'neoverse-v1'],
    'bitnet__dotrows_groups_neon': ARMS,
    'bitnet__dotrows_groups_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__dotrows_groups_i8mm': ['neoverse-n2', 'neoverse-v1'],
    'bitnet__scores_i8_neon': ARMS,
    'bitnet__scores_i8_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__scores_i8_i8mm': ['neoverse-n2', 'neoverse-v1'],
    'bitnet__sumrows_i8_neon': ARMS,
    'bitnet__sumrows_i8_dotprod': ['cortex-a55', 'cortex-a76', 'neoverse-n1', 'apple-m1'],
    'bitnet__sumrows_i8_i8mm': ['neoverse-n2', 'neoverse-v1'],
}
# For information: CPUs on which nothing hides a latency; the model of Zen 4, where a broadcast takes
# the ports of vpdpbusd; and a loop that clang makes 15 % longer than gcc.
NOT_CHECKED = [('bitnet__panels_neon', 'cortex-a53'), ('bitnet__panels_dotprod', 'cortex-a55'),
               ('bitnet__dotrows_groups_neon', 'cortex-a53'),
               ('bitnet__dotrows_groups_dotprod', 'cortex-a55'),
               ('bitnet__scores_i8_neon', 'cortex-a53'),
               ('bitnet__scores_i8_dotprod', 'cortex-a55'),
               ('bitnet__sumrows_i8_neon', 'cortex-a53'),
               ('bitnet__sumrows_i8_dotprod', 'cortex-a55'),
               ('bitnet__multiply_avx512vnni', 'znver4'),
               ('bitnet__multiply_group_apart_avxvnni', 'alderlake')]

# Models: their shapes (kv: elements of a token's keys, or of its values); how many norms and
# quantized inputs of each size a layer has; and the function of the gate.
MODELS = {
    'embed': {                                 # the embedding model of 0.6B
        'layers': 28, 'dim': 1024, 'ffn': 3072, 'q': 2048, 'kv': 1024, 'head': 128,
        'norms': {'dim': 7, 'ffn': 1, 'q': 2, 'kv': 1}, 'inputs': {'dim': 5, 'ffn': 1, 'q': 1},
        'gate': 'sigmoid_gate'},
    'text': {                                  # BitNet b1.58-2B-4T
        'layers': 30, 'dim': 2560, 'ffn': 6912, 'q': 2560, 'kv': 640, 'head': 128,
        'norms': {'dim': 2, 'ffn': 1, 'q': 1}, 'inputs': {'dim': 2, 'ffn': 1, 'q': 1},
        'gate': 'relu2_gate', 'vocab': 128256},
}
# What a token reads when it is written: bytes of a ternary weight, of an element of the head's copy
# and of the head, and of the keys and values of a position; columns by which each element of the
# copy is multiplied; rows of the head that are computed exactly, as build/bench counts them with
# its random model.
BYTES = {'weight': 1 / 4, 'copy': 1, 'head': 2, 'key': 2}
COPY_COLUMNS, EXACT_ROWS = 2, 8
BATCH = 256                                    # tokens of a prompt that share a reading of weights

# The loops that do most of the work: part, function, vector instructions by which to know the loop
# (of several the one that loads least), items of an iteration, and of which items.
PANELS = {
    'bitnet__panels_neon': ('ternary', 'panels_neon', {'smlal': 16}, 256, 'ternary'),
    'bitnet__panels_dotprod': ('ternary', 'panels_dotprod', {'sdot': 64}, 1024, 'ternary'),
    'bitnet__panels_i8mm': ('ternary', 'panels_i8mm', {'smmla': 32}, 1024, 'ternary'),
}
SOFTMAX = [
    ('attention', 'softmax_neon', {'fmaxnm': 1, 'fadd': 0}, 4, 'scores'),
    ('attention', 'softmax_neon', {'fmaxnm': 4}, 16, 'scores'),
    ('attention', 'softmax_neon', {'fmul': 2, 'fsub': 2, 'fmaxnm': 0}, 4, 'scores'),
]
ANY = [                                        # of tokens that are read or written
    ('norms', 'rmsnorm_neon', {'fmul': 4, 'fadd': 4}, 16, 'norms'),
    ('norms', 'rmsnorm_neon', {'fmul': 2, 'fadd': 0}, 4, 'norms'),
    ('others', 'quantize_neon', {'fabs': 1}, 4, 'inputs'),
    ('others', 'quantize_neon', {'fcvtns': 4}, 16, 'inputs'),
    ('others', 'dequantize_neon', {'scvtf': 1}, 4, 'outputs'),
    ('others', 'rope_neon', {'fmul': 6}, 8, 'rotated'),
    ('others', 'store_f16_neon', {'fcvtn': 2}, 16, 'stored'),
]
GATES = {
    'sigmoid_gate': ('gate', 'sigmoid_gate_neon', {'fdiv': 1}, 4, 'gate'),
    'relu2_gate': ('gate', 'relu2_gate_neon', {'fcmgt': 1}, 4, 'gate'),
}
READ = ANY + SOFTMAX + [                       # many columns: attention over rows made floats
    ('attention', 'many_scores_neon', {'fmla': 16, 'fcvtl': 0}, 64, 'dots'),
    ('attention', 'sumrows_f16_neon', {'fmla': 16, 'fcvtl': 0}, 64, 'dots'),
]
WRITTEN = ANY + SOFTMAX + [                    # one column: attention over the cache's F16
    ('attention', 'scores_f16_neon', {'fmla': 16, 'fcvtl': 4}, 64, 'dots'),
    ('attention', 'sumrows_f16_neon', {'fmla': 16, 'fcvtl': 2}, 64, 'dots'),
    ('head', 'dotrows_f16_neon', {'fmul': 16, 'fcvtl': 8}, 16, 'exact'),
]
TILES = {                                      # of one column, for the panels of the same table
    'bitnet__panels_neon': [
        ('ternary', 'tiles_neon', {'smull': 4, 'and': 24}, 512, 'ternary'),
        ('head', 'dotrows_u4_neon', {'smull': 8}, 128, 'copy')],
    'bitnet__panels_dotprod': [
        ('ternary', 'tiles_dotprod', {'sdot': 32, 'and': 24}, 512, 'ternary'),
        ('head', 'dotrows_u4_dotprod', {'sdot': 8}, 128, 'copy')],
}
TILES['bitnet__panels_i8mm'] = TILES['bitnet__panels_dotprod']

# Machines: name, CPU, panels, cores, GHz, and GB/s that its memory can give at most and that a
# program was seen to read, where that is published.
#   Raspberry Pi 5: LPDDR4X-4267, 32 bits wide
#   (https://threedots.ovh/blog/2023/09/gathering-some-raspberry-pi-5-details/); 10.3 is the size
#   of a file times the speed of writing, the first row of
#   https://github.com/ggml-org/llama.cpp/issues/26484.
#   Graviton2, Graviton3 (c6g.2xlarge, c7g.2xlarge; the memory is that of all 64 cores): GHz by
#   https://github.com/aws/aws-graviton-getting-started; 8 channels of DDR4-3200
#   (https://www.anandtech.com/show/15578) and of DDR5-4800
#   (https://en.wikichip.org/wiki/AWS_Graviton3).
#   Apple M1: the 4 fast cores (https://www.anandtech.com/show/16252); LPDDR4X-4266, 128 bits wide.
MACHINES = [
    ('Raspberry Pi 5', 'cortex-a76', 'bitnet__panels_dotprod', 4, 2.4, 4267 * 4e-3, 10.3),
    ('AWS Graviton2, 8 cores', 'neoverse-n1', 'bitnet__panels_dotprod', 8, 2.5, 8 * 3200 * 8e-3, 0),
    ('AWS Graviton3, 8 cores', 'neoverse-v1', 'bitnet__panels_i8mm', 8, 2.6, 8 * 4800 * 8e-3, 0),
    ('Apple M1', 'apple-m1', 'bitnet__panels_dotprod', 4, 3.2, 4266 * 16e-3, 0),
]
SEEN = [128, 512, 4096]                        # tokens of a text
PROMPTS_OF, CONTEXTS = [128, 512], [0, 1024, 4096]
BLOCK = 16                                     # tokens that see the positions up to the last one's
DECODED = 16                                   # build/bench writes so many tokens up to a context


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


@functools.lru_cache(maxsize=None)
def mca(text, target, cpu, apart):
    triple, more = (('aarch64-linux-gnu', '+dotprod,+i8mm') if target == 'arm' else
                    ('x86_64-linux-gnu', '+avxvnni,+avx512vl,+avx512bw'))
    times = 300
    run = subprocess.run(['llvm-mca-19', '-mtriple=' + triple, '-mcpu=' + cpu, '-mattr=' + more,
                          '-iterations=%d' % times, '-noalias=%d' % apart,
                          '-instruction-info=0', '-resource-pressure=0'],
                         input=text, stdout=subprocess.PIPE, check=True,
                         universal_newlines=True)
    cycles = re.search(r'Total Cycles:\s+(\d+)', run.stdout)
    ports = re.search(r'Block RThroughput:\s+([\d.]+)', run.stdout)
    return int(cycles.group(1)) / times, float(ports.group(1))


def simulated(loop, target, cpu, apart=0):
    """(cycles an iteration, bound of ports and width) by llvm-mca. A load waits for the stores
    before it, unless all are apart: 1."""
    return mca('\n'.join(loop), 'arm' if target is ARM else 'x86', cpu, apart)


def unchained(loop, target):
    """A loop of AVX2 whose additions do not wait for those of the step before: a product is added
    to itself."""
    return [re.sub(r'^(vpaddw\s+)(?:(%ymm\d+), (%ymm\d+), \3|(%ymm\d+), (%ymm\d+), \4)$',
                   lambda m: '%s%s, %s, %s' % (m[1], m[2] or m[5], m[2] or m[5], m[3] or m[4]),
                   line)
            for line in loop
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


def loaded(loop):
    """Vectors of 16 bytes that an ARM loop loads."""
    return sum(len(re.findall(r'\bq\d+', line)) for line in loop if line.startswith('ld'))


def main_loop(loops):
    """The one that multiplies most, and of several the one that loads least."""
    return max(loops, key=lambda loop: (multiplications(loop), -loaded(loop)))


def check(compiler):
    target, text = compiled(compiler)
    loops = []
    for name, lines in functions(text):
        frame = any(re.match(target['frame'], line) for line in lines)
        own = list(innermost(lines, target))
        loops += own
        for loop in own:
            n = len(spilled(loop, target, frame))
            if n > allowed(name) and not any(re.match(r'(call|blr?)\b', line) for line in loop):
                print('%s: %s: a loop of %d instructions keeps %d vectors in memory' %
                      (compiler, name, len(loop), n))
        if name in PROMPTS and shutil.which('llvm-mca-19'):
            loop = main_loop(own)
            for cpu, cycles, ports, bound in bounds(name, loop, target):
                if cycles > 1.15 * bound and (name, cpu) not in NOT_CHECKED:
                    print('%s: %s: on %s an iteration takes %.1f cycles, not %.1f' %
                          (compiler, name, cpu, cycles, bound))
    if sum(map(bool, map(multiplications, loops))) < 10:
        print('%s: of %d loops, too few multiply weights' % (compiler, len(loops)))


def table(compilers):
    print('%-30s %-15s %12s %7s %6s %6s %5s' %
          ('loop', 'CPU', 'instructions', 'cycles', 'ports', 'bound', 'peak'))
    for compiler in compilers:
        print(compiler)
        target, text = compiled(compiler)
        for name, lines in functions(text):
            if name in PROMPTS:
                loop = main_loop(innermost(lines, target))
                alone = [line for line in loop if re.match(WORK, line)]
                for row in bounds(name, loop, target):
                    peak = simulated(alone, target, row[0])[1]
                    print('%-30s %-15s %12d %7.1f %6.1f %6.1f %4.0f%%' %
                          ((name, row[0], len(loop)) + row[1:] + (100 * peak / row[1],)))


def loop_with(loops, function, wanted):
    """The loop of a function with so many of some vector instructions; see PANELS."""
    def count(loop, name):
        return sum(bool(re.match(name + r'\s+v', line)) for line in loop)
    found = [loop for loop in loops['bitnet__' + function]
             if all(count(loop, name) == n for name, n in wanted.items())]
    if not found:
        sys.exit('%s has no loop with %s' % (function, wanted))
    return min(found, key=loaded)


def items_of(m):
    """How many items a token has of each kind; scores and dots: a token and a position that it
    sees."""
    layers = m['layers']
    items = {
        'ternary': layers * (m['dim'] * (2 * m['q'] + 2 * m['kv']) + 3 * m['dim'] * m['ffn']),
        'norms': layers * sum(n * m[size] for size, n in m['norms'].items()),
        'inputs': layers * sum(n * m[size] for size, n in m['inputs'].items()),
        'outputs': layers * (2 * m['dim'] + m['q'] + 2 * m['kv'] + 2 * m['ffn']),
        'gate': layers * m['ffn'],
        'rotated': layers * (m['q'] + m['kv']),
        'stored': layers * 2 * m['kv'],
        'scores': layers * m['q'] // m['head'],
        'dots': layers * m['q'],
    }
    if 'vocab' in m:
        items['copy'] = COPY_COLUMNS * m['vocab'] * m['dim']
        items['exact'] = EXACT_ROWS * m['dim']
    return items


def costs_of(loops, parts, items, target, cpu):
    """{part: [cycles a token, bound of ports and width, instructions]}; of attention, a token and
    position."""
    costs = {}
    for part, name, wanted, size, kind in parts:
        loop = loop_with(loops, name, wanted)
        cost = costs.setdefault(part, [0, 0, 0])
        for i, x in enumerate((*simulated(loop, target, cpu, 1), len(loop))):
            cost[i] += x * items[kind] / size
    return costs


def read_parts(m, panels):
    """The parts of a token that is read with many others."""
    return [PANELS[panels], GATES[m['gate']]] + READ


def written_parts(m, panels):
    """The parts of a token that is written alone."""
    return TILES[panels] + [GATES[m['gate']]] + WRITTEN


def shown(cost, positions=1):
    """A column of million cycles, and the share of the bound."""
    return '%8.2f (%3.0f%%)' % (cost[0] * positions / 1e6, 100 * cost[1] / cost[0])


def loops_of(compiler):
    target, text = compiled(compiler)
    return target, {name: list(innermost(lines, target)) for name, lines in functions(text)}


def embed(compiler):
    print('Million cycles a token (share of the bound of ports and width), attention in texts of')
    print('%d, %d, %d tokens; of sigmoid_gate and rmsnorm cycles for 16 elements' % tuple(SEEN))
    print('%-23s %-12s' % ('panels', 'CPU') + '%16s' * 7 % (
        'ternary', 'gate', 'norms', 'others', *SEEN) + '%13s%8s' % ('sigmoid_gate', 'rmsnorm'))
    target, loops = loops_of(compiler)
    model, items = MODELS['embed'], items_of(MODELS['embed'])
    for panels in PANELS:
        for cpu in PROMPTS[panels]:
            if cpu in ('cortex-a53', 'cortex-a55'):
                continue                       # nothing hides a latency
            costs = costs_of(loops, read_parts(model, panels), items, target, cpu)
            print('%-23s %-12s ' % (panels, cpu) +
                  ' '.join(shown(costs[part]) for part in ('ternary', 'gate', 'norms', 'others')) +
                  ' ' + ' '.join(shown(costs['attention'], (n + BLOCK) / 2) for n in SEEN) +
                  '%13.1f%8.1f' % (costs['gate'][0] / items['gate'] * 16,
                                   costs['norms'][0] / items['norms'] * 16))


def positions_at(context):
    """The positions that a token sees on average, of those that build/bench writes there."""
    return (context or DECODED) - (DECODED - 1) / 2


def bytes_of(m, context):
    """Bytes that a token reads when it is written at a context."""
    kv = 2 * BYTES['key'] * m['layers'] * m['kv']
    return (items_of(m)['ternary'] * BYTES['weight'] + m['vocab'] * m['dim'] * BYTES['copy'] +
            EXACT_ROWS * m['dim'] * BYTES['head'] + kv * positions_at(context))


def in_all(costs, positions, of=0):
    """Cycles of all parts; of=2: instructions."""
    return sum(cost[of] * (positions if part == 'attention' else 1) for part, cost in costs.items())


def predicted(cycles, read_bytes, machine):
    """'tokens a second (what limits them)' of all cores."""
    name, cpu, panels, cores, ghz, most, seen = machine
    by_cycles = cores * ghz * 1e9 / cycles
    cells = []
    for gb_s in (most, seen):
        if gb_s:
            by_memory = gb_s * 1e9 / read_bytes
            speed = min(by_cycles, by_memory)
            cells.append('%.*f (%s)' % (speed < 99.5, speed, 'cycles' if by_cycles < by_memory
                                        else '%.4g GB/s' % gb_s))
    return ', '.join(dict.fromkeys(cells))     # both speeds of memory, if they make a difference


def print_loops(m, loops, target):
    """Each loop's items and instructions, and what llvm-mca says of the CPUs that run it."""
    rows, used = {}, {}
    for name, cpu, panels, *rest in MACHINES:
        for part in read_parts(m, panels) + written_parts(m, panels):
            key = part[1] + ''.join(' %s=%d' % pair for pair in part[2].items())
            rows[key] = part
            used.setdefault(key, set()).add(cpu)
    print('Cycles an iteration by llvm-mca / bound of ports and width\n')
    print('%-38s %5s %12s' % ('loop', 'items', 'instructions') +
          ''.join('%15s' % machine[1] for machine in MACHINES))
    for key, part in sorted(rows.items()):
        loop = loop_with(loops, part[1], part[2])
        cells = ['%.1f / %.1f' % simulated(loop, target, cpu, 1) if cpu in used[key] else '-'
                 for name, cpu, *rest in MACHINES]
        print('%-38s %5d %12d' % (key, part[3], len(loop)) + ''.join('%15s' % c for c in cells))


def print_costs(what, parts, places, seen, costs):
    print('\n%-13s' % what + '%16s' * len(parts) % tuple(parts) +
          ''.join('%17s' % ('attention, %d' % n) for n in places) + '   million instructions')
    for machine, cost in zip(MACHINES, costs):
        print('%-13s' % machine[1] + ' '.join(shown(cost[part]) for part in parts) + '  ' +
              '  '.join(shown(cost['attention'], n) for n in seen) + '   ' +
              ', '.join('%.1f' % (in_all(cost, n, 2) / 1e6) for n in seen))


def text_model(compiler):
    m = MODELS['text']
    target, loops = loops_of(compiler)
    print_loops(m, loops, target)
    read, written = ([costs_of(loops, parts(m, machine[2]), items_of(m), target, machine[1])
                      for machine in MACHINES] for parts in (read_parts, written_parts))
    print('\nMillion cycles a token on one core (share of the bound of ports and width)')
    print_costs('reading', ['ternary', 'gate', 'norms', 'others'], PROMPTS_OF,
                [(n + BLOCK) / 2 for n in PROMPTS_OF], read)
    print_costs('writing', ['ternary', 'head', 'gate', 'norms', 'others'], CONTEXTS,
                [positions_at(n) for n in CONTEXTS], written)
    print('\nBytes that a token reads when it is written at %s: %s million' % (
        ', '.join(map(str, CONTEXTS)),
        ', '.join('%.0f' % (bytes_of(m, n) / 1e6) for n in CONTEXTS)))
    print('\nTokens a second of all cores, and what limits them\n')
    print('| machine | cores, GHz | GB/s | ' + ' | '.join(
        ['prompt of %d' % n for n in PROMPTS_OF] + ['writing at %d' % n for n in CONTEXTS]) + ' |')
    print('| --- ' * (3 + len(PROMPTS_OF) + len(CONTEXTS)) + '|')
    for machine, reads, writes in zip(MACHINES, read, written):
        weights = items_of(m)['ternary'] * BYTES['weight']
        cells = [predicted(in_all(reads, (n + BLOCK) / 2), weights / min(n, BATCH), machine)
                 for n in PROMPTS_OF]
        cells += [predicted(in_all(writes, positions_at(n)), bytes_of(m, n), machine)
                  for n in CONTEXTS]
        print('| %s | %d, %.1f | %.1f | ' % (machine[0], *machine[3:6]) + ' | '.join(cells) + ' |')


if len(sys.argv) == 3 and sys.argv[1] == 'check':
    check(sys.argv[2])
elif len(sys.argv) >= 3 and sys.argv[1] == 'table':
    table(sys.argv[2:])
elif len(sys.argv) == 3 and sys.argv[1] == 'embed':
    embed(sys.argv[2])
elif len(sys.argv) == 3 and sys.argv[1] == 'text':
    text_model(sys.argv[2])
else:
    sys.exit(__doc__)
