// browser.mjs - the page in a real browser: what a user does, and what goes wrong for one.
//
//     node tests/web/browser.mjs BROWSER SITE GENERATE MODULES [NAME...]
//
// BROWSER is chromium or firefox, SITE the folder that ./build.sh web made, GENERATE the native
// program whose text is expected, MODULES a folder whose node_modules has tests/web/package.json's;
// MODULES/screenshots gets pictures. NAMEs choose tests. For CHROMIUM and FIREFOX see browsers.mjs.
// The server, which some tests need, is the program serve beside GENERATE.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
    cpSync,
    existsSync,
    mkdirSync,
    mkdtempSync,
    readdirSync,
    readFileSync,
    rmSync,
    writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ask, idle, metrics, start } from '../server/server.mjs';
import { HANG, launch, newPage } from './browsers.mjs';
import { ISOLATED, sendFile, serve } from './serve.mjs';

const [name, site, generate, modules, ...only] = process.argv.slice(2);
const firefox = name === 'firefox';
const require = createRequire(resolve(modules, 'package.json'));
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const tinyPath = resolve(site, 'tiny.gguf'),
    tiny = readFileSync(tinyPath);
const variants = readdirSync(site).flatMap(f => /^engine-(\w+)\.js$/.exec(f)?.[1] ?? []);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'browser-')),
    pictures = resolve(modules, 'screenshots');
mkdirSync(pictures, { recursive: true });

function expect(got, wanted, what) {
    if (got !== wanted)
        throw new Error(`${what}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
}
function check(holds, what) {
    if (!holds) throw new Error(what);
}
class Skip extends Error {} // of a test, with the reason
const sleep = ms => new Promise(r => setTimeout(r, ms));

// ---- servers: what is served in another way than the file is in `hooks`, by path ----

let hooks = new Map(),
    requests = [];
function hook(headers) {
    return (req, res, path) => {
        requests.push({ path, range: req.headers.range });
        return (hooks.get(path) ?? usual.get(path))?.(req, res, headers) ?? false;
    };
}
const asTiny = (req, res, headers) => {
    sendFile(req, res, tinyPath, headers);
    return true;
};
const edited = (path, edit) => (req, res, headers) => {
    res.writeHead(200, {
        'Content-Type': path.endsWith('.html') ? 'text/html' : 'text/javascript',
        'Cache-Control': 'no-store',
        ...headers,
    });
    res.end(edit(readFileSync(join(site, path), 'utf8')));
    return true;
};
/** bitnet.js, made anew after some of its sources were edited: edits has a function for each. */
function rebuilt(edits) {
    const folder = mkdtempSync(join(tmpdir(), 'bitnet-page-')),
        sources = join(folder, 'web'),
        bundle = join(ROOT, 'web/bundle.mjs');
    try {
        cpSync(join(ROOT, 'web'), sources, { recursive: true });
        for (const variant of variants) writeFileSync(join(folder, `engine-${variant}.js`), '');
        // A machine may be too busy to start threads in the time that the page gives them.
        const patient = s => s.replace('START_MS = 4000', 'START_MS = 60000');
        for (const [name, edit] of [['connection.js', patient], ...Object.entries(edits)]) {
            const path = join(sources, name),
                before = readFileSync(path, 'utf8'),
                after = edit(before);
            check(after !== before, `${name} has another form`);
            writeFileSync(path, after);
        }
        execFileSync(process.execPath, [bundle, 'modules', sources, folder, 'bitnet']);
        const made = readFileSync(join(folder, 'bitnet.js'), 'utf8');
        return edited('bitnet.js', () => made);
    } finally {
        rmSync(folder, { recursive: true });
    }
}
const usual = new Map([['/bitnet.js', rebuilt({})]]);
const isolated = await serve({ root: resolve(site), hook: hook(ISOLATED) });
const plain = await serve({ root: resolve(site), headers: {}, hook: hook({}) });

// ---- the page ----

const PHONE = { width: 360, height: 568, isMobile: true, hasTouch: true };
const browser = await launch(name, modules);

// What Firefox has only as a preference takes a browser of its own. errors: those of the console that
// may come; without it, all may.
async function visit(f, { at = isolated.url, viewport, errors, ...look } = {}) {
    const own = firefox && Object.keys(look).length && (await launch(name, modules, look));
    const context = await (own || browser).createBrowserContext();
    const page = await newPage(context),
        faults = [];
    page.on('pageerror', e => {
        // Firefox tells it although the page catches it.
        if (!/Storage access is restricted/.test(e.message)) faults.push(String(e.stack ?? e));
    });
    page.on('console', m => {
        const wrong = errors && m.type() === 'error' && !errors.test(m.text());
        if (wrong || /Content Security Policy/.test(m.text())) faults.push(m.text());
    });
    try {
        await page.setViewport(viewport ?? { width: 1280, height: 800 });
        await page.evaluateOnNewDocument(() => {
            globalThis.states = []; // of the page, all that there were
            new MutationObserver(all => {
                globalThis.states.push(...all.map(m => m.oldValue), document.body.dataset.state);
            }).observe(document, {
                subtree: true,
                attributeFilter: ['data-state'],
                attributeOldValue: true,
            });
            addEventListener('securitypolicyviolation', e =>
                console.error(`Content Security Policy: ${e.violatedDirective} ${e.blockedURI}`)
            );
        });
        if (!firefox) await emulate(page, look);
        await page.goto(at);
        await f(page, context);
        if (faults.length) throw new Error(`the page threw: ${faults[0]}`);
    } finally {
        await context.close();
        if (own) await own.close();
    }
}

async function emulate(page, { dark, reducedMotion, quota }) {
    await page.emulateMediaFeatures([
        { name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' },
        { name: 'prefers-reduced-motion', value: reducedMotion ? 'reduce' : 'no-preference' },
    ]);
    if (!quota) return;
    const cdp = await page.createCDPSession(),
        { origin } = new URL(isolated.url);
    await cdp.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: quota });
}

// Until f is true in the page, which may be on its way to another one. (The page's CSP does not
// let puppeteer's own waitForFunction be.)
async function until(page, f, ...args) {
    let error = '';
    for (const end = Date.now() + HANG; Date.now() < end; await sleep(20)) {
        try {
            if (await page.evaluate(f, ...args)) return;
        } catch (e) {
            error = `: ${e.message}`;
        }
    }
    const seen = await page
        .evaluate(() => `${document.body?.dataset.state}: ${document.body?.innerText}`)
        .catch(e => e.message);
    const message = `it never comes: ${f} ${args}${error}; the page: ${seen}`;
    throw new Error(message.replace(/\s+/g, ' ')); // on one line, for the summary of a run
}

const state = (page, wanted) => until(page, s => document.body?.dataset.state === s, wanted);
const ready = page => state(page, 'ready');
// Until a model has been loaded that the action asks for.
async function loads(page, action) {
    const from = await page.evaluate(() => globalThis.states.length);
    await action();
    await until(
        page,
        n => globalThis.states.slice(n).includes('loading') && document.body.dataset.state === 'ready',
        from
    );
}
const reloadModel = page =>
    loads(page, () => page.evaluate(() => document.getElementById('reload-model').click()));
const named = (page, model) =>
    until(page, n => document.getElementById('model-name').textContent === n, model);
const text = (page, id) => page.$eval(`#${id}`, e => e.textContent);
const texts = (page, selector) => page.$$eval(selector, all => all.map(e => e.textContent));
const value = (page, id) => page.$eval(`#${id}`, e => e.value);
const count = async (page, selector) => (await page.$$(selector)).length;
const lastReply = async page => (await texts(page, '.turn.reply .body')).at(-1);
const visible = (page, id) =>
    page.$eval(`#${id}`, e => e.checkVisibility({ visibilityProperty: true }));
const picture = (page, what) => page.screenshot({ path: join(pictures, `${name}-${what}.png`) });

function settings(page, values) {
    return page.evaluate(all => {
        for (const [id, v] of Object.entries(all)) document.getElementById(id).value = v;
    }, values);
}

// What is typed takes the place of what was there.
async function fill(page, id, typed) {
    await page.$eval(`#${id}`, e => {
        e.focus();
        e.select();
    });
    await page.keyboard.type(typed);
}

async function chooseFile(page, path) {
    await (await page.$('#file')).uploadFile(path);
}

// By the keyboard: a click goes to a place, from which the button may move while the page grows.
async function checked(page) {
    await page.focus('#check');
    await page.keyboard.press('Enter');
    await until(page, () =>
        /Pass|Fail/.test(document.getElementById('check-status').textContent)
    );
}

async function write(page, prompt, values = {}) {
    const runs = await page.evaluate(() => Number(document.body.dataset.runs ?? 0));
    await settings(page, { temperature: 0, maxTokens: 120, ...values });
    await settings(page, { prompt });
    await page.focus('#prompt');
    await page.keyboard.press('Enter');
    await until(page, n => Number(document.body.dataset.runs) > n, runs);
    return lastReply(page);
}

const lastNote = async page => (await texts(page, '.turn:last-child .note')).join();
// What the page gives to chat() is in globalThis.sent.
const recordChats = () =>
    hooks.set(
        '/bitnet.js',
        rebuilt({
            'session.js': s =>
                s.replace(
                    'chat(messages, options = {}) {',
                    '$& (globalThis.sent ??= []).push(messages);'
                ),
        })
    );
// Until the service worker has what the next visit needs.
const keptPage = page => until(page, () => document.body.dataset.offline === 'yes');
const completion = page => page.$eval('input[value=text]', e => e.click());
const native = (...args) =>
    execFileSync(generate, ['-m', tinyPath, '--temp', '0', ...args], {
        encoding: 'utf8',
        stdio: ['pipe', 'pipe', 'ignore'],
    });
const PROMPT = 'Once upon a time';
let told = '';
const story = () => (told ||= native('-p', PROMPT, '-n', '120').replace(/\n$/, ''));

async function openUrl(page, url) {
    await settings(page, { url });
    await page.focus('#url');
    await page.keyboard.press('Enter');
}

async function errorTitle(page) {
    await until(page, () => document.querySelector('#error:not([hidden])') !== null);
    return text(page, 'error-title');
}

async function stillWrites(page) {
    await ready(page);
    await completion(page);
    expect(await write(page, PROMPT), story(), 'text');
}

async function writesIn(page, variant) {
    await settings(page, { variant });
    await reloadModel(page);
    await stillWrites(page);
    expect(await text(page, 'f-variant'), variant, 'variant');
}

// Of a module with an i8x16.relaxed_swizzle.
function relaxedIsUnknown() {
    const hex = '0061736d01000000010401600000030201000a10010e004100fd0f4100fd0ffd80021a0b';
    return !WebAssembly.validate(Uint8Array.from(hex.match(/../g), x => parseInt(x, 16)));
}

async function dragOver(page, path) {
    const cdp = await page.createCDPSession(),
        data = { items: [], files: [path], dragOperationsMask: 1 };
    return type => cdp.send('Input.dispatchDragEvent', { type, x: 400, y: 300, data });
}

// A file: tiny.gguf and N parts of zeros, each of so many bytes.
function drop(page, fileName, n, bytes = 1 << 24) {
    return page.evaluate(
        async (title, parts, each) => {
            const model = await (await fetch('tiny.gguf')).blob(),
                part = new Blob([new Uint8Array(each)]),
                files = new DataTransfer();
            files.items.add(new File([model, ...Array(parts).fill(part)], title));
            document.dispatchEvent(
                new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true })
            );
        },
        fileName,
        n,
        bytes
    );
}

async function dragInPage(page) {
    await page.evaluate(async () => {
        const bytes = await (await fetch('tiny.gguf')).arrayBuffer();
        globalThis.carried = new DataTransfer();
        globalThis.carried.items.add(new File([bytes], 'dropped.gguf'));
    });
    return type =>
        page.evaluate(t => {
            const at = document.elementFromPoint(400, 300);
            at.dispatchEvent(
                new DragEvent(t.toLowerCase(), {
                    dataTransfer: globalThis.carried,
                    bubbles: true,
                    cancelable: true,
                })
            );
        }, type);
}

// ---- search ----

const shared = process.env.BITNET_TEST_DATA ?? join(ROOT, '../shared');
const needEmbedding = (...names) => {
    for (const file of names) {
        const path = join(shared, 'models', file);
        if (!existsSync(path)) throw new Skip(`no ${file}: see BITNET_TEST_DATA`);
        hooks.set(`/${file}`, (req, res, headers) => {
            sendFile(req, res, path, headers);
            return true;
        });
    }
};
const searching = page => page.$eval('input[value=search]', e => e.click());
// Until the index is at rest and has so many passages.
const indexed = (page, n) => until(page, x => document.body.dataset.indexed === `${x}`, n);
// Opens an embedding model, whose index has so many passages.
async function openEmbedding(page, file, n = 0) {
    await loads(page, () => openUrl(page, `${isolated.url}${file}`));
    await named(page, file);
    await indexed(page, n);
}
async function addTexts(page, files) {
    const paths = Object.entries(files).map(([title, content]) => {
        const path = join(mkdtempSync(join(scratch, 'texts-')), title);
        writeFileSync(path, content);
        return path;
    });
    await (await page.$('#text-files')).uploadFile(...paths);
}
// The passages that are nearest: "file score passage" of each.
async function found(page, question) {
    const before = await page.evaluate(() => Number(document.body.dataset.searches ?? 0));
    await settings(page, { prompt: question });
    await page.focus('#prompt');
    await page.keyboard.press('Enter');
    await until(page, n => Number(document.body.dataset.searches) > n, before);
    return page.$$eval('#results li', all =>
        all.map(li => [...li.children].map(e => e.textContent).join(' '))
    );
}
// A passage that a question is the same text as: the model is of random weights.
const asked = question =>
    'Instruct: Given a web search query, retrieve relevant passages that answer the query\n' +
    `Query: ${question}`;
const paragraph = i => `Paragraph ${i} of a text has this sentence, which is long enough not to be a heading.`;
const paragraphs = n => Array.from({ length: n }, (_, i) => paragraph(i)).join('\n\n');

// ---- the page of a server ----

// Starts the server with the page. f may let it begin again at the same address.
async function withServer(f, args = [], folder = site) {
    const program = join(dirname(resolve(generate)), 'serve');
    if (!existsSync(program)) throw new Skip('there is no build/serve: libmicrohttpd is not installed');
    let server;
    const begin = async (...more) => {
        const port = server ? ['--port', `${server.port}`] : [];
        server = await start(program, ['-m', tinyPath, '--page', folder, ...args, ...more, ...port]);
        return server;
    };
    try {
        await f(await begin(), begin);
    } finally {
        await server?.stop('SIGKILL');
    }
}
// A folder with the page, whose replies of 4000 tokens have no end but that of the context.
async function endlessSite() {
    const folder = join(scratch, 'endless');
    cpSync(site, folder, { recursive: true });
    await withServer(async server => {
        const content = '<|eot_id|><|end_of_text|>',
            { json } = await ask(server, '/tokenize', { content }),
            bias = Object.fromEntries(json.tokens.map(t => [t, -100])),
            path = join(folder, 'server.js'),
            before = readFileSync(path, 'utf8'),
            after = before.replace(
                'max_tokens: o.maxTokens',
                `logit_bias: ${JSON.stringify(bias)}, max_tokens: o.maxTokens !== 4000 && o.maxTokens`
            );
        check(json.tokens.length === 2 && after !== before, 'server.js has another form');
        writeFileSync(path, after);
    });
    return folder;
}
// What the server gives to others for a chat of the page.
const SAMPLED = { temperature: 0.8, seed: 7, maxTokens: 60 };
async function servedReply(server, lines, key) {
    const messages = lines.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }));
    if (lines.system) messages.unshift({ role: 'system', content: lines.system });
    const { json } = await ask(
        server,
        '/v1/chat/completions',
        {
            messages,
            temperature: 0.8,
            seed: 7,
            max_tokens: 60,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
        },
        key && { headers: { Authorization: `Bearer ${key}` } }
    );
    return json.choices[0].message.content;
}
const pressLast = (page, what) =>
    page.$$eval(
        '.turn:last-child button',
        (all, t) => all.find(b => b.textContent === t && b.checkVisibility()).click(),
        what
    );
