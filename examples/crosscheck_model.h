/* crosscheck_model.h - a part of crosscheck.c: a model's part of the report, and how likely English
   text is to a model in each layout of its weights. */

/* What is to be done; the options fill these. */
static const char *model_path, *kv_name = "f16", *bug;
static const char *prompt = "Once upon a time there was a little girl who lived in a village. One "
                            "day she found a key, and she asked her mother what it was for.";
static int32_t n_new = 16;
static bitnet_model_params mp;
static bitnet_ctx_params cp;
static const char *const layouts[] = {"128", "64", "4row"};    /* by bitnet_i2s_layout */

static bitnet_model *model;
static bitnet_model_info info;
static bitnet_ctx *ctx;
static bitnet_token *tokens;           /* the prompt */
static int32_t n_tokens;
static float *last_rows;               /* [n_layers + 1][dim]    of the prompt's last token */
static uint64_t *other_hashes;         /* [n_layers + 1]         of those before it */

/* The model file's own hash: other weights explain other results. */
static void note_model(void) {
    static uint8_t bytes[1 << 16];
    uint64_t h = HASH_START, total = 0;
    size_t i, n;
    FILE *f = fopen(model_path, "rb");
    if (!f) fail(1, "%s: cannot open: %s", model_path, strerror(errno));
    for (; (n = fread(bytes, 1, sizeof bytes, f)) > 0; total += n)
        for (i = 0; i < n; i++) h = hash_bits(h, bytes[i], 1);
    if (ferror(f)) fail(1, "%s: cannot read: %s", model_path, strerror(errno));
    fclose(f);
    printf("note model of %.0f bytes, hash %08lx%08lx\n", (double)total, (unsigned long)(h >> 32),
           (unsigned long)(h & 0xffffffff));
    n_lines++;
}

static void tokenize(const char *text) {
    int flags = info.add_bos ? BITNET_ADD_BOS : 0;
    n_tokens = bitnet_tokenize(model, text, strlen(text), flags, 0, 0);
    if (n_tokens < 1) fail(1, "%s: the text has no tokens", model_path);
    tokens = (bitnet_token *)grow(tokens, (size_t)n_tokens * sizeof *tokens);
    bitnet_tokenize(model, text, strlen(text), flags, tokens, (size_t)n_tokens);
}

static void open_ctx(int32_t n_ctx, int32_t n_logits) {
    bitnet_error err;
    cp.n_ctx = n_ctx;
    cp.n_logits = n_logits;
    if (bitnet_ctx_create(model, &cp, &ctx, &err)) fail(1, "%s", err.text);
}

static void eval(const bitnet_token *t, int32_t n, int all_logits) {
    bitnet_error err;
    if (bitnet_eval(ctx, t, n, all_logits, &err)) fail(1, "%s", err.text);
}

/* Hashes run over the positions in order, so that they don't depend on the batches. */
static void on_layer(void *ud, int layer, const float *row, int n) {
    int32_t at = bitnet_ctx_length(ctx), i, dim = info.dim;
    uint64_t *h = &other_hashes[layer + 1];
    (void)ud;
    for (; n > 0 && at < n_tokens; n--, at++, row += dim) {
        if (at == n_tokens - 1)
            memcpy(last_rows + (size_t)(layer + 1) * (size_t)dim, row, (size_t)dim * sizeof *row);
        else for (i = 0; i < dim; i++) *h = hash_bits(*h, float_bits(row[i]), 4);
    }
}

static void report_prompt(void) {
    size_t dim = (size_t)info.dim, layers = (size_t)info.n_layers + 1, i;
    char what[128], types[32];
    last_rows = (float *)grow(0, layers * dim * sizeof *last_rows);
    other_hashes = (uint64_t *)grow(0, layers * sizeof *other_hashes);
    for (i = 0; i < layers; i++) other_hashes[i] = HASH_START;
    got.n = 0;
    put_ints(&got, tokens, (size_t)n_tokens);
    snprintf(what, sizeof what, "tokens of the prompt, kv %s, -n %d", kv_name, (int)n_new);
    write_line(what, "model", &got);
    eval(tokens, n_tokens, 0);
    for (i = 0; i < layers; i++) {
        char where[32] = "the embedding";
        if (i > 0) snprintf(where, sizeof where, "layer %d", (int)i - 1);
        snprintf(what, sizeof what, "stream after %s, token %d", where, n_tokens - 1);
        got.n = 0;
        put_floats(&got, last_rows + i * dim, dim);
        write_line(what, "model", &got);
        if (n_tokens < 2) continue;
        snprintf(what, sizeof what, "stream after %s, tokens 0 to %d", where, n_tokens - 2);
        snprintf(types, sizeof types, "f%.0f", (double)(n_tokens - 1) * (double)dim);
        write_hash(what, "model", types, other_hashes[i]);
        putchar('\n');
    }
}

