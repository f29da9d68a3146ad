/* bitnet_web.c - bitnet.h as worker.js calls it: one model, one context, functions of numbers

   This becomes a WASM module (./build.sh web) whose exports are the EXPORTs below. Texts and tokens
   go through memory: the caller mallocs what it passes in; results are in `tokens` and `text` until
   the next call that fills them. Functions that can fail return a negative bitnet_result, and
   bw_error returns the message. */
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#define BITNET_NO_STDIO
#include "../bitnet.h"
#include <emscripten.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT EMSCRIPTEN_KEEPALIVE

static bitnet_error err;
static bitnet_model *model;
static bitnet_model_info info;
static bitnet_ctx *ctx;

static bitnet_token *tokens;           /* of the last text */
static int32_t tokens_cap;
static char *bytes;                    /* of the last bw_detokenize */
static int32_t bytes_cap;
static const char *text;               /* of the last bw_detokenize or bw_next */
static int32_t text_length;

/* ---- errors ---- */

static int fail(int code, const char *format, ...) {
    va_list args;
    err.code = (bitnet_result)code;
    va_start(args, format);
    BITNET_VSNPRINTF(err.text, (int)sizeof err.text, format, args);
    va_end(args);
    bitnet_clean_text(err.text, strlen(err.text), err.text, sizeof err.text);
    return code;
}

static int fail_result(int code) {
    return fail(code, "%s", bitnet_result_text((bitnet_result)code));
}

EXPORT const char *bw_error(void) { return err.text; }

/* "ERR_FORMAT" and the like. */
EXPORT const char *bw_error_name(int code) {
    switch (code) {
#define NAME(name, value, words) case value: return &#name[sizeof "BITNET_" - 1];
        BITNET_RESULTS(NAME)
#undef NAME
    }
    return "ERR_INTERNAL";
}

/* Makes room for n elements; the old ones are lost. */
static int reserve(void **p, int32_t *cap, int32_t n, size_t size) {
    if (n <= *cap) return 0;
    free(*p);
    *p = malloc((size_t)n * size);
    *cap = *p ? n : 0;
    if (*p) return 0;
    return fail(BITNET_ERR_MEMORY, "no memory for %llu bytes", (unsigned long long)n * size);
}

/* ---- the file ----
   It grows at the end of memory. Nothing else is allocated while it arrives, so nothing is in its
   way, and a file of unknown size is never moved. */

static uint8_t *file;
static size_t file_size;

/* Makes the file n bytes longer, or a few more, and returns where they start. 0: no memory. */
EXPORT uint8_t *bw_alloc(size_t n) {
    uint8_t *start;
    if (!file) {
        uint8_t *p = (uint8_t *)sbrk(0);
        size_t pad = (0 - (uintptr_t)p) & 63;
        if (sbrk((intptr_t)pad) != p) return 0;
        file = p + pad;
    }
    start = file + file_size;
    n = (n + 63) / 64 * 64;            /* sbrk rounds up in the same way, silently */
    while (n > 0) {                    /* sbrk takes a signed number */
        size_t part = n < 1u << 30 ? n : 1u << 30;
        if (sbrk((intptr_t)part) != file + file_size) return 0;
        file_size += part;
        n -= part;
    }
    return start;
}

/* ---- SHA-256 (FIPS 180-4) ---- */

static struct { uint32_t h[8]; uint64_t n; uint8_t block[64]; } sha;
static uint8_t sha_digest[32];

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(const uint8_t *p) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], v[8], t1, t2;
    int i;
    for (i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    memcpy(v, sha.h, sizeof v);
    for (i = 0; i < 64; i++) {         /* v is a, b .. h */
        t1 = v[7] + (rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25)) +
             ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        t2 = (rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22)) +
             ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (i = 0; i < 8; i++) sha.h[i] += v[i];
}

EXPORT void bw_sha256_begin(void) {
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha.h, h, sizeof h);
    sha.n = 0;
}

EXPORT void bw_sha256_add(const uint8_t *p, size_t n) {
    for (; n > 0 && sha.n % 64; n--) {
        sha.block[sha.n++ % 64] = *p++;
        if (sha.n % 64 == 0) sha256_block(sha.block);
    }
    for (; n >= 64; n -= 64, p += 64, sha.n += 64) sha256_block(p);
    while (n-- > 0) sha.block[sha.n++ % 64] = *p++;
}

