// texts.js - the texts that can be searched, and their vectors, in IndexedDB:
//
//     texts       { id, name, file, note, text, spans }     spans: the start and end of each passage
//     vectors     { text, model, first, vectors }             of passages from number `first` on
//
// The vectors are those of one model, by its key. Where the browser keeps nothing, the texts are there
// until the page is closed, and the page says so.
import { $ } from './dom.js';

let opening = null;

function database() {
    opening ??= new Promise((resolve, reject) => {
        const request = indexedDB.open('bitnet-search', 1);
        request.onupgradeneeded = () => {
            request.result.createObjectStore('texts', { keyPath: 'id' });
            request.result.createObjectStore('vectors', { keyPath: ['text', 'model', 'first'] });
        };
        request.onsuccess = () => {
            const db = request.result;
            db.onclose = forget; // the user deletes what is stored
            db.onversionchange = () => {
                db.close();
                forget();
            };
            resolve(db);
        };
        request.onerror = () => reject(request.error);
    });
    opening.catch(forget); // the next time it may do
    return opening;
}
const forget = () => {
    opening = null;
};

async function begin(name, kind) {
    try {
        return (await database()).transaction(name, kind);
    } catch (e) {
        if (e.name !== 'InvalidStateError') throw e;
        forget(); // it has been closed, and nothing said so yet
        return (await database()).transaction(name, kind);
    }
}

// Makes one request in a store. Resolves to its result when that is on the disk, or to undefined if
// the browser does not do it.
async function ask(name, kind, f) {
    try {
        const transaction = await begin(name, kind),
            request = f(transaction.objectStore(name));
        await new Promise((resolve, reject) => {
            transaction.oncomplete = resolve;
            transaction.onerror = transaction.onabort = () => reject(transaction.error);
        });
        return request.result;
    } catch {
        $('texts-lost').hidden = false;
        return undefined;
    }
}

export const all = async () => (await ask('texts', 'readonly', s => s.getAll())) ?? [];
export const keep = text => ask('texts', 'readwrite', s => s.put(text));
export const keepVectors = entry => ask('vectors', 'readwrite', s => s.put(entry));

// All vectors of a text that a model has made, as entries in order.
export const vectorsOf = async (text, model) =>
    (await ask('vectors', 'readonly', s =>
        s.getAll(IDBKeyRange.bound([text, model], [text, model, []]))
    )) ?? [];

export async function clear() {
    await ask('texts', 'readwrite', s => s.clear());
    await ask('vectors', 'readwrite', s => s.clear());
}

export async function remove(text) {
    await ask('texts', 'readwrite', s => s.delete(text));
    await ask('vectors', 'readwrite', s => s.delete(IDBKeyRange.bound([text], [text, []])));
}
