/* memory.h - how much memory there is, and how many tokens of texts fit into it

   memory.c owns what of the machine and of its control groups counts. A process that takes more
   than its group allows is killed, so serve and batch do not go by the machine's memory alone. */
#ifndef SERVER_MEMORY_H
#define SERVER_MEMORY_H

#include "engine.h"
#include <limits.h>

/* Of --kv-tokens. */
#define MEMORY_MOST_TOKENS (sizeof(long) > 4 ? (long)((int64_t)1 << 40) : LONG_MAX - 63)

/* What leaves least: the machine, or a control group that this process is in. */
typedef struct memory {
    int64_t left;                      /* bytes, with the file cache, which can be taken back;
                                          INT64_MAX: nobody says */
    int64_t limit;                     /* what it has in all; INT64_MAX likewise */
    int is_group;                      /* it is a control group */
} memory;

/* root is put in front of the paths of /proc and /sys: "", or a test's folder. */
memory memory_look(const char *root);

/* What an engine takes of it, for a model that is loaded: bytes. */
typedef struct memory_need {
    int64_t file;                      /* of the model's file, which each pass reads: file cache */
    int64_t buffers;                   /* allocated with the engine, or by its first texts */
    int64_t loaded;                    /* allocated already: it is missing in `left` */
    int64_t token;                     /* each token of a text */
} memory_need;
memory_need memory_needed(const bitnet_model *model, const engine_params *params);

/* Tokens of texts for which there is room beside the rest; 0: there may be none for the rest. */
int64_t memory_tokens(const memory *m, const memory_need *need);
/* Is there room for the model and a short text, where so many bytes are left? */
int memory_can_do(const memory_need *need, int64_t left);

enum { MEMORY_TEXT = 400 };
/* For people: what is needed and what is there. Returns text, of MEMORY_TEXT bytes. */
const char *memory_describe(const memory *m, const memory_need *need, char *text);

#endif
