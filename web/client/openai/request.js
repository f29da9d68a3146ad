// A request of OpenAI's chats as what a session takes; what is wrong with it is said, in the order
// and words of serve (examples/server/request.c).
import {
    biasOf, flag, lengthOf, logprobsOf, MOST, number, refuse, refuseImpossible, seedOf, stopsOf,
    string, whole
} from './fields.js';
import { get, isObject } from './json.js';
import { messagesOf, thinkingOf } from './messages.js';
import { grammarOptions, rulesOf, toolsOf } from './rules.js';

const MOST_TEXTS = 128;

function usageWanted(request) {
    const options = get(request, 'stream_options');
    if (options !== undefined && !isObject(options))
        refuse('stream_options', 'an object is needed');
    return flag(options, 'include_usage');
}

/** The defaults are OpenAI's; those of top_k and min_p are those of chat(). */
function samplerOf(request, vocabulary) {
    const sampler = {
        temperature: number(request, 'temperature', 0, 100, 1),
        topP: number(request, 'top_p', 0, 1, 1),
        minP: number(request, 'min_p', 0, 1, 0.05),
        repeatPenalty: number(request, 'repeat_penalty', 0, 100, 0),
        frequencyPenalty: number(request, 'frequency_penalty', -2, 2, 0),
        presencePenalty: number(request, 'presence_penalty', -2, 2, 0),
        topK: whole(request, 'top_k', -1, MOST, 40)
    };
    const seesAll = sampler.frequencyPenalty !== 0 || sampler.presencePenalty !== 0;
    sampler.repeatWindow = whole(request, 'repeat_last_n', -1, MOST, seesAll ? -1 : 64);
    if (sampler.repeatWindow === 0)
        // no token counts
        Object.assign(sampler, { repeatPenalty: 0, frequencyPenalty: 0, presencePenalty: 0 });
    return {
        ...sampler,
        logitBias: biasOf(request, vocabulary),
        ignoreEnd: flag(request, 'ignore_eos')
    };
}

/** The fields of a request, in the order in which the first that is wrong is said. */
export function read(request, template, vocabulary) {
    if (!isObject(request)) refuse('request', 'an object is needed');
    refuseImpossible(request);
    const n = whole(request, 'n', 1, MOST_TEXTS, 1),
        best = whole(request, 'best_of', 1, MOST, n);
    if (best !== n) refuse('best_of', 'it must be n: more texts are not compared');
    const isStream = flag(request, 'stream'),
        withUsage = usageWanted(request),
        maxTokens = lengthOf(request),
        sampler = samplerOf(request, vocabulary),
        logprobs = logprobsOf(request),
        stop = stopsOf(request),
        tools = toolsOf(request, template.hasXmlCalls),
        thinking = thinkingOf(request, template),
        text = rulesOf(request),
        messages = messagesOf(request, template);
    if (tools?.must && messages.length > 1 && messages.at(-1).role === 'assistant')
        refuse('tool_choice', 'a reply that has begun cannot be made to call');
    const { explain, ...rules } = grammarOptions(text, tools),
        seed = seedOf(request);
    const options = {
        ...sampler,
        ...thinking,
        ...rules,
        maxTokens,
        logprobs,
        stop: template.thinks ? [] : stop, // else they are looked for behind the thought
        lookup: logprobs === undefined ? whole(request, 'lookup', 0, 8, 0) : 0,
        tools: tools?.lines
    };
    const stops = template.thinks ? stop : [];
    return { n, isStream, withUsage, options, stops, messages, tools, seed, explain };
}

/** The name of the model, which the answer repeats. */
export const modelOf = request => string(get(request, 'model')) || 'bitnet';
