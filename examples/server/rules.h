/* rules.h - what a reply has to keep to: structured output, and calls of tools

   rules.c owns the fields that say it (response_format, grammar, tools, tool_choice ...), and makes
   the one grammar of them that the engine's texts get. */
#ifndef SERVER_RULES_H
#define SERVER_RULES_H

#include "fields.h"

/* What a reply keeps to; all zero to begin. */
typedef struct rules {
    const char *field;                 /* where the structured output came from; 0: there is none */
    buffer text;                       /* its JSON schema or grammar */
    int is_schema;
    buffer defs;                       /* schemas of the arguments of functions, by their numbers */
    buffer calls;                      /* a call, as alternatives of a grammar that name these */
    const char *strict;                /* what asks that each call keeps to them, though none must
                                          be: strict, or tool_choice; 0: nothing */
} rules;

/* The tools of a chat, and what calls of them keep to. */
void rules_read_tools(reader *in, rules *out);
/* All fields of structured output. */
void rules_read(reader *in, rules *out);
/* The rules as a grammar, once it is known how the reply begins. */
void rules_compile(reader *in, const rules *from);
void rules_free(rules *r);
/* A string in a grammar. */
void rules_add_literal(buffer *out, const char *p);

#endif
