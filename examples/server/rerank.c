#include "rerank.h"
#include "translate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What Microsoft's embedding models, and others that are told a task, expect in front of a query;
   documents go in as they are. */
#define TASK "Given a web search query, retrieve relevant passages that answer the query"

/* Where the documents are, and what came of them. One block of memory. */
struct ranking {
    int32_t n, top, dim;               /* documents; how many are told; of vectors */
    int returns;                       /* the documents are told, too */
    double size;                       /* the length of the query's vector */
    float *query;                      /* [dim] */
    double *scores;                    /* [n] */
    char **texts;                      /* [n] */
};

static uint32_t text_of_document(const reader *in, uint32_t document) {
    return json_kind(&in->j, document) == JSON_OBJECT ? json_get(&in->j, document, "text")
                                                      : document;
}

/* The bytes of all documents' texts with their NULs. Refuses what has none. */
static size_t check_documents(reader *in, uint32_t list) {
    uint32_t at = list + 1, i;
    size_t bytes = 0;
    for (i = 0; i < in->j.nodes[list].n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t text = text_of_document(in, at);
        if (!node_string(in, text))
            refuse_field(in, "documents", "a list of strings without NUL, or of objects with a "
                         "text, is needed");
        bytes += text ? (size_t)in->j.nodes[text].len + 1 : 0;
    }
    return bytes;
}

static void make_ranking(reader *in, uint32_t list) {
    const int32_t n = (int32_t)in->j.nodes[list].n, dim = in->r->service->info.dim;
    const size_t bytes = check_documents(in, list);
    struct ranking *k;
    uint32_t at = list + 1;
    char *text;
    int32_t i;
    if (failed(in)) return;
    k = (struct ranking *)calloc(1, sizeof *k + (size_t)n * (sizeof(double) + sizeof(char *)) +
                                    (size_t)dim * sizeof(float) + bytes);
    in->r->ranking = k;
    if (!k) {
        in->error = refuse_memory();
        return;
    }
    k->n = k->top = n;
    k->dim = dim;
    k->scores = (double *)(void *)(k + 1);
    k->texts = (char **)(void *)(k->scores + n);
    k->query = (float *)(void *)(k->texts + n);
    text = (char *)(k->query + dim);
    for (i = 0; i < n; i++, at = in->j.nodes[at].next) {
        const json_node *v = &in->j.nodes[text_of_document(in, at)];
        k->texts[i] = text;
        memcpy(text, in->j.text + v->at, v->len);
        text += v->len + 1;
    }
    field_int(in, "top_n", 1, INT32_MAX, &k->top);
    if (k->top > n) k->top = n;
    k->returns = field_bool(in, JSON_ROOT, "return_documents");
}

static void add_query(reader *in, translation *t, const char *query) {
    const uint32_t node = field_get(in, "instruction");
    const char *task = node ? node_string(in, node) : TASK;
    buffer text = {0};
    if (!task) refuse_field(in, "instruction", "a string without NUL is needed");
    else if (*task) {
        buffer_text(&text, "Instruct: ");
        buffer_text(&text, task);
        buffer_text(&text, "\nQuery: ");
    }
    buffer_text(&text, query);
    buffer_json(&t->body, text.n ? text.p : "", text.n);
    t->body.failed |= text.failed;
    buffer_free(&text);
}

/* An error of one input names the query, or the document as the client counts. */
static void name_input(http_error *e) {
    static const char begin[] = "input[";
    const char *code = e->code;
    unsigned long number;
    char *end;
    if (strncmp(e->text, begin, sizeof begin - 1)) return;
    number = strtoul(e->text + sizeof begin - 1, &end, 10);
    if (*end == ']') end++;
    *e = number ? refuse(e->status, "documents", "documents[%lu]%s", number - 1, end)
                : refuse(e->status, "query", "query%s", end);
    e->code = code;
}

void rerank_read(reader *in, uint64_t seed) {
    static const char *const taken[] = {
        "query", "documents", "top_n", "return_documents", "instruction", "input",
        "encoding_format", "dimensions", "parse_special", 0
    };
    static const renamed names[] = {{"input", "documents"}};
    const char *query = node_string(in, field_get(in, "query"));
    const uint32_t list = field_get(in, "documents");
    translation t;
    int32_t i;
    if (!in->r->service->info.pooling)
        in->error = refuse(400, "model", "this model makes no embeddings, by which documents are "
                           "compared with a query");
    if (!query || !*query) refuse_field(in, "query", "a string without NUL is needed");
    if (!list || json_kind(&in->j, list) != JSON_ARRAY || in->j.nodes[list].n == 0)
        refuse_field(in, "documents", "a list of texts is needed");
    else make_ranking(in, list);
    translate_begin(&t, in, taken);
    t.names = names;
    t.n_names = 1;
    translate_name(&t, "parse_special");
    buffer_text(&t.body, "false");
    translate_name(&t, "input");
    buffer_text(&t.body, "[");
    if (!failed(in)) add_query(in, &t, query);
    for (i = 0; !failed(in) && i < in->r->ranking->n; i++) {
        const char *text = in->r->ranking->texts[i];
        buffer_text(&t.body, ",");
        buffer_json(&t.body, text, strlen(text));
    }
    buffer_text(&t.body, "]");
    translate_read(&t, request_read_embeddings, seed);
    name_input(&in->error);
}

static double product(const float *a, const float *b, int32_t n) {
    double sum = 0;
    int32_t i;
    for (i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The first vector is the query's. */
void rerank_vector(buffer *out, const request *r, const float *vector) {
    struct ranking *k = r->ranking;
    const int32_t number = r->embed.n_done;
    const double size = sqrt(product(vector, vector, k->dim));
    (void)out;
    if (number == 0) {
        memcpy(k->query, vector, (size_t)k->dim * sizeof *vector);
        k->size = size;
    } else {
        const double score = product(k->query, vector, k->dim) / (k->size * size);
        k->scores[number - 1] = isfinite(score) ? score : 0;
    }
}

/* The best first; of two that are equal, the one that the client named first. */
static int32_t next_best(const struct ranking *k, int32_t last) {
    int32_t i, best = -1;
    for (i = 0; i < k->n; i++) {
        const int is_told = last >= 0 && (k->scores[i] > k->scores[last] ||
                                          (i <= last && k->scores[i] == k->scores[last]));
        if (!is_told && (best < 0 || k->scores[i] > k->scores[best])) best = i;
    }
    return best;
}

void rerank_whole(buffer *out, const request *r, choice *choices) {
    const struct ranking *k = r->ranking;
    long long n_tokens = 0;
    int32_t i, best = -1;
    (void)choices;
    for (i = 0; i < r->embed.n; i++) n_tokens += r->embed.inputs[i].n_tokens;
    buffer_format(out, "{\"id\":\"%s\",\"object\":\"list\",\"model\":", r->id);
    buffer_json(out, r->service->name, strlen(r->service->name));
    buffer_text(out, ",\"results\":[");
    for (i = 0; i < k->top; i++) {
        best = next_best(k, best);
        buffer_format(out, "%s{\"index\":%d,\"relevance_score\":%.9g", i ? "," : "", (int)best,
                      k->scores[best]);
        if (k->returns) {
            buffer_text(out, ",\"document\":{\"text\":");
            buffer_json(out, k->texts[best], strlen(k->texts[best]));
            buffer_text(out, "}");
        }
        buffer_text(out, "}");
    }
    buffer_format(out, "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", n_tokens,
                  n_tokens);
}
