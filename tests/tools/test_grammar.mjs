// Random JSON schemas and those of zod's types, the texts that a program writes for them under bitnet_grammar.h, and ajv's
// opinion of each.
//     node test_grammar.mjs PROGRAM MODEL NPM_FOLDER
// Prints FAIL lines and at the end "grammar: N passed, N failed, 0 skipped".
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { zodSchemas } from './grammar_zod.mjs';

const [program, model, npm] = process.argv.slice(2);
const require = createRequire(path.resolve(npm, 'node_modules') + '/');
const Ajv = require('ajv').default, Ajv2020 = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
const zod = zodSchemas(require('zod'), require('openai/helpers/zod').zodResponseFormat);

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
    '^(a|b"c)$', '^(?:foo|bar)+\\/[\\w.-]*$', '^.{3}$', '^\\s?[é日😀]\\S\\n$', '^\\u00e9[\\x00-\\x7f]$', '^(a*b?)*c$',
    '^$', '^[\\D]{1,3}$', '^\\$\\^\\*$', '^x*?y+?z{0,2}?$', '\\S', '^dag', '[0-9]$', 'a|^b$|c', '^(^a|b$|c)+d?$',
    '^.?(^|,)x(,|$).?$', '^(?!ab)(?=.*c)[a-e]+$', '^(?!.*(ab|\\d\\d))[a-c\\d]{1,9}$', '^[^\\x00-\\x1f"]$', '^(?<y>[0-9]{2})\\u{1F600}?$',
    '^\\ud83d\\ude00?$', 'a(?=b|$)|x$(?=)', '^[\\p{L}\\p{N}_]+$', '^[\\u{1F600}-\\u{1F64F}\\b]$', '^(aa|aaa)*$', '^(a|b){0,9}abb$', '(?=.*[A-Z])(?!.*b).{2,}', '^P(?!$)(a|bc)?(?:1x)?$', '^[a-z]{2}(?=.*x)(?!b)[a-x]*$',
    '^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)',
    '^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,4}0*$)\\d*\\.\\d*0*$)'];
// What zod writes beside a format, and other patterns that a format is met with.
const BESIDE = {
    email: ["^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$", 'a', '\\.org$'],
    uuid: ['^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$'],
    date: ['^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))$', '^20'],
    'date-time': ['Z$', '^2024-02-29T.*[+]'],
    ipv4: ['^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$', '^1'],
    ipv6: ['^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|::1)$', '::'],
    uri: ['^https?://', '^urn:'],
    url: ['^https'],
    duration: ['^P', 'T'],
};
const FORMATS = ['date', 'time', 'date-time', 'iso-time', 'iso-date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6',
    'uri', 'uri-reference', 'url', 'uuid', 'json-pointer', 'byte', 'password', 'binary'];
// Its schema may have no text at all, or what cannot be kept of others beside it.
const PERHAPS = { 'x-perhaps': true };
const NO_TEXT = /has no text that ends/, REFUSED = new RegExp('the constant is not|cannot be left out|is not known|' +
    'more than one item|more properties than|beside another one|minContains is over|too much must not hold|beyond 2.53|begins with itself|too large to be kept');

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

const bound = () => one([random(2000) / 100 - 10, random(100000) / 1000, -random(1e6) / 7, random(1e9), 0, 1e-5, -3.25, 1e12 + 0.5]);

