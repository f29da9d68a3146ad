/** `code` is the library's name of the error without BITNET_ ('ERR_FORMAT'), or one of the names in
 * bitnet.d.ts. `status` is the HTTP status, if there is one. */
export class BitNetError extends Error {
    constructor(code, message, status) {
        super(message);
        this.name = 'BitNetError';
        this.code = code;
        if (status !== undefined) this.status = status;
    }
}

/** The code for an exception of the engine. "memory access out of bounds" is a trap, not a lack of
 * memory. */
export const engineCode = text =>
    /memory|OOM|allocat/i.test(text) && !/bounds/i.test(text) ? 'ERR_MEMORY' : 'ERR_INTERNAL';

export const abortError = () => new DOMException('The operation was aborted.', 'AbortError');
