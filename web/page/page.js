// page.js - the page's start and its outermost parts: modes, keys, and the room that it has. All work
// is done in workers (bitnet.js starts one, crosscheck.js others).
import { cache } from './bitnet.js';
import { app, hideError, mode, nearEnd, notice, showError, toEnd, togglePanel } from './app.js';
import { editLast, goOnByItself, reopen, send, showMode, startNew, stop } from './conversation.js';
import { $, button, composing } from './dom.js';
import { loadMarkdown } from './drawing.js';
import { lastFile } from './files.js';
import { isolate, keepPage } from './isolation.js';
import { closeReader, modelChanged, newSearch, search } from './later.js';
import { TINY, open, showPlace, urlOf } from './models.js';
import { SERVER, hasServer } from './server.js';
import { restore } from './settings.js';
import { local } from './storage.js';

const IDEAS = {
    chat: [
        'Tell me a story about a dragon.',
        'What is the capital of Italy?',
        'Who are you?',
        'What is two plus three?',
    ],
    text: ['Once upon a time', 'The capital of France is', 'The history of computers'],
};

// ---- the field for the prompt ----

function fit() {
    // make the prompt as high as its text
    $('prompt').style.height = 'auto';
    $('prompt').style.height = `${$('prompt').scrollHeight}px`;
}

const submit = () => (mode() === 'search' ? search() : send());

$('form').onsubmit = e => {
    e.preventDefault();
    submit();
};
$('stop').onclick = e => {
    // The second click of a double click on Send, which was in this place, stops nothing.
    if (!e.detail || performance.now() - app.since > 500) stop();
};
$('new').onclick = () => {
    if (mode() === 'search') newSearch();
    else startNew();
    $('prompt').focus();
};
$('prompt').oninput = fit;
$('prompt').onkeydown = e => {
    if (e.key === 'Enter' && !e.shiftKey && !composing(e)) {
        e.preventDefault();
        submit();
    }
    const modified = e.shiftKey || e.ctrlKey || e.altKey || e.metaKey;
    const writes = mode() !== 'search';
    if (e.key === 'ArrowUp' && writes && !modified && !$('prompt').value && !composing(e)) {
        e.preventDefault();
        editLast();
    }
};
addEventListener('keydown', e => {
    if (e.key !== 'Escape' || composing(e)) return;
    if (app.writing) stop();
    else if (document.body.classList.contains('panel-open')) {
        togglePanel(false);
        $('panel-toggle').focus();
    } else if (!closeReader()) hideError();
});

// ---- the mode ----

const PLACEHOLDERS = {
    chat: 'Say something',
    text: 'How the text begins',
    search: 'What do you look for?',
};

function setMode() {
    const searching = mode() === 'search';
    document.body.dataset.mode = mode();
    $('prompt').placeholder = PLACEHOLDERS[mode()];
    $('send').textContent = searching ? 'Search' : 'Send';
    $('keys').hidden = searching;
    $('system-row').hidden = mode() !== 'chat';
    $('ideas').replaceChildren(
        ...(IDEAS[mode()] ?? []).map(text =>
            button(text, undefined, () => {
                $('prompt').value = text;
                send();
            })
        )
    );
    showMode();
    modelChanged(); // Search comes
    if (searching) $('scroll').scrollTop = 0;
    else closeReader();
}
for (const input of document.querySelectorAll('input[name=mode]')) input.onchange = setMode;

// ---- room: a phone's keyboard and large zoom leave little, and that is for the conversation ----

const SHORT = 30; // of the text's size: that of the root
const TIGHT = 15; // of width

function measure() {
    const { visualViewport: v } = globalThis,
        height = v && v.scale === 1 ? v.height : innerHeight,
        size = parseFloat(getComputedStyle(document.documentElement).fontSize),
        short = height < SHORT * size,
        follow = nearEnd();
    document.documentElement.style.setProperty('--height', `${Math.round(height)}px`);
    document.body.classList.toggle(
        'tight',
        document.documentElement.clientWidth < TIGHT * size
    );
    if (document.body.classList.contains('short') !== short) {
        document.body.classList.toggle('short', short);
        if (short) $('figures-room').append($('figures'));
        else document.querySelector('main').append($('figures'));
    }
    fit();
    if (follow) toEnd();
}
globalThis.visualViewport?.addEventListener('resize', measure);
addEventListener('resize', measure);

// ---- start ----

// A model from the disk that the browser does not open without a press.
function offerFile({ name, ask }) {
    notice(`“${name}” on your disk was open at your last visit.`, 'Open it again', async () => {
        const file = await ask().catch(showError);
        if (file && (await open(file))) $('notice').hidden = true;
    });
}

// Opens the model of the server if there is one; or that of the last visit if the browser has it, else
// the tiny one beside the page.
async function start() {
    showPlace();
    measure();
    restore();
    $('check').onclick = async () => (await import('./crosscheck.js')).crosscheck();
    $('h-cache').tabIndex = $('h-chats').tabIndex = -1; // get the focus when their last entry goes
    await reopen(setMode);
    setMode();
    const settled = hasServer ? null : isolate(); // the server needs no threads of the page
    const before = local.get('model');
    const entries = await cache.list().catch(() => []);
    const there = before && entries.some(e => e.url === urlOf(before) && e.complete),
        last = hasServer ? null : await lastFile();
    if (hasServer) await open(SERVER);
    else if (!(last?.file ? await open(last.file) : there && (await open(before)))) {
        if (!there || !$('error').hidden) await open(TINY);
        if (last?.ask) offerFile(last);
    }
    if (matchMedia('(hover: hover)').matches) $('prompt').focus();
    loadMarkdown();
    await settled;
    goOnByItself();
    await keepPage();
}
start();
