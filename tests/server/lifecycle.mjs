// lifecycle.mjs - how the server begins and ends, whom it lets in, and clients that go away
//
//     node tests/server/lifecycle.mjs SERVE MODEL SLOW_OPEN [FILTER]
//
// SLOW_OPEN is a library for LD_PRELOAD, tests/server/slow_open.c.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import {
    ask,
    began,
    busy,
    check,
    endless,
    idle,
    metrics,
    open,
    post,
    raw,
    runAll,
    same,
    sleep,
    start,
    until
} from './server.mjs';

const [serve, model, slowOpen, filter = ''] = process.argv.slice(2);
const TINY = ['-m', model],
    LONG = ['-m', model, '-c', '16384'];
const run = (args, env = {}) =>
    spawnSync(serve, args, { encoding: 'utf8', timeout: 20000, env: { ...process.env, ...env } });

async function freePort() {
    const probe = net.createServer().listen(0, '127.0.0.1');
    await until(() => probe.listening, 'a port');
    const { port } = probe.address();
    await new Promise(done => probe.close(done));
    return port;
}

/** 12000 tokens, which take a while to read. */
const longPrompt = () => Array.from({ length: 12000 }, (_, i) => 300 + ((i * 7919) % 1000));

/** How a client leaves while the server reads its prompt, writes, or lets it wait. */
async function leaves(server, stream) {
    const text = await endless(server, { stream });
    const before = await metrics(server);
    const reading = open(server, { prompt: longPrompt(), max_tokens: 4, stream });
    await busy(server, 1);
    reading.leave();
    await idle(server);
    const read = await metrics(server);
    check(
        read.bitnet_prompt_tokens_total - before.bitnet_prompt_tokens_total < 12000,
        'the whole prompt was read'
    );
    const writers = [open(server, text), open(server, text)];
    await busy(server, 2);
    const waiting = open(server, text);
    await until(async () => (await metrics(server)).bitnet_texts_waiting === 1, 'one waits');
    waiting.leave();
    await until(async () => (await metrics(server)).bitnet_texts_waiting === 0, 'none waits');
    same((await metrics(server)).bitnet_slots_busy, 2, 'who still writes:');
    writers[0].leave();
    await until(async () => (await metrics(server)).bitnet_slots_busy === 1, 'one is left');
    writers[1].leave();
    await idle(server);
    const after = await metrics(server);
    same(after.bitnet_left_total - before.bitnet_left_total, 4, 'clients that left:');
}

