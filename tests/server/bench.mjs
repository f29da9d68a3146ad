// bench.mjs - how fast serve answers many clients, and batch a file of lines, beside the speeds that
// bench measures of the same model in the same run, for ./build.sh bench --server:
//
//     node tests/server/bench.mjs [MODEL] [-t N] [--only load|gap|batch] [--seconds S]
//                                 [--parallel N] [--clients N] [--gaps LIST] [--lines L]
//
// Without MODEL: a random one of BitNet b1.58-2B-4T's shapes, in build/random.gguf. -t: threads
// (all processors). Prompts are drawn by a fixed seed from a few words, until they have the length
// in tokens of this model; no text ends before its last token.
//
// load: N clients (64) ask serve for S seconds (600), each for one text after the other: 30 tokens
// and 64 after them. serve writes N texts at the same time (16). Four of the clients stream, measure
// when the parts of a text come, and compare each text with what the server wrote before, alone.
//
// gap: 8 clients stream endless texts, while another one sends prompts of 500 tokens, one after the
// other, for S / 10 seconds: without --gap, then with each of the gaps (200,100,50, in ms).
//
// batch: L lines (200), each with a prompt of 50 to 500 tokens and 100 after it. batch gets them as
// it is, then with one line at a time, then as four processes of one thread with a part of the
// lines each. All must give the same bytes. Memory of one process is the most that it had; of four
// it is the most that they had together, where what they share counts once.
//
// Speeds of bench are those of a prompt of 128 tokens and of as many sequences as there are texts
// at the same time, each the mean of before and after. The limit is the time that all tokens would
// take with these speeds, first those that are read and then those that are written.
//
// build.sh gives BENCH_MODULES, the folder that has autocannon, or says in BENCH_NO_LOAD what is
// missing for it; BENCH_COMPILER is what compiled the programs.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import http from 'node:http';
import { availableParallelism, cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CLIENTS, at, findAutocannon, load, stream } from './crowd.mjs';
import { ask, check, metrics, same, sleep, start, until } from './server.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url)),
    programs = join(root, 'build'),
    folder = join(programs, 'bench-server');
const ROUNDS = 2, // of bench
    READ = 30, // load: tokens of a prompt, and after it
    WRITTEN = 64,
    TEXTS = 256, // different ones; so many are watched
    WATCHED = 8,
    WRITERS = 8, // gap: clients that stream
    SHORTEST = 50, // batch: tokens of a prompt, and after it
    LONGEST = 500, // of gap, too
    LINE_WRITTEN = 100,
    SLOTS = 32, // lines at the same time that batch has as it is
    PROCESSES = 4;
const WORDS = `a about after all and at bird boy by cat day dog dragon evening every few found from
    garden girl gold good green had happy house in into it king little long looked made many moon
    morning near never night of old on once one over red river saw she small some story sun the then
    there they to tree under very walked was water went were when white who wind with wood`;

const say = text => console.error(`bench: ${text}`);

class Usage extends Error {
    exitCode = 2;
}

// ---- processes: none outlives this one ----

const running = new Set();
process.on('exit', () => running.forEach(child => child.kill('SIGKILL')));
for (const [signal, code] of Object.entries({ SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }))
    process.on(signal, () => process.exit(code));

/** Its `ended` fails unless its exit code is 0, with what it said if stderr is piped. */
function run(program, args, stdio) {
    const child = spawn(join(programs, program), args, { stdio });
    let said = '';
    running.add(child);
    child.stderr?.setEncoding('utf8').on('data', data => (said = (said + data).slice(-1000)));
    child.ended = once(child, 'close').then(([code, signal]) => {
        running.delete(child);
        const why = signal ?? `exit code ${code}`;
        check(code === 0, `${program} ${args.join(' ')}: ${why}\n${said}`.trim());
    });
    return child;
}

/** What bench prints. */
async function askBench(args, input = '') {
    const child = run('bench', args, 'pipe');
    let text = '';
    child.stdout.setEncoding('utf8').on('data', data => (text += data));
    child.stdin.on('error', () => {}).end(input);
    await child.ended;
    return text.trim().split('\n');
}

/** KB that a line of a file below /proc says; 0 without such a file. */
function kilobytes({ pid }, file, name) {
    try {
        const text = fs.readFileSync(`/proc/${pid}/${file}`, 'utf8');
        return Number(new RegExp(`^${name}:\\s*(\\d+) kB`, 'm').exec(text)?.[1] ?? 0);
    } catch {
        return 0;
    }
}

