/* Tests web/shared/cache in a browser, and in this Node what Node has of it.
 *
 *   node tests/web/cache.mjs [BROWSER MODULES [FILTER]]     the tests whose names hold FILTER
 *
 * BROWSER is chromium or firefox, MODULES a folder whose node_modules has tests/web/package.json's;
 * see browsers.mjs. Without them Node's part alone is run.
 *
 * Each test has an origin of its own, NAME.localhost, and so an empty storage of its own. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { openSource } from '../../web/shared/cache/cache.js';
import { HANG, launch, newPage } from './browsers.mjs';

const [browserName, modules, filter = ''] = process.argv.slice(2);
const isFirefox = browserName === 'firefox';
const MB = 1 << 20;
const FILE = model(5 * MB + 12345);
const CUT = 2 * MB;
const QUOTA = 3 * MB;
const OTHER = model(5 * MB + 12345);
const PACKED = Buffer.alloc(3 * MB, 'GGUFabc');
const CORS = { 'Access-Control-Allow-Origin': '*' };
const tests = [];
let server, browser, fullBrowser;

/* Bytes that only begin like a model. */
function model(size) {
    return Buffer.concat([Buffer.from('GGUF'), randomBytes(size - 4)]);
}

function check(truth, text) {
    if (!truth) throw new Error(text);
}

function equal(got, wanted, text) {
    got = JSON.stringify(got);
    wanted = JSON.stringify(wanted);
    check(got === wanted, `${text}: ${got}, not ${wanted}`);
}

function sha256(bytes) {
    return createHash('sha256').update(bytes).digest('hex');
}

// ---- the server: a test sets what it does, and reads in `log` what was asked ----

/* Of state: file, or files by their paths, etag, lastModified, headers, status; length, ranges, gzip: whether; anyRange: it
 * ignores If-Range; noHead: it refuses HEAD; cut: the connection breaks at this offset, once; hold: it stalls there, and is
 * `held`; holdOnce: the first request that comes to it does; trickle: from there on a byte comes now and
 * then; slow: ms before each 64 KB, or a function of state that says them; surplus: bytes that do not
 * belong to the file; lacks: bytes that never come; otherParts: the file, of
 * another tag, of which it sends parts; words: the body of an error;
 * mute: it never answers; most: it answers so many requests at a time; redirect: to this URL. It says
 * in `open` how many it answers, in `peak` how many at most, and in `sent` how many bytes it sent. */
async function startServer() {
    const hosts = new Map();
    const web = createServer((request, response) => {
        const state = hosts.get(request.headers.host.split('.')[0]) ?? {};
        const name = new URL(request.url, 'http://x').pathname;
        if (name === '/') return send(response, 'text/html', '<!doctype html><title>test</title>');
        if (name === '/worker.js') return send(response, 'text/javascript', WORKER);
        if (/^\/shared\/[\w/-]+\.js$/.test(name)) {
            response.setHeader('Access-Control-Allow-Origin', '*');   // for a sandboxed frame
            return send(response, 'text/javascript', readFileSync(`web${name}`));
        }
        if (name === '/favicon.ico') return response.writeHead(404).end();
        serveFile(state, request, response);
    });
    web.keepAliveTimeout = HANG;           // a client never sends into a connection that is closed
    await new Promise((resolve) => web.listen(0, '127.0.0.1', resolve));
    const { port } = web.address();
    return {
        host(name, state = {}) {
            Object.assign(state, {
                file: FILE, etag: '"one"', length: true, ranges: true, log: [], open: 0, peak: 0, sent: 0, ...state,
                origin: `http://${name}.localhost:${port}`
            });
            state.url = `${state.origin}/model.gguf`;
            hosts.set(name, state);
            return state;
        },
        close: () => web.closeAllConnections() || web.close()
    };
}

function send(response, type, text) {
    response.writeHead(200, { 'Content-Type': type }).end(text);
}

async function serveFile(state, request, response) {
    const { headers = {} } = state, range = request.headers.range;
    const file = state.files ? state.files.get(new URL(request.url, 'http://x').pathname) : state.file;
    if (!file) return response.writeHead(404).end();
    if (request.method === 'OPTIONS') {                       // of a request with headers
        return response.writeHead(204, { ...headers, 'Access-Control-Allow-Headers': '*, Authorization' })
            .end();
    }
    state.asked = request.headers;
    state.log.push(request.method === 'GET' ? range ?? 'all' : request.method);
    state.ifRange = request.headers['if-range'];
    const head = { 'Content-Type': 'application/octet-stream', ...headers };
    if (state.etag) head.ETag = state.etag;
    if (state.lastModified) head['Last-Modified'] = state.lastModified;
    if (state.mute) return (state.held = true);
    if (state.redirect) return response.writeHead(302, { ...head, Location: state.redirect }).end();
    if (state.status) return response.writeHead(state.status, head).end(state.words ?? 'no');
    if (state.open >= state.most) return response.writeHead(429, head).end('too many');
    state.peak = Math.max(state.peak, ++state.open);
    response.on('close', () => state.open--);
    if (state.noHead && request.method === 'HEAD') return response.writeHead(405).end();
    let body = file, status = 200, start = 0;
    const same = state.anyRange || !state.ifRange ||
        [state.etag, state.lastModified].includes(state.ifRange);
    if (range && state.ranges && same) {
        const [, from, to] = /bytes=(\d+)-(\d*)/.exec(range);
        start = Number(from);
        if (start >= file.length) return response.writeHead(416).end();
        status = 206;
        if (state.otherParts) head.ETag = '"two"';
        body = (state.otherParts ?? file).subarray(start, to ? Number(to) + 1 : file.length);
        head['Content-Range'] = `bytes ${start}-${start + body.length - 1}/${file.length}`;
    }
    if (state.gzip) {
        head['Content-Encoding'] = 'gzip';
        body = gzipSync(body, { level: 1 });
    }
    if (state.surplus) body = Buffer.concat([body, Buffer.alloc(state.surplus)]);
    if (state.lacks) body = body.subarray(0, -state.lacks);
    if (state.length) head['Content-Length'] = body.length;
    response.writeHead(status, head);
    await sendBody(state, response, body, start);
}

async function sendBody(state, response, body, start) {
    response.setMaxListeners(0);
    for (let at = 0; at < body.length && !response.destroyed; at += 65536) {
        const slow = state.slow instanceof Function ? state.slow(state) : state.slow;
        if (slow) await sleep(slow);
        if (start + at === state.holdOnce) {
            state.holdOnce = 0;
            state.held = true;
            return;
        }
        if (state.hold && start + at >= state.hold) {
            state.drop = () => response.destroy();
            state.held = true;
            return;
        }
        if (state.trickle && start + at >= state.trickle) {
            for (; state.trickle && !response.destroyed; await sleep(50)) {
                response.write(body.subarray(at, ++at));
            }
            return response.destroy();
        }
        if (state.cut && start + at >= state.cut) {
            state.cut = 0;
            return response.socket.end();         // after what was sent
        }
        state.sent += body.subarray(at, at + 65536).length;
        if (!response.write(body.subarray(at, at + 65536))) {
            await Promise.race([once(response, 'drain'), once(response, 'close')]);
        }
    }
    response.end();
}

// ---- the browser ----

/* The worker runs what it is sent; its functions are load (all of openSource and the stream) and
 * those of cache.js. `hide` takes parts of the browser away first. */
