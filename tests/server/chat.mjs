// chat.mjs - thinking and tools, with OpenAI's client and without
//
//     node tests/server/chat.mjs SERVE CHAT_MODEL TEMPLATES FOLDER MODULES [FILTER]
//
// CHAT_MODEL makes models with the templates of TEMPLATES (tests/data/chat.json) in FOLDER. Their
// weights are random: a grammar says what they write, so that is known to the byte.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ask, check, runAll, same, Skip, start, until } from './server.mjs';

const [serve, maker, data, folder, modules, filter = ''] = process.argv.slice(2);
const { templates, cases: rendered } = JSON.parse(readFileSync(data, 'utf8'));

function make(name) {
    const [jinja, out] = [join(folder, `${name}.jinja`), join(folder, `${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, out]);
    return out;
}
const server = await start(serve, ['-m', make('qwen-3'), '--ctx-size', '2048']);
const others = {};
for (const name of ['qwen-3-thinking', 'falcon-3', 'qwen-3.6', 'qwen-3.8'])
    others[name] = await start(serve, ['-m', make(name), '--ctx-size', '2048']);

async function openai() {
    const at = join(resolve(modules), 'node_modules', 'openai');
    if (!existsSync(at)) throw new Skip('npm has not installed openai');
    const { default: OpenAI } = await import(
        pathToFileURL(createRequire(join(at, 'index.mjs')).resolve('openai'))
    );
    return new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
}

/** A request whose reply is exactly this text. Its seed writes each tag as one token. */
const says = (text, more = {}) => ({
    model: 'any',
    messages: [{ role: 'user', content: 'x' }],
    grammar: `root ::= ${JSON.stringify(text).replace(
        /[^\x20-\x7e]/g,
        c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
    )}`,
    max_tokens: 400,
    seed: 1,
    ...more
});
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
const call = text => `<tool_call>\n${text}\n</tool_call>`;
const chat = async (body, to = server) => {
    const { status, json, text } = await ask(to, '/v1/chat/completions', body);
    same(status, 200, text);
    return json;
};
/** A bias with which a thought ends sooner. */
const thinks = async strength => {
    const {
        json: { tokens }
    } = await ask(server, '/tokenize', { content: '</think>' });
    return { logit_bias: { [tokens[0]]: strength } };
};
/** A stream's deltas put together, and the reasons. */
async function stream(body, to = server) {
    const { text } = await ask(to, '/v1/chat/completions', { ...body, stream: true });
    const all = { content: '', reasoning: '', calls: [], reasons: [] };
    for (const line of text.split('\n\n').filter(l => l.startsWith('data: {'))) {
        const [choice] = JSON.parse(line.slice(6)).choices;
        all.content += choice.delta.content ?? '';
        all.reasoning += choice.delta.reasoning_content ?? '';
        for (const c of choice.delta.tool_calls ?? [])
            ((all.calls[c.index] = c), all.reasons.push('call'));
        if (choice.finish_reason) all.reasons.push(choice.finish_reason);
    }
    return all;
}
const promptOf = async (body, to = server) =>
    (await chat({ ...body, max_tokens: 1, grammar: undefined }, to)).usage.prompt_tokens;
/** A byte is a token here, and so is a tag. */
const tokensIn = text =>
    text.replace(/<\|\w+\|>|<\/?(think|tool_call|tool_response)>/g, 'T').length +
    [...text.matchAll(/[\u0080-\u07ff]/g)].length;

const cases = {
    async 'prompts have the tokens of the texts that a Jinja engine makes'() {
        let n = 0;
        const tested = { 'qwen-3': server, ...others };
        for (const one of rendered.filter(c => tested[c.template] && c.open !== false)) {
            const to = tested[one.template];
            const messages = one.messages.map(m => ({
                ...m,
                ...m.jinja,
                jinja: undefined,
                tool_calls: m.jinja?.tool_calls?.map(({ function: f, ...c }, i) => ({
                    id: `${i}`,
                    ...c,
                    function: {
                        name: f.name,
                        arguments:
                            typeof f.arguments === 'string'
                                ? f.arguments
                                : JSON.stringify(f.arguments)
                    }
                })),
                ...(m.role === 'tool' && { tool_call_id: '1' })
            }));
            if (messages.some(m => m.content.trim().startsWith('<tool_response>'))) continue;
            const body = { messages, tools: one.tools?.map(t => JSON.parse(t)) };
            if (one.thinking === 'off') body.chat_template_kwargs = { enable_thinking: false };
            if (one.effort) body.reasoning_effort = one.effort;
            if (one.thinking && one.effort) body.enable_thinking = false;
            if (one.earlier)
                body.chat_template_kwargs = { preserve_thinking: one.earlier === 'stays' };
            same(await promptOf(body, to), tokensIn(one.text), one.text);
            n++;
        }
        check(n > 60, `${n} cases`);
    },

    async 'thinking is reasoning_content, whole and as a stream'() {
        const body = says('<think>\nHm,\nwell.\n</think>\n\nYes é.');
        const { choices, usage } = await chat(body);
        same(usage.completion_tokens_details, { reasoning_tokens: tokensIn('<think>\nHm,\nwell.\n') });
        same(choices[0].message, {
            role: 'assistant',
            content: 'Yes é.',
            refusal: null,
            reasoning_content: 'Hm,\nwell.'
        });
        same(choices[0].finish_reason, 'stop');
        const all = await stream(body);
        same(all, { content: 'Yes é.', reasoning: 'Hm,\nwell.', calls: [], reasons: ['stop'] });
        const { text } = await ask(server, '/v1/chat/completions', {
            ...body,
            stream: true,
            stream_options: { include_usage: true },
            n: 2
        });
        const twice = JSON.parse(text.split('\n\n').at(-3).slice(6)).usage.completion_tokens_details;
        same(twice.reasoning_tokens, 2 * usage.completion_tokens_details.reasoning_tokens);
        const cut = await chat({ ...body, max_tokens: 12 });
        check('Hm,\nwell.\n'.startsWith(cut.choices[0].message.reasoning_content), cut);
        same(cut.choices[0].message.content, '');
        same(cut.choices[0].finish_reason, 'length');
    },

    // evaluation tools send stop strings with each request, and thoughts repeat the question
    async 'a stop string ends what is said, and no thought'() {
        const thought = 'Hm, end.\n\nwell <b> é.';
        const said = 'Yes é: end. No.';
        const { grammar } = says(`\n${thought}\n</think>\n\n${said}`);
        const tagged = grammar.replace('"', '<think> "').replace('</think>', '" </think> "');
        const whole = says('', { grammar: tagged });
        for (const stop of [['end'], [' end. N'], ['\n\n'], ['think'], ['<'], ['é: e', 's'], ['!']]) {
            const ends = stop.map(s => said.indexOf(s)).filter(at => at >= 0);
            const wanted = said.slice(0, Math.min(said.length, ...ends));
            const { choices } = await chat({ ...whole, stop });
            const { content, reasoning_content } = choices[0].message;
            same([content, reasoning_content], [wanted, thought], stop);
            same(choices[0].finish_reason, 'stop');
            const all = await stream({ ...whole, stop });
            same([all.content, all.reasoning], [wanted, thought], stop);
            const { json } = await ask(server, '/v1/messages', { ...whole, stop_sequences: stop });
            const blocks = [{ type: 'thinking', thinking: thought, signature: 'unsigned' }];
            if (wanted) blocks.push({ type: 'text', text: wanted });
            same(json.content, blocks, stop);
            same(json.stop_reason, ends.length ? 'stop_sequence' : 'end_turn', stop);
            const from = stop.find(s => said.indexOf(s) === wanted.length) ?? null;
            same(json.stop_sequence, ends.length ? from : null);
        }
        const both = { ...whole, stop_sequences: ['\n\nYes', 'Yes'] };
        const { json: ended } = await ask(server, '/v1/messages', both);
        same(ended.stop_sequence, 'Yes');
        // what may become one comes at the end, also where the text is cut
        const n = tokensIn(`<think>\n${thought}\n</think>\n\nYes é: en`);
        const cut = await chat({ ...whole, stop: ['é: end!'], max_tokens: n });
        same(
            [cut.choices[0].message.content, cut.choices[0].finish_reason],
            ['Yes é: en', 'length']
        );
        const last = await chat({ ...whole, stop: ['en'], max_tokens: n });
        same([last.choices[0].message.content, last.choices[0].finish_reason], ['Yes é: ', 'stop']);
        for (const name of ['qwen-3-thinking', 'qwen-3.6']) {
            const body = says('a end b', { seed: 1, ...(await thinks(2)) });
            const free = (await chat(body, others[name])).choices[0].message;
            const stop = [free.reasoning_content.slice(0, 3), 'end'];
            const { choices } = await chat({ ...body, stop }, others[name]);
            same(
                [choices[0].message.content, choices[0].message.reasoning_content],
                ['a ', free.reasoning_content],
                name
            );
        }
    },

    async 'a stop string may begin behind the tag of a call'() {
        const text = call('{"name": 1}');
        const grammar = says(text).grammar.replace('"<tool_call>', '<tool_call> "');
        for (const to of [server, others['falcon-3']]) {
            const { choices } = await chat({ ...says(''), grammar, tools, stop: '\n' }, to);
            same(choices[0].message.content, '<tool_call>');
            same(choices[0].finish_reason, 'stop');
        }
    },

    async 'a refusal in a conversation that comes back is a text'() {
        const user = { role: 'user', content: 'x' };
        const prompt = async message => {
            const messages = [user, { role: 'assistant', ...message }, user];
            const { json } = await ask(server, '/apply-template', { messages });
            return json.prompt;
        };
        const wanted = await prompt({ content: 'No, thanks.' });
        check(wanted.includes('No, thanks.'), wanted);
        const refusal = { type: 'refusal', refusal: 'thanks.' };
        same(await prompt({ content: null, refusal: 'No, thanks.' }), wanted);
        same(await prompt({ content: [{ type: 'text', text: 'No, ' }, refusal] }), wanted);
        same(await prompt({ content: 'No, thanks.', refusal: 'x' }), wanted);
    },

    async 'thinking that the template leaves out does not count as too long'() {
        const content = `<think>${'x'.repeat(1e5)}</think>`,
            said = text => ({ role: 'assistant', content: content + text }),
            user = { role: 'user', content: 'x' };
        const n = await promptOf({ messages: [user, { ...said(''), content: 'y' }, user] });
        same(await promptOf({ messages: [user, said('\n'.repeat(1e5) + 'y'), user] }), n);
        const tool = { role: 'tool', tool_call_id: '1', content: 'x' };
        for (const messages of [
            [user, said('y'), tool],
            [user, said('y'), tool, said('y'), tool],
            [user, said('x'.repeat(1e5)), user],
            [user, said('y')]
        ]) {
            const { status, json } = await ask(server, '/v1/chat/completions', { messages });
            same([status, json.error?.code], [400, 'context_length_exceeded']);
            check(json.error.message.includes(' bytes, '), json);
        }
        const functions = [{ type: 'function', function: { name: 'x'.repeat(1e5) } }];
        const r = await ask(server, '/v1/chat/completions', { messages: [user], tools: functions });
        check(r.status === 400 && r.json.error.message.includes(' bytes, '), r.text);
    },

    async 'thinking can be turned off in three ways'() {
        const n = await promptOf(says('x'));
        for (const more of [
            { chat_template_kwargs: { enable_thinking: false } },
            { enable_thinking: false },
            { reasoning_effort: 'none' }
        ])
            same(await promptOf(says('x', more)), n + tokensIn('<think>\n\n</think>\n\n'));
        for (const more of [{ enable_thinking: true }, { reasoning_effort: 'high' }])
            same(await promptOf(says('x', more)), n);
        const e = await ask(
            others['qwen-3-thinking'],
            '/v1/chat/completions',
            says('x', { enable_thinking: false })
        );
        same([e.status, e.json.error.param], [400, 'enable_thinking']);
    },

    async 'effort: the names of other models are those of this one'() {
        const to = others['qwen-3.8'];
        const length = {};
        for (const name of ['low', 'medium', 'xhigh'])
            length[name] = await promptOf(says('x', { reasoning_effort: name }), to);
        check(length.low > length.medium && length.xhigh > length.low, length);
        for (const [name, as] of [
            [undefined, 'xhigh'],
            ['minimal', 'low'],
            ['high', 'xhigh'],
            ['max', 'xhigh']
        ]) {
            same(await promptOf(says('x', { reasoning_effort: name }), to), length[as], name);
            const kwargs = { chat_template_kwargs: { reasoning_effort: name } };
            same(await promptOf(says('x', kwargs), to), length[as], name);
        }
        const off = length.medium + tokensIn('\n</think>\n\n');
        for (const more of [
            { reasoning_effort: 'none' },
            { reasoning_effort: 'high', enable_thinking: false }
        ])
            same(await promptOf(says('x', more), to), off);
        const plain = await promptOf(says('x'), others['qwen-3.6']); // it has no efforts
        same(await promptOf(says('x', { reasoning_effort: 'low' }), others['qwen-3.6']), plain);
        for (const more of [
            { reasoning_effort: 'some' },
            { chat_template_kwargs: { reasoning_effort: 3 } }
        ]) {
            const r = await ask(to, '/v1/chat/completions', says('x', more));
            same([r.status, r.json.error.param], [400, 'reasoning_effort']);
        }
    },

    async 'thinking that the template begins is reasoning_content'() {
        for (const name of ['qwen-3.6', 'qwen-3.8']) {
            const body = says('Yes.', { seed: 1, ...(await thinks(2)) });
            const { choices } = await chat(body, others[name]);
            const { content, reasoning_content } = choices[0].message;
            same(content, 'Yes.');
            check(reasoning_content?.length > 0, choices);
            const all = await stream(body, others[name]);
            same([all.content, all.reasoning], [content, reasoning_content]);
            const off = await chat({ ...body, enable_thinking: false }, others[name]);
            same(
                [off.choices[0].message.content, off.choices[0].message.reasoning_content],
                ['Yes.', undefined]
            );
        }
    },

    async 'thinking of earlier replies stays or goes'() {
        const user = { role: 'user', content: 'x' };
        const replies = [{ role: 'assistant', content: 'y', reasoning_content: 'Hm.' }];
        const messages = [user, ...replies, user];
        const thought = tokensIn('<think>\nHm.\n</think>\n\n');
        const n = (to, more) => promptOf({ messages, ...more }, others[to]);
        const [goes, stays] = [{ preserve_thinking: false }, { preserve_thinking: true }];
        same((await n('qwen-3.6', stays)) - (await n('qwen-3.6')), thought);
        same((await n('qwen-3.8')) - (await n('qwen-3.8', goes)), thought);
        const kwargs = { chat_template_kwargs: goes };
        same(await n('qwen-3.8', kwargs), await n('qwen-3.8', goes));
        const bad = { messages, chat_template_kwargs: { preserve_thinking: 1 } };
        const r = await ask(others['qwen-3.8'], '/v1/chat/completions', bad);
        same([r.status, r.json.error.param], [400, 'preserve_thinking']);
    },

    async 'a reply goes on from an assistant whose template thinks'() {
        const user = { role: 'user', content: 'x' };
        for (const name of ['qwen-3.6', 'qwen-3.8']) {
            const to = others[name];
            const n = await promptOf({ messages: [user] }, to);
            for (const [begun, more, rest] of [
                [{ content: 'Ye' }, {}, '\n</think>\n\nYe'],
                [{ content: 'Ye', reasoning_content: 'Hm.' }, {}, 'Hm.\n</think>\n\nYe']
            ]) {
                const messages = [user, { role: 'assistant', ...begun }];
                const asked = { ...says('s.', more), messages };
                same(await promptOf(asked, to), n + tokensIn(rest), name);
                const [{ message }] = (await chat(asked, to)).choices;
                same([message.content, message.reasoning_content], ['s.', undefined]);
            }
            const off = { messages: [user, { role: 'assistant', content: 'Ye' }] };
            const head = await promptOf({ messages: [user], enable_thinking: false }, to);
            same(await promptOf({ ...off, enable_thinking: false }, to), head + 2);
        }
    },

    async 'calls of tools'() {
        const two =
            `Let me see.\n${call('{"name": "weather", "arguments": {"city": "Oslo"}}')}\n` +
            call('{"name": "weather", "arguments": {"city": "R\\"om"}}');
        const { choices } = await chat(says(two, { tools }));
        same(choices[0].finish_reason, 'tool_calls');
        same(choices[0].message.content, 'Let me see.');
        const calls = choices[0].message.tool_calls;
        same(
            calls.map(c => [c.type, c.function.name, JSON.parse(c.function.arguments).city]),
            [
                ['function', 'weather', 'Oslo'],
                ['function', 'weather', 'R"om']
            ]
        );
        check(calls[0].id && calls[0].id !== calls[1].id, calls);
        const all = await stream(says(two, { tools }));
        same(all.content, 'Let me see.');
        same(
            all.calls.map(c => c.function),
            calls.map(c => c.function)
        );
        same(all.reasons, ['call', 'call', 'tool_calls']);
        const thought = await chat(
            says(`<think>\nI ask.\n</think>\n\n${call('{"name": "now"}')}`, { tools })
        );
        same(thought.choices[0].message.content, null);
        same(thought.choices[0].message.reasoning_content, 'I ask.');
        same(thought.choices[0].message.tool_calls[0].function, { name: 'now', arguments: '{}' });
    },

    async 'no two keys of top_logprobs are the same, though most tokens are bytes here'() {
        const body = { prompt: 'x', max_tokens: 8, logprobs: 20, echo: true, seed: 1 };
        const { json } = await ask(server, '/v1/completions', body);
        const { top_logprobs, tokens } = json.choices[0].logprobs;
        check(!JSON.stringify([top_logprobs, tokens]).includes('\ufffd'), tokens);
        let n = 0;
        for (const best of top_logprobs.filter(Boolean)) {
            same(Object.keys(best).length, 20, JSON.stringify(best));
            n += Object.keys(best).filter(k => /^bytes:\\x[89a-f][0-9a-f]$/.test(k)).length;
        }
        check(n > 20, top_logprobs);
    },

    async 'what is no call is text, to the byte'() {
        for (const text of [
            call('{"name": 1}'),
            call('{"name": "a", "arguments": 3}'),
            call('{"name": "a"'),
            call('{"name": "a", "args": {"city": "Oslo"}}'),
            call('{"name": "a", "arguments": null, "input": {}}'),
            call('{"name": "a", "arguments": {}, "parameters": {"city": "Oslo"}}'),
            call('{"name": "a", "parameters": "{}"}'),
            call('{"name": ""}'),
            call('[{"name": "a"}, {"name": 1}]'),
            call('[[{"name": "a"}]]'),
            `x ${call('[]')} y`,
            `x\n\n${call('[]')}\n\n\ny\n`,
            '<tool_call>\n{"name": "a"}',
            '\n\n<tool_call>\n\n{"name": "a"}\n\n',
            'use <tool_call> as a tag',
            'use <tool_call>\n\nas a tag\n',
            'between <tool_call> and </tool_call>\n\n.',
            '```\n<tool_call>\n...\n</tool_call>\n```\n',
            '<tool_call><tool_call',
            '<tool_call></tool_call>\n<',
            'a\n<\n<tool_ca\n\n<tool_cal'
        ]) {
            const { choices } = await chat(says(text, { tools }));
            same(choices[0].message.content, text);
            same(choices[0].finish_reason, 'stop');
            check(!choices[0].message.tool_calls, choices);
            same((await stream(says(text, { tools }))).content, text, 'the stream is');
        }
        const thought = await chat(says('<think>\nI.\n</think>\n\n<tool_call> is\n', { tools }));
        same(thought.choices[0].message.content, '<tool_call> is\n');
        const [user, begun] = [
            { role: 'user', content: 'x' },
            { role: 'assistant', content: '' }
        ];
        for (const [first, rest, content] of [
            ['<tool_call>\n{"name": "a', '", "arguments": {}}\n</tool_call>', null],
            ['<tool_call>\n{"name": "a', '"}\n', '"}\n'],
            ['so <tool_', 'call>', 'call>']
        ]) {
            const messages = [user, { ...begun, content: first }];
            const { choices } = await chat(says(rest, { messages, tools }));
            const { message } = choices[0];
            same([message.content, !!message.tool_calls], [content, content === null]);
        }
        const none = says(call('{"name": "weather"}'), { tools, tool_choice: 'none' });
        const { choices } = await chat(none);
        same(choices[0].message.content, call('{"name": "weather"}'));
        same(await promptOf(none), await promptOf(says('x')));
    },

    async 'calls among texts that are none'() {
        const one = call('{"name": "weather", "parameters": {"city": "Oslo"}}');
        for (const [text, content] of [
            [one, null],
            [call('[\n{"name": "weather", "arguments": {"city": "Oslo"}}\n]'), null],
            [`${one}\n\n`, null],
            [`\`\`\`\n${one}\n\`\`\`\n`, '```\n```\n'],
            [`use <tool_call> as a tag:\n${one}`, 'use <tool_call> as a tag:'],
            [`<tool_call> ${one}`, '<tool_call> '],
            [`${call('[]')}\n${one}\nSo.`, `${call('[]')}\nSo.`]
        ]) {
            const { choices } = await chat(says(text, { tools }));
            const { message, finish_reason } = choices[0];
            same([finish_reason, message.content], ['tool_calls', content], text);
            same(
                message.tool_calls.map(c => c.function),
                [{ name: 'weather', arguments: '{"city":"Oslo"}' }]
            );
            const all = await stream(says(text, { tools }));
            same([all.content || null, all.calls.length], [content, 1], text);
        }
    },

    async 'parallel_tool_calls false: the reply ends behind a call'() {
        const one = city => call(`{"name": "weather", "arguments": {"city": "${city}"}}`);
        const more = { tools, parallel_tool_calls: false, logprobs: true };
        const text = `So:\n${one('Oslo')}\n${one('Rome')}`;
        const { choices, usage } = await chat(says(text, more));
        same([choices[0].finish_reason, choices[0].message.content], ['tool_calls', 'So:']);
        same(
            choices[0].message.tool_calls.map(c => c.function.arguments),
            ['{"city":"Oslo"}']
        );
        const { content } = choices[0].logprobs;
        same(usage.completion_tokens, content.length);
        const written = content.map(t => t.token).join('');
        same(written, `So:\n${one('Oslo')}`, 'nothing is written behind:');
        const all = await stream(says(text, more));
        same([all.content, all.calls.length, all.reasons], ['So:', 1, ['call', 'tool_calls']]);
        const plain = await chat(says('no call\n', more));
        same(plain.choices[0].message.content, 'no call\n');
        same(plain.choices[0].finish_reason, 'stop');
        const both = await chat(says(text, { tools, parallel_tool_calls: true }));
        same(both.choices[0].message.tool_calls.length, 2);
        const list = call('[{"name": "weather"}, {"name": "now"}]'); // as Falcon 3 writes calls
        for (const parallel_tool_calls of [true, false]) {
            const { choices } = await chat(says(list, { tools, parallel_tool_calls }));
            const names = choices[0].message.tool_calls.map(c => c.function.name);
            same(names, parallel_tool_calls ? ['weather', 'now'] : ['weather']);
        }
        const two = await chat(says(text, { ...more, n: 2 }));
        for (const c of two.choices) same(c.message.tool_calls.length, 1);
    },

    async 'tool_choice: a call that must be follows the parameters of its function'() {
        const f = (name, parameters) => ({ type: 'function', function: { name, parameters } });
        const city = { enum: ['Oslo', 'R"om'] };
        const own = { type: 'object', properties: { city }, required: ['city'] };
        const shared = {
            $defs: { c: city, const: { enum: [7] } },
            properties: {
                const: { $ref: '#/$defs/c' },
                deep: { type: 'array', items: { $ref: '#/$defs/const' }, minItems: 1, maxItems: 2 },
                data: { const: { $ref: '#/no/reference' } }
            },
            required: ['const', 'deep', 'data']
        };
        const all = [f('weather', own), f('now'), f('open', {}), f('shared', shared)];
        const good = {
            weather: a => city.enum.includes(a.city) && Object.keys(a).length === 1,
            now: a => Object.keys(a).length === 0,
            open: a => !!a,
            shared: a =>
                city.enum.includes(a.const) &&
                a.deep.every(x => x === 7) &&
                a.data.$ref === '#/no/reference'
        };
        const messages = [{ role: 'user', content: 'x' }];
        const seen = new Set();
        for (const to of [server, others['qwen-3-thinking']])
            for (const [more, names, is_one] of [
                [{ tool_choice: 'required' }, Object.keys(good), false],
                [{ tool_choice: 'required', parallel_tool_calls: false }, Object.keys(good), true],
                ...Object.keys(good).map(name => [
                    { tool_choice: { type: 'function', function: { name } } },
                    [name],
                    true
                ])
            ]) {
                const body = { messages, tools: all, max_tokens: 1000, temperature: 0.5, ...more };
                Object.assign(body, to === server ? {} : await thinks(6));
                for (const seed of [1, 2, 3, 4]) {
                    const { choices } = await chat({ ...body, seed }, to);
                    const { message, finish_reason } = choices[0];
                    if (finish_reason === 'length') continue; // random strings have no end
                    same([finish_reason, message.content], ['tool_calls', null]);
                    for (const c of message.tool_calls) {
                        const { name, arguments: text } = c.function;
                        check(names.includes(name) && good[name](JSON.parse(text)), c);
                        seen.add(name);
                    }
                    check(message.tool_calls.length === 1 || !is_one, message);
                    const told = await stream({ ...body, seed }, to);
                    same(
                        told.calls.map(c => c.function),
                        message.tool_calls.map(c => c.function)
                    );
                    same(told.content, '');
                }
            }
        check(
            ['now', 'shared', 'weather'].every(name => seen.has(name)),
            [...seen]
        );
        const many = { messages, tools: [f('now')], tool_choice: 'required', ignore_eos: true };
        const { choices } = await chat({ ...many, max_tokens: 300, temperature: 0.5, seed: 1 });
        const told = choices[0].message.tool_calls.map(c => c.function);
        check(told.length > 1, told);
        for (const one of told) same(one, { name: 'now', arguments: '{}' });
        const none = await chat(says('x', { tools, tool_choice: 'none' }));
        same(none.choices[0].message.content, 'x');
    },

    async 'openai: a tool is called and answers'() {
        const client = await openai();
        const messages = [{ role: 'user', content: 'Rain in Oslo?' }];
        const first = await client.chat.completions.create(
            says(call('{"name": "weather", "arguments": {"city": "Oslo"}}'), { messages, tools })
        );
        const { message, finish_reason } = first.choices[0];
        same(finish_reason, 'tool_calls');
        messages.push(message, {
            role: 'tool',
            tool_call_id: message.tool_calls[0].id,
            content: 'wet'
        });
        const second = await client.chat.completions.create(says('It rains.', { messages, tools }));
        same(second.choices[0].message.content, 'It rains.');
        const chunks = [];
        const body = says(call('{"name": "weather", "arguments": {}}'), { tools, stream: true });
        for await (const chunk of await client.chat.completions.create(body)) chunks.push(chunk);
        const told = chunks.flatMap(c => c.choices[0].delta.tool_calls ?? []);
        same(
            told.map(c => c.function),
            [{ name: 'weather', arguments: '{}' }]
        );
        const runner = client.chat.completions.stream(body);
        same((await runner.finalMessage()).tool_calls[0].function.name, 'weather');
    },

    async 'a reply goes on from an assistant that has begun to think'() {
        const begun = content => [
            { role: 'user', content: 'x' },
            { role: 'assistant', content }
        ];
        const messages = begun('<think>\nHm');
        const { choices } = await chat(says('Yes.', { messages, seed: 1, ...(await thinks(2)) }));
        check(choices[0].message.reasoning_content, choices);
        same(choices[0].message.content, 'Yes.');
        const open = others['qwen-3-thinking'];
        for (const [content, has_thought] of [
            ['Hm', true],
            ['Hm.\n</think>\n\nS', false]
        ]) {
            const body = says('o.', { messages: begun(content), seed: 1, ...(await thinks(2)) });
            const [{ message }] = (await chat(body, open)).choices;
            same([message.content, !!message.reasoning_content], ['o.', has_thought], content);
        }
    },

    async 'generate: a schema binds what stands behind thinking'() {
        const model = join(folder, 'qwen-3-thinking.gguf'),
            schema = JSON.stringify({ enum: ['abc', 'bcd'] });
        const wild = '--temp 9 --top-k 0 --top-p 1 --min-p 0 -n 1900 -c 2048'.split(' ');
        for (const seed of ['1', '2', '3']) {
            const options = [
                '-cnv',
                '-st',
                '-p',
                'x',
                '--json-schema',
                schema,
                '-s',
                seed,
                ...wild
            ];
            const out = execFileSync(join(dirname(serve), 'generate'), ['-m', model, ...options], {
                stdio: ['ignore', 'pipe', 'ignore']
            });
            check(/[^]<\/think>\n\n"(abc|bcd)"\n$/.test(out.toString('latin1')), out);
        }
    },

    'generate: rules bind a reply that does not think, and a text from its beginning'() {
        const options = ['-m', join(folder, 'qwen-3.6.gguf'), '-n', '60', '--temp', '0'];
        const rules = ['--grammar', 'root ::= "yes"', '--no-display-prompt'];
        for (const [more, text] of [
            [['-cnv', '-st', '-p', 'x', '--reasoning', 'off'], 'yes\n'],
            [['-p', 'x'], 'yes']
        ]) {
            const out = execFileSync(join(dirname(serve), 'generate'), [...options, ...more, ...rules], {
                stdio: ['ignore', 'pipe', 'ignore']
            });
            same(out.toString('latin1').trimEnd(), text.trimEnd());
        }
    },

    async 'rules bind what stands behind thinking'() {
        const open = others['qwen-3-thinking'],
            object = { type: 'object', properties: { a: { enum: ['x', 'y'] } }, required: ['a'] },
            schema = { type: 'json_schema', json_schema: { schema: object } };
        const user = { messages: [{ role: 'user', content: 'x' }], max_tokens: 400 };
        let n_thoughts = 0;
        for (const [rules, good] of [
            [{ response_format: schema }, t => ['x', 'y'].includes(JSON.parse(t).a)],
            [{ guided_choice: ['yes', 'no'] }, t => ['yes', 'no'].includes(t)],
            [{ grammar: 'root ::= "<" [a-c]{3}' }, t => /^<[abc]{3}$/.test(t)]
        ])
            for (const strength of [100, 4, 3]) {
                // the thought ends at once, or soon
                const body = { ...user, ...rules, ...(await thinks(strength)), logprobs: true };
                for (const seed of [1, 2, 3, 4]) {
                    const r = await chat({ ...body, seed, n: 2 }, open);
                    for (const { message, finish_reason, logprobs } of r.choices) {
                        n_thoughts += message.reasoning_content !== undefined;
                        const text = logprobs.content.map(t => t.token).join('');
                        if (finish_reason === 'length') same(message.content, '', text);
                        else {
                            check(good(message.content), message);
                            check(text.includes(`</think>\n\n${message.content}`), text);
                        }
                    }
                    const all = await stream({ ...body, seed }, open);
                    same(all.content, r.choices[0].message.content);
                    same(all.reasoning, r.choices[0].message.reasoning_content ?? '');
                }
            }
        check(n_thoughts > 20, `${n_thoughts} thoughts`);
    },

    async 'the server says which template its chats have'() {
        for (const [name, one] of [['qwen-3', server], ...Object.entries(others)]) {
            const is = name === 'qwen-3.6' ? 'qwen-3.5' : name;
            check(one.said.includes(`serve: chats have the template ${is}\n`), one.said);
        }
        writeFileSync(join(folder, 'odd.jinja'), '{{ messages[0].content }}');
        execFileSync(maker, [join(folder, 'odd.jinja'), join(folder, 'odd.gguf')]);
        const odd = await start(serve, ['-m', join(folder, 'odd.gguf')]);
        await until(() => odd.said.includes('chats are refused'), 'the word of it');
        check(
            /serve: no chat: tokenizer.chat_template is unknown: .* as \w/.test(odd.said),
            odd.said
        );
        check(/template is not known\n$/.test(odd.said), odd.said);
        const { status, json } = await ask(odd, '/v1/chat/completions', says('x'));
        same([status, json.error.param], [400, 'messages']);
        same(await odd.stop(), 0);
    },

    async 'what a template refuses is refused by name'() {
        const late =
                "{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}",
            strict =
                "{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}";
        const jinja = templates.chatml.replace('%}', `%}${late}${strict}`);
        writeFileSync(join(folder, 'strict.jinja'), jinja);
        execFileSync(maker, [join(folder, 'strict.jinja'), join(folder, 'strict.gguf')]);
        const one = await start(serve, ['-m', join(folder, 'strict.gguf')]);
        const system = { role: 'system', content: 's' },
            user = { role: 'user', content: 'x' };
        for (const [messages, words] of [
            [[user, system], 'only as the first one'],
            [[user, { role: 'critic', content: 'x' }], 'no such role'],
            [[user, { role: 'tool', content: 'x', tool_call_id: 'a' }], ''],
            [[system, user], '']
        ]) {
            const { status, json } = await ask(
                one,
                '/v1/chat/completions',
                says('x', { messages })
            );
            same(status, words ? 400 : 200, json);
            check(!words || json.error.message.includes(words), json);
        }
        same(await one.stop(), 0);
    },

    async 'messages and tools of a wrong shape are refused'() {
        const user = { role: 'user', content: 'x' };
        const asked = call => [user, { role: 'assistant', content: null, tool_calls: call }];
        for (const [param, body] of [
            ['tools', { tools: [{ type: 'x', function: { name: 'a' } }] }],
            ['tools', { tools: [{ type: 'function', function: {} }] }],
            ['tools', { tools: [1] }],
            ['parallel_tool_calls', { tools, parallel_tool_calls: 'no' }],
            ['parallel_tool_calls', { parallel_tool_calls: 0 }],
            ['grammar', { tools, tool_choice: 'required' }],
            ['tool_choice', { tools, tool_choice: 'any', grammar: null }],
            ['tool_choice', { tool_choice: 'required', grammar: null }],
            ['tool_choice', { tools: [], tool_choice: 'required', grammar: null }],
            ['tool_choice', { tools, tool_choice: { type: 'function' }, grammar: null }],
            ['tool_choice', { tools, tool_choice: 1, grammar: null }],
            [
                'tool_choice',
                {
                    tools,
                    tool_choice: { type: 'function', function: { name: 'now' } },
                    grammar: null
                }
            ],
            [
                'tool_choice',
                {
                    tools,
                    tool_choice: 'required',
                    grammar: null,
                    messages: [user, { role: 'assistant', content: 'So' }]
                }
            ],
            [
                'tool_choice',
                {
                    tools: [
                        {
                            type: 'function',
                            function: { name: 'f', parameters: { type: 'object', not: {} } }
                        }
                    ],
                    tool_choice: 'required',
                    grammar: null
                }
            ],
            [
                'tools',
                {
                    tools: [
                        { type: 'function', function: { name: 'f', parameters: { type: 'array' } } }
                    ],
                    tool_choice: 'required',
                    grammar: null
                }
            ],
            ['functions', { functions: [{ name: 'a' }] }],
            ['messages', { messages: [user, { role: 'tool', content: 'x' }] }],
            ['messages', { messages: asked([{}]) }],
            ['messages', { messages: asked(1) }],
            ['messages', { messages: asked([{ type: 'function', function: { name: 'a' } }]) }],
            ['messages', { messages: asked([{ function: { name: 'a', arguments: '{' } }]) }],
            ['messages', { messages: asked([{ function: { name: 'a', arguments: '[]' } }]) }],
            ['messages', { messages: [{ ...user, tool_calls: [{}] }] }],
            [
                'messages',
                { messages: [user, { role: 'assistant', content: 'x', reasoning_content: 1 }] }
            ],
            ['messages', { messages: [user, { role: 'assistant', content: null }] }],
            ['chat_template_kwargs', { chat_template_kwargs: [] }],
            ['enable_thinking', { chat_template_kwargs: { enable_thinking: 'no' } }],
            ['reasoning_effort', { reasoning_effort: 'much' }]
        ]) {
            const { status, json, text } = await ask(
                server,
                '/v1/chat/completions',
                says('x', body)
            );
            same([status, json?.error?.param], [400, param], text);
        }
        const { status } = await ask(server, '/v1/completions', {
            prompt: 'x',
            tools,
            max_tokens: 1
        });
        same(status, 400);
    }
};

const failed = await runAll('server chat', cases, filter);
for (const one of [server, ...Object.values(others)]) same(await one.stop(), 0, 'the exit code is');
process.exit(failed ? 1 : 0);
