// start.mjs - how the page starts: variants, threads, isolation, storage, offline.
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { ISOLATED, serve } from '../serve.mjs';
import {
    check,
    checked,
    completion,
    count,
    edited,
    errorTitle,
    expect,
    fill,
    firefox,
    forget,
    hook,
    hooks,
    isolated,
    keptPage,
    lastReply,
    listing,
    plain,
    PROMPT,
    ready,
    rebuilt,
    relaxedIsUnknown,
    reloadModel,
    requests,
    settings,
    site,
    Skip,
    sleep,
    stillWrites,
    text,
    texts,
    until,
    value,
    variants,
    visible,
    visit,
    write,
    writesIn,
} from './driver.mjs';

export const tests = {
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
                    'client/connection.js': s =>
                        s
                            .replace(
                                '}, START_MS);',
                                `}, globalThis.starts > ${hanging} ? 60000 : 1000);`
                            )
                            .replace(
                                'threadScript: engine.thread',
                                `$&, hang: (globalThis.starts = (globalThis.starts ?? 0) + 1) <= ${hanging}`
                            ),
                    'worker/module.js': s =>
                        s.replace(
                            'post({ starting: true });',
                            '{ $& if (engine.hang) for (;;); }'
                        ),
                })
            );
            await visit(async page => {
                await ready(page);
                await stillWrites(page);
                const variant = await text(page, 'f-variant');
                check((variant === 'simd') === hanging > 1, `the variant is ${variant}`);
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
            hooks.set(
                '/',
                edited('index.html', x => x.replace('data-isolate="ask"', how))
            );
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
                const all = JSON.parse(
                    Buffer.from(await page.tracing.stop()).toString()
                ).traceEvents;
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

    // What is not needed for the first word comes after the model: Markdown, the cross-check, what reads
    // files. What comes before is asked for at once, and has its bound.
    async first_visit_loads_what_it_needs() {
        let before = [];
        hooks.set('/tiny.gguf', () => {
            before = [...new Set(requests.map(r => r.path.slice(1) || 'index.html'))];
            return false;
        });
        const late = ['markdown', 'markdown-it', 'crosscheck', 'check', 'readers', 'documents'];
        late.push('search', 'library', 'passages', 'texts');
        await visit(async page => {
            await ready(page);
            for (const name of late)
                check(!before.includes(`${name}.js`), `${name}.js comes first`);
            await until(page, () =>
                performance.getEntriesByType('resource').some(e => e.name.endsWith('/markdown.js'))
            );
            const preloads = await page.$$eval('link[rel=modulepreload]', all =>
                all.map(e => e.getAttribute('href')).sort()
            );
            const modules = before.filter(
                path => path.endsWith('.js') && !/^(page|sw|engine-\w+)\.js$/.test(path)
            );
            expect(preloads.join(), modules.sort().join(), 'the modulepreload lines of index.html');
            const own = before.filter(
                    path => !/engine|gguf/.test(path) && existsSync(join(site, path))
                ),
                sizes = own.map(path => gzipSync(readFileSync(join(site, path))).length),
                sum = sizes.reduce((a, b) => a + b, 0);
            check(sum > 50e3 && sum < 125e3, `${sum} bytes come before the engine and the model`);
        });
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
            expect(await value(page, 'system'), 'You are a helpful assistant.', 'system prompt');
            await page.click('#reset');
            expect(await value(page, 'temperature'), '', 'the default');
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
            await page.focus('#maxTokens');
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
            await page.focus('#maxTokens');
            expect(await count(page, '#panel .problem'), 0, 'problems');
            await settings(page, { threads: '0' });
            await page.evaluate(() => document.getElementById('reload-model').click());
            expect(await errorTitle(page), 'A setting is out of range', 'message');
            check(/^Threads must be from 1/.test(await text(page, 'error-code')), 'which setting');
            check(await visible(page, 'error-code'), 'nobody sees which setting');
            const advice = await text(page, 'error-text');
            check(/Load options/.test(advice) && !/sent/.test(advice), advice);
            check(await visible(page, 'threads-problem'), 'nobody sees what is wrong with it');
            await page.reload();
            await ready(page);
            expect(await value(page, 'temperature'), '0.33', 'the setting that is kept');
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

    // A second visit asks for no file of the page, so a network that is stuck or broken does no harm.
    async a_broken_network_is_not_waited_for() {
        const stuck = () => true,
            broken = (req, res) => {
                res.writeHead(503, { 'Content-Type': 'text/html' });
                res.end('out of order');
                return true;
            };
        for (const answer of [null, stuck, broken]) {
            forget();
            const own = await serve({ root: resolve(site), hook: hook(ISOLATED) });
            await visit(
                async page => {
                    await ready(page);
                    await keptPage(page);
                    if (answer)
                        for (const { path } of [...requests]) hooks.set(path, answer);
                    requests.length = 0;
                    await page.reload();
                    await ready(page);
                    await stillWrites(page);
                    const asked = new Set(requests.map(r => r.path));
                    asked.delete('/sw.js'); // whether there is a newer version
                    expect([...asked].join(), '', 'files that the page asked for');
                },
                { at: own.url }
            );
            own.server.closeAllConnections();
            own.server.close();
        }
    },

    // A newer version of the page is used when all of it is there: one that is cut off changes nothing.
    async an_update_is_whole_or_not_at_all() {
        const newer = {
            'page.js': s => s.replace("togglePanel } from './app.js'", 'news, $&'),
            'app.js': s => `${s}\nexport const news = 1;\ndocument.title = 'newer';\n`,
        };
        await visit(async page => {
            await ready(page);
            await keptPage(page);
            const instead = {};
            for (const [file, edit] of Object.entries(newer)) {
                instead[file] = edit(readFileSync(join(site, file), 'utf8'));
                hooks.set(`/${file}`, edited(file, () => instead[file]));
            }
            hooks.set('/sw.js', listing(instead));
            let cut = 0;
            const whole = hooks.get('/page.js');
            hooks.set('/page.js', (req, res) => {
                cut++;
                res.destroy();
                return true;
            });
            const said = () => text(page, 'notice-text');
            for (const times of [1, 2]) {
                await page.reload();
                await ready(page);
                await keptPage(page);
                while (cut < times) await sleep(20);
                expect(await page.title(), 'bitnet.h in the browser', 'the version');
                expect(await visible(page, 'notice'), false, 'a notice');
            }
            hooks.set('/page.js', whole);
            requests.length = 0;
            await page.reload();
            await ready(page);
            await until(page, () => !document.getElementById('notice').hidden);
            expect(await said(), 'A new version of this page is ready.', 'notice');
            expect(await page.title(), 'bitnet.h in the browser', 'the version before');
            await page.click('#notice-action');
            await until(page, () => document.title === 'newer');
            await ready(page);
            await keptPage(page);
            const asked = new Set(requests.map(r => r.path));
            asked.delete('/sw.js');
            expect([...asked].join(), '/page.js', 'what was fetched: the rest was there');
            await page.reload();
            await ready(page);
            expect(await page.title(), 'newer', 'the version after a reload');
            await stillWrites(page);
        });
    },

    // A page that cannot start says why, and can be loaded again.
    async a_start_that_fails_says_why() {
        const shown = page => until(page, () => !document.getElementById('error').hidden);
        const absent = (req, res) => {
            res.writeHead(404);
            res.end();
            return true;
        };
        const without = edited('app.js', s => s.replace('export const nearEnd', 'const nearEnd'));
        for (const [file, answer, code] of [
            ['/format.js', absent, firefox ? /./ : /format\.js: 404/],
            ['/app.js', without, /nearEnd/],
        ]) {
            hooks.set(file, answer);
            await visit(
                async page => {
                    await shown(page);
                    expect(await text(page, 'error-title'), 'The page did not start', 'message');
                    check(code.test(await text(page, 'error-code')), await text(page, 'error-code'));
                    hooks.delete(file);
                    await page.click('#error-text button');
                    await ready(page);
                    expect(await visible(page, 'error'), false, 'a message after that');
                },
                { throws: /nearEnd|Loading module/ }
            );
        }
        // One that is stuck says so after a while, and still starts when it can.
        let answer;
        const usual = edited('format.js', s => s);
        hooks.set('/format.js', (...request) => {
            answer = () => usual(...request);
            return true;
        });
        await visit(
            async page => {
                await page.evaluateOnNewDocument(() => {
                    const wait = globalThis.setTimeout;
                    globalThis.setTimeout = (f, ms, ...more) =>
                        wait(f, ms === 20000 ? 500 : ms, ...more);
                });
                page.goto(isolated.url).catch(() => {});
                await until(page, () => document.getElementById('error')?.hidden === false);
                expect(await text(page, 'error-title'), 'This takes long', 'message');
                answer();
                await ready(page);
                expect(await visible(page, 'error'), false, 'a message after that');
            },
            { at: 'about:blank' }
        );
        hooks.delete('/format.js');
        if (firefox) return; // it opens no file for a driver
        await visit(
            async page => {
                await shown(page);
                expect(
                    await text(page, 'error-title'),
                    'The page cannot start from the disk',
                    'message'
                );
            },
            { at: pathToFileURL(resolve(site, 'index.html')).href }
        );
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
};
