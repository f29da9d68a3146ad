// chatlist.js - the list of the chats that are kept, and what can be done with each and with several.
import * as chats from './chats.js';
import { $, announce, ask, button, composing, element } from './dom.js';
import { plural } from './format.js';
import { local } from './storage.js';

const FIRST = 10, // chats that are shown at first, so that the settings stay near
    MORE = 50,
    ENOUGH = 5; // so many are found without a search
const WAIT = 200; // ms between the last key and the search

let entries = [],
    limit = FIRST,
    found = null, // the ids that the search has found
    chosen = null, // the ids that are marked, while several are chosen
    actions = null, // of conversation.js: open(id), renamed(chat), removed(ids), current()
    asked = 0;

const shown = () => entries.filter(entry => !found || found.has(entry.id));

// Shows the list anew.
export async function showChats(its = actions) {
    actions = its;
    const mine = ++asked,
        all = await chats.all();
    if (mine !== asked) return; // a later call shows more
    entries = all;
    draw();
}

function draw() {
    const list = shown(),
        rest = list.length - limit;
    $('chats-none').hidden = entries.length > 0;
    $('chats-find').hidden = entries.length <= ENOUGH && !$('chats-find').value;
    $('chats-nothing').hidden = !found || list.length > 0;
    $('chats-more').hidden = rest <= 0;
    $('chats-more').textContent = `Show ${Math.min(rest, MORE)} more of ${list.length}`;
    $('chats-choose').hidden = !entries.length;
    $('chats-choose').textContent = chosen ? 'Done' : 'Choose several';
    $('chats-chosen').hidden = !chosen;
    if (chosen) {
        for (const id of chosen) if (!list.some(entry => entry.id === id)) chosen.delete(id);
        $('chats-chosen-text').textContent = `${chosen.size} of ${list.length} chosen`;
        for (const id of ['chats-export', 'chats-delete']) $(id).disabled = !chosen.size;
    }
    show(list.slice(0, limit));
}

const rows = new Map(); // id -> { li, fill(entry) }

// Each row stays, and where it can in its place: a focus, a question or a name that is typed there
// does, too, while another tab saves a chat.
function show(list) {
    const ids = new Set(list.map(({ id }) => id)),
        ul = $('chats');
    for (const [id, { li }] of rows)
        if (!ids.has(id)) {
            li.remove();
            rows.delete(id);
        }
    list.forEach((entry, i) => {
        if (!rows.has(entry.id)) rows.set(entry.id, chosen ? mark(entry.id) : row(entry.id));
        const { li, fill } = rows.get(entry.id);
        fill(entry);
        if (ul.children[i] !== li) ul.insertBefore(li, ul.children[i] ?? null);
    });
}

function choose(ids) {
    chosen = ids;
    rows.clear();
    $('chats').replaceChildren();
    draw();
}

function aboutOf({ changed, mode, size }) {
    const date = new Date(changed).toLocaleString(undefined, {
        dateStyle: 'medium',
        timeStyle: 'short',
    });
    return `${plural(size, mode === 'text' ? 'completion' : 'message')}, ${date}`;
}

// ---- one chat ----

// A field in the place of the name. Enter keeps what was typed, Escape does not.
function rename(name, done) {
    let ended = false; // leaving the field is also an end, and comes with the others
    const field = element('input'),
        end = keep => {
            if (ended) return;
            ended = true;
            const typed = field.value.trim();
            field.replaceWith(name);
            name.focus();
            if (keep && typed) done(typed);
        };
    field.value = name.textContent;
    field.dir = 'auto';
    field.maxLength = 200;
    field.ariaLabel = 'Name of the chat';
    field.onkeydown = e => {
        e.stopPropagation();
        if (e.key === 'Enter' && !composing(e)) end(true);
        if (e.key === 'Escape' && !composing(e)) end(false);
    };
    field.onblur = () => document.activeElement === field || end(true); // or it is the window's
    name.replaceWith(field);
    field.focus();
    field.select();
}

