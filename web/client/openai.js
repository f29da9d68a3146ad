// model.chat.completions.create: chats in the shape of OpenAI's client.
// https://platform.openai.com/docs/api-reference/chat describes requests and answers.
import { BitNetError } from '../shared/errors.js';
import { bad, checkHooks, checkNames, isNone } from './options.js';
import { divider, join } from './thinking.js';

// What a request may hold, and the option of chat() that it becomes; null: see below. top_k, min_p,
// repeat_penalty and grammar are no part of OpenAI's interface, but other servers have them.
const REQUEST = {
    temperature: 'temperature',
    top_p: 'topP',
    top_k: 'topK',
    min_p: 'minP',
    repeat_penalty: 'repeatPenalty',
    frequency_penalty: 'frequencyPenalty',
    presence_penalty: 'presencePenalty',
    logit_bias: 'logitBias',
    seed: 'seed',
    stop: 'stop',
    grammar: 'grammar',
    enable_thinking: 'thinking',
    preserve_thinking: 'earlierThinking',
    max_tokens: 'maxTokens',
    max_completion_tokens: 'maxTokens',
    top_logprobs: 'logprobs',
    messages: null,
    stream: null,
    stream_options: null,
    response_format: null,
    chat_template_kwargs: null,
    reasoning_effort: 'effort',
    logprobs: null,
    n: null,
    model: null,
    user: null,
    metadata: null,
    store: null
};

const CALL_OPTIONS = ['signal', 'session', 'onPrompt'];
const MESSAGE = ['role', 'content', 'name', 'refusal', 'reasoning_content'];

function textOf(content, where) {
    if (typeof content === 'string') return content;
    if (!Array.isArray(content)) bad(`${where}.content: a string or an array of texts is needed`);
    return content
        .map((part, i) => {
            if (part?.type !== 'text' || typeof part.text !== 'string')
                bad(`${where}.content[${i}]: only text is possible`);
            return part.text;
        })
        .join('');
}

function messagesOf(messages) {
    if (!Array.isArray(messages)) bad('messages: an array is needed');
    return Array.from(messages, (message, i) => {
        const where = `messages[${i}]`;
        if (typeof message !== 'object' || message === null) bad(`${where}: an object is needed`);
        for (const [name, value] of Object.entries(message))
            if (!isNone(value) && !MESSAGE.includes(name))
                bad(`${where}.${name}: it is not supported`);
        const role = message.role === 'developer' ? 'system' : message.role;
        const content = textOf(message.content, where);
        return { role, content: join(message.reasoning_content, content) };
    });
}

/** The option of chat() for response_format. A json_object may bring a schema, as other servers
 * allow, beside the type or in json_schema. */
function formatOf({ type, schema, json_schema: format }) {
    const all = [schema, format?.schema].filter(one => !isNone(one));
    const isSchema = all.every(one => ['object', 'boolean'].includes(typeof one)) && all.length < 2;
    if (type === 'text' && !all.length) return {};
    if (type === 'json_object' && isSchema) return { jsonSchema: all[0] ?? { type: 'object' } };
    if (type === 'json_schema' && isSchema && all.length) return { jsonSchema: all[0] };
    return bad('response_format: text, json_object, or json_schema with a schema is needed');
}

/** A field that is true or false, or not there. */
function flagOf(request, name) {
    if (!isNone(request[name]) && typeof request[name] !== 'boolean')
        bad(`${name}: true or false is needed`);
    return request[name] ?? false;
}

