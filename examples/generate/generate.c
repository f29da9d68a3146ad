/* generate.c - text and chat from a BitNet model, with the options of llama.cpp

       cc -O2 examples/generate/[a-z]*.c -o generate -lpthread
       ./generate -m examples/tiny.gguf -p "Once upon a time"
       ./generate -m examples/tiny.gguf -cnv

   The text goes to stdout and everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong
   usage, 130 Ctrl-C. With -DGENERATE_EDITLINE and -ledit the lines of a chat can be edited and
   recalled. libedit was chosen because its licence (BSD) lets the program keep its own; GNU
   readline's (GPL) would not.

   Here is the program from its start to its end. options.h reads the command line; screen.h is what
   a person sees, and Ctrl-C; files.h and lines.h are what is read; conversation.h has the tokens of
   a text or chat, saved.h keeps them in files, and chat.h writes replies and takes commands. */
#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../../bitnet_grammar.h"
#include "../streams.h"
#include "../utf8.h"
#include "chat.h"
#include "conversation.h"
#include "files.h"
#include "lines.h"
#include "options.h"
#include "saved.h"
#include "screen.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <unistd.h>
#endif

bitnet_model *model;
bitnet_model_info info;
bitnet_ctx *ctx;
bitnet_matcher *matcher;
bitnet_error err;
static bitnet_grammar *grammar;

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
    if (chatting &&
        bitnet_chat_tokenize(model, &chat, 0, 0, BITNET_CHAT_OPEN_REPLY, 0, 0, NULL) < 0)
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
    if (thinks_first())
        p.around = bitnet_text_of(BITNET_GRAMMAR_THOUGHT "text ::= thought \"\\n\\n\" root\n");
    r = schema_text ? bitnet_grammar_json_schema(model, text, strlen(text), &p, &grammar, &err)
                    : bitnet_grammar_gbnf(model, text, strlen(text), &p, &grammar, &err);
    if (r == BITNET_OK) r = bitnet_matcher_create(grammar, 0, &matcher, &err);
    if (r != BITNET_OK) return fail(2, "%s: %s", name, err.text);
    sampler.mask_fn = bitnet_matcher_mask;
    sampler.chosen_fn = bitnet_matcher_chosen;
    sampler.mask_ud = sampler.chosen_ud = matcher;
    return GO_ON;
}

/* Control tokens have no text, so no stop string can be found in it. */
static void check_stops(void) {
    int32_t i;
    for (i = 0; i < gen.n_stop_strings; i++) {
        const bitnet_token t = bitnet_token_find(model, stops[i], strlen(stops[i]));
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
        fprintf(stderr, "lookup: %d guesses, %d of %d tokens right\n", drafts, accepted,
                drafted);
}

static int generate(void) {
    double began = now(), took;
    int code = load();
    if (code == GO_ON) code = choose_mode();
    if (code == GO_ON) code = create_matcher();      /* asks whether a reply thinks first */
    if (code == GO_ON) code = create_context();
    if (code != GO_ON) return code;
    check_stops();
    took = now() - began;
    if (verbose && bitnet_selftest(bitnet_kernels_find(info.kernels_name), &err))
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
    if (cache_is_read && cache_all && !cache_read_only && code != 1)
        cache_failed |= save_state(cache_path) != GO_ON;
    if (code != 1) print_statistics(code);
    return code == 0 && cache_failed ? 1 : code;
}

/* A window that was opened for the program alone, as by a double click, closes with it: what stands
   there is to be read first. */
static void wait_in_own_window(void) {
#ifdef _WIN32
    DWORD ids[2];
    if (GetConsoleProcessList(ids, 2) != 1 || !isatty(0)) return;
    fprintf(stderr, "\nPress Enter to close this window.");
    getchar();
#endif
}

int main(int argc, char **argv) {
    int code;
    if (!streams_fill()) return 1;
    argv = utf8_arguments(&argc, argv);
    code = read_options(argc, argv);
    if (code == GO_ON) code = choose_kernels();
    if (code == GO_ON && system_path) code = read_file(system_path, &system_text);
    if (code == GO_ON && prompt_path) code = read_file(prompt_path, &prompt);
    if (code == GO_ON && grammar_path) code = read_file(grammar_path, &grammar_text);
    if (code == GO_ON && schema_path) code = read_file(schema_path, &schema_text);
    if (code == GO_ON) {
        look_around();
        code = generate();
    }
    wait_in_own_window();
    free(tokens);
    free(turns);
    bitnet_matcher_free(matcher);
    bitnet_grammar_free(grammar);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return code;
}
