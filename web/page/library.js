// library.js - the texts that are searched: their passages, the vectors that the open model makes of
// them, and which passages are nearest to a question. search.js shows all this. A text:
//
//     { id, name, file, note, text, spans, vectors, done }    vectors: of the first `done` passages
//
// A file from a folder has its path as its name. file: the name before one like it got a number.
import { passages } from './passages.js';
import * as store from './texts.js';

// What a question is searched with; documents are read as they are.
const TASK = 'Given a web search query, retrieve relevant passages that answer the query';
const MOST_BYTES = 20e6; // of a file
const AT_ONCE = 64; // passages whose vectors are kept together
const SHORT = 1000; // ms that making them should take at most
const PART = 1000; // passages that are compared without a pause

export const texts = [];
let space = null; // { model, key } of the vectors
let newest = null; // the model that useModel() was called with last

const pause = () => new Promise(next => setTimeout(next));
export const embeds = model => model?.info.hasHead === false;
export const passageCount = text => text.spans.length / 2;
export const total = () => texts.reduce((n, text) => n + passageCount(text), 0);
export const indexed = () => texts.reduce((n, text) => n + text.done, 0);
export const spanOf = (text, i) => [text.spans[2 * i], text.spans[2 * i + 1]];
const passageOf = (text, i) => text.text.slice(...spanOf(text, i));

// When the texts that were kept are there.
export const opened = store.all().then(kept => {
    for (const text of kept) texts.push({ ...text, vectors: null, done: 0 });
});

// ---- texts ----

async function newText(content) {
    const spans = [];
    for (const place of passages(content)) {
        spans.push(...place);
        if (spans.length % 2000 === 0) await pause();
    }
    const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    return { id, text: content, spans: Uint32Array.from(spans) };
}

// What keeps a file from being searched, or ''.
async function add(file, content, note) {
    await opened;
    const text = await newText(content);
    if (!text.spans.length) return `${file} is empty.`;
    const same = texts.filter(t => (t.file ?? t.name) === file && t.note === note);
    if (same.some(t => t.text === content)) return '';
    const name = note || !same.length || file.includes('/') ? file : numbered(file);
    if (file.includes('/') && !note) for (const old of same) await remove(old); // it has changed
    Object.assign(text, { name, file, note });
    texts.push({ ...text, vectors: null, done: 0 });
    await store.keep(text);
    return '';
}

// A file alone does not tell where it was, so one of the same name may be another one.
function numbered(file) {
    let n = 2;
    while (texts.some(t => t.name === `${file} (${n})`)) n++;
    return `${file} (${n})`;
}

// path: of the file in its folder, or its name.
export async function addFile(file, path) {
    if (file.size > MOST_BYTES) return `${path} has over 20 MB.`;
    const { textOf } = await import('./readers.js');
    return add(path, await textOf(path, file), false);
}

export function addNote(content) {
    const begins = content.trim().replace(/\s+/g, ' ');
    return add(begins.length > 48 ? `${begins.slice(0, 47)}…` : begins || 'The note', content, true);
}

export async function remove(text) {
    const i = texts.indexOf(text);
    if (i >= 0) texts.splice(i, 1);
    await store.remove(text.id);
}

export async function clear() {
    const ids = texts.map(text => text.id);
    texts.length = 0;
    await store.clear(ids);
}

// Another tab has added this text, indexed some of it, or removed it.
async function refresh(id) {
    await opened;
    const there = await store.one(id),
        i = texts.findIndex(text => text.id === id);
    if (!there && i >= 0) texts.splice(i, 1);
    if (there && i < 0) texts.push({ ...there, vectors: null, done: 0 });
    const now = space,
        entries = there && now ? await store.vectorsOf(id, now.key) : [],
        text = texts.find(t => t.id === id);
    if (text && now === space) placeAll(text, entries);
}

// Calls f when another tab has changed texts, and it is so here.
export const watch = f =>
    store.watch(async ids => {
        for (const id of ids) await refresh(id).catch(() => {}); // it stays as it is
        f();
    });

// ---- vectors ----

// The same for the same weights only: the bits of a vector do not depend on the machine.
async function keyOf(model) {
    const [vector] = await model.embed('bitnet.h', { cut: true });
    const bits = [...new Uint32Array(vector.buffer, 0, 4)];
    return `${model.info.dims} ${bits.map(n => n.toString(16)).join(' ')}`;
}

function place(text, { first, vectors }) {
    const { dims } = space.model.info;
    text.vectors ??= new Float32Array(passageCount(text) * dims);
    text.vectors.set(vectors, first * dims);
    text.done = first + vectors.length / dims;
}

function placeAll(text, entries) {
    for (const entry of entries) if (entry.first === text.done) place(text, entry);
}

// Takes the vectors that were kept of this model; null, or one that writes text: there are none.
export async function useModel(model) {
    space = null;
    newest = model;
    for (const text of texts) Object.assign(text, { vectors: null, done: 0 });
    if (!embeds(model)) return;
    const now = { model, key: await keyOf(model) };
    await opened;
    const kept = [];
    for (const text of texts) kept.push([text, await store.vectorsOf(text.id, now.key)]);
    if (model !== newest) return;
    space = now;
    for (const [text, entries] of kept) placeAll(text, entries);
}

// Makes the vectors that are missing, some at a time; each time they are kept. onProgress(text, n): n
// passages are done, of which the last was in this text.
export async function index({ signal, onProgress }) {
    let most = 1;
    for (let text; (text = texts.find(t => t.done < passageCount(t))); ) {
        const { model, key } = space,
            first = text.done,
            n = Math.min(most, passageCount(text) - first),
            start = performance.now();
        const some = Array.from({ length: n }, (_, i) => passageOf(text, first + i));
        const got = await model.embed(some, { cut: true, signal });
        if (space?.model !== model) return;
        const vectors = new Float32Array(n * model.info.dims);
        got.forEach((vector, i) => vectors.set(vector, i * vector.length));
        const entry = { text: text.id, model: key, first, vectors };
        place(text, entry);
        if (texts.includes(text)) await store.keepVectors(entry);
        onProgress(text, indexed());
        const took = performance.now() - start;
        if (took < SHORT / 2) most = Math.min(2 * most, AT_ONCE);
        else if (took > SHORT) most = Math.max(1, most >> 1);
    }
}

function scoreOf(vectors, at, query) {
    let sum = 0;
    for (let i = 0; i < query.length; i++) sum += vectors[at + i] * query[i];
    return sum;
}

// The n passages that are nearest to the question, the best first: { text, i, score }.
export async function nearest(question, n) {
    const { model } = space,
        [query] = await model.embed(question, { query: TASK, cut: true }),
        best = [];
    let seen = 0;
    for (const text of [...texts])
        for (let i = 0; i < text.done; i++) {
            const score = scoreOf(text.vectors, i * query.length, query);
            if (best.length < n || score > best.at(-1).score) {
                const at = best.findIndex(b => b.score < score);
                best.splice(at < 0 ? best.length : at, 0, { text, i, score });
                best.length = Math.min(best.length, n);
            }
            if (++seen % PART === 0) await pause();
        }
    return best.filter(b => texts.includes(b.text));
}
