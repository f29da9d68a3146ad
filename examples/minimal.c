/* cc -O2 examples/minimal.c -o minimal && ./minimal examples/tiny.gguf "Once upon a time" */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#include <stdio.h>

static int print(void *ud, const char *text, size_t n, bitnet_token t) {
    (void)t;
    return fwrite(text, 1, n, (FILE *)ud) != n || fflush((FILE *)ud);  // nonzero stops
}

int main(int argc, char **argv) {
    bitnet_model *model = 0; bitnet_ctx *ctx = 0; bitnet_error err = {BITNET_OK, ""};
    bitnet_generate_params gen = {0};
    if (argc < 2) return fprintf(stderr, "usage: %s MODEL.gguf [TEXT]\n", argv[0]), 2;
    gen.text = argc > 2 ? argv[2] : "Once upon a time";
    gen.text_fn = print; gen.ud = stdout; gen.max_tokens = 100;
    if (!bitnet_model_load_file(argv[1], 0, &model, &err) &&
        !bitnet_ctx_create(model, 0, &ctx, &err)) bitnet_generate(ctx, &gen, 0, &err);
    bitnet_ctx_free(ctx); bitnet_model_free(model);
    return err.code ? fprintf(stderr, "%s\n", err.text), 1 : puts("") < 0;
}