/** The options of chat() for a request. */
function optionsOf(request) {
    const options = { temperature: 1, topP: 1 };
    for (const [name, option] of Object.entries(REQUEST))
        if (option && !isNone(request[name])) options[option] = request[name];
    if (!isNone(request.n) && request.n !== 1) bad('n: only 1 is possible');
    if (!isNone(request.stream_options) && !request.stream)
        bad('stream_options: it needs stream: true');
    if (!isNone(request.stream_options) && typeof request.stream_options !== 'object')
        bad('stream_options: an object is needed');
    if (!isNone(request.response_format)) Object.assign(options, formatOf(request.response_format));
    const kwargs = request.chat_template_kwargs ?? {};
    options.effort = kwargs.reasoning_effort ?? options.effort;
    options.thinking = kwargs.enable_thinking ?? options.thinking;
    options.earlierThinking = kwargs.preserve_thinking ?? options.earlierThinking;
    if (!isNone(options.effort)) options.thinking ??= options.effort !== 'none';
    if (options.effort === 'none') options.effort = undefined;
    // chat() would have no limit then
    if (options.maxTokens === 0) bad('max_tokens: at least 1 is needed');
    if (flagOf(request, 'logprobs')) options.logprobs ??= 0;
    else if (options.logprobs) bad('top_logprobs: it needs logprobs: true');
    else delete options.logprobs;      // 0 is what clients send that want none
    return options;
}

/** The error, whose message begins with the name of an option, under another name. */
const renamed = (error, from, to) =>
    error.message.startsWith(from)
        ? new BitNetError(error.code, to + error.message.slice(from.length))
        : error;

/** What is wrong with an option of chat(), by its name in the request. */
function inItsWords(error, request) {
    const of = ([name, option]) => !isNone(request[name]) && error.message.startsWith(`${option}:`);
    const [name, option] = Object.entries(REQUEST).find(of) ?? [];
    if (!option || error.code !== 'ERR_ARG') return error;
    return renamed(error, option, name);
}

const finishReason = { end: 'stop', stop: 'stop', mask: 'stop', length: 'length' };

function logprob({ text, bytes, logprob: value, top }) {
    const entry = { token: text, logprob: value, bytes: [...bytes] };
    return top ? { ...entry, top_logprobs: top.map(t => logprob(t)) } : entry;
}

const usageOf = ({ promptTokens, reusedTokens, tokens }) => ({
    prompt_tokens: promptTokens,
    completion_tokens: tokens,
    total_tokens: promptTokens + tokens,
    prompt_tokens_details: { cached_tokens: reusedTokens }
});

/** A reply as it comes: { thinking, content, logprobs } for the tokens of each piece of text, then
 * { stats } with what was held back. */
async function* reply(texts, tokens) {
    const parts = divider();
    try {
        for (;;) {
            const { done, value } = await texts.next();
            const logprobs = tokens && { content: tokens.splice(0), refusal: null };
            if (!done) yield { ...parts.add(value), logprobs };
            else return yield { stats: value, ...parts.end(), logprobs };
        }
    } finally {
        await texts.return(); // the caller has left the loop
    }
}

/** Begins the reply to a request; what is wrong with it is said now. */
function begin(session, request, callOptions) {
    const tokens = request.logprobs ? [] : null;
    const onToken = event => tokens?.push(logprob(event.logprobs));
    const options = { ...optionsOf(request), ...callOptions, onToken };
    const messages = messagesOf(request.messages);
    try {
        return reply(session.chat(messages, options), tokens);
    } catch (e) {
        throw inItsWords(e, request);
    }
}

async function whole(head, parts) {
    let content = '',
        thinking = '',
        logprobs = null,
        stats;
    for await (const part of parts) {
        content += part.content;
        thinking += part.thinking;
        stats = part.stats;
        if (logprobs) logprobs.content.push(...part.logprobs.content);
        else logprobs = part.logprobs;
    }
    const choice = {
        index: 0,
        message: {
            role: 'assistant',
            content,
            refusal: null,
            ...(thinking && { reasoning_content: thinking })
        },
        logprobs,
        finish_reason: finishReason[stats.reason]
    };
    return { ...head, object: 'chat.completion', choices: [choice], usage: usageOf(stats) };
}

