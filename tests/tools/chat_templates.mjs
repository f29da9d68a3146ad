// node chat_templates.mjs FILE [--write]: are the texts of FILE (tests/data/chat.json) what a Jinja
// engine makes of its templates? The templates do what those of the models do (see @chat in
// bitnet.h), and those of `near` nearly that: their texts are of the chats in `near_chats`, null
// where the template refuses one. `snippets` are for the library's reader of Jinja; their names
// have the values of `snippet_names`. test_chat.c compares the library with the texts.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { Template } from '@huggingface/jinja';

const [file, write] = process.argv.slice(2);
const data = JSON.parse(fs.readFileSync(file, 'utf8'));

function render(template, one) {
    return new Template(template).render({
        messages: one.messages.map(({ role, content, jinja }) => ({ role, content, ...jinja })),
        ...(one.tools && { tools: one.tools.map(text => JSON.parse(text)) }),
        ...(one.thinking === 'off' && { enable_thinking: false }),
        ...(one.effort && { reasoning_effort: one.effort }),
        ...(one.earlier && { preserve_thinking: one.earlier === 'stays' }),
        bos_token: '<|begin_of_text|>',
        eos_token: '<|endoftext|>',
        add_generation_prompt: one.open !== false
    });
}

function orNull(render) {
    try {
        return render();
    } catch {
        return null;
    }
}

for (const one of data.cases) {
    const text = render(data.templates[one.template], one);
    if (write) one.text = text;
    else assert.equal(one.text, text, JSON.stringify(one));
}
for (const near of data.near) {
    const texts = data.near_chats.map(one => orNull(() => render(near.template, one)));
    if (write) near.texts = texts;
    else assert.deepEqual(near.texts, texts, near.name);
}
const names = JSON.parse(data.snippet_names);
for (const one of data.snippets) {
    const text = orNull(() => new Template(one.template).render(names));
    if (write) one.text = text;
    else assert.equal(one.text, text, one.template);
}
assert(data.cases.length > 40 && data.near.length > 40 && data.near_chats.length > 10 &&
    data.snippets.length > 40);
if (write) fs.writeFileSync(file, JSON.stringify(data, null, 1) + '\n');
console.log(`${data.cases.length} texts of ${Object.keys(data.templates).length} templates, ` +
    `of ${data.near.length} near to them, and of ${data.snippets.length} snippets`);
