/* options.h - what reads the options of convert, embed, perplexity, serve and batch, which are
   tables */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include "values.h"

/* One of text, number, share, kv_type and flag is where the value goes. */
typedef struct option {
    const char *names;                 /* all its spellings, with blanks between */
    const char *arg, *help;            /* arg 0: it has no value; help 0: it is not listed */
    int commands;                      /* of a program that has some: those that know it */
    int *flag;                         /* becomes 1 */
    const char **text;
    struct { long *to, low, high; } number;    /* a whole number from low to high */
    double *share;                     /* over 0, at most 1 */
    bitnet_kv_type *kv_type;
} option;

enum { OPTION_ERROR = 256 };           /* bytes of what is wrong */

/* Is it one of the names? */
static inline int option_has_name(const char *names, const char *name) {
    const size_t n = strlen(name);
    const char *at = names;
    for (; n && !strchr(name, ' ') && (at = strstr(at, name)) != 0; at += n)
        if ((at == names || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return 1;
    return 0;
}

static inline const option *option_find(const option *all, size_t n, const char *name) {
    size_t i;
    for (i = 0; i < n; i++)
        if (option_has_name(all[i].names, name)) return &all[i];
    return 0;
}

/* Takes the option at argv[*i], which is o (0: there is none), and the value behind it; *i moves to
   the last argument that was taken. Returns 1, or 0 and in error what is wrong. */
static inline int option_take(const option *o, char **argv, int *i, char error[OPTION_ERROR]) {
    const char *name = argv[*i], *value = argv[*i + 1];
    long long number;
    error[0] = 0;
    if (!o) {
        snprintf(error, OPTION_ERROR, "there is no option %s; --help lists them", name);
        return 0;
    }
    if (o->flag) *o->flag = 1;
    else if (!value) snprintf(error, OPTION_ERROR, "%s needs a value: %s", name, o->arg);
    else if (o->text) *o->text = value;
    else if (o->kv_type && !value_kv_type(value, o->kv_type))
        snprintf(error, OPTION_ERROR, "%s %s: " KV_TYPES " is needed", name, value);
    else if (o->share) {
        if (!value_real(value, o->share) || !(*o->share > 0 && *o->share <= 1))
            snprintf(error, OPTION_ERROR, "%s %s: a number over 0, up to 1, is needed", name,
                     value);
    } else if (o->number.to) {
        if (value_number(value, o->number.low, o->number.high, &number))
            *o->number.to = (long)number;
        else snprintf(error, OPTION_ERROR, "%s %s: a whole number from %ld to %ld is needed", name,
                      value, o->number.low, o->number.high);
    }
    if (!error[0] && !o->flag) ++*i;
    return !error[0];
}

/* Names of values. The last one is 0 and has the value of an option that is not given. */
typedef struct option_name { const char *text; int value; } option_name;

/* Sets *to to the value that an option's text names; text 0: the option was not given. Returns 0,
   and says in error what is wrong, if there is no such name. */
static inline int option_value(const char *own, const char *text, const option_name *names,
                               int *to, char error[OPTION_ERROR]) {
    const option_name *n = names;
    size_t at;
    snprintf(error, OPTION_ERROR, "%s: '%.60s' is not", own, text ? text : "");
    for (; n->text && (!text || strcmp(text, n->text)); n++) {
        at = strlen(error);
        snprintf(error + at, OPTION_ERROR - at, "%s %s", n == names ? "" : n[1].text ? "," : " or",
                 n->text);
    }
    *to = n->value;
    return n->text || !text;
}

/* Prints what --help shows: the usage, the table and the notes. Returns an exit code + 1. */
static inline int options_help(const option *all, size_t n, const char *usage, const char *notes) {
    char line[96];
    size_t i;
    int width = 0, size;
    for (i = 0; i < n; i++) {
        size = all[i].help ? (int)strlen(all[i].names) + (all[i].arg ? (int)strlen(all[i].arg) : 0)
                           : 0;
        width = size > width ? size : width;
    }
    fputs(usage, stdout);
    for (i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%s %s", all[i].names, all[i].arg ? all[i].arg : "");
        if (all[i].help) printf("  %-*s  %s\n", width + 1, line, all[i].help);
    }
    printf("  %-*s  %s\n", width + 1, "--version", "the library's version");
    fputs(notes, stdout);
    return fflush(stdout) || ferror(stdout) ? 2 : 1;
}

/* If the argument is --help or --version, shows that. Returns an exit code + 1, or 0 if it is
   neither. */
static inline int options_show(const char *argument, const char *program, const option *all,
                               size_t n, const char *usage, const char *notes) {
    if (option_has_name("-h --help", argument)) return options_help(all, n, usage, notes);
    if (strcmp(argument, "--version")) return 0;
    printf("%s %s\n", program, bitnet_version());
    return fflush(stdout) || ferror(stdout) ? 2 : 1;
}

/* Reads the arguments of a program whose arguments are all options. Returns 0 to go on, or an exit
   code + 1: after --help, or after an error, one line on stderr. */
static inline int options_read(int argc, char **argv, const char *program, const option *all,
                               size_t n, const char *usage, const char *notes) {
    char error[OPTION_ERROR];
    int i, shown;
    for (i = 1; i < argc; i++) {
        if ((shown = options_show(argv[i], program, all, n, usage, notes)) != 0) return shown;
        if (option_take(option_find(all, n, argv[i]), argv, &i, error)) continue;
        bitnet_clean_text(error, strlen(error), error, sizeof error);
        fprintf(stderr, "%s: %s\n", program, error);
        return 3;
    }
    return 0;
}

/* For bitnet_model_params.log_fn, where ud is the program's name: what the library warns of. */
static inline void options_warning(void *ud, bitnet_log_level level, const char *text) {
    if (level == BITNET_LOG_WARNING) fprintf(stderr, "%s: %s\n", (const char *)ud, text);
}

#endif
