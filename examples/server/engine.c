#include "engine.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_BEST = 20, ECHO_ROWS = 16, BATCH = 256, PAGE = 64 };
enum { MASK_STEPS = 1 << 18 };         /* of all masks before a pass: some milliseconds */
enum { EMBED_TEXTS = 64, EMBED_TOKENS = 512 };   /* of a pass */
enum { EMBED_CLIENTS = 256 };                    /* see turn_of */

struct engine {
    const bitnet_model *model;
    bitnet_ctx *ctx;                   /* of texts that are written; 0: the model writes none */
    engine_params params;
    engine_text **slots;               /* [n_slots] 0: free */
    uint64_t *used;                    /* [n_slots] when it was last used, in passes */
    uint64_t *clients;                 /* [n_slots] whose text it has, or had last */
    bitnet_gen **gens;                 /* [n_slots] of a pass */
    engine_text *queue, **queue_end;   /* those that have no slot */
    int32_t n_waiting;
    int is_crowded;                    /* one has lost its slot: none begins until another ends */
    int some_cancelled;                /* text_cancel was called; set by any thread */
    int has_client, is_shared;         /* a client has come; another one, too */
    uint64_t client;                   /* the first */
    const engine_text *echoing;        /* whose pass it is; 0: of all that write */
    uint64_t now;

    bitnet_ctx *embed_ctx;             /* 0: the model makes no embeddings */
    engine_embed *embeds;              /* those that have inputs without a vector */
    int32_t dim;
    float *vectors;                    /* [EMBED_TEXTS][dim] */
    engine_embed *owners[EMBED_TEXTS]; /* [n_called] of the inputs of this pass */
    bitnet_embed_input inputs[EMBED_TEXTS];
    int32_t n_called;
    uint64_t turns[EMBED_CLIENTS], turn;         /* see turn_of; turn: the last client's */
};

static int is_set(const int *cancelled) { return __atomic_load_n(cancelled, __ATOMIC_ACQUIRE); }
static int is_cancelled(const engine_text *t) { return is_set(&t->cancelled); }

/* Has this pass a part of the text, or a token of it? 0: no text. */
static int is_in_pass(const engine_text *t) {
    return t && t->gen && (!t->matcher || t->has_mask);
}

static int is_writing(const engine_text *t) { return t->n_read == t->n_prompt; }

/* Asked during a pass. It goes on as long as one of its texts does: what a pass has done is lost
   when it stops, and clients that come and go could keep all others from going on. Texts that write
   get their one token: it is soon there, and a model whose state cannot be cut back would have to
   read again what it has written, when the chat goes on. */
static int is_for_nobody(void *ud) {
    const engine *e = (const engine *)ud;
    int32_t i;
    if (!e->params.cancel_fn(e->params.ud)) return 0;
    for (i = 0; i < e->n_called; i++)
        if (!is_set(&e->owners[i]->cancelled)) return 0;
    if (e->n_called) return 1;
    if (e->echoing) return is_cancelled(e->echoing);
    for (i = 0; i < e->params.n_slots; i++)
        if (is_in_pass(e->slots[i]) && (!is_cancelled(e->slots[i]) || is_writing(e->slots[i])))
            return 0;
    return 1;
}

/* What the contexts have in common. */
static bitnet_ctx_params ctx_params(engine *e) {
    bitnet_ctx_params cp;
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = e->params.n_ctx;
    cp.n_threads = e->params.n_threads;
    cp.kv_type = e->params.kv_type;
    cp.hooks.cancel_fn = e->params.cancel_fn ? is_for_nobody : 0;
    cp.hooks.cancel_ud = e;
    return cp;
}

/* A context of one sequence has memory for all its tokens, which n_kv cannot bound. Where it has
   to, there is a second one, which nothing uses. */
