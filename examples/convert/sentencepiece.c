#include "sentencepiece.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

void spm_free(spm_model *m) {
    free(m->bytes);
    free(m->pieces);
    memset(m, 0, sizeof *m);
}

/* ---- protocol buffers ---- */

enum { PB_VARINT = 0, PB_EIGHT = 1, PB_BYTES = 2, PB_FOUR = 5 };

typedef struct pb_reader {
    const char *name;                  /* the file's */
    uint8_t *start, *p, *end;          /* of the file; what is left of the message: p to end */
} pb_reader;

typedef struct pb_field {
    uint64_t number, v;                /* v: of a varint, or of 4 or 8 bytes */
    int wire;
    uint8_t *bytes;                    /* [n] of a string or message, behind its length */
    size_t n;
} pb_field;

static bitnet_result pb_fail(const pb_reader *in, const uint8_t *at, const char *what,
                             bitnet_error *err) {
    return set_error(err, BITNET_ERR_FORMAT, "%s: offset %llu: %s", in->name,
                     (unsigned long long)(at - in->start), what);
}

static int pb_varint(pb_reader *in, uint64_t *out) {
    int shift;
    *out = 0;
    for (shift = 0; shift < 64 && in->p < in->end; shift += 7) {
        const uint8_t b = *in->p++;
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) return 1;
    }
    return 0;
}

/* The next field of the message. *f is unchanged at its end. */
static bitnet_result pb_next(pb_reader *in, pb_field *f, bitnet_error *err) {
    const uint8_t *at = in->p;
    uint64_t key, n = 0;
    int i;
    if (!pb_varint(in, &key)) return pb_fail(in, at, "the key of a field has no end", err);
    f->number = key >> 3;
    f->wire = (int)(key & 7);
    f->bytes = 0;
    f->n = 0;
    f->v = 0;
    if (f->wire == PB_VARINT) {
        if (pb_varint(in, &f->v)) return BITNET_OK;
        return pb_fail(in, at, "the number in a field has no end", err);
    }
    if (f->wire == PB_BYTES) {
        if (!pb_varint(in, &n)) return pb_fail(in, at, "the length of a field has no end", err);
    } else if (f->wire == PB_EIGHT || f->wire == PB_FOUR) n = f->wire == PB_EIGHT ? 8 : 4;
    else return pb_fail(in, at, "this is not a SentencePiece model", err);
    if (n > (uint64_t)(in->end - in->p))
        return pb_fail(in, at, "a field is longer than what it is in", err);
    f->bytes = in->p;
    f->n = (size_t)n;
    in->p += n;
    for (i = (int)f->n; f->wire != PB_BYTES && i-- > 0;) f->v = f->v << 8 | f->bytes[i];
    return BITNET_OK;
}

/* A message within a message. */
static pb_reader pb_inside(const pb_reader *in, const pb_field *f) {
    pb_reader inside = *in;
    inside.p = f->bytes;
    inside.end = f->bytes + f->n;
    return inside;
}

/* ---- pieces ---- */

static int spm_is_text(const uint8_t *p, size_t n) {
    size_t size;
    for (; n > 0 && *p; p += size, n -= size)
        if (!(size = bitnet_utf8_decode((const char *)p, n, 0))) return 0;
    return n == 0;
}

/* Moves the text over its length, which has been read, to make room for a NUL. */
static const char *spm_terminate(pb_field *f) {
    memmove(f->bytes - 1, f->bytes, f->n);
    f->bytes[f->n - 1] = 0;
    return (const char *)f->bytes - 1;
}

static bitnet_result spm_read_piece(const pb_reader *model, const pb_field *message, spm_piece *out,
                                    bitnet_error *err) {
    pb_reader in = pb_inside(model, message);
    pb_field f, text = {0, 0, 0, 0, 0};
    uint32_t bits = 0;
    uint64_t type = 1;
    bitnet_result r;
    while (in.p < in.end) {
        if ((r = pb_next(&in, &f, err))) return r;
        if (f.number == 1 && f.wire == PB_BYTES) text = f;
        if (f.number == 2 && f.wire == PB_FOUR) bits = (uint32_t)f.v;
        if (f.number == 3 && f.wire == PB_VARINT) type = f.v;
    }
    memcpy(&out->score, &bits, sizeof bits);
    out->type = (int32_t)(type & 7);
    if (!text.n || !spm_is_text(text.bytes, text.n))
        return pb_fail(&in, message->bytes, "the text of a piece is missing or not UTF-8", err);
    if (!(out->score - out->score == 0))
        return pb_fail(&in, message->bytes, "the score of a piece is not a finite number", err);
    if (type < 1 || type > 6)
        return pb_fail(&in, message->bytes, "the type of a piece is not in 1 .. 6", err);
    out->text = spm_terminate(&text);
    return BITNET_OK;
}

