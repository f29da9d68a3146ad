// chat.mjs - chats with templates other than BitNet's, in Node.js
//
//     node tests/web/chat.mjs WEB CHAT_MODEL TEMPLATES FOLDER
//
// CHAT_MODEL makes models with the templates of TEMPLATES (tests/data/chat.json) in FOLDER. Their
// weights are random: a grammar says what they write. Each byte is a token, and each tag.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [web, maker, data, folder] = process.argv.slice(2);
const { BitNet, divideReply } = await import(pathToFileURL(resolve(web, 'node.js')));
const { templates, cases: rendered } = JSON.parse(readFileSync(data, 'utf8'));
const tokensIn = text =>
    text
        .replace(/<\|im_\w+\|>|<\|endoftext\|>|<\|(user|assistant)\|>/g, 'T')
        .replace(/<\/?think>/g, 'T').length;
const user = content => ({ role: 'user', content }),
    assistant = content => ({ role: 'assistant', content });
const THOUGHT = '<think>\nHm\n</think>\n\nYes';

const open = '<|im_start|>assistant\n';
const ask = text => `<|im_start|>user\n${text}<|im_end|>\n${open}`;
const falcon = text => `<|user|>\n${text}\n<|assistant|>\n`;
let passed = 0;

for (const [name, turn, behind] of [
    ['qwen-3', ask, '\n'],
    ['falcon-3', falcon, '\n']
]) {
    const [jinja, gguf] = [join(folder, `web-${name}.jinja`), join(folder, `web-${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, gguf]);
    const model = await BitNet.load(readFileSync(gguf));
    const write = async (messages, text, options = {}) => {
        const grammar = `root ::= ${JSON.stringify(text)}`;
        let reply = '';
        const pieces = model.chat(messages, { grammar, maxTokens: 200, ...options });
        for (;;) {
            const { done, value } = await pieces.next();
            if (done) return { reply, ...value };
            reply += value;
        }
    };
    const first = await write([user('x')], THOUGHT);
    assert.equal(first.reply, THOUGHT);
    assert.equal(first.reason, 'end');
    assert.equal(first.promptTokens, tokensIn(turn('x')));
    // the next turn finds the reply with its end token, and writes what is behind that
    const second = await write([user('x'), assistant(THOUGHT), user('y')], 'No');
    const held = first.promptTokens + first.tokens;
    assert.equal(second.promptTokens, held + tokensIn(behind + turn('y')));
    assert(second.reusedTokens >= held - 1, `${second.reusedTokens} of ${held}`);
    // a reply that was cut gets all that ends it
    const cut = await write([user('x')], 'abcdef', { maxTokens: 3 });
    const after = await write([user('x'), assistant(cut.reply), user('y')], 'No');
    const end = name === 'qwen-3' ? '<|im_end|>\n' : '<|endoftext|>\n';
    assert.equal(after.promptTokens, cut.promptTokens + cut.tokens + tokensIn(end + turn('y')));
    // a reply goes on in front of its end
    const messages = [user('x'), assistant(cut.reply), user('y'), assistant('No')];
    const more = await write(messages, 'more');
    assert.equal(more.promptTokens, after.promptTokens + 2);
    const off = await write([user('q')], 'A', { thinking: false });
    const none = name === 'qwen-3' ? '<think>\n\n</think>\n\n' : '';
    assert.equal(off.promptTokens, tokensIn(turn('q') + none));
    // a NUL is a character; a role that the template lacks is refused, wherever it stands
    const zero = await write([user('a\0b')], 'x\0y');
    assert.deepEqual([zero.reply, zero.promptTokens], ['x\0y', tokensIn(turn('a\0b'))]);
    await assert.rejects(write([user('x'), { role: 'narrator', content: 'y' }], 'z'), {
        code: 'ERR_ARG',
        message: "messages: the chat template has no role 'narrator'"
    });

    assert.deepEqual(divideReply(THOUGHT), { thinking: 'Hm', content: 'Yes' });
    const request = { messages: [user('q')], grammar: `root ::= ${JSON.stringify(THOUGHT)}` };
    const whole = await model.chat.completions.create(request);
    const { content, reasoning_content: thinking } = whole.choices[0].message;
    // a template that knows no thinking has a text that says so
    const expected = name === 'qwen-3' ? ['Hm', 'Yes'] : [undefined, THOUGHT];
    assert.deepEqual([thinking, content], expected);
    const told = { thinking: '', content: '' };
    for await (const { choices } of await model.chat.completions.create({
        ...request,
        stream: true
    })) {
        told.thinking += choices[0].delta.reasoning_content ?? '';
        told.content += choices[0].delta.content ?? '';
    }
    assert.deepEqual([told.thinking || undefined, told.content], expected);
    await model.free();
    passed++;
}
// a template that opens the thinking itself: the text shows it, and rules bind what stands behind it
{
    const name = 'qwen-3-thinking';
    const [jinja, gguf] = [join(folder, `web-${name}.jinja`), join(folder, `web-${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, gguf]);
    const model = await BitNet.load(readFileSync(gguf));
    const [close] = await model.tokenize('</think>', { special: true });
    const schema = { enum: ['abc', 'bcd'] };
    let thoughts = 0;
    for (const strength of [100, 4])
        for (const seed of [1, 2, 3, 4, 5, 6]) {
            const request = {
                messages: [user('x')],
                response_format: { type: 'json_schema', json_schema: { schema } },
                logit_bias: { [close]: strength },
                max_tokens: 1500,
                seed
            };
            const whole = await model.chat.completions.create(request);
            const { content, reasoning_content: thinking = '' } = whole.choices[0].message;
            assert(schema.enum.includes(JSON.parse(content)), content);
            assert(strength < 100 || !thinking, thinking);
            thoughts += thinking.length > 0;
        }
    assert(thoughts > 2, `${thoughts} thoughts`);
    const options = { jsonSchema: schema, logitBias: { [close]: 100 }, maxTokens: 99 };
    let text = '';
    for await (const piece of model.chat([user('x')], options)) text += piece;
    assert.match(text, /^<think>\n<\/think>\n\n"(abc|bcd)"$/);
    const held = model.stats.promptTokens + model.stats.tokens;
    for await (const piece of model.chat([user('x'), assistant(text), user('y')], options));
    assert(model.stats.reusedTokens >= held - 1, `${model.stats.reusedTokens} of ${held}`);
    await model.free();
    passed++;
}
// templates that open thinking, and write it in every reply; one has efforts
for (const name of ['qwen-3.6', 'qwen-3.8']) {
    const [jinja, gguf] = [join(folder, `web-${name}.jinja`), join(folder, `web-${name}.gguf`)];
    writeFileSync(jinja, templates[name]);
    execFileSync(maker, [jinja, gguf]);
    const model = await BitNet.load(readFileSync(gguf));
    const [close] = await model.tokenize('</think>', { special: true });
    const system = text => (text ? `<|im_start|>system\n${text}<|im_end|>\n` : '');
    const effort = name => rendered.find(c => c.effort === name && c.messages.length === 1).text;
    const said = e =>
        name === 'qwen-3.6' ? '' : (effort(e).match(/system\n([^]*?)<\|im_end/)?.[1] ?? '');
    const opened = `${ask('x')}<think>\n`;
    const write = async (messages, options = {}) => {
        const { text = 'Yes', ...more } = options;
        let reply = '';
        const pieces = model.chat(messages, {
            grammar: `root ::= ${JSON.stringify(text)}`,
            logitBias: { [close]: 100 },
            maxTokens: 99,
            ...more
        });
        for (;;) {
            const { done, value } = await pieces.next();
            if (done) return { reply, ...value };
            reply += value;
        }
    };
    for (const [options, e] of [
        [{}, 'xhigh'],
        [{ effort: 'low' }, 'low'],
        [{ effort: 'medium' }, 'medium'],
        [{ effort: 'high' }, 'xhigh']
    ]) {
        const { reply, promptTokens } = await write([user('x')], options);
        assert.equal(promptTokens, tokensIn(system(said(e)) + opened), e);
        assert.equal(reply, '<think>\n</think>\n\nYes');
    }
    const efforts = name === 'qwen-3.8' ? ['xhigh', 'medium', 'low'] : [];
    const template = name === 'qwen-3.8' ? name : 'qwen-3.5';
    assert.deepEqual(model.info.chat, { template, thinking: true, efforts });
    // a chat goes on behind what the session holds, unless what is in front changes
    const first = await write([user('x')]);
    const talk = [user('x'), assistant(first.reply), user('y')];
    const second = await write(talk);
    assert(second.reusedTokens >= first.promptTokens, `${second.reusedTokens}`);
    const other = await write(talk, { effort: 'low' });
    assert.equal(other.promptTokens + 50 < second.promptTokens, name === 'qwen-3.8');
    const off = await write([user('q')], { thinking: false });
    assert.equal(off.promptTokens, tokensIn(`${ask('q')}<think>\n\n</think>\n\n`));
    assert.equal(off.reply, 'Yes');
    // thinking of earlier replies
    const told = [user('x'), assistant('<think>\nHm\n</think>\n\nA'), user('y')];
    const lengths = [];
    for (const earlierThinking of [false, true, undefined])
        lengths.push((await write([user('z'), ...told], { earlierThinking })).promptTokens);
    assert.equal(lengths[1] - lengths[0], tokensIn('<think>\nHm\n</think>\n\n'));
    assert.equal(lengths[2], lengths[name === 'qwen-3.8' ? 1 : 0]);
    // a reply that goes on ends the thinking that its opening has begun
    for (const [begun, rest] of [
        ['Ye', '\n</think>\n\nYe'],
        ['<think>\nHm\n</think>\n\nYe', 'Hm\n</think>\n\nYe']
    ]) {
        const { reply, promptTokens } = await write([user('x'), assistant(begun)], { text: 's' });
        assert.equal(promptTokens, tokensIn(system(said('xhigh')) + opened + rest), begun);
        assert.equal(reply, 's');
        const quiet = { text: 's', thinking: false };
        const none = await write([user('x'), assistant(begun)], quiet);
        assert.equal(none.promptTokens, tokensIn(`${ask('x')}<think>\n\n</think>\n\nYe`), begun);
    }
    const request = {
        messages: [user('x')],
        grammar: 'root ::= "Yes"',
        logit_bias: { [close]: 100 }
    };
    const lengthOf = async more =>
        (await model.chat.completions.create({ ...request, ...more })).usage.prompt_tokens;
    const low = tokensIn(system(said('low')) + opened);
    assert.equal(await lengthOf({ reasoning_effort: 'low' }), low);
    assert.equal(await lengthOf({ chat_template_kwargs: { reasoning_effort: 'minimal' } }), low);
    assert.equal(await lengthOf({ reasoning_effort: 'none' }), off.promptTokens);
    const asked = [told[0], { ...assistant('A'), reasoning_content: 'Hm' }, told[2]];
    const kept = { messages: asked, preserve_thinking: true };
    const gone = { messages: asked, chat_template_kwargs: { preserve_thinking: false } };
    const thought = tokensIn('<think>\nHm\n</think>\n\n');
    assert.equal((await lengthOf(kept)) - (await lengthOf(gone)), thought);
    await assert.rejects(
        lengthOf({ reasoning_effort: 'some' }),
        /^BitNetError: reasoning_effort: none, minimal/
    );
    await model.free();
    passed++;
}
// templates that cannot be told not to think, and one that is not known
for (const [jinja, chat] of [
    [templates['qwen-3-thinking'], { template: 'qwen-3-thinking', thinking: false, efforts: [] }],
    [templates['falcon-3'], { template: 'falcon-3', thinking: false, efforts: [] }],
    ['{{ messages[0].content }}', null]
]) {
    const path = join(folder, 'web-info');
    writeFileSync(`${path}.jinja`, jinja);
    execFileSync(maker, [`${path}.jinja`, `${path}.gguf`]);
    const model = await BitNet.load(readFileSync(`${path}.gguf`));
    assert.deepEqual(model.info.chat, chat);
    if (!chat)
        await assert.rejects(async () => {
            for await (const text of model.chat([user('x')], { maxTokens: 1 })) assert(text);
        }, /^BitNetError: no chat/);
    await model.free();
    passed++;
}
console.log(`web chat: ${passed} passed, 0 failed, 0 skipped`);
process.exit(0);
