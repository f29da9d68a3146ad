/* generate.h - what all parts share: the model and what belongs to it

   Functions that return an exit code return GO_ON where the program goes on. */
#ifndef GENERATE_H
#define GENERATE_H

#include "../../bitnet.h"
#include "../../bitnet_grammar.h"

enum {
    GO_ON = -1,
    MAX_TEXT = 16 << 20                /* bytes of a prompt or a message */
};

extern bitnet_model *model;
extern bitnet_model_info info;
extern bitnet_ctx *ctx;
extern bitnet_matcher *matcher;        /* 0: any text */
extern bitnet_error err;

#endif