/* Greedy tokens, by the screened head, then the logits, by the whole one. */
static void report_tokens(void) {
    bitnet_sampler greedy = {0};
    bitnet_detok detok = {{0}, 0};
    char what[128], text[4096];
    int32_t i, n, ended = 0;
    fprintf(stderr, "crosscheck: the model goes on: ");
    for (i = 0; i < n_new; i++) {
        bitnet_token t = bitnet_sample(ctx, &greedy);
        const float *logits = bitnet_logits(ctx, -1);
        got.n = 0;
        put_floats(&got, logits, (size_t)info.n_vocab);
        if (i == 0) write_line("logits after the prompt", "model", &got);
        got.n = 0;
        put_ints(&got, &t, 1);
        put_floats(&got, &logits[t], 1);
        snprintf(what, sizeof what, "greedy token %d and its logit", (int)i);
        write_line(what, "model", &got);
        if (bitnet_token_is_end(model, t)) ended = 1;
        n = ended ? 0 : bitnet_detok_push(model, &detok, t, text, sizeof text);
        if (n > 0) fwrite(text, 1, (size_t)n, stderr);
        if (i + 1 < n_new) eval(&t, 1, 0);
    }
    n = bitnet_detok_push(model, &detok, -1, text, sizeof text);
    if (n > 0) fwrite(text, 1, (size_t)n, stderr);
    fputc('\n', stderr);
}

static void open_model(void) {
    bitnet_error err;
    if (bitnet_model_load_file(model_path, &mp, &model, &err))
        fail(1, "%s: %s", model_path, err.text);
    bitnet_model_get_info(model, &info);
    tokenize(prompt);
    cp.layer_fn = on_layer;
    open_ctx(n_tokens + n_new, 1);
}

static void report_model(void) {
    note_model();
    if (bug) printf("note emulated bug: %s (128-groups of weights read as 64-groups)\n", bug);
    else if (mp.i2s_layout) printf("note weights read as %s\n", layouts[mp.i2s_layout]);
    if (mp.i2s_layout) n_lines++;
    fprintf(stderr, "crosscheck: model with kernels %s, %d threads\n", info.kernels,
            (int)bitnet_ctx_threads(ctx));
    report_prompt();
    report_tokens();
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
}

/* ---- which layout? ---- */

static double log_of(double p) {       /* 0 < p <= 1; no libm to link */
    double z, z2, sum = 0;
    int e = 0, i;
    for (; p < 0.7; p *= 2) e++;
    z = (p - 1) / (p + 1);
    z2 = z * z;
    for (i = 21; i >= 1; i -= 2) sum = sum * z2 + 1.0 / i;
    return 2 * z * sum - e * 0.69314718055994530942;
}

/* Mean log-likelihood of the text's tokens after the first. */
static double likelihood(const char *text) {
    double sum = 0;
    int32_t i;
    float *p;
    tokenize(text);
    open_ctx(n_tokens, 1);
    p = (float *)grow(0, (size_t)info.n_vocab * sizeof *p);
    for (i = 0; i + 1 < n_tokens; i++) {
        eval(tokens + i, 1, 0);
        memcpy(p, bitnet_logits(ctx, -1), (size_t)info.n_vocab * sizeof *p);
        scalar->softmax(p, info.n_vocab, 1, 0);
        sum += log_of(p[tokens[i + 1]]);
    }
    free(p);
    bitnet_ctx_free(ctx);
    return n_tokens > 1 ? sum / (n_tokens - 1) : 0;
}

static void compare_layouts(void) {
    static const char text[] =
        "Once upon a time there was a little girl named Lily. She lived in a small house near the "
        "forest. One day she found a dog in the garden. The dog was hungry, so she gave it some "
        "bread. Her mother said that it could stay, and they were happy. The capital of France is "
        "Paris. It is a big city on a river, and many people live there.";
    double nats[3] = {0, 0, 0}, best = -1e9, second = -1e9;
    int i, first = 0;
    bitnet_error err;
    for (i = 0; i < 3; i++) {
        mp.i2s_layout = (bitnet_i2s_layout)i;
        if (bitnet_model_load_file(model_path, &mp, &model, &err)) {
            printf("%-5s %s\n", layouts[i], err.text);
            continue;
        }
        bitnet_model_get_info(model, &info);
        nats[i] = likelihood(text);
        printf("%-5s %.3f nats per token\n", layouts[i], nats[i]);
        if (nats[i] > best) second = best, best = nats[i], first = i;
        else if (nats[i] > second) second = nats[i];
        bitnet_model_free(model);
    }
    if (best < -1e8) fail(1, "%s: cannot be loaded in any layout", model_path);
    if (best - second >= 0.5 && best > log_of(1.0 / info.n_vocab))     /* better than guessing */
        printf("English is likeliest, by %.1f nats, if the weights are packed by %s.\n",
               best - second, layouts[first]);
    else puts("No layout is clearly better: this tells nothing.");
    puts("Nothing in the file proves its packing: codes, size and type number are the same in all\n"
         "three. A model trained on English is clearly better in one; random weights are not.");
}
