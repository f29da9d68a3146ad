/** Arrays of bytes as one, with zeros behind them if it is to have more. */
export function joined(parts, size = parts.reduce((sum, { length }) => sum + length, 0)) {
    const all = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}