/* ---- how the model is used ---- */

typedef struct spm_setting {
    uint64_t number;                   /* of the field */
    int64_t value;                     /* the default, and what the file says */
} spm_setting;

/* Reads numbers, and of a string its length. */
static bitnet_result spm_read_settings(const pb_reader *model, const pb_field *message,
                                       spm_setting *settings, int n, bitnet_error *err) {
    pb_reader in = pb_inside(model, message);
    pb_field f;
    bitnet_result r;
    int i;
    while (in.p < in.end) {
        if ((r = pb_next(&in, &f, err))) return r;
        for (i = 0; i < n; i++)
            if (settings[i].number == f.number)
                settings[i].value = f.wire == PB_BYTES ? (int64_t)f.n : (int32_t)(uint32_t)f.v;
    }
    return BITNET_OK;
}

static bitnet_result spm_unsupported(const char *name, const char *what, bitnet_error *err) {
    return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: %s is not supported", name, what);
}

enum { SPM_KIND, SPM_SUFFIX, SPM_UNK, SPM_BOS, SPM_EOS, SPM_PAD, SPM_TRAINER };
enum { SPM_CHARSMAP, SPM_PREFIX, SPM_STRIPS, SPM_ESCAPES, SPM_NORMALIZER };

static bitnet_result spm_use(spm_model *m, const char *name, const spm_setting *trainer,
                             const spm_setting *normalizer, bitnet_error *err) {
    int64_t *const ids[] = {&m->unk, &m->bos, &m->eos, &m->pad};
    int i;
    if (trainer[SPM_KIND].value != 2)
        return spm_unsupported(name, "a model other than BPE (model_type)", err);
    if (trainer[SPM_SUFFIX].value)
        return spm_unsupported(name, "white space behind words (treat_whitespace_as_suffix)", err);
    if (normalizer[SPM_CHARSMAP].value)
        return spm_unsupported(name, "normalization of characters (precompiled_charsmap)", err);
    if (normalizer[SPM_STRIPS].value)
        return spm_unsupported(name, "removing white space (remove_extra_whitespaces)", err);
    if (!normalizer[SPM_ESCAPES].value)
        return spm_unsupported(name, "white space that is not U+2581 (escape_whitespaces)", err);
    m->space_prefix = normalizer[SPM_PREFIX].value != 0;
    for (i = 0; i < 4; i++) {
        const int64_t id = trainer[SPM_UNK + i].value;
        *ids[i] = id < 0 || id >= (int64_t)m->n_pieces ? -1 : id;
    }
    return BITNET_OK;
}

/* Counts the pieces, and finds that all fields are within the file. */
static bitnet_result spm_count(const pb_reader *model, uint32_t *out, bitnet_error *err) {
    pb_reader in = *model;
    pb_field f;
    bitnet_result r;
    *out = 0;
    while (in.p < in.end) {
        if ((r = pb_next(&in, &f, err))) return r;
        *out += f.number == 1 && f.wire == PB_BYTES;
    }
    return *out ? BITNET_OK : pb_fail(model, model->start, "there are no pieces", err);
}

bitnet_result spm_parse(spm_model *m, const char *name, char *bytes, size_t n, bitnet_error *err) {
    spm_setting trainer[SPM_TRAINER] = {{3, 1}, {24, 0}, {40, 0}, {41, 1}, {42, 2}, {43, -1}};
    spm_setting normalizer[SPM_NORMALIZER] = {{2, 0}, {3, 1}, {4, 1}, {5, 1}};
    pb_reader in;
    pb_field f;
    bitnet_result r;
    memset(m, 0, sizeof *m);
    m->bytes = bytes;
    in.name = name;
    in.start = in.p = (uint8_t *)bytes;
    in.end = in.start + n;
    if ((r = spm_count(&in, &m->n_pieces, err))) return r;
    if (!(m->pieces = (spm_piece *)calloc(m->n_pieces, sizeof *m->pieces)))
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for its pieces", name);
    m->n_pieces = 0;
    while (in.p < in.end) {
        if ((r = pb_next(&in, &f, err))) return r;
        if (f.wire != PB_BYTES) continue;
        if (f.number == 1) r = spm_read_piece(&in, &f, &m->pieces[m->n_pieces++], err);
        if (f.number == 2) r = spm_read_settings(&in, &f, trainer, SPM_TRAINER, err);
        if (f.number == 3) r = spm_read_settings(&in, &f, normalizer, SPM_NORMALIZER, err);
        if (r) return r;
    }
    return spm_use(m, name, trainer, normalizer, err);
}
