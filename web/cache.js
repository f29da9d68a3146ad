// STUB: straight streams, nothing is kept. The contract is that of the cache.
import { BitNetError } from './errors.js';

const isNode = typeof process === 'object' && Boolean(process.versions?.node);

const source = (size, stream) => ({
  size, stream, cache: 'none', fromCache: false, discard: async () => {}, close: async () => {},
});

async function openFile(path) {
  const fs = await import('node:fs');
  const { Readable } = await import('node:stream');
  try {
    const size = (await fs.promises.stat(path)).size;
    await (await fs.promises.open(path)).close();
    return source(size, () => Readable.toWeb(fs.createReadStream(path, { highWaterMark: 1 << 20 })));
  } catch (e) {
    throw new BitNetError('ERR_IO', `cannot read ${path}: ${e.message}`);
  }
}

export async function openSource(from, { signal } = {}) {
  if (from instanceof Blob) return source(from.size, () => from.stream());
  if (from instanceof ArrayBuffer) return source(from.byteLength, () => new Blob([from]).stream());
  const url = String(from);
  if (isNode && !/^https?:/.test(url)) return openFile(url.startsWith('file:') ? new URL(url) : url);
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new BitNetError('ERR_CORS_OR_NETWORK', `cannot fetch ${url}: ${e.message}`);
  }
  if (!response.ok)
    throw new BitNetError('ERR_HTTP', `${url}: HTTP ${response.status}`, response.status);
  const length = response.headers.get('content-length');
  const known = length && !response.headers.get('content-encoding');
  return source(known ? Number(length) : undefined, () => response.body);
}

export const list = async () => [];
export const remove = async () => {};
export const clear = async () => {};
