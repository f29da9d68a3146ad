#include "tokenizer.h"
#include "files.h"
#include "gguf_write.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

enum {                                 /* GGUF's token_type */
    TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5, TOK_BYTE = 6
};

#define TOK_TEMPLATE "chat_template.jinja"

/* By steps_kind: LLaMA 3's, Qwen's, Qwen3.5's and Falcon-E's; then those with byte fallback, which
   are not split: Gemma's, LLaMA 1's and 2's as tokenizer.json, and tokenizer.model. */
static const tok_kind tok_kinds[] = {
    {"gpt2", "llama-bpe", "zeros", 0, 1, 1},
    {"gpt2", "qwen2", 0, 1, 0, 0},
    {"gpt2", "qwen35", 0, 1, 0, 0},
    {"gpt2", "falcon_e", 0, 0, 0, 0},
    {"llama", "default", "ranks", 1, 1, 0},
    {"llama", "default", "ranks", 0, 1, 0},
    {"llama", "default", "model", 0, 1, 0}
};
enum { TOK_MODEL = STEPS_LLAMA2 + 1 };

int tok_is_bpe(const tok *t) { return !strcmp(t->kind->model, "gpt2"); }

void tok_free(tok *t) {
    json_free(&t->j);
    json_free(&t->config);
    json_free(&t->generation);
    json_free(&t->added);
    spm_free(&t->model);
    free(t->tokens);
    free(t->merges);
    free(t->types);
    free(t->scores);
    free(t->pads);
    free(t->template_file);
    memset(t, 0, sizeof *t);
}

/* A string of JSON as a C string; 0 if the node is not a string or contains a NUL. */
static const char *tok_text(const json *j, uint32_t node) {
    const json_node *s = &j->nodes[node];
    return json_kind(j, node) == JSON_STRING && strlen(j->text + s->at) == s->len
           ? j->text + s->at : 0;
}

static bitnet_result tok_fail(const tok *t, uint32_t node, const char *what, bitnet_error *err) {
    const json_node *s = &t->j.nodes[node];
    if (s->type != JSON_STRING && s->type != JSON_NUMBER)
        return set_error(err, BITNET_ERR_FORMAT, "%s: %s", t->j.name, what);
    return set_error(err, BITNET_ERR_FORMAT, "%s: JSON at offset %u, '%.*s': %s", t->j.name,
                     (unsigned)s->at, s->len < 64 ? (int)s->len : 64, t->j.text + s->at, what);
}

/* ---- tokens ---- */

static bitnet_result tok_add(tok *t, uint32_t text, uint32_t id_node, int32_t type,
                             bitnet_error *err) {
    const char *s = tok_text(&t->j, text);
    uint64_t id;
    if (!s) return tok_fail(t, text, "this is not the text of a token", err);
    if (!json_uint(&t->j, id_node, &id) || id >= t->n_tokens)
        return tok_fail(t, text, "its id is not in 0 .. vocab_size - 1 of config.json", err);
    if (t->tokens[id] && (type == TOK_NORMAL || strcmp(t->tokens[id], s)))
        return tok_fail(t, text, "another token has its id", err);
    t->tokens[id] = s;                 /* an added token may be in the vocabulary too */
    t->types[id] = type;
    return BITNET_OK;
}

/* Does it look like <x> or [x]? */
static int tok_looks_special(const char *s) {
    const size_t n = strlen(s);
    return n > 0 && strchr("<[", s[0]) && strchr(">]", s[n - 1]);
}

/* Other kinds' added tokens must fit into the model. Gemma's smallest models lack the rows of the
   tokens for images, which come last. */
static bitnet_result tok_read_added(tok *t, bitnet_error *err) {
    const json *j = &t->j;
    const uint32_t added = json_get(j, JSON_ROOT, "added_tokens");
    uint32_t node, i;
    bitnet_result r;
    if (added && json_kind(j, added) != JSON_ARRAY)
        return tok_fail(t, 0, "added_tokens is not an array", err);
    for (i = 0, node = added + 1; added && i < j->nodes[added].n; i++, node = j->nodes[node].next) {
        const uint32_t special = json_get(j, node, "special"), id = json_get(j, node, "id");
        const uint32_t content = json_get(j, node, "content");
        const char *s = tok_text(j, content);
        char path[32];
        const int control = (special && json_kind(j, special) == JSON_TRUE) ||
                            (s && t->kind->looks && tok_looks_special(s));
        uint64_t v;
        if (t->kind == &tok_kinds[STEPS_GEMMA] && json_uint(j, id, &v) && v >= t->n_tokens) {
            t->n_beyond++;
            continue;
        }
        snprintf(path, sizeof path, "added_tokens[%u]", (unsigned)i);
        if ((r = steps_check_added(j, node, path, t->steps, err)) ||
            (r = tok_add(t, content, id, control ? TOK_CONTROL : TOK_USER, err))) return r;
    }
    return BITNET_OK;
}

/* SentencePiece writes the bytes that no token has as <0x0A>, and characters that not even bytes
   can replace as the unknown token. Gemma's is a control token in the published files. */
