/* rules.h - what a reply has to keep to: structured output, and calls of tools

   rules.c owns the fields that say it (response_format, grammar, tools, tool_choice ...), and makes
   the one grammar of them that the engine's texts get. */
#ifndef SERVER_RULES_H
#define SERVER_RULES_H

#include "fields.h"

/* A JSON schema or a grammar, and the field that it came from, of which there can be one. */
typedef struct rules {
    const char *field;                 /* 0: none yet */
    buffer text;
    int is_schema;
} rules;

/* The tools of a chat; those that must be called become rules. */
void rules_read_tools(reader *in, rules *keeps_to);
/* All other fields that can say it. */
void rules_read(reader *in, rules *out);
/* The rules as a grammar, once it is known how the reply begins. */
void rules_compile(reader *in, const rules *from);

#endif
