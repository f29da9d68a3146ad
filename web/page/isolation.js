// isolation.js - the service worker (sw.js): it keeps the page for visits without a network, and gives
// the page threads if the host does not send the headers that they need.
import { notice } from './app.js';
import { $ } from './dom.js';
import { session } from './storage.js';

const here = path => new URL(path, location.href).href;
const PLAIN = here('sw.js'),
    ISOLATING = here('sw.js?isolate');

// The page's own registration, not one of another page of the same host. Throws without any.
async function registration() {
    const there = await navigator.serviceWorker.getRegistration();
    return there?.scope === here('./') ? there : null;
}

// Resolves when this worker is the one that answers. One that waits for open pages to be closed is told
// not to.
async function settled(worker) {
    while (!['activated', 'redundant'].includes(worker.state)) {
        if (worker.state === 'installed') worker.postMessage('use');
        await new Promise(resolve =>
            worker.addEventListener('statechange', resolve, { once: true })
        );
    }
    if (worker.state === 'redundant') throw new Error('it was replaced');
    return worker;
}

async function use(url) {
    const { installing, waiting, active } = await navigator.serviceWorker.register(url);
    return settled(installing ?? waiting ?? active);
}

const reload = () => {
    location.reload();
    return new Promise(() => {}); // the page is left
};

// Resolves when it is settled whether the page is isolated.
export async function isolate() {
    const wanted = document.documentElement.dataset.isolate;
    let can = wanted !== 'off',
        isolating = false;
    try {
        isolating = (await registration())?.active?.scriptURL === ISOLATING;
    } catch {
        can = false;
    }
    if (crossOriginIsolated) {
        session.set('isolating', null);
        if (!isolating) return;
        $('isolation').hidden = false;
        $('isolation-text').textContent =
            'The host sends no COOP and COEP headers. A service worker (sw.js) adds ' +
            'them, so that the page has threads.';
        $('isolation-switch').textContent = 'Do without them';
        $('isolation-switch').onclick = async () => {
            await use(PLAIN);
            reload();
        };
        return;
    }
    const tried = session.get('isolating');
    const on = async () => {
        session.set('isolating', '1');
        try {
            await use(ISOLATING);
            await reload();
        } catch (e) {
            notice(`One thread. The service worker cannot be started: ${e.message}`);
        }
    };
    if (can && wanted === 'auto' && !tried) return on();
    const why = 'One thread: the page is not cross-origin isolated (no COOP and COEP headers).';
    if (!can) notice(why);
    else if (tried && isolating) notice(`${why} The service worker did not help.`, 'Try again', on);
    else notice(why, 'Use threads', on);
}

// Says when a newer version of the page has been fetched: it is used when the page is loaded again.
function watchVersions(there) {
    let asked = false;
    const tell = text =>
        notice(text, 'Load it', async () => {
            asked = true;
            if (there.waiting) await settled(there.waiting);
            await reload();
        });
    const offer = () => {
        if (there.waiting && there.active) tell('A new version of this page is ready.');
    };
    there.onupdatefound = () => {
        const worker = there.installing;
        worker.onstatechange = () => worker.state === 'installed' && offer();
    };
    navigator.serviceWorker.oncontrollerchange = () => {
        if (!asked) tell('Another tab has begun to use a new version of this page.');
    };
    offer();
    there.update().catch(() => {}); // there is no network, or the update was cut off
}

// Keeps the page's files, so that the next visit needs no network.
export async function keepPage() {
    let state = 'no';
    try {
        const worker = (await registration())?.active ?? (await use(PLAIN));
        const channel = new MessageChannel();
        const kept = new Promise(resolve => {
            channel.port1.onmessage = e => resolve(e.data);
        });
        worker.postMessage('keep', [channel.port2]);
        if (await kept) state = 'yes';
        watchVersions(await registration());
    } catch {
        /* no service workers here, or no room */
    }
    document.body.dataset.offline = state;
    $('offline').textContent =
        state === 'yes'
            ? 'The page itself is kept too: it opens without a network.'
            : 'The page itself is not kept: it needs a network to open.';
}
