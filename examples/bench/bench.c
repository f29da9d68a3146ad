/* bench.c - how close to this machine's limits a model reads prompts and writes, with every kernel
   table

       cc -O2 examples/bench/[a-z]*.c examples/json/[a-z]*.c -o bench -lpthread
       ./bench [MODEL | --family NAME] [--layers N] [-t N] [-r ROUNDS] [--kernel NAME]
               [--kv-type TYPE] [--quick] [--profile] [--json] [--sequences LIST]
               [--chunks LIST] [--no-repack] [--compare COMMAND] [--compare-form FORM]...
               [--compare-limit SECONDS] [--save FILE] [--ask] [--help]

   Without MODEL it makes a random one in memory, with BitNet b1.58-2B-4T's shapes, or those of
   --family bitnet-tq2 (the same as architecture bitnet in TQ2_0, which llama.cpp reads as well),
   qwen3-q2 (Ternary Bonsai 1.7B, a scale per 128 weights), qwen3-q1 (1-bit Bonsai 1.7B, the same
   with one bit a weight), maple (Maple-preview 20B-A1B, 256 experts, 8 for a token; 5.9 GB and as
   much to work with), bonsai-27b and bonsai-27b-ptq (Ternary Bonsai 2 27B in PQ2_0, 7.2 GB, and
   PTQ1_0, 5.9 GB; the inputs of their matrices are turned), bonsai-27b-q2 (the first Ternary Bonsai
   27B in Q2_0, 7.6 GB, which llama.cpp reads as well) and of the text embeddings, qwen3-embedding
   (0.6B) and gemma3-embedding (270M). --layers makes fewer of them. A model of embeddings, which
   writes nothing, gets a table of its own: see the end.
   --kv-type f16, f32 or i8 is how the contexts keep keys and values (f16); the embeddings show f16
   and i8. --quick leaves out the context of 4096 and one of three rounds. --profile prints instead
   where the time goes, in the first table. --sequences 1,2,4 and --chunks 16,32 print instead only
   the tables of sequences and of prompts beside them, for these numbers; then --json prints an
   object in each line.

   --save FILE only writes the model, a random one or MODEL, to a file: for programs that read its
   format, and for tests/web/bench.mjs. A random one is never in memory as a whole then. With --ask,
   which measures on demand for the same test, it goes on to measure this model; see ask.h.

   Limits and speeds are measured in the same rounds, with as many threads, and the tables take
   turns, so that other load on the machine affects all alike. Printed are medians; "+- %" is half
   the range from the slowest round to the fastest. "first s" is the time from the start of loading
   to the first token, including the context; "screen s" that of the first tokens' samples, which
   fill in the copy of the output head.

   Decoding at a context writes the last N_DECODE positions of it (0: the first ones), greedily, by
   exact top k by means of a copy of the output head ("screened") or with all logits ("full"). Its
   limit is memory bandwidth: a token needs the layers' weights, what it reads of the head and its
   copy, and the keys and values before it; a state is read and written ("MB"). Prefill is
   bitnet_eval of a prompt, without the head. Its limit is what the kernels' instructions multiply
   and accumulate in registers; the ternary weights are the work. The first kernels are those that
   the library chooses for the file; the next table shows them with 1, 2, 4, ... threads.

   The last two are of sequences in one context, again with the first kernels. In each pass every
   sequence writes a token, greedily. The limit of a pass is the time for reading, each once, the
   weights, what the samples need of the head and its copy, and all keys and values, plus the
   time for multiplying the weights and the copy with the columns of all sequences. Kernels read and
   multiply at the same time, so a few sequences can beat this limit; it is meant for many. Then 8
   sequences write while another one reads a prompt, a chunk of it in each pass.

   Embeddings: one text of some tokens, and 256 texts of 16 to 64 tokens that share passes of 512
   ("to 512": over the speed of one text of 512). The limit is the one of prefill, and the ternary
   weights are the work. "cosine" is between the vectors with the cache of the row and an F32 cache.

   --compare prints instead only how fast another program is beside this one:

       ./bench ours.gguf -t 2 --compare "llama-bench -m other.gguf -t 2 -p 512 -n 128 -r 1"

   The shell runs the command in each round, after the limits are measured; it must print its
   figures as llama-bench does (-o md, csv, json or jsonl) to its standard output. Then we run the
   tests that it has named, with the first kernels: pp512, a prompt of 512 tokens; tg128, 128
   written; both, pp512+tg128; behind 4096 tokens, "tg128 @ d4096". Writing is measured with both
   heads. Here it includes the choice of the token; llama-bench computes all logits and chooses
   nothing. "ratio" is the median of the rounds' ratios, ours over theirs. "threads" are theirs, if
   it tells them. Other programs need forms, parts of the lines that they print, with a test's name
   in braces where its tokens per second are; * is any text, and the last line that fits counts:

       ./bench ours.gguf --compare "llama-cli -m other.gguf -f prompt.txt -n 64 2>&1"
               --compare-form "print: prompt eval time *{pp300} tokens per second"
               --compare-form "print: eval time *{tg64 @ d300} tokens per second"

   A run that takes over 600 seconds, or --compare-limit, is killed, and bench ends. */
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../streams.h"
#include "../utf8.h"
#include "../values.h"
#include "ask.h"
#include "command.h"
#include "compare.h"
#include "embeddings.h"
#include "figures.h"
#include "limits.h"
#include "model.h"
#include "profile.h"
#include "report.h"
#include "save.h"
#include "sequences.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TABLES = 16, MAX_SCALES = 10 };

