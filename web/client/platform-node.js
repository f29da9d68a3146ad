// See platform-browser.js. Deno and Bun have this part of Node, too.
import { Blob } from 'node:buffer'; // jsdom has a Blob of its own, which a worker cannot get
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { gunzipSync } from 'node:zlib';
import script from 'bitnet-worker-script';
import { BitNetError } from '../shared/errors.js';

export function processors() {
    try {
        return availableParallelism();
    } catch {
        return navigator.hardwareConcurrency; // of Deno, which may not allow the other
    }
}

export const resolveSource = text => text; // a URL or a path

export const isBlob = source => source instanceof Blob;
export const blobOf = bytes => new Blob([bytes]);

export const unpack = async packed => gunzipSync(packed);

// Old glue expects CommonJS. Deno runs a worker's text as a module, which has no require.
const COMMON_JS = `
globalThis.require ??= process.getBuiltinModule('node:module').createRequire('file:///');
globalThis.__dirname ??= '.';
var bitnetThreads = require('node:worker_threads');
`;

export function startWorker({ glue }, { onMessage, onLost }) {
    const text = `${COMMON_JS}${glue}\n${script}`;
    let worker;
    try {
        worker = new Worker(text, { eval: true, execArgv: [] });
    } catch (e) {
        throw new BitNetError('ERR_UNSUPPORTED', `the worker could not be started: ${e.message}`);
    }
    return worker
        .on('message', onMessage)
        .on('error', onLost)
        .on('exit', () => onLost(new Error('the worker ended')));
}
