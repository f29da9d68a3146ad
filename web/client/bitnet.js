// bitnet.js - BitNet b1.58 models in browsers and Node 20+. bitnet.d.ts has the interface. The model
// itself lives in a worker (worker.js), one per model; these files send it messages. bundle.mjs makes
// the package's modules of them and puts in what is imported as bitnet-*.
import { processors } from 'bitnet-platform';
import * as downloads from '../shared/cache/cache.js';
import { partsOf } from '../shared/cache/split.js';
import { abortable, connect } from './connection.js';
import { embed } from './embed.js';
import { BitNetError } from '../shared/errors.js';
import { choose } from './features.js';
import { pointerUrl } from './hub.js';
import { completions } from './openai/completions.js';
import { embeddings } from './openai/embeddings.js';
import {
    bad, checkHooks, checkNames, downloadOptions, embedArguments, number, portable, requestHeaders,
    tokenList
} from './options.js';
import { Session } from './session.js';

export { BitNetError };
export { variants } from './features.js';
export { divide as divideReply } from './thinking.js';

const LOAD_OPTIONS = [
    'threads', 'context', 'sessions', 'kvType', 'variant', 'cache', 'cacheName', 'hub', 'sha256',
    'headers', 'connections', 'stallSeconds', 'signal', 'onProgress'
];
const LEAST_CONTEXT = 9; // rows of logits that a session may need: its own, and 8 of a lookup
const KV_TYPES = ['f16', 'f32', 'i8']; // as bitnet_kv_type
const VERIFY_OPTIONS = ['sha256', 'signal', 'onProgress'];

function checkSha256(sha256) {
    if (sha256 !== undefined && !(typeof sha256 === 'string' && /^[0-9a-f]{64}$/i.test(sha256)))
        bad('sha256: 64 hexadecimal digits are needed');
}

/** A worker without a model: only a module has SHA-256 of a stream. */
async function verify(source, options = {}) {
    checkNames(options, VERIFY_OPTIONS);
    checkHooks(options);
    const { sha256, signal, onProgress } = options;
    checkSha256(sha256);
    signal?.throwIfAborted();
    return connect(choose('simd', 1), 1, signal, async connection => {
        try {
            const call = connection.call('hash', { source: portable(String(source)) }, onProgress);
            const got = await abortable(call, signal, () => connection.cancel(call.id));
            if (sha256 && got !== sha256.toLowerCase())
                throw new BitNetError(
                    'ERR_CHECKSUM',
                    `the file's SHA-256 is ${got}, not ${sha256}`
                );
            return got;
        } finally {
            connection.close(new BitNetError('ERR_FREED', 'it is done'));
        }
    });
}

async function check(url, options = {}) {
    checkNames(options, ['headers', 'signal']);
    checkHooks(options);
    const headers = requestHeaders(options.headers);
    return downloads.check(portable(String(url)), { signal: options.signal, headers });
}

export const cache = {
    list: downloads.list,
    remove: async url => downloads.remove(portable(String(url))),
    clear: downloads.clear,
    persist: downloads.persist,
    check,
    verify
};

export class BitNet {
    #connection;
    #own; // the session of generate and chat
    #taken = new Set(); // numbers of the other sessions
    #home = {
        connection: () => this.#alive(),
        used: bytes => (this.info.memoryBytes = bytes),
        free: number => this.#taken.delete(number)
    };
    info;

    constructor(connection, info) {
        if (!info) bad('a model comes from `await BitNet.load(source, options)`');
        this.#connection = connection;
        this.info = info;
        this.#own = new Session(this.#home, 0);
        this.chat = Object.assign((messages, options) => this.#own.chat(messages, options), {
            completions: completions(this, this.#own, () => this.#template())
        });
        this.embeddings = embeddings((texts, options) => this.#embed(texts, options), info.dims);
    }

    static async load(source, options = {}) {
        checkNames(options, LOAD_OPTIONS);
        checkHooks(options);
        const { signal, onProgress, sha256, variant, hub } = options;
        signal?.throwIfAborted();
        const context = number(options, 'context', 0, 0, 1 << 20, true);
        if (context && context < LEAST_CONTEXT)
            bad(`context: at least ${LEAST_CONTEXT} tokens are needed`);
        const sessions = number(options, 'sessions', 1, 1, 256, true);
        const threads = number(options, 'threads', Math.min(processors() || 1, 8), 1, 256, true);
        const kvType = KV_TYPES.indexOf(options.kvType ?? 'f16');
        if (kvType < 0) bad(`kvType: '${options.kvType}' is not ${KV_TYPES.join(', ')}`);
        checkSha256(sha256);
        const download = downloadOptions(options);
        const file = portable(source, hub);
        if (sha256 && (Array.isArray(file) || (typeof file === 'string' && partsOf(file))))
            bad('sha256: a model in several files has more than one');
        if (!sha256) download.pointer = pointerUrl(file, hub);
        const chosen = choose(variant, threads);
        const args = {
            source: file,
            options: { context, sessions, kvType, threads, sha256, download }
        };
        return connect(chosen, threads, signal, async connection => {
            const call = connection.call('load', args, onProgress);
            try {
                const info = await abortable(call, signal, () => connection.cancel(call.id));
                info.notes.unshift(...chosen.notes);
                return new BitNet(connection, info);
            } catch (e) {
                // give the worker time to clean up
                call.catch(() => {}).then(() => connection.close(e));
                setTimeout(() => connection.close(e), 2000).unref?.();
                throw e;
            }
        });
    }

    generate(prompt, options) {
        return this.#own.generate(prompt, options);
    }

    async #embed(texts, options = {}) {
        const args = embedArguments(texts, options);
        return embed(this.#alive(), args.texts, args.options, options);
    }

    #known; // what the chat template is like

    #template() {
        return (this.#known ??= this.#alive().call('template'));
    }

    async embed(texts, options) {
        return (await this.#embed(texts, options)).vectors;
    }

    get stats() {
        return this.#own.stats;
    }

    session() {
        this.#alive();
        for (let number = 1; number < this.info.sessions; number++) {
            if (this.#taken.has(number)) continue;
            this.#taken.add(number);
            return new Session(this.#home, number);
        }
        throw new BitNetError(
            'ERR_LIMIT',
            `all ${this.info.sessions} sessions are in use: free one, or load the model with more`
        );
    }

    resume(options) {
        return this.#own.resume(options);
    }

    save() {
        return this.#own.save();
    }

    restore(bytes) {
        return this.#own.restore(bytes);
    }

    clear() {
        return this.#own.clear();
    }

    #alive() {
        if (!this.#connection) throw new BitNetError('ERR_FREED', 'this model has been freed');
        return this.#connection;
    }

    async tokenize(text, options = {}) {
        checkNames(options, ['bos', 'special']);
        const { bos = false, special = false } = options;
        if (typeof text !== 'string') bad('text: a string is needed');
        return this.#alive().call('tokenize', { text, bos, special });
    }

    async detokenize(tokens) {
        return this.#alive().call('detokenize', { tokens: tokenList(tokens, 'tokens') });
    }

    async free() {
        this.#connection?.close(new BitNetError('ERR_FREED', 'this model has been freed'));
        this.#connection = null;
    }

    /** `await using model = await BitNet.load(...)`. Older engines do not have the symbol. */
    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.free();
    }
}
