/* What memory.h of the server finds, for test_memory.sh.

       memory ROOT             prints "LEFT LIMIT GROUP" of the /proc and /sys below ROOT
       memory ROOT MODEL [-1]  also the tokens that fit beside the model with 4 slots of 512 tokens,
                               or with one slot */
#include "../../examples/server/memory.h"
#include <stdio.h>
#include <string.h>

static int print_tokens(const memory *m, const char *path, int n_slots) {
    bitnet_model *model;
    bitnet_error err;
    engine_params p;
    memory_need need;
    char text[MEMORY_TEXT];
    if (bitnet_model_load_file(path, 0, &model, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    memset(&p, 0, sizeof p);
    p.n_slots = n_slots;
    p.n_ctx = 512;
    p.n_threads = 1;
    need = memory_needed(model, &p);
    printf("%lld %d\n%s\n", (long long)memory_tokens(m, &need), memory_can_do(&need, m->left),
           memory_describe(m, &need, text));
    bitnet_model_free(model);
    return 0;
}

int main(int argc, char **argv) {
    memory m;
    if (argc < 2) return 2;
    m = memory_look(argv[1]);
    printf("%lld %lld %d\n", (long long)m.left, (long long)m.limit, m.is_group);
    return argc < 3 ? 0 : print_tokens(&m, argv[2], argc > 3 ? 1 : 4);
}
