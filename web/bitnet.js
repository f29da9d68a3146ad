// bitnet.js - BitNet b1.58 models in browsers and Node 20+. bitnet.d.ts has the interface. The model
// itself lives in a worker (worker.js), one per model; this file sends it messages. bundle.mjs makes
// the package's modules of this one and puts in what is imported as bitnet-*.
import { engines } from 'bitnet-engines';
import { processors, resolveSource, startWorker } from 'bitnet-platform';
import { BitNetError, abortError, engineCode } from './errors.js';
import { list, remove, clear, persist } from './cache.js';

export { BitNetError };
export const cache = { list, remove, clear, persist };

// ---- what this engine can do: small WASM modules are validated, then run ----

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

// n times acc += x . y, in groups of four bytes, with x[i] = a + i and y[i] = b & i for i = 0 .. 15.
const K = 'fd 0c 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f'; // v128.const
const RELAXED = probe(
    3,
    `
  01 01 7b          ; one local (3), the v128 acc
  03 40             ; loop
    20 00 fd 0f ${K} fd 6e     ; i8x16.add(i8x16.splat(a), K)
    20 01 fd 0f ${K} fd 4e     ; v128.and(i8x16.splat(b), K)
    20 03 fd 93 02 21 03       ; acc = i32x4.relaxed_dot_i8x16_i7x16_add_s(.., .., acc)
    20 02 41 01 6b 22 02 0d 00 ; again if n = n - 1
  0b
  20 03 fd 1b 03 41 03 6c      ; ((lane 3 * 3 + lane 2) * 3 + lane 1) * 3 + lane 0
  20 03 fd 1b 02 6a 41 03 6c
  20 03 fd 1b 01 6a 41 03 6c
  20 03 fd 1b 00 6a 0b`
);

/** What f of that module should return. */
function relaxedAnswer(a, b, n) {
    const lane = l => [0, 1, 2, 3].reduce((sum, i) => sum + (a + 4 * l + i) * (b & (4 * l + i)), 0);
    return n * (((lane(3) * 3 + lane(2)) * 3 + lane(1)) * 3 + lane(0));
}

