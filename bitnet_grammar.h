/* bitnet_grammar.h - text that keeps to a grammar or a JSON schema, for bitnet.h; MIT licence

   In *one* C or C++ file write
       #define BITNET_GRAMMAR_IMPLEMENTATION
       #include "bitnet_grammar.h"
   and include it without the macro everywhere else. It needs bitnet.h beside it, or bitnet_all.h
   included before it, and only its public interface. BITNET_GRAMMAR_API stands in front of the
   functions, like BITNET_API.

       static bitnet_result write_json(const bitnet_model *model, bitnet_ctx *ctx,
                                       const char *schema, bitnet_generate_params *gen,
                                       bitnet_error *err) {
           bitnet_grammar *grammar = NULL;
           bitnet_matcher *matcher = NULL;
           bitnet_sampler sampler;
           bitnet_result r = bitnet_grammar_json_schema(model, schema, strlen(schema), NULL,
                                                        &grammar, err);
           if (r == BITNET_OK) r = bitnet_matcher_create(grammar, NULL, &matcher, err);
           memset(&sampler, 0, sizeof sampler);
           sampler.mask_fn = bitnet_matcher_mask;
           sampler.chosen_fn = bitnet_matcher_chosen;
           sampler.mask_ud = sampler.chosen_ud = matcher;
           gen->sampler = &sampler;
           if (r == BITNET_OK) r = bitnet_generate(ctx, gen, NULL, err);
           bitnet_matcher_free(matcher);
           bitnet_grammar_free(grammar);
           return r;
       }

   A grammar is compiled once; each text that is being written needs a matcher. Before each token
   the sampler asks it which tokens fit, and tells it which was chosen. So whatever the model wants,
   what is written is always the beginning of a text of the grammar, and valid UTF-8 where
   characters end. End tokens (bitnet_token_is_end) fit exactly where the text may end. A text that
   max_tokens cuts is incomplete: bitnet_matcher_state says so. bitnet_matcher_reset begins the next
   text, and keeps what the matcher has learnt.

   GRAMMARS
   --------
   llama.cpp's GBNF. The rule root is the whole text. A rule ends with its line, but not inside of
   parentheses, after ::= or |, or before a line that begins with |. An alternative may be empty,
   also the first one. Lines end with LF, CR LF or CR; a byte order mark before the text is passed
   over.

       name ::= ...        a rule; names have letters, digits, - and _
       "text"              these characters; \" \\ \n \r \t \[ \] \- \xHH \uHHHH \UHHHHHHHH
       [a-z_] [^a-z]       one character of these, or any other; the same escapes
       .                   any character
       a b, a | b, (a b)   one after the other, either, a group
       a* a+ a?            any number, one or more, none or one
       a{3} a{3,} a{3,5}   so many times, at most a million
       <name> <[123]>      a token by its text (with < and >) or its number: also special ones
       !<name> !<[123]>    any other token that is not special, and holds only whole characters
       # ...               a comment

   What differs from llama.cpp: a rule must be defined once; a range backwards, an empty class and
   left recursion are errors; alternatives that can never end are left out; a bounded repetition is
   exactly what it says. . and [^...] never match U+0000, as there.

   JSON SCHEMAS
   ------------
   What comes out is JSON that a validator accepts. A keyword that is known to bind values and
   cannot be kept is refused with BITNET_ERR_UNSUPPORTED, never ignored; keywords of no draft are
   notes. {} is any JSON. Not all that a schema allows can be written: what is left out stands
   below.

       any         type (one or several), nullable, enum, const, anyOf, oneOf, allOf, not, if, then,
                   else, $ref, true, false, {}. A value keeps all that are beside each other, up to
                   64 schemas at once. Without a type it has one that their keywords are about:
                   required alone means objects, bounds or multipleOf alone numbers. Values of enum
                   and const are compared with all keywords.
                   What not, if and the other alternatives of oneOf must not allow is left out by
                   type, listed values, bounds, lengths, patterns, and properties that are missing,
                   there, or of another kind. A listed number, array or object leaves out all of
                   these, and integer all numbers. An alternative that cannot be told apart from
                   others is not written; if none can, it is refused.
       object      properties, in their order; required; additionalProperties; patternProperties, up
                   to 16; propertyNames; unevaluatedProperties true or false; minProperties and
                   maxProperties; dependentRequired, dependentSchemas, dependencies
                   Without additionalProperties there are no others (as in llama.cpp), unless
                   properties and patternProperties are not there either. Other keys count as one
                   for minProperties. Of more than three patterns a key matches one at most. Of more
                   than three dependencies all hold, or none of their properties is there; beside
                   unevaluatedProperties false all are there that have schemas, or none.
       array       items, prefixItems, items [...] and additionalItems, unevaluatedItems true or
                   false; minItems, maxItems; contains, whose items are the first ones, minContains,
                   maxContains; uniqueItems: of an enum's values each is written once at most, in
                   the enum's order; of other items there is one at most, and minItems over 1 is
                   refused
                   Items that are listed one by one must be there, and without a schema for others
                   there are no others, unless minItems asks for them. unevaluatedItems false allows
                   no others than its own schema lists.
       string      minLength and maxLength, in code points; pattern; format: date, time, date-time,
                   duration, email, hostname, ipv4, ipv6, uri, uri-reference, uri-template, url,
                   uuid, json-pointer, relative-json-pointer, json-pointer-uri-fragment, regex, byte
                   (base64), iso-time, iso-date-time, and idn- and iri forms of these. Several of
                   them are kept together. Of time, date-time, email, hostname, ipv6, uuid, regex
                   and the URIs only usual forms are written: no leap second, no lower-case t or z,
                   no +0100, no urn:uuid:. Other formats are notes, as for validators.
       integer     minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers, or true as in
                   draft 4), up to 2^53; multipleOf, up to 10000; format int8 to int64, uint8 to
                   uint64
       number      the same bounds, up to 10^15. With bounds numbers have no exponent, 15 digits at
                   most, and 6 places behind the point, or one more than the bounds; beyond all
                   bounds those that have no room for so many places, from 10^9 on, are whole.
                   Without bounds at most 16 digits before and behind the point, exponent to 99.
                   multipleOf makes it an integer, or has up to 4 places: validators divide doubles,
                   and so of 0.01 all up to 100 are written that they find to be multiples (0.29 is
                   none), and beyond that quarters. Formats of integers make it one; float and
                   double say nothing.
       pattern     ECMAScript's, with the flag u: . [] () (?:) (?<name>) | * + ? {m,n} ^ $ \d \w \s
                   \D \W \S and escaped characters; a sign may be escaped without need. It may match
                   anywhere, unless ^ and $ hold it. (?= and (?! only at the beginning, which is
                   then the string's, or behind ^ and a fixed number of characters; (?= also at the
                   end. \p{L} and the like stand for usual characters of theirs, and not where they
                   must not match. \b, \B, \P, lookbehind and references to groups are refused.
                   Some patterns of zod and pydantic have narrower ones instead.
       $ref        #/..., a JSON pointer in the fragment of a URI, with %XX and then ~0 and ~1
                   decoded, from the nearest $id on; #name, an $anchor; an $id in the schema.
                   $dynamicRef and $recursiveRef to the root.
       notes       all other keywords, such as title, default, examples, $defs, discriminator, x-...

   Refused, among others: references to other files; not, if or oneOf with what no keyword above can
   break, as not {"format": ...}; keywords of draft 3. White space is llama.cpp's: none, a
   blank, or one or two newlines and up to 20 blanks or tabs, between the tokens of JSON but not at
   the end.

   BOUNDS
   ------
   A grammar has at most 2^20 bytes, groups and JSON nest at most 64 deep, and a schema has at most
   20000 values. Compiling takes time in proportion to the text, but for what a schema compares with
   each other: alternatives, schemas that must not hold and the ways to break them, properties in
   allOf, names of properties beside others or patterns. These steps are counted, too, and a grammar
   that needs more than max_work is refused with BITNET_ERR_LIMIT. The default is at most half a
   second (server CPU, gcc 12 -O2); a GBNF grammar of 2^20 bytes takes 0.06 s. No name or reference
   is looked up in more steps than it has bits. Repetitions cost nothing, and what is compiled is
   limited by max_nodes. At most 32 schemas at once must not hold, and where the ways to break them
   would make more than 64 alternatives, only the first way is written.

   A pattern that is alone is as cheap. Beside another one, a format, or a length that it does not
   keep by itself, and if ^ or $ is inside of it, what is left of all of them is found: at most 2^15
   states for each string. Where each length is a state of its own, maxLength may become smaller for
   that, and minLength must fit, else BITNET_ERR_LIMIT. Patterns whose repetitions are large or
   inside of each other, (a{100}){100}, are over that limit, too. A maxLength or maxItems over 10^9
   is 10^9; a minLength or minItems, and in patterns a count, is a million at most.

   A matcher never allocates. Rules inside of each other, and repetitions, take a level of max_depth
   each; JSON takes two or three for each of its own. What would not fit is not allowed, early
   enough that the text can end: the shortest way out of every rule is known. An ambiguous grammar
   reads a text in several ways at once; beyond max_ways the later ones are dropped. All ways that
   are kept lead to an end, so a text can always go on, but not to everything that the grammar
   allows. Bytes that alone are no token of the vocabulary (its end tokens do not count) are passed
   inside of longer tokens, but only where the text can end without them; a grammar none of whose
   texts can is refused. Only where rules begin with each other in thousands of steps, more than
   4 * (max_ways + max_depth) before the first byte, can all ways be lost: BITNET_MATCHER_STUCK.
   Hostile grammars cannot make a mask take longer than about 2^20 steps and the 256 single bytes:
   with the defaults and 128000 tokens at most 0.05 s (server CPU, gcc 12 -O2) was seen. After that
   the mask allows a long token only if the bytes have been looked at before. For such grammars
   alone, what is allowed depends on what the matcher has seen before. Masks of usual grammars took
   300 steps in the median, 21000 at most in 99 of 100, and 102000 at most (65000 masks of 2400
   schemas). Where others wait for the same thread, bitnet_matcher_prepare makes masks in parts.

   COSTS
   -----
   A mask is the result of a walk over the vocabulary's bytes, which form a tree, with states that
   are found once and remembered; and the masks of the last max_masks states are kept. With the
   128256 tokens of Llama 3 (server CPU, gcc 12 -O2, one thread) a JSON grammar's mask takes 1.5 us
   in the median and up to 0.7 ms when a state is met for the first time: inside of a string, which
   nearly all tokens continue, 0.2 to 0.7 ms, at keys, numbers and punctuation under 0.1 ms. In
   strings with a maxLength each position is such a first time: 0.2 ms in the median, and where a
   pattern is kept beside it, 1.3 ms. The slowest mask of a usual grammar took 2.1 ms, and 1.0 ms
   without such strings; 5 % of a token of BitNet b1.58-2B-4T are 1.3 ms. Compiling takes
   0.1 s, nearly all of it for the table of the vocabulary (8.8 MB), and 1 ms with `like`; a matcher
   takes 4 MB. */
#ifndef BITNET_GRAMMAR_H
#define BITNET_GRAMMAR_H

#ifndef BITNET_ALL_H                   /* bitnet.h in one file with its kernels */
  #include "bitnet.h"
#endif

/* The version is in the symbols, as in bitnet.h. */
#define bitnet_grammar_gbnf bitnet_grammar_gbnf_v1
#define bitnet_grammar_json_schema bitnet_grammar_json_schema_v1
#define bitnet_grammar_free bitnet_grammar_free_v1
#define bitnet_grammar_bytes bitnet_grammar_bytes_v1
#define bitnet_matcher_bytes bitnet_matcher_bytes_v1
#define bitnet_matcher_create bitnet_matcher_create_v1
#define bitnet_matcher_free bitnet_matcher_free_v1
#define bitnet_matcher_reset bitnet_matcher_reset_v1
#define bitnet_matcher_copy bitnet_matcher_copy_v1
#define bitnet_matcher_accept bitnet_matcher_accept_v1
#define bitnet_matcher_state bitnet_matcher_state_v1
#define bitnet_matcher_prepare bitnet_matcher_prepare_v1
#define bitnet_matcher_mask bitnet_matcher_mask_v1
#define bitnet_matcher_chosen bitnet_matcher_chosen_v1

/* In front of every public function; see BITNET_API in bitnet.h. */
#ifndef BITNET_GRAMMAR_API
  #define BITNET_GRAMMAR_API BITNET_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =============================================================================================
   @api  everything public
   ============================================================================================= */

/* A compiled grammar: never changes, and any number of threads and matchers may share it. */
typedef struct bitnet_grammar bitnet_grammar;
/* Where one text is in its grammar: used by one thread at a time. */
typedef struct bitnet_matcher bitnet_matcher;

/* All zero means defaults. As in bitnet.h, reserved words must be 0, or the call is
   BITNET_ERR_ARG. */
typedef struct bitnet_grammar_params {
    bitnet_allocator allocator;  /* of all that the grammar keeps, and for the call; 0: malloc */
    /* A grammar of the same model, or 0. The new one uses its table of the vocabulary, which saves
       most of the time and memory, and must be freed before it. */
    const bitnet_grammar *like;
    int32_t max_nodes;           /* how large a grammar may become, 16 .. 2^24; 0: 2^20 */
    int32_t max_work;            /* steps that compiling may take, from 1000 on; 0: 2^26 */
    /* GBNF rules around what is compiled, which is their rule root; the whole text is their rule
       text. Their names are their own; def-NAME is the schema NAME of a JSON schema's $defs, if
       they do not define it, and raw-NAME those of its values that are strings, as they stand:
       without quotes and escapes. Data 0: the whole text is root. */
    bitnet_text around;
    uint64_t reserved[4];
} bitnet_grammar_params;

/* For `around`: the rule thought, for a text that begins inside of thinking. It is any text up to
   the first </think>, which must be a token of the model:

       params.around = bitnet_text_of(BITNET_GRAMMAR_THOUGHT
                                      "text ::= thought \"\\n\\n\" root\n"); */
#define BITNET_GRAMMAR_THOUGHT                                                              \
    "thought ::= ([^<] | thought-part* thought-on)* thought-part* (\"</think>\" | </think>)\n" \
    "thought-part ::= \"<\" (\"/\" (\"t\" (\"h\" (\"i\" (\"n\" \"k\"?)?)?)?)?)?\n"     \
    "thought-on ::= \"<\" [^</] | \"</\" [^<t] | \"</t\" [^<h] | \"</th\" [^<i] |\n"     \
    "               \"</thi\" [^<n] | \"</thin\" [^<k] | \"</think\" [^<>]\n"

/* All zero means defaults. See BOUNDS. */
typedef struct bitnet_matcher_params {
    bitnet_allocator allocator;  /* 0: malloc */
    int32_t max_depth;           /* rules inside of each other, 1 .. 4096; 0: 256 */
    int32_t max_ways;            /* ways to read a text, 1 .. 65536; 0: 1024 */
    int32_t max_states;          /* states remembered, 64 .. 2^20; 0: 4096 */
    int32_t max_masks;           /* masks remembered, 1 .. 65536; 0: 64 */
    uint64_t reserved[4];
} bitnet_matcher_params;

typedef enum bitnet_matcher_status {
    BITNET_MATCHER_OPEN = 0,     /* the text is incomplete */
    BITNET_MATCHER_MAY_END,      /* it is complete, and can also go on */
    BITNET_MATCHER_COMPLETE,     /* it is complete, and nothing but an end token may follow */
    BITNET_MATCHER_ENDED,        /* an end token was accepted: nothing may follow */
    BITNET_MATCHER_STUCK,        /* incomplete, and no token fits: see BOUNDS */
    BITNET_MATCHER_REFUSED       /* bitnet_matcher_chosen got a token that does not fit */
} bitnet_matcher_status;

/* Compiles a grammar of n bytes. params and err may be 0. The model must outlive it.
   BITNET_ERR_FORMAT: err says what is wrong, with line and column. BITNET_ERR_UNSUPPORTED: it uses
   what is not supported. BITNET_ERR_LIMIT: it is over a limit, see BOUNDS. BITNET_ERR_ARG,
   BITNET_ERR_MEMORY. */
BITNET_GRAMMAR_API bitnet_result bitnet_grammar_gbnf(const bitnet_model *m, const char *text,
                                                     size_t n, const bitnet_grammar_params *params,
                                                     bitnet_grammar **out, bitnet_error *err);

/* Compiles a JSON schema of n bytes in the same way. */
BITNET_GRAMMAR_API bitnet_result bitnet_grammar_json_schema(const bitnet_model *m, const char *text,
                                                            size_t n,
                                                            const bitnet_grammar_params *params,
                                                            bitnet_grammar **out,
                                                            bitnet_error *err);

/* Frees a grammar, after its matchers and those that are like it. g may be 0. */
BITNET_GRAMMAR_API void bitnet_grammar_free(bitnet_grammar *g);

/* The bytes that a grammar holds, and what a matcher of it would (params may be 0; 0: they are out
   of range, or reserved words are not 0). */
BITNET_GRAMMAR_API size_t bitnet_grammar_bytes(const bitnet_grammar *g);
BITNET_GRAMMAR_API size_t bitnet_matcher_bytes(const bitnet_grammar *g,
                                               const bitnet_matcher_params *params);

/* Creates a matcher at the beginning of a text, with all memory that it will ever use. params and
   err may be 0. The grammar must outlive it. BITNET_ERR_ARG: err names the parameter.
   BITNET_ERR_LIMIT: every text of the grammar needs more than max_depth, or its rules begin with
   each other too often for max_ways. BITNET_ERR_MEMORY. */
BITNET_GRAMMAR_API bitnet_result bitnet_matcher_create(const bitnet_grammar *g,
                                                       const bitnet_matcher_params *params,
                                                       bitnet_matcher **out, bitnet_error *err);

/* Frees a matcher, which may be 0. */
BITNET_GRAMMAR_API void bitnet_matcher_free(bitnet_matcher *m);
/* Begins a new text. */
BITNET_GRAMMAR_API void bitnet_matcher_reset(bitnet_matcher *m);

/* Puts one matcher where another one is. BITNET_ERR_ARG: they are not of one grammar.
   BITNET_ERR_LIMIT: the first has smaller limits, too small for this; it is as before. */
BITNET_GRAMMAR_API bitnet_result bitnet_matcher_copy(bitnet_matcher *to,
                                                     const bitnet_matcher *from);

/* The text goes on with a token. BITNET_ERR_ARG: the token does not fit; nothing has changed. */
BITNET_GRAMMAR_API bitnet_result bitnet_matcher_accept(bitnet_matcher *m, bitnet_token t);
/* How the text stands. */
BITNET_GRAMMAR_API bitnet_matcher_status bitnet_matcher_state(const bitnet_matcher *m);

/* Makes the mask that comes next, or a part of it: for a thread that must not stop for long. It
   takes about *steps, each of about 20 ns, and *steps becomes what is left of them. That is less
   than 0 if the last part of the mask took more, by 2^17 at most, or if the token before it did.
   Returns 1 if the mask is there; if not, another call goes on with it. The mask does not depend on
   the parts. */
BITNET_GRAMMAR_API int bitnet_matcher_prepare(bitnet_matcher *m, int32_t *steps);
/* For bitnet_sampler.mask_fn: sets the bits of the tokens that fit in allowed [(n_vocab + 31) /
   32]. matcher is a bitnet_matcher. */
BITNET_GRAMMAR_API void bitnet_matcher_mask(void *matcher, uint32_t *allowed);
/* For bitnet_sampler.chosen_fn: bitnet_matcher_accept; a token that does not fit makes the status
   BITNET_MATCHER_REFUSED, and from then on nothing fits. */
BITNET_GRAMMAR_API void bitnet_matcher_chosen(void *matcher, bitnet_token t);

#ifdef __cplusplus
}
#endif

#endif /* BITNET_GRAMMAR_H */

/* End of the interface. */

#ifdef BITNET_GRAMMAR_IMPLEMENTATION
#ifndef BITNET_GRAMMAR__IMPLEMENTED

/* Warnings of what is meant here are off up to the end of the implementation; see bitnet.h. */
#if defined(__GNUC__) || defined(__clang__)
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wpragmas"
  #pragma GCC diagnostic ignored "-Wunknown-warning-option"
  #pragma GCC diagnostic ignored "-Wstrict-overflow"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=malloc"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=cold"
  #pragma GCC diagnostic ignored "-Winline"
  #pragma GCC diagnostic ignored "-Wnull-dereference"
  #pragma GCC diagnostic ignored "-Wstack-protector"
  #pragma GCC diagnostic ignored "-Wformat-truncation"
  #pragma GCC diagnostic ignored "-Wfloat-equal"
  #pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
  #pragma GCC diagnostic ignored "-Wpadded"
  #pragma GCC diagnostic ignored "-Wcomma"
  #pragma GCC diagnostic ignored "-Wold-style-cast"
  #pragma GCC diagnostic ignored "-Wuseless-cast"
  #pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
  #pragma GCC diagnostic ignored "-Wreserved-identifier"
  #pragma GCC diagnostic ignored "-Wreserved-macro-identifier"
  #pragma GCC diagnostic ignored "-Wc++98-compat-pedantic"
  #pragma GCC diagnostic ignored "-Wunsafe-buffer-usage"
#endif

#define BITNET_GRAMMAR__IMPLEMENTED

/* =============================================================================================
   @setup  includes, types and limits
   ============================================================================================= */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BITNET_GRAMMAR__TEXT = 1 << 20,        /* bytes of a grammar or schema */
    BITNET_GRAMMAR__NESTED = 64,           /* groups, or JSON values, inside of each other */
    BITNET_GRAMMAR__COUNT = 1000000,       /* the largest {n}, minLength ... */
    BITNET_GRAMMAR__MOST = 1000000000,     /* no text has more characters or items */
    BITNET_GRAMMAR__RANGES = 1024,         /* of one class */
    BITNET_GRAMMAR__VALUES = 20000,        /* in a schema */
    BITNET_GRAMMAR__MULTIPLE = 10000,      /* the largest multipleOf */
    BITNET_GRAMMAR__TOKEN_BYTES = 1024,    /* longer tokens are never allowed */
    BITNET_GRAMMAR__DEPTH = 4096,          /* the largest max_depth */
    BITNET_GRAMMAR__WORK = 1 << 20,        /* steps of closures for one mask; see BOUNDS */
    BITNET_GRAMMAR__LOOP_WORK = 1 << 15,   /* the same to find a state's loops */
    BITNET_GRAMMAR__OTHERS = 16            /* bits of a mask for nodes that are no token, / 32 */
};
/* If a node of the tree has fewer than FEW nodes below it, these are looked at one by one; if the
   state's loops are not known yet, fewer than FEW_NEW. Tests have smaller vocabularies. */
#ifndef BITNET_GRAMMAR__FEW
  #define BITNET_GRAMMAR__FEW 32
  #define BITNET_GRAMMAR__FEW_NEW 128
#endif
#define BITNET_GRAMMAR__NEVER 0xFFFFu      /* a depth that no text can have */
#define BITNET_GRAMMAR__NONE 0xFFFFFFFFu
#define BITNET_GRAMMAR__RING 0xFFFFFFFEu
#define BITNET_GRAMMAR__LEAF 0x80000000u   /* in the tree of names */
#define BITNET_GRAMMAR__RULES 0xFFFFFFFFu  /* the space of rules' names; objects': their values */
#define BITNET_GRAMMAR__AROUND 0xFFFFFFFEu /* the same of the rules around */
#define BITNET_GRAMMAR__SETS 0xFFFFFFFDu   /* of sets of schemas */
#define BITNET_GRAMMAR__ANCHORS 0xFFFFFFFCu
#define BITNET_GRAMMAR__LISTS 0x80000000u
/* The parameters, counted from 1, that are printf's format and the first of its values (0: they are
   a va_list). On Windows gcc's own "printf" is Microsoft's. */
#if defined(__clang__)
  #define BITNET_GRAMMAR__FORMAT(text, values) __attribute__((format(printf, text, values)))
#elif defined(__GNUC__)
  #define BITNET_GRAMMAR__FORMAT(text, values) __attribute__((format(gnu_printf, text, values)))
#else
  #define BITNET_GRAMMAR__FORMAT(text, values)
#endif

/* A grammar becomes a graph. A text is a path through it from the root rule's first node to RETURN;
   CALL and REP go through another part of the graph on the way, and then on to their next node.
   Nodes 0 and 1 are the only FAIL and RETURN. */
enum {
    BITNET_GRAMMAR__FAIL, BITNET_GRAMMAR__RETURN,
    BITNET_GRAMMAR__JOIN,        /* next; gone when the grammar is complete */
    BITNET_GRAMMAR__SPLIT,       /* next or alt */
    BITNET_GRAMMAR__BYTES,       /* one byte: min edges, from edge number alt on, sorted; a byte
                                    has one edge at most */
    BITNET_GRAMMAR__TOKEN,       /* the token min, or with max 1 any other */
    BITNET_GRAMMAR__CALL,        /* rule alt, then next. In the end alt is the rule's first node. */
    BITNET_GRAMMAR__REP          /* from alt to RETURN, min to max times (max -1: any), then next */
};
typedef struct bitnet_grammar__node {
    uint32_t type, next, alt;
    int32_t min, max;
} bitnet_grammar__node;
typedef struct bitnet_grammar__edge { uint8_t low, high; uint32_t next; } bitnet_grammar__edge;

/* The tokens' bytes as a tree, in preorder: the parent of a node of depth d (1: first bytes) is the
   last one before it of depth d - 1. */
typedef struct bitnet_grammar__branch {
    uint32_t skip;               /* the node after this one's subtree */
    uint32_t token;              /* the one that ends here; if none does, one of
                                    OTHERS numbers beyond the vocabulary */
    uint16_t depth;
    uint8_t byte;
} bitnet_grammar__branch;

/* What is below a node of the tree, to decide about all of it at once. */
typedef struct bitnet_grammar__below {
    uint32_t ascii[4];           /* the bytes below 128 */
    uint8_t high;                /* 1: there are others */
    uint8_t utf8;                /* bit s: well formed after bytes that left UTF-8 in state s */
    uint16_t chars;              /* most characters to the end of a token: bytes that begin one */
} bitnet_grammar__below;

struct bitnet_grammar {
    const bitnet_model *model;
    bitnet_allocator allocator;
    size_t bytes;                          /* of all blocks */
    bitnet_grammar__node *nodes;
    bitnet_grammar__edge *edges;
    uint16_t *need;                        /* [n_nodes] depth that the shortest way out needs */
    uint8_t *empty;                        /* [n_nodes] RETURN can be reached without a byte */
    uint32_t n_nodes, n_edges, root;
    uint8_t byte_class[256], class_byte[256];
    uint32_t n_classes;                    /* bytes of a class are the same to all edges */
    int owns_tree;
    bitnet_grammar__branch *tree;
    bitnet_grammar__below *below;          /* [n_tree] */
    uint32_t n_tree, longest, n_vocab, n_plain;
    uint8_t single[256];                   /* 1: the byte alone is a token */
    uint32_t *plain;                       /* [words] tokens that are whole characters */
    uint32_t *ends;                        /* [words] end tokens */
};

/* =============================================================================================
   @memory  blocks, arrays that grow, errors
   ============================================================================================= */

enum { BITNET_GRAMMAR__HEAD = 16 };        /* bytes in front that keep the size for free_fn */

static void *bitnet_grammar__alloc(const bitnet_allocator *a, size_t size) {
    char *p;
    if (!a->alloc_fn) return malloc(size ? size : 1);
    if (size > SIZE_MAX - BITNET_GRAMMAR__HEAD) return 0;
    size += BITNET_GRAMMAR__HEAD;
    p = (char *)a->alloc_fn(a->ud, size, 16);
    if (p) memcpy(p, &size, sizeof size);
    return p ? p + BITNET_GRAMMAR__HEAD : 0;
}

static void bitnet_grammar__free(const bitnet_allocator *a, void *p) {
    size_t size;
    if (!p) return;
    if (a->alloc_fn) {
        p = (char *)p - BITNET_GRAMMAR__HEAD;
        memcpy(&size, p, sizeof size);
        a->free_fn(a->ud, p, size);
    } else free(p);
}

/* A fragment: what is read from start to end, a JOIN whose next is not set. */
typedef struct bitnet_grammar__frag { uint32_t start, end; } bitnet_grammar__frag;

typedef struct bitnet_grammar__rule {
    uint32_t name, n_name;                 /* in the pool; of a schema: n_name 0 */
    uint32_t start;                        /* its first node; NONE: not defined */
    uint32_t at;                           /* where it is mentioned first; of a schema: its value */
    uint32_t coarse;                       /* see the builder's; NONE */
} bitnet_grammar__rule;

/* A name in a space of names: the rules, the parts of one object, one list of properties. */
typedef struct bitnet_grammar__name {
    uint32_t space, key, n_key;            /* key: in the pool */
    uint32_t item;                         /* what has the name; NONE: not known yet */
} bitnet_grammar__name;

/* All names are the leaves of a tree, whose forks ask for one bit each: a look-up takes no more
   steps than the name has bits, whatever the names are. */
typedef struct bitnet_grammar__fork {
    uint32_t symbol, bit;                  /* of the name */
    uint32_t to[2];                        /* a fork; LEAF + a name */
} bitnet_grammar__fork;

typedef struct bitnet_grammar__range { uint32_t low, high; } bitnet_grammar__range;

/* A value of a schema. Its parts are a list. */
typedef struct bitnet_grammar__value {
    uint8_t type;
    uint32_t at, size;                     /* in the text */
    uint32_t first, next, parent;          /* values; NONE */
    uint32_t key, n_key, text, n_text;     /* in the pool, NUL-terminated */
    uint32_t n_parts;
    uint32_t keyword;                      /* that its key is, if it is one: from 1 on */
    uint64_t has;                          /* keywords among its parts */
    uint32_t rule;                         /* of the schema that it is; NONE: not yet */
    uint32_t behind;                       /* its $ref, and so on; NONE: not yet, RING: a ring */
    uint32_t target;                       /* what its $ref names */
    uint32_t types;                        /* of what it may allow, as a schema; 0: not yet */
    double number;
} bitnet_grammar__value;

/* Schemas that a value must keep all at once: one, and what its $ref, its allOf, and the
   alternatives that have been chosen add to it. */
enum {
    BITNET_GRAMMAR__TOGETHER = 64,
    BITNET_GRAMMAR__NOT_TOGETHER = 32,     /* that must not hold */
    BITNET_GRAMMAR__CHOICES = 64,          /* ways to break schemas that are looked into */
    /* What is demanded of a value, by a value of the schema: */
    BITNET_GRAMMAR__BROKEN = 1,            /* this keyword does not hold */
    BITNET_GRAMMAR__MISSING,               /* it is an object without the property of this name, */
    BITNET_GRAMMAR__PRESENT,               /* one with a property of this key, */
    BITNET_GRAMMAR__UNKEPT,                /* one whose property with this key breaks this schema */
    BITNET_GRAMMAR__BARRED,                /* if it is an object, it has no property of this key, */
    BITNET_GRAMMAR__DEMANDED               /* it has the properties that this array names */
};
typedef struct bitnet_grammar__all {
    uint32_t v[BITNET_GRAMMAR__TOGETHER];
    uint8_t chosen[BITNET_GRAMMAR__TOGETHER];          /* bit i: of its choice number i */
    uint8_t from[BITNET_GRAMMAR__TOGETHER];            /* what led to it */
    uint32_t no[BITNET_GRAMMAR__NOT_TOGETHER];         /* schemas that must not hold */
    uint32_t demand[BITNET_GRAMMAR__NOT_TOGETHER];     /* what has been chosen to break them */
    uint8_t kind[BITNET_GRAMMAR__NOT_TOGETHER];
    uint32_t n, n_no, n_demands;
    uint32_t n_evaluating;                 /* the first, whose properties are evaluated; 0: all */
    uint32_t ways;                         /* how many alternatives there are, of breaking some */
    int deep;                              /* how often one has been chosen */
    int several;                           /* the first schema does not lead to all others */
    int fails;                             /* one of them is false */
} bitnet_grammar__all;

/* A part of a list. */
typedef struct bitnet_grammar__part { uint32_t item, next; } bitnet_grammar__part;

/* A property of an object, while its schema is compiled. */
typedef struct bitnet_grammar__property {
    uint32_t key, n_key;                   /* in the pool */
    uint32_t first;                        /* of its schemas, in b->parts; NONE: any value */
    uint32_t set;                          /* a bit for each pattern that its key matches */
    int required, barred;                  /* must be there; must not */
    int evaluated;                         /* unevaluatedProperties is not about it */
} bitnet_grammar__property;

/* Several schemas that are one rule: numbers 2 * value, + 1 for a schema that must not hold. */
typedef struct bitnet_grammar__set {
    uint32_t key, n;                       /* in the pool, sorted */
    uint32_t rule;
} bitnet_grammar__set;

typedef struct bitnet_grammar__array { void *p; uint32_t n, cap; } bitnet_grammar__array;

/* All that compiling needs. After the first error nothing more happens: code is not 0. */
typedef struct bitnet_grammar__builder {
    bitnet_grammar *g;
    bitnet_error *err;
    bitnet_result code;
    const char *text;                      /* being read, and where */
    uint32_t n, at;
    uint32_t max_nodes;
    int nested;
    uint32_t work_left, max_work;          /* steps */
    bitnet_grammar__array nodes, edges, rules, ranges;
    bitnet_grammar__array values, pool, properties, bytes, utf8, todo, names, forks, listed;
    uint32_t top;                          /* of the tree of names: a fork or leaf, or NONE */
    uint32_t n_lists;                      /* of properties and the like: spaces from LISTS on */
    uint32_t n_properties;                 /* the list of an object's properties */
    uint32_t n_evaluating;                 /* patterns, which come first, of those that evaluate */
    int evaluates;                         /* the schema does whose properties are being read */
    uint32_t space;                        /* of the rules being read: RULES or AROUND */
    bitnet_grammar__array parts, together, several, patterns;
    /* Of the string whose limits are being built, see patterns. */
    bitnet_grammar__array terms, sets, limits, steps, bounds, kinds, members, states, moves;
    bitnet_grammar__array marks, stack;
    uint32_t n_anchors, stamp, n_kinds;
    int opposite, narrowed, looks;         /* a pattern must not match; matches more than here; has
                                              lookaheads that are limits of their own */
    int raw;                               /* strings are written without quotes and escapes */
    uint32_t pattern;                      /* whose states these are; NONE: of another string */
    uint32_t unbroken;                     /* a schema that must not hold, which cannot be kept; */
    uint32_t coarse;                       /* or only with less than it leaves: a type is missing */
    const char *source;                    /* what the caller gave: places in errors are in it */
    const char *given;                     /* what the rules around are around */
    uint32_t n_source, n_given;
    uint32_t place;                        /* the value that is compiled; NONE: text is read */
} bitnet_grammar__builder;

#define BITNET_GRAMMAR__NODE(b, i) (((bitnet_grammar__node *)(b)->nodes.p)[i])
#define BITNET_GRAMMAR__EDGE(b, i) (((bitnet_grammar__edge *)(b)->edges.p)[i])
#define BITNET_GRAMMAR__RULE(b, i) (((bitnet_grammar__rule *)(b)->rules.p)[i])
#define BITNET_GRAMMAR__VALUE(b, i) (((bitnet_grammar__value *)(b)->values.p)[i])
#define BITNET_GRAMMAR__NAME(b, i) (((bitnet_grammar__name *)(b)->names.p)[i])
#define BITNET_GRAMMAR__FORK(b, i) (((bitnet_grammar__fork *)(b)->forks.p)[i])
#define BITNET_GRAMMAR__RANGE(b, i) (((bitnet_grammar__range *)(b)->ranges.p)[i])
#define BITNET_GRAMMAR__PROPERTY(b, i) (((bitnet_grammar__property *)(b)->properties.p)[i])
#define BITNET_GRAMMAR__PART(b, i) (((bitnet_grammar__part *)(b)->parts.p)[i])
#define BITNET_GRAMMAR__POOL(b, i) ((char *)(b)->pool.p + (i))

/* Each part p of an array or object, up to the first error. NONE has no parts. */
#define BITNET_GRAMMAR__EACH(b, p, list) \
    for (p = bitnet_grammar__first(b, list); p != BITNET_GRAMMAR__NONE && !(b)->code; \
         p = BITNET_GRAMMAR__VALUE(b, p).next)

static uint32_t bitnet_grammar__first(const bitnet_grammar__builder *b, uint32_t list) {
    return list == BITNET_GRAMMAR__NONE ? list : BITNET_GRAMMAR__VALUE(b, list).first;
}

BITNET_GRAMMAR__FORMAT(3, 0)
static void bitnet_grammar__set_error(bitnet_error *err, bitnet_result code, const char *format,
                                      va_list args, const char *before) {
    char line[600];
    int n;
    if (!err) return;
    n = snprintf(line, sizeof line, "%s", before);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    memset(err, 0, sizeof *err);
    err->code = code;
    bitnet_clean_text(line, strlen(line), err->text, sizeof err->text);
}

static void bitnet_grammar__pointer(const bitnet_grammar__builder *b, uint32_t v, char *out,
                                    size_t cap);

/* The first error, at a place of the text (NONE: none). While a schema is compiled, that is its
   value's, with a pointer. Returns an unusable node. */
BITNET_GRAMMAR__FORMAT(4, 5)
static uint32_t bitnet_grammar__fail(bitnet_grammar__builder *b, bitnet_result code, uint32_t at,
                                     const char *format, ...) {
    char before[200] = "", pointer[120] = "";
    const int placed = b->place != BITNET_GRAMMAR__NONE;
    const char *text = placed ? b->given : b->source;
    uint32_t i, line = 1, column = 1, n = placed ? b->n_given : b->n_source;
    va_list args;
    if (b->code) return 0;
    b->code = code;
    if (at != BITNET_GRAMMAR__NONE) {
        if (placed) {
            at = BITNET_GRAMMAR__VALUE(b, b->place).at;
            bitnet_grammar__pointer(b, b->place, pointer, sizeof pointer);
        } else if (b->text != text) at = 0;            /* in rules of our own */
        for (i = 0; i < at && i < n; i++) {            /* columns count characters */
            if (text[i] == '\n') line++, column = 1;
            else if (((uint8_t)text[i] & 0xC0) != 0x80) column++;
        }
        snprintf(before, sizeof before, "line %u, column %u: %s%s", (unsigned)line,
                 (unsigned)column, pointer, placed ? ": " : "");
    }
    va_start(args, format);
    bitnet_grammar__set_error(b->err, code, format, args, before);
    va_end(args);
    return 0;
}

static bitnet_grammar__frag bitnet_grammar__wrong(bitnet_grammar__builder *b, bitnet_result code,
                                                  uint32_t v, const char *what);

/* An error in a rule, or in a schema that became one. */
static void bitnet_grammar__fail_rule(bitnet_grammar__builder *b, bitnet_result code, uint32_t r,
                                      const char *what) {
    const bitnet_grammar__rule *rule = &BITNET_GRAMMAR__RULE(b, r);
    const uint32_t n = rule->n_name > 80 ? 80 : rule->n_name;
    if (n)
        bitnet_grammar__fail(b, code, rule->at, "the rule %.*s %s", (int)n,
                             BITNET_GRAMMAR__POOL(b, rule->name), what);
    else bitnet_grammar__wrong(b, code, rule->at, what);
}

/* Room for n more elements of a size. 0: none. */
static int bitnet_grammar__room(bitnet_grammar__builder *b, bitnet_grammar__array *a, uint32_t n,
                                size_t size) {
    uint32_t cap = a->cap ? a->cap : 64;
    void *p;
    if (b->code) return 0;
    if (a->p && a->cap - a->n >= n) return 1;
    while (cap - a->n < n) {
        if (cap > 1u << 27 || cap > SIZE_MAX / 4 / size) {
            bitnet_grammar__fail(b, BITNET_ERR_LIMIT, BITNET_GRAMMAR__NONE, "too large");
            return 0;
        }
        cap *= 2;
    }
    p = bitnet_grammar__alloc(&b->g->allocator, cap * size);
    if (!p) {
        bitnet_grammar__fail(b, BITNET_ERR_MEMORY, BITNET_GRAMMAR__NONE, "out of memory");
        return 0;
    }
    if (a->n) memcpy(p, a->p, a->n * size);
    bitnet_grammar__free(&b->g->allocator, a->p);
    a->p = p;
    a->cap = cap;
    return 1;
}

/* One more element of an array, all of it 0. 0: none. */
static void *bitnet_grammar__add(bitnet_grammar__builder *b, bitnet_grammar__array *a,
                                 size_t size) {
    return bitnet_grammar__room(b, a, 1, size) ? memset((char *)a->p + a->n++ * size, 0, size) : 0;
}

static void bitnet_grammar__push(bitnet_grammar__builder *b, bitnet_grammar__array *a, uint32_t x) {
    uint32_t *p = (uint32_t *)bitnet_grammar__add(b, a, sizeof x);
    if (p) *p = x;
}

/* Counts steps of compiling. All loops whose time is not in proportion to the text do it. */
static void bitnet_grammar__spend(bitnet_grammar__builder *b, uint64_t steps) {
    if (steps <= b->work_left) b->work_left -= (uint32_t)steps;
    else
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "compiling takes more than %u steps",
                             (unsigned)b->max_work);
}

/* Appends bytes to an array of them. */
static void bitnet_grammar__put(bitnet_grammar__builder *b, bitnet_grammar__array *a,
                                const void *p, uint32_t n) {
    bitnet_grammar__spend(b, n);
    if (!bitnet_grammar__room(b, a, n, 1)) return;
    memcpy((char *)a->p + a->n, p, n);
    a->n += n;
}

/* =============================================================================================
   @names  of rules, keys and properties, in one tree
   ============================================================================================= */

/* The symbol i of a name: four of its space, its bytes, and then zeros. */
static uint32_t bitnet_grammar__symbol(uint32_t space, const char *key, uint32_t n, uint32_t i) {
    if (i < 4) return 256 | (space >> 8 * i & 255);
    return i - 4 < n ? 256 | (uint8_t)key[i - 4] : 0;
}

/* The name that is the same as a key for as long as any is; NONE: there are no names. */
static uint32_t bitnet_grammar__nearest(bitnet_grammar__builder *b, uint32_t space,
                                        const char *key, uint32_t n) {
    uint32_t at = b->top, steps = 4;
    while (at < BITNET_GRAMMAR__LEAF) {
        const bitnet_grammar__fork *f = &BITNET_GRAMMAR__FORK(b, at);
        at = f->to[(bitnet_grammar__symbol(space, key, n, f->symbol) & f->bit) != 0];
        steps++;
    }
    bitnet_grammar__spend(b, steps + n / 16);
    return b->code || at == BITNET_GRAMMAR__NONE ? BITNET_GRAMMAR__NONE
                                                 : at - BITNET_GRAMMAR__LEAF;
}

/* What has a name of n bytes in a space, or NONE. */
static uint32_t bitnet_grammar__look_up(bitnet_grammar__builder *b, uint32_t space,
                                        const char *key, uint32_t n) {
    const uint32_t i = bitnet_grammar__nearest(b, space, key, n);
    const bitnet_grammar__name *x;
    if (i == BITNET_GRAMMAR__NONE) return i;
    x = &BITNET_GRAMMAR__NAME(b, i);
    return x->space == space && x->n_key == n &&
           (n == 0 || !memcmp(BITNET_GRAMMAR__POOL(b, x->key), key, n))
               ? x->item : BITNET_GRAMMAR__NONE;
}

/* Adds a name, whose key is in the pool, and returns its number; NONE: it is there already. */
static uint32_t bitnet_grammar__add_name(bitnet_grammar__builder *b, uint32_t space, uint32_t key,
                                         uint32_t n, uint32_t item) {
    const uint32_t leaf = BITNET_GRAMMAR__LEAF + b->names.n;
    uint32_t symbol = 0, differ = 0, i, *at = &b->top, other;
    bitnet_grammar__fork *f;
    bitnet_grammar__name *x;
    const char *text;
    if (b->code) return BITNET_GRAMMAR__NONE;  /* then the key may be missing */
    text = BITNET_GRAMMAR__POOL(b, key);
    other = bitnet_grammar__nearest(b, space, text, n);
    if (other != BITNET_GRAMMAR__NONE) {
        x = &BITNET_GRAMMAR__NAME(b, other);
        for (; !differ && symbol < 5 + (n > x->n_key ? n : x->n_key); symbol++)
            differ = bitnet_grammar__symbol(space, text, n, symbol) ^
                     bitnet_grammar__symbol(x->space, BITNET_GRAMMAR__POOL(b, x->key), x->n_key,
                                            symbol);
        if (!differ) return BITNET_GRAMMAR__NONE;
        symbol--;
    }
    if (!bitnet_grammar__room(b, &b->names, 1, sizeof *x) ||
        !bitnet_grammar__room(b, &b->forks, 1, sizeof *f)) return BITNET_GRAMMAR__NONE;
    x = &BITNET_GRAMMAR__NAME(b, b->names.n);
    x->space = space;
    x->key = key;
    x->n_key = n;
    x->item = item;
    if (other != BITNET_GRAMMAR__NONE) {
        while (differ & (differ - 1)) differ &= differ - 1;            /* the highest bit */
        while (*at < BITNET_GRAMMAR__LEAF) {
            f = &BITNET_GRAMMAR__FORK(b, *at);
            if (f->symbol > symbol || (f->symbol == symbol && f->bit < differ)) break;
            at = &f->to[(bitnet_grammar__symbol(space, text, n, f->symbol) & f->bit) != 0];
        }
        f = &BITNET_GRAMMAR__FORK(b, b->forks.n);
        f->symbol = symbol;
        f->bit = differ;
        i = (bitnet_grammar__symbol(space, text, n, symbol) & differ) != 0;
        f->to[i] = leaf;
        f->to[!i] = *at;
        *at = b->forks.n++;
    } else *at = leaf;
    return b->names.n++;
}

/* =============================================================================================
   @graph  nodes and fragments
   ============================================================================================= */

static uint32_t bitnet_grammar__add_node(bitnet_grammar__builder *b, uint32_t type, uint32_t next,
                                         uint32_t alt) {
    bitnet_grammar__node *n;
    if (b->nodes.n >= b->max_nodes)
        return bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at,
                                    "the grammar becomes larger than %u nodes",
                                    (unsigned)b->max_nodes);
    bitnet_grammar__spend(b, 4);
    n = (bitnet_grammar__node *)bitnet_grammar__add(b, &b->nodes, sizeof *n);
    if (!n) return 0;
    n->type = type;
    n->next = next;
    n->alt = alt;
    return b->nodes.n - 1;
}

static uint32_t bitnet_grammar__join(bitnet_grammar__builder *b) {
    return bitnet_grammar__add_node(b, BITNET_GRAMMAR__JOIN, 0, 0);
}

static bitnet_grammar__frag bitnet_grammar__pair(uint32_t start, uint32_t end) {
    bitnet_grammar__frag f;
    f.start = start;
    f.end = end;
    return f;
}

static void bitnet_grammar__link(bitnet_grammar__builder *b, uint32_t end, uint32_t next) {
    if (!b->code) BITNET_GRAMMAR__NODE(b, end).next = next;
}

static bitnet_grammar__frag bitnet_grammar__nothing(bitnet_grammar__builder *b) {
    const uint32_t j = bitnet_grammar__join(b);
    return bitnet_grammar__pair(j, j);
}

static bitnet_grammar__frag bitnet_grammar__failing(bitnet_grammar__builder *b) {
    return bitnet_grammar__pair(0, bitnet_grammar__join(b));
}

static bitnet_grammar__frag bitnet_grammar__seq(bitnet_grammar__builder *b, bitnet_grammar__frag x,
                                                bitnet_grammar__frag y) {
    bitnet_grammar__link(b, x.end, y.start);
    return bitnet_grammar__pair(x.start, y.end);
}

static bitnet_grammar__frag bitnet_grammar__or(bitnet_grammar__builder *b, bitnet_grammar__frag x,
                                               bitnet_grammar__frag y) {
    uint32_t s;
    if (!x.start) return y;                /* it fails */
    if (!y.start) return x;
    s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, x.start, y.start);
    bitnet_grammar__link(b, x.end, y.end);
    return bitnet_grammar__pair(s, y.end);
}

/* f or else g. *last is the SPLIT of f's last alternative, 0 if there is one alone. So a search
   meets the alternatives one after the other, instead of all the SPLITs before the first one. */
static bitnet_grammar__frag bitnet_grammar__or_else(bitnet_grammar__builder *b,
                                                    bitnet_grammar__frag f, bitnet_grammar__frag g,
                                                    uint32_t *last) {
    const uint32_t before = b->code || !*last ? f.start : BITNET_GRAMMAR__NODE(b, *last).alt;
    const uint32_t s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, before, g.start);
    bitnet_grammar__link(b, f.end, g.end);
    if (!b->code && *last) BITNET_GRAMMAR__NODE(b, *last).alt = s;
    else f.start = s;
    *last = s;
    return bitnet_grammar__pair(f.start, g.end);
}

/* x, min to max times; max -1: any number. */
static bitnet_grammar__frag bitnet_grammar__repeat(bitnet_grammar__builder *b,
                                                   bitnet_grammar__frag x, int32_t min,
                                                   int32_t max) {
    uint32_t s, end = bitnet_grammar__join(b);
    if (max == 0) return bitnet_grammar__pair(end, end);
    if (min == 1 && max == 1) return x;
    if (min <= 1 && (max == 1 || max < 0)) {
        s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, x.start, end);
        bitnet_grammar__link(b, x.end, max == 1 ? end : s);
        return bitnet_grammar__pair(min ? x.start : s, end);
    }
    s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__REP, end, x.start);
    bitnet_grammar__link(b, x.end, 1);
    if (!b->code) {
        BITNET_GRAMMAR__NODE(b, s).min = min;
        BITNET_GRAMMAR__NODE(b, s).max = max;
    }
    return bitnet_grammar__pair(s, end);
}

/* Adds an edge to the node that is being built: its edges are the last ones. */
static void bitnet_grammar__add_edge(bitnet_grammar__builder *b, uint32_t low, uint32_t high,
                                     uint32_t next) {
    bitnet_grammar__edge *e;
    if (b->edges.n >= 4 * b->max_nodes) {
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "the grammar becomes too large");
        return;
    }
    e = (bitnet_grammar__edge *)bitnet_grammar__add(b, &b->edges, sizeof *e);
    if (!e) return;
    e->low = (uint8_t)low;
    e->high = (uint8_t)high;
    e->next = next;
}

/* A node of n edges, which are sorted. One of the last few since a node is used again if it is the
   same: characters share their last bytes. */
static uint32_t bitnet_grammar__bytes_node(bitnet_grammar__builder *b,
                                           const bitnet_grammar__edge *edges, uint32_t n,
                                           uint32_t since) {
    uint32_t i = b->nodes.n > since + 64 ? b->nodes.n - 64 : since, k, s;
    for (; i < b->nodes.n && !b->code; i++) {
        const bitnet_grammar__node *x = &BITNET_GRAMMAR__NODE(b, i);
        if (x->type != BITNET_GRAMMAR__BYTES || x->min != (int32_t)n) continue;
        for (k = 0; k < n; k++) {
            const bitnet_grammar__edge *e = &BITNET_GRAMMAR__EDGE(b, x->alt + k);
            if (e->low != edges[k].low || e->high != edges[k].high || e->next != edges[k].next)
                break;
        }
        bitnet_grammar__spend(b, 1 + k);
        if (k == n) return i;
    }
    s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__BYTES, 0, b->edges.n);
    if (!b->code) BITNET_GRAMMAR__NODE(b, s).min = (int32_t)n;
    for (k = 0; k < n; k++)
        bitnet_grammar__add_edge(b, edges[k].low, edges[k].high, edges[k].next);
    return s;
}

static bitnet_grammar__frag bitnet_grammar__byte(bitnet_grammar__builder *b, uint32_t low,
                                                 uint32_t high) {
    bitnet_grammar__edge e;
    e.low = (uint8_t)low;
    e.high = (uint8_t)high;
    e.next = bitnet_grammar__join(b);
    return bitnet_grammar__pair(bitnet_grammar__bytes_node(b, &e, 1, b->nodes.n), e.next);
}

static bitnet_grammar__frag bitnet_grammar__literal(bitnet_grammar__builder *b, const char *s,
                                                    size_t n) {
    bitnet_grammar__frag f = bitnet_grammar__nothing(b);
    size_t i;
    for (i = 0; i < n && !b->code; i++)
        f = bitnet_grammar__seq(b, f, bitnet_grammar__byte(b, (uint8_t)s[i], (uint8_t)s[i]));
    return f;
}

static bitnet_grammar__frag bitnet_grammar__call(bitnet_grammar__builder *b, uint32_t rule) {
    const uint32_t end = bitnet_grammar__join(b);
    return bitnet_grammar__pair(bitnet_grammar__add_node(b, BITNET_GRAMMAR__CALL, end, rule), end);
}

static uint32_t bitnet_grammar__add_rule(bitnet_grammar__builder *b, uint32_t name,
                                         uint32_t n_name, uint32_t at) {
    bitnet_grammar__rule *r =
        (bitnet_grammar__rule *)bitnet_grammar__add(b, &b->rules, sizeof *r);
    if (!r) return 0;
    r->name = name;
    r->n_name = n_name;
    r->start = BITNET_GRAMMAR__NONE;
    r->at = at;
    r->coarse = BITNET_GRAMMAR__NONE;
    return b->rules.n - 1;
}

static void bitnet_grammar__define(bitnet_grammar__builder *b, uint32_t rule,
                                   bitnet_grammar__frag f) {
    bitnet_grammar__link(b, f.end, 1);
    if (!b->code) BITNET_GRAMMAR__RULE(b, rule).start = f.start;
}

/* The rule of a name, n bytes at name, perhaps not defined yet. */
static uint32_t bitnet_grammar__rule_named(bitnet_grammar__builder *b, const char *name,
                                           uint32_t n) {
    uint32_t r = bitnet_grammar__look_up(b, b->space, name, n), key = b->pool.n;
    if (r != BITNET_GRAMMAR__NONE || b->code) return r;
    bitnet_grammar__put(b, &b->pool, name, n);
    r = bitnet_grammar__add_rule(b, key, n, b->at);
    bitnet_grammar__add_name(b, b->space, key, n, r);
    return r;
}

/* =============================================================================================
   @classes  sets of characters, as bytes of UTF-8
   ============================================================================================= */

static void bitnet_grammar__add_range(bitnet_grammar__builder *b, uint32_t low, uint32_t high) {
    bitnet_grammar__range *r;
    if (low > high) return;
    if (b->ranges.n >= BITNET_GRAMMAR__RANGES) {
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "a class of over %d ranges",
                             (int)BITNET_GRAMMAR__RANGES);
        return;
    }
    r = (bitnet_grammar__range *)bitnet_grammar__add(b, &b->ranges, sizeof *r);
    if (!r) return;
    r->low = low;
    r->high = high > 0x10FFFF ? 0x10FFFF : high;
}

/* Of numbers, or of ranges: by their first numbers. */
static int bitnet_grammar__compare_numbers(const void *x, const void *y) {
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Sorts the ranges and merges those that touch. */
static void bitnet_grammar__sort_ranges(bitnet_grammar__builder *b) {
    bitnet_grammar__range *r = (bitnet_grammar__range *)b->ranges.p;
    uint32_t i, n = 0;
    bitnet_grammar__spend(b, 16 * (uint64_t)b->ranges.n);
    if (b->code || !b->ranges.n) return;
    qsort(r, b->ranges.n, sizeof *r, bitnet_grammar__compare_numbers);
    for (i = 0; i < b->ranges.n; i++) {
        if (n > 0 && r[i].low <= r[n - 1].high + 1) {
            if (r[i].high > r[n - 1].high) r[n - 1].high = r[i].high;
        } else r[n++] = r[i];
    }
    b->ranges.n = n;
}

/* The first n ranges go. */
static void bitnet_grammar__drop_ranges(bitnet_grammar__builder *b, uint32_t n) {
    bitnet_grammar__range *r = (bitnet_grammar__range *)b->ranges.p;
    if (b->code) return;
    memmove(r, r + n, (b->ranges.n - n) * sizeof *r);
    b->ranges.n -= n;
}

/* The characters that the ranges lack, from low on. */
static void bitnet_grammar__negate(bitnet_grammar__builder *b, uint32_t low) {
    uint32_t i, n;
    bitnet_grammar__sort_ranges(b);
    n = b->ranges.n;
    for (i = 0; i < n && !b->code; i++) {
        const bitnet_grammar__range x = BITNET_GRAMMAR__RANGE(b, i);
        if (x.high < low) continue;
        if (x.low > low) bitnet_grammar__add_range(b, low, x.low - 1);
        low = x.high + 1;
    }
    bitnet_grammar__add_range(b, low, 0x10FFFF);
    bitnet_grammar__drop_ranges(b, n);
}

static uint32_t bitnet_grammar__encode(uint32_t cp, uint8_t out[4]) {
    const uint32_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    uint32_t i;
    for (i = n - 1; i > 0; i--, cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 63));
    out[0] = (uint8_t)(n == 1 ? cp : (0xF00u >> n & 0xFF) | cp);   /* 2: C0, 3: E0, 4: F0 */
    return n;
}

/* Characters that are n bytes of UTF-8, in ranges in which each byte is free of the others. */
typedef struct bitnet_grammar__bytes { uint8_t n, low[4], high[4]; } bitnet_grammar__bytes;

/* Adds the characters low .. high, which have the same number of bytes, to b->bytes. */
static void bitnet_grammar__utf8_range(bitnet_grammar__builder *b, uint32_t low, uint32_t high) {
    bitnet_grammar__bytes *out;
    uint32_t i, m;
    uint8_t l[4];
    const uint32_t n = bitnet_grammar__encode(low, l);
    for (i = 1; i < n; i++) {
        m = (1u << 6 * i) - 1;
        if ((low & ~m) == (high & ~m)) continue;
        if (low & m) {
            bitnet_grammar__utf8_range(b, low, low | m);
            bitnet_grammar__utf8_range(b, (low | m) + 1, high);
            return;
        }
        if ((high & m) != m) {
            bitnet_grammar__utf8_range(b, low, (high & ~m) - 1);
            bitnet_grammar__utf8_range(b, high & ~m, high);
            return;
        }
    }
    bitnet_grammar__spend(b, 1);
    out = (bitnet_grammar__bytes *)bitnet_grammar__add(b, &b->utf8, sizeof *out);
    if (!out) return;
    out->n = (uint8_t)n;
    memcpy(out->low, l, sizeof l);
    bitnet_grammar__encode(high, out->high);
}

/* The node of the byte `level` of b->utf8[i] .. [to - 1]. These are sorted, and two first bytes are
   either one byte or differ: each byte leads to one node. since: the class's own nodes begin
   there. */
static uint32_t bitnet_grammar__class_node(bitnet_grammar__builder *b, uint32_t i, uint32_t to,
                                           uint32_t level, uint32_t end, uint32_t since) {
    bitnet_grammar__edge edges[256];
    uint32_t k, n = 0;
    while (i < to && !b->code) {
        const bitnet_grammar__bytes x = ((bitnet_grammar__bytes *)b->utf8.p)[i];
        for (k = i + 1; k < to; k++)
            if (((bitnet_grammar__bytes *)b->utf8.p)[k].low[level] != x.low[level]) break;
        edges[n].low = x.low[level];
        edges[n].high = x.high[level];
        edges[n++].next = level + 1 == x.n ? end
            : bitnet_grammar__class_node(b, i, k, level + 1, end, since);
        i = k;
    }
    return bitnet_grammar__bytes_node(b, edges, n, since);
}

/* One character of the ranges; surrogates are none. */
static bitnet_grammar__frag bitnet_grammar__class_frag(bitnet_grammar__builder *b) {
    static const uint32_t sizes[] = {0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x110000};
    const uint32_t end = bitnet_grammar__join(b);
    uint32_t i, k;
    bitnet_grammar__sort_ranges(b);
    b->utf8.n = 0;
    for (i = 0; i < b->ranges.n && !b->code; i++) {
        bitnet_grammar__range r = BITNET_GRAMMAR__RANGE(b, i);
        for (k = 0; k < 6 && r.low <= r.high; k++) {
            const uint32_t high = r.high < sizes[k] ? r.high : sizes[k] - 1;
            if (r.low >= sizes[k]) continue;
            if (k != 3) bitnet_grammar__utf8_range(b, r.low, high);
            r.low = high + 1;
        }
    }
    return bitnet_grammar__pair(
        bitnet_grammar__class_node(b, 0, b->utf8.n, 0, end, b->nodes.n), end);
}

/* =============================================================================================
   @gbnf  the grammar's own notation
   ============================================================================================= */

static int bitnet_grammar__peek(const bitnet_grammar__builder *b, uint32_t ahead) {
    return !b->code && b->at + ahead < b->n ? (uint8_t)b->text[b->at + ahead] : -1;
}

static int bitnet_grammar__is_digit(int c) { return c >= '0' && c <= '9'; }

static int bitnet_grammar__is_word(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           bitnet_grammar__is_digit(c);
}

/* Blanks and comments; newlines 1: newlines too, which end nothing here; -1: nothing is skipped. */
static void bitnet_grammar__blanks(bitnet_grammar__builder *b, int newlines) {
    for (; newlines >= 0; b->at++) {
        const int c = bitnet_grammar__peek(b, 0);
        if (c == '#') {
            while (b->at < b->n && b->text[b->at] != '\n' && b->text[b->at] != '\r') b->at++;
            b->at--;                       /* there may be no newline */
        } else if (c != ' ' && c != '\t' && !(newlines && (c == '\n' || c == '\r'))) return;
    }
}

static void bitnet_grammar__expected(bitnet_grammar__builder *b, const char *what) {
    const int c = bitnet_grammar__peek(b, 0);
    if (c < 0) bitnet_grammar__fail(b, BITNET_ERR_FORMAT, b->at, "%s expected, not the end", what);
    else if (c == '\n' || c == '\r')
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, b->at, "%s expected, not the line's end", what);
    else
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, b->at, "%s expected, not '%c'", what,
                             c < 0x80 ? c : '?');
}

static uint32_t bitnet_grammar__hex(bitnet_grammar__builder *b, int digits) {
    uint32_t v = 0;
    for (; digits > 0 && !b->code; digits--, b->at++) {
        const int c = bitnet_grammar__peek(b, 0);
        if (bitnet_grammar__is_digit(c)) v = v << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') v = v << 4 | (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') v = v << 4 | (uint32_t)(c - 'A' + 10);
        else bitnet_grammar__expected(b, "a hexadecimal digit");
    }
    return v;
}

/* One character of UTF-8. */
static uint32_t bitnet_grammar__char(bitnet_grammar__builder *b) {
    uint32_t cp = 0;
    size_t n = 0;
    if (b->at >= b->n) bitnet_grammar__expected(b, "a character");
    else if (!(n = bitnet_utf8_decode(b->text + b->at, b->n - b->at, &cp)))
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, b->at, "not UTF-8");
    b->at += (uint32_t)n;
    return n ? cp : 0;
}

/* The character at *at of a text that ends at `end` of the pool: what has been read is UTF-8. */
static uint32_t bitnet_grammar__pool_char(const bitnet_grammar__builder *b, uint32_t *at,
                                          uint32_t end) {
    uint32_t cp = 0;
    const size_t n = bitnet_utf8_decode(BITNET_GRAMMAR__POOL(b, *at), end - *at, &cp);
    *at += n ? (uint32_t)n : 1;
    return cp;
}

/* A character of a literal or class, perhaps escaped. */
static uint32_t bitnet_grammar__escaped(bitnet_grammar__builder *b) {
    const uint32_t at = b->at;
    uint32_t cp;
    int c;
    if (bitnet_grammar__peek(b, 0) != '\\') return bitnet_grammar__char(b);
    c = bitnet_grammar__peek(b, 1);
    b->at += 2;
    switch (c) {
        case 'x': cp = bitnet_grammar__hex(b, 2); break;
        case 'u': cp = bitnet_grammar__hex(b, 4); break;
        case 'U': cp = bitnet_grammar__hex(b, 8); break;
        case 't': return '\t';
        case 'r': return '\r';
        case 'n': return '\n';
        case '\\': case '"': case '[': case ']': case '-': return (uint32_t)c;
        default: return bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "unknown escape");
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "U+%04X is no character", (unsigned)cp);
    return cp;
}

static bitnet_grammar__frag bitnet_grammar__parse_literal(bitnet_grammar__builder *b) {
    bitnet_grammar__frag f = bitnet_grammar__nothing(b);
    uint8_t bytes[4];
    b->at++;
    while (!b->code && bitnet_grammar__peek(b, 0) != '"') {
        uint32_t n = bitnet_grammar__encode(bitnet_grammar__escaped(b), bytes);
        f = bitnet_grammar__seq(b, f, bitnet_grammar__literal(b, (const char *)bytes, n));
    }
    b->at++;
    return f;
}

static bitnet_grammar__frag bitnet_grammar__parse_class(bitnet_grammar__builder *b) {
    const uint32_t at = b->at++;
    const int negated = bitnet_grammar__peek(b, 0) == '^';
    uint32_t low, high;
    b->at += (uint32_t)negated;
    b->ranges.n = 0;
    while (!b->code && bitnet_grammar__peek(b, 0) != ']') {
        low = high = bitnet_grammar__escaped(b);
        if (bitnet_grammar__peek(b, 0) == '-' && bitnet_grammar__peek(b, 1) != ']') {
            b->at++;
            high = bitnet_grammar__escaped(b);
            if (low > high) bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "a range backwards");
        }
        bitnet_grammar__add_range(b, low, high);
    }
    b->at++;
    if (!b->ranges.n) bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "an empty class");
    if (negated) bitnet_grammar__negate(b, 1);    /* as in llama.cpp */
    return bitnet_grammar__class_frag(b);
}

/* <name>, <[id]>, and the same with ! in front. */
static bitnet_grammar__frag bitnet_grammar__parse_token(bitnet_grammar__builder *b) {
    const uint32_t at = b->at, end = bitnet_grammar__join(b);
    const int negated = bitnet_grammar__peek(b, 0) == '!';
    char name[256] = "";
    uint32_t s, n = 0;
    int64_t t = 0;
    b->at += (uint32_t)negated;
    if (bitnet_grammar__peek(b, 0) != '<') bitnet_grammar__expected(b, "'<'");
    if (bitnet_grammar__peek(b, 1) == '[') {
        if (!bitnet_grammar__is_digit(bitnet_grammar__peek(b, 2)))
            bitnet_grammar__expected(b, "a token's number");
        for (b->at += 2; bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)); b->at++)
            if (t < INT32_MAX) t = 10 * t + (b->text[b->at] - '0');
        if (bitnet_grammar__peek(b, 0) != ']' || bitnet_grammar__peek(b, 1) != '>')
            bitnet_grammar__expected(b, "a token's number and ']>'");
        b->at += 2;
        if (t >= b->g->n_vocab)
            bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "the vocabulary has no such token");
    } else {
        while (!b->code && (n == 0 || name[n - 1] != '>')) {
            if (bitnet_grammar__peek(b, 0) < 0 || n + 1 >= sizeof name)
                bitnet_grammar__expected(b, "'>'");
            else name[n++] = b->text[b->at++];
        }
        name[n] = 0;
        t = b->code ? 0 : bitnet_token_find(b->g->model, name, n);
        if (t < 0)
            bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "the vocabulary has no token %s", name);
    }
    s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__TOKEN, end, 0);
    if (!b->code) {
        BITNET_GRAMMAR__NODE(b, s).min = (int32_t)t;
        BITNET_GRAMMAR__NODE(b, s).max = negated;
    }
    return bitnet_grammar__pair(s, end);
}

static int32_t bitnet_grammar__parse_count(bitnet_grammar__builder *b) {
    int32_t v = 0;
    if (!bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)))
        bitnet_grammar__expected(b, "a number");
    for (; bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)); b->at++) {
        v = 10 * v + (b->text[b->at] - '0');           /* at most 10 * COUNT + 9 */
        if (v > BITNET_GRAMMAR__COUNT)
            bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "a repetition of over %d times",
                                 (int)BITNET_GRAMMAR__COUNT);
    }
    return v;
}

/* * + ? {m} {m,} {m,n}: sets how often. 0: there is none. newlines: see blanks; -1 for a schema's
   patterns, which have no blanks. */
static int bitnet_grammar__parse_times(bitnet_grammar__builder *b, int32_t *min, int32_t *max,
                                       int newlines) {
    const uint32_t at = b->at;
    const int c = bitnet_grammar__peek(b, 0);
    if (c != '*' && c != '+' && c != '?' && c != '{') return 0;
    *min = c == '+';
    *max = c == '?' ? 1 : -1;
    b->at++;
    if (c != '{') return 1;
    bitnet_grammar__blanks(b, newlines);
    *min = *max = bitnet_grammar__parse_count(b);
    bitnet_grammar__blanks(b, newlines);
    if (bitnet_grammar__peek(b, 0) == ',') {
        b->at++;
        bitnet_grammar__blanks(b, newlines);
        *max = -1;
        if (bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)))
            *max = bitnet_grammar__parse_count(b);
        bitnet_grammar__blanks(b, newlines);
    }
    if (bitnet_grammar__peek(b, 0) != '}') bitnet_grammar__expected(b, "'}'");
    b->at++;
    if (*max >= 0 && *max < *min)
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "{%d,%d}: from more to fewer", (int)*min,
                             (int)*max);
    return 1;
}

static bitnet_grammar__frag bitnet_grammar__parse_choice(bitnet_grammar__builder *b, int nested);

static bitnet_grammar__frag bitnet_grammar__parse_group(bitnet_grammar__builder *b) {
    const uint32_t at = b->at++;
    bitnet_grammar__frag f = {0, 0};
    if (++b->nested > BITNET_GRAMMAR__NESTED)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, at, "groups more than %d deep",
                             (int)BITNET_GRAMMAR__NESTED);
    bitnet_grammar__blanks(b, 1);
    if (!b->code) f = bitnet_grammar__parse_choice(b, 1);
    if (bitnet_grammar__peek(b, 0) != ')') bitnet_grammar__expected(b, "')'");
    b->at++;
    b->nested--;
    return f;
}

static bitnet_grammar__frag bitnet_grammar__parse_name(bitnet_grammar__builder *b) {
    uint32_t from = b->at, to = from;
    while (to < b->n && bitnet_grammar__is_word((uint8_t)b->text[to])) to++;
    from = bitnet_grammar__rule_named(b, b->text + from, to - from);
    b->at = to;
    return bitnet_grammar__call(b, from);
}

static bitnet_grammar__frag bitnet_grammar__parse_any(bitnet_grammar__builder *b) {
    b->at++;
    b->ranges.n = 0;
    bitnet_grammar__add_range(b, 1, 0x10FFFF);
    return bitnet_grammar__class_frag(b);
}

static bitnet_grammar__frag bitnet_grammar__parse_sequence(bitnet_grammar__builder *b,
                                                           int nested) {
    bitnet_grammar__frag all = bitnet_grammar__nothing(b), last = all;
    int32_t min, max;
    int any = 0;
    for (; !b->code; bitnet_grammar__blanks(b, nested)) {
        const int c = bitnet_grammar__peek(b, 0);
        const uint32_t at = b->at;
        if (bitnet_grammar__parse_times(b, &min, &max, nested)) {
            if (!any) bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "nothing to repeat");
            last = bitnet_grammar__repeat(b, last, min, max);
            continue;
        }
        if (c != '"' && c != '[' && c != '<' && c != '!' && c != '(' && c != '.' &&
            !bitnet_grammar__is_word(c)) break;
        if (any) all = bitnet_grammar__seq(b, all, last);
        any = 1;
        if (c == '"') last = bitnet_grammar__parse_literal(b);
        else if (c == '[') last = bitnet_grammar__parse_class(b);
        else if (c == '<' || c == '!') last = bitnet_grammar__parse_token(b);
        else if (c == '(') last = bitnet_grammar__parse_group(b);
        else if (c == '.') last = bitnet_grammar__parse_any(b);
        else last = bitnet_grammar__parse_name(b);
    }
    return any ? bitnet_grammar__seq(b, all, last) : all;
}

/* Is there a | here, or at the beginning of a line after this one? */
static int bitnet_grammar__more_follows(bitnet_grammar__builder *b) {
    const uint32_t at = b->at;
    bitnet_grammar__blanks(b, 1);
    if (bitnet_grammar__peek(b, 0) == '|') return 1;
    b->at = at;
    return 0;
}

static bitnet_grammar__frag bitnet_grammar__parse_choice(bitnet_grammar__builder *b, int nested) {
    bitnet_grammar__frag f = bitnet_grammar__parse_sequence(b, nested);
    uint32_t last = 0;
    while (bitnet_grammar__more_follows(b)) {
        b->at++;
        bitnet_grammar__blanks(b, 1);
        f = bitnet_grammar__or_else(b, f, bitnet_grammar__parse_sequence(b, nested), &last);
    }
    return f;
}

/* name ::= choice, to the end of a line. */
static void bitnet_grammar__parse_rule(bitnet_grammar__builder *b) {
    const uint32_t at = b->at;
    uint32_t n = 0, r;
    int c;
    while (bitnet_grammar__is_word(bitnet_grammar__peek(b, n))) n++;
    if (!n) bitnet_grammar__expected(b, "a rule's name");
    r = bitnet_grammar__rule_named(b, b->text + at, n);
    if (!b->code && BITNET_GRAMMAR__RULE(b, r).start != BITNET_GRAMMAR__NONE)
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "the rule %.*s is defined twice", (int)n,
                             b->text + at);
    b->at += n;
    bitnet_grammar__blanks(b, 0);
    if (bitnet_grammar__peek(b, 0) != ':' || bitnet_grammar__peek(b, 1) != ':' ||
        bitnet_grammar__peek(b, 2) != '=') bitnet_grammar__expected(b, "'::='");
    b->at += 3;
    bitnet_grammar__blanks(b, 1);
    bitnet_grammar__define(b, r, bitnet_grammar__parse_choice(b, 0));
    c = bitnet_grammar__peek(b, 0);
    if (c >= 0 && c != '\n' && c != '\r')
        bitnet_grammar__expected(b, "a symbol or the line's end");
    bitnet_grammar__blanks(b, 1);
}

static void bitnet_grammar__parse_gbnf(bitnet_grammar__builder *b, const char *text, uint32_t n) {
    b->text = text;
    b->n = n;
    b->at = 0;
    bitnet_grammar__blanks(b, 1);
    while (!b->code && b->at < b->n) bitnet_grammar__parse_rule(b);
}

/* =============================================================================================
   @json  reads a schema, which is JSON
   ============================================================================================= */

enum {
    BITNET_GRAMMAR__NULL = 1, BITNET_GRAMMAR__FALSE = 2, BITNET_GRAMMAR__TRUE = 4,
    BITNET_GRAMMAR__INTEGER = 8, BITNET_GRAMMAR__NUMBER = 16, BITNET_GRAMMAR__STRING = 32,
    BITNET_GRAMMAR__ARRAY = 64, BITNET_GRAMMAR__OBJECT = 128
};

/* All keywords of any draft that say what a value must be, and OpenAPI's nullable; all others are
   notes. `types`: what they are about, 0: any value. Those of draft 3 are refused. */
#define BITNET_GRAMMAR__KEYWORDS(X) \
    X(REF, "$ref $dynamicRef $recursiveRef", 0) X(ALL_OF, "allOf", 0) X(ANY_OF, "anyOf", 0) \
    X(ONE_OF, "oneOf", 0) X(NOT, "not", 0) X(IF, "if", 0) X(ENUM, "enum", 0) \
    X(CONST, "const", 0) X(TYPE, "type", 0) X(NULLABLE, "nullable", 0) \
    X(DRAFT_3, "extends disallow divisibleBy", 0) X(FORMAT, "format", 0) \
    X(MIN_LENGTH, "minLength", 32) X(MAX_LENGTH, "maxLength", 32) X(PATTERN, "pattern", 32) \
    X(MINIMUM, "minimum", 24) X(MAXIMUM, "maximum", 24) \
    X(EXCLUSIVE_MINIMUM, "exclusiveMinimum", 24) X(EXCLUSIVE_MAXIMUM, "exclusiveMaximum", 24) \
    X(MULTIPLE_OF, "multipleOf", 24) \
    X(ITEMS, "items", 64) X(PREFIX_ITEMS, "prefixItems", 64) \
    X(ADDITIONAL_ITEMS, "additionalItems", 64) X(UNEVALUATED_ITEMS, "unevaluatedItems", 64) \
    X(CONTAINS, "contains", 64) X(MIN_ITEMS, "minItems", 64) X(MAX_ITEMS, "maxItems", 64) \
    X(UNIQUE_ITEMS, "uniqueItems", 64) \
    X(PROPERTIES, "properties", 128) X(REQUIRED, "required", 128) \
    X(ADDITIONAL_PROPERTIES, "additionalProperties", 128) \
    X(PATTERN_PROPERTIES, "patternProperties", 128) \
    X(UNEVALUATED_PROPERTIES, "unevaluatedProperties", 128) \
    X(PROPERTY_NAMES, "propertyNames", 128) X(MIN_PROPERTIES, "minProperties", 128) \
    X(MAX_PROPERTIES, "maxProperties", 128) X(DEPENDENT_REQUIRED, "dependentRequired", 128) \
    X(DEPENDENT_SCHEMAS, "dependentSchemas", 128) X(DEPENDENCIES, "dependencies", 128)
#define BITNET_GRAMMAR__X(name, names, types) BITNET_GRAMMAR__K_##name,
enum { BITNET_GRAMMAR__KEYWORDS(BITNET_GRAMMAR__X) BITNET_GRAMMAR__N_KEYWORDS };
#undef BITNET_GRAMMAR__X
#define BITNET_GRAMMAR__X(name, names, types) {names, types},
static const struct { const char *names; uint32_t types; } bitnet_grammar__keywords[] = {
    BITNET_GRAMMAR__KEYWORDS(BITNET_GRAMMAR__X)};
#undef BITNET_GRAMMAR__X
#define BITNET_GRAMMAR__WORD(name) ((uint64_t)1 << BITNET_GRAMMAR__K_##name)

static void bitnet_grammar__json_space(bitnet_grammar__builder *b) {
    int c = bitnet_grammar__peek(b, 0);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        b->at++;
        c = bitnet_grammar__peek(b, 0);
    }
}

/* XXXX, or XXXX\uXXXX for one character beyond U+FFFF; behind the u. Half of such a pair is
   returned as it is, a surrogate. */
static uint32_t bitnet_grammar__unicode(bitnet_grammar__builder *b) {
    const uint32_t cp = bitnet_grammar__hex(b, 4);
    uint32_t low;
    if (cp < 0xD800 || cp >= 0xDC00 || bitnet_grammar__peek(b, 0) != '\\' ||
        bitnet_grammar__peek(b, 1) != 'u') return cp;
    b->at += 2;
    low = bitnet_grammar__hex(b, 4);
    return low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((cp & 0x3FF) << 10) + (low & 0x3FF) : cp;
}

/* What follows a backslash. */
static uint32_t bitnet_grammar__json_escape(bitnet_grammar__builder *b) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const uint32_t at = b->at;
    const int c = bitnet_grammar__peek(b, 0);
    const char *place = c > 0 ? strchr(from, c) : 0;
    uint32_t cp;
    b->at++;
    if (place) return (uint32_t)to[place - from];
    if (c != 'u') return bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "unknown escape");
    cp = bitnet_grammar__unicode(b);
    if (cp >= 0xD800 && cp < 0xE000)
        return bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "half a surrogate pair");
    return cp;
}

/* A string, without its escapes, to the pool. */
static void bitnet_grammar__json_string(bitnet_grammar__builder *b, uint32_t *text, uint32_t *n) {
    uint8_t bytes[4];
    uint32_t cp;
    int c;
    *text = b->pool.n;
    if (bitnet_grammar__peek(b, 0) != '"') bitnet_grammar__expected(b, "a string");
    b->at++;
    while ((c = bitnet_grammar__peek(b, 0)) != '"' && !b->code) {
        if (c < ' ') {
            bitnet_grammar__expected(b, "a character of a string");
            break;
        }
        if (c == '\\') {
            b->at++;
            cp = bitnet_grammar__json_escape(b);
        } else cp = bitnet_grammar__char(b);
        bitnet_grammar__put(b, &b->pool, bytes, bitnet_grammar__encode(cp, bytes));
    }
    b->at++;
    *n = b->pool.n - *text;
    bitnet_grammar__put(b, &b->pool, "", 1);
}

/* A number. Whole ones under 2^53 are exact. Digits behind the first 17 would only bring errors of
   rounding. */
static void bitnet_grammar__json_number(bitnet_grammar__builder *b, bitnet_grammar__value *v) {
    const uint32_t at = b->at;
    double x = 0, power = 1;
    int c = bitnet_grammar__peek(b, 0), negative = c == '-', shift = 0, e = 0, minus = 0;
    int zeros = 0, i;
    b->at += (uint32_t)negative;
    c = bitnet_grammar__peek(b, 0);
    if (!bitnet_grammar__is_digit(c)) bitnet_grammar__expected(b, "a digit");
    if (c == '0' && bitnet_grammar__is_digit(bitnet_grammar__peek(b, 1)))
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "a number that begins with 0");
    for (; bitnet_grammar__is_digit(c = bitnet_grammar__peek(b, 0)); b->at++) {
        if (x < 1e16) x = 10 * x + (c - '0');
        else shift++;
    }
    if (c == '.') {
        b->at++;
        if (!bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)))
            bitnet_grammar__expected(b, "a digit");
        for (; bitnet_grammar__is_digit(c = bitnet_grammar__peek(b, 0)); b->at++) {
            if (c == '0') {                            /* at the end it is left out */
                zeros++;
                continue;
            }
            for (; zeros > 0 && x < 1e16; zeros--, shift--) x *= 10;
            if (x < 1e16) x = 10 * x + (c - '0'), shift--;
        }
    }
    if (c == 'e' || c == 'E') {
        c = bitnet_grammar__peek(b, 1);
        b->at += c == '-' || c == '+' ? 2u : 1u;
        minus = c == '-';
        if (!bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0)))
            bitnet_grammar__expected(b, "a digit");
        for (; bitnet_grammar__is_digit(c = bitnet_grammar__peek(b, 0)); b->at++)
            if (e < 10000) e = 10 * e + (c - '0');
    }
    shift += minus ? -e : e;
    for (i = 0; i < 400 && i < (shift < 0 ? -shift : shift); i++) power *= 10;
    if (x > 0) x = shift < 0 ? x / power : x * power;  /* power may be infinite */
    v->number = negative ? -x : x;
    v->type = x < 9007199254740992.0 && x == (double)(int64_t)x ? BITNET_GRAMMAR__INTEGER
                                                                : BITNET_GRAMMAR__NUMBER;
}

static void bitnet_grammar__json_word(bitnet_grammar__builder *b, bitnet_grammar__value *v) {
    static const char *const words[] = {"null", "false", "true"};
    int i;
    for (i = 0; i < 3; i++) {
        const uint32_t n = (uint32_t)strlen(words[i]);
        if (b->n - b->at < n || memcmp(b->text + b->at, words[i], n)) continue;
        v->type = (uint8_t)(1 << i);
        b->at += n;
        return;
    }
    bitnet_grammar__expected(b, "a JSON value");
}

/* The part of an object with a key, or NONE. */
static uint32_t bitnet_grammar__get(bitnet_grammar__builder *b, uint32_t v, const char *key) {
    return bitnet_grammar__look_up(b, v, key, (uint32_t)strlen(key));
}

static uint32_t bitnet_grammar__json_value(bitnet_grammar__builder *b, uint32_t parent);

/* Is a word of n bytes, any bytes, in a list of them with blanks between? */
static int bitnet_grammar__is_in(const char *list, const char *word, uint32_t n) {
    size_t size;
    for (list += strspn(list, " "); *list; list += strspn(list, " ")) {
        size = strcspn(list, " ");
        if (size == n && !memcmp(list, word, n)) return 1;
        list += size;
    }
    return 0;
}

/* Notes that a part of an object has the name of a keyword. */
static void bitnet_grammar__find_keyword(bitnet_grammar__builder *b, uint32_t v, uint32_t part) {
    const bitnet_grammar__value *p = &BITNET_GRAMMAR__VALUE(b, part);
    uint32_t i;
    for (i = 0; i < BITNET_GRAMMAR__N_KEYWORDS; i++)
        if (bitnet_grammar__is_in(bitnet_grammar__keywords[i].names,
                                  BITNET_GRAMMAR__POOL(b, p->key), p->n_key)) break;
    if (i == BITNET_GRAMMAR__N_KEYWORDS) return;
    BITNET_GRAMMAR__VALUE(b, part).keyword = i + 1;
    BITNET_GRAMMAR__VALUE(b, v).has |= (uint64_t)1 << i;
}

/* The parts of an array or object, behind its bracket. */
static void bitnet_grammar__json_parts(bitnet_grammar__builder *b, uint32_t v, int close) {
    uint32_t part, last = BITNET_GRAMMAR__NONE, key = 0, n_key = 0, name = BITNET_GRAMMAR__NONE;
    for (bitnet_grammar__json_space(b); bitnet_grammar__peek(b, 0) != close && !b->code;) {
        if (last != BITNET_GRAMMAR__NONE) {
            if (bitnet_grammar__peek(b, 0) != ',') bitnet_grammar__expected(b, "',' or the end");
            b->at++;
            bitnet_grammar__json_space(b);
        }
        if (close == '}') {
            const uint32_t at = b->at;
            bitnet_grammar__json_string(b, &key, &n_key);
            name = b->code ? name : bitnet_grammar__add_name(b, v, key, n_key,
                                                             BITNET_GRAMMAR__NONE);
            if (name == BITNET_GRAMMAR__NONE)
                bitnet_grammar__fail(b, BITNET_ERR_FORMAT, at, "a key for the second time");
            bitnet_grammar__json_space(b);
            if (bitnet_grammar__peek(b, 0) != ':') bitnet_grammar__expected(b, "':'");
            b->at++;
        }
        part = bitnet_grammar__json_value(b, v);
        if (b->code) return;
        if (close == '}') BITNET_GRAMMAR__NAME(b, name).item = part;
        BITNET_GRAMMAR__VALUE(b, part).key = key;
        BITNET_GRAMMAR__VALUE(b, part).n_key = n_key;
        if (close == '}') bitnet_grammar__find_keyword(b, v, part);
        BITNET_GRAMMAR__VALUE(b, v).n_parts++;
        if (last == BITNET_GRAMMAR__NONE) BITNET_GRAMMAR__VALUE(b, v).first = part;
        else BITNET_GRAMMAR__VALUE(b, last).next = part;
        last = part;
        bitnet_grammar__json_space(b);
    }
    b->at++;
}

static uint32_t bitnet_grammar__json_value(bitnet_grammar__builder *b, uint32_t parent) {
    bitnet_grammar__value v;
    uint32_t i = b->values.n;
    int c;
    memset(&v, 0, sizeof v);
    bitnet_grammar__json_space(b);
    v.at = b->at;
    v.first = v.next = v.rule = v.behind = BITNET_GRAMMAR__NONE;
    v.parent = parent;
    if (i >= BITNET_GRAMMAR__VALUES || b->nested >= BITNET_GRAMMAR__NESTED)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "over %d values, or more than %d deep",
                             (int)BITNET_GRAMMAR__VALUES, (int)BITNET_GRAMMAR__NESTED);
    if (!bitnet_grammar__add(b, &b->values, sizeof v)) return 0;
    c = bitnet_grammar__peek(b, 0);
    if (c == '"') {
        v.type = BITNET_GRAMMAR__STRING;
        bitnet_grammar__json_string(b, &v.text, &v.n_text);
    } else if (c == '-' || bitnet_grammar__is_digit(c)) bitnet_grammar__json_number(b, &v);
    else if (c == '{' || c == '[')
        v.type = c == '{' ? BITNET_GRAMMAR__OBJECT : BITNET_GRAMMAR__ARRAY;
    else bitnet_grammar__json_word(b, &v);
    v.size = b->at - v.at;
    if (b->code) return 0;
    BITNET_GRAMMAR__VALUE(b, i) = v;
    if (v.type < BITNET_GRAMMAR__ARRAY) return i;
    b->at++;
    b->nested++;
    bitnet_grammar__json_parts(b, i, c == '{' ? '}' : ']');
    b->nested--;
    return i;
}

static uint8_t bitnet_grammar__type(const bitnet_grammar__builder *b, uint32_t v) {
    return v == BITNET_GRAMMAR__NONE ? 0 : BITNET_GRAMMAR__VALUE(b, v).type;
}

/* Writes the escape that a character of a JSON string needs, and returns its length; 0: none. */
static uint32_t bitnet_grammar__escape_of(uint32_t cp, char out[8]) {
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";
    const char *at;
    if (cp >= 32 && cp != '"' && cp != '\\') return 0;
    at = cp ? strchr(from, (int)cp) : 0;
    return (uint32_t)(at ? snprintf(out, 8, "\\%c", to[at - from])
                         : snprintf(out, 8, "\\u%04x", (unsigned)cp));
}

static void bitnet_grammar__dump_string(bitnet_grammar__builder *b, const char *s, uint32_t n) {
    char escape[8];
    uint32_t i, size;
    bitnet_grammar__put(b, &b->bytes, "\"", 1);
    for (i = 0; i < n && !b->code; i++) {
        size = bitnet_grammar__escape_of((uint8_t)s[i], escape);
        bitnet_grammar__put(b, &b->bytes, size ? escape : s + i, size ? size : 1);
    }
    bitnet_grammar__put(b, &b->bytes, "\"", 1);
}

/* Writes a value to b->bytes, without white space. Recurses as deep as JSON is nested. */
static void bitnet_grammar__dump(bitnet_grammar__builder *b, uint32_t i) {
    const bitnet_grammar__value v = BITNET_GRAMMAR__VALUE(b, i);
    uint32_t p;
    if (v.type == BITNET_GRAMMAR__STRING)
        bitnet_grammar__dump_string(b, BITNET_GRAMMAR__POOL(b, v.text), v.n_text);
    if (v.type < BITNET_GRAMMAR__STRING)
        bitnet_grammar__put(b, &b->bytes, b->source + v.at, v.size);
    if (v.type < BITNET_GRAMMAR__ARRAY) return;
    bitnet_grammar__put(b, &b->bytes, v.type == BITNET_GRAMMAR__ARRAY ? "[" : "{", 1);
    for (p = v.first; p != BITNET_GRAMMAR__NONE; p = BITNET_GRAMMAR__VALUE(b, p).next) {
        const bitnet_grammar__value part = BITNET_GRAMMAR__VALUE(b, p);
        if (p != v.first) bitnet_grammar__put(b, &b->bytes, ",", 1);
        if (v.type == BITNET_GRAMMAR__OBJECT) {
            bitnet_grammar__dump_string(b, BITNET_GRAMMAR__POOL(b, part.key), part.n_key);
            bitnet_grammar__put(b, &b->bytes, ":", 1);
        }
        bitnet_grammar__dump(b, p);
    }
    bitnet_grammar__put(b, &b->bytes, v.type == BITNET_GRAMMAR__ARRAY ? "]" : "}", 1);
}

/* =============================================================================================
   @schema  from a schema to a graph: a rule for each schema in it
   ============================================================================================= */

/* What schemas have in common, as llama.cpp defines it, but with numbers that are finite, days that
   exist, and no half surrogate pairs. */
static const char *const bitnet_grammar__common_rules =
    "space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n"
    "hex ::= [0-9a-fA-F]\n"
    "plain ::= [^\"\\\\\\x7F\\x00-\\x1F]\n"
    "char ::= plain | \"\\\\\" ([\"\\\\bfnrt] | \"u\" ([0-9a-cA-CefEF] hex{3} |\n"
    "    [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2}))\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? ([0] | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? ([0] | [1-9] [0-9]?))?\n"
    "pair ::= string space \":\" space value space\n"
    "object ::= \"{\" space (pair (\",\" space pair)*)? \"}\"\n"
    "array ::= \"[\" space (value space (\",\" space value space)*)? \"]\"\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n";

static bitnet_grammar__frag bitnet_grammar__named(bitnet_grammar__builder *b, const char *name) {
    return bitnet_grammar__call(b,
                                bitnet_grammar__rule_named(b, name, (uint32_t)strlen(name)));
}

static bitnet_grammar__frag bitnet_grammar__text(bitnet_grammar__builder *b, const char *s) {
    return bitnet_grammar__literal(b, s, strlen(s));
}

/* The rule of a schema, which is compiled later; NONE is any value. */
static uint32_t bitnet_grammar__rule_of(bitnet_grammar__builder *b, uint32_t v) {
    uint32_t r;
    if (v == BITNET_GRAMMAR__NONE) return bitnet_grammar__rule_named(b, "value", 5);
    r = BITNET_GRAMMAR__VALUE(b, v).rule;
    if (r != BITNET_GRAMMAR__NONE) return r;
    r = bitnet_grammar__add_rule(b, 0, 0, v);
    bitnet_grammar__push(b, &b->todo, v);
    if (b->code) return 0;
    BITNET_GRAMMAR__VALUE(b, v).rule = r;
    return r;
}

static bitnet_grammar__frag bitnet_grammar__schema(bitnet_grammar__builder *b, uint32_t v) {
    return bitnet_grammar__call(b, bitnet_grammar__rule_of(b, v));
}

/* The rule of the schemas in b->together, 2 * value, + 1 for one that must not hold: of all at
   once. What says nothing is left out, and each set has one rule. */
static uint32_t bitnet_grammar__rule_of_all(bitnet_grammar__builder *b) {
    uint32_t *list = (uint32_t *)b->together.p, i, n = 0, size, key, r;
    bitnet_grammar__set *set;
    if (b->code) return 0;
    bitnet_grammar__spend(b, 8 * (uint64_t)b->together.n);
    if (b->together.n) qsort(list, b->together.n, sizeof *list, bitnet_grammar__compare_numbers);
    for (i = 0; i < b->together.n; i++) {
        const bitnet_grammar__value *v = &BITNET_GRAMMAR__VALUE(b, list[i] / 2);
        if ((n && list[n - 1] == list[i]) || (!(list[i] & 1) && v->type == BITNET_GRAMMAR__TRUE) ||
            (!(list[i] & 1) && v->type == BITNET_GRAMMAR__OBJECT && !v->has)) continue;
        list[n++] = list[i];
    }
    if (n == 0) return bitnet_grammar__rule_of(b, BITNET_GRAMMAR__NONE);
    if (n == 1 && !(list[0] & 1)) return bitnet_grammar__rule_of(b, list[0] / 2);
    size = n * (uint32_t)sizeof *list;
    i = bitnet_grammar__look_up(b, BITNET_GRAMMAR__SETS, (const char *)list, size);
    if (i != BITNET_GRAMMAR__NONE) return ((bitnet_grammar__set *)b->several.p)[i].rule;
    key = b->pool.n;
    bitnet_grammar__put(b, &b->pool, list, size);
    bitnet_grammar__add_name(b, BITNET_GRAMMAR__SETS, key, size, b->several.n);
    r = bitnet_grammar__add_rule(b, 0, 0, list[0] / 2);
    set = (bitnet_grammar__set *)bitnet_grammar__add(b, &b->several, sizeof *set);
    if (!set) return 0;
    set->key = key;
    set->n = n;
    set->rule = r;
    bitnet_grammar__push(b, &b->todo, BITNET_GRAMMAR__LEAF | (b->several.n - 1));
    return r;
}

/* ---- errors ---- */

/* Where a value is, as a JSON pointer: #/properties/a/items. */
static void bitnet_grammar__pointer(const bitnet_grammar__builder *b, uint32_t v, char *out,
                                    size_t cap) {
    uint32_t way[BITNET_GRAMMAR__NESTED + 1], n = 0;
    size_t at = 1;
    snprintf(out, cap, "#");
    for (; BITNET_GRAMMAR__VALUE(b, v).parent != BITNET_GRAMMAR__NONE;
         v = BITNET_GRAMMAR__VALUE(b, v).parent) way[n++] = v;
    while (n > 0 && at + 1 < cap) {
        const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, way[--n]);
        const bitnet_grammar__value *parent = &BITNET_GRAMMAR__VALUE(b, x->parent);
        uint32_t i = 0, p;
        for (p = parent->first; p != way[n]; p = BITNET_GRAMMAR__VALUE(b, p).next) i++;
        if (parent->type == BITNET_GRAMMAR__ARRAY)
            snprintf(out + at, cap - at, "/%u", (unsigned)i);
        else {
            const char *key = BITNET_GRAMMAR__POOL(b, x->key);
            out[at++] = '/';
            for (i = 0; i < 40 && key[i] && at + 2 < cap; i++) {
                const char c = key[i];
                out[at++] = c == '/' ? '~' : c;        /* ~ is ~0, and / is ~1 */
                if (c == '~' || c == '/') out[at++] = c == '~' ? '0' : '1';
            }
            out[at] = 0;
        }
        at += strlen(out + at);
    }
}

/* An error at a value: its pointer, and what is wrong. */
static bitnet_grammar__frag bitnet_grammar__wrong(bitnet_grammar__builder *b, bitnet_result code,
                                                  uint32_t v, const char *what) {
    bitnet_grammar__frag f = {0, 0};
    b->place = v;
    bitnet_grammar__fail(b, code, 0, "%s", what);
    return f;
}

/* Has a schema any of some keywords? */
static int bitnet_grammar__has(const bitnet_grammar__builder *b, uint32_t v, uint64_t words) {
    return (BITNET_GRAMMAR__VALUE(b, v).has & words) != 0;
}

/* Is a value the one of a keyword of its schema? */
static int bitnet_grammar__is_word_of(const bitnet_grammar__builder *b, uint32_t p, int keyword) {
    return BITNET_GRAMMAR__VALUE(b, p).keyword == (uint32_t)keyword + 1;
}

/* The value of a keyword of a schema, or NONE. */
static uint32_t bitnet_grammar__said(bitnet_grammar__builder *b, uint32_t v, int keyword) {
    return BITNET_GRAMMAR__VALUE(b, v).has >> keyword & 1
               ? bitnet_grammar__get(b, v, bitnet_grammar__keywords[keyword].names)
               : BITNET_GRAMMAR__NONE;
}

/* A count, or what it is without a value. */
static int32_t bitnet_grammar__read_count(bitnet_grammar__builder *b, uint32_t p, int32_t without) {
    double x;
    if (p == BITNET_GRAMMAR__NONE) return without;
    x = BITNET_GRAMMAR__VALUE(b, p).number;
    if (BITNET_GRAMMAR__VALUE(b, p).type != BITNET_GRAMMAR__INTEGER || x < 0)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not a whole number from 0 on");
    else if (x > (double)BITNET_GRAMMAR__COUNT && without == 0)
        bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, p, "over a million");
    else if (x > (double)BITNET_GRAMMAR__MOST) x = BITNET_GRAMMAR__MOST;
    return b->code ? 0 : (int32_t)x;
}

/* The count that a keyword gives. */
static int32_t bitnet_grammar__count(bitnet_grammar__builder *b, uint32_t v, int keyword,
                                     int32_t without) {
    return bitnet_grammar__read_count(b, bitnet_grammar__said(b, v, keyword), without);
}

/* ---- values that are listed ---- */

/* A tree of texts: alternatives that begin alike share their beginning. A node of it is a JOIN that
   leads to SPLITs, each to a byte or to the end. */
static void bitnet_grammar__plant_text(bitnet_grammar__builder *b, uint32_t root, uint32_t end,
                                       const uint8_t *s, uint32_t n) {
    uint32_t i, at = root, split, child;
    for (i = 0; i <= n && !b->code; i++) {
        for (split = BITNET_GRAMMAR__NODE(b, at).next; split;
             split = BITNET_GRAMMAR__NODE(b, split).alt, bitnet_grammar__spend(b, 1)) {
            const uint32_t to = BITNET_GRAMMAR__NODE(b, split).next;
            const bitnet_grammar__node *x = &BITNET_GRAMMAR__NODE(b, to);
            if (i == n ? to == end : x->type == BITNET_GRAMMAR__BYTES &&
                                     BITNET_GRAMMAR__EDGE(b, x->alt).low == s[i]) break;
        }
        if (!split) {
            child = i == n ? end : bitnet_grammar__byte(b, s[i], s[i]).start;
            if (b->code) return;
            split = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, child,
                                             BITNET_GRAMMAR__NODE(b, at).next);
            bitnet_grammar__link(b, at, split);
        }
        if (b->code || i == n) return;
        child = BITNET_GRAMMAR__NODE(b, split).next;
        at = BITNET_GRAMMAR__EDGE(b, BITNET_GRAMMAR__NODE(b, child).alt).next;
    }
}

static uint32_t bitnet_grammar__types(bitnet_grammar__builder *b, uint32_t v);
static int bitnet_grammar__format_is(bitnet_grammar__builder *b, uint32_t v, const char *list);
static void bitnet_grammar__add_schema(bitnet_grammar__builder *b, bitnet_grammar__all *all,
                                       uint32_t v, uint32_t from);
static void bitnet_grammar__add_together(bitnet_grammar__builder *b, bitnet_grammar__all *all);
static void bitnet_grammar__expand(bitnet_grammar__builder *b, bitnet_grammar__all *all);

/* Do two values differ, for certain? */
static int bitnet_grammar__differ(bitnet_grammar__builder *b, uint32_t x, uint32_t y) {
    const bitnet_grammar__value *v = &BITNET_GRAMMAR__VALUE(b, x);
    const bitnet_grammar__value *w = &BITNET_GRAMMAR__VALUE(b, y);
    const int numbers = BITNET_GRAMMAR__INTEGER | BITNET_GRAMMAR__NUMBER;
    bitnet_grammar__spend(b, 1 + (v->n_text < w->n_text ? v->n_text : w->n_text) / 16);
    if ((v->type & numbers) && (w->type & numbers)) {
        const double d = v->number - w->number, size = v->number < 0 ? -v->number : v->number;
        return d > size * 1e-9 + 1e-300 || -d > size * 1e-9 + 1e-300;
    }
    if (v->type != w->type) return 1;
    if (v->type == BITNET_GRAMMAR__STRING)
        return v->n_text != w->n_text ||
               memcmp(BITNET_GRAMMAR__POOL(b, v->text), BITNET_GRAMMAR__POOL(b, w->text),
                      v->n_text) != 0;
    return 0;
}

/* ---- numbers ---- */

static const char bitnet_grammar__zeros[] = "0000000000000000";
static const char bitnet_grammar__nines[] = "9999999999999999";

/* Whole numbers that leave no rest when they are divided by `by`. Where any digits may follow,
   what follows a rest is built once for each number of digits. */
typedef struct bitnet_grammar__whole {
    uint32_t by, end;
    uint32_t *free;                        /* [17][by] nodes, 0: no digits do; NONE: not yet */
} bitnet_grammar__whole;

/* An edge for the byte c, which is greater than the others; it may be the last one that grows. */
static void bitnet_grammar__add_byte(bitnet_grammar__edge *edges, uint32_t *n, uint32_t c,
                                     uint32_t to) {
    if (*n && edges[*n - 1].next == to && edges[*n - 1].high + 1u == c) edges[*n - 1].high++;
    else {
        edges[*n].low = edges[*n].high = (uint8_t)c;
        edges[(*n)++].next = to;
    }
}

/* n digits from low to high, both of n digits, behind digits that leave a rest. 0: none do. */
static uint32_t bitnet_grammar__digits(bitnet_grammar__builder *b, const bitnet_grammar__whole *w,
                                       const char *low, const char *high, uint32_t n,
                                       uint32_t rest) {
    const int is_free = !memcmp(low, bitnet_grammar__zeros, n) &&
                        !memcmp(high, bitnet_grammar__nines, n);
    bitnet_grammar__edge edges[10];
    uint32_t digit, n_edges = 0, to;
    if (n == 0) return rest ? 0 : w->end;
    if (is_free && w->free[n * w->by + rest] != BITNET_GRAMMAR__NONE)
        return w->free[n * w->by + rest];
    bitnet_grammar__spend(b, 10);
    if (b->code) return 0;
    for (digit = (uint8_t)low[0]; digit <= (uint8_t)high[0]; digit++) {
        to = bitnet_grammar__digits(
            b, w, digit == (uint8_t)low[0] ? low + 1 : bitnet_grammar__zeros,
            digit == (uint8_t)high[0] ? high + 1 : bitnet_grammar__nines, n - 1,
            (10 * rest + digit - '0') % w->by);
        if (to) bitnet_grammar__add_byte(edges, &n_edges, digit, to);
    }
    to = n_edges ? bitnet_grammar__bytes_node(b, edges, n_edges, b->nodes.n) : 0;
    if (is_free) w->free[n * w->by + rest] = to;
    return to;
}

/* The whole numbers from low to high, both 0 .. 10^16 - 1, that are multiples of `by`. */
static bitnet_grammar__frag bitnet_grammar__naturals(bitnet_grammar__builder *b, int64_t low,
                                                     int64_t high, uint32_t by) {
    bitnet_grammar__whole w;
    int64_t from = 0, to = 9;
    uint32_t start = 0, s;
    char l[24], h[24];
    w.by = by;
    w.end = bitnet_grammar__join(b);
    w.free = (uint32_t *)bitnet_grammar__alloc(&b->g->allocator, 17 * (size_t)by * sizeof *w.free);
    if (!w.free) {
        bitnet_grammar__fail(b, BITNET_ERR_MEMORY, BITNET_GRAMMAR__NONE, "out of memory");
        return bitnet_grammar__pair(0, 0);
    }
    memset(w.free, 0xFF, 17 * (size_t)by * sizeof *w.free);
    bitnet_grammar__spend(b, 4 * (uint64_t)by);
    for (; from <= high && !b->code; from = to + 1, to = 10 * to + 9) {
        if (to < low) continue;
        snprintf(l, sizeof l, "%lld", (long long)(from > low ? from : low));
        snprintf(h, sizeof h, "%lld", (long long)(to < high ? to : high));
        s = bitnet_grammar__digits(b, &w, l, h, (uint32_t)strlen(l), 0);
        if (s) start = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, s, start);
    }
    bitnet_grammar__free(&b->g->allocator, w.free);
    return bitnet_grammar__pair(start, w.end);
}

/* A number of the schema as its text has it: all digits count. */
typedef struct bitnet_grammar__decimal {
    const char *digits;                    /* and perhaps a point */
    uint32_t n;
    int64_t n_digits, shift;               /* digits * 10^shift */
    int64_t whole, places;                 /* digits before and behind the point */
    int negative;
} bitnet_grammar__decimal;

static void bitnet_grammar__read_decimal(bitnet_grammar__builder *b, uint32_t v,
                                         bitnet_grammar__decimal *d) {
    const char *s = b->source + BITNET_GRAMMAR__VALUE(b, v).at;
    const uint32_t n = BITNET_GRAMMAR__VALUE(b, v).size;
    int64_t e = 0, first = -1, last = -1, point = -1;
    uint32_t i;
    memset(d, 0, sizeof *d);
    bitnet_grammar__spend(b, n);
    d->negative = s[0] == '-';
    d->digits = s + d->negative;
    for (i = (uint32_t)d->negative; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') point = d->n_digits;
        else {
            if (s[i] != '0') last = d->n_digits;
            if (s[i] != '0' && first < 0) first = d->n_digits;
            d->n_digits++;
        }
    }
    d->n = i - (uint32_t)d->negative;
    if (point < 0) point = d->n_digits;
    if (i < n) {
        const int minus = s[i + 1] == '-';
        for (i++; i < n; i++)
            if (bitnet_grammar__is_digit((uint8_t)s[i]) && e < 10000000) e = 10 * e + (s[i] - '0');
        if (minus) e = -e;
    }
    d->shift = e + point - d->n_digits;
    if (first < 0) return;                 /* zero */
    d->whole = point + e - first;
    d->places = last + 1 - point - e;
}

/* The bound at v in units of 10^-places, rounded inwards: up for a lower bound. What it excludes is
   left out, and if it was rounded the value next to it, too, which as a double may be the same. */
static int64_t bitnet_grammar__scaled(bitnet_grammar__builder *b, uint32_t v, int64_t places,
                                      int up, int exclusive) {
    bitnet_grammar__decimal d;
    const int64_t most = (int64_t)1e17;
    int64_t x = 0, kept, i = 0;
    double apart;
    uint32_t k;
    int rest = 0;
    bitnet_grammar__read_decimal(b, v, &d);
    kept = d.n_digits + d.shift + places;
    for (k = 0; k < d.n; k++) {
        if (d.digits[k] == '.') continue;
        if (i++ >= kept) rest |= d.digits[k] != '0';
        else if (x < most) x = 10 * x + (d.digits[k] - '0');
    }
    for (; i < kept && x > 0 && x < most; i++) x *= 10;
    if (d.negative) x = -x;
    if (rest && (up ? !d.negative : d.negative)) x += up ? 1 : -1;
    apart = (BITNET_GRAMMAR__VALUE(b, v).number - (double)x) * (up ? -1 : 1);
    if (exclusive && !(rest && places == 0 && apart > 0.001 && x < 1000000000 && x > -1000000000))
        x += up ? 1 : -1;
    return x;
}

/* Formats of integers, and their bounds; those of 64 bits are beyond what is written. */
static const struct { const char *name; double low, high; } bitnet_grammar__integers[] = {
    {"int8", -128, 127}, {"int16", -32768, 32767}, {"int32", -2147483648.0, 2147483647},
    {"uint8", 0, 255}, {"uint16", 0, 65535}, {"uint32", 0, 4294967295.0},
    {"int64", -9e15, 9e15}, {"uint64", 0, 9e15}};

/* The number of a schema's format among them, or -1. */
static int bitnet_grammar__integer_format(bitnet_grammar__builder *b, uint32_t v) {
    int i = (int)(sizeof bitnet_grammar__integers / sizeof bitnet_grammar__integers[0]);
    while (i-- > 0)
        if (bitnet_grammar__format_is(b, v, bitnet_grammar__integers[i].name)) return i;
    return -1;
}

/* What the keywords of all schemas say about numbers. */
typedef struct bitnet_grammar__span {
    int64_t low, high;                     /* in units of 10^-places */
    int64_t places, by;
    int whole, bounded, has_low, has_high;
    uint32_t step;                         /* a multipleOf with a fraction: value; NONE */
    int64_t digits, unit;                  /* which is digits / unit, unit a power of 10 */
} bitnet_grammar__span;

static const struct { int keyword, exclusive, up; } bitnet_grammar__bounds[] = {
    {BITNET_GRAMMAR__K_MINIMUM, BITNET_GRAMMAR__K_EXCLUSIVE_MINIMUM, 1},
    {BITNET_GRAMMAR__K_MAXIMUM, BITNET_GRAMMAR__K_EXCLUSIVE_MAXIMUM, 0},
    {BITNET_GRAMMAR__K_EXCLUSIVE_MINIMUM, 0, 1}, {BITNET_GRAMMAR__K_EXCLUSIVE_MAXIMUM, 0, 0}};

/* A bound of a schema, or NONE. That exclusiveMinimum is true makes minimum exclusive. */
static uint32_t bitnet_grammar__bound(bitnet_grammar__builder *b, uint32_t v, int i,
                                      int *exclusive) {
    const int other = bitnet_grammar__bounds[i].exclusive;
    const uint32_t p = bitnet_grammar__said(b, v, bitnet_grammar__bounds[i].keyword);
    const uint8_t type = bitnet_grammar__type(b, p);
    *exclusive = !other ||
                 bitnet_grammar__type(b, bitnet_grammar__said(b, v, other)) == BITNET_GRAMMAR__TRUE;
    if (!other && (type & (BITNET_GRAMMAR__TRUE | BITNET_GRAMMAR__FALSE)))
        return BITNET_GRAMMAR__NONE;
    if (p != BITNET_GRAMMAR__NONE && !(type & (BITNET_GRAMMAR__INTEGER | BITNET_GRAMMAR__NUMBER)))
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not a number");
    return p;
}

/* multipleOf: a whole number, of which those of several schemas are kept together, or one with a
   fraction. */
static void bitnet_grammar__multiple(bitnet_grammar__builder *b, uint32_t v,
                                     bitnet_grammar__span *s) {
    const uint32_t p = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_MULTIPLE_OF);
    const double step = p == BITNET_GRAMMAR__NONE ? 0 : BITNET_GRAMMAR__VALUE(b, p).number;
    int64_t x, y, z, by;
    if (p == BITNET_GRAMMAR__NONE || b->code) return;
    if (!(bitnet_grammar__type(b, p) & (BITNET_GRAMMAR__INTEGER | BITNET_GRAMMAR__NUMBER)) ||
        step <= 0) bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not a number over 0");
    else if (step > (double)BITNET_GRAMMAR__MULTIPLE)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p, "only up to 10000 is supported");
    if (bitnet_grammar__type(b, p) == BITNET_GRAMMAR__NUMBER && !b->code) {
        for (s->unit = 10; s->unit < 10000; s->unit *= 10) {
            s->digits = (int64_t)(step * (double)s->unit + 0.5);
            if ((double)s->digits / (double)s->unit == step) break;
        }
        s->digits = (int64_t)(step * (double)s->unit + 0.5);
        if ((double)s->digits / (double)s->unit != step || s->by > 1 ||
            s->step != BITNET_GRAMMAR__NONE)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p,
                                  "only one with a fraction, of up to 4 digits, is supported");
        s->step = p;
        s->bounded = 1;
        return;
    }
    if (s->step != BITNET_GRAMMAR__NONE)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p, "beside one with a fraction");
    if (b->code) return;
    by = (int64_t)BITNET_GRAMMAR__VALUE(b, p).number;
    for (x = s->by, y = by; y; x = z) {    /* the greatest common divisor */
        z = y;
        y = x % y;
    }
    s->by = s->by / x * by;
    s->whole = 1;
    if (s->by > BITNET_GRAMMAR__MULTIPLE)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p, "over 10000 with those in allOf");
}

/* Reads the bounds twice: how many digits they have, and then what they are. */
static bitnet_grammar__span bitnet_grammar__read_bounds(bitnet_grammar__builder *b,
                                                        const bitnet_grammar__all *all,
                                                        int whole) {
    bitnet_grammar__decimal d;
    bitnet_grammar__span s;
    int64_t most = 0, digits = 1, x;
    uint32_t i, p;
    int k, exclusive, pass, up;
    memset(&s, 0, sizeof s);
    s.by = 1;
    s.step = BITNET_GRAMMAR__NONE;
    s.whole = whole;
    s.low = INT64_MIN;
    s.high = INT64_MAX;
    for (i = 0; i < all->n; i++) {
        bitnet_grammar__multiple(b, all->v[i], &s);
        k = bitnet_grammar__integer_format(b, all->v[i]);
        if (k < 0) continue;
        s.whole = 1;
        if (bitnet_grammar__integers[k].low == -9e15) continue;        /* int64 */
        s.bounded = s.has_low = 1;
        if ((double)s.low < bitnet_grammar__integers[k].low)
            s.low = (int64_t)bitnet_grammar__integers[k].low;
        if (bitnet_grammar__integers[k].high == 9e15) continue;
        s.has_high = 1;
        if ((double)s.high > bitnet_grammar__integers[k].high)
            s.high = (int64_t)bitnet_grammar__integers[k].high;
    }
    s.places = 6;
    for (pass = 0; pass < 2; pass++) {
        for (i = 0; i < all->n + all->n_demands && !b->code; i++)
            for (k = 0; k < 4 && !b->code; k++) {
                const uint32_t d_at = i < all->n ? 0 : all->demand[i - all->n];
                const int broken = i >= all->n;
                if (broken && (all->kind[i - all->n] != BITNET_GRAMMAR__BROKEN ||
                               !bitnet_grammar__is_word_of(b, d_at,
                                                           bitnet_grammar__bounds[k].keyword)))
                    continue;
                up = bitnet_grammar__bounds[k].up ^ broken;
                p = bitnet_grammar__bound(b, broken ? BITNET_GRAMMAR__VALUE(b, d_at).parent
                                                    : all->v[i], k, &exclusive);
                exclusive ^= broken;
                if (p == BITNET_GRAMMAR__NONE || b->code) continue;
                s.bounded = 1;
                bitnet_grammar__read_decimal(b, p, &d);
                if (d.whole > (s.whole ? 16 : 15)) {
                    if (d.negative != up)
                        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p,
                                              "nothing beyond 2^53, or 10^15, is written");
                    continue;              /* nothing that has bounds is so far from 0 */
                }
                if (pass == 0) {
                    if (d.places >= s.places) s.places = d.places >= 14 ? 14 : d.places + 1;
                    if (d.whole > digits) digits = d.whole;
                    continue;
                }
                x = bitnet_grammar__scaled(b, p, s.places, up, exclusive);
                if (s.whole && (up ? x > most : x < -most))
                    bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p,
                                          "nothing beyond 2^53 is written");
                if (up && x > s.low) s.low = x;
                if (!up && x < s.high) s.high = x;
                if (up) s.has_low = 1;
                else s.has_high = 1;
            }
        if (s.places + digits > 15) s.places = 15 - digits;
        if (s.whole) s.places = 0;
        most = s.whole ? 9007199254740991 : 999999999999999;
    }
    if (s.low < -most) s.low = -most;
    if (s.high > most) s.high = most;
    if (s.step != BITNET_GRAMMAR__NONE && !s.whole && s.places < 4 && !b->code)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, s.step, "beside so large a bound");
    return s;
}

/* Up to n digits behind a point that make low .. high, both of n digits, when zeros are added. */
static bitnet_grammar__frag bitnet_grammar__places(bitnet_grammar__builder *b, const char *low,
                                                   const char *high, uint32_t n) {
    const int from = low[0], to = high[0];
    bitnet_grammar__frag all = bitnet_grammar__failing(b), f, g;
    int digit;
    if (!memcmp(low, bitnet_grammar__zeros, n) && !memcmp(high, bitnet_grammar__nines, n))
        return bitnet_grammar__repeat(b, bitnet_grammar__byte(b, '0', '9'), 1, (int32_t)n);
    for (digit = from; digit <= to && !b->code;) {
        const int inside = digit > from && digit < to;
        const char *l = digit == from ? low + 1 : bitnet_grammar__zeros;
        const char *h = digit == to ? high + 1 : bitnet_grammar__nines;
        const int last = inside ? to - 1 : digit;
        f = bitnet_grammar__byte(b, (uint32_t)digit, (uint32_t)last);
        if (n > 1) {
            g = bitnet_grammar__places(b, l, h, n - 1);
            if (!memcmp(l, bitnet_grammar__zeros, n - 1))
                g = bitnet_grammar__repeat(b, g, 0, 1);
            f = bitnet_grammar__seq(b, f, g);
        }
        all = bitnet_grammar__or(b, f, all);
        digit = last + 1;
    }
    return all;
}

/* The decimals from low to high in units of 10^-places, low from 0 on, without an exponent. */
static bitnet_grammar__frag bitnet_grammar__decimals(bitnet_grammar__builder *b, int64_t low,
                                                     int64_t high, int64_t places) {
    bitnet_grammar__frag all = bitnet_grammar__failing(b), f, g;
    int64_t unit = 1, i, first, last, from, to;
    char l[24], h[24];
    for (i = 0; i < places; i++) unit *= 10;
    if (low > high) return all;
    if (places == 0) return bitnet_grammar__naturals(b, low, high, 1);
    for (first = low / unit; first <= high / unit && !b->code; first = last + 1) {
        last = first;                      /* whole parts that may have the same places */
        from = first == low / unit ? low % unit : 0;
        to = first == high / unit ? high % unit : unit - 1;
        if (from == 0 && to == unit - 1) {
            last = high / unit;
            if (high % unit != unit - 1) last--;
        }
        f = bitnet_grammar__naturals(b, first, last, 1);
        snprintf(l, sizeof l, "%0*lld", (int)places, (long long)from);
        snprintf(h, sizeof h, "%0*lld", (int)places, (long long)to);
        g = bitnet_grammar__places(b, l, h, (uint32_t)places);
        g = bitnet_grammar__seq(b, bitnet_grammar__text(b, "."), g);
        if (from == 0) g = bitnet_grammar__repeat(b, g, 0, 1);
        all = bitnet_grammar__or(b, bitnet_grammar__seq(b, f, g), all);
    }
    return all;
}

/* ---- multiples of a number with a fraction ----

   A validator divides doubles: x / 0.1 is whole for 0.1 and 0.2, but not for 0.3. So numbers whose
   whole part is small are tried one by one. Of larger ones those are written that a double holds
   exactly: with 0.01 the fractions 0, .25, .5 and .75. */

typedef struct bitnet_grammar__steps {
    const bitnet_grammar__span *s;
    double step;
    int64_t low, high, most;               /* in units of 1 / s->unit; whole parts */
    uint32_t end;
} bitnet_grammar__steps;

/* Is x / s->unit a multiple, as a validator finds it, and within the bounds? */
static int bitnet_grammar__is_multiple(const bitnet_grammar__steps *m, int64_t x) {
    volatile double value = (double)x / (double)m->s->unit, times;
    times = value / m->step;
    return x >= m->low && x <= m->high && times == (double)(int64_t)times;
}

/* What follows the digits x: n of them are behind the point, -1: there is none yet. 0: nothing. */
static uint32_t bitnet_grammar__step_node(bitnet_grammar__builder *b,
                                          const bitnet_grammar__steps *m, int64_t x, int n) {
    bitnet_grammar__edge edges[11];
    uint32_t n_edges = 0, to, node = 0, c;
    int64_t unit = m->s->unit, i;
    for (i = 0; i < n; i++) unit /= 10;
    bitnet_grammar__spend(b, 12);
    if (b->code) return 0;
    for (c = '.'; c <= '9'; c++) {
        const int64_t next = 10 * x + ((int64_t)c - '0');
        if (c == '/' || (c == '.' && n >= 0) || (c > '.' && n >= 0 && unit == 1) ||
            (c > '.' && n < 0 && (x == 0 || next > m->most))) continue;
        to = c == '.' ? bitnet_grammar__step_node(b, m, x, 0)
                      : bitnet_grammar__step_node(b, m, next, n < 0 ? n : n + 1);
        if (to) bitnet_grammar__add_byte(edges, &n_edges, c, to);
    }
    if (n_edges) node = bitnet_grammar__bytes_node(b, edges, n_edges, b->nodes.n);
    if (n == 0 || !bitnet_grammar__is_multiple(m, x * unit)) return node;
    return node ? bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, m->end, node) : m->end;
}

/* Is x / step whole for each x that is a multiple and that a double holds exactly? That is so if
   the double `step` is off by 2^-54 of the number at most. */
static int bitnet_grammar__is_near(const bitnet_grammar__span *s, double step) {
    uint64_t off, power = 1;
    double scaled = step, size = (double)s->digits;
    int64_t d;
    for (; scaled < 4503599627370496.0; scaled *= 2, size *= 2) power *= 2;
    off = (uint64_t)scaled * (uint64_t)s->unit - (uint64_t)s->digits * power;      /* modulo 2^64 */
    d = off >> 63 ? -(int64_t)(~off + 1) : (int64_t)off;
    return (double)(d < 0 ? -d : d) * 18014398509481984.0 <= size;
}

/* Numbers from low to high, in units of 10^-places, low from 0 on. */
static bitnet_grammar__frag bitnet_grammar__multiples(bitnet_grammar__builder *b,
                                                      const bitnet_grammar__span *s, int64_t low,
                                                      int64_t high) {
    bitnet_grammar__steps m;
    bitnet_grammar__frag f, g, h;
    uint32_t digit, to, start = 0;
    int64_t scale = 1, i, first, last, whole = s->digits, by = s->unit;
    char text[24];
    for (i = 0; i < s->places; i++) scale *= 10;
    m.s = s;
    m.step = BITNET_GRAMMAR__VALUE(b, s->step).number;
    m.most = 10000 * s->digits / s->unit < 1000 ? 10000 * s->digits / s->unit : 1000;
    if (m.most < 1) m.most = 1;
    m.low = s->whole ? low * s->unit : (low + scale / s->unit - 1) / (scale / s->unit);
    m.high = s->whole ? (high < 100000 ? high : 100000) * s->unit : high / (scale / s->unit);
    m.end = bitnet_grammar__join(b);
    for (; by; by = i) {                   /* the least whole multiple: digits / gcd */
        i = whole % by;
        whole = by;
    }
    whole = s->digits / whole;
    for (digit = 0; digit <= 9 && !s->whole && !b->code; digit++) {
        if (digit > m.most) break;
        to = bitnet_grammar__step_node(b, &m, digit, -1);
        if (!to) continue;
        f = bitnet_grammar__byte(b, '0' + digit, '0' + digit);
        bitnet_grammar__link(b, f.end, to);
        start = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, f.start, start);
    }
    f = bitnet_grammar__pair(start, m.end);
    first = (low + scale - 1) / scale;
    last = high / scale;
    if (first <= m.most && !s->whole) first = m.most + 1;
    if (!bitnet_grammar__is_near(s, m.step) || whole > BITNET_GRAMMAR__MULTIPLE || first > last ||
        b->code) return f;
    g = bitnet_grammar__naturals(b, first, last, (uint32_t)whole);
    f = bitnet_grammar__or(b, g, f);
    if (s->whole || whole > 1 || first > --last) return f;
    for (i = 1; i < s->unit; i *= 10) whole *= 5;      /* the least fraction that is exact */
    for (h = bitnet_grammar__failing(b), i = whole; i < s->unit && !b->code; i += whole) {
        snprintf(text, sizeof text, ".%0*lld", (int)s->places, (long long)(i * (scale / s->unit)));
        for (by = (int64_t)strlen(text); text[by - 1] == '0'; by--) text[by - 1] = 0;
        h = bitnet_grammar__or(b, bitnet_grammar__text(b, text), h);
    }
    g = bitnet_grammar__seq(b, bitnet_grammar__naturals(b, first, last, 1), h);
    return bitnet_grammar__or(b, g, f);
}

/* ---- numbers of a type ---- */

/* low .. high, both from 0 on; beyond what has places, whole numbers up to 15 digits. */
static bitnet_grammar__frag bitnet_grammar__one_side(bitnet_grammar__builder *b,
                                                     const bitnet_grammar__span *s, int64_t low,
                                                     int64_t high, int has_end) {
    bitnet_grammar__frag f;
    int64_t beyond = 1000000000000000, i;
    if (s->step != BITNET_GRAMMAR__NONE) return bitnet_grammar__multiples(b, s, low, high);
    if (s->whole) return bitnet_grammar__naturals(b, low, high, (uint32_t)s->by);
    f = bitnet_grammar__decimals(b, low, high, s->places);
    for (i = 0; i < s->places; i++) beyond /= 10;
    if (has_end || s->places == 0 || beyond < 10) return f;
    return bitnet_grammar__or(b, bitnet_grammar__naturals(b, beyond, 999999999999999, 1), f);
}

/* Integers, or with whole 0 all numbers. */
static bitnet_grammar__frag bitnet_grammar__numbers(bitnet_grammar__builder *b,
                                                    const bitnet_grammar__all *all, int whole) {
    const bitnet_grammar__span s = bitnet_grammar__read_bounds(b, all, whole);
    bitnet_grammar__frag f, g;
    if (b->code) return bitnet_grammar__pair(0, 0);
    if (!s.bounded && s.by == 1)
        return bitnet_grammar__named(b, s.whole ? "integer" : "number");
    f = bitnet_grammar__one_side(b, &s, s.low > 0 ? s.low : 0, s.high, s.has_high);
    if (s.low >= 0) return f;
    g = bitnet_grammar__one_side(b, &s, s.high < 0 ? -s.high : 1, -s.low, s.has_low);
    return bitnet_grammar__or(b, bitnet_grammar__seq(b, bitnet_grammar__text(b, "-"), g), f);
}

/* ---- characters ---- */

/* One character of the ranges, as it is written in a JSON string. U+0000 is left out where it is
   one of many, and where it has no escape. */
static bitnet_grammar__frag bitnet_grammar__json_class(bitnet_grammar__builder *b) {
    const uint32_t root = bitnet_grammar__join(b), end = bitnet_grammar__join(b);
    bitnet_grammar__frag f = bitnet_grammar__pair(root, end);
    char escape[8];
    uint32_t i, k, n, cp, size;
    bitnet_grammar__sort_ranges(b);
    n = b->ranges.n;
    if (b->raw) {
        if (n && !b->code && !BITNET_GRAMMAR__RANGE(b, 0).low) BITNET_GRAMMAR__RANGE(b, 0).low = 1;
        return bitnet_grammar__class_frag(b);
    }
    for (i = 0; i < n && !b->code; i++) {
        const bitnet_grammar__range x = BITNET_GRAMMAR__RANGE(b, i);
        for (k = 0; k < 34; k++) {
            cp = k < 32 ? k : k == 32 ? '"' : '\\';
            if (cp < x.low || cp > x.high || (cp == 0 && x.high > 31)) continue;
            size = bitnet_grammar__escape_of(cp, escape);
            bitnet_grammar__plant_text(b, root, end, (const uint8_t *)escape, size);
        }
        /* What needs no escape: behind the ranges, which then go. */
        for (k = 0; k < 3; k++) {
            static const uint32_t low[] = {32, '"' + 1, '\\' + 1};
            static const uint32_t high[] = {'"' - 1, '\\' - 1, 0x10FFFF};
            bitnet_grammar__add_range(b, x.low > low[k] ? x.low : low[k],
                                      x.high < high[k] ? x.high : high[k]);
        }
    }
    bitnet_grammar__drop_ranges(b, n);
    return bitnet_grammar__or(b, bitnet_grammar__class_frag(b), f);
}

/* ---- patterns: read ---- */

/* A part of a pattern. Its own parts are a list. */
enum {
    BITNET_GRAMMAR__SEQUENCE, BITNET_GRAMMAR__CHOICE, BITNET_GRAMMAR__TIMES,
    BITNET_GRAMMAR__CHARS,       /* one character of a set */
    BITNET_GRAMMAR__START, BITNET_GRAMMAR__END
};
typedef struct bitnet_grammar__term {
    uint32_t type, first, next;
    int32_t min, max;                      /* of TIMES */
    uint32_t set, n_set;                   /* of CHARS: ranges, in b->sets */
} bitnet_grammar__term;

/* What a string must match, or must not: a pattern, a format or a lookahead. It may do so anywhere:
   START and END are parts of it. */
typedef struct bitnet_grammar__limit {
    uint32_t term;
    int negated;
    uint32_t start, done;                  /* steps */
} bitnet_grammar__limit;

#define BITNET_GRAMMAR__TERM(b, i) (((bitnet_grammar__term *)(b)->terms.p)[i])
#define BITNET_GRAMMAR__SET(b, i) (((bitnet_grammar__range *)(b)->sets.p)[i])
#define BITNET_GRAMMAR__LIMIT(b, i) (((bitnet_grammar__limit *)(b)->limits.p)[i])

static uint32_t bitnet_grammar__add_term(bitnet_grammar__builder *b, uint32_t type) {
    bitnet_grammar__term *t;
    bitnet_grammar__spend(b, 4);
    t = (bitnet_grammar__term *)bitnet_grammar__add(b, &b->terms, sizeof *t);
    if (!t) return 0;
    t->type = type;
    t->first = t->next = BITNET_GRAMMAR__NONE;
    return b->terms.n - 1;
}

/* Appends a part to a term; *last is the one before it, NONE: it is the first. */
static void bitnet_grammar__add_part(bitnet_grammar__builder *b, uint32_t term, uint32_t part,
                                     uint32_t *last) {
    if (b->code) return;
    if (*last == BITNET_GRAMMAR__NONE) BITNET_GRAMMAR__TERM(b, term).first = part;
    else BITNET_GRAMMAR__TERM(b, *last).next = part;
    *last = part;
}

/* One character of b->ranges. */
static uint32_t bitnet_grammar__chars(bitnet_grammar__builder *b) {
    const uint32_t t = bitnet_grammar__add_term(b, BITNET_GRAMMAR__CHARS);
    bitnet_grammar__sort_ranges(b);
    if (!bitnet_grammar__room(b, &b->sets, b->ranges.n + 1, sizeof(bitnet_grammar__range)))
        return t;
    BITNET_GRAMMAR__TERM(b, t).set = b->sets.n;
    BITNET_GRAMMAR__TERM(b, t).n_set = b->ranges.n;
    if (b->ranges.n)
        memcpy(&BITNET_GRAMMAR__SET(b, b->sets.n), b->ranges.p,
               b->ranges.n * sizeof(bitnet_grammar__range));
    b->sets.n += b->ranges.n;
    return t;
}

static uint32_t bitnet_grammar__any_char(bitnet_grammar__builder *b) {
    b->ranges.n = 0;
    bitnet_grammar__add_range(b, 0, 0x10FFFF);
    return bitnet_grammar__chars(b);
}

/* Properties of characters, narrowed to the usual ones that have them: pairs of bounds. */
static const struct { const char *names; uint32_t bounds[36]; } bitnet_grammar__properties[] = {
    {"L Letter Alphabetic Alpha",
     {0x41, 0x5A, 0x61, 0x7A, 0xC0, 0xD6, 0xD8, 0xF6, 0xF8, 0x2C1, 0x388, 0x38A, 0x38E, 0x3A1,
      0x3A3, 0x3F5, 0x400, 0x481, 0x48A, 0x52F, 0x531, 0x556, 0x5D0, 0x5EA, 0x620, 0x64A, 0x904,
      0x939, 0x3041, 0x3096, 0x30A1, 0x30FA, 0x4E00, 0x9FFF, 0xAC00, 0xD7A3}},
    {"Lu Uppercase_Letter Uppercase Upper",
     {0x41, 0x5A, 0xC0, 0xD6, 0xD8, 0xDE, 0x391, 0x3A1, 0x3A3, 0x3AB, 0x410, 0x42F}},
    {"Ll Lowercase_Letter Lowercase Lower",
     {0x61, 0x7A, 0xDF, 0xF6, 0xF8, 0xFF, 0x3B1, 0x3C9, 0x430, 0x44F}},
    {"N Number Nd Decimal_Number", {0x30, 0x39, 0x660, 0x669, 0x966, 0x96F, 0xFF10, 0xFF19}},
    {"P Punctuation", {0x21, 0x23, 0x25, 0x2A, 0x2C, 0x2F, 0x3A, 0x3B, 0x3F, 0x40, 0x5B, 0x5D, 0x5F,
                       0x5F, 0x7B, 0x7B, 0x7D, 0x7D, 0x2010, 0x2027}},
    {"S Symbol", {0x24, 0x24, 0x2B, 0x2B, 0x3C, 0x3E, 0x5E, 0x5E, 0x60, 0x60, 0x7C, 0x7C, 0x7E,
                  0x7E, 0x20A0, 0x20BF, 0x2190, 0x22FF}},
    {"Sc Currency_Symbol", {0x24, 0x24, 0xA2, 0xA5, 0x20A0, 0x20BF}},
    {"Z Separator Zs Space_Separator", {0x20, 0x20, 0xA0, 0xA0, 0x2000, 0x200A, 0x3000, 0x3000}},
    {"M Mark Mn Nonspacing_Mark", {0x300, 0x36F}},
    {"ASCII", {0, 0x7F}},
    {"Script=Latin sc=Latin", {0x41, 0x5A, 0x61, 0x7A, 0xC0, 0xD6, 0xD8, 0xF6, 0xF8, 0x24F}},
    {"Script=Han sc=Han", {0x4E00, 0x9FFF}},
    {"Script=Cyrillic sc=Cyrillic", {0x400, 0x481, 0x48A, 0x52F}},
    {"Extended_Pictographic Emoji Emoji_Presentation",
     {0x231A, 0x231B, 0x2614, 0x2615, 0x2648, 0x2653, 0x1F400, 0x1F43E, 0x1F600, 0x1F64F}},
    {"Regional_Indicator Emoji_Component", {0x1F1E6, 0x1F1FF}}};

/* \p{name}, behind the backslash: some of the characters that have the property. */
static void bitnet_grammar__property_escape(bitnet_grammar__builder *b) {
    const uint32_t n = (uint32_t)(sizeof bitnet_grammar__properties /
                                  sizeof bitnet_grammar__properties[0]);
    uint32_t from = b->at + 2, size = 0, i, k;
    while (from + size < b->n && b->text[from + size] != '}') size++;
    for (i = 0; i < n; i++)
        if (bitnet_grammar__peek(b, 1) == '{' &&
            bitnet_grammar__is_in(bitnet_grammar__properties[i].names, b->text + from, size)) break;
    if (i == n || b->opposite)
        bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at,
                             b->opposite ? "\\p where it must not match"
                                         : "\\p of this property is not supported");
    for (k = 0; i < n && k + 1 < 36 && bitnet_grammar__properties[i].bounds[k + 1]; k += 2)
        bitnet_grammar__add_range(b, bitnet_grammar__properties[i].bounds[k],
                                  bitnet_grammar__properties[i].bounds[k + 1]);
    b->at = from + size + 1;
    b->narrowed = 1;
}

/* Reads \d, \w or \s, what they leave, or \p. 0: none of them is here. */
static int bitnet_grammar__class_escape(bitnet_grammar__builder *b) {
    static const bitnet_grammar__range digits[] = {{'0', '9'}};
    static const bitnet_grammar__range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const bitnet_grammar__range space[] = {
        {9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
        {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const int c = bitnet_grammar__peek(b, 0) == '\\' ? bitnet_grammar__peek(b, 1) : -1;
    const bitnet_grammar__range *r = digits;
    uint32_t i, n = 1, low = 0;
    if (c <= 0 || !strchr("dDwWsSp", c)) return 0;
    b->at++;
    if (c == 'p') {
        bitnet_grammar__property_escape(b);
        return 1;
    }
    b->at++;
    if (c == 'w' || c == 'W') r = word, n = 4;
    if (c == 's' || c == 'S') r = space, n = 10;
    for (i = 0; i < n; i++) {
        if (c >= 'a') bitnet_grammar__add_range(b, r[i].low, r[i].high);
        else bitnet_grammar__add_range(b, low, r[i].low - 1);
        low = r[i].high + 1;
    }
    if (c < 'a') bitnet_grammar__add_range(b, low, 0x10FFFF);
    return 1;
}

/* \uXXXX, two of them for one character, or \u{X...}; behind the u. */
static uint32_t bitnet_grammar__pattern_unicode(bitnet_grammar__builder *b) {
    uint32_t cp, n = 0;
    if (bitnet_grammar__peek(b, 0) == '{') {
        for (b->at++, cp = 0; bitnet_grammar__peek(b, 0) != '}' && !b->code && n < 9; n++)
            cp = cp << 4 | bitnet_grammar__hex(b, 1);
        b->at++;
        if (n == 0 || n > 8) cp = 0x110000;
    } else cp = bitnet_grammar__unicode(b);
    if (!b->code && (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)))
        bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at,
                             "half a surrogate pair, or no character");
    return cp;
}

/* The character that an escape stands for, behind the backslash. A sign may be escaped for no
   reason. */
static uint32_t bitnet_grammar__pattern_escape(bitnet_grammar__builder *b) {
    static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
    const int c = bitnet_grammar__peek(b, 0);
    const char *at = c > 0 ? strchr(from, c) : 0;
    b->at++;
    if (at) return (uint32_t)to[at - from];
    if (c == 'x') return bitnet_grammar__hex(b, 2);
    if (c == 'u') return bitnet_grammar__pattern_unicode(b);
    if (c == '0' && !bitnet_grammar__is_digit(bitnet_grammar__peek(b, 0))) return 0;
    if (c > ' ' && c < 0x7F && (!bitnet_grammar__is_word(c) || c == '-' || c == '_'))
        return (uint32_t)c;
    b->at--;
    return bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at,
                                "the escape \\%c is not supported",
                                c > 32 && c < 127 ? c : '?');
}

static uint32_t bitnet_grammar__pattern_char(bitnet_grammar__builder *b) {
    if (bitnet_grammar__peek(b, 0) != '\\') return bitnet_grammar__char(b);
    b->at++;
    return bitnet_grammar__pattern_escape(b);
}

/* A character of a class, in which \b is a backspace. */
static uint32_t bitnet_grammar__class_char(bitnet_grammar__builder *b) {
    if (bitnet_grammar__peek(b, 0) != '\\' || bitnet_grammar__peek(b, 1) != 'b')
        return bitnet_grammar__pattern_char(b);
    b->at += 2;
    return '\b';
}

static uint32_t bitnet_grammar__pattern_class(bitnet_grammar__builder *b) {
    const int negated = bitnet_grammar__peek(b, 1) == '^', opposite = b->opposite;
    uint32_t low, high;
    b->at += negated ? 2u : 1u;
    b->ranges.n = 0;
    b->opposite |= negated;
    while (!b->code && bitnet_grammar__peek(b, 0) != ']') {
        if (bitnet_grammar__class_escape(b)) continue;
        low = high = bitnet_grammar__class_char(b);
        if (bitnet_grammar__peek(b, 0) == '-' && bitnet_grammar__peek(b, 1) != ']' &&
            !(bitnet_grammar__peek(b, 1) == '\\' && bitnet_grammar__peek(b, 2) > 0 &&
              strchr("dDwWsS", bitnet_grammar__peek(b, 2)))) {
            b->at++;
            high = bitnet_grammar__class_char(b);
            if (low > high)
                bitnet_grammar__fail(b, BITNET_ERR_FORMAT, b->at, "a range backwards");
        }
        bitnet_grammar__add_range(b, low, high);
    }
    b->at++;
    b->opposite = opposite;
    if (negated) bitnet_grammar__negate(b, 0);
    return bitnet_grammar__chars(b);
}

static const char bitnet_grammar__no_look[] =
    "a lookahead only at the beginning, behind ^ and a fixed length, or (?= at the end";

static uint32_t bitnet_grammar__pattern_choice(bitnet_grammar__builder *b);

/* A group, behind its parenthesis and what tells its kind. */
static uint32_t bitnet_grammar__pattern_inside(bitnet_grammar__builder *b) {
    uint32_t t = 0;
    if (++b->nested > BITNET_GRAMMAR__NESTED)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "groups more than %d deep",
                             (int)BITNET_GRAMMAR__NESTED);
    if (!b->code) t = bitnet_grammar__pattern_choice(b);
    if (bitnet_grammar__peek(b, 0) != ')') bitnet_grammar__expected(b, "')'");
    b->nested--;
    b->at++;
    return t;
}

/* (...), (?:...) or (?<name>...). Behind all others (?=...) is a group, too: anything follows. For
   other lookaheads see pattern_look. */
static uint32_t bitnet_grammar__pattern_group(bitnet_grammar__builder *b) {
    const int kind = bitnet_grammar__peek(b, 2), next = bitnet_grammar__peek(b, 3);
    uint32_t i = 3;
    if (bitnet_grammar__peek(b, 1) != '?') b->at++;
    else if (kind == '=' && b->nested == 0 && !b->opposite) {
        b->at += 3;
        i = bitnet_grammar__pattern_inside(b);
        if (!b->code && bitnet_grammar__peek(b, 0) >= 0 && bitnet_grammar__peek(b, 0) != '|')
            bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at, bitnet_grammar__no_look);
        return i;
    } else if (kind == ':') b->at += 3;
    else if (kind == '<' && next != '=' && next != '!') {
        while (bitnet_grammar__is_word(bitnet_grammar__peek(b, i))) i++;
        b->at += i;
        if (bitnet_grammar__peek(b, 0) != '>') bitnet_grammar__expected(b, "'>'");
        b->at++;
    } else
        bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at,
                             kind == '=' || kind == '!'
                                 ? bitnet_grammar__no_look
                                 : "(? is supported as (?: and (?<name> alone");
    return bitnet_grammar__pattern_inside(b);
}

static uint32_t bitnet_grammar__pattern_atom(bitnet_grammar__builder *b) {
    const int c = bitnet_grammar__peek(b, 0);
    if (c == '[') return bitnet_grammar__pattern_class(b);
    if (c == '(') return bitnet_grammar__pattern_group(b);
    if (c == '^' || c == '$') {
        b->at++;
        b->n_anchors++;
        return bitnet_grammar__add_term(b, c == '^' ? BITNET_GRAMMAR__START : BITNET_GRAMMAR__END);
    }
    b->ranges.n = 0;
    if (c == '.') {
        b->at++;
        bitnet_grammar__add_range(b, '\n', '\n');
        bitnet_grammar__add_range(b, '\r', '\r');
        bitnet_grammar__add_range(b, 0x2028, 0x2029);
        bitnet_grammar__negate(b, 0);
    } else if (c > 0 && strchr("*+?{}]", c))
        bitnet_grammar__fail(b, BITNET_ERR_UNSUPPORTED, b->at, "'%c' is not supported here", c);
    else if (!bitnet_grammar__class_escape(b)) {
        const uint32_t cp = bitnet_grammar__pattern_char(b);
        bitnet_grammar__add_range(b, cp, cp);
    }
    return bitnet_grammar__chars(b);
}

static void bitnet_grammar__add_limit(bitnet_grammar__builder *b, uint32_t term, int negated) {
    bitnet_grammar__limit *l =
        (bitnet_grammar__limit *)bitnet_grammar__add(b, &b->limits, sizeof *l);
    if (!l) return;
    l->term = term;
    l->negated = negated;
}

/* The least and the greatest number of characters that a term takes; 2^30: any. */
static void bitnet_grammar__lengths(bitnet_grammar__builder *b, uint32_t term, int64_t *least,
                                    int64_t *most) {
    const bitnet_grammar__term t = BITNET_GRAMMAR__TERM(b, term);
    const int64_t any = 1 << 30;
    int64_t low, high;
    uint32_t p;
    bitnet_grammar__spend(b, 1);
    *least = *most = t.type == BITNET_GRAMMAR__CHARS;
    if (t.type == BITNET_GRAMMAR__CHOICE) *least = any;
    for (p = t.first; p != BITNET_GRAMMAR__NONE && !b->code; p = BITNET_GRAMMAR__TERM(b, p).next) {
        bitnet_grammar__lengths(b, p, &low, &high);
        if (t.type == BITNET_GRAMMAR__CHOICE) {
            if (low < *least) *least = low;
            if (high > *most) *most = high;
        } else if (t.type == BITNET_GRAMMAR__TIMES) {
            *least = low * t.min;
            *most = t.max >= 0 ? high * t.max : high > 0 ? any : 0;
        } else {
            *least += low;
            *most += high;
        }
        if (*least > any) *least = any;
        if (*most > any) *most = any;
    }
}

/* A lookahead within a sequence of no group, if one is here. Where ^ and a fixed number of
   characters are in front, there is one place where it can hold: so it is a limit of its own, which
   has the same parts in front. Without ^ at the very beginning one is added. Returns 0 if it is not
   like this. */
static int bitnet_grammar__pattern_look(bitnet_grammar__builder *b, uint32_t all, uint32_t *last) {
    const int kind = bitnet_grammar__peek(b, 2), opposite = b->opposite;
    uint32_t front, limit, end = BITNET_GRAMMAR__NONE;
    int64_t least = 0, most = 1;
    if (b->nested || b->code || bitnet_grammar__peek(b, 0) != '(' ||
        bitnet_grammar__peek(b, 1) != '?' || (kind != '=' && kind != '!')) return 0;
    if (b->at == 0) {
        bitnet_grammar__add_part(b, all, bitnet_grammar__add_term(b, BITNET_GRAMMAR__START), last);
        b->narrowed = 1;
    }
    if (b->code) return 0;
    for (front = all; front != BITNET_GRAMMAR__NONE &&
                      BITNET_GRAMMAR__TERM(b, front).type == BITNET_GRAMMAR__SEQUENCE;)
        front = BITNET_GRAMMAR__TERM(b, front).first;
    if (front != BITNET_GRAMMAR__NONE &&
        BITNET_GRAMMAR__TERM(b, front).type == BITNET_GRAMMAR__START)
        bitnet_grammar__lengths(b, all, &least, &most);
    if (least != most) return 0;
    if (++b->looks > BITNET_GRAMMAR__NESTED)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at, "more than %d lookaheads",
                             (int)BITNET_GRAMMAR__NESTED);
    b->opposite = kind == '!';
    b->at += 3;
    limit = bitnet_grammar__add_term(b, BITNET_GRAMMAR__SEQUENCE);
    front = bitnet_grammar__add_term(b, BITNET_GRAMMAR__SEQUENCE);
    *last = bitnet_grammar__add_term(b, BITNET_GRAMMAR__SEQUENCE);
    if (b->code) return 0;
    BITNET_GRAMMAR__TERM(b, front).first = BITNET_GRAMMAR__TERM(b, *last).first =
        BITNET_GRAMMAR__TERM(b, all).first;
    BITNET_GRAMMAR__TERM(b, all).first = *last;
    bitnet_grammar__add_part(b, limit, front, &end);
    bitnet_grammar__add_part(b, limit, bitnet_grammar__pattern_inside(b), &end);
    bitnet_grammar__add_limit(b, limit, b->opposite);
    b->opposite = opposite;
    return 1;
}

static uint32_t bitnet_grammar__pattern_sequence(bitnet_grammar__builder *b) {
    const uint32_t all = bitnet_grammar__add_term(b, BITNET_GRAMMAR__SEQUENCE);
    uint32_t part, times, last = BITNET_GRAMMAR__NONE;
    int32_t min, max;
    while (bitnet_grammar__peek(b, 0) >= 0 && bitnet_grammar__peek(b, 0) != '|' &&
           bitnet_grammar__peek(b, 0) != ')') {
        if (bitnet_grammar__pattern_look(b, all, &last)) continue;
        part = bitnet_grammar__pattern_atom(b);
        if (bitnet_grammar__parse_times(b, &min, &max, -1)) {
            if (bitnet_grammar__peek(b, 0) == '?') b->at++;    /* a lazy one takes the same texts */
            times = bitnet_grammar__add_term(b, BITNET_GRAMMAR__TIMES);
            if (b->code) break;
            BITNET_GRAMMAR__TERM(b, times).first = part;
            BITNET_GRAMMAR__TERM(b, times).min = min;
            BITNET_GRAMMAR__TERM(b, times).max = max;
            part = times;
        }
        bitnet_grammar__add_part(b, all, part, &last);
    }
    return all;
}

static uint32_t bitnet_grammar__pattern_choice(bitnet_grammar__builder *b) {
    uint32_t all = bitnet_grammar__add_term(b, BITNET_GRAMMAR__CHOICE);
    uint32_t last = BITNET_GRAMMAR__NONE;
    bitnet_grammar__add_part(b, all, bitnet_grammar__pattern_sequence(b), &last);
    while (bitnet_grammar__peek(b, 0) == '|') {
        b->at++;
        bitnet_grammar__add_part(b, all, bitnet_grammar__pattern_sequence(b), &last);
    }
    return all;
}

/* Patterns of formats. */
#define BITNET_GRAMMAR__DATE \
    "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])" \
    "|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)|[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])" \
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)-02-29)"
#define BITNET_GRAMMAR__HOURS "([01][0-9]|2[0-3]):[0-5][0-9]"
#define BITNET_GRAMMAR__TIME \
    BITNET_GRAMMAR__HOURS ":[0-5][0-9]([.][0-9]{1,9})?(Z|[-+]" BITNET_GRAMMAR__HOURS ")"
#define BITNET_GRAMMAR__CLOCK "T([0-9]+H([0-9]+M)?([0-9]+S)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define BITNET_GRAMMAR__DURATION \
    "^P([0-9]+W|([0-9]+Y([0-9]+M)?([0-9]+D)?|[0-9]+M([0-9]+D)?|[0-9]+D)(" BITNET_GRAMMAR__CLOCK \
    ")?|" BITNET_GRAMMAR__CLOCK ")$"
#define BITNET_GRAMMAR__LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
#define BITNET_GRAMMAR__HOST BITNET_GRAMMAR__LABEL "([.]" BITNET_GRAMMAR__LABEL "){0,7}"
#define BITNET_GRAMMAR__OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define BITNET_GRAMMAR__HEX "[0-9A-Fa-f]{1,4}"
#define BITNET_GRAMMAR__H(n) "(:" BITNET_GRAMMAR__HEX "){" n "}"
#define BITNET_GRAMMAR__PATH "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define BITNET_GRAMMAR__MORE \
    "([?](" BITNET_GRAMMAR__PATH "|[/?])*)?(#(" BITNET_GRAMMAR__PATH "|[/?])*)?"
#define BITNET_GRAMMAR__URI \
    "[A-Za-z][A-Za-z0-9+.-]*:(//" BITNET_GRAMMAR__HOST "(:[0-9]{1,5})?(/" BITNET_GRAMMAR__PATH \
    "*)*|" BITNET_GRAMMAR__PATH "+(/" BITNET_GRAMMAR__PATH "*)*)" BITNET_GRAMMAR__MORE

/* Patterns that clients write and that are not supported, or too large, and narrower ones. */
static const struct { const char *pattern, *narrower; } bitnet_grammar__known[] = {
    {"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?"
     "(\\d+([.,]\\d+)?S)?)?)$", BITNET_GRAMMAR__DURATION},
    {"^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9]"
     "(?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$", "^" BITNET_GRAMMAR__HOST "$"}};

/* Can it be said of a text that it does not match a pattern of n bytes? */
static int bitnet_grammar__has_opposite(bitnet_grammar__builder *b, const char *s, uint32_t n) {
    uint32_t i;
    bitnet_grammar__spend(b, n / 4);
    for (i = 0; i + 1 < n; i++)
        if (!memcmp(s + i, "\\p", 2) ||
            (i + 2 < n && (!memcmp(s + i, "(?=", 3) || !memcmp(s + i, "(?!", 3)))) return 0;
    return 1;
}

static char *bitnet_grammar__append(char *out, const char *from, const char *end) {
    memcpy(out, from, (size_t)(end - from));
    return out + (end - from);
}

/* pydantic's pattern of a Decimal with max_digits: ^(?!^[-+.]*$)[+-]?0*(?:A|(?=LOOK)B). LOOK bounds
   the digits that the zeros in front leave, so it may as well be kept from the beginning on, behind
   a sign and zeros, as B may begin with any digits; A keeps it anyway. A $ is added: behind A the
   pattern lacks it, but pydantic takes nothing else there. Returns the length of what it writes,
   n + 8; 0: another pattern. */
static uint32_t bitnet_grammar__rewrite_decimal(const char *s, uint32_t n, char *out) {
    static const char head[] = "^(?!^[-+.]*$)[+-]?0*(?:", look[] = "|(?=[\\d.]{1,";
    const char *sign, *first, *last, *bar, *end;
    if (n < 24 || memcmp(s, head, 23)) return 0;
    sign = s + 13;
    first = s + 23;
    last = s + n - 1;
    bar = (const char *)memchr(first, '|', (size_t)(last - first));
    if (!bar || last - bar < 13 || memcmp(bar, look, 12)) return 0;
    end = (const char *)memchr(bar, ')', (size_t)(last - bar));
    if (!end || last - end < 5 || memcmp(end - 3, "0*$)\\d", 6) ||
        (end[3] != '*' && memcmp(end + 3, "{0", 2)) ||
        memchr(end + 1, ')', (size_t)(last - end)) != last) return 0;
    out = bitnet_grammar__append(out, s, sign);
    out = bitnet_grammar__append(out, bar + 1, bar + 4);               /* (?= */
    out = bitnet_grammar__append(out, sign, first - 3);
    out = bitnet_grammar__append(out, bar + 4, end + 1);
    out = bitnet_grammar__append(out, sign, bar + 1);
    *bitnet_grammar__append(out, end + 1, last + 1) = '$';
    return n + 8;
}

/* Adds what a pattern of n bytes asks for to the limits, or the opposite; v: where it is. */
static void bitnet_grammar__read_pattern(bitnet_grammar__builder *b, uint32_t v, const char *s,
                                         uint32_t n, int opposite) {
    const char *text = b->text;
    const uint32_t old_n = b->n, at = b->at, place = b->place;
    char own[256];
    uint32_t term, i;
    i = opposite || n > sizeof own - 8 ? 0 : bitnet_grammar__rewrite_decimal(s, n, own);
    if (i) s = own, n = i, b->narrowed = 1;
    for (i = 0; i < sizeof bitnet_grammar__known / sizeof bitnet_grammar__known[0]; i++)
        if (!opposite && n == strlen(bitnet_grammar__known[i].pattern) &&
            !memcmp(s, bitnet_grammar__known[i].pattern, n)) {
            s = bitnet_grammar__known[i].narrower;
            n = (uint32_t)strlen(s);
            b->narrowed = 1;
        }
    b->place = v;
    b->text = s;
    b->n = n;
    b->at = 0;
    b->opposite = opposite;
    b->looks = 0;
    term = bitnet_grammar__pattern_choice(b);
    if (!b->code && b->at < b->n)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, v, "a ')' too many");
    if (b->looks && !b->code) {
        const bitnet_grammar__term *t = &BITNET_GRAMMAR__TERM(b, term);
        if (opposite || BITNET_GRAMMAR__TERM(b, t->first).next != BITNET_GRAMMAR__NONE)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, v,
                                  opposite ? "a lookahead that must not match"
                                           : "a lookahead beside another alternative");
    }
    bitnet_grammar__add_limit(b, term, opposite);
    b->text = text;
    b->n = old_n;
    b->at = at;
    b->place = place;
}

/* ---- patterns: alone ---- */

static bitnet_grammar__frag bitnet_grammar__set_frag(bitnet_grammar__builder *b,
                                                     const bitnet_grammar__term *t) {
    uint32_t i;
    b->ranges.n = 0;
    for (i = 0; i < t->n_set; i++)
        bitnet_grammar__add_range(b, BITNET_GRAMMAR__SET(b, t->set + i).low,
                                  BITNET_GRAMMAR__SET(b, t->set + i).high);
    return bitnet_grammar__json_class(b);
}

/* The texts of a term whose START and END are passed over. Recurses as deep as groups are. */
static bitnet_grammar__frag bitnet_grammar__term_frag(bitnet_grammar__builder *b, uint32_t term) {
    const bitnet_grammar__term t = BITNET_GRAMMAR__TERM(b, term);
    bitnet_grammar__frag f, g;
    uint32_t p = t.first, last = 0;
    if (b->code) return bitnet_grammar__pair(0, 0);
    if (t.type == BITNET_GRAMMAR__CHARS) return bitnet_grammar__set_frag(b, &t);
    if (t.type == BITNET_GRAMMAR__TIMES)
        return bitnet_grammar__repeat(b, bitnet_grammar__term_frag(b, t.first), t.min, t.max);
    if (p == BITNET_GRAMMAR__NONE) return bitnet_grammar__nothing(b);
    f = bitnet_grammar__term_frag(b, p);
    while ((p = BITNET_GRAMMAR__TERM(b, p).next) != BITNET_GRAMMAR__NONE && !b->code) {
        g = bitnet_grammar__term_frag(b, p);
        f = t.type == BITNET_GRAMMAR__CHOICE ? bitnet_grammar__or_else(b, f, g, &last)
                                             : bitnet_grammar__seq(b, f, g);
    }
    return f;
}

/* How many anchors a sequence has at its ends. *sides: 1 for START in front, 2 for END behind. */
static uint32_t bitnet_grammar__outer_anchors(bitnet_grammar__builder *b, uint32_t sequence,
                                              uint32_t *sides) {
    uint32_t p = BITNET_GRAMMAR__TERM(b, sequence).first, n = 0;
    *sides = 0;
    if (p != BITNET_GRAMMAR__NONE && BITNET_GRAMMAR__TERM(b, p).type == BITNET_GRAMMAR__START) {
        *sides |= 1;
        n++;
        p = BITNET_GRAMMAR__TERM(b, p).next;
    }
    for (; p != BITNET_GRAMMAR__NONE; p = BITNET_GRAMMAR__TERM(b, p).next)
        if (BITNET_GRAMMAR__TERM(b, p).type == BITNET_GRAMMAR__END &&
            BITNET_GRAMMAR__TERM(b, p).next == BITNET_GRAMMAR__NONE) {
            *sides |= 2;
            n++;
        }
    return n;
}

/* Strings with one limit, whose anchors are at the ends of its alternatives. */
static bitnet_grammar__frag bitnet_grammar__simple_limit(bitnet_grammar__builder *b,
                                                         uint32_t term) {
    bitnet_grammar__frag all = bitnet_grammar__failing(b), f, any;
    uint32_t p, sides, last = 0, k;
    for (p = BITNET_GRAMMAR__TERM(b, term).first; p != BITNET_GRAMMAR__NONE && !b->code;
         p = BITNET_GRAMMAR__TERM(b, p).next) {
        bitnet_grammar__outer_anchors(b, p, &sides);
        f = bitnet_grammar__term_frag(b, p);
        for (k = 0; k < 2; k++) {
            if (sides >> k & 1) continue;
            any = bitnet_grammar__term_frag(b, bitnet_grammar__any_char(b));
            any = bitnet_grammar__repeat(b, any, 0, -1);
            f = k ? bitnet_grammar__seq(b, f, any) : bitnet_grammar__seq(b, any, f);
        }
        all = p == BITNET_GRAMMAR__TERM(b, term).first ? f
                                                       : bitnet_grammar__or_else(b, all, f, &last);
    }
    return all;
}

/* Is there one limit, without anchors inside? */
static int bitnet_grammar__is_simple(bitnet_grammar__builder *b) {
    uint32_t p, sides, n = 0;
    if (b->limits.n != 1 || b->code || BITNET_GRAMMAR__LIMIT(b, 0).negated) return 0;
    for (p = BITNET_GRAMMAR__TERM(b, BITNET_GRAMMAR__LIMIT(b, 0).term).first;
         p != BITNET_GRAMMAR__NONE; p = BITNET_GRAMMAR__TERM(b, p).next)
        n += bitnet_grammar__outer_anchors(b, p, &sides);
    return n == b->n_anchors;
}

/* ---- patterns: several at once, and lengths ----

   All limits become one automaton of steps. What a text has reached is a set of steps, and the sets
   are the states of a second automaton, which is deterministic: so a state tells of each limit
   whether it holds. Its texts of the right lengths become a graph. */

enum {                                     /* CHARS, START and END are steps, too */
    BITNET_GRAMMAR__GO = 16,               /* next */
    BITNET_GRAMMAR__FORKED,                /* next or alt */
    BITNET_GRAMMAR__DONE                   /* the limit `alt` is reached, and stays so */
};
typedef struct bitnet_grammar__stage {
    uint32_t type, next, alt;
    uint32_t set, n_set;                   /* of CHARS */
} bitnet_grammar__stage;

typedef struct bitnet_grammar__texts {     /* a state: the strings that lead to it are alike */
    uint32_t first, n;                     /* in b->members: 2 * step, + 1 behind an END */
    int final;                             /* all limits hold here */
} bitnet_grammar__texts;

enum {
    BITNET_GRAMMAR__STEPS = 1 << 16,       /* of all limits of a string */
    BITNET_GRAMMAR__PRODUCT = 1 << 15      /* states, for each length */
};

#define BITNET_GRAMMAR__STEP(b, i) (((bitnet_grammar__stage *)(b)->steps.p)[i])
#define BITNET_GRAMMAR__TEXTS(b, i) (((bitnet_grammar__texts *)(b)->states.p)[i])
#define BITNET_GRAMMAR__NUMBER_AT(a, i) (((uint32_t *)(a).p)[i])

static uint32_t bitnet_grammar__add_step(bitnet_grammar__builder *b, uint32_t type) {
    bitnet_grammar__stage *s;
    bitnet_grammar__spend(b, 4);
    if (b->steps.n >= BITNET_GRAMMAR__STEPS)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at,
                             "a pattern too large to be kept beside another keyword");
    s = (bitnet_grammar__stage *)bitnet_grammar__add(b, &b->steps, sizeof *s);
    if (!s) return 0;
    s->type = type;
    return b->steps.n - 1;
}

static void bitnet_grammar__step_to(bitnet_grammar__builder *b, uint32_t from, uint32_t to) {
    if (!b->code) BITNET_GRAMMAR__STEP(b, from).next = to;
}

/* The steps of a term; repetitions are written out. The end is a GO. */
static bitnet_grammar__frag bitnet_grammar__term_steps(bitnet_grammar__builder *b, uint32_t term);

static bitnet_grammar__frag bitnet_grammar__times_steps(bitnet_grammar__builder *b,
                                                        const bitnet_grammar__term *t) {
    const uint32_t start = bitnet_grammar__add_step(b, BITNET_GRAMMAR__GO);
    const uint32_t end = bitnet_grammar__add_step(b, BITNET_GRAMMAR__GO);
    uint32_t at = start, fork;
    bitnet_grammar__frag f;
    int32_t i;
    for (i = 0; (i < t->min || i < t->max) && !b->code; i++) {
        fork = at;
        if (i >= t->min) {
            fork = bitnet_grammar__add_step(b, BITNET_GRAMMAR__FORKED);
            bitnet_grammar__step_to(b, at, fork);
            if (!b->code) BITNET_GRAMMAR__STEP(b, fork).alt = end;
        }
        f = bitnet_grammar__term_steps(b, t->first);
        bitnet_grammar__step_to(b, fork, f.start);
        at = f.end;
    }
    if (t->max < 0) {
        fork = bitnet_grammar__add_step(b, BITNET_GRAMMAR__FORKED);
        bitnet_grammar__step_to(b, at, fork);
        f = bitnet_grammar__term_steps(b, t->first);
        bitnet_grammar__step_to(b, fork, f.start);
        bitnet_grammar__step_to(b, f.end, fork);
        if (!b->code) BITNET_GRAMMAR__STEP(b, fork).alt = end;
    } else bitnet_grammar__step_to(b, at, end);
    return bitnet_grammar__pair(start, end);
}

static bitnet_grammar__frag bitnet_grammar__term_steps(bitnet_grammar__builder *b, uint32_t term) {
    const bitnet_grammar__term t = BITNET_GRAMMAR__TERM(b, term);
    uint32_t start, end, at, p, fork, type = BITNET_GRAMMAR__GO;
    bitnet_grammar__frag f;
    if (t.type == BITNET_GRAMMAR__TIMES) return bitnet_grammar__times_steps(b, &t);
    if (t.type >= BITNET_GRAMMAR__CHARS) type = t.type;
    start = at = bitnet_grammar__add_step(b, type);
    end = bitnet_grammar__add_step(b, BITNET_GRAMMAR__GO);
    if (b->code) return bitnet_grammar__pair(0, 0);
    BITNET_GRAMMAR__STEP(b, start).set = t.set;
    BITNET_GRAMMAR__STEP(b, start).n_set = t.n_set;
    for (p = t.first; p != BITNET_GRAMMAR__NONE && !b->code; p = BITNET_GRAMMAR__TERM(b, p).next) {
        f = bitnet_grammar__term_steps(b, p);
        if (t.type == BITNET_GRAMMAR__SEQUENCE) {
            bitnet_grammar__step_to(b, at, f.start);
            at = f.end;
            continue;
        }
        bitnet_grammar__step_to(b, f.end, end);
        if (BITNET_GRAMMAR__TERM(b, p).next == BITNET_GRAMMAR__NONE) {
            bitnet_grammar__step_to(b, at, f.start);
            return bitnet_grammar__pair(start, end);
        }
        fork = bitnet_grammar__add_step(b, BITNET_GRAMMAR__FORKED);
        bitnet_grammar__step_to(b, at, fork);
        bitnet_grammar__step_to(b, fork, f.start);
        at = bitnet_grammar__add_step(b, BITNET_GRAMMAR__GO);
        if (!b->code) BITNET_GRAMMAR__STEP(b, fork).alt = at;
    }
    bitnet_grammar__step_to(b, at, end);
    return bitnet_grammar__pair(start, end);
}

/* The steps of a limit: any characters, its term, DONE. */
static uint32_t bitnet_grammar__limit_steps(bitnet_grammar__builder *b, uint32_t limit,
                                            uint32_t any) {
    const uint32_t done = bitnet_grammar__add_step(b, BITNET_GRAMMAR__DONE);
    const uint32_t fork = bitnet_grammar__add_step(b, BITNET_GRAMMAR__FORKED);
    bitnet_grammar__frag f = bitnet_grammar__term_steps(b, any), g;
    bitnet_grammar__step_to(b, f.end, fork);
    g = bitnet_grammar__term_steps(b, BITNET_GRAMMAR__LIMIT(b, limit).term);
    bitnet_grammar__step_to(b, g.end, done);
    if (b->code) return 0;
    BITNET_GRAMMAR__STEP(b, done).alt = limit;
    BITNET_GRAMMAR__STEP(b, fork).next = f.start;
    BITNET_GRAMMAR__STEP(b, fork).alt = g.start;
    return fork;
}

/* ---- kinds of characters: those of a kind are in the same sets ---- */

/* Gives those of a kind that are in a set, if others are not, a kind of their own. Returns how many
   kinds there are then: they are numbered as they come. */
static uint32_t bitnet_grammar__split_kinds(bitnet_grammar__builder *b,
                                            const bitnet_grammar__term *t, uint32_t n_kinds) {
    const uint32_t n = b->kinds.n;
    uint32_t i, r = 0, n_now = 0;
    bitnet_grammar__spend(b, 2 * (uint64_t)(n + n_kinds));
    for (b->stack.n = i = 0; i < 2 * n_kinds; i++)
        bitnet_grammar__push(b, &b->stack, BITNET_GRAMMAR__NONE);
    for (i = 0; i < n && !b->code; i++) {
        uint32_t *kind = &BITNET_GRAMMAR__NUMBER_AT(b->kinds, i), *to;
        const uint32_t low = BITNET_GRAMMAR__NUMBER_AT(b->bounds, i);
        while (r < t->n_set && BITNET_GRAMMAR__SET(b, t->set + r).high < low) r++;
        to = &BITNET_GRAMMAR__NUMBER_AT(b->stack, 2 * *kind);
        if (r < t->n_set && BITNET_GRAMMAR__SET(b, t->set + r).low <= low) to++;
        if (*to == BITNET_GRAMMAR__NONE) *to = n_now++;
        *kind = *to;
    }
    return n_now;
}

/* b->bounds: where sets begin and end; b->kinds: the kind of the characters from each bound to the
   next. Returns how many kinds there are. */
static uint32_t bitnet_grammar__find_kinds(bitnet_grammar__builder *b) {
    uint32_t i, k, n = 0, n_kinds = 1;
    b->bounds.n = b->kinds.n = 0;
    bitnet_grammar__push(b, &b->bounds, 0);
    bitnet_grammar__push(b, &b->bounds, 0x110000);
    for (i = 0; i < b->sets.n && !b->code; i++) {
        bitnet_grammar__push(b, &b->bounds, BITNET_GRAMMAR__SET(b, i).low);
        bitnet_grammar__push(b, &b->bounds, BITNET_GRAMMAR__SET(b, i).high + 1);
    }
    if (b->code) return 0;
    bitnet_grammar__spend(b, 16 * (uint64_t)b->bounds.n);
    qsort(b->bounds.p, b->bounds.n, sizeof(uint32_t), bitnet_grammar__compare_numbers);
    for (i = 0; i < b->bounds.n; i++)
        if (!n || BITNET_GRAMMAR__NUMBER_AT(b->bounds, i) !=
                      BITNET_GRAMMAR__NUMBER_AT(b->bounds, n - 1))
            BITNET_GRAMMAR__NUMBER_AT(b->bounds, n++) = BITNET_GRAMMAR__NUMBER_AT(b->bounds, i);
    b->bounds.n = n;
    for (i = 0; i + 1 < n; i++) bitnet_grammar__push(b, &b->kinds, 0);
    for (k = 0; k < b->terms.n && !b->code; k++)
        if (BITNET_GRAMMAR__TERM(b, k).type == BITNET_GRAMMAR__CHARS)
            n_kinds = bitnet_grammar__split_kinds(b, &BITNET_GRAMMAR__TERM(b, k), n_kinds);
    return n_kinds;
}

/* ---- the states ---- */

/* Adds to b->members what a step leads to without a character. start: at the string's start. */
static void bitnet_grammar__reach(bitnet_grammar__builder *b, uint32_t member, int start) {
    b->stack.n = 0;
    bitnet_grammar__push(b, &b->stack, member);
    while (b->stack.n > 0 && !b->code) {
        const uint32_t x = BITNET_GRAMMAR__NUMBER_AT(b->stack, --b->stack.n);
        const bitnet_grammar__stage *s = &BITNET_GRAMMAR__STEP(b, x / 2);
        uint32_t *mark = &BITNET_GRAMMAR__NUMBER_AT(b->marks, x);
        if (*mark == b->stamp) continue;
        *mark = b->stamp;
        bitnet_grammar__spend(b, 1);
        if (s->type == BITNET_GRAMMAR__DONE || (s->type == BITNET_GRAMMAR__CHARS && !(x & 1)))
            bitnet_grammar__push(b, &b->members, x);
        if (s->type == BITNET_GRAMMAR__GO || s->type == BITNET_GRAMMAR__FORKED ||
            (s->type == BITNET_GRAMMAR__START && start))
            bitnet_grammar__push(b, &b->stack, 2 * s->next + (x & 1));
        if (s->type == BITNET_GRAMMAR__FORKED)
            bitnet_grammar__push(b, &b->stack, 2 * s->alt + (x & 1));
        if (s->type == BITNET_GRAMMAR__END) bitnet_grammar__push(b, &b->stack, 2 * s->next + 1);
    }
}

/* The state of b->members[first ..], which is then theirs. A limit that holds for good needs none
   of its other steps: those from its DONE to the next limit's. */
static uint32_t bitnet_grammar__state_of(bitnet_grammar__builder *b, uint32_t first) {
    uint32_t *members = (uint32_t *)b->members.p;
    const uint32_t n = b->members.n, space = BITNET_GRAMMAR__LISTS + b->n_lists;
    uint32_t i, key, size, wanted = 0, held = 0, skip = 0, last = BITNET_GRAMMAR__NONE;
    bitnet_grammar__texts *t;
    if (b->code) return 0;
    bitnet_grammar__spend(b, 8 * (uint64_t)(n - first));
    qsort(members + first, n - first, sizeof *members, bitnet_grammar__compare_numbers);
    for (i = b->members.n = first; i < n; i++) {
        const bitnet_grammar__stage *s = &BITNET_GRAMMAR__STEP(b, members[i] / 2);
        if (s->type != BITNET_GRAMMAR__DONE && members[i] / 2 < skip) continue;
        if (s->type == BITNET_GRAMMAR__DONE && s->alt != last) {
            last = s->alt;
            held += BITNET_GRAMMAR__LIMIT(b, last).negated ? b->limits.n : 1;
        }
        if (s->type == BITNET_GRAMMAR__DONE && !(members[i] & 1))
            skip = last + 1 < b->limits.n ? BITNET_GRAMMAR__LIMIT(b, last + 1).done
                                          : BITNET_GRAMMAR__NONE;
        members[b->members.n++] = members[i];
    }
    size = (b->members.n - first) * (uint32_t)sizeof *members;
    i = bitnet_grammar__look_up(b, space, (const char *)(members + first), size);
    if (i != BITNET_GRAMMAR__NONE || b->code) {
        b->members.n = first;
        return i;
    }
    for (i = 0; i < b->limits.n; i++) wanted += !BITNET_GRAMMAR__LIMIT(b, i).negated;
    key = b->pool.n;
    bitnet_grammar__put(b, &b->pool, members + first, size);
    bitnet_grammar__add_name(b, space, key, size, b->states.n);
    if (b->states.n >= BITNET_GRAMMAR__PRODUCT)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at,
                             "a pattern too large to be kept beside another keyword");
    t = (bitnet_grammar__texts *)bitnet_grammar__add(b, &b->states, sizeof *t);
    if (!t) return 0;
    t->first = first;
    t->n = b->members.n - first;
    t->final = held == wanted;
    return b->states.n - 1;
}

/* Is a character in the set of a step? */
static int bitnet_grammar__step_has(bitnet_grammar__builder *b, const bitnet_grammar__stage *s,
                                    uint32_t cp) {
    uint32_t low = 0, high = s->n_set;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (cp > BITNET_GRAMMAR__SET(b, s->set + mid).high) low = mid + 1;
        else high = mid;
    }
    return low < s->n_set && cp >= BITNET_GRAMMAR__SET(b, s->set + low).low;
}

/* All states, and b->moves: where each kind of character leads from each. */
static void bitnet_grammar__find_states(bitnet_grammar__builder *b, uint32_t n_kinds) {
    bitnet_grammar__array cps = {0, 0, 0};
    const uint32_t any = bitnet_grammar__any_char(b);
    uint32_t times = bitnet_grammar__add_term(b, BITNET_GRAMMAR__TIMES), i, k, q, x, first;
    b->steps.n = b->members.n = b->states.n = b->moves.n = b->marks.n = b->stamp = 0;
    b->n_lists++;
    if (b->code) return;
    BITNET_GRAMMAR__TERM(b, times).first = any;
    BITNET_GRAMMAR__TERM(b, times).max = -1;
    for (i = 0; i < n_kinds; i++) bitnet_grammar__push(b, &cps, BITNET_GRAMMAR__NONE);
    for (i = 0; i < b->kinds.n && !b->code; i++)
        BITNET_GRAMMAR__NUMBER_AT(cps, BITNET_GRAMMAR__NUMBER_AT(b->kinds, i)) =
            BITNET_GRAMMAR__NUMBER_AT(b->bounds, i);
    for (i = 0; i < b->limits.n && !b->code; i++) {
        BITNET_GRAMMAR__LIMIT(b, i).done = b->steps.n;
        x = bitnet_grammar__limit_steps(b, i, times);
        if (!b->code) BITNET_GRAMMAR__LIMIT(b, i).start = x;
    }
    for (i = 0; i < 2 * b->steps.n && !b->code; i++) bitnet_grammar__push(b, &b->marks, 0);
    for (b->stamp = 1, i = 0; i < b->limits.n && !b->code; i++)
        bitnet_grammar__reach(b, 2 * BITNET_GRAMMAR__LIMIT(b, i).start, 1);
    bitnet_grammar__state_of(b, 0);
    for (q = 0; q < b->states.n && !b->code; q++)
        for (k = 0; k < n_kinds && !b->code; k++) {
            const bitnet_grammar__texts t = BITNET_GRAMMAR__TEXTS(b, q);
            first = b->members.n;
            b->stamp++;
            bitnet_grammar__spend(b, 4 * (uint64_t)t.n);
            for (i = 0; i < t.n && !b->code; i++) {
                bitnet_grammar__stage s;
                x = BITNET_GRAMMAR__NUMBER_AT(b->members, t.first + i);
                s = BITNET_GRAMMAR__STEP(b, x / 2);
                if (s.type == BITNET_GRAMMAR__DONE && !(x & 1)) bitnet_grammar__reach(b, x, 0);
                if (s.type == BITNET_GRAMMAR__CHARS &&
                    bitnet_grammar__step_has(b, &s, BITNET_GRAMMAR__NUMBER_AT(cps, k)))
                    bitnet_grammar__reach(b, 2 * s.next, 0);
            }
            x = bitnet_grammar__state_of(b, first);
            bitnet_grammar__push(b, &b->moves, x);
        }
    bitnet_grammar__free(&b->g->allocator, cps.p);
}

/* The states of all limits. Returns how many kinds of characters there are. */
static uint32_t bitnet_grammar__build_states(bitnet_grammar__builder *b) {
    uint32_t n;
    bitnet_grammar__any_char(b);
    n = bitnet_grammar__find_kinds(b);
    bitnet_grammar__find_states(b, n);
    return n;
}

/* Do all limits hold of a text of n bytes in the pool? */
static int bitnet_grammar__text_fits(bitnet_grammar__builder *b, uint32_t n_kinds, uint32_t text,
                                     uint32_t n) {
    const uint32_t end = text + n;
    uint32_t q = 0;
    bitnet_grammar__spend(b, 16 * (uint64_t)n);
    if (b->code) return 0;
    while (text < end) {
        const uint32_t cp = bitnet_grammar__pool_char(b, &text, end);
        uint32_t low = 0, high = b->kinds.n;
        while (low + 1 < high) {
            const uint32_t mid = (low + high) / 2;
            if (cp >= BITNET_GRAMMAR__NUMBER_AT(b->bounds, mid)) low = mid;
            else high = mid;
        }
        q = BITNET_GRAMMAR__NUMBER_AT(b->moves, q * n_kinds +
                                                    BITNET_GRAMMAR__NUMBER_AT(b->kinds, low));
    }
    return BITNET_GRAMMAR__TEXTS(b, q).final;
}

/* ---- their strings of some lengths, as a graph ---- */

/* States at each length: [n_states][n_levels]. The last level is all greater lengths if `open`. */
typedef struct bitnet_grammar__product {
    uint32_t n_kinds, n_levels, least;     /* a string has at least so many characters */
    int open;
    uint32_t end;                          /* where all strings lead */
    uint32_t *node;                        /* 0: no string, 1: some, more: the JOIN */
} bitnet_grammar__product;

/* Where a kind of characters leads from state q at a level; NONE: nowhere. */
static uint32_t bitnet_grammar__onward(bitnet_grammar__builder *b,
                                       const bitnet_grammar__product *p, uint32_t at, uint32_t k) {
    const uint32_t q = at / p->n_levels, level = at % p->n_levels;
    if (level + 1 == p->n_levels && !p->open) return BITNET_GRAMMAR__NONE;
    return BITNET_GRAMMAR__NUMBER_AT(b->moves, q * p->n_kinds + k) * p->n_levels + level +
           (level + 1 < p->n_levels);
}

/* Marks what can lead to an end: the last level until nothing changes, and then the ones before. */
static void bitnet_grammar__mark_ends(bitnet_grammar__builder *b, bitnet_grammar__product *p) {
    uint32_t level, q, k, to, changed;
    for (level = p->n_levels; level-- > 0 && !b->code;)
        for (changed = 1; changed && !b->code;) {
            changed = 0;
            for (q = b->states.n; q-- > 0 && !b->code;) {
                uint32_t *node = &p->node[q * p->n_levels + level];
                if (*node) continue;
                if (level >= p->least && BITNET_GRAMMAR__TEXTS(b, q).final) *node = 1;
                for (k = 0; k < p->n_kinds && !*node; k++) {
                    to = bitnet_grammar__onward(b, p, q * p->n_levels + level, k);
                    if (to != BITNET_GRAMMAR__NONE && p->node[to]) *node = 1;
                }
                bitnet_grammar__spend(b, 1 + k);
                changed |= *node;
            }
            if (level + 1 < p->n_levels || !p->open) break;
        }
}

/* The rule of one character of the kinds in b->stack, which are in order. */
static uint32_t bitnet_grammar__kinds_rule(bitnet_grammar__builder *b) {
    const uint32_t n = b->stack.n * (uint32_t)sizeof(uint32_t), key = b->pool.n;
    const uint32_t space = BITNET_GRAMMAR__LISTS + b->n_lists;
    uint32_t r = bitnet_grammar__look_up(b, space, (const char *)b->stack.p, n), i, k;
    if (r != BITNET_GRAMMAR__NONE || b->code) return r;
    bitnet_grammar__put(b, &b->pool, b->stack.p, n);
    r = bitnet_grammar__add_rule(b, 0, 0, b->place);
    bitnet_grammar__add_name(b, space, key, n, r);
    bitnet_grammar__spend(b, b->kinds.n);
    for (b->ranges.n = i = 0; i < b->kinds.n && !b->code; i++) {
        const uint32_t low = BITNET_GRAMMAR__NUMBER_AT(b->bounds, i);
        const uint32_t high = BITNET_GRAMMAR__NUMBER_AT(b->bounds, i + 1) - 1;
        for (k = 0; k < b->stack.n; k++)
            if (BITNET_GRAMMAR__NUMBER_AT(b->stack, k) == BITNET_GRAMMAR__NUMBER_AT(b->kinds, i))
                break;
        bitnet_grammar__spend(b, k);
        if (k == b->stack.n) continue;
        if (b->ranges.n && BITNET_GRAMMAR__RANGE(b, b->ranges.n - 1).high + 1 == low)
            BITNET_GRAMMAR__RANGE(b, b->ranges.n - 1).high = high;
        else bitnet_grammar__add_range(b, low, high);
    }
    if (!b->code) bitnet_grammar__define(b, r, bitnet_grammar__json_class(b));
    return r;
}

/* What follows a state at a level: each state that some kinds lead to, or the end. */
static void bitnet_grammar__link_state(bitnet_grammar__builder *b, bitnet_grammar__product *p,
                                       uint32_t at, bitnet_grammar__array *todo) {
    const uint32_t q = at / p->n_levels, level = at % p->n_levels;
    uint32_t k, j, to, follows = 0;
    bitnet_grammar__frag f;
    for (k = 0; k < p->n_kinds && !b->code; k++) {
        to = bitnet_grammar__onward(b, p, at, k);
        if (to == BITNET_GRAMMAR__NONE || !p->node[to]) continue;
        for (j = 0; j < k && bitnet_grammar__onward(b, p, at, j) != to; j++) continue;
        bitnet_grammar__spend(b, 1 + j);
        if (j < k) continue;               /* it has been seen */
        b->stack.n = 0;
        for (j = k; j < p->n_kinds; j++)
            if (bitnet_grammar__onward(b, p, at, j) == to) bitnet_grammar__push(b, &b->stack, j);
        bitnet_grammar__spend(b, p->n_kinds);
        if (p->node[to] == 1) {
            p->node[to] = bitnet_grammar__join(b);
            bitnet_grammar__push(b, todo, to);
        }
        f = bitnet_grammar__call(b, bitnet_grammar__kinds_rule(b));
        bitnet_grammar__link(b, f.end, p->node[to]);
        follows = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, f.start, follows);
    }
    if (level >= p->least && BITNET_GRAMMAR__TEXTS(b, q).final)
        follows = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, p->end, follows);
    bitnet_grammar__link(b, p->node[at], follows);
}

/* The strings of min to max characters (max -1: any number) that all limits allow. Where there are
   very many lengths, only shorter ones than max are written. */
static bitnet_grammar__frag bitnet_grammar__all_limits(bitnet_grammar__builder *b, int32_t min,
                                                       int32_t max) {
    bitnet_grammar__array todo = {0, 0, 0};
    bitnet_grammar__product p;
    uint32_t start, room, n;
    memset(&p, 0, sizeof p);
    p.n_kinds = bitnet_grammar__build_states(b);
    if (b->code) return bitnet_grammar__pair(0, 0);
    b->n_lists++;
    room = BITNET_GRAMMAR__PRODUCT / b->states.n;
    if ((uint32_t)min >= room)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at,
                             "minLength %d is too large beside a pattern or format", (int)min);
    p.open = max < 0;
    p.least = (uint32_t)min;
    p.n_levels = (uint32_t)(p.open ? min : (uint32_t)max < room ? max : (int32_t)room - 1) + 1;
    n = b->states.n * p.n_levels;
    p.node = b->code ? 0 : (uint32_t *)bitnet_grammar__alloc(&b->g->allocator,
                                                             n * sizeof *p.node);
    if (!p.node) {
        bitnet_grammar__fail(b, BITNET_ERR_MEMORY, BITNET_GRAMMAR__NONE, "out of memory");
        return bitnet_grammar__pair(0, 0);
    }
    memset(p.node, 0, n * sizeof *p.node);
    bitnet_grammar__mark_ends(b, &p);
    start = bitnet_grammar__join(b);
    p.end = bitnet_grammar__join(b);
    if (p.node[0]) {
        p.node[0] = start;
        bitnet_grammar__push(b, &todo, 0);
    } else if (!p.open && p.n_levels <= (uint32_t)max)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, b->at,
                             "a pattern too large to be kept beside maxLength");
    while (todo.n > 0 && !b->code)
        bitnet_grammar__link_state(b, &p, BITNET_GRAMMAR__NUMBER_AT(todo, --todo.n), &todo);
    bitnet_grammar__free(&b->g->allocator, todo.p);
    bitnet_grammar__free(&b->g->allocator, p.node);
    return bitnet_grammar__pair(start, p.end);
}

/* ---- strings ---- */

/* Formats as patterns, each narrower than the format where that is long or has odd texts. Other
   names bind nothing, as in validators: the standard calls them notes. */
static const struct { const char *name, *pattern; } bitnet_grammar__formats[] = {
    {"date", "^" BITNET_GRAMMAR__DATE "$"},
    {"time iso-time", "^" BITNET_GRAMMAR__TIME "$"},
    {"date-time iso-date-time", "^" BITNET_GRAMMAR__DATE "T" BITNET_GRAMMAR__TIME "$"},
    {"duration", BITNET_GRAMMAR__DURATION},
    {"email idn-email", "^[A-Za-z0-9_'+-]+([.][A-Za-z0-9_'+-]+)*@(" BITNET_GRAMMAR__LABEL
              "[.]){1,7}[A-Za-z]{2,24}$"},
    {"hostname idn-hostname", "^" BITNET_GRAMMAR__HOST "$"},
    {"ipv4", "^(" BITNET_GRAMMAR__OCTET "[.]){3}" BITNET_GRAMMAR__OCTET "$"},
    {"ipv6", "^(" BITNET_GRAMMAR__HEX BITNET_GRAMMAR__H("7") "|::(" BITNET_GRAMMAR__HEX
             BITNET_GRAMMAR__H("0,6") ")?|" BITNET_GRAMMAR__HEX
             "(" BITNET_GRAMMAR__H("0") ":" BITNET_GRAMMAR__H("1,6")
             "|" BITNET_GRAMMAR__H("1") ":" BITNET_GRAMMAR__H("1,5")
             "|" BITNET_GRAMMAR__H("2") ":" BITNET_GRAMMAR__H("1,4")
             "|" BITNET_GRAMMAR__H("3") ":" BITNET_GRAMMAR__H("1,3")
             "|" BITNET_GRAMMAR__H("4") ":" BITNET_GRAMMAR__H("1,2")
             "|" BITNET_GRAMMAR__H("5") ":" BITNET_GRAMMAR__H("1")
             "|" BITNET_GRAMMAR__H("0,6") "::))$"},
    {"uri iri", "^" BITNET_GRAMMAR__URI "$"},
    {"uri-template", "^(https?://" BITNET_GRAMMAR__HOST
                     ")?(/([A-Za-z0-9._~-]|[{][A-Za-z0-9_]+[}])*)+$"},
    {"uri-reference iri-reference", "^(" BITNET_GRAMMAR__URI "|(/" BITNET_GRAMMAR__PATH "+)+"
                      BITNET_GRAMMAR__MORE ")$"},
    {"url", "^https?://([A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20})?[.]){1,4}[A-Za-z]{2,24}"
            "(:[0-9]{2,5})?(/" BITNET_GRAMMAR__PATH "*)*$"},
    {"uuid guid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    {"json-pointer", "^(/([^/~]|~[01])*)*$"},
    {"json-pointer-uri-fragment", "^#(/([A-Za-z0-9._-]|~[01])*)*$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]*)(#|(/([^/~]|~[01])*)*)$"},
    {"regex", "^\\^?[A-Za-z0-9 _:;,@#%&='\"<>~-]*[$]?$"},
    {"byte", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}};

/* Is the format of a schema, if it has one, in a list? */
static int bitnet_grammar__format_is(bitnet_grammar__builder *b, uint32_t v, const char *list) {
    const uint32_t p = bitnet_grammar__get(b, v, "format");
    return bitnet_grammar__type(b, p) == BITNET_GRAMMAR__STRING &&
           bitnet_grammar__is_in(list, BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).text),
                                 BITNET_GRAMMAR__VALUE(b, p).n_text);
}

/* The number of a string's format, or NONE: it says nothing about strings. */
static uint32_t bitnet_grammar__format_of(bitnet_grammar__builder *b, uint32_t format) {
    const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, format);
    uint32_t i;
    if (x->type != BITNET_GRAMMAR__STRING)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, format, "not a string");
    if (b->code) return BITNET_GRAMMAR__NONE;
    for (i = 0; i < sizeof bitnet_grammar__formats / sizeof bitnet_grammar__formats[0]; i++)
        if (bitnet_grammar__is_in(bitnet_grammar__formats[i].name,
                                  BITNET_GRAMMAR__POOL(b, x->text), x->n_text)) return i;
    return BITNET_GRAMMAR__NONE;
}

static void bitnet_grammar__forget_limits(bitnet_grammar__builder *b) {
    b->terms.n = b->sets.n = b->limits.n = b->n_anchors = 0;
    b->pattern = BITNET_GRAMMAR__NONE;
    b->narrowed = 0;
}

/* Adds the limit of p: of a pattern, a format, or by its key, which is a pattern. 0: it is none. */
static int bitnet_grammar__add_text_limit(bitnet_grammar__builder *b, uint32_t p, int by_key,
                                          int opposite) {
    const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, p);
    const char *s = BITNET_GRAMMAR__POOL(b, x->key);
    uint32_t n = x->n_key, f;
    if (by_key) {
        bitnet_grammar__read_pattern(b, p, s, n, opposite);
        return 1;
    }
    if (x->type != BITNET_GRAMMAR__STRING)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not a string");
    if (b->code) return 0;
    s = BITNET_GRAMMAR__POOL(b, x->text);
    n = x->n_text;
    if (bitnet_grammar__is_word_of(b, p, BITNET_GRAMMAR__K_FORMAT)) {
        f = bitnet_grammar__format_of(b, p);
        if (f == BITNET_GRAMMAR__NONE) return 0;
        s = bitnet_grammar__formats[f].pattern;
        n = (uint32_t)strlen(s);
        b->narrowed = 1;
    }
    bitnet_grammar__read_pattern(b, p, s, n, opposite);
    return 1;
}

/* Does a text in the pool match a pattern or format, as above? -1: it is not known. */
static int bitnet_grammar__text_matches(bitnet_grammar__builder *b, uint32_t p, int by_key,
                                        uint32_t text, uint32_t n) {
    if (b->pattern != p) {
        bitnet_grammar__forget_limits(b);
        if (!bitnet_grammar__add_text_limit(b, p, by_key, 0)) return !b->code;
        b->n_kinds = bitnet_grammar__build_states(b);
        if (!b->code) b->pattern = p;
    }
    return bitnet_grammar__text_fits(b, b->n_kinds, text, n) ? 1 : b->narrowed ? -1 : 0;
}

/* A term of a text in the pool, and nothing else. */
static uint32_t bitnet_grammar__text_term(bitnet_grammar__builder *b, uint32_t key, uint32_t n) {
    const uint32_t all = bitnet_grammar__add_term(b, BITNET_GRAMMAR__SEQUENCE), end = key + n;
    uint32_t last = BITNET_GRAMMAR__NONE;
    bitnet_grammar__add_part(b, all, bitnet_grammar__add_term(b, BITNET_GRAMMAR__START), &last);
    while (key < end && !b->code) {
        const uint32_t cp = bitnet_grammar__pool_char(b, &key, end);
        b->ranges.n = 0;
        bitnet_grammar__add_range(b, cp, cp);
        bitnet_grammar__add_part(b, all, bitnet_grammar__chars(b), &last);
    }
    bitnet_grammar__add_part(b, all, bitnet_grammar__add_term(b, BITNET_GRAMMAR__END), &last);
    return all;
}

/* Adds the limits of the schemas' patterns and formats, and of those that must not hold. */
static void bitnet_grammar__read_limits(bitnet_grammar__builder *b,
                                        const bitnet_grammar__all *all) {
    uint32_t i, p, term, last;
    for (i = 0; i < all->n && !b->code; i++) {
        p = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_PATTERN);
        if (p != BITNET_GRAMMAR__NONE) bitnet_grammar__add_text_limit(b, p, 0, 0);
        p = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_FORMAT);
        if (p != BITNET_GRAMMAR__NONE) bitnet_grammar__add_text_limit(b, p, 0, 0);
    }
    for (i = 0; i < all->n_demands && !b->code; i++) {
        uint32_t v = all->demand[i];
        const uint32_t keyword = BITNET_GRAMMAR__VALUE(b, v).keyword;
        if (all->kind[i] != BITNET_GRAMMAR__BROKEN) continue;
        if (keyword == BITNET_GRAMMAR__K_PATTERN + 1) bitnet_grammar__add_text_limit(b, v, 0, 1);
        if (keyword != BITNET_GRAMMAR__K_ENUM + 1 && keyword != BITNET_GRAMMAR__K_CONST + 1)
            continue;
        term = bitnet_grammar__add_term(b, BITNET_GRAMMAR__CHOICE);
        last = BITNET_GRAMMAR__NONE;
        if (keyword == BITNET_GRAMMAR__K_ENUM + 1) v = BITNET_GRAMMAR__VALUE(b, v).first;
        for (; v != BITNET_GRAMMAR__NONE && !b->code; v = BITNET_GRAMMAR__VALUE(b, v).next) {
            const bitnet_grammar__value x = BITNET_GRAMMAR__VALUE(b, v);
            if (x.type == BITNET_GRAMMAR__STRING)
                bitnet_grammar__add_part(b, term, bitnet_grammar__text_term(b, x.text, x.n_text),
                                         &last);
            if (keyword == BITNET_GRAMMAR__K_CONST + 1) break;
        }
        if (last != BITNET_GRAMMAR__NONE) bitnet_grammar__add_limit(b, term, 1);
    }
}

/* The greatest and least that the schemas say of a count. */
static void bitnet_grammar__counts(bitnet_grammar__builder *b, const bitnet_grammar__all *all,
                                   int min_key, int max_key, int32_t *min, int32_t *max) {
    uint32_t i;
    *min = 0;
    *max = -1;
    for (i = 0; i < all->n + all->n_demands; i++) {
        const uint32_t d = i < all->n ? 0 : all->demand[i - all->n];
        int32_t low = 0, high = -1;
        if (i < all->n) {
            low = bitnet_grammar__count(b, all->v[i], min_key, 0);
            high = bitnet_grammar__count(b, all->v[i], max_key, -1);
        } else if (all->kind[i - all->n] != BITNET_GRAMMAR__BROKEN) continue;
        else if (bitnet_grammar__is_word_of(b, d, min_key)) {
            high = bitnet_grammar__count(b, BITNET_GRAMMAR__VALUE(b, d).parent, min_key, 0) - 1;
            if (high < 0) low = 1, high = 0;           /* nothing has fewer than none */
        } else if (bitnet_grammar__is_word_of(b, d, max_key))
            low = 1 + bitnet_grammar__count(b, BITNET_GRAMMAR__VALUE(b, d).parent, max_key, -1);
        if (low > BITNET_GRAMMAR__COUNT) low = 1, high = 0;            /* nothing is so long */
        if (low > *min) *min = low;
        if (high >= 0 && (*max < 0 || high < *max)) *max = high;
    }
}

/* The strings of some lengths that keep all limits. */
static bitnet_grammar__frag bitnet_grammar__limited(bitnet_grammar__builder *b, int32_t min,
                                                    int32_t max) {
    int64_t least = 0, most = 1 << 30;
    uint32_t p, sides;
    bitnet_grammar__frag f;
    if (b->code) return bitnet_grammar__pair(0, 0);
    if (max >= 0 && max < min) return bitnet_grammar__failing(b);
    if (!b->limits.n) {
        if (min == 0 && max < 0 && !b->raw) return bitnet_grammar__named(b, "string");
        f = b->raw ? bitnet_grammar__term_frag(b, bitnet_grammar__any_char(b))
                   : bitnet_grammar__named(b, "char");
        f = bitnet_grammar__repeat(b, f, min, max);
    } else {
        const int simple = bitnet_grammar__is_simple(b);
        const uint32_t term = BITNET_GRAMMAR__LIMIT(b, 0).term;
        if (simple) bitnet_grammar__lengths(b, term, &least, &most);
        for (p = BITNET_GRAMMAR__TERM(b, term).first; simple && p != BITNET_GRAMMAR__NONE;
             p = BITNET_GRAMMAR__TERM(b, p).next) {
            bitnet_grammar__outer_anchors(b, p, &sides);
            if (sides != 3) most = 1 << 30;            /* it may match inside of the string */
        }
        if (min <= least) min = 0;
        if (max >= most) max = -1;
        f = simple && min == 0 && max < 0
                ? bitnet_grammar__simple_limit(b, term)
                : bitnet_grammar__all_limits(b, min, max);
    }
    if (b->raw) return f;
    f = bitnet_grammar__seq(b, bitnet_grammar__text(b, "\""), f);
    return bitnet_grammar__seq(b, f, bitnet_grammar__text(b, "\""));
}

static bitnet_grammar__frag bitnet_grammar__strings(bitnet_grammar__builder *b,
                                                    const bitnet_grammar__all *all) {
    int32_t min, max;
    bitnet_grammar__counts(b, all, BITNET_GRAMMAR__K_MIN_LENGTH, BITNET_GRAMMAR__K_MAX_LENGTH, &min,
                           &max);
    bitnet_grammar__forget_limits(b);
    bitnet_grammar__read_limits(b, all);
    return bitnet_grammar__limited(b, min, max);
}

/* ---- does a value keep a schema? 1: yes, 0: no, -1: it is not known ---- */

static int bitnet_grammar__keeps(bitnet_grammar__builder *b, uint32_t x, uint32_t v, int deep);
static uint32_t bitnet_grammar__resolve_ref(bitnet_grammar__builder *b, uint32_t ref);

/* Are two values equal? */
static int bitnet_grammar__equal(bitnet_grammar__builder *b, uint32_t x, uint32_t y) {
    const bitnet_grammar__value v = BITNET_GRAMMAR__VALUE(b, x), w = BITNET_GRAMMAR__VALUE(b, y);
    const int numbers = BITNET_GRAMMAR__INTEGER | BITNET_GRAMMAR__NUMBER;
    uint32_t p, q;
    int out = 1, r;
    if (bitnet_grammar__differ(b, x, y)) return 0;
    if (v.type & numbers)
        return v.size == w.size && !memcmp(b->source + v.at, b->source + w.at, v.size) ? 1 : -1;
    if (v.type < BITNET_GRAMMAR__ARRAY) return 1;
    if (v.n_parts != w.n_parts) return 0;
    for (p = v.first, q = w.first; p != BITNET_GRAMMAR__NONE && !b->code;
         p = BITNET_GRAMMAR__VALUE(b, p).next) {
        if (v.type == BITNET_GRAMMAR__OBJECT) {
            q = bitnet_grammar__look_up(b, y,
                                        BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).key),
                                        BITNET_GRAMMAR__VALUE(b, p).n_key);
            if (q == BITNET_GRAMMAR__NONE) return 0;
        }
        r = bitnet_grammar__equal(b, p, q);
        if (r == 0) return 0;
        if (r < 0) out = r;
        if (v.type == BITNET_GRAMMAR__ARRAY) q = BITNET_GRAMMAR__VALUE(b, q).next;
    }
    return out;
}

static int bitnet_grammar__both(int x, int y) { return !x || !y ? 0 : x < 0 || y < 0 ? -1 : 1; }
static int bitnet_grammar__opposite(int x) { return x < 0 ? x : !x; }

/* How many of the schemas in a list does a value keep: at least *least, at most *most. */
static void bitnet_grammar__keeps_some(bitnet_grammar__builder *b, uint32_t x, uint32_t list,
                                       int deep, uint32_t *least, uint32_t *most) {
    uint32_t p;
    int r;
    *least = *most = 0;
    BITNET_GRAMMAR__EACH(b, p, list) {
        r = bitnet_grammar__keeps(b, x, p, deep + 1);
        *least += r > 0;
        *most += r != 0;
    }
}

/* Does a number keep a bound, or multipleOf? */
static int bitnet_grammar__number_keeps(bitnet_grammar__builder *b, uint32_t x, uint32_t v,
                                        uint32_t p) {
    const double d = BITNET_GRAMMAR__VALUE(b, x).number;
    const double bound = BITNET_GRAMMAR__VALUE(b, p).number;
    volatile double times;
    int k, exclusive;
    for (k = 0; k < 4; k++) {
        if (!bitnet_grammar__is_word_of(b, p, bitnet_grammar__bounds[k].keyword)) continue;
        p = bitnet_grammar__bound(b, v, k, &exclusive);
        if (p == BITNET_GRAMMAR__NONE || b->code) return 1;
        if (d == bound) return !exclusive;
        return bitnet_grammar__bounds[k].up ? d > bound : d < bound;
    }
    if (bound <= 0 || BITNET_GRAMMAR__VALUE(b, x).size > 15 ||
        BITNET_GRAMMAR__VALUE(b, p).size > 15 || d / bound > 1e15 || d / bound < -1e15) return -1;
    times = d / bound;
    return times == (double)(int64_t)times;
}

/* How many characters a string has, or parts an array or object. */
static uint32_t bitnet_grammar__extent(bitnet_grammar__builder *b, uint32_t x) {
    const bitnet_grammar__value s = BITNET_GRAMMAR__VALUE(b, x);
    uint32_t i, n = 0;
    if (s.type != BITNET_GRAMMAR__STRING) return s.n_parts;
    bitnet_grammar__spend(b, s.n_text / 8);
    for (i = 0; i < s.n_text; i++) n += (BITNET_GRAMMAR__POOL(b, s.text)[i] & 0xC0) != 0x80;
    return n;
}

/* Does an array keep a keyword? */
static int bitnet_grammar__array_keeps(bitnet_grammar__builder *b, uint32_t x, uint32_t v,
                                       uint32_t p, int keyword, int deep) {
    const uint32_t items = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_ITEMS);
    uint32_t list = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PREFIX_ITEMS), q, i, k;
    int out = 1;
    if (bitnet_grammar__type(b, items) == BITNET_GRAMMAR__ARRAY) list = items;
    if (keyword == BITNET_GRAMMAR__K_UNIQUE_ITEMS) {
        if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__TRUE) return 1;
        for (q = BITNET_GRAMMAR__VALUE(b, x).first; q != BITNET_GRAMMAR__NONE && out;
             q = BITNET_GRAMMAR__VALUE(b, q).next)
            for (i = BITNET_GRAMMAR__VALUE(b, q).next; i != BITNET_GRAMMAR__NONE && out;
                 i = BITNET_GRAMMAR__VALUE(b, i).next)
                out = bitnet_grammar__both(out, bitnet_grammar__opposite(
                                                    bitnet_grammar__equal(b, q, i)));
        return out;
    }
    if (keyword == BITNET_GRAMMAR__K_CONTAINS || keyword == BITNET_GRAMMAR__K_UNEVALUATED_ITEMS)
        return -1;
    if (keyword == BITNET_GRAMMAR__K_ADDITIONAL_ITEMS &&
        bitnet_grammar__type(b, items) != BITNET_GRAMMAR__ARRAY) return 1;
    k = bitnet_grammar__type(b, list) == BITNET_GRAMMAR__ARRAY
            ? BITNET_GRAMMAR__VALUE(b, list).first : BITNET_GRAMMAR__NONE;
    for (q = BITNET_GRAMMAR__VALUE(b, x).first; q != BITNET_GRAMMAR__NONE && out && !b->code;
         q = BITNET_GRAMMAR__VALUE(b, q).next) {
        const uint32_t other = k == BITNET_GRAMMAR__NONE ? p : BITNET_GRAMMAR__NONE;
        const uint32_t schema = p == list ? k : other;
        if (schema != BITNET_GRAMMAR__NONE)
            out = bitnet_grammar__both(out, bitnet_grammar__keeps(b, q, schema, deep + 1));
        if (k != BITNET_GRAMMAR__NONE) k = BITNET_GRAMMAR__VALUE(b, k).next;
    }
    return out;
}

/* The part of an object with the text of a string; NONE. */
static uint32_t bitnet_grammar__named_part(bitnet_grammar__builder *b, uint32_t x, uint32_t name) {
    const bitnet_grammar__value *v = &BITNET_GRAMMAR__VALUE(b, name);
    return v->type == BITNET_GRAMMAR__STRING
               ? bitnet_grammar__look_up(b, x, BITNET_GRAMMAR__POOL(b, v->text), v->n_text)
               : BITNET_GRAMMAR__NONE;
}

/* Has an object all properties that an array names? */
static int bitnet_grammar__has_parts(bitnet_grammar__builder *b, uint32_t x, uint32_t names) {
    uint32_t q;
    BITNET_GRAMMAR__EACH(b, q, names)
        if (bitnet_grammar__named_part(b, x, q) == BITNET_GRAMMAR__NONE) return 0;
    return 1;
}

/* A value that is a string: the key of another one. */
static uint32_t bitnet_grammar__key_value(bitnet_grammar__builder *b, uint32_t key,
                                          uint32_t n_key) {
    bitnet_grammar__value *v;
    bitnet_grammar__spend(b, 16);
    v = (bitnet_grammar__value *)bitnet_grammar__add(b, &b->values, sizeof *v);
    if (!v) return 0;
    v->type = BITNET_GRAMMAR__STRING;
    v->text = key;
    v->n_text = n_key;
    v->first = v->next = v->parent = v->rule = v->behind = BITNET_GRAMMAR__NONE;
    return b->values.n - 1;
}

/* Does an object keep a keyword that is about each of its properties? */
static int bitnet_grammar__parts_keep(bitnet_grammar__builder *b, uint32_t x, uint32_t v,
                                      uint32_t p, int keyword, int deep) {
    const uint32_t listed = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PROPERTIES);
    const uint32_t patterns = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PATTERN_PROPERTIES);
    uint32_t q, i, key;
    int out = 1;
    for (q = BITNET_GRAMMAR__VALUE(b, x).first; q != BITNET_GRAMMAR__NONE && out && !b->code;
         q = BITNET_GRAMMAR__VALUE(b, q).next) {
        const bitnet_grammar__value y = BITNET_GRAMMAR__VALUE(b, q);
        int other = 1, r;
        if (keyword == BITNET_GRAMMAR__K_PROPERTY_NAMES) {
            key = bitnet_grammar__key_value(b, y.key, y.n_key);
            if (!b->code)
                out = bitnet_grammar__both(out, bitnet_grammar__keeps(b, key, p, deep + 1));
            continue;
        }
        if (listed != BITNET_GRAMMAR__NONE) {
            i = bitnet_grammar__look_up(b, listed, BITNET_GRAMMAR__POOL(b, y.key), y.n_key);
            other = i == BITNET_GRAMMAR__NONE;
            if (!other && keyword == BITNET_GRAMMAR__K_PROPERTIES)
                out = bitnet_grammar__both(out, bitnet_grammar__keeps(b, q, i, deep + 1));
        }
        if (keyword == BITNET_GRAMMAR__K_PROPERTIES) continue;
        i = bitnet_grammar__first(b, patterns);
        for (; i != BITNET_GRAMMAR__NONE && out && !b->code; i = BITNET_GRAMMAR__VALUE(b, i).next) {
            r = bitnet_grammar__text_matches(b, i, 1, y.key, y.n_key);
            if (r < 0) return -1;
            if (r) other = 0;
            if (r && keyword == BITNET_GRAMMAR__K_PATTERN_PROPERTIES)
                out = bitnet_grammar__both(out, bitnet_grammar__keeps(b, q, i, deep + 1));
        }
        if (other && keyword == BITNET_GRAMMAR__K_ADDITIONAL_PROPERTIES)
            out = bitnet_grammar__both(out, bitnet_grammar__keeps(b, q, p, deep + 1));
    }
    return out;
}

static int bitnet_grammar__object_keeps(bitnet_grammar__builder *b, uint32_t x, uint32_t v,
                                        uint32_t p, int keyword, int deep) {
    uint32_t q;
    int out = 1;
    switch (keyword) {
        case BITNET_GRAMMAR__K_REQUIRED: return bitnet_grammar__has_parts(b, x, p);
        case BITNET_GRAMMAR__K_DEPENDENT_REQUIRED: case BITNET_GRAMMAR__K_DEPENDENT_SCHEMAS:
        case BITNET_GRAMMAR__K_DEPENDENCIES:
            for (q = BITNET_GRAMMAR__VALUE(b, p).first; q != BITNET_GRAMMAR__NONE && out;
                 q = BITNET_GRAMMAR__VALUE(b, q).next) {
                const bitnet_grammar__value *y = &BITNET_GRAMMAR__VALUE(b, q);
                if (bitnet_grammar__look_up(b, x, BITNET_GRAMMAR__POOL(b, y->key), y->n_key) ==
                    BITNET_GRAMMAR__NONE) continue;
                out = bitnet_grammar__both(out, bitnet_grammar__type(b, q) == BITNET_GRAMMAR__ARRAY
                                                    ? bitnet_grammar__has_parts(b, x, q)
                                                    : bitnet_grammar__keeps(b, x, q, deep + 1));
            }
            return out;
        case BITNET_GRAMMAR__K_UNEVALUATED_PROPERTIES:
            return bitnet_grammar__type(b, p) == BITNET_GRAMMAR__TRUE ? 1 : -1;
        default: return bitnet_grammar__parts_keep(b, x, v, p, keyword, deep);
    }
}

/* Does a value keep one keyword, p, of a schema? */
static int bitnet_grammar__keeps_word(bitnet_grammar__builder *b, uint32_t x, uint32_t v,
                                      uint32_t p, int deep) {
    const int keyword = (int)BITNET_GRAMMAR__VALUE(b, p).keyword - 1;
    const uint32_t about = bitnet_grammar__keywords[keyword].types;
    const bitnet_grammar__value s = BITNET_GRAMMAR__VALUE(b, x);
    uint32_t q, least, most;
    int out = 0, format;
    if (about && !(about & s.type)) return 1;
    switch (keyword) {
        case BITNET_GRAMMAR__K_REF:
            q = bitnet_grammar__resolve_ref(b, p);
            return b->code ? 0 : bitnet_grammar__keeps(b, x, q, deep + 1);
        case BITNET_GRAMMAR__K_ALL_OF: case BITNET_GRAMMAR__K_ANY_OF: case BITNET_GRAMMAR__K_ONE_OF:
            bitnet_grammar__keeps_some(b, x, p, deep, &least, &most);
            q = keyword == BITNET_GRAMMAR__K_ALL_OF ? BITNET_GRAMMAR__VALUE(b, p).n_parts : 1;
            if (most < q || (keyword == BITNET_GRAMMAR__K_ONE_OF && least > 1)) return 0;
            return least >= q && (keyword != BITNET_GRAMMAR__K_ONE_OF || most == 1) ? 1 : -1;
        case BITNET_GRAMMAR__K_NOT:
            return bitnet_grammar__opposite(bitnet_grammar__keeps(b, x, p, deep + 1));
        case BITNET_GRAMMAR__K_IF:
            out = bitnet_grammar__keeps(b, x, p, deep + 1);
            if (out < 0) return out;
            q = bitnet_grammar__get(b, v, out ? "then" : "else");
            return q == BITNET_GRAMMAR__NONE ? 1 : bitnet_grammar__keeps(b, x, q, deep + 1);
        case BITNET_GRAMMAR__K_ENUM:
            if (s.parent == p) return 1;   /* it is from this list */
            for (q = BITNET_GRAMMAR__VALUE(b, p).first; q != BITNET_GRAMMAR__NONE && out < 1;
                 q = BITNET_GRAMMAR__VALUE(b, q).next) {
                const int r = bitnet_grammar__equal(b, x, q);
                if (r) out = r;
            }
            return out;
        case BITNET_GRAMMAR__K_CONST: return bitnet_grammar__equal(b, x, p);
        case BITNET_GRAMMAR__K_TYPE: return (bitnet_grammar__types(b, v) & s.type) != 0;
        case BITNET_GRAMMAR__K_FORMAT:
            format = bitnet_grammar__integer_format(b, v);
            if ((s.type & (BITNET_GRAMMAR__INTEGER | BITNET_GRAMMAR__NUMBER)) && format >= 0)
                return s.type == BITNET_GRAMMAR__INTEGER &&
                       s.number >= bitnet_grammar__integers[format].low &&
                       s.number <= bitnet_grammar__integers[format].high;
            return s.type != BITNET_GRAMMAR__STRING ||
                   bitnet_grammar__format_of(b, p) == BITNET_GRAMMAR__NONE
                       ? 1 : bitnet_grammar__text_matches(b, p, 0, s.text, s.n_text);
        case BITNET_GRAMMAR__K_PATTERN:
            return bitnet_grammar__text_matches(b, p, 0, s.text, s.n_text);
        case BITNET_GRAMMAR__K_MIN_LENGTH: case BITNET_GRAMMAR__K_MIN_ITEMS:
        case BITNET_GRAMMAR__K_MIN_PROPERTIES:
            return bitnet_grammar__extent(b, x) >=
                   (uint32_t)bitnet_grammar__count(b, v, keyword, 0);
        case BITNET_GRAMMAR__K_MAX_LENGTH: case BITNET_GRAMMAR__K_MAX_ITEMS:
        case BITNET_GRAMMAR__K_MAX_PROPERTIES:
            return bitnet_grammar__extent(b, x) <=
                   (uint32_t)bitnet_grammar__count(b, v, keyword, -1);
        case BITNET_GRAMMAR__K_NULLABLE: return 1;
        case BITNET_GRAMMAR__K_DRAFT_3: return -1;
        default: break;
    }
    return about == BITNET_GRAMMAR__ARRAY ? bitnet_grammar__array_keeps(b, x, v, p, keyword, deep)
           : about == BITNET_GRAMMAR__OBJECT
               ? bitnet_grammar__object_keeps(b, x, v, p, keyword, deep)
               : bitnet_grammar__number_keeps(b, x, v, p);
}

static int bitnet_grammar__keeps(bitnet_grammar__builder *b, uint32_t x, uint32_t v, int deep) {
    const uint8_t type = bitnet_grammar__type(b, v);
    uint32_t p;
    int out = 1;
    bitnet_grammar__spend(b, 4);
    if (deep > 2 * BITNET_GRAMMAR__NESTED || b->code) return -1;
    if (type != BITNET_GRAMMAR__OBJECT) return type == BITNET_GRAMMAR__TRUE ? 1
                                               : type == BITNET_GRAMMAR__FALSE ? 0 : -1;
    for (p = BITNET_GRAMMAR__VALUE(b, v).first; p != BITNET_GRAMMAR__NONE && out && !b->code;
         p = BITNET_GRAMMAR__VALUE(b, p).next)
        if (BITNET_GRAMMAR__VALUE(b, p).keyword)
            out = bitnet_grammar__both(out, bitnet_grammar__keeps_word(b, x, v, p, deep));
    return out;
}

/* Does a value do what breaks a schema? */
static int bitnet_grammar__meets(bitnet_grammar__builder *b, uint32_t x, uint32_t d, int kind) {
    const bitnet_grammar__value v = BITNET_GRAMMAR__VALUE(b, d);
    const int is_object = bitnet_grammar__type(b, x) == BITNET_GRAMMAR__OBJECT;
    uint32_t p;
    if (kind == BITNET_GRAMMAR__BROKEN)
        return bitnet_grammar__opposite(bitnet_grammar__keeps_word(b, x, v.parent, d, 0));
    if (kind == BITNET_GRAMMAR__DEMANDED) return !is_object || bitnet_grammar__has_parts(b, x, d);
    if (kind == BITNET_GRAMMAR__MISSING)
        return is_object && bitnet_grammar__named_part(b, x, d) == BITNET_GRAMMAR__NONE;
    if (!is_object) return kind == BITNET_GRAMMAR__BARRED;
    p = bitnet_grammar__look_up(b, x, BITNET_GRAMMAR__POOL(b, v.key), v.n_key);
    if (kind == BITNET_GRAMMAR__BARRED) return p == BITNET_GRAMMAR__NONE;
    if (kind == BITNET_GRAMMAR__PRESENT || p == BITNET_GRAMMAR__NONE)
        return p != BITNET_GRAMMAR__NONE;
    return bitnet_grammar__opposite(bitnet_grammar__keeps(b, p, d, 0));
}

/* ---- values that are listed, beside other keywords ---- */

/* The values that a schema lists: the first one; *list, if it is not NONE, is `enum`. */
static uint32_t bitnet_grammar__first_listed(bitnet_grammar__builder *b, uint32_t v,
                                             uint32_t *list) {
    const uint32_t one = bitnet_grammar__get(b, v, "const");
    *list = bitnet_grammar__get(b, v, "enum");
    if (one != BITNET_GRAMMAR__NONE) *list = BITNET_GRAMMAR__NONE;
    if (*list == BITNET_GRAMMAR__NONE) return one;
    if (bitnet_grammar__type(b, *list) != BITNET_GRAMMAR__ARRAY)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, *list, "not an array");
    return BITNET_GRAMMAR__VALUE(b, *list).first;
}

/* The next of them; NONE. */
static uint32_t bitnet_grammar__next_listed(const bitnet_grammar__builder *b, uint32_t list,
                                            uint32_t p) {
    return list == BITNET_GRAMMAR__NONE ? list : BITNET_GRAMMAR__VALUE(b, p).next;
}

/* Does a value that is listed keep everything? What cannot be told is refused. */
static int bitnet_grammar__keeps_all(bitnet_grammar__builder *b, uint32_t x,
                                     const bitnet_grammar__all *all) {
    uint32_t i, at = 0;
    int out = 1, r;
    for (i = 0; i < all->n && out && !b->code; i++) {
        r = bitnet_grammar__keeps(b, x, all->v[i], 0);
        if (r < 0) at = all->v[i];
        out = bitnet_grammar__both(out, r);
    }
    for (i = 0; i < all->n_no && out && !b->code; i++) {
        r = bitnet_grammar__keeps(b, x, all->no[i], 0);
        if (r < 0) at = all->no[i];
        out = bitnet_grammar__both(out, bitnet_grammar__opposite(r));
    }
    for (i = 0; i < all->n_demands && out && !b->code; i++) {
        r = bitnet_grammar__meets(b, x, all->demand[i], all->kind[i]);
        if (r < 0) at = all->demand[i];
        out = bitnet_grammar__both(out, r);
    }
    if (out < 0)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, at,
                              "beside enum or const: whether a value keeps this is not known");
    return out > 0;
}

/* Puts the values that one schema lists and all others allow on b->listed. 0: none lists any. */
static int bitnet_grammar__list_values(bitnet_grammar__builder *b,
                                       const bitnet_grammar__all *all) {
    const uint64_t lists = BITNET_GRAMMAR__WORD(ENUM) | BITNET_GRAMMAR__WORD(CONST);
    uint32_t k, p, list = BITNET_GRAMMAR__NONE, v = 0;
    b->listed.n = 0;
    for (k = 0; k < all->n; k++) {
        v = all->v[k];
        if (bitnet_grammar__has(b, v, lists)) break;
    }
    if (k == all->n || b->code) return 0;
    p = bitnet_grammar__first_listed(b, v, &list);
    for (; p != BITNET_GRAMMAR__NONE && !b->code; p = bitnet_grammar__next_listed(b, list, p)) {
        if (bitnet_grammar__keeps_all(b, p, all)) bitnet_grammar__push(b, &b->listed, p);
        else if (list == BITNET_GRAMMAR__NONE && all->n == 1)
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p,
                                  "the constant is not what the other keywords ask for");
    }
    return 1;
}

/* The texts of b->listed. */
static bitnet_grammar__frag bitnet_grammar__listed_texts(bitnet_grammar__builder *b) {
    const uint32_t root = bitnet_grammar__join(b), end = bitnet_grammar__join(b);
    uint32_t i;
    for (i = 0; i < b->listed.n && !b->code; i++) {
        const bitnet_grammar__value v =
            BITNET_GRAMMAR__VALUE(b, BITNET_GRAMMAR__NUMBER_AT(b->listed, i));
        b->bytes.n = 0;
        if (!b->raw) bitnet_grammar__dump(b, BITNET_GRAMMAR__NUMBER_AT(b->listed, i));
        else if (v.type != BITNET_GRAMMAR__STRING) continue;
        else bitnet_grammar__put(b, &b->bytes, BITNET_GRAMMAR__POOL(b, v.text), v.n_text);
        bitnet_grammar__plant_text(b, root, end, (const uint8_t *)b->bytes.p, b->bytes.n);
    }
    return bitnet_grammar__pair(root, end);
}

/* ---- arrays ---- */

/* A value as an element of an array. */
static bitnet_grammar__frag bitnet_grammar__element_of(bitnet_grammar__builder *b,
                                                       bitnet_grammar__frag f, int comma) {
    f = bitnet_grammar__seq(b, f, bitnet_grammar__named(b, "space"));
    if (!comma) return f;
    f = bitnet_grammar__seq(b, bitnet_grammar__named(b, "space"), f);
    return bitnet_grammar__seq(b, bitnet_grammar__text(b, ","), f);
}

static bitnet_grammar__frag bitnet_grammar__item(bitnet_grammar__builder *b, uint32_t rule,
                                                 int comma) {
    return bitnet_grammar__element_of(b, bitnet_grammar__call(b, rule), comma);
}

/* An array in which each of b->listed is at most once, in their order: [node of a value][how many
   come before it]. */
static bitnet_grammar__frag bitnet_grammar__unique(bitnet_grammar__builder *b, int32_t min,
                                                   int32_t max) {
    bitnet_grammar__array now = {0, 0, 0}, next = {0, 0, 0}, swap;
    const uint32_t end = bitnet_grammar__join(b), n = b->listed.n;
    const uint32_t most = max >= 0 && (uint32_t)max < n ? (uint32_t)max : n;
    const uint32_t levels = max >= 0 && (uint32_t)max < n ? most : (uint32_t)min > n ? n
                            : min > 0 ? (uint32_t)min : 1;
    uint32_t i, k, start, s, to;
    bitnet_grammar__frag f;
    for (k = 0; k <= levels; k++) bitnet_grammar__push(b, &now, bitnet_grammar__join(b));
    start = b->code ? 0 : BITNET_GRAMMAR__NUMBER_AT(now, 0);
    for (i = 0; i < n && !b->code; i++) {
        for (next.n = k = 0; k <= levels; k++)
            bitnet_grammar__push(b, &next, bitnet_grammar__join(b));
        for (k = 0; k <= levels && !b->code; k++) {
            s = BITNET_GRAMMAR__NUMBER_AT(next, k);    /* without this value */
            to = k < levels ? k + 1 : k;
            if (k < levels || levels < most) {
                b->bytes.n = 0;
                bitnet_grammar__dump(b, BITNET_GRAMMAR__NUMBER_AT(b->listed, i));
                f = bitnet_grammar__literal(b, (const char *)b->bytes.p, b->bytes.n);
                f = bitnet_grammar__element_of(b, f, k > 0);
                if (b->code) break;
                bitnet_grammar__link(b, f.end, BITNET_GRAMMAR__NUMBER_AT(next, to));
                s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, f.start, s);
            }
            bitnet_grammar__link(b, BITNET_GRAMMAR__NUMBER_AT(now, k), s);
        }
        swap = now;
        now = next;
        next = swap;
    }
    for (k = 0; k <= levels && !b->code; k++)
        bitnet_grammar__link(b, BITNET_GRAMMAR__NUMBER_AT(now, k), k >= (uint32_t)min ? end : 0);
    bitnet_grammar__free(&b->g->allocator, now.p);
    bitnet_grammar__free(&b->g->allocator, next.p);
    return bitnet_grammar__pair(start, end);
}

/* uniqueItems: *max becomes 1 at most, unless the values are listed. Those are put on b->listed,
   without the ones that may be equal to others; then this returns 1. */
static int bitnet_grammar__unique_values(bitnet_grammar__builder *b, uint32_t unique,
                                         int32_t min, int32_t *max) {
    const uint64_t choices = BITNET_GRAMMAR__WORD(ANY_OF) | BITNET_GRAMMAR__WORD(ONE_OF);
    bitnet_grammar__all all;
    uint32_t i, k, n;
    if (*max >= 0 && *max <= 1) return 0;
    memset(&all, 0, sizeof all);
    bitnet_grammar__add_together(b, &all);
    bitnet_grammar__expand(b, &all);
    for (i = 0; i < all.n && !b->code; i++)
        if (bitnet_grammar__has(b, all.v[i], choices)) break;
    if (!b->code && !all.fails && i == all.n && bitnet_grammar__list_values(b, &all)) {
        for (i = n = 0; i < b->listed.n && !b->code; i++) {
            const uint32_t x = BITNET_GRAMMAR__NUMBER_AT(b->listed, i);
            for (k = 0; k < n; k++)
                if (!bitnet_grammar__differ(b, BITNET_GRAMMAR__NUMBER_AT(b->listed, k), x)) break;
            if (k == n) BITNET_GRAMMAR__NUMBER_AT(b->listed, n++) = x;
        }
        b->listed.n = n;
        return 1;
    }
    if (min > 1)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, unique,
                              "for more than one item only with items of an enum");
    *max = 1;
    return 0;
}

/* What the schemas of an array say about its items. */
typedef struct bitnet_grammar__items {
    uint32_t unique;                       /* the keyword; NONE */
    int32_t n;                             /* items that have schemas of their own */
    int32_t least, most;                   /* of those that `contains` asks for; -1: any number */
    int more;                              /* there is a schema for others */
} bitnet_grammar__items;

/* The list of schemas for the first items of a schema, and the schema of all others; NONE. */
static uint32_t bitnet_grammar__item_list(bitnet_grammar__builder *b, uint32_t v, uint32_t *rest) {
    const uint32_t items = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_ITEMS);
    uint32_t list = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PREFIX_ITEMS);
    *rest = items;
    if (bitnet_grammar__type(b, items) == BITNET_GRAMMAR__ARRAY) {         /* before 2020-12 */
        if (list != BITNET_GRAMMAR__NONE)
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, items, "a list beside prefixItems");
        list = items;
        *rest = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_ADDITIONAL_ITEMS);
    }
    if (list != BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, list) != BITNET_GRAMMAR__ARRAY)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, list, "not an array");
    if (*rest == BITNET_GRAMMAR__NONE) {
        *rest = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_UNEVALUATED_ITEMS);
        if (*rest != BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, *rest) > BITNET_GRAMMAR__TRUE)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, *rest,
                                  "only true and false are supported");
    }
    return b->code ? BITNET_GRAMMAR__NONE : list;
}

/* The rule of the item with a number, from all schemas; -1: of those that no schema lists. */
static uint32_t bitnet_grammar__item_rule(bitnet_grammar__builder *b,
                                          const bitnet_grammar__all *all,
                                          const bitnet_grammar__items *s, int32_t at) {
    uint32_t i, p, list, rest;
    int32_t k;
    b->together.n = 0;
    for (i = 0; i < all->n && !b->code; i++) {
        list = bitnet_grammar__item_list(b, all->v[i], &rest);
        p = bitnet_grammar__first(b, list);
        for (k = 0; k < at && p != BITNET_GRAMMAR__NONE; k++) p = BITNET_GRAMMAR__VALUE(b, p).next;
        bitnet_grammar__spend(b, 1 + (uint64_t)k);
        if (at < 0 || p == BITNET_GRAMMAR__NONE) p = rest;
        if (p != BITNET_GRAMMAR__NONE) bitnet_grammar__push(b, &b->together, 2 * p);
        p = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_CONTAINS);
        if (p == BITNET_GRAMMAR__NONE) continue;
        if (at >= 0 && at < s->least) bitnet_grammar__push(b, &b->together, 2 * p);
        else if (s->most >= 0) bitnet_grammar__push(b, &b->together, 2 * p + 1);
    }
    return bitnet_grammar__rule_of_all(b);
}

static bitnet_grammar__items bitnet_grammar__read_items(bitnet_grammar__builder *b,
                                                        const bitnet_grammar__all *all) {
    bitnet_grammar__items s;
    uint32_t i, x, rest;
    int found = 0;
    s.unique = BITNET_GRAMMAR__NONE;
    s.n = s.least = s.more = 0;
    s.most = -1;
    for (i = 0; i < all->n && !b->code; i++) {
        x = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_UNIQUE_ITEMS);
        if (bitnet_grammar__type(b, x) == BITNET_GRAMMAR__TRUE) s.unique = x;
        else if (x != BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, x) != BITNET_GRAMMAR__FALSE)
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, x, "neither true nor false");
        x = bitnet_grammar__item_list(b, all->v[i], &rest);
        if (rest != BITNET_GRAMMAR__NONE) s.more = 1;
        if (x != BITNET_GRAMMAR__NONE && (int32_t)BITNET_GRAMMAR__VALUE(b, x).n_parts > s.n)
            s.n = (int32_t)BITNET_GRAMMAR__VALUE(b, x).n_parts;
        x = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_CONTAINS);
        if (x == BITNET_GRAMMAR__NONE) continue;
        if (found++)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, x, "beside another one, in allOf");
        s.least = 1;
        rest = bitnet_grammar__get(b, all->v[i], "minContains");
        if (rest != BITNET_GRAMMAR__NONE)
            s.least = bitnet_grammar__read_count(b, rest, 0);
        s.most = bitnet_grammar__read_count(b, bitnet_grammar__get(b, all->v[i], "maxContains"),
                                            -1);
        if (s.least > 1000 || (s.most >= 0 && s.most < s.least))
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, x,
                                  "minContains is over 1000, or over maxContains");
    }
    return s;
}

static bitnet_grammar__frag bitnet_grammar__arrays(bitnet_grammar__builder *b,
                                                   const bitnet_grammar__all *all) {
    bitnet_grammar__items s;
    int32_t n = 0, min, max;
    bitnet_grammar__frag f = bitnet_grammar__text(b, "["), g;
    uint32_t rule;
    bitnet_grammar__counts(b, all, BITNET_GRAMMAR__K_MIN_ITEMS, BITNET_GRAMMAR__K_MAX_ITEMS, &min,
                           &max);
    s = bitnet_grammar__read_items(b, all);
    if (min < s.least) min = s.least;
    f = bitnet_grammar__seq(b, f, bitnet_grammar__named(b, "space"));
    rule = bitnet_grammar__item_rule(b, all, &s, -1);
    if (s.unique != BITNET_GRAMMAR__NONE && s.n == 0 && s.least == 0 &&
        bitnet_grammar__unique_values(b, s.unique, min, &max)) {
        f = bitnet_grammar__seq(b, f, bitnet_grammar__unique(b, min, max));
        return bitnet_grammar__seq(b, f, bitnet_grammar__text(b, "]"));
    }
    if (s.unique != BITNET_GRAMMAR__NONE && (s.n || s.least)) {
        b->together.n = 0;
        bitnet_grammar__unique_values(b, s.unique, min, &max);
    }
    for (; (n < s.n || n < s.least) && n != max && !b->code; n++)
        f = bitnet_grammar__seq(b, f, bitnet_grammar__item(
                                          b, bitnet_grammar__item_rule(b, all, &s, n), n > 0));
    if (max >= 0 && max < min) f = bitnet_grammar__seq(b, f, bitnet_grammar__failing(b));
    else if (n != max && (n == 0 || s.n == 0 || s.more || min > n)) {
        const int32_t rest = min > n ? min - n : 0, most = max < 0 ? -1 : max - n;
        if (n > 0) g = bitnet_grammar__repeat(b, bitnet_grammar__item(b, rule, 1), rest, most);
        else {
            g = bitnet_grammar__repeat(b, bitnet_grammar__item(b, rule, 1),
                                       rest > 0 ? rest - 1 : 0, most < 0 ? -1 : most - 1);
            g = bitnet_grammar__seq(b, bitnet_grammar__item(b, rule, 0), g);
            if (rest == 0) g = bitnet_grammar__repeat(b, g, 0, 1);
        }
        f = bitnet_grammar__seq(b, f, g);
    }
    return bitnet_grammar__seq(b, f, bitnet_grammar__text(b, "]"));
}

/* ---- objects ---- */

/* The property of this name, added if it is new. */
static bitnet_grammar__property *bitnet_grammar__add_property(bitnet_grammar__builder *b,
                                                              uint32_t key, uint32_t n_key) {
    const uint32_t list = BITNET_GRAMMAR__LISTS + b->n_properties;
    const uint32_t i = bitnet_grammar__look_up(b, list, BITNET_GRAMMAR__POOL(b, key), n_key);
    bitnet_grammar__property *p;
    if (i != BITNET_GRAMMAR__NONE) return &BITNET_GRAMMAR__PROPERTY(b, i);
    p = (bitnet_grammar__property *)bitnet_grammar__add(b, &b->properties, sizeof *p);
    if (!p) return 0;
    bitnet_grammar__add_name(b, list, key, n_key, b->properties.n - 1);
    p->key = key;
    p->n_key = n_key;
    p->first = BITNET_GRAMMAR__NONE;
    return p;
}

/* A schema more for a property: false bars it. */
static void bitnet_grammar__give_schema(bitnet_grammar__builder *b, bitnet_grammar__property *to,
                                        uint32_t schema, int opposite) {
    bitnet_grammar__part *part;
    if (!opposite && bitnet_grammar__type(b, schema) == BITNET_GRAMMAR__FALSE) to->barred = 1;
    part = (bitnet_grammar__part *)bitnet_grammar__add(b, &b->parts, sizeof *part);
    if (!part) return;
    part->item = 2 * schema + (uint32_t)opposite;
    part->next = to->first;
    to->first = b->parts.n - 1;
    to->evaluated |= b->evaluates && !opposite;
}

/* The properties that an array names must be there. */
static void bitnet_grammar__demand(bitnet_grammar__builder *b, uint32_t names) {
    bitnet_grammar__property *to;
    uint32_t p;
    if (bitnet_grammar__type(b, names) != BITNET_GRAMMAR__ARRAY)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, names, "not an array");
    BITNET_GRAMMAR__EACH(b, p, names) {
        if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__STRING)
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not a string");
        to = b->code ? 0 : bitnet_grammar__add_property(b, BITNET_GRAMMAR__VALUE(b, p).text,
                                                        BITNET_GRAMMAR__VALUE(b, p).n_text);
        if (!to) return;
        to->required = 1;
    }
}

/* The value of a keyword that is an object; NONE. */
static uint32_t bitnet_grammar__object_word(bitnet_grammar__builder *b, uint32_t v, int keyword) {
    const uint32_t list = bitnet_grammar__said(b, v, keyword);
    if (list != BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, list) != BITNET_GRAMMAR__OBJECT)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, list, "not an object");
    return b->code ? BITNET_GRAMMAR__NONE : list;
}

/* Adds the properties of one schema of an object to the list. */
static void bitnet_grammar__collect_properties(bitnet_grammar__builder *b, uint32_t v) {
    const uint32_t list = bitnet_grammar__object_word(b, v, BITNET_GRAMMAR__K_PROPERTIES);
    const uint32_t required = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_REQUIRED);
    bitnet_grammar__property *to;
    uint32_t p;
    BITNET_GRAMMAR__EACH(b, p, list) {
        to = bitnet_grammar__add_property(b, BITNET_GRAMMAR__VALUE(b, p).key,
                                          BITNET_GRAMMAR__VALUE(b, p).n_key);
        if (!to) return;
        bitnet_grammar__give_schema(b, to, p, 0);
        /* Draft 3, and some who write OpenAPI, say it in the property. */
        if (bitnet_grammar__type(b, p) == BITNET_GRAMMAR__OBJECT &&
            bitnet_grammar__type(b, bitnet_grammar__said(b, p, BITNET_GRAMMAR__K_REQUIRED)) ==
                BITNET_GRAMMAR__TRUE) to->required = 1;
    }
    if (required != BITNET_GRAMMAR__NONE &&
        !(bitnet_grammar__type(b, required) & (BITNET_GRAMMAR__TRUE | BITNET_GRAMMAR__FALSE)))
        bitnet_grammar__demand(b, required);
}

/* The letters of the listed properties' names, as a tree; letter 0 is its root. */
typedef struct bitnet_grammar__letter {
    uint32_t cp, child, next;    /* the first letter of what follows, and the one beside this */
    uint32_t node;               /* what comes after the letter */
    int ends;                    /* a property's name does here */
} bitnet_grammar__letter;

#define BITNET_GRAMMAR__LETTER(a, i) (((bitnet_grammar__letter *)(a)->p)[i])

static void bitnet_grammar__add_letters(bitnet_grammar__builder *b, bitnet_grammar__array *all,
                                        const bitnet_grammar__property *p) {
    const uint32_t end = p->key + p->n_key;
    uint32_t at = p->key, i = 0, k;
    while (at < end && !b->code) {
        const uint32_t cp = bitnet_grammar__pool_char(b, &at, end);
        /* Without escapes no key goes on like this. */
        if (cp < ' ' || cp == '"' || cp == '\\' || cp == 0x7F) return;
        for (k = BITNET_GRAMMAR__LETTER(all, i).child; k; k = BITNET_GRAMMAR__LETTER(all, k).next) {
            bitnet_grammar__spend(b, 1);
            if (BITNET_GRAMMAR__LETTER(all, k).cp == cp) break;
        }
        if (!k) {
            if (!bitnet_grammar__add(b, all, sizeof(bitnet_grammar__letter))) return;
            k = all->n - 1;
            BITNET_GRAMMAR__LETTER(all, k).cp = cp;
            BITNET_GRAMMAR__LETTER(all, k).node = bitnet_grammar__join(b);
            BITNET_GRAMMAR__LETTER(all, k).next = BITNET_GRAMMAR__LETTER(all, i).child;
            BITNET_GRAMMAR__LETTER(all, i).child = k;
        }
        i = k;
    }
    if (!b->code) BITNET_GRAMMAR__LETTER(all, i).ends = 1;
}

/* After a letter of names: a letter that goes on with a name, any other, and then anything, or the
   end of the key if no name ends here. */
static void bitnet_grammar__link_letter(bitnet_grammar__builder *b, bitnet_grammar__array *all,
                                        uint32_t i, uint32_t rest, uint32_t end) {
    const bitnet_grammar__letter x = BITNET_GRAMMAR__LETTER(all, i);
    bitnet_grammar__frag f = bitnet_grammar__failing(b), g;
    uint32_t k;
    for (k = x.child; k && !b->code; k = BITNET_GRAMMAR__LETTER(all, k).next) {
        b->ranges.n = 0;
        bitnet_grammar__add_range(b, BITNET_GRAMMAR__LETTER(all, k).cp,
                                  BITNET_GRAMMAR__LETTER(all, k).cp);
        g = bitnet_grammar__class_frag(b);
        bitnet_grammar__link(b, g.end, BITNET_GRAMMAR__LETTER(all, k).node);
        f.start = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, g.start, f.start);
    }
    b->ranges.n = 0;
    bitnet_grammar__add_range(b, 0, 0x1F);
    bitnet_grammar__add_range(b, '"', '"');
    bitnet_grammar__add_range(b, '\\', '\\');
    bitnet_grammar__add_range(b, 0x7F, 0x7F);
    for (k = x.child; k && !b->code; k = BITNET_GRAMMAR__LETTER(all, k).next)
        bitnet_grammar__add_range(b, BITNET_GRAMMAR__LETTER(all, k).cp,
                                  BITNET_GRAMMAR__LETTER(all, k).cp);
    bitnet_grammar__negate(b, 1);
    g = bitnet_grammar__class_frag(b);
    bitnet_grammar__link(b, g.end, rest);
    f.start = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, g.start, f.start);
    if (!x.ends) f.start = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, end, f.start);
    bitnet_grammar__link(b, x.node, f.start);
}

/* A key that is none of the listed properties. It has no escapes: an escape could spell one. */
static bitnet_grammar__frag bitnet_grammar__other_key(bitnet_grammar__builder *b) {
    bitnet_grammar__array all = {0, 0, 0};
    bitnet_grammar__frag rest, f = bitnet_grammar__text(b, "\"");
    const uint32_t quote = bitnet_grammar__join(b);
    uint32_t i;
    if (!bitnet_grammar__add(b, &all, sizeof(bitnet_grammar__letter))) return f;
    BITNET_GRAMMAR__LETTER(&all, 0).node = bitnet_grammar__join(b);
    for (i = 0; i < b->properties.n && !b->code; i++)
        bitnet_grammar__add_letters(b, &all, &BITNET_GRAMMAR__PROPERTY(b, i));
    rest = bitnet_grammar__repeat(b, bitnet_grammar__named(b, "plain"), 0, -1);
    bitnet_grammar__link(b, rest.end, quote);
    for (i = 0; i < all.n && !b->code; i++)
        bitnet_grammar__link_letter(b, &all, i, rest.start, quote);
    bitnet_grammar__link(b, f.end, BITNET_GRAMMAR__LETTER(&all, 0).node);
    bitnet_grammar__free(&b->g->allocator, all.p);
    return bitnet_grammar__seq(b, bitnet_grammar__pair(f.start, quote),
                               bitnet_grammar__text(b, "\""));
}

/* A key that none of the listed properties has, of the patterns whose bits are set and of no other,
   and which keeps the schemas of names. */
static bitnet_grammar__frag bitnet_grammar__limited_key(bitnet_grammar__builder *b, uint32_t set,
                                                        const bitnet_grammar__all *names) {
    uint32_t i, term, last = BITNET_GRAMMAR__NONE;
    int32_t min, max;
    bitnet_grammar__counts(b, names, BITNET_GRAMMAR__K_MIN_LENGTH, BITNET_GRAMMAR__K_MAX_LENGTH,
                           &min, &max);
    bitnet_grammar__forget_limits(b);
    bitnet_grammar__read_limits(b, names);
    for (i = 0; i < b->patterns.n && !b->code; i++)
        bitnet_grammar__add_text_limit(b, BITNET_GRAMMAR__NUMBER_AT(b->patterns, i), 1,
                                       !(set >> i & 1));
    if (b->properties.n) {
        term = bitnet_grammar__add_term(b, BITNET_GRAMMAR__CHOICE);
        for (i = 0; i < b->properties.n && !b->code; i++) {
            const bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, i);
            const uint32_t text = bitnet_grammar__text_term(b, p->key, p->n_key);
            bitnet_grammar__add_part(b, term, text, &last);
        }
        bitnet_grammar__add_limit(b, term, 1);
    }
    return bitnet_grammar__limited(b, min, max);
}

/* space : space value space, behind a key. */
static bitnet_grammar__frag bitnet_grammar__member(bitnet_grammar__builder *b,
                                                   bitnet_grammar__frag key, uint32_t rule) {
    key = bitnet_grammar__seq(b, key, bitnet_grammar__named(b, "space"));
    key = bitnet_grammar__seq(b, key, bitnet_grammar__text(b, ":"));
    key = bitnet_grammar__seq(b, key, bitnet_grammar__named(b, "space"));
    key = bitnet_grammar__seq(b, key, bitnet_grammar__call(b, rule));
    return bitnet_grammar__seq(b, key, bitnet_grammar__named(b, "space"));
}

/* How many properties an object has. */
typedef struct bitnet_grammar__size {
    uint32_t min, most;                    /* at least; up to what they are counted */
    int open;                              /* 1: there may be more than `most` */
    int32_t most_others;                   /* keys that are not listed; -1: any number */
} bitnet_grammar__size;

/* Where a level goes on with a property, f: without a comma at level 0, where nothing is written
   yet. *comma: the comma in front of f, made once; 0: not yet. */
static uint32_t bitnet_grammar__from_level(bitnet_grammar__builder *b, uint32_t level,
                                           bitnet_grammar__frag f, uint32_t *comma) {
    bitnet_grammar__frag g;
    if (level == 0 || b->code) return f.start;
    if (*comma == 0) {
        g = bitnet_grammar__text(b, ",");
        g = bitnet_grammar__seq(b, g, bitnet_grammar__named(b, "space"));
        bitnet_grammar__link(b, g.end, f.start);
        *comma = g.start;
    }
    return *comma;
}

/* The rule of a property. */
static uint32_t bitnet_grammar__property_rule(bitnet_grammar__builder *b,
                                              const bitnet_grammar__property *p) {
    uint32_t i;
    b->together.n = 0;
    for (i = p->first; i != BITNET_GRAMMAR__NONE && !b->code; i = BITNET_GRAMMAR__PART(b, i).next)
        bitnet_grammar__push(b, &b->together, BITNET_GRAMMAR__PART(b, i).item);
    return bitnet_grammar__rule_of_all(b);
}

/* The listed properties in their order, and then others, if there are any (others.start is not 0).
   There are several ways through the list, the levels: how many are written yet, where the last
   level is all greater numbers if the size is open. From level 0 there is no comma. */
static bitnet_grammar__frag bitnet_grammar__build_object(bitnet_grammar__builder *b,
                                                         bitnet_grammar__frag others,
                                                         const bitnet_grammar__size *size) {
    bitnet_grammar__frag open = bitnet_grammar__text(b, "{"), f;
    bitnet_grammar__array now = {0, 0, 0}, next = {0, 0, 0}, swap;
    const uint32_t close = bitnet_grammar__join(b), last = size->most;
    uint32_t i, k, to, comma = 0, s, rule;
    f = open;
    open = bitnet_grammar__seq(b, open, bitnet_grammar__named(b, "space"));
    bitnet_grammar__push(b, &now, open.end);
    for (k = 1; k <= last; k++) bitnet_grammar__push(b, &now, bitnet_grammar__join(b));
    for (i = 0; i < b->properties.n && !b->code; i++) {
        const bitnet_grammar__property p = BITNET_GRAMMAR__PROPERTY(b, i);
        if (p.barred) continue;
        rule = bitnet_grammar__property_rule(b, &p);
        for (next.n = k = 0; k <= last; k++)
            bitnet_grammar__push(b, &next, bitnet_grammar__join(b));
        for (k = 0; k <= last && !b->code; k++) {      /* those that lead to the level k + 1 */
            to = k < last ? k + 1 : last;
            s = p.required ? 0 : BITNET_GRAMMAR__NUMBER_AT(next, k);
            if (k == last && !size->open) {
                bitnet_grammar__link(b, BITNET_GRAMMAR__NUMBER_AT(now, k), s);
                continue;
            }
            if (k < last) {                /* what leads from the last level is that before it */
                b->bytes.n = 0;
                bitnet_grammar__dump_string(b, BITNET_GRAMMAR__POOL(b, p.key), p.n_key);
                f = bitnet_grammar__literal(b, (const char *)b->bytes.p, b->bytes.n);
                f = bitnet_grammar__member(b, f, rule);
                bitnet_grammar__link(b, f.end, BITNET_GRAMMAR__NUMBER_AT(next, to));
                comma = 0;
            }
            to = bitnet_grammar__from_level(b, k, f, &comma);
            if (!p.required) to = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT, to, s);
            bitnet_grammar__link(b, BITNET_GRAMMAR__NUMBER_AT(now, k), to);
        }
        swap = now;
        now = next;
        next = swap;
    }
    if (others.start) bitnet_grammar__link(b, others.end, close);
    for (comma = k = 0; k <= last && !b->code; k++) {
        s = k >= size->min ? close : 0;
        if (others.start && k + 1 >= size->min && (k < last || size->open))
            s = bitnet_grammar__add_node(b, BITNET_GRAMMAR__SPLIT,
                                         bitnet_grammar__from_level(b, k, others, &comma), s);
        bitnet_grammar__link(b, BITNET_GRAMMAR__NUMBER_AT(now, k), s);
    }
    bitnet_grammar__free(&b->g->allocator, now.p);
    bitnet_grammar__free(&b->g->allocator, next.p);
    return bitnet_grammar__seq(b, bitnet_grammar__pair(open.start, close),
                               bitnet_grammar__text(b, "}"));
}

/* Gives what a schema says about a property, which it lists itself (own 1) or not: the schemas of
   the patterns that are in `set`, or else additionalProperties. They go to a property or to
   b->together. Returns how many patterns the schema has; they begin with number n_before. */
static uint32_t bitnet_grammar__other_schemas(bitnet_grammar__builder *b, uint32_t v, uint32_t set,
                                              uint32_t n_before, int own, uint32_t to) {
    const uint32_t list = bitnet_grammar__object_word(b, v, BITNET_GRAMMAR__K_PATTERN_PROPERTIES);
    const uint32_t more = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_ADDITIONAL_PROPERTIES);
    const uint32_t n = list == BITNET_GRAMMAR__NONE ? 0 : BITNET_GRAMMAR__VALUE(b, list).n_parts;
    uint32_t i, p;
    for (i = 0; i <= n && !b->code; i++) {
        if (i < n ? !(set >> (n_before + i) & 1) : own || more == BITNET_GRAMMAR__NONE) continue;
        own = 1;
        p = i < n ? BITNET_GRAMMAR__NUMBER_AT(b->patterns, n_before + i) : more;
        if (to == BITNET_GRAMMAR__NONE) bitnet_grammar__push(b, &b->together, 2 * p);
        else bitnet_grammar__give_schema(b, &BITNET_GRAMMAR__PROPERTY(b, to), p, 0);
    }
    return n;
}

/* Gives each property what all schemas say about it beside their `properties`, which it has. */
static void bitnet_grammar__share_properties(bitnet_grammar__builder *b,
                                             const bitnet_grammar__all *all) {
    uint32_t i, k, n, list;
    int r;
    for (i = 0; i < b->patterns.n && !b->code; i++)
        for (k = 0; k < b->properties.n && !b->code; k++) {
            bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, k);
            const uint32_t pattern = BITNET_GRAMMAR__NUMBER_AT(b->patterns, i);
            r = bitnet_grammar__text_matches(b, pattern, 1, p->key, p->n_key);
            if (r < 0)
                bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, pattern,
                                      "whether a property's name matches this is not known");
            if (r > 0) p->set |= 1u << i;
        }
    for (k = 0; k < b->properties.n && !b->code; k++)
        for (i = n = 0; i < all->n && !b->code; i++) {
            const bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, k);
            bitnet_grammar__spend(b, 1);
            if (!bitnet_grammar__has(b, all->v[i], BITNET_GRAMMAR__WORD(PATTERN_PROPERTIES) |
                                                       BITNET_GRAMMAR__WORD(ADDITIONAL_PROPERTIES)))
                continue;
            list = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_PROPERTIES);
            if (list != BITNET_GRAMMAR__NONE)
                list = bitnet_grammar__look_up(b, list, BITNET_GRAMMAR__POOL(b, p->key), p->n_key);
            b->evaluates = i <= all->n_evaluating - 1;
            n += bitnet_grammar__other_schemas(b, all->v[i], p->set, n,
                                               list != BITNET_GRAMMAR__NONE, k);
        }
}

/* Other properties than the listed ones: an alternative for each set of patterns that a key can
   match. Of more than three patterns a key matches one at most. Unless it is open, one of the
   patterns evaluates the key. */
static bitnet_grammar__frag bitnet_grammar__others(bitnet_grammar__builder *b,
                                                   const bitnet_grammar__all *all,
                                                   const bitnet_grammar__all *names, int open) {
    const uint32_t n = b->patterns.n, n_sets = n <= 3 ? 1u << n : n + 1;
    bitnet_grammar__frag f = {0, 0}, g;
    uint32_t i, k, set, n_before;
    int limited = n > 0, bad;
    for (i = 0; i < names->n; i++)
        limited |= bitnet_grammar__has(b, names->v[i], ~BITNET_GRAMMAR__WORD(TYPE));
    for (i = 0; i < n_sets && !b->code; i++) {
        set = n <= 3 || i == 0 ? i : 1u << (i - 1);
        bad = !open && !(set & ((1u << b->n_evaluating) - 1));
        for (k = 0; k < n; k++)
            if (!(set >> k & 1)) {
                const uint32_t p = BITNET_GRAMMAR__NUMBER_AT(b->patterns, k);
                bad |= !bitnet_grammar__has_opposite(
                    b, BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).key),
                    BITNET_GRAMMAR__VALUE(b, p).n_key);
            }
        b->together.n = 0;
        for (n_before = k = 0; k < all->n && !b->code; k++)
            n_before += bitnet_grammar__other_schemas(b, all->v[k], set, n_before, 0,
                                                      BITNET_GRAMMAR__NONE);
        for (k = 0; k < b->together.n; k++)
            bad |= bitnet_grammar__type(b, BITNET_GRAMMAR__NUMBER_AT(b->together, k) / 2) ==
                   BITNET_GRAMMAR__FALSE;
        if (bad || b->code) continue;
        k = bitnet_grammar__rule_of_all(b);
        g = limited ? bitnet_grammar__limited_key(b, set, names) : bitnet_grammar__other_key(b);
        g = bitnet_grammar__member(b, g, k);
        f = f.start ? bitnet_grammar__or(b, g, f) : g;
    }
    return f;
}

/* Bars properties that unevaluatedProperties lets nobody have: those that no schema evaluates, or
   with `alone` all that the schema does not list itself. */
static void bitnet_grammar__bar(bitnet_grammar__builder *b, uint32_t v, int alone) {
    const uint32_t list = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PROPERTIES);
    uint32_t k;
    for (k = 0; k < b->properties.n && !b->code; k++) {
        bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, k);
        if (alone ? list == BITNET_GRAMMAR__NONE ||
                    bitnet_grammar__look_up(b, list, BITNET_GRAMMAR__POOL(b, p->key), p->n_key) ==
                        BITNET_GRAMMAR__NONE
                  : !p->evaluated) p->barred = 1;
    }
}

/* The schemas of propertyNames. Names that they list become properties. Returns 0 if there are no
   others. */
static int bitnet_grammar__read_names(bitnet_grammar__builder *b, const bitnet_grammar__all *all,
                                      bitnet_grammar__all *names) {
    uint32_t i, p;
    memset(names, 0, sizeof *names);
    for (i = 0; i < all->n && !b->code; i++) {
        p = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_PROPERTY_NAMES);
        if (p != BITNET_GRAMMAR__NONE) bitnet_grammar__add_schema(b, names, p, names->n);
    }
    bitnet_grammar__expand(b, names);
    if (names->n && bitnet_grammar__list_values(b, names)) {
        for (i = 0; i < b->listed.n && !b->code; i++) {
            const bitnet_grammar__value *x =
                &BITNET_GRAMMAR__VALUE(b, BITNET_GRAMMAR__NUMBER_AT(b->listed, i));
            if (x->type == BITNET_GRAMMAR__STRING)
                bitnet_grammar__add_property(b, x->text, x->n_text);
        }
        return 0;
    }
    return !names->fails;
}

/* Bars properties whose names propertyNames does not allow. Returns 0 if no other names can be
   found. */
static int bitnet_grammar__check_names(bitnet_grammar__builder *b,
                                       const bitnet_grammar__all *names) {
    const uint64_t simple = BITNET_GRAMMAR__WORD(TYPE) | BITNET_GRAMMAR__WORD(REF) |
                            BITNET_GRAMMAR__WORD(ALL_OF) | BITNET_GRAMMAR__WORD(PATTERN) |
                            BITNET_GRAMMAR__WORD(FORMAT) | BITNET_GRAMMAR__WORD(MIN_LENGTH) |
                            BITNET_GRAMMAR__WORD(MAX_LENGTH);
    uint32_t i, k, x;
    int out = !names->n_no;
    for (k = 0; k < b->properties.n && (names->n || names->fails) && !b->code; k++) {
        bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, k);
        x = bitnet_grammar__key_value(b, p->key, p->n_key);
        if (!b->code && (names->fails || !bitnet_grammar__keeps_all(b, x, names))) p->barred = 1;
    }
    for (i = 0; i < names->n; i++)
        if ((BITNET_GRAMMAR__VALUE(b, names->v[i]).has & ~simple) ||
            !(bitnet_grammar__types(b, names->v[i]) & BITNET_GRAMMAR__STRING)) out = 0;
    return out;
}

/* How many properties there may be: counted only if that does not hold anyway. Returns 0 if there
   is no such object. */
static int bitnet_grammar__read_size(bitnet_grammar__builder *b, const bitnet_grammar__all *all,
                                     int others, bitnet_grammar__size *size) {
    uint32_t k, required = 0, n = 0;
    int32_t min, max;
    bitnet_grammar__counts(b, all, BITNET_GRAMMAR__K_MIN_PROPERTIES,
                           BITNET_GRAMMAR__K_MAX_PROPERTIES, &min, &max);
    for (k = 0; k < b->properties.n; k++) {
        const bitnet_grammar__property *p = &BITNET_GRAMMAR__PROPERTY(b, k);
        if (p->barred && p->required) return 0;
        required += p->required && !p->barred;
        n += !p->barred;
    }
    size->min = (uint32_t)min > required ? (uint32_t)min : 0;
    size->open = max < 0 || (uint32_t)max >= n;
    size->most = !size->open ? (uint32_t)max : size->min > 1 ? size->min : 1;
    size->most_others = max < 0 ? -1 : size->open ? max - (int32_t)n : 0;
    if (max >= 0 && ((uint32_t)max < required || max < min)) return 0;
    if (size->min <= n + (others != 0)) return 1;
    if (others)
        for (k = 0; k < all->n; k++)
            if (bitnet_grammar__has(b, all->v[k], BITNET_GRAMMAR__WORD(MIN_PROPERTIES)))
                bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED,
                                      bitnet_grammar__said(b, all->v[k],
                                                           BITNET_GRAMMAR__K_MIN_PROPERTIES),
                                      "more properties than those listed and one other");
    return 0;
}

/* Collects the properties of all schemas, and the patterns. Returns 1 if some are listed. */
static int bitnet_grammar__gather(bitnet_grammar__builder *b, const bitnet_grammar__all *all) {
    const uint64_t lists = BITNET_GRAMMAR__WORD(PROPERTIES) |
                           BITNET_GRAMMAR__WORD(PATTERN_PROPERTIES);
    bitnet_grammar__property *to;
    uint32_t i, p;
    int listed = 0;
    b->properties.n = b->parts.n = b->patterns.n = b->n_evaluating = 0;
    b->n_properties = ++b->n_lists;
    for (i = 0; i < all->n && !b->code; i++) {
        b->evaluates = i <= all->n_evaluating - 1;     /* 0 - 1 is the greatest number */
        bitnet_grammar__collect_properties(b, all->v[i]);
        listed |= bitnet_grammar__has(b, all->v[i], lists);
        p = bitnet_grammar__object_word(b, all->v[i], BITNET_GRAMMAR__K_PATTERN_PROPERTIES);
        if (p == BITNET_GRAMMAR__NONE) continue;
        if (b->patterns.n + BITNET_GRAMMAR__VALUE(b, p).n_parts > 16)
            bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, p, "over 16 patterns");
        BITNET_GRAMMAR__EACH(b, p, p) bitnet_grammar__push(b, &b->patterns, p);
        if (b->evaluates) b->n_evaluating = b->patterns.n;
    }
    for (i = 0; i < all->n_demands && !b->code; i++) {
        const uint32_t v = all->demand[i];
        const bitnet_grammar__value x = BITNET_GRAMMAR__VALUE(b, v);
        if (all->kind[i] == BITNET_GRAMMAR__BROKEN) continue;
        if (all->kind[i] == BITNET_GRAMMAR__DEMANDED) {
            bitnet_grammar__demand(b, v);
            continue;
        }
        to = all->kind[i] == BITNET_GRAMMAR__MISSING
                 ? bitnet_grammar__add_property(b, x.text, x.n_text)
                 : bitnet_grammar__add_property(b, x.key, x.n_key);
        if (!to) break;
        if (all->kind[i] == BITNET_GRAMMAR__UNKEPT) bitnet_grammar__give_schema(b, to, v, 1);
        if (all->kind[i] == BITNET_GRAMMAR__UNKEPT || all->kind[i] == BITNET_GRAMMAR__PRESENT)
            to->required = 1;
        else to->barred = 1;
    }
    return listed;
}

/* An object that all schemas allow. */
static bitnet_grammar__frag bitnet_grammar__objects(bitnet_grammar__builder *b,
                                                    const bitnet_grammar__all *all) {
    const int listed = bitnet_grammar__gather(b, all);
    bitnet_grammar__frag others = {0, 0};
    bitnet_grammar__all names;
    bitnet_grammar__size size;
    uint32_t i, rule;
    int more = bitnet_grammar__read_names(b, all, &names), open = !listed;
    bitnet_grammar__share_properties(b, all);
    for (i = 0; i < all->n && !b->code; i++) {
        const int has_more = bitnet_grammar__has(b, all->v[i],
                                                 BITNET_GRAMMAR__WORD(ADDITIONAL_PROPERTIES));
        const uint32_t p = bitnet_grammar__said(b, all->v[i],
                                                BITNET_GRAMMAR__K_UNEVALUATED_PROPERTIES);
        const int alone = i > 0 || all->several;
        open |= has_more;
        if (p == BITNET_GRAMMAR__NONE || bitnet_grammar__type(b, p) == BITNET_GRAMMAR__TRUE)
            continue;
        if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__FALSE)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p,
                                  "only true and false are supported");
        if (has_more) continue;
        if (alone) more = 0;
        open = -1;
        bitnet_grammar__bar(b, all->v[i], alone);
    }
    more &= open > 0 || b->patterns.n > 0;
    if (!bitnet_grammar__check_names(b, &names) && more) {
        if (!b->properties.n)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, names.v[0],
                                  "only enum, const, pattern, format and lengths are supported");
        more = 0;
    }
    if (!bitnet_grammar__read_size(b, all, more, &size)) return bitnet_grammar__failing(b);
    if (more && size.most_others) others = bitnet_grammar__others(b, all, &names, open > 0);
    if (others.start) {
        rule = bitnet_grammar__add_rule(b, 0, 0, b->place);
        bitnet_grammar__define(b, rule, others);
        others = bitnet_grammar__seq(b, bitnet_grammar__text(b, ","),
                                     bitnet_grammar__named(b, "space"));
        others = bitnet_grammar__seq(b, others, bitnet_grammar__call(b, rule));
        others = bitnet_grammar__repeat(b, others, 0, size.most_others - (size.most_others > 0));
        others = bitnet_grammar__seq(b, bitnet_grammar__call(b, rule), others);
    }
    return bitnet_grammar__build_object(b, others, &size);
}

/* ---- references, alternatives, and all together ---- */

/* Reads one part of a pointer, up to a slash or the end, to b->bytes: escapes of the URI first,
   then those of the pointer. Returns where it ends; 0: an escape is none. */
static const char *bitnet_grammar__pointer_part(bitnet_grammar__builder *b, const char *s,
                                                const char *end) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    uint32_t i, k, n = 0;
    char *key;
    b->bytes.n = 0;
    for (; s < end && *s != '/' && !b->code; s++) {
        char c = *s;
        if (c == '%') {
            const char *high = s + 2 < end && s[1] ? strchr(digits, s[1]) : 0;
            const char *low = high && s[2] ? strchr(digits, s[2]) : 0;
            if (!low) return 0;
            c = (char)((high - digits) % 16 * 16 + (low - digits) % 16);
            s += 2;
        }
        bitnet_grammar__put(b, &b->bytes, &c, 1);
    }
    for (i = k = 0, key = (char *)b->bytes.p; i < b->bytes.n; i++, k++) {
        key[k] = key[i];
        if (key[i] != '~') continue;
        n = i + 1 < b->bytes.n ? (uint8_t)key[++i] : 0;
        if (n != '0' && n != '1') return 0;
        key[k] = n == '0' ? '~' : '/';
    }
    b->bytes.n = k;
    return s;
}

/* The element of an array whose number is in b->bytes, or NONE. */
static uint32_t bitnet_grammar__element(bitnet_grammar__builder *b, uint32_t array) {
    const char *key = (const char *)b->bytes.p;
    uint32_t i, at = 0, v = BITNET_GRAMMAR__VALUE(b, array).first;
    if (b->bytes.n == 0 || b->bytes.n > 7 || (key[0] == '0' && b->bytes.n > 1))
        return BITNET_GRAMMAR__NONE;
    for (i = 0; i < b->bytes.n; i++) {
        if (!bitnet_grammar__is_digit((uint8_t)key[i])) return BITNET_GRAMMAR__NONE;
        at = 10 * at + (uint32_t)(key[i] - '0');
    }
    if (at >= BITNET_GRAMMAR__VALUE(b, array).n_parts) return BITNET_GRAMMAR__NONE;
    bitnet_grammar__spend(b, at);
    for (; at > 0; at--) v = BITNET_GRAMMAR__VALUE(b, v).next;
    return v;
}

/* The keyword that gives a schema a URI: id in draft 4. */
static const char *bitnet_grammar__id_key(bitnet_grammar__builder *b) {
    static const char draft_4[] = "://json-schema.org/draft-04/schema";
    const uint32_t p = bitnet_grammar__get(b, 0, "$schema"), n = (uint32_t)sizeof draft_4 - 1;
    const char *s = 0;
    if (bitnet_grammar__type(b, p) == BITNET_GRAMMAR__STRING)
        s = strchr(BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).text), ':');
    return s && strlen(s) >= n && !memcmp(s, draft_4, n) ? "id" : "$id";
}

/* Has a schema a URI of its own? */
static int bitnet_grammar__has_id(bitnet_grammar__builder *b, uint32_t v) {
    const uint32_t p = bitnet_grammar__get(b, v, bitnet_grammar__id_key(b));
    return bitnet_grammar__type(b, p) == BITNET_GRAMMAR__STRING &&
           BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).text)[0] != '#';
}

/* Gives anchors, and URIs of schemas, a name each in the space of anchors: what $ref may be. A name
   for the second time makes it nobody's. */
static void bitnet_grammar__find_anchors(bitnet_grammar__builder *b) {
    const char *const keys[] = {"$anchor", "$dynamicAnchor", bitnet_grammar__id_key(b)};
    uint32_t v, p, key, name, i, n;
    for (v = 0; v < b->values.n && !b->code; v++)
        for (i = 0; i < 3 && BITNET_GRAMMAR__VALUE(b, v).type == BITNET_GRAMMAR__OBJECT; i++) {
            p = bitnet_grammar__get(b, v, keys[i]);
            if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__STRING) continue;
            key = b->pool.n;
            n = BITNET_GRAMMAR__VALUE(b, p).n_text;
            if (i < 2) bitnet_grammar__put(b, &b->pool, "#", 1);
            if (!bitnet_grammar__room(b, &b->pool, n, 1)) return;
            bitnet_grammar__put(b, &b->pool,
                                BITNET_GRAMMAR__POOL(b, BITNET_GRAMMAR__VALUE(b, p).text), n);
            n = b->pool.n - key;
            if (i == 2 && n > 1 && BITNET_GRAMMAR__POOL(b, key)[n - 1] == '#') n--;
            name = bitnet_grammar__nearest(b, BITNET_GRAMMAR__ANCHORS,
                                           BITNET_GRAMMAR__POOL(b, key), n);
            if (bitnet_grammar__add_name(b, BITNET_GRAMMAR__ANCHORS, key, n, v) ==
                    BITNET_GRAMMAR__NONE && name != BITNET_GRAMMAR__NONE && !b->code &&
                BITNET_GRAMMAR__NAME(b, name).item != v)
                BITNET_GRAMMAR__NAME(b, name).item = BITNET_GRAMMAR__NONE;
        }
}

/* What a $ref names: #/a/b, a JSON pointer in the fragment of a URI; #name, an anchor; a schema's
   own $id. A fragment is of the nearest schema around it that has an $id, or of the root. */
static uint32_t bitnet_grammar__resolve_ref(bitnet_grammar__builder *b, uint32_t ref) {
    const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, ref);
    const char *s = BITNET_GRAMMAR__POOL(b, x->text), *end = s + x->n_text, *hash = s;
    uint32_t v = BITNET_GRAMMAR__NONE, up;
    if (x->type != BITNET_GRAMMAR__STRING)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, ref, "not a string");
    if (b->code) return 0;
    while (hash < end && *hash != '#') hash++;
    if (hash == s && s < end) {
        for (up = x->parent; up != BITNET_GRAMMAR__NONE; up = BITNET_GRAMMAR__VALUE(b, up).parent) {
            v = up;
            bitnet_grammar__spend(b, 1);
            if (bitnet_grammar__has_id(b, up)) break;
        }
        if (s + 1 < end && s[1] != '/')
            v = bitnet_grammar__look_up(b, BITNET_GRAMMAR__ANCHORS, s, x->n_text);
    } else
        v = bitnet_grammar__look_up(b, BITNET_GRAMMAR__ANCHORS, s, (uint32_t)(hash - s));
    if (v == BITNET_GRAMMAR__NONE || (hash > s && hash + 1 < end && hash[1] != '/')) {
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, ref,
                              "only #/..., an anchor or an $id in this schema is supported");
        return 0;
    }
    if (v && BITNET_GRAMMAR__POOL(b, x->key)[1] != 'r' && (s + 1 == end || s[1] != '/'))
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, ref,
                              "$dynamicRef and $recursiveRef to the root alone are supported");
    if (hash == s && s + 1 < end && s[1] != '/') return v;
    for (s = hash + (hash < end); s < end && v != BITNET_GRAMMAR__NONE && !b->code;) {
        s = bitnet_grammar__pointer_part(b, s + 1, end);
        if (!s) {
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, ref,
                                  "an escape that is none: %XX, ~0 and ~1 are");
            return 0;
        }
        v = bitnet_grammar__type(b, v) == BITNET_GRAMMAR__ARRAY ? bitnet_grammar__element(b, v)
            : bitnet_grammar__look_up(b, v, (const char *)b->bytes.p, b->bytes.n);
    }
    if (v == BITNET_GRAMMAR__NONE) {
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, ref, "there is no such schema");
        return 0;
    }
    return v;
}

/* A $ref of a schema, or one of the keywords that are like it; NONE. */
static uint32_t bitnet_grammar__ref_of(bitnet_grammar__builder *b, uint32_t v) {
    static const char *const names[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    uint32_t p = BITNET_GRAMMAR__NONE;
    int i;
    for (i = 0; i < 3 && p == BITNET_GRAMMAR__NONE; i++)
        if (bitnet_grammar__has(b, v, BITNET_GRAMMAR__WORD(REF)))
            p = bitnet_grammar__get(b, v, names[i]);
    return p;
}

/* A schema, or what its $ref names if it has nothing else to say, and so on: found once for each.
   NONE: a ring. */
static uint32_t bitnet_grammar__behind_refs(bitnet_grammar__builder *b, uint32_t v) {
    uint32_t ref, next, to = v;
    while (!b->code && BITNET_GRAMMAR__VALUE(b, to).behind == BITNET_GRAMMAR__NONE) {
        ref = bitnet_grammar__ref_of(b, to);
        if (ref == BITNET_GRAMMAR__NONE ||
            bitnet_grammar__has(b, to, ~BITNET_GRAMMAR__WORD(REF))) {
            BITNET_GRAMMAR__VALUE(b, to).behind = to;
            break;
        }
        next = b->code ? to : bitnet_grammar__resolve_ref(b, ref);
        BITNET_GRAMMAR__VALUE(b, to).behind = BITNET_GRAMMAR__RING;    /* unless it ends */
        BITNET_GRAMMAR__VALUE(b, to).target = next;
        to = next;
    }
    if (b->code) return BITNET_GRAMMAR__NONE;
    to = BITNET_GRAMMAR__VALUE(b, to).behind;
    for (; BITNET_GRAMMAR__VALUE(b, v).behind != to; v = next) {
        next = BITNET_GRAMMAR__VALUE(b, v).target;
        BITNET_GRAMMAR__VALUE(b, v).behind = to;
    }
    return to == BITNET_GRAMMAR__RING ? BITNET_GRAMMAR__NONE : to;
}

/* The types that the keyword `type` allows; all without it. */
static uint32_t bitnet_grammar__types(bitnet_grammar__builder *b, uint32_t v) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array",
                                        "object"};
    static const uint32_t bits[] = {1, 6, 8, 24, 32, 64, 128};
    const uint32_t type = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_TYPE);
    uint32_t p = type, out = 0, i;
    if (type == BITNET_GRAMMAR__NONE) return 255;
    if (bitnet_grammar__type(b, type) == BITNET_GRAMMAR__ARRAY)
        p = BITNET_GRAMMAR__VALUE(b, type).first;
    bitnet_grammar__spend(b, 8 * (1 + (uint64_t)BITNET_GRAMMAR__VALUE(b, type).n_parts));
    for (; p != BITNET_GRAMMAR__NONE;
         p = p == type ? BITNET_GRAMMAR__NONE : BITNET_GRAMMAR__VALUE(b, p).next) {
        const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, p);
        for (i = 0; i < 7; i++)
            if (x->type == BITNET_GRAMMAR__STRING &&
                bitnet_grammar__is_in(names[i], BITNET_GRAMMAR__POOL(b, x->text), x->n_text)) break;
        if (i == 7)
            bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "none of the types object, array, "
                                  "string, integer, number, boolean and null");
        else out |= bits[i];
    }
    if (bitnet_grammar__type(b, bitnet_grammar__get(b, v, "nullable")) == BITNET_GRAMMAR__TRUE)
        out |= BITNET_GRAMMAR__NULL;       /* of OpenAPI 3.0 */
    return out;
}

/* The types of the values that a schema allows, or more. */
static uint32_t bitnet_grammar__possible(bitnet_grammar__builder *b, uint32_t v, int deep) {
    const uint32_t parts = bitnet_grammar__get(b, v, "allOf");
    const uint32_t list = bitnet_grammar__get(b, v, "enum"), one =
        bitnet_grammar__get(b, v, "const");
    uint32_t out = bitnet_grammar__types(b, v), p, listed = 0;
    if (one != BITNET_GRAMMAR__NONE) out &= bitnet_grammar__type(b, one);
    if (bitnet_grammar__type(b, list) == BITNET_GRAMMAR__ARRAY) {
        bitnet_grammar__spend(b, BITNET_GRAMMAR__VALUE(b, list).n_parts);
        BITNET_GRAMMAR__EACH(b, p, list) listed |= bitnet_grammar__type(b, p);
        out &= listed;
    }
    if (deep < 4 && bitnet_grammar__type(b, parts) == BITNET_GRAMMAR__ARRAY)
        BITNET_GRAMMAR__EACH(b, p, parts) {
            const uint32_t part = bitnet_grammar__behind_refs(b, p);
            if (part != BITNET_GRAMMAR__NONE)
                out &= bitnet_grammar__possible(b, part, deep + 1);
        }
    return out & 24 ? out | 24 : out;      /* 1.0 is an integer, too */
}

static int bitnet_grammar__exclusive(bitnet_grammar__builder *b, uint32_t x, uint32_t y, int deep);

/* Is every value that x lists different from all that y lists? */
static int bitnet_grammar__lists_differ(bitnet_grammar__builder *b, uint32_t x, uint32_t y) {
    uint32_t list, others, p = bitnet_grammar__first_listed(b, x, &list), q;
    const uint32_t first = bitnet_grammar__first_listed(b, y, &others);
    for (; p != BITNET_GRAMMAR__NONE; p = bitnet_grammar__next_listed(b, list, p))
        for (q = first; q != BITNET_GRAMMAR__NONE; q = bitnet_grammar__next_listed(b, others, q))
            if (b->code || !bitnet_grammar__differ(b, p, q)) return 0;
    return 1;
}

/* Is there a property that x requires and y forbids, or that the two want different? */
static int bitnet_grammar__properties_differ(bitnet_grammar__builder *b, uint32_t x, uint32_t y,
                                             int deep) {
    const uint32_t required = bitnet_grammar__get(b, x, "required");
    const uint32_t mine = bitnet_grammar__get(b, x, "properties");
    const uint32_t theirs = bitnet_grammar__get(b, y, "properties");
    const uint32_t more = bitnet_grammar__get(b, y, "additionalProperties");
    uint32_t p;
    if (bitnet_grammar__type(b, required) != BITNET_GRAMMAR__ARRAY) return 0;
    BITNET_GRAMMAR__EACH(b, p, required) {
        const bitnet_grammar__value *v = &BITNET_GRAMMAR__VALUE(b, p);
        uint32_t a = BITNET_GRAMMAR__NONE, c = BITNET_GRAMMAR__NONE;
        if (v->type != BITNET_GRAMMAR__STRING) return 0;
        if (mine != BITNET_GRAMMAR__NONE)
            a = bitnet_grammar__look_up(b, mine, BITNET_GRAMMAR__POOL(b, v->text), v->n_text);
        if (theirs != BITNET_GRAMMAR__NONE)
            c = bitnet_grammar__look_up(b, theirs, BITNET_GRAMMAR__POOL(b, v->text), v->n_text);
        if (c == BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, more) == BITNET_GRAMMAR__FALSE)
            return 1;
        if (a != BITNET_GRAMMAR__NONE && c != BITNET_GRAMMAR__NONE &&
            bitnet_grammar__exclusive(b, a, c, deep + 1)) return 1;
    }
    return 0;
}

/* The same, found once for each schema; FOUND is set, too, and LISTED if it lists values. */
enum { BITNET_GRAMMAR__FOUND = 256, BITNET_GRAMMAR__LISTED = 512 };
static uint32_t bitnet_grammar__all_types(bitnet_grammar__builder *b, uint32_t v) {
    uint32_t out = BITNET_GRAMMAR__VALUE(b, v).types;
    if (out) return out;
    out = BITNET_GRAMMAR__FOUND | bitnet_grammar__possible(b, v, 0);
    if (bitnet_grammar__has(b, v, BITNET_GRAMMAR__WORD(ENUM) | BITNET_GRAMMAR__WORD(CONST)))
        out |= BITNET_GRAMMAR__LISTED;
    BITNET_GRAMMAR__VALUE(b, v).types = out;
    return out;
}

/* Can no value have both schemas? 0: it is not known. */
static int bitnet_grammar__exclusive(bitnet_grammar__builder *b, uint32_t x, uint32_t y, int deep) {
    uint32_t both;
    if (deep > 4) return 0;
    x = bitnet_grammar__behind_refs(b, x);
    y = x == BITNET_GRAMMAR__NONE ? x : bitnet_grammar__behind_refs(b, y);
    if (y == BITNET_GRAMMAR__NONE) return 0;
    if (bitnet_grammar__type(b, x) == BITNET_GRAMMAR__FALSE ||
        bitnet_grammar__type(b, y) == BITNET_GRAMMAR__FALSE) return 1;
    if (bitnet_grammar__type(b, x) != BITNET_GRAMMAR__OBJECT ||
        bitnet_grammar__type(b, y) != BITNET_GRAMMAR__OBJECT) return 0;
    both = bitnet_grammar__all_types(b, x) & bitnet_grammar__all_types(b, y);
    bitnet_grammar__spend(b, 4);
    if (!(both & 255)) return 1;
    if ((both & BITNET_GRAMMAR__LISTED) && bitnet_grammar__lists_differ(b, x, y)) return 1;
    if ((both & 255) != BITNET_GRAMMAR__OBJECT) return 0;
    return bitnet_grammar__properties_differ(b, x, y, deep) ||
           bitnet_grammar__properties_differ(b, y, x, deep);
}

/* ---- all schemas together ---- */

/* Refuses keywords of draft 3. */
static void bitnet_grammar__check_keywords(bitnet_grammar__builder *b, uint32_t v) {
    uint32_t p = BITNET_GRAMMAR__VALUE(b, v).first;
    if (!bitnet_grammar__has(b, v, BITNET_GRAMMAR__WORD(DRAFT_3))) return;
    while (!bitnet_grammar__is_word_of(b, p, BITNET_GRAMMAR__K_DRAFT_3))
        p = BITNET_GRAMMAR__VALUE(b, p).next;
    bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, p, "this keyword is not supported");
}

/* Adds a schema to those that a value must keep. */
static void bitnet_grammar__add_schema(bitnet_grammar__builder *b, bitnet_grammar__all *all,
                                       uint32_t v, uint32_t from) {
    const uint8_t type = b->code ? 0 : bitnet_grammar__type(b, v);
    uint32_t i;
    if (b->code || type == BITNET_GRAMMAR__TRUE) return;
    if (type == BITNET_GRAMMAR__FALSE) {
        all->fails = 1;
        return;
    }
    if (type != BITNET_GRAMMAR__OBJECT) {
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, v,
                              "a schema is an object, true or false");
        return;
    }
    for (i = from; i < all->n; i = all->from[i]) {
        if (all->v[i] == v)
            bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, v,
                                  "begins with itself: it refers to itself");
        if (i == all->from[i]) break;
    }
    for (i = 0; i < all->n; i++)
        if (all->v[i] == v) return;
    if (all->n == BITNET_GRAMMAR__TOGETHER) {
        bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, v, "over 64 schemas at once");
        return;
    }
    bitnet_grammar__check_keywords(b, v);
    all->v[all->n] = v;
    all->chosen[all->n] = 0;
    all->from[all->n++] = (uint8_t)from;
}

/* Adds a schema to those that must not hold. */
static void bitnet_grammar__add_no(bitnet_grammar__builder *b, bitnet_grammar__all *all,
                                   uint32_t v) {
    const uint8_t type = b->code ? 0 : bitnet_grammar__type(b, v);
    if (b->code || type == BITNET_GRAMMAR__FALSE) return;
    if (type == BITNET_GRAMMAR__TRUE) {
        all->fails = 1;
        return;
    }
    if (type != BITNET_GRAMMAR__OBJECT)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, v, "a schema is an object, true or false");
    if (all->n_no == BITNET_GRAMMAR__NOT_TOGETHER)
        bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, v, "over 32 schemas at once that must not hold");
    if (!b->code) all->no[all->n_no++] = v;
}

/* Demands something of a value; see the kinds. */
static void bitnet_grammar__add_demand(bitnet_grammar__builder *b, bitnet_grammar__all *all,
                                       uint32_t v, int kind) {
    if (all->n_demands == BITNET_GRAMMAR__NOT_TOGETHER)
        bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, v, "over 32 schemas at once that must not hold");
    if (b->code) return;
    all->demand[all->n_demands] = v;
    all->kind[all->n_demands++] = (uint8_t)kind;
}

/* Adds the schemas of b->together. */
static void bitnet_grammar__add_together(bitnet_grammar__builder *b, bitnet_grammar__all *all) {
    uint32_t i;
    for (i = 0; i < b->together.n && !b->code; i++) {
        const uint32_t x = BITNET_GRAMMAR__NUMBER_AT(b->together, i);
        if (x & 1) bitnet_grammar__add_no(b, all, x / 2);
        else bitnet_grammar__add_schema(b, all, x / 2, all->n);
    }
    all->several = b->together.n > 1;
}

/* The array of a keyword, or NONE. */
static uint32_t bitnet_grammar__array_word(bitnet_grammar__builder *b, uint32_t v, int keyword) {
    const uint32_t p = bitnet_grammar__said(b, v, keyword);
    if (p != BITNET_GRAMMAR__NONE && bitnet_grammar__type(b, p) != BITNET_GRAMMAR__ARRAY)
        bitnet_grammar__wrong(b, BITNET_ERR_FORMAT, p, "not an array");
    return b->code ? BITNET_GRAMMAR__NONE : p;
}

/* Adds what $ref, allOf and not lead to. */
static void bitnet_grammar__expand(bitnet_grammar__builder *b, bitnet_grammar__all *all) {
    uint32_t i, p;
    for (i = 0; i < all->n && !b->code; i++) {
        const uint32_t v = all->v[i];
        if (all->chosen[i] & 16) continue;
        all->chosen[i] |= 16;
        p = bitnet_grammar__ref_of(b, v);
        if (p != BITNET_GRAMMAR__NONE)
            bitnet_grammar__add_schema(b, all, bitnet_grammar__resolve_ref(b, p), i);
        BITNET_GRAMMAR__EACH(b, p, bitnet_grammar__array_word(b, v, BITNET_GRAMMAR__K_ALL_OF))
            bitnet_grammar__add_schema(b, all, p, i);
        p = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_NOT);
        if (p != BITNET_GRAMMAR__NONE) bitnet_grammar__add_no(b, all, p);
    }
}

static bitnet_grammar__frag bitnet_grammar__compile_all(bitnet_grammar__builder *b,
                                                        bitnet_grammar__all *all);

/* One of the alternatives of a schema, all->v[i], with all the others. kind 0: anyOf, 1: oneOf. Of
   oneOf none of the others may hold: those that cannot hold beside it anyway are not looked at. */
static bitnet_grammar__frag bitnet_grammar__alternatives(bitnet_grammar__builder *b,
                                                         const bitnet_grammar__all *all,
                                                         uint32_t i, uint32_t list, int kind) {
    static const uint64_t words[] = {BITNET_GRAMMAR__WORD(ANY_OF), BITNET_GRAMMAR__WORD(ONE_OF)};
    const int alone = !b->raw && all->n == 1 && !all->n_no && !all->n_demands && !all->several &&
                      !bitnet_grammar__has(b, all->v[i], ~words[kind]);
    bitnet_grammar__frag f = bitnet_grammar__failing(b);
    bitnet_grammar__all with;
    uint32_t p, q, n;
    if (kind && BITNET_GRAMMAR__VALUE(b, list).n_parts > 256)
        return bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, list, "over 256 alternatives");
    BITNET_GRAMMAR__EACH(b, p, list) {
        with = *all;
        n = with.n_no;
        with.chosen[i] |= (uint8_t)(1 << kind);
        BITNET_GRAMMAR__EACH(b, q, kind ? list : BITNET_GRAMMAR__NONE)
            if (q != p && !bitnet_grammar__exclusive(b, q, p, 0))
                bitnet_grammar__add_no(b, &with, q);
        if (alone && with.n_no == n && !with.fails) {
            f = bitnet_grammar__or(b, bitnet_grammar__schema(b, p), f);
            continue;
        }
        bitnet_grammar__add_schema(b, &with, p, i);
        f = bitnet_grammar__or(b, bitnet_grammar__compile_all(b, &with), f);
    }
    return f;
}

/* if: it holds, and then; or it does not, and else. */
static bitnet_grammar__frag bitnet_grammar__condition(bitnet_grammar__builder *b,
                                                      const bitnet_grammar__all *all, uint32_t i) {
    const uint32_t v = all->v[i], test = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_IF);
    const uint32_t then = bitnet_grammar__get(b, v, "then");
    const uint32_t other = bitnet_grammar__get(b, v, "else");
    bitnet_grammar__all with = *all;
    bitnet_grammar__frag f;
    with.chosen[i] |= 4;
    if (then == BITNET_GRAMMAR__NONE && other == BITNET_GRAMMAR__NONE)
        return bitnet_grammar__compile_all(b, &with);
    bitnet_grammar__add_schema(b, &with, test, i);
    if (then != BITNET_GRAMMAR__NONE) bitnet_grammar__add_schema(b, &with, then, i);
    f = bitnet_grammar__compile_all(b, &with);
    with = *all;
    with.chosen[i] |= 4;
    bitnet_grammar__add_no(b, &with, test);
    if (other != BITNET_GRAMMAR__NONE) bitnet_grammar__add_schema(b, &with, other, i);
    return bitnet_grammar__or(b, bitnet_grammar__compile_all(b, &with), f);
}

/* dependentRequired and the like: each property is not there, or what it asks for is. Of more than
   three all are alike: none is there, or all is that they ask for. Beside unevaluatedProperties
   false a schema counts only with its property: without it, it evaluates nothing. */
static bitnet_grammar__frag bitnet_grammar__dependent(bitnet_grammar__builder *b,
                                                      const bitnet_grammar__all *all, uint32_t i) {
    static const int words[] = {BITNET_GRAMMAR__K_DEPENDENT_REQUIRED,
                                BITNET_GRAMMAR__K_DEPENDENT_SCHEMAS,
                                BITNET_GRAMMAR__K_DEPENDENCIES};
    const uint32_t more = bitnet_grammar__said(b, all->v[0],
                                               BITNET_GRAMMAR__K_UNEVALUATED_PROPERTIES);
    const int strict = bitnet_grammar__type(b, more) == BITNET_GRAMMAR__FALSE;
    bitnet_grammar__frag f = bitnet_grammar__failing(b);
    bitnet_grammar__all with;
    uint32_t list, p, k, n, ways, way;
    for (n = k = 0; k < 3; k++) {
        list = bitnet_grammar__object_word(b, all->v[i], words[k]);
        if (list != BITNET_GRAMMAR__NONE) n += BITNET_GRAMMAR__VALUE(b, list).n_parts;
    }
    ways = n > 3 ? 2 : 1u << n;
    for (way = 0; way < ways && !b->code; way++) {
        with = *all;
        with.chosen[i] |= 8;
        for (n = k = 0; k < 3; k++) {
            list = bitnet_grammar__object_word(b, all->v[i], words[k]);
            BITNET_GRAMMAR__EACH(b, p, list) {
                const int kept = way >> (ways == 2 ? 0 : n) & 1;
                n++;
                if (!kept)
                    bitnet_grammar__add_demand(b, &with, p, BITNET_GRAMMAR__BARRED);
                else if (bitnet_grammar__type(b, p) == BITNET_GRAMMAR__ARRAY)
                    bitnet_grammar__add_demand(b, &with, p, BITNET_GRAMMAR__DEMANDED);
                else {
                    if (strict) bitnet_grammar__add_demand(b, &with, p, BITNET_GRAMMAR__PRESENT);
                    bitnet_grammar__add_schema(b, &with, p, i);
                }
            }
        }
        f = bitnet_grammar__or(b, bitnet_grammar__compile_all(b, &with), f);
    }
    return f;
}

/* The types that a value may have that does what is demanded. Where a listed value is one of many
   of its type, all of them are left out, but for strings. */
static uint32_t bitnet_grammar__demanded_types(bitnet_grammar__builder *b, uint32_t d, int kind) {
    const bitnet_grammar__value v = BITNET_GRAMMAR__VALUE(b, d);
    uint32_t p, out = 255;
    if (kind == BITNET_GRAMMAR__BARRED || kind == BITNET_GRAMMAR__DEMANDED) return out;
    if (kind != BITNET_GRAMMAR__BROKEN) return BITNET_GRAMMAR__OBJECT;
    if (v.keyword == BITNET_GRAMMAR__K_TYPE + 1) {
        out = 255 & ~bitnet_grammar__types(b, v.parent);
        return (out & 24) == 24 ? out : out & ~24u;    /* 1.0 is an integer, too */
    }
    if (v.keyword != BITNET_GRAMMAR__K_ENUM + 1 && v.keyword != BITNET_GRAMMAR__K_CONST + 1)
        return bitnet_grammar__keywords[v.keyword - 1].types;
    p = v.keyword == BITNET_GRAMMAR__K_ENUM + 1 ? v.first : d;
    for (; p != BITNET_GRAMMAR__NONE; p = p == d ? BITNET_GRAMMAR__NONE
                                                 : BITNET_GRAMMAR__VALUE(b, p).next) {
        const uint32_t type = bitnet_grammar__type(b, p);
        bitnet_grammar__spend(b, 1);
        if (type & 24) out &= ~24u;
        else if (type != BITNET_GRAMMAR__STRING) out &= ~type;
    }
    return out;
}

/* Would other values of these types break the keyword `d`, which leaves them out as a whole? */
static int bitnet_grammar__is_coarse(bitnet_grammar__builder *b, uint32_t d, uint32_t types) {
    if (bitnet_grammar__is_word_of(b, d, BITNET_GRAMMAR__K_TYPE))
        return (types & ~bitnet_grammar__types(b, BITNET_GRAMMAR__VALUE(b, d).parent)) != 0;
    return (bitnet_grammar__is_word_of(b, d, BITNET_GRAMMAR__K_ENUM) ||
            bitnet_grammar__is_word_of(b, d, BITNET_GRAMMAR__K_CONST)) &&
           types > BITNET_GRAMMAR__NULL + BITNET_GRAMMAR__FALSE + BITNET_GRAMMAR__TRUE;
}

/* The types that are left by all schemas and demands. */
static uint32_t bitnet_grammar__left_types(bitnet_grammar__builder *b,
                                           const bitnet_grammar__all *all) {
    uint32_t i, out = 255;
    for (i = 0; i < all->n && !b->code; i++) out &= bitnet_grammar__types(b, all->v[i]);
    for (i = 0; i < all->n_demands; i++)
        out &= bitnet_grammar__demanded_types(b, all->demand[i], all->kind[i]);
    return out;
}

/* A way to break a schema: a kind of demand for v; LIST: that none of a list of schemas holds;
   ONE: that v does not hold; KEEP: that it does. */
enum { BITNET_GRAMMAR__LIST = 16, BITNET_GRAMMAR__ONE, BITNET_GRAMMAR__KEEP };
typedef struct bitnet_grammar__way { uint32_t v; int kind; } bitnet_grammar__way;

/* Adds the ways to break additionalProperties: false, p: the properties of others that its schema
   does not list. Returns 0 if there are others. */
static int bitnet_grammar__ways_of_others(bitnet_grammar__builder *b,
                                          const bitnet_grammar__all *all, uint32_t p,
                                          bitnet_grammar__way *ways, uint32_t *n) {
    const uint32_t v = BITNET_GRAMMAR__VALUE(b, p).parent;
    const uint32_t mine = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_PROPERTIES);
    uint32_t i, q, list;
    if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__FALSE ||
        bitnet_grammar__has(b, v, BITNET_GRAMMAR__WORD(PATTERN_PROPERTIES)))
        return bitnet_grammar__type(b, p) == BITNET_GRAMMAR__TRUE;
    for (i = 0; i < all->n && !b->code; i++) {
        list = bitnet_grammar__object_word(b, all->v[i], BITNET_GRAMMAR__K_PROPERTIES);
        BITNET_GRAMMAR__EACH(b, q, list) {
            const bitnet_grammar__value *x = &BITNET_GRAMMAR__VALUE(b, q);
            if (mine != BITNET_GRAMMAR__NONE &&
                bitnet_grammar__look_up(b, mine, BITNET_GRAMMAR__POOL(b, x->key), x->n_key) !=
                    BITNET_GRAMMAR__NONE) continue;
            if (*n == BITNET_GRAMMAR__CHOICES) return 0;
            ways[*n].v = q;
            ways[(*n)++].kind = BITNET_GRAMMAR__PRESENT;
        }
    }
    return 0;
}

/* Does one of the schemas require the property that a string names? */
static int bitnet_grammar__is_required(bitnet_grammar__builder *b, const bitnet_grammar__all *all,
                                       uint32_t name) {
    uint32_t i, p;
    for (i = 0; i < all->n && !b->code; i++) {
        p = bitnet_grammar__said(b, all->v[i], BITNET_GRAMMAR__K_REQUIRED);
        if (bitnet_grammar__type(b, p) != BITNET_GRAMMAR__ARRAY) continue;
        BITNET_GRAMMAR__EACH(b, p, p)
            if (!bitnet_grammar__differ(b, p, name)) return 1;
    }
    return 0;
}

/* Adds the ways to break the keyword p of a schema. Returns 0 if there are others. */
static int bitnet_grammar__ways_of(bitnet_grammar__builder *b, const bitnet_grammar__all *all,
                                   uint32_t p, uint32_t types, bitnet_grammar__way *ways,
                                   uint32_t *n) {
    const bitnet_grammar__value x = BITNET_GRAMMAR__VALUE(b, p);
    const int keyword = (int)x.keyword - 1;
    uint32_t q;
    int kind = BITNET_GRAMMAR__BROKEN;
    switch (keyword) {
        case BITNET_GRAMMAR__K_REF: kind = BITNET_GRAMMAR__ONE; break;
        case BITNET_GRAMMAR__K_NOT: kind = BITNET_GRAMMAR__KEEP; break;
        case BITNET_GRAMMAR__K_ANY_OF: case BITNET_GRAMMAR__K_ONE_OF:
            kind = BITNET_GRAMMAR__LIST;
            break;
        case BITNET_GRAMMAR__K_ALL_OF: kind = BITNET_GRAMMAR__ONE; break;
        case BITNET_GRAMMAR__K_REQUIRED: kind = BITNET_GRAMMAR__MISSING; break;
        case BITNET_GRAMMAR__K_PROPERTIES: kind = BITNET_GRAMMAR__UNKEPT; break;
        case BITNET_GRAMMAR__K_ADDITIONAL_PROPERTIES:
            return bitnet_grammar__ways_of_others(b, all, p, ways, n);
        case BITNET_GRAMMAR__K_NULLABLE: return 1;
        case BITNET_GRAMMAR__K_EXCLUSIVE_MINIMUM: case BITNET_GRAMMAR__K_EXCLUSIVE_MAXIMUM:
            if (x.type == BITNET_GRAMMAR__TRUE || x.type == BITNET_GRAMMAR__FALSE) return 1;
            break;
        case BITNET_GRAMMAR__K_ENUM: case BITNET_GRAMMAR__K_CONST: case BITNET_GRAMMAR__K_TYPE:
        case BITNET_GRAMMAR__K_MIN_LENGTH: case BITNET_GRAMMAR__K_MAX_LENGTH:
        case BITNET_GRAMMAR__K_MINIMUM: case BITNET_GRAMMAR__K_MAXIMUM:
        case BITNET_GRAMMAR__K_MIN_ITEMS: case BITNET_GRAMMAR__K_MAX_ITEMS:
        case BITNET_GRAMMAR__K_MIN_PROPERTIES: case BITNET_GRAMMAR__K_MAX_PROPERTIES: break;
        case BITNET_GRAMMAR__K_PATTERN:
            if (x.type == BITNET_GRAMMAR__STRING &&
                !bitnet_grammar__has_opposite(b, BITNET_GRAMMAR__POOL(b, x.text), x.n_text))
                return 0;
            break;
        case BITNET_GRAMMAR__K_FORMAT:
            return bitnet_grammar__type(b, p) == BITNET_GRAMMAR__STRING &&
                   bitnet_grammar__format_of(b, p) == BITNET_GRAMMAR__NONE &&
                   bitnet_grammar__integer_format(b, x.parent) < 0;
        default: return 0;
    }
    q = keyword == BITNET_GRAMMAR__K_ALL_OF || kind == BITNET_GRAMMAR__MISSING ||
                kind == BITNET_GRAMMAR__UNKEPT ? x.first : p;
    for (; q != BITNET_GRAMMAR__NONE && !b->code;
         q = q == p ? BITNET_GRAMMAR__NONE : BITNET_GRAMMAR__VALUE(b, q).next) {
        bitnet_grammar__spend(b, 8);
        if (kind < BITNET_GRAMMAR__LIST &&
            !(types & bitnet_grammar__demanded_types(b, q, kind))) {
            if (kind == BITNET_GRAMMAR__BROKEN && bitnet_grammar__is_coarse(b, q, types))
                b->coarse = x.parent;
            continue;
        }
        if (kind == BITNET_GRAMMAR__UNKEPT &&
            (bitnet_grammar__type(b, q) == BITNET_GRAMMAR__TRUE || b->code ||
             (bitnet_grammar__type(b, q) == BITNET_GRAMMAR__OBJECT &&
              !BITNET_GRAMMAR__VALUE(b, q).has))) continue;
        if (kind == BITNET_GRAMMAR__MISSING && bitnet_grammar__is_required(b, all, q)) continue;
        if (*n == BITNET_GRAMMAR__CHOICES) return 0;
        ways[*n].v = q;
        ways[(*n)++].kind = kind;
    }
    return 1;
}

/* The schemas that must not hold: the last of them is broken in each way that there is. Where there
   are very many alternatives already, in the first one. */
static bitnet_grammar__frag bitnet_grammar__break(bitnet_grammar__builder *b,
                                                  const bitnet_grammar__all *all) {
    const uint32_t v = all->no[all->n_no - 1], types = bitnet_grammar__left_types(b, all);
    bitnet_grammar__way ways[BITNET_GRAMMAR__CHOICES];
    bitnet_grammar__frag f = bitnet_grammar__failing(b);
    bitnet_grammar__all with = *all;
    uint32_t i, p, n = 0;
    int known = 1;
    with.n_no--;
    if (++with.deep > BITNET_GRAMMAR__NOT_TOGETHER)
        return bitnet_grammar__wrong(b, BITNET_ERR_LIMIT, v, "too much must not hold");
    if (!(types & bitnet_grammar__all_types(b, v)) && !b->code)
        return bitnet_grammar__compile_all(b, &with);  /* it cannot hold */
    for (i = 0; i < 2; i++)                /* names of properties first */
        BITNET_GRAMMAR__EACH(b, p, v)
            if (BITNET_GRAMMAR__VALUE(b, p).keyword &&
                bitnet_grammar__is_word_of(b, p, BITNET_GRAMMAR__K_REQUIRED) == !i)
                known &= bitnet_grammar__ways_of(b, all, p, types, ways, &n);
    if (!n && !known) b->unbroken = v;     /* an alternative less, unless it is the only one */
    if (with.ways * n > BITNET_GRAMMAR__CHOICES) n = 1;
    for (i = 0; i < n && !b->code; i++) {
        with = *all;
        with.n_no--;
        with.deep++;
        with.ways *= n;
        if (ways[i].kind < BITNET_GRAMMAR__LIST)
            bitnet_grammar__add_demand(b, &with, ways[i].v, ways[i].kind);
        else if (ways[i].kind == BITNET_GRAMMAR__KEEP) {
            if (!with.n_evaluating) with.n_evaluating = with.n;
            bitnet_grammar__add_schema(b, &with, ways[i].v, with.n);
        } else if (ways[i].kind == BITNET_GRAMMAR__ONE)
            bitnet_grammar__add_no(b, &with, bitnet_grammar__is_word_of(b, ways[i].v,
                                                                       BITNET_GRAMMAR__K_REF)
                                                ? bitnet_grammar__resolve_ref(b, ways[i].v)
                                                : ways[i].v);
        else
            BITNET_GRAMMAR__EACH(b, p, ways[i].v) bitnet_grammar__add_no(b, &with, p);
        f = bitnet_grammar__or(b, bitnet_grammar__compile_all(b, &with), f);
    }
    return f;
}

/* The types that a schema without `type` is about: as in llama.cpp, those of its keywords. */
static uint32_t bitnet_grammar__infer(bitnet_grammar__builder *b, uint32_t v) {
    const uint32_t format = bitnet_grammar__said(b, v, BITNET_GRAMMAR__K_FORMAT);
    uint32_t i, out = 0;
    for (i = 0; i < BITNET_GRAMMAR__N_KEYWORDS; i++)
        if (bitnet_grammar__has(b, v, (uint64_t)1 << i)) out |= bitnet_grammar__keywords[i].types;
    if (format == BITNET_GRAMMAR__NONE) return out;
    if (bitnet_grammar__integer_format(b, v) >= 0 ||
        bitnet_grammar__format_is(b, v, " float double ")) return out | 24;
    return bitnet_grammar__format_of(b, format) == BITNET_GRAMMAR__NONE ? out : out | 32;
}

/* The values of each type that all schemas allow. */
static bitnet_grammar__frag bitnet_grammar__by_type(bitnet_grammar__builder *b,
                                                    const bitnet_grammar__all *all) {
    bitnet_grammar__frag f = bitnet_grammar__failing(b);
    uint32_t types = bitnet_grammar__left_types(b, all), inferred = 0, i;
    int typed = 0;
    for (i = 0; i < all->n && !b->code; i++) {
        typed |= bitnet_grammar__has(b, all->v[i], BITNET_GRAMMAR__WORD(TYPE));
        inferred |= bitnet_grammar__infer(b, all->v[i]);
    }
    if (!typed && !inferred && !all->n_demands && !b->raw) return bitnet_grammar__named(b, "value");
    if (!typed && inferred) types &= inferred;
    if (b->raw) types &= BITNET_GRAMMAR__STRING;
    if (types & (BITNET_GRAMMAR__NUMBER | BITNET_GRAMMAR__INTEGER))
        f = bitnet_grammar__or(b, bitnet_grammar__numbers(b, all,
                                                          !(types & BITNET_GRAMMAR__NUMBER)), f);
    if (types & BITNET_GRAMMAR__NULL) f = bitnet_grammar__or(b, bitnet_grammar__text(b, "null"), f);
    if (types & BITNET_GRAMMAR__TRUE) f = bitnet_grammar__or(b, bitnet_grammar__text(b, "true"), f);
    if (types & BITNET_GRAMMAR__FALSE)
        f = bitnet_grammar__or(b, bitnet_grammar__text(b, "false"), f);
    if (types & BITNET_GRAMMAR__STRING)
        f = bitnet_grammar__or(b, bitnet_grammar__strings(b, all), f);
    if (types & BITNET_GRAMMAR__ARRAY) f = bitnet_grammar__or(b, bitnet_grammar__arrays(b, all), f);
    if (types & BITNET_GRAMMAR__OBJECT)
        f = bitnet_grammar__or(b, bitnet_grammar__objects(b, all), f);
    return f;
}

/* The values that all schemas allow. */
static bitnet_grammar__frag bitnet_grammar__compile_all(bitnet_grammar__builder *b,
                                                        bitnet_grammar__all *all) {
    static const int words[] = {BITNET_GRAMMAR__K_ANY_OF, BITNET_GRAMMAR__K_ONE_OF};
    const uint64_t leads = BITNET_GRAMMAR__WORD(REF) | BITNET_GRAMMAR__WORD(ALL_OF);
    const uint64_t dependent = BITNET_GRAMMAR__WORD(DEPENDENT_REQUIRED) |
                               BITNET_GRAMMAR__WORD(DEPENDENT_SCHEMAS) |
                               BITNET_GRAMMAR__WORD(DEPENDENCIES);
    uint32_t i, k, list, last = 0, n = 0;
    bitnet_grammar__spend(b, 64);
    bitnet_grammar__expand(b, all);
    if (b->code) return bitnet_grammar__pair(0, 0);
    if (all->fails) return bitnet_grammar__failing(b);
    for (i = 0; i < all->n; i++) {
        if (!bitnet_grammar__has(b, all->v[i], ~leads)) continue;
        n++;
        last = i;
    }
    if (n == 1 && last > 0 && !(all->chosen[last] & 15) && !all->n_no && !all->n_demands &&
        !b->raw)
        return bitnet_grammar__schema(b, all->v[last]);            /* one schema, and notes */
    if (bitnet_grammar__list_values(b, all)) return bitnet_grammar__listed_texts(b);
    for (i = 0; i < all->n && !b->code; i++) {
        const uint32_t v = all->v[i];
        for (k = 0; k < 2; k++) {
            list = bitnet_grammar__array_word(b, v, words[k]);
            if (list != BITNET_GRAMMAR__NONE && !(all->chosen[i] >> k & 1))
                return bitnet_grammar__alternatives(b, all, i, list, (int)k);
        }
        if (bitnet_grammar__has(b, v, BITNET_GRAMMAR__WORD(IF)) && !(all->chosen[i] & 4))
            return bitnet_grammar__condition(b, all, i);
        if (bitnet_grammar__has(b, v, dependent) && !(all->chosen[i] & 8))
            return bitnet_grammar__dependent(b, all, i);
    }
    if (b->code) return bitnet_grammar__pair(0, 0);
    return all->n_no ? bitnet_grammar__break(b, all) : bitnet_grammar__by_type(b, all);
}

/* The schemas of a set, all at once. */
static bitnet_grammar__frag bitnet_grammar__compile_set(bitnet_grammar__builder *b, uint32_t i) {
    const bitnet_grammar__set set = ((bitnet_grammar__set *)b->several.p)[i];
    bitnet_grammar__all all;
    uint32_t k, x;
    memset(&all, 0, sizeof all);
    all.ways = 1;
    for (b->together.n = k = 0; k < set.n && !b->code; k++) {
        memcpy(&x, BITNET_GRAMMAR__POOL(b, set.key) + k * sizeof x, sizeof x);
        bitnet_grammar__push(b, &b->together, x);
        b->place = x / 2;
    }
    bitnet_grammar__add_together(b, &all);
    return bitnet_grammar__compile_all(b, &all);
}

static bitnet_grammar__frag bitnet_grammar__compile_schema(bitnet_grammar__builder *b, uint32_t v) {
    bitnet_grammar__all all;
    b->place = v;
    memset(&all, 0, sizeof all);
    all.ways = 1;
    bitnet_grammar__add_schema(b, &all, v, 0);
    if (all.n == 1 && !b->raw && !bitnet_grammar__has(b, v, ~BITNET_GRAMMAR__WORD(REF))) {
        const uint32_t ref = bitnet_grammar__ref_of(b, v);
        if (ref != BITNET_GRAMMAR__NONE) {
            v = bitnet_grammar__resolve_ref(b, ref);
            return b->code ? bitnet_grammar__pair(0, 0) : bitnet_grammar__schema(b, v);
        }
    }
    return bitnet_grammar__compile_all(b, &all);
}

static const char bitnet_grammar__kept_out[] =
    "what this allows cannot be left out, for not, if or oneOf";

/* Defines a rule by a schema, or a set of them. */
static void bitnet_grammar__compile_rule(bitnet_grammar__builder *b, uint32_t r, uint32_t v,
                                         int is_set) {
    bitnet_grammar__frag f;
    b->unbroken = b->coarse = BITNET_GRAMMAR__NONE;
    f = is_set ? bitnet_grammar__compile_set(b, v) : bitnet_grammar__compile_schema(b, v);
    if (!f.start && b->unbroken != BITNET_GRAMMAR__NONE)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, b->unbroken, bitnet_grammar__kept_out);
    bitnet_grammar__define(b, r, f);
    if (!b->code) BITNET_GRAMMAR__RULE(b, r).coarse = b->coarse;
    b->place = BITNET_GRAMMAR__NONE;
}

static void bitnet_grammar__compile_todo(bitnet_grammar__builder *b) {
    while (b->todo.n > 0 && !b->code) {
        const uint32_t v = ((uint32_t *)b->todo.p)[--b->todo.n], set = v & ~BITNET_GRAMMAR__LEAF;
        const int is_set = (v & BITNET_GRAMMAR__LEAF) != 0;
        bitnet_grammar__compile_rule(b, is_set ? ((bitnet_grammar__set *)b->several.p)[set].rule
                                               : BITNET_GRAMMAR__VALUE(b, v).rule,
                                     is_set ? set : v, is_set);
    }
}

/* Compiles the schema, and all that it leads to. Returns its rule. */
static uint32_t bitnet_grammar__parse_schema(bitnet_grammar__builder *b) {
    uint32_t root;
    bitnet_grammar__parse_gbnf(b, bitnet_grammar__common_rules,
                               (uint32_t)strlen(bitnet_grammar__common_rules));
    b->text = b->source;
    b->n = b->n_source;
    b->at = 0;
    bitnet_grammar__json_value(b, BITNET_GRAMMAR__NONE);
    bitnet_grammar__json_space(b);
    if (!b->code && b->at < b->n) bitnet_grammar__expected(b, "the end");
    bitnet_grammar__find_anchors(b);
    if (b->code) return 0;
    root = bitnet_grammar__rule_of(b, 0);
    bitnet_grammar__compile_todo(b);
    return root;
}

/* The rule PREFIX-NAME, if others have mentioned it and none has defined it, or NONE. */
static uint32_t bitnet_grammar__mentioned(bitnet_grammar__builder *b, uint32_t space,
                                          const char *prefix, uint32_t p) {
    const bitnet_grammar__value v = BITNET_GRAMMAR__VALUE(b, p);
    uint32_t r;
    b->bytes.n = 0;
    bitnet_grammar__put(b, &b->bytes, prefix, 4);
    bitnet_grammar__put(b, &b->bytes, BITNET_GRAMMAR__POOL(b, v.key), v.n_key);
    if (b->code) return BITNET_GRAMMAR__NONE;
    r = bitnet_grammar__look_up(b, space, (const char *)b->bytes.p, 4 + v.n_key);
    return r == BITNET_GRAMMAR__NONE || BITNET_GRAMMAR__RULE(b, r).start == BITNET_GRAMMAR__NONE
               ? r : BITNET_GRAMMAR__NONE;
}

/* Defines the rules def-NAME and raw-NAME that other rules have mentioned, in a space of names. */
static void bitnet_grammar__define_defs(bitnet_grammar__builder *b, uint32_t space) {
    const uint32_t defs = b->values.n ? bitnet_grammar__get(b, 0, "$defs") : BITNET_GRAMMAR__NONE;
    uint32_t p, r;
    b->text = b->source;
    b->n = b->n_source;
    BITNET_GRAMMAR__EACH(b, p, defs) {
        r = bitnet_grammar__mentioned(b, space, "def-", p);
        if (r != BITNET_GRAMMAR__NONE) bitnet_grammar__define(b, r, bitnet_grammar__schema(b, p));
        r = bitnet_grammar__mentioned(b, space, "raw-", p);
        b->raw = 1;
        if (r != BITNET_GRAMMAR__NONE) bitnet_grammar__compile_rule(b, r, p, 0);
        b->raw = 0;
    }
    bitnet_grammar__compile_todo(b);
}

/* =============================================================================================
   @check  a graph whose every node can reach its end
   ============================================================================================= */

/* What a node leads to if it is a JOIN, or 0 from a ring of them. Paths get shorter on the way. */
static uint32_t bitnet_grammar__past_joins(bitnet_grammar__node *nodes, uint32_t n, uint32_t i) {
    uint32_t to = i, steps = 0, next;
    while (nodes[to].type == BITNET_GRAMMAR__JOIN) to = ++steps > n ? 0 : nodes[to].next;
    for (; nodes[i].type == BITNET_GRAMMAR__JOIN; i = next) {
        next = nodes[i].next;
        nodes[i].next = to;
    }
    return to;
}

static void bitnet_grammar__resolve(bitnet_grammar__builder *b) {
    bitnet_grammar__node *nodes = (bitnet_grammar__node *)b->nodes.p;
    uint32_t i;
    for (i = 0; i < b->rules.n; i++) {
        if (BITNET_GRAMMAR__RULE(b, i).start != BITNET_GRAMMAR__NONE) continue;
        bitnet_grammar__fail_rule(b, BITNET_ERR_FORMAT, i, "is not defined");
        return;
    }
    for (i = 0; i < b->nodes.n; i++) {
        bitnet_grammar__node *n = &nodes[i];
        if (n->type == BITNET_GRAMMAR__JOIN) continue;
        if (n->type != BITNET_GRAMMAR__BYTES)
            n->next = bitnet_grammar__past_joins(nodes, b->nodes.n, n->next);
        if (n->type == BITNET_GRAMMAR__CALL) {
            n->min = (int32_t)n->alt;      /* the rule, for errors */
            n->alt = BITNET_GRAMMAR__RULE(b, n->alt).start;
        }
        if (n->type == BITNET_GRAMMAR__CALL || n->type == BITNET_GRAMMAR__REP ||
            n->type == BITNET_GRAMMAR__SPLIT)
            n->alt = bitnet_grammar__past_joins(nodes, b->nodes.n, n->alt);
    }
    for (i = 0; i < b->edges.n; i++)
        BITNET_GRAMMAR__EDGE(b, i).next =
            bitnet_grammar__past_joins(nodes, b->nodes.n, BITNET_GRAMMAR__EDGE(b, i).next);
    for (i = 0; i < b->rules.n; i++)
        BITNET_GRAMMAR__RULE(b, i).start =
            bitnet_grammar__past_joins(nodes, b->nodes.n, BITNET_GRAMMAR__RULE(b, i).start);
}

/* Who depends on each node: for node i users[first[i]] .. users[first[i + 1] - 1]. */
typedef struct bitnet_grammar__users { uint32_t *first, *users, *queue; } bitnet_grammar__users;

/* Is a token of the vocabulary one of an edge's bytes? All others may be passed inside of longer
   tokens, but nothing may depend on them. */
static int bitnet_grammar__is_writable(const bitnet_grammar *g, const bitnet_grammar__edge *e) {
    uint32_t byte = e->low;
    while (byte < e->high && !g->single[byte]) byte++;
    return g->single[byte];
}

/* Is there a token that a TOKEN stands for? */
static int bitnet_grammar__is_named(const bitnet_grammar *g, const bitnet_grammar__node *n) {
    const uint32_t t = (uint32_t)n->min;
    return !n->max || g->n_plain > (g->plain[t / 32] >> t % 32 & 1);
}

static void bitnet_grammar__count_users(bitnet_grammar__builder *b, bitnet_grammar__users *u,
                                        int fill) {
    uint32_t i, k;
    for (i = 0; i < b->nodes.n; i++) {
        const bitnet_grammar__node *n = &BITNET_GRAMMAR__NODE(b, i);
        uint32_t of[2], n_of = 0;
        if (n->type == BITNET_GRAMMAR__BYTES) {
            for (k = 0; k < (uint32_t)n->min; k++) {
                const bitnet_grammar__edge *e = &BITNET_GRAMMAR__EDGE(b, n->alt + k);
                if (!bitnet_grammar__is_writable(b->g, e)) continue;
                if (fill) u->users[--u->first[e->next]] = i;
                else u->first[e->next]++;
            }
        } else if (n->type >= BITNET_GRAMMAR__SPLIT &&
                   (n->type != BITNET_GRAMMAR__TOKEN || bitnet_grammar__is_named(b->g, n))) {
            of[n_of++] = n->next;
            if (n->type != BITNET_GRAMMAR__TOKEN) of[n_of++] = n->alt;
        }
        for (k = 0; k < n_of; k++) {
            if (fill) u->users[--u->first[of[k]]] = i;
            else u->first[of[k]]++;
        }
    }
}

/* What the shortest way out of a node needs, from what the nodes need that it leads to. With
   `bytes` the depth; without, 0 if there is a way that takes no byte. */
static uint32_t bitnet_grammar__value_of(const bitnet_grammar__builder *b, uint32_t i,
                                         const uint16_t *need, uint32_t from, int bytes) {
    const bitnet_grammar__node *n = &BITNET_GRAMMAR__NODE(b, i);
    uint32_t inside, after = need[n->next];
    switch (n->type) {
        case BITNET_GRAMMAR__SPLIT: return need[from];
        case BITNET_GRAMMAR__BYTES:
        case BITNET_GRAMMAR__TOKEN: return bytes ? need[from] : BITNET_GRAMMAR__NEVER;
        case BITNET_GRAMMAR__REP: if (n->min == 0) return after; break;
        default: break;
    }
    inside = need[n->alt];
    if (inside == BITNET_GRAMMAR__NEVER || after == BITNET_GRAMMAR__NEVER)
        return BITNET_GRAMMAR__NEVER;
    if (bytes && (n->type == BITNET_GRAMMAR__REP || n->next != 1)) inside++;
    return inside > after ? inside : after;
}

/* Sets need for all nodes, in order of their depth, so each gets its value once. */
static void bitnet_grammar__spread(bitnet_grammar__builder *b, const bitnet_grammar__users *u,
                                   uint16_t *need, int bytes) {
    uint32_t i, k, n_now = 0, n_later = 0, depth, total = b->nodes.n;
    uint32_t *now = u->queue, *later = u->queue + 2 * (size_t)total;
    for (i = 0; i < total; i++) need[i] = BITNET_GRAMMAR__NEVER;
    now[n_now++] = 1;
    need[1] = 0;
    for (depth = 0; depth <= BITNET_GRAMMAR__DEPTH; depth++) {
        while (n_now > 0) {
            i = now[--n_now];
            for (k = u->first[i]; k < u->first[i + 1]; k++) {
                const uint32_t user = u->users[k];
                const uint32_t v = bitnet_grammar__value_of(b, user, need, i, bytes);
                /* One more is the next round's. Two more come up again when that one is final. */
                if (v >= need[user] || v > depth + 1) continue;
                if (v <= depth) now[n_now++] = user;
                else later[n_later++] = user;
                need[user] = (uint16_t)v;
            }
        }
        if (!n_later) break;
        memcpy(now, later, n_later * sizeof *now);
        n_now = n_later;
        n_later = 0;
    }
}

/* What a rule calls before it has read a byte, for each rule: left recursion is a ring of these. */
typedef struct bitnet_grammar__lefts {
    uint32_t *first, *rules;               /* [n_rules + 1], [n_nodes] */
    uint32_t *mark, *stack;                /* [n_nodes] of this search */
    uint32_t *place, *path;                /* [n_rules] of the next one */
} bitnet_grammar__lefts;

static void bitnet_grammar__list_lefts(bitnet_grammar__builder *b, bitnet_grammar__lefts *l) {
    uint32_t r, n_rules = 0;
    memset(l->mark, 0, b->nodes.n * sizeof *l->mark);
    for (r = 0; r < b->rules.n; r++) {
        uint32_t n = 0;
        l->first[r] = n_rules;
        l->stack[n++] = BITNET_GRAMMAR__RULE(b, r).start;
        while (n > 0) {
            const uint32_t i = l->stack[--n];
            const bitnet_grammar__node *x = &BITNET_GRAMMAR__NODE(b, i);
            int goes_on = 0;
            if (l->mark[i]) continue;
            if (i > 1) l->mark[i] = 1;     /* a node belongs to one rule */
            if (x->type == BITNET_GRAMMAR__CALL) {
                l->rules[n_rules++] = (uint32_t)x->min;
                goes_on = b->g->empty[x->alt];
            } else if (x->type == BITNET_GRAMMAR__SPLIT || x->type == BITNET_GRAMMAR__REP) {
                goes_on = x->type == BITNET_GRAMMAR__SPLIT || x->min == 0;
                if (!l->mark[x->alt]) l->stack[n++] = x->alt;
            }
            if (goes_on && !l->mark[x->next]) l->stack[n++] = x->next;
        }
    }
    l->first[r] = n_rules;
}

/* A rule on such a ring; NONE: there is none. */
static uint32_t bitnet_grammar__find_ring(bitnet_grammar__builder *b, bitnet_grammar__lefts *l) {
    const uint32_t done = BITNET_GRAMMAR__NONE;
    uint32_t r, n, to;
    memset(l->place, 0, b->rules.n * sizeof *l->place);    /* 0: new; 1 + the next edge; done */
    for (r = 0; r < b->rules.n; r++) {
        if (l->place[r]) continue;
        l->path[0] = r;
        l->place[r] = 1;
        for (n = 1; n > 0;) {
            const uint32_t i = l->path[n - 1], edge = l->first[i] + l->place[i] - 1;
            if (edge == l->first[i + 1]) {
                l->place[i] = done;
                n--;
                continue;
            }
            l->place[i]++;
            to = l->rules[edge];
            if (l->place[to] == done) continue;
            if (l->place[to]) return to;
            l->place[to] = 1;
            l->path[n++] = to;
        }
    }
    return BITNET_GRAMMAR__NONE;
}

static void bitnet_grammar__refuse_left_recursion(bitnet_grammar__builder *b, uint32_t *work) {
    bitnet_grammar__lefts l;
    uint32_t ring, n = b->nodes.n;
    l.mark = work;
    l.stack = work + n;                    /* SPLITs push two and take one: at most 2 n */
    l.rules = work + 3 * (size_t)n;
    l.first = work + 4 * (size_t)n;
    l.place = l.first + b->rules.n + 1;
    l.path = l.place + b->rules.n;
    bitnet_grammar__list_lefts(b, &l);
    ring = bitnet_grammar__find_ring(b, &l);
    if (ring != BITNET_GRAMMAR__NONE)
        bitnet_grammar__fail_rule(b, BITNET_ERR_UNSUPPORTED, ring,
                                  "begins with itself (left recursion)");
}

/* A repetition of what can be empty needs no minimum. */
static void bitnet_grammar__relax_empty(bitnet_grammar__builder *b) {
    uint32_t i;
    for (i = 0; i < b->nodes.n; i++) {
        bitnet_grammar__node *n = &BITNET_GRAMMAR__NODE(b, i);
        if (n->type == BITNET_GRAMMAR__REP && b->g->empty[n->alt]) n->min = 0;
    }
}

/* The innermost schema that is to blame for a rule without texts; the rule, if there is none. Of
   alternatives, which all have no text, it is one of the last; a loop's is its end. */
static uint32_t bitnet_grammar__endless_rule(bitnet_grammar__builder *b, uint32_t r) {
    uint32_t i = BITNET_GRAMMAR__RULE(b, r).start, steps = 0;
    while (steps++ < b->nodes.n) {
        const bitnet_grammar__node *n = &BITNET_GRAMMAR__NODE(b, i);
        if (n->type == BITNET_GRAMMAR__BYTES && n->min == 1)
            i = BITNET_GRAMMAR__EDGE(b, n->alt).next;
        else if (n->type == BITNET_GRAMMAR__TOKEN) i = n->next;
        else if (n->type == BITNET_GRAMMAR__SPLIT) i = n->alt;
        else if (n->type != BITNET_GRAMMAR__CALL) break;
        else if (b->g->need[n->alt] < BITNET_GRAMMAR__NEVER) i = n->next;
        else {
            if (!BITNET_GRAMMAR__RULE(b, n->min).n_name) r = (uint32_t)n->min;
            i = n->alt;
        }
    }
    return r;
}

/* No text of the grammar ends, or each has a byte that is no token. Names the first of these. */
static void bitnet_grammar__fail_endless(bitnet_grammar__builder *b, uint32_t root) {
    char what[120] = "has no text that ends without bytes that are no tokens:";
    uint32_t i, n = 0, size = (uint32_t)strlen(what);
    root = bitnet_grammar__endless_rule(b, root);
    for (i = 0; i < 256 && n < 8; i++) {
        if (b->g->single[i]) continue;
        size += (uint32_t)snprintf(what + size, sizeof what - size, " 0x%02X", (unsigned)i);
        n++;
    }
    if (n) bitnet_grammar__fail_rule(b, BITNET_ERR_UNSUPPORTED, root, what);
    else if (BITNET_GRAMMAR__RULE(b, root).coarse != BITNET_GRAMMAR__NONE)
        bitnet_grammar__wrong(b, BITNET_ERR_UNSUPPORTED, BITNET_GRAMMAR__RULE(b, root).coarse,
                              bitnet_grammar__kept_out);
    else
        bitnet_grammar__fail_rule(b, BITNET_ERR_FORMAT, root,
                                  "has no text that ends, or none within a depth of 4096");
}

/* Makes the nodes a grammar's: no JOINs, no left recursion, and a way out of every node. */
static void bitnet_grammar__check(bitnet_grammar__builder *b, uint32_t root) {
    bitnet_grammar *g = b->g;
    bitnet_grammar__users u;
    const size_t n = b->nodes.n;
    uint32_t i, sum = 0, *work;
    bitnet_grammar__resolve(b);
    if (b->code) return;
    work = (uint32_t *)bitnet_grammar__alloc(
        &g->allocator, (7 * n + 3 * (size_t)b->rules.n + b->edges.n + 2 * n + 8) * sizeof *work);
    g->need = (uint16_t *)bitnet_grammar__alloc(&g->allocator, n * sizeof *g->need);
    g->empty = (uint8_t *)bitnet_grammar__alloc(&g->allocator, n);
    if (!work || !g->need || !g->empty) {
        bitnet_grammar__free(&g->allocator, work);
        bitnet_grammar__fail(b, BITNET_ERR_MEMORY, BITNET_GRAMMAR__NONE, "out of memory");
        return;
    }
    u.queue = work;
    u.first = work + 4 * n;
    u.users = u.first + n + 1;
    memset(u.first, 0, (n + 1) * sizeof *u.first);
    bitnet_grammar__count_users(b, &u, 0);
    for (i = 0; i <= n; i++) sum += u.first[i], u.first[i] = sum;
    bitnet_grammar__count_users(b, &u, 1);
    bitnet_grammar__spread(b, &u, g->need, 0);
    for (i = 0; i < n; i++) g->empty[i] = g->need[i] == 0;
    bitnet_grammar__relax_empty(b);
    bitnet_grammar__spread(b, &u, g->need, 1);
    bitnet_grammar__refuse_left_recursion(b, work);
    bitnet_grammar__free(&g->allocator, work);
    g->root = BITNET_GRAMMAR__RULE(b, root).start;
    if (g->need[g->root] == BITNET_GRAMMAR__NEVER) bitnet_grammar__fail_endless(b, root);
}

/* Bytes that no edge tells apart form a class. */
static void bitnet_grammar__sort_bytes(bitnet_grammar *g) {
    uint8_t begins[257];
    uint32_t i, n = 0;
    memset(begins, 0, sizeof begins);
    for (i = 0; i < g->n_edges; i++) {
        begins[g->edges[i].low] = 1;
        begins[g->edges[i].high + 1] = 1;
    }
    for (i = 0; i < 256; i++) {
        if (i > 0 && begins[i]) n++;
        g->byte_class[i] = (uint8_t)n;
        if (i == 0 || begins[i]) g->class_byte[n] = (uint8_t)i;
    }
    g->n_classes = n + 1;
}

/* =============================================================================================
   @vocabulary  the tree of the tokens' bytes
   ============================================================================================= */

typedef struct bitnet_grammar__word { const char *text; uint32_t n; int32_t token; }
bitnet_grammar__word;

static int bitnet_grammar__compare_words(const void *x, const void *y) {
    const bitnet_grammar__word *a = (const bitnet_grammar__word *)x;
    const bitnet_grammar__word *b = (const bitnet_grammar__word *)y;
    const int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

static uint32_t bitnet_grammar__common(const bitnet_grammar__word *a,
                                       const bitnet_grammar__word *b) {
    uint32_t i = 0;
    while (i < a->n && i < b->n && a->text[i] == b->text[i]) i++;
    return i;
}

/* Whole characters only: a token that `any but this one` may stand for. */
static int bitnet_grammar__is_utf8(const char *text, size_t n) {
    size_t i = 0, size = 1;
    for (; i < n && size; i += size) size = bitnet_utf8_decode(text + i, n - i, 0);
    return size > 0;
}

/* Fills the tree from sorted words; tree 0: only counts its nodes. Nodes where no token ends have
   tokens from `none` on: if all had the same number, each write to the mask would wait for the one
   before it. */
static uint32_t bitnet_grammar__plant(const bitnet_grammar__word *words, uint32_t n_words,
                                      bitnet_grammar__branch *tree, uint32_t none,
                                      uint32_t *open) {
    uint32_t i, d, n = 0, shared, depth = 0;
    for (i = 0; i < n_words; i++) {
        const bitnet_grammar__word *w = &words[i];
        shared = i ? bitnet_grammar__common(w - 1, w) : 0;
        if (shared == w->n) shared--;      /* the same text again: a leaf beside it */
        if (tree)
            for (d = shared + 1; d <= depth; d++) tree[open[d]].skip = n;
        for (d = shared; d < w->n; d++, n++) {
            if (!tree) continue;
            tree[n].byte = (uint8_t)w->text[d];
            tree[n].depth = (uint16_t)(d + 1);
            tree[n].token = d + 1 == w->n ? (uint32_t)w->token
                                          : none + 32 * (n % BITNET_GRAMMAR__OTHERS);
            open[d + 1] = n;
        }
        depth = w->n;
    }
    if (tree)
        for (d = 1; d <= depth; d++) tree[open[d]].skip = n;
    return n;
}

/* UTF-8 in states: 0 between characters, 1 to 3 with so many bytes to come, any of them; 4 to 7
   after E0, ED, F0 and F4, whose next byte has limits. Returns the next one, 8: ill-formed. */
static uint32_t bitnet_grammar__utf8_state(uint32_t state, uint8_t byte) {
    static const uint8_t low[] = {0, 0x80, 0x80, 0x80, 0xA0, 0x80, 0x90, 0x80};
    static const uint8_t high[] = {0, 0xBF, 0xBF, 0xBF, 0xBF, 0x9F, 0xBF, 0x8F};
    static const uint8_t next[] = {0, 0, 1, 2, 1, 1, 2, 2};
    if (state) return byte >= low[state] && byte <= high[state] ? next[state] : 8;
    if (byte < 0x80) return 0;
    if (byte < 0xC2 || byte > 0xF4) return 8;
    if (byte < 0xE0) return 1;
    if (byte < 0xF0) return byte == 0xE0 ? 4 : byte == 0xED ? 5 : 2;
    return byte == 0xF0 ? 6 : byte == 0xF4 ? 7 : 3;
}

/* Sums up what is below each node. open holds the way to a node while the tree is walked. */
static void bitnet_grammar__sum_up(bitnet_grammar *g, uint32_t *parent, uint32_t *open) {
    uint32_t i, s, k;
    for (i = 0; i < g->n_tree; i++) {
        const uint32_t d = g->tree[i].depth;
        open[d] = i;
        parent[i] = d > 1 ? open[d - 1] : BITNET_GRAMMAR__NONE;
        memset(&g->below[i], 0, sizeof g->below[i]);
        g->below[i].utf8 = 255;
    }
    for (i = g->n_tree; i-- > 0;) {        /* children before their parents */
        const uint8_t byte = g->tree[i].byte;
        bitnet_grammar__below *up;
        if (parent[i] == BITNET_GRAMMAR__NONE) continue;
        up = &g->below[parent[i]];
        for (k = 0; k < 4; k++) up->ascii[k] |= g->below[i].ascii[k];
        up->high |= g->below[i].high;
        k = g->below[i].chars + ((byte & 0xC0) != 0x80 ? 1u : 0u);
        if (k > up->chars) up->chars = (uint16_t)k;
        if (byte < 128) up->ascii[byte / 32] |= 1u << byte % 32;
        else up->high = 1;
        for (s = 0; s < 8; s++) {
            const uint32_t next = bitnet_grammar__utf8_state(s, byte);
            if (next == 8 || !(g->below[i].utf8 >> next & 1)) up->utf8 &= (uint8_t)~(1u << s);
        }
    }
}

/* Tokens of text, sorted; the sets of end tokens and of whole characters. */
static uint32_t bitnet_grammar__list_words(bitnet_grammar *g, bitnet_grammar__word *words) {
    uint32_t t, n = 0;
    size_t size;
    for (t = 0; t < g->n_vocab; t++) {
        const char *text = bitnet_token_text(g->model, (bitnet_token)t, &size);
        if (bitnet_token_is_end(g->model, (bitnet_token)t)) g->ends[t / 32] |= 1u << t % 32;
        else if (text && size > 0 && size <= BITNET_GRAMMAR__TOKEN_BYTES &&
                 !bitnet_token_is_special(g->model, (bitnet_token)t)) {
            words[n].text = text;
            words[n].n = (uint32_t)size;
            words[n++].token = (int32_t)t;
            if (size > g->longest) g->longest = (uint32_t)size;
            if (size == 1) g->single[(uint8_t)text[0]] = 1;
            if (!bitnet_grammar__is_utf8(text, size)) continue;
            g->plain[t / 32] |= 1u << t % 32;
            g->n_plain++;
        }
    }
    qsort(words, n, sizeof *words, bitnet_grammar__compare_words);
    return n;
}

static void bitnet_grammar__read_vocabulary(bitnet_grammar__builder *b,
                                            const bitnet_grammar *like) {
    bitnet_grammar *g = b->g;
    const size_t words = (g->n_vocab + 31) / 32;
    bitnet_grammar__word *list;
    uint32_t n, *parents = 0, open[BITNET_GRAMMAR__TOKEN_BYTES + 1];
    int done = 0;
    if (like) {
        g->tree = like->tree;
        g->below = like->below;
        g->n_tree = like->n_tree;
        g->longest = like->longest;
        g->n_plain = like->n_plain;
        memcpy(g->single, like->single, sizeof g->single);
        g->plain = like->plain;
        g->ends = like->ends;
        return;
    }
    g->owns_tree = 1;
    g->ends = (uint32_t *)bitnet_grammar__alloc(&g->allocator, 4 * words);
    g->plain = (uint32_t *)bitnet_grammar__alloc(&g->allocator, 4 * words);
    list = (bitnet_grammar__word *)bitnet_grammar__alloc(&g->allocator,
                                                         g->n_vocab * sizeof *list);
    if (g->ends && g->plain && list) {
        memset(g->ends, 0, 4 * words);
        memset(g->plain, 0, 4 * words);
        n = bitnet_grammar__list_words(g, list);
        g->n_tree = bitnet_grammar__plant(list, n, 0, 0, open);
        g->tree = (bitnet_grammar__branch *)bitnet_grammar__alloc(&g->allocator,
                                                                  g->n_tree * sizeof *g->tree);
        g->below = (bitnet_grammar__below *)bitnet_grammar__alloc(&g->allocator,
                                                                  g->n_tree * sizeof *g->below);
        parents = (uint32_t *)bitnet_grammar__alloc(&g->allocator, g->n_tree * sizeof *parents);
        if (g->tree && g->below && parents) {
            bitnet_grammar__plant(list, n, g->tree, (uint32_t)(32 * words), open);
            bitnet_grammar__sum_up(g, parents, open);
            done = 1;
        }
    }
    bitnet_grammar__free(&g->allocator, parents);
    if (!done) bitnet_grammar__fail(b, BITNET_ERR_MEMORY, BITNET_GRAMMAR__NONE, "out of memory");
    bitnet_grammar__free(&g->allocator, list);
    g->bytes += 8 * words + g->n_tree * (sizeof *g->tree + sizeof *g->below);
}

/* =============================================================================================
   @grammar  from a text to a grammar
   ============================================================================================= */

BITNET_GRAMMAR_API void bitnet_grammar_free(bitnet_grammar *g) {
    bitnet_allocator a;
    if (!g) return;
    a = g->allocator;
    bitnet_grammar__free(&a, g->nodes);
    bitnet_grammar__free(&a, g->edges);
    bitnet_grammar__free(&a, g->need);
    bitnet_grammar__free(&a, g->empty);
    if (g->owns_tree) {
        bitnet_grammar__free(&a, g->tree);
        bitnet_grammar__free(&a, g->below);
        bitnet_grammar__free(&a, g->plain);
        bitnet_grammar__free(&a, g->ends);
    }
    bitnet_grammar__free(&a, g);
}

BITNET_GRAMMAR_API size_t bitnet_grammar_bytes(const bitnet_grammar *g) { return g ? g->bytes : 0; }

BITNET_GRAMMAR__FORMAT(3, 4)
static bitnet_result bitnet_grammar__refuse(bitnet_error *err, bitnet_result code,
                                            const char *format, ...) {
    va_list args;
    va_start(args, format);
    bitnet_grammar__set_error(err, code, format, args, "");
    va_end(args);
    return code;
}

/* What a struct of parameters must not hold: one of an allocator's two functions alone, and in a
   reserved word anything but 0. */
static bitnet_result bitnet_grammar__check_params(const bitnet_allocator *a,
                                                  const uint64_t reserved[4], const char *of,
                                                  bitnet_error *err) {
    int i, set = 0;
    for (i = 0; i < 4; i++) set |= reserved[i] != 0;
    if (a->reserved[0] || a->reserved[1]) {
        of = "bitnet_allocator";
        set = 1;
    }
    if (set)
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "%s: a reserved word is not 0: the "
                                      "struct was not cleared, or a newer version's", of);
    if (!a->alloc_fn != !a->free_fn)
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "allocator: one of two functions");
    return BITNET_OK;
}

/* Gives the grammar what the builder has made, and frees the rest. */
static void bitnet_grammar__finish(bitnet_grammar__builder *b) {
    const bitnet_grammar__array *const used[] = {
        &b->rules, &b->ranges, &b->values, &b->pool, &b->properties, &b->bytes, &b->utf8, &b->todo,
        &b->names, &b->forks, &b->listed, &b->parts, &b->together, &b->several, &b->patterns,
        &b->terms, &b->sets, &b->limits, &b->steps, &b->bounds, &b->kinds, &b->members, &b->states,
        &b->moves, &b->marks, &b->stack};
    bitnet_grammar *g = b->g;
    const bitnet_allocator *a = &g->allocator;
    size_t i;
    g->nodes = (bitnet_grammar__node *)b->nodes.p;
    g->edges = (bitnet_grammar__edge *)b->edges.p;
    g->n_nodes = b->nodes.n;
    g->n_edges = b->edges.n;
    g->bytes += sizeof *g + b->nodes.cap * sizeof *g->nodes + b->edges.cap * sizeof *g->edges +
                g->n_nodes * (sizeof *g->need + sizeof *g->empty);
    if (!b->code) bitnet_grammar__sort_bytes(g);
    for (i = 0; i < sizeof used / sizeof used[0]; i++) bitnet_grammar__free(a, used[i]->p);
    bitnet_grammar__free(a, b);
}

static bitnet_grammar *bitnet_grammar__begin(const bitnet_model *m,
                                             const bitnet_grammar_params *p) {
    bitnet_model_info info;
    bitnet_grammar *g = (bitnet_grammar *)bitnet_grammar__alloc(&p->allocator, sizeof *g);
    if (!g) return 0;
    memset(g, 0, sizeof *g);
    g->allocator = p->allocator;
    g->model = m;
    bitnet_model_get_info(m, &info);
    g->n_vocab = (uint32_t)info.n_vocab;
    return g;
}

/* The rule `name` of what was read. */
static uint32_t bitnet_grammar__need_rule(bitnet_grammar__builder *b, const char *name) {
    uint32_t r;
    b->at = 0;
    r = bitnet_grammar__rule_named(b, name, 4);
    if (!b->code && BITNET_GRAMMAR__RULE(b, r).start == BITNET_GRAMMAR__NONE)
        bitnet_grammar__fail(b, BITNET_ERR_FORMAT, BITNET_GRAMMAR__NONE, "there is no rule %s",
                             name);
    return r;
}

/* Reads the rules around root; returns the rule of the whole text. */
static uint32_t bitnet_grammar__put_around(bitnet_grammar__builder *b, uint32_t root,
                                           bitnet_text around) {
    const uint32_t key = b->pool.n;
    if (around.size > BITNET_GRAMMAR__TEXT)
        bitnet_grammar__fail(b, BITNET_ERR_LIMIT, BITNET_GRAMMAR__NONE, "around: over %d bytes",
                             (int)BITNET_GRAMMAR__TEXT);
    if (b->code) return 0;
    b->space = BITNET_GRAMMAR__AROUND;
    bitnet_grammar__put(b, &b->pool, "root", 4);
    bitnet_grammar__add_name(b, b->space, key, 4, root);
    b->source = around.data;
    b->n_source = (uint32_t)around.size;
    bitnet_grammar__parse_gbnf(b, around.data, (uint32_t)around.size);
    if (b->code) return 0;
    b->space = BITNET_GRAMMAR__RULES;
    b->source = b->given;
    b->n_source = b->n_given;
    bitnet_grammar__define_defs(b, BITNET_GRAMMAR__AROUND);
    b->space = BITNET_GRAMMAR__AROUND;
    b->source = around.data;
    b->n_source = (uint32_t)around.size;
    return bitnet_grammar__need_rule(b, "text");
}

static void bitnet_grammar__compile(bitnet_grammar__builder *b, int is_schema,
                                    const bitnet_grammar_params *p) {
    uint32_t root;
    bitnet_grammar__add_node(b, BITNET_GRAMMAR__FAIL, 0, 0);
    bitnet_grammar__add_node(b, BITNET_GRAMMAR__RETURN, 0, 0);
    if (is_schema) root = bitnet_grammar__parse_schema(b);
    else {
        bitnet_grammar__parse_gbnf(b, b->source, b->n_source);
        root = bitnet_grammar__need_rule(b, "root");
    }
    if (p->around.data && !b->code) root = bitnet_grammar__put_around(b, root, p->around);
    if (!b->code) bitnet_grammar__read_vocabulary(b, p->like);
    if (!b->code) bitnet_grammar__check(b, root);
}

static bitnet_result bitnet_grammar__create(const bitnet_model *m, const char *text, size_t n,
                                            const bitnet_grammar_params *params, int is_schema,
                                            bitnet_grammar **out, bitnet_error *err) {
    bitnet_grammar_params p;
    bitnet_grammar__builder *b;
    bitnet_grammar *g;
    bitnet_result code;
    if (out) *out = 0;
    memset(&p, 0, sizeof p);
    if (params) p = *params;
    if (!m || !out || (!text && n))
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "a null pointer");
    code = bitnet_grammar__check_params(&p.allocator, p.reserved, "bitnet_grammar_params", err);
    if (code) return code;
    if (p.like && p.like->model != m)
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "like: of another model");
    if (p.max_nodes && (p.max_nodes < 16 || p.max_nodes > 1 << 24))
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "max_nodes %d is out of range",
                                      (int)p.max_nodes);
    if (p.max_work && p.max_work < 1000)
        return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "max_work %d is out of range",
                                      (int)p.max_work);
    if (n > BITNET_GRAMMAR__TEXT)
        return bitnet_grammar__refuse(err, BITNET_ERR_LIMIT, "over %d bytes",
                                      (int)BITNET_GRAMMAR__TEXT);
    g = bitnet_grammar__begin(m, &p);
    b = (bitnet_grammar__builder *)bitnet_grammar__alloc(&p.allocator, sizeof *b);
    if (!g || !b) {
        bitnet_grammar__free(&p.allocator, b);
        bitnet_grammar__free(&p.allocator, g);
        return bitnet_grammar__refuse(err, BITNET_ERR_MEMORY, "out of memory");
    }
    memset(b, 0, sizeof *b);
    b->g = g;
    b->err = err;
    b->source = n ? text : "";
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {      /* a byte order mark is no part of it */
        b->source += 3;
        n -= 3;
    }
    b->given = b->source;
    b->n_source = b->n_given = (uint32_t)n;
    b->max_nodes = p.max_nodes ? (uint32_t)p.max_nodes : 1u << 20;
    b->work_left = b->max_work = p.max_work ? (uint32_t)p.max_work : 1u << 26;
    b->top = b->place = BITNET_GRAMMAR__NONE;
    b->space = BITNET_GRAMMAR__RULES;
    bitnet_grammar__compile(b, is_schema, &p);
    code = b->code;
    bitnet_grammar__finish(b);
    if (code) bitnet_grammar_free(g);
    else *out = g;
    return code;
}

BITNET_GRAMMAR_API bitnet_result bitnet_grammar_gbnf(const bitnet_model *m, const char *text,
                                                     size_t n, const bitnet_grammar_params *params,
                                                     bitnet_grammar **out, bitnet_error *err) {
    return bitnet_grammar__create(m, text, n, params, 0, out, err);
}

BITNET_GRAMMAR_API bitnet_result bitnet_grammar_json_schema(const bitnet_model *m, const char *text,
                                                            size_t n,
                                                            const bitnet_grammar_params *params,
                                                            bitnet_grammar **out,
                                                            bitnet_error *err) {
    return bitnet_grammar__create(m, text, n, params, 1, out, err);
}

/* =============================================================================================
   @matcher  states: sets of places in the graph, each with its way back

   The ways back (frames) are a tree: each has what comes next and its parent, and equal ones are
   one. A state is found once, and numbered; `trans` remembers which state a byte leads to. So a
   mask costs one look into trans per node of the vocabulary's tree. When an array is full, what is
   not in use is dropped, and found again when it is needed.
   ============================================================================================= */

typedef struct bitnet_grammar__frame {
    uint32_t parent, node;       /* then on from node: a REP, or what follows a CALL */
    int32_t count;               /* of a REP: how often before this time; of a CALL -1 */
    uint32_t chain, stamp;
    uint32_t depth;
} bitnet_grammar__frame;

typedef struct bitnet_grammar__place { uint32_t node, frame; } bitnet_grammar__place;
typedef struct bitnet_grammar__todo { uint32_t node, frame; int32_t count; uint32_t stamp; }
bitnet_grammar__todo;

typedef struct bitnet_grammar__state {
    uint32_t first, n;           /* its places */
    uint32_t chain;
    int32_t mask;                /* slot, or -1 */
    /* What leads to this state again; in a repetition also to that of one time more, and so on. */
    uint32_t ascii[4];           /* bytes below 128 */
    uint32_t left;               /* so often at most; NONE: always */
    uint8_t high;                /* 1: any character beyond ASCII, too */
    uint8_t looped;              /* the three are known */
} bitnet_grammar__state;

enum { BITNET_GRAMMAR__UNKNOWN = 0, BITNET_GRAMMAR__DEAD = 1 };     /* in trans; states from 2 on */

struct bitnet_matcher {
    const bitnet_grammar *g;
    bitnet_allocator allocator;
    uint32_t max_depth, max_ways, max_states, max_masks, max_places, max_frames, n_seen, words;
    bitnet_grammar__frame *frames;
    bitnet_grammar__state *states;
    bitnet_grammar__place *places, *set;       /* set: of the state that is being found */
    bitnet_grammar__todo *items, *seen;        /* to follow; followed in this search */
    uint32_t *trans;                           /* [max_states][n_classes] */
    uint32_t *frame_chains, *state_chains;     /* hash tables */
    uint32_t *path;                            /* states on the way to a node of the tree */
    uint32_t *masks, *mask_state;
    uint32_t *renamed;                         /* for collect */
    uint32_t n_frames, n_states, n_places, n_set, n_items, n_followed, next_mask;
    uint32_t now;                              /* the state */
    uint32_t stamp;                            /* of this search */
    uint32_t work;                             /* items followed for this mask or token */
    uint32_t token_work;                       /* those of the last token, not yet counted */
    uint32_t loops_end;                        /* the work at which no loops are looked for */
    int making;                                /* the mask in `slot` has been begun: it is made */
    uint32_t slot, at;                         /* up to the node `at` of the tree */
    uint32_t collected;                        /* how often states got new numbers */
    int full;                                  /* the search wanted more frames */
    bitnet_matcher_status ended;               /* OPEN, ENDED, STUCK or REFUSED */
};

static uint32_t bitnet_grammar__hash(uint32_t h, uint32_t x) {
    h = (h ^ x) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static uint32_t bitnet_grammar__frame_slot(const bitnet_matcher *m, uint32_t parent, uint32_t node,
                                           int32_t count) {
    return bitnet_grammar__hash(bitnet_grammar__hash(bitnet_grammar__hash(7, parent), node),
                                (uint32_t)count) & (m->max_frames - 1);
}

/* The frame with these contents; NONE: there is no room. */
static uint32_t bitnet_grammar__get_frame(bitnet_matcher *m, uint32_t parent, uint32_t node,
                                          int32_t count) {
    const uint32_t slot = bitnet_grammar__frame_slot(m, parent, node, count);
    bitnet_grammar__frame *f;
    uint32_t i;
    for (i = m->frame_chains[slot]; i; i = m->frames[i].chain) {
        f = &m->frames[i];
        if (f->parent != parent || f->node != node || f->count != count) continue;
        f->stamp = m->stamp;
        return i;
    }
    if (m->n_frames == m->max_frames) {
        m->full = 1;
        return BITNET_GRAMMAR__NONE;
    }
    f = &m->frames[m->n_frames];
    f->parent = parent;
    f->node = node;
    f->count = count;
    f->depth = m->frames[parent].depth + 1;
    f->stamp = m->stamp;
    f->chain = m->frame_chains[slot];
    m->frame_chains[slot] = m->n_frames;
    return m->n_frames++;
}

/* Adds a place to the set, which is sorted. Beyond max_ways places are dropped: all that are kept
   lead to an end. */
static void bitnet_grammar__put_place(bitnet_matcher *m, uint32_t node, uint32_t frame) {
    uint32_t low = 0, high = m->n_set;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        const bitnet_grammar__place *p = &m->set[mid];
        if (p->node < node || (p->node == node && p->frame < frame)) low = mid + 1;
        else high = mid;
    }
    if (low < m->n_set && m->set[low].node == node && m->set[low].frame == frame) return;
    if (m->n_set == m->max_ways) return;
    m->work += (m->n_set - low) / 32;
    memmove(m->set + low + 1, m->set + low, (m->n_set - low) * sizeof *m->set);
    m->set[low].node = node;
    m->set[low].frame = frame;
    m->n_set++;
}

/* Something to follow, unless this search has seen it, or no way out of it fits max_depth. */
static void bitnet_grammar__put_item(bitnet_matcher *m, uint32_t node, uint32_t frame,
                                     int32_t count) {
    const bitnet_grammar__node *n = &m->g->nodes[node];
    uint32_t need = m->g->need[node], i;
    if (n->type == BITNET_GRAMMAR__REP) {
        if (n->max < 0 && count > n->min) count = n->min;
        if (count >= n->min) need = m->g->need[n->next];
    }
    if (frame == BITNET_GRAMMAR__NONE || m->frames[frame].depth + need > m->max_depth) return;
    i = bitnet_grammar__hash(bitnet_grammar__hash(bitnet_grammar__hash(3, node), frame),
                             (uint32_t)count);
    for (i &= m->n_seen - 1; m->seen[i].stamp == m->stamp; i = (i + 1) & (m->n_seen - 1))
        if (m->seen[i].node == node && m->seen[i].frame == frame && m->seen[i].count == count)
            return;
    if (m->n_followed == m->n_seen / 2) return;
    m->n_followed++;
    m->work++;
    m->seen[i].node = node;
    m->seen[i].frame = frame;
    m->seen[i].count = count;
    m->seen[i].stamp = m->stamp;
    m->items[m->n_items++] = m->seen[i];
}

static void bitnet_grammar__follow_return(bitnet_matcher *m, const bitnet_grammar__todo *it) {
    const bitnet_grammar__frame *f = &m->frames[it->frame];
    if (it->frame == 0) bitnet_grammar__put_place(m, 1, 0);
    /* A time that took no byte brings nothing new: it could be left out. */
    else if (f->count < 0 || f->stamp != m->stamp || !m->g->empty[m->g->nodes[f->node].alt])
        bitnet_grammar__put_item(m, f->node, f->parent, f->count + 1);
}

/* Adds all places that can be reached from a node without a byte. */
static void bitnet_grammar__follow(bitnet_matcher *m, uint32_t node, uint32_t frame,
                                   int32_t count) {
    bitnet_grammar__put_item(m, node, frame, count);
    while (m->n_items > 0) {
        const bitnet_grammar__todo it = m->items[--m->n_items];
        const bitnet_grammar__node *n = &m->g->nodes[it.node];
        uint32_t f = it.frame;
        switch (n->type) {
            case BITNET_GRAMMAR__SPLIT:
                bitnet_grammar__put_item(m, n->alt, f, 0);
                bitnet_grammar__put_item(m, n->next, f, 0);
                break;
            case BITNET_GRAMMAR__CALL:
                if (n->next != 1) f = bitnet_grammar__get_frame(m, f, n->next, -1);
                bitnet_grammar__put_item(m, n->alt, f, 0);
                break;
            case BITNET_GRAMMAR__REP:
                if (it.count >= n->min) bitnet_grammar__put_item(m, n->next, f, 0);
                if (n->max >= 0 && it.count >= n->max) break;
                f = bitnet_grammar__get_frame(m, f, it.node, it.count);
                bitnet_grammar__put_item(m, n->alt, f, 0);
                break;
            case BITNET_GRAMMAR__RETURN: bitnet_grammar__follow_return(m, &it); break;
            default: bitnet_grammar__put_place(m, it.node, it.frame); break;
        }
    }
}

static void bitnet_grammar__begin_search(bitnet_matcher *m) {
    m->n_set = m->n_items = m->n_followed = 0;
    m->full = 0;
    if (++m->stamp) return;
    memset(m->seen, 0, m->n_seen * sizeof *m->seen);       /* once in 2^32 searches */
    m->stamp = 1;
}

static uint32_t bitnet_grammar__hash_places(const bitnet_matcher *m, const bitnet_grammar__place *p,
                                            uint32_t n) {
    uint32_t i, h = 1;
    for (i = 0; i < n; i++)
        h = bitnet_grammar__hash(bitnet_grammar__hash(h, p[i].node), p[i].frame);
    return h & (m->max_states - 1);
}

/* The state of the set. UNKNOWN: there is no room for it. */
static uint32_t bitnet_grammar__get_state(bitnet_matcher *m) {
    const size_t size = m->n_set * sizeof *m->set;
    uint32_t i, slot;
    bitnet_grammar__state *s;
    if (!m->n_set) return BITNET_GRAMMAR__DEAD;
    slot = bitnet_grammar__hash_places(m, m->set, m->n_set);
    for (i = m->state_chains[slot]; i; i = m->states[i].chain) {
        s = &m->states[i];
        if (s->n == m->n_set && !memcmp(m->places + s->first, m->set, size)) return i;
    }
    if (m->n_states == m->max_states || m->max_places - m->n_places < m->n_set)
        return BITNET_GRAMMAR__UNKNOWN;
    s = &m->states[m->n_states];
    s->first = m->n_places;
    s->n = m->n_set;
    s->mask = -1;
    s->looped = 0;
    s->chain = m->state_chains[slot];
    m->state_chains[slot] = m->n_states;
    memcpy(m->places + s->first, m->set, size);
    m->n_places += m->n_set;
    memset(m->trans + (size_t)m->n_states * m->g->n_classes, 0,
           m->g->n_classes * sizeof *m->trans);
    return m->n_states++;
}

/* ---- making room ---- */

/* Keeps the frames that marked states use. renamed: for frames, their new numbers. */
static void bitnet_grammar__collect_frames(bitnet_matcher *m, const uint32_t *keep) {
    uint32_t i, k, f, n = 1;
    memset(m->renamed, 0, m->n_frames * sizeof *m->renamed);
    for (i = 2; i < m->n_states; i++) {
        if (!keep[i]) continue;
        for (k = 0; k < m->states[i].n; k++)
            for (f = m->places[m->states[i].first + k].frame; f && !m->renamed[f];
                 f = m->frames[f].parent) m->renamed[f] = 1;
    }
    memset(m->frame_chains, 0, m->max_frames * sizeof *m->frame_chains);
    for (i = 1; i < m->n_frames; i++) {
        bitnet_grammar__frame *to = &m->frames[n];
        uint32_t slot;
        if (!m->renamed[i]) continue;
        *to = m->frames[i];
        to->parent = m->renamed[to->parent];           /* a parent comes before */
        to->stamp = 0;
        slot = bitnet_grammar__frame_slot(m, to->parent, to->node, to->count);
        to->chain = m->frame_chains[slot];
        m->frame_chains[slot] = n;
        m->renamed[i] = n++;
    }
    m->n_frames = n;
}

/* Keeps the states path[0 .. depth] alone, and what they need, and numbers them anew. */
static void bitnet_grammar__collect(bitnet_matcher *m, uint32_t depth) {
    uint32_t i, k, n = 2, *keep = m->renamed + m->max_frames;
    memset(keep, 0, m->n_states * sizeof *keep);
    for (i = 0; i <= depth; i++) keep[m->path[i]] = 1;
    bitnet_grammar__collect_frames(m, keep);
    memset(m->state_chains, 0, m->max_states * sizeof *m->state_chains);
    m->n_places = 0;
    for (i = 2; i < m->n_states; i++) {
        bitnet_grammar__state *to = &m->states[n];
        uint32_t slot;
        if (!keep[i]) continue;
        *to = m->states[i];
        to->mask = -1;
        to->looped = 0;
        for (k = 0; k < to->n; k++) {
            bitnet_grammar__place p = m->places[to->first + k];
            p.frame = m->renamed[p.frame];
            m->places[m->n_places + k] = p;
        }
        to->first = m->n_places;
        m->n_places += to->n;
        slot = bitnet_grammar__hash_places(m, m->places + to->first, to->n);
        to->chain = m->state_chains[slot];
        m->state_chains[slot] = n;
        keep[i] = n++;
    }
    m->collected++;
    m->work += (m->max_frames + m->max_states) / 32;
    m->n_states = n;
    memset(m->trans, 0, (size_t)n * m->g->n_classes * sizeof *m->trans);
    memset(m->mask_state, 0, m->max_masks * sizeof *m->mask_state);
    for (i = 0; i <= depth; i++) m->path[i] = keep[m->path[i]];
    m->now = m->path[0];
}

/* Gives up ways of the text until any one of them can go on: for that there must be max_depth
   frames. */
static void bitnet_grammar__leave_room(bitnet_matcher *m) {
    const bitnet_grammar__state *s;
    while (m->n_frames + m->max_depth > m->max_frames) {
        m->path[0] = m->now;
        bitnet_grammar__collect(m, 0);
        if (m->n_frames + m->max_depth <= m->max_frames) break;
        s = &m->states[m->now];            /* one way alone needs no more than another max_depth */
        m->n_set = s->n / 2;
        memcpy(m->set, m->places + s->first, m->n_set * sizeof *m->set);
        m->now = bitnet_grammar__get_state(m);
    }
}

/* ---- steps ---- */

/* The edge of a byte, or 0. */
static const bitnet_grammar__edge *bitnet_grammar__edge_of(const bitnet_grammar *g,
                                                           const bitnet_grammar__node *n,
                                                           uint8_t byte) {
    const bitnet_grammar__edge *e = g->edges + n->alt;
    uint32_t low = 0, high = (uint32_t)n->min;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (byte > e[mid].high) low = mid + 1;
        else high = mid;
    }
    return low < (uint32_t)n->min && byte >= e[low].low ? e + low : 0;
}

static void bitnet_grammar__search(bitnet_matcher *m, uint32_t from, uint8_t byte) {
    const bitnet_grammar__state *s = &m->states[from];
    uint32_t i;
    bitnet_grammar__begin_search(m);
    m->work += s->n;
    for (i = 0; i < s->n; i++) {
        const bitnet_grammar__place p = m->places[s->first + i];
        const bitnet_grammar__node *n = &m->g->nodes[p.node];
        const bitnet_grammar__edge *e;
        if (n->type != BITNET_GRAMMAR__BYTES) continue;
        e = bitnet_grammar__edge_of(m->g, n, byte);
        if (e) bitnet_grammar__follow(m, e->next, p.frame, 0);
    }
}

/* The state that a byte of a class leads to from path[depth], which this may number anew. */
static uint32_t bitnet_grammar__step(bitnet_matcher *m, uint32_t depth, uint32_t class_of) {
    const uint8_t byte = m->g->class_byte[class_of];
    uint32_t to;
    bitnet_grammar__search(m, m->path[depth], byte);
    to = bitnet_grammar__get_state(m);
    if (m->full || to == BITNET_GRAMMAR__UNKNOWN) {
        bitnet_grammar__collect(m, depth);
        bitnet_grammar__search(m, m->path[depth], byte);
        to = bitnet_grammar__get_state(m);             /* of what there was room for */
        if (to == BITNET_GRAMMAR__UNKNOWN) to = BITNET_GRAMMAR__DEAD;
    }
    m->trans[(size_t)m->path[depth] * m->g->n_classes + class_of] = to;
    return to;
}

/* 1 if the text may end in a state. */
static int bitnet_grammar__is_final(const bitnet_matcher *m, uint32_t state) {
    const bitnet_grammar__state *s = &m->states[state];
    const bitnet_grammar__place *p = m->places + s->first;
    return state > 1 && p->node == 1;      /* places are sorted, and there is no node 0 in them */
}

/* ---- masks ---- */

/* Where a byte leads from the state path[depth], found if need be. */
static uint32_t bitnet_grammar__go(bitnet_matcher *m, uint32_t depth, uint32_t byte) {
    const uint32_t c = m->g->byte_class[byte];
    const uint32_t to = m->trans[(size_t)m->path[depth] * m->g->n_classes + c];
    return to != BITNET_GRAMMAR__UNKNOWN ? to : bitnet_grammar__step(m, depth, c);
}

/* Does any character beyond ASCII lead from path[depth] to path[home] again? utf8: where in a
   character the former is. A byte of each class is tried, and those at which UTF-8 differs. */
static int bitnet_grammar__is_home(bitnet_matcher *m, uint32_t home, uint32_t depth,
                                   uint32_t utf8) {
    uint32_t byte, next, last = 0xFFFF, to, seen[16], n_seen = 0, k, collected = m->collected;
    for (byte = 0x80; byte < 256; byte++, m->work++) {
        if (m->work > m->loops_end) return 0;
        next = bitnet_grammar__utf8_state(utf8, (uint8_t)byte);
        if (next == 8 || (next << 8 | m->g->byte_class[byte]) == last) continue;
        last = next << 8 | m->g->byte_class[byte];
        m->path[depth + 1] = to = bitnet_grammar__go(m, depth, byte);
        if (to == BITNET_GRAMMAR__DEAD || (!next && to != m->path[home])) return 0;
        if (!next) continue;
        if (collected != m->collected) n_seen = 0, collected = m->collected;
        for (k = 0; k < n_seen && seen[k] != (to << 4 | next); k++) continue;
        if (k < n_seen) continue;          /* another byte has led there */
        if (!bitnet_grammar__is_home(m, home, depth + 1, next)) return 0;
        if (n_seen < 16 && collected == m->collected) seen[n_seen++] = to << 4 | next;
    }
    return 1;
}

/* The state at the beginning of one more time of a repetition. UNKNOWN: there is no room. */
static uint32_t bitnet_grammar__at_count(bitnet_matcher *m, uint32_t rep, uint32_t frame,
                                         int32_t count) {
    bitnet_grammar__begin_search(m);
    bitnet_grammar__follow(m, rep, frame, count);
    if (m->full) return BITNET_GRAMMAR__UNKNOWN;
    return bitnet_grammar__get_state(m);
}

/* If a state is nothing but the beginning of one more time of a repetition, that one's frame: the
   first of a REP behind the longest way back. Else 0. */
static uint32_t bitnet_grammar__repeats(bitnet_matcher *m, uint32_t state) {
    const bitnet_grammar__state s = m->states[state];
    uint32_t i, f = 0;
    for (i = 0; i < s.n; i++) {
        const uint32_t frame = m->places[s.first + i].frame;
        if (m->frames[frame].depth > m->frames[f].depth) f = frame;
    }
    while (f && m->frames[f].count < 0) f = m->frames[f].parent;
    if (!f) return 0;
    i = bitnet_grammar__at_count(m, m->frames[f].node, m->frames[f].parent, m->frames[f].count);
    return i == state ? f : 0;
}

typedef struct bitnet_grammar__loops { uint32_t ascii[4]; int high; } bitnet_grammar__loops;

/* Keeps of the loops what leads from path[depth] to path[home]. */
static void bitnet_grammar__keep_loops(bitnet_matcher *m, uint32_t home, uint32_t depth,
                                       bitnet_grammar__loops *loops) {
    uint32_t byte;
    for (byte = 0; byte < 128; byte++)
        if (m->work > m->loops_end || bitnet_grammar__go(m, depth, byte) != m->path[home])
            loops->ascii[byte / 32] &= ~(1u << byte % 32);
    loops->high = loops->high && bitnet_grammar__is_home(m, home, depth, 0);
}

/* Keeps what leads from a count of the repetition at path[depth] to the next. */
static void bitnet_grammar__keep_steps(bitnet_matcher *m, uint32_t depth, int32_t count,
                                       bitnet_grammar__loops *loops) {
    const bitnet_grammar__frame rep = m->frames[bitnet_grammar__repeats(m, m->path[depth])];
    const uint32_t from = bitnet_grammar__at_count(m, rep.node, rep.parent, count);
    const uint32_t to = bitnet_grammar__at_count(m, rep.node, rep.parent, count + 1);
    m->path[depth + 1] = to;
    m->path[depth + 2] = from;
    /* A set that may be cut off tells nothing about others. */
    if (rep.depth > 0 && from > BITNET_GRAMMAR__DEAD && to > BITNET_GRAMMAR__DEAD &&
        m->states[from].n < m->max_ways && m->states[to].n < m->max_ways)
        bitnet_grammar__keep_loops(m, depth + 1, depth + 2, loops);
    else memset(loops, 0, sizeof *loops);
}

/* Finds the loops of the state path[depth]. All counts of a repetition below its minimum are alike,
   and so are those from there to its maximum: one of each is looked at. That is not the count 0 of
   the latter, whose step to 1 could be that of the same repetition, begun once more. What takes too
   long to find is no loop: then the tree is walked. */
static void bitnet_grammar__find_loops(bitnet_matcher *m, uint32_t depth) {
    bitnet_grammar__loops loops = {{BITNET_GRAMMAR__NONE, BITNET_GRAMMAR__NONE,
                                    BITNET_GRAMMAR__NONE, BITNET_GRAMMAR__NONE}, 1};
    const uint32_t f = bitnet_grammar__repeats(m, m->path[depth]);
    const bitnet_grammar__node *n = &m->g->nodes[m->frames[f].node];
    const int32_t count = m->frames[f].count;
    bitnet_grammar__state *s;
    m->loops_end = m->work + BITNET_GRAMMAR__LOOP_WORK;
    if (!f) bitnet_grammar__keep_loops(m, depth, depth, &loops);
    if (f && count < n->min) bitnet_grammar__keep_steps(m, depth, 0, &loops);
    if (f && n->min != n->max)
        bitnet_grammar__keep_steps(m, depth, n->min > 0 ? n->min : 1, &loops);
    s = &m->states[m->path[depth]];
    memcpy(s->ascii, loops.ascii, sizeof s->ascii);
    s->high = (uint8_t)loops.high;
    s->left = f && n->max >= 0 ? (uint32_t)(n->max - count) : BITNET_GRAMMAR__NONE;
    s->looped = 1;
}

/* 1 if all that is below a node of the tree keeps the text in the state of the node, or leads on in
   a repetition: then all these tokens fit. */
static int bitnet_grammar__all_fit(bitnet_matcher *m, uint32_t node, uint32_t depth) {
    const bitnet_grammar__below *b = &m->g->below[node];
    const bitnet_grammar__state *s = &m->states[m->path[depth]];
    if (!s->looped) {
        if (m->work > BITNET_GRAMMAR__WORK ||
            m->g->tree[node].skip - node < BITNET_GRAMMAR__FEW_NEW) return 0;
        bitnet_grammar__find_loops(m, depth);
        s = &m->states[m->path[depth]];
    }
    if ((b->ascii[0] & ~s->ascii[0]) | (b->ascii[1] & ~s->ascii[1]) |
        (b->ascii[2] & ~s->ascii[2]) | (b->ascii[3] & ~s->ascii[3])) return 0;
    return b->chars <= s->left && (!b->high || (s->high && (b->utf8 & 1)));
}

/* Walks on from the node `at`, until it has taken so many steps. A step that is found costs one for
   each item, and sixteen nodes that are looked at cost one. Returns how many it took. */
static uint32_t bitnet_grammar__walk_tree(bitnet_matcher *m, uint32_t *mask, uint32_t steps) {
    const bitnet_grammar *g = m->g;
    const uint32_t n_classes = g->n_classes, n = g->n_tree, begun = m->work;
    uint32_t i = m->at, to, nodes = 0;
    for (; i < n && m->work - begun + nodes / 16 < steps; nodes++) {
        const bitnet_grammar__branch *b = &g->tree[i];
        const uint32_t depth = b->depth, c = g->byte_class[b->byte];
        to = m->trans[(size_t)m->path[depth - 1] * n_classes + c];
        if (to == BITNET_GRAMMAR__UNKNOWN) {           /* seldom: most have been found before */
            if (m->work > BITNET_GRAMMAR__WORK && depth > 1) {
                i = b->skip;               /* single bytes are always looked at: one fits */
                continue;
            }
            to = bitnet_grammar__step(m, depth - 1, c);
        }
        if (to == BITNET_GRAMMAR__DEAD) {
            i = b->skip;
            continue;
        }
        m->path[depth] = to;
        mask[b->token / 32] |= 1u << b->token % 32;
        i++;
        if (b->skip - i < BITNET_GRAMMAR__FEW || !bitnet_grammar__all_fit(m, i - 1, depth))
            continue;
        nodes += (b->skip - i) / 4;
        for (; i < b->skip; i++) mask[g->tree[i].token / 32] |= 1u << g->tree[i].token % 32;
    }
    m->at = i;
    return m->work - begun + nodes / 16;
}

static int bitnet_grammar__has_token(const uint32_t *set, uint32_t t) {
    return (int)(set[t / 32] >> t % 32 & 1);
}

/* Tokens that the grammar names. */
static void bitnet_grammar__mask_named(const bitnet_matcher *m, uint32_t *mask) {
    const bitnet_grammar__state *s = &m->states[m->now];
    uint32_t i, w;
    for (i = 0; i < s->n; i++) {
        const bitnet_grammar__node *n = &m->g->nodes[m->places[s->first + i].node];
        const uint32_t t = (uint32_t)n->min;
        if (n->type != BITNET_GRAMMAR__TOKEN) continue;
        if (!n->max) mask[t / 32] |= 1u << t % 32;
        else
            for (w = 0; w < m->words; w++)
                mask[w] |= m->g->plain[w] & (w == t / 32 ? ~(1u << t % 32) : 0xFFFFFFFFu);
    }
}

static uint32_t *bitnet_grammar__mask_at(const bitnet_matcher *m, uint32_t slot) {
    return m->masks + (size_t)slot * (m->words + BITNET_GRAMMAR__OTHERS);
}

static void bitnet_grammar__begin_mask(bitnet_matcher *m) {
    const uint32_t slot = m->next_mask;
    m->next_mask = slot + 1 < m->max_masks ? slot + 1 : 0;
    if (m->mask_state[slot]) m->states[m->mask_state[slot]].mask = -1;
    m->mask_state[slot] = 0;
    memset(bitnet_grammar__mask_at(m, slot), 0,
           (m->words + BITNET_GRAMMAR__OTHERS) * sizeof *m->masks);
    m->making = 1;
    m->slot = slot;
    m->at = m->work = 0;
    m->path[0] = m->now;
}

/* Makes the mask of the state, unless the table has it, in so many steps. Returns how many it took;
   then the table has it if the state has a slot. */
static uint32_t bitnet_grammar__make_mask(bitnet_matcher *m, uint32_t steps) {
    uint32_t *mask, w;
    if (m->states[m->now].mask >= 0) return 0;
    if (!m->making) bitnet_grammar__begin_mask(m);
    mask = bitnet_grammar__mask_at(m, m->slot);
    steps = bitnet_grammar__walk_tree(m, mask, steps);
    if (m->at < m->g->n_tree) return steps;
    bitnet_grammar__mask_named(m, mask);
    if (bitnet_grammar__is_final(m, m->now))
        for (w = 0; w < m->words; w++) mask[w] |= m->g->ends[w];
    m->making = 0;
    m->mask_state[m->slot] = m->now;
    m->states[m->now].mask = (int32_t)m->slot;
    return steps;
}

static int bitnet_grammar__has_ended(const bitnet_matcher *m) {
    return m->ended == BITNET_MATCHER_ENDED || m->ended == BITNET_MATCHER_REFUSED;
}

BITNET_GRAMMAR_API int bitnet_matcher_prepare(bitnet_matcher *m, int32_t *steps) {
    int64_t left;
    if (!m || !steps || bitnet_grammar__has_ended(m)) return 1;
    left = (int64_t)*steps - m->token_work;
    m->token_work = 0;
    if (left > 0) left -= bitnet_grammar__make_mask(m, (uint32_t)left);
    *steps = left > INT32_MIN ? (int32_t)left : INT32_MIN;
    return m->states[m->now].mask >= 0;
}

BITNET_GRAMMAR_API void bitnet_matcher_mask(void *matcher, uint32_t *allowed) {
    bitnet_matcher *m = (bitnet_matcher *)matcher;
    const uint32_t *mask;
    uint32_t any = 0, w;
    if (!m || !allowed || bitnet_grammar__has_ended(m)) return;
    bitnet_grammar__make_mask(m, UINT32_MAX);
    mask = bitnet_grammar__mask_at(m, (uint32_t)m->states[m->now].mask);
    for (w = 0; w < m->words; w++) {
        allowed[w] |= mask[w];
        any |= mask[w];
    }
    m->ended = any || bitnet_grammar__is_final(m, m->now) ? BITNET_MATCHER_OPEN
                                                          : BITNET_MATCHER_STUCK;
}

/* ---- tokens ---- */

/* Where a token's bytes lead; DEAD: nowhere. path[1] is it, too. */
static uint32_t bitnet_grammar__spell(bitnet_matcher *m, bitnet_token t) {
    const bitnet_grammar *g = m->g;
    size_t n, i;
    const uint8_t *text = (const uint8_t *)bitnet_token_text(g->model, t, &n);
    uint32_t to = m->now;
    if (!n || n > BITNET_GRAMMAR__TOKEN_BYTES || bitnet_token_is_special(g->model, t) ||
        bitnet_grammar__has_token(g->ends, (uint32_t)t)) return BITNET_GRAMMAR__DEAD;
    m->path[1] = m->now;
    for (i = 0; i < n && to != BITNET_GRAMMAR__DEAD; i++) {
        const uint32_t c = g->byte_class[text[i]];
        to = m->trans[(size_t)m->path[1] * g->n_classes + c];
        if (to == BITNET_GRAMMAR__UNKNOWN) to = bitnet_grammar__step(m, 1, c);
        if (to != BITNET_GRAMMAR__DEAD) m->path[1] = to;
    }
    return to;
}

/* Adds where the named tokens that t is lead, and what its bytes lead to. */
static void bitnet_grammar__search_named(bitnet_matcher *m, uint32_t t, uint32_t spelt) {
    const bitnet_grammar__state *s = &m->states[m->now];
    uint32_t i;
    bitnet_grammar__begin_search(m);
    for (i = 0; i < s->n; i++) {
        const bitnet_grammar__place p = m->places[s->first + i];
        const bitnet_grammar__node *n = &m->g->nodes[p.node];
        if (n->type != BITNET_GRAMMAR__TOKEN) continue;
        if (n->max ? (uint32_t)n->min != t && bitnet_grammar__has_token(m->g->plain, t)
                   : (uint32_t)n->min == t) bitnet_grammar__follow(m, n->next, p.frame, 0);
    }
    if (!m->n_set || spelt == BITNET_GRAMMAR__DEAD) return;
    s = &m->states[spelt];
    for (i = 0; i < s->n; i++)
        bitnet_grammar__put_place(m, m->places[s->first + i].node, m->places[s->first + i].frame);
}

BITNET_GRAMMAR_API bitnet_result bitnet_matcher_accept(bitnet_matcher *m, bitnet_token t) {
    uint32_t to, named;
    if (!m || t < 0 || (uint32_t)t >= m->g->n_vocab || bitnet_grammar__has_ended(m))
        return BITNET_ERR_ARG;
    m->making = 0;                         /* what it has on its path goes */
    m->work = 0;
    m->path[0] = m->now;
    to = bitnet_grammar__spell(m, t);
    bitnet_grammar__search_named(m, (uint32_t)t, to);
    if (m->n_set > 0) {
        named = bitnet_grammar__get_state(m);
        if (m->full || named == BITNET_GRAMMAR__UNKNOWN) {
            if (to == BITNET_GRAMMAR__DEAD) m->path[1] = m->now;
            bitnet_grammar__collect(m, 1);
            if (to != BITNET_GRAMMAR__DEAD) to = m->path[1];
            bitnet_grammar__search_named(m, (uint32_t)t, to);
            named = bitnet_grammar__get_state(m);
        }
        if (named > 1) to = named;
    }
    if (to > BITNET_GRAMMAR__DEAD) {
        m->now = to;
        bitnet_grammar__leave_room(m);
        m->token_work = m->work;
    } else if (bitnet_grammar__is_final(m, m->now) &&
             bitnet_grammar__has_token(m->g->ends, (uint32_t)t)) m->ended = BITNET_MATCHER_ENDED;
    else return BITNET_ERR_ARG;
    return BITNET_OK;
}

BITNET_GRAMMAR_API void bitnet_matcher_chosen(void *matcher, bitnet_token t) {
    bitnet_matcher *m = (bitnet_matcher *)matcher;
    if (m && bitnet_matcher_accept(m, t)) m->ended = BITNET_MATCHER_REFUSED;
}

BITNET_GRAMMAR_API bitnet_matcher_status bitnet_matcher_state(const bitnet_matcher *m) {
    const bitnet_grammar__state *s;
    if (!m) return BITNET_MATCHER_REFUSED;
    if (m->ended != BITNET_MATCHER_OPEN) return m->ended;
    s = &m->states[m->now];
    if (!bitnet_grammar__is_final(m, m->now)) return BITNET_MATCHER_OPEN;
    return s->n == 1 ? BITNET_MATCHER_COMPLETE : BITNET_MATCHER_MAY_END;
}

/* =============================================================================================
   @memory of a matcher: one block, made once
   ============================================================================================= */

/* Cuts n elements off a block. p 0: only counts. */
static void *bitnet_grammar__cut(char *p, uint64_t *at, uint64_t n, size_t size) {
    void *out = p ? p + (size_t)*at : 0;
    *at += (n * size + 15) & ~(uint64_t)15;
    return out;
}

/* The arrays of a matcher, in the block p. Returns its size, which may be over SIZE_MAX. */
static uint64_t bitnet_grammar__lay_out(bitnet_matcher *m, char *p) {
    const uint64_t states = m->max_states;
    uint64_t at = (sizeof *m + 15) & ~(size_t)15;
#define BITNET_GRAMMAR__CUT(field, type, n) \
    m->field = (type *)bitnet_grammar__cut(p, &at, (n), sizeof(type))
    BITNET_GRAMMAR__CUT(frames, bitnet_grammar__frame, m->max_frames);
    BITNET_GRAMMAR__CUT(frame_chains, uint32_t, m->max_frames);
    BITNET_GRAMMAR__CUT(states, bitnet_grammar__state, states);
    BITNET_GRAMMAR__CUT(state_chains, uint32_t, states);
    BITNET_GRAMMAR__CUT(places, bitnet_grammar__place, m->max_places);
    BITNET_GRAMMAR__CUT(set, bitnet_grammar__place, m->max_ways);
    BITNET_GRAMMAR__CUT(items, bitnet_grammar__todo, m->n_seen);
    BITNET_GRAMMAR__CUT(seen, bitnet_grammar__todo, m->n_seen);
    BITNET_GRAMMAR__CUT(trans, uint32_t, states * m->g->n_classes);
    BITNET_GRAMMAR__CUT(path, uint32_t, (uint64_t)m->g->longest + 8);
    BITNET_GRAMMAR__CUT(masks, uint32_t,
                        (uint64_t)m->max_masks * (m->words + BITNET_GRAMMAR__OTHERS));
    BITNET_GRAMMAR__CUT(mask_state, uint32_t, m->max_masks);
    BITNET_GRAMMAR__CUT(renamed, uint32_t, m->max_frames + states);
#undef BITNET_GRAMMAR__CUT
    return at;
}

static uint32_t bitnet_grammar__power(uint32_t n) {
    uint32_t p = 64;
    while (p < n) p *= 2;
    return p;
}

/* Sets all limits. Returns the name of one that is out of range, or 0. */
static const char *bitnet_grammar__set_limits(bitnet_matcher *m, const bitnet_grammar *g,
                                              const bitnet_matcher_params *p) {
    memset(m, 0, sizeof *m);
    m->g = g;
    if (p->max_depth < 0 || p->max_depth > BITNET_GRAMMAR__DEPTH) return "max_depth";
    if (p->max_ways < 0 || p->max_ways > 65536) return "max_ways";
    if (p->max_states && (p->max_states < 64 || p->max_states > 1 << 20)) return "max_states";
    if (p->max_masks < 0 || p->max_masks > 65536) return "max_masks";
    m->allocator = p->allocator;
    m->max_depth = p->max_depth ? (uint32_t)p->max_depth : 256;
    m->max_ways = p->max_ways ? (uint32_t)p->max_ways : 1024;
    m->max_states = bitnet_grammar__power(p->max_states ? (uint32_t)p->max_states : 4096);
    m->max_masks = p->max_masks ? (uint32_t)p->max_masks : 64;
    m->max_places = 8 * (m->max_states > m->max_ways ? m->max_states : m->max_ways);
    m->max_frames = bitnet_grammar__power(m->max_places / 2 + 2 * m->max_depth + 1);
    m->n_seen = bitnet_grammar__power(8 * m->max_ways + 8 * m->max_depth);
    m->words = (g->n_vocab + 31) / 32;     /* and OTHERS more */
    return 0;
}

/* The size of a matcher with these limits; 0: no block can be that large. */
static size_t bitnet_grammar__block(bitnet_matcher *limits) {
    const uint64_t size = bitnet_grammar__lay_out(limits, 0);
    return size > SIZE_MAX / 2 ? 0 : (size_t)size;
}

BITNET_GRAMMAR_API size_t bitnet_matcher_bytes(const bitnet_grammar *g,
                                               const bitnet_matcher_params *params) {
    bitnet_matcher_params p;
    bitnet_matcher m;
    memset(&p, 0, sizeof p);
    if (params) p = *params;
    if (!g || bitnet_grammar__check_params(&p.allocator, p.reserved, "", 0)) return 0;
    return bitnet_grammar__set_limits(&m, g, &p) ? 0 : bitnet_grammar__block(&m);
}

/* Forgets all states. */
static void bitnet_grammar__clear(bitnet_matcher *m) {
    m->n_states = 2;
    m->n_frames = 1;
    m->n_places = m->next_mask = 0;
    memset(m->frame_chains, 0, m->max_frames * sizeof *m->frame_chains);
    memset(m->state_chains, 0, m->max_states * sizeof *m->state_chains);
    memset(m->mask_state, 0, m->max_masks * sizeof *m->mask_state);
    memset(&m->frames[0], 0, sizeof m->frames[0]);
}

BITNET_GRAMMAR_API void bitnet_matcher_reset(bitnet_matcher *m) {
    int again;
    if (!m) return;
    m->ended = BITNET_MATCHER_OPEN;
    m->making = 0;
    m->work = 0;
    for (again = 0; again < 2; again++) {
        bitnet_grammar__begin_search(m);
        bitnet_grammar__follow(m, m->g->root, 0, 0);
        m->now = bitnet_grammar__get_state(m);
        if (!m->full && m->now != BITNET_GRAMMAR__UNKNOWN) break;
        if (!again) bitnet_grammar__clear(m);
    }
    bitnet_grammar__leave_room(m);
    m->token_work = m->work;
}

/* The frame of another matcher, in this one. NONE: no room. */
static uint32_t bitnet_grammar__copy_frame(bitnet_matcher *to, const bitnet_matcher *from,
                                           uint32_t frame) {
    uint32_t n = 0, f = 0;
    for (; frame; frame = from->frames[frame].parent) to->renamed[n++] = frame;
    while (n > 0 && f != BITNET_GRAMMAR__NONE) {
        const bitnet_grammar__frame *x = &from->frames[to->renamed[--n]];
        f = bitnet_grammar__get_frame(to, f, x->node, x->count);
    }
    return f;
}

BITNET_GRAMMAR_API bitnet_result bitnet_matcher_copy(bitnet_matcher *to,
                                                     const bitnet_matcher *from) {
    const bitnet_grammar__state *s;
    uint32_t i, f, now = 0;
    int again;
    if (!to || !from || to->g != from->g) return BITNET_ERR_ARG;
    if (to == from) return BITNET_OK;
    s = &from->states[from->now];
    if (s->n > to->max_ways) return BITNET_ERR_LIMIT;
    for (i = 0; i < s->n; i++)
        if (from->frames[from->places[s->first + i].frame].depth > to->max_depth)
            return BITNET_ERR_LIMIT;
    to->making = 0;
    for (again = 0; again < 2; again++) {
        bitnet_grammar__begin_search(to);
        for (i = 0; i < s->n; i++) {
            f = bitnet_grammar__copy_frame(to, from, from->places[s->first + i].frame);
            if (f != BITNET_GRAMMAR__NONE)
                bitnet_grammar__put_place(to, from->places[s->first + i].node, f);
        }
        now = to->full ? 0 : bitnet_grammar__get_state(to);
        if (now != BITNET_GRAMMAR__UNKNOWN) break;
        to->path[0] = to->now;
        if (!again) bitnet_grammar__collect(to, 0);
    }
    if (now == BITNET_GRAMMAR__UNKNOWN) return BITNET_ERR_LIMIT;
    to->now = now;
    to->ended = from->ended;
    bitnet_grammar__leave_room(to);
    return BITNET_OK;
}

BITNET_GRAMMAR_API bitnet_result bitnet_matcher_create(const bitnet_grammar *g,
                                                       const bitnet_matcher_params *params,
                                                       bitnet_matcher **out, bitnet_error *err) {
    bitnet_matcher_params p;
    bitnet_matcher limits, *m;
    const char *wrong;
    bitnet_result r;
    size_t size;
    if (out) *out = 0;
    if (!g || !out) return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "a null pointer");
    memset(&p, 0, sizeof p);
    if (params) p = *params;
    r = bitnet_grammar__check_params(&p.allocator, p.reserved, "bitnet_matcher_params", err);
    if (r) return r;
    wrong = bitnet_grammar__set_limits(&limits, g, &p);
    if (wrong) return bitnet_grammar__refuse(err, BITNET_ERR_ARG, "%s is out of range", wrong);
    if (g->need[g->root] > limits.max_depth)
        return bitnet_grammar__refuse(err, BITNET_ERR_LIMIT,
                                      "every text needs a depth of %d, and max_depth is %d",
                                      (int)g->need[g->root], (int)limits.max_depth);
    size = bitnet_grammar__block(&limits);
    m = size ? (bitnet_matcher *)bitnet_grammar__alloc(&p.allocator, size) : 0;
    if (!m) return bitnet_grammar__refuse(err, BITNET_ERR_MEMORY, "out of memory");
    *m = limits;
    bitnet_grammar__lay_out(m, (char *)m);
    memset(m->seen, 0, m->n_seen * sizeof *m->seen);
    bitnet_grammar__clear(m);
    memset(m->states, 0, 2 * sizeof *m->states);
    bitnet_matcher_reset(m);
    if (m->now == BITNET_GRAMMAR__DEAD) {
        bitnet_matcher_free(m);
        return bitnet_grammar__refuse(err, BITNET_ERR_LIMIT,
                                      "so many rules begin with each other that no text begins "
                                      "within max_ways %d", (int)limits.max_ways);
    }
    *out = m;
    return BITNET_OK;
}

BITNET_GRAMMAR_API void bitnet_matcher_free(bitnet_matcher *m) {
    bitnet_allocator a;
    if (!m) return;
    a = m->allocator;
    bitnet_grammar__free(&a, m);
}

#if defined(__GNUC__) || defined(__clang__)
  #pragma GCC diagnostic pop
#endif
#endif /* BITNET_GRAMMAR__IMPLEMENTED */
#endif /* BITNET_GRAMMAR_IMPLEMENTATION */