const makers = {
    null: () => ({ type: 'null' }),
    boolean: () => ({ type: 'boolean' }),
    number: () => {
        const s = { type: 'number' }, low = bound(), high = low + (maybe(4) ? 0 : Math.abs(bound()) + 1);
        if (maybe(4)) return s;
        if (maybe(6)) return { ...s, multipleOf: one([1, 2, 5, 7, 10, 100, 365]), minimum: Math.round(low) };
        if (maybe()) s[one(['minimum', 'exclusiveMinimum'])] = low;
        if (maybe()) s[one(['maximum', 'exclusiveMaximum'])] = high;
        if (maybe(8)) s.format = one(['float', 'double']);
        return { ...s, ...PERHAPS };
    },
    numbers: () => one([{ type: 'number', minimum: 0, maximum: 1 }, { type: 'number', exclusiveMinimum: 0 },
        { type: 'number', minimum: -90, maximum: 90 }, { type: 'number', exclusiveMinimum: 0.1, exclusiveMaximum: 0.100001 },
        { type: 'number', minimum: 1e-7, maximum: 1e-6 }, { type: 'number', maximum: -1e14 }, { type: 'number', maximum: 1e20 },
        { type: 'number', exclusiveMinimum: -1e16 }, { type: 'integer', minimum: -1e17 }, { type: 'integer', exclusiveMinimum: 2.5 }, { type: 'number', minimum: 1e300 * -1 },
        { type: 'number', minimum: 0.30000000000000004, exclusiveMaximum: 0.4 }, { type: 'number', minimum: 2.5, maximum: 2.5 },
        { type: 'number', exclusiveMaximum: -0.5, minimum: -123456.789 }, { type: 'number', format: 'int32' },
        { type: 'integer', format: 'int32' }, { type: 'integer', format: 'int64', minimum: 1 }, { type: 'integer', multipleOf: 12 },
        { type: 'integer', multipleOf: 7, minimum: -100, maximum: 1000 }, { type: 'integer', format: 'double' },
        { type: 'integer', multipleOf: 997, minimum: 123456 }, { allOf: [{ type: 'number', minimum: 3 }, { maximum: 4.25 }] }]),
    integer: () => {
        const low = number(), high = low + random(1000), s = { type: 'integer' };
        if (maybe()) s[one(['minimum', 'exclusiveMinimum'])] = Math.max(low - 1, -9007199254740991);
        if (maybe()) s[one(['maximum', 'exclusiveMaximum'])] = Math.min(high + 2, 9007199254740991);
        return { ...s, ...PERHAPS };
    },
    string: () => {
        const min = random(6), s = { type: 'string' };
        if (maybe(3)) s.pattern = one(PATTERNS);
        else if (maybe(3)) {
            s.format = one(FORMATS);
            if (BESIDE[s.format] && maybe()) s.pattern = one(BESIDE[s.format]);
        }
        if (s.pattern || s.format) {
            if (maybe()) return s;
            if (maybe(6)) return { allOf: [s, { pattern: one(PATTERNS) }], ...PERHAPS };
            s['x-perhaps'] = true;
        }
        if (maybe()) s.minLength = min;
        if (maybe(20)) return { ...s, maxLength: 6700000 };
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
        if (maybe(4)) {
            s.uniqueItems = true;
            if (maybe()) {
                s.items = maybe() ? { enum: [...some(6, () => value(1)), 'x', 1] } : { $ref: '#/$defs/some' };
                if (maybe()) s.minItems = random(3);
                if (maybe()) s.maxItems = 2 + random(3);
                return s;
            }
            if (maybe()) s.items = schema(depth - 1);
            return { ...s, minItems: random(2) };
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
        if (maybe(8)) s.unevaluatedProperties = maybe();
        if (s.unevaluatedProperties === false && s.additionalProperties === undefined)
            s.required = s.required.filter((name) => name in s.properties);
        if (maybe(8)) s.minProperties = random(new Set(s.required).size + 1);
        return s;
    },
    record: (depth) => ({ type: 'object', propertyNames: one([{ type: 'string' }, true, { pattern: '^[a-c]{2}' }, { maxLength: 3 },
        { format: 'uuid' }]), additionalProperties: schema(depth - 1) }),
    beside: (depth) => one([              // alternatives beside other keywords
        () => ({ type: 'object', properties: { a: schema(depth - 1), b: schema(depth - 1), c: { type: 'null' } },
            anyOf: [{ required: ['a'] }, { required: ['b', 'c'] }] }),
        () => ({ type: 'object', properties: { a: schema(depth - 1) }, additionalProperties: false,
            oneOf: [{ properties: { a: { const: 1 } }, required: ['a'] }, { properties: { a: { const: 2 } }, required: ['a'] }].slice(maybe()),
            ...PERHAPS }),
        () => ({ type: 'string', anyOf: [{ pattern: '^a' }, { minLength: 4 }, { enum: ['x', 1] }], maxLength: 6 }),
        () => ({ type: 'integer', anyOf: [{ minimum: 100 }, { maximum: -100 }], allOf: [{ multipleOf: 10 }] }),
        () => ({ $ref: '#/$defs/part', properties: { x: schema(depth - 1) }, required: ['x'] }),
        () => ({ description: 'one', allOf: [{ $ref: '#/$defs/list' }], discriminator: { propertyName: 'a' } }),
        () => ({ type: 'array', anyOf: [{ minItems: 3 }, { maxItems: 1 }], items: schema(depth - 1) }),
        () => ({ type: ['string', 'integer'], enum: ['abc', 'abcdef', 5, 500, null, [1]], maxLength: 4, maximum: 100 }),
        () => ({ allOf: [{ enum: [1, 2, 'a', null] }, { enum: ['a', 2, 7] }] }),
        () => ({ anyOf: [{ type: 'object', properties: { a: {} }, required: ['a'] }, { type: 'string' }], type: ['object', 'string'],
            maxLength: 3 }),
    ])(),
    // What must not hold; ajv does not see that the property "" is missing. Many of these have no text, and some cannot be kept.
    not: (depth) => ({ ...schema(depth - 1), not: one([
        () => ({ type: one(['string', 'null', 'object', ['array', 'boolean']]) }), () => ({ enum: ['a', 1, null, 'name', true] }),
        () => ({ const: one(NAMES) }), () => ({ required: [one(NAMES.slice(0, 14))] }), () => ({ properties: { a: schema(1), b: schema(1) } }),
        () => ({ minLength: 3 }), () => ({ type: 'string', pattern: 'a' }), () => ({ minimum: 3, maximum: 100 }),
        () => ({ anyOf: [{ type: 'null' }, { maxItems: 1 }] }), () => ({ allOf: [{ type: 'string' }, { maxLength: 5 }] }),
        () => ({ not: { required: ['a'] } }), () => schema(1)])(), ...PERHAPS }),
    if: (depth) => ({ type: 'object', properties: { a: { enum: [1, 2, 'x'] }, b: schema(depth - 1), c: schema(depth - 1) },
        if: one([{ properties: { a: { const: 1 } } }, { properties: { a: { const: 1 } }, required: ['a'] }, { required: ['b'] },
            { properties: { b: schema(1) } }]),
        then: one([{ required: ['c'] }, { properties: { b: { type: 'string' } } }, false]),
        ...(maybe() ? { else: one([{ required: ['b'] }, { properties: { c: false } }]) } : {}), ...PERHAPS }),
    overlap: (depth) => ({ oneOf: [one([
        () => [{ required: ['a'] }, { required: ['b'] }, { required: ['c', 'd'] }], () => [schema(1), schema(1)],
        () => [{ type: 'object', properties: { a: { type: 'string' } }, required: ['a'] },
            { type: 'object', properties: { a: { type: 'string' }, b: {} }, required: ['a', 'b'] }],
        () => ['a', 'b', 'c'].map((name) => ({ type: 'object', properties: { [name]: schema(1), x: schema(1) }, additionalProperties: false })),
        () => [{ type: 'string', pattern: '^a' }, { type: 'string', minLength: 3 }, { enum: ['abc', 'b', 5] }],
        () => [{ type: 'integer', minimum: 5 }, { type: 'number', maximum: 10 }],
        () => [{ type: 'array', minItems: 2 }, { type: 'array', items: schema(1) }],
    ])()].flat(), ...(maybe() ? { type: one(['object', 'string', ['object', 'string', 'integer', 'array']]) } : {}), ...PERHAPS }),
    patterns: (depth) => ({ type: 'object',
        ...(maybe() ? { properties: { ab: schema(depth - 1), 'x-1': schema(depth - 1), b: { type: 'null' } } } : {}),
        patternProperties: Object.fromEntries(some(maybe(6) ? 5 : 2, () => [one(['^x-', 'b', '^[a-z]+$', '.*', '^a.$', '\\d$']), schema(depth - 1)])),
        ...(maybe() ? { additionalProperties: one([true, false, schema(depth - 1)]) } : {}),
        ...(maybe(4) ? { required: ['ab'] } : {}), ...(maybe(4) ? { propertyNames: one([{ maxLength: 4 }, { pattern: '1' }]) } : {}),
        ...(maybe(4) ? { minProperties: 1 } : {}), ...(maybe(4) ? { maxProperties: 2 } : {}), ...PERHAPS }),
    dependent: (depth) => ({ type: 'object', properties: { a: {}, b: schema(depth - 1), c: { type: 'string' } },
        ...one([{ dependentRequired: { a: ['b', 'c'] } }, { dependentRequired: { a: ['b'], b: ['c'], c: ['a'], d: [] } },
            { dependentSchemas: { a: { required: ['d'] }, b: { properties: { c: false } } } }]),
        ...(maybe() ? { required: [one(['a', 'b', 'd'])] } : {}), ...PERHAPS }),
    contains: (depth) => ({ type: 'array', items: schema(depth - 1), contains: one([{ type: 'string' }, {}, { minimum: 2 }]),
        ...(maybe() ? { minContains: random(3) } : {}), ...(maybe(4) ? { maxContains: 3 } : {}),
        ...(maybe() ? { maxItems: 4 } : {}), ...PERHAPS }),
    sizes: (depth) => ({ type: 'object', properties: Object.fromEntries(['a', 'b', 'c', 'd', 'a b'].map((name) => [name, schema(depth - 1)])),
        required: maybe() ? ['b'] : [], minProperties: random(4), ...(maybe() ? { maxProperties: 3 + random(4) } : {}),
        ...(maybe() ? { additionalProperties: schema(depth - 1) } : {}), ...PERHAPS }),
    names: (depth) => ({ type: 'object', ...(maybe() ? { properties: { a: schema(depth - 1), abc: {}, 5: {} } } : {}),
        propertyNames: one([{ enum: ['a', 'q"', 'abc', 7] }, { pattern: '^[a-c]' }, { maxLength: 2 }, { const: 'a' }, { $ref: '#/$defs/a~1b' }]),
        additionalProperties: schema(depth - 1), ...(maybe(4) ? { required: ['a'] } : {}), ...PERHAPS }),
    twice: (depth) => ({ allOf: [
        { properties: { a: schema(depth - 1), b: { type: ['string', 'integer'] } }, additionalProperties: one([true, schema(1)]) },
        { properties: { b: one([{ minLength: 2, minimum: 4 }, { $ref: '#/$defs/a~1b' }]), a: schema(1) } }],
    type: 'object', ...PERHAPS }),
    items: (depth) => ({ type: 'array', allOf: [{ items: schema(depth - 1) }, { prefixItems: [schema(1), {}], minItems: random(3) }],
        ...(maybe() ? { unevaluatedItems: false } : {}), ...PERHAPS }),
    listed: () => ({ enum: [...some(6, () => value(2)), 'abc', 'x-1', 12, [1, 2], { a: 1, b: 'x' }], ...one([{ pattern: '^[a-z]' },
        { items: { type: 'integer' }, minItems: 1 }, { required: ['a'], properties: { a: { type: 'integer' } } }, { not: { const: 12 } },
        { multipleOf: 3 }, { anyOf: [{ type: 'string', minLength: 3 }, { type: 'object' }] }, { uniqueItems: true },
        { if: { type: 'string' }, then: { maxLength: 3 } }]), ...PERHAPS }),
    anchor: () => ({ $ref: one(['#leaf', '#/$defs/inner']) }),
    notes: () => ({ type: 'string', example: 'x', 'x-order': 1, xml: {}, contentMediaType: 'text/plain', maxLength: 3, then: undefined }),
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
const FLAT = ['null', 'boolean', 'number', 'numbers', 'integer', 'string', 'string', 'string', 'enum', 'const', 'types', 'notes'];
const DEEP = [...FLAT, 'not', 'if', 'overlap', 'patterns', 'dependent', 'contains', 'sizes', 'names', 'twice', 'items', 'listed', 'anchor', 'record', 'beside', 'array', 'array', 'object', 'object', 'object', 'any', 'anyOf', 'oneOf', 'allOf', 'ref'];
const schema = (depth) => makers[one(depth > 0 ? DEEP : FLAT)](depth);

const DEFS = {
    tree: { type: 'object', properties: { v: { type: 'integer', minimum: 5, maximum: 123 },
        kids: { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 } }, required: ['v'], additionalProperties: false },
    list: { anyOf: [{ type: 'null' }, { type: 'object', properties: { next: { $ref: '#/$defs/list' } }, required: ['next'] }] },
    'a/b': { type: 'string', minLength: 1, maxLength: 3 },
    some: { enum: ['red', 'green', 3, null, 'blue'] },
    leaf: { $anchor: 'leaf', type: 'integer', minimum: 7, maximum: 9 },
    inner: { $id: 'https://example.com/inner', $defs: { leaf: { type: 'null' } }, items: { $ref: '#/$defs/leaf' }, type: 'array' },
    part: { properties: { third: { enum: [1, 2] } }, required: ['third'] },
};
// The first ones are there for sure.
const schemas = Object.keys(makers).map((name) => ({ $defs: DEFS, ...([makers[name](2)].map((s) => s === true ? {} : s)[0]) }));
for (const pattern of PATTERNS) schemas.push({ type: 'string', pattern });
for (let i = 0; i < 100; i++) schemas.push(makers.numbers());
for (const format of FORMATS) for (let i = 0; i < 6; i++) schemas.push({ type: 'string', format });
for (const format of Object.keys(BESIDE)) for (const pattern of BESIDE[format]) schemas.push({ type: 'string', format, pattern });
for (const [, s] of zod) for (let i = 0; i < 3; i++) schemas.push(s);
const count = schemas.length + 3000;
while (schemas.length < count) {
    const s = schema(3);
    schemas.push(typeof s === 'object' ? { $defs: DEFS, ...s } : s);
}

const run = spawnSync(program, [model, '5'], { input: schemas.map((s) => JSON.stringify(s) + '\n').join(''),
    maxBuffer: 1 << 28 });
if (run.status !== 0) { console.log(`FAIL ${program}: ${run.signal ?? run.status} ${run.stderr}`); process.exit(1); }
const texts = run.stdout;

const validator = (s) => {
    const options = { strict: false, logger: false, meta: false, validateSchema: false };
    const ajv = /draft-07/.test(s.$schema) ? new Ajv(options) : new Ajv2020(options);
    addFormats(ajv);
    const { $schema, ...rest } = s;
    return ajv.compile(s === true ? s : rest);
};
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const shown = new Set();
let passed = 0, failed = 0, at = 0, bytes = 0, empty = 0, refused = 0;
for (const s of schemas) {
    const end = texts.indexOf(0, at), raw = texts.subarray(at, end);
    let wrong = end < 0 ? 'no text' : '';
    at = end + 1;
    bytes += raw.length;
    try {
        const note = raw[0] === 33 && JSON.stringify(s);
        if (note && note.includes('"x-perhaps"') && NO_TEXT.test(utf8.decode(raw))) empty++;
        else if (note && note.includes('"x-perhaps"') && REFUSED.test(utf8.decode(raw))) refused++;
        else if (note) wrong = utf8.decode(raw);
        else {
            const validate = validator(s);
            if (!validate(JSON.parse(utf8.decode(raw)))) wrong = JSON.stringify(validate.errors);
        }
    } catch (e) { wrong = String(e); }
    if (!wrong) passed++;
    else {
        failed++;
        if (shown.size < 10 && !shown.has(wrong)) console.log(`FAIL ${wrong}\n  schema ${JSON.stringify(s).slice(0, 600)}\n  text ${raw.toString().slice(0, 600)}`);
        shown.add(wrong);
    }
}
console.log(`${bytes} bytes of text; ${empty} schemas that need have none, ${refused} that may be refused`);
if (empty + refused > schemas.length / 5) { failed++; console.log('FAIL too many schemas without a text'); }
console.log(`grammar: ${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
