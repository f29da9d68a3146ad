// A conversation, or a text: one sequence of a model's context. See bitnet.d.ts.
import { BitNetError } from '../shared/errors.js';
import { bad, checkMessages, generateOptions, isNone, tokenList } from './options.js';

/** The stats of a generation that did not end by itself, from its last event about the prompt, or
 * null, and the times when it started and when its first token came, or undefined. `before`: the
 * tokens that a resumed text had, which took no time. */
function cutShort({ reason, prompt, before, tokens, start, first, seed }) {
    const { promptTokens, reusedTokens, readTokens } = prompt ?? {
        promptTokens: 0,
        reusedTokens: 0,
        readTokens: 0
    };
    const now = performance.now();
    const prefillSeconds = ((first ?? now) - start) / 1000,
        decodeSeconds = first === undefined ? 0 : (now - first) / 1000;
    return {
        reason,
        promptTokens,
        reusedTokens,
        tokens: before + tokens,
        prefillSeconds,
        decodeSeconds,
        prefillPerSecond: Math.max(readTokens - reusedTokens, 0) / prefillSeconds || 0,
        decodePerSecond: tokens / decodeSeconds || 0,
        seed
    };
}

/** A queue of the worker's events, for an iterator that may be slower or faster. */
class Inbox {
    #items = [];
    #wake = () => {};
    #end = null;

    add(item) {
        this.#items.push(item);
        this.#wake();
    }
    end() {
        this.#end ??= {};
        this.#wake();
    }
    fail(error) {
        this.#end ??= { error };
        this.#wake();
    }
    cut(error) {
        this.#items = [];
        this.#end = { error }; // also of a text whose end has come, but is not taken yet
        this.#wake();
    }

    async *[Symbol.asyncIterator]() {
        for (;;) {
            while (this.#items.length) yield this.#items.shift();
            if (this.#end && 'error' in this.#end) throw this.#end.error;
            if (this.#end) return;
            await new Promise(resolve => {
                this.#wake = resolve;
            });
        }
    }
}

/** What a mask allows, as tokens; null: all. */
async function allowedBy(mask, tokens) {
    const allowed = await mask(tokens);
    return allowed === undefined || allowed === null ? null : tokenList(allowed, "mask's answer");
}

/** An iterator that nobody has any more ends what it would have given. */
const dropped = new FinalizationRegistry(generation => generation.stop?.(freed()));

const TAKEN = 4; // tokens that are reported together; the worker waits when 16 are not

/** The method of a session that chat.completions uses: it divides what the worker writes. */
export const REPLY = Symbol('reply');

const freed = () => new BitNetError('ERR_FREED', 'this session has been freed');

export class Session {
    #home;
    #number;
    #stop = null; // ends the generation that runs, with an error
    #freed = false;
    stats = null;

    /** home is the model: connection(), used(bytes) for the memory that is in use, and free(number).
     * The model's own session has the number 0. */
    constructor(home, number) {
        this.#home = home;
        this.#number = number;
    }

    generate(prompt, options = {}) {
        if (typeof prompt !== 'string') bad('prompt: a string is needed');
        return this.#run({ prompt }, options, generateOptions(options));
    }

    chat(messages, options = {}) {
        return this[REPLY](checkMessages(messages), options, generateOptions(options));
    }

    /** Goes on with the text that was being written when the bytes were saved which restore() got. */
    resume(options = {}) {
        const checked = generateOptions(options);
        for (const name of ['grammar', 'jsonSchema', 'mask'])
            if (!isNone(options[name])) bad(`${name}: a text with rules does not resume`);
        return this.#run({ resumes: true }, options, checked);
    }

    /** hooks may have onBegins, too: it gets what a reply that goes on begins with. */
    [REPLY](messages, hooks, options) {
        return this.#run({ messages }, hooks, options);
    }

    /** What texts() gives must not be known to what the worker's events reach, or it never ends. */
    #run(what, hooks, options) {
        const generation = {};
        const texts = this.#texts(what, hooks, options, generation);
        dropped.register(texts, generation);
        return texts;
    }

    async *#texts(what, { signal, onToken, onPrompt, onBegins, mask }, options, generation) {
        signal?.throwIfAborted();
        const connection = this.#idle();
        const inbox = new Inbox(),
            start = performance.now(),
            written = [];
        let prompt = null,
            before = 0,
            first,
            waiting = 0, // tokens that were taken, and not reported yet
            reason = 'abort';
        const leave = () => {
            signal?.removeEventListener('abort', onAbort);
            if (this.#stop !== stop) return;
            this.#stop = null;
            connection.cancel(call.id);
            const { seed } = options;
            const tokens = written.length;
            this.stats = cutShort({ reason, prompt, before, tokens, start, first, seed });
        };
        const stop = (generation.stop = this.#stop = error => {
            if (this.#stop !== stop) return; // it has ended, or was stopped before
            inbox.cut(error);
            leave(); // now: perhaps nobody asks for the next text
        });
        const answer = () =>
            allowedBy(mask, [...written]).then(
                allowed => connection.answer(call.id, { tokens: allowed }),
                error => {
                    reason = 'error';
                    stop(error);
                }
            );
        const onEvent = event => {
            if (event.ask) return void answer();
            if ('begins' in event) return onBegins?.(event.begins);
            if ('promptTokens' in event) {
                prompt = event;
                return onPrompt?.(event);
            }
            first ??= performance.now();
            before ||= event.before ?? 0;
            if (event.token >= 0) written.push(event.token);
            inbox.add(event);
        };
        const args = { session: this.#number, ...what, options };
        const call = connection.call('generate', args, onEvent);
        const onAbort = () => stop(signal.reason); // until all is taken: the worker may end before
        signal?.addEventListener('abort', onAbort);
        call.then(
            () => inbox.end(),
            error => {
                reason = 'error';
                inbox.fail(error);
            }
        );
        try {
            for await (const event of inbox) {
                if (++waiting >= TAKEN) {
                    connection.takes(call.id, waiting);
                    waiting = 0;
                }
                if (event.token >= 0) onToken?.(event);
                if (event.text) yield event.text;
            }
            const { memoryBytes, ...stats } = await call;
            this.#home.used(memoryBytes);
            this.#stop = null;
            return (this.stats = stats);
        } catch (error) {
            reason = 'error'; // what stops it by a signal has left already
            throw error;
        } finally {
            leave(); // by break or throw, or because it failed
        }
    }

    /** The connection, if the session can be used now. */
    #idle() {
        const connection = this.#connection();
        if (this.#stop) throw new BitNetError('ERR_BUSY', 'this session is already generating');
        return connection;
    }

    #connection() {
        if (this.#freed) throw freed();
        return this.#home.connection();
    }

    async save() {
        return this.#connection().call('save', { session: this.#number });
    }

    async restore(bytes) {
        if (bytes instanceof ArrayBuffer) bytes = new Uint8Array(bytes);
        if (!(bytes instanceof Uint8Array)) bad('bytes: a Uint8Array or ArrayBuffer is needed');
        return this.#idle().call('restore', { session: this.#number, bytes });
    }

    /** Forgets what the session holds. The model's own session can then be used again. */
    async clear() {
        await this.#idle().call('clear', { session: this.#number });
    }

    /** A second call, and one after the model's own end, find nothing to do: the number may already
     * be that of another session. */
    async free() {
        if (this.#freed || this.#number === 0) return;
        this.#freed = true;
        this.#stop?.(freed());
        try {
            await this.#home.connection().call('clear', { session: this.#number });
        } catch {
            return; // the model is freed or lost
        }
        this.#home.free(this.#number);
    }

    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.free();
    }
}
