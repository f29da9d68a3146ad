// kept.mjs - nothing is lost: chats over a storage that fails, several tabs, pages that are left, workers
// that end; and the list of many chats.
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newPage } from '../browsers.mjs';
import {
    catchExports,
    check,
    chooseFile,
    completion,
    count,
    dragOver,
    edited,
    expect,
    fill,
    firefox,
    hooks,
    isolated,
    lastNote,
    lastReply,
    loads,
    named,
    native,
    PROMPT,
    ready,
    rebuilt,
    scratch,
    settings,
    Skip,
    sleep,
    story,
    text,
    texts,
    tinyPath,
    until,
    visible,
    visit,
    write,
} from './driver.mjs';

// The worker stops after n tokens, until it is told to end.
const paused = n =>
    hooks.set(
        '/bitnet.js',
        rebuilt({
            'worker/generate.js': s =>
                s.replace(
                    /post\(\{ id, event: \{ token.*/,
                    `$& if (index === ${n - 1}) while (!signal.aborted) await turn();`
                ),
        })
    );
const names = page => texts(page, '#chats .name');
const rows = (page, n) => until(page, m => document.querySelectorAll('#chats li').length === m, n);
const press = (page, selector, name) =>
    page.$$eval(
        `${selector} button`,
        (all, t) => {
            const found = all.find(b => b.textContent === t && b.checkVisibility());
            if (!found) throw new Error(`no ${t} among ${all.map(b => b.textContent)}`);
            found.click();
        },
        name
    );
const runsAre = (page, n) => until(page, m => Number(document.body.dataset.runs) === m, n);
const send = async (page, prompt, values) => {
    await settings(page, { temperature: 0, maxTokens: 120, ...values, prompt });
    await page.evaluate(() => document.getElementById('form').requestSubmit());
};
const LEFT = 'The page was left before the text was finished.';
// For the service worker, which would answer with what it has kept.
const absent = (req, res) => {
    res.writeHead(404).end();
    return true;
};

// While it fails, IndexedDB takes nothing.
const storageFails = (page, fails) =>
    page.evaluate(on => {
        const { prototype } = IDBObjectStore;
        prototype.usualPut ??= prototype.put;
        prototype.put = on
            ? () => {
                  throw new DOMException('There is no room.', 'QuotaExceededError');
              }
            : prototype.usualPut;
    }, fails);

// Puts so many chats where the page keeps them, the newest last.
const seed = (page, n) =>
    page.evaluate(async total => {
        const request = indexedDB.open('bitnet-chats', 1);
        const db = await new Promise(done => (request.onsuccess = () => done(request.result)));
        const all = db.transaction('chats', 'readwrite');
        for (let i = 0; i < total; i++) {
            const at = new Date(2e12 + 1000 * i).toISOString(),
                messages = [
                    { role: 'user', content: `Question ${i}` },
                    { role: 'assistant', content: i === 7 ? 'Where the narwhal lives' : 'Yes' },
                ];
            all.objectStore('chats').put({
                ...{ id: `seed-${i}`, name: '', mode: 'chat', created: at, changed: at },
                ...{ revision: 1, model: 'tiny.gguf', messages },
            });
        }
        await new Promise(done => (all.oncomplete = done));
        db.close();
    }, n);

export const tests = {
    // What the storage does not take is said, stays in the list, and is tried again.
    async a_storage_that_fails() {
        await visit(async page => {
            await ready(page);
            page.on('dialog', dialog => dialog.accept()); // “Leave the page?”
            for (const question of ['Who are you?', 'What is two plus three?']) {
                await write(page, question, { maxTokens: 10 });
                await page.click('#new');
            }
            await rows(page, 2);
            await storageFails(page, true);
            await write(page, 'Tell me a story.', { maxTokens: 10 });
            check(await visible(page, 'unsaved'), 'it says nothing');
            check(/QuotaExceeded/.test(await text(page, 'unsaved-text')), 'it does not say why');
            await rows(page, 3);
            await page.click('#new');
            await page.$$eval('#chats .name', all => all.at(-1).click()); // from the storage
            await until(page, () => /Who are you/.test(document.querySelector('.turn')?.textContent));
            await page.$eval('#chats .name', e => e.click()); // from this page
            await until(page, () => /story/.test(document.querySelector('.turn')?.textContent));
            const [, reply] = await texts(page, '.turn .body');
            await storageFails(page, false);
            await page.$eval('#unsaved-retry', e => e.click()); // unless it was tried by itself
            await until(page, () => document.getElementById('unsaved').hidden);
            await page.reload();
            await ready(page);
            await rows(page, 3);
            expect((await texts(page, '.turn .body'))[1], reply, 'the reply after a reload');

            await storageFails(page, true); // and without a press: by itself, or by leaving the page
            await write(page, 'And another one.', { maxTokens: 10 });
            check(await visible(page, 'unsaved'), 'it says nothing');
            await storageFails(page, false);
            await until(page, () => document.getElementById('unsaved').hidden);
            await storageFails(page, true);
            const last = await write(page, 'And the last one.', { maxTokens: 10 });
            await page.reload();
            await ready(page);
            expect(await count(page, '.turn'), 6, 'turns after leaving');
            expect(await lastReply(page), last, 'the reply after leaving');
            await rows(page, 3);
        });
    },

    // The user deletes what the site has stored: what is open is kept again.
    async storage_that_is_cleared() {
        await visit(async (page, context) => {
            await ready(page);
            await write(page, 'Who are you?', { maxTokens: 10 });
            if (firefox) {
                const other = await newPage(context);
                await other.goto(isolated.url);
                await other.evaluate(
                    () =>
                        new Promise(done => {
                            indexedDB.deleteDatabase('bitnet-chats').onsuccess = done;
                        })
                );
                await other.close();
            } else {
                const cdp = await page.createCDPSession(),
                    { origin } = new URL(isolated.url);
                await cdp.send('Storage.clearDataForOrigin', { origin, storageTypes: 'indexeddb' });
            }
            await write(page, 'What is two plus three?', { maxTokens: 10 });
            const all = (await texts(page, '.turn .body')).join('|');
            expect(await visible(page, 'unsaved'), false, 'a message');
            await page.reload();
            await ready(page);
            expect((await texts(page, '.turn .body')).join('|'), all, 'after a reload');
            expect(await count(page, '.turn'), 4, 'turns');
        });
    },

    // Left with the first word of a reply, or before it: the rest comes by one press.
    async leaving_at_once() {
        for (const n of [1, 0]) {
            paused(n || 1);
            await visit(async page => {
                await ready(page);
                const question = 'Tell me a story about a dragon.';
                await page.evaluate(
                    waits =>
                        new MutationObserver((_, watch) => {
                            const body = document.querySelector('.turn.reply .body');
                            if (!body || (waits && !body.textContent)) return;
                            watch.disconnect();
                            globalThis.seen = body.textContent;
                            sessionStorage.setItem('seen', body.textContent);
                            location.reload();
                        }).observe(document.getElementById('log'), {
                            subtree: true,
                            childList: true,
                            characterData: true,
                        }),
                    n
                );
                await send(page, question, { maxTokens: 60 });
                await until(page, () => sessionStorage.getItem('seen') !== null);
                hooks.delete('/bitnet.js');
                await until(page, () => globalThis.seen === undefined);
                await page.reload(); // with a worker that does not pause
                await ready(page);
                const [asked, begun] = await texts(page, '.turn .body');
                expect(asked, question, 'the message');
                if (n) check(begun.length > 0, 'the reply is lost');
                expect(await lastNote(page), LEFT, 'note');
                await settings(page, { temperature: 0, maxTokens: 60 });
                await press(page, '.turn:last-child', 'Continue');
                await runsAre(page, 1);
                const reply = await lastReply(page);
                check(reply.startsWith(begun) && reply.length > 20, `the reply is ${reply}`);
                await page.click('#new');
                const whole = await write(page, question, { maxTokens: 70 });
                check(whole.startsWith(reply), `${reply} is not of ${whole}`);
            });
        }
    },

    // A tab is closed while it writes, and no state was kept. The next one shows the text, and one press
    // goes on.
    async a_closed_tab_goes_on() {
        hooks.set('/sw.js', absent);
        hooks.set('/states.js', edited('states.js', s => s.replace('MOST = 64e6', 'MOST = 0')));
        paused(20);
        await visit(async (one, context) => {
            await ready(one);
            await completion(one);
            await send(one, PROMPT);
            await until(one, () => document.querySelector('.reply .body')?.textContent.length > 30);
            const two = await newPage(context); // meanwhile it is not cut off
            await two.goto(isolated.url);
            await ready(two);
            expect(await count(two, '.turn'), 0, 'turns of a tab beside it');
            await two.$eval('#chats .name', e => e.click());
            await until(two, () => document.querySelector('.turn') !== null);
            expect(await lastNote(two), '', 'note while another tab writes');
            hooks.delete('/bitnet.js');
            await one.close();
            await until(two, () => document.querySelector('.note') !== null); // it has seen that
            expect(await lastNote(two), LEFT, 'note when the other tab is closed');
            await two.close();

            paused(20);
            const three = await newPage(context);
            await three.goto(isolated.url);
            await ready(three);
            await completion(three);
            await three.evaluate(() => document.getElementById('new').click());
            await send(three, PROMPT);
            await until(three, () => document.querySelector('.reply .body')?.textContent.length > 30);
            await sleep(600); // longer than a save is put off
            hooks.delete('/bitnet.js');
            await three.close();
            const four = await newPage(context);
            await four.goto(isolated.url);
            await ready(four);
            const begun = await lastReply(four);
            check(begun?.length > 30 && story().startsWith(begun), `the text is ${begun}`);
            expect(await lastNote(four), LEFT, 'note');
            const { length } = begun;
            await settings(four, { temperature: 0, maxTokens: 120 });
            await press(four, '.turn:last-child', 'Continue');
            await runsAre(four, 1);
            const whole = await lastReply(four);
            check(whole.startsWith(begun) && whole.length > length + 50, `the text is ${whole}`);
            check(native('-p', PROMPT, '-n', '200').startsWith(whole), `${whole} is another text`);
        });
    },

    // A tab is closed while it writes. The next one goes on by itself, from the state that was kept: with
    // the text as if it had never been closed, also a drawn one. What was kept is then gone.
    async a_closed_tab_goes_on_from_its_state() {
        hooks.set('/sw.js', absent);
        const slow = () => {
            hooks.set(
                '/conversation.js',
                edited('conversation.js', s => s.replace('KEEP_MS = 3000', 'KEEP_MS = 150'))
            );
            hooks.set(
                '/bitnet.js',
                rebuilt({
                    'worker/generate.js': s =>
                        s.replace(
                            /giveBytes\(session\);\s+got\.paused/,
                            // and does not end before the page is closed
                            'await new Promise(f => setTimeout(f, index < 70 ? 25 : 3000)); $&'
                        ),
                })
            );
        };
        const recorded = () =>
            hooks.set(
                '/bitnet.js',
                rebuilt({
                    'client/session.js': s =>
                        s.replace('resume(options = {}) {', '$& globalThis.resumed = true;'),
                })
            );
        const kept = page =>
            page.evaluate(async () => {
                const request = indexedDB.open('bitnet-replies', 1);
                const db = await new Promise(done => (request.onsuccess = () => done(request.result)));
                const all = db.transaction('states').objectStore('states').getAll();
                await new Promise(done => (all.onsuccess = done));
                db.close();
                return all.result.length;
            });
        const question = 'Tell me a story about a dragon.',
            values = { temperature: 1, seed: 7, maxTokens: 90 };
        await visit(async (first, context) => {
            let page = first;
            await ready(page);
            const whole = await write(page, question, values);
            check(whole.length > 200, `the reply is ${whole}`);
            const open = async () => {
                page = await newPage(context);
                await page.goto(isolated.url);
                await ready(page);
            };
            for (const goesOn of [true, false]) {
                slow();
                await page.close();
                await open();
                await page.click('#new');
                await send(page, question, values);
                await until(page, n => document.querySelector('.reply .body')?.textContent.length > n, 120);
                check((await kept(page)) === 1, 'no state is kept');
                hooks.delete('/conversation.js');
                recorded();
                await page.close();
                if (!goesOn) {
                    const other = await newPage(context); // of the same site, and no page of ours
                    await other.goto(`${isolated.url}style.css`);
                    await other.evaluate(
                        () =>
                            new Promise(done => {
                                indexedDB.deleteDatabase('bitnet-replies').onsuccess = done;
                            })
                    );
                    await other.close();
                }
                await open();
                if (goesOn) await runsAre(page, 1);
                else {
                    expect(await lastNote(page), LEFT, 'note without a state');
                    await press(page, '.turn:last-child', 'Continue');
                    await runsAre(page, 1);
                }
                expect(
                    await page.evaluate(() => globalThis.resumed ?? false),
                    goesOn,
                    'it resumed'
                );
                expect(await count(page, '.turn'), 2, 'turns');
                if (!goesOn) continue;
                expect(await lastReply(page), whole, 'the reply');
                expect(await kept(page), 0, 'states after the reply');
                const next = await write(page, 'And then?', { maxTokens: 5 });
                check(next.length > 0, 'the chat does not go on');
            }
        });
    },

    // A chat is renamed while it is saved, and a file of one has a mode that it cannot have.
    async names_and_modes() {
        await visit(async page => {
            await ready(page);
            await write(page, 'Who are you?', { maxTokens: 5 });
            const [titles, refused] = await page.evaluate(async () => {
                const chats = await import('/chats.js'),
                    [{ id }] = await chats.all(),
                    chat = await chats.load(id);
                const saving = chats.save(chat),
                    renaming = chats.rename(id, 'Sums').then(now => {
                        chat.name = now.name;
                        chat.revision = now.revision;
                    });
                await Promise.all([saving, renaming, chats.save(chat)]);
                const file = { format: 'bitnet-chat', version: 1, messages: [] };
                const read = mode => {
                    try {
                        return chats.chatsOf(JSON.stringify({ ...file, mode })).length;
                    } catch (e) {
                        return e.message;
                    }
                };
                return [(await chats.all()).map(c => c.title), read('constructor')];
            });
            expect(titles.join(), 'Sums', 'chats');
            expect(refused, 'has the mode constructor', 'an import');
        });
    },

    // Two tabs see what the other one renames and deletes.
    async tabs_see_each_other() {
        await visit(async (one, context) => {
            await ready(one);
            for (const question of ['Who are you?', 'What is two plus three?']) {
                await one.click('#new');
                await write(one, question, { maxTokens: 10 });
            }
            const two = await newPage(context);
            await two.setViewport({ width: 1280, height: 800 });
            await two.goto(isolated.url);
            await ready(two);
            await rows(two, 2);
            await press(one, '#chats li:first-child', 'Rename');
            await one.keyboard.type('Sums');
            await one.keyboard.press('Enter');
            await until(two, () => /Sums/.test(document.getElementById('chats').textContent));
            await two.bringToFront();
            await press(two, '#chats li:last-child', 'Rename');
            await two.keyboard.type('Na');
            await one.bringToFront();
            await write(one, 'And one plus one?', { maxTokens: 10 });
            await until(two, () => /4 messages/.test(document.getElementById('chats').textContent));
            await two.bringToFront();
            await two.keyboard.type('mes');
            const field = await two.$eval(':focus', e => e.value);
            expect(field, 'Names', 'the field while another tab writes');
            await two.keyboard.press('Enter');
            await until(one, () => /Names/.test(document.getElementById('chats').textContent));
            await press(two, '#chats li:first-child', 'Delete');
            await two.click('.ask .yes');
            await rows(one, 1);
            expect((await names(one)).join(), 'Sums', 'what is left');
            await one.bringToFront();
            await write(one, 'And four plus five?', { maxTokens: 10 }); // it is no copy
            await rows(one, 1);
            await until(two, () => /6 messages/.test(document.getElementById('chats').textContent));
        });
    },

    // The settings stay near; chats are found by their words, chosen, exported, deleted and imported.
    async a_thousand_chats() {
        await visit(async page => {
            await ready(page);
            await seed(page, 1000);
            await page.reload();
            await ready(page);
            await rows(page, 10);
            const top = () =>
                page.$eval('#h-model', e => e.getBoundingClientRect().top | 0);
            check((await top()) < 1500, `the settings begin at ${await top()} px`);
            expect(await text(page, 'chats-more'), 'Show 50 more of 1000', 'button');
            await page.click('#chats-more');
            await rows(page, 60);
            const folded = async () => !(await page.$eval('#chats-box', e => e.open));
            await page.click('#chats-box summary');
            check((await top()) < 300, `folded, they begin at ${await top()} px`);
            await page.reload();
            await ready(page);
            check(await folded(), 'it is not folded after a reload');
            await page.click('#chats-box summary');

            await fill(page, 'chats-find', 'NARWHAL lives');
            await rows(page, 1);
            expect((await names(page)).join(), 'Question 7', 'found');
            await fill(page, 'chats-find', 'unicorn');
            await rows(page, 0);
            check(await visible(page, 'chats-nothing'), 'it does not say that nothing is found');
            await fill(page, 'chats-find', 'question 99');
            await rows(page, 10);
            await catchExports(page);
            await press(page, '#chats-box', 'Choose several');
            await page.click('#chats-all'); // 99, 199 to 899, and 990 to 999
            expect(await text(page, 'chats-chosen-text'), '19 of 19 chosen', 'chosen');
            await page.$eval('#chats input', e => e.click());
            expect(await text(page, 'chats-chosen-text'), '18 of 19 chosen', 'chosen');
            await page.click('#chats-export');
            await until(page, () => globalThis.fileName !== undefined);
            expect(await page.evaluate(() => globalThis.fileName), '18-chats.json', 'file');
            const exported = await page.evaluate(() => globalThis.exported);
            expect(JSON.parse(exported).chats.length, 18, 'chats in the file');
            await page.click('#chats-delete');
            await page.click('.ask .yes');
            await rows(page, 1);
            await page.reload();
            await ready(page);
            await rows(page, 10);
            expect(await text(page, 'chats-more'), 'Show 50 more of 982', 'left');

            const take = async (name, content) => {
                const path = join(scratch, name);
                writeFileSync(path, content);
                await page.$eval('#chats-told', e => (e.textContent = ''));
                await chooseFile(page, path, 'chats-file');
                await until(page, () => document.getElementById('chats-told').textContent !== '');
                return text(page, 'chats-told');
            };
            expect(await take('some.json', exported), '18 chats added.', 'told');
            const all = 'Show 50 more of 1000';
            expect(await text(page, 'chats-more'), all, 'after the import');
            expect(
                await take('some.json', exported),
                '0 chats added. 18 chats of the file there already.',
                'told the second time'
            );
            for (const [content, told] of [
                ['{', 'bad.json is no JSON.'],
                ['{"format":"x"}', 'bad.json is no chat that this page has exported.'],
                [
                    exported.replace('"assistant"', '"system"'),
                    'bad.json has a chat, number 1, which has a message that cannot be read, number 2.',
                ],
            ])
                expect(await take('bad.json', content), told, 'told');
            expect(await text(page, 'chats-more'), all, 'after bad files');
            await fill(page, 'chats-find', 'Question 996');
            await rows(page, 1);
            await page.$eval('#chats .name', e => e.click());
            await until(page, () => document.querySelector('.turn') !== null);
            expect((await texts(page, '.turn .body')).join(), 'Question 996,Yes', 'a chat');
        });
    },

    // A model from the disk is there again after a reload, by its handle: at once, or by one press.
    async a_file_is_open_again() {
        if (firefox) throw new Skip('Firefox gives no handles of files');
        await visit(async page => {
            await ready(page);
            await page.evaluate(async () => {
                const folder = await navigator.storage.getDirectory(),
                    handle = await folder.getFileHandle('mine.gguf', { create: true }),
                    to = await handle.createWritable();
                await (await fetch('tiny.gguf')).body.pipeTo(to);
                globalThis.showOpenFilePicker = async () => [handle];
            });
            await loads(page, () => page.$eval('#pick', e => e.click()));
            expect(await text(page, 'model-name'), 'mine.gguf', 'the model');
            expect(await visible(page, 'keep-file'), false, 'a copy is offered');
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'mine.gguf', 'after a reload');

            const { identifier } = await page.evaluateOnNewDocument(() => {
                const { prototype } = FileSystemHandle;
                prototype.queryPermission = async () => 'prompt';
                prototype.requestPermission = async () => 'granted';
            });
            for (const visits of ['a visit', 'another visit']) {
                await page.reload();
                await ready(page);
                await until(page, () => document.body.dataset.offline);
                const offered = (await text(page, 'notice-text')).includes('mine.gguf');
                check(offered, `${visits} does not offer the file`);
                expect(await text(page, 'model-name'), 'tiny.gguf', 'before it is allowed');
            }
            await page.click('#notice-action');
            await named(page, 'mine.gguf');
            await page.removeScriptToEvaluateOnNewDocument(identifier);
            await page.evaluate(async () =>
                (await navigator.storage.getDirectory()).removeEntry('mine.gguf')
            );
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'tiny.gguf', 'of a file that is gone');
            expect(await visible(page, 'error'), false, 'a message');

            const path = join(scratch, 'dropped.gguf');
            copyFileSync(tinyPath, path);
            const drag = await dragOver(page, path);
            for (const type of ['dragEnter', 'dragOver', 'drop']) await drag(type);
            await named(page, 'dropped.gguf');
            await page.reload();
            await until(page, () =>
                ['model-name', 'notice-text'].some(id =>
                    document.getElementById(id).textContent.includes('dropped.gguf')
                )
            );
        });
    },

    // Where there are no handles, the browser keeps a copy, which can be deleted.
    async a_file_is_copied() {
        await visit(async page => {
            await ready(page);
            const path = join(scratch, 'chosen.gguf');
            copyFileSync(tinyPath, path);
            await chooseFile(page, path);
            await named(page, 'chosen.gguf');
            await ready(page);
            await until(page, () => !document.getElementById('keep-file').hidden);
            await page.evaluate(() => {
                globalThis.showOpenFilePicker = async () => {
                    throw new DOMException('Not in a frame.', 'SecurityError');
                };
                document.getElementById('file').onclick = e => {
                    e.preventDefault();
                    globalThis.picks = true;
                };
                document.getElementById('pick').click();
            });
            await until(page, () => globalThis.picks);
            expect(await visible(page, 'error'), false, 'a message');
            expect(await text(page, 'keep-file'), 'Keep a copy in this browser, 1.7 MB', 'button');
            await page.$eval('#keep-file', e => e.click());
            await until(page, () => !document.getElementById('file-kept').hidden);
            expect(await text(page, 'file-kept-text'), 'A copy of chosen.gguf, 1.7 MB', 'kept');
            expect(await visible(page, 'keep-file'), false, 'another copy is offered');
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'chosen.gguf', 'after a reload');
            await completion(page);
            expect(await write(page, PROMPT), story(), 'text');
            await page.$eval('#file-kept-delete', e => e.click());
            await until(page, () => document.getElementById('file-kept').hidden);
            await page.reload();
            await ready(page);
            expect(await text(page, 'model-name'), 'tiny.gguf', 'after the copy was deleted');
        });
    },

    // The worker ends, and no event says so: the model is loaded again, and the reply goes on.
    async a_worker_that_ends_in_silence() {
        hooks.set(
            '/bitnet.js',
            rebuilt({
                'client/connection.js': s =>
                    s
                        .replace('BEAT_MS = 5000', 'BEAT_MS = 500')
                        .replace('BEATS = 12', 'BEATS = 6')
                        .replace(
                            'this.#worker = startWorker(engine, {',
                            'const first = !globalThis.workers; globalThis.workers = 1; $&'
                        )
                        .replace(
                            /(onLost: event => this.close\(crash\(event\)\)\s*\}\);)/,
                            '$1 if (first) this.#worker.postMessage({ beat: "first" });'
                        ),
                'worker/worker.js': s =>
                    s.replace(
                        'if (beat) return',
                        "if (beat === 'first') globalThis.isFirst = true;\n    $&"
                    ),
                'worker/generate.js': s =>
                    s.replace(
                        /post\(\{ id, event: \{ token.*/,
                        '$& if (globalThis.isFirst && index === 19) ' +
                            '{ self.close(); await new Promise(() => {}); }'
                    ),
            })
        );
        await visit(async page => {
            await ready(page);
            await completion(page);
            const begun = await write(page, PROMPT);
            check(native('-p', PROMPT, '-n', '200').startsWith(begun), `${begun} is another text`);
            check(begun.length > story().length, 'it did not go on');
            expect(await visible(page, 'error'), false, 'a message');
            expect(await page.evaluate(() => document.body.dataset.state), 'ready', 'state');
            expect(await count(page, '.turn'), 1, 'turns');
            expect((await write(page, PROMPT)).length, story().length, 'the next text');
        });
    },
};
