/* Machines that fail, and programs that call in the wrong way: memory, reads, threads and callbacks
   that are refused one by one; contexts that are used twice at once; many at a time, and many times
   over; every pointer 0 and every number out of range. */

#include "gguf_helpers.h"
#include "library.h"
#include "ternary_builder.h"
#include "vocab_helpers.h"
#include "../../examples/convert/gguf_write.h"
#include "../../examples/convert/pack.h"
#include <time.h>
#ifdef __linux__
  #include <dirent.h>
#endif

/* ---- refusing every wish in turn ---- */

/* A file, what has been made of it, and what tasks say of their results. */
enum { MACH_TOKENS = 6100 };
typedef struct machine {
    gb_model g;
    gb_reader reader;
    gb_counter count;
    bitnet_model_params p;
    bitnet_io io;
    int way;                           /* 0: from memory, 1: through io, 2: from a file */
    char path[600];                    /* of the file; "": it could not be written */
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_error err;
    uint64_t digest;                   /* of all results */
    bitnet_token out[MACH_TOKENS];
} machine;

static void *mach_alloc(void *ud, size_t size, size_t align) {
    return test_refused(TEST_MEMORY) ? 0 : gb_count_alloc(ud, size, align);
}

/* A read that fails has filled a half. */
static bitnet_result mach_read(void *ud, uint64_t offset, void *dst, size_t n) {
    if (!test_refused(TEST_READS)) return gb_read(ud, offset, dst, n);
    gb_read(ud, offset, dst, n / 2);
    return BITNET_ERR_IO;
}

static int mach_load_progress(void *ud, uint64_t done, uint64_t total) {
    (void)ud, (void)done, (void)total;
    return test_refused(TEST_CALLBACKS);
}

static void mach_note(machine *x, const void *p, size_t n) {
    const uint8_t *bytes = (const uint8_t *)p;
    for (; n > 0; n--) x->digest = (x->digest ^ *bytes++) * 0x100000001b3u;
}

static void mach_note_int(machine *x, int64_t n) { mach_note(x, &n, sizeof n); }

/* Takes over g, whose file is made; kernels 0: the default. */
static void mach_start(machine *x, gb_model g, const char *kernels) {
    FILE *f;
    memset(x, 0, sizeof *x);
    x->g = g;
    x->p.allocator = gb_counting(&x->count);
    x->p.allocator.alloc_fn = mach_alloc;
    x->p.progress_fn = mach_load_progress;
    x->p.kernels = bitnet_kernels_find(kernels);
    x->io = gb_io(&x->reader, g.data, g.size);
    x->io.read_fn = mach_read;
    snprintf(x->path, sizeof x->path, "%s-%lx", test_path("machine.gguf"),
             (unsigned long)(uintptr_t)g.data);
    f = fopen(x->path, "wb");
    if (!f || fwrite(g.data, 1, g.size, f) != g.size) x->path[0] = 0;
    if (f) fclose(f);
}

static void mach_end(machine *x) {
    bitnet_ctx_free(x->c);
    bitnet_model_free(x->m);
    if (x->path[0]) remove(x->path);
    gb_free_model(&x->g);
    if (x->count.live) test_fail(__FILE__, __LINE__, "%ld blocks are left", x->count.live);
}

static bitnet_result mach_open(machine *x, bitnet_model **m) {
    if (x->way == 1) return bitnet_model_load_io(&x->io, &x->p, m, &x->err);
#ifndef BITNET_NO_STDIO
    if (x->way == 2) return bitnet_model_load_file(x->path, &x->p, m, &x->err);
#endif
    return bitnet_model_load_memory(x->g.data, x->g.size, &x->p, m, &x->err);
}

/* The model and a context for all the tasks that need them. */
static int mach_ready(machine *x, int n_threads) {
    bitnet_ctx_params p;
    memset(&p, 0, sizeof p);
    p.n_ctx = 64;
    p.n_batch = 5;
    p.n_logits = 5;
    p.n_threads = n_threads;
    if (!mach_open(x, &x->m) && !bitnet_ctx_create(x->m, &p, &x->c, &x->err)) {
        test_share(x->c);
        return 1;
    }
    test_fail(__FILE__, __LINE__, "%s", x->err.text);
    return 0;
}

/* A task does something from the beginning to the end, and leaves behind what it found. It returns
   what the library said, with x->err as the library filled it. */
typedef bitnet_result (*mach_task)(machine *x);

static bitnet_result mach_try(machine *x, mach_task task) {
    x->digest = 0;
    memset(&x->err, 0, sizeof x->err);
    return task(x);
}

/* Every wish of a kind is refused in turn, alone and with all later ones: the task says code, in
   words, and nothing leaks; then the same task on the same objects gives what it gave at first.
   Code BITNET_OK: it does so at once, with what it gets. Quick: every wish in one of both ways. */
static void mach_refuse(machine *x, const char *name, mach_task task, int kind, bitnet_result code,
                        long least) {
    const long live = x->count.live;
    const bitnet_result first = mach_try(x, task);
    const uint64_t want = x->digest;
    bitnet_result r;
    long at;
    int later;
    CHECK_MSG(!first, "%s: %s", name, x->err.text);
    for (later = 0; later < 2; later++)
        for (at = test_quick() ? later : 0;; at += test_quick() ? 2 : 1) {
            test_refuse.kind = kind;
            test_refuse.later = later;
            test_refuse.asked = 0;
            test_refuse.at = at;
            r = mach_try(x, task);
            test_refuse.at = -1;
            if (test_refuse.asked <= at) break;
            CHECK_MSG(r == code && x->err.code == r &&
                      (code ? clean_text(x->err.text) : x->digest == want),
                      "%s, wish %ld: %s instead of %s (%s)", name, at, bitnet_result_text(r),
                      bitnet_result_text(code), x->err.text);
            CHECK_MSG(x->count.live == live, "%s, wish %ld: %ld blocks leak", name, at,
                      x->count.live - live);
            r = mach_try(x, task);
            CHECK_MSG(!r && x->digest == want, "%s, after wish %ld: %s", name, at,
                      r ? x->err.text : "another result");
        }
    CHECK_MSG(!r && x->digest == want && x->count.live == live, "%s: %s", name, x->err.text);
    CHECK_MSG(at >= least, "%s: only %ld wishes", name, at);
}

/* ---- tasks ---- */

static bitnet_result mach_eval(machine *x, bitnet_ctx *c) {
    static const bitnet_token tokens[3] = {7, 42, 99};
    bitnet_result r = bitnet_eval(c, 0, tokens, 3, 3, &x->err);
    bitnet_sampler s;
    int i;
    memset(&s, 0, sizeof s);
    s.temperature = 0.9f;
    s.top_k = 4;
    if (r != BITNET_OK) return r;
    mach_note_int(x, bitnet_sample(c, -1, 0, NULL));                 /* the screened head */
    mach_note_int(x, bitnet_sample(c, -1, &s, NULL));
    for (i = 0; i < 3; i++)
        mach_note(x, bitnet_logits(c, i, NULL), (size_t)x->g.n_vocab * sizeof(float));
    return BITNET_OK;
}

static bitnet_result mach_load(machine *x) {
    bitnet_model *m = (bitnet_model *)(void *)x;
    bitnet_ctx_params p;
    bitnet_ctx *c = 0;
    bitnet_model_info info;
    bitnet_result r = mach_open(x, &m);
    if (r != BITNET_OK) return m ? BITNET_OK : r;          /* *out must be 0 */
    memset(&p, 0, sizeof p);
    p.n_ctx = p.n_logits = 3;
    p.n_threads = 1;
    bitnet_model_get_info(m, &info);
    mach_note_int(x, (int64_t)info.own_bytes);
    r = bitnet_ctx_create(m, &p, &c, &x->err);
    if (r == BITNET_OK) r = mach_eval(x, c);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return r;
}

static bitnet_result mach_ctx(machine *x) {
    bitnet_ctx_params p;
    bitnet_ctx *c;
    bitnet_result r = BITNET_OK;
    for (p.n_threads = 1; p.n_threads <= 3 && !r; p.n_threads += 2) {
        int32_t n = p.n_threads;
        memset(&p, 0, sizeof p);
        p.n_ctx = p.n_logits = 8;
        p.n_threads = n;
        c = (bitnet_ctx *)(void *)&p;
        r = bitnet_ctx_create(x->m, &p, &c, &x->err);
        if (r == BITNET_OK) r = mach_eval(x, c);
        else if (c) return BITNET_OK;
        bitnet_ctx_free(c);
    }
    return r;
}

/* Words for which the stack is too small, of several sizes. Threads may call it after the first
   time. */
static const char *mach_long_text(void) {
    static char text[6000];
    size_t i;
    if (text[0]) return text;
    for (i = 0; i < sizeof text - 1; i++) text[i] = i == 400 || i == 1500 ? ' ' : 'l';
    return text;
}

static bitnet_result mach_length(machine *x, int n) {
    if (n >= 0) return BITNET_OK;
    return bitnet__fail(&x->err, (bitnet_result)n, "%s", bitnet_result_text((bitnet_result)n));
}

static bitnet_result mach_tokenize(machine *x) {
    const char *text = mach_long_text();
    int n = bitnet_tokenize(x->m, text, strlen(text), BITNET_ADD_BOS, x->out, MACH_TOKENS);
    if (n > 0) mach_note(x, x->out, (size_t)n * sizeof *x->out);
    return mach_length(x, n);
}

static bitnet_result mach_chat(machine *x) {
    bitnet_message talk[2] = {MESSAGE("user", "hello"), MESSAGE("assistant", "")};
    int n;
    talk[1].content = text_of(mach_long_text());
    n = bitnet_chat_tokenize(x->m, 0, talk, 2, BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY, x->out,
                             MACH_TOKENS, NULL);
    if (n > 0) mach_note(x, x->out, (size_t)n * sizeof *x->out);
    return mach_length(x, n);
}

static int mach_text(void *ud, const char *text, size_t n, bitnet_token t) {
    mach_note((machine *)ud, text, n);
    mach_note_int((machine *)ud, t);
    return 0;
}

static int mach_progress(void *ud, uint64_t done, uint64_t total) {
    (void)ud, (void)done, (void)total;
    return test_refused(TEST_CALLBACKS);
}

static bitnet_generate_params mach_params(machine *x, bitnet_sampler *s) {
    static const bitnet_text stops[] = {BITNET_TEXT("never to be seen"),
                                        BITNET_TEXT("nor this one")};
    bitnet_generate_params p;
    memset(s, 0, sizeof *s);
    s->temperature = 1.0f;
    s->repeat_penalty = 1.1f;
    s->rng = 5;
    memset(&p, 0, sizeof p);
    p.text = text_of("hello hell hello hell hello");
    p.max_tokens = 16;
    p.ignore_end = 1;
    p.lookup = 4;
    p.sampler = s;
    p.stop_strings = stops;
    p.n_stop_strings = 2;
    p.text_fn = mach_text;
    p.progress_fn = mach_progress;
    p.text_ud = p.progress_ud = x;
    return p;
}

static bitnet_result mach_generate(machine *x) {
    bitnet_sampler s;
    bitnet_generate_params p = mach_params(x, &s);
    bitnet_result r = bitnet_seq_rewind(x->c, 0, 0, NULL);
    if (r == BITNET_OK) r = bitnet_generate(x->c, &p, 0, &x->err);
    mach_note(x, &s.rng, sizeof s.rng);
    mach_note_int(x, bitnet_seq_length(x->c, 0));
    return r;
}

/* A turn of a chat. If it fails, all of it but the pending token before it is gone. */
static bitnet_result mach_reply(machine *x) {
    static const bitnet_message talk[2] = {MESSAGE("system", "hell"), MESSAGE("user", "hello")};
    bitnet_sampler s;
    bitnet_generate_params p = mach_params(x, &s);
    bitnet_token pending = -1;
    bitnet_result r = bitnet_seq_rewind(x->c, 0, 0, NULL);
    p.max_tokens = 2;
    if (r == BITNET_OK) r = bitnet_generate(x->c, &p, 0, &x->err);
    if (r == BITNET_OK) pending = bitnet_seq_pending(x->c, 0);
    p.text = text_of(0);
    p.messages = talk;
    p.n_messages = 2;
    if (r == BITNET_OK) {
        const int32_t before = bitnet_seq_length(x->c, 0);
        r = bitnet_generate(x->c, &p, 0, &x->err);
        if (r && bitnet_seq_length(x->c, 0) != before) return BITNET_ERR_SELFTEST;
    }
    if (r && bitnet_seq_pending(x->c, 0) != pending) return BITNET_ERR_SELFTEST;
    mach_note_int(x, bitnet_seq_length(x->c, 0));
    mach_note_int(x, bitnet_seq_pending(x->c, 0));
    return r;
}

/* The prompt does not fit, but that is not seen before it is tokenized. */
static bitnet_result mach_generate_long(machine *x) {
    bitnet_sampler s;
    bitnet_generate_params p = mach_params(x, &s);
    bitnet_result r = bitnet_seq_rewind(x->c, 0, 0, NULL);
    p.text = text_of(mach_long_text());
    if (r == BITNET_OK) r = bitnet_generate(x->c, &p, 0, &x->err);
    return r == BITNET_ERR_FULL ? BITNET_OK : r;
}

static bitnet_result mach_gguf_read(machine *x) {
    bitnet_gguf *g = (bitnet_gguf *)(void *)x;
    bitnet_gguf_tensor t;
    uint8_t head[32];
    bitnet_result r;
    uint64_t i;
    if (x->way == 1) r = bitnet_gguf_open_io(&x->io, &x->p.allocator, &g, &x->err);
#ifndef BITNET_NO_STDIO
    else if (x->way == 2) r = bitnet_gguf_open_file(x->path, &x->p.allocator, &g, &x->err);
#endif
    else r = bitnet_gguf_open_memory(x->g.data, x->g.size, &x->p.allocator, &g, &x->err);
    if (r != BITNET_OK) return g ? BITNET_OK : r;
    for (i = 0; !r && !bitnet_gguf_get_tensor(g, i, &t); i++) {
        r = bitnet_gguf_read(g, &t, t.size - 32, head, 32, &x->err);
        mach_note(x, t.name, strlen(t.name));
        mach_note(x, head, 32);
    }
    bitnet_gguf_close(g);
    return r;
}

static int mach_write_fn(void *ud, const void *p, size_t n) {
    if (test_refused(TEST_CALLBACKS)) return 1;
    mach_note((machine *)ud, p, n);
    return 0;
}

/* Every function of the writer. After its first failure it is not told more than to end. */
static bitnet_result mach_gguf_write(machine *x) {
    static const char *const texts[] = {"a", "bc"};
    static const uint64_t dims[] = {256, 8};
    static const int32_t ints[600] = {1, 2};
    static const float floats[600] = {1, 2};
    static const uint8_t data[1024] = {3};
    bitnet_gguf_value v = {BITNET_GGUF_I8, 0, 1, 1, 0};
    gguf_writer w;
    bitnet_result r;
    int i;
    v.data = data;
    memset(&w, 0, sizeof w);
    w.write_fn = mach_write_fn;
    w.ud = x;
    gguf_add_string(&w, "string", "text");
    gguf_add_u32(&w, "u32", 1);
    gguf_add_f32(&w, "f32", 2.0f);
    gguf_add_bool(&w, "bool", 1);
    gguf_add_i32s(&w, "i32s", ints, 600);
    gguf_add_f32s(&w, "f32s", floats, 600);
    gguf_add_strings(&w, "strings", texts, 0, 2);
    gguf_add_value(&w, "value", &v);
    for (i = 0; i < 40; i++) {
        char name[48];
        snprintf(name, sizeof name, "a tensor's long name %d", i);
        gguf_add_tensor(&w, name, BITNET_TENSOR_I2_S, 2, dims);
    }
    gguf_write_header(&w);
    for (i = 0; i < 40; i++) {
        gguf_write_data(&w, data, 44);
        gguf_write_data(&w, data, 500);
    }
    r = gguf_write_end(&w);
    x->err = w.err;
    if (w.header) return BITNET_ERR_SELFTEST;               /* all has been freed */
    gguf_writer_free(&w);
    return r;
}

/* ---- tests of refusals ---- */

/* All kinds of files, loaded in ways [from, to), by all kinds of refusal. */
static void mach_load_refused(gb_model g, int from, int to, const char *name,
                              const char *kernels) {
    machine x;
    mach_start(&x, g, kernels);
    x.p.tile = imp.tile;
    if (to == 3 && !x.path[0]) to = 2;
    for (x.way = from; x.way < to; x.way++) {
        mach_refuse(&x, name, mach_load, TEST_MEMORY, BITNET_ERR_MEMORY, 10);
        mach_refuse(&x, name, mach_load, TEST_CALLBACKS, BITNET_ERR_CANCELLED,
                    x.way == 1 ? 5 : 1);
        mach_refuse(&x, name, mach_load, TEST_READS, BITNET_ERR_IO, x.way == 1 ? 9 : 0);
        test_cpus = 4;
        mach_refuse(&x, name, mach_load, TEST_SYSTEM, BITNET_OK, 0);
        test_cpus = 0;
    }
    mach_end(&x);
}

