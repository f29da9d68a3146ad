// start.mjs - how the page starts: variants, threads, isolation, storage, offline.
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
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
    hook,
    hooks,
    isolated,
    keptPage,
    lastReply,
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
            check(/Threads must be from 1/.test(await text(page, 'error-code')), 'which setting');
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
