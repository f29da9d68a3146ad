/* generate.c - text and chat from a BitNet model, with the options of llama.cpp

       cc -O2 examples/generate.c -o generate -lpthread
       ./generate -m examples/tiny.gguf -p "Once upon a time"
       ./generate -m examples/tiny.gguf -cnv

   The text goes to stdout and everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong
   usage, 130 Ctrl-C. With -DGENERATE_EDITLINE and -ledit the lines of a chat can be edited and
   recalled. libedit was chosen because its licence (BSD) lets the program keep its own; GNU
   readline's (GPL) would not. */
#define _DEFAULT_SOURCE 1              /* clock_gettime, realpath and others, also with -std=c99 */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../bitnet_grammar.h"
#include "streams.h"
#include "utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
  #include <windows.h>
  #define getpid GetCurrentProcessId
#else
  #include <sys/time.h>
  #include <unistd.h>
#endif
#ifdef GENERATE_EDITLINE
  #include <histedit.h>
  #include <langinfo.h>
  #include <locale.h>
  #include <termios.h>
#endif

enum {
    GO_ON = -1,                        /* functions that return an exit code: continue */
    MAX_STOPS = 16,
    MAX_TEXT = 16 << 20                /* bytes of a prompt or a message */
};

/* ---- set by options ---- */

enum { NO = 0, YES = 1, AUTO = -1 };

static char *model_path, *prompt, *prompt_path, *system_text, *system_path, *kernel_name;
static char *cache_path;
static char *grammar_text, *grammar_path, *schema_text, *schema_path;
static int32_t cache_all, cache_read_only;
static char *stops[MAX_STOPS];
static int32_t chatting = AUTO, interactive, single_turn;
static int32_t parse_special = YES;    /* in plain text; messages never */
static int32_t escapes = AUTO;         /* AUTO: in texts of the command line, not in files */
static int32_t shifting = AUTO;        /* AUTO: in chats */
static int32_t reasoning = AUTO, reasoning_budget = -1;
static int32_t colours = AUTO;         /* AUTO: on terminals */
static int32_t show_prompt = YES, show_statistics = YES, quiet, plain_input, verbose;
static int32_t want_help, want_version, want_kernels;
static int32_t max_tokens = -1, keep, repeat_window = 64;
static int64_t seed = -1;
static bitnet_sampler sampler = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
static bitnet_lookup_stats lookup_stats;
static bitnet_generate_params gen = {.sampler = &sampler, .lookup_stats = &lookup_stats};
static bitnet_ctx_params ctx_params = {.n_ctx = -1, .n_batch = 128};   /* so Ctrl-C is quick */
static bitnet_model_params model_params;

/* ---- the state of the program ---- */

static bitnet_model *model;
static bitnet_model_info info;
static bitnet_ctx *ctx;
static bitnet_grammar *grammar;        /* 0: any text */
static bitnet_matcher *matcher;

static FILE *screen;                   /* a terminal for everything but text; 0: none */
static int text_on_terminal;           /* stdout is one */
static int painting;                   /* in colours */
static int line_open;                  /* the text so far does not end in a newline */
static int write_error;                /* errno of the first failed write to stdout */
static int interrupt_ignored;          /* SIGINT was ignored when the program started */
static volatile sig_atomic_t interrupted;

static int n_prompt, n_new;            /* tokens, for the statistics */
static int n_replies;
static double prompt_seconds, new_seconds, started;

static double now(void) {              /* seconds */
#ifdef _WIN32
    return (double)clock() / CLOCKS_PER_SEC;      /* wall-clock time on Windows */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

/* ---- a progress bar, for whatever takes longer than a quarter of a second ----
   A timer draws it first, because on a slow machine the library reports no progress for seconds. */

enum { BAR_DELAY_MS = 250, BAR_WIDTH = 40 };

static char bar_line[80];
static const char *bar_name;
static int bar_percent;
static double bar_start;
static volatile sig_atomic_t bar_shown;

static void bar_format(double share) {
    static const char full[] = "########################################";
    bar_percent = (int)(100.0 * share);
    snprintf(bar_line, sizeof bar_line, "\r%-6s [%-*.*s] %3d%%", bar_name, BAR_WIDTH,
             (int)(BAR_WIDTH * share), full, bar_percent);
}

/* For signal handlers, which must not use stdio. */
static void write_stderr(const char *text) {
    if (write(2, text, (unsigned)strlen(text)) >= 0) return;
}

#ifndef _WIN32
static void on_alarm(int sig) {
    (void)sig;
    write_stderr(bar_line);
    bar_shown = 1;
}

static void bar_timer(int milliseconds) {
    struct itimerval t;
    memset(&t, 0, sizeof t);
    t.it_value.tv_usec = milliseconds * 1000;
    if (milliseconds > 0) signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &t, 0);
}
#else
static void bar_timer(int milliseconds) { (void)milliseconds; }
#endif

static void bar_begin(const char *name) {
    if (quiet || !isatty(2)) return;
    bar_name = name;
    bar_start = now();
    bar_format(0);
    bar_timer(BAR_DELAY_MS);
}

static void bar_update(double share) {
    if (!bar_name || (int)(100.0 * share) == bar_percent) return;
    if (!bar_shown && now() - bar_start < BAR_DELAY_MS / 1000.0) return;
    bar_timer(0);
    bar_format(share);
    fputs(bar_line, stderr);
    bar_shown = 1;
}

static void bar_end(void) {
    if (!bar_name) return;
    bar_timer(0);
    if (bar_shown) fprintf(stderr, "\r%*s\r", (int)strlen(bar_line), "");
    bar_shown = 0;
    bar_name = 0;
}

/* ---- messages ---- */

/* One line on stderr. It is cleaned, because file names and other untrusted words may contain
   anything. */
static void say_args(const char *format, va_list args) {
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    bitnet_clean_text(line, strlen(line), line, sizeof line);
    bar_end();
    fprintf(stderr, "generate: %s\n", line);
}

static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
}

static void note(const char *format, ...) {            /* --log-disable turns these off */
    va_list args;
    if (quiet) return;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
}

static int fail(int code, const char *format, ...) {   /* returns the exit code */
    va_list args;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
    return code;
}

/* ---- the text ---- */

/* Reads one code point from n > 0 bytes and returns its size. Invalid UTF-8 becomes U+FFFD. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *cp) {
    size_t size = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4, i;
    *cp = s[0];
    if (size == 1) return 1;
    *cp = 0xFFFD;
    if (s[0] < 0xC2 || s[0] > 0xF4 || size > n) return 1;
    for (i = 1; i < size; i++)
        if ((s[i] & 0xC0) != 0x80) return 1;
    *cp = s[0] & (0x7Fu >> size);
    for (i = 1; i < size; i++) *cp = *cp << 6 | (s[i] & 0x3Fu);
    return size;
}

/* Would a terminal act on it? These are the controls C0 except newline and tab, DEL, C1, and those
   that change the direction of writing. */
