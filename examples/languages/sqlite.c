/* sqlite.c - vectors of texts in SQLite: an extension with embed() and cosine()

       cc -O2 -shared -fPIC examples/languages/sqlite.c -o embed.so -lpthread -lm
       sqlite3 notes.db
       .load ./embed
       SELECT embed_model('EMBEDDING.gguf');
       CREATE TABLE notes (body TEXT, vector BLOB AS (embed(body)) STORED);
       INSERT INTO notes VALUES ('The sky is blue.'), ('Bread needs an hour in the oven.');
       SELECT body FROM notes ORDER BY cosine(vector, embed('When is bread done?')) DESC LIMIT 5;

   It needs sqlite3ext.h (Debian: libsqlite3-dev).

       embed_model(FILE [, POOLING])   loads the model of this connection, and says how many floats
                                       its vectors have. POOLING is mean, first or last, for models
                                       that do not say
       embed(TEXT)                     the vector: a blob of this machine's floats, of length 1
       cosine(A, B)                    how like two vectors are: 1 means the same direction

   NULL gives NULL. In a statement the vector of a constant text is computed once, not for each row.
   A database must keep to one model: vectors of two cannot be compared. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include <math.h>
#include <string.h>

#ifdef _WIN32
  #define PLUGIN_API __declspec(dllexport)
#else
  #define PLUGIN_API __attribute__((visibility("default")))
#endif

/* Of a connection, whose mutex SQLite holds while a function runs. */
typedef struct embedder {
    bitnet_model *model;
    bitnet_ctx *ctx;                   /* 0: there is no model yet */
    bitnet_pooling pooling;
    int32_t dim;
    int users;                         /* functions that have it: the last one frees it */
} embedder;

static void drop(void *p) {
    embedder *e = (embedder *)p;
    if (--e->users > 0) return;
    bitnet_ctx_free(e->ctx);
    bitnet_model_free(e->model);
    sqlite3_free(e);
}

static void embed_model(sqlite3_context *call, int n, sqlite3_value **values) {
    static const char *const names[] = {"", "mean", "first", "last"};      /* as bitnet_pooling */
    embedder *e = (embedder *)sqlite3_user_data(call);
    const char *file = (const char *)sqlite3_value_text(values[0]);
    const char *pooling = n > 1 ? (const char *)sqlite3_value_text(values[1]) : "";
    bitnet_model_info info;
    bitnet_ctx_params params;
    bitnet_error err;
    int i = 0;
    while (i < 4 && pooling && strcmp(pooling, names[i]) != 0) i++;
    if (e->ctx) sqlite3_result_error(call, "this connection has a model already", -1);
    else if (!file) sqlite3_result_error(call, "the model's file is missing", -1);
    else if (!pooling || i == 4) sqlite3_result_error(call, "no such pooling", -1);
    else {
        memset(&params, 0, sizeof params);
        params.no_head_copy = 1;       /* it writes no text */
        if (bitnet_model_load_file(file, 0, &e->model, &err) ||
            bitnet_ctx_create(e->model, &params, &e->ctx, &err)) {
            sqlite3_result_error(call, err.text, -1);
            bitnet_model_free(e->model);
            e->model = 0;
            return;
        }
        bitnet_model_get_info(e->model, &info);
        e->dim = info.dim;
        e->pooling = (bitnet_pooling)i;
        sqlite3_result_int(call, e->dim);
    }
}

static void embed(sqlite3_context *call, int n, sqlite3_value **values) {
    embedder *e = (embedder *)sqlite3_user_data(call);
    const size_t size = (size_t)e->dim * sizeof(float);
    bitnet_embed_input input;
    bitnet_embed_params params;
    bitnet_error err;
    float *vector;
    (void)n;
    if (sqlite3_value_type(values[0]) == SQLITE_NULL) return;
    if (!e->ctx) {
        sqlite3_result_error(call, "there is no model: SELECT embed_model('FILE.gguf')", -1);
        return;
    }
    memset(&input, 0, sizeof input);
    memset(&params, 0, sizeof params);
    params.pooling = e->pooling;
    input.text.data = (const char *)sqlite3_value_text(values[0]);
    input.text.size = (size_t)sqlite3_value_bytes(values[0]);
    vector = (float *)sqlite3_malloc64(size);
    if (!vector || !input.text.data) sqlite3_result_error_nomem(call);
    else if (bitnet_embed(e->ctx, &input, 1, &params, vector, &err))
        sqlite3_result_error(call, err.text, -1);
    else {
        sqlite3_result_blob64(call, vector, size, sqlite3_free);
        return;
    }
    sqlite3_free(vector);
}

static void cosine(sqlite3_context *call, int n, sqlite3_value **values) {
    const char *a, *b;
    double ab = 0, aa = 0, bb = 0;
    float x, y;
    int i, size;
    (void)n;
    if (sqlite3_value_type(values[0]) == SQLITE_NULL ||
        sqlite3_value_type(values[1]) == SQLITE_NULL) return;
    a = (const char *)sqlite3_value_blob(values[0]);
    b = (const char *)sqlite3_value_blob(values[1]);
    size = sqlite3_value_bytes(values[0]);
    if (!a || !b || size % (int)sizeof x != 0 || size != sqlite3_value_bytes(values[1])) {
        sqlite3_result_error(call, "these are not two vectors of the same model", -1);
        return;
    }
    for (i = 0; i < size; i += (int)sizeof x) {
        memcpy(&x, a + i, sizeof x);   /* blobs may lie anywhere */
        memcpy(&y, b + i, sizeof y);
        ab += (double)x * (double)y;
        aa += (double)x * (double)x;
        bb += (double)y * (double)y;
    }
    sqlite3_result_double(call, ab / sqrt(aa * bb));
}

PLUGIN_API int sqlite3_extension_init(sqlite3 *db, char **message,
                                      const sqlite3_api_routines *api) {
    /* A view or a trigger of a file that somebody sends must not open others (DIRECTONLY). */
    static const struct {
        const char *name;
        int n, flags;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"embed_model", 1, SQLITE_DIRECTONLY, embed_model},
                     {"embed_model", 2, SQLITE_DIRECTONLY, embed_model},
                     {"embed", 1, SQLITE_DETERMINISTIC, embed},
                     {"cosine", 2, SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, cosine}};
    embedder *e;
    int i, r = SQLITE_OK;
    (void)message;
    SQLITE_EXTENSION_INIT2(api);
    e = (embedder *)sqlite3_malloc64(sizeof *e);
    if (!e) return SQLITE_NOMEM;
    memset(e, 0, sizeof *e);
    e->users = 1;                      /* this function, until it returns */
    for (i = 0; i < 4 && r == SQLITE_OK; i++) {
        e->users++;
        r = sqlite3_create_function_v2(db, functions[i].name, functions[i].n,
                                       SQLITE_UTF8 | functions[i].flags, e, functions[i].run, 0, 0,
                                       drop);
    }
    drop(e);
    return r;
}
