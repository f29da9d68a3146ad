/* convert_hf_weights.h - a part of convert.c: what convert_hf.h has opened, written as GGUF, in
   slices. */

/* n elements of a tensor of floats, from element at on, exactly. */
static bitnet_result hf_floats(hf_model *h, const st_tensor *t, uint64_t at, size_t n, float *out,
                               bitnet_error *err) {
    const uint8_t *p = h->bytes;
    bitnet_result r = st_read(&h->tensors, t, at * t->item, h->bytes, n * t->item, err);
    size_t i;
    if (r) return r;
    switch (t->dtype[0] == 'B' ? 'B' : t->dtype[1]) {
        case 'B': for (i = 0; i < n; i++) out[i] = bitnet__load_bf16(p + 2 * i); break;
        case '1': for (i = 0; i < n; i++) out[i] = bitnet__load_f16(p + 2 * i); break;
        default: for (i = 0; i < n; i++) out[i] = bitnet__load_f32(p + 4 * i); break;
    }
    return BITNET_OK;
}

/* n bytes of the file that is written. */
static bitnet_result hf_put(bitnet_gguf_writer *w, const void *p, size_t n, bitnet_error *err) {
    const bitnet_result r = bitnet_gguf_write_data(w, p, n);
    if (r && err) *err = w->err;
    return r;
}

static size_t hf_slice(uint64_t left, uint64_t most) {
    return (size_t)(left < most ? left : most);
}

/* ---- linear layers ---- */

/* n codes, whole blocks of 128, as I2_S: see PACKINGS in bitnet.h. */
static bitnet_result hf_put_codes(const hf_model *h, bitnet_gguf_writer *w, const uint8_t *codes,
                                  size_t n, bitnet_error *err) {
    size_t i, j;
    for (i = 0; i < n; i += 128, codes += 128)
        for (j = 0; j < 32; j++)
            h->out[i / 4 + j] = (uint8_t)(codes[j] << 6 | codes[32 + j] << 4 | codes[64 + j] << 2 |
                                          codes[96 + j]);
    return hf_put(w, h->out, n / 4, err);
}

static bitnet_result hf_put_scale(bitnet_gguf_writer *w, float scale, bitnet_error *err) {
    uint8_t tail[32] = {0};
    const uint32_t bits = bitnet__float_bits(scale);
    int i;
    for (i = 0; i < 4; i++) tail[i] = (uint8_t)(bits >> 8 * i);
    return hf_put(w, tail, sizeof tail, err);
}

/* Weight e of the output is in byte e % (n / 4) of the input, so each is read four times. */
static bitnet_result hf_write_packed(hf_model *h, const hf_part *p, bitnet_gguf_writer *w,
                                     bitnet_error *err) {
    const uint64_t n = p->rows * p->cols, block = n / 4;
    uint64_t at = 0;
    float scale = 0;
    bitnet_result r = hf_floats(h, p->scale, 0, 1, &scale, err);
    if (r) return r;
    if (h->divides) scale = 1 / scale;
    if (!(scale >= 1e-30f && scale <= 1e30f))
        return st_fail(&h->tensors, p->scale, "not usable as a scale", err);
    while (at < n) {
        const size_t len = hf_slice(n - at, HF_SLICE);
        size_t k, part, i;
        for (k = 0; k < len; k += part) {
            const int shift = 2 * (int)((at + k) / block);
            const uint64_t from = (at + k) % block;
            part = hf_slice(block - from, len - k);
            if ((r = st_read(&h->tensors, p->t, from, h->bytes + k, part, err))) return r;
            for (i = k; i < k + part; i++) {
                h->bytes[i] = (uint8_t)(h->bytes[i] >> shift & 3);
                if (h->bytes[i] == 3)
                    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: tensor '%.*s' at offset %llu: "
                                        "a code 3, which is no weight",
                                        h->tensors.files[p->t->file].header.name,
                                        (int)p->t->name_len, p->t->name,
                                        (unsigned long long)(p->t->offset + from + i - k));
            }
        }
        if ((r = hf_put_codes(h, w, h->bytes, len, err))) return r;
        at += len;
    }
    return hf_put_scale(w, scale, err);
}

