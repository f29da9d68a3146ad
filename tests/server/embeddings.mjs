// embeddings.mjs - /v1/embeddings with the clients that people have, with many of them, and with
// what nobody should send; cases of clients.mjs
//
// The models are q, g and gw of BITNET_TEST_DATA: small and random, each of another kind.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { ask, check, idle, metrics, post, raw, same, Skip, start, until } from './server.mjs';

const PATH = '/v1/embeddings',
    TEXTS = ['Once upon a time', 'a', 'Caf\u00e9 \ud83d\ude00 \n\t\0 end', 'The dog. '.repeat(40)];

const folder = join(process.env.BITNET_TEST_DATA ?? '../shared', 'models');
function data(name) {
    const path = join(folder, name);
    if (!existsSync(path)) throw new Skip(`models/${name} is not in BITNET_TEST_DATA`);
    return path;
}

/** So many tokens, which differ with the seed. */
const ids = (n, seed = 0) =>
    Array.from({ length: n }, (_, i) => 100 + ((i * 7919 + seed * 31) % 1000));
const vectors = r => r.json.data.map(d => d.embedding);
const floats = base64 => {
    const bytes = Buffer.from(base64, 'base64');
    return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));
};
/** Numbers as floats: two with the same bits are equal. */
const rounded = list => list.map(Math.fround);

/** Sends a request, perhaps from another address of this machine, so as another client. */
function open(server, body, localAddress = '127.0.0.1') {
    const answer = { text: '', status: 0 };
    const { port } = server;
    const options = { host: '127.0.0.1', port, path: PATH, method: 'POST', localAddress };
    const request = http.request({ ...options, agent: false });
    answer.done = new Promise(done => {
        request.on('response', r => {
            answer.status = r.statusCode;
            r.setEncoding('utf8').on('data', d => (answer.text += d));
            r.on('end', () => done(answer));
            r.on('error', () => done(answer));
        });
        request.on('error', () => done(answer));
    });
    answer.leave = () => request.destroy();
    request.end(JSON.stringify(body));
    return answer;
}
const waiting = async server => (await metrics(server)).bitnet_texts_waiting;
const embedded = async server => (await metrics(server)).bitnet_embedded_texts_total;

/** Runs a case with a server of its own, which has to end well. */
const own = (serve, options, run) => async () => {
    const server = await start(serve, ['-m', data('q.gguf'), ...options]);
    await run(server);
    await idle(server);
    same(await server.stop(), 0, 'the exit code is');
};

const ofClients = (serve, load) => ({
    'embeddings: openai, float and its own base64': own(serve, [], async server => {
        const { default: OpenAI } = await load('openai');
        const options = { baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 };
        const client = new OpenAI(options),
            request = { model: 'any', input: TEXTS };
        const plain = await client.embeddings.create({ ...request, encoding_format: 'float' });
        const short = await client.embeddings.create(request);
        same([plain.object, plain.model], ['list', 'random']);
        same(
            plain.data.map(d => [d.object, d.index, d.embedding.length]),
            TEXTS.map((_, i) => ['embedding', i, 256])
        );
        for (const i of TEXTS.keys())
            same(Array.from(short.data[i].embedding), rounded(plain.data[i].embedding));
        const length = Math.hypot(...plain.data[0].embedding);
        check(Math.abs(length - 1) < 1e-6, `its length is ${length}`);
        check(plain.usage.prompt_tokens > 40, plain.usage);
        same(plain.usage.total_tokens, plain.usage.prompt_tokens);
        const chat = await client.chat.completions
            .create({ model: 'any', messages: [{ role: 'user', content: 'x' }] })
            .catch(e => e);
        check(chat instanceof OpenAI.BadRequestError && /no output head/.test(chat.message), chat);
    }),

    'embeddings: LangChain': own(serve, [], async server => {
        const { OpenAIEmbeddings } = await load('@langchain/openai');
        const configuration = { baseURL: `${server.url}/v1` };
        for (const encodingFormat of [undefined, 'float']) {
            const options = { model: 'any', apiKey: 'none', encodingFormat, configuration };
            const embeddings = new OpenAIEmbeddings({ ...options, maxRetries: 0, batchSize: 2 });
            const all = await embeddings.embedDocuments(TEXTS.slice(0, 2).concat('b', 'c', 'd'));
            same(all.length, 5);
            const plain = await ask(server, PATH, { input: ['d'] });
            same(rounded(all[4]), rounded(vectors(plain)[0]));
            same(rounded(await embeddings.embedQuery('d')), rounded(all[4]));
        }
    }),

    'embeddings: AI SDK': own(serve, [], async server => {
        const { embed, embedMany, cosineSimilarity } = await load('ai');
        const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
        const provider = createOpenAICompatible({ name: 'here', baseURL: `${server.url}/v1` });
        const model = provider.textEmbeddingModel('any');
        const one = await embed({ model, value: TEXTS[0], maxRetries: 0 });
        const many = await embedMany({ model, values: TEXTS, maxRetries: 0 });
        same(many.embeddings[0], one.embedding);
        check(cosineSimilarity(one.embedding, many.embeddings[1]) < 0.999, 'all are alike');
        check(one.usage.tokens > 0 && many.usage.tokens > one.usage.tokens, many.usage);
    })
});

