// models.mjs - opening models: files, addresses, downloads, the cache.
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { HANG } from '../browsers.mjs';
import { ISOLATED } from '../serve.mjs';
import {
    asTiny,
    check,
    chooseFile,
    count,
    dragInPage,
    dragOver,
    drop,
    edited,
    errorTitle,
    expect,
    firefox,
    generate,
    hooks,
    isolated,
    keptPage,
    loads,
    named,
    openUrl,
    PHONE,
    plain,
    ready,
    rebuilt,
    requests,
    ROOT,
    scratch,
    settings,
    Skip,
    sleep,
    stillWrites,
    text,
    texts,
    tiny,
    until,
    value,
    variants,
    visible,
    visit,
    write,
} from './driver.mjs';

// A small model with this chat template, made by a program beside the native one (server/chat_model.c).
function chatModel(template, name) {
    const maker = join(dirname(generate), 'server-chat-model'),
        path = join(scratch, name);
    if (!existsSync(maker)) throw new Skip(`there is no ${maker}`);
    writeFileSync(`${path}.jinja`, template);
    execFileSync(maker, [`${path}.jinja`, `${path}.gguf`]);
    return `${path}.gguf`;
}

export const tests = {
    async wrong_file() {
        const bad = Buffer.from(tiny);
        bad.fill(0xff, tiny.length - 2000, tiny.length - 1000); // 0xff: codes that are no weights
        const files = {
            'notes.gguf': ['This is no model. '.repeat(1000), 'This is no model', 'ERR_FORMAT'],
            'cut.gguf': [tiny.subarray(0, 900000), 'The file ends too early', 'ERR_TRUNCATED'],
            'begun.gguf': [tiny.subarray(0, 100), 'The file ends too early', 'ERR_TRUNCATED'],
            'bad.gguf': [bad, 'The file is damaged', 'ERR_FORMAT'],
        };
        await visit(async page => {
            await ready(page);
            for (const [name, [content, title, code]] of Object.entries(files)) {
                writeFileSync(join(scratch, name), content);
                await chooseFile(page, join(scratch, name));
                expect(await errorTitle(page), title, name);
                const said = await text(page, 'error-code');
                check(said.startsWith(code), `${name}: ${said}`);
                check(!(await visible(page, 'error-code')), `engineers' words of ${name}`);
                await stillWrites(page);
            }
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

    // A load that takes another one's place, and fails: the open model keeps its name.
    async a_second_load_fails() {
        hooks.set('/waits.gguf', () => true); // it never answers
        await visit(async page => {
            await ready(page);
            const name = await text(page, 'model-name');
            await openUrl(page, `${isolated.url}waits.gguf`);
            await until(page, () => /waits/.test(document.getElementById('loading-text').textContent));
            await openUrl(page, `${isolated.url}nowhere.gguf`);
            expect(await errorTitle(page), 'The server answered 404', 'message');
            expect(await text(page, 'model-name'), name, 'the open model');
        });
    },

    // What the interface does in browsers alone.
    async shared_memory_and_what_verify_reports() {
        await visit(async page => {
            await ready(page);
            const got = await page.evaluate(async () => {
                const { BitNet, cache } = await import('/bitnet.js');
                const bytes = new Uint8Array(await (await fetch('/tiny.gguf')).arrayBuffer());
                const view = new Uint8Array(new SharedArrayBuffer(bytes.length + 8), 8);
                view.set(bytes);
                await (await BitNet.load(view, { threads: 1 })).free();
                const url = new URL('/tiny.gguf', location).href,
                    left = new Set();
                await (await BitNet.load(url, { threads: 1 })).free();
                const onProgress = p => left.add(String(p.secondsLeft));
                await cache.verify(url, { onProgress });
                return [...left].filter(seconds => !/^[\d.]+$/.test(seconds)).join();
            });
            expect(got, 'undefined', 'secondsLeft, while unknown');
        });
    },

    async wrong_cors() {
        hooks.set('/allowed.gguf', (req, res) =>
            asTiny(req, res, { 'Access-Control-Allow-Origin': '*' })
        );
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${plain.url}tiny.gguf`);
            expect(await errorTitle(page), 'The URL cannot be reached from this page', 'message');
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
            await openUrl(page, `${isolated.url}kept.gguf#part`);
            await until(page, () => document.querySelector('#cache .delete') !== null);
            expect(await page.$eval('#cache .name', e => e.textContent), 'kept.gguf', 'listed');
            expect(await page.$eval('#cache .size', e => e.textContent), '1.7 MB', 'size');
            await keptPage(page);
            requests.length = 0;
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'kept.gguf', 'model');
            expect(
                requests.filter(r => r.path.endsWith('.gguf')).length,
                0,
                'requests for a model'
            );
            const hub = 'https://huggingface.co/a/b/';
            for (const address of ['hf:a/b@v1/c/d e.gguf', `${hub}blob/v1/c/d e.gguf#sha256=00`]) {
                const url = await page.evaluate(
                    async at => (await import('./models.js')).urlOf(at),
                    address
                );
                expect(url, `${hub}resolve/v1/c/d%20e.gguf`, address);
            }
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
            const timer = setInterval(() => {
                // the rest never comes
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
            for (const end = Date.now() + HANG; !ended && Date.now() < end;) await sleep(20);
            check(ended, 'the connection is still open');
            await stillWrites(page);
        });
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

    // A browser that gives a page little: a file does not fit, and what was open goes on.
    async out_of_memory() {
        const noMore = s => `{
            const { Memory } = WebAssembly;
            const refuse = () => {
                throw new RangeError('Maximum memory size exceeded');
            };
            Memory.prototype.grow = refuse;
            WebAssembly.Memory = class extends Memory {
                constructor(sizes) {
                    super(sizes.initial > 60e6 / 65536 ? refuse() : sizes);
                }
                static [Symbol.hasInstance] = its => its instanceof Memory;
            };
        }\n${s}`;
        hooks.set('/bitnet.js', rebuilt({ 'worker/main.js': noMore }));
        await visit(async page => {
            await ready(page);
            await drop(page, 'large.gguf', 5);
            expect(await errorTitle(page), 'Out of memory', 'message');
            check(/smaller context/.test(await text(page, 'error-text')), 'no advice');
            const code = await text(page, 'error-code');
            check(code.startsWith('ERR_MEMORY: out of memory: 102 MB cannot be had'), code);
            await stillWrites(page);
        });
    },

    async a_model_that_another_tab_uses() {
        hooks.set('/kept.gguf', asTiny);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}kept.gguf`);
            await until(page, () => document.querySelector('#cache .delete') !== null);
            await page.evaluate(async () => {
                const root = await navigator.storage.getDirectory(),
                    folder = await root.getDirectoryHandle('bitnet-cache');
                for await (const file of folder.keys())
                    await new Promise(held =>
                        navigator.locks.request(
                            `bitnet-cache/${file.split('.')[0]}`,
                            { mode: 'shared' },
                            () => new Promise(() => held())
                        )
                    );
            });
            await page.click('#cache .delete');
            expect(await errorTitle(page), 'Another tab uses this model', 'message');
            expect(await count(page, '#cache li'), 1, 'models that are kept');
        });
    },

    // In Firefox a worker may hang where it starts threads; what it has locked then stays locked.
    async threads_start_before_a_file_is_locked() {
        const watch = s => `{
            const { request } = navigator.locks;
            let locks = 0;
            navigator.locks.request = function (...all) {
                locks++;
                return request.apply(this, all);
            };
            self.Worker = class extends self.Worker {
                constructor(...all) {
                    if (locks) throw new Error('a file is locked');
                    super(...all);
                }
            };
        }\n${s}`;
        hooks.set('/bitnet.js', rebuilt({ 'worker/main.js': watch }));
        hooks.set('/locked.gguf', asTiny);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}locked.gguf`);
            await named(page, 'locked.gguf');
            await ready(page);
            check((await text(page, 'f-variant')) !== 'simd', 'the threads did not start');
            await until(page, () => document.querySelector('#cache .delete') !== null);
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
            hooks.set('/bitnet.js', rebuilt({ 'shared/cache/cache.js': s => `${what}\n${s}` }));
        const opfs = 'delete StorageManager.prototype.getDirectory;',
            cacheApi = "Object.defineProperty(globalThis, 'caches', { value: undefined });";
        hooks.set('/stored.gguf', asTiny);
        const asked = () => requests.filter(r => r.path === '/stored.gguf').length;
        hide(opfs);
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}stored.gguf`);
            await named(page, 'stored.gguf');
            await until(
                page,
                () =>
                    // the list comes after the model
                    document.querySelector('#cache .name')?.textContent === 'stored.gguf'
            );
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

    // The model that comes with the page says what it is, and writes what is likeliest unless the user
    // wants something else.
    async the_toy_says_what_it_is() {
        hooks.set('/other.gguf', asTiny);
        await visit(
            async page => {
                await ready(page);
                check(/toy.*errs/.test((await text(page, 'toy')).replace(/\s+/g, ' ')), 'its words');
                check(await visible(page, 'toy'), 'they are not seen');
                const reply = async (temperature, seed) => {
                    await page.click('#new');
                    return write(page, 'Tell me a story.', { temperature, seed });
                };
                const greedy = await reply('0', '1');
                expect(await reply('', '2'), greedy, 'without a temperature');
                check((await reply('5', '2')) !== greedy, "the user's temperature is not used");
                await page.click('#toy-more');
                await until(page, () => document.activeElement.id === 'h-offers');
                await until(page, () => document.querySelectorAll('#offers li').length > 1);
                await loads(page, () => openUrl(page, `${isolated.url}other.gguf`));
                check(!(await visible(page, 'toy')), 'a model that is none is called a toy');
                await settings(page, { temperature: '' });
                expect(
                    await page.$eval('#temperature', e => e.placeholder),
                    '0.7',
                    "another model's temperature"
                );
            },
            { viewport: PHONE, at: isolated.url }
        );
    },

    // Each with what it takes; one press asks for it, another one downloads it.
    async models_on_offer() {
        const files = {
            'Bonsai-1.7B-Q1_0.gguf': ['248 MB', 'Apache 2.0'],
            'bitcpm4-0.5b-tq2_0.gguf': ['245 MB', 'Apache 2.0'],
            'bitcpm4-1b-tq2_0.gguf': ['551 MB', 'Apache 2.0'],
            'Ternary-Bonsai-1.7B-Q2_0.gguf': ['463 MB', 'Apache 2.0'],
            'ggml-model-i2_s.gguf': ['1.19 GB', 'MIT'],
        };
        // all but the first are given as they are asked for
        const here = s =>
            s
                .replace(/`https:\/\/\$\{HUB\}.*`/, `\`${isolated.url}\${file}\``)
                .replace(/sha256: '(?!3d7c).*',/g, '');
        hooks.set('/offers.js', edited('offers.js', here));
        for (const file of Object.keys(files)) hooks.set(`/${file}`, asTiny);
        const asked = file => requests.filter(r => r.path === `/${file}`).length;
        await visit(async page => {
            await ready(page);
            await page.click('#h-offers');
            await until(page, () => /about/.test(document.querySelector('#offers').textContent));
            const rows = await texts(page, '#offers li');
            expect(rows.length, Object.keys(files).length, 'rows');
            for (const [i, [file, [size, licence]]] of Object.entries(files).entries()) {
                for (const what of [`${size} to download`, `licence ${licence}`, file])
                    check(rows[i].includes(what), `${what} is not in ${rows[i]}`);
                check(/[\d.]+ [MG]B of memory/.test(rows[i]), `no memory: ${rows[i]}`);
                check(/writes about [\d.]+ words a second here/.test(rows[i]), `no speed: ${rows[i]}`);
                await page.$eval(`#offers li:nth-child(${i + 1}) .name`, b => b.click());
                await until(page, () => document.querySelector('.ask') !== null);
                const question = (await texts(page, '.ask p')).join();
                check(question.includes(`Download ${size} from huggingface.co`), question);
                expect(asked(file), 0, 'requests unasked');
                await page.click('.ask .yes');
                if (i) await named(page, file);
                else
                    expect(
                        await errorTitle(page),
                        'The file has the wrong checksum',
                        'of another file than is promised'
                    );
                await ready(page);
            }
            await until(page, () => document.querySelectorAll('#cache li').length === 4);
            const kept = await texts(page, '#offers li');
            check(/245 MB, kept in this browser/.test(kept[1]), `it is kept: ${kept[1]}`);
            await loads(page, () =>
                page.$eval('#offers li:nth-child(2) .name', b => b.click())
            );
            expect(asked('bitcpm4-0.5b-tq2_0.gguf'), 1, 'requests for what is kept');
            await stillWrites(page);
        });
    },

    // What the machine has no memory or no room for cannot be chosen, and says why.
    async offers_that_do_not_fit() {
        hooks.set('/offers.js', edited('offers.js', s => s.replace('size: 551e6', 'size: 5e9')));
        await visit(
            async page => {
                await page.evaluateOnNewDocument(() => {
                    Object.defineProperty(navigator, 'deviceMemory', { get: () => 2 });
                    navigator.storage.estimate = async () => ({ quota: 400e6, usage: 0 });
                });
                await page.reload();
                await ready(page);
                await page.click('#h-offers');
                await until(page, () => document.querySelectorAll('#offers li').length === 5);
                const why = await page.$$eval('#offers li', all =>
                    all.map(li => [
                        li.querySelector('.name').disabled,
                        li.querySelector('.why').textContent,
                    ])
                );
                const wanted = [
                    [false, /^$/],
                    [false, /^$/],
                    [true, /^It needs 5.27 GB of memory; WebAssembly has 4 GB\.$/],
                    [true, /^This browser has no room for it: 400 MB are left\.$/],
                    [true, /^It needs 1.79 GB of memory; this device has 2 GB in all\.$/],
                ];
                for (const [i, [off, words]] of wanted.entries()) {
                    expect(why[i][0], off, `${i} cannot be chosen`);
                    check(words.test(why[i][1]), `${i}: ${why[i][1]}`);
                }
            },
            { at: isolated.url }
        );
    },

    // A model without a chat template that is known: the page offers what it can do.
    async a_model_that_does_not_chat() {
        const path = chatModel('{{ messages[0].content }}', 'plain');
        await visit(async page => {
            await ready(page);
            await chooseFile(page, path);
            await named(page, 'plain.gguf');
            check(/not made for chats/.test(await text(page, 'notice-text')), 'no words');
            check(await page.$eval('#send', b => b.disabled), 'it can be asked');
            await settings(page, { prompt: 'Who are you?' });
            await page.focus('#prompt');
            await page.keyboard.press('Enter');
            expect(await value(page, 'prompt'), 'Who are you?', 'the field');
            await page.click('#notice-action');
            check(!(await visible(page, 'notice')), 'the notice is still there');
            check((await write(page, 'Once', { maxTokens: 5 })).startsWith('Once'), 'no text');
            check(!(await visible(page, 'error')), 'an error');
            await page.click('input[value=chat]');
            check(await page.$eval('#send', b => b.disabled), 'it can be asked again');
            await loads(page, () => page.$eval('#use-tiny', b => b.click()));
            check(!(await page.$eval('#send', b => b.disabled)), 'the next one cannot be asked');
        });
    },

    // Only a model whose template can be told has a field for how much it thinks.
    async how_much_a_model_thinks() {
        const { templates } = JSON.parse(readFileSync(join(ROOT, 'tests/data/chat.json'), 'utf8'));
        const paths = ['qwen-3.8', 'qwen-3', 'qwen-3-thinking'].map(name =>
            chatModel(templates[name], name)
        );
        hooks.set(
            '/bitnet.js',
            rebuilt({
                'client/session.js': s =>
                    s.replace(
                        'chat(messages, options = {}) {',
                        '$& (globalThis.told ??= []).push([options.thinking, options.effort].join());'
                    ),
            })
        );
        await visit(async page => {
            await ready(page);
            check(!(await visible(page, 'thinking')), 'the toy has the field');
            const offered = () =>
                page.$$eval('#thinking option', all =>
                    all
                        .filter(o => !o.hidden)
                        .map(o => o.value)
                        .join()
                );
            const say = async thinking => {
                if (thinking !== undefined) await page.select('#thinking', thinking);
                await write(page, 'Hm', { maxTokens: 3 });
                return page.evaluate(() => globalThis.told.at(-1));
            };
            await loads(page, () => chooseFile(page, paths[0]));
            check(await visible(page, 'thinking'), 'no field');
            expect(await offered(), ',off,low,medium,xhigh', 'what can be chosen');
            expect(await say(), ',', 'nothing is asked for');
            expect(await say('low'), ',low', 'little');
            expect(await say('off'), 'false,', 'none');
            await page.select('#thinking', 'low');
            await loads(page, () => chooseFile(page, paths[1]));
            expect(await offered(), ',off', 'of one without efforts');
            expect(await say(), ',', 'an effort that it does not have');
            expect(await say('off'), 'false,', 'none');
            await loads(page, () => chooseFile(page, paths[2]));
            check(!(await visible(page, 'thinking')), 'one that always thinks has the field');
            expect(await say(), ',', 'of another model');
        });
    },

    // Words for engineers stand behind "Details", and what this build or browser lacks cannot be chosen.
    async words_for_everyone() {
        const engineers = /prefill|decode|kernel|variant|sampler|top-[kp]|min-p|relaxed|penalty|gguf key/i;
        await visit(async page => {
            await ready(page);
            const shown = await page.evaluate(() => document.body.innerText);
            expect(engineers.exec(shown)?.[0] ?? '', '', 'a word for engineers');
            await page.click('#model-details summary');
            check(/Kernel/.test(await page.evaluate(() => document.body.innerText)), 'no details');
            const off = await page.evaluate(async () => {
                const { variants } = await import('./bitnet.js');
                const lacks = Object.entries(variants())
                    .filter(([, why]) => why)
                    .map(([name]) => name);
                const disabled = [...document.querySelectorAll('#variant option')]
                    .filter(o => o.disabled)
                    .map(o => o.value);
                return [lacks, disabled].map(all => all.sort().join());
            });
            expect(off[1], off[0], 'variants that cannot be chosen');
            if (!variants.includes('relaxed')) check(/relaxed/.test(off[1]), 'relaxed is offered');
        });
    },

    // Texts that are dropped in a chat lead to Search; of several models the page says which is opened.
    async what_is_dropped() {
        hooks.set(
            '/bitnet.js',
            rebuilt({
                'client/bitnet.js': s =>
                    s.replace(
                        'static async load(source, options = {}) {',
                        `$& if (Array.isArray(source)) {
                            globalThis.parts = source.map(part => part.name).join();
                            [source] = source; // each of these is a whole model
                        }`
                    ),
            })
        );
        const dropFiles = (page, ...names) =>
            page.evaluate(async all => {
                const bytes = await (await fetch('tiny.gguf')).arrayBuffer(),
                    files = new DataTransfer();
                for (const name of all)
                    files.items.add(
                        name.endsWith('.gguf')
                            ? new File([bytes], name)
                            : new File(['The sky is blue.'], name, { type: 'text/plain' })
                    );
                document.dispatchEvent(
                    new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true })
                );
            }, names);
        await visit(async page => {
            await ready(page);
            await dropFiles(page, 'notes.txt');
            check(/notes\.txt is for “Search”/.test(await text(page, 'notice-text')), 'no words');
            check(!(await visible(page, 'error')), 'an error');
            await page.click('#notice-action');
            await until(page, () => document.querySelectorAll('#texts li').length === 1);
            expect(await page.evaluate(() => document.body.dataset.mode), 'search', 'mode');
            await page.click('input[value=chat]');
            await loads(page, () => dropFiles(page, 'first.gguf', 'second.gguf', 'third.gguf'));
            expect(await text(page, 'model-name'), 'first.gguf', 'model');
            expect(
                await text(page, 'notice-text'),
                'Only one model can be open, so nothing is done with second.gguf and third.gguf.',
                'words'
            );
            const part = n => `big-0000${n}-of-00003.gguf`;
            await loads(page, () => dropFiles(page, part(2), part(3), 'other.gguf', part(1)));
            const all = [1, 2, 3].map(part).join();
            expect(await page.evaluate(() => globalThis.parts), all, 'the parts');
            expect(await text(page, 'model-name'), part(1), 'model of several files');
            check(/ other\.gguf\.$/.test(await text(page, 'notice-text')), 'no words of the other one');
            await dropFiles(page, part(1), part(3));
            expect(await errorTitle(page), 'Parts of the model are missing', 'two of three');
            expect(await text(page, 'model-name'), part(1), 'the open model');
        });
    },

    // Another tab downloads the same file, or nothing comes.
    async a_download_that_waits() {
        hooks.set('/slow.gguf', (req, res, headers) => {
            res.writeHead(200, { 'Content-Length': tiny.length, ...headers });
            res.write(tiny.subarray(0, 500000));
            return true;
        });
        hooks.set(
            '/models.js',
            edited('models.js', s =>
                s.replace('note(p);', 'note({ ...p, elsewhere: true, stalledSeconds: 7 });')
            )
        );
        await visit(async page => {
            await ready(page);
            await openUrl(page, `${isolated.url}slow.gguf`);
            await until(page, () =>
                /^Another tab downloads slow.gguf · .*nothing has come for 7 s/.test(
                    document.getElementById('loading-text').textContent
                )
            );
            await page.click('#loading-cancel');
            await ready(page);
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

    async what_is_refused_is_not_kept() {
        const endless = Buffer.from(tiny).fill(255, 8, 15); // says that it has 2^56 tensors
        const wrong = [tiny.subarray(0, 24), tiny.subarray(0, 1000), endless];
        let file; // what is sent, as if it were right
        hooks.set('/short.gguf', (req, res, headers) => {
            const all = { 'Content-Length': file.length, ETag: '"1"', ...headers };
            res.writeHead(200, all).end(file);
            return true;
        });
        await visit(async page => {
            await ready(page);
            for (file of [...wrong, tiny]) {
                const [code, kept] = await page.evaluate(async () => {
                    const { BitNet, cache } = await import('/bitnet.js'),
                        load = BitNet.load('/short.gguf', { threads: 1 });
                    const code = await load.then(() => 'loaded', e => e.code);
                    return [code, (await cache.list()).length];
                });
                check(file === tiny ? code === 'loaded' : /^ERR_/.test(code), code);
                expect(kept, file === tiny ? 1 : 0, `${file.length} bytes (${code}): kept`);
            }
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
            requests.length = 0;
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
