// database.js - IndexedDB, for what the page keeps.

// Settles as the request does.
export const settled = request =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

// A database with these stores, by name: what createObjectStore takes. It opens when it is needed, and
// again when the browser has closed it; closed() is told. Returns ask(store, kind, f): f gets the store,
// in one transaction, and gives a request or a promise. Resolves to its result when all is on the disk.
export function database(name, stores, closed = () => {}) {
    let opening = null;

    async function connect() {
        const request = indexedDB.open(name, 1);
        request.onupgradeneeded = () => {
            for (const store of Object.keys(stores))
                request.result.createObjectStore(store, stores[store]);
        };
        const db = await settled(request);
        db.onclose = forget; // the user deletes what is stored
        db.onversionchange = () => {
            db.close();
            forget();
        };
        return db;
    }

    function forget() {
        opening = null;
        closed();
    }

    async function begin(store, kind) {
        opening ??= connect().catch(e => {
            forget(); // the next time it may do
            throw e;
        });
        return (await opening).transaction(store, kind);
    }

    return async (store, kind, f) => {
        const transaction = await begin(store, kind).catch(e => {
            if (e.name !== 'InvalidStateError') throw e;
            forget(); // it has been closed, and nothing said so yet
            return begin(store, kind);
        });
        const done = new Promise((resolve, reject) => {
            transaction.oncomplete = resolve;
            transaction.onabort = () => reject(transaction.error ?? new Error('it was aborted'));
        });
        done.catch(() => {}); // f fails, too
        const result = await f(transaction.objectStore(store));
        await done;
        return result instanceof IDBRequest ? result.result : result;
    };
}