const ofVectors = (serve, logprobs) => ({
    async "embeddings: curl gets the library's vectors"() {
        for (const name of ['q', 'g', 'gw']) {
            const server = await start(serve, ['-m', data(`${name}.gguf`), '-t', '1']);
            const texts = TEXTS.filter(text => !text.includes('\0'));
            const args = ['-sS', server.url + PATH, '-d', JSON.stringify({ input: texts })];
            const json = JSON.parse(execFileSync('curl', args, { encoding: 'utf8' }));
            for (const [i, text] of texts.entries()) {
                const lines = execFileSync(logprobs, [data(`${name}.gguf`), text], {
                    encoding: 'utf8'
                });
                same(json.data[i].embedding, lines.trim().split('\n').map(Number), name);
            }
            const { tokens } = JSON.parse(readFileSync(data(`${name}.json`))),
                wanted = floats(readFileSync(data(`${name}.embedding.f32`)).toString('base64'));
            const found = vectors(await ask(server, PATH, { input: tokens }))[0];
            const off = Math.hypot(...found.map((x, i) => x - wanted[i])) / Math.hypot(...wanted);
            check(off < 0.05, `${name} is ${off} away from the reference`);
            same(await server.stop(), 0);
        }
    },

    'embeddings: a string, strings, tokens, lists of tokens': own(serve, [], async server => {
        const content = TEXTS[0];
        const one = await ask(server, PATH, { input: content, user: 1, model: [] }),
            { json } = await ask(server, '/tokenize', { content, add_special: true });
        const many = await ask(server, PATH, { input: [content, 'x', content] });
        same([vectors(many)[0], vectors(many)[2]], [vectors(one)[0], vectors(one)[0]]);
        check(vectors(many)[1].join() !== vectors(one)[0].join(), 'all are alike');
        const { tokens } = json; // with the EOS that the model wants
        const name = async token =>
            (await ask(server, '/detokenize', { tokens: [token] })).json.content;
        const end = await name(tokens.at(-1));
        same(one.json.usage.prompt_tokens, tokens.length);
        for (const input of [tokens, [tokens], [tokens, ids(9)]])
            same(vectors(await ask(server, PATH, { input }))[0], vectors(one)[0]);
        const special = { content: `a${end}b`, add_special: true };
        for (const parse_special of [true, false]) {
            const own = await ask(server, '/tokenize', { ...special, parse_special });
            const r = await ask(server, PATH, { input: special.content, parse_special });
            same(r.json.usage.prompt_tokens, own.json.tokens.length);
            same(own.json.tokens.length === 4, parse_special, 'a, the token, b, EOS:');
            if (!parse_special) continue;
            const plain = await ask(server, PATH, { input: special.content });
            same(vectors(plain), vectors(r), 'the default is:');
        }
        const twice = { content: `a${end}`, add_special: true };
        same((await ask(server, '/tokenize', twice)).json.tokens.length, 2, 'EOS comes once:');
        const full = await ask(server, PATH, { input: [ids(512), [5]], dimensions: 256 });
        same(full.json.usage, { prompt_tokens: 513, total_tokens: 513 });
        const base64 = await ask(server, PATH, { input: content, encoding_format: 'base64' });
        const text = base64.json.data[0].embedding;
        same(floats(text), rounded(vectors(one)[0]));
        same(Buffer.from(text, 'base64').toString('base64'), text, 'with its end:');
    }),

    'embeddings: the same bytes under load': own(serve, [], async server => {
        const body = { input: [...TEXTS, ids(300)] };
        const alone = await ask(server, PATH, body);
        same(alone.status, 200, alone.text);
        const others = i => Array.from({ length: i }, (_, k) => ids(1 + ((k * i) % 40), i + k));
        const all = Array.from({ length: 60 }, (_, i) =>
            ask(server, PATH, i % 3 ? { input: others(i) } : body)
        );
        for (const [i, r] of (await Promise.all(all)).entries()) {
            same(r.status, 200, r.text);
            if (i % 3 === 0) check(r.text === alone.text, `answer ${i} differs`);
            else same(r.json.data.map(d => d.index), [...Array(i).keys()]);
        }
    }),

    'embeddings: /v1/models and /metrics': own(serve, [], async server => {
        const { data } = (await ask(server, '/v1/models')).json;
        same([data[0].capabilities, data[0].meta.n_embd], [['embedding'], 256]);
        await ask(server, PATH, { input: [ids(7), ids(8)] });
        await idle(server);
        const m = await metrics(server);
        same([m.bitnet_embedded_texts_total, m.bitnet_embedded_tokens_total], [2, 15]);
        same([m.bitnet_texts_waiting, m.bitnet_slots_busy], [0, 0]);
        same((await ask(server, '/health')).status, 200);
    })
});

