// key.js - the key of a server that wants one. The page asks for it below the conversation and keeps
// it for this tab: in sessionStorage, or in memory if the browser denies that. It is sent in a header,
// so it stands in no address.
import { toEnd } from './app.js';
import { BitNetError } from './bitnet.js';
import { $, announce, composing } from './dom.js';
import { session } from './storage.js';

let key = session.get('key') ?? '',
    asked = null; // what ends the question that is open: { typed, cancelled }

/** The header that has the key. A header consists of bytes, so the key is sent in UTF-8. */
export function authorization() {
    const bytes = new TextEncoder().encode(key);
    return key ? { Authorization: `Bearer ${String.fromCharCode(...bytes)}` } : {};
}

function setBusy(busy) {
    $('key-form').ariaBusy = String(busy);
    $('key-send').disabled = busy;
    $('key-send').textContent = busy ? 'Checking…' : 'Send the key';
}

function tellProblem(text) {
    $('key-problem').textContent = text;
    $('key-problem').hidden = !text;
    if (text) $('key').setAttribute('aria-invalid', 'true');
    else $('key').removeAttribute('aria-invalid');
    $('key').setAttribute('aria-describedby', text ? 'key-problem key-about' : 'key-about');
}

let back = null; // what had the focus before

/** Asks for the key after the server refused the request. Resolves when another one can be tried. The
 * question stays until keyIsSettled(), or until it is cancelled: then this throws. */
export function askKey(signal) {
    asked?.cancelled();
    tellProblem(key ? 'The server refuses this key. Check it, and send it again.' : '');
    key = '';
    session.set('key', null);
    setBusy(false);
    if ($('key-form').hidden) {
        back = document.activeElement;
        $('key').value = '';
        $('key-form').hidden = false;
        $('loading').hidden = true; // nothing happens until the user goes on
    }
    toEnd();
    $('key').focus({ preventScroll: true });
    $('key').select();
    return new Promise((resolve, reject) => {
        const end = (f, what) => {
            asked = null;
            signal?.removeEventListener('abort', aborted);
            f(what);
        };
        const refuse = e => {
            keyIsSettled();
            end(reject, e);
        };
        const aborted = () => refuse(signal.reason);
        signal?.addEventListener('abort', aborted);
        asked = {
            typed: () => end(resolve),
            cancelled: () => refuse(new BitNetError('KEY', 'no key was sent', 401)),
        };
        if (signal?.aborted) aborted();
    });
}

/** The request has ended in another way than by a wrong key: `accepted` says whether the key was right. */
export function keyIsSettled(accepted = false) {
    if (accepted && key) session.set('key', key);
    if ($('key-form').hidden) return;
    const focused = $('key-form').contains(document.activeElement);
    $('key-form').hidden = true;
    $('key').value = '';
    if (accepted) announce('The server accepts the key.');
    if (focused) back?.focus();
}

$('key-form').onsubmit = e => {
    e.preventDefault();
    const typed = $('key').value.trim();
    if (!asked || !typed) return;
    key = typed;
    tellProblem('');
    setBusy(true);
    asked.typed();
};
$('key-cancel').onclick = () => asked?.cancelled();
$('key-form').onkeydown = e => {
    if (e.key !== 'Escape' || composing(e)) return;
    e.stopPropagation();
    asked?.cancelled();
};
