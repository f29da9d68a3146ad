// page.js - the page: opens models, shows their text and figures. All work is done in workers
// (bitnet.js starts one, check.js is one). Text is added to the document once per frame.
import { BitNet, cache } from './bitnet.js';

const $ = id => document.getElementById(id);
const TINY = new URL('tiny.gguf', location.href).href;
const OFFICIAL =
    'https://huggingface.co/microsoft/bitnet-b1.58-2B-4T-gguf/resolve/main/ggml-model-i2_s.gguf';
const IDEAS = {
    chat: [
        'Tell me a story about a dragon.',
        'What is the capital of Italy?',
        'Who are you?',
        'What is two plus three?',
    ],
    text: ['Once upon a time', 'The capital of France is', 'The history of computers'],
};
const SMALL_FILE = 64e6; // a model of this size stays open while the next one is loaded

let model = null;
let modelName = '';
let writing = null; // AbortController of the current generation
let loading = null; // AbortController of the current load
let messages = []; // the chat, without its system message

const mode = () => document.querySelector('input[name=mode]:checked').value;

// ---- formatting numbers ----

const digits = (x, n) =>
    x.toLocaleString('en', { maximumFractionDigits: n, minimumFractionDigits: n });

function bytes(n) {
    return n < 1e6
        ? `${digits(n / 1e3, 0)} KB`
        : n < 1e9
          ? `${digits(n / 1e6, n < 1e7 ? 1 : 0)} MB`
          : `${digits(n / 1e9, 2)} GB`;
}

function speed(tokens, seconds) {
    if (!tokens || !(seconds > 0)) return '–';
    const rate = tokens / seconds;
    return `${digits(rate, rate < 100 ? 1 : 0)} tok/s`;
}

function duration(s) {
    return s < 90
        ? `${Math.ceil(s)} s`
        : s < 5400
          ? `${Math.round(s / 60)} min`
          : `${digits(s / 3600, 1)} h`;
}

const count = n =>
    n < 1e6
        ? digits(n, 0)
        : n < 1e9
          ? `${digits(n / 1e6, 1)} million`
          : `${digits(n / 1e9, 1)} billion`;

// once(f) returns a function that calls f in the next frame, once, however often it is called before.
// A page in the background has no frames, but nobody looks at it.
function once(f) {
    let asked = 0;
    return () => {
        asked ||= requestAnimationFrame(() => {
            asked = 0;
            f();
        });
    };
}

// ---- errors: what happened, and what helps ----

const FAILURES = {
    ERR_NO_SIMD: [
        'This browser has no WebAssembly SIMD',
        'Chrome 91, Firefox 89, Safari 16.4 and later have it. ' +
            'Some browsers switch it off in a hardened or “lockdown” mode.',
    ],
    ERR_MEMORY: [
        'Out of memory',
        'The model needs more than this browser gives to a page. Close other tabs, or ' +
            'choose a smaller context under “Load options”.',
    ],
    ERR_FORMAT: [
        'This is not a readable GGUF file',
        'It must be a GGUF file, version 2 or 3.',
    ],
    ERR_TRUNCATED: ['The file ends too early', 'The download or the copy is not complete.'],
    ERR_UNSUPPORTED: [
        'This model is not supported',
        'Use a BitNet b1.58 model with I2_S weights, such as the official file ' +
            'of BitNet b1.58 2B-4T.',
    ],
    ERR_LIMIT: ['The model is too large for this page', 'WebAssembly has at most 4 GB of memory.'],
    ERR_FULL: [
        'The context is full',
        '“Clear” starts again. You can choose a larger context under “Load options”.',
    ],
    ERR_IO: ['The file cannot be read', 'It may have been moved or changed since you chose it.'],
    ERR_CHECKSUM: [
        'The file has the wrong checksum',
        'It is not the file that was asked for, or it is damaged. It was not kept.',
    ],
    ERR_QUOTA: [
        'No room for the model in this browser',
        'Delete models under “Kept in this browser”, or make room ' +
            'on the disk. A file opened from the disk needs no room.',
    ],
    ERR_CORS_OR_NETWORK: [
        'The URL cannot be reached from this page',
        'Either there is no connection, or the server does not allow other sites ' +
            'to read the file (CORS). Download it, then open it from the disk.',
    ],
    ERR_NETWORK: [
        'The download was interrupted',
        'Open the URL again to resume it.',
    ],
    ERR_BUSY: ['The model is busy', 'It is still generating.'],
    ERR_SELFTEST: [
        'This browser computes wrong results',
        'The kernels failed their self-test. The cross-check shows where.',
    ],
};
const HTTP = {
    401: 'The server asks for a login.',
    403: 'The server refuses access.',
    404: 'There is no such file. Check the URL.',
    410: 'The file is gone.',
    429: 'Too many requests. Try again later.',
};