/* 32 bytes. */
EXPORT const uint8_t *bw_sha256_end(void) {
    uint64_t bits = sha.n * 8;
    uint8_t length[8], one = 0x80, zero = 0;
    int i;
    for (i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    bw_sha256_add(&one, 1);
    while (sha.n % 64 != 56) bw_sha256_add(&zero, 1);
    bw_sha256_add(length, 8);
    for (i = 0; i < 32; i++) sha_digest[i] = (uint8_t)(sha.h[i / 4] >> (24 - 8 * (i % 4)));
    return sha_digest;
}

/* ---- model and context ---- */

/* Loads the first n bytes of the file, which the model borrows. */
EXPORT int bw_load(size_t n) {
    int r = bitnet_model_load_memory(file, n, 0, &model, &err);
    if (r == BITNET_OK) bitnet_model_get_info(model, &info);
    return r;
}

/* n_ctx 0: the library's default. */
EXPORT int bw_ctx(int32_t n_ctx, int32_t n_batch, int32_t n_threads) {
    bitnet_ctx_params cp;
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = n_ctx;
    cp.n_batch = n_batch;
    cp.n_threads = n_threads;
    return bitnet_ctx_create(model, &cp, &ctx, &err);
}

EXPORT const char *bw_arch(void) { return info.arch; }
EXPORT const char *bw_kernels(void) { return info.kernels; }
EXPORT const char *bw_version(void) { return bitnet_version(); }

/* The numbers of worker.js's NUMBERS, in its order. */
EXPORT double bw_number(int i) {
    switch (i) {
        case 0: return info.n_layers;
        case 1: return info.n_vocab;
        case 2: return bitnet_ctx_capacity(ctx);
        case 3: return info.ctx_train;
        case 4: return (double)info.n_params;
        case 5: return (double)info.file_bytes;
        case 6: return bitnet_ctx_threads(ctx);
    }
    return 0;
}

/* ---- text and tokens: these return the number of tokens, or of bytes ---- */

EXPORT const bitnet_token *bw_tokens(void) { return tokens; }
EXPORT const char *bw_text(void) { return text; }
EXPORT int32_t bw_text_length(void) { return text_length; }

/* Called with and without room for all tokens. */
static int tokenize_into(const char *s, size_t n, int flags) {
    return bitnet_tokenize(model, s, n, flags, tokens, (size_t)tokens_cap);
}

/* flags are those of bitnet_tokenize, or 8: BOS if the file asks for it. */
EXPORT int bw_tokenize(const char *s, size_t n, int flags) {
    int count;
    if (flags & 8) flags = info.add_bos ? BITNET_ADD_BOS : 0;
    count = tokenize_into(s, n, flags);
    if (count > tokens_cap) {
        if (reserve((void **)&tokens, &tokens_cap, count, sizeof *tokens)) return err.code;
        count = tokenize_into(s, n, flags);
    }
    return count < 0 ? fail_result(count) : count;
}

/* How many tokens the context holds, with the pending one, and whether that ends a reply. */
EXPORT int bw_held(void) { return bitnet_ctx_length(ctx) + (bitnet_ctx_pending(ctx) >= 0); }
EXPORT int bw_held_ends(void) {
    const bitnet_token last = bitnet_ctx_pending(ctx);
    return last >= 0 && bitnet_token_is_end(model, last);
}

/* The first `keep` tokens that the context holds, for messages that it knows; an end of turn, if
   `close`; then n messages, which are pairs of a role and a text, each with a NUL behind it; and the
   start of a reply, if `open`. */
EXPORT int bw_chat_tokenize(const char *s, int n, int keep, int close, int open) {
    bitnet_message *m = (bitnet_message *)malloc((size_t)n * sizeof *m);
    const int flags = (open ? BITNET_OPEN_REPLY : 0) | (keep ? 0 : BITNET_ADD_BOS);
    const int before = keep + !!close;
    const int32_t length = bitnet_ctx_length(ctx);
    int count, i;
    if (!m) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++) {
        m[i].role = s;
        m[i].content = s += strlen(s) + 1;
        s += strlen(s) + 1;
    }
    count = bitnet_chat_tokenize(model, m, n, flags, 0, 0);
    if (count >= 0 && reserve((void **)&tokens, &tokens_cap, before + count, sizeof *tokens))
        count = BITNET_ERR_MEMORY;
    if (count >= 0)
        count = bitnet_chat_tokenize(model, m, n, flags, tokens + before, (size_t)count);
    free(m);
    if (count == BITNET_ERR_UNSUPPORTED)
        return fail(count, "no chat: the template of this file, architecture '%s', is not known",
                    info.arch);
    if (count < 0) return fail_result(count);
    for (i = 0; i < keep; i++)
        tokens[i] = i < length ? bitnet_ctx_tokens(ctx)[i] : bitnet_ctx_pending(ctx);
    if (close) tokens[keep] = info.eot;
    return before + count;
}

