// interfaces.mjs - the APIs beside OpenAI's chats: its Responses, Anthropic's Messages, what
// llama.cpp's server has, and ranking, each with its own clients and without
//
//     node tests/server/interfaces.mjs SERVE CHAT_MODEL TEMPLATES FOLDER MODULES [FILTER]
//
// CHAT_MODEL makes models with the templates of TEMPLATES (tests/data/chat.json) in FOLDER. Their
// weights are random: a grammar says what they write. Clients that cannot send one get a fetch that
// puts it into the body.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ask, check, idle, loader, runAll, same, Skip, start } from './server.mjs';

const [serve, maker, data, folder, modules, filter = ''] = process.argv.slice(2);
const { templates } = JSON.parse(readFileSync(data, 'utf8'));
const load = loader(modules);

function make(name) {
    const [jinja, out] = [join(folder, `${name}.jinja`), join(folder, `${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, out]);
    return out;
}
const model = make('qwen-3');
const server = await start(serve, ['-m', model, '--ctx-size', '4096']);
const baseURL = `${server.url}/v1`;

/** A grammar of one text. */
const only = text =>
    `root ::= ${JSON.stringify(text).replace(
        /[^\x20-\x7e]/g,
        c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
    )}`;
const callOf = (name, args) =>
    `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
const THOUGHT = '<think>\nHm,\nwell.\n</think>\n\n';

/** A fetch whose requests have these texts as replies, one after the other; the last one stays. A
 * grammar binds the whole reply, so no call may be bound by strict. */
function saying(...texts) {
    const bodies = [];
    const fetch_ = async (url, options) => {
        if (!options?.body) return fetch(url, options);
        const body = JSON.parse(options.body);
        bodies.push(body);
        const text = texts[Math.min(bodies.length, texts.length) - 1];
        const given = text === null ? body : { ...body, grammar: only(text) };
        if (given.grammar && body.tools)
            given.tools = body.tools.map(tool => ({ ...tool, strict: false }));
        const headers = new Headers(options.headers);
        headers.delete('content-length');
        return fetch(url, { ...options, headers, body: JSON.stringify(given) });
    };
    return Object.assign(fetch_, { bodies });
}
async function openai(options = {}) {
    const { default: OpenAI } = await load('openai');
    return new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0, ...options });
}
async function anthropic(options = {}) {
    const { default: Anthropic } = await load('@anthropic-ai/sdk');
    return new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, ...options });
}
async function collect(stream) {
    const all = [];
    for await (const one of stream) all.push(one);
    return all;
}
/** The events of a stream: their names have to be their types. */
function eventsOf(text) {
    const parts = text.split('\n\n');
    same(parts.pop(), '', 'the end of a stream is');
    return parts
        .filter(p => !p.startsWith(':'))
        .map(p => {
            const [, name, json] = /^event: (\S+)\ndata: (.*)$/.exec(p);
            const event = JSON.parse(json);
            same(event.type, name);
            return event;
        });
}
const post = async (path, body, to = server) => {
    const { status, json, text } = await ask(to, path, body);
    same(status, 200, text);
    return json;
};
const refused = async (path, body, to = server) => {
    const { status, json, text } = await ask(to, path, body);
    check(status >= 400 && json, `${JSON.stringify(body).slice(0, 300)}: ${text}`);
    return [status, json.error.param ?? json.error.type, json.error.message];
};
const countOf = async messages =>
    (await post('/v1/chat/completions/input_tokens', messages)).input_tokens;

const parameters = {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false
};
const weather = { type: 'function', name: 'weather', parameters, strict: false };
const ROME = callOf('weather', { city: 'Rome' });

/** A response without what differs each time. */
const plain = ({ id, created_at, usage, output_parsed, output_text, ...rest }) =>
    JSON.parse(
        JSON.stringify(rest, (key, value) => (key === 'parsed' ? undefined : value)).replaceAll(
            id.replace(/^\w+?_/, ''),
            'ID'
        )
    );