/* mean|w|: HF_SLICE is a multiple of 16, so that partial sums go on from slice to slice. */
static bitnet_result hf_absmean(hf_model *h, const hf_part *p, float *out, bitnet_error *err) {
    const uint64_t n = p->rows * p->cols;
    double sums[16] = {0}, sum = 0;
    uint64_t at;
    size_t len, i, j;
    for (at = 0; at < n; at += len) {
        bitnet_result r;
        len = hf_slice(n - at, HF_SLICE);
        if ((r = hf_floats(h, p->t, at, len, h->floats, err))) return r;
        for (i = 0; i < len; i += 16)                            /* n is a multiple of 128 */
            for (j = 0; j < 16; j++) {
                const double x = (double)h->floats[i + j];
                sums[j] += x < 0 ? -x : x;
            }
    }
    for (j = 0; j < 16; j++) sum += sums[j];
    sum /= (double)n;
    if (!(sum <= 1e30)) return st_fail(&h->tensors, p->t, "a weight is not a usable number", err);
    *out = (float)(sum < 1e-5 ? 1e-5 : sum);
    return BITNET_OK;
}

/* round(w / scale), limited to -1 .. 1, is 1 exactly if w > scale / 2, since a tie goes to 0;
   halving a scale of at least 1e-5 is exact. */
static bitnet_result hf_write_absmean(hf_model *h, const hf_part *p, bitnet_gguf_writer *w,
                                      bitnet_error *err) {
    const uint64_t n = p->rows * p->cols;
    float scale = 0, half;
    uint64_t at;
    size_t len, i;
    bitnet_result r = hf_absmean(h, p, &scale, err);
    half = r ? 0 : scale / 2;
    for (at = 0; at < n && !r; at += len) {
        len = hf_slice(n - at, HF_SLICE);
        if ((r = hf_floats(h, p->t, at, len, h->floats, err))) return r;
        for (i = 0; i < len; i++)
            h->bytes[i] = (uint8_t)(1 + (h->floats[i] > half) - (h->floats[i] < -half));
        r = hf_put_codes(h, w, h->bytes, len, err);
    }
    return r ? r : hf_put_scale(w, scale, err);
}

/* ---- embedding, head and norms ---- */

/* A little-endian number of n bytes. */
static void hf_store(uint8_t *out, uint32_t bits, int n) {
    for (; n > 0; n--, bits >>= 8) *out++ = (uint8_t)bits;
}

/* One float as F32, F16 or BF16, nearest, ties to even; what comes back is what that stands for. */
static float hf_store_float(uint32_t type, float x, uint8_t *out) {
    uint32_t bits = bitnet__float_bits(x);
    if (type == BITNET_TENSOR_F32) hf_store(out, bits, 4);
    if (type == BITNET_TENSOR_F16) {
        hf_store(out, bitnet__f32_to_f16(x), 2);
        return bitnet__load_f16(out);
    }
    if (type == BITNET_TENSOR_BF16) {
        bits += 0x7fff + (bits >> 16 & 1);
        hf_store(out, bits >> 16, 2);
        return bitnet__load_bf16(out);
    }
    return x;
}

static bitnet_result hf_write_floats(hf_model *h, const hf_part *p, bitnet_gguf_writer *w,
                                     bitnet_error *err) {
    const uint64_t cols = p->cols, per_slice = HF_SLICE / cols, row_dims[1] = {cols};
    const size_t row = (size_t)bitnet_tensor_size(p->type, 1, row_dims);
    const int plain = p->type == BITNET_TENSOR_F32 || p->type == BITNET_TENSOR_F16 ||
                      p->type == BITNET_TENSOR_BF16;
    uint64_t at, inexact = 0;
    size_t rows, n, i;
    bitnet_result r = BITNET_OK;
    for (at = 0; at < p->rows && !r; at += rows) {
        rows = hf_slice(p->rows - at, per_slice);
        n = rows * (size_t)cols;
        if ((r = hf_floats(h, p->t, at * cols, n, h->floats, err))) return r;
        for (i = 0; i < n; i++) {
            const float x = h->floats[i];
            float y = x;
            if (plain) y = hf_store_float(p->type, x, h->out + i * (row / (size_t)cols));
            inexact += x != y;
            if (!(x - x == 0 && y - y == 0))                     /* NaN or infinite */
                return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: tensor '%.*s' at offset %llu: %g "
                                    "is %s", h->tensors.files[p->t->file].header.name,
                                    (int)p->t->name_len, p->t->name,
                                    (unsigned long long)(p->t->offset + (at * cols + i) *
                                                         p->t->item), (double)x,
                                    x - x == 0 ? "too large for F16; BF16 could hold it"
                                               : "no weight");
        }
        for (i = 0; i < rows && !plain; i++)
            h->options.quantize_fn(p->type, h->floats + i * (size_t)cols, cols, h->out + i * row);
        r = hf_put(w, h->out, rows * row, err);
    }
    if (!r && inexact && h->options.log_fn) {
        char text[160];
        snprintf(text, sizeof text, "%s: %llu of %llu numbers are rounded", p->name,
                 (unsigned long long)inexact, (unsigned long long)(p->rows * cols));
        h->options.log_fn(h->options.ud, text);
    }
    return r;
}

