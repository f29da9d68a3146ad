/* bitnet_web.c - bitnet.h as worker.js calls it: one model, one context, functions of numbers

   This becomes a WASM module (./build.sh web) whose exports are the EXPORTs below. Texts and tokens
   go through memory: the caller mallocs what it passes in; results are in `tokens` and `text` until
   the next call that fills them. Texts have a size and no NUL at the end; several of them stand one
   behind the other, with a list of their sizes. A session is a sequence of the context, by its
   number. Functions that can fail return a negative bitnet_result, and bw_error returns the message. */

/* What follows is compiled for size. The kernels, which bitnet_kernels_wasm.h takes out of it, are not. */
#define BITNET_SMALL \
    _Pragma("clang attribute bitnet_small.push(__attribute__((minsize)), apply_to = function)")
BITNET_SMALL
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#define BITNET_NO_STDIO
#if defined(BITNET_NO_SIMD128) && defined(__wasm_relaxed_simd__)
  #define BITNET__NO_SCALAR            /* relaxed SIMD is right, or bw_load refuses */
#endif
#include <string.h>
#include <stdlib.h>
static void bitnet_web_sort(void *list, size_t n, size_t size,
                            int (*compare)(const void *, const void *));
#define qsort bitnet_web_sort
#include "../bitnet.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../bitnet_grammar.h"
#include "bitnet_format.h"
#include <emscripten.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT EMSCRIPTEN_KEEPALIVE

/* ---- in place of libc's qsort, whose five functions are larger: a heap ---- */

static void swap(char *a, char *b, size_t size) {
    for (; size > 0; size--) {
        const char c = *a;
        *a++ = *b;
        *b++ = c;
    }
}

static void bitnet_web_sort(void *list, size_t n, size_t size,
                            int (*compare)(const void *, const void *)) {
    char *s = (char *)list;
    size_t i, at, child, root = n / 2;
    for (i = n; i > 1;) {              /* the heap's elements from root on are in order */
        if (root > 0) root--;
        else swap(s, s + --i * size, size);
        for (at = root; (child = 2 * at + 1) < i; at = child) {
            child += child + 1 < i && compare(s + child * size, s + (child + 1) * size) < 0;
            if (compare(s + at * size, s + child * size) >= 0) break;
            swap(s + at * size, s + child * size, size);
        }
    }
}

/* sbrk of newer versions can print what it does, though nobody asks it to. libc's brings files along. */
int printf(const char *format, ...) { return (void)format, 0; }

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