const WORKER = `
    const started = {}, clock = performance.now.bind(performance);
    let now = 0;                                  // what cache.js was told last
    performance.now = () => (now = clock());
    onmessage = async ({ data: { id, code, args, hide } }) => {
        try {
            if (hide.includes('opfs')) delete StorageManager.prototype.getDirectory;
            if (hide.includes('cache')) Object.defineProperty(self, 'caches', { value: undefined });
            if (hide.includes('blocked')) {               // as where cookies are
                const blocked = async () => { throw new DOMException('no', 'SecurityError'); };
                StorageManager.prototype.getDirectory = CacheStorage.prototype.open = blocked;
                LockManager.prototype.request = LockManager.prototype.query = blocked;
            }
            if (hide.includes('subtle')) {
                Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined });
            }
            if (hide.includes('estimate')) {
                StorageManager.prototype.estimate = async () => ({ quota: 1e12, usage: 0 });
            }
            if (hide.includes('room')) {
                StorageManager.prototype.estimate = async () => ({ quota: 4e6, usage: 1e6 });
            }
            const cache = await import('/shared/cache/cache.js');
            const tools = { ...cache, load, started };
            postMessage({ id, value: await (0, eval)('(' + code + ')')(tools, args) });
        } catch ({ name, code, status, message }) {
            postMessage({ id, error: { name, code: String(code), status, message } });
        }

        async function load(url, { discard, tailFrom = 0, ...options } = {}) {
            const { openSource } = await import('/shared/cache/cache.js');
            const reports = [], onProgress = (p) => reports.push({ ...p, at: now });
            const source = await openSource(url, { onProgress, ...options });
            const bytes = [];
            let chunks = 0, largest = 0;
            for (const reader = source.stream().getReader(); ;) {
                const { done, value } = await reader.read();
                if (done) break;
                chunks++;
                largest = Math.max(largest, value.length);
                bytes.push(value);
            }
            const all = new Uint8Array(await new Blob(bytes).arrayBuffer());
            const hashed = async (bytes) => Array.from(
                new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)),
                (b) => b.toString(16).padStart(2, '0')).join('');
            if (discard) await source.discard();
            else source.close();
            const { size, cache, fromCache, notes } = source;
            return { size, cache, fromCache, notes, length: all.length, chunks, largest, reports,
                hash: await hashed(all), tail: await hashed(all.slice(tailFrom)) };
        }
    };`;

/* In the page: work(worker's name, code, args, hide). */
function pageScript() {
    const workers = new Map();
    let next = 0;
    globalThis.work = (name, code, args, hide) => {
        if (!workers.has(name)) workers.set(name, new Worker('/worker.js', { type: 'module' }));
        const worker = workers.get(name), id = next++;
        return new Promise((resolve) => {
            worker.addEventListener('message', ({ data }) => {
                if (data.id === id) resolve(data);
            });
            worker.postMessage({ id, code, args, hide });
        });
    };
    globalThis.endWorker = (name) => {
        workers.get(name).terminate();
        workers.delete(name);
    };
}

/* The action as one that waits for its last call to end. */
function inTurn(action) {
    let last = Promise.resolve();
    return (...args) => (last = last.catch(() => {}).then(() => action(...args)));
}

/* folder: where its profile is. quota: in Firefox, of all its origins. */
async function startBrowser(folder, quota) {
    const running = await launch(browserName, modules, { folder, quota }), child = running.process();
    const end = () => process.kill(-child.pid, 'SIGKILL');       // all of its processes
    process.once('exit', end);
    child.once('exit', () => process.off('exit', end));
    /* Firefox loses its way when tabs come and go at the same time, and takes a while for one. */
    const free = [], another = inTurn(async () => {
        const page = await newPage(running);
        await page.evaluateOnNewDocument(pageScript);
        return page;
    });
    return {
        async tab(state, hide = []) {
            const page = free.pop() ?? await another();
            await page.goto(state.origin);
            return makeTab(page, hide, async () => {
                await page.goto('about:blank');               // which ends its workers
                free.push(page);
            });
        },
        kill: () => new Promise((resolve) => {
            child.on('exit', resolve);
            end();
        })
    };
}

function makeTab(page, hide, close) {
    /* Runs f({ openSource, load, ... }, { url, options }) in the worker; throws what it throws. */
    async function work(f, { url, options } = {}, name = 'worker') {
        const { value, error } = await page.evaluate(
            ([name, code, args, hide]) => globalThis.work(name, code, args, hide),
            [name, f.toString(), { url, options }, hide]);
        if (error) throw Object.assign(new Error(error.message), error);
        return value;
    }
    return {
        page, work,
        load: (url, options = {}, name = 'worker') =>
            work(({ load }, { url, options }) => load(url, options), { url, options }, name),
        list: () => work(({ list }) => list()),
        files: () => work(async () => {
            const root = await navigator.storage.getDirectory(), found = [];
            const dir = await root.getDirectoryHandle('bitnet-cache', { create: true });
            for await (const name of dir.keys()) found.push(name.split('.')[1]);
            return found.sort();
        }),
        endWorker: (name = 'worker') => page.evaluate((name) => globalThis.endWorker(name), name),
        close
    };
}

async function failure(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    throw new Error('it did not fail');
}

function isFile(result, { file = FILE, ...wanted } = {}) {
    if (result.size !== null) equal(result.size, file.length, 'size');
    equal(result.length, file.length, 'bytes');
    equal(result.hash, sha256(file), 'hash');
    for (const [name, value] of Object.entries(wanted)) equal(result[name], value, name);
}

async function until(condition, text) {
    for (const end = Date.now() + HANG; Date.now() < end; await sleep(50)) {
        if (await condition()) return;
    }
    throw new Error(`it never comes: ${text}`);
}

/* Loads in a worker of its own name, and aborts when the condition holds; returns the error. */
async function abortWhen(condition, tab, { url }, { reason, name } = {}) {
    const failed = failure(tab.work(({ load, started }, { url }) => {
        started.controller = new AbortController();
        return load(url, { signal: started.controller.signal });
    }, { url }, name));
    await until(condition, 'the time to abort');
    await tab.work(({ started }, { options }) =>
        started.controller.abort(options && new Error(options)), { options: reason }, name);
    return failed;
}

/* How many calls of this origin wait for a lock. */
const waiting = (tab) =>
    tab.page.evaluate(async () => (await navigator.locks.query()).pending.length);

// ---- in a browser ----

/* full: its origin has room for QUOTA bytes, in Firefox together with all others. */
function inBrowser(name, action, { hide = [], state = {}, full } = {}) {
    const inTab = async (browser) => {
        const host = server.host(name.toLowerCase().replace(/\W+/g, '-'), { ...state });
        const tab = await browser.tab(host, hide);
        try {
            if (full && !isFirefox) await setQuota(tab.page, host.origin);
            await action(tab, host);
        } finally {
            await tab.close();
        }
    };
    const run = full && isFirefox ? () => inFullBrowser(inTab) : () => inTab(browser);
    tests.push({ name, needsBrowser: true, action: run });
}

const inFullBrowser = inTurn((action) => action(fullBrowser));

inBrowser('download, then no request', async (tab, state) => {
    state.slow = 5;                                       // long enough for some reports
    const first = await tab.load(`${state.url}#fragment`);
    isFile(first, { cache: 'opfs', fromCache: false, notes: [] });
    equal(await tab.files(), ['gguf', 'json'], 'files');
    equal((await tab.list())[0].url, state.url, 'URL');
    checkReports(first.reports.filter(({ phase }) => phase === 'download'), false);
    checkReports(first.reports.filter(({ phase }) => phase === 'read'), false);
    await tab.page.reload();
    const second = await tab.load('/model.gguf');
    isFile(second, { cache: 'opfs', fromCache: true });
    equal(second.largest, 4 * MB, 'largest chunk');
    checkReports(second.reports, true);
    equal(second.reports[0].phase, 'read', 'phase');
    equal(state.log, ['all'], 'requests');
});

function checkReports(reports, fromCache) {
    const last = reports.at(-1), dense = reports.slice(0, -1);
    check(reports.length >= 2, 'no progress');
    for (let i = 1; i < dense.length; i++) {
        check(dense[i].at - dense[i - 1].at >= 100, 'reports come too often');
        check(dense[i].loaded > dense[i - 1].loaded, 'reports do not grow');
        check(dense[i].bytesPerSecond > 0, 'no speed');
        check(dense[i].secondsLeft > 0 && Number.isFinite(dense[i].secondsLeft), 'no time left');
    }
    for (const report of reports) {
        equal([report.total, report.cache, report.fromCache], [FILE.length, 'opfs', fromCache],
            'report');
    }
    equal([last.loaded, last.secondsLeft], [FILE.length, 0], 'last report');
    equal(reports.filter(({ loaded }) => loaded === FILE.length).length, 1, 'last reports');
}

/* Loads, and breaks the connection as soon as CUT bytes are in the file. */
async function interrupt(tab, state) {
    state.hold = CUT;
    const failed = failure(tab.load(state.url));
    await until(async () => await tab.page.evaluate(partialBytes) === CUT, 'bytes in the file');
    state.hold = 0;
    state.drop();
    const error = await failed;
    equal([error.name, error.code], ['BitNetError', 'ERR_NETWORK'], 'error');
    return error;
}

