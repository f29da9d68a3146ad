// bundlers.mjs - the npm package where people use it: what npm pack makes is installed, bundled and
// run, in Chromium and in other JavaScript engines. The text must be native generate's everywhere,
// and there must be threads where a page is isolated.
//
//     node tests/web/bundlers.mjs GENERATE MODULES FOLDER [FILTER]
//
// MODULES is a folder whose node_modules has tests/web/package.json's, FOLDER one with the package
// and tests/web/bundlers.json's. What npm could not install is skipped.
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
    cpSync,
    existsSync,
    mkdirSync,
    readdirSync,
    rmSync,
    statSync,
    writeFileSync
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { HANG, launch, newPage } from './browsers.mjs';
import { ISOLATED, serve } from './serve.mjs';

const [generate, modules, folder, filter = ''] = process.argv.slice(2);
const installed = name => join(resolve(folder), 'node_modules', name);
const PACKAGE = installed('bitnet-h'),
    TINY = join(PACKAGE, 'tiny.gguf'),
    PROMPT = 'Once upon a time',
    work = join(resolve(folder), 'projects');
const native = execFileSync(
    generate,
    ['-m', TINY, '-p', PROMPT, '-n', '20', '--temp', '0'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }
).slice(PROMPT.length, -1);

class Skip extends Error {}

/** A program that loads the model and says what came of it. */
const program = (from, source) => `
import { BitNet } from '${from}';
export async function run() {
    const model = await BitNet.load(${source}, { threads: 2, cache: 'none' });
    let text = '';
    for await (const t of model.generate('${PROMPT}', { maxTokens: 20 })) text += t;
    const { variant, threads, notes } = model.info;
    await model.free();
    return { text, variant, threads, notes };
}
const failed = e => ({ error: String(e?.stack ?? e) });
`;
const ON_A_PAGE = `run().catch(failed).then(result => { globalThis.result = result; });`;
const IN_A_WORKER = `run().catch(failed).then(result => postMessage(result));`;
const WITH_A_WORKER = `worker.onmessage = e => { globalThis.result = e.data; };
worker.onerror = e => { globalThis.result = { error: e.message }; };`;
const HERE = `new URL('/tiny.gguf', location.href)`;
const page = script => `<!doctype html><title>test</title><script type="module">${script}</script>`;
const loads = src => `<!doctype html><title>test</title><script type="module" src="${src}"></script>`;

/** An empty project with these files and the model. */
function project(name, files) {
    const at = join(work, name);
    rmSync(at, { recursive: true, force: true });
    for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(at, path)), { recursive: true });
        writeFileSync(join(at, path), text);
    }
    cpSync(TINY, join(at, 'tiny.gguf'));
    return at;
}

function check({ error, text, variant, threads, notes }, isolated = true) {
    if (error) throw new Error(error);
    if (text !== native) throw new Error(`the text is ${text}, not ${native}`);
    if (isolated !== threads > 1 || isolated !== (variant !== 'simd'))
        throw new Error(`${variant} with ${threads} threads: ${notes}`);
}

let browser;
/** What the page at url leaves as its result. */
async function visit(url) {
    browser ??= await launch('chromium', modules);
    const context = await browser.createBrowserContext(),
        tab = await newPage(context);
    let fault;
    tab.on('pageerror', e => (fault ??= e));
    try {
        await tab.goto(url);
        return await tab
            .waitForFunction(() => globalThis.result, { timeout: 60000 })
            .then(handle => handle.jsonValue())
            .catch(e => ({ error: String(fault ?? e) }));
    } finally {
        await context.close();
    }
}

/** The same for a folder's index.html, on a server of its own. */
async function visitFolder(root, headers = ISOLATED) {
    const { server, url } = await serve({ root, headers });
    try {
        return await visit(url);
    } finally {
        server.closeAllConnections();
        server.close();
    }
}

function need(name) {
    if (!existsSync(installed(name))) throw new Skip(`npm has not installed ${name}`);
}
const load = (name, file) => {
    need(name);
    return import(pathToFileURL(join(installed(name), file)));
};

const NODE = join(installed('node'), 'bin/node');

/** The package beside a page, as on a server that knows nothing of npm. */
function withPackage(name, files) {
    const at = project(name, files);
    cpSync(PACKAGE, join(at, 'bitnet-h'), { recursive: true });
    return at;
}

/** Runs a script in another engine. */
async function runs(command, ...args) {
    const at = project('engine', {
        'run.mjs': `${program('bitnet-h', `'tiny.gguf'`)}
            run().catch(failed).then(r => { console.log(JSON.stringify(r)); process.exit(); });`
    });
    const { stdout } = await promisify(execFile)(command, [...args, 'run.mjs'], {
        cwd: at,
        timeout: 60000,
        env: { ...process.env, DENO_NO_UPDATE_CHECK: '1', DENO_DIR: join(work, 'deno') }
    });
    check(JSON.parse(stdout));
}