const responses = {
    async 'responses: openai, a text'() {
        const client = await openai({ fetch: saying('Hello é.') });
        const r = await client.responses.create({
            model: 'any',
            input: 'x',
            instructions: 'Be kind.',
            max_output_tokens: 50,
            metadata: { a: 'b' },
            temperature: 0.5
        });
        same(
            [r.output_text, r.status, r.object, r.store],
            ['Hello é.', 'completed', 'response', false]
        );
        same([r.metadata, r.temperature, r.instructions], [{ a: 'b' }, 0.5, 'Be kind.']);
        same([r.max_output_tokens, r.error, r.incomplete_details], [50, null, null]);
        check(r.id.startsWith('resp_') && r.output[0].id.startsWith('msg_'), r);
        check(Math.abs(r.created_at - Date.now() / 1000) < 1000, r.created_at);
        same(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
        same(r.usage.output_tokens_details.reasoning_tokens, 0);
        const messages = [
            { role: 'system', content: 'Be kind.' },
            { role: 'user', content: 'x' }
        ];
        same(r.usage.input_tokens, await countOf({ messages }));
        const long = { type: 'text', x: 'x'.repeat(3e5) };
        const large = { model: 'a', input: 'x', max_output_tokens: 1, text: { format: long } };
        same((await client.responses.create(large)).text.format, { type: 'text' });
        const cut = await client.responses.create({ model: 'a', input: 'x', max_output_tokens: 2 });
        same([cut.status, cut.output[0].status], ['incomplete', 'incomplete']);
        same(cut.incomplete_details, { reason: 'max_output_tokens' });
    },

    async 'responses: openai, the input as items is the prompt of a chat'() {
        const client = await openai();
        const item = (role, ...texts) => ({
            role,
            content: texts.map(text => ({
                type: role === 'assistant' ? 'output_text' : 'input_text',
                text
            }))
        });
        const input = [
            { role: 'developer', content: 'b' },
            item('user', 'c', 'd'),
            { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'e' }] },
            { type: 'message', id: 'msg_1', status: 'completed', ...item('assistant', 'f') },
            { type: 'function_call', call_id: '1', name: 'weather', arguments: '{"city":"g"}' },
            { type: 'function_call', call_id: '2', name: 'weather', arguments: '{"city":"h"}' },
            { type: 'function_call_output', call_id: '1', output: 'i' },
            {
                type: 'function_call_output',
                call_id: '2',
                output: [{ type: 'input_text', text: 'j' }]
            },
            { role: 'assistant', content: 'k' },
            { type: 'reasoning', id: 'rs_2', summary: [], content: [{ type: 'x', text: 'l' }] },
            { role: 'assistant', content: 'm' },
            { role: 'user', content: 'n' }
        ];
        const call = (id, city) => ({
            id,
            type: 'function',
            function: { name: 'weather', arguments: `{"city":"${city}"}` }
        });
        const messages = [
            { role: 'system', content: 'a\n\nb' },
            { role: 'user', content: 'cd' },
            {
                role: 'assistant',
                reasoning_content: 'e',
                content: 'f',
                tool_calls: [call('1', 'g'), call('2', 'h')]
            },
            { role: 'tool', tool_call_id: '1', content: 'i' },
            { role: 'tool', tool_call_id: '2', content: 'j' },
            { role: 'assistant', content: 'k' },
            { role: 'assistant', reasoning_content: 'l', content: 'm' },
            { role: 'user', content: 'n' }
        ];
        const { name, parameters: p, strict } = weather;
        const tools = [{ type: 'function', function: { name, parameters: p, strict } }];
        const body = { input, instructions: 'a', tools: [weather] };
        const { input_tokens: n } = await client.responses.inputTokens.count(body);
        const { usage } = await client.responses.create({
            model: 'a',
            max_output_tokens: 1,
            ...body
        });
        const wanted = await countOf({ messages, tools });
        same([n, usage.input_tokens], [wanted, wanted]);
    },

    async 'responses: the events of a stream have their order, and end with the whole response'() {
        const body = {
            input: 'x',
            seed: 5, // a tag may be one token or several
            grammar: only(`${THOUGHT}So: ${ROME}\n${callOf('weather', { city: 'Bonn' })}`),
            tools: [weather],
            seed: 1 // the same text may have other tokens
        };
        const whole = await post('/v1/responses', body);
        const { text } = await ask(server, '/v1/responses', { ...body, stream: true });
        const events = eventsOf(text);
        same(
            events.map(e => e.sequence_number),
            events.map((_, i) => i)
        );
        const types = events.map(e => e.type.replace('response.', ''));
        same(
            types.filter((t, i) => t !== types[i - 1]),
            [
                'created',
                'in_progress',
                'output_item.added',
                'reasoning_summary_part.added',
                'reasoning_summary_text.delta',
                'reasoning_summary_text.done',
                'reasoning_summary_part.done',
                'output_item.done',
                'output_item.added',
                'content_part.added',
                'output_text.delta',
                'output_text.done',
                'content_part.done',
                'output_item.done',
                ...[1, 2].flatMap(() => [
                    'output_item.added',
                    'function_call_arguments.delta',
                    'function_call_arguments.done',
                    'output_item.done'
                ]),
                'completed'
            ]
        );
        const done = events.filter(e => e.type === 'response.output_item.done');
        same(
            done.map(e => e.output_index),
            [0, 1, 2, 3]
        );
        const last = events.at(-1).response;
        same(
            done.map(e => e.item),
            last.output
        );
        const added = events.filter(e => e.type === 'response.output_item.added');
        same(
            added.map(e => [e.output_index, e.item.id, e.item.status]),
            done.map(e => [e.output_index, e.item.id, 'in_progress'])
        );
        const idless = r => JSON.stringify(plain(r)).replace(/fc_\w+/g, 'fc');
        same(idless(last), idless(whole));
        same(last.usage.output_tokens_details, whole.usage.output_tokens_details);
        check(whole.usage.output_tokens_details.reasoning_tokens > 8, whole.usage);
        same(events[0].response.status, 'in_progress');
        same([events[0].response.output, events[0].response.usage], [[], null]);
        const cut = await ask(server, '/v1/responses', {
            ...body,
            stream: true,
            max_output_tokens: 5
        });
        const end = eventsOf(cut.text).slice(-2);
        same([end[0].item.status, end[1].type], ['incomplete', 'response.incomplete']);
    },

    async 'responses: openai, the stream helper'() {
        const client = await openai({ fetch: saying(`${THOUGHT}Yes.`) });
        const request = { model: 'any', input: 'x', reasoning: { effort: 'low', summary: 'auto' } };
        const whole = await client.responses.create(request);
        const runner = client.responses.stream(request);
        const events = await collect(runner);
        const final = await runner.finalResponse();
        same(plain(final), plain(whole));
        same([final.output_text, final.output.length], ['Yes.', 2]);
        const { content, summary } = final.output[0];
        same([content[0].text, summary[0].text], ['Hm,\nwell.', 'Hm,\nwell.']);
        const type = 'response.reasoning_summary_text.delta';
        const deltas = events.filter(e => e.type === type).map(e => e.delta);
        same(deltas.join(''), 'Hm,\nwell.');
        check(deltas.length > 1, deltas);
        const off = await client.responses.create({
            model: 'any',
            input: 'x',
            reasoning: { effort: 'none' }
        });
        check(
            off.usage.input_tokens > (await countOf({ messages: [{ role: 'user', content: 'x' }] }))
        );
    },

    async 'responses: openai, structured output'() {
        const client = await openai();
        const helper = resolve(modules, 'node_modules/openai/helpers/zod.mjs');
        const { zodTextFormat } = await import(pathToFileURL(helper));
        const { z } = await load('zod');
        const kind = z.object({ old: z.boolean(), kind: z.enum(['cat', 'dog']) });
        const request = {
            model: 'any',
            input: 'x',
            text: { format: zodTextFormat(kind, 'animal') },
            reasoning: { effort: 'none' }
        };
        const r = await client.responses.parse(request);
        check(kind.safeParse(r.output_parsed).success, r.output_text);
        same(r.text.format.name, 'animal');
        const final = await client.responses.stream(request).finalResponse();
        check(kind.safeParse(final.output_parsed).success, final.output_text);
        const any = await client.responses.create({
            ...request,
            text: { format: { type: 'json_object' } },
            max_output_tokens: 3
        });
        check(any.output_text.trim().startsWith('{'), any.output_text);
    },

    async 'responses: openai, a call and its output'() {
        const client = await openai({ fetch: saying(ROME, '', 'It rains.') });
        const input = [{ role: 'user', content: 'x' }];
        const first = await client.responses.create({ model: 'a', input, tools: [weather] });
        const [item] = first.output;
        same([item.type, item.name, item.status], ['function_call', 'weather', 'completed']);
        same(JSON.parse(item.arguments), { city: 'Rome' });
        same(first.tools, [weather]);
        const { input_tokens: n } = first.usage;
        const offered = [{ type: 'web_search' }, weather, { type: 'namespace', tools: [] }];
        const r = await client.responses.create({ model: 'a', input, tools: offered });
        same([r.tools, r.usage.input_tokens], [[weather], n], 'others are left out:');
        input.push(...first.output);
        input.push({ type: 'function_call_output', call_id: item.call_id, output: 'rain' });
        const second = await client.responses.create({ model: 'a', input, tools: [weather] });
        same(second.output_text, 'It rains.');
        const must = await (
            await openai()
        ).responses.create({
            model: 'a',
            input: 'x',
            tools: [
                {
                    ...weather,
                    parameters: { ...parameters, properties: { city: { const: 'Ulm' } } }
                }
            ],
            tool_choice: { type: 'function', name: 'weather' }
        });
        const { name, arguments: args } = must.output.at(-1);
        same([name, JSON.parse(args)], ['weather', { city: 'Ulm' }]);
    },

    async 'responses: openai, allowed_tools'() {
        const client = await openai();
        const now = { type: 'function', name: 'now', parameters: null };
        const body = { model: 'a', input: 'x', tools: [weather, now], max_output_tokens: 300 };
        const allowed = (mode, ...tools) => ({ type: 'allowed_tools', mode, tools });
        const name = { type: 'function', name: 'now' };
        const tool_choice = allowed('required', { type: 'web_search' }, name);
        const r = await client.responses.create({ ...body, tool_choice });
        same(r.tool_choice, tool_choice);
        const calls = r.output.filter(item => item.type === 'function_call');
        check(calls.length > 0 && calls.every(c => c.name === 'now'), r.output);
        for (const [choice, words] of [
            [allowed('auto', { type: 'web_search' }), 'a list of'],
            [allowed(undefined, name), 'mode'],
            [allowed('auto', { type: 'function', name: 'x' }), 'no function of this name']
        ]) {
            const { status, json } = await ask(server, '/v1/responses', {
                ...body,
                tool_choice: choice
            });
            same([status, json.error.param], [400, 'tool_choice'], words);
            check(json.error.message.includes(words), json);
        }
    },

    async 'responses: log-probabilities'() {
        const client = await openai({ fetch: saying('Yes.') });
        const r = await client.responses.create({
            model: 'any',
            input: 'x',
            include: ['message.output_text.logprobs'],
            top_logprobs: 2
        });
        const { logprobs } = r.output[0].content[0];
        same(
            logprobs
                .slice(0, 4)
                .map(l => l.token)
                .join(''),
            'Yes.'
        );
        same(logprobs[0].top_logprobs.length, 2);
        const events = await collect(
            await client.responses.create({
                model: 'any',
                input: 'x',
                top_logprobs: 2,
                stream: true
            })
        );
        const deltas = events.filter(e => e.type === 'response.output_text.delta');
        same(deltas.flatMap(e => e.logprobs)[0].top_logprobs.length, 2);
    },

    async 'responses: each text has the log-probabilities of its own tokens'() {
        const written = `${THOUGHT}So é: ${ROME} B<.`;
        const spoiled = '<tool_call>\n{"name": 1}\n</tool_call>';
        for (const [text, texts, more] of [
            ['Yes.', ['Yes.'], {}],
            ['', [''], {}],
            [written, ['So é: ', ' B<.'], {}],
            [written, ['So é: ', ' B'], { stop: ['<.'] }],
            [`${THOUGHT}So:\n${ROME}`, ['So:'], {}],
            [`So<${ROME}<`, ['So<', '<'], {}],
            [`${ROME}\n${ROME}\n${spoiled}\n`, [`\n${spoiled}\n`], {}],
            [`${THOUGHT}So: ${spoiled.slice(0, 20)}`, [`So: ${spoiled.slice(0, 20)}`], {}],
            // texts that wait where a stop string may begin, which then does not come
            [written, ['So é: ', ' B<.'], { stop: ['.\n</think>\n\nSo !'] }],
            [`So${ROME}The end.`, ['So', 'The end.'], { stop: ['So<tool_call>!'] }],
            [`So${ROME}The end.`, ['So', 'The end.'], { stop: ['}}\n</tool_call>The!'] }]
        ]) {
            const body = { input: 'x', seed: 1, tools: [weather], top_logprobs: 1, ...more };
            const asked = { ...body, grammar: only(text) };
            const whole = await post('/v1/responses', asked);
            const parts = whole.output.filter(o => o.type === 'message').map(o => o.content[0]);
            same(
                parts.map(p => p.text),
                texts
            );
            const bytesOf = list => Buffer.from(list.flatMap(l => l.bytes ?? [])).toString();
            const ends = l => l.bytes === null;
            for (const [i, { text: own, logprobs }] of parts.entries()) {
                // those of a stop string belong to it, and so does the end of the text
                const stop =
                    i === parts.length - 1 && more.stop?.[0] === '<.' ? more.stop[0] : '';
                same(bytesOf(logprobs), own + stop);
                const is_last = whole.output.at(-1).content?.[0] === parts[i] && !stop;
                same(logprobs.filter(ends).length, is_last ? 1 : 0, own);
                same(logprobs.findIndex(ends), is_last ? logprobs.length - 1 : -1);
            }
            if (text === 'Yes.') same(parts[0].logprobs.length, whole.usage.output_tokens);
            const events = eventsOf(
                (await ask(server, '/v1/responses', { ...asked, stream: true })).text
            );
            const last = events.at(-1).response;
            const idless = r => JSON.stringify(plain(r)).replace(/fc_\w+/g, 'fc');
            same(idless(last), idless(whole), text);
            const of = (type, index) =>
                events.filter(e => e.type === `response.${type}` && e.output_index === index);
            for (const [index, { type, content }] of last.output.entries()) {
                if (type !== 'message') continue;
                const [{ logprobs }] = content;
                same(
                    of('output_text.delta', index).flatMap(e => e.logprobs),
                    logprobs
                );
                same(of('output_text.done', index)[0].logprobs, logprobs);
                same(of('content_part.done', index)[0].part.logprobs, logprobs);
                same(of('output_item.done', index)[0].item.content[0].logprobs, logprobs);
            }
        }
        // all of them are in the events at the end
        const many = await start(serve, ['-m', model, '--ctx-size', '16384']);
        const long = { input: 'x', top_logprobs: 20, stream: true };
        same((await refused('/v1/responses', long, many))[0], 400);
        same((await ask(many, '/v1/responses', { ...long, max_output_tokens: 9 })).status, 200);
        same(await many.stop(), 0);
    },

    async 'responses and messages: text and calls keep their order, whole and as a stream'() {
        const asked_ = { tools: [weather], input: 'x', seed: 1 };
        const message = { ...asked('x', { tools: [schema] }), seed: 1 };
        // a stop string holds text back, so that all of this comes at once
        for (const stop of ['none', '</tool_call> B!'])
            for (const [text, wanted] of [
                [`A ${ROME} B.`, ['A ', 'call', ' B.']],
                [`${ROME} B.`, ['call', ' B.']],
                [`${THOUGHT}A ${ROME}\n${ROME} B.`, ['thought', 'A ', 'call', 'call', ' B.']]
            ]) {
                const grammar = only(text);
                const kinds = { reasoning: 'thought', function_call: 'call' };
                const told = r => r.output.map(o => kinds[o.type] ?? o.content[0].text);
                const body = { ...asked_, grammar, stop };
                const whole = await post('/v1/responses', body);
                same(told(whole), wanted, stop);
                const { text: stream } = await ask(server, '/v1/responses', {
                    ...body,
                    stream: true
                });
                same(told(eventsOf(stream).at(-1).response), wanted, stop);
                same(
                    whole.output.map(o => o.status),
                    wanted.map(() => 'completed')
                );

                const blocks = { thinking: 'thought', tool_use: 'call' };
                const sent = { ...message, grammar, stop_sequences: [stop] };
                const r = await post('/v1/messages', sent);
                same(
                    r.content.map(c => blocks[c.type] ?? c.text),
                    wanted,
                    stop
                );
                const events = eventsOf(
                    (await ask(server, '/v1/messages', { ...sent, stream: true })).text
                );
                const content = [];
                for (const e of events) {
                    if (e.type === 'content_block_start')
                        content.push(blocks[e.content_block.type] ?? '');
                    if (e.delta?.type === 'text_delta') content[e.index] += e.delta.text;
                }
                same(content, wanted, stop);
            }
    },

    async 'responses: what cannot be is refused by its name'() {
        for (const [param, body] of [
            ['previous_response_id', { previous_response_id: 'resp_1' }],
            ['conversation', { conversation: { id: 'a' } }],
            ['prompt', { prompt: { id: 'a' } }],
            ['background', { background: true }],
            ['input', { input: [] }],
            ['input', { input: null }],
            ['input', { input: [{ role: 'user', content: [{ type: 'input_image' }] }] }],
            ['input', { input: [{ role: 'user' }] }],
            ['input', { input: [{ type: 'web_search_call', id: '1' }] }],
            ['input', { input: [{ type: 'item_reference', id: 'msg_1' }] }],
            ['input', { input: [{ type: 'item_reference', id: 'fc_1' }] }],
            ['input', { input: [{ type: 'item_reference', id: 'fc_e30' }] }],
            ['input', { input: [{ type: 'function_call', name: 'f' }] }],
            [
                'input',
                { input: [{ type: 'function_call', call_id: '1', name: 'f', arguments: '{' }] }
            ],
            ['input', { input: [{ type: 'function_call_output', output: 'x' }] }],
            ['instructions', { instructions: 1 }],
            ['tool_choice', { tools: [{ type: 'web_search' }], tool_choice: 'required' }],
            [
                'tool_choice',
                { tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } }
            ],
            ['tools', { tools: {} }],
            ['tools', { tools: [{ type: 'function' }] }],
            ['tools', { tools: [{}] }],
            ['tools', { tools: ['web_search'] }],
            ['include', { include: 'message.output_text.logprobs' }],
            ['top_logprobs', { top_logprobs: '5' }],
            ['top_logprobs', { top_logprobs: -1 }],
            ['tool_choice', { tool_choice: { type: 'allowed_tools' }, tools: [weather] }],
            ['tool_choice', { tool_choice: 'required' }],
            ['text', { text: 1 }],
            ['text.format', { text: { format: { type: 'x' } } }],
            ['text.format', { text: { format: { type: 'json_schema', name: 'a', schema: 3 } } }],
            ['text.verbosity', { text: { verbosity: 'low' } }],
            ['reasoning', { reasoning: 1 }],
            ['reasoning.effort', { reasoning: { effort: 'much' } }],
            ['max_output_tokens', { max_output_tokens: 0 }],
            ['metadata', { metadata: { a: 1 } }],
            ['metadata', { metadata: { a: 'x'.repeat(513) } }],
            ['temperature', { temperature: -1 }],
            ['parallel_tool_calls', { parallel_tool_calls: 1, tools: [weather] }]
        ]) {
            const [status, found, message] = await refused('/v1/responses', {
                input: 'x',
                ...body
            });
            same([status, found], [400, param], message);
            check(message.includes(param), message);
            check(!/messages|max_completion|response_format/.test(message), message);
        }
        const unknown = { type: 'object', properties: { a: { type: 'x' } } };
        const [, , place] = await refused('/v1/responses', {
            input: 'x',
            tools: [{ ...weather, strict: true, parameters: unknown }]
        });
        check(place.startsWith('tools[0].parameters: #/properties/a'), place);
        const long = await refused('/v1/responses', { input: 'x'.repeat(1e5) });
        same(long.slice(0, 2), [400, 'input']);
        const [, , deep] = await refused('/v1/responses', {
            input: 'x',
            tools: [{ ...weather, parameters: JSON.parse('[1,'.repeat(61) + '1' + ']'.repeat(61)) }]
        });
        check(deep.includes('JSON'), deep);
    },

    async 'responses: the AI SDK, as it is by default'() {
        const { createOpenAI } = await load('@ai-sdk/openai');
        const { generateObject, generateText, stepCountIs, streamText, tool } = await load('ai');
        const { z } = await load('zod');
        const given = (...texts) => {
            const fetch = saying(...texts);
            return { fetch, model: createOpenAI({ baseURL, apiKey: 'none', fetch })('any') };
        };
        const one = await generateText({ ...given('Yes.'), prompt: 'x', system: 'Be kind.' });
        same([one.text, one.finishReason], ['Yes.', 'stop']);
        check(one.usage.inputTokens > 10 && one.usage.outputTokens >= 4, one.usage);
        const thinking = await generateText({ ...given(`${THOUGHT}Yes.`), prompt: 'x' });
        same([thinking.text, thinking.reasoningText], ['Yes.', 'Hm,\nwell.']);
        const stream = streamText({ ...given(`${THOUGHT}Yes.`), prompt: 'x' });
        same((await collect(stream.textStream)).join(''), 'Yes.');
        same([await stream.reasoningText, await stream.finishReason], ['Hm,\nwell.', 'stop']);
        const { object } = await generateObject({
            ...given(null),
            schema: z.object({ kind: z.enum(['cat', 'dog']) }),
            prompt: 'x'
        });
        check(['cat', 'dog'].includes(object.kind), object);
        const tools = {
            weather: tool({
                inputSchema: z.object({ city: z.string() }),
                execute: async ({ city }) => `rain in ${city}`
            })
        };
        for (const run of [generateText, streamText]) {
            const { fetch, model: m } = given(`${THOUGHT}${ROME}`, 'It rains.');
            const r = run({ model: m, tools, prompt: 'x', stopWhen: stepCountIs(3) });
            const steps = await (await r).steps;
            same(await (await r).text, 'It rains.');
            same(steps[0].toolResults[0].output, 'rain in Rome');
            // it names the call by its id, as if it was stored
            check(
                fetch.bodies[1].input.some(i => i.type === 'item_reference'),
                fetch.bodies[1]
            );
        }
        const stored = { openai: { store: false } }; // for conversations; see README.md
        const { fetch, model: m } = given('Yes.', 'No.');
        const first = await generateText({ model: m, prompt: 'x', providerOptions: stored });
        const messages = [user('x'), ...first.response.messages, user('y')];
        const next = await generateText({ model: m, messages, providerOptions: stored });
        same([next.text, fetch.bodies[1].input[1].content[0].text], ['No.', 'Yes.']);
    },

    async 'responses: the Agents SDK, as it is by default'() {
        const agents = await load('@openai/agents');
        const { z } = await load('zod');
        const { Agent, OpenAIProvider, Runner, tool } = agents;
        const ran = [],
            fetches = [];
        const runner = async (...texts) => {
            fetches.push(saying(...texts));
            const openAIClient = await openai({ fetch: fetches.at(-1) });
            return new Runner({
                modelProvider: new OpenAIProvider({ openAIClient }),
                tracingDisabled: true
            });
        };
        const tools = [
            tool({
                name: 'weather',
                description: 'says the weather',
                parameters: z.object({ city: z.string() }),
                execute: async ({ city }) => (ran.push(city), `rain in ${city}`)
            })
        ];
        const agent = new Agent({ name: 'a', instructions: 'Be kind.', tools, model: 'any' });
        const r = await (await runner(`${THOUGHT}${ROME}`, 'It rains.')).run(agent, 'x');
        same(r.finalOutput, 'It rains.');
        const live = await (
            await runner(`${THOUGHT}${ROME}`, 'It rains.')
        ).run(agent, 'x', { stream: true });
        await collect(live);
        await live.completed;
        same(live.finalOutput, 'It rains.');
        same(ran, ['Rome', 'Rome']);
        for (const { bodies } of fetches) same(bodies[1].input.at(-1).type, 'function_call_output'); // and no chat
        const typed = new Agent({
            name: 'b',
            instructions: 'x',
            model: 'any',
            outputType: z.object({ kind: z.enum(['cat', 'dog']) })
        });
        const { finalOutput } = await (await runner(null)).run(typed, 'x');
        check(['cat', 'dog'].includes(finalOutput.kind), finalOutput);
    },

    async 'responses: LangChain'() {
        const { ChatOpenAI } = await load('@langchain/openai');
        const chat = texts =>
            new ChatOpenAI({
                model: 'any',
                apiKey: 'none',
                useResponsesApi: true,
                configuration: { baseURL, fetch: saying(...texts) }
            });
        same((await chat(['Yes.']).invoke('x')).text, 'Yes.');
        const parts = await collect(await chat(['Yes.']).stream('x'));
        same(parts.map(p => p.text).join(''), 'Yes.');
        const chatTool = { type: 'function', function: { name: 'weather', parameters } };
        const r = await chat([ROME]).bindTools([chatTool]).invoke('x');
        same([r.tool_calls[0].name, r.tool_calls[0].args], ['weather', { city: 'Rome' }]);
    }
};

