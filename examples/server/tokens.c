#include "tokens.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_TOGETHER = 4 << 20 };

/* ---- limits ---- */

/* Tokenizers lose no byte, but two of them make some texts shorter first: SentencePiece's makes
   U+2581, 3 bytes, a blank, and Qwen2's brings a text to NFC, which at the most makes 2 bytes of 7
   (U+1FBE U+0308 U+0301). ASCII alone stays as it is. With ASCII as 1 and all other bytes as a
   quarter, no code points count for more than the bytes that NFC makes of them; this was computed
   over all of Unicode. */
size_t tokens_least_bytes(const char *p, size_t n) {
    size_t i, ascii = 0;
    for (i = 0; i < n; i++) ascii += (uint8_t)p[i] < 0x80;
    return ascii + (n - ascii) / 4;
}

/* This comes before a text is tokenized, which takes a second for each MB, in which the thread of
   HTTP does nothing else. No token has more than longest_token bytes. */
int tokens_too_long(reader *in, const char *name, size_t bytes, size_t least) {
    const service *s = in->r->service;
    const int is_prompt = !strcmp(name, "prompt") || !strcmp(name, "messages");
    const uint64_t most = (uint64_t)s->n_ctx * (uint64_t)s->info.longest_token;
    if (failed(in)) return 1;
    in->n_bytes += bytes;
    if (least <= most && (in->n_bytes <= MOST_TOGETHER || in->n_bytes <= most)) return 0;
    if (least <= most) {
        in->error = refuse(400, name, "%s: all texts of a request have at most %d MB together",
                           name, MOST_TOGETHER >> 20);
        return 1;
    }
    in->error = refuse(400, name, "%s has %llu bytes, more than the context of %d tokens can hold",
                       is_prompt ? "the prompt" : name, (unsigned long long)bytes,
                       (int)s->n_ctx);
    in->error.code = "context_length_exceeded";
    return 1;
}

/* ---- tokens ---- */

/* A text that begins with BOS, or ends with EOS, does not get it twice. */
static int drop_double_ends(const bitnet_model_info *info, int flags, bitnet_token *tokens, int n) {
    if ((flags & BITNET_ADD_BOS) && n > 1 && tokens[0] == info->bos && tokens[1] == info->bos)
        memmove(tokens, tokens + 1, (size_t)--n * sizeof *tokens);
    if ((flags & BITNET_ADD_EOS) && n > 1 && tokens[n - 1] == info->eos &&
        tokens[n - 2] == info->eos) n--;
    return n;
}

bitnet_token *tokens_of_text(reader *in, const char *name, uint32_t node, int flags, int32_t *n) {
    const service *s = in->r->service;
    const json_node *v = &in->j.nodes[node];
    const char *text = in->j.text + v->at;
    bitnet_token *tokens;
    int count;
    *n = 0;
    count = bitnet_tokenize(s->model, text, v->len, flags, 0, 0);
    tokens = (bitnet_token *)malloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *tokens);
    if (count >= 0 && tokens &&        /* the second time may lack memory that the first had */
        bitnet_tokenize(s->model, text, v->len, flags, tokens, (size_t)count) == count) {
        *n = drop_double_ends(&s->info, flags, tokens, count);
        return tokens;
    }
    free(tokens);
    in->error = count < 0 ? refuse_library((bitnet_result)count, name,
                                           bitnet_result_text((bitnet_result)count))
                          : refuse_memory();
    return 0;
}

bitnet_token *tokens_that_fit(reader *in, const char *name, uint32_t node, int flags, int32_t *n) {
    const json_node *v = &in->j.nodes[node];
    *n = 0;
    if (tokens_too_long(in, name, v->len, tokens_least_bytes(in->j.text + v->at, v->len))) return 0;
    return tokens_of_text(in, name, node, flags, n);
}

bitnet_token *tokens_of_list(reader *in, const char *name, uint32_t list, int32_t *n) {
    const uint32_t count = in->j.nodes[list].n;
    bitnet_token *tokens = (bitnet_token *)malloc(((size_t)count + 1) * sizeof *tokens);
    uint32_t at = list + 1, i;
    uint64_t v = 0;
    *n = (int32_t)count;
    if (!tokens) in->error = refuse_memory();
    for (i = 0; i < count && !failed(in); i++, at = in->j.nodes[at].next) {
        if (!json_uint(&in->j, at, &v) || v >= (uint64_t)in->r->service->info.n_vocab)
            refuse_field(in, name, "a number is no token of the vocabulary");
        tokens[i] = (bitnet_token)v;
    }
    if (!failed(in)) return tokens;
    free(tokens);
    return 0;
}

