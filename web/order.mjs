// order.mjs - makes a WASM module easier to pack for gzip, without a change to what it does.
//
//     node web/order.mjs FILE.wasm
//
// A function is called by its number, so an engine does not care about their order. gzip does: it finds
// only what stood at most 32 KB before. Emscripten sorts functions by how often they are called, which
// parts those that resemble each other. Here each is followed by the one that shares most with those near
// it. How the best one is found is a guess, so several ways are tried, and gzip decides.
// A load or store also says how its address is aligned. That is only a hint, and engines that have SIMD
// make nothing of it: here all say "not at all", but for atomic ones, which have to say the truth.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const [IMPORT, FUNCTION, EXPORT, START, ELEMENT, CODE] = [2, 3, 7, 8, 9, 10]; // sections
const REACH = 31000; // bytes; a little is left for what grows
const SHARED = 6; // bytes that count when two functions have them
const COMMON = 60; // what more functions have is always near
const WAYS = [0, 0.3, 0.7].flatMap(begin => [1, 2].map(favour => ({ begin, favour })));

class Reader {
    constructor(bytes, at = 0) {
        Object.assign(this, { bytes, at });
    }

    byte() {
        return this.bytes[this.at++];
    }

    number() {
        let n = 0;
        for (let shift = 0, byte = 128; byte > 127; shift += 7) {
            byte = this.byte();
            n |= (byte & 127) << shift;
        }
        return n >>> 0;
    }

    numbers(count) {
        for (; count > 0; count--) this.number();
    }

    take(n) {
        if (this.at + n > this.bytes.length) throw new Error('a WASM module that ends too early');
        return this.bytes.subarray(this.at, (this.at += n));
    }
}

function numberBytes(n) {
    const bytes = [];
    for (; n > 127; n >>>= 7) bytes.push((n & 127) | 128);
    return Uint8Array.of(...bytes, n);
}

const joined = parts => Uint8Array.from(Buffer.concat(parts.map(part => Uint8Array.from(part))));
const unknown = what => new Error(`order.mjs does not know ${what}`);

function sections(bytes) {
    const reader = new Reader(bytes, 8),
        all = [];
    while (reader.at < bytes.length) all.push({ id: reader.byte(), body: reader.take(reader.number()) });
    return all;
}

function importedFunctions(body) {
    const reader = new Reader(body);
    let functions = 0;
    for (let n = reader.number(); n > 0; n--) {
        reader.take(reader.number());
        reader.take(reader.number());
        const kind = reader.byte();
        if (kind > 3) throw unknown(`imports of kind ${kind}`);
        if (kind === 1) reader.byte();
        if (kind === 1 || kind === 2) reader.numbers(reader.byte() & 1 ? 2 : 1);
        else if (kind === 3) reader.take(2);
        else {
            reader.number();
            functions++;
        }
    }
    return functions;
}

/** Reads past a load's or store's alignment, which it takes away, and offset. */
function skipAccess(reader) {
    if (reader.bytes[reader.at] > 4) throw unknown('this form of a load');
    reader.bytes[reader.at] = 0;
    reader.numbers(2);
}

/** Reads past what stands behind the opcodes 0xfc, 0xfd and 0xfe. */
function skipLong(reader, opcode) {
    const more = reader.number();
    if (opcode === 0xfc) {
        if (more > 17) throw unknown(`the instruction 0xfc ${more}`);
        reader.numbers([0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1][more]);
    } else if (opcode === 0xfe) reader.numbers(more === 3 ? 1 : 2);
    else if (more === 12 || more === 13) reader.take(16);
    else {
        if (more < 12 || (more >= 84 && more <= 93)) skipAccess(reader);
        if ((more >= 21 && more <= 34) || (more >= 84 && more <= 91)) reader.byte();
    }
}

/** Reads past what stands behind an opcode, but for the number of a function. */
function skip(reader, opcode) {
    if (opcode >= 0xfc && opcode <= 0xfe) skipLong(reader, opcode);
    else if (opcode === 0x0e) reader.numbers(reader.number() + 1);
    else if (opcode === 0x1c) reader.numbers(reader.number());
    else if (opcode === 0x11) reader.numbers(2);
    else if (opcode >= 0x28 && opcode <= 0x3e) skipAccess(reader);
    else if (opcode === 0x43) reader.take(4);
    else if (opcode === 0x44) reader.take(8);
    else if (opcode > 0xd1 || (opcode > 0x05 && opcode < 0x0b)) throw unknown(`the opcode ${opcode}`);
    else if ((opcode > 0x01 && opcode < 0x05) || opcode === 0x0c || opcode === 0x0d || opcode === 0xd0)
        reader.number();
    else if ((opcode >= 0x20 && opcode <= 0x26) || (opcode >= 0x3f && opcode <= 0x42)) reader.number();
}

