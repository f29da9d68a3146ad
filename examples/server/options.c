#include "options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 0 + 1, USAGE = 2 + 1 };

static int help(const option *options, size_t n, const char *usage, const char *notes) {
    size_t i;
    puts(usage);
    for (i = 0; i < n; i++) {
        const option *o = &options[i];
        char name[64];
        snprintf(name, sizeof name, "%s%s%s %s", o->other ? o->other : "", o->other ? ", " : "",
                 o->name, o->arg ? o->arg : "");
        printf("  %-24s %s\n", name, o->help);
    }
    fputs(notes, stdout);
    return DONE;
}

static const option *find(const option *options, size_t n, const char *name) {
    size_t i;
    for (i = 0; i < n; i++)
        if (!strcmp(name, options[i].name) || (options[i].other && !strcmp(name, options[i].other)))
            return &options[i];
    return 0;
}

/* Takes a value; returns 0, or what is needed in its place, in text. */
static const char *take(const option *o, const char *value, char *text, size_t size) {
    char *end = 0;
    if (o->text) {
        *o->text = value;
        return 0;
    }
    if (o->part) {
        *o->part = strtod(value, &end);
        return *value && !*end && *o->part > 0 && *o->part <= 1 ? 0 : "a number over 0, up to 1,";
    }
    *o->number = strtol(value, &end, 10);
    if (*value && !*end && *o->number >= o->low && *o->number <= o->high) return 0;
    snprintf(text, size, "a whole number from %ld to %ld", o->low, o->high);
    return text;
}

int options_read(int argc, char **argv, const char *program, const option *options, size_t n,
                 const char *usage, const char *notes) {
    char text[96];
    int i;
    for (i = 1; i < argc; i++) {
        const option *o = find(options, n, argv[i]);
        const char *typed = argv[i], *needed;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return help(options, n, usage, notes);
        if (!o) {
            fprintf(stderr, "%s: there is no option %s; --help lists them\n", program, argv[i]);
            return USAGE;
        }
        if (o->flag) {
            *o->flag = 1;
            continue;
        }
        if (++i == argc) {
            fprintf(stderr, "%s: %s needs a value\n", program, typed);
            return USAGE;
        }
        if ((needed = take(o, argv[i], text, sizeof text)) != 0) {
            fprintf(stderr, "%s: %s %s: %s is needed\n", program, typed, argv[i], needed);
            return USAGE;
        }
    }
    return 0;
}

int options_kv_type(const char *program, const char *name, bitnet_kv_type *type) {
    static const char *const names[] = {"f16", "f32", "i8"};       /* as bitnet_kv_type */
    int i;
    for (i = 0; name && i < 3 && strcmp(name, names[i]); i++) {}
    if (i == 3) {
        fprintf(stderr, "%s: --kv-type %s: f16, f32 or i8 is needed\n", program, name);
        return USAGE;
    }
    if (name) *type = (bitnet_kv_type)i;
    return 0;
}

void options_warning(void *ud, bitnet_log_level level, const char *text) {
    if (level == BITNET_LOG_WARNING) fprintf(stderr, "%s: %s\n", (const char *)ud, text);
}
