/* Writes a text, in a program or a plugin of test_bindings.sh.

   WRITE   the name of its function, which writes the version and the text to out
   MORE    bitnet_model_params and bitnet_generate_params begin with a field `more`: a library that
           does not know it takes the number in it for something else
   MAIN    it is a program: write MODEL */
#ifndef WRITE
  #define WRITE write_text
#endif
#include "bitnet.h"
#include <stdio.h>
#include <string.h>

int WRITE(const char *path, char *out, size_t cap);

struct place { char *at; size_t left; };

static int take(void *ud, const char *text, size_t n, bitnet_token t) {
    struct place *p = (struct place *)ud;
    (void)t;
    if (n >= p->left) return 1;
    memcpy(p->at, text, n);
    p->at += n;
    p->left -= n;
    *p->at = 0;
    return 0;
}

int WRITE(const char *path, char *out, size_t cap) {
    bitnet_model_params params;
    bitnet_ctx_params ctx_params;
    bitnet_generate_params gen;
    bitnet_model *model = NULL;
    bitnet_ctx *ctx = NULL;
    bitnet_error err;
    bitnet_result r;
    struct place place;
    const int n = snprintf(out, cap, "%s:", bitnet_version());
    place.at = out + n;
    place.left = cap - (size_t)n;
    memset(&params, 0, sizeof params);
    memset(&ctx_params, 0, sizeof ctx_params);
    memset(&gen, 0, sizeof gen);
#ifdef MORE
    params.more = 0x1111111111111111u;
    gen.more = 0x2222222222222222u;
#endif
    ctx_params.n_ctx = 200;
    ctx_params.n_threads = 2;
    gen.text = bitnet_text_of("Once upon a time");
    gen.max_tokens = 40;
    gen.text_fn = take;
    gen.text_ud = &place;
    r = bitnet_model_load_file(path, &params, &model, &err);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, &ctx_params, &ctx, &err);
    if (r == BITNET_OK) r = bitnet_generate(ctx, &gen, NULL, &err);
    if (r != BITNET_OK) snprintf(place.at, place.left, " (%s)", err.text);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return r != BITNET_OK;
}

#ifdef MAIN
int main(int argc, char **argv) {
    static char text[4096];
    const int code = argc > 1 ? WRITE(argv[1], text, sizeof text) : 2;
    printf("%s\n", text);
    return code;
}
#endif
