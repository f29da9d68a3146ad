// passages.js - cuts a text into passages, which are what is searched for: paragraphs, and parts of
// long ones.
const MOST_WORDS = 200;
const MOST_CHARACTERS = 1600; // for what has few spaces or long words
const SHORT = 60; // characters; so short a paragraph, such as a heading, belongs to what follows

// The place without the white space at both ends; null if nothing is left.
function trimmed(text, [from, to]) {
    const part = text.slice(from, to),
        start = from + part.length - part.trimStart().length,
        end = from + part.trimEnd().length;
    return start < end ? [start, end] : null;
}

// What stands between empty lines.
function* paragraphs(text) {
    let from = 0;
    for (const gap of text.matchAll(/\n[ \t\r]*\n/g)) {
        yield [from, gap.index];
        from = gap.index + gap[0].length;
    }
    yield [from, text.length];
}

// The length of the first words of a text that are not too many.
function fitting(text) {
    let words = 0;
    for (const word of text.matchAll(/\S+\s*/g))
        if (++words > MOST_WORDS) return word.index;
    return text.length;
}

// Where a part that is long enough ends: behind a sentence in its second half, or else a word.
function cutOf(part) {
    for (const end of [/[.!?…]["'”’)\]]*\s|[。！？\n]/g, /\s/g]) {
        const last = [...part.matchAll(end)].at(-1),
            cut = last ? last.index + last[0].length : 0;
        if (cut > part.length / 2) return cut;
    }
    return /[\uD800-\uDBFF]$/.test(part) ? part.length - 1 : part.length;
}

function* parts(text, [start, end]) {
    for (let from = start; from < end; ) {
        const whole = text.slice(from, Math.min(end, from + MOST_CHARACTERS)),
            part = whole.slice(0, fitting(whole)),
            cut = from + part.length < end ? cutOf(part) : part.length;
        yield [from, from + cut];
        from += cut;
    }
}

// The passages of a text, in order: the start and the end of each.
export function* passages(text) {
    let heading = null;
    for (const paragraph of paragraphs(text))
        for (const part of parts(text, paragraph)) {
            const place = trimmed(text, part);
            if (!place) continue;
            if (heading) place[0] = heading[0];
            heading = place[1] - place[0] < SHORT ? place : null;
            if (!heading) yield place;
        }
    if (heading) yield heading;
}
