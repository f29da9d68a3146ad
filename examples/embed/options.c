#include "options.h"
#include "../options.h"
#include "say.h"

enum { GO_ON = 0, WRONG = USAGE + 1, ANY = EMBED | INDEX | SEARCH };

/* The values of options that have names, until all are read. */
static const char *format_name, *llama_format, *pooling_name, *bits_text, *gpu_layers;
static int raw;
static settings values;

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", ANY, .text = &values.model},
    {"-p --prompt", "TEXT", "the texts, instead of standard input", EMBED, .text = &values.prompt},
    {"-f --file", "FILE", "the file with the texts", EMBED, .text = &values.file},
    {"--embd-separator", "TEXT", "what is between texts (a newline); \"\": all is one text", EMBED,
     .text = &values.separator},
    {"--jsonl", 0, "each line is {\"text\": ...}, or \"input\": a text or tokens; \"id\" is copied",
     EMBED, .flag = &values.jsonl},
    {"--tokens", "1,2,3", "embeds these tokens as they are", EMBED, .text = &values.tokens},
    {"--query", "TASK", "embeds queries: \"Instruct: TASK\\nQuery: TEXT\"", EMBED | SEARCH,
     .text = &values.task},
    {"-o --output", "FILE", "where to write; with index: the beginning of three names",
     EMBED | INDEX, .text = &values.output},
    {"--format", "NAME", "json, jsonl (default), csv, npy, raw (floats), array or text", EMBED,
     .text = &format_name},
    {"--embd-output-format", "NAME", "the same with llama-embedding's names: array, json, raw",
     EMBED, .text = &llama_format},
    {"--bits", "8|4|2|1", "packed vectors, with npy and raw", EMBED, .text = &bits_text},
    {"--embd-normalize", "N", "2: length 1 (default); 1: sum of magnitudes 1; 0: largest 32760; "
     "-1: as it is", EMBED, .number = {&values.normalize, -1, 2}},
    {"--raw", 0, "the same as --embd-normalize -1", EMBED, .flag = &raw},
    {"--cut", 0, "cuts texts that are longer than the context", EMBED | SEARCH,
     .flag = &values.cut},
    {"--no-parse-special", 0, "names of control tokens in texts are text", ANY,
     .flag = &values.no_special},
    {"--pooling", "NAME", "mean, cls or last (the model's)", ANY, .text = &pooling_name},
    {"--kv-type", "TYPE", "of keys and values: " KV_TYPES " (f16)", ANY,
     .kv_type = &values.kv_type},
    {"-c --ctx-size", "N", "longest text in tokens (4096, or what the model was trained for)", ANY,
     .number = {&values.n_ctx, 0, 1 << 20}},
    {"-b --batch-size -ub --ubatch-size", "N", "tokens of a pass (512)", ANY,
     .number = {&values.n_batch, 1, 65536}},
    {"-np --parallel", "N", "texts of a pass, at most (64)", ANY,
     .number = {&values.n_seqs, 1, 4096}},
    {"-t --threads", "N", "threads (all processors)", ANY, .number = {&values.n_threads, -1, 256}},
    {"-k", "N", "how many passages (10)", SEARCH, .number = {&values.k, 1, 100000}},
    {"--vector", "FILE.npy", "searches for a vector instead of a text", SEARCH,
     .text = &values.vector},
    {"--all", 0, "computes every score exactly: the same result, slower", SEARCH,
     .flag = &values.all},
    {"--json", 0, "prints one JSON object", SEARCH, .flag = &values.json},
    {"-q --quiet --log-disable", 0, "neither notes nor progress", ANY, .flag = &say_quiet},
    {"-ngl --gpu-layers --n-gpu-layers", "N", 0, ANY, .text = &gpu_layers},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const char usage[] =
    "embed -m MODEL [options] < texts         a vector for each line\n"
    "embed index FOLDER -m MODEL -o NAME      NAME.npy, NAME.i8.npy, NAME.jsonl for search\n"
    "embed index NAME.npy                     NAME.i8.npy alone\n"
    "embed search NAME.npy TEXT -m MODEL      the passages that are most like the text\n";

