// app.js - what the page's modules share: the open model, what is going on, and its messages.
import { BitNetError } from './bitnet.js';
import { $, announce } from './dom.js';
import { explain } from './failures.js';

export const app = {
    model: null,
    openName: '', // of the open model
    modelName: '', // the same, or of the one that is being opened
    writing: null, // AbortController of the current generation
    since: 0, // when it began
    loading: null, // AbortController of the current load
    renew: null, // loads the open model again; returns whether it could
};

export const mode = () => document.querySelector('input[name=mode]:checked').value;

// What a notice offers.
export function toMode(wanted) {
    $('notice').hidden = true;
    document.querySelector(`input[name=mode][value=${wanted}]`).click();
}

// What the open model cannot do in this mode, or ''. (A server does not say whether it chats.)
function unfit() {
    const { hasHead, chat } = app.model?.info ?? {},
        embeds = hasHead === false;
    if (mode() === 'search' && !embeds) return 'Search needs an embedding model.';
    if (mode() !== 'search' && embeds) return `${app.modelName} writes no text. It is for “Search”.`;
    if (mode() === 'chat' && chat === null)
        return `${app.modelName} was not made for chats. “Write” goes on with your text.`;
    return '';
}

// Shows and enables the buttons that can be used now.
export function ready() {
    const { model, writing, loading } = app,
        can = model && !writing && !loading && !unfit();
    $('send').disabled = !can;
    $('send').hidden = !!writing;
    $('stop').hidden = !writing;
    for (const b of $('ideas').children) b.disabled = !can;
    for (const b of $('log').querySelectorAll('[data-needs-model]')) b.disabled = !can;
    document.body.dataset.state = loading
        ? 'loading'
        : writing
          ? 'writing'
          : model
            ? 'ready'
            : 'empty';
}

// Why nothing can be sent now, or ''.
export function whyNot() {
    if (!$('key-form').hidden) return 'The server waits for its key. Your text stays in the field.';
    if (app.loading) return `${app.modelName} is still being opened. Your text stays in the field.`;
    if (app.writing) return 'The model is still writing. Your text stays in the field.';
    if (!app.model) return 'No model is open. Choose one under “Settings”.';
    return unfit();
}

// ---- the end of the conversation, where messages appear ----

export const nearEnd = () =>
    $('scroll').scrollHeight - $('scroll').scrollTop - $('scroll').clientHeight < 80;
// A page without a conversation shows its beginning, unless something else is told below.
export const toEnd = () => {
    const told = ['loading', 'key-form', 'error'].some(id => !$(id).hidden),
        welcoming = !$('welcome').hidden && !told;
    if (mode() === 'search' && !told) return;
    $('scroll').scrollTop = welcoming ? 0 : $('scroll').scrollHeight;
    const isCut = $('error').offsetTop < $('scroll').scrollTop;
    if (!$('error').hidden && isCut) $('error').scrollIntoView(); // a title says more than details
};

export function showError(e, about) {
    const { title, text, code, told } = explain(e, about);
    $('error-title').textContent = title;
    $('error-text').textContent = text;
    $('error-code').textContent = code;
    $('error-more').open = told;
    $('error').hidden = false;
    togglePanel(false);
    toEnd();
}

export const hideError = () => {
    $('error').hidden = true;
};
$('error-close').onclick = () => {
    hideError();
    $('prompt').focus();
};

// ---- the notice above the conversation ----

let notices = []; // the last one is shown; to close it shows the one before

export function notice(text, action, f) {
    if ($('notice').hidden) notices = [];
    notices = [...notices.filter(n => n.text !== text), { text, action, f }];
    showNotice();
}

function showNotice() {
    const { text, action, f } = notices.at(-1) ?? {};
    $('notice').hidden = !text;
    $('notice-text').textContent = text ?? '';
    $('notice-action').hidden = !action;
    $('notice-action').textContent = action ?? '';
    $('notice-action').onclick = f ?? null;
}
$('notice-close').onclick = () => {
    notices.pop();
    showNotice();
    $('prompt').focus();
};

// ---- the settings on a narrow screen ----

export function togglePanel(on = !document.body.classList.contains('panel-open')) {
    document.body.classList.toggle('panel-open', on);
    $('panel-toggle').ariaExpanded = String(on);
    $('panel-toggle').textContent = on ? 'Done' : 'Settings';
}
$('panel-toggle').onclick = () => togglePanel();

// ---- the clipboard ----

// Copies the text. The button that was pressed says so for a while.
export async function copyText(text, pressed) {
    try {
        await navigator.clipboard.writeText(text);
    } catch (e) {
        showError(new BitNetError('CLIPBOARD', e.message));
        return;
    }
    announce('Copied.');
    pressed.textContent = 'Copied';
    setTimeout(() => {
        pressed.textContent = 'Copy';
    }, 2000);
}
