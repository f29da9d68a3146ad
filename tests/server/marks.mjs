// marks.mjs - models whose state cannot be cut back: what is read again, and that nothing else shows
//
//     node tests/server/marks.mjs SERVE HYBRID_MODEL [FILTER]
import { ask, check, metrics, runAll, same, start } from './server.mjs';

const [serve, model, filter = ''] = process.argv.slice(2);
const ARGS = ['-m', model, '-c', '1024'];
const letters = (n, from) =>
    Array.from({ length: n }, (_, i) => String.fromCharCode(97 + ((7 * i + from) % 26))).join('');
const SYSTEM = letters(200, 0);
const MARGIN = 8 + 2; // a mark is so far before the end of a prompt; BOS and a token more

/** A text, and how many tokens of its prompt were read for it. */
async function write(server, prompt, max_tokens = 20) {
    const before = (await metrics(server)).bitnet_prompt_tokens_total;
    const { json } = await ask(server, '/v1/completions', {
        prompt,
        max_tokens,
        temperature: 0,
        ignore_eos: true
    });
    const read = (await metrics(server)).bitnet_prompt_tokens_total - before;
    const { prompt_tokens, prompt_tokens_details } = json.usage;
    same(prompt_tokens - prompt_tokens_details.cached_tokens, read, 'what is not cached is read:');
    return { text: json.choices[0].text, n: prompt_tokens, read };
}

/** The same in a server that has nothing. */
async function afresh(prompt) {
    const server = await start(serve, [...ARGS, '-np', '1']);
    const { text, n, read } = await write(server, prompt);
    same(await server.stop(), 0);
    same(read, n);
    return text;
}

runAll(
    'marks',
    {
        async 'the next turn reads what is new, the last one again what differs'() {
            const server = await start(serve, [...ARGS, '-np', '2']);
            const ask1 = SYSTEM + letters(40, 3);
            const first = await write(server, ask1);
            same(first.read, first.n);
            const again = await write(server, ask1);
            check(again.read <= MARGIN, `regenerating reads ${again.read} tokens`);
            same(again.text, first.text);
            // what was written is a part of the prompt; letters stand for it, which are read
            const ask2 = ask1 + letters(30, 9);
            const second = await write(server, ask2);
            check(second.read <= 30 + MARGIN, `the next turn reads ${second.read} tokens`);
            const third = await write(server, ask2 + letters(50, 1));
            check(third.read <= 50 + MARGIN, `the turn after it reads ${third.read} tokens`);
            const edited = await write(server, ask2 + letters(50, 2));
            check(edited.read <= 50 + MARGIN, `an edited turn reads ${edited.read} tokens`);
            same(second.text, await afresh(ask2));
            same(edited.text, await afresh(ask2 + letters(50, 2)));
            same(await server.stop(), 0);
        },

        async 'chats that begin alike read the beginning twice, and then no more'() {
            const server = await start(serve, [...ARGS, '-np', '3']);
            const chats = [5, 11, 17, 23].map(i => SYSTEM + letters(60, i));
            const read = [];
            for (const chat of chats) {
                const { text, read: n } = await write(server, chat);
                same(text, await afresh(chat));
                read.push(n);
            }
            check(read[1] > 200 && read[2] <= 60 + MARGIN && read[3] <= 60 + MARGIN, read);
            same(await server.stop(), 0);
        },

        async 'several at a time write what each writes alone'() {
            const server = await start(serve, [...ARGS, '-np', '4']);
            const prompts = [];
            for (let i = 0; i < 12; i++)
                prompts.push(SYSTEM.slice(0, 40 * (i % 5)) + letters(30 + i, i));
            const all = await Promise.all(
                [...prompts, ...prompts].map(prompt =>
                    ask(server, '/v1/completions', { prompt, max_tokens: 20, temperature: 0 })
                )
            );
            for (let i = 0; i < 12; i++)
                same(all[i].json.choices[0].text, all[i + 12].json.choices[0].text);
            for (const i of [3, 4, 8, 9]) {
                const alone = await start(serve, [...ARGS, '-np', '1']);
                const { json } = await ask(alone, '/v1/completions', {
                    prompt: prompts[i],
                    max_tokens: 20,
                    temperature: 0
                });
                same(json.choices[0].text, all[i].json.choices[0].text);
                same(await alone.stop(), 0);
            }
            same(await server.stop(), 0);
        }
    },
    filter
).then(failed => process.exit(failed ? 1 : 0));
