// model.embeddings.create: vectors in the shape of OpenAI's client.
// https://platform.openai.com/docs/api-reference/embeddings describes requests and answers.
import { BitNetError } from '../../shared/errors.js';
import { bad, checkNames } from '../options.js';

/** The error, whose message begins with the name of an option, under another name. */
const renamed = (error, from, to) =>
    error.message.startsWith(from)
        ? new BitNetError(error.code, to + error.message.slice(from.length))
        : error;

const EMBEDDINGS = ['input', 'model', 'encoding_format', 'dimensions', 'user'];

/** The four bytes of each number, the lowest first. */
function base64(vector) {
    const bytes = new Uint8Array(vector.buffer);
    let text = '';
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
}

/** { create } for a model of vectors with so many elements. embed says how many tokens it read,
 * too. */
export function embeddings(embed, dims) {
    return {
        async create(request, options = {}) {
            checkNames(request, EMBEDDINGS, 'request');
            checkNames(options, ['signal', 'query', 'cut']);
            const format = request.encoding_format ?? 'float';
            if (!['float', 'base64'].includes(format))
                bad('encoding_format: float or base64 is needed');
            if ((request.dimensions ?? dims) !== dims) bad(`dimensions: only ${dims} is possible`);
            const { vectors, tokens } = await embed(request.input, options).catch(e => {
                throw e?.code === 'ERR_ARG' ? renamed(e, 'texts', 'input') : e;
            });
            const data = vectors.map((vector, index) => {
                const embedding = format === 'float' ? [...vector] : base64(vector);
                return { object: 'embedding', index, embedding };
            });
            const usage = { prompt_tokens: tokens, total_tokens: tokens };
            return { object: 'list', data, model: request.model ?? 'bitnet', usage };
        }
    };
}