const cases = {
    async 'SIGTERM and SIGINT end an idle server at once'() {
        for (const signal of ['SIGTERM', 'SIGINT']) {
            const server = await start(serve, [...TINY, '--grace', '1000']);
            const silent = net.connect(server.port, '127.0.0.1').on('error', () => {});
            await ask(server, '/health'); // leaves a connection that is kept alive
            same(await server.stop(signal), 0);
            silent.destroy();
        }
    },

    async 'SIGTERM lets texts end within --grace'() {
        const server = await start(serve, [...LONG, '--grace', '20']);
        const text = await endless(server, { stream: true, max_tokens: 2000 });
        const whole = open(server, { ...text, stream: false });
        await busy(server, 1); // it has come
        const all = [open(server, text), open(server, text), whole];
        await Promise.all(all.slice(0, 2).map(began));
        const stopped = server.stop();
        await until(() => server.said.includes('stopping'), 'stopping');
        const late = await open(server, text).done;
        same(late.status, 503, 'a request after the signal:');
        same((await ask(server, '/health')).status, 503);
        for (const answer of all) await answer.done;
        for (const { text } of all.slice(0, 2))
            check(/"finish_reason":"length"[^]*data: \[DONE\]\n\n$/.test(text), text.slice(-300));
        same(JSON.parse(all[2].text).usage.completion_tokens, 2000);
        same(await stopped, 0);
    },

    async 'SIGTERM ends texts after --grace'() {
        const server = await start(serve, [...LONG, '--grace', '1']);
        const text = await endless(server);
        const all = [true, true, true, false, true, true].map(s =>
            open(server, { ...text, stream: s })
        );
        await began(all[0]);
        const begun = Date.now();
        same(await server.stop(), 0);
        const took = Date.now() - begun;
        check(took > 900, `it took ${took} ms`);
        for (const answer of all) await answer.done;
        for (const [i, { text, status }] of all.entries()) {
            check(text.includes('shutting down'), text.slice(-300));
            if (i === 3) same(status, 503);
            else check(text.endsWith('data: [DONE]\n\n'), text.slice(-300));
        }
    },

    async 'a slow reader does not hold up the end'() {
        const server = await start(serve, [...LONG, '--grace', '1']);
        const body = JSON.stringify(await endless(server, { stream: true, logprobs: 20 }));
        const socket = net.connect(server.port, '127.0.0.1').on('error', () => {});
        socket.pause();
        socket.write(post('/v1/completions', body));
        await busy(server, 1);
        await sleep(300);
        same(await server.stop(), 0);
        socket.destroy();
    },

    async '503 while the model is loaded, and SIGTERM then'() {
        for (const stop of [false, true]) {
            const port = await freePort(),
                url = `http://127.0.0.1:${port}`;
            const server = await start(serve, [...TINY, '--port', String(port)], {
                wait: false,
                env: { LD_PRELOAD: slowOpen }
            });
            await until(() => fetch(`${url}/health`).catch(() => false), 'it listens');
            const health = await ask({ url }, '/health');
            same([health.status, health.json], [503, { status: 'loading' }]);
            const early = await ask({ url }, '/v1/completions', { prompt: 'x' });
            same([early.status, early.headers.get('retry-after')], [503, '2']);
            if (!stop) {
                await until(async () => (await ask({ url }, '/health')).status === 200, 'it loads');
                same((await ask({ url }, '/v1/models')).status, 200);
            }
            same(await server.stop(), 0);
        }
    },

    // Those who come before the bell of serve_http.c must not get its place. Without it libmicrohttpd,
    // which takes 128 events of epoll at a time, would wait for a day before it looks at them; and with
    // what is no connection of its own it would keep a lock, since all places are taken.
    async 'clients who take all places as it starts, and ask at the same moment'() {
        const folder = mkdtempSync(join(tmpdir(), 'server-')),
            bell = join(folder, 'bell');
        const port = await freePort(),
            places = 128;
        const some = ['--connections', String(places), '--idle-timeout', '86400'];
        const server = await start(serve, [...TINY, ...some, '--port', String(port)], {
            wait: false,
            env: { LD_PRELOAD: slowOpen, BELL_FILE: bell }
        });
        const health = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n';
        let answers = 0;
        const all = new Set();
        const come = () =>
            new Promise(done => {
                const socket = net.connect(port, '127.0.0.1');
                socket.on('connect', () => {
                    all.add(socket);
                    socket.write(health);
                    done(true);
                });
                socket.on('data', d => (answers += d.toString().split('HTTP/1.1').length - 1));
                socket.on('error', () => done(false));
                socket.on('close', () => all.delete(socket));
            });
        await until(come, 'it listens');
        for (let i = 0; i < places; i++) await come();
        await until(() => answers >= all.size, 'all are answered or refused');
        same([answers, all.size], [places, places]);
        writeFileSync(bell, '');
        await until(() => / on http:/.test(server.said), 'it is ready');
        for (let i = 2; i < 5; i++) {
            server.child.kill('SIGSTOP');
            await Promise.all([...all].map(s => new Promise(done => s.write(health, done))));
            server.child.kill('SIGCONT');
            await until(() => answers === i * places, `${i * places} answers, not ${answers}`);
        }
        all.forEach(s => s.destroy());
        same(await server.stop(), 0);
        rmSync(folder, { recursive: true });
    },

    async 'wrong options: exit 2 and a clear error'() {
        const wrong = [
            [[], '-m MODEL is needed'],
            [['-m'], '-m needs a value'],
            [['-m', model, '--nothing'], 'no option --nothing'],
            [['x'], 'no option x'],
            [['-m', model, '--port', '65536'], '0 to 65535'],
            [['-m', model, '--port', '-1'], '0 to 65535'],
            [['-m', model, '--port', '1x'], 'whole'],
            [['-m', model, '--port', ''], 'whole'],
            [['-m', model, '--parallel', '0'], '1 to 1024'],
            [['-m', model, '--ctx-size', '99999999999999999999'], 'whole number'],
            [['-m', model, '--page', '/nowhere'], '--page'],
            [['-m', model, '--kv-type', 'q8_0'], 'f16, f32 or i8'],
            [['-m', model, '--host', '0.0.0.0'], '--api-key'],
            [['-m', model, '--host', '::'], '--api-key'],
            [['-m', model, '--host', 'no such host'], 'no such address']
        ];
        for (const [args, says] of wrong) {
            const { status, stderr } = run(args);
            check(status === 2 && stderr.includes(says), `${args}: ${status} ${stderr}`);
        }
        const help = run(['--help']);
        check(help.status === 0 && help.stdout.includes('--parallel'), help);
    },

    async 'a model that cannot be loaded: exit 1'() {
        const folder = mkdtempSync(join(tmpdir(), 'server-')),
            file = join(folder, 'x.gguf');
        writeFileSync(file, 'GGUF\u0003\0\0\0 no model');
        for (const name of [file, folder, join(folder, 'none')]) {
            const { status, stderr } = run(['-m', name, '--port', '0']);
            check(status === 1 && /^serve: .*: ./.test(stderr), `${name}: ${status} ${stderr}`);
        }
        rmSync(folder, { recursive: true });
        const { status, stderr } = run([...TINY, '--port', '0', '--kv-tokens', '99999999']);
        check(status === 1 && stderr.includes('n_kv'), stderr);
    },

    async 'a port in use: exit 1'() {
        const server = await start(serve, TINY);
        const { status, stderr } = run([...TINY, '--port', String(server.port)]);
        check(
            status === 1 && stderr.includes(`port ${server.port}: Address already in use`),
            stderr
        );
        await server.stop();
    },

    async 'an API key'() {
        for (const [args, env] of [
            [['--api-key', 'secret'], {}],
            [[], { BITNET_API_KEY: 'secret' }]
        ]) {
            const server = await start(serve, [...TINY, ...args], { env });
            const get = (path, key) =>
                ask(
                    server,
                    path,
                    undefined,
                    key === undefined ? {} : { headers: { Authorization: key } }
                );
            for (const key of [
                undefined,
                '',
                'secret',
                'Bearer',
                'Bearer ',
                'Bearer secre',
                'Bearer secrets',
                'Bearer secretsecret',
                'Basic secret'
            ]) {
                for (const path of ['/v1/models', '/metrics']) {
                    const r = await get(path, key);
                    same(
                        [r.status, r.json?.error.type],
                        [401, 'authentication_error'],
                        `${path} ${key}:`
                    );
                    same(r.headers.get('www-authenticate'), 'Bearer');
                }
            }
            same((await ask(server, '/v1/completions', { prompt: 'x' })).status, 401);
            same((await get('/health')).status, 200);
            same((await get('/v1/models', 'Bearer secret')).status, 200);
            same((await get('/v1/models', 'bearer secret')).status, 200);
            same(await server.stop(), 0);
        }
    },

    async 'another address of this machine'() {
        const server = await start(serve, [...TINY, '--host', '127.0.0.2']);
        same((await ask(server, '/v1/models')).status, 200);
        same(await server.stop(), 0);
        if (!Object.values(networkInterfaces()).some(list => list.some(a => a.address === '::1')))
            return;
        const six = await start(serve, [...TINY, '--host', '::1']);
        same(new URL(six.url).hostname, '[::1]', 'the address that it prints:');
        same((await ask(six, '/v1/models')).status, 200);
        same(await six.stop(), 0);
    },

    async '429 with Retry-After when the queue is full'() {
        const server = await start(serve, [...LONG, '--parallel', '1', '--queue', '2']);
        const text = await endless(server, { stream: true });
        const all = [open(server, text)];
        await began(all[0]);           // or another may come first
        all.push(open(server, text), open(server, text));
        await until(async () => (await metrics(server)).bitnet_texts_waiting === 2, 'two wait');
        const full = await ask(server, '/v1/completions', { prompt: 'x' });
        same([full.status, full.json.error.type], [429, 'rate_limit_error']);
        check(Number(full.headers.get('retry-after')) > 0, 'Retry-After');
        same((await metrics(server)).bitnet_refused_total, 1);
        const wrong = await ask(server, '/v1/completions', { prompt: 'x', n: 9 });
        same(wrong.status, 429, 'it was not even read:');
        all.forEach(a => a.leave());
        await idle(server);
        const many = await ask(server, '/v1/completions', { prompt: 'x', n: 9 });
        same(many.status, 400);
        same(
            (await ask(server, '/v1/completions', { prompt: 'x', n: 3, max_tokens: 2 })).status,
            200
        );
        same(await server.stop(), 0);
    },

    async "one client's flood leaves room for another"() {
        const server = await start(serve, [...LONG, '--parallel', '2', '--queue', '8']);
        const text = await endless(server, { max_tokens: 400 });
        const flood = Array.from({ length: 30 }, () => open(server, text));
        await busy(server, 2);
        await until(async () => (await metrics(server)).bitnet_refused_total > 0, 'it is full');
        const short = await open(server, { ...text, max_tokens: 5 }, { localAddress: '127.0.0.2' })
            .done;
        const done = flood.filter(a => a.status === 200 && a.ended).length;
        same(short.status, 200, short.text);
        check(done <= 3, `${done} texts of the flood came first`);
        await Promise.all(flood.map(a => a.done));
        same(flood.filter(a => a.status === 200).length, 10, 'of the flood were answered:');
        same(await server.stop(), 0);
    },

    async 'a client that goes away frees its slot: a stream'() {
        const server = await start(serve, [...LONG, '--parallel', '2']);
        await leaves(server, true);
        same(await server.stop(), 0);
    },

    async 'a client that goes away frees its slot: a whole answer'() {
        const server = await start(serve, [...LONG, '--parallel', '2']);
        await leaves(server, false);
        same(await server.stop(), 0);
    },

    async 'a client that goes away after further bytes frees its slot'() {
        const server = await start(serve, [...LONG, '--parallel', '1']);
        for (const stream of [true, false]) {
            const socket = net.connect(server.port, '127.0.0.1');
            const body = JSON.stringify(await endless(server, { stream }));
            socket.write(Buffer.concat([post('/v1/completions', body), Buffer.from('GET /')]));
            await busy(server, 1);
            socket.destroy();
            await busy(server, 0);
        }
        const written = (await metrics(server)).bitnet_written_tokens_total;
        check(written < 16000, `${written} tokens were written for nobody`);
        same(await server.stop(), 0);
    },

    async 'clients that leave do not stop the passes of others'() {
        const server = await start(serve, [...LONG, '--parallel', '40', '-t', '1']);
        const text = await endless(server, { stream: true });
        const writer = open(server, text);
        await began(writer);
        // Those that read make passes so long that a client leaves in each of them.
        const readers = Array.from({ length: 20 }, () =>
            open(server, { prompt: longPrompt(), max_tokens: 4 })
        );
        await busy(server, 21);
        const before = writer.text.length;
        let over = false;
        const leave = async i => {
            for (await sleep(i * 6); !over; ) {
                const one = open(server, text);
                await sleep(100);
                one.leave();
            }
        };
        const leaving = Promise.all(Array.from({ length: 16 }, (_, i) => leave(i)));
        const events = () => writer.text.slice(before).split('\n\n').length - 1;
        await until(() => events() > 12, 'tokens are written meanwhile').finally(() => (over = true));
        await leaving;
        for (const one of [writer, ...readers]) one.leave();
        await idle(server);
        same(await server.stop(), 0);
    },

    async '--gap: how many tokens of a prompt a pass beside another text reads'() {
        const passes = [];
        for (const gap of [[], ['--gap', '3600000']]) {     // 32, or ever more
            const server = await start(serve, [...LONG, '-np', '2', ...gap]),
                writer = open(server, await endless(server, { stream: true })),
                events = () => writer.text.split('\n\n').length,
                counted = [];
            await began(writer);
            for (const first of [0, 1]) {   // with what is written before and behind a prompt
                const before = events(),
                    prompt = longPrompt().slice(first, first + 8000);
                same((await ask(server, '/v1/completions', { prompt, max_tokens: 1 })).status, 200);
                counted.push(events() - before);
            }
            passes.push(Math.min(...counted));
            writer.leave();
            await server.stop();
        }
        check(passes[0] > 200 && passes[1] < (passes[0] * 2) / 3, passes);
    },
    async 'a half-closed connection gets no empty answer'() {
        const server = await start(serve, TINY);
        const body = JSON.stringify(await endless(server, { max_tokens: 400 }));
        const answer = await raw(server, post('/v1/completions', body), { end: true });
        check(answer === '' || /"completion_tokens":400/.test(answer), answer);
        same(await server.stop(), 0);
    },

    async 'a full cache: texts wait for room, and the others go on'() {
        const alone = await start(serve, [...TINY, '--parallel', '1']);
        const text = await endless(alone, { max_tokens: 230, temperature: 0 });
        const wanted = (await ask(alone, '/v1/completions', text)).json.choices[0].text;
        same(await alone.stop(), 0);
        const server = await start(serve, [...TINY, '--parallel', '4', '--kv-tokens', '512']);
        const prompts = Array.from({ length: 8 }, (_, i) =>
            ask(
                server,
                '/v1/completions',
                i % 2
                    ? text
                    : { ...text, prompt: Array.from({ length: 250 }, (_, k) => 300 + i + k) }
            )
        );
        const all = await Promise.all(prompts);
        for (const [i, r] of all.entries()) {
            same(r.status, 200, r.text);
            if (i % 2) same(r.json.choices[0].text, wanted);
        }
        same(await server.stop(), 0);
    },

    async 'a full cache: texts without a limit end with an error, and no other does'() {
        const server = await start(serve, [...TINY, '--parallel', '4', '--kv-tokens', '512']);
        const text = await endless(server, { temperature: 0 });
        for (const echo of [false, true]) {
            const request = { ...text, echo, ...(echo ? { logprobs: 1 } : {}) };
            const prompt = i => Array.from({ length: 100 + 20 * i }, (_, k) => 300 + 40 * i + k);
            const all = await Promise.all(
                Array.from({ length: 8 }, (_, i) =>
                    ask(server, '/v1/completions', { ...request, prompt: prompt(i) })
                )
            );
            for (const r of all)
                check(
                    r.status === 200 || (r.status === 503 && /cache is full/.test(r.text)),
                    r.text
                );
            check(
                all.filter(r => r.status === 200).length >= 2,
                all.map(r => r.status)
            );
            await idle(server);
            const last = await ask(server, '/v1/completions', { ...request, prompt: prompt(7) });
            same(last.json.choices[0].finish_reason, 'length');
            const best = all.find((r, i) => i === 7 && r.status === 200);
            if (best) same(best.json.choices, last.json.choices);
        }
        same(await server.stop(), 0);
    }
};

process.exit((await runAll('server lifecycle', cases, filter)) ? 1 : 0);