static bitnet_ctx_params text_ctx_params(engine *e) {
    bitnet_ctx_params cp = ctx_params(e);
    const int is_bounded = e->params.n_slots > 1 || e->params.n_kv < e->params.n_ctx;
    cp.n_kv = is_bounded ? e->params.n_kv : 0;
    cp.n_seqs = e->params.n_slots == 1 && cp.n_kv ? 2 : e->params.n_slots;
    cp.n_batch = BATCH;
    cp.gap_ms = e->params.gap_ms;
    cp.n_logits = e->params.n_slots < ECHO_ROWS ? ECHO_ROWS : e->params.n_slots;
    return cp;
}

static int create_ctx(engine *e, bitnet_error *err) {
    const size_t n = (size_t)e->params.n_slots;
    const bitnet_ctx_params cp = text_ctx_params(e);
    e->slots = (engine_text **)calloc(n, sizeof(engine_text *));
    e->used = (uint64_t *)calloc(n, sizeof *e->used);
    e->clients = (uint64_t *)calloc(n, sizeof *e->clients);
    e->gens = (bitnet_gen **)calloc(n, sizeof(bitnet_gen *));
    return e->slots && e->used && e->clients && e->gens &&
           !bitnet_ctx_create(e->model, &cp, &e->ctx, err);
}

/* Its cache needs no limit: it holds what is in one pass, or one longer text. */
static bitnet_ctx_params embed_ctx_params(engine *e) {
    bitnet_ctx_params cp = ctx_params(e);
    cp.n_seqs = EMBED_TEXTS;
    cp.n_batch = EMBED_TOKENS;
    cp.n_logits = cp.no_head_copy = 1;
    return cp;
}

static int create_embed_ctx(engine *e, bitnet_error *err) {
    const bitnet_ctx_params cp = embed_ctx_params(e);
    e->vectors = (float *)malloc((size_t)e->dim * EMBED_TEXTS * sizeof *e->vectors);
    return e->vectors && !bitnet_ctx_create(e->model, &cp, &e->embed_ctx, err);
}

engine *engine_create(const bitnet_model *model, const engine_params *params, bitnet_error *err) {
    engine *e = (engine *)calloc(1, sizeof *e);
    bitnet_model_info info;
    err->code = BITNET_ERR_MEMORY;
    strcpy(err->text, "no memory for the slots");
    if (!e) return 0;
    bitnet_model_get_info(model, &info);
    e->model = model;
    e->params = *params;
    e->queue_end = &e->queue;
    e->dim = info.dim;
    if ((!info.has_head || create_ctx(e, err)) && (!info.pooling || create_embed_ctx(e, err))) {
        if (e->ctx || e->embed_ctx) return e;
        err->code = BITNET_ERR_UNSUPPORTED;
        strcpy(err->text, "the file has neither an output head nor a pooling_type, so the model "
               "neither writes text nor makes embeddings");
    }
    engine_free(e);
    return 0;
}

/* A cache for 64 more positions has so much more. What else grows with them is small. */
uint64_t engine_token_bytes(const bitnet_model *model, const engine_params *params) {
    bitnet_ctx_params cp;
    uint64_t less;
    memset(&cp, 0, sizeof cp);
    cp.n_batch = cp.n_logits = cp.n_seqs = cp.n_threads = cp.no_head_copy = 1;
    cp.kv_type = params->kv_type;
    cp.mark_bytes = -1;
    cp.n_ctx = PAGE;
    less = bitnet_ctx_bytes(model, &cp);
    cp.n_ctx = 2 * PAGE;
    return (bitnet_ctx_bytes(model, &cp) - less) / PAGE;
}

