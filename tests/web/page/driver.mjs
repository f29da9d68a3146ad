// driver.mjs - drives the page in a browser: what its tests share. browser.mjs says what the program's
// arguments are.
import { execFileSync } from 'node:child_process';
import {
    cpSync,
    mkdirSync,
    mkdtempSync,
    readdirSync,
    readFileSync,
    rmSync,
    writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { listed, pageFiles } from '../../../web/list.mjs';
import { HANG, launch, newPage } from '../browsers.mjs';
import { ISOLATED, sendFile, serve } from '../serve.mjs';

const [name, site, generate, modules, ...only] = process.argv.slice(2);
const firefox = name === 'firefox';
const require = createRequire(resolve(modules, 'package.json'));
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const tinyPath = resolve(site, 'tiny.gguf'),
    tiny = readFileSync(tinyPath);
const variants = readdirSync(site).flatMap(f => /^engine-(\w+)\.js$/.exec(f)?.[1] ?? []);
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
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
function forget() {
    hooks = new Map();
    requests = [];
}

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
function remade(edits) {
    const folder = mkdtempSync(join(tmpdir(), 'bitnet-page-')),
        sources = join(folder, 'web'),
        bundle = join(ROOT, 'web/bundle.mjs');
    try {
        cpSync(join(ROOT, 'web'), sources, { recursive: true });
        for (const variant of variants) writeFileSync(join(folder, `engine-${variant}.js`), '');
        // A machine may be too busy to start threads in the time that the page gives them.
        const patient = s => s.replace('START_MS = 4000', 'START_MS = 60000');
        for (const [name, edit] of [['client/connection.js', patient], ...Object.entries(edits)]) {
            const path = join(sources, name),
                before = readFileSync(path, 'utf8'),
                after = edit(before);
            check(after !== before, `${name} has another form`);
            writeFileSync(path, after);
        }
        execFileSync(process.execPath, [bundle, 'modules', sources, folder, 'bitnet']);
        return readFileSync(join(folder, 'bitnet.js'), 'utf8');
    } finally {
        rmSync(folder, { recursive: true });
    }
}
function rebuilt(edits) {
    const made = remade(edits);
    return edited('bitnet.js', () => made);
}
/** sw.js for a page whose files have other contents than the folder's: instead, by their names. */
const listing = instead =>
    edited('sw.js', s => listed(s, pageFiles(site, { 'bitnet.js': patientPage, ...instead })));
const patientPage = remade({});
const usual = new Map([
    ['/bitnet.js', edited('bitnet.js', () => patientPage)],
    ['/sw.js', listing({})],
]);
const isolated = await serve({ root: resolve(site), hook: hook(ISOLATED) });
const plain = await serve({ root: resolve(site), headers: {}, hook: hook({}) });

// ---- the page ----

const PHONE = { width: 360, height: 568, isMobile: true, hasTouch: true };
const browser = await launch(name, modules);

// What Firefox has only as a preference takes a browser of its own. errors: those of the console that
// may come; without it, all may. throws: what may be thrown and not be caught.
async function visit(f, { at = isolated.url, viewport, errors, throws, ...look } = {}) {
    const own = firefox && Object.keys(look).length && (await launch(name, modules, look));
    const context = await (own || browser).createBrowserContext();
    const page = await newPage(context),
        faults = [];
    page.on('pageerror', e => {
        // Firefox tells it although the page catches it.
        if (/Storage access is restricted/.test(e.message) || throws?.test(e.message)) return;
        faults.push(String(e.stack ?? e));
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
        n =>
            globalThis.states.slice(n).includes('loading') &&
            document.body.dataset.state === 'ready',
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

async function chooseFile(page, path, id = 'file') {
    await (await page.$(`#${id}`)).uploadFile(path);
}

// By the keyboard: a click goes to a place, from which the button may move while the page grows.
async function checked(page) {
    await page.focus('#check');
    await page.keyboard.press('Enter');
    await until(page, () => /Pass|Fail/.test(document.getElementById('check-status').textContent));
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
            'client/session.js': s =>
                s.replace(
                    'chat(messages, options = {}) {',
                    '$& (globalThis.sent ??= []).push(messages);'
                ),
        })
    );
// What the page exports is in globalThis.exported, as text, and fileName.
const catchExports = page =>
    page.evaluate(() => {
        URL.createObjectURL = blob => {
            globalThis.exported = blob.text();
            return 'data:application/json,%7B%7D';
        };
        HTMLAnchorElement.prototype.click = function () {
            globalThis.fileName = this.download;
        };
    });
// Until the service worker has what the next visit needs.
const keptPage = page => until(page, () => document.body.dataset.offline === 'yes');
const completion = page => page.$eval('input[value=text]', e => e.click());
// The mode Search: until its code is there, which comes when it is asked for.
const searching = async page => {
    await page.$eval('input[value=search]', e => e.click());
    await until(page, () => document.body.dataset.indexed !== undefined);
};
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

export {
    asTiny,
    axe,
    browser,
    catchExports,
    check,
    checked,
    chooseFile,
    completion,
    count,
    dragInPage,
    dragOver,
    drop,
    edited,
    errorTitle,
    expect,
    fill,
    firefox,
    forget,
    generate,
    hook,
    hooks,
    isolated,
    keptPage,
    lastNote,
    lastReply,
    listing,
    loads,
    name,
    named,
    native,
    only,
    openUrl,
    PHONE,
    picture,
    plain,
    PROMPT,
    ready,
    rebuilt,
    recordChats,
    relaxedIsUnknown,
    reloadModel,
    requests,
    ROOT,
    scratch,
    searching,
    settings,
    site,
    Skip,
    sleep,
    stillWrites,
    story,
    text,
    texts,
    tiny,
    tinyPath,
    until,
    value,
    variants,
    violations,
    visible,
    visit,
    wide,
    write,
    writesIn,
};