/* What is measured. The stages go from the longest context to the shortest: a context can forget
   its end, so it is filled only once. */
enum { N_STAGES = 3, N_RUNS = 10, FIRST_DECODE = 4 };
static const int32_t stages[N_STAGES] = {LONGEST, 1024, 0};
typedef enum kind { PREFILL, SCREENED, FULL } kind;      /* the last two decode with that head */
static const struct { kind kind; int32_t tokens, stage; } runs[N_RUNS] = {
    {PREFILL, 32, 2}, {PREFILL, 128, 2}, {PREFILL, 512, 2}, {PREFILL, LONGEST, 0},
    {SCREENED, 0, 2}, {FULL, 0, 2}, {SCREENED, 1024, 1}, {FULL, 1024, 1},
    {SCREENED, LONGEST, 0}, {FULL, LONGEST, 0}
};

typedef struct table {                 /* one kernel table */
    const bitnet_kernels *k;
    bitnet_model *model;
    bitnet_ctx *ctx;
    const char *layout;
    double load_s, first_s, screen_s, own_mb, ctx_mb;
    head_use head[N_RUNS];
    double peak[MAX_ROUNDS], speed[N_RUNS][MAX_ROUNDS];   /* GMAC/s; tok/s */
} table;

typedef struct scale {                 /* the first table with some number of threads */
    int threads;
    bitnet_ctx *ctx;
    double bandwidth[MAX_ROUNDS], prefill[MAX_ROUNDS], decode[MAX_ROUNDS];
} scale;

static table tables[MAX_TABLES];
static scale scales[MAX_SCALES];
static int n_tables, n_scales, rounds, threads, quick, profile, together, ask, has_forms, help;
static int n_layers;
static int limit_s;                    /* of each run of the command */
static const char *path, *kernel, *save, *family, *kv, *command;
static double bandwidth[N_STAGES][MAX_TABLES * MAX_ROUNDS];   /* GB/s */

/* ---- measuring ---- */

/* Does the model have a context for so many tokens? 0: for decoding from the start. */
static int fits(int32_t tokens) {
    return (tokens ? tokens : N_DECODE) <= info.ctx_train && !(quick && tokens == LONGEST);
}

/* Filling the longest context takes long: it is measured once. */
static int rounds_of(int run) {
    return runs[run].kind == PREFILL && runs[run].tokens == LONGEST ? 1 : rounds;
}

static void measure_table(table *t, int stage, int r) {
    int i;
    bandwidth[stage][r * n_tables + (t - tables)] = measure_bandwidth(threads, file, file_size);
    t->peak[r] = measure_peak(threads, t->k);
    for (i = 0; i < N_RUNS; i++) {
        if (runs[i].stage != stage || !fits(runs[i].tokens) || r >= rounds_of(i)) continue;
        t->speed[i][r] = runs[i].kind == PREFILL ? prefill_speed(t->ctx, runs[i].tokens)
            : decode_speed(t->ctx, runs[i].tokens, runs[i].kind == FULL, &t->head[i]);
    }
}

static void measure_tables(void) {
    int stage, r, i;
    for (stage = 0; stage < N_STAGES; stage++)
        for (r = 0; r < rounds && fits(stages[stage]); r++) {
            fprintf(stderr, "bench: context %d, round %d of %d\n", (int)stages[stage], r + 1,
                    rounds);
            for (i = 0; i < n_tables; i++) measure_table(&tables[i], stage, r);
        }
}