/** The module's f, or null if the engine does not support the module. */
function instantiate(module) {
    try {
        return (
            WebAssembly.validate(module) &&
            new WebAssembly.Instance(new WebAssembly.Module(module)).exports.f
        );
    } catch {
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
    const f = instantiate(RELAXED);
    if (!f) return 'this engine has none';
    for (let n = 1; n <= 300; n++) {
        const a = -128 + (n % 200),
            b = n % 3 ? n % 128 : 127;
        if (f(a, b, n) !== relaxedAnswer(a, b, n)) return 'this engine computes it wrongly';
    }
    return '';
}

/** The variants that can run here, the best first, and why the others cannot. */
function choose(forced, threads) {
    const none = lacksSimd();
    if (none) throw new BitNetError('ERR_NO_SIMD', none);
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
    if (forced !== undefined && !(forced in why))
        throw new BitNetError('ERR_ARG', `variant '${forced}' is not simd, threads or relaxed`);
    if (forced && why[forced]) throw new BitNetError('ERR_UNSUPPORTED', why[forced]);
    const order = forced ? [forced] : ['relaxed', 'threads', 'simd'].filter(v => !why[v]);
    if (order.length === 0) throw new BitNetError('ERR_UNSUPPORTED', why.simd);
    const notes = forced ? [] : [...new Set(Object.values(why))].filter(Boolean);
    if (order[0] === 'simd' && threads > 1 && forced)
        notes.push('one thread: the variant simd has no threads');
    return { variants: order, notes };
}

// ---- arguments ----

const bad = text => {
    throw new BitNetError('ERR_ARG', text);
};

function number(options, name, fallback, low, high, whole) {
    const v = options[name] ?? fallback;
    if (typeof v !== 'number' || !(v >= low && v <= high) || (whole && !Number.isInteger(v)))
        bad(`${name}: ${v} is not a ${whole ? 'whole ' : ''}number from ${low} to ${high}`);
    return v;
}

const LOAD_OPTIONS = ['threads', 'context', 'variant', 'cache', 'sha256', 'signal', 'onProgress'];
const GENERATE_OPTIONS = [
    'maxTokens', 'temperature', 'topK', 'topP', 'minP', 'repeatPenalty', 'seed', 'stop', 'signal',
    'onToken', 'onPrompt'
];

/** A misspelt option would be without effect, and nobody would notice. */
function checkNames(options, known) {
    if (typeof options !== 'object' || options === null) bad('options: an object is needed');
    for (const name of Object.keys(options))
        if (!known.includes(name)) bad(`${name}: no such option. There are ${known.join(', ')}`);
}

/** The defaults are those of examples/generate.c, except for the temperature: 0, greedy. */
function samplerOptions(o) {
    const most = 2 ** 31 - 1;
    const stop = typeof o.stop === 'string' ? [o.stop] : [...(o.stop ?? [])];
    for (const s of stop)
        if (typeof s !== 'string' || !s || s.includes('\0'))
            bad('stop: a string is empty or contains a NUL');
    return {
        maxTokens: o.maxTokens === Infinity ? 0 : number(o, 'maxTokens', 0, 0, most, true),
        temperature: number(o, 'temperature', 0, 0, 1000),
        topK: number(o, 'topK', 40, 0, most, true),
        topP: number(o, 'topP', 0.95, 0, 1),
        minP: number(o, 'minP', 0.05, 0, 1),
        repeatPenalty: number(o, 'repeatPenalty', 0, 0, 9),
        seed: number(o, 'seed', Math.floor(Math.random() * most), 0, Number.MAX_SAFE_INTEGER, true),
        stop
    };
}

function checkMessages(messages) {
    if (!Array.isArray(messages) || messages.length === 0)
        bad('messages: a non-empty array is needed');
    return messages.map(({ role, content }) => {
        if (typeof role !== 'string' || typeof content !== 'string')
            bad('messages: role and content must be strings');
        if ((role + content).includes('\0')) bad('messages: one contains a NUL');
        return { role, content };
    });
}

/** The source in a form that can be sent to the worker without copying it. */
function portable(source) {
    if (source instanceof Blob) return source;
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return new Blob([source]);
    if (source instanceof URL) return source.href;
    if (typeof source !== 'string') bad('source: a URL, File, Blob or ArrayBuffer is needed');
    return resolveSource(source);
}

/** Settles like the promise, or rejects with the signal's reason as soon as it is aborted. */
function abortable(promise, signal, onAbort) {
    if (!signal) return promise;
    return new Promise((resolve, reject) => {
        const stop = () => {
            onAbort();
            reject(signal.reason);
        };
        if (signal.aborted) stop();
        signal.addEventListener('abort', stop, { once: true });
        promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
    });
}

// ---- the worker ----

const revive = ({ name, code, message, status }) =>
    name === 'AbortError' ? abortError() : new BitNetError(code, message, status);

/** In Firefox (140, about 1 start in 100) a worker that creates a worker may hang. A start that takes
 * longer than this is given up and tried again. */
const START_MS = 4000;

class Stalled extends BitNetError {}

/** Calls to the worker and their answers. If the worker dies, all pending calls fail. */
class Connection {
    #worker;
    #timer;
    #calls = new Map(); // id -> { resolve, reject, onEvent }
    #next = 1;
    #dead = null; // the error that says why

    constructor(engine) {
        this.#worker = startWorker(engine, {
            onMessage: data => this.#onMessage(data),
            onLost: event => this.close(crash(event))
        });
    }

    call(op, args, onEvent) {
        if (this.#dead) return Object.assign(Promise.reject(this.#dead), { id: 0 });
        const id = this.#next++;
        const promise = new Promise((resolve, reject) => {
            this.#calls.set(id, { resolve, reject, onEvent });
        });
        try {
            this.#worker.postMessage({ id, op, ...args });
        } catch (e) {
            // something that cannot be cloned
            this.#calls.delete(id);
            return Object.assign(Promise.reject(new BitNetError('ERR_ARG', e.message)), { id });
        }
        this.#hold();
        return Object.assign(promise, { id });
    }

    /** The worker stops at its next turn. This call gets no more events. */
    cancel(id) {
        const call = this.#calls.get(id);
        if (!call) return;
        call.onEvent = undefined;
        this.#worker.postMessage({ cancel: id });
    }

    close(error) {
        if (this.#dead) return;
        this.#dead = error;
        clearTimeout(this.#timer);
        this.#worker.terminate(); // and its threads with it
        for (const { reject } of this.#calls.values()) reject(error);
        this.#calls.clear();
    }

    #watch(starting) {
        clearTimeout(this.#timer);
        if (!starting) return;
        this.#timer = setTimeout(() => {
            this.close(new Stalled('ERR_INTERNAL', 'the threads did not start'));
        }, START_MS);
    }

    #onMessage({ id, event, value, error, starting }) {
        if (starting !== undefined) return this.#watch(starting);
        const call = this.#calls.get(id);
        if (!call) return;
        if (event) {
            try {
                return call.onEvent?.(event);
            } catch (e) {
                return call.reject(e); // thrown by the caller's handler
            }
        }
        this.#calls.delete(id);
        this.#hold();
        if (!error) return call.resolve(value);
        const revived = revive(error);
        call.reject(revived);
        // after a crash the module's memory is not reliable
        if (revived.code === 'ERR_INTERNAL') this.close(revived);
    }

    /** Keeps Node running while a call is pending, but not because of an idle worker. */
    #hold() {
        this.#worker[this.#calls.size ? 'ref' : 'unref']?.();
    }
}

