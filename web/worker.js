// What holds the model: loads it into the memory of the WASM module, runs it and answers bitnet.js.
// start() gives the function that takes its messages: { id, op, ...arguments } and { cancel: id }. It
// sends { id, value }, { id, error }, { id, event }, and { starting } before and after its threads
// start.
import { openKept, openSource } from './cache.js';
import { BitNetError, abortError, engineCode } from './errors.js';

const ADD_BOS = 1; // flags of bw_tokenize
const PARSE_SPECIAL = 4;
const FILES_BOS = 8;
const BATCH = 128; // tokens evaluated together; more would cost memory
const BATCH_BESIDE = 32; // while others write, who wait for it
const SLICE = 1 << 20; // bytes hashed at a time
const STEP = 16 << 20; // bytes by which the memory for a file of unknown size grows
const MOST_BYTES = 2 ** 32 - (1 << 24); // of a file, in 4 GB of memory
const REASONS = ['end', 'length', 'stop', 'abort', 'mask']; // bitnet_stop
const NUMBERS = [ // bw_number
    'layers', 'vocabulary', 'context', 'contextTrained', 'parameters', 'fileBytes', 'threads',
    'sessions', 'dims', 'hasHead', 'pooling'
];
const POOLINGS = [null, 'mean', 'first', 'last']; // bitnet_pooling

