/* convert_tokenizer.h - a part of convert.c: tokenizer.json and tokenizer_config.json as GGUF's
   arrays. Byte-level BPE with LLaMA 3's pre-tokenizer, or an error that says what it is instead. */

enum { TOK_MAX = 1 << 20 };
enum { TOK_NORMAL = 1, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5 };   /* GGUF's token_type */

typedef struct tok {
    json j, config;                    /* config may be missing: then it has no nodes */
    const char **tokens, **merges;     /* [n_tokens], [n_merges]: in j's text, or in pads */
    int32_t *types;                    /* [n_tokens] */
    char (*pads)[16];                  /* [PAD123]: what the model has room for beyond its tokens */
    uint32_t n_tokens, n_merges;
    int64_t bos, eos, pad;             /* -1: none */
    int add_bos;
    const char *pre, *template_text;   /* 0: there is no template */
    char *template_file;
} tok;

static void tok_free(tok *t) {
    json_free(&t->j);
    json_free(&t->config);
    free(t->tokens);
    free(t->merges);
    free(t->types);
    free(t->pads);
    free(t->template_file);
    memset(t, 0, sizeof *t);
}

/* A string of JSON as one of C; 0 if it is none, or has a NUL in it. */
static const char *tok_text(const json *j, uint32_t node) {
    const json_node *s = &j->nodes[node];
    return json_kind(j, node) == JSON_STRING && strlen(j->text + s->at) == s->len
           ? j->text + s->at : 0;
}

static bitnet_result tok_fail(const tok *t, uint32_t node, const char *what, bitnet_error *err) {
    const json_node *s = &t->j.nodes[node];
    if (s->type != JSON_STRING && s->type != JSON_NUMBER)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: %s", t->j.name, what);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: JSON at offset %u, '%.*s': %s", t->j.name,
                        (unsigned)s->at, s->len < 64 ? (int)s->len : 64, t->j.text + s->at, what);
}

/* ---- tokens ---- */

static bitnet_result tok_add(tok *t, uint32_t text, uint32_t id_node, int32_t type,
                             bitnet_error *err) {
    const char *s = tok_text(&t->j, text);
    uint64_t id;
    if (!s) return tok_fail(t, text, "this is no text of a token", err);
    if (!json_uint(&t->j, id_node, &id) || id >= t->n_tokens)
        return tok_fail(t, text, "its id is none from 0 to config.json's vocab_size", err);
    if (t->tokens[id] && (type == TOK_NORMAL || strcmp(t->tokens[id], s)))
        return tok_fail(t, text, "another token has its id", err);
    t->tokens[id] = s;                 /* added ones can be in the vocabulary, too */
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
        return tok_fail(t, 0, "added_tokens is no array", err);
    for (i = 0, node = added + 1; added && i < j->nodes[added].n; i++, node = j->nodes[node].next) {
        const uint32_t special = json_get(j, node, "special");
        r = tok_add(t, json_get(j, node, "content"), json_get(j, node, "id"),
                    special && json_kind(j, special) == JSON_TRUE ? TOK_CONTROL : TOK_USER, err);
        if (r) return r;
    }
    for (n = t->n_tokens; n > 0 && !t->tokens[n - 1];) n--;
    for (i = 0; i < n; i++)
        if (!t->tokens[i])
            return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: no token has the id %u, but others "
                                "have higher ones", j->name, (unsigned)i);
    for (; i < t->n_tokens; i++) {
        snprintf(t->pads[i], sizeof t->pads[i], "[PAD%u]", (unsigned)i);
        t->tokens[i] = t->pads[i];
        t->types[i] = TOK_UNUSED;
    }
    return BITNET_OK;
}

/* ---- merges: "a b", or ["a", "b"], which become "a b" where they stand ---- */

static bitnet_result tok_read_merges(tok *t, bitnet_error *err) {
    const json *j = &t->j;
    const uint32_t merges = json_get(j, json_get(j, JSON_ROOT, "model"), "merges");
    uint32_t node = merges + 1, i;
    if (!merges || json_kind(j, merges) != JSON_ARRAY || !j->nodes[merges].n)
        return tok_fail(t, 0, "there are no merges", err);
    t->n_merges = j->nodes[merges].n;
    if (!(t->merges = (const char **)calloc(t->n_merges, sizeof *t->merges)))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "%s: no memory for its merges", j->name);
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

/* ---- what kind of tokenizer it is ---- */

/* The pattern of a Split by a regular expression; pre-tokenizers come alone or in a sequence. */
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
    if (pre) return BITNET_OK;         /* the caller knows better */
    if (json_get(j, JSON_ROOT, "normalizer"))
        return tok_fail(t, 0, "a normalizer, which LLaMA 3's tokenizer has not", err);
    if (split && json_is(j, split, llama3)) return BITNET_OK;
    return tok_fail(t, split, "the pre-tokenizer is not LLaMA 3's; --pre could name it", err);
}