/** The most that they had until all ended, in MB. Adding up pages takes time: it looks rarely. */
async function mostMemory(children, ended) {
    let most = 0;
    while (children.some(child => running.has(child))) {
        const begun = performance.now(),
            [file, name] = children.length > 1 ? ['smaps_rollup', 'Pss'] : ['status', 'VmHWM'];
        most = Math.max(most, children.reduce((sum, c) => sum + kilobytes(c, file, name), 0));
        const taken = performance.now() - begun;
        await Promise.race([ended, sleep(Math.max(10, 20 * taken))]);
    }
    return (most * 1024) / 1e6;
}

// ---- the speeds of bench ----

/** Tokens a second of a prompt, and of so many sequences that write together. */
async function measureSpeeds({ path, threads }, sequences) {
    const options = ['-t', threads, '-r', ROUNDS, '--json', '--sequences', sequences],
        [row] = (await askBench([path, ...options])).map(line => JSON.parse(line)),
        questions = `${row.kernels} ${threads}\n`.repeat(ROUNDS),
        [, ...answers] = await askBench([path, '--ask'], questions);
    const read = answers.map(line => Number(line.split(' ')[0]));
    return { kernels: row.kernels, read: mean(...read), written: row.tok_s };
}

const mean = (...values) => values.reduce((a, b) => a + b) / values.length;

/** Those of before and after: [a prompt's, that of the sequences]. */
const speedsOf = (before, after) => [
    mean(before.read, after.read),
    mean(before.written, after.written)
];

// ---- texts ----

/** Numbers from 0 to below n: mulberry32. */
function draws(seed) {
    return n => {
        seed = (seed + 0x6d2b79f5) | 0;
        let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * n);
    };
}

async function tokensOf(server, content) {
    return (await ask(server, '/tokenize', { content })).json.tokens;
}

/** What is drawn from: words with their tokens, and a bias against the end of a text. */
async function readWords(server) {
    const words = [],
        logit_bias = {};
    for (const word of WORDS.split(/\s+/))
        words.push({ word, n: (await tokensOf(server, ` ${word}`)).length });
    for (const end of ['<|eot_id|>', '<|end_of_text|>', '<|im_end|>', '<|endoftext|>', '</s>']) {
        const tokens = await tokensOf(server, end);
        if (tokens.length === 1) logit_bias[tokens[0]] = -100;
    }
    return { words, longest: Math.max(...words.map(w => w.n)), logit_bias };
}

/** A prompt of so many tokens, or up to a word less one token more. */
function drawPrompt({ words }, draw, tokens) {
    const parts = [];
    for (let n = 0; n < tokens; ) {
        const one = words[draw(words.length)];
        parts.push(one.word);
        n += one.n;
    }
    return parts.join(' ');
}

function makeTexts(words) {
    const draw = draws(1);
    return Array.from({ length: TEXTS }, (_, seed) => ({
        prompt: drawPrompt(words, draw, READ),
        max_tokens: WRITTEN,
        temperature: 0.8,
        seed,
        logit_bias: words.logit_bias
    }));
}

function makeLines(words, count, context) {
    const draw = draws(2),
        high = Math.min(LONGEST, context - LINE_WRITTEN - 1) - words.longest - 1;
    check(high > SHORTEST, `a context of ${context} tokens is too short for these lines`);
    return Array.from({ length: count }, (_, i) => {
        const tokens = SHORTEST + draw(high - SHORTEST + 1);
        const body = {
            prompt: drawPrompt(words, draw, tokens),
            max_tokens: LINE_WRITTEN,
            temperature: 0.8,
            logit_bias: words.logit_bias
        };
        return JSON.stringify({ custom_id: `${i}`, url: '/v1/completions', body });
    });
}

// ---- tables ----

const number = (value, digits = 1) => (value === undefined ? '-' : value.toFixed(digits));
const percent = share => `${Math.round(share * 100)} %`;
const range = values => `${Math.min(...values)} to ${Math.max(...values)}`;

/** Columns are [title, width], a width below 0 for text on the left. */
function table(columns, rows) {
    console.log();
    for (const cells of [columns.map(([title]) => title), ...rows])
        console.log(
            columns
                .map(([, width], i) => {
                    const text = `${cells[i] ?? ''}`;
                    return width < 0 ? text.padEnd(-width) : text.padStart(width);
                })
                .join('')
                .trimEnd()
        );
}

// ---- load ----