function showError(e) {
    let [title, text] = FAILURES[e.code] ?? ['Something went wrong', ''];
    if (e.code === 'ERR_HTTP' || (e.status && !FAILURES[e.code])) {
        title = e.status ? `The server answered ${e.status}` : 'The server refused';
        text =
            HTTP[e.status] ?? (e.status >= 500 ? 'The server failed. Try again later.' : '');
    }
    if (!e.code && e instanceof RangeError && /memory|allocation/i.test(e.message)) {
        [title, text] = FAILURES.ERR_MEMORY;
    }
    $('error-title').textContent = title;
    $('error-text').textContent = text;
    $('error-code').textContent = [e.code, e.message].filter(Boolean).join(': ');
    $('error').hidden = false;
    document.body.classList.remove('panel-open');
    $('panel-toggle').ariaExpanded = 'false';
}

const hideError = () => {
    $('error').hidden = true;
};
$('error-close').onclick = () => {
    hideError();
    $('prompt').focus();
};

// ---- a model ----

const number = id =>
    $(id).value === '' || !$(id).checkValidity() ? undefined : Number($(id).value);

const progress = { now: null, shown: once(showProgress) };

function showProgress() {
    const p = progress.now;
    if (!p || $('loading').hidden) return;
    const bar = $('loading-bar');
    if (p.total > 0) bar.value = Math.min(1, p.loaded / p.total);
    else bar.removeAttribute('value');
    const what =
        {
            download: 'Downloading',
            read: p.fromCache ? 'Reading from this browser’s cache:' : 'Reading',
            load: 'Preparing',
        }[p.phase] ?? 'Opening';
    const parts = [`${what} ${modelName}`];
    if (p.loaded > 0 && p.phase !== 'load') {
        parts.push(p.total > 0 ? `${bytes(p.loaded)} of ${bytes(p.total)}` : bytes(p.loaded));
    }
    if (p.phase === 'download') {
        if (p.bytesPerSecond > 0) parts.push(`${digits(p.bytesPerSecond / 1e6, 1)} MB/s`);
        if (p.secondsLeft > 0 && Number.isFinite(p.secondsLeft))
            parts.push(`${duration(p.secondsLeft)} left`);
        if (p.cache === 'memory' || p.cache === 'none') parts.push('not kept in this browser');
    }
    $('loading-text').textContent = parts.join(' · ');
}

function nameOf(source) {
    if (source instanceof Blob) return source.name ?? 'a file';
    const path = new URL(source, location.href).pathname;
    return decodeURIComponent(path.slice(path.lastIndexOf('/') + 1)) || source;
}

// A URL may end in #sha256=HEX; the file must then have this checksum.
function addressOf(source) {
    const [url, sha256] = typeof source === 'string' ? source.split('#sha256=') : [source];
    return { url, sha256 };
}

let last = TINY; // what “Load again” loads

