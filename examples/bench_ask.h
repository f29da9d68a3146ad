/* bench_ask.h - a part of bench.c: what tests/web/bench.mjs wants of it. --save writes the model to
   a file. --ask measures on demand, so that turns can be taken with others: first comes a line with
   the names of the usable kernels; then a line "KERNEL THREADS" in is answered by one with the
   tokens per second of a prompt of 128 and of the 32 tokens after it. */
enum { MAX_ASKED = 64 };

static int ask;                        /* the flags */
static const char *save;

static void save_file(const char *to) {
    FILE *f = fopen(to, "wb");
    if (!f || fwrite(file, 1, file_size, f) != file_size || fclose(f)) fail(1, "cannot write ", to);
}

static bitnet_ctx *asked_ctx(const bitnet_kernels *k, int n_threads) {   /* opened only once */
    static struct { const bitnet_kernels *k; int n_threads; bitnet_ctx *c; } held[MAX_ASKED];
    static int n;
    bitnet_model_params mp = {0};
    bitnet_model *model;
    bitnet_error err;
    int i;
    for (i = 0; i < n; i++)
        if (held[i].k == k && held[i].n_threads == n_threads) return held[i].c;
    if (n == MAX_ASKED) fail(1, "too many kernels are asked for", "");
    mp.kernels = k;
    if (bitnet_model_load_memory(file, file_size, &mp, &model, &err)) fail(1, err.text, "");
    bitnet_model_get_info(model, &info);
    held[n].k = k;
    held[n].n_threads = n_threads;
    return held[n++].c = open_ctx(model, 2048, n_threads, 0, 0, 0);
}

static void answer(void) {
    char line[128], name[64];
    bitnet_model *model;
    bitnet_error err;
    int i, n_threads;
    if (bitnet_model_load_memory(file, file_size, 0, &model, &err)) fail(1, err.text, "");
    bitnet_model_free(model);
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        if (bitnet_kernels_usable(k)) printf("%s ", k->name);
    }
    puts("");
    while (!fflush(stdout) && fgets(line, sizeof line, stdin)) {
        const bitnet_kernels *k = 0;
        double rows[N_DECODE], speed, start;
        bitnet_ctx *c;
        if (sscanf(line, "%63s %d", name, &n_threads) == 2) k = bitnet_kernels_find(name);
        if (!k || !bitnet_kernels_usable(k)) fail(2, "no kernels for ", line);
        c = asked_ctx(k, n_threads);
        speed = prefill_speed(c, 128);
        start = seconds();
        for (i = 0; i < 2; i++) decode(c, 0, rows);
        printf("%.2f %.2f\n", speed, 2 * N_DECODE / (seconds() - start));
    }
}

static int asked(void) {               /* whether that was all */
    if (save) save_file(save);
    if (ask) answer();
    return save || ask;
}
