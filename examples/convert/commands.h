/* commands.h - what convert can do with GGUF files. Every failure ends the program. */
#ifndef CONVERT_COMMANDS_H
#define CONVERT_COMMANDS_H

#include "input.h"

typedef struct repack_options {
    packing from, to;                  /* from.type is not used */
    int wants_ternary, wants_head;     /* fail if the file has no weights of that kind */
    uint32_t head_type;                /* of embedding and head, with wants_head */
    int pq2_0_as_42;                   /* PQ2_0 gets Q2_0's number */
    int round_scales;                  /* to F16, where the type needs that */
    int copy;                          /* layers that are not ternary are copied */
    int unfold;                        /* matrices become unfold_type, in the plain basis */
    uint32_t unfold_type;
    const char *fold;                  /* 0, or the file whose fold the matrices get */
    int force;
} repack_options;

/* Writes a GGUF file again, with its weights in other types. */
void repack(const char *in, const char *out, const repack_options *o);
/* Prints keys, tensors, checksums, and warnings about anything unusual. */
void inspect(const char *path);
/* Prints for each tensor whether its weights are the same in both files, or the first difference.
   Returns 0 if all are, else 1. */
int verify(const char *path_a, const packing *pack_a, const char *path_b, const packing *pack_b);

#endif