static void tok_find_bytes(tok *t) {
    static const char hex[] = "0123456789ABCDEF";
    const uint32_t model = json_get(&t->j, JSON_ROOT, "model");
    const char *unknown = t->kind == &tok_kinds[STEPS_LLAMA2]
                          ? tok_text(&t->j, json_get(&t->j, model, "unk_token")) : 0;
    uint32_t i;
    for (i = 0; i < t->n_tokens; i++) {
        const char *s = t->tokens[i];
        if (unknown && !strcmp(s, unknown)) t->types[i] = TOK_UNKNOWN;
        if (t->types[i] != TOK_NORMAL) continue;
        if (!strcmp(s, "<unk>")) t->types[i] = TOK_UNKNOWN;
        if (strlen(s) == 6 && !memcmp(s, "<0x", 3) && strchr(hex, s[3]) && strchr(hex, s[4]) &&
            s[5] == '>') t->types[i] = TOK_BYTE;
    }
}

/* Ids over the highest one that a token has are padding; there may be no others without a token. */
static bitnet_result tok_fill(tok *t, bitnet_error *err) {
    uint32_t n, i;
    for (n = t->n_tokens; n > 0 && !t->tokens[n - 1];) n--;
    for (i = 0; i < n; i++)
        if (!t->tokens[i])
            return set_error(err, BITNET_ERR_FORMAT, "%s: no token has the id %u, but some "
                             "have higher ids", t->j.name, (unsigned)i);
    for (; i < t->n_tokens; i++) {
        snprintf(t->pads[i], sizeof t->pads[i], "[PAD%u]", (unsigned)i);
        t->tokens[i] = t->pads[i];
        t->types[i] = TOK_UNUSED;
    }
    return BITNET_OK;
}

static bitnet_result tok_read_tokens(tok *t, bitnet_error *err) {
    const json *j = &t->j;
    const uint32_t vocab = json_get(j, json_get(j, JSON_ROOT, "model"), "vocab");
    uint32_t node, i;
    bitnet_result r;
    if (!vocab || json_kind(j, vocab) != JSON_OBJECT)
        return tok_fail(t, 0, "there is no model.vocab", err);
    for (i = 0, node = vocab + 1; i < j->nodes[vocab].n; i++, node = j->nodes[node + 1].next)
        if ((r = tok_add(t, node, node + 1, TOK_NORMAL, err))) return r;
    if ((r = tok_read_added(t, err)) || (r = tok_fill(t, err))) return r;
    if (!tok_is_bpe(t)) tok_find_bytes(t);
    return BITNET_OK;
}

/* ---- tokenizer.model ---- */

/* Adds a token that tokenizer.model lacks, or makes one of its tokens special. */
static bitnet_result tok_add_to_model(tok *t, const json *j, uint32_t text, uint64_t id,
                                      int special, bitnet_error *err) {
    const char *s = tok_text(j, text);
    if (!s || !*s || id >= t->n_tokens)
        return set_error(err, BITNET_ERR_FORMAT, "%s: the added token '%.64s' is no text, or its "
                         "id is not in 0 .. vocab_size - 1 of config.json", j->name, s ? s : "?");
    if (t->tokens[id] && strcmp(t->tokens[id], s))
        return set_error(err, BITNET_ERR_FORMAT, "%s: the added token '%.64s' has the id of "
                         "'%.64s'", j->name, s, t->tokens[id]);
    if (!t->tokens[id] || t->types[id] == TOK_NORMAL || t->types[id] == TOK_USER)
        t->types[id] = special ? TOK_CONTROL : TOK_USER;
    t->tokens[id] = s;
    return BITNET_OK;
}

/* added_tokens.json is {"text": id}; added_tokens_decoder of tokenizer_config.json, which has the
   last word, {"id": {"content": "text", "special": true}}. */
static bitnet_result tok_read_later(tok *t, bitnet_error *err) {
    const json *j = &t->added;
    const uint32_t decoder = json_get(&t->config, JSON_ROOT, "added_tokens_decoder");
    uint32_t node = JSON_ROOT + 1, i;
    uint64_t id;
    bitnet_result r;
    if (json_kind(j, JSON_ROOT) != JSON_OBJECT && j->n_nodes)
        return json_fail(j, 0, "this is not an object", err);
    for (i = 0; j->n_nodes && i < j->nodes[JSON_ROOT].n; i++, node = j->nodes[node + 1].next)
        if ((r = tok_add_to_model(t, j, node, json_uint(j, node + 1, &id) ? id : TOK_MAX, 0, err)))
            return r;
    j = &t->config;
    if (json_kind(j, decoder) != JSON_OBJECT) return BITNET_OK;
    for (i = 0, node = decoder + 1; i < j->nodes[decoder].n; i++, node = j->nodes[node + 1].next) {
        const char *key = j->text + j->nodes[node].at;
        char *end;
        id = strtoul(key, &end, 10);
        if (*key < '0' || *key > '9' || *end) id = TOK_MAX;
        r = tok_add_to_model(t, j, json_get(j, node + 1, "content"), id,
                             json_kind(j, json_get(j, node + 1, "special")) == JSON_TRUE, err);
        if (r) return r;
    }
    return BITNET_OK;
}