/* ---- the file ---- */

static void hf_add_key(bitnet_gguf_writer *w, const char *arch, const char *key, uint64_t v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    bitnet_gguf_add_u32(w, name, (uint32_t)v);
}

static void hf_add_float_key(bitnet_gguf_writer *w, const char *arch, const char *key, float v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    bitnet_gguf_add_f32(w, name, v);
}

static bitnet_result hf_add_tokenizer(const tok *t, bitnet_gguf_writer *w, bitnet_error *err) {
    float *scores = (float *)calloc(t->n_tokens, sizeof *scores);
    if (!scores)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the scores of %u tokens",
                            (unsigned)t->n_tokens);
    bitnet_gguf_add_string(w, "tokenizer.ggml.model", "gpt2");
    bitnet_gguf_add_string(w, "tokenizer.ggml.pre", t->pre);
    bitnet_gguf_add_strings(w, "tokenizer.ggml.tokens", t->tokens, 0, t->n_tokens);
    bitnet_gguf_add_f32s(w, "tokenizer.ggml.scores", scores, t->n_tokens);
    bitnet_gguf_add_i32s(w, "tokenizer.ggml.token_type", t->types, t->n_tokens);
    bitnet_gguf_add_strings(w, "tokenizer.ggml.merges", t->merges, 0, t->n_merges);
    if (t->bos >= 0) bitnet_gguf_add_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)t->bos);
    if (t->eos >= 0) bitnet_gguf_add_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)t->eos);
    if (t->pad >= 0) bitnet_gguf_add_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)t->pad);
    bitnet_gguf_add_bool(w, "tokenizer.ggml.add_bos_token", t->add_bos);
    if (t->template_text) bitnet_gguf_add_string(w, "tokenizer.chat_template", t->template_text);
    free(scores);
    return BITNET_OK;
}

/* All of the file, to a writer of which only write_fn and ud are set. */
static bitnet_result hf_write(hf_model *h, bitnet_gguf_writer *w, bitnet_error *err) {
    const char *arch = h->arch;
    bitnet_result r;
    uint32_t i;
    bitnet_gguf_add_string(w, "general.architecture", arch);
    bitnet_gguf_add_string(w, "general.name", h->options.name ? h->options.name : "bitnet");
    hf_add_key(w, arch, "vocab_size", h->vocab);
    hf_add_key(w, arch, "context_length", h->context);
    hf_add_key(w, arch, "embedding_length", h->dim);
    hf_add_key(w, arch, "block_count", h->n_layers);
    hf_add_key(w, arch, "feed_forward_length", h->ffn);
    hf_add_key(w, arch, "rope.dimension_count", h->dim / h->heads);
    hf_add_key(w, arch, "attention.head_count", h->heads);
    hf_add_key(w, arch, "attention.head_count_kv", h->kv_heads);
    hf_add_float_key(w, arch, "attention.layer_norm_rms_epsilon", h->eps);
    hf_add_float_key(w, arch, "rope.freq_base", h->theta);
    bitnet_gguf_add_u32(w, "general.file_type", 40);
    bitnet_gguf_add_u32(w, "general.quantization_version", 2);
    r = hf_add_tokenizer(&h->tokens, w, err);
    for (i = 0; i < h->n_parts; i++) {
        const uint64_t dims[2] = {h->parts[i].cols, h->parts[i].rows};
        bitnet_gguf_add_tensor(w, h->parts[i].name, h->parts[i].type, h->parts[i].t->n_dims == 2 ? 2
                               : 1, dims);
    }
    if (!r && (r = bitnet_gguf_write_header(w)) != BITNET_OK && err) *err = w->err;
    for (i = 0; i < h->n_parts && !r; i++) {
        const hf_part *p = &h->parts[i];
        r = p->type != BITNET_TENSOR_I2_S || p->t->n_dims == 1 ? hf_write_floats(h, p, w, err)
            : p->scale ? hf_write_packed(h, p, w, err) : hf_write_absmean(h, p, w, err);
    }
    if (!r && (r = bitnet_gguf_write_end(w)) != BITNET_OK && err) *err = w->err;
    bitnet_gguf_writer_free(w);
    return r;
}