static int is_control(uint32_t cp) {
    if (cp < 0x20) return cp != '\n' && cp != '\t';
    return (cp >= 0x7F && cp < 0xA0) || cp == 0x61C || cp == 0x200E || cp == 0x200F ||
           (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Writes text to a terminal, with controls as symbols. */
static void show(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    uint32_t cp;
    size_t i, size;
    for (i = 0; i < n; i += size) {
        size = decode(s + i, n - i, &cp);
        if (cp == 0xFFFD) fputs("\xEF\xBF\xBD", stdout);
        else if (!is_control(cp)) fwrite(text + i, 1, size, stdout);
        else if (cp < 0x20) printf("\xE2\x90%c", (int)(0x80 + cp));         /* U+2400 and up */
        else if (cp == 0x7F) fputs("\xE2\x90\xA1", stdout);                 /* U+2421 */
        else printf("<U+%04X>", (unsigned)cp);
    }
}

/* Writes to stdout, unchanged if that is a file or a pipe. Nonzero: stdout accepts no more. */
static int put(const char *text, size_t n) {
    if (write_error) return write_error;
    line_open |= n > 0;
    errno = 0;
    if (text_on_terminal) show(text, n);
    else fwrite(text, 1, n, stdout);
    if (fflush(stdout) || ferror(stdout)) write_error = errno ? errno : EIO;
    return write_error;
}

#define COLOUR_PROMPT "\033[33m"
#define COLOUR_INPUT "\033[1;32m"
#define COLOUR_THINKING "\033[2m"
#define COLOUR_NONE "\033[0m"

static void paint(FILE *to, const char *colour) {
    if (painting) fputs(colour, to);
}

/* ---- Ctrl-C ---- */

static void show_keys(void);

static void on_interrupt_writing(int sig) {
    interrupted = 1;
    show_keys();
    signal(sig, SIG_DFL);              /* the second Ctrl-C ends the program */
}

/* While the program waits for a line, Ctrl-C ends it. */
static void on_interrupt_waiting(int sig) {
    show_keys();
    write_stderr(painting ? COLOUR_NONE "\n" : "\n");
    signal(sig, SIG_DFL);
    raise(sig);
}

static void catch_interrupt(void (*handler)(int)) {
    if (!interrupt_ignored) signal(SIGINT, handler);
}

/* ---- options ---- */

struct option {
    const char *names;                 /* all its spellings */
    const char *arg;                   /* its value in --help; 0: none; "[...]": optional */
    const char *help;
    int (*take)(const struct option *o, const char *name, char *value);   /* exit code or GO_ON */
    void *to;
    double lo, hi;
};

static char ignored_names[512];        /* options given that have no effect */

static int take_yes(const struct option *o, const char *name, char *value) {
    (void)name;
    (void)value;
    *(int32_t *)o->to = YES;
    return GO_ON;
}

static int take_no(const struct option *o, const char *name, char *value) {
    (void)name;
    (void)value;
    *(int32_t *)o->to = NO;
    return GO_ON;
}

static int take_switch(const struct option *o, const char *name, char *value) {
    if (!value || !strcmp(value, "on")) *(int32_t *)o->to = YES;
    else if (!strcmp(value, "off")) *(int32_t *)o->to = NO;
    else if (!strcmp(value, "auto")) *(int32_t *)o->to = AUTO;
    else return fail(2, "%s: '%s' is not on, off or auto", name, value);
    return GO_ON;
}

static int take_text(const struct option *o, const char *name, char *value) {
    if (!value[0]) return fail(2, "%s: the value (%s) is empty", name, o->arg);
    *(char **)o->to = value;
    return GO_ON;
}

static int take_stop(const struct option *o, const char *name, char *value) {
    if (!value[0]) return fail(2, "%s: the value (%s) is empty", name, o->arg);
    if (gen.n_stop_strings == MAX_STOPS)
        return fail(2, "%s: only %d of them are possible", name, MAX_STOPS);
    stops[gen.n_stop_strings++] = value;
    return GO_ON;
}

static int whole_number(const struct option *o, const char *name, const char *value, int64_t *to) {
    char *end;
    long long v;
    v = strtoll(value, &end, 10);
    if (end == value || *end || value[0] <= ' ' || (double)v < o->lo || (double)v > o->hi)
        return fail(2, "%s: '%s' is not a whole number from %.0f to %.0f", name, value, o->lo,
                    o->hi);
    *to = v;
    return GO_ON;
}

static int take_whole(const struct option *o, const char *name, char *value) {
    int64_t v = 0;
    int code = whole_number(o, name, value, &v);
    if (code == GO_ON) *(int32_t *)o->to = (int32_t)v;
    return code;
}

static int take_seed(const struct option *o, const char *name, char *value) {
    return whole_number(o, name, value, (int64_t *)o->to);
}

static int take_real(const struct option *o, const char *name, char *value) {
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || value[0] <= ' ' || !(v >= o->lo && v <= o->hi))   /* or NaN */
        return fail(2, "%s: '%s' is not a number from %.0f to %.0f", name, value, o->lo, o->hi);
    *(float *)o->to = (float)v;
    return GO_ON;
}

static int take_layout(const struct option *o, const char *name, char *value) {
    static const char *const layouts[] = {"128", "64", "4row"};    /* as bitnet_i2s_packing */
    int i;
    for (i = 0; i < 3; i++)
        if (!strcmp(value, layouts[i])) break;
    if (i == 3) return fail(2, "%s: '%s' is not 128, 64 or 4row", name, value);
    *(bitnet_i2s_packing *)o->to = (bitnet_i2s_packing)i;
    return GO_ON;
}

static int take_kv_type(const struct option *o, const char *name, char *value) {
    static const char *const types[] = {"f16", "f32", "i8"};       /* as bitnet_kv_type */
    int i;
    for (i = 0; i < 3; i++)
        if (!strcmp(value, types[i])) break;
    if (i == 3) return fail(2, "%s: '%s' is not f16, f32 or i8", name, value);
    *(bitnet_kv_type *)o->to = (bitnet_kv_type)i;
    return GO_ON;
}

static int take_tile(const struct option *o, const char *name, char *value) {
    bitnet_tile *tile = (bitnet_tile *)o->to;
    char more;
    if (sscanf(value, "%6d,%6d,%6d%c", &tile->rows, &tile->cols, &tile->group, &more) != 3)
        return fail(2, "%s: '%s' is not BM,BK,bm", name, value);
    return GO_ON;
}

#define TOP INT32_MAX
static const struct option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", take_text, &model_path, 0, 0},
    {"-p --prompt", "TEXT", "the start of the text, or the first message of a chat", take_text,
     &prompt, 0, 0},
    {"-f --file", "FILE", "the same from a file, without its last newline; -: stdin", take_text,
     &prompt_path, 0, 0},
    {"-e --escape", 0,
     "\\n \\t \\r \\\" \\' \\\\ \\xHH in -p, -sys and -r (default), and in files", take_yes,
     &escapes, 0, 0},
    {"--no-escape", 0, "leave texts unchanged", take_no, &escapes, 0, 0},
    {"--no-parse-special", 0, "names of control tokens in a plain prompt are text, as in chats",
     take_no, &parse_special, 0, 0},
    {"-n --predict --n-predict", "N", "new tokens (-1: no limit; -2: until the context is full)",
     take_whole, &max_tokens, -2, TOP},
    {"-c --ctx-size", "N", "context in tokens; 0: the model's (that, up to 4096)", take_whole,
     &ctx_params.n_ctx, 0, 1 << 20},
    {"--kv-type", "TYPE", "keys and values as f16, f32 or i8, which takes half the memory (f16)",
     take_kv_type, &ctx_params.kv_type, 0, 0},
    {"--context-shift", 0, "drop the oldest tokens of a full context (default in chats)", take_yes,
     &shifting, 0, 0},
    {"--no-context-shift", 0, "end the text or the reply then", take_no, &shifting, 0, 0},
    {"--keep", "N", "first tokens that are never dropped; -1: the prompt", take_whole, &keep, -1,
     TOP},
    {"-t --threads", "N", "threads; 0 or -1: one per CPU (0)", take_whole, &ctx_params.n_threads,
     -1, 256},
    {"--prompt-cache", "FILE",
     "keep the evaluated prompt in a file; what the next prompt shares with it is not evaluated",
     take_text, &cache_path, 0, 0},
    {"--prompt-cache-all", 0, "keep the new text in it, too, at the end", take_yes, &cache_all, 0,
     0},
    {"--prompt-cache-ro", 0, "use the file, but do not write it", take_yes, &cache_read_only, 0,
     0},
    {"-b --batch-size", "N", "prompt tokens evaluated together (128)", take_whole,
     &ctx_params.n_batch, 1, 65536},
    {"--no-mmap", 0, "read the model into memory instead of mapping it", take_yes,
     &model_params.copy, 0, 0},
    {"--mmap", 0, "map it (default)", take_no, &model_params.copy, 0, 0},

    {"-s --seed", "N", "seed of the random numbers; -1: from the clock (-1)", take_seed, &seed, -1,
     UINT32_MAX},
    {"--temp --temperature", "T", "temperature; 0: always the likeliest token (0.8)", take_real,
     &sampler.temperature, 0, 1000},
    {"--top-k", "K", "only the K likeliest tokens; 0: all (40)", take_whole, &sampler.top_k, 0,
     TOP},
    {"--top-p", "P", "only the likeliest tokens up to this sum; 1: all (0.95)", take_real,
     &sampler.top_p, 0, 1},
    {"--min-p", "P", "no token under P times the likeliest (0.05)", take_real, &sampler.min_p, 0,
     1},
    {"--grammar", "TEXT", "replies keep to this grammar, in llama.cpp's GBNF", take_text,
     &grammar_text, 0, 0},
    {"--grammar-file", "FILE", "the same from a file", take_text, &grammar_path, 0, 0},
    {"-j --json-schema", "SCHEMA", "replies are JSON that is valid for this schema; {}: any JSON",
     take_text, &schema_text, 0, 0},
    {"-jf --json-schema-file", "FILE", "the same from a file", take_text, &schema_path, 0, 0},
    {"--repeat-penalty", "R", "above 1: less repetition (1)", take_real, &sampler.repeat_penalty,
     0, 9},
    {"--frequency-penalty", "R", "subtracted for each time that a token is there (0)", take_real,
     &sampler.frequency_penalty, -9, 9},
    {"--presence-penalty", "R", "subtracted once for a token that is there (0)", take_real,
     &sampler.presence_penalty, -9, 9},
    {"--repeat-last-n", "N", "tokens that the penalties look at; 0: none; -1: all (64)", take_whole,
     &repeat_window, -1, TOP},
    {"--lookup", "N", "draft up to N tokens by prompt lookup; faster, same text (0)", take_whole,
     &gen.lookup, 0, 64},
    {"--ignore-eos", 0, "continue when the model ends its text", take_yes, &gen.ignore_end, 0, 0},
    {"-r --reverse-prompt --stop", "TEXT", "stop before TEXT; up to 16 times", take_stop, 0, 0, 0},

    {"-cnv --conversation --chat", 0, "chat (default on a terminal without -p)", take_yes,
     &chatting, 0, 0},
    {"-no-cnv --no-conversation", 0, "no chat", take_no, &chatting, 0, 0},
    {"-rea --reasoning", "[on|off|auto]", "thinking before replies (auto: as the model does)",
     take_switch, &reasoning, 0, 0},
    {"--reasoning-budget", "N", "0: the same as --reasoning off; -1: no limit (-1)", take_whole,
     &reasoning_budget, -1, 0},
    {"-sys --system-prompt --system", "TEXT", "the chat's system message", take_text, &system_text,
     0, 0},
    {"-sysf --system-prompt-file", "FILE", "the same from a file", take_text, &system_path, 0, 0},
    {"-st --single-turn", 0, "end the chat after one reply", take_yes, &single_turn, 0, 0},
    {"-i --interactive -if --interactive-first", 0,
     "same as -cnv; with -no-cnv: your lines continue the text", take_yes, &interactive, 0, 0},
    {"--simple-io", 0, "do not edit input lines", take_yes, &plain_input, 0, 0},
    {"-co --color", "[on|off|auto]", "colours on a terminal (auto)", take_switch, &colours, 0, 0},
    {"--no-display-prompt", 0, "do not repeat the prompt", take_no, &show_prompt, 0, 0},
    {"--display-prompt", 0, "repeat it (default)", take_yes, &show_prompt, 0, 0},
    {"--no-perf --no-show-timings", 0, "no statistics", take_no, &show_statistics, 0, 0},
    {"--log-disable", 0, "no statistics, notes or progress bars, only errors", take_yes, &quiet, 0,
     0},

    {"--kernel", "NAME", "kernel table (inner loops and weight layout)", take_text, &kernel_name,
     0, 0},
    {"--list-kernels", 0, "list the kernel tables", take_yes, &want_kernels, 0, 0},
    {"--i2s-packing", "NAME", "the file's packing: 128, 64, 4row (128)", take_layout,
     &model_params.i2s_packing, 0, 0},
    {"--tile", "BM,BK,bm", "tile of TL1 or TL2 weights (by their shape)", take_tile,
     &model_params.tile, 0, 0},
    {"-v --verbose --log-verbose", 0, "run the self-test, show what is loaded", take_yes, &verbose,
     0, 0},
    {"--version", 0, "the version and what is compiled in", take_yes, &want_version, 0, 0},
    {"-h --help --usage", 0, "this text", take_yes, &want_help, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* Options of llama.cpp that have no effect here. A warning names those that are given. */
static const char ignored_flags[] =
    "--mlock -cmoe --cpu-moe -nkvo --no-kv-offload -kvo --kv-offload --no-host --repack -nr "
    "--no-repack --op-offload --no-op-offload --swa-full --check-tensors -dio --direct-io -ndio "
    "--no-direct-io --warmup --no-warmup --offline -mli --multiline-input "
    "--jinja --no-jinja -sp --special --verbose-prompt --perf --show-timings "
    "--skip-chat-parsing --no-skip-chat-parsing --log-prefix --no-log-prefix --log-timestamps "
    "--no-log-timestamps";
static const char ignored_switches[] = "-fa --flash-attn";          /* [on|off|auto] */
static const char ignored_values[] =
    "-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu -dev "
    "--device -fit --fit -fitt --fit-target -fitc --fit-ctx -ot --override-tensor -ncmoe "
    "--n-cpu-moe -np --parallel -dt --defrag-thold --rpc -lm --load-mode --numa -ub --ubatch-size "
    "-tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb "
    "--cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch -ctk "
    "--cache-type-k -ctv --cache-type-v --samplers --sampler-seq --sampling-seq --top-nsigma "
    "--top-n-sigma --typical --typical-p --xtc-probability "
    "--xtc-threshold --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent "
    "--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker "
    "--reasoning-format --log-file -lv "
    "--verbosity --log-verbosity --log-colors -ptc --print-token-count";
/* Without these the text would not be the expected one. */
static const char impossible[] =
    "-l --logit-bias --in-prefix "
    "--in-prefix-bos --in-suffix --chat-template --chat-template-file --lora --lora-scaled "
    "--control-vector --control-vector-scaled --override-kv -mu --model-url -hf -hfr --hf-repo "
    "-hff --hf-file -dr --docker-repo -mm --mmproj --image --audio -md --model-draft -bf "
    "--binary-file --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale";

/* Are the first n bytes of arg one of the names? In long names _ is the same as -. */
static int has_name(const char *names, const char *arg, size_t n) {
    int is_long = arg[0] == '-' && arg[1] == '-';
    while (*names) {
        size_t length = strcspn(names, " "), i = 0;
        while (i < n && i < length && (arg[i] == names[i] ||
                                       (is_long && arg[i] == '_' && names[i] == '-')))
            i++;
        if (i == n && i == length) return 1;
        names += length;
        names += strspn(names, " ");
    }
    return 0;
}

static const struct option *find_option(const char *arg, size_t n) {
    int i;
    for (i = 0; i < N_OPTIONS; i++)
        if (has_name(options[i].names, arg, n)) return &options[i];
    return 0;
}

enum arity { NO_VALUE, ONE_VALUE, SWITCH_VALUE, UNKNOWN };

/* The values of an option that is accepted and ignored. */
static enum arity find_ignored(const char *arg, size_t n) {
    if (has_name(ignored_flags, arg, n)) return NO_VALUE;
    if (has_name(ignored_values, arg, n)) return ONE_VALUE;
    if (has_name(ignored_switches, arg, n)) return SWITCH_VALUE;
    return UNKNOWN;
}

static int is_switch_value(const char *s) {
    return s && (!strcmp(s, "on") || !strcmp(s, "off") || !strcmp(s, "auto"));
}

/* Takes the option at argv[*i] and its value: --name VALUE or --name=VALUE. */
static int take_option(char **argv, int *i) {
    char name[64], *arg = argv[*i], *equals = strncmp(arg, "--", 2) ? 0 : strchr(arg, '=');
    const size_t n = equals ? (size_t)(equals - arg) : strlen(arg), ignored = strlen(ignored_names);
    const struct option *o = find_option(arg, n);
    char *value = equals ? equals + 1 : 0;
    enum arity arity = find_ignored(arg, n);
    if (o) arity = !o->arg ? NO_VALUE : o->arg[0] == '[' ? SWITCH_VALUE : ONE_VALUE;
    snprintf(name, sizeof name, "%.*s", (int)n, arg);
    if (has_name(impossible, arg, n)) return fail(2, "%s is not possible here", name);
    if (arity == UNKNOWN) return fail(2, "unknown option '%s'; see --help", arg);
    if (arity == NO_VALUE && value) return fail(2, "%s takes no value; '%s' is one", name, value);
    if (arity == SWITCH_VALUE && !is_switch_value(argv[*i + 1])) arity = NO_VALUE;
    if (arity != NO_VALUE && !value) {
        value = argv[++*i];
        if (!value) return fail(2, "%s needs a value; see --help", name);
    }
    if (o) return o->take(o, name, value);
    snprintf(ignored_names + ignored, sizeof ignored_names - ignored, "%s%s", ignored ? ", " : "",
             name);
    return GO_ON;
}

/* The names as a list: -n,--predict,--n-predict N */
static void print_names(const struct option *o, char *out, size_t cap) {
    const char *names = o->names;
    size_t n = 0;
    for (; *names && n + 4 < cap; names++) {
        if (*names == ' ') out[n++] = ',';
        out[n++] = *names;
    }
    snprintf(out + n, cap - n, "%s%s", o->arg ? " " : "", o->arg ? o->arg : "");
}

static void print_help(void) {
    char left[100];
    int i;
    printf("usage: generate -m FILE [-p TEXT] [options]\n\n");
    for (i = 0; i < N_OPTIONS; i++) {
        print_names(&options[i], left, sizeof left);
        if (strlen(left) > 32) printf("  %s\n  %32s %s\n", left, "", options[i].help);
        else printf("  %-32s %s\n", left, options[i].help);
    }
    printf("\n--name=value is the same as --name value. Options of llama.cpp for GPUs, memory, "
           "logs and other\nsamplers are accepted, with a warning that they have no effect.\n");
}

static void print_kernels(void) {
    int i;
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        printf("%-15s %s\n", bitnet_kernels_name(k),
               bitnet_kernels_usable(k) ? "usable" : "not usable here");
    }
}

static void print_version(void) {
    printf("generate of bitnet.h %s, kernels %s, input lines %s\n", bitnet_version(),
           bitnet_kernels_name(bitnet_kernels_default()),
#ifdef GENERATE_EDITLINE
           "edited by libedit");
#else
           "not edited");
#endif
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Replaces llama.cpp's escapes in place and keeps any other backslash. */
static int unescape(const char *name, char *s) {
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    char *out = s;
    while (*s) {
        const char *known = s[0] == '\\' && s[1] ? strchr(from, s[1]) : 0;
        if (known) {
            *out++ = to[known - from];
            s += 2;
        } else if (s[0] == '\\' && s[1] == 'x' && hex_digit(s[2]) >= 0 && hex_digit(s[3]) >= 0) {
            int code = 16 * hex_digit(s[2]) + hex_digit(s[3]);
            if (code == 0) return fail(2, "%s: \\x00 cannot be part of a text", name);
            *out++ = (char)code;
            s += 4;
        } else *out++ = *s++;
    }
    *out = 0;
    return GO_ON;
}

static int unescape_all(void) {
    int32_t i;
    int code = GO_ON;
    if (escapes == NO) return GO_ON;
    if (prompt) code = unescape("-p", prompt);
    if (code == GO_ON && system_text) code = unescape("-sys", system_text);
    for (i = 0; code == GO_ON && i < gen.n_stop_strings; i++) code = unescape("-r", stops[i]);
    return code;
}

/* Options that contradict each other, and defaults that depend on other options. */
static int check_options(void) {
    if (!model_path) return fail(2, "no model: give -m FILE; see --help");
    if (prompt && prompt_path) return fail(2, "-p and --file are both given; one is possible");
    if (system_text && system_path)
        return fail(2, "-sys and -sysf are both given; one is possible");
    if (chatting == NO && (system_text || system_path))
        return fail(2, "-sys is for chats, -no-cnv asks for none");
    if (chatting == NO && single_turn && !interactive)
        return fail(2, "-st is for chats, -no-cnv asks for none");
    if (!!grammar_text + !!grammar_path + !!schema_text + !!schema_path > 1)
        return fail(2, "only one of --grammar, --grammar-file, -j and -jf is possible");
    if (max_tokens == 0) return fail(2, "-n: '0' leaves nothing to do; -1 means no limit");
    if (system_text || system_path || single_turn) chatting = YES;
    if (!prompt && !prompt_path && !isatty(0) && (single_turn || (chatting != YES && !interactive)))
        prompt_path = (char *)"-";                      /* piped text is the prompt */
    if (ctx_params.n_threads < 0) ctx_params.n_threads = 0;
    if (repeat_window == 0)
        sampler.repeat_penalty = sampler.frequency_penalty = sampler.presence_penalty = 0;
    sampler.repeat_window = repeat_window;
    gen.stop_strings = (const char *const *)stops;
    return GO_ON;
}

/* ---- files, whose paths are UTF-8 on Windows, too ---- */

#ifdef _WIN32
enum { MAX_WIDE = MAX_PATH * 4 };

static int widen(const char *path, WCHAR wide[MAX_WIDE]) {
    errno = EILSEQ;
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, MAX_WIDE) > 0;
}

