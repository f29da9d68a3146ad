// generate.js - reads prompts and writes texts, for several sessions side by side.
import { abortError, BitNetError } from '../shared/errors.js';
import {
    chatTokens, detokenize, held, holdReply, OPEN, replyState, template, tokensOf
} from './chat.js';
import {
    bw, bytesAt, check, checkAbort, decoder, encoder, failure, memory, post, put, stringAt, turn,
    withBytes, withTexts
} from './module.js';
import { save, savedText, stopped } from './saved.js';

const FILES_BOS = 8;
export const BATCH = 128; // tokens evaluated together; more would cost memory
const BATCH_BESIDE = 32; // while others write, who wait for it
export const REASONS = ['end', 'length', 'stop', 'abort', 'mask']; // bitnet_stop

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
const LEAST = 16; // of a chunk: kernels take 16 tokens at a time

/** How many tokens to read at once: a pass over more of them is faster, by a fifth from 16 to 64 and
 * by another tenth to 128, but a cancel waits for its end. So what takes about 2 seconds. */
function chunkSize() {
    let chunk = BATCH;
    while (chunk > LEAST && chunk > 2400 * pace) chunk /= 2;
    return chunk;
}

/** Evaluates the prompt, but for its last token, in chunks; shorter ones if others write. */
async function prefill(id, session, n, reused, signal) {
    const report = left =>
        post({ id, event: { promptTokens: n, reusedTokens: reused, readTokens: n - left } });
    let left = n - reused;
    report(left);
    while (left > 1) {
        const start = performance.now(),
            before = left;
        const most = waiting.length || reading > 1 ? BATCH_BESIDE : BATCH;
        left = check(bw._bw_prefill(session, Math.min(chunkSize(), most)));
        report(left);
        const read = before - left; // of fewer a pass takes as long
        if (read >= LEAST) pace = read / Math.max(performance.now() - start, 1);
        await turn();
        checkAbort(signal);
    }
}

export const asked = new Map(); // id of a generation -> what takes the answer to its question

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

// ---- a session that is saved while it writes ----

const texts = new Map(); // session -> the text that it writes, and who waits for its bytes

export const writes = session => texts.has(session);

/** A text can go on elsewhere behind a token with which a character ends, and no stop string may have
 * begun. Whoever wants the bytes at another place gets them a little later. */
function giveBytes(session) {
    const { got, waiting, ...text } = texts.get(session);
    if (!waiting.length || !got.tokens.length) return;
    if (detokenize({ tokens: Int32Array.from(got.tokens) }) !== got.reply) return;
    const rng = [0, 1].map(half => bw._bw_rng(session, half) >>> 0);
    for (const { resolve, reject } of waiting.splice(0)) {
        try {
            resolve(savedText(session, { ...text, reply: got.reply, rng }));
        } catch (e) {
            reject(e);
        }
    }
}

/** The bytes of a session that writes. They hold where its text is, so that it can go on. */
export function saveText({ session }) {
    const { waiting, rules } = texts.get(session);
    if (rules)
        throw new BitNetError('ERR_BUSY', 'a text that keeps to rules is saved when it has ended');
    return new Promise((resolve, reject) => {
        waiting.push({ resolve, reject });
        giveBytes(session);
        if (waiting.length) texts.get(session).wake?.();
    });
}

/** The text has ended, and the session is as any other. */
function endText(session) {
    const { waiting } = texts.get(session);
    texts.delete(session);
    for (const { resolve, reject } of waiting) {
        try {
            resolve(save({ session }));
        } catch (e) {
            reject(e);
        }
    }
}

/** The text with which a session was restored, as what generate() writes on. */
function restoredText(session) {
    const text = stopped[session];
    if (!text) throw new BitNetError('ERR_ARG', 'this session was not saved while it wrote');
    const { tokens, prompt, reply, rng, opened, chat } = text,
        n = tokens.length;
    withBytes(new Uint8Array(tokens.buffer), at => check(bw._bw_take(session, at, n)));
    const got = { tokens: [...tokens.subarray(prompt)], reply, paused: 0 };
    return { n, prompt, rng, opened, chat, got };
}

// ---- what the caller has not taken yet ----
// A loop that pauses pauses the model, too: no more than WINDOW tokens wait for it.

const WINDOW = 16;
const windows = new Map(); // id of a generation -> { open, wake }

/** The caller has taken so many tokens of a generation; Infinity: it has ended it. */
export function taken(id, count) {
    const window = windows.get(id);
    if (!window) return;
    window.open += count;
    if (window.open > 0) window.wake();
}

