// markdown.js - a model's reply as Markdown. markdown-it says what the text consists of, and this file
// makes elements for that: the ones it names, and no others. No text is parsed as HTML, so a reply
// cannot bring markup of its own. Nothing is loaded either: an image is shown as a link to it.
import MarkdownIt from './markdown-it.js'; // null in a build that could not get it
import { copyText } from './app.js';
import { button, element } from './dom.js';

const parser = MarkdownIt?.({ html: false, breaks: true, linkify: true });
parser?.linkify.set({ fuzzyLink: false, fuzzyEmail: false }); // “a.rs” is no address
parser?.disable('reference'); // “[a]: b” would be hidden, and change what is drawn already
export const canDraw = !!parser;

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

const codeOf = ({ content }) => content.replace(/\n$/, '');

function codeBlock(token) {
    const box = element('div', undefined, 'code'),
        head = element('div', undefined, 'code-head'),
        pre = scrolls(element('pre'), 'Code'),
        code = element('code', codeOf(token)),
        copies = button('Copy', 'quiet', () => copyText(code.textContent, copies));
    copies.ariaLabel = 'Copy the code';
    box.dir = 'ltr';
    head.append(element('span', token.info.trim().split(/\s/)[0]), copies);
    pre.append(code);
    box.append(head, pre);
    return box;
}

function leaf(token) {
    if (token.type === 'code_inline') return element('code', token.content);
    if (token.type === 'fence' || token.type === 'code_block') return codeBlock(token);
    if (token.type === 'image') return image(token);
    if (token.type === 'hr') return element('hr');
    return token.type.endsWith('break') ? '\n' : token.content;
}

// The element of an opening token. outline.level is that of the last heading: the page's own is 1, and
// no level is left out, so that a list of the headings makes sense.
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

function build(tokens, root, outline) {
    const path = [root];
    for (const token of tokens) {
        const at = path.at(-1);
        if (token.hidden) continue; // the paragraphs of a list without blank lines
        if (token.type === 'inline') build(token.children, at, outline);
        else if (token.nesting < 0) path.pop();
        else if (!token.nesting) at.append(leaf(token));
        else {
            const e = opened(token, outline),
                box = token.tag === 'table' && scrolls(element('div', undefined, 'table'), 'Table');
            if (box) box.append(e);
            at.append(box || e);
            path.push(e);
        }
    }
}

// The outermost blocks of a text: their tokens, and the line where each begins.
function blocksOf(text) {
    const blocks = [];
    for (const token of parser.parse(text, {})) {
        if (token.level === 0 && token.nesting >= 0)
            blocks.push({ line: token.map[0], tokens: [] });
        blocks.at(-1).tokens.push(token);
    }
    return blocks;
}

// Code that grows keeps its element, and with that its button and how far it is scrolled.
function extend(old, [token]) {
    const [before] = old?.tokens ?? [];
    if (before?.type !== 'fence' || token.type !== 'fence' || before.info !== token.info)
        return false;
    const had = codeOf(before);
    if (!codeOf(token).startsWith(had)) return false;
    old.node.querySelector('code').append(codeOf(token).slice(had.length));
    return true;
}

// Returns f(text), which draws a text that grows into `body`. Blocks that can no longer change are not
// drawn again, so the work does not grow with the text before them.
export function drawer(body) {
    let done = 0, // the length of the text of finished blocks
        live = [], // the blocks behind it
        outline = { level: 1 };
    body.classList.add('markdown');
    return text => {
        const rest = text.replace(/\r\n?/g, '\n').slice(done),
            { level } = outline,
            blocks = blocksOf(rest);
        for (const [i, block] of blocks.entries()) {
            const old = live[i];
            block.level = outline.level;
            if (extend(old, block.tokens)) block.node = old.node;
            else {
                const made = document.createDocumentFragment();
                build(block.tokens, made, outline);
                block.node = made.firstChild;
                if (old) old.node.replaceWith(block.node);
                else body.append(block.node);
            }
        }
        for (const { node } of live.slice(blocks.length)) node.remove();
        // The first characters of a line do not tell yet whether it begins a block.
        const lines = rest.split('\n'),
            last = Math.max(
                0,
                blocks.findLastIndex(({ line }) => line < lines.length - 1)
            );
        outline = { level: blocks[last]?.level ?? level };
        done += lines.slice(0, blocks[last]?.line ?? 0).join('\n').length;
        live = blocks.slice(last);
    };
}