/* Creates a new file for writing. -1, and errno is EEXIST: something has that name. */
static int create_file(const char *path) {
    WCHAR wide[MAX_WIDE];
    return widen(path, wide) ? _wopen(wide, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY,
                                      _S_IREAD | _S_IWRITE) : -1;
}

/* Something that exists and is not a regular file. */
static int is_not_a_file(const char *path) {
    WCHAR wide[MAX_WIDE];
    struct _stat64 st;
    return widen(path, wide) && !_wstat64(wide, &st) && (st.st_mode & S_IFMT) != S_IFREG;
}

/* Links are rare here: the path as it is. */
static int follow_link(const char *path, char *out, size_t cap) {
    errno = ENAMETOOLONG;
    return snprintf(out, cap, "%s", path) < (int)cap;
}

static void remove_file(const char *path) {
    WCHAR wide[MAX_WIDE];
    if (widen(path, wide)) _wremove(wide);
}

/* Gives a file another name, in place of a file that has it. Returns 0 if it can't. */
static int replace_file(const char *from, const char *to) {
    WCHAR a[MAX_WIDE], b[MAX_WIDE];
    errno = EACCES;
    return widen(from, a) && widen(to, b) && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING);
}

static int64_t seek_file(FILE *f, int64_t at, int from) {      /* returns the place */
    return _fseeki64(f, at, from) ? -1 : _ftelli64(f);
}
#else
static int create_file(const char *path) {
    return open(path, O_CREAT | O_EXCL | O_WRONLY, 0666);
}

