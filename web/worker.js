// What holds the model: loads it into the memory of the WASM module, runs it and answers bitnet.js.
// start() gives the function that takes its messages: { id, op, ...arguments } and { cancel: id }. It
// sends { id, value }, { id, error }, { id, event }, and { starting } before and after its threads
// start.
import { openSource } from './cache.js';
import { BitNetError, abortError, engineCode } from './errors.js';

const ADD_BOS = 1; // flags of bw_tokenize
const PARSE_SPECIAL = 2;
const FILES_BOS = 8;
const BATCH = 128; // tokens evaluated together; more would cost memory
const STEP = 16 << 20; // bytes by which the memory for a file of unknown size grows
const MOST_BYTES = 2 ** 32 - (1 << 24); // of a file, in 4 GB of memory
const REASONS = ['end', 'length', 'stop']; // bitnet_stop
const NUMBERS = [ // bw_number
    'layers', 'vocabulary', 'context', 'contextTrained', 'parameters', 'fileBytes', 'threads'
];

let bw; // the module's functions
let memory; // its WebAssembly.Memory
let variant; // simd, threads or relaxed
let host; // what start() was given
const post = message => host.post(message);
const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // which keeps it in the text
const running = new Map(); // id of a call -> its AbortController

// ---- memory: a view is valid until the next call into the module, which may grow the memory ----

const heap = () => new Uint8Array(memory.buffer);

/** A copy that is not shared memory, which TextDecoder and others refuse. */
const bytesAt = (at, n) => heap().slice(at >>> 0, (at >>> 0) + n);

function stringAt(at) {
    const all = heap();
    return decoder.decode(all.slice(at >>> 0, all.indexOf(0, at >>> 0)));
}

function failure(code) {
    return new BitNetError(stringAt(bw._bw_error_name(code)), stringAt(bw._bw_error()));
}

function check(result) {
    if (result < 0) throw failure(result);
    return result;
}

const megabytes = bytes => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

function outOfMemory(bytes) {
    const has = memory.buffer.byteLength;
    return new BitNetError(
        'ERR_MEMORY',
        `out of memory: ${megabytes(bytes)} more are needed beside the ${megabytes(has)} in use`
    );
}

/** Copies bytes to newly allocated memory. */
function put(bytes) {
    const at = bw._malloc(bytes.length + 1) >>> 0;
    if (!at) throw outOfMemory(bytes.length);
    heap().set(bytes, at);
    return at;
}

function withBytes(bytes, use) {
    const at = put(bytes);
    try {
        return use(at, bytes.length);
    } finally {
        bw._free(at);
    }
}

const zeroEnded = strings => encoder.encode(strings.map(s => s + '\0').join(''));

// ---- turns: let the event loop deliver a cancel ----
// (Not a channel in Node: up to 1000 of its messages in a row are delivered before any others.)

let wake;
const channel = typeof setImmediate === 'function' ? null : new MessageChannel();
if (channel) channel.port1.onmessage = () => wake();
const turn = () =>
    new Promise(resolve => {
        wake = resolve;
        if (channel) channel.port2.postMessage(0);
        else setImmediate(wake);
    });