/** The server must write the watched texts again as it does now, when it is quiet. */
async function watchedTexts(server, bodies) {
    const texts = [];
    for (const body of bodies) {
        const { status, json } = await ask(server, '/v1/completions', body);
        same(status, 200, 'the status of a text is');
        texts.push({ body, wanted: json.choices[0].text });
    }
    return texts;
}

async function measureLoad(model, { seconds, parallel, clients }) {
    const options = ['-m', model.path, '-t', model.threads, '--parallel', parallel];
    options.push('--queue', clients, '--connections', clients + 32);
    const autocannon = findAutocannon(process.env.BENCH_MODULES);
    check(autocannon, 'autocannon is not in BENCH_MODULES');
    say('load: speeds before');
    const before = await measureSpeeds(model, parallel);
    const server = await start(join(programs, 'serve'), options);
    const bodies = makeTexts(await readWords(server)),
        texts = await watchedTexts(server, bodies.slice(0, WATCHED));
    say(`load: ${seconds} s`);
    const result = await load(server, {
        autocannon,
        seconds,
        clients,
        texts,
        requests: bodies.slice(WATCHED).map((body, i) => ({
            method: 'POST',
            path: '/v1/completions',
            headers: { 'Content-Type': 'application/json' },
            body: JSON.stringify({ ...body, stream: i % 2 === 1 })
        })),
        timeout: seconds + 60, // a slow answer is no error
        interval: 1000
    });
    same(await server.stop(), 0, 'the exit code of serve is');
    say('load: speeds after');
    return { result, speeds: speedsOf(before, await measureSpeeds(model, parallel)) };
}

function reportLoad({ result: r, speeds: [read, written] }, { parallel, clients }) {
    const count = status => r.statuses[status]?.count ?? 0,
        others = Object.keys(r.statuses).filter(s => s !== '200' && s !== '429'),
        other = others.reduce((sum, s) => sum + count(s), 0);
    console.log(`
load: ${clients} clients for ${number(r.seconds)} s, serve --parallel ${parallel}
prompts of ${READ} tokens, ${WRITTEN} after each
of it: written/s as a share of bench's speed with ${parallel} sequences
of limit: the same with the prompts, which bench reads at ${number(read)}/s`);
    table(
        [['requests', 8], ['200', 8], ['429', 6], ['other', 7], ['errors', 8], ['read/s', 10],
            ['written/s', 11], ['bench/s', 10], ['of it', 7], ['of limit', 10]],
        [[
            r.requests,
            count(200) + r.watched - r.refused,
            count(429) + r.refused,
            other,
            r.errors,
            number(r.read / r.seconds),
            number(r.written / r.seconds),
            number(written),
            percent(r.written / r.seconds / written),
            percent((r.read / read + r.written / written) / r.seconds)
        ]]
    );
    const times = list => [0.5, 0.95, 0.99].map(share => number(at(list, share)));
    table(
        [['ms', -20], ['p50', 10], ['p95', 10], ['p99', 10]],
        [['to the first token', ...times(r.first)], ['between tokens', ...times(r.between)]]
    );
    const mb = Object.values(r.memory).map(kb => number((kb * 1024) / 1e6));
    table([['memory MB', -20], ['start', 10], ['middle', 10], ['end', 10]], [['serve', ...mb]]);
    if (others.length || r.errors)
        throw new Error(`load: ${other} bad statuses (${others.join()}), ${r.errors} errors`);
}

// ---- gap ----

/** What the writers see in these seconds, and how many tokens of other prompts are read meanwhile. */
async function measureGap(model, gap, seconds) {
    say(`gap: ${gap ? `${gap} ms` : 'none'}`);
    const options = ['-m', model.path, '-t', model.threads, '--parallel', WRITERS + 1],
        server = await start(join(programs, 'serve'), [...options, ...(gap ? ['--gap', gap] : [])]);
    const words = await readWords(server),
        draw = draws(3),
        crowd = { server, agent: new http.Agent({ keepAlive: true }), first: [], between: [] };
    const body = seed => ({
        prompt: drawPrompt(words, draw, READ),
        max_tokens: -1,
        temperature: 0.8,
        top_k: 40,
        seed,
        logit_bias: words.logit_bias
    });
    const writers = Array.from({ length: WRITERS }, async (_, seed) => {
        while (!crowd.over) same((await stream(crowd, body(seed))).status, 200, 'the status is');
    });
    const all = Promise.allSettled(writers);
    await until(() => crowd.first.length >= WRITERS, 'all write');
    crowd.between.length = 0;
    const tokens = async () => (await metrics(server)).bitnet_prompt_tokens_total,
        before = await tokens(),
        begun = performance.now(),
        passed = () => (performance.now() - begun) / 1000;
    while (passed() < seconds) {
        const request = { prompt: drawPrompt(words, draw, LONGEST), max_tokens: 1 };
        same((await ask(server, '/v1/completions', request)).status, 200, 'the status is');
    }
    const { between } = crowd,
        written = between.length / passed(),
        read = ((await tokens()) - before) / passed();
    crowd.over = true;
    crowd.agent.destroy();
    await all;
    await server.stop();
    return { gap, between: between.slice(), read, written };
}

