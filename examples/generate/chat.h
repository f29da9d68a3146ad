/* chat.h - replies, the commands of a chat, and its loop */
#ifndef GENERATE_CHAT_H
#define GENERATE_CHAT_H

/* Evaluates the turn that was added and writes the reply. */
int respond(void);
/* Lines from stdin and the model's replies, until one of them ends the program. */
int converse(void);

#endif