async function partialBytes() {
    const root = await navigator.storage.getDirectory();
    const dir = await root.getDirectoryHandle('bitnet-cache', { create: true });
    for await (const [name, handle] of dir.entries()) {
        if (name.endsWith('.part')) return (await handle.getFile()).size;
    }
    return 0;
}

inBrowser('connection lost, then resumed', async (tab, state) => {
    const start = Date.now(), error = await interrupt(tab, state);
    check(error.message.includes(`after ${CUT} bytes`), error.message);
    const [{ date, ...entry }] = await tab.list();
    equal(entry, { url: state.url, size: FILE.length, loaded: CUT, complete: false }, 'entry');
    check(Date.parse(date) >= start - 1000 && Date.parse(date) <= Date.now() + 1000, date);
    equal(await tab.files(), ['json', 'part'], 'files');
    const result = await tab.load(state.url);
    isFile(result, { cache: 'opfs', fromCache: false });
    equal(result.reports[0].loaded, CUT, 'begins at');
    equal(state.log, ['all', `bytes=${CUT}-`], 'requests');
    equal(state.ifRange, '"one"', 'If-Range');
    isFile(await tab.load(state.url), { fromCache: true });
});

/* Interrupts a download of FILE, changes something, and loads again. */
async function resumeAfter(tab, state, change, wanted) {
    await interrupt(tab, state);
    equal((await tab.list())[0].loaded, CUT, 'kept');
    Object.assign(state, change);
    isFile(await tab.load(state.url), { file: state.file, cache: 'opfs', fromCache: false });
    equal(state.log.slice(1), wanted.map((range) => range.replace('N', CUT)), 'requests');
    isFile(await tab.load(state.url), { file: state.file, fromCache: true });
}

inBrowser('another ETag starts over', (tab, state) =>
    resumeAfter(tab, state, { etag: '"two"', file: OTHER }, ['bytes=N-']));

inBrowser('a server that ignores If-Range', (tab, state) =>
    resumeAfter(tab, state, { etag: '"two"', file: OTHER, anyRange: true }, ['bytes=N-', 'all']));

inBrowser('another Last-Modified starts over', (tab, state) =>
    resumeAfter(tab, state, { lastModified: 'Sun, 02 Aug 2026 00:00:00 GMT', file: OTHER },
        ['bytes=N-']),
    { state: { etag: '', lastModified: 'Sat, 01 Aug 2026 00:00:00 GMT' } });

inBrowser('a weak ETag is compared, not sent', async (tab, state) => {
    await resumeAfter(tab, state, {}, ['bytes=N-']);
    equal(state.ifRange, undefined, 'If-Range');
}, { state: { etag: 'W/"weak"' } });

inBrowser('a weak ETag that changed', (tab, state) =>
    resumeAfter(tab, state, { etag: 'W/"new"', file: OTHER }, ['bytes=N-', 'all']),
    { state: { etag: 'W/"weak"' } });

inBrowser('a server without Range', (tab, state) =>
    resumeAfter(tab, state, { ranges: false }, ['bytes=N-']));

inBrowser('416 starts over', (tab, state) =>
    resumeAfter(tab, state, { file: FILE.subarray(0, MB), anyRange: true }, ['bytes=N-', 'all']));

inBrowser('another size starts over', (tab, state) =>
    resumeAfter(tab, state, { file: Buffer.concat([FILE, OTHER]) }, ['bytes=N-', 'all']));

inBrowser('no way to know the file again', async (tab, state) => {
    await interrupt(tab, state);
    equal(await tab.files(), [], 'files');
    isFile(await tab.load(state.url), { cache: 'opfs' });
    equal(state.log, ['all', 'all'], 'requests');
}, { state: { etag: '' } });

// ---- several requests at a time ----

const LARGE = model(40 * MB);

/* However slow the browser is: so many requests are there before much has come ... */
const whenOpen = (n, slow) => ({ peak }) => peak < n ? 100 : slow;

/* ... and the file does not end while somebody looks for its beginning. */
const pausing = (state) => state.sent < 28 * MB ? whenOpen(4, 10)(state) : 1000;

inBrowser('several requests at a time', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { file: LARGE, cache: 'opfs', fromCache: false });
    check(state.peak >= 4 && state.log[0] === 'all', `${state.peak} requests at a time`);
    /* If no request ended where another one begins, twice the file would be sent. A request that does
     * end leaves some bytes in buffers, so a little more than the file is sent. */
    check(state.sent < 1.6 * LARGE.length, `${state.sent} bytes were sent`);
    const reports = result.reports.filter(({ phase }) => phase === 'download');
    reports.reduce((a, b) => check(a.loaded < b.loaded, 'reports do not grow') ?? b);
    equal([reports[0].loaded, reports.at(-1).loaded], [0, LARGE.length], 'reports');
    equal(await tab.files(), ['gguf', 'json'], 'files');
    await tab.work(({ clear }) => clear());
    Object.assign(state, { slow: 0, log: [] });
    isFile(await tab.load(state.url, { connections: 1 }), { file: LARGE });
    equal(state.log, ['all'], 'one request');
}, { state: { file: LARGE, slow: whenOpen(4, 10) } });

inBrowser('several requests, a server without Range', async (tab, state) => {
    isFile(await tab.load(state.url), { file: LARGE });
    equal(state.log.length, 2, 'requests');
    await tab.work(({ clear }) => clear());
    state.hold = CUT;
    const failed = failure(tab.load(state.url));
    await until(() => state.log.length === 4 && state.held, 'the answer without Range');
    state.drop();
    equal((await failed).code, 'ERR_NETWORK', 'error');
    equal(await tab.list(), [], 'what cannot be resumed is not kept');
}, { state: { file: LARGE, slow: 1, ranges: false } });

inBrowser('several requests, another file behind some', async (tab, state) => {
    const load = tab.load(state.url);
    await until(() => state.log.length > 1, 'another request');
    isFile(await load, { file: LARGE });
    equal(state.log.length, 2, 'requests');
}, { state: { file: LARGE, slow: whenOpen(2, 4), otherParts: model(LARGE.length) } });

inBrowser('several requests, one is cut, one is refused', async (tab, state) => {
    isFile(await tab.load(state.url), { file: LARGE });
    equal([state.cut, state.peak > 1], [0, true], 'it was cut; several at a time');
}, { state: { file: LARGE, slow: whenOpen(2, 4), cut: 25 * MB, most: 3 } });

inBrowser('several requests, killed and resumed', async (tab, state) => {
    tab.load(state.url).catch(() => {});
    await until(async () => {
        const [entry] = await tab.work(({ list }) => list(), {}, 'list');
        return state.peak >= 4 && entry?.loaded > 16 * MB;
    }, 'a checkpoint with four requests');
    await tab.endWorker();
    await until(() => state.open === 0, 'the end of its requests');
    const [{ loaded, size, complete }] = await tab.work(({ list }) => list(), {}, 'list');
    equal([size, complete], [LARGE.length, false], 'entry');
    Object.assign(state, { sent: 0, slow: 1, log: [] });
    const result = await tab.load(state.url, {}, 'next');
    isFile(result, { file: LARGE, cache: 'opfs', fromCache: false });
    equal(result.reports[0].loaded, loaded, 'begins at');
    check(state.sent < LARGE.length - loaded + 8 * MB, `${state.sent} more for ${size - loaded}`);
    check(!state.log.includes('all'), `requests: ${state.log}`);
    isFile(await tab.load(state.url, {}, 'next'), { file: LARGE, fromCache: true });
}, { state: { file: LARGE, slow: pausing } });

inBrowser('several requests, resumed with a changed file', async (tab, state) => {
    tab.load(state.url).catch(() => {});
    await until(async () => {
        const [entry] = await tab.work(({ list }) => list(), {}, 'list');
        return state.peak >= 4 && entry?.loaded > 8 * MB;
    }, 'a checkpoint with four requests');
    await tab.endWorker();
    Object.assign(state, { file: model(LARGE.length), etag: '"two"', slow: 0 });
    isFile(await tab.load(state.url, {}, 'next'), { file: state.file, cache: 'opfs' });
}, { state: { file: LARGE, slow: pausing } });

