// sw.js - a service worker for hosts that cannot set headers: it adds COOP and COEP to the page and
// its workers, so that the browser isolates the page and gives it SharedArrayBuffer, hence threads.
// It keeps nothing and looks at nothing else. Whether it is used: data-isolate in index.html, and a
// button there.
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
