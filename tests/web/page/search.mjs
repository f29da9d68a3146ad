// search.mjs - Search.
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newPage } from '../browsers.mjs';
import { sendFile } from '../serve.mjs';
import {
    axe,
    check,
    count,
    dragOver,
    edited,
    errorTitle,
    expect,
    firefox,
    hooks,
    isolated,
    loads,
    named,
    openUrl,
    PHONE,
    picture,
    ready,
    requests,
    ROOT,
    scratch,
    searching,
    settings,
    site,
    Skip,
    text,
    texts,
    until,
    visible,
    visit,
    write,
} from './driver.mjs';

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
// Adds a folder of these files, by their paths.
async function addFolder(page, files, folder = mkdtempSync(join(scratch, 'folder-'))) {
    for (const [path, content] of Object.entries(files)) {
        mkdirSync(join(folder, path, '..'), { recursive: true });
        writeFileSync(join(folder, path), content);
    }
    await (
        await page.$('#text-folder')
    ).uploadFile(join(folder, Object.keys(files)[0].split('/')[0]));
    return folder;
}
const names = page => texts(page, '#texts .name');
const listed = async (page, n) => {
    await until(
        page,
        x =>
            document.querySelectorAll('#texts li').length === x &&
            !/reading/.test(document.getElementById('texts-about').textContent),
        n
    );
    return (await names(page)).sort().join();
};
// What the texts say, by their names.
const said = page =>
    page.evaluate(async () => {
        const { texts } = await import('./library.js');
        return Object.fromEntries(texts.map(({ name, text }) => [name, text]));
    });

// Words in hexadecimal digits are in GBK, and of a Chinese font that the file does not have inside.
const CHINESE =
    '<< /Type /Font /Subtype /Type0 /BaseFont /SimSun /Encoding /GBK-EUC-H /DescendantFonts [<< ' +
    '/Type /Font /Subtype /CIDFontType2 /BaseFont /SimSun /CIDSystemInfo << /Registry (Adobe) ' +
    '/Ordering (GB1) /Supplement 2 >> /FontDescriptor << /Type /FontDescriptor /FontName /SimSun ' +
    '/Flags 4 /FontBBox [0 -200 1000 900] /ItalicAngle 0 /Ascent 900 /Descent -200 /CapHeight 700 ' +
    '/StemV 80 >> >>] >>';

