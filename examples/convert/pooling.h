/* pooling.h - how a folder's model makes one vector of a text, as sentence-transformers says it:
   modules.json names the steps, and the folder of the step Pooling has a config.json */
#ifndef POOLING_H
#define POOLING_H

#include "../../bitnet.h"

/* *out: a bitnet_pooling. Steps that bitnet.h does not compute, and folders that do not say what
   they are, are errors. */
bitnet_result pooling_read(const char *dir, uint32_t *out, bitnet_error *err);

#endif
