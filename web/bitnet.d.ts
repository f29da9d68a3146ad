// bitnet.js - BitNet b1.58 models in browsers and Node 20+
//
//     import { BitNet } from './bitnet.js';
//     const model = await BitNet.load('model.gguf');
//     for await (const text of model.generate('Once upon a time', { maxTokens: 100 })) show(text);
//     await model.free();

declare global {
    interface SymbolConstructor {
        readonly asyncDispose: unique symbol;
    }
}

/** A URL (relative to the page), in Node also a path; `hf:owner/repository[@revision]/path`, a file on
 * huggingface.co; a file that the user chose; or bytes. */
export type Source = string | URL | File | Blob | ArrayBuffer | ArrayBufferView;

/** A model in several files, as llama-gguf-split makes them: all of them, in any order. The URL, address or
 * path of one of them, NAME-00001-of-00003.gguf, stands for all, too. */
export type Sources = readonly Source[];

export type Variant = 'simd' | 'threads' | 'relaxed';

/** Where the file is kept. 'none': only in the model's own memory. */
export type CacheKind = 'opfs' | 'cache' | 'memory' | 'none';

/** The library's codes and those of this module. An abort throws the signal's reason instead: by
 * default a DOMException named AbortError, or TimeoutError for AbortSignal.timeout. */
export type ErrorCode =
    | 'ERR_ARG'
    | 'ERR_MEMORY'
    | 'ERR_IO'
    | 'ERR_TRUNCATED'
    | 'ERR_FORMAT'
    | 'ERR_UNSUPPORTED'
    | 'ERR_LIMIT'
    | 'ERR_FULL'
    | 'ERR_SELFTEST'
    /** The engine has no WebAssembly SIMD. */
    | 'ERR_NO_SIMD'
    | 'ERR_NETWORK'
    /** The server answered with an error: `status`. */
    | 'ERR_HTTP'
    /** fetch failed. Browsers do not say whether the network or the server's CORS policy did it. */
    | 'ERR_CORS_OR_NETWORK'
    | 'ERR_QUOTA'
    /** The file does not have the given `sha256`. */
    | 'ERR_CHECKSUM'
    /** The session is generating, or the cached file is in use. Inline: another model is open. */
    | 'ERR_BUSY'
    /** free() of the model or session has been called. */
    | 'ERR_FREED'
    /** A crash. The model is lost, and all later calls fail with this code. */
    | 'ERR_INTERNAL';

/** Divides what a model has written so far: thinking, which stands between <think> and </think> in
 * front, and content; null: there may still be thinking before it. */
export function divideReply(text: string): { thinking: string; content: string | null };

/** Why a variant cannot run here, for the user; '': it can. */
export function variants(): Record<Variant, string>;

export class BitNetError extends Error {
    constructor(code: ErrorCode, message: string, status?: number);
    readonly code: ErrorCode;
    /** HTTP status of ERR_HTTP. */
    readonly status?: number;
}

export interface Progress {
    /** From the network; from the cache, the disk or memory; preparing the model. */
    phase: 'download' | 'read' | 'load';
    /** Bytes. */
    loaded: number;
    /** Bytes; undefined if the server does not say. */
    total?: number;
    bytesPerSecond: number;
    secondsLeft?: number;
    fromCache?: boolean;
    cache?: CacheKind;
    /** Nothing came for so many seconds, 3 or more. */
    stalledSeconds?: number;
    /** Another tab or worker downloads the same file, and this one waits for it. */
    elsewhere?: true;
}

