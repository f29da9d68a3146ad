/* calls.h - calls of functions in the form that Qwen3.5 and later models write (BITNET_CALL_XML)

       <function=NAME>
       <parameter=P>
       VALUE
       </parameter>
       </function>

   A string is its text as it stands, all else is JSON. So what a value is, the function's JSON
   schema decides: calls.c owns that, for reading, writing and grammars. */
#ifndef SERVER_CALLS_H
#define SERVER_CALLS_H

#include "rules.h"

/* Do the calls of the service's model have this form? */
int calls_are_xml(const service *s);
/* Writes a call; arguments are an object. */
void calls_write(buffer *out, const char *name, const json *j, uint32_t arguments);
/* Can a function or a parameter have this name there? */
int calls_have_name(const char *name);
/* Does this end within a parameter, so that a tag of a call is a part of its value? */
int calls_are_open(const char *text);
/* Reads what stands between the tags of a call. tools: of the chat, an object a line. arguments
   becomes JSON. Returns 0 if it is no call. */
int calls_read(const char *text, size_t n, const char *tools, buffer *name, buffer *arguments);
/* Adds the rules of a call of function number n to out, an alternative to its calls, and the
   schemas that these name to its defs. keeps: values keep to the function's parameters. They are in
   the defs already, by the number n and under this $id. */
void calls_add_rules(reader *in, uint32_t function, unsigned n, int keeps, const char *id,
                     rules *out);
/* Rules that those need, and schemas. */
void calls_add_common(buffer *out);
void calls_add_defs(buffer *out);

#endif
