#include "conversation.h"
#include "options.h"
#include "screen.h"
#include <stdlib.h>
#include <string.h>

bitnet_token *tokens;
int32_t n_tokens, *turns, n_turns, n_system, n_keep;
const char *echo;
bitnet_stop why;
bitnet_chat_params chat;
bitnet_reply reply;
int n_prompt, n_new, drafts, drafted, accepted;
double prompt_seconds, new_seconds, started;

enum { MOST_END = 16 };                /* tokens that end a reply of a chat */

int put_reply(const char *text, size_t n) {
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

int on_text(void *ud, const char *s, size_t n, bitnet_token t) {
    (void)ud;
    if (t >= 0) {
        tokens[n_tokens++] = t;
        n_new++;
    }
    return put_reply(s, n) || interrupted;
}

int on_prompt(void *ud, uint64_t done, uint64_t total) {
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

int allocate_conversation(void) {
    size_t room = (size_t)bitnet_ctx_capacity(ctx) + 2 + MOST_END;
    tokens = (bitnet_token *)malloc(room * sizeof *tokens);
    turns = (int32_t *)malloc(room * sizeof *turns);
    return tokens && turns ? GO_ON : fail(1, "out of memory");
}

void keep_common(int32_t n) {
    const bitnet_token *held = bitnet_seq_tokens(ctx, 0);
    int32_t same = 0;
    if (n > bitnet_seq_length(ctx, 0)) n = bitnet_seq_length(ctx, 0);
    while (same < n && held[same] == tokens[same]) same++;
    bitnet_seq_rewind(ctx, 0, same, NULL);
}

int begin_conversation(void) {
    const size_t capacity = (size_t)bitnet_ctx_capacity(ctx);
    const bitnet_message message = {BITNET_TEXT("system"), bitnet_text_of(system_text), {0}};
    int n;
    if (chatting)
        n = bitnet_chat_tokenize(model, &chat, &message, system_text ? 1 : 0, BITNET_CHAT_BEGIN,
                                 tokens, capacity, &err);
    else n = bitnet_tokenize(model, "", 0, info.add_bos ? BITNET_ADD_BOS : 0, tokens, capacity);
    if (n < 0 && chatting) return fail(1, "%s", err.text);
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
    bitnet_seq_rewind(ctx, 0, n_keep, NULL);
}

/* Whether the text so far ends a reply, as a flag for tokenizing. */
static int reply_flag(void) {
    if (n_tokens <= n_system) return 0;
    return bitnet_token_is_end(model, tokens[n_tokens - 1]) ? BITNET_CHAT_ENDED_REPLY
                                                            : BITNET_CHAT_CUT_REPLY;
}

/* The tokens that end the last reply, in out [cap] as far as they fit. */
static int tokenize_end(bitnet_token *out, size_t cap) {
    return chatting ? bitnet_chat_tokenize(model, &chat, 0, 0, reply_flag(), out, cap, NULL) : 0;
}

/* Prepares the next turn: a chat's reply gets its end; a text that goes on loses its end token. */
static void close_reply(void) {
    int ended = reply_flag() == BITNET_CHAT_ENDED_REPLY;
    n_tokens += tokenize_end(tokens + n_tokens, MOST_END);
    if (!chatting && ended) {
        n_tokens--;
        bitnet_seq_rewind(ctx, 0, bitnet_seq_length(ctx, 0), NULL);   /* it was pending */
    }
}

static int tokenize_turn(const char *text, bitnet_token *out, size_t cap) {
    const bitnet_message message = {BITNET_TEXT("user"), bitnet_text_of(text), {0}};
    if (!chatting)
        return bitnet_tokenize(model, text, strlen(text), parse_special ? BITNET_PARSE_SPECIAL : 0,
                               out, cap);
    return bitnet_chat_tokenize(model, &chat, &message, 1, BITNET_CHAT_OPEN_REPLY, out, cap, NULL);
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

int add_turn(const char *text) {
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
                        bitnet_seq_length(ctx, 0));
        drop_oldest(n);
    }
    close_reply();
    turns[n_turns++] = n_tokens;
    n_tokens += tokenize_turn(text, tokens + n_tokens, (size_t)n);
    drop_second_bos();
    if (n_turns == 1 && n_keep == n_system) keep_first_turn();
    return GO_ON;
}

/* A turn begins where a reply has ended, and as all messages of the user do. */
void find_turns(void) {
    const int32_t behind = chatting ? bitnet_chat_tokenize(model, &chat, 0, 0,
                                                           BITNET_CHAT_ENDED_REPLY, 0, 0, NULL) : 0;
    bitnet_token a[MOST_END] = {0}, b[MOST_END] = {0};
    int32_t n = 0, i;
    tokenize_turn("a", a, MOST_END);
    tokenize_turn("b", b, MOST_END);
    while (n < MOST_END && a[n] == b[n]) n++;
    for (n_turns = 0, i = n_system; i < n_tokens; i++)
        if (i == n_system ||
            (n > 0 && behind >= 0 && i > behind && n_tokens - i >= n &&
             bitnet_token_is_end(model, tokens[i - 1 - behind]) &&
             !memcmp(tokens + i, a, (size_t)n * sizeof *a)))
            turns[n_turns++] = i;
}

void remove_turn(void) {
    n_tokens = turns[--n_turns];
    if (bitnet_seq_length(ctx, 0) > n_tokens) bitnet_seq_rewind(ctx, 0, n_tokens, NULL);
    if (n_turns == 0) n_keep = n_system;
}

/* Does the reply go on although the context has just become full? */
static int goes_on(int32_t limit, int32_t written) {
    return why == BITNET_STOP_LENGTH && bitnet_seq_length(ctx, 0) == bitnet_ctx_capacity(ctx) &&
           shifting && max_tokens != -2 && (limit == 0 || written < limit);
}

static void count_drafts(void) {
    bitnet_figures f;
    bitnet_seq_figures(ctx, 0, &f);
    drafts += f.drafts;
    drafted += f.drafted;
    accepted += f.accepted;
}

bitnet_result stream(void) {
    /* A chat's reply that does not end is cut when it is as long as the context. */
    int32_t limit = max_tokens > 0 ? max_tokens : chatting ? bitnet_ctx_capacity(ctx) : 0;
    int32_t before = n_new;
    bitnet_result r;
    bar_begin("prompt");
    for (;;) {
        int32_t known = bitnet_seq_length(ctx, 0) + (bitnet_seq_pending(ctx, 0) >= 0);
        gen.tokens = tokens + known;
        gen.n_tokens = n_tokens - known;
        gen.max_tokens = limit ? limit - (n_new - before) : 0;
        started = now();
        r = bitnet_generate(ctx, &gen, &why, &err);
        bar_end();
        if (r != BITNET_OK) return r;
        new_seconds += now() - started;
        count_drafts();
        if (!goes_on(limit, n_new - before)) return r;
        if (chatting && screen) fputc('\n', screen);       /* for the note and the bar */
        drop_oldest(0);
        if (chatting) bar_begin("prompt");
    }
}