/** So many inputs, which keep a server busy. */
const flood = (n, size = 500) => ({ input: Array.from({ length: n }, (_, i) => ids(size, i)) });
/** Until there are more vectors than before. */
const begun = async (server, before = 0) =>
    until(async () => (await embedded(server)) > before, 'the first vector');

const ofCrowds = serve => ({
    'embeddings: who has few texts does not wait for who has many': own(serve, [], async server => {
        for (const address of ['127.0.0.2', '127.0.0.1']) {
            const before = await embedded(server),
                many = open(server, flood(2048));
            await begun(server, before);
            const from = await embedded(server),
                few = await open(server, { input: [ids(400), ids(9)] }, address).done;
            const meanwhile = (await embedded(server)) - from;
            same(few.status, 200, few.text);
            check(meanwhile < 300, `${address}: ${meanwhile} texts came first`);
            many.leave();
            await idle(server);
        }
    }),

    'embeddings: many requests get no more than one': own(serve, [], async server => {
        const many = Array.from({ length: 40 }, () => open(server, flood(100, 120)));
        await begun(server);
        const from = await embedded(server),
            one = await open(server, flood(100, 120), '127.0.0.2').done;
        const others = (await embedded(server)) - from - 100;
        same(one.status, 200, one.text);
        check(others < 160 && others > 40, `the others got ${others} vectors, and it 100`);
        many.forEach(a => a.leave());
    }),

    'embeddings: a client that goes away': own(serve, ['-c', '16384'], async server => {
        for (const body of [flood(2048), { input: ids(16000) }]) {
            const before = await metrics(server),
                gone = open(server, body);
            await until(async () => (await waiting(server)) > 0, 'it works');
            if (body.input.length === 2048) await begun(server, before.bitnet_embedded_texts_total);
            gone.leave();
            await until(async () => (await waiting(server)) === 0, 'it is forgotten');
            const after = await metrics(server);
            const n = after.bitnet_embedded_texts_total - before.bitnet_embedded_texts_total;
            check(n < body.input.length / 2, `${n} vectors were made for nobody`);
            check(body.input.length === 2048 || n === 0, 'it was read to its end');
            same(after.bitnet_left_total - before.bitnet_left_total, 1, 'clients that left:');
        }
    }),

    'embeddings: 429 when too many wait': own(serve, [], async server => {
        const all = Array.from({ length: 4 }, () => open(server, flood(2048)));
        await until(async () => (await waiting(server)) > 6200, 'four wait');
        const full = await ask(server, PATH, flood(2048));
        same([full.status, full.json.error.type], [429, 'rate_limit_error']);
        check(Number(full.headers.get('retry-after')) > 0, 'Retry-After');
        const other = await open(server, { input: 'x' }, '127.0.0.2').done;
        same(other.status, 200, 'another client:');
        all.forEach(a => a.leave());
        await idle(server);
        same((await ask(server, PATH, { input: 'x' })).status, 200);
    }),

    'embeddings: --queue bounds requests': own(
        serve,
        ['-np', '1', '--queue', '1'],
        async server => {
            const all = [1, 2].map(() => open(server, flood(1000)));
            await until(async () => (await waiting(server)) > 1000, 'both wait');
            same((await ask(server, PATH, { input: 'x' })).status, 429);
            all.forEach(a => a.leave());
        }
    ),

    async 'embeddings: SIGTERM lets requests end within --grace, and then ends them'() {
        for (const [grace, body, wanted] of [
            ['20', flood(100, 60), 200],
            ['1', flood(2048), 503],
            ['0', { input: ids(16000) }, 503]
        ]) {
            const options = ['-m', data('q.gguf'), '-c', '16384', '--grace', grace, '-t', '1'];
            const server = await start(serve, options),
                answer = open(server, body);
            await until(async () => (await waiting(server)) > 0, 'it works');
            same(await server.stop(), 0, 'the exit code is');
            const { status, text } = await answer.done;
            same(status, wanted, text.slice(0, 200));
            check(wanted === 200 || text.includes('shutting down'), text.slice(0, 200));
        }
    }
});