int tokens_flags(const bitnet_model_info *info) {
    return (info->add_bos ? BITNET_ADD_BOS : 0) | (info->add_eos ? BITNET_ADD_EOS : 0);
}

int tokens_special(reader *in) {
    return field_bool_or_true(in, "parse_special") ? BITNET_PARSE_SPECIAL : 0;
}

/* ---- prompts ---- */

void tokens_set_prompt(reader *in, int32_t number, bitnet_token *tokens, int32_t n) {
    request *r = in->r;
    int32_t i;
    r->prompts[number] = tokens;
    if (n < 1) refuse_field(in, r->is_chat ? "messages" : "prompt", "it is empty");
    else if (n >= r->service->n_ctx && !failed(in)) {
        in->error = refuse(400, r->is_chat ? "messages" : "prompt", "the prompt has %d tokens, but "
                           "the context holds %d with the reply", (int)n, (int)r->service->n_ctx);
        in->error.code = "context_length_exceeded";
    }
    for (i = number * r->n; i < (number + 1) * r->n; i++) {
        r->texts[i].prompt = tokens;
        r->texts[i].n_prompt = n;
    }
}

/* Texts that are echoed leave out a BOS that the client has not spelled. */
static void set_unspelled(reader *in, int32_t number, int is_spelled) {
    request *r = in->r;
    int32_t i;
    for (i = number * r->n; i < (number + 1) * r->n && !failed(in); i++)
        r->texts[i].n_unspelled =
            !is_spelled && r->texts[i].prompt[0] == r->service->info.bos;
}

static void tokenize_prompt(reader *in, int32_t number, uint32_t node) {
    const bitnet_model_info *info = &in->r->service->info;
    const json_node *v = &in->j.nodes[node];
    const int flags = (info->add_bos ? BITNET_ADD_BOS : 0) | tokens_special(in);
    size_t size = 0;
    const char *bos = bitnet_token_text(in->r->service->model, info->bos, &size);
    int32_t n;
    bitnet_token *tokens = failed(in) ? 0 : tokens_that_fit(in, "prompt", node, flags, &n);
    if (!tokens) return;
    if (n == 0 && info->bos >= 0) tokens[n++] = info->bos;
    tokens_set_prompt(in, number, tokens, n);
    set_unspelled(in, number, bos && size > 0 && v->len >= size &&
                              !memcmp(in->j.text + v->at, bos, size));
}

static void take_tokens(reader *in, int32_t number, uint32_t list) {
    int32_t n;
    bitnet_token *tokens = tokens_of_list(in, "prompt", list, &n);
    if (!tokens) return;
    tokens_set_prompt(in, number, tokens, n);
    set_unspelled(in, number, 0);
}

void tokens_make_texts(reader *in, uint32_t n_prompts) {
    request *r = in->r;
    if ((uint64_t)n_prompts * (uint64_t)r->n > (uint64_t)r->service->n_best_of) {
        in->error = refuse(400, "n", "at most %d texts are possible", (int)r->service->n_best_of);
        return;
    }
    r->n_texts = (int32_t)n_prompts * r->n;
    r->n_prompts = (int32_t)n_prompts;
    r->texts = (engine_text *)calloc((size_t)r->n_texts + 1, sizeof *r->texts);
    r->prompts = (bitnet_token **)calloc((size_t)n_prompts + 1, sizeof *r->prompts);
    if (!r->texts || !r->prompts) in->error = refuse_memory();
}

uint32_t tokens_count_parts(reader *in, const char *name, uint32_t *at) {
    const uint32_t node = field_get(in, name);
    const json_type kind = json_kind(&in->j, node);
    const json_type first = node && kind == JSON_ARRAY && in->j.nodes[node].n > 0
                            ? json_kind(&in->j, node + 1) : JSON_NULL;
    const int is_one = kind == JSON_STRING || first == JSON_NUMBER;
    *at = is_one ? node : node + 1;
    if (node && (is_one || first == JSON_STRING || first == JSON_ARRAY))
        return is_one ? 1 : in->j.nodes[node].n;
    refuse_field(in, name, "a string, tokens, or a list of these is needed");
    return 0;
}

void tokens_read_prompt(reader *in) {
    uint32_t at, i;
    const uint32_t n = tokens_count_parts(in, "prompt", &at);
    if (n > 0) tokens_make_texts(in, n);
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        if (json_kind(&in->j, at) == JSON_STRING) tokenize_prompt(in, (int32_t)i, at);
        else if (json_kind(&in->j, at) == JSON_ARRAY) take_tokens(in, (int32_t)i, at);
        else refuse_field(in, "prompt", "its parts must be of one kind");
    }
}
