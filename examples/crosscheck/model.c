#include "model.h"
#include "../utf8.h"
#include "kernels.h"
#include "../values.h"
#include "report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bitnet_ctx_params cp;           /* of the context that is open */
static bitnet_model *model;
static bitnet_model_info info;
static bitnet_ctx *ctx;
static bitnet_token *tokens;           /* the prompt */
static int32_t n_tokens;
static float *last_rows;               /* [n_layers + 1][dim]    of the prompt's last token */
static uint64_t *other_hashes;         /* [n_layers + 1]         of those before it */
static values row;

/* Notes the hash of the model's file: other weights explain other results. */
static void note_model(const char *path) {
    static uint8_t bytes[1 << 16];
    uint64_t h = HASH_START, total = 0;
    size_t i, n;
    FILE *f = utf8_fopen(path, "rb");
    if (!f) fail(1, "%s: cannot open: %s", path, strerror(errno));
    for (; (n = fread(bytes, 1, sizeof bytes, f)) > 0; total += n)
        for (i = 0; i < n; i++) h = hash_bits(h, bytes[i], 1);
    if (ferror(f)) fail(1, "%s: cannot read: %s", path, strerror(errno));
    fclose(f);
    printf("note model of %.0f bytes, hash %08lx%08lx\n", (double)total, (unsigned long)(h >> 32),
           (unsigned long)(h & 0xffffffff));
    n_lines++;
}

static void tokenize(const char *path, const char *text) {
    int flags = info.add_bos ? BITNET_ADD_BOS : 0;
    n_tokens = bitnet_tokenize(model, text, strlen(text), flags, 0, 0);
    if (n_tokens < 1) fail(1, "%s: the text has no tokens", path);
    tokens = (bitnet_token *)grow(tokens, (size_t)n_tokens * sizeof *tokens);
    bitnet_tokenize(model, text, strlen(text), flags, tokens, (size_t)n_tokens);
}

static void open_ctx(int32_t n_ctx, int32_t n_logits) {
    bitnet_error err;
    cp.n_ctx = n_ctx;
    cp.n_logits = n_logits;
    if (bitnet_ctx_create(model, &cp, &ctx, &err)) fail(1, "%s", err.text);
}

static void eval(const bitnet_token *t, int32_t n, int all_logits) {
    bitnet_error err;
    if (bitnet_eval(ctx, 0, t, n, all_logits ? n : 1, &err)) fail(1, "%s", err.text);
}

/* A layer_fn. The hashes go over the positions in order, so they do not depend on the batches. */
static void on_layer(void *ud, int layer, const float *x, int n) {
    int32_t at = bitnet_seq_length(ctx, 0), i, dim = info.dim;
    uint64_t *h = &other_hashes[layer + 1];
    (void)ud;
    for (; n > 0 && at < n_tokens; n--, at++, x += dim) {
        if (at == n_tokens - 1)
            memcpy(last_rows + (size_t)(layer + 1) * (size_t)dim, x, (size_t)dim * sizeof *x);
        else for (i = 0; i < dim; i++) *h = hash_bits(*h, float_bits(x[i]), 4);
    }
}

static void report_prompt(const model_options *o) {
    size_t dim = (size_t)info.dim, layers = (size_t)info.n_layers + 1, i;
    char what[128], types[32];
    last_rows = (float *)grow(0, layers * dim * sizeof *last_rows);
    other_hashes = (uint64_t *)grow(0, layers * sizeof *other_hashes);
    for (i = 0; i < layers; i++) other_hashes[i] = HASH_START;
    row.n = 0;
    put_ints(&row, tokens, (size_t)n_tokens);
    snprintf(what, sizeof what, "tokens of the prompt, kv %s, -n %d", o->kv_name, (int)o->n_new);
    write_line(what, "model", &row);
    eval(tokens, n_tokens, 0);
    for (i = 0; i < layers; i++) {
        char where[32] = "the embedding";
        if (i > 0) snprintf(where, sizeof where, "layer %d", (int)i - 1);
        snprintf(what, sizeof what, "stream after %s, token %d", where, n_tokens - 1);
        row.n = 0;
        put_floats(&row, last_rows + i * dim, dim);
        write_line(what, "model", &row);
        if (n_tokens < 2) continue;
        snprintf(what, sizeof what, "stream after %s, tokens 0 to %d", where, n_tokens - 2);
        snprintf(types, sizeof types, "f%.0f", (double)(n_tokens - 1) * (double)dim);
        write_hash(what, "model", types, other_hashes[i]);
        putchar('\n');
    }
}

/* What layers keep of the prompt in a fixed size, as a saved sequence ends with it. */
static void report_state(void) {
    const size_t bytes = (size_t)bitnet_seq_state_bytes(ctx, 0), n = (size_t)info.state_bytes;
    uint8_t *saved = (uint8_t *)grow(0, bytes);
    const uint8_t *p = saved + (bytes - 8 - n);
    uint64_t h = HASH_START;
    bitnet_error err;
    char types[32];
    size_t i;
    if (bitnet_seq_save_memory(ctx, 0, saved, bytes, &err)) fail(1, "%s", err.text);
    for (i = 0; i < n; i++) h = hash_bits(h, p[i], 1);
    snprintf(types, sizeof types, "f%.0f", (double)n / 4);
    write_hash("states of layers after the prompt", "model", types, h);
    putchar('\n');
    free(saved);
}

