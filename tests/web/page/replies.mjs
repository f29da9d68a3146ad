// replies.mjs - replies in Markdown, a long one and hostile ones, and a page that draws them.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, edited, hooks, site, Skip } from './driver.mjs';

const markdown = !readFileSync(join(site, 'markdown-it.js'), 'utf8').startsWith(
    'export default null'
);
function needMarkdown() {
    if (!markdown) throw new Skip('this build has no Markdown: npm could not get it');
}
// Every reply consists of these pieces, which come ms apart.
const sayings = (pieces, ms = 0) =>
    saying(pieces, ms ? `new Promise(next => setTimeout(next, ${ms}))` : 0);
// Each piece is drawn before the next one comes.
const sayingsDrawn = pieces => saying(pieces, 'new Promise(next => (globalThis.drawn = next))');
const saying = (pieces, wait) =>
    hooks.set(
        '/conversation.js',
        edited('conversation.js', s => {
            const replaced = (before, after) => {
                check(s.includes(before), 'conversation.js has another form');
                s = s.replace(before, after);
            };
            replaced(
                'yield* model.chat([...first, ...sent], options);',
                `for await (const _ of model.generate('a', { maxTokens: 1 }));
                 for (const piece of ${JSON.stringify(pieces)}) {
                     yield piece;
                     options.signal.throwIfAborted();
                     await ${wait};
                 }`
            );
            replaced('speech.more();', 'speech.more(); globalThis.drawn?.();');
            return s;
        })
    );
const ARTICLE = `# Sorting

Some **bold** and *soft* words, \`code\`, ~~nothing~~ &amp; <b>no tag</b>.
The next line, [a link](https://example.org/a "t") and https://example.org/b.

### Steps

1. One
2. Two
   - inner
   - list

3. Three

> A quotation
> of two lines.

\`\`\`python
def f(x):
    return "<b>" * x

print(f(3))
\`\`\`

| Name | Size |
| --- | ---: |
| a | 1 |
| b \`c\` | 20 |

---

    indented code

- [ ] open
* another list

[a]: https://example.org/defined

The end.`;

// Pieces number i of replies that consist of one block without an end.
const words = i => ['the', 'model', 'reads', 'some', 'words', 'and', 'tells', 'a story'][i % 8];
const ENDLESS = {
    prose: i => (i % 60 === 59 ? '.\n\n' : i % 20 === 7 ? ` **${words(i)}**` : ` ${words(i)}`),
    line: i => ` ${i % 30 === 7 ? `*${words(i)}*` : words(i)}${i % 15 === 14 ? '.' : ''}`,
    lines: i => ` ${words(i)}${i % 15 === 14 ? '.\n' : ''}`,
    code: i => (!i ? 'Code:\n```js\n' : i % 8 === 7 ? `\n${i % 5 ? '' : '\n'}` : ` ${words(i)}`),
    list: i => (i % 8 === 0 ? '\n- ' : ` ${words(i)}`),
    numbers: i => (i % 8 === 0 ? `\n${i / 8 + 1}. ` : ` ${words(i)}`),
    nested: i => (!i ? '1. One\n' : i % 8 === 0 ? '\n   - ' : ` ${words(i)}`),
    deep: i => (!i ? '- a\n  1. b' : i % 8 === 0 ? '\n     * ' : ` ${words(i)}`),
    'code in a list': i => (!i ? '1. One\n   ```js\n' : i % 8 === 0 ? '\n   ' : ` ${words(i)}`),
    table: i =>
        !i
            ? '| a | b |\n|---|--:|\n| 0'
            : i % 8 === 0
              ? ' |\n| '
              : i % 8 === 4
                ? ' | '
                : ` ${words(i)}`,
    quote: i => (i % 40 === 0 ? '\n>\n> ' : i % 8 === 0 ? '\n> ' : ` ${words(i)}`),
    'list in a quote': i => (i % 8 === 0 ? '\n> - ' : ` ${words(i)}`),
    'list in a list in a quote': i =>
        !i ? '> z\n>\n> - a\n>   - b' : i % 8 === 0 ? '\n>   - ' : ` ${words(i)}`,
};

// What a model could say to run something, to load something, or to lead the reader astray.
const HOSTILE = [
    '<script>globalThis.ran = 1</script>',
    '<img src=x onerror="globalThis.ran = 1">',
    '<img src="/loaded.png">',
    '<svg onload="globalThis.ran = 1"><a xlink:href="javascript:globalThis.ran = 1"><text>x',
    '<iframe src="/loaded.html" srcdoc="<script>parent.ran = 1</script>"></iframe>',
    '<form action="/loaded"><button formaction="javascript:globalThis.ran = 1">Send</button></form>',
    '<style>body { display: none }</style><link rel="stylesheet" href="/loaded.css">',
    '<a href="javascript:globalThis.ran = 1" onclick="globalThis.ran = 1">x</a>',
    '<base href="https://example.org/"><meta http-equiv="refresh" content="0;url=/loaded">',
    '<math><mtext><table><mglyph><style><img src=x onerror="globalThis.ran = 1">',
    '<details open ontoggle="globalThis.ran = 1"><object data="/loaded"><embed src="/loaded">',
    '&lt;script&gt;globalThis.ran = 1&lt;/script&gt; &#60;img src=x onerror=globalThis.ran=1&#62;',
    '[x](javascript:globalThis.ran=1)',
    '[x](JaVaScRiPt:globalThis.ran=1) [x](java&#115;cript:globalThis.ran=1)',
    '[x](&#x6A&#x61&#x76&#x61&#x73&#x63&#x72&#x69&#x70&#x74:globalThis.ran=1)',
    '[x](<java\nscript:globalThis.ran=1>) [x](\u0001javascript:globalThis.ran=1)',
    '[x](data:text/html,<script>globalThis.ran=1</script>) [x](data:image/svg+xml,<svg/>)',
    '[x](vbscript:x) [x](file:///etc/passwd) [x](blob:x) [x](about:blank) [x](filesystem:x)',
    '[x](/loaded) [x](//example.org/a) [x](?a) [x](#a) [x](intent://a) [x](ms-word:a)',
    '[x](data:image/png;base64,AAAA) ![x](data:image/svg+xml;base64,AAAA)',
    '<javascript:globalThis.ran=1> javascript:globalThis.ran=1 <data:text/html,x>',
    '![x](/loaded.png) ![x](https://example.org/loaded.png "t") ![](javascript:globalThis.ran=1)',
    '[![x](/loaded.png)](javascript:globalThis.ran=1)',
    '[x]: javascript:globalThis.ran=1\n\n[x] [y][x] ![x]',
    '[x](https://example.org "\" onmouseover=globalThis.ran=1 x=\"")',
    '[x](https://example.org/"onmouseover="globalThis.ran=1)',
    '[https://example.com](https://example.org@example.net)',
    '```"><script>globalThis.ran=1</script>\n</code></pre><script>globalThis.ran = 1</script>\n```',
    '| <script> |\n|:-:|\n| <img src=x onerror=globalThis.ran=1> |',
    '1. <b id=prompt>\n# <h1 class=error id=error>',
    '\u202e\u2066\u0000\uFFFD\uD800',
    '<!--><script>globalThis.ran = 1</script>--> <![CDATA[<script>]]> <?php ?> <!DOCTYPE html>',
];

export { ARTICLE, ENDLESS, HOSTILE, markdown, needMarkdown, sayings, sayingsDrawn };
