/** The bytes that gzip has packed. Browsers with SIMD have this, but for Firefox 89 to 112. */
export async function unpack(packed) {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Response(stream).arrayBuffer();
}