async function* chunks(its, parts, withUsage) {
    const head = { ...its, object: 'chat.completion.chunk' };
    const usage = withUsage ? { usage: null } : {};
    const chunk = (delta, logprobs, finish_reason) => ({
        ...head,
        choices: [{ index: 0, delta, logprobs, finish_reason }],
        ...usage
    });
    yield chunk({ role: 'assistant', content: '', refusal: null }, null, null);
    for await (const { thinking, content, logprobs, stats } of parts) {
        const delta = thinking
            ? { reasoning_content: thinking, ...(content && { content }) }
            : { content };
        if (thinking || content || logprobs?.content.length) yield chunk(delta, logprobs, null);
        if (!stats) continue;
        yield chunk({}, null, finishReason[stats.reason]);
        if (withUsage) yield { ...head, choices: [], usage: usageOf(stats) };
    }
}

/** The chunks until the signal or the controller is aborted. As with OpenAI's client a loop just ends
 * if the controller was, for whoever stops it knows. */
async function* stoppable(all, signal, controller) {
    const stop = () => controller.abort(signal.reason);
    signal?.addEventListener('abort', stop);
    if (signal?.aborted) stop();
    try {
        yield* all;
    } catch (e) {
        if (signal?.aborted || e !== controller.signal.reason) throw e;
    } finally {
        signal?.removeEventListener('abort', stop);
    }
}

/** What OpenAI's client returns for stream: true: an iterable, which a controller can stop. */
function streamOf(iterator, controller) {
    return { controller, [Symbol.asyncIterator]: () => iterator };
}

const EMBEDDINGS = ['input', 'model', 'encoding_format', 'dimensions', 'user'];

/** The four bytes of each number, the lowest first. */
function base64(vector) {
    const bytes = new Uint8Array(vector.buffer);
    let text = '';
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
}

/** { create } for a model of vectors with so many elements. embed says how many tokens it read, too. */
export function embeddings(embed, dims) {
    return {
        async create(request, options = {}) {
            checkNames(request, EMBEDDINGS);
            checkNames(options, ['signal', 'query', 'cut']);
            const format = request.encoding_format ?? 'float';
            if (!['float', 'base64'].includes(format))
                bad('encoding_format: float or base64 is needed');
            if ((request.dimensions ?? dims) !== dims) bad(`dimensions: only ${dims} is possible`);
            const { vectors, tokens } = await embed(request.input, options).catch(e => {
                throw e?.code === 'ERR_ARG' ? renamed(e, 'texts', 'input') : e;
            });
            const data = vectors.map((vector, index) => {
                const embedding = format === 'float' ? [...vector] : base64(vector);
                return { object: 'embedding', index, embedding };
            });
            const usage = { prompt_tokens: tokens, total_tokens: tokens };
            return { object: 'list', data, model: request.model ?? 'bitnet', usage };
        }
    };
}

const newId = () =>
    `chatcmpl-${Array.from({ length: 24 }, () => Math.floor(Math.random() * 36).toString(36)).join('')}`;

/** { create } for a model, whose own session writes the reply unless a call names another one. */
export function completions(model) {
    return {
        async create(request, options = {}) {
            checkNames(request, Object.keys(REQUEST));
            checkNames(options, CALL_OPTIONS);
            checkHooks(options);
            const { session = model, signal, onPrompt } = options;
            if (typeof session?.chat !== 'function') bad('session: a session is needed');
            const created = Math.floor(Date.now() / 1000);
            const head = { id: newId(), created, model: request.model ?? 'bitnet' };
            if (!flagOf(request, 'stream')) return whole(head, begin(session, request, { signal, onPrompt }));
            const controller = new AbortController();
            const parts = begin(session, request, { signal: controller.signal, onPrompt });
            const withUsage = Boolean(request.stream_options?.include_usage);
            const all = chunks(head, parts, withUsage);
            return streamOf(stoppable(all, signal, controller), controller);
        }
    };
}
