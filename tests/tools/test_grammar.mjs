// Random JSON schemas, the texts that a program writes for them under bitnet_grammar.h, and ajv's
// opinion of each.
//     node test_grammar.mjs PROGRAM MODEL NPM_FOLDER
// Prints FAIL lines and at the end "grammar: N passed, N failed, 0 skipped".
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';

const [program, model, npm] = process.argv.slice(2);
const require = createRequire(path.resolve(npm, 'node_modules') + '/');
const Ajv = require('ajv').default, Ajv2020 = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;

let state = 1;
const random = (n) => {                // mulberry32
    state = (state + 0x6D2B79F5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
};
const one = (list) => list[random(list.length)];
const maybe = (n = 2) => random(n) === 0;
const some = (max, make) => Array.from({ length: random(max + 1) }, make);

const NAMES = ['a', 'ab', 'abc', 'b', 'name', 'na"me', 'back\\slash', 'é', '日本', '😀x', 'x y', 'new\nline',
    '$ref', 'type', '', '"', '\\', '\u007f', '""', 'a"'];
const PATTERNS = ['^[a-z]{2,4}$', '^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$', '^\\d+(\\.\\d{1,2})?$', '^[^"\\\\x]*$',
    '^a|b"c$', '^(?:foo|bar)+\\/[\\w.-]*$', '^.{3}$', '^\\s?[é日😀]\\S\\n$', '^\\u00e9[\\x00-\\x7f]$', '^(a*b?)*c$',
    '^$', '^[\\D]{1,3}$', '^\\$\\^\\*$', '^x*?y+?z{0,2}?$'];

const number = () => one([random(20) - 10, random(2000) - 1000, 0, 1, 9007199254740991, -9007199254740991,
    random(1e9), random(100) / 8]);
const value = (depth) => {
    const kind = random(depth > 0 ? 7 : 5);
    if (kind === 0) return null;
    if (kind === 1) return maybe();
    if (kind === 2) return number();
    if (kind < 5) return one([...NAMES, 'tab\tquote"', '\u0001', '\u2028']);
    if (kind === 5) return some(3, () => value(depth - 1));
    return Object.fromEntries(some(3, () => [one(NAMES), value(depth - 1)]));
};
const typeOf = (v) => v === null ? 'null' : Array.isArray(v) ? 'array'
    : typeof v === 'number' ? (Number.isInteger(v) ? 'integer' : 'number') : typeof v;

const makers = {
    null: () => ({ type: 'null' }),
    boolean: () => ({ type: 'boolean' }),
    number: () => ({ type: 'number' }),
    integer: () => {
        const low = number(), high = low + random(1000), s = { type: 'integer' };
        if (maybe()) s[one(['minimum', 'exclusiveMinimum'])] = Math.max(low - 1, -9007199254740991);
        if (maybe()) s[one(['maximum', 'exclusiveMaximum'])] = Math.min(high + 2, 9007199254740991);
        return s;
    },
    string: () => {
        const min = random(6), s = { type: 'string' };
        if (maybe(3)) return { ...s, pattern: one(PATTERNS) };
        if (maybe(3)) return { ...s, format: one(['date', 'time', 'date-time', 'uuid']) };
        if (maybe()) s.minLength = min;
        if (maybe()) s.maxLength = min + random(maybe(4) ? 60 : 12);
        return s;
    },
    array: (depth) => {
        const min = random(4), s = { type: 'array' };
        if (maybe(3)) {
            s.prefixItems = [schema(depth - 1), ...some(2, () => schema(depth - 1))];
            if (maybe()) s.items = maybe() ? false : schema(depth - 1);
            if (maybe(3)) s.minItems = s.items === false ? random(s.prefixItems.length + 1) : min;
            if (maybe(4)) s.maxItems = (s.minItems ?? 0) + random(3);
            return s;
        }
        if (maybe(4) === false) s.items = schema(depth - 1);
        if (maybe()) s.minItems = min;
        if (maybe()) s.maxItems = min + random(3);
        return s;
    },
    object: (depth) => {
        const s = { type: 'object' };
        if (maybe(6)) return s;
        s.properties = Object.fromEntries(some(5, () => [one(NAMES), schema(depth - 1)]));
        s.required = Object.keys(s.properties).filter(() => maybe());
        if (maybe(3)) s.additionalProperties = one([false, true, schema(depth - 1)]);
        if (s.additionalProperties !== false && maybe(8)) s.required.push('more');
        return s;
    },
    any: () => one([{}, true, { title: 'anything', description: 'at all' }]),
    enum: () => {
        const s = { enum: [value(2), ...some(8, () => value(2))] };
        if (maybe(4)) s.type = typeOf(s.enum[0]);
        return s;
    },
    const: () => ({ const: value(2) }),
    anyOf: (depth) => ({ anyOf: [schema(depth - 1), ...some(2, () => schema(depth - 1))] }),
    oneOf: (depth) => {                // of different types, or told apart by a property
        if (maybe()) return { oneOf: [makers.string(), makers.integer(), makers.array(depth), makers.null()] };
        return { oneOf: ['p', 'q', 'r'].map((name) => {
            const s = makers.object(depth);
            s.properties = { kind: { const: name }, ...s.properties };
            s.required = ['kind', ...(s.required ?? [])];
            return s;
        }) };
    },
    allOf: (depth) => {
        const part = (name) => ({ type: 'object', properties: { [name]: schema(depth - 1) }, required: maybe() ? [name] : [] });
        return { allOf: [part('first'), part('second'), ...some(1, () => ({ $ref: '#/$defs/part' }))] };
    },
    types: () => ({ type: ['null', one(['integer', 'boolean']), 'string'], maxLength: random(9), minimum: 3 }),
    ref: () => ({ $ref: one(['#/$defs/tree', '#/$defs/list', '#/$defs/a~1b']) }),
};
const FLAT = ['null', 'boolean', 'number', 'integer', 'string', 'string', 'enum', 'const', 'types'];
const DEEP = [...FLAT, 'array', 'array', 'object', 'object', 'object', 'any', 'anyOf', 'oneOf', 'allOf', 'ref'];
const schema = (depth) => makers[one(depth > 0 ? DEEP : FLAT)](depth);

const DEFS = {
    tree: { type: 'object', properties: { v: { type: 'integer', minimum: 5, maximum: 123 },
        kids: { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 } }, required: ['v'], additionalProperties: false },
    list: { anyOf: [{ type: 'null' }, { type: 'object', properties: { next: { $ref: '#/$defs/list' } }, required: ['next'] }] },
    'a/b': { type: 'string', minLength: 1, maxLength: 3 },
    part: { properties: { third: { enum: [1, 2] } }, required: ['third'] },
};
// The first ones are there for sure.
const schemas = Object.keys(makers).map((name) => ({ $defs: DEFS, ...([makers[name](2)].map((s) => s === true ? {} : s)[0]) }));
for (const pattern of PATTERNS) schemas.push({ type: 'string', pattern });
while (schemas.length < 1000) {
    const s = schema(3);
    schemas.push(typeof s === 'object' ? { $defs: DEFS, ...s } : s);
}

const run = spawnSync(program, [model, '5'], { input: schemas.map((s) => JSON.stringify(s) + '\n').join(''),
    maxBuffer: 1 << 28 });
if (run.status !== 0) { console.log(`FAIL ${program}: ${run.signal ?? run.status} ${run.stderr}`); process.exit(1); }
const texts = run.stdout;

const ajv = new Ajv2020({ strict: false, allErrors: false });
addFormats(ajv);
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
let passed = 0, failed = 0, at = 0, bytes = 0;
for (const s of schemas) {
    const end = texts.indexOf(0, at), raw = texts.subarray(at, end);
    let wrong = end < 0 ? 'no text' : '';
    at = end + 1;
    bytes += raw.length;
    try {
        if (raw[0] === 33) wrong = utf8.decode(raw);
        else if (!ajv.validate(s, JSON.parse(utf8.decode(raw)))) wrong = ajv.errorsText();
    } catch (e) { wrong = String(e); }
    if (!wrong) passed++;
    else {
        failed++;
        if (failed < 10) console.log(`FAIL ${wrong}\n  schema ${JSON.stringify(s).slice(0, 600)}\n  text ${raw.toString().slice(0, 600)}`);
    }
}
console.log(`${bytes} bytes of text`);
console.log(`grammar: ${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