/** An option that is not in this list is an error, as is a value out of range. */
export interface LoadOptions {
    /** 1 to 256. Default: the number of CPUs, at most 8. Always 1 without SharedArrayBuffer. */
    threads?: number | undefined;
    /** Tokens of prompt and answer together, up to 2^20. Default: 4096 (2048 if the model only makes
     * embeddings), or what it was trained for if that is less. A longer one works, and `Info.notes` says
     * that texts may become worse. Fewer than 9 are ERR_ARG. */
    context?: number | undefined;
    /** Conversations that the model can hold at once, 1 to 256: its own and those of `session()`. Their
     * memory grows with what they hold. Default: 1. */
    sessions?: number | undefined;
    /** How keys and values are kept. 'i8' takes half the memory of 'f16', is faster in long texts and not
     * as close to the model; 'f32' takes twice the memory. Default: 'f16'. */
    kvType?: 'f16' | 'f32' | 'i8' | undefined;
    /** Where hf: addresses are. Default: 'https://huggingface.co'. */
    hub?: string | undefined;
    /** Forces a variant; it is an error if it cannot run here. Default: the fastest that can. */
    variant?: Variant | undefined;
    /** Whether a download is kept. Default: 'auto'. */
    cache?: 'auto' | 'none' | undefined;
    /** A URL, perhaps relative, that stands for the source's own in the cache: for signed URLs, which
     * change. `cache.list` has this one, and the other functions of `cache` take it. */
    cacheName?: string | URL | undefined;
    /** Of requests, such as { Authorization: 'Bearer hf_...' } for a gated file. They are not kept. When
     * a server leads to another origin, `fetch` leaves Authorization out. */
    headers?: Headers | Record<string, string> | Iterable<readonly [string, string]> | undefined;
    /** How many parts of a large file are downloaded at a time, 1 to 16, if it is kept and the server
     * sends parts. Default: 4. */
    connections?: number | undefined;
    /** A download fails with ERR_NETWORK when nothing comes for so long: 1 to Infinity. Default: 60. */
    stallSeconds?: number | undefined;
    /** 64 hexadecimal digits. The file is checked against it before it is used. Default: what the hub says
     * of its file, when that is downloaded. Not for a model in several files. */
    sha256?: string | undefined;
    /** When it is aborted, the load fails with the signal's reason. */
    signal?: AbortSignal | undefined;
    onProgress?: ((progress: Progress) => void) | undefined;
}

/** What has been read of a prompt, in tokens. */
export interface PromptProgress {
    promptTokens: number;
    /** Those that the context already held. */
    reusedTokens: number;
    /** Those that it holds now. At the end one is left, which the first new token needs. */
    readTokens: number;
}

/** An option that is not in this list is an error, as is a value out of range. */
export interface GenerateOptions {
    /** 0 to 2^31 - 1 or Infinity. 0, the default, and Infinity: until the context is full. */
    maxTokens?: number | undefined;
    /** 0 to 1000. 0, the default, is greedy: always the most likely token. */
    temperature?: number | undefined;
    /** Only the K most likely tokens, K up to 2^31 - 1; 0: all. Default: 40. Like topP and minP
     * without effect when greedy. */
    topK?: number | undefined;
    /** Only the most likely tokens up to this sum of probabilities, 0 to 1; 1: all. Default: 0.95. */
    topP?: number | undefined;
    /** No token under this share of the best one's probability, 0 to 1. Default: 0.05. */
    minP?: number | undefined;
    /** Over 1, up to 9: recent tokens become less likely, also when greedy. Default: off. */
    repeatPenalty?: number | undefined;
    /** Subtracted from a token's logit, for each time that it is among the recent ones, and once if it
     * is there at all; -100 to 100. Default: 0. */
    frequencyPenalty?: number | undefined;
    presencePenalty?: number | undefined;
    /** Added to the logits of tokens, by their numbers; -Infinity forbids a token. */
    logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number> | undefined;
    /** 0 to Number.MAX_SAFE_INTEGER. The same seed gives the same text. Default: a random one,
     * reported in Stats. */
    seed?: number | undefined;
    /** The text ends before the first of these strings. */
    stop?: string | readonly string[] | undefined;
    /** false: a chat's reply is written without thinking, by models that think; true: with it, by those
     * that do not by default. Thinking comes as text, between <think> and </think>. */
    thinking?: boolean | undefined;
    /** How much a model is to think whose template says so, such as Qwen3.8's: the next of its own
     * that is more, or else the most. Default: the template's. */
    effort?: 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | undefined;
    /** Does thinking stay in the replies of earlier turns, if the template knows thinking? Default: as
     * the template has it. A session that goes on holds it in any case. */
    earlierThinking?: boolean | undefined;
    /** The text keeps to a grammar, in llama.cpp's GBNF, or to a JSON schema (an object, or its text);
     * bitnet_grammar.h says what is possible. Only what `maxTokens` or an abort cuts is incomplete. */
    grammar?: string | undefined;
    jsonSchema?: object | string | boolean | undefined;
    /** Called before each token with those written so far. Returns the tokens that may come next, or
     * nothing: all. Numbers outside the vocabulary allow nothing. If it allows none, the text ends with
     * the reason 'mask'. */
    mask?:
        | ((tokens: number[]) => MaybePromise<Iterable<number> | null | undefined | void>)
        | undefined;
    /** 0 to 20: onToken gets the logarithms of probabilities, and so many of the best. They are those of
     * the model, before any option here. */
    logprobs?: number | undefined;
    /** Tokens to draft from earlier places of the text, 0 to 8: the same text, sooner where it repeats
     * names or code. Without effect with `mask` and `logprobs`. Default: 0. */
    lookup?: number | undefined;
    /** When it is aborted, the generation fails with the signal's reason. */
    signal?: AbortSignal | undefined;
    /** Called before the prompt is read and after each part of it. */
    onPrompt?: ((progress: PromptProgress) => void) | undefined;
    /** Called for each token, with the text that it completed, perhaps none. */
    onToken?: ((event: TokenEvent) => void) | undefined;
}