/* A pipe would block a reader, and renaming would put a file in the place of a device. */
static int is_not_a_file(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode);
}

/* The file that a path stands for: of a link what it leads to, because renaming would replace the
   link. Returns 0 and sets errno if the link leads nowhere. */
static int follow_link(const char *path, char *out, size_t cap) {
    struct stat st;
    const int is_link = !lstat(path, &st) && S_ISLNK(st.st_mode);
    char *target = is_link ? realpath(path, 0) : 0;
    int n;
    if (is_link && !target) return 0;
    n = snprintf(out, cap, "%s", target ? target : path);
    free(target);
    errno = ENAMETOOLONG;
    return n < (int)cap;
}

static void remove_file(const char *path) { remove(path); }
static int replace_file(const char *from, const char *to) { return rename(from, to) == 0; }

static int64_t seek_file(FILE *f, int64_t at, int from) {      /* returns the place */
    return fseek(f, (long)at, from) ? -1 : ftell(f);
}
#endif

static int parse(int argc, char **argv) {
    int i, code;
    for (i = 1; i < argc; i++) {
        code = take_option(argv, &i);
        if (code != GO_ON) return code;
    }
    if (want_help) print_help();
    else if (want_version) print_version();
    else if (want_kernels) print_kernels();
    if (want_help || want_version || want_kernels)
        return fflush(stdout) || ferror(stdout) ? fail(1, "cannot write: %s", strerror(errno)) : 0;
    if (ignored_names[0]) note("warning: without effect here: %s", ignored_names);
    code = check_options();
    return code == GO_ON ? unescape_all() : code;
}

static int choose_kernels(void) {
    char known[400];
    int i;
    const bitnet_kernels *k = kernel_name ? bitnet_kernels_find(kernel_name) : 0;
    if (!kernel_name) return GO_ON;
    model_params.kernels = k;
    if (k && bitnet_kernels_usable(k)) return GO_ON;
    if (k) return fail(1, "--kernel: this machine cannot run '%s'", kernel_name);
    known[0] = 0;
    for (i = bitnet_kernels_count(); i-- > 0;) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, " %s", bitnet_kernels_name(bitnet_kernels_get(i)));
    }
    return fail(2, "--kernel: '%s' is unknown; known are:%s", kernel_name, known);
}

/* ---- input ---- */

struct text {
    char *s;                           /* NUL-terminated */
    size_t n, cap;
};

/* Returns 0 if there is no memory, or if the text would exceed MAX_TEXT. */
static int append(struct text *t, const char *s, size_t n) {
    if (n > MAX_TEXT - t->n) return 0;
    if (t->n + n >= t->cap) {
        size_t cap = 2 * (t->n + n) + 256;
        char *grown = (char *)realloc(t->s, cap);
        if (!grown) return 0;
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
    return 1;
}

/* Removes a byte order mark. */
static void drop_mark(struct text *t) {
    const size_t size = utf8_mark(t->s, t->n);
    if (size) memmove(t->s, t->s + size, (t->n -= size) + 1);
}

/* Reads a prompt to the end of the file, without its last newline. */
static int read_stream(FILE *f, const char *name, struct text *t) {
    char block[4096];
    size_t n;
    errno = 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        if (!append(t, block, n))
            return fail(1, "'%s' is too long: prompts have at most 16 MiB", name);
    if (ferror(f)) return fail(1, "cannot read '%s': %s", name, strerror(errno));
    drop_mark(t);
    if (t->n > 0) t->s[t->n -= utf8_line_end(t->s, t->n)] = 0;
    if (t->n == 0 && f == stdin)
        return fail(2, chatting == YES ? "no message: give -p or --file; stdin is empty"
                                       : "no prompt: give -p, --file or -cnv; stdin is empty");
    if (t->n == 0) return fail(1, "'%s' is empty", name);
    if (strlen(t->s) < t->n) return fail(1, "'%s' is not a text: it contains a zero byte", name);
    return escapes == YES ? unescape(name, t->s) : GO_ON;
}

/* The text of a file (-: stdin), in memory that lives as long as the program. */
static int read_file(const char *path, char **out) {
    FILE *f = strcmp(path, "-") ? utf8_fopen(path, "rb") : stdin;
    struct text t = {0, 0, 0};
    int code;
    if (!f) return fail(1, "cannot read '%s': %s", path, strerror(errno));
    code = read_stream(f, f == stdin ? "stdin" : path, &t);
    if (f != stdin) fclose(f);
    if (code == GO_ON) *out = t.s;
    else free(t.s);
    return code;
}

/* Without line editing, arrow keys and the like arrive as escape sequences. They and other control
   characters are not part of the message. */
static void drop_keys(struct text *line) {
    const char *s = line->s, *end = s + line->n;
    char *out = line->s;
    while (s < end) {
        if (*s == '\033') {
            s++;
            if (s < end && *s == '[') {
                s++;
                while (s < end && *s >= 0x20 && *s < 0x40) s++;    /* parameters */
            } else if (s < end && *s == 'O') s++;
            if (s < end) s++;                                      /* the key itself */
        } else if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7F) s++;
        else *out++ = *s++;
    }
    line->n = (size_t)(out - line->s);
    *out = 0;
}

enum line { LINE_END, LINE_OK, LINE_REFUSED };

/* A line without its newline. A line that is too long is read to its end as well. */
static enum line read_plain(const char *mark, struct text *line) {
    int c, fits = 1;
    char byte;
    if (screen) {
        paint(screen, COLOUR_INPUT);
        fputs(mark, screen);
        fflush(screen);
    }
    while ((c = getc(stdin)) != EOF && c != '\n') {
        byte = (char)c;
        if (fits) fits = append(line, &byte, 1);
    }
    if (screen) paint(screen, COLOUR_NONE);
    if (c == EOF && line->n == 0) return LINE_END;
    if (fits) return LINE_OK;
    say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
    return LINE_REFUSED;
}

