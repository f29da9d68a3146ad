// Rules of grammars, in GBNF, that both sides write.

/** A text as it stands. */
export function literal(text) {
    const hex = c => `\\x${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
    return `"${text.replace(/[\0-\x1f\x7f"\\]/g, hex)}"`;
}

/** The rule `name`: any text without this tag. Each < may begin the tag, so as much of it as
 * there may be (NAME-part) stands before the end, the next <, or a character with which it is
 * no tag (NAME-on). */
export function without(name, tag) {
    const behind = [...tag].slice(1);
    const part =
        behind
            .slice(0, -1)
            .map(c => ` ("${c}"`)
            .join('') + ')?'.repeat(behind.length - 1);
    const on = behind.map((c, i) => `"${tag.slice(0, i + 1)}" [^<${c}]`).join(' | ');
    return (
        `${name} ::= ([^<] | ${name}-part* ${name}-on)* ${name}-part*\n` +
        `${name}-part ::= "<"${part}\n${name}-on ::= ${on}\n`
    );
}
