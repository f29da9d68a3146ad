// Calls of functions as models write them, between <tool_call> and </tool_call>: as JSON, or in the
// form of Qwen3.5 and later models, in which a string is its text as it stands:
//
//     <function=NAME>
//     <parameter=P>
//     VALUE
//     </parameter>
//     </function>
//
// serve does the same: examples/server/calls.h.
import { refuse } from './fields.js';
import { compact, get, isObject, members, parsed, quoted, spaced } from './json.js';

/** Can a function or a parameter have this name there? */
export const hasName = name => name !== '' && !/[<>\n]/.test(name);

// ---- what values a schema allows, as bits ----

const NULL = 1,
    FALSE = 2,
    TRUE = 4,
    NUMBER = 8,
    STRING = 16,
    LIST = 32,
    OBJECT = 64,
    ALL = 127,
    QUOTED = 128; // also strings in quotes: the schema was not found
const DEEPEST = 8, // schemas in each other, references counted
    MOST = 1000; // schemas that are looked at: with references, eight levels can stand for billions
const TYPES = {
    string: STRING,
    number: NUMBER,
    integer: NUMBER,
    boolean: TRUE | FALSE,
    null: NULL,
    object: OBJECT,
    array: LIST
};
const kindsOfType = type => (Object.hasOwn(TYPES, type) ? TYPES[type] : ALL);

function kindOf(value) {
    if (value === null) return NULL;
    if (typeof value === 'boolean') return value ? TRUE : FALSE;
    if (typeof value === 'object') return Array.isArray(value) ? LIST : OBJECT;
    return typeof value === 'string' ? STRING : NUMBER;
}

/** The schema that this one refers to; undefined: it is elsewhere. */
function referred(root, schema) {
    const ref = get(schema, '$ref');
    if (ref === undefined) return schema;
    const [, place, name] =
        /^#\/(\$defs|definitions|properties)\/([^/~%]*)$/.exec(
            typeof ref === 'string' ? ref : ''
        ) ?? [];
    return place && get(get(root, place), name);
}

/** Schemas of which a value keeps one; null: there are none. */
function alternatives(schema) {
    const list = get(schema, 'anyOf') ?? get(schema, 'oneOf');
    return Array.isArray(list) && list.length ? list : null;
}

/** The kinds of values that a schema allows. left.n is counted down. */
function kindsOf(root, schema, depth, left) {
    const target = referred(root, schema);
    if (target === undefined || depth === DEEPEST || left.n-- <= 0) return ALL | QUOTED;
    const only = get(target, 'const'),
        listed = get(target, 'enum'),
        type = get(target, 'type'),
        list = alternatives(target);
    const any = (values, kinds) => values.reduce((all, value) => all | kinds(value), 0);
    if (only !== undefined) return kindOf(only);
    if (Array.isArray(listed)) return any(listed, kindOf);
    if (list) return any(list, one => kindsOf(root, one, depth + 1, left));
    if (Array.isArray(type)) return any(type, kindsOfType);
    return type === undefined ? ALL : kindsOfType(type);
}

// ---- writing ----

/** A call in the assistant's history; its arguments are an object, in JSON. */
export function writeCall(isXml, name, args) {
    if (!isXml) return `<tool_call>\n{"name": ${quoted(name)}, "arguments": ${args}}\n</tool_call>`;
    const all = members(args).map(([key, text]) => {
        const value = text[0] === '"' ? JSON.parse(text) : spaced(text);
        return `<parameter=${key}>\n${value}\n</parameter>\n`;
    });
    return `<tool_call>\n<function=${name}>\n${all.join('')}</function>\n</tool_call>`;
}

// ---- reading ----

/** { name, arguments } of {"name": "...", "arguments": {...}}, or the same with parameters; the
 * arguments may be missing, but then there is nothing else that might be them. */
function oneCall(value, text) {
    const name = get(value, 'name'),
        given = get(value, 'arguments'),
        parameters = get(value, 'parameters');
    if (typeof name !== 'string' || !name || (given && parameters)) return null;
    const args = given ?? parameters;
    if (args !== undefined && !isObject(args)) return null;
    if (args !== undefined) {
        const its = new Map(members(text)).get(given ? 'arguments' : 'parameters');
        return { name, arguments: compact(its) };
    }
    const others = Object.keys(value).some(
        key => !['name', 'arguments', 'parameters'].includes(key)
    );
    return others ? null : { name, arguments: '{}' };
}

/** The calls of a text, or of a list of some; null: it is none. */
export function readJsonCalls(text) {
    const value = parsed(text),
        isList = Array.isArray(value),
        texts = isList ? members(text).map(([, one]) => one) : [text];
    if (typeof value !== 'object' || value === null) return null;
    const calls = (isList ? value : [value]).map((one, i) => oneCall(one, texts[i]));
    return calls.length && calls.every(Boolean) ? calls : null;
}

/** Does JSON end within a string? */
const endsInString = text => text.replace(/"(?:\\[^]|[^"\\])*"/g, '').includes('"');

/** Where a value ends: behind it the call goes on. */
const CLOSE = '</parameter>[ \\t\\r\\n]*',
    NEXT = '<parameter=|</function>',
    END = `${CLOSE}(?=${NEXT})`,
    PARAMETER = new RegExp(`^<parameter=([^>\\n]+)>\\n?([^]*?)${END}`),
    PARAMETERS = new RegExp(`<parameter=[^]*?${END}`, 'g');