const schema = { name: 'weather', description: 'x', input_schema: parameters };
const user = content => ({ role: 'user', content });
const asked = (content, more = {}) => ({
    model: 'any',
    max_tokens: 300,
    messages: [user(content)],
    ...more
});

const messages = {
    async 'messages: anthropic, a text'() {
        const client = await anthropic({ fetch: saying('Hello é.') });
        const r = await client.messages.create(asked('x', { system: 'Be kind.' }));
        same([r.type, r.role, r.stop_reason], ['message', 'assistant', 'end_turn']);
        same(r.content, [{ type: 'text', text: 'Hello é.' }]);
        check(r.id.startsWith('msg_') && r.usage.output_tokens >= 8, r);
        const { usage } = await client.messages.create(asked('x', { system: 'Be kind.' }));
        const wanted = [{ role: 'system', content: 'Be kind.' }, user('x')];
        const n = await countOf({ messages: wanted });
        same(usage.input_tokens + usage.cache_read_input_tokens, n);
        check(usage.cache_read_input_tokens > 0, usage);
        const count = { model: 'a', system: 'Be kind.', messages: [user('x')] };
        same((await client.messages.countTokens(count)).input_tokens, n);
        const stamped = stamp => [
            { type: 'text', text: `x-anthropic-billing-header: cc_version=2; cch=${stamp};` },
            { type: 'text', text: 'You are kind.'.repeat(9) }
        ];
        await client.messages.create(asked('x', { system: stamped('a5145') }));
        const again = await client.messages.create(asked('x', { system: stamped('b0717') }));
        same(again.usage.input_tokens, 1, 'a stamp of the client is left out:');
        const cut = await client.messages.create(asked('x', { max_tokens: 2 }));
        same([cut.stop_reason, cut.content[0].text], ['max_tokens', 'He']);
        for (const stop_sequences of [['lo'], ['z', 'lo'], ['llo é', 'lo', 'ello']]) {
            const r = await client.messages.create(asked('x', { stop_sequences }));
            const word = stop_sequences.find(s => s !== 'z' && s !== 'llo é');
            const first = stop_sequences.length === 3 ? 'ello' : word;
            same([r.stop_reason, r.stop_sequence], ['stop_sequence', first]);
            same(r.content[0].text, 'Hello é.'.split(first)[0]);
        }
    },

    async 'messages: blocks are the prompt of a chat'() {
        const client = await anthropic();
        const cache_control = { type: 'ephemeral' };
        const body = {
            model: 'a',
            system: [
                { type: 'text', text: 'a', cache_control },
                { type: 'text', text: 'b' }
            ],
            messages: [
                user([
                    { type: 'text', text: 'c' },
                    { type: 'text', text: 'd', cache_control }
                ]),
                {
                    role: 'assistant',
                    content: [
                        { type: 'thinking', thinking: 'e', signature: 's' },
                        { type: 'redacted_thinking', data: 'x' },
                        { type: 'text', text: 'f' },
                        { type: 'tool_use', id: '1', name: 'weather', input: { city: 'g' } },
                        { type: 'tool_use', id: '2', name: 'weather', input: {} }
                    ]
                },
                user([
                    { type: 'text', text: 'z' },
                    { type: 'tool_result', tool_use_id: '1', content: 'h', is_error: true },
                    {
                        type: 'tool_result',
                        tool_use_id: '2',
                        content: [
                            { type: 'text', text: 'i' },
                            { type: 'text', text: 'j' }
                        ]
                    },
                    { type: 'text', text: 'k' }
                ])
            ],
            tools: [schema]
        };
        const call = (id, args) => ({
            id,
            type: 'function',
            function: { name: 'weather', arguments: args }
        });
        const wanted = {
            messages: [
                { role: 'system', content: 'a\nb' },
                user('c\nd'),
                {
                    role: 'assistant',
                    reasoning_content: 'e',
                    content: 'f',
                    tool_calls: [call('1', '{"city":"g"}'), call('2', '{}')]
                },
                user('z'),
                { role: 'tool', tool_call_id: '1', content: 'h' },
                { role: 'tool', tool_call_id: '2', content: 'i\nj' },
                user('k')
            ],
            tools: [
                {
                    type: 'function',
                    function: { name: 'weather', description: 'x', parameters }
                }
            ]
        };
        same((await client.messages.countTokens(body)).input_tokens, await countOf(wanted));
    },

    async 'messages: anthropic, thinking, a call and its result, whole and as a stream'() {
        const texts = [`${THOUGHT}So: ${ROME}`, 'It rains.'];
        for (const streams of [false, true]) {
            const client = await anthropic({ fetch: saying(...texts) });
            const create = async body =>
                streams
                    ? client.messages.stream(body).finalMessage()
                    : client.messages.create(body);
            const body = asked('x', {
                tools: [schema],
                thinking: { type: 'enabled', budget_tokens: 1024 }
            });
            const r = await create(body);
            same(
                r.content.map(c => c.type),
                ['thinking', 'text', 'tool_use']
            );
            same([r.content[0].thinking, r.content[0].signature], ['Hm,\nwell.', 'unsigned']);
            same([r.content[1].text, r.content[2].input], ['So: ', { city: 'Rome' }]);
            same([r.stop_reason, r.stop_sequence], ['tool_use', null]);
            body.messages.push({ role: r.role, content: r.content });
            const result = { type: 'tool_result', tool_use_id: r.content[2].id, content: 'rain' };
            body.messages.push(user([result]));
            const last = await create(body);
            same([last.content[0].text, last.stop_reason], ['It rains.', 'end_turn']);
        }
    },

    async 'messages: the events of a stream have their order'() {
        const { text } = await ask(server, '/v1/messages', {
            ...asked('x', { tools: [schema], stream: true }),
            grammar: only(`${THOUGHT}So: ${ROME}`)
        });
        const events = eventsOf(text);
        const types = events.map(e => e.delta?.type ?? e.content_block?.type ?? e.type);
        same(
            types.filter((t, i) => t !== types[i - 1]),
            [
                'message_start',
                'ping',
                'thinking',
                'thinking_delta',
                'signature_delta',
                'content_block_stop',
                'text',
                'text_delta',
                'content_block_stop',
                'tool_use',
                'input_json_delta',
                'content_block_stop',
                'message_delta',
                'message_stop'
            ]
        );
        const starts = events.filter(e => e.type === 'content_block_start');
        same(
            starts.map(e => e.index),
            [0, 1, 2]
        );
        same(starts[2].content_block.input, {});
        const { message } = events[0];
        same([message.content, message.stop_reason], [[], null]);
        const delta = events.at(-2);
        same([delta.delta.stop_reason, delta.delta.stop_sequence], ['tool_use', null]);
        check(delta.usage.output_tokens > 20 && message.usage.output_tokens === 0, delta);
    },

    async 'messages: tools that must be called, or must not'() {
        const client = await anthropic();
        const city = { const: 'Ulm' };
        const tool = { ...schema, input_schema: { ...parameters, properties: { city } } };
        for (const tool_choice of [{ type: 'any' }, { type: 'tool', name: 'weather' }]) {
            const one = { ...tool_choice, disable_parallel_tool_use: true };
            const r = await client.messages.create(
                asked('x', { tools: [tool], tool_choice: one, thinking: { type: 'disabled' } })
            );
            same(
                r.content.filter(c => c.type === 'tool_use').map(c => c.input),
                [{ city: 'Ulm' }]
            );
            same(r.stop_reason, 'tool_use');
        }
        const two = await anthropic({ fetch: saying(`${ROME}\n${ROME}`) });
        for (const disable_parallel_tool_use of [false, true]) {
            const tool_choice = { type: 'auto', disable_parallel_tool_use };
            const r = await two.messages.create(asked('x', { tools: [schema], tool_choice }));
            same(r.content.length, disable_parallel_tool_use ? 1 : 2);
        }
        const body = { ...asked('x', { tools: [schema] }), max_tokens: 1 };
        const count = async more =>
            (await client.messages.countTokens({ ...body, ...more })).input_tokens;
        const none = await count({ tool_choice: { type: 'none' } });
        same(none, await countOf({ messages: [user('x')] }));
        check((await count({ tool_choice: { type: 'auto' } })) > none, none);
    },

    async 'messages: the last message can be the begin of the reply'() {
        const client = await anthropic({ fetch: saying('there.') });
        const r = await client.messages.create({
            ...asked('x'),
            messages: [user('x'), { role: 'assistant', content: 'Hello ' }]
        });
        same(r.content[0].text, 'there.');
    },

    async 'effort, and calls in the form of XML, by all interfaces'() {
        const other = await start(serve, ['-m', make('qwen-3.8'), '--ctx-size', '4096']);
        const count = async effort => {
            const body = asked('x', { output_config: { effort } });
            return (await post('/v1/messages/count_tokens', body, other)).input_tokens;
        };
        same(await count('high'), await count('max'));
        check((await count('low')) < (await count('high')), 'low is shorter');
        const xml =
            '<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n' +
            '</function>\n</tool_call>';
        const off = { thinking: { type: 'disabled' }, tools: [schema], grammar: only(xml) };
        const r = await post('/v1/messages', asked('x', off), other);
        same(
            r.content.map(c => [c.type, c.name, c.input]),
            [['tool_use', 'weather', { city: 'Rome' }]]
        );
        const body = { input: 'x', tools: [weather], grammar: only(xml) };
        const { output } = await post(
            '/v1/responses',
            { ...body, reasoning: { effort: 'none' } },
            other
        );
        same([output[0].name, JSON.parse(output[0].arguments)], ['weather', { city: 'Rome' }]);
        const call = { name: 'weather', arguments: '{"city":"Rome","days":[1,2]}' };
        const said = {
            role: 'assistant',
            content: ' So: ',
            tool_calls: [{ id: '1', type: 'function', function: call }]
        };
        const told = [user('x'), said, { role: 'tool', tool_call_id: '1', content: 'wet' }];
        const { prompt } = await post(
            '/apply-template',
            { messages: told, chat_template_kwargs: { reasoning_effort: 'low' } },
            other
        );
        const [head] = prompt.split('<|im_start|>user');
        check(/^<\|im_start\|>system\nReasoning effort is set to low[.]/.test(head), head);
        same(
            prompt.slice(head.length),
            '<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo:\n\n' +
                '<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n' +
                '<parameter=days>\n[1, 2]\n</parameter>\n</function>\n</tool_call><|im_end|>\n' +
                '<|im_start|>user\n<tool_response>\nwet\n</tool_response><|im_end|>\n' +
                '<|im_start|>assistant\n<think>\n'
        );
        same(await other.stop(), 0, 'the exit code is');
    },

    async 'messages: structured output, and the tool runner'() {
        const client = await anthropic();
        const format = {
            type: 'json_schema',
            schema: {
                type: 'object',
                properties: { kind: { enum: ['cat', 'dog'] } },
                required: ['kind'],
                additionalProperties: false
            }
        };
        const r = await client.messages.parse(
            asked('x', { output_config: { format }, thinking: { type: 'disabled' } })
        );
        check(['cat', 'dog'].includes(JSON.parse(r.content.at(-1).text).kind), r.content);
        const runner = (
            await anthropic({ fetch: saying(`${THOUGHT}${ROME}`, 'It rains.') })
        ).beta.messages.toolRunner({
            ...asked('x'),
            tools: [{ ...schema, run: ({ city }) => `rain in ${city}`, parse: x => x }]
        });
        same((await runner).content[0].text, 'It rains.');
    },

    async 'messages: errors have their form, and the client its classes'() {
        const { BadRequestError, AuthenticationError } = await load('@anthropic-ai/sdk');
        const client = await anthropic();
        const image = { type: 'image', source: { type: 'url', url: 'http://a' } };
        const unknown = { type: 'object', properties: { a: { type: 'x' } } };
        for (const [names, body] of [
            ['image', { messages: [user([image])] }],
            ['document', { messages: [user([{ type: 'document' }])] }],
            ['needs its text', { messages: [user([{ type: 'text', text: 'a\0' }])] }],
            ['messages', { messages: [] }],
            ['messages', { messages: [{ role: 'chef', content: 'x' }] }],
            ['messages', { messages: [user(3)] }],
            ['tool_use_id', { messages: [user([{ type: 'tool_result' }])] }],
            ['tool_use', { messages: [{ role: 'assistant', content: [{ type: 'tool_use' }] }] }],
            ['max_tokens', { max_tokens: undefined }],
            ['max_tokens', { max_tokens: 0 }],
            [
                'web_search_20250305',
                { tools: [{ type: 'web_search_20250305', name: 'web_search' }] }
            ],
            ['tool_choice', { tools: [schema], tool_choice: { type: 'tool' } }],
            ['tool_choice', { tools: [schema], tool_choice: { type: 'tool', name: 'x' } }],
            ['stop_sequences', { stop_sequences: [''] }],
            ['system', { system: 3 }],
            ['thinking', { thinking: { budget_tokens: 3 } }],
            ['output_config', { output_config: 'json' }],
            ['output_config', { output_config: { format: { type: 'x' } } }],
            ['output_config', { output_config: { format: { type: 'json_schema', schema: 3 } } }],
            [
                'tools[0].input_schema: #/properties/a',
                { tools: [{ name: 'f', input_schema: unknown }], tool_choice: { type: 'any' } }
            ],
            ['output_config.effort', { output_config: { effort: 'some' } }],
            ['mcp_servers', { mcp_servers: [{ type: 'url' }] }],
            ['temperature', { temperature: -1 }]
        ]) {
            const e = await client.messages.create({ ...asked('x'), ...body }).catch(x => x);
            check(e instanceof BadRequestError, `${JSON.stringify(body)}: ${e}`);
            same(e.error.type, 'error');
            same(e.error.error.type, 'invalid_request_error');
            check(e.error.error.message.includes(names), e.error.error.message);
        }
        const none = await refused('/v1/messages', { ...asked('x'), tools: 1 });
        same(none, [400, 'invalid_request_error', 'tools: a list is needed']);
        const more = { context_management: {}, metadata: { user_id: 'a' }, service_tier: 'auto' };
        same(
            (await post('/v1/messages', { ...asked('x'), ...more, max_tokens: 1 })).type,
            'message'
        );
        const locked = await start(serve, ['-m', model, '--api-key', 'secret', '--max-body', '1']);
        const at = key => anthropic({ baseURL: locked.url, ...key });
        const wrong = await (await at({ apiKey: 'x' })).messages.create(asked('x')).catch(e => e);
        check(wrong instanceof AuthenticationError, wrong);
        same(wrong.error.error.type, 'authentication_error');
        for (const key of [{ apiKey: 'secret' }, { apiKey: null, authToken: 'secret' }]) {
            const r = await (await at(key)).messages.create({ ...asked('x'), max_tokens: 1 });
            same(r.type, 'message');
        }
        const large = asked('x'.repeat(1.1 * 2 ** 20));
        const e = await (await at({ apiKey: 'secret' })).messages.create(large).catch(x => x);
        same([e.status, e.error.error.type], [413, 'request_too_large']);
        for (const [key, wanted] of [
            ['secret', 200],
            ['x', 401]
        ]) {
            const options = { headers: { 'x-api-key': key } }; // as older clients send it
            const r = await ask(locked, '/v1/messages', { ...asked('x'), max_tokens: 1 }, options);
            same(r.status, wanted);
        }
        same(await locked.stop(), 0, 'the exit code is');
    },

    async 'messages: the AI SDK'() {
        const { createAnthropic } = await load('@ai-sdk/anthropic');
        const { generateText, stepCountIs, streamText, tool } = await load('ai');
        const { z } = await load('zod');
        const given = (...texts) => ({
            model: createAnthropic({ baseURL, apiKey: 'none', fetch: saying(...texts) })('any')
        });
        const one = await generateText({ ...given(`${THOUGHT}Yes.`), prompt: 'x' });
        same([one.text, one.reasoningText, one.finishReason], ['Yes.', 'Hm,\nwell.', 'stop']);
        const tools = {
            weather: tool({
                inputSchema: z.object({ city: z.string() }),
                execute: async ({ city }) => `rain in ${city}`
            })
        };
        for (const run of [generateText, streamText]) {
            const texts = [`${THOUGHT}So: ${ROME}`, 'It rains.'];
            const r = run({ ...given(...texts), tools, prompt: 'x', stopWhen: stepCountIs(3) });
            const [step] = await (await r).steps;
            same([step.toolResults[0].output, step.reasoningText], ['rain in Rome', 'Hm,\nwell.']);
            same(await (await r).text, 'It rains.');
        }
    }
};

