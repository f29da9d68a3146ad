/* saved.h - saved conversations: the prompt cache, /save and /load */
#ifndef GENERATE_SAVED_H
#define GENERATE_SAVED_H

#include "generate.h"

extern int cache_failed;               /* it could not be written */
extern int cache_is_read;              /* use_cache has loaded what was there */

/* The file gets its name when it is complete: until then an older one of this name stays. */
int save_state(const char *path);
/* On failure the context is as it was. may_lack 1: it need not be there, and may be empty. */
int load_state(const char *path, int may_lack);
/* Evaluates the conversation's tokens up to number n, or until Ctrl-C. */
int evaluate_to(int32_t n);
/* Loads the prompt cache and evaluates what the first turn has beyond it, except for the last
   token, whose logits the reply needs. The file is written again if it lacked something. */
int use_cache(void);

#endif
