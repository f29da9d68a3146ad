// clients.mjs - the server with the clients that people have, and what it says
//
//     node tests/server/clients.mjs SERVE GENERATE LOGPROBS MODEL MODULES [FILTER]
//
// MODULES is a folder whose node_modules has tests/server/package.json's; a client that is not
// there is skipped.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { embeddings } from './embeddings.mjs';
import { ask, check, endless, idle, metrics, runAll, same, Skip, start } from './server.mjs';

const [serve, generate, logprobs, model, modules, filter = ''] = process.argv.slice(2);
const PROMPT = 'Once upon a time',
    SEEDED = { prompt: PROMPT, max_tokens: 60, temperature: 0.8, seed: 42 };
const server = await start(serve, ['-m', model, '--queue', '200']);
const NAME = (await ask(server, '/v1/models')).json.data[0].id;
const baseURL = `${server.url}/v1`;

/** A module of MODULES. */
async function load(name) {
    const at = join(resolve(modules), 'node_modules', name);
    if (!existsSync(at)) throw new Skip(`npm has not installed ${name}`);
    const { exports = {}, main } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'));
    const own = exports['.']?.import ?? exports['.'];
    const file = typeof own === 'string' ? own : (own?.default ?? main);
    return import(pathToFileURL(file ? join(at, file) : createRequire(at).resolve(name)));
}
async function openai(options = {}) {
    const { default: OpenAI } = await load('openai');
    return new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0, ...options });
}
const native = (...args) =>
    execFileSync(generate, ['-m', model, '--log-disable', ...args], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore']
    });
const chat = (content, more = {}) => ({
    model: NAME,
    messages: [{ role: 'user', content }],
    max_tokens: 5,
    temperature: 0,
    ...more
});
async function collect(stream) {
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
}
/** The events of a stream's text. */
function events(text) {
    const parts = text.split('\n\n');
    same(parts.pop(), '', 'the end of a stream is');
    same(parts.pop(), 'data: [DONE]', 'the last event is');
    return parts.filter(p => !p.startsWith(':')).map(p => JSON.parse(p.replace(/^data: /, '')));
}

const SCHEMA = {
    type: 'object',
    properties: { name: { type: 'string', maxLength: 8 }, old: { type: 'boolean' } },
    required: ['name', 'old'],
    additionalProperties: false
};

