/* model.h - a model's part of the report, and how likely English text is to a model in each layout
   of its weights */
#ifndef CROSSCHECK_MODEL_H
#define CROSSCHECK_MODEL_H

#include "../../bitnet.h"

typedef struct model_options {
    const char *path, *prompt;
    const char *kv_name;               /* f16 or f32, for the report */
    const char *bug;                   /* an emulated one; 0: none */
    int32_t n_new;                     /* greedy tokens */
    bitnet_model_params model;
    bitnet_ctx_params ctx;
} model_options;

/* Loads the model, so that a failure comes before the report. */
void open_model(const model_options *o);
void report_model(const model_options *o);

/* Prints how likely English text is in each layout. */
void compare_layouts(const model_options *o);

#endif