static void test_load_refused(void) {
    const int from = test_quick() ? 1 : 0;
    gb_model g = word_model();
    memset(&imp, 0, sizeof imp);       /* no tile */
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    mach_load_refused(g, from, 3, "I2_S", "scalar");
    g = word_model();
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    mach_load_refused(g, from, 2, "I2_S for scalar-tl2", "scalar-tl2");
    g = spm_model(-1, SPM_TOKENS);
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    mach_load_refused(g, from, 2, "SentencePiece", 0);
    g = (gb_model){.arch = "llama", .dim = 128, .ffn = 128, .layers = 1, .heads = 2,
                   .kv_heads = 2, .eps = 1e-5f, .no_sub_norms = 1, .untied = 1, .seed = 27};
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    mach_load_refused(g, from, 2, "llama", 0);
}

/* Larger files; ternary_formats/memory has all types. */
static void test_import_refused(void) {
    const bitnet_tile tile = {32, 96, 32};
    imp = (struct imp_setting){IMP_TL2, tile, 0, 0, 0, 0};
    mach_load_refused(imp_model(1), 0, 1, "TL2", 0);
    imp = (struct imp_setting){IMP_PQ2, tile, 0, 0, 1, IMP_Q2};
    mach_load_refused(imp_model(2), 0, 1, "Q2_0", 0);
    if (test_quick()) return;
    imp = (struct imp_setting){IMP_TQ1, tile, 0, 0, 0, 0};
    mach_load_refused(imp_model(2), 0, 1, "TQ1_0", "scalar-tl2");
}

static void test_tasks_refused(void) {
    machine x;
    int i;
    for (i = 0; i < 2; i++) {
        gb_model g = i ? spm_model(-1, SPM_TOKENS) : word_model();
        gb_make_model(&g);
        mach_start(&x, g, 0);
        if (mach_ready(&x, 1)) {
            mach_refuse(&x, "context", mach_ctx, TEST_MEMORY, BITNET_ERR_MEMORY, 4);
            mach_refuse(&x, "tokenize", mach_tokenize, TEST_MEMORY, BITNET_ERR_MEMORY, 2);
            if (!i) mach_refuse(&x, "chat", mach_chat, TEST_MEMORY, BITNET_ERR_MEMORY, 3);
            if (!i) mach_refuse(&x, "reply", mach_reply, TEST_MEMORY, BITNET_ERR_MEMORY, 4);
            if (!i) mach_refuse(&x, "reply", mach_reply, TEST_CALLBACKS, BITNET_ERR_CANCELLED, 4);
            mach_refuse(&x, "generate", mach_generate, TEST_MEMORY, BITNET_ERR_MEMORY, 1);
            mach_refuse(&x, "generate", mach_generate, TEST_CALLBACKS, BITNET_ERR_CANCELLED, 2);
            mach_refuse(&x, "a long prompt", mach_generate_long, TEST_MEMORY, BITNET_ERR_MEMORY, 3);
        }
        mach_end(&x);
    }
}

static void test_gguf_refused(void) {
    machine x;
    gb_model g = word_model();
    gb_make_model(&g);
    mach_start(&x, g, 0);
    for (x.way = 0; x.way < (x.path[0] ? 3 : 2); x.way++) {
        mach_refuse(&x, "open", mach_gguf_read, TEST_MEMORY, BITNET_ERR_MEMORY, 3);
        mach_refuse(&x, "open", mach_gguf_read, TEST_READS, BITNET_ERR_IO, x.way == 1 ? 14 : 0);
    }
    mach_refuse(&x, "write", mach_gguf_write, TEST_CALLBACKS, BITNET_ERR_IO, 40);
    mach_end(&x);
}

/* ---- cancelled, and gone on with ---- */

typedef struct listener {
    bitnet_token tokens[32];
    int n, stop_at, progress, cancel_at;
} listener;

static int listen_text(void *ud, const char *text, size_t n, bitnet_token t) {
    listener *l = (listener *)ud;
    (void)text, (void)n;
    if (t < 0 || l->n == 32) return 0;
    l->tokens[l->n] = t;
    return l->n++ == l->stop_at;
}

static int listen_progress(void *ud, uint64_t done, uint64_t total) {
    listener *l = (listener *)ud;
    (void)done, (void)total;
    return l->progress++ == l->cancel_at;
}

static bitnet_generate_params listened(listener *l, bitnet_sampler *s) {
    bitnet_generate_params p;
    memset(s, 0, sizeof *s);
    s->temperature = 1.2f;
    s->repeat_penalty = 1.1f;
    s->rng = 11;
    memset(&p, 0, sizeof p);
    p.ignore_end = 1;
    p.sampler = s;
    p.text_fn = listen_text;
    p.progress_fn = listen_progress;
    p.text_ud = p.progress_ud = l;
    return p;
}

/* A prompt that is cancelled after any batch, and then given again; a text that is stopped after
   any token, and gone on with: all comes as if nothing had been. */
static void test_cancel(void) {
    enum { PROMPT = 11, NEW = 12, BATCH = 4 };
    static const bitnet_token prompt[PROMPT] = {7, 42, 99, 3, 7, 42, 99, 3, 7, 42, 99};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx_params cp;
    bitnet_ctx *c = 0;
    listener want, l;
    uint64_t rng = 0;
    float *logits;
    int way, at, lookup;
    gb_make_model(&g);
    m = load_built(&g);
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = 32;
    cp.n_batch = BATCH;
    cp.n_logits = 5;
    cp.n_threads = 1;
    CHECK(m && !bitnet_ctx_create(m, &cp, &c, 0));
    logits = (float *)gb_malloc((size_t)g.n_vocab * sizeof *logits);
    memset(&want, 0, sizeof want);
    for (lookup = 0; lookup <= 4; lookup += 4)
        for (way = 0; way < 3; way++)  /* uninterrupted, progress_fn, text_fn */
            for (at = 0; at < (way == 0 ? 1 : way == 1 ? 3 : NEW); at++) {
                bitnet_generate_params p;
                bitnet_sampler s;
                bitnet_stop why;
                bitnet_result r;
                memset(&l, 0, sizeof l);
                l.cancel_at = way == 1 ? at : -1;
                l.stop_at = way == 2 ? at : -1;
                p = listened(&l, &s);
                p.tokens = prompt;
                p.n_tokens = PROMPT;
                p.max_tokens = NEW;
                p.lookup = lookup;
                CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
                r = bitnet_generate(c, &p, &why, 0);
                if (way == 1) {
                    CHECK(r == BITNET_ERR_CANCELLED && l.n == 0 && s.rng == 11);
                    CHECK(bitnet_seq_length(c, 0) == 0 && bitnet_seq_pending(c, 0) == -1);
                    CHECK(!bitnet_logits(c, -1, NULL) &&
                          bitnet_sample(c, -1, 0, NULL) == BITNET_ERR_ARG);
                    CHECK(!bitnet_generate(c, &p, &why, 0));
                } else if (way == 2) {
                    CHECK(!r && why == BITNET_STOP_CALLBACK && l.n == at + 1);
                    CHECK(bitnet_seq_length(c, 0) == PROMPT + at);
                    CHECK(bitnet_seq_pending(c, 0) == l.tokens[at]);
                    p.tokens = 0;
                    p.max_tokens = NEW - l.n;
                    CHECK(p.max_tokens == 0 || !bitnet_generate(c, &p, &why, 0));
                }
                CHECK(l.n == NEW && bitnet_seq_length(c, 0) == PROMPT + NEW - 1);
                if (way == 0 && lookup == 0) {
                    want = l;
                    rng = s.rng;
                    memcpy(logits, bitnet_logits(c, -1, NULL), (size_t)g.n_vocab * sizeof *logits);
                }
                CHECK_MSG(!memcmp(l.tokens, want.tokens, sizeof l.tokens) && s.rng == rng,
                          "way %d at %d: other tokens", way, at);
                CHECK_MSG(!memcmp(bitnet_logits(c, -1, NULL), logits,
                                  (size_t)g.n_vocab * sizeof *logits),
                          "way %d at %d: other logits", way, at);
            }
    free(logits);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- threads ---- */

#ifdef _WIN32
  #define MACH_THREAD DWORD WINAPI
#else
  #define MACH_THREAD void *
#endif

/* Of four threads the system grants fewer and fewer: there are as many, and the same bits. */
static void test_threads_refused(void) {
#if TEST_THREADS
    gb_model g = word_model();
    bitnet_ctx_params p;
    machine x;
    uint64_t want;
    long at, wishes = 0;
    gb_make_model(&g);
    mach_start(&x, g, 0);
    CHECK(mach_ready(&x, 4) && bitnet_ctx_threads(x.c) == 4);
    CHECK(!mach_try(&x, mach_generate));
    want = x.digest;
    p = x.c->p;
    for (at = 100; at >= 0; at = at > wishes ? wishes : at - 1) {
        bitnet_result r;
        bitnet_ctx_free(x.c);
        x.c = 0;
        test_refuse.kind = TEST_SYSTEM;
        test_refuse.later = at % 2 == 0;
        test_refuse.asked = 0;
        test_refuse.at = at;
        r = bitnet_ctx_create(x.m, &p, &x.c, &x.err);
        test_refuse.at = -1;
        if (at == 100) wishes = test_refuse.asked;
        CHECK_MSG(!r, "%s", x.err.text);
        test_share(x.c);
        CHECK_MSG(bitnet_ctx_threads(x.c) ==
                  (at >= wishes ? 4 : at < wishes - 3 ? 1 : 4 - (wishes - at)),
                  "%d threads, %ld of %ld wishes granted", bitnet_ctx_threads(x.c), at, wishes);
        CHECK(!mach_try(&x, mach_generate) && x.digest == want);
    }
    CHECK(wishes >= 3);
    mach_refuse(&x, "context", mach_ctx, TEST_SYSTEM, BITNET_OK, 2);
    mach_end(&x);
#else
    SKIP("no threads of our own");
#endif
}

/* ---- one context, used twice at once ---- */

/* Calls everything that changes a context, all of which must be refused; bitnet_logits and
   bitnet_hidden may be allowed. */
typedef struct intruder {
    bitnet_ctx *c;
    bitnet_generate_params gen;
    int allowed, calls, bad, at_once;  /* at_once: in a thread of its own */
    bitnet_token pending;              /* what the context should say */
} intruder;

static void intrude(intruder *n) {
    bitnet_error err = {BITNET_OK, "", {0}};
    const bitnet_token t = 1;
    n->calls++;
    if (bitnet_eval(n->c, 0, &t, 1, 1, &err) != BITNET_ERR_BUSY || err.code != BITNET_ERR_BUSY ||
        !strstr(err.text, "in use")) n->bad |= 1;
    if (bitnet_generate(n->c, &n->gen, 0, 0) != BITNET_ERR_BUSY) n->bad |= 2;
    if (bitnet_sample(n->c, -1, 0, NULL) != BITNET_ERR_BUSY) n->bad |= 4;
    if (bitnet_seq_rewind(n->c, 0, 0, NULL) != BITNET_ERR_BUSY) n->bad |= 8;
    if ((bitnet_logits(n->c, -1, NULL) != 0) != n->allowed) n->bad |= 16;
    if ((bitnet_hidden(n->c, -1, NULL) != 0) != n->allowed) n->bad |= 16;
    if (bitnet_seq_pending(n->c, 0) != n->pending) n->bad |= 32;
    if (bitnet_ctx_set_threads(n->c, 1, 0) != BITNET_ERR_BUSY ||
        bitnet_ctx_set_hooks(n->c, 0, 0) != BITNET_ERR_BUSY) n->bad |= 64;
    if (bitnet_ctx_free(n->c) != BITNET_ERR_BUSY) n->bad |= 128;
}

#if TEST_THREADS
static MACH_THREAD intrude_main(void *p) {
    intrude((intruder *)p);
    return 0;
}
#endif

static void intrude_any(void *ud, int allowed) {
    intruder *n = (intruder *)ud;
    n->allowed = allowed;
#if TEST_THREADS
    if (n->at_once) {
        bitnet__thread t;
        n->allowed = 0;
        if (bitnet__thread_start(&t, intrude_main, n)) bitnet__thread_join(t);
        return;
    }
#endif
    intrude(n);
}

static void intrude_layer(void *ud, int layer, const float *x, int n_tokens) {
    (void)layer, (void)x, (void)n_tokens;
    intrude_any(ud, 0);
}
static void intrude_step(void *ud, const char *part, int thread, int begin) {
    (void)part;
    if (thread == 0 && begin) intrude_any(ud, 0);
}
static void intrude_pool(void *ud, int jobs, void (*job)(void *arg, int i), void *arg) {
    intrude_any(ud, 0);
    while (jobs-- > 0) job(arg, jobs);
}
static int intrude_text(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)text, (void)n;
    if (t >= 0) ((intruder *)ud)->pending = t;
    intrude_any(ud, 1);
    ((intruder *)ud)->pending = -1;    /* it is evaluated next */
    return 0;
}
static int intrude_progress(void *ud, uint64_t done, uint64_t total) {
    intrude_any(ud, done == total);    /* before, there are no logits */
    return 0;
}
static void intrude_mask(void *ud, uint32_t *allowed) {
    intrude_any(ud, 0);
    memset(allowed, 0xff, 4);
}
static void intrude_rewrite(void *ud, float *logits, int32_t n_vocab) {
    (void)logits, (void)n_vocab;
    intrude_any(ud, 0);
}

/* From every callback, on its thread and on another: all is refused, and the call that is at work
   gives the same bits as without. */
static void test_busy(void) {
    static const bitnet_token prompt[] = {7, 42, 99, 3, 100, 8, 7};
    gb_model g = word_model();
    bitnet_model *m;
    float *want;
    size_t bytes;
    int i, at_once;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    bytes = (size_t)g.n_vocab * sizeof *want;
    want = (float *)gb_malloc(bytes);
    for (i = 0; i < 8; i++)
        for (at_once = 0; at_once <= TEST_THREADS; at_once++) {
            bitnet_ctx_params p;
            bitnet_generate_params gen;
            bitnet_sampler sampler;
            bitnet_error err = {BITNET_OK, "", {0}};
            intruder n;
            memset(&n, 0, sizeof n);
            memset(&p, 0, sizeof p);
            memset(&gen, 0, sizeof gen);
            memset(&sampler, 0, sizeof sampler);
            sampler.rewrite_ud = sampler.mask_ud = &n;
            gen.sampler = &sampler;
            n.at_once = at_once;
            n.pending = -1;
            gen.tokens = prompt;
            gen.n_tokens = 7;
            gen.max_tokens = 3;
            gen.ignore_end = 1;
            gen.text_ud = gen.progress_ud = &n;
            n.gen = gen;
            p.n_ctx = 16;
            p.n_batch = 4;
            p.n_threads = i > 2 ? 2 : 1;
            p.hooks.layer_ud = p.hooks.step_ud = p.parallel_ud = &n;
            if (i == 1) p.hooks.layer_fn = intrude_layer;
            if (i == 2) p.hooks.step_fn = intrude_step;
            if (i == 3) p.parallel_fn = intrude_pool;
            if (i == 4) gen.text_fn = intrude_text;
            if (i == 5) gen.progress_fn = intrude_progress;
            if (i == 6) sampler.rewrite_fn = intrude_rewrite;
            if (i == 7) sampler.mask_fn = intrude_mask;
            CHECK(!bitnet_ctx_create(m, &p, &n.c, 0));
            test_share(n.c);
            CHECK_MSG(!bitnet_generate(n.c, &gen, 0, &err), "%s", err.text);
            CHECK_MSG(!n.bad && (n.calls > 1) == (i > 0), "callback %d%s: %d calls, wrong: %x", i,
                      at_once ? ", another thread" : "", n.calls, (unsigned)n.bad);
            CHECK(bitnet_seq_length(n.c, 0) == 9 && bitnet_logits(n.c, -1, NULL));
            if (i == 0) memcpy(want, bitnet_logits(n.c, -1, NULL), bytes);
            CHECK(i == 7 || !memcmp(want, bitnet_logits(n.c, -1, NULL), bytes));
            bitnet_ctx_free(n.c);
        }
    free(want);
    bitnet_model_free(m);
    gb_free_model(&g);
}

#if TEST_THREADS

/* Two threads that push tokens into one context, as fast as they can, until each has done its own.
   */
typedef struct pusher {
    bitnet_ctx *c;
    bitnet__atomic *waiting;           /* for the other one */
    int done, busy, bad;
} pusher;

enum { PUSHES = 100 };

static MACH_THREAD push_main(void *arg) {
    pusher *p = (pusher *)arg;
    bitnet__count(p->waiting, UINTPTR_MAX);
    while (bitnet__load_acquire(p->waiting) > 0) bitnet__pause();
    while (p->done < PUSHES && !p->bad && p->busy < 200000000) {
        const bitnet_token t = p->done;
        bitnet_result r = bitnet_eval(p->c, 0, &t, 1, 1, 0);
        if (r == BITNET_OK) p->done++;
        else if (r == BITNET_ERR_BUSY) p->busy++;
        else p->bad++;
        bitnet_logits(p->c, -1, NULL);
        bitnet_sample(p->c, -1, 0, NULL);
    }
    return 0;
}

