/* logprobs.c - what the library says of each token of a text, for the server's tests

       logprobs MODEL TEXT

   A line for each token: its number, and the logarithm of its probability after those before it. */
#include "../../bitnet.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_ctx_params params;
    bitnet_token tokens[512];
    int i, k, n;
    if (argc != 3 || bitnet_model_load_file(argv[1], 0, &model, 0)) return 1;
    memset(&params, 0, sizeof params);
    n = bitnet_tokenize(model, argv[2], strlen(argv[2]), BITNET_ADD_BOS, tokens, 512);
    params.n_logits = n;
    if (n < 1 || bitnet_ctx_create(model, &params, &ctx, 0)) return 1;
    if (bitnet_eval(ctx, tokens, n, 1, 0)) return 1;
    printf("%d null\n", (int)tokens[0]);
    for (i = 1; i < n; i++) {
        const float *logits = bitnet_logits(ctx, i - 1);
        double sum = 0;
        bitnet_model_info info;
        bitnet_model_get_info(model, &info);
        for (k = 0; k < info.n_vocab; k++) sum += exp((double)logits[k]);
        printf("%d %.9g\n", (int)tokens[i], (double)logits[tokens[i]] - log(sum));
    }
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return 0;
}