// Returns whether the model was opened. The previous one stays open until then if both fit in memory.
async function open(source) {
    loading?.abort();
    writing?.abort();
    const mine = (loading = new AbortController()),
        before = modelName;
    hideError();
    modelName = nameOf(source);
    progress.now = { phase: '', loaded: 0, total: 0 };
    $('loading').hidden = false;
    $('loading-text').textContent = `Opening ${modelName}`;
    $('loading-bar').removeAttribute('value');
    if (model?.info.fileBytes > SMALL_FILE) await close();
    ready();
    try {
        const { url, sha256 } = addressOf(source);
        const next = await BitNet.load(url, {
            sha256,
            context: number('context'),
            threads: number('threads'),
            variant: $('variant').value || undefined,
            cache: source === TINY ? 'none' : 'auto',
            signal: mine.signal,
            onProgress: p => {
                if (mine === loading) {
                    progress.now = p;
                    progress.shown();
                }
            },
        });
        if (mine !== loading) {
            next.free();
            return false;
        }
        await close();
        model = next;
        last = source;
        if (typeof source === 'string') localStorage.setItem('bitnet.model', source);
        clear();
        return true;
    } catch (e) {
        if (mine !== loading) return false;
        modelName = model ? before : '';
        if (e.name !== 'AbortError') showError(e);
        return false;
    } finally {
        if (mine === loading) {
            loading = null;
            $('loading').hidden = true;
            showModel();
            ready();
            listCache();
        }
    }
}

async function close() {
    const old = model;
    model = null;
    if (old) await Promise.resolve(old.free()).catch(() => {});
}

function showModel() {
    const i = model?.info;
    $('model-name').textContent = model ? modelName : 'no model open';
    $('model-about').textContent = i
        ? `${modelName}: ${count(i.parameters)} parameters, ${i.layers} layers, ` +
          `${digits(i.vocabulary, 0)} tokens; ${bytes(i.fileBytes)}, context ${i.context}` +
          `${i.contextTrained > i.context ? ` of ${i.contextTrained}` : ''}.`
        : 'No model is open.';
    const notes = [...(i?.notes ?? [])];
    if (i && typeof last === 'string' && last !== TINY && !['opfs', 'cache'].includes(i.cache)) {
        notes.push('The model is not kept in this browser. The next visit downloads it again.');
    }
    $('model-notes').replaceChildren(
        ...notes.map(text => {
            const li = document.createElement('li');
            li.textContent = text;
            return li;
        })
    );
    $('f-memory').textContent = i?.memoryBytes ? bytes(i.memoryBytes) : '–';
    $('f-threads').textContent = i?.threads ?? '–';
    $('f-kernel').textContent = i?.kernels ?? '–';
    $('f-variant').textContent = i?.variant ?? '–';
    if (!i) $('f-prefill').textContent = $('f-decode').textContent = '–';
}

// Shows and enables the buttons that can be used now.
function ready() {
    const can = model && !writing && !loading;
    $('send').disabled = !can;
    $('send').hidden = !!writing;
    $('stop').hidden = !writing;
    for (const b of $('ideas').children) b.disabled = !can;
    document.body.dataset.state = loading
        ? 'loading'
        : writing
          ? 'writing'
          : model
            ? 'ready'
            : 'empty';
}

$('loading-cancel').onclick = () => loading?.abort();
$('url-form').onsubmit = e => {
    e.preventDefault();
    choose($('url').value.trim());
};
$('pick').onclick = () => $('file').click();
$('file').onchange = () => {
    if ($('file').files[0]) choose($('file').files[0]);
    $('file').value = '';
};
$('use-tiny').onclick = () => choose(TINY);
$('use-official').onclick = () => {
    $('url').value = OFFICIAL;
    $('url-form').querySelector('button').focus();
};
$('reload-model').onclick = () => choose(last);

function choose(source) {
    togglePanel(false);
    return open(source);
}

// ---- drag and drop ----

