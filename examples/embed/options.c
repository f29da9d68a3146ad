#include "options.h"
#include "say.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GO_ON = 0, ENDED = DONE + 1, WRONG = USAGE + 1 };
enum { ANY = EMBED | INDEX | SEARCH };

/* The values of options that have names, until all are read. */
static const char *format_name, *llama_format, *pooling_name, *kv_name, *bits_text, *gpu_layers;
static int raw;

/* One of text, number and flag is where the value goes; the others are 0. */
typedef struct option {
    const char *names;                 /* all its spellings, with blanks between */
    const char *arg, *help;            /* arg 0: it has no value; help 0: it is not listed */
    int uses;                          /* which commands know it */
    const char **text;
    long *number, low, high;
    int *flag;                         /* becomes 1 */
} option;

static settings values;

#define TEXT(where) &values.where, 0, 0, 0, 0
#define NUMBER(where, low, high) 0, &values.where, low, high, 0
#define FLAG(where) 0, 0, 0, 0, &values.where

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", ANY, TEXT(model)},
    {"-p --prompt", "TEXT", "the texts, instead of standard input", EMBED, TEXT(prompt)},
    {"-f --file", "FILE", "the file with the texts", EMBED, TEXT(file)},
    {"--embd-separator", "TEXT", "what is between texts (a newline); \"\": all is one text", EMBED,
     TEXT(separator)},
    {"--jsonl", 0, "each line is {\"text\": ...}, or \"input\": a text or tokens; \"id\" is copied",
     EMBED, FLAG(jsonl)},
    {"--tokens", "1,2,3", "embeds these tokens as they are", EMBED, TEXT(tokens)},
    {"--query", "TASK", "embeds queries: \"Instruct: TASK\\nQuery: TEXT\"", EMBED | SEARCH,
     TEXT(task)},
    {"-o --output", "FILE", "where to write; with index: the beginning of three names",
     EMBED | INDEX, TEXT(output)},
    {"--format", "NAME", "json, jsonl (default), csv, npy, raw (floats), array or text", EMBED,
     &format_name, 0, 0, 0, 0},
    {"--embd-output-format", "NAME", "the same with llama-embedding's names: array, json, raw",
     EMBED, &llama_format, 0, 0, 0, 0},
    {"--bits", "8|4|2|1", "packed vectors, with npy and raw", EMBED, &bits_text, 0, 0, 0, 0},
    {"--embd-normalize", "N", "2: length 1 (default); 1: sum of magnitudes 1; 0: largest 32760; "
     "-1: as it is", EMBED, NUMBER(normalize, -1, 2)},
    {"--raw", 0, "the same as --embd-normalize -1", EMBED, 0, 0, 0, 0, &raw},
    {"--cut", 0, "cuts texts that are longer than the context", EMBED | SEARCH, FLAG(cut)},
    {"--no-parse-special", 0, "names of control tokens in texts are text", ANY, FLAG(no_special)},
    {"--pooling", "NAME", "mean, cls or last (the model's)", ANY, &pooling_name, 0, 0, 0, 0},
    {"--kv-type", "TYPE", "of keys and values: f16 (default), f32 or i8", ANY, &kv_name, 0, 0, 0,
     0},
    {"-c --ctx-size", "N", "longest text in tokens (4096, or what the model was trained for)", ANY,
     NUMBER(n_ctx, 0, 1 << 20)},
    {"-b --batch-size -ub --ubatch-size", "N", "tokens of a pass (512)", ANY,
     NUMBER(n_batch, 1, 65536)},
    {"-np --parallel", "N", "texts of a pass, at most (64)", ANY, NUMBER(n_seqs, 1, 4096)},
    {"-t --threads", "N", "threads (all processors)", ANY, NUMBER(n_threads, -1, 256)},
    {"-k", "N", "how many passages (10)", SEARCH, NUMBER(k, 1, 100000)},
    {"--vector", "FILE.npy", "searches for a vector instead of a text", SEARCH, TEXT(vector)},
    {"--all", 0, "computes every score exactly: the same result, slower", SEARCH, FLAG(all)},
    {"--json", 0, "prints one JSON object", SEARCH, FLAG(json)},
    {"-q --quiet --log-disable", 0, "neither notes nor progress", ANY, 0, 0, 0, 0, &say_quiet},
    {"-ngl --gpu-layers --n-gpu-layers", "N", 0, ANY, &gpu_layers, 0, 0, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const char usage[] =
    "embed -m MODEL [options] < texts         a vector for each line\n"
    "embed index FOLDER -m MODEL -o NAME      NAME.npy, NAME.i8.npy, NAME.jsonl for search\n"
    "embed index NAME.npy                     NAME.i8.npy alone\n"
    "embed search NAME.npy TEXT -m MODEL      the passages that are most like the text\n";

static int help(void) {
    int i;
    fputs(usage, stdout);
    for (i = 0; i < N_OPTIONS; i++) {
        const option *o = &options[i];
        char name[64];
        if (!o->help) continue;
        snprintf(name, sizeof name, "%s %s", o->names, o->arg ? o->arg : "");
        printf("  %-38s %s\n", name, o->help);
    }
    puts("exit codes: 0 success, 1 a text or a file failed, 2 usage, 3 the model was refused");
    return fflush(stdout) ? FAILED + 1 : ENDED;
}

/* Is it one of the names? */
static int is_named(const char *names, const char *name) {
    const size_t n = strlen(name);
    const char *at = names;
    for (; (at = strstr(at, name)) != 0; at += n)
        if ((at == names || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return n > 0;
    return 0;
}

static const option *find(const char *name) {
    int i;
    for (i = 0; i < N_OPTIONS; i++)
        if (!strchr(name, ' ') && is_named(options[i].names, name)) return &options[i];
    return 0;
}

static const char *command_name(command c) {
    return c == INDEX ? "embed index" : c == SEARCH ? "embed search" : "embed";
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
    const option *o = find(name);
    if (!o) return fail(WRONG, "there is no option %s; --help lists them", name);
    if (!(o->uses & (int)values.command))
        return fail(WRONG, "%s does not use %s", command_name(values.command), name);
    if (o->flag) {
        *o->flag = 1;
        return GO_ON;
    }
    if (!value) return fail(WRONG, "%s needs a value: %s", name, o->arg);
    *used = 1;
    if (o->text && !value[0] && o->text != &values.separator)    /* there, one text is meant */
        return fail(WRONG, "%s: the value (%s) is empty", name, o->arg);
    if (o->text) *o->text = value;
    else if (!read_number(value, o->low, o->high, o->number))
        return fail(WRONG, "%s %s: a whole number from %ld to %ld is needed", name, value, o->low,
                    o->high);
    return GO_ON;
}

/* What a command is given besides options. */
static int take_word(const char *word) {
    const int most = values.command == SEARCH ? 2 : values.command == INDEX ? 1 : 0;
    if (values.n_words == most)
        return fail(WRONG, "%s: '%s' is one word too many; --help has more",
                    command_name(values.command), word);
    values.words[values.n_words++] = word;
    return GO_ON;
}

/* ---- values that are names ---- */

typedef struct name { const char *text; int value; } name;

static const name formats[] = {
    {"json", FORMAT_JSON}, {"jsonl", FORMAT_JSONL}, {"csv", FORMAT_CSV}, {"npy", FORMAT_NPY},
    {"raw", FORMAT_RAW}, {"array", FORMAT_ARRAY}, {"text", FORMAT_TEXT}, {0, FORMAT_JSONL}};
static const name llama_formats[] = {
    {"json", FORMAT_JSON}, {"array", FORMAT_ARRAY}, {"raw", FORMAT_TEXT}, {0, FORMAT_JSONL}};
static const name poolings[] = {
    {"mean", BITNET_POOLING_MEAN}, {"cls", BITNET_POOLING_FIRST}, {"first", BITNET_POOLING_FIRST},
    {"last", BITNET_POOLING_LAST}, {0, BITNET_POOLING_MODEL}};
static const name kv_types[] = {
    {"f16", BITNET_KV_F16}, {"f32", BITNET_KV_F32}, {"i8", BITNET_KV_I8}, {0, BITNET_KV_F16}};
static const name bit_counts[] = {{"8", 8}, {"4", 4}, {"2", 2}, {"1", 1}, {0, 0}};

/* The value of a text among names, which end with the value of no text; -1: it is another one. */
static int which(const char *own, const char *text, const name *names) {
    char all[96] = "";
    const name *n = names;
    for (; n->text; n++) {
        if (text && !strcmp(text, n->text)) return n->value;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", n == names ? "" : ", ",
                 n->text);
    }
    if (!text) return n->value;
    say("%s '%s': it can be %s", own, text, all);
    return -1;
}

static int read_names(settings *s) {
    const int form = llama_format ? which("--embd-output-format", llama_format, llama_formats)
                                    : which("--format", format_name, formats);
    const int pooling = which("--pooling", pooling_name, poolings);
    const int kv_type = which("--kv-type", kv_name, kv_types);
    const int bits = which("--bits", bits_text, bit_counts);
    if (form < 0 || pooling < 0 || kv_type < 0 || bits < 0) return WRONG;
    if (llama_format && format_name)
        return fail(WRONG, "--format and --embd-output-format exclude each other");
    s->format = (enum format)form;
    s->pooling = (bitnet_pooling)pooling;
    s->kv_type = (bitnet_kv_type)kv_type;
    s->bits = bits;
    if (raw) s->normalize = -1;
    return GO_ON;
}

/* ---- what fits together ---- */

static int check_embed(const settings *s) {
    const int binary = s->format == FORMAT_NPY || s->format == FORMAT_RAW;
    if (!s->model) return fail(WRONG, "-m MODEL is needed; --help has more");
    if ((s->prompt != 0) + (s->file != 0) + (s->tokens != 0) > 1)
        return fail(WRONG, "-p, -f and --tokens exclude each other");
    if (s->jsonl && (s->separator || s->tokens))
        return fail(WRONG, "--jsonl excludes --embd-separator and --tokens");
    if (s->tokens && s->task) return fail(WRONG, "--query needs texts, not --tokens");
    if (s->bits && !binary) return fail(WRONG, "--bits needs --format npy or raw");
    return GO_ON;
}

static int check_index(const settings *s) {
    const size_t n = s->n_words ? strlen(s->words[0]) : 0;
    const int is_npy = n > 4 && !strcmp(s->words[0] + n - 4, ".npy");
    if (!s->n_words) return fail(WRONG, "embed index needs a folder, or an .npy file");
    if (is_npy && (s->model || s->output))
        return fail(WRONG, "embed index NAME.npy needs neither -m nor -o");
    if (!is_npy && !s->model) return fail(WRONG, "embed index FOLDER needs -m MODEL");
    if (!is_npy && !s->output) return fail(WRONG, "embed index FOLDER needs -o NAME");
    return GO_ON;
}

static int check_search(const settings *s) {
    if (!s->n_words) return fail(WRONG, "embed search needs NAME.npy and a text");
    if (s->vector && (s->n_words == 2 || s->model || s->task))
        return fail(WRONG, "--vector needs neither a text nor -m nor --query");
    if (!s->vector && s->n_words < 2) return fail(WRONG, "embed search needs a text, or --vector");
    if (!s->vector && !s->model) return fail(WRONG, "embed search needs -m MODEL");
    return GO_ON;
}

int options_read(int argc, char **argv, settings *s) {
    int i = 1, wrong = GO_ON, only_words = 0;
    values.command = EMBED;
    values.normalize = 2;
    values.k = 10;
    if (argc > 1 && !strcmp(argv[1], "index")) values.command = INDEX;
    if (argc > 1 && !strcmp(argv[1], "search")) values.command = SEARCH;
    for (i += values.command != EMBED; i < argc && !wrong; i++) {
        int used = 0;
        if (only_words || argv[i][0] != '-' || !argv[i][1]) wrong = take_word(argv[i]);
        else if (!strcmp(argv[i], "--")) only_words = 1;
        else if (is_named("-h --help", argv[i])) return help();
        else wrong = take(argv[i], i + 1 < argc ? argv[i + 1] : 0, &used);
        i += used;
    }
    if (!wrong) wrong = read_names(&values);
    if (!wrong && gpu_layers) note("-ngl is ignored: there is no GPU");
    *s = values;
    if (wrong) return wrong;
    return s->command == EMBED ? check_embed(s) : s->command == INDEX ? check_index(s)
                                                                     : check_search(s);
}
