// offers.js - the models that can be downloaded: where they are, what they need, and how fast they are
// likely to be on this machine.
import { app } from './app.js';
import { cache } from './bitnet.js';
import { $, announce, ask, button, element } from './dom.js';
import { bytes, digits } from './format.js';
import { choose } from './models.js';
import { LOAD, numbers } from './settings.js';
import { session } from './storage.js';

const HUB = 'huggingface.co';
// size: of the file. extra: memory beside the file and the context, which takes `perToken` for each
// token. work: how many weights measure.js's model reads in the time that this one takes for a token.
// Both were found with random weights in the same shapes. A revision is given where the file's SHA-256
// is known. All numbers are in bytes or weights.
const OFFERS = [
    {
        name: '1-bit Bonsai 1.7B',
        repository: 'prism-ml/Bonsai-1.7B-gguf',
        revision: '210a9e99f79cb184909d49595906526eb2b3dd9a',
        file: 'Bonsai-1.7B-Q1_0.gguf',
        sha256: '3d7c6c90dd98717a203adb22d5eacd2581850e40aa5327e144b97766cae5f7e3',
        size: 248302272,
        extra: 40e6,
        perToken: 114688,
        work: 1.3e9,
        by: 'Prism ML',
        licence: 'Apache 2.0',
        about: '1.7 billion parameters of one bit each (Q1_0).',
    },
    {
        name: 'BitCPM 0.5B',
        repository: 'openbmb/BitCPM-CANN-0.5B-gguf',
        file: 'bitcpm4-0.5b-tq2_0.gguf',
        size: 245e6,
        extra: 90e6,
        perToken: 12288,
        work: 0.6e9,
        by: 'OpenBMB',
        licence: 'Apache 2.0',
        about: 'Chinese and English. 0.4 billion ternary parameters (TQ2_0).',
    },
    {
        name: 'BitCPM 1B',
        repository: 'openbmb/BitCPM-CANN-1B-gguf',
        file: 'bitcpm4-1b-tq2_0.gguf',
        size: 551e6,
        extra: 150e6,
        perToken: 28672,
        work: 1.85e9,
        by: 'OpenBMB',
        licence: 'Apache 2.0',
        about: 'Chinese and English. 1.6 billion ternary parameters (TQ2_0).',
    },
    {
        name: 'Ternary Bonsai 1.7B',
        repository: 'prism-ml/Ternary-Bonsai-1.7B-gguf',
        revision: 'cd31c84cdd826a33dd297ceac6e66e08dcd8f253',
        file: 'Ternary-Bonsai-1.7B-Q2_0.gguf',
        sha256: 'd97d94eb564590c9f0300e54d3f87bbbb25a78693d0ade9f6e177973dcb8228a',
        size: 463290464,
        extra: 40e6,
        perToken: 114688,
        work: 2.35e9,
        by: 'Prism ML',
        licence: 'Apache 2.0',
        about: '1.7 billion ternary parameters (Q2_0).',
    },
    {
        name: 'BitNet b1.58 2B-4T',
        repository: 'microsoft/bitnet-b1.58-2B-4T-gguf',
        revision: 'a1f2f1c765812aa8af3f6eda4a313707064bba15',
        file: 'ggml-model-i2_s.gguf',
        sha256: '4221b252fdd5fd25e15847adfeb5ee88886506ba50b8a34548374492884c2162',
        size: 1187801280,
        extra: 290e6,
        perToken: 76800,
        work: 2.7e9,
        by: 'Microsoft',
        licence: 'MIT',
        about: '2.4 billion parameters, ternary but for the embedding (I2_S).',
    },
];
const CONTEXT = 4096; // of a model that is loaded without a number
const MOST = 2 ** 32; // bytes that WebAssembly has
const WORDS_PER_TOKEN = 0.75; // about, of English

const urlOf = ({ repository, revision = 'main', file }) =>
    `https://${HUB}/${repository}/resolve/${revision}/${file}`;
const addressOf = offer =>
    offer.sha256 ? `${urlOf(offer)}#sha256=${offer.sha256}` : urlOf(offer);

const contextNow = () => Number($('context').value) || CONTEXT;
const memoryOf = offer => offer.size + offer.extra + contextNow() * offer.perToken;

// ---- what fits ----