let dragDepth = 0; // dragenter fires for every element under the pointer
const carriesFile = e => [...(e.dataTransfer?.types ?? [])].includes('Files');
addEventListener('dragenter', e => {
    if (carriesFile(e)) {
        e.preventDefault();
        dragDepth++;
        $('drop').hidden = false;
    }
});
addEventListener('dragover', e => {
    if (carriesFile(e)) e.preventDefault();
});
addEventListener('dragleave', e => {
    if (carriesFile(e) && --dragDepth <= 0) {
        dragDepth = 0;
        $('drop').hidden = true;
    }
});
addEventListener('drop', e => {
    if (!carriesFile(e)) return;
    e.preventDefault();
    dragDepth = 0;
    $('drop').hidden = true;
    if (e.dataTransfer.files[0]) choose(e.dataTransfer.files[0]);
});

// ---- text ----

const nearEnd = () =>
    $('scroll').scrollHeight - $('scroll').scrollTop - $('scroll').clientHeight < 80;
const toEnd = () => {
    $('scroll').scrollTop = $('scroll').scrollHeight;
};

function addTurn(who, label, text) {
    const turn = document.createElement('div'),
        name = document.createElement('span'),
        body = document.createElement('span');
    turn.className = `turn ${who}`;
    name.className = 'hidden';
    name.textContent = `${label}: `;
    body.className = 'body';
    body.textContent = text;
    turn.append(name, body);
    $('log').append(turn);
    return turn;
}

// Collects text and appends it once per frame. Long text goes into several nodes, so that the work of
// a frame does not grow with the text before it.
function writer(body) {
    let waiting = '',
        node = null;
    const flush = () => {
        if (!waiting) return;
        const follow = nearEnd();
        if (!node || node.length > 2000) body.append((node = document.createTextNode('')));
        node.appendData(waiting);
        waiting = '';
        if (follow) toEnd();
    };
    const soon = once(flush);
    return {
        add: text => {
            waiting += text;
            soon();
        },
        flush,
    };
}

const SAMPLER = ['temperature', 'topK', 'topP', 'minP', 'repeatPenalty', 'seed', 'maxTokens'];

function samplerOptions() {
    const o = {};
    for (const id of SAMPLER) {
        if (number(id) !== undefined) o[id] = number(id);
    }
    return o;
}

const REASONS = {
    length: 'Stopped at the token limit.',
    abort: 'Stopped.',
    full: 'The context is full.',
};

async function send() {
    const text = $('prompt').value,
        chat = mode() === 'chat';
    if (!model || writing || loading || !text.trim()) return;
    const mine = (writing = new AbortController()),
        m = model,
        fromButton = document.activeElement === $('send');
    hideError();
    $('welcome').hidden = true;
    $('prompt').value = '';
    fit();
    ready();
    if (fromButton) $('stop').focus();
    $('log').ariaBusy = 'true';
    let turn,
        reply = '',
        tokens = 0,
        first = 0;
    if (chat) {
        addTurn('user', 'You', text);
        messages.push({ role: 'user', content: text });
        turn = addTurn('reply', 'Reply', '');
    } else {
        turn = addTurn('reply', 'Text', '');
        const given = document.createElement('span');
        given.className = 'given';
        given.textContent = text;
        turn.querySelector('.body').append(given);
    }
    turn.classList.add('writing');
    toEnd();
    const out = writer(turn.querySelector('.body')),
        started = performance.now();
    const live = setInterval(() => {
        if (tokens > 1)
            $('f-decode').textContent = speed(tokens - 1, (performance.now() - first) / 1e3);
    }, 250);
    $('f-prefill').textContent = $('f-decode').textContent = '…';
    let reason = 'end';
    try {
        const options = {
            ...samplerOptions(),
            signal: mine.signal,
            onToken: () => {
                if (!tokens++) first = performance.now();
            },
        };
        const system = $('system').value.trim();
        const stream = chat
            ? m.chat(
                  system ? [{ role: 'system', content: system }, ...messages] : messages,
                  options
              )
            : m.generate(text, options);
        for await (const piece of stream) {
            reply += piece;
            out.add(piece);
        }
        reason = m.stats?.reason ?? 'end';
    } catch (e) {
        reason = 'abort';
        if (e.name !== 'AbortError') showError(e);
    }
    clearInterval(live);
    out.flush();
    turn.classList.remove('writing');
    $('log').ariaBusy = 'false';
    if (chat && reply && turn.isConnected) messages.push({ role: 'assistant', content: reply });
    if (mine === writing) writing = null;
    showStats(
        reason === 'abort' ? null : m.stats,
        tokens,
        first - started,
        performance.now() - first
    );
    if (REASONS[reason] && turn.isConnected) {
        const note = document.createElement('span');
        note.className = 'note';
        note.textContent = REASONS[reason];
        const follow = nearEnd();
        turn.append(note);
        if (follow) toEnd();
    }
    $('f-memory').textContent = bytes(m.info.memoryBytes);
    const focused = document.activeElement === $('stop');
    ready();
    if (focused) $('prompt').focus();
    document.body.dataset.runs = Number(document.body.dataset.runs ?? 0) + 1;
}

