// The JavaScript API in Node, over every module variant that build/web holds and this engine runs:
// the same text as native generate, and what happens when something is in its way.
//
//     ./build.sh web && ./build.sh suite web-node      (or: node tests/web/node.mjs GENERATE [FILTER])
//     node tests/web/node.mjs GENERATE --peak MODEL    peak memory with a large file
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import * as http from 'node:http';
import * as os from 'node:os';
import * as path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';
import { madeModel } from './made.mjs';

const HANG = 600000; // ms; no machine is so slow: whatever takes longer never comes
const root = fileURLToPath(new URL('../../', import.meta.url)),
    web = path.join(root, 'build/web');
const { BitNet, BitNetError, cache } = await import(pathToFileURL(path.join(web, 'node.js')));
const engines = fs.readdirSync(web).filter(file => /^engine-.*\.js$/.test(file));
const variants = engines.map(file => /^engine-(.*)\.js$/.exec(file)[1]);
const generateExe = path.resolve(process.argv[2] ?? path.join(root, 'build/generate'));
const TINY = path.join(root, 'examples/tiny.gguf');
const MODELS = [
    TINY,
    path.join(root, 'tests/data/a.gguf'),
    path.join(root, 'tests/data/b.gguf'),
    path.resolve(root, process.env.BITNET_TEST_DATA ?? '../shared', 'models/c.gguf')
].filter(file => fs.existsSync(file));
const PROMPT = 'Once upon a time';
const PROMPTS = [PROMPT, 'Grüße, 世界 🌍! The capital of France is'];

// ---- cases ----

const cases = [];
const test = (name, run) => cases.push({ name, run });
class Skip extends Error {}

function equal(got, expected, what = '') {
    const [g, e] = [got, expected].map(v => JSON.stringify(v));
    if (g !== e) throw new Error(`${what} is\n  ${g}, not\n  ${e}`);
}

const ok = (condition, what) => {
    if (!condition) throw new Error(`not so: ${what}`);
};

/** The error that the promise, or function, fails with, which must have this code. */
async function fails(code, promise) {
    const timer = new Promise(r => setTimeout(r, HANG, 'nothing happened').unref());
    const run = async () => (typeof promise === 'function' ? promise() : promise);
    const e = await Promise.race([
        run().then(
            () => 'no error',
            error => error
        ),
        timer
    ]);
    if (!(e instanceof Error) && !(e instanceof DOMException)) throw new Error(`${code}: ${e}`);
    equal(e.name === 'AbortError' ? e.name : e.code, code, `the code of "${e.message}"`);
    ok(
        e.name === 'AbortError' || (e instanceof BitNetError && e.message),
        'a BitNetError with words'
    );
    return e;
}

async function withModel(source, options, use) {
    const model = await BitNet.load(source, options);
    try {
        return await use(model);
    } finally {
        await model.free();
    }
}

/** The same with another build of the module. */
async function withLib(lib, source, use) {
    const model = await lib.BitNet.load(source);
    try {
        return await use(model);
    } finally {
        await model.free();
    }
}

async function collect(iterator) {
    let text = '',
        r;
    while (!(r = await iterator.next()).done) text += r.value;
    return { text, stats: r.value };
}

/** The same function, which computes nothing twice. */
function remembered(f) {
    const known = new Map();
    return (...args) => {
        const key = JSON.stringify(args);
        if (!known.has(key)) known.set(key, f(...args));
        return known.get(key);
    };
}

/** What examples/generate writes, less the prompt and the last newline. */
const native = remembered((model, prompt, ...options) => {
    const out = execFileSync(generateExe, ['-m', model, '-p', prompt, ...options], {
        stdio: ['ignore', 'pipe', 'ignore'],
        encoding: 'utf8'
    });
    ok(out.startsWith(prompt), 'generate repeats the prompt');
    return out.slice(prompt.length, -1);
});

/** The same as bits, from build/crosscheck: all logits after the prompt, then for each of n tokens
 * it and its logit. */
const nativeBits = remembered((model, prompt, n) => {
    const out = execFileSync(
        path.join(root, 'build/crosscheck'),
        ['-m', model, '-p', prompt, '-n', String(n)],
        { stdio: ['ignore', 'pipe', 'ignore'], encoding: 'utf8' }
    );
    const lines = out.split('\n').filter(l => /^(logits after the prompt|greedy token)/.test(l));
    equal(lines.length, 1 + n, 'lines of logits');
    return lines.map(l => l.split(' | ')[3]);
});

const threadsAtStart = fs.existsSync('/proc/self/task')
    ? fs.readdirSync('/proc/self/task').length
    : 0;

/** The variants that run here. Node 20 runs relaxed with --experimental-wasm-relaxed-simd
 * --no-liftoff only; tests/suites.sh does so in a second run. */
const usable = [];
for (const variant of variants)
    await BitNet.load(TINY, { variant }).then(
        model => usable.push(variant) && model.free(),
        e => equal([variant, e.code], ['relaxed', 'ERR_UNSUPPORTED'])
    );

const folders = [];
process.on('exit', () => {
    for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true });
});

function newFolder() {
    folders.push(fs.mkdtempSync(path.join(os.tmpdir(), 'bitnet-web-')));
    return folders.at(-1);
}

const delay = (ms, value) => new Promise(r => setTimeout(r, ms, value));

async function until(condition, what) {
    for (const end = Date.now() + HANG; !condition(); await delay(10))
        if (Date.now() > end) throw new Error(`it never comes: ${what}`);
}

/** What all workers have said, in order: messages of bitnet.js, and those of edited workers. */
const heard = [];
const { on } = Worker.prototype;
Worker.prototype.on = function (name, listener) {
    return on.call(this, name, (...args) => {
        if (name === 'message') heard.push(args[0]);
        return listener(...args);
    });
};

// ---- a server that can be slow, wrong and incomplete ----

const tiny = fs.readFileSync(TINY);
let tinyAsked,
    asked = false,
    closed = false; // of slow.gguf, silent.gguf and endless.gguf
const files = new Map(); // by their paths
let hubPointer = tiny; // what the hub has in git
const hubAsked = [],
    gatedAsked = [];
/** This server, under another origin. */
const otherOrigin = () => at('tiny.gguf').replace('127.0.0.1', 'localhost');
const server = http.createServer(async (request, response) => {
    if (request.url.startsWith('/some-one/')) {
        hubAsked.push(request.url);
        return response.end(/\/raw\//.test(request.url) ? hubPointer : tiny);
    }
    const { pathname } = new URL(request.url, 'http://localhost');
    if (files.has(pathname)) {
        const file = files.get(pathname);
        response.writeHead(200, { 'content-length': file.length });
        return response.end(request.method === 'HEAD' ? '' : file);
    }
    switch (pathname) {
        case '/tiny.gguf':
            tinyAsked = request.headers;
            response.writeHead(200, { 'content-length': tiny.length }).end(tiny);
            break;
        case '/chunked.gguf':
            response.write(tiny.subarray(0, 1000));
            response.end(tiny.subarray(1000));
            break;
        case '/gzip.gguf': {
            const packed = gzipSync(tiny, { level: 1 });
            response.writeHead(200, {
                'content-encoding': 'gzip',
                'content-length': packed.length
            });
            response.end(packed);
            break;
        }
        case '/slow.gguf':
            response.on('close', () => (closed = true));
            response.writeHead(200, { 'content-length': tiny.length });
            for (let i = 0; !response.destroyed; await delay(10))
                if (i < tiny.length - 1000) response.write(tiny.subarray(i, (i += 1000)));
            break; // what is left never comes
        case '/cut.gguf':
            response
                .writeHead(200, { 'content-length': tiny.length })
                .write(tiny.subarray(0, 500000), () => response.destroy());
            break;
        case '/half.gguf':
            response.writeHead(200, { 'content-length': tiny.length }).write(tiny.subarray(0, 500000));
            break; // what is left never comes
        case '/endless.gguf':
            response.on('close', () => (closed = true));
            response.write(tiny);
            for (; !response.destroyed; await delay(1)) response.write(Buffer.alloc(1 << 20));
            break;
        case '/silent.gguf':
            asked = true;
            response.on('close', () => (closed = true));
            break;
        case '/huge.gguf':
            response.writeHead(200, { 'content-length': 5e9 }).write(tiny);
            break;
        case '/page.gguf':
            response.on('close', () => (closed = true));
            response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
            response.write('<!doctype html>\n<html>Sign in, please, to read this</html>');
            break; // what is left never comes
        case '/gated.gguf': {
            gatedAsked.push(request.headers.authorization);
            const error = { 'x-error-message': 'Access to it is restricted.' };
            if (request.headers.authorization === 'Bearer right')
                response.writeHead(302, { location: otherOrigin() }).end();
            else response.writeHead(request.headers.authorization ? 403 : 401, error).end('Hm');
            break;
        }
        case '/expired.gguf':
            response.writeHead(410, { 'content-type': 'application/xml' });
            response.end('<Error>\n  <Code>Expired</Code></Error>');
            break;
        case '/file': {
            const size = fs.statSync(big).size;
            response.writeHead(200, { 'content-length': size });
            fs.createReadStream(big, { highWaterMark: 1 << 20 }).pipe(response);
            break;
        }
        default:
            response.writeHead(404).end('no');
    }
});
let big;
await new Promise(r => server.listen(0, '127.0.0.1', r));
server.unref();
const at = name => `http://127.0.0.1:${server.address().port}/${name}`;

// ---- the same text as native ----

/** build/web, but onToken gets the logits, too. */
let withLogits;
const talkative = () =>
    (withLogits ??= broken(at =>
        edit(
            at('worker/generate.js'),
            'text, index, ...more }',
            'text, index, ...more, logits: bytesAt(bw._bw_logits(session), 4 * bw._bw_number(1)) }'
        )
    ));

const hex = bits => bits.toString(16).padStart(8, '0');

/** What the model's logits are, as nativeBits says it. */
async function bitsOf(model, prompt, n) {
    const said = [];
    const onToken = ({ token, index, logits }) => {
        const bits = Array.from(new Uint32Array(logits.buffer), hex);
        if (index === 0) said.push(bits.join(' '));
        said.push(`${hex(token)} ${bits[token]}`);
    };
    await collect(model.generate(prompt, { maxTokens: n, onToken }));
    return said;
}

if (!variants.includes('relaxed'))
    test('relaxed', () => {
        throw new Skip('no module relaxed');
    });

for (const variant of usable) {
    for (const threads of variant === 'simd' ? [1] : [1, 2, 3]) {
        test(`${variant}/${threads} threads: the same logits`, async () => {
            for (const file of MODELS) {
                const model = await (await talkative()).BitNet.load(file, { variant, threads });
                equal([model.info.variant, model.info.threads], [variant, threads], 'variant');
                for (const prompt of [PROMPT, PROMPTS[1].repeat(4)]) {
                    const got = await bitsOf(model, prompt, 8),
                        expected = nativeBits(file, prompt, 8);
                    ok(got[0] === expected[0], `${file}: the logits after the prompt`);
                    equal(got, expected.slice(0, got.length), file); // a text may end earlier
                }
                await model.free();
            }
        });
        test(`${variant}/${threads} threads: the same text`, async () => {
            for (const file of threads === 3 ? [TINY] : MODELS) {
                await withModel(file, { variant, threads }, async model => {
                    equal([model.info.variant, model.info.threads], [variant, threads], 'variant');
                    for (const prompt of PROMPTS) {
                        const greedy = await collect(model.generate(prompt, { maxTokens: 40 }));
                        equal(
                            greedy.text,
                            native(file, prompt, '-n', '40', '--temp', '0'),
                            `greedy ${file}`
                        );
                        const drawn = await collect(
                            model.generate(prompt, { maxTokens: 40, temperature: 0.9, seed: 7 })
                        );
                        equal(
                            drawn.text,
                            native(file, prompt, '-n', '40', '--temp', '0.9', '-s', '7'),
                            `seed 7 ${file}`
                        );
                    }
                });
            }
        });
    }
}

test('samplers: the same text', () =>
    withModel(TINY, {}, async model => {
        for (const [js, c] of [
            [{ topK: 0, topP: 1, minP: 0 }, ['--top-k', '0', '--top-p', '1', '--min-p', '0']],
            [{ topK: 5 }, ['--top-k', '5']],
            [{ topP: 0.5 }, ['--top-p', '0.5']],
            [{ topP: 0, minP: 0, temperature: 50 }, ['--temp', '0']],
            [{ minP: 0.3 }, ['--min-p', '0.3']],
            [{ repeatPenalty: 1.5 }, ['--repeat-penalty', '1.5']]
        ]) {
            const { text } = await collect(
                model.generate(PROMPT, { maxTokens: 60, temperature: 1.2, seed: 3, ...js })
            );
            equal(
                text,
                native(TINY, PROMPT, '-n', '60', '--temp', '1.2', '-s', '3', ...c),
                c.join(' ')
            );
        }
        const run = () => collect(model.generate(PROMPT, { maxTokens: 30, temperature: 1 }));
        const one = await run(),
            two = await run();
        ok(one.text !== two.text, 'another seed each time');
        const again = await collect(
            model.generate(PROMPT, { maxTokens: 30, temperature: 1, seed: one.stats.seed })
        );
        equal(again.text, one.text, 'the seed of stats');
    }));

test('end of text, of maxTokens and of the context', () =>
    withModel(TINY, { context: 64 }, async model => {
        equal(model.info.context, 64);
        const full = await collect(model.generate(PROMPT));
        equal(full.text, native(TINY, PROMPT, '-c', '64', '--temp', '0'), 'a full context');
        equal([full.stats.reason, full.stats.promptTokens + full.stats.tokens], ['length', 65]);
        const short = await collect(model.generate(PROMPT, { maxTokens: 5 }));
        equal([short.stats.reason, short.stats.tokens], ['length', 5]);
        equal(model.stats, short.stats, 'stats');
        const long = await fails('ERR_FULL', collect(model.generate(PROMPT.repeat(40))));
        ok(/prompt has \d+ tokens, the context 64/.test(long.message), long.message);
        equal((await collect(model.generate(PROMPT, { maxTokens: 5 }))).text, short.text);
        await withModel(TINY, {}, async all => {
            const end = await collect(all.generate(PROMPT));
            equal(end.stats.reason, 'end');
            equal(end.text, native(TINY, PROMPT, '--temp', '0'), 'the whole story');
        });
    }));

test('stop strings', () =>
    withModel(TINY, {}, async model => {
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 80 }));
        for (const stop of [
            [text.slice(20, 25)],
            ['zzzz', text.slice(31, 50)],
            [text[9]],
            ['no such text']
        ]) {
            const got = await collect(model.generate(PROMPT, { maxTokens: 80, stop }));
            equal(
                got.text,
                native(TINY, PROMPT, '-n', '80', '--temp', '0', ...stop.flatMap(s => ['-r', s])),
                stop[0]
            );
            equal(got.stats.reason, stop[0] === 'no such text' ? 'length' : 'stop');
        }
        const held = [];
        for await (const t of model.generate(PROMPT, { maxTokens: 80, stop: text.slice(31, 50) }))
            held.push(t);
        ok(!held.join('').includes(text.slice(31, 34)), 'nothing of a stop string comes out');
        await fails('ERR_ARG', () => collect(model.generate(PROMPT, { stop: [''] })));
    }));

test('onToken', () =>
    withModel(TINY, {}, async model => {
        const events = [];
        const { text, stats } = await collect(
            model.generate(PROMPT, { maxTokens: 30, onToken: e => events.push(e) })
        );
        equal(events.map(e => e.text).join(''), text);
        equal(
            events.map(e => e.index),
            [...Array(30).keys()]
        );
        equal(await model.detokenize(events.map(e => e.token)), text);
        ok(
            stats.prefillPerSecond > 0 && stats.decodePerSecond > 0 && stats.promptTokens > 0,
            'stats'
        );
    }));

