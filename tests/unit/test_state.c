/* Saved sequences: the text goes on with the same bits in any other context; the bytes are the same
   on every machine; what is damaged, cut or foreign is refused and changes nothing. And reuse of
   what a sequence already holds. */
#include "model_helpers.h"
#include "test.h"

enum { N = 150, MORE = 20, SEQS = 3, FEW = 5 };

static bitnet_token text[N + MORE];

/* A small model of this seed, and text, which is random. */
static void make(gb_model *g, uint64_t seed) {
    int i;
    memset(g, 0, sizeof *g);
    g->dim = 128, g->ffn = 128, g->layers = 2, g->heads = 4, g->kv_heads = 2;
    g->embed_type = GB_TENSOR_F16, g->n_ctx = N + MORE, g->seed = seed;
    gb_make_model(g);
    for (i = 0; i < N + MORE; i++) text[i] = (bitnet_token)(gb_random(&seed) % 256);
}

static bitnet_ctx *ctx_of(const bitnet_model *m, int n_ctx, int n_seqs, int threads,
                          bitnet_kv_type kv) {
    bitnet_ctx_params p = ctx_params(n_ctx, threads % 2 ? 16 : 0, threads, kv);
    p.n_seqs = n_seqs;
    return create(m, &p);
}

/* Evaluates n of text's tokens from a place on. */
static int eval_text(bitnet_ctx *c, int seq, int from, int n) {
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.tokens = text + from;
    in.n_tokens = n;
    in.n_logits = 1;
    return !bitnet_eval_many(c, &in, 1, 0);
}

typedef struct saved { gb_buf bytes; long calls, fail_at; size_t largest; } saved;

static bitnet_result save_piece(void *ud, const void *data, size_t n) {
    saved *s = (saved *)ud;
    if (s->calls++ == s->fail_at) return BITNET_ERR_LIMIT;
    if (n > s->largest) s->largest = n;
    gb_put(&s->bytes, data, n);
    return BITNET_OK;
}

static saved save(bitnet_ctx *c, int seq) {
    saved s;
    bitnet_io io = {0};
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(&s, 0, sizeof s);
    s.fail_at = -1;
    io.write_fn = save_piece;
    io.ud = &s;
    if (bitnet_seq_save_io(c, seq, &io, &err) ||
        s.bytes.n != bitnet_seq_state_bytes(c, seq) || s.largest > 4096)
        test_fail(__FILE__, __LINE__, "save: %s", err.text);
    return s;
}

static int same_bytes(const gb_buf *a, const gb_buf *b) {
    return a->n == b->n && !memcmp(a->p, b->p, a->n);
}

static bitnet_result load_io(bitnet_ctx *c, int seq, const void *data, size_t n,
                             bitnet_error *err) {
    gb_reader reader;
    bitnet_io io = gb_io(&reader, data, n);
    const bitnet_result r = bitnet_seq_load_io(c, seq, &io, err);
    if (reader.past_end) test_fail(__FILE__, __LINE__, "it reads past the end");
    return r;
}

/* All sequences of a context, to see whether a call has changed anything. */
typedef struct before { saved of[SEQS]; float logit; } before;

static before look(bitnet_ctx *c) {
    before b;
    const float *row = bitnet_logits(c, -1, NULL);
    int i;
    for (i = 0; i < SEQS; i++) b.of[i] = save(c, i);
    b.logit = row ? row[0] : -1;
    return b;
}

static void forget(before *b) {
    int i;
    for (i = 0; i < SEQS; i++) free(b->of[i].bytes.p);
}

static int unchanged(bitnet_ctx *c, const before *b) {
    before now = look(c);
    int i, same = now.logit == b->logit;
    for (i = 0; i < SEQS; i++) same = same && same_bytes(&now.of[i].bytes, &b->of[i].bytes);
    forget(&now);
    return same;
}

