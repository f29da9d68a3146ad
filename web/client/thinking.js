// Divides a reply that comes piece by piece into thinking and text, for models that think first:
// <think> ... </think>. bitnet_reply_next does the same in C.
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

/** The same for pieces: add(piece) gives what is new of { thinking, content }, and end() what was
 * held back. */
export function divider() {
    let text = '',
        told = { thinking: '', content: '' };
    const news = parts => {
        const fresh = {
            thinking: parts.thinking.slice(told.thinking.length),
            content: (parts.content ?? '').slice(told.content.length)
        };
        told = { thinking: parts.thinking, content: parts.content ?? '' };
        return fresh;
    };
    return {
        add: piece => news(divide((text += piece))),
        end() {
            const parts = divide(text),
                start = text.trimStart();
            if (parts.content === null && start.startsWith(OPEN))
                parts.thinking = start.slice(OPEN.length).replace(/^\n+/, '');
            else parts.content ??= text;
            return news(parts);
        }
    };
}

/** What divide() takes apart. */
export const join = (thinking, content) =>
    thinking ? `${OPEN}\n${thinking}\n${CLOSE}\n\n${content}` : content;