/* Reads tokenizer.model, which f is at the start of, and what was added to it later. */
static bitnet_result tok_read_model(tok *t, const char *dir, FILE *f, uint64_t size,
                                    bitnet_error *err) {
    char *bytes = 0;
    uint32_t i;
    bitnet_result r;
    snprintf(t->j.name, sizeof t->j.name, "tokenizer.model");
    t->kind = &tok_kinds[TOK_MODEL];
    t->pre = t->kind->pre;
    if (size > JSON_MAX_BYTES)
        return set_error(err, BITNET_ERR_LIMIT, "%s: %llu bytes are too many", t->j.name,
                         (unsigned long long)size);
    r = file_read(f, t->j.name, (size_t)size, &bytes, err);
    if (r) free(bytes);
    if (r || (r = spm_parse(&t->model, t->j.name, bytes, (size_t)size, err)) ||
        (r = file_load_json(dir, "added_tokens.json", 1, &t->added, err))) return r;
    if (t->model.n_pieces > t->n_tokens)
        return set_error(err, BITNET_ERR_FORMAT, "%s: it has %u tokens, more than vocab_size of "
                         "config.json", t->j.name, (unsigned)t->model.n_pieces);
    for (i = 0; i < t->model.n_pieces; i++) {
        t->tokens[i] = t->model.pieces[i].text;
        t->types[i] = t->model.pieces[i].type;
    }
    t->space_prefix = t->model.space_prefix;
    r = tok_read_later(t, err);
    return r ? r : tok_fill(t, err);
}

int64_t tok_find(const tok *t, const char *text) {
    uint32_t i;
    for (i = 0; i < t->n_tokens; i++)
        if (!strcmp(t->tokens[i], text)) return i;
    return -1;
}

/* ---- merges: "a b", or ["a", "b"], which becomes "a b" in place ---- */

static bitnet_result tok_read_merges(tok *t, bitnet_error *err) {
    const json *j = &t->j;
    const uint32_t merges = json_get(j, json_get(j, JSON_ROOT, "model"), "merges");
    uint32_t node = merges + 1, i;
    if (!merges || json_kind(j, merges) != JSON_ARRAY || !j->nodes[merges].n)
        return tok_fail(t, 0, "there are no merges", err);
    t->n_merges = j->nodes[merges].n;
    if (!(t->merges = (const char **)calloc(t->n_merges, sizeof *t->merges)))
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for its merges", j->name);
    for (i = 0; i < t->n_merges; i++, node = j->nodes[node].next) {
        uint32_t pair = json_kind(j, node) == JSON_ARRAY, text = node + pair;
        const char *a = tok_text(j, text), *b, *blank;
        if (pair) {
            b = j->nodes[node].n == 2 && a ? tok_text(j, text + 1) : 0;
            if (!b || strchr(a, ' ')) a = 0;
            else {                     /* between them were two quotes and a comma */
                j->text[j->nodes[text].at + j->nodes[text].len] = ' ';
                memmove(j->text + j->nodes[text].at + j->nodes[text].len + 1, b, strlen(b) + 1);
            }
        }
        blank = a ? strchr(a, ' ') : 0;
        if (!blank || blank == a || !blank[1] || strchr(blank + 1, ' '))
            return tok_fail(t, text, "this merge is not two tokens", err);
        t->merges[i] = a;
    }
    return BITNET_OK;
}

/* ---- ignore_merges ----

   With it a piece that is a token is not merged, and without it becomes what its merges make. That
   is the same if the merges make every token of its characters, as those of a trained vocabulary
   do. */

enum { TOK_LONGEST = 512 };            /* characters of a token that is checked */

typedef struct tok_pair { const char *text; uint32_t rank; } tok_pair;

