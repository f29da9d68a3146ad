// models.js - opening a model, how far that is, and the models that this browser keeps.
import { BitNet, BitNetError, cache, variants } from './bitnet.js';
import {
    app, hideError, mode, nearEnd, notice, ready, showError, toEnd, togglePanel, toMode
} from './app.js';
import { forgetModel } from './conversation.js';
import { $, announce, ask, button, element, once } from './dom.js';
import { explain } from './failures.js';
import { noteDropped, opened, pickFiles, showCopy } from './files.js';
import { bytes, count, digits, duration } from './format.js';
import { addFiles, addFolders, modelChanged } from './later.js';
import { listOffers, showOffers } from './offers.js';
import { SERVER, hasServer, isServer, serverModel } from './server.js';
import { LOAD, numbers, offerThinking, suggest } from './settings.js';
import { local } from './storage.js';

export const TINY = new URL('tiny.gguf', location.href).href;
const LARGE = 64e6; // a smaller model stays open while the next one is loaded, and is deleted unasked
const READ_SPEED = 250e6; // bytes per second from the browser's store, about

// ---- names ----

function nameOf(source) {
    if (Array.isArray(source)) return nameOf(source[0]);
    if (typeof source !== 'string') return source.name ?? 'a file';
    const { pathname } = new URL(source, location.href),
        name = pathname.slice(pathname.lastIndexOf('/') + 1);
    try {
        return decodeURIComponent(name) || source;
    } catch {
        return name; // a % that stands for itself
    }
}

// The host and folder of a URL, to tell files of the same name apart.
function placeOf(url) {
    const { host, pathname, search } = new URL(url, location.href);
    return host + pathname.slice(0, pathname.lastIndexOf('/') + 1) + search;
}

// The address of a hub's page about a file, whose own differs in a word.
const PAGE = /^(https:\/\/huggingface\.co\/[^/]+\/[^/]+\/)blob\//;

// A URL may end in #sha256=HEX; the file must then have this checksum.
function addressOf(source) {
    if (typeof source !== 'string') return { url: source };
    const [url, sha256] = source.replace(PAGE, '$1resolve/').split('#sha256=');
    return { url, sha256 };
}

const HUB = /^hf:(?:\/\/)?([^/]+\/[^/@]+)(?:@([^/]+))?\//i;

// The URL that the list of what is kept has for an address.
export function urlOf(source) {
    const hub = (_, repository, revision = 'main') =>
            `https://huggingface.co/${repository}/resolve/${revision}/`,
        url = new URL(addressOf(source).url.replace(HUB, hub), location.href);
    url.hash = '';
    return url.href;
}

function checkAddress({ sha256 }) {
    if (sha256 === undefined || /^[0-9a-f]{64}$/i.test(sha256)) return;
    throw new BitNetError('CHECKSUM', `“${sha256}” has ${sha256.length} characters`);
}

// ---- progress: one bar from the first byte to the model that is ready ----

const progress = { now: null, shown: once(showProgress) };

// A download that is kept is written to the store first and read from there.
function portion({ phase, loaded, total }) {
    if (phase === 'load') return 1;
    if (!(total > 0)) return undefined;
    const part = Math.min(1, loaded / total);
    if (phase === 'download') return progress.twice ? 0.85 * part : part;
    return progress.downloaded ? 0.85 + 0.15 * part : part;
}

function note(p) {
    if (p.phase === 'download') {
        progress.downloaded = true;
        progress.twice = p.cache === 'opfs' || p.cache === 'cache';
    }
    progress.now = p;
    const part = portion(p);
    if (part !== undefined) progress.part = Math.max(progress.part ?? 0, part);
    const quarter = Math.floor(4 * (progress.part ?? 0));
    if (quarter > progress.quarter && quarter < 4) {
        progress.quarter = quarter;
        announce(`${app.modelName}: ${25 * quarter} %`);
    }
    progress.shown();
}

