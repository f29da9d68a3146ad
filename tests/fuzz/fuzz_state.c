/* Saved sequences, damaged. The input chooses one of a few states and lists changes; the checksum
   is put right, or not. Whatever is loaded has to be saved as the same bytes again; whatever is
   refused changes nothing. */
#include "fuzz.h"

enum { STATE_CTX = 72, STATE_LONG = 70 };

static const gb_model *state_model(void) {
    static gb_model g;
    if (g.data) return &g;
    g.dim = g.ffn = 64;
    g.layers = 1;
    g.heads = 2;
    g.kv_heads = 1;
    g.n_ctx = STATE_CTX;
    g.embed_type = GB_TENSOR_F16;
    gb_make_model(&g);
    return &g;
}

static bitnet_ctx *state_ctx(const bitnet_model *m, int kv) {
    bitnet_ctx_params p;
    bitnet_ctx *c = 0;
    memset(&p, 0, sizeof p);
    p.n_ctx = STATE_CTX;
    p.n_batch = 16;
    p.n_seqs = 2;
    p.n_threads = 1;
    p.no_head_copy = 1;
    p.kv_type = (bitnet_kv_type)kv;
    FUZZ_CHECK(!bitnet_ctx_create(m, &p, &c, 0));
    return c;
}

static bitnet_result state_eval(bitnet_ctx *c, int seq, int n) {
    bitnet_token tokens[STATE_LONG];
    bitnet_input in;
    int i;
    memset(&in, 0, sizeof in);
    for (i = 0; i < n; i++) tokens[i] = (bitnet_token)(i * 7 % 250);
    in.seq = seq;
    in.tokens = tokens;
    in.n_tokens = n;
    in.n_logits = 1;
    return bitnet_eval_many(c, &in, 1, 0);
}

static gb_buf state_save(bitnet_ctx *c, int seq) {
    gb_buf b = {0, 0, 0};
    b.n = b.cap = (size_t)bitnet_seq_state_bytes(c, seq);
    b.p = (uint8_t *)gb_malloc(b.n);
    FUZZ_CHECK(!bitnet_seq_save_memory(c, seq, b.p, b.n, 0));
    return b;
}

/* What a sequence of n tokens is saved as: evaluated once, since that would be most of the time. */
static const gb_buf *state_of(const bitnet_model *m, int kv, int n) {
    static gb_buf saved[3][STATE_LONG + 1];
    gb_buf *b = &saved[kv][n];
    bitnet_ctx *c;
    if (b->p) return b;
    c = state_ctx(m, kv);
    FUZZ_CHECK(!n || !state_eval(c, 0, n));
    *b = state_save(c, 0);
    bitnet_ctx_free(c);
    return b;
}

static void state_is(bitnet_ctx *c, int seq, const uint8_t *p, size_t n) {
    gb_buf now = state_save(c, seq);
    FUZZ_CHECK(now.n == n && !memcmp(now.p, p, n));
    free(now.p);
}

/* Changes a saved state. Returns its length. */
static size_t state_change(fuzz_input *in, uint8_t *p, size_t n) {
    const int seal = fuzz_range(in, 0, 3);
    size_t length = n, at;
    int count = fuzz_range(in, 0, 4);
    for (; count > 0; count--) {
        const int what = fuzz_range(in, 0, 7);
        const uint32_t x = fuzz_uint(in, 4);
        at = what < 5 ? 4 * (size_t)(x % 13) : x % n;      /* the header's numbers, or any place */
        if (what == 7) length = x % (n + 1);
        else if (at + 4 <= n) bitnet__put_u32(p + at, what % 2 ? x : fuzz_uint(in, 1));
    }
    if (seal && length >= 8)
        bitnet__put_u64(p + length - 8, bitnet__hash(BITNET__HASH_START, p, length - 8));
    return length;
}

FUZZ_TARGET(state) {
    fuzz_input in = {data, size};
    const gb_model *g = state_model();
    const int kv = fuzz_range(&in, 0, 2), kv2 = (kv + (fuzz_range(&in, 0, 15) == 0)) % 3;
    static const int lengths[] = {0, 1, 3, STATE_LONG};
    const int n = lengths[fuzz_range(&in, 0, 3)];
    bitnet_model_params mp;
    bitnet_model *m = 0;
    bitnet_ctx *c;
    gb_counter count;
    gb_reader reader;
    bitnet_io io;
    bitnet_error err[2];
    bitnet_result r[2];
    gb_buf before[2];
    const gb_buf *saved, *first;
    size_t length, peak;
    uint8_t *file, *exact;
    memset(&mp, 0, sizeof mp);
    memset(err, 0, sizeof err);
    mp.allocator = gb_counting(&count);
    mp.kernels = &bitnet__kernels_scalar;
    FUZZ_CHECK(!bitnet_model_load_memory(g->data, g->size, &mp, &m, 0));
    saved = state_of(m, kv, n);
    file = (uint8_t *)gb_malloc(saved->n);
    memcpy(file, saved->p, saved->n);
    length = state_change(&in, file, saved->n);
    exact = (uint8_t *)gb_malloc(length);
    memcpy(exact, file, length);
    first = state_of(m, kv2, 65);
    c = state_ctx(m, kv2);
    FUZZ_CHECK(!bitnet_seq_load_memory(c, 0, first->p, first->n, 0) && !state_eval(c, 0, 1) &&
               !bitnet_seq_copy(c, 0, 1, 65, NULL));
    before[0] = state_save(c, 0);
    before[1] = state_save(c, 1);
    io = gb_io(&reader, exact, length);
    count.peak = count.live_bytes;
    peak = count.peak + length + 2 * (size_t)bitnet__page_bytes(m, &c->p) + 3 * GB_FRONT;
    r[0] = bitnet_seq_load_io(c, 0, &io, &err[0]);
    fuzz_check_error(r[0], &err[0]);
    FUZZ_CHECK(!reader.past_end && count.peak <= peak);
    if (r[0]) state_is(c, 0, before[0].p, before[0].n);
    else state_is(c, 0, exact, length);
    state_is(c, 1, before[1].p, before[1].n);
    r[1] = bitnet_seq_load_memory(c, 0, exact, length, &err[1]);
    FUZZ_CHECK_MSG(r[0] == r[1] && !strcmp(err[0].text, err[1].text), "'%s' '%s'", err[0].text,
                   err[1].text);
    if (!r[0] && state_eval(c, 0, 1) == BITNET_OK) FUZZ_CHECK(bitnet_sample(c, -1, 0, NULL) >= 0);
    state_is(c, 1, before[1].p, before[1].n);
    free(exact);
    free(file);
    free(before[0].p);
    free(before[1].p);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    FUZZ_CHECK(count.live == 0);
}
