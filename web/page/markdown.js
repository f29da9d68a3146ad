// markdown.js - a model's reply as Markdown. markdown-it says what the text consists of, and this
// file makes elements for that: the ones it names, and no others. No text is parsed as HTML, so a
// reply cannot bring markup of its own. Nothing is loaded either: an image is shown as a link.
import MarkdownIt from './markdown-it.js'; // null in a build that could not get it
import { copyText } from './app.js';
import { button, element } from './dom.js';

const parser = MarkdownIt?.({ html: false, breaks: true, linkify: true });
parser?.linkify.set({ fuzzyLink: false, fuzzyEmail: false }); // “a.rs” is no address
parser?.disable('reference'); // “[a]: b” would be hidden, and change what is drawn already
export const canDraw = !!parser;

// Formulas stand as they are written: in Markdown they would lose backslashes, and a * would be emphasis.
const FORMULA = /\\\([^]{0,999}?\\\)|\\\[[^]{0,999}?\\\]|\$\$[^]{0,999}?\$\$/y;
parser?.inline.ruler.before('escape', 'formula', (state, silent) => {
    FORMULA.lastIndex = state.pos;
    const [formula] = FORMULA.exec(state.src) ?? [];
    if (!formula) return false;
    if (!silent) state.pending += formula;
    state.pos += formula.length;
    return true;
});

const TAGS = new Set('p ul ol li blockquote table thead tbody tr th td em strong s hr'.split(' '));
const SCHEMES = ['http:', 'https:', 'mailto:'];

function parsed(href) {
    try {
        return new URL(href);
    } catch {
        return {};
    }
}

// A link, or only its text if its address is none that is safe and complete.
function link(href) {
    const url = parsed(href),
        a = element('a');
    if (!SCHEMES.includes(url.protocol)) return element('span');
    a.href = a.title = url.href; // the title tells where a link really leads
    a.target = '_blank';
    a.rel = 'noopener noreferrer';
    return a;
}

function image(token) {
    const a = link(token.attrGet('src'));
    a.textContent = token.content || 'image';
    return a;
}

// Wide code and tables scroll by themselves, also with the keys.
function scrolls(e, name) {
    e.tabIndex = 0;
    e.role = 'group';
    e.ariaLabel = name;
    return e;
}

// ---- code, by lines ----

const PART = 64; // so many lines are laid out together; the parts before them are done

const linesOf = content => (content ? content.replace(/\n$/, '').split('\n') : []);

// Adds lines to code. at: { code, part, n }: it has n lines, the last of them in this part. Returns
// where the next lines go, and the nodes that were made.
function addLines({ code, part, n }, lines) {
    const nodes = [];
    const add = (to, node) => {
        to.append(node);
        nodes.push(node);
        return node;
    };
    for (const line of lines) {
        if (n) add(part, document.createTextNode('\n'));
        if (n && n % PART === 0) part = add(code, element('span', undefined, 'part'));
        add(part, document.createTextNode(line));
        n++;
    }
    return { at: { code, part, n }, nodes };
}

function codeBlock(token) {
    const box = element('div', undefined, 'code'),
        head = element('div', undefined, 'code-head'),
        pre = scrolls(element('pre'), 'Code'),
        code = element('code'),
        copies = button('Copy', 'quiet', () => copyText(code.textContent, copies));
    copies.ariaLabel = 'Copy the code';
    box.dir = 'ltr';
    head.append(element('span', token.info.trim().split(/\s/)[0]), copies);
    pre.append(code);
    box.append(head, pre);
    return { box, code };
}

// ---- elements of tokens ----

function inlineLeaf(token) {
    if (token.type === 'code_inline') return element('code', token.content);
    if (token.type === 'image') return image(token);
    return token.type.endsWith('break') ? '\n' : token.content;
}

// The element of an opening token. outline.level is that of the last heading: the page's own is 1,
// and no level is left out, so that a list of the headings makes sense.
function opened(token, outline) {
    if (token.type === 'link_open') return link(token.attrGet('href'));
    const level = /^h([1-6])$/.exec(token.tag)?.[1];
    if (level) outline.level = Math.min(Number(level) + 1, outline.level + 1, 6);
    const e = element(level ? `h${outline.level}` : TAGS.has(token.tag) ? token.tag : 'span');
    // Only the outermost: “auto” of a list overlooks items that have a direction of their own.
    if (token.block && !token.level) e.dir = 'auto';
    if (token.tag === 'ol') e.start = token.attrGet('start') ?? 1;
    e.style.textAlign = token.attrGet('style')?.split(':')[1] ?? ''; // of a table's column
    return e;
}

// Adds what stands in a line of text. Returns the nodes that came to `root`.
function addInline(tokens, root) {
    const path = [root],
        nodes = [];
    for (const token of tokens) {
        if (token.nesting < 0) {
            path.pop();
            continue;
        }
        let node = token.nesting ? opened(token) : inlineLeaf(token);
        if (typeof node === 'string') node = document.createTextNode(node);
        path.at(-1).append(node);
        if (path.length === 1) nodes.push(node);
        if (token.nesting) path.push(node);
    }
    return nodes;
}