// The library's figures, or after an abort those of the page's own clock.
function showStats(s, tokens, prefill, decode) {
    if (s) {
        $('f-prefill').textContent = speed(
            s.promptTokens,
            s.prefillSeconds ?? s.promptTokens / s.prefillPerSecond
        );
        $('f-decode').textContent = speed(
            s.tokens,
            s.decodeSeconds ?? s.tokens / s.decodePerSecond
        );
    } else {
        $('f-prefill').textContent = '–';
        $('f-decode').textContent = tokens > 1 ? speed(tokens - 1, decode / 1e3) : '–';
    }
}

const stop = () => writing?.abort();

function clear() {
    stop();
    messages = [];
    $('log').replaceChildren();
    $('welcome').hidden = false;
    hideError();
}

function fit() {
    // make the prompt as high as its text
    $('prompt').style.height = 'auto';
    $('prompt').style.height = `${$('prompt').scrollHeight}px`;
}

$('form').onsubmit = e => {
    e.preventDefault();
    send();
};
$('stop').onclick = stop;
$('new').onclick = () => {
    clear();
    $('prompt').focus();
};
$('prompt').oninput = fit;
$('prompt').onkeydown = e => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        send();
    }
};
addEventListener('keydown', e => {
    if (e.key !== 'Escape') return;
    if (writing) stop();
    else if (document.body.classList.contains('panel-open')) {
        togglePanel(false);
        $('panel-toggle').focus();
    } else hideError();
});

function setMode() {
    const chat = mode() === 'chat';
    $('prompt').placeholder = chat ? 'Say something' : 'How the text begins';
    $('system-row').hidden = !chat;
    $('ideas').replaceChildren(
        ...IDEAS[mode()].map(text => {
            const b = document.createElement('button');
            b.type = 'button';
            b.textContent = text;
            b.onclick = () => {
                $('prompt').value = text;
                send();
            };
            return b;
        })
    );
    ready();
}
for (const input of document.querySelectorAll('input[name=mode]')) {
    input.onchange = () => {
        clear();
        setMode();
    };
}

// ---- settings ----

const KEPT = [...SAMPLER, 'system', 'context', 'threads', 'variant'];
const DEFAULTS = Object.fromEntries(KEPT.map(id => [id, $(id).value]));

function restore() {
    let kept = {};
    try {
        kept = JSON.parse(localStorage.getItem('bitnet.settings')) ?? {};
    } catch {
        /* not ours */
    }
    for (const id of KEPT) if (typeof kept[id] === 'string') $(id).value = kept[id];
}

function keep() {
    localStorage.setItem(
        'bitnet.settings',
        JSON.stringify(Object.fromEntries(KEPT.map(id => [id, $(id).value])))
    );
}

for (const id of KEPT) {
    $(id).onchange = () => {
        $(id).setAttribute('aria-invalid', String(!$(id).checkValidity()));
        keep();
    };
}
$('reset').onclick = () => {
    for (const id of KEPT.slice(0, 8)) $(id).value = DEFAULTS[id];
    keep();
};