test('chat: the same text, and the context is kept', () =>
    withModel(TINY, {}, async model => {
        const messages = [{ role: 'user', content: 'Tell me a story.' }];
        const options = { maxTokens: 40 };
        const first = await collect(model.chat(messages, options));
        messages.push(
            { role: 'assistant', content: first.text },
            { role: 'user', content: 'And then?' }
        );
        const second = await collect(model.chat(messages, options));
        const run = spawnSync(generateExe, ['-m', TINY, '-cnv', '-n', '40', '--temp', '0'], {
            input: 'Tell me a story.\nAnd then?\n',
            encoding: 'utf8'
        });
        equal(`${first.text}\n${second.text}\n`, run.stdout, 'two replies');
        equal(
            second.stats.reusedTokens,
            first.stats.promptTokens + first.stats.tokens - 1,
            'what is kept'
        );
        await withModel(TINY, {}, async fresh => {
            await collect(fresh.generate(PROMPT, options));
            const one = await collect(fresh.chat(messages.slice(0, 1), options));
            equal([one.text, one.stats.reusedTokens], [first.text, 1], 'after another text');
            const edited = [
                { ...messages[0] },
                { role: 'assistant', content: 'No.' },
                { ...messages[2] }
            ];
            const kept = await collect(fresh.chat(edited, options));
            await withModel(TINY, {}, async third => {
                const whole = await collect(third.chat(edited, options));
                equal(
                    [whole.text, whole.stats.reusedTokens],
                    [kept.text, 0],
                    'a chat that was edited'
                );
                ok(kept.stats.reusedTokens > 5, `${kept.stats.reusedTokens} tokens of it are kept`);
            });
        });
        const other = await collect(model.generate(PROMPT, options));
        equal(
            other.text,
            native(TINY, PROMPT, '-n', '40', '--temp', '0'),
            'another text in the same context'
        );
        messages.push(
            { role: 'assistant', content: second.text },
            { role: 'user', content: 'More!' }
        );
        const third = await collect(model.chat(messages, options));
        await withModel(TINY, {}, async fresh =>
            equal(
                third.text,
                (await collect(fresh.chat(messages, options))).text,
                'a chat after another text'
            )
        );
        await collect(model.generate(PROMPT, options));
        const again = await collect(model.generate(PROMPT, options));
        equal([again.text, again.stats.reusedTokens], [other.text, other.stats.promptTokens - 1]);
        await fails('ERR_ARG', async () => collect(model.chat([])));
    }));

test('a NUL is a character like others', () =>
    withModel(TINY, {}, async model => {
        const written = (what, input) =>
            execFileSync(path.join(root, 'build/web-written'), [TINY, what, '30'], {
                input,
                encoding: 'utf8'
            });
        const options = { maxTokens: 30 };
        for (const text of ['Once\0 upon a time', 'Tell me a story.\0', '\0\0']) {
            const { stats, ...prompt } = await collect(model.generate(text, options));
            equal(prompt.text, written('prompt', text), 'behind a prompt');
            equal(stats.promptTokens, 1 + (await model.tokenize(text)).length);
            const reply = await collect(model.chat([{ role: 'user', content: text }], options));
            equal(reply.text, written('message', text), 'a reply');
        }
        const grammar = 'root ::= "a\0b" [^c]';
        const ruled = stop => collect(model.generate(PROMPT, { grammar, stop, ...options }));
        ok(/^a\0b.$/s.test((await ruled([])).text), 'in a grammar');
        const { text, stats } = await ruled(['zz', '\0b']);
        equal([text, stats.reason], ['a', 'stop'], 'in a stop string');
        await fails('ERR_FORMAT', collect(model.generate(PROMPT, { jsonSchema: '{}\0' })));
    }));

/** Two turns of a chat, the second of them ended by how, and a third turn: how many tokens that
 * reuses, and how many the second one's prompt had. */
async function thirdTurn(model, second) {
    const messages = [{ role: 'user', content: 'Tell me a story.' }];
    const say = (role, content) => messages.push({ role, content });
    say('assistant', (await collect(model.chat(messages, { maxTokens: 30 }))).text);
    say('user', 'And then?');
    let text = '';
    try {
        for await (const part of second(messages)) text += part;
    } catch (e) {
        equal(e.name, 'AbortError');
    }
    const { promptTokens } = model.stats;
    say('assistant', text);
    say('user', 'More!');
    const { stats } = await collect(model.chat(messages, { maxTokens: 5 }));
    return { reused: stats.reusedTokens, promptTokens };
}

test('chat: what was stopped is kept', async () => {
    const abort = new AbortController();
    const ways = {
        abort: (model, messages) =>
            model.chat(messages, {
                signal: abort.signal,
                onToken: ({ index }) => index === 7 && abort.abort()
            }),
        'stop string': (model, messages) => model.chat(messages, { stop: 'e' }),
        'abort in the prompt': (model, messages) => {
            const early = new AbortController();
            return model.chat(messages, { signal: early.signal, onPrompt: () => early.abort() });
        },
        leave: async function* (model, messages) {
            for await (const text of model.chat(messages)) {
                yield text;
                return;
            }
        }
    };
    for (const [name, way] of Object.entries(ways)) {
        await withModel(TINY, {}, async model => {
            const { reused, promptTokens } = await thirdTurn(model, m => way(model, m));
            // but for the start of the reply, which a message that was not generated has, too
            const least = name === 'abort in the prompt' ? 40 : promptTokens - 5;
            ok(reused >= least, `${name}: ${reused} of ${promptTokens} tokens are reused`);
        });
    }
});

test('chat: an abort while a token is drawn', async () => {
    const lib = await broken(at => {
        edit(at('worker/generate.js'), 'await nextToken(session);', `$& if (index === 5) ${pause}`);
        edit(at('worker/generate.js'), 'let reading = 0;', 'let paused = false, reading = 0;');
    });
    const model = await lib.BitNet.load(TINY, { sessions: 2 });
    const chat = [{ role: 'user', content: 'Tell me a story.' }];
    const controller = new AbortController(),
        { signal } = controller;
    let text = '';
    const onToken = event => (text += event.text);
    const from = heard.length;
    const running = collect(model.chat(chat, { signal, onToken, seed: 9 })).catch(e => e);
    await until(() => heard.slice(from).some(m => m.paused), 'the pause');
    controller.abort();
    equal((await running).name, 'AbortError');
    equal([model.stats.tokens, model.stats.seed], [5, 9]);
    chat.push({ role: 'assistant', content: text });
    const session = model.session();
    for (const messages of [chat, said(chat, 'user', 'And then?')]) {
        const expected = await collect(session.chat(messages, { maxTokens: 9 }));
        const got = await collect(model.chat(messages, { maxTokens: 9 }));
        equal(got.text, expected.text, 'as if it had not been drawn');
        await session.clear();
    }
    await model.free();
});

test('chat: a reply goes on', () =>
    withModel(TINY, {}, async model => {
        const chat = [{ role: 'user', content: 'Tell me a story.' }];
        const whole = await collect(model.chat(chat, { maxTokens: 60 }));
        const begun = await collect(model.chat(chat, { maxTokens: 25 }));
        chat.push({ role: 'assistant', content: begun.text });
        const rest = await collect(model.chat(chat, { maxTokens: 35 }));
        equal(begun.text + rest.text, whole.text, 'the rest of the reply');
        equal(
            rest.stats.reusedTokens,
            begun.stats.promptTokens + begun.stats.tokens - 1,
            'what is kept'
        );
        const text = begun.text + rest.text;
        chat.splice(1, 1, { role: 'assistant', content: text }, { role: 'user', content: 'More!' });
        const { stats } = await collect(model.chat(chat, { maxTokens: 5 }));
        equal(stats.reusedTokens, rest.stats.promptTokens + rest.stats.tokens - 1, 'after it');
        await withModel(TINY, {}, async fresh => {
            const mine = [chat[0], { role: 'assistant', content: begun.text }];
            const there = await collect(fresh.chat(mine, { maxTokens: 35 }));
            equal([there.text, there.stats.reusedTokens], [rest.text, 0], 'in another model');
            const ended = await collect(fresh.chat([chat[0]]));
            equal(ended.stats.reason, 'end');
            mine[1].content = ended.text;
            const beyond = await collect(fresh.chat(mine, { maxTokens: 5 }));
            ok(beyond.stats.reusedTokens >= ended.stats.promptTokens + ended.stats.tokens - 3, 'kept');
        });
    }));

// ---- sessions ----

const said = (messages, role, content) => [...messages, { role, content }];

test('sessions: several at once, each as if it were alone', async () => {
    const lib = await broken(at =>
        edit(at('worker/generate.js'), 'const alone = step(all) < 0;', '$& post({ passed: all.length });')
    );
    const model = await lib.BitNet.load(TINY, { sessions: 4, threads: 2 });
    equal(model.info.sessions, 4);
    const all = [model, model.session(), model.session(), model.session()];
    const refuses = async (code, call) =>
        equal((await call().catch(error => error)).code, code, 'its code');
    await refuses('ERR_LIMIT', async () => model.session());
    const from = heard.length;
    const run = (session, i) => {
        const seed = ['-n', '40', '--temp', '1', '-s', String(i)];
        const prompt = `${PROMPT}, ${'there was a cat. '.repeat(8 * i)}`;
        const options = { maxTokens: 40, temperature: 1, seed: i };
        return collect(session.generate(prompt, options)).then(got =>
            equal(got.text, native(TINY, prompt, ...seed), `session ${i}`)
        );
    };
    await Promise.all(all.map(run));
    ok(
        heard.slice(from).some(m => m.passed === 4),
        'four in one pass'
    );
    await Promise.all(all.map(run)); // reuses what they hold
    const other = all[2].generate(PROMPT);
    await other.next();
    await refuses('ERR_BUSY', () => collect(all[2].generate(PROMPT)));
    await refuses('ERR_BUSY', () => all[2].clear());
    await other.return();
    await all[3].free();
    await refuses('ERR_FREED', () => all[3].save());
    await run(model.session(), 3);
    await model.free();
    await refuses('ERR_FREED', () => collect(all[1].generate(PROMPT)));
});

test('sessions: free', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const one = model.session();
        const running = one.generate(PROMPT);
        await running.next();
        await one.free(); // also in mid-text
        await fails('ERR_FREED', collect(running));
        const two = model.session(),
            freed = [two.free(), two.free()];
        await freed[0];
        const three = model.session();
        await Promise.all(freed);
        await fails('ERR_LIMIT', () => model.session()); // it is still three's
        const late = three.free();
        await fails('ERR_FREED', collect(three.generate(PROMPT)));
        await late;
        const four = model.session();
        await model.free();
        await four.free();
    }));

test('sessions: what one does not finish does not stop another', () =>
    withModel(TINY, { sessions: 3 }, async model => {
        const [one, two] = [model.session(), model.session()];
        const stop = new AbortController();
        const mask = () => Promise.reject(new RangeError('no'));
        const aborted = fails(
            'AbortError',
            collect(one.generate(PROMPT, { signal: stop.signal, temperature: 1 }))
        );
        const failing = collect(two.generate(PROMPT, { mask })).catch(error => error);
        const onToken = ({ index }) => index === 10 && stop.abort();
        const whole = collect(model.generate(PROMPT, { maxTokens: 60, onToken }));
        await aborted;
        equal((await failing).message, 'no');
        equal((await whole).text, native(TINY, PROMPT, '-n', '60', '--temp', '0'));
        await collect(one.generate(PROMPT, { maxTokens: 5 }));
        await collect(two.generate(PROMPT, { maxTokens: 5 }));
    }));

test('sessions: saved in mid-text, and resumed', async () => {
    const chat = [
        { role: 'system', content: 'Be kind.' },
        { role: 'user', content: 'Tell me a story about a dragon.' }
    ];
    const begun = said(chat, 'assistant', 'There was');
    const options = { maxTokens: 50, temperature: 1, seed: 9, repeatPenalty: 1.1, stop: [' qqq'] };
    const ways = [
        s => s.chat(chat, options),
        s => s.chat(begun, options),
        s => s.generate(PROMPT, options),
        s => s.generate(PROMPT, { ...options, temperature: 0, lookup: 4 })
    ];
    for (const [i, way] of ways.entries()) {
        const resuming = { ...options, seed: undefined, ...(i === 3 && { temperature: 0, lookup: 4 }) };
        const saved = [];
        const whole = await withModel(TINY, { sessions: 2 }, async model => {
            const session = model.session(),
                text = way(session);
            let got = '';
            for (let n = 0, r; !(r = await text.next()).done; n++) {
                got += r.value;
                if ([0, 1, 11].includes(n)) saved.push(await session.save());
            }
            const { stats } = session,
                last = await session.save();
            await session.restore(last);
            await fails('ERR_ARG', collect(session.resume(options))); // it has ended
            return { got, stats };
        });
        equal(saved.length, 3, 'saved');
        await withModel(TINY, { variant: 'simd' }, async model => {
            for (const bytes of saved) {
                await model.restore(bytes);
                const rest = await collect(model.resume(resuming));
                equal([rest.text, rest.stats.tokens], [whole.got, whole.stats.tokens], `way ${i}`);
                await fails('ERR_ARG', collect(model.resume(resuming)));
                if (i > 1) continue;
                const before = i ? 'There was' : '';
                const next = said(said(chat, 'assistant', before + rest.text), 'user', 'And?');
                const { stats } = await collect(model.chat(next, { maxTokens: 2 }));
                ok(stats.reusedTokens > whole.stats.tokens, 'the chat is held');
            }
        });
    }
    await withModel(TINY, {}, async model => {
        const ruled = model.generate(PROMPT, { grammar: 'root ::= [a-z ]*', maxTokens: 40 });
        await ruled.next();
        await fails('ERR_BUSY', model.save());
        await ruled.return();
        await fails('ERR_ARG', collect(model.resume()));
        for (const rules of [{ grammar: 'root ::= "a"' }, { jsonSchema: {} }, { mask: () => null }])
            await fails('ERR_ARG', () => model.resume(rules));
        await fails('ERR_ARG', () => model.resume(null));
        const text = model.generate(PROMPT, { maxTokens: 40 });
        await text.next();
        const bytes = await model.save();
        await text.return();
        const { chat: what, edited } = openSaved(bytes);
        for (const lie of [
            { prompt: 0 },
            { prompt: 1.5 },
            { opened: 1 },
            { reply: null },
            { rng: [1] },
            { rng: [1, -1] },
            { begun: 1 },
            { begun: 'x', style: 2 },
            { messages: 3 }
        ])
            await fails('ERR_FORMAT', model.restore(edited(JSON.stringify({ ...what, ...lie }))));
        await model.restore(edited(JSON.stringify({ ...what, prompt: 1e9 })));
        await fails('ERR_ARG', collect(model.resume()));
        await model.restore(bytes);
        await collect(model.generate(PROMPT, { maxTokens: 2 })); // another text
        await fails('ERR_ARG', collect(model.resume()));
    });
});

test('sessions: a restored text is not lost, nor counted wrongly', () =>
    withModel(TINY, { context: 256 }, async model => {
        const whole = native(TINY, PROMPT, '-n', '30', '--temp', '0');
        let had = 0;
        const onToken = () => had++;
        const running = model.generate(PROMPT, { maxTokens: 30, onToken });
        for (let i = 0; i < 5; i++) await running.next();
        const bytes = await model.save();
        await running.return();
        await model.restore(bytes);
        await fails('ERR_FULL', collect(model.generate(PROMPT.repeat(100))));
        const rest = model.resume({ maxTokens: 30 });
        await rest.next();
        await rest.return();
        ok(model.stats.tokens >= had, `${model.stats.tokens} tokens, of which it had ${had}`);
        equal(model.stats.reason, 'abort');
        await model.restore(bytes);
        const short = await collect(model.resume({ maxTokens: 1, grammar: null, mask: null }));
        equal(short.text, openSaved(bytes).chat.reply, 'nothing more than there was');
        ok(short.stats.reason === 'length' && short.stats.tokens >= had, 'stats of it');
        await model.restore(bytes);
        const { text, stats } = await collect(model.resume({ maxTokens: 30 }));
        equal([text, stats.tokens], [whole, 30], 'all of it');
        // what is stopped can be tried again
        await model.restore(bytes);
        const stop = new AbortController();
        const late = { maxTokens: 30, signal: stop.signal, onPrompt: () => stop.abort() };
        await fails('AbortError', collect(model.resume(late)));
        equal((await collect(model.resume({ maxTokens: 30 }))).text, whole, 'at last');
    }));