uint64_t engine_bytes(const bitnet_model *model, const engine_params *params) {
    engine e;
    bitnet_model_info info;
    bitnet_ctx_params cp;
    uint64_t n = 0, tokens = EMBED_TOKENS + EMBED_TEXTS * (PAGE - 1);
    memset(&e, 0, sizeof e);
    e.params = *params;
    if (e.params.n_slots == 1) e.params.n_slots = 2;   /* of one, the tokens would count, too */
    e.params.n_kv = 0;
    bitnet_model_get_info(model, &info);
    cp = text_ctx_params(&e);
    if (info.has_head) n += bitnet_ctx_bytes(model, &cp);
    cp = embed_ctx_params(&e);
    if (!info.pooling) return n;
    if (tokens < (uint64_t)params->n_ctx) tokens = (uint64_t)params->n_ctx;
    return n + bitnet_ctx_bytes(model, &cp) + tokens * engine_token_bytes(model, params);
}

int32_t engine_ctx(const engine *e) {
    return bitnet_ctx_capacity(e->ctx ? e->ctx : e->embed_ctx);
}
int32_t engine_most(const engine *e) { return e->ctx ? e->params.n_slots : EMBED_TEXTS; }

int32_t engine_waiting(const engine *e) {
    const engine_embed *t;
    int32_t n = e->n_waiting;
    for (t = e->embeds; t; t = t->next) n += t->n - t->n_done;
    return n;
}

int32_t engine_busy(const engine *e) {
    int32_t i, n = 0;
    for (i = 0; e->ctx && i < e->params.n_slots; i++) n += e->slots[i] != 0;
    return n;
}

int64_t engine_held(const engine *e) {
    int64_t n = 0;
    int32_t i;
    for (i = 0; e->ctx && i < e->params.n_slots; i++) n += bitnet_seq_length(e->ctx, i);
    return n;
}

/* ---- the end of a text ---- */

static void leave_slot(engine *e, engine_text *t) {
    bitnet_gen_end(t->gen);
    bitnet_matcher_free(t->matcher);
    t->gen = 0;
    t->matcher = 0;
    if (t->slot < 0 || e->slots[t->slot] != t) return;
    e->slots[t->slot] = 0;
    e->used[t->slot] = e->now;
}

static void end_text(engine *e, engine_text *t, bitnet_result code, const char *why) {
    leave_slot(e, t);
    t->closed = 1;
    e->is_crowded = 0;
    if (code != t->err.code || code == BITNET_OK) {
        t->err.code = code;
        memset(t->err.text, 0, sizeof t->err.text);
        strncpy(t->err.text, why, sizeof t->err.text - 1);
    }
    t->end_fn(t);
}

void text_cancel(engine_text *t) {
    engine *e = __atomic_load_n(&t->owner, __ATOMIC_ACQUIRE);
    __atomic_store_n(&t->cancelled, 1, __ATOMIC_RELEASE);
    if (e) __atomic_store_n(&e->some_cancelled, 1, __ATOMIC_RELEASE);
}

static engine_text *unqueue(engine *e, engine_text **at) {
    engine_text *t = *at;
    if (e->queue_end == &t->next) e->queue_end = at;
    *at = t->next;
    t->next = 0;
    e->n_waiting--;
    return t;
}

static void end_cancelled(engine *e) {
    engine_text **at = &e->queue;
    int32_t i;
    if (!__atomic_exchange_n(&e->some_cancelled, 0, __ATOMIC_ACQ_REL)) return;
    for (i = 0; i < e->params.n_slots; i++)
        if (e->slots[i] && is_cancelled(e->slots[i]))
            end_text(e, e->slots[i], BITNET_ERR_CANCELLED, "cancelled");
    while (*at) {
        if (is_cancelled(*at)) end_text(e, unqueue(e, at), BITNET_ERR_CANCELLED, "cancelled");
        else at = &(*at)->next;
    }
}

/* ---- embeddings ---- */

static void add_last(engine *e, engine_embed *t) {
    engine_embed **at = &e->embeds;
    while (*at) at = &(*at)->next;
    *at = t;
    t->next = 0;
}

/* Counts the tokens that a client has had. Clients may share a place. */
static uint64_t *turn_of(engine *e, const engine_embed *t) {
    return &e->turns[t->client % EMBED_CLIENTS];
}

