// chats.js - the chats that this browser keeps, in IndexedDB. A chat:
//
//     { id, name, mode: 'chat' or 'text', created, changed, revision, model, system, messages }
//
// A message has a role and content; a completion ('text') also what was given. revision counts the
// saves: a chat that another tab has saved meanwhile is not overwritten, but goes on as a copy.
//
// A storage that fails loses nothing: what it does not take waits in `unsaved` and is tried again, and
// the page says so until it has worked.
import { database, settled } from './database.js';
import { $, announce } from './dom.js';
import { local } from './storage.js';

const stored = database('bitnet-chats', { chats: { keyPath: 'id' } }, () => {
    stale = true;
});
const withStore = (kind, f) => stored('chats', kind, f);

// Calls follow one another.
let queue = Promise.resolve();
const inTurn = f => (queue = queue.catch(() => {}).then(f));

// ---- what the storage did not take ----

const unsaved = new Map(); // id -> the chat, or null if it is to be deleted
const FIRST_RETRY = 1000, // ms
    LONGEST_RETRY = 30000;
let delay = FIRST_RETRY,
    timer = null;

// A browser that denies storage to this page will not change its mind.
const denied = e => e?.name === 'SecurityError' || !('indexedDB' in globalThis);

function failed(e) {
    if (denied(e)) {
        $('chats-lost').hidden = false;
        return;
    }
    const why = [e?.name, e?.message].filter(Boolean).join(': ');
    $('unsaved-text').textContent =
        `This browser does not keep your chats at the moment. Leave this tab open: the page tries ` +
        `again. (${why})`;
    $('unsaved').hidden = false;
    timer ??= setTimeout(retry, delay);
    delay = Math.min(2 * delay, LONGEST_RETRY);
}

function worked() {
    delay = FIRST_RETRY;
    if (unsaved.size) return;
    clearTimeout(timer);
    timer = null;
    $('chats-lost').hidden = true;
    if ($('unsaved').hidden) return;
    $('unsaved').hidden = true;
    announce('Your chats are kept again.');
}

// Tries again what has failed.
function retry() {
    clearTimeout(timer);
    timer = null;
    return inTurn(async () => {
        try {
            await read();
            for (const [id, chat] of [...unsaved]) {
                if (chat) await put(chat);
                else await withStore('readwrite', store => store.delete(id));
                unsaved.delete(id);
                tell([id, chat?.id ?? id]);
            }
            worked();
        } catch (e) {
            failed(e);
        }
        changed?.([]);
    });
}
$('unsaved-retry').onclick = retry;
addEventListener('pagehide', () => {
    for (const chat of unsaved.values()) if (chat) leave(chat);
});
addEventListener('beforeunload', e => {
    if (!$('unsaved').hidden) e.preventDefault(); // the browser asks
});

// ---- other tabs ----

const others = 'BroadcastChannel' in globalThis ? new BroadcastChannel('bitnet-chats') : null;
const tell = ids => others?.postMessage(ids);
let changed = null;

// f(ids): these chats have another state than this tab gave them; null: any may have. The list, too.
export function watch(f) {
    changed = f;
    if (others)
        others.onmessage = ({ data: ids }) =>
            inTurn(async () => {
                try {
                    for (const id of ids) note(id, await withStore('readonly', s => s.get(id)));
                } catch (e) {
                    failed(e);
                }
                f(ids);
            });
    addEventListener('pageshow', e => {
        if (!e.persisted) return; // the browser kept the page while others went on
        stale = true;
        f(null);
    });
}

// A tab holds a lock while it writes a chat, and leaves a mark. The lock ends with the tab.
const MARK = 'writing.',
    lockOf = id => `bitnet-writing-${id}`,
    mine = new Set();

export async function writtenElsewhere(id) {
    const { held } = (await navigator.locks?.query().catch(() => null)) ?? { held: [] };
    return !mine.has(id) && held.some(lock => lock.name === lockOf(id));
}

