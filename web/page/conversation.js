// conversation.js - the open chat: its messages in the page, what is sent of them to the model, and
// what can be done with each of them.
import {
    app, copyText, hideError, mode, nearEnd, notice, ready, showError, toEnd, whyNot
} from './app.js';
import { divideReply } from './bitnet.js';
import { showChats } from './chatlist.js';
import * as chats from './chats.js';
import { $, announce, button, composing, element } from './dom.js';
import { show, speaker, writer } from './drawing.js';
import { bytes, speed } from './format.js';
import { isServer } from './server.js';
import { SAMPLER, numbers, replyOptions } from './settings.js';
import * as states from './states.js';
import { session } from './storage.js';

const open = { chat: chats.newChat('chat'), text: chats.newChat('text') }; // of each mode
const kind = () => (mode() === 'search' ? 'chat' : mode()); // what is open behind Search
const current = () => open[kind()];
const SAVE_MS = 400; // between two saves of a text that is being written

const NOTES = {
    length: 'Stopped at the token limit.',
    abort: 'Stopped.',
    full: 'The context is full, so the text ends here.',
    mask: 'The text ends here: nothing else was allowed.',
    failed: 'An error ended the text here.',
    left: 'The page was left before the text was finished.',
};

// ---- messages in the page ----

const LABELS = { user: 'You', assistant: 'Reply', text: 'Text' };
const turns = () => [...$('log').querySelectorAll('.turn')];

function addTurn(message) {
    const { role, note, dropped } = message,
        turn = element('div', undefined, `turn ${role === 'user' ? 'user' : 'reply'}`),
        body = element('div', undefined, 'body');
    body.dir = 'auto';
    show(body, message);
    turn.append(element('span', `${LABELS[role]}: `, 'hidden'), body);
    turn.append(actions(message));
    if (note || dropped) showNote(turn, message);
    $('log').append(turn);
    return turn;
}

// Why the text ends where it does. A reply that was cut off can go on.
function showNote(turn, { note, dropped }) {
    const parts = [];
    if (dropped)
        parts.push(`The context was full: the model no longer sees the first ${dropped} messages.`);
    if (note) parts.push(NOTES[note]);
    turn.querySelector('.acts').before(element('span', parts.join(' '), 'note'));
    turn.classList.toggle('cut', !!note);
}

function actions(message) {
    const box = element('div', undefined, 'acts');
    const act = (text, f, className = '') => {
        const b = button(text, `quiet ${className}`, () =>
            f(current().messages.indexOf(message), b)
        );
        if (f !== copy) b.dataset.needsModel = '';
        box.append(b);
    };
    act('Copy', copy);
    if (message.role === 'user') act('Answer', answer, 'if-last');
    else act('Regenerate', regenerate);
    act('Edit', edit);
    if (message.role === 'text') act('Continue', goOn);
    else act('Continue from here', branchAfter, 'unless-last');
    if (message.role === 'assistant') act('Continue', goOn, 'if-cut');
    return box;
}

// Shows the open chat.
function render() {
    const { messages } = current();
    $('log').replaceChildren();
    messages.forEach(addTurn);
    showLeftOut();
    $('welcome').hidden = messages.length > 0;
    ready();
    toEnd();
}

// A line above the first message that the model still sees.
function showLeftOut() {
    $('log').querySelector('.left-out')?.remove();
    const first = current().from && turns()[current().from];
    if (first) first.before(element('p', 'The model no longer sees what is above.', 'left-out'));
}

// ---- keeping the chat ----

const remember = () => {
    session.set('mode', mode());
    session.set(kind(), current().id);
};

const showList = () =>
    showChats({
        current: () => current().id,
        open: openChat,
        renamed: ({ id, name, revision }) => {
            for (const chat of Object.values(open))
                if (chat.id === id) Object.assign(chat, { name, revision });
            showList();
        },
        removed: async ids => {
            ids.forEach(states.forget);
            for (const kind of Object.keys(open)) {
                if (!ids.includes(open[kind].id)) continue;
                if (kind === mode()) startNew();
                else open[kind] = chats.newChat(kind);
            }
            await showList();
        },
    });

