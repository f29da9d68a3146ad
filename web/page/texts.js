// texts.js - the texts that can be searched, and their vectors, in IndexedDB:
//
//     texts       { id, name, file, note, text, spans }     spans: the start and end of each passage
//     vectors     { text, model, first, vectors }             of passages from number `first` on
//
// The vectors are those of one model, by its key. Where the browser keeps nothing, the texts are there
// until the page is closed, and the page says so.
import { database } from './database.js';
import { $ } from './dom.js';

const stored = database('bitnet-search', {
    texts: { keyPath: 'id' },
    vectors: { keyPath: ['text', 'model', 'first'] },
});

// Resolves to undefined if the browser does not do it.
const ask = (...all) =>
    stored(...all).catch(() => {
        $('texts-lost').hidden = false;
    });

// Other tabs hear which texts are added, indexed or removed.
const others = 'BroadcastChannel' in globalThis ? new BroadcastChannel('bitnet-search') : null;
const tell = ids => others?.postMessage(ids);
export const watch = f => {
    if (others) others.onmessage = ({ data: ids }) => f(ids);
};

export const all = async () => (await ask('texts', 'readonly', s => s.getAll())) ?? [];
export const one = id => stored('texts', 'readonly', s => s.get(id));
export const keep = text => ask('texts', 'readwrite', s => s.put(text)).then(() => tell([text.id]));
export const keepVectors = entry =>
    ask('vectors', 'readwrite', s => s.put(entry)).then(() => tell([entry.text]));

// All vectors of a text that a model has made, as entries in order.
export const vectorsOf = async (text, model) =>
    (await ask('vectors', 'readonly', s =>
        s.getAll(IDBKeyRange.bound([text, model], [text, model, []]))
    )) ?? [];

export async function clear(ids) {
    await ask('texts', 'readwrite', s => s.clear());
    await ask('vectors', 'readwrite', s => s.clear());
    tell(ids);
}

export async function remove(text) {
    await ask('texts', 'readwrite', s => s.delete(text));
    await ask('vectors', 'readwrite', s => s.delete(IDBKeyRange.bound([text], [text, []])));
    tell([text]);
}
