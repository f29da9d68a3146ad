// chat.js - texts and chats as tokens, and what each session holds of its chat.
import { REASONS } from './generate.js';
import { bw, bytesAt, check, decoder, encoder, failure, withBytes, withTexts } from './module.js';

const ADD_BOS = 1; // flags of bw_tokenize
const PARSE_SPECIAL = 4;

// ---- text and tokens ----

export function tokensOf(text, flags) {
    return withBytes(encoder.encode(text), (at, n) => check(bw._bw_tokenize(at, n, flags)));
}

export function tokenize({ text, bos, special }) {
    const n = tokensOf(text, (bos && ADD_BOS) | (special && PARSE_SPECIAL));
    return new Int32Array(bytesAt(bw._bw_tokens(), 4 * n).buffer);
}

export function detokenize({ tokens }) {
    const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
    const n = withBytes(bytes, at => check(bw._bw_detokenize(at, tokens.length)));
    return decoder.decode(bytesAt(bw._bw_text(), n));
}

// ---- chats ----

// What each session holds of its last chat: the first messages, each with the number of tokens up to
// its end. cut: it is a reply, and what the chat template has behind it is missing, at least in part.
export let held;

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
    const n = withTexts(
        messages.flatMap(m => [m.role, m.content]),
        (at, sizesAt) =>
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

export const OPEN = '<think>\n';
/** Does a reply that has begun so begin inside of thinking? */
export const inThought = begun =>
    Boolean(withBytes(encoder.encode(begun), (at, n) => bw._bw_in_thought(at, n)));

export function chatTokens(session, messages, { thinking, effort = '', earlierThinking: earlier }) {
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
export function holdReply(session, { n, begun }, { tokens, reply }) {
    const whole = bw._bw_reason(session) >= 0 && REASONS[bw._bw_reason(session)] !== 'stop';
    if (!tokens.length || (!whole && detokenize({ tokens: Int32Array.from(tokens) }) !== reply))
        return;
    const end = n + tokens.length;
    const ended = end === bw._bw_held(session) && bw._bw_ends(session, end - 1);
    const cut = !ended || bw._bw_reply_rest(1) > 0;
    held[session].push({ role: 'assistant', content: begun + reply, end, cut });
}

/** As many sessions that hold nothing. */
export function newSessions(n) {
    held = Array.from({ length: n }, () => []);
}
