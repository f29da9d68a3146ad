// server.js - the model of a server that serves this page (examples/server): what models.js opens in
// place of a file. It has the part of bitnet.js's interface that the page uses.
import { BitNetError } from './bitnet.js';
import { askKey, authorization, keyIsSettled } from './key.js';

/** What models.js opens. */
export const SERVER = { name: `the model of ${location.host}` };
/** Whether there is a server to talk to: it says so by ?server in the page's address. To ask other
 * hosts would be an error in their logs. */
export const hasServer = new URLSearchParams(location.search).has('server');
const RETRY_MS = 2000; // while the server loads its model

/** fetch from the server. If the server refuses the key, the page asks for another one. */
async function call(address, { signal, headers, ...options } = {}) {
    for (;;) {
        const url = new URL(address, location.href),
            all = { ...headers, ...authorization() };
        let response;
        try {
            response = await fetch(url, { ...options, headers: all, signal });
        } catch (e) {
            keyIsSettled();
            throw new BitNetError('NO_ANSWER', e.message);
        }
        if (response.status !== 401) {
            keyIsSettled(true);
            return response;
        }
        await askKey(signal);
    }
}

/** The lines of server-sent events, without "data: ". */
async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        const { done, value } = await reader.read().catch(e => {
            throw new BitNetError('SERVER_GONE', e.message);
        });
        if (done) return;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6);
    }
}

async function failure(response) {
    const said = await response.json().catch(() => null);
    const text = said?.error?.message ?? `HTTP ${response.status}`;
    const full = said?.error?.code === 'context_length_exceeded';
    return new BitNetError(full ? 'ERR_FULL' : 'ERR_HTTP', text, response.status);
}

/** The page's options in the server's words. */
const fields = o => ({
    max_tokens: o.maxTokens || -1,
    temperature: o.temperature,
    top_k: o.topK,
    top_p: o.topP,
    min_p: o.minP,
    repeat_penalty: o.repeatPenalty,
    seed: o.seed,
    stop: o.stop?.length ? o.stop : undefined,
    stream: true,
    stream_options: { include_usage: true }
});

class ServerModel {
    stats = null;

    constructor({ id, meta }) {
        this.name = id;
        this.info = {
            parameters: meta.n_params,
            layers: meta.n_layers,
            vocabulary: meta.n_vocab,
            fileBytes: meta.size,
            context: meta.n_ctx,
            contextTrained: meta.n_ctx_train,
            kernels: meta.kernels,
            threads: meta.n_threads,
            variant: 'server',
            notes: [`The model runs on the server ${location.host}.`]
        };
    }

    chat(messages, options = {}) {
        let thinks = false; // as a model in the page writes it: with tags
        return this.#run('v1/chat/completions', { messages }, options, ({ delta }) => {
            const thinking = delta.reasoning_content ?? '',
                content = delta.content ?? '';
            const open = thinking && !thinks ? '<think>\n' : '',
                close = content && (thinks || thinking) ? '\n</think>\n\n' : '';
            thinks = Boolean(thinking || thinks) && !content;
            return open + thinking + close + content;
        });
    }

    generate(prompt, options = {}) {
        return this.#run('v1/completions', { prompt }, options, c => c.text);
    }

    async *#run(address, what, { signal, onToken, ...options }, textOf) {
        const start = performance.now();
        let first,
            tokens = 0,
            usage,
            reason = 'abort';
        try {
            const response = await call(address, {
                method: 'POST',
                headers: { 'Content-Type': 'application/json' },
                body: JSON.stringify({ ...what, ...fields(options) }),
                signal
            });
            if (!response.ok) throw await failure(response);
            for await (const line of events(response.body)) {
                if (line === '[DONE]') break;
                const { choices, error, ...more } = JSON.parse(line);
                if (error) throw new BitNetError('SERVER_GONE', error.message);
                usage = more.usage ?? usage;
                const [choice] = choices;
                const ended = choice?.finish_reason;
                if (ended) reason = ended === 'stop' ? 'end' : 'length';
                const text = choice && textOf(choice);
                if (!text) continue;
                first ??= performance.now();
                onToken?.({ text, index: tokens++ });
                yield text;
            }
            if (reason === 'abort') throw new BitNetError('SERVER_GONE', 'the reply has no end');
        } finally {
            this.stats = this.#stats(reason, usage, tokens, start, first ?? performance.now());
        }
        return this.stats;
    }

    #stats(reason, usage, tokens, start, first) {
        const prefillSeconds = (first - start) / 1000,
            decodeSeconds = (performance.now() - first) / 1000,
            written = usage?.completion_tokens ?? tokens,
            promptTokens = usage?.prompt_tokens ?? 0,
            reusedTokens = usage?.prompt_tokens_details.cached_tokens ?? 0;
        return {
            reason,
            promptTokens,
            reusedTokens,
            tokens: written,
            prefillSeconds,
            decodeSeconds,
            prefillPerSecond: (promptTokens - reusedTokens) / prefillSeconds,
            decodePerSecond: decodeSeconds ? written / decodeSeconds : 0
        };
    }

    async tokenize(text, { signal } = {}) {
        const body = JSON.stringify({ content: text, parse_special: false });
        const response = await call('tokenize', { method: 'POST', body, signal });
        if (!response.ok) throw await failure(response);
        return (await response.json()).tokens;
    }

    async free() {}
}

export const isServer = model => model instanceof ServerModel;

const pause = (ms, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(signal.reason);
        });
    });

/** The server's model. onWait(why) is called while it is not ready yet. */
export async function serverModel({ signal, onWait }) {
    let response;
    while ((response = await call('v1/models', { signal })).status === 503) {
        onWait((await failure(response)).message);
        await pause(RETRY_MS, signal);
    }
    if (!response.ok && response.status !== 404) throw await failure(response);
    const said = await response.json().catch(() => null),
        model = said?.data?.[0];
    if (model?.owned_by !== 'bitnet.h')
        throw new BitNetError('NO_SERVER', `${response.url} names no model of bitnet.h`);
    return new ServerModel(model);
}
