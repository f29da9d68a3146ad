// page.mjs - examples/languages/page.html in Chromium, with bitnet.js of its own server and of another
// origin, as a CDN serves it. The text must be native generate's.
//
//     node tests/languages/page.mjs SITE GENERATE MODEL MODULES
//
// SITE is the folder that ./build.sh web made: what the npm package has. MODULES is a folder whose
// node_modules has tests/web/package.json's. For CHROMIUM see tests/web/browsers.mjs.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { launch, newPage } from '../web/browsers.mjs';
import { ISOLATED, sendFile, serve } from '../web/serve.mjs';

const [site, generate, model, modules] = process.argv.slice(2);
const PROMPT = 'Once upon a time';
const PAGE = readFileSync('examples/languages/page.html', 'utf8');
const ADDRESS = "'./bitnet-h/bitnet.js'";
const native = execFileSync(
    generate,
    ['-m', model, '-p', PROMPT, '-n', '50', '--temp', '0', '-no-cnv', '--log-disable'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }
).slice(0, -1);
const CORS = {
    'Access-Control-Allow-Origin': '*',
    'Cross-Origin-Resource-Policy': 'cross-origin'
};
const root = resolve(site);

/** A server of the package alone, whose headers are a CDN's; asked has the files that it has sent. */
async function cdnWith(headers) {
    const asked = [];
    const hook = (_req, _res, path) => void asked.push(path);
    return { asked, ...(await serve({ root, headers, hook })) };
}

/** Opens the page, with its one address changed, until its title is not the first one any more, or
 *  bitnet.js cannot be loaded. headers are those of its server, which has the package, too, if
 *  the address is its own. */
async function visit(browser, headers, { address, file = model } = {}) {
    const html = address ? PAGE.replace(ADDRESS, `'${address}'`) : PAGE;
    const hook = (req, res, path) => {
        if (path === '/model.gguf') sendFile(req, res, resolve(file), headers);
        else if (path.startsWith('/bitnet-h/') && !address)
            sendFile(req, res, join(root, path.slice('/bitnet-h/'.length)), headers);
        else if (path === '/page.html') {
            res.writeHead(200, { 'Content-Type': 'text/html', ...headers }).end(html);
        } else res.writeHead(404, headers).end();
        return true;
    };
    const { server, url } = await serve({ root, headers, hook });
    const page = await newPage(browser);
    try {
        const failed = new Promise(done => {
            page.on('requestfailed', r => {
                if (r.url().endsWith('/bitnet.js')) done({ title: `${r.failure().errorText} ${r.url()}` });
            });
        });
        await page.goto(`${url}page.html`);
        const ended = page
            .waitForFunction(() => document.title !== 'A story')
            .then(() => page.evaluate(() => ({
                title: document.title,
                text: document.querySelector('#story').textContent,
                isolated: crossOriginIsolated
            })));
        ended.catch(() => {}); // the page is closed
        return await Promise.race([failed, ended]);
    } finally {
        await page.close();
        server.closeAllConnections();
        server.close();
    }
}

function check(got, isolated) {
    if (got.title !== 'The end' || got.text !== native) {
        throw new Error(`${got.title}: ${got.text}, not ${native}`);
    }
    if (got.isolated !== isolated) throw new Error(`isolated: ${got.isolated}`);
}

async function withCdn(headers, test) {
    const cdn = await cdnWith(headers);
    try {
        return await test({ address: `${cdn.url}bitnet.js` }, cdn.asked);
    } finally {
        cdn.server.closeAllConnections();
        cdn.server.close();
    }
}

const cases = {
    async 'the package beside the page'(browser) {
        check(await visit(browser, {}), false);
    },
    async 'the package beside a page with threads'(browser) {
        check(await visit(browser, ISOLATED), true);
    },
    async 'from another origin'(browser) {
        await withCdn(CORS, async (from, asked) => {
            check(await visit(browser, {}, from), false);
            // bitnet.js and the one engine that it needs, and nothing else.
            if (`${asked}` !== '/bitnet.js,/engine-simd.js') throw new Error(`it asked for ${asked}`);
        });
    },
    async 'from another origin, with threads'(browser) {
        await withCdn(CORS, async from => check(await visit(browser, ISOLATED, from), true));
    },
    async 'from another origin that does not allow it'(browser) {
        const { title } = await withCdn({}, from => visit(browser, {}, from));
        if (!/^net::ERR_FAILED .*\/bitnet[.]js$/.test(title)) throw new Error(title);
    },
    async 'a model that is not there'(browser) {
        const got = await visit(browser, {}, { file: 'none.gguf' });
        if (got.text !== got.title || !/404/.test(got.text)) throw new Error(JSON.stringify(got));
    },
    async 'a file that is no model'(browser) {
        const got = await visit(browser, {}, { file: 'LICENSE' });
        if (got.text !== got.title || !/GGUF/.test(got.text)) throw new Error(JSON.stringify(got));
    }
};

if (PAGE.split(ADDRESS).length !== 2) throw new Error('the page imports another file');
if (native.length < 100) throw new Error(`generate writes ${native}`);
const browser = await launch('chromium', modules);
let passed = 0,
    failed = 0;
for (const [name, test] of Object.entries(cases)) {
    try {
        await test(browser);
        console.log(`ok page: ${name}`);
        passed++;
    } catch (e) {
        console.log(`FAIL page: ${name}: ${e.message}`);
        failed++;
    }
}
await browser.close();
console.log(`page: ${passed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed ? 1 : 0;
