// bundle.mjs - makes the npm package's modules.
//
//     node web/bundle.mjs engines FOLDER OUT NAME...   OUT/engine-NAME.js from emscripten's output,
//                                                     FOLDER/bitnet-NAME.js, .wasm and .worker.js
//     node web/bundle.mjs modules SOURCES OUT [MODULE...]
//                                                     bitnet.js, node.js, inline.js from SOURCES, for
//                                                     the engines that are in OUT
//
// An engine is a module of texts: emscripten's glue, the script of its threads, and the WASM file, packed
// by gzip, in base64, which alone would be larger, and could hardly be packed. So a bundler has nothing to find or to copy, and a worker can start from a Blob: on pages
// that import the package from another origin, too. ESBUILD names esbuild's command.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ESBUILD = process.env.ESBUILD ?? 'esbuild';
const text = path => readFileSync(path, 'utf8');
/** By the program, which packs a hundredth better than Node's zlib does. */
const gzip = bytes => execFileSync('gzip', ['-9nc'], { input: bytes, maxBuffer: 1 << 24 });
/** A script's text, with short names inside of its functions. */
const minified = script =>
    execFileSync(ESBUILD, ['--minify', '--target=es2022', '--log-level=warning'], {
        input: script,
        encoding: 'utf8',
        maxBuffer: 1 << 24
    });
const exported = parts =>
    Object.entries(parts)
        .map(([name, value]) => `export const ${name} = ${JSON.stringify(value)};\n`)
        .join('');

/** What old versions of emscripten run in a thread, before the glue is there; '' of newer ones, which
 * run the glue itself. It would import the glue from its address. */
function oldThreadScript(path) {
    if (!existsSync(path)) return '';
    const script = text(path),
        edited = script.replace(/importScripts\((e\.data\.urlOrBlob|\w+)\)/g, 'void 0');
    if (edited === script) throw new Error(`${path} has another form`);
    return minified(edited);
}

function makeEngine(folder, out, name) {
    const at = join(folder, `bitnet-${name}`),
        glue = minified(text(`${at}.js`)),
        wasm = gzip(readFileSync(`${at}.wasm`)).toString('base64');
    const old = JSON.stringify(oldThreadScript(`${at}.worker.js`));
    const thread = `export const thread = ${name === 'simd' ? "''" : `glue + ${old}`};\n`;
    writeFileSync(join(out, `engine-${name}.js`), exported({ glue, wasm }) + thread);
}

const enginesIn = folder =>
    readdirSync(folder).flatMap(file => /^engine-(\w+)\.js$/.exec(file)?.[1] ?? []);

function esbuild(entry, outfile, options, aliases = {}) {
    const alias = Object.entries(aliases).map(([name, path]) => `--alias:${name}=${resolve(path)}`);
    execFileSync(
        ESBUILD,
        [
            entry,
            `--outfile=${outfile}`,
            ...['--bundle', '--target=es2022', '--log-level=warning', '--loader:.txt=text'],
            ...options,
            ...alias
        ],
        { stdio: 'inherit' }
    );
}

/** Each module's platform, and esbuild's options for it. Nobody downloads node.js to see a page, and Node
 * prints the line that threw an error: it stays as it was written. */
const MODULES = {
    bitnet: { platform: 'browser', options: ['--minify', '--external:node:*'] },
    node: { platform: 'node', options: ['--platform=node'] },
    inline: { platform: 'inline', options: ['--minify', '--define:process=undefined'] }
};

/** What inline.js has instead of engines that are loaded when they are needed: the simplest one. */
function inlineAliases(out, made) {
    const engine = text(join(out, 'engine-simd.js'));
    const constant = name =>
        JSON.parse(new RegExp(`^export const ${name} = (.*);$`, 'm').exec(engine)[1]);
    writeFileSync(made('glue.cjs'), constant('glue'));
    writeFileSync(made('nothing.js'), 'export {};\n');
    writeFileSync(
        made('engines-inline.js'),
        `import createModule from './glue.cjs';\n${exported({ wasm: constant('wasm') })}` +
            'export const engines = { simd: async () => ({ createModule, wasm, thread: "" }) };\n'
    );
    return {
        'bitnet-engines': made('engines-inline.js'),
        'node:fs/promises': made('nothing.js')
    };
}

function makeModules(sources, out, names) {
    const folder = join(out, '.made'), // in the source maps: the same wherever it is built
        made = name => join(folder, name),
        script = made('script.txt');
    mkdirSync(folder, { recursive: true });
    try {
        const worker = ['--minify', '--format=iife', '--external:node:*'];
        esbuild(join(sources, 'worker/main.js'), script, worker);
        const lines = enginesIn(out).map(name => `${name}: () => import('./engine-${name}.js'),\n`);
        writeFileSync(made('engines.js'), `export const engines = {\n${lines.join('')}};\n`);
        for (const name of names) {
            const { platform, options } = MODULES[name];
            esbuild(
                join(sources, 'client/bitnet.js'),
                join(out, `${name}.js`),
                ['--format=esm', '--sourcemap', '--external:./engine-*', ...options],
                {
                    'bitnet-platform': join(sources, `client/platform-${platform}.js`),
                    'bitnet-worker-script': script,
                    ...(name === 'inline'
                        ? inlineAliases(out, made)
                        : { 'bitnet-engines': made('engines.js') })
                }
            );
        }
    } finally {
        rmSync(folder, { recursive: true });
    }
}

const [what, from, out, ...names] = process.argv.slice(2);
if (what === 'engines') for (const name of names) makeEngine(from, out, name);
else makeModules(from, out, names.length ? names : Object.keys(MODULES));
