// What this engine can do: small WASM modules are validated, then run.
import { engines } from 'bitnet-engines';
import { BitNetError } from '../shared/errors.js';

/** A module that exports f(...i32) -> i32. code is the function's body without its size, in
 * hexadecimal with comments. Every size fits in 7 bits. */
function probe(params, code, memory = '') {
    const body = parse(code),
        section = (id, ...content) => [id, content.length, ...content];
    return Uint8Array.from([
        ...parse('00 61 73 6d 01 00 00 00'), // "\0asm", version 1
        ...section(1, 1, 0x60, params, ...Array(params).fill(0x7f), 1, 0x7f), // one type
        ...section(3, 1, 0), // one function, of type 0
        ...parse(memory),
        ...section(7, 1, 1, 0x66, 0, 0), // export "f": function 0
        ...section(10, 1, body.length, ...body)
    ]);
}

const parse = hex => (hex.replace(/;.*/g, '').match(/\S+/g) ?? []).map(x => parseInt(x, 16));

const SIMD = probe(
    1,
    `
  00                ; no locals
  20 00 fd 10       ; local.get 0, i16x8.splat
  20 00 fd 10
  fd ba 01          ; i32x4.dot_i16x8_s
  fd 1b 00 0b       ; i32x4.extract_lane 0, end`
);

const THREADS = probe(
    1,
    `
  00
  41 00 20 00       ; i32.const 0, local.get 0
  fe 1e 02 00 1a    ; i32.atomic.rmw.add, drop
  41 00             ; i32.const 0
  fe 10 02 00 0b    ; i32.atomic.load, end`,
    '05 04 01 03 01 01'
); // memory: shared, 1 to 1 page

// n times acc += x . y, in groups of four bytes, with x[i] = a + i and y[i] = b & i for i = 0 .. 15; or
// += a * b. Each instruction that the module relaxed needs to be right has a function of its own: a
// compiler may be wrong in one, and leave a function with another to a compiler that is right.
const K = 'fd 0c 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f'; // v128.const
const X_AND_Y = `
    20 00 fd 0f ${K} fd 6e     ; i8x16.add(i8x16.splat(a), K)
    20 01 fd 0f ${K} fd 4e     ; v128.and(i8x16.splat(b), K)`;
const relaxed = sum =>
    probe(
        3,
        `
  01 01 7b          ; one local (3), the v128 acc
  03 40             ; loop
    ${sum}
    21 03                      ; acc = ..
    20 02 41 01 6b 22 02 0d 00 ; again if n = n - 1
  0b
  20 03 fd 1b 03 41 03 6c      ; ((lane 3 * 3 + lane 2) * 3 + lane 1) * 3 + lane 0
  20 03 fd 1b 02 6a 41 03 6c
  20 03 fd 1b 01 6a 41 03 6c
  20 03 fd 1b 00 6a 0b`
    );
const dot = (a, b, lane) =>
    [0, 1, 2, 3].reduce((sum, i) => sum + (a + 4 * lane + i) * (b & (4 * lane + i)), 0);

/** Modules, and what a lane of acc grows by. */
const RELAXED = [
    [
        relaxed(`${X_AND_Y}
    20 03 fd 93 02             ; i32x4.relaxed_dot_i8x16_i7x16_add_s(.., .., acc)`),
        dot
    ],
    [
        relaxed(`${X_AND_Y}
    fd 92 02 fd 7e             ; i32x4.extadd_pairwise(i16x8.relaxed_dot_i8x16_i7x16_s)
    20 03 fd ae 01             ; i32x4.add(.., acc)`),
        dot
    ],
    [
        relaxed(`
    20 00 b2 fd 13 20 01 b2 fd 13 ; f32x4.splat(f32(a)), of b
    20 03 fd fa 01 fd 85 02    ; f32x4.relaxed_madd(.., .., f32x4.convert(acc)), which is exact
    fd f8 01                   ; i32x4.trunc_sat`),
        (a, b) => a * b
    ]
];

/** The module's f, or null if the engine does not support the module. */
function instantiate(module) {
    try {
        return (
            WebAssembly.validate(module) &&
            new WebAssembly.Instance(new WebAssembly.Module(module)).exports.f
        );
    } catch (e) {
        // Chromium names the directive, Firefox CSP, Safari eval
        if (/unsafe-eval|CSP|Content.Security.Policy|eval/i.test(e.message))
            throw new BitNetError(
                'ERR_UNSUPPORTED',
                "the Content-Security-Policy forbids WebAssembly: script-src needs 'wasm-unsafe-eval'"
            );
        return null;
    }
}

/** Why there is no SIMD, as text; '' if there is. The next two do the same. */
function lacksSimd() {
    if (typeof WebAssembly !== 'object') return 'there is no WebAssembly';
    const f = instantiate(SIMD);
    return f && f(-300) === 180000 ? '' : 'this engine has no WebAssembly SIMD';
}

function lacksThreads() {
    if (globalThis.crossOriginIsolated === false)
        return 'the page is not cross-origin isolated (COOP and COEP headers)';
    if (typeof SharedArrayBuffer !== 'function') return 'there is no SharedArrayBuffer';
    const f = instantiate(THREADS);
    return f && f(5) === 5 && f(6) === 11 ? '' : 'this engine has no shared memory for WebAssembly';
}

/** An engine compiles a function twice: quickly at first, and better once it is called often. The
 * calls are enough to test both, and take about 2 ms. */
function lacksRelaxed() {
    for (const [module, grows] of RELAXED) {
        const f = instantiate(module);
        if (!f) return 'this engine has none';
        for (let n = 1; n <= 300; n++) {
            const a = -128 + (n % 200),
                b = n % 3 ? n % 128 : 127,
                lane = l => grows(a, b, l);
            const right = n * (((lane(3) * 3 + lane(2)) * 3 + lane(1)) * 3 + lane(0));
            if (f(a, b, n) !== right) return 'this engine computes it wrongly';
        }
    }
    return '';
}

/** Why a variant cannot run here, where there is SIMD; '' if it can. */
function reasons() {
    const noThreads = lacksThreads();
    const why = {
        simd: '',
        threads: noThreads && `one thread: ${noThreads}`,
        relaxed: noThreads
            ? `one thread: ${noThreads}`
            : (w => w && `no relaxed SIMD: ${w}`)(lacksRelaxed())
    };
    for (const name of Object.keys(why))
        if (!engines[name]) why[name] ||= `no ${name} module: this build has none`;
    return why;
}

/** The same, without SIMD too. */
export function variants() {
    const none = lacksSimd();
    return none ? { simd: none, threads: none, relaxed: none } : reasons();
}

/** The variants that can run here, the best first, and why the others cannot. */
export function choose(forced, threads) {
    const none = lacksSimd();
    if (none) throw new BitNetError('ERR_NO_SIMD', none);
    const why = reasons();
    if (forced !== undefined && !Object.hasOwn(why, forced))
        throw new BitNetError('ERR_ARG', `variant '${forced}' is not simd, threads or relaxed`);
    if (forced && why[forced]) throw new BitNetError('ERR_UNSUPPORTED', why[forced]);
    const order = forced ? [forced] : ['relaxed', 'threads', 'simd'].filter(v => !why[v]);
    if (order.length === 0) throw new BitNetError('ERR_UNSUPPORTED', why.simd);
    const notes = forced ? [] : [...new Set(Object.values(why))].filter(Boolean);
    if (order[0] === 'simd' && threads > 1 && forced)
        notes.push('one thread: the variant simd has no threads');
    return { variants: order, notes };
}
