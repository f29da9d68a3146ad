/* Samplers and generation: parameters, bias, stop strings and prompt come from the input. A draw is
   a token of the vocabulary, the same in each context and when played again; guesses change no
   text. */
#include "fuzz.h"

enum { SAMPLER_CTX = 14, SAMPLER_LOOKUP = 4 };

typedef struct sampler_text { char bytes[2048]; size_t n; bitnet_token tokens[64]; int count; }
sampler_text;

/* One context with the screened head, one without, both ready for guesses. */
static bitnet_ctx *sampler_contexts[2];

static void sampler_start(void) {
    static gb_model g;                 /* memory_load borrows its bytes */
    static const char *const words[] = {"the", " and", "\xF0\x9F\x98", "\x80\xE2", "aaaaaaaa"};
    bitnet_model *m;
    bitnet_ctx_params p;
    int i;
    memset(&g, 0, sizeof g);
    g.dim = g.ffn = 64;
    g.layers = 1;
    g.heads = 2;
    g.kv_heads = 1;
    g.n_ctx = 64;
    g.words = words;
    g.n_words = 5;
    g.embed_type = GB_TENSOR_F16;
    gb_make_model(&g);
    FUZZ_CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &m, 0));
    memset(&p, 0, sizeof p);
    p.n_ctx = SAMPLER_CTX;
    p.n_logits = SAMPLER_LOOKUP + 1;
    p.n_batch = 8;
    p.n_threads = 1;
    for (i = 0; i < 2; i++, p.no_head_copy = 1)
        FUZZ_CHECK(!bitnet_ctx_create(m, &p, &sampler_contexts[i], 0));
}

/* Any bits, or a number that somebody would write. */
static float sampler_float(fuzz_input *in) {
    static const float numbers[] = {0.0f, 1.0f, 0.5f, 0.9f, 1.1f, 2.0f, 1e-30f, -1.0f, 1e30f};
    const int i = fuzz_range(in, 0, 15);
    return i < 9 ? numbers[i] : bitnet__float_from_bits(fuzz_uint(in, 4));
}

static int sampler_take(void *ud, const char *text, size_t n, bitnet_token t) {
    sampler_text *out = (sampler_text *)ud;
    FUZZ_CHECK(n <= sizeof out->bytes - out->n && out->count < 64);
    FUZZ_CHECK(fuzz_is_utf8(text, n));
    memcpy(out->bytes + out->n, text, n);
    out->n += n;
    out->tokens[out->count++] = t;
    return 0;
}

static int sampler_holds(const sampler_text *t, bitnet_text s) {
    size_t i;
    for (i = 0; i + s.size <= t->n; i++)
        if (!memcmp(t->bytes + i, s.data, s.size)) return 1;
    return 0;
}

/* Draws of the same state: twice, in both contexts. */
static void sampler_draws(const bitnet_sampler *s) {
    const int n_vocab = sampler_contexts[0]->m->n_vocab;
    bitnet_sampler own[2];
    bitnet_token t[3];
    int i, k, step;
    own[0] = own[1] = *s;
    for (step = 0; step < 2; step++) {
        for (i = 0; i < 2; i++) {
            bitnet_sampler again = own[i];
            t[i] = bitnet_sample(sampler_contexts[i], -1, &own[i], NULL);
            t[2] = bitnet_sample(sampler_contexts[i], -1, &again, NULL);
            FUZZ_CHECK_MSG(t[i] >= 0 && t[i] < n_vocab, "%d", (int)t[i]);
            FUZZ_CHECK(t[2] == t[i] && again.rng == own[i].rng);
            k = bitnet_ctx_exact_logits(sampler_contexts[i]);
            FUZZ_CHECK(k > 0 && k <= n_vocab);
        }
        FUZZ_CHECK_MSG(t[0] == t[1], "screened %d, full %d", (int)t[0], (int)t[1]);
        FUZZ_CHECK(own[0].rng == own[1].rng);
        for (i = 0; i < 2; i++)
            if (bitnet_eval(sampler_contexts[i], 0, t, 1, 1, 0)) return;
    }
}