const timers = new Map(), // of the next save, by the chat
    dirty = new Set(); // chats of which not all is saved

async function save(chat) {
    const timer = timers.get(chat);
    clearTimeout(timer);
    timers.delete(chat);
    if (!chat.messages.length) {
        dirty.delete(chat);
        await chats.discard(chat);
        await showList();
        return;
    }
    dirty.add(chat);
    chat.model = app.openName || chat.model;
    chat.system = $('system').value.trim();
    const before = chat.id;
    if (await chats.save(chat)) {
        notice('This chat was changed in another tab. What is here goes on as a copy.');
        announce('This chat goes on as a copy.');
    }
    if (!timers.has(chat)) dirty.delete(chat);
    if (chat === current()) remember();
    if (timer === undefined || before !== chat.id) await showList();
}

// While a text is written.
function saveSoon(chat) {
    dirty.add(chat);
    if (!timers.has(chat)) timers.set(chat, setTimeout(save, SAVE_MS, chat));
}

// A phone may end a page that is in the background, without another word.
function leave() {
    for (const chat of dirty) if (chat.messages.length) chats.leave(chat);
}
addEventListener('pagehide', leave);
document.addEventListener('visibilitychange', () => document.hidden && leave());

// A text that was being written when the page was left can go on.
async function settle(chat) {
    const cut = chat.messages.filter(m => m.unfinished);
    if (!cut.length) return chat;
    if (await chats.writtenElsewhere(chat.id)) {
        chats.whenWritten(chat.id, () => refresh([chat.id]));
        return chat;
    }
    for (const m of cut) {
        delete m.unfinished;
        m.note = 'left';
    }
    await chats.save(chat);
    return chat;
}

async function openChat(id) {
    if (id === current().id && mode() !== 'search') return;
    const chat = await chats.load(id);
    if (!chat) return showList();
    stop();
    open[chat.mode] = await settle(chat);
    document.querySelector(`input[name=mode][value=${chat.mode}]`).checked = true;
    changedMode();
    $('prompt').focus();
}

export function startNew() {
    stop();
    open[mode()] = chats.newChat(mode());
    hideError();
    render();
    remember();
    showList();
}

let changedMode = () => {};

// At the start: what was open before the page was reloaded, or else a text that was being written when
// another tab was closed.
export async function reopen(onMode) {
    changedMode = onMode;
    await chats.takeBack();
    const ids = ['chat', 'text'].map(kind => session.get(kind)).filter(Boolean),
        cut = await chats.cutOff();
    for (const id of ids.length ? ids : cut) {
        const chat = await chats.load(id);
        if (chat) open[chat.mode] = await settle(chat);
        if (chat && !ids.length) session.set('mode', chat.mode);
    }
    const before = session.get('mode');
    for (const input of document.querySelectorAll('input[name=mode]'))
        if (input.value === before) input.checked = true;
    chats.watch(refresh);
}

// These chats have changed in another tab; null: any may have.
async function refresh(changed) {
    const busy = kind => dirty.has(open[kind]) || (app.writing && kind === mode());
    for (const kind of ['chat', 'text']) {
        const { id, revision } = open[kind];
        if ((changed && !changed.includes(id)) || busy(kind)) continue;
        const chat = await chats.load(id);
        if (!chat || open[kind].id !== id || busy(kind)) continue;
        if (chat.revision === revision && !chat.messages.some(m => m.unfinished)) continue;
        open[kind] = await settle(chat);
        if (kind === mode()) render();
    }
    showList();
}

// After the mode was changed by the user or by opening a chat of the other one.
export function showMode() {
    stop();
    render();
    remember();
    showList();
}

// ---- what is sent ----

const PER_MESSAGE = 8; // tokens that a chat template puts around a message, or more
const costs = new Map(); // of texts in tokens, by the open model