void engine_add_embed(engine *e, engine_embed *t) {
    uint64_t *turn = turn_of(e, t);
    if (*turn < e->turn) *turn = e->turn;        /* who was away has saved nothing up */
    add_last(e, t);
}

void embed_cancel(engine_embed *t) { __atomic_store_n(&t->cancelled, 1, __ATOMIC_RELEASE); }

/* Ends those that have all vectors, or will get no more. */
static void end_embeds(engine *e) {
    engine_embed **at = &e->embeds, *t;
    while ((t = *at) != 0) {
        if (is_set(&t->cancelled)) {
            t->err.code = BITNET_ERR_CANCELLED;
            strcpy(t->err.text, "cancelled");
        }
        if (t->err.code || t->n_done == t->n) {
            *at = t->next;
            t->end_fn(t);
        } else at = &t->next;
    }
}

/* Who is next: the client that has had the fewest tokens, and its first job. */
static engine_embed **next_to_embed(engine *e) {
    engine_embed **at, **best = 0;
    for (at = &e->embeds; *at; at = &(*at)->next)
        if ((*at)->n_begun < (*at)->n && (!best || *turn_of(e, *at) < *turn_of(e, *best)))
            best = at;
    return best;
}

/* An input has been chosen; the client's other jobs come before this one's next. */
static void take_turn(engine *e, engine_embed **at) {
    engine_embed *t = *at;
    uint64_t *turn = turn_of(e, t);
    e->turn = *turn;
    *turn += (uint64_t)t->inputs[t->n_begun++].n_tokens;
    *at = t->next;
    add_last(e, t);
}

/* Chooses the inputs of a pass. One that is longer than that goes alone, so that its owner can stop
   it in the middle. */
static void choose_inputs(engine *e) {
    engine_embed **at;
    int32_t n_tokens = 0;
    e->n_called = 0;
    while (e->n_called < EMBED_TEXTS && (at = next_to_embed(e)) != 0) {
        const bitnet_embed_input *in = &(*at)->inputs[(*at)->n_begun];
        if (e->n_called && n_tokens + in->n_tokens > EMBED_TOKENS) return;
        n_tokens += in->n_tokens;
        e->inputs[e->n_called] = *in;
        e->owners[e->n_called++] = *at;
        take_turn(e, at);
    }
}

/* Hands over a vector of the last pass. If that failed, nobody knows because of which input: each
   gets a pass of its own. */
static void take_vector(engine *e, int32_t i, const bitnet_error *why) {
    engine_embed *t = e->owners[i];
    float *v = e->vectors + (size_t)e->dim * (size_t)i;
    if (t->err.code || is_set(&t->cancelled)) return;
    if (why->code && e->n_called == 1) t->err = *why;
    else if (why->code) bitnet_embed(e->embed_ctx, &e->inputs[i], 1, 0, v, &t->err);
    if (t->err.code) return;
    t->vector_fn(t, v);
    t->n_done++;
}

static int embed_pass(engine *e) {
    bitnet_error err = {0};
    int32_t i;
    end_embeds(e);
    choose_inputs(e);
    if (e->n_called) bitnet_embed(e->embed_ctx, e->inputs, e->n_called, 0, e->vectors, &err);
    for (i = 0; i < e->n_called; i++) take_vector(e, i, &err);
    i = e->n_called;
    e->n_called = 0;
    end_embeds(e);
    return i;
}

void engine_free(engine *e) {
    int32_t i;
    engine_text *t;
    engine_embed *v;
    if (!e) return;
    for (i = 0; e->slots && i < e->params.n_slots; i++)
        if (e->slots[i]) text_cancel(e->slots[i]);
    for (t = e->queue; t; t = t->next) text_cancel(t);
    for (v = e->embeds; v; v = v->next) embed_cancel(v);
    if (e->ctx) end_cancelled(e);
    end_embeds(e);
    bitnet_ctx_free(e->ctx);
    bitnet_ctx_free(e->embed_ctx);
    free(e->vectors);
    free(e->slots);
    free(e->used);
    free(e->clients);
    free(e->gens);
    free(e);
}

