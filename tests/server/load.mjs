// load.mjs - 64 clients at once: autocannon's, and four that measure the time between tokens
//
//     node tests/server/load.mjs SERVE MODEL MODULES [SECONDS [OPTIONS OF THE SERVER...]]
//
// Fails if there is an error that is not a 429, if a text is not a quiet server's, or if memory
// grows in the second half.
import { CLIENTS, at, findAutocannon, load } from './crowd.mjs';
import { ask, check, same, start } from './server.mjs';

const [serve, model, modules, seconds = '20', ...options] = process.argv.slice(2);
const TEXT = { prompt: 'Once upon a time', max_tokens: 48, temperature: 0.8, seed: 11 };

function finish(passed, says) {
    const counts = passed === null ? [0, 0, 1] : passed ? [1, 0, 0] : [0, 1, 0];
    console.log(`${passed === null ? 'skip' : passed ? 'ok' : 'FAIL'} load: ${says}`);
    console.log(`server load: ${counts[0]} passed, ${counts[1]} failed, ${counts[2]} skipped`);
    process.exit(passed === false ? 1 : 0);
}
const autocannon = findAutocannon(modules);
if (!autocannon) finish(null, 'npm has not installed autocannon');

const server = await start(serve, ['-m', model, '--parallel', '16', '-t', '1', ...options]);
const wanted = (await ask(server, '/v1/completions', TEXT)).json.choices[0].text;
const body = more => JSON.stringify({ ...TEXT, ...more });
const chat = content =>
    JSON.stringify({ messages: [{ role: 'user', content }], max_tokens: 32, seed: 3 });
const requests = [
    { path: '/v1/completions', body: body({}) },
    { path: '/v1/chat/completions', body: chat('Tell me of a dog, a cat and the moon.') },
    { path: '/v1/completions', body: body({ stream: true, seed: 4, max_tokens: 30 }) },
    {
        path: '/v1/completions',
        body: body({ prompt: 'The dragon said', logprobs: 3, max_tokens: 20 })
    },
    { path: '/v1/chat/completions', body: chat('Why is the sky blue?') }
].map(r => ({ ...r, method: 'POST', headers: { 'Content-Type': 'application/json' } }));

const row = list => [0.5, 0.95, 0.99].map(s => `${(at(list, s) ?? 0).toFixed(1)}`).join(' / ');
let says = `${CLIENTS} clients, ${seconds} s`,
    passed = true;
try {
    const result = await load(server, {
        autocannon,
        seconds: Number(seconds),
        texts: [{ body: TEXT, wanted }],
        requests
    });
    const codes = JSON.stringify(result.statuses),
        { start: before, middle, end } = result.memory;
    console.log(`requests: ${result.requests} in ${seconds} s; autocannon's: ${codes}`);
    console.log(`tokens: ${Math.round(result.written / result.seconds)} a second`);
    console.log(`time to the first token, p50 / p95 / p99: ${row(result.first)} ms`);
    console.log(`between tokens, p50 / p95 / p99: ${row(result.between)} ms`);
    console.log(`memory: ${before} KB, in the middle ${middle} KB, at the end ${end} KB`);
    check(result.watched > result.refused && result.first.length > 0, 'the watchers got no text');
    same([result.errors, result.timeouts], [0, 0], 'errors and timeouts:');
    const bad = Object.keys(result.statuses).filter(c => c !== '200' && c !== '429');
    same(bad, [], `statuses: ${codes}`);
    check(end - middle < 2048, `memory grew from ${middle} to ${end} KB`);
    same(await server.stop(), 0, 'the exit code is');
} catch (e) {
    [passed, says] = [false, e.message];
}
finish(passed, says);