inBrowser('several requests, aborted', async (tab, state) => {
    const error = await abortWhen(() => state.peak >= 4, tab, state);
    equal(error.name, 'AbortError', 'error');
    await until(() => state.open === 0, 'the end of its requests');
    equal(await tab.files(), ['json', 'part'], 'files');
    state.slow = 0;
    isFile(await tab.load(state.url), { file: LARGE });
}, { state: { file: LARGE, slow: pausing } });

inBrowser('several requests to another site', async (tab) => {
    const there = server.host('parts-site', {
        headers: CORS, lastModified: 'Sat, 01 Aug 2026 00:00:00 GMT', file: LARGE, slow: whenOpen(2, 4)
    });
    isFile(await tab.load(there.url), { file: LARGE });
    check(there.log.length > 2, 'one request was not enough');
    equal(there.ifRange, undefined, 'If-Range');
});

inBrowser('killed before the last step', async (tab, state) => {
    isFile(await tab.load(state.url));
    await tab.work(async () => {
        const root = await navigator.storage.getDirectory();
        const dir = await root.getDirectoryHandle('bitnet-cache');
        for await (const [name, handle] of dir.entries()) {
            if (name.endsWith('.gguf')) await handle.move(name.replace('gguf', 'part'));
        }
    });
    equal((await tab.list())[0].complete, false, 'complete');
    isFile(await tab.load(state.url));
    equal(state.log, ['all'], 'requests');
});

inBrowser('the rest has a wrong size', async (tab, state) => {
    await interrupt(tab, state);
    Object.assign(state, { surplus: 10, length: false });
    const error = await failure(tab.load(state.url));
    equal(error.code, 'ERR_NETWORK', 'error');
    check(/more than the \d+ bytes/.test(error.message), error.message);
    equal(await tab.files(), [], 'files');
    state.surplus = 0;
    isFile(await tab.load(state.url), { fromCache: false });
    equal(state.log.at(-1), 'all', 'request');
});

inBrowser('the rest ends early, and nobody says so', async (tab, state) => {
    await interrupt(tab, state);
    Object.assign(state, { lacks: 1000, length: false });
    const error = await failure(tab.load(state.url));
    equal(error.code, 'ERR_NETWORK', 'error');
    check(error.message.includes(`of ${FILE.length}`), error.message);
    equal(await tab.files(), ['json', 'part'], 'files');
    state.lacks = 0;
    isFile(await tab.load(state.url), { fromCache: false });
    equal(state.log.at(-1), `bytes=${FILE.length - 1000}-`, 'request');
});

inBrowser('a cached file of a wrong size', async (tab, state) => {
    isFile(await tab.load(state.url));
    await tab.work(async () => {
        const root = await navigator.storage.getDirectory();
        const dir = await root.getDirectoryHandle('bitnet-cache');
        for await (const [name, handle] of dir.entries()) {
            if (!name.endsWith('.gguf')) continue;
            const file = await handle.createSyncAccessHandle();
            file.truncate(1000);
            file.close();
        }
    });
    equal((await tab.list())[0].complete, false, 'complete');
    isFile(await tab.load(state.url), { fromCache: false });
    isFile(await tab.load(state.url), { fromCache: true });
});

inBrowser('unreadable metadata', async (tab, state) => {
    await interrupt(tab, state);
    await tab.work(async () => {
        const root = await navigator.storage.getDirectory();
        const dir = await root.getDirectoryHandle('bitnet-cache');
        for await (const [name, handle] of dir.entries()) {
            if (!name.endsWith('.json')) continue;
            const file = await handle.createSyncAccessHandle();
            file.write(new Uint8Array(20));
            file.close();
        }
    });
    const [entry] = await tab.list();
    check(/^unknown:\w+$/.test(entry.url) && !entry.complete, entry.url);
    isFile(await tab.load(state.url), { fromCache: false });
    equal(state.log, ['all', 'all'], 'requests');
});

inBrowser('no Content-Length', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'opfs' });
    equal(result.reports[0].total, null, 'total');
    equal(result.reports[0].secondsLeft, null, 'time left');
    isFile(await tab.load(state.url), { fromCache: true });
}, { state: { length: false } });

inBrowser('no Content-Length, resumed', (tab, state) =>
    resumeAfter(tab, state, {}, ['bytes=N-']), { state: { length: false } });

inBrowser('compressed on its way', async (tab, state) => {
    isFile(await tab.load(state.url), { file: state.file, cache: 'opfs' });
    isFile(await tab.load(state.url), { file: state.file, fromCache: true });
    equal(state.log, ['all'], 'requests');
}, { state: { gzip: true, file: PACKED } });

inBrowser('404', async (tab, state) => {
    const error = await failure(tab.load(state.url));
    equal([error.name, error.code, error.status], ['BitNetError', 'ERR_HTTP', 404], 'error');
    equal(await tab.list(), [], 'kept');
}, { state: { status: 404 } });

inBrowser('503 keeps what was there', async (tab, state) => {
    await interrupt(tab, state);
    state.status = 503;
    const error = await failure(tab.load(state.url));
    equal([error.code, error.status], ['ERR_HTTP', 503], 'error');
    equal(await tab.files(), ['json', 'part'], 'files');
});

// ---- answers that are no model, and none at all ----

inBrowser('no model', async (tab, state) => {
    const page = '<!doctype html><title>Chat</title>\n<script src=app.js></script>';
    Object.assign(state, {
        slow: 10,
        file: Buffer.concat([Buffer.from(page), Buffer.alloc(64 * MB)]),
        headers: { 'Content-Type': 'text/html; charset=utf-8' }
    });
    for (const [hide, options] of [[[], {}], [['opfs'], {}], [[], { cache: 'none' }]]) {
        const own = hide[0] ? await browser.tab(state, hide) : tab;
        state.sent = 0;
        const error = await failure(own.load(state.url, options));
        equal(error.code, 'ERR_FORMAT', 'error');
        check(error.message.includes('the server sent text/html, which begins with "<!doctype'),
            error.message);
        await until(() => state.open === 0, 'the end of the request');
        check(state.sent < 16 * MB, `${state.sent} bytes were sent`);
        equal([await own.list(), hide[0] ? [] : await own.files()], [[], []], 'kept');
        if (own !== tab) await own.close();
    }
    for (const file of [Buffer.alloc(0), Buffer.from('GGU')]) {
        state.file = file;
        equal((await failure(tab.load(state.url))).code, 'ERR_FORMAT', `${file.length} bytes`);
        equal(await tab.files(), [], 'kept');
    }
});

inBrowser('a gated file', async (tab) => {
    const error = 'X-Error-Message';
    const there = server.host('gated-site', {
        status: 401, words: '{"error": "Sign in"}', file: FILE,
        headers: { ...CORS, 'Content-Type': 'application/json' }
    });
    const words = async (headers) => (await failure(tab.load(there.url, { headers }))).message;
    check(/HTTP 401 Unauthorized: \{"error": "Sign in"\}: if the model has a licence/
        .test(await words()), 'without a token');
    Object.assign(there.headers, { [error]: 'It is restricted.', 'Access-Control-Expose-Headers': error });
    there.status = 403;
    check(/HTTP 403 Forbidden: It is restricted\.: the Authorization that was sent/
        .test(await words({ Authorization: 'Bearer secret' })), 'with a token');
    equal(there.asked.authorization, 'Bearer secret', 'what the server got');
    there.status = 0;
    isFile(await tab.load(there.url, { headers: { authorization: 'Bearer secret' } }));
    const kept = await tab.work(async () => {
        const dir = await (await navigator.storage.getDirectory()).getDirectoryHandle('bitnet-cache');
        for await (const [name, handle] of dir.entries()) {
            if (name.endsWith('.json')) return (await handle.getFile()).text();
        }
    });
    check(kept.includes(there.url) && !/secret/.test(kept), kept);
});

inBrowser('a token does not go to another site', async (tab) => {
    const there = server.host('led-to', { headers: CORS });
    const first = server.host('leads', {
        redirect: there.url, headers: { ...CORS, 'Access-Control-Allow-Origin': '*' }
    });
    isFile(await tab.load(first.url, { headers: { Authorization: 'Bearer secret' } }));
    equal([first.asked.authorization, there.asked.authorization], ['Bearer secret', undefined],
        'what they got');
});

