#include "model.h"
#include "say.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_free(text *t) {
    free(t->p);
    free(t->tokens);
    free(t->id);
    memset(t, 0, sizeof *t);
}

/* general.name, or the name of the file. */
static void find_name(embedder *e) {
    const char *slash = strrchr(e->s->model, '/');
    if (bitnet_model_get_meta(e->model, "general.name", e->name, sizeof e->name) <= 0)
        snprintf(e->name, sizeof e->name, "%s", slash ? slash + 1 : e->s->model);
}

/* The keys and values of one long text and of the texts of a pass must fit. */
static bitnet_result open_context(embedder *e, bitnet_error *err) {
    const settings *s = e->s;
    bitnet_ctx_params p;
    memset(&p, 0, sizeof p);
    p.n_ctx = e->info.ctx_train > 0 && e->info.ctx_train < 4096 ? e->info.ctx_train : 4096;
    if (s->n_ctx) p.n_ctx = (int32_t)s->n_ctx;
    p.n_batch = s->n_batch ? (int32_t)s->n_batch : 512;
    p.n_seqs = s->n_seqs ? (int32_t)s->n_seqs : 64;
    p.n_kv = (int64_t)p.n_ctx + p.n_batch + 64 * (int64_t)p.n_seqs;
    if (p.n_seqs == 1 || p.n_kv > (int64_t)p.n_ctx * p.n_seqs) p.n_kv = 0;
    p.n_threads = s->n_threads > 0 ? (int32_t)s->n_threads : 0;
    p.kv_type = s->kv_type;
    p.no_head_copy = 1;
    p.hooks.cancel_fn = stop_is_asked;
    e->n_ctx = p.n_ctx;
    return bitnet_ctx_create(e->model, &p, &e->ctx, err);
}

int embedder_open(embedder *e, const settings *s, int cut) {
    bitnet_model_params params;
    bitnet_error err;
    memset(e, 0, sizeof *e);
    memset(&params, 0, sizeof params);
    params.log_fn = note_warning;
    e->s = s;
    if (bitnet_model_load_file(s->model, &params, &e->model, &err))
        return fail(MODEL_REFUSED, "%s: %s", s->model, err.text);
    bitnet_model_get_info(e->model, &e->info);
    find_name(e);
    if (s->pooling == BITNET_POOLING_MODEL && e->info.pooling == BITNET_POOLING_MODEL)
        return fail(MODEL_REFUSED, "%s: this is no model of embeddings; with --pooling its rows "
                    "become vectors nevertheless", s->model);
    if (open_context(e, &err)) return fail(MODEL_REFUSED, "%s: %s", s->model, err.text);
    e->params.pooling = s->pooling;
    e->params.raw = s->normalize != 2;
    e->params.cut = cut;
    e->inputs = (bitnet_embed_input *)calloc(BATCH, sizeof *e->inputs);
    e->vectors = (float *)calloc(BATCH * (size_t)e->info.dim, sizeof *e->vectors);
    return e->inputs && e->vectors ? DONE : fail(FAILED, "there is no memory");
}

void embedder_close(embedder *e) {
    free(e->inputs);
    free(e->vectors);
    bitnet_ctx_free(e->ctx);
    bitnet_model_free(e->model);
}

/* Makes the tokens of a text, with BOS and EOS as the model wants them. As llama-embedding does, it
   takes the name of a control token for that token; a text that spells BOS has it once. Returns 0
   without memory. */
static int tokenize(const embedder *e, text *t) {
    const bitnet_model_info *i = &e->info;
    const int flags = (i->add_bos ? BITNET_ADD_BOS : 0) | (i->add_eos ? BITNET_ADD_EOS : 0) |
                      (e->s->no_special ? 0 : BITNET_PARSE_SPECIAL);
    const int n = bitnet_tokenize(e->model, t->p, t->n, flags, 0, 0);
    if (n < 0) {
        snprintf(t->error, sizeof t->error, "it cannot be tokenized: %s",
                 bitnet_result_text((bitnet_result)n));
        return n != BITNET_ERR_MEMORY;
    }
    free(t->tokens);
    t->tokens = (bitnet_token *)malloc(((size_t)n + 1) * sizeof *t->tokens);
    if (!t->tokens || bitnet_tokenize(e->model, t->p, t->n, flags, t->tokens, (size_t)n) != n)
        return 0;
    t->n_tokens = n;
    if (n > 1 && i->add_bos && t->tokens[0] == i->bos && t->tokens[1] == i->bos)
        memmove(t->tokens, t->tokens + 1, (size_t)--t->n_tokens * sizeof *t->tokens);
    return 1;
}

