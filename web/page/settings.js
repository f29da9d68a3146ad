// settings.js - the fields of the settings: their limits, what is wrong with them, and their values of
// the last visit. A value that cannot be used is never replaced by another one: the page says so.
import { BitNetError } from './bitnet.js';
import { $, element } from './dom.js';
import { local } from './storage.js';

export const SAMPLER = [
    'temperature',
    'topK',
    'topP',
    'minP',
    'repeatPenalty',
    'seed',
    'maxTokens',
];
export const LOAD = ['context', 'threads'];
const NUMBERS = [...SAMPLER, ...LOAD];
const KEPT = [...NUMBERS, 'system', 'thinking', 'variant'];
const DEFAULTS = Object.fromEntries(KEPT.map(id => [id, $(id).value]));

// What an empty field stands for, which depends on the model.
const usual = { temperature: 0.7 };

export function suggest(temperature = 0.7) {
    usual.temperature = temperature;
    $('temperature').placeholder = temperature;
}

// What is wrong with a field, as a sentence, or ''. A field with a placeholder may be empty.
function problem(id) {
    const { value, validity, min, max, step, placeholder } = $(id),
        name = document.querySelector(`label[for=${id}]`).textContent;
    const range = `from ${min} to ${max}`;
    if (validity.badInput || (value === '' && !placeholder))
        return `${name} needs a number ${range}.`;
    if (value === '') return '';
    const n = Number(value);
    if (!(n >= Number(min) && n <= Number(max)))
        return `${name} must be ${range}. ${value} is not.`;
    if (step === '1' && !Number.isInteger(n))
        return `${name} must be a whole number. ${value} is not.`;
    return '';
}

// Shows below the field what is wrong with it, and returns that.
function mark(id) {
    const text = problem(id),
        field = $(id);
    let line = $(`${id}-problem`);
    if (text) {
        if (!line) {
            line = element('p', '', 'problem');
            line.id = `${id}-problem`;
            field.after(line);
        }
        line.textContent = text;
        field.setAttribute('aria-invalid', 'true');
        field.setAttribute('aria-describedby', line.id);
        field.closest('details')?.setAttribute('open', '');
    } else {
        line?.remove();
        field.removeAttribute('aria-invalid');
        field.removeAttribute('aria-describedby');
    }
    return text;
}

// The values of these fields. Throws an error for the user, with this code, if one cannot be used.
export function numbers(ids, code = 'SETTING') {
    const wrong = ids.map(mark).filter(Boolean);
    if (wrong.length) throw new BitNetError(code, wrong.join(' '));
    return Object.fromEntries(
        ids
            .filter(id => $(id).value !== '' || id in usual)
            .map(id => [id, Number($(id).value || usual[id])])
    );
}

// ---- how much a model thinks: a field for those that can be told ----

// chat: what BitNet's info says of the template.
export function offerThinking(chat) {
    const known = ['', ...(chat?.thinking ? ['off'] : []), ...(chat?.efforts ?? [])],
        field = $('thinking');
    $('thinking-row').hidden = known.length === 1;
    for (const option of field.options) option.hidden = !known.includes(option.value);
    if (known.length > 1 && !known.includes(field.value)) field.value = '';
}

function thought() {
    const { value } = $('thinking');
    if ($('thinking-row').hidden || !value) return {};
    return value === 'off' ? { thinking: false } : { effort: value };
}

// What a reply is written with.
export const replyOptions = () => ({ ...numbers(SAMPLER), ...thought() });

export function restore() {
    let kept = {};
    try {
        kept = JSON.parse(local.get('settings')) ?? {};
    } catch {
        /* not ours */
    }
    for (const id of KEPT) {
        if (typeof kept[id] !== 'string') continue;
        $(id).value = kept[id];
        if (NUMBERS.includes(id) && problem(id)) $(id).value = DEFAULTS[id];
    }
}

// Only what can be used is kept.
function keep() {
    const good = KEPT.filter(id => !NUMBERS.includes(id) || !problem(id));
    local.set('settings', JSON.stringify(Object.fromEntries(good.map(id => [id, $(id).value]))));
}

for (const id of KEPT) {
    $(id).onchange = () => {
        if (NUMBERS.includes(id)) mark(id);
        keep();
    };
}
$('reset').onclick = () => {
    for (const id of [...SAMPLER, 'system', 'thinking']) $(id).value = DEFAULTS[id];
    SAMPLER.forEach(mark);
    keep();
};