// A PDF of one page with this text, or a file of which nothing is wrong but that it has none.
function pdf(words, font = '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>') {
    const shown = font === CHINESE ? `<${words}>` : `(${words})`,
        stream = words ? `BT /F1 12 Tf 72 700 Td ${shown} Tj ET` : '0 0 m 9 9 l S',
        objects = [
            '<< /Type /Catalog /Pages 2 0 R >>',
            '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
            '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R ' +
                '/Resources << /Font << /F1 5 0 R >> >> >>',
            `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
            font,
        ];
    let file = '%PDF-1.4\n';
    const places = objects.map((object, i) => {
        const at = file.length;
        file += `${i + 1} 0 obj\n${object}\nendobj\n`;
        return `${String(at).padStart(10, '0')} 00000 n \n`;
    });
    return (
        `${file}xref\n0 6\n0000000000 65535 f \n${places.join('')}` +
        `trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${file.length}\n%%EOF\n`
    );
}

// A paragraph with a text box, which stands there once more for older programs.
const TEXT_BOX =
    'Out</w:t><w:noBreakHyphen/><w:Choice><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>' +
    '<w:r><w:t>In</w:t></w:r></w:p></w:Choice>' +
    '<w:Fallback><w:p><w:r><w:t>In</w:t></w:r></w:p></w:Fallback><w:t>side';

// A Word file of these paragraphs: a ZIP file that is not compressed.
function word(...paragraphs) {
    const name = Buffer.from('word/document.xml'),
        xml = Buffer.from(
            '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>' +
                paragraphs.map(p => `<w:p><w:r><w:t>${p}</w:t></w:r></w:p>`).join('') +
                '</w:body></w:document>'
        ),
        local = Buffer.alloc(30),
        central = Buffer.alloc(46),
        end = Buffer.alloc(22);
    local.writeUInt32LE(0x04034b50, 0);
    central.writeUInt32LE(0x02014b50, 0);
    for (const [header, at] of [
        [local, 18],
        [central, 20],
    ]) {
        header.writeUInt32LE(xml.length, at);
        header.writeUInt32LE(xml.length, at + 4);
        header.writeUInt16LE(name.length, at + 8);
    }
    end.writeUInt32LE(0x06054b50, 0);
    end.writeUInt16LE(1, 8);
    end.writeUInt16LE(1, 10);
    end.writeUInt32LE(46 + name.length, 12);
    end.writeUInt32LE(30 + name.length + xml.length, 16);
    return Buffer.concat([local, name, xml, central, name, end]);
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
const paragraph = i =>
    `Paragraph ${i} of a text has this sentence, which is long enough not to be a heading.`;
const paragraphs = n => Array.from({ length: n }, (_, i) => paragraph(i)).join('\n\n');

export const tests = {
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
            check(
                whole.startsWith(paragraph(0)) && whole.endsWith(paragraph(31)),
                'the whole text'
            );
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
            check(
                (await texts(page, '#results .name')).every(t => t === 'b.md'),
                'its passages stay'
            );
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
            expect(
                await text(page, 'drop-text'),
                'Drop files or folders, or a GGUF file',
                'what it says'
            );
            await addTexts(page, { 'b.md': paragraphs(5), 'zero.txt': 'a\0b', 'none.txt': ' \n' });
            await indexed(page, 9);
            expect(await errorTitle(page), 'Not everything can be searched', 'an error');
            const code = await text(page, 'error-code');
            check(/zero\.txt is not a text\. none\.txt is empty\./.test(code), code);
            await page.reload();
            await named(page, 'q.gguf');
            await indexed(page, 9);
            const left = (await texts(page, '#texts .name')).sort().join();
            expect(left, 'Milk and bread.,b.md,b.md (2),c.txt', 'texts after a reload');
        });
    },

    // No text takes the place of another one because of its name; one from a folder that has
    // changed takes its own place.
    async search_keeps_texts_of_one_name() {
        await visit(async page => {
            await ready(page);
            await searching(page);
            await addTexts(page, { 'b.md': 'The first.' });
            expect(await listed(page, 1), 'b.md', 'a file');
            await addTexts(page, { 'b.md': 'The second.' });
            expect(await listed(page, 2), 'b.md,b.md (2)', 'another file of the name');
            await addTexts(page, { 'b.md': 'The second.', 'c.md': 'The third.' });
            expect(await listed(page, 3), 'b.md,b.md (2),c.md', 'the same again');
            if (firefox) return; // nothing can choose or drop a folder there
            const folder = await addFolder(page, {
                'notes/README.md': 'Of the folder.',
                'notes/deep/README.md': 'Deep in it.',
                'notes/.git/config': 'hidden',
            });
            const all = 'b.md,b.md (2),c.md,notes/README.md,notes/deep/README.md';
            expect(await listed(page, 5), all, 'a folder');
            await addFolder(page, { 'notes/README.md': 'It has changed.' }, folder);
            await until(page, async () =>
                (await import('./library.js')).texts.some(t => t.text === 'It has changed.')
            );
            expect(await listed(page, 5), all, 'the folder again');
            const other = mkdtempSync(join(scratch, 'dropped-'));
            mkdirSync(join(other, 'more/in'), { recursive: true });
            writeFileSync(join(other, 'more/a.txt'), 'Once.');
            writeFileSync(join(other, 'more/in/a.txt'), 'Twice.');
            const drag = await dragOver(page, join(other, 'more'));
            for (const type of ['dragEnter', 'dragOver', 'drop']) await drag(type);
            const both = all.replace('notes', 'more/a.txt,more/in/a.txt,notes');
            expect(await listed(page, 7), both, 'a folder that was dropped');
            await page.reload();
            await listed(page, 7);
            const texts = await said(page);
            expect(texts['b.md'], 'The first.', 'the first');
            expect(texts['b.md (2)'], 'The second.', 'the second');
            expect(texts['notes/README.md'], 'It has changed.', 'what has changed');
            await page.$eval('#remove-texts', e => e.click()); // which moves while the page grows
            await page.$eval('.ask .yes', e => e.click());
            expect(await listed(page, 0), '', 'what is left');
            check(!(await visible(page, 'remove-texts')), 'there is nothing to remove');
            await page.reload();
            await ready(page);
            expect((await names(page)).join(), '', 'what is left after a reload');
        });
    },

    // What a file says is read in its encoding, and PDF and Word files by what is loaded for them.
    // What cannot be read is refused by its name.
    async search_reads_files_or_says_why_not() {
        const canRead = existsSync(join(site, 'documents.js')); // npm could get what reads them
        await visit(async page => {
            await ready(page);
            await searching(page);
            const words = 'Grüße, 世界';
            const swapped = Buffer.from(words, 'utf16le').swap16();
            await addTexts(page, {
                'utf8.txt': `\ufeff${words}`,
                'utf16le.txt': Buffer.from(`\ufeff${words}`, 'utf16le'),
                'utf16be.txt': Buffer.concat([Buffer.from([0xfe, 0xff]), swapped]),
                'unmarked.txt': Buffer.from('Plain words of a text.', 'utf16le'),
                'latin1.txt': Buffer.from('Gr\xfc\xdfe', 'latin1'),
                'shift-jis.txt': Buffer.from([0x93, 0xfa, 0x96, 0x7b, 0x8c, 0xea]),
            });
            const read = 'unmarked.txt,utf16be.txt,utf16le.txt,utf8.txt';
            expect(await listed(page, 4), read, 'texts');
            const texts = await said(page);
            for (const name of ['utf8.txt', 'utf16le.txt', 'utf16be.txt'])
                expect(texts[name], words, name);
            expect(texts['unmarked.txt'], 'Plain words of a text.', 'UTF-16 without a mark');
            const told = await text(page, 'error-code');
            for (const name of ['latin1.txt', 'shift-jis.txt'])
                check(told.includes(`${name} is in another encoding`), `${name}: ${told}`);
            const loaded = () => requests.filter(r => r.path.startsWith('/documents')).length;
            expect(loaded(), 0, 'requests before there is a PDF');
            const gone = (req, res, headers) => {
                res.writeHead(404, { 'Content-Type': 'text/javascript', ...headers }).end();
                return true;
            };
            hooks.set('/documents.js', gone);
            await addTexts(page, { 'a.pdf': pdf('Words of a page') });
            await until(page, () =>
                /a\.pdf is a PDF/.test(document.getElementById('error-code').textContent)
            );
            hooks.delete('/documents.js');
            if (!canRead) return;
            await page.reload();
            await ready(page);
            await addTexts(page, {
                'a.pdf': pdf('Words of a page'),
                'b.docx': word('One paragraph.', 'Another &amp; one.', TEXT_BOX),
                'c.pdf': pdf('C4E3BAC3CAC0BDE7', CHINESE),
                'scan.pdf': pdf(''),
                'cut.pdf': pdf('Words').slice(0, 200),
                'other.zip': Buffer.concat([Buffer.from('PK\x03\x04'), Buffer.alloc(60)]),
            });
            expect(await listed(page, 7), `a.pdf,b.docx,c.pdf,${read}`, 'with PDFs');
            const more = await said(page);
            expect(more['a.pdf'].trim(), 'Words of a page', 'a PDF');
            expect(more['c.pdf'].trim(), '你好世界', 'a Chinese PDF');
            expect(more['b.docx'], 'One paragraph.\n\nAnother & one.\n\nOut-side\n\nIn', 'a Word file');
            const refused = await text(page, 'error-code');
            for (const part of ['scan.pdf has no text', 'cut.pdf', 'other.zip is not a text'])
                check(refused.includes(part), `${part}: ${refused}`);
        });
    },

    // 500 files: each gets its line once.
    async search_lists_many_files() {
        await visit(async page => {
            await ready(page);
            await searching(page);
            await page.evaluate(() => {
                globalThis.made = 0;
                new MutationObserver(all =>
                    all.forEach(m => (globalThis.made += m.addedNodes.length))
                ).observe(document.getElementById('texts'), { childList: true });
            });
            await addTexts(
                page,
                Object.fromEntries(
                    Array.from({ length: 500 }, (_, i) => [`${i}.txt`, paragraph(i)])
                )
            );
            await listed(page, 500);
            expect(await page.evaluate(() => globalThis.made), 500, 'lines that were made');
            expect(await text(page, 'texts-about'), '500 texts, 500 passages', 'what it says');
        });
    },

    async search_in_two_tabs() {
        needEmbedding('q.gguf');
        await visit(async (one, context) => {
            await ready(one);
            await searching(one);
            await openEmbedding(one, 'q.gguf');
            const two = await newPage(context);
            await two.goto(isolated.url);
            await named(two, 'q.gguf');
            await searching(two);
            await indexed(two, 0);
            await addTexts(one, { 'a.txt': paragraphs(9), 'b.md': asked('Who sings?') });
            await indexed(one, 10);
            await indexed(two, 10); // without its own work
            expect(await listed(two, 2), 'a.txt,b.md', 'texts of the other tab');
            expect((await found(two, 'Who sings?'))[0], `b.md 1.00 ${asked('Who sings?')}`, 'nearest');
            await one.bringToFront();
            await found(one, 'Who sings?');
            await two.bringToFront();
            await two.click('#texts-about');
            await two.click('button[aria-label="Remove b.md"]');
            await two.click('.ask .yes');
            await indexed(one, 9);
            expect(await listed(one, 1), 'a.txt', 'texts after one was removed');
            const passages = await texts(one, '#results .name');
            expect(passages.filter(name => name === 'b.md').length, 0, 'passages of it');
        });
    },

    async search_index_is_kept() {
        needEmbedding('q.gguf', 'g.gguf');
        const absent = (req, res, headers) => {
            res.writeHead(404, headers).end();
            return true;
        };
        hooks.set('/sw.js', absent); // the page is not kept, nor the tiny model with it
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
            hooks.set('/tiny.gguf', absent);
            await page.reload();
            await errorTitle(page);
            expect(await count(page, '#texts li'), 1, 'texts without a model');
            hooks.delete('/tiny.gguf');
            await loads(page, () =>
                page.evaluate(() => document.getElementById('use-tiny').click())
            );
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
        hooks.set(
            '/library.js',
            edited('library.js', s => s.replace('AT_ONCE = 64', 'AT_ONCE = 4'))
        );
        await visit(async page => {
            await ready(page);
            await searching(page);
            await openEmbedding(page, 'q.gguf');
            await addTexts(page, { 'a.txt': paragraphs(1500), 'b.txt': asked('a cat') });
            await until(page, () =>
                /^Indexing: [1-9]/.test(document.getElementById('indexing-text').textContent)
            );
            await page.click('#indexing-cancel');
            await until(page, () => document.body.dataset.indexed > 0);
            const done = await page.evaluate(() => Number(document.body.dataset.indexed));
            check(done > 0 && done < 1501, `${done} passages are done`);
            check(await visible(page, 'unindexed'), 'the rest cannot be indexed');
            expect(
                (await found(page, 'a cat')).length,
                Math.min(done, 20),
                'what is done is found'
            );
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
            console.log(
                `    10,000 passages: added in ${add}; a question ${find}; opened in ${reload}`
            );
        });
    },

    async search_fits_every_screen() {
        needEmbedding('q.gguf');
        const sizes = {
            phone: PHONE,
            tablet: { width: 800, height: 1100 },
            desktop: { width: 1280, height: 800 },
        };
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
                        expect(
                            await page.evaluate(() => document.activeElement.id),
                            'url',
                            'focus'
                        );
                        await openEmbedding(page, 'q.gguf');
                        await addTexts(page, {
                            'Notes about the garden and what grows in it.md':
                                `# The garden\n\n${asked('When do I sow?')}\n\n` +
                                'Sow beans when the soil is warm, in the second half of May. '.repeat(
                                    9
                                ),
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
};