/* The next of several texts. */
static bitnet_text take_text(const char **s, const int32_t **sizes) {
    bitnet_text t;
    t.data = *s;
    t.size = (size_t)*(*sizes)++;
    *s += t.size;
    return t;
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

static bitnet__range want;             /* what loading wants next */

static bitnet_result unread(void *ud, uint64_t at, void *dst, size_t n) {
    (void)ud, (void)at, (void)dst, (void)n;
    return BITNET_ERR_IO;
}

static int loaded(int r) {
    if (r == BITNET_OK && want.n > 0) return r;
    bitnet__leave_load(model);
    if (r == BITNET_OK) bitnet_model_get_info(model, &info);
    else bitnet_model_free(model);
    return r;
}

/* The bytes that loading wanted are there: goes on until it wants others, which lie further on in the
   file, or until the model is loaded. Then bw_want(0) is 0. */
EXPORT int bw_load_on(void) { return loaded(bitnet__load_next(model, &want, &err)); }

/* Begins to load a file of so many bytes; -1: unknown, until bw_load_end. */
EXPORT int bw_load(double size) {
    bitnet_io io;
    int r;
    if (!bitnet_kernels_usable(bitnet_kernels_get(0)))
        return fail(BITNET_ERR_UNSUPPORTED, "this engine's relaxed SIMD has other results");
    memset(&io, 0, sizeof io);
    io.size = size < 0.0 ? (uint64_t)1 << 34 : (uint64_t)size;
    io.read_fn = unread;
    r = bitnet__begin_load(bitnet__source_io(&io, &err), 0, 1, &model, &err);
    if (model && r) loaded(r);
    return r ? r : bw_load_on();
}

/* The file, whose size was unknown, ends behind n of the wanted bytes. */
EXPORT int bw_load_end(size_t n) {
    bitnet__loading *d = model->loading;
    bitnet__source *src = &model->gguf.src;
    src->size = want.at + n;
    if (!d) src->have = src->size;
    else if (d->i < model->gguf.n_tensors)
        return loaded(fail(BITNET_ERR_TRUNCATED, "the file ends at %llu, inside a tensor's data",
                           (unsigned long long)src->size));
    else d->asked = n;
    return bw_load_on();
}

/* How many bytes are wanted, from which offset of the file on, and where in memory. */
EXPORT double bw_want(int i) {
    return i == 0 ? (double)want.n : i == 1 ? (double)want.at : (double)(uintptr_t)want.dst;
}

/* What a session writes; all of it stays as it is until the next bw_begin. */
typedef struct session {
    bitnet_sampler sampler;
    bitnet_generate_params params;
    bitnet_gen *gen;                   /* 0: none */
    bitnet_piece piece;                /* of the last pass */
    bitnet_token *prompt;
    int32_t n_prompt, n_done;          /* tokens of the prompt, and how many are evaluated */
    int reason;                        /* a bitnet_stop; -1: it can go on */
    bitnet_logit_bias *bias;
    char *grammar_text;                /* of `grammar`; the next text often has the same */
    size_t grammar_size, n_around;
    int is_schema;
    bitnet_grammar *grammar;
    bitnet_matcher *matcher;
    int uses_matcher;
    uint32_t *allowed;                 /* tokens that the caller allows next; 0: all */
} session;
static session *sessions;
static int32_t n_sessions;

enum { EMBED_CTX = 2048, EMBED_SEQS = 16, KV_PAGE = 64, MOST_LOOKUP = 8 };

/* A model without a head reads several texts in a pass, each in a sequence of its own. Together they
   take no more of the KV cache than the longest text does alone, or a page each. */
static void for_embeddings(bitnet_ctx_params *cp) {
    if (cp->n_ctx == 0 && info.ctx_train > 0 && info.ctx_train < EMBED_CTX)
        cp->n_ctx = info.ctx_train;
    if (cp->n_ctx == 0) cp->n_ctx = EMBED_CTX;
    if (cp->n_seqs < EMBED_SEQS) cp->n_seqs = EMBED_SEQS;
    cp->n_kv = cp->n_seqs * KV_PAGE;
    if (cp->n_kv < cp->n_ctx) cp->n_kv = cp->n_ctx;
}

/* n_ctx 0: the library's default, or EMBED_CTX in place of its 4096. kv_type: a bitnet_kv_type. */
EXPORT int bw_ctx(int32_t n_ctx, int32_t n_batch, int32_t n_threads, int32_t n_seqs,
                  int32_t kv_type) {
    bitnet_ctx_params cp;
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = n_ctx;
    cp.n_batch = n_batch;
    cp.n_threads = n_threads;
    cp.kv_type = (bitnet_kv_type)kv_type;
    cp.n_seqs = n_sessions = n_seqs;
    cp.n_logits = n_seqs + MOST_LOOKUP;          /* one of them may draft */
    if (!info.has_head) {
        cp.n_logits = 0;
        for_embeddings(&cp);
    }
    sessions = (session *)calloc((size_t)n_seqs, sizeof *sessions);
    if (!sessions) return fail_result(BITNET_ERR_MEMORY);
    return bitnet_ctx_create(model, &cp, &ctx, &err);
}

EXPORT const char *bw_arch(void) { return info.arch; }
EXPORT const char *bw_kernels(void) { return info.kernels_name; }

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
        case 7: return n_sessions;
        case 8: return info.dim;
        case 9: return info.has_head;
        case 10: return info.pooling;
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

/* How many tokens a session holds, with the pending one, and token i of them, or -1. */
EXPORT int bw_held(int q) {
    return bitnet_seq_length(ctx, q) + (bitnet_seq_pending(ctx, q) >= 0);
}
static bitnet_token held_token(int q, int i) {
    if (i < 0 || i >= bw_held(q)) return -1;
    return i < bitnet_seq_length(ctx, q) ? bitnet_seq_tokens(ctx, q)[i]
                                         : bitnet_seq_pending(ctx, q);
}

/* These n tokens, or without a list all that a session holds, become those of the next bw_begin. */
EXPORT int bw_take(int q, const bitnet_token *list, int n) {
    int i;
    if (!list) n = bw_held(q);
    if (reserve((void **)&tokens, &tokens_cap, n, sizeof *tokens)) return err.code;
    for (i = 0; i < n; i++) tokens[i] = list ? list[i] : held_token(q, i);
    return n;
}

/* Does token i of a session end a reply? */
EXPORT int bw_ends(int q, int i) { return bitnet_token_is_end(model, held_token(q, i)); }

/* The tokens that the chat template writes behind a reply: all of them, or with `ended` those
   behind its end token. */
EXPORT int bw_reply_rest(int ended) {
    const int flags = ended ? BITNET_CHAT_ENDED_REPLY : BITNET_CHAT_CUT_REPLY;
    const int n = bitnet_chat_tokenize(model, 0, 0, 0, flags, 0, 0, 0);
    return n < 0 ? 0 : n;
}

/* What the template is like, as the bits of template() in chat.js. */
EXPORT int bw_template(void) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    if (!t) return 0;
    return 1 | (t->think.data || t->no_think.data || t->drop_thinking) << 1 |
           (t->think.data && !t->no_think.data) << 2 | (t->call_form == BITNET_CALL_XML) << 3 |
           (t->efforts != 0) << 4 | t->drop_thinking << 5;
}