/** Waits until the caller may get another token, or somebody waits for the session's bytes, which only
 * another token may bring; returns for how long. */
async function room(id, session, signal) {
    const window = windows.get(id),
        text = texts.get(session);
    if (window.open > 0 || text.waiting.length) return 0;
    const start = performance.now();
    await new Promise(resolve => {
        window.wake = text.wake = resolve;
    });
    checkAbort(signal);
    return performance.now() - start;
}

/** Adds the reply's tokens and text to got, and the time in which the caller paused. `opened`
 * stands in front of the first text. */
async function decode(id, session, { logprobs, masked }, signal, got, opened) {
    for (let index = got.tokens.length; ; ) {
        giveBytes(session);
        got.paused += await room(id, session, signal);
        if (masked) await askMask(id, session, signal);
        await nextToken(session);
        checkAbort(signal);
        const n = bw._bw_piece(session); // 0: a mask has allowed no token
        const written = decoder.decode(bytesAt(bw._bw_text(), bw._bw_text_length()));
        const tokens = new Int32Array(bytesAt(bw._bw_piece_tokens(session), 4 * n).buffer);
        const some = logprobs !== undefined && n;
        const more = some ? { logprobs: logprobsOf(session, logprobs) } : {};
        got.tokens.push(...tokens);
        got.reply += written;
        const ended = bw._bw_reason(session) >= 0;
        windows.get(id).open -= n;
        for (let i = 0; i < Math.max(n, 1); i++, index++) {
            const text = (index ? '' : opened) + (i >= n - 1 ? written : '');
            post({ id, event: { token: n ? tokens[i] : -1, text, index, ...more } });
        }
        if (ended) return;
    }
}

/** Is this tag a token? */
const isToken = tag => withBytes(encoder.encode(tag), (at, n) => bw._bw_is_token(at, n));

/** Any text without <tool_call>. Each < may begin it, so as much of it as there may be (free-part)
 * stands before the end, the next <, or a character with which it is no tag (free-on). */
const BEHIND = [...'tool_call>'],
    BEGUN = BEHIND.map((c, i) => `"<${BEHIND.slice(0, i).join('')}" [^<${c}]`),
    FREE =
        'free ::= ([^<] | free-part* free-on)* free-part*\n' +
        'free-part ::= "<" ("t" ("o" ("o" ("l" ("_" ("c" ("a" ("l" ("l")?)?)?)?)?)?)?)?)?\n' +
        `free-on ::= ${BEGUN.join(' | ')}\n`;

/** The rules around a grammar or schema. `begun` is where the reply is. calls: what a reply may
 * call, whose schemas, and that of a text, are the $defs of the schema. */
function rulesAround({ thinks, begun, isCall, holds }, { calls }) {
    if (calls?.isStrict && (isCall || holds))
        throw new BitNetError('ERR_ARG', 'tools: a call that has begun cannot be made strict');
    const isFree = calls && !calls.must && !calls.hasText;
    const mayThink =
        isFree && template().thinks && !begun && !thinks && isToken('<think>') && isToken('</think>');
    if (!calls && !thinks) return '';
    const tag = name => (isToken(name) ? name : `"${name}"`);
    const thought = thinks ? `thought ${isFree ? '' : '"\\n\\n" '}` : '';
    const rest = !calls ? 'root' : isFree ? 'free calls?' : calls.must ? 'calls' : '(def-text | calls)';
    const own = !calls
        ? ''
        : (isFree ? FREE : '') +
          calls.rules +
          `calls ::= ${calls.one ? 'call' : 'call ("\\n" call)*'}\n` +
          `call ::= ${tag('<tool_call>')} "\\n" (${calls.forms}) "\\n" ${tag('</tool_call>')}\n`;
    return (
        (thinks || mayThink ? stringAt(bw._bw_thought()) : '') +
        `text ::= ${thought}${mayThink ? '(<think> thought)? ' : ''}${rest}\n${own}`
    );
}

/** The error of an option. */
const named = (option, { code, message }) =>
    new BitNetError(code, message.startsWith(option) ? message : `${option}: ${message}`);

/** Tells the module how a session is to draw its tokens. begun: where a chat's reply is;
 * thinking is not bound by the rules. rng: where the sampler is, if that is not its seed. */
