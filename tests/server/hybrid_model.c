/* hybrid_model.c - a small model with random weights and recurrent layers (qwen35)

       hybrid_model OUT.gguf */
#include "../unit/hybrid_builder.h"

int main(int argc, char **argv) {
    static hybrid h;
    FILE *out;
    int bad;
    if (argc != 2) return 2;
    h = small_hybrid();
    make_hybrid(&h);
    out = fopen(argv[1], "wb");
    bad = !out || fwrite(h.data, 1, h.size, out) != h.size;
    if (out) bad |= fclose(out) != 0;
    free_hybrid(&h);
    return bad;
}