test('sessions: saved while a stop string may have begun', () =>
    withModel(TINY, {}, async model => {
        const pieces = [];
        const onToken = ({ text }) => pieces.push(text);
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 40, onToken }));
        const stop = [`${pieces.slice(15, 17).join('').slice(-1)}\u0001`];
        for (const i of [14, 15, 16]) {
            const last = `${pieces[i].slice(-1)}\u0001`; // always begun where the model pauses
            const running = model.generate(PROMPT, { maxTokens: 40, stop: [...stop, last] });
            const { value } = await running.next();
            await new Promise(r => setTimeout(r, 200)); // it has written all that it may
            ok((await model.save()).length > 0, 'the bytes');
            equal(value + (await collect(running)).text, text, 'the text');
        }
    }));

/** The messages in a saved session, and what makes one with another text of them, or length. */
function openSaved(saved) {
    const name = 'bitnet-session1\n'.length,
        start = name + 32 + 4,
        view = new DataView(saved.buffer),
        end = start + view.getUint32(start - 4, true);
    const edited = (text, length = text.length) => {
        const size = Buffer.alloc(4);
        size.writeUInt32LE(length);
        const hash = createHash('sha256').update(text).digest();
        const parts = [saved.subarray(0, name), hash, size, Buffer.from(text), saved.subarray(end)];
        return Uint8Array.from(Buffer.concat(parts));
    };
    return { chat: JSON.parse(new TextDecoder().decode(saved.subarray(start, end))), edited };
}

test('sessions: saved and restored', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const first = [{ role: 'user', content: 'Tell me a story.' }];
        const options = { maxTokens: 30, temperature: 1, seed: 5 };
        const reply = await collect(model.chat(first, options));
        const second = said(said(first, 'assistant', reply.text), 'user', 'And then?');
        const saved = await model.save();
        const next = await collect(model.chat(second, options));
        ok(next.stats.reusedTokens > 20, 'it goes on');
        const expect = async session => {
            const held = await session.restore(saved);
            equal(held, reply.stats.promptTokens + reply.stats.tokens, 'tokens');
            const got = await collect(session.chat(second, options));
            equal(
                [got.text, got.stats.reusedTokens],
                [next.text, next.stats.reusedTokens],
                'after restoring'
            );
        };
        await expect(model.session());
        await expect(model);
        await withModel(TINY, { variant: 'simd', context: 512 }, expect);
        await model.restore(saved.buffer.slice(0));
        for (const [code, bytes] of [
            ['ERR_ARG', 'text'],
            ['ERR_FORMAT', new Uint8Array()],
            ['ERR_FORMAT', saved.subarray(1)],
            ['ERR_TRUNCATED', saved.subarray(0, -1)]
        ])
            await fails(code, model.restore(bytes));
        const refused = async (bytes, what) => {
            const e = await model.restore(bytes).catch(error => error);
            ok(/^ERR_(FORMAT|TRUNCATED|UNSUPPORTED)$/.test(e.code), `${what}: ${e}`);
        };
        for (let at = 0; at < saved.length; at = at < 400 ? at + 3 : at + 9973) {
            const bytes = saved.slice();
            bytes[at] ^= 0x01;
            await refused(bytes, at);
            await refused(saved.slice(0, at), `the first ${at}`);
        }
        const { chat: what, edited } = openSaved(saved);
        const chat = what.messages,
            held = chat.find(message => message.end);
        const lies = [
            ...[-1, 1.5, 2 ** 31, '9', null].map(end => [{ ...held, end }]),
            ...[null, {}, 'x', [null], [held, held], [{ ...held, cut: 1 }], { ...what, style: 1 }]
        ];
        for (const lie of lies) await refused(edited(JSON.stringify(lie)), JSON.stringify(lie));
        for (const text of ['', '[', '['.repeat(1e5)]) await refused(edited(text), text.slice(0, 9));
        await refused(edited('[]', 2 ** 32 - 1), 'a length');
        const far = [chat[0], { ...chat[1], end: 2 ** 31 - 1 }];
        await model.restore(edited(JSON.stringify({ ...what, messages: far })));
        const beyond = await collect(model.chat(second, options));
        await model.clear();
        const fresh = await collect(model.chat(second, options));
        const essence = ({ text, stats }) => [text, stats.promptTokens];
        equal(essence(beyond), essence(fresh), 'an end beyond what it holds');
        await model.restore(edited(JSON.stringify(chat))); // as before 1.0: in no style that is known
        equal(essence(await collect(model.chat(second, options))), essence(fresh), 'an old file');
        await withModel(MODELS[1], {}, other => fails('ERR_UNSUPPORTED', other.restore(saved)));
        await expect(model);
        await model.clear();
        equal((await collect(model.chat(second, options))).stats.reusedTokens, 0, 'cleared');
    }));

test('sessions: restored in another style', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const [first, second] = [model, model.session()];
        const tools = [{ type: 'function', function: { name: 'now', description: 'The time' } }];
        const ask = (session, messages, more) =>
            model.chat.completions.create(
                { messages, max_tokens: 6, temperature: 0, tools, tool_choice: 'auto', ...more },
                { session }
            );
        const hello = [{ role: 'user', content: 'Hello' }];
        const { choices } = await ask(first, hello, { tools: undefined, tool_choice: undefined });
        const saved = await first.save();
        const next = said(said(hello, 'assistant', choices[0].message.content), 'user', 'And?');
        const { usage } = await ask(first, next);
        await second.restore(saved);
        equal((await ask(second, next)).usage.prompt_tokens, usage.prompt_tokens, 'the prompt');
        await second.restore(await second.save());
    }));

// Recurrent layers cannot go back to each token, so some are read again: they are not reused.
test('chat: what a hybrid model reads again is not counted as reused', async () => {
    const file = path.resolve(root, process.env.BITNET_TEST_DATA ?? '../shared', 'models/h2.gguf');
    if (!fs.existsSync(file)) throw new Skip('no h2.gguf: see BITNET_TEST_DATA');
    const options = { maxTokens: 8 },
        first = 'The sky is blue and the grass is green. '.repeat(6),
        second = `${first.slice(0, 120)} Then it rained.`;
    await withModel(file, { variant: 'simd', context: 512 }, async model => {
        await collect(model.generate(first, options));
        const seen = [];
        const { text, stats } = await collect(
            model.generate(second, { ...options, onPrompt: p => seen.push(p) })
        );
        const [a, b] = [await model.tokenize(first), await model.tokenize(second)];
        const common = b.findIndex((token, i) => token !== a[i]);
        ok(common > 20 && stats.reusedTokens < common, `${stats.reusedTokens} of ${common}`);
        equal([seen[0].reusedTokens, seen[0].readTokens], [stats.reusedTokens, stats.reusedTokens]);
        equal(seen.at(-1).readTokens, stats.promptTokens - 1, 'read at the end');
        await model.clear();
        equal((await collect(model.generate(second, options))).text, text, 'the text');
    });
});

// ---- what may be written ----

// ---- embeddings ----

const EMBEDDING = ['q.gguf', 'g.gguf'].map(name =>
    path.resolve(root, process.env.BITNET_TEST_DATA ?? '../shared', 'models', name)
);
const QWEN = EMBEDDING[0];
const needEmbedding = () => {
    for (const file of EMBEDDING) if (!fs.existsSync(file)) throw new Skip(`no ${path.basename(file)}: see BITNET_TEST_DATA`);
};
const TEXTS = [
    ...Array.from({ length: 40 }, (_, i) => `Note ${i}: ${'the sky is blue. '.repeat(i % 7)}`),
    'Grüße, 世界 🌍!',
    'One text is longer than a pass. '.repeat(25)
];

/** The vectors of examples/embed, as hexadecimal bits. */
const nativeVectors = remembered((model, texts, ...options) => {
    const input = texts.map(text => JSON.stringify({ text }) + '\n').join('');
    const out = execFileSync(
        path.join(path.dirname(generateExe), 'embed'),
        ['-q', '-m', model, '--jsonl', '--format', 'raw', ...options],
        { input, maxBuffer: 1e9 }
    );
    const size = out.length / texts.length;
    return vectorBits(texts.map((_, i) => Uint8Array.from(out.subarray(i * size, (i + 1) * size))));
});

const vectorBits = vectors =>
    vectors.map(v => Array.from(new Uint32Array(v.buffer), hex).join(' '));

for (const variant of usable)
    test(`${variant}/embed: the same vectors`, async () => {
        needEmbedding();
        for (const file of EMBEDDING)
            await withModel(file, { variant, threads: 2 }, async model => {
                const { dims, hasHead, pooling, context, contextTrained, sessions } = model.info;
                equal([hasHead, pooling, sessions], [false, 'last', 1]);
                equal([context, contextTrained], [512, 512]);
                const expected = nativeVectors(file, TEXTS);
                const vectors = await model.embed(TEXTS);
                equal(vectors.map(v => v.length), TEXTS.map(() => dims), 'elements');
                ok(vectors.every(v => v.buffer.byteLength === 4 * dims), 'each has a buffer');
                equal(vectorBits(vectors), expected, 'many');
                for (const i of [3, 41])
                    equal(vectorBits(await model.embed(TEXTS[i])), [expected[i]], 'alone');
            });
    });

test('embed: options', async () => {
    needEmbedding();
    await withModel(QWEN, { context: 64 }, async model => {
        equal(model.info.context, 64);
        const vectorsAre = async (options, expected, texts = TEXTS.slice(0, 3)) =>
            equal(vectorBits(await model.embed(texts, options)), expected, JSON.stringify(options));
        const some = TEXTS.slice(0, 3);
        await vectorsAre({ raw: true }, nativeVectors(QWEN, some, '--raw'));
        await vectorsAre({ pooling: 'mean' }, nativeVectors(QWEN, some, '--pooling', 'mean'));
        await vectorsAre({ pooling: 'first' }, nativeVectors(QWEN, some, '--pooling', 'cls'));
        await vectorsAre({ query: 'find it', cut: null }, nativeVectors(QWEN, some, '--query', 'find it'));
        const long = [TEXTS.at(-1)];
        await vectorsAre({ cut: true }, nativeVectors(QWEN, long, '--cut', '-c', '64'), long);
        equal(await model.embed([]), []);
        const full = await fails('ERR_FULL', model.embed([...Array(200).fill(some[0]), ...long]));
        ok(/^texts\[200\]: .*64/.test(full.message), full.message);
        for (const [texts, options] of [
            [5], [null], [[5]], [['a', , 'b']], [{ length: 1, 0: 'a' }],
            ['a', { query: 5 }], ['a', { cut: 1 }], ['a', { raw: 'no' }], ['a', { pooling: 'max' }],
            ['a', { pooling: 'toString' }], ['a', { signal: 5 }], ['a', { onProgress: 5 }],
            ['a', { qery: 'x' }], ['a', null]
        ])
            await fails('ERR_ARG', model.embed(texts, options));
        const why = await fails('ERR_UNSUPPORTED', collect(model.generate(PROMPT)));
        ok(/bitnet_embed.*no output head/.test(why.message), why.message);
        const message = { role: 'user', content: PROMPT };
        equal((await fails('ERR_UNSUPPORTED', collect(model.chat([message])))).message, why.message);
        await vectorsAre({}, nativeVectors(QWEN, some));
        await model.free();
        await fails('ERR_FREED', model.embed('a'));
    });
});

test('embed: a model that writes text', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        equal([model.info.hasHead, model.info.pooling], [true, null]);
        const e = await fails('ERR_ARG', model.embed(PROMPT));
        ok(/pooling/.test(e.message), e.message);
        const bits = nativeVectors(TINY, PROMPTS, '--pooling', 'last');
        equal(vectorBits(await model.embed(PROMPTS, { pooling: 'last' })), bits);
        const text = native(TINY, PROMPT, '-n', '9', '--temp', '0');
        equal((await collect(model.generate(PROMPT, { maxTokens: 9 }))).text, text);
        const full = await fails('ERR_ARG', model.embed(PROMPT, { pooling: 'last' }));
        ok(/sequence 0/.test(full.message), full.message);
        await model.clear();
        equal(vectorBits(await model.embed(PROMPTS, { pooling: 'last' })), bits);
    }));

test('embed: pieces, an abort, and another call between them', async () => {
    needEmbedding();
    const lib = await broken(at =>
        edit(
            at('worker/worker.js'),
            'post({ id, value }, owned);',
            '$& if (value?.vectors) post({ left: value.vectors[0].length });'
        )
    );
    await withLib(lib, QWEN, async model => {
        const many = Array.from({ length: 3000 }, (_, i) => `a text with the number ${i}`);
        const stop = new AbortController(),
            seen = [];
        const onProgress = p => {
            seen.push(p.done);
            if (p.done > 300) stop.abort(new RangeError('enough'));
        };
        const from = heard.length;
        const e = await model.embed(many, { onProgress, signal: stop.signal }).catch(error => error);
        equal(e.message, 'enough');
        ok(seen.length > 1 && seen.at(-1) < 3000, `${seen} are done`);
        const left = heard.slice(from).flatMap(m => m.left ?? []);
        ok(left.length && left.every(n => n === 0), 'transferred, not copied');
        const order = [];
        const first = model.embed(many, { onProgress: p => order.push(p.done) });
        const [one] = await model.embed(many[7]);
        order.push('one');
        const all = await first;
        ok(order.indexOf('one') < order.length - 1, `${order}: between two pieces`);
        equal(order.at(-1), 3000);
        equal(vectorBits([one]), vectorBits([all[7]]));
        equal(vectorBits([all[0], all[2999]]), nativeVectors(QWEN, [many[0], many[2999]]));
        const early = model.embed(many, { signal: AbortSignal.abort() });
        await early.then(() => ok(false, 'an abort before'), error => equal(error.name, 'AbortError'));
        const cause = new Error('of a callback');
        const thrown = model.embed(many, { onProgress: () => { throw cause; } });
        ok((await thrown.catch(error => error)) === cause, 'what onProgress throws');
    });
});

// All is computed in the thread that calls.
test('embed: inline, an abort by a timer', async () => {
    needEmbedding();
    const { BitNet: Inline } = await import(pathToFileURL(path.join(web, 'inline.js')));
    await withLib({ BitNet: Inline }, new Blob([fs.readFileSync(QWEN)]), async model => {
        const signal = AbortSignal.timeout(30);
        let seen = 0;
        const onProgress = p => (seen = p.done);
        const many = Array(20000).fill(TEXTS[6]);
        const e = await model.embed(many, { signal, onProgress }).catch(error => error);
        equal([e.name, seen < many.length], ['TimeoutError', true]);
        equal(vectorBits(await model.embed(TEXTS[6])), nativeVectors(QWEN, [TEXTS[6]]));
    });
});

test('embeddings.create', async () => {
    needEmbedding();
    await withModel(QWEN, {}, async model => {
        const { create } = model.embeddings;
        const some = TEXTS.slice(0, 3),
            expected = nativeVectors(QWEN, some);
        const { data, usage, ...head } = await create({ input: some, model: 'x', dimensions: 256 });
        equal(head, { object: 'list', model: 'x' });
        equal(data.map(d => [d.object, d.index]), [0, 1, 2].map(i => ['embedding', i]));
        equal(vectorBits(data.map(d => Float32Array.from(d.embedding))), expected);
        const tokens = await Promise.all(some.map(text => model.tokenize(text)));
        const each = tokens.map(t => t.length);
        const { prompt_tokens, total_tokens } = usage;
        const ends = prompt_tokens - each[0] - each[1] - each[2]; // what the file adds to a text
        ok(prompt_tokens === total_tokens && [0, 3, 6].includes(ends), `${prompt_tokens} of ${each}`);
        const packed = await create({ input: some[1], encoding_format: 'base64' });
        const bytes = new Uint8Array(Buffer.from(packed.data[0].embedding, 'base64'));
        equal(vectorBits([bytes]), [expected[1]]);
        equal(packed.model, 'bitnet');
        const e = await fails('ERR_ARG', create({ input: ['a', 5] }));
        ok(/^input\[1\]/.test(e.message), e.message);
        for (const request of [
            {}, { input: [1, 2] }, { input: 'a', dimensions: 64 },
            { input: 'a', encoding_format: 'x' }, { input: 'a', dimension: 256 }
        ])
            await fails('ERR_ARG', create(request));
        const signal = AbortSignal.abort();
        await fails('AbortError', create({ input: 'a' }, { signal }));
    });
});

