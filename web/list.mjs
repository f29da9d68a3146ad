// list.mjs - writes into the page's sw.js which files the page has, with the SHA-256 of each: what the
// service worker keeps as one version.
//
//     node web/list.mjs FOLDER
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const PART = /\.(js|css|html|json|wasm|gguf)$|^crosscheck\.txt$/;
// The browser's, the package's, and what few need.
const OTHERS = ['sw.js', 'node.js', 'inline.js', 'package.json', 'documents.js'];

/** The files of the page in a folder, as { address: SHA-256 }. instead has other contents by name. */
export function pageFiles(folder, instead = {}) {
    const names = readdirSync(folder, { recursive: true }).filter(
        name => PART.test(name) && !OTHERS.includes(name)
    );
    return Object.fromEntries(
        names.sort().map(name => {
            const bytes = instead[name] ?? readFileSync(join(folder, name)),
                hash = createHash('sha256').update(bytes).digest('base64');
            return [name === 'index.html' ? './' : name, `sha256-${hash}`];
        })
    );
}

/** The text of sw.js with such a list. */
export function listed(text, files) {
    const line = /^const FILES = .*;$/m;
    if (!line.test(text)) throw new Error('sw.js has another form');
    return text.replace(line, `const FILES = ${JSON.stringify(files)};`);
}

export function list(folder) {
    const path = join(folder, 'sw.js');
    writeFileSync(path, listed(readFileSync(path, 'utf8'), pageFiles(folder)));
}

if (import.meta.url === pathToFileURL(resolve(process.argv[1])).href) list(process.argv[2]);
