/* game.c - a character speaks while the game goes on: no thread of its own, a budget in each frame

       cc -O2 examples/hosts/game.c -o game -lpthread
       ./game MODEL.gguf PROMPT [N_BATCH [BUDGET]]

   A frame takes 16 ms. The game draws, then gives the model a turn of BUDGET ms: pause_fn ends it
   where the next layer would not fit any more, and the next frame goes on there. N_BATCH says how
   fine turns can be: a layer takes as long as it has tokens of the prompt. With the defaults, 8 and
   8, and BitNet 2B on two fast cores, a prompt of 300 tokens takes 6 seconds, and 99 of 100 frames
   stay under 17 ms. The program shows that at its end. The reply is always the same. */
#define _POSIX_C_SOURCE 200809L
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../values.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_FRAMES = 100000, MOST_TOKENS = 40 };
static const double FRAME = 16, DRAWING = 3;

static double now(void) {              /* in ms */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The model's turn: when it ends, when the layer began that runs, and how long layers take. */
typedef struct turn { double end, began, layer; } turn;

/* A pause_fn, asked behind each layer. A slow one, as on a busy machine, is remembered a while. */
static int is_over(void *ud) {
    turn *t = (turn *)ud;
    const double time = now(), took = time - t->began;
    t->layer = took > 0.9 * t->layer ? took : 0.9 * t->layer;
    t->began = time;
    return time + t->layer > t->end;
}

/* Stands for what a game does in a frame. */
static void draw(void) {
    const double end = now() + DRAWING;
    while (now() < end) continue;
}

static void wait_until(double end) {
    struct timespec t = {0, 0};
    const double left = end - now();
    t.tv_nsec = (long)(left * 1e6);
    if (left > 0) nanosleep(&t, 0);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *ms, int n) {
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    fprintf(stderr, "%s: %d frames", what, n);
    if (n > 0)
        fprintf(stderr, ", ms: median %.1f, 99th percentile %.1f, maximum %.1f", ms[n / 2],
                ms[n * 99 / 100], ms[n - 1]);
    fprintf(stderr, "\n");
}

/* The game, until the character has spoken. ms [MOST_FRAMES] of frames in which the prompt was
   read, then of those in which the reply was written. */
static bitnet_result play(bitnet_gen *gen, turn *t, double budget, double *ms, int *n_read,
                          int *n, bitnet_error *err) {
    bitnet_result r = BITNET_OK;
    bitnet_piece piece;
    double frame = now(), end;
    memset(&piece, 0, sizeof piece);
    for (*n = 0; *n < MOST_FRAMES && !piece.ended && r == BITNET_OK; frame = end) {
        draw();
        t->end = now() + budget;
        do {                           /* at least a layer, so that it gets on */
            t->began = now();
            r = bitnet_gen_next(&gen, 1, err);
            bitnet_gen_piece(gen, &piece);     /* without text if the pass is paused */
            fwrite(piece.text.data, 1, piece.text.size, stdout);
        } while (r == BITNET_OK && !piece.ended && now() + t->layer < t->end);
        wait_until(frame + FRAME);
        end = now();
        ms[(*n)++] = end - frame;
        if (piece.n_read < piece.n_prompt) *n_read = *n;
    }
    return r;
}

int main(int argc, char **argv) {
    static double ms[MOST_FRAMES];
    int n_read = 0, n = 0, failed = 1;
    long long n_batch = 8;
    double budget = 8;
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_gen *gen = 0;
    bitnet_model_params mp;
    bitnet_ctx_params cp;
    bitnet_generate_params p;
    bitnet_error err;
    turn t = {0, 0, 0};
    if (argc < 3 || argc > 5 || (argc > 3 && !value_number(argv[3], 1, 65536, &n_batch)) ||
        (argc > 4 && (!value_real(argv[4], &budget) || budget < 0))) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT [N_BATCH [BUDGET]], N_BATCH from 1 to 65536\n",
                argv[0]);
        return 2;
    }
    memset(&mp, 0, sizeof mp);
    memset(&cp, 0, sizeof cp);
    memset(&p, 0, sizeof p);
    mp.prefault = 1;                   /* so that no frame waits for the disk */
    cp.n_ctx = 1024;
    cp.n_batch = (int32_t)n_batch;
    cp.hooks.pause_fn = is_over;
    cp.hooks.pause_ud = &t;
    p.text = bitnet_text_of(argv[2]);
    p.max_tokens = MOST_TOKENS;
    if (bitnet_model_load_file(argv[1], &mp, &model, &err) ||
        bitnet_ctx_create(model, &cp, &ctx, &err) || bitnet_gen_begin(ctx, &p, &gen, &err) ||
        play(gen, &t, budget, ms, &n_read, &n, &err))
        fprintf(stderr, "game: %s\n", err.text);
    else failed = 0;
    printf("\n");
    report("the prompt was read", ms, n_read);
    report("the reply was written", ms + n_read, n - n_read);
    bitnet_gen_end(gen);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return failed || fflush(stdout) || ferror(stdout);
}
