/* generate.c - text and chat from a BitNet model, with the options people know from llama.cpp

       cc -O2 examples/generate.c -o generate       (with -lpthread where threads need it)
       ./generate -m examples/tiny.gguf -p "Once upon a time"

   Text goes to stdout, the rest to stderr. Exit codes: 0, 1 failure, 2 wrong usage, 130 Ctrl-C. */
#define _DEFAULT_SOURCE 1              /* clock_gettime, also with -std=c99 */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <unistd.h>
#endif

/* The options fill these. */
static bitnet_sampler sampler = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
static const char *model_path, *prompt, *prompt_path, *system_text, *kernel_name, *stops[16];
static bitnet_generate_params gen = {.max_tokens = -1, .sampler = &sampler, .stop_strings = stops,
                                     .lookup_stats = &(bitnet_lookup_stats){0}};
static bitnet_ctx_params cp = {.n_ctx = -1, .n_batch = 128};  /* Ctrl-C is seen once a batch */
static int32_t seed = -1, packing, chatting, verbose, listing, helping; static bitnet_tile tile;

static const struct option {
    const char *name, *alias, *arg, *help;
    char kind;       /* Flag, Text, Stop string, Whole number, Real number, Packing, B: tile */
    void *to;
    double lo, hi;
} options[] = {
    {"-m", "--model", "FILE", "the model, a GGUF file", 'T', &model_path, 0, 0},
    {"-p", "--prompt", "TEXT", "how the text begins; chat: first message", 'T', &prompt, 0, 0},
    {"-f", "--file", "FILE", "the same from a file, less a last newline", 'T', &prompt_path, 0, 0},
    {"-n", "--n-predict", "N", "most new tokens; -1: any", 'W', &gen.max_tokens, -1, INT32_MAX},
    {"-t", "--threads", "N", "threads; 0: one per CPU (0)", 'W', &cp.n_threads, 0, 256},
    {"-c", "--ctx-size", "N", "context; 0: the model's (up to 4096)", 'W', &cp.n_ctx, 0, 1 << 20},
    {"-s", "--seed", "N", "seed; -1: from the clock (-1)", 'W', &seed, -1, INT32_MAX},
    {"--temp", 0, "T", "temperature; 0: the likeliest (0.8)", 'R', &sampler.temperature, 0, 1000},
    {"--top-k", 0, "K", "only the K likeliest; 0: all (40)", 'W', &sampler.top_k, 0, INT32_MAX},
    {"--top-p", 0, "P", "the likeliest up to this sum; 1: all (0.95)", 'R', &sampler.top_p, 0, 1},
    {"--min-p", 0, "P", "none under P times the likeliest (0.05)", 'R', &sampler.min_p, 0, 1},
    {"--repeat-penalty", 0, "R", "over 1: less repetition", 'R', &sampler.repeat_penalty, 0, 9},
    {"--lookup", 0, "N", "guess up to N tokens from the text so far (0)", 'W', &gen.lookup, 0, 64},
    {"-cnv", "--chat", 0, "chat: one message a line on stdin", 'F', &chatting, 0, 0},
    {"-sys", "--system", "TEXT", "the chat's system message", 'T', &system_text, 0, 0},
    {"-r", "--stop", "TEXT", "end before TEXT; may be given 16 times", 'S', stops, 0, 0},
    {"--ignore-eos", 0, 0, "go on when the model ends its text", 'F', &gen.ignore_end, 0, 0},
    {"--kernel", 0, "NAME", "inner loops and weight layout", 'T', &kernel_name, 0, 0},
    {"--i2s-layout", 0, "NAME", "the file's packing: 128, 64, 4row (128)", 'P', &packing, 0, 0},
    {"--tile", 0, "B,B,b", "BM,BK,bm of TL1 or TL2 weights (by shape)", 'B', &tile, 0, 0},
    {"--list-kernels", 0, 0, "name them", 'F', &listing, 0, 0},
    {"-v", "--verbose", 0, "test the library, say what is loaded", 'F', &verbose, 0, 0},
    {"-h", "--help", 0, "this text", 'F', &helping, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static bitnet_model *model; static bitnet_model_info info; static bitnet_ctx *ctx;
static bitnet_stop why; static bitnet_error err;
static int n_prompt, n_new, write_error; static double mark, prompt_seconds, new_seconds;
static char text[1 << 20];             /* the prompt file, or the line that was typed */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    interrupted = 1;
    signal(sig, SIG_DFL);              /* the second Ctrl-C does not wait */
}

static double now(void) {              /* seconds */
#ifdef _WIN32
    return (double)clock() / CLOCKS_PER_SEC;      /* of the wall clock, there */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

/* A bar on a terminal's stderr, for what takes longer than a moment; what = 0 takes it away. */
static void bar(const char *what, double share) {
    static int shown;
    int percent = (int)(100.0 * share);
    if (!what && shown) fprintf(stderr, "\r%54s\r", "");
    if (!what) shown = 0;
    else if (isatty(2) && percent != shown && now() - mark > 0.25)
        fprintf(stderr, "\r%-6s [%-40.*s] %3d%%", what, (shown = percent) * 40 / 100,
                "########################################", percent);
}

static int fail(int code, const char *format, ...) {   /* one line; returns the exit code */
    va_list args;
    bar(0, 0);
    fputs("generate: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return code;
}

static int put(const char *s, size_t n) {              /* nonzero: stdout takes no more */
    if (!write_error && (fwrite(s, 1, n, stdout) != n || fflush(stdout)))
        write_error = errno ? errno : EIO;
    return write_error;
}

static int on_text(void *ud, const char *s, size_t n, bitnet_token t) {
    (void)ud;
    if (t >= 0) n_new++;
    return put(s, n) || interrupted;
}

static int on_prompt(void *ud, int32_t done, int32_t total) {
    (void)ud;
    bar(done < total ? "prompt" : 0, (double)done / total);
    if (done < total) return interrupted;
    n_prompt += total;
    prompt_seconds += now() - mark;
    mark = now();
    return (gen.text && put(gen.text, strlen(gen.text))) || interrupted;   /* echo it */
}

static int on_load(void *ud, uint64_t done, uint64_t total) {
    (void)ud;
    bar(done < total ? "load" : 0, (double)done / (double)total);
    return interrupted;
}

static void on_log(void *ud, bitnet_log_level level, const char *s) {
    (void)ud;
    if (level == BITNET_LOG_WARNING || verbose) fail(0, "%s", s);
}

/* The functions from here to chat return the exit code, or -1 to go on. */
static int set_option(const struct option *o, const char *name, const char *value) {
    static const char *const packings[] = {"128", "64", "4row"};
    if (o->kind == 'F') *(int32_t *)o->to = 1;
    else if (o->kind == 'W' || o->kind == 'R') {
        char *end;
        double v = o->kind == 'W' ? (double)strtoll(value, &end, 10) : strtod(value, &end);
        if (end == value || *end || value[0] <= ' ' || !(v >= o->lo && v <= o->hi))
            return fail(2, "%s: '%s' is not a %snumber from %.0f to %.0f", name, value,
                        o->kind == 'W' ? "whole " : "", o->lo, o->hi);
        if (o->kind == 'W') *(int32_t *)o->to = (int32_t)v;
        else *(float *)o->to = (float)v;
    } else if (o->kind == 'P') {
        for (packing = 0; strcmp(value, packings[packing]); packing++)
            if (packing == 2) return fail(2, "%s: '%s' is not 128, 64 or 4row", name, value);
    } else if (!value[0]) return fail(2, "%s: the value (%s) is empty", name, o->arg);
    else if (o->kind == 'B') {         /* text takes what should not follow */
        if (sscanf(value, "%6d,%6d,%6d%1s", &tile.BM, &tile.BK, &tile.bm, text) != 3)
            return fail(2, "%s: '%s' is not BM,BK,bm", name, value);
    } else if (o->kind == 'T') *(const char **)o->to = value;
    else if (gen.n_stop_strings < 16) stops[gen.n_stop_strings++] = value;
    else return fail(2, "%s: only 16 of them are possible", name);
    return -1;
}

static int print_lists(void) {
    int i;
    for (i = 0; helping && i < N_OPTIONS; i++)
        printf("  %-16s %-13s %-5s %s\n", options[i].name, options[i].alias ? options[i].alias : "",
               options[i].arg ? options[i].arg : "", options[i].help);
    for (i = 0; !helping && i < bitnet_kernels_count(); i++)
        printf("%-15s %s\n", bitnet_kernels_get(i)->name,
               bitnet_kernels_usable(bitnet_kernels_get(i)) ? "usable" : "not usable here");
    return fflush(stdout) ? fail(1, "cannot write: %s", strerror(errno)) : 0;
}

static int parse(int argc, char **argv) {
    int i, j, code;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i];
        for (j = 0; j < N_OPTIONS && strcmp(name, options[j].name); j++)
            if (options[j].alias && !strcmp(name, options[j].alias)) break;
        if (j == N_OPTIONS) return fail(2, "unknown option '%s'; see --help", name);
        if (options[j].arg && ++i == argc) return fail(2, "%s needs a value; see --help", name);
        if ((code = set_option(&options[j], name, argv[i])) >= 0) return code;
    }
    if (listing || helping) return print_lists();
    if (!model_path) return fail(2, "no model: give -m FILE; see --help");
    if (prompt && prompt_path) return fail(2, "-p and --file are both given; one is possible");
    if (!chatting && !prompt && !prompt_path) return fail(2, "no prompt: give -p, --file or -cnv");
    if (!chatting && system_text) return fail(2, "--system is for chat: add -cnv");
    return gen.max_tokens ? -1 : fail(2, "-n: '0' leaves nothing to do; -1 means no limit");
}

static int choose_kernels(const bitnet_kernels **out) {
    int i;
    *out = kernel_name ? bitnet_kernels_find(kernel_name) : bitnet_kernels_default();
    if (*out && bitnet_kernels_usable(*out)) return -1;
    if (*out) return fail(1, "--kernel: this machine cannot run '%s'", kernel_name);
    for (i = bitnet_kernels_count(); i--;) strcat(strcat(text, " "), bitnet_kernels_get(i)->name);
    return fail(2, "--kernel: '%s' is unknown; known are:%s", kernel_name, text);
}

static int read_prompt(void) {
    FILE *f = fopen(prompt_path, "rb");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (!f || ferror(f)) return fail(1, "cannot read '%s': %s", prompt_path, strerror(errno));
    fclose(f);
    if (n > 0 && n < sizeof text && text[n - 1] == '\n') text[--n] = 0;
    if (n % sizeof text == 0) return fail(1, "'%s' is %s", prompt_path, n ? "too long" : "empty");
    prompt = text;
    return strlen(text) < n ? fail(1, "'%s' is no text: it holds a zero byte", prompt_path) : -1;
}

/* Evaluates gen's prompt, streams what follows, ends it with a newline. */
static int respond(void) {
    bitnet_result r;
    mark = now();
    r = bitnet_generate(ctx, &gen, &why, &err);
    bar(0, 0);
    if (r == BITNET_OK) new_seconds += now() - mark;
    else if (r != BITNET_ERR_CANCELLED) return fail(1, "%s", err.text);
    if (put("\n", !r)) return fail(1, "cannot write the text: %s", strerror(write_error));
    return interrupted ? 130 : -1;
}

static int chat(void) {
    int cap = bitnet_ctx_capacity(ctx), code = -1;
    const char *line = prompt;
    for (; code < 0; line = 0) {
        int skip = bitnet_ctx_length(ctx) > 0 || !system_text;
        bitnet_message messages[2] = {{"system", system_text}, {"user", 0}};
        if (!line) {
            if (isatty(0)) fputs("\n> ", stderr);
            signal(SIGINT, SIG_DFL);
            line = fgets(text, sizeof text, stdin);
            signal(SIGINT, on_interrupt);
        }
        if (!line) code = ferror(stdin) ? fail(1, "cannot read stdin: %s", strerror(errno)) : 0;
        if (!line || !line[strspn(line, " \t\r\n\v\f")]) continue;
        messages[1].content = line;
        gen.messages = messages + skip;
        gen.n_messages = 2 - skip;
        code = respond();
        if (code == 130 && isatty(0)) code = -1, interrupted = 0;
        else if (code < 0 && bitnet_ctx_length(ctx) == cap)
            code = fail(1, "the context of %d tokens is full: the chat ends here; see -c", cap);
    }
    return code;
}

int main(int argc, char **argv) {
    const char *ends[] = {"end of text", "-n or -c reached", "stop string", "interrupted"};
    int code = parse(argc, argv);
    bitnet_model_params mp = {.progress_fn = on_load, .log_fn = on_log,
                              .i2s_layout = (bitnet_i2s_layout)packing, .tile = tile};
    if (code < 0) code = choose_kernels(&mp.kernels);
    if (code < 0 && prompt_path) code = read_prompt();
    if (code < 0 && verbose && bitnet_selftest(mp.kernels, &err)) code = fail(1, "%s", err.text);
    if (code >= 0) return code;
    signal(SIGINT, on_interrupt);
    mark = now(), errno = 0;
    if (bitnet_model_load_file(model_path, &mp, &model, &err))
        return interrupted ? 130 : fail(1, err.code == BITNET_ERR_IO && errno ? "%s: %s: %s" :
                                        "%s: %s", model_path, err.text, strerror(errno));
    bitnet_model_get_info(model, &info);
    if (chatting && bitnet_chat_tokenize(model, 0, 0, 0, 0, 0) < 0)
        return fail(1, "%s: no chat: its template is not known, or has no token", model_path);
    if (cp.n_ctx < 1) cp.n_ctx = cp.n_ctx < 0 && info.ctx_train > 4096 ? 4096 : info.ctx_train;
    if (cp.n_ctx > info.ctx_train) fail(0, "warning: trained for a context of %d", info.ctx_train);
    cp.n_logits = gen.lookup < cp.n_ctx ? gen.lookup + 1 : cp.n_ctx;
    if (bitnet_ctx_create(model, &cp, &ctx, &err)) return fail(1, "%s", err.text);
    if (verbose)
        fprintf(stderr, "%.1f M parameters, %.1f MB, loaded in %.3f s\nFFN %d, %d heads of %d, "
                "%d for KV, context %d\nself-test passed; %d threads, context %d in %.1f MB\n",
                (double)info.n_params / 1e6, (double)info.file_bytes / 1e6, now() - mark,
                info.ffn_dim, info.n_heads, info.head_dim, info.n_kv_heads, info.ctx_train,
                bitnet_ctx_threads(ctx), cp.n_ctx, (double)bitnet_ctx_bytes(model, &cp) / 1e6);
    if (seed < 0) seed = (int32_t)((time(0) ^ (int64_t)(now() * 1e6)) & INT32_MAX);
    sampler.rng = (uint64_t)seed;
    gen.text = chatting ? 0 : prompt;
    gen.text_fn = on_text;
    gen.progress_fn = on_prompt;
    code = chatting ? chat() : respond();
    if (code != 1)
        fprintf(stderr, "%sprompt: %d tokens, %.1f/s; new: %d tokens, %.1f/s; seed %d; %s\n",
                isatty(2) ? "\n" : "", n_prompt, n_prompt / (prompt_seconds + 1e-9), n_new,
                n_new / (new_seconds + 1e-9), seed, ends[code == 130 ? BITNET_STOP_CALLBACK : why]);
    if (verbose && gen.lookup)
        fprintf(stderr, "lookup: %d guesses, %d of %d tokens right\n", gen.lookup_stats->drafts,
                gen.lookup_stats->accepted, gen.lookup_stats->drafted);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return code < 0 ? 0 : code;
}
