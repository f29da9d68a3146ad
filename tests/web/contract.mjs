// contract.mjs - what build/serve and the JavaScript package make of the same request: the same
// fields, the same refusals in the same words, the same prompts and the same answers
//
//     node tests/web/contract.mjs SERVE WEB CHAT_MODEL DATA FOLDER [FILTER]
//
// DATA (tests/data) has requests.json: for each field values that both take, and values that both
// refuse, with the words; and chat.json, with whose templates CHAT_MODEL makes models in FOLDER.
// Their weights are random, so that a reply's log-probabilities tell one prompt from any other;
// each byte is a token, and each tag. What they write is noise, but for what a grammar says.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ask, check, runAll, same, start } from '../server/server.mjs';

const [serve, web, maker, data, folder, filter = ''] = process.argv.slice(2);
const { BitNet } = await import(pathToFileURL(resolve(web, 'node.js')));
const read = name => JSON.parse(readFileSync(join(data, name), 'utf8'));
const fields = read('requests.json'),
    { templates } = read('chat.json');
const TINY = join(resolve(data), '../../examples/tiny.gguf');
const user = (content = 'Rain in Oslo?') => ({ role: 'user', content });

const open = {}; // name of a template -> { server, model }
async function pair(name) {
    if (open[name]) return open[name];
    let gguf = TINY;
    if (name !== 'tiny') {
        const jinja = join(folder, `contract-${name}.jinja`);
        gguf = join(folder, `contract-${name}.gguf`);
        writeFileSync(jinja, templates[name]);
        execFileSync(maker, [jinja, gguf, ...(name === 'bitnet-2b-4t' ? ['bare'] : [])]);
    }
    const context = name === 'tiny' ? [] : ['--ctx-size', '4096'];
    const server = await start(serve, ['-m', gguf, '--queue', '200', ...context]);
    const model = await BitNet.load(readFileSync(gguf), {
        threads: 1,
        context: 4096 * !!context[0]
    });
    return (open[name] = { server, model });
}

/** What both make of a request: { answer } or { error }, without what differs each time. */
async function both(name, request) {
    const { server, model } = await pair(name);
    const { status, json, text } = await ask(server, '/v1/chat/completions', request);
    check(json && status < 500, text);
    await model.clear();
    const own = await model.chat.completions.create(JSON.parse(JSON.stringify(request))).then(
        answer => ({ answer }),
        e => ({ error: e })
    );
    if (own.error && (!own.error.code || own.error.code === 'ERR_INTERNAL')) throw own.error;
    const theirs = status === 200 ? { answer: json } : { error: json.error };
    return { theirs, own };
}

/** The parts of an answer that are the same. */
function essence({ choices, usage }) {
    const numbers = list =>
        list?.content.map(t => [t.logprob, ...t.top_logprobs.map(u => u.logprob)]);
    return {
        choices: choices.map(({ index, message, logprobs, finish_reason: reason }) => ({
            index,
            reason,
            content: message.content,
            thinking: message.reasoning_content,
            calls: message.tool_calls?.map(call => ({ ...call, id: 0 })),
            logprobs: numbers(logprobs)?.map(row => row.map(Math.fround))
        })),
        usage: { ...usage, prompt_tokens_details: 0 }
    };
}

/** Both answer, and the same. */
async function agree(name, request) {
    const { theirs, own } = await both(name, request);
    const about = JSON.stringify(request).slice(0, 600);
    check(!theirs.error, `serve refuses ${about}: ${theirs.error?.message}`);
    check(!own.error, `the package refuses ${about}: ${own.error?.stack}`);
    same(essence(own.answer), essence(theirs.answer), `${name}: ${about}`);
    return own.answer;
}

/** Both refuse it, with these words. */
async function refuse(name, request, says) {
    const { theirs, own } = await both(name, request);
    const about = `${name}: ${JSON.stringify(request).slice(0, 600)}`;
    check(theirs.error, `serve takes ${about}`);
    check(own.error, `the package takes ${about}`);
    same([theirs.error.message, own.error.message], [says, says], about);
}

