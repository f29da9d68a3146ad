/* token_logits.c - tokens and logits of the library, for tests of tools that use them

       token_logits MODEL tokens < TEXT      the text's tokens, with BOS if the model wants it
       token_logits MODEL f16|f32 < TOKENS   a row of logits for each token, with such a KV cache

   Tokens are int32 and logits floats, both in this machine's byte order. */
#include "../../bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char input[1 << 20];

static int write_tokens(const bitnet_model *model, size_t n) {
    static bitnet_token tokens[1 << 20];
    bitnet_model_info info;
    int count;
    bitnet_model_get_info(model, &info);
    count = bitnet_tokenize(model, input, n, info.add_bos ? BITNET_ADD_BOS : 0, tokens, 1 << 20);
    return count < 0 || fwrite(tokens, sizeof *tokens, (size_t)count, stdout) != (size_t)count;
}

static int write_logits(const bitnet_model *model, size_t n, bitnet_kv_type kv_type) {
    bitnet_ctx_params params;
    bitnet_model_info info;
    bitnet_ctx *ctx = 0;
    size_t at;
    int failed;
    bitnet_model_get_info(model, &info);
    memset(&params, 0, sizeof params);
    params.kv_type = kv_type;
    params.n_threads = 1;
    failed = bitnet_ctx_create(model, &params, &ctx, 0) != BITNET_OK;
    for (at = 0; !failed && at < n / 4; at++) {
        bitnet_token t;
        memcpy(&t, input + 4 * at, 4);
        failed = bitnet_eval(ctx, 0, &t, 1, 1, 0) ||
                 !fwrite(bitnet_logits(ctx, -1, 0), (size_t)info.n_vocab * sizeof(float), 1,
                         stdout);
    }
    bitnet_ctx_free(ctx);
    return failed;
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    size_t n;
    int failed;
    if (argc != 3 || bitnet_model_load_file(argv[1], 0, &model, 0)) return 1;
    n = fread(input, 1, sizeof input, stdin);
    failed = !strcmp(argv[2], "tokens")
                 ? write_tokens(model, n)
                 : write_logits(model, n, strcmp(argv[2], "f32") ? BITNET_KV_F16 : BITNET_KV_F32);
    bitnet_model_free(model);
    return failed || fflush(stdout);
}