// Calls f when no tab writes the chat any more: in one tab after the other.
export const whenWritten = (id, f) =>
    navigator.locks.request(lockOf(id), async () => {
        mine.add(id);
        await f();
        mine.delete(id);
    });

// This tab writes the chat until the function that is returned is called.
export function writing(id) {
    let end;
    const ended = new Promise(resolve => {
        end = resolve;
    });
    mine.add(id);
    local.set(MARK + id, '1');
    navigator.locks?.request(lockOf(id), { mode: 'shared' }, () => ended).catch(() => {}); // denied
    return () => {
        mine.delete(id);
        local.set(MARK + id, null);
        end();
    };
}

// The ids of the chats that were being written when their tab was closed. They are told once.
export async function cutOff() {
    const ids = [];
    for (const key of local.keys(MARK)) {
        const id = key.slice(MARK.length);
        if (mine.has(id) || (await writtenElsewhere(id))) continue;
        local.set(key, null);
        ids.push(id);
    }
    return ids;
}

// ---- chats ----

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

// The name that the user gave, or how the chat begins.
export function nameOf(chat) {
    if (chat.name) return chat.name;
    const { given, content } = chat.messages[0] ?? {};
    const first = (given ?? content ?? '').trim().replace(/\s+/g, ' ');
    return first.length > 48 ? `${first.slice(0, 47)}…` : first || 'New chat';
}

// What the list shows of each chat, by its id; stale: it has to be read anew.
let known = new Map(),
    stale = true;

const summary = chat => ({
    id: chat.id,
    mode: chat.mode,
    changed: chat.changed,
    title: nameOf(chat),
    size: chat.messages.length,
});

// The chat is now so; null: it is gone.
function note(id, chat) {
    if (chat && !deleted.has(id)) known.set(id, summary(chat));
    else known.delete(id);
}

const AT_ONCE = 50; // chats that are read together

// Calls f with each chat that is stored.
async function eachStored(f) {
    let some,
        after = null;
    do {
        const range = after === null ? null : IDBKeyRange.lowerBound(after, true);
        some = await withStore('readonly', store => store.getAll(range, AT_ONCE));
        some.forEach(f);
        after = some.at(-1)?.id;
    } while (some.length === AT_ONCE);
}

async function read() {
    if (!stale) return;
    const all = new Map();
    await eachStored(chat => all.set(chat.id, summary(chat)));
    known = all;
    stale = false;
    for (const [id, chat] of unsaved) note(id, chat);
}

// What the list shows, the latest first.
export const all = () =>
    inTurn(async () => {
        await read().catch(failed);
        return [...known.values()].sort((a, b) => b.changed.localeCompare(a.changed));
    });

// The ids of the chats that have these words in their name or text.
export const find = words =>
    inTurn(async () => {
        const wanted = words.toLocaleLowerCase().split(/\s+/).filter(Boolean),
            ids = new Set();
        const look = chat => {
            const text = chat.messages.map(m => `${m.given ?? ''}${m.content}`);
            const whole = `${chat.name}\n${text.join('\n')}`.toLocaleLowerCase();
            if (wanted.every(word => whole.includes(word))) ids.add(chat.id);
        };
        for (const chat of unsaved.values()) if (chat) look(chat);
        await eachStored(look).catch(failed);
        return ids;
    });

export const load = id =>
    inTurn(async () => {
        if (unsaved.has(id)) return structuredClone(unsaved.get(id)) ?? undefined;
        try {
            const chat = await withStore('readonly', store => store.get(id));
            note(id, chat);
            return chat;
        } catch (e) {
            failed(e);
            return undefined;
        }
    });

// The ids of chats that the user deleted: a reply that is still being written brings none of them back.
const deleted = new Set();

