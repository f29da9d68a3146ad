// module.js - the WASM module, its memory, and what passes between it and JavaScript.
import { abortError, BitNetError, engineCode } from '../shared/errors.js';

export let bw; // the module's functions
export let memory; // its WebAssembly.Memory
export let variant; // simd, threads or relaxed
let host; // what start() was given
export const post = (message, transfer) => host.post(message, transfer);
export const encoder = new TextEncoder();
export const decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // which keeps it in the text
export const NUMBERS = [
    'layers',
    'vocabulary',
    'context',
    'contextTrained',
    'parameters',
    'fileBytes',
    'threads',
    'sessions',
    'dims',
    'hasHead',
    'pooling'
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

function joined(parts) {
    const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
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

const findMemory = object => Object.values(object).find(v => v instanceof WebAssembly.Memory);

async function instantiate(wasm, threads, threadScript) {
    const compiled = await WebAssembly.compile(wasm);
    const starter = threadScript && host.threadStarter(threadScript);
    if (threadScript) post({ starting: true });
    const module = await new Promise((resolve, reject) => {
        host.createModule({
            poolSize: Math.max(threads - 1, 1), // emscripten 3.1.6 hangs with 0
            locateFile: () => starter,
            mainScriptUrlOrBlob: starter,
            onAbort: reject,
            instantiateWasm(imports, done) {
                WebAssembly.instantiate(compiled, imports)
                    .then(instance => {
                        memory =
                            Object.values(imports).map(findMemory).find(Boolean) ||
                            findMemory(instance.exports);
                        done(instance, compiled);
                    })
                    .catch(reject);
                return {};
            }
        }).then(resolve, reject);
    });
    if (threadScript) post({ starting: false });
    return module;
}

/** The first call. */
export async function startModule({ name, wasm, threads, threadScript }) {
    variant = name;
    try {
        bw = await instantiate(wasm, threads, threadScript);
    } catch (e) {
        const text = String(e?.message ?? e);
        throw new BitNetError(engineCode(text), `no ${name} module: ${text}`);
    }
}