const llama = {
    async 'llama: /completion is a completion'() {
        const body = { prompt: 'x', n_predict: 20, seed: 7, temperature: 0.8, top_p: 0.95 };
        const { choices, usage } = await post('/v1/completions', body);
        for (const path of ['/completion', '/completions']) {
            const r = await post(path, { ...body, temperature: undefined, top_p: undefined });
            same(r.content, choices[0].text);
            same([r.tokens_predicted, r.tokens_evaluated], [20, usage.prompt_tokens]);
            same([r.stop, r.stop_type, r.stopping_word, r.truncated], [true, 'limit', '', false]);
            same([r.tokens.length, r.model], [20, 'qwen-3']);
            const { temperature, top_p, top_k, seed } = r.generation_settings;
            same([temperature, top_p, top_k, seed], [0.8, 0.95, 40, 7]);
            same(
                [r.timings.predicted_n, r.timings.prompt_n + r.timings.cache_n],
                [20, usage.prompt_tokens]
            );
            check(r.timings.predicted_ms > 0 && r.timings.predicted_per_second > 0, r.timings);
            const { text } = await ask(server, path, { ...body, stream: true });
            const events = text
                .trim()
                .split('\n\n')
                .map(l => JSON.parse(l.replace('data: ', '')));
            same(events.map(e => e.content).join(''), r.content);
            same(
                events.flatMap(e => e.tokens),
                r.tokens
            );
            same(
                events.map(e => e.stop),
                events.map((_, i) => i === events.length - 1)
            );
            same(events.at(-1).tokens_predicted, 20);
        }
        const two = await post('/completion', { prompt: ['x', 'y'], n_predict: 2 });
        same(
            two.map(r => r.index),
            [0, 1]
        );
    },

    async 'llama: stop words, probabilities and biases of /completion'() {
        const body = { prompt: 'x', grammar: only('Hello you.'), n_predict: 50 };
        const ended = await post('/completion', body);
        same([ended.content, ended.stop_type], ['Hello you.', 'eos']);
        const r = await post('/completion', { ...body, stop: ['zz', ' y', 'you'], n_probs: 2 });
        same([r.content, r.stop_type, r.stopping_word], ['Hello', 'word', ' y']);
        const [first] = r.completion_probabilities;
        same([first.id, first.token, first.bytes], [r.tokens[0], 'H', [72]]);
        same(first.top_logprobs.length, 2);
        check(typeof first.top_logprobs[0].id === 'number', first);
        same(r.generation_settings.stop, ['zz', ' y', 'you']);
        for (const [H, J] of ['HJ', 'JH'].map(pair => [...pair].map(c => c.charCodeAt(0))))
            for (const logit_bias of [[[H, false]], [[H, -100]], { [H]: -100 }]) {
                const grammar = 'root ::= "H" | "J"';
                const { tokens } = await post('/completion', { prompt: 'x', grammar, logit_bias });
                same(tokens[0], J);
            }
        for (const [param, more] of [
            ['n_probs', { n_probs: 1000 }],
            ['logit_bias', { logit_bias: [[]] }],
            ['logit_bias', { logit_bias: [['a', 1]] }],
            ['prompt', { prompt: undefined }],
            ['mirostat', { mirostat: 2 }],
            ['n_cmpl', { n_cmpl: 0 }],
            ['n', { n: 0 }]
        ])
            same((await refused('/completion', { ...body, ...more })).slice(0, 2), [400, param]);
        const nulls = { temperature: null, top_p: null, n_predict: null, stop: null, seed: null };
        same((await post('/completion', { ...body, ...nulls })).content, 'Hello you.');
        same((await ask(server, '/infill', {})).status, 404);
    },

    async 'llama: /apply-template gives the text that a chat reads'() {
        const conversation = [{ role: 'system', content: 'a' }, user('b')];
        const { prompt } = await post('/apply-template', { messages: conversation });
        same(
            prompt,
            '<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n'
        );
        const other = await start(serve, ['-m', make('llama-3'), '--ctx-size', '2048']);
        const again = await post('/apply-template', { messages: conversation }, other);
        check(again.prompt.startsWith('<|start_header_id|>'), again); // BOS comes again anyway
        const body = { seed: 3, temperature: 0.8, top_p: 0.95, max_tokens: 12 };
        const { content } = await post('/completion', { ...again, ...body }, other);
        const chat = await post('/v1/chat/completions', { messages: conversation, ...body }, other);
        same(content, chat.choices[0].message.content);
        same(await other.stop(), 0, 'the exit code is');
        same((await refused('/apply-template', { messages: [] }))[0], 400);
    },

    async 'llama: what /props and /slots say'() {
        const { json: props } = await ask(server, '/props');
        const { params, n_ctx } = props.default_generation_settings;
        same([n_ctx, params.temperature, params.top_p, params.n_predict], [4096, 0.8, 0.95, -1]);
        same([props.total_slots, props.model_alias, props.model_path], [4, 'qwen-3', model]);
        same(props.chat_template, templates['qwen-3']);
        same([props.bos_token, props.eos_token], ['<|begin_of_text|>', '<|endoftext|>']);
        const free = async () =>
            (await ask(server, '/slots')).json.filter(s => !s.is_processing).length;
        await idle(server);
        same([(await ask(server, '/slots')).json.length, await free()], [4, 4]);
        same((await ask(server, '/slots?fail_on_no_slot=1')).status, 200);
        const one = await start(serve, ['-m', model, '--parallel', '1', '--ctx-size', '4096']);
        const controller = new AbortController();
        const r = await fetch(`${one.url}/completion`, {
            method: 'POST',
            body: JSON.stringify({ prompt: 'x', n_predict: -1, ignore_eos: true, stream: true }),
            signal: controller.signal
        });
        const reader = r.body.getReader();
        await reader.read();
        // Figures are of the last pass: the first token may come before they say that it is written.
        const writes = async () => (await ask(one, '/slots')).json[0].is_processing;
        for (let n = 0; n < 100 && !(await writes()); n++);
        const busy = await ask(one, '/slots?fail_on_no_slot=1');
        if (await writes()) same(busy.status, 503);
        controller.abort();
        same(await one.stop(), 0, 'the exit code is');
    },

    async 'llama: chats have timings, too'() {
        const body = { messages: [user('x')], max_tokens: 5 };
        const whole = await post('/v1/chat/completions', body);
        const { cache_n, prompt_n, predicted_n, prompt_ms } = whole.timings;
        same(
            [cache_n + prompt_n, predicted_n],
            [whole.usage.prompt_tokens, whole.usage.completion_tokens]
        );
        check(prompt_ms > 0, whole.timings);
        for (const include_usage of [false, true]) {
            const { text } = await ask(server, '/v1/chat/completions', {
                ...body,
                stream: true,
                stream_options: { include_usage }
            });
            const events = text.split('\n\n').filter(l => l.startsWith('data: {'));
            const timed = events.map(l => JSON.parse(l.slice(6)).timings?.predicted_n);
            check(timed.pop() > 0 && timed.every(t => t === undefined), text);
        }
        check(!(await post('/v1/chat/completions', { ...body, n: 2 })).timings, 'two texts');
    },

    async 'llama: paths need no /v1'() {
        const chat = { messages: [user('x')], max_tokens: 1 };
        same((await post('/chat/completions', chat)).object, 'chat.completion');
        same((await post('/responses', { input: 'x', max_output_tokens: 1 })).object, 'response');
        same((await post('/messages', { ...chat })).type, 'message');
        check((await post('/messages/count_tokens', chat)).input_tokens > 3, 'a count');
        const { json } = await ask(server, '/models');
        same((await ask(server, `/models/${json.data[0].id}`)).json.id, json.data[0].id);
        same((await ask(server, '/models/x')).status, 404);
        same((await ask(server, '/v1/completion', {})).status, 404);
        same((await ask(server, '/chat/completions')).status, 405);
        same((await refused('/embeddings', { input: 'x' }))[1], 'model');
        same((await refused('/v1/rerank', { query: 'x', documents: ['y'] }))[1], 'model');
    }
};