#ifdef GENERATE_EDITLINE
static EditLine *editor;
static History *history_lines;
static char editor_mark[64];
static struct termios keys_shown, keys_hidden;

static char *get_editor_mark(EditLine *e) {
    (void)e;
    return editor_mark;
}

/* Keys that terminals send as ESC [ or ESC O and a sequence, and emacs keys of the same effect. */
static const char *const key_sequences[][2] = {
    {"A", "\020"}, {"B", "\016"}, {"C", "\006"}, {"D", "\002"},        /* arrows: ^P ^N ^F ^B */
    {"H", "\001"}, {"1~", "\001"}, {"7~", "\001"},                     /* Home: ^A */
    {"F", "\005"}, {"4~", "\005"}, {"8~", "\005"},                     /* End: ^E */
    {"1;5C", "\033f"}, {"1;5D", "\033b"},                              /* Ctrl and an arrow */
    {"3~", "\030\004"},                                               /* Delete: see open_editor */
};

/* libedit would take the end of an unknown sequence for text. */
static unsigned char take_key(EditLine *e, int first) {
    char sequence[16] = "", c;
    size_t n = 0, i;
    (void)first;
    do {
        if (el_getc(e, &c) != 1) return CC_EOF;
        if (n + 1 < sizeof sequence) sequence[n++] = c;
    } while (c >= 0x20 && c < 0x40);                   /* parameters, then the last byte */
    for (i = 0; i < sizeof key_sequences / sizeof key_sequences[0]; i++)
        if (!strcmp(sequence, key_sequences[i][0])) el_push(e, key_sequences[i][1]);
    return CC_NORM;
}

/* The terminal itself shows no keys: libedit shows them while it reads a line, and keys that are
   typed while the model writes are kept for the next line. */
static void hide_keys(void) {
    tcsetattr(0, TCSADRAIN, &keys_hidden);
}

static void show_keys(void) {
    if (editor) tcsetattr(0, TCSANOW, &keys_shown);
}

static void close_editor(void) {
    show_keys();
    if (history_lines) history_end(history_lines);
    if (editor) el_end(editor);
    editor = 0;
}

static void open_editor(void) {
    HistEvent event;
    const char *term = getenv("TERM");
    if (plain_input || !screen || !isatty(0) || tcgetattr(0, &keys_shown)) return;
    if (!term || !strcmp(term, "dumb")) return;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") && !setlocale(LC_CTYPE, "C.UTF-8")) return;
    keys_hidden = keys_shown;
    keys_hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    editor = el_init("generate", stdin, screen, screen);
    history_lines = history_init();
    if (!editor || !history_lines) {
        close_editor();
        return;
    }
    history(history_lines, &event, H_SETSIZE, 1000);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    el_set(editor, EL_HIST, history, history_lines);
    el_set(editor, EL_PROMPT_ESC, get_editor_mark, '\1');
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(editor, EL_BIND, "^X^D", "ed-delete-next-char", NULL);
    el_set(editor, EL_ADDFN, "take-key", "a key with a sequence", take_key);
    el_set(editor, EL_BIND, "\\e[", "take-key", NULL);
    el_set(editor, EL_BIND, "\\eO", "take-key", NULL);
    el_source(editor, NULL);
}

static enum line read_line(const char *mark, struct text *line) {
    HistEvent event;
    const char *s;
    int n = 0;
    if (!editor) return read_plain(mark, line);
    if (painting)
        snprintf(editor_mark, sizeof editor_mark, "\1" COLOUR_INPUT "\1%s", mark);
    else snprintf(editor_mark, sizeof editor_mark, "%s", mark);
    hide_keys();                       /* Ctrl-C has shown them */
    s = el_gets(editor, &n);
    hide_keys();                       /* libedit makes the terminal show them */
    paint(screen, COLOUR_NONE);
    fflush(screen);
    if (!s || n <= 0) return LINE_END;
    if (s[strspn(s, " \t\n")]) history(history_lines, &event, H_ENTER, s);
    if (s[n - 1] == '\n') n--;
    if (append(line, s, (size_t)n)) return LINE_OK;
    say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
    return LINE_REFUSED;
}
#else
static void open_editor(void) {}
static void close_editor(void) {}
static void show_keys(void) {}
static enum line read_line(const char *mark, struct text *line) { return read_plain(mark, line); }
#endif

/* A message is a line, or several lines of which all but the last end in a backslash. */
static enum line read_message(struct text *message) {
    static struct text line;
    static int is_later;               /* a line was read before */
    enum line result;
    const char *mark = "> ";
    message->n = 0;
    if (screen) fputc('\n', screen);
    for (;;) {
        int more;
        line.n = 0;
        if (!append(&line, "", 0)) return LINE_REFUSED;
        result = read_line(mark, &line);
        if (result == LINE_END && message->n > 0) return LINE_OK;
        if (result != LINE_OK) return result;
        if (strlen(line.s) < line.n) {
            say("the message is not sent: it contains a zero byte");
            return LINE_REFUSED;
        }
        if (!is_later) drop_mark(&line);
        is_later = 1;
        if (line.n > 0 && line.s[line.n - 1] == '\r') line.s[--line.n] = 0;
        if (isatty(0)) drop_keys(&line);
        more = line.n > 0 && line.s[line.n - 1] == '\\';
        if (more) line.s[line.n - 1] = '\n';
        if (!append(message, line.s, line.n)) {
            say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
            return LINE_REFUSED;
        }
        if (!more) return LINE_OK;
        mark = "... ";
    }
}

/* ---- the conversation ----
   All of its tokens, in order. The context has evaluated the first bitnet_ctx_length() of them, and
   the next one may be pending in it; the next reply starts by evaluating the rest. A plain text is
   a conversation of one turn, its prompt. */

static bitnet_token *tokens;           /* room for a full context, the pending token and an end */
static int32_t n_tokens;
static int32_t *turns, n_turns;        /* where each turn starts */
static int32_t n_system;               /* BOS and the system message */
static int32_t n_keep;                 /* these are never dropped: n_system, or more with --keep */
static const char *echo;               /* a prompt to be repeated once it is evaluated */
static bitnet_stop why;
static bitnet_error err;
static bitnet_chat_params chat;
static bitnet_reply reply;             /* its parts, where thinking is shown in another colour */
enum { MOST_END = 16 };                /* tokens that end a reply of a chat */

/* Writes a piece of a reply. text 0: what was held back comes out. */
static int put_reply(const char *text, size_t n) {
    static bitnet_reply_part last;
    bitnet_reply_part part;
    const char *piece;
    size_t size;
    int stop = 0;
    if (!chatting || !painting) return text ? put(text, n) : 0;
    while (!stop && bitnet_reply_next(&reply, &text, &n, &part, &piece, &size)) {
        if (part != last && last == BITNET_REPLY_THINKING) {
            paint(stdout, COLOUR_NONE);
            put("\n\n", 2);
        }
        if (part != last && part == BITNET_REPLY_THINKING) paint(stdout, COLOUR_THINKING);
        last = part;
        stop = put(piece, size);
    }
    if (!text && last == BITNET_REPLY_THINKING) paint(stdout, COLOUR_NONE);
    if (!text) last = BITNET_REPLY_TEXT;
    return stop;
}

static int on_text(void *ud, const char *s, size_t n, bitnet_token t) {
    (void)ud;
    if (t >= 0) {
        tokens[n_tokens++] = t;
        n_new++;
    }
    return put_reply(s, n) || interrupted;
}

static int on_prompt(void *ud, uint64_t done, uint64_t total) {
    (void)ud;
    bar_update((double)done / (double)total);
    if (done < total) return interrupted;
    bar_end();
    n_prompt += (int)total;
    prompt_seconds += now() - started;
    started = now();
    if (echo) {
        paint(stdout, COLOUR_PROMPT);
        put(echo, strlen(echo));
        paint(stdout, COLOUR_NONE);
        echo = 0;
    }
    return write_error || interrupted;
}

static int allocate_conversation(void) {
    size_t room = (size_t)bitnet_ctx_capacity(ctx) + 2 + MOST_END;
    tokens = (bitnet_token *)malloc(room * sizeof *tokens);
    turns = (int32_t *)malloc(room * sizeof *turns);
    return tokens && turns ? GO_ON : fail(1, "out of memory");
}

/* Rewinds the context to what it holds of the conversation's first n tokens. */
static void keep_common(int32_t n) {
    const bitnet_token *held = bitnet_ctx_tokens(ctx);
    int32_t same = 0;
    if (n > bitnet_ctx_length(ctx)) n = bitnet_ctx_length(ctx);
    while (same < n && held[same] == tokens[same]) same++;
    bitnet_ctx_rewind(ctx, same);
}