function showProgress() {
    const p = progress.now;
    if (!p || $('loading').hidden) return;
    const bar = $('loading-bar');
    if (progress.part === undefined) bar.removeAttribute('value');
    else bar.value = progress.part;
    const reading = progress.downloaded
        ? 'Preparing'
        : p.fromCache
          ? 'Reading from this browser’s cache:'
          : 'Reading';
    const what = {
        download: p.elsewhere ? 'Another tab downloads' : 'Downloading',
        read: reading,
        load: 'Preparing',
    }[p.phase];
    const parts = [`${what ?? 'Opening'} ${app.modelName}`];
    if (p.loaded > 0 && p.phase !== 'load')
        parts.push(p.total > 0 ? `${bytes(p.loaded)} of ${bytes(p.total)}` : bytes(p.loaded));
    if (p.phase === 'download') {
        if (p.bytesPerSecond > 0) parts.push(`${digits(p.bytesPerSecond / 1e6, 1)} MB/s`);
        if (p.secondsLeft > 0 && Number.isFinite(p.secondsLeft)) {
            const after = progress.twice ? (p.total ?? 0) / READ_SPEED : 0;
            parts.push(`${duration(p.secondsLeft + after)} left`);
        }
        if (p.stalledSeconds) parts.push(`nothing has come for ${digits(p.stalledSeconds, 0)} s`);
        if (p.cache === 'memory' || p.cache === 'none') parts.push('not kept in this browser');
    }
    $('loading-text').textContent = parts.join(' · ');
}

function showLoading() {
    const follow = nearEnd();
    Object.assign(progress, { now: null, part: undefined, quarter: 0, downloaded: false });
    $('loading').hidden = false;
    $('loading-text').textContent = `Opening ${app.modelName}`;
    $('loading-bar').removeAttribute('value');
    announce(`Opening ${app.modelName}`);
    if (follow) toEnd();
}

// ---- a model ----

let last = TINY; // what “Load again” loads
app.renew = () => open(last); // of a model whose worker has ended

// What the browser has of an interrupted download, in bytes.
async function keptOf(source) {
    const entries = await cache.list().catch(() => []),
        url = urlOf(source);
    return entries.find(entry => entry.url === url && !entry.complete)?.loaded ?? 0;
}

// The way to the server's model while it is not open.
const openServer = () => choose(SERVER);
const offerServer = () =>
    notice(`The model of the server ${location.host} is not open.`, 'Open it', openServer);

// The server has a model but cannot give it yet.
function showWaiting(why) {
    const text = `Waiting for the server: ${why}`;
    $('loading').hidden = false;
    if ($('loading-text').textContent === text) return;
    $('loading-text').textContent = text;
    announce(text);
}

// Opens an address, a file, or the server's model. Returns whether that could be done. The previous one
// stays open until then if both fit in memory.
export async function open(source) {
    let address, settings;
    try {
        address = addressOf(source);
        checkAddress(address);
        settings = numbers(LOAD, 'LOAD_SETTING');
    } catch (e) {
        showError(e);
        return false;
    }
    app.loading?.abort();
    app.writing?.abort();
    const mine = (app.loading = new AbortController());
    hideError();
    if ($('notice-action').onclick === openServer) $('notice').hidden = true;
    app.modelName = nameOf(source);
    showLoading();
    if (app.model?.info.fileBytes > LARGE) await close();
    ready();
    try {
        const next = source === SERVER
            ? await serverModel({ signal: mine.signal, onWait: showWaiting })
            : await BitNet.load(address.url, {
                  ...settings,
                  sha256: address.sha256,
                  variant: $('variant').value || undefined,
                  cache: source === TINY ? 'none' : 'auto',
                  signal: mine.signal,
                  onProgress: p => {
                      if (mine === app.loading) note(p);
                  },
              });
        if (mine !== app.loading) {
            next.free();
            return false;
        }
        await close();
        app.model = next;
        if (source === SERVER) app.modelName = next.name;
        app.openName = app.modelName;
        last = source;
        opened(source instanceof File ? source : null);
        forgetModel();
        announce(`${app.modelName} is ready.`);
        return true;
    } catch (e) {
        if (source === SERVER) offerServer();
        if (mine !== app.loading) return false;
        app.modelName = app.openName;
        if (mine.signal.aborted || e.code === 'KEY') announce('Cancelled.');
        else {
            const kept = e.code === 'ERR_NETWORK' ? await keptOf(source) : undefined;
            showError(e, { kept });
        }
        return false;
    } finally {
        if (mine === app.loading) {
            const follow = nearEnd();
            app.loading = null;
            $('loading').hidden = true;
            if (follow) toEnd();
            showModel();
            ready();
            listModels();
        }
    }
}

