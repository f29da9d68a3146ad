// states.js - the states of replies that are being written, in IndexedDB: if the page is closed before a
// reply ends, the next one goes on with it, without reading the chat again. One for each chat:
//
//     { chat, bytes, length, at, options, ... }       bytes: of the model's save()
//
// Nothing depends on them: one that is not there costs the time to read the chat.

import { database } from './database.js';

const MOST = 64e6; // bytes; more take longer to store than to compute
const TRIES = 2;
const MOST_AGE = 14 * 24 * 3600e3; // ms

const stored = database('bitnet-replies', { states: { keyPath: 'chat' } });
// Resolves to undefined if the browser does not do it.
const ask = (kind, f) => stored('states', kind, f).catch(() => undefined);

// A Blob is stored by others than this thread, which has a page to draw.
export const keep = async ({ bytes, ...state }) =>
    bytes.length > MOST
        ? forget(state.chat)
        : ask('readwrite', s =>
              s.put({ ...state, bytes: new Blob([bytes]), written: Date.now() })
          );

export const forget = chat => ask('readwrite', s => s.delete(chat));

// The state of a chat's reply, or null. One with which the page has ended twice is not given again.
export async function take(chat) {
    const state = await ask('readonly', s => s.get(chat));
    if (!state) return null;
    const { tries = 0 } = state;
    if (tries >= TRIES) {
        await forget(chat);
        return null;
    }
    await ask('readwrite', s => s.put({ ...state, tries: tries + 1 }));
    try {
        return { ...state, bytes: new Uint8Array(await state.bytes.arrayBuffer()) };
    } catch {
        return null; // its bytes are gone
    }
}

// Forgets what nobody has come back to.
export async function tidy() {
    const all = (await ask('readonly', s => s.getAll())) ?? [];
    for (const { chat, written } of all)
        if (!(Date.now() - written < MOST_AGE)) await forget(chat);
}
