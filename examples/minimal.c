/* cc -O2 examples/minimal.c -o minimal -lpthread && ./minimal examples/tiny.gguf */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#include <stdio.h>
#include <string.h>

static int print(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)ud;
    (void)t;
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    return ferror(stdout);  // nonzero ends the text
}

int main(int argc, char **argv) {
    bitnet_model *model = NULL;
    bitnet_ctx *ctx = NULL;
    bitnet_generate_params gen;
    bitnet_error err;
    bitnet_result r;
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [TEXT]\n", argv[0]);
        return 2;
    }
    memset(&gen, 0, sizeof gen);
    gen.text = bitnet_text_of(argc > 2 ? argv[2] : "Once upon a time");
    gen.max_tokens = 100;
    gen.text_fn = print;
    r = bitnet_model_load_file(argv[1], NULL, &model, &err);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, NULL, &ctx, &err);
    if (r == BITNET_OK) r = bitnet_generate(ctx, &gen, NULL, &err);
    if (r != BITNET_OK) fprintf(stderr, "%s\n", err.text);
    else printf("\n");
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return r != BITNET_OK || ferror(stdout);
}