test('page: passages', async () => {
    const { passages } = await import(pathToFileURL(path.join(root, 'web/page/passages.js')));
    const cut = text => [...passages(text)].map(place => text.slice(...place));
    const long = 'This is a paragraph that is longer than a heading, and is one passage.';
    equal(cut(` ${long}\r\n \t\r\n\n\n${long} \n`), [long, long]);
    equal(cut(`# One\n\n## Two\n\n${long}\nmore\n\nend`), [`# One\n\n## Two\n\n${long}\nmore`, 'end']);
    equal(cut(' \n\n'), []);
    const sentence = 'The cat sat on the mat. ';
    const parts = cut(sentence.repeat(100)); // 600 words
    ok(parts.every(part => part.endsWith('mat.') && part.split(' ').length <= 200), parts);
    equal(parts.join(' '), sentence.repeat(100).trim(), 'nothing is lost');
    for (const text of ['🌍'.repeat(2001), 'x' + '🌍'.repeat(2001), 'Grüße。'.repeat(900)]) {
        const all = cut(text);
        equal(all.join(''), text, 'nothing is lost');
        ok(all.every(part => part.length <= 1600 && part.isWellFormed()), 'whole characters');
    }
    const start = performance.now();
    equal(cut('a b\n'.repeat(1e6)).join('').replace(/\s/g, '').length, 2e6);
    ok(performance.now() - start < HANG / 10, 'the time grows with the text');
});

test('logprobs', async () => {
    const lib = await talkative();
    const model = await lib.BitNet.load(TINY, { sessions: 2 });
    const other = collect(model.session().generate('The', { maxTokens: 12, temperature: 1 }));
    const events = [];
    const options = { maxTokens: 12, logprobs: 5, temperature: 2, seed: 4 };
    await collect(model.generate(PROMPT, { ...options, onToken: e => events.push(e) }));
    await other;
    equal(events.length, 12);
    for (const { token, logprobs, logits } of events) {
        const values = Float64Array.from(new Float32Array(logits.buffer));
        const top = Math.max(...values);
        const sum = values.reduce((all, v) => all + Math.exp(v - top), 0);
        const expected = t => values[t] - top - Math.log(sum);
        const best = [...values.keys()].sort((a, b) => values[b] - values[a] || a - b).slice(0, 5);
        equal(logprobs.token, token);
        equal(logprobs.top.map(t => t.token), best);
        for (const t of [logprobs, ...logprobs.top])
            ok(Math.abs(t.logprob - expected(t.token)) < 1e-4, `${t.logprob}`);
        equal(logprobs.text, await model.detokenize([token]));
        equal(new TextDecoder().decode(logprobs.bytes), logprobs.text);
    }
    const none = [];
    await collect(model.generate(PROMPT, { maxTokens: 2, onToken: e => none.push(e.logprobs) }));
    equal(none, [undefined, undefined]);
    await model.free();
});

test('logprobs: bytes of each token, and no token', () =>
    withModel(TINY, {}, async model => {
        const text = 'Grüße, 世界 🌍',
            tokens = [...(await model.tokenize(text))];
        const events = [];
        const options = { logprobs: 20, onToken: e => events.push(e.logprobs) };
        const mask = written => tokens.slice(written.length, written.length + 1);
        const { stats } = await collect(model.generate(PROMPT, { ...options, mask }));
        equal([stats.reason, stats.tokens], ['mask', tokens.length]); // at last none is allowed
        equal(events.map(e => e.token), tokens);
        equal(Buffer.concat(events.map(e => e.bytes)).toString(), text);
        ok(events.some(e => e.text === '\uFFFD'), 'a part of a character');
        for (const { top } of events) {
            equal(new Set(top.map(t => t.token)).size, 20);
            for (const t of top.filter(e => e.text !== '\uFFFD'))
                if (!t.text.startsWith('<|')) equal(t.text, await model.detokenize([t.token]));
        }
    }));

test('logprobs: sessions that are tried alone', async () => {
    const lib = await broken(at => edit(at('worker/generate.js'), 'const alone = ', '$&all.length > 1 || '));
    const model = await lib.BitNet.load(TINY, { sessions: 3 });
    const run = async (session, prompt) => {
        const seen = [];
        const onToken = ({ logprobs: { token, logprob } }) => seen.push([token, logprob]);
        await collect(session.generate(prompt, { maxTokens: 9, logprobs: 0, onToken }));
        return seen;
    };
    const prompts = [PROMPT, 'The cat', 'A day'],
        alone = [];
    for (const prompt of prompts) alone.push(await run(model, prompt));
    const sessions = [model, model.session(), model.session()];
    equal(await Promise.all(sessions.map((s, i) => run(s, prompts[i]))), alone);
    await model.free();
});

test('mask', () =>
    withModel(TINY, {}, async model => {
        const digits = [];
        for (const c of '0123456789') digits.push(...(await model.tokenize(c)));
        const seen = [];
        const onToken = e => seen.push(e.token);
        const masks = {
            digits: () => digits,
            later: async tokens => (await delay(1), tokens.length < 3 ? digits : new Set()),
            all: () => undefined
        };
        const run = mask =>
            collect(model.generate(PROMPT, { maxTokens: 8, mask, onToken, temperature: 1, seed: 2 }));
        const one = await run(masks.digits);
        ok(/^\d{8}$/.test(one.text), one.text);
        const two = await run(masks.later);
        equal([two.text, two.stats.reason, two.stats.tokens], [one.text.slice(0, 3), 'mask', 3]);
        const three = await run(masks.all);
        equal(three.text, native(TINY, PROMPT, '-n', '8', '--temp', '1', '-s', '2'));
        equal(seen.length, 8 + 3 + 8);
        for (const wrong of [7, '123', [1.5], [NaN], [1n], {}])
            await fails('ERR_ARG', run(() => wrong));
        await fails('ERR_ARG', () => model.generate(PROMPT, { mask: digits }));
        const stop = new AbortController();
        const never = () => new Promise(() => setTimeout(() => stop.abort(), 10));
        await fails('AbortError', collect(model.generate(PROMPT, { mask: never, signal: stop.signal })));
        equal((await run(masks.all)).text, three.text, 'after it');
    }));

test('mask: nothing is left behind', async () => {
    const count = `let left = 0;
        const change = (name, by) => {
            const { [name]: own } = EventTarget.prototype;
            AbortSignal.prototype[name] = function (...args) {
                post({ left: (left += by) });
                return own.apply(this, args);
            };
        };
        change('addEventListener', 1);
        change('removeEventListener', -1);`;
    const lib = await broken(at => fs.appendFileSync(at('worker/worker.js'), count));
    const model = await lib.BitNet.load(TINY);
    const from = heard.length;
    await collect(model.generate(PROMPT, { maxTokens: 20, mask: () => undefined }));
    const left = heard.slice(from).flatMap(m => m.left ?? []);
    equal([left.length, Math.max(...left), left.at(-1)], [40, left[0], left[0] - 1], 'listeners');
    await model.free();
});

test('grammar and jsonSchema', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const wild = { temperature: 5, topK: 0, topP: 1, minP: 0, maxTokens: 400 };
        const grammar = 'root ::= ("yes" | "no") [0-9]{3}';
        const schema = {
            type: 'object',
            properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', maximum: 99 } },
            required: ['name', 'age'],
            additionalProperties: false
        };
        for (let seed = 0; seed < 5; seed++) {
            const other = collect(
                (model.others ??= model.session()).generate(PROMPT, { ...wild, seed, grammar })
            );
            const got = await collect(model.generate(PROMPT, { ...wild, seed, jsonSchema: schema }));
            equal(got.stats.reason, 'end');
            const value = JSON.parse(got.text);
            equal(Object.keys(value), ['name', 'age']);
            ok(Number.isInteger(value.age) && value.age <= 99, got.text);
            ok(/^(yes|no)\d{3}$/.test((await other).text), (await other).text);
        }
        const text = JSON.stringify(schema);
        const [a, b] = [text, schema].map(jsonSchema => ({ ...wild, seed: 1, jsonSchema }));
        const one = await collect(model.generate(PROMPT, a));
        equal((await collect(model.generate(PROMPT, b))).text, one.text, 'text or object');
        const free = await collect(model.generate(PROMPT, { maxTokens: 9 }));
        equal(free.text, native(TINY, PROMPT, '-n', '9', '--temp', '0'), 'free again');
        for (const [code, options, words] of [
            ['ERR_FORMAT', { grammar: 'root ::= "a' }, /line 1/],
            ['ERR_UNSUPPORTED', { jsonSchema: { $ref: 'x.json' } }, /\$ref/],
            ['ERR_ARG', { grammar: 5 }, /^grammar:/],
            ['ERR_ARG', { grammar, jsonSchema: {} }, /only one/],
            ['ERR_ARG', { jsonSchema: { const: 5n } }, /^jsonSchema: it is not JSON/]
        ]) {
            const e = await fails(code, () => collect(model.generate(PROMPT, options)));
            ok(words.test(e.message), e.message);
        }
        equal((await collect(model.generate(PROMPT, { maxTokens: 9 }))).text, free.text);
    }));

test('logitBias and penalties', () =>
    withModel(TINY, {}, async model => {
        const tokens = [];
        const onToken = e => tokens.push(e.token);
        const plain = await collect(model.generate(PROMPT, { maxTokens: 20, onToken }));
        const first = tokens[0];
        for (const logitBias of [{ [first]: -Infinity }, new Map([[first, -100]])]) {
            tokens.length = 0;
            await collect(model.generate(PROMPT, { maxTokens: 20, logitBias, onToken }));
            ok(tokens.length && !tokens.includes(first), 'it is forbidden');
        }
        for (const name of ['frequencyPenalty', 'presencePenalty']) {
            tokens.length = 0;
            const options = { maxTokens: 60, [name]: 100, onToken };
            const { text } = await collect(model.generate(PROMPT, options));
            ok(text !== plain.text, name);
            equal(new Set(tokens).size, tokens.length, `${name}: each token once`);
        }
        const wrong = [5, { x: 1 }, { 5: 'a' }, { '-1': 1 }, { '': 1 }, { '0x10': 1 }];
        for (const logitBias of [...wrong, new Map([[null, 1]])])
            await fails('ERR_ARG', () => model.generate(PROMPT, { logitBias }));
    }));

// ---- OpenAI's shape ----

test('chat.completions', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const { create } = model.chat.completions;
        const messages = [{ role: 'user', content: [{ type: 'text', text: 'Tell me a story.' }] }];
        const greedy = { messages, temperature: 0, max_tokens: 30 };
        const plain = [{ role: 'user', content: 'Tell me a story.' }];
        const expected = await collect(model.chat(plain, { maxTokens: 30 }));
        const answer = await create({ ...greedy, model: 'tiny', n: 1, user: 'x' });
        const { promptTokens } = expected.stats;
        equal(
            { ...answer, id: 0, created: 0 },
            {
                id: 0,
                created: 0,
                model: 'tiny',
                object: 'chat.completion',
                choices: [
                    {
                        index: 0,
                        message: { role: 'assistant', content: expected.text, refusal: null },
                        logprobs: null,
                        finish_reason: 'length'
                    }
                ],
                usage: {
                    prompt_tokens: promptTokens,
                    completion_tokens: 30,
                    total_tokens: promptTokens + 30,
                    prompt_tokens_details: { cached_tokens: promptTokens - 1 },
                    completion_tokens_details: { reasoning_tokens: 0 }
                }
            }
        );
        ok(/^chatcmpl-\w{24}$/.test(answer.id), answer.id);
        ok(Math.abs(answer.created - Date.now() / 1000) < 60, 'created');
        const more = { role: 'user', content: 'More' };
        const next = await create({
            ...greedy,
            messages: [...messages, answer.choices[0].message, more]
        });
        ok(next.usage.prompt_tokens_details.cached_tokens > 30, 'its own message is known');

        const session = model.session();
        const stream = await create(
            {
                ...greedy,
                stream: true,
                stream_options: { include_usage: true },
                logprobs: true,
                top_logprobs: 2
            },
            { session }
        );
        const all = [];
        for await (const chunk of stream) all.push(chunk);
        equal(new Set(all.map(c => c.id)).size, 1, 'one id');
        equal(all[0].choices[0].delta, { role: 'assistant', content: '', refusal: null });
        equal(all.map(c => c.choices[0]?.delta.content ?? '').join(''), expected.text);
        const tokens = all.flatMap(c => c.choices[0]?.logprobs?.content ?? []);
        equal(tokens.length, 30, 'logprobs of all tokens');
        for (const { token, logprob, bytes, top_logprobs: top } of tokens) {
            equal([top.length, top[0].token, top[0].logprob], [2, token, logprob]); // greedy
            equal(new TextDecoder().decode(Uint8Array.from(bytes)), token);
        }
        equal(all.at(-2).choices[0].finish_reason, 'length');
        equal([all.at(-1).choices, all.at(-1).usage.completion_tokens], [[], 30]);
        equal(all[0].usage, null);

        const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
        const json = await create({
            messages,
            seed: 1,
            response_format: { type: 'json_schema', json_schema: { name: 'x', schema, strict: true } }
        });
        equal(typeof JSON.parse(json.choices[0].message.content).ok, 'boolean');
        equal(json.choices[0].finish_reason, 'stop');
        const [one, two] = await Promise.all([
            create({ messages, seed: 1, max_tokens: 9 }),
            create({ messages, seed: 1, max_tokens: 9 }, { session })
        ]);
        equal(one.choices, two.choices, 'the same seed, in another session');
        const busy = create({ ...greedy, messages });
        await fails('ERR_BUSY', create(greedy));
        await busy;

        const [end] = await model.tokenize('<|eot_id|>', { special: true });
        const long = await create({ messages, temperature: 0, stream: true });
        let text = '';
        for await (const chunk of long) {
            text += chunk.choices[0].delta.content ?? '';
            if (text.length > 20) break;
        }
        const endless = { messages, temperature: 0, stream: true, logit_bias: { [end]: -100 } };
        const stopped = await create(endless);
        for await (const { choices } of stopped) {
            if (choices[0].delta.content) stopped.controller.abort(); // then the loop just ends
            equal(choices[0].finish_reason, null);
        }
        const mine = new AbortController();
        const aborted = await create(endless, { signal: mine.signal });
        const thrown = await (async () => {
            for await (const { choices } of aborted)
                if (choices[0].delta.content) mine.abort(new RangeError('mine'));
        })().catch(e => e);
        equal(thrown?.message, 'mine', 'the reason of a signal');
        const team = { type: 'object', properties: { team: { enum: ['red', 'blue'] } },
            required: ['team'], additionalProperties: false };
        for (const json of [{ schema: team }, { json_schema: { schema: team } }]) {
            const { choices } = await create({ ...greedy, max_tokens: 60,
                response_format: { type: 'json_object', ...json } });
            ok(/^(red|blue)$/.test(JSON.parse(choices[0].message.content).team), 'a schema is kept');
        }
        for (const [seed, drawn] of [[5, 5], [undefined, undefined], [2n ** 63n, 2n ** 63n]]) {
            await create({ ...greedy, max_tokens: 1, seed });
            const { seed: its } = model.stats;
            equal(typeof its, typeof (drawn ?? 0), 'what a seed is');
            if (drawn) equal(String(its), String(drawn), 'the seed');
        }
        const none = await create({ ...greedy, top_logprobs: 0 });
        equal(none.choices[0].logprobs, null, 'top_logprobs 0 alone asks for nothing');
        for (const [words, request, options] of [
            [/^messages: only parts/, { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }],
            [/^temperature: a number/, { messages, temperature: NaN }],
            [/^n: a number/, { messages, n: 0 }],
            [/^session/, { messages }, { session: null }],
            [/^session/, { messages }, { session: { chat() {} } }],
            [/^signal/, { messages }, { signal: 5 }],
            [/^stream_options: an object/, { messages, stream: true, stream_options: 5 }],
            [/^timeout: no such option/, { messages }, { timeout: 5 }]
        ])
            for (const stream of [false, true]) {
                if (stream && request.stream_options) continue;
                const e = await fails('ERR_ARG', create({ stream, ...request }, options));
                ok(words.test(e.message), e.message);
            }
    }));

