// The fields of a request: what each may be, and what is said of one that cannot be. serve has the
// same: examples/server/fields.c, request.c. What is not given is null or not there; a field that
// nobody knows is without effect, as clients expect.
import { BitNetError } from '../../shared/errors.js';
import { get, isObject } from './json.js';

export const refuse = (field, what) => {
    throw new BitNetError('ERR_ARG', `${field}: ${what}`);
};

export function number(request, field, low, high, fallback) {
    const value = get(request, field);
    if (value === undefined) return fallback;
    if (typeof value !== 'number' || !(value >= low && value <= high))
        refuse(field, `a number from ${low} to ${high} is needed`);
    return value;
}

export function whole(request, field, low, high, fallback) {
    const value = number(request, field, low, high, fallback);
    if (value !== undefined && !Number.isInteger(value)) refuse(field, 'a whole number is needed');
    return value;
}

export function flag(object, field, fallback = false) {
    const value = get(object, field) ?? fallback;
    if (typeof value !== 'boolean') refuse(field, 'true or false is needed');
    return value;
}

/** A text without NUL; undefined if it is none. */
export const string = value =>
    typeof value === 'string' && !value.includes('\0') ? value : undefined;

// ---- the sampler ----

export const MOST = 2 ** 31 - 1;

/** Any whole number that has 64 bits, by the digits that JSON has for it; -1 is any, as if there
 * was none. */
export function seedOf(request) {
    const seed = get(request, 'seed');
    const isWhole = typeof seed === 'bigint' || Number.isInteger(seed);
    const whole = isWhole && Math.abs(Number(seed)) < 1e21 ? BigInt(String(seed)) : 2n ** 64n;
    if (seed !== undefined && !(whole >= -(2n ** 63n) && whole < 2n ** 64n))
        refuse(
            'seed',
            'a whole number from -9223372036854775808 to 18446744073709551615 is needed'
        );
    if (seed === undefined || whole === -1n) return BigInt(Math.floor(Math.random() * MOST));
    return BigInt.asUintN(64, whole);
}

const plain = seed => (seed <= Number.MAX_SAFE_INTEGER ? Number(seed) : seed);

/** splitmix64: the seed of text number i; the first has the seed itself. It is a number where that
 * holds it, for it stands in the stats. */
