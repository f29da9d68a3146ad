// search.js - the mode Search: the texts, how far they are indexed, a question's passages, and a text
// with a passage marked. library.js has what is shown.
import { app, hideError, mode, notice, showError, toMode, togglePanel, whyNot } from './app.js';
import { BitNetError } from './bitnet.js';
import { $, announce, ask, button, composing, element, once } from './dom.js';
import { digits, duration, plural } from './format.js';
import * as library from './library.js';

const { texts, passageCount } = library;
const BEST = 20;
const AROUND = 20000; // characters of a text that are shown before and behind a passage

const ready = () => library.embeds(app.model);

// ---- the texts ----

const rows = new Map(); // text -> its line, and in that what says how many passages it has

function aboutOf(text) {
    const n = passageCount(text);
    if (!ready() || text.done === n) return plural(n, 'passage');
    return `${digits(text.done, 0)} of ${plural(n, 'passage')} indexed`;
}

function row(text) {
    const li = element('li'),
        name = button(text.name, 'name link', () => read(text)),
        about = element('span', aboutOf(text), 'size');
    const removes = button('Remove', 'quiet', async () => {
        if (!(await ask(li, `Remove “${text.name}”?`, 'Remove'))) return;
        await library.remove(text);
        showWhatIsThere();
        announce(`${text.name} is removed.`);
        ($('texts').querySelector('.name') ?? $('add-files')).focus();
    });
    name.title = text.name;
    name.dir = 'auto';
    removes.ariaLabel = `Remove ${text.name}`;
    li.append(name, about, removes);
    rows.set(text, { li, about });
    return li;
}

// Only what has changed, as there may be many.
function showTexts() {
    const there = new Set(texts);
    for (const [text, { li }] of rows)
        if (!there.has(text)) {
            li.remove();
            rows.delete(text);
        }
    $('texts').append(...texts.filter(text => !rows.has(text)).map(row));
    showState();
}
const showTextsSoon = once(showTexts);

// The texts, and no passages of others.
function showWhatIsThere() {
    const left = shown.filter(found => texts.includes(found.text));
    if (left.length < shown.length) showResults(left);
    showTexts();
}
library.watch(showWhatIsThere);

// How many there are, and what is not indexed.
function showState() {
    const missing = library.total() - library.indexed(),
        again = library.indexed() > 0 ? 'the rest' : 'them';
    for (const [text, { about }] of rows) {
        const now = aboutOf(text);
        if (about.textContent !== now) about.textContent = now;
    }
    $('texts-about').textContent = [
        texts.length
            ? `${plural(texts.length, 'text')}, ${plural(library.total(), 'passage')}`
            : 'No texts yet',
        ...(reading ? [`reading ${digits(reading.done, 0)} of ${plural(reading.all, 'file')}`] : []),
    ].join(' · ');
    $('remove-texts').hidden = texts.length < 2;
    $('search-none').hidden = ready() || !!app.loading;
    $('unindexed').hidden = !ready() || !missing || !!running || loading;
    $('unindexed-text').textContent =
        `${plural(missing, 'passage')} ${missing === 1 ? 'is' : 'are'} not indexed with this model.`;
    $('index').textContent = `Index ${again}`;
    document.body.dataset.indexed = loading || running ? '' : `${library.indexed()}`;
}

const NAMED = 8; // of what cannot be read, so many are told by name
let reading = null; // { done, all } of the files that are added
let before = Promise.resolve(); // what was to be added before, which is first

// Adds files or notes by these functions, each of which says what is wrong.
const add = all => (before = before.then(() => addAll(all)));

async function addAll(all) {
    const wrong = [];
    hideError();
    reading = { done: 0, all: all.length };
    for (const one of all) {
        const problem = await one().catch(e => e.message);
        if (problem) wrong.push(problem);
        reading.done++;
        showTextsSoon();
    }
    reading = null;
    showTexts();
    if (wrong.length > NAMED) wrong.splice(NAMED, Infinity, `And ${wrong.length - NAMED} more.`);
    if (wrong.length) showError(new BitNetError('TEXT', wrong.join(' ')));
    index();
}

// Of a folder, what its owner does not see is left out.
const isHidden = path => path.split('/').some(name => name.startsWith('.'));

export function addFiles(files) {
    const all = [...files].map(file => [file, file.webkitRelativePath || file.name]);
    return addPaths(all);
}
const addPaths = all =>
    add(
        all
            .filter(([, path]) => !(path.includes('/') && isHidden(path)))
            .map(([file, path]) => () => library.addFile(file, path))
    );