/* Greedy tokens, by exact top-k with a copy of the output head, then all logits. */
static void report_tokens(int32_t n_new) {
    bitnet_sampler greedy = {0};
    bitnet_detok detok = {0};
    char what[128], text[4096];
    int32_t i, n, ended = 0;
    fprintf(stderr, "crosscheck: the model goes on: ");
    for (i = 0; i < n_new; i++) {
        bitnet_token t = bitnet_sample(ctx, -1, &greedy, NULL);
        const float *logits = bitnet_logits(ctx, -1, NULL);
        row.n = 0;
        put_floats(&row, logits, (size_t)info.n_vocab);
        if (i == 0) write_line("logits after the prompt", "model", &row);
        row.n = 0;
        put_ints(&row, &t, 1);
        put_floats(&row, &logits[t], 1);
        snprintf(what, sizeof what, "greedy token %d and its logit", (int)i);
        write_line(what, "model", &row);
        if (bitnet_token_is_end(model, t)) ended = 1;
        n = ended ? 0 : bitnet_detok_push(model, &detok, t, text, sizeof text);
        if (n > 0) fwrite(text, 1, (size_t)n, stderr);
        if (i + 1 < n_new) eval(&t, 1, 0);
    }
    n = bitnet_detok_push(model, &detok, -1, text, sizeof text);
    if (n > 0) fwrite(text, 1, (size_t)n, stderr);
    fputc('\n', stderr);
}

/* ---- embeddings ---- */

/* A model without an output head: the vectors of the prompt and of its first half, packed into one
   pass, by each pooling. */
static void report_vectors(void) {
    bitnet_embed_input in[2];
    bitnet_embed_params how;
    float *x = (float *)grow(0, 2 * (size_t)info.dim * sizeof *x);
    bitnet_error err;
    char what[64];
    int pooling;
    cp.hooks.layer_fn = 0;
    cp.n_seqs = 2;
    open_ctx(n_tokens, 1);
    memset(in, 0, sizeof in);
    in[0].tokens = in[1].tokens = tokens;
    in[0].n_tokens = n_tokens;
    in[1].n_tokens = n_tokens / 2 + 1;
    memset(&how, 0, sizeof how);
    for (pooling = BITNET_POOLING_MEAN; pooling <= BITNET_POOLING_LAST; pooling++) {
        how.pooling = (bitnet_pooling)pooling;
        if (bitnet_embed(ctx, in, 2, &how, x, &err)) fail(1, "%s", err.text);
        row.n = 0;
        put_floats(&row, x, 2 * (size_t)info.dim);
        snprintf(what, sizeof what, "two vectors, pooling %d", pooling);
        write_line(what, "model", &row);
    }
    free(x);
    bitnet_ctx_free(ctx);
}

/* ---- sequences ---- */

enum { N_SEQS = 4, N_PASSES = 4 };

/* Samples a token from each row that a pass kept, and reports it with the hash of the row. */
static void report_rows(int pass, const bitnet_input *in, int n, bitnet_token *next) {
    char what[64], types[32];
    int i;
    int32_t k;
    snprintf(types, sizeof types, "f%d", (int)info.n_vocab);
    for (i = 0; i < n; i++) {
        const float *logits = bitnet_logits(ctx, in[i].row, NULL);
        uint64_t h = HASH_START;
        next[in[i].seq] = bitnet_sample(ctx, in[i].row, 0, NULL);
        for (k = 0; k < info.n_vocab; k++) h = hash_bits(h, float_bits(logits[k]), 4);
        snprintf(what, sizeof what, "pass %d, logits of sequence %d after %d tokens", pass,
                 (int)in[i].seq, (int)bitnet_seq_length(ctx, in[i].seq));
        write_hash(what, "model", types, h);
        putchar('\n');
    }
}

static void eval_pass(int pass, bitnet_input *in, int n, bitnet_token *next) {
    bitnet_error err;
    if (bitnet_eval_many(ctx, in, n, &err)) fail(1, "%s", err.text);
    report_rows(pass, in, n, next);
}

/* Sequences 0 to 2 read different parts of the prompt in one pass, and 3 begins as a copy of 0 and
   reads the rest of it while the others write. A state of fixed size is copied whole, so that then
   it is a copy of 1, which has the same tokens. */
