/* choice.h - one text of a request while the engine writes it: its thinking, text, calls and
   log-probabilities, apart from each other and not yet in the form of an answer */
#ifndef SERVER_CHOICE_H
#define SERVER_CHOICE_H

#include "request.h"

/* A function that the model calls. */
typedef struct call {
    buffer name, arguments;            /* the arguments are JSON, an object */
    size_t text, tokens;               /* so much of the choice's text and tokens is in front */
} call;

/* A text between calls, with the log-probabilities of its tokens, a list without brackets. */
typedef struct text_part {
    const char *p, *tokens;
    size_t n, n_tokens;
} text_part;

/* Bytes of its text, and of its log-probabilities, that have not been divided yet. */
typedef struct late_token { size_t text, entry; } late_token;

/* What one text of a request has given, and the client has not been told yet; all zero to begin. */
typedef struct choice {
    buffer text, thinking;
    call *calls;                             /* [n_calls], complete ones */
    int32_t n_calls, n_told_calls;
    bitnet_reply parts;
    int is_divided;                          /* parts is ready */
    buffer raw;                              /* as it was written: what parts holds back, or a call
                                                that is being written, with its tag; of an echo, a
                                                character whose end is still to come */
    size_t n_told;                           /* of raw: the client has written it itself */
    size_t inside;                           /* where in raw the call's tag ends */
    int seems_call;                          /* its text begins as that of a call: with { or [, or
                                                as in calls.h */
    int n_open;                              /* bytes of such a beginning so far */
    int is_behind_call;                      /* no text has come since a call */
    int is_closed;                           /* nothing more belongs to it */
    buffer tokens, values, best, offsets;    /* lists of log-probabilities, without brackets */
    buffer waiting;                          /* if the request has_items: those of tokens that may
                                                not be text's; text that comes has them */
    size_t own;                              /* where in waiting the last token's begins */
    buffer late, late_entries;               /* before that, where a stop string may begin: tokens
                                                (late_token) whose text is still to come; and their
                                                log-probabilities */
    int has_text;                            /* the last piece has given text */
    size_t length;                           /* characters of all tokens so far, for text_offset */
    bitnet_detok detok;                      /* of these */
    int begun;                               /* the first event was sent */
    size_t counted;                          /* the owner's: choice_bytes when it last looked */

    int32_t n_thinking;                      /* tokens of thinking, so far */
    buffer ids;                              /* tokens as a list without brackets, if the request
                                                has_ids */
    buffer tail;                             /* the bytes of the last tokens, if there are stop
                                                strings that the engine searches for */
    size_t last;                             /* where in tail the last token begins */
    buffer held;                             /* text that may become a stop string, where this
                                                searches for them */
    size_t *begun_stops;                     /* [n_stops] so much of each has come; 0: none yet */
    int32_t stop;                            /* the number of the one that has come, + 1 */

    /* of endpoints whose streams have items: what the client has been told */
    int open;                                /* the kind of the item that is open; 0: none is */
    buffer said, said_tokens;                /* its text and log-probabilities so far */
    buffer items;                            /* the items before it, JSON without brackets */
    int32_t n_items, n_events;               /* begun ones; sent ones */
} choice;

void choice_free(choice *c);
/* What the engine said; see text_piece_fn. */
void choice_add(choice *c, const request *r, engine_text *t, const char *piece, size_t n,
                const token_info *token);
/* The text has ended: what was held back belongs to it. */
void choice_end(choice *c, const request *r);
/* Is there anything that the client has not been told? */
int choice_has_news(const choice *c);
/* The memory that all this needs. */
size_t choice_bytes(const choice *c);
/* The text in front of call k, behind the one before or what the client has been told; k n_calls:
   behind all. */
text_part choice_text(const choice *c, int32_t k);
/* The client has been told all of it. */
void choice_told(choice *c);
/* There was no memory for a part of it: rather no answer than one with gaps. */
int choice_has_failed(const choice *c);
/* What a choice needs to search for stop strings, where the model may think: they do not count in
   that. Then the engine's texts have none. For free; 0: there is no memory. */
size_t *choice_stop_links(const bitnet_text *stops, int32_t n);
/* The number of the stop string that has ended the text; -1: none did. */
int32_t choice_stop(const choice *c, const request *r);
/* Adds the id of call k of choice i, which has no quotes. */
void choice_call_id(buffer *out, const request *r, int32_t i, int32_t k);

#endif
