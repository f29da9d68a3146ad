// search.js - the mode Search: the texts, how far they are indexed, a question's passages, and a text
// with a passage marked. library.js has what is shown.
import { app, hideError, mode, notice, showError, togglePanel, whyNot } from './app.js';
import { $, announce, ask, button, element, once } from './dom.js';
import { digits, duration } from './format.js';
import * as library from './library.js';

const { texts, passageCount } = library;
const BEST = 20;
const AROUND = 20000; // characters of a text that are shown before and behind a passage

const plural = (n, word) => `${digits(n, 0)} ${word}${n === 1 ? '' : 's'}`;
const ready = () => library.embeds(app.model);

// ---- the texts ----

const rows = new Map(); // text -> what says how many passages it has

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
        if (shown.some(found => found.text === text)) showResults(shown.filter(f => f.text !== text));
        showTexts();
        announce(`${text.name} is removed.`);
        ($('texts').querySelector('.name') ?? $('add-files')).focus();
    });
    name.dir = 'auto';
    removes.ariaLabel = `Remove ${text.name}`;
    li.append(name, about, removes);
    rows.set(text, about);
    return li;
}

function showTexts() {
    rows.clear();
    $('texts').replaceChildren(...texts.map(row));
    showState();
}

// How many there are, and what is not indexed.
function showState() {
    const missing = library.total() - library.indexed(),
        again = library.indexed() > 0 ? 'the rest' : 'them';
    for (const [text, about] of rows) about.textContent = aboutOf(text);
    $('texts-about').textContent = texts.length
        ? `${plural(texts.length, 'text')}, ${plural(library.total(), 'passage')}`
        : 'No texts yet';
    $('search-none').hidden = ready() || !!app.loading;
    $('unindexed').hidden = !ready() || !missing || !!running || loading;
    $('unindexed-text').textContent =
        `${plural(missing, 'passage')} ${missing === 1 ? 'is' : 'are'} not indexed with this model.`;
    $('index').textContent = `Index ${again}`;
    document.body.dataset.indexed = loading || running ? '' : `${library.indexed()}`;
}

// Adds files or notes by these functions, each of which says what is wrong.
async function add(all) {
    const wrong = [];
    hideError();
    for (const one of all) {
        const problem = await one().catch(e => e.message);
        if (problem) wrong.push(problem);
        showTexts();
    }
    if (wrong.length) showError(Object.assign(new Error(wrong.join(' ')), { code: 'TEXT' }));
    await index();
}

export const addFiles = files => add([...files].map(file => () => library.addFile(file)));

$('add-files').onclick = () => $('text-files').click();
$('text-files').onchange = () => {
    const files = [...$('text-files').files];
    $('text-files').value = '';
    addFiles(files);
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
    if (e.key !== 'Escape') return;
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
            if (rows.has(text)) rows.get(text).textContent = aboutOf(text);
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

function toSearch() {
    $('notice').hidden = true;
    document.querySelector('input[name=mode][value=search]').click();
}

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
