// chat.mjs - Write and Chat: replies, messages, kept chats.
import { execFileSync } from 'node:child_process';
import { newPage } from '../browsers.mjs';
import {
    catchExports,
    check,
    completion,
    count,
    edited,
    errorTitle,
    expect,
    fill,
    generate,
    hooks,
    isolated,
    lastNote,
    lastReply,
    native,
    openUrl,
    PROMPT,
    ready,
    rebuilt,
    recordChats,
    requests,
    searching,
    settings,
    sleep,
    story,
    text,
    texts,
    tinyPath,
    until,
    value,
    visible,
    visit,
    write,
} from './driver.mjs';
import { ARTICLE, ENDLESS, HOSTILE, needMarkdown, sayings, sayingsDrawn } from './replies.mjs';

export const tests = {
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
                .replace('let reading = 0;', 'let pausing, reading = 0;')
                .replace(
                    /async function generate\(.*\n/,
                    '$& pausing = options.maxTokens === 400;\n'
                )
                .replace(
                    /post\(\{ id, event: \{ token.*/,
                    '$& if (pausing && index === 19) while (!signal.aborted) await turn();'
                );
        hooks.set('/bitnet.js', rebuilt({ 'worker/generate.js': paused }));
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

    // A chat goes on when the context is full: without its oldest messages, but with the system
    // prompt.
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

    // What cannot be sent is in the field again, nobody stopped it, and the message does not hide
    // text.
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
            // formulas as they are written, piece by piece
            const formulas = String.raw`So \(a*b*c\), $$x_1 \, *y*$$ and *then*
\[
\frac{1}{2} \\ 2
\]`;
            const drawn = await page.evaluate(async words => {
                const { drawer } = await import('./markdown.js'),
                    body = document.createElement('div'),
                    draw = drawer(body);
                for (let n = 1; n <= words.length; n++) draw(words.slice(0, n));
                return [body.textContent, body.querySelectorAll('em').length];
            }, formulas);
            expect(drawn[0], formulas.replace('*then*', 'then'), 'formulas');
            expect(drawn[1], 1, 'words in italics beside them');
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
                    if (body.innerHTML !== whole.innerHTML)
                        return `${article.slice(0, n)} is ${body.innerHTML} instead of ${whole.innerHTML}`;
                }
                const row = `| a | b |\n|---|---|\n| ${'words '.repeat(400)}`, // of a table, in one line
                    table = document.createElement('div'),
                    drawRow = drawer(table);
                for (let n = 1; n < row.length; n += 50) drawRow(row.slice(0, n));
                if (!table.querySelector('td')?.textContent.startsWith('words words'))
                    return 'a long row';
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

    // Replies of 4,000 pieces, each of one block that never ends: they look as if drawn at once,
    // and what is parsed and put into the page for a piece does not grow with the text before it.
    async a_long_reply_costs_the_same_to_its_end() {
        needMarkdown();
        hooks.set(
            '/markdown-it.js',
            edited('markdown-it.js', s =>
                s.replace(
                    /export\s*\{\s*([\w$]+) as default\s*\}/,
                    `globalThis.parsed = 0;
                     const counted = options => {
                         const made = $1(options);
                         for (const name of ['parse', 'parseInline']) {
                             const f = made[name];
                             made[name] = (text, env) => ((parsed += text.length), f.call(made, text, env));
                         }
                         return made;
                     };
                     export { counted as default }`
                )
            )
        );
        // The same without cuts inside of blocks.
        hooks.set(
            '/markdown.js',
            (req, res, headers) =>
                req.url.endsWith('?whole') &&
                edited('markdown.js', s =>
                    s.replace('STEP = 2000', 'STEP = 1e9').replace('ENOUGH = 800', 'ENOUGH = 1e9')
                )(req, res, headers)
        );
        await visit(async page => {
            await ready(page);
            for (const [kind, pieceOf] of Object.entries(ENDLESS)) {
                const pieces = Array.from({ length: 4000 }, (_, i) => pieceOf(i));
                const { same, costs } = await page.evaluate(async all => {
                    const { drawer } = await import('./markdown.js'),
                        reference = await import('./markdown.js?whole'),
                        body = document.createElement('div'),
                        whole = document.createElement('div'),
                        draw = drawer(body),
                        seen = [];
                    let nodes = 0,
                        text = '';
                    const watch = new MutationObserver(found =>
                        found.forEach(m => (nodes += m.addedNodes.length))
                    );
                    watch.observe(body, { childList: true, subtree: true });
                    for (const [i, piece] of all.entries()) {
                        text += piece;
                        if (i % 5 === 0) draw(text);
                        if (i % 1000 < 999) continue;
                        await null;
                        seen.push({ parsed: globalThis.parsed, nodes });
                        globalThis.parsed = nodes = 0;
                    }
                    draw(text);
                    reference.drawer(whole)(text);
                    // Items of a list may or may not be paragraphs.
                    const [got, wanted] = [body, whole].map(e =>
                            e.innerHTML.replaceAll(/<\/?p>/g, '')
                        ),
                        at = Array.from(wanted).findIndex((c, k) => c !== got[k]);
                    const around = html => html.slice(Math.max(0, at - 80), at + 80);
                    return {
                        same: got === wanted ? '' : `${around(got)} instead of ${around(wanted)}`,
                        costs: seen,
                    };
                }, pieces);
                expect(same, '', `${kind}: the text`);
                const [, second, , last] = costs;
                for (const what of ['parsed', 'nodes'])
                    check(
                        last[what] < 1.5 * second[what] + 1000,
                        `${kind}: ${what} in the last thousand ${last[what]}, in the second ${second[what]}`
                    );
                check(last.parsed < 6e5, `${kind}: ${last.parsed} characters are parsed`);
            }
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
            await catchExports(page);
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
            // only what is looked at is laid out, and the last ones
            const isLaidOut = i => {
                const body = [...document.querySelectorAll('.turn .body')].at(i);
                return body.checkVisibility({ contentVisibilityAuto: true });
            };
            expect(await page.evaluate(isLaidOut, -1), true, 'the last message is laid out');
            expect(await page.evaluate(isLaidOut, 0), false, 'the first message is laid out');
            await page.$eval('#scroll', e => (e.scrollTop = 0));
            await until(page, isLaidOut, 0);
        });
    },

    // The worker waits in the middle of the reply, and the page is reloaded.
    async reload_in_mid_answer() {
        const paused = s =>
            s.replace(
                /post\(\{ id, event: \{ token.*/,
                '$& if (index === 19) while (!signal.aborted) await turn();'
            );
        hooks.set('/bitnet.js', rebuilt({ 'worker/generate.js': paused }));
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

    // A word that an input method composes ends with Enter, which sends nothing; nor does Escape
    // stop.
    async composed_text() {
        await visit(async page => {
            await ready(page);
            await settings(page, { prompt: 'にほんご' });
            const compose = selector =>
                page.$eval(selector, field => {
                    for (const key of ['Enter', 'Escape'])
                        // The latter is Safari's, after the composition.
                        for (const how of [{ isComposing: true }, { keyCode: 229 }])
                            field.dispatchEvent(
                                new KeyboardEvent('keydown', {
                                    bubbles: true,
                                    cancelable: true,
                                    key,
                                    ...how,
                                })
                            );
                });
            await compose('#prompt');
            expect(await count(page, '.turn'), 0, 'turns');
            expect(await value(page, 'prompt'), 'にほんご', 'the field');
            await write(page, 'Who are you?', { maxTokens: 5 });
            await page.keyboard.press('ArrowUp');
            await until(page, () => document.querySelector('.edit textarea') !== null);
            await compose('.edit textarea');
            expect(await count(page, '.edit textarea'), 1, 'a message that is edited');
            await page.$eval('.edit button:last-of-type', b => b.click());
            await page.$$eval('#chats .tools button', all =>
                all.find(b => b.textContent === 'Rename').click()
            );
            await compose('#chats input');
            expect(await count(page, '#chats input'), 1, 'a name that is edited');
            await searching(page);
            await page.click('#add-note');
            await compose('#note');
            check(await visible(page, 'note-form'), 'the note is gone');
            await page.$eval('input[value=chat]', e => e.click());
            await openUrl(page, `${isolated.url}nowhere.gguf`);
            await errorTitle(page);
            await page.evaluate(() =>
                dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', isComposing: true }))
            );
            check(await visible(page, 'error'), 'Escape closed the message');
        });
    },

    // A screen reader is told each sentence of a reply once, when it is there, then the rest and
    // why it ends; nothing of the marks of Markdown, and nothing of the thinking.
    async a_reply_is_spoken_once() {
        const reply =
            '<think>\nHm. Let me see.\n</think>\n\n# A title\n\nThe **first** one. The second\none!\n\n' +
            '- A list\n- 3.5 of it\n\n| a | b |\n|---|---|\n| c | d |\n\nThe end, without a dot';
        sayingsDrawn(reply.match(/[^]{1,4}/g));
        await visit(async page => {
            await ready(page);
            await page.evaluate(() => {
                globalThis.heard = [];
                new MutationObserver(all => {
                    for (const { addedNodes } of all)
                        globalThis.heard.push(...[...addedNodes].map(e => e.textContent));
                }).observe(document.getElementById('spoken'), { childList: true });
            });
            await write(page, 'Say it.');
            const heard = await page.evaluate(() => globalThis.heard);
            const wanted =
                'A title The first one. The second one! A list 3.5 of it a b c d The end, without a dot ' +
                'The context is full, so the text ends here.';
            expect(heard.join(' '), wanted, 'what is heard');
            check(heard.length > 3, `it is all said at once: ${heard}`);
            const live = await page.$$eval(
                '[aria-live=polite], [role=log], [role=status], [role=alert]',
                all => all.filter(e => e.ariaLive !== 'off' && e.querySelector('.turn')).length
            );
            expect(live, 0, 'places that say the reply, too');
            const copied = await page.evaluate(async () => {
                let words;
                const writeText = async t => (words = t);
                Object.defineProperty(navigator, 'clipboard', { value: { writeText } });
                document.querySelector('.turn.reply .acts button').click();
                return words;
            });
            expect(copied, reply.slice(reply.indexOf('# A')), 'what is copied');
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
};
