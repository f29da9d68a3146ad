/* safetensors.h - Hugging Face's tensors, in one file or several

       8 bytes    length n of the header, little-endian
       n bytes    JSON: {"name": {"dtype": "BF16", "shape": [out, in], "data_offsets": [from, to]}}
       the rest   the tensors' bytes, without holes; from and to are offsets into these

   A model in several files ("shards") has model.safetensors.index.json, whose "weight_map" says
   which file has which tensor. Only the headers are kept in memory; tensors are read in slices. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include "../json/json.h"
#include <stdio.h>

enum { ST_MAX_DIMS = 8 };

typedef struct st_tensor {
    const char *name;                  /* [name_len], in its file's header */
    uint32_t name_len, file;
    char dtype[12];
    uint32_t item;                     /* bytes of an element */
    uint32_t n_dims;
    uint64_t dims[ST_MAX_DIMS];        /* outermost first */
    uint64_t n, offset, size;          /* elements; bytes, from the file's start */
    int mapped, used;
} st_tensor;

typedef struct st_file {
    FILE *f;
    uint64_t size, data;               /* data: where the header ends */
    json header;                       /* its name is the file's */
} st_file;

typedef struct st_model {
    const char *dir;                   /* the caller's */
    st_file *files;                    /* [n_files] */
    st_tensor *tensors;                /* [n_tensors], sorted by name once all files are open */
    uint32_t n_files, n_tensors, cap;
    json index;
} st_model;

/* Opens the tensors of a folder. st_close must follow even after an error. */
bitnet_result st_open(st_model *m, const char *dir, bitnet_error *err);
void st_close(st_model *m);
/* The tensor of this name; 0: there is none. */
st_tensor *st_find(const st_model *m, const char *name, uint32_t len);
/* Reads n bytes of a tensor, from its byte at on. */
bitnet_result st_read(const st_model *m, const st_tensor *t, uint64_t at, void *out, size_t n,
                      bitnet_error *err);
/* An error that names the tensor. */
bitnet_result st_fail(const st_model *m, const st_tensor *t, const char *what, bitnet_error *err);

#endif