// Another model has another context and other tokens.
export function forgetModel() {
    costs.clear();
    for (const chat of Object.values(open)) delete chat.from;
    showLeftOut();
}

async function cost(model, { content }, signal) {
    const options = isServer(model) ? { signal } : {}; // a model in this page answers at once
    if (!costs.has(content)) costs.set(content, (await model.tokenize(content, options)).length);
    return costs.get(content) + PER_MESSAGE;
}

// The number of the user's next message after message i, or -1. A chat begins with one.
const nextOfUser = ({ messages }, i, end) =>
    messages.findIndex((m, j) => j > i && j < end && m.role === 'user');

// If the messages before `end` and a reply are too long for the context, leaves out the oldest: so many
// that they need at most half of it, or else the whole chat would have to be read anew for each message.
async function leaveOut(chat, end, model, system, { maxTokens, signal }) {
    const { context } = model.info,
        reply = Math.min(maxTokens || context, context >> 2),
        sizes = [];
    for (const m of chat.messages.slice(0, end)) sizes.push(await cost(model, m, signal));
    const base = system ? await cost(model, { content: system }, signal) : 0;
    const needed = () => sizes.slice(chat.from ?? 0).reduce((a, b) => a + b, base);
    if (needed() + reply <= context) return;
    while (needed() > context >> 1) if (!leaveOutOne(chat, end)) return;
}

function leaveOutOne(chat, end) {
    const next = nextOfUser(chat, chat.from ?? 0, end);
    if (next < 0) return false;
    chat.from = next;
    return true;
}

// The reply to the messages before `end`. If the last of them is a reply, its text goes on.
async function* chatReply(chat, end, model, options) {
    const system = $('system').value.trim(),
        first = system ? [{ role: 'system', content: system }] : [];
    await leaveOut(chat, end, model, system, options);
    for (;;) {
        const sent = chat.messages
            .slice(chat.from ?? 0, end)
            .map(({ role, content }) => ({ role, content }));
        try {
            yield* model.chat([...first, ...sent], options);
            return;
        } catch (e) {
            if (e.code !== 'ERR_FULL' || !leaveOutOne(chat, end)) throw e;
        }
    }
}

// What goes on with the message: from its beginning, if it is empty.
function goesOn(chat, message, model, options) {
    const { role, given, content } = message,
        i = chat.messages.indexOf(message);
    return role === 'text'
        ? model.generate(given + content, options)
        : chatReply(chat, content ? i + 1 : i, model, options);
}

// ---- the state of a reply that is being written ----

const KEEP_MS = 3000; // until a state is kept the first time, and between two, or
const KEEP_TIMES = 20; // so many times as long as it took
const modelKey = () => `${app.openName} ${app.model?.info.fileBytes}`;

// Keeps the state of the message as it grows, and once more when the page is hidden. end() forgets it.
function keeper(chat, message, at, options) {
    const index = chat.messages.indexOf(message),
        names = new Set([chat.id]); // of the chat, which may become a copy
    let timer,
        now = Promise.resolve(),
        ended = false;
    const keep = async () => {
        const { model } = app,
            start = performance.now();
        if (ended || !model) return;
        try {
            const bytes = await model.save();
            if (ended) return;
            names.add(chat.id);
            await states.keep({ chat: chat.id, index, at, options, model: modelKey(), bytes });
        } catch {
            /* then the chat is read again */
        }
        soon(Math.max(KEEP_MS, KEEP_TIMES * (performance.now() - start)));
    };
    const go = () => (now = now.then(keep));
    const soon = ms => {
        clearTimeout(timer);
        if (!ended) timer = setTimeout(go, ms);
    };
    const hidden = () => document.hidden && go();
    if (isServer(app.model)) return { end: async () => {} };
    soon(KEEP_MS);
    document.addEventListener('visibilitychange', hidden);
    return {
        async end() {
            ended = true;
            clearTimeout(timer);
            document.removeEventListener('visibilitychange', hidden);
            await now;
            for (const id of names) await states.forget(id);
        },
    };
}

