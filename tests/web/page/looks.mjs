// looks.mjs - what the page looks like, the keyboard, and accessibility.
import {
    asTiny,
    axe,
    check,
    checked,
    errorTitle,
    expect,
    fill,
    firefox,
    hooks,
    isolated,
    loads,
    openUrl,
    PHONE,
    picture,
    plain,
    ready,
    settings,
    Skip,
    texts,
    tiny,
    until,
    value,
    violations,
    visible,
    visit,
    write,
} from './driver.mjs';
import { ARTICLE, markdown, sayings } from './replies.mjs';

export const tests = {
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
            await page.$$eval('#panel details', all => all.forEach(e => (e.open = true)));
            await until(page, () => /about/.test(document.getElementById('offers').textContent));
            await page.evaluate(() => document.querySelector('.skip').focus());
            for (let i = 0; i < 90; i++) {
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
                'toy-more',
                'name link',
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

    // axe finds nothing in any state. Colours do not depend on the width, nor the layout on the
    // colours.
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
                    await page.$$eval('#panel details', all => all.forEach(e => (e.open = true)));
                    await until(page, () =>
                        /about/.test(document.getElementById('offers').textContent)
                    );
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
                const above = await page.evaluate(() => {
                    const top = id => document.getElementById(id).getBoundingClientRect().top;
                    return top('scroll') - top('error-title');
                });
                check(above <= 0, `${where}: the error's title is ${above} px above what is seen`);
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
                expect(await violations(page), '', `${where}: accessibility`);
                await picture(page, `${width}x${height}`);
            }
            await page.setViewport({ width: 1280, height: 800 });
            await until(page, () => document.body.clientHeight === 800);
            check(await visible(page, 'f-decode'), 'the figures do not come back');
        });
    },

    // Text of 200 and 300 % on a phone: everything can be reached, and nothing is cut off.
    async large_text() {
        for (const percent of [200, 300])
            await visit(
                async page => {
                    await ready(page);
                    await page.evaluate(n => {
                        document.documentElement.style.fontSize = `${n}%`;
                        dispatchEvent(new Event('resize'));
                    }, percent);
                    await write(page, 'Who are you?', { maxTokens: 10 });
                    for (const kind of ['chat', 'text', 'search']) {
                        await page.$eval(`input[value=${kind}]`, e => e.click());
                        const where = `${percent} %, ${kind}`;
                        const out = await page.evaluate(() =>
                            [...document.querySelectorAll('header *, main *')]
                                .filter(e => e.checkVisibility() && !e.closest('.hidden'))
                                .filter(e => {
                                    const { left, right } = e.getBoundingClientRect();
                                    return right > innerWidth + 1 || left < -1;
                                })
                                .map(e => e.id || e.className || e.textContent)
                        );
                        expect(out.join(), '', `${where}: beyond the edge`);
                        for (const place of ['#send', 'input[value=search] + span', '#prompt']) {
                            const seen = await page.$eval(place, e => {
                                e.scrollIntoView({ block: 'center' });
                                const { left, top, width, height } = e.getBoundingClientRect(),
                                    at = document.elementFromPoint(
                                        left + width / 2,
                                        top + height / 2
                                    );
                                return e.contains(at);
                            });
                            check(seen, `${where}: ${place} cannot be pressed`);
                        }
                        const height = await page.$eval(
                            '#scroll',
                            e => e.clientHeight / innerHeight
                        );
                        check(
                            height > 0.3,
                            `${where}: the conversation has ${height} of the height`
                        );
                        await picture(page, `text-${percent}-${kind}`);
                    }
                },
                { viewport: PHONE }
            );
    },

    // With the system's colours there are no shadows: what has the focus and what is a button is
    // seen by lines.
    async forced_colours() {
        if (firefox) throw new Skip('there is no such switch for Firefox');
        await visit(async page => {
            await ready(page);
            const cdp = await page.createCDPSession();
            await cdp.send('Emulation.setEmulatedMedia', {
                features: [{ name: 'forced-colors', value: 'active' }],
            });
            await page.focus('#prompt');
            const line = (selector, kind) =>
                page.$eval(
                    selector,
                    (e, k) => {
                        const s = getComputedStyle(e);
                        return s[`${k}Style`] === 'none' ? 0 : parseFloat(s[`${k}Width`]);
                    },
                    kind
                );
            check((await line('.composer', 'outline')) >= 2, 'the focus of the prompt is not seen');
            check((await line('#send', 'borderTop')) >= 1, 'Send has no border');
            expect(await violations(page), '', 'axe');
            await picture(page, 'forced-colours');
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
                drawer(body)('| שלום |\n|---|\n| 1 |\n\n- שלום, עולם!\n- Hello!\n\nHello!');
                return [...body.querySelectorAll('.table, ul, p')]
                    .slice(-3)
                    .map(e => getComputedStyle(e).direction);
            });
            expect(list.join(), 'rtl,rtl,ltr', 'a table, a list, and what follows');
        });
    },

    async on_paper() {
        if (firefox) throw new Skip('Firefox is not told of other media');
        sayings(['word\n\n'.repeat(100)]);
        await visit(async page => {
            await ready(page);
            await write(page, 'Say a lot.');
            await page.emulateMediaType('print');
            for (const id of ['form', 'panel', 'toy', 'new', 'notice'])
                expect(await visible(page, id), false, `${id} is printed`);
            const [last, page1] = await page.evaluate(() => [
                document.querySelector('.turn.reply').getBoundingClientRect().bottom,
                document.documentElement.scrollHeight,
            ]);
            check(last > 1600 && last <= page1 + 1, `${last} of ${page1}: the page scrolls inside`);
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
                    await page.$$eval('#panel details', all => all.forEach(e => (e.open = true)));
                    await fill(page, 'topP', '7');
                    await page.focus('#topK');
                    await openUrl(page, `${isolated.url}nowhere.gguf`);
                    await errorTitle(page);
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
};
