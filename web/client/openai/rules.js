// What a reply has to keep to: structured output, and calls of tools. serve does the same:
// examples/server/rules.c.
import { BitNetError } from '../../shared/errors.js';
import { hasName, jsonForm, literal, xmlDefs, xmlForm, xmlRules } from './calls.js';
import { flag, refuse, string } from './fields.js';
import { get, isObject, parsed, spaced } from './json.js';

function exclude(one, other) {
    throw new BitNetError('ERR_ARG', `${one} and ${other} exclude each other`);
}

// ---- structured output: each is { field, schema } or { field, grammar } ----

const ANY_OBJECT = { type: 'object' };

function schemaOf(field, value) {
    const text = string(value);
    if (text === undefined && !isObject(value) && typeof value !== 'boolean')
        refuse(field, 'a JSON schema is needed');
    return { field, schema: text ?? JSON.stringify(value) };
}

function grammarOf(field, value) {
    if (string(value) === undefined) refuse(field, 'a string without NUL is needed');
    return { field, grammar: value };
}

/** One of these texts. */
function choiceOf(field, value) {
    if (!Array.isArray(value) || !value.length) refuse(field, 'a list of texts is needed');
    if (value.some(text => string(text) === undefined))
        refuse(field, 'a list of strings without NUL is needed');
    return { field, grammar: `root ::= ${value.map(literal).join(' | ')}` };
}

function formatOf(field, value) {
    const type = get(value, 'type'),
        format = get(value, 'json_schema'),
        beside = get(value, 'schema'),
        schema = beside ?? get(format, 'schema');
    if (type === 'text') return null;
    if (beside !== undefined && format !== undefined)
        refuse(field, 'schema and json_schema exclude each other');
    if (type !== 'json_object' && type !== 'json_schema')
        refuse(field, 'its type must be text, json_object or json_schema');
    if (schema !== undefined) return schemaOf(field, schema);
    if (type === 'json_object' && format === undefined) return schemaOf(field, ANY_OBJECT);
    return refuse(field, 'json_schema: {"schema": ...} is needed');
}

/** vLLM's. */
function structuredOf(field, value) {
    if (!isObject(value)) refuse(field, 'an object is needed');
    const given = Object.entries(value).filter(([, v]) => v !== null && v !== false);
    return given.map(([key, v]) => {
        if (key === 'json') return schemaOf(field, v);
        if (key === 'choice') return choiceOf(field, v);
        if (key === 'json_object' && v === true) return schemaOf(field, ANY_OBJECT);
        return refuse(
            field,
            "only json, json_object: true and choice are possible; the field grammar takes llama.cpp's GBNF"
        );
    });
}

/** Ollama's. */
function ollamaOf(field, value) {
    if (value === 'json') return schemaOf(field, ANY_OBJECT);
    if (isObject(value)) return schemaOf(field, value);
    return value === '' ? null : refuse(field, '"json" or a JSON schema is needed');
}

const FIELDS = {
    response_format: formatOf,
    grammar: grammarOf,
    json_schema: schemaOf,
    guided_json: schemaOf,
    guided_choice: choiceOf,
    structured_outputs: structuredOf,
    format: ollamaOf
};

/** What a text keeps to; null: nothing. */
export function rulesOf(request) {
    let found = null;
    for (const [field, read] of Object.entries(FIELDS)) {
        const value = get(request, field);
        if (value === undefined) continue;
        for (const one of [read(field, value)].flat()) {
            if (one && found) exclude(found.field, field);
            found = one ?? found;
        }
    }
    return found;
}

// ---- tools ----

const nameOf = tool => string(get(get(tool, 'function'), 'name'));

function toolOf(tool, isXml) {
    const name = nameOf(tool);
    if (get(tool, 'type') !== 'function')
        refuse('tools', 'only tools of the type function are possible');
    if (!name) refuse('tools', 'a function needs a name');
    if (isXml && !hasName(name))
        refuse('tools', "this model's calls have no <, > or newline in a function's name");
    return spaced(JSON.stringify(tool));
}

const MOST_ALLOWED = 128;

/** {"mode": "auto", "tools": [...]}: the model sees all tools, and calls are of these. */
function allowedOf(value, tools) {
    const mode = get(value, 'mode'),
        list = get(value, 'tools');
    if (mode !== 'auto' && mode !== 'required')
        refuse('tool_choice', 'the mode of allowed_tools must be auto or required');
    if (!Array.isArray(list) || !list.length || list.length > MOST_ALLOWED)
        refuse('tool_choice', 'allowed_tools needs tools, a list of 1 to 128 functions');
    for (const tool of list) {
        if (nameOf(tool) === undefined || get(tool, 'type') !== 'function')
            refuse('tool_choice', 'only functions can be in allowed_tools');
        if (!tools?.some(one => nameOf(one) === nameOf(tool)))
            refuse('tool_choice', 'tools has no function of this name');
    }
    return { names: list.map(nameOf), isAllowed: true, must: mode === 'required' };
}