/* Three sequences: 0 and 1 share a page, 2 is empty. */
static bitnet_ctx *three(const bitnet_model *m, bitnet_kv_type kv) {
    bitnet_ctx *c = ctx_of(m, N, SEQS, 1, kv);
    if (c && (!eval_text(c, 0, 0, 70) || bitnet_seq_copy(c, 0, 1, 66, NULL) ||
              !eval_text(c, 1, 80, 3))) {
        bitnet_ctx_free(c);
        c = 0;
    }
    return c;
}

/* ---- the same bits ---- */

static int logits_are(bitnet_ctx *c, const float *want) {
    const float *row = bitnet_logits(c, -1, NULL);
    return row && !memcmp(row, want, (size_t)c->m->n_vocab * sizeof *row);
}

/* Saved by one table and number of threads, it is the scalar table's bytes, and goes on in a
   context of another shape. want: the logits of the last token of N and of N + MORE. */
static int goes_on(const gb_model *g, const bitnet_kernels *k, int threads, bitnet_kv_type kv,
                   const gb_buf *bytes, float *const want[2]) {
    bitnet_model *m = load(g->data, g->size, k);
    bitnet_ctx *a = ctx_of(m, N, 1, threads, kv), *b = ctx_of(m, N + MORE, SEQS, 4 - threads, kv);
    saved s, again;
    int ok = a && b && eval_text(a, 0, 0, N) && eval_text(b, 1, 9, 75) && eval_text(b, 2, 30, 99);
    s = save(a, 0);
    ok = ok && same_bytes(&s.bytes, bytes);
    ok = ok && !(threads % 2 ? load_io(b, 2, s.bytes.p, s.bytes.n, 0)
                             : bitnet_seq_load_memory(b, 2, s.bytes.p, s.bytes.n, 0));
    ok = ok && bitnet_seq_length(b, 2) == N && bitnet_seq_pending(b, 2) == -1;
    ok = ok && !bitnet_logits(b, -1, NULL);                    /* they are not saved */
    again = save(b, 2);
    ok = ok && same_bytes(&again.bytes, bytes);
    ok = ok && eval_text(b, 2, N, MORE) && logits_are(b, want[1]);
    /* and in a context with a single sequence, which is full already */
    ok = ok && !bitnet_seq_rewind(a, 0, 3, NULL) && eval_text(a, 0, 5, N - 3);
    ok = ok && !bitnet_seq_load_memory(a, 0, bytes->p, bytes->n, 0);
    ok = ok && !bitnet_seq_sync(a, 0, bitnet_seq_tokens(a, 0), N, 0, 0) && logits_are(a, want[0]);
    free(s.bytes.p);
    free(again.bytes.p);
    bitnet_ctx_free(a);
    bitnet_ctx_free(b);
    bitnet_model_free(m);
    return ok;
}

static void test_round_trip(void) {
    gb_model g;
    int kv, k, t, i, ok = 1;
    make(&g, 3);
    for (kv = 0; kv < 3; kv++) {
        bitnet_ctx_params p = ctx_params(N + MORE, 0, 1, (bitnet_kv_type)kv);
        bitnet_model *m = load(g.data, g.size, &bitnet__kernels_scalar);
        bitnet_ctx *c = create(m, &p);
        float *want[2] = {0, 0};
        saved s;
        memset(&s, 0, sizeof s);
        ok = ok && c && eval_text(c, 0, 0, N);
        for (i = 0; i < 2 && ok; i++) {
            want[i] = (float *)gb_malloc((size_t)m->n_vocab * sizeof **want);
            memcpy(want[i], bitnet_logits(c, -1, NULL), (size_t)m->n_vocab * sizeof **want);
            if (i == 0) s = save(c, 0);
            if (i == 0) ok = eval_text(c, 0, N, MORE);
        }
        for (k = 0; k < bitnet_kernels_count() && ok; k++)
            for (t = 1; t <= 3 && ok && bitnet_kernels_usable(bitnet_kernels_get(k)); t++) {
                if (test_quick() && (k + t + kv) % 3) continue;
                ok = goes_on(&g, bitnet_kernels_get(k), t, (bitnet_kv_type)kv, &s.bytes, want);
                if (!ok) test_fail(__FILE__, __LINE__, "kernels %s, %d threads, kv_type %d",
                                   bitnet_kernels_get(k)->name, t, kv);
            }
        free(s.bytes.p);
        for (i = 0; i < 2; i++) free(want[i]);
        bitnet_ctx_free(c);
        bitnet_model_free(m);
    }
    gb_free_model(&g);
    CHECK(ok);
}

