// JSON as models write and read it: texts, whose numbers stay as they are written.

/** The value of an object's key; undefined if there is none, or null. */
export const get = (object, key) =>
    isObject(object) && Object.hasOwn(object, key) ? (object[key] ?? undefined) : undefined;

export const isObject = value =>
    typeof value === 'object' && value !== null && !Array.isArray(value);

/** What a JSON text says; undefined if it is none. */
export function parsed(text) {
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}

/** A string in quotes. */
export const quoted = text =>
    `"${text.replace(/["\\\0-\x1f\x7f]/g, c =>
        c === '\n'
            ? '\\n'
            : /["\\]/.test(c)
              ? `\\${c}`
              : `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
    )}"`;

const partsOf = text => text.match(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g) ?? [];

/** A JSON text with these behind each value and key. */
export const spaced = (text, comma = ', ', colon = ': ') =>
    partsOf(text)
        .map(part =>
            part[0] === '"'
                ? quoted(JSON.parse(part))
                : part === ','
                  ? comma
                  : part === ':'
                    ? colon
                    : part
        )
        .join('');

export const compact = text => spaced(text, ',', ':');

/** An object's keys with the texts of their values, or a list's indices with those of its elements, as
 * pairs in the order of the text. */
export function members(text) {
    const all = [];
    let depth = 0,
        key = -1,
        value = '';
    const isList = partsOf(text)[0] === '[';
    for (const part of partsOf(text)) {
        if ('}]'.includes(part)) depth--;
        if ((depth === 1 && part === ',') || depth === 0) {
            if (value) all.push([isList ? ++key : key, value]);
            value = '';
        } else if (depth === 1 && part === ':' && !isList) {
            key = JSON.parse(value);
            value = '';
        } else value += part;
        if ('{['.includes(part)) depth++;
    }
    return all;
}