/* ---- who is next, and where ---- */

void engine_add(engine *e, engine_text *t) {
    t->slot = -1;
    t->rng = t->sampler.rng;
    t->next = 0;
    if (!e->has_client) e->client = t->client;
    e->has_client = 1;
    e->is_shared |= t->client != e->client;
    __atomic_store_n(&t->owner, e, __ATOMIC_RELEASE);
    if (is_cancelled(t)) e->some_cancelled = 1;
    *e->queue_end = t;
    e->queue_end = &t->next;
    e->n_waiting++;
}

/* May it begin, as far as another text with the same prompt matters? */
static int is_ready(const engine_text *t) {
    return !t->first || t->first->closed || t->first->n_read == t->first->n_prompt;
}

/* What a text will hold in the end, in whole pages. Where that has no limit it is a guess. */
static int64_t room_for(const engine *e, const engine_text *t) {
    const int64_t most = engine_ctx(e);
    int64_t n = t->max_tokens >= 0 ? t->max_tokens : (most - t->n_prompt) / 4;
    n += t->n_prompt;
    return ((n < most ? n : most) + PAGE - 1) / PAGE * PAGE;
}

/* May it begin, as far as memory matters? */
static int has_room(const engine *e, const engine_text *t) {
    int64_t n = room_for(e, t);
    int32_t i;
    if (engine_busy(e) == 0) return 1;
    if (e->is_crowded) return 0;
    for (i = 0; i < e->params.n_slots; i++)
        if (e->slots[i]) n += room_for(e, e->slots[i]);
    return e->params.n_kv == 0 || n <= e->params.n_kv;
}

static int32_t slots_of(const engine *e, uint64_t client) {
    int32_t i, n = 0;
    for (i = 0; i < e->params.n_slots; i++) n += e->slots[i] && e->slots[i]->client == client;
    return n;
}

/* The first text of the client that has the fewest slots. The queue may be long, but most of it is
   of clients that have none, or of one who has filled it. */
static engine_text **next_in_queue(engine *e) {
    engine_text **at, **best = 0;
    uint64_t client = 0;
    int32_t least = 0, n = -1;
    for (at = &e->queue; *at && (!best || least > 0); at = &(*at)->next) {
        if (!is_ready(*at)) continue;
        if (n < 0 || (*at)->client != client) n = slots_of(e, client = (*at)->client);
        if (best && n >= least) continue;
        best = at;
        least = n;
    }
    return best;
}

/* How many tokens of the prompt a slot holds at its beginning. The last one is always evaluated. */
static int32_t common(const engine *e, int32_t slot, const engine_text *t) {
    const bitnet_token *held = bitnet_seq_tokens(e->ctx, slot);
    const int32_t length = bitnet_seq_length(e->ctx, slot);
    int32_t n = 0;
    while (n < length && n < t->n_prompt - 1 && held[n] == t->prompt[n]) n++;
    return n;
}

/* Takes the slot that holds most of the prompt, if it is free and little else would be lost there.
   Otherwise the slot that was not used for the longest time gets a copy of what another one holds
   of the prompt: that shares its memory. */
static int32_t choose_slot(engine *e, engine_text *t) {
    int32_t i, n, oldest = -1, from = 0, most = -1;
    t->n_cached = 0;
    for (i = 0; i < e->params.n_slots; i++) {
        n = common(e, i, t);
        if (n > t->n_cached && e->clients[i] == t->client) t->n_cached = n;
        if (n > most || (n == most && e->slots[from] && !e->slots[i])) from = i, most = n;
        if (!e->slots[i] && (oldest < 0 || e->used[i] < e->used[oldest])) oldest = i;
    }
    if (!e->slots[from] && most > 0 && 2 * most >= bitnet_seq_length(e->ctx, from)) oldest = from;
    if (oldest == from) bitnet_seq_rewind(e->ctx, oldest, most, NULL);
    else if (bitnet_seq_copy(e->ctx, from, oldest, most, NULL))
        bitnet_seq_rewind(e->ctx, oldest, 0, NULL);
    return oldest;
}

