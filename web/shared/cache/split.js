// split.js - a model in several files, as llama-gguf-split makes them: NAME-00001-of-00003.gguf and so
// on. Each part is a GGUF file. The first one has all keys of the model, and each its own tensors. They
// are read as one file: a head with all tensors, then the tensors' bytes of each part.
import { joined } from '../bytes.js';
import { BitNetError } from '../errors.js';

const NAME = /-\d{5}-of-(\d{5})(?=\.gguf$)/i;
const ALIGNMENT = 32; // where a file does not say another one
const BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of GGUF's types; 8: a string, 9: an array
const MOST_HEAD = 1 << 28; // bytes; a vocabulary takes some millions

/** The addresses of all parts, by that of one of them; null if it is not a part's name. */
export function partsOf(address) {
    const [path, rest] = divide(address),
        count = Number(NAME.exec(path)?.[1] ?? 0);
    if (count < 2) return null;
    const digits = n => String(n).padStart(5, '0'),
        name = i => path.replace(NAME, `-${digits(i + 1)}-of-${digits(count)}`);
    return Array.from({ length: count }, (_, i) => name(i) + rest);
}

/** The path of an address, and its query and hash. In the name of a file they are a part of it. */
function divide(address) {
    const at = /^(https?|hf):/i.test(address) ? address.search(/[?#]/) : -1;
    return at < 0 ? [address, ''] : [address.slice(0, at), address.slice(at)];
}

// ---- the head of a part ----

/** Reads bytes of a stream, and keeps them. */
class Head {
    bytes = new Uint8Array(1 << 16);
    at = 0; // what is read next
    #end = 0;
    #reader;
    #view = new DataView(this.bytes.buffer);

    constructor(stream) {
        this.#reader = stream.getReader();
    }

    async #more(n) {
        if (this.at + n > MOST_HEAD)
            throw new BitNetError('ERR_FORMAT', 'a part of the model has a wrong head');
        while (this.#end < this.at + n) {
            const { done, value } = await this.#reader.read();
            if (done) throw new BitNetError('ERR_TRUNCATED', 'a part of the model ends in its head');
            if (this.#end + value.length > this.bytes.length) {
                const larger = new Uint8Array(2 * (this.#end + value.length));
                larger.set(this.bytes.subarray(0, this.#end));
                this.bytes = larger;
                this.#view = new DataView(larger.buffer);
            }
            this.bytes.set(value, this.#end);
            this.#end += value.length;
        }
    }

    /** Passes over n bytes; returns where they begin. Mostly they are there, and nothing is awaited. */
    skip(n) {
        const at = this.at;
        const passed = () => {
            this.at += n;
            return at;
        };
        return this.#end >= at + n ? passed() : this.#more(n).then(passed);
    }

    async u32() {
        const at = await this.skip(4);
        return this.#view.getUint32(at, true);
    }

    async number() {
        const at = await this.skip(8);
        return Number(this.#view.getBigUint64(at, true));
    }

    /** -> where its bytes begin. */
    async string() {
        const n = await this.number();
        return this.skip(n);
    }

    async text() {
        const at = await this.string();
        return new TextDecoder().decode(this.bytes.subarray(at, this.at));
    }

    /** A key's value; undefined if it is no integer. */
    async value(type) {
        const bytes = BYTES[type];
        if (bytes) {
            const at = await this.skip(bytes);
            if (type === 2) return this.#view.getUint16(at, true);
            return type === 4 || type === 5 ? this.#view.getUint32(at, true) : undefined;
        }
        if (type === 8) return void (await this.string());
        const element = type === 9 ? await this.u32() : 9;
        if (element > 12 || element === 9)
            throw new BitNetError('ERR_FORMAT', 'a part of the model has a key of an unknown type');
        const count = await this.number(),
            size = BYTES[element];
        if (size) return void (await this.skip(count * size));
        for (let i = 0; i < count; i++) if (!this.#passString()) await this.string();
        return undefined;
    }

    /** Passes over a string if all of it is there. A vocabulary has many. */
    #passString() {
        if (this.at + 8 > this.#end || this.#view.getUint32(this.at + 4, true)) return false;
        const n = 8 + this.#view.getUint32(this.at, true);
        if (this.at + n > this.#end) return false;
        this.at += n;
        return true;
    }

    end() {
        this.#reader.cancel().catch(() => {});
    }
}

/** -> { version, keys, tensors, numbers, alignment, at }: keys are the bytes of each key but those of
 * the split, tensors those of each description and its offset, numbers the values of the keys that
 * matter here, and at is where the tensors' bytes begin. */
export async function readHead(stream) {
    const head = new Head(stream),
        numbers = {},
        keys = [],
        tensors = [];
    const since = at => head.bytes.slice(at, head.at);
    try {
        await head.skip(4); // GGUF: of another file the model is refused anyway
        const version = await head.u32(),
            nTensors = await head.number(),
            nKeys = await head.number();
        if (version < 2 || version > 3)
            throw new BitNetError('ERR_UNSUPPORTED', `a part of it is GGUF version ${version}`);
        for (let i = 0; i < nKeys; i++) {
            const at = head.at,
                name = await head.text(),
                value = await head.value(await head.u32());
            if (/^split\.|^general\.alignment$/.test(name)) numbers[name] = value;
            if (!name.startsWith('split.')) keys.push(since(at));
        }
        for (let i = 0; i < nTensors; i++) {
            const at = head.at;
            await head.string();
            const dims = await head.u32();
            await head.skip(8 * dims + 4);
            const bytes = since(at),
                offset = await head.number();
            tensors.push({ bytes, offset });
        }
        const { 'general.alignment': alignment = ALIGNMENT } = numbers;
        if (!(alignment > 0)) throw new BitNetError('ERR_FORMAT', 'the alignment of a part is wrong');
        return { version, keys, tensors, numbers, alignment, at: padded(head.at, alignment) };
    } finally {
        head.end();
    }
}

const padded = (n, alignment) => Math.ceil(n / alignment) * alignment;

/** Puts the parts in their order, and checks that they are all there. A part has its head and its
 * file's size. */
export function inOrder(parts) {
    const bad = text => new BitNetError('ERR_FORMAT', text);
    const count = parts[0].head.numbers['split.count'] ?? 1,
        ordered = [];
    for (const part of parts) {
        const { head } = part,
            { 'split.no': no = 0, 'split.count': itsCount = 1 } = head.numbers;
        if (itsCount !== count || count !== parts.length)
            throw bad(`${parts.length} files are given; one is part ${no + 1} of ${itsCount}`);
        if (ordered[no] || no >= count) throw bad(`part ${no + 1} of ${count} is there twice`);
        if (head.alignment !== parts[0].head.alignment)
            throw bad('the parts differ in their alignment; join them by llama-gguf-split --merge');
        ordered[no] = part;
    }
    const total = ordered[0].head.numbers['split.tensors.count'],
        tensors = ordered.reduce((n, { head }) => n + head.tensors.length, 0);
    if (total !== undefined && total !== tensors)
        throw bad(`the parts have ${tensors} tensors, and the first one says ${total}`);
    return ordered;
}

/** -> the head of the whole, which ends where the tensors' bytes begin. Sets the bytes of each part,
 * and the zeros behind them, in the part. */
export function wholeHead(parts) {
    const { version, keys, alignment } = parts[0].head,
        pieces = [],
        u64 = n => new Uint8Array(new BigUint64Array([BigInt(n)]).buffer);
    const tensors = parts.reduce((n, { head }) => n + head.tensors.length, 0);
    pieces.push(Uint8Array.of(71, 71, 85, 70, version, 0, 0, 0), u64(tensors), u64(keys.length));
    pieces.push(...keys);
    let base = 0;
    for (const part of parts) {
        for (const { bytes, offset } of part.head.tensors) pieces.push(bytes, u64(base + offset));
        part.bytes = Math.max(0, part.size - part.head.at);
        part.zeros = padded(part.bytes, alignment) - part.bytes;
        base += part.bytes + part.zeros;
    }
    const size = pieces.reduce((n, { length }) => n + length, 0);
    return joined(pieces, padded(size, alignment));
}