/* Each token is either refused or evaluated once and for all. */
static void test_busy_threads(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet__thread t[2];
    bitnet__atomic waiting = 2;
    pusher p[2];
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    c = new_ctx(m, 3 * PUSHES, 4);
    CHECK(c);
    for (i = 0; i < 2; i++) {
        memset(&p[i], 0, sizeof p[i]);
        p[i].c = c;
        p[i].waiting = &waiting;
        CHECK(bitnet__thread_start(&t[i], push_main, &p[i]));
    }
    for (i = 0; i < 2; i++) bitnet__thread_join(t[i]);
    CHECK_MSG(p[0].done == PUSHES && p[1].done == PUSHES && bitnet_seq_length(c, 0) == 2 * PUSHES,
              "%d and %d done, %d in the context", p[0].done, p[1].done, bitnet_seq_length(c, 0));
    printf("%d calls found it in use ... ", p[0].busy + p[1].busy);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Threads that free the contexts of one model, which has been freed before, at the same time: the
   last one frees it, and only that. */
typedef struct freer { bitnet_ctx *c; bitnet__atomic *waiting; bitnet_result r; } freer;

enum { FREERS = 3 };

static MACH_THREAD free_main(void *arg) {
    freer *f = (freer *)arg;
    bitnet__count(f->waiting, UINTPTR_MAX);
    while (bitnet__load_acquire(f->waiting) > 0) bitnet__pause();
    f->r = bitnet_ctx_free(f->c);
    return 0;
}

static bitnet__atomic held_blocks;

static void *held_alloc(void *ud, size_t size, size_t align) {
    char *raw = (char *)malloc(size + 2 * align), *p = raw + align;
    (void)ud;
    if (!raw) return 0;
    p += (align - ((uintptr_t)p & (align - 1))) & (align - 1);
    memcpy(p - sizeof raw, &raw, sizeof raw);
    bitnet__count(&held_blocks, 1);
    return p;
}

static void held_free(void *ud, void *p, size_t size) {
    char *raw;
    (void)ud;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    memset(p, 0xff, size);             /* so that a use after it is seen */
    free(raw);
    bitnet__count(&held_blocks, UINTPTR_MAX);
}

static void test_free_threads(void) {
    gb_model g = word_model();
    int round, i, rounds = test_quick() ? 50 : 500;
    gb_make_model(&g);
    for (round = 0; round < rounds; round++) {
        bitnet_model_params mp;
        bitnet_ctx_params p;
        bitnet_model *m;
        bitnet__thread t[FREERS];
        bitnet__atomic waiting = FREERS;
        freer f[FREERS];
        memset(&mp, 0, sizeof mp);
        memset(&p, 0, sizeof p);
        mp.allocator.alloc_fn = held_alloc;
        mp.allocator.free_fn = held_free;
        p.n_ctx = 8;
        p.n_threads = 1 + round % 2;
        CHECK(!bitnet_model_load_memory(g.data, g.size, &mp, &m, 0));
        for (i = 0; i < FREERS; i++) {
            f[i].waiting = &waiting;
            f[i].r = BITNET_ERR_SELFTEST;
            CHECK(!bitnet_ctx_create(m, &p, &f[i].c, 0));
        }
        if (round % 3) bitnet_model_free(m);
        for (i = 0; i < FREERS; i++) CHECK(bitnet__thread_start(&t[i], free_main, &f[i]));
        for (i = 0; i < FREERS; i++) {
            bitnet__thread_join(t[i]);
            CHECK(f[i].r == BITNET_OK);
        }
        CHECK(round % 3 || held_blocks > 0);
        if (round % 3 == 0) bitnet_model_free(m);
        CHECK_MSG(held_blocks == 0, "round %d: %d blocks are left", round, (int)held_blocks);
    }
    gb_free_model(&g);
}

#if defined(__GNUC__) || defined(__clang__)

/* A second thread that asks for logits all the time. It counts its calls without an order to what
   else it does, so that a thread sanitizer sees what only the library orders. */
typedef struct asker {
    bitnet_ctx *c;
    uint32_t calls, stop, given;       /* atomic */
} asker;

static MACH_THREAD ask_main(void *arg) {
    asker *a = (asker *)arg;
    while (!__atomic_load_n(&a->stop, __ATOMIC_RELAXED)) {
        if (bitnet_logits(a->c, -1, NULL)) __atomic_store_n(&a->given, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&a->calls, a->calls + 1, __ATOMIC_RELAXED);
    }
    return 0;
}

static int ask_text(void *ud, const char *text, size_t n, bitnet_token t) {
    asker *a = (asker *)ud;
    const uint32_t calls = __atomic_load_n(&a->calls, __ATOMIC_RELAXED);
    (void)text, (void)n, (void)t;
    while (__atomic_load_n(&a->calls, __ATOMIC_RELAXED) - calls < 2) bitnet__pause();
    return !bitnet_logits(a->c, -1, NULL);
}

/* While a callback has the context, its own thread gets logits and the other one does not. */
static void test_busy_lent(void) {
    static const bitnet_token prompt[] = {7, 42, 99, 3};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_generate_params gen;
    bitnet__thread t;
    bitnet_stop why = BITNET_STOP_CALLBACK;
    bitnet_result r;
    asker a;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    memset(&a, 0, sizeof a);
    memset(&gen, 0, sizeof gen);
    a.c = new_ctx(m, 32, 4);
    CHECK(a.c);
    gen.tokens = prompt;
    gen.n_tokens = 4;
    gen.max_tokens = 20;
    gen.ignore_end = 1;
    gen.text_fn = ask_text;
    gen.text_ud = &a;
    CHECK(bitnet__acquire(a.c, 0) == BITNET_OK);      /* until the call has it */
    CHECK(bitnet__thread_start(&t, ask_main, &a));
    r = bitnet__generate(a.c, &gen, &why, 0);
    __atomic_store_n(&a.stop, 1, __ATOMIC_RELAXED);
    bitnet__thread_join(t);
    bitnet__release(a.c);
    bitnet_ctx_free(a.c);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(r == BITNET_OK && why != BITNET_STOP_CALLBACK, "%d, %d", (int)r, (int)why);
    CHECK_MSG(!a.given, "the other thread got logits");
}

#else
static void test_busy_lent(void) { SKIP("no atomics without an order"); }
#endif

/* ---- many contexts over one model ---- */

static MACH_THREAD share_main(void *arg) {
    machine *x = (machine *)arg;
    bitnet_result r = mach_tokenize(x);
    if (r == BITNET_OK) r = mach_chat(x);
    if (r == BITNET_OK) r = mach_generate(x);
    if (r == BITNET_OK) r = mach_eval(x, x->c);
    if (r != BITNET_OK) x->digest = 0;
    return 0;
}

static void test_parallel(void) {
    enum { N = 4 };
    static machine x[N];
    bitnet__thread t[N];
    gb_model g = word_model();
    bitnet_model *m;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    memset(x, 0, sizeof x);
    mach_long_text();                  /* filled in before others read it */
    for (i = 0; i < N; i++) {
        bitnet_ctx_params p;
        memset(&p, 0, sizeof p);
        p.n_ctx = 64;
        p.n_batch = i ? 2 * i : 0;
        p.n_logits = 5;
        p.n_threads = 1 + i % 2;
        x[i].g = g;
        x[i].m = m;
        CHECK(!bitnet_ctx_create(m, &p, &x[i].c, 0));
        test_share(x[i].c);
    }
    share_main(&x[0]);
    CHECK(x[0].digest);
    for (i = 1; i < N; i++) CHECK(bitnet__thread_start(&t[i], share_main, &x[i]));
    for (i = 1; i < N; i++) bitnet__thread_join(t[i]);
    for (i = 0; i < N; i++) bitnet_ctx_free(x[i].c);
    bitnet_model_free(m);
    gb_free_model(&g);
    for (i = 1; i < N; i++) CHECK_MSG(x[i].digest == x[0].digest, "thread %d has other results", i);
}

#endif

/* ---- threads: how many, what they share, and what they do to their host ---- */

#if TEST_THREADS && defined(__linux__)

/* -std=c99 hides these, and what they are given. */
extern int mach_getaffinity(int pid, size_t size, void *mask) __asm__("sched_getaffinity");
extern int mach_setaffinity(int pid, size_t size, const void *mask) __asm__("sched_setaffinity");
extern int mach_kill(int pid, int number) __asm__("kill");
extern int mach_sigemptyset(bitnet__sigset *set) __asm__("sigemptyset");
extern int mach_sigaddset(bitnet__sigset *set, int number) __asm__("sigaddset");
extern int mach_sigismember(const bitnet__sigset *set, int number) __asm__("sigismember");
extern int mach_sigpending(bitnet__sigset *set) __asm__("sigpending");

/* The threads of a context when n_threads is 0. */
static int default_threads(const bitnet_model *m) {
    bitnet_ctx *c = 0;
    int n = -1;
    if (!bitnet_ctx_create(m, 0, &c, 0)) n = bitnet_ctx_threads(c);
    bitnet_ctx_free(c);
    return n;
}

/* On one CPU there is one thread; on all that are allowed, as many as those. */
static void test_cpus_allowed(void) {
    unsigned char all[1024] = {0}, one[1024] = {0};
    gb_model g = word_model();
    bitnet_model *m;
    int i, first = -1, alone, n = 0, quota = bitnet__quota_cpus(""), many;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m && mach_getaffinity(0, sizeof all, all) >= 0);
    for (i = 0; i < 8192; i++) {
        if (!(all[i / 8] >> i % 8 & 1)) continue;
        if (first < 0) first = i;
        n++;
    }
    CHECK(n > 0);
    one[first / 8] = (unsigned char)(1u << first % 8);
    CHECK(!mach_setaffinity(0, sizeof one, one));
    alone = default_threads(m);
    CHECK(!mach_setaffinity(0, sizeof all, all));
    many = default_threads(m);
    bitnet_model_free(m);
    gb_free_model(&g);
    n = n > 256 ? 256 : n;
    if (quota < n) n = quota;
    CHECK_MSG(alone == 1 && many == n, "%d threads on one CPU, %d on %d", alone, many, n);
}

#ifndef BITNET_NO_STDIO
#include <sys/stat.h>

typedef struct quota_file { const char *path, *text; } quota_file;

/* Makes the file root/path, and the directories that it needs. 0: that failed. */
static int write_quota(const char *root, const quota_file *q) {
    char path[1024];
    size_t i;
    FILE *f;
    snprintf(path, sizeof path, "%.500s/%.500s", root, q->path);
    for (i = strlen(root) + 1; path[i]; i++) {
        if (path[i] != '/') continue;
        path[i] = 0;
        mkdir(path, 0700);
        path[i] = '/';
    }
    f = fopen(path, "wb");
    if (!f) return 0;
    return fputs(q->text, f) >= 0 && !fclose(f);
}

static void remove_quota(const char *root, const quota_file *q) {
    char path[1024], *slash;
    snprintf(path, sizeof path, "%.500s/%.500s", root, q->path);
    remove(path);
    while ((slash = strrchr(path, '/')) != 0 && (size_t)(slash - path) >= strlen(root)) {
        *slash = 0;
        remove(path);                  /* a directory, if it is empty */
    }
}

static void test_cpu_quota(void) {
#define GROUPS "proc/self/cgroup"
#define V2 "sys/fs/cgroup/"
#define V1 "sys/fs/cgroup/cpu/"
#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A250 A50 A50 A50 A50 A50
    enum { FILES = 6 };
    static const struct { int want; quota_file files[FILES]; } cases[] = {
        {0, {{GROUPS, "0::/\n"}}},                                         /* nothing there */
        {0, {{V2 "cpu.max", "100000 100000\n"}}},                          /* no groups known */
        {1, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "100000 100000\n"}}},
        {2, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "100001 100000\n"}}},
        {1, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "1 100000\n"}}},
        {0, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "max 100000\n"}}},
        {0, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "-5 100000\n"}}},
        {0, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "5 0\n"}}},
        {0, {{GROUPS, "0::/\n"}, {V2 "cpu.max", ""}}},
        {0, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "9000000000000000000 1\n"}}},
        {255, {{GROUPS, "0::/\n"}, {V2 "cpu.max", "2541 10\n"}}},
        /* the least on the way to the root */
        {3, {{GROUPS, "0::/a/b/c\n"}, {V2 "a/b/c/cpu.max", "max 1000\n"},
             {V2 "a/b/cpu.max", "3000 1000\n"}, {V2 "a/cpu.max", "5000 1000\n"}}},
        {4, {{GROUPS, "0::/a/b/c\n"}, {V2 "a/b/c/cpu.max", "7000 1000\n"},
             {V2 "a/cpu.max", "4000 1000\n"}}},
        {2, {{GROUPS, "0::/not/seen/from/here\n"}, {V2 "cpu.max", "200 100\n"}}},
        {0, {{GROUPS, "0::/a\n"}, {V2 "ab/cpu.max", "200 100\n"}}},        /* another group */
        /* version 1 */
        {3, {{GROUPS, "5:memory:/x\n4:cpu,cpuacct:/a\n"}, {V1 "a/cpu.cfs_quota_us", "250000\n"},
             {V1 "a/cpu.cfs_period_us", "100000\n"}}},
        {2, {{GROUPS, "4:cpuacct,cpu:/a\n"}, {V1 "cpu.cfs_quota_us", "200\n"},
             {V1 "cpu.cfs_period_us", "100\n"}}},
        {0, {{GROUPS, "4:cpu:/a\n"}, {V1 "a/cpu.cfs_quota_us", "-1\n"},
             {V1 "a/cpu.cfs_period_us", "100000\n"}}},
        {0, {{GROUPS, "4:cpuset,cpuacct:/a\n"}, {V1 "a/cpu.cfs_quota_us", "100\n"},
             {V1 "a/cpu.cfs_period_us", "100\n"}}},
        {0, {{GROUPS, "4:cpu:/a\n"}, {V1 "a/cpu.cfs_quota_us", "100\n"}}}, /* of which period? */
        /* a group outside of what is mounted: nothing above the mount is opened */
        {2, {{GROUPS, "0::/../a\n"}, {V2 "cpu.max", "200 100\n"}, {"sys/fs/cpu.max", "1 1\n"},
             {"sys/fs/a/cpu.max", "1 1\n"}}},
        {3, {{GROUPS, "0::/..\n"}, {V2 "cpu.max", "300 100\n"}, {"sys/fs/cpu.max", "1 1\n"}}},
        /* the rest of a long line is no line */
        {2, {{GROUPS, "0::/" A250 A250 A250 A250 A250 ":cpu:/a\n0::/b\n"},
             {V1 "a/cpu.cfs_quota_us", "100\n"}, {V1 "a/cpu.cfs_period_us", "100\n"},
             {V2 "b/cpu.max", "200 100\n"}}},
        /* both, and lines that are none */
        {2, {{GROUPS, "\n:\n7\n4:cpu:x\n4:cpu:/a\n0::/b\n"}, {V1 "a/cpu.cfs_quota_us", "900\n"},
             {V1 "a/cpu.cfs_period_us", "100\n"}, {V2 "b/cpu.max", "200 100\n"}}},
    };
    char root[600];
    size_t i;
    int k, got, wrong = -1, made = 1;
    for (i = 0; i < sizeof cases / sizeof cases[0] && wrong < 0 && made; i++) {
        snprintf(root, sizeof root, "%.500s-%lx", test_path("quota"), (unsigned long)i);
        made = !mkdir(root, 0700);
        for (k = 0; k < FILES && cases[i].files[k].path && made; k++)
            made = write_quota(root, &cases[i].files[k]);
        got = bitnet__quota_cpus(root) % 256;          /* no quota: 256 */
        if (got != cases[i].want) wrong = (int)i;
        for (k = 0; k < FILES && cases[i].files[k].path; k++)
            remove_quota(root, &cases[i].files[k]);
        CHECK_MSG(made, "cannot write below %s", root);
        CHECK_MSG(wrong < 0, "case %d: %d CPUs instead of %d", (int)i, got, cases[i].want);
    }
#undef A50
#undef A250
#undef GROUPS
#undef V2
#undef V1
}
#else
static void test_cpu_quota(void) { SKIP("files are not read"); }
#endif

#else
static void test_cpus_allowed(void) { SKIP("not Linux, or no threads of our own"); }
static void test_cpu_quota(void) { SKIP("not Linux, or no threads of our own"); }
#endif

/* Runs by thread. */
typedef struct run_count { int runs[8], odd; } run_count;

static void count_runs(void *ud, const char *part, int thread, int begin) {
    run_count *n = (run_count *)ud;
    (void)part;
    if (thread < 0 || thread > 7) n->odd = 1;
    else if (begin) n->runs[thread]++; /* each thread its own */
}

/* A small model's steps stay with the caller. Cut into runs, they give the same bits on any number
   of threads, and the caller does one run of each step at least. */
static void test_small_steps(void) {
    static const bitnet_token prompt[] = {7, 42, 99, 3, 100, 8, 7, 7, 1};
    gb_model g = word_model();
    bitnet_model *m;
    float *want;
    size_t bytes;
    int n, cut, steps = 0;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    bytes = (size_t)g.n_vocab * sizeof *want;
    want = (float *)gb_malloc(bytes);
    for (n = 1; n <= 8; n++)
        for (cut = 0; cut < 2; cut++) {
            bitnet_ctx_params p;
            run_count count;
            bitnet_ctx *c = 0;
            const float *logits;
            int i, all = 0;
            memset(&p, 0, sizeof p);
            memset(&count, 0, sizeof count);
            p.n_ctx = 16;
            p.n_threads = n;
            p.hooks.step_fn = count_runs;
            p.hooks.step_ud = &count;
            CHECK(!bitnet_ctx_create(m, &p, &c, 0));
            if (cut) test_share(c);
            CHECK(!bitnet_eval(c, 0, prompt, 9, 1, 0));
            for (i = 0; i < 8; i++) all += count.runs[i];
            if (n == 1 && !cut) steps = all;
            if (bitnet_ctx_threads(c) > 1 && cut)
                CHECK_MSG(all > 2 * steps && count.runs[0] >= steps, "%d runs, %d of thread 0, in "
                          "%d steps", all, count.runs[0], steps);
            else
                CHECK_MSG(all == steps && count.runs[0] == steps, "%d runs, %d of thread 0, in %d "
                          "steps", all, count.runs[0], steps);
            CHECK(!count.odd);
            logits = bitnet_logits(c, -1, NULL);
            CHECK(logits);
            if (n == 1 && !cut) memcpy(want, logits, bytes);
            CHECK_MSG(!memcmp(want, logits, bytes), "%d threads, cut %d: other bits", n, cut);
            bitnet_ctx_free(c);
        }
    free(want);
    bitnet_model_free(m);
    gb_free_model(&g);
}

