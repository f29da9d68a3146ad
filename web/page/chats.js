// chats.js - the chats that this browser keeps, in IndexedDB, and their list. A chat:
//
//     { id, name, mode: 'chat' or 'text', created, changed, revision, model, messages }
//
// A message has a role and content; a completion ('text') also what was given. revision counts the
// saves: a chat that another tab has saved meanwhile is not overwritten, but goes on as a copy.
import { $, announce, ask, button, composing, element } from './dom.js';

let opening = null,
    memory = null; // instead of the database, if there is none

function database() {
    return (opening ??= new Promise((resolve, reject) => {
        const request = indexedDB.open('bitnet-chats', 1);
        request.onupgradeneeded = () =>
            request.result.createObjectStore('chats', { keyPath: 'id' });
        request.onsuccess = () => {
            request.result.onversionchange = () => request.result.close();
            resolve(request.result);
        };
        request.onerror = () => reject(request.error);
    }));
}

const settled = request =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

// Calls f with the store, or with one in memory. Calls follow one another.
let queue = Promise.resolve();
function withStore(kind, f) {
    return (queue = queue
        .catch(() => {})
        .then(async () => {
            if (!memory) {
                try {
                    const transaction = (await database()).transaction('chats', kind),
                        store = transaction.objectStore('chats');
                    const done = new Promise((resolve, reject) => {
                        transaction.oncomplete = resolve;
                        transaction.onerror = transaction.onabort = () => reject(transaction.error);
                    });
                    const result = await f({
                        all: () => settled(store.getAll()),
                        get: id => settled(store.get(id)),
                        put: chat => settled(store.put(chat)),
                        delete: id => settled(store.delete(id)),
                    });
                    await done;
                    return result;
                } catch {
                    memory = new Map(); // no database, or no room in it
                    $('chats-lost').hidden = false;
                }
            }
            return f({
                all: () => [...memory.values()],
                get: id => memory.get(id),
                put: chat => memory.set(chat.id, chat),
                delete: id => memory.delete(id),
            });
        }));
}

const others = 'BroadcastChannel' in globalThis ? new BroadcastChannel('bitnet-chats') : null;

export const newChat = mode => ({
    id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`,
    name: '',
    mode,
    created: new Date().toISOString(),
    changed: '',
    revision: 0,
    model: '',
    messages: [],
});

export const load = id => withStore('readonly', store => store.get(id));

// The ids of chats that the user deleted: a reply that is still being written brings none of them back.
const deleted = new Set();

// Saves the chat. Returns whether it became a copy.
export async function save(chat) {
    const copied = await withStore('readwrite', async store => {
        if (deleted.has(chat.id)) return false;
        const there = await store.get(chat.id),
            copy = there && there.revision !== chat.revision;
        if (copy) {
            chat.id = newChat().id;
            chat.revision = 0;
            chat.name = `${nameOf(chat)} (copy)`;
        }
        chat.revision++;
        chat.changed = new Date().toISOString();
        await store.put(structuredClone(chat));
        return copy;
    });
    others?.postMessage(chat.id);
    return copied;
}

export async function remove(id) {
    await withStore('readwrite', store => store.delete(id));
    others?.postMessage(id);
}

// f(id): another tab has saved or deleted this chat.
export function watch(f) {
    if (others) others.onmessage = e => f(e.data);
}

// The name that the user gave, or how the chat begins.
export function nameOf(chat) {
    if (chat.name) return chat.name;
    const { given, content } = chat.messages[0] ?? {};
    const first = (given ?? content ?? '').trim().replace(/\s+/g, ' ');
    return first.length > 48 ? `${first.slice(0, 47)}…` : first || 'New chat';
}

// A chat as a file for other programs.
export function exported({ mode, created, changed, model, messages, ...chat }) {
    const roles = messages.flatMap(({ role, given, content }) =>
        role === 'text'
            ? [
                  { role: 'given', content: given },
                  { role: 'completion', content },
              ]
            : [{ role, content }]
    );
    const file = {
        format: 'bitnet-chat',
        version: 1,
        name: nameOf({ messages, ...chat }),
        mode,
        model,
        created,
        changed,
        system: chat.system ?? '',
        messages: roles,
    };
    return JSON.stringify(file, null, 2) + '\n';
}

function download(chat) {
    const link = element('a'),
        name = nameOf(chat)
            .replace(/[^\p{L}\p{N}]+/gu, '-')
            .replace(/^-|-$/g, '');
    link.href = URL.createObjectURL(new Blob([exported(chat)], { type: 'application/json' }));
    link.download = `${name || 'chat'}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// ---- the list ----

// A field in the place of the name. Enter keeps what was typed, Escape does not.
function rename(chat, name, done) {
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
    field.value = nameOf(chat);
    field.dir = 'auto';
    field.maxLength = 200;
    field.ariaLabel = 'Name of the chat';
    field.onkeydown = e => {
        e.stopPropagation();
        if (e.key === 'Enter' && !composing(e)) end(true);
        if (e.key === 'Escape' && !composing(e)) end(false);
    };
    field.onblur = () => end(true);
    name.replaceWith(field);
    field.focus();
    field.select();
}

// Shows the list. actions: open(chat), renamed(chat), removed(id); current is the open chat's id.
export async function list(current, actions) {
    const chats = (await withStore('readonly', store => store.all())).sort((a, b) =>
        b.changed.localeCompare(a.changed)
    );
    $('chats-none').hidden = chats.length > 0;
    $('chats').replaceChildren(...chats.map(chat => row(chat, chat.id === current, actions)));
}

function row(chat, isCurrent, actions) {
    const li = element('li'),
        name = button(nameOf(chat), 'name link', () => actions.open(chat.id)),
        about = element('span', undefined, 'size'),
        tools = element('span', undefined, 'tools');
    name.dir = 'auto';
    if (isCurrent) name.setAttribute('aria-current', 'true');
    const n = chat.messages.length,
        what = chat.mode === 'text' ? 'completion' : 'message';
    const date = new Date(chat.changed).toLocaleString(undefined, {
        dateStyle: 'medium',
        timeStyle: 'short',
    });
    about.textContent = `${n} ${what}${n === 1 ? '' : 's'}, ${date}`;
    const tool = (text, f) => {
        const b = button(text, 'quiet', f);
        b.ariaLabel = `${text} ${nameOf(chat)}`;
        return b;
    };
    tools.append(
        tool('Rename', () =>
            rename(chat, name, async typed => {
                const now = (await load(chat.id)) ?? chat;
                now.name = typed;
                await save(now);
                actions.renamed(now);
            })
        ),
        tool('Export', async () => download((await load(chat.id)) ?? chat)),
        tool('Delete', async () => {
            if (!(await ask(li, `Delete “${nameOf(chat)}”?`, 'Delete'))) return;
            deleted.add(chat.id);
            await remove(chat.id);
            announce('The chat is deleted.');
            await actions.removed(chat.id);
            ($('chats').querySelector('.name') ?? $('h-chats')).focus();
        })
    );
    li.append(name, about, tools);
    return li;
}