function togglePanel(on = !document.body.classList.contains('panel-open')) {
    document.body.classList.toggle('panel-open', on);
    $('panel-toggle').ariaExpanded = String(on);
    $('panel-toggle').textContent = on ? 'Done' : 'Settings';
}
$('panel-toggle').onclick = () => togglePanel();

// ---- models in this browser ----

async function listCache() {
    const entries = await Promise.resolve(cache.list()).catch(() => []);
    $('cache-none').hidden = entries.length > 0;
    $('cache').replaceChildren(
        ...entries.map(entry => {
            const li = document.createElement('li'),
                name = document.createElement('button'),
                size = document.createElement('span'),
                del = document.createElement('button');
            name.type = del.type = 'button';
            name.className = 'name link';
            name.textContent = nameOf(entry.url);
            name.title = entry.url;
            name.onclick = () => choose(entry.url);
            size.className = 'size';
            const loaded = bytes(entry.loaded ?? 0);
            size.textContent = entry.complete
                ? bytes(entry.size)
                : `${entry.size ? `${loaded} of ${bytes(entry.size)}` : loaded}; open to resume`;
            del.className = 'delete quiet';
            del.textContent = 'Delete';
            del.ariaLabel = `Delete ${nameOf(entry.url)}`;
            del.onclick = async () => {
                del.disabled = true;
                try {
                    await cache.remove(entry.url);
                } catch (e) {
                    showError(e);
                }
                await listCache();
                ($('cache').querySelector('.delete') ?? $('h-cache')).focus();
            };
            li.append(name, size, del);
            return li;
        })
    );
}
$('h-cache').tabIndex = -1; // gets the focus after the last model was deleted

// ---- cross-check ----

const VARIANTS = { simd: 'SIMD', relaxed: 'relaxed SIMD' };

function checkVariant(variant) {
    return new Promise(resolve => {
        const worker = new Worker(new URL('check.js', import.meta.url), { type: 'module' });
        const end = result => {
            worker.terminate();
            resolve({ variant, ...result });
        };
        worker.onmessage = e => end(e.data);
        worker.onerror = e => end({ failure: e.message || 'check.js cannot be loaded' });
        worker.postMessage(variant);
    });
}

async function crosscheck() {
    $('check').disabled = true;
    $('check-status').className = 'check-status';
    $('check-status').textContent = 'Running…';
    $('check-results').replaceChildren();
    const results = [];
    for (const variant of Object.keys(VARIANTS)) results.push(await checkVariant(variant));
    // failures first
    results.sort(
        (a, b) => !!b.failure - !!a.failure || (b.wrong?.length ?? 0) - (a.wrong?.length ?? 0)
    );
    $('check-results').append(...results.map(showCheck));
    const ran = results.filter(r => r.total),
        bad = results.filter(r => r.failure || r.wrong?.length);
    const sum = key => ran.reduce((s, r) => s + r[key], 0);
    const good = !bad.length && ran.length > 0;
    $('check-status').className = `check-status ${good ? 'good' : 'bad'}`;
    const total = digits(sum('total'), 0), differ = digits(sum('total') - sum('passed'), 0);
    let verdict = `✗ Fail: ${differ} of ${total} results differ`;
    if (good) verdict = `✓ Pass: all ${total} results are the same, bit for bit.`;
    else if (!ran.length) verdict = '✗ Fail: nothing could be run.';
    else verdict += bad.some(r => r.failure) ? '; a module did not run.' : '.';
    $('check-status').textContent = verdict;
    $('check').disabled = false;
}

function element(tag, text, className) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
}

