// model.chat.completions.create: chats in the shape of OpenAI's client.
// https://platform.openai.com/docs/api-reference/chat describes requests and answers.
import { BitNetError } from '../../shared/errors.js';
import { bad, checkHooks, checkNames } from '../options.js';
import { REPLY, Session } from '../session.js';
import { seedOfText } from './fields.js';
import { divider } from './parts.js';
import { modelOf, read } from './request.js';

const CALL_OPTIONS = ['signal', 'session', 'onPrompt'];

function logprob({ text, bytes, logprob: value, top }) {
    const entry = { token: text, logprob: value, bytes: [...bytes] };
    return top ? { ...entry, top_logprobs: top.map(t => logprob(t)) } : entry;
}

/** Text number i of a request, as it comes: { thinking, content, calls, logprobs } of each
 * piece, then { finish, stats } with what was held back. */
async function* reply(session, its, i, hooks, template) {
    const { options, messages, tools, seed, explain } = its;
    const chat = {
        thinks: template.thinks,
        isXml: template.hasXmlCalls,
        tools: tools?.tools ?? null,
        one: Boolean(tools?.one),
        binds: Boolean(options.calls),
        stops: its.stops
    };
    const parts = divider(chat),
        tokens = [];
    let n = 0,
        thought = 0, // of these tokens
        called = 0;
    const take = part => {
        called += part.calls.length;
        const logprobs = options.logprobs === undefined ? null : tokens.splice(0);
        return { ...part, logprobs: logprobs && { content: logprobs, refusal: null } };
    };
    const onToken = event => {
        n++;
        if (!event.text) thought += parts.isThinking(); // else when its text is divided
        if (options.logprobs !== undefined) tokens.push(logprob(event.logprobs));
    };
    const all = { ...hooks, onToken, onBegins: parts.begin };
    const texts = session[REPLY](messages, all, { ...options, seed: seedOfText(seed, i) });
    const finish = reason => (reason === 'length' ? 'length' : called ? 'tool_calls' : 'stop');
    try {
        for (;;) {
            const { done, value } = await texts.next();
            const part = take(done ? parts.end() : parts.add(value));
            if (done)
                return yield { ...part, finish: finish(value.reason), stats: { ...value, thought } };
            thought += parts.isThinking();
            yield part;
            if (!part.isEnded) continue;
            await texts.return(); // no more belongs to it
            const stats = { ...session.stats, tokens: n, thought };
            return yield { ...take(parts.end()), finish: finish('stop'), stats };
        }
    } catch (e) {
        const [, about] = (e?.code && /^(?:jsonSchema|grammar): ([^]*)/.exec(e.message)) ?? [];
        throw about === undefined ? e : new BitNetError(e.code, explain(about));
    } finally {
        await texts.return(); // the caller has left the loop
    }
}

/** All texts of a request, one after the other: { index, ...part }. */
async function* replies(session, its, hooks, template) {
    for (let index = 0; index < its.n; index++)
        for await (const part of reply(session, its, index, hooks, template))
            yield { index, ...part };
}

/** The prompt was read once. */
function usageOf(all) {
    const [{ promptTokens, reusedTokens }] = all;
    const sum = name => all.reduce((n, stats) => n + stats[name], 0),
        written = sum('tokens');
    return {
        prompt_tokens: promptTokens,
        completion_tokens: written,
        total_tokens: promptTokens + written,
        prompt_tokens_details: { cached_tokens: reusedTokens },
        completion_tokens_details: { reasoning_tokens: sum('thought') }
    };
}

/** Calls number from on of text i, as the answer has them. */
const toolCalls = (id, i, calls, from = 0) =>
    calls.map(({ name, arguments: args }, k) => ({
        index: from + k,
        id: `call${id.slice(id.indexOf('-'))}-${i}-${from + k}`,
        type: 'function',
        function: { name, arguments: args }
    }));

async function whole(head, parts) {
    const choices = [],
        all = [];
    for await (const { index, thinking, content, calls, logprobs, finish, stats } of parts) {
        const text = (choices[index] ??= { content: '', thinking: '', calls: [], logprobs: null });
        text.content += content;
        text.thinking += thinking;
        text.calls.push(...calls);
        if (text.logprobs) text.logprobs.content.push(...logprobs.content);
        else text.logprobs = logprobs;
        if (finish) text.finish = finish;
        if (stats) all.push(stats);
    }
    return {
        ...head,
        object: 'chat.completion',
        choices: choices.map(({ content, thinking, calls, logprobs, finish }, index) => ({
            index,
            message: {
                role: 'assistant',
                content: content || !calls.length ? content : null,
                refusal: null,
                ...(thinking && { reasoning_content: thinking }),
                ...(calls.length && { tool_calls: toolCalls(head.id, index, calls) })
            },
            logprobs,
            finish_reason: finish
        })),
        usage: usageOf(all)
    };
}

async function* chunks(its, parts, withUsage) {
    const head = { ...its, object: 'chat.completion.chunk' };
    const usage = withUsage ? { usage: null } : {};
    const chunk = (index, delta, logprobs, finish_reason) => ({
        ...head,
        choices: [{ index, delta, logprobs, finish_reason }],
        ...usage
    });
    const all = [];
    let begun = -1,
        told = 0; // calls of this text
    for await (const { index, thinking, content, calls, logprobs, finish, stats } of parts) {
        if (index > begun) {
            yield chunk(index, { role: 'assistant', content: '', refusal: null }, null, null);
            begun = index;
            told = 0;
        }
        const delta = {
            ...(thinking && { reasoning_content: thinking }),
            ...((content || (!thinking && !calls.length)) && { content }),
            ...(calls.length && { tool_calls: toolCalls(its.id, index, calls, told) })
        };
        told += calls.length;
        if (thinking || content || calls.length || logprobs?.content.length)
            yield chunk(index, delta, logprobs, null);
        if (!stats) continue;
        all.push(stats);
        yield chunk(index, {}, null, finish);
    }
    if (withUsage) yield { ...head, choices: [], usage: usageOf(all) };
}

/** The chunks until the signal or the controller is aborted. As with OpenAI's client a loop just
 * ends if the controller was, for whoever stops it knows. */
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

const newId = () =>
    `chatcmpl-${Array.from({ length: 24 }, () => Math.floor(Math.random() * 36).toString(36)).join('')}`;

/** { create } for a model. facts() says what its chat template is like, own is the session that
 * writes unless a call names another one. */
export function completions(model, own, facts) {
    return {
        async create(request, options = {}) {
            checkNames(options, CALL_OPTIONS);
            checkHooks(options);
            const { session: given = model, signal, onPrompt } = options,
                session = given === model ? own : given;
            if (!(session instanceof Session)) bad('session: a session is needed');
            const template = await facts();
            const its = read(request, template, model.info.vocabulary);
            const created = Math.floor(Date.now() / 1000);
            const head = { id: newId(), created, model: modelOf(request) };
            if (!its.isStream)
                return whole(head, replies(session, its, { signal, onPrompt }, template));
            const controller = new AbortController();
            const hooks = { signal: controller.signal, onPrompt };
            const all = chunks(head, replies(session, its, hooks, template), its.withUsage);
            return streamOf(stoppable(all, signal, controller), controller);
        }
    };
}
