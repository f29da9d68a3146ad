// Addresses of files on a hub such as huggingface.co: hf:OWNER/REPOSITORY[@REVISION]/PATH. The rule of
// https://huggingface.co/docs/hub: a file is at OWNER/REPOSITORY/resolve/REVISION/PATH.
import { BitNetError } from '../shared/errors.js';

const HUB = 'https://huggingface.co';

/** The URL of an address that begins with hf:, in its hub; other strings as they are. */
export function hubUrl(address, hub = HUB) {
    if (!/^hf:/i.test(address)) return address;
    if (typeof hub !== 'string' && !(hub instanceof URL))
        throw new BitNetError('ERR_ARG', 'hub: a URL is needed');
    const parts = /^hf:(?:\/\/)?([\w.-]+)\/([\w.-]+)(?:@([^/]+))?\/(.+)$/i.exec(address);
    const [, owner, repository, revision = 'main', path = ''] = parts ?? [];
    const names = [owner, repository, revision, ...path.split('/')].map(decoded);
    if (!parts || !names.every(isName))
        throw new BitNetError('ERR_ARG', `${address} is not hf:owner/repository/path/of/a/file.gguf`);
    const [, , tag, ...file] = names.map(encodeURIComponent);
    return [String(hub).replace(/\/+$/, ''), owner, repository, 'resolve', tag, ...file].join('/');
}

/** The address of the few lines that git has in place of a large file of the hub, with its SHA-256: in
 * 'raw', not in 'resolve'. undefined: the URL is none of a file in the hub. */
export function pointerUrl(url, hub = HUB) {
    const base = `${String(hub).replace(/\/+$/, '')}/`;
    if (typeof url !== 'string' || !url.startsWith(base)) return undefined;
    const path = /^([^/?#]+\/[^/?#]+)\/resolve\/([^?#]+)/.exec(url.slice(base.length));
    return path ? `${base}${path[1]}/raw/${path[2]}` : undefined;
}

/** A URL would take '..' as a step up, out of the repository. Half a character cannot be encoded. A
 * revision may have a slash. */
const isName = name =>
    name.split('/').every(part => !['', '.', '..'].includes(part)) && !/\p{Surrogate}/u.test(name);

/** A name may be written as in a URL, with %20, or as it is, with a single %. */
function decoded(text = '') {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}
