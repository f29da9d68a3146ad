// readers.js - what a file says, as text. PDF and Word files are read by libraries that come when
// such a file is there. What cannot be read is refused, by a sentence about what it is.

const UTF8 = new TextDecoder('utf-8', { fatal: true });

const begins = (bytes, ...first) => first.every((byte, i) => bytes[i] === byte);

// Which of UTF-16's orders texts without a mark have: half of most texts' bytes is then 0.
function utf16Of(bytes) {
    const zeros = [0, 0];
    const some = bytes.subarray(0, 4096);
    some.forEach((byte, i) => (zeros[i % 2] += byte === 0));
    const [even, odd] = zeros.map(n => n > some.length / 8);
    if (bytes.length % 2) return '';
    return odd && !zeros[0] ? 'utf-16le' : even && !zeros[1] ? 'utf-16be' : '';
}

function decode(name, bytes) {
    const utf16 = begins(bytes, 0xff, 0xfe)
        ? 'utf-16le'
        : begins(bytes, 0xfe, 0xff)
          ? 'utf-16be'
          : utf16Of(bytes);
    if (!utf16 && bytes.includes(0)) throw new Error(`${name} is not a text.`);
    try {
        const text = (utf16 ? new TextDecoder(utf16, { fatal: true }) : UTF8).decode(bytes);
        if (!text.includes('\0')) return text;
    } catch {
        throw new Error(`${name} is in another encoding than UTF-8 or UTF-16. Save it as UTF-8.`);
    }
    throw new Error(`${name} is not a text.`);
}

async function libraries(name, kind) {
    try {
        return await import('./documents.js');
    } catch {
        throw new Error(`${name} is a ${kind}, and what reads those could not be loaded.`);
    }
}

// ---- PDF ----

async function workerOf(name) {
    const response = await fetch(new URL('documents-worker.txt', import.meta.url)).catch(
        () => null
    );
    if (!response?.ok)
        throw new Error(`${name} is a PDF, and what reads those could not be loaded.`);
    const url = URL.createObjectURL(new Blob([await response.text()], { type: 'text/javascript' }));
    const worker = new Worker(url, { type: 'module' }); // of a Blob: it is as isolated as the page
    URL.revokeObjectURL(url);
    return worker;
}

const PDF_ERRORS = {
    PasswordException: 'is protected by a password.',
    InvalidPDFException: 'is damaged: it is no PDF that can be read.',
};

async function pdfText(name, data) {
    const { getDocument, PDFWorker } = await libraries(name, 'PDF'),
        port = await workerOf(name),
        // Chinese, Japanese and Korean texts may need one of these tables, which then comes.
        cMapUrl = new URL('cmaps/', import.meta.url).href,
        task = getDocument({ data, worker: new PDFWorker({ port }), cMapUrl, verbosity: 0 });
    try {
        const pdf = await task.promise,
            pages = [];
        for (let i = 1; i <= pdf.numPages; i++) {
            const { items } = await (await pdf.getPage(i)).getTextContent();
            pages.push(
                items.map(({ str, hasEOL }) => `${str ?? ''}${hasEOL ? '\n' : ''}`).join('')
            );
        }
        const text = pages.join('\n\n');
        if (text.trim()) return text;
    } catch (e) {
        throw new Error(`${name} ${PDF_ERRORS[e.name] ?? `cannot be read: ${e.message}`}`);
    } finally {
        await task.destroy().catch(() => {});
        port.terminate();
    }
    throw new Error(`${name} has no text. It may be scanned.`);
}

// ---- Word ----

const MOST_XML = 100e6; // bytes of a document's text, unpacked

async function wordText(name, bytes) {
    const { unzipSync } = await libraries(name, 'Word file'),
        isText = ({ name: part, originalSize }) =>
            part === 'word/document.xml' && originalSize < MOST_XML;
    let files = {};
    try {
        files = unzipSync(bytes, { filter: isText });
    } catch {
        /* no ZIP file */
    }
    const xml = files['word/document.xml'];
    if (!xml) throw new Error(`${name} is not a text, and no Word file that can be read.`);
    const tree = new DOMParser().parseFromString(new TextDecoder().decode(xml), 'application/xml'),
        parts = { tab: '\t', br: '\n', noBreakHyphen: '-' };
    // A paragraph may have text boxes with others inside, and once more as what older programs show.
    return [...tree.querySelectorAll('p')]
        .filter(p => !p.closest('Fallback'))
        .map(p =>
            [...p.querySelectorAll('r > *')]
                .filter(e => e.closest('p') === p)
                .map(e => (e.localName === 't' ? e.textContent : (parts[e.localName] ?? '')))
                .join('')
        )
        .join('\n\n');
}

/** What a file says; throws an error whose message tells the user why that is not known. */
export async function textOf(name, file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (begins(bytes, 0x25, 0x50, 0x44, 0x46)) return pdfText(name, bytes);
    if (begins(bytes, 0x50, 0x4b, 3, 4)) return wordText(name, bytes);
    return decode(name, bytes);
}
