// load.js - reads a model's file into the module's memory.
import { openKept, openSource } from '../shared/cache/cache.js';
import { isNode } from '../shared/cache/http.js';
import { BitNetError } from '../shared/errors.js';
import { newSessions } from './chat.js';
import { BATCH } from './generate.js';
import {
    bw, bytesAt, check, checkAbort, heap, instantiate, memory, memoryNotes, NUMBERS, POOLINGS, post,
    startThreads, stringAt, turn, variant, withBytes, withInstead
} from './module.js';

const SLICE = 1 << 20; // bytes hashed at a time
const MOST_BYTES = 2 ** 32 - (1 << 24); // of a file, in 4 GB of memory

/** The module would see only the low 32 bits of a larger size. */
function checkSize(size) {
    if (size > MOST_BYTES)
        throw new BitNetError('ERR_LIMIT', `${size} bytes do not fit in WebAssembly's memory`);
}

function addToHash(bytes) {
    for (let from = 0; from < bytes.length; from += SLICE)
        withBytes(bytes.subarray(from, from + SLICE), (at, n) => bw._bw_sha256_add(at, n));
}

const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, '0')).join('');

function checkHash(expected) {
    const got = hex(bytesAt(bw._bw_sha256_end(), 32));
    if (got !== expected.toLowerCase())
        throw new BitNetError('ERR_CHECKSUM', `the file's SHA-256 is ${got}, not ${expected}`);
}

/** The parts of a file, one after the other. */
async function* partsOf(opened, code, signal) {
    let size = 0;
    const broken = e => {
        checkAbort(signal);
        throw e.code ? e : new BitNetError(code, `after ${size} bytes: ${e.message}`);
    };
    const reader = opened.stream().getReader();
    const stop = () => reader.cancel().catch(() => {});
    signal.addEventListener('abort', stop);
    try {
        for (;;) {
            const { done, value } = await reader.read().catch(broken);
            checkAbort(signal);
            if (done) return;
            size += value.length;
            yield value;
        }
    } finally {
        signal.removeEventListener('abort', stop);
        stop();
    }
}

/** Begins a model from a file of so many bytes (null: unknown). take(part) gets the parts of the file, in
 * order, and end() follows the last one. The module says which bytes it wants next, and where; all
 * others are passed over. */
function newModel(size) {
    let want, got, at = 0; // of the wanted bytes, got are there; at: where the next part begins
    const next = result => {
        check(result);
        want = { n: bw._bw_want(0), at: bw._bw_want(1), to: bw._bw_want(2) };
        got = 0;
    };
    next(bw._bw_load(size ?? -1));
    return {
        take(part) {
            for (let from; want.n && (from = want.at + got - at) < part.length; ) {
                const piece = part.subarray(from, from + want.n - got);
                heap().set(piece, want.to + got);
                got += piece.length;
                if (got === want.n) next(bw._bw_load_on());
            }
            at += part.length;
        },
        end() {
            if (size === null && want.n) next(bw._bw_load_end(got));
        }
    };
}

/** Loads the model while its file is read; returns the file's size. With a checksum the file is read to
 * the end even if the module refuses it: that it is damaged says more. */
async function readFile(opened, { sha256, signal, remote }) {
    const { size } = opened,
        code = remote ? 'ERR_NETWORK' : 'ERR_IO';
    const wrongSize = got =>
        new BitNetError(code, `the file should have ${size} bytes, but ${got} came`);
    if (sha256) bw._bw_sha256_begin();
    const model = newModel(size);
    let refused,
        came = 0,
        waited = performance.now();
    for await (const part of partsOf(opened, code, signal)) {
        came += part.length;
        if (size !== null && came > size) throw wrongSize('more');
        checkSize(came);
        if (sha256) addToHash(part);
        try {
            if (!refused) model.take(part);
        } catch (e) {
            if (!sha256) throw e;
            refused = e;
        }
        if (performance.now() - waited > 50) {
            await turn();
            checkAbort(signal);
            waited = performance.now();
        }
    }
    if (size !== null && came !== size) throw wrongSize(came);
    if (sha256) checkHash(sha256);
    if (refused) throw refused;
    model.end();
    return came;
}

const isPath = source =>
    isNode && typeof source === 'string' && !/^(https?|data|blob):/i.test(source);

/** Loads the model. The memory for it is taken as soon as the file's size is known. A file that turns
 * out to be bad is not kept. */
async function loadFile(source, { download, sha256, signal, report }) {
    const stop = new AbortController(); // aborted by the caller, or because the file does not fit
    let total, started, failure;
    signal.addEventListener('abort', () => stop.abort());
    const start = async bytes => {
        try {
            checkSize(bytes);
            await instantiate(bytes);
        } catch (e) {
            failure = e;
            stop.abort(); // before the whole download
        }
    };
    await startThreads();
    checkAbort(signal);
    const opened = await openSource(source, {
        ...download,
        signal: stop.signal,
        onProgress(p) {
            total = p.total ?? undefined;
            if (total !== undefined) started ??= start(total);
            if (!failure) report({ ...p, total, secondsLeft: p.secondsLeft ?? undefined });
        }
    }).catch(e => {
        throw signal.aborted ? e : (failure ?? e);
    });
    const { fromCache, notes } = opened;
    sha256 ??= opened.sha256;
    const loading = loaded =>
        report({ phase: 'load', loaded, total, bytesPerSecond: 0, fromCache, cache: opened.cache });
    try {
        await (started ??= start(opened.size));
        checkAbort(signal);
        if (failure) throw failure;
        const remote = /^https?:/.test(source);
        total = await readFile(opened, { sha256, signal, remote });
        loading(0);
        loading(total);
        return { cache: opened.cache, said: [...notes, ...memoryNotes()] };
    } catch (e) {
        // what is refused is not kept, unless the fault is this machine's
        const spared = ['ERR_MEMORY', 'ERR_SELFTEST', 'ERR_IO', 'ERR_INTERNAL'];
        if (e instanceof BitNetError && !spared.includes(e.code)) {
            await opened.discard();
            if (isPath(source)) e.message = `${source}: ${e.message}`;
        }
        throw e;
    } finally {
        await opened.close();
    }
}

/** The SHA-256 of what the cache keeps of a URL, without a request. */
export async function hash({ source }, signal, id) {
    const report = p => post({ id, event: { ...p, secondsLeft: p.secondsLeft ?? undefined } });
    await instantiate(0);
    const opened = await openKept(source, { signal, onProgress: report });
    let size = 0;
    bw._bw_sha256_begin();
    try {
        for await (const part of partsOf(opened, 'ERR_IO', signal)) {
            addToHash(part);
            size += part.length;
            await turn();
            checkAbort(signal);
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

async function loadAll(source, options, signal, id) {
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

export const load = ({ source, options }, signal, id) =>
    loadAll(source, options, signal, id).catch(e => {
        throw withInstead(e);
    });