/* The name of the model's chat template, 0 if none is known; then, from i = 1 to the first 0, the names
   of its efforts, the default first. */
EXPORT const char *bw_chat_name(int i) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    return !t ? 0 : i == 0 ? t->name : t->efforts ? t->efforts[i - 1].name : 0;
}

/* Can the model be told not to think? */
EXPORT int bw_can_be_quiet(void) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    return t && t->no_think.data;
}

/* Is this text a token? */
EXPORT int bw_is_token(const char *s, size_t n) { return bitnet_token_find(model, s, n) >= 0; }

static bitnet_chat_params chat;        /* of the next chats */
static char chat_effort[16];
static char *chat_tools;

/* What the next chats ask of the template. thinking: 1 it is wanted, -1 it is not, 0 as the template
   does. The n_tools bytes of tools, as in bitnet_chat_params, are taken over. Returns whether a
   reply begins inside of thinking. */
EXPORT int bw_chat_options(const char *effort, size_t n, int earlier, int thinking, char *tools,
                           size_t n_tools) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    bitnet_reply reply;
    free(chat_tools);
    chat_tools = tools;
    memset(&chat, 0, sizeof chat);
    chat.earlier_thinking = earlier;
    if (n_tools) {
        chat.tools.data = tools;
        chat.tools.size = n_tools;
    }
    if (thinking < 0) chat.thinking = BITNET_THINK_OFF;
    else if (thinking && t && t->think.data && t->thinking == BITNET_THINK_OFF)
        chat.thinking = BITNET_THINK_ON;
    if (n > 0 && n < sizeof chat_effort && t && t->efforts) {
        memcpy(chat_effort, effort, n);
        chat.effort.data = chat_effort;
        chat.effort.size = n;
    }
    bitnet_reply_begin(&reply, model, &chat);
    return reply.part == BITNET_REPLY_THINKING;
}

/* The first `keep` tokens that a session holds, for messages that it knows; what is missing behind
   the reply there, if `close`; then n messages, the texts of which are pairs of a role and a
   content; and the start of a reply, if `open`. */
