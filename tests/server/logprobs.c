/* logprobs.c - what the library says of a text, for the server's tests

       logprobs MODEL TEXT

   A line for each token: its number, and the logarithm of its probability after those before it.
   With a model of embeddings a line for each number of the text's vector. */
#include "../../bitnet.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_vector(const bitnet_model *model, const char *text, int dim) {
    const bitnet_embed_input in = {{text, strlen(text)}, 0, 0, {0, 0}};
    float *v = (float *)malloc((size_t)dim * sizeof *v);
    bitnet_ctx *ctx = 0;
    int i, failed = !v || bitnet_ctx_create(model, 0, &ctx, 0) ||
                    bitnet_embed(ctx, &in, 1, 0, v, 0);
    for (i = 0; !failed && i < dim; i++) printf("%.9g\n", (double)v[i]);
    bitnet_ctx_free(ctx);
    free(v);
    return failed;
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_ctx_params params;
    bitnet_model_info info;
    bitnet_token tokens[512];
    int i, k, n;
    if (argc != 3 || bitnet_model_load_file(argv[1], 0, &model, 0)) return 1;
    bitnet_model_get_info(model, &info);
    if (!info.has_head) {
        n = print_vector(model, argv[2], info.dim);
        bitnet_model_free(model);
        return n;
    }
    memset(&params, 0, sizeof params);
    n = bitnet_tokenize(model, argv[2], strlen(argv[2]), BITNET_ADD_BOS, tokens, 512);
    params.n_logits = n;
    if (n < 1 || bitnet_ctx_create(model, &params, &ctx, 0)) return 1;
    if (bitnet_eval(ctx, 0, tokens, n, n, 0)) return 1;
    printf("%d null\n", (int)tokens[0]);
    for (i = 1; i < n; i++) {
        const float *logits = bitnet_logits(ctx, i - 1, 0);
        double sum = 0;
        for (k = 0; k < info.n_vocab; k++) sum += exp((double)logits[k]);
        printf("%d %.9g\n", (int)tokens[i], (double)logits[tokens[i]] - log(sum));
    }
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return 0;
}
