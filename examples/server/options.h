/* options.h - a program's options, as a table */
#ifndef SERVER_OPTIONS_H
#define SERVER_OPTIONS_H

#include "../../bitnet.h"
#include <stddef.h>

/* One of text, number, part and flag is where the value goes; the others are 0. */
typedef struct option {
    const char *name, *other;          /* "--model", and "-m" or 0 */
    const char *arg, *help;            /* arg 0: it has no value */
    const char **text;
    long *number, low, high;           /* a whole number from low to high */
    double *part;                      /* over 0, at most 1 */
    int *flag;                         /* becomes 1 */
} option;

/* Reads the arguments. Returns 0 to go on, or an exit code + 1: after --help, which prints usage,
   the n options and notes; or after an error, one line on stderr that begins with the program. */
int options_read(int argc, char **argv, const char *program, const option *options, size_t n,
                 const char *usage, const char *notes);

/* The value of --kv-type: f16, f32 or i8; 0 leaves *type. Returns 0, or an exit code + 1, too. */
int options_kv_type(const char *program, const char *name, bitnet_kv_type *type);

/* For bitnet_model_params.log_fn, where ud is the program's name: what the library warns of. */
void options_warning(void *ud, bitnet_log_level level, const char *text);

#endif
