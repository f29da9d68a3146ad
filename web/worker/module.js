// module.js - the WASM module, its memory, and what passes between it and JavaScript.
import { joined } from '../shared/bytes.js';
import { abortError, BitNetError, engineCode } from '../shared/errors.js';

export let bw; // the module's functions
export let memory; // its WebAssembly.Memory
export let variant; // simd, threads or relaxed
let host; // what start() was given
export const post = (message, transfer) => host.post(message, transfer);
export const encoder = new TextEncoder();
export const decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // which keeps it in the text
export const NUMBERS = [
    'layers', 'vocabulary', 'context', 'contextTrained', 'parameters', 'fileBytes', 'threads',
    'sessions', 'dims', 'hasHead', 'pooling'
]; // bw_number
export const POOLINGS = [null, 'mean', 'first', 'last']; // bitnet_pooling

/** Sets what start() was given. */
export function attach(its) {
    host = its;
}

/** Forgets the module and its memory. */
export function detach() {
    bw = memory = undefined;
}

// ---- memory: a view is valid until the next call into the module, which may grow the memory ----

export const heap = () => new Uint8Array(memory.buffer);

/** A copy that is not shared memory, which TextDecoder and others refuse. */
export const bytesAt = (at, n) => heap().slice(at >>> 0, (at >>> 0) + n);

export function stringAt(at) {
    const all = heap();
    return decoder.decode(all.slice(at >>> 0, all.indexOf(0, at >>> 0)));
}

export function failure(code) {
    return new BitNetError(stringAt(bw._bw_error_name(code)), stringAt(bw._bw_error()));
}

export function check(result) {
    if (result < 0) throw failure(result);
    return result;
}

const megabytes = bytes => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

export function outOfMemory(bytes) {
    const has = memory.buffer.byteLength;
    return new BitNetError(
        'ERR_MEMORY',
        `out of memory: ${megabytes(bytes)} more are needed beside the ${megabytes(has)} in use`
    );
}

/** Copies bytes to newly allocated memory. */
export function put(bytes) {
    const at = bw._malloc(bytes.length + 1) >>> 0;
    if (!at) throw outOfMemory(bytes.length);
    heap().set(bytes, at);
    return at;
}

export function withBytes(bytes, use) {
    const at = put(bytes);
    try {
        return use(at, bytes.length);
    } finally {
        bw._free(at);
    }
}

/** Several strings, as the module takes them: one behind the other, and a list of their sizes. */
export function withTexts(strings, use) {
    const parts = strings.map(s => encoder.encode(s)),
        sizes = Int32Array.from(parts, part => part.length);
    return withBytes(joined(parts), at =>
        withBytes(new Uint8Array(sizes.buffer), sizesAt => use(at, sizesAt, sizes.length))
    );
}

// ---- turns: let the event loop deliver a cancel ----
// (Not a channel in Node: up to 1000 of its messages in a row are delivered before any others.)

const waking = [];
const channel = typeof setImmediate === 'function' ? null : new MessageChannel();
if (channel) channel.port1.onmessage = () => waking.shift()();
export const turn = () =>
    new Promise(resolve => {
        if (!channel) return setImmediate(resolve);
        waking.push(resolve);
        channel.port2.postMessage(0);
    });

export function checkAbort(signal) {
    if (signal.aborted) throw abortError();
}

// ---- the module ----

const PAGE = 65536;
const MOST = 2 ** 32; // bytes of a memory
const NEARLY = MOST - MOST / 8;
const BESIDE = 16 << 20; // what is taken at once beside the file
let engine; // what startModule was given
let limit; // how large the memory may grow; MOST if the engine did not refuse that

const pages = bytes => Math.ceil(bytes / PAGE);

/** Memory that may grow to `most` bytes; null if the engine refuses that. */
function memoryUpTo(most, initial) {
    const shared = Boolean(engine.threadScript);
    limit = most;
    try {
        return new WebAssembly.Memory({ initial: pages(initial), maximum: pages(most), shared });
    } catch {
        return null;
    }
}

/** Takes memory for a model whose file has so many bytes (null: unknown). They are taken at once, so what
 * cannot be had fails before the file is read. Shared memory has to say how large it may grow: some
 * browsers reserve that, and a phone's may refuse 4 GB. Then it gets what this model needs. */
function takeMemory(bytes) {
    const initial = Math.min((bytes ?? 0) + BESIDE, MOST),
        enough = bytes === null ? [1e9] : [1.25 * bytes + 1e9, 1.1 * bytes + 256e6],
        smaller = engine.threadScript ? enough.filter(n => n < MOST) : [];
    try {
        if (bw) memory.grow(Math.max(pages(initial - memory.buffer.byteLength), 0));
        else memory = [MOST, ...smaller].reduce((had, most) => had ?? memoryUpTo(most, initial), null);
    } catch {
        memory = null; // it cannot grow so far
    }
    if (!memory)
        throw new BitNetError('ERR_MEMORY', `out of memory: ${megabytes(initial)} cannot be had`);
}

/** An error says what may work instead: another variant, or only the one with one thread, whose memory
 * is not shared. */
export function withInstead(e) {
    const shared = engine.threadScript && !(memory?.buffer.byteLength > NEARLY);
    if (e.code === 'ERR_MEMORY' && shared) e.instead = 'simd';
    return e;
}

/** A sentence for the user about the memory, or none. */
export const memoryNotes = () =>
    limit < MOST ? [`at most ${megabytes(limit)} of memory: this browser refuses 4 GB`] : [];

/** The first call. The module starts when it is known what for. */
export async function startModule({ wasm, ...its }) {
    variant = its.name;
    try {
        engine = { ...its, compiled: await WebAssembly.compile(wasm) };
    } catch (e) {
        throw noModule(e);
    }
}

function noModule(e) {
    const text = String(e?.message ?? e);
    const error = new BitNetError(engineCode(text), `no ${variant} module: ${text}`);
    return Object.assign(error, { instead: 'another' });
}

/** Starts a module that has threads, before it is known what for, where its memory may grow to 4 GB. In
 * Firefox (140) a worker may hang where it starts threads, and what it has locked then stays locked, even
 * when its tab is closed: so no file is locked yet. */
export async function startThreads() {
    if (engine.threadScript) memory = memoryUpTo(MOST, BESIDE);
    if (memory) await startIn(memory);
}

/** Starts the module, if it has not been, with memory for a model whose file has so many bytes. */
export async function instantiate(bytes) {
    takeMemory(bytes);
    if (!bw) await startIn(memory);
}

async function startIn(wasmMemory) {
    const { compiled, threads, threadScript } = engine;
    const starter = threadScript && host.threadStarter(threadScript);
    if (threadScript) post({ starting: true });
    const failed = new Promise((_, reject) => {
        bw = host.createModule({
            wasmMemory,
            poolSize: Math.max(threads - 1, 1), // emscripten 3.1.6 hangs with 0
            locateFile: () => starter,
            mainScriptUrlOrBlob: starter,
            onAbort: reject,
            instantiateWasm(imports, done) {
                WebAssembly.instantiate(compiled, imports)
                    .then(instance => done(instance, compiled))
                    .catch(reject);
                return {};
            }
        });
    });
    try {
        bw = await Promise.race([failed, bw]); // if it has thrown, bw is nothing
    } catch (e) {
        throw noModule(e);
    }
    if (threadScript) post({ starting: false });
}
