/* fields.h - the fields of a request's body: their values, and why a request is refused

   fields.c owns how numbers, flags and strings are read, and the table of fields that would change
   the result and cannot be. What is not in a body leaves the value as it was. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "request.h"

/* A body that is being read. After the first error nothing more is. */
typedef struct reader {
    json j;
    request *r;
    http_error error;                  /* the first one */
    size_t n_bytes;                    /* of all texts that were tokenized */
} reader;

static inline int failed(const reader *in) { return in->error.status != 0; }

/* How bodies of OpenAI's endpoints are read: see endpoint.h. */
void request_read_chat(reader *in, uint64_t seed);
void request_read_completion(reader *in, uint64_t seed);
void request_read_embeddings(reader *in, uint64_t seed);

/* ---- failures ---- */

http_error refuse_none(void);
/* param 0: no field is to blame. */
#ifdef __GNUC__                        /* the compiler checks the arguments */
__attribute__((format(printf, 3, 4)))
#endif
http_error refuse(int status, const char *param, const char *format, ...);
http_error refuse_memory(void);
http_error refuse_library(bitnet_result r, const char *param, const char *text);
/* The reader's error, unless it has one. */
void refuse_field(reader *in, const char *field, const char *what);

/* Refuses the fields that cannot be in a body of this kind, one of these. */
enum { CHATS = 1, COMPLETIONS = 2, EMBEDDINGS = 4 };
void refuse_impossible(reader *in, int where);

/* ---- values ---- */

/* A field of the body itself; 0: it has none. */
uint32_t field_get(const reader *in, const char *name);
/* A number from low to high, or what it was if the field is missing. */
void field_float(reader *in, const char *name, double low, double high, float *out);
void field_int(reader *in, const char *name, int32_t low, int32_t high, int32_t *out);
int field_bool(reader *in, uint32_t object, const char *name);
/* The same of one that is true where it is missing. */
int field_bool_or_true(reader *in, const char *name);

double node_number(const json *j, uint32_t node);
/* The text of a string, which has no NUL inside; 0 if it is none. */
const char *node_string(const reader *in, uint32_t node);

#endif