test("chat.completions: a call's parameters, in the order of the text", async () => {
    const { writeCall, readJsonCalls } = await import(path.join(root, 'web/client/openai/calls.js'));
    const args = '{"b": "x", "2": [1, {"a":2}], "1": 1.0, "__proto__": null, "b": "y"}';
    const pairs = [['b', 'x'], ['2', '[1, {"a": 2}]'], ['1', '1.0'], ['__proto__', 'null'],
        ['b', 'y']];
    const parameters = pairs
        .map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`)
        .join('');
    equal(
        writeCall(true, 'f', args),
        `<tool_call>\n<function=f>\n${parameters}</function>\n</tool_call>`
    );
    equal(writeCall(true, 'f', '{}'), '<tool_call>\n<function=f>\n</function>\n</tool_call>');
    equal(readJsonCalls(`[{"name": "f", "arguments": {"2": 1.0}}, {"name": "g"}]`), [
        { name: 'f', arguments: '{"2":1.0}' },
        { name: 'g', arguments: '{}' }
    ]);
});

test('tokens', () =>
    withModel(TINY, {}, async model => {
        for (const text of [
            '',
            'a',
            'Grüße, 世界 🌍!\r\n\t x',
            '\uFEFFhi\uFEFF',
            '<|eot_id|>',
            'a\0b',
            'lorem ipsum '.repeat(3000)
        ]) {
            const tokens = await model.tokenize(text);
            ok(tokens instanceof Int32Array, 'an Int32Array');
            equal(await model.detokenize(tokens), text);
        }
        const plain = await model.tokenize('<|eot_id|>');
        const special = await model.tokenize('<|eot_id|>', { special: true });
        ok(plain.length > 1 && special.length === 1, 'special tokens only if asked for');
        equal(
            (await model.tokenize('x', { bos: true })).length,
            (await model.tokenize('x')).length + 1
        );
        for (const wrong of [[1 << 30], [NaN], [1.5], [2 ** 32], [1n], 'ab', null, 5])
            await fails('ERR_ARG', model.detokenize(wrong));
        await fails('ERR_ARG', model.tokenize('x', { bso: true }));
    }));

// ---- what the caller takes ----

test('a loop that pauses pauses the model', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const beside = model.session();
        const whole = native(TINY, PROMPT, '-n', '100', '--temp', '0');
        const pause = async options => {
            const texts = model.generate(PROMPT, { maxTokens: 100, ...options });
            const { value } = await texts.next();
            // as long as another text takes, this one does not get on
            await collect(beside.generate(PROMPT, { maxTokens: 100 }));
            return { texts, value };
        };
        const { texts, value } = await pause({});
        const { text, stats } = await collect(texts);
        equal([value + text, stats.tokens], [whole, 100]);
        const left = await pause({});
        await left.texts.return();
        ok(model.stats.tokens <= 17, `${model.stats.tokens} tokens were written`);
        const abort = new AbortController();
        const stopped = await pause({ signal: abort.signal });
        abort.abort();
        await fails('AbortError', collect(stopped.texts));
        equal((await collect(model.generate(PROMPT, { maxTokens: 100 }))).text, whole, 'after it');
    }));

test('an iterator that nobody has any more frees its session', async () => {
    const script = `
        import { BitNet } from ${JSON.stringify(path.join(web, 'node.js'))};
        import { readFileSync } from 'node:fs';
        const model = await BitNet.load(readFileSync(${JSON.stringify(TINY)}), { threads: 1 });
        const messages = [{ role: 'user', content: 'Tell me a story.' }];
        const starts = [
            () => model.generate('Once'),
            () => model.chat(messages),
            async () => (await model.chat.completions.create({ messages, stream: true }))[
                Symbol.asyncIterator]()
        ];
        for (const start of starts) {
            await (async () => { await (await start()).next(); await 0; })();
            let code;
            do {
                await new Promise(r => setTimeout(r, 10));
                globalThis.gc();
                code = await model.clear().then(() => '', e => e.code);
            } while (code === 'ERR_BUSY');
            console.log(code);
        }
        await model.free();`;
    const file = path.join(newFolder(), 'dropped.mjs');
    fs.writeFileSync(file, script);
    const run = spawnSync(process.execPath, ['--expose-gc', file], { encoding: 'utf8', timeout: HANG });
    equal([run.status, run.stdout, run.stderr], [0, '\n\n\n', '']);
});

test('lookup: the same text in fewer passes', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const prompt = 'One two three four. One two three four. One two three';
        for (const options of [{}, { temperature: 1, seed: 3 }, { stop: 'x' }]) {
            const plain = await collect(model.generate(prompt, { maxTokens: 60, ...options }));
            const events = [];
            const onToken = event => events.push(event);
            const drafted = await collect(
                model.generate(prompt, { maxTokens: 60, lookup: 8, onToken, ...options })
            );
            equal(drafted.text, plain.text);
            equal([drafted.stats.tokens, events.length], [plain.stats.tokens, plain.stats.tokens]);
            equal(events.map(e => e.index), events.map((_, i) => i));
            equal(events.map(e => e.text).join(''), plain.text);
        }
        const [one, two] = [model, model.session()].map(session =>
            collect(session.generate(prompt, { maxTokens: 60, lookup: 8 }))
        );
        equal((await one).text, (await two).text, 'two at once');
        const chat = { maxTokens: 40, lookup: 8 };
        const first = await collect(model.chat([{ role: 'user', content: prompt }], chat));
        await model.clear();
        const { lookup: _, ...without } = chat;
        const same = await collect(model.chat([{ role: 'user', content: prompt }], without));
        equal(first.text, same.text);
        for (const lookup of [-1, 9, 1.5, '2'])
            await fails('ERR_ARG', () => model.generate(prompt, { lookup }));
    }));

test('lookup: what repeats comes in fewer pieces', () =>
    withModel(TINY, {}, async model => {
        const grammar = `root ::= ${JSON.stringify('a b c d e f g h i j '.repeat(12))}`;
        const pieces = async lookup => {
            const texts = [];
            const onToken = event => texts.push(event.text);
            await collect(model.generate(PROMPT, { grammar, lookup, onToken }));
            return texts.filter(text => text).length;
        };
        const [plain, drafted] = [await pieces(0), await pieces(8)];
        ok(drafted < plain / 2, `${drafted} pieces, and ${plain} without`);
    }));

test('many messages are tokenized once; what fails is no abort', async () => {
    const lib = await broken(at => {
        edit(at('worker/chat.js'), 'failure, put,', 'failure, post, put,');
        edit(at('worker/chat.js'), 'const n = withTexts(', 'post({ read: messages.length });\nconst n = withTexts(');
    });
    const model = await lib.BitNet.load(TINY);
    const turns = n =>
        Array.from({ length: n }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: 'a' }));
    const reads = async messages => {
        const from = heard.length;
        const end = await collect(model.chat(messages, { maxTokens: 2 })).catch(e => e);
        return [heard.slice(from).flatMap(m => m.read ?? []), end];
    };
    const [many, e] = await reads(turns(16001));
    equal([many, e.code], [[16001], 'ERR_FULL']);
    equal(model.stats.reason, 'error');
    const [few, { text, stats }] = await reads(turns(41));
    equal([few, stats.reason], [[41], 'length']);
    const more = [...turns(41), { role: 'assistant', content: text }, { role: 'user', content: 'b' }];
    equal((await reads(more))[0], [1], 'behind the reply');
    await model.free();
});

// ---- sources ----

test('sources', async () => {
    const expected = native(TINY, PROMPT, '-n', '8', '--temp', '0');
    const buffer = tiny.buffer.slice(tiny.byteOffset, tiny.byteOffset + tiny.length);
    const sources = {
        path: TINY,
        relative: path.relative(process.cwd(), TINY),
        url: pathToFileURL(TINY),
        fileUrl: pathToFileURL(TINY).href,
        http: at('tiny.gguf'),
        httpUrl: new URL(at('tiny.gguf')),
        chunked: at('chunked.gguf'),
        gzip: at('gzip.gguf'),
        blob: new Blob([tiny]),
        file: new (await import('node:buffer')).File([tiny], 'tiny.gguf'),
        buffer,
        bytes: new Uint8Array(buffer)
    };
    for (const [name, source] of Object.entries(sources)) {
        const seen = [];
        await withModel(
            source,
            { threads: 1, variant: 'simd', onProgress: p => seen.push(p) },
            async model => {
                const { text } = await collect(model.generate(PROMPT, { maxTokens: 8 }));
                equal(text, expected, name);
                equal(model.info.fileBytes, tiny.length);
            }
        );
        const last = seen.at(-1);
        equal(
            [last.phase, last.loaded, last.total],
            ['load', tiny.length, tiny.length],
            `${name}: progress`
        );
        const phase = /http|chunked|gzip/.test(name) ? 'download' : 'read';
        ok(
            seen.some(p => p.phase === phase && p.loaded === tiny.length),
            `${name}: ${phase} to the end`
        );
        ok(buffer.byteLength === tiny.length, 'the caller keeps its buffer');
    }
    await fails('ERR_ARG', BitNet.load(42));
});

/** A GGUF file of these keys and tensors: [name's bytes and the rest of it]. */
function gguf(keys, tensors, alignment = 32) {
    const u64 = n => Buffer.from(new BigUint64Array([BigInt(n)]).buffer),
        head = [Buffer.from('GGUF\x03\0\0\0'), u64(tensors.length), u64(keys.length), ...keys],
        pad = n => Buffer.alloc((alignment - (n % alignment)) % alignment);
    let offset = 0;
    for (const { about, data } of tensors) {
        head.push(about, u64(offset));
        offset += data.length + pad(data.length).length;
    }
    const all = Buffer.concat(head);
    const body = tensors.flatMap(({ data }) => [data, pad(data.length)]);
    return Buffer.concat([all, pad(all.length), ...body]);
}

const key = (name, type, value) => {
    const n = Buffer.alloc(8),
        t = Buffer.alloc(4);
    n.writeUInt32LE(name.length);
    t.writeUInt32LE(type);
    return Buffer.concat([n, Buffer.from(name), t, value]);
};

/** The model in so many files, as llama-gguf-split makes them. change(numbers of a part) may lie. */
function splitModel(file, count, change = () => {}) {
    let at = 24;
    const u32 = () => file.readUInt32LE((at += 4) - 4),
        u64 = () => Number(file.readBigUInt64LE((at += 8) - 8)),
        pass = n => (at += n),
        text = () => pass(u64());
    const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
    function skipValue(type) {
        if (type === 8) text();
        else if (type !== 9) pass(sizes[type]);
        else for (let element = u32(), n = u64(); n > 0; n--) skipValue(element);
    }
    const list = (n, read) => Array.from({ length: Number(n) }, read);
    const keys = list(file.readBigUInt64LE(16), () => {
        const from = at;
        text();
        skipValue(u32());
        return file.subarray(from, at);
    });
    const tensors = list(file.readBigUInt64LE(8), () => {
        const from = at;
        text();
        pass(8 * u32() + 4);
        return { about: file.subarray(from, at), offset: u64() };
    });
    const start = Math.ceil(at / 32) * 32,
        ends = [...tensors.map(t => t.offset), file.length - start].sort((a, b) => a - b);
    for (const t of tensors)
        t.data = file.subarray(start + t.offset, start + ends.find(end => end > t.offset));
    const each = Math.ceil(tensors.length / count);
    return list(count, (_, no) => {
        const numbers = { no, count, tensors: tensors.length };
        change(numbers);
        const u16 = n => Buffer.from(Uint16Array.of(n).buffer),
            i32 = Buffer.from(Int32Array.of(numbers.tensors).buffer);
        const its = [
            key('split.no', 2, u16(numbers.no)),
            key('split.count', 2, u16(numbers.count)),
            key('split.tensors.count', 5, i32)
        ];
        return gguf(no ? its : [...keys, ...its], tensors.slice(no * each, (no + 1) * each));
    });
}

test('split models', async () => {
    const expected = native(TINY, PROMPT, '-n', '20', '--temp', '0');
    const parts = splitModel(tiny, 3);
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'split-'));
    const name = i => `a-0000${i + 1}-of-00003.gguf`;
    parts.forEach((part, i) => fs.writeFileSync(path.join(folder, name(i)), part));
    parts.forEach((part, i) => files.set(`/${name(i)}`, part));
    const blobs = parts.map(part => new Blob([part]));
    const sources = {
        path: path.join(folder, name(0)),
        url: at(name(0)),
        'the second of them, with a query': at(`${name(1)}?x=a-00001-of-00002.gguf`),
        urls: [at(name(0)), new URL(at(name(1))), at(name(2))],
        blobs,
        'in another order': [blobs[2], blobs[0], blobs[1]],
        mixed: [parts[0], path.join(folder, name(1)), at(name(2))]
    };
    for (const [what, source] of Object.entries(sources)) {
        const seen = [];
        await withModel(source, { threads: 1, onProgress: p => seen.push(p) }, async model => {
            const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
            equal(text, expected, what);
            ok(Math.abs(model.info.fileBytes - tiny.length) < 200, `${model.info.fileBytes} bytes`);
            const { fileBytes } = model.info;
            ok(seen.some(p => p.phase !== 'load' && p.loaded === fileBytes), `${what}: progress`);
        });
    }
    const wrong = async (code, words, source) => {
        const e = await fails(code, BitNet.load(source, { threads: 1 }));
        ok(e.message.includes(words), e.message);
    };
    await wrong('ERR_FORMAT', '2 files are given; one is part 1 of 3', blobs.slice(0, 2));
    await wrong('ERR_FORMAT', 'part 2 of 3 is there twice', [blobs[0], blobs[1], blobs[1]]);
    await wrong('ERR_UNSUPPORTED', 'split into 3 files', blobs[0]);
    await wrong('ERR_TRUNCATED', 'in its head', [blobs[0], blobs[1], blobs[2].slice(0, 100)]);
    fs.rmSync(path.join(folder, name(1)));
    await wrong('ERR_IO', name(1), path.join(folder, name(0)));
    const few = splitModel(tiny, 2, numbers => (numbers.tensors = 5)).map(part => new Blob([part]));
    await wrong('ERR_FORMAT', 'the first one says 5', few);
    files.delete(`/${name(2)}`);
    await wrong('ERR_HTTP', name(2), at(name(0)));
    await fails('ERR_ARG', BitNet.load(blobs, { sha256: 'a'.repeat(64) }));
    await fails('ERR_ARG', BitNet.load(at(name(0)), { sha256: 'a'.repeat(64) }));
    await fails('ERR_ARG', BitNet.load([]));
    await fails('ERR_ARG', BitNet.load(at(name(0)), { cacheName: 'b.gguf' }));
    fs.rmSync(folder, { recursive: true });
});

test('hf: addresses', async () => {
    const options = { hub: at(''), threads: 1 };
    for (const address of [
        'hf:some-one/tiny.model/folder/a file%.gguf',
        'hf://some-one/tiny.model@v1/2/folder/a%20file%25.gguf'.replace('v1/2', 'v1%2F2')
    ])
        await withModel(address, options, m => equal(m.info.fileBytes, tiny.length));
    const paths = ['main/folder/a%20file%25.gguf', 'v1%2F2/folder/a%20file%25.gguf'],
        asked = path => ['resolve', 'raw'].map(where => `/some-one/tiny.model/${where}/${path}`);
    equal(hubAsked, paths.flatMap(asked));
    const sha256 = createHash('sha256').update(tiny).digest('hex');
    const loadWith = (hash, url = 'hf:some-one/a/b.gguf', more) => {
        hubPointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${hash}\nsize 5\n`;
        return withModel(url, { ...options, ...more }, async () => {});
    };
    const wrong = sha256.replace(/./, c => (c === '0' ? '1' : '0'));
    await loadWith(sha256);
    await fails('ERR_CHECKSUM', loadWith(wrong));
    await fails('ERR_CHECKSUM', loadWith(wrong, at('some-one/a/resolve/main/b.gguf?download=true')));
    await loadWith(wrong, 'hf:some-one/a/b.gguf', { sha256 });
    await loadWith(wrong, at('some-one/a/b/c.gguf'));
    hubAsked.length = 0;
    const steps = ['../../x', 'a/./x', 'a/b/../../x', 'a/b/%2E%2e/x', 'a/b/c%2f../x', 'a/b@../x'];
    const empty = ['file.gguf', 'a/b', 'a/b/', 'a/b/c/', 'a/b//c', 'a/b@/c'];
    for (const bad of [...steps, ...empty, 'a/b/\uD800', 'ü/b/c'])
        await fails('ERR_ARG', async () => BitNet.load(`hf:${bad}`, options));
    await fails('ERR_ARG', async () => BitNet.load('hf:a/b/c', { hub: 5 }));
    await fails('ERR_ARG', cache.remove('hf:a'));
    await fails('ERR_ARG', cache.check('hf:a'));
});

