/* translate.h - bodies of other APIs, made into those of OpenAI's chats, completions and embeddings

   There is one reader of chats, in request.c, whatever the API. An endpoint of another one writes
   the body that means the same, has that read, and an error then names the field that the client
   wrote. translate.c owns how such bodies are written and read. */
#ifndef SERVER_TRANSLATE_H
#define SERVER_TRANSLATE_H

#include "fields.h"

/* A field of the body that is made, and the client's field that it came from. */
typedef struct renamed { const char *from, *to; } renamed;

/* A body that is made, and what its reader calls the fields. */
typedef struct translation {
    reader *in;                        /* the client's body */
    buffer body;                       /* "{" and pairs, each with a comma in front but the first */
    const renamed *names;              /* [n_names] */
    int n_names;
    const char *parameters;            /* what the client calls .function.parameters of a tool; 0:
                                          the same */
} translation;

/* Begins with the client's fields but for those that are null, and those of a list, which ends with
   0. */
void translate_begin(translation *t, reader *in, const char *const *taken);
/* Begins a pair: the caller adds the value. */
void translate_name(translation *t, const char *name);
/* The client's value, if there is one. */
void translate_value(translation *t, const char *name, uint32_t node);
/* Reads the body by an endpoint's function, in place of the client's, which is freed: no node of
   it may be used behind this. */
void translate_read(translation *t, void (*read)(reader *in, uint64_t seed), uint64_t seed);

/* Messages of a chat. What the assistant thinks, says and calls in this order is one message. */
typedef enum chat_part { CHAT_THOUGHT, CHAT_TEXT, CHAT_CALL } chat_part;
typedef struct chat_writer {
    buffer out;                        /* the list, without brackets */
    const char *role, *id;             /* of the message that is open; role 0: none is */
    buffer thought, text, calls;       /* of it; calls without brackets */
    chat_part last;
} chat_writer;
/* Begins a message, if the assistant's that is open cannot have this part behind the last one. id:
   of the call that a tool answers, or 0. */
void chat_open(chat_writer *w, const char *role, const char *id, chat_part part);
/* Adds to its text or thought; `between` comes first if it has any. */
void chat_add(chat_writer *w, const char *text, const char *between);
/* Adds a call; arguments are JSON in a text. */
void chat_call(chat_writer *w, const char *id, const char *name, const char *arguments);
/* The messages as a field of the body; frees them. */
void chat_end(chat_writer *w, translation *t);

#endif
