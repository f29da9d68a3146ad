// sw.js - a service worker for hosts that cannot set headers. It adds COOP and COEP to the page and
// its workers, so that the browser isolates the page and gives it SharedArrayBuffer, which threads
// need. It stores nothing and changes no other requests. data-isolate in index.html and a button on
// the page decide whether it is used.
addEventListener('install', () => skipWaiting());
addEventListener('activate', e => e.waitUntil(clients.claim()));

addEventListener('fetch', e => {
    const { url, destination } = e.request;
    if (new URL(url).origin !== location.origin) return;
    if (!['document', 'iframe', 'worker'].includes(destination)) return;
    e.respondWith(
        fetch(e.request).then(response => {
            if (response.type === 'opaqueredirect') return response;
            const headers = new Headers(response.headers);
            headers.set('Cross-Origin-Opener-Policy', 'same-origin');
            headers.set('Cross-Origin-Embedder-Policy', 'require-corp');
            return new Response(response.body, {
                status: response.status,
                statusText: response.statusText,
                headers,
            });
        })
    );
});