#if TEST_THREADS

/* Gains are credit up to a limit; when the credit is used up, there is a pause, twice as long each
   time that it happens again soon. */
static void test_ledger(void) {
    const int64_t credit = bitnet__credit, ms = 1000000;
    bitnet__ledger l = {bitnet__credit, 0, 0};
    int64_t now = 1000000 * ms, pause, want;
    int i;
    bitnet__ledger_note(&l, 100 * credit, now);
    CHECK(l.balance == credit && bitnet__ledger_open(&l, now));
    bitnet__ledger_note(&l, -credit / 2, now);
    bitnet__ledger_note(&l, -100 * credit, now);           /* counts as half of the credit */
    CHECK(l.balance == 0 && bitnet__ledger_open(&l, now));
    bitnet__ledger_note(&l, 10, now);
    bitnet__ledger_note(&l, -10, now);
    CHECK(l.balance == 0 && bitnet__ledger_open(&l, now));
    bitnet__ledger_note(&l, 100 * credit, now);
    for (i = 0, want = 32 * ms; i < 8; i++, want = want < 1024 * ms ? 2 * want : want) {
        bitnet__ledger_note(&l, -credit / 2, now);
        bitnet__ledger_note(&l, -credit / 2, now);
        CHECK(bitnet__ledger_open(&l, now));
        bitnet__ledger_note(&l, -1, now);
        pause = l.end - now;
        CHECK_MSG(pause == want && l.balance == credit, "pause %d: %ld us", i,
                  (long)(pause / 1000));
        CHECK(!bitnet__ledger_open(&l, now) && !bitnet__ledger_open(&l, now + pause - 1) &&
              bitnet__ledger_open(&l, now + pause));
        CHECK(bitnet__ledger_open(&l, now - 5000 * ms));   /* the clock was set back */
        now += pause;
    }
    now += 8 * l.pause + 1;            /* it went well for long */
    for (i = 0; i < 3; i++) bitnet__ledger_note(&l, -credit, now);
    CHECK(l.end - now == 32 * ms);
    now = bitnet__clock();
    for (i = 0; i < 1000; i++) CHECK(bitnet__clock() >= now);
}

/* Runs are taken once each, and those of a call that is over by nobody. */
static void test_runs(void) {
    bitnet__atomic runs = bitnet__tasks(3, 0);
    int i;
    for (i = 0; i < 3; i++) CHECK(bitnet__claim(&runs, 0, 0) == i);
    for (i = 0; i < 3; i++) CHECK(bitnet__claim(&runs, 0, 0) == -1);
    runs = bitnet__tasks(1024, 0);
    for (i = 0; i < 1024; i++) CHECK(bitnet__claim(&runs, 0, 0) == i);
    CHECK(bitnet__claim(&runs, 0, 0) == -1);
    runs = 0;
    CHECK(bitnet__claim(&runs, 0, 0) == -1);
}

#endif

#if TEST_THREADS && (defined(__unix__) || defined(__APPLE__)) && !defined(__EMSCRIPTEN__)
#include <signal.h>
#include <sys/wait.h>

/* Runs task in a child process; 0 if it returned 1 there. */
static int in_child(int (*task)(machine *x), machine *x) {
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(120);                    /* ends a child that hangs */
        _exit(task(x) ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* qemu's emulation of processes cannot do this where the parent has threads: it ends the child. */
static void *no_work(void *arg) { return arg; }
static int child_starts_thread(machine *x) {
    bitnet__thread t;
    (void)x;
    if (!bitnet__thread_start(&t, no_work, 0)) return 0;
    bitnet__thread_join(t);
    return 1;
}

/* The same results, on one thread; then all is freed, the file's path is the parent's. */
static int child_goes_on(machine *x) {
    const uint64_t want = x->digest;
    int ok = !mach_try(x, mach_generate) && x->digest == want && bitnet_ctx_threads(x->c) == 1;
    bitnet_ctx_free(x->c);
    bitnet_model_free(x->m);
    return ok;
}

static int child_frees(machine *x) {
    bitnet_ctx_free(x->c);
    bitnet_model_free(x->m);
    return 1;
}

static int child_loads(machine *x) {
    bitnet_model *m = 0;
    const int ok = !mach_open(x, &m);
    bitnet_model_free(m);
    return ok;
}

/* A child while the workers spin and while they sleep. */
static void test_fork(void) {
    gb_model g = word_model();
    machine x;
    int i, status;
    uint64_t want;
    gb_make_model(&g);
    mach_start(&x, g, "scalar-tl2");   /* threads pack it */
    CHECK(mach_ready(&x, 3));
    CHECK(!mach_try(&x, mach_generate));
    if (in_child(child_starts_thread, 0)) {
        mach_end(&x);
        SKIP("a child process cannot start threads here");
    }
    want = x.digest;
    for (i = 0; i < 8; i++) {
        CHECK(!mach_try(&x, mach_generate) && x.digest == want);
        while (i % 2 && bitnet__load_acquire(&x.c->team->n_asleep[BITNET__WORKERS]) < 2)
            bitnet__pause();
        status = in_child(i < 4 ? child_goes_on : i < 6 ? child_frees : child_loads, &x);
        CHECK_MSG(status == 0, "child %d ended with %d", i, status);
    }
    CHECK(!mach_try(&x, mach_generate) && x.digest == want && bitnet_ctx_threads(x.c) == 3);
    mach_end(&x);
}

/* A child that is made in a callback, and goes on with the call. */
typedef struct forker { int calls, at; pid_t child; } forker;

static void fork_at(forker *f) {
    if (f->calls++ != f->at) return;
    f->child = fork();
    if (f->child == 0) alarm(120);
}
static int fork_text(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)text, (void)n, (void)t;
    fork_at((forker *)ud);
    return 0;
}
static void fork_layer(void *ud, int layer, const float *x, int n_tokens) {
    (void)layer, (void)x, (void)n_tokens;
    fork_at((forker *)ud);
}

static void test_fork_callbacks(void) {
    static const bitnet_token prompt[] = {7, 42, 99, 3, 100, 8, 7};
    gb_model g = word_model();
    bitnet_model *m;
    float *want;
    size_t bytes;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    bytes = (size_t)g.n_vocab * sizeof *want;
    want = (float *)gb_malloc(bytes);
    for (i = 0; i < 3; i++) {
        bitnet_ctx_params p;
        bitnet_generate_params gen;
        bitnet_ctx *c = 0;
        forker f = {0, 2, -1};
        int status = 0, ok;
        memset(&p, 0, sizeof p);
        memset(&gen, 0, sizeof gen);
        gen.tokens = prompt;
        gen.n_tokens = 7;
        gen.max_tokens = 5;
        gen.ignore_end = 1;
        gen.text_ud = p.hooks.layer_ud = &f;
        p.n_ctx = 16;
        p.n_threads = 3;
        if (i == 1) gen.text_fn = fork_text;
        if (i == 2) p.hooks.layer_fn = fork_layer;
        CHECK(!bitnet_ctx_create(m, &p, &c, 0));
        test_share(c);
        ok = !bitnet_generate(c, &gen, 0, 0);
        ok = ok && bitnet_ctx_threads(c) == (f.child ? 3 : 1);
        ok = ok && bitnet_logits(c, -1, NULL);
        if (i == 0) memcpy(want, bitnet_logits(c, -1, NULL), bytes);
        ok = ok && !memcmp(want, bitnet_logits(c, -1, NULL), bytes);
        bitnet_ctx_free(c);
        if (f.child == 0) _exit(ok ? 0 : 1);
        CHECK_MSG(ok, "callback %d: other results", i);
        CHECK(i == 0 || (f.child > 0 && waitpid(f.child, &status, 0) == f.child));
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "callback %d: the child ended "
                  "with %d", i, status);
    }
    free(want);
    bitnet_model_free(m);
    gb_free_model(&g);
}

#ifdef __linux__
/* A signal that the program blocks waits for it, and does not reach the workers. A fault is a
   worker's own. */
static int child_blocks(machine *x) {
    bitnet__sigset set, pending;
    mach_sigemptyset(&set);
    mach_sigaddset(&set, SIGTERM);
    if (bitnet__sigmask(BITNET__SIG_SETMASK, &set, 0)) return 0;
    if (bitnet_ctx_create(x->m, &x->c->p, &x->c, 0) || bitnet_ctx_threads(x->c) != 2) return 0;
    test_share(x->c);
    if (mach_kill((int)getpid(), SIGTERM) || mach_try(x, mach_generate)) return 0;
    return !mach_sigpending(&pending) && mach_sigismember(&pending, SIGTERM) == 1;
}

static void *tell_mask(void *arg) {
    bitnet__sigmask(BITNET__SIG_SETMASK, 0, (bitnet__sigset *)arg);
    return 0;
}

static void test_signals(void) {
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    gb_model g = word_model();
    machine x;
    bitnet__thread t;
    bitnet__sigset none, before, after, worker;
    int status, i, n = 0;
    gb_make_model(&g);
    mach_start(&x, g, 0);
    CHECK(mach_ready(&x, 2));
    status = in_child(child_starts_thread, 0) ? 0 : in_child(child_blocks, &x);   /* see fork */
    mach_end(&x);
    CHECK_MSG(status == 0, "the child ended with %d", status);
    mach_sigemptyset(&none);
    bitnet__sigmask(BITNET__SIG_SETMASK, &none, &before);
    CHECK(bitnet__thread_start(&t, tell_mask, &worker));
    bitnet__thread_join(t);
    bitnet__sigmask(BITNET__SIG_SETMASK, &before, &after);
    for (i = 1; i < 32; i++) n += mach_sigismember(&after, i);
    CHECK_MSG(n == 0, "the caller blocks %d signals", n);
    for (i = 0; i < 4; i++) n += mach_sigismember(&worker, faults[i]);
    CHECK(n == 0);
    for (i = 1; i < 32; i++) n += mach_sigismember(&worker, i);
    CHECK_MSG(n == 31 - 4 - 2, "%d signals are blocked", n);   /* nobody can block KILL and STOP */
}
#else
static void test_signals(void) { SKIP("not Linux"); }
#endif

#else
static void test_fork(void) { SKIP("no fork, or no threads of our own"); }
static void test_fork_callbacks(void) { SKIP("no fork, or no threads of our own"); }
static void test_signals(void) { SKIP("no signals, or no threads of our own"); }
#endif

/* ---- over and over ---- */

/* What the process holds, as Linux tells it: KB of memory, open files, threads; -1: it does not. An
   emulator's memory is not ours, and ASan keeps what is freed. */
static long held_kb(void) {
    long pages = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return -1;
#ifdef __SANITIZE_ADDRESS__
    fclose(f);
    return -1;
#endif
    if (fscanf(f, "%*d %ld", &pages) != 1) pages = -1;
    fclose(f);
    return pages < 0 ? -1 : pages * 4;
}

static long held_files(void) {
    long n = -1;
#ifdef __linux__
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return n;
    for (n = 0; readdir(dir);) n++;
    closedir(dir);
#endif
    return n;
}

static long held_threads(void) {
    char line[128];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "Threads:", 8)) n = atol(line + 8);
    if (f) fclose(f);
    return n;
}

/* 10 000 models, then as many contexts, each in its turn: nothing grows. */
static void test_cycles(void) {
    const int n = test_quick() ? 100 : 10000;
    gb_model g = {.dim = 128, .ffn = 128, .layers = 1, .heads = 2, .kv_heads = 1, .n_ctx = 16,
                  .embed_type = GB_TENSOR_F16, .seed = 5};
    machine x;
    long kb = 0, files = 0, threads = 0, live = 0;
    int i, what;
    gb_make_model(&g);
    mach_start(&x, g, 0);
    CHECK(mach_ready(&x, 1));
    for (what = 0; what < 2; what++) {
        for (i = 0; i < n; i++) {
            bitnet_model *m = 0;
            bitnet_ctx *c = 0;
            bitnet_ctx_params p;
            if (i == n / 10) {         /* by now all that is kept for later has been taken */
                kb = held_kb();
                files = held_files();
                threads = held_threads();
                live = x.count.live;
            }
            memset(&p, 0, sizeof p);
            p.n_threads = i % 10 ? 1 : 3;
            x.way = i % (x.path[0] ? 3 : 2);
            if (what == 0) CHECK_MSG(!mach_open(&x, &m), "%s", x.err.text);
            else CHECK_MSG(!bitnet_ctx_create(x.m, &p, &c, &x.err), "%s", x.err.text);
            bitnet_ctx_free(c);
            bitnet_model_free(m);
        }
        CHECK_MSG(x.count.live == live && held_files() == files && held_threads() < threads + 9,
                  "%d: %ld blocks instead of %ld, %ld files instead of %ld, %ld threads instead "
                  "of %ld", what, x.count.live, live, held_files(), files, held_threads(), threads);
        CHECK_MSG(held_kb() < kb + 2000 || test_quick(), "%d: %ld KB, then %ld", what, kb,
                  held_kb());
    }
    mach_end(&x);
}

/* ---- every pointer 0 ---- */

static char said[8192];                /* " name(" of the functions that have been called */

static void note_call(const char *call) {
    char name[96];
    const size_t at = strlen(said);
    snprintf(name, sizeof name, " %.*s", (int)strcspn(call, "(") + 1, call);
    if (!strstr(said, name)) snprintf(said + at, sizeof said - at, "%s", name);
}

