/* Bad models in good GGUF: numbers, tensors, tokens and weights that no network can have, each
   refused by its name and place, and files that change while they are read. What test_gguf.c,
   test_tokenizer.c, test_spm.c and test_import.c have is not here again. Uses the helpers of
   test_gguf.c and test_model.c. */

/* Loads in both ways, with the promises of try_load, and within a second; the result must be code,
   the text must hold the two words. Takes the model over. */
static void hm_expect(gb_model *m, bitnet_result code, const char *word, const char *word2) {
    const clock_t start = clock();
    int way;
    if (!m->data) gb_make_model(m);
    for (way = 0; way < 2; way++) {
        const int got = try_load(m->data, m->size, way, 0, word ? word : "loads", 0);
        if (got && got != (code == BITNET_OK ? 2 : 1))
            test_fail(__FILE__, __LINE__, "%s %s, way %d: it %s", word ? word : "",
                      word2 ? word2 : "", way, got == 2 ? "loads" : "is refused");
    }
    if ((double)(clock() - start) / CLOCKS_PER_SEC > (test_quick() ? 20 : 2))
        test_fail(__FILE__, __LINE__, "%s takes long", word ? word : "it");
    expect(m, code, word, word2);
}

/* ---- weights: code 3 ---- */

static void hm_set_code(uint8_t *w, bitnet_i2s_layout layout, size_t n, size_t i, int code) {
    int shift;
    const size_t at = gb_code_at(layout, n, i, &shift);
    w[at] = (uint8_t)((w[at] & ~(3 << shift)) | code << shift);
}

/* The first of some codes 3 is found, in the order of rows and columns, however many threads there
   are; and none where there is none. */
static void test_code_3_places(void) {
    static const int shapes[][2] = {{128, 4}, {384, 8}, {192, 8}, {96, 8}, {66, 64}, {2304, 36}};
    uint64_t seed = 17;
    size_t s;
    int layout, round, rounds = test_quick() ? 6 : 40;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (layout = 0; layout < 3; layout++)
            for (round = 0; round < rounds; round++) {
                const size_t n = (size_t)shapes[s][0], total = n * (size_t)shapes[s][1];
                uint8_t *w = (uint8_t *)gb_malloc(total / 4);  /* exact: ASan sees one byte more */
                bitnet_model m;
                bitnet__packing p;
                bitnet__linear l;
                size_t i, first = total;
                int k, bad = 0;
                memset(&m, 0, sizeof m);
                memset(&p, 0, sizeof p);
                memset(&l, 0, sizeof l);
                for (i = 0; i < total; i++)
                    hm_set_code(w, (bitnet_i2s_layout)layout, n, i, (int)(gb_random(&seed) % 3));
                for (k = 0; k < round % 4; k++) {
                    i = gb_random(&seed) % total;
                    if (k == 2) i = total - 1;
                    if (i < first) first = i;
                    hm_set_code(w, (bitnet_i2s_layout)layout, n, i, 3);
                }
                m.params.i2s_layout = (bitnet_i2s_layout)layout;
                l.w = w;
                l.n_file = shapes[s][0];
                l.n_out = shapes[s][1];
                p.m = &m;
                p.linear = &l;
                for (p.jobs = 1; p.jobs <= 16; p.jobs += 1 + p.jobs / 4) {
                    const bitnet__findings *f = 0;
                    for (k = p.jobs - 1; k >= 0; k--) {
                        bitnet__check_job(&p, k);
                        if (p.found[k].flaw) f = &p.found[k];
                    }
                    if (!f) bad += first < total;
                    else bad += (size_t)f->row != first / n || (size_t)f->column != first % n ||
                                f->value != 3;
                }
                free(w);
                CHECK_MSG(bad == 0, "shape %d, packing %d, round %d", (int)s, layout, round);
            }
}

/* In a file: every table that can run, every packing, and rows that are filled up; what lies behind
   the codes is no weight. */
static void hm_code_3(int dim, int packing, const bitnet_kernels *k) {
    gb_model g = {.ffn = 192, .layers = 2, .heads = 2, .kv_heads = 1, .seed = 6};
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, ""};
    uint64_t seed = (uint64_t)(dim + packing);
    uint8_t *w;
    bitnet_result r;
    char where[64];
    size_t i, n;
    g.dim = dim;
    g.packing = (bitnet_i2s_layout)packing;
    gb_make_model(&g);
    memset(&p, 0, sizeof p);
    p.kernels = k;
    p.i2s_layout = g.packing;
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    w = g.data + bitnet__find_tensor(&m->gguf, "blk.1.ffn_gate.weight")->offset;
    bitnet_model_free(m);
    n = (size_t)dim * 192;
    i = gb_random(&seed) % n;
    memset(w + n / 4 + 4, 0xff, 28);
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    CHECK_MSG(r == BITNET_OK, "3 behind the scale: %s", err.text);
    bitnet_model_free(m);
    hm_set_code(w, g.packing, (size_t)dim, i, 3);
    snprintf(where, sizeof where, "I2_S, has no weight, 3, at row %d, column %d",
             (int)(i / (size_t)dim), (int)(i % (size_t)dim));
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    gb_free_model(&g);
    CHECK_MSG(r == BITNET_ERR_FORMAT && !m && strstr(err.text, "'blk.1.ffn_gate.weight'") &&
              strstr(err.text, where), "%s, packing %d, %d wide: %s", k->name, packing, dim,
              err.text);
}

static void test_code_3_files(void) {
    int i, packing;
    for (i = 0; i < bitnet_kernels_count(); i++)
        for (packing = 0; packing < 3 && bitnet_kernels_usable(bitnet_kernels_get(i)); packing++) {
            hm_code_3(128, packing, bitnet_kernels_get(i));
            hm_code_3(192, packing, bitnet_kernels_get(i));
        }
}

extern const test_case hostile_model_tests[];
const test_case hostile_model_tests[] = {
    {"hostile_model/code_3_places", test_code_3_places},
    {"hostile_model/code_3_files", test_code_3_files},
    {0, 0}
};