async function close() {
    const old = app.model;
    app.model = null;
    app.openName = '';
    if (old) await Promise.resolve(old.free()).catch(() => {});
}

// Where the model runs, or will run.
export function showPlace() {
    const remote = app.model ? isServer(app.model) : hasServer;
    $('welcome-title').textContent = remote
        ? 'A language model on a server.'
        : 'A language model in this page.';
    $('where').textContent = remote
        ? `It runs on the server ${location.host}, which gets what you type.`
        : 'It runs on your own processor. What you type stays on this machine.';
}

let shown = null; // the model whose figures are there

// Why variants cannot run here, which is for engineers; these cannot be chosen. It is found out once.
let reasons;
function absentVariants() {
    if (reasons) return reasons;
    let all = {};
    try {
        all = variants();
    } catch {
        /* then no model can be opened, and that says why */
    }
    const absent = Object.keys(all).filter(name => all[name]);
    for (const name of absent) $('variant').querySelector(`[value=${name}]`).disabled = true;
    return (reasons = absent.map(name => all[name]));
}

const facts = i => ({
    layers: i.layers,
    vocabulary: i.vocabulary && `${digits(i.vocabulary, 0)} tokens`,
    context: `${digits(i.context, 0)}${
        i.contextTrained > i.context ? ` of ${digits(i.contextTrained, 0)}` : ''
    } tokens`,
    template: i.chat?.template ?? (i.chat === null ? 'none that is known' : undefined),
    kernel: i.kernels,
    variant: i.variant,
});

// A model without a chat template that is known can only go on with a text.
function toWriting() {
    toMode('text');
    $('prompt').focus();
}

function offerWriting() {
    const { hasHead, chat } = app.model?.info ?? {};
    if ($('notice-action').onclick === toWriting) $('notice').hidden = true;
    if (hasHead !== false && chat === null && mode() === 'chat')
        notice(
            `${app.modelName} was not made for chats. It goes on with a text that you begin.`,
            'Write a text',
            toWriting
        );
}

// The model that comes with the page is a toy, and says so.
const isToy = () => app.model && last === TINY;

function showModel() {
    const i = app.model?.info,
        place = typeof last === 'string' && last !== TINY ? ` from ${placeOf(last)}` : '';
    $('model-name').textContent = app.model ? app.modelName : 'no model open';
    $('model-about').textContent = i
        ? `${app.modelName}${place}: ${count(i.parameters)} parameters, ${bytes(i.fileBytes)}.`
        : 'No model is open.';
    const notes = [...(i?.notes ?? [])];
    if (i && typeof last === 'string' && last !== TINY && !['opfs', 'cache'].includes(i.cache))
        notes.push('The model is not kept in this browser. The next visit downloads it again.');
    const isForEngineers = text => absentVariants().includes(text),
        list = some => some.map(text => element('li', text));
    $('model-notes').replaceChildren(...list(notes.filter(text => !isForEngineers(text))));
    $('model-more').replaceChildren(...list(notes.filter(isForEngineers)));
    $('model-details').hidden = !i;
    for (const [id, value] of Object.entries(i ? facts(i) : {}))
        $(`f-${id}`).textContent = value ?? '–';
    $('toy').hidden = !isToy();
    suggest(isToy() ? 0 : undefined);
    offerThinking(i?.chat);
    showPlace();
    $('f-memory').textContent = i?.memoryBytes ? bytes(i.memoryBytes) : '–';
    $('f-threads').textContent = i?.threads ?? '–';
    if (app.model !== shown) {
        $('f-prefill').textContent = $('f-decode').textContent = '–';
        offerWriting();
    }
    shown = app.model;
    modelChanged();
}

// Opens what the user wants. What the page opens by itself in its place is not for the next visit.
export async function choose(source) {
    togglePanel(false);
    if ((await open(source)) && typeof source === 'string') local.set('model', source);
}