// The state that was kept of message i, or null.
async function stateOf(chat, i) {
    const state = chat.messages[i]?.note === 'left' ? await states.take(chat.id) : null;
    return state?.index === i && state.model === modelKey() ? state : null;
}

const restored = (model, { bytes }) =>
    model.restore(bytes).then(
        () => true,
        () => false
    );

// What goes on with the message comes into it, from its state if there is one; told() after each piece.
// From a state the text comes from its beginning; what is there already stays meanwhile.
async function goOnWith(model, chat, message, options, state, told) {
    const resumes = state && (await restored(model, state)),
        there = message.content;
    let text = resumes ? there.slice(0, state.at) : there;
    for await (const piece of resumes
        ? model.resume(options)
        : goesOn(chat, message, model, options)) {
        text += piece;
        message.content = there.startsWith(text) ? there : text;
        told();
    }
}

// The speed while a text is written.
function liveFigures() {
    let tokens = 0,
        first = 0;
    const timer = setInterval(() => {
        if (tokens > 1)
            $('f-decode').textContent = speed(tokens - 1, (performance.now() - first) / 1e3);
    }, 250);
    $('f-prefill').textContent = $('f-decode').textContent = '…';
    return {
        onToken() {
            if (!tokens++) first = performance.now();
        },
        end: () => clearInterval(timer),
    };
}

function showBeginning(turn) {
    const fromButton = document.activeElement === $('send') || turn.contains(document.activeElement);
    hideError();
    ready();
    if (fromButton) $('stop').focus();
    turn.querySelector('.note')?.remove();
    turn.classList.remove('cut');
    turn.classList.add('writing');
    toEnd();
}

function showEnd(turn, chat, message) {
    const follow = nearEnd();
    if (message.note || message.dropped) showNote(turn, message);
    if (chat.from) showLeftOut();
    if (follow) toEnd();
}

// Writes the message, which is the last one or a completion, or goes on with it, from its state if there
// is one. If nothing came, takeBack() makes it as if nobody had asked.
async function write(chat, message, turn, takeBack, state = null) {
    let { model } = app,
        note,
        error = null;
    const mine = (app.writing = new AbortController()),
        before = message.content.length,
        from = chat.from ?? 0;
    app.since = performance.now();
    showBeginning(turn);
    delete message.note;
    message.unfinished = true;
    const written = chats.writing(chat.id);
    save(chat);
    const draw = show(turn.querySelector('.body'), message),
        speech = speaker(message);
    const out = writer(late => {
        speech.more();
        return draw(late);
    });
    const told = () => {
        out.soon();
        saveSoon(chat);
    };
    const live = liveFigures(),
        asked = state?.options ?? replyOptions(),
        kept = keeper(chat, message, state?.at ?? before, asked);
    try {
        const options = { ...asked, signal: mine.signal, onToken: live.onToken };
        await goOnWith(model, chat, message, options, state, told).catch(async e => {
            const lost = e.code === 'ERR_INTERNAL' && !isServer(model) && !mine.signal.aborted;
            if (!lost || !turn.isConnected) throw e;
            app.writing = null; // or else the load would end it
            if (!(await app.renew()) || !turn.isConnected) throw e;
            app.writing = mine;
            ready();
            ({ model } = app);
            await goOnWith(model, chat, message, options, null, told);
        });
        const { reason, tokens } = model.stats;
        note = reason === 'length' && !(tokens >= options.maxTokens) ? 'full' : reason;
    } catch (e) {
        error = mine.signal.aborted ? null : e;
        note = error ? 'failed' : 'abort';
    }
    live.end();
    await kept.end();
    await out.end();
    turn.classList.remove('writing');
    if (app.writing === mine) app.writing = null;
    delete message.unfinished;
    speech.end(error ? '' : NOTES[note]);
    written();
    if (message.content.length === before && ['failed', 'abort'].includes(note))
        takeBack(turn.isConnected);
    else {
        if (NOTES[note]) message.note = note;
        if ((chat.from ?? 0) > from) message.dropped = chat.from;
        if (turn.isConnected) showEnd(turn, chat, message);
    }
    if (model === app.model) showFigures(model);
    const saving = save(chat);
    const focused =
        document.activeElement === $('stop') || document.activeElement === document.body;
    ready();
    if (error) showError(error, { info: model.info, system: $('system').value.trim() });
    if (focused && matchMedia('(hover: hover)').matches) $('prompt').focus();
    await saving;
    document.body.dataset.runs = Number(document.body.dataset.runs ?? 0) + 1;
}

