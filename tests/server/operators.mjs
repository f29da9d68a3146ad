// operators.mjs - what somebody needs who runs the server for others: keys, proxies, sockets, a log
//
//     node tests/server/operators.mjs SERVE MODEL [FILTER]
import { spawnSync } from 'node:child_process';
import {
    existsSync,
    mkdtempSync,
    readFileSync,
    renameSync,
    rmSync,
    statSync,
    writeFileSync
} from 'node:fs';
import http from 'node:http';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import {
    ask,
    busy,
    check,
    endless,
    metrics,
    open,
    runAll,
    same,
    Skip,
    start,
    until
} from './server.mjs';

const [serve, model, filter = ''] = process.argv.slice(2);
const TINY = ['-m', model],
    ONE_PLACE = ['-m', model, '-c', '16384', '-np', '1', '--queue', '1'];
const A_TEXT = { prompt: 'Once upon a time', max_tokens: 2, temperature: 0 };
const folder = mkdtempSync(join(tmpdir(), 'operators-'));
const file = (name, text) => (writeFileSync(join(folder, name), text), join(folder, name));
const key = name => ({ Authorization: `Bearer ${name}` });

/** Asks over a Unix socket. */
const askSocket = (socketPath, path, headers = {}) =>
    new Promise((done, no) => {
        const request = http.get({
            socketPath,
            path,
            headers: { Host: 'any.example', ...headers }
        });
        request.on('error', no);
        request.on('response', r => {
            let text = '';
            r.on('data', d => (text += d));
            r.on('end', () => done({ status: r.statusCode, text }));
        });
    });

/** One client fills the server; which of the others gets one of the places that are kept for those
 * who have none? */
async function others(server, first, rest, headers = {}) {
    const text = await endless({ ...server, url: server.url }, { stream: true });
    const all = [1, 2, 3].map(() => open(server, text, { headers: { ...headers, ...first } }));
    await busy(server, 1);
    await until(async () => (await metrics(server)).bitnet_refused_total === 1, 'it is full');
    const got = [];
    for (const own of rest) {
        const other = open(server, text, { headers: { ...headers, ...own } });
        await until(
            async () => other.status === 429 || (await metrics(server)).bitnet_texts_waiting === 2,
            'it waits, or is refused'
        );
        got.push(other.status === 429 ? 429 : 200);
        other.leave();
        await until(async () => (await metrics(server)).bitnet_texts_waiting === 1, 'it has left');
    }
    all.forEach(a => a.leave());
    return got;
}

