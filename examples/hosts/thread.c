/* thread.c - the model in a thread of its own, and a host that never waits for it

       cc -O2 examples/hosts/thread.c -o thread -lpthread
       ./thread MODEL.gguf PROMPT...

   The host hands over prompts, and takes text when it likes. Both lie in a struct under a mutex.
   A prompt that begins with '-', which is left out, shows how a text is cancelled while it is
   written: the host has enough of it after ENOUGH bytes. */
#define _POSIX_C_SOURCE 200809L
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 64, ENOUGH = 20, MOST_TOKENS = 100 };

typedef struct desk {
    pthread_mutex_t lock;
    pthread_cond_t changed;            /* anything below, but for ctx */
    const char *prompt;                /* handed over and not yet taken; 0: none */
    char text[ROOM];                   /* written, and not yet taken */
    size_t n;
    int ended;                         /* 1: no more of this text comes */
    int cancel;                        /* 1: the text that is being written is not wanted */
    int quit;                          /* 1: nor is the thread */
    int failed;                        /* 1: a text could not be written */
    bitnet_ctx *ctx;                   /* only the thread uses it */
} desk;

/* A cancel_fn. The library asks about 50 times a second, so the lock costs nothing. */
static int is_unwanted(void *ud) {
    desk *d = (desk *)ud;
    int unwanted;
    pthread_mutex_lock(&d->lock);
    unwanted = d->cancel || d->quit;
    pthread_mutex_unlock(&d->lock);
    return unwanted;
}

/* A text_fn: waits for room as long as the text is wanted. */
static int put_text(void *ud, const char *text, size_t n, bitnet_token t) {
    desk *d = (desk *)ud;
    int unwanted;
    (void)t;
    pthread_mutex_lock(&d->lock);
    for (;; text++, n--) {
        while (n > 0 && d->n == ROOM && !d->cancel && !d->quit)
            pthread_cond_wait(&d->changed, &d->lock);
        unwanted = d->cancel || d->quit;
        if (n == 0 || unwanted) break;
        d->text[d->n++] = *text;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return unwanted;
}

/* The thread: one text after another, until it shall quit. */
static void *write_texts(void *ud) {
    desk *d = (desk *)ud;
    bitnet_generate_params p;
    bitnet_error err;
    int failed;
    memset(&p, 0, sizeof p);
    p.max_tokens = MOST_TOKENS;
    p.text_fn = put_text;
    p.cancel_fn = is_unwanted;
    p.text_ud = p.cancel_ud = d;
    pthread_mutex_lock(&d->lock);
    while (!d->quit) {
        if (!d->prompt) {
            pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        p.text = bitnet_text_of(d->prompt);
        d->prompt = 0;
        pthread_mutex_unlock(&d->lock);
        failed = bitnet_generate(d->ctx, &p, 0, &err) && err.code != BITNET_ERR_CANCELLED;
        if (failed) fprintf(stderr, "thread: %s\n", err.text);
        bitnet_seq_rewind(d->ctx, 0, 0, 0);    /* the next text does not go on from this one */
        pthread_mutex_lock(&d->lock);
        d->failed |= failed;
        d->ended = 1;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* The host. Here it has nothing else to do and waits; another one looks in each turn of its loop
   whether there is text. */
static void show(desk *d, const char *prompt, size_t enough) {
    char text[ROOM];
    size_t shown = 0, n;
    pthread_mutex_lock(&d->lock);
    d->prompt = prompt;
    d->ended = d->cancel = 0;
    do {
        pthread_cond_broadcast(&d->changed);
        while (d->n == 0 && !d->ended) pthread_cond_wait(&d->changed, &d->lock);
        memcpy(text, d->text, n = d->n);
        d->n = 0;
        pthread_mutex_unlock(&d->lock);
        shown += fwrite(text, 1, n, stdout);   /* may take long, so without the lock */
        pthread_mutex_lock(&d->lock);
        d->cancel = shown >= enough || ferror(stdout);
    } while (d->n > 0 || !d->ended);
    pthread_mutex_unlock(&d->lock);
    printf("\n");
}

int main(int argc, char **argv) {
    static desk d;
    bitnet_model *model = 0;
    bitnet_error err;
    pthread_t thread;
    int i, code = 1;
    pthread_mutex_init(&d.lock, 0);
    pthread_cond_init(&d.changed, 0);
    if (argc < 2) fprintf(stderr, "usage: %s MODEL.gguf PROMPT...\n", argv[0]);
    else if (bitnet_model_load_file(argv[1], 0, &model, &err) ||
             bitnet_ctx_create(model, 0, &d.ctx, &err)) fprintf(stderr, "thread: %s\n", err.text);
    else if (pthread_create(&thread, 0, write_texts, &d)) perror("thread");
    else {
        for (i = 2; i < argc && !ferror(stdout); i++)
            show(&d, argv[i] + (argv[i][0] == '-'), argv[i][0] == '-' ? ENOUGH : (size_t)-1);
        pthread_mutex_lock(&d.lock);   /* also ends a text that is being written */
        d.quit = 1;
        pthread_cond_broadcast(&d.changed);
        pthread_mutex_unlock(&d.lock);
        pthread_join(thread, 0);
        code = d.failed || fflush(stdout) || ferror(stdout);
    }
    bitnet_ctx_free(d.ctx);            /* only now: the thread has used it */
    bitnet_model_free(model);
    return code;
}