/** What is wrong with a body, and what its error says. */
const BAD = [
    [{}, 'input', /needed/],
    [{ input: null }, 'input', /needed/],
    [{ input: 1 }, 'input', /needed/],
    [{ input: true }, 'input', /needed/],
    [{ input: {} }, 'input', /needed/],
    [{ input: [null] }, 'input', /needed/],
    [{ input: [{}] }, 'input', /needed/],
    [{ input: '' }, 'input', /^input: it is empty/],
    [{ input: [] }, 'input', /^input: it is empty/],
    [{ input: ['a', ''] }, 'input', /^input\[1\]: it is empty/],
    [{ input: [[5], []] }, 'input', /^input\[1\]: it is empty/],
    [{ input: [[]] }, 'input', /^input\[0\]: it is empty/],
    [{ input: ['a', 1] }, 'input', /^input\[1\]: .* kind/],
    [{ input: [[5], true] }, 'input', /^input\[1\]: .* kind/],
    [{ input: ['a', null] }, 'input', /^input\[1\]: .* kind/],
    [{ input: [1, 'a'] }, 'input', /no token/],
    [{ input: [1, [2]] }, 'input', /no token/],
    [{ input: [[1, [2]]] }, 'input', /no token/],
    [{ input: [-1] }, 'input', /no token/],
    [{ input: [1.5] }, 'input', /no token/],
    [{ input: [1e300] }, 'input', /no token/],
    [{ input: [2074] }, 'input', /no token/],
    [{ input: [[5], [99999]] }, 'input', /^input\[1\]: .*no token/],
    [{ input: [[5], ids(513)] }, 'input', /^input\[1\] has 513 tokens, but the context holds 512/],
    [{ input: Array(2049).fill('x') }, 'input', /at most 2048/],
    [{ input: Array(3000).fill([5]) }, 'input', /at most 2048/],
    [{ input: 'once upon a time '.repeat(6e5) }, 'input', /^input has 10200000 bytes, more than/],
    [{ input: ['x', 'y'.repeat(1e7)] }, 'input', /^input\[1\] has 10000000 bytes, more than/],
    [{ input: ['x', 'y '.repeat(2000)] }, 'input', /^input\[1\] has \d+ tokens/],
    [{ input: Array(2048).fill('-'.repeat(2240)) }, 'input', /at most 4 MB together/],
    [{ input: 'x', parse_special: 1 }, 'parse_special', /true or false/],
    [{ input: Array(1e6).fill(5) }, 'input', /the context holds 512/],
    [{ input: 'x', dimensions: 255 }, 'dimensions', /256/],
    [{ input: 'x', dimensions: 1024 }, 'dimensions', /256/],
    [{ input: 'x', dimensions: 0 }, 'dimensions', /number/],
    [{ input: 'x', dimensions: '256' }, 'dimensions', /number/],
    [{ input: 'x', dimensions: 1.5 }, 'dimensions', /whole/],
    [{ input: 'x', dimensions: [] }, 'dimensions', /number/],
    [{ input: 'x', encoding_format: 'base32' }, 'encoding_format', /float or base64/],
    [{ input: 'x', encoding_format: 1 }, 'encoding_format', /float or base64/],
    [{ input: 'x', encoding_format: ['float'] }, 'encoding_format', /float or base64/]
];

