// The arguments of the interface: what is wrong is said before anything is done.
import { blobOf, isBlob, resolveSource } from 'bitnet-platform';
import { BitNetError } from '../shared/errors.js';
import { hubUrl } from './hub.js';

export const bad = text => {
    throw new BitNetError('ERR_ARG', text);
};

/** null is an option that is not given. */
export const isNone = value => value === undefined || value === null;

export function number(options, name, fallback, low, high, whole) {
    const v = options[name] ?? fallback;
    if (typeof v !== 'number' || !(v >= low && v <= high) || (whole && !Number.isInteger(v)))
        bad(`${name}: ${String(v)} is not a ${whole ? 'whole ' : ''}number from ${low} to ${high}`);
    return v;
}

const isSignal = v => typeof v.throwIfAborted === 'function' && 'aborted' in v;

/** What would fail in the middle of the work, or never be called. */
export function checkHooks(options) {
    const { signal } = options;
    if (!isNone(signal) && !isSignal(signal)) bad('signal: an AbortSignal is needed');
    for (const name of ['onProgress', 'onPrompt', 'onToken', 'mask'])
        if (!isNone(options[name]) && typeof options[name] !== 'function')
            bad(`${name}: a function is needed`);
}

const GENERATE_OPTIONS = [
    'maxTokens', 'temperature', 'topK', 'topP', 'minP', 'repeatPenalty', 'frequencyPenalty',
    'presencePenalty', 'logitBias', 'seed', 'stop', 'grammar', 'jsonSchema', 'mask', 'logprobs',
    'thinking', 'effort', 'earlierThinking', 'lookup', 'signal', 'onToken', 'onPrompt'
];

/** A misspelt option would be without effect, and nobody would notice. */
export function checkNames(options, known, what = 'options') {
    if (typeof options !== 'object' || options === null) bad(`${what}: an object is needed`);
    for (const name of Object.keys(options))
        if (!known.includes(name)) bad(`${name}: no such option. There are ${known.join(', ')}`);
}

const MOST = 2 ** 31 - 1;

function stopStrings(stop) {
    const list = isNone(stop) ? [] : typeof stop === 'string' ? [stop] : stop;
    if (typeof list !== 'object' || !list[Symbol.iterator])
        bad('stop: a string or an array of strings is needed');
    for (const s of list)
        if (typeof s !== 'string' || !s) bad('stop: strings that are not empty are needed');
    return [...list];
}

/** Tokens by their numbers. A string is iterable, too, but holds none. */
export function tokenList(tokens, name) {
    if (typeof tokens !== 'object' || !tokens?.[Symbol.iterator]) bad(`${name}: tokens are needed`);
    if (tokens instanceof Int32Array) return tokens.slice();
    return Int32Array.from(tokens, token => {
        if (typeof token !== 'number' || token !== (token | 0))
            bad(`${name}: ${String(token)} is not a token`);
        return token;
    });
}

/** Pairs of a token and a number; -Infinity forbids the token. */
function biases(logitBias) {
    const isObject = typeof logitBias === 'object' && logitBias !== null;
    if (!isObject) bad('logitBias: an object, or a Map, of tokens and numbers is needed');
    const pairs = logitBias instanceof Map ? [...logitBias] : Object.entries(logitBias);
    return pairs.map(([token, value]) => {
        if (!/^\d+$/.test(String(token)) || Number(token) > MOST)
            bad(`logitBias: ${String(token)} is not a token`);
        if (typeof value !== 'number' || Number.isNaN(value))
            bad(`logitBias: ${String(value)} is not a number`);
        return [Number(token), value];
    });
}

function text(options, name) {
    const value = options[name];
    if (typeof value !== 'string') bad(`${name}: a string is needed`);
    return value;
}

function schemaText(o) {
    if (typeof o.jsonSchema === 'string') return text(o, 'jsonSchema');
    try {
        return JSON.stringify(o.jsonSchema) ?? bad('jsonSchema: an object or a string is needed');
    } catch (e) {
        return bad(`jsonSchema: it is not JSON: ${e.message}`); // a circle, or a BigInt
    }
}

/** What the text has to keep to, if anything. */
function rules(o) {
    const masked = !isNone(o.mask);
    if (!isNone(o.grammar) && !isNone(o.jsonSchema))
        bad('grammar and jsonSchema: only one of them is possible');
    if (!isNone(o.grammar)) return { masked, grammar: text(o, 'grammar') };
    return isNone(o.jsonSchema) ? { masked } : { masked, jsonSchema: schemaText(o) };
}