/** What a Blob or a request can be made of, in every version of TypeScript. */
export type Bytes = ReturnType<Uint8ArrayConstructor['of']>;

type MaybePromise<T> = T | Promise<T>;

export interface TokenLogprob {
    token: number;
    /** Its text. A token can be a part of a character: then U+FFFD stands for it. A special token has
     * its name, such as '<|eot_id|>' at the end of a reply. */
    text: string;
    bytes: Uint8Array;
    /** The natural logarithm of its probability. */
    logprob: number;
}

export interface TokenEvent {
    token: number;
    text: string;
    index: number;
    /** With the option `logprobs`: of this token, and the most likely ones, the best first. */
    logprobs?: TokenLogprob & { top: TokenLogprob[] };
}

export interface Message {
    readonly role: 'system' | 'user' | 'assistant' | (string & {});
    readonly content: string;
}

export interface Stats {
    /** The model ended its text; maxTokens or a full context; a stop string; abort or break; a mask
     * that allowed nothing; an error, which the generation has thrown. */
    reason: 'end' | 'length' | 'stop' | 'abort' | 'mask' | 'error';
    /** Tokens of the prompt, and how many of them the context already held. */
    promptTokens: number;
    reusedTokens: number;
    /** Generated tokens. */
    tokens: number;
    prefillSeconds: number;
    decodeSeconds: number;
    prefillPerSecond: number;
    decodePerSecond: number;
    /** A bigint only where chat.completions draws with one beyond Number.MAX_SAFE_INTEGER. */
    seed?: number | bigint;
}

export interface Info {
    arch: string;
    layers: number;
    vocabulary: number;
    context: number;
    /** The context that the model was trained for. */
    contextTrained: number;
    parameters: number;
    fileBytes: number;
    /** The whole WebAssembly memory, including the file. */
    memoryBytes: number;
    kernels: string;
    variant: Variant;
    threads: number;
    /** How many conversations it can hold. */
    sessions: number;
    /** Elements of a vector of `embed`. */
    dims: number;
    /** false: it only makes embeddings, and `generate` and `chat` fail. */
    hasHead: boolean;
    /** How a vector is made of a text's tokens; null: the file does not say. */
    pooling: Pooling | null;
    /** The model's chat template; null: it has none that is known, and `chat` fails. */
    chat: ChatTemplate | null;
    cache: CacheKind;
    /** Sentences for the user: why a faster variant or the cache was not used, or that the context is
     * longer than the model was trained for. */
    notes: string[];
}

export interface ChatTemplate {
    /** Its name in the library, such as 'qwen-3.8'. */
    template: string;
    /** The option `thinking` can keep the model from thinking. */
    thinking: boolean;
    /** What the option `effort` chooses from, the default first; empty: it is without effect. */
    efforts: string[];
}

