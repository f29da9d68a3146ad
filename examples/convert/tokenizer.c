#include "tokenizer.h"
#include "files.h"
#include "gguf_write.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

enum { TOK_NORMAL = 1, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5 };   /* GGUF's token_type */

void tok_free(tok *t) {
    json_free(&t->j);
    json_free(&t->config);
    free(t->tokens);
    free(t->merges);
    free(t->types);
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

static bitnet_result tok_read_tokens(tok *t, bitnet_error *err) {
    const json *j = &t->j;
    const uint32_t vocab = json_get(j, json_get(j, JSON_ROOT, "model"), "vocab");
    const uint32_t added = json_get(j, JSON_ROOT, "added_tokens");
    uint32_t node, i, n;
    bitnet_result r;
    if (!vocab || json_kind(j, vocab) != JSON_OBJECT)
        return tok_fail(t, 0, "there is no model.vocab", err);
    for (i = 0, node = vocab + 1; i < j->nodes[vocab].n; i++, node = j->nodes[node + 1].next)
        if ((r = tok_add(t, node, node + 1, TOK_NORMAL, err))) return r;
    if (added && json_kind(j, added) != JSON_ARRAY)
        return tok_fail(t, 0, "added_tokens is not an array", err);
    for (i = 0, node = added + 1; added && i < j->nodes[added].n; i++, node = j->nodes[node].next) {
        const uint32_t special = json_get(j, node, "special");
        r = tok_add(t, json_get(j, node, "content"), json_get(j, node, "id"),
                    special && json_kind(j, special) == JSON_TRUE ? TOK_CONTROL : TOK_USER, err);
        if (r) return r;
    }
    for (n = t->n_tokens; n > 0 && !t->tokens[n - 1];) n--;
    for (i = 0; i < n; i++)
        if (!t->tokens[i])
            return set_error(err, BITNET_ERR_FORMAT, "%s: no token has the id %u, but some "
                             "have higher ids", j->name, (unsigned)i);
    for (; i < t->n_tokens; i++) {
        snprintf(t->pads[i], sizeof t->pads[i], "[PAD%u]", (unsigned)i);
        t->tokens[i] = t->pads[i];
        t->types[i] = TOK_UNUSED;
    }
    return BITNET_OK;
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

/* ---- the kind of tokenizer ---- */

/* The regular expression of a Split pre-tokenizer, which may be alone or in a sequence; 0: none. */
static uint32_t tok_find_split(const json *j, uint32_t pre) {
    const uint32_t list = json_get(j, pre, "pretokenizers");
    uint32_t node = list ? list + 1 : pre, n = list ? j->nodes[list].n : 1, found;
    for (; n > 0; n--, node = j->nodes[node].next)
        if ((found = json_get(j, json_get(j, node, "pattern"), "Regex")) != 0) return found;
    return 0;
}

static bitnet_result tok_check_kind(tok *t, const char *pre, bitnet_error *err) {
    static const char llama3[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const json *j = &t->j;
    const uint32_t model = json_get(j, JSON_ROOT, "model"), type = json_get(j, model, "type");
    const uint32_t fallback = json_get(j, model, "byte_fallback");
    const uint32_t split = tok_find_split(j, json_get(j, JSON_ROOT, "pre_tokenizer"));
    if (!model) return tok_fail(t, 0, "there is no model", err);
    if (type && !json_is(j, type, "BPE")) return tok_fail(t, type, "only BPE is supported", err);
    if (fallback && json_kind(j, fallback) == JSON_TRUE)
        return tok_fail(t, 0, "BPE with byte_fallback (of SentencePiece) is not supported", err);
    t->pre = pre ? pre : "llama-bpe";
    if (pre) return BITNET_OK;         /* the user has decided */
    if (json_get(j, JSON_ROOT, "normalizer"))
        return tok_fail(t, 0, "there is a normalizer, and LLaMA 3's tokenizer has none", err);
    if (split && json_is(j, split, llama3)) return BITNET_OK;
    return tok_fail(t, split, "the pre-tokenizer is not LLaMA 3's; name it with --pre", err);
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
    gguf_add_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_add_string(w, "tokenizer.ggml.pre", "llama-bpe");
    gguf_add_strings(w, "tokenizer.ggml.tokens", t->tokens, 0, t->n_tokens);
    gguf_add_i32s(w, "tokenizer.ggml.token_type", t->types, t->n_tokens);
    gguf_add_strings(w, "tokenizer.ggml.merges", t->merges, 0, t->n_merges);
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
    bitnet_error why = {BITNET_OK, ""};
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
   string or as the "content" of an object. -1: neither does. */
static bitnet_result tok_special(const tok *t, const json *model, const char *key, int64_t *out,
                                 bitnet_error *err) {
    const json *j = &t->config;
    char id_key[32];
    uint32_t node, i;
    uint64_t id;
    *out = -1;
    snprintf(id_key, sizeof id_key, "%s_id", key);
    if ((node = json_get(model, JSON_ROOT, id_key)) != 0) {
        if (json_kind(model, node) == JSON_ARRAY) node++;       /* the first of several */
        if (!json_uint(model, node, &id) || id >= t->n_tokens)
            return set_error(err, BITNET_ERR_FORMAT, "%s: %s is not the id of a token", model->name,
                             id_key);
        *out = (int64_t)id;
        return BITNET_OK;
    }
    node = json_get(j, JSON_ROOT, key);
    if (node && json_kind(j, node) == JSON_OBJECT) node = json_get(j, node, "content");
    if (!node) return BITNET_OK;
    for (i = 0; i < t->n_tokens && *out < 0; i++)
        if (json_is(j, node, t->tokens[i])) *out = i;
    return *out >= 0 ? BITNET_OK : set_error(err, BITNET_ERR_FORMAT, "%s: no token has the text "
                                             "of %s", j->name, key);
}

/* chat_template is a string, or a list of {"name", "template"}; newer models have a file of it. */
static bitnet_result tok_read_template(tok *t, const char *dir, bitnet_error *err) {
    const json *j = &t->config;
    uint32_t node = json_get(j, JSON_ROOT, "chat_template"), i, n, item;
    uint64_t size;
    FILE *f;
    bitnet_result r;
    if (node && json_kind(j, node) == JSON_ARRAY) {
        n = j->nodes[node].n;
        for (i = 0, item = node + 1, node = 0; i < n; i++, item = j->nodes[item].next)
            if (json_is(j, json_get(j, item, "name"), "default"))
                node = json_get(j, item, "template");
    }
    if (node && !(t->template_text = tok_text(j, node)))
        return set_error(err, BITNET_ERR_FORMAT, "%s: chat_template is not a string", j->name);
    if (t->template_text) return BITNET_OK;
    r = file_open(dir, "chat_template.jinja", 1, &f, &size, err);
    if (!f) return r;
    if (size < 1 << 20)
        r = file_read(f, "chat_template.jinja", (size_t)size, &t->template_file, err);
    fclose(f);
    if (r) return r;
    if (t->template_file && strlen(t->template_file) == size) t->template_text = t->template_file;
    return t->template_text ? BITNET_OK
                            : set_error(err, BITNET_ERR_FORMAT, "chat_template.jinja is not a "
                                        "text of under 1 MB");
}

bitnet_result tok_open(tok *t, const char *dir, const json *model, uint64_t n_vocab,
                       const char *pre, bitnet_error *err) {
    uint32_t node;
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
    if ((r = file_load_json(dir, "tokenizer.json", 0, &t->j, err)) ||
        (r = file_load_json(dir, "tokenizer_config.json", 1, &t->config, err)) ||
        (r = tok_check_kind(t, pre, err)) || (r = tok_read_tokens(t, err)) ||
        (r = tok_read_merges(t, err)) || (r = tok_check(t, err)) ||
        (r = tok_special(t, model, "bos_token", &t->bos, err)) ||
        (r = tok_special(t, model, "eos_token", &t->eos, err)) ||
        (r = tok_special(t, model, "pad_token", &t->pad, err)) ||
        (r = tok_read_template(t, dir, err))) return r;
    node = json_get(&t->config, JSON_ROOT, "add_bos_token");
    t->add_bos = !node || json_kind(&t->config, node) == JSON_TRUE;   /* as in the official file */
    return BITNET_OK;
}
