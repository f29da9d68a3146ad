// failures.js - errors for people: what happened, and what helps.
import { bytes } from './format.js';

const FAILURES = {
    ERR_NO_SIMD: [
        'This browser has no WebAssembly SIMD',
        'Chrome 91, Firefox 89, Safari 16.4 and later have it. ' +
            'Some browsers switch it off in a hardened or “lockdown” mode.',
    ],
    ERR_MEMORY: [
        'Out of memory',
        'The model needs more than this browser gives to a page. Close other tabs, or ' +
            'choose a smaller context under “Load options”.',
    ],
    ERR_FORMAT: [
        'The file is damaged',
        'It is a GGUF file, but what is in it cannot be right. Download or copy it again.',
    ],
    ERR_TRUNCATED: ['The file ends too early', 'The download or the copy is not complete.'],
    ERR_UNSUPPORTED: [
        'This page cannot run this model',
        'It runs models of ternary or 1-bit weights, such as BitNet, Bonsai and BitCPM. ' +
            'Some are under “Models to download”.',
    ],
    ERR_LIMIT: ['The model is too large for this page', 'WebAssembly has at most 4 GB of memory.'],
    ERR_IO: ['The file cannot be read', 'It may have been moved or changed since you chose it.'],
    ERR_CHECKSUM: [
        'The file has the wrong checksum',
        'It is not the file that was asked for, or it is damaged. It was not kept.',
    ],
    ERR_QUOTA: [
        'No room for the model in this browser',
        'Delete models under “Kept in this browser”, or make room ' +
            'on the disk. A file opened from the disk needs no room.',
    ],
    ERR_CORS_OR_NETWORK: [
        'The URL cannot be reached from this page',
        'Either there is no connection, or the server does not allow other sites ' +
            'to read the file (CORS). Download it, then open it from the disk.',
    ],
    ERR_NETWORK: ['The download was interrupted', 'Open the URL again.'],
    ERR_BUSY: ['The model is busy', 'It is still generating.'],
    NO_ANSWER: ['The server does not answer', 'Check that it runs, then try again.'],
    NO_SERVER: [
        'This host has no server of bitnet.h',
        'Choose another model under “Settings”, or open the page without ?server in its address.',
    ],
    SERVER_GONE: [
        'The server stopped in the middle of the reply',
        'Check that it still runs. “Continue” goes on with the reply.',
    ],
    KEY: ['The server needs its key', 'Nothing was sent. Send it again to enter the key.'],
    CLIPBOARD: [
        'The text could not be copied',
        'This browser does not let the page write to the clipboard. Select the text instead.',
    ],
    CHECKSUM: [
        'The checksum in the address is not complete',
        'It is a SHA-256: 64 digits from 0 to 9 and a to f after #sha256=.',
    ],
    ERR_ARG: ['This cannot be used', 'Check the address and the settings.'],
    SETTING: ['A setting is out of range', 'Correct it under “Settings”. Nothing was sent.'],
    LOAD_SETTING: [
        'A setting is out of range',
        'Correct it under “Load options”. Until then no model is opened; the open one stays.',
    ],
    TEXT: [
        'Not everything can be searched',
        'Texts in UTF-8 or UTF-16, PDF and Word files (.docx) of up to 20 MB can be searched.',
    ],
    ERR_INTERNAL: [
        'The model stopped working',
        'Open it again: “Load again” under “Load options”. What was written is kept. If it happens ' +
            'again, load the page again, or choose another variant there.',
    ],
    PART: [
        'A part of this page could not be loaded',
        'Check the connection, then load the page again.',
    ],
    PARTS: [
        'Parts of the model are missing',
        'Choose or drop all of its files together.',
    ],
    ERR_SELFTEST: [
        'This browser computes wrong results',
        'The kernels failed their self-test. The cross-check shows where.',
    ],
};
// What has the same code and is something else to a user: what the message says, and the words.
const SPECIAL = {
    ERR_BUSY: [
        [
            /another tab/,
            'Another tab uses this model',
            'It reads or downloads it. Close that tab, or try again later.',
        ],
    ],
    ERR_FORMAT: [
        [
            /not a GGUF file/,
            'This is no model',
            'A model is a file in the format GGUF. Its name ends in .gguf.',
        ],
    ],
    ERR_INTERNAL: [
        [
            /^no \w+ module|could not be started|did not start/,
            'The model could not be started here',
            'This browser, an extension or the host of the page forbids what it needs. The details ' +
                'say what; another browser may do.',
        ],
    ],
    ERR_UNSUPPORTED: [
        [
            /^the worker could not be started|^no worker can be/,
            'The model could not be started here',
            'This browser or the host of the page does not let it run beside the page.',
        ],
        [
            /^no chat/,
            'This model was not made for chats',
            'It goes on with a text that you begin: choose “Write” above.',
        ],
        [
            /^no \w+ (module|SIMD)|^one thread/,
            'This browser lacks the variant',
            'Choose another one under “Load options”.',
        ],
    ],
};
const HTTP = {
    401: 'The server asks for a login.',
    403: 'The server refuses access.',
    404: 'There is no such file. Check the URL.',
    410: 'The file is gone.',
    429: 'Too many requests. Try again later.',
};

// A full context: what helps depends on the model and on what was sent.
function tooLong({ info, system }) {
    const advice = ['Make it shorter'];
    if (system) advice.push('shorten the system prompt');
    if (info && info.context < info.contextTrained)
        advice.push(
            info.variant === 'server'
                ? 'start the server with a larger context (--ctx-size)'
                : 'choose a larger context under “Load options”'
        );
    const last = advice.pop();
    const all = advice.length ? `${advice.join(', ')}, or ${last}` : last;
    return [
        'The text is too long for the context',
        `${all}. The context has ${info?.context} tokens, for the text and its reply.`,
    ];
}

// Of these the message itself is for people.
const TOLD = ['PARTS', 'SETTING', 'LOAD_SETTING', 'TEXT', 'CHECKSUM', 'SERVER_GONE', 'ERR_ARG', 'ERR_HTTP'];

// { title, text, code, told } of an error. code has the error's message, and told says whether that is
// for people. about: { info, system } of the model and the chat, and kept, how many bytes of an
// interrupted download the browser has.
export function explain(e, about = {}) {
    const [, ...special] = SPECIAL[e.code]?.find(([says]) => says.test(e.message)) ?? [];
    let [title, text] = special.length
        ? special
        : (FAILURES[e.code] ?? ['Something went wrong', '']);
    if (e.code === 'ERR_HTTP' || (e.status && !FAILURES[e.code])) {
        title = e.status ? `The server answered ${e.status}` : 'The server refused';
        text = HTTP[e.status] ?? (e.status >= 500 ? 'The server failed. Try again later.' : '');
    }
    if (e.code === 'ERR_FULL') [title, text] = tooLong(about);
    if (!e.code && e instanceof RangeError && /memory|allocation/i.test(e.message))
        [title, text] = FAILURES.ERR_MEMORY;
    if (e.code === 'ERR_NETWORK' && about.kept !== undefined) {
        text = about.kept
            ? `Open the URL again: ${bytes(about.kept)} of it are kept, and the rest follows.`
            : 'Open the URL again. It begins anew: nothing of it is kept.';
    }
    // The page's own codes say nothing to anybody.
    const code = /^ERR_/.test(e.code) ? `${e.code}: ${e.message}` : e.message;
    return { title, text, code, told: !e.code || TOLD.includes(e.code) };
}