await runAll(
    'server operators',
    {
        async 'a file of keys: each of them comes in, and no other'() {
            const keys = file('keys', '\ufefffirst \r\n# ours\n\n second-key\nthird');
            const server = await start(serve, [
                ...TINY,
                '--api-key',
                'one',
                '--api-key-file',
                keys
            ]);
            const get = async headers =>
                (await ask(server, '/v1/models', undefined, { headers })).status;
            for (const name of ['one', 'first', 'second-key', 'third'])
                same(await get(key(name)), 200, `${name}:`);
            same(await get({ 'x-api-key': 'third' }), 200);
            for (const name of ['# ours', 'two', 'firs', 'first ', 'thirdthird', 'second'])
                same(await get(key(name)), name === 'first ' ? 200 : 401, `${name}:`); // HTTP trims
            same(await get({}), 401);
            same(await server.stop(), 0);
            for (const [path, says] of [
                [file('empty', '# none\n'), 'it has no key'],
                [join(folder, 'missing'), 'No such file'],
                [file('long', 'x'.repeat(2000)), 'line 1: it is too long'],
                [file('nul', 'first\na\0b'), 'line 2: it is too long, or has a NUL']
            ]) {
                const r = spawnSync(serve, [...TINY, '--api-key-file', path], { encoding: 'utf8' });
                same([r.status, r.stderr.includes(says)], [2, true], r.stderr);
            }
        },

        async 'with several keys, places are shared out by key'() {
            const keys = file('keys', 'a\nb\n');
            const server = await start(serve, [...ONE_PLACE, '--api-key-file', keys]);
            const asB = { ...server };
            const text = { ...A_TEXT, max_tokens: -1, ignore_eos: true, stream: true };
            const all = [1, 2, 3].map(() => open(server, text, { headers: key('a') }));
            const count = async () => {
                const { text: t } = await ask(server, '/metrics', undefined, { headers: key('b') });
                const of = name => Number(new RegExp(`^${name} (\\d+)`, 'm').exec(t)[1]);
                return [of('bitnet_refused_total'), of('bitnet_texts_waiting')];
            };
            await until(async () => (await count())[0] === 1, 'it is full');
            const b = open(asB, text, { headers: key('b') });
            await until(async () => (await count())[1] === 2, 'the other key waits');
            [...all, b].forEach(a => a.leave());
            same(await server.stop(), 0);
        },

        async 'behind a trusted proxy, by the address that it has seen'() {
            const server = await start(serve, [
                ...ONE_PLACE,
                '--no-key',
                '--trusted-proxy',
                '10.9.9.9,127.0.0.1'
            ]);
            const from = list => ({ 'X-Forwarded-For': list });
            same(
                await others(server, from('192.0.2.1'), [
                    from('192.0.2.2'), //                    another client
                    from('192.0.2.1'), //                    the same
                    from('192.0.2.7, 192.0.2.1'), //         it says that it is another
                    from('192.0.2.1, 192.0.2.8'), //         another, behind what it says itself
                    from('192.0.2.9, 10.9.9.9'), //          another, through two proxies
                    from('192.0.2.1 , 10.9.9.9, 127.0.0.1'),
                    {} //                                    the proxy itself
                ]),
                [200, 429, 429, 200, 200, 429, 200]
            );
            same(await server.stop(), 0);
        },

        async 'a trusted proxy that no connection can be from is refused'() {
            for (const bad of ['10.0.0.0/8', 'localhost', '10.0.0.1, 10.0.0.2', 'FD00::1']) {
                const args = [...TINY, '--trusted-proxy', bad, '--port', '0'];
                const r = spawnSync(serve, args, { encoding: 'utf8', timeout: 60000 });
                same([r.status, r.stderr.includes(' is no address')], [2, true], r.stderr);
            }
        },

        // Otherwise a page of another site could come in by a name that is this machine's address.
        async 'a trusted proxy wants a key, or that all may come in'() {
            const args = [...TINY, '--trusted-proxy', '127.0.0.1', '--port', '0'];
            const r = spawnSync(serve, args, { encoding: 'utf8', timeout: 60000 });
            same([r.status, r.stderr.includes('Set --api-key')], [2, true], r.stderr);
        },

        async 'without one, X-Forwarded-For says nothing'() {
            const server = await start(serve, ONE_PLACE);
            const got = await others(server, {}, [{ 'X-Forwarded-For': '192.0.2.2' }]);
            same(got, [429]);
            same(await server.stop(), 0);
        },

        async '--host :: takes IPv4, too'() {
            const has6 = Object.values(networkInterfaces())
                .flat()
                .some(i => i.family === 'IPv6');
            if (!has6) throw new Skip('this machine has no IPv6');
            const server = await start(serve, [...TINY, '--host', '::', '--no-key']);
            for (const host of ['127.0.0.1', '[::1]']) {
                const there = { ...server, url: `http://${host}:${server.port}` };
                same((await ask(there, '/health')).status, 200, `${host}:`);
            }
            same(await server.stop(), 0);
        },

        async 'a Unix socket, for a proxy on the same machine'() {
            const path = join(folder, 'socket');
            const server = await start(serve, [...TINY, '--host', path], { wait: false });
            await until(() => server.said.includes(` on the socket ${path},`), server.said);
            check(statSync(path).isSocket(), 'a socket');
            same((await askSocket(path, '/health')).status, 200);
            const health = () => spawnSync(serve, ['--health', '--host', path]).status;
            same(health(), 0, '--health:');
            same((await askSocket(path, '/v1/models')).status, 200, 'with any Host:');
            const same_site = { Origin: 'https://any.example' };
            same((await askSocket(path, '/v1/models', same_site)).status, 200);
            const other_site = { Origin: 'https://evil.example' };
            same((await askSocket(path, '/v1/models', other_site)).status, 403);
            const second = spawnSync(serve, [...TINY, '--host', path], { encoding: 'utf8' });
            check(second.status === 1 && second.stderr.includes('in use'), second.stderr);
            same((await askSocket(path, '/health')).status, 200, 'the first one goes on:');
            same(await server.stop('SIGKILL'), null);
            check(existsSync(path), 'it is left');
            const third = await start(serve, [...TINY, '--host', path], { wait: false });
            await until(() => third.said.includes(' on the socket '), 'it takes its place');
            same((await askSocket(path, '/health')).status, 200);
            same(await third.stop(), 0);
            check(!existsSync(path), 'it goes with the server');
            same(health(), 1, '--health:');
            same(spawnSync(serve, ['--health', '--host', `/${'x'.repeat(200)}`]).status, 1);
            writeFileSync(path, 'mine');
            const fourth = spawnSync(serve, [...TINY, '--host', path], { encoding: 'utf8' });
            same([fourth.status, readFileSync(path, 'utf8')], [1, 'mine'], 'no file is replaced:');
        },

        async 'the log has a line of JSON for each request, and no prompt unless asked'() {
            for (const more of [[], ['--log-prompts']]) {
                const path = join(folder, 'log');
                rmSync(path, { force: true });
                const server = await start(serve, [
                    ...TINY,
                    '--api-key',
                    'secret',
                    '--log',
                    path,
                    ...more
                ]);
                const headers = key('secret');
                const post = (where, body) => ask(server, where, body, { headers });
                await post('/v1/completions', A_TEXT);
                await post('/v1/completions', { ...A_TEXT, stream: true });
                await post('/v1/chat/completions', {
                    messages: [{ role: 'user', content: 'Hello "you"' }],
                    n: 2,
                    max_tokens: 3
                });
                await post('/v1/completions', { prompt: 5 });
                await ask(server, '/v1/models');
                await ask(server, '/health');
                await ask(server, '/nothing', undefined, { headers });
                const left = open(
                    server,
                    { ...A_TEXT, max_tokens: -1, ignore_eos: true, stream: true },
                    { headers }
                );
                await until(() => left.text, 'it begins');
                left.leave();
                await until(() => readFileSync(path, 'utf8').split('\n').length > 7, 'its line');
                same(await server.stop(), 0);
                const text = readFileSync(path, 'utf8');
                const lines = text
                    .trim()
                    .split('\n')
                    .map(l => JSON.parse(l));
                same(
                    lines.map(l => [l.method, l.path, l.status]),
                    [
                        ['POST', '/v1/completions', 200],
                        ['POST', '/v1/completions', 200],
                        ['POST', '/v1/chat/completions', 200],
                        ['POST', '/v1/completions', 400],
                        ['GET', '/v1/models', 401],
                        ['GET', '/nothing', 404],
                        ['POST', '/v1/completions', 200]
                    ]
                );
                const [whole, stream, chat, wrong, , , gone] = lines;
                check(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(whole.time), whole.time);
                check(
                    whole.seconds >= whole.first_token_seconds && whole.first_token_seconds >= 0,
                    whole
                );
                same(
                    [whole.client, whole.key, whole.stream, stream.stream],
                    ['127.0.0.1', 1, false, true]
                );
                same([whole.completion_tokens, stream.completion_tokens, chat.texts], [2, 2, 2]);
                same(
                    [stream.cached_tokens, whole.prompt_tokens],
                    [whole.prompt_tokens - 1, stream.prompt_tokens]
                );
                check(whole.id.startsWith('cmpl-') && chat.id.startsWith('chatcmpl-'), lines);
                check(wrong.error.startsWith('prompt: '), wrong);
                same([whole.left, gone.left], [undefined, true]);
                same([text.includes('Hello'), text.includes('secret')], [more.length > 0, false]);
                if (more.length) same(JSON.parse(chat.body).messages[0].content, 'Hello "you"');
            }
            const r = spawnSync(serve, [...TINY, '--log', join(folder, 'no', 'log')], {
                encoding: 'utf8'
            });
            same([r.status, r.stderr.includes('No such file')], [2, true], r.stderr);
        },

        async 'SIGHUP opens a log that was renamed again, and a full disk is told once'() {
            const path = join(folder, 'rotated'),
                server = await start(serve, [...TINY, '--log', path]);
            await ask(server, '/v1/models');
            renameSync(path, `${path}.1`);
            await ask(server, '/nothing');
            server.child.kill('SIGHUP');
            await until(() => existsSync(path), 'it is opened');
            await ask(server, '/props');
            same(await server.stop(), 0);
            const lines = name => readFileSync(name, 'utf8').match(/"path":"[^"]*"/g);
            same(lines(`${path}.1`), ['"path":"/v1/models"', '"path":"/nothing"']);
            same(lines(path), ['"path":"/props"']);
            if (!existsSync('/dev/full')) return;
            const full = await start(serve, [...TINY, '--log', '/dev/full']);
            for (let i = 0; i < 3; i++) same((await ask(full, '/v1/models')).status, 200);
            same(await full.stop(), 0);
            same(full.said.split('--log /dev/full: No space left').length, 2, full.said);
        },

        async '--version'() {
            const r = spawnSync(serve, ['--version'], { encoding: 'utf8' });
            check(r.status === 0 && /^serve \d+\.\d+\.\d+\n$/.test(r.stdout), r.stdout);
        }
    },
    filter
).then(failed => {
    rmSync(folder, { recursive: true });
    process.exit(failed ? 1 : 0);
});
