/** What went wrong: `code` is the library's name for it without BITNET_ ('ERR_FORMAT'), or one of
 * the names in bitnet.d.ts; `status` is the HTTP status, if there is one. */
export class BitNetError extends Error {
    constructor(code, message, status) {
        super(message);
        this.name = 'BitNetError';
        this.code = code;
        if (status !== undefined) this.status = status;
    }
}

/** The code of what the engine threw. The text of a trap may speak of memory, too: "memory access
 * out of bounds". */
export const engineCode = text =>
    /memory|OOM|allocat/i.test(text) && !/bounds/i.test(text) ? 'ERR_MEMORY' : 'ERR_INTERNAL';

export const abortError = () => new DOMException('The operation was aborted.', 'AbortError');