test('headers', async () => {
    const load = Authorization =>
        BitNet.load(at('gated.gguf'), { headers: Authorization && { Authorization }, threads: 1 });
    const none = await fails('ERR_HTTP', load());
    equal(none.status, 401);
    ok(/Access to it is restricted\..*accept it on the model's page/.test(none.message), none.message);
    const wrong = await fails('ERR_HTTP', load('Bearer wrong'));
    equal(wrong.status, 403);
    ok(/restricted\..*has its account accepted the licence/.test(wrong.message), wrong.message);
    await (await load('Bearer right')).free();
    equal(gatedAsked, [undefined, 'Bearer wrong', 'Bearer right']);
    equal([tinyAsked.host, tinyAsked.authorization], [new URL(otherOrigin()).host, undefined]);
    await withModel(at('tiny.gguf'), { headers: new Headers({ 'X-Mine': 'ä' }) }, async () => {});
    equal(tinyAsked['x-mine'], 'ä');
});

test('a silent server', async () => {
    for (const [name, bytes] of Object.entries({ 'silent.gguf': 0, 'half.gguf': 500000 })) {
        const seen = [];
        const options = { stallSeconds: 4, onProgress: p => seen.push(p) };
        const e = await fails('ERR_NETWORK', BitNet.load(at(name), options));
        ok(/nothing came for 4 seconds/.test(e.message), e.message);
        const { phase, loaded, stalledSeconds } = seen.at(-1);
        equal([phase, loaded, stalledSeconds], ['download', bytes, 3], name);
    }
});

test('Node keeps nothing', async () => {
    await withModel(at('tiny.gguf'), {}, async model => equal(model.info.cache, 'none'));
    equal([await cache.list(), await cache.remove(at('tiny.gguf'))], [[], false]);
    await cache.clear();
    equal(await cache.persist(), false);
    await fails('ERR_IO', cache.check(at('tiny.gguf')));
    await fails('ERR_IO', cache.verify(at('tiny.gguf')));
    await fails('ERR_ARG', cache.verify(at('tiny.gguf'), { sha: 'x' }));
});

test('a Blob of many slices, in order', async () => {
    const bytes = new Uint8Array(6 * (4 << 20) + 5); // no model: only its hash tells the order
    for (let i = 0; i < bytes.length; i += 1 << 20) bytes[i] = i >> 20;
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    await fails('ERR_FORMAT', BitNet.load(new Blob([bytes]), { sha256 }));
    const other = sha256.replace(/./, c => (c === '0' ? '1' : '0'));
    await fails('ERR_CHECKSUM', BitNet.load(new Blob([bytes]), { sha256: other }));
});

test('SHA-256', async () => {
    const sha256 = createHash('sha256').update(tiny).digest('hex');
    await withModel(at('tiny.gguf'), { sha256: sha256.toUpperCase() }, async () => {});
    await fails(
        'ERR_CHECKSUM',
        BitNet.load(TINY, { sha256: sha256.replace(/./, c => (c === '0' ? '1' : '0')) })
    );
    await fails('ERR_ARG', BitNet.load(TINY, { sha256: 'abc' }));
    for (const n of [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 100001]) {
        // no model, but its hash is right
        const bytes = Uint8Array.from({ length: n }, (_, i) => i * 7 + (i >> 8));
        const hash = createHash('sha256').update(bytes).digest('hex');
        const e = await BitNet.load(bytes, { sha256: hash, variant: 'simd' }).catch(error => error);
        ok(/ERR_FORMAT|ERR_TRUNCATED/.test(e.code), `${n} bytes: ${e.code} ${e.message}`);
    }
});

// ---- failures ----

test('wrong files', async () => {
    equal((await fails('ERR_HTTP', BitNet.load(at('nothing.gguf')))).status, 404);
    closed = false;
    const page = await fails('ERR_FORMAT', BitNet.load(at('page.gguf')));
    ok(/the server sent text\/html.*"<!doctype html> <html>Sign in,/.test(page.message), page.message);
    await until(() => closed, 'its connection is closed');
    const gone = await fails('ERR_HTTP', BitNet.load(at('expired.gguf')));
    ok(gone.message.endsWith('HTTP 410 Gone: <Error> <Code>Expired</Code></Error>'), gone.message);
    await fails('ERR_TRUNCATED', BitNet.load(new Blob([tiny.subarray(0, 1000000)])));
    await fails('ERR_NETWORK', BitNet.load(at('cut.gguf')));
    await fails('ERR_IO', BitNet.load('/no/such/file.gguf'));
    const folder = await fails('ERR_IO', BitNet.load(path.join(root, 'web')));
    ok(/web is a folder$/.test(folder.message), folder.message);
    const made = (async () => new BitNet(TINY))();
    ok((await fails('ERR_ARG', made)).message.includes('BitNet.load'), 'there is no constructor');
    const script = await fails('ERR_FORMAT', BitNet.load(path.join(root, 'build.sh')));
    ok(/build\.sh: GGUF header/.test(script.message), script.message);
    const e = await fails('ERR_NETWORK', BitNet.load('http://127.0.0.1:1/x.gguf'));
    ok(e.message.includes('127.0.0.1:1'), e.message);
});

/** The threads of this process, once they are as few as at the start. */
async function threadsLeft() {
    const count = () => fs.readdirSync('/proc/self/task').length;
    await until(() => count() <= threadsAtStart, 'the end of its threads');
    return count();
}

/** The library with memories that must be this small. `refuses` is JavaScript about a memory's sizes:
 * shared, initial and maximum in pages, and n, the bytes that it would have. */
const withLimits = refuses =>
    broken(at => {
        const limits = `{
            const { Memory } = WebAssembly, { grow } = Memory.prototype, made = new WeakMap();
            const check = sizes => {
                const { shared, initial, maximum } = sizes, n = 65536 * initial;
                if (${refuses}) throw new RangeError('refused');
            };
            WebAssembly.Memory = class extends Memory {
                constructor(sizes) {
                    check(sizes);
                    super(sizes);
                    made.set(this, sizes);
                }
                static [Symbol.hasInstance] = its => its instanceof Memory;
            };
            Memory.prototype.grow = function (pages) {
                const initial = this.buffer.byteLength / 65536 + pages;
                check({ ...made.get(this), initial });
                return grow.call(this, pages);
            };
        }`;
        fs.appendFileSync(at('worker/worker.js'), limits);
    });

test('out of memory', async () => {
    const lib = await withLimits('n > 50e6');
    const zeros = path.join(newFolder(), 'zeros.gguf');
    fs.writeFileSync(zeros, '');
    for (const variant of usable) {
        const options = { variant, threads: 2 };
        const says = async (code, words, ...args) => {
            const e = await lib.BitNet.load(...args).catch(error => error);
            ok(e.code === code && words.test(e.message), `${variant}, ${args[0]}: ${e.code} ${e}`);
        };
        for (const context of [1 << 20, 1 << 17])
            await says('ERR_MEMORY', RegExp(`${context} positions \\(\\d+ MB\\)`), TINY, {
                ...options,
                context
            });
        fs.truncateSync(zeros, 200e6);
        await says('ERR_MEMORY', /out of memory: 217 MB cannot be had/, zeros, options);
        fs.truncateSync(zeros, 5e9);
        await says('ERR_LIMIT', /5000000000 bytes/, zeros, options);
        await says('ERR_LIMIT', /5000000000 bytes/, at('huge.gguf'), options);
        const model = await lib.BitNet.load(TINY, { ...options, context: 64 });
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'a smaller one');
        await model.free();
    }
    if (threadsAtStart) equal(await threadsLeft(), threadsAtStart, 'threads');
});

// Phones refuse shared memory that may become large, each at a size of its own.
test('shared memory refused', async () => {
    if (!usable.includes('threads')) throw new Skip('no threads');
    const text = native(TINY, PROMPT, '-n', '8', '--temp', '0');
    const expect = async (refuses, threads, note, options = {}) => {
        const lib = await withLimits(refuses);
        const model = await lib.BitNet.load(TINY, { threads: 2, ...options });
        const written = await collect(model.generate(PROMPT, { maxTokens: 8 }));
        equal([model.info.threads, written.text], [threads, text], refuses);
        const notes = model.info.notes.filter(n => !/relaxed/.test(n));
        ok(note ? note.test(notes[0]) : !notes.length, `${refuses}: ${notes}`);
        await model.free();
    };
    const above = bytes => `shared && 65536 * maximum > ${bytes}`;
    await expect('false', 2, null);
    await expect(above(2 ** 32 - 1), 2, /^at most 1002 MB of memory/);
    await expect(above(2 ** 30), 2, /^at most 1002 MB of memory/);
    await expect(above(300 * 2 ** 20), 2, /^at most 258 MB of memory/);
    await expect(above(100e6), 1, /^one thread: shared memory does not suffice \(out of memory: 19 MB/);
    await expect('shared && n > 25e6', 1, /^one thread: .*no memory for a context/, {
        context: 1 << 16
    });
    const lib = await withLimits('shared');
    const e = await lib.BitNet.load(TINY, { variant: 'threads' }).catch(error => error);
    equal(e.code, 'ERR_MEMORY');
});

// What cannot fit is refused before it is sent.
test('memory is taken first', async () => {
    const lib = await withLimits('n > 50e6');
    big = path.join(newFolder(), 'large.gguf');
    fs.writeFileSync(big, tiny);
    fs.truncateSync(big, 100e6);
    let most = 0;
    const onProgress = p => (most = Math.max(most, p.loaded));
    const e = await lib.BitNet.load(at('file'), { onProgress }).catch(error => error);
    equal([e.code, e.message], ['ERR_MEMORY', 'out of memory: 117 MB cannot be had']);
    equal(most, 0, 'bytes that came');
});

test('options out of range', async () => {
    for (const options of [
        { threads: 0 },
        { threads: 1.5 },
        { context: -1 },
        { cache: 'x' },
        { cacheName: '' },
        { cacheName: 5 },
        { connections: 0 },
        { stallSeconds: 0 },
        { headers: 'x' },
        { headers: { Range: 'bytes=0-' } },
        { variant: 'x' },
        { variant: 'toString' },
        { sha256: ['a'.repeat(64)] },
        { signal: 5 },
        { onProgress: 5 }
    ])
        await fails('ERR_ARG', BitNet.load(TINY, options));
    for (const context of [1, 8]) {
        const { message } = await fails('ERR_ARG', BitNet.load(TINY, { context }));
        ok(/^context: /.test(message), message);
    }
    await withModel(TINY, { context: 9 }, async model =>
        equal((await collect(model.generate('a', { lookup: 8 }))).stats.reason, 'length')
    );
    await withModel(TINY, {}, async model => {
        for (const options of [
            { maxTokens: -1 },
            { temperature: NaN },
            { topP: 2 },
            { seed: 0.5 },
            { seed: 5n },
            { topK: '4' },
            { topK: Symbol('x') },
            { stop: 5 },
            { stop: {} },
            { stop: [5] },
            { signal: {} },
            { onToken: 5 },
            { onPrompt: {} },
            null
        ])
            await fails('ERR_ARG', () => collect(model.generate(PROMPT, options)));
        await fails('ERR_ARG', async () => collect(model.generate(7)));
        const message = { role: 'user', content: PROMPT };
        for (const messages of [[null], [message, , message], [{ ...message, role: '' }]])
            await fails('ERR_ARG', async () => collect(model.chat(messages)));
        const names = ['mask', 'grammar', 'jsonSchema', 'logprobs', 'logitBias', 'stop', 'signal'];
        const nothing = Object.fromEntries([...names, 'topK', 'onToken'].map(name => [name, null]));
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 9, ...nothing }));
        equal(text, native(TINY, PROMPT, '-n', '9', '--temp', '0'), 'null is not given');
    });
});

test('one generation at a time', () =>
    withModel(TINY, {}, async model => {
        const one = model.generate(PROMPT, { maxTokens: 60 });
        await one.next();
        await fails('ERR_BUSY', collect(model.generate(PROMPT)));
        ok((await model.tokenize('between two tokens')).length, 'tokenize does not wait');
        await one.return();
        equal([model.stats.reason, model.stats.tokens > 0], ['abort', true]);
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'after a break');
    }));

test('free', async () => {
    const model = await BitNet.load(TINY);
    const running = model.generate(PROMPT, { temperature: 1, seed: 1 });
    await running.next();
    await model.free();
    await fails('ERR_FREED', collect(running));
    await fails('ERR_FREED', collect(model.generate(PROMPT)));
    await fails('ERR_FREED', async () => model.tokenize('x'));
    await model.free();
});

// None of these downloads ends by itself.
test('abort: download', async () => {
    let seen;
    for (const name of ['slow.gguf', 'silent.gguf', 'endless.gguf']) {
        asked = closed = seen = false;
        const another = new AbortController();
        const waiting = BitNet.load(at(name), {
            signal: another.signal,
            onProgress: p => {
                seen = p.loaded;
            }
        });
        await until(() => (name === 'silent.gguf' ? asked : seen), `the request of ${name}`);
        another.abort();
        await fails('AbortError', waiting);
        await until(() => closed, `${name}: the server hears of it`);
    }
    await fails('AbortError', BitNet.load(TINY, { signal: AbortSignal.abort() }));
});

test('abort: load', async () => {
    for (const phase of ['read', 'load']) {
        const controller = new AbortController();
        await fails(
            'AbortError',
            BitNet.load(TINY, {
                signal: controller.signal,
                onProgress: p => {
                    if (p.phase === phase) controller.abort();
                }
            })
        );
    }
});

test('abort: before the start', () =>
    withModel(TINY, {}, async model => {
        const signal = AbortSignal.abort();
        await fails('AbortError', collect(model.generate(PROMPT, { signal })));
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'after it');
    }));

test('abort: nobody asks for more', () =>
    withModel(TINY, {}, async model => {
        const controller = new AbortController();
        const left = model.generate(PROMPT, { signal: controller.signal });
        await left.next();
        controller.abort();
        const { text, stats } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'the next one');
        await fails('AbortError', left.next());
        equal(model.stats, stats, 'stats are those of the last one');
    }));

test('abort: when the worker has ended, and the loop has not', () =>
    withModel(TINY, { sessions: 2 }, async model => {
        const controller = new AbortController(),
            session = model.session();
        for (const [writer, code, stop, signal] of [
            [model, 'AbortError', () => controller.abort(), controller.signal],
            [session, 'ERR_FREED', () => session.free()]
        ]) {
            const running = writer.generate(PROMPT, { maxTokens: 12, signal });
            await running.next();
            await new Promise(r => setTimeout(r, 200)); // it has written all
            const stopped = stop();
            await fails(code, running.next());
            await stopped;
            equal(writer.stats.reason, 'abort');
        }
    }));

test('abort: its reason is thrown', async () => {
    const mine = new Error('mine');
    const thrown = run => run.then(() => 'nothing', e => e);
    for (const reason of [mine, null, 0, 'text'])
        equal(await thrown(BitNet.load(TINY, { signal: AbortSignal.abort(reason) })), reason);
    const late = AbortSignal.timeout(0);
    await new Promise(r => setTimeout(r, 20));
    equal((await thrown(BitNet.load(TINY, { signal: late }))).name, 'TimeoutError');
    await withModel(TINY, {}, async model => {
        for (const reason of [mine, null, 0]) {
            const controller = new AbortController();
            const onToken = ({ index }) => index === 3 && controller.abort(reason);
            const running = collect(model.generate(PROMPT, { signal: controller.signal, onToken }));
            ok((await thrown(running)) === reason, `${reason} of a generation`);
            equal(model.stats.reason, 'abort');
            ok(model.stats.promptTokens > 2 && model.stats.prefillSeconds > 0, 'stats of the prompt');
            ok(model.stats.tokens >= 4 && model.stats.decodePerSecond > 0, 'stats of the text');
        }
    });
});

