// The messages of a chat as the template takes them, and what a request says of thinking. serve
// does the same: examples/server/messages.c.
import { writeCall } from './calls.js';
import { flag, refuse, string } from './fields.js';
import { get, isObject, parsed } from './json.js';

const bad = what => refuse('messages', what);

// ---- thinking ----

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

/** The object that says what a client wants of the template: chat_template_kwargs, as vLLM has
 * it, or the request. */
function asks(request, name) {
    const options = get(request, 'chat_template_kwargs');
    if (options !== undefined && !isObject(options))
        refuse('chat_template_kwargs', 'an object is needed');
    if (get(options, name) !== undefined) return options;
    return get(request, name) === undefined ? undefined : request;
}

export function thinkingOf(request, { known, alwaysThinks, hasEfforts }) {
    const on = asks(request, 'enable_thinking'),
        keep = asks(request, 'preserve_thinking'),
        effort = get(asks(request, 'reasoning_effort'), 'reasoning_effort');
    if (effort !== undefined && !EFFORTS.includes(effort))
        refuse('reasoning_effort', 'none, minimal, low, medium, high, xhigh or max is needed');
    const wanted = on ? flag(on, 'enable_thinking') : effort && effort !== 'none';
    const options = { effort: hasEfforts && effort !== 'none' ? effort : undefined };
    if (keep) options.earlierThinking = flag(keep, 'preserve_thinking');
    if (wanted === undefined || !known) return options;
    if (!wanted && alwaysThinks)
        refuse(
            get(request, 'reasoning_effort') === undefined ? 'enable_thinking' : 'reasoning_effort',
            'this model always thinks'
        );
    return { ...options, thinking: wanted };
}

// ---- a message ----

/** A string, or parts whose texts are joined. Conversations that come back have refusals in them. */
function textOf(content) {
    if (content === undefined) bad('a content is missing');
    if (string(content) !== undefined) return content;
    if (!Array.isArray(content)) bad('a content must be a string, or a list of texts, without NUL');
    return content
        .map(part => {
            const name = get(part, 'type') === 'refusal' ? 'refusal' : 'text',
                text = string(get(part, name));
            if (get(part, 'type') !== name || text === undefined)
                bad('only parts of the type text are possible');
            return text;
        })
        .join('');
}

function callOf(call, isXml) {
    const type = get(call, 'type'),
        name = string(get(get(call, 'function'), 'name')),
        given = string(get(get(call, 'function'), 'arguments')),
        text = given || '{}';
    if (type !== undefined && type !== 'function')
        bad('only tool_calls of the type function are possible');
    if (!name || given === undefined || !isObject(parsed(text)))
        bad('a function in tool_calls needs a name and, as a string, arguments in JSON');
    return writeCall(isXml, name, text);
}

const trimmed = text => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, '');

/** What the assistant wrote: reasoning_content, content and tool_calls, of which some may be
 * missing. Templates without thinking leave the first one out. */
function replyOf(message, { dropThinking, hasXmlCalls }) {
    const thinking = get(message, 'reasoning_content'),
        content = get(message, 'content') ?? get(message, 'refusal'),
        old = get(message, 'function_call'), // OpenAI's before: a call without a list
        list = get(message, 'tool_calls'),
        isEmpty = list === undefined || (Array.isArray(list) && !list.length),
        calls = old !== undefined && isEmpty ? [{ function: old }] : list;
    if (thinking !== undefined && string(thinking) === undefined)
        bad('reasoning_content must be a string without NUL');
    const front =
        dropThinking === 3 || (thinking && dropThinking)
            ? `<think>\n${thinking ?? ''}\n</think>\n\n`
            : '';
    let text = content !== undefined || calls === undefined ? textOf(content) : '';
    if (dropThinking > 1) text = trimmed(text);
    if (calls === undefined) return front + text;
    if (!Array.isArray(calls)) bad('tool_calls must be a list');
    const all = calls.map(call => callOf(call, hasXmlCalls)).join('\n');
    if (text && hasXmlCalls) text += '\n';
    return front + text + (text && all ? '\n' : '') + all;
}

function messageOf(message, template) {
    const given = string(get(message, 'role'));
    if (!given) bad('a role is missing');
    const role = get({ developer: 'system', function: 'tool' }, given) ?? given;
    if (given === 'tool' && string(get(message, 'tool_call_id')) === undefined)
        bad('a message of the role tool needs a tool_call_id');
    if (role === 'assistant') return { role, content: replyOf(message, template) };
    if (get(message, 'tool_calls')?.length) bad('only the assistant has tool_calls');
    const isNull = given === 'function' && get(message, 'content') === undefined; // as OpenAI's may
    return { role, content: isNull ? '' : textOf(get(message, 'content')) };
}

const MOST_MESSAGES = 65536,
    MOST_SORTED = 128; // answers of tools, and calls: OpenAI's limit of these

/** Clients send what tools say as it comes. Chat templates do not write which call it answers, so
 * it is put in the order of the calls. */
function sorted(messages) {
    const all = [];
    while (all.length < messages.length) {
        const reply = messages[all.length],
            calls = get(reply, 'tool_calls');
        const ids = Array.isArray(calls) ? calls.map(call => string(get(call, 'id')) ?? null) : [];
        const place = answer => {
            const at = ids.indexOf(get(answer, 'tool_call_id'));
            return at < 0 ? MOST_SORTED : at;
        };
        const from = all.length + 1;
        let end = from;
        while (get(messages[end], 'role') === 'tool') end++;
        const answers = messages.slice(from, end);
        if (ids.length <= MOST_SORTED && answers.length <= MOST_SORTED)
            answers.sort((a, b) => place(a) - place(b));
        all.push(reply, ...answers);
    }
    return all;
}

export function messagesOf(request, template) {
    const messages = get(request, 'messages');
    if (!Array.isArray(messages) || !messages.length) bad('a list of messages is needed');
    if (messages.length > MOST_MESSAGES) bad('too many');
    return sorted(messages).map(message => messageOf(message, template));
}
