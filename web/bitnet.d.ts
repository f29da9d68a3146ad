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

/** A URL (relative to the page), in Node also a path; a file that the user chose; or bytes. */
export type Source = string | URL | File | Blob | ArrayBuffer | ArrayBufferView;

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
    /** The model is generating, or the cached file is in use. */
    | 'ERR_BUSY'
    /** free() has been called. */
    | 'ERR_FREED'
    /** A crash. The model is lost, and all later calls fail with this code. */
    | 'ERR_INTERNAL';

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
}

/** An option that is not in this list is an error, as is a value out of range. */
export interface LoadOptions {
    /** 1 to 256. Default: the number of CPUs, at most 8. Always 1 without SharedArrayBuffer. */
    threads?: number;
    /** Tokens of prompt and answer together, up to 2^20. Default: 4096, or what the model was trained
     * for if that is less. A longer one works, and `Info.notes` says that texts may become worse. */
    context?: number;
    /** Forces a variant; it is an error if it cannot run here. Default: the fastest that can. */
    variant?: Variant;
    /** Whether a download is kept. Default: 'auto'. */
    cache?: 'auto' | 'none';
    /** 64 hexadecimal digits. The file is checked against it before it is used. */
    sha256?: string;
    /** When it is aborted, the load fails with the signal's reason. */
    signal?: AbortSignal;
    onProgress?: (progress: Progress) => void;
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
    maxTokens?: number;
    /** 0 to 1000. 0, the default, is greedy: always the most likely token. */
    temperature?: number;
    /** Only the K most likely tokens, K up to 2^31 - 1; 0: all. Default: 40. Like topP and minP
     * without effect when greedy. */
    topK?: number;
    /** Only the most likely tokens up to this sum of probabilities, 0 to 1; 1: all. Default: 0.95. */
    topP?: number;
    /** No token under this share of the best one's probability, 0 to 1. Default: 0.05. */
    minP?: number;
    /** Over 1, up to 9: recent tokens become less likely, also when greedy. Default: off. */
    repeatPenalty?: number;
    /** 0 to Number.MAX_SAFE_INTEGER. The same seed gives the same text. Default: a random one,
     * reported in Stats. */
    seed?: number;
    /** The text ends before the first of these strings. */
    stop?: string | string[];
    /** When it is aborted, the generation fails with the signal's reason. */
    signal?: AbortSignal;
    /** Called before the prompt is read and after each part of it. */
    onPrompt?: (progress: PromptProgress) => void;
    /** Called for each token, with the text that it completed, perhaps none. */
    onToken?: (event: { token: number; text: string; index: number }) => void;
}

export interface Message {
    role: 'system' | 'user' | 'assistant' | (string & {});
    content: string;
}

export interface Stats {
    /** The model ended its text; maxTokens or a full context; a stop string; abort or break. */
    reason: 'end' | 'length' | 'stop' | 'abort';
    /** Tokens of the prompt, and how many of them the context already held. */
    promptTokens: number;
    reusedTokens: number;
    /** Generated tokens. */
    tokens: number;
    prefillSeconds: number;
    decodeSeconds: number;
    prefillPerSecond: number;
    decodePerSecond: number;
    seed?: number;
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
    cache: CacheKind;
    /** Sentences for the user: why a faster variant or the cache was not used, or that the context is
     * longer than the model was trained for. */
    notes: string[];
}

export class BitNet {
    private constructor();
    static load(source: Source, options?: LoadOptions): Promise<BitNet>;
    readonly info: Info;
    /** Of the last generation. */
    readonly stats: Stats | null;
    /** Continues a text. Starts when it is iterated; leaving the loop stops it. */
    generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    /** The reply to messages, in the model's chat template. Messages that the context already holds
     * are not evaluated again, also when the last reply was stopped. */
    chat(messages: Message[], options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    /** bos: put BOS first. special: names of special tokens in the text become those tokens. */
    tokenize(text: string, options?: { bos?: boolean; special?: boolean }): Promise<Int32Array>;
    detokenize(tokens: Int32Array | number[]): Promise<string>;
    /** Ends the worker and frees its memory. Pending calls fail. */
    free(): Promise<void>;
    /** The same, for `await using`. */
    [Symbol.asyncDispose](): Promise<void>;
}

export interface CachedModel {
    url: string;
    /** null: the download was interrupted, and the server did not send the size. */
    size: number | null;
    /** Bytes stored. */
    loaded: number;
    /** false: the download was interrupted and will be resumed. */
    complete: boolean;
    /** ISO 8601; '' if unknown. */
    date: string;
}

/** The downloads that the browser keeps. */
export const cache: {
    /** The latest first. */
    list(): Promise<CachedModel[]>;
    /** Returns whether there was anything to remove. ERR_BUSY while it is downloaded or read. */
    remove(url: string): Promise<boolean>;
    /** Removes everything that is not in use. ERR_BUSY if something was. */
    clear(): Promise<void>;
    /** Asks the browser to keep them even when disk space runs short; it may ask the user. Only a
     * page can call this. Returns whether the browser agreed. */
    persist(): Promise<boolean>;
};