function row(id) {
    const li = element('li'),
        name = button('', 'name link', () => actions.open(id)),
        about = element('span', undefined, 'size'),
        tools = element('span', undefined, 'tools');
    const tool = (text, f) => tools.append(button(text, 'quiet', f));
    tool('Rename', () =>
        rename(name, async typed => {
            const now = await chats.rename(id, typed);
            if (now) actions.renamed(now);
            else await showChats();
        })
    );
    tool('Export', () => download([id]));
    tool('Delete', async () => {
        if (await ask(li, `Delete “${name.textContent}”?`, 'Delete')) await remove([id]);
    });
    name.dir = 'auto';
    li.append(name, about, tools);
    const fill = entry => {
        name.textContent = entry.title;
        if (id === actions.current()) name.setAttribute('aria-current', 'true');
        else name.removeAttribute('aria-current');
        about.textContent = aboutOf(entry);
        for (const b of tools.children) b.ariaLabel = `${b.textContent} ${entry.title}`;
    };
    return { li, fill };
}

async function remove(ids) {
    await chats.remove(ids);
    announce(ids.length === 1 ? 'The chat is deleted.' : `${ids.length} chats are deleted.`);
    await actions.removed(ids);
    ($('chats').querySelector('.name, input') ?? $('h-chats')).focus();
}

// ---- several ----

// A box to choose the chat with.
function mark(id) {
    const li = element('li'),
        label = element('label', undefined, 'mark'),
        box = element('input'),
        name = element('span', undefined, 'name'),
        about = element('span', undefined, 'size');
    box.type = 'checkbox';
    box.onchange = () => {
        if (box.checked) chosen.add(id);
        else chosen.delete(id);
        draw();
    };
    name.dir = 'auto';
    label.append(box, name);
    li.append(label, about);
    const fill = entry => {
        box.checked = chosen.has(id);
        name.textContent = entry.title;
        about.textContent = aboutOf(entry);
    };
    return { li, fill };
}

$('chats-choose').onclick = () => choose(chosen ? null : new Set());
$('chats-all').onclick = () => {
    const ids = shown().map(entry => entry.id);
    chosen = new Set(chosen.size === ids.length ? [] : ids);
    draw();
};
$('chats-export').onclick = () => download([...chosen]);
$('chats-delete').onclick = async () => {
    const ids = [...chosen];
    const question = `Delete ${plural(ids.length, 'chat')}? They cannot be brought back.`;
    if (!(await ask($('chats-chosen'), question, 'Delete'))) return;
    choose(null);
    await remove(ids);
};
$('chats-more').onclick = () => {
    const first = limit;
    limit += MORE;
    draw();
    $('chats').children[first]?.querySelector('.name, input')?.focus();
};

// ---- search ----

let timer = null;
$('chats-find').oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
        const words = $('chats-find').value.trim(),
            ids = words ? await chats.find(words) : null;
        if (words !== $('chats-find').value.trim()) return;
        found = ids;
        limit = FIRST;
        draw();
        if (ids) announce(`${plural(shown().length, 'chat')} found.`);
    }, WAIT);
};

// ---- files ----

async function download(ids) {
    const wanted = (await Promise.all(ids.map(chats.load))).filter(Boolean);
    if (!wanted.length) return;
    const link = element('a'),
        name = wanted.length === 1 ? chats.nameOf(wanted[0]) : plural(wanted.length, 'chat'),
        plain = name.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '');
    link.href = URL.createObjectURL(new Blob([chats.fileOf(wanted)], { type: 'application/json' }));
    link.download = `${plain || 'chat'}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Each file is taken whole or not at all.
async function read(files) {
    const lines = [];
    let added = 0,
        there = 0;
    for (const file of files)
        try {
            const some = chats.chatsOf(await file.text()),
                fresh = await chats.add(some);
            added += fresh;
            there += some.length - fresh;
        } catch (e) {
            lines.push(`${file.name} ${e.message}.`);
        }
    if (added || !lines.length) lines.unshift(`${plural(added, 'chat')} added.`);
    if (there) lines.push(`${plural(there, 'chat')} of the file there already.`);
    $('chats-told').textContent = lines.join(' ');
    await showChats();
}
$('chats-import').onclick = () => $('chats-file').click();
$('chats-file').onchange = () => {
    const files = [...$('chats-file').files];
    $('chats-file').value = '';
    return read(files);
};

// ---- folding ----

$('chats-box').open = local.get('chats-folded') !== '1';
$('chats-box').ontoggle = () => local.set('chats-folded', $('chats-box').open ? null : '1');