// Writes the chat. Returns whether it became a copy.
async function put(chat) {
    const before = chat.id,
        next = structuredClone(chat);
    next.changed = new Date().toISOString();
    const copied = await withStore('readwrite', async store => {
        const there = await settled(store.get(next.id)),
            copy = there && there.revision !== next.revision;
        if (copy) {
            next.id = newChat().id;
            next.revision = 0;
            next.name = `${nameOf(next)} (copy)`;
        }
        next.revision++;
        store.put(next);
        if (copy) note(before, there);
        return copy;
    });
    const { id, name, revision, changed: at } = next;
    Object.assign(chat, { id, revision, changed: at }, copied && { name });
    note(id, next);
    forgetLeft(before);
    return !!copied;
}

// Saves the chat. Returns whether it became a copy.
export const save = chat =>
    inTurn(async () => {
        if (deleted.has(chat.id)) return false;
        const { id } = chat;
        try {
            const copied = await put(chat);
            unsaved.delete(id);
            worked();
            tell([id, chat.id]);
            return copied;
        } catch (e) {
            unsaved.set(id, chat);
            chat.changed = new Date().toISOString();
            note(id, chat);
            failed(e);
            return false;
        }
    });

// Gives the chat a name, between two saves of it: it becomes no copy. Returns the chat; undefined: it is
// gone.
export const rename = (id, name) =>
    inTurn(async () => {
        let chat = unsaved.get(id);
        if (deleted.has(id) || chat === null) return undefined;
        try {
            if (chat) chat.name = name;
            else {
                await withStore('readwrite', async store => {
                    chat = await settled(store.get(id));
                    if (!chat) return;
                    Object.assign(chat, { name, changed: new Date().toISOString() });
                    store.put({ ...chat, revision: chat.revision + 1 });
                });
                if (chat) chat.revision++;
            }
            tell([id]);
        } catch (e) {
            if (chat) unsaved.set(id, chat);
            failed(e);
        }
        note(id, chat);
        return chat;
    });

// Takes the chat, which has become empty, out of the store. It can be saved again.
export const discard = chat =>
    inTurn(async () => {
        const { id, revision } = chat;
        unsaved.delete(id);
        forgetLeft(id);
        chat.revision = 0;
        if (!revision) return;
        note(id, null);
        try {
            await withStore('readwrite', store => store.delete(id));
            tell([id]);
        } catch (e) {
            unsaved.set(id, null);
            failed(e);
        }
    });

// Deletes chats, which then stay deleted.
export const remove = ids =>
    inTurn(async () => {
        for (const id of ids) {
            deleted.add(id);
            forgetLeft(id);
            unsaved.set(id, null);
            note(id, null);
        }
        try {
            await withStore('readwrite', store => ids.forEach(id => store.delete(id)));
            for (const id of ids) unsaved.delete(id);
            worked();
            tell(ids);
        } catch (e) {
            failed(e);
        }
    });

// ---- a page that is left ----
// IndexedDB takes time that a page which is left does not have. localStorage takes none, so what is not
// saved yet goes there, and to its place when the page is opened again.

const LEFT = 'left.';
const forgetLeft = id => local.set(LEFT + id, null);

export function leave(chat) {
    if (!deleted.has(chat.id)) local.set(LEFT + chat.id, JSON.stringify(chat));
}

// Whether `there`, which is stored, lacks something of the chat that was left.
function lacks(there, chat) {
    if (!there) return true;
    const n = there.messages.length,
        last = chat.messages[n - 1];
    if (n < chat.messages.length) return true;
    return (last?.content.length ?? 0) > there.messages[n - 1].content.length;
}

// Saves what was left.
export async function takeBack() {
    for (const key of local.keys(LEFT)) {
        let chat;
        try {
            chat = JSON.parse(local.get(key));
            if (await writtenElsewhere(chat.id)) continue;
            const there = await load(chat.id);
            if (lacks(there, chat)) {
                // A save that was under way may have come to its end.
                if (there && there.revision <= chat.revision + 1) chat.revision = there.revision;
                await save(chat);
            }
        } catch {
            /* not ours */
        }
        local.set(key, null);
    }
}

