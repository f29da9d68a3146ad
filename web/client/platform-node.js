// See platform-browser.js. Deno and Bun have this part of Node, too.
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import script from 'bitnet-worker-script';

export const processors = availableParallelism;

export const resolveSource = text => text; // a URL or a path

// Old glue expects CommonJS. Deno runs a worker's text as a module, which has no require.
const COMMON_JS = `
globalThis.require ??= process.getBuiltinModule('node:module').createRequire('file:///');
globalThis.__dirname ??= '.';
var bitnetThreads = require('node:worker_threads');
`;

export function startWorker({ glue }, { onMessage, onLost }) {
    return new Worker(`${COMMON_JS}${glue}\n${script}`, { eval: true, execArgv: [] })
        .on('message', onMessage)
        .on('error', onLost)
        .on('exit', () => onLost(new Error('the worker ended')));
}
