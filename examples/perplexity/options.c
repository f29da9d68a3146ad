#include "options.h"
#include "../embed/say.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GO_ON = 0, ENDED = DONE + 1, WRONG = USAGE + 1 };

static settings values;
static const char *kv_name, *ignored;

/* One of text, number and flag is where the value goes; the others are 0. */
typedef struct option {
    const char *names;                 /* all its spellings, with blanks between */
    const char *arg, *help;            /* arg 0: it has no value; help 0: it is not listed */
    const char **text;
    long *number, low, high;
    int *flag;                         /* becomes 1 */
} option;

#define TEXT(where) &values.where, 0, 0, 0, 0
#define NUMBER(where, low, high) 0, &values.where, low, high, 0

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", TEXT(model)},
    {"-f --file", "FILE", "the text; -: standard input. A newline at its end does not count",
     TEXT(file)},
    {"-p --prompt", "TEXT", "the text itself", TEXT(prompt)},
    {"-c --ctx-size", "N", "tokens of a chunk (512)", NUMBER(n_ctx, 3, 1 << 20)},
    {"-b --batch-size", "N", "tokens of all chunks that are evaluated side by side (2048)",
     NUMBER(n_batch, 1, 1 << 20)},
    {"-ub --ubatch-size", "N", "tokens of a pass over the weights, at most (512)",
     NUMBER(n_ubatch, 1, 65536)},
    {"--chunks", "N", "how many chunks; -1: all (default)", NUMBER(n_chunks, -1, INT32_MAX)},
    {"--ppl-stride", "N", "chunks overlap, and the last N tokens of each count; 0: off (default)",
     NUMBER(stride, 0, 1 << 20)},
    {"--ppl-output-type", "0|1", "1: a line of numbers for each chunk (0)",
     NUMBER(output_type, 0, 1)},
    {"--kl-divergence-base --save-all-logits", "FILE", "saves all log-probabilities; with "
     "--kl-divergence: reads them", TEXT(base)},
    {"--kl-divergence", 0, "compares the model with the one that saved the base", 0, 0, 0, 0,
     &values.compare},
    {"--kv-type", "TYPE", "of keys and values: f16 (default), f32 or i8", &kv_name, 0, 0, 0, 0},
    {"--kernel", "NAME", "kernel table", TEXT(kernel)},
    {"-t --threads", "N", "threads (all processors)", NUMBER(n_threads, -1, 256)},
    {"-q --quiet --log-disable", 0, "no notes", 0, 0, 0, 0, &say_quiet},
    {"-ngl --gpu-layers --n-gpu-layers", "N", 0, &ignored, 0, 0, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static int help(void) {
    int i;
    puts("perplexity -m MODEL -f TEXT [options]\n"
         "perplexity -m MODEL -f TEXT --kl-divergence-base FILE             saves a base\n"
         "perplexity -m OTHER --kl-divergence-base FILE --kl-divergence     compares with it");
    for (i = 0; i < N_OPTIONS; i++) {
        const option *o = &options[i];
        char name[64];
        if (!o->help) continue;
        snprintf(name, sizeof name, "%s %s", o->names, o->arg ? o->arg : "");
        printf("  %-45s %s\n", name, o->help);
    }
    puts("exit codes: 0 success, 1 a text or a file failed, 2 usage, 3 the model was refused,\n"
         "130 Ctrl-C");
    return fflush(stdout) ? FAILED + 1 : ENDED;
}

/* Is it one of the names? */
static int is_named(const char *names, const char *name) {
    const size_t n = strlen(name);
    const char *at = names;
    if (!n || strchr(name, ' ')) return 0;
    for (; (at = strstr(at, name)) != 0; at += n)
        if ((at == names || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return 1;
    return 0;
}

static const option *find(const char *name) {
    int i;
    for (i = 0; i < N_OPTIONS; i++)
        if (is_named(options[i].names, name)) return &options[i];
    return 0;
}

/* Reads a whole number from low to high. */
static int read_number(const char *text, long low, long high, long *out) {
    char *end;
    const long n = strtol(text, &end, 10);
    if (!*text || *text == ' ' || *end || n < low || n > high) return 0;
    *out = n;
    return 1;
}

/* Takes an option. value is the next argument or 0; *used becomes 1 if it was the option's. */
static int take(const char *name, const char *value, int *used) {
    const option *o = name[0] == '-' ? find(name) : 0;
    if (!o) return fail(WRONG, "there is no option %s; --help lists them", name);
    if (o->flag) {
        *o->flag = 1;
        return GO_ON;
    }
    if (!value) return fail(WRONG, "%s needs a value: %s", name, o->arg);
    *used = 1;
    if (o->text) *o->text = value;
    else if (!read_number(value, o->low, o->high, o->number))
        return fail(WRONG, "%s %s: a whole number from %ld to %ld is needed", name, value, o->low,
                    o->high);
    return GO_ON;
}

static int read_kv_type(settings *s) {
    if (!kv_name || !strcmp(kv_name, "f16")) s->kv_type = BITNET_KV_F16;
    else if (!strcmp(kv_name, "f32")) s->kv_type = BITNET_KV_F32;
    else if (!strcmp(kv_name, "i8")) s->kv_type = BITNET_KV_I8;
    else return fail(WRONG, "--kv-type '%s': it can be f16, f32, i8", kv_name);
    return GO_ON;
}

/* What fits together. */
static int check(const settings *s) {
    if (!s->model) return fail(WRONG, "-m MODEL is needed; --help has more");
    if (s->file && s->prompt) return fail(WRONG, "-f and -p exclude each other");
    if (s->compare && !s->base)
        return fail(WRONG, "--kl-divergence needs --kl-divergence-base FILE");
    if (!s->compare && !s->file && !s->prompt)
        return fail(WRONG, "-f TEXT is needed; --help has more");
    if (s->base && s->stride)
        return fail(WRONG, "--ppl-stride and --kl-divergence-base exclude each other");
    if (s->n_chunks == 0) return fail(WRONG, "--chunks 0: 1 or more, or -1 for all");
    return GO_ON;
}

int options_read(int argc, char **argv, settings *s) {
    int i, wrong = GO_ON;
    values.n_batch = 2048;
    values.n_ubatch = 512;
    values.n_chunks = -1;
    for (i = 1; i < argc && !wrong; i++) {
        int used = 0;
        if (is_named("-h --help", argv[i])) return help();
        wrong = take(argv[i], i + 1 < argc ? argv[i + 1] : 0, &used);
        i += used;
    }
    if (!wrong) wrong = read_kv_type(&values);
    if (!wrong) wrong = check(&values);
    if (!wrong && ignored) note("-ngl is ignored: there is no GPU");
    *s = values;
    return wrong;
}
