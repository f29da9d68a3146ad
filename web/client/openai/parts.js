// Divides a reply that comes piece by piece into thinking, text and calls, as bitnet_reply_next
// does in C and serve with it (examples/server/choice.c).
import { endsInValue, readJsonCalls, readXmlCall } from './calls.js';

const TEXT = 'text',
    THINKING = 'thinking',
    CALL = 'call',
    XML = '<function=';
const TAGS = [
    { tag: '<think>', is: (s, c) => s.part === TEXT && c.thinks && !s.begun, next: THINKING },
    { tag: '</think>', is: s => s.part === THINKING, next: TEXT },
    { tag: '<tool_call>', is: (s, c) => s.part === TEXT && c.tools, next: CALL },
    { tag: '</tool_call>', is: s => s.part === CALL, next: TEXT }
];

/** How much of a text's end begins one of these strings. */
function begunBy(text, strings) {
    const most = Math.max(...strings.map(one => one.length - 1));
    let n = Math.min(most, text.length);
    while (n && !strings.some(one => one.length > n && text.endsWith(one.slice(0, n)))) n--;
    return n;
}

/** chat: { thinks, isXml, tools, one, binds, stops }: whether the template knows thinking, the form of
 * calls, the chat's tools or null, whether the reply ends behind a call, whether a grammar binds calls,
 * and strings that end the reply, but not in a thought. */
export function divider(chat) {
    const s = { part: TEXT, begun: false, skips: false, newlines: 0, held: '' };
    let raw = '', // as it was written: what is held back, or a call that is being written, with its tag
        told = 0, // of raw: the caller has written it
        inside = 0, // where in raw the call's tag ends
        open = 0, // characters of the beginning of an XML call
        seemsCall = false, // its text begins as that of a call
        isBehindCall = false,
        isBound = chat.binds, // the grammar makes each call complete
        isClosed = false,
        isStopped = false,
        waiting = ''; // text that may become a stop string
    let out = { thinking: '', content: '', calls: [] };

    function give(text) {
        s.skips = false;
        s.begun = true;
        if (s.part === CALL) return;
        out[s.part === TEXT ? 'content' : 'thinking'] += text;
        isBehindCall = false;
    }

    /** Gives what was held back. */
    function giveHeld() {
        const text = '\n'.repeat(s.newlines) + s.held;
        s.newlines = 0;
        s.held = '';
        if (text) give(text);
    }

    /** Takes a character into what may become a tag. Returns whether it can be, or is one. */
    function takeTag(c) {
        const text = s.held + c;
        const found = TAGS.find(({ tag, is }) => is(s, chat) && tag.startsWith(text));
        if (!found) return false;
        s.held = text;
        if (text === found.tag)
            Object.assign(s, { held: '', newlines: 0, begun: true, skips: true, part: found.next });
        return true;
    }

    function take(c) {
        for (;;) {
            const taken = (c !== '\n' || s.held) && takeTag(c);
            if (!taken && s.held) giveHeld();
            else if (taken) return;
            else if (c === '\n') return void (s.newlines += s.skips ? 0 : 1);
            else {
                if (s.newlines) giveHeld();
                return give(c);
            }
        }
    }

    /** What seemed to be a call is text, as it was written. */
    function beText() {
        out.content += raw.slice(told);
        raw = '';
        told = 0;
        Object.assign(s, { part: TEXT, held: '', newlines: 0, skips: false });
    }

    /** The tag that ends a call has come. Where a grammar binds calls it may be a part of a value; a
     * model without one that spoils a call shall not lose the next. */
    function endCall() {
        const text = raw.slice(inside, -'</tool_call>'.length);
        if (isBound && endsInValue(text, open > 0)) return void (s.part = CALL);
        seemsCall = false;
        const calls = open > 0 ? readXmlCall(text, chat.tools) : readJsonCalls(text);
        if (!calls) return beText();
        out.calls.push(...(chat.one ? calls.slice(0, 1) : calls));
        raw = '';
        told = 0;
        s.skips = false;
        isBehindCall = true;
        isClosed = chat.one;
    }

    function character(c) {
        const before = s.part;
        if (before === CALL && !seemsCall && (open || !/[ \t\n\r]/.test(c))) {
            if (!open && (c === '{' || c === '[')) seemsCall = true;
            else if (chat.isXml && c === XML[open]) seemsCall = ++open === XML.length;
            else {
                const again = told ? 0 : open; // another tag may begin there
                raw = raw.slice(0, raw.length - again);
                open = 0;
                beText();
                for (const one of XML.slice(0, again)) character(one);
            }
        }
        raw += c;
        take(c);
        if (s.part !== CALL) {
            if (before === CALL && seemsCall) endCall();
            else {
                const held = s.newlines + s.held.length;
                if (held < raw.length) raw = raw.slice(raw.length - held);
            }
        } else if (before !== CALL) {
            inside = raw.length;
            seemsCall = false;
            open = 0;
        }
    }

    const news = () => {
        const fresh = out;
        out = { thinking: '', content: '', calls: [] };
        return { ...fresh, isEnded: isClosed || isStopped };
    };
    const divide = text => {
        for (const c of text) {
            if (isClosed) break;
            character(c);
        }
    };

    /** Divides a piece, but for what is a stop string, or may become one: of several the one that
     * begins first. They are not searched for in thinking, its tags, and the newlines behind it. */
    function search(piece) {
        const { stops } = chat;
        if (!stops.length) return divide(piece);
        let at = chat.thinks && !s.begun && piece.startsWith('<think>') ? '<think>'.length : 0;
        divide(piece.slice(0, at));
        const isPassed = c => s.part === THINKING || (s.part === TEXT && s.skips && c === '\n');
        while (at < piece.length && !waiting && isPassed(piece[at])) divide(piece[at++]);
        const text = waiting + piece.slice(at),
            found = stops.map(stop => text.indexOf(stop)).filter(at => at >= 0);
        isStopped = found.length > 0;
        const end = isStopped ? Math.min(...found) : text.length - begunBy(text, stops);
        divide(text.slice(0, end));
        waiting = isStopped ? '' : text.slice(end);
    }
    return {
        add(piece) {
            search(piece);
            return news();
        },
        isThinking: () => s.part === THINKING,
        /** The reply goes on from this text, which is not a part of it. */
        begin(text) {
            isBound = false; // it keeps to nothing
            divide(text);
            news();
            isBound = chat.binds;
            s.held = '';
            s.newlines = 0;
            isBehindCall = isClosed = false;
            if (s.part === CALL) told = raw.length;
            else raw = '';
        },
        /** What was held back. */
        end() {
            if (isClosed) return news();
            divide(waiting);
            if (isClosed) return news();
            if (s.part === CALL) beText();
            if (isBehindCall && !s.held) s.newlines = 0;
            giveHeld();
            return news();
        }
    };
}