// ---- models in this browser ----

async function listModels() {
    showCopy();
    const entries = await cache.list().catch(() => []);
    const names = entries.map(entry => nameOf(entry.url));
    listOffers();
    $('cache-none').hidden = entries.length > 0;
    $('cache').replaceChildren(
        ...entries.map((entry, i) =>
            row(entry, names[i], names.filter(n => n === names[i]).length > 1)
        )
    );
}

function row(entry, name, ambiguous) {
    const li = element('li'),
        place = placeOf(entry.url),
        whole = ambiguous ? `${name} from ${place}` : name;
    const opens = button(name, 'name link', () => choose(entry.url));
    opens.title = entry.url;
    opens.ariaLabel = whole;
    const loaded = bytes(entry.loaded ?? 0);
    const size = entry.complete
        ? bytes(entry.size)
        : `${entry.size ? `${loaded} of ${bytes(entry.size)}` : loaded}; open to resume`;
    const found = element('p', '', 'found'),
        tools = element('span', undefined, 'tools');
    const tool = (text, className, f, of = '') => {
        const b = button(text, `quiet ${className}`, () => f(b));
        b.ariaLabel = `${text}${of} ${whole}`;
        tools.append(b);
    };
    if (entry.complete) {
        tool('Check for updates', 'check', b => check(entry.url, b, found), ' of');
        tool('Verify', 'verify', b => verify(entry.url, b, found));
    }
    tool('Delete', 'delete', async b => {
        const question = `Delete ${whole}, ${loaded}? The next visit downloads it again.`;
        if (entry.loaded > LARGE && !(await ask(li, question, 'Delete'))) return;
        b.disabled = true;
        try {
            await cache.remove(entry.url);
            announce(`${whole} is deleted.`);
        } catch (e) {
            showError(e);
        }
        await listModels();
        ($('cache').querySelector('.delete') ?? $('h-cache')).focus();
    });
    li.append(opens, element('span', size, 'size'));
    if (ambiguous) li.append(element('span', place, 'place'));
    li.append(tools, found);
    return li;
}

// Says below a model what was found out about it.
function tell(found, text) {
    found.textContent = text;
    announce(text);
}

function tellError(found, e) {
    const { title, text } = explain(e);
    tell(found, `${title}. ${text}`);
}

const CHECKED = {
    same: 'The server has the same file.',
    changed: 'The server has a newer file.',
    unknown: 'The server does not say whether it has another file.',
};

async function check(url, pressed, found) {
    if (pressed.ariaDisabled === 'true') return; // it is under way; the focus stays on the button
    pressed.ariaDisabled = 'true';
    tell(found, 'Asking the server…');
    try {
        const answer = await cache.check(url);
        tell(found, CHECKED[answer]);
        if (answer === 'changed')
            found.append(
                ' ',
                button('Download it', 'link', () => renew(url))
            );
    } catch (e) {
        tellError(found, e);
    }
    pressed.ariaDisabled = 'false';
}

async function renew(url) {
    try {
        await cache.remove(url);
    } catch (e) {
        showError(e);
        return;
    }
    choose(url);
}

// The button stops it while it goes on.
async function verify(url, pressed, found) {
    const stopping = new AbortController(),
        { onclick, ariaLabel } = pressed;
    pressed.textContent = 'Stop';
    pressed.ariaLabel = ariaLabel.replace('Verify', 'Stop');
    pressed.onclick = () => stopping.abort();
    tell(found, 'Reading what is kept…');
    try {
        const sha256 = await cache.verify(url, {
            signal: stopping.signal,
            onProgress: ({ loaded, total }) => {
                if (total > 0)
                    found.textContent = `Reading what is kept: ${Math.floor((100 * loaded) / total)} %`;
            },
        });
        tell(found, `The SHA-256 of what is kept is ${sha256}.`);
    } catch (e) {
        if (stopping.signal.aborted) tell(found, 'Stopped.');
        else tellError(found, e);
    }
    pressed.textContent = 'Verify';
    Object.assign(pressed, { onclick, ariaLabel });
}

