// proxies.mjs - nginx and Caddy in front of the server, with the files of examples/server
//
//     node tests/server/proxies.mjs SERVE MODEL FOLDER [FILTER]
//
// A proxy that is not installed is unpacked into FOLDER by apt-get download: an installed one would
// listen on ports of this machine. It needs openssl. All talk to 127.0.0.1 alone.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
    existsSync,
    mkdirSync,
    mkdtempSync,
    readdirSync,
    readFileSync,
    rmSync,
    writeFileSync
} from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { check, endless, metrics, runAll, same, Skip, sleep, start, until } from './server.mjs';

const [serve, model, folder, filter = ''] = process.argv.slice(2);
const files = resolve(import.meta.dirname, '../../examples/server');
const here = mkdtempSync(join(tmpdir(), 'proxies-'));
const KEY = 'a-key';

// ---- the proxies

/** The path of a program, perhaps after it was unpacked. */
function find(name) {
    const places = [
        ...process.env.PATH.split(delimiter),
        '/usr/sbin',
        join(folder, 'usr/bin'),
        join(folder, 'usr/sbin')
    ];
    const found = () => places.map(p => resolve(p, name)).find(existsSync);
    if (found()) return found();
    if (process.env.BITNET_NO_INSTALL === '1') throw new Skip(`${name} is not installed`);
    mkdirSync(folder, { recursive: true });
    spawnSync('apt-get', ['download', name], { cwd: folder });
    for (const file of readdirSync(folder).filter(
        f => f.startsWith(`${name}_`) && f.endsWith('.deb')
    ))
        spawnSync('dpkg-deb', ['-x', file, '.'], { cwd: folder });
    if (found()) return found();
    throw new Skip(`${name} is not installed, and apt-get cannot get it`);
}

/** A certificate for localhost, which is its own authority. */
function certificate() {
    const cert = join(here, 'cert.pem'),
        key = join(here, 'key.pem');
    if (!existsSync(cert)) {
        const made = spawnSync(
            'openssl',
            [
                'req',
                '-x509',
                '-newkey',
                'rsa:2048',
                '-nodes',
                '-days',
                '2',
                '-subj',
                '/CN=localhost',
                '-addext',
                'subjectAltName=DNS:localhost',
                '-keyout',
                key,
                '-out',
                cert
            ],
            { encoding: 'utf8' }
        );
        if (made.error) throw new Skip('openssl is not installed');
        check(made.status === 0, made.stderr);
    }
    return { cert, key };
}

/** Changes a text at places that must be there. */
function change(text, pairs) {
    for (const [from, to] of pairs) {
        check(text.includes(from), `this is not in the file: ${from}`);
        text = text.replaceAll(from, to);
    }
    return text;
}

async function freePort() {
    const probe = net.createServer().listen(0, '127.0.0.1');
    await until(() => probe.listening, 'a port');
    const { port } = probe.address();
    await new Promise(done => probe.close(done));
    return port;
}

const PROXIES = {
    /** The file is part of one that has no paths of this machine. */
    nginx({ port, plain, cert, key }, behind) {
        const text = change(readFileSync(join(files, 'nginx.conf'), 'utf8'), [
            ['    listen [::]:443 ssl http2;\n', ''],
            ['    listen [::]:80;\n', ''],
            ['listen 443 ssl', `listen 127.0.0.1:${port} ssl`],
            ['listen 80;', `listen 127.0.0.1:${plain};`],
            ['llm.example.com;', 'localhost;'],
            ['/etc/ssl/llm.example.com.pem', cert],
            ['/etc/ssl/llm.example.com.key', key],
            ...(typeof behind === 'number'
                ? [['127.0.0.1:8080', `127.0.0.1:${behind}`]]
                : [
                      ['server 127.0.0.1:8080;', ''],
                      ['#server unix:/run/bitnet/socket', `server unix:${behind}`]
                  ])
        ]);
        writeFileSync(join(here, 'site.conf'), text);
        const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
            n => `${n}_temp_path ${join(here, n)};`
        );
        writeFileSync(
            join(here, 'nginx.conf'),
            `${process.getuid() ? '' : 'user root;'} daemon off; pid ${join(here, 'nginx.pid')};
            error_log stderr; events { }
            http { access_log off; ${paths.join(' ')} include ${join(here, 'site.conf')}; }`
        );
        return [find('nginx'), '-e', 'stderr', '-p', here, '-c', join(here, 'nginx.conf')];
    },
    caddy({ port, plain, cert, key }, behind) {
        const text = change(readFileSync(join(files, 'Caddyfile'), 'utf8'), [
            [
                '#tls /etc/ssl/llm.example.com.pem /etc/ssl/llm.example.com.key',
                `tls ${cert} ${key}`
            ],
            ['llm.example.com {', 'localhost {\n\tbind 127.0.0.1'],
            ...(typeof behind === 'number'
                ? [['127.0.0.1:8080', `127.0.0.1:${behind}`]]
                : [
                      ['to 127.0.0.1:8080', ''],
                      ['#to unix//run/bitnet/socket', `to unix/${behind}`]
                  ])
        ]);
        const general = `{
            admin off
            http_port ${plain}
            https_port ${port}
            storage file_system ${join(here, 'caddy')}
            skip_install_trust
        }\n`;
        writeFileSync(join(here, 'Caddyfile'), general + text);
        return [
            find('caddy'),
            'run',
            '--adapter',
            'caddyfile',
            '--config',
            join(here, 'Caddyfile')
        ];
    }
};