function setSampler(session, o, begun, rng) {
    const seed = BigInt.asUintN(64, BigInt(o.seed));
    const [low, high] = rng ?? [Number(seed & 0xffffffffn), Number(seed >> 32n)];
    bw._bw_sampler(
        session,
        o.temperature,
        o.topK,
        Math.max(o.topP, 1e-9), // 0 would mean all tokens
        o.minP,
        o.repeatPenalty,
        o.repeatWindow,
        o.frequencyPenalty,
        o.presencePenalty,
        low,
        high
    );
    const ends = o.ignoreEnd ? 64 : 0; // at most so many are forbidden
    const bias = new ArrayBuffer(8 * (o.logitBias.length + ends));
    o.logitBias.forEach(([token, value], i) => {
        new Int32Array(bias)[2 * i] = token;
        new Float32Array(bias)[2 * i + 1] = value;
    });
    bw._bw_bias(session, put(new Uint8Array(bias)), o.logitBias.length, ends);
    const grammar = o.grammar ?? o.jsonSchema;
    if (grammar !== undefined) {
        const rules = begun ? rulesAround(begun, o) : '';
        const bytes = encoder.encode(grammar + rules);
        const behind = encoder.encode(rules).length;
        const isSchema = o.grammar === undefined;
        const code = bw._bw_grammar(session, put(bytes), bytes.length, isSchema, behind);
        if (code < 0) throw named(isSchema ? 'jsonSchema' : 'grammar', failure(code));
    }
    if (o.masked) check(bw._bw_allow(session, 0, -1));
}

/** What generate() is to write: from a chat or a prompt, or on with what was restored. */
function beginText(id, { session, prompt, messages, resumes, options }) {
    if (resumes) return restoredText(session);
    const chat = messages && chatTokens(session, messages, options);
    const n = chat ? chat.n : tokensOf(prompt, FILES_BOS);
    const begun = chat && replyState(chat.inside);
    const opened = begun?.thinks && !chat.begun ? OPEN : '';
    const primer = chat?.begun ? (chat.opens ? OPEN : '') + chat.inside : '';
    if (opened) chat.begun = OPEN; // the template has written it
    if (chat) post({ id, event: { begins: primer } });
    return { n, prompt: n, begun, opened, chat, got: { tokens: [], reply: '', paused: 0 } };
}

export async function generate({ session, options, ...what }, signal, id) {
    check(bw._bw_writes());
    const start = performance.now();
    const text = beginText(id, { session, options, ...what });
    const { n, begun, opened, chat, got } = text,
        before = got.tokens.length;
    const { stop, maxTokens, seed, lookup } = options;
    const isFull = maxTokens > 0 && before >= maxTokens;
    const most = maxTokens && Math.max(maxTokens - before, 1);
    const reused = check(bw._bw_begin(session, n, most, lookup));
    if (!what.resumes) delete stopped[session]; // it is over
    const hold = () => {
        bw._bw_end(session);
        held[session] = chat?.known ?? [];
        held[session].style = chat?.style;
        if (chat) holdReply(session, { ...chat, n: text.prompt }, got);
    };
    held[session] = [];
    const rules = options.masked || (options.grammar ?? options.jsonSchema) !== undefined;
    texts.set(session, { prompt: text.prompt, opened, chat, got, rules, waiting: [] });
    let middle;
    try {
        setSampler(session, options, begun, text.rng);
        reading++;
        await prefill(id, session, n, reused, signal).finally(() => reading--);
        middle = performance.now();
        withTexts(stop, (...strings) => check(bw._bw_open(session, ...strings)));
        windows.set(id, { open: WINDOW, wake() {} });
        const resumed = { token: -1, text: opened + got.reply, index: 0, before };
        if (before) post({ id, event: resumed });
        if (!isFull) await decode(id, session, options, signal, got, opened);
    } catch (e) {
        if (signal.aborted) hold();
        else bw._bw_end(session);
        endText(session);
        throw e;
    } finally {
        windows.delete(id);
    }
    delete stopped[session];
    hold();
    endText(session);
    const tokens = got.tokens.length;
    const reason = isFull ? 'length' : REASONS[bw._bw_reason(session)];
    const prefillSeconds = (middle - start) / 1000;
    const decodeSeconds = (performance.now() - middle - got.paused) / 1000;
    return {
        reason,
        promptTokens: n,
        reusedTokens: reused,
        tokens,
        prefillSeconds,
        decodeSeconds,
        prefillPerSecond: (n - reused) / prefillSeconds,
        decodePerSecond: (tokens - before) / decodeSeconds || 0,
        seed,
        memoryBytes: memory.buffer.byteLength
    };
}
