/* crosscheck.c - do two machines compute the same? Each writes a report, and --compare reads both.

       cc -O2 examples/crosscheck/[a-z]*.c -o crosscheck -lpthread
       ./crosscheck [-m MODEL] > a.txt          here, > b.txt there, then on any machine:
       ./crosscheck --compare a.txt b.txt

   A report holds the results of every operation of the scalar kernels on fixed inputs and, with a
   model, the residual stream of every layer, the logits, greedy tokens, and the logits of sequences
   that are evaluated together. It is the same text, byte for byte, on every machine, so it says
   nothing about the machine, the kernels in use or the threads: that goes to stderr. A kernel table
   that differs from the scalar one adds lines of its own. Exit codes: 0 all agree, 1 something
   differs or failed, 2 wrong usage or not a report. */
#include "../../bitnet.h"
#include "../streams.h"
#include "../utf8.h"
#include "../values.h"
#include "kernels.h"
#include "model.h"
#include "report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
  #include <fcntl.h>
  #include <io.h>
#endif

static const char *kernel_name, *layout_name, *tile_text, *reports[2];
static int32_t which_layout, helping;
static model_options model = {
    .prompt = "Once upon a time there was a little girl who lived in a village. One day she found "
              "a key, and she asked her mother what it was for.",
    .kv_name = "f16", .n_new = 16
};

static const struct option {
    const char *name, *arg, *help;
    char kind;                         /* Flag, Text, Whole number, Comparison */
    void *to;
    int32_t lo, hi;
} options[] = {
    {"-m", "FILE", "a model, a GGUF file; without it only the kernels", 'T', &model.path, 0, 0},
    {"-p", "TEXT", "the prompt", 'T', &model.prompt, 0, 0},
    {"-n", "N", "greedy tokens (16)", 'W', &model.n_new, 1, 4096},
    {"-t", "N", "threads; 0: one per CPU (0)", 'W', &model.ctx.n_threads, 0, 256},
    {"-b", "N", "prompt tokens evaluated together; 0: 512 (0)", 'W', &model.ctx.n_batch, 0, 65536},
    {"--kernel", "NAME", "only this table; the model uses it too", 'T', &kernel_name, 0, 0},
    {"--kv", "TYPE", "keys and values as " KV_TYPES " (f16)", 'T', &model.kv_name, 0, 0},
    {"--i2s-packing", "L", "how the file packs its weights: 128, 64 or 4row (128)", 'T',
     &layout_name, 0, 0},
    {"--tile", "B,B,b", "BM,BK,bm of its weights, if they are TL1 or TL2 (by their shape)", 'T',
     &tile_text, 0, 0},
    {"--emulate-bug", "BUG", "arm64-layout: read as the 64 packing", 'T', &model.bug, 0, 0},
    {"--which-packing", 0, "no report: how likely is English text in each layout?", 'F',
     &which_layout, 0, 0},
    {"--short", 0, "leave the values out, for reading by eye", 'F', &leave_values_out, 0, 0},
    {"--compare", "A B", "the first difference of two reports", 'C', reports, 0, 0},
    {"--help", 0, "this text", 'F', &helping, 0, 0}
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* ---- the machine ---- */

#if defined(__clang__)
  #define COMPILER __VERSION__
#elif defined(__GNUC__)
  #define COMPILER "gcc " __VERSION__
#else
  #define COMPILER "another compiler"
#endif
#if defined(__x86_64__) || defined(_M_X64)
  #define MACHINE "x86-64"
#elif defined(__aarch64__) || defined(_M_ARM64)
  #define MACHINE "AArch64"
#elif defined(__i386__) || defined(_M_IX86)
  #define MACHINE "x86"
#elif defined(__arm__)
  #define MACHINE "ARM"
#elif defined(__riscv)
  #define MACHINE "RISC-V"
#elif defined(__s390x__)
  #define MACHINE "s390x"
#else
  #define MACHINE "another CPU"
#endif

static void describe_machine(void) {
    const uint32_t one = 1;
    int i;
    fprintf(stderr, "crosscheck: bitnet.h %s, " MACHINE ", %d-bit %s-endian, compiled by %s\n"
            "crosscheck: kernels:", bitnet_version(), (int)sizeof(void *) * 8,
            *(const uint8_t *)&one ? "little" : "big", COMPILER);
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        fprintf(stderr, " %s%s", bitnet_kernels_name(k),
                !bitnet_kernels_usable(k)         ? " (not usable here)"
                : k == bitnet_kernels_default() ? " (default)" : "");
    }
    fputc('\n', stderr);
}