static int begin_writing(engine *e, engine_text *t) {
    const int32_t held = bitnet_seq_length(e->ctx, t->slot);
    bitnet_generate_params p;
    memset(&p, 0, sizeof p);
    p.seq = t->slot;
    p.tokens = t->prompt + held;
    p.n_tokens = t->n_prompt - held;
    p.max_tokens = t->max_tokens > 0 ? t->max_tokens : 0;
    p.sampler = &t->sampler;
    p.stop_strings = t->stops;
    p.n_stop_strings = t->n_stops;
    if (t->grammar) {
        if (bitnet_matcher_create(t->grammar, 0, &t->matcher, &t->err)) return 0;
        t->sampler.mask_fn = bitnet_matcher_mask;
        t->sampler.chosen_fn = bitnet_matcher_chosen;
        t->sampler.mask_ud = t->sampler.chosen_ud = t->matcher;
    }
    return bitnet_gen_begin(e->ctx, &p, &t->gen, &t->err) == BITNET_OK;
}

static double now(const engine *e) { return e->params.now_fn ? e->params.now_fn() : 0; }

static void start(engine *e, engine_text *t) {
    int32_t most;
    t->begun_at = now(e);
    t->slot = choose_slot(e, t);
    e->slots[t->slot] = t;
    e->clients[t->slot] = t->client;
    if (t->echo) bitnet_seq_rewind(e->ctx, t->slot, 0, NULL);    /* its logits are needed, too */
    t->n_read = bitnet_seq_length(e->ctx, t->slot);
    t->n_reused = t->n_read - bitnet_seq_again(e->ctx, t->slot);
    most = e->is_shared ? t->n_read : t->n_reused;     /* others may have left the marks */
    if (t->n_cached > most) t->n_cached = most;
    if (!t->echo && !begin_writing(e, t)) end_text(e, t, t->err.code, t->err.text);
}

/* ---- when the cache is full, or there is no memory ---- */

/* Frees what is kept for later texts. */
static int forget_kept(engine *e) {
    int32_t i, n = 0;
    for (i = 0; i < e->params.n_slots; i++)
        if (!e->slots[i]) {
            n += bitnet_seq_length(e->ctx, i);
            bitnet_seq_rewind(e->ctx, i, 0, NULL);
        }
    return n > 0;
}

/* Its owner has not been told anything of it, so it can begin again. */
static int is_untold(const engine_text *t) { return t->n_new == 0 && t->n_echoed == 0; }

/* The text that loses least: one of those that can wait, if there are any. */
static engine_text *choose_victim(const engine *e) {
    engine_text *best = 0;
    int32_t i, least = 0;
    for (i = 0; i < e->params.n_slots; i++) {
        engine_text *t = e->slots[i];
        const int32_t done = !t ? 0 : t->n_read + t->n_new;
        if (!t || (best && is_untold(best) > is_untold(t))) continue;
        if (best && is_untold(best) == is_untold(t) && done >= least) continue;
        best = t;
        least = done;
    }
    return best;
}

/* Puts a text back in front of the queue, as it was at its beginning. */
static void requeue(engine *e, engine_text *t) {
    const int32_t slot = t->slot;
    if (!is_untold(t)) t->again_fn(t);
    leave_slot(e, t);
    bitnet_seq_rewind(e->ctx, slot, 0, NULL);
    t->sampler.rng = t->rng;
    t->n_reused = t->n_read = t->n_new = t->n_echoed = 0;
    t->slot = -1;
    t->next = e->queue;
    if (!e->queue) e->queue_end = &t->next;
    e->queue = t;
    e->n_waiting++;
    e->is_crowded = 1;
}