function showFigures({ info, stats: s }) {
    $('f-prefill').textContent = s ? speed(s.promptTokens - s.reusedTokens, s.prefillSeconds) : '–';
    $('f-decode').textContent = s ? speed(s.tokens, s.decodeSeconds) : '–';
    $('f-memory').textContent = info.memoryBytes ? bytes(info.memoryBytes) : '–';
}

export const stop = () => app.writing?.abort();

// Whether something can be sent now; if not, why not.
function mayWrite() {
    const why = whyNot();
    if (why) {
        announce(why);
        return false;
    }
    try {
        numbers(SAMPLER);
        return true;
    } catch (e) {
        showError(e);
        return false;
    }
}

// Text that was not sent, before what was typed meanwhile.
function giveBack(text) {
    const typed = $('prompt').value;
    $('prompt').value = typed ? `${text}\n${typed}` : text;
    $('prompt').dispatchEvent(new Event('input'));
}

export async function send() {
    const text = $('prompt').value;
    if (!text.trim() || !mayWrite()) return;
    $('prompt').value = '';
    $('prompt').dispatchEvent(new Event('input'));
    $('welcome').hidden = true;
    if (mode() === 'chat') await ask(current(), text, () => giveBack(text));
    else await complete(current(), text);
}

// Adds the user's message and the reply.
async function ask(chat, content, unsent) {
    const question = { role: 'user', content };
    chat.messages.push(question);
    addTurn(question);
    await reply(chat, shown => {
        chat.messages = chat.messages.filter(m => m !== question);
        unsent(shown);
    });
}

// Adds a reply to the last message, which is the user's.
const reply = (chat, takeBack) => add(chat, { role: 'assistant', content: '' }, takeBack);
const complete = (chat, given) =>
    add(chat, { role: 'text', given, content: '' }, () => giveBack(given));

async function add(chat, message, takeBack) {
    chat.messages.push(message);
    await write(chat, message, addTurn(message), shown => {
        chat.messages = chat.messages.filter(m => m !== message);
        takeBack?.(shown);
        if (shown) render();
    });
}

// ---- what can be done with a message ----

// Without thinking, if there is more.
function copy(i, pressed) {
    const { role, given = '', content } = current().messages[i],
        reply = role === 'assistant' ? divideReply(content).content : null;
    return copyText(given + (reply || content), pressed);
}

// Keeps the first n messages. If that takes away more than the last exchange, the chat goes on as a
// new one, and the former stays as it is.
function cut(n) {
    const chat = current();
    if (chat.messages.length - n > 2) {
        const former = chats.nameOf(chat);
        const next = chats.newChat(chat.mode);
        next.name = `${former} (2)`;
        next.messages = structuredClone(chat.messages.slice(0, n));
        open[chat.mode] = next;
        announce(`A new chat. “${former}” is kept as it was.`);
    } else {
        chat.messages = chat.messages.slice(0, n);
        if (chat.from >= n) delete chat.from;
    }
    render();
    $('welcome').hidden = true;
    return current();
}

// Makes the chat as it was, for a reply that did not come.
function undo() {
    const chat = current(),
        kept = { messages: chat.messages, from: chat.from };
    return () => {
        const made = current();
        if (made !== chat) {
            open[chat.mode] = chat;
            made.messages = [];
        }
        Object.assign(chat, kept);
    };
}