function crash(event) {
    event?.preventDefault?.();
    const text =
        event?.message ||
        'perhaps it could not be started; a Content-Security-Policy must have "worker-src blob:"';
    return new BitNetError(engineCode(text), `the worker crashed: ${text}`);
}

const bytesOf = base64 => Uint8Array.from(atob(base64), c => c.charCodeAt(0));

async function startEngine(name, threads, signal) {
    const engine = await engines[name]().catch(e => {
        throw new BitNetError('ERR_INTERNAL', `no ${name} module: ${e.message}`);
    });
    const connection = new Connection(engine);
    try {
        const call = connection.call('startModule', {
            name,
            threads,
            wasm: bytesOf(engine.wasm),
            threadScript: engine.thread
        });
        await abortable(call, signal, () => {});
        return connection;
    } catch (e) {
        connection.close(e);
        throw e;
    }
}

/** A connection to the first variant that starts. Notes why others did not. */
async function connect({ variants, notes }, threads, signal) {
    let failure;
    for (const name of variants) {
        if (failure instanceof Stalled && name !== 'simd') continue; // it would stall again
        const start = () => startEngine(name, threads, signal);
        try {
            return await start().catch(e => (e instanceof Stalled ? start() : Promise.reject(e)));
        } catch (e) {
            if (signal?.aborted) throw e;
            failure = e;
            notes.push(e instanceof Stalled ? 'one thread: threads did not start' : e.message);
        }
    }
    throw failure;
}

// ---- the model ----

/** The stats of a generation that did not end by itself, from its last event about the prompt, or
 * null, and the times when it started and when its first token came, or undefined. */
function cutShort(prompt, tokens, start, first) {
    const { promptTokens, reusedTokens, readTokens } = prompt ?? {
        promptTokens: 0,
        reusedTokens: 0,
        readTokens: 0
    };
    const now = performance.now();
    const prefillSeconds = ((first ?? now) - start) / 1000,
        decodeSeconds = first === undefined ? 0 : (now - first) / 1000;
    return {
        reason: 'abort',
        promptTokens,
        reusedTokens,
        tokens,
        prefillSeconds,
        decodeSeconds,
        prefillPerSecond: Math.max(readTokens - reusedTokens, 0) / prefillSeconds || 0,
        decodePerSecond: tokens / decodeSeconds || 0
    };
}

/** A queue of the worker's events, for an iterator that may be slower or faster. */
class Inbox {
    #items = [];
    #wake = () => {};
    #end = null;

    add(item) {
        this.#items.push(item);
        this.#wake();
    }
    end() {
        this.#end ??= {};
        this.#wake();
    }
    fail(error) {
        this.#end ??= { error };
        this.#wake();
    }
    cut(error) {
        this.#items = [];
        this.fail(error);
    }

