// The schemas that zod 4 and openai's zodResponseFormat make of each of zod's types: a table of
// [name, schema] for test_grammar.mjs. Types that have no JSON form are not there; openai refuses some.
export const zodSchemas = (z, zodResponseFormat) => {
    const Node = z.object({ value: z.number(), get next() { return Node.nullable(); } });
    const Tree = z.object({ name: z.string(), get children() { return z.array(Tree); } });
    const types = {
        string: z.string(), email: z.email(), uuid: z.uuid(), uuidv4: z.uuidv4(), uuidv7: z.uuidv7(), guid: z.guid(),
        url: z.url(), httpUrl: z.httpUrl(), hostname: z.hostname(), ipv4: z.ipv4(), ipv6: z.ipv6(), mac: z.mac(),
        cidrv4: z.cidrv4(), cidrv6: z.cidrv6(), base64: z.base64(), base64url: z.base64url(), e164: z.e164(),
        jwt: z.jwt(), nanoid: z.nanoid(), cuid: z.cuid(), cuid2: z.cuid2(), ulid: z.ulid(), xid: z.xid(),
        ksuid: z.ksuid(), emoji: z.emoji(), sha256: z.hash('sha256'), hex: z.hex(),
        datetime: z.iso.datetime(), 'datetime offset': z.iso.datetime({ offset: true }),
        'datetime local': z.iso.datetime({ local: true }), 'datetime ms': z.iso.datetime({ precision: 3 }),
        date: z.iso.date(), time: z.iso.time(), 'time minutes': z.iso.time({ precision: -1 }), duration: z.iso.duration(),
        min: z.string().min(2), max: z.string().max(5), length: z.string().length(4), nonempty: z.string().nonempty(),
        regex: z.string().regex(/^[a-z]+\d$/), 'two regexes': z.string().regex(/a/).regex(/b/).max(9),
        startsWith: z.string().startsWith('ab.'), endsWith: z.string().endsWith('.js'), includes: z.string().includes('x.y'),
        'all of them': z.string().startsWith('a').endsWith('z').includes('m').min(4).max(20),
        lowercase: z.string().lowercase(), uppercase: z.string().uppercase(), trim: z.string().trim(),
        'short email': z.email().max(40), 'long url': z.url().min(12), template: z.templateLiteral(['a-', z.number(), z.enum(['px', 'em'])]),
        number: z.number(), int: z.int(), integer: z.number().int(), safe: z.number().safe(), int32: z.int32(), uint32: z.uint32(),
        float32: z.float32(), float64: z.float64(), gt: z.number().gt(5), between: z.number().gte(5).lte(10),
        positive: z.number().positive(), negative: z.number().negative(), nonnegative: z.number().nonnegative(),
        percent: z.int().min(1).max(100), multipleOf: z.number().multipleOf(5), cents: z.number().multipleOf(0.01),
        halves: z.number().multipleOf(0.5).min(0).max(5), step: z.number().step(0.25).lt(100), tenths: z.number().step(0.1).min(-1),
        boolean: z.boolean(), null: z.null(), any: z.any(), unknown: z.unknown(), enum: z.enum(['a', 'b']),
        'native enum': z.enum({ A: 1, B: 'b' }), literal: z.literal('x'), literals: z.literal([1, 'x', null, true]),
        union: z.union([z.string(), z.number()]), stringbool: z.stringbool(), json: z.json(),
        discriminatedUnion: z.discriminatedUnion('t', [z.object({ t: z.literal('a'), x: z.string() }), z.object({ t: z.literal('b'), y: z.number() })]),
        xor: z.xor([z.string(), z.int()]), tuple: z.tuple([z.string(), z.number()]), 'tuple rest': z.tuple([z.string()]).rest(z.boolean()),
        record: z.record(z.string(), z.number()), 'record of an enum': z.record(z.enum(['a', 'b']), z.int()),
        partialRecord: z.partialRecord(z.enum(['a', 'b']), z.int()), 'record of a regex': z.record(z.string().regex(/^x-/), z.boolean()),
        looseRecord: z.looseRecord(z.string().regex(/^x-/), z.boolean()),
        array: z.array(z.string()), 'array min': z.array(z.int()).min(2), 'array max': z.array(z.int()).max(3),
        'array length': z.array(z.int()).length(3), 'array nonempty': z.array(z.int()).nonempty(),
        object: z.object({ a: z.string(), b: z.int() }), optional: z.object({ a: z.string().optional(), b: z.int() }),
        nullable: z.string().nullable(), nullish: z.object({ a: z.string().nullish() }), default: z.object({ a: z.string().default('x') }),
        prefault: z.object({ a: z.string().prefault('x') }), catch: z.object({ a: z.string().catch('x') }),
        recursive: Node, tree: Tree, intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
        'and a record': z.object({ a: z.string() }).and(z.record(z.string(), z.any())), strict: z.strictObject({ a: z.int() }),
        loose: z.looseObject({ a: z.int() }), catchall: z.object({ a: z.int() }).catchall(z.string()), partial: z.object({ a: z.int() }).partial(),
        readonly: z.object({ a: z.int() }).readonly(), lazy: z.lazy(() => z.string()), brand: z.string().brand('x'),
        meta: z.string().describe('d').meta({ title: 't', examples: ['x'], id: 'M' }), pipe: z.string().pipe(z.string().min(2)),
        never: z.object({ a: z.never().optional() }),
    };
    const rows = [];
    for (const [name, type] of Object.entries(types)) {
        for (const [how, options] of [['', {}], [' input', { io: 'input' }], [' draft-7', { target: 'draft-7' }]])
            rows.push([`zod ${name}${how}`, z.toJSONSchema(type, options)]);
        try {
            rows.push([`openai ${name}`, zodResponseFormat(z.object({ v: type }), 'x').json_schema.schema]);
        } catch (e) { if (!/at `/.test(e.message)) throw e; }       // strict Structured Outputs lack the type
    }
    return rows;
};