export type Pooling = 'mean' | 'first' | 'last';

/** An option that is not in this list is an error, as is a value out of range. */
export interface EmbedOptions {
    /** The texts are queries: each becomes "Instruct: TASK\nQuery: TEXT" with this as the task. The
     * model's card says what to write here. */
    query?: string | undefined;
    /** What is over `Info.context` tokens is cut off. Default: false, it is ERR_FULL. */
    cut?: boolean | undefined;
    /** The vectors as they are. Default: false, they have the length 1. */
    raw?: boolean | undefined;
    /** Default: that of the file. Needed for a model that writes text. */
    pooling?: Pooling | undefined;
    /** When it is aborted, the call fails with the signal's reason. */
    signal?: AbortSignal | undefined;
    /** Called several times, the last time with all texts done. */
    onProgress?: ((progress: { done: number; total: number }) => void) | undefined;
}

export type ResumeOptions = Omit<GenerateOptions, 'grammar' | 'jsonSchema' | 'mask'>;

/** A conversation, or a text, which keeps what it has computed. All sessions of a model share its
 * weights and can write at the same time: a pass over the weights then serves them all. */
export interface Session {
    /** Of the last generation. */
    readonly stats: Stats | null;
    /** Continues a text. Starts when it is iterated; leaving the loop stops it, and while a loop pauses,
     * the model does, up to 16 tokens ahead. A session writes one text at a time: the next one is
     * ERR_BUSY until this one has ended. */
    generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    /** The reply to messages, in the model's chat template. Messages that the session already holds
     * are not evaluated again, also when the last reply was stopped. If the last message is the
     * assistant's, and not the only one, its text goes on. */
    chat(messages: readonly Message[], options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    /** What the session holds, to be kept anywhere: with BitNet b1.58 2B-4T 77 KB for each token. They
     * hold the text, too. While it generates, it is saved between two tokens, and goes on; only a text
     * with a grammar, jsonSchema or mask is ERR_BUSY then, as are restore and clear in any case. */
    save(): Promise<Bytes>;
    /** After restore() of bytes that were saved while the session generated: gives that text from its
     * beginning, first what was there, then the rest. With the same options it is the text as if it had
     * never been cut; a seed is not needed. maxTokens counts from the text's beginning, too. A call
     * that was stopped or failed can be made again. ERR_ARG: the bytes were not saved so, or that text
     * or another one was written since. */
    resume(options?: ResumeOptions): AsyncGenerator<string, Stats, void>;
    /** Puts a saved session in place of this one, also one of another machine: the text goes on with
     * the same bits. It needs the same model file. Returns how many tokens it holds. ERR_FORMAT,
     * ERR_TRUNCATED, ERR_UNSUPPORTED, ERR_FULL: the session is as before. */
    restore(bytes: Uint8Array | ArrayBuffer): Promise<number>;
    /** Forgets everything. */
    clear(): Promise<void>;
    /** Ends what it writes, clears it, and makes room for another session. */
    free(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

export class BitNet {
    private constructor();
    static load(source: Source | Sources, options?: LoadOptions): Promise<BitNet>;
    readonly info: Info;
    /** Of the last generation in the model's own session. */
    readonly stats: Stats | null;
    /** These are those of the model's own session. */
    generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    readonly chat: ((
        messages: readonly Message[],
        options?: GenerateOptions
    ) => AsyncGenerator<string, Stats, void>) & {
        completions: {
            /** A chat in the shape of OpenAI's client, with the fields and refusals of build/serve:
             * see ChatRequest. The defaults are OpenAI's: temperature 1, top_p 1; those of top_k and
             * min_p are those of generate(). As with chat(), a last message of the assistant goes on. */
            create(
                request: ChatRequest & { stream?: false | null | undefined },
                options?: ChatCallOptions
            ): Promise<ChatCompletion>;
            create(
                request: ChatRequest & { stream: true },
                options?: ChatCallOptions
            ): Promise<ChatStream>;
            create(
                request: ChatRequest,
                options?: ChatCallOptions
            ): Promise<ChatCompletion | ChatStream>;
        };
    };
    save(): Promise<Bytes>;
    resume(options?: ResumeOptions): AsyncGenerator<string, Stats, void>;
    restore(bytes: Uint8Array | ArrayBuffer): Promise<number>;
    clear(): Promise<void>;
    /** Another conversation. ERR_LIMIT: the option `sessions` of load allows no more. */
    session(): Session;
    /** The vectors of texts, in their order, which an embedding model makes: texts of similar
     * meaning have vectors of similar direction. Many texts in one call are faster than many calls. A vector has
     * the same bits alone and among others. A model that writes text needs `pooling`, and no session
     * may hold anything (`clear`). ERR_FULL: a text has more tokens than the context. */
    embed(texts: string | readonly string[], options?: EmbedOptions): Promise<Float32Array[]>;
    readonly embeddings: {
        /** The same in the shape of OpenAI's client. */
        create(
            request: EmbeddingRequest & { encoding_format: 'base64' },
            options?: EmbeddingCallOptions
        ): Promise<EmbeddingList<string>>;
        create(
            request: EmbeddingRequest,
            options?: EmbeddingCallOptions
        ): Promise<EmbeddingList<number[]>>;
    };
    /** bos: put BOS first. special: names of special tokens in the text become those tokens. */
    tokenize(
        text: string,
        options?: { bos?: boolean | undefined; special?: boolean | undefined }
    ): Promise<Int32Array>;
    detokenize(tokens: Int32Array | readonly number[]): Promise<string>;
    /** Ends the worker and frees its memory. Pending calls fail. */
    free(): Promise<void>;
    /** The same, for `await using`. */
    [Symbol.asyncDispose](): Promise<void>;
}

// ---- OpenAI's shape: https://platform.openai.com/docs/api-reference/chat ----

type Maybe<T> = T | null | undefined;

export interface ChatTextPart {
    type: 'text';
    text: string;
}

export interface ChatToolCall {
    id: string;
    type: 'function';
    /** The arguments are JSON. */
    function: { name: string; arguments: string };
}

/** A message, or one of the openai package's types for it. What the model cannot read, such as a
 * picture, is refused. */
export interface ChatMessage {
    /** 'developer' is the same as 'system'; 'function' answers a function_call. */
    readonly role:
        | 'system'
        | 'developer'
        | 'user'
        | 'assistant'
        | 'tool'
        | 'function'
        | (string & {});
    readonly content?: Maybe<string | readonly (ChatTextPart | { readonly type: string })[]>;
    /** The assistant's thinking. It goes into the prompt if the chat template keeps it. */
    readonly reasoning_content?: Maybe<string>;
    /** The assistant's calls. */
    readonly tool_calls?: Maybe<readonly (ChatToolCall | { readonly type: string })[]>;
    /** A call of the assistant's as OpenAI once wrote it. */
    readonly function_call?: unknown;
    /** Of the role 'tool': needed. Such messages are put in the order of the calls. */
    readonly tool_call_id?: Maybe<string>;
    /** Stands for the assistant's content where that is null. */
    readonly refusal?: Maybe<string>;
    /** These are without effect. */
    readonly name?: Maybe<string>;
    readonly annotations?: Maybe<readonly unknown[]>;
    readonly audio?: unknown;
}

export interface ChatTool {
    readonly type: 'function';
    readonly function: {
        readonly name: string;
        readonly description?: Maybe<string>;
        /** A JSON schema of the type object; none: there are no arguments. */
        readonly parameters?: Maybe<object>;
        /** Calls keep to `parameters`, also where the model is not made to call. */
        readonly strict?: Maybe<boolean>;
    };
}

/** The openai package's ChatCompletionCreateParams are such a request. What would change the result and
 * cannot be is refused with its name (ERR_ARG); fields that nobody knows are without effect. */
export interface ChatRequest {
    readonly messages: readonly ChatMessage[];
    /** Repeated in the answer; there is one model. */
    readonly model?: Maybe<string>;
    readonly stream?: Maybe<boolean>;
    /** include_usage: a last chunk has `usage` and no choices. */
    readonly stream_options?: Maybe<{ readonly include_usage?: Maybe<boolean> }>;
    /** 0 to 100. */
    readonly temperature?: Maybe<number>;
    readonly top_p?: Maybe<number>;
    readonly top_k?: Maybe<number>;
    readonly min_p?: Maybe<number>;
    /** 0 to 100; over how many recent tokens: -1: all. Default: off; 64. */
    readonly repeat_penalty?: Maybe<number>;
    readonly repeat_last_n?: Maybe<number>;
    /** -2 to 2. */
    readonly frequency_penalty?: Maybe<number>;
    readonly presence_penalty?: Maybe<number>;
    /** -100 to 100; -100 forbids a token. */
    readonly logit_bias?: Maybe<Readonly<Record<string, number>>>;
    /** true: the tokens that end a text are not chosen. */
    readonly ignore_eos?: Maybe<boolean>;
    /** Any whole number of 64 bits; -1: any. */
    readonly seed?: Maybe<number | bigint>;
    /** They end what the model says, and no thought. */
    readonly stop?: Maybe<string | readonly string[]>;
    /** 1 or more. Default, and -1: until the context is full. */
    readonly max_tokens?: Maybe<number>;
    readonly max_completion_tokens?: Maybe<number>;
    readonly n_predict?: Maybe<number>;
    readonly logprobs?: Maybe<boolean>;
    /** 0 to 20. */
    readonly top_logprobs?: Maybe<number>;
    /** 'text'; 'json_object', perhaps with a schema; 'json_schema'. */
    readonly response_format?: Maybe<{
        readonly type: 'text' | 'json_object' | 'json_schema';
        readonly schema?: Maybe<object | boolean | string>;
        readonly json_schema?: Maybe<{ readonly schema?: Maybe<object | boolean | string> }>;
    }>;
    /** GBNF. */
    readonly grammar?: Maybe<string>;
    /** Other servers' ways to say it. */
    readonly json_schema?: Maybe<object | boolean | string>;
    readonly guided_json?: Maybe<object | boolean | string>;
    readonly guided_choice?: Maybe<readonly string[]>;
    readonly structured_outputs?: Maybe<object>;
    readonly format?: Maybe<object | string>;
    /** Functions that the model may call. A template without tools gets Qwen's form. */
    readonly tools?: Maybe<readonly (ChatTool | { readonly type: string })[]>;
    /** 'required', or a function's name: the reply is such calls. allowed_tools: the model sees all
     * functions, and calls are of these. */
    readonly tool_choice?: Maybe<
        | 'none'
        | 'auto'
        | 'required'
        | {
              readonly type: string;
              readonly function?: { readonly name: string };
              readonly allowed_tools?: { readonly mode: string; readonly tools: readonly object[] };
          }
    >;
    /** false: the reply ends behind its first call. Default: true. */
    readonly parallel_tool_calls?: Maybe<boolean>;
    /** false: no thinking, by models that think. `reasoning_effort` 'none' says the same. */
    readonly enable_thinking?: Maybe<boolean>;
    /** `earlierThinking` of chat(). */
    readonly preserve_thinking?: Maybe<boolean>;
    readonly chat_template_kwargs?: Maybe<{
        readonly enable_thinking?: Maybe<boolean>;
        readonly preserve_thinking?: Maybe<boolean>;
        readonly reasoning_effort?: Maybe<string>;
    }>;
    /** `effort` of chat(), or 'none'. */
    readonly reasoning_effort?: Maybe<string>;
    /** How many texts, 1 to 128; they are written one after the other. */
    readonly n?: Maybe<number>;
    /** `lookup` of generate(). */
    readonly lookup?: Maybe<number>;
}

export interface ChatCallOptions {
    signal?: AbortSignal | undefined;
    /** Which session writes the reply; default: the model's own. */
    session?: Session | BitNet | undefined;
    onPrompt?: ((progress: PromptProgress) => void) | undefined;
}

export interface ChatTokenLogprob {
    token: string;
    logprob: number;
    bytes: number[];
}

export interface ChatLogprob extends ChatTokenLogprob {
    top_logprobs: ChatTokenLogprob[];
}

export interface ChatUsage {
    prompt_tokens: number;
    completion_tokens: number;
    total_tokens: number;
    /** Tokens that the session already held. */
    prompt_tokens_details: { cached_tokens: number };
    /** Tokens of thinking, of all that were written. */
    completion_tokens_details: { reasoning_tokens: number };
}

type ChatLogprobs = { content: ChatLogprob[]; refusal: null } | null;
type FinishReason = 'stop' | 'length' | 'tool_calls';

export interface ChatCompletion {
    id: string;
    object: 'chat.completion';
    created: number;
    model: string;
    choices: {
        index: number;
        message: {
            role: 'assistant';
            /** null: there are only calls. */
            content: string | null;
            refusal: null;
            /** What the model thought before it replied. */
            reasoning_content?: string;
            tool_calls?: ChatToolCall[];
        };
        logprobs: ChatLogprobs;
        finish_reason: FinishReason;
    }[];
    usage: ChatUsage;
}

export interface ChatChunk {
    id: string;
    object: 'chat.completion.chunk';
    created: number;
    model: string;
    choices: {
        index: number;
        delta: {
            role?: 'assistant';
            content?: string;
            refusal?: null;
            reasoning_content?: string;
            /** Whole calls, each in one chunk. */
            tool_calls?: (ChatToolCall & { index: number })[];
        };
        logprobs: ChatLogprobs;
        finish_reason: FinishReason | null;
    }[];
    usage?: ChatUsage | null;
}

/** The chunks of a reply, which begins when they are read. `controller.abort()` ends the loop; an
 * abort of the call's own signal fails with its reason. */
export interface ChatStream extends AsyncIterable<ChatChunk> {
    controller: AbortController;
}

export interface EmbeddingRequest {
    input: string | readonly string[];
    /** Repeated in the answer. */
    model?: Maybe<string>;
    encoding_format?: Maybe<'float' | 'base64'>;
    /** Only what the model has: `Info.dims`. */
    dimensions?: Maybe<number>;
    /** Without effect. */
    user?: Maybe<string>;
}

export type EmbeddingCallOptions = Pick<EmbedOptions, 'query' | 'cut' | 'signal'>;

export interface EmbeddingList<Vector> {
    object: 'list';
    data: { object: 'embedding'; index: number; embedding: Vector }[];
    model: string;
    usage: { prompt_tokens: number; total_tokens: number };
}

export interface CachedModel {
    url: string;
    /** null: the download was interrupted, and the server did not send the size. */
    size: number | null;
    /** Bytes stored. */
    loaded: number;
    /** false: the download was interrupted; it is resumed if the server still has the same file. */
    complete: boolean;
    /** ISO 8601; '' if unknown. */
    date: string;
}

/** The downloads that the browser keeps. An hf: address is one of huggingface.co here; what was loaded
 * from another hub has the URL that list() says. */
export const cache: {
    /** The latest first. */
    list(): Promise<CachedModel[]>;
    /** Returns whether there was anything to remove. ERR_BUSY while it is downloaded or read. */
    remove(url: string | URL): Promise<boolean>;
    /** Removes everything that is not in use. ERR_BUSY if something was. */
    clear(): Promise<void>;
    /** Whether the server still has the same file, by its tag or date: asks for its headers only.
     * 'unknown': it says neither. ERR_IO: no complete download is kept. */
    check(
        url: string | URL,
        options?: Pick<LoadOptions, 'headers' | 'signal'>
    ): Promise<'same' | 'changed' | 'unknown'>;
    /** Reads what is kept, without a request, and returns its SHA-256 in hexadecimal. ERR_CHECKSUM if it
     * is not the given one. ERR_IO: no complete download is kept. It waits for one that is going on.
     * Inline: ERR_BUSY while a model is open. */
    verify(
        url: string | URL,
        options?: Pick<LoadOptions, 'sha256' | 'signal' | 'onProgress'>
    ): Promise<string>;
    /** Asks the browser to keep them even when disk space runs short; it may ask the user. Only a
     * page can call this. Returns whether the browser agreed. */
    persist(): Promise<boolean>;
};