/* Starts again after the system message, if there is one. */
static int begin_conversation(void) {
    const size_t capacity = (size_t)bitnet_ctx_capacity(ctx);
    const bitnet_message message = {"system", system_text};
    int bos = chatting || info.add_bos ? BITNET_ADD_BOS : 0, n;
    if (chatting)
        n = bitnet_chat_tokenize(model, &chat, &message, system_text ? 1 : 0, bos, tokens,
                                 capacity);
    else n = bitnet_tokenize(model, "", 0, bos, tokens, capacity);
    if (n < 0) return fail(1, "%s", bitnet_result_text((bitnet_result)n));
    if (system_text && (size_t)n > capacity / 2)
        return fail(1, "the system message is too long: it takes %d tokens, the context has %d; "
                    "see -c", n, (int)capacity);
    n_system = n_keep = n_tokens = n;
    n_turns = 0;
    keep_common(n);
    return GO_ON;
}

/* Drops the oldest turns, so that the tokens kept after the first n_keep ones, with n_more new
   ones, take at most half of the rest of the context. Keys and values belong to their positions, so
   all tokens that move must be evaluated again. */
static void drop_oldest(int32_t n_more) {
    const int32_t most = (bitnet_ctx_capacity(ctx) - n_keep) / 2;
    int32_t from = n_tokens, first = n_turns, dropped, i;
    while (first > 0 && n_tokens - turns[first - 1] + n_more <= most) from = turns[--first];
    if (n_more == 0 && from == n_tokens) from = n_tokens - most;   /* one turn is too long */
    dropped = from - n_keep;
    if (chatting || verbose)
        note("the context of %d tokens is full: the oldest %d tokens of the conversation are "
             "dropped", bitnet_ctx_capacity(ctx), dropped);
    memmove(tokens + n_keep, tokens + from, (size_t)(n_tokens - from) * sizeof *tokens);
    n_tokens -= dropped;
    n_turns -= first;
    for (i = 0; i < n_turns; i++) turns[i] = turns[first + i] - dropped;
    bitnet_ctx_rewind(ctx, n_keep);
}

/* Whether the text so far ends a reply, as a flag for tokenizing. */
static int reply_flag(void) {
    if (n_tokens <= n_system) return 0;
    return bitnet_token_is_end(model, tokens[n_tokens - 1]) ? BITNET_ENDED_REPLY : BITNET_CUT_REPLY;
}

/* The tokens that end the last reply, in out [cap] as far as they fit. */
static int tokenize_end(bitnet_token *out, size_t cap) {
    return chatting ? bitnet_chat_tokenize(model, &chat, 0, 0, reply_flag(), out, cap) : 0;
}

/* Prepares the next turn: a chat's reply gets its end; a text that goes on loses its end token. */
static void close_reply(void) {
    int ended = reply_flag() == BITNET_ENDED_REPLY;
    n_tokens += tokenize_end(tokens + n_tokens, MOST_END);
    if (!chatting && ended) {
        n_tokens--;
        bitnet_ctx_rewind(ctx, bitnet_ctx_length(ctx));   /* it was pending */
    }
}

static int tokenize_turn(const char *text, bitnet_token *out, size_t cap) {
    const bitnet_message message = {"user", text};
    if (!chatting)
        return bitnet_tokenize(model, text, strlen(text), parse_special ? BITNET_PARSE_SPECIAL : 0,
                               out, cap);
    return bitnet_chat_tokenize(model, &chat, &message, 1, BITNET_OPEN_REPLY, out, cap);
}

/* With --keep: the tokens of the first turn that are never dropped. */
static void keep_first_turn(void) {
    int32_t most = bitnet_ctx_capacity(ctx) / 2, wanted = keep < 0 ? n_tokens : keep;
    if (wanted > n_tokens) wanted = n_tokens;
    if (wanted > most) wanted = most;
    if (wanted > n_keep) n_keep = wanted;
}

/* A prompt that spells BOS has it once. */
static void drop_second_bos(void) {
    if (chatting || n_turns > 1 || n_tokens < 2 || turns[0] != 1) return;
    if (tokens[0] != info.bos || tokens[1] != info.bos) return;
    n_tokens--;
    memmove(tokens + 1, tokens + 2, (size_t)(n_tokens - 1) * sizeof *tokens);
}

/* Adds a message, or a text's prompt, and returns GO_ON. If it does not fit, this prints a line,
   changes nothing and returns 1. */
static int add_turn(const char *text) {
    const int32_t capacity = bitnet_ctx_capacity(ctx);
    const int32_t reserve = chatting && shifting ? capacity / 8 : 0;     /* for the reply */
    const char *what = chatting ? "message" : "prompt";
    int n = tokenize_turn(text, 0, 0);
    if (n < 0)
        return fail(1, "the %s is not read: %s", what, bitnet_result_text((bitnet_result)n));
    if (n > capacity - n_keep - reserve)
        return fail(1, "the %s is not read: its %d tokens do not fit; the context has %d, and %d "
                    "of them are taken or kept for the reply; see -c", what, n, capacity,
                    n_keep + reserve);
    if (tokenize_end(0, 0) > MOST_END) return fail(1, "the end of a reply has too many tokens");
    if (n_tokens + tokenize_end(0, 0) + n + reserve > capacity && n_tokens > n_keep) {
        if (!shifting)
            return fail(1, "the %s is not read: its %d tokens do not fit; the context has %d, and "
                        "%d of them are taken; /clear empties it", what, n, capacity,
                        bitnet_ctx_length(ctx));
        drop_oldest(n);
    }
    close_reply();
    turns[n_turns++] = n_tokens;
    n_tokens += tokenize_turn(text, tokens + n_tokens, (size_t)n);
    drop_second_bos();
    if (n_turns == 1 && n_keep == n_system) keep_first_turn();
    return GO_ON;
}

/* Removes the last turn, to which there is no reply. */
static void remove_turn(void) {
    n_tokens = turns[--n_turns];
    if (bitnet_ctx_length(ctx) > n_tokens) bitnet_ctx_rewind(ctx, n_tokens);
    if (n_turns == 0) n_keep = n_system;
}

/* Does the reply go on although the context has just become full? */
static int goes_on(int32_t limit, int32_t written) {
    return why == BITNET_STOP_LENGTH && bitnet_ctx_length(ctx) == bitnet_ctx_capacity(ctx) &&
           shifting && max_tokens != -2 && (limit == 0 || written < limit);
}

/* Evaluates the tokens that are new to the context and writes the reply. */
static bitnet_result stream(void) {
    /* A chat's reply that does not end is cut when it is as long as the context. */
    int32_t limit = max_tokens > 0 ? max_tokens : chatting ? bitnet_ctx_capacity(ctx) : 0;
    int32_t before = n_new;
    bitnet_result r;
    bar_begin("prompt");
    for (;;) {
        int32_t known = bitnet_ctx_length(ctx) + (bitnet_ctx_pending(ctx) >= 0);
        gen.prompt = tokens + known;
        gen.n_prompt = n_tokens - known;
        gen.max_tokens = limit ? limit - (n_new - before) : 0;
        started = now();
        r = bitnet_generate(ctx, &gen, &why, &err);
        bar_end();
        if (r != BITNET_OK) return r;
        new_seconds += now() - started;
        if (!goes_on(limit, n_new - before)) return r;
        if (chatting && screen) fputc('\n', screen);       /* for the note and the bar */
        drop_oldest(0);
        if (chatting) bar_begin("prompt");
    }
}

/* ---- saved conversations: the prompt cache, /save and /load ---- */

static int cache_failed;               /* it could not be written */

static bitnet_result write_piece(void *ud, const void *data, size_t n) {
    return fwrite(data, 1, n, (FILE *)ud) == n ? BITNET_OK : BITNET_ERR_IO;
}

static bitnet_result read_piece(void *ud, uint64_t offset, void *dst, size_t n) {
    if (seek_file((FILE *)ud, (int64_t)offset, SEEK_SET) < 0) return BITNET_ERR_IO;
    if (fread(dst, 1, n, (FILE *)ud) == n) return BITNET_OK;
    return ferror((FILE *)ud) ? BITNET_ERR_IO : BITNET_ERR_TRUNCATED;
}

/* Creates PATH.PID-N.part, a name that nothing has; it is in name then. */
static FILE *create_unfinished(const char *path, char *name, size_t cap) {
    FILE *f;
    int i, n, reason, fd = -1;
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        n = snprintf(name, cap, "%s.%d-%d.part", path, (int)getpid(), i);
        errno = ENAMETOOLONG;
        if (n < (int)cap) fd = create_file(name);
    }
    f = fd < 0 ? 0 : fdopen(fd, "wb");
    if (fd < 0 || f) return f;
    reason = errno;
    close(fd);
    remove_file(name);
    errno = reason;
    return 0;
}

/* Writes the state and closes the file. Returns 0 and sets errno if it can't. */
static int write_state(FILE *f) {
    int reason;
    if (bitnet_seq_save(ctx, 0, write_piece, f, &err) == BITNET_OK) return fclose(f) == 0;
    reason = errno;
    fclose(f);
    errno = reason;
    return 0;
}

/* The file gets its name when it is complete: until then an older one of this name stays. */
static int save_state(const char *path) {
    char target[4096], unfinished[4096];
    FILE *f;
    if (is_not_a_file(path)) return fail(1, "cannot write '%s': it is not a file", path);
    if (!follow_link(path, target, sizeof target))
        return fail(1, "cannot write '%s': %s", path,
                    errno == ENOENT ? "it is a link that leads nowhere" : strerror(errno));
    f = create_unfinished(target, unfinished, sizeof unfinished);
    if (!f) return fail(1, "cannot write '%s': %s", path, strerror(errno));
    if (write_state(f) && replace_file(unfinished, target)) return GO_ON;
    fail(1, "cannot write '%s': %s", path, strerror(errno));
    remove_file(unfinished);
    return 1;
}

