// Divides a reply, or what there is of it, into thinking and text, for models that think first:
// <think> ... </think>. openai/parts.js does it piece by piece, with calls.
const OPEN = '<think>',
    CLOSE = '</think>';

/** { thinking, content } of a reply so far; content is null while it is not certain that there will
 * be no thinking, or as long as the model thinks. */
export function divide(text) {
    const start = text.trimStart();
    if (!start.startsWith(OPEN))
        return { thinking: '', content: OPEN.startsWith(start) ? null : text };
    const at = start.indexOf(CLOSE);
    if (at < 0) {
        let end = start.length; // what may become </think>, and newlines, are not shown yet
        for (let n = Math.min(CLOSE.length - 1, end - OPEN.length); n > 0; n--)
            if (CLOSE.startsWith(start.slice(end - n))) {
                end -= n;
                break;
            }
        const thinking = start.slice(OPEN.length, end);
        return { thinking: thinking.replace(/^\n+|\n+$/g, ''), content: null };
    }
    return {
        thinking: start.slice(OPEN.length, at).replace(/^\n+|\n+$/g, ''),
        content: start.slice(at + CLOSE.length).replace(/^\n+/, '')
    };
}
