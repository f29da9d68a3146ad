// worker.js - what holds the model: takes the messages of bitnet.js and answers them. start() gives the
// function that takes them: { id, op, ...arguments }, { cancel: id } and { beat }. It sends { id, value },
// { id, error }, { id, event }, { starting } before and after the module's threads start, and {} for a beat.
import { BitNetError, engineCode } from '../shared/errors.js';
import { detokenize, template, tokenize } from './chat.js';
import { embed } from './embed.js';
import { asked, generate, saveText, taken, writes } from './generate.js';
import { hash, load } from './load.js';
import { attach, checkAbort, detach, post, startModule } from './module.js';
import { clear, restore, save } from './saved.js';

const running = new Map(); // id of a call -> its AbortController

/** An exception as an object that can be sent. */
function plainError(e) {
    if (e?.name === 'AbortError') return { name: 'AbortError' };
    const message = String(e?.message ?? e);
    if (e instanceof BitNetError || /^ERR_/.test(e?.code))
        return { code: e.code, message, status: e.status, instead: e.instead };
    // emscripten throws 'unwind' from a call that waits for a crashed thread
    const what = e === 'unwind' ? 'one of its threads stopped' : message;
    const code = engineCode(message);
    return { code, message: code === 'ERR_INTERNAL' ? `the worker crashed: ${what}` : message };
}

// Those of a session run one at a time, those of different sessions side by side. A quick one runs
// at once, between two turns of a generation.
const SLOW = { startModule, load, hash, generate, embed, save, restore, clear };
const QUICK = { tokenize, detokenize, template };
const queues = new Map(); // session, or undefined -> the end of its last call

async function answer(id, work) {
    try {
        const value = await work();
        const owned = value instanceof Uint8Array ? [value.buffer] : value?.vectors?.map(v => v.buffer);
        post({ id, value }, owned);
    } catch (e) {
        post({ id, error: plainError(e) });
    }
}

function end(id) {
    running.get(id)?.abort();
    taken(id, Infinity);
}

function onMessage({ id, op, cancel, answers, takes, beat, ...args }) {
    if (beat) return post({}); // it is here
    if (cancel) return end(cancel);
    if (takes) return taken(takes, args.count);
    if (answers) return asked.get(answers)?.(args.tokens);
    if (QUICK[op]) return answer(id, () => QUICK[op](args));
    if (op === 'save' && writes(args.session)) return answer(id, () => saveText(args));
    const controller = new AbortController();
    running.set(id, controller);
    const before = queues.get(args.session) ?? Promise.resolve();
    const now = before
        .then(() =>
            answer(id, () => {
                checkAbort(controller.signal);
                return SLOW[op](args, controller.signal, id);
            })
        )
        .then(() => running.delete(id));
    queues.set(args.session, now);
}

/** Begins, as the worker of one model. post(message, transfer) sends to bitnet.js; createModule is emscripten's;
 * threadStarter(script) makes what emscripten takes for the address of its threads' script. */
export function start(its) {
    attach(its);
    return onMessage;
}

/** Ends what runs, and forgets the model. Only then start() may be called again. */
export async function stop() {
    for (const id of running.keys()) end(id);
    await Promise.all(queues.values());
    queues.clear();
    detach();
}
