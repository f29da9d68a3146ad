#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#include "options.h"
#include "screen.h"
#include "../utf8.h"
#include "../values.h"
#include <errno.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <unistd.h>
#endif

char *model_path, *prompt, *prompt_path, *system_text, *system_path, *kernel_name;
char *cache_path;
char *grammar_text, *grammar_path, *schema_text, *schema_path;
int32_t cache_all, cache_read_only;
char *stops[MAX_STOPS];
int32_t chatting = AUTO, interactive, single_turn;
int32_t parse_special = YES, escapes = AUTO, shifting = AUTO;
int32_t reasoning = AUTO, reasoning_budget = -1;
int32_t colours = AUTO, show_prompt = YES, show_statistics = YES, quiet, plain_input, verbose;
int32_t max_tokens = -1, keep;
int64_t seed = -1;
bitnet_sampler sampler = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
bitnet_generate_params gen = {.sampler = &sampler};
bitnet_ctx_params ctx_params = {.n_ctx = -1, .n_batch = 128};   /* so Ctrl-C is quick */
bitnet_model_params model_params;
static int32_t want_help, want_version, want_kernels, repeat_window = 64;

struct option {
    const char *names;                 /* all its spellings */
    const char *arg;                   /* its value in --help; 0: none; "[...]": optional */
    const char *help;
    int (*take)(const struct option *o, const char *name, char *value);   /* exit code or GO_ON */
    void *to;
    double lo, hi;
};

static bitnet_text stop_strings[MAX_STOPS];
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
    long long v;
    if (!value_number(value, (long long)o->lo, (long long)o->hi, &v))
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
    double v;
    if (!value_real(value, &v) || !(v >= o->lo && v <= o->hi))
        return fail(2, "%s: '%s' is not a number from %.0f to %.0f", name, value, o->lo, o->hi);
    *(float *)o->to = (float)v;
    return GO_ON;
}

static int take_packing(const struct option *o, const char *name, char *value) {
    if (value_packing(value, (bitnet_i2s_packing *)o->to)) return GO_ON;
    return fail(2, "%s: '%s' is not " I2S_PACKINGS, name, value);
}

static int take_kv_type(const struct option *o, const char *name, char *value) {
    if (value_kv_type(value, (bitnet_kv_type *)o->to)) return GO_ON;
    return fail(2, "%s: '%s' is not " KV_TYPES, name, value);
}

static int take_tile(const struct option *o, const char *name, char *value) {
    if (value_tile(value, (bitnet_tile *)o->to)) return GO_ON;
    return fail(2, "%s: '%s' is not BM,BK,bm", name, value);
}

#define TOP INT32_MAX
static const struct option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", take_text, &model_path, 0, 0},
    {"-p --prompt", "TEXT", "the start of the text, or the first message of a chat", take_text,
     &prompt, 0, 0},
    {"-f --file", "FILE", "the same from a file, without its last newline; -: stdin", take_text,
     &prompt_path, 0, 0},
    {"-e --escape", 0,
     "\\n \\t \\r \\\" \\' \\\\ \\xHH in -p, -sys and -r (default), and in -f and -sysf", take_yes,
     &escapes, 0, 0},
    {"--no-escape", 0, "leave texts unchanged", take_no, &escapes, 0, 0},
    {"--no-parse-special", 0, "names of control tokens in a plain prompt are text, as in chats",
     take_no, &parse_special, 0, 0},
    {"-n --predict --n-predict", "N", "new tokens (-1: no limit; -2: until the context is full)",
     take_whole, &max_tokens, -2, TOP},
    {"-c --ctx-size", "N", "context in tokens; 0: the model's (that, up to 4096)", take_whole,
     &ctx_params.n_ctx, 0, 1 << 20},
    {"--kv-type", "TYPE", "keys and values as " KV_TYPES ", which takes half the memory (f16)",
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
    {"--i2s-packing", "NAME", "the file's packing: 128, 64, 4row (128)", take_packing,
     &model_params.i2s_packing, 0, 0},
    {"--tile", "BM,BK,bm", "tile of TL1 or TL2 weights (by their shape)", take_tile,
     &model_params.tile, 0, 0},
    {"-nr --no-repack", 0, "weights in blocks stay where the file is mapped: half of the memory",
     take_yes, &model_params.in_place, 0, 0},
    {"-v --verbose --log-verbose", 0, "run the self-test, show what is loaded", take_yes, &verbose,
     0, 0},
    {"--version", 0, "the version and what is compiled in", take_yes, &want_version, 0, 0},
    {"-h --help --usage", 0, "this text", take_yes, &want_help, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* Options of llama.cpp that have no effect here. A warning names those that are given. */
static const char ignored_flags[] =
    "--mlock -cmoe --cpu-moe -nkvo --no-kv-offload -kvo --kv-offload --no-host --repack "
    "--op-offload --no-op-offload --swa-full --check-tensors -dio --direct-io -ndio "
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
    if (arg[0] != '-' && !model_path) {        /* as when a file is dropped on the program */
        model_path = arg;
        return GO_ON;
    }
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

int unescape(const char *name, char *s) {
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

/* Takes the spaces and quotes off a file name that was typed or dragged into a terminal. */
static char *bare_name(char *s) {
    size_t n = strlen(s);
    while (n && strchr(" \t\r\n", s[n - 1])) n--;
    s[n] = 0;
    while (*s == ' ' || *s == '\t') s++;
    n = strlen(s);
    if (n > 1 && (*s == '"' || *s == '\'') && s[n - 1] == *s) {
        s[n - 1] = 0;
        s++;
    }
    return s;
}

/* For who starts the program alone, as by a double click. */
static int ask_for_model(void) {
    static char line[4096];
    size_t n = 0;
    int c;
    fprintf(stderr,
            "generate runs a ternary language model, which is a file of its own (.gguf).\n"
            "BitNet b1.58-2B-4T, for example, is one of 1.2 GB:\n"
            "https://huggingface.co/microsoft/bitnet-b1.58-2B-4T-gguf/resolve/main/"
            "ggml-model-i2_s.gguf\n\nModel file (drag it into this window and press Enter): ");
    while ((c = utf8_getc()) != EOF && c != '\n')
        if (n + 1 < sizeof line) line[n++] = (char)c;
    line[n] = 0;
    model_path = bare_name(line);
    return *model_path ? GO_ON : fail(2, "no model: give -m FILE; see --help");
}

/* Options that contradict each other, and defaults that depend on other options. */
static int check_options(int alone) {
    if (!model_path && alone && isatty(0) && isatty(2)) {
        int code = ask_for_model();
        if (code != GO_ON) return code;
    }
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
    if (sampler.top_p < 1e-9f) sampler.top_p = 1e-9f;   /* 0 is all tokens in the library */
    if (repeat_window == 0)
        sampler.repeat_penalty = sampler.frequency_penalty = sampler.presence_penalty = 0;
    sampler.repeat_window = repeat_window;
    return GO_ON;
}

int read_options(int argc, char **argv) {
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
    code = check_options(argc == 1);
    if (code == GO_ON) code = unescape_all();
    for (i = 0; i < gen.n_stop_strings; i++) stop_strings[i] = bitnet_text_of(stops[i]);
    gen.stop_strings = stop_strings;
    return code;
}
