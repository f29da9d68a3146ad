// check.js - a worker that runs examples/crosscheck, compiled to WebAssembly, and compares its report
// line by line with crosscheck.txt, the report of a native build. It receives the name of a variant
// and answers with { absent } or { failure } (texts), or with { total, passed, ops: [{ name, passed,
// total }], wrong, kernels, seconds }.

const MODEL = 'tiny.gguf'; // beside this file; crosscheck.txt has its native results
const ARGUMENTS = ['--short', '-m', MODEL, '-n', '8'];

// The lines of a report are WHAT | TABLE | TYPES HASH; "end N" is the last. A table whose result
// differs from the scalar one adds a line, so only lines of scalar and of the model are expected.
function parse(lines) {
    const report = { head: lines[0], end: lines.at(-1), results: new Map(), differing: [] };
    for (const line of lines) {
        const [what, table, hash] = line.split(' | ');
        if (hash === undefined) continue;
        if (table === 'scalar') report.results.set(what, hash);
        else if (table === 'model') report.results.set(`${MODEL}, ${what}`, hash);
        else report.differing.push({ what: `${what}, kernel ${table}`, in: what, got: hash });
    }
    return report;
}

// The group in which a result is counted: a kernel, the model's layers, or its greedy tokens.
const operation = what =>
    what.split(/ n=| after| of| \d/)[0].replace('stream', 'layers').replace(/token$/, 'tokens');

function compare(expected, got) {
    const ops = new Map(),
        wrong = [],
        bad = new Set(got.differing.map(d => d.in));
    for (const d of got.differing)
        wrong.push({ what: d.what, got: d.got, expected: got.results.get(d.in) });
    for (const [what, hash] of expected.results) {
        const name = operation(what),
            here = got.results.get(what);
        const op = ops.get(name) ?? ops.set(name, { name, passed: 0, total: 0 }).get(name);
        if (here !== hash) {
            wrong.push({ what, expected: hash, got: here });
            bad.add(what);
        }
        op.total++;
        if (!bad.has(what)) op.passed++;
    }
    for (const what of got.results.keys()) {
        if (!expected.results.has(what)) wrong.push({ what, got: 'not in the reference' });
    }
    for (const part of ['head', 'end']) {
        if (got[part] !== expected[part])
            wrong.push({ what: part, got: got[part], expected: expected[part] });
    }
    const list = [...ops.values()],
        sum = key => list.reduce((s, op) => s + op[key], 0);
    return { total: sum('total'), passed: sum('passed'), ops: list, wrong };
}

async function check(variant) {
    const here = name => new URL(name, import.meta.url);
    const names = [`crosscheck-${variant}.wasm`, 'crosscheck.txt', MODEL];
    const [wasm, reference, model] = await Promise.all(
        names.map(name => fetch(here(name), { cache: 'no-cache' }))
    );
    if (wasm.status === 404) return { absent: 'not in this build.' };
    const bad = [wasm, reference, model].findIndex(response => !response.ok);
    if (bad >= 0)
        return { failure: `${names[bad]}: the server answered ${[wasm, reference, model][bad].status}` };
    const lines = [],
        said = [],
        wasmBinary = await wasm.arrayBuffer();
    if (!WebAssembly.validate(wasmBinary)) return { absent: 'this browser does not have it.' };
    const { default: create } = await import(here(`crosscheck-${variant}.js`).href);
    const module = await create({
        wasmBinary,
        noInitialRun: true,
        print: l => lines.push(l),
        printErr: l => said.push(l),
    });
    module.FS.writeFile(MODEL, new Uint8Array(await model.arrayBuffer()));
    const start = performance.now();
    try {
        module.callMain(ARGUMENTS);
    } catch (e) {
        if (e.name !== 'ExitStatus') throw e;
    }
    const seconds = (performance.now() - start) / 1e3;
    const kernels = said
        .find(l => l.startsWith('crosscheck: kernels:'))
        ?.slice(20)
        .trim();
    const expected = parse((await reference.text()).trimEnd().split('\n'));
    if (!expected.results.size) return { failure: 'crosscheck.txt is not a report' };
    return { ...compare(expected, parse(lines)), kernels, seconds };
}

onmessage = async e => {
    try {
        postMessage(await check(e.data));
    } catch (error) {
        postMessage({ failure: String(error?.message ?? error) });
    }
};
