// sw.js - the page's service worker. It answers for the page's own files and for nothing else, also
// where the folder has other pages: from the network, and from what it kept if there is none. With
// "?isolate" in its address it adds COOP and COEP to the page and its workers, for hosts that cannot
// set headers: the browser then isolates the page and gives it SharedArrayBuffer, which threads need.
const NAME = 'bitnet-page';
const PAGE = [
    './',
    'manifest.json',
    'style.css',
    'page.js',
    'app.js',
    'chats.js',
    'conversation.js',
    'crosscheck.js',
    'dom.js',
    'failures.js',
    'format.js',
    'isolation.js',
    'key.js',
    'library.js',
    'markdown.js',
    'markdown-it.js',
    'measure.js',
    'models.js',
    'offers.js',
    'passages.js',
    'search.js',
    'server.js',
    'settings.js',
    'storage.js',
    'texts.js',
    'bitnet.js',
    'check.js',
    'crosscheck.txt',
    'tiny.gguf',
];
// What a build may lack.
const MODULES = ['simd', 'threads', 'relaxed'].flatMap(v => [
    `engine-${v}.js`,
    `crosscheck-${v}.js`,
    `crosscheck-${v}.wasm`
]);
const address = file => new URL(file, location.href).href;
const own = new Set([...PAGE, ...MODULES].map(address)),
    modules = new Set(MODULES.map(address)),
    index = address('index.html');
const isolating = new URL(location.href).search === '?isolate';

const open = () => caches.open(NAME).catch(() => null); // null: this browser keeps nothing

// The open page is left alone until it is loaded again: Firefox (140) hangs where a worker claims an
// isolated one.
addEventListener('install', () => skipWaiting());

function isolate(response) {
    if (!isolating || response.type === 'opaqueredirect') return response;
    const headers = new Headers(response.headers);
    headers.set('Cross-Origin-Opener-Policy', 'same-origin');
    headers.set('Cross-Origin-Embedder-Policy', 'require-corp');
    const { status, statusText } = response;
    return new Response(response.body, { status, statusText, headers });
}

async function answer(event, key) {
    const store = await open();
    let response;
    try {
        response = await fetch(event.request);
        if (store && response.ok && !response.redirected)
            event.waitUntil(store.put(key, response.clone()).catch(() => {}));
    } catch (e) {
        response = await store?.match(key);
        // Without a network, what the build lacks is absent as with one.
        if (!response && modules.has(key) && (await store?.match(address('bitnet.js'))))
            response = new Response(null, { status: 404 });
        if (!response) throw e;
    }
    return ['document', 'iframe', 'worker'].includes(event.request.destination)
        ? isolate(response)
        : response;
}

addEventListener('fetch', event => {
    const url = new URL(event.request.url);
    url.search = url.hash = '';
    const key = url.href === index ? address('./') : url.href;
    if (event.request.method !== 'GET' || event.request.headers.has('Range') || !own.has(key))
        return;
    event.respondWith(answer(event, key));
});

// The same response, as if it had come from the address that was asked: a browser opens no page from a
// response that was redirected. examples/server redirects its first page.
const direct = ({ body, headers, status, statusText }) =>
    new Response(body, { headers, status, statusText });

// Keeps everything. Returns whether it could; a missing module is no failure.
async function keep() {
    const store = await open();
    if (!store) return false;
    const one = async (file, needed) => {
        if (file === 'tiny.gguf' && (await store.match(address(file)))) return;
        const response = await fetch(address(file), { cache: 'no-cache' });
        if (response.ok) await store.put(address(file), direct(response));
        else if (needed) throw new Error(`${file}: ${response.status}`);
    };
    for (const file of PAGE) await one(file, true);
    for (const file of MODULES) await one(file, false);
    return true;
}

addEventListener('message', event => {
    if (event.data !== 'keep') return;
    event.waitUntil(
        keep()
            .catch(() => false)
            .then(kept => event.ports[0].postMessage(kept))
    );
});