function reportGaps(rows) {
    console.log(`
gap: ms between two tokens of ${WRITERS} texts, while prompts of ${LONGEST} tokens come`);
    const times = list => [0.5, 0.99, 1].map(share => number(at(list, share)));
    table(
        [['--gap', 6], ['p50', 10], ['p99', 10], ['most', 10], ['written/s', 11], ['read/s', 10]],
        rows.map(r => [r.gap || '-', ...times(r.between), number(r.written), number(r.read)])
    );
}

// ---- batch ----

/** One batch for each list of options, all at the same time, of the same lines. */
async function runBatch(model, lists) {
    const input = join(folder, 'lines.jsonl'),
        files = lists.map((_, i) => join(folder, `results.${i}.jsonl`));
    const begun = performance.now();
    const children = lists.map((list, i) => {
        const ends = [fs.openSync(input), fs.openSync(files[i], 'w'), 'inherit'],
            child = run('batch', ['-m', model.path, '--quiet', ...list], ends);
        ends.slice(0, 2).forEach(fs.closeSync);
        return child;
    });
    const ended = Promise.all(children.map(child => child.ended)).then(
        () => (performance.now() - begun) / 1000
    );
    const [seconds, memory] = await Promise.all([ended, mostMemory(children, ended)]);
    const lines = files.flatMap(file => fs.readFileSync(file, 'utf8').trimEnd().split('\n'));
    return { seconds, memory, results: lines.filter(l => l).sort() };
}

function readUsage(results, count) {
    same(results.length, count, 'results of batch:');
    const bodies = results.map(line => JSON.parse(line).response.body),
        written = bodies.map(b => b.usage.completion_tokens);
    if (written.some(n => n !== LINE_WRITTEN))
        say(`batch: some texts ended early: they have ${range(written)} tokens`);
    return { prompts: bodies.map(b => b.usage.prompt_tokens), written };
}

async function makeInput(model, count) {
    const server = await start(join(programs, 'serve'), ['-m', model.path, '--parallel', '1']);
    const { json } = await ask(server, '/v1/models'),
        context = Math.min(4096, json.data[0].meta.n_ctx);
    const lines = makeLines(await readWords(server), count, context);
    await server.stop();
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(join(folder, 'lines.jsonl'), `${lines.join('\n')}\n`);
}

async function measureBatch(model, { lines }) {
    const { threads } = model,
        parts = Array.from({ length: PROCESSES }, (_, i) => ['--shard', `${i}/${PROCESSES}`]),
        each = (...options) => parts.map(part => ['-t', '1', ...part, ...options]);
    const plans = {
        'as it is': [['-t', threads]],
        'one at a time': [['-t', threads, '--parallel', '1']],
        [`${PROCESSES} x one at a time`]: each('--parallel', '1'),
        [`${PROCESSES} x as it is`]: each()
    };
    const together = Math.min(SLOTS, lines),
        rows = [];
    await makeInput(model, lines);
    say('batch: speeds before');
    const before = await measureSpeeds(model, together);
    let after;
    for (const [name, lists] of Object.entries(plans)) {
        say(`batch: ${name}`);
        rows.push({ name, ...(await runBatch(model, lists)) });
        if (after) continue;
        say('batch: speeds after');
        after = await measureSpeeds(model, together);
    }
    return { rows, together, speeds: speedsOf(before, after) };
}

