// drawing.js - how a message is drawn and spoken, also while it grows. What draws Markdown comes when it
// is needed; until then a reply is plain text.
import { nearEnd, toEnd } from './app.js';
import { divideReply } from './bitnet.js';
import { $, element, once } from './dom.js';

const AT_ONCE = 8; // ms of drawing in a frame

// ---- Markdown ----

let markdown = null, // the module, when it is there
    coming = null;
const waiting = new Set(); // draw what was drawn without it

export function loadMarkdown() {
    coming ??= import('./markdown.js').then(
        module => {
            markdown = module;
            for (const again of waiting) again();
            waiting.clear();
        },
        () => {
            coming = null; // the next reply tries again
        }
    );
}

// ---- messages ----

// Draws a message. Returns f(late), which draws what has come since, or only a part of that where
// late() says so, and returns whether all is drawn.
export function show(body, message) {
    const { role, given } = message;
    let draw;
    const begin = () => {
        body.replaceChildren();
        if (given !== undefined) body.append(element('span', given, 'given'));
        draw = role === 'assistant' ? replyDrawer(body) : plainDrawer(body);
        if (message.content) draw(message.content);
    };
    begin();
    if (role === 'assistant' && !markdown) {
        waiting.add(begin);
        loadMarkdown();
    }
    return late => draw(message.content, late);
}

// Thinking stands in a block that can be opened.
function replyDrawer(body) {
    const drawer = markdown?.canDraw ? markdown.drawer : plainDrawer;
    let details, drawThinking, draw;
    return (text, late) => {
        const { thinking, content } = divideReply(text);
        if (thinking && !details) {
            const block = element('div');
            details = element('details', undefined, 'thinking');
            details.append(element('summary', 'Thinking'), block);
            body.append(details);
            drawThinking = plainDrawer(block);
        }
        if (thinking) drawThinking(thinking);
        if (content === null) return true;
        if (!draw) {
            const block = details ? element('div') : body;
            if (details) body.append(block);
            draw = drawer(block);
        }
        return draw(content, late);
    };
}

// Long text goes into several nodes, so that the work does not grow with the text before it.
function plainDrawer(body) {
    let done = 0,
        node = null;
    return text => {
        if (!node || node.length > 2000) body.append((node = document.createTextNode('')));
        node.appendData(text.slice(done));
        done = text.length;
        return true;
    };
}

// Calls draw soon: in the next frame, or later if drawing takes long, so that three quarters of the time
// are left for the page's other work. end() resolves when all is drawn.
export function writer(draw) {
    let next = 0;
    const now = () => {
        const follow = nearEnd(),
            start = performance.now(),
            all = draw(() => performance.now() > start + AT_ONCE);
        if (follow) toEnd();
        const end = performance.now();
        next = end + 3 * (end - start);
        return all;
    };
    const soon = once(() => {
        if (performance.now() < next || !now()) soon();
    });
    return {
        soon,
        async end() {
            while (!now()) await new Promise(go => setTimeout(go));
        },
    };
}

// ---- for screen readers ----

const SENTENCE = /[.!?…]["'”’)\]*_`]*\s|[。！？\n]/g;
const MARKS = /^\s*(?:#+|>|[-+*]|[-|:\s]+$)\s*|[*_`~|]+/gm; // of Markdown, which nobody wants to hear
const HEARD = 20; // sentences that stay in the page

// Says what a message grows by: { more(), end(note) }, of which each sentence is said once, when it is
// whole, and what is left at the end.
export function speaker(message) {
    const text = () =>
        (message.role === 'assistant' ? divideReply(message.content).content : message.content) ?? '';
    let said = text().length;
    const say = words => {
        const plain = words.replace(MARKS, ' ').replace(/\s+/g, ' ').trim();
        if (!plain) return;
        $('spoken').append(element('p', plain));
        while ($('spoken').children.length > HEARD) $('spoken').firstChild.remove();
    };
    return {
        more() {
            const fresh = text().slice(said),
                last = [...fresh.matchAll(SENTENCE)].at(-1);
            if (!last) return;
            const end = last.index + last[0].length;
            say(fresh.slice(0, end));
            said += end;
        },
        end(note) {
            say(text().slice(said));
            say(note ?? '');
        },
    };
}