EXPORT int bw_chat_tokenize(int q, const char *s, const int32_t *sizes, int n, int keep, int close,
                            int open) {
    bitnet_message *m = (bitnet_message *)calloc((size_t)n + 1, sizeof *m);
    const int in_front = !keep ? BITNET_CHAT_BEGIN : !close ? 0
                         : bw_ends(q, keep - 1) ? BITNET_CHAT_ENDED_REPLY : BITNET_CHAT_CUT_REPLY;
    const int flags = (open ? BITNET_CHAT_OPEN_REPLY : 0) | in_front;
    int count, i;
    if (!m) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++) {
        m[i].role = take_text(&s, &sizes);
        m[i].content = take_text(&s, &sizes);
    }
    count = bitnet_chat_tokenize(model, &chat, m, n, flags, 0, 0, &err);
    if (count >= 0 && reserve((void **)&tokens, &tokens_cap, keep + count, sizeof *tokens))
        count = BITNET_ERR_MEMORY;
    if (count >= 0)
        count = bitnet_chat_tokenize(model, &chat, m, n, flags, tokens + keep, (size_t)count, &err);
    free(m);
    if (count < 0) return count;
    for (i = 0; i < keep; i++) tokens[i] = held_token(q, i);
    return keep + count;
}

/* Where a reply of such a chat is that has begun with this text: the part; 8: something has come, 16:
   what may be a tag is held back. */
EXPORT int bw_reply_state(const char *s, size_t n) {
    bitnet_reply reply;
    bitnet_reply_part part;
    const char *part_text;
    size_t size;
    bitnet_reply_begin(&reply, model, &chat);
    while (bitnet_reply_next(&reply, &s, &n, &part, &part_text, &size)) {}
    return (int)reply.part | (reply.begun != 0) << 3 | (reply.n_held != 0) << 4;
}

/* The tokens of a text behind those of the last bw_chat_tokenize, which were so many: a reply that
   is to go on. */
