// serve.mjs - a small static server with Range, for ./build.sh serve and the browser tests.
//
//     node tests/web/serve.mjs FOLDER [PORT]      on localhost, with COOP/COEP headers, no caching
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { pathToFileURL } from 'node:url';

const TYPES = {
    '.html': 'text/html; charset=utf-8',
    '.js': 'text/javascript; charset=utf-8',
    '.mjs': 'text/javascript; charset=utf-8',
    '.css': 'text/css; charset=utf-8',
    '.txt': 'text/plain; charset=utf-8',
    '.json': 'application/json',
    '.wasm': 'application/wasm',
    '.ts': 'text/plain; charset=utf-8',
    '.gguf': 'application/octet-stream',
};
export const ISOLATED = {
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Embedder-Policy': 'require-corp',
    'Cross-Origin-Resource-Policy': 'same-origin',
};

// sendFile: the whole file or the range that is asked for.
export function sendFile(req, res, path, headers) {
    let info = null;
    try {
        info = statSync(path);
    } catch {
        /* not there */
    }
    if (!info?.isFile()) {
        res.writeHead(404, { 'Content-Type': 'text/plain', ...headers });
        return res.end('not found\n');
    }
    const etag = `"${info.size.toString(36)}-${Math.floor(info.mtimeMs).toString(36)}"`;
    const all = {
        'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream',
        ETag: etag,
        'Accept-Ranges': 'bytes',
        'Cache-Control': 'no-store',
        ...headers,
    };
    const range = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? '');
    const wanted = range && (req.headers['if-range'] ?? etag) === etag;
    const from = wanted ? Number(range[1]) : 0;
    const to = wanted && range[2] ? Math.min(Number(range[2]), info.size - 1) : info.size - 1;
    if (wanted && from > to) {
        res.writeHead(416, { 'Content-Range': `bytes */${info.size}`, ...headers });
        return res.end();
    }
    all['Content-Length'] = to - from + 1;
    if (wanted) all['Content-Range'] = `bytes ${from}-${to}/${info.size}`;
    res.writeHead(wanted ? 206 : 200, all);
    if (req.method === 'HEAD' || !info.size) return res.end();
    createReadStream(path, { start: from, end: to })
        .on('error', () => res.destroy())
        .pipe(res);
}

// serve: resolves to { server, port, url }. hook(req, res, path) answers a request itself if it
// returns true.
export function serve({ root, port = 0, headers = ISOLATED, hook }) {
    const server = createServer((req, res) => {
        let path = '';
        try {
            path = decodeURIComponent(new URL(req.url, 'http://localhost').pathname);
        } catch {
            path = '\0';
        }
        if (hook?.(req, res, path)) return;
        const file = normalize(join(root, path.endsWith('/') ? `${path}index.html` : path));
        if (path.includes('\0') || !file.startsWith(normalize(root) + sep)) {
            res.writeHead(400, headers);
            return res.end();
        }
        if (req.method === 'GET' || req.method === 'HEAD') return sendFile(req, res, file, headers);
        res.writeHead(405, headers);
        res.end();
    });
    return new Promise((resolve, reject) => {
        server.on('error', reject);
        server.listen(port, '127.0.0.1', () => {
            resolve({
                server,
                port: server.address().port,
                url: `http://localhost:${server.address().port}/`,
            });
        });
    });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
    const [root = '.', port = '8080'] = process.argv.slice(2);
    serve({ root: normalize(root).replace(/[/\\]$/, ''), port: Number(port) }).then(
        ({ url }) => console.log(`The page is at ${url} (Ctrl-C ends)`),
        e => {
            console.error(`serve: ${e.message}`);
            process.exitCode = 1;
        }
    );
}