/* The same text and tokens with and without guesses and screening. */
static void sampler_generate(bitnet_generate_params *p, const bitnet_sampler *s, int32_t past) {
    static sampler_text text[3];
    bitnet_result r[3];
    bitnet_stop why[3] = {BITNET_STOP_END, BITNET_STOP_END, BITNET_STOP_END};
    bitnet_error err = {BITNET_OK, "", {0}};
    const int32_t lookup = p->lookup;
    int i, k;
    for (i = 0; i < (lookup ? 3 : 1); i++) {
        bitnet_ctx *c = sampler_contexts[i == 2];
        bitnet_sampler own = *s;
        FUZZ_CHECK(!bitnet_seq_rewind(c, 0, past, NULL));
        memset(&text[i], 0, sizeof text[i]);
        p->sampler = &own;
        p->text_ud = &text[i];
        p->text_fn = sampler_take;
        p->lookup = i ? 0 : lookup;
        r[i] = bitnet_generate(c, p, &why[i], &err);
        fuzz_check_error(r[i], &err);
        for (k = 0; k < p->n_stop_strings && r[i] == BITNET_OK; k++)
            FUZZ_CHECK(!sampler_holds(&text[i], p->stop_strings[k]));
        FUZZ_CHECK(bitnet_seq_length(c, 0) <= SAMPLER_CTX);
        if (!r[i] && p->max_tokens > 0) FUZZ_CHECK(text[i].count <= p->max_tokens + 1);
        if (i == 0 && r[0] != BITNET_OK && (lookup < 0 || lookup > SAMPLER_LOOKUP)) continue;
        if (i == 0) continue;
        if (r[0] == BITNET_OK || i == 2) {
            const int other = i == 2 ? 1 : 0;
            FUZZ_CHECK(r[i] == r[other] && why[i] == why[other]);
            FUZZ_CHECK(text[i].n == text[other].n && text[i].count == text[other].count);
            FUZZ_CHECK(!memcmp(text[i].bytes, text[other].bytes, text[i].n));
        }
    }
}

FUZZ_TARGET(sampler) {
    fuzz_input in = {data, size};
    bitnet_token prompt[40];
    bitnet_logit_bias bias[8];
    bitnet_sampler s;
    bitnet_generate_params p;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r[2];
    static char text[64];
    bitnet_text stops[3];
    int i, n, n_vocab;
    if (!sampler_contexts[0]) sampler_start();
    n_vocab = sampler_contexts[0]->m->n_vocab;
    memset(&s, 0, sizeof s);
    s.temperature = sampler_float(&in);
    s.top_p = sampler_float(&in);
    s.min_p = sampler_float(&in);
    s.repeat_penalty = sampler_float(&in);
    s.top_k = fuzz_range(&in, 0, 15) ? fuzz_range(&in, 0, 20) : (int32_t)fuzz_uint(&in, 4);
    s.repeat_window = fuzz_range(&in, 0, 7) ? fuzz_range(&in, -1, 20) : (int32_t)fuzz_uint(&in, 4);
    s.rng = fuzz_uint(&in, 2);
    s.n_bias = fuzz_range(&in, 0, 8);
    s.bias = bias;
    for (i = 0; i < s.n_bias; i++) {
        bias[i].token = fuzz_range(&in, 0, 7) ? fuzz_range(&in, 0, 270)
                                              : (int32_t)fuzz_uint(&in, 4);
        bias[i].bias = sampler_float(&in);
    }
    /* a prompt, most often of tokens that are */
    n = fuzz_range(&in, 0, 63);
    n = n < 60 ? n % 7 : n % 4 * 5;
    for (i = 0; i < n; i++)
        prompt[i] = fuzz_uint(&in, 1) < 250 ? fuzz_range(&in, 0, n_vocab - 1)
                                            : (int32_t)fuzz_uint(&in, 4);
    for (i = 0; i < 2; i++) {
        FUZZ_CHECK(!bitnet_seq_rewind(sampler_contexts[i], 0, 0, NULL));
        FUZZ_CHECK(bitnet_sample(sampler_contexts[i], -1, &s, NULL) < 0 || n == 0);
        r[i] = n ? bitnet_eval(sampler_contexts[i], 0, prompt, n < 8 ? n : 8, 1, &err) : BITNET_OK;
        fuzz_check_error(r[i], &err);
    }
    FUZZ_CHECK(r[0] == r[1]);
    if (r[0] == BITNET_OK && n) sampler_draws(&s);
    memset(&p, 0, sizeof p);
    p.max_tokens = fuzz_range(&in, -1, 12);
    p.ignore_end = fuzz_range(&in, 0, 1);
    p.lookup = fuzz_range(&in, 0, 31) ? fuzz_range(&in, 0, SAMPLER_LOOKUP)
                                      : (int32_t)fuzz_uint(&in, 4);
    p.n_stop_strings = fuzz_range(&in, 0, 3);
    p.stop_strings = stops;
    for (i = 0; i < 3; i++) {
        size_t len = (size_t)fuzz_range(&in, 0, 7);
        stops[i].data = (const char *)fuzz_bytes(&in, &len);
        stops[i].size = len;
    }
    if (fuzz_range(&in, 0, 1)) {
        p.tokens = prompt;
        p.n_tokens = n;
    } else {
        size_t len = sizeof text - 1;
        const uint8_t *q = fuzz_bytes(&in, &len);
        if (len) memcpy(text, q, len);
        p.text.data = text;
        p.text.size = len;
    }
    sampler_generate(&p, &s, n < 8 && r[0] == BITNET_OK ? n : 0);
}