static void measure_scales(void) {
    int i, r, n;
    for (n = 1; threads > 1 && fits(128); n = 2 * n < threads ? 2 * n : threads) {
        scales[n_scales].ctx = open_ctx(tables[0].model, 128, n, 0, 0, 0, 0);
        scales[n_scales++].threads = n;
        if (n == threads) break;
    }
    for (r = 0; r < rounds && n_scales; r++) {
        fprintf(stderr, "bench: threads, round %d of %d\n", r + 1, rounds);
        for (i = 0; i < n_scales; i++) {
            scale *s = &scales[i];
            s->bandwidth[r] = measure_bandwidth(s->threads, file, file_size);
            s->prefill[r] = prefill_speed(s->ctx, 128);
            s->decode[r] = decode_speed(s->ctx, 0, 0, 0);
        }
    }
    for (i = 0; i < n_scales; i++) bitnet_ctx_free(scales[i].ctx);
}

/* ---- the report ---- */

/* Bytes to read for a token of a run that decodes. */
static double run_bytes(const table *t, int run) {
    const double last = runs[run].tokens ? runs[run].tokens : N_DECODE;
    return token_bytes(t->k, 1, t->head[run].bytes, last - (N_DECODE - 1) / 2.0);
}

static void report_run(table *t, int run) {
    static const char *const heads[] = {"-", "screened", "full"};
    int n = rounds_of(run), is_decode = runs[run].kind != PREFILL, stage = runs[run].stage;
    double *v = t->speed[run], speed = median(v, n);
    double gb = is_decode ? speed * run_bytes(t, run) * 1e-9 : -1;
    double gmac = speed * layer_weights() * 1e-9;
    double limit = is_decode ? median(bandwidth[stage], rounds * n_tables)
        : median(t->peak, rounds);
    begin_row();
    show_text("kernel", bitnet_kernels_name(t->k), -15);
    show_text("run", is_decode ? "decode" : "prefill", -7);
    show("tokens", runs[run].tokens, 7, 0);
    show_text("head", heads[runs[run].kind], 10);
    show("exact_logits", is_decode ? t->head[run].exact_logits : -1, 7, 0);
    show("token_mb", is_decode ? run_bytes(t, run) * 1e-6 : -1, 8, 1);
    show("tok_s", speed, 9, 1);
    show("spread_percent", spread_percent(v, n), 6, 1);
    show("gb_s", gb, 8, 1);
    show("gmac_s", gmac, 8, 1);
    show("limit", limit, 8, 1);
    show("limit_percent", limit > 0 ? (is_decode ? gb : gmac) / limit * 100 : -1, 8, 1);
    end_row();
}

static void report_tables(void) {
    int i, run;
    begin_list("kernels", "kernels        layout   load s  first s  own MB screen s  ctx MB peak"
               " GMAC/s");
    for (i = 0; i < n_tables; i++) {
        table *t = &tables[i];
        begin_row();
        show_text("kernel", bitnet_kernels_name(t->k), -15);
        show_text("layout", t->layout, 6);
        show("load_s", t->load_s, 9, 3);
        show("first_s", t->first_s, 9, 3);
        show("own_mb", t->own_mb, 8, 1);
        show("screen_s", t->screen_s, 9, 3);
        show("ctx_mb", t->ctx_mb, 8, 1);
        show("peak_gmac_s", median(t->peak, rounds), 12, 1);
        end_row();
    }
    end_list();
    begin_list("runs",
               "kernels        run     tokens      head   rows      MB    tok/s  +- %    GB/s"
               "  GMAC/s   limit % of it");
    for (i = 0; i < n_tables; i++)
        for (run = 0; run < N_RUNS; run++)
            if (fits(runs[run].tokens)) report_run(&tables[i], run);
    end_list();
}

static void report_scales(void) {
    double one_prefill = 0, one_decode = 0;
    int i;
    begin_list("threads", "kernels        threads prefill 128   ratio  decode 0   ratio  read GB/s"
               " % of it");
    for (i = 0; i < n_scales; i++) {
        scale *s = &scales[i];
        double p = median(s->prefill, rounds), d = median(s->decode, rounds);
        double read_gb = median(s->bandwidth, rounds);
        double gb = d * run_bytes(&tables[0], FIRST_DECODE) * 1e-9;
        if (i == 0) {
            one_prefill = p;
            one_decode = d;
        }
        begin_row();
        show_text("kernel", bitnet_kernels_name(tables[0].k), -15);
        show("threads", s->threads, 7, 0);
        show("prefill_tok_s", p, 12, 1);
        show("prefill_ratio", p / one_prefill, 8, 2);
        show("decode_tok_s", d, 10, 1);
        show("decode_ratio", d / one_decode, 8, 2);
        show("read_gb_s", read_gb, 11, 1);
        show("limit_percent", read_gb > 0 ? gb / read_gb * 100 : -1, 8, 1);
        end_row();
    }
    end_list();
}

