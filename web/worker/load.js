// load.js - reads a model's file into the module's memory.
import { openKept, openSource } from '../shared/cache/cache.js';
import { BitNetError } from '../shared/errors.js';
import { newSessions } from './chat.js';
import { BATCH } from './generate.js';
import {
    bw,
    bytesAt,
    check,
    checkAbort,
    heap,
    memory,
    NUMBERS,
    outOfMemory,
    POOLINGS,
    post,
    stringAt,
    turn,
    variant
} from './module.js';

const SLICE = 1 << 20; // bytes hashed at a time
const STEP = 16 << 20; // bytes by which the memory for a file of unknown size grows
const MOST_BYTES = 2 ** 32 - (1 << 24); // of a file, in 4 GB of memory

/** Extends the memory for the file; returns the address of the addition. */
function extend(bytes) {
    const at = bw._bw_alloc(bytes) >>> 0;
    if (!at && bytes) throw outOfMemory(bytes);
    return at;
}

/** The module would see only the low 32 bits of a larger size. */
function checkSize(size) {
    if (size > MOST_BYTES)
        throw new BitNetError('ERR_LIMIT', `${size} bytes do not fit in WebAssembly's memory`);
}

/** Streams the file into the module's memory; returns its size. */
async function readFile(opened, { hash, signal, remote }) {
    const known = opened.size !== null,
        code = remote ? 'ERR_NETWORK' : 'ERR_IO';
    checkSize(opened.size);
    const broken = e => {
        checkAbort(signal);
        throw e.code ? e : new BitNetError(code, `after ${size} bytes: ${e.message}`);
    };
    const wrongSize = got =>
        new BitNetError(code, `the file should have ${opened.size} bytes, but ${got} came`);
    let size = 0,
        room = opened.size ?? 0,
        waited = performance.now();
    const start = extend(room || STEP);
    room ||= STEP;
    const reader = opened.stream().getReader();
    const stop = () => reader.cancel().catch(() => {});
    signal.addEventListener('abort', stop);
    try {
        for (;;) {
            const { done, value } = await reader.read().catch(broken);
            checkAbort(signal);
            if (done) break;
            if (known && size + value.length > opened.size) throw wrongSize('more');
            if (size + value.length > room) {
                const more = Math.max(STEP, value.length);
                extend(more);
                room += more;
            }
            heap().set(value, start + size);
            if (hash) bw._bw_sha256_add(start + size, value.length);
            size += value.length;
            if (performance.now() - waited > 50) {
                await turn();
                checkAbort(signal);
                waited = performance.now();
            }
        }
    } finally {
        signal.removeEventListener('abort', stop);
        stop();
    }
    if (known && size !== opened.size) throw wrongSize(size);
    return size;
}

const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, '0')).join('');

function checkHash(expected) {
    const got = hex(bytesAt(bw._bw_sha256_end(), 32));
    if (got !== expected.toLowerCase())
        throw new BitNetError('ERR_CHECKSUM', `the file's SHA-256 is ${got}, not ${expected}`);
}

/** Reads the file into memory and loads the model. A file that turns out to be bad is not kept. */
async function loadFile(source, { download, sha256, signal, report }) {
    const stop = new AbortController(); // aborted by the caller, or because the file is too large
    let total;
    signal.addEventListener('abort', () => stop.abort());
    const opened = await openSource(source, {
        ...download,
        signal: stop.signal,
        onProgress(p) {
            total = p.total ?? undefined;
            if (total > MOST_BYTES)
                stop.abort(); // before the whole download
            else report({ ...p, total, secondsLeft: p.secondsLeft ?? undefined });
        }
    }).catch(e => {
        if (!signal.aborted) checkSize(total);
        throw e;
    });
    const { fromCache, notes } = opened;
    sha256 ??= opened.sha256;
    const loading = loaded =>
        report({ phase: 'load', loaded, total, bytesPerSecond: 0, fromCache, cache: opened.cache });
    try {
        if (sha256) bw._bw_sha256_begin();
        const hash = Boolean(sha256),
            remote = /^https?:/.test(source);
        const size = await readFile(opened, { hash, signal, remote });
        if (sha256) checkHash(sha256);
        total = size;
        loading(0);
        await turn();
        checkAbort(signal);
        check(bw._bw_load(size));
        loading(size);
        return { cache: opened.cache, said: notes };
    } catch (e) {
        // what is refused is not kept, unless the fault is this machine's
        const spared = ['ERR_MEMORY', 'ERR_SELFTEST', 'ERR_IO', 'ERR_INTERNAL'];
        if (e instanceof BitNetError && !spared.includes(e.code)) await opened.discard();
        throw e;
    } finally {
        await opened.close();
    }
}

/** The SHA-256 of what the cache keeps of a URL, without a request. */
export async function hash({ source }, signal, id) {
    const report = event => post({ id, event });
    const room = extend(SLICE);
    const opened = await openKept(source, { signal, onProgress: report });
    let size = 0;
    bw._bw_sha256_begin();
    try {
        const reader = opened.stream().getReader();
        for (let r; !(r = await reader.read()).done; await turn()) {
            checkAbort(signal);
            for (let from = 0; from < r.value.length; from += SLICE) {
                const part = r.value.subarray(from, from + SLICE);
                heap().set(part, room);
                bw._bw_sha256_add(room, part.length);
            }
            size += r.value.length;
        }
    } finally {
        await opened.close();
    }
    if (size !== opened.size)
        throw new BitNetError('ERR_IO', `${size} bytes are kept, of ${opened.size}`);
    return hex(bytesAt(bw._bw_sha256_end(), 32));
}

/** What the model's chat template can be asked; null: it has none that is known. */
function chatOf() {
    const names = [];
    for (let at; (at = bw._bw_chat_name(names.length));) names.push(stringAt(at));
    const [template, ...efforts] = names;
    return template ? { template, thinking: Boolean(bw._bw_can_be_quiet()), efforts } : null;
}

function describe(cache, notes) {
    const info = { arch: stringAt(bw._bw_arch()), kernels: stringAt(bw._bw_kernels()) };
    NUMBERS.forEach((name, i) => {
        info[name] = bw._bw_number(i);
    });
    info.hasHead = Boolean(info.hasHead);
    info.pooling = POOLINGS[info.pooling];
    const chat = chatOf();
    return { ...info, chat, memoryBytes: memory.buffer.byteLength, variant, cache, notes };
}

export async function load({ source, options }, signal, id) {
    const report = event => post({ id, event });
    const { cache, said } = await loadFile(source, { ...options, signal, report });
    const { context, threads, sessions, kvType } = options;
    check(bw._bw_ctx(context, BATCH, variant === 'simd' ? 1 : threads, sessions, kvType));
    newSessions(sessions);
    const info = describe(cache, said);
    if (info.contextTrained && info.context > info.contextTrained)
        info.notes.push(
            `the context has ${info.context} tokens, but the model was trained for ` +
                `${info.contextTrained}: longer texts may become worse`
        );
    return info;
}