#define SAYS(want, call) \
    do { \
        note_call(#call); \
        CHECK_MSG((call) == (want), "%s is not %s", #call, #want); \
    } while (0)
#define WRONG(call) SAYS(BITNET_ERR_ARG, call)
#define DOES(call) \
    do { \
        note_call(#call); \
        call; \
    } while (0)

static void null_models(const gb_model *g, const bitnet_model *m) {
    bitnet_model_info info, zero;
    gb_reader reader;
    bitnet_io io = gb_io(&reader, g->data, g->size);
    bitnet_model *out = (bitnet_model *)(void *)&info;
    bitnet_error err;
    char buf[64];
    memset(&zero, 0, sizeof zero);
#ifndef BITNET_NO_STDIO
    WRONG(bitnet_model_load_file(0, 0, &out, &err));
    CHECK(!out && err.text[0]);
    WRONG(bitnet_model_load_file("x", 0, 0, 0));
#endif
    out = (bitnet_model *)(void *)&info;
    WRONG(bitnet_model_load_memory(0, 5, 0, &out, 0));
    WRONG(bitnet_model_load_memory(0, 0, 0, &out, 0));
    CHECK(!out);
    WRONG(bitnet_model_load_memory(g->data, g->size, 0, 0, 0));
    SAYS(BITNET_OK, bitnet_model_load_memory(g->data, g->size, 0, &out, 0));
    bitnet_model_free(out);
    WRONG(bitnet_model_load_io(0, 0, &out, 0));
    CHECK(!out);
    WRONG(bitnet_model_load_io(&io, 0, 0, 0));
    io.read_fn = 0;
    WRONG(bitnet_model_load_io(&io, 0, &out, 0));
    DOES(bitnet_model_free(0));
    memset(&info, 1, sizeof info);
    DOES(bitnet_model_get_info(0, &info));
    CHECK(!info.arch && !info.n_vocab && !info.head_bytes);
    DOES(bitnet_model_get_info(m, 0));
    DOES(bitnet_model_get_info(0, 0));
    WRONG(bitnet_model_get_meta(0, "general.architecture", buf, sizeof buf));
    WRONG(bitnet_model_get_meta(m, 0, buf, sizeof buf));
    SAYS(12, bitnet_model_get_meta(m, "general.architecture", 0, sizeof buf));
    SAYS(1, bitnet_model_get_meta(m, "tokenizer.ggml.add_bos_token", 0, sizeof buf) == 4);
    WRONG(bitnet_model_meta_key(0, 0, buf, sizeof buf));
    SAYS(1, bitnet_model_meta_key(m, 0, 0, sizeof buf) > 0);
}

static void null_text(const bitnet_model *m) {
    bitnet_token t[4] = {'a', 'b', 0, 0};
    bitnet_detok d = {0};
    bitnet_message msg = MESSAGE("user", "x");
    bitnet_reply reply;
    bitnet_reply_part part;
    const char *text = "ab";
    size_t n_text = 2;
    char buf[512];
    WRONG(bitnet_tokenize(0, "a", 1, 0, t, 4));
    WRONG(bitnet_tokenize(m, 0, 1, 0, t, 4));
    SAYS(0, bitnet_tokenize(m, 0, 0, 0, t, 4));
    SAYS(1, bitnet_tokenize(m, 0, 0, BITNET_ADD_BOS, t, 4));
    SAYS(2, bitnet_tokenize(m, "ab", 2, 0, 0, 4));
    WRONG(bitnet_detokenize(0, t, 2, buf, sizeof buf));
    WRONG(bitnet_detokenize(m, 0, 2, buf, sizeof buf));
    SAYS(0, bitnet_detokenize(m, 0, 0, buf, sizeof buf));
    t[0] = 'a';
    SAYS(2, bitnet_detokenize(m, t, 2, 0, sizeof buf));
    WRONG(bitnet_detok_push(0, &d, 'a', buf, sizeof buf));
    WRONG(bitnet_detok_push(0, &d, -1, buf, sizeof buf));
    WRONG(bitnet_detok_push(m, 0, 'a', buf, sizeof buf));
    WRONG(bitnet_detok_push(m, &d, 'a', 0, sizeof buf));
    WRONG(bitnet_clean_text(0, 1, buf, sizeof buf));
    SAYS(0, bitnet_clean_text(0, 0, buf, sizeof buf));
    SAYS(2, bitnet_clean_text("ab", 2, 0, sizeof buf));
    SAYS((size_t)0, bitnet_utf8_decode(0, 1, 0));
    SAYS((size_t)0, bitnet_text_of(0).size);
    SAYS((size_t)1, bitnet_utf8_decode("ab", 2, 0));
    SAYS(-1, bitnet_token_find(0, "a", 1));
    SAYS(-1, bitnet_token_find(m, 0, 1));
    SAYS(0, bitnet_token_is_end(0, 1));
    SAYS(0, bitnet_token_is_special(0, 1));
    SAYS(0, bitnet_token_text(0, 1, 0) != 0);
    WRONG(bitnet_chat_tokenize(0, 0, &msg, 1, 0, t, 4, NULL));
    WRONG(bitnet_chat_tokenize(m, 0, 0, 1, 0, t, 4, NULL));
    SAYS(0, bitnet_chat_tokenize(m, 0, 0, 0, 0, t, 4, NULL));
    SAYS(1, bitnet_chat_tokenize(m, 0, &msg, 1, 0, 0, 4, NULL) > 4);
    msg.content = text_of(0);
    WRONG(bitnet_chat_tokenize(m, 0, &msg, 1, 0, t, 4, NULL));
    msg.content = text_of("x"), msg.role = text_of(0);
    WRONG(bitnet_chat_tokenize(m, 0, &msg, 1, 0, t, 4, NULL));
    SAYS(0, bitnet_model_chat_template(0) != 0);
    DOES(bitnet_reply_begin(0, m, 0));
    DOES(bitnet_reply_begin(&reply, 0, 0));
    SAYS(1, bitnet_reply_next(&reply, &text, &n_text, &part, &text, &n_text));
    SAYS(0, bitnet_reply_next(0, &text, &n_text, &part, &text, &n_text));
    SAYS(0, bitnet_reply_next(&reply, 0, &n_text, &part, &text, &n_text));
    SAYS(0, bitnet_reply_next(&reply, &text, 0, &part, &text, &n_text));
    SAYS(0, bitnet_reply_next(&reply, &text, &n_text, 0, &text, &n_text));
    SAYS(0, bitnet_reply_next(&reply, &text, &n_text, &part, 0, &n_text));
    SAYS(0, bitnet_reply_next(&reply, &text, &n_text, &part, &text, 0));
}

static void null_texts(bitnet_ctx *c) {
    static const bitnet_token prompt[2] = {1, 2};
    static const bitnet_text stops[2] = {BITNET_TEXT("x"), {0, 0}};
    bitnet_generate_params p;
    bitnet_gen *gen = 0;
    bitnet_piece piece;
    bitnet_message msg = {{0, 0}, {0, 0}, {0, 0}};
    bitnet_sampler s;
    bitnet_error err;
    memset(&s, 0, sizeof s);
    s.n_bias = 1;
    memset(&p, 0, sizeof p);
    WRONG(bitnet_gen_begin(0, &p, &gen, &err));
    WRONG(bitnet_gen_begin(c, 0, &gen, &err));
    WRONG(bitnet_gen_begin(c, &p, 0, &err));
    WRONG(bitnet_gen_next(0, 1, &err));
    WRONG(bitnet_gen_next(&gen, 1, &err));
    CHECK(!gen);
    DOES(bitnet_gen_piece(0, &piece));
    DOES(bitnet_gen_piece(0, 0));
    CHECK(!piece.text.data && !piece.text.size && !piece.ended);
    SAYS(BITNET_OK, bitnet_gen_end(0));
    WRONG(bitnet_generate(0, &p, 0, &err));
    WRONG(bitnet_generate(c, 0, 0, &err));
    WRONG(bitnet_generate(c, &p, 0, &err));
    CHECK(strstr(err.text, "no token in the prompt"));
    p.messages = &msg;
    WRONG(bitnet_generate(c, &p, 0, &err));
    p.n_messages = 1;
    WRONG(bitnet_generate(c, &p, 0, &err));
    CHECK(strstr(err.text, "message 0") && bitnet_seq_length(c, 0) == 2);
    p.messages = 0;
    p.tokens = prompt;
    p.n_tokens = 2;
    p.max_tokens = 1;
    p.sampler = &s;
    WRONG(bitnet_generate(c, &p, 0, &err));
    CHECK(strstr(err.text, "bias"));
    p.sampler = 0;
    p.n_stop_strings = 1;
    WRONG(bitnet_generate(c, &p, 0, &err));
    p.stop_strings = stops;
    p.n_stop_strings = 2;
    WRONG(bitnet_generate(c, &p, 0, &err));
    CHECK(strstr(err.text, "stop string 1") && bitnet_seq_length(c, 0) == 2);
    p.n_stop_strings = 1;
    SAYS(BITNET_OK, bitnet_generate(c, &p, 0, 0));
}

static void null_contexts(const bitnet_model *m, bitnet_ctx *c) {
    static const bitnet_token prompt[2] = {1, 2};
    bitnet_ctx *out = (bitnet_ctx *)(void *)&prompt;
    bitnet_logprob best;
    bitnet_sampler s;
    bitnet_figures figures;
    bitnet_error err;
    SAYS(0, bitnet_ctx_bytes(0, 0));
    SAYS(1, bitnet_ctx_bytes(m, 0) > 0);
    WRONG(bitnet_ctx_create(0, 0, &out, &err));
    CHECK(!out);
    WRONG(bitnet_ctx_create(m, 0, 0, 0));
    SAYS(BITNET_OK, bitnet_ctx_free(0));
    SAYS(0, bitnet_seq_length(0, 0));
    SAYS(0, bitnet_seq_again(0, 0));
    SAYS(0, bitnet_seq_tokens(0, 0) != 0);
    SAYS(-1, bitnet_seq_pending(0, 0));
    SAYS(0, bitnet_ctx_model(0) != 0);
    SAYS(0, bitnet_ctx_capacity(0));
    WRONG(bitnet_ctx_set_threads(0, 1, &err));
    WRONG(bitnet_ctx_set_hooks(0, 0, &err));
    SAYS(BITNET_OK, bitnet_ctx_set_hooks(c, 0, 0));
    DOES(bitnet_seq_figures(c, 0, 0));
    memset(&figures, 1, sizeof figures);
    DOES(bitnet_seq_figures(0, 0, &figures));
    CHECK(!figures.n_prompt && !figures.write_ns);
    SAYS(0, bitnet_ctx_threads(0));
    SAYS(0, bitnet_ctx_exact_logits(0));
    SAYS(0, bitnet_ctx_head_bytes(0));
    WRONG(bitnet_seq_rewind(0, 0, 0, NULL));
    WRONG(bitnet_eval(0, 0, prompt, 2, 1, &err));
    CHECK(strstr(err.text, "context is NULL"));
    WRONG(bitnet_eval(c, 0, 0, 2, 1, &err));
    SAYS(BITNET_OK, bitnet_eval(c, 0, prompt, 2, 1, 0));
    SAYS((const float *)0, bitnet_logits(0, 0, NULL));
    SAYS((const float *)0, bitnet_hidden(0, 0, NULL));
    SAYS(BITNET_ERR_ARG, bitnet_sample(0, -1, 0, NULL));
    WRONG(bitnet_logprobs(0, -1, &best, 1, NULL));
    WRONG(bitnet_logprobs(c, -1, 0, 1, NULL));
    SAYS(1, bitnet_sample(c, -1, 0, NULL) >= 0);
    memset(&s, 0, sizeof s);
    s.n_bias = 1;
    SAYS(BITNET_ERR_ARG, bitnet_sample(c, -1, &s, NULL));
    null_texts(c);
    SAYS((const bitnet_kernels *)0, bitnet_kernels_find(0));
    SAYS((const char *)0, bitnet_kernels_name(0));
    SAYS(0, bitnet_kernels_usable(0));
    WRONG(bitnet_selftest(0, 0));
}

static void null_embeddings(bitnet_ctx *c) {
    const bitnet_embed_input text = {.text = BITNET_TEXT("text")};
    bitnet_error err;
    float x = 1;
    WRONG(bitnet_embed(0, &text, 1, 0, &x, &err));
    WRONG(bitnet_embed(c, 0, 1, 0, &x, &err));
    WRONG(bitnet_embed(c, &text, 1, 0, 0, &err));
    WRONG(bitnet_embed(c, &text, -1, 0, 0, &err));
}

static bitnet_result refuse_piece(void *ud, const void *data, size_t n) {
    (void)data;
    return ud && n ? BITNET_ERR_CANCELLED : BITNET_ERR_SELFTEST;
}

static void null_sequences(const bitnet_model *m, bitnet_ctx *c) {
    static const bitnet_token tokens[2] = {1, 2}, none[1] = {-1};
    bitnet_input in = {.n_tokens = 2, .tokens = tokens, .n_logits = 1};
    const int32_t length = bitnet_seq_length(c, 0);
    float *logits = (float *)gb_malloc((size_t)m->n_vocab * sizeof *logits);
    uint8_t *state;
    size_t size;
    gb_reader reader;
    bitnet_io io;
    bitnet_sampler s;
    bitnet_error err;
    int32_t kept;
    CHECK(!bitnet_seq_rewind(c, 0, length, NULL));                /* drops the pending token */
    SAYS(0, bitnet_seq_length(0, 0));
    SAYS(0, bitnet_seq_again(0, 0));
    SAYS(0, bitnet_seq_tokens(0, 0) != 0);
    SAYS(-1, bitnet_seq_pending(0, 0));
    WRONG(bitnet_seq_rewind(0, 0, 0, NULL));
    WRONG(bitnet_seq_copy(0, 0, 0, 0, NULL));
    WRONG(bitnet_eval_many(0, &in, 1, &err));
    WRONG(bitnet_eval_many(c, 0, 1, &err));
    in.tokens = 0;
    WRONG(bitnet_eval_many(c, &in, 1, &err));
    CHECK(bitnet_seq_length(c, 0) == length);
    in.tokens = tokens;
    SAYS(BITNET_OK, bitnet_eval_many(c, &in, 1, 0));
    memset(&s, 0, sizeof s);
    memset(logits, 0, (size_t)m->n_vocab * sizeof *logits);
    logits[7] = 1;
    SAYS(BITNET_ERR_ARG, bitnet_sample(0, 0, &s, NULL));
    SAYS(1, bitnet_sample(c, 0, 0, NULL) >= 0);
    SAYS(BITNET_ERR_ARG, bitnet_sample_logits(0, logits, tokens, 2, &s, NULL));
    SAYS(BITNET_ERR_ARG, bitnet_sample_logits(c, 0, tokens, 2, &s, NULL));
    SAYS(BITNET_ERR_ARG, bitnet_sample_logits(c, logits, 0, 2, &s, NULL));
    SAYS(7, bitnet_sample_logits(c, logits, 0, 0, 0, NULL));
    s.presence_penalty = 2;            /* -1 is no token, so none is penalized */
    logits[0] = 1.5f;
    SAYS(0, bitnet_sample_logits(c, logits, none, 1, &s, NULL));
    logits[0] = 0;
    s.presence_penalty = 0;
    s.n_bias = 1;
    SAYS(BITNET_ERR_ARG, bitnet_sample(c, 0, &s, NULL));
    SAYS(BITNET_ERR_ARG, bitnet_sample_logits(c, logits, tokens, 2, &s, NULL));
    SAYS(0, bitnet_seq_state_bytes(0, 0));
    SAYS(1, bitnet_seq_state_bytes(c, 0) > 0);
    size = (size_t)bitnet_seq_state_bytes(c, 0);
    state = (uint8_t *)gb_malloc(size);
    memset(&io, 0, sizeof io);
    WRONG(bitnet_seq_save_io(c, 0, 0, &err));
    WRONG(bitnet_seq_save_io(c, 0, &io, &err));
    CHECK(strstr(err.text, "write_fn"));
    io.write_fn = refuse_piece;
    WRONG(bitnet_seq_save_io(0, 0, &io, &err));
    SAYS(BITNET_ERR_SELFTEST, bitnet_seq_save_io(c, 0, &io, 0));
    WRONG(bitnet_seq_save_memory(0, 0, state, size, &err));
    WRONG(bitnet_seq_save_memory(c, 0, 0, size, &err));
    SAYS(BITNET_OK, bitnet_seq_save_memory(c, 0, state, size, 0));
    io = gb_io(&reader, state, size);
    WRONG(bitnet_seq_load_io(0, 0, &io, &err));
    CHECK(strstr(err.text, "context is NULL"));
    WRONG(bitnet_seq_load_io(c, 0, 0, &err));
    SAYS(BITNET_OK, bitnet_seq_load_io(c, 0, &io, 0));
    io.read_fn = 0;
    WRONG(bitnet_seq_load_io(c, 0, &io, &err));
    CHECK(strstr(err.text, "read_fn"));
    WRONG(bitnet_seq_load_memory(0, 0, state, size, &err));
    WRONG(bitnet_seq_load_memory(c, 0, 0, size, &err));
    SAYS(BITNET_OK, bitnet_seq_load_memory(c, 0, state, size, 0));
    WRONG(bitnet_seq_sync(0, 0, tokens, 2, &kept, &err));
    WRONG(bitnet_seq_sync(c, 0, 0, 2, &kept, &err));
    CHECK(bitnet_seq_length(c, 0) == length + 2);
    SAYS(BITNET_OK, bitnet_seq_sync(c, 0, tokens, 2, 0, 0));
    WRONG(bitnet_seq_remove(0, 0, 0, 1, &err));
    CHECK(strstr(err.text, "context is NULL"));
    SAYS(BITNET_OK, bitnet_seq_remove(c, 0, 0, 1, 0));
    free(state);
    free(logits);
}

static void null_files(const gb_model *g) {
    gb_reader reader;
    bitnet_io io = gb_io(&reader, g->data, g->size);
    bitnet_gguf *f = (bitnet_gguf *)(void *)&io;
    bitnet_gguf_value element = {0, 0, 0, 0, 0};
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    bitnet_error err;
#ifndef BITNET_NO_STDIO
    WRONG(bitnet_gguf_open_file(0, 0, &f, &err));
    CHECK(!f);
    WRONG(bitnet_gguf_open_file("x", 0, 0, 0));
#endif
    f = (bitnet_gguf *)(void *)&io;
    WRONG(bitnet_gguf_open_memory(0, 5, 0, &f, 0));
    CHECK(!f);
    WRONG(bitnet_gguf_open_memory(g->data, g->size, 0, 0, 0));
    WRONG(bitnet_gguf_open_io(0, 0, &f, 0));
    WRONG(bitnet_gguf_open_io(&io, 0, 0, 0));
    SAYS(BITNET_OK, bitnet_gguf_open_io(&io, 0, &f, 0));
    WRONG(bitnet_gguf_get_key(0, 0, &k));
    WRONG(bitnet_gguf_get_key(f, 0, 0));
    WRONG(bitnet_gguf_find_key(0, "general.architecture", &k));
    WRONG(bitnet_gguf_find_key(f, 0, &k));
    WRONG(bitnet_gguf_find_key(f, "general.architecture", 0));
    SAYS(BITNET_OK, bitnet_gguf_find_key(f, "general.architecture", &k));
    SAYS(0, bitnet_gguf_next(0, &element));
    SAYS(0, bitnet_gguf_next(&k.value, 0));
    SAYS(0, bitnet_gguf_next(&element, &element));
    WRONG(bitnet_gguf_text(0, 0, 0));
    WRONG(bitnet_gguf_text(&element, 0, 0));
    SAYS(12, bitnet_gguf_text(&k.value, 0, 99));
    WRONG(bitnet_gguf_get_tensor(0, 0, &t));
    WRONG(bitnet_gguf_get_tensor(f, 0, 0));
    WRONG(bitnet_gguf_find_tensor(0, "token_embd.weight", &t));
    WRONG(bitnet_gguf_find_tensor(f, 0, &t));
    WRONG(bitnet_gguf_find_tensor(f, "token_embd.weight", 0));
    SAYS(BITNET_OK, bitnet_gguf_find_tensor(f, "token_embd.weight", &t));
    WRONG(bitnet_gguf_read(0, &t, 0, &k, 1, &err));
    WRONG(bitnet_gguf_read(f, 0, 0, &k, 1, &err));
    WRONG(bitnet_gguf_read(f, &t, 0, 0, 1, &err));
    SAYS(BITNET_OK, bitnet_gguf_read(f, &t, 0, &k, 1, 0));
    DOES(bitnet_gguf_close(0));
    bitnet_gguf_close(f);
    SAYS(0, bitnet_tensor_size(BITNET_TENSOR_F32, 1, 0));
}

/* A writer that has not failed yet. */
static gguf_writer *fresh(void) {
    static gguf_writer w;
    static machine x;
    gguf_writer_free(&w);
    memset(&w, 0, sizeof w);
    w.write_fn = mach_write_fn;
    w.ud = &x;
    return &w;
}

static void null_writers(void) {
    static const uint64_t dims[] = {4};
    static const char *const texts[] = {"a", 0};
    bitnet_gguf_value v = {BITNET_GGUF_U8, 0, 1, 1, 0};
    gguf_writer *w;
    const int32_t i = 1;
    const float x = 1;
    WRONG(gguf_add_string(0, "k", "text"));
    WRONG(gguf_add_string(fresh(), 0, "text"));
    WRONG(gguf_add_string(fresh(), "k", 0));
    WRONG(gguf_add_u32(0, "k", 1));
    WRONG(gguf_add_u32(fresh(), 0, 1));
    WRONG(gguf_add_f32(0, "k", 1));
    WRONG(gguf_add_f32(fresh(), 0, 1));
    WRONG(gguf_add_bool(0, "k", 1));
    WRONG(gguf_add_bool(fresh(), 0, 1));
    WRONG(gguf_add_i32s(0, "k", &i, 1));
    WRONG(gguf_add_i32s(fresh(), 0, &i, 1));
    WRONG(gguf_add_i32s(fresh(), "k", 0, 1));
    SAYS(BITNET_OK, gguf_add_i32s(fresh(), "k", 0, 0));
    WRONG(gguf_add_f32s(0, "k", &x, 1));
    WRONG(gguf_add_f32s(fresh(), 0, &x, 1));
    WRONG(gguf_add_f32s(fresh(), "k", 0, 1));
    WRONG(gguf_add_strings(0, "k", texts, 0, 1));
    WRONG(gguf_add_strings(fresh(), 0, texts, 0, 1));
    WRONG(gguf_add_strings(fresh(), "k", 0, 0, 1));
    WRONG(gguf_add_strings(fresh(), "k", texts, 0, 2));
    SAYS(BITNET_OK, gguf_add_strings(fresh(), "k", texts, 0, 1));
    WRONG(gguf_add_value(0, "k", &v));
    WRONG(gguf_add_value(fresh(), "k", &v));        /* its data is 0 */
    WRONG(gguf_add_value(fresh(), "k", 0));
    v.data = (const uint8_t *)"x";
    WRONG(gguf_add_value(fresh(), 0, &v));
    WRONG(gguf_add_tensor(0, "t", BITNET_TENSOR_F32, 1, dims));
    WRONG(gguf_add_tensor(fresh(), 0, BITNET_TENSOR_F32, 1, dims));
    WRONG(gguf_add_tensor(fresh(), "t", BITNET_TENSOR_F32, 1, 0));
    WRONG(gguf_write_header(0));
    WRONG(gguf_write_header(fresh()));
    WRONG(gguf_write_data(0, "xxxx", 4));
    w = fresh();
    SAYS(BITNET_OK, gguf_add_tensor(w, "t", BITNET_TENSOR_F32, 1, dims));
    SAYS(BITNET_OK, gguf_write_header(w));
    SAYS(BITNET_OK, gguf_write_data(w, 0, 0));
    WRONG(gguf_write_data(w, 0, 4));
    WRONG(gguf_write_end(0));
    DOES(gguf_writer_free(0));
    SAYS(0, gguf_writer_total(0));
    w = fresh();
    w->write_fn = 0;
    WRONG(gguf_add_u32(w, "k", 1));
    fresh();
}

static void null_weights(void) {
    bitnet_ternary t = {BITNET_TENSOR_I2_S, 128, 4, BITNET_I2S_128, {0, 0, 0}};
    uint8_t data[128 + 32] = {0};
    int8_t w[512] = {0};
    float x[32] = {0};
    bitnet_error err;
    WRONG(bitnet_ternary_check(0, "t", &err));
    WRONG(bitnet_ternary_check(&t, 0, &err));
    SAYS(BITNET_OK, bitnet_ternary_check(&t, "t", 0));
    WRONG(pack_ternary(0, w, 0, 4, data, &err));
    WRONG(pack_ternary(&t, 0, 0, 4, data, &err));
    WRONG(pack_ternary(&t, w, 0, 4, 0, &err));
    SAYS(BITNET_OK, pack_ternary(&t, w, 0, 4, data, 0));
    WRONG(bitnet_ternary_unpack(0, data, 0, 4, w, &err));
    WRONG(bitnet_ternary_unpack(&t, 0, 0, 4, w, &err));
    WRONG(bitnet_ternary_unpack(&t, data, 0, 4, 0, &err));
    SAYS(BITNET_OK, bitnet_ternary_unpack(&t, data, 0, 4, w, 0));
    WRONG(bitnet_ternary_scale(0, data, x, &err));
    WRONG(bitnet_ternary_scale(&t, 0, x, &err));
    WRONG(bitnet_ternary_scale(&t, data, 0, &err));
    WRONG(pack_scale(0, 1.0f, data, &err));
    WRONG(pack_scale(&t, 1.0f, 0, &err));
    SAYS(BITNET_OK, pack_scale(&t, 1.0f, data, 0));
    WRONG(bitnet_floats_unpack(BITNET_TENSOR_F32, 0, 4, x, &err));
    WRONG(bitnet_floats_unpack(BITNET_TENSOR_F32, data, 4, 0, &err));
    WRONG(pack_floats(BITNET_TENSOR_F32, 0, 4, data, &err));
    WRONG(pack_floats(BITNET_TENSOR_F32, x, 4, 0, &err));
    SAYS(BITNET_OK, pack_floats(BITNET_TENSOR_F32, x, 4, data, 0));
}

/* Symbols have the version behind the name, and so have names in `said` that went through another
   macro. */
#define SHOW(x) SHOW_AS_IT_IS(x)
#define SHOW_AS_IT_IS(x) #x
static const char versioned[] = SHOW(bitnet_version);

static int takes_pointer(const char *args) { return strchr(args, '*') != 0; }

static int takes_number(const char *args) {
    static const char *const types[] = {"int ", "int32_t ", "uint32_t ", "uint64_t ", "size_t ",
                                        "bitnet_token "};
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *p = strstr(args, types[i]);
        for (; p; p = strstr(p + 1, types[i]))
            if (p[strlen(types[i])] != '*' && strchr("( ", p[-1])) return 1;
    }
    return 0;
}

/* The interface's functions with such arguments: each must have been called above. */
static void check_all_called(int (*takes)(const char *args)) {
    char path[512], name[96], symbol[96];
    size_t size;
    char *text, *p, *end;
    snprintf(path, sizeof path, "%s/../../bitnet.h", test_data(""));
    text = (char *)test_read_file(path, &size);
    CHECK_MSG(text && size > 0, "cannot read %s", path);
    text[size - 1] = 0;
    end = strstr(text, "End of the interface");
    CHECK(end);
    *end = 0;
    for (p = text; (p = strstr(p, "\nBITNET_API ")) != 0; p = end) {
        char *open = strchr(p, '('), *start = open;
        end = strchr(open, ';');
        *end++ = 0;
        while (start[-1] == '_' || (start[-1] >= 'a' && start[-1] <= 'z') ||
               (start[-1] >= '0' && start[-1] <= '9')) start--;
        snprintf(name, sizeof name, " %.*s", (int)(open + 1 - start), start);
        snprintf(symbol, sizeof symbol, " %.*s%s(", (int)(open - start), start,
                 versioned + strlen("bitnet_version"));
        if (takes(open) && !strstr(said, name) && !strstr(said, symbol))
            test_fail(__FILE__, __LINE__, "none of%s", name);
    }
    free(text);
}

static void test_null(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    said[0] = 0;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 16, 0);
    if (m && c) {
        null_models(&g, m);
        null_text(m);
        null_contexts(m, c);
        null_embeddings(c);
        null_sequences(m, c);
        null_files(&g);
        null_writers();
        null_weights();
        check_all_called(takes_pointer);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- reserved words ---- */

/* Each reserved word of a struct, alone, makes a call fail that names the struct. */
#define RESERVED(s, of, call) \
    do { \
        size_t word_; \
        for (word_ = 0; word_ < sizeof (s).reserved / sizeof (s).reserved[0]; word_++) { \
            memset(&err, 0, sizeof err); \
            (s).reserved[word_] = (uint64_t)1 << 63 >> word_; \
            CHECK_MSG((call) == BITNET_ERR_ARG, "word %d: %s", (int)word_, #call); \
            CHECK_MSG(strstr(err.text, of ":") && strstr(err.text, "reserved"), "%s: '%s'", #call, \
                      err.text); \
            (s).reserved[word_] = 0; \
        } \
    } while (0)

static void reserved_files(const gb_model *g, bitnet_ctx *c) {
    gb_reader reader;
    bitnet_io io = gb_io(&reader, g->data, g->size);
    bitnet_model_params p;
    bitnet_allocator a;
    bitnet_model *m;
    bitnet_gguf *f;
    bitnet_error err;
    memset(&p, 0, sizeof p);
    memset(&a, 0, sizeof a);
    RESERVED(p, "bitnet_model_params", bitnet_model_load_memory(g->data, g->size, &p, &m, &err));
    RESERVED(p, "bitnet_model_params", bitnet_model_load_io(&io, &p, &m, &err));
    RESERVED(p.allocator, "bitnet_allocator",
             bitnet_model_load_memory(g->data, g->size, &p, &m, &err));
    RESERVED(a, "bitnet_allocator", bitnet_gguf_open_memory(g->data, g->size, &a, &f, &err));
    RESERVED(io, "bitnet_io", bitnet_model_load_io(&io, 0, &m, &err));
    RESERVED(io, "bitnet_io", bitnet_gguf_open_io(&io, 0, &f, &err));
    RESERVED(io, "bitnet_io", bitnet_seq_load_io(c, 0, &io, &err));
    io.write_fn = refuse_piece;
    RESERVED(io, "bitnet_io", bitnet_seq_save_io(c, 0, &io, &err));
}

static void reserved_contexts(const bitnet_model *m, bitnet_ctx *c) {
    static const bitnet_token token = 1;
    bitnet_ctx_params p;
    bitnet_hooks hooks;
    bitnet_input in;
    bitnet_embed_input text;
    bitnet_embed_params how;
    bitnet_ctx *out;
    bitnet_error err;
    float *x = (float *)gb_malloc((size_t)m->dim * sizeof *x);
    memset(&p, 0, sizeof p);
    memset(&hooks, 0, sizeof hooks);
    memset(&in, 0, sizeof in);
    memset(&text, 0, sizeof text);
    memset(&how, 0, sizeof how);
    RESERVED(p, "bitnet_ctx_params", bitnet_ctx_create(m, &p, &out, &err));
    RESERVED(p.hooks, "bitnet_hooks", bitnet_ctx_create(m, &p, &out, &err));
    RESERVED(hooks, "bitnet_hooks", bitnet_ctx_set_hooks(c, &hooks, &err));
    p.reserved[2] = 1;
    CHECK(bitnet_ctx_bytes(m, &p) == 0);
    in.n_tokens = 1;
    in.tokens = &token;
    RESERVED(in, "bitnet_input", bitnet_eval_many(c, &in, 1, &err));
    text.tokens = &token;
    text.n_tokens = 1;
    how.pooling = BITNET_POOLING_LAST;
    RESERVED(text, "bitnet_embed_input", bitnet_embed(c, &text, 1, &how, x, &err));
    RESERVED(how, "bitnet_embed_params", bitnet_embed(c, &text, 1, &how, x, &err));
    free(x);
}

static void reserved_texts(const bitnet_model *m, bitnet_ctx *c) {
    static const bitnet_token token = 1;
    bitnet_chat_template t = *bitnet_model_chat_template(m);
    bitnet_message msg = MESSAGE("user", "x");
    bitnet_chat_params chat;
    bitnet_generate_params p, q;
    bitnet_sampler s;
    bitnet_gen *g;
    bitnet_error err;
    float logits[400] = {0};
    memset(&chat, 0, sizeof chat);
    memset(&p, 0, sizeof p);
    memset(&s, 0, sizeof s);
    chat.chat_template = &t;
    p.messages = &msg;
    p.n_messages = 1;
    p.chat = &chat;
    q = p;
    p.sampler = &s;
    RESERVED(msg, "bitnet_message", bitnet_chat_tokenize(m, &chat, &msg, 1, 0, 0, 0, &err));
    RESERVED(msg, "bitnet_message", bitnet_generate(c, &p, 0, &err));
    RESERVED(chat, "bitnet_chat_params", bitnet_chat_tokenize(m, &chat, &msg, 1, 0, 0, 0, &err));
    RESERVED(chat, "bitnet_chat_params", bitnet_generate(c, &p, 0, &err));
    RESERVED(t, "bitnet_chat_template", bitnet_chat_tokenize(m, &chat, &msg, 1, 0, 0, 0, &err));
    RESERVED(t, "bitnet_chat_template", bitnet_gen_begin(c, &p, &g, &err));
    RESERVED(q, "bitnet_generate_params", bitnet_generate(c, &q, 0, &err));
    RESERVED(q, "bitnet_generate_params", bitnet_gen_begin(c, &q, &g, &err));
    RESERVED(s, "bitnet_sampler", bitnet_generate(c, &p, 0, &err));
    CHECK(bitnet_seq_length(c, 0) == 0 && m->n_vocab <= 400);
    CHECK(!bitnet_eval(c, 0, &token, 1, 1, 0));
    RESERVED(s, "bitnet_sampler", bitnet_sample(c, -1, &s, &err));
    RESERVED(s, "bitnet_sampler", bitnet_sample_logits(c, logits, 0, 0, &s, &err));
    CHECK(!bitnet_generate(c, &p, 0, &err));       /* and without them all is well */
}

static void test_reserved(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 32, 0);
    if (m && c) {
        reserved_files(&g, c);
        reserved_contexts(m, c);
        reserved_texts(m, c);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- every number out of range ---- */

static void test_call_numbers(void) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, -2};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_token t[64] = {1, 2, 3};
    bitnet_message msg = MESSAGE("user", "hello");
    bitnet_detok d;
    bitnet_error err;
    char buf[128];
    int i, k, n;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 4);
    CHECK(c);
    for (i = 0; i < 4; i++)            /* parameters of a context */
        for (k = 0; k < 4; k++) {
            bitnet_ctx_params cp;
            bitnet_ctx *out = c;
            memset(&cp, 0, sizeof cp);
            *(k == 0 ? &cp.n_ctx : k == 1 ? &cp.n_batch : k == 2 ? &cp.n_logits : &cp.n_threads) =
                wild[i];
            CHECK(bitnet_ctx_create(m, &cp, &out, &err) == BITNET_ERR_ARG && !out);
            CHECK(strstr(err.text, "is not in 1..") && bitnet_ctx_bytes(m, &cp) == 0);
        }
    for (i = 0; i < 4; i++) {          /* token ids */
        const bitnet_token bad = i == 3 ? g.n_vocab : wild[i];
        t[1] = bad;
        CHECK(bitnet_detokenize(m, t, 2, buf, sizeof buf) == BITNET_ERR_ARG);
        memset(&d, 0, sizeof d);
        n = bitnet_detok_push(m, &d, bad, buf, sizeof buf);
        CHECK(n == (bad == -1 ? 0 : BITNET_ERR_ARG));      /* -1 is the end of a text */
        CHECK(!bitnet_token_is_end(m, bad));
        CHECK(bitnet_eval(c, 0, t, 2, 1, &err) == BITNET_ERR_ARG && strstr(err.text, "index 1"));
        CHECK(!bitnet_logits(c, wild[i], NULL) && bitnet_seq_length(c, 0) == 0);
    }
    t[1] = 2;
    for (i = 0; i < 4; i++) {          /* counts */
        CHECK(wild[i] > 0 || bitnet_detokenize(m, t, wild[i], buf, sizeof buf) == BITNET_ERR_ARG);
        CHECK(wild[i] > 0 ||
              bitnet_chat_tokenize(m, 0, &msg, wild[i], 0, t, 9, NULL) == BITNET_ERR_ARG);
        CHECK(bitnet_eval(c, 0, t, wild[i], 1, &err) ==
              (wild[i] > 0 ? BITNET_ERR_FULL : BITNET_ERR_ARG));
        CHECK(bitnet_seq_rewind(c, 0, wild[i], NULL) == BITNET_ERR_ARG);
        CHECK(!bitnet_kernels_get(wild[i]) && bitnet_result_text((bitnet_result)wild[i])[0]);
    }
    CHECK(!bitnet_kernels_get(bitnet_kernels_count()));
    /* Lengths beyond an int, of which no byte is read; room for nothing. */
    CHECK(bitnet_tokenize(m, "x", (size_t)INT32_MAX + 1, 0, t, 64) == BITNET_ERR_LIMIT);
    CHECK(bitnet_tokenize(m, "x", SIZE_MAX, 0, t, 64) == BITNET_ERR_LIMIT);
    t[0] = 'h', t[1] = 'i';
    CHECK(bitnet_detokenize(m, t, 2, buf, 0) == 2);
    memset(&d, 0, sizeof d);
    CHECK(bitnet_detok_push(m, &d, 'h', buf, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_detok_push(m, &d, 'h', buf, 5) == BITNET_ERR_ARG);
    CHECK(bitnet_detok_push(m, &d, 'h', buf, 6) == 1);
    d.n_pending = 4;                   /* not a state of ours */
    CHECK(bitnet_detok_push(m, &d, 'h', buf, 6) == BITNET_ERR_ARG);
    for (i = 0; i < 32; i++) {         /* flags that nobody knows */
        const int flag = (int)(1u << i);
        CHECK((bitnet_tokenize(m, "he", 2, flag, t, 64) == BITNET_ERR_ARG) == (i >= 3));
        n = bitnet_chat_tokenize(m, 0, &msg, 1, flag, t, 64, &err);
        CHECK(i < 4 ? n > 0 : n == BITNET_ERR_ARG && strstr(err.text, "no such flag"));
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- sequences: their parameters and numbers ---- */

static void test_sequence_params(void) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, -2};
    static const int64_t n_kv[] = {-1, INT64_MIN, INT64_MAX, 3 * 64 + 1};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *out;
    bitnet_ctx_params cp;
    bitnet_error err;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (i = 0; i < 6; i++) {
        memset(&cp, 0, sizeof cp);
        cp.n_ctx = 8;
        cp.n_threads = 1;
        cp.n_seqs = i == 4 ? 4097 : i == 5 ? 4096 : 3;
        if (i < 4) cp.n_kv = n_kv[i];
        if (i == 5) {                  /* the most that there can be */
            CHECK(bitnet_ctx_bytes(m, &cp) > 0);
            cp.n_logits = 4096 * 8;
            CHECK(bitnet_ctx_bytes(m, &cp) > 0);
            cp.n_logits++;
        }
        out = (bitnet_ctx *)(void *)&g;
        CHECK(bitnet_ctx_create(m, &cp, &out, &err) == BITNET_ERR_ARG && !out);
        CHECK_MSG(strstr(err.text, i < 4 ? "n_kv" : i == 4 ? "n_seqs 4097" : "n_logits 32769") &&
                  bitnet_ctx_bytes(m, &cp) == 0, "%d: %s", i, err.text);
    }
    for (i = 0; i < 4; i++) {
        memset(&cp, 0, sizeof cp);
        cp.n_seqs = wild[i];
        CHECK(bitnet_ctx_create(m, &cp, &out, &err) == BITNET_ERR_ARG && !out);
        CHECK(strstr(err.text, "n_seqs") && bitnet_ctx_bytes(m, &cp) == 0);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Three sequences of 8 positions; 0 holds 3 tokens. */
static const bitnet_token three_tokens[9] = {1, 2, 3};

static bitnet_ctx *three_sequences(const bitnet_model *m) {
    bitnet_ctx_params cp;
    bitnet_ctx *c = 0;
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = 8;
    cp.n_seqs = 3;
    cp.n_threads = 1;
    if (bitnet_ctx_create(m, &cp, &c, 0)) return 0;
    return bitnet_eval(c, 0, three_tokens, 3, 1, 0) ? 0 : c;
}

/* No sequence has this number. */
static void refuse_sequence(bitnet_ctx *c, int32_t seq) {
    uint8_t state[4096];
    bitnet_generate_params gen;
    bitnet_input in;
    bitnet_io io;
    bitnet_error err;
    int k;
    CHECK(!bitnet_seq_save_memory(c, 0, state, sizeof state, &err));
    CHECK(bitnet_seq_length(c, seq) == 0 && !bitnet_seq_tokens(c, seq));
    CHECK(bitnet_seq_pending(c, seq) == -1 && bitnet_seq_state_bytes(c, seq) == 0);
    CHECK(bitnet_seq_rewind(c, seq, 0, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_copy(c, 0, seq, 1, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_copy(c, seq, 1, 0, NULL) == BITNET_ERR_ARG);
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.tokens = three_tokens;
    in.n_tokens = 1;
    memset(&io, 0, sizeof io);
    io.write_fn = refuse_piece;
    for (k = 0; k < 6; k++) {
        err.text[0] = 0;
        if (k == 0) CHECK(bitnet_seq_save_io(c, seq, &io, &err) == BITNET_ERR_ARG);
        if (k == 1) CHECK(bitnet_seq_save_memory(c, seq, state, 9, &err) == BITNET_ERR_ARG);
        if (k == 2) CHECK(bitnet_seq_load_memory(c, seq, state, 999, &err) == BITNET_ERR_ARG);
        if (k == 3) CHECK(bitnet_seq_sync(c, seq, three_tokens, 3, 0, &err) == BITNET_ERR_ARG);
        if (k == 4) CHECK(bitnet_eval_many(c, &in, 1, &err) == BITNET_ERR_ARG);
        if (k == 5) CHECK(bitnet_seq_remove(c, seq, 0, 0, &err) == BITNET_ERR_ARG);
        CHECK_MSG(strstr(err.text, "is not in 0..2"), "%d: %s", k, err.text);
    }
    memset(&gen, 0, sizeof gen);
    gen.seq = seq;
    gen.tokens = three_tokens;
    gen.n_tokens = gen.max_tokens = 1;
    CHECK(bitnet_generate(c, &gen, 0, &err) == BITNET_ERR_ARG && err.text[0]);
}

static void test_sequence_numbers(void) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, -2, 3};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    c = three_sequences(m);
    CHECK(c);
    for (i = 0; i < 5; i++) refuse_sequence(c, wild[i]);   /* 3: one more than the last one */
    CHECK(bitnet_seq_rewind(c, 0, 4, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_copy(c, 0, 0, 1, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_copy(c, 0, 1, 4, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_length(c, 0) == 3 && !bitnet_seq_length(c, 1) && !bitnet_seq_length(c, 2));
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Numbers of tokens, rows and inputs. 9 tokens are too many. */
static void test_input_numbers(void) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, -2, 9};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_input in;
    bitnet_sampler s;
    bitnet_error err;
    float *logits;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    c = three_sequences(m);
    CHECK(c);
    logits = (float *)gb_malloc((size_t)m->n_vocab * sizeof *logits);
    memset(logits, 0, (size_t)m->n_vocab * sizeof *logits);
    memset(&in, 0, sizeof in);
    memset(&s, 0, sizeof s);
    s.repeat_penalty = 2;
    in.tokens = three_tokens;
    for (i = 0; i < 5; i++) {
        const int32_t n = wild[i];
        in.n_tokens = n;
        in.n_logits = 0;
        CHECK(bitnet_eval_many(c, &in, 1, &err) == (n > 0 ? BITNET_ERR_FULL : BITNET_ERR_ARG));
        in.n_tokens = 2;
        in.n_logits = n;
        CHECK(bitnet_eval_many(c, &in, 1, &err) == BITNET_ERR_ARG && strstr(err.text, "n_logits"));
        CHECK(bitnet_seq_rewind(c, 0, n, NULL) == BITNET_ERR_ARG);
        CHECK(bitnet_seq_copy(c, 0, 1, n, NULL) == BITNET_ERR_ARG);
        CHECK(n == -1 || bitnet_sample(c, n, &s, NULL) == BITNET_ERR_ARG);
        in.n_logits = 0;
        CHECK(n > 0 || bitnet_eval_many(c, &in, n, &err) == BITNET_ERR_ARG);
        CHECK(n > 0 || bitnet_sample_logits(c, logits, three_tokens, n, &s, NULL) ==
                           BITNET_ERR_ARG);
    }
    CHECK(bitnet_seq_length(c, 0) == 3);
    free(logits);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Generating: what is refused changes nothing. */
static void test_generate_numbers(void) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, -2};
    static const bitnet_token prompt[16] = {1, 2, 3};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_generate_params p;
    bitnet_stop why;
    bitnet_error err;
    int i;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 4);
    CHECK(c);
    for (i = 0; i < 15; i++) {
        memset(&p, 0, sizeof p);
        p.tokens = prompt;
        p.n_tokens = 1;
        p.max_tokens = 1;
        if (i < 4) p.n_tokens = wild[i];
        else if (i < 8) p.lookup = wild[i - 4];
        else if (i < 12) p.n_stop_strings = wild[i - 8];
        else if (i == 12) p.n_tokens = 9;                  /* positions: 8 */
        else if (i == 13) p.n_tokens = 0;
        else p.lookup = 65;
        CHECK_MSG(bitnet_generate(c, &p, &why, &err) == (i == 2 || i == 12 ? BITNET_ERR_FULL
                                                                           : BITNET_ERR_ARG),
                  "case %d: %s", i, err.text);
        CHECK(err.text[0] && bitnet_seq_length(c, 0) == 0);
    }
    /* An empty text is BOS, if the file wants one at the beginning, or nothing. Then until the
       context is full; then nothing fits. */
    memset(&p, 0, sizeof p);
    p.text = text_of("");
    p.max_tokens = INT32_MIN;
    p.ignore_end = 1;
    CHECK(!bitnet_generate(c, &p, &why, &err) && why == BITNET_STOP_LENGTH);
    CHECK(bitnet_seq_length(c, 0) == 8 && bitnet_seq_tokens(c, 0)[0] == g.bos);
    CHECK(bitnet_generate(c, &p, &why, &err) == BITNET_ERR_FULL && strstr(err.text, "1 tokens"));
    p.text = text_of("h");
    CHECK(bitnet_generate(c, &p, &why, &err) == BITNET_ERR_FULL && bitnet_seq_length(c, 0) == 8);
    CHECK(!bitnet_seq_rewind(c, 0, 8, NULL));
    p.text = text_of("");
    CHECK(bitnet_generate(c, &p, &why, &err) == BITNET_ERR_ARG &&
          strstr(err.text, "no token in the prompt"));
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Numbers of files and weights. */
static void test_file_numbers(void) {
    static const uint64_t dims[4] = {UINT64_MAX, 2, 2, 2}, small[4] = {4, 1, 1, 1};
    static const char *const texts[] = {"a"};
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, 5};
    static const size_t lengths[] = {SIZE_MAX - 4096};
    gb_model g = word_model();
    bitnet_ternary t = {BITNET_TENSOR_I2_S, 128, 4, BITNET_I2S_128, {0, 0, 0}};
    bitnet_gguf *f = 0;
    bitnet_gguf_key k;
    bitnet_gguf_tensor s;
    gguf_writer *w;
    uint8_t data[160] = {0};
    int8_t weights[512];
    float x[32] = {0};
    const int32_t one = 1;
    int i;
    gb_make_model(&g);
    CHECK(!bitnet_gguf_open_memory(g.data, g.size, 0, &f, 0));
    CHECK(bitnet_gguf_get_key(f, UINT64_MAX, &k) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_gguf_get_tensor(f, UINT64_MAX, &s) == BITNET_ERR_NOT_FOUND);
    CHECK(!bitnet_gguf_get_tensor(f, 0, &s));
    CHECK(bitnet_gguf_read(f, &s, UINT64_MAX, x, 1, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_gguf_read(f, &s, 1, x, SIZE_MAX, 0) == BITNET_ERR_ARG);
    s.offset = UINT64_MAX;
    CHECK(bitnet_gguf_read(f, &s, 0, x, 1, 0) == BITNET_ERR_ARG);
    for (i = 0; i < 4; i++) {
        CHECK(bitnet_tensor_size(BITNET_TENSOR_F32, wild[i], small) == 0);
        CHECK(bitnet_ternary_unpack(&t, data, wild[i], 1, weights, 0) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_unpack(&t, data, 1, wild[i], weights, 0) == BITNET_ERR_ARG);
        CHECK(pack_ternary(&t, weights, wild[i], wild[i], data, 0) == BITNET_ERR_ARG);
        CHECK(wild[i] > 0 || bitnet_floats_unpack(0, data, wild[i], x, 0) == BITNET_ERR_ARG);
        CHECK(wild[i] > 0 || pack_floats(0, x, wild[i], data, 0) == BITNET_ERR_ARG);
        t.rows = wild[i] > 0 ? 0 : wild[i];
        CHECK(bitnet_ternary_check(&t, "t", 0) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_unpack(&t, data, 1, 1, weights, 0) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_scale(&t, data, x, 0) == BITNET_ERR_ARG);
        t.rows = 4;
    }
    CHECK(bitnet_tensor_size(BITNET_TENSOR_F32, 4, dims) == 0);
    CHECK(bitnet_tensor_size(UINT32_MAX, 1, small) == 0 && !bitnet_tensor_type_name(UINT32_MAX));
    CHECK(gguf_add_tensor(fresh(), "t", 0, 4, dims) == BITNET_ERR_ARG);
    CHECK(gguf_add_i32s(fresh(), "k", &one, UINT64_MAX) == BITNET_ERR_ARG);
    CHECK(gguf_add_strings(fresh(), "k", texts, lengths, 1) == BITNET_ERR_MEMORY);
    w = fresh();
    CHECK(!gguf_add_tensor(w, "t", 0, 1, small) && !gguf_write_header(w));
    CHECK(gguf_write_data(w, data, SIZE_MAX) == BITNET_ERR_ARG);
    fresh();
    bitnet_gguf_close(f);
    gb_free_model(&g);
}

/* A sampler may hold any floats: what is no number, or negative, is as 0; and the screened head
   draws as the full one does. */
static void test_sampler_numbers(void) {
    static const uint32_t bits[] = {0x7fc00000u, 0xffc00000u, 0xff800000u, 0xbf800000u, 0x80000000u,
                                    0x7f800000u, 0x7f7fffffu, 0x00000001u, 0x3f800000u};
    enum { AS_ZERO = 5, N = sizeof bits / sizeof bits[0] };
    static const bitnet_token prompt[3] = {7, 42, 99};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c[2] = {0, 0};
    bitnet_logit_bias bias[4];
    bitnet_sampler s[3];
    bitnet_token t[3];
    int field, i, j, k;
    gb_make_model(&g);
    m = load_built(&g);
    for (i = 0; i < 2; i++) {
        bitnet_ctx_params p;
        memset(&p, 0, sizeof p);
        p.no_head_copy = i;
        p.n_threads = 1;
        CHECK(m && !bitnet_ctx_create(m, &p, &c[i], 0));
        CHECK(!bitnet_eval(c[i], 0, prompt, 3, 1, 0));
    }
    for (field = 0; field < 4; field++)
        for (i = 0; i < N; i++)
            for (k = 0; k < 8; k++) {
                for (j = 0; j < 3; j++) {
                    float x = bitnet__float_from_bits(j == 2 ? 0u : bits[i]);
                    memset(&s[j], 0, sizeof s[j]);
                    s[j].temperature = 0.9f;
                    s[j].top_k = k % 2 ? 5 : 0;
                    s[j].top_p = k & 2 ? 0.8f : 0.0f;
                    s[j].rng = (uint64_t)k;
                    if (field == 0) s[j].temperature = x;
                    if (field == 1) s[j].top_p = x;
                    if (field == 2) s[j].min_p = x;
                    if (field == 3) s[j].repeat_penalty = x;
                    t[j] = bitnet_sample(c[j % 2], -1, &s[j], NULL);
                }
                CHECK_MSG(t[0] >= 0 && t[0] < g.n_vocab && t[0] == t[1] && s[0].rng == s[1].rng,
                          "field %d, %08x: token %d, of the full head %d", field, (unsigned)bits[i],
                          (int)t[0], (int)t[1]);
                CHECK_MSG(i >= AS_ZERO || (t[0] == t[2] && s[0].rng == s[2].rng),
                          "field %d, %08x: token %d, with 0 %d", field, (unsigned)bits[i],
                          (int)t[0], (int)t[2]);
            }
    for (i = 0; i < 4; i++) {          /* the whole numbers */
        static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, 0};
        memset(&s[0], 0, sizeof s[0]);
        s[0].temperature = 0.9f;
        s[0].repeat_penalty = 1.5f;
        s[0].top_k = wild[i];
        s[0].repeat_window = -1;
        s[1] = s[0];
        s[1].repeat_window = wild[i];
        CHECK(bitnet_sample(c[0], -1, &s[0], NULL) == bitnet_sample(c[1], -1, &s[1], NULL));
    }
    /* Biases: no tokens; then one for the likeliest, which a NaN or minus infinity
       forbids. */
    t[0] = bitnet_sample(c[0], -1, 0, NULL);
    bias[0].token = INT32_MIN, bias[1].token = INT32_MAX, bias[2].token = g.n_vocab;
    bias[3].token = -1;
    for (i = 0; i < 4; i++) bias[i].bias = 1e30f;
    memset(&s[0], 0, sizeof s[0]);
    s[0].bias = bias;
    s[0].n_bias = 4;
    CHECK(bitnet_sample(c[0], -1, &s[0], NULL) == t[0] &&
          bitnet_sample(c[1], -1, &s[0], NULL) == t[0]);
    for (i = 0; i < N; i++) {
        bias[3].token = t[0];
        bias[3].bias = bitnet__float_from_bits(bits[i]);
        t[1] = bitnet_sample(c[0], -1, &s[0], NULL);
        CHECK_MSG(t[1] == bitnet_sample(c[1], -1, &s[0], NULL) && (i > 2 ? i == 3 || t[1] == t[0]
                                                               : t[1] != t[0]),
                  "bias %08x: token %d, without %d", (unsigned)bits[i], (int)t[1], (int)t[0]);
    }
    s[0].n_bias = -1;
    CHECK(bitnet_sample(c[0], -1, &s[0], NULL) == BITNET_ERR_ARG);
    for (i = 0; i < 2; i++) bitnet_ctx_free(c[i]);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- every number at the ends of its type, alone and with others ----
   A sum that is taken before its parts are checked overflows there. Most such sums do no harm that
   a caller sees: the sanitizer finds them. */

static const int32_t extremes[] = {INT32_MIN, INT32_MIN + 1, -2, -1, 0, 1, 3, INT32_MAX - 1,
                                   INT32_MAX};
static const size_t extreme_sizes[] = {0, 1, INT32_MAX, (size_t)INT32_MAX + 1, SIZE_MAX - 1,
                                       SIZE_MAX};
enum { N_EXTREMES = sizeof extremes / sizeof extremes[0], N_EXTREME_SIZES = 6 };

static void extreme_params(const bitnet_model *m) {
    int i;
    for (i = 0; i < N_EXTREMES * N_EXTREMES * N_EXTREMES * N_EXTREMES; i++) {
        bitnet_ctx_params p;
        int valid, k;
        memset(&p, 0, sizeof p);
        p.n_seqs = extremes[i % N_EXTREMES];
        p.n_ctx = extremes[i / N_EXTREMES % N_EXTREMES];
        p.n_logits = extremes[i / (N_EXTREMES * N_EXTREMES) % N_EXTREMES];
        k = i / (N_EXTREMES * N_EXTREMES * N_EXTREMES);
        p.n_batch = p.n_threads = extremes[k];
        p.n_kv = k == 0 ? INT64_MIN : k == N_EXTREMES - 1 ? INT64_MAX : 0;
        p.mark_bytes = k == 0 ? INT64_MAX : k == N_EXTREMES - 1 ? INT64_MIN : 0;
        valid = p.n_seqs >= 0 && p.n_seqs <= 3 && p.n_ctx >= 0 && p.n_ctx <= 3 &&
                p.n_logits >= 0 &&
                p.n_logits <= (p.n_seqs ? p.n_seqs : 1) * (p.n_ctx ? p.n_ctx : m->n_ctx) &&
                p.n_batch >= 0 && p.n_batch <= 3;
        CHECK_MSG((bitnet_ctx_bytes(m, &p) > 0) == valid, "n_seqs %d, n_ctx %d, n_logits %d, "
                  "n_batch %d", (int)p.n_seqs, (int)p.n_ctx, (int)p.n_logits, (int)p.n_batch);
    }
}

static void extreme_text(const bitnet_model *m) {
    static const bitnet_message msg = MESSAGE("user", "hello");
    bitnet_token t[64];
    bitnet_detok d;
    char buf[128];
    size_t size;
    const int n_text = bitnet_tokenize(m, "hello", 5, 0, 0, 0);
    const int n_chat = bitnet_chat_tokenize(m, 0, &msg, 1, 0, 0, 0, NULL);
    const int n_meta = bitnet_model_get_meta(m, "general.architecture", 0, 0);
    int i;
    for (i = 0; i < N_EXTREMES; i++) {
        const bitnet_token e = extremes[i];
        const int there = e >= 0 && e < m->n_vocab;
        SAYS(there, bitnet_token_text(m, e, &size) != 0);
        DOES(bitnet_token_is_special(m, e));
        SAYS(0, bitnet_token_is_end(m, e));
        SAYS(there, bitnet_detokenize(m, &e, 1, buf, sizeof buf) >= 0);
        if (e < 0) WRONG(bitnet_detokenize(m, t, e, buf, sizeof buf));
        if (e < 0) WRONG(bitnet_chat_tokenize(m, 0, &msg, e, 0, t, 64, NULL));
        memset(&d, 0, sizeof d);
        SAYS(there || e == -1, bitnet_detok_push(m, &d, e, buf, sizeof buf) >= 0);
        DOES(bitnet_tokenize(m, "x", 1, e, t, 64));
        DOES(bitnet_chat_tokenize(m, 0, &msg, 1, e, t, 64, NULL));
        SAYS(0, bitnet_kernels_get(e) != 0 && (e < 0 || e >= bitnet_kernels_count()));
        SAYS(e >= 0 && e < 9, bitnet_model_meta_key(m, e, buf, sizeof buf) > 0);
    }
    for (i = 0; i < N_EXTREME_SIZES; i++) {        /* of a text, then the room for what is short */
        const size_t e = extreme_sizes[i], room = e ? e : 64;
        if (e > INT32_MAX) SAYS(BITNET_ERR_LIMIT, bitnet_tokenize(m, "hello", e, 0, t, 64));
        if (e > INT32_MAX) SAYS(BITNET_ERR_LIMIT, bitnet_clean_text("hello", e, buf, sizeof buf));
        SAYS(n_text, bitnet_tokenize(m, "hello", 5, 0, t, e));
        SAYS(n_chat, bitnet_chat_tokenize(m, 0, &msg, 1, 0, t, e, NULL));
        SAYS(5, bitnet_clean_text("hello", 5, buf, e));
        SAYS((size_t)(e > 0), bitnet_utf8_decode("hello", e, 0));
        SAYS(n_meta, bitnet_model_get_meta(m, "general.architecture", buf, e));
        if (e <= 5) SAYS(e == 1, bitnet_token_find(m, "hello", e) == 'h');
        memset(&d, 0, sizeof d);
        SAYS(room < 6 ? (int)BITNET_ERR_ARG : 1, bitnet_detok_push(m, &d, 'h', buf, room));
    }
}

/* Sequence 0 holds three_tokens, the others nothing. */
static int back_to_three(bitnet_ctx *c) {
    return !bitnet_seq_rewind(c, 1, 0, NULL) && !bitnet_seq_rewind(c, 2, 0, NULL) &&
           !bitnet_seq_sync(c, 0, three_tokens, 3, 0, 0);
}

static void extreme_edits(bitnet_ctx *c) {
    int i;
    for (i = 0; i < N_EXTREMES * N_EXTREMES * N_EXTREMES; i++) {
        const int32_t a = extremes[i / (N_EXTREMES * N_EXTREMES)];
        const int32_t b = extremes[i / N_EXTREMES % N_EXTREMES], n = extremes[i % N_EXTREMES];
        const int32_t length = a == 0 ? 3 : 0;
        const int is_a = a >= 0 && a < 3, is_b = b >= 0 && b < 3;
        SAYS(1, back_to_three(c));
        SAYS(is_a && b >= 0 && b <= n && n <= length ? BITNET_OK : BITNET_ERR_ARG,
             bitnet_seq_remove(c, a, b, n, 0));
        SAYS(1, back_to_three(c));
        SAYS(is_a && is_b && a != b && n >= 0 && n <= length ? BITNET_OK : BITNET_ERR_ARG,
             bitnet_seq_copy(c, a, b, n, NULL));
        SAYS(1, back_to_three(c));
        SAYS(is_a && b >= 0 && b <= length ? BITNET_OK : BITNET_ERR_ARG,
             bitnet_seq_rewind(c, a, b, NULL));
    }
}

static void extreme_sequences(bitnet_ctx *c) {
    uint8_t state[4096] = {0};
    bitnet_input in;
    bitnet_io io;
    bitnet_figures figures;
    int i, j;
    SAYS(1, back_to_three(c));
    memset(&in, 0, sizeof in);
    memset(&io, 0, sizeof io);
    io.write_fn = refuse_piece;
    io.ud = c;
    in.seq = 1;
    in.tokens = three_tokens;
    for (i = 0; i < N_EXTREMES; i++) {
        const int32_t a = extremes[i];
        const int there = a >= 0 && a < 3;
        SAYS(a == 0 ? 3 : 0, bitnet_seq_length(c, a));
        SAYS(0, bitnet_seq_again(c, a));
        SAYS(there, bitnet_seq_tokens(c, a) != 0);
        SAYS(-1, bitnet_seq_pending(c, a));
        SAYS(there, bitnet_seq_state_bytes(c, a) > 0);
        DOES(bitnet_seq_figures(c, a, &figures));
        SAYS(a == 1 ? BITNET_OK : BITNET_ERR_ARG, bitnet_ctx_set_threads(c, a, 0));
        SAYS(there ? BITNET_ERR_CANCELLED : BITNET_ERR_ARG,
             bitnet_seq_save_io(c, a, &io, 0));
        SAYS(there ? BITNET_OK : BITNET_ERR_ARG, bitnet_seq_save_memory(c, a, state, SIZE_MAX, 0));
        SAYS(there ? BITNET_ERR_TRUNCATED : BITNET_ERR_ARG,
             bitnet_seq_load_memory(c, a, state, 1, 0));
        WRONG(bitnet_seq_load_io(c, a, 0, 0));
        SAYS(a == 0 || a == 1 || a == 3 ? BITNET_OK : BITNET_ERR_ARG,
             bitnet_seq_rewind(c, 0, a, NULL));
        SAYS(1, back_to_three(c));
        if (a < 1) WRONG(bitnet_eval_many(c, &in, a, 0));
        SAYS(a < 1 ? BITNET_ERR_ARG : a > 5 ? BITNET_ERR_FULL : BITNET_OK,
             bitnet_eval(c, 0, three_tokens, a, 1, 0));
        for (j = 0; j < N_EXTREMES; j++) {
            const int32_t n = extremes[j];
            SAYS(1, back_to_three(c));
            SAYS(!there || n < 1 ? BITNET_ERR_ARG : n > 8 ? BITNET_ERR_FULL : BITNET_OK,
                 bitnet_seq_sync(c, a, three_tokens, n, 0, 0));
            SAYS(1, back_to_three(c));
            in.n_tokens = a;
            in.n_logits = n;
            SAYS(a < 1 || n < 0 || n > a ? BITNET_ERR_ARG : a > 8 ? BITNET_ERR_FULL : BITNET_OK,
                 bitnet_eval_many(c, &in, 1, 0));
        }
    }
}

/* The one row is of three_tokens. */
static void extreme_rows(const bitnet_model *m, bitnet_ctx *c) {
    float *logits = (float *)gb_malloc((size_t)m->n_vocab * sizeof *logits);
    bitnet_logprob best[3];
    bitnet_gen *gen = 0;
    int i, j;
    SAYS(1, back_to_three(c));
    memcpy(logits, bitnet_logits(c, 0, NULL), (size_t)m->n_vocab * sizeof *logits);
    for (i = 0; i < N_EXTREMES; i++) {
        const int32_t a = extremes[i];
        const int there = a == 0 || a == -1;       /* -1: the last one */
        bitnet_sampler s;
        memset(&s, 0, sizeof s);
        s.repeat_penalty = s.temperature = 2;
        s.top_k = a;
        SAYS(there, bitnet_logits(c, a, NULL) != 0);
        SAYS(there, bitnet_hidden(c, a, NULL) != 0);
        for (j = 0; j < N_EXTREMES; j++) {
            const int32_t n = extremes[j];
            s.repeat_window = n;
            SAYS(there, bitnet_sample(c, a, &s, NULL) >= 0);
            SAYS(there && (n == 1 || n == 3) ? BITNET_OK : BITNET_ERR_ARG,
                 bitnet_logprobs(c, a, best, n, NULL));
            SAYS(1, bitnet_sample_logits(c, logits, three_tokens, 3, &s, NULL) >= 0);
        }
        if (a < 0) SAYS(BITNET_ERR_ARG, bitnet_sample_logits(c, logits, three_tokens, a, &s, NULL));
        if (a < 2) WRONG(bitnet_gen_next(&gen, a, 0));
    }
    free(logits);
}

static void extreme_vectors(bitnet_ctx *c, float *out) {
    bitnet_embed_params how;
    bitnet_embed_input in;
    int i;
    memset(&how, 0, sizeof how);
    how.pooling = BITNET_POOLING_LAST;
    for (i = 0; i < N_EXTREMES; i++) {
        const int32_t n = extremes[i];
        memset(&in, 0, sizeof in);
        in.tokens = three_tokens;
        in.n_tokens = n;
        SAYS(1, back_to_three(c));
        WRONG(bitnet_embed(c, &in, 1, &how, out, 0));      /* sequence 0 is not empty */
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
        how.cut = 0;
        SAYS(n < 1 ? BITNET_ERR_ARG : n > 8 ? BITNET_ERR_FULL : BITNET_OK,
             bitnet_embed(c, &in, 1, &how, out, 0));
        how.cut = 1;
        SAYS(n < 1 ? BITNET_ERR_ARG : BITNET_OK, bitnet_embed(c, &in, 1, &how, out, 0));
        if (n < 0) WRONG(bitnet_embed(c, &in, n, &how, out, 0));
    }
    in.text = text_of("hello");
    for (i = 0; i < N_EXTREME_SIZES; i++) {
        in.text.size = extreme_sizes[i];
        if (in.text.size > INT32_MAX)
            SAYS(BITNET_ERR_LIMIT, bitnet_embed(c, &in, 1, &how, out, 0));
    }
}

static void extreme_files(const gb_model *g) {
    static const uint64_t places[] = {0, 1, INT32_MAX, (uint64_t)UINT32_MAX + 1, INT64_MAX,
                                      UINT64_MAX - 1, UINT64_MAX};
    static const uint64_t dims[4] = {1, 1, 1, 1}, large[4] = {UINT64_MAX, 2, 2, 2};
    bitnet_ternary t = {BITNET_TENSOR_I2_S, 128, 3, BITNET_I2S_128, {0, 0, 0}};
    uint8_t data[3 * 32 + 32] = {0};
    int8_t weights[3 * 128];
    bitnet_gguf *f = 0;
    bitnet_model *m;
    bitnet_gguf_key key;
    bitnet_gguf_tensor s;
    float x[4];
    int i, j;
    for (i = 0; i < N_EXTREMES; i++) {
        const int32_t a = extremes[i];
        SAYS(a == 1 || a == 3 ? 4 : 0, bitnet_tensor_size(BITNET_TENSOR_F32, a, dims));
        SAYS(0, bitnet_tensor_size(BITNET_TENSOR_F32, a, large));
        SAYS(a < 0 || a > 3, bitnet_tensor_type_name((uint32_t)a) == 0);
        if (a < 3) SAYS(a < 0 ? BITNET_ERR_ARG : BITNET_OK,
                        bitnet_floats_unpack(BITNET_TENSOR_F32, data, a, x, 0));
        DOES(bitnet_floats_unpack((uint32_t)a, data, 1, x, 0));
        for (j = 0; j < N_EXTREMES; j++) {
            const int32_t n = extremes[j];
            SAYS(a >= 0 && n >= 0 && (int64_t)a + n <= 3 ? BITNET_OK : BITNET_ERR_ARG,
                 bitnet_ternary_unpack(&t, data, a, n, weights, 0));
        }
    }
    SAYS(4, bitnet_tensor_size(BITNET_TENSOR_F32, 4, dims));
    SAYS(BITNET_ERR_TRUNCATED, bitnet_model_load_memory(g->data, 1, 0, &m, 0));
    SAYS(BITNET_ERR_TRUNCATED, bitnet_gguf_open_memory(g->data, 1, 0, &f, 0));
    CHECK(!bitnet_gguf_open_memory(g->data, g->size, 0, &f, 0));
    for (i = 0; i < 7; i++) {
        SAYS(i < 2 ? BITNET_OK : BITNET_ERR_NOT_FOUND, bitnet_gguf_get_key(f, places[i], &key));
        CHECK(!bitnet_gguf_find_key(f, "general.architecture", &key));
        if (places[i] <= SIZE_MAX) DOES(bitnet_gguf_text(&key.value, 0, (size_t)places[i]));
        SAYS(i < 2 ? BITNET_OK : BITNET_ERR_NOT_FOUND, bitnet_gguf_get_tensor(f, places[i], &s));
        CHECK(!bitnet_gguf_get_tensor(f, 0, &s));
        for (j = 0; j < N_EXTREME_SIZES; j++)
            SAYS(i < 2 && j < 2 ? BITNET_OK : BITNET_ERR_ARG,
                 bitnet_gguf_read(f, &s, places[i], x, extreme_sizes[j], 0));
    }
    bitnet_gguf_close(f);
}

static void test_extremes(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    float *out;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    c = three_sequences(m);
    CHECK(c);
    out = (float *)gb_malloc((size_t)m->dim * sizeof *out);
    said[0] = 0;
    extreme_params(m);
    extreme_text(m);
    extreme_edits(c);
    extreme_sequences(c);
    extreme_rows(m, c);
    extreme_vectors(c, out);
    extreme_files(&g);
    check_all_called(takes_number);
    free(out);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

extern const test_case faults_tests[];
const test_case faults_tests[] = {
    {"faults/load_refused", test_load_refused},
    {"faults/import_refused", test_import_refused},
    {"faults/tasks_refused", test_tasks_refused},
    {"faults/gguf_refused", test_gguf_refused},
    {"faults/cancel", test_cancel},
    {"faults/threads_refused", test_threads_refused},
    {"faults/busy", test_busy},
#if TEST_THREADS
    {"faults/busy_threads", test_busy_threads},
    {"faults/free_threads", test_free_threads},
    {"faults/busy_lent", test_busy_lent},
    {"faults/parallel", test_parallel},
    {"faults/ledger", test_ledger},
    {"faults/runs", test_runs},
#endif
    {"faults/cpus_allowed", test_cpus_allowed},
    {"faults/cpu_quota", test_cpu_quota},
    {"faults/small_steps", test_small_steps},
    {"faults/fork", test_fork},
    {"faults/fork_callbacks", test_fork_callbacks},
    {"faults/signals", test_signals},
    {"faults/cycles", test_cycles},
    {"faults/null", test_null},
    {"faults/reserved", test_reserved},
    {"faults/numbers", test_call_numbers},
    {"faults/sequence_params", test_sequence_params},
    {"faults/sequence_numbers", test_sequence_numbers},
    {"faults/input_numbers", test_input_numbers},
    {"faults/generate_numbers", test_generate_numbers},
    {"faults/file_numbers", test_file_numbers},
    {"faults/sampler_numbers", test_sampler_numbers},
    {"faults/extremes", test_extremes},
    {0, 0}
};
