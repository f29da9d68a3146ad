/* server.c - many users of one context: each pass over the weights writes for all of them

       cc -O2 examples/hosts/server.c -o server -lpthread
       ./server MODEL.gguf PORT

   On 127.0.0.1 alone; PORT 0 is a free one. A client sends a line, its prompt, and gets the text;
   then the connection ends. Nothing more is written for a client that hangs up; one that only
   closes its own side gets all. The line "stop" ends the server. This is no more than the loop:
   examples/server is the real server, with OpenAI's interface. */
#define _POSIX_C_SOURCE 200809L
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../values.h"
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { USERS = 8, MOST_TOKENS = 100 };

typedef struct user {
    int fd;                            /* -1: nobody is there */
    bitnet_gen *gen;                   /* 0: the line is still coming */
    int is_silent;                     /* its side of the connection is closed */
    char line[4096];
    size_t n;
} user;

static bitnet_ctx *ctx;
static user users[USERS];              /* user i has the context's sequence i */
static int stopped;

/* The user goes: the text is done, or nobody reads it. */
static void leave(int i) {
    bitnet_gen_end(users[i].gen);
    users[i].gen = 0;
    users[i].n = 0;
    users[i].is_silent = 0;
    bitnet_seq_rewind(ctx, i, 0, 0);
    close(users[i].fd);
    users[i].fd = -1;
}

static void begin(int i) {
    bitnet_generate_params p;
    bitnet_error err;
    memset(&p, 0, sizeof p);
    p.seq = i;
    p.text.data = users[i].line;
    p.text.size = users[i].n;
    p.max_tokens = MOST_TOKENS;
    users[i].n = 0;
    if (bitnet_gen_begin(ctx, &p, &users[i].gen, &err) == BITNET_OK) return;
    send(users[i].fd, err.text, strlen(err.text), MSG_DONTWAIT);
    leave(i);
}

/* Something came from a user: a part of the line, or the end of the connection. */
static void hear(int i) {
    user *u = &users[i];
    const ssize_t n = recv(u->fd, u->line + u->n, sizeof u->line - u->n, MSG_DONTWAIT);
    const char *end = n > 0 ? (const char *)memchr(u->line + u->n, '\n', (size_t)n) : 0;
    if (n == 0 && u->gen && !u->is_silent) u->is_silent = 1;
    else if (n <= 0) leave(i);         /* 0 also if there is no room for the rest of the line */
    else if (!u->gen) {                /* else all has been said, and this is left out */
        u->n = end ? (size_t)(end - u->line) : u->n + (size_t)n;
        stopped |= end && u->n == 4 && !memcmp(u->line, "stop", 4);
        if (end && !stopped) begin(i);
    }
}

/* One pass for all who wait for text. Returns how many they are. */
static int write_on(void) {
    bitnet_gen *gens[USERS];
    bitnet_piece piece;
    bitnet_error err;
    bitnet_result r;
    ssize_t sent;
    int i, n = 0;
    for (i = 0; i < USERS; i++)
        if (users[i].gen) gens[n++] = users[i].gen;
    if (n == 0) return 0;
    r = bitnet_gen_next(gens, n, &err);
    if (r != BITNET_OK) fprintf(stderr, "server: %s\n", err.text);
    for (i = 0; i < USERS; i++) {
        if (!users[i].gen) continue;
        bitnet_gen_piece(users[i].gen, &piece);
        /* A client that takes no more has to go. A real server keeps its text for a while, and
           leaves its generation out of the passes meanwhile. */
        sent = send(users[i].fd, piece.text.data, piece.text.size, MSG_DONTWAIT);
        if (r != BITNET_OK || piece.ended || sent != (ssize_t)piece.text.size) leave(i);
    }
    return n;
}

static void serve(int fd) {
    struct pollfd fds[USERS + 1];
    int i, room, n = 0;
    while (!stopped) {
        for (i = 0, room = -1; i < USERS; i++) {
            fds[i].fd = users[i].fd;   /* a negative one is left out */
            fds[i].events = users[i].is_silent ? 0 : POLLIN;     /* an error is told anyway */
            if (users[i].fd < 0) room = i;
        }
        fds[USERS].fd = room < 0 ? -1 : fd;    /* others wait outside */
        fds[USERS].events = POLLIN;
        if (poll(fds, USERS + 1, n > 0 ? 0 : -1) > 0) {
            for (i = 0; i < USERS; i++)
                if (fds[i].fd >= 0 && fds[i].revents) hear(i);
            if (room >= 0 && fds[USERS].revents) users[room].fd = accept(fd, 0, 0);
        }
        n = write_on();
    }
    for (i = 0; i < USERS; i++)
        if (users[i].fd >= 0) leave(i);
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_ctx_params cp;
    bitnet_error err;
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    long long port = 0;
    const int is_usage = argc != 3 || !value_number(argv[2], 0, 65535, &port);
    int code = 1, i;
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = 512;
    cp.n_seqs = USERS;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (i = 0; i < USERS; i++) users[i].fd = -1;
    signal(SIGPIPE, SIG_IGN);
    if (is_usage) fprintf(stderr, "usage: %s MODEL.gguf PORT, 0 to 65535\n", argv[0]);
    else if (bitnet_model_load_file(argv[1], 0, &model, &err) ||
             bitnet_ctx_create(model, &cp, &ctx, &err)) fprintf(stderr, "server: %s\n", err.text);
    else if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, USERS) ||
             getsockname(fd, (struct sockaddr *)&at, &size)) perror("server");
    else {
        printf("port %d\n", ntohs(at.sin_port));
        fflush(stdout);
        serve(fd);
        code = 0;
    }
    close(fd);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return code;
}