/* First goes what is kept for later. Then a text waits until another one has ended, and meanwhile
   none begins: so in the end one has all the room. If none can wait, or there is only one, a text
   ends. */
static void make_room(engine *e, bitnet_result code, const char *why) {
    engine_text *t = forget_kept(e) ? 0 : choose_victim(e);
    if (!t) return;
    if ((is_untold(t) || t->again_fn) && engine_busy(e) > 1) requeue(e, t);
    else end_text(e, t, code, why);
}

/* ---- logarithms of probabilities ---- */

/* Those of token, in row `row` of the last pass. best has room for all. */
static void describe(engine *e, const engine_text *t, int32_t row, bitnet_token token,
                     bitnet_logprob *best, token_info *out) {
    const float *logits;
    const int32_t n = t->logprobs > 0 ? t->logprobs : 1;
    memset(out, 0, sizeof *out);
    out->token = token;
    if (t->logprobs < 0) return;       /* nobody asks: all logits are not computed */
    logits = bitnet_logits(e->ctx, row, NULL);
    if (!logits || bitnet_logprobs(e->ctx, row, best, n, NULL)) return;
    out->has_logprobs = 1;
    out->logprob = best[0].logprob + (logits[token] - logits[best[0].token]);
    out->best = best;
    out->n_best = t->logprobs;
}

/* Gives a prompt's token to its owner, which takes the text of the tokens itself. */
static void echo_token(engine *e, engine_text *t, int32_t row) {
    bitnet_logprob best[MOST_BEST];
    token_info info;
    const bitnet_token token = t->prompt[t->n_echoed];
    memset(&info, 0, sizeof info);
    info.token = token;
    if (row >= 0) describe(e, t, row, token, best, &info);
    t->n_echoed++;
    t->piece_fn(t, "", 0, &info);
}

/* Evaluates the next part of a prompt with all its logits. Returns 0 if that did not go well. */
static int echo_rows(engine *e, engine_text *t, int32_t n) {
    bitnet_input in;
    bitnet_error err;
    bitnet_result r;
    int32_t i;
    memset(&in, 0, sizeof in);
    in.seq = t->slot;
    in.tokens = t->prompt + t->n_read;
    in.n_tokens = in.n_logits = n;
    e->echoing = t;
    r = bitnet_eval_many(e->ctx, &in, 1, &err);
    e->echoing = 0;
    if (r == BITNET_ERR_FULL || r == BITNET_ERR_MEMORY) make_room(e, r, err.text);
    else if (r != BITNET_OK && r != BITNET_ERR_CANCELLED) end_text(e, t, r, err.text);
    if (r != BITNET_OK) return 0;      /* again, unless the text has ended */
    if (t->n_echoed == 0) echo_token(e, t, -1);
    for (i = 0; i < n; i++) echo_token(e, t, in.row + i);
    t->n_read += n;
    return 1;
}

/* Reads a part of a prompt that is to be echoed. The last token is left for writing. */
static void echo_part(engine *e, engine_text *t) {
    const int32_t left = t->n_prompt - 1 - t->n_read;
    if (left > 0 && !echo_rows(e, t, left < ECHO_ROWS ? left : ECHO_ROWS)) return;
    if (t->n_echoed == 0) echo_token(e, t, -1);
    if (t->n_read < t->n_prompt - 1) return;
    if (t->max_tokens == 0) {
        t->why = BITNET_STOP_LENGTH;
        end_text(e, t, BITNET_OK, "");
    } else if (!begin_writing(e, t)) end_text(e, t, t->err.code, t->err.text);
}

/* ---- a pass ---- */