EXPORT int bw_append(int before, const char *s, size_t n) {
    const int count = bitnet_tokenize(model, s, n, 0, 0, 0);
    bitnet_token *more;
    if (count < 0) return fail_result(count);
    more = (bitnet_token *)realloc(tokens, ((size_t)before + (size_t)count + 1) * sizeof *tokens);
    if (!more) return fail_result(BITNET_ERR_MEMORY);
    tokens = more;
    tokens_cap = before + count;
    bitnet_tokenize(model, s, n, 0, tokens + before, (size_t)count);
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

/* A token's own bytes, which may be a part of a character; a special token's name. */
EXPORT int bw_token_bytes(int t) {
    size_t n;
    text = bitnet_token_text(model, t, &n);
    text_length = (int32_t)n;
    return text ? text_length : fail_result(BITNET_ERR_ARG);
}

/* ---- how a session draws its tokens ---- */

/* Sets all of a sampler; what comes below adds to it. */
EXPORT void bw_sampler(int q, float temperature, int32_t top_k, float top_p, float min_p,
                       float repeat_penalty, int32_t repeat_window, float frequency_penalty,
                       float presence_penalty, uint32_t seed_low, uint32_t seed_high) {
    bitnet_sampler *s = &sessions[q].sampler;
    memset(s, 0, sizeof *s);
    s->temperature = temperature;
    s->top_k = top_k;
    s->top_p = top_p;
    s->min_p = min_p;
    s->repeat_penalty = repeat_penalty;
    s->repeat_window = repeat_window;
    s->frequency_penalty = frequency_penalty;
    s->presence_penalty = presence_penalty;
    s->rng = (uint64_t)seed_high << 32 | seed_low;
}

/* Takes over n pairs of a token and a float. Behind them is room for `ends` more: tokens that end a
   text, which are forbidden. */
EXPORT void bw_bias(int q, bitnet_logit_bias *bias, int32_t n, int32_t ends) {
    const int32_t most = n + ends;
    bitnet_token t;
    for (t = 0; t < info.n_vocab && n < most; t++)
        if (bitnet_token_is_end(model, t)) {
            bias[n].token = t;
            bias[n++].bias = -INFINITY;
        }
    free(sessions[q].bias);
    sessions[q].bias = bias;
    sessions[q].sampler.bias = bias;
    sessions[q].sampler.n_bias = n;
}

static void mask(void *ud, uint32_t *allowed) {
    const session *s = (const session *)ud;
    const int32_t words = (info.n_vocab + 31) / 32;
    int32_t i;
    if (s->uses_matcher) bitnet_matcher_mask(s->matcher, allowed);
    else memset(allowed, 0xff, (size_t)words * sizeof *allowed);
    for (i = 0; s->allowed && i < words; i++) allowed[i] &= s->allowed[i];
}

static void chosen(void *ud, bitnet_token t) {
    const session *s = (const session *)ud;
    if (s->uses_matcher) bitnet_matcher_chosen(s->matcher, t);
}

static void use_mask(session *s) {
    s->sampler.mask_fn = mask;
    s->sampler.chosen_fn = chosen;
    s->sampler.mask_ud = s->sampler.chosen_ud = s;
}

/* The next token is one of these n, by their numbers; those that are none are passed over. -1: any
   token. Before each token that a caller's mask allows, and once before bw_open. */
EXPORT int bw_allow(int q, const bitnet_token *list, int32_t n) {
    session *s = &sessions[q];
    const size_t bytes = (size_t)((info.n_vocab + 31) / 32) * sizeof *s->allowed;
    int32_t i;
    use_mask(s);
    if (!s->allowed && !(s->allowed = (uint32_t *)malloc(bytes)))
        return fail_result(BITNET_ERR_MEMORY);
    memset(s->allowed, n < 0 ? 0xff : 0, bytes);
    for (i = 0; i < n; i++)
        if (list[i] >= 0 && list[i] < info.n_vocab)
            s->allowed[list[i] / 32] |= 1u << list[i] % 32;
    return BITNET_OK;
}

/* The first grammar has the table of the vocabulary for all others. */
static int compile(const session *s, bitnet_grammar **out) {
    static bitnet_grammar *first;
    bitnet_grammar_params params;
    int r = BITNET_OK;
    memset(&params, 0, sizeof params);
    if (!first) r = bitnet_grammar_gbnf(model, "root ::= [a]*", 13, 0, &first, &err);
    params.like = first;
    if (s->n_around) {
        params.around.data = s->grammar_text + (s->grammar_size - s->n_around);
        params.around.size = s->n_around;
    }
    if (r) return r;
    return (s->is_schema ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)(
        model, s->grammar_text, s->grammar_size - s->n_around, &params, out, &err);
}

static void free_grammar(session *s) {
    bitnet_matcher_free(s->matcher);
    bitnet_grammar_free(s->grammar);
    free(s->grammar_text);
    s->matcher = 0;
    s->grammar = 0;
    s->grammar_text = 0;
}

/* The rule of thinking up to its end, for rules around others. */
EXPORT const char *bw_thought(void) { return BITNET_GRAMMAR_THOUGHT; }

/* The text keeps to a grammar, or a JSON schema, of n bytes, which is taken over. The last n_around of
   them are rules around it, as in bitnet_grammar_params. What was compiled for the text before is
   used again if it is the same. */
EXPORT int bw_grammar(int q, char *grammar, size_t n, int is_schema, size_t n_around) {
    session *s = &sessions[q];
    int r = BITNET_OK;
    if (s->matcher && s->is_schema == is_schema && s->n_around == n_around &&
        s->grammar_size == n && !memcmp(s->grammar_text, grammar, n)) {
        bitnet_matcher_reset(s->matcher);
        free(grammar);
    } else {
        free_grammar(s);
        s->grammar_text = grammar;
        s->grammar_size = n;
        s->is_schema = is_schema;
        s->n_around = n_around;
        r = compile(s, &s->grammar);
        if (r == BITNET_OK) r = bitnet_matcher_create(s->grammar, 0, &s->matcher, &err);
        if (r) free_grammar(s);
    }
    s->uses_matcher = r == BITNET_OK;
    if (r == BITNET_OK) use_mask(s);
    return r;
}

/* ---- embeddings ---- */

static float *vectors;                 /* of the last bw_embed, one behind the other */
static int32_t vectors_cap;

EXPORT const float *bw_vectors(void) { return vectors; }

/* How many tokens bitnet_embed reads of a text. */
static int32_t tokens_read(const char *s, size_t n) {
    const int flags = (info.add_bos ? BITNET_ADD_BOS : 0) | (info.add_eos ? BITNET_ADD_EOS : 0);
    const int32_t count = bitnet_tokenize(model, s, n, flags, 0, 0), most = bitnet_ctx_capacity(ctx);
    return count < most ? count : most;
}

/* The vectors of n texts. Returns how many tokens were read. */
EXPORT int bw_embed(const char *s, const int32_t *sizes, int32_t n, int pooling, int raw, int cut) {
    bitnet_embed_input *in = (bitnet_embed_input *)calloc((size_t)n + 1, sizeof *in);
    bitnet_embed_params params;
    int32_t i, count = 0;
    int r;
    if (!in) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++) in[i].text = take_text(&s, &sizes);
    memset(&params, 0, sizeof params);
    params.pooling = (bitnet_pooling)pooling;
    params.raw = raw;
    params.cut = cut;
    r = reserve((void **)&vectors, &vectors_cap, n * info.dim, sizeof *vectors);
    if (r == BITNET_OK) r = bitnet_embed(ctx, in, n, &params, vectors, &err);
    for (i = 0; i < n && r == BITNET_OK; i++)
        count += tokens_read(in[i].text.data, in[i].text.size);
    free(in);
    return r == BITNET_OK ? count : r;
}