/* On failure the context is as it was. may_lack 1: it need not be there, and may be empty. */
static int load_state(const char *path, int may_lack) {
    bitnet_io io = {0, read_piece, 0};
    bitnet_result r = BITNET_OK;
    int64_t size;
    FILE *f;
    if (is_not_a_file(path)) return fail(1, "cannot read '%s': it is not a file", path);
    io.ud = f = utf8_fopen(path, "rb");
    if (!f && may_lack && errno == ENOENT) return GO_ON;
    if (!f) return fail(1, "cannot read '%s': %s", path, strerror(errno));
    size = seek_file(f, 0, SEEK_END);
    io.size = size < 0 ? 0 : (uint64_t)size;
    errno = 0;
    if (size != 0 || !may_lack) r = bitnet_seq_load(ctx, 0, &io, &err);
    if (r == BITNET_ERR_IO) fail(1, "cannot read '%s': %s", path, strerror(errno));
    else if (r != BITNET_OK) fail(1, "'%s': %s", path, err.text);
    fclose(f);
    return r == BITNET_OK ? GO_ON : 1;
}

/* Evaluates the conversation's tokens up to number n, or until Ctrl-C. */
static int evaluate_to(int32_t n) {
    int32_t at;
    started = now();
    bar_begin("prompt");
    while ((at = bitnet_ctx_length(ctx)) < n && !interrupted) {
        int32_t count = n - at < ctx_params.n_batch ? n - at : ctx_params.n_batch;
        if (bitnet_eval(ctx, tokens + at, count, 0, &err)) return fail(1, "%s", err.text);
        n_prompt += count;
        bar_update((double)(at + count) / n);
    }
    bar_end();
    prompt_seconds += now() - started;
    return GO_ON;
}

/* Loads the file and evaluates what the first turn has beyond it, except for the last token, whose
   logits the reply needs. The file is written again if it lacked something. */
static int use_cache(void) {
    const int32_t n = n_tokens - 1;
    int32_t kept;
    int code = load_state(cache_path, 1);
    if (code != GO_ON) return code;
    keep_common(n);
    kept = bitnet_ctx_length(ctx);
    if (verbose) say("%d of %d tokens are in the prompt cache", kept, n_tokens);
    code = evaluate_to(n);
    if (code == GO_ON && kept < n && !cache_read_only && !interrupted)
        cache_failed = save_state(cache_path) != GO_ON;
    return code;
}

/* Evaluates the turn that was added and writes the reply. */
static int respond(void) {
    int32_t before = n_new;
    bitnet_result r;
    n_replies++;
    interrupted = 0;
    bitnet_matcher_reset(matcher);
    catch_interrupt(on_interrupt_writing);
    if (cache_path && n_replies == 1 && use_cache() != GO_ON) return 1;
    bitnet_reply_begin(&reply, model, &chat);
    r = stream();
    put_reply(0, 0);
    if (r == BITNET_ERR_CANCELLED && n_new == before) remove_turn();
    if (line_open || r == BITNET_OK) put("\n", 1);
    line_open = 0;
    if (write_error) return fail(1, "cannot write the text: %s", strerror(write_error));
    if (r != BITNET_OK && r != BITNET_ERR_CANCELLED) return fail(1, "%s", err.text);
    if (interrupted) return 130;
    if (matcher && bitnet_matcher_state(matcher) == BITNET_MATCHER_OPEN)
        note("the text ends before the grammar's end");
    if (matcher && bitnet_matcher_state(matcher) == BITNET_MATCHER_STUCK)
        note("the text ends here: too many of the grammar's rules begin with each other");
    if (chatting && why == BITNET_STOP_LENGTH && !shifting &&
        bitnet_ctx_length(ctx) == bitnet_ctx_capacity(ctx))
        note("the reply ends here: the context of %d tokens is full; /clear empties it",
             bitnet_ctx_capacity(ctx));
    return GO_ON;
}

/* ---- chat ---- */

struct command {
    const char *name, *arg, *help;     /* arg "": it takes none */
    int (*run)(void);                  /* exit code or GO_ON */
};

static char command_file[4096];
static int refused;                    /* a message or a command failed */

static int command_help(void);
static int command_exit(void) { return 0; }

static int command_save(void) {
    const int32_t known = bitnet_ctx_length(ctx) + (bitnet_ctx_pending(ctx) >= 0);
    int code = GO_ON;
    interrupted = 0;
    if (known < n_tokens) {            /* Ctrl-C came while the context was shifted */
        bitnet_ctx_rewind(ctx, bitnet_ctx_length(ctx));
        code = evaluate_to(n_tokens);
    }
    if (code == GO_ON) code = save_state(command_file);
    if (code == GO_ON) note("%d tokens are saved", n_tokens);
    refused |= code != GO_ON;
    return GO_ON;
}

/* A turn is a message and its reply, each with an end token. What differs from this chat's system
   message counts as a part of the first turn. */
static int command_load(void) {
    int32_t i, ends = 0;
    if (load_state(command_file, 0) != GO_ON) {
        refused = 1;
        return GO_ON;
    }
    for (i = 0; i < n_system && i < bitnet_ctx_length(ctx); i++)
        if (tokens[i] != bitnet_ctx_tokens(ctx)[i]) break;
    n_system = n_keep = i;
    n_tokens = bitnet_ctx_length(ctx);
    memcpy(tokens, bitnet_ctx_tokens(ctx), (size_t)n_tokens * sizeof *tokens);
    if (bitnet_ctx_pending(ctx) >= 0) tokens[n_tokens++] = bitnet_ctx_pending(ctx);
    for (n_turns = 0; i < n_tokens; i++) {
        if (i == n_system || (ends % 2 == 0 && bitnet_token_is_end(model, tokens[i - 1])))
            turns[n_turns++] = i;
        ends += bitnet_token_is_end(model, tokens[i]);
    }
    note("%d tokens are loaded", n_tokens);
    return GO_ON;
}

static const struct command commands[] = {
    {"/help", "", "this list", command_help},
    {"/clear", "", "forget the conversation except the system message", begin_conversation},
    {"/save", "FILE", "save the conversation", command_save},
    {"/load", "FILE", "go on with a saved conversation of the same model", command_load},
    {"/exit", "", "end the program, as Ctrl-D does", command_exit},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int command_help(void) {
    FILE *to = screen ? screen : stderr;
    int i;
    for (i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-6s %-5s%s\n", commands[i].name, commands[i].arg, commands[i].help);
    fprintf(to, "  //...       send /...\n"
                "A line that ends in \\ goes on in the next one. Ctrl-C stops a reply.\n");
    return GO_ON;
}

static int run_command(const char *line) {
    const size_t n = strcspn(line, " \t\n");
    const char *arg = line + n + strspn(line + n, " \t\n");
    size_t length = strlen(arg);
    int i;
    while (length > 0 && strchr(" \t\r\n", arg[length - 1])) length--;
    snprintf(command_file, sizeof command_file, "%.*s", (int)length, arg);
    for (i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) != n || memcmp(commands[i].name, line, n)) continue;
        if (!commands[i].arg[0] == (length == 0) && length < sizeof command_file)
            return commands[i].run();
        refused = 1;
        say("%s %s", commands[i].name, commands[i].arg[0] ? "needs the name of a file"
                                                           : "takes no value");
        return GO_ON;
    }
    say("'%.*s' is not a command; /help lists them, //... sends /...", (int)n, line);
    return GO_ON;
}

/* Waits for a line, then runs the command or answers the message. Sets refused if it can't. */
static int next_line(void) {
    static struct text message;
    const char *text;
    enum line result;
    catch_interrupt(on_interrupt_waiting);
    errno = 0;
    result = read_message(&message);
    if (result == LINE_END) {
        if (screen) fputc('\n', screen);
        return ferror(stdin) ? fail(1, "cannot read stdin: %s", strerror(errno)) : 0;
    }
    refused |= result == LINE_REFUSED;
    text = message.s;
    if (result == LINE_REFUSED || !text[strspn(text, " \t\r\n\v\f")]) return GO_ON;
    if (text[0] == '/' && text[1] != '/') return run_command(text);
    if (!chatting && !append(&message, "\n", 1)) return fail(1, "out of memory");
    text = message.s + (message.s[0] == '/');
    if (add_turn(text) == GO_ON) return respond();
    refused = 1;
    return GO_ON;
}

/* Lines from stdin and the model's replies, until one of them ends the program. */
static int converse(void) {
    int code = GO_ON;
    if (screen && !quiet && chatting)
        fprintf(screen, "Chat template: %s. ", bitnet_model_chat_template(model)->name);
    if (screen && !quiet) fprintf(screen, "Ctrl-C stops a reply, Ctrl-D ends; /help has more.\n");
    if (prompt && chatting && text_on_terminal && show_prompt) {
        paint(stdout, COLOUR_INPUT);
        fputs("\n> ", stdout);
        put(prompt, strlen(prompt));
        paint(stdout, COLOUR_NONE);
        fputs("\n", stdout);
        fflush(stdout);
        line_open = 0;
    }
    if (prompt) {
        refused = add_turn(prompt) != GO_ON;
        if (!refused) code = respond();
    }
    while (code == GO_ON || (code == 130 && isatty(0))) {
        if (single_turn && n_replies > 0) break;
        code = next_line();
    }
    if (code == GO_ON) code = 0;
    /* A person at a terminal has seen the refusal; a script needs the exit code. */
    return code == 0 && refused && !isatty(0) ? 1 : code;
}

