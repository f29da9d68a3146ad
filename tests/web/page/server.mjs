// server.mjs - the page of a server.
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { list } from '../../../web/list.mjs';
import { ask, idle, metrics, start } from '../../server/server.mjs';
import {
    check,
    completion,
    count,
    errorTitle,
    expect,
    fill,
    generate,
    hooks,
    isolated,
    keptPage,
    lastNote,
    lastReply,
    loads,
    PHONE,
    picture,
    PROMPT,
    ready,
    scratch,
    settings,
    site,
    Skip,
    story,
    text,
    tinyPath,
    until,
    value,
    violations,
    visible,
    visit,
    wide,
    write,
} from './driver.mjs';

// Starts the server with the page. f may let it begin again at the same address.
async function withServer(f, args = [], folder = site) {
    const program = join(dirname(resolve(generate)), 'serve');
    if (!existsSync(program))
        throw new Skip('there is no build/serve: libmicrohttpd is not installed');
    let server;
    const begin = async (...more) => {
        const port = server ? ['--port', `${server.port}`] : [];
        server = await start(program, [
            '-m',
            tinyPath,
            '--page',
            folder,
            ...args,
            ...more,
            ...port,
        ]);
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
        list(folder);
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
    await until(page, () => document.querySelector('.turn.writing .body')?.textContent.length > 20);
}

export const tests = {
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

    // The page that the browser keeps still knows that it has a server, and says when that is gone. No
    // other site may show it in a frame.
    async served_from_what_is_kept() {
        const folder = join(scratch, 'kept');
        cpSync(site, folder, { recursive: true });
        list(folder);
        await withServer(
            async server => {
                await visit(
                    async page => {
                        await ready(page);
                        await keptPage(page);
                        for (const there of [true, false]) {
                            if (!there) await server.stop();
                            await page.goto(server.url);
                            if (there) await ready(page);
                            else expect(await errorTitle(page), 'The server does not answer', 'message');
                            expect(new URL(page.url()).search, '?server=1', 'the address');
                            const header = await page.evaluate(async () =>
                                (await fetch('./?server=1')).headers.get('content-security-policy')
                            );
                            expect(header, "frame-ancestors 'self'", 'who may show it');
                        }
                    },
                    { at: server.url }
                );
            },
            [],
            folder
        );
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
                        check(
                            now.bitnet_written_tokens_total < 15000,
                            'the whole text was written'
                        );
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
                    expect(
                        await errorTitle(page),
                        'This host has no server of bitnet.h',
                        'message'
                    );
                }
                await page.$eval('#use-tiny', b => b.click());
                await ready(page);
                check(/own processor/.test(await text(page, 'where')), 'where it runs');
            },
            { at: `${isolated.url}?server=1` }
        );
    },
};