static int tok_by_pair(const void *a, const void *b) {
    const tok_pair *x = (const tok_pair *)a, *y = (const tok_pair *)b;
    const int order = strcmp(x->text, y->text);
    return order ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The rank of the merge of a[0 .. n) and b[0 .. m), which are neighbours; UINT32_MAX: none. */
static uint32_t tok_pair_rank(const tok *t, const tok_pair *sorted, const char *a, size_t n,
                              const char *b, size_t m) {
    uint32_t low = 0, high = t->n_merges;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const char *text = sorted[middle].text;
        int order = strncmp(text, a, n);
        if (!order) order = (uint8_t)text[n] - ' ';
        if (!order) order = strncmp(text + n + 1, b, m);
        if (!order) order = text[n + 1 + m] != 0;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    if (low == t->n_merges || strncmp(sorted[low].text, a, n) || sorted[low].text[n] != ' ' ||
        strncmp(sorted[low].text + n + 1, b, m) || sorted[low].text[n + 1 + m])
        return UINT32_MAX;
    return sorted[low].rank;
}

/* Do the merges make one token of the text's characters? */
static int tok_is_made(const tok *t, const tok_pair *sorted, const char *text) {
    size_t at[TOK_LONGEST + 1], n = 0, i, best;
    uint32_t ranks[TOK_LONGEST];       /* of the pair that begins with this part */
    for (i = 0; text[i]; i++) {
        if (((uint8_t)text[i] & 0xC0) == 0x80) continue;
        if (n == TOK_LONGEST) return 0;
        at[n++] = i;
    }
    at[n] = i;
    for (i = 0; i < n; i++) ranks[i] = UINT32_MAX;
    for (i = 0; i + 1 < n; i++)
        ranks[i] = tok_pair_rank(t, sorted, text + at[i], at[i + 1] - at[i], text + at[i + 1],
                                 at[i + 2] - at[i + 1]);
    while (n > 1) {
        for (i = best = 0; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == UINT32_MAX) return 0;
        memmove(at + best + 1, at + best + 2, (n - best - 1) * sizeof *at);
        memmove(ranks + best, ranks + best + 1, (n - best - 1) * sizeof *ranks);
        n--;
        ranks[n - 1] = UINT32_MAX;
        for (i = best ? best - 1 : 0; i <= best && i + 1 < n; i++)
            ranks[i] = tok_pair_rank(t, sorted, text + at[i], at[i + 1] - at[i], text + at[i + 1],
                                     at[i + 2] - at[i + 1]);
    }
    return 1;
}

static bitnet_result tok_check_whole(const tok *t, bitnet_error *err) {
    const uint32_t model = json_get(&t->j, JSON_ROOT, "model");
    const int whole = json_kind(&t->j, json_get(&t->j, model, "ignore_merges")) == JSON_TRUE;
    tok_pair *sorted;
    uint32_t i;
    if (!t->n_merges || whole == t->kind->whole || t->pre != t->kind->pre) return BITNET_OK;
    if (!(sorted = (tok_pair *)malloc(t->n_merges * sizeof *sorted)))
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory to sort its merges", t->j.name);
    for (i = 0; i < t->n_merges; i++) {
        sorted[i].text = t->merges[i];
        sorted[i].rank = i;
    }
    qsort(sorted, t->n_merges, sizeof *sorted, tok_by_pair);
    for (i = 0; i < t->n_tokens; i++)
        if (t->types[i] == TOK_NORMAL && !tok_is_made(t, sorted, t->tokens[i])) break;
    free(sorted);
    return i == t->n_tokens ? BITNET_OK
           : set_error(err, BITNET_ERR_UNSUPPORTED, "%s: model.ignore_merges is %s, but only %s is "
                       "supported, and that is not the same: no merges make the token '%.64s'",
                       t->j.name, whole ? "true" : "false", whole ? "false" : "true",
                       t->tokens[i]);
}

/* ---- scores ---- */

typedef struct tok_entry { const char *text; uint32_t id; } tok_entry;

static int tok_by_text(const void *a, const void *b) {
    const tok_entry *x = (const tok_entry *)a, *y = (const tok_entry *)b;
    const int order = strcmp(x->text, y->text);
    return order ? order : x->id < y->id ? -1 : x->id > y->id;
}

/* Compares the text of an entry with those of a merge, "left right", without the blank. */
static int tok_order(const char *text, const char *merge) {
    for (; *text || *merge; text++, merge++) {
        if (*merge == ' ') merge++;
        if (*text != *merge) return (uint8_t)*text < (uint8_t)*merge ? -1 : 1;
    }
    return 0;
}

/* The token that a merge makes, among all of them sorted; TOK_MAX: none. */
static uint32_t tok_merged(const tok_entry *sorted, uint32_t n, const char *merge) {
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (tok_order(sorted[middle].text, merge) < 0) low = middle + 1;
        else high = middle;
    }
    return low < n && !tok_order(sorted[low].text, merge) ? sorted[low].id : TOK_MAX;
}

/* Minus the rank of the first merge that makes the token; 0 for characters and bytes. */
static bitnet_result tok_rank(tok *t, bitnet_error *err) {
    tok_entry *sorted = (tok_entry *)malloc(t->n_tokens * sizeof *sorted);
    uint32_t i, id;
    if (!sorted)
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory to rank its tokens", t->j.name);
    for (i = 0; i < t->n_tokens; i++) {
        sorted[i].text = t->tokens[i];
        sorted[i].id = i;
    }
    qsort(sorted, t->n_tokens, sizeof *sorted, tok_by_text);
    for (i = t->n_merges; i-- > 0;) {              /* the first merge has the last word */
        id = tok_merged(sorted, t->n_tokens, t->merges[i]);
        if (id == TOK_MAX) break;
        t->scores[id] = -(float)i;
    }
    free(sorted);
    if (i != UINT32_MAX)
        return set_error(err, BITNET_ERR_FORMAT, "%s: merge %u, '%.64s': its result is not a token",
                         t->j.name, (unsigned)i, t->merges[i]);
    return BITNET_OK;
}

