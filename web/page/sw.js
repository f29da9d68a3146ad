// sw.js - the page's service worker. It keeps one version of the page, whole or not at all, and answers
// from that: a network that is slow, stuck or broken then does no harm. A newer version is fetched
// beside it and used when all of it is there and no open page needs the former, or when the user asks.
//
// It answers for the page's own files and for nothing else, also where the folder has other pages. With
// "?isolate" in its address it adds COOP and COEP to the page and its workers, for hosts that cannot
// set headers: the browser then isolates the page and gives it SharedArrayBuffer, which threads need.

// What the page consists of, each with its SHA-256: another version is another sw.js, by which the
// browser finds it. web/list.mjs writes this line. As it stands here nothing is kept.
const FILES = {};
const NAME = 'bitnet-page';
const files = Object.keys(FILES);
const OPTIONAL = /^(engine|crosscheck)-\w+\.(js|wasm)$/; // a build may lack some
const address = file => new URL(file, location.href).href;
// A file is kept under its address and its hash, so a newer version fetches only what has changed.
const keyOf = file => address(`${file}?${encodeURIComponent(FILES[file])}`);
const isolating = new URL(location.href).search === '?isolate';

const open = () => caches.open(NAME).catch(() => null); // null: this browser keeps nothing

// ---- keeping ----

// As if it had come from the address that was asked: a browser opens no page from a response that was
// redirected. examples/server redirects its first page; Location says where to.
function direct({ body, headers: all, redirected, url }) {
    const headers = new Headers(all);
    headers.delete('Vary');
    if (redirected) headers.set('Location', url);
    return new Response(body, { headers });
}

// Keeps what is missing of this version. Returns whether all is there; throws if a file did not come,
// or another one came in its place.
async function keep() {
    const store = await open();
    if (!store || !files.length) return false;
    for (const file of files) {
        if (await store.match(keyOf(file))) continue;
        const integrity = FILES[file],
            response = await fetch(address(file), { cache: 'no-cache', integrity });
        if (!response.ok) throw new Error(`${file}: ${response.status}`);
        await store.put(keyOf(file), direct(response));
    }
    whole = null;
    return true;
}

async function isWhole() {
    const kept = files.length ? ((await (await open())?.keys()) ?? []) : [],
        there = new Set(kept.map(request => request.url));
    return files.length > 0 && files.every(file => there.has(keyOf(file)));
}
let whole = null; // whether this version is, as far as that is known: a promise

// An update that cannot be kept is no update. The first worker is of use without that, too.
async function install() {
    try {
        if (!(await keep())) await skipWaiting();
    } catch (e) {
        if (registration.active) throw e;
    }
}
addEventListener('install', event => event.waitUntil(install()));

// Open pages are left alone until they are loaded again: Firefox (140) hangs where a worker claims an
// isolated one.
async function forgetOthers() {
    const store = await open(),
        mine = new Set(files.map(keyOf));
    for (const request of (await store?.keys()) ?? [])
        if (!mine.has(request.url)) await store.delete(request);
}
addEventListener('activate', event => event.waitUntil(forgetOthers()));

addEventListener('message', event => {
    if (event.data === 'use') skipWaiting();
    if (event.data !== 'keep') return;
    event.waitUntil(
        keep()
            .catch(() => false)
            .then(kept => event.ports[0].postMessage(kept))
    );
});

// ---- answering ----

function isolate(response) {
    if (!isolating || response.type === 'opaqueredirect') return response;
    const headers = new Headers(response.headers);
    headers.set('Cross-Origin-Opener-Policy', 'same-origin');
    headers.set('Cross-Origin-Embedder-Policy', 'require-corp');
    const { status, statusText } = response;
    return new Response(response.body, { status, statusText, headers });
}

// Of a version that is whole. undefined: ask the network.
async function kept(file, { url }) {
    if (!(await (whole ??= isWhole()))) return undefined;
    if (!FILES[file]) return new Response(null, { status: 404 });
    const response = await (await open())?.match(keyOf(file));
    if (!response) whole = null;
    const place = url === address('./') && response?.headers.get('Location');
    return place ? Response.redirect(place) : response;
}

async function answer(request, file) {
    const response = (await kept(file, request)) ?? (await fetch(request));
    return ['document', 'iframe', 'worker'].includes(request.destination)
        ? isolate(response)
        : response;
}

addEventListener('fetch', event => {
    const { method, headers, url, destination } = event.request,
        [place] = url.split(/[?#]/),
        start = address('./');
    if (method !== 'GET' || headers.has('Range') || !place.startsWith(start)) return;
    const name = place.slice(start.length),
        file = name === '' || name === 'index.html' ? './' : name;
    const own = files.length ? FILES[file] || OPTIONAL.test(file) : destination === 'worker';
    if (own || file === './') event.respondWith(answer(event.request, file));
});
