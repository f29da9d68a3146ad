// See platform-browser.js. The model runs in the thread that calls: for a service worker, which may
// not start workers. There is one model at a time, and no thread beside it.
import { BitNetError } from '../shared/errors.js';
import { start, stop } from '../worker/worker.js';

export { unpack } from './unpack.js';

export const processors = () => 1;

export const resolveSource = text => new URL(text, location.href).href;

export const isBlob = source => source instanceof Blob;
export const blobOf = bytes => new Blob([bytes]);

let open = false;
let before = Promise.resolve(); // the end of the model before this one

export function startWorker({ createModule }, { onMessage }) {
    if (open) throw new BitNetError('ERR_BUSY', 'only one model can be open here: free the other');
    open = true;
    const post = message => queueMicrotask(() => onMessage(message));
    const started = before.then(() => start({ post, createModule }));
    return {
        postMessage(message) {
            const copy = structuredClone(message); // as a worker gets it
            started.then(receive => receive(copy));
        },
        terminate() {
            open = false;
            before = started.then(stop);
        }
    };
}