/* What the published files have for tokens that no text is merged to. */
static void tok_score_others(tok *t) {
    uint32_t i;
    for (i = 0; i < t->n_tokens; i++)
        if (t->types[i] != TOK_NORMAL)
            t->scores[i] = t->types[i] == TOK_UNUSED ? -10000.0f :
                           t->types[i] == TOK_CONTROL || t->types[i] == TOK_USER ? -1000.0f : 0;
}

static bitnet_result tok_make_scores(tok *t, bitnet_error *err) {
    uint32_t i;
    bitnet_result r;
    if (!t->kind->scores) return BITNET_OK;
    t->scores = (float *)calloc(t->n_tokens, sizeof *t->scores);
    if (!t->scores)
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for the scores of its tokens",
                         t->j.name);
    if (!strcmp(t->kind->scores, "zeros")) return BITNET_OK;
    if (!strcmp(t->kind->scores, "ranks") && (r = tok_rank(t, err))) return r;
    tok_score_others(t);
    for (i = 0; i < t->model.n_pieces; i++) t->scores[i] = t->model.pieces[i].score;
    return BITNET_OK;
}

/* ---- the kind of tokenizer ---- */

static bitnet_result tok_check_kind(tok *t, const char *pre, bitnet_error *err) {
    steps_kind kind = STEPS_LLAMA3;
    bitnet_result r;
    int i;
    for (i = STEPS_LLAMA3; pre && i < STEPS_GEMMA; i++)
        if (!strcmp(pre, tok_kinds[i].pre)) kind = (steps_kind)i;
    if ((r = steps_check(&t->j, pre != 0, &kind, err))) return r;
    t->steps = kind;
    t->kind = &tok_kinds[kind];
    t->pre = pre ? pre : t->kind->pre;
    t->space_prefix = kind == STEPS_LLAMA2;
    return BITNET_OK;
}

/* ---- can bitnet.h read it? ---- */

typedef struct tok_buffer { uint8_t *p; size_t n, room; } tok_buffer;

