// The worker's script: bundle.mjs makes a text of it, which stands behind an engine's glue. The glue
// defines bitnetModule. In Node bitnetThreads is its module of threads.
/* global bitnetModule, bitnetThreads */
import { trusted } from '../shared/trusted.js';
import { start } from './worker.js';

const node = typeof bitnetThreads === 'object' && bitnetThreads;

/** How emscripten's glue starts its threads: from a text that it does not know of. */
function threadStarter(script) {
    if (!node) {
        self.Worker = class extends self.Worker {
            constructor(url, options) {
                super(trusted(url), options);
            }
        };
        return URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
    }
    node.Worker = class extends node.Worker {
        constructor(_, options) {
            super(script, { ...options, eval: true });
        }
    };
    return 'bitnet-threads';
}

if (node) {
    const { parentPort } = node;
    const post = (message, transfer) => parentPort.postMessage(message, transfer);
    parentPort.on('message', start({ post, createModule: bitnetModule, threadStarter }));
} else {
    const receive = start({
        post: (message, transfer) => self.postMessage(message, transfer),
        createModule: bitnetModule,
        threadStarter
    });
    self.onmessage = event => receive(event.data);
}
