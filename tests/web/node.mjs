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

/** What examples/generate.c writes, less the prompt and the last newline. */
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
let asked = false,
    closed = false; // of slow.gguf, silent.gguf and endless.gguf
const server = http.createServer(async (request, response) => {
    switch (new URL(request.url, 'http://localhost').pathname) {
        case '/tiny.gguf':
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
        case '/endless.gguf':
            response.on('close', () => (closed = true));
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
            response.end('<html>Sign in, please, to read this</html>');
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
            at('worker.js'),
            '{ token, text, index }',
            '{ token, text, index, logits: bytesAt(bw._bw_logits(), 4 * bw._bw_number(1)) }'
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
        await fails('ERR_ARG', collect(model.generate(PROMPT, { stop: [''] })));
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
        await fails('ERR_ARG', async () =>
            collect(model.chat([{ role: 'user', content: 'a\0b' }]))
        );
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
        await fails('ERR_ARG', model.detokenize([1 << 30]));
    }));

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

test('Node keeps nothing', async () => {
    await withModel(at('tiny.gguf'), {}, async model => equal(model.info.cache, 'none'));
    equal([await cache.list(), await cache.remove(at('tiny.gguf'))], [[], false]);
    await cache.clear();
    equal(await cache.persist(), false);
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
    await fails('ERR_FORMAT', BitNet.load(at('page.gguf')));
    await fails('ERR_TRUNCATED', BitNet.load(new Blob([tiny.subarray(0, 1000000)])));
    await fails('ERR_NETWORK', BitNet.load(at('cut.gguf')));
    await fails('ERR_IO', BitNet.load('/no/such/file.gguf'));
    const e = await fails('ERR_NETWORK', BitNet.load('http://127.0.0.1:1/x.gguf'));
    ok(e.message.includes('127.0.0.1:1'), e.message);
});

/** The threads of this process, once they are as few as at the start. */
async function threadsLeft() {
    const count = () => fs.readdirSync('/proc/self/task').length;
    await until(() => count() <= threadsAtStart, 'the end of its threads');
    return count();
}

test('out of memory', async () => {
    const lib = await broken(at => {
        const limit = `const { grow } = WebAssembly.Memory.prototype;
            WebAssembly.Memory.prototype.grow = function (pages) {
                if (this.buffer.byteLength + 65536 * pages > 50e6) throw new RangeError('no');
                return grow.call(this, pages);
            };`;
        fs.appendFileSync(at('worker.js'), limit);
    });
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
        await says('ERR_MEMORY', /200 MB more are needed beside the 17 MB/, zeros, options);
        fs.truncateSync(zeros, 5e9);
        await says('ERR_LIMIT', /5000000000 bytes/, zeros, options);
        await says('ERR_LIMIT', /5000000000 bytes/, at('huge.gguf'), options);
        await says('ERR_MEMORY', /17 MB more are needed beside the \d\d MB/, at('endless.gguf'), options);
        const model = await lib.BitNet.load(TINY, { ...options, context: 64 });
        const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
        equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'), 'a smaller one');
        await model.free();
    }
    if (threadsAtStart) equal(await threadsLeft(), threadsAtStart, 'threads');
});

test('options out of range', async () => {
    for (const options of [
        { threads: 0 },
        { threads: 1.5 },
        { context: -1 },
        { cache: 'x' },
        { variant: 'x' }
    ])
        await fails('ERR_ARG', BitNet.load(TINY, options));
    await withModel(TINY, {}, async model => {
        for (const options of [
            { maxTokens: -1 },
            { temperature: NaN },
            { topP: 2 },
            { seed: 0.5 },
            { topK: '4' }
        ])
            await fails('ERR_ARG', collect(model.generate(PROMPT, options)));
        await fails('ERR_ARG', async () => collect(model.generate(7)));
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
        const step = 'left = check(bw._bw_prefill(chunk));';
        edit(at('worker.js'), step, `${step} ${pause}`);
        edit(at('worker.js'), 'let bw;', 'let paused = false, bw;');
    });
    const model = await lib.BitNet.load(TINY);
    equal(await abortPaused(model, 'word and '.repeat(160), {}), 0, 'tokens');
    await model.free();
});

