/* Whether what examples/json/json.c has parsed can be walked; for test_convert_json.c and the
   fuzzer. */
/* Every node lies in the text, every next in the array, and children fill their parents. */
static int json_is_sound(const json *j) {
    uint32_t i, k, node;
    for (i = JSON_ROOT; i < j->n_nodes; i++) {
        const json_node *s = &j->nodes[i];
        if (s->next <= i || s->next > j->n_nodes || s->at > j->size || s->len > j->size - s->at)
            return 0;
        for (k = 0, node = i + 1; k < s->n; k++) {
            if (node >= s->next) return 0;
            if (s->type == JSON_OBJECT && j->nodes[node++].type != JSON_STRING) return 0;
            if (node >= s->next) return 0;
            node = j->nodes[node].next;
        }
        if (node != s->next) return 0;
    }
    return j->n_nodes > JSON_ROOT && j->nodes[JSON_ROOT].next == j->n_nodes;
}
