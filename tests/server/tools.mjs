// tools.mjs - tools with chat templates that have none, and what calls keep to
//
//     node tests/server/tools.mjs SERVE CHAT_MODEL TEMPLATES TINY FOLDER MODULES [FILTER]
//
// CHAT_MODEL makes models with the templates of TEMPLATES (tests/data/chat.json) in FOLDER: their
// weights are random, each byte is a token, and each tag, but with bitnet-2b-4t. TINY has that
// template, too, and words as tokens, and few of them in its context. What all of them write is
// noise, but for what a grammar binds.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ask, check, runAll, same, Skip, start } from './server.mjs';

const [serve, maker, data, tiny, folder, modules, filter = ''] = process.argv.slice(2);
const { templates } = JSON.parse(readFileSync(data, 'utf8'));
const servers = { tiny: await start(serve, ['-m', tiny, '--queue', '200']) };
const names = ['bitnet-2b-4t', 'llama-3', 'falcon-3', 'chatml', 'qwen-3', 'qwen-3-thinking'];
for (const name of [...names, 'qwen-3.6', 'qwen-3.8']) {
    const [jinja, out] = [join(folder, `tools-${name}.jinja`), join(folder, `tools-${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, out, ...(name === 'bitnet-2b-4t' ? ['bare'] : [])]);
    servers[name] = await start(serve, ['-m', out, '--ctx-size', '4096', '--queue', '200']);
}

/** A module of MODULES: a package, or PACKAGE/PART. */
async function load(name) {
    const [, pack, part = ''] = /^(@[^/]+\/[^/]+|[^/]+)(\/.+)?$/.exec(name);
    const at = join(resolve(modules), 'node_modules', pack);
    if (!existsSync(at)) throw new Skip(`npm has not installed ${pack}`);
    const { exports = {} } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'));
    const own = exports[`.${part}`]?.import ?? exports[`.${part}`] ?? `.${part}.mjs`;
    return import(pathToFileURL(join(at, typeof own === 'string' ? own : own.default)));
}
async function openai(to, body = {}) {
    const { default: OpenAI } = await load('openai');
    const fetch_with = (url, init) =>
        fetch(url, {
            ...init,
            body: JSON.stringify({ seed: 1, ...JSON.parse(init.body), ...body })
        });
    return new OpenAI({
        baseURL: `${to.url}/v1`,
        apiKey: 'none',
        maxRetries: 0,
        fetch: fetch_with
    });
}

const user = { role: 'user', content: 'Rain in Oslo?' };
const ASKED = { messages: [user], max_tokens: 400, seed: 1 };
const CITIES = ['Oslo', 'R"om', 'Łódź'];
const parameters = {
    type: 'object',
    properties: { city: { enum: CITIES } },
    required: ['city'],
    additionalProperties: false
};
const f = (name, more = {}) => ({ type: 'function', function: { name, parameters, ...more } });
const tools = [f('weather')];
const chat = async (to, body) => {
    const r = await ask(to, '/v1/chat/completions', { ...ASKED, ...body });
    same(r.status, 200, r.text);
    return r.json;
};
const refusal = async (to, body) => {
    const r = await ask(to, '/v1/chat/completions', { messages: [user], max_tokens: 9, ...body });
    same(r.status, 400, r.text);
    return r.json.error;
};
/** A request whose text is exactly this. */
const says = (text, more = {}) => ({ grammar: `root ::= ${JSON.stringify(text)}`, ...more });
const call = (name, args) =>
    `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(args)}}\n</tool_call>`;
/** A bias with which texts often spell the tag, or have it as a token. */
async function calling(to, strength) {
    const body = { content: '<tool_call>', parse_special: false };
    const own = await ask(to, '/tokenize', { ...body, parse_special: true });
    const spelled = await ask(to, '/tokenize', body);
    const tokens = [...own.json.tokens, ...spelled.json.tokens];
    return { logit_bias: Object.fromEntries(tokens.map(t => [t, strength])) };
}
/** A bias with which the text begins with a call, if the tag is a token. */
async function begins(to) {
    const { json } = await ask(to, '/tokenize', { content: '<tool_call>' });
    return { logit_bias: { [json.tokens[0]]: 100 } };
}
/** A stream's deltas put together. */
async function stream(to, body) {
    const r = await ask(to, '/v1/chat/completions', { ...ASKED, ...body, stream: true });
    same(r.status, 200, r.text);
    const all = { content: '', calls: [], reason: '' };
    for (const line of r.text.split('\n\n').filter(l => l.startsWith('data: {'))) {
        const [choice] = JSON.parse(line.slice(6)).choices;
        all.content += choice.delta.content ?? '';
        for (const c of choice.delta.tool_calls ?? []) all.calls[c.index] = c.function;
        all.reason = choice.finish_reason ?? all.reason;
    }
    return all;
}
const [json, xml] = [n => !/qwen-3[.]/.test(n), n => /qwen-3[.]/.test(n)];
const each = Object.entries(servers).filter(([n]) => json(n));
const others = Object.entries(servers).filter(([n]) => xml(n)); // their calls have the form of XML
const [bare, tagged] = [servers['bitnet-2b-4t'], servers['llama-3']];
/** Special tokens are one token each, all else is bytes; and so are tags. */
const tokensOfBytes = text => text.replace(/<\|\w+\|>/g, 'T').length;
const tokensIn = text =>
    text.replace(/<\|\w+\|>|<\/?(think|tool_call|tool_response)>/g, 'T').length;

const cases = {
    async 'prompts have the tools, calls and results, whatever the template'() {
        const messages = [
            { role: 'system', content: 'Be.' },
            user,
            {
                role: 'assistant',
                content: null,
                tool_calls: ['a', 'b'].map(id => ({
                    id,
                    type: 'function',
                    function: { name: 'weather', arguments: '{"city":"Oslo"}' }
                }))
            },
            { role: 'tool', tool_call_id: 'a', content: 'wet' },
            { role: 'tool', tool_call_id: 'b', name: 'weather', content: '{"rain": 1}' }
        ];
        const words =
            '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou ' +
            'are provided with function signatures within <tools></tools> XML tags:\n<tools>\n' +
            '{"type": "function", "function": {"name": "weather"}}\n</tools>\n\nFor each ' +
            'function call, return a json object with function name and arguments within ' +
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, ' +
            '"arguments": <args-json-object>}\n</tool_call>';
        const calls = Array(2)
            .fill(call('weather', { city: 'Oslo' }))
            .join('\n');
        const answers =
            '<tool_response>\nwet\n</tool_response>\n' +
            '<tool_response>\n{"rain": 1}\n</tool_response>';
        const head = role => `<|start_header_id|>${role}<|end_header_id|>\n\n`;
        for (const [name, text] of [
            [
                'bitnet-2b-4t',
                `<|begin_of_text|>System: Be.\n\n${words}<|eot_id|>User: ${user.content}` +
                    `<|eot_id|>Assistant: ${calls}<|eot_id|>User: ${answers}<|eot_id|>Assistant: `
            ],
            [
                'llama-3',
                `<|begin_of_text|>${head('system')}Be.\n\n${words}<|eot_id|>${head('user')}` +
                    `${user.content}<|eot_id|>${head('assistant')}${calls}<|eot_id|>` +
                    `${head('user')}${answers}<|eot_id|>${head('assistant')}`
            ],
            [
                'falcon-3',
                `<|system|>\nBe.\n\n${words}\n<|user|>\n${user.content}\n<|assistant|>\n${calls}` +
                    `<|endoftext|>\n<|user|>\n${answers}\n<|assistant|>\n`
            ],
            [
                'chatml',
                `<|im_start|>system\nBe.\n\n${words}<|im_end|>\n<|im_start|>user\n` +
                    `${user.content}<|im_end|>\n<|im_start|>assistant\n${calls}<|im_end|>\n` +
                    `<|im_start|>user\n${answers}<|im_end|>\n<|im_start|>assistant\n`
            ]
        ]) {
            const body = { messages, tools: [{ type: 'function', function: { name: 'weather' } }] };
            const { usage } = await chat(servers[name], { ...body, max_tokens: 1 });
            const n = name === 'bitnet-2b-4t' ? tokensOfBytes(text) : tokensIn(text);
            same(usage.prompt_tokens, n, name);
        }
        const short = [{ type: 'function', function: { name: 'weather' } }];
        const body = { messages: [user, ...messages.slice(3)], tools: short, max_tokens: 1 };
        const { usage } = await chat(servers.tiny, body);
        const plain = await chat(servers.tiny, { max_tokens: 1 });
        check(usage.prompt_tokens > plain.usage.prompt_tokens + 100, usage);
        const none = await chat(servers.tiny, { tools, tool_choice: 'none', max_tokens: 1 });
        same(none.usage.prompt_tokens, plain.usage.prompt_tokens);
        // a role that the template has no turn for, in a chat that says nothing of tools
        const alone = [user, { role: 'tool', tool_call_id: 'a', content: 'wet' }];
        const last = await chat(servers['falcon-3'], { messages: alone, max_tokens: 1 });
        same(
            last.usage.prompt_tokens,
            tokensIn(
                `<|user|>\n${user.content}\n<|user|>\n<tool_response>\nwet\n</tool_response>\n` +
                    '<|assistant|>\n'
            )
        );
    },

    async 'calls that are written are calls, whole and as a stream'() {
        for (const [name, to] of each.filter(([n]) => n !== 'qwen-3-thinking')) {
            const two = `So:\n${call('weather', { city: 'Oslo' })}\n${call('weather', {})}`;
            const { choices } = await chat(to, says(two, { tools }));
            same(
                choices[0].message.tool_calls?.map(c => c.function),
                [
                    { name: 'weather', arguments: '{"city":"Oslo"}' },
                    { name: 'weather', arguments: '{}' }
                ],
                name
            );
            same([choices[0].message.content, choices[0].finish_reason], ['So:', 'tool_calls']);
            const all = await stream(to, says(two, { tools }));
            same([all.content, all.calls.length, all.reason], ['So:', 2, 'tool_calls']);
            const one = await chat(to, says(two, { tools, parallel_tool_calls: false }));
            same(one.choices[0].message.tool_calls.length, 1);
            const none = await chat(to, says(two, { tools, tool_choice: 'none' }));
            same([none.choices[0].message.content, none.choices[0].finish_reason], [two, 'stop']);
        }
    },

    async 'calls that must be keep to the parameters, whatever the template'() {
        const all = [
            f('weather'),
            f('now', { parameters: undefined }),
            f('open', { strict: null })
        ];
        for (const [name, to] of each)
            for (const [more, names] of [
                [
                    { tool_choice: 'required', parallel_tool_calls: false },
                    ['weather', 'now', 'open']
                ],
                [{ tool_choice: { type: 'function', function: { name: 'weather' } } }, ['weather']]
            ])
                for (const seed of [1, 2, 3]) {
                    const some = name === 'tiny' ? all.slice(0, 2) : all; // its context is short
                    const body = { tools: some, seed, ...more, max_tokens: 900 };
                    const { choices } = await chat(to, body);
                    const { message, finish_reason } = choices[0];
                    if (finish_reason === 'length' && name === 'qwen-3-thinking') continue;
                    same([finish_reason, message.content], ['tool_calls', null], name);
                    same(message.tool_calls.length, 1);
                    const [{ function: c }] = message.tool_calls;
                    check(names.includes(c.name), c);
                    const { city } = JSON.parse(c.arguments);
                    check(c.name === 'now' ? city === undefined : CITIES.includes(city), c);
                    const told = await stream(to, body);
                    same(told.calls, [c]);
                    const type = body.tool_choice; // as Cursor sends it
                    if (type !== 'required') continue;
                    const again = await chat(to, { ...body, tool_choice: { type } });
                    same(again.choices[0].message.tool_calls[0].function, c);
                }
        const plain = await chat(tagged, { max_tokens: 1 });
        const none = await chat(tagged, { tools, tool_choice: { type: 'none' }, max_tokens: 1 });
        same(none.usage.prompt_tokens, plain.usage.prompt_tokens);
        await chat(tagged, { tools, tool_choice: { type: 'auto' }, max_tokens: 1 });
    },

    async 'allowed_tools: calls are of these functions, and the model sees all of them'() {
        const all = [f('weather'), f('now', { parameters: undefined }), f('open')];
        const allow = (mode, ...names) => ({
            type: 'allowed_tools',
            allowed_tools: {
                mode,
                tools: names.map(name => ({ type: 'function', function: { name } }))
            }
        });
        const seen = {};
        for (const [name, to] of [...each, ...others].filter(([n]) => n !== 'qwen-3-thinking')) {
            if (to === servers.tiny) continue; // its context is short
            const off = { tools: all, enable_thinking: false };
            for (let seed = 1; seed <= 6; seed++)
                for (const more of [
                    { tool_choice: allow('required', 'weather', 'now') },
                    {
                        tool_choice: allow('auto', 'now', 'open'),
                        ...(await calling(to, 6)),
                        top_k: 0,
                        min_p: 0
                    }
                ]) {
                    const { choices } = await chat(to, { ...off, ...more, seed });
                    const { mode, tools: some } = more.tool_choice.allowed_tools;
                    const { tool_calls = [] } = choices[0].message;
                    if (mode === 'required' && choices[0].finish_reason !== 'length')
                        check(tool_calls.length > 0, choices[0]);
                    for (const { function: c } of tool_calls) {
                        check(some.some(t => t.function.name === c.name), `${name} ${c.name}`);
                        same(typeof JSON.parse(c.arguments), 'object');
                        seen[mode] = (seen[mode] ?? 0) + 1;
                    }
                }
            const n = async more => (await chat(to, { ...off, ...more, max_tokens: 1 })).usage;
            same(
                (await n({ tool_choice: allow('auto', 'open') })).prompt_tokens,
                (await n({})).prompt_tokens
            );
        }
        check(seen.required > 20 && seen.auto > 10, seen);
        for (const [tool_choice, words] of [
            [{ type: 'allowed_tools' }, 'mode'],
            [{ type: 'allowed_tools', allowed_tools: { mode: 'x', tools: [f('now')] } }, 'mode'],
            [allow('auto'), 'a list'],
            [allow('auto', 'other'), 'no function of this name'],
            [{ type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [5] } }, 'only functions']
        ]) {
            const e = await refusal(tagged, { tools: all, tool_choice });
            same(e.param, 'tool_choice');
            check(e.message.includes(words), e.message);
        }
        const e = await refusal(tagged, { tool_choice: allow('auto', 'now') });
        same(e.param, 'tool_choice');
        const both = { tools: all, tool_choice: allow('auto', 'now'), ...says('x') };
        const { message } = await refusal(tagged, both);
        check(message.includes('tool_choice and grammar'), message);
    },

    async 'what tools say is in the order of the calls, and may be written as it once was'() {
        const called = (id, n) => ({
            id,
            type: 'function',
            function: { name: 'add', arguments: `{"n": ${n}}` }
        });
        const said = (tool_call_id, content) => ({ role: 'tool', tool_call_id, content });
        const reply = (...tool_calls) => ({ role: 'assistant', content: null, tool_calls });
        for (const [name, to] of [...each, ...others]) {
            const text = async messages => {
                const r = await ask(to, '/apply-template', { messages });
                same(r.status, 200, r.text);
                return r.json.prompt;
            };
            const first = [user, reply(called('a', 1), called('b', 2), called('c', 3))];
            const answers = [said('a', 'A'), said('b', 'B'), said('c', 'C')];
            const wanted = await text([...first, ...answers, user]);
            const [a, b, c] = answers;
            for (const order of [
                [c, b, a],
                [b, c, a],
                [a, c, b]
            ])
                same(await text([...first, ...order, user]), wanted, name);
            // those that answer no call come last, and each reply has its own
            const odd = said('x', 'X');
            same(
                await text([...first, odd, c, b, a, reply(called('c', 1)), c]),
                await text([...first, a, b, c, odd, reply(called('c', 1)), c])
            );
            same(
                await text([
                    user,
                    {
                        role: 'assistant',
                        content: 'So:',
                        function_call: { name: 'add', arguments: '{"n": 1}' }
                    },
                    { role: 'function', name: 'add', content: '2' }
                ]),
                await text([user, { ...reply(called('a', 1)), content: 'So:' }, said('a', '2')]),
                name
            );
            const old = { name: 'add', arguments: '{"n": 1}' };
            same(
                await text([
                    user,
                    { role: 'assistant', content: null, tool_calls: [], function_call: old },
                    { role: 'function', name: 'add', content: null }
                ]),
                await text([user, reply(called('a', 1)), said('a', '')])
            );
        }
        // as many as OpenAI's clients send
        const ids = Array.from({ length: 128 }, (_, i) => `${i}`);
        const all = ids.map(id => said(id, id));
        const model = join(folder, 'tools-chatml.gguf');
        const large = await start(serve, ['-m', model, '--ctx-size', '16384']);
        const [sorted, turned] = await Promise.all(
            [all, [...all].reverse()].map(async answers => {
                const messages = [user, reply(...ids.map(id => called(id, 1))), ...answers];
                return (await ask(large, '/apply-template', { messages })).json.prompt;
            })
        );
        check(sorted?.includes('127') && sorted === turned, turned);
        same(await large.stop(), 0);
        const wrong = async more =>
            (await refusal(tagged, { messages: [user, { role: 'assistant', ...more }] })).message;
        const lacks = await wrong({ function_call: { name: 'add' } });
        check(lacks.includes('needs a name and'), lacks);
        const odd = await wrong({ function_call: { name: 'add', arguments: '{}' }, tool_calls: 'x' });
        check(odd.includes('must be a list'), odd);
    },

    async 'the tag that ends a call is text within an argument'() {
        const s = { type: 'string', enum: ['a</tool_call>b</function>\n</tool_call>c'] };
        const list = { type: 'array', items: s, minItems: 2, maxItems: 2 };
        const parameters = { ...f('x').function.parameters, required: ['s', 'list'] };
        parameters.properties = { s, list };
        const args = { s: s.enum[0], list: [s.enum[0], s.enum[0]] };
        const strict = [f('weather', { parameters, strict: true })];
        for (const [name, to] of [...each, ...others]) {
            if (to === servers.tiny) continue; // its context is short
            const { json: close } = await ask(to, '/tokenize', { content: '</think>' });
            const off = name === 'qwen-3-thinking' ? {} : { enable_thinking: false };
            const bias = /qwen-3-t/.test(name) ? { logit_bias: { [close.tokens[0]]: 100 } } : {};
            for (const parallel_tool_calls of [false, true]) {
                const body = { tools: strict, tool_choice: 'required', parallel_tool_calls };
                const { choices } = await chat(to, { ...body, ...off, ...bias, max_tokens: 900 });
                const { tool_calls, content } = choices[0].message;
                if (!parallel_tool_calls) same([content, tool_calls.length], [null, 1], name);
                for (const c of tool_calls) same(JSON.parse(c.function.arguments), args, name);
                const told = await stream(to, { ...body, ...off, ...bias, max_tokens: 900 });
                same(
                    told.calls,
                    tool_calls.map(c => c.function)
                );
            }
        }
        // where nothing binds them, a call that is spoiled is text, and the next one a call
        for (const [name, to] of [...each, ...others].filter(([n]) => n !== 'qwen-3-thinking')) {
            const spoiled = xml(name)
                ? '<tool_call>\n<function=a>\n<parameter=x>\n1\n</tool_call>'
                : '<tool_call>\n{"name": "a</tool_call>';
            const good = xml(name)
                ? '<tool_call>\n<function=weather>\n</function>\n</tool_call>'
                : call('weather', {});
            const body = says(`${spoiled}\n${good}`, { tools, enable_thinking: false });
            const { choices } = await chat(to, body);
            same(choices[0].message.content, spoiled, name);
            same(choices[0].message.tool_calls?.length, 1, name);
        }
    },

    async 'names that a call in the form of XML cannot have are refused'() {
        for (const [name, to] of [...each, ...others])
            for (const bad of ['a\nb', '<tool_call>', 'a>b', '</tool_call']) {
                const body = { tools: [f(bad)], max_tokens: 1 };
                if (xml(name)) same((await refusal(to, body)).param, 'tools', bad);
                else await chat(to, body);
            }
        for (const [, to] of others)
            for (const bad of ['a\nb', 'a>b', '</tool_call', '']) {
                const parameters = { type: 'object', properties: { [bad]: { type: 'string' } } };
                const body = { tools: [f('x', { parameters })], max_tokens: 1 };
                await chat(to, body); // nothing binds it
                const e = await refusal(to, { ...body, tool_choice: 'required' });
                check(e.message.includes('tools[0].function.parameters: #/properties'), e.message);
            }
    },

    async 'strict: text is free, and each call keeps to the parameters'() {
        const strict = [f('weather', { strict: true }), f('open')];
        const seen = { calls: 0, texts: 0, loose: 0 };
        for (const [name, to] of each.filter(([n]) => n !== 'qwen-3-thinking')) {
            const bias = await calling(to, name === 'tiny' ? 13 : 6);
            for (const wanted of [strict, tools])
                for (let seed = 1; seed <= 12; seed++) {
                    const body = { tools: wanted, seed, top_k: 0, min_p: 0, ...bias };
                    const { choices } = await chat(to, { ...body, max_tokens: 300 });
                    const { message, finish_reason } = choices[0];
                    const { content, tool_calls = [] } = message;
                    if (wanted === tools) {
                        seen.loose += /<tool_call>/.test(content ?? '');
                        continue;
                    }
                    for (const { function: c } of tool_calls) {
                        const args = JSON.parse(c.arguments);
                        if (c.name === 'weather') check(CITIES.includes(args.city), c);
                        else same([c.name, typeof args], ['open', 'object']);
                    }
                    seen.calls += tool_calls.length;
                    seen.texts += !!content && !!tool_calls.length;
                    if (finish_reason === 'length') continue; // it may have been cut within a call
                    check(!/<tool_call>/.test(content ?? ''), message);
                }
        }
        check(seen.calls > 30 && seen.texts > 5 && seen.loose > 30, seen);
    },

    async 'strict: a model may think, and then call'() {
        const to = servers['qwen-3'],
            strict = [f('weather', { strict: true })];
        const {
            json: { tokens }
        } = await ask(to, '/tokenize', { content: '<think></think><tool_call></tool_call>' });
        const bias = (a, b, c) => ({
            logit_bias: { [tokens[0]]: a, [tokens[1]]: b, [tokens[2]]: c }
        });
        for (const one of [to, servers['qwen-3-thinking']]) {
            let n = 0,
                n_free = 0;
            for (const seed of [1, 2, 3, 4, 5, 6]) {
                const body = { tools: strict, seed, top_k: 0, min_p: 0, ...bias(9, 4, 5) };
                const { choices } = await chat(one, { ...body, max_tokens: 900 });
                const { reasoning_content, tool_calls } = choices[0].message;
                n += reasoning_content !== undefined && !!tool_calls;
                // within a thought a tag begins no call
                n_free += /<tool_call>(?!\n\{"name")/.test(reasoning_content);
                for (const { function: c } of tool_calls ?? [])
                    check(CITIES.includes(JSON.parse(c.arguments).city), c);
            }
            check(n > 0 && n_free > 0, `${n} and ${n_free} of 6`);
        }
    },

    async 'structured output and tools: the text keeps to the schema, or it is calls'() {
        const schema = {
            $id: 'https://x/y',
            $defs: { a: { enum: ['x', 'y'] } },
            type: 'object',
            properties: { a: { $ref: '#/$defs/a' } },
            required: ['a']
        };
        const response_format = { type: 'json_schema', json_schema: { name: 's', schema } };
        for (const strict of [false, true])
            for (const [name, to] of each.filter(([n]) => n !== 'qwen-3-thinking')) {
                const body = { tools: [f('weather', { strict })], response_format };
                const { choices } = await chat(to, { ...body, seed: 1, logit_bias: {} });
                const { content, tool_calls } = choices[0].message;
                if (!tool_calls) check(['x', 'y'].includes(JSON.parse(content).a), content);
                if (to === servers.tiny || to === bare) continue;
                const asked = { ...body, parallel_tool_calls: false, ...(await begins(to)) };
                const called = (await chat(to, asked)).choices[0];
                if (called.finish_reason === 'length') continue;
                same(called.message.content, null);
                const args = JSON.parse(called.message.tool_calls[0].function.arguments);
                if (strict) check(CITIES.includes(args.city), args);
            }
        const must = {
            tools,
            response_format,
            tool_choice: 'required',
            parallel_tool_calls: false
        };
        const { choices } = await chat(servers.tiny, must);
        same(choices[0].finish_reason, 'tool_calls');
    },

    async "references of a function's parameters begin at the parameters"() {
        const inner = { $defs: { a: { $anchor: 'here', enum: ['ok'] } } };
        for (const [more, $ref] of [
            [{}, '#/$defs/a'],
            [{}, '#here'],
            [{ $id: 'https://x.example/y' }, '#/$defs/a'],
            [{ $id: 'https://x.example/y' }, '#here']
        ]) {
            const parameters = { ...more, ...inner, properties: { x: { $ref } }, required: ['x'] };
            const { choices } = await chat(servers.tiny, {
                tools: [f('weather', { strict: true, parameters })],
                max_tokens: 140,
                tool_choice: { type: 'function', function: { name: 'weather' } },
                response_format: {
                    type: 'json_schema',
                    json_schema: { schema: { $defs: { a: { const: 1 } }, $ref: '#/$defs/a' } }
                }
            });
            same(
                JSON.parse(choices[0].message.tool_calls[0].function.arguments),
                { x: 'ok' },
                $ref
            );
        }
    },

    async 'what cannot be kept is refused, with its place'() {
        const bad = { type: 'object', properties: { x: { $ref: 'y.json' } } };
        const strict = [f('ok'), f('weather', { strict: true, parameters: bad })];
        const none = { tools: [f('ok', { parameters: bad })] };
        await chat(servers.tiny, { ...none, max_tokens: 1 }); // nothing binds these arguments
        const x = { enum: ['é'], anyOf: [{ pattern: '(' }] };
        const inner = { type: 'object', properties: { x } };
        const odd = { type: 'object', properties: { 'a/~"é': inner } };
        const place = '#/properties/a~1~0"é/properties/x/anyOf/0/pattern: ';
        const format = { type: 'json_schema', json_schema: { schema: odd } };
        for (const [param, words, body] of [
            ['tools', 'tools[1].function.parameters: #/properties/x', { tools: strict }],
            [
                'tool_choice',
                'tools[0].function.parameters: #/',
                { ...none, tool_choice: 'required' }
            ],
            ['strict', '', { tools: [f('x', { strict: 'yes' })] }],
            [
                'tools',
                `tools[1].function.parameters: ${place}`,
                { tools: [f('ok'), f('weather', { strict: true, parameters: odd })] }
            ],
            ['response_format', `response_format: ${place}`, { tools, response_format: format }],
            ['grammar', 'strict and grammar', { tools: [f('x', { strict: true })], ...says('x') }],
            [
                'grammar',
                'tool_choice and grammar',
                { tools, tool_choice: 'required', ...says('x') }
            ],
            [
                'response_format',
                'response_format: #/$ref',
                {
                    tools,
                    response_format: {
                        type: 'json_schema',
                        json_schema: { schema: { $ref: 'y.json' } }
                    }
                }
            ],
            [
                'tools',
                'begun',
                {
                    tools: [f('x', { strict: true })],
                    messages: [user, { role: 'assistant', content: 'So <tool_call>\n{"na' }]
                }
            ]
        ]) {
            const e = await refusal(servers['llama-3'], body);
            same(e.param, param, e.message);
            check(e.message.includes(words), e.message);
        }
    },

    async 'calls in the form of XML, whole and as a stream'() {
        const properties = {
            city: { type: 'string' },
            days: { type: 'integer' },
            exact: { type: 'boolean' },
            where: { type: 'object' },
            list: { type: 'array' },
            code: { enum: ['1', 'null'] },
            maybe: { anyOf: [{ type: 'string' }, { type: 'null' }] },
            level: { $ref: '#/$defs/level' },
            fixed: { const: '12' },
            any: {}
        };
        const $defs = { level: { enum: ['7', 8] } };
        const tool = f('weather', { parameters: { type: 'object', properties, $defs } });
        const xmlCall = (name, args) =>
            `<tool_call>\n<function=${name}>\n${args
                .map(([k, v]) => `<parameter=${k}>\n${v}\n</parameter>\n`)
                .join('')}</function>\n</tool_call>`;
        const off = { enable_thinking: false, tools: [tool, f('now')] };
        for (const [name, to] of others) {
            for (const [args, want] of [
                [[], {}],
                [[['city', 'Oslo']], { city: 'Oslo' }],
                [[['city', '12']], { city: '12' }],
                [
                    [['city', '"R\\n<b> </parameter> x\n\n y"']],
                    { city: '"R\\n<b> </parameter> x\n\n y"' }
                ],
                [[['city', '']], { city: '' }],
                [
                    [
                        ['days', '3'],
                        ['exact', 'true']
                    ],
                    { days: 3, exact: true }
                ],
                [[['days', 'three']], { days: 'three' }],
                [
                    [
                        ['where', '{"x": [1, "é"]}'],
                        ['list', '[]']
                    ],
                    { where: { x: [1, 'é'] }, list: [] }
                ],
                [[['code', '1']], { code: '1' }],
                [[['code', 'null']], { code: 'null' }],
                [[['maybe', 'null']], { maybe: null }],
                [[['maybe', '12']], { maybe: '12' }],
                [[['level', '8']], { level: 8 }],
                [[['fixed', '12']], { fixed: '12' }],
                [[['any', '12']], { any: 12 }],
                [[['any', 'x y']], { any: 'x y' }],
                [
                    [
                        ['other', '12'],
                        ['more', '{"a": 1}']
                    ],
                    { other: '12', more: { a: 1 } }
                ]
            ]) {
                const text = `Let me see.\n\n${xmlCall('weather', args)}`;
                const { choices } = await chat(to, says(text, off));
                const { message, finish_reason } = choices[0];
                same([finish_reason, message.content], ['tool_calls', 'Let me see.'], name);
                same(message.tool_calls[0].function.name, 'weather');
                same(JSON.parse(message.tool_calls[0].function.arguments), want, text);
                const told = await stream(to, says(text, off));
                same(told.calls, [message.tool_calls[0].function]);
                same([told.content, told.reason], ['Let me see.', 'tool_calls']);
            }
            const two = `${xmlCall('weather', [['city', 'a']])}\n${xmlCall('now', [])}`;
            const both = await chat(to, says(two, off));
            same(
                both.choices[0].message.tool_calls.map(c => c.function.name),
                ['weather', 'now']
            );
            const one = await chat(to, says(two, { ...off, parallel_tool_calls: false }));
            same(one.choices[0].message.tool_calls.length, 1);
            // white space may be missing, and a model may know the other form
            for (const text of [
                '<tool_call><function=weather><parameter=city>Oslo</parameter></function></tool_call>',
                '<tool_call>\n\n <function=weather>\n\n<parameter=city>\nOslo</parameter>\n' +
                    '</function> \n</tool_call>\n',
                call('weather', { city: 'Oslo' })
            ]) {
                const { choices } = await chat(to, says(text, off));
                same(JSON.parse(choices[0].message.tool_calls?.[0].function.arguments ?? text), {
                    city: 'Oslo'
                });
                same(choices[0].message.content, null);
            }
            // what is no call is text, to the byte
            for (const text of [
                '<tool_call>\n<function=>\n</function>\n</tool_call>',
                '<tool_call>\n<function=a\n</function>\n</tool_call>',
                '<tool_call>\n<function=a>\n<parameter=x>\n1\n</function>\n</tool_call>',
                '<tool_call>\n<function=a>\n</function>\nx\n</tool_call>',
                '<tool_call>\n<function=a>\n1</parameter>\n</function>\n</tool_call>',
                '<tool_call>\n<function=a>\n</function>\n',
                '<tool_call>\n<functions are',
                '<tool_call> and <fun</tool_call>',
                'the tag <tool_call><tool_call'
            ]) {
                const { choices } = await chat(to, says(text, off));
                same([choices[0].message.content, choices[0].finish_reason], [text, 'stop']);
                same((await stream(to, says(text, off))).content, text);
            }
            for (const mention of ['<tool_call><', '<tool_call>', '<tool_call>\n<fun']) {
                const text = `${mention}${xmlCall('now', [])}`;
                const { choices } = await chat(to, says(text, off));
                same(choices[0].message.content, mention);
                same(choices[0].message.tool_calls.length, 1);
            }
        }
    },

    async 'calls in the form of XML that must be keep to the parameters'() {
        const Level = { enum: ['low', 'high'], type: 'string' };
        const parameters = {
            type: 'object',
            $defs: { Level, Both: { anyOf: [{ $ref: '#/$defs/Level' }, { type: 'boolean' }] } },
            properties: {
                city: { enum: CITIES },
                'a/b~"c é': { type: 'integer', minimum: 1, maximum: 9 },
                level: { anyOf: [{ $ref: '#/$defs/Level' }, { type: 'null' }] },
                both: { $ref: '#/$defs/Both' },
                list: { type: 'array', items: { enum: ['x'] }, minItems: 1, maxItems: 2 },
                mixed: { enum: ['a', 1] },
                only: { const: 'x "y' }
            },
            required: ['city', 'level', 'both', 'list', 'only', 'mixed']
        };
        const good = {
            now: a => Object.keys(a).length === 0,
            open: a => typeof a === 'object',
            weather: a =>
                CITIES.includes(a.city) &&
                (a['a/b~"c é'] === undefined ||
                    (a['a/b~"c é'] >= 1 && a['a/b~"c é'] <= 9 && a['a/b~"c é'] % 1 === 0)) &&
                [null, 'low', 'high'].includes(a.level) &&
                [true, false, 'low', 'high'].includes(a.both) &&
                a.list.every(x => x === 'x') &&
                ['a', 1].includes(a.mixed) &&
                a.only === 'x "y' &&
                Object.keys(a).every(k => k in parameters.properties)
        };
        const all = [
            f('weather', { parameters }),
            f('now', { parameters: undefined }),
            f('open', { parameters: { type: 'object' } })
        ];
        const seen = {};
        const must = name => ({ tool_choice: { type: 'function', function: { name } } });
        for (const [name, to] of others)
            for (const more of [{ tool_choice: 'required' }, ...Object.keys(good).map(must)])
                for (let seed = 1; seed <= 6; seed++) {
                    const off = { enable_thinking: seed % 2 === 0 };
                    const { json: close } = await ask(to, '/tokenize', { content: '</think>' });
                    const bias = { logit_bias: { [close.tokens[0]]: 12 } };
                    const body = { tools: all, seed, ...more, ...off, ...bias, max_tokens: 900 };
                    const { choices } = await chat(to, body);
                    const { message, finish_reason } = choices[0];
                    if (finish_reason === 'length') continue; // random strings have no end
                    same([finish_reason, message.content], ['tool_calls', null], name);
                    for (const { function: c } of message.tool_calls) {
                        check(good[c.name](JSON.parse(c.arguments)), c);
                        seen[c.name] = (seen[c.name] ?? 0) + 1;
                    }
                    const told = await stream(to, body);
                    same(
                        told.calls,
                        message.tool_calls.map(c => c.function)
                    );
                }
        check(seen.weather > 8 && seen.now > 8, seen);
        for (const [, to] of others) {
            const bad = { type: 'object', properties: { x: { $ref: 'y.json' } } };
            const e = await refusal(to, { tools: [f('x', { parameters: bad, strict: true })] });
            same(e.param, 'tools');
            check(e.message.includes('tools[0].function.parameters: #/properties/x'), e.message);
            // strict: text is free, and each call keeps to them
            const strict = [f('weather', { strict: true })];
            const biased = { tools: strict, top_k: 0, min_p: 0, enable_thinking: false };
            let n = 0;
            for (let seed = 1; seed <= 8; seed++) {
                const { choices } = await chat(to, { ...biased, seed, ...(await calling(to, 6)) });
                for (const { function: c } of choices[0].message.tool_calls ?? []) {
                    check(CITIES.includes(JSON.parse(c.arguments).city), c);
                    n++;
                }
            }
            check(n > 3, `${n} calls`);
        }
    },

    async 'strings of calls in the form of XML keep to their schema, and may have its tags'() {
        const ends = 'a\n</parameter>\n</parameter> b';
        const properties = {
            day: { type: 'string', format: 'date' },
            code: { type: 'string', pattern: '^[A-Z]{2}-\\d+(?:\\n"x"\\\\)?$', maxLength: 9 },
            name: { $ref: '#/$defs/Name' },
            some: { type: 'string', minLength: 1 },
            maybe: { anyOf: [{ type: 'string', pattern: '^[a-c]{1,2}$' }, { type: 'null' }] },
            either: { type: ['string', 'boolean'], pattern: '^[x-z]', maxLength: 3 },
            tag: { enum: [ends, 7] },
            word: { type: 'string', enum: ['on', 'off'], maxLength: 9 },
            plain: { type: 'string' }
        };
        const good = {
            day: v => /^\d{4}-\d\d-\d\d$/.test(v) && !isNaN(Date.parse(v)),
            code: v => /^[A-Z]{2}-\d+(?:\n"x"\\)?$/.test(v) && v.length <= 9,
            name: v => /[b-y]/.test(v) && [...v].length >= 2 && [...v].length <= 4,
            some: v => typeof v === 'string' && v,
            maybe: v => v === null || /^[a-c]{1,2}$/.test(v),
            either: v =>
                typeof v === 'boolean' || (typeof v === 'string' && /^[x-z].?.?$/su.test(v)),
            tag: v => v === ends || v === 7,
            word: v => v === 'on' || v === 'off',
            plain: v => typeof v === 'string'
        };
        const seen = {};
        for (const [name, to] of others)
            for (const [key, schema] of Object.entries(properties)) {
                const parameters = {
                    type: 'object',
                    $defs: { Name: { type: 'string', pattern: '[b-y]', minLength: 2, maxLength: 4 } },
                    properties: { [key]: schema },
                    required: [key]
                };
                for (let seed = 1; seed <= 8; seed++) {
                    const body = {
                        tools: [f('x', { parameters, strict: true })],
                        tool_choice: 'required',
                        parallel_tool_calls: false,
                        enable_thinking: false,
                        max_tokens: 300,
                        seed
                    };
                    const { choices } = await chat(to, body);
                    if (choices[0].finish_reason === 'length') continue; // it has no end
                    const [{ function: c }] = choices[0].message.tool_calls;
                    const value = JSON.parse(c.arguments)[key];
                    check(good[key](value), `${name} ${key} ${c.arguments}`);
                    seen[key] = [...(seen[key] ?? []), value];
                }
            }
        const bound = ['day', 'code', 'name', 'maybe', 'either', 'tag', 'word'];
        for (const key of bound) check(seen[key]?.length > 8, key);
        check(seen.tag.includes(ends) && seen.maybe.includes(null), seen);
        check(seen.maybe.some(v => v) && seen.either.some(v => v.length), seen);
        // lengths alone are too many to be counted, and nothing is cut for them
        const long = { type: 'object', properties: { x: { type: 'string', maxLength: 9000 } } };
        const many = { tools: [f('x', { parameters: long })], tool_choice: 'required' };
        for (const [, to] of others) await chat(to, { ...many, max_tokens: 1 });
        for (const [, to] of others) {
            const x = { type: 'string', pattern: 'a(?=b)c' };
            const parameters = { type: 'object', properties: { x } };
            const e = await refusal(to, { tools: [f('x', { parameters, strict: true })] });
            check(e.message.includes('tools[0].function.parameters: #/properties/x/pattern'), e);
        }
    },

    async 'references that stand for millions of schemas are one value'() {
        const $defs = { a8: { type: 'string', maxLength: 1 } };
        for (let i = 0; i < 8; i++)
            $defs[`a${i}`] = { anyOf: Array(8).fill({ $ref: `#/$defs/a${i + 1}` }) };
        const schema = { type: 'object', $defs, properties: { x: { $ref: '#/$defs/a0' } } };
        const many = [f('x', { parameters: schema })];
        for (const [, to] of others)
            await chat(to, { tools: many, tool_choice: 'required', max_tokens: 20 });
    },

    async 'openai: runTools with zodFunction'() {
        const { zodFunction } = await load('openai/helpers/zod');
        const { z } = await load('zod');
        for (const to of [bare, tagged]) {
            const client = await openai(to, to === bare ? {} : await begins(to));
            const got = [];
            const weather = zodFunction({
                name: 'weather',
                parameters: z.object({ city: z.enum(CITIES), days: z.number().int().nullable() }),
                function: args => (got.push(args), 'wet')
            });
            const body = {
                model: 'any',
                messages: [user],
                tools: [weather],
                max_tokens: 300,
                parallel_tool_calls: false,
                ...(to === bare && {
                    tool_choice: { type: 'function', function: { name: 'weather' } }
                })
            };
            for (const stream of [false, true]) {
                const runner = client.chat.completions.runTools(
                    { ...body, stream },
                    { maxChatCompletions: 2 }
                );
                await runner.done();
                check(
                    runner.messages.some(m => m.role === 'tool' && m.content === 'wet'),
                    runner.messages
                );
            }
            check(got.length >= 2 && got.every(g => CITIES.includes(g.city)), got);
        }
    },

    async 'LangChain: bindTools and withStructuredOutput by functionCalling'() {
        const { ChatOpenAI } = await load('@langchain/openai');
        const { HumanMessage, ToolMessage } = await load('@langchain/core/messages');
        const { tool } = await load('@langchain/core/tools');
        const { z } = await load('zod');
        const schema = z.object({ city: z.enum(CITIES) });
        const weather = tool(({ city }) => `wet in ${city}`, { name: 'weather', schema });
        for (const to of [bare, tagged]) {
            const llm = new ChatOpenAI({
                model: 'any',
                apiKey: 'none',
                maxTokens: 200,
                maxRetries: 0,
                modelKwargs: { seed: 1 },
                configuration: { baseURL: `${to.url}/v1` }
            });
            const plain = await llm.bindTools([weather]).invoke('Rain?');
            check(typeof plain.content === 'string', plain);
            const must = llm.bindTools([weather], {
                tool_choice: 'any',
                parallel_tool_calls: false
            });
            const said = await must.invoke('Rain?');
            same(said.tool_calls.length, 1);
            check(CITIES.includes(said.tool_calls[0].args.city), said.tool_calls);
            const result = await weather.invoke(said.tool_calls[0]);
            check(result instanceof ToolMessage, result);
            await llm.bindTools([weather]).invoke([new HumanMessage('Rain?'), said, result]);
            let all;
            for await (const part of await must.stream('Rain?'))
                all = all ? all.concat(part) : part;
            check(CITIES.includes(all.tool_calls[0].args.city), all.tool_calls);
            for (const strict of [undefined, true]) {
                const wants = { method: 'functionCalling', name: 'weather', strict };
                const r = await llm.withStructuredOutput(schema, wants).invoke('Rain?');
                check(CITIES.includes(r.city), r);
            }
        }
    },

    async 'Instructor: TOOLS'() {
        const { default: Instructor } = await load('@instructor-ai/instructor');
        const { z } = await load('zod/v3'); // it does not know the schemas of zod 4
        for (const to of [bare, tagged]) {
            const client = Instructor({ client: await openai(to), mode: 'TOOLS' });
            const r = await client.chat.completions.create({
                model: 'any',
                messages: [user],
                max_tokens: 300,
                response_model: { schema: z.object({ city: z.enum(CITIES) }), name: 'Weather' }
            });
            check(CITIES.includes(r.city), r);
        }
    },

    async 'OpenAI Agents: a tool by chat completions'() {
        const agents = await load('@openai/agents');
        const { z } = await load('zod');
        agents.setTracingDisabled(true);
        for (const to of [bare, tagged]) {
            const got = [];
            const weather = agents.tool({
                name: 'weather',
                description: 'Says how it is.',
                parameters: z.object({ city: z.enum(CITIES) }),
                execute: args => (got.push(args), 'wet')
            });
            for (const outputType of [undefined, z.object({ rain: z.boolean() })]) {
                const client = await openai(to, { max_tokens: 300 });
                const agent = new agents.Agent({
                    name: 'a',
                    instructions: 'Be.',
                    model: new agents.OpenAIChatCompletionsModel(client, 'any'),
                    tools: [weather],
                    modelSettings: { toolChoice: 'required', parallelToolCalls: false },
                    outputType
                });
                const before = got.length;
                const r = await agents
                    .run(agent, 'Rain?', { maxTurns: 3 })
                    .catch(e =>
                        e instanceof agents.MaxTurnsExceededError ? null : Promise.reject(e)
                    );
                check(got.length > before && CITIES.includes(got[before].city), got);
                if (r && outputType) same(typeof r.finalOutput.rain, 'boolean');
                const told = await agents.run(agent, 'Rain?', { maxTurns: 1, stream: true });
                let events = 0;
                try {
                    for await (const _ of told) events++;
                    await told.completed;
                } catch (e) {
                    check(e instanceof agents.MaxTurnsExceededError, e.stack);
                }
                check(events > 0, 'no events');
            }
        }
    },

    async 'AI SDK: generateText and streamText with a tool'() {
        const { generateText, streamText, stepCountIs, tool, Output } = await load('ai');
        const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
        const { z } = await load('zod');
        for (const to of [bare, tagged]) {
            const provider = createOpenAICompatible({
                name: 'here',
                baseURL: `${to.url}/v1`,
                supportsStructuredOutputs: true
            });
            const weather = tool({
                inputSchema: z.object({ city: z.enum(CITIES) }),
                execute: ({ city }) => `wet in ${city}`
            });
            const options = {
                model: provider('any'),
                tools: { weather },
                prompt: 'Rain?',
                maxOutputTokens: 300,
                maxRetries: 0,
                seed: 1,
                providerOptions: { here: { parallel_tool_calls: false } }
            };
            const plain = await generateText(options);
            same(typeof plain.text, 'string');
            const must = { ...options, toolChoice: 'required', stopWhen: stepCountIs(2) };
            const r = await generateText(must);
            same(r.steps.length, 2);
            check(CITIES.includes(r.steps[0].toolCalls[0].input.city), r.steps[0].toolCalls);
            check(r.steps[0].toolResults[0].output.startsWith('wet in '), r.steps[0].toolResults);
            const told = streamText(must);
            await told.consumeStream();
            const steps = await told.steps;
            check(CITIES.includes(steps[0].toolCalls[0].input.city), steps[0].toolCalls);
            const both = await generateText({
                ...options,
                experimental_output: Output.object({ schema: z.object({ rain: z.boolean() }) })
            });
            if (both.finishReason === 'stop') same(typeof both.experimental_output.rain, 'boolean');
        }
    }
};

const failed = await runAll('server tools', cases, filter);
for (const [, one] of [...each, ...others]) same(await one.stop(), 0, 'the exit code is');
process.exit(failed ? 1 : 0);
