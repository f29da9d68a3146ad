/* Prints what the model MODEL writes, and the version of the library. */
#include "bitnet.h"
#include <stdio.h>
#include <string.h>

static int print(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)ud;
    (void)t;
    return fwrite(text, 1, n, stdout) != n;
}

int main(int argc, char **argv) {
    const bitnet_text text = BITNET_TEXT("Once upon a time");
    bitnet_model *model = NULL;
    bitnet_ctx *ctx = NULL;
    bitnet_generate_params gen;
    bitnet_error err;
    bitnet_result r;
    if (argc != 2) return 2;
    memset(&gen, 0, sizeof gen);
    gen.text = text;
    gen.max_tokens = 20;
    gen.text_fn = print;
    r = bitnet_model_load_file(argv[1], NULL, &model, &err);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, NULL, &ctx, &err);
    if (r == BITNET_OK) r = bitnet_generate(ctx, &gen, NULL, &err);
    if (r != BITNET_OK) fprintf(stderr, "%s\n", err.text);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    printf("\n%s %s\n", BITNET_VERSION, bitnet_version());
    return r != BITNET_OK;
}