// ---- the ways to choose one ----

$('loading-cancel').onclick = () => app.loading?.abort();
$('url-form').onsubmit = e => {
    e.preventDefault();
    choose($('url').value.trim());
};
$('pick').onclick = async () => {
    const files = await pickFiles().catch(showError);
    if (files) takeModels(files);
    if (files === null) $('file').click();
};
$('file').onchange = () => {
    const files = [...$('file').files];
    $('file').value = '';
    takeModels(files);
};
$('use-tiny').onclick = () => choose(TINY);
$('toy-more').onclick = () => {
    togglePanel(true);
    showOffers();
};
$('reload-model').onclick = () => choose(last);

// ---- drag and drop ----

let dragDepth = 0; // dragenter fires for every element under the pointer
const carriesFile = e => [...(e.dataTransfer?.types ?? [])].includes('Files');
const showDrop = on => {
    $('drop').hidden = !on;
    $('drop-text').textContent =
        mode() === 'search' ? 'Drop files or folders, or a GGUF file' : 'Drop a GGUF file';
    if (!on) dragDepth = 0;
};
addEventListener('dragenter', e => {
    if (!carriesFile(e)) return;
    e.preventDefault();
    dragDepth++;
    showDrop(true);
});
addEventListener('dragover', e => {
    if (carriesFile(e)) e.preventDefault();
});
addEventListener('dragleave', e => {
    if (carriesFile(e) && --dragDepth <= 0) showDrop(false);
});

const isModel = file => /\.gguf$/i.test(file.name),
    isText = file =>
        /^text\/|pdf|json|officedocument/.test(file.type) || /\.(txt|md|markdown)$/i.test(file.name);

function listOf(files) {
    const names = files.slice(0, 2).map(file => file.name);
    if (files.length > 2) names.push(`${files.length - 2} more`);
    return names.length > 1 ? `${names.slice(0, -1).join(', ')} and ${names.at(-1)}` : names[0];
}

function toTexts(texts) {
    toMode('search');
    addFiles(texts);
}

const PART = /^(.*)-(\d{5})-of-(\d{5})(\.gguf)$/i;

// The parts of the first file's model, in their order; null: it is in one file. Throws for the user if
// not all are there.
function partsOf(files) {
    const [, name, , count] = PART.exec(files[0].name) ?? [];
    if (!(count > 1)) return null;
    const parts = files.filter(file => {
        const m = PART.exec(file.name);
        return m?.[1] === name && m[3] === count;
    });
    if (parts.length !== Number(count))
        throw new BitNetError(
            'PARTS',
            `It is in ${Number(count)} files, and ${parts.length} of them came.`
        );
    return parts.sort((a, b) => (a.name < b.name ? -1 : 1));
}

// Opens one model of these files.
function takeModels(files) {
    if (!files.length) return;
    try {
        const parts = partsOf(files),
            others = files.slice(1).filter(file => !parts?.includes(file));
        if (others.length)
            notice(`Only one model can be open, so nothing is done with ${listOf(others)}.`);
        choose(parts ?? files[0]);
    } catch (e) {
        showError(e);
    }
}

// One model is opened. Texts are for Search; where they are dropped elsewhere the page offers that. In
// other modes a file that is neither, by its name and type, is opened, too: that says what is wrong.
function takeFiles(files) {
    const searches = mode() === 'search',
        isForSearch = file => !isModel(file) && (searches || isText(file)),
        texts = files.filter(isForSearch),
        rest = files.filter(file => !isForSearch(file)).sort((a, b) => isModel(b) - isModel(a));
    if (texts.length && searches) addFiles(texts);
    else if (texts.length)
        notice(
            `${listOf(texts)} is for “Search”, which finds what you look for in your texts.`,
            'Add to Search',
            () => toTexts(texts)
        );
    takeModels(rest);
}

addEventListener('drop', e => {
    if (!carriesFile(e)) return;
    e.preventDefault();
    showDrop(false);
    if (mode() === 'search' && addFolders(e.dataTransfer)) return;
    noteDropped(e.dataTransfer);
    takeFiles([...e.dataTransfer.files]);
});