/* ---- generation ----
   bw_begin, then bw_prefill until one token is left, then bw_open and bw_step until bw_reason has
   one, then bw_end: each returns soon enough for the worker to look for messages. */

/* Whether the model writes text at all. If not, the error is the library's. */
EXPORT int bw_writes(void) {
    bitnet_generate_params params;
    bitnet_gen *gen = 0;
    if (info.has_head) return BITNET_OK;
    memset(&params, 0, sizeof params);
    return bitnet_gen_begin(ctx, &params, &gen, &err);
}

/* Ends what a session writes. A token that is not evaluated yet stays pending. */
EXPORT void bw_end(int q) {
    bitnet_gen_end(sessions[q].gen);
    sessions[q].gen = 0;
    free(sessions[q].allowed);
    sessions[q].allowed = 0;
    sessions[q].uses_matcher = 0;
}

/* Takes over the n tokens of the last text as the prompt. The tokens that the session and the prompt
   have in common at the start are kept in the session, all others are forgotten. Returns how many
   are kept and need not be read again, as recurrent layers may. */
EXPORT int bw_begin(int q, int32_t n, int32_t max_tokens, int32_t lookup) {
    session *s = &sessions[q];
    const bitnet_token *known = bitnet_seq_tokens(ctx, q);
    free(s->prompt);
    s->prompt = tokens;
    tokens = 0;
    tokens_cap = s->n_done = 0;
    s->n_prompt = n;
    s->reason = -1;
    memset(&s->params, 0, sizeof s->params);
    s->params.seq = q;
    s->params.max_tokens = max_tokens;
    s->params.lookup = lookup;
    s->params.sampler = &s->sampler;
    if (n < 1) return fail(BITNET_ERR_ARG, "the prompt is empty");
    if (n > bitnet_ctx_capacity(ctx))
        return fail(BITNET_ERR_FULL, "the prompt has %d tokens, the context %d", (int)n,
                    (int)bitnet_ctx_capacity(ctx));
    while (s->n_done < n - 1 && s->n_done < bitnet_seq_length(ctx, q) &&
           s->prompt[s->n_done] == known[s->n_done])
        s->n_done++;                   /* the last one is always evaluated, for its logits */
    if (bitnet_seq_rewind(ctx, q, s->n_done, &err)) return err.code;
    return s->n_done - bitnet_seq_again(ctx, q);
}

/* Evaluates up to n tokens of the prompt, but not its last; returns how many are left. */
EXPORT int bw_prefill(int q, int32_t n) {
    session *s = &sessions[q];
    bitnet_input in;
    if (n > s->n_prompt - 1 - s->n_done) n = s->n_prompt - 1 - s->n_done;
    memset(&in, 0, sizeof in);
    in.seq = q;
    in.n_tokens = n;
    in.tokens = s->prompt + s->n_done;
    if (n > 0 && bitnet_eval_many(ctx, &in, 1, &err)) return err.code;
    s->n_done += n;
    return s->n_prompt - s->n_done;
}

/* The prompt has one token left: now bw_step can write, until one of these n stop strings comes. The
   sampler is copied: what may be set again later is what its mask reads. */