const EFFORTS = ['minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

function effortOf(effort) {
    if (!EFFORTS.includes(effort)) bad(`effort: one of ${EFFORTS.join(', ')} is needed`);
    return effort;
}

/** Not where each token matters: a mask chooses, or log-probabilities are wanted. */
function lookupOf(o) {
    const lookup = number(o, 'lookup', 0, 0, 8, true);
    return isNone(o.mask) && isNone(o.logprobs) ? lookup : 0;
}

/** The options of a generation, as the worker gets them. The defaults are those of
 * examples/generate, except for the temperature: 0, greedy. */
export function generateOptions(o) {
    checkNames(o, GENERATE_OPTIONS);
    checkHooks(o);
    return {
        maxTokens: o.maxTokens === Infinity ? 0 : number(o, 'maxTokens', 0, 0, MOST, true),
        temperature: number(o, 'temperature', 0, 0, 1000),
        topK: number(o, 'topK', 40, 0, MOST, true),
        topP: number(o, 'topP', 0.95, 0, 1),
        minP: number(o, 'minP', 0.05, 0, 1),
        repeatPenalty: number(o, 'repeatPenalty', 0, 0, 9),
        repeatWindow: 0,
        frequencyPenalty: number(o, 'frequencyPenalty', 0, -100, 100),
        presencePenalty: number(o, 'presencePenalty', 0, -100, 100),
        seed: number(o, 'seed', Math.floor(Math.random() * MOST), 0, Number.MAX_SAFE_INTEGER, true),
        logprobs: isNone(o.logprobs) ? undefined : number(o, 'logprobs', 0, 0, 20, true),
        logitBias: biases(o.logitBias ?? {}),
        lookup: lookupOf(o),
        stop: stopStrings(o.stop),
        thinking: isNone(o.thinking) ? undefined : flag(o, 'thinking'),
        effort: isNone(o.effort) ? undefined : effortOf(o.effort),
        earlierThinking: isNone(o.earlierThinking) ? undefined : flag(o, 'earlierThinking'),
        ...rules(o)
    };
}

const EMBED_OPTIONS = ['query', 'cut', 'raw', 'pooling', 'signal', 'onProgress'];

function flag(options, name) {
    const value = options[name] ?? false;
    if (typeof value !== 'boolean') bad(`${name}: true or false is needed`);
    return value;
}

/** The texts as the model is to read them, and the options as the worker gets them. A query has its
 * task in front, in the form that these models were trained with. */
export function embedArguments(texts, o) {
    checkNames(o, EMBED_OPTIONS);
    checkHooks(o);
    const list = typeof texts === 'string' ? [texts] : texts;
    if (!Array.isArray(list)) bad('texts: a string or an array of strings is needed');
    const { query, pooling = null } = o;
    if (!isNone(query) && typeof query !== 'string') bad('query: a string is needed');
    if (pooling !== null && !['mean', 'first', 'last'].includes(pooling))
        bad(`pooling: '${String(pooling)}' is not mean, first or last`);
    const written = Array.from(list, (text, i) => {
        if (typeof text !== 'string') bad(`texts[${i}]: a string is needed`);
        return isNone(query) ? text : `Instruct: ${query}\nQuery: ${text}`;
    });
    return { texts: written, options: { pooling, raw: flag(o, 'raw'), cut: flag(o, 'cut') } };
}

export function checkMessages(messages) {
    if (!Array.isArray(messages) || messages.length === 0)
        bad('messages: a non-empty array is needed');
    return Array.from(messages, message => {
        const { role, content } = message ?? {}; // an array may have holes
        if (typeof role !== 'string' || typeof content !== 'string')
            bad('messages: role and content must be strings');
        if (!role) bad('messages: a role is empty');
        return { role, content };
    });
}

/** The bytes of a view, of which browsers take none over shared memory for a Blob. */
function unshared(view) {
    const { buffer, byteOffset, byteLength } = view;
    const isShared = Object.prototype.toString.call(buffer) === '[object SharedArrayBuffer]';
    return isShared ? new Uint8Array(buffer, byteOffset, byteLength).slice() : view;
}

/** The source in a form that can be sent to the worker without copying it. */
export function portable(source, hub) {
    if (Array.isArray(source)) {
        if (!source.length) bad('source: there are no files');
        return source.map(part => portable(part, hub));
    }
    if (isBlob(source)) return source;
    if (source instanceof ArrayBuffer) return blobOf(source);
    if (ArrayBuffer.isView(source)) return blobOf(unshared(source));
    if (typeof source?.href === 'string') source = source.href; // a URL, perhaps jsdom's
    if (typeof source !== 'string') bad('source: a URL, File, Blob or ArrayBuffer is needed');
    const address = hubUrl(source, hub);
    try {
        return resolveSource(address);
    } catch {
        return bad(`'${address}' is not a URL`);
    }
}

/** As an object, which can be sent to the worker. */
export function requestHeaders(headers) {
    if (isNone(headers)) return {};
    let list;
    try {
        list = Object.fromEntries(new Headers(headers));
    } catch (e) {
        return bad(`headers: ${e.message}`);
    }
    for (const name of ['range', 'if-range'])
        if (name in list) bad(`headers: a download sets ${name} itself`);
    return list;
}

/** The options of load that are about the file's way, for openSource. */
export function downloadOptions(o) {
    const cache = o.cache ?? 'auto',
        { cacheName } = o;
    if (cache !== 'auto' && cache !== 'none') bad(`cache: '${cache}' is not auto or none`);
    const isName = (typeof cacheName === 'string' && cacheName) || cacheName instanceof URL;
    if (!isNone(cacheName) && !isName) bad('cacheName: a string or a URL is needed');
    return {
        cache,
        cacheName: isName ? portable(cacheName, o.hub) : undefined,
        headers: requestHeaders(o.headers),
        connections: number(o, 'connections', 4, 1, 16, true),
        stallSeconds: number(o, 'stallSeconds', 60, 1, Infinity)
    };
}