/* Loads, and gives the last report when it has failed. */
const lastReport = (tab, state, options) => tab.work(async ({ openSource }, { url, options }) => {
    let last;
    const onProgress = (p) => (last = p);
    const error = await openSource(url, { ...options, onProgress }).catch((e) => e);
    return [last, error.code, error.message];
}, { url: state.url, options });

inBrowser('a server falls silent', async (tab, state) => {
    state.mute = true;
    const [mute, code] = await lastReport(tab, state, { stallSeconds: 4 });
    equal([code, mute.phase, mute.loaded, mute.stalledSeconds], ['ERR_NETWORK', 'download', 0, 3],
        'before it answers');
    Object.assign(state, { mute: false, hold: CUT });
    const [held, held2, message] = await lastReport(tab, state, { stallSeconds: 4 });
    equal([held2, held.loaded, held.stalledSeconds, held.secondsLeft],
        ['ERR_NETWORK', CUT, 3, null], 'in the middle');
    check(message.includes(`nothing came for 4 seconds after ${CUT} bytes`), message);
    state.hold = 0;
    const result = await tab.load(state.url);
    isFile(result);
    equal(state.log.at(-1), `bytes=${CUT}-`, 'resumed');
});

inBrowser('one of several requests falls silent', async (tab, state) => {
    const result = await tab.load(state.url, { stallSeconds: 3 });
    isFile(result, { file: LARGE });
    equal(state.held, true, 'a request was silent');
}, { state: { file: LARGE, slow: whenOpen(2, 1), holdOnce: 25 * MB } });

inBrowser('a tab that waits tells how far the other one is', async (tab, state) => {
    state.trickle = CUT;
    const first = failure(tab.load(state.url));
    const kept = async () => (await tab.work(({ list }) => list(), {}, 'list'))[0]?.loaded;
    await until(async () => await kept() > CUT, 'a checkpoint');
    const second = tab.work(({ openSource, started }, { url }) => {
        started.reports = [];
        const onProgress = (p) => started.reports.push(p);
        return openSource(url, { onProgress }).then((source) => source.close());
    }, state, 'second');
    second.catch(() => {});
    const reports = () => tab.work(({ started }) => started.reports ?? [], {}, 'second');
    await until(async () => (await reports()).length > 2, 'its reports');
    state.trickle = 0;
    await first;
    await second;
    const told = await reports(), others = told.filter((p) => p.elsewhere);
    check(others.length > 2 && others[0].loaded > CUT, `${others.length} from ${others[0].loaded}`);
    others.reduce((a, b) => check(a.loaded < b.loaded, 'they do not grow') ?? b);
    for (const { phase, total, fromCache } of others) {
        equal([phase, total, fromCache], ['download', FILE.length, false], 'report');
    }
    const { loaded, elsewhere } = told.at(-1);
    equal([loaded, elsewhere], [FILE.length, undefined], 'last report: it went on itself');
});

inBrowser('no tab waits for ever for a frozen one', async (tab, { url }) => {
    await tab.page.evaluate(async (url) => {
        const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(url)),
            key = [...new Uint8Array(bytes, 0, 16)].map((b) => b.toString(16).padStart(2, '0'));
        return new Promise((held) =>
            navigator.locks.request(`bitnet-cache/${key.join('')}`, () => new Promise(() => held())));
    }, url);
    const result = await tab.load(url, { stallSeconds: 8 });
    isFile(result, { cache: 'none' });
    check(/^not cached: another tab has begun to download this/.test(result.notes[0]), 'its note');
    const others = result.reports.filter((p) => p.elsewhere);
    check(others.some((p) => p.stalledSeconds >= 3), 'that nothing comes is told');
    const error = await failure(tab.work(({ openKept }, { url }) =>
        openKept(url, { stallSeconds: 1 }), { url }));
    equal(error.code, 'ERR_BUSY', 'what is kept of it');
});

/* A part of a model, with a tensor of so many bytes. */
function part(no, count, bytes) {
    const u64 = (n) => Buffer.from(BigUint64Array.of(BigInt(n)).buffer);
    const u32 = (n) => Buffer.from(Uint32Array.of(n).buffer);
    const key = (name, n) => [u64(name.length), Buffer.from(name), u32(4), u32(n)];
    const name = `tensor.${no}`;
    const head = Buffer.concat([
        Buffer.from('GGUF\x03\0\0\0'), u64(1), u64(3), ...key('split.no', no),
        ...key('split.count', count), ...key('some.key', 5),
        u64(name.length), Buffer.from(name), u32(1), u64(bytes), u32(24), u64(0)]);
    return Buffer.concat([head, Buffer.alloc(-head.length & 31), randomBytes(bytes)]);
}

const PARTS = [part(0, 3, 2 * MB), part(1, 3, 3 * MB + 1), part(2, 3, 2 * MB)];
const PARTS_DATA = PARTS.map((file, i) => file.subarray(-[2 * MB, 3 * MB + 1, 2 * MB][i]));

/* What comes of them: a head of 24 bytes, a key, 3 tensors, all aligned, and one odd size. */
function areParts(result, wanted) {
    const data = Buffer.concat([PARTS_DATA[0], PARTS_DATA[1], Buffer.alloc(31), PARTS_DATA[2]]);
    equal(result.length - data.length, 192, 'bytes of the head');
    equal(result.tail, sha256(data), 'hash of the tensors');
    for (const [name, value] of Object.entries(wanted)) equal(result[name], value, name);
}

inBrowser('a model in several files', async (tab, state) => {
    state.files = new Map(PARTS.map((file, i) => [`/m-0000${i + 1}-of-00003.gguf`, file]));
    const url = `${state.origin}/m-00001-of-00003.gguf`, sizes = PARTS.map(({ length }) => length);
    const all = sizes[0] + sizes[1] + sizes[2];
    const load = (options) => tab.load(url, { ...options, tailFrom: 192 });
    const first = await load();
    areParts(first, { cache: 'opfs', fromCache: false, notes: [] });
    const downloads = first.reports.filter(({ phase }) => phase === 'download');
    for (const { total } of downloads) equal(total, all, 'total');
    downloads.reduce((a, b) => check(a.loaded <= b.loaded, 'reports do not grow') ?? b);
    equal(downloads.at(-1).loaded, all, 'loaded');
    equal(state.log, ['HEAD', 'HEAD', 'HEAD', 'all', 'all', 'all'], 'requests');
    equal((await tab.list()).map(({ size }) => size).sort(), [...sizes].sort(), 'list');
    areParts(await load(), { fromCache: true });
    equal(state.log.length, 6, 'requests for what is kept');
    areParts(await load({ discard: true }), {});
    equal(await tab.files(), [], 'files');
    areParts(await load({ cacheName: '/n-00001-of-00003.gguf' }), { fromCache: false });
    equal((await tab.list()).map((entry) => new URL(entry.url).pathname).sort(),
        [1, 2, 3].map((i) => `/n-0000${i}-of-00003.gguf`), 'names');
    await tab.work(({ clear }) => clear());
    equal(await tab.list(), [], 'nothing is locked');
    state.log = [];
    areParts(await load({ cache: 'none' }), { cache: 'none', fromCache: false });
    equal(state.log.filter((asked) => asked === 'all').length, 6, 'requests: heads, then all');
    const second = '/m-00002-of-00003.gguf';
    state.files.set(second, PARTS[1].subarray(0, 60));
    equal((await failure(load())).code, 'ERR_TRUNCATED', 'a part is damaged');
    equal((await tab.list()).map((entry) => entry.size), [sizes[0]], 'it alone is not kept');
    state.files.set(second, PARTS[0]);
    equal((await failure(load())).code, 'ERR_FORMAT', 'a part is there twice');
    equal(await tab.files(), [], 'no part is kept');
    state.files.set(second, PARTS[1]);
    state.files.delete('/m-00003-of-00003.gguf');
    state.log = [];
    equal((await failure(load())).status, 404, 'a part is missing');
    check(!state.log.includes('bytes=0-') && await tab.files().then((f) => !f.length), 'too late');
});

inBrowser('a name for the cache', async (tab, state) => {
    const signed = (n, file) => tab.load(`${file ?? state.url}?Signature=${n}`, { cacheName: '/a model' });
    isFile(await signed(1), { fromCache: false });
    isFile(await signed(2), { fromCache: true });
    const url = `${state.origin}/a%20model`;
    equal((await tab.list()).map((entry) => entry.url), [url], 'list');
    equal(await tab.work(({ remove }, { url }) => remove(url), { url }), true, 'remove');
    Object.assign(state, { log: [], hold: CUT });
    const failed = failure(signed(3));
    await until(async () => await tab.page.evaluate(partialBytes) === CUT, 'bytes in the file');
    state.hold = 0;
    state.drop();
    await failed;
    isFile(await signed(4), { fromCache: false });
    equal(state.log, ['all', `bytes=${CUT}-`], 'requests');
});

