/* What convert.c reads of a Hugging Face folder. The input is the folder: a byte that says which
   file, its bytes, FF FE, the next one. In tokenizer.model each FF FB stands for 256 pieces, the
   bytes. To keep inputs small, FF FC in a JSON file stands for the
   256 tokens that each vocabulary needs, "x": 0, ...; and the header of a safetensors file ends
   with FF FD: its length is put in front, and the two bytes that follow are how many bytes of data
   are made from the rest. Without it the bytes are the file as it is. */
#include "fuzz.h"
#include "../../examples/convert/hf.h"
#include "../unit/json_sound.h"

static const char *const folder_files[] = {
    "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja", "model.safetensors.index.json", "a.safetensors", "tokenizer.model",
    "added_tokens.json"
};
enum { FOLDER_FILES = sizeof folder_files / sizeof folder_files[0] };

static void folder_json(const uint8_t *p, size_t n) {
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    uint64_t v;
    json j;
    memset(&j, 0, sizeof j);
    snprintf(j.name, sizeof j.name, "x");
    j.size = n;
    j.text = (char *)gb_malloc(n + 1);
    if (n) memcpy(j.text, p, n);
    j.text[n] = 0;
    r = json_parse(&j, &err);
    fuzz_check_error(r, &err);
    if (r == BITNET_OK) {
        FUZZ_CHECK(json_is_sound(&j));
        json_get(&j, JSON_ROOT, "a");
        json_uint(&j, JSON_ROOT, &v);
    }
    json_free(&j);
}

/* Where the pair FF, second is in p[n), or n. */
static size_t folder_find(const uint8_t *p, size_t n, int second) {
    size_t i;
    for (i = 0; i + 1 < n; i++)
        if (p[i] == 0xFF && p[i + 1] == second) return i;
    return n;
}

static void folder_put_tokens(gb_buf *b) {
    char text[32];
    int i;
    for (i = 0; i < 256; i++) {
        const uint32_t cp = gb_spell_byte(i);
        char c[3] = {(char)cp, 0, 0};
        if (cp >= 128) json_put_utf8(c, cp);
        snprintf(text, sizeof text, "%s\"%s%s\":%d", i ? "," : "",
                 cp == '"' || cp == '\\' ? "\\" : "", c, i);
        gb_put(b, text, strlen(text));
    }
}

/* The field of a piece: its length, then its text and type. */
static void folder_put_pieces(gb_buf *b) {
    char text[16];
    int i;
    for (i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "\n\012\n\006<0x%02X>\030\006", (unsigned)i);
        gb_put(b, text, 12);
    }
}

static void folder_put_model(const uint8_t *p, size_t n) {
    gb_buf b = {0, 0, 0};
    while (n > 0) {
        const size_t at = folder_find(p, n, 0xFB);
        gb_put(&b, p, at);
        if (at == n) break;
        folder_put_pieces(&b);
        p += at + 2;
        n -= at + 2;
    }
    fuzz_put_file("tokenizer.model", b.p ? b.p : (const uint8_t *)"", b.n);
    free(b.p);
}

static void folder_put(const char *name, const uint8_t *p, size_t n) {
    const int tensors = strstr(name, "safetensors") && !strstr(name, "json");
    const size_t at = folder_find(p, n, tensors ? 0xFD : 0xFC);
    gb_buf b = {0, 0, 0};
    if (!strcmp(name, "tokenizer.model")) {
        folder_put_model(p, n);
        return;
    }
    if (at < n && tensors) {
        fuzz_input rest = {p + at + 2, n - at - 2};
        const size_t size = fuzz_uint(&rest, 2);
        uint8_t *filled = (uint8_t *)gb_malloc(size);
        fuzz_fill(&rest, filled, size);
        gb_uint(&b, at, 8);
        gb_put(&b, p, at);
        gb_put(&b, filled, size);
        free(filled);
    } else {
        gb_put(&b, p, at);
        if (at < n) {
            folder_put_tokens(&b);
            gb_put(&b, p + at + 2, n - at - 2);
        }
    }
    fuzz_put_file(name, b.p ? b.p : (const uint8_t *)"", b.n);
    free(b.p);
}