static const char notes[] =
    "exit codes: 0 success, 1 a text or a file failed, 2 usage, 3 the model was refused,\n"
    "130 Ctrl-C\n";

static const char *command_name(command c) {
    return c == INDEX ? "embed index" : c == SEARCH ? "embed search" : "embed";
}

/* Takes the option at argv[*i], and its value. */
static int take(char **argv, int *i) {
    const option *o = option_find(options, N_OPTIONS, argv[*i]);
    const char *name = argv[*i], *value = argv[*i + 1];
    char error[OPTION_ERROR];
    if (o && !(o->commands & (int)values.command))
        return fail(WRONG, "%s does not use %s", command_name(values.command), name);
    if (o && (o->text || o->kv_type) && value && !value[0] &&
        o->text != &values.separator)  /* there, one text is meant */
        return fail(WRONG, "%s: the value (%s) is empty", name, o->arg);
    return option_take(o, argv, i, error) ? GO_ON : fail(WRONG, "%s", error);
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

static const option_name formats[] = {
    {"json", FORMAT_JSON}, {"jsonl", FORMAT_JSONL}, {"csv", FORMAT_CSV}, {"npy", FORMAT_NPY},
    {"raw", FORMAT_RAW}, {"array", FORMAT_ARRAY}, {"text", FORMAT_TEXT}, {0, FORMAT_JSONL}};
static const option_name llama_formats[] = {
    {"json", FORMAT_JSON}, {"array", FORMAT_ARRAY}, {"raw", FORMAT_TEXT}, {0, FORMAT_JSONL}};
static const option_name poolings[] = {
    {"mean", BITNET_POOLING_MEAN}, {"cls", BITNET_POOLING_FIRST}, {"first", BITNET_POOLING_FIRST},
    {"last", BITNET_POOLING_LAST}, {0, BITNET_POOLING_MODEL}};
static const option_name bit_counts[] = {{"8", 8}, {"4", 4}, {"2", 2}, {"1", 1}, {0, 0}};

static int read_names(settings *s) {
    char error[OPTION_ERROR];
    int form, pooling, bits;
    if (!(llama_format ? option_value("--embd-output-format", llama_format, llama_formats, &form,
                                      error)
                       : option_value("--format", format_name, formats, &form, error)) ||
        !option_value("--pooling", pooling_name, poolings, &pooling, error) ||
        !option_value("--bits", bits_text, bit_counts, &bits, error))
        return fail(WRONG, "%s", error);
    if (llama_format && format_name)
        return fail(WRONG, "--format and --embd-output-format exclude each other");
    s->format = (enum format)form;
    s->pooling = (bitnet_pooling)pooling;
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

int settings_read(int argc, char **argv, settings *s) {
    int i = 1, wrong = GO_ON, only_words = 0, shown;
    values.command = EMBED;
    values.normalize = 2;
    values.k = 10;
    if (argc > 1 && !strcmp(argv[1], "index")) values.command = INDEX;
    if (argc > 1 && !strcmp(argv[1], "search")) values.command = SEARCH;
    for (i += values.command != EMBED; i < argc && !wrong; i++) {
        if (only_words || argv[i][0] != '-' || !argv[i][1]) wrong = take_word(argv[i]);
        else if (!strcmp(argv[i], "--")) only_words = 1;
        else if ((shown = options_show(argv[i], "embed", options, N_OPTIONS, usage, notes)) != 0)
            return shown;
        else wrong = take(argv, &i);
    }
    if (!wrong) wrong = read_names(&values);
    if (!wrong && gpu_layers) note("-ngl is ignored: there is no GPU");
    *s = values;
    if (wrong) return wrong;
    return s->command == EMBED ? check_embed(s) : s->command == INDEX ? check_index(s)
                                                                     : check_search(s);
}