const at = join(process.env.BITNET_TEST_DATA ?? '../shared', 'models', 'q.gguf');
const ranks = {
    async 'rerank: a score is the cosine of two embeddings'() {
        if (!existsSync(at)) throw new Skip('models/q.gguf is not in BITNET_TEST_DATA');
        const own = await start(serve, ['-m', at, '--ctx-size', '512']);
        const documents = ['hi', 'It is a bear.', 'The giant panda is a bear of China.', 'hi'];
        const query = 'What is a panda?';
        const task = 'Given a web search query, retrieve relevant passages that answer the query';
        const of = async input => {
            const body = { input, parse_special: false };
            return (await post('/v1/embeddings', body, own)).data.map(d => d.embedding);
        };
        const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
        const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
        for (const [instruction, whole] of [
            [undefined, `Instruct: ${task}\nQuery: ${query}`],
            ['Find it', `Instruct: Find it\nQuery: ${query}`],
            ['', query]
        ]) {
            const body = { query, documents, instruction, return_documents: true };
            const r = await post('/v1/rerank', body, own);
            const [q, ...ds] = await of([whole, ...documents]);
            same(r.results.length, 4);
            for (const [i, one] of r.results.entries()) {
                const wanted = cosine(q, ds[one.index]);
                check(Math.abs(one.relevance_score - wanted) < 1e-6, [one, wanted]);
                check(
                    i === 0 || one.relevance_score <= r.results[i - 1].relevance_score,
                    r.results
                );
                same(one.document.text, documents[one.index]);
            }
            const his = r.results.map(o => o.index).filter(i => i % 3 === 0);
            same(his, [0, 3], 'of equal ones the first comes first:');
            check(r.usage.total_tokens > 20 && r.model === 'random', r);
        }
        for (const path of ['/rerank', '/reranking', '/v1/reranking', '/v2/rerank']) {
            const body = { query: 'a', documents: [{ text: 'b' }, 'a'], top_n: 1, instruction: '' };
            const r = await post(path, body, own);
            same([r.results.length, r.results[0].index], [1, 1]);
            check(Math.abs(r.results[0].relevance_score - 1) < 1e-6, r);
            check(!r.results[0].document, r);
        }
        for (const [param, body] of [
            ['query', { query: '' }],
            ['query', { query: undefined }],
            ['documents', { documents: [] }],
            ['documents', { documents: 'x' }],
            ['documents', { documents: [''] }],
            ['documents', { documents: [{}] }],
            ['documents', { documents: Array(2048).fill('x') }],
            ['documents', { documents: ['x', 'y '.repeat(900)] }],
            ['query', { query: 'y '.repeat(900) }],
            ['top_n', { top_n: 0 }],
            ['return_documents', { return_documents: 1 }],
            ['instruction', { instruction: 1 }]
        ])
            same(
                (await refused('/v1/rerank', { query: 'x', documents: ['y'], ...body }, own)).slice(
                    0,
                    2
                ),
                [400, param]
            );
        const long = { query: 'x', documents: ['x', 'y '.repeat(900)] };
        const [, , says] = await refused('/v1/rerank', long, own);
        check(says.startsWith('documents[1] has '), says);
        same(await own.stop(), 0, 'the exit code is');
    }
};

