// server.mjs - starts build/serve for tests, and talks to it with as little as possible between
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import net from 'node:net';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

export class Skip extends Error {}
export const HANG = 300000; // ms; no machine is so slow: whatever takes longer never comes
export const sleep = ms => new Promise(done => setTimeout(done, ms));

export function check(holds, says) {
    if (!holds) throw new Error(typeof says === 'string' ? says : JSON.stringify(says));
}
export function same(found, wanted, says = '') {
    const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
    check(a === b, `${says} ${a}, not ${b}`);
}

/** Waits until it holds. It ends before the case that waits, to say what did not come. */
export async function until(holds, says) {
    for (const end = Date.now() + HANG / 2; !(await holds()); await sleep(10))
        check(Date.now() < end, `this did not come true: ${says}`);
}

/** Gives a function that loads modules of a folder's node_modules, and skips what is not there. */
export const loader = modules => async name => {
    const at = join(resolve(modules), 'node_modules', name);
    if (!existsSync(at)) throw new Skip(`npm has not installed ${name}`);
    const { exports = {}, main } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'));
    let own = exports['.']?.import ?? exports['.']?.node ?? exports['.'];
    while (own && typeof own !== 'string') own = own.import ?? own.default;
    const file = own ?? main;
    return import(pathToFileURL(file ? join(at, file) : createRequire(at).resolve(name)));
};

const running = new Set();
process.on('exit', () => running.forEach(child => child.kill('SIGKILL')));

/** Starts the server. It is ready, unless `wait` is false. */
export async function start(program, args, { wait = true, env = {} } = {}) {
    const child = spawn(program, ['--port', '0', ...args], {
        stdio: ['ignore', 'ignore', 'pipe'],
        env: { ...process.env, ...env }
    });
    const server = { child, said: '', ended: once(child, 'exit') };
    running.add(child);
    child.on('exit', () => running.delete(child));
    child.stderr.on('data', d => (server.said += d));
    server.stop = async (signal = 'SIGTERM') => {
        child.kill(signal);
        const [code] = await server.ended;
        return code;
    };
    if (!wait) return server;
    await until(
        () => / on http:\S+:\d+,/.test(server.said) || child.exitCode !== null,
        'ready'
    );
    const found = / on http:\/\/(\S+):(\d+),/.exec(server.said);
    check(found, `the server did not start: ${server.said}`);
    server.port = Number(found[2]);
    server.url = `http://${found[1]}:${server.port}`;
    return server;
}

/** fetch, with a body as JSON, on a connection of its own: one that is kept may be at its idle
 * timeout just when a slow machine uses it again. */
export async function ask(server, path, body, options = {}) {
    const response = await fetch(server.url + path, {
        ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
        ...options,
        headers: { Connection: 'close', ...options.headers }
    });
    const text = await response.text();
    let json;
    try {
        json = JSON.parse(text);
    } catch {
        json = undefined;
    }
    return { status: response.status, headers: response.headers, text, json };
}

/** The numbers of /metrics by name. */
export async function metrics(server) {
    const { text } = await ask(server, '/metrics');
    const lines = text.split('\n').filter(line => line && !line.startsWith('#'));
    return Object.fromEntries(lines.map(line => [line.split(' ')[0], Number(line.split(' ')[1])]));
}

/** Options of a text that goes on until its slot is full, or for max_tokens. */
export async function endless(server, more = {}) {
    const content = '<|eot_id|><|end_of_text|>';
    const { json } = await ask(server, '/tokenize', { content });
    check(json.tokens.length === 2, json);
    const logit_bias = Object.fromEntries(json.tokens.map(t => [t, -100]));
    return { prompt: 'Once upon a time', max_tokens: -1, logit_bias, ...more };
}

/** Sends a request, perhaps from another address of this machine. Its answer fills as it comes. */
export function open(server, body, { localAddress, path = '/v1/completions', headers = {} } = {}) {
    const answer = { text: '', status: 0, ended: false, failed: false };
    const request = http.request({
        host: '127.0.0.1',
        port: server.port,
        path,
        method: 'POST',
        localAddress,
        agent: false,
        headers
    });
    answer.done = new Promise(done => {
        request.on('response', r => {
            answer.status = r.statusCode;
            answer.headers = r.headers;
            r.setEncoding('utf8');
            r.on('data', d => (answer.text += d));
            r.on('end', () => ((answer.ended = true), done(answer)));
            r.on('error', () => ((answer.failed = true), done(answer)));
        });
        request.on('error', () => ((answer.failed = true), done(answer)));
    });
    answer.leave = () => request.destroy();
    request.end(JSON.stringify(body));
    return answer;
}
export const began = answer => until(() => answer.text.length > 0, 'the first event');
export const busy = (server, n) =>
    until(async () => (await metrics(server)).bitnet_slots_busy === n, `${n} slots are busy`);

/** No text is being written, and none waits. */
export const idle = server =>
    until(async () => {
        const m = await metrics(server);
        return m.bitnet_slots_busy === 0 && m.bitnet_texts_waiting === 0;
    }, 'all slots are free');

/** Sends bytes and gives what comes back until the server closes, or until `enough` holds. */
export function raw(server, bytes, { enough = () => false, localAddress, end } = {}) {
    return new Promise((done, no) => {
        let text = '';
        const socket = net.connect({ port: server.port, host: '127.0.0.1', localAddress });
        const finish = () => {
            clearTimeout(timer);
            socket.destroy();
            done(text);
        };
        const timer = setTimeout(() => {
            socket.destroy();
            no(new Error(`it does not end: ${text.slice(0, 300)}`));
        }, HANG / 2);
        socket.setEncoding('latin1');
        socket.on('connect', () => (end ? socket.end(bytes) : socket.write(bytes)));
        socket.on('data', d => {
            text += d;
            if (enough(text)) finish();
        });
        socket.on('error', finish);
        socket.on('close', finish);
    });
}

export function post(path, body, headers = {}) {
    const data = Buffer.isBuffer(body) ? body : Buffer.from(body);
    const lines = Object.entries({ Host: 'localhost', 'Content-Length': data.length, ...headers });
    const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    return Buffer.concat([Buffer.from(`POST ${path} HTTP/1.1\r\n${head}\r\n`), data]);
}

/** Memory that the process has, in KB. */
export const memory = child =>
    Number(
        execFileSync('grep', ['VmRSS', `/proc/${child.pid}/status`], { encoding: 'utf8' }).replace(
            /\D/g,
            ''
        )
    );

/** Runs the cases whose names hold the filter, and says what came of them. */
export async function runAll(suite, cases, filter) {
    let passed = 0,
        failed = 0,
        skipped = 0;
    for (const [name, run] of Object.entries(cases).filter(([n]) => n.includes(filter))) {
        const begun = performance.now();
        let timer;
        const hang = new Promise((_, no) => {
            timer = setTimeout(no, HANG, new Error('it hangs'));
        });
        try {
            await Promise.race([run(), hang]);
            passed++;
            console.log(`ok ${name} (${Math.round(performance.now() - begun)} ms)`);
        } catch (e) {
            if (e instanceof Skip) skipped++;
            else failed++;
            console.log(`${e instanceof Skip ? 'skip' : 'FAIL'} ${name}: ${e.message ?? e}`);
            if (process.env.SERVER_STACKS) console.log(e.stack);
        }
        clearTimeout(timer);
    }
    console.log(`${suite}: ${passed} passed, ${failed} failed, ${skipped} skipped`);
    return failed;
}
