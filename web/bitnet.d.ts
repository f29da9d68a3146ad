// bitnet.js - BitNet b1.58 models in browsers and Node 20+
//
//     import { BitNet } from './bitnet.js';
//     const model = await BitNet.load('model.gguf');
//     for await (const text of model.generate('Once upon a time', { maxTokens: 100 })) show(text);
//     await model.free();

/** A URL (relative to the page), in Node also a path; a file that the user chose; or bytes. */
export type Source = string | URL | File | Blob | ArrayBuffer | ArrayBufferView;

export type Variant = 'simd' | 'threads' | 'relaxed';

/** Where the file was kept: 'none' is nowhere but in the model's own memory. */
export type CacheKind = 'opfs' | 'cache' | 'memory' | 'none';

/** The library's codes, and those of the browser part. An abort is a DOMException AbortError. */
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
    /** fetch failed; browsers don't say whether the network or the server's CORS headers did it. */
    | 'ERR_CORS_OR_NETWORK'
    | 'ERR_QUOTA'
    /** The file is not the one that `sha256` names. */
    | 'ERR_CHECKSUM'
    /** One generation at a time. */
    | 'ERR_BUSY'
    /** free() has been called. */
    | 'ERR_FREED'
    /** A crash. The model is lost: all later calls fail with this, too. */
    | 'ERR_INTERNAL';

export class BitNetError extends Error {
    constructor(code: ErrorCode, message: string, status?: number);
    readonly code: ErrorCode;
    /** HTTP status of ERR_HTTP. */
    readonly status?: number;
}

export interface Progress {
    /** From the network; from the cache, the disk or memory; and reading what is in the file. */
    phase: 'download' | 'read' | 'load';
    /** Bytes. */
    loaded: number;
    /** undefined: the server does not say. */
    total?: number;
    bytesPerSecond: number;
    secondsLeft?: number;
    fromCache?: boolean;
    cache?: CacheKind;
}

export interface LoadOptions {
    /** Default: the number of CPUs, but at most 8. One, where there is no SharedArrayBuffer. */
    threads?: number;
    /** Tokens that prompt and answer may have together. Default: 2048, or the model's if less. */
    context?: number;
    /** Forces one; an error if it can't run here. Default: the fastest that can. */
    variant?: Variant;
    /** Whether a download is kept. Default: 'auto'. */
    cache?: 'auto' | 'none';
    /** 64 hexadecimal digits: the file is compared with it before it is used. */
    sha256?: string;
    signal?: AbortSignal;
    onProgress?: (progress: Progress) => void;
}

export interface GenerateOptions {
    /** Default: until the context is full. */
    maxTokens?: number;
    /** 0, the default, is greedy: always the likeliest token. */
    temperature?: number;
    /** Only the K likeliest; 0: all. Default: 40. Like what follows without effect when greedy. */
    topK?: number;
    /** The likeliest up to this sum; 1: all. Default: 0.95. */
    topP?: number;
    /** None under this times the likeliest one's probability. Default: 0.05. */
    minP?: number;
    /** Over 1: recent tokens are less likely, when greedy too. Default: off. */
    repeatPenalty?: number;
    /** The same seed gives the same text. Default: another one each time; see Stats. */
    seed?: number;
    /** The text ends before these. */
    stop?: string | string[];
    signal?: AbortSignal;
    /** Each token, with the text that it made certain, which may be none. */
    onToken?: (event: { token: number; text: string; index: number }) => void;
}

export interface Message {
    role: 'system' | 'user' | 'assistant' | (string & {});
    content: string;
}

export interface Stats {
    /** The model ended its text; maxTokens or the context's end; a stop string; abort or break. */
    reason: 'end' | 'length' | 'stop' | 'abort';
    /** All of the prompt, and what of it was in the context already. */
    promptTokens: number;
    reusedTokens: number;
    /** New ones. */
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
    /** The WebAssembly memory, file and all. */
    memoryBytes: number;
    kernels: string;
    variant: Variant;
    threads: number;
    cache: CacheKind;
    /** Why something better was not taken, for people. */
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
    /** The reply to messages, in the model's chat template. What the context holds of them already,
     * as it does of a chat that goes on, is not computed again. */
    chat(messages: Message[], options?: GenerateOptions): AsyncGenerator<string, Stats, void>;
    /** bos: the token that begins a text, first. special: names of special tokens become them. */
    tokenize(text: string, options?: { bos?: boolean; special?: boolean }): Promise<Int32Array>;
    detokenize(tokens: Int32Array | number[]): Promise<string>;
    /** Ends the worker and gives its memory back; calls that still wait fail. */
    free(): Promise<void>;
}

export interface CachedModel {
    url: string;
    /** null: the download was interrupted, and the server had told no size. */
    size: number | null;
    /** Bytes that are there. */
    loaded: number;
    /** false: the download was interrupted and will be resumed. */
    complete: boolean;
    /** ISO 8601; '' if it is not known. */
    date: string;
}

/** The downloads that are kept. */
export const cache: {
    /** The last change first. */
    list(): Promise<CachedModel[]>;
    /** Says whether there was anything. ERR_BUSY while it is being downloaded or read. */
    remove(url: string): Promise<boolean>;
    /** All that is not in use; ERR_BUSY if something was. */
    clear(): Promise<void>;
    /** Asks the browser not to drop them when its disk runs short, which may ask the user; only a
     * page can. Says whether it agreed. */
    persist(): Promise<boolean>;
};