/** Both do the same, whatever that is. */
async function either(name, request) {
    const { theirs, own } = await both(name, request);
    const about = `${name}: ${JSON.stringify(request)}`;
    check(!theirs.error === !own.error, `${about}: ${theirs.error?.message} / ${own.error?.stack}`);
    if (!theirs.error) same(essence(own.answer), essence(theirs.answer), about);
    return !theirs.error;
}

/** What a stream gives, put together as an answer. */
async function streamed(name, request) {
    const { server, model } = await pair(name);
    await model.clear();
    const { text } = await ask(server, '/v1/chat/completions', { ...request, stream: true });
    const lines = text.split('\n\n').filter(line => line.startsWith('data: {'));
    const own = [];
    for await (const chunk of await model.chat.completions.create({ ...request, stream: true }))
        own.push(chunk);
    const joined = chunks => {
        const all = [];
        for (const { choices } of chunks)
            for (const { index, delta, finish_reason: reason } of choices) {
                const one = (all[index] ??= { content: '', thinking: '', calls: [], roles: 0 });
                one.roles += delta.role === 'assistant';
                one.content += delta.content ?? '';
                one.thinking += delta.reasoning_content ?? '';
                one.calls.push(...(delta.tool_calls ?? []).map(call => ({ ...call, id: 0 })));
                one.reason = reason ?? one.reason;
            }
        return all;
    };
    same(
        joined(own),
        joined(lines.map(line => JSON.parse(line.slice(6)))),
        JSON.stringify(request)
    );
    return joined(own);
}

const cases = {};
const test = (name, run) => (cases[name] = run);

for (const { field, takes, refuses, says } of fields)
    test(`field ${field}${takes.length ? '' : ` (${says.slice(0, 60)})`}`, async () => {
        const base = { messages: [user()], seed: 1, max_tokens: 2 };
        if (['max_completion_tokens', 'n_predict'].includes(field)) delete base.max_tokens;
        if (field === 'best_of') base.n = 1;
        for (const value of takes) {
            const request = { ...base, [field]: value };
            if (value === null && !request.max_tokens) request.max_tokens = 3;
            if (value === null && field === 'messages') continue;
            if (field === 'seed' && (value === null || value === -1)) request.temperature = 0;
            await agree('tiny', request);
        }
        for (const value of refuses) await refuse('tiny', { ...base, [field]: value }, says);
    });

test("no field of serve's table is missing here", () => {
    const source = readFileSync(join(data, '../../examples/server/fields.c'), 'utf8');
    const names = [...source.matchAll(/^ {4}\{"(\w+)", [^}]*(?:CHATS|TEXTS|ALL)/gm)].map(m => m[1]);
    check(names.length > 40, names);
    for (const name of names)
        check(
            fields.some(f => f.field === name && f.refuses.length),
            `requests.json has no ${name}`
        );
});

test('n texts, and those of a seed', async () => {
    for (const seed of [1, -7, 2 ** 60]) {
        const { choices } = await agree('tiny', { messages: [user()], n: 3, max_tokens: 6, seed });
        check(new Set(choices.map(c => c.message.content)).size > 1, choices);
        await streamed('tiny', { messages: [user()], n: 2, max_tokens: 6, seed });
    }
});

test('options of the sampler', async () => {
    const base = { messages: [user()], max_tokens: 20, seed: 5, logprobs: true, top_logprobs: 2 };
    for (const more of [
        { temperature: 0 },
        { temperature: 3, top_k: -1, top_p: 0.5, min_p: 0 },
        { repeat_penalty: 50, repeat_last_n: 3 },
        { repeat_penalty: 50, repeat_last_n: 0 },
        { frequency_penalty: 2, presence_penalty: -2, repeat_last_n: -1 },
        { frequency_penalty: 2, max_tokens: 90 },
        { temperature: 3, top_p: 0 },
        { ignore_eos: true, max_tokens: 60 }
    ])
        await agree('tiny', { ...base, ...more });
});