test('onPrompt', () =>
    withModel(TINY, {}, async model => {
        const seen = [],
            long = 'once upon a time there was a cat '.repeat(30);
        const { stats } = await collect(
            model.generate(long, { maxTokens: 1, onPrompt: p => seen.push(p) })
        );
        ok(seen.length > 3, `${seen.length} reports`);
        equal(seen[0], { promptTokens: stats.promptTokens, reusedTokens: 0, readTokens: 0 });
        equal(seen.at(-1).readTokens, stats.promptTokens - 1);
        for (let i = 1; i < seen.length; i++)
            ok(seen[i].readTokens > seen[i - 1].readTokens, 'it grows');
        const onPrompt = () => {
            throw new RangeError('mine');
        };
        const e = await collect(model.generate(PROMPT, { onPrompt })).catch(error => error);
        equal(e.message, 'mine', 'what it throws');
    }));

test('options with unknown names', async () => {
    const e = await fails('ERR_ARG', () => BitNet.load(TINY, { n_ctx: 5 }));
    ok(/^n_ctx: no such option\. There are threads, /.test(e.message), e.message);
    await fails('ERR_ARG', () => BitNet.load(TINY, null));
    await withModel(TINY, {}, async model => {
        for (const start of [
            o => model.generate(PROMPT, o),
            o => model.chat([{ role: 'user', content: PROMPT }], o)
        ]) {
            const error = await fails('ERR_ARG', async () => collect(start({ max_tokens: 5 })));
            ok(/^max_tokens: no such option/.test(error.message), error.message);
        }
    });
});

test('kvType', async () => {
    const e = await fails('ERR_ARG', () => BitNet.load(TINY, { kvType: 'q8_0' }));
    ok(/^kvType: 'q8_0' is not f16, f32, i8/.test(e.message), e.message);
    const prompt = 'Once upon a time', // the three types give three texts
        given = { maxTokens: 150, temperature: 1, seed: 6 },
        texts = new Set();
    for (const kvType of ['f16', 'f32', 'i8'])
        await withModel(TINY, { kvType }, async model => {
            const { text } = await collect(model.generate(prompt, given)),
                options = ['-n', '150', '--temp', '1', '-s', '6', '--kv-type', kvType];
            equal(text, native(TINY, prompt, ...options), kvType);
            texts.add(text);
        });
    equal(texts.size, 3);
});

test('a context longer than trained for', async () => {
    const notes = async context => withModel(TINY, { context }, async m => m.info.notes.join());
    const trained = await withModel(TINY, {}, async m => m.info.contextTrained);
    ok(!/trained/.test(await notes(trained)), 'no note');
    ok(new RegExp(`trained for ${trained}`).test(await notes(trained + 1)), 'a note');
});

test('await using', async () => {
    const model = await BitNet.load(TINY);
    await model[Symbol.asyncDispose]();
    await fails('ERR_FREED', model.tokenize('a'));
});

test('what a callback throws', async () => {
    const thrown = new Error('mine');
    const options = {
        onProgress: () => {
            throw thrown;
        }
    };
    ok((await BitNet.load(TINY, options).catch(e => e)) === thrown, 'load fails with it');
    await withModel(TINY, {}, async model => {
        const onToken = () => {
            throw thrown;
        };
        const said = await collect(model.generate(PROMPT, { onToken })).catch(e => e);
        ok(said === thrown, 'generate fails with it');
        equal(model.stats.reason, 'error');
        const masked = await collect(model.generate(PROMPT, { mask: onToken })).catch(e => e);
        ok(masked === thrown, 'so it does with that of a mask');
        equal(model.stats.reason, 'error');
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'after it');
    });
});

/** Aborts a generation by a worker that, edited, says { paused } and goes on when it has heard of the
 * abort. Resolves to the number of tokens that have come. */
async function abortPaused(model, prompt, options) {
    const controller = new AbortController(),
        tokens = [],
        from = heard.length,
        since = test => heard.slice(from).some(test);
    const running = collect(
        model.generate(prompt, {
            ...options,
            signal: controller.signal,
            onToken: e => tokens.push(e)
        })
    );
    await until(() => since(m => m.paused), 'the pause');
    controller.abort();
    await fails('AbortError', running);
    equal(model.stats.reason, 'abort');
    await until(() => since(m => m.error || m.value), "the worker's answer");
    ok(since(m => m.error?.name === 'AbortError'), 'the worker itself has stopped');
    const { text, stats } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
    equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'after an abort');
    equal(stats.tokens, 20);
    return tokens.length;
}

const pause = 'if (!paused) { paused = true; post({ paused }); while (!signal.aborted) await turn(); }';

test('abort: prefill', async () => {
    const lib = await broken(at => {
        const step = 'left = check(bw._bw_prefill(session, Math.min(chunkSize(), most)));';
        edit(at('worker/generate.js'), step, `${step} ${pause}`);
        edit(at('worker/generate.js'), 'let reading = 0;', 'let paused = false, reading = 0;');
    });
    const model = await lib.BitNet.load(TINY);
    equal(await abortPaused(model, 'word and '.repeat(160), {}), 0, 'tokens');
    await model.free();
});

test('abort: decode', async () => {
    const lib = await broken(at => {
        const step = 'post({ id, event: { token: n ? tokens[i] : -1, text, index, ...more } });';
        edit(at('worker/generate.js'), step, `${step} if (index === 4) ${pause}`);
        edit(at('worker/generate.js'), 'let reading = 0;', 'let paused = false, reading = 0;');
    });
    const model = await lib.BitNet.load(TINY);
    const wild = { temperature: 2, topK: 0, minP: 0, topP: 1, seed: 1 };
    equal(await abortPaused(model, PROMPT, wild), 5, 'tokens');
    await model.free();
});

// ---- which variant ----

test('variants: the best, and why not better', async () => {
    await withModel(TINY, { threads: 2 }, async model => {
        ok(model.info.variant !== 'simd', `${model.info.variant} has threads`);
        if (!variants.includes('relaxed'))
            ok(
                model.info.notes.some(n => /relaxed/.test(n)),
                'a note'
            );
    });
    globalThis.crossOriginIsolated = false;
    try {
        await withModel(TINY, { threads: 2 }, async model => {
            equal([model.info.variant, model.info.threads], ['simd', 1]);
            ok(
                model.info.notes.some(n => /^one thread: .*cross-origin isolated/.test(n)),
                model.info.notes
            );
        });
        const e = await fails('ERR_UNSUPPORTED', BitNet.load(TINY, { variant: 'threads' }));
        ok(/cross-origin isolated/.test(e.message), e.message);
    } finally {
        delete globalThis.crossOriginIsolated;
    }
    const { validate } = WebAssembly;
    WebAssembly.validate = () => false;
    try {
        await fails('ERR_NO_SIMD', BitNet.load(TINY));
    } finally {
        WebAssembly.validate = validate;
    }
});

/** Loads tiny.gguf in another Node with these flags; what it says of itself. */
function elsewhere(...flags) {
    const script = `
    import { BitNet } from ${JSON.stringify(pathToFileURL(path.join(web, 'node.js')))};
    const model = await BitNet.load(${JSON.stringify(TINY)}, { threads: 2 });
    let text = '';
    for await (const t of model.generate(${JSON.stringify(PROMPT)}, { maxTokens: 40 })) text += t;
    console.log(JSON.stringify({ ...model.info, text }));`;
    const run = spawnSync(process.execPath, [...flags, '--input-type=module', '-e', script], {
        encoding: 'utf8',
        timeout: 60000
    });
    if (run.status !== 0)
        throw new Error(`node ${flags} (${run.status}): ${run.stderr.slice(0, 400)}`);
    return JSON.parse(run.stdout); // it ended by itself, though the model was not freed
}

test('relaxed SIMD: a wrong engine is not trusted', () => {
    if (!variants.includes('relaxed')) throw new Skip('no module relaxed');
    if (!process.version.startsWith('v20')) throw new Skip('only Node 20 computes it wrongly');
    const wrong = elsewhere('--experimental-wasm-relaxed-simd');
    const text = native(TINY, PROMPT, '-n', '40', '--temp', '0');
    equal([wrong.variant, wrong.text], ['threads', text]);
    ok(
        wrong.notes.some(n => /wrongly/.test(n)),
        wrong.notes
    );
    const right = elsewhere('--experimental-wasm-relaxed-simd', '--no-liftoff');
    equal([right.variant, right.text], ['relaxed', text]);
});

test('an error that nobody catches is short, and says its name', () => {
    const script = `
    import { BitNet } from ${JSON.stringify(pathToFileURL(path.join(web, 'node.js')))};
    await BitNet.load('no-such-file.gguf');`;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        encoding: 'utf8',
        timeout: 60000
    });
    equal(run.status, 1, run.stderr.slice(0, 400));
    ok(run.stderr.length < 2000, `${run.stderr.length} bytes`);
    ok(/^BitNetError: .*no-such-file\.gguf/m.test(run.stderr), run.stderr.slice(0, 400));
});

test('a process ends though its model was not freed', () => {
    elsewhere();
});

// ---- broken parts: an error, not silence ----

/** The package's module for Node, made anew after change(name => path) has broken something in its
 * sources or engines. */
async function broken(change) {
    const folder = newFolder(),
        sources = path.join(folder, 'sources');
    fs.cpSync(path.join(root, 'web'), sources, { recursive: true });
    for (const file of ['package.json', ...engines])
        fs.copyFileSync(path.join(web, file), path.join(folder, file));
    change(name => path.join(engines.includes(name) ? folder : sources, name));
    const bundle = path.join(root, 'web/bundle.mjs');
    execFileSync(process.execPath, [bundle, 'modules', sources, folder, 'node']);
    return import(pathToFileURL(path.join(folder, 'node.js')));
}

const breakWasm = file => edit(file, /wasm = "[^"]*"/, 'wasm = "eA=="');

function edit(file, from, to) {
    const text = fs.readFileSync(file, 'utf8'),
        edited = text.replace(from, to);
    ok(edited !== text, `${file} holds ${from}`);
    fs.writeFileSync(file, edited);
}

