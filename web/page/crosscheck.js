// crosscheck.js - the cross-check: check.js runs the kernels of this browser in a worker, and this shows
// how the results compare with those of the native build.
import { $, element } from './dom.js';
import { digits, milliseconds } from './format.js';

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

export async function crosscheck() {
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
    const total = digits(sum('total'), 0),
        differ = digits(sum('total') - sum('passed'), 0);
    let verdict = `✗ Fail: ${differ} of ${total} results differ`;
    if (good) verdict = `✓ Pass: all ${total} results are the same, bit for bit.`;
    else if (!ran.length) verdict = '✗ Fail: nothing could be run.';
    else verdict += bad.some(r => r.failure) ? '; a module did not run.' : '.';
    $('check-status').textContent = verdict;
    $('check').disabled = false;
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