// The files in what was dropped, with their paths.
async function* filesOf(entry) {
    if (entry.isFile) {
        const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
        yield [file, entry.fullPath.slice(1)];
    } else if (!isHidden(entry.name)) {
        const reader = entry.createReader();
        for (;;) {
            const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
            if (!some.length) return;
            for (const inner of some) yield* filesOf(inner);
        }
    }
}

// Adds what was dropped if a folder is among it; returns whether.
export function addFolders({ items }) {
    const entries = [...items].flatMap(item => item.webkitGetAsEntry?.() ?? []);
    if (!entries.some(entry => entry.isDirectory)) return false;
    (async () => {
        const all = [];
        for (const entry of entries) for await (const found of filesOf(entry)) all.push(found);
        await addPaths(all);
    })().catch(e => showError(new BitNetError('TEXT', e.message)));
    return true;
}

for (const kind of ['files', 'folder']) {
    const input = $(`text-${kind}`);
    $(`add-${kind}`).onclick = () => input.click();
    input.onchange = () => {
        const files = [...input.files];
        input.value = '';
        addFiles(files);
    };
}
$('remove-texts').onclick = async () => {
    if (!(await ask($('texts-all'), `Remove all ${plural(texts.length, 'text')}?`, 'Remove'))) return;
    running?.abort();
    await library.clear();
    showWhatIsThere();
    announce('All texts are removed.');
    $('add-files').focus();
};

function showNoteForm(on) {
    $('note-form').hidden = !on;
    $('add-note').ariaExpanded = String(on);
    (on ? $('note') : $('add-note')).focus();
    $('note-form').scrollIntoView({ block: 'nearest' });
}
$('add-note').onclick = () => showNoteForm($('note-form').hidden);
$('note-cancel').onclick = () => showNoteForm(false);
$('note-form').onsubmit = e => {
    e.preventDefault();
    const { value } = $('note');
    if (!value.trim()) return $('note').focus();
    $('note').value = '';
    showNoteForm(false);
    add([() => library.addNote(value)]);
};
$('note-form').onkeydown = e => {
    if (e.key !== 'Escape' || composing(e)) return;
    e.stopPropagation();
    showNoteForm(false);
};

library.opened.then(showTexts);

// ---- the index ----

let running = null; // AbortController of the indexing
let loading = false; // of the vectors that were kept

const progress = { done: 0, shown: once(showProgress) };

function showProgress() {
    const all = library.total(),
        { done, from, start } = progress,
        left = ((performance.now() - start) / 1e3 / (done - from)) * (all - done);
    const parts = [`Indexing: ${digits(done, 0)} of ${plural(all, 'passage')}`];
    if (done > from && left > 1) parts.push(`${duration(left)} left`);
    $('indexing-text').textContent = parts.join(' · ');
    $('indexing-bar').value = done / all;
}

async function index() {
    if (running || loading || !ready() || library.indexed() === library.total()) return;
    const mine = (running = new AbortController()),
        { model } = app,
        done = library.indexed();
    Object.assign(progress, { done, from: done, start: performance.now() });
    $('indexing').hidden = false;
    showProgress();
    showState();
    announce(`Indexing ${plural(library.total() - done, 'passage')}.`);
    let error = null;
    try {
        const onProgress = (text, n) => {
            progress.done = n;
            progress.shown();
            if (rows.has(text)) rows.get(text).about.textContent = aboutOf(text);
        };
        await library.index({ signal: mine.signal, onProgress });
    } catch (e) {
        if (!mine.signal.aborted && model === app.model) error = e;
    }
    const focused = $('indexing').contains(document.activeElement);
    running = null;
    $('indexing').hidden = true;
    showState();
    if (error) showError(error, { info: model.info });
    else if (model === app.model) announce(mine.signal.aborted ? 'Stopped.' : 'All passages are indexed.');
    if (focused) ($('unindexed').hidden ? $('prompt') : $('index')).focus();
}

$('index').onclick = () => {
    hideError();
    index();
};
$('indexing-cancel').onclick = () => running?.abort();

// ---- a model ----

let seen = null; // the model whose vectors are there

const toSearch = () => toMode('search');

// Another model is open, or none. Its vectors are taken from the store.
export async function modelChanged() {
    const { model } = app;
    if (model === seen) return showState();
    seen = model;
    running?.abort();
    loading = true;
    showState();
    showResults([]);
    if ($('notice-action').onclick === toSearch) $('notice').hidden = true;
    if (ready() && mode() !== 'search')
        notice(
            `${app.modelName} is a model for searching. It writes no text.`,
            'Search your texts',
            toSearch
        );
    try {
        await library.useModel(model);
    } catch (e) {
        if (model === app.model) showError(e, { info: model.info });
    }
    if (model !== seen) return; // another one came meanwhile
    loading = false;
    showTexts();
}