test('a worker that does not answer any more', async () => {
    const quick = at => {
        edit(at('client/connection.js'), 'BEAT_MS = 5000', 'BEAT_MS = 20');
        const stays = ms => `{ const end = Date.now() + ${ms}; while (Date.now() < end); }`;
        edit(at('worker/load.js'), 'next(bw._bw_load(', `${stays(2000)} $&`); // loading is exempt
        edit(at('worker/generate.js'), /post\(\{ id, event: \{ token.*/, '$& if (index === 5) for (;;);');
    };
    const { BitNet: Lost } = await broken(quick);
    const model = await Lost.load(TINY);
    for (const call of [
        () => collect(model.generate(PROMPT, { maxTokens: 50 })), // found by this call
        () => collect(model.generate(PROMPT)),
        () => model.tokenize(PROMPT)
    ]) {
        const e = await call().catch(error => error);
        equal([e.code, e.message], ['ERR_INTERNAL', 'the worker has ended: it does not answer']);
    }
    await model.free();
});

test('inline: a model after the other, in mid-text', async () => {
    const { BitNet: Inline } = await import(pathToFileURL(path.join(web, 'inline.js')));
    const file = new Blob([tiny]);
    const text = native(TINY, PROMPT, '-n', '8', '--temp', '0');
    let model = await Inline.load(file);
    const write = async () => (await collect(model.generate(PROMPT, { maxTokens: 8 }))).text;
    const early = new AbortController(); // aborted before the mask is asked
    const options = { mask: () => undefined, onPrompt: () => early.abort() };
    const running = collect(model.generate(PROMPT, { ...options, signal: early.signal }));
    equal((await running.catch(e => e)).name, 'AbortError');
    equal(await write(), text, 'after an abort');
    equal((await Inline.load(file).catch(e => e)).code, 'ERR_BUSY');
    const saved = await model.save();
    const restored = model.restore(saved);
    saved.fill(0);
    ok((await restored) > 8, 'the bytes as they were');
    for (let i = 0; i < 6; i++) {
        const next = model.generate(PROMPT.repeat(1 + 30 * (i % 2))).next();
        const freed = next.catch(e => equal(e.code, 'ERR_FREED'));
        await delay(3 * i);
        await model.free();
        model = await Inline.load(file);
        equal(await write(), text, `model ${i}`);
        await freed;
    }
    await model.free();
});

test('broken parts', async () => {
    const expect = async (code, lib, options) => {
        const e = await lib.BitNet.load(TINY, options)
            .then(
                m => collect(m.generate(PROMPT, { maxTokens: 3 })),
                error => error
            )
            .catch(error => error);
        equal(e.code, code, e.message ?? 'no error');
    };
    for (const variant of usable)
        await expect(
            'ERR_INTERNAL',
            await broken(at => fs.writeFileSync(at(`engine-${variant}.js`), 'no')),
            { variant }
        );
    await expect(
        'ERR_INTERNAL',
        await broken(at =>
            edit(
                at('worker/generate.js'),
                /async function decode\([^{]*{[^}]*}[^{]*{/,
                'async function decode() { process.exit(3);'
            )
        )
    );
    await expect(
        'ERR_INTERNAL',
        await broken(at => breakWasm(at('engine-threads.js'))),
        { variant: 'threads' }
    );
    await expect(
        'ERR_MEMORY',
        await broken(at =>
            edit(
                at('worker/generate.js'),
                'await nextToken(session);',
                '(() => { throw new RangeError("Array buffer allocation failed: out of memory"); })()'
            )
        )
    );
    await expect(
        'ERR_MEMORY',
        await broken(at =>
            edit(at('worker/module.js'), 'initial: pages(initial)', 'initial: 65537')
        )
    );
    const engineSays = error =>
        broken(at =>
            edit(
                at('worker/module.js'),
                'WebAssembly.instantiate(compiled, imports)',
                `Promise.reject(${error})`
            )
        );
    for (const text of [
        'WebAssembly.instantiate(): Out of memory: Cannot allocate Wasm memory for new instance',
        'could not allocate memory'
    ])
        await expect('ERR_MEMORY', await engineSays(`new RangeError("${text}")`));
    await expect('ERR_INTERNAL', await engineSays('new WebAssembly.LinkError("no")'));
    for (const wrong of [
        'flush(c) { c.enqueue(new Uint8Array(9)); }',
        'transform(b, c) { c.enqueue(b.subarray(0, -1)); }'
    ])
        await expect(
            'ERR_IO',
            await broken(at =>
                edit(
                    at('worker/load.js'),
                    'opened.stream()',
                    `opened.stream().pipeThrough(new TransformStream({ ${wrong} }))`
                )
            )
        );
    const lib = await broken(at => breakWasm(at('engine-threads.js')));
    const model = await lib.BitNet.load(TINY, { threads: 2 });
    if (!variants.includes('relaxed')) equal(model.info.variant, 'simd', 'the next variant');
    await model.free();
});

// The file comes in small pieces, of known size or not; it may be cut, or go on.
test('a file in pieces', async () => {
    const zeros = n => Buffer.concat([tiny, Buffer.alloc(n)]);
    const wrong = zeros(100000);
    wrong[wrong.length - 1] = 1;
    for (const known of [true, false]) {
        const lib = await broken(at => {
            const piece = 'new Uint8Array(b.slice(i, (i += 977)))';
            const cut = `transform(b, c) { for (let i = 0; i < b.length; ) c.enqueue(${piece}); }`;
            const pieces = `opened.stream().pipeThrough(new TransformStream({ ${cut} }))`;
            edit(at('worker/load.js'), 'opened.stream()', pieces);
            if (!known) edit(at('worker/load.js'), '{ size } = opened', 'size = null');
        });
        const refused = async bytes =>
            (await lib.BitNet.load(new Blob([bytes])).catch(error => error)).code;
        for (const n of [0, 3, 30, 5000, 70000, 1000000, tiny.length - 1])
            equal(await refused(tiny.subarray(0, n)), 'ERR_TRUNCATED', `cut at ${n}`);
        equal(await refused(wrong), 'ERR_FORMAT');
        for (const n of [0, 1, 4096, 100000]) {
            const model = await lib.BitNet.load(new Blob([zeros(n)]));
            const { text } = await collect(model.generate(PROMPT, { maxTokens: 8 }));
            equal(text, native(TINY, PROMPT, '-n', '8', '--temp', '0'), `${n} zeros`);
            equal(model.info.fileBytes, tiny.length + n);
            await model.free();
        }
    }
});

// Weights that are packed anew are not there twice.
test('memory holds a file once', async () => {
    const file = madeModel();
    for (const variant of usable) {
        const model = await BitNet.load(new Blob([file]), { variant, context: 64, threads: 2 });
        await collect(model.generate('a', { maxTokens: 1 }));
        const most = 1.15 * file.length + 32e6; // and what there is beside each model
        ok(model.info.memoryBytes < most, `${variant}: ${model.info.memoryBytes} bytes, not ${most}`);
        await model.free();
    }
});

// ---- crashes: an error at once, and from then on ----

const hasCrashed = e =>
    ok(e.code === 'ERR_INTERNAL' && /^the worker crashed: ./.test(e.message), `${e.code} ${e}`);

/** A prompt whose steps are large enough to be shared between threads. */
const LONG_PROMPT = Array(60).fill(PROMPT).join(' ');

/** Threads take work only if they come to it before the others: that may need several texts. */
async function firstCrash(call) {
    const end = Date.now() + HANG;
    for (;;) {
        const result = await call().catch(e => e);
        if (result instanceof Error || Date.now() > end) return result;
    }
}

async function isLost(lib, options) {
    const model = await lib.BitNet.load(TINY, options);
    const other = lib.BitNet.load(TINY, { variant: 'simd' });
    const calls = [
        () => collect(model.generate(LONG_PROMPT, { maxTokens: 3 })),
        () => collect(model.chat([{ role: 'user', content: PROMPT }])),
        () => model.tokenize('x'),
        () => model.detokenize([1])
    ];
    hasCrashed(await firstCrash(calls[0]));
    for (const call of calls)
        hasCrashed(await Promise.race([call().catch(e => e), delay(HANG, 'it waits')]));
    await model.free();
    equal((await model.tokenize('x').catch(e => e)).code, 'ERR_FREED');
    ok((await (await other).tokenize('x')).length, 'the other model lives on');
    await (await other).free();
}

test('a crash', async () => {
    const crashIn = (file, call) =>
        broken(at => edit(at(file), call, `(bw._bw_sha256_add(-16, 64), ${call})`));
    const lib = await crashIn('worker/generate.js', 'await nextToken(session)'); // reads past the end of memory
    for (const variant of ['simd', 'threads']) await isLost(lib, { variant, threads: 2 });
    const { BitNet: Early } = await crashIn('worker/load.js', 'bw._bw_load(size ?? -1)');
    hasCrashed(await Early.load(TINY).catch(error => error));
});

for (const variant of usable.filter(v => v !== 'simd'))
    test(`${variant}/2 and 3 threads: a crash in one`, async () => {
        // as emscripten wrote it, with its names: a thread's table of functions holds its start only
        const script = read(root, 'build/em', `bitnet-${variant}.js`);
        const start = /invokeEntryPoint(=\(ptr,arg\)=>|\(ptr,arg\))\{/g;
        const others =
            '$&for (let i = 1; i < wasmTable.length; i++) i === ptr || wasmTable.set(i, null);';
        ok(start.test(script), 'a thread has a start');
        const glue = `glue = ${JSON.stringify(script.replace(start, others))};`;
        const lib = await broken(at => edit(at(`engine-${variant}.js`), /glue = ".*";/, () => glue));
        for (const threads of [2, 3]) await isLost(lib, { variant, threads });
    });

// ---- the package ----

/** What npm pack makes of build/web, and a folder where it is installed. */
const packed = remembered(() => {
    const folder = newFolder();
    const npm = (...args) => {
        const run = spawnSync('npm', args, { cwd: folder, encoding: 'utf8', timeout: 60000 });
        if (run.error) throw new Skip('no npm');
        equal(run.status, 0, `npm ${args[0]}: ${run.stderr}`);
        return run.stdout;
    };
    const [pack] = JSON.parse(npm('pack', '--json', web));
    fs.writeFileSync(path.join(folder, 'package.json'), '{ "private": true }');
    npm('install', '--offline', '--no-audit', '--no-fund', `./${pack.filename}`);
    return { folder, pack, home: path.join(folder, 'node_modules/bitnet-h') };
});

const read = (...name) => fs.readFileSync(path.join(...name), 'utf8');

/** The budget of a module as it is downloaded, in KB. Older compilers make more of the same source. */
const MODULE_MOST = { simd: 164, threads: 170, relaxed: 161 };

test('package: what is in it', () => {
    const { pack, home } = packed();
    const files = pack.files.map(f => f.path);
    equal(
        files.sort(),
        [
            ...engines,
            ...['LICENSE', 'README.md', 'bitnet.d.ts', 'bitnet.js', 'bitnet.js.map', 'inline.js'],
            ...['inline.js.map', 'node.js', 'node.js.map', 'package.json', 'tiny.gguf']
        ].sort(),
        'its files'
    );
    ok(!/node:(?!fs)/.test(read(home, 'bitnet.js')), 'bitnet.js imports nothing of Node');
    ok(!/node:/.test(read(home, 'inline.js')), 'nor does inline.js');
    const { name, version } = JSON.parse(read(home, 'package.json'));
    equal([name, version], ['bitnet-h', /_VERSION "(.*)"/.exec(read(root, 'bitnet.h'))[1]]);
    const readme = read(home, 'README.md');
    ok(readme.includes(`./${pack.filename}`), "README has the tarball's name");
    const [, most, packedMost] = /under (\d+) KB, under (\d+) KB/.exec(readme);
    for (const v of variants) {
        const parts = ['bitnet.js', `engine-${v}.js`];
        const bytes = Buffer.concat(parts.map(f => fs.readFileSync(path.join(home, f))));
        ok(bytes.length < most * 1000, `${v}: under ${most} KB`);
        ok(gzipSync(bytes).length < packedMost * 1000, `${v}: under ${packedMost} KB`);
        const [, wasm] = /wasm = "(.*?)"/.exec(bytes);
        const size = Buffer.from(wasm, 'base64').length; // as gzip packs it
        ok(size < MODULE_MOST[v] * 1000, `the module ${v} has ${size} bytes, which are too many`);
    }
});

test("package: README's examples", () => {
    const { folder, home } = packed();
    const examples = [...read(home, 'README.md').matchAll(/^```js\n(.*?)^```/gms)].map(m => m[1]);
    const embedding = path.join(folder, 'embedding.gguf');
    if (fs.existsSync(QWEN)) fs.symlinkSync(QWEN, embedding);
    const outputs = examples.map((text, i) => {
        if (text.includes('embedding.gguf') && !fs.existsSync(embedding)) return null;
        fs.writeFileSync(path.join(folder, `${i}.mjs`), text);
        const run = spawnSync(process.execPath, [`${i}.mjs`], { cwd: folder, encoding: 'utf8' });
        equal([run.status, run.stderr], [0, ''], `example ${i}`);
        return run.stdout;
    });
    equal(outputs.length, 5, 'examples');
    equal(outputs[0], native(TINY, 'Once upon a time', '-n', '50', '--temp', '0'));
    ok(/^ERR_IO /.test(outputs[1]), outputs[1]);
    ok(/Paris.*\n.*Rome/.test(outputs[2]), outputs[2]);
    ok(/^(yes|no)\n$/.test(outputs[3]), outputs[3]);
    ok(/^(The sky|Bread).*\n$/.test(outputs[4] ?? 'Bread\n'), outputs[4]);
});

/** Where npm has the packages that check the types, all of the versions that the tests name. */
function typeTools() {
    const tools = path.join(root, 'build/node'),
        stamp = path.join(tools, 'installed'),
        wanted = ['typescript@7.0.2', 'typescript5@npm:typescript@5.9.3', 'openai@7.59.0'];
    if (!fs.existsSync(stamp) || read(stamp) !== wanted.join(' ')) {
        const options = ['--no-audit', '--no-fund', '--no-package-lock', '--prefix', tools];
        const run = spawnSync('npm', ['install', ...options, ...wanted], { timeout: 120000 });
        if (run.status !== 0) throw new Skip('typescript and openai could not be installed');
        fs.writeFileSync(stamp, wanted.join(' '));
    }
    return path.join(tools, 'node_modules');
}

test('package: types', () => {
    const { folder, home } = packed(),
        tools = typeTools();
    fs.symlinkSync(path.join(tools, 'openai'), path.join(folder, 'node_modules/openai'));
    const program = `
    import { BitNet, BitNetError, cache, type ChatRequest, type Session, type Stats } from 'bitnet-h';
    import type OpenAI from 'openai';
    const m = await BitNet.load(new URL('x:y'), { threads: 2, onProgress: p => { const n: number = p.loaded; } });
    for await (const t of m.chat([{ role: 'user', content: 'x' }], { stop: ['a'] })) t.length;
    const s: Stats | null = m.stats, ids: Int32Array = await m.tokenize('x', { bos: true });
    try { await m.detokenize(ids); } catch (e) { if (e instanceof BitNetError) e.code === 'ERR_BUSY'; }
    const kept: string[] = (await cache.list()).map(c => c.url);
    const agreed: boolean = await cache.persist();
    const same: 'same' | 'changed' | 'unknown' = await cache.check('x:y', { headers: { a: 'b' } });
    const parts = [new URL('x:y'), new Blob(), 'x'] as const, headers = new Headers();
    await BitNet.load(parts, { headers, cacheName: 'x', connections: 2, stallSeconds: Infinity,
        onProgress: p => { const n: number | undefined = p.elsewhere && p.stalledSeconds; } });
    const hex: string = await cache.verify(new URL('x:y'), { sha256: 'a' });
    const session: Session = m.session(), bytes: Uint8Array = await session.save();
    const part: BlobPart = await m.save(), body: BodyInit = await session.save();
    await session.restore(bytes);
    const mask = async (tokens: number[]) => tokens.length ? new Set([1]) : undefined;
    session.generate('x', { mask, logitBias: { 5: -Infinity }, logprobs: 2, onToken: e => {
        const p: number | undefined = e.logprobs?.top[0]?.logprob; } });
    m.generate('x', { jsonSchema: { type: 'object' }, mask: () => [1], lookup: 8 });
    const [vector] = await m.embed(['x'] as const, { query: 'x', pooling: 'mean' });
    const list: OpenAI.CreateEmbeddingResponse = await m.embeddings.create({ input: ['x'] });
    const packedVector: string | undefined =
        (await m.embeddings.create({ input: 'x', encoding_format: 'base64' })).data[0]?.embedding;
    const { create } = m.chat.completions;
    const messages: OpenAI.ChatCompletionMessageParam[] = [], role = 'user';
    const answer: OpenAI.ChatCompletion = await create({ messages: [{ role, content: 'x' }] });
    const message: OpenAI.ChatCompletionMessage = answer.choices[0]!.message;
    messages.push(message);
    await create({ messages });
    await create({ messages: [message] });
    const stream = await create({ messages: [{ role, content: 'x' }], stream: true }, { session });
    for await (const c of stream) { const chunk: OpenAI.ChatCompletionChunk = c; }
    // what the openai package's types say may be asked
    declare const whole: OpenAI.ChatCompletionCreateParamsNonStreaming;
    declare const pieces: OpenAI.ChatCompletionCreateParamsStreaming;
    declare const either: OpenAI.ChatCompletionCreateParams;
    const one: OpenAI.ChatCompletion = await create(whole);
    for await (const c of await create(pieces)) { const chunk: OpenAI.ChatCompletionChunk = c; }
    const both = await create(either), request: ChatRequest = either;
    if (!('controller' in both)) { const o: OpenAI.ChatCompletion = both; }
    declare const maybe: boolean;
    await create({ messages, stream: maybe });
    const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object' } } } as const;
    await create({ messages, tools: [tool], tool_choice: { type: 'function', function: { name: 'f' } } });
    const calls = answer.choices[0]!.message.tool_calls ?? [];
    for (const call of calls) if (call.type === 'function') JSON.parse(call.function.arguments);
    // what is not given, and what is not changed
    const fixed = [{ role: 'user', content: 'x' }] as const;
    m.chat(fixed, { maxTokens: undefined, stop: undefined, signal: undefined, onToken: undefined });
    await create({ messages: fixed, stop: ['a'] as const, seed: undefined, n: null, model: undefined },
        { session: undefined, signal: undefined });
    m.generate('x', { mask: undefined, temperature: undefined, grammar: undefined });
    await BitNet.load('x', { threads: undefined, signal: undefined, onProgress: undefined });
    await m.embed('x', { signal: undefined, onProgress: undefined, pooling: undefined });
    await m.tokenize('x', { bos: undefined });
    await cache.verify('x', { sha256: undefined, signal: undefined });
    // @ts-expect-error
    await create({ messages: [], temperature: 'x' });
    // @ts-expect-error
    await BitNet.load(5);
    // @ts-expect-error
    m.generate('x', { temprature: 1 });`;
    fs.writeFileSync(path.join(folder, 'use.mts'), program);
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--typeRoots', 'none'];
    options.push('--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess');
    const whole = process.env.BITNET__WHOLE !== '0'; // ./build.sh test asks the newest alone
    for (const version of ['typescript/bin/tsc', ...(whole ? ['typescript5/lib/tsc.js'] : [])])
        for (const [module, resolution] of [
            ['nodenext', 'nodenext'],
            ['es2022', 'bundler']
        ]) {
            const run = spawnSync(
                process.execPath,
                [
                    path.join(tools, version),
                    ...options,
                    ...['--module', module, '--moduleResolution', resolution],
                    ...['--lib', 'es2022,dom,dom.iterable,esnext.disposable'],
                    'use.mts'
                ],
                { cwd: folder, encoding: 'utf8' }
            );
            equal([run.stdout, run.stderr], ['', ''], `${version}, ${resolution}`);
        }
    const declared = [...read(home, 'bitnet.d.ts').matchAll(/\|? '(ERR_\w+)'/g)].map(m => m[1]);
    for (const folder of ['client', 'worker', 'shared'])
        for (const file of fs.readdirSync(path.join(root, 'web', folder), { recursive: true }))
            if (file.endsWith('.js'))
                for (const [, code] of read(root, 'web', folder, file).matchAll(/'(ERR_[A-Z]\w+)'/g))
                    ok(declared.includes(code), `${code} of ${file} is declared`);
});

// ---- peak memory, by hand: the file is too large for a suite ----

/** Loads the file from a server and from the disk; the bound is file + 600 MB. */
async function peak(file, variant) {
    big = file;
    const size = fs.statSync(file).size;
    let bad = 0;
    for (const source of [at('file'), file]) {
        const start = performance.now();
        await withModel(source, { context: 2048, variant }, async model => {
            const loaded = (performance.now() - start) / 1000;
            const { stats } = await collect(model.generate('a', { maxTokens: 2 }));
            const heap = model.info.memoryBytes,
                rss = process.resourceUsage().maxRSS * 1024;
            console.log(
                `${source}: ${model.info.variant}, ${model.info.threads} threads, ${model.info.kernels}; ` +
                    `loaded in ${loaded.toFixed(1)} s; file ${size / 1e6} MB, WASM memory + ${((heap - size) / 1e6).toFixed(1)} MB, ` +
                    `process at most + ${((rss - size) / 1e6).toFixed(1)} MB; ` +
                    `prefill ${stats.prefillPerSecond.toFixed(2)}/s, decode ${stats.decodePerSecond.toFixed(2)}/s`
            );
            if (heap - size > 600e6) bad = 1;
        });
    }
    return bad;
}

if (process.argv[3] === '--peak')
    process.exit(await peak(path.resolve(process.argv[4]), process.argv[5]));

let passed = 0,
    failed = 0,
    skipped = 0;
for (const { name, run } of cases.filter(c => c.name.includes(process.argv[3] ?? ''))) {
    const start = performance.now();
    try {
        await Promise.race([
            run(),
            delay(2 * HANG).then(() => {
                throw new Error('it hangs');
            })
        ]);
        passed++;
        console.log(`ok ${name} (${Math.round(performance.now() - start)} ms)`);
    } catch (e) {
        if (e instanceof Skip) skipped++;
        else failed++;
        console.log(
            e instanceof Skip ? `skip ${name}: ${e.message}` : `FAIL ${name}: ${e.stack ?? e}`
        );
    }
}
console.log(`web-node: ${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed ? 1 : 0);
