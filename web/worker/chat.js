// chat.js - texts and chats as tokens, and what each session holds of its chat.
import { REASONS } from './generate.js';
import {
    bw, bytesAt, check, decoder, encoder, failure, put, withBytes, withTexts
} from './module.js';

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

// What each session holds of its last chat: its messages. `end` is the number of tokens up to the
// end of a reply that the model wrote there, and 0 for all others. cut: what the chat template has
// behind the reply is missing, at least in part. `style`: see chatTokens.
export let held;

const sameMessage = (a, b) => a.role === b.role && a.content === b.content;

/** The first messages, up to a reply that the session holds as it was written. */
function heldMessages(session, messages) {
    const length = bw._bw_held(session),
        before = held[session];
    let same = 0,
        kept = 0;
    while (
        same < Math.min(before.length, messages.length) &&
        sameMessage(before[same], messages[same])
    ) {
        const { end } = before[same++];
        if (end && end <= length) kept = same;
    }
    return before.slice(0, kept);
}

/** Tokenizes messages behind the `keep` tokens that the session holds; returns how many there
 * are. */
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

/** A chat's messages as tokens, and what the session will hold of them. What stands behind the last
 * reply that it holds is tokenized: the tokens of a generated reply may differ from those of its
 * text, so tokenizing the whole chat again would not match the session. */
function openReply(session, messages) {
    const known = heldMessages(session, messages.slice(0, -1)), // at least one is tokenized
        { end: keep = 0, cut: close = false } = known.at(-1) ?? {},
        rest = messages.slice(known.length);
    const n = tokenizeChat(session, rest, keep, { close, open: 1 });
    for (const message of rest) known.push({ ...message, end: 0, cut: false });
    return { n, known, begun: '', inside: '' };
}

/** What a reply adds to its opening, where the template always writes thinking: one without it ends
 * that which is open. */
function behindOpening(content, opens) {
    const thinks = content.startsWith('<think>'),
        ends = content.includes('</think>');
    if (template().dropThinking < 2) return content;
    if (opens && !thinks && !ends) return `\n</think>\n\n${content}`;
    if (opens && thinks) return content.slice('<think>'.length).replace(/^\n/, '');
    return thinks && ends ? content.replace(/^[^]*?<\/think>\n*/, '') : content;
}

/** The same for a chat whose last message is a reply: the text goes on behind it. */
function continueReply(session, messages, opens) {
    const known = heldMessages(session, messages),
        { content } = messages.at(-1),
        inside = behindOpening(content, opens);
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

/** What the model's chat template is like. */
export function template() {
    const bits = bw._bw_template();
    const [known, thinks, alwaysThinks, hasXmlCalls, hasEfforts] = [0, 1, 2, 3, 4].map(i =>
        Boolean((bits >> i) & 1)
    );
    return { known, thinks, alwaysThinks, hasXmlCalls, hasEfforts, dropThinking: bits >> 5 };
}

/** Where a reply to the chat is that has begun so. */
export function replyState(begun) {
    const state = withBytes(encoder.encode(begun), (at, n) => bw._bw_reply_state(at, n));
    return {
        thinks: (state & 7) === 1,
        isCall: (state & 7) === 2,
        begun: Boolean(state & 8),
        holds: Boolean(state & 16)
    };
}

/** A chat's tokens. `style` is what the chat says in front of its messages: with another one
 * nothing that is held is of use. opens: the template opens thinking in the reply. */
export function chatTokens(session, messages, options) {
    const { thinking, effort = '', earlierThinking: earlier, tools = '' } = options;
    const keeps = earlier === undefined ? 0 : earlier ? 1 : -1;
    const wants = thinking === undefined ? 0 : thinking ? 1 : -1;
    const lines = encoder.encode(tools),
        toolsAt = put(lines);
    const opens = withBytes(encoder.encode(effort), (at, n) =>
        bw._bw_chat_options(at, n, keeps, wants, toolsAt, lines.length)
    );
    const style = JSON.stringify([keeps, tools, template().hasEfforts && [effort, wants]]);
    if ((held[session].style ?? style) !== style) held[session] = [];
    const chat =
        messages.length > 1 && messages.at(-1).role === 'assistant'
            ? continueReply(session, messages, opens)
            : openReply(session, messages);
    return { ...chat, style, opens };
}

/** Notes that the session also holds a reply, which began with this text behind n tokens. What
 * was written lacks some of its tokens if a stop string ended it, or if an abort came in the
 * middle of a character. An abort may also come when a token is drawn that nobody has got: it
 * is no part of it. */
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
