/* options.h - what the command line asks for */
#ifndef GENERATE_OPTIONS_H
#define GENERATE_OPTIONS_H

#include "generate.h"

enum { NO = 0, YES = 1, AUTO = -1, MAX_STOPS = 16 };

/* Texts that were not given are 0. */
extern char *model_path, *prompt, *prompt_path, *system_text, *system_path, *kernel_name;
extern char *cache_path;
extern char *grammar_text, *grammar_path, *schema_text, *schema_path;
extern int32_t cache_all, cache_read_only;
extern char *stops[MAX_STOPS];
extern int32_t chatting, interactive, single_turn;
extern int32_t parse_special;          /* in plain text; messages never */
extern int32_t escapes;                /* AUTO: in texts of the command line, not in files */
extern int32_t shifting;               /* AUTO: in chats */
extern int32_t reasoning, reasoning_budget;
extern int32_t colours;                /* AUTO: on terminals */
extern int32_t show_prompt, show_statistics, quiet, plain_input, verbose;
extern int32_t max_tokens, keep;
extern int64_t seed;
extern bitnet_sampler sampler;
extern bitnet_generate_params gen;
extern bitnet_ctx_params ctx_params;
extern bitnet_model_params model_params;

/* Reads the command line. Returns an exit code, also after --help and the like, or GO_ON. */
int read_options(int argc, char **argv);
/* Replaces llama.cpp's escapes in place and keeps any other backslash. name is what is said to hold
   the text, if that fails. Returns an exit code or GO_ON. */
int unescape(const char *name, char *s);

#endif