static void report_sequences(void) {
    const int32_t half = n_tokens / 2;
    bitnet_token next[N_SEQS];
    bitnet_input in[N_SEQS];
    int i, pass;
    cp.hooks.layer_fn = 0;
    cp.n_seqs = N_SEQS;
    open_ctx(n_tokens + N_PASSES, N_SEQS);
    memset(in, 0, sizeof in);
    for (i = 0; i < 3; i++) {
        in[i].seq = i;
        in[i].tokens = tokens;
        in[i].n_tokens = i == 0 ? n_tokens : i == 1 && half > 0 ? half : 1;
        in[i].n_logits = 1;
    }
    eval_pass(0, in, 3, next);
    if (bitnet_seq_copy(ctx, info.state_bytes && half > 0, 3, half, NULL))
        fail(1, "sequence 3 cannot be a copy");
    for (pass = 1; pass < N_PASSES; pass++) {
        for (i = 0; i < N_SEQS; i++) {
            in[i].seq = N_SEQS - 1 - i;
            in[i].tokens = &next[in[i].seq];
            in[i].n_tokens = in[i].n_logits = 1;
        }
        if (pass == 1) {
            in[0].tokens = tokens + half;
            in[0].n_tokens = n_tokens - half;
        }
        eval_pass(pass, in, N_SEQS, next);
    }
    bitnet_ctx_free(ctx);
}

void open_model(const model_options *o) {
    bitnet_error err;
    if (bitnet_model_load_file(o->path, &o->model, &model, &err))
        fail(1, "%s: %s", o->path, err.text);
    bitnet_model_get_info(model, &info);
    tokenize(o->path, o->prompt);
    cp = o->ctx;
    cp.hooks.layer_fn = on_layer;
    open_ctx(n_tokens + o->n_new, 1);
}

void report_model(const model_options *o) {
    const bitnet_i2s_packing layout = o->model.i2s_packing;
    note_model(o->path);
    if (o->bug) printf("note emulated bug: %s (the 128 packing read as the 64 packing)\n", o->bug);
    else if (layout) printf("note weights read as %s\n", packing_name(layout));
    if (layout) n_lines++;
    fprintf(stderr, "crosscheck: model with kernels %s, %d threads\n", info.kernels_name,
            (int)bitnet_ctx_threads(ctx));
    report_prompt(o);
    if (info.state_bytes) report_state();
    if (info.has_head) report_tokens(o->n_new);
    bitnet_ctx_free(ctx);
    if (info.has_head) report_sequences();
    else report_vectors();
    bitnet_model_free(model);
}

/* ---- which layout? ---- */

/* The logarithm of p, 0 < p <= 1, so that libm need not be linked. */
static double log_of(double p) {
    double z, z2, sum = 0;
    int e = 0, i;
    for (; p < 0.7; p *= 2) e++;
    z = (p - 1) / (p + 1);
    z2 = z * z;
    for (i = 21; i >= 1; i -= 2) sum = sum * z2 + 1.0 / i;
    return 2 * z * sum - e * 0.69314718055994530942;
}

/* Mean log-likelihood of the text's tokens after the first one. */
static double likelihood(const char *path, const char *text) {
    double sum = 0;
    int32_t i;
    float *p;
    tokenize(path, text);
    open_ctx(n_tokens, 1);
    p = (float *)grow(0, (size_t)info.n_vocab * sizeof *p);
    for (i = 0; i + 1 < n_tokens; i++) {
        eval(tokens + i, 1, 0);
        memcpy(p, bitnet_logits(ctx, -1, NULL), (size_t)info.n_vocab * sizeof *p);
        softmax(p, info.n_vocab);
        sum += log_of(p[tokens[i + 1]]);
    }
    free(p);
    bitnet_ctx_free(ctx);
    return n_tokens > 1 ? sum / (n_tokens - 1) : 0;
}

void compare_layouts(const model_options *o) {
    static const char text[] =
        "Once upon a time there was a little girl named Lily. She lived in a small house near the "
        "forest. One day she found a dog in the garden. The dog was hungry, so she gave it some "
        "bread. Her mother said that it could stay, and they were happy. The capital of France is "
        "Paris. It is a big city on a river, and many people live there.";
    double nats, best = -1e9, second = -1e9;
    bitnet_model_params mp = o->model;
    int i, first = 0;
    bitnet_error err;
    cp = o->ctx;
    for (i = 0; i < 3; i++) {
        mp.i2s_packing = (bitnet_i2s_packing)i;
        if (bitnet_model_load_file(o->path, &mp, &model, &err)) {
            printf("%-5s %s\n", packing_name(mp.i2s_packing), err.text);
            continue;
        }
        bitnet_model_get_info(model, &info);
        if (!info.has_head) fail(1, "%s: it writes no text, so nothing is likely in it", o->path);
        nats = likelihood(o->path, text);
        printf("%-5s %.3f nats per token\n", packing_name(mp.i2s_packing), nats);
        if (nats > best) {
            second = best;
            best = nats;
            first = i;
        } else if (nats > second) second = nats;
        bitnet_model_free(model);
    }
    if (best < -1e8) fail(1, "%s: cannot be loaded in any layout", o->path);
    if (best - second >= 0.5 && best > log_of(1.0 / info.n_vocab))     /* better than guessing */
        printf("English is likeliest, by %.1f nats, if the weights are packed by %s.\n",
               best - second, packing_name((bitnet_i2s_packing)first));
    else puts("No layout is clearly better: the result is unknown.");
    puts("The file does not record its packing: codes, size and type number are the same in all\n"
         "three. A model trained on English is clearly better in one; random weights are not.");
}
