/* messages.h - the messages of a chat as a prompt

   messages.c owns roles, contents, the assistant's calls of tools, and what a client says of
   thinking. The model's chat template, which the library has, makes the prompt of them. */
#ifndef SERVER_MESSAGES_H
#define SERVER_MESSAGES_H

#include "fields.h"

/* Whether the model is to think. Before messages_read. */
void messages_read_thinking(reader *in);
/* The field messages, as the prompt of all texts. */
void messages_read(reader *in);

#endif