export function seedOfText(seed, i) {
    if (!i) return plain(seed);
    const bits = x => BigInt.asUintN(64, x);
    let x = bits(seed + BigInt(i) + 0x9e3779b97f4a7c15n);
    x = bits((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n);
    x = bits((x ^ (x >> 27n)) * 0x94d049bb133111ebn);
    return plain(x ^ (x >> 31n));
}

export function biasOf(request, vocabulary) {
    const bias = get(request, 'logit_bias') ?? {};
    if (!isObject(bias)) refuse('logit_bias', 'an object of tokens and numbers is needed');
    return Object.entries(bias).map(([key, value]) => {
        if (!/^\d+$/.test(key) || Number(key) >= vocabulary)
            refuse('logit_bias', 'a key is no token of the vocabulary');
        if (typeof value !== 'number' || !(value >= -100 && value <= 100))
            refuse('logit_bias', 'a number from -100 to 100 is needed');
        return [Number(key), value === -100 ? -Infinity : value];
    });
}

const MOST_STOPS = 64,
    MOST_STOP_BYTES = 16 << 10;

export function stopsOf(request) {
    const stop = get(request, 'stop') ?? [],
        list = Array.isArray(stop) ? stop : [stop];
    if (list.length > MOST_STOPS) refuse('stop', 'too many strings');
    let bytes = 0;
    for (const one of list) {
        if (!string(one))
            refuse('stop', 'a string without NUL that is not empty, or a list of these, is needed');
        bytes += new TextEncoder().encode(one).length;
        if (bytes > MOST_STOP_BYTES)
            refuse('stop', `the strings have more than ${MOST_STOP_BYTES} bytes together`);
    }
    return list;
}

/** Its names are those of OpenAI, old and new, and of llama.cpp's server. 0: as far as it goes. */
export function lengthOf(request) {
    let given,
        most = -1;
    for (const name of ['max_completion_tokens', 'max_tokens', 'n_predict']) {
        const n = whole(request, name, -1, MOST);
        if (n === undefined) continue;
        if (n === 0) refuse(name, 'at least 1 is needed');
        if (given && n !== most) throw new BitNetError('ERR_ARG', `${given} and ${name} differ`);
        given = name;
        most = n;
    }
    return Math.max(most, 0);
}

/** undefined: none are wanted. */
export function logprobsOf(request) {
    const all = flag(request, 'logprobs'),
        top = whole(request, 'top_logprobs', 0, 20, 0);
    if (!all && top) refuse('top_logprobs', 'it needs logprobs: true');
    return all ? top : undefined;
}

// ---- what cannot be ----

/** Fields that would change the result, and are refused unless they say what is so anyway: such
 * values, in JSON, and what to do instead. */
const IMPOSSIBLE = [
    ['audio'],
    ['echo', 'false', '/v1/completions has it'],
    ['function_call', '"none" "auto"', 'this was replaced by tool_choice'],
    ['modalities', '["text"]'],
    ['prompt', '', '/v1/completions has it'],
    ['verbosity', '"medium"', 'say it in a message'],
    ['web_search_options'],
    ['add_generation_prompt', 'true'],
    ['chat_template', '', '/v1/completions takes the text that it makes'],
    ['dry_multiplier', '0'],
    ['dynatemp_range', '0'],
    ['grammar_lazy', 'false'],
    ['input_extra', '[]'],
    ['input_prefix', '""'],
    ['input_suffix', '""'],
    ['lora', '[]'],
    ['min_keep', '0 1'],
    ['mirostat', '0'],
    ['n_cmpl', '1', 'n has it'],
    ['n_indent', '0'],
    ['n_probs', '0', 'logprobs has it'],
    ['post_sampling_probs', 'false'],
    ['reasoning_format', '"auto" "deepseek"'],
    ['response_fields', '[]'],
    ['return_tokens', 'false'],
    ['samplers'],
    ['t_max_predict_ms', '0 -1'],
    ['thinking_budget_tokens', '-1'],
    ['top_n_sigma', '-1 0'],
    ['typical_p', '1'],
    ['xtc_probability', '0'],
    ['add_special_tokens', 'false'],
    ['allowed_token_ids', '[]', 'logit_bias or grammar may do'],
    ['bad_words', '[]', 'logit_bias may do'],
    ['ebnf', '""', "grammar has it, in llama.cpp's GBNF"],
    ['guided_grammar', '""', "grammar has it, in llama.cpp's GBNF"],
    ['guided_regex', '""', "grammar may do, in llama.cpp's GBNF"],
    ['guided_whitespace_pattern'],
    ['include_stop_str_in_output', 'false'],
    ['length_penalty', '1'],
    ['min_tokens', '0'],
    ['options', '{}', 'its fields stand in the body'],
    ['prompt_logprobs', '', 'echo with logprobs gives them, in /v1/completions'],
    ['regex', '""', "grammar may do, in llama.cpp's GBNF"],
    ['repetition_penalty', '1', 'repeat_penalty with repeat_last_n -1 has it'],
    ['skip_special_tokens', 'true'],
    ['stop_token_ids', '[]', 'stop may do'],
    ['structural_tag'],
    ['think', '', 'enable_thinking has it'],
    ['truncate_prompt_tokens'],
    ['use_beam_search', 'false']
];

export function refuseImpossible(request) {
    for (const [field, possible = '', instead] of IMPOSSIBLE) {
        const value = get(request, field);
        if (value === undefined || possible.split(' ').includes(JSON.stringify(value))) continue;
        const only = possible ? `only ${possible}` : 'nothing of this';
        refuse(field, `${only} is possible here${instead ? `: ${instead}` : ''}`);
    }
}
