// crowd.mjs - many clients at once, for load.mjs and bench.mjs: autocannon's, and four that measure
// the time between tokens
import { existsSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { check, idle, memory, metrics, sleep } from './server.mjs';

export const CLIENTS = 64; // unless others are asked for; four of them watch
const WATCHERS = 4;

/** autocannon, or nothing if it is not installed in this folder. */
export const findAutocannon = modules =>
    existsSync(join(modules, 'node_modules/autocannon'))
        ? createRequire(resolve(modules, 'x.js'))('autocannon')
        : undefined;

/** The value below which this share of the list is; undefined if the list is empty. */
export const at = (list, share) =>
    [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) * share)];

/** Streams one text and notes when its parts come. Gives its status and text, or an error. */
export function stream(crowd, body) {
    const begun = performance.now();
    let text = '',
        rest = '',
        last = 0;
    function take(data) {
        const parts = (rest + data).split('\n\n'),
            time = performance.now();
        rest = parts.pop();
        for (const part of parts) {
            const more = part.startsWith('data: {') ? JSON.parse(part.slice(6)) : {};
            if (!more.choices?.[0]?.text) continue; // such as the event that says why it ended
            text += more.choices[0].text;
            if (last) crowd.between.push(time - last);
            else crowd.first.push(time - begun);
            last = time;
        }
    }
    return new Promise(done => {
        const request = http.request(
            {
                agent: crowd.agent,
                host: '127.0.0.1',
                port: crowd.server.port,
                method: 'POST',
                path: '/v1/completions',
                timeout: 60000 // a stream that waits has a comment every 15 seconds
            },
            response => {
                response.setEncoding('utf8').on('data', take);
                response.on('error', error => done({ error }));
                response.on('end', () => done({ status: response.statusCode, text }));
            }
        );
        request.on('timeout', () => request.destroy(new Error('a stream is silent')));
        request.on('error', error => done({ error }));
        request.end(JSON.stringify({ ...body, stream: true }));
    });
}

/** One stream after the other, from the text of this number on. */
async function watch(crowd, number) {
    for (; !crowd.over; number++) {
        const { body, wanted } = crowd.texts[number % crowd.texts.length],
            { status, text, error } = await stream(crowd, body);
        if (crowd.over) break; // it was cut off
        crowd.watched++;
        if (status === 429) {
            crowd.refused++;
            await sleep(50);
        } else if (status !== 200 || text !== wanted) {
            crowd.wrong = `${error ?? status} ${text ?? ''}`;
            crowd.over = true;
            crowd.tool?.stop();
        }
    }
}

async function sampleMemory(crowd, interval) {
    for (; !crowd.over; await sleep(interval)) crowd.memory.push(memory(crowd.server.child));
}

/** KB at the start, in the middle and at the end. */
function threeOf(samples) {
    const half = Math.floor(samples.length / 2),
        tenth = Math.max(1, Math.floor(samples.length / 10));
    return {
        start: samples[0],
        middle: at(samples.slice(half, half + tenth), 0.5),
        end: at(samples.slice(-tenth), 0.5)
    };
}

/** Loads the server for so many seconds. `texts` are those that the watchers stream, with what they
    must be; a wrong one ends it with an error. `requests` are autocannon's. */
export async function load(
    server,
    { autocannon, seconds, texts, requests, clients = CLIENTS, timeout = 30, interval = 200 }
) {
    const crowd = {
        server,
        texts,
        agent: new http.Agent({ keepAlive: true }),
        first: [], // ms
        between: [],
        memory: [],
        watched: 0,
        refused: 0,
        wrong: '',
        over: false
    };
    let n = 0;
    const before = await metrics(server),
        begun = performance.now();
    crowd.tool = autocannon({
        url: server.url,
        connections: clients - WATCHERS,
        duration: seconds,
        timeout,
        // each begins elsewhere, so that they do not all ask for the same
        setupClient(client) {
            const from = Math.floor((n++ * requests.length) / clients) % requests.length;
            client.setRequests([...requests.slice(from), ...requests.slice(0, from)]);
        }
    });
    const watchers = Array.from({ length: WATCHERS }, (_, i) => watch(crowd, i));
    sampleMemory(crowd, interval);
    try {
        const { statusCodeStats, requests, errors, timeouts } = await crowd.tool;
        const taken = (performance.now() - begun) / 1000;
        crowd.over = true;
        crowd.agent.destroy(); // cuts the watchers off
        await Promise.all(watchers);
        check(!crowd.wrong, `a watched text: ${crowd.wrong}`);
        await idle(server);
        const after = await metrics(server),
            more = name => after[`bitnet_${name}_total`] - before[`bitnet_${name}_total`];
        return {
            seconds: taken,
            requests: requests.total + crowd.watched,
            statuses: statusCodeStats, // autocannon's
            errors,
            timeouts,
            watched: crowd.watched,
            refused: crowd.refused,
            read: more('prompt_tokens'),
            reused: more('reused_tokens'),
            written: more('written_tokens'),
            first: crowd.first,
            between: crowd.between,
            memory: threeOf(crowd.memory)
        };
    } finally {
        crowd.over = true;
        crowd.agent.destroy();
    }
}