const OWN_WORKER = {
    'index.html': loads('main.js'),
    'main.js': `const worker = new Worker(new URL('./own.js', import.meta.url), { type: 'module' });
${WITH_A_WORKER}`,
    'own.js': program('bitnet-h', HERE) + IN_A_WORKER
};

const cases = {
    async 'a script on a page'() {
        const main = program('./bitnet-h/bitnet.js', HERE) + ON_A_PAGE;
        check(await visitFolder(withPackage('plain', { 'index.html': page(main) })));
    },

    async 'a page that is not isolated'() {
        const main = program('./bitnet-h/bitnet.js', HERE) + ON_A_PAGE;
        check(await visitFolder(withPackage('alone', { 'index.html': page(main) }), {}), false);
    },

    async 'another origin'() {
        const cdn = await serve({
            root: resolve(folder, 'node_modules'),
            headers: {
                'Access-Control-Allow-Origin': '*',
                'Cross-Origin-Resource-Policy': 'cross-origin'
            }
        });
        const main = program(`${cdn.url}bitnet-h/bitnet.js`, HERE) + ON_A_PAGE;
        try {
            check(await visitFolder(project('cdn', { 'index.html': page(main) })));
        } finally {
            cdn.server.closeAllConnections();
            cdn.server.close();
        }
    },

    async "a page's own worker"() {
        const files = {
            ...OWN_WORKER,
            'own.js': program('./bitnet-h/bitnet.js', HERE) + IN_A_WORKER
        };
        check(await visitFolder(withPackage('worker', files)));
    },

    async 'a service worker'() {
        const at = withPackage('service', {
            'index.html': page(`
                await navigator.serviceWorker.register('sw.js', { type: 'module' });
                await navigator.serviceWorker.ready;
                if (navigator.serviceWorker.controller)
                    globalThis.result = await (await fetch('/say')).json();
                else location.reload();`),
            'sw.js': `${program('./bitnet-h/inline.js', HERE)}
                addEventListener('install', () => skipWaiting());
                addEventListener('fetch', e => {
                    if (e.request.url.endsWith('/say'))
                        e.respondWith(run().catch(failed).then(r => Response.json(r)));
                });`
        });
        check(await visitFolder(at), false);
    },

    async 'a SharedWorker'() {
        const worker = from => ({
            'index.html': page(`
                const { port } = new SharedWorker('own.js', { type: 'module' });
                port.onmessage = e => { globalThis.result = e.data; };`),
            'own.js': `${program(from, HERE)}
                onconnect = e => run().catch(failed).then(r => e.ports[0].postMessage(r));`
        });
        const { error } = await visitFolder(withPackage('shared', worker('./bitnet-h/bitnet.js')));
        if (!/ERR_UNSUPPORTED|bitnet-h\/inline needs none/.test(error)) throw new Error(error);
        check(await visitFolder(withPackage('shared', worker('./bitnet-h/inline.js'))), false);
    },

    async 'Trusted Types'() {
        const main = program('./bitnet-h/bitnet.js', HERE) + ON_A_PAGE;
        const at = withPackage('trusted', { 'index.html': page(main) });
        for (const [csp, works] of [
            ["require-trusted-types-for 'script'", true],
            ["require-trusted-types-for 'script'; trusted-types bitnet-h", true],
            ["require-trusted-types-for 'script'; trusted-types other", false]
        ]) {
            const headers = { ...ISOLATED, 'Content-Security-Policy': csp };
            const result = await visitFolder(at, headers);
            if (works) check(result);
            else if (!/could not be started.* must allow the policy bitnet-h/.test(result.error))
                throw new Error(result.error ?? csp);
        }
        // The page's own policy lets its worker through, but none is for the worker's threads.
        const own = `<script>
            trustedTypes.createPolicy('default', { createScriptURL: url => url });
            </script>`;
        const refused = withPackage('refused', { 'index.html': own + page(main) });
        const csp = "require-trusted-types-for 'script'; trusted-types default";
        const result = await visitFolder(refused, { ...ISOLATED, 'Content-Security-Policy': csp });
        check(result, false);
        if (!/TrustedScriptURL/.test(result.notes)) throw new Error(`${result.notes} says not why`);
    },

    async 'a Content-Security-Policy'() {
        const main = program('./bitnet-h/bitnet.js', HERE) + ON_A_PAGE;
        const at = withPackage('csp', { 'index.html': loads('main.js'), 'main.js': main });
        const visitWith = csp =>
            visitFolder(at, { ...ISOLATED, 'Content-Security-Policy': csp });
        check(await visitWith("script-src 'self' 'wasm-unsafe-eval'; worker-src blob:"));
        const { error } = await visitWith("script-src 'self'; worker-src blob:");
        if (!/script-src needs 'wasm-unsafe-eval'/.test(error)) throw new Error(error);
    },

    async 'Parcel'() {
        need('parcel');
        const at = project('parcel', {
            'package.json': '{ "private": true }',
            'index.html': loads('main.js'),
            'main.js': program('bitnet-h', HERE) + ON_A_PAGE
        });
        const { stderr } = await promisify(execFile)(
            process.execPath,
            [
                join(installed('parcel'), 'lib/bin.js'),
                ...['build', 'index.html', '--no-source-maps', '--log-level', 'warn'],
                ...['--no-cache', '--cache-dir', join(at, 'cache')] // else in the repository's root
            ],
            { cwd: at }
        );
        if (stderr) throw new Error(stderr);
        cpSync(TINY, join(at, 'dist/tiny.gguf'));
        check(await visitFolder(join(at, 'dist')));
    },

    async 'Vite, built'() {
        const { build } = await load('vite', 'dist/node/index.js');
        const at = project('vite', {
            'index.html': loads('/main.js'),
            'main.js': program('bitnet-h', HERE) + ON_A_PAGE
        });
        await build({ root: at, logLevel: 'error', configFile: false });
        cpSync(TINY, join(at, 'dist/tiny.gguf'));
        check(await visitFolder(join(at, 'dist')));
    },

    async 'Vite, built, in its default worker'() {
        const { build } = await load('vite', 'dist/node/index.js');
        const at = project('vite-worker', { ...OWN_WORKER, 'index.html': loads('/main.js') });
        await build({ root: at, logLevel: 'error', configFile: false });
        cpSync(TINY, join(at, 'dist/tiny.gguf'));
        check(await visitFolder(join(at, 'dist')));
    },

    async 'Vite, built, in a worker of the format es, whose engines are files of their own'() {
        const { build } = await load('vite', 'dist/node/index.js');
        const at = project('vite-es', { ...OWN_WORKER, 'index.html': loads('/main.js') });
        const worker = { format: 'es' };
        await build({ root: at, logLevel: 'error', configFile: false, worker });
        cpSync(TINY, join(at, 'dist/tiny.gguf'));
        check(await visitFolder(join(at, 'dist')));
        const size = (...file) => statSync(join(...file)).size;
        const engines = readdirSync(PACKAGE).filter(file => /^engine-/.test(file));
        const largest = Math.max(...engines.map(file => size(PACKAGE, file)));
        for (const file of readdirSync(join(at, 'dist/assets')))
            if (size(at, 'dist/assets', file) > 1.5 * largest)
                throw new Error(`${file} has more than an engine inside`);
    },

    async "Vite's development server"() {
        const { createServer } = await load('vite', 'dist/node/index.js');
        const at = project('vite-dev', {
            'index.html': loads('/main.js'),
            'main.js': program('bitnet-h', HERE) + ON_A_PAGE
        });
        const server = await createServer({
            root: at,
            logLevel: 'error',
            configFile: false,
            server: { host: '127.0.0.1', headers: ISOLATED, watch: null, ws: false, hmr: false }
        });
        try {
            await server.listen();
            check(await visit(`http://localhost:${server.httpServer.address().port}/`));
        } finally {
            await server.close();
        }
    },

    async 'webpack 5'() {
        const { default: webpack } = await load('webpack', 'lib/index.js');
        const at = project('webpack', {
            'main.js': program('bitnet-h', HERE) + ON_A_PAGE,
            'dist/index.html': loads('main.js')
        });
        const stats = await promisify(webpack)({
            mode: 'production',
            context: at,
            entry: './main.js',
            output: { path: join(at, 'dist') },
            performance: false
        });
        if (stats.hasErrors() || stats.hasWarnings()) throw new Error(stats.toString());
        cpSync(TINY, join(at, 'dist/tiny.gguf'));
        check(await visitFolder(join(at, 'dist')));
    },

    async 'esbuild, in parts and in one file'() {
        for (const options of [['--format=esm', '--splitting'], ['--format=iife']]) {
            const at = project('esbuild', {
                'main.js': program('bitnet-h', HERE) + ON_A_PAGE,
                'dist/index.html': loads('main.js')
            });
            const esbuild = process.env.ESBUILD ?? 'esbuild';
            const args = ['main.js', '--bundle', '--outdir=dist', '--log-level=warning', ...options];
            const { stderr } = await promisify(execFile)(esbuild, args, { cwd: at });
            if (stderr) throw new Error(stderr);
            cpSync(TINY, join(at, 'dist/tiny.gguf'));
            check(await visitFolder(join(at, 'dist')));
        }
    },

    async 'Next.js, a client component'() {
        need('next');
        const at = project('next', {
            'next.config.mjs': `export default {
                turbopack: { root: ${JSON.stringify(resolve(folder))} },
                headers: async () => [{ source: '/:path*', headers: [
                    { key: 'Cross-Origin-Opener-Policy', value: 'same-origin' },
                    { key: 'Cross-Origin-Embedder-Policy', value: 'require-corp' }
                ] }]
            };`,
            'app/layout.js': `export default function Layout({ children }) {
                return <html><body>{children}</body></html>;
            }`,
            'app/page.js': `'use client';
                import { useEffect } from 'react';
                ${program('bitnet-h', HERE).replace('export', '')}
                export default function Page() {
                    useEffect(() => { ${ON_A_PAGE} }, []);
                    return <p>test</p>;
                }`
        });
        mkdirSync(join(at, 'public'));
        cpSync(TINY, join(at, 'public/tiny.gguf'));
        const next = (...args) =>
            spawn(process.execPath, [join(installed('next'), 'dist/bin/next'), ...args], {
                cwd: at,
                env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1' }
            });
        let said = '';
        const build = next('build');
        for (const stream of [build.stdout, build.stderr]) stream.on('data', d => (said += d));
        const [code] = await once(build, 'exit');
        if (code !== 0) throw new Error(said);
        const server = next('start', '-H', '127.0.0.1', '-p', '0');
        try {
            const port = await new Promise((found, no) => {
                let text = '';
                server.stdout.on('data', d => {
                    const match = /http:\/\/127\.0\.0\.1:(\d+)/.exec((text += d));
                    if (match) found(match[1]);
                });
                server.on('exit', () => no(new Error(`next start: ${text}`)));
            });
            check(await visit(`http://localhost:${port}/`));
        } finally {
            server.kill();
        }
    },

    async 'a bundle for Node'() {
        const at = project('node-bundle', {
            'main.js': `${program('bitnet-h', `'tiny.gguf'`)}
                run().catch(failed).then(r => { console.log(JSON.stringify(r)); process.exit(); });`
        });
        const esbuild = process.env.ESBUILD ?? 'esbuild';
        const args = ['main.js', '--bundle', '--platform=node', '--format=esm', '--outfile=out.mjs'];
        await promisify(execFile)(esbuild, args, { cwd: at });
        const { stdout } = await promisify(execFile)(process.execPath, ['out.mjs'], { cwd: at });
        check(JSON.parse(stdout));
    },

    async 'this Node'() {
        await runs(process.execPath);
    },

    async 'the newest Node'() {
        need('node');
        await runs(NODE);
    },

    async 'Node with permissions'() {
        need('node');
        const may = ['--permission', '--allow-fs-read=*', '--no-warnings'];
        await runs(NODE, ...may, '--allow-worker');
        const e = await runs(NODE, ...may).catch(error => error);
        if (!/could not be started.*--allow-worker/.test(e?.message)) throw e ?? new Error('it runs');
    },

    async 'vitest with jsdom'() {
        need('vitest');
        need('jsdom');
        const at = project('jsdom', {
            'use.test.mjs': `// @vitest-environment jsdom
                import { readFileSync } from 'node:fs';
                import { expect, test } from 'vitest';
                ${program('bitnet-h', "readFileSync('tiny.gguf')")}
                test('it runs', async () => {
                    expect(document.body).toBeTruthy();
                    expect((await run()).text).toBe(${JSON.stringify(native)});
                });`
        });
        const vitest = join(installed('vitest'), 'vitest.mjs');
        const { stdout } = await promisify(execFile)(NODE, [vitest, 'run', '--root', at], {
            cwd: at,
            env: { ...process.env, CI: '1' }
        }).catch(e => {
            throw new Error(e.stdout + e.stderr);
        });
        if (!/1 passed/.test(stdout)) throw new Error(stdout);
    },

    async 'Deno'() {
        need('deno');
        const may = ['--allow-read', '--allow-sys=cpus'];
        const run = ['run', '--no-prompt', '--no-lock', '--cached-only', ...may];
        await runs(join(installed('.bin'), 'deno'), ...run);
    },

    async 'Bun'() {
        need('bun');
        await runs(join(installed('.bin'), 'bun'));
    }
};

let passed = 0,
    failed = 0,
    skipped = 0;
for (const [name, run] of Object.entries(cases).filter(([n]) => n.includes(filter))) {
    const start = performance.now();
    const hang = new Promise((_, no) => setTimeout(no, HANG, new Error('it hangs')).unref());
    try {
        await Promise.race([run(), hang]);
        passed++;
        console.log(`ok ${name} (${Math.round(performance.now() - start)} ms)`);
    } catch (e) {
        if (e instanceof Skip) skipped++;
        else failed++;
        console.log(`${e instanceof Skip ? 'skip' : 'FAIL'} ${name}: ${e.message ?? e}`);
    }
}
await browser?.close();
console.log(`bundlers: ${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed ? 1 : 0);
