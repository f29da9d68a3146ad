/* passages.h - cuts a text into passages to search for

   A passage is the longest piece of at most 200 words and 2000 bytes that ends where a paragraph
   does, if that leaves it at least 50 words; else where a sentence does; else behind a word. It
   begins where the one before it ended: passages do not overlap. */
#ifndef EMBED_PASSAGES_H
#define EMBED_PASSAGES_H

#include <stddef.h>

/* Finds the first passage at or behind *at in the n bytes of text, which are UTF-8. Returns its
   size, with *at its beginning; 0: only white space is left. */
size_t passage_next(const char *text, size_t n, size_t *at);

#endif