// ---- files ----

// A chat as a file for other programs.
function exported({ mode, created, changed: at, model, messages, ...chat }) {
    const roles = messages.flatMap(({ role, given, content }) =>
        role === 'text'
            ? [
                  { role: 'given', content: given },
                  { role: 'completion', content },
              ]
            : [{ role, content }]
    );
    return {
        format: 'bitnet-chat',
        version: 1,
        name: nameOf({ messages, ...chat }),
        mode,
        model,
        created,
        changed: at,
        system: chat.system ?? '',
        messages: roles,
    };
}

// The text of a file with these chats: several are { format, version, chats }.
export function fileOf(chats) {
    const files = chats.map(exported),
        whole = files.length === 1 ? files[0] : { format: 'bitnet-chats', version: 1, chats: files };
    return JSON.stringify(whole, null, 2) + '\n';
}

const ROLES = { chat: ['user', 'assistant'], text: ['given', 'completion'] };
const isText = value => typeof value === 'string';

// A chat of such a file. Throws what is wrong with it.
function imported(file, where) {
    const bad = what => {
        throw new Error(`${where}${what}`);
    };
    if (file?.format !== 'bitnet-chat') bad('is no chat that this page has exported');
    if (file.version !== 1) bad(`has the version ${file.version}, which this page does not know`);
    if (!Object.hasOwn(ROLES, file.mode)) bad(`has the mode ${file.mode}`);
    const roles = ROLES[file.mode],
        time = at => (isText(at) && !Number.isNaN(Date.parse(at)) ? at : '');
    const given = Array.isArray(file.messages) ? file.messages : bad('has no messages');
    given.forEach((m, i) => {
        if (!roles.includes(m?.role) || !isText(m.content))
            bad(`has a message that cannot be read, number ${i + 1}`);
        if (file.mode === 'text' && m.role !== roles[i % 2])
            bad(`has a text without its beginning, number ${i + 1}`);
    });
    const chat = newChat(file.mode);
    chat.messages =
        file.mode === 'chat'
            ? given.map(({ role, content }) => ({ role, content }))
            : given.flatMap(({ content }, i) =>
                  i % 2 ? [] : [{ role: 'text', given: content, content: given[i + 1]?.content ?? '' }]
              );
    chat.created = time(file.created) || chat.created;
    chat.changed = time(file.changed) || chat.created;
    chat.name = isText(file.name) ? file.name : '';
    chat.model = isText(file.model) ? file.model : '';
    chat.system = isText(file.system) ? file.system : '';
    if (chat.name === nameOf({ messages: chat.messages })) chat.name = '';
    return chat;
}

// The chats of a file's text. Throws what is wrong with it.
export function chatsOf(text) {
    let file;
    try {
        file = JSON.parse(text);
    } catch {
        throw new Error('is no JSON');
    }
    if (file?.format !== 'bitnet-chats') return [imported(file, '')];
    if (!Array.isArray(file.chats)) throw new Error('has no chats');
    return file.chats.map((chat, i) => imported(chat, `has a chat, number ${i + 1}, which `));
}

// Stores such chats, but for those that are there already. Returns how many were new.
export const add = chats =>
    inTurn(async () => {
        const same = chat => JSON.stringify(exported({ ...chat, changed: '' }));
        const fresh = new Map(chats.map(chat => [same(chat), { ...chat, revision: 1 }]));
        try {
            await eachStored(chat => fresh.delete(same(chat)));
            await withStore('readwrite', store => fresh.forEach(chat => store.put(chat)));
        } catch (e) {
            throw new Error(`could not be stored (${e.message})`);
        }
        for (const chat of fresh.values()) note(chat.id, chat);
        tell([...fresh.values()].map(chat => chat.id));
        return fresh.size;
    });
