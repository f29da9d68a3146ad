/* written.c - what the library writes, for the tests of its JavaScript interface

       written MODEL prompt|message N < TEXT

   Goes on with the text, or replies to it, with at most N tokens, the most likely ones. */
#include "../../bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)ud;
    (void)t;
    return fwrite(text, 1, n, stdout) != n;
}

int main(int argc, char **argv) {
    static char input[1 << 16];
    bitnet_message message = {BITNET_TEXT("user"), {input, 0}, {0, 0}};
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_generate_params gen;
    size_t n;
    int failed;
    if (argc != 4 || bitnet_model_load_file(argv[1], 0, &model, 0)) return 1;
    n = fread(input, 1, sizeof input, stdin);
    memset(&gen, 0, sizeof gen);
    gen.max_tokens = atoi(argv[3]);
    gen.text_fn = print;
    if (strcmp(argv[2], "message")) {
        gen.text.data = input;
        gen.text.size = n;
    } else {
        message.content.size = n;
        gen.messages = &message;
        gen.n_messages = 1;
    }
    failed = bitnet_ctx_create(model, 0, &ctx, 0) || bitnet_generate(ctx, &gen, 0, 0);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return failed || fflush(stdout);
}