inBrowser('another site without CORS', async (tab) => {
    const error = await failure(tab.load(server.host('elsewhere').url));
    equal(error.code, 'ERR_CORS_OR_NETWORK', 'error');
    check(/network/.test(error.message) && /CORS/.test(error.message), error.message);
});

inBrowser('nobody listens', async (tab) => {
    equal((await failure(tab.load('http://127.0.0.1:9/'))).code, 'ERR_CORS_OR_NETWORK', 'error');
});

inBrowser('another site, resumed without preflight', async (tab) => {
    const there = server.host('other-site', {
        headers: CORS, lastModified: 'Sat, 01 Aug 2026 00:00:00 GMT'
    });
    await resumeAfter(tab, there, {}, ['bytes=N-']);
    equal(there.ifRange, undefined, 'If-Range');
});

inBrowser('another site, a changed file', async (tab) => {
    const there = server.host('changing-site', {
        headers: CORS, lastModified: 'Sat, 01 Aug 2026 00:00:00 GMT'
    });
    await resumeAfter(tab, there, { lastModified: 'Sun, 02 Aug 2026 00:00:00 GMT', file: OTHER },
        ['bytes=N-', 'all']);
});

inBrowser('another site, compressed', async (tab, state) => {
    const headers = { ...CORS, 'Access-Control-Expose-Headers': 'ETag' };
    const there = server.host('gzip-site', {
        headers, gzip: true, file: PACKED
    });
    for (const hide of [[], ['opfs']]) {
        const own = hide[0] ? await browser.tab(state, hide) : tab;
        isFile(await own.load(there.url), { file: there.file, cache: hide[0] ? 'cache' : 'opfs' });
        isFile(await own.load(there.url), { file: there.file, fromCache: true });
        equal(await own.work(({ check }, { url }) => check(url), there), 'same', 'check');
        await own.work(({ remove }, { url }) => remove(url), there);
        if (own !== tab) await own.close();
    }
});

inBrowser('abort, then resumed', async (tab, state) => {
    state.hold = CUT;
    const arrived = async () => await tab.page.evaluate(partialBytes) === CUT;
    const error = await abortWhen(arrived, tab, state, { reason: 'my reason' });
    equal(error.name, 'AbortError', 'error');
    state.hold = 0;
    isFile(await tab.load(state.url), { fromCache: false });
    equal(state.log, ['all', `bytes=${CUT}-`], 'requests');
});

inBrowser('abort while the cache is read', async (tab, state) => {
    isFile(await tab.load(state.url));
    const error = await failure(tab.work(async ({ openSource }, { url }) => {
        const controller = new AbortController();
        const source = await openSource(url, { signal: controller.signal });
        const reader = source.stream().getReader();
        await reader.read();
        controller.abort();
        try {
            while (!(await reader.read()).done);
        } finally {
            source.close();
        }
    }, state));
    equal(error.name, 'AbortError', 'error');
    isFile(await tab.load(state.url), { fromCache: true });
});

inBrowser('no room, by the estimate', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'none', fromCache: false });
    check(/not cached.*room for 3.0 MB more, and this takes 5.3/.test(result.notes[0]),
        result.notes[0]);
    equal([state.log, await tab.files()], [['all'], []], 'requests and files');
}, { hide: ['room'] });

inBrowser('no room, known before', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'none', fromCache: false });
    check(/not cached.*full/.test(result.notes[0]), result.notes[0]);
    equal(result.reports[0].phase, 'download', 'phase');
    equal(state.log, ['all'], 'requests');
    equal(await tab.list(), [], 'kept');
}, { hide: ['estimate'], full: true });

inBrowser('no room, found out on the way', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'none', fromCache: false });
    check(/not cached.*full/.test(result.notes[0]), result.notes[0]);
    equal(state.log, ['all', 'all'], 'requests');
    equal(await tab.files(), [], 'files');
}, { state: { length: false }, full: true });

inBrowser('no room in the Cache API', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'none', fromCache: false });
    check(/not cached/.test(result.notes[0]), result.notes[0]);
    equal(await tab.list(), [], 'kept');
}, { hide: ['opfs'], state: { length: false }, full: true });

async function setQuota(page, origin) {
    const session = await page.createCDPSession();
    await session.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: QUOTA });
}

inBrowser('two tabs at once', async (tab, state) => {
    state.slow = 5;
    const second = await browser.tab(state);
    const [a, b] = await Promise.all([tab.load(state.url), second.load(state.url)]);
    isFile(a);
    isFile(b);
    equal([a.fromCache, b.fromCache].sort(), [false, true], 'from the cache');
    equal(state.log, ['all'], 'requests');
    await second.close();
});

inBrowser('waiting for the other tab can be aborted', async (tab, state) => {
    state.hold = 2 * MB;
    tab.load(state.url).catch(() => {});
    await until(() => state.log.length === 1, 'first request');
    const error = await abortWhen(() => waiting(tab), tab, state, { name: 'second' });
    equal(error.name, 'AbortError', 'error');
    equal((await failure(tab.work(({ remove }, { url }) => remove(url), state, 'second'))).code,
        'ERR_BUSY', 'remove');
    await tab.endWorker();                        // its tab dies: the next one goes on
    state.hold = 0;
    isFile(await tab.load(state.url, {}, 'third'), { cache: 'opfs', fromCache: false });
});

inBrowser('two start together, one is aborted', async (tab, state) => {
    state.hold = CUT;
    tab.load(state.url).catch(() => {});
    const error = await abortWhen(async () => state.held && await waiting(tab), tab, state);
    equal(error.name, 'AbortError', 'error');
    equal(state.log, ['all'], 'requests');
});

inBrowser('the worker ends in the middle', async (tab, state) => {
    state.trickle = CUT;
    tab.load(state.url).catch(() => {});
    await until(async () => {
        const { loaded } = await tab.work(async ({ list }) => (await list())[0] ?? {}, {}, 'list');
        return loaded > 0;
    }, 'first checkpoint');
    await tab.endWorker();
    const [{ loaded }] = await tab.work(({ list }) => list(), {}, 'list');
    state.trickle = 0;
    isFile(await tab.load(state.url, {}, 'next'), { cache: 'opfs', fromCache: false });
    equal(state.log[1], `bytes=${loaded}-`, 'resumed');
});

inBrowser('list, remove, clear', async (tab, state) => {
    const other = `${state.origin}/other.gguf`;
    await tab.load(state.url);
    await tab.load(other);
    equal((await tab.list()).map(({ url, size, loaded, complete }) =>
        [url, size, loaded, complete]).sort(),
        [[state.url, FILE.length, FILE.length, true], [other, FILE.length, FILE.length, true]],
        'list');
    equal(await tab.work(({ remove }, { url }) => remove(url), state), true, 'remove');
    equal(await tab.work(({ remove }, { url }) => remove(url), state), false, 'remove again');
    equal((await tab.list()).map(({ url }) => url), [other], 'list');
    await interrupt(tab, state);
    equal((await tab.list()).map(({ complete }) => complete), [false, true], 'complete');
    equal(await tab.work(({ remove }, { url }) => remove(url), state), true, 'remove the partial');
    await interrupt(tab, state);
    await tab.work(({ clear }) => clear());
    equal([await tab.list(), await tab.files()], [[], []], 'cleared');
});

inBrowser('a page lists and removes', async (tab, state) => {
    await tab.load(state.url);
    const before = await tab.page.evaluate(async () => {
        const cache = await import('/shared/cache/cache.js');
        return [await cache.list(), await cache.remove('/model.gguf'), await cache.list(),
            typeof await cache.persist()];
    });
    equal([before[0].length, before[1], before[2], before[3]], [1, true, [], 'boolean'], 'page');
});