/* A pending token is saved; the text goes on as if nothing had been; an empty sequence, too. */
static void test_pending(void) {
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *a, *b;
    bitnet_generate_params p;
    saved s;
    make(&g, 4);
    m = load(g.data, g.size, 0);
    a = ctx_of(m, 64, 1, 1, BITNET_KV_F16);
    b = ctx_of(m, 80, 2, 1, BITNET_KV_F16);
    CHECK(a && b);
    s = save(a, 0);
    CHECK(s.bytes.n == 52 && !bitnet_seq_load_memory(b, 1, s.bytes.p, s.bytes.n, 0));
    CHECK(bitnet_seq_length(b, 1) == 0 && bitnet_seq_pending(b, 1) == -1);
    free(s.bytes.p);
    memset(&p, 0, sizeof p);
    p.tokens = text;
    p.n_tokens = 3;
    p.max_tokens = 7;
    p.ignore_end = 1;
    CHECK(!bitnet_generate(a, &p, 0, 0) && bitnet_seq_pending(a, 0) >= 0);
    s = save(a, 0);
    CHECK(!bitnet_seq_load_memory(b, 1, s.bytes.p, s.bytes.n, 0));
    CHECK(bitnet_seq_pending(b, 1) == bitnet_seq_pending(a, 0));
    p.tokens = 0;
    p.n_tokens = 0;
    p.max_tokens = 9;
    CHECK(!bitnet_generate(a, &p, 0, 0));
    p.seq = 1;
    CHECK(!bitnet_generate(b, &p, 0, 0));
    CHECK(bitnet_seq_length(b, 1) == 18 && bitnet_seq_length(a, 0) == 18);
    CHECK(!memcmp(bitnet_seq_tokens(b, 1), bitnet_seq_tokens(a, 0), 18 * sizeof *text));
    CHECK(bitnet_seq_pending(b, 1) == bitnet_seq_pending(a, 0));
    free(s.bytes.p);
    bitnet_ctx_free(a);
    bitnet_ctx_free(b);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The checksums at the end of what was saved for this model and text, F16, F32 and I8. This test,
   which prints them when they differ, computed them on x86-64; another machine, kernel table or
   compiler must find the same. A change of the format, of the identity of models, of make or of
   gguf_builder.h makes others. */
static void test_portable(void) {
    static const uint64_t want[3] = {0x040fe3e708f2bc43u, 0x1d7d20d377165e31u,
                                     0xc1ef42505c94336cu};
    gb_model g;
    bitnet_model *m;
    int kv;
    make(&g, 1);
    m = load(g.data, g.size, 0);
    for (kv = 0; kv < 3; kv++) {
        bitnet_ctx *c = ctx_of(m, N, 1, 1, (bitnet_kv_type)kv);
        saved s;
        uint64_t sum;
        CHECK(c && eval_text(c, 0, 0, 70));
        s = save(c, 0);
        sum = bitnet__get_u64(s.bytes.p + s.bytes.n - 8);
        free(s.bytes.p);
        bitnet_ctx_free(c);
        CHECK_MSG(sum == want[kv], "kv_type %d: 0x%08lx%08lx", kv, (unsigned long)(sum >> 32),
                  (unsigned long)(sum & 0xffffffffu));
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- what is refused ---- */

static void seal(uint8_t *p, size_t n) {
    bitnet__put_u64(p + n - 8, bitnet__hash(BITNET__HASH_START, p, n - 8));
}

/* Every byte changed, every cut, a byte too many; into a sequence that shares a page. */
static void check_damage(bitnet_kv_type kv, size_t cell) {
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *c, *other;
    bitnet_error err;
    before b;
    saved s;
    size_t i;
    make(&g, 5);
    m = load(g.data, g.size, 0);
    c = three(m, kv);
    other = ctx_of(m, 16, 1, 1, kv);
    CHECK(c && other && eval_text(other, 0, 11, FEW));
    s = save(other, 0);
    b = look(c);
    CHECK(s.bytes.n == 52 + FEW * (4 + 2 * 2 * 2 * cell));
    for (i = 0; i < s.bytes.n; i++) {
        const uint8_t change = (uint8_t)(i % 3 == 0 ? 1 : i % 3 == 1 ? 0x80 : 1 + i * 37 % 255);
        bitnet_result r;
        s.bytes.p[i] ^= change;
        err.text[0] = 0;
        r = i % 2 ? load_io(c, 0, s.bytes.p, s.bytes.n, &err)
                  : bitnet_seq_load_memory(c, 0, s.bytes.p, s.bytes.n, &err);
        CHECK_MSG(r && strstr(err.text, "saved sequence"), "byte %lu: %d '%s'", (unsigned long)i,
                  (int)r, err.text);
        CHECK_MSG(i % 7 || unchanged(c, &b), "byte %lu changed something", (unsigned long)i);
        s.bytes.p[i] ^= change;
    }
    for (i = 0; i < s.bytes.n; i++) {
        CHECK(bitnet_seq_load_memory(c, 0, s.bytes.p, i, 0) == BITNET_ERR_TRUNCATED);
        CHECK(load_io(c, 0, s.bytes.p, i, 0) == BITNET_ERR_TRUNCATED);
    }
    gb_uint(&s.bytes, 0, 1);
    CHECK(load_io(c, 0, s.bytes.p, s.bytes.n, &err) == BITNET_ERR_FORMAT);
    CHECK(unchanged(c, &b));
    CHECK(!bitnet_seq_load_memory(c, 0, s.bytes.p, s.bytes.n - 1, &err));
    CHECK(bitnet_seq_length(c, 0) == FEW && !memcmp(bitnet_seq_tokens(c, 0), text + 11,
                                                    FEW * sizeof *text));
    free(b.of[0].bytes.p);
    b.of[0] = s;
    b.of[0].bytes.n--;
    b.logit = -1;                      /* the last call evaluated 1, whose logits stay */
    if (bitnet_logits(c, -1, NULL)) b.logit = bitnet_logits(c, -1, NULL)[0];
    CHECK(unchanged(c, &b));
    forget(&b);
    bitnet_ctx_free(c);
    bitnet_ctx_free(other);
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void test_damage(void) {
    check_damage(BITNET_KV_F16, 32 * 2);
    check_damage(BITNET_KV_I8, 4 + 32);
}

static void refuses(bitnet_ctx *c, const gb_buf *f, bitnet_result want, const char *word) {
    bitnet_error err = {BITNET_OK, "", {0}};
    before b = look(c);
    const bitnet_result r = load_io(c, 0, f->p, f->n, &err);
    CHECK_MSG(r == want && strstr(err.text, word), "%d '%s', not %d '%s'", (int)r, err.text,
              (int)want, word);
    CHECK(bitnet_seq_load_memory(c, 0, f->p, f->n, 0) == want && unchanged(c, &b));
    forget(&b);
}

/* A changed number, with a checksum that is right; then as it was. */
static void refuses_number(bitnet_ctx *c, gb_buf *f, size_t at, uint32_t x, bitnet_result want,
                           const char *word) {
    const uint32_t old = bitnet__get_u32(f->p + at);
    bitnet__put_u32(f->p + at, x);
    seal(f->p, f->n);
    refuses(c, f, want, word);
    bitnet__put_u32(f->p + at, old);
    seal(f->p, f->n);
}

static void check_foreign(bitnet_kv_type kv) {
    gb_model g, g2;
    bitnet_model *m, *m2;
    bitnet_ctx *c, *c2, *f32, *small;
    bitnet_ctx_params p = ctx_params(64, 0, 1, kv);
    saved s;
    size_t i;
    make(&g2, 6);
    make(&g, 7);                       /* the same header and shapes, other weights */
    m = load(g.data, g.size, 0);
    m2 = load(g2.data, g2.size, 0);
    CHECK(m && m2 && m->gguf.data_start == m2->gguf.data_start);
    CHECK(!memcmp(g.data, g2.data, (size_t)m->gguf.data_start));
    c = three(m, kv);
    c2 = three(m2, kv);
    f32 = three(m, BITNET_KV_F32);
    p.n_seqs = SEQS;
    small = create(m, &p);
    CHECK(c && c2 && f32 && small);
    s = save(c, 1);
    refuses(c2, &s.bytes, BITNET_ERR_UNSUPPORTED, "offset 16: it was saved with another model");
    refuses(f32, &s.bytes, BITNET_ERR_UNSUPPORTED, "offset 12: the kv_type");
    refuses(small, &s.bytes, BITNET_ERR_FULL, "69 tokens, the context 64");
    refuses_number(c, &s.bytes, 4, 0, BITNET_ERR_FORMAT, "offset 0: this is no saved sequence");
    refuses_number(c, &s.bytes, 8, 2, BITNET_ERR_UNSUPPORTED, "offset 8: the version");
    for (i = 16; i < 36; i += 4)
        refuses_number(c, &s.bytes, i, 77, BITNET_ERR_UNSUPPORTED, "another model");
    refuses_number(c, &s.bytes, 36, 70, BITNET_ERR_TRUNCATED, "70 tokens take");
    refuses_number(c, &s.bytes, 36, 68, BITNET_ERR_FORMAT, "68 tokens take");
    refuses_number(c, &s.bytes, 36, 1 << 20, BITNET_ERR_TRUNCATED, "1048576 tokens take");
    refuses_number(c, &s.bytes, 36, (1 << 20) + 1, BITNET_ERR_FORMAT, "offset 36");
    refuses_number(c, &s.bytes, 36, UINT32_MAX, BITNET_ERR_FORMAT, "offset 36");
    refuses_number(c, &s.bytes, 40, (uint32_t)m->n_vocab, BITNET_ERR_FORMAT, "offset 40: token");
    refuses_number(c, &s.bytes, 40, (uint32_t)-2, BITNET_ERR_FORMAT, "offset 40: token");
    refuses_number(c, &s.bytes, 44, (uint32_t)-1, BITNET_ERR_FORMAT, "offset 44: token");
    refuses_number(c, &s.bytes, 44 + 4 * 68, (uint32_t)m->n_vocab, BITNET_ERR_FORMAT,
                   "offset 316: token");
    CHECK(!bitnet_seq_load_memory(c, 2, s.bytes.p, s.bytes.n, 0));     /* it is as it was */
    /* Keys and values of NaN with a right checksum: what follows is an error, or not. */
    memset(s.bytes.p + 44 + 4 * 69, 0xff, s.bytes.n - 8 - 44 - 4 * 69);
    seal(s.bytes.p, s.bytes.n);
    CHECK(!bitnet_seq_load_memory(c, 2, s.bytes.p, s.bytes.n, 0));
    eval_text(c, 2, 0, 4);
    CHECK(eval_text(c, 1, 0, 4) && bitnet_seq_length(c, 1) == 73);
    free(s.bytes.p);
    bitnet_ctx_free(c);
    bitnet_ctx_free(c2);
    bitnet_ctx_free(f32);
    bitnet_ctx_free(small);
    bitnet_model_free(m);
    bitnet_model_free(m2);
    gb_free_model(&g);
    gb_free_model(&g2);
}

static void test_foreign(void) {
    check_foreign(BITNET_KV_F16);
    check_foreign(BITNET_KV_I8);
}

/* ---- what runs out: the code says so, and nothing has changed ---- */

typedef struct failing {
    gb_model g;
    gb_counter count;                  /* of the model's allocations, and the contexts' */
    bitnet_model *m;
    bitnet_ctx *c, *from;              /* three sequences; one of N tokens, which s has */
    saved s;
    before b;                          /* what c holds */
    bitnet_error err;
} failing;

static int fail_begin(failing *x) {
    bitnet_model_params mp;
    memset(x, 0, sizeof *x);
    make(&x->g, 8);
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&x->count);
    if (bitnet_model_load_memory(x->g.data, x->g.size, &mp, &x->m, 0)) return 0;
    x->c = three(x->m, BITNET_KV_F16);
    x->from = ctx_of(x->m, N, 1, 1, BITNET_KV_F16);
    if (!x->c || !x->from || !eval_text(x->from, 0, 0, N)) return 0;
    x->s = save(x->from, 0);
    x->b = look(x->c);
    return 1;
}

static void fail_end(failing *x) {
    forget(&x->b);
    free(x->s.bytes.p);
    bitnet_ctx_free(x->c);
    bitnet_ctx_free(x->from);
    bitnet_model_free(x->m);
    gb_free_model(&x->g);
    CHECK(x->count.live == 0);
}

static void test_writes_that_fail(void) {
    failing x;
    saved cut;
    bitnet_io io = {0};
    long i;
    CHECK(fail_begin(&x));
    io.write_fn = save_piece;
    io.ud = &cut;
    for (i = 0; i < x.s.calls; i++) {
        char says[80];
        snprintf(says, sizeof says, "writing the sequence at byte %ld of %ld", i * 4096,
                 (long)x.s.bytes.n);
        memset(&cut, 0, sizeof cut);
        cut.fail_at = i;
        CHECK(bitnet_seq_save_io(x.from, 0, &io, &x.err) == BITNET_ERR_LIMIT);
        CHECK_MSG(strstr(x.err.text, says) && cut.calls == i + 1, "%s", x.err.text);
        CHECK(cut.bytes.n == (size_t)i * 4096 &&
              !memcmp(cut.bytes.p ? cut.bytes.p : x.s.bytes.p, x.s.bytes.p, cut.bytes.n));
        free(cut.bytes.p);
    }
    cut.bytes.p = (uint8_t *)gb_malloc(x.s.bytes.n);
    for (i = 0; i < (long)x.s.bytes.n; i += 1 + i / 9)
        CHECK(bitnet_seq_save_memory(x.from, 0, cut.bytes.p, (size_t)i, &x.err) ==
              BITNET_ERR_LIMIT);
    CHECK(!bitnet_seq_save_memory(x.from, 0, cut.bytes.p, x.s.bytes.n, &x.err));
    CHECK(!memcmp(cut.bytes.p, x.s.bytes.p, x.s.bytes.n));
    free(cut.bytes.p);
    fail_end(&x);
}

static void test_reads_that_fail(void) {
    failing x;
    gb_reader reader;
    bitnet_io io;
    long i;
    CHECK(fail_begin(&x));
    for (i = 0; i < 2; i++) {          /* the header, and the rest */
        io = gb_io(&reader, x.s.bytes.p, x.s.bytes.n);
        reader.fail_at = i;
        reader.code = BITNET_ERR_CANCELLED;
        CHECK(bitnet_seq_load_io(x.c, 0, &io, &x.err) == BITNET_ERR_CANCELLED);
        CHECK(strstr(x.err.text, "reading the saved sequence") && unchanged(x.c, &x.b));
    }
    /* A header that promises what is not there allocates nothing. */
    io = gb_io(&reader, x.s.bytes.p, x.s.bytes.n);
    io.size--;
    i = x.count.calls;
    CHECK(bitnet_seq_load_io(x.c, 0, &io, &x.err) == BITNET_ERR_TRUNCATED && x.count.calls == i);
    fail_end(&x);
}

/* Sequence 0 gives back one page, and shares the other: two more, and the file. */
static void test_no_memory(void) {
    failing x;
    bitnet_result r = BITNET_ERR_MEMORY;
    size_t live;
    long i;
    CHECK(fail_begin(&x));
    live = x.count.peak = x.count.live_bytes;
    for (i = 0; r == BITNET_ERR_MEMORY; i++) {
        CHECK(unchanged(x.c, &x.b));
        x.count.fail_at = x.count.calls + i;
        r = load_io(x.c, 0, x.s.bytes.p, x.s.bytes.n, &x.err);
        x.count.fail_at = -1;
    }
    CHECK_MSG(!r && i == 4, "%d '%s' after %ld", (int)r, x.err.text, i);
    CHECK(x.count.live_bytes ==
          live + 2 * ((size_t)bitnet__page_bytes(x.m, &x.c->p) + GB_FRONT));
    CHECK(x.count.peak - x.count.live_bytes <= x.s.bytes.n + GB_FRONT);
    free(x.b.of[0].bytes.p);
    x.b.of[0] = x.s;
    x.s.bytes.p = 0;                   /* b has it now */
    CHECK(unchanged(x.c, &x.b));
    fail_end(&x);
}

/* n_kv: too few pages for three, enough for three instead of two. */
static void test_no_pages(void) {
    failing x;
    bitnet_ctx_params p = ctx_params(N, 0, 1, BITNET_KV_F16);
    bitnet_ctx *c;
    CHECK(fail_begin(&x));
    p.n_seqs = SEQS;
    p.n_kv = 4 * 64;
    CHECK(!bitnet_ctx_create(x.m, &p, &c, 0) && eval_text(c, 0, 0, 70) && eval_text(c, 1, 0, 65));
    CHECK(load_io(c, 2, x.s.bytes.p, x.s.bytes.n, &x.err) == BITNET_ERR_FULL);
    CHECK(strstr(x.err.text, "n_kv"));
    CHECK(load_io(c, 0, x.s.bytes.p, x.s.bytes.n, &x.err) == BITNET_ERR_FULL);
    CHECK(bitnet_seq_length(c, 0) == 70 && !bitnet_seq_rewind(c, 1, 64, NULL));
    CHECK(!load_io(c, 0, x.s.bytes.p, x.s.bytes.n, &x.err) && bitnet_seq_length(c, 0) == N);
    bitnet_ctx_free(c);
    fail_end(&x);
}

static bitnet_result save_inside(void *ud, const void *data, size_t n) {
    bitnet_ctx *c = (bitnet_ctx *)ud;
    bitnet_io io = {0};
    io.write_fn = save_inside;
    io.ud = ud;
    if (bitnet_seq_save_io(c, 0, &io, 0) != BITNET_ERR_BUSY ||
        bitnet_seq_load_memory(c, 0, data, n, 0) != BITNET_ERR_BUSY ||
        bitnet_seq_sync(c, 0, text, 1, 0, 0) != BITNET_ERR_BUSY) return BITNET_ERR_SELFTEST;
    return bitnet_seq_length(c, 0) == 3 ? BITNET_OK : BITNET_ERR_SELFTEST;
}

static void test_busy(void) {
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_io io = {0};
    make(&g, 9);
    m = load(g.data, g.size, 0);
    c = ctx_of(m, 16, 1, 1, BITNET_KV_F16);
    CHECK(c && eval_text(c, 0, 0, 3));
    io.write_fn = save_inside;
    io.ud = c;
    CHECK(!bitnet_seq_save_io(c, 0, &io, 0));
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- reuse ---- */

static void test_sync(void) {
    static const int lengths[] = {1, 70, 71, 70, 69, 64, 1, 128, 65, 150};
    bitnet_token want[N];
    bitnet_ctx_params p = ctx_params(N, 16, 1, BITNET_KV_F16);
    bitnet_generate_params gen;
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *c, *alone;
    bitnet_error err;
    int32_t kept = -1, have = 0;
    int i, k;
    make(&g, 10);
    m = load(g.data, g.size, 0);
    p.n_seqs = 2;
    p.n_kv = 4 * 64;
    c = create(m, &p);
    alone = ctx_of(m, N, 1, 1, BITNET_KV_F16);
    CHECK(c && alone);
    memcpy(want, text, sizeof want);
    for (i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        const int n = lengths[i];
        int agree = 0;
        if (i % 3 == 2) want[n / 2] = (want[n / 2] + 1) % 256;
        while (agree < have && agree < n - 1 && want[agree] == bitnet_seq_tokens(c, 1)[agree])
            agree++;
        CHECK(!bitnet_seq_sync(c, 1, want, n, &kept, &err));
        CHECK_MSG(kept == agree, "step %d: %d kept, not %d", i, (int)kept, agree);
        CHECK(bitnet_seq_length(c, 1) == n && bitnet_seq_pending(c, 1) == -1);
        CHECK(!memcmp(bitnet_seq_tokens(c, 1), want, (size_t)n * sizeof *want));
        CHECK(!bitnet_seq_rewind(alone, 0, 0, NULL) && !bitnet_eval(alone, 0, want, n, 1, 0));
        CHECK_MSG(logits_are(c, bitnet_logits(alone, -1, NULL)), "step %d: other logits", i);
        have = n;
    }
    /* What is refused at once changes nothing, the pending token included. */
    memset(&gen, 0, sizeof gen);
    gen.seq = 1;
    gen.max_tokens = 1;
    CHECK(!bitnet_seq_rewind(c, 1, 100, NULL));
    gen.tokens = want;
    gen.n_tokens = 2;
    CHECK(!bitnet_generate(c, &gen, 0, 0));
    k = bitnet_seq_pending(c, 1);
    kept = -5;
    CHECK(bitnet_seq_sync(c, 1, want, 0, &kept, &err) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_sync(c, 1, want, -1, &kept, &err) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_sync(c, 1, want, N + 1, &kept, &err) == BITNET_ERR_FULL);
    CHECK(bitnet_seq_sync(c, 1, want, INT32_MAX, &kept, &err) == BITNET_ERR_FULL);
    i = want[7];
    want[7] = m->n_vocab;
    CHECK(bitnet_seq_sync(c, 1, want, 9, &kept, &err) == BITNET_ERR_ARG);
    CHECK_MSG(strstr(err.text, "index 7"), "%s", err.text);
    want[7] = i;
    CHECK(bitnet_seq_length(c, 1) == 102 && bitnet_seq_pending(c, 1) == k && k >= 0);
    CHECK(kept == -5);
    /* Where evaluating fails, what agreed is left. */
    CHECK(!bitnet_seq_sync(c, 0, text, 128, &kept, 0) && kept == 0);
    CHECK(bitnet_seq_sync(c, 1, want, 129, &kept, &err) == BITNET_ERR_FULL && kept == 100);
    CHECK(strstr(err.text, "n_kv") && bitnet_seq_length(c, 1) == 100);
    CHECK(bitnet_seq_pending(c, 1) == -1);
    CHECK(!bitnet_seq_sync(c, 1, want, 128, &kept, &err) && kept == 100);
    CHECK(!bitnet_seq_rewind(alone, 0, 0, NULL) && !bitnet_eval(alone, 0, want, 128, 1, 0));
    CHECK(logits_are(c, bitnet_logits(alone, -1, NULL)));
    bitnet_ctx_free(c);
    bitnet_ctx_free(alone);
    bitnet_model_free(m);
    gb_free_model(&g);
}

extern const test_case state_tests[];
const test_case state_tests[] = {
    {"state/round_trip", test_round_trip},
    {"state/pending", test_pending},
    {"state/portable", test_portable},
    {"state/damage", test_damage},
    {"state/foreign", test_foreign},
    {"state/writes_that_fail", test_writes_that_fail},
    {"state/reads_that_fail", test_reads_that_fail},
    {"state/no_memory", test_no_memory},
    {"state/no_pages", test_no_pages},
    {"state/busy", test_busy},
    {"state/sync", test_sync},
    {0, 0}
};
