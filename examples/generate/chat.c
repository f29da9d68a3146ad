#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#include "chat.h"
#include "conversation.h"
#include "lines.h"
#include "options.h"
#include "saved.h"
#include "screen.h"
#include <errno.h>
#include <string.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <unistd.h>
#endif

static int n_replies;

int respond(void) {
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
        bitnet_seq_length(ctx, 0) == bitnet_ctx_capacity(ctx))
        note("the reply ends here: the context of %d tokens is full; /clear empties it",
             bitnet_ctx_capacity(ctx));
    return GO_ON;
}

struct command {
    const char *name, *arg, *help;     /* arg "": it takes none */
    int (*run)(void);                  /* exit code or GO_ON */
};

static char command_file[4096];
static int refused;                    /* a message or a command failed */

static int command_help(void);
static int command_exit(void) { return 0; }

static int command_save(void) {
    const int32_t known = bitnet_seq_length(ctx, 0) + (bitnet_seq_pending(ctx, 0) >= 0);
    int code = GO_ON;
    interrupted = 0;
    if (known < n_tokens) {            /* Ctrl-C came while the context was shifted */
        bitnet_seq_rewind(ctx, 0, bitnet_seq_length(ctx, 0), NULL);
        code = evaluate_to(n_tokens);
    }
    if (code == GO_ON) code = save_state(command_file);
    if (code == GO_ON) note("%d tokens are saved", n_tokens);
    refused |= code != GO_ON;
    return GO_ON;
}

static int command_load(void) {
    int32_t i;
    if (load_state(command_file, 0) != GO_ON) {
        refused = 1;
        return GO_ON;
    }
    for (i = 0; i < n_system && i < bitnet_seq_length(ctx, 0); i++)
        if (tokens[i] != bitnet_seq_tokens(ctx, 0)[i]) break;
    n_system = n_keep = i;
    n_tokens = bitnet_seq_length(ctx, 0);
    memcpy(tokens, bitnet_seq_tokens(ctx, 0), (size_t)n_tokens * sizeof *tokens);
    if (bitnet_seq_pending(ctx, 0) >= 0) tokens[n_tokens++] = bitnet_seq_pending(ctx, 0);
    find_turns();
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
        say("%s %s", commands[i].name, commands[i].arg[0] ? "needs the name of a file"
                                                           : "takes no value");
        break;
    }
    if (i == N_COMMANDS)
        say("'%.*s' is not a command; /help lists them, //... sends /...", (int)n, line);
    refused = 1;
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

int converse(void) {
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
