/* events.c - the model in an event loop, without a thread or a lock of the program's own

       cc -O2 examples/hosts/events.c -o events -lpthread
       ./events MODEL.gguf

   A line of stdin is a prompt. While its text is written, the line "?" asks how far it is, and
   another prompt takes its place; an empty line only ends it. Between events the loop gives the
   model a turn, which pause_fn ends behind the layer in which an event comes. In other loops:

       GLib       a turn is a call of g_idle_add's function; pause_fn asks g_main_context_pending()
       libuv      uv_idle_start; poll() of uv_backend_fd(), or the clock
       libevent   event_active of a low priority; poll() of the descriptors, or the clock

   Where a layer is too long to wait for, thread.c has the model in a thread, which wakes the loop
   with a byte in a pipe, g_idle_add or uv_async_send. */
#define _POSIX_C_SOURCE 200809L
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TOKENS = 100 };

typedef struct loop {
    bitnet_ctx *ctx;
    bitnet_gen *gen;                   /* the text that is being written; 0: none */
    char line[4096];
    size_t n;                          /* bytes of the line that is coming */
    int is_cut;                        /* 1: it is too long */
    int open;                          /* 1: stdin goes on */
    int pauses;                        /* in all */
} loop;

/* Is there an event? Waits for one for so many milliseconds; -1: as long as it takes. */
static int has_event(const loop *l, int ms) {
    struct pollfd fd = {0, POLLIN, 0};
    return l->open && poll(&fd, 1, ms) > 0;
}

/* A pause_fn. */
static int is_event(void *ud) {
    loop *l = (loop *)ud;
    const int event = has_event(l, 0);
    l->pauses += event;
    return event;
}

/* Ends the text, wherever it is. */
static void end_text(loop *l) {
    if (!l->gen) return;
    bitnet_gen_end(l->gen);
    l->gen = 0;
    bitnet_seq_rewind(l->ctx, 0, 0, 0);
    printf("\n");
}

static void handle_line(loop *l, size_t n) {
    bitnet_generate_params p;
    bitnet_piece piece;
    bitnet_error err;
    if (n == 1 && l->line[0] == '?') {
        bitnet_gen_piece(l->gen, &piece);
        fprintf(stderr, "%d of %d tokens read, %d pauses\n", (int)piece.n_read,
                (int)piece.n_prompt, l->pauses);
        return;
    }
    end_text(l);
    if (n == 0) return;
    memset(&p, 0, sizeof p);
    p.text.data = l->line;
    p.text.size = n;
    p.max_tokens = MOST_TOKENS;
    p.n_batch = 8;                     /* a layer is so long that an event can wait for it */
    if (bitnet_gen_begin(l->ctx, &p, &l->gen, &err)) fprintf(stderr, "events: %s\n", err.text);
}

/* Reads what there is, up to the end of a line: nothing here waits. */
static void handle_event(loop *l) {
    do {
        l->open = read(0, l->line + l->n, 1) == 1;
        if (!l->open || l->line[l->n] == '\n') {
            if (l->is_cut) fprintf(stderr, "events: a line of over 4095 bytes is left out\n");
            else if (l->open || l->n > 0) handle_line(l, l->n);
            l->n = 0;
            l->is_cut = 0;
            return;
        }
        if (l->n + 1 < sizeof l->line) l->n++;
        else l->is_cut = 1;
    } while (has_event(l, 0));
}

/* The model's turn: a pass, or as many layers of it as there are until an event comes. */
static void take_turn(loop *l) {
    bitnet_piece piece;
    bitnet_error err;
    if (bitnet_gen_next(&l->gen, 1, &err)) {
        fprintf(stderr, "events: %s\n", err.text);
        end_text(l);
        return;
    }
    bitnet_gen_piece(l->gen, &piece);  /* of a paused pass there is no text yet */
    fwrite(piece.text.data, 1, piece.text.size, stdout);
    if (piece.ended) end_text(l);
}

int main(int argc, char **argv) {
    static loop l;
    bitnet_model *model = 0;
    bitnet_ctx_params cp;
    bitnet_error err;
    memset(&cp, 0, sizeof cp);
    cp.hooks.pause_fn = is_event;
    cp.hooks.pause_ud = &l;
    l.open = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.gguf < LINES\n", argv[0]);
        return 2;
    }
    if (bitnet_model_load_file(argv[1], 0, &model, &err) ||
        bitnet_ctx_create(model, &cp, &l.ctx, &err)) fprintf(stderr, "events: %s\n", err.text);
    while (l.ctx && (l.open || l.gen) && !ferror(stdout)) {
        if (has_event(&l, l.gen ? 0 : -1)) handle_event(&l);
        if (l.gen) take_turn(&l);
        fflush(stdout);
    }
    bitnet_gen_end(l.gen);
    bitnet_ctx_free(l.ctx);
    bitnet_model_free(model);
    return !l.ctx || fflush(stdout) || ferror(stdout);
}