/** A function's bytes, cut at each number of a function that it calls: bytes, number, bytes ... */
function callsIn(body) {
    const reader = new Reader(body),
        parts = [];
    for (let n = reader.number(); n > 0; n--) reader.numbers(2); // local variables
    let from = 0;
    while (reader.at < body.length) {
        const opcode = reader.byte();
        if (opcode !== 0x10 && opcode !== 0xd2) skip(reader, opcode);
        else {
            parts.push(body.subarray(from, reader.at), reader.number());
            from = reader.at;
        }
    }
    if (reader.at !== body.length || body.at(-1) !== 0x0b) throw unknown('this form of code');
    return [...parts, body.subarray(from)];
}

/** For each function, what it has in common with others: numbers of runs of SHARED bytes. */
function runsOf(bodies) {
    const owners = new Map();
    bodies.forEach((body, i) => {
        for (let at = 0; at + SHARED <= body.length; at++) {
            const key = String.fromCharCode(...body.subarray(at, at + SHARED));
            if (!owners.has(key)) owners.set(key, new Set());
            owners.get(key).add(i);
        }
    });
    const runs = bodies.map(() => []);
    for (const some of owners.values())
        if (some.size > 1 && some.size <= COMMON) for (const i of some) runs[i].push(some);
    return runs;
}

/** The functions' numbers, in a new order. begin: the first one, as a part of all. favour: how little
 * small functions, which are all near to many, are favoured. */
function orderOf(bodies, runs, { begin, favour }) {
    const near = new Map(), // runs -> how often they are in reach
        common = bodies.map(() => 0), // how many of a function's runs are near
        left = new Set(bodies.keys()),
        order = [];
    let reach = 0,
        first = 0; // in reach
    const count = (i, by) => {
        reach += by * bodies[i].length;
        for (const run of runs[i]) {
            const before = near.get(run) ?? 0;
            near.set(run, before + by);
            if (!before || !(before + by)) for (const other of run) common[other] += by;
        }
    };
    for (let next = Math.floor(begin * bodies.length); next !== undefined; ) {
        order.push(next);
        left.delete(next);
        count(next, 1);
        while (reach > REACH && first < order.length - 1) count(order[first++], -1);
        let best = -1;
        next = undefined;
        for (const i of left) {
            const share = common[i] / (runs[i].length + favour);
            if (share > best) [best, next] = [share, i];
        }
    }
    return order;
}

const withSize = body => joined([numberBytes(body.length), body]);
const list = items => joined([numberBytes(items.length), ...items]);

const packed = bytes =>
    execFileSync('gzip', ['-9nc'], { input: bytes, maxBuffer: 1 << 24 }).length;

/** The module with its functions in this order; those sections are made anew that name them by number. */
function inOrder(bytes, all, imported, calls, order) {
    const place = []; // where a function has come
    order.forEach((i, at) => (place[i] = at));
    const moved = n => numberBytes(n < imported ? n : imported + place[n - imported]);
    const listOf = (r, one) => list(Array.from({ length: r.number() }, one));
    const made = {
        [FUNCTION](r) {
            const types = Array.from({ length: r.number() }, () => r.number());
            return list(order.map(i => numberBytes(types[i])));
        },
        [EXPORT]: r =>
            listOf(r, () => {
                const name = withSize(r.take(r.number())),
                    kind = r.byte(),
                    n = r.number();
                return joined([name, [kind], kind ? numberBytes(n) : moved(n)]);
            }),
        [START]: r => moved(r.number()),
        [ELEMENT]: r =>
            listOf(r, () => {
                const flags = r.byte(),
                    from = r.at;
                if (flags || r.byte() !== 0x41) throw unknown('this form of a table'); // i32.const
                r.number();
                if (r.byte() !== 0x0b) throw unknown('this form of a table'); // end
                const begin = r.bytes.subarray(from, r.at);
                return joined([[flags], begin, listOf(r, () => moved(r.number()))]);
            }),
        [CODE]() {
            const parts = i => calls[i].map(part => (typeof part === 'number' ? moved(part) : part));
            return list(order.map(i => withSize(joined(parts(i)))));
        }
    };
    const sectionBytes = ({ id, body }) =>
        joined([[id], withSize(made[id] ? made[id](new Reader(body)) : body)]);
    return joined([bytes.subarray(0, 8), ...all.map(sectionBytes)]);
}

/** These bytes, which change, in the order in which gzip packs them best. */
function ordered(bytes) {
    const all = sections(bytes),
        body = id => all.find(section => section.id === id).body,
        reader = new Reader(body(CODE));
    const bodies = Array.from({ length: reader.number() }, () => reader.take(reader.number()));
    const calls = bodies.map(callsIn), // first, for it changes bodies
        runs = runsOf(bodies),
        imported = importedFunctions(body(IMPORT));
    let best;
    for (const way of WAYS) {
        const order = orderOf(bodies, runs, way),
            made = inOrder(bytes, all, imported, calls, order),
            size = packed(made);
        if (!best || size < best.size) best = { made, size };
    }
    if (WebAssembly.validate(bytes) && !WebAssembly.validate(best.made)) throw new Error('it broke');
    return best.made;
}

const [, , file] = process.argv;
try {
    writeFileSync(file, ordered(Uint8Array.from(readFileSync(file))));
} catch (error) {
    // Another compiler's module may have what is not known here. It works as it is.
    console.error(`web: ${file} stays as large as it is: ${error.message}`);
}