const ofEnemies = serve => ({
    'embeddings: bodies that are wrong': own(serve, [], async server => {
        for (const [body, param, says] of BAD) {
            const r = await ask(server, PATH, body),
                what = `${JSON.stringify(body).slice(0, 80)}: ${r.text.slice(0, 300)}`;
            check(r.status === 400 && r.json.error.param === param, what);
            check(says.test(r.json.error.message), what);
        }
        for (const bytes of ['ff', 'c080', 'eda080', 'e282', '22', '']) {
            const parts = [Buffer.from('{"input":"'), Buffer.from(bytes, 'hex'), Buffer.from('"')];
            const body = Buffer.concat(bytes === '' ? parts : [...parts, Buffer.from('}')]);
            const text = await raw(server, post(PATH, body, { Connection: 'close' }));
            check(/^HTTP\/1\.1 400 /.test(text) && /"message":"[^"]/.test(text), text);
        }
        for (const body of ['', '[]', '"x"', `{"input":${'['.repeat(1e5)}`]) {
            const text = await raw(server, post(PATH, body, { Connection: 'close' }));
            check(/^HTTP\/1\.1 400 /.test(text), `${body.slice(0, 20)} ${text}`);
        }
        const good = { encoding_format: null, dimensions: null, user: [], model: 5, stream: true };
        same((await ask(server, PATH, { input: '\0', ...good })).status, 200);
        for (const [path, body] of [
            ['/v1/completions', { prompt: 'x' }],
            ['/v1/chat/completions', { messages: [{ role: 'user', content: 'x' }] }]
        ]) {
            const r = await ask(server, path, body);
            check(r.status === 400 && /no output head.*\/v1\/embeddings/.test(r.text), r.text);
        }
    })
});

/** The cases. `load` gives a module that npm has installed. */
export const embeddings = (serve, logprobs, load) => ({
    ...ofClients(serve, load),
    ...ofVectors(serve, logprobs),
    ...ofCrowds(serve),
    ...ofEnemies(serve)
});