const answer = async () => {
    if (mayWrite()) await reply(current());
};

async function regenerate(i) {
    if (!mayWrite()) return;
    const message = current().messages[i];
    if (message.role === 'text') return rewrite(message, i);
    const back = undo();
    await reply(cut(i), back);
}

async function rewrite(message, i) {
    const { content, note } = message,
        turn = turns()[i];
    message.content = '';
    await write(current(), message, turn, shown => {
        Object.assign(message, { content, note });
        if (shown) render();
    });
}

// A completion, or a reply that was cut off, goes on where it ended.
async function goOn(i) {
    if (!mayWrite()) return;
    const chat = current(),
        state = await stateOf(chat, i);
    if (chat === current() && mayWrite()) await goOnFrom(chat, i, state);
}

async function goOnFrom(chat, i, state) {
    const message = chat.messages[i],
        { note } = message,
        takeBack = shown => {
            message.note = note;
            if (shown) render();
        };
    await write(chat, message, turns()[i], takeBack, state);
}

// At the start: the last message, if the page was left before it was finished, goes on by itself where
// its state was kept.
export async function goOnByItself() {
    states.tidy();
    const chat = current(),
        i = chat.messages.length - 1;
    if (mode() === 'search' || !app.model || isServer(app.model)) return;
    const state = await stateOf(chat, i);
    if (!state || chat !== current() || whyNot()) return;
    announce('The text goes on where it was cut off.');
    await goOnFrom(chat, i, state);
}

// Goes on after a message, with the later ones left behind in the former chat.
async function branchAfter(i) {
    if (!mayWrite()) return;
    const chat = cut(i + 1);
    await save(chat);
    if (chat !== current()) return;
    if (chat.messages[i].role !== 'user') $('prompt').focus();
    else if (mayWrite()) await reply(chat);
}

// A field in the place of the message. What the user said is sent again; what the model said is only
// changed.
function edit(i) {
    if (!mayWrite()) return;
    const message = current().messages[i];
    if (message.role === 'text') return editGiven(message);
    const turn = turns()[i],
        body = turn.querySelector('.body'),
        form = element('form', undefined, 'edit'),
        field = element('textarea'),
        from = document.activeElement;
    const yes = element('button', message.role === 'user' ? 'Send' : 'Keep'),
        no = button('Cancel', 'quiet', () => end());
    const end = () => {
        form.replaceWith(body);
        turn.classList.remove('editing');
        (from === $('prompt') ? from : turn.querySelector('.acts button')).focus();
    };
    field.value = message.content;
    field.dir = 'auto';
    field.ariaLabel = 'The message';
    field.rows = Math.min(12, message.content.split('\n').length + 1);
    field.onkeydown = e => {
        if (e.key === 'Escape' && !composing(e)) {
            e.stopPropagation();
            end();
        } else if (e.key === 'Enter' && !e.shiftKey && !composing(e)) {
            e.preventDefault();
            form.requestSubmit();
        }
    };
    form.onsubmit = async e => {
        e.preventDefault();
        const content = field.value;
        if (!content.trim() || !mayWrite()) return;
        end();
        if (content === message.content && message.role !== 'user') return;
        const back = undo();
        if (message.role === 'user') {
            await ask(cut(i), content, back);
            return;
        }
        const chat = cut(i + 1);
        chat.messages[i] = { role: message.role, content };
        render();
        await save(chat);
        $('prompt').focus();
    };
    form.append(field, yes, no);
    turn.classList.add('editing');
    body.replaceWith(form);
    field.focus();
}

// What the user said last, or how the last text began.
export function editLast() {
    const i = current().messages.findLastIndex(m => m.role !== 'assistant');
    if (i >= 0) edit(i);
}

// How a text begins goes back to the field, to be sent again.
function editGiven({ given }) {
    $('prompt').value = given;
    $('prompt').dispatchEvent(new Event('input'));
    $('prompt').focus();
}