// What is known of the machine: undefined where the browser does not say.
async function limits() {
    const { quota, usage } = await Promise.resolve(navigator.storage?.estimate?.())
        .catch(() => undefined)
        .then(e => e ?? {});
    return {
        device: navigator.deviceMemory, // in GB of 2^30 bytes
        room: quota === undefined ? undefined : Math.max(0, quota - (usage ?? 0)),
    };
}

// Why it cannot be used here, or ''. An operating system and the browser need half of the memory.
function lacks(offer, { device, room }, kept) {
    const needed = memoryOf(offer);
    if (needed > MOST) return `It needs ${bytes(needed)} of memory; WebAssembly has 4 GB.`;
    if (needed > device * 2 ** 29)
        return `It needs ${bytes(needed)} of memory; this device has ${device} GB in all.`;
    if (!kept && offer.size > room)
        return `This browser has no room for it: ${bytes(room)} are left.`;
    return '';
}

// ---- how fast it is likely to be ----

let rate = Number(session.get('rate')) || 0, // weights a second; 0: not measured
    measuring = null;

// Takes about a second, in a worker of its own.
async function measured() {
    const { measure } = await import('./measure.js');
    rate = await measure({ ...numbers(LOAD), variant: $('variant').value || undefined });
    session.set('rate', String(rate));
}

async function measureOnce() {
    if (rate || app.loading || app.writing) return;
    $('offers-speed').textContent = 'Measuring how fast this machine is…';
    measuring ??= measured().catch(() => {}); // then the list has no speeds
    await measuring;
    measuring = null;
    $('offers-speed').textContent = '';
}

function speedOf(offer) {
    if (!rate) return '';
    const words = (WORDS_PER_TOKEN * rate) / offer.work;
    return `writes about ${words < 2 ? digits(words, 1) : digits(words, 0)} words a second here`;
}

// ---- the list ----

// An offer's row, which is made once and filled again: a question or a focus in it stays.
function makeRow(offer) {
    const li = element('li'),
        opens = button(offer.name, 'name link', () => download(offer, li)),
        [facts, speed, why, more] = ['size', 'size', 'why', 'hint'].map(c => element('p', '', c)),
        details = element('details'),
        summary = element('summary', 'Details');
    summary.ariaLabel = `Details of ${offer.name}`;
    details.append(summary, more);
    li.append(opens, facts, speed, why, details);
    $('offers').append(li);
    return { opens, facts, speed, why, more };
}

const rows = new Map(); // by their offers
const isKept = (offer, entries) => entries.some(e => e.url === urlOf(offer) && e.complete);

function fillRow(offer, kept, lack) {
    if (!rows.has(offer)) rows.set(offer, makeRow(offer));
    const { opens, facts, speed, why, more } = rows.get(offer),
        { about, by, file, licence, repository, size, work } = offer;
    const tokens = rate ? ` About ${digits(rate / work, 1)} tokens a second.` : '';
    opens.disabled = lack !== '';
    facts.textContent =
        `${bytes(size)}${kept ? ', kept in this browser' : ' to download'}, ` +
        `${bytes(memoryOf(offer))} of memory, licence ${licence}`;
    speed.textContent = lack ? '' : speedOf(offer);
    why.textContent = lack;
    more.textContent = `${about}${tokens} ${file} of ${by}, from ${HUB}/${repository}.`;
}

async function download(offer, li) {
    const kept = isKept(offer, await cache.list().catch(() => []));
    const question = `Download ${bytes(offer.size)} from ${HUB}? The model is kept in this browser.`;
    if (kept || (await ask(li, question, 'Download'))) choose(addressOf(offer));
}

// Brings the list up to date, once it has been opened.
export async function listOffers() {
    if (!$('offers-box').open) return;
    const [entries, limit] = await Promise.all([cache.list().catch(() => []), limits()]);
    for (const offer of OFFERS) {
        const kept = isKept(offer, entries);
        fillRow(offer, kept, lacks(offer, limit, kept));
    }
}

$('offers-box').ontoggle = async () => {
    if (!$('offers-box').open) return;
    await listOffers();
    await measureOnce();
    await listOffers();
};
$('context').addEventListener('change', listOffers);

// Shows the list.
export function showOffers() {
    $('offers-box').open = true;
    $('offers-box').scrollIntoView({ block: 'nearest' });
    $('h-offers').focus();
    announce('Models to download');
}