EXPORT int bw_open(int q, const char *strings, const int32_t *sizes, int32_t n) {
    session *s = &sessions[q];
    bitnet_text *stops = (bitnet_text *)calloc((size_t)n + 1, sizeof *stops);
    int32_t i;
    int r;
    if (!stops) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++) stops[i] = take_text(&strings, &sizes);
    s->params.stop_strings = stops;
    s->params.n_stop_strings = n;
    s->params.tokens = s->prompt + s->n_done;
    s->params.n_tokens = s->n_prompt - s->n_done;
    r = bitnet_gen_begin(ctx, &s->params, &s->gen, &err);
    free(stops);
    return r;
}

/* One pass over the weights: the next token of each of these n sessions. If it fails, there is
   none. */
EXPORT int bw_step(const int32_t *list, int32_t n) {
    bitnet_gen **gens = (bitnet_gen **)malloc((size_t)n * sizeof *gens);
    int32_t i;
    int r;
    if (!gens) return fail_result(BITNET_ERR_MEMORY);
    for (i = 0; i < n; i++) gens[i] = sessions[list[i]].gen;
    r = bitnet_gen_next(gens, n, &err);
    for (i = 0; i < n && r == BITNET_OK; i++) {
        session *s = &sessions[list[i]];
        bitnet_gen_piece(s->gen, &s->piece);
        if (s->piece.ended) s->reason = s->piece.why;
    }
    free(gens);
    return r;
}

/* What the last pass gave this session: returns how many tokens, 0 if none was allowed, and more than
   1 only with lookup. The text that is now certain is in `text`. */
EXPORT int bw_piece(int q) {
    const bitnet_piece *p = &sessions[q].piece;
    text = p->text.data;
    text_length = (int32_t)p->text.size;
    return p->n_tokens;
}

EXPORT const bitnet_token *bw_piece_tokens(int q) { return sessions[q].piece.tokens; }

/* Where the sampler is, which is what another one begins with as its seed: the lower or upper half. */
EXPORT uint32_t bw_rng(int q, int upper) {
    return (uint32_t)(sessions[q].piece.rng >> (upper ? 32 : 0));
}

/* What that token was drawn from, a float for each of the vocabulary, until the next pass. */
EXPORT const float *bw_logits(int q) { return bitnet_logits(ctx, sessions[q].piece.row, 0); }

/* The logarithms of probabilities before any option of the sampler: of the token that was drawn,
   then of the n most likely ones. Each is a token and a float. Until the next pass. */
EXPORT const bitnet_logprob *bw_logprobs(int q, int32_t n) {
    static bitnet_logprob list[1 + 20];
    const bitnet_piece *p = &sessions[q].piece;
    const float *logits = bw_logits(q);
    bitnet_logprob best;
    if (n > 20) n = 20;
    if (!logits || p->n_tokens == 0 || bitnet_logprobs(ctx, p->row, &best, 1, 0)) return 0;
    list[0].token = p->tokens[0];
    list[0].logprob = best.logprob + (logits[list[0].token] - logits[best.token]);
    if (n > 0 && bitnet_logprobs(ctx, p->row, list + 1, n, 0)) return 0;
    return list;
}

/* The bitnet_stop with which the text ended; -1: it can go on. */
EXPORT int bw_reason(int q) { return sessions[q].reason; }

/* ---- saved sessions ---- */

EXPORT double bw_state_bytes(int q) { return (double)bitnet_seq_state_bytes(ctx, q); }

/* Into that many bytes of the caller's. Between two tokens of a text the session is saved as if the
   text ended there. */
EXPORT int bw_save(int q, void *out, size_t n) {
    const int writes = ctx->seqs[q].in_generation;
    int r;
    ctx->seqs[q].in_generation = 0;
    r = bitnet_seq_save_memory(ctx, q, out, n, &err);
    ctx->seqs[q].in_generation = writes;
    return r;
}

EXPORT int bw_restore(int q, const void *data, size_t n) {
    return bitnet_seq_load_memory(ctx, q, data, n, &err);
}

/* The session is empty, and has no memory that another could use. */
EXPORT void bw_clear(int q) {
    session *s = &sessions[q];
    bw_end(q);
    free_grammar(s);
    bitnet_seq_rewind(ctx, q, 0, 0);
}
#pragma clang attribute bitnet_small.pop