$('pick-embedding').onclick = () => $('pick').click();
$('address-embedding').onclick = () => {
    togglePanel(true);
    $('url').focus();
};

// ---- a question ----

let asked = 0; // questions
let shown = []; // its passages

export async function search() {
    const question = $('prompt').value.trim();
    const why =
        whyNot() ||
        (loading && 'The index is still being opened.') ||
        (!texts.length && 'There are no texts yet. Add some.') ||
        (!library.indexed() && 'Nothing is indexed yet.');
    if (!question || why) return why && announce(why);
    const mine = ++asked,
        { model } = app;
    hideError();
    closeReader();
    $('results-box').ariaBusy = 'true';
    try {
        const best = await library.nearest(question, BEST);
        if (mine !== asked || model !== app.model) return;
        $('texts-box').open = false;
        showResults(best);
        $('results-title').textContent = `Nearest to “${question}”`;
        $('scroll').scrollTop = 0;
        announce(`${plural(best.length, 'passage')}. The nearest is in ${best[0]?.text.name}.`);
    } catch (e) {
        if (mine === asked && model === app.model) showError(e, { info: model.info });
    } finally {
        $('results-box').ariaBusy = 'false';
        document.body.dataset.searches = Number(document.body.dataset.searches ?? 0) + 1;
    }
}

function showResults(best) {
    shown = best;
    $('results-box').hidden = !best.length;
    $('search').classList.toggle('found', best.length > 0);
    $('results').replaceChildren(
        ...best.map(({ text, i, score }) => {
            const li = element('li'),
                name = button(text.name, 'name link', () => read(text, i, name)),
                passage = element('p', text.text.slice(...library.spanOf(text, i)), 'passage');
            name.dir = passage.dir = 'auto';
            const number = element('span', digits(score, 2), 'score');
            number.title = 'Likeness: 1 is the same direction';
            li.append(name, number, passage);
            return li;
        })
    );
}

// Takes away the question and its passages.
export function newSearch() {
    asked++;
    $('prompt').value = '';
    closeReader();
    showResults([]);
    $('texts-box').open = true;
    hideError();
}

// ---- a text, with a passage marked ----

let back = null; // what gets the focus when the text is closed

function read(text, i, from = document.activeElement) {
    const [start, end] = i === undefined ? [0, 0] : library.spanOf(text, i);
    back = from;
    $('reader-title').textContent = text.name;
    $('reader').hidden = false;
    $('search').classList.add('reads');
    showPart(text.text, start - AROUND, end + AROUND, [start, end]);
    const marked = $('reader-text').querySelector('mark');
    $('reader-title').focus({ preventScroll: true });
    if (marked) marked.scrollIntoView({ block: 'center' });
    else $('scroll').scrollTop = 0;
    if (i !== undefined)
        announce(`Passage ${i + 1} of ${passageCount(text)} is marked.`);
}

// Shows a part of a text, from a line's start to a line's end, with buttons for what is around it.
function showPart(text, from, to, [start, end]) {
    const first = from <= 0 ? 0 : text.lastIndexOf('\n', from) + 1,
        next = to >= text.length ? -1 : text.indexOf('\n', to),
        last = next < 0 ? text.length : next;
    const parts = [text.slice(first, start)];
    if (end > start) parts.push(element('mark', text.slice(start, end)));
    parts.push(text.slice(end, last));
    const more = (label, a, b) =>
        button(label, 'more', () => {
            showPart(text, a, b, [start, end]);
            $('reader-title').focus({ preventScroll: true });
        });
    if (first > 0) parts.unshift(more('Earlier text', first - AROUND, last), '\n');
    if (last < text.length) parts.push('\n', more('Later text', first, last + AROUND));
    $('reader-text').replaceChildren(...parts);
}

// Returns whether there was a text to close.
export function closeReader() {
    if ($('reader').hidden) return false;
    $('reader').hidden = true;
    $('search').classList.remove('reads');
    $('reader-text').replaceChildren();
    if (back?.isConnected) {
        back.focus({ preventScroll: true });
        back.scrollIntoView({ block: 'center' });
    }
    return true;
}
$('reader-close').onclick = closeReader;

$('search').inert = false; // index.html makes it inert: nothing in it works without this file