function showCheck(r) {
    const box = element('div'),
        name = VARIANTS[r.variant];
    box.dataset.variant = r.variant;
    if (r.absent) {
        box.append(element('p', `${name}: ${r.absent}`, 'hint'));
        return box;
    }
    if (r.failure) {
        box.append(element('p', `✗ ${name}: ${r.failure}`, 'bad'));
        return box;
    }
    const table = element('table'),
        body = element('tbody'),
        head = element('thead'),
        row = element('tr');
    const caption = element('caption', name);
    caption.append(
        element('span', `${milliseconds(r.seconds)}; kernels: ${r.kernels ?? 'unknown'}`)
    );
    table.append(caption);
    for (const text of ['Operation', 'Same', '']) row.append(element('th', text));
    row.lastChild.append(element('span', 'Result', 'hidden'));
    for (const th of row.children) th.scope = 'col';
    head.append(row);
    const ops = [...r.ops].sort((a, b) => (a.passed === a.total) - (b.passed === b.total));
    for (const op of ops) {
        const tr = element('tr'),
            th = element('th', op.name),
            good = op.passed === op.total;
        th.scope = 'row';
        tr.append(
            th,
            element('td', `${op.passed} / ${op.total}`),
            element('td', good ? '✓ pass' : '✗ FAIL', good ? 'good' : 'bad')
        );
        body.append(tr);
    }
    table.append(head, body);
    if (r.wrong.length) {
        const list = element('ul', undefined, 'wrong');
        for (const w of r.wrong.slice(0, 40)) {
            const instead = w.expected ? ` instead of ${w.expected}` : '';
            list.append(element('li', `${w.what}: ${w.got ?? 'missing'}${instead}`));
        }
        if (r.wrong.length > 40) list.append(element('li', `and ${r.wrong.length - 40} more`));
        box.append(list);
    }
    box.append(table);
    return box;
}

const milliseconds = s => (s < 1 ? `${digits(s * 1e3, 0)} ms` : `${digits(s, 1)} s`);

$('check').onclick = crosscheck;

// ---- threads, which only a cross-origin isolated page has ----

async function isolation() {
    const wanted = document.documentElement.dataset.isolate;
    const can = 'serviceWorker' in navigator && wanted !== 'off';
    const there = can ? await navigator.serviceWorker.getRegistration() : null;
    if (crossOriginIsolated) {
        sessionStorage.removeItem('bitnet.isolating');
        if (!there) return;
        $('isolation').hidden = false;
        $('isolation-text').textContent =
            'The host sends no COOP and COEP headers. A service worker (sw.js) adds ' +
            'them, so that the page has threads.';
        $('isolation-switch').textContent = 'Turn the service worker off';
        $('isolation-switch').onclick = async () => {
            await there.unregister();
            location.reload();
        };
        return;
    }
    const tried = sessionStorage.getItem('bitnet.isolating');
    const on = async () => {
        sessionStorage.setItem('bitnet.isolating', '1');
        try {
            await navigator.serviceWorker.register('sw.js');
            await navigator.serviceWorker.ready;
            location.reload();
        } catch (e) {
            notice(`One thread. The service worker cannot be started: ${e.message}`);
        }
    };
    if (can && wanted === 'auto' && !tried) return on();
    const why = 'One thread: the page is not cross-origin isolated (no COOP and COEP headers).';
    if (!can) notice(why);
    else if (tried && there) notice(`${why} The service worker did not help.`, 'Try again', on);
    else notice(why, 'Use threads', on);
}

function notice(text, action, f) {
    $('notice').hidden = false;
    $('notice-text').textContent = text;
    $('notice-action').hidden = !action;
    $('notice-action').textContent = action ?? '';
    $('notice-action').onclick = f ?? null;
}
$('notice-close').onclick = () => {
    $('notice').hidden = true;
    $('prompt').focus();
};

// ---- start ----

// Opens the model of the last visit if the browser has it, else the tiny one beside the page.
async function start() {
    restore();
    setMode();
    isolation();
    const before = localStorage.getItem('bitnet.model');
    let entries = [];
    try {
        entries = await cache.list();
    } catch {
        /* no cache */
    }
    const there = before && entries.some(e => e.url === addressOf(before).url && e.complete);
    if (!(there && (await open(before)))) {
        if (!there || !$('error').hidden) await open(TINY);
    }
    if (matchMedia('(hover: hover)').matches) $('prompt').focus();
}
start();
