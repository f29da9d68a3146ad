// server.js - the model of a server that serves this page (examples/server): what models.js opens in
// place of a file. It has the part of bitnet.js's interface that the page uses.
import { BitNetError } from './bitnet.js';

const ADDRESS = name => new URL(name, location.href);

/** The lines of server-sent events, without "data: ". */
async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        const { done, value } = await reader.read();
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
        return this.#run('v1/chat/completions', { messages }, options, c => c.delta.content);
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
            const response = await fetch(ADDRESS(address), {
                method: 'POST',
                headers: { 'Content-Type': 'application/json' },
                body: JSON.stringify({ ...what, ...fields(options) }),
                signal
            });
            if (!response.ok) throw await failure(response);
            for await (const line of events(response.body)) {
                if (line === '[DONE]') break;
                const { choices, error, ...more } = JSON.parse(line);
                if (error) throw new BitNetError('ERR_NETWORK', error.message);
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
            if (reason === 'abort')
                throw new BitNetError('ERR_NETWORK', 'the server stopped in the middle');
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

    async free() {}
}

export const isServer = source => source instanceof ServerModel;

/** The server's model, or null: then the page comes from an ordinary server of files. ?server in the
 * page's address says that there is one: to ask others would be an error in their logs. */
export async function serverModel() {
    if (!new URLSearchParams(location.search).has('server')) return null;
    try {
        const { data } = await (await fetch(ADDRESS('v1/models'))).json();
        return data[0].owned_by === 'bitnet.h' ? new ServerModel(data[0]) : null;
    } catch {
        return null;
    }
}
