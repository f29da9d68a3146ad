// attacks.mjs - what costs a client little must not cost others much
//
//     node tests/server/attacks.mjs SERVE MODEL [FILTER]
import net from 'node:net';
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
    start,
    until
} from './server.mjs';

const [serve, model, filter = ''] = process.argv.slice(2);
const status = text => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0);
const TINY = ['-m', model];
const J = JSON.stringify;
const A_TEXT = J({ prompt: 'x', max_tokens: 1 });

/** Connects, sends bytes, and closes at once. */
const touch = (server, bytes) =>
    new Promise(done => {
        const socket = net.connect(server.port, '127.0.0.1', () => socket.end(bytes, done));
        socket.on('error', done);
        socket.resume();
    });

/** A schema that takes long to compile, and is refused in the end. */
const slowSchema = () => {
    const list = i => ({ enum: Array.from({ length: 1800 }, (_, k) => `${i}-${k}`) });
    return { oneOf: Array.from({ length: 10 }, (_, i) => list(i)) };
};

await runAll(
    'server attacks',
    {
        // Without the look at connections that wait, they would stay for a day.
        async 'half-requests that are closed free their connections'() {
            const server = await start(serve, [...TINY, '--idle-timeout', '86400']);
            const head =
                'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n';
            for (const bytes of [head, `${head}\r\n{"`]) {
                await Promise.all(Array.from({ length: 600 }, () => touch(server, bytes)));
                await until(async () => {
                    const got = ask(server, '/health').catch(() => ({ status: 0 }));
                    return (await got).status === 200;
                }, 'others come in again');
            }
            same(await server.stop(), 0);
        },

        // libmicrohttpd takes 128 events of epoll at a time, and must look at them before it waits for
        // more. It would wait for a day.
        async 'requests that come at the same moment are all answered'() {
            const server = await start(serve, [...TINY, '--idle-timeout', '86400']);
            const health = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n';
            let answers = 0;
            const sockets = Array.from({ length: 128 }, () => {
                const socket = net.connect(server.port, '127.0.0.1');
                socket.on('data', d => (answers += d.toString().split('HTTP/1.1 200').length - 1));
                return socket.on('error', () => {});
            });
            sockets.forEach(s => s.write(health));
            await until(() => answers === 128, 'all have come in');
            for (let i = 2; i < 5; i++) {
                server.child.kill('SIGSTOP');
                await Promise.all(sockets.map(s => new Promise(done => s.write(health, done))));
                server.child.kill('SIGCONT');
                await until(() => answers === i * 128, `${i * 128} answers, not ${answers}`);
            }
            sockets.forEach(s => s.destroy());
            same(await server.stop(), 0);
        },

        async 'one address has a part of all connections'() {
            const some = ['--connections', '9', '--peer-connections', '3'];
            const server = await start(serve, [...TINY, ...some]);
            const join = localAddress =>
                new Promise(done => {
                    const s = net.connect({ port: server.port, host: '127.0.0.1', localAddress });
                    s.on('error', () => {});
                    s.on('close', () => done(0));
                    s.on('data', d => done(status(d.toString())));
                    s.write('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
                });
            const all = [];
            for (let i = 0; i < 5; i++) all.push(await join('127.0.0.2'));
            same(all, [200, 200, 200, 0, 0]);
            same([await join('127.0.0.3'), await join('127.0.0.1')], [200, 200], 'others:');
            same(await server.stop('SIGKILL'), null);
        },

        // The stream's client gets many pieces while the bodies of others are read, one for each pass
        // of the engine: it would get none if they were read where answers are sent.
        async 'bodies that take long do not stop the streams of others'() {
            const server = await start(serve, [...TINY, '-c', '16384']);
            const stream = open(server, await endless(server, { stream: true }));
            await began(stream);
            const schema = {
                type: 'json_schema',
                json_schema: { name: 'x', schema: slowSchema() }
            };
            const bodies = [
                ['/v1/completions', { prompt: 'x', response_format: schema }, 400],
                ['/v1/completions', { prompt: 'x', max_tokens: 1, a: Array(3e6).fill(1) }, 200],
                ['/tokenize', { content: 'Once upon a time. '.repeat(50000) }, 200]
            ];
            for (const [path, body, wanted] of bodies) {
                const before = stream.text.length;
                const other = open(server, body, { path, localAddress: '127.0.0.2' });
                await other.done;
                same(other.status, wanted, other.text.slice(0, 200));
                const pieces = stream.text.slice(before).split('data: ').length;
                check(pieces > 10, `${path}: ${pieces} pieces`);
            }
            stream.leave();
            same(await server.stop(), 0);
        },

        async 'who comes when the queue is full is refused before the body'() {
            const server = await start(serve, [...TINY, '-c', '16384', '-np', '1', '--queue', '0']);
            const first = open(server, await endless(server, { stream: true }));
            await busy(server, 1);
            const other = open(server, await endless(server, { stream: true }), {
                localAddress: '127.0.0.2'
            });
            await until(async () => (await metrics(server)).bitnet_texts_waiting === 1, 'it waits');
            const head = post('/v1/completions', A_TEXT, { Expect: '100-continue' });
            const only = head.subarray(0, head.length - A_TEXT.length);
            same(status(await raw(server, only, { enough: t => t.length > 0 })), 429);
            same(
                status(await raw(server, post('/v1/completions', '{', { Connection: 'close' }))),
                429
            );
            first.leave();
            other.leave();
            await idle(server);
            same(
                status(await raw(server, post('/v1/completions', '{', { Connection: 'close' }))),
                400
            );
            same(await server.stop(), 0);
        },

        async 'an answer that may be very long is refused, or streams'() {
            const server = await start(serve, [...TINY, '-c', '4096']);
            const messages = [{ role: 'user', content: 'x' }];
            const large = { messages, n: 68, logprobs: true, top_logprobs: 20, max_tokens: 4000 };
            const { status: code, json } = await ask(server, '/v1/chat/completions', large);
            same([code, json.error.param], [400, 'logprobs']);
            check(json.error.message.includes('stream'), json);
            const small = { ...large, n: 2, max_tokens: 3 };
            same((await ask(server, '/v1/chat/completions', small)).status, 200);
            const stream = open(
                server,
                { ...large, stream: true },
                { path: '/v1/chat/completions' }
            );
            await began(stream);
            stream.leave();
            same(await server.stop(), 0);
        },

        // Each answer has more than 20 MB, of which a socket holds a few.
        async 'answers that nobody reads have a bound, those of /tokenize too'() {
            const server = await start(serve, [...TINY, '--idle-timeout', '86400']);
            const body = J({ content: 'q'.repeat(1e6), with_pieces: true });
            const statuses = [],
                sockets = [];
            for (let i = 0; i < 26; i++) {
                const socket = net.connect(server.port, '127.0.0.1');
                sockets.push(socket.on('error', () => {}));
                socket.once('data', d => {
                    socket.pause();
                    statuses.push(status(d.toString('latin1')));
                });
                socket.write(post('/tokenize', body));
            }
            await until(() => statuses.length === 26, 'all have answers');
            const held = statuses.filter(code => code === 200).length;
            check(held >= 10 && held <= 25, `${held} are held`);
            same([...new Set(statuses)].sort(), [200, 503]);
            sockets.forEach(s => s.destroy());
            await until(async () => {
                const again = { content: 'q'.repeat(1e5), with_pieces: true };
                return (await ask(server, '/tokenize', again)).status === 200;
            }, 'there is room again');
            const tokens = Array(1.1e6).fill(2045); // a special token, of 17 bytes
            const long = await ask(server, '/detokenize', { tokens });
            same([long.status, long.json.error.param], [400, 'tokens']);
            same(await server.stop(), 0);
        },

        // RFC 9112, section 6.3: a proxy in front might see the end of a request elsewhere.
        async 'requests whose end can be understood in two ways are refused'() {
            const server = await start(serve, TINY);
            const length = `Content-Length: ${A_TEXT.length}`;
            const chunks = `${A_TEXT.length.toString(16)}\r\n${A_TEXT}\r\n0\r\n\r\n`;
            const first = { enough: t => /\r\n\r\n.+/s.test(t) && status(t) !== 100 };
            const send = (lines, body, options) =>
                raw(
                    server,
                    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${lines
                        .map(l => `${l}\r\n`)
                        .join('')}\r\n${body}`,
                    options
                );
            for (const [lines, body] of [
                [[length, `Content-Length: ${A_TEXT.length - 1}`], A_TEXT],
                [[length, length], A_TEXT],
                [[length, 'Transfer-Encoding: chunked'], chunks],
                [['Transfer-Encoding : chunked'], chunks],
                [['Transfer-Encoding: gzip, chunked'], chunks],
                [['Transfer-Encoding: identity'], chunks],
                [['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], chunks],
                [[`Content-Length: +${A_TEXT.length}`], A_TEXT],
                [[`Content-Length : ${A_TEXT.length}`], A_TEXT],
                [[`Content-Length:\r\n ${A_TEXT.length}`], A_TEXT],
                [['Transfer-Encoding:\r\n chunked'], chunks]
            ]) {
                const next = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n';
                const text = await send(lines, body + next);
                same(status(text), 400, `${lines}:`);
                check(!/HTTP\/1\.1 (200|405)/.test(text), `${lines}: another answer`);
            }
            for (const [lines, body] of [
                [[length], A_TEXT],
                [['Transfer-Encoding: chunked'], chunks],
                [['transfer-encoding: Chunked'], chunks]
            ])
                same(status(await send(lines, body, first)), 200, `${lines}:`);
            const twice = `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${length}\r\n`;
            const smuggled = `${twice}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1`;
            const text = await raw(server, `${smuggled}\r\nHost: localhost\r\n\r\n`);
            same(text.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 400'], 'it closes:');
            same(await server.stop(), 0);
        },

        async 'nobody is told what others have asked'() {
            const server = await start(serve, TINY);
            const body = { prompt: 'My secret is that I like the red ball', max_tokens: 1 };
            const cached = async localAddress => {
                const { text } = await open(server, body, { localAddress }).done;
                return JSON.parse(text).usage.prompt_tokens_details.cached_tokens;
            };
            same(await cached('127.0.0.1'), 0);
            same(await cached('127.0.0.2'), 0, 'another client:');
            check((await cached('127.0.0.2')) > 3, 'its own');
            check((await metrics(server)).bitnet_reused_tokens_total > 10, 'it was there');
            same(await server.stop(), 0);
        },

        async 'a compressed body is refused as that'() {
            const server = await start(serve, TINY);
            for (const [coding, wanted] of [
                ['gzip', 415],
                ['br', 415],
                ['identity', 200]
            ]) {
                const headers = { 'Content-Encoding': coding, Connection: 'close' };
                const text = await raw(server, post('/v1/completions', A_TEXT, headers));
                same(status(text), wanted, `${coding}:`);
            }
            same(await server.stop(), 0);
        },

        async 'without a key another Authorization makes no other client'() {
            const args = ['-c', '16384', '-np', '1', '--queue', '2', '--no-key'];
            const server = await start(serve, [...TINY, ...args]);
            const text = await endless(server, { stream: true });
            const flood = Array.from({ length: 12 }, (_, i) =>
                open(server, text, { headers: { Authorization: `Bearer ${i}` } })
            );
            await until(
                async () => (await metrics(server)).bitnet_refused_total === 9,
                'all but three of the flood are refused'
            );
            const other = open(server, text, { localAddress: '127.0.0.2' });
            await until(async () => (await metrics(server)).bitnet_texts_waiting === 3, 'it waits');
            [...flood, other].forEach(a => a.leave());
            same(await server.stop(), 0);
        }
    },
    filter
).then(failed => process.exit(failed ? 1 : 0));
