#include "options.h"
#include "../embed/say.h"
#include "../options.h"

static settings values;
static const char *ignored;

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", .text = &values.model},
    {"-f --file", "FILE", "the text; -: standard input. A newline at its end does not count",
     .text = &values.file},
    {"-p --prompt", "TEXT", "the text itself", .text = &values.prompt},
    {"-c --ctx-size", "N", "tokens of a chunk (512)", .number = {&values.n_ctx, 3, 1 << 20}},
    {"-b --batch-size", "N", "tokens of all chunks that are evaluated side by side (2048)",
     .number = {&values.n_batch, 1, 1 << 20}},
    {"-ub --ubatch-size", "N", "tokens of a pass over the weights, at most (512)",
     .number = {&values.n_ubatch, 1, 65536}},
    {"--chunks", "N", "how many chunks; -1: all (default)",
     .number = {&values.n_chunks, -1, INT32_MAX}},
    {"--ppl-stride", "N", "chunks overlap, and the last N tokens of each count; 0: off (default)",
     .number = {&values.stride, 0, 1 << 20}},
    {"--ppl-output-type", "0|1", "1: a line of numbers for each chunk (0)",
     .number = {&values.output_type, 0, 1}},
    {"--kl-divergence-base --save-all-logits", "FILE", "saves all log-probabilities; with "
     "--kl-divergence: reads them", .text = &values.base},
    {"--kl-divergence", 0, "compares the model with the one that saved the base",
     .flag = &values.compare},
    {"--kv-type", "TYPE", "of keys and values: " KV_TYPES " (f16)", .kv_type = &values.kv_type},
    {"--kernel", "NAME", "kernel table", .text = &values.kernel},
    {"-t --threads", "N", "threads (all processors)", .number = {&values.n_threads, -1, 256}},
    {"-q --quiet --log-disable", 0, "no notes", .flag = &say_quiet},
    {"-ngl --gpu-layers --n-gpu-layers", "N", 0, .text = &ignored},
};
enum { N_OPTIONS = sizeof options / sizeof options[0], WRONG = USAGE + 1 };

static const char usage[] =
    "perplexity -m MODEL -f TEXT [options]\n"
    "perplexity -m MODEL -f TEXT --kl-divergence-base FILE             saves a base\n"
    "perplexity -m OTHER --kl-divergence-base FILE --kl-divergence     compares with it\n";
static const char notes[] =
    "exit codes: 0 success, 1 a text or a file failed, 2 usage, 3 the model was refused,\n"
    "130 Ctrl-C\n";

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
    return 0;
}

int settings_read(int argc, char **argv, settings *s) {
    int wrong;
    values.n_batch = 2048;
    values.n_ubatch = 512;
    values.n_chunks = -1;
    wrong = options_read(argc, argv, "perplexity", options, N_OPTIONS, usage, notes);
    if (!wrong) wrong = check(&values);
    if (!wrong && ignored) note("-ngl is ignored: there is no GPU");
    *s = values;
    return wrong;
}