static int tok_write(void *ud, const void *p, size_t n) {
    tok_buffer *b = (tok_buffer *)ud;
    if (n > b->room - b->n) {
        const size_t room = 2 * (b->n + n) + 4096;
        uint8_t *more = (uint8_t *)realloc(b->p, room);
        if (!more) return 1;
        b->p = more;
        b->room = room;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    return 0;
}

void tok_write_keys(const tok *t, const char *pre, gguf_writer *w) {
    gguf_add_string(w, "tokenizer.ggml.model", t->kind->model);
    gguf_add_string(w, "tokenizer.ggml.pre", pre);
    gguf_add_strings(w, "tokenizer.ggml.tokens", t->tokens, 0, t->n_tokens);
    if (t->scores) gguf_add_f32s(w, "tokenizer.ggml.scores", t->scores, t->n_tokens);
    gguf_add_i32s(w, "tokenizer.ggml.token_type", t->types, t->n_tokens);
    if (tok_is_bpe(t))
        gguf_add_strings(w, "tokenizer.ggml.merges", t->merges, 0, t->n_merges);
}

/* A file with the tokenizer and the smallest model that bitnet.h loads: one layer, rows of 64. */
static bitnet_result tok_write_probe(const tok *t, gguf_writer *w) {
    enum { DIM = 64, N_TENSORS = 11 };
    static const struct { const char *name; uint32_t type; int cols, rows; } tensors[N_TENSORS] = {
        {"token_embd.weight", BITNET_TENSOR_Q4_0, DIM, 0},       /* as many rows as tokens */
        {"output_norm.weight", BITNET_TENSOR_F32, DIM, 1},
        {"blk.0.attn_norm.weight", BITNET_TENSOR_F32, DIM, 1},
        {"blk.0.ffn_norm.weight", BITNET_TENSOR_F32, DIM, 1},
        {"blk.0.attn_q.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.attn_k.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.attn_v.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.attn_output.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.ffn_gate.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.ffn_up.weight", BITNET_TENSOR_I2_S, DIM, DIM},
        {"blk.0.ffn_down.weight", BITNET_TENSOR_I2_S, DIM, DIM}
    };
    static const uint8_t one[32] = {0, 0, 0x80, 0x3f};           /* a scale of 1.0 */
    static const uint8_t zeros[DIM / 32 * 18 * 1024] = {0};
    uint64_t dims[2];
    int i;
    gguf_add_string(w, "general.architecture", "llama");
    gguf_add_u32(w, "llama.context_length", 1);
    gguf_add_u32(w, "llama.embedding_length", DIM);
    gguf_add_u32(w, "llama.block_count", 1);
    gguf_add_u32(w, "llama.feed_forward_length", DIM);
    gguf_add_u32(w, "llama.attention.head_count", 1);
    gguf_add_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    tok_write_keys(t, t->kind->pre, w);   /* one that bitnet.h knows, with any --pre */
    for (i = 0; i < N_TENSORS; i++) {
        dims[0] = (uint64_t)tensors[i].cols;
        dims[1] = tensors[i].rows ? (uint64_t)tensors[i].rows : t->n_tokens;
        gguf_add_tensor(w, tensors[i].name, tensors[i].type, 2, dims);
    }
    gguf_write_header(w);
    for (i = 0; i < N_TENSORS; i++) {
        uint64_t left;
        dims[0] = (uint64_t)tensors[i].cols;
        dims[1] = tensors[i].rows ? (uint64_t)tensors[i].rows : t->n_tokens;
        left = bitnet_tensor_size(tensors[i].type, 2, dims);
        if (tensors[i].type == BITNET_TENSOR_I2_S) left -= sizeof one;
        while (left > 0 && !w->err.code) {
            const size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
            gguf_write_data(w, zeros, n);
            left -= n;
        }
        if (tensors[i].type == BITNET_TENSOR_I2_S) gguf_write_data(w, one, sizeof one);
    }
    return gguf_write_end(w);
}

/* Tokens and merges can be wrong in many ways, which bitnet.h checks when it loads a model: let it
   load one that has them. */
static bitnet_result tok_check(const tok *t, bitnet_error *err) {
    tok_buffer file = {0, 0, 0};
    bitnet_model *m = 0;
    bitnet_error why = {0};
    gguf_writer w;
    bitnet_result r;
    memset(&w, 0, sizeof w);
    w.write_fn = tok_write;
    w.ud = &file;
    r = tok_write_probe(t, &w);
    if (r == BITNET_ERR_IO) r = set_error(&why, BITNET_ERR_MEMORY, "no memory to check its tokens");
    else if (r) why = w.err;
    else r = bitnet_model_load_memory(file.p, file.n, 0, &m, &why);
    bitnet_model_free(m);
    free(file.p);
    return r ? set_error(err, r, "%s: %s", t->j.name, why.text) : BITNET_OK;
}

/* ---- tokenizer_config.json ---- */

/* The id of a special token: config.json gives its number, or tokenizer_config.json its text, as a
   string or as the "content" of an object. *out stays as it is if neither does. Nothing depends on
   a padding token: one that does not exist (-1, vocab_size) is left out. */
static bitnet_result tok_special(const tok *t, const json *model, const char *key, int64_t *out,
                                 bitnet_error *err) {
    const json *j = &t->config;
    const int optional = !strcmp(key, "pad_token");
    char id_key[32];
    const char *text;
    uint32_t node;
    uint64_t id;
    snprintf(id_key, sizeof id_key, "%s_id", key);
    if ((node = json_get(model, JSON_ROOT, id_key)) != 0) {
        const int several = json_kind(model, node) == JSON_ARRAY && model->nodes[node].n > 0;
        const int ok = json_uint(model, several ? node + 1 : node, &id) && id < t->n_tokens;
        if (!ok && !optional)
            return set_error(err, BITNET_ERR_FORMAT, "%s: %s is not the id of a token", model->name,
                             id_key);
        if (ok) *out = (int64_t)id;
        if (ok) return BITNET_OK;
    }
    node = json_get(j, JSON_ROOT, key);
    if (node && json_kind(j, node) == JSON_OBJECT) node = json_get(j, node, "content");
    if (!node) return BITNET_OK;
    text = tok_text(j, node);
    *out = text ? tok_find(t, text) : -1;
    return *out >= 0 || optional
           ? BITNET_OK : set_error(err, BITNET_ERR_FORMAT, "%s: no token has the text of %s",
                                   j->name, key);
}

/* The tokens that end a text: where Hugging Face's generation_config.json names some, not those of
   config.json. The first one is EOS. */
static bitnet_result tok_read_ends(tok *t, const json *model, bitnet_error *err) {
    const json *j = json_get(&t->generation, JSON_ROOT, "eos_token_id") ? &t->generation : model;
    const uint32_t list = json_get(j, JSON_ROOT, "eos_token_id");
    const uint32_t n = list && json_kind(j, list) == JSON_ARRAY ? j->nodes[list].n : 0;
    uint32_t i, node = list + 1;
    bitnet_result r = tok_special(t, j, "eos_token", &t->eos, err);
    if (!r && n > TOK_ENDS)
        r = set_error(err, BITNET_ERR_LIMIT, "%s: eos_token_id has more than %d tokens", j->name,
                      (int)TOK_ENDS);
    for (i = 0; i < n && !r; i++, node = j->nodes[node].next) {
        uint64_t id;
        if (!json_uint(j, node, &id) || id >= t->n_tokens)
            r = set_error(err, BITNET_ERR_FORMAT, "%s: eos_token_id[%u] is not the id of a token",
                          j->name, (unsigned)i);
        else t->end_ids[t->n_end_ids++] = (int32_t)id;
    }
    return r;
}

/* ---- what is put around a text ---- */

/* The token that a SpecialToken of the frame stands for: the ids in special_tokens, of which there
   must be one, or else the token of that name. -1: none. */
static int64_t tok_special_id(const tok *t, uint32_t id, uint32_t specials) {
    const json *j = &t->j;
    const char *text = tok_text(j, id);
    const uint32_t ids = text ? json_get(j, json_get(j, specials, text), "ids") : 0;
    uint64_t v;
    if (!ids) return text ? tok_find(t, text) : -1;
    return json_kind(j, ids) == JSON_ARRAY && j->nodes[ids].n == 1 && json_uint(j, ids + 1, &v) &&
           v < t->n_tokens ? (int64_t)v : -1;
}

/* Reads what tokenizer.json puts around a single text, [bos, text, eos], of which bos and eos may
   be missing: out[0] is the token in front, out[1] the one behind; -1: none. *there: is there such
   a frame? */
static bitnet_result tok_read_frame(const tok *t, int64_t out[2], int *there, bitnet_error *err) {
    const json *j = &t->j;
    uint32_t specials = 0, frame = steps_find_frame(j, &specials), node = frame + 1, i, behind = 0;
    out[0] = out[1] = -1;
    *there = frame != 0;
    if (frame && json_kind(j, frame) != JSON_ARRAY)
        return tok_fail(t, frame, "single of the post_processor is not an array", err);
    for (i = 0; frame && i < j->nodes[frame].n; i++, node = j->nodes[node].next) {
        const uint32_t id = json_get(j, json_get(j, node, "SpecialToken"), "id");
        if (json_get(j, node, "Sequence") && !behind) {
            behind = 1;
            continue;
        }
        if (json_get(j, node, "Sequence") || out[behind] >= 0)
            return tok_fail(t, id, "the post_processor puts two tokens on a side of a text, or two "
                            "texts", err);
        out[behind] = tok_special_id(t, id, specials);
        if (out[behind] < 0)
            return tok_fail(t, id, "the post_processor puts around a text what is not one token",
                            err);
    }
    return frame && !behind ? tok_fail(t, 0, "the post_processor leaves out the text", err)
                            : BITNET_OK;
}

/* tokenizer_config.json says whether a token is put there, else tokenizer.json, else the kind. */
static int tok_flag(const tok *t, const char *key, int other) {
    const uint32_t node = json_get(&t->config, JSON_ROOT, key);
    return node ? json_kind(&t->config, node) == JSON_TRUE : other;
}

static void tok_note(tok *t, const char *text) { t->notes[t->n_notes++] = text; }

/* Where the two differ, newer versions of transformers and the classes of LLaMA and Gemma follow
   tokenizer_config.json. */
static bitnet_result tok_read_flags(tok *t, bitnet_error *err) {
    int64_t around[2];
    int there, i;
    const bitnet_result r = tok_read_frame(t, around, &there, err);
    if (r) return r;
    if (!tok_is_bpe(t)) t->space_prefix = tok_flag(t, "add_prefix_space", t->space_prefix);
    t->add_bos = tok_flag(t, "add_bos_token", there ? around[0] >= 0 : t->kind->add_bos);
    t->says_bos = there || json_get(&t->config, JSON_ROOT, "add_bos_token");
    t->add_eos = tok_flag(t, "add_eos_token", around[1] >= 0);
    t->ends = around[1] >= 0;
    if (t->add_bos && around[0] >= 0) t->bos = around[0];
    if (t->ends) t->eos = around[1];
    for (i = 0; there && i < 2; i++)
        if ((i ? t->add_eos : t->add_bos) != (around[i] >= 0))
            tok_note(t, i ? "tokenizer.json differs from tokenizer_config.json in whether EOS is "
                            "added; the latter is followed"
                          : "tokenizer.json differs from tokenizer_config.json in whether BOS is "
                            "added; the latter is followed");
    return BITNET_OK;
}

static int tok_is_blank(const char *text) { return !text[strspn(text, " \t\r\n")]; }

/* Reads the file that newer models have; template_text stays 0 if there is none, or a blank one. */
static bitnet_result tok_read_template_file(tok *t, const char *dir, bitnet_error *err) {
    uint64_t size;
    FILE *f;
    bitnet_result r = file_open(dir, TOK_TEMPLATE, 1, &f, &size, err);
    if (!f) return r;
    if (size < 1 << 20)
        r = file_read(f, TOK_TEMPLATE, (size_t)size, &t->template_file, err);
    fclose(f);
    if (r) return r;
    if (!t->template_file || strlen(t->template_file) != size)
        return set_error(err, BITNET_ERR_FORMAT, TOK_TEMPLATE " is not a text of under 1 MB");
    if (!tok_is_blank(t->template_file)) t->template_text = t->template_file;
    return BITNET_OK;
}

/* As Hugging Face does: the file, else chat_template of tokenizer_config.json, a string or a list
   of {"name", "template"} of which "default" is taken. */
static bitnet_result tok_read_template(tok *t, const char *dir, bitnet_error *err) {
    const json *j = &t->config;
    uint32_t node = json_get(j, JSON_ROOT, "chat_template"), i, n, item;
    const bitnet_result r = tok_read_template_file(t, dir, err);
    if (r || t->template_text || !node) {
        if (!r && !t->template_text && file_exists(dir, "chat_template.json"))
            tok_note(t, "chat_template.json is for processors of images and is not read: the file "
                        "has no chat template");
        return r;
    }
    if (json_kind(j, node) == JSON_ARRAY) {
        n = j->nodes[node].n;
        for (i = 0, item = node + 1, node = 0; i < n; i++, item = j->nodes[item].next)
            if (json_is(j, json_get(j, item, "name"), "default"))
                node = json_get(j, item, "template");
        if (!node) {
            tok_note(t, "chat_template of tokenizer_config.json is a list without 'default': the "
                        "file has no chat template");
            return BITNET_OK;
        }
    }
    if (!(t->template_text = tok_text(j, node)))
        return set_error(err, BITNET_ERR_FORMAT, "%s: chat_template is not a string", j->name);
    if (tok_is_blank(t->template_text)) t->template_text = 0;
    return BITNET_OK;
}

/* transformers lets added_tokens_decoder of tokenizer_config.json change the tokens' flags. */
static bitnet_result tok_check_flags(const tok *t, bitnet_error *err) {
    const json *j = &t->config;
    const uint32_t decoder = json_get(j, JSON_ROOT, "added_tokens_decoder");
    uint32_t node = decoder + 1, i;
    char path[64];
    bitnet_result r = BITNET_OK;
    if (json_kind(j, decoder) != JSON_OBJECT) return BITNET_OK;
    for (i = 0; i < j->nodes[decoder].n && !r; i++, node = j->nodes[node + 1].next) {
        snprintf(path, sizeof path, "added_tokens_decoder.%.16s", j->text + j->nodes[node].at);
        r = steps_check_added(j, node + 1, path, t->steps, err);
    }
    return r;
}

/* Reads tokens, types and scores, of tokenizer.json or else of tokenizer.model. */
static bitnet_result tok_read_vocabulary(tok *t, const char *dir, const char *pre,
                                         bitnet_error *err) {
    uint64_t size;
    FILE *f = 0;
    bitnet_result r = file_load_json(dir, "tokenizer.json", 1, &t->j, err);
    if (r) return r;
    if (!t->j.n_nodes && (r = file_open(dir, "tokenizer.model", 1, &f, &size, err))) return r;
    if (f) {
        r = pre ? set_error(err, BITNET_ERR_UNSUPPORTED, "tokenizer.model: --pre is for byte-level "
                            "BPE, and this is SentencePiece")
                : tok_read_model(t, dir, f, size, err);
        fclose(f);
    } else if (!t->j.n_nodes) {
        return set_error(err, BITNET_ERR_IO, "there is neither tokenizer.json nor tokenizer.model");
    } else if (!(r = tok_check_kind(t, pre, err)) && !(r = tok_read_tokens(t, err))) {
        r = tok_read_merges(t, err);
    }
    return r ? r : tok_make_scores(t, err);
}

bitnet_result tok_open(tok *t, const char *dir, const json *model, uint64_t n_vocab,
                       const char *pre, bitnet_error *err) {
    bitnet_result r;
    memset(t, 0, sizeof *t);
    if (n_vocab < 1 || n_vocab > TOK_MAX)
        return set_error(err, BITNET_ERR_LIMIT, "%s: vocab_size is not from 1 to %d",
                         model->name, (int)TOK_MAX);
    t->n_tokens = (uint32_t)n_vocab;
    t->tokens = (const char **)calloc(t->n_tokens, sizeof *t->tokens);
    t->types = (int32_t *)calloc(t->n_tokens, sizeof *t->types);
    t->pads = (char (*)[16])calloc(t->n_tokens, sizeof *t->pads);
    if (!t->tokens || !t->types || !t->pads)
        return set_error(err, BITNET_ERR_MEMORY, "no memory for %u tokens",
                         (unsigned)t->n_tokens);
    if ((r = file_load_json(dir, "tokenizer_config.json", 1, &t->config, err)) ||
        (r = file_load_json(dir, "generation_config.json", 1, &t->generation, err)) ||
        (r = tok_read_vocabulary(t, dir, pre, err)) || (r = tok_check_flags(t, err)) ||
        (r = tok_check(t, err)) || (r = tok_check_whole(t, err))) return r;
    t->bos = t->eos = t->pad = t->unk = -1;
    if (t->model.n_pieces) {
        t->bos = t->model.bos;
        t->eos = t->model.eos;
        t->pad = t->model.pad;
        t->unk = t->model.unk;
    }
    if ((r = tok_special(t, model, "bos_token", &t->bos, err)) ||
        (r = tok_read_ends(t, model, err)) ||
        (r = tok_special(t, model, "pad_token", &t->pad, err)) ||
        (!tok_is_bpe(t) && (r = tok_special(t, model, "unk_token", &t->unk, err))) ||
        (r = tok_read_flags(t, err))) return r;
    return tok_read_template(t, dir, err);
}
