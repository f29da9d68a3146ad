#include "ask.h"
#include "embeddings.h"
#include "limits.h"
#include "model.h"
#include "report.h"

enum { MAX_ASKED = 64 };

/* The context for these; opened the first time. */
static bitnet_ctx *find_ctx(const bitnet_kernels *k, int n_threads) {
    static struct { const bitnet_kernels *k; int n_threads; bitnet_ctx *c; } held[MAX_ASKED];
    static int n;
    const bitnet_model *m;
    int i;
    for (i = 0; i < n; i++)
        if (held[i].k == k && held[i].n_threads == n_threads) return held[i].c;
    if (n == MAX_ASKED) fail(1, "too many kernels are asked for");
    held[n].k = k;
    held[n].n_threads = n_threads;
    m = load_model(k);
    held[n].c = info.has_head ? open_ctx(m, 2048, n_threads, 0, 0, 0, 0)
                              : open_embedder(m, n_threads);
    return held[n++].c;
}

static void answer(bitnet_ctx *c) {
    double first, second, start;
    int i;
    if (info.has_head) {
        first = prefill_speed(c, 128);
        start = seconds();
        for (i = 0; i < 2; i++) decode(c, N_DECODE, 0, 0);
        second = 2 * N_DECODE / (seconds() - start);
    } else {
        first = embed_speed(c, 128);
        second = embed_speed(c, 512);
    }
    printf("%.2f %.2f\n", first, second);
}

void answer_questions(void) {
    char line[128], name[64];
    int i, n_threads;
    bitnet_model_free(load_model(0));  /* fails here if the model is bad */
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        if (bitnet_kernels_usable(k)) printf("%s ", bitnet_kernels_name(k));
    }
    puts("");
    while (!fflush(stdout) && fgets(line, sizeof line, stdin)) {
        const bitnet_kernels *k = 0;
        if (sscanf(line, "%63s %d", name, &n_threads) == 2) k = bitnet_kernels_find(name);
        if (!k || !bitnet_kernels_usable(k)) fail(2, "no kernels for %s", line);
        answer(find_ctx(k, n_threads));
    }
}
