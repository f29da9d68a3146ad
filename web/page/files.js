// files.js - a model that was opened from the disk is there again at the next visit: the browser keeps
// the way to the file, as Chromium can, or a copy of it, if the user wants one.
import { showError } from './app.js';
import { BitNetError } from './bitnet.js';
import { database } from './database.js';
import { $, announce } from './dom.js';
import { bytes } from './format.js';
import { local } from './storage.js';

const OPENED = 'file:'; // begins local's “model”; the name of the file follows
const COPY = 'bitnet-model-file'; // in the browser's private file system

const ways = new Map(); // file -> a promise of its handle
const keyOf = ({ name, size, lastModified }) => `${size} ${lastModified} ${name}`;

// ---- where the way is kept ----

const stored = database('bitnet-file', { last: undefined });
const ask = (kind, f) => stored('last', kind, f);
const read = key => ask('readonly', store => store.get(key));

// 'last' is { name, handle } or { name, copy: true } of the last file, and 'copy' { name }.
async function keep(entry) {
    await ask('readwrite', store => store.put(entry, 'last'));
    local.set('model', OPENED + entry.name);
}

// ---- choosing ----

// Asks for a model's file, or files. null: there is no way to keep, so another field has to ask.
export async function pickFiles() {
    if (!globalThis.showOpenFilePicker) return null;
    const types = [{ description: 'Models', accept: { 'application/octet-stream': ['.gguf'] } }],
        handles = await showOpenFilePicker({ id: 'model', multiple: true, types }).catch(e =>
            e.name === 'AbortError' ? [] : null // as in a frame of another site
        );
    return handles && Promise.all(handles.map(fileOf));
}

async function fileOf(handle) {
    const file = await handle.getFile();
    ways.set(keyOf(file), handle);
    return file;
}

// Of a drop, while it is told: later the browser does not give the ways any more.
export function noteDropped({ items, files }) {
    const dropped = [...items].filter(item => item.kind === 'file');
    [...files].forEach((file, i) => {
        const way = dropped[i]?.getAsFileSystemHandle?.();
        if (way) ways.set(keyOf(file), way.catch(() => null));
    });
}

// ---- a file that is open ----

const directory = () => navigator.storage.getDirectory();
const canCopy = () => 'createWritable' in (globalThis.FileSystemFileHandle?.prototype ?? {});
const copyOf = async name => {
    const file = await (await (await directory()).getFileHandle(COPY)).getFile();
    return new File([file], name, { lastModified: file.lastModified });
};
let current = null, // the open file
    copying = null; // AbortController

// The model of this file is open now; null: one that is no file.
export async function opened(file) {
    current = file;
    copying?.abort();
    $('keep-file').hidden = true;
    if (!file) return;
    try {
        const { name, size } = file,
            handle = await ways.get(keyOf(file));
        if (handle) return await keep({ name, handle });
        const kept = await read('copy');
        if (kept?.name === name && (await copyOf(name)).size === size)
            return await keep({ name, copy: true });
    } catch {
        /* the next visit asks for it */
    }
    if (canCopy() && current === file) showKeep();
}

function showKeep() {
    $('keep-file').hidden = false;
    $('keep-file').textContent = `Keep a copy in this browser, ${bytes(current.size)}`;
}

$('keep-file').onclick = async () => {
    if (copying) return copying.abort();
    const file = current,
        mine = (copying = new AbortController());
    let done = 0;
    const counted = new TransformStream({
        transform(part, to) {
            done += part.length;
            $('keep-file').textContent = `Stop copying: ${Math.floor((100 * done) / file.size)} %`;
            to.enqueue(part);
        },
    });
    try {
        const handle = await (await directory()).getFileHandle(COPY, { create: true }),
            to = await handle.createWritable();
        await file.stream().pipeThrough(counted).pipeTo(to, { signal: mine.signal });
        const { name } = file;
        await ask('readwrite', store => store.put({ name }, 'copy'));
        await keep({ name, copy: true });
        announce(`A copy of ${name} is kept.`);
        $('keep-file').hidden = true;
    } catch (e) {
        if (current === file) showKeep();
        if (!mine.signal.aborted)
            showError(
                new BitNetError(e.name === 'QuotaExceededError' ? 'ERR_QUOTA' : 'ERR_IO', e.message)
            );
    }
    copying = null;
    showCopy();
};

// ---- a copy that is kept ----

export async function showCopy() {
    try {
        const { name } = await read('copy'),
            { size } = await copyOf(name);
        $('file-kept-text').textContent = `A copy of ${name}, ${bytes(size)}`;
        $('file-kept-delete').ariaLabel = `Delete the copy of ${name}`;
        $('file-kept').hidden = false;
    } catch {
        $('file-kept').hidden = true; // there is none
    }
}

$('file-kept-delete').onclick = async () => {
    try {
        await (await directory()).removeEntry(COPY);
        await ask('readwrite', store => store.delete('copy'));
        announce('The copy is deleted.');
    } catch (e) {
        showError(e);
    }
    await showCopy();
    $('h-cache').focus();
};

// ---- the next visit ----

// The file that was open at the last visit: { name, file }, or { name, ask } if the user has to allow
// it again: ask() resolves to the file, or to null. null: there is none.
export async function lastFile() {
    if (!local.get('model')?.startsWith(OPENED)) return null;
    try {
        const { name, copy, handle } = await read('last');
        if (copy) return { name, file: await copyOf(name) };
        const mode = { mode: 'read' };
        if ((await handle.queryPermission?.(mode)) !== 'prompt')
            return { name, file: await fileOf(handle) };
        const allowed = async () =>
            (await handle.requestPermission(mode)) === 'granted' ? fileOf(handle) : null;
        return { name, ask: allowed };
    } catch {
        return null; // it is gone, or nothing was kept
    }
}