const FUNCTION = {
    name: 'weather',
    description: 'of "a" city\n',
    parameters: {
        type: 'object',
        properties: {
            city: { enum: ['Oslo', 'R"om', 'Łódź'] },
            days: { type: 'integer', maximum: 9 }
        },
        required: ['city'],
        additionalProperties: false
    }
};
const f = (name, more = {}) => ({ type: 'function', function: { ...FUNCTION, name, ...more } });
const called = (name, args, id = 'call-1') => ({
    id,
    type: 'function',
    function: { name, arguments: args }
});

const HISTORIES = [
    [user()],
    [{ role: 'system', content: ' Be brief. ' }, user()],
    [
        { role: 'developer', content: 'Be brief.' },
        user('a\r\n b '),
        { role: 'assistant', content: ' c\n' },
        user('d')
    ],
    [user(), { role: 'system', content: 'Later.' }, user('x')],
    [user('x'), { role: 'assistant', content: 'y', reasoning_content: 'Hm\nso' }, user('z')],
    [user('x'), { role: 'assistant', content: ' y ', reasoning_content: '' }, user('z')],
    [user('x'), { role: 'assistant', content: '<think>\nHm\n</think>\n\ny' }, user('z')],
    [user('x'), { role: 'assistant', content: 'Ye', reasoning_content: 'Hm' }],
    [user('x'), { role: 'assistant', content: 'Ye' }],
    [user('x'), { role: 'assistant', content: '<think>\nHm' }],
    [user('x'), { role: 'assistant', content: '' }],
    [{ role: 'assistant', content: 'alone' }],
    [
        user('x'),
        {
            role: 'assistant',
            content: null,
            tool_calls: [called('weather', '{"city":"Oslo","n":1.50,"l":[1, 2],"o":{"a":null}}')]
        },
        { role: 'tool', tool_call_id: 'call-1', content: '{"rain": true}' }
    ],
    [
        user('x'),
        {
            role: 'assistant',
            content: 'I look.',
            reasoning_content: 'Hm',
            tool_calls: [called('weather', '{"city": "R\\"om"}'), called('time', '', 'call-2')]
        },
        { role: 'tool', tool_call_id: 'call-1', content: 'dry' },
        { role: 'tool', tool_call_id: 'call-2', content: [{ type: 'text', text: 'noon' }] },
        user('Thanks')
    ],
    [
        user('x'),
        {
            role: 'assistant',
            content: null,
            tool_calls: [called('time', '{}', 'c-1'), called('time', '{}', 'c-2')]
        },
        { role: 'tool', tool_call_id: 'other', content: 'of no call' },
        { role: 'tool', tool_call_id: 'c-2', content: 'second' },
        { role: 'tool', tool_call_id: 'c-1', content: 'first' },
        { role: 'tool', tool_call_id: 'c-2', content: 'third' },
        user('y')
    ],
    [
        user('x'),
        {
            role: 'assistant',
            content: 'I look.',
            tool_calls: [],
            function_call: { name: 'weather', arguments: '{"city": "Oslo"}' }
        },
        { role: 'function', name: 'weather', content: 'dry' },
        { role: 'assistant', content: null, function_call: { name: 'time', arguments: '' } },
        { role: 'function', name: 'time', content: null }
    ],
    [user('x'), { role: 'assistant', content: null, refusal: ' No. ' }, user('z')],
    [user('x'), { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] }, user('z')],
    [user('x'), { role: 'narrator', content: 'y' }, user('z')],
    [
        user('x'),
        user('y'),
        { role: 'assistant', content: 'a' },
        { role: 'assistant', content: 'b' },
        user('c')
    ]
];
const ASKED = { max_tokens: 2, temperature: 0, logprobs: true, top_logprobs: 3 };

for (const name of Object.keys(templates))
    test(`prompts: ${name}`, async () => {
        let taken = 0;
        for (const messages of HISTORIES)
            for (const more of [
                {},
                { tools: [f('weather'), f('time', { parameters: undefined })] },
                { enable_thinking: false },
                { reasoning_effort: 'low', preserve_thinking: true },
                {
                    chat_template_kwargs: { enable_thinking: true, preserve_thinking: false },
                    tools: [f('weather')]
                }
            ])
                taken += await either(name, { messages, ...ASKED, ...more });
        check(taken > 40 || templates[name].length < 200, `${taken} were taken`);
    });