/** Starts a proxy in front of a port or a Unix socket. */
async function front(name, behind) {
    const at = { port: await freePort(), plain: await freePort(), ...certificate() };
    const [program, ...args] = PROXIES[name](at, behind);
    const child = spawn(program, args, {
        cwd: here,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, HOME: here, XDG_CONFIG_HOME: here, XDG_DATA_HOME: here }
    });
    const ended = new Promise(done => child.on('exit', done));
    const kill = () => child.kill('SIGKILL');
    let said = '';
    child.stdout.on('data', d => (said += d));
    child.stderr.on('data', d => (said += d));
    process.on('exit', kill);
    const answers = port =>
        new Promise(done => {
            const socket = net.connect(port, '127.0.0.1', () => (socket.destroy(), done(true)));
            socket.on('error', () => done(false));
        });
    const listens = async () => (await answers(at.port)) && answers(at.plain); // the second may be late
    await until(async () => child.exitCode !== null || (await listens()), `${name} listens`);
    check(child.exitCode === null, `${name} has ended: ${said}`);
    return {
        ...at,
        name,
        ca: readFileSync(at.cert),
        async stop() {
            child.kill('SIGTERM');
            await Promise.race([ended, sleep(5000)]);
            kill();
            process.off('exit', kill);
        }
    };
}

/** Sends a request through a proxy. `on` gets what comes, piece by piece, and its answer all. */
function send(proxy, path, { body, headers = {}, on = () => {}, secure = true } = {}) {
    const answer = { text: '' };
    const request = (secure ? https : http).request({
        host: '127.0.0.1',
        servername: 'localhost',
        ca: proxy.ca,
        path,
        port: secure ? proxy.port : proxy.plain,
        method: body === undefined ? 'GET' : 'POST',
        agent: false,
        headers: { Host: 'localhost', ...headers }
    });
    answer.leave = () => request.destroy();
    answer.done = new Promise((done, no) => {
        request.on('response', r => {
            Object.assign(answer, { status: r.statusCode, headers: r.headers });
            r.setEncoding('utf8');
            r.on('data', d => ((answer.text += d), on(d, answer)));
            r.on('end', () => done(answer));
            r.on('error', no);
        });
        request.on('error', no);
    });
    answer.done.catch(() => {});
    request.end(body);
    return answer;
}

/** A server that says what it is asked, and streams as the client lets it. */
async function backend(place) {
    const state = { open: 0, next: () => {}, asked: [] };
    const server = http.createServer((request, response) => {
        state.asked.push(request);
        if (request.url === '/stream') {
            state.open++;
            response.on('close', () => state.open--);
            response.writeHead(200, { 'Content-Type': 'text/event-stream' });
            let n = 0;
            state.next = () => (++n > 5 ? response.end() : response.write(`data: ${n}\n\n`));
            state.next();
            return;
        }
        let size = 0;
        request.on('data', d => (size += d.length));
        request.on('end', () => response.end(JSON.stringify({ size, headers: request.headers })));
    });
    await new Promise(done => server.listen(place, '127.0.0.1', done));
    state.place = typeof place === 'number' ? server.address().port : place;
    state.stop = () => (server.close(), server.closeAllConnections());
    return state;
}

/** Runs a case with a proxy in front of a made server. */
async function withBackend(name, place, run) {
    const behind = await backend(place);
    try {
        const proxy = await front(name, behind.place);
        try {
            await run(proxy, behind);
        } finally {
            await proxy.stop();
        }
    } finally {
        behind.stop();
    }
}

/** The same with the real one. */
async function withServe(name, args, run) {
    const server = await start(serve, ['-m', model, ...args], { env: { BITNET_API_KEY: KEY } });
    try {
        const proxy = await front(name, server.port);
        try {
            await run(proxy, server);
        } finally {
            await proxy.stop();
        }
    } finally {
        await server.stop('SIGKILL');
    }
}

/** Each piece arrives before the next one is sent: otherwise this never ends. */
async function streams(proxy, behind) {
    const pieces = [];
    const answer = await send(proxy, '/stream', { on: d => (pieces.push(d), behind.next()) }).done;
    same(
        pieces,
        [1, 2, 3, 4, 5].map(n => `data: ${n}\n\n`)
    );
    same(answer.headers['content-type'], 'text/event-stream');
}

async function streamsByHttp2(proxy, behind) {
    const session = http2.connect(`https://localhost:${proxy.port}`, {
        ca: proxy.ca,

        lookup: (_, o, done) =>
            o.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)
    });
    const stream = session.request({ ':path': '/stream' });
    const pieces = [];
    stream.setEncoding('utf8');
    await new Promise((done, no) => {
        stream.on('data', d => (pieces.push(d), behind.next()));
        stream.on('end', done);
        stream.on('error', no);
        session.on('error', no);
    });
    session.close();
    same(pieces.join(''), [1, 2, 3, 4, 5].map(n => `data: ${n}\n\n`).join(''));
    check(pieces.length === 5, pieces);
}