// Adds a text's blocks. `head` says what is there already: the first head.lines lines only open
// again what is in head.path, the outermost first. Returns what came to elements that were there,
// as `fresh`, and the blocks at the text's end by their levels, as `ends`: beside the last one of a
// level those that stand before it in the same place.
function addBlocks(tokens, root, head, outline) {
    const ends = [],
        fresh = [],
        there = new Set([root, ...head.path.map(({ node }) => node)]),
        stack = [root];
    const put = (to, node) => {
        to.append(node);
        if (there.has(to)) fresh.push(node);
    };
    const kept = token => {
        const at = head.path[token.level];
        if (!at || stack.at(-1) !== (head.path[token.level - 1]?.node ?? root)) return null;
        const turned = isText(at) && token.type === 'heading_open'; // by a line below it
        if (at.token.type !== token.type && !turned) return null;
        const [line] = token.map, // where it is head.lines, a list goes on, or a table's rows
            same = at.token.markup === token.markup;
        return line < head.lines || (line === head.lines && same) ? at : null;
    };
    const note = (token, entry) => {
        ends.length = Math.min(ends.length, token.level + 1);
        (ends[token.level] ??= []).push({ token, outline: outline.level, nodes: [], ...entry });
    };
    for (const token of tokens) {
        const to = stack.at(-1),
            old = token.map?.[0] < head.lines;
        if (token.hidden) continue; // the paragraphs of a list without blank lines
        if (token.type === 'inline') {
            const resumed = isText(head.path.at(-1)) && to === head.path.at(-1).node;
            ends.at(-1).at(-1).inline = token;
            const nodes = addInline(resumed ? withoutX(token.children) : token.children, to);
            if (resumed) fresh.push(...nodes);
        } else if (token.nesting < 0) stack.pop();
        else if (token.nesting) {
            const at = kept(token),
                level = outline.level,
                node = at?.node ?? opened(token, outline);
            let box = node;
            if (token.tag === 'table' && !at) {
                box = scrolls(element('div', undefined, 'table'), 'Table');
                box.dir = node.dir;
                node.removeAttribute('dir');
                box.append(node);
            }
            if (!at && !old) put(to, box);
            note(token, { node, outline: level, nodes: at || old ? [] : [box] });
            stack.push(node);
        } else if (token.type === 'fence' || token.type === 'code_block') {
            let at = kept(token)?.at,
                box = null;
            if (!at) {
                const made = codeBlock(token);
                ({ box } = made);
                at = { code: made.code, part: made.code, n: 0 };
                put(to, box);
            }
            const lines = linesOf(token.content),
                last = token.content.endsWith('\n') ? [] : lines.splice(-1),
                whole = addLines(at, lines),
                tail = addLines(whole.at, last).nodes;
            if (!box) fresh.push(...whole.nodes, ...tail);
            note(token, { at: whole.at, tail, nodes: box ? [box] : [] });
        } else if (!old) {
            const node = element('hr');
            put(to, node);
            note(token, { nodes: [node] });
        }
    }
    return { ends, fresh };
}

// ---- a text that grows ----

const STEP = 2000; // characters that are parsed at once
const ENOUGH = 800; // of a block: what is finished inside it is then not parsed again
const LINE = 100; // after so many it is certain what begins in a line
const NOTHING = { lines: 0, path: [], text: '' };

// A paragraph that goes on is opened again with an x.
const isText = end => end?.token.type === 'paragraph_open';
const withoutX = ([first, ...others]) => [
    Object.assign(Object.create(first), { content: first.content.slice(1) }),
    ...others,
];

// The line that opens so many of its containers again, with nothing in them that can go on.
const reopening = (line, n) =>
    line.replace(
        new RegExp(`^((?:\\s*(?:>|(?:[-+*]|\\d{1,9}[.)])(?=\\s|$))){${n}})(\\s*).*`),
        (_, marks, space) => `${marks}${space || ' '}***`
    );

// What opens these blocks again.
function headOf(path, lines) {
    const open = path
            .map(({ token }) => token)
            .filter(({ type }) => ['list_item_open', 'blockquote_open'].includes(type)),
        made = new Map();
    for (const container of open) {
        const [line] = container.map;
        // A quotation has its mark in each line, an item only in its first.
        const marks = open.filter(({ type, map }) =>
            type === 'blockquote_open' ? map[0] <= line : map[0] === line
        );
        made.set(line, reopening(lines[line], marks.length));
    }
    for (const { token } of path) {
        const [line] = token.map;
        if (token.type === 'fence') made.set(line, lines[line]);
        if (token.type === 'table_open') made.set(line, lines[line]).set(line + 1, lines[line + 1]);
    }
    return { lines: made.size, path, text: [...made.values()].map(line => `${line}\n`).join('') };
}