/** names: of the functions that may be called; undefined: of all. */
function choiceOfTools(request, tools) {
    const choice = get(request, 'tool_choice'),
        type = get(choice, 'type'),
        word = type ?? choice, // Cursor sends {"type": "auto"}
        name = nameOf(choice),
        must = name !== undefined || word === 'required';
    if (type === 'allowed_tools') return allowedOf(get(choice, 'allowed_tools'), tools);
    if (
        (name !== undefined && type !== 'function') ||
        (choice !== undefined && !must && !['none', 'auto'].includes(word))
    )
        refuse(
            'tool_choice',
            'none, auto, required or {"type": "function", "function": {"name": ...}} is needed'
        );
    const one = name !== undefined;
    return { names: one ? [name] : undefined, one, must, isNone: word === 'none' };
}

/** A schema as one of several in a document. Its references begin at itself, since it has an $id
 * there: its own, or one of ours. */
const withId = (schema, name, more) =>
    get(schema, '$id') === undefined
        ? { $id: `urn:of:${name}`, ...more, ...schema }
        : { ...more, ...schema };

/** The schema of a function's arguments, which are an object. */
function argumentsOf(parameters, n) {
    if (parameters === undefined) return { type: 'object', properties: {} }; // there are none, says OpenAI
    const type = get(parameters, 'type');
    if (!isObject(parameters)) refuse('tools', 'parameters must be a JSON schema');
    if (type !== undefined && type !== 'object')
        refuse('tools', 'parameters must have the type object');
    const isOpen = ['type', '$ref', 'anyOf', 'oneOf', 'allOf'].every(
        key => get(parameters, key) === undefined
    );
    return withId(parameters, n, isOpen ? ANY_OBJECT : {});
}

/** The tools of a chat; null: none are seen. lines: as the model reads them. forms and defs:
 * what calls keep to. */
export function toolsOf(request, isXml) {
    const tools = get(request, 'tools'),
        old = get(request, 'functions'),
        many = flag(request, 'parallel_tool_calls', true);
    if (old !== undefined && !Array.isArray(old)) refuse('functions', 'a list is needed');
    if (old?.length) refuse('functions', 'this was replaced by tools');
    if (tools !== undefined && !Array.isArray(tools)) refuse('tools', 'a list is needed');
    const choice = choiceOfTools(request, tools);
    if (choice.must && !tools?.length) refuse('tool_choice', 'there are no tools');
    if (!tools?.length) return null;
    const lines = tools.map(tool => toolOf(tool, isXml)).join('\n');
    if (choice.isNone) return null;
    const forms = [],
        defs = isXml ? { ...xmlDefs } : {};
    let strictBy; // the field that makes them keep to it
    for (const [n, { function: f }] of tools.entries()) {
        const strict = flag(f, 'strict'),
            keeps = strict || choice.must;
        if (choice.names && !choice.names.includes(f.name)) continue;
        if (strict || choice.isAllowed) strictBy = strict ? 'strict' : 'tool_choice';
        const parameters = get(f, 'parameters'),
            id = get(parameters, '$id') ?? `urn:of:${n}`;
        defs[n] = keeps ? argumentsOf(parameters, n) : ANY_OBJECT;
        forms.push(
            isXml ? xmlForm({ name: f.name, parameters }, n, keeps, id, defs) : jsonForm(f.name, n)
        );
    }
    if (!forms.length) refuse('tool_choice', 'tools has no function of this name');
    return {
        tools,
        lines,
        forms: forms.join(' | '),
        rules: isXml ? xmlRules : '',
        defs,
        strictBy,
        must: choice.must,
        one: !many || choice.one
    };
}

// ---- the grammar ----

/** The options of a generation for what a text keeps to, and what its calls do. explain(error):
 * what is wrong with a grammar, by the name of its field. */
export function grammarOptions(text, tools) {
    const binds = tools && (tools.must || tools.strictBy || text?.schema !== undefined);
    const param = tools?.must ? 'tool_choice' : tools?.strictBy ? 'tools' : text?.field;
    if (!binds) {
        const rules =
            text &&
            (text.schema === undefined ? { grammar: text.grammar } : { jsonSchema: text.schema });
        return { ...rules, explain: message => `${param}: ${message}` };
    }
    if (text?.grammar !== undefined) exclude(tools.must ? 'tool_choice' : tools.strictBy, text.field);
    const defs = { ...tools.defs };
    if (text && !tools.must) {
        const schema = parsed(text.schema);
        if (schema === undefined) refuse(text.field, 'a JSON schema is needed');
        defs.text = isObject(schema) ? withId(schema, 'text', {}) : schema;
    }
    const { forms, rules, one, must } = tools;
    return {
        jsonSchema: JSON.stringify({ $defs: defs }),
        calls: { forms, rules, one, must, hasText: Boolean(text), isStrict: Boolean(tools.strictBy) },
        explain(message) {
            const [, n, rest] = /#\/\$defs\/(text|\d+)?[-\d]*([^]*)/.exec(message) ?? [];
            if (rest === undefined) return `${param}: ${message}`;
            return n === 'text'
                ? `${text.field}: #${rest}`
                : `tools[${n}].function.parameters: #${rest}`;
        }
    };
}