function checkAbort(signal) {
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
async function startModule({ name, wasm, threads, threadScript }) {
    variant = name;
    held = [];
    try {
        bw = await instantiate(wasm, threads, threadScript);
    } catch (e) {
        const text = String(e?.message ?? e);
        throw new BitNetError(engineCode(text), `no ${name} module: ${text}`);
    }
}

// ---- loading ----

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
async function loadFile(source, { cache, sha256, signal, report }) {
    const stop = new AbortController(); // aborted by the caller, or because the file is too large
    let total;
    signal.addEventListener('abort', () => stop.abort());
    const opened = await openSource(source, {
        cache,
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
    const loading = loaded =>
        report({ phase: 'load', loaded, total, bytesPerSecond: 0, fromCache, cache: opened.cache });
    try {
        if (sha256) bw._bw_sha256_begin();
        const hash = Boolean(sha256), remote = /^https?:/.test(source);
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
        const damaged = ['ERR_CHECKSUM', 'ERR_FORMAT', 'ERR_TRUNCATED', 'ERR_UNSUPPORTED'];
        if (damaged.includes(e.code) || (fromCache && e.code === 'ERR_NETWORK'))
            await opened.discard();
        throw e;
    } finally {
        await opened.close();
    }
}

function describe(cache, notes) {
    const info = { arch: stringAt(bw._bw_arch()), kernels: stringAt(bw._bw_kernels()) };
    NUMBERS.forEach((name, i) => {
        info[name] = bw._bw_number(i);
    });
    return { ...info, memoryBytes: memory.buffer.byteLength, variant, cache, notes };
}

async function load({ source, options }, signal, id) {
    const report = event => post({ id, event });
    const { cache, said } = await loadFile(source, { ...options, signal, report });
    check(bw._bw_ctx(options.context, BATCH, variant === 'simd' ? 1 : options.threads));
    const info = describe(cache, said);
    if (info.contextTrained && info.context > info.contextTrained)
        info.notes.push(
            `the context has ${info.context} tokens, but the model was trained for ` +
                `${info.contextTrained}: longer texts may become worse`
        );
    return info;
}

// ---- text and tokens ----

function tokensOf(text, flags) {
    return withBytes(encoder.encode(text), (at, n) => check(bw._bw_tokenize(at, n, flags)));
}

function tokenize({ text, bos, special }) {
    const n = tokensOf(text, (bos && ADD_BOS) | (special && PARSE_SPECIAL));
    return new Int32Array(bytesAt(bw._bw_tokens(), 4 * n).buffer);
}

function detokenize({ tokens }) {
    const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
    const n = withBytes(bytes, at => check(bw._bw_detokenize(at, tokens.length)));
    return decoder.decode(bytesAt(bw._bw_text(), n));
}

// ---- generation ----

// What the context holds of the last chat: its first messages, each with the number of tokens up to
// its end. cut: the token that ends it is missing, since it is a reply that was not finished.
let held = [];

const sameMessage = (a, b) => a.role === b.role && a.content === b.content;

/** A chat's messages as tokens with the start of a reply, and what the context will hold of them.
 * Only new messages are tokenized: the tokens of a generated reply may differ from those of its
 * text, so tokenizing the whole chat again would not match the context. */
function chatTokens(messages) {
    const length = bw._bw_held();
    let same = 0; // at least one message is tokenized
    while (
        same < Math.min(held.length, messages.length - 1) &&
        held[same].end <= length &&
        sameMessage(held[same], messages[same])
    )
        same++;
    const known = held.slice(0, same).map(m => ({ ...m })),
        { end: keep = 0, cut = false } = known.at(-1) ?? {},
        rest = messages.slice(same);
    const count = (some, keep, cut, open) =>
        withBytes(zeroEnded(some.flatMap(m => [m.role, m.content])), at =>
            check(bw._bw_chat_tokenize(at, some.length, keep, cut, open))
        );
    if (cut) Object.assign(known.at(-1), { end: keep + 1, cut: false });
    for (const message of rest) {
        const end = count([message], known.at(-1)?.end ?? 0, false, false);
        known.push({ ...message, end, cut: false });
    }
    return { n: count(rest, keep, cut, true), known };
}

/** Notes that the context also holds a reply. Its text lacks some of its tokens if a stop string
 * ended it, or if an abort came in the middle of a character. */
function holdReply({ tokens, reply }) {
    const whole = bw._bw_reason() >= 0 && REASONS[bw._bw_reason()] !== 'stop';
    if (!tokens.length || (!whole && detokenize({ tokens: Int32Array.from(tokens) }) !== reply))
        return;
    const cut = !bw._bw_held_ends();
    held.push({ role: 'assistant', content: reply, end: bw._bw_held(), cut });
}

/** Evaluates the prompt, but for its last token, in chunks that are small enough for a cancel to take
 * effect soon. */
async function prefill(id, n, reused, signal) {
    const report = left =>
        post({ id, event: { promptTokens: n, reusedTokens: reused, readTokens: n - left } });
    let left = n - reused;
    report(left);
    for (let chunk = 16; left > 1; ) {
        const start = performance.now();
        left = check(bw._bw_prefill(chunk));
        report(left);
        if (performance.now() - start < 500) chunk = Math.min(2 * chunk, BATCH);
        await turn();
        checkAbort(signal);
    }
}

/** Adds the reply's tokens and text to got. */
async function decode(id, signal, got) {
    for (let index = 0; ; index++) {
        const token = check(bw._bw_next());
        const text = decoder.decode(bytesAt(bw._bw_text(), bw._bw_text_length()));
        got.tokens.push(token);
        got.reply += text;
        post({ id, event: { token, text, index } });
        if (bw._bw_reason() >= 0) return;
        await turn();
        checkAbort(signal);
    }
}

async function generate(args, signal, id) {
    const { maxTokens, temperature, topK, topP, minP, repeatPenalty, seed, stop } = args.options;
    const start = performance.now();
    const chat = args.messages && chatTokens(args.messages);
    const n = chat ? chat.n : tokensOf(args.prompt, FILES_BOS);
    bw._bw_sampler(temperature, topK, topP, minP, repeatPenalty, seed);
    const reused = check(bw._bw_begin(n, maxTokens, put(zeroEnded(stop)), stop.length));
    const got = { tokens: [], reply: '' };
    const hold = () => {
        held = chat?.known ?? [];
        if (chat) holdReply(got);
    };
    held = [];
    let middle;
    try {
        await prefill(id, n, reused, signal);
        middle = performance.now();
        await decode(id, signal, got);
    } catch (e) {
        if (signal.aborted) hold();
        throw e;
    }
    hold();
    const tokens = got.tokens.length;
    const reason = REASONS[bw._bw_reason()];
    const prefillSeconds = (middle - start) / 1000;
    const decodeSeconds = (performance.now() - middle) / 1000;
    return {
        reason,
        promptTokens: n,
        reusedTokens: reused,
        tokens,
        prefillSeconds,
        decodeSeconds,
        prefillPerSecond: (n - reused) / prefillSeconds,
        decodePerSecond: tokens / decodeSeconds,
        seed,
        memoryBytes: memory.buffer.byteLength
    };
}

// ---- messages ----

/** An exception as an object that can be sent. */
function plainError(e) {
    if (e?.name === 'AbortError') return { name: 'AbortError' };
    const message = String(e?.message ?? e);
    if (e instanceof BitNetError || /^ERR_/.test(e?.code))
        return { code: e.code, message, status: e.status };
    // emscripten throws 'unwind' from a call that waits for a crashed thread
    const what = e === 'unwind' ? 'one of its threads stopped' : message;
    const code = engineCode(message);
    return { code, message: code === 'ERR_INTERNAL' ? `the worker crashed: ${what}` : message };
}

// These run one at a time. The others may run between two turns of a generation.
const SLOW = { startModule, load, generate };
const QUICK = { tokenize, detokenize };
let queue = Promise.resolve();

async function answer(id, work) {
    try {
        post({ id, value: await work() });
    } catch (e) {
        post({ id, error: plainError(e) });
    }
}

function onMessage({ id, op, cancel, ...args }) {
    if (cancel) return running.get(cancel)?.abort();
    if (QUICK[op]) return answer(id, () => QUICK[op](args));
    const controller = new AbortController();
    running.set(id, controller);
    queue = queue
        .then(() =>
            answer(id, () => {
                checkAbort(controller.signal);
                return SLOW[op](args, controller.signal, id);
            })
        )
        .then(() => running.delete(id));
}

/** Begins, as the worker of one model. post(message) sends to bitnet.js; createModule is emscripten's;
 * threadStarter(script) makes what emscripten takes for the address of its threads' script. */
export function start(its) {
    host = its;
    return onMessage;
}

/** Ends what runs, and forgets the model. */
export function stop() {
    for (const controller of running.values()) controller.abort();
    queue = queue.then(() => {
        bw = memory = undefined;
    });
}
