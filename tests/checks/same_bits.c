/* What a build computes, as text: what bitnet_selftest says, 60 tokens that a model goes on with,
   and a number made of the bits of all their logits. check.sh compares it between builds. C99 and
   C++11, and with BITNET__IMPLEMENTED beforehand only a user of the library.

       cc -O2 -I. tests/checks/same_bits.c -o bits -lpthread && ./bits examples/tiny.gguf */

#ifndef BITNET__IMPLEMENTED
  #define BITNET_IMPLEMENTATION
#endif
#include "bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const bitnet_error *err) {
    fprintf(stderr, "%s\n", err->text);
    return 1;
}

static bitnet_result load(const char *path, bitnet_model **model, bitnet_error *err) {
#ifdef BITNET_NO_STDIO                 /* which is about the library's, not ours */
    static unsigned char bytes[1 << 22];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    return bitnet_model_load_memory(bytes, n, 0, model, err);
#else
    return bitnet_model_load_file(path, 0, model, err);
#endif
}

static void take_in(uint64_t *digest, const float *x, int32_t n) {
    int32_t i;
    for (i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        *digest = (*digest ^ bits) * 0x100000001b3u;
    }
}

int main(int argc, char **argv) {
    const char *const prompt = "The capital of France is";
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_ctx_params params;
    bitnet_sampler sampler;
    bitnet_model_info info;
    bitnet_token tokens[64], t;
    uint64_t digest = 0xcbf29ce484222325u;
    int n, i;
    memset(&params, 0, sizeof params);
    memset(&sampler, 0, sizeof sampler);
    params.n_threads = 2;
    sampler.temperature = 0.9f;
    sampler.top_k = 40;
    sampler.top_p = 0.95f;
    sampler.repeat_penalty = 1.1f;
    sampler.rng = 7;
    if (argc < 2) return 2;
    printf("selftest: %s\n", bitnet_result_text(bitnet_selftest(bitnet_kernels_default(), &err)));
    if (err.code) return fail(&err);
    if (load(argv[1], &model, &err) || bitnet_ctx_create(model, &params, &ctx, &err))
        return fail(&err);
    bitnet_model_get_info(model, &info);
    n = bitnet_tokenize(model, prompt, strlen(prompt), BITNET_ADD_BOS, tokens, 64);
    if (n < 1 || n > 64 || bitnet_eval(ctx, 0, tokens, n, 1, &err)) return fail(&err);
    for (i = 0; i < 60; i++) {
        char text[64];
        take_in(&digest, bitnet_logits(ctx, -1, 0), info.n_vocab);
        t = bitnet_sample(ctx, -1, &sampler, &err);
        n = bitnet_detokenize(model, &t, 1, text, sizeof text);
        if (n < 0 || bitnet_eval(ctx, 0, &t, 1, 1, &err)) return fail(&err);
        fwrite(text, 1, n > 64 ? 64 : (size_t)n, stdout);
    }
    printf("\nlogits: %08lx%08lx\n", (unsigned long)(digest >> 32),
           (unsigned long)(digest & 0xffffffffu));
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return 0;
}