test('messages with calls that are none', async () => {
    const arguments_ = 'a function in tool_calls needs a name and, as a string, arguments in JSON';
    const old = { name: 'f', arguments: '{}' };
    for (const [message, says] of [
        [{ role: 'assistant', function_call: { name: 'f' } }, arguments_],
        [{ role: 'assistant', function_call: 'f' }, arguments_],
        [{ role: 'assistant', function_call: old, tool_calls: 'x' }, 'tool_calls must be a list'],
        [{ role: 'assistant', tool_calls: [{ function: { name: 'f' } }] }, arguments_],
        [{ role: 'tool', content: 'x' }, 'a message of the role tool needs a tool_call_id'],
        [{ role: 'tool', tool_call_id: 'a' }, 'a content is missing'],
        [{ role: 'function', content: 5 }, 'a content must be a string, or a list of texts, without NUL']
    ])
        await refuse('qwen-3', { messages: [user(), message, user()], ...ASKED }, `messages: ${says}`);
});

const ONE = { messages: [user()], seed: 1 };
const QUIET = { enable_thinking: false };
const DIVIDED = ['qwen-3', 'qwen-3-thinking', 'qwen-3.6', 'bitnet-2b-4t', 'falcon-3'].filter(
    name => templates[name]
);
const json = (name, args) => `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;
const xml = body => `<tool_call>\n<function=${body}</function>\n</tool_call>`;
const TEXTS = [
    'plain\n\ntext\n',
    '<think>\nHm\n</think>\n\nYes',
    '\n<think>Hm</think>Yes',
    '<think>\nnever ends',
    'a < b <thinking> </think> c',
    json('weather', '{"city": "Oslo", "x": 1.50}'),
    `Let me see.\n${json('weather', '{}')}\n${json('time', '{"a": [1, {"b": null}]}')}\n`,
    `${json('weather', '{}')}\nand text behind`,
    '<tool_call>\n[{"name": "a", "arguments": {}}, ' +
        '{"name": "b", "parameters": {"x": "\\u00e9\\n"}}]\n</tool_call>',
    '<tool_call>\n{"name": "a", "arguments": 5}\n</tool_call> rest',
    '<tool_call>\n{"name": "a", "extra": 5}\n</tool_call>',
    '<tool_call>{"name": "a"}</tool_call>',
    '<tool_call>{"name": "a"',
    'mentions <tool_call> in a text\n',
    'x\n<tool_call>\n<func',
    xml('weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n'),
    xml(
        'weather>\n<parameter=city>\n"Oslo"\n</parameter>\n<parameter=o>\n{"a": 1.0}\n</parameter>\n'
    ),
    xml('time>\n'),
    xml('weather>\n<parameter=city>\nOs</parameter>lo\n</parameter>\n'),
    xml('weather>\nno parameter'),
    '<tool_call><tool_call>{"name": "a", "arguments": {}}</tool_call>',
    '<think>\n\n</think>\n\n' + json('weather', '{}')
];

for (const name of DIVIDED)
    test(`parts of a reply: ${name}`, async () => {
        let calls = 0;
        for (const text of TEXTS)
            for (const more of [
                {},
                { tools: [f('weather'), f('time')] },
                { tools: [f('weather')], parallel_tool_calls: false }
            ]) {
                const grammar = `root ::= ${JSON.stringify(text)}`;
                const quiet = name === 'qwen-3.6' ? QUIET : {}; // else a thought comes first
                const request = { ...ONE, grammar, max_tokens: 400, ...quiet, ...more };
                const { choices } = await agree(name, request);
                calls += choices[0].message.tool_calls?.length ?? 0;
                await streamed(name, request);
            }
        check(calls > 5, `${calls} calls`);
    });

const ODD = f('odd', {
    parameters: {
        type: 'object',
        properties: {
            any: {},
            far: { $ref: '#/elsewhere' },
            number: { type: 'integer' },
            either: { oneOf: [{ type: 'string' }, { type: 'boolean' }] }
        }
    }
});

test("values of a call's parameters", async () => {
    for (const value of ['"Oslo"', '5', '[1, "a"]', 'true', 'text', ''])
        for (const name of ['any', 'far', 'number', 'either', 'none']) {
            const call = xml(`odd>\n<parameter=${name}>\n${value}\n</parameter>\n`);
            const grammar = `root ::= ${JSON.stringify(call)}`;
            const request = { ...QUIET, ...ONE, grammar, max_tokens: 200, tools: [ODD] };
            const { choices } = await agree('qwen-3.6', request);
            check(choices[0].message.tool_calls?.length === 1, choices);
        }
});

test('a reply that has begun: its parts', async () => {
    for (const name of DIVIDED)
        for (const content of [
            '<think>\nHm',
            'a\n<tool_call>\n{"name": ',
            '<tool_call>',
            'x</thi',
            'x\n'
        ])
            for (const text of [
                'nk>Yes',
                ' "b", "arguments": {}}\n</tool_call>',
                '\n</think>\n\ny'
            ])
                await agree(name, {
                    messages: [user(), { role: 'assistant', content }],
                    grammar: `root ::= ${JSON.stringify(text)}`,
                    tools: [f('weather')],
                    max_tokens: 200,
                    seed: 1
                });
});

const allow = (mode, ...names) => ({
    type: 'allowed_tools',
    allowed_tools: { mode, tools: names.map(name => ({ type: 'function', function: { name } })) }
});

for (const name of [...DIVIDED, 'qwen-3.8', 'chatml', 'llama-3'].filter(n => templates[n]))
    test(`what calls keep to: ${name}`, async () => {
        const { model } = await pair(name);
        const [close] = await model.tokenize('</think>', { special: true });
        const base = { messages: [user()], max_tokens: 500, logit_bias: { [close]: 20 } };
        const parameters = {
            type: 'object',
            properties: {
                s: { type: 'string', maxLength: 4 },
                e: {
                    anyOf: [
                        { const: 'a"b' },
                        { type: 'integer', minimum: 1, maximum: 3 },
                        { $ref: '#/$defs/x' }
                    ]
                },
                n: { type: ['null', 'boolean'] }
            },
            required: ['e', 'n'],
            $defs: { x: { enum: ['p', 5] } },
            additionalProperties: false
        };
        const tools = [
            f('weather'),
            f('more', { parameters, strict: true }),
            f('none', { parameters: undefined })
        ];
        const format = { type: 'json_schema', json_schema: { schema: { enum: ['yes', 'no'] } } };
        let calls = 0;
        for (const seed of [1, 2, 3])
            for (const more of [
                { tools, tool_choice: 'required' },
                { tools, tool_choice: 'required', parallel_tool_calls: false },
                { tools, tool_choice: { type: 'function', function: { name: 'more' } } },
                { tools, tool_choice: { type: 'function', function: { name: 'none' } } },
                { tools: [f('weather')], response_format: format },
                { tools, response_format: format, tool_choice: 'required' },
                { tools, response_format: format, tool_choice: 'none' },
                { tools, tool_choice: { type: 'required' } },
                { tools, response_format: format, tool_choice: { type: 'none' } },
                { tools, response_format: format, tool_choice: { type: 'auto' } },
                { tools, tool_choice: allow('required', 'none', 'weather') },
                { tools, response_format: format, tool_choice: allow('auto', 'none') },
                { tools, tool_choice: allow('auto', 'weather'), max_tokens: 60 },
                { tools, max_tokens: 60 }
            ]) {
                const { choices } = await agree(name, { ...base, ...more, seed });
                calls += choices[0].message.tool_calls?.length ?? 0;
            }
        check(calls > 9, `${calls} calls`);
        await streamed(name, { ...base, tools, tool_choice: 'required', seed: 4 });
    });

for (const name of DIVIDED)
    test(`the tag that ends a call, within an argument: ${name}`, async () => {
        const { model } = await pair(name);
        const [close] = await model.tokenize('</think>', { special: true });
        const base = { messages: [user()], max_tokens: 900, logit_bias: { [close]: 20 } };
        const s = { type: 'string', enum: ['a</tool_call>b</function>\n</tool_call>"\\c'] };
        const list = { type: 'array', items: s, minItems: 2, maxItems: 2 };
        const parameters = { type: 'object', properties: { s, list }, required: ['s', 'list'] };
        const strict = [f('weather', { parameters, strict: true })];
        for (const parallel_tool_calls of [false, true]) {
            const request = { ...base, tools: strict, tool_choice: 'required', parallel_tool_calls };
            const { choices } = await agree(name, { ...request, seed: 1 });
            const [call] = choices[0].message.tool_calls;
            same(JSON.parse(call.function.arguments), { s: s.enum[0], list: Array(2).fill(s.enum[0]) });
        }
        if (name === 'qwen-3-thinking') return;
        // where nothing binds them, a call that is spoiled is text, and the next one a call
        const spoiled =
            name === 'qwen-3.6'
                ? '<tool_call>\n<function=a>\n<parameter=x>\n1\n</tool_call>'
                : '<tool_call>\n{"name": "a</tool_call>';
        const good = name === 'qwen-3.6' ? xml('weather>\n') : json('weather', '{}');
        const grammar = `root ::= ${JSON.stringify(`${spoiled}\n${good}`)}`;
        await agree(name, { ...base, ...QUIET, grammar, tools: [f('weather')], seed: 1 });
    });

for (const name of ['qwen-3.6', 'qwen-3.8'].filter(n => templates[n]))
    test(`strings of calls in the form of XML: ${name}`, async () => {
        const ends = 'a\n</parameter>\n</parameter> b';
        const code = /^[A-Z]{2}-\d(\n"x"\\)?$/;
        const good = {
            day: [{ type: 'string', format: 'date' }, v => /^\d{4}-\d\d-\d\d$/.test(v)],
            code: [{ type: 'string', pattern: code.source, maxLength: 9 }, v => code.test(v)],
            name: [{ $ref: '#/$defs/Name' }, v => /[b-y]/.test(v) && [...v].length <= 4],
            some: [{ type: 'string', minLength: 1 }, v => v !== ''],
            maybe: [
                { anyOf: [{ type: 'string', pattern: '^[a-c]{1,2}$' }, { type: 'null' }] },
                v => v === null || /^[a-c]{1,2}$/.test(v)
            ],
            tag: [{ enum: [ends, 7] }, v => v === ends || v === 7],
            size: [{ enum: ['ab', 'cd'], maxLength: 3 }, v => v === 'ab' || v === 'cd'],
            long: [{ type: 'string', maxLength: 9000 }, () => true],
            plain: [{ type: 'string' }, () => true]
        };
        let n = 0;
        for (const [key, [schema, isGood]] of Object.entries(good))
            for (const seed of [1, 2, 3]) {
                const parameters = {
                    type: 'object',
                    $defs: { Name: { type: 'string', pattern: '[b-y]', minLength: 2, maxLength: 4 } },
                    properties: { [key]: schema },
                    required: [key]
                };
                const tools = [f('weather'), f('x', { parameters, strict: true })];
                const choice = { tools, tool_choice: { type: 'function', function: { name: 'x' } } };
                const request = { ...ONE, ...QUIET, ...choice, max_tokens: 300, seed };
                const [{ message, finish_reason }] = (await agree(name, request)).choices;
                if (finish_reason === 'length') continue; // it has no end
                const value = JSON.parse(message.tool_calls[0].function.arguments)[key];
                check(isGood(value), `${key}: ${JSON.stringify(value)}`);
                n++;
            }
        check(n > 12, `${n} calls`);
        const x = { type: 'string', pattern: 'a(?=b)c' };
        const parameters = { type: 'object', properties: { x } };
        const { theirs, own } = await both(name, {
            ...ONE,
            tools: [f('weather'), f('x', { parameters, strict: true })]
        });
        check(own.error?.message.startsWith('tools[1].function.parameters: #/properties/x/pattern'), own);
        same(own.error.message, theirs.error.message);
    });

test('a call that ends with max_tokens', async () => {
    const text = json('weather', '{}');
    const whole = { ...ONE, grammar: `root ::= ${JSON.stringify(text)}`, tools: [f('weather')] };
    const { model } = await pair('bitnet-2b-4t');
    const { length } = await model.tokenize(text, { special: true });
    const reasons = {};
    for (const parallel_tool_calls of [true, false])
        for (const max_tokens of [text.length - 1, text.length, text.length + 1, length, length + 1])
            for (const stop of [undefined, 'l>', '</tool_call>x'])
                for (const name of DIVIDED) {
                    const request = { ...whole, parallel_tool_calls, max_tokens, stop };
                    const [{ finish_reason: reason }] = (await agree(name, request)).choices;
                    reasons[reason] = (reasons[reason] ?? 0) + 1;
                    await streamed(name, request);
                }
    check(reasons.length && reasons.tool_calls && reasons.stop, reasons);
});

for (const name of [...DIVIDED, 'chatml'].filter(n => templates[n]))
    test(`stop strings, which do not end a thought: ${name}`, async () => {
        const { model } = await pair(name);
        const [close, ...others] = await model.tokenize('</think>', { special: true });
        const thought = 'Hm, end.\n\nwell <b> é.',
            said = 'Yes é: end. No.';
        const begins = name === 'qwen-3-thinking' ? 1 : 0; // its template opens the thought
        const reply = `\n${thought}\n</think>\n\n${said}`;
        const text = JSON.stringify(reply.replace('</think>', '\0')).split('\\u0000');
        const grammars = [
            `root ::= ${JSON.stringify(said)}`,
            `root ::= ${JSON.stringify(`${said}\n\n${json('weather', '{}')}`)}`,
            `root ::= ${JSON.stringify(`<think>${reply}`)}` // the tags as text
        ];
        if (!others.length && !begins)
            grammars.push(`root ::= <think> ${text[0]}" </think> "${text[1]}`);
        if ((await model.tokenize('<tool_call>', { special: true })).length === 1)
            grammars.push('root ::= <tool_call> "\\n{\\"name\\": 1}"');
        for (const grammar of grammars)
            for (const stop of [
                ['end'],
                [' end. N'],
                ['\n'],
                ['\n\n'],
                ['think'],
                ['<'],
                ['é: e', 's'],
                ['!'],
                ['weather', '</tool_call>'],
                ['No.\n\n<tool_call>\n{']
            ]) {
                const request = { ...ONE, grammar, stop, max_tokens: 300, tools: [f('weather')] };
                if (begins) request.logit_bias = { [close]: 20 };
                await agree(name, request);
                await streamed(name, request);
                await agree(name, { ...request, max_tokens: 20 });
            }
    });

test('a stop string ends what is said, where its letters stand in the thought, too', async () => {
    const grammar = 'root ::= <think> "\\nHm, end.\\n" </think> "\\n\\nYes: end. No."';
    for (const more of [{}, { logprobs: true, top_logprobs: 1 }, { n: 2 }]) {
        const request = { ...ONE, grammar, max_tokens: 100, stop: ['end'], ...more };
        const { choices } = await agree('qwen-3', request);
        for (const { message, finish_reason: reason } of choices)
            same(
                [message.reasoning_content, message.content, reason],
                ['Hm, end.', 'Yes: ', 'stop']
            );
    }
});

test('names that calls in the form of XML cannot have', async () => {
    const base = { ...ONE, ...QUIET, max_tokens: 1 };
    let refused = 0;
    for (const name of ['qwen-3', 'qwen-3.6'])
        for (const odd of ['a\nb', '<tool_call>', 'a>b', '</tool_call', '']) {
            const parameters = { type: 'object', properties: { [odd]: { type: 'string' } } };
            for (const more of [
                { tools: [f(odd || 'x<')] },
                { tools: [f('x', { parameters })] },
                { tools: [f('a'), f('x', { parameters, strict: true })] },
                { tools: [f('x', { parameters })], tool_choice: 'required' }
            ]) {
                const { theirs, own } = await both(name, { ...base, ...more });
                same(own.error?.message, theirs.error?.message, JSON.stringify(more));
                refused += own.error ? 1 : 0;
            }
        }
    check(refused === 15, `${refused} were refused`);
});

test('the tool whose parameters no text has is named', async () => {
    const none = { type: 'object', properties: { 'a/~': { enum: [] } }, required: ['a/~'] };
    const tools = [f('weather'), f('none', { parameters: none })];
    const tool_choice = { type: 'function', function: { name: 'none' } };
    for (const name of ['qwen-3', 'qwen-3.6'])
        for (const more of [{ tools, tool_choice }, { tools: [tools[1]], tool_choice: 'required' }])
            await refuse(
                name,
                { ...ONE, ...more },
                `tools[${more.tools.length - 1}].function.parameters: #/properties/a~1~0: has no text that ends, or none within a depth of 4096`
            );
});

