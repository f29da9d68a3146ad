/* embed.c - what bitnet_embed makes of texts, for tests/web/node.mjs: the bits of each vector in
   hexadecimal, a line for each text, which is alone in its pass

       embed MODEL POOLING RAW N TEXT...   POOLING is a bitnet_pooling, RAW 0 or 1; what is over N
                                           tokens of a text is cut off */
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_ctx_params cp;
    bitnet_embed_params params;
    bitnet_model_info info;
    bitnet_error err;
    float *vector = 0;
    int i, k;
    bitnet_result r;

    if (argc < 5) return 2;
    memset(&cp, 0, sizeof cp);
    memset(&params, 0, sizeof params);
    cp.n_ctx = atoi(argv[4]);
    cp.no_head_copy = 1;
    params.pooling = (bitnet_pooling)atoi(argv[2]);
    params.raw = atoi(argv[3]);
    params.cut = 1;
    r = bitnet_model_load_file(argv[1], 0, &model, &err);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, &cp, &ctx, &err);
    if (r == BITNET_OK) {
        bitnet_model_get_info(model, &info);
        vector = (float *)malloc((size_t)info.dim * sizeof *vector);
        if (!vector) return 1;
    }
    for (i = 5; i < argc && r == BITNET_OK; i++) {
        bitnet_embed_input in;
        memset(&in, 0, sizeof in);
        in.text = argv[i];
        in.size = strlen(argv[i]);
        r = bitnet_embed(ctx, &in, 1, &params, vector, &err);
        for (k = 0; k < info.dim && r == BITNET_OK; k++) {
            uint32_t bits;
            memcpy(&bits, vector + k, sizeof bits);
            printf("%08x%c", (unsigned)bits, k + 1 < info.dim ? ' ' : '\n');
        }
    }
    if (r != BITNET_OK) fprintf(stderr, "%s\n", err.text);
    free(vector);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return r != BITNET_OK;
}