inBrowser('what is read is not removed', async (tab, state) => {
    const codes = await tab.work(async ({ openSource, remove, clear, list }, { url }) => {
        const source = await openSource(url), reader = source.stream().getReader();
        await reader.read();
        const codes = [];
        for (const f of [() => remove(url), clear]) await f().catch((e) => codes.push(e.code));
        let length = 0;
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            length += value.length;
        }
        source.close();
        return [...codes, await remove(url), await list()];
    }, state);
    equal(codes, ['ERR_BUSY', 'ERR_BUSY', true, []], 'results');
});

inBrowser('discard', async (tab, state) => {
    isFile(await tab.load(state.url, { discard: true }));
    equal(await tab.files(), [], 'files');
    isFile(await tab.load(state.url, { discard: true }), { fromCache: false });
});

inBrowser('discard spares what was downloaded since', async (tab, state) => {
    await tab.load(state.url);
    const left = await tab.work(async ({ openSource, load, list }, { url }) => {
        const a = await openSource(url), b = await openSource(url);
        b.close();
        await a.discard();
        await load(url);
        await b.discard();
        return (await list()).length;
    }, state);
    equal(left, 1, 'left');
});

inBrowser('discard waits for no frozen tab', async (tab, state) => {
    await tab.load(state.url);
    const left = await tab.work(async ({ openSource, list }, { url }) => {
        const a = await openSource(url), reader = await openSource(url), left = [];
        await a.discard();
        left.push((await list()).length);
        await reader.discard();
        return [...left, (await list()).length];
    }, state);
    equal(left, [1, 0], 'what is kept while it is read, and then');
});

inBrowser('cache none', async (tab, state) => {
    isFile(await tab.load(state.url, { cache: 'none' }), { cache: 'none', fromCache: false });
    equal(await tab.list(), [], 'kept');
    state.cut = 2 * MB;
    equal((await failure(tab.load(state.url, { cache: 'none' }))).code, 'ERR_NETWORK', 'error');
    state.length = false;
    isFile(await tab.load(state.url, { cache: 'none' }), { cache: 'none' });
});

inBrowser('Cache API', async (tab, state) => {
    state.cut = 2 * MB;
    equal((await failure(tab.load(state.url))).code, 'ERR_NETWORK', 'error');
    equal(await tab.list(), [], 'kept');
    isFile(await tab.load(state.url), { cache: 'cache', fromCache: false, notes: [] });
    isFile(await tab.load(state.url), { cache: 'cache', fromCache: true });
    equal(state.log, ['all', 'all'], 'requests');
    equal((await tab.list()).map(({ url, size, complete }) => [url, size, complete]),
        [[state.url, FILE.length, true]], 'list');
    isFile(await tab.load(state.url, { discard: true }), { fromCache: true });
    isFile(await tab.load(state.url), { fromCache: false });
    await tab.work(({ clear }) => clear());
    equal(await tab.list(), [], 'cleared');
}, { hide: ['opfs'] });

inBrowser('Cache API, no Content-Length, 404, abort', async (tab, state) => {
    isFile(await tab.load(state.url), { cache: 'cache' });
    isFile(await tab.load(state.url), { cache: 'cache', fromCache: true });
    await tab.work(({ clear }) => clear());
    state.hold = MB;
    equal((await abortWhen(() => state.held, tab, state)).name, 'AbortError', 'error');
    state.status = 404;
    equal((await failure(tab.load(state.url))).status, 404, 'status');
    equal(await tab.list(), [], 'kept');
}, { hide: ['opfs'], state: { length: false } });

inBrowser('memory', async (tab, state) => {
    const result = await tab.load(state.url);
    isFile(result, { cache: 'memory', fromCache: false });
    check(/not cached/.test(result.notes[0]), result.notes[0]);
    isFile(await tab.load(state.url), { cache: 'memory', fromCache: false });
    equal(state.log, ['all', 'all'], 'requests');
    equal(await tab.list(), [], 'list');
}, { hide: ['opfs', 'cache'] });

/* What cache.js says where nothing can be kept. */
async function keepsNothing(module, { url }) {
    const { openSource, list, remove, clear, check, openKept, persist } = module;
    const source = await openSource(url), { cache, notes } = source;
    const { size } = await new Response(source.stream()).blob();
    source.close();
    const code = (promise) => promise.then(() => 'none', (error) => error.code);
    return [size, cache, /^not cached: /.test(notes[0]), await list(), await remove(url),
        await clear() ?? null, typeof await persist(), await code(check(url)),
        await code(openKept(url))];
}

const NOTHING = [FILE.length, 'memory', true, [], false, null, 'boolean', 'ERR_IO', 'ERR_IO'];

for (const hide of [['blocked'], ['subtle']]) {
    inBrowser(`storage that is ${hide}`, async (tab, state) => {
        equal(await tab.work(keepsNothing, state), NOTHING, 'results');
    }, { hide });
}

inBrowser('a sandboxed frame', async (tab, state) => {
    state.headers = { 'Access-Control-Allow-Origin': '*' };
    const script = `
        const cache = await import('${state.origin}/shared/cache/cache.js');
        const said = (${keepsNothing})(cache, { url: '${state.url}' });
        parent.postMessage(await said.catch(String), '*');`;
    const results = await tab.page.evaluate((script) => new Promise((resolve) => {
        onmessage = ({ data }) => resolve(data);
        const frame = document.createElement('iframe');
        frame.sandbox = 'allow-scripts';
        frame.srcdoc = `<script type="module">${script}</script>`;
        document.body.append(frame);
    }), script);
    equal(results, NOTHING, 'results');
});

inBrowser('no tag, no date, no length', async (tab, state) => {
    isFile(await tab.load(state.url), { cache: 'opfs' });
    isFile(await tab.load(state.url), { fromCache: true });
    equal(await tab.work(({ check }, { url }) => check(url), state), 'unknown', 'check');
    equal(await tab.work(({ remove }, { url }) => remove(url), state), true, 'remove');
    equal(await tab.page.evaluate(async () => (await navigator.locks.query()).held), [], 'locks');
}, { state: { etag: '', length: false } });

inBrowser('what is being downloaded is read after it', async (tab, state) => {
    state.hold = CUT;
    const read = ({ openKept, started }, { url }) => {
        started.controller = new AbortController();
        return openKept(url, { signal: started.controller.signal }).then(async (source) => {
            const { size } = await new Response(source.stream()).blob();
            source.close();
            return size;
        });
    };
    tab.load(state.url).catch(() => {});
    await until(() => state.held, 'the download');
    const aborted = failure(tab.work(read, state, 'second'));
    await until(() => waiting(tab), 'a reader');
    await tab.work(({ started }) => started.controller.abort(), {}, 'second');
    equal((await aborted).name, 'AbortError', 'error');
    state.hold = 0;
    state.drop();
    const load = tab.load(state.url);
    await until(() => state.log.length === 2, 'the rest');
    equal([await tab.work(read, state, 'second'), (await load).length],
        [FILE.length, FILE.length], 'bytes');
});

inBrowser('File, Blob, ArrayBuffer', async (tab, state) => {
    const results = await tab.work(async ({ load }, { url }) => {
        const blob = await (await fetch(url)).blob(), buffer = await blob.arrayBuffer();
        const file = new File([blob], 'model.gguf');
        return [await load(file), await load(blob), await load(buffer),
            await load(URL.createObjectURL(blob))];
    }, state);
    for (const result of results) isFile(result, { cache: 'none', fromCache: false });
    for (const result of results) check(result.largest <= 4 * MB, 'a large chunk');
});

inBrowser('no URL', async (tab) => {
    equal((await failure(tab.load('http://[x'))).code, 'ERR_ARG', 'error');
});

/* The whole browser dies; its profile stays. */
tests.push({
    name: 'kill -9 and a new browser', needsBrowser: true,
    async action() {
        const folder = await mkdtemp(path.join(tmpdir(), 'cache-'));
        const state = server.host('killed', { trickle: CUT });
        let own = await startBrowser(folder);
        try {
            const tab = await own.tab(state);
            const load = failure(tab.load(state.url));
            await until(async () =>
                (await tab.work(({ list }) => list(), {}, 'list'))[0]?.loaded > 0, 'checkpoint');
            await own.kill();
            await load;
            state.trickle = 0;
            own = await startBrowser(folder);
            const next = await own.tab(state), [{ loaded }] = await next.list();
            check(loaded > 0 && loaded < FILE.length, `kept ${loaded}`);
            isFile(await next.load(state.url), { cache: 'opfs', fromCache: false });
            equal(state.log, ['all', `bytes=${loaded}-`], 'requests');
            isFile(await next.load(state.url), { fromCache: true });
        } finally {
            await own.kill();
            await rm(folder, { recursive: true, maxRetries: 50 });
        }
    }
});

