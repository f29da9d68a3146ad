// The worker of a model, and the calls to it.
import { engines } from 'bitnet-engines';
import { startWorker, unpack } from 'bitnet-platform';
import { BitNetError, abortError, engineCode } from '../shared/errors.js';

/** Settles like the promise, or rejects with the signal's reason as soon as it is aborted. */
export function abortable(promise, signal, onAbort) {
    if (!signal) return promise;
    return new Promise((resolve, reject) => {
        const stop = () => {
            onAbort();
            reject(signal.reason);
        };
        if (signal.aborted) stop();
        signal.addEventListener('abort', stop, { once: true });
        promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
    });
}

/** instead: which variant may do what this one cannot, 'simd' or 'another'. */
function revive({ name, code, message, status, instead }) {
    if (name === 'AbortError') return abortError();
    const error = new BitNetError(code, message, status);
    return instead ? Object.assign(error, { instead }) : error;
}

/** In Firefox (140, about 1 start in 100) a worker that creates a worker may hang. A start that takes
 * longer than this is given up and tried again. */
const START_MS = 4000;

/** A worker may end without an event. While a call is pending it is asked whether it is there, every
 * BEAT_MS, and given up after so many questions without a word. It answers between two steps of its
 * work, which take a second or, on a slow device, some; but loading may be one long step. */
const BEAT_MS = 5000,
    BEATS = 12;
const LOADING = ['startModule', 'load', 'hash'];

class Stalled extends BitNetError {
    instead = 'simd';
}

/** Calls to the worker and their answers. If the worker dies, all pending calls fail. */
class Connection {
    #worker;
    #timer;
    #beat = null; // the timer that asks
    #silent = 0; // questions since the worker's last word
    #calls = new Map(); // id -> { op, resolve, reject, onEvent }
    #next = 1;
    #dead = null; // the error that says why

    constructor(engine) {
        this.#worker = startWorker(engine, {
            onMessage: data => this.#onMessage(data),
            onLost: event => this.close(crash(event))
        });
    }

    call(op, args, onEvent) {
        if (this.#dead) return Object.assign(Promise.reject(this.#dead), { id: 0 });
        const id = this.#next++;
        const promise = new Promise((resolve, reject) => {
            this.#calls.set(id, { op, resolve, reject, onEvent });
        });
        try {
            this.#worker.postMessage({ id, op, ...args });
        } catch (e) {
            // something that cannot be cloned
            this.#calls.delete(id);
            return Object.assign(Promise.reject(new BitNetError('ERR_ARG', e.message)), { id });
        }
        this.#hold();
        return Object.assign(promise, { id });
    }

    /** The worker stops at its next turn. This call gets no more events. */
    cancel(id) {
        const call = this.#calls.get(id);
        if (!call) return;
        call.onEvent = undefined;
        this.#worker.postMessage({ cancel: id });
    }

    /** What a call has asked for. */
    answer(id, answer) {
        if (this.#calls.has(id)) this.#worker.postMessage({ answers: id, ...answer });
    }

    /** The caller has taken so many of its tokens. */
    takes(id, count) {
        if (this.#calls.has(id)) this.#worker.postMessage({ takes: id, count });
    }

    close(error) {
        if (this.#dead) return;
        this.#dead = error;
        clearTimeout(this.#timer);
        clearInterval(this.#beat);
        this.#worker.terminate(); // and its threads with it
        for (const { reject } of this.#calls.values()) reject(error);
        this.#calls.clear();
    }

    #watch(starting) {
        clearTimeout(this.#timer);
        if (!starting) return;
        this.#timer = setTimeout(() => {
            this.close(new Stalled('ERR_INTERNAL', 'the threads did not start'));
        }, START_MS);
    }

    #onMessage({ id, event, value, error, starting }) {
        this.#silent = 0;
        if (starting !== undefined) return this.#watch(starting);
        const call = this.#calls.get(id);
        if (!call) return;
        if (event) {
            try {
                return call.onEvent?.(event);
            } catch (e) {
                return call.reject(e); // thrown by the caller's handler
            }
        }
        this.#calls.delete(id);
        this.#hold();
        if (!error) return call.resolve(value);
        const revived = revive(error);
        call.reject(revived);
        // after a crash the module's memory is not reliable
        if (revived.code === 'ERR_INTERNAL') this.close(revived);
    }

    /** Keeps Node running while a call is pending, but not because of an idle worker. */
    #hold() {
        this.#worker[this.#calls.size ? 'ref' : 'unref']?.();
        const asks = [...this.#calls.values()].some(({ op }) => !LOADING.includes(op));
        if (asks === (this.#beat !== null)) return;
        clearInterval(this.#beat);
        this.#silent = 0;
        this.#beat = asks ? setInterval(() => this.#ask(), BEAT_MS) : null;
        this.#beat?.unref?.();
    }

    #ask() {
        if (this.#silent++ < BEATS) this.#worker.postMessage({ beat: true });
        else this.close(new BitNetError('ERR_INTERNAL', 'the worker has ended: it does not answer'));
    }
}

function crash(event) {
    event?.preventDefault?.();
    const text =
        event?.message ||
        'perhaps it could not be started; a Content-Security-Policy must have "worker-src blob:"';
    return new BitNetError(engineCode(text), `the worker crashed: ${text}`);
}

const bytesOf = base64 => Uint8Array.from(atob(base64), c => c.charCodeAt(0));

async function startEngine(name, threads, signal) {
    const lost = e => {
        throw new BitNetError('ERR_INTERNAL', `no ${name} module: ${e.message}`);
    };
    const engine = await engines[name]().catch(lost);
    const wasm = await unpack(bytesOf(engine.wasm)).catch(lost);
    const connection = new Connection(engine);
    try {
        const call = connection.call('startModule', {
            name,
            threads,
            wasm,
            threadScript: engine.thread
        });
        await abortable(call, signal, () => {});
        return connection;
    } catch (e) {
        connection.close(e);
        throw e;
    }
}

function noteOf(failure) {
    if (failure instanceof Stalled) return 'one thread: threads did not start';
    if (failure.instead !== 'simd') return failure.message;
    return `one thread: shared memory does not suffice (${failure.message})`;
}

/** -> { value } of the first call, or { failure }: why another variant is to be tried. */
async function attempt(name, threads, signal, first) {
    let connection;
    try {
        connection = await startEngine(name, threads, signal);
        return { value: await first(connection) };
    } catch (failure) {
        if (signal?.aborted || (connection && !failure.instead)) throw failure;
        return { failure };
    }
}

/** What the first call of a connection gives, with the first variant that can do it: the module and its
 * threads start in that call. Notes why others cannot. */
export async function connect({ variants, notes }, threads, signal, first) {
    let failure;
    for (const name of variants) {
        if (failure?.instead === 'simd' && name !== 'simd') continue; // it would fail again
        let tried = await attempt(name, threads, signal, first);
        if (tried.failure instanceof Stalled) tried = await attempt(name, threads, signal, first);
        if (!tried.failure) return tried.value;
        failure = tried.failure;
        notes.push(noteOf(failure));
    }
    throw failure;
}