// As by a key: a click right after the begin would be the second of a double click on Send.
const pressStop = page => page.$eval('#stop', b => b.click());
const runsAre = (page, n) => until(page, m => Number(document.body.dataset.runs) === m, n);
// Sends a text whose reply has no end, and waits until some of it is there.
async function writesForLong(page) {
    await settings(page, { temperature: 0, maxTokens: 4000, prompt: PROMPT });
    await page.focus('#prompt');
    await page.keyboard.press('Enter');
    await until(
        page,
        () => document.querySelector('.turn.writing .body')?.textContent.length > 20
    );
}
async function violations(page) {
    await page.evaluate(axe);
    const found = await page.evaluate(async () => {
        const all = (await globalThis.axe.run()).violations;
        return all.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 90))}`);
    });
    return found.join('\n');
}
// Nothing is wider than the page.
const wide = page =>
    page.evaluate(() =>
        [...document.querySelectorAll('body *')]
            .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.id || e.className || e.tagName)
            .join()
    );

// ---- Markdown ----

const markdown = !readFileSync(join(site, 'markdown-it.js'), 'utf8').startsWith(
    'export default null'
);
function needMarkdown() {
    if (!markdown) throw new Skip('this build has no Markdown: npm could not get it');
}
// Every reply consists of these pieces, which come ms apart.
const sayings = (pieces, ms = 0) =>
    hooks.set(
        '/conversation.js',
        edited('conversation.js', s => {
            const after = s.replace(
                'yield* model.chat([...first, ...sent], options);',
                `for await (const _ of model.generate('a', { maxTokens: 1 }));
                 for (const piece of ${JSON.stringify(pieces)}) {
                     yield piece;
                     options.signal.throwIfAborted();
                     if (${ms}) await new Promise(next => setTimeout(next, ${ms}));
                 }`
            );
            check(after !== s, 'conversation.js has another form');
            return after;
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

// ---- tests ----

const tests = {
    async same_text_as_native() {
        await visit(async page => {
            await ready(page);
            check(
                requests.some(r => r.path === '/tiny.gguf'),
                'the model beside the page was not asked for'
            );
            check(await page.evaluate(() => crossOriginIsolated), 'the page is not isolated');
            await stillWrites(page);
            for (const id of ['f-prefill', 'f-decode'])
                check(/^[\d,.]+ tok\/s$/.test(await text(page, id)), id);
            for (const id of ['f-memory', 'f-kernel', 'f-variant', 'f-threads']) {
                check(!['–', ''].includes(await text(page, id)), `${id} is empty`);
            }
        });
    },

    async same_text_in_every_variant() {
        await visit(async page => {
            await ready(page);
            for (const variant of ['simd', 'threads']) await writesIn(page, variant);
        });
    },

    // A browser whose worker hangs where it starts threads: once, and always.
    async threads_that_do_not_start() {
        for (const hanging of [1, 9]) {
            hooks.set(
                '/bitnet.js',
                rebuilt({
                    // it waits for a second for a start that hangs, for others a minute
                    'connection.js': s =>
                        s
                            .replace(
                                '}, START_MS);',
                                `}, globalThis.starts > ${hanging} ? 60000 : 1000);`
                            )
                            .replace(
                                'threadScript: engine.thread',
                                `$&, hang: (globalThis.starts = (globalThis.starts ?? 0) + 1) <= ${hanging}`
                            ),
                    'worker.js': s =>
                        s
                            .replace('startModule({ name,', 'startModule({ hang, name,')
                            .replace(
                                'variant = name;',
                                '$& if (hang && threadScript) { post({ starting: true }); for (;;); }'
                            ),
                })
            );
            await visit(async page => {
                await ready(page);
                await stillWrites(page);
                const variant = await text(page, 'f-variant');
                check((variant === 'simd') === (hanging > 1), `the variant is ${variant}`);
                const starts = await page.evaluate(() => globalThis.starts);
                expect(starts, Math.min(hanging + 1, 3), 'starts');
            });
        }
    },

    async relaxed_simd() {
        if (!variants.includes('relaxed')) throw new Skip('this build has no such module');
        await visit(async page => {
            await ready(page);
            if (await page.evaluate(relaxedIsUnknown)) throw new Skip('this browser has none');
            await writesIn(page, 'relaxed');
            expect(await text(page, 'f-kernel'), 'relaxed-simd', 'kernel');
            await settings(page, { variant: '' });
            await reloadModel(page);
            expect(await text(page, 'f-variant'), 'relaxed', 'the best variant');
            await checked(page);
            const kernels = await texts(page, '[data-variant=relaxed] caption span');
            check(/ relaxed-simd \(default\)/.test(kernels.join()), `the check ran ${kernels}`);
            expect(await count(page, '[data-variant=relaxed] .bad'), 0, 'failing rows');
        });
    },

    async chat_keeps_its_context() {
        const lines = ['My name is Nora.', 'What is my name?'];
        const replies = execFileSync(
            generate,
            ['-m', tinyPath, '-cnv', '--temp', '0', '-n', '60'],
            { input: `${lines.join('\n')}\n`, encoding: 'utf8', stdio: ['pipe', 'pipe', 'ignore'] }
        )
            .replace(/^> ?/gm, '')
            .split('\n')
            .map(l => l.trim())
            .filter(Boolean);
        await visit(async page => {
            await ready(page);
            for (const [i, line] of lines.entries()) {
                expect((await write(page, line, { maxTokens: 60 })).trim(), replies[i], line);
            }
            expect(await count(page, '.turn'), 4, 'turns');
            await page.click('#new');
            expect(await count(page, '.turn'), 0, 'turns of a new chat');
        });
    },

    async a_seed_repeats_itself() {
        await visit(async page => {
            await ready(page);
            await completion(page);
            const sampled = { temperature: 1, seed: 7, maxTokens: 40 };
            const [a, b] = [await write(page, PROMPT, sampled), await write(page, PROMPT, sampled)];
            const c = await write(page, PROMPT, { ...sampled, seed: 8 });
            expect(b, a, 'the same seed');
            check(c !== a, 'another seed gives the same text');
        });
    },

    // The worker writes 20 tokens and goes on when it has been stopped.
    async stop_ends_a_text() {
        const whole = native('-p', PROMPT, '-n', '400').replace(/\n$/, '');
        const paused = s =>
            s
                .replace('let bw;', 'let pausing, bw;')
                .replace(
                    /async function generate\(.*\n/,
                    '$& pausing = options.maxTokens === 400;\n'
                )
                .replace(
                    'post({ id, event: { token, text, index, ...more } });',
                    '$& if (pausing && index === 19) while (!signal.aborted) await turn();'
                );
        hooks.set('/bitnet.js', rebuilt({ 'worker.js': paused }));
        await visit(async page => {
            await ready(page);
            await completion(page);
            await settings(page, { temperature: 0, maxTokens: 400 });
            for (const how of ['click', 'Escape']) {
                await settings(page, { maxTokens: 400 });
                await page.evaluate(
                    by =>
                        new Promise(done => {
                            const log = document.getElementById('log'),
                                watch = new MutationObserver(() => {
                                    if (
                                        log.lastElementChild?.querySelector('.body')?.textContent
                                            .length < 20
                                    )
                                        return;
                                    watch.disconnect();
                                    const end = new MutationObserver(() => {
                                        if (document.body.dataset.state !== 'ready') return;
                                        end.disconnect();
                                        done();
                                    });
                                    end.observe(document.body, { attributes: true });
                                    if (by === 'click') document.getElementById('stop').click();
                                    else
                                        dispatchEvent(
                                            new KeyboardEvent('keydown', {
                                                key: 'Escape',
                                                bubbles: true,
                                            })
                                        );
                                });
                            watch.observe(log, {
                                subtree: true,
                                childList: true,
                                characterData: true,
                            });
                            const prompt = document.getElementById('prompt');
                            prompt.value = 'Once upon a time';
                            document.getElementById('form').requestSubmit();
                        }),
                    how
                );
                const reply = await lastReply(page),
                    note = (await texts(page, '.turn:last-child .note')).join();
                check(reply.length < whole.length, `${how}: the text is whole`);
                check(whole.startsWith(reply), `${how}: not the same text as far as it goes`);
                expect(note, 'Stopped.', how);
                expect(await write(page, PROMPT), story(), `text after ${how}`);
                const before = (await texts(page, '.turn.reply .body')).at(-2);
                expect(before, reply, `${how}: text after the stop`);
            }
        });
    },

    async wrong_file() {
        const path = join(scratch, 'notes.gguf'),
            cut = join(scratch, 'cut.gguf');
        writeFileSync(path, 'This is no model. '.repeat(1000));
        writeFileSync(cut, tiny.subarray(0, 900000));
        await visit(async page => {
            await ready(page);
            await chooseFile(page, path);
            expect(await errorTitle(page), 'This is not a readable GGUF file', 'message');
            check(/ERR_FORMAT/.test(await text(page, 'error-code')), 'no ERR_FORMAT');
            await stillWrites(page);
            await chooseFile(page, cut);
            expect(await errorTitle(page), 'The file ends too early', 'message');
            await stillWrites(page);
        });
    },

    async http_404() {
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}nowhere.gguf`);
            expect(await errorTitle(page), 'The server answered 404', 'message');
            await stillWrites(page);
        });
    },

    async wrong_cors() {
        hooks.set('/allowed.gguf', (req, res) =>
            asTiny(req, res, { 'Access-Control-Allow-Origin': '*' })
        );
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${plain.url}tiny.gguf`);
            expect(
                await errorTitle(page),
                'The URL cannot be reached from this page',
                'message'
            );
            check(/CORS/.test(await text(page, 'error-text')), 'CORS is not named');
            await openUrl(page, `${plain.url}allowed.gguf`);
            await named(page, 'allowed.gguf');
            check(!(await visible(page, 'error')), 'the message is still there');
            await stillWrites(page);
        });
    },

    async reload_uses_the_cache() {
        hooks.set('/kept.gguf', asTiny);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}kept.gguf`);
            await until(page, () => document.querySelector('#cache .delete') !== null);
            expect(await page.$eval('#cache .name', e => e.textContent), 'kept.gguf', 'listed');
            expect(await page.$eval('#cache .size', e => e.textContent), '1.7 MB', 'size');
            await keptPage(page);
            requests = [];
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'kept.gguf', 'model');
            expect(
                requests.filter(r => r.path.endsWith('.gguf')).length,
                0,
                'requests for a model'
            );
            await stillWrites(page);
            await page.click('#cache .delete');
            await until(page, () => document.querySelector('#cache-none:not([hidden])') !== null);
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'tiny.gguf', 'model after it was deleted');
        });
    },

    async interrupted_download_resumes() {
        let cuts = 0,
            drop;
        const sent = [];
        // The error that follows may overtake bytes, so they have to be in the file.
        const arrived = async () => {
            const root = await navigator.storage.getDirectory();
            const dir = await root.getDirectoryHandle('bitnet-cache', { create: true });
            for await (const [file, handle] of dir.entries())
                if (file.endsWith('.part')) return (await handle.getFile()).size === 1000000;
            return false;
        };
        hooks.set('/cut.gguf', (req, res, headers) => {
            const from = Number(/^bytes=(\d+)-/.exec(req.headers.range ?? '')?.[1] ?? 0);
            sent.push(from);
            if (from || cuts++) return asTiny(req, res, headers);
            res.writeHead(200, {
                'Content-Type': 'application/octet-stream',
                'Content-Length': tiny.length,
                ETag: '"1"',
                'Accept-Ranges': 'bytes',
                ...headers,
            });
            res.write(tiny.subarray(0, 1000000));
            drop = () => res.destroy();
            return true;
        });
        // sendFile's ETag is the file's, so both answers must have that one
        const { etag: tag } = Object.fromEntries(
            (await fetch(`${isolated.url}tiny.gguf`, { method: 'HEAD' })).headers
        );
        const first = hooks.get('/cut.gguf');
        hooks.set('/cut.gguf', (req, res, headers) => first(req, res, { ...headers, ETag: tag }));
        await visit(async page => {
            await ready(page);
            const opened = () =>
                document.getElementById('model-name').textContent === 'cut.gguf' &&
                document.body.dataset.state === 'ready';
            await loads(page, async () => {
                await openUrl(page, `${isolated.url}cut.gguf`);
                await until(page, arrived);
                drop();
            });
            if (!(await page.evaluate(opened))) {
                // it may go on by itself
                expect(await text(page, 'error-title'), 'The download was interrupted', 'message');
                await page.reload();
                await ready(page);
                await openUrl(page, `${isolated.url}cut.gguf`);
                await until(page, opened);
            }
            check(sent.length > 1 && sent.at(-1) > 500000, `ranges began at ${sent}`);
            await stillWrites(page);
        });
    },

    async download_bar_and_cancel() {
        let ended = false;
        hooks.set('/slow.gguf', (req, res, headers) => {
            res.writeHead(200, {
                'Content-Type': 'application/octet-stream',
                'Content-Length': tiny.length,
                ...headers,
            });
            let at = 0;
            const timer = setInterval(() => { // the rest never comes
                if (at < 1500000) res.write(tiny.subarray(at, (at += 20000)));
            }, 50);
            res.on('close', () => {
                clearInterval(timer);
                ended = true;
            });
            return true;
        });
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}slow.gguf`);
            await until(page, () =>
                /[KM]B of 1.7 MB · [\d.]+ MB\/s · \d+ (s|min) left/.test(
                    document.getElementById('loading-text').textContent
                )
            );
            check(
                (await page.evaluate(() => document.getElementById('loading-bar').value)) > 0,
                'the bar is empty'
            );
            await page.click('#loading-cancel');
            await ready(page);
            check(!(await visible(page, 'loading')), 'the bar is still there');
            check(!(await visible(page, 'error')), 'cancelling is no error');
            for (const end = Date.now() + HANG; !ended && Date.now() < end; ) await sleep(20);
            check(ended, 'the connection is still open');
            await stillWrites(page);
        });
    },

    async works_without_isolation() {
        await visit(
            async page => {
                await ready(page);
                check(!(await page.evaluate(() => crossOriginIsolated)), 'the page is isolated');
                expect(await text(page, 'f-threads'), '1', 'threads');
                check(await visible(page, 'notice'), 'no notice');
                check(
                    /One thread.*COOP and COEP/.test(await text(page, 'notice-text')),
                    'the notice does not say why'
                );
                await stillWrites(page);
            },
            { at: plain.url }
        );
    },

    async service_worker_isolates() {
        await visit(
            async page => {
                await ready(page);
                await page.click('#notice-action');
                await until(page, () => globalThis.crossOriginIsolated === true);
                await ready(page);
                check(!(await visible(page, 'notice')), 'the notice is still there');
                if (availableParallelism() > 1)
                    check(Number(await text(page, 'f-threads')) > 1, 'one thread');
                await stillWrites(page);
                await page.click('#isolation-switch');
                await until(page, () => !globalThis.crossOriginIsolated);
                await ready(page);
                check(await visible(page, 'notice'), 'it was not turned off');
            },
            { at: plain.url }
        );
    },

    async isolation_has_a_switch() {
        const isolate = how =>
            hooks.set('/', edited('index.html', x => x.replace('data-isolate="ask"', how)));
        isolate('data-isolate="auto"');
        await visit(
            async page => {
                await until(page, () => globalThis.crossOriginIsolated === true);
                await stillWrites(page);
            },
            { at: plain.url }
        );
        isolate('data-isolate="off"');
        await visit(
            async page => {
                await ready(page);
                check(await visible(page, 'notice'), 'no notice');
                check(!(await visible(page, 'notice-action')), 'there is a button');
            },
            { at: plain.url }
        );
    },

    // Chromium's is its own drag, as from another program; Firefox has none for tests.
    async drag_and_drop() {
        const path = join(scratch, 'dropped.gguf');
        writeFileSync(path, tiny);
        await visit(async page => {
            await ready(page);
            const drag = await (firefox ? dragInPage(page) : dragOver(page, path));
            await drag('dragEnter');
            await drag('dragOver');
            check(await visible(page, 'drop'), 'nothing says that it can be dropped');
            await drag('drop');
            await named(page, 'dropped.gguf');
            check(!(await visible(page, 'drop')), 'the drop zone is still there');
            await stillWrites(page);
        });
    },

    // Kernels, and a model's layers, logits and tokens: as examples/crosscheck has them natively.
    async crosscheck_passes() {
        await visit(async page => {
            await ready(page);
            await checked(page);
            const lines = readFileSync(join(site, 'crosscheck.txt'), 'utf8')
                .split('\n')
                .filter(l => l.includes(' | ')).length;
            const tables = await count(page, '#check-results table');
            check(tables > 0 && lines > 500, 'too little was run');
            expect(
                await text(page, 'check-status'),
                `✓ Pass: all ${(lines * tables).toLocaleString('en')} results are ` +
                    'the same, bit for bit.',
                'status'
            );
            expect(await count(page, '#check-results td.bad'), 0, 'failing rows');
            const rows = await texts(page, '[data-variant=simd] tbody th');
            for (const row of ['layers', 'logits', 'greedy tokens'])
                check(rows.includes(`tiny.gguf, ${row}`), `no ${row} among ${rows}`);
        });
    },

    // Some weights are others.
    async crosscheck_finds_a_wrong_model() {
        const other = join(scratch, 'other.gguf'),
            bytes = Buffer.from(tiny);
        bytes.copyWithin(bytes.length - 20000, bytes.length - 24000, bytes.length - 20000);
        writeFileSync(other, bytes);
        await visit(async page => {
            await ready(page);
            hooks.set('/tiny.gguf', (req, res, headers) => {
                sendFile(req, res, other, headers);
                return true;
            });
            await checked(page);
            check((await text(page, 'check-status')).startsWith('✗ Fail'), 'it passes');
            const wrong = (await texts(page, '.wrong li')).join('\n');
            check(/^tiny.gguf, logits after the prompt: /m.test(wrong), wrong);
            check(!/^(?!tiny.gguf|head|end)/m.test(wrong), wrong);
        });
    },

    async crosscheck_finds_what_differs() {
        const reference = readFileSync(join(site, 'crosscheck.txt'), 'utf8');
        hooks.set('/crosscheck.txt', (req, res, headers) => {
            res.writeHead(200, { 'Content-Type': 'text/plain', ...headers });
            res.end(
                reference.replace(
                    /(rope n=80 normal.* )(.)(\w+)\n/,
                    (_, a, b, c) => `${a}${b === '0' ? 1 : 0}${c}\n`
                )
            );
            return true;
        });
        await visit(async page => {
            await ready(page);
            await checked(page);
            const tables = await count(page, '#check-results table');
            check(
                (await text(page, 'check-status')).startsWith(`✗ Fail: ${tables} of `),
                await text(page, 'check-status')
            );
            const row = '#check-results tbody tr';       // what fails comes first
            expect((await texts(page, `${row} th`))[0], 'rope', 'the first row');
            expect((await texts(page, `${row} .bad`))[0], '✗ FAIL', 'its result');
            check(/^rope n=80 normal seed=1: /.test((await texts(page, '.wrong li'))[0]), 'the line');
        });
    },

    // A kernel that differs from plain C in the same module.
    async crosscheck_finds_a_wrong_kernel() {
        hooks.set(
            '/check.js',
            edited('check.js', s =>
                s.replace(
                    'lines.push(l)',
                    "{ lines.push(l); if (l.startsWith('softmax n=5 wide')) " +
                        "lines.push(l.replace('| scalar |', '| simd128 |').replace(/.$/, 'x')); }"
                )
            )
        );
        await visit(async page => {
            await ready(page);
            await checked(page);
            check(
                (await text(page, 'check-status')).startsWith('✗ Fail'),
                await text(page, 'check-status')
            );
            check(
                /kernel simd128/.test((await texts(page, '.wrong li'))[0]),
                'the kernel is not named'
            );
        });
    },

    // No task of the page takes 50 ms of its thread's own time, which other programs do not stretch.
    // What the browser does now and then (its garbage, say) may be in it: one of three runs is to be
    // free of it.
    async page_is_never_blocked() {
        if (firefox) throw new Skip('Firefox does not report tasks');
        await visit(async page => {
            await ready(page);
            await completion(page);
            let longest = 0;
            for (let i = 0; i < 3; i++) {
                await page.tracing.start({ categories: ['disabled-by-default-devtools.timeline'] });
                await write(page, PROMPT, { maxTokens: 400, temperature: 1 });
                const all = JSON.parse(Buffer.from(await page.tracing.stop()).toString()).traceEvents;
                const thread = e => `${e.pid} ${e.tid}`;
                const main = new Set(
                    all.filter(e => e.args?.name === 'CrRendererMain').map(thread)
                );
                // A task at the trace's end may lack its thread's time.
                const tasks = all.filter(
                    e => e.name === 'RunTask' && e.tdur !== undefined && main.has(thread(e))
                );
                check(tasks.length > 20, `only ${tasks.length} tasks are reported`);
                longest = Math.max(...tasks.map(e => e.tdur)) / 1000;
                if (longest <= 50) return;
            }
            check(false, `a task of ${longest} ms`);
        });
    },

    async keyboard() {
        await visit(async page => {
            await ready(page);
            await until(page, () => document.activeElement.id === 'prompt');
            await settings(page, { temperature: 0, maxTokens: 400 });
            await page.keyboard.type('Hello!');
            await page.keyboard.down('Shift');
            await page.keyboard.press('Enter');
            await page.keyboard.up('Shift');
            await page.keyboard.type('Who are you?');
            expect(await value(page, 'prompt'), 'Hello!\nWho are you?', 'Shift+Enter');
            await page.keyboard.press('Enter');
            await until(page, () => document.querySelector('.turn.reply') !== null);
            expect(
                (await texts(page, '.turn.user .body')).join(),
                'Hello!\nWho are you?',
                'what was sent'
            );
            await page.keyboard.press('Escape');
            await ready(page);
            expect(
                await page.evaluate(() => document.activeElement.id),
                'prompt',
                'focus after the stop'
            );
            const seen = new Set();
            await page.evaluate(() => document.querySelector('.skip').focus());
            for (let i = 0; i < 60; i++) {
                const now = await page.evaluate(() => {
                    const e = document.activeElement,
                        s = getComputedStyle(e),
                        n = e.nextElementSibling;
                    const ring = x => x.outlineStyle !== 'none' && parseFloat(x.outlineWidth) >= 2;
                    const box = e.getBoundingClientRect();
                    return {
                        id: e.id || e.className || e.name || e.tagName,
                        body: e === document.body,
                        shown:
                            ring(s) ||
                            (e.name === 'mode' && ring(getComputedStyle(n))) ||
                            (e.id === 'prompt' &&
                                getComputedStyle(e.parentNode).boxShadow !== 'none') ||
                            (e.className === 'skip' && box.width > 50),
                    };
                });
                if (now.body) break;
                check(now.shown, `focus is not visible on ${now.id}`);
                seen.add(now.id);
                await page.keyboard.press('Tab');
            }
            for (const id of [
                'skip',
                'mode',
                'new',
                'scroll',
                'prompt',
                'url',
                'pick',
                'use-tiny',
                'system',
                'temperature',
                'topK',
                'topP',
                'minP',
                'seed',
                'maxTokens',
                'check',
            ]) {
                check(seen.has(id), `Tab does not reach ${id}: ${[...seen]}`);
            }
        });
    },

    async phone_has_no_sideways_scroll() {
        await visit(
            async page => {
                await ready(page);
                const fits = async where => {
                    const wide = await page.evaluate(() =>
                        [...document.querySelectorAll('html, body, main, aside, .scroll')]
                            .filter(e => e.scrollWidth > e.clientWidth + 1)
                            .map(e => e.className || e.tagName)
                    );
                    expect(wide.join(), '', where);
                    const out = await page.evaluate(() =>
                        [...document.querySelectorAll('button, input, .turn, .body, p, dd')]
                            .filter(e => {
                                const b = e.getBoundingClientRect();
                                return b.width > 1 && b.right > innerWidth + 1;
                            })
                            .map(e => e.id || e.className || e.textContent)
                    );
                    expect(out.join(), '', `${where}: beyond the edge`);
                };
                await fits('the beginning');
                const from = await page.$eval('#scroll', e => [
                    e.scrollTop,
                    e.scrollHeight - e.clientHeight,
                ]);
                check(from[1] > 0 && from[0] === 0, `it shows the beginning from ${from}`);
                await picture(page, 'phone');
                await write(page, 'a'.repeat(300));
                await fits('with text');
                await picture(page, 'phone-text');
                await page.click('#panel-toggle');
                await fits('settings');
                await picture(page, 'phone-settings');
                await checked(page);
                await fits('cross-check');
                await page.keyboard.press('Escape');
                check(await visible(page, 'prompt'), 'Escape does not close the settings');
                const size = await page.evaluate(() =>
                    parseFloat(getComputedStyle(document.querySelector('.turn.reply')).fontSize)
                );
                check(size >= 16, `text of ${size} px`);
            },
            { viewport: PHONE, at: plain.url }
        );
    },

    // axe finds nothing in any state. Colours do not depend on the width, nor the layout on the colours.
    async accessible() {
        for (const [dark, width] of [
            [false, 1280],
            [true, 360],
        ]) {
            sayings([ARTICLE]);
            hooks.set('/kept.gguf', asTiny);
            hooks.set('/tiny.gguf', (req, res, headers) => {
                res.writeHead(404, headers).end();
                return true;
            });
            let opened;
            hooks.set('/slow.gguf', (req, res, headers) => {
                res.writeHead(200, { 'Content-Length': tiny.length, ...headers });
                res.write(tiny.subarray(0, 100000));
                opened = () => res.end(tiny.subarray(100000));
                return true;
            });
            await visit(
                async page => {
                    const look = `${dark ? 'dark' : 'light'}-${width}`;
                    const audit = async where => {
                        await page.evaluate(axe);
                        const found = await page.evaluate(async () => {
                            const { violations } = await globalThis.axe.run();
                            return violations.map(
                                v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 90))}`
                            );
                        });
                        expect(found.join('\n'), '', `${look}, ${where}`);
                        await picture(page, `${look}-${where.replaceAll(' ', '-')}`);
                    };
                    const panel = async () => {
                        if (width < 900) await page.click('#panel-toggle');
                    };
                    await errorTitle(page);
                    await audit('an error and no model');
                    await page.click('#error-close');
                    await panel();
                    await openUrl(page, `${isolated.url}slow.gguf`);
                    await until(page, () => document.querySelector('#loading-bar[value]') !== null);
                    await audit('loading');
                    opened();
                    await ready(page);
                    await write(page, 'Who are you?');
                    await audit('a chat');
                    await panel();
                    await loads(page, () => openUrl(page, `${isolated.url}kept.gguf`));
                    await panel();
                    await page.$eval('details', e => (e.open = true));
                    await page.$eval('#topP', e => {
                        e.value = '7';
                        e.dispatchEvent(new Event('change'));
                    });
                    await checked(page);
                    await page.evaluate(() =>
                        document.querySelector('#chats .tools button:last-child').click()
                    );
                    await audit('settings');
                },
                { viewport: { width, height: 800 }, at: isolated.url, dark, reducedMotion: true }
            );
        }
    },

    async search_finds_marks_and_removes() {
        needEmbedding('q.gguf');
        await visit(async page => {
            await ready(page);
            await searching(page);
            check(await visible(page, 'search-none'), 'it does not say which model it needs');
            check(!(await visible(page, 'welcome')), 'the chat is shown, too');
            check(/about\s+420 MB/.test(await text(page, 'search-none')), 'the size');
            expect(await page.$eval('#send', e => e.disabled), true, 'the button');
            await openEmbedding(page, 'q.gguf');
            check(!(await visible(page, 'search-none')), 'it still asks for a model');
            await addTexts(page, {
                'a.txt': `${paragraphs(30)}\n\n${asked('Where is the cat?')}\n\n${paragraph(31)}`,
                'b.md': `${asked('<b>Who</b> sings?')}\n\n# A heading\n\n${paragraph(7)}`,
            });
            await indexed(page, 34);
            expect((await texts(page, '#texts .size')).join(), '32 passages,2 passages', 'texts');
            const nearest = await found(page, 'Where is the cat?');
            expect(nearest.length, 20, 'passages');
            expect(nearest[0], `a.txt 1.00 ${asked('Where is the cat?')}`, 'the first');
            const scores = nearest.map(f => Number(/ (-?\d\.\d\d) /.exec(f)[1]));
            check(scores[1] < 1 && scores.every((s, i) => !i || s <= scores[i - 1]), `${scores}`);
            await page.click('#results li');
            expect((await texts(page, '#reader mark')).join(), asked('Where is the cat?'), 'mark');
            expect(await text(page, 'reader-title'), 'a.txt', 'the title');
            const whole = await text(page, 'reader-text');
            check(whole.startsWith(paragraph(0)) && whole.endsWith(paragraph(31)), 'the whole text');
            check(
                await page.$eval('#reader mark', e => {
                    const { top, bottom } = e.getBoundingClientRect(),
                        room = document.getElementById('scroll').getBoundingClientRect();
                    return top >= room.top && bottom <= room.bottom;
                }),
                'the mark is out of sight'
            );
            await page.keyboard.press('Escape');
            check(!(await visible(page, 'reader')), 'Escape does not close the text');
            expect(
                await page.evaluate(() => document.activeElement.textContent),
                'a.txt',
                'what has the focus'
            );
            const bold = '<b>Who</b> sings?';
            expect((await found(page, bold))[0], `b.md 1.00 ${asked(bold)}`, 'text is text');
            await page.click('#texts-about');
            await page.click('#texts li:first-child button:last-of-type');
            await page.click('.ask .yes');
            await indexed(page, 2);
            expect((await texts(page, '#texts .name')).join(), 'b.md', 'what is left');
            check((await texts(page, '#results .name')).every(t => t === 'b.md'), 'its passages stay');
            expect((await found(page, 'Where is the cat?')).length, 2, 'passages that are left');
            await page.click('#new');
            check(!(await visible(page, 'results-box')), 'New leaves the passages');
            await page.click('#add-note');
            await page.keyboard.type('Milk and bread.');
            await page.click('#note-form button');
            await indexed(page, 3);
            expect((await texts(page, '#texts .name')).join(), 'b.md,Milk and bread.', 'a note');
            await page.evaluate(() => {
                const files = new DataTransfer();
                files.items.add(new File(['Dropped text.'], 'c.txt'));
                const how = { dataTransfer: files, bubbles: true, cancelable: true };
                document.dispatchEvent(new DragEvent('dragenter', how));
                document.dispatchEvent(new DragEvent('drop', how));
            });
            await indexed(page, 4);
            expect(await text(page, 'model-name'), 'q.gguf', 'the model after a drop');
            expect(await text(page, 'drop-text'), 'Drop text files, or a GGUF file', 'what it says');
            await addTexts(page, { 'b.md': paragraphs(5), 'zero.txt': 'a\0b', 'none.txt': ' \n' });
            await indexed(page, 7);
            expect(await errorTitle(page), 'Not everything can be searched', 'an error');
            const code = await text(page, 'error-code');
            check(/zero\.txt is not a text\. none\.txt is empty\./.test(code), code);
            await page.reload();
            await named(page, 'q.gguf');
            await indexed(page, 7);
            const left = (await texts(page, '#texts .name')).sort().join();
            expect(left, 'Milk and bread.,b.md,c.txt', 'texts after a reload');
        });
    },

    async search_index_is_kept() {
        needEmbedding('q.gguf', 'g.gguf');
        await visit(async page => {
            await ready(page);
            await searching(page);
            await openEmbedding(page, 'q.gguf');
            await addTexts(page, { 'a.txt': `${paragraphs(8)}\n\n${asked('a cat')}` });
            await indexed(page, 9);
            const first = await found(page, 'a cat');
            await page.reload();
            await named(page, 'q.gguf');
            await indexed(page, 9);
            expect(await page.$eval('input[value=search]', e => e.checked), true, 'the mode');
            check(!(await visible(page, 'unindexed')), 'it asks to index again');
            expect((await found(page, 'a cat')).join('\n'), first.join('\n'), 'after a reload');
            await openEmbedding(page, 'g.gguf');
            check(await visible(page, 'unindexed'), 'another model does not ask to index');
            check(!(await visible(page, 'results-box')), 'passages of another model');
            expect(
                await text(page, 'unindexed-text'),
                '9 passages are not indexed with this model.',
                'what it says'
            );
            await page.click('#index');
            await indexed(page, 9);
            check((await found(page, 'a cat'))[0].startsWith('a.txt 1.00'), 'with another model');
            await openEmbedding(page, 'q.gguf', 9);
            expect((await found(page, 'a cat')).join('\n'), first.join('\n'), 'with the first');
            await page.evaluate(() => document.getElementById('use-tiny').click());
            await named(page, 'tiny.gguf');
            check(await visible(page, 'search-none'), 'a model that writes text can search');
            hooks.set('/tiny.gguf', (req, res, headers) => {
                res.writeHead(404, headers).end();
                return true;
            });
            await page.reload();
            await errorTitle(page);
            expect(await count(page, '#texts li'), 1, 'texts without a model');
            hooks.delete('/tiny.gguf');
            await loads(page, () => page.evaluate(() => document.getElementById('use-tiny').click()));
            await page.$eval('input[value=chat]', e => e.click());
            check((await write(page, 'Hello')).length > 0, 'a chat');
            await openEmbedding(page, 'q.gguf', 9);
            expect(await page.$eval('#send', e => e.disabled), true, 'a chat with q.gguf');
            await page.click('#notice-action');
            check(await visible(page, 'search'), 'the notice leads to Search');
        });
    },

    async search_cancel_keeps_what_is_done() {
        needEmbedding('q.gguf');
        hooks.set('/library.js', edited('library.js', s => s.replace('AT_ONCE = 64', 'AT_ONCE = 4')));
        await visit(async page => {
            await ready(page);
            await searching(page);
            await openEmbedding(page, 'q.gguf');
            await addTexts(page, { 'a.txt': paragraphs(1500), 'b.txt': asked('a cat') });
            await until(page, () => /^Indexing: [1-9]/.test(document.getElementById('indexing-text').textContent));
            await page.click('#indexing-cancel');
            await until(page, () => document.body.dataset.indexed > 0);
            const done = await page.evaluate(() => Number(document.body.dataset.indexed));
            check(done > 0 && done < 1501, `${done} passages are done`);
            check(await visible(page, 'unindexed'), 'the rest cannot be indexed');
            expect((await found(page, 'a cat')).length, Math.min(done, 20), 'what is done is found');
            await page.reload();
            await named(page, 'q.gguf');
            await indexed(page, done);
            await page.click('#index');
            await until(page, () => document.getElementById('indexing').checkVisibility());
            check((await found(page, 'a cat')).length > 0, 'a question while it is indexed');
            await indexed(page, 1501);
            expect((await found(page, 'a cat'))[0], `b.txt 1.00 ${asked('a cat')}`, 'all is found');
        });
    },

    // 10,000 passages, whose vectors are made up. The times are only printed.
    async search_many_passages() {
        needEmbedding('q.gguf');
        hooks.set(
            '/library.js',
            edited('library.js', s =>
                s.replace(
                    'const got = await model.embed(some, { cut: true, signal });',
                    `const got = some.map(() => Float32Array.from({ length: model.info.dims }, () =>
                        (Math.random() - 0.5) / 8));`
                )
            )
        );
        await visit(async page => {
            await ready(page);
            await searching(page);
            await openEmbedding(page, 'q.gguf');
            await page.evaluate(() => {
                globalThis.frames = [];
                let last = performance.now();
                const frame = now => {
                    globalThis.frames.push(now - last);
                    last = now;
                    requestAnimationFrame(frame);
                };
                requestAnimationFrame(frame);
            });
            const files = Object.fromEntries(
                Array.from({ length: 20 }, (_, i) => [`${i}.txt`, paragraphs(500)])
            );
            const took = async f => {
                await page.evaluate(() => (globalThis.frames.length = 0));
                const start = Date.now();
                await f();
                const longest = await page.evaluate(() => Math.max(...globalThis.frames));
                return `${Date.now() - start} ms, the longest frame ${Math.round(longest)} ms`;
            };
            const add = await took(async () => {
                await addTexts(page, files);
                await indexed(page, 10000);
            });
            const find = await took(() => found(page, 'a cat'));
            expect(await count(page, '#results li'), 20, 'passages');
            const reload = await took(async () => {
                await page.reload();
                await named(page, 'q.gguf');
                await indexed(page, 10000);
                await page.evaluate(() => (globalThis.frames = [0]));
            });
            console.log(`    10,000 passages: added in ${add}; a question ${find}; opened in ${reload}`);
        });
    },

    async search_fits_every_screen() {
        needEmbedding('q.gguf');
        const sizes = { phone: PHONE, tablet: { width: 800, height: 1100 }, desktop: { width: 1280, height: 800 } };
        for (const [screen, viewport] of Object.entries(sizes))
            for (const dark of firefox || screen !== 'desktop' ? [false] : [false, true])
                await visit(
                    async page => {
                        const look = async where => {
                            if (!firefox) {
                                await page.evaluate(axe);
                                const found = await page.evaluate(async () => {
                                    const { violations } = await globalThis.axe.run();
                                    return violations.map(
                                        v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 90))}`
                                    );
                                });
                                expect(found.join('\n'), '', `${screen}, ${where}`);
                            }
                            const out = await page.evaluate(() =>
                                [...document.querySelectorAll('header *, #search *, #form *')]
                                    .filter(e => e.checkVisibility())
                                    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
                                    .map(e => e.id || e.className || e.textContent)
                            );
                            expect(out.join(), '', `${screen}, ${where}: beyond the edge`);
                            await picture(page, `search-${screen}${dark ? '-dark' : ''}-${where}`);
                        };
                        await ready(page);
                        await searching(page);
                        await look('no-model');
                        await page.click('#address-embedding');
                        expect(await page.evaluate(() => document.activeElement.id), 'url', 'focus');
                        await openEmbedding(page, 'q.gguf');
                        await addTexts(page, {
                            'Notes about the garden and what grows in it.md':
                                `# The garden\n\n${asked('When do I sow?')}\n\n` +
                                'Sow beans when the soil is warm, in the second half of May. '.repeat(9),
                            'recipes.txt': `Bread needs an hour in the oven. ${'Knead it well. '.repeat(20)}\n\n${paragraphs(40)}`,
                        });
                        await indexed(page, 43);
                        await look('texts');
                        await page.click('#add-note');
                        await look('note');
                        await page.click('#note-cancel');
                        await found(page, 'When do I sow?');
                        await look('results');
                        await page.click('#results .name');
                        await look('reader');
                    },
                    { viewport, ...(dark ? { dark } : {}) }
                );
    },

    async settings_are_kept() {
        await visit(async page => {
            await ready(page);
            await fill(page, 'temperature', '0.3');
            await fill(page, 'system', 'You are a helpful assistant.');
            await page.$eval('#system', e => e.blur());
            await page.reload();
            await ready(page);
            expect(await value(page, 'temperature'), '0.3', 'temperature');
            expect(
                await value(page, 'system'),
                'You are a helpful assistant.',
                'system prompt'
            );
            await page.click('#reset');
            expect(await value(page, 'temperature'), '0.7', 'the default');
        });
    },

    async no_simd() {
        hooks.set(
            '/bitnet.js',
            edited('bitnet.js', s => `WebAssembly.validate = () => false;\n${s}`)
        );
        await visit(async page => {
            expect(await errorTitle(page), 'This browser has no WebAssembly SIMD', 'message');
        });
    },

    async more_than_wasm_has() {
        hooks.set('/huge.gguf', (req, res, headers) => {
            res.writeHead(200, {
                'Content-Type': 'application/octet-stream',
                'Content-Length': 5e9,
                ...headers,
            });
            res.write(tiny);
            return true;
        });
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}huge.gguf`);
            expect(await errorTitle(page), 'The model is too large for this page', 'message');
            check(/^ERR_LIMIT: 5000000000 bytes/.test(await text(page, 'error-code')), 'ERR_LIMIT');
            await stillWrites(page);
            await drop(page, 'huge.gguf', 256);
            expect(await errorTitle(page), 'The model is too large for this page', 'message');
            await stillWrites(page);
        });
    },

    // A browser that gives a page little: neither a file nor a model's memory fits, and what was open
    // goes on.
    async out_of_memory() {
        const noMore = s => `WebAssembly.Memory.prototype.grow = () => {
            throw new RangeError('Maximum memory size exceeded');
        };\n${s}`;
        hooks.set('/bitnet.js', rebuilt({ 'worker.js': noMore }));
        await visit(async page => {
            await ready(page);
            const refused = async message => {
                expect(await errorTitle(page), 'Out of memory', 'message');
                check(/smaller context/.test(await text(page, 'error-text')), 'no advice');
                const code = await text(page, 'error-code');
                check(code.startsWith(`ERR_MEMORY: ${message}`), code);
                await stillWrites(page);
            };
            await drop(page, 'large.gguf', 5);
            await refused('out of memory: 86 MB more');
            await drop(page, 'padded.gguf', 1, 12e6);
            await refused('no memory for a context of 512 positions');
        });
    },

    // The file is not what its address promises: it is not kept, and the right one then is.
    async wrong_checksum() {
        const sum = createHash('sha256').update(tiny).digest('hex'),
            bad = Buffer.from(tiny),
            sent = [];
        bad[bad.length - 100] ^= 1;
        hooks.set('/summed.gguf', (req, res, headers) => {
            const body = sent.length ? tiny : bad;
            sent.push(req.headers.range ?? 'all');
            res.writeHead(200, { ETag: '"1"', 'Content-Length': body.length, ...headers });
            res.end(body);
            return true;
        });
        await visit(async page => {
            await ready(page);
            const url = `${isolated.url}summed.gguf#sha256=${sum}`;
            await openUrl(page, url);
            expect(await errorTitle(page), 'The file has the wrong checksum', 'message');
            check((await text(page, 'error-code')).includes(`not ${sum}`), 'no checksum');
            check(await visible(page, 'cache-none'), 'it is kept');
            await stillWrites(page);
            await openUrl(page, url);
            await named(page, 'summed.gguf');
            await until(page, () => document.querySelector('#cache .delete') !== null);
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'summed.gguf', 'model after a reload');
            expect(sent.join(), 'all,all', 'requests');
            await openUrl(page, url.replace(/.{64}$/, '0'.repeat(64)));
            expect(await errorTitle(page), 'The file has the wrong checksum', 'message');
        });
    },

    // Without OPFS, the Cache API; without both, memory, and the page says so.
    async other_stores() {
        const hide = what =>
            hooks.set('/bitnet.js', rebuilt({ 'cache.js': s => `${what}\n${s}` }));
        const opfs = 'delete StorageManager.prototype.getDirectory;',
            cacheApi = "Object.defineProperty(globalThis, 'caches', { value: undefined });";
        hooks.set('/stored.gguf', asTiny);
        const asked = () => requests.filter(r => r.path === '/stored.gguf').length;
        hide(opfs);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}stored.gguf`);
            await named(page, 'stored.gguf');
            await until(page, () => // the list comes after the model
                document.querySelector('#cache .name')?.textContent === 'stored.gguf');
            await page.reload();
            await stillWrites(page);
            expect(await text(page, 'model-name'), 'stored.gguf', 'model');
            expect(asked(), 1, 'requests');
        });
        hide(opfs + cacheApi);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}stored.gguf`);
            await named(page, 'stored.gguf');
            await ready(page);
            const notes = (await texts(page, '#model-notes li')).join('\n');
            check(/keeps no files/.test(notes) && /next visit downloads it/.test(notes), notes);
            check(await visible(page, 'cache-none'), 'it is listed');
            await stillWrites(page);
        });
    },

    // A chat goes on when the context is full: without its oldest messages, but with the system prompt.
    async full_context_drops_the_oldest() {
        recordChats();
        await visit(async page => {
            await ready(page);
            await settings(page, { system: 'You are a helpful assistant.' });
            for (let i = 1; i <= 6; i++) {
                const reply = await write(page, `Tell me a story about ${i} dragons.`);
                check(reply.length > 20, `reply ${i} is ${JSON.stringify(reply)}`);
                check(!(await visible(page, 'error')), `message ${i} fails`);
            }
            const sent = await page.evaluate(() => globalThis.sent);
            expect(sent.at(-1)[0].role, 'system', 'the first message');
            expect(sent.at(-1)[1].role, 'user', 'the second message');
            check(sent.at(-1).length < 12, `${sent.at(-1).length} messages are sent`);
            expect(sent.at(-1).at(-1).content, 'Tell me a story about 6 dragons.', 'the last one');
            const notes = (await texts(page, '.note')).join();
            check(/no longer sees the first \d+ messages/.test(notes), `notes: ${notes}`);
            expect(await count(page, '.left-out'), 1, 'lines above what the model sees');
            expect(await count(page, '.turn'), 12, 'turns');
            await page.click('#new'); // a message that leaves little room for its reply
            const words = await page.evaluate(async () => {
                const { app } = await import('./app.js'),
                    story = 'Tell me a story about a dragon.';
                let long = story;
                while ((await app.model.tokenize(`x ${long}`)).length < 485) long = `x ${long}`;
                return long;
            });
            await write(page, words, { maxTokens: 300, system: '' });
            expect(await lastNote(page), 'The context is full, so the text ends here.', 'note');
            check(!/Stopped/.test((await texts(page, '.note')).join()), 'nobody stopped it');
        });
    },

    // What cannot be sent is in the field again, nobody stopped it, and the message does not hide text.
    async text_that_cannot_be_sent_comes_back() {
        await visit(
            async page => {
                await ready(page);
                await write(page, 'Who are you?');
                const long = 'a story about dragons '.repeat(200);
                await write(page, long);
                expect(await errorTitle(page), 'The text is too long for the context', 'message');
                check(!/larger context/.test(await text(page, 'error-text')), 'it is as trained');
                expect(await value(page, 'prompt'), long, 'the field');
                expect(await count(page, '.turn'), 2, 'turns');
                check(!/Stopped/.test((await texts(page, '.note')).join()), 'nobody stopped it');
                const apart = await page.evaluate(() => {
                    const box = e => document.querySelector(e).getBoundingClientRect(),
                        room = box('#scroll');
                    return (
                        box('.turn:last-of-type').bottom <= box('#error').top &&
                        box('#error').bottom <= room.bottom + 1 &&
                        document.querySelector('#scroll').contains(document.querySelector('#error'))
                    );
                });
                check(apart, 'the message covers the conversation');
                await settings(page, { prompt: '' });
                check((await write(page, 'Who are you?')).length > 5, 'the next message fails');
                check(!(await visible(page, 'error')), 'the error is still there');
            },
            { viewport: { width: 800, height: 500 } }
        );
    },

    // In an address, a % may stand for itself; and a file's name may be anything.
    async percent_in_an_address() {
        hooks.set('\0', asTiny); // what serve.mjs makes of a path that is no UTF-8
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}100%.gguf`);
            await named(page, '100%.gguf');
            await stillWrites(page);
        });
    },

    // A browser that denies all storage: the page works, and says what it does not keep.
    async storage_is_blocked() {
        const block = () => {
            for (const what of ['localStorage', 'sessionStorage', 'indexedDB'])
                Object.defineProperty(globalThis, what, {
                    get() {
                        throw new DOMException('The operation is insecure.', 'SecurityError');
                    },
                });
        };
        await visit(
            async page => {
                await page.evaluateOnNewDocument(block);
                await page.reload();
                await ready(page);
                check((await write(page, 'Who are you?')).length > 5, 'no reply');
                check(await visible(page, 'chats-lost'), 'it does not say that chats are lost');
                expect(await count(page, '#chats li'), 1, 'chats');
                await fill(page, 'temperature', '0.3');
                await page.$eval('#temperature', e => e.blur());
                await stillWrites(page);
            },
            { at: isolated.url }
        );
    },

    async settings_out_of_range() {
        await visit(async page => {
            await ready(page);
            const problem = () => text(page, 'temperature-problem');
            await fill(page, 'temperature', '99');
            await page.focus('#topK');
            expect(await problem(), 'Temperature must be from 0 to 5. 99 is not.', 'what is wrong');
            check(await visible(page, 'temperature-problem'), 'nobody sees it');
            const described = await page.$eval('#temperature', e =>
                e.getAttribute('aria-describedby')
            );
            expect(described, 'temperature-problem', 'described by');
            await settings(page, { prompt: 'Who are you?' });
            await page.focus('#prompt');
            await page.keyboard.press('Enter');
            expect(await errorTitle(page), 'A setting is out of range', 'message');
            expect(await value(page, 'prompt'), 'Who are you?', 'the field');
            expect(await value(page, 'temperature'), '99', 'the setting');
            expect(await count(page, '.turn'), 0, 'turns');
            await fill(page, 'temperature', '0.33'); // between two steps
            await page.focus('#topK');
            expect(await count(page, '#panel .problem'), 0, 'problems');
            await settings(page, { threads: '0' });
            await page.evaluate(() => document.getElementById('reload-model').click());
            expect(await errorTitle(page), 'A setting is out of range', 'message');
            check(/Threads must be from 1/.test(await text(page, 'error-code')), 'which setting');
            await page.reload();
            await ready(page);
            expect(await value(page, 'temperature'), '0.33', 'the setting that is kept');
        });
    },

    async figures_belong_to_the_model() {
        hooks.set('/other.gguf', asTiny);
        await visit(async page => {
            await stillWrites(page);
            check((await text(page, 'f-decode')) !== '–', 'no figure');
            await openUrl(page, `${isolated.url}other.gguf`);
            await named(page, 'other.gguf');
            await ready(page);
            for (const id of ['f-prefill', 'f-decode']) expect(await text(page, id), '–', id);
        });
    },

    // At 400 % zoom and on a phone with its keyboard most of the height is conversation.
    async room_for_the_conversation() {
        await visit(async page => {
            await ready(page);
            await write(page, 'Who are you?');
            const share = () =>
                page.evaluate(() => document.getElementById('scroll').clientHeight / innerHeight);
            for (const [width, height] of [
                [320, 256],
                [375, 400],
                [640, 400],
            ]) {
                await page.setViewport({ width, height });
                await until(page, h => document.body.clientHeight === h, height);
                const where = `${width} x ${height}`;
                check((await share()) >= 0.6, `${where}: ${await share()}`);
                await page.evaluate(() => {
                    document.getElementById('url').value = 'nowhere.gguf';
                    document.getElementById('url').type = 'text';
                    document.getElementById('url-form').requestSubmit();
                });
                await errorTitle(page);
                check((await share()) >= 0.6, `${where} with an error: ${await share()}`);
                check(!(await visible(page, 'f-decode')), `${where}: the figures take room`);
                await page.click('#panel-toggle');
                check(await visible(page, 'f-decode'), `${where}: no figures in the settings`);
                await page.click('#panel-toggle');
                const wide = await page.evaluate(() =>
                    [...document.querySelectorAll('header *, .composer *, .turn *')]
                        .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
                        .map(e => e.id || e.className)
                );
                expect(wide.join(), '', `${where}: beyond the edge`);
                await picture(page, `${width}x${height}`);
            }
            await page.setViewport({ width: 1280, height: 800 });
            await until(page, () => document.body.clientHeight === 800);
            check(await visible(page, 'f-decode'), 'the figures do not come back');
        });
    },

    async right_to_left() {
        await visit(async page => {
            await ready(page);
            const direction = selector => page.$eval(selector, e => getComputedStyle(e).direction);
            await settings(page, { prompt: 'שלום, עולם!' });
            expect(await direction('#prompt'), 'rtl', 'the field');
            await write(page, 'שלום, עולם!', { maxTokens: 5 });
            expect(await direction('.turn.user .body'), 'rtl', 'the message');
            expect(await direction('.turn.user'), 'ltr', 'its place');
            await write(page, 'Hello!', { maxTokens: 5 });
            expect(await direction('.turn.user:nth-last-child(2) .body'), 'ltr', 'the next one');
            if (!markdown) return;
            const list = await page.evaluate(async () => {
                const { drawer } = await import('./markdown.js'),
                    body = document.querySelector('.turn.reply .body');
                drawer(body)('- שלום, עולם!\n- Hello!\n\nHello!');
                return [...body.querySelectorAll('ul, p')]
                    .slice(-2)
                    .map(e => getComputedStyle(e).direction);
            });
            expect(list.join(), 'rtl,ltr', 'a list, and what follows');
        });
    },

    // Text of every button, field and line, also those that are off, under the mouse or chosen.
    async contrast_of_every_state() {
        const least = () => {
            // Chromium gives oklab or color(srgb), so let a canvas say what a colour is
            const pen = document
                .createElement('canvas')
                .getContext('2d', { willReadFrequently: true });
            const rgb = (top, below) => {
                pen.fillStyle = `rgb(${below})`;
                pen.fillRect(0, 0, 1, 1);
                pen.fillStyle = top;
                pen.fillRect(0, 0, 1, 1);
                return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
            };
            const ground = e =>
                rgb(
                    getComputedStyle(e).backgroundColor,
                    e.parentElement ? ground(e.parentElement) : [255, 255, 255]
                );
            const light = c =>
                c
                    .map(x => x / 255)
                    .map(x => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
                    .reduce((s, x, i) => s + x * [0.2126, 0.7152, 0.0722][i], 0);
            const ratio = (a, b) => {
                const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
                return (x + 0.05) / (y + 0.05);
            };
            const low = [];
            const look = (e, pseudo) => {
                const s = getComputedStyle(e, pseudo),
                    under = ground(e),
                    got = ratio(rgb(s.color, under), under);
                let opacity = 1;
                for (let p = e; p; p = p.parentElement)
                    opacity *= Number(getComputedStyle(p).opacity);
                if (got < 4.5 || opacity < 1)
                    low.push(
                        `${e.id || e.className || e.textContent} ${got.toFixed(2)} ${opacity}`
                    );
            };
            const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
            for (const e of document.querySelectorAll('body *')) {
                if (!e.checkVisibility({ visibilityProperty: true })) continue;
                if (own(e) || ['INPUT', 'TEXTAREA', 'SELECT'].includes(e.tagName)) {
                    if (e.type === 'radio') continue;
                    look(e);
                    if (e.placeholder) look(e, '::placeholder');
                }
            }
            // what is chosen differs from what is beside it by more than the brightness of its text
            const tab = document.querySelector('.modes input:checked + span');
            const track = ratio(ground(tab), ground(document.querySelector('.modes')));
            if (track < 3) low.push(`the chosen mode on its track ${track.toFixed(2)}`);
            return low.join('; ');
        };
        for (const dark of [false, true]) {
            await visit(
                async page => {
                    const where = dark ? 'dark' : 'light';
                    await ready(page);
                    await write(page, 'Who are you?', { maxTokens: 5 });
                    await fill(page, 'topP', '7');
                    await page.focus('#topK');
                    await openUrl(page, `${isolated.url}nowhere.gguf`);
                    await errorTitle(page);
                    await page.$eval('details', e => (e.open = true));
                    expect(await page.evaluate(least), '', where);
                    await page.$$eval('button', all => all.forEach(b => (b.disabled = true)));
                    expect(await page.evaluate(least), '', `${where}, off`);
                    await page.$$eval('button', all => all.forEach(b => (b.disabled = false)));
                    for (const selector of [
                        '#send',
                        '#new',
                        '#pick',
                        '#use-tiny',
                        '.acts button',
                    ]) {
                        await page.$eval(selector, e => e.scrollIntoView({ block: 'center' }));
                        await page.hover(selector);
                        expect(await page.evaluate(least), '', `${where}, mouse on ${selector}`);
                    }
                },
                { dark, reducedMotion: true }
            );
        }
    },

    async same_named_models() {
        for (const path of ['/one/same.gguf', '/two/same.gguf']) hooks.set(path, asTiny);
        hooks.set(
            '/models.js',
            edited('models.js', s => s.replace('LARGE = 64e6', 'LARGE = 1e6'))
        );
        await visit(async page => {
            await ready(page);
            for (const [i, folder] of ['one', 'two'].entries()) {
                await loads(page, () => openUrl(page, `${isolated.url}${folder}/same.gguf`));
                check(
                    (await text(page, 'model-about')).includes(`/${folder}/`),
                    'the open model does not say where it is from'
                );
                await until(page, n => document.querySelectorAll('#cache li').length === n, i + 1);
            }
            const labels = s => page.$$eval(`#cache ${s}`, all => all.map(e => e.ariaLabel).sort());
            for (const [selector, verb] of [
                ['.name', ''],
                ['.delete', 'Delete '],
            ]) {
                const [a, b] = await labels(selector);
                check(a.startsWith(`${verb}same.gguf from `) && a.includes('/one/'), a);
                check(b.includes('/two/'), b);
            }
            expect((await texts(page, '#cache .place')).length, 2, 'places');
            await page.click('#cache .delete'); // a large model is not deleted unasked
            check(
                /Delete same.gguf.*1.7 MB\?/.test((await texts(page, '.ask p')).join()),
                'no question'
            );
            await page.keyboard.press('Escape');
            expect(await count(page, '.ask'), 0, 'questions');
            expect(await count(page, '#cache li'), 2, 'models after No');
            await page.click('#cache .delete');
            await page.click('.ask .yes');
            await until(page, () => document.querySelectorAll('#cache li').length === 1);
        });
    },

    // Screen readers hear what happens to a model, and the bar runs once from its beginning to its end.
    async a_load_is_announced_and_has_one_bar() {
        let seen = false; // the bar near its end: the server keeps the last bytes back until then
        hooks.set('/heard.gguf', (req, res, headers) => {
            res.writeHead(200, { 'Content-Length': tiny.length, ETag: '"1"', ...headers });
            let at = 0;
            const timer = setInterval(() => {
                const step = seen || at < 0.9 * tiny.length ? 100000 : 100;
                if (at < tiny.length) res.write(tiny.subarray(at, (at += step)));
                else {
                    clearInterval(timer);
                    res.end();
                }
            }, 40);
            return true;
        });
        await visit(async page => {
            await page.evaluate(() => {
                globalThis.heard = [];
                globalThis.bars = [];
                new MutationObserver(() =>
                    globalThis.heard.push(document.getElementById('status').textContent)
                ).observe(document.getElementById('status'), { childList: true, subtree: true });
                new MutationObserver(() =>
                    globalThis.bars.push(
                        Number(document.getElementById('loading-bar').getAttribute('value'))
                    )
                ).observe(document.getElementById('loading-bar'), { attributeFilter: ['value'] });
            });
            await ready(page);
            const heard = async () => (await page.evaluate(() => globalThis.heard)).join('\n');
            check(/tiny.gguf is ready\./.test(await heard()), `heard: ${await heard()}`);
            await page.evaluate(() => (globalThis.bars.length = 0));
            await loads(page, async () => {
                await openUrl(page, `${isolated.url}heard.gguf`);
                await until(page, () => globalThis.bars.at(-1) > 0.8);
                seen = true;
            });
            expect(await text(page, 'model-name'), 'heard.gguf', 'model');
            for (const what of ['Opening heard.gguf', 'heard.gguf: 50 %', 'heard.gguf is ready.'])
                check((await heard()).includes(what), `${what} is not among ${await heard()}`);
            const bars = (await page.evaluate(() => globalThis.bars)).slice(1);
            check(bars.length > 4, `the bar: ${bars}`);
            check(
                bars.every((b, i) => !i || b >= bars[i - 1]),
                `the bar goes back: ${bars}`
            );
            expect(
                await page.$eval('#status', e => e.role ?? e.getAttribute('role')),
                'status',
                'role'
            );
        });
    },

    // One press asks for it, another one downloads it.
    async a_published_model_is_one_press_away() {
        const published = {
            '#use-small': ['Bonsai-1.7B-Q1_0.gguf', '248 MB'],
            '#use-official': ['ggml-model-i2_s.gguf', '1.2 GB'],
        };
        hooks.set(
            '/models.js',
            edited('models.js', s =>
                s.replace(/'https:\/\/huggingface.co[^']*\/([^']*)'/g, `'${isolated.url}$1'`)
            )
        );
        for (const [file] of Object.values(published)) hooks.set(`/${file}`, asTiny);
        await visit(async page => {
            await ready(page);
            for (const [button, [file, size]] of Object.entries(published)) {
                await page.click(button);
                await until(page, () => document.querySelector('.ask') !== null);
                const question = (await texts(page, '.ask p')).join();
                check(question.includes(`Download ${size} from localhost`), question);
                expect(requests.filter(r => r.path === `/${file}`).length, 0, 'requests unasked');
                await page.click('.ask .yes');
                await named(page, file);
            }
            await stillWrites(page);
        });
    },

    // A server that gives no means to resume: the page does not promise it.
    async interrupted_download_that_is_not_kept() {
        hooks.set('/unmarked.gguf', (req, res, headers) => {
            res.writeHead(200, { 'Content-Length': tiny.length, ...headers });
            res.write(tiny.subarray(0, 1000000), () => setTimeout(() => res.destroy(), 300));
            return true;
        });
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}unmarked.gguf`);
            expect(await errorTitle(page), 'The download was interrupted', 'message');
            const advice = await text(page, 'error-text');
            check(/begins anew/.test(advice) && !/resume/.test(advice), advice);
            await stillWrites(page);
        });
    },

    async checksum_of_a_wrong_length() {
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}tiny.gguf#sha256=abc123`);
            expect(
                await errorTitle(page),
                'The checksum in the address is not complete',
                'message'
            );
            check(/64 digits/.test(await text(page, 'error-text')), 'no advice');
            await stillWrites(page);
        });
    },

    // After the first visit the page needs no network, and the browser has a manifest to install it.
    async offline_after_the_first_visit() {
        for (const headers of [ISOLATED, {}]) {
            const own = await serve({ root: resolve(site), headers, hook: hook(headers) });
            await visit(
                async page => {
                    await ready(page);
                    await keptPage(page);
                    check(/opens without a network/.test(await text(page, 'offline')), 'unsaid');
                    if (headers !== ISOLATED) {
                        await page.click('#notice-action');
                        await until(page, () => globalThis.crossOriginIsolated === true);
                        await keptPage(page);
                    }
                    const before = await write(page, 'Who are you?');
                    own.server.closeAllConnections();
                    own.server.close();
                    await page.reload();
                    await ready(page);
                    expect(await text(page, 'model-name'), 'tiny.gguf', 'model');
                    check(await page.evaluate(() => crossOriginIsolated), 'not isolated');
                    expect(await lastReply(page), before, 'the reply after the reload');
                    await stillWrites(page);
                    await checked(page);
                    check((await text(page, 'check-status')).startsWith('✓'), 'no cross-check');
                },
                { at: own.url }
            );
        }
        await visit(async page => {
            const manifest = await page.evaluate(async () => {
                const { href } = document.querySelector('link[rel=manifest]');
                return { href, ...(await (await fetch(href)).json()) };
            });
            for (const key of ['start_url', 'scope'])
                expect(new URL(manifest[key], manifest.href).href, isolated.url, key);
        });
    },

    // The service worker does not touch other pages, not even those below its own folder.
    async service_worker_keeps_to_the_page() {
        const other = (req, res) => {
            res.writeHead(200, { 'Content-Type': 'text/html' });
            res.end('<!doctype html><title>other</title><p>another page');
            return true;
        };
        hooks.set('/other/', other);
        await visit(
            async page => {
                await ready(page);
                await page.click('#notice-action');
                await until(page, () => globalThis.crossOriginIsolated === true);
                await keptPage(page);
                await page.goto(`${plain.url}other/`);
                expect(await page.title(), 'other', 'the page');
                check(
                    await page.evaluate(() => navigator.serviceWorker.controller !== null),
                    'none'
                );
                check(!(await page.evaluate(() => crossOriginIsolated)), 'it is isolated');
                const kept = await page.evaluate(async () =>
                    (await (await caches.open('bitnet-page')).keys()).map(r => r.url).join()
                );
                check(!kept.includes('other'), `it is kept: ${kept}`);
            },
            { at: plain.url }
        );
    },

    // Copy, regenerate, edit and go on, each with any message; nothing is lost by it.
    async what_can_be_done_with_a_message() {
        recordChats();
        await visit(async page => {
            await ready(page);
            await page.evaluate(() =>
                Object.defineProperty(navigator, 'clipboard', {
                    value: { writeText: async t => (globalThis.copied = t) },
                })
            );
            const act = async (n, name) =>
                page.evaluate(
                    (at, what) => {
                        const all = [...document.querySelectorAll('.turn')][at].querySelectorAll(
                            'button'
                        );
                        const found = [...all].find(
                            b => b.textContent === what && b.checkVisibility()
                        );
                        if (!found) throw new Error(`turn ${at} has no ${what}`);
                        found.click();
                    },
                    n,
                    name
                );
            const runs = () => page.evaluate(() => Number(document.body.dataset.runs));
            const writes = async action => {
                const before = await runs();
                await action();
                await until(page, n => Number(document.body.dataset.runs) > n, before);
            };
            const bodies = () => texts(page, '.turn .body');
            const lastSent = () =>
                page.evaluate(() =>
                    globalThis.sent
                        .at(-1)
                        .map(m => m.content)
                        .join('|')
                );
            const chats = () => texts(page, '#chats .name');
            const questions = [
                'Who are you?',
                'What is the capital of Italy?',
                'What is two plus three?',
            ];
            for (const q of questions) await write(page, q, { maxTokens: 20 });
            const first = await bodies();
            expect(first.length, 6, 'turns');

            await act(1, 'Copy');
            await until(page, () => globalThis.copied !== undefined);
            expect(await page.evaluate(() => globalThis.copied), first[1], 'what was copied');

            await writes(() => act(5, 'Regenerate')); // the last one is replaced
            expect((await bodies()).join('|'), first.join('|'), 'the same greedy reply');
            expect((await chats()).length, 1, 'chats');

            await writes(() => act(3, 'Regenerate')); // others stay in the former chat
            expect((await bodies()).join('|'), first.slice(0, 4).join('|'), 'after Regenerate');
            expect(await lastSent(), first.slice(0, 3).join('|'), 'sent for it');
            await until(page, () => document.querySelectorAll('#chats li').length === 2);
            check(
                (await chats()).includes('Who are you?'),
                `the former chat is not in ${await chats()}`
            );

            await act(2, 'Edit');
            expect(
                await page.$eval('.edit textarea', e => e.value),
                questions[1],
                'what is edited'
            );
            await page.keyboard.press('Escape');
            expect((await bodies())[2], questions[1], 'after Escape');
            await act(2, 'Edit');
            await page.$eval('.edit textarea', e => (e.value = 'What is the capital of France?'));
            await writes(() => page.keyboard.press('Enter'));
            expect((await bodies())[2], 'What is the capital of France?', 'what was edited');
            check((await lastSent()).endsWith('|What is the capital of France?'), 'what was sent');
            expect((await bodies()).length, 4, 'turns after Edit');

            await act(3, 'Edit'); // a reply is only changed
            await page.$eval('.edit textarea', e => (e.value = 'It is Paris.'));
            await page.keyboard.press('Enter');
            await until(
                page,
                () =>
                    [...document.querySelectorAll('.turn .body')].at(-1).textContent ===
                    'It is Paris.'
            );
            await write(page, 'Are you sure?', { maxTokens: 10 });
            check((await lastSent()).includes('|It is Paris.|Are you sure?'), await lastSent());

            await act(1, 'Continue from here');
            await until(page, () => document.querySelectorAll('.turn').length === 2);
            await until(page, () => document.querySelectorAll('#chats li').length === 3);
            await write(page, 'What now?', { maxTokens: 10 });
            expect(
                await lastSent(),
                [...first.slice(0, 2), 'What now?'].join('|'),
                'sent from there'
            );
            await page.$$eval('#chats .name', all =>
                all.find(b => b.textContent === 'Who are you?').click()
            );
            await until(page, () => document.querySelectorAll('.turn').length === 6);
            expect((await bodies()).join('|'), first.join('|'), 'the first chat');

            // a completion goes on where it ended
            await completion(page);
            const begun = await write(page, PROMPT, { maxTokens: 20 });
            await settings(page, { maxTokens: 100 });
            await writes(() => act(0, 'Continue'));
            const whole = await lastReply(page);
            check(whole.startsWith(begun) && whole.length > begun.length + 20, whole);
            await settings(page, { maxTokens: 20 });
            await writes(() => act(0, 'Regenerate'));
            expect(await lastReply(page), begun, 'the text written anew');
        });
    },

    async markdown() {
        needMarkdown();
        sayings(ARTICLE.match(/[^]{1,7}/g));
        await visit(async page => {
            await ready(page);
            await page.evaluate(() =>
                Object.defineProperty(navigator, 'clipboard', {
                    value: { writeText: async t => (globalThis.copied = t) },
                })
            );
            await write(page, 'Explain it.');
            const shape = () =>
                page.$eval('.turn.reply .body', body => {
                    const tags = e => [...e.children].map(c => c.tagName.toLowerCase() + inside(c)),
                        inside = e => (e.children.length ? `(${tags(e).join(' ')})` : '');
                    return tags(body).join(' ');
                });
            const wanted =
                'h2 p(strong em code s a a) h3 ol(li(p) li(p ul(li li)) li(p)) blockquote(p) ' +
                'div(div(span button) pre(code)) ' +
                'div(table(thead(tr(th th)) tbody(tr(td td) tr(td(code) td)))) hr ' +
                'div(div(span button) pre(code)) ul(li) ul(li) p(a) p';
            expect(await shape(), wanted, 'elements');
            const code = 'def f(x):\n    return "<b>" * x\n\nprint(f(3))';
            expect(await page.$eval('.code code', e => e.textContent), code, 'the code');
            expect(await page.$eval('.code-head span', e => e.textContent), 'python', 'language');
            expect(
                await page.$eval('td:last-child', e => getComputedStyle(e).textAlign),
                'right',
                'the column'
            );
            const [first] = await texts(page, '.turn.reply p');
            expect(
                first,
                'Some bold and soft words, code, nothing & <b>no tag</b>.\n' +
                    'The next line, a link and https://example.org/b.',
                'a paragraph'
            );
            const links = await page.$$eval('.turn.reply a', all =>
                all.map(a => [a.href, a.title, a.target, a.rel].join())
            );
            for (const [i, at] of ['a', 'b', 'defined'].entries())
                expect(
                    links[i],
                    `https://example.org/${at},https://example.org/${at},_blank,noopener noreferrer`,
                    'a link'
                );
            await page.click('.code-head button');
            expect(await page.evaluate(() => globalThis.copied), code, 'the copied code');
            await page.$$eval('.turn.reply .acts button', ([copy]) => copy.click());
            expect(await page.evaluate(() => globalThis.copied), ARTICLE, 'the copied reply');
            // drawn at once as piece by piece, and the user's words as they are
            await write(page, '**Who** <b>are</b> you?');
            expect((await texts(page, '.turn.user .body'))[1], '**Who** <b>are</b> you?', 'words');
            await page.reload();
            await ready(page);
            expect(await shape(), wanted, 'elements after a reload');
        });
    },

    // Whatever it says, only known elements come of it, none runs, and nothing is loaded.
    async hostile_replies() {
        needMarkdown();
        await visit(async page => {
            await ready(page);
            const bad = await page.evaluate(async hostile => {
                const { drawer } = await import('./markdown.js'),
                    found = [];
                const allowed = {
                    a: ['href', 'title', 'target', 'rel'],
                    ol: ['start'],
                    pre: ['tabindex', 'role', 'aria-label'],
                    div: ['class', 'tabindex', 'role', 'aria-label'],
                    button: ['class', 'type', 'aria-label'],
                };
                const tags =
                    'p ul li blockquote table thead tbody tr th td em strong s hr h2 h3 h4 h5 h6 span code';
                for (const tag of tags.split(' ')) allowed[tag] = [];
                const body = document.createElement('div');
                body.className = 'body';
                document.getElementById('log').append(body);
                for (const text of hostile) {
                    body.replaceChildren();
                    const draw = drawer(body);
                    for (let n = 1; n <= text.length; n++) draw(text.slice(0, n));
                    for (const e of body.querySelectorAll('*')) {
                        const names = allowed[e.localName];
                        for (const { name } of e.attributes)
                            if (!['dir', 'style', ...(names ?? [])].includes(name))
                                found.push(`${e.outerHTML} of ${text}`);
                        if (
                            !names ||
                            (e.style.cssText && !/^text-align: \w+;$/.test(e.style.cssText))
                        )
                            found.push(`${e.outerHTML} of ${text}`);
                        if (e.localName !== 'a') continue;
                        if (!/^https?:$/.test(e.protocol)) found.push(`${e.href} of ${text}`);
                        if (e.rel !== 'noopener noreferrer') found.push(`${e.rel} of ${text}`);
                        if (e.host !== 'example.org' && !e.title.includes(e.host))
                            found.push(`nothing tells that ${text} leads to ${e.host}`);
                    }
                    for (const e of body.querySelectorAll('span, td, code, li, h2')) e.click();
                    if (!body.textContent.trim()) found.push(`nothing is shown of ${text}`);
                }
                await new Promise(done => setTimeout(done, 100));
                if (globalThis.ran) found.push('something ran');
                return found.join('\n');
            }, HOSTILE);
            expect(bad, '', 'what came of it');
            const loaded = requests.filter(r => r.path.includes('loaded'));
            expect(loaded.map(r => r.path).join(), '', 'requests');
        });
    },

    // A text that grows looks the same as the whole one, and its finished parts stay as they are.
    async a_reply_grows() {
        needMarkdown();
        await visit(async page => {
            await ready(page);
            const bad = await page.evaluate(async article => {
                const { drawer } = await import('./markdown.js'),
                    whole = document.createElement('div'),
                    body = document.createElement('div'),
                    draw = drawer(body);
                for (let n = 1; n <= article.length; n++) {
                    draw(article.slice(0, n));
                    whole.replaceChildren();
                    drawer(whole)(article.slice(0, n));
                    body.normalize();
                    if (body.innerHTML !== whole.innerHTML)
                        return `${article.slice(0, n)} is ${body.innerHTML} instead of ${whole.innerHTML}`;
                }
                let text = 'A paragraph.\n\n```js\n';
                const long = document.createElement('div'),
                    more = drawer(long);
                more(text);
                const [paragraph, code] = long.children;
                for (let i = 0; i < 50; i++) more((text += `f(${i});\n`));
                if (long.children[1] !== code || !code.textContent.includes('f(49);'))
                    return 'code that grows is drawn anew';
                for (let i = 0; i < 50; i++) more((text += `${i ? '' : '```'}\n\nAnother one.`));
                if (long.children[0] !== paragraph || long.children[1] !== code)
                    return 'what is finished is drawn anew';
                return long.children.length === 52 ? '' : `${long.children.length} blocks`;
            }, ARTICLE);
            expect(bad, '', 'the text');
        });
    },

    // A reply of 30 KB in one paragraph, of the kind that takes longest to draw: most of the time is left
    // for other work.
    async a_long_reply_does_not_block() {
        needMarkdown();
        sayings(Array(150).fill('[*a_ **b** `c` '.repeat(20).slice(0, 200)), 10);
        await visit(async page => {
            await ready(page);
            await page.evaluate(() => {
                globalThis.blocked = [];
                const note = list => {
                    globalThis.blocked.push(...list.getEntries().map(e => e.duration));
                };
                new PerformanceObserver(note).observe({ entryTypes: ['longtask'] });
            });
            const start = Date.now();
            await write(page, 'Say much.');
            const total = Date.now() - start;
            const { length, blocked } = await page.evaluate(() => ({
                length: document.querySelector('.turn.reply .body').textContent.length,
                blocked: globalThis.blocked,
            }));
            check(length > 15000, `only ${length} characters are there`);
            const sum = blocked.reduce((a, b) => a + b, 0);
            check(sum < 0.6 * total, `the page was blocked for ${sum} of ${total} ms`);
        });
    },

    // Several chats, with names, in a list; as files; until they are deleted.
    async chats_are_kept() {
        await visit(async page => {
            await ready(page);
            const names = () => texts(page, '#chats .name');
            const tool = (n, name) =>
                page.evaluate(
                    (at, what) =>
                        [...document.querySelectorAll('#chats li')[at].querySelectorAll('button')]
                            .find(b => b.textContent === what)
                            .click(),
                    n,
                    name
                );
            await write(page, 'Who are you?', { maxTokens: 20 });
            const first = await texts(page, '.turn .body');
            await page.click('#new');
            expect(await count(page, '.turn'), 0, 'turns of a new chat');
            await write(page, 'What is two plus three?', { maxTokens: 20 });
            await completion(page); // the other mode has texts of its own
            await write(page, PROMPT, { maxTokens: 20 });
            await page.$eval('input[value=chat]', e => e.click());
            expect(
                (await texts(page, '.turn.user .body')).join(),
                'What is two plus three?',
                'chat'
            );
            await until(page, () => document.querySelectorAll('#chats li').length === 3);
            await page.reload();
            await ready(page);
            expect(
                (await texts(page, '.turn.user .body')).join(),
                'What is two plus three?',
                'reloaded'
            );
            const at = (await names()).indexOf('Who are you?');
            await tool(at, 'Rename');
            await page.keyboard.type('Ünder “the” sea');
            await page.keyboard.press('Enter');
            await until(page, () =>
                [...document.querySelectorAll('#chats .name')].some(
                    e => e.textContent === 'Ünder “the” sea'
                )
            );
            await page.evaluate(() => {
                URL.createObjectURL = blob => {
                    globalThis.exported = blob.text();
                    return 'data:application/json,%7B%7D';
                };
                HTMLAnchorElement.prototype.click = function () {
                    globalThis.fileName = this.download;
                };
            });
            await tool((await names()).indexOf('Ünder “the” sea'), 'Export');
            await until(page, () => globalThis.fileName !== undefined);
            expect(await page.evaluate(() => globalThis.fileName), 'Ünder-the-sea.json', 'file');
            const file = JSON.parse(await page.evaluate(() => globalThis.exported));
            expect(file.name, 'Ünder “the” sea', 'name');
            expect(file.model, 'tiny.gguf', 'model');
            expect(
                file.messages.map(m => `${m.role}: ${m.content}`).join('|'),
                `user: ${first[0]}|assistant: ${first[1]}`,
                'messages'
            );
            await page.$$eval('#chats .name', all =>
                all.find(e => /sea/.test(e.textContent)).click()
            );
            await until(
                page,
                () => document.querySelector('.turn.user .body').textContent === 'Who are you?'
            );
            await write(page, 'And who am I?', { maxTokens: 10 }); // it is no copy after the new name
            expect((await names()).length, 3, 'chats');
            expect((await names())[0], 'Ünder “the” sea', 'the latest chat');
            await tool(0, 'Delete');
            await page.keyboard.press('Escape');
            expect((await names()).length, 3, 'chats after No');
            await tool(0, 'Delete');
            await page.click('.ask .yes');
            await until(page, () => document.querySelectorAll('#chats li').length === 2);
            expect(await count(page, '.turn'), 0, 'turns of the deleted chat');
        });
    },

    // A long chat with a small context: every message is answered, and a reload shows all of them.
    async thirty_messages() {
        recordChats();
        await visit(async page => {
            await ready(page);
            await settings(page, { system: 'You are a helpful assistant.' });
            const questions = [
                'Who are you?',
                'Tell me a story about a dragon.',
                'What is two plus three?',
            ];
            for (let i = 0; i < 30; i++) {
                const reply = await write(page, questions[i % 3], { maxTokens: 60 });
                check(reply.trim(), `message ${i + 1} has no reply`);
                check(!(await visible(page, 'error')), `message ${i + 1} fails`);
            }
            const sent = await page.evaluate(() =>
                globalThis.sent.map(all => all.map(m => m.role[0]).join(''))
            );
            for (const roles of sent) check(/^s(ua)*u$/.test(roles), `sent: ${roles}`);
            check(Math.max(...sent.map(r => r.length)) < 30, 'the whole chat is sent');
            expect(await count(page, '.turn'), 60, 'turns');
            const all = (await texts(page, '.turn .body')).join('|');
            await page.reload();
            await ready(page);
            expect((await texts(page, '.turn .body')).join('|'), all, 'after a reload');
            check((await write(page, 'Who are you?')).length > 5, 'no reply after a reload');
        });
    },

    // The worker waits in the middle of the reply, and the page is reloaded.
    async reload_in_mid_answer() {
        const paused = s =>
            s.replace(
                'post({ id, event: { token, text, index, ...more } });',
                '$& if (index === 19) while (!signal.aborted) await turn();'
            );
        hooks.set('/bitnet.js', rebuilt({ 'worker.js': paused }));
        await visit(async page => {
            await ready(page);
            await settings(page, {
                temperature: 0,
                maxTokens: 100,
                prompt: 'Tell me a story about a dragon.',
            });
            await page.evaluate(() => document.getElementById('form').requestSubmit());
            await until(page, async () => {
                const request = indexedDB.open('bitnet-chats');
                const db = await new Promise(
                    done => (request.onsuccess = () => done(request.result))
                );
                const all = db.transaction('chats').objectStore('chats').getAll();
                const [chat] = await new Promise(done => (all.onsuccess = () => done(all.result)));
                db.close();
                return chat?.messages[1]?.content.length > 20;
            });
            hooks.delete('/bitnet.js');
            await page.reload();
            await ready(page);
            const [question, half] = await texts(page, '.turn .body');
            expect(question, 'Tell me a story about a dragon.', 'the message');
            check(half.length > 20, `the reply is ${half}`);
            expect(await lastNote(page), 'The page was left before the text was finished.', 'note');
            await settings(page, { temperature: 0, maxTokens: 100 });
            const before = await page.evaluate(() => Number(document.body.dataset.runs ?? 0));
            await page.$$eval('.turn:last-child button', all =>
                all.find(b => b.textContent === 'Regenerate').click()
            );
            await until(page, n => Number(document.body.dataset.runs ?? 0) > n, before);
            const whole = await lastReply(page);
            check(whole.startsWith(half) && whole.length > half.length, `${half}, then ${whole}`);
            expect(await lastNote(page), 'Stopped at the token limit.', 'note of the whole reply');
        });
    },

    // One tab sees what the other one writes; if both write, neither loses anything.
    async two_tabs() {
        await visit(async (one, context) => {
            await ready(one);
            await write(one, 'Who are you?', { maxTokens: 20 });
            const two = await newPage(context);
            await two.goto(isolated.url);
            await ready(two);
            expect(await count(two, '.turn'), 0, 'turns of a new tab');
            await until(two, () => document.querySelector('#chats .name') !== null);
            await two.$eval('#chats .name', e => e.click());
            await until(two, () => document.querySelectorAll('.turn').length === 2);
            await write(two, 'What is two plus three?', { maxTokens: 20 });
            await until(one, () => document.querySelectorAll('.turn').length === 4);
            // Neither hears of what the other saves, as when both save at once.
            for (const page of [one, two])
                await page.evaluate(() => {
                    BroadcastChannel.prototype.postMessage = () => {};
                });
            await Promise.all([
                write(one, 'What is the capital of Italy?', { maxTokens: 200, temperature: 1 }),
                write(two, 'Tell me a story about a dragon.', { maxTokens: 200, temperature: 1 }),
            ]);
            for (const [page, question] of [
                [one, 'What is the capital of Italy?'],
                [two, 'Tell me a story about a dragon.'],
            ]) {
                await page.bringToFront();
                await page.reload();
                await ready(page);
                const asked = await texts(page, '.turn.user .body');
                expect(asked.at(-1), question, 'the last message');
                expect(asked.length, 3, 'messages');
                await until(page, () => document.querySelectorAll('#chats li').length === 2);
            }
        });
    },

    // The second click of a double click is where Send was, and now Stop is.
    async double_click_on_send() {
        await visit(async page => {
            await ready(page);
            const runs = () => page.evaluate(() => Number(document.body.dataset.runs ?? 0));
            await settings(page, { temperature: 0, maxTokens: 20, prompt: 'Who are you?' });
            await page.click('#send', { count: 2, delay: 20 });
            await until(page, () => Number(document.body.dataset.runs) === 1);
            expect(await lastNote(page), 'Stopped at the token limit.', 'note');
            expect(await value(page, 'prompt'), '', 'the field');
            expect(await runs(), 1, 'replies');
            expect(await count(page, '.turn'), 2, 'turns');
        });
    },

    // A word that an input method composes ends with Enter, which sends nothing; nor does Escape stop.
    async composed_text() {
        await visit(async page => {
            await ready(page);
            await settings(page, { prompt: 'にほんご' });
            await page.evaluate(() => {
                const key = init =>
                    document
                        .getElementById('prompt')
                        .dispatchEvent(
                            new KeyboardEvent('keydown', {
                                bubbles: true,
                                cancelable: true,
                                ...init,
                            })
                        );
                key({ key: 'Enter', isComposing: true });
                key({ key: 'Enter', keyCode: 229 }); // Safari's, after the composition
            });
            expect(await count(page, '.turn'), 0, 'turns');
            expect(await value(page, 'prompt'), 'にほんご', 'the field');
            await openUrl(page, `${isolated.url}nowhere.gguf`);
            await errorTitle(page);
            await page.evaluate(() =>
                dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', isComposing: true }))
            );
            check(await visible(page, 'error'), 'Escape closed the message');
        });
    },

    // What does not fit comes back whole, and the page goes on.
    async a_message_of_100_kb() {
        const long = 'Some words, and more of them. '.repeat(3400);
        await visit(async page => {
            await ready(page);
            await write(page, long);
            expect(await errorTitle(page), 'The text is too long for the context', 'message');
            expect(await value(page, 'prompt'), long, 'the field');
            expect(await count(page, '.turn'), 0, 'turns');
            const [field, all] = await page.evaluate(() => [
                document.getElementById('prompt').clientHeight,
                innerHeight,
            ]);
            check(field < all / 2, `the field has ${field} of ${all} px`);
            check((await write(page, 'Who are you?', { maxTokens: 10 })).length > 5, 'no reply');
        });
    },

    async deleting_the_chat_that_is_written() {
        sayings(Array(1000).fill('word '), 10);
        await visit(async page => {
            await ready(page);
            const deleted = async () => {
                await page.$$eval('#chats li .tools button', all => all.at(-1).click());
                await page.$$eval('.ask .yes', ([yes]) => yes.click());
                await until(page, () => !document.querySelector('#chats li'));
            };
            await settings(page, { prompt: 'Who are you?' });
            await page.evaluate(() => document.getElementById('form').requestSubmit());
            await until(page, () =>
                /word word/.test(document.querySelector('.reply .body')?.textContent)
            );
            await until(page, () => document.querySelector('#chats li') !== null);
            await deleted();
            await until(page, () => Number(document.body.dataset.runs) === 1);
            expect(await count(page, '.turn'), 0, 'turns');
            await sleep(600); // longer than a save is put off
            expect(await count(page, '#chats li'), 0, 'chats');
            await page.reload();
            await ready(page);
            expect(await count(page, '#chats li'), 0, 'chats after a reload');
            // nor does it come back with the other mode
            await completion(page);
            await write(page, PROMPT, { maxTokens: 5 });
            await page.$eval('input[value=chat]', e => e.click());
            await until(page, () => document.querySelector('#chats li') !== null);
            await deleted();
            await completion(page);
            expect(await count(page, '.turn'), 0, 'turns of the deleted text');
        });
    },

    // A frame that may not have an origin has no storage, no cookies and no service worker.
    async sandboxed_frame() {
        const everywhere = {
            'Access-Control-Allow-Origin': '*',
            'Cross-Origin-Resource-Policy': 'cross-origin',
        };
        const open = await serve({ root: resolve(site), headers: everywhere });
        hooks.set('/frame.html', (req, res) => {
            res.writeHead(200, { 'Content-Type': 'text/html' });
            res.end(
                `<iframe sandbox="allow-scripts allow-forms" width=1200 height=700 src="${open.url}"></iframe>`
            );
            return true;
        });
        try {
            await visit(
                async page => {
                    let frame;
                    await (async () => {
                        while (!(frame = page.frames().find(f => f.url() === open.url)))
                            await sleep(20);
                    })();
                    await ready(frame);
                    expect(await frame.evaluate(() => origin), 'null', 'the origin');
                    await frame.evaluate(() => {
                        document.getElementById('prompt').value = 'Who are you?';
                        document.getElementById('maxTokens').value = '10';
                        document.getElementById('form').requestSubmit();
                    });
                    await until(frame, () => Number(document.body.dataset.runs) === 1);
                    check((await texts(frame, '.reply .body'))[0].length > 5, 'no reply');
                    check(
                        await visible(frame, 'chats-lost'),
                        'it does not say that chats are lost'
                    );
                },
                { at: `${plain.url}frame.html` }
            );
        } finally {
            open.server.closeAllConnections();
            open.server.close();
        }
    },

    async names_in_any_script() {
        const name = 'модель 模型 100% #1?.gguf',
            path = join(scratch, name);
        writeFileSync(path, tiny);
        hooks.set(`/${name}`, asTiny);
        await visit(async page => {
            await ready(page);
            await chooseFile(page, path);
            await named(page, name);
            await ready(page);
            await openUrl(page, `${isolated.url}${encodeURIComponent(name)}`);
            await until(page, () => document.querySelector('#cache .name') !== null);
            expect((await texts(page, '#cache .name')).join(), name, 'the list');
            await stillWrites(page);
        });
    },

    // Whether the server has another file, and the checksum of what is kept.
    async kept_models_are_checked() {
        const answers = [
            [{}, 'The server has the same file.'],
            [{ ETag: '"another"' }, 'The server has a newer file. Download it'],
            [{ ETag: '' }, 'The server does not say whether it has another file.'],
            [null, 'The URL cannot be reached from this page.'],
        ];
        hooks.set('/kept.gguf', asTiny);
        await visit(async page => {
            await ready(page);
            await loads(page, () => openUrl(page, `${isolated.url}kept.gguf`));
            await until(page, () => document.querySelector('#cache .check') !== null);
            const press = what => page.$eval(`#cache .${what}`, b => b.click());
            const found = what =>
                until(
                    page,
                    t => document.querySelector('#cache .found').textContent.startsWith(t),
                    what
                );
            for (const [headers, answer] of answers) {
                hooks.set('/kept.gguf', (req, res) =>
                    headers ? asTiny(req, res, { ...ISOLATED, ...headers }) : !!res.destroy()
                );
                await press('check');
                await found(answer);
            }
            hooks.set('/kept.gguf', asTiny);
            await press('verify');
            await found(
                `The SHA-256 of what is kept is ${createHash('sha256').update(tiny).digest('hex')}.`
            );
            hooks.set('/kept.gguf', (req, res) =>
                asTiny(req, res, { ...ISOLATED, ETag: '"another"' })
            );
            await press('check');
            await found('The server has a newer file.');
            requests = [];
            await loads(page, () => page.$eval('#cache .found button', b => b.click()));
            check(
                requests.some(r => r.path === '/kept.gguf' && !r.range),
                'the newer file was not downloaded'
            );
            await until(page, () => document.querySelector('#cache .found').textContent === '');
            await press('check');
            await found('The server has the same file.');
        });
    },

    // As in other chats: the arrow in the empty field edits the last message.
    async arrow_up_edits() {
        await visit(async page => {
            await ready(page);
            await page.focus('#prompt');
            await page.keyboard.press('ArrowUp'); // nothing was said
            expect(await count(page, '.edit'), 0, 'fields');
            const first = await write(page, 'Who are you?', { maxTokens: 20 });
            await fill(page, 'prompt', 'typed');
            await page.keyboard.press('ArrowUp');
            expect(await count(page, '.edit'), 0, 'fields while something is typed');
            await settings(page, { prompt: '' });
            await page.keyboard.press('ArrowUp');
            expect(await page.$eval('.edit textarea', e => e.value), 'Who are you?', 'the field');
            await page.keyboard.press('Escape');
            expect(await page.evaluate(() => document.activeElement.id), 'prompt', 'the focus');
            await page.keyboard.press('ArrowUp');
            await page.keyboard.type(' Tell me a story.');
            await page.keyboard.press('Enter');
            await until(page, () => Number(document.body.dataset.runs) === 2);
            const [question, reply] = await texts(page, '.turn .body');
            expect(question, 'Who are you? Tell me a story.', 'what was sent');
            check(reply !== first, 'the same reply');
        });
    },

    // A reply that was cut off goes on, and is in the end what it would have been.
    async a_reply_goes_on() {
        await visit(async page => {
            await ready(page);
            const press = () =>
                page.$$eval('.turn:last-child button', all =>
                    all.find(b => b.textContent === 'Continue' && b.checkVisibility()).click()
                );
            const offered = () =>
                page.$$eval(
                    '.turn button',
                    all =>
                        all.filter(b => b.textContent === 'Continue' && b.checkVisibility()).length
                );
            const question = 'Tell me a story about a dragon.';
            const whole = await write(page, question, { maxTokens: 90 });
            expect(await lastNote(page), 'Stopped at the token limit.', 'note');
            await page.click('#new');
            const begun = await write(page, question, { maxTokens: 30 });
            check(whole.startsWith(begun) && begun.length < whole.length, begun);
            for (const runs of [3, 4]) {
                expect(await offered(), 1, 'buttons');
                await press();
                await until(page, n => Number(document.body.dataset.runs) === n, runs);
            }
            expect(await lastReply(page), whole, 'the reply');
            await page.reload();
            await ready(page);
            expect(await lastReply(page), whole, 'after a reload');
            expect(await offered(), 1, 'buttons after a reload');
            await write(page, 'Who are you?', { maxTokens: 400 });
            expect(await lastNote(page), '', 'note of a reply that is whole');
            expect(await offered(), 0, 'buttons of replies that are whole, or not the last');
        });
    },

    // The page of a server shows what the server gives to others for the same request.
    async served_chat() {
        await withServer(async server => {
            await visit(
                async page => {
                    const posts = [];
                    page.on('request', r => r.method() === 'POST' && posts.push(r.url()));
                    await ready(page);
                    expect(await text(page, 'f-variant'), 'server', 'variant');
                    expect(await text(page, 'model-name'), 'bitnet.h tiny', 'model');
                    check((await text(page, 'where')).includes(new URL(server.url).host), 'where');
                    await picture(page, 'served');
                    const lines = [];
                    for (const line of ['Tell me a story about a dragon.', 'Why?']) {
                        lines.push(line);
                        const wanted = await servedReply(server, lines);
                        expect(await write(page, line, SAMPLED), wanted.trim(), line);
                        lines.push(wanted);
                    }
                    check(/tok\/s/.test(await text(page, 'f-decode')), 'no speed');
                    await picture(page, 'served-chat');
                    // the last message is changed, and then the system prompt
                    await page.focus('#prompt');
                    await page.keyboard.press('ArrowUp');
                    await page.keyboard.type(' Who is it?');
                    await page.keyboard.press('Enter');
                    await runsAre(page, 3);
                    const changed = [...lines.slice(0, 2), 'Why? Who is it?'];
                    const before = await servedReply(server, changed);
                    expect(await lastReply(page), before.trim(), 'the changed message');
                    await fill(page, 'system', 'You are a cat. You answer with one word.');
                    await pressLast(page, 'Regenerate');
                    await runsAre(page, 4);
                    changed.system = 'You are a cat. You answer with one word.';
                    const after = await servedReply(server, changed);
                    check(after !== before, 'the model does not look at the system prompt');
                    expect(await lastReply(page), after.trim(), 'with a system prompt');
                    await completion(page);
                    expect(await write(page, PROMPT), story(), 'a completion');
                    await idle(server);
                    check(
                        posts.length > 5 && posts.every(url => url.startsWith(server.url)),
                        `it asked ${posts}`
                    );
                    expect(await count(page, '#error:not([hidden])'), 0, 'messages');
                },
                { at: server.url, errors: /^$/ }
            );
        });
    },

    // A reply is stopped by the user and by the end of the server; then the server begins again.
    async served_reply_ends_early() {
        await withServer(
            async (server, begin) => {
                await visit(
                    async page => {
                        await ready(page);
                        await keptPage(page);
                        await writesForLong(page);
                        const { bitnet_left_total: left } = await metrics(server);
                        await pressStop(page);
                        await ready(page);
                        await idle(server);
                        const now = await metrics(server);
                        expect(now.bitnet_left_total, left + 1, 'clients that left');
                        check(now.bitnet_written_tokens_total < 15000, 'the whole text was written');
                        expect(await lastNote(page), 'Stopped.', 'note');
                        expect(await visible(page, 'error'), false, 'a message');

                        const gone = 'The server stopped in the middle of the reply';
                        await page.click('#new');
                        await writesForLong(page);
                        await server.stop(); // with --grace 0: the stream says why it ends
                        expect(await errorTitle(page), gone, 'message');
                        check(/shutting down/.test(await text(page, 'error-code')), 'no reason');

                        server = await begin();
                        await page.click('#new');
                        await writesForLong(page);
                        await server.stop('SIGKILL');
                        expect(await errorTitle(page), gone, 'message');
                        await ready(page);
                        const begun = await lastReply(page);
                        check(begun.length > 20, 'what was written is lost');
                        expect(await lastNote(page), 'An error ended the text here.', 'note');
                        await picture(page, 'served-gone');
                        await write(page, 'Are you there?');
                        expect(await errorTitle(page), 'The server does not answer', 'message');
                        expect(await value(page, 'prompt'), 'Are you there?', 'what was not sent');
                        await settings(page, { prompt: '' });

                        await page.reload(); // the browser has kept the page
                        expect(await errorTitle(page), 'The server does not answer', 'message');
                        expect(await text(page, 'model-name'), 'no model open', 'model');
                        const top = await page.$eval('#notice', e => e.getBoundingClientRect().top);
                        check(top > 0, 'the way to open it is out of sight');
                        await picture(page, 'served-no-answer');
                        server = await begin();
                        await loads(page, () => page.click('#notice-action'));
                        check(!(await visible(page, 'notice')), 'the notice is still there');
                        expect(await lastReply(page), begun, 'the reply after the reload');
                        await settings(page, { temperature: 0, maxTokens: 20 });
                        await pressLast(page, 'Continue');
                        await runsAre(page, 1);
                        const more = await lastReply(page);
                        check(more.startsWith(begun) && more.length > begun.length, more);
                    },
                    { at: server.url, errors: /Failed to load resource|Failed to fetch/ }
                );
            },
            ['-c', '16384', '--grace', '0'],
            await endlessSite()
        );
    },

    // A server that wants a key: the page asks for it, and keeps it for the tab.
    async served_with_a_key() {
        const KEY = 'Schlüssel 1';
        await withServer(
            async (server, begin) => {
                for (const [path, status] of [
                    ['/', 200],
                    ['/page.js', 200],
                    ['/health', 200],
                    ['/v1/models', 401],
                    ['/metrics', 401],
                ])
                    expect((await ask(server, path)).status, status, path);
                const asked = (page, problem) =>
                    until(
                        page,
                        t =>
                            !document.querySelector('#key-form').hidden &&
                            !document.querySelector('#key-send').disabled &&
                            document.querySelector('#key-problem').textContent === t,
                        problem
                    );
                const WRONG = 'The server refuses this key. Check it, and send it again.';
                const focused = page => page.evaluate(() => document.activeElement.id);
                const send = async (page, key) => {
                    await fill(page, 'key', key);
                    await page.keyboard.press('Enter');
                };
                const inStore = page => page.evaluate(() => sessionStorage.getItem('bitnet.key'));
                const settled = page =>
                    until(page, () => document.querySelector('#key-form').hidden);
                const at = server.url,
                    errors = /401/,
                    lines = ['Who are you?'],
                    bytes = Buffer.from(KEY).toString('latin1');
                const wanted = (await servedReply(server, lines, bytes)).trim();
                const check401 = async page => {
                    const urls = [],
                        keys = new Map();
                    page.on('request', r => {
                        urls.push(r.url());
                        if (r.method() === 'POST') keys.set(r.url(), r.headers().authorization);
                    });
                    await asked(page, '');
                    expect(await focused(page), 'key', 'the focus');
                    expect(await violations(page), '', 'axe');
                    expect(await wide(page), '', 'beyond the edge');
                    check(!(await visible(page, 'loading')), 'it seems to load');
                    await send(page, 'no');
                    await asked(page, WRONG);
                    expect(await focused(page), 'key', 'the focus after a wrong key');
                    const invalid = await page.$eval('#key', e => e.getAttribute('aria-invalid'));
                    expect(invalid, 'true', 'aria-invalid');
                    expect(await violations(page), '', 'axe, a wrong key');
                    expect(await wide(page), '', 'beyond the edge');
                    return { urls, keys };
                };
                await visit(
                    async page => {
                        const { urls, keys } = await check401(page);
                        await picture(page, 'served-wrong-key');
                        expect(await inStore(page), null, 'a wrong key in the store');
                        await send(page, KEY);
                        await ready(page);
                        check(!(await visible(page, 'key-form')), 'the question is still there');
                        expect(await value(page, 'key'), '', 'the field');
                        expect(await inStore(page), KEY, 'the key in the store');
                        expect(await write(page, lines[0], SAMPLED), wanted, 'reply');
                        expect(keys.size, 2, 'addresses that were asked');
                        for (const [url, header] of keys) {
                            const shown = [bytes, KEY].map(k => `Bearer ${k}`); // by each browser
                            check(shown.includes(header), `${url} got ${header}`);
                        }
                        await page.reload();
                        await ready(page); // it does not ask again
                        urls.push(page.url());
                        check(
                            urls.length > 20 && !urls.some(u => /Schl|%C3/i.test(u)),
                            'the key is in an address'
                        );
                        const local = await page.evaluate(() => JSON.stringify(localStorage));
                        check(!local.includes('Schl'), 'it is kept for longer than the tab');

                        // a key that is no longer right, and a user who has none
                        await page.evaluate(() => sessionStorage.setItem('bitnet.key', 'old'));
                        await page.reload();
                        await asked(page, WRONG);
                        await page.keyboard.press('Escape');
                        await settled(page);
                        await until(page, () => !document.getElementById('notice').hidden);
                        expect(await text(page, 'model-name'), 'no model open', 'model');
                        expect(await inStore(page), null, 'the old key');
                        await picture(page, 'served-no-key');
                        await page.click('#notice-action');
                        await asked(page, '');
                        await send(page, KEY);
                        await ready(page);

                        // the key changes while the page is open
                        await server.stop();
                        server = await begin('--api-key', 'second');
                        await page.click('#new');
                        await settings(page, { ...SAMPLED, prompt: lines[0] });
                        await page.focus('#prompt');
                        await page.keyboard.press('Enter');
                        await asked(page, WRONG);
                        await page.click('#key-cancel');
                        expect(await errorTitle(page), 'The server needs its key', 'message');
                        expect(await value(page, 'prompt'), lines[0], 'what was not sent');
                        await page.focus('#prompt');
                        await page.keyboard.press('Enter');
                        await asked(page, '');
                        await pressStop(page); // ends the question, too
                        await settled(page);
                        await ready(page);
                        await settings(page, { prompt: lines[0] });
                        await page.focus('#prompt');
                        await page.keyboard.press('Enter');
                        await asked(page, '');
                        await picture(page, 'served-key-in-a-chat');
                        await send(page, 'second');
                        await ready(page);
                        expect(await lastReply(page), wanted, 'reply with the second key');
                    },
                    { at, errors }
                );

                // a phone whose browser keeps nothing
                await visit(
                    async page => {
                        await page.evaluateOnNewDocument(() =>
                            Object.defineProperty(globalThis, 'sessionStorage', {
                                get() {
                                    throw new DOMException('It is insecure.', 'SecurityError');
                                },
                            })
                        );
                        await page.reload();
                        await check401(page);
                        await picture(page, 'served-phone-wrong-key');
                        await send(page, 'second');
                        await ready(page);
                        expect(await write(page, lines[0], SAMPLED), wanted, 'reply');
                        expect(await wide(page), '', 'beyond the edge');
                        await picture(page, 'served-phone');
                        await page.reload();
                        await asked(page, '');
                    },
                    { at, errors, viewport: PHONE, dark: true }
                );
            },
            ['--api-key', KEY]
        );
    },

    // A server that is not ready yet, one that has no place, one that fails, and a host that is none.
    async served_by_others() {
        const say = (status, body) =>
            hooks.set('/v1/models', (req, res, headers) => {
                res.writeHead(status, { 'Content-Type': 'application/json', ...headers });
                res.end(JSON.stringify(body));
                return true;
            });
        const meta = {
            n_ctx: 64,
            n_ctx_train: 4096,
            n_vocab: 9,
            n_layers: 2,
            n_params: 1000,
            size: 1000,
            kernels: 'scalar',
        };
        const model = { data: [{ id: 'fake', owned_by: 'bitnet.h', meta }] };
        say(503, { error: { message: 'the model is being loaded' } });
        await visit(
            async page => {
                await until(
                    page,
                    () =>
                        document.getElementById('loading-text').textContent ===
                        'Waiting for the server: the model is being loaded'
                );
                await picture(page, 'served-waiting');
                say(200, model);
                await ready(page);
                expect(await text(page, 'model-name'), 'fake', 'model');
                const answers = [
                    [429, { message: 'all places are taken' }, 'The server answered 429'],
                    [500, { message: 'it broke' }, 'The server answered 500'],
                    [
                        400,
                        { message: 'too long', code: 'context_length_exceeded' },
                        'The text is too long for the context',
                    ],
                ];
                for (const [status, error, title] of answers) {
                    for (const path of ['/tokenize', '/v1/completions'])
                        hooks.set(path, (req, res, headers) => {
                            res.writeHead(status, headers).end(JSON.stringify({ error }));
                            return true;
                        });
                    await completion(page);
                    await write(page, PROMPT);
                    expect(await errorTitle(page), title, 'message');
                    expect(await value(page, 'prompt'), PROMPT, 'what was not sent');
                }
                check(/--ctx-size/.test(await text(page, 'error-text')), 'no advice');
                for (const [status, body] of [
                    [404, { error: { message: 'there is nothing' } }],
                    [200, { data: [{ id: 'x', owned_by: 'somebody' }] }],
                ]) {
                    say(status, body);
                    await page.reload();
                    expect(await errorTitle(page), 'This host has no server of bitnet.h', 'message');
                }
                await page.$eval('#use-tiny', b => b.click());
                await ready(page);
                check(/own processor/.test(await text(page, 'where')), 'where it runs');
            },
            { at: `${isolated.url}?server=1` }
        );
    },

    // The model opens, and the page says that it is not kept.
    async no_room_in_the_store() {
        hooks.set('/full.gguf', asTiny);
        const look = { quota: 300000 };
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}full.gguf`);
            await named(page, 'full.gguf');
            await ready(page);
            check(
                /not kept in this browser/.test(await text(page, 'model-notes')),
                'it does not say that it is not kept'
            );
            check(await visible(page, 'cache-none'), 'it is listed');
            await stillWrites(page);
        }, look);
    },
};

// What is the same in every browser: what the page's own code decides, and not workers, storage, the
// network or the browser's own interface. Firefox runs them when they are named.
const IN_ONE_BROWSER = [
    'a_seed_repeats_itself',
    'http_404',
    'download_bar_and_cancel',
    'crosscheck_finds_a_wrong_model',
    'crosscheck_finds_what_differs',
    'crosscheck_finds_a_wrong_kernel',
    'wrong_checksum',
    'full_context_drops_the_oldest',
    'text_that_cannot_be_sent_comes_back',
    'percent_in_an_address',
    'settings_out_of_range',
    'figures_belong_to_the_model',
    'contrast_of_every_state',
    'same_named_models',
    'a_load_is_announced_and_has_one_bar',
    'a_published_model_is_one_press_away',
    'interrupted_download_that_is_not_kept',
    'checksum_of_a_wrong_length',
    'what_can_be_done_with_a_message',
    'thirty_messages',
    'a_reply_grows',
    'a_long_reply_does_not_block',
    'composed_text',
    'a_message_of_100_kb',
    'kept_models_are_checked',
    'arrow_up_edits',
    'a_reply_goes_on',
    'served_with_a_key',
    'served_by_others',
];
const unknown = [...IN_ONE_BROWSER, ...only].filter(title => !tests[title]);
if (unknown.length) throw new Error(`there is no test ${unknown}`);

const counts = { passed: 0, failed: 0, skipped: 0 };
for (const [title, test] of Object.entries(tests)) {
    if (only.length ? !only.includes(title) : firefox && IN_ONE_BROWSER.includes(title)) continue;
    hooks = new Map();
    requests = [];
    const start = Date.now();
    try {
        await test();
        counts.passed++;
        console.log(`ok ${title} (${Date.now() - start} ms)`);
    } catch (e) {
        const text = String(e.message).split('\n').slice(0, 6).join('\n    ');
        counts[e instanceof Skip ? 'skipped' : 'failed']++;
        console.log(`${e instanceof Skip ? 'skip' : 'FAIL'} ${title}: ${text}`);
    }
}
await browser.close();
for (const { server } of [isolated, plain]) {
    server.closeAllConnections();
    server.close();
}
rmSync(scratch, { recursive: true });
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed ? 1 : 0;
