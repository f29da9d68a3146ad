// storage.js - localStorage and sessionStorage for a page that may be denied both: a browser that
// blocks cookies throws at the first touch, and a full store throws later.

function store(name) {
    return {
        get(key) {
            try {
                return globalThis[name].getItem(`bitnet.${key}`);
            } catch {
                return null;
            }
        },
        set(key, value) {
            try {
                if (value === null) globalThis[name].removeItem(`bitnet.${key}`);
                else globalThis[name].setItem(`bitnet.${key}`, value);
            } catch {
                /* it is not kept, and the page goes on */
            }
        },
        // The keys that begin so.
        keys(start) {
            try {
                const all = Object.keys(globalThis[name]).map(key => key.replace('bitnet.', ''));
                return all.filter(key => key.startsWith(start));
            } catch {
                return [];
            }
        },
    };
}

export const local = store('localStorage');
export const session = store('sessionStorage');
