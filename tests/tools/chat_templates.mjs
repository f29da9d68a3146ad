// node chat_templates.mjs FILE [--write]: are the texts of FILE (tests/data/chat.json) what a Jinja
// engine makes of its templates? The templates do what those of the models do (see "chat templates"
// in bitnet.h), and test_chat.c compares the library with the texts.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { Template } from '@huggingface/jinja';

const [file, write] = process.argv.slice(2);
const data = JSON.parse(fs.readFileSync(file, 'utf8'));

function render(one) {
    return new Template(data.templates[one.template]).render({
        messages: one.messages.map(({ role, content, jinja }) => ({ role, content, ...jinja })),
        ...(one.tools && { tools: one.tools.map(text => JSON.parse(text)) }),
        ...(one.thinking === 'off' && { enable_thinking: false }),
        bos_token: '<|begin_of_text|>',
        eos_token: '<|endoftext|>',
        add_generation_prompt: one.open !== false
    });
}

for (const one of data.cases) {
    const text = render(one);
    if (write) one.text = text;
    else assert.equal(one.text, text, JSON.stringify(one));
}
assert(data.cases.length > 40);
if (write) fs.writeFileSync(file, JSON.stringify(data, null, 1) + '\n');
console.log(`${data.cases.length} texts of ${Object.keys(data.templates).length} templates`);
