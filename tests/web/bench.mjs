// bench.mjs - how fast the browser part reads a prompt and writes, in Node and in Chromium, beside
// the native kernels, for ./build.sh bench --web:
//
//     node tests/web/bench.mjs [MODEL] [-t N] [-r ROUNDS] [--only TEXT]
//
// Without MODEL: a random one of BitNet b1.58-2B-4T's shapes, in build/random.gguf. For each
// runtime and variant, with 1, 2, 4, ... N threads, a prompt of some 128 tokens is read and 24 are
// written after it, greedily, through web/bitnet.js. A model of embeddings reads a text of 128
// tokens, several times, and one of 512. Native kernels take their turn in each round,
// so that a noisy machine is noisy for both. Printed are medians. Load is from localhost; memory is
// the module's, after writing, and how much of it is not the file. The last column is writing
// beside one other process that keeps a processor busy. --only leaves the rows whose names have
// TEXT in them, such as "Chromium relaxed".
//
// build.sh gives BENCH_MODULES, the folder that has puppeteer-core, or says in BENCH_NO_CHROMIUM
// what is missing for it.
import { execFileSync, fork, spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { launch } from './browsers.mjs';
import { ISOLATED, sendFile, serve } from './serve.mjs';

const self = fileURLToPath(import.meta.url),
    root = fileURLToPath(new URL('../../', import.meta.url)),
    site = join(root, 'build/web'),
    program = join(root, 'build/bench');

// What is measured, by whether the model writes text: two speeds, in tokens a second. `call` gets
// the round and `sizes`; `warm` are those of the first call, which also builds the head's screen.
const TEXT = {
    call: 'generate',
    titles: ['prefill/s', 'decode/s'],
    sizes: [128, 24],
    warm: [24, 4],
    about: ([read, written]) => `a prompt of ${read} tokens, ${written} after it`,
};
const VECTORS = {
    call: 'embed',
    titles: ['128/s', '512/s'],
    sizes: [128, 512],
    warm: [24, 48],
    about: ([short, long]) => `texts of ${short} and ${long} tokens`,
};

// ---- in Node's other process, or in the page: these see nothing of this file ----

async function load(library, source, options) {
    const { BitNet } = await import(library);
    const start = performance.now();
    const model = await BitNet.load(source, { context: 2048, cache: 'none', ...options });
    globalThis.model = model;
    // The first words differ from round to round, so that no text begins like the one before it.
    globalThis.textOf = async (tokens, round) => {
        const words = 'the quick brown fox jumps over a lazy dog and then it sleeps'.split(' ');
        let text = `${round}`;
        for (let i = 0; (await model.tokenize(text, { bos: true })).length < tokens; i++)
            text += ` ${words[(round + i) % words.length]}`;
        return text;
    };
    const seconds = (performance.now() - start) / 1000;
    const { fileBytes, threads, hasHead } = model.info;
    return { seconds, fileBytes, threads, hasHead };
}

async function generate(round, read, written) {
    const { model, textOf } = globalThis;
    const texts = model.generate(await textOf(read, round), { maxTokens: written });
    while (!(await texts.next()).done);
    const { prefillPerSecond, promptTokens, tokens, decodeSeconds } = model.stats;
    return {
        speeds: [prefillPerSecond, (tokens - 1) / decodeSeconds], // the last one is not evaluated
        sizes: [promptTokens, written],
        memoryBytes: model.info.memoryBytes,
    };
}

async function embed(round, ...sizes) {
    const { model, textOf } = globalThis,
        speeds = [],
        tokens = [];
    for (const size of sizes) {
        const input = await textOf(size, round),
            start = performance.now();
        let read = 0,
            usage;
        do {
            ({ usage } = await model.embeddings.create({ input, encoding_format: 'base64' }));
            read += usage.prompt_tokens;
        } while (read < 512);
        speeds.push(read / ((performance.now() - start) / 1000));
        tokens.push(usage.prompt_tokens);
    }
    return { speeds, sizes: tokens, memoryBytes: model.info.memoryBytes };
}

// ---- the sides: each with call(name, ...arguments) and close() ----

async function inNode(flags) {
    const child = fork(self, ['--side'], { execArgv: flags });
    let settle = {};
    child.on('message', ({ value, error }) =>
        error ? settle.reject(new Error(error)) : settle.resolve(value)
    );
    child.on('exit', () => settle.reject?.(new Error('Node crashed')));
    return {
        version: `Node ${process.versions.node}`,
        library: pathToFileURL(join(site, 'node.js')).href,
        call: (...message) =>
            new Promise((resolve, reject) => {
                settle = { resolve, reject };
                child.send(message);
            }),
        async close() {
            child.kill();
        },
    };
}

async function inChromium(url) {
    const browser = await launch('chromium', process.env.BENCH_MODULES),
        page = await browser.newPage();
    await page.goto(`${url}empty`);
    return {
        version: await browser.version(),
        library: '/bitnet.js',
        call: (name, ...args) => page.evaluate({ load, generate, embed }[name], ...args),
        close: () => browser.close(),
    };
}

// The native program, which answers in lines.
async function startNative(model) {
    const child = spawn(program, [model, '--ask'], { stdio: ['pipe', 'pipe', 'inherit'] }),
        lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stdin.on('error', () => {});
    const next = async () => {
        const { done, value } = await lines.next();
        if (done) throw new Error(''); // it has said why
        return value.trim();
    };
    return {
        kernels: (await next()).split(' '),
        async ask(kernel, threads) {
            child.stdin.write(`${kernel} ${threads}\n`);
            return { speeds: (await next()).split(' ').map(Number) };
        },
        close: () => child.kill(),
    };
}

// Runs f while another process keeps a processor busy.
async function beside(f) {
    const busy = spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' });
    try {
        await new Promise(r => setTimeout(r, 500));
        return await f();
    } finally {
        busy.kill();
    }
}

// ---- rows ----

const say = text => console.error(`bench: ${text}`);

/** The native kernels' results, by name and threads: each round of a row adds one. */
class Native {
    #program;
    results = new Map(); // "KERNEL THREADS" -> results
    busy = new Map(); // threads -> result of the reference

    constructor(program) {
        this.#program = program;
        this.fast = program.kernels[0];
        this.reference = program.kernels.includes('avx2') ? 'avx2' : this.fast;
    }

    async measure(kernel, threads) {
        const result = await this.#program.ask(kernel, threads);
        this.results.set(`${kernel} ${threads}`, [...this.of(kernel, threads), result]);
        return result;
    }

    async measureBusy(threads) {
        this.busy.set(threads, await this.#program.ask(this.reference, threads));
    }

    of(kernel, threads) {
        return this.results.get(`${kernel} ${threads}`) ?? [];
    }
}

async function measureRow(row, { url, rounds, native }) {
    const { threads, variant } = row,
        side = await row.open(url);
    try {
        row.version = side.version;
        row.loaded = await side.call('load', side.library, `${url}model`, { threads, variant });
        row.what = row.loaded.hasHead ? TEXT : VECTORS;
        const { call, sizes, warm } = row.what;
        await side.call(call, 0, ...warm);
        row.native = [];
        row.rounds = [];
        for (let i = 1; i <= rounds; i++) {
            row.native.push(await native.measure(native.reference, threads));
            row.rounds.push(await side.call(call, i, ...sizes));
            if (native.of(native.fast, threads).length < rounds)
                await native.measure(native.fast, threads);
        }
        if (threads > 1)
            await beside(async () => {
                row.busy = await side.call(call, rounds + 1, ...sizes);
                if (!native.busy.has(threads)) await native.measureBusy(threads);
            });
    } finally {
        await side.close();
    }
}

// ---- the table ----

const WIDTHS = [-19, 7, 8, 11, 8, 11, 7, 10, 7, 7];
const titles = ([first, second]) =>
    ['', 'threads', 'load s', 'memory MB', '- file', first, 'share', second, 'share', 'busy'];

function line(cells) {
    const padded = WIDTHS.map((width, i) => {
        const text = `${cells[i] ?? '-'}`;
        return width < 0 ? text.padEnd(-width) : text.padStart(width);
    });
    console.log(padded.join(''));
}

const median = values => {
    const v = [...values].sort((a, b) => a - b);
    return (v[v.length >> 1] + v[(v.length - 1) >> 1]) / 2;
};
const speed = (rounds, i) => median(rounds.map(r => r.speeds[i]));

// What native and other rows have in common: speeds, as they are and as a share of the reference's.
function speeds(rounds, reference, busy) {
    const cells = [0, 1].flatMap(i => {
        const value = speed(rounds, i);
        return [value.toFixed(1), `${Math.round((value / speed(reference, i)) * 100)} %`];
    });
    return [...cells, busy?.speeds[1].toFixed(1)];
}

function printNative(native) {
    for (const [key, results] of native.results) {
        const [kernel, threads] = key.split(' '),
            busy = kernel === native.reference ? native.busy.get(Number(threads)) : undefined,
            reference = native.of(native.reference, threads);
        const none = [undefined, undefined, undefined];
        line([`native ${kernel}`, threads, ...none, ...speeds(results, reference, busy)]);
    }
}

function printRow(row) {
    const { name, threads, why, loaded, rounds } = row;
    if (why) return console.log(`${name.padEnd(19)}${`${threads}`.padStart(7)}  ${why}`);
    const memory = Math.max(...rounds.map(r => r.memoryBytes));
    line([
        name,
        threads,
        loaded.seconds.toFixed(1),
        (memory / 1e6).toFixed(0),
        ((memory - loaded.fileBytes) / 1e6).toFixed(0),
        ...speeds(rounds, row.native, row.busy),
    ]);
}

function report(rows, { path, rounds, native, variants }) {
    const done = rows.filter(r => !r.why),
        what = done[0]?.what ?? TEXT,
        versions = [...new Set(done.map(r => r.version))];
    console.log(
        `A model of ${(statSync(path).size / 1e6).toFixed(0)} MB; ` +
            `${what.about(done[0]?.rounds[0].sizes ?? what.sizes)}; rounds: ${rounds}\n` +
            `${versions.join(', ')}\n` +
            `share: of native ${native.reference} on as many threads, in turn with it; ` +
            `busy: ${what.titles[1]} beside a busy process\n`
    );
    line(titles(what.titles));
    printNative(native);
    rows.forEach(printRow);
    console.log();
    for (const variant of variants) {
        const file = `engine-${variant}.js`;
        console.log(`${file.padEnd(19)} ${statSync(join(site, file)).size} bytes`);
    }
}

// ---- from the command line to the table ----

class Usage extends Error {
    exitCode = 2;
}

function parse(args) {
    const options = { rounds: 2, threads: Math.min(availableParallelism(), 8), only: '' };
    const number = (flag, value, high) => {
        if (!/^\d+$/.test(value ?? '') || value < 1 || value > high)
            throw new Usage(`${flag} wants a number from 1 to ${high}`);
        return Number(value);
    };
    for (let i = 0; i < args.length; i++) {
        if (args[i] === '-t') options.threads = number('-t', args[++i], 64);
        else if (args[i] === '-r') options.rounds = number('-r', args[++i], 101);
        else if (args[i] === '--only' && args[i + 1]) options.only = args[++i];
        else if (args[i].startsWith('-') || options.model)
            throw new Usage(`not --web [MODEL] [-t N] [-r ROUNDS] [--only TEXT]: ${args[i]}`);
        else options.model = args[i];
    }
    return options;
}

// Its path; a random one is made once.
function findModel(path) {
    if (!path) {
        path = join(root, 'build/random.gguf');
        if (!existsSync(path)) {
            say(`writes a random model to ${path}`);
            if (spawnSync(program, ['--save', path], { stdio: 'inherit' }).status !== 0)
                throw new Error('no model');
        }
    }
    try {
        closeSync(openSync(path));
        if (statSync(path).isFile()) return path;
    } catch {
        // the same
    }
    throw new Error(`cannot read ${path}`);
}

// An empty page, to import bitnet.js into; the model; else what is in the folder.
const serveModel = path => (req, res, at) => {
    if (at === '/model') sendFile(req, res, path, ISOLATED);
    else if (at === '/empty')
        res.writeHead(200, { 'Content-Type': 'text/html', ...ISOLATED }).end('<!doctype html>');
    else return false;
    return true;
};

const nodeTakes = flag => spawnSync(process.execPath, [flag, '-e', '0']).status === 0;

function makeRows(threads, built) {
    const counts = [];
    for (let n = 1; n < threads; n *= 2) counts.push(n);
    counts.push(threads);
    const more = counts.filter(n => n > 1); // one thread is simd's; the figures are the same
    const { BENCH_MODULES, BENCH_NO_CHROMIUM } = process.env,
        noChromium = BENCH_NO_CHROMIUM || (BENCH_MODULES ? '' : 'BENCH_MODULES is not set');
    const flags = ['--experimental-wasm-relaxed-simd', '--no-liftoff'].filter(nodeTakes);
    const rows = [];
    for (const runtime of ['Node', 'Chromium'])
        for (const variant of ['simd', 'threads', 'relaxed'])
            for (const n of variant === 'simd' ? [1] : variant === 'threads' ? more : counts)
                rows.push({
                    name: `${runtime} ${variant}`,
                    threads: n,
                    variant,
                    why:
                        (runtime === 'Chromium' && noChromium) ||
                        (built.includes(variant) ? '' : 'not built: the compiler lacks it'),
                    open:
                        runtime === 'Node'
                            ? () => inNode(variant === 'relaxed' ? flags : [])
                            : inChromium,
                });
    return rows;
}

async function main() {
    const { rounds, threads, model, only } = parse(process.argv.slice(2)),
        path = findModel(model),
        variants = readdirSync(site).flatMap(f => /^engine-(\w+)\.js$/.exec(f)?.[1] ?? []);
    const rows = makeRows(threads, variants).filter(({ name }) => name.includes(only));
    if (!rows.length) throw new Usage(`--only: no row's name has '${only}' in it`);
    const answers = await startNative(path),
        native = new Native(answers);
    const { server, url } = await serve({ root: site, hook: serveModel(path) });
    try {
        for (const row of rows.filter(r => !r.why)) {
            say(`${row.name}, threads: ${row.threads}`);
            await measureRow(row, { url, rounds, native }).catch(e => {
                row.why = e.message.split('\n')[0];
                process.exitCode = 1;
            });
        }
        report(rows, { path, rounds, native, variants });
    } finally {
        answers.close();
        server.closeAllConnections();
        server.close();
    }
}

if (process.argv[2] === '--side') {
    const operations = { load, generate, embed };
    process.on('message', async ([name, ...args]) => {
        try {
            process.send({ value: await operations[name](...args) });
        } catch (e) {
            process.send({ error: e.message });
        }
    });
    process.on('disconnect', () => process.exit());
} else {
    main().catch(e => {
        if (e.message) say(e.message);
        process.exit(e.exitCode ?? 1);
    });
}
