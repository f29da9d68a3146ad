#include "pooling.h"
#include "files.h"
#include "../json/text.h"
#include <string.h>

/* The step that an element of modules.json names: its class, without the module in front. */
static const char *pooling_class(const json *j, uint32_t type) {
    const char *text = json_kind(j, type) == JSON_STRING ? j->text + j->nodes[type].at : "?";
    const char *point = strrchr(text, '.');
    return point ? point + 1 : text;
}

/* The folder of the step Pooling. Normalize is what bitnet_embed does. */
static bitnet_result pooling_folder(const json *j, char out[64], bitnet_error *err) {
    uint32_t node = JSON_ROOT + 1, i;
    out[0] = 0;
    if (json_kind(j, JSON_ROOT) != JSON_ARRAY) return json_fail(j, 0, "this is not a list", err);
    for (i = 0; i < j->nodes[JSON_ROOT].n; i++, node = j->nodes[node].next) {
        const char *class_name = pooling_class(j, json_get(j, node, "type"));
        const uint32_t path = json_get(j, node, "path");
        if (!strcmp(class_name, "Transformer") || !strcmp(class_name, "Normalize")) continue;
        if (strcmp(class_name, "Pooling") || out[0])
            return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: step %u is '%.64s'; only one "
                             "Pooling, between Transformer and Normalize, is supported", j->name,
                             (unsigned)i, class_name);
        if (json_kind(j, path) == JSON_STRING)
            snprintf(out, 64, "%s", j->text + j->nodes[path].at);
        if (!out[0] || !json_is(j, path, out) || strpbrk(out, "/\\:") || out[0] == '.')
            return set_error(err, BITNET_ERR_FORMAT, "%s: the path of Pooling is not the name of "
                             "a folder in the same folder", j->name);
    }
    return out[0] ? BITNET_OK
                  : set_error(err, BITNET_ERR_FORMAT, "%s: there is no Pooling", j->name);
}

/* The kind of pooling. Newer versions name it in pooling_mode, others set one of several flags. */
static bitnet_result pooling_mode(const json *j, uint32_t *out, bitnet_error *err) {
    static const struct { const char *flag, *mode; bitnet_pooling pooling; } known[] = {
        {"pooling_mode_mean_tokens", "mean", BITNET_POOLING_MEAN},
        {"pooling_mode_cls_token", "cls", BITNET_POOLING_FIRST},
        {"pooling_mode_lasttoken", "lasttoken", BITNET_POOLING_LAST}
    };
    static const char prefix[] = "pooling_mode_";
    const uint32_t mode = json_get(j, JSON_ROOT, "pooling_mode");
    const uint32_t n = json_kind(j, JSON_ROOT) == JSON_OBJECT ? j->nodes[JSON_ROOT].n : 0;
    const char *name = json_kind(j, mode) == JSON_STRING ? j->text + j->nodes[mode].at : "";
    uint32_t node = JSON_ROOT + 1, n_set = 0, i;
    for (i = 0; i < n && !mode; i++, node = j->nodes[node + 1].next) {
        const char *key = j->text + j->nodes[node].at;
        if (strncmp(key, prefix, sizeof prefix - 1) || json_kind(j, node + 1) != JSON_TRUE)
            continue;
        name = key;
        n_set++;
    }
    if (n_set > 1)
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: %u kinds of pooling are set; one is "
                         "supported", j->name, (unsigned)n_set);
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, mode ? known[i].mode : known[i].flag)) continue;
        *out = (uint32_t)known[i].pooling;
        return BITNET_OK;
    }
    return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: pooling '%.64s' is not supported; mean, cls "
                     "and lasttoken are", j->name, name);
}

bitnet_result pooling_read(const char *dir, uint32_t *out, bitnet_error *err) {
    char path[128] = "";
    json j;
    bitnet_result r = file_load_json(dir, "modules.json", 1, &j, err);
    *out = 0;
    if (!r && !j.n_nodes)
        r = set_error(err, BITNET_ERR_FORMAT, "modules.json is missing, which says how tokens "
                      "become one vector; say it with --pooling");
    if (!r) r = pooling_folder(&j, path, err);
    json_free(&j);
    if (r) return r;
    strcat(path, "/config.json");
    if (!(r = file_load_json(dir, path, 0, &j, err))) r = pooling_mode(&j, out, err);
    json_free(&j);
    return r;
}
