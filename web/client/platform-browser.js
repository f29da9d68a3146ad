// What differs between a browser and Node: how a worker starts, how many processors there are, and
// what a string means as a source. platform-node.js and platform-inline.js have the same exports.
import script from 'bitnet-worker-script';
import { BitNetError } from '../shared/errors.js';
import { trusted } from '../shared/trusted.js';

export { unpack } from './unpack.js';

export const processors = () => navigator.hardwareConcurrency;

export const resolveSource = text =>
    new URL(text, globalThis.document?.baseURI ?? location.href).href;

/** Bytes as they are sent to the worker. */
export const isBlob = source => source instanceof Blob;
export const blobOf = bytes => new Blob([bytes]);

/** Starts the worker of an engine. It comes from a Blob, since a page may not start a worker from
 * another origin, and since no bundler has to know of it. */
export function startWorker({ glue }, { onMessage, onLost }) {
    if (typeof Worker !== 'function')
        throw new BitNetError(
            'ERR_UNSUPPORTED',
            'no worker can be started here, as in a SharedWorker or a service worker: bitnet-h/inline needs none'
        );
    const parts = [glue, '\n', script];
    const url = URL.createObjectURL(new Blob(parts, { type: 'text/javascript' }));
    let worker;
    try {
        worker = new Worker(trusted(url));
    } catch (e) {
        const hint = /TrustedScriptURL/.test(e.message)
            ? ' A Content-Security-Policy with trusted-types must allow the policy bitnet-h.'
            : '';
        throw new BitNetError(
            'ERR_UNSUPPORTED',
            `the worker could not be started: ${e.message}${hint}`
        );
    }
    worker.onmessage = event => {
        URL.revokeObjectURL(url); // it has been read
        worker.onmessage = e => onMessage(e.data);
        onMessage(event.data);
    };
    worker.onerror = worker.onmessageerror = onLost;
    return worker;
}
