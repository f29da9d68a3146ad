/* The one kind of Error that the web part throws on its own account (an abort is a DOMException
 * named AbortError). `code` is the library's result without BITNET_, or one of the browser's:
 * ERR_NO_SIMD, ERR_NETWORK, ERR_HTTP (with `status`), ERR_QUOTA, ERR_CORS_OR_NETWORK,
 * ERR_CHECKSUM, ERR_BUSY. */
export class BitNetError extends Error {
    constructor(code, message, status) {
        super(message);
        this.name = 'BitNetError';
        this.code = code;
        if (status !== undefined) this.status = status;
    }
}