async function leaves(proxy, behind) {
    const answer = send(proxy, '/stream', { on: () => answer.leave() });
    await until(() => answer.text.length > 0, 'the first piece');
    await until(() => behind.open === 0, 'the server sees that the client has left');
}

async function forwards(proxy, behind) {
    const { text, status } = await send(proxy, '/v1/models', {
        headers: { 'X-Forwarded-For': '6.6.6.6', Authorization: 'Bearer x' }
    }).done;
    same(status, 200);
    const { headers } = JSON.parse(text);
    same(headers['x-forwarded-for'], '127.0.0.1');
    same(headers.authorization, 'Bearer x');
    same(headers.host, 'localhost');
    await send(proxy, '/v1/models').done;
    const connections = new Set(behind.asked.map(r => r.socket));
    same(connections.size, 1, 'connections to the server:');
}

async function bodies(proxy) {
    const large = await send(proxy, '/x', { body: 'x'.repeat(15 << 20) }).done;
    same([large.status, JSON.parse(large.text).size], [200, 15 << 20]);
}

const cases = {};
for (const name of Object.keys(PROXIES)) {
    const socket = join(here, `${name}.socket`);
    Object.assign(cases, {
        [`${name}_streams`]: () => withBackend(name, 0, streams),
        [`${name}_streams_by_http2`]: () => withBackend(name, 0, streamsByHttp2),
        [`${name}_says_that_a_client_has_left`]: () => withBackend(name, 0, leaves),
        [`${name}_forwards_who_asks`]: () => withBackend(name, 0, forwards),
        [`${name}_takes_large_bodies`]: () => withBackend(name, 0, bodies),
        [`${name}_streams_from_a_unix_socket`]: () =>
            withBackend(name, socket, async (proxy, behind) => {
                await streams(proxy, behind);
                await leaves(proxy, behind);
            }),
        [`${name}_sends_plain_http_to_tls`]: () =>
            withBackend(name, 0, async proxy => {
                const { status, headers } = await send(proxy, '/v1/models', { secure: false }).done;
                check([301, 308].includes(status), status);
                check(/^https:\/\/localhost(:\d+)?\/v1\/models$/.test(headers.location), headers);
            }),

        async [`${name}_before_serve`]() {
            await withServe(
                name,
                ['-np', '1', '--queue', '0', '-c', '16384'],
                async (proxy, server) => {
                    const authorization = { Authorization: `Bearer ${KEY}` };
                    const ask = (body, on) =>
                        send(proxy, '/v1/completions', {
                            body: JSON.stringify(body),
                            on,
                            headers: authorization
                        });
                    same((await send(proxy, '/health').done).status, 200);
                    same((await send(proxy, '/v1/models').done).status, 401);
                    same(
                        (await send(proxy, '/v1/models', { headers: authorization }).done).status,
                        200
                    );

                    const whole = await ask({
                        prompt: 'Once',
                        max_tokens: 20,
                        seed: 1,
                        ignore_eos: true,
                        stream: true
                    }).done;
                    same(whole.text.match(/^data: /gm).length, 22); // 20 tokens, its end, [DONE]
                    check(whole.text.endsWith('data: [DONE]\n\n'), whole.text);

                    const long = ask(
                        { prompt: 'Once', max_tokens: -1, ignore_eos: true, stream: true },
                        () => {}
                    );
                    await until(() => long.text.length > 0, 'the first event');
                    const refused = await ask({ prompt: 'x', max_tokens: 1 }).done;
                    same([refused.status, refused.headers['retry-after']], [429, '2']);
                    long.leave();
                    await until(
                        async () => (await ask({ prompt: 'x', max_tokens: 1 }).done).status === 200,
                        'a free place'
                    );

                    const large = { prompt: 'x'.repeat(17 << 20), max_tokens: 1 };
                    same((await ask(large).done).status, 413);
                }
            );
        },

        async [`${name}_before_the_socket_of_serve`]() {
            const help = execFileSync(serve, ['--help'], { encoding: 'utf8' });
            if (!/Unix socket/.test(help)) throw new Skip('serve has no Unix socket');
            const server = await start(serve, ['-m', model, '--host', socket], {
                wait: false,
                env: { BITNET_API_KEY: KEY }
            });
            await until(
                () => existsSync(socket) && /on the socket/.test(server.said),
                'the socket'
            );
            const proxy = await front(name, socket);
            try {
                const { text, status } = await send(proxy, '/v1/completions', {
                    headers: { Authorization: `Bearer ${KEY}` },
                    body: JSON.stringify({
                        prompt: 'Once',
                        max_tokens: 5,
                        ignore_eos: true,
                        stream: true
                    })
                }).done;
                same(status, 200);
                check(text.endsWith('data: [DONE]\n\n'), text);
            } finally {
                await proxy.stop();
                await server.stop();
            }
        }
    });
}

const failed = await runAll('proxies', cases, filter);
rmSync(here, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