test('abort: decode', async () => {
    const lib = await broken(at => {
        const step = 'post({ id, event: { token, text, index } });';
        edit(at('worker.js'), step, `${step} if (index === 4) ${pause}`);
        edit(at('worker.js'), 'let bw;', 'let paused = false, bw;');
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
                at('worker.js'),
                'async function decode(id, signal, got) {',
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
                at('worker.js'),
                'bw._bw_next()',
                '(() => { throw new RangeError("Array buffer allocation failed: out of memory"); })()'
            )
        )
    );
    await expect(
        'ERR_MEMORY',
        await broken(at =>
            edit(at('worker.js'), '_bw_alloc(bytes) >>> 0', '_bw_alloc(0xffff0000) >>> 0')
        )
    );
    const engineSays = error =>
        broken(at =>
            edit(
                at('worker.js'),
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
        'transform(b, c) { c.enqueue(b.subarray(1)); }'
    ])
        await expect(
            'ERR_IO',
            await broken(at =>
                edit(
                    at('worker.js'),
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

test('a file of unknown size grows in steps', async () => {
    const { BitNet: Small } = await broken(at =>
        edit(at('worker.js'), 'STEP = 16 << 20', 'STEP = 1000')
    );
    const model = await Small.load(at('chunked.gguf'));
    const { text } = await collect(model.generate(PROMPT, { maxTokens: 20 }));
    equal(text, native(TINY, PROMPT, '-n', '20', '--temp', '0'));
    await model.free();
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
    const crashIn = call =>
        broken(at => edit(at('worker.js'), call, `(bw._bw_sha256_add(-16, 64), ${call})`));
    const lib = await crashIn('bw._bw_next()'); // reads past the end of memory
    for (const variant of ['simd', 'threads']) await isLost(lib, { variant, threads: 2 });
    const { BitNet: Early } = await crashIn('bw._bw_load(size)');
    hasCrashed(await Early.load(TINY).catch(error => error));
});

for (const variant of usable.filter(v => v !== 'simd'))
    test(`${variant}/2 and 3 threads: a crash in one`, async () => {
        const lib = await broken(at =>
            edit(
                at(`engine-${variant}.js`), // a thread's table of functions holds its start only
                /invokeEntryPoint(=\(ptr,arg\)=>|\(ptr,arg\))\{/g,
                '$&for (let i = 1; i < wasmTable.length; i++) i === ptr || wasmTable.set(i, null);'
            )
        );
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
    }
});

test("package: README's examples", () => {
    const { folder, home } = packed();
    const examples = [...read(home, 'README.md').matchAll(/^```js\n(.*?)^```/gms)].map(m => m[1]);
    const outputs = examples.map((text, i) => {
        fs.writeFileSync(path.join(folder, `${i}.mjs`), text);
        const run = spawnSync(process.execPath, [`${i}.mjs`], { cwd: folder, encoding: 'utf8' });
        equal([run.status, run.stderr], [0, ''], `example ${i}`);
        return run.stdout;
    });
    equal(outputs.length, 2, 'examples');
    equal(outputs[0], native(TINY, 'Once upon a time', '-n', '50', '--temp', '0'));
    ok(/^ERR_IO /.test(outputs[1]), outputs[1]);
});

test('package: types', () => {
    const { folder, home } = packed(),
        tools = path.join(root, 'build/node');
    const tsc = path.join(tools, 'node_modules/typescript/lib/tsc.js');
    if (!fs.existsSync(tsc))
        spawnSync(
            'npm',
            ['install', '--no-audit', '--no-fund', '--prefix', tools, 'typescript@5'],
            { timeout: 60000 }
        );
    if (!fs.existsSync(tsc)) throw new Skip('typescript could not be installed');
    const program = `
    import { BitNet, BitNetError, cache, type Stats } from 'bitnet-h';
    const m = await BitNet.load(new URL('x:y'), { threads: 2, onProgress: p => { const n: number = p.loaded; } });
    for await (const t of m.chat([{ role: 'user', content: 'x' }], { stop: ['a'] })) t.length;
    const s: Stats | null = m.stats, ids: Int32Array = await m.tokenize('x', { bos: true });
    try { await m.detokenize(ids); } catch (e) { if (e instanceof BitNetError) e.code === 'ERR_BUSY'; }
    const kept: string[] = (await cache.list()).map(c => c.url);
    const agreed: boolean = await cache.persist();
    // @ts-expect-error
    await BitNet.load(5);
    // @ts-expect-error
    m.generate('x', { temprature: 1 });`;
    fs.writeFileSync(path.join(folder, 'use.mts'), program);
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--typeRoots', 'none'];
    for (const [module, resolution] of [
        ['nodenext', 'nodenext'],
        ['es2022', 'bundler']
    ]) {
        const run = spawnSync(
            process.execPath,
            [
                tsc,
                ...options,
                ...['--module', module, '--moduleResolution', resolution],
                ...['--lib', 'es2022,dom,esnext.disposable'],
                'use.mts'
            ],
            { cwd: folder, encoding: 'utf8' }
        );
        equal(run.stdout, '', resolution);
    }
    const declared = [...read(home, 'bitnet.d.ts').matchAll(/\|? '(ERR_\w+)'/g)].map(m => m[1]);
    for (const file of ['bitnet.js', 'worker.js', 'cache.js', 'errors.js'])
        for (const [, code] of read(root, 'web', file).matchAll(/'(ERR_[A-Z]\w+)'/g))
            ok(declared.includes(code), `${code} of ${file} is declared`);
});

// ---- peak memory, by hand: the file is too large for a suite ----

/** Loads the file from a server and from the disk; the bound is the issue's: file + 600 MB. */
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
