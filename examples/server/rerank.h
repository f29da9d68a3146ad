/* rerank.h - documents by how near they are to a query, as Jina's and Cohere's APIs have it

   A model that makes embeddings has one vector for a text, whatever it is compared with. So the
   score of a document is the cosine of its vector and the query's, from -1 to 1; it is no
   probability, as that of a model which reads both texts together would be. rerank.c makes a body
   of /v1/embeddings of one. */
#ifndef SERVER_RERANK_H
#define SERVER_RERANK_H

#include "endpoint.h"

/* See endpoint.h. */
void rerank_read(reader *in, uint64_t seed);
void rerank_vector(buffer *out, const request *r, const float *vector);
void rerank_whole(buffer *out, const request *r, choice *choices);

#endif