function reportBatch({ rows, together, speeds: [read, written] }, { lines }, { threads }) {
    const usage = readUsage(rows[0].results, lines),
        sum = list => list.reduce((a, b) => a + b),
        tokens = sum(usage.prompts) + sum(usage.written),
        limit = sum(usage.prompts) / read + sum(usage.written) / written,
        bytes = r => r.results.join('\n');
    console.log(`
batch: ${lines} lines, prompts of ${range(usage.prompts)} tokens
${sum(usage.prompts)} tokens read, ${sum(usage.written)} written
as it is: ${threads} threads; ${PROCESSES} x: so many processes of one thread at the same time
times: seconds over those of the first row
limit: bench reads ${number(read)}/s, and writes ${number(written)}/s with ${together} sequences`);
    const row = (name, seconds, ...more) => [
        name,
        number(seconds),
        number(tokens / seconds),
        number((lines / seconds) * 60),
        number(seconds / rows[0].seconds, 2),
        percent(limit / seconds),
        ...more
    ];
    const compared = r => (r === rows[0] ? '-' : bytes(r) === bytes(rows[0]) ? 'same' : 'DIFFER');
    table(
        [['', -20], ['seconds', 10], ['tokens/s', 10], ['lines/min', 11], ['times', 8],
            ['of limit', 10], ['memory MB', 11], ['results', 9]],
        [
            ...rows.map(r => row(r.name, r.seconds, number(r.memory || undefined), compared(r))),
            row('limit', limit, '-', '-')
        ]
    );
    if (rows.some(r => compared(r) === 'DIFFER')) throw new Error('batch: the results differ');
}

// ---- from the command line to the tables ----

function parse(args) {
    const options = {
        threads: Math.min(availableParallelism(), 256),
        seconds: 600,
        parallel: 16,
        clients: CLIENTS,
        lines: 200,
        gaps: [200, 100, 50],
        only: ''
    };
    const highest = {
        '-t': ['threads', 256],
        '--seconds': ['seconds', 86400],
        '--parallel': ['parallel', 1024],
        '--clients': ['clients', 10000, 8],
        '--lines': ['lines', 100000]
    };
    for (let i = 0; i < args.length; i++) {
        const [key, high, low = 1] = highest[args[i]] ?? [];
        if (key) {
            const value = args[++i] ?? '';
            if (!/^\d{1,6}$/.test(value) || value < low || value > high)
                throw new Usage(`${args[i - 1]} wants a number from ${low} to ${high}`);
            options[key] = Number(value);
        } else if (args[i] === '--only') {
            options.only = args[++i];
            if (!['load', 'gap', 'batch'].includes(options.only))
                throw new Usage('--only wants load, gap or batch');
        } else if (args[i] === '--gaps') {
            const list = args[++i] ?? '';
            if (!/^[1-9]\d{0,5}(,[1-9]\d{0,5})*$/.test(list))
                throw new Usage('--gaps wants milliseconds with commas between them');
            options.gaps = list.split(',').map(Number);
        } else if (args[i].startsWith('-') || options.model)
            throw new Usage(
                'not --server [MODEL] [-t N] [--only load|gap|batch] [--seconds S] ' +
                    `[--parallel N] [--clients N] [--gaps LIST] [--lines L]: ${args[i]}`
            );
        else options.model = args[i];
    }
    return options;
}

/** The model's path; a random model is made once. */
function findModel(path) {
    const random = join(programs, 'random.gguf');
    if (!path && !fs.existsSync(random)) {
        say(`writes a random model to ${random}`);
        const { status } = spawnSync(join(programs, 'bench'), ['--save', random]);
        check(status === 0, 'no model');
    }
    path ??= random;
    check(fs.statSync(path, { throwIfNoEntry: false })?.isFile(), `cannot read ${path}`);
    return path;
}

async function main() {
    const options = parse(process.argv.slice(2)),
        { BENCH_NO_LOAD, BENCH_COMPILER } = process.env,
        model = { path: findModel(options.model), threads: options.threads },
        wants = part => !options.only || options.only === part;
    if (wants('load') && BENCH_NO_LOAD)
        throw new Error(`${BENCH_NO_LOAD}; --only gap and --only batch can do without`);
    const { kernels } = await measureSpeeds(model, 1);
    console.log(
        `${cpus()[0]?.model ?? 'unknown CPU'}, ${cpus().length} processors; threads: ` +
            `${model.threads}; kernels: ${kernels}; ${BENCH_COMPILER ?? 'unknown compiler'}; ` +
            `Node ${process.versions.node}\n` +
            `A model of ${(fs.statSync(model.path).size / 1e6).toFixed(1)} MB: ${model.path}`
    );
    if (wants('load')) reportLoad(await measureLoad(model, options), options);
    if (wants('gap')) {
        const rows = [];
        for (const gap of [0, ...options.gaps])
            rows.push(await measureGap(model, gap, options.seconds / 10));
        reportGaps(rows);
    }
    if (wants('batch')) reportBatch(await measureBatch(model, options), options, model);
}

main().then(
    () => process.exit(0),
    e => {
        say(e.message);
        process.exit(e.exitCode ?? 1);
    }
);