test('allowed_tools that are none', async () => {
    const tools = [f('weather'), f('time')];
    const none = 'tools has no function of this name';
    const list = 'allowed_tools needs tools, a list of 1 to 128 functions';
    const mode = 'the mode of allowed_tools must be auto or required';
    const only = 'only functions can be in allowed_tools';
    for (const [tool_choice, says] of [
        [{ type: 'allowed_tools' }, mode],
        [{ type: 'allowed_tools', allowed_tools: { mode: 'x', tools } }, mode],
        [{ type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: {} } }, list],
        [{ type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [5] } }, only],
        [allow('auto'), list],
        [allow('auto', ...Array(129).fill('time')), list],
        [allow('required', 'time', 'other'), none],
        [{ type: 'x' }, `none, auto, required or {"type": "function", "function": {"name": ...}} is needed`]
    ])
        await refuse('qwen-3', { ...ONE, tools, tool_choice }, `tool_choice: ${says}`);
    await refuse('qwen-3', { ...ONE, tool_choice: allow('auto', 'time') }, `tool_choice: ${none}`);
    await refuse('qwen-3', { ...ONE, tool_choice: { type: 'required' } }, 'tool_choice: there are no tools');
    await refuse('qwen-3', { ...ONE, tools: 5, tool_choice: 5 }, 'tools: a list is needed');
});

