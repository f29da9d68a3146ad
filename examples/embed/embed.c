/* embed.c - texts to vectors, and search over one's own text files

       cc -O2 examples/embed/[a-z]*.c examples/server/buffer.c examples/json/[a-z]*.c \
           -o embed -lm -lpthread
       ./embed -m MODEL < lines.txt                    a vector for each line, as JSON
       ./embed index FOLDER -m MODEL -o notes          notes.npy, notes.i8.npy, notes.jsonl
       ./embed search notes.npy "a question" -m MODEL

   README.md has more. Exit codes: 0 success, 1 a text or a file failed, 2 wrong usage, 3 the model
   was refused, 130 Ctrl-C. */
#define _DEFAULT_SOURCE 1
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../streams.h"
#include "../utf8.h"
#include "index.h"
#include "input.h"
#include "output.h"
#include "say.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const settings *s;
    embedder e;
    input in;
    output out;
    text texts[BATCH];
    int32_t n;
    float *vectors;                    /* [BATCH][dim] */
    uint64_t n_texts, n_failed;
} job;

/* The ids of --tokens: numbers with commas between. Returns an exit code. */
static int read_tokens(job *j) {
    const char *at = j->s->tokens;
    text *t = &j->texts[0];
    memset(t, 0, sizeof *t);
    t->tokens = (bitnet_token *)malloc((strlen(at) + 1) * sizeof *t->tokens);
    if (!t->tokens) return fail(FAILED, "there is no memory");
    j->n = 1;
    for (;;) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || id > INT32_MAX || (*end && *end != ','))
            return fail(USAGE, "--tokens %s: numbers with commas between are needed",
                        j->s->tokens);
        t->tokens[t->n_tokens++] = (bitnet_token)id;
        if (!*end) return DONE;
        at = end + 1;
    }
}

/* Embeds and writes the texts that were read. */
static int embed_batch(job *j) {
    int code = embedder_run(&j->e, j->texts, j->n, j->vectors);
    int32_t i;
    for (i = 0; code == DONE && i < j->n; i++) {
        const text *t = &j->texts[i];
        if (!t->error[0]) continue;
        j->n_failed++;
        if (j->s->tokens) say("--tokens: %s", t->error);
        else say("%s, line %llu: %s", j->in.name, (unsigned long long)t->line, t->error);
    }
    if (code == DONE) code = output_add(&j->out, j->texts, j->n, j->vectors);
    j->n_texts += (uint64_t)j->n;
    progress("%llu texts, %llu failed", (unsigned long long)j->n_texts,
             (unsigned long long)j->n_failed);
    return code;
}

static void forget_batch(job *j) {
    while (j->n > 0) text_free(&j->texts[--j->n]);
}

static int embed_all(job *j) {
    int code = DONE;
    if (j->s->tokens) return embed_batch(j);
    while (code == DONE) {
        code = input_read(&j->in, j->texts, &j->n);
        if (code != DONE || j->n == 0) break;
        code = embed_batch(j);
        forget_batch(j);
    }
    if (j->in.n_empty)
        note("empty lines, which are passed over: %llu", (unsigned long long)j->in.n_empty);
    return code;
}

static int run_embed(const settings *s) {
    job *j = (job *)calloc(1, sizeof *j);
    int code;
    if (!j) return fail(FAILED, "there is no memory");
    j->s = s;
    code = s->tokens ? read_tokens(j) : input_open(&j->in, s);
    if (code == DONE) code = embedder_open(&j->e, s, s->cut);
    if (code == DONE) {
        j->vectors = (float *)malloc(BATCH * (size_t)j->e.info.dim * sizeof *j->vectors);
        if (!j->vectors) code = fail(FAILED, "there is no memory");
    }
    if (code == DONE) code = output_open(&j->out, s, j->e.info.dim);
    if (code == DONE) code = embed_all(j);
    if (code == DONE) code = output_end(&j->out);
    if (code == DONE && j->n_failed)
        code = fail(FAILED, "%llu of %llu texts failed", (unsigned long long)j->n_failed,
                    (unsigned long long)j->n_texts);
    forget_batch(j);
    output_free(&j->out);
    embedder_close(&j->e);
    input_close(&j->in);
    free(j->vectors);
    free(j);
    return code;
}

int main(int argc, char **argv) {
    settings s;
    int code;
    if (!streams_fill()) return FAILED;
    streams_binary();
    argv = utf8_arguments(&argc, argv);
    if ((code = settings_read(argc, argv, &s)) != 0) return code - 1;
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    stop_when_asked();
    code = s.command == INDEX ? run_index(&s) : s.command == SEARCH ? run_search(&s)
                                                                    : run_embed(&s);
    if (code == STOPPED) say("stopped");
    return code;
}
