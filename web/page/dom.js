// dom.js - small helpers for the document, and questions that are asked in place.

export const $ = id => document.getElementById(id);

export function element(tag, text, className) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
}

export function button(text, className, onclick) {
    const b = element('button', text, className);
    b.type = 'button';
    b.onclick = onclick;
    return b;
}

// Whether the key is for an input method, which composes a word. Safari says so with the code alone
// where the composition has just ended.
export const composing = e => e.isComposing || e.keyCode === 229;

// once(f) returns a function that calls f in the next frame, once, however often it is called before.
// A page in the background has no frames, but nobody looks at it.
export function once(f) {
    let asked = 0;
    return () => {
        asked ||= requestAnimationFrame(() => {
            asked = 0;
            f();
        });
    };
}

// Tells it to screen readers. The same sentence twice is told twice.
export function announce(text) {
    $('status').replaceChildren(element('span', text));
}

// Asks below `place`. Resolves to whether the answer was yes; Escape and “Cancel” are no.
export function ask(place, question, yes) {
    document.querySelector('.ask')?.decline();
    const back = document.activeElement;
    return new Promise(resolve => {
        const box = element('div', undefined, 'ask'),
            text = element('p', question);
        const end = answer => {
            box.remove();
            back?.focus();
            resolve(answer);
        };
        box.decline = () => end(false);
        const no = button('Cancel', undefined, box.decline);
        box.role = 'group';
        box.ariaLabel = question;
        box.onkeydown = e => {
            if (e.key !== 'Escape') return;
            e.stopPropagation();
            end(false);
        };
        box.append(
            text,
            button(yes, 'yes', () => end(true)),
            no
        );
        place.append(box);
        no.focus();
    });
}