/* Says in its error why a text cannot be embedded, if that is known without trying. */
static void check_tokens(const embedder *e, text *t) {
    const bitnet_model_info *i = &e->info;
    int32_t k;
    for (k = 0; k < t->n_tokens; k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= i->n_vocab) {
            snprintf(t->error, sizeof t->error, "token %d is not in the vocabulary (0 to %d)",
                     (int)t->tokens[k], (int)i->n_vocab - 1);
            return;
        }
    if (t->n_tokens == 0) snprintf(t->error, sizeof t->error, "the text is empty");
    else if (t->n_tokens > e->n_ctx && !e->params.cut)
        snprintf(t->error, sizeof t->error, "it has %d tokens, and the context %d; --cut cuts it, "
                 "-c makes the context longer", (int)t->n_tokens, (int)e->n_ctx);
    else if (t->n_tokens > e->n_ctx) {
        t->n_tokens = e->n_ctx;
        if (t->p && i->add_eos) t->tokens[e->n_ctx - 1] = i->eos;
    }
}

/* llama-embedding's ways 0 and 1. Its way 2 is the library's, and -1 is none. */
static void normalize(float *x, int32_t n, long way) {
    double sum = 0.0, top = 0.0;
    int32_t i;
    for (i = 0; i < n; i++) {
        const double magnitude = fabs((double)x[i]);
        sum += magnitude;
        top = magnitude > top ? magnitude : top;
    }
    for (i = 0; i < n && top > 0.0; i++) {
        if (way == 0) x[i] = (float)(32760.0 * (double)x[i] / top);
        if (way == 1) x[i] = (float)((double)x[i] / sum);
    }
}

int embedder_run(embedder *e, text *texts, int32_t n, float *out) {
    const size_t dim = (size_t)e->info.dim;
    bitnet_error err;
    bitnet_result r;
    int32_t i, n_inputs = 0;
    size_t k;
    for (i = 0; i < n; i++) {
        bitnet_embed_input *in = &e->inputs[n_inputs];
        if (texts[i].error[0]) continue;
        if (texts[i].p && !tokenize(e, &texts[i])) return fail(FAILED, "there is no memory");
        if (!texts[i].error[0]) check_tokens(e, &texts[i]);
        if (texts[i].error[0]) continue;
        memset(in, 0, sizeof *in);
        in->tokens = texts[i].tokens;
        in->n_tokens = texts[i].n_tokens;
        n_inputs++;
    }
    r = bitnet_embed(e->ctx, e->inputs, n_inputs, &e->params, e->vectors, &err);
    if (r == BITNET_ERR_CANCELLED) return STOPPED;
    if (r) return fail(FAILED, "%s", err.text);
    for (i = n_inputs = 0; i < n; i++) {
        float *to = out + (size_t)i * dim;
        if (!texts[i].error[0]) {
            memcpy(to, e->vectors + (size_t)n_inputs++ * dim, dim * sizeof *to);
            normalize(to, e->info.dim, e->s->normalize);
        } else for (k = 0; k < dim; k++) to[k] = (float)NAN;
    }
    return DONE;
}

int add_task(text *t, const char *task) {
    const size_t cap = t->n + strlen(task) + 32;
    char *p = (char *)malloc(cap);
    size_t before;
    if (!p) return 0;
    before = (size_t)snprintf(p, cap, "Instruct: %s\nQuery: ", task);
    memcpy(p + before, t->p, t->n);
    free(t->p);
    t->p = p;
    t->n += before;
    return 1;
}

int embedder_probe(embedder *e, uint64_t *out) {
    char sentence[] = "The quick brown fox jumps over the lazy dog.";
    const int32_t cut = e->params.cut;
    float *v = (float *)calloc((size_t)e->info.dim, sizeof *v);
    text t;
    int32_t i;
    int code = FAILED;
    memset(&t, 0, sizeof t);
    t.p = sentence;
    t.n = sizeof sentence - 1;
    *out = 0xcbf29ce484222325u;        /* FNV-1a of the floats */
    e->params.cut = 0;
    if (!v) say("there is no memory");
    else code = embedder_run(e, &t, 1, v);
    e->params.cut = cut;
    if (code == DONE && t.error[0] && t.n_tokens > e->n_ctx)     /* where --cut is of no use */
        code = fail(FAILED, "the context is too short for a search: it has %d tokens, and %d are "
                    "needed; -c makes it longer", (int)e->n_ctx, (int)t.n_tokens);
    else if (code == DONE && t.error[0])
        code = fail(FAILED, "the text that tells models apart: %s", t.error);
    for (i = 0; code == DONE && i < e->info.dim; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        *out = (*out ^ bits) * 0x100000001b3u;
    }
    free(t.tokens);
    free(v);
    return code;
}