/** What is left of a stream when the server ends in the middle of it. */
async function cutOff(path, body) {
    const one = await start(serve, ['-m', model, '--ctx-size', '4096', '--grace', '0']);
    const r = await fetch(one.url + path, {
        method: 'POST',
        body: JSON.stringify({ ...body, ignore_eos: true, stream: true })
    });
    const decoder = new TextDecoder();
    let text = '',
        stopped;
    for await (const part of r.body) {
        text += decoder.decode(part, { stream: true });
        if (text.includes('delta')) stopped ??= one.stop();
    }
    same(await stopped, 0, 'the exit code is');
    return eventsOf(text);
}
const ends = {
    async 'a stream that fails says so in its form'() {
        const response = await cutOff('/v1/responses', {
            input: 'x',
            reasoning: { effort: 'none' }
        });
        const [error, failed] = response.slice(-2);
        same([error.type, failed.type], ['error', 'response.failed']);
        same([error.message, error.error.message], Array(2).fill('the server is shutting down'));
        same([failed.response.status, failed.response.error.code], ['failed', 'server_error']);
        same(
            response.map(e => e.sequence_number),
            response.map((_, i) => i)
        );
        const message = await cutOff('/v1/messages', asked('x', { max_tokens: 4000 }));
        const { type, error: what } = message.at(-1);
        same([type, what.type], ['error', 'overloaded_error']);
        check(!message.some(e => e.type === 'message_stop'), message.at(-2));
    }
};

const cases = { ...ends, ...responses, ...messages, ...llama, ...ranks };
const failed = await runAll('server interfaces', cases, filter);
same(await server.stop(), 0, 'the exit code is');
process.exit(failed ? 1 : 0);
