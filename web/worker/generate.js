// generate.js - reads prompts and writes texts, for several sessions side by side.
import { abortError, BitNetError } from '../shared/errors.js';
import { chatTokens, held, holdReply, inThought, OPEN, tokensOf } from './chat.js';
import {
    bw,
    bytesAt,
    check,
    checkAbort,
    decoder,
    encoder,
    failure,
    memory,
    post,
    put,
    turn,
    withBytes,
    withTexts
} from './module.js';

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
        session,
        temperature,
        topK,
        topP,
        minP,
        repeatPenalty,
        frequencyPenalty,
        presencePenalty,
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

export async function generate({ session, prompt, messages, options }, signal, id) {
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
