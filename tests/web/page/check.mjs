// check.mjs - the cross-check.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sendFile } from '../serve.mjs';
import {
    check,
    checked,
    count,
    edited,
    expect,
    hooks,
    ready,
    scratch,
    site,
    text,
    texts,
    tiny,
    visit,
} from './driver.mjs';

export const tests = {
    // Kernels, and a model's layers, logits and tokens: as examples/crosscheck has them natively.
    async crosscheck_passes() {
        await visit(async page => {
            await ready(page);
            await checked(page);
            const lines = readFileSync(join(site, 'crosscheck.txt'), 'utf8')
                .split('\n')
                .filter(l => l.includes(' | ')).length;
            const tables = await count(page, '#check-results table');
            check(tables > 0 && lines > 500, 'too little was run');
            expect(
                await text(page, 'check-status'),
                `✓ Pass: all ${(lines * tables).toLocaleString('en')} results are ` +
                    'the same, bit for bit.',
                'status'
            );
            expect(await count(page, '#check-results td.bad'), 0, 'failing rows');
            const rows = await texts(page, '[data-variant=simd] tbody th');
            for (const row of ['layers', 'logits', 'greedy tokens'])
                check(rows.includes(`tiny.gguf, ${row}`), `no ${row} among ${rows}`);
        });
    },

    // Some weights are others.
    async crosscheck_finds_a_wrong_model() {
        const other = join(scratch, 'other.gguf'),
            bytes = Buffer.from(tiny);
        bytes.copyWithin(bytes.length - 20000, bytes.length - 24000, bytes.length - 20000);
        writeFileSync(other, bytes);
        await visit(async page => {
            await ready(page);
            hooks.set('/tiny.gguf', (req, res, headers) => {
                sendFile(req, res, other, headers);
                return true;
            });
            await checked(page);
            check((await text(page, 'check-status')).startsWith('✗ Fail'), 'it passes');
            const wrong = (await texts(page, '.wrong li')).join('\n');
            check(/^tiny.gguf, logits after the prompt: /m.test(wrong), wrong);
            check(!/^(?!tiny.gguf|head|end)/m.test(wrong), wrong);
        });
    },

    async crosscheck_finds_what_differs() {
        const reference = readFileSync(join(site, 'crosscheck.txt'), 'utf8');
        hooks.set('/crosscheck.txt', (req, res, headers) => {
            res.writeHead(200, { 'Content-Type': 'text/plain', ...headers });
            res.end(
                reference.replace(
                    /(rope n=80 normal.* )(.)(\w+)\n/,
                    (_, a, b, c) => `${a}${b === '0' ? 1 : 0}${c}\n`
                )
            );
            return true;
        });
        await visit(async page => {
            await ready(page);
            await checked(page);
            const tables = await count(page, '#check-results table');
            check(
                (await text(page, 'check-status')).startsWith(`✗ Fail: ${tables} of `),
                await text(page, 'check-status')
            );
            const row = '#check-results tbody tr'; // what fails comes first
            expect((await texts(page, `${row} th`))[0], 'rope', 'the first row');
            expect((await texts(page, `${row} .bad`))[0], '✗ FAIL', 'its result');
            check(
                /^rope n=80 normal seed=1: /.test((await texts(page, '.wrong li'))[0]),
                'the line'
            );
        });
    },

    // A kernel that differs from plain C in the same module.
    async crosscheck_finds_a_wrong_kernel() {
        hooks.set(
            '/check.js',
            edited('check.js', s =>
                s.replace(
                    'lines.push(l)',
                    "{ lines.push(l); if (l.startsWith('softmax n=5 wide')) " +
                        "lines.push(l.replace('| scalar |', '| simd128 |').replace(/.$/, 'x')); }"
                )
            )
        );
        await visit(async page => {
            await ready(page);
            await checked(page);
            check(
                (await text(page, 'check-status')).startsWith('✗ Fail'),
                await text(page, 'check-status')
            );
            check(
                /kernel simd128/.test((await texts(page, '.wrong li'))[0]),
                'the kernel is not named'
            );
        });
    },
};