static int folder_write(void *ud, const void *p, size_t n) {
    (void)ud; (void)p; (void)n;
    return 0;
}

static void folder_open(int head, int group) {
    static const uint32_t heads[] = {BITNET_TENSOR_F16,  BITNET_TENSOR_F32,  BITNET_TENSOR_BF16,
                                     BITNET_TENSOR_Q8_0, BITNET_TENSOR_Q6_K, BITNET_TENSOR_Q5_K,
                                     BITNET_TENSOR_Q4_K, BITNET_TENSOR_Q5_0};
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    gguf_writer w;
    hf_options o;
    hf_model h;
    char dir[256];
    snprintf(dir, sizeof dir, "%s", fuzz_path(folder_files[0]));
    *strrchr(dir, '/') = 0;
    memset(&o, 0, sizeof o);
    o.head_type = heads[head % 8];
    o.pre = head & 8 ? "falcon3" : 0;
    if (group) o.group_type = head & 16 ? BITNET_TENSOR_Q1_0 : BITNET_TENSOR_Q2_0;
    o.group_number = o.group_type;
    r = hf_open(&h, dir, &o, &err);
    fuzz_check_error(r, &err);
    if (r == BITNET_OK) {
        memset(&w, 0, sizeof w);
        w.write_fn = folder_write;
        r = hf_write(&h, &w, &err);
        fuzz_check_error(r, &err);
        gguf_writer_free(&w);
    }
    hf_close(&h);
}

/* The tensors alone, and the tokenizer alone: of a folder that lacks the rest. */
static void folder_parts(void) {
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    uint8_t bytes[64];
    st_model m;
    json config;
    char dir[256];
    tok t;
    uint32_t i;
    snprintf(dir, sizeof dir, "%s", fuzz_path(folder_files[0]));
    *strrchr(dir, '/') = 0;
    r = st_open(&m, dir, &err);
    fuzz_check_error(r, &err);
    for (i = 0; i < m.n_tensors && r == BITNET_OK; i++) {
        const st_tensor *s = &m.tensors[i];
        const size_t n = s->size < sizeof bytes ? (size_t)s->size : sizeof bytes;
        FUZZ_CHECK(s->n * s->item == s->size && s->offset <= m.files[s->file].size);
        FUZZ_CHECK(!st_read(&m, s, s->size - n, bytes, n, &err));
        FUZZ_CHECK(st_find(&m, s->name, s->name_len) == s);
    }
    st_close(&m);
    memset(&config, 0, sizeof config);
    snprintf(config.name, sizeof config.name, "config.json");
    fuzz_check_error(tok_open(&t, dir, &config, 300, 0, &err), &err);
    tok_free(&t);
}

FUZZ_TARGET(safetensors) {
    int present[FOLDER_FILES] = {0}, i, head = 0;
    while (size > 0) {
        const size_t n = folder_find(data + 1, size - 1, 0xFE);
        i = data[0] % 16;
        if (!present[0] && !present[1]) head = data[0] >> 4;
        if (i == 15) folder_json(data + 1, n);
        else if (!present[i % FOLDER_FILES]) {
            present[i % FOLDER_FILES] = 1;
            folder_put(folder_files[i % FOLDER_FILES], data + 1, n);
        }
        if (n == size - 1) break;
        size -= n + 3;
        data += n + 3;
    }
    for (i = 0; i < FOLDER_FILES; i++)
        if (!present[i]) fuzz_put_file(folder_files[i], 0, 0);
    if (present[1] || present[2] || present[5] || present[7]) folder_parts();
    if (present[0]) {
        folder_open(head, 0);
        folder_open(head, 1);
    }
}