/* ---- main ---- */

static int on_load(void *ud, uint64_t done, uint64_t total) {
    (void)ud;
    bar_update((double)done / (double)total);
    return interrupted;
}

static void on_log(void *ud, bitnet_log_level level, const char *s) {
    (void)ud;
    if (level == BITNET_LOG_WARNING) note("%s", s);
    else if (verbose) say("%s", s);
}

/* Which streams are terminals, and whether a parent wants SIGINT to be ignored. */
static void look_around(void) {
    const char *term = getenv("TERM");
    int plain = getenv("NO_COLOR") || !term || !strcmp(term, "dumb");
    text_on_terminal = isatty(1);
    if (isatty(0) && isatty(2)) screen = stderr;
    else if (isatty(0) && isatty(1)) screen = stdout;
    painting = screen && text_on_terminal && (colours == YES || (colours == AUTO && !plain));
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    interrupt_ignored = signal(SIGINT, SIG_IGN) == SIG_IGN;
    catch_interrupt(on_interrupt_writing);
}

static int load(void) {
    bitnet_result r;
    model_params.progress_fn = on_load;
    model_params.log_fn = on_log;
    bar_begin("load");
    r = bitnet_model_load_file(model_path, &model_params, &model, &err);
    bar_end();
    if (interrupted) return 130;
    if (r != BITNET_OK) return fail(1, "%s: %s", model_path, err.text);
    bitnet_model_get_info(model, &info);
    return GO_ON;
}

/* Chats if asked to, and on a terminal without a prompt if the model can. */
static int choose_mode(void) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    int can_chat = t != 0;
    int wants = chatting == YES || (chatting == AUTO && (interactive || (!prompt && isatty(0))));
    if (chatting == YES && !can_chat)
        return fail(1, "%s: no chat: it has no chat template, or an unknown one", model_path);
    chatting = wants && can_chat;
    if (reasoning_budget == 0) reasoning = NO;
    chat.thinking = reasoning == AUTO ? BITNET_THINK_AUTO
                    : reasoning == NO ? BITNET_THINK_OFF : BITNET_THINK_ON;
    if (chatting && bitnet_chat_tokenize(model, &chat, 0, 0, BITNET_OPEN_REPLY, 0, 0) < 0)
        return fail(2, "--reasoning: the model's chat template '%s' %s", t->name,
                    reasoning == NO ? "always thinks" : "does not think");
    if (!chatting && !interactive && !prompt) return fail(2, "no prompt: give -p, --file or -cnv");
    if (shifting == AUTO) shifting = chatting;
    return GO_ON;
}

static int create_context(void) {
    int32_t n = ctx_params.n_ctx;
    if (n < 0) n = info.ctx_train < 4096 ? info.ctx_train : 4096;
    if (n == 0) n = info.ctx_train;
    if (n > info.ctx_train) note("warning: trained for a context of %d", info.ctx_train);
    if (n < 16) shifting = NO;         /* too few to divide */
    ctx_params.n_ctx = n;
    ctx_params.n_logits = gen.lookup < n ? gen.lookup + 1 : n;
    if (bitnet_ctx_create(model, &ctx_params, &ctx, &err)) return fail(1, "%s", err.text);
    return allocate_conversation();
}

/* Does a reply begin inside of thinking? */
static int thinks_first(void) {
    bitnet_reply_begin(&reply, model, &chat);
    return chatting && reply.part == BITNET_REPLY_THINKING;
}

/* Compiles the grammar or schema, if there is one, for all replies: for what stands behind their
   thinking. */
static int create_matcher(void) {
    const char *text = schema_text ? schema_text : grammar_text;
    const char *name = schema_path ? schema_path : grammar_path ? grammar_path
                     : schema_text ? "--json-schema" : "--grammar";
    bitnet_grammar_params p;
    bitnet_result r;
    if (!text) return GO_ON;
    memset(&p, 0, sizeof p);
    if (thinks_first()) p.around = BITNET_GRAMMAR_THOUGHT "text ::= thought \"\\n\\n\" root\n";
    r = schema_text ? bitnet_grammar_json_schema(model, text, strlen(text), &p, &grammar, &err)
                    : bitnet_grammar_gbnf(model, text, strlen(text), &p, &grammar, &err);
    if (r == BITNET_OK) r = bitnet_matcher_create(grammar, 0, &matcher, &err);
    if (r != BITNET_OK) return fail(2, "%s: %s", name, err.text);
    sampler.mask_fn = bitnet_matcher_mask;
    sampler.chosen_fn = bitnet_matcher_chosen;
    sampler.ud = matcher;
    return GO_ON;
}

/* Control tokens have no text, so no stop string can be found in it. */
static void check_stops(void) {
    int32_t i;
    for (i = 0; i < gen.n_stop_strings; i++) {
        const bitnet_token t = bitnet_token_find(model, stops[i]);
        if (bitnet_token_is_special(model, t) && !bitnet_token_is_end(model, t))
            note("warning: -r %s: this control token is no text and stops nothing", stops[i]);
    }
}

static void print_loaded(double seconds) {
    fprintf(stderr, "%.1f M parameters, %.1f MB, loaded in %.3f s\n",
            (double)info.n_params / 1e6, (double)info.file_bytes / 1e6, seconds);
    fprintf(stderr, "FFN %d, %d heads of %d, %d for KV, context %d\n", info.ffn_dim, info.n_heads,
            info.head_dim, info.n_kv_heads, info.ctx_train);
    fprintf(stderr, "%s%s\n", chatting ? "chat template: " : "no chat",
            chatting ? bitnet_model_chat_template(model)->name : "");
    fprintf(stderr, "self-test passed; %d threads, context %d in %.1f MB\n",
            bitnet_ctx_threads(ctx), ctx_params.n_ctx,
            (double)bitnet_ctx_bytes(model, &ctx_params) / 1e6);
}

static void print_statistics(int code) {
    static const char *const ends[] = {"end of text", "-n or -c reached", "stop string",
                                       "interrupted", "end of the grammar"};   /* as bitnet_stop */
    if (quiet || !show_statistics) return;
    fprintf(stderr, "%sprompt: %d tokens, %.1f/s; new: %d tokens, %.1f/s; seed %lld; %s\n",
            isatty(2) ? "\n" : "", n_prompt, n_prompt / (prompt_seconds + 1e-9), n_new,
            n_new / (new_seconds + 1e-9), (long long)seed,
            ends[code == 130 ? BITNET_STOP_CALLBACK : why]);
    if (verbose && gen.lookup)
        fprintf(stderr, "lookup: %d guesses, %d of %d tokens right\n", lookup_stats.drafts,
                lookup_stats.accepted, lookup_stats.drafted);
}

static int generate(void) {
    double began = now(), took;
    int code = load();
    if (code == GO_ON) code = create_matcher();
    if (code == GO_ON) code = choose_mode();
    if (code == GO_ON) code = create_context();
    if (code != GO_ON) return code;
    check_stops();
    took = now() - began;
    if (verbose && bitnet_selftest(bitnet_kernels_find(info.kernels), &err))
        return fail(1, "%s", err.text);
    if (verbose) print_loaded(took);
    if (seed < 0 || seed == UINT32_MAX) seed = (time(0) ^ (int64_t)(now() * 1e6)) & INT32_MAX;
    sampler.rng = (uint64_t)seed;
    gen.text_fn = on_text;
    gen.progress_fn = on_prompt;
    if (!chatting && show_prompt) echo = prompt;
    code = begin_conversation();
    if (code != GO_ON) return code;
    if (chatting || interactive) {
        open_editor();
        code = converse();
        close_editor();
    } else {
        code = add_turn(prompt);
        if (code == GO_ON) code = respond();
        if (code == GO_ON) code = 0;
    }
    if (cache_path && cache_all && !cache_read_only && code != 1)
        cache_failed |= save_state(cache_path) != GO_ON;
    if (code != 1) print_statistics(code);
    return code == 0 && cache_failed ? 1 : code;
}

int main(int argc, char **argv) {
    int code;
    if (!streams_fill()) return 1;
    argv = utf8_arguments(&argc, argv);
    code = parse(argc, argv);
    if (code == GO_ON) code = choose_kernels();
    if (code == GO_ON && system_path) code = read_file(system_path, &system_text);
    if (code == GO_ON && prompt_path) code = read_file(prompt_path, &prompt);
    if (code == GO_ON && grammar_path) code = read_file(grammar_path, &grammar_text);
    if (code == GO_ON && schema_path) code = read_file(schema_path, &schema_text);
    if (code != GO_ON) return code;
    look_around();
    code = generate();
    free(tokens);
    free(turns);
    bitnet_matcher_free(matcher);
    bitnet_grammar_free(grammar);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return code;
}