    async *[Symbol.asyncIterator]() {
        for (;;) {
            while (this.#items.length) yield this.#items.shift();
            if (this.#end && 'error' in this.#end) throw this.#end.error;
            if (this.#end) return;
            await new Promise(resolve => {
                this.#wake = resolve;
            });
        }
    }
}

export class BitNet {
    #connection;
    #generating = false;
    info;
    stats = null;

    static async load(source, options = {}) {
        checkNames(options, LOAD_OPTIONS);
        const { signal, onProgress, sha256, cache = 'auto', variant } = options;
        signal?.throwIfAborted();
        const context = number(options, 'context', 0, 0, 1 << 20, true);
        const threads = number(options, 'threads', Math.min(processors() || 1, 8), 1, 256, true);
        if (cache !== 'auto' && cache !== 'none') bad(`cache: '${cache}' is not auto or none`);
        if (sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(sha256))
            bad('sha256: 64 hexadecimal digits are needed');
        const chosen = choose(variant, threads);
        const args = { source: portable(source), options: { context, threads, cache, sha256 } };
        const connection = await connect(chosen, threads, signal);
        const call = connection.call('load', args, onProgress);
        try {
            const model = new BitNet();
            model.info = await abortable(call, signal, () => connection.cancel(call.id));
            model.info.notes.unshift(...chosen.notes);
            model.#connection = connection;
            return model;
        } catch (e) {
            // give the worker time to clean up
            call.catch(() => {}).then(() => connection.close(e));
            setTimeout(() => connection.close(e), 2000).unref?.();
            throw e;
        }
    }

    generate(prompt, options = {}) {
        if (typeof prompt !== 'string') bad('prompt: a string is needed');
        checkNames(options, GENERATE_OPTIONS);
        return this.#run({ prompt }, options);
    }

    chat(messages, options = {}) {
        checkNames(options, GENERATE_OPTIONS);
        return this.#run({ messages: checkMessages(messages) }, options);
    }

    async *#run(what, { signal, onToken, onPrompt, ...rest }) {
        const options = samplerOptions(rest);
        signal?.throwIfAborted();
        const connection = this.#alive();
        if (this.#generating) throw new BitNetError('ERR_BUSY', 'this model is already generating');
        this.#generating = true;
        const inbox = new Inbox(),
            start = performance.now();
        let prompt = null,
            tokens = 0,
            first,
            finished = false;
        const call = connection.call('generate', { ...what, options }, event => {
            if ('promptTokens' in event) {
                prompt = event;
                return onPrompt?.(event);
            }
            first ??= performance.now();
            tokens++;
            inbox.add(event);
        });
        const done = abortable(call, signal, () => inbox.cut(signal.reason)).then(
            stats => {
                this.#finish(stats);
                inbox.end();
            },
            error => inbox.fail(error)
        );
        try {
            for await (const event of inbox) {
                onToken?.(event);
                if (event.text) yield event.text;
            }
            await done;
            finished = true;
            return this.stats;
        } finally {
            this.#generating = false;
            if (!finished) {
                // aborted, left by break or throw, or failed
                call.catch(() => {});
                connection.cancel(call.id);
                this.stats = cutShort(prompt, tokens, start, first);
            }
        }
    }

    #finish({ memoryBytes, ...stats }) {
        this.info.memoryBytes = memoryBytes;
        this.stats = stats;
    }

    #alive() {
        if (!this.#connection) throw new BitNetError('ERR_FREED', 'this model has been freed');
        return this.#connection;
    }

    async tokenize(text, { bos = false, special = false } = {}) {
        if (typeof text !== 'string') bad('text: a string is needed');
        return this.#alive().call('tokenize', { text, bos, special });
    }

    async detokenize(tokens) {
        return this.#alive().call('detokenize', { tokens: Int32Array.from(tokens) });
    }

    async free() {
        this.#connection?.close(new BitNetError('ERR_FREED', 'this model has been freed'));
        this.#connection = null;
    }

    /** `await using model = await BitNet.load(...)`. Older engines do not have the symbol. */
    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.free();
    }
}