let bw; // the module's functions
let memory; // its WebAssembly.Memory
let variant; // simd, threads or relaxed
let host; // what start() was given
const post = (message, transfer) => host.post(message, transfer);
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
function withTexts(strings, use) {
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
const turn = () =>
    new Promise(resolve => {
        if (!channel) return setImmediate(resolve);
        waking.push(resolve);
        channel.port2.postMessage(0);
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

/** The SHA-256 of what the cache keeps of a URL, without a request. */
async function hash({ source }, signal, id) {
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

function describe(cache, notes) {
    const info = { arch: stringAt(bw._bw_arch()), kernels: stringAt(bw._bw_kernels()) };
    NUMBERS.forEach((name, i) => {
        info[name] = bw._bw_number(i);
    });
    info.hasHead = Boolean(info.hasHead);
    info.pooling = POOLINGS[info.pooling];
    return { ...info, memoryBytes: memory.buffer.byteLength, variant, cache, notes };
}

async function load({ source, options }, signal, id) {
    const report = event => post({ id, event });
    const { cache, said } = await loadFile(source, { ...options, signal, report });
    const { context, threads, sessions, kvType } = options;
    check(bw._bw_ctx(context, BATCH, variant === 'simd' ? 1 : threads, sessions, kvType));
    held = Array.from({ length: sessions }, () => []);
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

// ---- chats ----

// What each session holds of its last chat: the first messages, each with the number of tokens up to
// its end. cut: it is a reply, and what the chat template has behind it is missing, at least in part.
let held;

const sameMessage = (a, b) => a.role === b.role && a.content === b.content;

/** How many messages the session holds as they stand here. */
function heldMessages(session, messages) {
    const length = bw._bw_held(session),
        before = held[session];
    let same = 0;
    while (
        same < Math.min(before.length, messages.length) &&
        before[same].end <= length &&
        sameMessage(before[same], messages[same])
    )
        same++;
    return before.slice(0, same).map(m => ({ ...m }));
}

/** Tokenizes messages behind the `keep` tokens that the session holds; returns how many there are. */
function tokenizeChat(session, messages, keep, { close = false, open = 0 }) {
    const n = withTexts(messages.flatMap(m => [m.role, m.content]), (at, sizesAt) =>
        bw._bw_chat_tokenize(session, at, sizesAt, messages.length, keep, close, open)
    );
    if (n >= 0) return n;
    const e = failure(n);
    e.message = e.message.replace(/^message \d+:/, 'messages:'); // of those that are new
    throw e;
}

/** A chat's messages as tokens, and what the session will hold of them. Only new messages are
 * tokenized: the tokens of a generated reply may differ from those of its text, so tokenizing the
 * whole chat again would not match the session. */
function openReply(session, messages) {
    const known = heldMessages(session, messages.slice(0, -1)), // at least one is tokenized
        { end: keep = 0, cut: close = false } = known.at(-1) ?? {},
        rest = messages.slice(known.length);
    if (close)
        Object.assign(known.at(-1), {
            end: tokenizeChat(session, [], keep, { close }),
            cut: false
        });
    for (const message of rest) {
        const end = tokenizeChat(session, [message], known.at(-1)?.end ?? 0, {});
        known.push({ ...message, end, cut: false });
    }
    const n = tokenizeChat(session, rest, keep, { close, open: 1 });
    return { n, known, begun: '', inside: '' };
}

/** What a reply adds to its opening, where the template always writes thinking: one without it ends
 * that which is open. */
function behindOpening(content, thinking) {
    if (!bw._bw_writes_thought()) return content;
    if (!thinking) return content.replace(/^<think>[^]*?<\/think>\n*/, '');
    if (content.startsWith('<think>')) return content.slice('<think>'.length).replace(/^\n/, '');
    return content.includes('</think>') ? content : `\n</think>\n\n${content}`;
}

/** The same for a chat whose last message is a reply: the text goes on behind it. */
function continueReply(session, messages, thinking) {
    const known = heldMessages(session, messages),
        { content } = messages.at(-1),
        inside = behindOpening(content, thinking);
    if (known.length === messages.length) {
        const { end, cut } = known.pop(), // without what ended it
            rest = cut ? Number(bw._bw_ends(session, end - 1)) : bw._bw_reply_rest(0);
        return { n: tokenizeChat(session, [], end - rest, {}), known, begun: content, inside };
    }
    const { n, known: others } = openReply(session, messages.slice(0, -1));
    const more = withBytes(encoder.encode(inside), (at, size) => check(bw._bw_append(n, at, size)));
    return { n: more, known: others, begun: content, inside };
}

const OPEN = '<think>\n';
/** Does a reply that has begun so begin inside of thinking? */
const inThought = begun =>
    Boolean(withBytes(encoder.encode(begun), (at, n) => bw._bw_in_thought(at, n)));

function chatTokens(session, messages, { thinking, effort = '', earlierThinking: earlier }) {
    const keeps = earlier === undefined ? 0 : earlier ? 1 : -1;
    const hasEfforts = withBytes(encoder.encode(effort), (at, n) =>
        bw._bw_chat_options(at, n, keeps, thinking)
    );
    const style = `${keeps}${hasEfforts ? `${effort}${thinking}` : ''}`;
    if ((held[session].style ?? style) !== style) held[session] = []; // it says so in front
    const chat =
        messages.length > 1 && messages.at(-1).role === 'assistant'
            ? continueReply(session, messages, thinking)
            : openReply(session, messages);
    return { ...chat, style };
}

/** Notes that the session also holds a reply, which began with this text behind n tokens. What was
 * written lacks some of its tokens if a stop string ended it, or if an abort came in the middle of a
 * character. An abort may also come when a token is drawn that nobody has got: it is no part of it. */
function holdReply(session, { n, begun }, { tokens, reply }) {
    const whole = bw._bw_reason(session) >= 0 && REASONS[bw._bw_reason(session)] !== 'stop';
    if (!tokens.length || (!whole && detokenize({ tokens: Int32Array.from(tokens) }) !== reply))
        return;
    const end = n + tokens.length;
    const ended = end === bw._bw_held(session) && bw._bw_ends(session, end - 1);
    const cut = !ended || bw._bw_reply_rest(1) > 0;
    held[session].push({ role: 'assistant', content: begun + reply, end, cut });
}

// ---- passes ----
// A pass over the weights writes one token of every session that waits for one: so several cost
// little more than one. Between two passes the event loop delivers messages.

let waiting = []; // { session, resolve, reject }

function nextToken(session) {
    return new Promise((resolve, reject) => {
        waiting.push({ session, resolve, reject });
        if (waiting.length === 1) turn().then(pass);
    });
}

function step(some) {
    const list = new Uint8Array(Int32Array.from(some, w => w.session).buffer);
    return withBytes(list, at => bw._bw_step(at, some.length));
}

/** If it fails, each session is tried alone, so that only those fail that cannot go on. Each then
 * reads its logits before the next one's pass. */
async function pass() {
    const all = waiting;
    waiting = [];
    try {
        const alone = step(all) < 0;
        for (const one of all) {
            const code = alone ? step([one]) : 0;
            if (code < 0) one.reject(failure(code));
            else one.resolve();
            if (alone) await null;
        }
    } catch (e) {
        for (const one of all) one.reject(e); // a crash
    }
}

// ---- generation ----

let reading = 0; // generations that read their prompts
let pace = 0; // tokens per ms of the last chunk; 0: there was none

/** Evaluates the prompt, but for its last token, in chunks of about a second, so that a cancel takes
 * effect soon; shorter ones if others write. */
async function prefill(id, session, n, reused, signal) {
    const report = left =>
        post({ id, event: { promptTokens: n, reusedTokens: reused, readTokens: n - left } });
    let left = n - reused;
    report(left);
    while (left > 1) {
        const start = performance.now(),
            before = left;
        const most = waiting.length || reading > 1 ? BATCH_BESIDE : BATCH;
        const chunk = 16 * Math.max(1, Math.round((1000 * pace) / 16)); // kernels take 16 at a time
        left = check(bw._bw_prefill(session, Math.min(chunk, most)));
        report(left);
        pace = (before - left) / Math.max(performance.now() - start, 1);
        await turn();
        checkAbort(signal);
    }
}

const asked = new Map(); // id of a generation -> what takes the answer to its question

/** Asks the caller's mask which tokens may come next. */
async function askMask(id, session, signal) {
    checkAbort(signal);
    let stop;
    const tokens = await new Promise((resolve, reject) => {
        stop = () => reject(abortError());
        signal.addEventListener('abort', stop);
        asked.set(id, resolve);
        post({ id, event: { ask: 'mask' } });
    }).finally(() => {
        signal.removeEventListener('abort', stop);
        asked.delete(id);
    });
    if (!tokens) return check(bw._bw_allow(session, 0, -1));
    withBytes(new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength), at =>
        check(bw._bw_allow(session, at, tokens.length))
    );
}

function tokenBytes(token) {
    const n = check(bw._bw_token_bytes(token)); // first, for it sets the text
    return bytesAt(bw._bw_text(), n);
}

/** The logarithms of probabilities: the token's own, and those of the n most likely ones. */
function logprobsOf(session, n) {
    const at = bw._bw_logprobs(session, n) >>> 0;
    if (!at) throw new BitNetError('ERR_INTERNAL', 'there are no logits');
    const { buffer } = bytesAt(at, 8 * (1 + n));
    const ids = new Int32Array(buffer),
        floats = new Float32Array(buffer);
    const all = Array.from({ length: 1 + n }, (_, i) => {
        const token = ids[2 * i],
            bytes = tokenBytes(token);
        return { token, text: decoder.decode(bytes), bytes, logprob: floats[2 * i + 1] };
    });
    return { ...all[0], top: all.slice(1) };
}

/** Adds the reply's tokens and text to got. `opened` stands in front of the first text. */
async function decode(id, session, { logprobs, masked }, signal, got, opened) {
    for (let index = 0; ; index++) {
        if (masked) await askMask(id, session, signal);
        await nextToken(session);
        checkAbort(signal);
        const token = bw._bw_piece(session);
        const written = decoder.decode(bytesAt(bw._bw_text(), bw._bw_text_length()));
        const text = index ? written : opened + written;
        const some = logprobs !== undefined && token >= 0; // a mask may have allowed no token
        const more = some ? { logprobs: logprobsOf(session, logprobs) } : {};
        if (token >= 0) got.tokens.push(token);
        got.reply += written;
        post({ id, event: { token, text, index, ...more } });
        if (bw._bw_reason(session) >= 0) return;
    }
}

/** Tells the module how a session is to draw its tokens. thinks: the text begins inside of thinking,
 * which the rules do not bind. */
function setSampler(session, o, thinks) {
    const { temperature, topK, topP, minP, repeatPenalty, frequencyPenalty, presencePenalty } = o;
    bw._bw_sampler(
        session, temperature, topK, topP, minP, repeatPenalty, frequencyPenalty, presencePenalty,
        o.seed
    );
    const bias = new ArrayBuffer(8 * o.logitBias.length);
    o.logitBias.forEach(([token, value], i) => {
        new Int32Array(bias)[2 * i] = token;
        new Float32Array(bias)[2 * i + 1] = value;
    });
    bw._bw_bias(session, put(new Uint8Array(bias)), o.logitBias.length);
    const grammar = o.grammar ?? o.jsonSchema;
    if (grammar !== undefined) {
        const bytes = encoder.encode(grammar);
        const isSchema = o.grammar === undefined;
        check(bw._bw_grammar(session, put(bytes), bytes.length, isSchema, thinks));
    }
    if (o.masked) check(bw._bw_allow(session, 0, -1));
}

async function generate({ session, prompt, messages, options }, signal, id) {
    check(bw._bw_writes());
    const start = performance.now();
    const chat = messages && chatTokens(session, messages, options);
    const n = chat ? chat.n : tokensOf(prompt, FILES_BOS);
    const thinks = Boolean(chat && options.thinking && inThought(chat.inside));
    const opened = thinks && !chat.begun ? OPEN : '';
    if (opened) chat.begun = OPEN; // the template has written it
    const { stop, maxTokens, seed } = options;
    const reused = check(bw._bw_begin(session, n, maxTokens));
    const got = { tokens: [], reply: '' };
    const hold = () => {
        bw._bw_end(session);
        held[session] = chat?.known ?? [];
        held[session].style = chat?.style;
        if (chat) holdReply(session, chat, got);
    };
    held[session] = [];
    let middle;
    try {
        setSampler(session, options, thinks);
        reading++;
        await prefill(id, session, n, reused, signal).finally(() => reading--);
        middle = performance.now();
        withTexts(stop, (...strings) => check(bw._bw_open(session, ...strings)));
        await decode(id, session, options, signal, got, opened);
    } catch (e) {
        if (signal.aborted) hold();
        else bw._bw_end(session);
        throw e;
    }
    hold();
    const tokens = got.tokens.length;
    const reason = REASONS[bw._bw_reason(session)];
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

// ---- embeddings ----

/** The vectors of texts, of which the first has this number in the caller's list. */
async function embed({ texts, first, pooling, raw, cut }, signal) {
    await turn(); // a cancel may have come
    checkAbort(signal);
    const tokens = withTexts(texts, (...all) =>
        bw._bw_embed(...all, POOLINGS.indexOf(pooling), raw, cut)
    );
    if (tokens < 0) {
        const e = failure(tokens);
        e.message = e.message.replace(/^input (\d+)/, (_, i) => `texts[${first + Number(i)}]`);
        throw e;
    }
    const size = 4 * bw._bw_number(NUMBERS.indexOf('dims')),
        start = bw._bw_vectors() >>> 0;
    const vectors = texts.map((_, i) => new Float32Array(bytesAt(start + i * size, size).buffer));
    return { vectors, tokens };
}

// ---- saved sessions ----
// SAVED, the SHA-256 of the held messages, their length, they as JSON, and the state, which has a
// checksum of its own.

const SAVED = encoder.encode('bitnet-session1\n');
const HEAD = SAVED.length + 32 + 4;

function sha256(bytes) {
    bw._bw_sha256_begin();
    withBytes(bytes, (at, n) => bw._bw_sha256_add(at, n));
    return bytesAt(bw._bw_sha256_end(), 32);
}

function save({ session }) {
    const chat = encoder.encode(JSON.stringify(held[session]));
    const size = bw._bw_state_bytes(session);
    const out = new Uint8Array(HEAD + chat.length + size);
    out.set(SAVED);
    out.set(sha256(chat), SAVED.length);
    new DataView(out.buffer).setUint32(HEAD - 4, chat.length, true);
    out.set(chat, HEAD);
    const at = bw._malloc(size) >>> 0;
    if (!at) throw outOfMemory(size);
    try {
        check(bw._bw_save(session, at, size));
        out.set(heap().subarray(at, at + size), out.length - size);
    } finally {
        bw._free(at);
    }
    return out;
}

/** The held messages of a saved session, of which any byte may be wrong. */
function savedChat(bytes) {
    const damaged = new BitNetError('ERR_FORMAT', 'these bytes are no saved session');
    const begins = (start, expected) => expected.every((byte, i) => bytes[start + i] === byte);
    if (bytes.length < HEAD || !begins(0, SAVED)) throw damaged;
    const end = HEAD + new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEAD - 4, true);
    if (end > bytes.length) throw damaged;
    const text = bytes.slice(HEAD, end);
    if (!begins(SAVED.length, sha256(text))) throw damaged;
    let chat;
    try {
        chat = JSON.parse(decoder.decode(text));
    } catch {
        throw damaged;
    }
    let last = 0; // each message has at least one token
    const valid = m =>
        typeof m?.role === 'string' && typeof m.content === 'string' &&
        Number.isSafeInteger(m.end) && m.end > last && (last = m.end) < 2 ** 31 &&
        typeof m.cut === 'boolean';
    if (!Array.isArray(chat) || !chat.every(valid)) throw damaged;
    const messages = chat.map(({ role, content, end, cut }) => ({ role, content, end, cut }));
    return { messages, state: bytes.subarray(end) };
}

/** On failure the session is as before. */
function restore({ session, bytes }) {
    const { messages, state } = savedChat(bytes);
    withBytes(state, (at, n) => check(bw._bw_restore(session, at, n)));
    held[session] = messages.filter(m => m.end <= bw._bw_held(session));
    return bw._bw_held(session);
}

function clear({ session }) {
    bw._bw_clear(session);
    held[session] = [];
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

// Those of a session run one at a time, those of different sessions side by side. A quick one runs
// at once, between two turns of a generation.
const SLOW = { startModule, load, hash, generate, embed, save, restore, clear };
const QUICK = { tokenize, detokenize };
const queues = new Map(); // session, or undefined -> the end of its last call

async function answer(id, work) {
    try {
        const value = await work();
        post({ id, value }, value?.vectors?.map(vector => vector.buffer));
    } catch (e) {
        post({ id, error: plainError(e) });
    }
}

function onMessage({ id, op, cancel, answers, ...args }) {
    if (cancel) return running.get(cancel)?.abort();
    if (answers) return asked.get(answers)?.(args.tokens);
    if (QUICK[op]) return answer(id, () => QUICK[op](args));
    const controller = new AbortController();
    running.set(id, controller);
    const before = queues.get(args.session) ?? Promise.resolve();
    const now = before
        .then(() =>
            answer(id, () => {
                checkAbort(controller.signal);
                return SLOW[op](args, controller.signal, id);
            })
        )
        .then(() => running.delete(id));
    queues.set(args.session, now);
}

/** Begins, as the worker of one model. post(message, transfer) sends to bitnet.js; createModule is emscripten's;
 * threadStarter(script) makes what emscripten takes for the address of its threads' script. */
export function start(its) {
    host = its;
    return onMessage;
}

/** Ends what runs, and forgets the model. Only then start() may be called again. */
export async function stop() {
    for (const controller of running.values()) controller.abort();
    await Promise.all(queues.values());
    queues.clear();
    bw = memory = undefined;
}
