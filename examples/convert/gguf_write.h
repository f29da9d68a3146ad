/* gguf_write.h - writes a GGUF v3 file from its first byte to its last

   Set write_fn in a zeroed gguf_writer. Add all keys and tensors, write the header, then write each
   tensor's bytes in the order in which the tensors were added, in pieces of any size:

       gguf_writer w = {0};
       w.write_fn = my_write;
       gguf_add_string(&w, "general.architecture", "bitnet");
       gguf_add_tensor(&w, "t", BITNET_TENSOR_F32, 2, dims);
       gguf_write_header(&w);
       gguf_write_data(&w, bytes, size);
       if (gguf_write_end(&w)) puts(w.err.text);

   After a failure every call returns its code and does nothing else, so it is enough to check the
   result of gguf_write_end. Strings are copied. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "../../bitnet.h"

typedef struct gguf_writer {
    int (*write_fn)(void *ud, const void *p, size_t n);   /* nonzero means failure; it must not
                                                             call the writer */
    void *ud;
    bitnet_error err;                  /* the first failure */
    struct gguf_header *header;        /* private */
} gguf_writer;

/* A name is valid UTF-8 without a NUL and is used once. A key's has 1 to 256 bytes, a tensor's 1 to
   64. The key general.alignment (a U32) sets the alignment of the tensors' data. */
bitnet_result gguf_add_string(gguf_writer *w, const char *name, const char *text);
bitnet_result gguf_add_u32(gguf_writer *w, const char *name, uint32_t v);
bitnet_result gguf_add_f32(gguf_writer *w, const char *name, float v);
bitnet_result gguf_add_bool(gguf_writer *w, const char *name, int v);
bitnet_result gguf_add_i32s(gguf_writer *w, const char *name, const int32_t *v, uint64_t n);
bitnet_result gguf_add_f32s(gguf_writer *w, const char *name, const float *v, uint64_t n);
/* lengths may be 0: then the texts are NUL-terminated. */
bitnet_result gguf_add_strings(gguf_writer *w, const char *name, const char *const *texts,
                               const size_t *lengths, uint64_t n);
/* Any value, such as one of another file. */
bitnet_result gguf_add_value(gguf_writer *w, const char *name, const bitnet_gguf_value *value);
/* dims is [n_dims]: row length, rows, ... The tensor has bitnet_tensor_size bytes. */
bitnet_result gguf_add_tensor(gguf_writer *w, const char *name, uint32_t type, int32_t n_dims,
                              const uint64_t *dims);
/* The same with another number for the type: PQ2_0 as 42, which is also Q2_0's. */
bitnet_result gguf_add_tensor_as(gguf_writer *w, const char *name, uint32_t type, uint32_t number,
                                 int32_t n_dims, const uint64_t *dims);

bitnet_result gguf_write_header(gguf_writer *w);
/* The next n bytes of the current tensor. One call must not run over into the next tensor. */
bitnet_result gguf_write_data(gguf_writer *w, const void *p, size_t n);
/* BITNET_ERR_ARG if bytes of a tensor are missing. Frees what the writer holds. */
bitnet_result gguf_write_end(gguf_writer *w);
/* Frees what the writer holds at any time; w may be 0. err stays. */
void gguf_writer_free(gguf_writer *w);
/* The size of the whole file; 0 before the header is written. */
uint64_t gguf_writer_total(const gguf_writer *w);

#endif