/** Does this end within a value, so that a tag of a call is a part of it? */
export const endsInValue = (text, isXml) =>
    isXml ? text.replace(PARAMETERS, '').includes('<parameter=') : endsInString(text);

/** A value of one of these kinds as JSON. */
function valueOf(text, kinds) {
    const value = kinds === STRING ? undefined : parsed(text);
    if (value === undefined) return quoted(text);
    const kind = kindOf(value);
    const fits = (kind !== STRING || kinds & QUOTED) && (kinds & kind || !(kinds & STRING));
    return fits ? compact(text) : quoted(text);
}

/** The same in the other form. tools: the chat's. */
export function readXmlCall(text, tools) {
    const [front, name] = /^[ \t\r\n]*<function=([^>\n]+)>/.exec(text) ?? [];
    if (!front || text.includes('\0')) return null;
    const parameters = get(
        tools.map(tool => tool.function).find(f => f.name === name),
        'parameters'
    );
    const args = [];
    let rest = text.slice(front.length).replace(/^[ \t\r\n]+/, '');
    while (!rest.startsWith('</function>')) {
        const [all, key, value] = PARAMETER.exec(rest) ?? [];
        if (!all) return null;
        const schema = get(get(parameters, 'properties'), key);
        const kinds =
            schema === undefined
                ? STRING | OBJECT | LIST
                : kindsOf(parameters, schema, 0, { n: MOST });
        args.push(`${quoted(key)}:${valueOf(value.replace(/\n$/, ''), kinds)}`);
        rest = rest.slice(all.length);
    }
    if (/[^ \t\r\n]/.test(rest.slice('</function>'.length))) return null;
    return [{ name, arguments: `{${args.join(',')}}` }];
}

// ---- grammars ----

/** A text as it stands, in GBNF. */
export function literal(text) {
    const hex = c => `\\x${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
    return `"${text.replace(/[\0-\x1f\x7f"\\]/g, hex)}"`;
}

const pointer = key =>
    `/${key
        .replace(/[~/]/g, c => (c === '~' ? '~0' : '~1'))
        .replace(/["%<>\\^`{|}]|[^!-~]/gu, c =>
            [...new TextEncoder().encode(c)]
                .map(byte => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
                .join('')
        )}`;

const INSIDE = { not: { pattern: `${CLOSE}(${NEXT})` } }; // of a text in which no value ends

/** The rules of a call of function number n in JSON. */
export const jsonForm = (name, n) =>
    `${literal(`{"name": ${quoted(name)}, "arguments": `)} def-${n} "}"`;

/** What binds a string beside its lengths. */
const BINDS = ['pattern', 'format', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', 'not', 'if'];

/** The same in the other form; the schemas that it names are added to defs. keeps: values keep
 * to the parameters, which are in defs already, under this $id. */
export function xmlForm({ name, parameters }, n, keeps, id, defs) {
    const properties = isObject(get(parameters, 'properties')) ? parameters.properties : null;
    const left = { n: MOST + 16 * Object.keys(properties ?? {}).length };
    let count = 0;
    /** A value of the schema that is at this path, or of those that something leaves. */
    const ruleOf = (kind, path, more) => {
        defs[`${n}-${count}`] = { $ref: `${id}#${path}`, ...more };
        return `${kind}-${n}-${count++}`;
    };
    /** The text of a string. Each length is states of its own, which would be very many: where
     * nothing else binds it, only that it may not be empty is kept. */
    const textOf = (schema, path) => {
        const target = referred(parameters, schema),
            least = get(target, 'minLength'),
            has = key => get(target, key) !== undefined;
        const hasLengths = has('maxLength') || (typeof least === 'number' && least > 1);
        return hasLengths && !BINDS.some(has) ? 'xml-text' : ruleOf('raw', path, INSIDE);
    };
    const valueRule = (schema, path) => {
        const kinds = kindsOf(parameters, schema, 0, left);
        if (!(kinds & STRING) || kinds & QUOTED) return ruleOf('def', path);
        const text = textOf(schema, path);
        if (kinds === STRING) return text;
        return `(${text} | ${ruleOf('def', path, { not: { type: 'string' } })})`;
    };
    const parameter = ([key, schema]) => {
        const required = get(parameters, 'required');
        const must = Array.isArray(required) && required.includes(key),
            path = `/properties${pointer(key)}`;
        if (!hasName(key))
            refuse(
                `tools[${n}].function.parameters`,
                `#${path}: this model's calls have no <, > or newline in a parameter's name`
            );
        const value = valueRule(schema, path);
        const text = `${literal(`<parameter=${key}>\n`)} ${value} "\\n</parameter>\\n"`;
        return must ? ` ${text}` : ` (${text})?`;
    };
    const all =
        keeps && properties
            ? Object.entries(properties).map(parameter).join('')
            : !keeps || parameters !== undefined
              ? ' xml-any*'
              : '';
    return `${literal(`<function=${name}>\n`)}${all} "</function>"`;
}

/** What those need. */
export const xmlDefs = { xml: { type: 'string', ...INSIDE } };
export const xmlRules =
    'xml-text ::= raw-xml\n' +
    'xml-any ::= "<parameter=" [^>\\n]+ ">\\n" xml-text "\\n</parameter>\\n"\n';
