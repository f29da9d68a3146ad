// load.mjs - 64 clients at once: autocannon's, and four that measure the time between tokens
//
//     node tests/server/load.mjs SERVE MODEL MODULES [SECONDS [OPTIONS OF THE SERVER...]]
//
// Fails if there is an error that is not a 429, if a text is not a quiet server's, or if memory
// grows in the second half.
import { existsSync } from 'node:fs';
import http from 'node:http';
import { join, resolve } from 'node:path';
import { createRequire } from 'node:module';
import { ask, check, idle, memory, metrics, same, sleep, start } from './server.mjs';

const [serve, model, modules, seconds = '20', ...options] = process.argv.slice(2);
const TEXT = { prompt: 'Once upon a time', max_tokens: 48, temperature: 0.8, seed: 11 };
const CLIENTS = 60,
    WATCHERS = 4;

function finish(passed, says) {
    const counts = passed === null ? [0, 0, 1] : passed ? [1, 0, 0] : [0, 1, 0];
    console.log(`${passed === null ? 'skip' : passed ? 'ok' : 'FAIL'} load: ${says}`);
    console.log(`server load: ${counts[0]} passed, ${counts[1]} failed, ${counts[2]} skipped`);
    process.exit(passed === false ? 1 : 0);
}
if (!existsSync(join(modules, 'node_modules/autocannon')))
    finish(null, 'npm has not installed autocannon');
const autocannon = createRequire(resolve(modules, 'x.js'))('autocannon');

const server = await start(serve, ['-m', model, '--parallel', '16', '-t', '1', ...options]);
const wanted = (await ask(server, '/v1/completions', TEXT)).json.choices[0].text;
const first = [],
    between = [];
let stop = false,
    texts = 0,
    refused = 0,
    wrong = '';

/** One stream after the other. */
async function watch(agent) {
    while (!stop && !wrong) {
        const begun = performance.now();
        let text = '',
            rest = '',
            last = 0,
            status;
        await new Promise(done => {
            const request = http.request(
                {
                    agent,
                    host: '127.0.0.1',
                    port: server.port,
                    method: 'POST',
                    path: '/v1/completions'
                },
                response => {
                    status = response.statusCode;
                    response.setEncoding('utf8').on('data', data => {
                        const parts = (rest + data).split('\n\n'),
                            time = performance.now();
                        rest = parts.pop();
                        for (const part of parts) {
                            if (!part.startsWith('data: {')) continue;
                            text += JSON.parse(part.slice(6)).choices[0].text;
                            if (last) between.push(time - last);
                            else first.push(time - begun);
                            last = time;
                        }
                    });
                    response.on('end', done);
                }
            );
            request.on('error', e => ((wrong = String(e)), done()));
            request.end(JSON.stringify({ ...TEXT, stream: true }));
        });
        texts++;
        if (status === 429) {
            refused++;
            await sleep(50);
        } else if (status !== 200 || text !== wanted) wrong ||= `${status} ${text}`;
    }
}

const samples = [];
async function sample() {
    for (; !stop; await sleep(200)) samples.push(memory(server.child));
}

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

const agent = new http.Agent({ keepAlive: true });
const watchers = Array.from({ length: WATCHERS }, () => watch(agent));
sample();
const result = await autocannon({
    url: server.url,
    connections: CLIENTS,
    duration: Number(seconds),
    timeout: 30,
    requests
});
stop = true;
await Promise.all(watchers);
agent.destroy();
await idle(server);
const m = await metrics(server);

const at = (list, share) => list.sort((a, b) => a - b)[Math.floor((list.length - 1) * share)] ?? 0;
const row = list => [0.5, 0.95, 0.99].map(s => `${at(list, s).toFixed(1)}`).join(' / ');
const codes = JSON.stringify(result.statusCodeStats);
console.log(`requests: ${result.requests.total + texts} in ${seconds} s; autocannon's: ${codes}`);
console.log(`tokens: ${Math.round(m.bitnet_written_tokens_total / Number(seconds))} a second`);
console.log(`time to the first token, p50 / p95 / p99: ${row(first)} ms`);
console.log(`between tokens, p50 / p95 / p99: ${row(between)} ms`);
const half = Math.floor(samples.length / 2),
    tenth = Math.max(1, Math.floor(samples.length / 10));
const before = at(samples.slice(half, half + tenth), 0.5),
    after = at(samples.slice(-tenth), 0.5);
console.log(`memory: ${samples[0]} KB, in the middle ${before} KB, at the end ${after} KB`);
let says = `${CLIENTS + WATCHERS} clients, ${seconds} s`,
    passed = true;
try {
    same(wrong, '', 'a watched text:');
    check(texts > refused && first.length > 0, 'the watchers got no text');
    same([result.errors, result.timeouts], [0, 0], 'errors and timeouts:');
    const bad = Object.keys(result.statusCodeStats).filter(c => c !== '200' && c !== '429');
    same(bad, [], `statuses: ${codes}`);
    check(after - before < 2048, `memory grew from ${before} to ${after} KB`);
    same(await server.stop(), 0, 'the exit code is');
} catch (e) {
    [passed, says] = [false, e.message];
}
finish(passed, says);