const cases = {
    async "curl: a completion is generate's text"() {
        const body = JSON.stringify({ prompt: PROMPT, max_tokens: 40, temperature: 0 });
        const out = execFileSync('curl', ['-sS', `${baseURL}/completions`, '-d', body]);
        const json = JSON.parse(out);
        same(
            PROMPT + json.choices[0].text,
            native('-p', PROMPT, '-n', '40', '--temp', '0').slice(0, -1)
        );
        same(json.object, 'text_completion');
        same(json.choices[0].finish_reason, 'length');
        same(json.usage.completion_tokens, 40);
        same(json.usage.total_tokens, json.usage.prompt_tokens + 40);
    },

    async "a seed gives generate's text"() {
        const options = { top_p: 0.9, top_k: 30, min_p: 0.02, frequency_penalty: 0.5 };
        const { json } = await ask(server, '/v1/completions', { ...SEEDED, ...options });
        const text = native(
            '-p',
            PROMPT,
            '-n',
            '60',
            '-s',
            '42',
            '--temp',
            '0.8',
            '--top-p',
            '0.9',
            '--top-k',
            '30',
            '--min-p',
            '0.02',
            '--frequency-penalty',
            '0.5',
            '--repeat-last-n',
            '-1'
        );
        same(`${PROMPT + json.choices[0].text}\n`, text);
    },

    async 'openai: chat'() {
        const client = await openai();
        const r = await client.chat.completions.create(chat('Tell me a story.'));
        same(r.object, 'chat.completion');
        same(r.choices[0].message.role, 'assistant');
        same(r.choices[0].finish_reason, 'length');
        check(/^chatcmpl-/.test(r.id) && r.created > 1.7e9, r);
        check(/^bitnet\.h-\d+\.\d+\.\d+\S*-[0-9a-f]{16}$/.test(r.system_fingerprint), r);
        same(r.model, NAME);
        same(r.usage.completion_tokens, 5);
        const text = native(
            '-cnv',
            '-st',
            '-p',
            'Tell me a story.',
            '-n',
            '5',
            '--temp',
            '0',
            '--no-display-prompt'
        );
        same(r.choices[0].message.content.trim(), text.trim());
        const again = await client.chat.completions.create(chat('Tell me a story.'));
        check(again.id !== r.id && again.system_fingerprint === r.system_fingerprint, again);
    },

    async 'openai: a stream of chat is the same text'() {
        const client = await openai();
        const whole = await client.chat.completions.create(chat('A dog and a cat', { seed: 3 }));
        const options = { stream: true, stream_options: { include_usage: true }, seed: 3 };
        const chunks = await collect(
            await client.chat.completions.create(chat('A dog and a cat', options))
        );
        const last = chunks.pop();
        same(last.choices, []);
        same(last.usage.completion_tokens, 5);
        same(new Set([...chunks, last].map(c => c.id)).size, 1, 'ids:');
        same(chunks[0].choices[0].delta.role, 'assistant');
        const roles = chunks.filter(c => c.choices[0].delta.role);
        same(roles.length, 1, 'roles:');
        same(
            chunks.map(c => c.choices[0].delta.content ?? '').join(''),
            whole.choices[0].message.content
        );
        same(chunks.map(c => c.choices[0].finish_reason).filter(Boolean), ['length']);
        same(chunks.at(-1).choices[0].finish_reason, 'length');
        check(
            chunks.every(c => c.usage === null && c.object === 'chat.completion.chunk'),
            chunks
        );
    },

    async 'openai: the stream helper collects a chat'() {
        const client = await openai();
        const runner = client.chat.completions.stream(chat('A frog'));
        const final = await runner.finalChatCompletion();
        const whole = await client.chat.completions.create(chat('A frog'));
        same(final.choices[0].message.content, whole.choices[0].message.content);
    },

    async 'openai: completions, whole and as a stream'() {
        const client = await openai();
        const request = { model: NAME, ...SEEDED };
        const whole = await client.completions.create(request);
        const chunks = await collect(await client.completions.create({ ...request, stream: true }));
        same(chunks.map(c => c.choices[0].text).join(''), whole.choices[0].text);
        check(
            chunks.every(c => c.object === 'text_completion'),
            chunks
        );
    },

    async 'openai: logprobs of chat'() {
        const client = await openai();
        const r = await client.chat.completions.create(
            chat('A bird', { logprobs: true, top_logprobs: 3 })
        );
        const list = r.choices[0].logprobs.content;
        same(list.length, r.usage.completion_tokens);
        const bytes = Buffer.from(list.flatMap(t => t.bytes));
        same(bytes.toString(), r.choices[0].message.content);
        for (const t of list) {
            same(t.top_logprobs.length, 3);
            same(t.top_logprobs[0].token, t.token); // greedy
            same(t.top_logprobs[0].logprob, t.logprob);
            check(t.logprob <= 0 && t.top_logprobs[1].logprob <= t.logprob, t);
        }
    },

    async 'each token has its logprob, the end of a text too'() {
        const request = { prompt: PROMPT, max_tokens: 400, temperature: 0, logprobs: 0 };
        for (const stream of [false, true]) {
            const stream_options = stream ? { include_usage: true } : null;
            const r = await ask(server, '/v1/completions', { ...request, stream, stream_options });
            const parts = stream ? events(r.text) : [r.json];
            const all = parts.flatMap(p => p.choices).filter(c => c.logprobs);
            const list = name => all.flatMap(c => c.logprobs[name]);
            same(parts.flatMap(p => p.choices).at(-1).finish_reason, 'stop');
            const { completion_tokens } = parts.at(-1).usage;
            for (const name of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset'])
                same(list(name).length, completion_tokens, name);
            const text = all.map(c => c.text).join('');
            same(list('tokens').join(''), `${text}<|end_of_text|>`);
            same(list('text_offset').at(-1), [...text].length);
            check(list('token_logprobs').at(-1) < 0, list('token_logprobs'));
        }
        const { messages } = chat('A bird');
        const { json } = await ask(server, '/v1/chat/completions', {
            messages,
            temperature: 0,
            logprobs: true
        });
        const [{ logprobs, message, finish_reason }] = json.choices,
            { content } = logprobs;
        same([finish_reason, content.length], ['stop', json.usage.completion_tokens]);
        same([content.at(-1).token, content.at(-1).bytes], ['<|eot_id|>', null]);
        const bytes = Buffer.from(content.flatMap(t => t.bytes ?? []));
        same(bytes.toString(), message.content);
    },

    async 'lm-evaluation-harness: what it asks, and how it reads the answer'() {
        const whole = await ask(server, '/v1/completions', {
            prompt: PROMPT,
            max_tokens: 400,
            temperature: 0
        });
        const text = whole.json.choices[0].text;
        const tokens = async content =>
            (await ask(server, '/tokenize', { content, add_special: true })).json.tokens;
        const context = await tokens(PROMPT);
        // behind all of its text the model ends; behind less it goes on
        for (const rest of [text, text.slice(0, text.indexOf('.') + 1)]) {
            const all = await tokens(PROMPT + rest);
            const { json } = await ask(server, '/v1/completions', {
                model: NAME,
                prompt: [all],
                temperature: 0,
                max_tokens: 1,
                logprobs: 1,
                seed: 1234,
                echo: true
            });
            const [{ logprobs: l, finish_reason }] = json.choices;
            same(finish_reason, rest === text ? 'stop' : 'length');
            const scores = l.token_logprobs.slice(context.length, -1);
            same(scores.length, all.length - context.length);
            const tops = l.top_logprobs.slice(context.length, -1);
            scores.forEach((x, i) => same(x, Math.max(...Object.values(tops[i])), `token ${i}`));
            const none = await ask(server, '/v1/completions', {
                prompt: [all],
                max_tokens: 0,
                logprobs: 1,
                echo: true
            });
            same(none.json.choices[0].logprobs.token_logprobs, l.token_logprobs.slice(0, -1));
        }
    },

    async 'tokens that are parts of characters are spelled as bytes'() {
        // a character of four bytes that is no token as a whole
        const request = { prompt: 'x\u{1f9ff}', echo: true, max_tokens: 0, logprobs: 1 };
        const { text } = await ask(server, '/v1/completions', request);
        check(!text.includes('\ufffd'), text);
        const { tokens } = JSON.parse(text).choices[0].logprobs;
        const parts = tokens.filter(t => t.startsWith('bytes:'));
        check(parts.length > 1, tokens);
        const bytes = parts.map(t => t.slice('bytes:'.length)).join('');
        same(bytes, '\\xf0\\x9f\\xa7\\xbf');
        const chats = await ask(server, '/v1/chat/completions', {
            ...chat('x'),
            logprobs: true,
            top_logprobs: 20,
            grammar: 'root ::= "\u{1f9ff}"'
        });
        const [first] = chats.json.choices[0].logprobs.content;
        same([first.token, first.bytes[0]], [parts[0], 0xf0]);
    },

    async 'special tokens that a prompt spells are tokens'() {
        const prompt = 'User: What is the capital of France?<|eot_id|>Assistant: ';
        const of = async (content, more = {}) =>
            (await ask(server, '/tokenize', { content, add_special: true, ...more })).json.tokens;
        const count = async (body, path = '/v1/completions') => {
            const r = await ask(server, path, { max_tokens: 1, ...body });
            same(r.status, 200, r.text);
            return r.json.usage.prompt_tokens;
        };
        const plain = await of(prompt, { parse_special: false });
        check(plain.length > (await of(prompt)).length, plain);
        same(await count({ prompt }), (await of(prompt)).length);
        const both = (await of('x')).length + (await of(prompt)).length;
        same(await count({ prompt: ['x', prompt] }), both);
        same(await count({ prompt, parse_special: false }), plain.length);
        const body = { ...chat('a<|eot_id|>b'), max_tokens: 1 };
        const bare = { ...chat('ab'), max_tokens: 1 };
        const path = '/v1/chat/completions'; // where a message never spells a token
        check((await count(body, path)) > (await count(bare, path)) + 3, body);
        const [bos] = await of('');
        const {
            json: { content: name }
        } = await ask(server, '/detokenize', { tokens: [bos] });
        same(await of(`${name}x`), await of('x'), 'BOS that is spelled comes once:');
        same(await count({ prompt: `${name}x` }), (await of('x')).length);
        same((await of(name + name)).length, 2, 'BOS that is spelled twice:');
        for (const text of [prompt, `${name}x`]) {
            const request = { prompt: text, echo: true, max_tokens: 0, logprobs: 0 };
            const { json } = await ask(server, '/v1/completions', request);
            same(json.choices[0].text, text, 'the echo is');
        }
        const e = await ask(server, '/v1/completions', { prompt, parse_special: 'no' });
        same([e.status, e.json.error.param], [400, 'parse_special']);
        const pieces = await ask(server, '/tokenize', { content: 'a\u{1f9ff}', with_pieces: true });
        same(pieces.json.tokens[0].piece, 'a');
        same(pieces.json.tokens.slice(1).flatMap(t => t.piece), [0xf0, 0x9f, 0xa7, 0xbf]);
    },

    async 'seeds have 64 bits, and -1 is any'() {
        const say = async seed => {
            const body =
                `{"prompt":"x","max_tokens":12,"temperature":2,"top_k":-1,"min_p":0,` +
                `"seed":${seed}}`;
            const r = await ask(server, '/v1/completions', undefined, { method: 'POST', body });
            same(r.status, 200, r.text);
            return r.json.choices[0].text;
        };
        for (const [one, same_as, other] of [
            ['9007199254740993', '9007199254740993', '9007199254740992'],
            ['18446744073709551615', '18446744073709551615', '18446744073709551614'],
            ['-9223372036854775808', '9223372036854775808', '-9223372036854775807'],
            ['-2', '18446744073709551614', '-3'],
            ['1e3', '1000', '1001'],
            ['7.0', '7', '8']
        ]) {
            same(await say(one), await say(same_as));
            check((await say(one)) !== (await say(other)), one);
        }
        const any = await Promise.all(Array.from({ length: 4 }, () => say(-1)));
        same(new Set(any).size, 4, 'texts without a seed:');
    },

    async 'a model by its name, and the type of answers'() {
        const list = await ask(server, '/v1/models');
        const one = await ask(server, `/v1/models/${encodeURIComponent(NAME)}`);
        same({ ...one.json, created: 0 }, { ...list.json.data[0], created: 0 });
        const r = await ask(server, '/v1/models/none');
        same([r.status, r.json.error.code], [404, 'model_not_found']);
        same((await ask(server, `/v1/models/${NAME}x`)).status, 404);
        same((await ask(server, `/v1/models/${'x'.repeat(300)}`)).status, 404);
        same((await ask(server, `/v1/models/${NAME}`, {})).status, 405);
        const strange = await start(serve, ['-m', model, '--alias', 'a/b c\u00e9%']);
        const { json } = await ask(strange, `/v1/models/a/${encodeURIComponent('b c\u00e9%')}`);
        same(json.id, 'a/b c\u00e9%');
        same(await strange.stop(), 0);
        for (const answer of [one, r, await ask(server, '/v1/completions', { prompt: 'x' })])
            same(answer.headers.get('content-type'), 'application/json; charset=utf-8');
    },

    async "echo with logprobs: the library's own numbers"() {
        const prompt =
            'Once upon a time there was a little dog who lived in a big house near the ' +
            'forest with a girl. They went to see the moon.';
        const lines = execFileSync(logprobs, [model, prompt], { encoding: 'utf8' });
        const own = lines
            .trim()
            .split('\n')
            .map(line => line.split(' '));
        for (const max_tokens of [0, 4]) {
            const { json, text } = await ask(server, '/v1/completions', {
                prompt,
                max_tokens,
                temperature: 0,
                echo: true,
                logprobs: 1
            });
            check(json.choices, text);
            const [choice] = json.choices,
                l = choice.logprobs;
            same(l.tokens.length, own.length + max_tokens);
            same(l.token_logprobs[0], null);
            same(l.top_logprobs[0], null);
            own.forEach(([, value], i) => {
                check(
                    i === 0 || Math.abs(value - l.token_logprobs[i]) < 2e-4,
                    `token ${i}: ${l.token_logprobs[i]}, not ${value}`
                );
            });
            check(choice.text.startsWith(prompt), choice.text);
            same(json.usage.completion_tokens, max_tokens);
            same(json.usage.prompt_tokens, own.length);
            for (let i = 1; i < l.tokens.length; i++)
                // no token here is special, but the first
                check(choice.text.slice(l.text_offset[i]).startsWith(l.tokens[i]), `offset ${i}`);
        }
    },

    async 'text_offset counts characters, as clients do'() {
        const prompt = 'Caf\u00e9 \ud83d\ude00: \u20ac5 for a cup of tea. The dog';
        const body = { prompt, max_tokens: 4, temperature: 0, echo: true, logprobs: 0 };
        const r = await ask(server, '/v1/completions', body);
        const { text, logprobs: l } = r.json.choices[0];
        check(text.startsWith(prompt), text);
        let n = 0;
        l.tokens.forEach((token, i) => {
            if (i === 0 || token.startsWith('bytes:')) return; // special, or a part of a character
            n++;
            const rest = [...text].slice(l.text_offset[i]).join('');
            check(rest.startsWith(token), `${token} at ${l.text_offset[i]}: ${rest}`);
        });
        check(n > 10, l.tokens);
    },

    async 'text_offset does not wait for what may be a stop string'() {
        const text = 'the cat sat on the mat \u{1f9ff} and \u{1f9ff}!';
        const body = { prompt: 'x', grammar: `root ::= "${text}"`, logprobs: 0, max_tokens: 80 };
        const stop = ['the cat sat on mars', '\u{1f9ff} or'];
        const { json } = await ask(server, '/v1/completions', { ...body, stop, seed: 1 });
        const [choice] = json.choices;
        same(choice.text, text);
        let n = 0; // characters of the tokens so far
        choice.logprobs.tokens.slice(0, -1).forEach((token, i) => {
            const at = choice.logprobs.text_offset[i];
            same(at, n, `${token}:`);
            n += token.startsWith('bytes:') ? token.endsWith('\\xbf') : [...token].length;
        });
        same(choice.logprobs.text_offset.at(-1), [...text].length, 'the end:');
    },

    async 'a stream with echo does not tear the characters of the prompt'() {
        const prompt = 'Caf\u00e9 \u{1f9ff}\u20ac';
        const all = (await ask(server, '/tokenize', { content: prompt })).json.tokens;
        const prompts = [prompt, all.slice(0, -1), [...all, all.at(-1), 65]];
        const marks = ['', '\ufffd', '\ufffdA'];
        for (const [i, one] of prompts.entries()) {
            const body = { prompt: one, echo: true, max_tokens: i && 1, seed: 1 };
            const whole = await ask(server, '/v1/completions', body);
            const { text } = whole.json.choices[0];
            const begin = i === 1 ? prompt.slice(0, -1) : prompt;
            check(text.startsWith(begin + marks[i]), text);
            const stream = await ask(server, '/v1/completions', { ...body, stream: true });
            const said = events(stream.text).map(e => e.choices[0].text);
            same(said.join(''), text);
            check(said.length > 4, said);
        }
    },

    async 'echo beside writers changes nothing'() {
        const request = { prompt: PROMPT, max_tokens: 8, temperature: 0, echo: true, logprobs: 2 };
        const alone = await ask(server, '/v1/completions', request);
        const all = await Promise.all([
            ...Array.from({ length: 6 }, () => ask(server, '/v1/completions', SEEDED)),
            ...Array.from({ length: 6 }, () => ask(server, '/v1/completions', request))
        ]);
        for (const r of all.slice(6)) same(r.json.choices, alone.json.choices);
    },

    async 'openai: json_schema with zod'() {
        const client = await openai();
        const { z } = await load('zod');
        const { zodResponseFormat } = await load('openai/helpers/zod').catch(
            () =>
                import(pathToFileURL(join(resolve(modules), 'node_modules/openai/helpers/zod.mjs')))
        );
        const Person = z.object({ name: z.string().max(8), old: z.boolean() });
        const r = await client.chat.completions.parse(
            chat('Who?', { response_format: zodResponseFormat(Person, 'person'), max_tokens: 200 })
        );
        same(r.choices[0].finish_reason, 'stop');
        check(typeof r.choices[0].message.parsed.old === 'boolean', r.choices[0]);
    },

    async 'json_object, a schema as a stream, and a grammar'() {
        const object = await ask(
            server,
            '/v1/chat/completions',
            chat('x', { response_format: { type: 'json_object' }, max_tokens: 300, seed: 1 })
        );
        const choice = object.json.choices[0];
        if (choice.finish_reason === 'stop') JSON.parse(choice.message.content);
        const format = { type: 'json_schema', json_schema: { name: 'a', schema: SCHEMA } };
        const stream = await ask(
            server,
            '/v1/chat/completions',
            chat('x', { response_format: format, max_tokens: 200, stream: true, temperature: 1 })
        );
        const text = events(stream.text)
            .map(e => e.choices[0].delta.content ?? '')
            .join('');
        same(Object.keys(JSON.parse(text)), ['name', 'old']);
        const yes = await ask(server, '/v1/completions', {
            prompt: 'x',
            grammar: 'root ::= "yes" | "no"',
            max_tokens: 20
        });
        check(/^(yes|no)$/.test(yes.json.choices[0].text), yes.text);
    },

    async 'structured output is kept in all spellings, or refused'() {
        const schema = { ...SCHEMA, properties: { team: { enum: ['red', 'b"l\\ue'] } } };
        schema.required = ['team'];
        const ask_for = more =>
            ask(server, '/v1/chat/completions', chat('Which?', { max_tokens: 60, ...more }));
        for (const more of [
            { response_format: { type: 'json_object', schema } },
            { response_format: { type: 'json_object', json_schema: { name: 't', schema } } },
            { response_format: { type: 'json_schema', schema } },
            { response_format: { type: 'json_schema', json_schema: { schema } } },
            { json_schema: schema },
            { guided_json: schema },
            { guided_json: JSON.stringify(schema) },
            { structured_outputs: { json: schema, choice: null } },
            { structured_outputs: { json: JSON.stringify(schema), json_object: false } },
            { format: schema, response_format: { type: 'text' }, grammar: null }
        ]) {
            const r = await ask_for(more);
            same(r.status, 200, r.text);
            const { team } = JSON.parse(r.json.choices[0].message.content);
            check(['red', 'b"l\\ue'].includes(team), team);
        }
        const words = ['"quoted" \\', 'two\nlines', '\u00fcber'];
        for (const more of [{ guided_choice: words }, { structured_outputs: { choice: words } }]) {
            const r = await ask_for({ ...more, temperature: 1 });
            same(r.status, 200, r.text);
            check(words.includes(r.json.choices[0].message.content), r.text);
        }
        for (const more of [{ format: 'json' }, { structured_outputs: { json_object: true } }]) {
            const r = await ask_for(more);
            check(r.json.choices[0].message.content.startsWith('{'), r.text);
        }
        for (const [param, more, says = /./] of [
            ['guided_grammar', { guided_grammar: 'root ::= "a"' }, /grammar has it/],
            ['guided_regex', { guided_regex: 'a' }, /grammar/],
            ['regex', { regex: 'a' }, /grammar/],
            ['structured_outputs', { structured_outputs: { regex: 'a' } }, /field grammar/],
            ['structured_outputs', { structured_outputs: 'json' }, /object/],
            ['structured_outputs', { structured_outputs: { json: schema, choice: ['a'] } }, /excl/],
            ['guided_choice', { guided_choice: [] }],
            ['guided_choice', { guided_choice: 'a' }],
            ['guided_choice', { guided_choice: ['a', 1] }],
            ['guided_json', { guided_json: 1 }],
            ['guided_json', { guided_json: '{' }],
            ['json_schema', { json_schema: [] }],
            ['json_schema', { json_schema: { not: {} } }],
            ['format', { format: 'xml' }],
            ['format', { format: true }],
            ['response_format', { response_format: { type: 'json_object', schema: 1 } }],
            ['response_format', { response_format: { type: 'json_object', json_schema: {} } }],
            ['response_format', { response_format: { type: 'regex' } }, /text, json_object/],
            [
                'response_format',
                { response_format: { type: 'json_schema', schema, json_schema: { schema } } }
            ],
            ['grammar', { grammar: 'root ::= "a"', response_format: { type: 'json_object' } }],
            ['guided_json', { json_schema: schema, guided_json: schema }, /json_schema and guided/],
            ['format', { grammar: 'root ::= "a"', format: 'json' }, /exclude each other/]
        ]) {
            const { status, json, text } = await ask_for(more);
            same([status, json.error?.param], [400, param], text);
            check(says.test(json.error.message), text);
        }
    },

    async 'a field that would change the result is done or refused'() {
        const path = { chat: '/v1/chat/completions', text: '/v1/completions' };
        const bodies = { chat: chat('x', { max_tokens: 2 }), text: { prompt: 'x', max_tokens: 2 } };
        for (const [kind, name, bad, good] of [
            ['chat', 'audio', {}, null],
            ['chat', 'echo', true, false],
            ['chat', 'function_call', { name: 'f' }, 'auto'],
            ['chat', 'modalities', ['audio'], ['text']],
            ['chat', 'verbosity', 'low', 'medium'],
            ['chat', 'reasoning_format', 'none', 'auto'],
            ['chat', 'add_generation_prompt', false, true],
            ['chat', 'think', false, null],
            ['chat', 'prompt', 'x', null],
            ['text', 'messages', [], null],
            ['text', 'suffix', 'y', ''],
            ['text', 'suffix', 1, null],
            ['text', 'best_of', 2, 1],
            ['text', 'best_of', '1', 1],
            ['text', 'top_logprobs', 2, 0],
            ['text', 'typical_p', 0.9, 1.0],
            ['text', 'typical_p', '1', 1],
            ['text', 'mirostat', 2, 0],
            ['text', 'mirostat', false, 0],
            ['text', 'xtc_probability', 0.1, -0],
            ['text', 'lora', [{ id: 0, scale: 1 }], []],
            ['text', 'samplers', ['top_k'], null],
            ['text', 'n_probs', 3, 0],
            ['text', 'repetition_penalty', 1.1, 1],
            ['text', 'min_tokens', 3, 0],
            ['text', 'min_tokens', [], 0],
            ['text', 'ignore_eos', 1, false],
            ['text', 'repeat_last_n', -2, -1],
            ['text', 'n_predict', -2, 2],
            ['text', 'n_predict', 3, 2]
        ]) {
            const no = await ask(server, path[kind], { ...bodies[kind], [name]: bad });
            same([no.status, no.json.error?.param], [400, name], no.text);
            const yes = await ask(server, path[kind], { ...bodies[kind], [name]: good });
            same(yes.status, 200, `${name} ${yes.text}`);
        }
        const two = await ask(server, path.text, { ...bodies.text, n: 2, best_of: 2 });
        same(two.json.choices?.length, 2, two.text);
        const e = await ask(server, path.text, { ...bodies.text, repetition_penalty: 2 });
        check(/repeat_penalty .*has it/.test(e.json.error.message), e.text);
        const predict = await ask(server, path.text, { prompt: 'x', n_predict: 3 });
        same(predict.json.usage.completion_tokens, 3);
        const on = { prompt: PROMPT, temperature: 0, max_tokens: 300, ignore_eos: true };
        same((await ask(server, path.text, on)).json.usage.completion_tokens, 300);
        const plain = { prompt: PROMPT, max_tokens: 40, temperature: 0 };
        const say = async more =>
            (await ask(server, path.text, { ...plain, ...more })).json.choices[0].text;
        const strong = { presence_penalty: 2, frequency_penalty: 2 };
        same(await say({ ...strong, repeat_last_n: 0 }), await say({}));
        check((await say({ ...strong, repeat_last_n: -1 })) !== (await say({})), 'penalties');
    },

    async 'top_p 0 writes the best tokens, whatever the seed'() {
        const ask_ = { prompt: PROMPT, max_tokens: 30, top_k: 0, min_p: 0 };
        const written = async (path, more) => {
            const { json } = await ask(server, path, { ...ask_, ...more });
            return json.content ?? json.choices[0].text;
        };
        for (const path of ['/v1/completions', '/completion']) {
            const best = await written(path, { temperature: 0 });
            for (const top_p of [0, 1e-60])
                for (const seed of [1, 2, 3])
                    same(await written(path, { temperature: 2, top_p, seed }), best, path);
        }
    },

    async 'penalties see all of the text, as OpenAI has it, and as llama.cpp has it 64 tokens'() {
        const penalties = ['frequency_penalty', 'presence_penalty'];
        for (const [path, asked, wanted] of [
            ['/v1/completions', { prompt: PROMPT }, -1],
            ['/v1/chat/completions', { messages: chat('A bird').messages }, -1],
            ['/completion', { prompt: PROMPT }, 64]
        ])
            for (const name of penalties) {
                const body = { ...asked, max_tokens: 200, temperature: 0, ignore_eos: true };
                const written = async more => {
                    const { json } = await ask(server, path, { ...body, [name]: 1.5, ...more });
                    return json.content ?? json.choices[0].message?.content ?? json.choices[0].text;
                };
                const [all, few] = [
                    await written({ repeat_last_n: -1 }),
                    await written({ repeat_last_n: 64 })
                ];
                check(all !== few, `${path}: ${name} shows no difference`);
                check((await written({})) === (wanted < 0 ? all : few), `${path}: ${name}`);
            }
    },

    async 'a schema or grammar that cannot be kept is a 400'() {
        for (const more of [
            { response_format: { type: 'json_schema', json_schema: { schema: { not: {} } } } },
            { response_format: { type: 'json_schema' } },
            { response_format: 'json' },
            { grammar: 'root ::= (' },
            { grammar: 'root ::= root "a"' }
        ]) {
            const r = await ask(server, '/v1/chat/completions', chat('x', more));
            same(r.status, 400, r.text);
            same(r.json.error.type, 'invalid_request_error');
        }
    },

    async 'openai: a stream that is aborted frees its slot'() {
        const client = await openai();
        await idle(server);
        const before = await metrics(server);
        const stream = await client.completions.create({
            model: NAME,
            stream: true,
            ...(await endless(server))
        });
        for await (const _ of stream) break;
        stream.controller.abort();
        await idle(server);
        const after = await metrics(server);
        const written = after.bitnet_written_tokens_total - before.bitnet_written_tokens_total;
        check(written < 480, `it wrote ${written} tokens`);
    },

    async 'openai: n texts, which differ'() {
        const client = await openai();
        const request = { model: NAME, ...SEEDED, n: 5 };
        const r = await client.completions.create(request);
        same(
            r.choices.map(c => c.index),
            [0, 1, 2, 3, 4]
        );
        same(new Set(r.choices.map(c => c.text)).size, 5);
        const one = await client.completions.create({ model: NAME, ...SEEDED });
        same(r.choices[0].text, one.choices[0].text);
        same(r.usage.prompt_tokens, one.usage.prompt_tokens);
        const chunks = await collect(await client.completions.create({ ...request, stream: true }));
        const texts = ['', '', '', '', ''];
        for (const c of chunks) texts[c.choices[0].index] += c.choices[0].text;
        same(
            texts,
            r.choices.map(c => c.text)
        );
    },

    async 'a list of prompts, and tokens as a prompt'() {
        const { json } = await ask(server, '/v1/completions', {
            prompt: [PROMPT, 'The dog'],
            max_tokens: 6,
            temperature: 0,
            n: 2
        });
        same(json.choices.length, 4);
        same(json.choices[0].text, json.choices[1].text);
        const {
            json: { tokens }
        } = await ask(server, '/tokenize', { content: PROMPT, add_special: true });
        const own = await ask(server, '/v1/completions', {
            prompt: tokens,
            max_tokens: 6,
            temperature: 0
        });
        same(own.json.choices[0].text, json.choices[0].text);
        const back = await ask(server, '/detokenize', { tokens: tokens.slice(1) });
        same(back.json.content, PROMPT);
    },

    async 'stop strings'() {
        const whole = await ask(server, '/v1/completions', {
            prompt: PROMPT,
            max_tokens: 100,
            temperature: 0
        });
        const text = whole.json.choices[0].text,
            word = text.split(' ')[6];
        for (const stop of [word, ['never seen', word]]) {
            for (const stream of [false, true]) {
                const r = await ask(server, '/v1/completions', {
                    prompt: PROMPT,
                    max_tokens: 100,
                    temperature: 0,
                    stop,
                    stream
                });
                const parts = stream ? events(r.text) : [r.json];
                same(parts.map(p => p.choices[0].text).join(''), text.slice(0, text.indexOf(word)));
                same(parts.at(-1).choices[0].finish_reason, 'stop');
            }
        }
    },

    async 'logit_bias forbids and forces'() {
        const {
            json: {
                tokens: [moon]
            }
        } = await ask(server, '/tokenize', { content: ' moon' });
        const r = await ask(server, '/v1/completions', {
            prompt: PROMPT,
            max_tokens: 3,
            temperature: 0,
            logit_bias: { [moon]: 100 }
        });
        same(r.json.choices[0].text, ' moon moon moon');
    },

    async 'the next turn of a chat reads only what is new'() {
        const messages = [{ role: 'user', content: 'Tell me of a dragon that nobody knows.' }];
        const request = { messages, max_tokens: 20, temperature: 0 };
        const first = (await ask(server, '/v1/chat/completions', request)).json;
        messages.push(first.choices[0].message, { role: 'user', content: 'And then?' });
        const second = (await ask(server, '/v1/chat/completions', request)).json;
        const cached = second.usage.prompt_tokens_details.cached_tokens;
        // The template ends in ": ", whose blank becomes a part of the reply's first token.
        same(cached, first.usage.prompt_tokens - 1, 'cached:');
        const other = await start(serve, ['-m', model, '--parallel', '1']);
        const fresh = (await ask(other, '/v1/chat/completions', request)).json;
        same(await other.stop(), 0);
        same(fresh.choices[0].message.content, second.choices[0].message.content);
        same(fresh.usage.prompt_tokens_details.cached_tokens, 0);
    },

    async 'a reply goes on'() {
        const say = async (messages, max_tokens) => {
            const body = { messages, max_tokens, temperature: 0 };
            return (await ask(server, '/v1/chat/completions', body)).json.choices[0].message;
        };
        const chat = [{ role: 'user', content: 'Tell me a story.' }];
        const whole = await say(chat, 60),
            begun = await say(chat, 25),
            rest = await say([...chat, begun], 35);
        same(begun.content + rest.content, whole.content, 'the text in two parts is');
    },

    async 'the same request gives the same text under load'() {
        const alone = await ask(server, '/v1/completions', { ...SEEDED, logprobs: 2 });
        const many = Array.from({ length: 48 }, (_, i) =>
            i % 3 === 0
                ? ask(server, '/v1/completions', { ...SEEDED, logprobs: 2 })
                : i % 3 === 1
                  ? ask(server, '/v1/chat/completions', chat(`Story number ${i}`, { seed: i }))
                  : ask(server, '/v1/completions', { prompt: `${PROMPT} ${i}`, max_tokens: i })
        );
        const all = await Promise.all(many);
        check(
            all.every(r => r.status === 200),
            all.find(r => r.status !== 200)?.text
        );
        for (let i = 0; i < 48; i += 3) same(all[i].json.choices, alone.json.choices, `text ${i}`);
    },

    async 'a model with a merged vocabulary streams whole characters'() {
        const { text } = await ask(server, '/v1/completions', {
            prompt: 'x',
            max_tokens: 60,
            temperature: 5,
            seed: 9,
            stream: true,
            top_k: -1,
            min_p: 0
        });
        const whole = await ask(server, '/v1/completions', {
            prompt: 'x',
            max_tokens: 60,
            temperature: 5,
            seed: 9,
            top_k: -1,
            min_p: 0
        });
        same(
            events(text)
                .map(e => e.choices[0].text)
                .join(''),
            whole.json.choices[0].text
        );
    },

    async 'LangChain: invoke, stream, structured output'() {
        const { ChatOpenAI } = await load('@langchain/openai');
        const { z } = await load('zod');
        const options = {
            model: NAME,
            apiKey: 'none',
            temperature: 0,
            maxTokens: 5,
            maxRetries: 0,
            configuration: { baseURL }
        };
        const llm = new ChatOpenAI(options);
        const whole = await llm.invoke('A fox');
        const plain = await ask(server, '/v1/chat/completions', chat('A fox'));
        same(whole.content, plain.json.choices[0].message.content);
        same(whole.usage_metadata.output_tokens, 5);
        let text = '';
        for await (const chunk of await llm.stream('A fox')) text += chunk.content;
        same(text, whole.content);
        const wide = new ChatOpenAI({ ...options, maxTokens: 200 });
        const person = await wide
            .withStructuredOutput(z.object({ old: z.boolean() }), { method: 'jsonSchema' })
            .invoke('Who?');
        check(typeof person.old === 'boolean', person);
    },

    async 'AI SDK: generateText, streamText, generateObject'() {
        const { generateText, streamText, generateObject } = await load('ai');
        const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
        const { z } = await load('zod');
        const provider = createOpenAICompatible({
            name: 'here',
            baseURL,
            supportsStructuredOutputs: true,
            includeUsage: true
        });
        const options = {
            model: provider(NAME),
            temperature: 0,
            maxOutputTokens: 5,
            maxRetries: 0
        };
        const whole = await generateText({ ...options, prompt: 'A wolf' });
        const plain = await ask(server, '/v1/chat/completions', chat('A wolf'));
        same(whole.text, plain.json.choices[0].message.content);
        same(whole.finishReason, 'length');
        const stream = streamText({ ...options, prompt: 'A wolf' });
        let text = '';
        for await (const part of stream.textStream) text += part;
        same(text, whole.text);
        same((await stream.usage).outputTokens, 5);
        const { object } = await generateObject({
            ...options,
            maxOutputTokens: 200,
            prompt: 'Who?',
            schema: z.object({ old: z.boolean() })
        });
        check(typeof object.old === 'boolean', object);
    },

    async 'openai: errors are its own classes'() {
        const OpenAI = await load('openai');
        const client = await openai();
        const bad = await client.chat.completions
            .create(chat('x', { temperature: 'hot' }))
            .catch(e => e);
        check(bad instanceof OpenAI.BadRequestError && bad.param === 'temperature', String(bad));
        const none = await client.get('/v1/nothing').catch(e => e);
        check(none instanceof OpenAI.NotFoundError, String(none));
        const embeddings = await client.embeddings
            .create({ model: NAME, input: 'x' })
            .catch(e => e);
        check(embeddings instanceof OpenAI.BadRequestError, String(embeddings));
        check(/does not say how to make embeddings/.test(embeddings.message), embeddings.message);
        const models = await collect(await client.models.list());
        const { meta } = models[0];
        check(meta.n_vocab === 2048 && meta.n_ctx === 512 && meta.n_layers < 100, models[0]);
        check(meta.size > 1e6 && /^\w[\w-]*$/.test(meta.kernels), models[0]);
        same(
            models.map(m => m.id),
            [NAME]
        );
        same(models[0].capabilities, ['completion']);
    }
};

const all = { ...cases, ...embeddings(serve, logprobs, load) };
const failed = await runAll('server clients', all, filter);
same(await server.stop(), 0, 'the exit code is');
process.exit(failed ? 1 : 0);