static void report_all(void) {
    if (as_json) printf("{");
    else puts("random  threads  rounds  M weights  file MB  most MB");
    show("random_model", !path, 6, 0);
    show("n_threads", threads, 9, 0);
    show("rounds", rounds, 8, 0);
    show("million_weights", (double)info.n_params * 1e-6, 11, 1);
    show("file_mb", (double)info.file_bytes * 1e-6, 9, 1);
    show("most_mb", most_mb(), 9, 1);
    if (!as_json) puts("");
    if (profile) report_profile(rounds);
    else if (command) report_comparison();
    else {
        report_tables();
        if (n_scales) report_scales();
        report_sequences(rounds, 0);
    }
    if (as_json) puts("\n}");
}

static void report(void) {
    if (together) report_sequences(rounds, 1);
    else report_all();
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write");
}

/* ---- setting up ---- */

/* The number that follows the option a[0]. */
static int number(char **a, long high) {
    long long n = 0;
    if (!a[1] || !value_number(a[1], 1, high, &n))
        fail(2, "%s needs a number from 1 to %ld", a[0], high);
    return (int)n;
}

static int keep_form(char **a) { return add_form(a[1]); }

/* One of text, number and flag is where the value goes; the others are 0. */
typedef struct option {
    const char *name, *arg, *help;     /* arg 0: it has no value; help 0: it is not listed */
    const char **text;
    int *number, high;                 /* from 1 to high */
    int *flag, (*keep)(char **);       /* keep reads a[1] and returns more than 0 */
} option;

static const option options[] = {
    {"--family", "NAME", "random: bitnet (default) or another one; an unknown NAME lists "
     "them", .text = &family},
    {"--layers", "N", "of a random model (as many as are published)", .number = &n_layers,
     .high = 999},
    {"-t", "N", "threads (all processors)", .number = &threads, .high = MAX_THREADS},
    {"-r", "ROUNDS", "of measuring; shown are medians (3)", .number = &rounds, .high = MAX_ROUNDS},
    {"--kernel", "NAME", "this kernel table alone", .text = &kernel},
    {"--kv-type", "TYPE", "of keys and values: " KV_TYPES " (f16)", .text = &kv},
    {"--no-repack", 0, "weights in blocks stay as they lie in the file", .flag = &in_place},
    {"--quick", 0, "without the context of 4096, and 2 rounds", .flag = &quick},
    {"--profile", 0, "shows instead where the time goes", .flag = &profile},
    {"--json", 0, "prints JSON", .flag = &as_json},
    {"--sequences", "LIST", "shows instead how fast so many sequences write together: 1,2,4",
     .flag = &together, .keep = list_sequences},
    {"--chunks", "LIST", "shows instead prompts that are read beside them in such chunks: 16,32",
     .flag = &together, .keep = list_chunks},
    {"--compare", "COMMAND", "shows instead how fast another program is: \"llama-bench -m FILE\"",
     .text = &command},
    {"--compare-form", "FORM", "a part of what it prints: \"read: {pp512} tok/s\"; can be given "
     "again", .flag = &has_forms, .keep = keep_form},
    {"--compare-limit", "SECONDS", "that each of its runs may take (600)",
     .number = &limit_s, .high = MOST_SECONDS},
    {"--save", "FILE", "only writes the model to a file; with --ask goes on to measure it",
     .text = &save},
    {"--ask", 0, "answers lines \"KERNEL THREADS\" on standard input, each with two speeds",
     .flag = &ask},
    {"--help", 0, "prints this; so does -h", .flag = &help},
    {"-h", 0, 0, .flag = &help},
};
enum { N_OPTIONS = sizeof options / sizeof options[0], WIDEST = 95 };