test('rules that exclude each other, or are none', async () => {
    const base = { messages: [user()], max_tokens: 5 };
    const tools = [f('weather', { strict: true })];
    const bad = { type: 'object', properties: { a: { type: 'nothing' } } };
    for (const more of [
        { grammar: 'root ::= "a"', guided_json: {} },
        { response_format: { type: 'json_object' }, format: 'json' },
        { structured_outputs: { json: {}, choice: ['a'] } },
        { tools, grammar: 'root ::= "a"' },
        { tools, grammar: 'root ::= "a"', tool_choice: 'required' },
        { tools, grammar: 'root ::= "a"', tool_choice: allow('auto', 'weather') },
        { tools: [f('weather')], grammar: 'root ::= "a"', tool_choice: allow('auto', 'weather') },
        { tools, tool_choice: { type: 'function', function: { name: 'other' } } },
        { max_tokens: 5, max_completion_tokens: 6 },
        { grammar: 'root ::= nothing' },
        { json_schema: '{"type": ' },
        { json_schema: { type: 'nothing' } },
        { response_format: { type: 'json_schema', json_schema: { schema: bad } } },
        { tools: [f('weather', { strict: true, parameters: bad })] },
        { tools: [f('weather', { parameters: bad })], tool_choice: 'required' },
        { tools: [f('weather')], json_schema: bad },
        { messages: [user(), { role: 'assistant', content: 'a' }], tools, tool_choice: 'required' },
        { messages: [user(), { role: 'assistant', content: 'a <tool' }], tools }
    ]) {
        const { theirs, own } = await both('qwen-3', { ...base, ...more });
        check(theirs.error && own.error, JSON.stringify({ more, theirs, own }));
        same(own.error.message, theirs.error.message, JSON.stringify(more));
    }
});

const failed = await runAll('contract', cases, filter);
for (const { server, model } of Object.values(open)) {
    await model.free();
    await server.stop();
}
process.exit(failed ? 1 : 0);
