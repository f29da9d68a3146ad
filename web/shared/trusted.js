// Trusted Types: a page with require-trusted-types-for 'script' allows the policy bitnet-h by its
// name. It lets through what is made here: addresses of Blobs, which only this origin's scripts can
// make.
let policy;

/** The address of a script as Worker takes it. */
export function trusted(url) {
    try {
        policy ??= globalThis.trustedTypes?.createPolicy('bitnet-h', { createScriptURL: at => at });
    } catch {
        policy = null; // it is not allowed: if there is need of it, Worker says so
    }
    return policy ? policy.createScriptURL(url) : url;
}