/* The name and what follows it; returns the length. */
static int name_option(const option *o, char *text, size_t size) {
    return snprintf(text, size, "%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
}

/* Made of the table, so that it lacks no option. The first one, --family, stands beside MODEL. */
static void print_usage(void) {
    char name[64];
    int i, at = printf("usage: bench [MODEL | --family NAME]");
    for (i = 1; i < N_OPTIONS; i++) {
        if (!options[i].help) continue;
        if (at + name_option(&options[i], name, sizeof name) + 3 > WIDEST)
            at = printf("\n            ") - 1;
        at += printf(" [%s]", name);
    }
    puts("");
}

static void print_help(void) {
    int i;
    print_usage();
    puts("How close to this machine's limits a model reads and writes: MODEL, a GGUF file, or a\n"
         "random one in memory.");
    for (i = 0; i < N_OPTIONS; i++) {
        char name[64];
        if (!options[i].help) continue;
        name_option(&options[i], name, sizeof name);
        printf("  %-24s %s\n", name, options[i].help);
    }
    puts("exit codes: 0 success, 1 a file or a measurement failed, 2 usage");
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write");
    exit(0);
}

/* Takes the option a[0]; returns how many arguments behind it are its own. */
static int take(char **a) {
    const option *o = options;
    while (o < options + N_OPTIONS && strcmp(o->name, a[0])) o++;
    if (o == options + N_OPTIONS) fail(2, "unknown argument '%s'; --help lists them", a[0]);
    if (o->number) *o->number = number(a, o->high);
    else if (o->arg && !a[1]) fail(2, "%s needs a value: %s", o->name, o->arg);
    else if (o->text) *o->text = a[1];
    else *o->flag |= o->keep ? o->keep(a) : 1;
    return o->arg != 0;
}

static void parse(char **a) {
    for (; *a; a++) {
        if (**a != '-' && !path) path = *a;
        else a += take(a);
        if (help) print_help();
    }
    set_family(family, n_layers);
    if (kv && !value_kv_type(kv, &kv_type))
        fail(2, "--kv-type can be " KV_TYPES ", not %s", kv);
    if (path && family) fail(2, "--family makes a model, so it takes no file: %s", path);
    if (path && n_layers) fail(2, "--layers is for a random model, not for a file: %s", path);
    if (profile && together) fail(2, "--profile takes neither --sequences nor --chunks");
    if (command && (profile || together || ask || save))
        fail(2, "--compare is a measurement of its own: it takes no --profile, --sequences, "
             "--chunks, --ask or --save");
    if (!command && (has_forms || limit_s)) fail(2, "there is no --compare COMMAND");
    if (!limit_s) limit_s = 600;
    if (!rounds) rounds = quick ? 2 : 3;
    if (kernel && !bitnet_kernels_find(kernel)) fail(2, "this build has no kernels %s", kernel);
    if (kernel && !bitnet_kernels_usable(bitnet_kernels_find(kernel)))
        fail(1, "this machine cannot run the kernels %s", kernel);
}

static void open_table(const bitnet_kernels *k) {
    table *t = &tables[n_tables++];
    const double start = seconds();
    t->k = k;
    t->model = load_model(k);
    t->load_s = seconds() - start;
    t->own_mb = (double)info.own_bytes * 1e-6;
    t->layout = info.layout;
    t->ctx = open_ctx(t->model, quick ? 1024 : LONGEST, threads, 0, &t->screen_s, &t->first_s,
                      &t->ctx_mb);
    t->first_s -= start;
    threads = bitnet_ctx_threads(t->ctx);
}

/* The named table, or all that are usable, first the one that the library chooses for this file.
   Plain C would take minutes with a large model. */
static void open_tables(void) {
    const int most = kernel || profile || together || command ? 1 : MAX_TABLES;
    int i;
    open_table(bitnet_kernels_find(kernel ? kernel : info.kernels_name));
    for (i = 0; i < bitnet_kernels_count() && n_tables < most; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        const int slow = info.n_params > 100000000 &&
                         !strncmp(bitnet_kernels_name(k), "scalar", 6);
        if (k != tables[0].k && bitnet_kernels_usable(k) && !slow) open_table(k);
    }
}

int main(int argc, char **argv) {
    int i;
    if (!streams_fill()) return 1;
    argv = utf8_arguments(&argc, argv);
    parse(argv + 1);
    if (path) read_file(path);
    else if (ask || !save) make_model();
    if (save) save_file(save, path);
    if (ask) answer_questions();
    if (save || ask) return 0;
    bitnet_model_free(load_model(0));
    if (!info.has_head) {
        if (profile || together || command)
            fail(2, "this model writes no text: nothing to show");
        bench_embeddings(kernel, threads, rounds, quick);
        release_file();
        return 0;
    }
    open_tables();
    if (!profile && !together && !command) measure_tables();
    for (i = 0; i < n_tables; i++) bitnet_ctx_free(tables[i].ctx);
    if (profile) measure_profile(tables[0].model, threads, rounds);
    else if (command) compare(command, limit_s, tables[0].model, tables[0].k, threads, rounds);
    else {
        if (!together) {
            list_all(quick);
            measure_scales();
        }
        measure_sequences(tables[0].model, tables[0].k, threads, rounds);
    }
    report();
    for (i = 0; i < n_tables; i++) bitnet_model_free(tables[i].model);
    release_file();
    return 0;
}