/* Does this build compute floats as the library's determinism needs it? Returns 1 if not. */
static int check_arithmetic(void) {
    bitnet_error err;
    if (!bitnet_selftest(bitnet_kernels_find("scalar"), &err)) return 0;
    fprintf(stderr, "crosscheck: %s\n", err.text);
    return 1;
}

/* ---- options ---- */

static void set_option(const struct option *o, char **given) {
    long long n;
    if (o->kind == 'F') *(int32_t *)o->to = 1;
    else if (!**given) fail(2, "%s: the value (%s) is empty", o->name, o->arg);
    else if (o->kind == 'W') {
        if (!value_number(*given, o->lo, o->hi, &n))
            fail(2, "%s: '%s' is not a whole number from %d to %d", o->name, *given, (int)o->lo,
                 (int)o->hi);
        *(int32_t *)o->to = (int32_t)n;
    } else {
        ((const char **)o->to)[0] = given[0];
        if (o->kind == 'C') ((const char **)o->to)[1] = given[1];
    }
}

static void parse(int argc, char **argv) {
    int i, j, n;
    for (i = 1; i < argc; i += 1 + n) {
        for (j = 0; j < N_OPTIONS && strcmp(argv[i], options[j].name); j++) {}
        if (j == N_OPTIONS) fail(2, "unknown option '%s'; see --help", argv[i]);
        n = options[j].kind == 'F' ? 0 : options[j].kind == 'C' ? 2 : 1;
        if (i + n >= argc) fail(2, "%s needs a value (%s); see --help", argv[i], options[j].arg);
        set_option(&options[j], argv + i + 1);
    }
}

static void print_help(void) {
    int i;
    for (i = 0; i < N_OPTIONS; i++)
        printf("  %-15s %-5s %s\n", options[i].name, options[i].arg ? options[i].arg : "",
               options[i].help);
}

/* The meaning of the options' texts, and options that exclude each other. */
static void resolve(void) {
    if (!value_kv_type(model.kv_name, &model.ctx.kv_type))
        fail(2, "--kv: '%s' is not " KV_TYPES, model.kv_name);
    if (model.bug && strcmp(model.bug, "arm64-layout"))
        fail(2, "--emulate-bug: '%s' is not arm64-layout", model.bug);
    if (model.bug && layout_name) fail(2, "--emulate-bug and --i2s-packing exclude each other");
    if (model.bug) layout_name = "64";
    if (layout_name && !value_packing(layout_name, &model.model.i2s_packing))
        fail(2, "--i2s-packing: '%s' is not " I2S_PACKINGS, layout_name);
    if (tile_text && !value_tile(tile_text, &model.model.tile))
        fail(2, "--tile: '%s' is not BM,BK,bm", tile_text);
    if (!model.path && (layout_name || which_layout || tile_text))
        fail(2, "no model: give -m FILE; see --help");
    if (which_layout && layout_name)
        fail(2, "--which-packing tries all layouts: it excludes the other option");
    if (!kernel_name) return;
    model.model.kernels = bitnet_kernels_find(kernel_name);
    if (!model.model.kernels)
        fail(2, "--kernel: '%s' is unknown; a report without it lists all", kernel_name);
    if (!bitnet_kernels_usable(model.model.kernels))
        fail(1, "--kernel: this machine cannot run '%s'", kernel_name);
}

/* Newlines are the same on every system. */
static void set_binary_output(void) {
#ifdef _WIN32
    _setmode(_fileno(stdout), _O_BINARY);
#endif
}

int main(int argc, char **argv) {
    int n_wrong = 0, code = 0;
    if (!streams_fill()) return 1;
    argv = utf8_arguments(&argc, argv);
    parse(argc, argv);
    resolve();
    set_binary_output();
    if (helping) print_help();
    else if (reports[0]) code = compare_reports(reports[0], reports[1]);
    else if (which_layout) compare_layouts(&model);
    else {
        if (model.path) open_model(&model);
        describe_machine();
        puts(REPORT_HEAD REPORT_VERSION);
        n_lines = 1;
        code = check_arithmetic();
        n_wrong = check_kernels(model.model.kernels);
        if (model.path) report_model(&model);
        printf("end %lu\n", n_lines);
    }
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write: %s", strerror(errno));
    if (n_wrong) fail(1, "%d results differ from those of the scalar kernels", n_wrong);
    return code;
}
