#include "steps.h"
#include "../json/text.h"
#include <stdio.h>
#include <string.h>

/* ---- steps ---- */

/* A field and the values that it may have: words between bars, where "-" is a missing one or null,
   and nothing is an empty string; "*" is anything. {Name}text is an object with only this
   string. */
typedef struct step_field { const char *key, *values; } step_field;
typedef struct step_shape { const char *type; step_field fields[6]; } step_shape;

#define STEP_MARK "\342\226\201"       /* U+2581, for a blank */
#define STEP_SPLIT(letter, no_letter, digits) \
    {"Split", {{"pattern", "{Regex}(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letter \
                           "+|\\p{N}" digits "| ?[^\\s" no_letter "\\p{N}]+[\\r\\n]*|" \
                           "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, \
               {"behavior", "Isolated"}, {"invert", "*"}}}

static const step_shape step_nfc = {"NFC", {{0, 0}}}, step_prepend = {"Prepend", {
    {"prepend", STEP_MARK}}};
static const step_shape step_mark_blanks = {"Replace", {
    {"pattern", "{String} "}, {"content", STEP_MARK}}};

static const step_shape step_split_llama3 = STEP_SPLIT("\\p{L}", "\\p{L}", "{1,3}");
static const step_shape step_split_qwen = STEP_SPLIT("\\p{L}", "\\p{L}", "");
static const step_shape step_split_qwen35 = STEP_SPLIT("[\\p{L}\\p{M}]", "\\p{L}\\p{M}", "");
static const step_shape step_bytes = {"ByteLevel", {
    {"add_prefix_space", "false"}, {"trim_offsets", "*"}, {"use_regex", "false"}}};
static const step_shape step_punctuation = {"Punctuation", {{"behavior", "Contiguous"}}};
static const step_shape step_split_bytes = {"ByteLevel", {
    {"add_prefix_space", "false"}, {"trim_offsets", "*"}, {"use_regex", "-|true"}}};
static const step_shape step_digits = {"Digits", {{"individual_digits", "true"}}};
static const step_shape step_split_digits = {"Split", {
    {"pattern", "{Regex}[0-9]"}, {"behavior", "Isolated"}, {"invert", "*"}}};
/* It finds no blank, because the normalizer has replaced them. */
static const step_shape step_split_blanks = {"Split", {
    {"pattern", "{String} "}, {"behavior", "*"}, {"invert", "-|false"}}};
static const step_shape step_metaspace = {"Metaspace", {
    {"replacement", STEP_MARK}, {"split", "false"}, {"prepend_scheme", "first|always"},
    {"add_prefix_space", "-|true"}, {"str_rep", "*"}}};

/* unk_token and fuse_unk have no effect, because every byte has a token; the caller reads the
   others that may be anything. */
static const step_shape step_model = {"BPE", {
    {"dropout", "-|0|0.0"}, {"continuing_subword_prefix", "-|"}, {"end_of_word_suffix", "-|"}}};
static const char *const step_model_others[] = {
    "type", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges", 0
};

/* Behind the model ByteLevel trims offsets, and in a decoder it turns tokens into bytes. */
static const step_shape step_bytes_after = {"ByteLevel", {
    {"add_prefix_space", "*"}, {"trim_offsets", "*"}, {"use_regex", "*"}}};
static const step_shape step_frame = {"TemplateProcessing", {
    {"single", "*"}, {"pair", "*"}, {"special_tokens", "*"}}};
static const step_shape step_unmark = {"Replace", {
    {"pattern", "{String}" STEP_MARK}, {"content", " "}}};
static const step_shape step_byte_tokens = {"ByteFallback", {{0, 0}}};
static const step_shape step_fuse = {"Fuse", {{0, 0}}};
static const step_shape step_strip = {"Strip", {{"content", " "}, {"start", "1"}, {"stop", "0"}}};
static const step_shape step_unmark_metaspace = {"Metaspace", {
    {"replacement", STEP_MARK}, {"prepend_scheme", "*"}, {"split", "*"}, {"add_prefix_space", "*"},
    {"str_rep", "*"}}};

/* The steps of a kind. LLaMA's tokenizers come in two forms, Gemma's with a split or without. */
enum { STEPS_MAX = 4 };
static const struct step_form {
    steps_kind kind;
    const step_shape *normalizer[STEPS_MAX], *pre[STEPS_MAX];
} step_forms[] = {
    {STEPS_LLAMA3, {0}, {&step_split_llama3, &step_bytes}},
    {STEPS_QWEN, {&step_nfc}, {&step_split_qwen, &step_bytes}},
    {STEPS_QWEN35, {&step_nfc}, {&step_split_qwen35, &step_bytes}},
    {STEPS_FALCON_E, {0}, {&step_punctuation, &step_split_bytes, &step_split_digits}},
    {STEPS_FALCON_E, {0}, {&step_punctuation, &step_split_bytes, &step_digits}},
    {STEPS_GEMMA, {&step_mark_blanks}, {0}},
    {STEPS_GEMMA, {&step_mark_blanks}, {&step_split_blanks}},
    {STEPS_LLAMA2, {&step_prepend, &step_mark_blanks}, {0}},
    {STEPS_LLAMA2, {0}, {&step_metaspace}}
};
enum { STEPS_FORMS = sizeof step_forms / sizeof step_forms[0] };

static const struct step_decoder {
    int fallback;                      /* of the kinds with byte fallback */
    const step_shape *steps[STEPS_MAX + 1];
} step_decoders[] = {
    {0, {0}},
    {0, {&step_bytes_after}},
    {1, {0}},
    {1, {&step_unmark, &step_byte_tokens, &step_fuse}},
    {1, {&step_unmark, &step_byte_tokens, &step_fuse, &step_strip}},
    {1, {&step_unmark_metaspace}}
};
enum { STEPS_DECODERS = sizeof step_decoders / sizeof step_decoders[0] };

/* ---- comparing ---- */

/* How far a comparison came, and its error. */
typedef struct step_match { int same; bitnet_error err; } step_match;

/* values: what the field may be; 0: it is no field, or no step, that is known. */
static int step_refuse(step_match *m, const json *j, const char *path, const char *key,
                       uint32_t node, const char *values) {
    char value[80], known[64] = "";
    size_t n = 0;
    json_describe(j, node, value, sizeof value);
    if (values && !strncmp(values, "-|", 2)) values += 2;
    for (; values && *values && n + 5 < sizeof known; values++) {
        const int bar = *values == '|';
        memcpy(known + n, bar ? " or " : values, bar ? 4 : 1);
        n += bar ? 4 : 1;
        known[n] = 0;
    }
    if (values)
        set_error(&m->err, BITNET_ERR_UNSUPPORTED, "%s: %s.%s is %s, and only %s is supported",
                  j->name, path, key, value, *known ? known : "''");
    else
        set_error(&m->err, BITNET_ERR_UNSUPPORTED, "%s: %s.%s is %s, which is not known", j->name,
                  path, key, value);
    return 0;
}

/* The same of an object, {"Regex": "..."}: names what is in it. */
static int step_refuse_object(step_match *m, const json *j, const char *path, const char *key,
                              uint32_t node) {
    char inner[128];
    if (json_kind(j, node) != JSON_OBJECT || j->nodes[node].n != 1)
        return step_refuse(m, j, path, key, node, 0);
    snprintf(inner, sizeof inner, "%s.%s", path, key);
    return step_refuse(m, j, inner, j->text + j->nodes[node + 1].at, node + 2, 0);
}

/* Is the value one of these? */
static int step_is_value(const json *j, uint32_t node, const char *values) {
    const json_node *s = &j->nodes[node];
    char text[80];
    if (!strcmp(values, "*")) return 1;
    if (*values == '{') {
        char key[8];
        const size_t n = strcspn(values, "}") - 1;
        snprintf(key, sizeof key, "%.*s", (int)n, values + 1);
        return json_kind(j, node) == JSON_OBJECT && s->n == 1 &&
               json_is(j, json_get(j, node, key), values + n + 2);
    }
    if (json_kind(j, node) == JSON_STRING)
        snprintf(text, sizeof text, "%.*s", s->len < 64 ? (int)s->len : 64, j->text + s->at);
    else if (node && json_kind(j, node) != JSON_NULL) json_describe(j, node, text, sizeof text);
    else snprintf(text, sizeof text, "-");
    for (;; values++) {
        const size_t n = strcspn(values, "|");
        if (strlen(text) == n && !memcmp(text, values, n)) return 1;
        values += n;
        if (!*values) return 0;
    }
}

static const char *step_find_field(const step_shape *want, const char *const *others,
                                   const char *key) {
    int i;
    for (i = 0; i < 6 && want->fields[i].key; i++)
        if (!strcmp(key, want->fields[i].key)) return want->fields[i].values;
    for (; others && *others; others++)
        if (!strcmp(key, *others)) return "*";
    return 0;
}

/* A Split that removes all but its matches keeps each of them, as Isolated does: the expressions
   match everything. */
static int step_is_isolated(const json *j, uint32_t object, const char *key) {
    return !strcmp(key, "behavior") && json_is(j, json_get(j, object, key), "Removed") &&
           json_kind(j, json_get(j, object, "invert")) == JSON_TRUE;
}

/* Are the fields of an object those of the step? Its type is known. */
static int step_same_fields(step_match *m, const json *j, uint32_t object, const char *path,
                            const step_shape *want, const char *const *others) {
    uint32_t node = object + 1, i;
    int k;
    for (i = 0; i < j->nodes[object].n; i++, node = j->nodes[node + 1].next) {
        const char *key = j->text + j->nodes[node].at;
        const char *values = step_find_field(want, others, key);
        if (!values && json_kind(j, node + 1) != JSON_NULL && strcmp(key, "type"))
            return step_refuse(m, j, path, key, node + 1, 0);
    }
    for (k = 0; k < 6 && want->fields[k].key; k++) {
        const char *key = want->fields[k].key, *values = want->fields[k].values;
        const uint32_t value = json_get(j, object, key);
        if (!step_is_value(j, value, values) && !step_is_isolated(j, object, key))
            return *values == '{' ? step_refuse_object(m, j, path, key, value)
                                  : step_refuse(m, j, path, key, value, values);
        m->same++;
    }
    return 1;
}

/* Step i of a part, which may be a Sequence in a list or alone; 0: there are no more. */
static uint32_t step_at(const json *j, uint32_t part, const char *list, uint32_t i) {
    uint32_t node = json_get(j, part, list);
    if (!json_is(j, json_get(j, part, "type"), "Sequence")) return i == 0 ? part : 0;
    if (json_kind(j, node) != JSON_ARRAY || i >= j->nodes[node].n) return 0;
    for (node++; i > 0; i--) node = j->nodes[node].next;
    return node;
}

static void step_path(const json *j, uint32_t part, const char *name, const char *list, uint32_t i,
                      char path[96]) {
    if (json_is(j, json_get(j, part, "type"), "Sequence"))
        snprintf(path, 96, "%s.%s[%u]", name, list, (unsigned)i);
    else snprintf(path, 96, "%s", name);
}

/* Are the steps of a part these, which end with a 0? */
static int step_same(step_match *m, const json *j, const char *name, const char *list,
                     const step_shape *const *want) {
    const uint32_t part = json_get(j, JSON_ROOT, name);
    char path[96];
    uint32_t i, node;
    for (i = 0;; i++, want++) {
        node = step_at(j, part, list, i);
        step_path(j, part, name, list, i, path);
        if (!*want && !node) return 1;
        if (!*want)
            return step_refuse(m, j, path, "type", json_get(j, node, "type"), 0);
        if (!node || !json_is(j, json_get(j, node, "type"), (*want)->type))
            return step_refuse(m, j, path, "type", json_get(j, node, "type"), (*want)->type);
        m->same++;
        if (!step_same_fields(m, j, node, path, *want, 0)) return 0;
    }
}

/* ---- the parts ---- */

/* The form whose steps these are; else the error is that of the nearest one. */
static bitnet_result step_find_form(const json *j, int fallback, steps_kind *kind,
                                    bitnet_error *err) {
    step_match best, m;
    int i;
    best.same = -1;
    for (i = 0; i < STEPS_FORMS; i++) {
        if ((step_forms[i].kind >= STEPS_GEMMA) != fallback) continue;
        memset(&m, 0, sizeof m);
        if (step_same(&m, j, "pre_tokenizer", "pretokenizers", step_forms[i].pre) &&
            step_same(&m, j, "normalizer", "normalizers", step_forms[i].normalizer)) {
            *kind = step_forms[i].kind;
            return BITNET_OK;
        }
        if (m.same > best.same) best = m;
    }
    return set_error(err, BITNET_ERR_UNSUPPORTED, fallback
                     ? "%s (BPE with byte_fallback may be LLaMA's or Gemma's)"
                     : "%s (byte-level BPE may be LLaMA 3's, Qwen's or Falcon-E's; --pre names one "
                       "that is the same)", best.err.text);
}

static bitnet_result step_check_model(const json *j, uint32_t node, bitnet_error *err) {
    step_match m;
    memset(&m, 0, sizeof m);
    if (step_same_fields(&m, j, node, "model", &step_model, step_model_others)) return BITNET_OK;
    return set_error(err, m.err.code, "%s", m.err.text);
}

/* Steps that trim offsets, and one that puts tokens around a text. */
static bitnet_result step_check_post_processor(const json *j, bitnet_error *err) {
    const char *name = "post_processor", *list = "processors";
    const uint32_t part = json_get(j, JSON_ROOT, name);
    char path[96];
    uint32_t i, node, frames = 0;
    step_match m;
    memset(&m, 0, sizeof m);
    for (i = 0; (node = step_at(j, part, list, i)) != 0; i++) {
        const uint32_t type = json_get(j, node, "type");
        const step_shape *want = json_is(j, type, step_frame.type) ? &step_frame
                                                                   : &step_bytes_after;
        step_path(j, part, name, list, i, path);
        frames += want == &step_frame;
        if (!json_is(j, type, want->type))
            step_refuse(&m, j, path, "type", type, "ByteLevel|TemplateProcessing");
        else if (frames > 1 || i == STEPS_MAX) step_refuse(&m, j, path, "type", type, 0);
        else if (step_same_fields(&m, j, node, path, want, 0)) continue;
        return set_error(err, m.err.code, "%s", m.err.text);
    }
    return BITNET_OK;
}

static bitnet_result step_check_decoder(const json *j, int fallback, bitnet_error *err) {
    step_match best, m;
    int i;
    best.same = -1;
    for (i = 0; i < STEPS_DECODERS; i++) {
        if (step_decoders[i].fallback != fallback) continue;
        memset(&m, 0, sizeof m);
        if (step_same(&m, j, "decoder", "decoders", step_decoders[i].steps)) return BITNET_OK;
        if (m.same >= best.same) best = m;
    }
    return set_error(err, best.err.code, "%s", best.err.text);
}

bitnet_result steps_check(const json *j, int named, steps_kind *kind, bitnet_error *err) {
    const uint32_t node = json_get(j, JSON_ROOT, "model"), type = json_get(j, node, "type");
    const int fallback = json_kind(j, json_get(j, node, "byte_fallback")) == JSON_TRUE;
    bitnet_result r;
    if (json_kind(j, node) != JSON_OBJECT)
        return set_error(err, BITNET_ERR_FORMAT, "%s: there is no model", j->name);
    if (type && !json_is(j, type, "BPE")) {
        char value[80];
        json_describe(j, type, value, sizeof value);
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: model.type is %s, and only BPE is "
                         "supported", j->name, value);
    }
    if (fallback && named)
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: --pre is for byte-level BPE, and this "
                         "is BPE with byte_fallback", j->name);
    if ((!named && (r = step_find_form(j, fallback, kind, err))) ||
        (r = step_check_model(j, node, err)) || (r = step_check_post_processor(j, err))) return r;
    return step_check_decoder(j, fallback, err);
}

