// Addresses of files on a hub such as huggingface.co: hf:OWNER/REPOSITORY[@REVISION]/PATH. The rule of
// https://huggingface.co/docs/hub: a file is at OWNER/REPOSITORY/resolve/REVISION/PATH.
import { BitNetError } from './errors.js';

const HUB = 'https://huggingface.co';

/** The URL of an address that begins with hf:, in its hub; other strings as they are. */
export function hubUrl(address, hub = HUB) {
    if (!/^hf:/i.test(address)) return address;
    const parts = /^hf:(?:\/\/)?([\w.-]+)\/([\w.-]+)(?:@([^/]+))?\/(.+)$/i.exec(address);
    if (!parts)
        throw new BitNetError('ERR_ARG', `${address} is not hf:owner/repository/path/of/a/file.gguf`);
    const [, owner, repository, revision = 'main', path] = parts;
    const encoded = text => encodeURIComponent(decoded(text));
    const file = path.split('/').map(encoded).join('/');
    return `${hub.replace(/\/+$/, '')}/${owner}/${repository}/resolve/${encoded(revision)}/${file}`;
}

/** A name may be written as in a URL, with %20, or as it is, with a single %. */
function decoded(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}