/* Hands over what the last pass gave a text; ends it if that was all. */
static void take_piece(engine *e, engine_text *t) {
    bitnet_logprob best[MOST_BEST];
    bitnet_piece piece;
    token_info info;
    bitnet_gen_piece(t->gen, &piece);
    t->n_read = t->n_prompt - piece.n_prompt + piece.n_read;
    if (t->max_tokens == 0 && t->n_read == t->n_prompt) {
        t->why = BITNET_STOP_LENGTH;
        end_text(e, t, BITNET_OK, "");
        return;
    }
    if (piece.n_tokens) {
        t->last_at = now(e);
        if (t->n_new++ == 0) t->first_at = t->last_at;
        describe(e, t, piece.row, piece.tokens[0], best, &info);
    }
    if (piece.n_tokens || piece.text.size)
        t->piece_fn(t, piece.text.data, piece.text.size, piece.n_tokens ? &info : 0);
    t->why = piece.ended && !t->is_enough ? piece.why : BITNET_STOP_STRING;
    if (piece.ended || t->is_enough) end_text(e, t, BITNET_OK, "");
}

/* A text cannot go on, and nobody knows which. Each gets a pass of its own. */
static void find_culprit(engine *e) {
    bitnet_error err;
    bitnet_result r;
    int32_t i;
    for (i = 0; i < e->params.n_slots; i++) {
        engine_text *t = e->slots[i];
        if (!is_in_pass(t)) continue;
        r = bitnet_gen_next(&t->gen, 1, &err);
        if (r == BITNET_OK) take_piece(e, t);
        else if (r != BITNET_ERR_CANCELLED) end_text(e, t, r, err.text);
    }
}

/* Makes the masks of the tokens that come next. Most take a share of the steps at most. Where a
   hostile grammar needs more its text waits for its mask, and the others need not. What is written
   does not depend on it. */
static void make_masks(engine *e) {
    int32_t i, n = 0;
    for (i = 0; i < e->params.n_slots; i++) n += e->slots[i] && e->slots[i]->matcher;
    for (i = 0; i < e->params.n_slots; i++) {
        engine_text *t = e->slots[i];
        if (!t || !t->matcher) continue;
        t->mask_steps = (t->mask_steps < 0 ? t->mask_steps : 0) + MASK_STEPS / n;
        t->has_mask = bitnet_matcher_prepare(t->matcher, &t->mask_steps);
    }
}

static int write_pass(engine *e) {
    bitnet_error err;
    bitnet_result r;
    engine_text **at;
    int32_t i, n = 0, echoes = 0;
    e->now++;
    end_cancelled(e);
    while (engine_busy(e) < e->params.n_slots && (at = next_in_queue(e)) != 0 && has_room(e, *at))
        start(e, unqueue(e, at));
    for (i = 0; i < e->params.n_slots; i++)      /* first: they may end others */
        if (e->slots[i] && !e->slots[i]->gen) {
            echoes++;
            echo_part(e, e->slots[i]);
        }
    make_masks(e);
    for (i = 0; i < e->params.n_slots; i++)
        if (is_in_pass(e->slots[i])) e->gens[n++] = e->slots[i]->gen;
    if (n == 0) return echoes + (engine_busy(e) > 0 || e->n_waiting > 0);
    r = bitnet_gen_next(e->gens, n, &err);
    if (r == BITNET_ERR_CANCELLED) return n;     /* nothing has changed, and who it was ends next */
    if (r == BITNET_ERR_FULL || r == BITNET_ERR_MEMORY) make_room(e, r, err.text);
    else if (r != BITNET_OK) find_culprit(e);
    if (r != BITNET_OK) return n;
    for (i = 0; i < e->params.n_slots; i++)
        if (is_in_pass(e->slots[i])) take_piece(e, e->slots[i]);
    return n + echoes;
}

int engine_pass(engine *e) {
    const int n = e->ctx ? write_pass(e) : 0;
    return n + embed_pass(e);
}