EXPORT int bw_detokenize(const bitnet_token *t, int n) {
    text_length = bitnet_detokenize(model, t, n, 0, 0);
    if (text_length < 0)
        return fail(text_length, "a token is not in the vocabulary of %d", (int)info.n_vocab);
    if (reserve((void **)&bytes, &bytes_cap, text_length, 1)) return err.code;
    text = bytes;
    return bitnet_detokenize(model, t, n, bytes, (size_t)bytes_cap);
}

/* ---- generation ----
   bw_begin, then bw_prefill until one token is left, then bw_next until bw_reason has one: each
   returns soon enough for the worker to look for messages. */

static bitnet_sampler sampler;
static bitnet_gen *gen;                /* 0: none */
static bitnet_generate_params params;  /* of the next one */
static bitnet_token *prompt;
static int32_t n_prompt, n_done;
static char *stop_text;                /* the stop strings, each with a NUL behind it */
static const char **stops;
static int reason;                     /* a bitnet_stop; -1: it can go on */

static void end_gen(void) {
    bitnet_gen_end(gen);
    gen = 0;
}

/* The sampler of the next bw_begin. */
EXPORT void bw_sampler(float temperature, int32_t top_k, float top_p, float min_p,
                       float repeat_penalty, double seed) {
    memset(&sampler, 0, sizeof sampler);
    sampler.temperature = temperature;
    sampler.top_k = top_k;
    sampler.top_p = top_p;
    sampler.min_p = min_p;
    sampler.repeat_penalty = repeat_penalty;
    sampler.rng = (uint64_t)seed;
}

/* Takes over n strings, none of them empty, each with a NUL behind it. */
static int set_stops(char *strings, int32_t n) {
    int32_t i;
    free(stop_text);
    free(stops);
    stop_text = strings;
    stops = (const char **)malloc(((size_t)n + 1) * sizeof *stops);
    if (!stops) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++, strings += strlen(strings) + 1) stops[i] = strings;
    params.stop_strings = stops;
    params.n_stop_strings = n;
    return BITNET_OK;
}

/* Takes over the n tokens of the last text as the prompt, and the stop strings. The tokens that the
   context and the prompt have in common at the start are kept in the context, all others are
   forgotten. Returns how many are kept. */
EXPORT int bw_begin(int32_t n, int32_t max_tokens, char *strings, int32_t n_strings) {
    const bitnet_token *known = bitnet_ctx_tokens(ctx);
    end_gen();
    free(prompt);
    prompt = tokens;
    tokens = 0;
    tokens_cap = n_done = 0;
    n_prompt = n;
    reason = -1;
    memset(&params, 0, sizeof params);
    params.max_tokens = max_tokens;
    params.sampler = &sampler;
    if (set_stops(strings, n_strings)) return err.code;
    if (n < 1) return fail(BITNET_ERR_ARG, "the prompt is empty");
    if (n > bitnet_ctx_capacity(ctx))
        return fail(BITNET_ERR_FULL, "the prompt has %d tokens, the context %d", (int)n,
                    (int)bitnet_ctx_capacity(ctx));
    while (n_done < n - 1 && n_done < bitnet_ctx_length(ctx) && prompt[n_done] == known[n_done])
        n_done++;                      /* the last one is always evaluated, for its logits */
    bitnet_ctx_rewind(ctx, n_done);
    return n_done;
}

/* Evaluates up to n tokens of the prompt, but not its last; returns how many are left. */
EXPORT int bw_prefill(int32_t n) {
    if (n > n_prompt - 1 - n_done) n = n_prompt - 1 - n_done;
    if (n > 0 && bitnet_eval(ctx, prompt + n_done, n, 0, &err)) return err.code;
    n_done += n;
    return n_prompt - n_done;
}

/* The next token. The text that is now certain is in `text`. */
EXPORT int bw_next(void) {
    bitnet_piece piece;
    text_length = 0;
    if (!gen) {
        params.prompt = prompt + n_done;
        params.n_prompt = n_prompt - n_done;
        if (bitnet_gen_begin(ctx, &params, &gen, &err)) return err.code;
    }
    if (bitnet_gen_next(&gen, 1, &err)) return err.code;
    bitnet_gen_piece(gen, &piece);
    text = piece.text;
    text_length = (int32_t)piece.n_text;
    if (piece.ended) reason = piece.why;
    return piece.tokens[0];
}

/* What the last token was drawn from, a float for each of the vocabulary; for tests. */
EXPORT const float *bw_logits(void) { return bitnet_logits(ctx, -1); }

/* The bitnet_stop with which the text ended; -1: it can go on. */
EXPORT int bw_reason(void) { return reason; }