// What may be cut between its parts.
const DIVISIBLE = ['bullet_list_open', 'ordered_list_open', 'blockquote_open', 'tbody_open'];

// Where the text can be cut: before a block that is certain to begin there, and with `deep` also
// inside of others. { level, i, line } or undefined.
function cutOf(ends, lines, head, deep) {
    const last = lines.length - 1;
    const certain = ({ token: { map } }) =>
        map[0] >= head.lines && (map[0] < last || (map[0] === last && lines[last].length > LINE));
    for (let level = 0; level < (deep ? ends.length : 1); level++) {
        if (level && !DIVISIBLE.includes(ends[level - 1].at(-1).token.type)) continue;
        const i = ends[level].findLastIndex(certain),
            line = i < 0 ? 0 : ends[level][i].token.map[0];
        if (line > head.lines || (line && !level)) return { level, i, line };
    }
    return undefined;
}

// Whether code at the text's end is open, and the head lacks a line of it that is whole.
function openCode({ token }, lines, head) {
    if (token.type !== 'fence') return false;
    const [from, end] = token.map,
        open = end - from - 1 === linesOf(token.content).length,
        known = from < head.lines ? head.lines : from;
    return open && lines.length - 1 > known;
}

// Where a long paragraph can be cut and look the same: outside of what has an end, such as
// emphasis. { at, left }: the place of a space or of a new line, and the tokens before it; or null.
function spaceIn({ content, children }) {
    let at = content.length - LINE;
    for (let tries = 8; tries && at > LINE; tries--, at -= LINE) {
        at = Math.max(content.lastIndexOf(' ', at), content.lastIndexOf('\n', at));
        if (at < LINE) break;
        const left = parser.parseInline(content.slice(0, at), {})[0].children,
            end = left.at(-1);
        const same = left.every((token, i) => {
            const { type, markup, content: text } = children[i] ?? {};
            if (type !== token.type || markup !== token.markup) return false;
            return token === end ? text.startsWith(token.content) : text === token.content;
        });
        if (same && end.type === 'text' && !end.level) return { at, left };
    }
    return null;
}

// Returns f(text, late), which draws a text that grows into `body`. What is finished is neither
// parsed nor drawn again, also inside of long code, lists and tables: the work for a piece does not
// grow with the text before it. f stops early when late() says so, and returns whether all is
// drawn.
export function drawer(body) {
    let seen = 0, // characters that were taken of the text
        rest = '', // those that may still change what is drawn
        head = NOTHING, // what `rest` goes on with
        level = 1, // of the last heading before it
        tries = ENOUGH, // the length of `rest` at which a cut inside of blocks is tried
        live = []; // what is drawn of it
    body.classList.add('markdown');

    function keep(next) {
        ({ rest, head, level, live } = next);
        tries = ENOUGH;
    }

    function draw() {
        const outline = { level },
            text = head.text + rest,
            lines = text.split('\n'),
            deep = rest.length > tries;
        for (const node of live) node.remove();
        const { ends, fresh } = addBlocks(parser.parse(text, {}), body, head, outline);
        live = fresh;
        if (!ends.length) return;
        const path = ends.map(same => same.at(-1)),
            end = path.at(-1);
        if ((deep || path.length === 1) && openCode(end, lines, head)) {
            keep({
                rest: lines.at(-1),
                head: headOf(path, lines),
                level: outline.level,
                live: end.tail,
            });
            return;
        }
        const cut = cutOf(ends, lines, head, deep);
        if (cut) {
            const after = ends[cut.level].slice(cut.i);
            keep({
                rest: lines.slice(cut.line).join('\n'),
                head: headOf(path.slice(0, cut.level), lines),
                level: after[0].outline,
                live: after.flatMap(({ nodes }) => nodes),
            });
        } else if (deep) {
            const space = path.length === 1 && isText(end) && spaceIn(end.inline);
            if (space) keepText(end, space, text);
            else tries *= 1.5;
        }
    }

    // Keeps a paragraph up to a space in it, and draws what is behind.
    function keepText({ token, node, inline }, { at, left }, text) {
        const from = text.indexOf(inline.content) + at;
        const known = isText(head.path[0]);
        if (known) for (const made of live) made.remove();
        else node.replaceChildren();
        addInline(known ? withoutX(left) : left, node);
        keep({
            rest: text.slice(from + 1),
            head: { lines: 1, path: [{ token, node }], text: `x${text[from]}` },
            level,
            live: [],
        });
        draw();
    }

    return (text, late = () => false) => {
        do {
            let end = Math.min(seen + STEP, text.length);
            const line = text.lastIndexOf('\n', end - 1) + 1;
            if (end < text.length && line > seen) end = line;
            if (text[end - 1] === '\r') end += end < text.length ? 1 : -1; // its \n may follow
            if (end <= seen) return true;
            rest += text.slice(seen, end).replace(/\r\n?/g, '\n');
            seen = end;
            draw();
        } while (seen < text.length && !late());
        return seen >= text.length;
    };
}