/* ---- added tokens ---- */

/* A token that is looked for in the normalized text is another one only where the normalizer puts
   something in front of it, and a special one is no part of a text. */
bitnet_result steps_check_added(const json *j, uint32_t token, const char *path, steps_kind kind,
                                bitnet_error *err) {
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const int special = json_kind(j, json_get(j, token, "special")) == JSON_TRUE;
    const int prepends = kind == STEPS_LLAMA2 && json_get(j, JSON_ROOT, "normalizer");
    step_match m;
    int k;
    memset(&m, 0, sizeof m);
    for (k = 0; k < (prepends && !special ? 4 : 3); k++) {
        const uint32_t node = json_get(j, token, flags[k]);
        if (step_is_value(j, node, "-|false")) continue;
        step_refuse(&m, j, path, flags[k], node, "false");
        return set_error(err, m.err.code, "%s", m.err.text);
    }
    return BITNET_OK;
}

uint32_t steps_find_frame(const json *j, uint32_t *specials) {
    const uint32_t part = json_get(j, JSON_ROOT, "post_processor");
    uint32_t i, node;
    for (i = 0; (node = step_at(j, part, "processors", i)) != 0; i++)
        if (json_is(j, json_get(j, node, "type"), step_frame.type)) {
            *specials = json_get(j, node, "special_tokens");
            return json_get(j, node, "single");
        }
    return 0;
}
