/* conversation.h - all tokens of a text or chat, in order, and how the context follows them

   The context has evaluated the first bitnet_seq_length() of them, and the next one may be pending
   in it; the next reply starts by evaluating the rest. A plain text is a conversation of one turn,
   its prompt. A turn is a message and its reply. */
#ifndef GENERATE_CONVERSATION_H
#define GENERATE_CONVERSATION_H

#include "generate.h"

extern bitnet_token *tokens;           /* room for a full context, the pending token and an end */
extern int32_t n_tokens;
extern int32_t *turns, n_turns;        /* where each turn starts */
extern int32_t n_system;               /* BOS and the system message */
extern int32_t n_keep;                 /* never dropped: n_system tokens, or more with --keep */
extern const char *echo;               /* a prompt to be repeated once it is evaluated */
extern bitnet_stop why;
extern bitnet_chat_params chat;
extern bitnet_reply reply;             /* its parts: thinking is shown in another colour */

extern int n_prompt, n_new;            /* tokens, for the statistics */
extern int drafts, drafted, accepted;  /* of prompt lookup */
extern double prompt_seconds, new_seconds;
extern double started;                 /* when the work began that is under way */

int allocate_conversation(void);
/* Starts again after the system message, if there is one. */
int begin_conversation(void);
/* Adds a message, or a text's prompt, and returns GO_ON. If it does not fit, this prints a line,
   changes nothing and returns 1. */
int add_turn(const char *text);
/* Finds the turns in tokens that were loaded. What differs from this chat's system message, or is
   the end of a reply whose beginning was dropped, is a turn of its own. */
void find_turns(void);
/* Removes the last turn, to which there is no reply. */
void remove_turn(void);
/* Rewinds the context to what it holds of the conversation's first n tokens. */
void keep_common(int32_t n);

/* Evaluates the tokens that are new to the context and writes the reply. */
bitnet_result stream(void);
/* Writes a piece of a reply. text 0: what was held back comes out. */
int put_reply(const char *text, size_t n);
/* The callbacks of the two. */
int on_text(void *ud, const char *s, size_t n, bitnet_token t);
int on_prompt(void *ud, uint64_t done, uint64_t total);

#endif