/* The same in both stores. */
for (const hide of [[], ['opfs']]) {
    inBrowser(`is it still the same file, ${hide[0] ? 'Cache API' : 'OPFS'}`, async (tab, state) => {
        const ask = () => tab.work(({ check }, { url }) => check(url), state);
        equal((await failure(ask())).code, 'ERR_IO', 'nothing is kept');
        equal(state.log, [], 'requests');
        await tab.load(state.url);
        equal(await ask(), 'same', 'the same tag');
        Object.assign(state, { etag: 'W/"one"', noHead: true });
        equal(await ask(), 'same', 'a weak tag, by GET');
        equal(state.log, ['all', 'HEAD', 'HEAD', 'all'], 'requests');
        state.etag = '"two"';
        equal(await ask(), 'changed', 'another tag');
        Object.assign(state, { etag: undefined, noHead: false });
        equal(await ask(), 'unknown', 'no tag');
        state.file = FILE.subarray(1);
        equal(await ask(), 'changed', 'another size');
        state.status = 404;
        equal((await failure(ask())).status, 404, 'it is gone');
        await tab.work(({ clear }) => clear());         // nothing is locked
        equal(await tab.list(), [], 'kept');
    }, { hide });

    inBrowser(`read what is kept, ${hide[0] ? 'Cache API' : 'OPFS'}`, async (tab, state) => {
        const read = () => tab.work(async ({ openKept }, { url }) => {
            const source = await openKept(url), got = await new Response(source.stream()).blob();
            await source.close();
            return [source.size, got.size];
        }, state);
        equal((await failure(read())).code, 'ERR_IO', 'nothing is kept');
        state.cut = hide[0] ? 0 : CUT;
        if (state.cut) {
            await failure(tab.load(state.url));
            equal((await failure(read())).code, 'ERR_IO', 'half of it is kept');
        }
        await tab.load(state.url);
        const asked = state.log.length;
        equal(await read(), [FILE.length, FILE.length], 'bytes');
        equal(state.log.length, asked, 'requests');
        await tab.work(({ remove }, { url }) => remove(url), state);
    }, { hide });
}

inBrowser('clear spares only what is in use', async (tab, state) => {
    await tab.load(`${state.origin}/other.gguf`);
    await tab.load(state.url);
    const result = await tab.work(async ({ openSource, clear, list }, { url }) => {
        const source = await openSource(url);
        const code = await clear().then(() => 'none', (error) => error.code);
        source.close();
        return [code, (await list()).map((model) => model.url)];
    }, state);
    equal(result, ['ERR_BUSY', [state.url]], 'error and what is left');
});

// ---- in Node ----

function inNode(name, action) {
    tests.push({ name: `node: ${name}`, action });
}

async function loadInNode(from, options) {
    const source = await openSource(from, options), bytes = [];
    for await (const chunk of source.stream()) bytes.push(chunk);
    source.close();
    const all = Buffer.concat(bytes), { size, cache, fromCache, notes } = source;
    return { size, cache, fromCache, notes, length: all.length, hash: sha256(all) };
}

inNode('path, file: URL, URL, Blob, ArrayBuffer, typed array', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'cache-'));
    const name = path.join(folder, 'a model#1.gguf');
    await writeFile(name, FILE);
    const { pathToFileURL } = await import('node:url');
    const buffer = FILE.buffer.slice(FILE.byteOffset, FILE.byteOffset + FILE.length);
    for (const from of [name, pathToFileURL(name), pathToFileURL(name).href, new Blob([FILE]),
        buffer, FILE]) {
        isFile(await loadInNode(from), { cache: 'none', fromCache: false, notes: [] });
    }
    equal((await failure(openSource(`${name}x`))).code, 'ERR_IO', 'no file');
    await rm(folder, { recursive: true });
});

inNode('http', async () => {
    const state = server.host('127');
    const url = state.url.replace('127.localhost', '127.0.0.1');
    const reports = [];
    isFile(await loadInNode(url, { onProgress: (p) => reports.push(p) }), { cache: 'none' });
    equal([reports[0].phase, reports.at(-1).loaded], ['download', FILE.length], 'progress');
    state.length = false;
    isFile(await loadInNode(new URL(url)), { cache: 'none' });
    Object.assign(state, { gzip: true, length: true });
    isFile(await loadInNode(url), { cache: 'none' });
    state.gzip = false;
    state.cut = 2 * MB;
    equal((await failure(loadInNode(url))).code, 'ERR_NETWORK', 'cut');
    Object.assign(state, { length: false, cut: 2 * MB });
    equal((await failure(loadInNode(url))).code, 'ERR_NETWORK', 'cut, no length');
    state.status = 404;
    const error = await failure(loadInNode(url));
    equal([error.code, error.status], ['ERR_HTTP', 404], 'status');
    equal((await failure(loadInNode('http://127.0.0.1:9/'))).code, 'ERR_NETWORK', 'nobody');
});

inNode('a model in several files, damaged', async () => {
    const heads = PARTS.map((file, i) => file.length - PARTS_DATA[i].length);
    let refused = 0;
    for (let round = 0; round < 600; round++) {
        const files = PARTS.map((file, i) => Buffer.from(file.subarray(0, heads[i] + 64)));
        const file = files[round % 3], at = 4 + randomBytes(1)[0] % (heads[round % 3] - 4);
        if (round % 2) file[at] ^= 1 << round % 8;
        else files[round % 3] = file.subarray(0, at);
        await loadInNode(files.map((bytes) => new Blob([bytes]))).catch((error) => {
            check(/^ERR_(FORMAT|TRUNCATED|UNSUPPORTED)$/.test(error.code), `${round}: ${error.stack}`);
            refused++;
        });
    }
    check(refused > 300, `${refused} were refused`);
});

inNode('abort', async () => {
    const state = server.host('127', { hold: MB });
    const url = state.url.replace('127.localhost', '127.0.0.1');
    const early = new AbortController(), late = new AbortController();
    early.abort();
    equal((await failure(loadInNode(url, { signal: early.signal }))).name, 'AbortError', 'early');
    const failed = failure(loadInNode(url, { signal: late.signal }));
    await Promise.race([until(() => state.held, 'the first bytes'), failed]);
    late.abort();
    equal((await failed).name, 'AbortError', 'late');
});

inNode('reading twice, and after close', async () => {
    const source = await openSource(new Blob([FILE]));
    for (let i = 0; i < 2; i++) {
        let length = 0;
        for await (const chunk of source.stream()) length += chunk.length;
        equal(length, FILE.length, 'bytes');
    }
    source.close();
    source.close();
    equal((await failure((async () => source.stream())())).code, 'ERR_ARG', 'error');
});

// ---- the run ----

async function runTest({ name, action }) {
    const start = performance.now();
    try {
        const late = sleep(2 * HANG, null, { ref: false }).then(() => {
            throw new Error('it hangs');
        });
        await Promise.race([action(), late]);
        console.log(`ok ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
        count.passed++;
    } catch (error) {
        console.log(`FAIL ${name}: ${error.message}`);
        count.failed++;
    }
}

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
const profile = await mkdtemp(path.join(tmpdir(), 'cache-'));
const count = { passed: 0, failed: 0, skipped: 0 };
server = await startServer();
try {
    const chosen = tests.filter(({ name }) => name.includes(filter));
    if (browserName) browser = await startBrowser(path.join(profile, 'usual'));
    if (isFirefox) fullBrowser = await startBrowser(path.join(profile, 'full'), QUOTA);
    for (const test of chosen) if (!test.needsBrowser) await runTest(test);
    const queue = chosen.filter(({ needsBrowser }) => needsBrowser);
    if (!browser && queue.length) {
        console.log('skip: no browser is named');
        count.skipped = queue.splice(0).length;
    }
    await Promise.all([1, 2, 3, 4, 5].map(async () => {   // each has much to wait for; the longest first
        while (queue.length) await runTest(queue.pop());
    }));
} finally {
    await browser?.kill();
    await fullBrowser?.kill();
    server.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 50 });
}
console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
process.exit(count.failed ? 1 : 0);