/* The library itself is asked whether it could read these. */
static bitnet_result tok_check(const tok *t, bitnet_error *err) {
    const bitnet_allocator none = {0, 0, 0};
    bitnet__strings lists[2];
    bitnet__vocab vocab;
    bitnet_error why = {BITNET_OK, ""};
    bitnet_result r = BITNET_OK;
    int k;
    memset(lists, 0, sizeof lists);
    for (k = 0; k < 2; k++) {
        const char *const *texts = k ? t->merges : t->tokens;
        uint8_t *p;
        uint32_t i;
        lists[k].count = k ? t->n_merges : t->n_tokens;
        for (i = 0; i < lists[k].count; i++) lists[k].size += 8 + strlen(texts[i]);
        if (!(lists[k].data = p = (uint8_t *)calloc(lists[k].size + 1, 1))) r = BITNET_ERR_MEMORY;
        for (i = 0; i < lists[k].count && !r; i++) {
            const size_t n = strlen(texts[i]);
            uint32_t byte;
            for (byte = 0; byte < 4; byte++) p[byte] = (uint8_t)(n >> 8 * byte);
            memcpy(p + 8, texts[i], n);
            p += 8 + n;
        }
    }
    if (!r) {
        uint8_t *types = (uint8_t *)calloc(t->n_tokens, 4);      /* little-endian */
        uint32_t i;
        for (i = 0; i < t->n_tokens && types; i++) types[4 * (size_t)i] = (uint8_t)t->types[i];
        r = types ? bitnet__vocab_build(&vocab, &none, &lists[0], types, &lists[1], &why)
                  : BITNET_ERR_MEMORY;
        if (!r) bitnet__vocab_free(&vocab, &none);
        free(types);
    }
    for (k = 0; k < 2; k++) free((void *)(uintptr_t)lists[k].data);
    return r ? bitnet__fail(err, r, "%s: %s", t->j.name, why.text[0] ? why.text : "no memory")
             : BITNET_OK;
}

/* ---- tokenizer_config.json ---- */

/* The id of a token that config.json names by number, or tokenizer_config.json by text: as it is,
   or as the "content" of an object. -1: neither does. */
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
            return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: %s is no token's id", model->name,
                                id_key);
        *out = (int64_t)id;
        return BITNET_OK;
    }
    node = json_get(j, JSON_ROOT, key);
    if (node && json_kind(j, node) == JSON_OBJECT) node = json_get(j, node, "content");
    if (!node) return BITNET_OK;
    for (i = 0; i < t->n_tokens && *out < 0; i++)
        if (json_is(j, node, t->tokens[i])) *out = i;
    return *out >= 0 ? BITNET_OK : bitnet__fail(err, BITNET_ERR_FORMAT, "%s: there is no token of "
                                                "%s's text", j->name, key);
}

/* chat_template is a text, or a list of {"name", "template"}; newer models have a file of it. */
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
        return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: chat_template is no text", j->name);
    if (t->template_text) return BITNET_OK;
    r = file_open(dir, "chat_template.jinja", 1, &f, &size, err);
    if (!f) return r;
    if (size < 1 << 20)
        r = file_read(f, "chat_template.jinja", (size_t)size, &t->template_file, err);
    fclose(f);
    if (r) return r;
    if (t->template_file && strlen(t->template_file) == size) t->template_text = t->template_file;
    return t->template_text ? BITNET_OK
                            : bitnet__fail(err, BITNET_ERR_FORMAT, "chat_template.jinja is no text "
                                           "of under 1 MB");
}

/* Reads the tokenizer of a model whose config.json is model and that has n_vocab rows. pre names
   the pre-tokenizer; 0: what is in the file is recognised, or refused. tok_free afterwards. */
static bitnet_result tok_open(tok *t, const char *dir, const json *model, uint64_t n_vocab,
                              const char *pre, bitnet_error *err) {
    uint32_t node;
    bitnet_result r;
    memset(t, 0, sizeof *t);
    if (n_vocab < 1 || n_vocab > TOK_MAX)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "%s: vocab_size is not from 1 to %d",
                            model->name, (int)TOK_MAX);
    t->n_tokens = (uint32_t)n_vocab;
    t->tokens = (const char **)calloc(t->n_tokens, sizeof *t->tokens);
    t->types = (int32_t *)calloc(t->n_tokens, sizeof *t->types);
    t->pads = (char (*)[16])calloc(t->n_tokens, sizeof *t->pads);
    if (!t->tokens || !t->types || !t->pads)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %u tokens",
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
