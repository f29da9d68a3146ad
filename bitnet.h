/* bitnet.h - v0.2.0 - runs BitNet b1.58 (1.58-bit, ternary) language models on any CPU; MIT licence

   Do this:
       #define BITNET_IMPLEMENTATION
   before you include this file in *one* C or C++ file:
       #include ...
       #define BITNET_IMPLEMENTATION
       #include "bitnet.h"
   and include it without the macro wherever else you need it. Compile with -O2; link with
   -lpthread where the C library does not hold the threads already. There is nothing else to link.

   THE SMALLEST PROGRAM (the tests extract and build it, as C and as C++)

       #define BITNET_IMPLEMENTATION
       #include "bitnet.h"
       #include <stdio.h>
       #include <string.h>

       static int print(void *ud, const char *text, size_t n, bitnet_token t) {
           (void)ud;
           (void)t;
           fwrite(text, 1, n, stdout);
           fflush(stdout);
           return ferror(stdout);  // nonzero ends the text
       }

       int main(int argc, char **argv) {
           bitnet_model *model = NULL;
           bitnet_ctx *ctx = NULL;
           bitnet_generate_params gen;
           bitnet_error err;
           bitnet_result r;

           if (argc < 2) {
               fprintf(stderr, "usage: %s MODEL.gguf [TEXT]\n", argv[0]);
               return 2;
           }
           memset(&gen, 0, sizeof gen);
           gen.text = argc > 2 ? argv[2] : "Once upon a time";
           gen.max_tokens = 100;
           gen.text_fn = print;

           r = bitnet_model_load_file(argv[1], NULL, &model, &err);
           if (r == BITNET_OK) r = bitnet_ctx_create(model, NULL, &ctx, &err);
           if (r == BITNET_OK) r = bitnet_generate(ctx, &gen, NULL, &err);
           if (r != BITNET_OK) fprintf(stderr, "%s\n", err.text);
           else printf("\n");

           bitnet_ctx_free(ctx);
           bitnet_model_free(model);
           return r != BITNET_OK || ferror(stdout);
       }

   In C++ the library needs C++11. Parameter structs whose fields are all zero mean defaults: clear
   them with memset, as here, or write {0} in C and {} in C++.

   WHAT WORKS
       Models    GGUF v2 and v3, little-endian: the official microsoft/bitnet-b1.58-2B-4T-gguf file
                 as it is (architectures bitnet-b1.58 and bitnet-25), 1bitLLM's large and 3B
                 (bitnet), and llama with ternary weights (Llama3-8B-1.58, Falcon3-1.58,
                 Falcon-E).
       Weights   linear layers in I2_S (all three packings), TL1, TL2, TQ1_0 and TQ2_0; embedding
                 and head in F32, F16, BF16, Q8_0, Q6_K or Q4_0; norms in F32, F16 or BF16.
       Tokenizer byte-level BPE with the pre-tokenizers llama-bpe (also called llama3, llama-v3,
                 falcon3) and falcon_e; SentencePiece's BPE (tokenizer.ggml.model = llama).
       Files     any GGUF file can be looked into and written (examples/convert.c makes GGUF of a
                 Hugging Face folder, and of each packing each other).
       Compilers any of C99, or of C++11 and up. gcc, clang and MSVC build the threads and the
                 kernels; all others, such as tcc, build plain C that runs on the caller's thread.
       CPUs      any with IEEE-754 floats, through plain C. x86 with AVX2, AVX-VNNI or AVX-512 VNNI
                 runs the kernels of bitnet_kernels_x86.h, ARM with NEON,
                 better with dotprod or i8mm, those of bitnet_kernels_arm.h, which only need to lie
                 beside this file; the choice is made when the program runs, so no -m flag is
                 needed. WebAssembly with -msimd128, better with -mrelaxed-simd besides, those of
                 bitnet_kernels_wasm.h; threads there need -pthread.

   WHAT DOES NOT
       Other architectures, llama files with biases, experts or further norms, RoPE scaling by yarn,
       other pre-tokenizers, other tensor types, GGUF v1, big-endian files: refused with an error
       that names what was found, never guessed. Chat templates other than that of BitNet
       b1.58-2B-4T.
       Files over 16 GiB unless bitnet_model_params.max_bytes says otherwise. On a 32-bit machine
       the file has to fit the address space. CPUs other than x86, ARM and WebAssembly have no
       kernels of their own yet; 32-bit ARM has only those that count in integers.

   SECURITY
       Files     may be hostile. Every length, count and offset is checked against the bytes that
                 are there before it is used, sums and products of them against wrapping; counts
                 have caps, nothing recurses on input. A refusal takes time bounded by the file's
                 size and at most four times that plus 4 KB of memory. It leaves nothing allocated,
                 and says in one line of clean UTF-8 what is wrong and where (bitnet_clean_text
                 defines clean). Weights are checked, too: codes that stand for no weight, scales
                 that are not positive and norms that are not finite are refused when a model is
                 loaded, and numbers that become not finite on the way end an evaluation. What is
                 accepted can be run: no token, key or weight of it leads out of bounds.
       Prompts   may be hostile, and hold any bytes. The text of a special token becomes that token
                 only with BITNET_PARSE_SPECIAL; in messages and in bitnet_generate_params.text
                 never. Give that flag to texts of your own only. What the model writes back is a
                 stranger's text too: whole code points, but any of them, also those that a
                 terminal or a page acts on. bitnet_clean_text makes a line of it safe to show.
       The library never prints, exits, aborts, recurses on input, or touches the environment or
       the network. It opens the files that it is given, and on Linux, to count the CPUs that it
       may use, /proc/self/cgroup and below /sys/fs/cgroup the files cpu.max, cpu.cfs_quota_us and
       cpu.cfs_period_us (with BITNET_NO_STDIO it opens none).
       Trusted   are the program and what it passes: pointers and their sizes, hooks, allocators,
                 kernel tables, parameters of tensors that are handed to kernels by themselves.
       Not promised: that a file which breaks no rule holds the weights its name says (compare a
       checksum from its publisher); that the model tells the truth, keeps a secret in its prompt or
       does what a system message says; that time and memory traffic tell nothing about a prompt to
       who can measure them; and anything at all if borrowed memory or a mapped file changes while
       it is in use (MEMORY has what to do about files that others may write to).
       To report a hole: README.md, "Security".

   BUILD SWITCHES (define before the include that has BITNET_IMPLEMENTATION)
       BITNET_STATIC          every function is static: the library lives in one file of yours
       BITNET_API             what stands before every public function; default extern
       BITNET_NO_STDIO        no bitnet_model_load_file and bitnet_gguf_open_file, and nothing else
                              that opens files; no <stdio.h> but for vsnprintf
       BITNET_NO_MMAP         these two read files instead of mapping them
       BITNET_NO_THREADS      no threads of our own; bitnet_ctx_params.parallel_fn still works
       BITNET_NO_SIMD         plain C only, and no note that a kernel header is missing
       BITNET_NO_AVX2         leaves that kernel table out, and avxvnni, which builds on it
       BITNET_NO_AVXVNNI      leaves that kernel table out
       BITNET_NO_AVX512       likewise
       BITNET_NO_NEON         leaves the kernel table neon out, not those that build on it
       BITNET_NO_DOTPROD      leaves neon-dotprod out, and neon-i8mm, which builds on it
       BITNET_NO_I8MM         leaves that kernel table out
       BITNET_NO_RELAXED      leaves the kernel table relaxed-simd out
       BITNET_REQUIRE_SIMD    #error if no kernel header was found beside this file
       BITNET_VSNPRINTF       what formats error texts; default vsnprintf; stbsp_vsnprintf works

   MEMORY
   ------
   A mapped model costs its pages of the file, which the system can drop and read again, plus
   some 10 MB for the tokenizer. While it is mapped, the file must not change: who writes to it
   changes the weights, and if it gets shorter, touching the pages that are gone ends the program
   (SIGBUS on POSIX systems; Windows does not let a mapped file be written or cut). Files that
   others may touch are better loaded with bitnet_model_params.copy, which reads all of a file into
   memory of the model's own; that it gets shorter meanwhile is then an error.

   A context costs what bitnet_ctx_bytes says, in one piece. Of BitNet b1.58-2B-4T, in MB, with one
   thread and defaults otherwise (another thread adds about 1):

       n_ctx                               512    2048    4096
       KV cache                             39     157     315     77 KB for each position
       8-bit copy of the output head       331     331     331     see SCREENED HEAD; full_head: 0
       scratch, most of it for n_batch      58      59      61     n_batch 32: 5 to 8
       all                                 429     548     707

   The KV cache has 4 * layers * kv_heads * head_size bytes for each position, 8 with
   BITNET_KV_F32. Every context has its own copy of the head; where many contexts share a model,
   full_head saves it.

   bitnet_eval, bitnet_logits and bitnet_sample allocate nothing. Tokenizing allocates memory that
   is freed before it returns: for a word of over 256 bytes 32 to 64 times its size; with a
   SentencePiece tokenizer, which has no words, 41 to 81 times the text, if that is over 255 bytes;
   for messages a copy of each. bitnet_generate allocates a buffer for the text that it holds back,
   mostly of a few hundred bytes, and for stop strings up to 6 bytes for each of theirs and 33 for
   each string, and frees that, too.

   FILES
   -----
   On Windows a path is UTF-8, of at most 1023 units in UTF-16; elsewhere it is the bytes that the
   system takes. Only regular files are opened: directories, pipes and devices are refused. Offsets
   have 64 bits in 32-bit programs, too: a file that does not fit the address space cannot be
   loaded, but bitnet_gguf_open_file can look into it. (If off_t has 32 bits and the C library is
   not glibc, this needs -D_FILE_OFFSET_BITS=64. Emscripten opens files of up to 2 GiB.) Programs
   started meanwhile do not inherit the open file. If the system refuses something, the error's text
   ends with its reason, in the system's words and language: "cannot open 'm.gguf': Permission
   denied".

   Any number of threads may use one bitnet_gguf, with BITNET_NO_THREADS, too. There are two
   exceptions. After bitnet_gguf_open_io, bitnet_gguf_read calls read_fn on the thread that called
   it, so read_fn must allow that. And on a system that is neither POSIX nor Windows, a file opened
   by its path is read through one FILE, by one thread at a time.

   LAYOUTS
   -------
   A kernel table is an instruction set and a layout of the ternary weights. scalar, avx2, avxvnni,
   avx512vnni, neon, neon-dotprod, neon-i8mm, simd128 and relaxed-simd read I2_S (2 bits a weight)
   where the file has it; the default is the best of them. The tables named -tl2 (x86, and the slow
   scalar-tl2) make TL2 of it, 5 bits for 3 weights, when the model is loaded: a copy of 5/6 the
   size in memory of the model's own (434 MB of the 2B model, in 0.2 to 1 s, on up to 16 CPUs), for
   fewer bytes a token: 6 % more tokens a second where memory is what limits. It is lossless, and
   the logits are the same bits. bitnet_model_params.kernels asks for a table.

   PACKINGS
   --------
   I2_S has been written in three ways, by different builds of one converter: the codes (weight + 1)
   of four weights share a byte, and which four is what differs.

       bits          7-6    5-4    3-2    1-0
       128-group     j      32+j   64+j   96+j     byte j of 32 holds these of 128 weights in a row:
                                                   x86 and Python converters, the official file
       64-group      j      16+j   32+j   48+j     byte j of 16, of 64 weights: ARM converters
       4-row         r      r+1    r+2    r+3      byte c of rows r to r+3 holds their column c:
                                                   x86 converters built without ACT_PARALLEL

   The kernels read the first. Of a file in one of the others, which bitnet_model_params.i2s_layout
   has to name, the weights are repacked when it is loaded (521 MB of the 2B model, in memory of the
   model's own); then all is as with the first.

   Nothing in a file tells them apart: type number, sizes and the scale's place are the same, and
   any codes make a matrix in each. Only shapes rule something out: 128-group and 64-group tensors
   are whole blocks, 4-row ones have rows in fours; what does not fit is refused. A code 3 would be
   a 3 in all of them: it stands for no weight, and says that a file is damaged or no I2_S. It is
   looked for when a model is loaded, and refused with its place. A row of 64-group read as
   128-group has the same weights in each 128 columns, in another order, so that no count of them
   shows it. What does is the text: with the wrong packing a trained model writes noise, and real
   text is far less likely to it (crosscheck.c --which-layout compares that). It is evidence, no
   proof.

   TILES
   -----
   TL1 and TL2 weights stand in a file as the kernels of one converter read them: in tiles of BM
   rows by BK columns, and in those by groups of bm rows. The sizes were made for each shape of
   matrix, and the file does not record them. They are taken from the published table by the shape:

                               rows x columns   TL1 BM,BK,bm   TL2 BM,BK (bm is 32)
       bitnet_b1_58-large      1536 x 4096      256,128,32     256,96
                               1536 x 1536      128,64,64      128,192
                               4096 x 1536      256,128,32     256,96
       bitnet_b1_58-3B         3200 x 8640      160,64,32      160,96
                               3200 x 3200      320,128,64     320,96
                               8640 x 3200      320,64,32      320,96
       Llama3-8B-1.58         14336 x 4096      256,128,32     256,96
                               4096 x 14336     128,64,64      128,96
                               1024 x 4096      256,128,32     256,96
                               4096 x 4096      128,64,64      128,96

   or from bitnet_model_params.tile, which then counts for all of a file's. Another shape without a
   tile is refused. When it is loaded, such a matrix becomes I2_S, or what the kernels make of that;
   the logits are the bits of the I2_S file that holds the same weights.

   What a packer cannot have written is refused: shapes that are not whole tiles, codes that stand
   for nothing, a sign on a triplet of zeros, bytes between the weights and the scale that are not
   0. In TL2 that finds every tile with another number of columns in pairs (columns % BK): its signs
   meet the wrong triplets. Nothing else can be found: another BM, another BK with the same rest,
   and in TL1 any tile that divides the shape, read the same legal codes in another order. As with
   packings, only the text shows it, which is then noise.

   FAMILIES
   --------
   What general.architecture decides:

       bitnet-b1.58, bitnet-25   squared ReLU, halves, sub-norms: BitNet b1.58-2B-4T
       bitnet                    SiLU, halves, sub-norms: 1bitLLM's large and 3B
       llama                     SiLU, adjacent pairs, no sub-norms: Llama3-8B-1.58, Falcon3-1.58

   Halves and adjacent pairs are what RoPE turns in a head: (i, i + n/2) or (2i, 2i + 1), for which
   converters to llama reorder the rows of q and k. RoPE scaling is none, linear, or a factor for
   each pair (rope_freqs.weight). The head is tied unless there is output.weight. Other networks
   that call themselves llama have tensors that have no place here, and are refused by their names.

   SCREENED HEAD
   -------------
   The output head is over half of all bytes that a token of the 2B model reads. Greedy and top-k
   sampling need only the largest logits: bitnet_sample keeps the head a second time with 8 bits a
   weight (vocabulary * width bytes, part of the context from the start, filled in when first used),
   bounds every logit by it, and computes exactly those that can be among the wanted ones. The
   result is the same token, always. Other samplers, and bitnet_logits, compute all logits.
   full_head = 1 switches it off and saves its memory.

   LOOKUP DECODING
   ---------------
   Text repeats itself: names, quotations, code. With bitnet_generate_params.lookup = N (1 to 64, of
   which 3 to 8 pay most; the context's n_logits must be at least N + 1, or n_ctx if that is less),
   generation looks for the latest earlier place in the context with the same last three tokens, or
   two. It evaluates up to N of the tokens that followed it together with the sampled one, in one
   pass over the weights. The rows are then sampled in turn until a sampled token differs from the
   guess. Up to 9 rows share a pass over the screened head. The result is the same text, always, for
   every sampler: a row's logits do not depend on what is evaluated beside it, and rng advances once
   for each token. Guesses that go wrong grow shorter. A text that does not repeat costs next to
   nothing.

   ERRORS
   ------
   Functions that can fail return a bitnet_result and take a bitnet_error pointer, which may be
   0; its text is one line that says what, where (key, tensor, offset) and, where there is one,
   what to do. On failure *out is 0. Functions that return an int length return a negative
   bitnet_result. A call that failed has changed nothing, unless its comment says so, and can be
   made again: with more memory it gives what it would have given.

   No pointer crashes for being 0. Where a comment does not allow it, functions that return a
   bitnet_result or a length say BITNET_ERR_ARG, others their nothing (0; of tokens -1), and
   functions without a result do nothing. So do numbers that are out of range; comments name the
   ranges. What is behind a pointer is trusted: its length, its NUL, and that it lives.

   THREADS
   -------
   A model does not change after loading: any number of threads and contexts may use it. Free
   contexts before their model. A context belongs to one thread at a time.

   A context works with n_threads threads: the caller's, and workers of its own, which sleep
   between calls. n_threads 0 means as many as the process may use: the CPUs in its affinity mask
   (Linux and Windows; all that are online elsewhere), and on Linux no more than the CPU quota of
   its control groups, rounded up. If the system refuses to start a thread, the context works with
   fewer. bitnet_ctx_threads says how many there are. The results are the same bits for any number.

   The network is evaluated in steps. A step that is too small to share runs on the caller's thread
   alone. A larger one is cut into runs of rows, which the threads take one after the other, so that
   a slow CPU gets fewer of them. The context measures whether sharing saves time. Where it does
   not, because other programs keep the CPUs busy, the caller's thread works alone for a while, up
   to a second, before it tries again.

   With parallel_fn a context starts no threads. It gives each step that is worth sharing to the
   program's own pool, as n_threads jobs, and does the other steps on the caller's thread.

   To load more than some megabytes the library starts as many threads as n_threads 0 means, at
   most 16, and ends them before the call returns. Hooks and the allocator are called on the
   caller's thread only.

   The library's threads block all signals except SIGBUS, SIGFPE, SIGILL and SIGSEGV, which report
   a fault of the thread itself. A program's other signals reach its own threads only.

   A child process made by fork() has no workers. It can use and free the contexts and models that
   it inherits; it does all the work on the caller's thread, with the same results. It cannot use or
   free a context that another thread was using at that moment, nor one whose step_fn or
   parallel_fn called fork(), nor go on with a load whose hook did.

   A call that finds its context in use, by another thread or by the call whose callback it comes
   from, changes nothing and says so: BITNET_ERR_BUSY, from bitnet_logits 0, from bitnet_sample -1;
   bitnet_ctx_free then frees nothing. Nobody waits, so nothing can wait for itself. Callbacks may
   call bitnet_ctx_length and what else takes a const bitnet_ctx, those of bitnet_generate also
   bitnet_logits. They have to return: after a longjmp or an exception out of them the context
   stays in use. With BITNET_NO_THREADS calls from other threads are not noticed.

   DETERMINISM
   -----------
   The logits are the same bits for every kernel table, thread count, batch split and machine.
   The scalar C of this file defines them: integer sums are exact; a float sum of n products goes
   into 16 partial sums, element i into sum i % 16, each product rounded before it is added (no
   FMA), and the 16 are added as a tree (8 apart, 4, 2, 1). exp, sin, cos, log and sqrt are our
   own; SiLU is g / (1 + e^-g), each operation rounded, in plain C for all tables. With an F16
   cache, queries and probabilities are rounded to 13 bits first: their products with the cache's
   11 bits are exact, so that there an FMA is allowed, and twice as fast. The price is a rule for
   the compiler: no -ffast-math (refused), no contraction of a*b+c into an FMA (switched off here by
   pragma; if a compiler ignores that, use -ffp-contract=off; MSVC: /fp:precise), 32-bit x86 with
   -msse2 -mfpmath=sse, and on s390x, where gcc -std=c99 computes with doubles,
   -fexcess-precision=fast. bitnet_selftest says in words if a build breaks the rule;
   examples/crosscheck.c finds where two machines part, with the help of layer_fn.

   CONTEXTS
   --------
   A context holds a text as tokens, bitnet_ctx_length of them, each evaluated once. bitnet_eval and
   bitnet_generate append to it; bitnet_ctx_rewind takes tokens off its end, at no cost, and what
   stays need not be evaluated again.

   The token that bitnet_generate samples last has been given to text_fn but is not evaluated: it
   would be needed only if something follows. It is the context's pending token. Whatever is
   appended next comes after it: prompt, text, messages, or the tokens of a bitnet_eval. Nobody has
   to pass it on, and a call without a prompt goes on from it. It takes a position then, and counts
   when it is asked if a prompt fits. bitnet_ctx_pending tells it, bitnet_ctx_rewind drops it. Only
   a text that ends inside a character shows where two calls meet: U+FFFD ends the first.

   A prompt that does not fit, fails or is cancelled leaves a context as it was, pending token
   included, but without logits. So a message that was too long can be followed by a shorter one.

   CHAT
   ----
   bitnet_generate writes messages in the chat template of the model, opens the reply, and ends
   where the model ends it. Each call appends one turn, so only new messages are passed. This is a
   chat (gen has a text_fn, and is zero otherwise):

       static void chat(bitnet_ctx *ctx, bitnet_generate_params *gen) {
           char line[4096];
           bitnet_message message = {"user", line};
           bitnet_error err;
           gen->messages = &message;
           gen->n_messages = 1;
           while (fgets(line, sizeof line, stdin)) {
               if (bitnet_generate(ctx, gen, NULL, &err) != BITNET_OK) printf("(%s)", err.text);
               printf("\n");
           }
       }

   A system message goes before the first one of the user: an array of two, in the first call. If
   the last reply was cut, by max_tokens, a stop string or text_fn, its end-of-turn token is put in.
   BOS comes first in an empty context. The text of a message never becomes a special token.

   When the context is full, a reply ends with BITNET_STOP_LENGTH, and the next message is
   BITNET_ERR_FULL. To go on, rewind the context to 0, or to where the system message ends, and pass
   the messages that are worth keeping again.

   The template is that of BitNet b1.58-2B-4T: each message as "Role: text<|eot_id|>", the text
   without the white space around it, and "Assistant: " to open the reply. Other templates are
   BITNET_ERR_UNSUPPORTED: those of the architectures bitnet and llama differ from model to model.
   They can be written out with bitnet_tokenize and BITNET_PARSE_SPECIAL. bitnet_chat_tokenize gives
   the tokens of messages without evaluating them.

   AN OWN LOOP
   -----------
   bitnet_generate is made of public functions, apart from stop strings and lookup. Who wants to
   choose tokens otherwise calls them:

       static bitnet_result write_on(const bitnet_model *model, bitnet_ctx *ctx, const char *text) {
           bitnet_token tokens[1000];
           char piece[1000];
           bitnet_detok detok;
           bitnet_result r;
           int n = bitnet_tokenize(model, text, strlen(text), BITNET_ADD_BOS, tokens, 1000);
           if (n > 1000) return BITNET_ERR_LIMIT;
           if (n < 0) return (bitnet_result)n;
           memset(&detok, 0, sizeof detok);
           for (r = bitnet_eval(ctx, tokens, n, 0, NULL); r == BITNET_OK;
                r = bitnet_eval(ctx, tokens, 1, 0, NULL)) {
               tokens[0] = bitnet_sample(ctx, NULL);
               if (bitnet_token_is_end(model, tokens[0])) break;
               n = bitnet_detok_push(model, &detok, tokens[0], piece, sizeof piece);
               if (n > 0) fwrite(piece, 1, (size_t)n, stdout);
           }
           n = bitnet_detok_push(model, &detok, -1, piece, sizeof piece);
           if (n > 0) fwrite(piece, 1, (size_t)n, stdout);
           return r;
       }

   With BITNET_ADD_BOS the tokens begin with BOS, which belongs only at the beginning of a context.
   A piece of 1000 bytes has room for tokens of up to 332 bytes, more than known vocabularies have.
   bitnet_logits shows what bitnet_sample draws from.

   RELEASES
       0.2.0  chats and pending tokens in the library; truer threads, files and self-test
       0.1.0  first: ternary GGUF in, text out; kernels in plain C, for x86, ARM and WebAssembly
   The licence is at the end of this file. */

#ifndef BITNET_H
#define BITNET_H

#include <stddef.h>
#include <stdint.h>

#define BITNET_VERSION "0.2.0"

#ifndef BITNET_API
  #ifdef BITNET_STATIC
    #define BITNET_API static
  #else
    #define BITNET_API extern
  #endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Results, with their texts: one list makes the enum and bitnet_result_text. */
#define BITNET_RESULTS(X) \
    X(BITNET_OK, 0, "no error") \
    X(BITNET_ERR_ARG, -1, "bad argument") \
    X(BITNET_ERR_MEMORY, -2, "out of memory") \
    X(BITNET_ERR_IO, -3, "cannot read or write") \
    X(BITNET_ERR_TRUNCATED, -4, "file ends too early") \
    X(BITNET_ERR_FORMAT, -5, "file breaks its format") \
    X(BITNET_ERR_UNSUPPORTED, -6, "not supported") \
    X(BITNET_ERR_LIMIT, -7, "over a limit") \
    X(BITNET_ERR_FULL, -8, "context is full") \
    X(BITNET_ERR_CANCELLED, -9, "cancelled by the caller") \
    X(BITNET_ERR_SELFTEST, -10, "self-test failed") \
    X(BITNET_ERR_BUSY, -11, "context is in use")

typedef enum bitnet_result {
#define BITNET_X(name, value, text) name = value,
    BITNET_RESULTS(BITNET_X)
#undef BITNET_X
    BITNET_RESULT_FORCE_INT = 0x7fffffff
} bitnet_result;

/* What went wrong, in one line of UTF-8 without a newline. Filled only on failure. */
typedef struct bitnet_error {
    bitnet_result code;
    char text[200];
} bitnet_error;

typedef int32_t bitnet_token;
typedef struct bitnet_model bitnet_model;     /* weights and tokenizer; immutable; any thread */
typedef struct bitnet_ctx bitnet_ctx;         /* KV cache, scratch, logits; one thread at a time */
typedef struct bitnet_kernels bitnet_kernels; /* inner loops for one ISA level, defined below */

/* All zero: malloc and free. Otherwise both functions; they must be as thread-safe as malloc where
   several threads share a model. align is a power of two, at most 64. */
typedef struct bitnet_allocator {
    void *(*alloc_fn)(void *ud, size_t size, size_t align);
    void (*free_fn)(void *ud, void *p);
    void *ud;
} bitnet_allocator;

/* Random access to a file of known size. read_fn fills dst with n bytes from offset, never past
   size; anything but BITNET_OK fails the load with that code. Used only while loading. */
typedef struct bitnet_io {
    uint64_t size;
    bitnet_result (*read_fn)(void *ud, uint64_t offset, void *dst, size_t n);
    void *ud;
} bitnet_io;

typedef enum bitnet_log_level { BITNET_LOG_INFO = 0, BITNET_LOG_WARNING = 1 } bitnet_log_level;

typedef enum bitnet_i2s_layout {
    BITNET_I2S_128 = 0,
    BITNET_I2S_64,
    BITNET_I2S_4ROW
} bitnet_i2s_layout;

/* How a converter cut matrices of TL1 or TL2 into tiles; files do not record it. BM rows by BK
   columns, and within them bm rows (0: 32, the only one of TL2); see TILES. */
typedef struct bitnet_tile { int32_t BM, BK, bm; } bitnet_tile;

/* All zero means defaults, here and in every parameter struct below. */
typedef struct bitnet_model_params {
    bitnet_allocator allocator;                              /* 0: malloc */
    int (*progress_fn)(void *ud, uint64_t done, uint64_t total);   /* bytes; nonzero cancels */
    void (*log_fn)(void *ud, bitnet_log_level level, const char *text);   /* 0: silent */
    void *ud;                                                /* for both hooks */
    const bitnet_kernels *kernels;                           /* 0: bitnet_kernels_default() */
    bitnet_i2s_layout i2s_layout;            /* how the file packs its I2_S weights; see PACKINGS */
    bitnet_tile tile;                        /* of all its TL1 or TL2 weights; 0: by their shape */
    uint64_t max_bytes;                                      /* refuse larger files; 0: 16 GiB */
    int32_t copy;                /* 1: bitnet_model_load_file reads, and never maps; see MEMORY */
} bitnet_model_params;

/* Strings live as long as the model. */
typedef struct bitnet_model_info {
    const char *arch;            /* general.architecture */
    const char *kernels;         /* name of the kernel table in use */
    const char *layout;          /* of the ternary weights in memory: I2_S, or what the kernel table
                                    packs them into (TL2, or a caller's own) */
    int32_t n_vocab, n_layers, dim, ffn_dim, n_heads, n_kv_heads, head_dim, ctx_train;
    const char *embed_type, *head_type;   /* of the two matrices: F32 F16 BF16 Q8_0 Q6_K Q4_0 */
    uint64_t head_bytes;         /* of the output head, which may be the embedding */
    uint64_t n_params;           /* weights and norms, the tied head once */
    uint64_t file_bytes;
    uint64_t own_bytes;          /* allocated by the model, beyond the mapped or borrowed file */
    bitnet_token bos, eos, eot;  /* -1: the file has none */
    int32_t add_bos;             /* 1: the file wants BOS before a prompt */
} bitnet_model_info;

typedef enum bitnet_kv_type { BITNET_KV_F16 = 0, BITNET_KV_F32 = 1 } bitnet_kv_type;

typedef struct bitnet_ctx_params {
    int32_t n_ctx;               /* positions, to 2^20; 0: what the model was trained for */
    int32_t n_batch;             /* tokens evaluated together, to 65536; 0: 512, or n_ctx if less */
    int32_t n_logits;            /* rows bitnet_eval can keep with all_logits, to n_ctx; 0: 1 */
    int32_t n_threads;           /* to 256; 0: as many as the process may use; see THREADS */
    bitnet_kv_type kv_type;      /* 0: F16 */
    int32_t full_head;           /* 1: bitnet_sample computes all logits; see SCREENED HEAD */
    /* The program's own thread pool, used in place of the library's: calls job(arg, i) once for
       each i in [0, jobs), on any threads and in any order, and returns when all are done. jobs is
       n_threads. Not called for steps that are too small to share. */
    void (*parallel_fn)(void *ud, int jobs, void (*job)(void *arg, int i), void *arg);
    void *parallel_ud;
    /* For profiles. The network is evaluated in steps, and a step in runs. The thread that does a
       run calls this before it (begin 1) and after it (begin 0), several threads at the same time.
       thread is 0 for the thread that evaluates, 1 .. n_threads - 1 for workers, or the job's i
       with parallel_fn. A step that is not shared is one run of thread 0. In a shared step thread
       0 does at least one run (not with parallel_fn), and a worker may do none. The last call of a
       step has returned before the next step begins. part is "embed", "norm", "quantize",
       "matmul", "attention" or "head". */
    void (*step_fn)(void *ud, const char *part, int thread, int begin);
    void *step_ud;
    /* To look inside, or to compare: called on the thread that called bitnet_eval, once for each
       batch (at most n_batch tokens), after the embedding (layer -1) and after each layer (0 ..
       n_layers - 1). x is the residual stream [n_tokens][dim] of the batch, whose first token is at
       position bitnet_ctx_length(); it is to be read only, lives during the call and goes on
       changing after it. Meanwhile the other threads wait. */
    void (*layer_fn)(void *ud, int layer, const float *x, int n_tokens);
    void *layer_ud;
} bitnet_ctx_params;

typedef struct bitnet_logit_bias { bitnet_token token; float bias; } bitnet_logit_bias;

/* All zero is greedy: the largest logit, the lowest id among equals. Applied in this order: logit
   bias, repetition penalty, top-k, top-p, min-p, temperature. rng is the whole state of the random
   generator: set it to the seed, save it, replay it. One draw advances it once. Any float is
   accepted: NaN and negative values count as 0. */
typedef struct bitnet_sampler {
    float temperature;           /* 0: greedy; infinity: whatever is left, at even odds */
    float top_p;                 /* keep the most likely tokens up to this sum; 0 or >= 1: all */
    float min_p;                 /* drop tokens under min_p times the best one's probability */
    float repeat_penalty;        /* > 1 makes recent tokens less likely; 0 or 1: off */
    int32_t top_k;               /* keep the k largest logits; 0: all */
    int32_t repeat_window;       /* how many recent tokens the penalty sees; 0: 64, < 0: all */
    const bitnet_logit_bias *bias;   /* n_bias entries, borrowed; -INFINITY (or a NaN) forbids a
                                        token; ids outside the vocabulary are ignored */
    int32_t n_bias;              /* 0 or more */
    uint64_t rng;
} bitnet_sampler;

/* Both NUL-terminated, neither 0. role is any text but "": the template writes its first letter in
   upper case and the others in lower case ("User"). White space around content is left out. */
typedef struct bitnet_message { const char *role, *content; } bitnet_message;

/* Collects token bytes into whole code points. All zero starts; bitnet_detok_push goes on. */
typedef struct bitnet_detok { uint8_t pending[4]; int32_t n_pending; } bitnet_detok;

typedef enum bitnet_stop {
    BITNET_STOP_END,             /* the model ended its text: see bitnet_token_is_end */
    BITNET_STOP_LENGTH,          /* max_tokens, or the context is full */
    BITNET_STOP_STRING,          /* a stop string came; it is not part of the text */
    BITNET_STOP_CALLBACK         /* text_fn said so */
} bitnet_stop;

/* What lookup decoding did. bitnet_generate adds to it. */
typedef struct bitnet_lookup_stats {
    int32_t drafts;              /* passes that evaluated a guess */
    int32_t drafted, accepted;   /* tokens: guessed, and of these right */
} bitnet_lookup_stats;

typedef struct bitnet_generate_params {
    /* The prompt, one of these three at most. It is appended to what the context holds. */
    const bitnet_token *prompt;  /* tokens */
    int32_t n_prompt;            /* 1 or more */
    const char *text;            /* NUL-terminated; special tokens are not parsed. BOS comes first
                                    if the context is empty and the file asks for it. */
    const bitnet_message *messages;      /* in the model's chat template; see CHAT */
    int32_t n_messages;          /* 1 or more */
    int32_t max_tokens;          /* 0 or less: until the context is full */
    int32_t ignore_end;          /* 1: go on past end tokens */
    int32_t lookup;              /* most tokens to guess, 0..64; 0: off; see LOOKUP DECODING */
    bitnet_lookup_stats *lookup_stats;   /* may be 0 */
    bitnet_sampler *sampler;     /* 0: greedy; its rng advances */
    const char *const *stop_strings;     /* UTF-8; none of them 0 or empty; 512 MiB in all */
    int32_t n_stop_strings;      /* 0 or more */
    /* Called once for each new token t, with the text that is now certain: whole code points, never
       part of a stop string, perhaps none (n = 0). A last call may follow with t = -1 and what had
       been held back. text is not NUL-terminated and lives during the call. bitnet_logits(c, -1)
       gives what t was drawn from. Nonzero stops; text that was still held back is then dropped. */
    int (*text_fn)(void *ud, const char *text, size_t n, bitnet_token t);
    /* Called after each n_batch tokens of the prompt; total counts the pending token, BOS and what
       the chat template adds. There are logits only when done is total. Nonzero cancels the call:
       BITNET_ERR_CANCELLED. */
    int (*progress_fn)(void *ud, int32_t done, int32_t total);
    void *ud;
} bitnet_generate_params;

/* Flags for tokenizing. Those that a function does not name have no effect. */
enum {
    BITNET_ADD_BOS = 1,          /* BOS first, if the vocabulary has one */
    BITNET_PARSE_SPECIAL = 2,    /* "<|eot_id|>" in the text becomes the special token */
    BITNET_OPEN_REPLY = 4        /* bitnet_chat_tokenize: "Assistant: " at the end */
};

/* CPU features, as bits of bitnet_kernels.needs. They include the operating system's consent. */
enum {
    BITNET_CPU_AVX2 = 1,         /* and FMA */
    BITNET_CPU_F16C = 2,
    BITNET_CPU_AVX512 = 4,       /* F, BW, DQ and VL */
    BITNET_CPU_AVX512VNNI = 8,
    BITNET_CPU_AVXVNNI = 16,     /* VNNI on ymm registers, in CPUs without AVX-512 too */
    BITNET_CPU_AVX512VBMI = 32,
    BITNET_CPU_NEON = 64,
    BITNET_CPU_DOTPROD = 128,    /* SDOT and UDOT */
    BITNET_CPU_I8MM = 256,       /* SMMLA */
    BITNET_CPU_SIMD128 = 512,    /* WebAssembly: what the module was compiled with */
    BITNET_CPU_RELAXED = 1024    /* and relaxed SIMD, if the engine computes it right */
};

/* Inner loops. Public, so that they can be called and compared without a model, and so that a
   caller can bring a table of its own: bitnet_model_params.kernels borrows its strings for the
   model's life. Every entry gives the same bits as the scalar table's, whatever the input (where
   the result is a NaN, any NaN); a 0 entry means "take the scalar one".
   Weights have no alignment. Rows are contiguous; x, q and out are [cols][...], out_stride
   elements apart: out[c * out_stride + r] belongs to row r and column (token) c.
   A shortened float has at most 13 significant bits and lies in 2^-113 .. 2^100 or is 0: its
   product with an F16 is exact in a float, so a fused multiply-add gives the same bits. */
struct bitnet_kernels {
    const char *name;            /* scalar avx2 ... neon ... simd128 ...; avx2-tl2 ... */
    uint32_t needs;              /* BITNET_CPU_* bits, all required */
    /* Ternary weights in a layout of the table's own, made from I2_S when a model is loaded. All
       four 0: I2_S is read in place. Otherwise all four are needed, and dotrows_ternary, which
       reads the layout. Rows are packed together in groups of row_group, a power of two from 1 to
       256; the last group is filled up. Row r, a multiple of row_group, begins packed_bytes(n, r)
       bytes into a matrix. pack returns 0, or 1 if there is a code 3, which only I2_S can hold. A
       table that breaks these rules is BITNET_ERR_ARG when a model is loaded with it and in
       bitnet_selftest. */
    const char *layout;          /* its name, which bitnet_model_info.layout repeats: TL2 ... */
    int row_group;
    size_t (*packed_bytes)(int n, int rows);
    int (*pack)(const uint8_t *i2s, int n, int rows, uint8_t *out);
    /* q[i] = clamp(round_half_even(x[i] * s), -128, 127), s = 127 / max(max|x|, 1e-5); NaN gives
       -128. *sum = sum of q. Returns s. n is at most 2^20. */
    float (*quantize)(const float *x, int n, int8_t *q, int32_t *sum);
    /* out = sum over i of (code - 1) * q[i], exact; w is I2_S (128-group) or what pack made of it;
       n is a multiple of 128 and at most 2^20; q is [cols][n], sums [cols] is what quantize gave
       for each column. */
    void (*dotrows_ternary)(const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows,
                            int cols, int32_t *out, size_t out_stride);
    /* out = sum over i of w[i] * x[i] in the 16-lane order; w little-endian F32, F16 or BF16. */
    void (*dotrows_f32)(const uint8_t *w, const float *x, int n, int rows, int cols,
                        float *out, size_t out_stride);
    void (*dotrows_f16)(const uint8_t *w, const float *x, int n, int rows, int cols,
                        float *out, size_t out_stride);
    void (*dotrows_bf16)(const uint8_t *w, const float *x, int n, int rows, int cols,
                         float *out, size_t out_stride);
    /* The same as dotrows_f16, for shortened x: queries with the keys of an F16 cache. */
    void (*keys_f16)(const uint8_t *w, const float *x, int n, int rows, int cols, float *out,
                     size_t out_stride);
    /* out[c][i] += p[c][r] * w[r][i], r in order; w's rows are w_stride elements apart, p is
       [cols][p_stride], shortened in the case of F16, out [cols][n]. */
    void (*mixrows_f32)(const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n,
                        int rows, int cols, float *out);
    void (*mixrows_f16)(const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n,
                        int rows, int cols, float *out);
    /* x = softmax(x * scale) in place, shortened if asked for. n is at most 2^20. */
    void (*softmax)(float *x, int n, float scale, int shorten);
    /* Rotates the pairs (i, i + n_rot / 2) of x[n] by angles given as n_rot / 2 cosines, then as
       many sines; copies what lies beyond n_rot. y may be x. */
    void (*rope)(const float *x, const float *cos_sin, int n_rot, int n, int shorten, float *y);
    /* n floats as little-endian F16, rounded to nearest, ties to even. */
    void (*store_f16)(const float *x, int n, uint8_t *out);
    /* y[i] = dots[i] * f; with add: y[i] += dots[i] * f. */
    void (*dequantize)(const int32_t *dots, float f, int n, int add, float *y);
    /* y[i] = max(gate[i] * gate_f, 0)^2 * (up[i] * up_f). */
    void (*relu2_gate)(const int32_t *gate, float gate_f, const int32_t *up, float up_f, int n,
                       float *y);
    /* y[i] = x[i] / sqrt(mean(x^2) + eps) * gain[i]; y may be x. */
    void (*rmsnorm)(const float *x, const float *gain, int n, float eps, float *y);
    /* out = sum over i of (w[i] - 128) * q[i], exact, for q[i] from -64 to 64, so that a pair of
       products fits 16 bits; n at most 2^16; otherwise as dotrows_ternary. */
    void (*dotrows_u8)(const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows,
                       int cols, int32_t *out, size_t out_stride);
};

BITNET_API const char *bitnet_version(void);                     /* "major.minor.patch" */
BITNET_API const char *bitnet_result_text(bitnet_result r);      /* a few words; never 0 */
/* Makes n bytes of untrusted text (a name from a file, a path, what a model wrote) safe to show in
   one line. Each of these becomes one '?': a byte that is not UTF-8; a control character, newline
   and tab included; a code point that is invisible or changes the direction or the order of what
   surrounds it. Error texts are cleaned in the same way. Returns the length of the result, which is
   at most n. buf gets as many whole code points as fit, and a NUL (if cap > 0); it may be text
   itself. Without a buf (0) only the length is computed. Over INT32_MAX bytes: BITNET_ERR_LIMIT. */
BITNET_API int bitnet_clean_text(const char *text, size_t n, char *buf, size_t cap);

/* ---- models ---- */

/* Loads a GGUF file. params and err may be 0. Maps the file where the platform can, so that of the
   weights only the ternary ones are read now, once, to check them; the file must not change while
   the model lives. With copy it is read, and may change afterwards. */
#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_model_load_file(const char *path, const bitnet_model_params *params,
                                                bitnet_model **out, bitnet_error *err);
#endif
/* The same from memory. Borrows data, which must outlive the model and not change. */
BITNET_API bitnet_result bitnet_model_load_memory(const void *data, size_t size,
                                                  const bitnet_model_params *params,
                                                  bitnet_model **out, bitnet_error *err);
/* The same through callbacks; the weights are read into memory of the model's own. */
BITNET_API bitnet_result bitnet_model_load_io(const bitnet_io *io,
                                              const bitnet_model_params *params,
                                              bitnet_model **out, bitnet_error *err);
BITNET_API void bitnet_model_free(bitnet_model *m);              /* 0 is fine */
/* All zero for model 0. */
BITNET_API void bitnet_model_get_info(const bitnet_model *m, bitnet_model_info *info);

/* ---- text and tokens ---- */

/* A result of these is the length needed, as snprintf's, or a negative bitnet_result; at most cap
   elements are written, and none if out or buf is 0. bitnet_model_get_meta ends its text with NUL
   (if cap > 0), the others don't. Lengths over INT32_MAX, and such texts, are BITNET_ERR_LIMIT. */

/* The value of a metadata key as text (numbers in decimal); arrays are BITNET_ERR_UNSUPPORTED, a
   key that is not there is BITNET_ERR_ARG. */
BITNET_API int bitnet_model_get_meta(const bitnet_model *m, const char *key, char *buf, size_t cap);
/* text is n bytes, any bytes; flags: BITNET_ADD_BOS, BITNET_PARSE_SPECIAL. A single word of over
   64 MiB, or with a SentencePiece tokenizer a text of that size, is BITNET_ERR_LIMIT. */
BITNET_API int bitnet_tokenize(const bitnet_model *m, const char *text, size_t n, int flags,
                               bitnet_token *out, size_t cap);
/* The exact bytes of n tokens; special tokens give their names. A text that SentencePiece's
   tokenizer took apart comes back with a space in front. Tokens outside the vocabulary:
   BITNET_ERR_ARG. */
BITNET_API int bitnet_detokenize(const bitnet_model *m, const bitnet_token *tokens, int n,
                                 char *buf, size_t cap);
/* One token more of a stream: writes the whole code points that are complete now; bytes that can't
   be UTF-8 come out as U+FFFD. Needs cap >= 3 + 3 * the token's bytes. t = -1 flushes the end.
   Special tokens give nothing of their own and flush too. Returns the bytes written. */
BITNET_API int bitnet_detok_push(const bitnet_model *m, bitnet_detok *d, bitnet_token t,
                                 char *buf, size_t cap);
/* The id of the token with exactly this text (special ones included), or -1. */
BITNET_API bitnet_token bitnet_token_find(const bitnet_model *m, const char *text);
/* 1 if generation ends at t: EOS, <|eot_id|> or <|end_of_text|>; in the families bitnet and llama
   also what the file names as eot_token_id, or <|im_end|>. */
BITNET_API int bitnet_token_is_end(const bitnet_model *m, bitnet_token t);
/* Messages in the model's chat template, as tokens; n may be 0; flags: BITNET_ADD_BOS,
   BITNET_OPEN_REPLY. A role or content that is 0, or a role "": BITNET_ERR_ARG. A model whose
   template is not known: BITNET_ERR_UNSUPPORTED; see CHAT. */
BITNET_API int bitnet_chat_tokenize(const bitnet_model *m, const bitnet_message *messages, int n,
                                    int flags, bitnet_token *out, size_t cap);

/* ---- contexts ---- */

/* Bytes that a context with these parameters allocates; params may be 0: defaults. 0 if they are
   out of range. */
BITNET_API uint64_t bitnet_ctx_bytes(const bitnet_model *m, const bitnet_ctx_params *params);
/* Makes a context of a model, which must outlive it. params may be 0: defaults; err may be 0. What
   is out of range is BITNET_ERR_ARG, and err names it. */
BITNET_API bitnet_result bitnet_ctx_create(const bitnet_model *m, const bitnet_ctx_params *params,
                                           bitnet_ctx **out, bitnet_error *err);
BITNET_API void bitnet_ctx_free(bitnet_ctx *c);                  /* 0 is fine; see THREADS */
BITNET_API int32_t bitnet_ctx_length(const bitnet_ctx *c);       /* positions evaluated */
/* The token that bitnet_generate sampled last: it has been given to text_fn, but not evaluated. Any
   tokens that are appended next come after it. -1: there is none. */
BITNET_API bitnet_token bitnet_ctx_pending(const bitnet_ctx *c);
BITNET_API int32_t bitnet_ctx_capacity(const bitnet_ctx *c);     /* n_ctx */
BITNET_API int32_t bitnet_ctx_threads(const bitnet_ctx *c);      /* how many there are */
/* How many of the n_vocab logits the last bitnet_sample computed exactly. */
BITNET_API int32_t bitnet_ctx_exact_rows(const bitnet_ctx *c);
/* Keeps the first length positions and forgets the rest, the pending token in any case. More than
   there are: BITNET_ERR_ARG. */
BITNET_API bitnet_result bitnet_ctx_rewind(bitnet_ctx *c, int32_t length);
/* Appends n tokens, at least one; the pending token goes before them. If they don't all fit:
   BITNET_ERR_FULL; if one is outside the vocabulary: BITNET_ERR_ARG. all_logits 1 keeps logits for
   each of the n (over n_logits: BITNET_ERR_LIMIT), 0 for the last one. A NaN or an infinity, in an
   embedding or made on the way, as only damaged or hostile weights do: BITNET_ERR_FORMAT, with the
   first token that has one, its position and layer; the context is as before, but without logits,
   and can be used on. In the head alone they are no error: see bitnet_logits. */
BITNET_API bitnet_result bitnet_eval(bitnet_ctx *c, const bitnet_token *tokens, int32_t n,
                                     int all_logits, bitnet_error *err);
/* n_vocab logits of row i of the last bitnet_eval; -1: the last row. Computed when first asked
   for. Valid until the next bitnet_eval. 0 if there is no such row. A token whose row of the head
   has a NaN or an infinity has one for a logit, too, and nothing else comes of it: bitnet_sample
   still gives a token of the vocabulary, perhaps that one. */
BITNET_API const float *bitnet_logits(bitnet_ctx *c, int32_t i);
/* Draws the next token from the last row's logits; s 0 is greedy. -1 if nothing has been evaluated
   or s has no list of its biases. */
BITNET_API bitnet_token bitnet_sample(bitnet_ctx *c, bitnet_sampler *s);
/* Evaluates the prompt, then samples and evaluates tokens until something ends it; why may be 0.
   The last sampled token is not evaluated. However the text ended, it becomes the pending token,
   and the next call evaluates it first. Without a prompt (none given, or text "") a call goes on
   from the pending token, so that two calls of 20 tokens give what one of 40 gives. Nothing to
   start from: BITNET_ERR_ARG. A prompt that does not fit, with the pending token: BITNET_ERR_FULL.
   A context that becomes full ends the text with BITNET_STOP_LENGTH, after as many tokens as there
   is room for and one more.
   If the prompt fails or is cancelled, the context is as it was before the call, but without
   logits. If a later token fails, text_fn still gets the text that was held back, and the context
   keeps what was generated; that token is pending. */
BITNET_API bitnet_result bitnet_generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                         bitnet_stop *why, bitnet_error *err);

/* ---- kernels ---- */

BITNET_API int bitnet_kernels_count(void);                       /* all compiled in */
/* Best first, scalar last; those that pack weights are never chosen unasked. */
BITNET_API const bitnet_kernels *bitnet_kernels_get(int i);
BITNET_API const bitnet_kernels *bitnet_kernels_find(const char *name);  /* 0: not compiled in */
BITNET_API int bitnet_kernels_usable(const bitnet_kernels *k);   /* 1: this CPU and OS can run it */
/* What is taken where none is named: the best usable table that reads the file's weights in place.
   Packed ones read fewer bytes a token, but cost memory, and time when a model is loaded. */
BITNET_API const bitnet_kernels *bitnet_kernels_default(void);
/* Compares every entry with the scalar one, bit for bit, on fixed inputs, and the build with the
   rules under DETERMINISM. The shapes reach every path of this library's tables: tiles and panels,
   the ends of rows and columns, sums that are emptied on the way, packing. An entry that is 0, or
   the scalar one, is not compared. BITNET_ERR_SELFTEST: err names the entry and a shape.
   BITNET_ERR_ARG, BITNET_ERR_UNSUPPORTED: not a table that can be used here. Takes some 20 ms (70
   for scalar-tl2) and half a megabyte from malloc, which it gives back (BITNET_ERR_MEMORY). */
BITNET_API bitnet_result bitnet_selftest(const bitnet_kernels *k, bitnet_error *err);

/* ---- files: GGUF of any kind, to look into and to write ---- */

/* Types of metadata values, and of tensors as far as this library reads them. */
enum {
    BITNET_GGUF_U8, BITNET_GGUF_I8, BITNET_GGUF_U16, BITNET_GGUF_I16, BITNET_GGUF_U32,
    BITNET_GGUF_I32, BITNET_GGUF_F32, BITNET_GGUF_BOOL, BITNET_GGUF_STRING, BITNET_GGUF_ARRAY,
    BITNET_GGUF_U64, BITNET_GGUF_I64, BITNET_GGUF_F64
};
enum {
    BITNET_TENSOR_F32 = 0, BITNET_TENSOR_F16 = 1, BITNET_TENSOR_Q4_0 = 2, BITNET_TENSOR_Q8_0 = 8,
    BITNET_TENSOR_Q6_K = 14, BITNET_TENSOR_BF16 = 30, BITNET_TENSOR_TQ1_0 = 34,
    BITNET_TENSOR_TQ2_0 = 35, BITNET_TENSOR_I2_S = 36, BITNET_TENSOR_TL1 = 38,
    BITNET_TENSOR_TL2 = 39
};

typedef struct bitnet_gguf bitnet_gguf;   /* an open file; any number of threads; see FILES */

/* Data is as in the file: little-endian, unaligned, not NUL-terminated; in an array each string has
   its length in front, 8 bytes, and each array its elements' type and count, 4 and 8 bytes. */
typedef struct bitnet_gguf_value {
    uint32_t type, element;      /* BITNET_GGUF_*; element: an array's, else 0 */
    uint64_t count;              /* elements of an array; else 1 */
    uint64_t size;               /* bytes at data */
    const uint8_t *data;
} bitnet_gguf_value;

typedef struct bitnet_gguf_key {
    char name[257];              /* NUL-terminated */
    bitnet_gguf_value value;
} bitnet_gguf_key;

typedef struct bitnet_gguf_tensor {
    char name[257];              /* NUL-terminated */
    uint32_t type;               /* ggml's number, any */
    const char *type_name;       /* ggml's; 0: unknown here. Number 39 is TL2, or else MXFP4 */
    int32_t n_dims;              /* 1 to 4 */
    uint64_t dims[4];            /* row length, rows, ...; beyond n_dims: 1 */
    uint64_t offset;             /* of its data from the file's start */
    uint64_t size;               /* bytes; 0: a type whose size is not known here */
    const uint8_t *data;         /* 0: the file is read through callbacks, see bitnet_gguf_read */
} bitnet_gguf_tensor;

/* Opens a file whatever its architecture, with the checks that loading makes. As with models, a
   file is mapped where that can be, memory is borrowed, io is used until it is closed. allocator
   and err may be 0, here and in the next two. Values and tensors' data live until then. */
#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_gguf_open_file(const char *path, const bitnet_allocator *allocator,
                                               bitnet_gguf **out, bitnet_error *err);
#endif
/* The same from memory, borrowed until it is closed. */
BITNET_API bitnet_result bitnet_gguf_open_memory(const void *data, size_t size,
                                                 const bitnet_allocator *allocator,
                                                 bitnet_gguf **out, bitnet_error *err);
/* The same through callbacks; io is copied, what its ud points to must live until it is closed. */
BITNET_API bitnet_result bitnet_gguf_open_io(const bitnet_io *io, const bitnet_allocator *allocator,
                                             bitnet_gguf **out, bitnet_error *err);
BITNET_API void bitnet_gguf_close(bitnet_gguf *g);               /* 0 is fine */
/* Key i, in the file's order; BITNET_ERR_ARG if there are not so many. */
BITNET_API bitnet_result bitnet_gguf_get_key(const bitnet_gguf *g, uint64_t i,
                                             bitnet_gguf_key *out);
/* The key of this name; BITNET_ERR_ARG if there is none. */
BITNET_API bitnet_result bitnet_gguf_find_key(const bitnet_gguf *g, const char *name,
                                              bitnet_gguf_key *out);
/* Tensor i, in the file's order; BITNET_ERR_ARG if there are not so many. */
BITNET_API bitnet_result bitnet_gguf_get_tensor(const bitnet_gguf *g, uint64_t i,
                                                bitnet_gguf_tensor *out);
/* The tensor of this name; BITNET_ERR_ARG if there is none. */
BITNET_API bitnet_result bitnet_gguf_find_tensor(const bitnet_gguf *g, const char *name,
                                                 bitnet_gguf_tensor *out);
/* The next element of an array; *element {0} asks for the first one. Returns 0 at the end, and if
   value is no array. */
BITNET_API int bitnet_gguf_next(const bitnet_gguf_value *array, bitnet_gguf_value *element);
/* A value as text; as bitnet_model_get_meta. */
BITNET_API int bitnet_gguf_text(const bitnet_gguf_value *value, char *buf, size_t cap);
/* n bytes of a tensor's data, from byte at on, however the file was opened. */
BITNET_API bitnet_result bitnet_gguf_read(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                                          uint64_t at, void *dst, size_t n, bitnet_error *err);
/* ggml's name of a tensor's type; 0: unknown. Number 39 is TL2 here. */
BITNET_API const char *bitnet_tensor_type_name(uint32_t type);
/* Bytes of a tensor in a file; 0 if the type is unknown or cannot have this shape. */
BITNET_API uint64_t bitnet_tensor_size(uint32_t type, int32_t n_dims, const uint64_t *dims);

/* A matrix of ternary weights as a file has it. */
typedef struct bitnet_ternary {
    uint32_t type;               /* BITNET_TENSOR_I2_S, _TL1, _TL2, _TQ1_0 or _TQ2_0 */
    int32_t n, rows;             /* weights of a row, rows */
    bitnet_i2s_layout i2s_layout;    /* of I2_S; see PACKINGS */
    bitnet_tile tile;            /* of TL1 and TL2; 0: the one published for this shape */
} bitnet_ternary;

/* Can there be such a matrix? Fills in the tile. name is for err's text. The tensor's bytes are
   bitnet_tensor_size's; the last 32 of them begin with the scale, an F32. TQ1_0 and TQ2_0 have an
   F16 in each block of 256 weights instead. */
BITNET_API bitnet_result bitnet_ternary_check(bitnet_ternary *t, const char *name,
                                              bitnet_error *err);
/* Rows [row, row + n_rows) of a matrix that has passed that check, as -1, 0, 1: out [n_rows][n].
   data is the whole tensor. What is no weight: BITNET_ERR_FORMAT, with its place. */
BITNET_API bitnet_result bitnet_ternary_unpack(const bitnet_ternary *t, const uint8_t *data,
                                               int32_t row, int32_t n_rows, int8_t *out,
                                               bitnet_error *err);
/* The other way: sets these rows in data, the whole tensor; what is padding, or the scale, stays.
   Whole multiples of 32 rows are the fastest. */
BITNET_API bitnet_result bitnet_ternary_pack(const bitnet_ternary *t, const int8_t *weights,
                                             int32_t row, int32_t n_rows, uint8_t *data,
                                             bitnet_error *err);
/* The scale of such a tensor. Blocks of zeros may have any; if the others' differ, which no layer
   can have: BITNET_ERR_UNSUPPORTED, with both places. A tensor of zeros in blocks has 1. */
BITNET_API bitnet_result bitnet_ternary_scale(const bitnet_ternary *t, const uint8_t *data,
                                              float *out, bitnet_error *err);
/* The other way, when all rows are packed: in blocks it must be an F16, else
   BITNET_ERR_UNSUPPORTED; blocks of zeros get 0, as their quantizer writes it. */
BITNET_API bitnet_result bitnet_ternary_set_scale(const bitnet_ternary *t, float scale,
                                                  uint8_t *data, bitnet_error *err);
/* n weights in F32, F16, BF16, Q8_0, Q4_0 or Q6_K as floats. n is whole blocks. */
BITNET_API bitnet_result bitnet_floats_unpack(uint32_t type, const uint8_t *data, int32_t n,
                                              float *out, bitnet_error *err);
/* The other way, without Q4_0; BITNET_ERR_FORMAT if x holds a NaN or what the type cannot reach. */
BITNET_API bitnet_result bitnet_floats_pack(uint32_t type, const float *x, int32_t n, uint8_t *out,
                                            bitnet_error *err);

/* Writes a GGUF v3 file from its first byte to its last. {0} with write_fn set begins; then keys
   and tensors are added, the header is written, then each tensor's bytes in the order in which
   they were added, in pieces of any size. After a failure all calls return its code, so that it is
   enough to look at the end's; err has the text. Strings are copied. */
typedef struct bitnet_gguf_writer {
    int (*write_fn)(void *ud, const void *p, size_t n);   /* nonzero: it failed; must not call the
                                    writer */
    void *ud;
    bitnet_allocator allocator;  /* all zero: malloc */
    bitnet_error err;            /* the first failure */
    struct bitnet__writing *state;   /* the library's */
} bitnet_gguf_writer;

/* Names are UTF-8, a key's of 1 to 256 bytes, a tensor's of 1 to 64, and given once;
   general.alignment (a U32) sets what it says. */
BITNET_API bitnet_result bitnet_gguf_add_string(bitnet_gguf_writer *w, const char *name,
                                                const char *text);
BITNET_API bitnet_result bitnet_gguf_add_u32(bitnet_gguf_writer *w, const char *name, uint32_t v);
BITNET_API bitnet_result bitnet_gguf_add_f32(bitnet_gguf_writer *w, const char *name, float v);
BITNET_API bitnet_result bitnet_gguf_add_bool(bitnet_gguf_writer *w, const char *name, int v);
BITNET_API bitnet_result bitnet_gguf_add_i32s(bitnet_gguf_writer *w, const char *name,
                                              const int32_t *v, uint64_t n);
BITNET_API bitnet_result bitnet_gguf_add_f32s(bitnet_gguf_writer *w, const char *name,
                                              const float *v, uint64_t n);
/* lengths 0: the texts are NUL-terminated. */
BITNET_API bitnet_result bitnet_gguf_add_strings(bitnet_gguf_writer *w, const char *name,
                                                 const char *const *texts, const size_t *lengths,
                                                 uint64_t n);
/* Any value, such as another file's. */
BITNET_API bitnet_result bitnet_gguf_add_value(bitnet_gguf_writer *w, const char *name,
                                               const bitnet_gguf_value *value);
/* dims: row length, rows, ... The size is bitnet_tensor_size's. */
BITNET_API bitnet_result bitnet_gguf_add_tensor(bitnet_gguf_writer *w, const char *name,
                                                uint32_t type, int32_t n_dims,
                                                const uint64_t *dims);
BITNET_API bitnet_result bitnet_gguf_write_header(bitnet_gguf_writer *w);
/* n more bytes of the tensor that is due; a call never goes on into the next one. */
BITNET_API bitnet_result bitnet_gguf_write_data(bitnet_gguf_writer *w, const void *p, size_t n);
/* BITNET_ERR_ARG if bytes of a tensor are missing. Frees what the writer holds. */
BITNET_API bitnet_result bitnet_gguf_write_end(bitnet_gguf_writer *w);
/* Frees what the writer holds, whether or not it ended; 0 is fine. err stays. */
BITNET_API void bitnet_gguf_writer_free(bitnet_gguf_writer *w);
/* How large the file will be; 0 before the header is written. */
BITNET_API uint64_t bitnet_gguf_writer_total(const bitnet_gguf_writer *w);

#ifdef __cplusplus
}
#endif

#endif /* BITNET_H */

/* End of the interface. If you only use the library, stop reading here. */

#ifdef BITNET_IMPLEMENTATION
#ifndef BITNET__IMPLEMENTED
#define BITNET__IMPLEMENTED

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifndef BITNET_VSNPRINTF
  #include <stdio.h>
  #define BITNET_VSNPRINTF vsnprintf
#endif

/* Floats must mean the same everywhere: see DETERMINISM at the top. */
#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
  #error "bitnet.h: -ffast-math (MSVC: /fp:fast) reorders sums; compile this file without it"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__   /* no check of a file would see a NaN */
  #error "bitnet.h: -ffinite-math-only removes checks for NaN; compile this file without it"
#endif
#if defined(__clang__)
  #pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
  #pragma GCC push_options
  #pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
  #pragma fp_contract(off)
#endif

/* Compilers whose intrinsics and atomics we know, without those that only take gcc's name. All
   others make plain C of it, without threads. */
#if (defined(__GNUC__) || defined(__clang__) || defined(_MSC_VER)) && !defined(__TINYC__) && \
    !defined(__PCC__)
  #define BITNET__KNOWN_COMPILER 1
#else
  #define BITNET__KNOWN_COMPILER 0
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
  #define BITNET__ARCH_X86 1
#else
  #define BITNET__ARCH_X86 0
#endif
/* ARMv7-A too, where the compiler can make NEON: gcc by an attribute, clang by an option. */
#if (defined(__aarch64__) && !defined(__AARCH64EB__)) || defined(_M_ARM64)
  #define BITNET__ARCH_ARM 1
#elif defined(__arm__) && !defined(__ARMEB__) && defined(__ARM_ARCH_PROFILE) && \
    (defined(__ARM_NEON) || (defined(__ARM_FP) && !defined(__clang__)))
  #define BITNET__ARCH_ARM (__ARM_ARCH >= 7 && __ARM_ARCH_PROFILE == 'A')
#else
  #define BITNET__ARCH_ARM 0
#endif
#ifdef __wasm_simd128__
  #define BITNET__ARCH_WASM 1
#else
  #define BITNET__ARCH_WASM 0
#endif

#ifndef BITNET_NO_STDIO
  #if defined(_WIN32)
    #define BITNET__FILES_WIN32 1
  #elif defined(__unix__) || defined(__APPLE__)
    #define BITNET__FILES_POSIX 1
  #endif
#endif
#ifndef BITNET_NO_MMAP
  #if defined(BITNET__FILES_WIN32)
    #define BITNET__MMAP_WIN32 1
  #elif defined(BITNET__FILES_POSIX) && !defined(__EMSCRIPTEN__)
    #define BITNET__MMAP_POSIX 1
  #endif
#endif
#ifndef BITNET_NO_THREADS
  #if !BITNET__KNOWN_COMPILER
  #elif defined(_WIN32)
    #define BITNET__THREADS_WIN32 1
  #elif defined(__EMSCRIPTEN__) && !defined(__EMSCRIPTEN_PTHREADS__)   /* without -pthread */
  #elif defined(__unix__) || defined(__APPLE__)
    #define BITNET__THREADS_POSIX 1
  #endif
#endif
#if defined(BITNET__FILES_WIN32) || defined(BITNET__THREADS_WIN32) || \
    (defined(_WIN32) && BITNET__ARCH_ARM)
  #ifndef WIN32_LEAN_AND_MEAN
    #define WIN32_LEAN_AND_MEAN
    #define BITNET__LEAN
  #endif
  #ifndef NOMINMAX
    #define NOMINMAX
    #define BITNET__NOMINMAX
  #endif
  #include <windows.h>
#endif
#ifdef BITNET__FILES_POSIX
  #include <errno.h>
  #include <fcntl.h>
  #include <sys/stat.h>
  #include <unistd.h>
#elif !defined(BITNET_NO_STDIO) && !defined(BITNET__FILES_WIN32)
  #include <errno.h>
  #include <stdio.h>
#endif
#ifdef BITNET__MMAP_POSIX
  #include <sys/mman.h>
#endif
#ifdef BITNET__THREADS_POSIX
  #include <pthread.h>
  #include <signal.h>
  #include <sys/time.h>
  #include <time.h>
  #include <unistd.h>
#endif
#if defined(BITNET__THREADS_POSIX) && defined(__linux__) && !defined(BITNET_NO_STDIO)
  #define BITNET__CPU_QUOTA 1          /* control groups, whose files are text */
  #include <stdio.h>
#endif

#ifdef BITNET_STATIC   /* a program that uses half of the functions should not hear of the rest */
  #if defined(__GNUC__)
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wunused-function"
  #endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =============================================================================================
   >>util  memory, error texts, little-endian loads, float formats
   No other part calls malloc or formats text. Every load from a file or a weight goes through
   memcpy or bytes, because nothing in a file is sure to be aligned.
   ============================================================================================= */

#define BITNET__MAX_ROW (1 << 20)  /* the longest row of weights: integer sums stay inside int32 */
#define BITNET__TEXT 128           /* bytes of a short text */
#define BITNET__LANES 16           /* partial sums of every float sum */
#define BITNET__MAX_GROUP 256      /* rows that a kernel table may pack together */

static void *bitnet__alloc(const bitnet_allocator *a, size_t size) {
    char *raw, *p;
    if (a->alloc_fn) return a->alloc_fn(a->ud, size, 64);
    if (size > SIZE_MAX - 128) return 0;
    raw = (char *)malloc(size + 128);
    if (!raw) return 0;
    /* The pointer that free wants stands just below the aligned block. */
    p = raw + 64;
    p += (64 - ((uintptr_t)p & 63)) & 63;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

static void bitnet__free(const bitnet_allocator *a, void *p) {
    void *raw;
    if (!p) return;
    if (a->alloc_fn) {
        a->free_fn(a->ud, p);
        return;
    }
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}

/* Asks for large pages under weights that are streamed through for each token: looking up small
   ones took 5 to 20 % of the time. Only for our own malloc; hidden by a strict -std=c99. */
static void bitnet__huge_pages(const bitnet_allocator *a, void *p, size_t size) {
#if defined(BITNET__MMAP_POSIX) && defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t to = ((uintptr_t)p + size) / page * page;
    if (!a->alloc_fn && from < to) madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
    (void)a; (void)p; (void)size;
}

static uint32_t bitnet__utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *cp);

/* Code points that do not show: controls, separators of lines, marks of annotations, and all that
   Unicode calls Default_Ignorable_Code_Point: what has no width, what turns the direction of
   writing, fillers, variation selectors, tags. They could upset a terminal, hide something, or show
   another text than what is there. */
static const uint32_t bitnet__unseen[][2] = {
    {0, 0x1F}, {0x7F, 0x9F}, {0xAD, 0xAD}, {0x34F, 0x34F}, {0x61C, 0x61C}, {0x115F, 0x1160},
    {0x17B4, 0x17B5}, {0x180B, 0x180F}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
    {0x3164, 0x3164}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}, {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFB},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}
};

static int bitnet__shows(uint32_t cp) {
    size_t i;
    for (i = 0; i < sizeof bitnet__unseen / sizeof bitnet__unseen[0]; i++)
        if (cp >= bitnet__unseen[i][0] && cp <= bitnet__unseen[i][1]) return 0;
    return 1;
}

BITNET_API int bitnet_clean_text(const char *text, size_t n, char *buf, size_t cap) {
    const uint8_t *p = (const uint8_t *)text, *end;
    size_t length = 0, kept = 0;
    if (!text && n > 0) return BITNET_ERR_ARG;
    if (n > INT32_MAX) return BITNET_ERR_LIMIT;
    for (end = n ? p + n : p; p < end; ) {
        uint32_t cp, size = bitnet__utf8_decode(p, end, &cp);
        const int shows = size > 0 && bitnet__shows(cp);
        const uint32_t out = shows ? size : 1;
        if (buf && kept == length && cap > length && cap - length > out) {
            if (shows) memmove(buf + length, p, size);
            else buf[length] = '?';
            kept += out;
        }
        length += out;
        p += size ? size : 1;
    }
    if (buf && cap > 0) buf[kept] = 0;
    return (int)length;
}

static void bitnet__clean_text(char *text) {
    bitnet_clean_text(text, strlen(text), text, strlen(text) + 1);
}

/* Fills err (if there is one) and returns code, so that failing is one statement. A number that
   could be the lowest int goes in as %lld: stb_sprintf negates within the type. */
static bitnet_result bitnet__fail(bitnet_error *err, bitnet_result code, const char *format, ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    va_start(args, format);
    BITNET_VSNPRINTF(err->text, (int)sizeof err->text, format, args);
    va_end(args);
    err->text[sizeof err->text - 1] = 0;
    bitnet__clean_text(err->text);
    return code;
}

/* Short texts: keys, tensor names, numbers. Whatever does not fit is cut. */
static void bitnet__format(char buf[BITNET__TEXT], const char *format, ...) {
    va_list args;
    va_start(args, format);
    BITNET_VSNPRINTF(buf, (int)BITNET__TEXT, format, args);
    va_end(args);
}

/* Why the last call of the system failed, in its words: "No such file or directory". */
#if defined(BITNET__FILES_WIN32)
static void bitnet__system_reason(char buf[BITNET__TEXT]) {
    const DWORD code = GetLastError();
    WCHAR wide[512];                       /* Windows gives nothing at all of what does not fit */
    char text[3 * 512 + 1];                /* a unit of UTF-16 is 3 bytes of UTF-8 at most */
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                             FORMAT_MESSAGE_MAX_WIDTH_MASK, 0, code, 0, wide, 512, 0);
    int size;
    while (n > 0 && (wide[n - 1] == ' ' || wide[n - 1] == '.')) n--;
    size = WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, text, (int)sizeof text - 1, 0, 0);
    text[size] = 0;
    if (size > 0) bitnet__format(buf, "%s", text);
    else bitnet__format(buf, "error %lu of the system", (unsigned long)code);
}
#elif !defined(BITNET_NO_STDIO)
static void bitnet__system_reason(char buf[BITNET__TEXT]) {
    const int code = errno;
  #if defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__)
    if (strerror_r(code, buf, BITNET__TEXT)) bitnet__format(buf, "error %d of the system", code);
  #else                                    /* glibc, musl and bionic: any thread may call it */
    bitnet__format(buf, "%s", code ? strerror(code) : "the system gives no reason");
  #endif
}
#endif

/* Order of two strings: by bytes, a prefix before what it begins. */
static int bitnet__compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len) {
    const int c = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* Element i of a list of numbers, each stride bytes behind the one before. */
static uint32_t *bitnet__nth(uint32_t *list, size_t stride, uint32_t i) {
    return (uint32_t *)(void *)((char *)list + i * stride);
}

/* Heap sort of such a list, whose numbers stand for things in of: qsort() could neither see those
   nor be kept from allocating, and some inputs may take it long. */
static void bitnet__sort(uint32_t *list, size_t stride, uint32_t n,
                         int (*less)(const void *of, uint32_t a, uint32_t b), const void *of) {
    uint32_t build = n / 2, parent, child, value;
    while (n > 1) {
        if (build > 0) {                        /* first make every parent the largest... */
            value = *bitnet__nth(list, stride, --build);
            parent = build;
        } else {                                /* ...then move the root behind the heap */
            value = *bitnet__nth(list, stride, --n);
            *bitnet__nth(list, stride, n) = list[0];
            parent = 0;
        }
        for (child = 2 * parent + 1; child < n; child = 2 * parent + 1) {
            if (child + 1 < n && less(of, *bitnet__nth(list, stride, child),
                                      *bitnet__nth(list, stride, child + 1)))
                child++;
            if (!less(of, value, *bitnet__nth(list, stride, child))) break;
            *bitnet__nth(list, stride, parent) = *bitnet__nth(list, stride, child);
            parent = child;
        }
        *bitnet__nth(list, stride, parent) = value;
    }
}

static uint16_t bitnet__get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t bitnet__get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t bitnet__get_u64(const uint8_t *p) {
    return (uint64_t)bitnet__get_u32(p) | (uint64_t)bitnet__get_u32(p + 4) << 32;
}

static uint32_t bitnet__float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float bitnet__float_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* F16 (1 sign, 5 exponent, 10 mantissa bits) to F32, exact. Shifted into F32's places the exponent
   is 112 too small; for normals that is an addition, for subnormals a subtraction of floats
   normalises. NaN becomes quiet and keeps its payload, as F16C and NEON do it. */
static float bitnet__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13, bits;
    if (rest >= 0x0f800000u) bits = rest | 0x7f800000u | (rest > 0x0f800000u ? 0x400000u : 0u);
    else if (rest >= 0x00800000u) bits = rest + 0x38000000u;
    else bits = bitnet__float_bits(bitnet__float_from_bits(rest + 0x38800000u) -
                                   bitnet__float_from_bits(0x38800000u));
    return bitnet__float_from_bits(sign | bits);
}

/* F32 to F16, round to nearest, ties to even; overflow to infinity; NaN quiet, payload cut. */
static uint16_t bitnet__f32_to_f16(float x) {
    uint32_t bits = bitnet__float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);   /* >= 65520 rounds to infinity */
    if (rest < 0x38800000u) {
        /* Below 2^-14 an F16's last bit is worth 2^-24, which is also what F32's last bit is worth
           at 0.5: adding 0.5 rounds to it. */
        float y = bitnet__float_from_bits(rest) + 0.5f;
        return (uint16_t)(sign | (bitnet__float_bits(y) - 0x3f000000u));
    }
    rest += 0xfff + (rest >> 13 & 1);                            /* ties to even */
    return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}

static float bitnet__load_f32(const uint8_t *p) {
    return bitnet__float_from_bits(bitnet__get_u32(p));
}
static float bitnet__load_f16(const uint8_t *p) { return bitnet__f16_to_f32(bitnet__get_u16(p)); }
static float bitnet__load_bf16(const uint8_t *p) {
    return bitnet__float_from_bits((uint32_t)bitnet__get_u16(p) << 16);
}

/* A GGUF string array whose bytes the reader has checked: count strings, each u64 length, bytes. */
typedef struct bitnet__strings {
    const uint8_t *data;
    size_t size;
    uint64_t count;
} bitnet__strings;

/* =============================================================================================
   >>math  exp, log, sqrt, sin, cos
   libm differs from machine to machine in the last bit, so these are ours: additions,
   multiplications and divisions in a fixed order, which IEEE-754 defines to the bit.
   ============================================================================================= */

/* The nearest integer, ties to even, for |x| < 2^51: above 1.5 * 2^52 a double has no fraction, so
   the addition rounds. */
static double bitnet__round(double x) {
    volatile double big = x + 6755399441055744.0;  /* volatile: no compiler may cancel it */
    return big - 6755399441055744.0;
}

/* x * 2^e for results in the normal range. */
static double bitnet__scale2(double x, int e) {
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double two_e;
    memcpy(&two_e, &bits, 8);
    return x * two_e;
}

/* sqrt by Newton's iteration from a guess that halves the exponent: 5 steps reach double's
   precision from the guess's 6 %. Only positive normal x is meaningful; nothing is undefined. */
static double bitnet__sqrt(double x) {
    uint64_t bits;
    double y;
    int i;
    memcpy(&bits, &x, 8);
    bits = (bits >> 1) + 0x1ff8000000000000u;
    memcpy(&y, &bits, 8);
    for (i = 0; i < 5; i++) y = 0.5 * (y + x / y);
    return y;
}

/* exp for |x| <= 700: x = n ln 2 + r, |r| <= 0.35, Taylor to r^14 / 14! (under 1e-17). ln 2 is
   split so that n times the first part is exact. */
static double bitnet__exp(double x) {
    double n = bitnet__round(x * 1.4426950408889634074);
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double term = 1.0, sum = 1.0;
    int i;
    for (i = 1; i <= 14; i++) {
        term = term * r / (double)i;
        sum += term;
    }
    return bitnet__scale2(sum, (int)n);
}

/* log for positive normal x: x = 2^e m, m in [0.7, 1.41], log m = 2 artanh((m - 1) / (m + 1)). */
static double bitnet__log(double x) {
    uint64_t bits;
    int e, i;
    double m, z, z2, sum = 0.0;
    memcpy(&bits, &x, 8);
    e = (int)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    z = (m - 1.0) / (m + 1.0);
    z2 = z * z;
    for (i = 25; i >= 1; i -= 2) sum = sum * z2 + 1.0 / (double)i;
    return (double)e * 0.69314718055994530942 + 2.0 * z * sum;
}

/* sin and cos for |x| < 2^20: x = n pi/2 + r. pi/2 comes in three parts of 33 bits, so that n times
   each is exact; r is good to 1e-15. Taylor series to r^17 and r^18, |r| <= 0.79. */
static void bitnet__sincos(double x, double *s, double *c) {
    double n = bitnet__round(x * 0.63661977236758134308);
    double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11)
               - n * 2.02226624871116645580e-21;
    double r2 = r * r, sin_r = 0.0, cos_r = 0.0;
    int i, quadrant = (int)((int64_t)n & 3);
    for (i = 17; i >= 3; i -= 2) sin_r = (sin_r + 1.0) * -r2 / (double)(i * (i - 1));
    sin_r = (sin_r + 1.0) * r;
    for (i = 18; i >= 2; i -= 2) cos_r = (cos_r + 1.0) * -r2 / (double)(i * (i - 1));
    cos_r += 1.0;
    *s = quadrant == 0 ? sin_r : quadrant == 1 ? cos_r : quadrant == 2 ? -sin_r : -cos_r;
    *c = quadrant == 0 ? cos_r : quadrant == 1 ? -sin_r : quadrant == 2 ? -cos_r : sin_r;
}

/* exp in float for softmax, argument clamped to [-64, 88] (NaN counts as -64): n ln 2 + r as above,
   Taylor to r^6 / 6!, relative error under 3e-7. e^-64 is 2^-92, so even among 2^20 others it
   leaves a probability over 2^-113, whose last of 13 bits is worth 2^-125. */
static float bitnet__expf(float x) {
    float t, n, r, p;
    x = x > -64.0f ? x : -64.0f;
    x = x < 88.0f ? x : 88.0f;
    t = x * 1.44269504f + 12582912.0f;                 /* 1.5 * 2^23: the sum's low bits are n */
    n = t - 12582912.0f;
    r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  /* 9 bits: n times it is exact */
    p = r * (1.0f / 720.0f) + (1.0f / 120.0f);
    p = p * r + (1.0f / 24.0f);
    p = p * r + (1.0f / 6.0f);
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return bitnet__float_from_bits(bitnet__float_bits(p) + (bitnet__float_bits(t) << 23));
}

/* x rounded to 13 significant bits by Veltkamp's splitting. An F16 has 11, and its last bit is
   worth 2^-24 or more: the product has 24 bits, the last worth 2^-149 or more, and is exact. */
static float bitnet__round13(float x) {
    float t = x * 2049.0f;
    return t - (t - x);
}

/* Shortened: rounded so, held within 2^100, and 0 below 2^-100. NaN stays. */
static float bitnet__shorten(float x) {
    const float huge = 1.2676506e30f, tiny = 7.8886091e-31f;
    if (x < tiny && x > -tiny) return 0.0f;
    x = -huge > x ? -huge : x;
    x = huge < x ? huge : x;
    return bitnet__round13(x);
}

/* =============================================================================================
   >>kernels  the scalar table, which defines every result
   A kernel header may replace an entry by a faster one that gives the same bits. Float sums keep
   16 partial sums: element i goes into sum i % 16, then the tree. Missing elements are no
   additions, which equals adding +0 (no partial sum is ever -0: they start at +0), so SIMD may
   pad with zeros.
   ============================================================================================= */

/* The tree: lanes 8 apart, 4, 2, 1. */
static float bitnet__sum_lanes(float *lanes) {
    int step, i;
    for (step = BITNET__LANES / 2; step > 0; step /= 2)
        for (i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return lanes[0];
}

/* max|x| is taken on the bits: for floats without their sign, integer order is float order, and a
   NaN comes out largest, whatever the order of comparing. The comparisons are written so that a NaN
   falls through to the constant, as maxps and NEON's compare-and-select do. */
static float bitnet__quantize_scalar(const float *x, int n, int8_t *q, int32_t *sum) {
    uint32_t top = 0;
    int32_t total = 0;
    float a, s;
    int i;
    for (i = 0; i < n; i++) {
        uint32_t bits = bitnet__float_bits(x[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    a = bitnet__float_from_bits(top);
    a = a > 1e-5f ? a : 1e-5f;
    s = 127.0f / a;
    for (i = 0; i < n; i++) {
        float t = x[i] * s;
        int32_t r;
        t = t > -128.0f ? t : -128.0f;
        t = t < 127.0f ? t : 127.0f;
        /* t + 1.5 * 2^23 rounds t to an integer, ties to even, in the low bits. */
        r = (int32_t)(bitnet__float_bits(t + 12582912.0f) - 0x4b400000u);
        q[i] = (int8_t)r;
        total += r;
    }
    *sum = total;
    return s;
}

/* I2_S, 128-group: a block is 32 bytes; byte j holds the codes (weight + 1) of

       bits  7-6   5-4    3-2    1-0
             j     32+j   64+j   96+j          j = 0 .. 31

   Bound: a code is at most 3 (2 in a valid file) and |q| <= 128, so |sum of code * q| <= 384 n,
   under 2^31 for n <= 2^20 (BITNET__MAX_ROW) with room to spare; the correction subtracts the sum
   of q. */
static void bitnet__dotrows_i2s_scalar(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    int r, c, b, j;
    for (r = 0; r < rows; r++, w += n / 4) {
        for (c = 0; c < cols; c++) {
            const int8_t *a = q + (size_t)c * (size_t)n;
            const uint8_t *p = w;
            int32_t dot = 0;
            for (b = 0; b < n / 128; b++, p += 32, a += 128)
                for (j = 0; j < 32; j++)
                    dot += (p[j] >> 6) * a[j] + (p[j] >> 4 & 3) * a[32 + j] +
                           (p[j] >> 2 & 3) * a[64 + j] + (p[j] & 3) * a[96 + j];
            out[(size_t)c * out_stride + (size_t)r] = dot - sums[c];
        }
    }
}

/* TL2: three ternary weights in 5 bits, four of them and a fifth. A group is 16 rows; a row's
   weights are taken 24 at a time (the last 24 filled up with code 0, which adds nothing), eight
   triples: triple (h, t), h < 2, t < 4, has weights 12 h + t, 12 h + 4 + t and 12 h + 8 + t, so
   that place k of four triples meets four neighbouring activations. Four times 24 weights, i = 0
   to 3, are a block:

       bytes   0 ..  63   fifths    byte 4 row + t, bit 2 i + h
              64 .. 127   nibbles   i = 0: byte 4 row + t, bits 3-0 for h = 0, 7-4 for h = 1
             128 .. 319             i = 1, 2, 3 likewise

   A last block of fewer than four ends after the nibbles it needs. Groups follow one another; a
   group's missing rows repeat the matrix's last one. Nibble 5 b + m and fifth s stand for the
   codes (weight + 1) a, b, c of a triple:

       m   0 1 2    3      4
       a   m        2 s    1      s = 0 in the last column
       c   s        2      2

   so b depends on the nibble alone, and the fifth decides only between two values of a or c. */
enum { BITNET__TL2_ROWS = 16, BITNET__TL2_BLOCK = 320 };

static const uint8_t bitnet__tl2_codes[3][32] = {   /* a, b, c; by nibble, then fifth 0 and 1 */
    {0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0,
     0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 0},
    {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0,
     0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0},
    {0, 0, 0, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0, 2, 2, 0,
     1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 0}
};
static const uint8_t bitnet__tl2_pack[2][16] = {    /* the way back: m, s by a + 4 c */
    {0, 1, 2, 0, 0, 1, 2, 0, 3, 4, 3, 0, 0, 0, 0, 0},
    {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}
};

/* Bytes of a group whose rows are count times 24 weights. */
static size_t bitnet__tl2_bytes(int count) {
    size_t rest = count % 4 ? 64 + (size_t)(count % 4) * 64 : 0;
    return (size_t)(count / 4) * BITNET__TL2_BLOCK + rest;
}

static size_t bitnet__packed_bytes_tl2(int n, int rows) {
    return (size_t)((rows + 15) / 16) * bitnet__tl2_bytes((n + 23) / 24);
}

static size_t bitnet__i2s_bytes(int n, int rows) { return (size_t)rows * (size_t)(n / 4); }

/* Code i of a row of I2_S; 0 past its end. */
static uint32_t bitnet__i2s_code(const uint8_t *row, int n, int i) {
    return i < n ? (uint32_t)row[i / 128 * 32 + i % 32] >> (6 - 2 * (i % 128 / 32)) & 3u : 0u;
}

static int bitnet__pack_tl2_scalar(const uint8_t *i2s, int n, int rows, uint8_t *out) {
    const int count = (n + 23) / 24;
    uint32_t bad = 0;
    int r, i, x;
    memset(out, 0, bitnet__packed_bytes_tl2(n, rows));
    for (r = 0; r < (rows + 15) / 16 * 16; r++) {
        const uint8_t *row = i2s + (size_t)(r < rows ? r : rows - 1) * (size_t)(n / 4);
        uint8_t *group = out + (size_t)(r / 16) * bitnet__tl2_bytes(count) + r % 16 * 4;
        for (i = 0; i < count; i++) {
            uint8_t *block = group + (size_t)(i / 4) * BITNET__TL2_BLOCK;
            for (x = 0; x < 8; x++) {  /* h = x / 4, t = x % 4 */
                const int at = 24 * i + x / 4 * 12 + x % 4;
                const uint32_t a = bitnet__i2s_code(row, n, at);
                const uint32_t b = bitnet__i2s_code(row, n, at + 4);
                const uint32_t c = bitnet__i2s_code(row, n, at + 8);
                const uint32_t nibble = (5 * b + bitnet__tl2_pack[0][a + 4 * c]) & 15;
                const uint32_t fifth = bitnet__tl2_pack[1][a + 4 * c];
                bad |= (a & a >> 1) | (b & b >> 1) | (c & c >> 1);
                block[64 + i % 4 * 64 + x % 4] |= (uint8_t)(nibble << x / 4 * 4);
                block[x % 4] |= (uint8_t)(fifth << (i % 4 * 2 + x / 4));
            }
        }
    }
    return bad != 0;
}

/* Bound: as for I2_S, with codes up to 2. */
static void bitnet__dotrows_tl2_scalar(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    const int count = (n + 23) / 24;
    int r, c, i, x, k, at;
    for (r = 0; r < rows; r++) {
        const uint8_t *group = w + (size_t)(r / 16) * bitnet__tl2_bytes(count) + r % 16 * 4;
        for (c = 0; c < cols; c++) {
            const int8_t *a = q + (size_t)c * (size_t)n;
            int32_t dot = 0;
            for (i = 0; i < count; i++) {
                const uint8_t *block = group + (size_t)(i / 4) * BITNET__TL2_BLOCK;
                for (x = 0; x < 8; x++) {
                    const int nibble = block[64 + i % 4 * 64 + x % 4] >> x / 4 * 4 & 15;
                    const int fifth = block[x % 4] >> (i % 4 * 2 + x / 4) & 1;
                    for (k = 0, at = 24 * i + x / 4 * 12 + x % 4; k < 3 && at < n; k++, at += 4)
                        dot += bitnet__tl2_codes[k][nibble + 16 * fifth] * a[at];
                }
            }
            out[(size_t)c * out_stride + (size_t)r] = dot - sums[c];
        }
    }
}

/* Three float formats, one loop each: dot products of rows, and weighted sums of rows. */
#define BITNET__DEFINE_DOTROWS(type, bytes) \
    static void bitnet__dotrows_##type##_scalar(const uint8_t *w, const float *x, int n, int rows, \
                                                int cols, float *out, size_t out_stride) { \
        int r, c, i, j; \
        for (r = 0; r < rows; r++, w += (size_t)n * (bytes)) { \
            for (c = 0; c < cols; c++) { \
                const float *a = x + (size_t)c * (size_t)n; \
                float lanes[BITNET__LANES] = {0}; \
                for (i = 0; i + BITNET__LANES <= n; i += BITNET__LANES) \
                    for (j = 0; j < BITNET__LANES; j++) \
                        lanes[j] += bitnet__load_##type(w + (size_t)(i + j) * (bytes)) * a[i + j]; \
                for (j = 0; i + j < n; j++) \
                    lanes[j] += bitnet__load_##type(w + (size_t)(i + j) * (bytes)) * a[i + j]; \
                out[(size_t)c * out_stride + (size_t)r] = bitnet__sum_lanes(lanes); \
            } \
        } \
    }
#define BITNET__DEFINE_MIXROWS(type, bytes) \
    static void bitnet__mixrows_##type##_scalar(const uint8_t *w, size_t w_stride, const float *p, \
                                                size_t p_stride, int n, int rows, int cols, \
                                                float *out) { \
        int r, c, i; \
        for (c = 0; c < cols; c++, p += p_stride, out += n) { \
            const uint8_t *v = w; \
            for (r = 0; r < rows; r++, v += w_stride * (bytes)) \
                for (i = 0; i < n; i++) \
                    out[i] += p[r] * bitnet__load_##type(v + (size_t)i * (bytes)); \
        } \
    }
BITNET__DEFINE_DOTROWS(f32, 4)
BITNET__DEFINE_DOTROWS(f16, 2)
BITNET__DEFINE_DOTROWS(bf16, 2)
BITNET__DEFINE_MIXROWS(f32, 4)
BITNET__DEFINE_MIXROWS(f16, 2)

static void bitnet__softmax_scalar(float *x, int n, float scale, int shorten) {
    float lanes[BITNET__LANES] = {0}, top = -3.4e38f, inv;
    int i;
    for (i = 0; i < n; i++) {
        x[i] *= scale;
        top = x[i] > top ? x[i] : top;
    }
    for (i = 0; i < n; i++) {
        x[i] = bitnet__expf(x[i] - top);
        lanes[i % BITNET__LANES] += x[i];
    }
    inv = 1.0f / bitnet__sum_lanes(lanes);
    for (i = 0; i < n; i++) x[i] = shorten ? bitnet__round13(x[i] * inv) : x[i] * inv;
}

static void bitnet__rope_scalar(const float *x, const float *cos_sin, int n_rot, int n,
                                int shorten, float *y) {
    int i, half = n_rot / 2;
    for (i = 0; i < half; i++) {
        float a = x[i], b = x[half + i], cs = cos_sin[i], sn = cos_sin[half + i];
        y[i] = a * cs - b * sn;
        y[half + i] = b * cs + a * sn;
    }
    for (i = n_rot; i < n; i++) y[i] = x[i];
    for (i = 0; i < n && shorten; i++) y[i] = bitnet__shorten(y[i]);
}

static void bitnet__store_f16_scalar(const float *x, int n, uint8_t *out) {
    int i;
    for (i = 0; i < n; i++) {
        uint16_t h = bitnet__f32_to_f16(x[i]);
        out[2 * i] = (uint8_t)h;
        out[2 * i + 1] = (uint8_t)(h >> 8);
    }
}

static void bitnet__dequantize_scalar(const int32_t *dots, float f, int n, int add, float *y) {
    int i;
    for (i = 0; i < n; i++) y[i] = add ? y[i] + (float)dots[i] * f : (float)dots[i] * f;
}

static void bitnet__relu2_gate_scalar(const int32_t *gate, float gate_f, const int32_t *up,
                                      float up_f, int n, float *y) {
    int i;
    for (i = 0; i < n; i++) {
        float g = (float)gate[i] * gate_f;
        g = g > 0.0f ? g : 0.0f;
        y[i] = g * g * ((float)up[i] * up_f);
    }
}

static void bitnet__rmsnorm_scalar(const float *x, const float *gain, int n, float eps, float *y) {
    float lanes[BITNET__LANES] = {0}, mean, inv;
    int i;
    for (i = 0; i < n; i++) lanes[i % BITNET__LANES] += x[i] * x[i];
    mean = bitnet__sum_lanes(lanes) / (float)n;
    inv = (float)(1.0 / bitnet__sqrt((double)mean + (double)eps));
    for (i = 0; i < n; i++) y[i] = x[i] * inv * gain[i];
}

/* Bytes that stand for -128 .. 127. Bound: 255 * 64 n, before or after it 128 times the sum of q,
   at most 8192 n: under 2^31 for n <= 2^16. */
static void bitnet__dotrows_u8_scalar(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                      int n, int rows, int cols, int32_t *out,
                                      size_t out_stride) {
    int r, c, i;
    for (r = 0; r < rows; r++, w += n) {
        for (c = 0; c < cols; c++) {
            const int8_t *a = q + (size_t)c * (size_t)n;
            int32_t dot = 0;
            for (i = 0; i < n; i++) dot += w[i] * a[i];
            out[(size_t)c * out_stride + (size_t)r] = dot - 128 * sums[c];
        }
    }
}

#define BITNET__SCALAR_ENTRIES(ternary) \
    bitnet__quantize_scalar, ternary, bitnet__dotrows_f32_scalar, bitnet__dotrows_f16_scalar, \
    bitnet__dotrows_bf16_scalar, bitnet__dotrows_f16_scalar, bitnet__mixrows_f32_scalar, \
    bitnet__mixrows_f16_scalar, bitnet__softmax_scalar, bitnet__rope_scalar, \
    bitnet__store_f16_scalar, bitnet__dequantize_scalar, bitnet__relu2_gate_scalar, \
    bitnet__rmsnorm_scalar, bitnet__dotrows_u8_scalar

static const bitnet_kernels bitnet__kernels_scalar = {
    "scalar", 0, 0, 0, 0, 0, BITNET__SCALAR_ENTRIES(bitnet__dotrows_i2s_scalar)
};
static const bitnet_kernels bitnet__kernels_scalar_tl2 = {
    "scalar-tl2", 0, "TL2", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_scalar,
    BITNET__SCALAR_ENTRIES(bitnet__dotrows_tl2_scalar)
};

/* The kernel headers: each defines BITNET__HAVE_SIMD, its tables, and a list of them, best first.
   */
#define BITNET__KERNEL_ABI 4
#if !defined(BITNET_NO_SIMD) && BITNET__KNOWN_COMPILER
  #if BITNET__ARCH_X86
    #define BITNET__KERNEL_HEADER "bitnet_kernels_x86.h"
  #elif BITNET__ARCH_ARM && !(defined(BITNET_NO_NEON) && defined(BITNET_NO_DOTPROD))
    #define BITNET__KERNEL_HEADER "bitnet_kernels_arm.h"
  #elif BITNET__ARCH_WASM
    #define BITNET__KERNEL_HEADER "bitnet_kernels_wasm.h"
  #endif
#endif
#if defined(BITNET__KERNEL_HEADER) && defined(__has_include)
  #if __has_include(BITNET__KERNEL_HEADER)
    #include BITNET__KERNEL_HEADER
  #endif
#endif
#if defined(BITNET_REQUIRE_SIMD) && !defined(BITNET__HAVE_SIMD)
  #error "bitnet.h: no kernel header for this CPU found next to bitnet.h"
#elif defined(BITNET__KERNEL_HEADER) && !defined(BITNET__HAVE_SIMD)
  #define BITNET__SLOW BITNET__KERNEL_HEADER " was not found beside bitnet.h: plain C, several " \
                       "times slower"
  #pragma message(BITNET__SLOW " (BITNET_NO_SIMD if that is meant)")
#endif
#ifndef BITNET__HAVE_SIMD
  #define BITNET__KERNEL_TABLES        /* none */
  static uint32_t bitnet__cpu_features(void) { return 0; }
#endif

static const bitnet_kernels *const bitnet__kernel_tables[] = {
    BITNET__KERNEL_TABLES              /* a comma stands after each */
    &bitnet__kernels_scalar_tl2,
    &bitnet__kernels_scalar
};

BITNET_API int bitnet_kernels_count(void) {
    return (int)(sizeof bitnet__kernel_tables / sizeof bitnet__kernel_tables[0]);
}

BITNET_API const bitnet_kernels *bitnet_kernels_get(int i) {
    return i >= 0 && i < bitnet_kernels_count() ? bitnet__kernel_tables[i] : 0;
}

BITNET_API const bitnet_kernels *bitnet_kernels_find(const char *name) {
    int i;
    for (i = 0; i < bitnet_kernels_count(); i++)
        if (name && !strcmp(name, bitnet__kernel_tables[i]->name)) return bitnet__kernel_tables[i];
    return 0;
}

BITNET_API int bitnet_kernels_usable(const bitnet_kernels *k) {
    return k && (k->needs & ~bitnet__cpu_features()) == 0;
}

BITNET_API const bitnet_kernels *bitnet_kernels_default(void) {
    int i = 0;                         /* ends at the latest with scalar, which is always usable */
    while (bitnet_kernels_get(i)->pack || !bitnet_kernels_usable(bitnet_kernels_get(i))) i++;
    return bitnet_kernels_get(i);
}

/* =============================================================================================
   >>unicode  UTF-8 and the character classes that the pre-tokenizers ask for.
   Owns the class tables (\p{L}, \p{N}, \s, \p{P} of Unicode 15.0) and the one UTF-8 decoder.
   Assumes nothing about its input: every byte string is either well-formed UTF-8 by Table 3-7 of
   the Unicode Standard (no overlong form, no surrogate, nothing above U+10FFFF) or names its first
   byte that is not. No locale and no <ctype.h>: the classes must not depend on the machine.
   ============================================================================================= */

enum {                      /* classes 0 to 3 are those of the tables' low two bits */
    BITNET__OTHER = 0,      /* punctuation, marks, symbols, controls, unassigned */
    BITNET__LETTER = 1,     /* general category L* */
    BITNET__NUMBER = 2,     /* general category N* */
    BITNET__SPACE = 3,      /* White_Space without CR and LF */
    BITNET__NEWLINE = 4,    /* CR and LF, which the pre-tokenizer treats by rules of their own */
    BITNET__STOP = 5        /* no code point here: end of the text, or an invalid byte */
};

/* All code points from U+0000 on as runs of one class, `length << 2 | class` each (a run too
   long for 14 bits is cut in two), and the first code point of every 16th run. CR and LF lie in
   a SPACE run; the ASCII table is asked first and knows better. */

/* begin of tables written by tests/unicode_tables.py from Unicode 15.0.0 */
/* 3648 bytes: 1564 runs; from U+323B0 on there is neither letter, number nor space. */
enum { BITNET__CLASS_RUNS = 1564, BITNET__CLASS_INDEX = 98, BITNET__CLASS_STRIDE = 16 };
static const uint8_t bitnet__ascii_class[128] = {
    0,0,0,0,0,0,0,0,0,3,4,3,3,4,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
    3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2,2,2,2,2,2,2,2,2,2,0,0,0,0,0,0,
    0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0,0,0,0,0,
    0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0,0,0,0,0
};
static const uint16_t bitnet__class_runs[BITNET__CLASS_RUNS] = {
    36,23,72,7,60,42,28,105,24,105,40,7,104,7,36,5,28,10,4,5,12,6,5,4,14,4,93,4,125,4,1833,16,
    49,56,21,28,5,4,5,516,21,4,9,8,17,4,5,24,5,4,13,4,5,4,81,4,333,4,557,32,665,4,153,8,5,24,
    165,284,109,16,17,180,173,84,42,16,9,4,397,4,5,60,9,28,9,42,13,8,5,64,5,4,121,116,357,44,5,
    56,42,133,36,9,16,5,20,89,16,5,36,5,12,5,92,101,28,45,20,97,4,25,68,169,232,217,12,5,72,5,
    28,41,16,42,4,65,16,33,8,9,8,89,4,29,4,5,12,17,12,5,64,5,52,9,4,13,16,42,9,8,26,8,5,32,25,
    16,9,8,89,4,29,4,9,4,9,4,9,124,17,4,5,28,42,8,13,64,37,4,13,4,89,4,29,4,9,4,21,12,5,72,5,60,
    9,16,42,36,5,44,33,8,9,8,89,4,29,4,9,4,21,12,5,120,9,4,13,16,42,4,5,26,44,5,4,25,12,13,4,17,
    12,9,4,5,4,9,12,9,12,13,12,49,88,5,84,54,72,33,4,13,4,93,4,65,12,5,104,13,8,5,8,9,16,42,32,
    30,4,5,16,33,4,13,4,93,4,41,4,21,12,5,124,9,4,9,16,42,4,9,68,37,4,13,4,165,8,5,64,5,20,13,4,
    30,13,16,78,4,25,20,73,12,97,4,37,4,5,8,29,124,42,68,193,4,9,48,29,36,42,156,9,4,5,4,21,4,
    97,4,5,4,41,4,9,36,5,8,21,4,5,36,42,8,17,128,5,124,82,48,33,4,145,108,21,460,173,80,5,42,24,
    25,16,17,12,5,12,9,28,13,16,53,48,5,4,42,24,153,4,5,20,5,8,173,4,1333,4,17,8,29,4,5,4,17,8,
    165,4,17,8,133,4,17,8,29,4,5,4,17,8,61,4,229,4,17,8,269,56,82,12,65,64,345,8,25,12,2481,8,
    69,7,105,20,301,12,14,33,28,73,52,77,56,73,56,53,4,13,60,209,140,5,16,5,12,42,24,42,88,42,
    24,357,28,21,8,137,4,5,20,281,40,125,156,42,121,8,21,44,177,16,105,24,46,148,93,36,213,172,
    42,24,42,52,5,372,189,68,33,12,42,164,121,52,9,42,177,104,145,112,42,12,13,42,145,8,37,28,
    173,8,13,164,17,4,25,4,9,12,5,20,769,256,1113,8,25,8,153,8,25,8,33,4,5,4,5,4,5,4,125,8,213,
    4,29,4,5,12,13,4,29,12,17,8,25,16,53,20,13,4,29,12,47,116,11,20,7,188,7,64,6,5,8,26,20,5,42,
    24,53,404,5,16,5,8,41,4,5,12,21,24,5,4,5,4,5,4,17,4,45,8,17,20,21,16,5,4,206,9,22,2904,242,
    312,90,2520,122,4528,917,24,17,12,9,36,6,8,153,4,5,20,5,8,225,28,5,64,93,36,29,4,29,4,29,4,
    29,4,29,4,29,4,29,4,29,320,5,1856,7,16,9,6,100,38,28,21,8,14,9,16,345,24,13,4,361,4,17,20,
    173,4,377,12,18,40,129,192,65,128,42,120,34,4,62,128,42,156,62,1280,26369,256,65533,23097,
    268,185,8,1077,12,65,42,9,80,189,64,125,8,281,42,156,37,8,413,8,257,20,9,4,5,4,21,96,65,4,
    13,4,17,4,93,52,26,40,209,56,201,112,42,96,25,12,5,4,9,4,42,113,40,93,100,117,28,189,112,5,
    42,24,21,4,41,42,21,4,165,92,13,4,33,16,42,24,93,12,5,12,201,4,5,12,9,8,21,8,5,4,5,96,13,8,
    45,28,13,48,25,8,25,8,25,36,29,4,29,4,173,4,57,24,461,52,42,24,44689,48,93,16,197,33808,
    1465,8,425,152,29,48,21,20,5,4,41,4,53,4,21,4,5,4,9,4,9,4,433,132,1453,72,257,8,217,160,49,
    464,21,4,541,76,42,28,105,24,105,44,357,12,25,8,25,8,25,8,13,140,49,4,105,4,77,4,9,4,61,8,
    57,136,493,48,182,48,230,68,10,976,117,12,197,64,110,16,129,18,36,81,6,33,6,20,153,40,121,8,
    145,16,33,4,22,168,633,8,42,24,145,16,145,16,161,32,209,48,45,4,61,4,29,4,9,4,45,4,61,4,29,
    4,9,268,1245,36,89,40,33,96,25,4,169,4,37,276,25,8,5,4,177,4,9,12,5,8,93,8,34,93,8,30,125,
    32,38,192,77,4,9,20,22,89,26,16,105,280,225,16,10,9,66,8,186,5,60,17,4,13,4,117,40,38,92,
    117,10,4,117,14,128,33,4,113,24,22,64,217,40,89,8,34,77,20,34,73,92,30,320,293,220,205,52,
    205,28,26,145,48,42,1176,126,4,169,24,9,312,117,42,5,32,89,44,18,108,73,184,85,30,80,93,48,
    213,104,122,4,9,8,5,52,181,128,101,28,42,36,145,60,42,16,5,8,5,32,141,12,5,48,193,56,17,44,
    42,5,4,5,16,82,44,73,4,101,76,9,252,29,4,5,4,17,4,61,4,41,28,189,68,42,44,33,8,9,8,89,4,29,
    4,9,4,21,12,5,72,5,48,21,632,213,72,17,20,42,20,13,120,193,80,9,4,5,32,42,664,189,164,17,
    144,193,80,5,44,42,152,173,52,5,28,42,216,109,84,50,16,29,740,177,464,257,78,48,33,8,5,8,33,
    4,9,4,97,60,5,4,5,56,42,280,33,8,157,64,5,4,5,112,5,40,161,28,5,84,5,44,185,76,5,72,293,
    1052,37,4,149,68,5,60,118,20,121,448,29,4,9,4,153,84,5,36,42,24,25,4,9,4,129,56,5,28,42,
    1240,77,60,5,4,53,4,137,112,42,344,5,60,86,172,3689,408,446,68,785,10544,389,60,4289,68,25,
    16100,2333,34532,2277,28,125,4,42,24,317,4,42,24,121,72,193,64,17,48,42,4,30,4,85,20,77,
    2752,257,94,420,301,20,5,264,53,256,9,4,5,112,24545,32,4953,168,37,35740,17,4,29,4,9,4,1165,
    60,5,116,13,8,5,56,17,32,1585,9232,429,20,53,12,37,28,41,22680,82,48,82,432,102,540,341,4,
    285,4,9,8,5,8,9,8,17,4,49,4,5,4,29,4,261,4,17,8,33,4,29,4,113,4,17,4,21,4,5,12,29,4,1361,8,
    101,4,101,4,125,4,101,4,125,4,101,4,125,4,101,4,125,4,101,4,33,8,202,7168,125,24,25,1044,
    249,584,181,40,29,8,42,16,5,1284,121,72,177,16,42,1880,113,16,42,2968,29,4,17,4,9,4,61,4,
    789,8,38,192,273,28,5,16,42,3164,238,4,14,4,18,304,182,4,62,776,17,4,109,4,9,4,5,8,5,4,41,4,
    17,4,5,4,5,24,5,16,5,4,5,4,5,4,13,4,9,4,5,8,5,4,5,4,5,4,5,4,5,4,9,4,5,8,17,4,29,4,17,4,17,4,
    5,4,41,4,69,20,13,4,21,4,69,2320,54,11148,42,4120,65533,65533,39817,128,16617,24,889,8,
    23049,56,29893,12412,2169,6024,19757,20,16769
};
static const uint32_t bitnet__class_index[BITNET__CLASS_INDEX] = {
    0x0,0xAB,0x2C6,0x386,0x559,0x6D5,0x7B1,0x829,0x951,0x9B3,0x9FC,0xA59,0xAB2,0xB0F,0xB66,
    0xB9D,0xC11,0xC7F,0xCDF,0xD4F,0xDBD,0xE84,0xEC6,0x1000,0x1082,0x124E,0x12BF,0x1390,0x1700,
    0x17E0,0x1900,0x1A55,0x1BB0,0x1CC0,0x1F46,0x1FBD,0x1FFD,0x208A,0x2127,0x218A,0x2D26,0x2DB7,
    0x3007,0x3100,0x3260,0xA62A,0xA7D2,0xA874,0xA960,0xAA43,0xAABE,0xAB17,0xD7C7,0xFB37,0xFDC8,
    0xFFC8,0x1004E,0x102FC,0x103D0,0x1057B,0x10737,0x10836,0x108F3,0x10A00,0x10AC0,0x10BA9,
    0x10EAA,0x10FE0,0x11103,0x111D0,0x11289,0x11329,0x1144B,0x115DC,0x1173C,0x11918,0x11A00,
    0x11C0A,0x11D50,0x11F04,0x12F90,0x16AC0,0x16E40,0x18CD6,0x1B156,0x1D2F4,0x1D4BA,0x1D53F,
    0x1D715,0x1D800,0x1E2AE,0x1E7FF,0x1ECB5,0x1EE33,0x1EE50,0x1EE63,0x1EE9C,0x2B73A
};
/* 728 bytes: runs of punctuation beyond ASCII, `first << 6 | length`. */
enum { BITNET__PUNCTUATION_RUNS = 182 };
static const uint32_t bitnet__punctuation[BITNET__PUNCTUATION_RUNS] = {
    0x2841,0x29C1,0x2AC1,0x2D82,0x2EC1,0x2FC1,0xDF81,0xE1C1,0x15686,0x16242,0x16F81,0x17001,
    0x170C1,0x17181,0x17CC2,0x18242,0x18302,0x186C1,0x18743,0x19A84,0x1B501,0x1C00E,0x1FDC3,
    0x20C0F,0x21781,0x25902,0x25C01,0x27F41,0x29D81,0x2BC01,0x31DC1,0x32101,0x37D01,0x393C1,
    0x39682,0x3C10F,0x3C501,0x3CE84,0x3E141,0x3F405,0x3F642,0x41286,0x43EC1,0x4D809,0x50001,
    0x59B81,0x5A6C2,0x5BAC3,0x5CD42,0x5F503,0x5F603,0x6000B,0x65102,0x68782,0x6A807,0x6AA06,
    0x6D687,0x6DF42,0x6FF04,0x70EC5,0x71F82,0x73008,0x734C1,0x80418,0x80C14,0x8114D,0x814CC,
    0x81F42,0x82342,0x8C204,0x8CA42,0x9DA0E,0x9F142,0x9F98A,0xA60D6,0xA7604,0xA7F02,0xB3E44,
    0xB3F82,0xB5C01,0xB802F,0xB8C20,0xB948C,0xC0043,0xC020A,0xC050C,0xC0C01,0xC0F41,0xC2801,
    0xC3EC1,0x293F82,0x298343,0x299CC1,0x299F81,0x29BC86,0x2A1D04,0x2A3382,0x2A3E03,0x2A3F01,
    0x2A4B82,0x2A57C1,0x2A704D,0x2A7782,0x2A9704,0x2AB782,0x2ABC02,0x2AFAC1,0x3F4F82,0x3F840A,
    0x3F8C23,0x3F950E,0x3F98C1,0x3F9A01,0x3F9A82,0x3FC043,0x3FC146,0x3FC304,0x3FC682,0x3FC7C2,
    0x3FCEC3,0x3FCFC1,0x3FD6C1,0x3FD741,0x3FD7C7,0x404003,0x40E7C1,0x40F401,0x415BC1,0x4215C1,
    0x4247C1,0x424FC1,0x429409,0x429FC1,0x42BC07,0x42CE47,0x42E644,0x43AB41,0x43D545,0x43E184,
    0x4411C7,0x442EC2,0x442F84,0x445004,0x445D02,0x447144,0x447341,0x4476C1,0x447743,0x448E06,
    0x44AA41,0x4512C5,0x451682,0x451741,0x453181,0x457057,0x459043,0x45980D,0x45AE41,0x45CF03,
    0x460EC1,0x465103,0x467881,0x468FC8,0x46A683,0x46A785,0x46C00A,0x471045,0x471C02,0x47BDC2,
    0x47D0CD,0x47FFC1,0x491C05,0x4BFC42,0x5A9B82,0x5ABD41,0x5ACDC5,0x5AD101,0x5BA5C4,0x5BF881,
    0x6F27C1,0x76A1C5,0x7A5782
};
/* end of tables written by tests/unicode_tables.py */
/* Class of any code point: find the last index entry not above it, then walk at most 16 runs. */
static int bitnet__class_of(uint32_t cp) {
    uint32_t low = 0, high = BITNET__CLASS_INDEX, start, i, stop;
    if (cp < 128) return bitnet__ascii_class[cp];
    while (high - low > 1) {                        /* index[low] <= cp < index[high] */
        uint32_t middle = (low + high) / 2;
        if (bitnet__class_index[middle] <= cp)
            low = middle;
        else
            high = middle;
    }
    start = bitnet__class_index[low];
    i = low * BITNET__CLASS_STRIDE;
    stop = i + BITNET__CLASS_STRIDE;
    if (stop > BITNET__CLASS_RUNS) stop = BITNET__CLASS_RUNS;
    for (; i < stop; i++) {
        start += (uint32_t)(bitnet__class_runs[i] >> 2);
        if (cp < start) return bitnet__class_runs[i] & 3;
    }
    return BITNET__OTHER;                           /* beyond the last letter of Unicode */
}

/* Whether a code point beyond ASCII is of general category P*; OTHER has them and others. */
static int bitnet__is_punctuation(uint32_t cp) {
    uint32_t low = 0, high = BITNET__PUNCTUATION_RUNS;
    while (high - low > 1) {                        /* [low] begins not above cp, or is the first */
        uint32_t middle = (low + high) / 2;
        if (bitnet__punctuation[middle] >> 6 <= cp)
            low = middle;
        else
            high = middle;
    }
    return cp - (bitnet__punctuation[low] >> 6) < (bitnet__punctuation[low] & 63);
}

/* How many bytes a sequence with this first byte has: 1 to 4, or 0 if no sequence starts so.
   C0 and C1 could only begin overlong forms, F5 and up only code points above U+10FFFF. */
static uint32_t bitnet__utf8_length(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    return lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : lead < 0xF5 ? 4u : 0u;
}

/* Whether b may be the second byte after lead. This one test rules out what is left of overlong
   forms (E0, F0), surrogates (ED) and code points above U+10FFFF (F4); bytes three and four may
   be anything from 80 to BF. */
static int bitnet__utf8_second_ok(uint8_t lead, uint8_t b) {
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return b >= low && b <= high;
}

/* Decodes the sequence at p (p < end). Returns its length and sets *cp, or returns 0 if the
   byte at p does not begin a well-formed sequence. */
static uint32_t bitnet__utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *cp) {
    uint32_t n = bitnet__utf8_length(p[0]), i;
    if (n <= 1) {
        *cp = p[0];
        return n;
    }
    if ((size_t)(end - p) < n || !bitnet__utf8_second_ok(p[0], p[1])) return 0;
    *cp = p[0] & (0x7Fu >> n);                      /* n = 2: 1F, 3: 0F, 4: 07 */
    for (i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        *cp = *cp << 6 | (p[i] & 0x3Fu);
    }
    return n;
}

/* Class of what stands at p, and its length in bytes. At the end: STOP and 0. At a byte that is
   not UTF-8: STOP and 1, so that to every rule of the scanner it looks like the end of the text. */
static int bitnet__class_at(const uint8_t *p, const uint8_t *end, uint32_t *length) {
    uint32_t cp;
    *length = 0;
    if (p == end) return BITNET__STOP;
    *length = 1;
    if (p[0] < 128) return bitnet__ascii_class[p[0]];
    *length = bitnet__utf8_decode(p, end, &cp);
    if (*length) return bitnet__class_of(cp);
    *length = 1;
    return BITNET__STOP;
}

/* =============================================================================================
   >>tokenizer  Text to token numbers and back: byte-level BPE as LLaMA 3 and BitNet use it.
   Owns the vocabulary (built once from the three GGUF arrays, then read-only and shared by
   threads), the scanner that cuts text into pieces, the merging of pieces, special tokens, and
   the filter that lets only whole code points out. The arrays come from a file and are trusted
   in nothing but their sizes; the text is any bytes at all. The pieces and merges are those of
   the reference implementation, token for token, as tests/test_tokenizer.c shows.

   text -- special tokens cut out, if asked --> stretches -- scanner --> pieces -- BPE --> tokens

   SentencePiece's BPE, of LLaMA 1 and 2, goes through the same merging: one piece, characters in
   place of bytes, and the score of the token that a pair makes in place of a rank. Its texts begin
   with a space that nobody wrote, unless the file says otherwise; it comes back when decoding.

   Rule for bytes that are not UTF-8: each is a piece, hence a token, of its own, and its
   neighbours are tokenized as if the text ended before it and began after it. Decoding always
   gives back the same bytes.
   ============================================================================================= */

enum {                                  /* limits; ids and ranks are packed by these widths */
    BITNET__ID_BITS = 20,
    BITNET__RANK_BITS = 22,
    BITNET__MAX_TOKENS = (1 << BITNET__ID_BITS) - 1,
    BITNET__MAX_MERGES = 1 << BITNET__RANK_BITS,
    BITNET__MAX_PROBES = 1024,          /* a hash chain longer than this is no accident */
    BITNET__MAX_SPECIAL = 1024,         /* bytes in the text of a special token */
    BITNET__MAX_PIECE = 1 << 26,        /* bytes in one piece, which needs 32 or 40 times that */
    BITNET__SMALL_PIECE = 256,          /* bytes of a piece that is merged on the stack */
    BITNET__SPELL_END = 324             /* one above the last character of GPT-2's spelling */
};

enum {                                  /* tokenizer.ggml.token_type, as GGUF defines it */
    BITNET__TOKEN_UNDEFINED = 0, BITNET__TOKEN_NORMAL = 1, BITNET__TOKEN_UNKNOWN = 2,
    BITNET__TOKEN_CONTROL = 3, BITNET__TOKEN_USER = 4, BITNET__TOKEN_UNUSED = 5,
    BITNET__TOKEN_BYTE = 6
};

#define BITNET__NO_SLOT 0xFFFFFFFFu             /* an empty hash slot, and "no such rank" */
#define BITNET__NO_PAIR (~(uint64_t)0)

/* A vocabulary. LLaMA 3's (128256 tokens, 280147 merges, 7.8 MB in the file) takes 8.1 MB.

   slots: open addressing, linear probing, at most 2/3 full, over the bytes of normal tokens only
       bits 31-20  top bits of the hash, so that most foreign entries cost no look at their bytes
       bits 19-0   token
   pairs: the same over (left, right), at most 2/3 full
       bits 61-42  left token     bits 41-22  right token     bits 21-0  rank of the merge
   Both have no deleted entries, and no entry further than MAX_PROBES from its home. */
typedef struct bitnet__vocab {
    uint32_t n_tokens, n_merges, n_literals;
    uint32_t n_special;             /* how many of the literals are control or user-defined */
    uint32_t longest;               /* bytes of the longest normal token */
    size_t memory;                  /* bytes allocated for the arrays below */
    uint32_t slot_mask, pair_mask;  /* size of each table minus one; sizes are powers of two */
    uint32_t *offsets;              /* [n_tokens + 1] token t is bytes[offsets[t]..offsets[t+1]) */
    uint8_t *bytes;                 /* raw bytes of all tokens, GPT-2 spelling undone */
    uint8_t *types;                 /* [n_tokens] BITNET__TOKEN_* */
    uint32_t *slots;                /* [slot_mask + 1] */
    uint64_t *pairs;                /* [pair_mask + 1] */
    uint32_t *results;              /* [n_merges] token that the merge of this rank makes */
    uint32_t *ranks;                /* [n_tokens] SentencePiece: order of their scores; else 0 */
    uint64_t *powers;               /* [longest + 1] SentencePiece: of ROLL */
    int32_t space_prefix;           /* SentencePiece: 1: a text begins with a space of its own */
    int32_t falcon_e;               /* byte-level BPE: 1: pre-tokenizer falcon_e, else llama-bpe */
    uint32_t *literals;             /* [n_literals] all tokens that are not normal: the special
                                       ones first, either part sorted by bytes, then by number */
    int32_t byte_token[256];        /* the token of each single byte */
    uint8_t special_start[256];     /* 1 if some special token begins with this byte */
} bitnet__vocab;

/* The raw bytes of token t, which must be in range. They live as long as the vocabulary. */
static const uint8_t *bitnet__vocab_bytes(const bitnet__vocab *v, bitnet_token t, size_t *n) {
    *n = v->offsets[t + 1] - v->offsets[t];
    return v->bytes + v->offsets[t];
}

/* ---- hashing ---- */

/* Multiply and fold, eight bytes at a time; a short tail is read by overlapping or repeated
   bytes, which the length mixed in at the start tells apart. The value depends on the host's
   byte order, which is harmless: it never leaves this process. */
static uint64_t bitnet__hash_bytes(const uint8_t *p, size_t n) {
    const uint64_t k = ((uint64_t)0x9E3779B9u << 32) | 0x7F4A7C15u;   /* 2^64 / golden ratio */
    uint64_t h = (uint64_t)n * k, word;
    uint32_t a, b;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * k;
        h ^= h >> 32;
    }
    if (n >= 4) {
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        word = (uint64_t)a << 32 | b;
    } else if (n > 0) {
        /* cppcheck-suppress objectIndex ; a single byte has n = 1 */
        word = (uint64_t)p[0] << 16 | (uint64_t)p[n >> 1] << 8 | p[n - 1];
    } else {
        word = 0;
    }
    h = (h ^ word) * k;
    h = (h ^ h >> 32) * k;
    return h ^ h >> 29;
}

/* SentencePiece looks up every pair of neighbours, whose texts grow while they are merged. So its
   hash of a stretch of text comes from those of the beginnings up to its two ends:
   h(a b) = h(a) m^|b| + h(b). */
#define BITNET__ROLL 0xD6E8FEB86659FD93u       /* m */

static uint64_t bitnet__roll(uint64_t h, uint8_t byte) { return h * BITNET__ROLL + byte + 1; }

static uint64_t bitnet__roll_end(uint64_t h) {
    const uint64_t k = ((uint64_t)0x9E3779B9u << 32) | 0x7F4A7C15u;
    h = (h ^ h >> 32) * k;
    return h ^ h >> 29;
}

static uint64_t bitnet__pair_key(uint32_t left, uint32_t right) {
    return (uint64_t)left << BITNET__ID_BITS | right;
}

/* Pairs come in patterns (one left token, rows of right ones), hence the second round. */
static uint32_t bitnet__pair_home(const bitnet__vocab *v, uint64_t key) {
    const uint64_t k = ((uint64_t)0x9E3779B9u << 32) | 0x7F4A7C15u;
    uint64_t h = key * k;
    h = (h ^ h >> 32) * k;
    return (uint32_t)(h >> 32) & v->pair_mask;
}

/* The smallest power of two that n entries fill to 2/3 at most, less one. n <= 1 << 22. */
static uint32_t bitnet__table_mask(uint32_t n) {
    uint32_t size = 1;
    while (size < n + n / 2 + 1) size *= 2;
    return size - 1;
}

/* The slot of the normal token with these bytes, or the empty slot where it would go, or NO_SLOT
   if neither is near enough to its home. */
static uint32_t bitnet__find_slot(const bitnet__vocab *v, const uint8_t *p, size_t n, uint64_t h) {
    uint32_t tag = (uint32_t)(h >> 52) << BITNET__ID_BITS, at = (uint32_t)h, i, token, entry;
    for (i = 0; i < BITNET__MAX_PROBES; i++, at++) {
        at &= v->slot_mask;
        entry = v->slots[at];
        if (entry == BITNET__NO_SLOT) return at;
        token = entry & BITNET__MAX_TOKENS;
        if ((entry ^ token) == tag && v->offsets[token + 1] - v->offsets[token] == n &&
            memcmp(v->bytes + v->offsets[token], p, n) == 0)
            return at;
    }
    return BITNET__NO_SLOT;
}

/* The hash that slots go by. */
static uint64_t bitnet__hash_token(const bitnet__vocab *v, const uint8_t *p, size_t n) {
    uint64_t h = 0;
    if (!v->ranks) return bitnet__hash_bytes(p, n);
    for (; n > 0; n--) h = bitnet__roll(h, *p++);
    return bitnet__roll_end(h);
}

/* The normal token with these bytes, whose hash is h, or -1. */
static int32_t bitnet__find_hashed(const bitnet__vocab *v, const uint8_t *p, size_t n,
                                   uint64_t h) {
    const uint32_t at = bitnet__find_slot(v, p, n, h);
    if (at == BITNET__NO_SLOT || v->slots[at] == BITNET__NO_SLOT) return -1;
    return (int32_t)(v->slots[at] & BITNET__MAX_TOKENS);
}

/* The normal token with these bytes, or -1. */
static int32_t bitnet__find_normal(const bitnet__vocab *v, const uint8_t *p, size_t n) {
    if (n > v->longest || n == 0) return -1;
    return bitnet__find_hashed(v, p, n, bitnet__hash_token(v, p, n));
}

/* Where the merge of this pair is in pairs, or the empty place where it would go, or NO_SLOT. */
static uint32_t bitnet__find_pair(const bitnet__vocab *v, uint64_t key) {
    uint32_t at = bitnet__pair_home(v, key), i;
    for (i = 0; i < BITNET__MAX_PROBES; i++) {
        uint64_t entry = v->pairs[at];
        if (entry == BITNET__NO_PAIR || entry >> BITNET__RANK_BITS == key) return at;
        at = (at + 1) & v->pair_mask;
    }
    return BITNET__NO_SLOT;
}

/* Rank of the merge of these two tokens, or NO_SLOT. */
static uint32_t bitnet__pair_rank(const bitnet__vocab *v, uint32_t left, uint32_t right) {
    uint32_t at = bitnet__find_pair(v, bitnet__pair_key(left, right));
    if (at == BITNET__NO_SLOT || v->pairs[at] == BITNET__NO_PAIR) return BITNET__NO_SLOT;
    return (uint32_t)v->pairs[at] & (BITNET__MAX_MERGES - 1);
}

/* ---- literals: special tokens, and those that text never becomes ---- */

/* Order of two literals: by bytes, equal ones by number. */
static int bitnet__literal_less(const void *of, uint32_t a, uint32_t b) {
    const bitnet__vocab *v = (const bitnet__vocab *)of;
    size_t na, nb;
    const uint8_t *pa = bitnet__vocab_bytes(v, (bitnet_token)a, &na);
    const uint8_t *pb = bitnet__vocab_bytes(v, (bitnet_token)b, &nb);
    const int c = bitnet__compare(pa, na, pb, nb);
    return c ? c < 0 : a < b;
}

/* Byte `depth` of a literal, or -1 past its end: the key that the two searches below go by. */
static int bitnet__literal_byte(const bitnet__vocab *v, uint32_t i, size_t depth) {
    size_t n;
    const uint8_t *p = bitnet__vocab_bytes(v, (bitnet_token)v->literals[i], &n);
    return depth < n ? p[depth] : -1;
}

/* First of the literals [low, high), which agree in their first `depth` bytes, whose next byte is
   not below c. */
static uint32_t bitnet__literal_bound(const bitnet__vocab *v, uint32_t low, uint32_t high,
                                      size_t depth, int c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (bitnet__literal_byte(v, middle, depth) < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest of the sorted literals [low, high) that p begins with: narrows the range byte by
   byte, so it reads no more of the text than some literal shares with it. Returns a token and its
   length, or -1. Among equal literals the lowest number comes first and is taken. */
static int32_t bitnet__match_literal(const bitnet__vocab *v, uint32_t low, uint32_t high,
                                     const uint8_t *p, size_t n, size_t *length) {
    int32_t found = -1;
    size_t depth;
    for (depth = 0; low < high; depth++) {
        if (depth > 0 && bitnet__literal_byte(v, low, depth) < 0) {
            found = (int32_t)v->literals[low];      /* complete, and the others are longer */
            *length = depth;
        }
        if (depth == n) break;
        if (bitnet__literal_byte(v, low, depth) != p[depth])
            low = bitnet__literal_bound(v, low, high, depth, p[depth]);
        if (low < high && bitnet__literal_byte(v, high - 1, depth) != p[depth])
            high = bitnet__literal_bound(v, low, high, depth, p[depth] + 1);
    }
    return found;
}

/* The first special token in [p, end), with its place and length; or -1 and *at = end. */
static int32_t bitnet__find_special(const bitnet__vocab *v, const uint8_t *p, const uint8_t *end,
                                    const uint8_t **at, size_t *length) {
    for (; p < end && v->n_special > 0; p++) {
        int32_t token;
        if (!v->special_start[*p]) continue;
        token = bitnet__match_literal(v, 0, v->n_special, p, (size_t)(end - p), length);
        if (token >= 0) {
            *at = p;
            return token;
        }
    }
    *at = end;
    return -1;
}

/* The token with exactly this text (raw bytes), special tokens before normal ones, the rest
   last; -1 if there is none. For callers that look for <|eot_id|>, not for encoding. */
static int32_t bitnet__vocab_find(const bitnet__vocab *v, const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    size_t length = 0;
    int32_t token = bitnet__match_literal(v, 0, v->n_special, p, n, &length);
    if (token >= 0 && length == n) return token;
    token = bitnet__find_normal(v, p, n);
    if (token >= 0) return token;
    token = bitnet__match_literal(v, v->n_special, v->n_literals, p, n, &length);
    return token >= 0 && length == n ? token : -1;
}

/* ---- building ---- */

static void bitnet__vocab_free(bitnet__vocab *v, const bitnet_allocator *a) {
    bitnet__free(a, v->powers);
    bitnet__free(a, v->ranks);
    bitnet__free(a, v->literals);
    bitnet__free(a, v->results);
    bitnet__free(a, v->pairs);
    bitnet__free(a, v->slots);
    bitnet__free(a, v->types);
    bitnet__free(a, v->bytes);
    bitnet__free(a, v->offsets);
    memset(v, 0, sizeof *v);
}

/* Bytes that the vocabulary has allocated. */
static size_t bitnet__vocab_memory(const bitnet__vocab *v) { return v->memory; }

/* Allocates n elements and counts them; 0 if there is no memory. */
static void *bitnet__vocab_array(bitnet__vocab *v, const bitnet_allocator *a, size_t n,
                                 size_t element) {
    v->memory += n * element;
    return bitnet__alloc(a, n * element);
}

/* Allocates everything. Per token of the file (at least 8 bytes there) 21 bytes at most and its
   text; per merge (at least 8 bytes) 28 at most: well under four times the input, and nothing
   fixed. Absent types mean that all tokens are normal. */
static bitnet_result bitnet__vocab_alloc(bitnet__vocab *v, const bitnet_allocator *a,
                                         const bitnet__strings *tokens, const uint8_t *types,
                                         bitnet_error *err) {
    size_t n = v->n_tokens, m = v->n_merges, n_slots, n_pairs, i;
    for (i = 0; types && i < n; i++) {
        uint32_t type = bitnet__get_u32(types + 4 * i);
        v->n_literals += type != BITNET__TOKEN_NORMAL && type != BITNET__TOKEN_BYTE;
        v->n_special += type == BITNET__TOKEN_CONTROL || type == BITNET__TOKEN_USER;
    }
    v->slot_mask = bitnet__table_mask(v->n_tokens - v->n_literals);
    v->pair_mask = bitnet__table_mask(v->n_merges);
    n_slots = (size_t)v->slot_mask + 1;
    n_pairs = (size_t)v->pair_mask + 1;
    v->offsets = (uint32_t *)bitnet__vocab_array(v, a, n + 1, 4);
    v->bytes = (uint8_t *)bitnet__vocab_array(v, a, tokens->size - 8 * n + 1, 1);
    v->types = (uint8_t *)bitnet__vocab_array(v, a, n, 1);
    v->slots = (uint32_t *)bitnet__vocab_array(v, a, n_slots, 4);
    v->pairs = (uint64_t *)bitnet__vocab_array(v, a, n_pairs, 8);
    v->results = (uint32_t *)bitnet__vocab_array(v, a, m + 1, 4);
    v->literals = (uint32_t *)bitnet__vocab_array(v, a, v->n_literals + 1u, 4);
    if (!v->offsets || !v->bytes || !v->types || !v->slots || !v->pairs || !v->results ||
        !v->literals)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a vocabulary of %u tokens",
                            (unsigned)v->n_tokens);
    memset(v->slots, 0xFF, 4 * n_slots);            /* NO_SLOT, NO_PAIR */
    memset(v->pairs, 0xFF, 8 * n_pairs);
    v->offsets[0] = 0;
    return BITNET_OK;
}

/* Takes the next string off what is left of a GGUF string array: u64 length, then the bytes. Fails
   unless 8 bytes stay for each string after it: that holds for every array whose reader has checked
   it, and it keeps the sum of all lengths under what vocab_alloc reserves for them. */
static int bitnet__next_string(bitnet__strings *left, const uint8_t **p, size_t *n) {
    size_t lengths = 8 * (size_t)left->count;
    uint64_t length;
    if (left->count == 0 || left->size < lengths) return 0;
    length = bitnet__get_u64(left->data);
    if (length > left->size - lengths) return 0;
    *p = left->data + 8;
    *n = (size_t)length;
    left->data += 8 + *n;
    left->size -= 8 + *n;
    left->count--;
    return 1;
}

/* GPT-2's spelling of bytes as printable characters (bytes_to_unicode in its encoder.py):
   21-7E, A1-AC and AE-FF stand for themselves as U+0021..., the other 68 bytes, in order, for
   U+0100 to U+0143. Fills map[character] = byte, NO_BYTE where a character stands for none. */
enum { BITNET__NO_BYTE = 0x100 };
static void bitnet__make_spelling(uint16_t map[BITNET__SPELL_END]) {
    uint32_t b, next = 256;
    for (b = 0; b < BITNET__SPELL_END; b++) map[b] = BITNET__NO_BYTE;
    for (b = 0; b < 256; b++) {
        int same = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        map[same ? b : next++] = (uint16_t)b;
    }
}

/* Undoes the spelling of [p, end) into dst, as long as characters can be mapped and dst has room.
   All of them are ASCII or two bytes of UTF-8, so dst never needs more than the input. Returns
   the number of bytes written and moves *p to the first character left. */
static size_t bitnet__unspell(const uint16_t *map, const uint8_t **p, const uint8_t *end,
                              uint8_t *dst, size_t room) {
    const uint8_t *q = *p;
    size_t n = 0;
    while (q < end && n < room) {
        uint32_t cp = q[0], length = 1;
        if (cp >= 0x80) {
            if (cp < 0xC2 || cp > 0xC5 || end - q < 2 || (q[1] & 0xC0) != 0x80) break;
            cp = (cp & 0x1F) << 6 | (q[1] & 0x3Fu);
            length = 2;
        }
        /* byte-level BPE alone comes here, with a map. NOLINTNEXTLINE */
        if (cp >= BITNET__SPELL_END || map[cp] == BITNET__NO_BYTE) break;
        dst[n++] = (uint8_t)map[cp];
        q += length;
    }
    *p = q;
    return n;
}

/* Enters normal token t into the hash table, unless an earlier token has the same bytes. */
static int bitnet__add_normal(bitnet__vocab *v, uint32_t t) {
    const uint8_t *p = v->bytes + v->offsets[t];
    size_t n = v->offsets[t + 1] - v->offsets[t];
    uint64_t h;
    uint32_t at;
    if (n == 0) return 1;                       /* harmless: no text becomes it */
    h = bitnet__hash_token(v, p, n);
    at = bitnet__find_slot(v, p, n, h);
    if (at == BITNET__NO_SLOT) return 0;
    if (v->slots[at] == BITNET__NO_SLOT)
        v->slots[at] = (uint32_t)(h >> 52) << BITNET__ID_BITS | t;
    if (n > v->longest) v->longest = (uint32_t)n;
    return 1;
}

/* Copies SentencePiece's text [p, p + n): a space for each U+2581 in it. Returns the length. */
static size_t bitnet__unmark_spaces(const uint8_t *p, size_t n, uint8_t *dst) {
    size_t i, length = 0;
    for (i = 0; i < n; i++) {
        int mark = n - i >= 3 && p[i] == 0xE2 && p[i + 1] == 0x96 && p[i + 2] == 0x81;
        dst[length++] = mark ? ' ' : p[i];
        if (mark) i += 2;
    }
    return length;
}

static int bitnet__hex_digit(uint8_t c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 :
           c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The same of a SentencePiece vocabulary: U+2581 is a space, <0x0A> a byte, which no text finds. */
static bitnet_result bitnet__add_piece(bitnet__vocab *v, uint32_t t, const uint8_t *p, size_t n,
                                       bitnet_error *err) {
    uint8_t *dst = v->bytes + v->offsets[t];
    int high, low;
    if (v->types[t] == BITNET__TOKEN_NORMAL) {
        v->offsets[t + 1] = v->offsets[t] + (uint32_t)bitnet__unmark_spaces(p, n, dst);
        if (bitnet__add_normal(v, t)) return BITNET_OK;
        return bitnet__fail(err, BITNET_ERR_LIMIT, "token %u: too many hash collisions",
                            (unsigned)t);
    }
    high = n == 6 && !memcmp(p, "<0x", 3) && p[5] == '>' ? bitnet__hex_digit(p[3]) : -1;
    low = high < 0 ? -1 : bitnet__hex_digit(p[4]);
    if (low < 0)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "token %u: a byte that is not <0x00> to <0xFF>",
                            (unsigned)t);
    dst[0] = (uint8_t)(high << 4 | low);
    v->offsets[t + 1] = v->offsets[t] + 1;
    if (v->byte_token[dst[0]] < 0) v->byte_token[dst[0]] = (int32_t)t;
    return BITNET_OK;
}

/* Copies token t, whose text in the file is [p, p + n), behind the tokens before it. */
static bitnet_result bitnet__add_token(bitnet__vocab *v, uint32_t t, const uint16_t *map,
                                       const uint8_t *p, size_t n, bitnet_error *err) {
    const uint8_t *end = p + n;
    uint8_t *dst = v->bytes + v->offsets[t];
    uint8_t type = v->types[t];
    if (v->ranks && (type == BITNET__TOKEN_NORMAL || type == BITNET__TOKEN_BYTE))
        return bitnet__add_piece(v, t, p, n, err);
    if (type == BITNET__TOKEN_NORMAL || type == BITNET__TOKEN_BYTE) {
        size_t written = bitnet__unspell(map, &p, end, dst, n);
        if (p != end)
            return bitnet__fail(err, BITNET_ERR_FORMAT,
                                "token %u: byte %u of its text is outside GPT-2's spelling",
                                (unsigned)t, (unsigned)(n - (size_t)(end - p)));
        v->offsets[t + 1] = v->offsets[t] + (uint32_t)written;
        if (!bitnet__add_normal(v, t))
            return bitnet__fail(err, BITNET_ERR_LIMIT, "token %u: too many hash collisions",
                                (unsigned)t);
        return BITNET_OK;
    }
    if (n > BITNET__MAX_SPECIAL)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "token %u: a special token of over %d bytes",
                            (unsigned)t, (int)BITNET__MAX_SPECIAL);
    memcpy(dst, p, n);
    v->offsets[t + 1] = v->offsets[t] + (uint32_t)n;
    return BITNET_OK;
}

/* Reads all tokens and sorts the literals into their two lists. */
static bitnet_result bitnet__add_tokens(bitnet__vocab *v, const bitnet__strings *tokens,
                                        const uint8_t *types, const uint16_t *map,
                                        bitnet_error *err) {
    bitnet__strings unread = *tokens;
    const uint8_t *p = 0;
    uint32_t t, special = 0, rest = v->n_special;
    size_t n = 0;
    for (t = 0; t < v->n_tokens; t++) {
        uint32_t type = BITNET__TOKEN_NORMAL;
        bitnet_result r;
        if (types) type = bitnet__get_u32(types + 4 * (size_t)t);
        if (type > BITNET__TOKEN_BYTE)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "token %u: type %lld is unknown",
                                (unsigned)t, (long long)(int32_t)type);
        if (!bitnet__next_string(&unread, &p, &n))
            return bitnet__fail(err, BITNET_ERR_TRUNCATED, "token %u: text ends early",
                                (unsigned)t);
        v->types[t] = (uint8_t)type;
        r = bitnet__add_token(v, t, map, p, n, err);
        if (r != BITNET_OK) return r;
        if (type == BITNET__TOKEN_CONTROL || type == BITNET__TOKEN_USER) {
            v->literals[special++] = t;
            if (n > 0) v->special_start[p[0]] = 1;
        } else if (type != BITNET__TOKEN_NORMAL && type != BITNET__TOKEN_BYTE) {
            v->literals[rest++] = t;
        }
    }
    bitnet__sort(v->literals, sizeof *v->literals, v->n_special, bitnet__literal_less, v);
    bitnet__sort(v->literals + v->n_special, sizeof *v->literals, v->n_literals - v->n_special,
                 bitnet__literal_less, v);
    return BITNET_OK;
}

/* Without a token for every byte some texts would have no encoding. */
static bitnet_result bitnet__find_byte_tokens(bitnet__vocab *v, bitnet_error *err) {
    int b;
    for (b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        if (!v->ranks) v->byte_token[b] = bitnet__find_normal(v, &byte, 1);
        if (v->byte_token[b] < 0)
            return bitnet__fail(err, BITNET_ERR_FORMAT,
                                "the vocabulary has no token for the single byte 0x%02X",
                                (unsigned)b);
    }
    return BITNET_OK;
}

/* Reads one merge, "left right" in GPT-2's spelling (which has no blank, so a blank separates),
   into raw: left at [0, *split), right at [*split, *n). Returns 0 if it is not of that form or
   does not fit, and is then too long to be a token. */
static int bitnet__read_merge(const uint16_t *map, const uint8_t *p, size_t length, uint8_t *raw,
                              size_t room, size_t *split, size_t *n) {
    const uint8_t *end = p + length;
    *split = bitnet__unspell(map, &p, end, raw, room);
    if (p == end || *p != ' ') return 0;
    p++;
    *n = *split + bitnet__unspell(map, &p, end, raw + *split, room - *split);
    return p == end && *split > 0 && *n > *split;
}

/* Reads all merges. A file made from LLaMA 3's ranks lists every way to split a token, one after
   the other, so the result is often the one before and need not be looked up again. */
static bitnet_result bitnet__add_merges(bitnet__vocab *v, const bitnet__strings *merges,
                                        const uint16_t *map, uint8_t *raw, bitnet_error *err) {
    bitnet__strings unread = *merges;
    const uint8_t *p = 0;
    size_t length = 0, split = 0, n = 0, last_n = 0;
    int32_t left, right, result = -1;
    uint32_t i, place;
    for (i = 0; i < v->n_merges; i++) {
        uint64_t key;
        if (!bitnet__next_string(&unread, &p, &length))
            return bitnet__fail(err, BITNET_ERR_TRUNCATED, "merge %u: text ends early",
                                (unsigned)i);
        if (!bitnet__read_merge(map, p, length, raw, v->longest, &split, &n))
            return bitnet__fail(err, BITNET_ERR_FORMAT, "merge %u: not two tokens and a blank",
                                (unsigned)i);
        left = bitnet__find_normal(v, raw, split);
        right = bitnet__find_normal(v, raw + split, n - split);
        if (n != last_n || memcmp(v->bytes + v->offsets[result], raw, n) != 0)
            result = bitnet__find_normal(v, raw, n);
        if (left < 0 || right < 0 || result < 0)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "merge %u: %s is not a token",
                                (unsigned)i, left < 0 ? "its left part"
                                : right < 0 ? "its right part" : "its result");
        last_n = n;
        v->results[i] = (uint32_t)result;
        key = bitnet__pair_key((uint32_t)left, (uint32_t)right);
        place = bitnet__find_pair(v, key);
        if (place == BITNET__NO_SLOT)
            return bitnet__fail(err, BITNET_ERR_LIMIT, "merge %u: too many hash collisions",
                                (unsigned)i);
        if (v->pairs[place] == BITNET__NO_PAIR)     /* else the pair has a lower rank already */
            v->pairs[place] = key << BITNET__RANK_BITS | i;
    }
    return BITNET_OK;
}

/* What can be said before anything is allocated. */
static bitnet_result bitnet__vocab_check(const bitnet__strings *tokens,
                                         const bitnet__strings *merges, bitnet_error *err) {
    if (tokens->count > BITNET__MAX_TOKENS || merges->count > BITNET__MAX_MERGES)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "more than %d tokens or %d merges",
                            (int)BITNET__MAX_TOKENS, (int)BITNET__MAX_MERGES);
    if (tokens->count < 256)
        return bitnet__fail(err, BITNET_ERR_FORMAT,
                            "%d tokens are too few for a byte-level vocabulary",
                            (int)tokens->count);
    if (tokens->size < 8 * tokens->count || merges->size < 8 * merges->count)
        return bitnet__fail(err, BITNET_ERR_TRUNCATED, "the list of tokens or merges ends early");
    if (tokens->size >= 0xFFFFFFFFu)                /* offsets have 32 bits */
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the tokens' text is of 4 GiB or more");
    return BITNET_OK;
}

/* SentencePiece's scores [n_tokens] as numbers that are the lower, the higher the score. */
static bitnet_result bitnet__add_scores(bitnet__vocab *v, const uint8_t *scores,
                                        bitnet_error *err) {
    uint32_t t;
    for (t = 0; t < v->n_tokens; t++) {
        float x = bitnet__load_f32(scores + 4 * (size_t)t) + 0.0f;      /* -0 is 0 */
        uint32_t bits = bitnet__float_bits(x);
        if (!(x >= -3.4e38f && x <= 3.4e38f))
            return bitnet__fail(err, BITNET_ERR_FORMAT, "token %u: its score is not a number",
                                (unsigned)t);
        v->ranks[t] = bits >> 31 ? bits : ~(bits | 0x80000000u);
    }
    return BITNET_OK;
}

/* What the tokens' hashes need to be taken out of texts. */
static bitnet_result bitnet__add_powers(bitnet__vocab *v, const bitnet_allocator *a,
                                        bitnet_error *err) {
    uint32_t i;
    v->powers = (uint64_t *)bitnet__vocab_array(v, a, (size_t)v->longest + 1, 8);
    if (!v->powers) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a vocabulary");
    v->powers[0] = 1;
    for (i = 0; i < v->longest; i++) v->powers[i + 1] = v->powers[i] * BITNET__ROLL;
    return BITNET_OK;
}

/* A vocabulary of SentencePiece's BPE, as LLaMA 1 and 2 have it: a score for each token instead of
   merges. scores and types are [n_tokens]. */
static bitnet_result bitnet__vocab_build_spm(bitnet__vocab *v, const bitnet_allocator *a,
                                             const bitnet__strings *tokens, const uint8_t *types,
                                             const uint8_t *scores, int space_prefix,
                                             bitnet_error *err) {
    bitnet__strings no_merges;
    bitnet_result r;
    memset(v, 0, sizeof *v);
    memset(&no_merges, 0, sizeof no_merges);
    r = bitnet__vocab_check(tokens, &no_merges, err);
    if (r != BITNET_OK) return r;
    v->n_tokens = (uint32_t)tokens->count;
    v->space_prefix = space_prefix;
    memset(v->byte_token, 0xFF, sizeof v->byte_token);      /* -1 */
    r = bitnet__vocab_alloc(v, a, tokens, types, err);
    if (r == BITNET_OK) {
        v->ranks = (uint32_t *)bitnet__vocab_array(v, a, v->n_tokens, 4);
        if (!v->ranks) r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for scores");
    }
    if (r == BITNET_OK) r = bitnet__add_scores(v, scores, err);
    if (r == BITNET_OK) r = bitnet__add_tokens(v, tokens, types, 0, err);
    if (r == BITNET_OK) r = bitnet__add_powers(v, a, err);
    if (r == BITNET_OK) r = bitnet__find_byte_tokens(v, err);
    if (r != BITNET_OK) bitnet__vocab_free(v, a);
    return r;
}

/* Builds a vocabulary from the GGUF arrays tokens, token_type (little-endian int32 each, or 0:
   all normal) and merges, which are not needed afterwards. On failure *v is all zero and owns
   nothing. LLaMA 3's takes about 30 ms on a server core. */
static bitnet_result bitnet__vocab_build(bitnet__vocab *v, const bitnet_allocator *a,
                                         const bitnet__strings *tokens, const uint8_t *types,
                                         const bitnet__strings *merges, bitnet_error *err) {
    uint16_t map[BITNET__SPELL_END];
    uint8_t *raw;
    bitnet_result r;
    memset(v, 0, sizeof *v);
    r = bitnet__vocab_check(tokens, merges, err);
    if (r != BITNET_OK) return r;
    bitnet__make_spelling(map);
    v->n_tokens = (uint32_t)tokens->count;
    v->n_merges = (uint32_t)merges->count;
    r = bitnet__vocab_alloc(v, a, tokens, types, err);
    if (r == BITNET_OK) r = bitnet__add_tokens(v, tokens, types, map, err);
    if (r == BITNET_OK) r = bitnet__find_byte_tokens(v, err);
    if (r == BITNET_OK) {
        raw = (uint8_t *)bitnet__alloc(a, v->longest);
        r = raw ? bitnet__add_merges(v, merges, map, raw, err)
                : bitnet__fail(err, BITNET_ERR_MEMORY, "no memory to read merges");
        bitnet__free(a, raw);
    }
    if (r != BITNET_OK) bitnet__vocab_free(v, a);
    return r;
}

/* ---- the scanner: text to pieces ----

   The pre-tokenizer of LLaMA 3 is a regular expression, tried at each place from left to right,
   first alternative that matches wins (L = \p{L}, N = \p{N}, S = \s, nl = CR or LF):

       (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^nl L N]?L+ | N{1,3} | ?[^S L N]+[nl]* | S*[nl]+
       | S+(?!\S) | S+

   No alternative needs to back up over more than the last character of a run, once one sees that
     - `S*[nl]+` ends behind the last CR or LF of the run of white space, wherever that is;
     - `S+(?!\S)` is the run without its last character, or all of it at the end of the text;
     - an optional character in front belongs to the piece if and only if the run follows it.
   A run of white space is therefore scanned at most three times: up to its last CR or LF, then
   the rest as a whole, then its last character; the total stays linear in the text. */

/* Skips the run of one class that starts at p, or nothing. */
static const uint8_t *bitnet__skip_class(const uint8_t *p, const uint8_t *end, int wanted) {
    uint32_t n;
    while (bitnet__class_at(p, end, &n) == wanted) p += n;
    return p;
}

/* Length of 's 't 're 've 'm 'll 'd, in any case, at the apostrophe p; 0 if none of them is
   there. U+017F, the long s, is the one character beyond ASCII that folds to any of these letters
   (CaseFolding.txt, status C and S; tests/unicode_tables.py makes sure of it). */
static size_t bitnet__contraction(const uint8_t *p, const uint8_t *end) {
    size_t n = (size_t)(end - p);
    int a = n > 1 ? p[1] | 0x20 : 0, b = n > 2 ? p[2] | 0x20 : 0;   /* ASCII lower case */
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return n > 2 && p[1] == 0xC5 && p[2] == 0xBF ? 3 : 0;
}

/* Length of the piece that begins with the white space at p. */
static size_t bitnet__space_length(const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = p, *last = p, *behind_newline = p;
    uint32_t n;
    int c = bitnet__class_at(q, end, &n);
    while (c == BITNET__SPACE || c == BITNET__NEWLINE) {
        last = q;                                   /* the run's last character so far */
        q += n;
        if (c == BITNET__NEWLINE) behind_newline = q;
        c = bitnet__class_at(q, end, &n);
    }
    if (behind_newline > p) return (size_t)(behind_newline - p);
    if (c != BITNET__STOP && last > p) return (size_t)(last - p);
    return (size_t)(q - p);
}

/* Length of the piece at p < end: at least 1, and 1 for a byte that is not UTF-8. */
static size_t bitnet__piece_length(const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = p;
    uint32_t n, next_n;
    int c = bitnet__class_at(p, end, &n), next, i;
    size_t length = *p == '\'' ? bitnet__contraction(p, end) : 0;
    if (length > 0) return length;
    if (c == BITNET__STOP) return 1;
    if (c == BITNET__NUMBER) {
        for (i = 0; i < 3 && c == BITNET__NUMBER; i++) {
            q += n;
            c = bitnet__class_at(q, end, &n);
        }
        return (size_t)(q - p);
    }
    q += n;
    next = bitnet__class_at(q, end, &next_n);
    if (c == BITNET__LETTER || (c != BITNET__NEWLINE && next == BITNET__LETTER))
        return (size_t)(bitnet__skip_class(q, end, BITNET__LETTER) - p);
    if (c == BITNET__OTHER || (*p == ' ' && next == BITNET__OTHER)) {
        q = bitnet__skip_class(q, end, BITNET__OTHER);
        return (size_t)(bitnet__skip_class(q, end, BITNET__NEWLINE) - p);
    }
    return bitnet__space_length(p, end);
}

/* The pre-tokenizer falcon_e is three regular expressions (P = \p{P}). Each cuts the pieces that
   the one before left, and sees no more than the piece it cuts: its matches become pieces, and so
   does what stands between them.

       [P $+<=>^~|`]+
       's|'t|'re|'ve|'m|'ll|'d | ?L+ | ?N+ | ?[^S L N]+ | S+(?!\S) | S+
       [0-9]

   This is the definition of bitnet.cpp, whose converter gives files that name. Others differ:
   ik_llama.cpp takes the name for llama-bpe. A piece is merged even where it is a token, and no
   BOS is added unless the file asks for it, as is the rule there. In one pass it is this:
     - a run of punctuation is a piece, with nothing before it and nothing behind, so that no
       apostrophe is left for the contractions;
     - each ASCII digit is a piece; the space before it, which ` ?N+` took, is left alone again;
     - a run of letters, of other numbers or of anything else takes the one space before it;
     - white space leaves its last character to what follows, but all of it stays together before
       punctuation, which ended the piece, as at the end of the text.
   Only a run of white space is looked at twice, and only its last character. */

enum { BITNET__PUNCTUATION = 6, BITNET__DIGIT = 7 };        /* classes that only falcon_e knows */

/* Class at p as bitnet__class_at has it, with PUNCTUATION and DIGIT, and without NEWLINE. */
static int bitnet__falcon_class(const uint8_t *p, const uint8_t *end, uint32_t *length) {
    uint32_t cp = 0;
    int c = bitnet__class_at(p, end, length);
    if (c == BITNET__NEWLINE) return BITNET__SPACE;
    if (c == BITNET__NUMBER && *p < 128) return BITNET__DIGIT;
    if (c != BITNET__OTHER) return c;
    if (*p < 128) return *p > ' ' && *p < 127 ? BITNET__PUNCTUATION : c;
    bitnet__utf8_decode(p, end, &cp);
    return bitnet__is_punctuation(cp) ? BITNET__PUNCTUATION : c;
}

/* Length of falcon_e's piece at p < end: at least 1, and 1 for a byte that is not UTF-8. */
static size_t bitnet__falcon_length(const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = p, *last = p;
    uint32_t n;
    int c = bitnet__falcon_class(p, end, &n), next;
    if (c == BITNET__STOP || c == BITNET__DIGIT) return 1;
    q += n;
    next = bitnet__falcon_class(q, end, &n);
    if (*p == ' ' && (next == BITNET__LETTER || next == BITNET__NUMBER || next == BITNET__OTHER))
        c = next;
    for (; next == c; next = bitnet__falcon_class(q, end, &n)) {
        last = q;                                   /* the run's last character so far */
        q += n;
    }
    if (c == BITNET__SPACE && next != BITNET__STOP && next != BITNET__PUNCTUATION && last > p)
        return (size_t)(last - p);
    return (size_t)(q - p);
}

/* ---- the encoder: pieces to tokens ----

   A piece starts as one token per byte. The pair of neighbours with the lowest merge rank,
   leftmost among equals, is replaced by its result until no pair has a rank. The tokens are a
   list linked over the piece's bytes (a token is at the index of its first byte), the candidate
   pairs a binary heap of `rank << 32 | index of the left token`, whose order is the one wanted. An
   entry is stale when the token at its index has another rank by now; it is dropped when it comes
   up. A merge takes one entry and adds at most two, so 2n of them are room enough. */

typedef struct bitnet__symbol {
    uint32_t token;                 /* SentencePiece looks it up by its bytes when all is merged */
    uint32_t previous, next;        /* indices; next of the last is the number of bytes */
    uint32_t rank;                  /* of the merge with the next token, or NO_SLOT */
} bitnet__symbol;

typedef struct bitnet__encoder {
    const bitnet__vocab *vocab;
    const bitnet_allocator *allocator;
    bitnet_token *out;
    size_t cap, count;              /* count goes on beyond cap, out does not */
    const uint8_t *piece;           /* SentencePiece: what is being merged */
    bitnet__symbol *symbols;        /* [room] the arrays below, or larger ones when needed */
    uint64_t *heap;                 /* [2 * room] */
    uint64_t *rolled;               /* [room] SentencePiece: hashes of the first 1, 2, .. bytes */
    size_t room;
    void *block;                    /* the allocation behind them, or 0 */
    bitnet__symbol small_symbols[BITNET__SMALL_PIECE];
    uint64_t small_heap[2 * BITNET__SMALL_PIECE], small_rolled[BITNET__SMALL_PIECE];
} bitnet__encoder;

static void bitnet__emit(bitnet__encoder *e, bitnet_token t) {
    if (e->count < e->cap) e->out[e->count] = t;
    e->count++;
}

/* Makes room for a piece of n bytes. Doubling keeps the number of allocations logarithmic. */
static bitnet_result bitnet__reserve(bitnet__encoder *e, size_t n) {
    size_t room = e->room;
    uint8_t *block;
    if (n <= room) return BITNET_OK;
    if (n > BITNET__MAX_PIECE) return BITNET_ERR_LIMIT;
    while (room < n) room *= 2;
    if (room > BITNET__MAX_PIECE) room = BITNET__MAX_PIECE;
    bitnet__free(e->allocator, e->block);
    e->block = 0;
    e->room = 0;
    block = (uint8_t *)bitnet__alloc(e->allocator, room * (e->vocab->ranks ? 40 : 32));
    if (!block) return BITNET_ERR_MEMORY;
    e->block = block;
    e->heap = (uint64_t *)(void *)block;            /* 16 bytes a byte of the piece, ... */
    e->symbols = (bitnet__symbol *)(void *)(block + room * 16);     /* ... 16 more, ... */
    e->rolled = (uint64_t *)(void *)(block + room * 32);            /* ... and perhaps 8 more */
    e->room = room;
    return BITNET_OK;
}

/* Puts key at the hole `at` of the heap, or lower, moving smaller children up. */
static void bitnet__heap_sink(uint64_t *heap, size_t n, size_t at, uint64_t key) {
    size_t child;
    for (child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

/* Puts key at the hole `at` of the heap, or higher, moving larger parents down. */
static void bitnet__heap_rise(uint64_t *heap, size_t at, uint64_t key) {
    while (at > 0 && heap[(at - 1) / 2] > key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = key;
}

/* SentencePiece: the token of bytes [from, to) of the piece, or -1. */
static int32_t bitnet__find_stretch(const bitnet__encoder *e, size_t from, size_t to) {
    const bitnet__vocab *v = e->vocab;
    uint64_t h = e->rolled[to - 1];
    if (to - from > v->longest) return -1;
    if (from > 0) h -= e->rolled[from - 1] * v->powers[to - from];
    return bitnet__find_hashed(v, e->piece + from, to - from, bitnet__roll_end(h));
}

/* Looks up the pair that begins at symbol i; returns 1 and its heap key if it can be merged. */
static int bitnet__rate_pair(const bitnet__encoder *e, size_t i, size_t n, uint64_t *key) {
    bitnet__symbol *s = e->symbols + i;
    s->rank = BITNET__NO_SLOT;
    if (s->next < n && e->vocab->ranks) {
        int32_t token = bitnet__find_stretch(e, i, e->symbols[s->next].next);
        if (token >= 0) s->rank = e->vocab->ranks[token];
    } else if (s->next < n)
        s->rank = bitnet__pair_rank(e->vocab, s->token, e->symbols[s->next].token);
    *key = (uint64_t)s->rank << 32 | i;
    return s->rank != BITNET__NO_SLOT;
}

/* Where the symbol at p[i] ends: a byte further, or in SentencePiece a character. */
static size_t bitnet__symbol_end(const bitnet__encoder *e, const uint8_t *p, size_t i, size_t n) {
    uint32_t length = 1;
    if (e->vocab->ranks) bitnet__class_at(p + i, p + n, &length);
    return i + length;
}

/* The symbols, and the heap of all pairs. Returns how many there are. */
static size_t bitnet__start_piece(bitnet__encoder *e, const uint8_t *p, size_t n) {
    size_t i, count = 0, before = (size_t)0 - 1;    /* is never followed */
    uint64_t h = 0;
    e->piece = p;
    for (i = 0; e->vocab->ranks && i < n; i++) e->rolled[i] = h = bitnet__roll(h, p[i]);
    for (i = 0; i < n; i = e->symbols[i].next) {
        e->symbols[i].token = (uint32_t)e->vocab->byte_token[p[i]];
        e->symbols[i].previous = (uint32_t)before;
        e->symbols[i].next = (uint32_t)bitnet__symbol_end(e, p, i, n);
        before = i;
    }
    for (i = 0; i < n; i = e->symbols[i].next)
        count += (size_t)bitnet__rate_pair(e, i, n, e->heap + count);
    for (i = count / 2; i-- > 0;) bitnet__heap_sink(e->heap, count, i, e->heap[i]);
    return count;
}

/* Merges one piece, for which there is room, and emits its tokens. */
static void bitnet__merge_piece(bitnet__encoder *e, const uint8_t *p, size_t n) {
    bitnet__symbol *symbols = e->symbols;
    uint64_t *heap = e->heap, key;
    size_t count = bitnet__start_piece(e, p, n), i;
    while (count > 0) {
        uint32_t rank = (uint32_t)(heap[0] >> 32), right;
        i = (size_t)(heap[0] & 0xFFFFFFFFu);
        count--;
        if (count > 0) bitnet__heap_sink(heap, count, 0, heap[count]);
        if (symbols[i].rank != rank) continue;      /* stale */
        right = symbols[i].next;
        symbols[right].rank = BITNET__NO_SLOT;      /* makes its entry stale, if it has one */
        if (!e->vocab->ranks) symbols[i].token = e->vocab->results[rank];
        symbols[i].next = symbols[right].next;
        if (symbols[i].next < n) symbols[symbols[i].next].previous = (uint32_t)i;
        if (bitnet__rate_pair(e, i, n, &key)) bitnet__heap_rise(heap, count++, key);
        if (i > 0 && bitnet__rate_pair(e, symbols[i].previous, n, &key))
            bitnet__heap_rise(heap, count++, key);
    }
    for (i = 0; i < n; i = symbols[i].next) {
        const int32_t token = e->vocab->ranks ? bitnet__find_stretch(e, i, symbols[i].next)
                                              : (int32_t)symbols[i].token;
        size_t j = i;
        if (token >= 0) bitnet__emit(e, token);
        else while (j < symbols[i].next) bitnet__emit(e, e->vocab->byte_token[p[j++]]);
    }
}

/* Encodes text without special tokens in SentencePiece's way: no pieces; the characters of all of
   it are merged, pairs of the highest score first, and what is left without a token becomes its
   bytes. A U+2581 in it is a space. */
static bitnet_result bitnet__encode_spm(bitnet__encoder *e, const uint8_t *p,
                                        const uint8_t *end) {
    size_t n = (size_t)(end - p);
    bitnet_result r;
    uint8_t own[BITNET__SMALL_PIECE], *text = own;      /* "small" is a macro of Windows */
    if (n == 0) return BITNET_OK;
    r = bitnet__reserve(e, n + 1);
    if (r != BITNET_OK) return r;
    if (n >= sizeof own) text = (uint8_t *)bitnet__alloc(e->allocator, n + 1);
    if (!text) return BITNET_ERR_MEMORY;
    text[0] = ' ';
    n = bitnet__unmark_spaces(p, n, text + e->vocab->space_prefix);
    bitnet__merge_piece(e, text, n + (size_t)e->vocab->space_prefix);
    if (text != own) bitnet__free(e->allocator, text);
    return BITNET_OK;
}

/* Encodes text without special tokens. With llama-bpe, a piece that is a token is emitted whole,
   even where merging would not arrive at it (`ignore_merges` of the reference's tokenizer.json). */
static bitnet_result bitnet__encode_stretch(bitnet__encoder *e, const uint8_t *p,
                                            const uint8_t *end) {
    if (e->vocab->ranks) return bitnet__encode_spm(e, p, end);
    while (p < end) {
        const int falcon_e = e->vocab->falcon_e;
        size_t n = falcon_e ? bitnet__falcon_length(p, end) : bitnet__piece_length(p, end);
        int32_t token = falcon_e ? -1 : bitnet__find_normal(e->vocab, p, n);
        if (token >= 0) {
            bitnet__emit(e, token);
        } else {
            bitnet_result r = bitnet__reserve(e, n);
            if (r != BITNET_OK) return r;
            bitnet__merge_piece(e, p, n);
        }
        p += n;
    }
    return BITNET_OK;
}

/* Encodes n bytes of text; with parse_special, special tokens spelled out in it become those
   tokens (leftmost first, the longest at each place), else they are text like any other. Writes
   at most cap tokens to out (which may be 0 if cap is) and returns how many there are, or
   BITNET_ERR_MEMORY, or BITNET_ERR_LIMIT for a single piece of over 64 MiB. */
static int64_t bitnet__encode(const bitnet__vocab *v, const bitnet_allocator *a,
                              const uint8_t *text, size_t n, int parse_special,
                              bitnet_token *out, size_t cap) {
    bitnet__encoder e;
    const uint8_t *p = text, *end, *at;
    bitnet_result r = BITNET_OK;
    if (n == 0) return 0;                           /* and text may be 0 */
    end = text + n;
    e.vocab = v;
    e.allocator = a;
    e.out = out;
    e.cap = cap;
    e.count = 0;
    e.symbols = e.small_symbols;
    e.heap = e.small_heap;
    e.rolled = e.small_rolled;
    e.room = BITNET__SMALL_PIECE;
    e.block = 0;
    while (p < end && r == BITNET_OK) {
        size_t length = 0;
        int32_t token = -1;
        at = end;
        if (parse_special) token = bitnet__find_special(v, p, end, &at, &length);
        r = bitnet__encode_stretch(&e, p, at);
        if (token >= 0) bitnet__emit(&e, token);
        p = at + length;
    }
    bitnet__free(a, e.block);
    return r == BITNET_OK ? (int64_t)e.count : (int64_t)r;
}

/* ---- the detokenizer's filter ----

   Tokens are byte strings and may end inside a character. This filter takes their bytes in any
   portions and gives out well-formed UTF-8, whole code points only. What cannot be part of a
   character becomes U+FFFD, one for each maximal subpart (Unicode Standard, section 3.9, "U+FFFD
   Substitution of Maximal Subparts"; what Python calls errors='replace'). */

/* Appends [p, p + n) to out unless it would pass cap; returns the length in either case. */
static size_t bitnet__append(char *out, size_t cap, size_t at, const void *p, size_t n) {
    if (at <= cap && n <= cap - at) memcpy(out + at, p, n);
    return at + n;
}

/* Whether byte b can follow the n_pending >= 1 bytes of an unfinished character. */
static int bitnet__detok_continues(const bitnet_detok *d, uint8_t b) {
    if (d->n_pending == 1) return bitnet__utf8_second_ok(d->pending[0], b);
    return (b & 0xC0) == 0x80;
}

/* Ends the text: an unfinished character becomes U+FFFD. Returns 0 or 3, writes as below. */
static size_t bitnet__detok_flush(bitnet_detok *d, char *out, size_t cap) {
    size_t n = 0;
    if (d->n_pending > 0) n = bitnet__append(out, cap, 0, "\xEF\xBF\xBD", 3);
    d->n_pending = 0;
    return n;
}

/* Filters n more bytes. Returns how many bytes come out of it, at most 3 * n + 3, and writes them
   if they fit into cap (out may be 0 if cap is): of what does not fit, nothing from the first code
   point that would pass cap. The state moves on in any case. A zeroed state is a new text. */
static size_t bitnet__detok_push(bitnet_detok *d, const uint8_t *bytes, size_t n, char *out,
                                 size_t cap) {
    size_t at = 0, i;
    for (i = 0; i < n; i++) {
        uint8_t b = bytes[i];
        uint32_t length;
        if (d->n_pending > 0 && !bitnet__detok_continues(d, b)) {
            at = bitnet__append(out, cap, at, "\xEF\xBF\xBD", 3);
            d->n_pending = 0;
        }
        d->pending[d->n_pending++] = b;
        length = bitnet__utf8_length(d->pending[0]);
        if (length == 0)
            at = bitnet__append(out, cap, at, "\xEF\xBF\xBD", 3);
        else if (length == (uint32_t)d->n_pending)
            at = bitnet__append(out, cap, at, d->pending, length);
        if (length == 0 || length == (uint32_t)d->n_pending) d->n_pending = 0;
    }
    return at;
}

/* =============================================================================================
   >>gguf  the container: header, metadata, tensor directory
   Reads GGUF v2 and v3 (ggml's docs/gguf.md), little-endian:

       "GGUF"  u32 version  u64 n_tensors  u64 n_keys
       n_keys    times  string key, u32 type, value        string = u64 length, bytes
       n_tensors times  string name, u32 n_dims, u64 dims[n_dims] (fastest first), u32 type,
                        u64 offset from the start of the data
       zeros to the next multiple of general.alignment, then the data

   Nothing here trusts a number: a length is compared with the bytes left, by subtraction, before it
   is used. Positions are offsets, because a file that is read through callbacks moves as its header
   grows in memory. What is kept is one small record for each key and tensor, and their order by
   name: no two may share one, nor any byte of their data.
   ============================================================================================= */

#define BITNET__MAX_KEYS 8192
#define BITNET__MAX_TENSORS 8192
#define BITNET__MAX_KEY_NAME 256       /* bytes */
#define BITNET__MAX_TENSOR_NAME 64     /* bytes; GGUF's own limit */
#define BITNET__MAX_NESTING 8          /* arrays in arrays in an array */
#define BITNET__MAX_ALIGNMENT 65536

enum { BITNET__N_VALUE_TYPES = BITNET_GGUF_F64 + 1 };

/* A type of tensors, ours to read or not. Rows are whole blocks of so many weights in so many
   bytes; block 0: a tensor is one piece, see bitnet__tensor_size. */
typedef struct bitnet__type {
    const char *name;                  /* ggml's */
    uint16_t block, bytes;
} bitnet__type;

typedef struct bitnet__key {
    uint64_t name, value;              /* offsets of the name's and the value's first byte */
    uint64_t count, size;              /* arrays: elements, bytes of all; strings: 0, bytes */
    uint16_t name_len;
    uint8_t type, element;             /* element: an array's */
    uint32_t order;                    /* in record i: the number of the i-th key by name */
} bitnet__key;

typedef struct bitnet__tensor {
    uint64_t name, offset, size;       /* offset in the file; size in bytes */
    uint64_t dims[2];                  /* row length, rows; more dimensions multiply into rows */
    uint32_t name_len, type;
    const bitnet__type *info;          /* 0: unknown; then, and if rows are no blocks, size is 0 */
    uint32_t used;                     /* 1: the network has asked for it */
    uint32_t sound;                    /* 1: of I2_S, and found to be without code 3 */
    uint32_t order;                    /* as of keys */
} bitnet__tensor;

/* Where the bytes come from. data holds bytes [0, have) of the file: all of it if it is mapped or
   borrowed, else the header read so far, in memory of our own. */
typedef struct bitnet__source {
    const uint8_t *data;
    uint64_t size, have;
    bitnet_io io;                      /* io.read_fn 0: data is the whole file */
    void *map, *file;                  /* a file of ours, mapped, or open to be read; else 0 */
} bitnet__source;

typedef struct bitnet__gguf {
    bitnet__source src;
    bitnet__key *keys;                 /* in the file's order, as tensors */
    bitnet__tensor *tensors;
    uint64_t n_keys, n_tensors;
    uint64_t data_start;               /* offset of the tensors' data */
    uint64_t alignment;                /* of each tensor's */
} bitnet__gguf;

/* A place in the header while it is parsed. After the first error everything fails quietly, and err
   keeps that first one. */
typedef struct bitnet__reader {
    bitnet__source *src;
    const bitnet_allocator *allocator;
    bitnet_error *err;
    bitnet_result result;
    uint64_t pos;
    const char *part;                  /* for error texts: "key", "tensor", or 0; and which */
    uint64_t index, name, name_len;    /* name_len 0: not known yet */
} bitnet__reader;

/* The least bytes that each kind of metadata value takes. */
static uint32_t bitnet__value_size(uint32_t type) {
    static const uint8_t sizes[BITNET__N_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    return type < BITNET__N_VALUE_TYPES ? sizes[type] : 0;
}

/* Reads n bytes at an offset through io; if that fails, why says so in words. */
static bitnet_result bitnet__source_read(const bitnet__source *src, uint64_t at, void *dst,
                                         size_t n, char why[BITNET__TEXT]) {
    const bitnet_result r = src->io.read_fn(src->io.ud, at, dst, n);
#ifndef BITNET_NO_STDIO
    if (r == BITNET_ERR_IO && src->file) {
        bitnet__system_reason(why);
        return r;
    }
#endif
    bitnet__format(why, "%s", bitnet_result_text(r));
    return r;
}

/* Makes [0, end) of the file available at src->data; end <= src->size. Doubles the buffer, so that
   a header of n bytes costs at most 2 n bytes and log n reads. While it is copied both buffers are
   held: small files, whose records may take over twice their size, come at once. */
static bitnet_result bitnet__source_need(bitnet__source *src, const bitnet_allocator *a,
                                         uint64_t end, bitnet_error *err) {
    uint64_t want = src->have >= 32768 ? src->have * 2 : src->size <= 262144 ? src->size : 65536;
    char why[BITNET__TEXT];
    uint8_t *p;
    bitnet_result r;
    if (end <= src->have) return BITNET_OK;
    if (want < end) want = end;
    if (want > src->size) want = src->size;
    p = want <= SIZE_MAX ? (uint8_t *)bitnet__alloc(a, (size_t)want) : 0;
    if (!p)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a header of %llu bytes",
                            (unsigned long long)want);
    if (src->have) memcpy(p, src->data, (size_t)src->have);
    r = bitnet__source_read(src, src->have, p + src->have, (size_t)(want - src->have), why);
    if (r != BITNET_OK) {
        bitnet__free(a, p);
        return bitnet__fail(err, r, "reading %llu bytes at offset %llu: %s",
                            (unsigned long long)(want - src->have),
                            (unsigned long long)src->have, why);
    }
    bitnet__free(a, (void *)(uintptr_t)src->data);
    src->data = p;
    src->have = want;
    return BITNET_OK;
}

/* Records the reader's first error: "GGUF key 'name' at offset 123: what". */
static void bitnet__reader_fail(bitnet__reader *r, bitnet_result code, const char *what) {
    unsigned long long pos = r->pos;
    if (r->result != BITNET_OK) return;
    r->result = code;
    if (r->part == 0)
        bitnet__fail(r->err, code, "GGUF header at offset %llu: %s", pos, what);
    else if (r->name_len)
        bitnet__fail(r->err, code, "GGUF %s '%.*s' at offset %llu: %s", r->part,
                     (int)(r->name_len < 64 ? r->name_len : 64),
                     (const char *)r->src->data + r->name, pos, what);
    else
        bitnet__fail(r->err, code, "GGUF %s %llu at offset %llu: %s", r->part,
                     (unsigned long long)r->index, pos, what);
}

/* Steps over n bytes and returns where they are, or 0. The pointer is good until the next call. */
static const uint8_t *bitnet__reader_take(bitnet__reader *r, uint64_t n) {
    static const uint8_t nothing[1] = {0};
    const uint8_t *p;
    if (r->result != BITNET_OK) return 0;
    if (n > r->src->size - r->pos) {
        bitnet__reader_fail(r, BITNET_ERR_TRUNCATED, "the file ends inside it");
        return 0;
    }
    if (n == 0) return nothing;
    r->result = bitnet__source_need(r->src, r->allocator, r->pos + n, r->err);
    if (r->result != BITNET_OK) return 0;
    p = r->src->data + r->pos;
    r->pos += n;
    return p;
}

static uint32_t bitnet__reader_u32(bitnet__reader *r) {
    const uint8_t *p = bitnet__reader_take(r, 4);
    return p ? bitnet__get_u32(p) : 0;
}

static uint64_t bitnet__reader_u64(bitnet__reader *r) {
    const uint8_t *p = bitnet__reader_take(r, 8);
    return p ? bitnet__get_u64(p) : 0;
}

/* A string's bytes are stepped over; its offset and length come back. */
static uint64_t bitnet__reader_string(bitnet__reader *r, uint64_t *offset) {
    uint64_t n = bitnet__reader_u64(r);
    *offset = r->pos;
    return bitnet__reader_take(r, n) ? n : 0;
}

/* Why n bytes are no name of a key or tensor; 0 if they are one. Views hand names out as C strings,
   hence no NUL. */
static const char *bitnet__name_flaw(const uint8_t *p, uint64_t n) {
    const uint8_t *end = p + n;
    uint32_t cp, step;
    if (n == 0) return "it has no name";
    for (; p < end; p += step) {
        step = bitnet__utf8_decode(p, end, &cp);
        if (step == 0) return "its name is not UTF-8";
        if (cp == 0) return "its name holds a NUL";
    }
    return 0;
}

/* A key's or tensor's name; from here on errors call it by that. */
static uint16_t bitnet__reader_name(bitnet__reader *r, uint64_t max, uint64_t *offset) {
    const uint8_t *p;
    const char *flaw;
    uint64_t n;
    r->name_len = 0;
    n = bitnet__reader_u64(r);
    *offset = r->pos;
    if (n > max) bitnet__reader_fail(r, BITNET_ERR_FORMAT, "its name is too long");
    p = bitnet__reader_take(r, n);
    if (!p) return 0;
    r->name = *offset;
    r->name_len = n;
    flaw = bitnet__name_flaw(p, n);
    if (flaw) {
        r->pos = *offset;
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, flaw);
    }
    return (uint16_t)n;
}

/* Steps over n strings, so that whoever walks them later need not check again. In a file that is
   wholly at hand this is the hot loop of loading (400 000 strings): no calls but the slow path's.
   */
static void bitnet__reader_skip_strings(bitnet__reader *r, uint64_t n) {
    while (n > 0 && r->result == BITNET_OK) {
        const uint64_t have = r->src->have;
        uint64_t pos = r->pos;         /* no pointers: their difference ends at 2 GB of 4 */
        for (; n > 0 && have - pos >= 8; n--) {
            const uint64_t len = bitnet__get_u64(r->src->data + pos);
            if (len > have - pos - 8) break;
            pos += 8 + len;
        }
        r->pos = pos;
        if (n > 0) {                   /* past what is at hand: fetch more, or fail */
            uint64_t offset;
            bitnet__reader_string(r, &offset);
            n--;
        }
    }
}

/* Steps over the count elements of an array. An array of arrays is walked without recursion: left
   has what each array around this one still lacks. Each takes 12 bytes at least, so that the file's
   size bounds the steps. */
static void bitnet__reader_skip_array(bitnet__reader *r, uint32_t element, uint64_t count) {
    uint64_t left[BITNET__MAX_NESTING];
    int depth = 0;
    while (r->result == BITNET_OK) {
        const uint32_t size = bitnet__value_size(element);
        if (size == 0) {
            bitnet__reader_fail(r, BITNET_ERR_UNSUPPORTED, "an array of an unknown type");
        } else if (count > (r->src->size - r->pos) / size) {
            bitnet__reader_fail(r, BITNET_ERR_TRUNCATED, "the array is longer than the file");
        } else if (element == BITNET_GGUF_STRING) {
            bitnet__reader_skip_strings(r, count);
        } else if (element != BITNET_GGUF_ARRAY) {
            bitnet__reader_take(r, count * size);
        } else if (depth == BITNET__MAX_NESTING) {
            bitnet__reader_fail(r, BITNET_ERR_LIMIT, "its arrays are nested too deep");
        } else {
            left[depth++] = count;
        }
        while (depth > 0 && left[depth - 1] == 0) depth--;
        if (depth == 0) return;
        left[depth - 1]--;
        element = bitnet__reader_u32(r);
        count = bitnet__reader_u64(r);
    }
}

static void bitnet__reader_key(bitnet__reader *r, bitnet__key *k) {
    uint32_t type;
    memset(k, 0, sizeof *k);
    k->name_len = bitnet__reader_name(r, BITNET__MAX_KEY_NAME, &k->name);
    type = bitnet__reader_u32(r);
    if (r->result != BITNET_OK) return;
    if (type >= BITNET__N_VALUE_TYPES) {
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, "unknown type of value");
        return;
    }
    k->type = (uint8_t)type;
    k->value = r->pos;
    if (type == BITNET_GGUF_STRING) {
        k->size = bitnet__reader_string(r, &k->value);
    } else if (type == BITNET_GGUF_ARRAY) {
        const uint32_t element = bitnet__reader_u32(r);
        k->element = (uint8_t)element;
        k->count = bitnet__reader_u64(r);
        k->value = r->pos;
        bitnet__reader_skip_array(r, element, k->count);
        k->size = r->pos - k->value;
    } else {
        k->size = bitnet__value_size(type);
        bitnet__reader_take(r, k->size);
    }
}

/* By ggml's number; 0 if that is unknown. Two forks number apart: 36 to 39 are those of BitNet's,
   but 39 is also ggml's MXFP4 (see bitnet__gguf_settle_39). */
static const bitnet__type *bitnet__type_info(uint32_t type) {
    static const bitnet__type types[] = {
        {"F32", 1, 4}, {"F16", 1, 2}, {"Q4_0", 32, 18}, {"Q4_1", 32, 20}, {"Q4_2", 16, 10},
        {"Q4_3", 16, 12}, {"Q5_0", 32, 22}, {"Q5_1", 32, 24}, {"Q8_0", 32, 34}, {"Q8_1", 32, 36},
        {"Q2_K", 256, 84}, {"Q3_K", 256, 110}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
        {"Q6_K", 256, 210}, {"Q8_K", 256, 292}, {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},
        {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50}, {"IQ4_NL", 32, 18}, {"IQ3_S", 256, 110},
        {"IQ2_S", 256, 82}, {"IQ4_XS", 256, 136}, {"I8", 1, 1}, {"I16", 1, 2}, {"I32", 1, 4},
        {"I64", 1, 8}, {"F64", 1, 8}, {"IQ1_M", 256, 56}, {"BF16", 1, 2}, {"Q4_0_4_4", 32, 18},
        {"Q4_0_4_8", 32, 18}, {"Q4_0_8_8", 32, 18}, {"TQ1_0", 256, 54}, {"TQ2_0", 256, 66},
        {"I2_S", 0, 0}, {"I8_S", 0, 0}, {"TL1", 0, 0}, {"TL2", 0, 0}, {"NVFP4", 64, 36},
        {"Q1_0", 128, 18}
    };
    return type < sizeof types / sizeof types[0] ? &types[type] : 0;
}
static const bitnet__type bitnet__type_mxfp4 = {"MXFP4", 32, 17};

/* Bytes of a tensor; 0 if its type has no size for this shape, or none that we know. n <= 2^40, so
   nothing overflows. */
static uint64_t bitnet__tensor_size(uint32_t type, const bitnet__type *info, uint64_t n_cols,
                                    uint64_t n_rows) {
    const uint64_t n = n_cols * n_rows;
    if (!info) return 0;
    if (info->block) return n_cols % info->block ? 0 : n / info->block * info->bytes;
    switch (type) {                    /* codes, then 32 bytes that begin with the F32 scale */
        case BITNET_TENSOR_I2_S:
        case BITNET_TENSOR_TL1: return n / 4 + 32;
        case BITNET_TENSOR_TL2:       /* as if 256 columns were pairs, the others triplets */
            if (n_cols < 256) return 0;
            return ((n_cols - 256) * n_rows / 3 * 5 / 8 + 128 * n_rows * 4 / 8 + 31) / 32 * 32 + 32;
        default: return 0;
    }
}

static void bitnet__reader_tensor(bitnet__reader *r, bitnet__tensor *t) {
    uint32_t n_dims, i;
    memset(t, 0, sizeof *t);
    t->dims[0] = t->dims[1] = 1;
    t->name_len = bitnet__reader_name(r, BITNET__MAX_TENSOR_NAME, &t->name);
    n_dims = bitnet__reader_u32(r);
    if (r->result == BITNET_OK && (n_dims < 1 || n_dims > 4))
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, "it must have 1 to 4 dimensions");
    for (i = 0; i < n_dims && r->result == BITNET_OK; i++) {
        uint64_t d = bitnet__reader_u64(r), *into = &t->dims[i > 0];
        if (r->result == BITNET_OK && (d == 0 || d > ((uint64_t)1 << 40) / t->dims[0] / t->dims[1]))
            bitnet__reader_fail(r, BITNET_ERR_LIMIT, "a dimension is 0 or the tensor is too large");
        *into *= d;
    }
    t->type = bitnet__reader_u32(r);
    t->offset = bitnet__reader_u64(r);
    t->info = bitnet__type_info(t->type);
    t->size = bitnet__tensor_size(t->type, t->info, t->dims[0], t->dims[1]);
}

/* ---- the two lists, by name ---- */

static const uint8_t *bitnet__name_of(const bitnet__gguf *g, int is_key, uint32_t i, size_t *n) {
    *n = is_key ? g->keys[i].name_len : g->tensors[i].name_len;
    return g->src.data + (is_key ? g->keys[i].name : g->tensors[i].name);
}

static int bitnet__compare_names(const bitnet__gguf *g, int is_key, uint32_t a, uint32_t b) {
    size_t na, nb;
    const uint8_t *pa = bitnet__name_of(g, is_key, a, &na);
    const uint8_t *pb = bitnet__name_of(g, is_key, b, &nb);
    return bitnet__compare(pa, na, pb, nb);
}

static int bitnet__key_less(const void *of, uint32_t a, uint32_t b) {
    const int c = bitnet__compare_names((const bitnet__gguf *)of, 1, a, b);
    return c ? c < 0 : a < b;
}

static int bitnet__tensor_less(const void *of, uint32_t a, uint32_t b) {
    const int c = bitnet__compare_names((const bitnet__gguf *)of, 0, a, b);
    return c ? c < 0 : a < b;
}

static uint32_t bitnet__nth_name(const bitnet__gguf *g, int is_key, uint32_t i) {
    return is_key ? g->keys[i].order : g->tensors[i].order;
}

/* Sorts the keys or tensors by name. Two of one name are an error: who reads the first and who
   reads the last would see two files. */
static void bitnet__gguf_sort_names(bitnet__gguf *g, int is_key, bitnet__reader *r) {
    const uint32_t n = (uint32_t)(is_key ? g->n_keys : g->n_tensors);
    char what[BITNET__TEXT];
    uint32_t i;
    if (n == 0) return;
    if (is_key) {
        for (i = 0; i < n; i++) g->keys[i].order = i;
        bitnet__sort(&g->keys[0].order, sizeof *g->keys, n, bitnet__key_less, g);
    } else {                           /* so far by place */
        bitnet__sort(&g->tensors[0].order, sizeof *g->tensors, n, bitnet__tensor_less, g);
    }
    for (i = 1; i < n && r->result == BITNET_OK; i++) {
        const uint32_t a = bitnet__nth_name(g, is_key, i - 1), b = bitnet__nth_name(g, is_key, i);
        size_t len;
        if (bitnet__compare_names(g, is_key, a, b)) continue;
        bitnet__format(what, "the same name is at offset %llu",
                       (unsigned long long)(is_key ? g->keys[a].name : g->tensors[a].name));
        r->name = r->pos = (uint64_t)(bitnet__name_of(g, is_key, b, &len) - g->src.data);
        r->name_len = len;
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, what);
    }
}

/* The number of the key or tensor called name, or -1. */
static int32_t bitnet__find_name(const bitnet__gguf *g, int is_key, const char *name) {
    const size_t len = strlen(name);
    uint32_t low = 0, high = (uint32_t)(is_key ? g->n_keys : g->n_tensors);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2, i = bitnet__nth_name(g, is_key, middle);
        size_t n;
        const uint8_t *p = bitnet__name_of(g, is_key, i, &n);
        const int c = bitnet__compare(p, n, (const uint8_t *)name, len);
        if (c == 0) return (int32_t)i;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

static const bitnet__key *bitnet__find_key(const bitnet__gguf *g, const char *name) {
    const int32_t i = bitnet__find_name(g, 1, name);
    return i < 0 ? 0 : &g->keys[i];
}

static const bitnet__tensor *bitnet__find_tensor(const bitnet__gguf *g, const char *name) {
    const int32_t i = bitnet__find_name(g, 0, name);
    return i < 0 ? 0 : &g->tensors[i];
}

/* ---- where tensors are ---- */

static int bitnet__tensor_before(const void *of, uint32_t a, uint32_t b) {
    const bitnet__tensor *t = ((const bitnet__gguf *)of)->tensors;
    return t[a].offset != t[b].offset ? t[a].offset < t[b].offset : a < b;
}

/* Type 39 is TL2 in BitNet's fork of ggml and MXFP4 in ggml itself. The bytes up to the next tensor
   tell, since MXFP4 takes over twice as many; where they fit both or neither, the architecture and
   the file type do. left: bytes of all tensors; offsets are still from the start of those, and
   the order is by them. */
static void bitnet__gguf_settle_39(bitnet__gguf *g, uint64_t left) {
    const bitnet__key *arch = bitnet__find_key(g, "general.architecture");
    const bitnet__key *ftype = bitnet__find_key(g, "general.file_type");
    const int fork = (arch && arch->type == BITNET_GGUF_STRING && arch->size >= 6 &&
                      !memcmp(g->src.data + arch->value, "bitnet", 6)) ||
                     (ftype && ftype->type == BITNET_GGUF_U32 &&
                      bitnet__get_u32(g->src.data + ftype->value) == 39);
    uint64_t i;
    for (i = 0; i < g->n_tensors; i++) {
        bitnet__tensor *t = &g->tensors[g->tensors[i].order];
        uint64_t end = left, room, mxfp4;
        int fits_tl2, fits_mxfp4;
        if (t->type != BITNET_TENSOR_TL2 || t->offset > left) continue;
        if (i + 1 < g->n_tensors && g->tensors[g->tensors[i + 1].order].offset < left)
            end = g->tensors[g->tensors[i + 1].order].offset;
        room = end - t->offset;
        mxfp4 = bitnet__tensor_size(t->type, &bitnet__type_mxfp4, t->dims[0], t->dims[1]);
        fits_tl2 = t->size > 0 && t->size <= room && room - t->size < g->alignment;
        fits_mxfp4 = mxfp4 > 0 && mxfp4 <= room && room - mxfp4 < g->alignment;
        if (fits_tl2 != fits_mxfp4 ? fits_tl2 : fork && t->size > 0) continue;
        t->info = &bitnet__type_mxfp4;
        t->size = mxfp4 <= room ? mxfp4 : 0;
    }
}

/* After the directory come zeros up to where the data starts. Anything else there is a tensor that
   the count lacks. */
static void bitnet__reader_padding(bitnet__reader *r, uint64_t alignment) {
    const uint64_t start = r->pos, left = r->src->size - start;
    uint64_t pad = (alignment - start % alignment) % alignment, i;
    const uint8_t *p;
    if (pad > left) pad = left;
    p = bitnet__reader_take(r, pad);
    for (i = 0; p && i < pad && r->result == BITNET_OK; i++)
        if (p[i]) {
            r->part = 0;
            r->pos = start + i;
            bitnet__reader_fail(r, BITNET_ERR_FORMAT, "the padding before the tensors' data is not "
                                "0; does the directory lack a tensor?");
        }
}

/* Now that it is known where the data starts: do the tensors lie there, one after the other? Shared
   bytes could make a small file ask for much memory. Where a type has no size that we know, there
   is one byte at least. */
static void bitnet__gguf_place_tensors(bitnet__gguf *g, bitnet__reader *r) {
    const bitnet__tensor *last = 0;
    uint64_t i, left, end = 0;
    char what[BITNET__TEXT];
    bitnet__reader_padding(r, g->alignment);
    if (r->result != BITNET_OK) return;
    g->data_start = r->pos;
    left = r->src->size - g->data_start;
    for (i = 0; i < g->n_tensors; i++) g->tensors[i].order = (uint32_t)i;
    bitnet__sort(&g->tensors[0].order, sizeof *g->tensors, (uint32_t)g->n_tensors,
                 bitnet__tensor_before, g);
    bitnet__gguf_settle_39(g, left);
    for (i = 0; i < g->n_tensors && r->result == BITNET_OK; i++) {
        bitnet__tensor *t = &g->tensors[g->tensors[i].order];
        const uint64_t size = t->size ? t->size : 1;
        bitnet_result code = BITNET_ERR_FORMAT;
        what[0] = 0;
        if (t->offset % g->alignment)
            bitnet__format(what, "its data at %llu is not aligned to %d",
                           (unsigned long long)t->offset, (int)g->alignment);
        else if (t->offset > left || size > left - t->offset) {
            code = BITNET_ERR_TRUNCATED;
            bitnet__format(what, "its data at %llu, %llu bytes, lies past the end of the file",
                           (unsigned long long)t->offset, (unsigned long long)t->size);
        } else if (t->offset < end)
            bitnet__format(what, "its data overlaps '%.*s'", (int)last->name_len,
                           (const char *)r->src->data + last->name);
        if (what[0]) {
            r->name = r->pos = t->name;
            r->name_len = t->name_len;
            bitnet__reader_fail(r, code, what);
        }
        end = t->offset + size;
        t->offset += g->data_start;
        last = t;
    }
    if (r->result == BITNET_OK) bitnet__gguf_sort_names(g, 0, r);
}

/* Bytes behind the last tensor that are not 0: the directory lacks a tensor. If its entry happens
   to fill what would be padding, all the others' data is somewhere else than it seems. */
static bitnet_result bitnet__gguf_check_end(const bitnet__gguf *g, bitnet_error *err) {
    const bitnet__source *src = &g->src;
    const bitnet__tensor *last = 0;
    uint8_t slice[4096];
    uint64_t i, at;
    for (i = 0; i < g->n_tensors; i++)
        if (!last || g->tensors[i].offset > last->offset) last = &g->tensors[i];
    if (!last || last->size == 0) return BITNET_OK;
    for (at = last->offset + last->size; at < src->size; at += i) {
        const uint8_t *p = slice;
        const uint64_t n = src->size - at < sizeof slice ? src->size - at : sizeof slice;
        if (src->io.read_fn) {
            char why[BITNET__TEXT];
            const bitnet_result r = bitnet__source_read(src, at, slice, (size_t)n, why);
            if (r != BITNET_OK)
                return bitnet__fail(err, r, "reading behind the last tensor, at offset %llu: %s",
                                    (unsigned long long)at, why);
        } else p = src->data + at;
        for (i = 0; i < n; i++)
            if (p[i])
                return bitnet__fail(err, BITNET_ERR_FORMAT, "the bytes at offset %llu, behind the "
                                    "last tensor '%.*s', belong to none; does the directory lack "
                                    "one?", (unsigned long long)(at + i), (int)last->name_len,
                                    (const char *)src->data + last->name);
    }
    return BITNET_OK;
}

/* The 24 bytes in front of everything. */
static void bitnet__reader_preamble(bitnet__gguf *g, bitnet__reader *r) {
    const uint8_t *p = bitnet__reader_take(r, 4);
    uint32_t version;
    uint64_t left;
    if (p && memcmp(p, "GGUF", 4)) {
        r->pos = 0;
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, "this is not a GGUF file");
    }
    version = bitnet__reader_u32(r);
    if (r->result != BITNET_OK) return;
    r->pos = 4;
    if (version == 0x02000000u || version == 0x03000000u)
        bitnet__reader_fail(r, BITNET_ERR_UNSUPPORTED,
                            "a big-endian file; little-endian is needed");
    else if (version == 1)
        bitnet__reader_fail(r, BITNET_ERR_UNSUPPORTED, "version 1; convert the file to version 3");
    else if (version != 2 && version != 3)
        bitnet__reader_fail(r, BITNET_ERR_UNSUPPORTED, "unknown version; 2 and 3 are known");
    r->pos = 8;
    g->n_tensors = bitnet__reader_u64(r);
    g->n_keys = bitnet__reader_u64(r);
    if (r->result != BITNET_OK) return;
    /* A tensor takes 33 bytes at least, a key 14: this bounds the records by the file's size. */
    left = r->src->size - r->pos;
    if (g->n_tensors > BITNET__MAX_TENSORS || g->n_tensors * 33 > left) r->pos = 8;
    else if (g->n_keys > BITNET__MAX_KEYS || g->n_keys * 14 > left - g->n_tensors * 33) r->pos = 16;
    else return;
    bitnet__reader_fail(r, BITNET_ERR_LIMIT, "it names more keys or tensors than can be");
}

/* What general.alignment says, or 32. */
static void bitnet__gguf_get_alignment(bitnet__gguf *g, bitnet__reader *r) {
    const bitnet__key *k = bitnet__find_key(g, "general.alignment");
    uint32_t a = 32;
    if (k) a = k->type == BITNET_GGUF_U32 ? bitnet__get_u32(g->src.data + k->value) : 0;
    g->alignment = a;
    if (a && !(a & (a - 1)) && a <= BITNET__MAX_ALIGNMENT) return;
    r->part = "key";
    r->name = k->name;
    r->name_len = k->name_len;
    r->pos = k->value;
    bitnet__reader_fail(r, BITNET_ERR_FORMAT, "it must be a power of two up to 65536, as U32");
}

/* Parses the header of g->src. g->keys and g->tensors are allocated here and freed by the caller,
   on failure too. */
static bitnet_result bitnet__gguf_parse(bitnet__gguf *g, const bitnet_allocator *a,
                                        bitnet_error *err) {
    bitnet__reader r;
    uint64_t i;
    memset(&r, 0, sizeof r);
    r.src = &g->src;
    r.allocator = a;
    r.err = err;
    bitnet__reader_preamble(g, &r);
    if (r.result != BITNET_OK) return r.result;
    g->keys = (bitnet__key *)bitnet__alloc(a, (size_t)g->n_keys * sizeof *g->keys + 1);
    g->tensors = (bitnet__tensor *)bitnet__alloc(a, (size_t)g->n_tensors * sizeof *g->tensors + 1);
    if (!g->keys || !g->tensors)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the header's directory");
    r.part = "key";
    for (i = 0; i < g->n_keys && r.result == BITNET_OK; i++) {
        r.index = i;
        bitnet__reader_key(&r, &g->keys[i]);
    }
    if (r.result == BITNET_OK) bitnet__gguf_sort_names(g, 1, &r);
    if (r.result == BITNET_OK) bitnet__gguf_get_alignment(g, &r);
    r.part = "tensor";
    for (i = 0; i < g->n_tensors && r.result == BITNET_OK; i++) {
        r.index = i;
        bitnet__reader_tensor(&r, &g->tensors[i]);
    }
    if (r.result == BITNET_OK) bitnet__gguf_place_tensors(g, &r);
    return r.result;
}

/* ---- values by key ---- */

/* "GGUF key 'name' at offset 123", or without the place: what is said about a key begins so. */
static void bitnet__key_title(char title[BITNET__TEXT], const char *name, const bitnet__key *k) {
    if (!k) bitnet__format(title, "GGUF key '%s'", name);
    else bitnet__format(title, "GGUF key '%s' at offset %llu", name, (unsigned long long)k->value);
}

/* An unsigned number of any integer type; fallback if the key is absent. A value that is negative,
   not an integer or outside [low, high] is an error that names the key. */
static bitnet_result bitnet__get_uint(const bitnet__gguf *g, const char *name, uint64_t fallback,
                                      uint64_t low, uint64_t high, uint64_t *out,
                                      bitnet_error *err) {
    const bitnet__key *k = bitnet__find_key(g, name);
    const uint8_t *p;
    char title[BITNET__TEXT];
    uint64_t v = fallback;
    int ok = 1;
    if (k) {
        p = g->src.data + k->value;
        switch (k->type) {
            case BITNET_GGUF_BOOL:
            case BITNET_GGUF_U8: v = p[0]; break;
            case BITNET_GGUF_I8: v = p[0]; ok = p[0] < 0x80; break;
            case BITNET_GGUF_U16: v = bitnet__get_u16(p); break;
            case BITNET_GGUF_I16: v = bitnet__get_u16(p); ok = v < 0x8000; break;
            case BITNET_GGUF_U32: v = bitnet__get_u32(p); break;
            case BITNET_GGUF_I32: v = bitnet__get_u32(p); ok = v < 0x80000000u; break;
            case BITNET_GGUF_U64:
            case BITNET_GGUF_I64: v = bitnet__get_u64(p); break;
            default: ok = 0;
        }
    }
    if (ok && v >= low && v <= high) {
        *out = v;
        return BITNET_OK;
    }
    bitnet__key_title(title, name, k);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s is not an integer from %llu to %llu", title,
                        (unsigned long long)low, (unsigned long long)high);
}

/* A positive F32 from low to high; fallback if the key is absent. */
static bitnet_result bitnet__get_float(const bitnet__gguf *g, const char *name, float fallback,
                                       float low, float high, float *out, bitnet_error *err) {
    const bitnet__key *k = bitnet__find_key(g, name);
    char title[BITNET__TEXT];
    float v = fallback;
    if (k) v = k->type == BITNET_GGUF_F32 ? bitnet__load_f32(g->src.data + k->value) : 0.0f;
    if (v > 0.0f && v >= low && v <= high) {
        *out = v;
        return BITNET_OK;
    }
    bitnet__key_title(title, name, k);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s is not a F32 from %g to %g", title, (double)low,
                        (double)high);
}

/* A string array, which must be there. */
static bitnet_result bitnet__get_strings(const bitnet__gguf *g, const char *name,
                                         bitnet__strings *out, bitnet_error *err) {
    const bitnet__key *k = bitnet__find_key(g, name);
    char title[BITNET__TEXT];
    memset(out, 0, sizeof *out);
    bitnet__key_title(title, name, k);
    if (!k || k->type != BITNET_GGUF_ARRAY || k->element != BITNET_GGUF_STRING)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "%s is %s", title,
                            k ? "not an array of strings" : "missing");
    out->data = g->src.data + k->value;
    out->size = (size_t)k->size;
    out->count = k->count;
    return BITNET_OK;
}

/* ---- sources: the caller's memory, the caller's callbacks, a file ---- */

static bitnet_result bitnet__source_memory(const void *data, size_t size, bitnet__source *src,
                                           bitnet_error *err) {
    memset(src, 0, sizeof *src);
    if (!data) return bitnet__fail(err, BITNET_ERR_ARG, "there is no data to read");
    src->data = (const uint8_t *)data;
    src->size = src->have = size;
    return BITNET_OK;
}

static bitnet_result bitnet__source_io(const bitnet_io *io, bitnet__source *src,
                                       bitnet_error *err) {
    memset(src, 0, sizeof *src);
    if (!io || !io->read_fn) return bitnet__fail(err, BITNET_ERR_ARG, "there is no read_fn");
    src->size = io->size;
    src->io = *io;
    return BITNET_OK;
}

/* ---- files ----

   An open file is a void *, because it is the ud of a bitnet_io. It is read at offsets of 64 bits,
   and nothing in it changes then, so that any number of threads can read it at once. Only what is
   left when a system is neither POSIX nor Windows has a position, and one thread at a time. */

#ifdef BITNET_NO_STDIO
static void bitnet__file_close(void *file) { (void)file; }
#else

#define BITNET__MAX_READ (1 << 24)     /* bytes; some systems refuse more than 31 bits at once */

static bitnet_result bitnet__cannot_open(const char *path, bitnet_error *err) {
    char why[BITNET__TEXT];
    bitnet__system_reason(why);
    return bitnet__fail(err, BITNET_ERR_IO, "cannot open '%.120s': %s", path, why);
}

#if defined(BITNET__FILES_POSIX)

/* glibc's usual functions have offsets of 32 bits on 32-bit systems, and strict C hides pread,
   unless macros are defined before its first header, which may have been the user's. Those of 64
   bits are always there, if perhaps not declared. */
#if defined(__GLIBC__) && !defined(__UCLIBC__)
  #ifndef __USE_LARGEFILE64
extern int open64(const char *path, int flags, ...);
extern __off64_t lseek64(int fd, __off64_t offset, int whence);
extern ssize_t pread64(int fd, void *buf, size_t n, __off64_t offset);
  #endif
  #define BITNET__64(name) name##64
typedef __off64_t bitnet__offset;
#else
  #define BITNET__64(name) name
typedef off_t bitnet__offset;
#endif
#if defined(O_CLOEXEC)
  #define BITNET__CLOEXEC O_CLOEXEC
#elif defined(__O_CLOEXEC)             /* glibc in strict C */
  #define BITNET__CLOEXEC __O_CLOEXEC
#else
  #define BITNET__CLOEXEC 0
#endif

/* A descriptor is kept as a pointer plus 1: 0 is no file. */
static int bitnet__fd(void *file) { return (int)((intptr_t)file - 1); }

static void bitnet__file_close(void *file) {
    if (file) close(bitnet__fd(file));
}

/* O_NONBLOCK: opening a pipe would wait for its writer. A regular file gives EAGAIN then, if a
   program such as a file server has a lease of it: that one is to be waited for. fstat fails for
   what is too large for its st_size, which is then no pipe. */
static bitnet_result bitnet__file_open(const char *path, int shared, void **file, uint64_t *size,
                                       bitnet_error *err) {
    bitnet__offset end;
    struct stat st;
    int fd, other, flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | BITNET__CLOEXEC;
    (void)shared;
    while ((fd = BITNET__64(open)(path, flags)) < 0) {
        if (errno == EAGAIN && (flags & O_NONBLOCK) && !stat(path, &st) && S_ISREG(st.st_mode))
            flags &= ~O_NONBLOCK;
        else if (errno != EINTR) return bitnet__cannot_open(path, err);
    }
    if (!BITNET__CLOEXEC) fcntl(fd, F_SETFD, FD_CLOEXEC);
    other = !fstat(fd, &st) && !S_ISREG(st.st_mode);
    end = other ? -1 : BITNET__64(lseek)(fd, 0, SEEK_END);
#ifdef __EMSCRIPTEN__                  /* whose pread forgets the upper half of an offset */
    if (end > INT32_MAX) {
        end = -1;
        errno = EFBIG;
    }
#endif
    if (end >= 0) {
        *file = (void *)((intptr_t)fd + 1);
        *size = (uint64_t)end;
        return BITNET_OK;
    }
    if (other)
        bitnet__fail(err, BITNET_ERR_IO, "'%.120s' is %s", path,
                     S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    else bitnet__cannot_open(path, err);
    close(fd);
    return BITNET_ERR_IO;
}

static bitnet_result bitnet__file_read(void *ud, uint64_t offset, void *dst, size_t n) {
    uint8_t *p = (uint8_t *)dst;
    while (n > 0) {
        const ssize_t got = BITNET__64(pread)(bitnet__fd(ud), p,
                                              n < BITNET__MAX_READ ? n : BITNET__MAX_READ,
                                              (bitnet__offset)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return BITNET_ERR_IO;
        if (got == 0) return BITNET_ERR_TRUNCATED;     /* shorter than it was */
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return BITNET_OK;
}

#elif defined(BITNET__FILES_WIN32)

static void bitnet__file_close(void *file) {
    if (file) CloseHandle((HANDLE)file);
}

/* Closes h, but keeps the reason why something failed. */
static void bitnet__close_failed(HANDLE h) {
    const DWORD code = GetLastError();
    CloseHandle(h);
    SetLastError(code);
}

/* CreateFileW finds no word for directories but "access denied". */
static int bitnet__is_directory(const WCHAR *path) {
    const DWORD code = GetLastError(), found = GetFileAttributesW(path);
    SetLastError(code);
    return found != INVALID_FILE_ATTRIBUTES && (found & FILE_ATTRIBUTE_DIRECTORY);
}

/* shared 1: others may write to it meanwhile. */
static bitnet_result bitnet__file_open(const char *path, int shared, void **file, uint64_t *size,
                                       bitnet_error *err) {
    const DWORD share = FILE_SHARE_READ | (shared ? FILE_SHARE_WRITE | FILE_SHARE_DELETE : 0);
    WCHAR wide[1024];
    LARGE_INTEGER n;
    HANDLE h;
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, 1024)) {
        if (GetLastError() == ERROR_NO_UNICODE_TRANSLATION)
            return bitnet__fail(err, BITNET_ERR_ARG, "the path '%.120s' is not UTF-8", path);
        SetLastError(ERROR_FILENAME_EXCED_RANGE);
        return bitnet__cannot_open(path, err);
    }
    h = CreateFileW(wide, GENERIC_READ, share, 0, OPEN_EXISTING, 0, 0);
    if (h == INVALID_HANDLE_VALUE) {
        if (!bitnet__is_directory(wide)) return bitnet__cannot_open(path, err);
        return bitnet__fail(err, BITNET_ERR_IO, "'%.120s' is a directory", path);
    }
    if (GetFileType(h) != FILE_TYPE_DISK) {
        CloseHandle(h);
        return bitnet__fail(err, BITNET_ERR_IO, "'%.120s' is not a regular file", path);
    }
    if (!GetFileSizeEx(h, &n)) {
        bitnet__close_failed(h);
        return bitnet__cannot_open(path, err);
    }
    *file = h;
    *size = (uint64_t)n.QuadPart;
    return BITNET_OK;
}

static bitnet_result bitnet__file_read(void *ud, uint64_t offset, void *dst, size_t n) {
    uint8_t *p = (uint8_t *)dst;
    while (n > 0) {
        OVERLAPPED at;                 /* where to read; the file is not asynchronous for it */
        DWORD got = 0;
        memset(&at, 0, sizeof at);
        at.Offset = (DWORD)(offset & 0xFFFFFFFFu);
        at.OffsetHigh = (DWORD)(offset >> 32);
        if (!ReadFile((HANDLE)ud, p, (DWORD)(n < BITNET__MAX_READ ? n : BITNET__MAX_READ), &got,
                      &at))
            return GetLastError() == ERROR_HANDLE_EOF ? BITNET_ERR_TRUNCATED : BITNET_ERR_IO;
        if (got == 0) return BITNET_ERR_TRUNCATED;     /* shorter than it was */
        p += got;
        n -= got;
        offset += got;
    }
    return BITNET_OK;
}

#else

static void bitnet__file_close(void *file) {
    if (file) fclose((FILE *)file);
}

/* ISO C: files of less than LONG_MAX bytes. */
static bitnet_result bitnet__file_open(const char *path, int shared, void **file, uint64_t *size,
                                       bitnet_error *err) {
    FILE *f;
    long end = -1;
    (void)shared;
    errno = 0;                         /* fopen need not set it */
    f = fopen(path, "rb");
    if (f && (fseek(f, 0, SEEK_END) || (end = ftell(f)) == LONG_MAX)) end = -1;
    if (end < 0) {
        bitnet__cannot_open(path, err);
        bitnet__file_close(f);
        return BITNET_ERR_IO;
    }
    *file = f;
    *size = (uint64_t)end;
    return BITNET_OK;
}

static bitnet_result bitnet__file_read(void *ud, uint64_t offset, void *dst, size_t n) {
    FILE *f = (FILE *)ud;
    errno = 0;
    if (offset > LONG_MAX || fseek(f, (long)offset, SEEK_SET)) return BITNET_ERR_IO;
    if (fread(dst, 1, n, f) == n) return BITNET_OK;
    return feof(f) ? BITNET_ERR_TRUNCATED : BITNET_ERR_IO;     /* shorter than it was */
}

#endif

/* The whole file in memory, or 0: then it is to be read. */
#if defined(BITNET__MMAP_POSIX)
static void *bitnet__file_map(void *file, size_t size) {
    void *p = mmap(0, size, PROT_READ, MAP_PRIVATE, bitnet__fd(file), 0);
    return p == MAP_FAILED ? 0 : p;
}
#elif defined(BITNET__MMAP_WIN32)
static void *bitnet__file_map(void *file, size_t size) {
    HANDLE mapping = CreateFileMappingW((HANDLE)file, 0, PAGE_READONLY, 0, 0, 0);
    void *p = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size) : 0;
    if (mapping) CloseHandle(mapping);
    return p;
}
#else
static void *bitnet__file_map(void *file, size_t size) {
    (void)file; (void)size;
    return 0;
}
#endif

/* copy 1: it is read, even where it could be mapped. */
static bitnet_result bitnet__source_file(const char *path, int copy, bitnet__source *src,
                                         bitnet_error *err) {
    bitnet_result r;
    memset(src, 0, sizeof *src);
    if (!path) return bitnet__fail(err, BITNET_ERR_ARG, "there is no path");
    r = bitnet__file_open(path, copy, &src->file, &src->size, err);
    if (r != BITNET_OK) return r;
    if (!copy && src->size > 0 && src->size <= SIZE_MAX)
        src->map = bitnet__file_map(src->file, (size_t)src->size);
    if (src->map) {
        bitnet__file_close(src->file);
        src->file = 0;
        src->data = (const uint8_t *)src->map;
        src->have = src->size;
        return BITNET_OK;
    }
    src->io.size = src->size;
    src->io.read_fn = bitnet__file_read;
    src->io.ud = src->file;
    return BITNET_OK;
}

#endif /* BITNET_NO_STDIO */

static void bitnet__unmap(void *map, uint64_t size) {
#if defined(BITNET__MMAP_POSIX)
    munmap(map, (size_t)size);
#elif defined(BITNET__MMAP_WIN32)
    UnmapViewOfFile(map);
#endif
    (void)map; (void)size;
}

static void bitnet__source_close_file(bitnet__source *src) {
    bitnet__file_close(src->file);
    src->file = 0;
}

static void bitnet__source_close(bitnet__source *src, const bitnet_allocator *a) {
    if (src->io.read_fn && src->data) bitnet__free(a, (void *)(uintptr_t)src->data);
    if (src->map) bitnet__unmap(src->map, src->size);
    bitnet__source_close_file(src);
}

static void bitnet__gguf_free(bitnet__gguf *g, const bitnet_allocator *a) {
    bitnet__free(a, g->keys);
    bitnet__free(a, g->tensors);
    bitnet__source_close(&g->src, a);
}

/* =============================================================================================
   >>model  from a GGUF file to a network: hyperparameters, weights, tokenizer
   A model is immutable once loaded. Large tensors stay where the file's bytes are; norms (a few MB)
   are converted to aligned F32. Whatever the model allocates hangs in one list of blocks.
   ============================================================================================= */

#define BITNET__MAX_CONTEXT (1 << 20)  /* positions: sin and cos are good to there */
#define BITNET__MAX_HEADS 4096

typedef struct bitnet__matrix {        /* floats or Q8_0 ..., rows contiguous, unaligned */
    const uint8_t *data;
    const char *type_name;
    size_t row_bytes;
    uint32_t type;
    int32_t n_cols, n_rows;
} bitnet__matrix;

typedef struct bitnet__linear {        /* I2_S or packed, rows of n_in weights, unaligned */
    const uint8_t *w;
    int32_t n_file;                    /* weights of a row in the file */
    int32_t n_in;                      /* a multiple of 128; beyond n_file: zeros */
    int32_t n_out;
    float scale;
    uint32_t type;                     /* of the file's tensor, and its tile; w is that until */
    bitnet_tile tile;                  /* bitnet__pack_layer */
    uint32_t sound;                    /* as the file's tensor is */
} bitnet__linear;

/* What the networks that we run differ in, by their general.architecture. */
typedef struct bitnet__family {
    const char *arch;
    int silu;                          /* gate: 1: SiLU; 0: squared ReLU */
    int adjacent;                      /* RoPE turns 1: (2i, 2i + 1); 0: (i, i + n_rot / 2) */
    int sub_norms;                     /* 1: attn_sub_norm and ffn_sub_norm are there; 0: no norm */
    int strict;                        /* 1: no tensor may be left over */
    int quiet_pre;                     /* 1: files without tokenizer.ggml.pre mean llama-bpe */
    int chat;                          /* 1: the template under CHAT is this family's */
    float eps, freq_base;              /* what an absent key means; 0: it must be there */
} bitnet__family;

/* The official model under its two names; 1bitLLM's large and 3B; Llama3-8B-1.58, Falcon3-1.58 and
   the like. Many networks call themselves llama: with biases, experts, norms that we know nothing
   of, hence strict. */
static const bitnet__family bitnet__families[] = {
    {"bitnet-b1.58", 0, 0, 1, 0, 1, 1, 1e-5f, 500000.0f},
    {"bitnet-25", 0, 0, 1, 0, 1, 1, 1e-5f, 500000.0f},
    {"bitnet", 1, 0, 1, 0, 1, 0, 0.0f, 10000.0f},
    {"llama", 1, 1, 0, 1, 0, 0, 0.0f, 10000.0f},
};
enum { BITNET__N_FAMILIES = (int)(sizeof bitnet__families / sizeof bitnet__families[0]) };

typedef struct bitnet__layer {
    const float *attn_norm, *attn_sub_norm, *ffn_norm,
        *ffn_sub_norm; /* [dim] [q_dim] [dim] [ffn]; the family has no sub-norms: 0 */
    bitnet__linear attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down;
} bitnet__layer;

typedef struct bitnet__block {         /* header of everything the model allocates */
    struct bitnet__block *next;
    uint64_t size;
} bitnet__block;

struct bitnet_model {
    bitnet_model_params params;
    bitnet__gguf gguf;
    bitnet__block *blocks;
    bitnet_kernels kernels;            /* the chosen table, gaps filled by scalar entries */
    bitnet__vocab vocab;
    bitnet__layer *layers;             /* [n_layers] */
    const float *output_norm;          /* [dim] */
    bitnet__matrix embed, head;        /* [n_vocab][dim]; the same data if they are tied */
    const double *rope_freq;           /* [n_rot / 2] radians a position */
    const bitnet__family *family;
    char arch[32];
    int32_t n_vocab, n_layers, dim, ffn_dim, n_heads, n_kv_heads, head_dim, n_rot, n_ctx;
    int32_t q_dim, kv_dim;             /* n_heads * head_dim, n_kv_heads * head_dim */
    float eps, freq_base, rope_factor; /* rope_factor divides positions: 1, or linear scaling */
    bitnet_token bos, eos, eot, end_of_text;
    int32_t add_bos;
    uint64_t n_params, own_bytes;
    uint64_t bytes_read;               /* of tensors, for progress */
    struct bitnet__team *team;         /* while weights are packed; 0: one thread */
    uint32_t longest_token;            /* bytes */
};

/* Memory that lives as long as the model, 64-byte aligned. */
static void *bitnet__model_alloc(bitnet_model *m, uint64_t size) {
    bitnet__block *b = 0;
    if (size < SIZE_MAX - 64) b = (bitnet__block *)bitnet__alloc(&m->params.allocator,
                                                                 (size_t)size + 64);
    if (!b) return 0;
    b->next = m->blocks;
    b->size = size;
    m->blocks = b;
    m->own_bytes += size + 64;
    return (char *)b + 64;
}

/* Gives memory back before the model goes: a block of it, or pages of the mapped file, which are
   read again if somebody should ask. Anything else is the caller's and stays. */
static void bitnet__model_release(bitnet_model *m, const uint8_t *p, size_t size) {
    bitnet__block **link = &m->blocks, *b;
    for (; *link; link = &(*link)->next) {
        b = *link;
        if ((const uint8_t *)b + 64 != p) continue;
        *link = b->next;
        m->own_bytes -= b->size + 64;
        bitnet__free(&m->params.allocator, b);
        return;
    }
#if defined(BITNET__MMAP_POSIX) && defined(MADV_DONTNEED)
    if (m->gguf.src.map) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from, to;
        from = ((uintptr_t)p + page - 1) / page * page;
        to = ((uintptr_t)p + size) / page * page;
        if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
    }
#endif
    (void)size;
}

static void bitnet__log_text(const bitnet_model *m, bitnet_log_level level, const char *text) {
    if (m->params.log_fn) m->params.log_fn(m->params.ud, level, text);
}

/* ---- tensors ---- */

/* For a tensor of a type that cannot be used where it is; what: the types that can. */
static bitnet_result bitnet__refuse_type(const char *name, const bitnet__tensor *t,
                                         const char *what, bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED,
                        "tensor '%s' at offset %llu: unsupported tensor type %u (%s); %s", name,
                        (unsigned long long)t->offset, (unsigned)t->type,
                        t->info ? t->info->name : "unknown", what);
}

/* The tensor called name of size [n_rows][n_cols], or an error that says what is wrong with it. */
static bitnet_result bitnet__want_tensor(bitnet_model *m, const char *name, int32_t n_cols,
                                         int32_t n_rows, const bitnet__tensor **out,
                                         bitnet_error *err) {
    const bitnet__tensor *t = bitnet__find_tensor(&m->gguf, name);
    *out = t;
    if (!t) return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is missing", name);
    if (t->info && t->info->block && t->dims[0] % t->info->block)
        return bitnet__fail(err, BITNET_ERR_FORMAT,
                            "tensor '%s' is %s with rows of %llu weights, which are not whole "
                            "blocks of %d", name, t->info->name, (unsigned long long)t->dims[0],
                            (int)t->info->block);
    if (t->size == 0)
        return bitnet__refuse_type(name, t, t->info ? "its size is not that of this type" :
                                   "no such type is known", err);
    if (t->dims[0] != (uint64_t)n_cols || t->dims[1] != (uint64_t)n_rows)
        return bitnet__fail(err, BITNET_ERR_FORMAT,
                            "tensor '%s' is %llu x %llu; the metadata wants %d x %d", name,
                            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                            (int)n_cols, (int)n_rows);
    m->gguf.tensors[t - m->gguf.tensors].used = 1;
    return BITNET_OK;
}

static bitnet_result bitnet__progress(bitnet_model *m, uint64_t done, bitnet_error *err) {
    if (!m->params.progress_fn || !m->params.progress_fn(m->params.ud, done, m->gguf.src.size))
        return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_CANCELLED, "loading was cancelled");
}

/* The tensor's bytes: in place, or read through the callbacks in slices of 4 MB. */
static bitnet_result bitnet__tensor_bytes(bitnet_model *m, const bitnet__tensor *t,
                                          const uint8_t **out, bitnet_error *err) {
    const bitnet__source *src = &m->gguf.src;
    uint64_t done, n;
    uint8_t *p;
    if (!src->io.read_fn) {
        *out = src->data + t->offset;
        m->bytes_read += t->size;
        return BITNET_OK;
    }
    p = (uint8_t *)bitnet__model_alloc(m, t->size);
    if (!p)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for tensor '%.*s' (%llu bytes)",
                            (int)t->name_len, (const char *)src->data + t->name,
                            (unsigned long long)t->size);
    for (done = 0; done < t->size; done += n) {
        char why[BITNET__TEXT];
        bitnet_result r;
        n = t->size - done < 4194304 ? t->size - done : 4194304;
        r = bitnet__source_read(src, t->offset + done, p + done, (size_t)n, why);
        if (r != BITNET_OK)
            return bitnet__fail(err, r, "reading tensor '%.*s' at offset %llu: %s",
                                (int)t->name_len, (const char *)src->data + t->name,
                                (unsigned long long)(t->offset + done), why);
        m->bytes_read += n;
        r = bitnet__progress(m, m->gguf.data_start + m->bytes_read, err);
        if (r != BITNET_OK) return r;
    }
    *out = p;
    return BITNET_OK;
}

/* ---- blocks of weights with a common scale ----
   What embedding and head may be stored in besides floats: ggml's block_q8_0, block_q4_0 and
   block_q6_K. A weight is d * q, in Q6_K (d * scale) * q; d is an F16, q an integer.

       Q8_0    34 bytes, 32 weights     d, q[32]                               q, scale: signed
       Q4_0    18 bytes, 32 weights     d, 16 bytes: bits 3-0 of byte j hold q + 8 of weight j,
                                        bits 7-4 that of weight 16 + j
       Q6_K   210 bytes, 256 weights    low[128], high[64], scale[16], d: each half of 128 weights
                                        has the next 64 bytes of low, 32 of high and 8 scales, one
                                        for 16 weights in a row; q + 32 is low + 16 high of

           weight   j             32 + j           64 + j          96 + j
           low      j: bits 3-0   32 + j: 3-0      j: bits 7-4     32 + j: 7-4
           high     j: bits 1-0   j: bits 3-2      j: bits 5-4     j: bits 7-6

   d has 11 significant bits, a scale 7 and q of Q6_K 5 (or they are powers of two), q of the others
   7 at most: of a finite d each product has at most 23 and is a multiple of 2^-24 below 2^29, so
   that nothing is ever rounded. An infinite d, or a NaN, makes weights like it, or NaN.

   A block is copied first: then a compiler knows that the floats don't overlap it, and makes
   vectors. */

static void bitnet__block_q8_0(const uint8_t *p, float *out) {
    const float d = bitnet__load_f16(p);
    int8_t q[32];
    int i;
    memcpy(q, p + 2, sizeof q);
    for (i = 0; i < 32; i++) out[i] = d * (float)q[i];
}

static void bitnet__block_q4_0(const uint8_t *p, float *out) {
    const float d = bitnet__load_f16(p);
    uint8_t b[16];
    int i;
    memcpy(b, p + 2, sizeof b);
    for (i = 0; i < 16; i++) out[i] = d * (float)((b[i] & 15) - 8);
    for (i = 0; i < 16; i++) out[16 + i] = d * (float)((b[i] >> 4) - 8);
}

static void bitnet__block_q6_k(const uint8_t *p, float *out) {
    const float d = bitnet__load_f16(p + 208);
    uint8_t low[64], high[32], q[128];
    int half, i, j;
    for (half = 0; half < 2; half++, out += 128) {
        memcpy(low, p + 64 * half, sizeof low);
        memcpy(high, p + 128 + 32 * half, sizeof high);
        for (j = 0; j < 32; j++) {
            q[j] = (uint8_t)((low[j] & 15) | (high[j] & 3) << 4);
            q[32 + j] = (uint8_t)((low[32 + j] & 15) | (high[j] & 12) << 2);
            q[64 + j] = (uint8_t)(low[j] >> 4 | (high[j] & 48));
            q[96 + j] = (uint8_t)(low[32 + j] >> 4 | (high[j] & 192) >> 2);
        }
        for (i = 0; i < 8; i++) {
            const float f = d * (float)(int8_t)p[192 + 8 * half + i];
            for (j = 0; j < 16; j++) out[16 * i + j] = f * (float)(q[16 * i + j] - 32);
        }
    }
}

static int bitnet__is_float(uint32_t type) {
    return type == BITNET_TENSOR_F32 || type == BITNET_TENSOR_F16 || type == BITNET_TENSOR_BF16;
}

static bitnet_result bitnet__load_matrix(bitnet_model *m, const char *name, int32_t n_cols,
                                         int32_t n_rows, bitnet__matrix *out, bitnet_error *err) {
    const bitnet__tensor *t;
    bitnet_result r = bitnet__want_tensor(m, name, n_cols, n_rows, &t, err);
    if (r != BITNET_OK) return r;
    if (!bitnet__is_float(t->type) && t->type != BITNET_TENSOR_Q8_0 &&
        t->type != BITNET_TENSOR_Q6_K && t->type != BITNET_TENSOR_Q4_0)
        return bitnet__refuse_type(name, t, "F32, F16, BF16, Q8_0, Q6_K or Q4_0 is needed there",
                                   err);
    out->type = t->type;
    out->type_name = t->info->name;
    out->n_cols = n_cols;
    out->n_rows = n_rows;
    out->row_bytes = (size_t)(t->size / (uint64_t)n_rows);
    m->n_params += (uint64_t)n_cols * (uint64_t)n_rows;
    return bitnet__tensor_bytes(m, t, &out->data, err);
}

/* Row r of a matrix as F32. */
static void bitnet__matrix_row(const bitnet__matrix *a, int32_t r, float *out) {
    size_t n = (size_t)a->n_cols, i;
    const uint8_t *p = a->data + (size_t)r * a->row_bytes;
    switch (a->type) {
        case BITNET_TENSOR_F32:
            for (i = 0; i < n; i++) out[i] = bitnet__load_f32(p + 4 * i);
            break;
        case BITNET_TENSOR_F16:
            for (i = 0; i < n; i++) out[i] = bitnet__load_f16(p + 2 * i);
            break;
        case BITNET_TENSOR_Q8_0:
            for (i = 0; i < n; i += 32, p += 34) bitnet__block_q8_0(p, out + i);
            break;
        case BITNET_TENSOR_Q4_0:
            for (i = 0; i < n; i += 32, p += 18) bitnet__block_q4_0(p, out + i);
            break;
        case BITNET_TENSOR_Q6_K:
            for (i = 0; i < n; i += 256, p += 210) bitnet__block_q6_k(p, out + i);
            break;
        default: for (i = 0; i < n; i++) out[i] = bitnet__load_bf16(p + 2 * i); break;
    }
}

/* A vector of n gains, converted to F32. All are finite: one that is not would make all that
   comes after it so. */
static bitnet_result bitnet__load_norm(bitnet_model *m, const char *name, int32_t n,
                                       const float **out, bitnet_error *err) {
    bitnet__matrix row;
    float *p;
    int32_t i;
    const bitnet__tensor *t;
    bitnet_result r = bitnet__want_tensor(m, name, n, 1, &t, err);
    if (r == BITNET_OK && !bitnet__is_float(t->type))
        r = bitnet__refuse_type(name, t, "a norm needs F32, F16 or BF16", err);
    if (r == BITNET_OK) r = bitnet__load_matrix(m, name, n, 1, &row, err);
    if (r != BITNET_OK) return r;
    *out = p = (float *)bitnet__model_alloc(m, (uint64_t)n * sizeof *p);
    if (!p) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for tensor '%s'", name);
    bitnet__matrix_row(&row, 0, p);
    for (i = 0; i < n; i++)
        if ((bitnet__float_bits(p[i]) & 0x7f800000u) == 0x7f800000u)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "element %d of tensor '%s' is not finite",
                                (int)i, name);
    return BITNET_OK;
}

static bitnet_result bitnet__check_scale(const char *name, float scale, bitnet_error *err) {
    if (scale > 0.0f && scale <= 1e30f) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FORMAT, "the scale of tensor '%s' is %g, which is not a "
                        "usable number", name, (double)scale);
}

/* The scale: the first F32 after the codes, or, as older converters wrote it, a tensor of its own.
   Types in blocks have theirs there, which multiply what is found here: 1 or that tensor. */
static bitnet_result bitnet__load_scale(bitnet_model *m, const char *name, const bitnet__tensor *t,
                                        const uint8_t *codes, float *out, bitnet_error *err) {
    static const char *const suffixes[] = {"_scale", ".scale"};
    const uint8_t *p = t->info->block ? 0 : codes + t->size - 32;
    char scale_name[BITNET__TEXT];
    int i;
    for (i = 0; i < 2; i++) {
        const bitnet__tensor *s;
        size_t stem = strlen(name) - (i == 1 ? strlen(".weight") : 0);
        bitnet_result r;
        bitnet__format(scale_name, "%.*s%s", (int)stem, name, suffixes[i]);
        if (!bitnet__find_tensor(&m->gguf, scale_name)) continue;
        r = bitnet__want_tensor(m, scale_name, 1, 1, &s, err);
        if (r == BITNET_OK && s->type != BITNET_TENSOR_F32)
            r = bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' is not F32", scale_name);
        if (r == BITNET_OK) r = bitnet__tensor_bytes(m, s, &p, err);
        if (r != BITNET_OK) return r;
        break;
    }
    *out = p ? bitnet__load_f32(p) : 1.0f;
    return bitnet__check_scale(name, *out, err);
}

/* Sections of a TL2 tensor of n_out rows: triplets of columns [0, k3), as indices and signs, then
   the others as pairs, zeros, and 32 bytes with the scale. With n_out a multiple of 32, k3 of 24,
   and k2 up to 256 all of it lies before those 32 bytes: end is a multiple of 32, and at most
   n_out (5 n_in + 256) / 24, which is what bitnet__tensor_size rounds up to 32. */
typedef struct bitnet__tl2_parts {
    int32_t k3, k2;
    size_t signs, pairs, end;          /* where they begin; the end of the pairs */
} bitnet__tl2_parts;

static bitnet__tl2_parts bitnet__tl2_split(int32_t n_in, int32_t n_out, int32_t BK) {
    bitnet__tl2_parts s;
    s.k2 = n_in % BK;
    s.k3 = n_in - s.k2;
    s.signs = (size_t)((uint64_t)n_out * (uint64_t)s.k3 / 6);
    s.pairs = s.signs + (size_t)((uint64_t)n_out * (uint64_t)s.k3 / 24);
    s.end = s.pairs + (size_t)((uint64_t)n_out * (uint64_t)s.k2 / 4);
    return s;
}

/* The tile of a TL1 or TL2 tensor: the caller's, or the one that was published for its shape. */
static bitnet_result bitnet__load_tile(bitnet_tile t, const char *name, bitnet__linear *l,
                                       bitnet_error *err) {
    static const struct { int16_t n_out, n_in; bitnet_tile tl1, tl2; } published[] = {
        {1536, 4096, {256, 128, 32}, {256, 96, 32}},       /* bitnet_b1_58-large */
        {1536, 1536, {128, 64, 64}, {128, 192, 32}},
        {4096, 1536, {256, 128, 32}, {256, 96, 32}},
        {3200, 8640, {160, 64, 32}, {160, 96, 32}},        /* bitnet_b1_58-3B */
        {3200, 3200, {320, 128, 64}, {320, 96, 32}},
        {8640, 3200, {320, 64, 32}, {320, 96, 32}},
        {14336, 4096, {256, 128, 32}, {256, 96, 32}},      /* Llama3-8B-1.58 */
        {4096, 14336, {128, 64, 64}, {128, 96, 32}},
        {1024, 4096, {256, 128, 32}, {256, 96, 32}},
        {4096, 4096, {128, 64, 64}, {128, 96, 32}}
    };
    const int tl2 = l->type == BITNET_TENSOR_TL2;
    size_t i;
    int fits;
    for (i = 0; !t.BM && i < sizeof published / sizeof published[0]; i++)
        if (published[i].n_out == l->n_out && published[i].n_in == l->n_file)
            t = tl2 ? published[i].tl2 : published[i].tl1;
    if (!t.BM)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' is %s of %d rows of %d, a "
                            "shape for which no tile was published; give the converter's BM, BK, "
                            "bm (see tile)", name, tl2 ? "TL2" : "TL1", (int)l->n_out,
                            (int)l->n_file);
    if (!t.bm) t.bm = 32;
    if (tl2)                           /* units of 32 rows by 24 columns, pairs by 32 */
        fits = t.bm == 32 && t.BM % 32 == 0 && t.BK % 24 == 0 && l->n_file % t.BK % 32 == 0 &&
               l->n_file % t.BK <= 256;
    else                               /* bm rows by 256 / bm columns */
        fits = (t.bm == 16 || t.bm == 32 || t.bm == 64) && t.BM % t.bm == 0 &&
               t.BK % (256 / t.bm) == 0 && l->n_file % t.BK == 0;
    if (!fits || l->n_out % t.BM)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s', %s of %d rows of %d, cannot have "
                            "been made with tile %d,%d,%d", name, tl2 ? "TL2" : "TL1",
                            (int)l->n_out, (int)l->n_file, (int)t.BM, (int)t.BK, (int)t.bm);
    l->tile = t;
    return BITNET_OK;
}

/* Behind the pairs there are zeros: as many bytes as 256 columns of pairs would take more. */
static bitnet_result bitnet__check_padding(const char *name, const bitnet__linear *l,
                                           const bitnet__tensor *t, bitnet_error *err) {
    size_t at = bitnet__tl2_split(l->n_file, l->n_out, l->tile.BK).end;
    for (; at < t->size - 32; at++)
        if (l->w[at])
            return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is no TL2 of tile %d,%d,%d: "
                                "its padding is not 0 at byte %llu of %llu (see tile)", name,
                                (int)l->tile.BM, (int)l->tile.BK, (int)l->tile.bm,
                                (unsigned long long)at, (unsigned long long)t->size);
    return BITNET_OK;
}

static bitnet_result bitnet__load_linear(bitnet_model *m, const char *name, int32_t n_in,
                                         int32_t n_out, bitnet__linear *l, bitnet_error *err) {
    const bitnet_i2s_layout layout = m->params.i2s_layout;
    const int unit = layout == BITNET_I2S_128 ? 128 : layout == BITNET_I2S_64 ? 64 : 4;
    const bitnet__tensor *t;
    bitnet_result r = bitnet__want_tensor(m, name, n_in, n_out, &t, err);
    int tiled;
    if (r != BITNET_OK) return r;
    tiled = t->type == BITNET_TENSOR_TL1 || t->type == BITNET_TENSOR_TL2;
    if (t->info == &bitnet__type_mxfp4 ||
        (t->type != BITNET_TENSOR_I2_S && t->type != BITNET_TENSOR_TQ1_0 &&
         t->type != BITNET_TENSOR_TQ2_0 && !tiled))
        return bitnet__refuse_type(name, t, "a linear layer needs I2_S, TL1, TL2, TQ1_0 or TQ2_0",
                                   err);
    if (t->type == BITNET_TENSOR_I2_S &&
        (unit == 4 ? t->dims[1] : t->dims[0] * t->dims[1]) % (uint64_t)unit)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is %d x %d, which is not whole "
                            "%s of %d (see i2s_layout)", name, (int)n_in, (int)n_out,
                            unit == 4 ? "groups of rows" : "blocks", unit);
    if (n_in < 64)                     /* padding would blow them up */
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' has rows of %d weights; at "
                            "least 64 are supported", name, (int)n_in);
    l->type = t->type;
    l->sound = t->sound;
    l->n_file = n_in;
    l->n_in = (n_in + 127) / 128 * 128;
    l->n_out = n_out;
    memset(&l->tile, 0, sizeof l->tile);
    if (tiled && (r = bitnet__load_tile(m->params.tile, name, l, err))) return r;
    r = bitnet__tensor_bytes(m, t, &l->w, err);
    if (r == BITNET_OK) r = bitnet__load_scale(m, name, t, l->w, &l->scale, err);
    if (r == BITNET_OK && t->type == BITNET_TENSOR_TL2) r = bitnet__check_padding(name, l, t, err);
    if (r == BITNET_OK) m->n_params += (uint64_t)n_in * (uint64_t)n_out;
    return r;
}

static bitnet_result bitnet__pack_layer(bitnet_model *m, int32_t i, bitnet__layer *l,
                                        bitnet_error *err);   /* these two: after >>threads */
static void bitnet__pack_end(bitnet_model *m);

static bitnet_result bitnet__load_layer(bitnet_model *m, int32_t i, bitnet__layer *l,
                                        bitnet_error *err) {
    /* name, then a norm's place and size, or a linear layer's place, input and output size */
    const struct { const char *name; const float **norm; bitnet__linear *linear; int32_t in, out; }
    parts[] = {
        {"attn_norm", &l->attn_norm, 0, m->dim, 1},
        {"attn_sub_norm", &l->attn_sub_norm, 0, m->q_dim, 1},
        {"ffn_norm", &l->ffn_norm, 0, m->dim, 1},
        {"ffn_sub_norm", &l->ffn_sub_norm, 0, m->ffn_dim, 1},
        {"attn_q", 0, &l->attn_q, m->dim, m->q_dim},
        {"attn_k", 0, &l->attn_k, m->dim, m->kv_dim},
        {"attn_v", 0, &l->attn_v, m->dim, m->kv_dim},
        {"attn_output", 0, &l->attn_output, m->q_dim, m->dim},
        {"ffn_gate", 0, &l->ffn_gate, m->dim, m->ffn_dim},
        {"ffn_up", 0, &l->ffn_up, m->dim, m->ffn_dim},
        {"ffn_down", 0, &l->ffn_down, m->ffn_dim, m->dim},
    };
    size_t k;
    for (k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        char name[BITNET__TEXT];
        bitnet_result r;
        if (!m->family->sub_norms &&
            (parts[k].norm == &l->attn_sub_norm || parts[k].norm == &l->ffn_sub_norm)) {
            *parts[k].norm = 0;   /* NOLINT: it is one of those two, hence not 0 */
            continue;
        }
        bitnet__format(name, "blk.%d.%s.weight", (int)i, parts[k].name);
        r = parts[k].norm ? bitnet__load_norm(m, name, parts[k].in, parts[k].norm, err)
                          : bitnet__load_linear(m, name, parts[k].in, parts[k].out, parts[k].linear,
                                                err);
        if (r != BITNET_OK) return r;
    }
    return bitnet__pack_layer(m, i, l, err);
}

/* ---- metadata ---- */

/* A string value, NUL-terminated in buf; "" if the key is absent. */
static bitnet_result bitnet__get_text(const bitnet__gguf *g, const char *name, char *buf,
                                      size_t cap, bitnet_error *err) {
    const bitnet__key *k = bitnet__find_key(g, name);
    char title[BITNET__TEXT];
    buf[0] = 0;
    if (!k) return BITNET_OK;
    if (k->type != BITNET_GGUF_STRING || k->size >= cap ||
        memchr(g->src.data + k->value, 0, (size_t)k->size)) {
        bitnet__key_title(title, name, k);
        return bitnet__fail(err, BITNET_ERR_FORMAT, "%s is not a string of under %u bytes", title,
                            (unsigned)cap);
    }
    memcpy(buf, g->src.data + k->value, (size_t)k->size);
    buf[k->size] = 0;
    return BITNET_OK;
}

/* "<arch>.suffix" as an integer; fallback -1: the key is required. */
static bitnet_result bitnet__get_size(bitnet_model *m, const char *suffix, int64_t fallback,
                                      int64_t high, int32_t *out, bitnet_error *err) {
    char name[BITNET__TEXT];
    uint64_t v = 0;
    bitnet_result r;
    bitnet__format(name, "%s.%s", m->arch, suffix);
    if (fallback < 0 && !bitnet__find_key(&m->gguf, name))
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s' is missing", name);
    r = bitnet__get_uint(&m->gguf, name, (uint64_t)fallback, 1, (uint64_t)high, &v, err);
    *out = (int32_t)v;
    return r;
}

static bitnet_result bitnet__load_family(bitnet_model *m, bitnet_error *err) {
    char names[BITNET__TEXT];
    size_t at = 0;
    int i;
    bitnet_result r = bitnet__get_text(&m->gguf, "general.architecture", m->arch, sizeof m->arch,
                                       err);
    if (r != BITNET_OK) return r;
    if (!m->arch[0])
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key 'general.architecture' is missing");
    for (i = 0; i < BITNET__N_FAMILIES; i++) {
        const char *arch = bitnet__families[i].arch;
        if (!strcmp(m->arch, arch)) m->family = &bitnet__families[i];
        memcpy(names + at, i ? ", " : "", i ? 2 : 0);
        at += i ? 2 : 0;
        memcpy(names + at, arch, strlen(arch) + 1);
        at += strlen(arch);
    }
    if (m->family) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "architecture '%s' is not supported; these "
                        "are: %s", m->arch, names);
}

/* How positions are stretched. Linear scaling divides them; others would need what we don't do. */
static bitnet_result bitnet__load_rope_scaling(bitnet_model *m, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    char name[BITNET__TEXT], type[32];
    bitnet_result r;
    bitnet__format(name, "%s.rope.scaling.type", m->arch);
    if ((r = bitnet__get_text(g, name, type, sizeof type, err))) return r;
    if (type[0] && strcmp(type, "none") && strcmp(type, "linear"))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "%s is '%s'; only none and linear are "
                            "supported", name, type);
    m->rope_factor = 1.0f;
    if (!strcmp(type, "none")) return BITNET_OK;
    bitnet__format(name, "%s.rope.scale_linear", m->arch);     /* what it was called before */
    if ((r = bitnet__get_float(g, name, 1.0f, 1e-3f, 1e6f, &m->rope_factor, err))) return r;
    bitnet__format(name, "%s.rope.scaling.factor", m->arch);
    return bitnet__get_float(g, name, m->rope_factor, 1e-3f, 1e6f, &m->rope_factor, err);
}

static bitnet_result bitnet__load_shape(bitnet_model *m, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    char name[BITNET__TEXT];
    int32_t value_length = 0;
    bitnet_result r = bitnet__load_family(m, err);
    if (r != BITNET_OK) return r;
    /* Each layer has 9 tensors or 11: that bounds n_layers by what the file holds. */
    if ((r = bitnet__get_size(m, "embedding_length", -1, BITNET__MAX_ROW, &m->dim, err)) ||
        (r = bitnet__get_size(m, "feed_forward_length", -1, BITNET__MAX_ROW, &m->ffn_dim, err)) ||
        (r = bitnet__get_size(m, "block_count", -1,
                              (int64_t)(g->n_tensors / (m->family->sub_norms ? 11 : 9)),
                              &m->n_layers, err)) ||
        (r = bitnet__get_size(m, "context_length", -1, BITNET__MAX_CONTEXT, &m->n_ctx, err)) ||
        (r = bitnet__get_size(m, "attention.head_count", -1, BITNET__MAX_HEADS, &m->n_heads,
                              err)) ||
        (r = bitnet__get_size(m, "attention.head_count_kv", m->n_heads, m->n_heads,
                              &m->n_kv_heads, err)) ||
        (r = bitnet__get_size(m, "attention.key_length", m->dim / m->n_heads,
                              BITNET__MAX_ROW / m->n_heads, &m->head_dim, err)) ||
        (r = bitnet__get_size(m, "attention.value_length", m->head_dim, BITNET__MAX_ROW,
                              &value_length, err)) ||
        (r = bitnet__get_size(m, "rope.dimension_count", m->head_dim, m->head_dim, &m->n_rot,
                              err)))
        return r;
    if (value_length != m->head_dim)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "keys of %d and values of %d elements: "
                            "they must be equal", (int)m->head_dim, (int)value_length);
    if (m->n_heads % m->n_kv_heads)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s.attention.head_count_kv': %d "
                            "heads on %d KV heads do not divide", m->arch, (int)m->n_heads,
                            (int)m->n_kv_heads);
    if (m->n_rot % 2)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s.rope.dimension_count': %d "
                            "dimensions make no pairs", m->arch, (int)m->n_rot);
    m->q_dim = m->n_heads * m->head_dim;
    m->kv_dim = m->n_kv_heads * m->head_dim;
    bitnet__format(name, "%s.attention.layer_norm_rms_epsilon", m->arch);
    if (m->family->eps <= 0.0f && !bitnet__find_key(g, name))
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s' is missing", name);
    if ((r = bitnet__get_float(g, name, m->family->eps, 1e-30f, 1.0f, &m->eps, err))) return r;
    bitnet__format(name, "%s.rope.freq_base", m->arch);
    if ((r = bitnet__get_float(g, name, m->family->freq_base, 1.0f, 1e15f, &m->freq_base, err)))
        return r;
    return bitnet__load_rope_scaling(m, err);
}

/* A token id named by a key; without the key, the token with this text; else -1. */
static bitnet_result bitnet__get_token(bitnet_model *m, const char *key, const char *text,
                                       bitnet_token *out, bitnet_error *err) {
    uint64_t v = 0;
    bitnet_result r = BITNET_OK;
    if (!bitnet__find_key(&m->gguf, key)) {
        *out = bitnet_token_find(m, text);
        return BITNET_OK;
    }
    r = bitnet__get_uint(&m->gguf, key, 0, 0, (uint64_t)m->n_vocab - 1, &v, err);
    *out = (bitnet_token)v;
    return r;
}

static bitnet_result bitnet__load_tokenizer(bitnet_model *m, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    const bitnet__key *types = bitnet__find_key(g, "tokenizer.ggml.token_type");
    const bitnet__key *scores = bitnet__find_key(g, "tokenizer.ggml.scores");
    /* Four names of one pre-tokenizer, which the official file means that has none; and another. */
    static const char *const pre[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon_e"};
    bitnet__strings tokens, merges;
    char text[32], name[BITNET__TEXT];
    uint64_t v;
    uint32_t i;
    int spm;
    bitnet_result r;
    if ((r = bitnet__get_text(g, "tokenizer.ggml.model", text, sizeof text, err))) return r;
    spm = !strcmp(text, "llama");
    if (!spm && strcmp(text, "gpt2"))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.model is '%s'; only gpt2 "
                            "(byte-level BPE) and llama (SentencePiece) are supported", text);
    if ((r = bitnet__get_text(g, "tokenizer.ggml.pre", text, sizeof text, err))) return r;
    if (!text[0] && !spm && !m->family->quiet_pre)
        bitnet__log_text(m, BITNET_LOG_WARNING, "the file has no tokenizer.ggml.pre; llama-bpe is "
                         "assumed, and if that is wrong, texts become wrong tokens");
    for (i = 0; !spm && text[0] && strcmp(text, pre[i]); i++)
        if (i + 1 == sizeof pre / sizeof pre[0])
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.pre is '%s'; only "
                                "llama-bpe (llama3, llama-v3), falcon3 and falcon_e are "
                                "supported", text);
    if ((r = bitnet__get_strings(g, "tokenizer.ggml.tokens", &tokens, err))) return r;
    if (!spm && (r = bitnet__get_strings(g, "tokenizer.ggml.merges", &merges, err))) return r;
    if (types && (types->type != BITNET_GGUF_ARRAY || types->count != tokens.count ||
                  (types->element != BITNET_GGUF_I32 && types->element != BITNET_GGUF_U32)))
        return bitnet__fail(err, BITNET_ERR_FORMAT,
                            "GGUF key 'tokenizer.ggml.token_type' is not one "
                            "32-bit integer for each token");
    if (scores && (scores->type != BITNET_GGUF_ARRAY || scores->count != tokens.count ||
                   scores->element != BITNET_GGUF_F32))
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key 'tokenizer.ggml.scores' is not one "
                            "F32 for each token");
    if (spm && (!types || !scores))
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key 'tokenizer.ggml.%s' is missing, "
                            "which a tokenizer of SentencePiece needs",
                            types ? "scores" : "token_type");
    if ((r = bitnet__get_uint(g, "tokenizer.ggml.add_space_prefix", 1, 0, 1, &v, err))) return r;
    r = spm ? bitnet__vocab_build_spm(&m->vocab, &m->params.allocator, &tokens,
                                      g->src.data + types->value, g->src.data + scores->value,
                                      v == 1, err)
            : bitnet__vocab_build(&m->vocab, &m->params.allocator, &tokens,
                                  types ? g->src.data + types->value : 0, &merges, err);
    if (r != BITNET_OK) return r;
    m->vocab.falcon_e = !spm && !strcmp(text, "falcon_e");
    bitnet__format(name, "%s.vocab_size", m->arch);
    if ((r = bitnet__get_uint(g, name, tokens.count, tokens.count, 1 << 24, &v, err))) return r;
    m->n_vocab = (int32_t)v;
    for (i = 0; i < m->vocab.n_tokens; i++) {
        uint32_t n = m->vocab.offsets[i + 1] - m->vocab.offsets[i];
        m->longest_token = n > m->longest_token ? n : m->longest_token;
    }
    m->end_of_text = bitnet_token_find(m, "<|end_of_text|>");
    /* What ends a turn; the template of our own needs this very token, whatever a key says. */
    if ((r = bitnet__get_token(m, "tokenizer.ggml.eot_token_id", "<|eot_id|>", &m->eot, err)))
        return r;
    if (m->family->chat) m->eot = bitnet_token_find(m, "<|eot_id|>");
    else if (m->eot < 0) m->eot = bitnet_token_find(m, "<|im_end|>");
    if ((r = bitnet__get_token(m, "tokenizer.ggml.bos_token_id",
                               spm ? "<s>" : "<|begin_of_text|>", &m->bos, err)) ||
        (r = bitnet__get_token(m, "tokenizer.ggml.eos_token_id",
                               spm ? "</s>" : "<|end_of_text|>", &m->eos, err)) ||
        (r = bitnet__get_uint(g, "tokenizer.ggml.add_bos_token", !m->vocab.falcon_e, 0, 1, &v,
                              err)))
        return r;
    m->add_bos = v && m->bos >= 0;
    return BITNET_OK;
}

/* freq_base ^ (-2 i / n_rot) for each rotated pair i, divided by the factor of linear scaling and
   by the pair's own, if the file has such (as LLaMA 3.1's converters write them). */
static bitnet_result bitnet__load_rope(bitnet_model *m, bitnet_error *err) {
    double *freq = (double *)bitnet__model_alloc(m, (uint64_t)(m->n_rot / 2) * sizeof *freq);
    double base = bitnet__log((double)m->freq_base);
    const float *own = 0;
    int32_t i;
    if (!freq) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the rotary table");
    if (bitnet__find_tensor(&m->gguf, "rope_freqs.weight")) {
        bitnet_result r = bitnet__load_norm(m, "rope_freqs.weight", m->n_rot / 2, &own, err);
        if (r != BITNET_OK) return r;
    }
    for (i = 0; i < m->n_rot / 2; i++) {
        if (own && !(own[i] >= 1e-3f && own[i] <= 1e6f))
            return bitnet__fail(err, BITNET_ERR_FORMAT,
                                "element %d of tensor 'rope_freqs.weight' is not a usable number",
                                (int)i);
        freq[i] = bitnet__exp(-2.0 * (double)i / (double)m->n_rot * base) /
                  ((double)m->rope_factor * (own ? (double)own[i] : 1.0));
    }
    m->rope_freq = freq;
    return BITNET_OK;
}

/* A tensor that nobody asked for would change the results, if we knew how. */
static bitnet_result bitnet__check_leftovers(const bitnet_model *m, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    uint64_t i;
    for (i = 0; i < g->n_tensors && m->family->strict; i++)
        if (!g->tensors[i].used)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%.*s' is not part of "
                                "architecture '%s' as it is supported",
                                (int)g->tensors[i].name_len,
                                (const char *)g->src.data + g->tensors[i].name, m->arch);
    return BITNET_OK;
}

static bitnet_result bitnet__load_weights(bitnet_model *m, bitnet_error *err) {
    bitnet_result r;
    int32_t i;
    m->layers = (bitnet__layer *)bitnet__model_alloc(m, (uint64_t)m->n_layers * sizeof *m->layers);
    if (!m->layers) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the list of layers");
    r = bitnet__load_matrix(m, "token_embd.weight", m->dim, m->n_vocab, &m->embed, err);
    if (r == BITNET_OK)
        r = bitnet__load_norm(m, "output_norm.weight", m->dim, &m->output_norm, err);
    m->head = m->embed;
    if (r == BITNET_OK && bitnet__find_tensor(&m->gguf, "output.weight"))
        r = bitnet__load_matrix(m, "output.weight", m->dim, m->n_vocab, &m->head, err);
    for (i = 0; i < m->n_layers && r == BITNET_OK; i++)
        r = bitnet__load_layer(m, i, &m->layers[i], err);
    return r;
}

/* ---- loading ---- */

/* Of a table that may be the caller's own. */
static bitnet_result bitnet__check_kernels(const bitnet_kernels *k, bitnet_error *err) {
    if (!k->name) return bitnet__fail(err, BITNET_ERR_ARG, "the kernel table has no name");
    if (!bitnet_kernels_usable(k))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED,
                            "this CPU or its operating system lacks what the kernels '%s' need",
                            k->name);
    if (!k->layout && !k->row_group && !k->packed_bytes && !k->pack) return BITNET_OK;
    if (!k->layout || !k->packed_bytes || !k->pack || !k->dotrows_ternary)
        return bitnet__fail(err, BITNET_ERR_ARG, "the kernels '%s' have no %s; a table that packs "
                            "weights needs layout, row_group, packed_bytes, pack and "
                            "dotrows_ternary", k->name,
                            !k->layout         ? "layout"
                            : !k->packed_bytes ? "packed_bytes"
                            : !k->pack         ? "pack"
                                               : "dotrows_ternary");
    if (k->row_group < 1 || k->row_group > BITNET__MAX_GROUP || (k->row_group & (k->row_group - 1)))
        return bitnet__fail(err, BITNET_ERR_ARG, "the kernels '%s' have a row_group of %lld, which "
                            "is no power of two from 1 to %d", k->name, (long long)k->row_group,
                            (int)BITNET__MAX_GROUP);
    return BITNET_OK;
}

/* A copy of the table with every gap filled by its scalar entry. */
static bitnet_kernels bitnet__fill_kernels(const bitnet_kernels *table) {
    bitnet_kernels k = *table;
    const bitnet_kernels *s = &bitnet__kernels_scalar;
    if (!k.quantize) k.quantize = s->quantize;
    if (!k.dotrows_ternary) k.dotrows_ternary = s->dotrows_ternary;
    if (!k.pack) {                     /* I2_S in place: each row is a group */
        k.layout = "I2_S";
        k.row_group = 1;
        k.packed_bytes = bitnet__i2s_bytes;
    }
    if (!k.dotrows_f32) k.dotrows_f32 = s->dotrows_f32;
    if (!k.dotrows_f16) k.dotrows_f16 = s->dotrows_f16;
    if (!k.dotrows_bf16) k.dotrows_bf16 = s->dotrows_bf16;
    if (!k.keys_f16) k.keys_f16 = s->keys_f16;
    if (!k.mixrows_f32) k.mixrows_f32 = s->mixrows_f32;
    if (!k.mixrows_f16) k.mixrows_f16 = s->mixrows_f16;
    if (!k.softmax) k.softmax = s->softmax;
    if (!k.rope) k.rope = s->rope;
    if (!k.store_f16) k.store_f16 = s->store_f16;
    if (!k.dequantize) k.dequantize = s->dequantize;
    if (!k.relu2_gate) k.relu2_gate = s->relu2_gate;
    if (!k.rmsnorm) k.rmsnorm = s->rmsnorm;
    if (!k.dotrows_u8) k.dotrows_u8 = s->dotrows_u8;
    return k;
}

static bitnet_result bitnet__choose_kernels(bitnet_model *m, bitnet_error *err) {
    const bitnet_kernels *k = m->params.kernels ? m->params.kernels : bitnet_kernels_default();
    bitnet_result r = bitnet__check_kernels(k, err);
    if (!r) m->kernels = bitnet__fill_kernels(k);
    return r;
}

static bitnet_result bitnet__load_ahead(bitnet_model *m, bitnet_error *err);  /* after >>threads */

static bitnet_result bitnet__load_parts(bitnet_model *m, bitnet_error *err) {
    char text[BITNET__TEXT];
    uint64_t max_bytes = m->params.max_bytes ? m->params.max_bytes : (uint64_t)16 << 30;
    bitnet_result r;
    if (m->gguf.src.size > max_bytes)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the file has %llu bytes; the limit is %llu "
                            "(max_bytes)", (unsigned long long)m->gguf.src.size,
                            (unsigned long long)max_bytes);
    if ((r = bitnet__choose_kernels(m, err)) ||
        (r = bitnet__gguf_parse(&m->gguf, &m->params.allocator, err)) ||
        (r = bitnet__load_shape(m, err)) || (r = bitnet__load_ahead(m, err)) ||
        (r = bitnet__load_weights(m, err)) || (r = bitnet__load_rope(m, err)) ||
        (r = bitnet__check_leftovers(m, err)) ||
        (r = bitnet__gguf_check_end(&m->gguf, err))) return r;
    if ((r = bitnet__progress(m, m->gguf.src.size, err))) return r;
    bitnet__format(text, "%s, %d layers of %d, vocabulary of %d, kernels %s, weights in %s",
                   m->arch, (int)m->n_layers, (int)m->dim, (int)m->n_vocab, m->kernels.name,
                   m->kernels.layout);
    bitnet__log_text(m, BITNET_LOG_INFO, text);
#ifdef BITNET__SLOW
    if (!m->params.kernels) bitnet__log_text(m, BITNET_LOG_WARNING, BITNET__SLOW);
#endif
    return BITNET_OK;
}

/* Every way to load ends here. Takes over the source, on failure too. */
static bitnet_result bitnet__load(bitnet__source *src, const bitnet_model_params *params,
                                  bitnet_model **out, bitnet_error *err) {
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_result r;
    memset(&p, 0, sizeof p);
    if (params) p = *params;
    if (!p.allocator.alloc_fn != !p.allocator.free_fn)
        r = bitnet__fail(err, BITNET_ERR_ARG, "the allocator needs both of its functions");
    else if (p.i2s_layout != BITNET_I2S_128 && p.i2s_layout != BITNET_I2S_64 &&
             p.i2s_layout != BITNET_I2S_4ROW)
        r = bitnet__fail(err, BITNET_ERR_ARG, "i2s_layout %lld is unknown",
                         (long long)p.i2s_layout);
    else if (p.tile.BM < 0 || p.tile.BK < 0 || p.tile.bm < 0 || !p.tile.BM != !p.tile.BK ||
             (p.tile.bm && !p.tile.BM))
        r = bitnet__fail(err, BITNET_ERR_ARG, "tile %d,%d,%d: BM and BK are needed, or none at all",
                         (int)p.tile.BM, (int)p.tile.BK, (int)p.tile.bm);
    else if (!(m = (bitnet_model *)bitnet__alloc(&p.allocator, sizeof *m)))
        r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a model");
    else
        r = BITNET_OK;
    if (!m) {
        bitnet__source_close(src, &p.allocator);
        return r;
    }
    memset(m, 0, sizeof *m);
    m->params = p;
    m->gguf.src = *src;
    r = bitnet__load_parts(m, err);
    bitnet__pack_end(m);
    if (r != BITNET_OK) {
        bitnet_model_free(m);
        return r;
    }
    bitnet__source_close_file(&m->gguf.src);       /* all has been read */
    *out = m;
    return BITNET_OK;
}

BITNET_API void bitnet_model_free(bitnet_model *m) {
    bitnet_allocator a;
    bitnet__block *b, *next;
    if (!m) return;
    a = m->params.allocator;
    bitnet__vocab_free(&m->vocab, &a);
    for (b = m->blocks; b; b = next) {
        next = b->next;
        bitnet__free(&a, b);
    }
    bitnet__gguf_free(&m->gguf, &a);
    bitnet__free(&a, m);
}

static bitnet_result bitnet__no_model(bitnet_model **out, bitnet_error *err) {
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "there is nowhere to put the model");
    *out = 0;
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_model_load_memory(const void *data, size_t size,
                                                  const bitnet_model_params *params,
                                                  bitnet_model **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_model(out, err);
    if (r == BITNET_OK) r = bitnet__source_memory(data, size, &src, err);
    return r == BITNET_OK ? bitnet__load(&src, params, out, err) : r;
}

BITNET_API bitnet_result bitnet_model_load_io(const bitnet_io *io,
                                              const bitnet_model_params *params,
                                              bitnet_model **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_model(out, err);
    if (r == BITNET_OK) r = bitnet__source_io(io, &src, err);
    return r == BITNET_OK ? bitnet__load(&src, params, out, err) : r;
}

#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_model_load_file(const char *path, const bitnet_model_params *params,
                                                bitnet_model **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_model(out, err);
    if (r == BITNET_OK) r = bitnet__source_file(path, params && params->copy, &src, err);
    return r == BITNET_OK ? bitnet__load(&src, params, out, err) : r;
}
#endif

BITNET_API void bitnet_model_get_info(const bitnet_model *m, bitnet_model_info *info) {
    if (!info) return;
    memset(info, 0, sizeof *info);
    if (!m) return;
    info->arch = m->arch;
    info->kernels = m->kernels.name;
    info->layout = m->kernels.layout;
    info->n_vocab = m->n_vocab;
    info->n_layers = m->n_layers;
    info->dim = m->dim;
    info->ffn_dim = m->ffn_dim;
    info->n_heads = m->n_heads;
    info->n_kv_heads = m->n_kv_heads;
    info->head_dim = m->head_dim;
    info->ctx_train = m->n_ctx;
    info->embed_type = m->embed.type_name;
    info->head_type = m->head.type_name;
    info->head_bytes = (uint64_t)m->head.row_bytes * (uint64_t)m->head.n_rows;
    info->n_params = m->n_params;
    info->file_bytes = m->gguf.src.size;
    info->own_bytes = m->own_bytes + sizeof *m + bitnet__vocab_memory(&m->vocab) +
                      (m->gguf.n_keys + 1) * sizeof *m->gguf.keys +
                      (m->gguf.n_tensors + 1) * sizeof *m->gguf.tensors +
                      (m->gguf.src.io.read_fn ? m->gguf.src.have : 0);
    info->bos = m->bos;
    info->eos = m->eos;
    info->eot = m->eot;
    info->add_bos = m->add_bos;
}

/* A value as text; see bitnet_model_get_meta. */
static int bitnet__value_text(uint32_t type, const uint8_t *p, uint64_t size, char *buf,
                              size_t cap) {
    char text[BITNET__TEXT];
    int64_t n = 0;
    double d;
    const uint64_t bits = size == 8 ? bitnet__get_u64(p) : 0;
    switch (type) {
        case BITNET_GGUF_U8: n = p[0]; break;
        case BITNET_GGUF_I8: n = (int8_t)p[0]; break;
        case BITNET_GGUF_U16: n = bitnet__get_u16(p); break;
        case BITNET_GGUF_I16: n = (int16_t)bitnet__get_u16(p); break;
        case BITNET_GGUF_U32: n = bitnet__get_u32(p); break;
        case BITNET_GGUF_I32: n = (int32_t)bitnet__get_u32(p); break;
        case BITNET_GGUF_I64: n = (int64_t)bits; break;
        default: break;
    }
    /* Sign and digits apart: not every snprintf prints the lowest number of a type. */
    bitnet__format(text, "%s%llu", n < 0 ? "-" : "",
                   n < 0 ? 0 - (unsigned long long)n : (unsigned long long)n);
    switch (type) {
        case BITNET_GGUF_U64: bitnet__format(text, "%llu", (unsigned long long)bits); break;
        case BITNET_GGUF_BOOL: bitnet__format(text, "%s", p[0] ? "true" : "false"); break;
        case BITNET_GGUF_F32: bitnet__format(text, "%.9g", (double)bitnet__load_f32(p)); break;
        case BITNET_GGUF_F64:
            memcpy(&d, &bits, 8);
            bitnet__format(text, "%.17g", d);
            break;
        case BITNET_GGUF_STRING:
            if (size > INT32_MAX) return BITNET_ERR_LIMIT;
            if (cap > 0) {
                size_t len = size < cap ? (size_t)size : cap - 1;
                memcpy(buf, p, len);
                buf[len] = 0;
            }
            return (int)size;
        case BITNET_GGUF_ARRAY: return BITNET_ERR_UNSUPPORTED;
        default: break;
    }
    if (cap > 0) {
        size_t len = strlen(text) < cap ? strlen(text) : cap - 1;
        memcpy(buf, text, len);
        buf[len] = 0;
    }
    return (int)strlen(text);
}

BITNET_API int bitnet_model_get_meta(const bitnet_model *m, const char *key, char *buf,
                                     size_t cap) {
    const bitnet__key *k = m && key ? bitnet__find_key(&m->gguf, key) : 0;
    if (!k) return BITNET_ERR_ARG;
    if (!buf) cap = 0;
    return bitnet__value_text(k->type, m->gguf.src.data + k->value, k->size, buf, cap);
}

/* =============================================================================================
   >>threads  a fixed team of workers
   A team does one thing: it calls job(arg, run, thread) for each run in [0, n), and returns when
   all are done. The caller is thread 0. It does run 0, and then each that nobody else has taken
   yet; so it never waits for a worker that sleeps or has lost its CPU, unless that worker is in the
   middle of a run. A token is a few hundred such calls of some 100 us. Waking a thread takes longer
   than most waits, so threads spin for some 10 to 100 us before they sleep.
   ============================================================================================= */

#define BITNET__MAX_THREADS 256
#define BITNET__PATH 1024              /* bytes of a path of the system's */
#if defined(BITNET__THREADS_POSIX) || defined(BITNET__THREADS_WIN32)
  #define BITNET__OWN_THREADS BITNET__MAX_THREADS    /* the most that can be ours */
#else
  #define BITNET__OWN_THREADS 1
#endif

typedef void (*bitnet__job)(void *arg, int run, int thread);

#if defined(BITNET__THREADS_POSIX) || defined(BITNET__THREADS_WIN32)

#ifdef BITNET__THREADS_POSIX
typedef pthread_mutex_t bitnet__mutex;
typedef pthread_cond_t bitnet__cond;
typedef pthread_t bitnet__thread;
  #define BITNET__THREAD_RETURN void *
static uintptr_t bitnet__this_thread(void) { return (uintptr_t)pthread_self(); }
static int bitnet__mutex_init(bitnet__mutex *m) { return pthread_mutex_init(m, 0) == 0; }
static void bitnet__mutex_destroy(bitnet__mutex *m) { pthread_mutex_destroy(m); }
static void bitnet__lock(bitnet__mutex *m) { pthread_mutex_lock(m); }
static void bitnet__unlock(bitnet__mutex *m) { pthread_mutex_unlock(m); }
static int bitnet__cond_init(bitnet__cond *c) { return pthread_cond_init(c, 0) == 0; }
static void bitnet__cond_destroy(bitnet__cond *c) { pthread_cond_destroy(c); }
static void bitnet__cond_wait(bitnet__cond *c, bitnet__mutex *m) { pthread_cond_wait(c, m); }
static void bitnet__cond_wake_all(bitnet__cond *c) { pthread_cond_broadcast(c); }

/* ---- signals ----
   Our threads are not the ones that a program wants its signals on: they are born with all blocked,
   but those that a thread's own fault sends it, which end a program that blocks them. */
#if defined(__linux__)                 /* -std=c99 hides these: declared under other names */
typedef struct bitnet__sigset { unsigned long bits[1024 / (8 * sizeof(long))]; } bitnet__sigset;
extern int bitnet__sigfillset(bitnet__sigset *set) __asm__("sigfillset");
extern int bitnet__sigdelset(bitnet__sigset *set, int number) __asm__("sigdelset");
extern int bitnet__sigmask(int how, const bitnet__sigset *set, bitnet__sigset *old)
    __asm__("pthread_sigmask");
  #if defined(__mips__) || defined(__alpha__)
enum { BITNET__SIG_SETMASK = 3 };
  #elif defined(__sparc__)
enum { BITNET__SIG_SETMASK = 4 };
  #else
enum { BITNET__SIG_SETMASK = 2 };
  #endif
#elif defined(SIG_SETMASK)
typedef sigset_t bitnet__sigset;
enum { BITNET__SIG_SETMASK = SIG_SETMASK };
static int bitnet__sigfillset(bitnet__sigset *set) { return sigfillset(set); }
static int bitnet__sigdelset(bitnet__sigset *set, int number) { return sigdelset(set, number); }
static int bitnet__sigmask(int how, const bitnet__sigset *set, bitnet__sigset *old) {
    return pthread_sigmask(how, set, old);
}
#endif

#if defined(__linux__) || defined(SIG_SETMASK)
static int bitnet__thread_start(bitnet__thread *t, BITNET__THREAD_RETURN (*fn)(void *), void *arg) {
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    bitnet__sigset all, old;
    size_t i;
    int ok;
    bitnet__sigfillset(&all);
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) bitnet__sigdelset(&all, faults[i]);
    bitnet__sigmask(BITNET__SIG_SETMASK, &all, &old);
    ok = pthread_create(t, 0, fn, arg) == 0;
    bitnet__sigmask(BITNET__SIG_SETMASK, &old, 0);
    return ok;
}
#else                                  /* Emscripten, which has no signals */
static int bitnet__thread_start(bitnet__thread *t, BITNET__THREAD_RETURN (*fn)(void *), void *arg) {
    return pthread_create(t, 0, fn, arg) == 0;
}
#endif
static void bitnet__thread_join(bitnet__thread t) { pthread_join(t, 0); }
#else
typedef SRWLOCK bitnet__mutex;
typedef CONDITION_VARIABLE bitnet__cond;
typedef HANDLE bitnet__thread;
  #define BITNET__THREAD_RETURN DWORD WINAPI
static uintptr_t bitnet__this_thread(void) { return GetCurrentThreadId(); }
static int bitnet__mutex_init(bitnet__mutex *m) { InitializeSRWLock(m); return 1; }
static void bitnet__mutex_destroy(bitnet__mutex *m) { (void)m; }
static void bitnet__lock(bitnet__mutex *m) { AcquireSRWLockExclusive(m); }
static void bitnet__unlock(bitnet__mutex *m) { ReleaseSRWLockExclusive(m); }
static int bitnet__cond_init(bitnet__cond *c) { InitializeConditionVariable(c); return 1; }
static void bitnet__cond_destroy(bitnet__cond *c) { (void)c; }
static void bitnet__cond_wait(bitnet__cond *c, bitnet__mutex *m) {
    SleepConditionVariableSRW(c, m, INFINITE, 0);
}
static void bitnet__cond_wake_all(bitnet__cond *c) { WakeAllConditionVariable(c); }
static int bitnet__thread_start(bitnet__thread *t, LPTHREAD_START_ROUTINE fn, void *arg) {
    *t = CreateThread(0, 0, fn, arg, 0, 0);
    return *t != 0;
}
static void bitnet__thread_join(bitnet__thread t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
#endif

/* ---- how many CPUs this process may use ---- */

#ifdef BITNET__CPU_QUOTA

/* a, b and c as one path; 0: it is too long. */
static int bitnet__join(char path[BITNET__PATH], const char *a, const char *b, const char *c) {
    const char *parts[3], *p;
    size_t n = 0;
    int i;
    parts[0] = a;
    parts[1] = b;
    parts[2] = c;
    for (i = 0; i < 3; i++) {
        for (p = parts[i]; *p; p++) {
            if (n + 1 == BITNET__PATH) return 0;
            path[n++] = *p;
        }
    }
    path[n] = 0;
    return 1;
}

/* Reads up to n numbers from the file dir/name; returns how many there are. */
static int bitnet__read_numbers(const char *dir, const char *name, long long *numbers, int n) {
    char path[BITNET__PATH];
    FILE *f;
    int i = 0;
    if (!bitnet__join(path, dir, "/", name)) return 0;
    f = fopen(path, "rb");
    if (!f) return 0;
    while (i < n && fscanf(f, "%lld", &numbers[i]) == 1) i++;
    fclose(f);
    return i;
}

/* The CPUs that the quota of one control group amounts to, rounded up; 0: it has none. */
static int bitnet__group_cpus(const char *dir) {
    long long us[2];                   /* of CPU time, in this period */
    if (bitnet__read_numbers(dir, "cpu.max", us, 2) < 2 &&                      /* version 2 */
        (bitnet__read_numbers(dir, "cpu.cfs_quota_us", us, 1) < 1 ||            /* version 1 */
         bitnet__read_numbers(dir, "cpu.cfs_period_us", us + 1, 1) < 1)) return 0;
    if (us[0] < 1 || us[1] < 1) return 0;
    us[0] = us[0] / us[1] + (us[0] % us[1] > 0);
    return us[0] > BITNET__MAX_THREADS ? BITNET__MAX_THREADS : (int)us[0];
}

/* The least of the quotas of a group and of those that contain it. mount: where the groups are. */
static int bitnet__groups_cpus(const char *root, const char *mount, const char *group) {
    char dir[BITNET__PATH];
    const size_t top = strlen(root) + strlen(mount);
    int least = 0, n;
    if (!bitnet__join(dir, root, mount, group)) return 0;
    for (;;) {
        n = bitnet__group_cpus(dir);
        if (n > 0 && (least == 0 || n < least)) least = n;
        if (strlen(dir) <= top) return least;
        *strrchr(dir, '/') = 0;        /* a group's name begins with one */
    }
}

static int bitnet__in_list(const char *list, const char *word) {
    size_t n;
    for (;; list += n + 1) {
        n = strcspn(list, ",");
        if (n == strlen(word) && !memcmp(list, word, n)) return 1;
        if (!list[n]) return 0;
    }
}

/* What the control groups of this process allow; 0: no quota, or none that can be read. The lines
   of the file are number:controllers:/group; version 2 names no controllers. Everything is looked
   for below root, which is empty but in tests. */
static int bitnet__quota_cpus(const char *root) {
    char line[BITNET__PATH];
    int least = 0, begins = 1, n;
    FILE *f;
    if (!bitnet__join(line, root, "/proc/self/cgroup", "")) return 0;
    f = fopen(line, "rb");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *group;
        const int rest = !begins;      /* of a line that is longer than this buffer */
        begins = strchr(line, '\n') != 0;
        if (rest || !controllers || !(group = strchr(++controllers, ':')) || group[1] != '/')
            continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (!strncmp(group, "/..", 3)) group[1] = 0;   /* outside of what is mounted here */
        if (controllers[0] && !bitnet__in_list(controllers, "cpu")) continue;
        n = bitnet__groups_cpus(root, controllers[0] ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup",
                                group);
        if (n > 0 && (least == 0 || n < least)) least = n;
    }
    fclose(f);
    return least;
}

#else
static int bitnet__quota_cpus(const char *root) { (void)root; return 0; }
#endif

#ifdef __linux__
/* Declared here because <sched.h> shows it only with _GNU_SOURCE, which is not ours to define. */
extern int (bitnet__sched_getaffinity)(int pid, size_t size, void *mask)
    __asm__("sched_getaffinity");
#endif

/* The CPUs that the system lets this process run on. */
static int bitnet__allowed_cpus(void) {
#if defined(_WIN32)
    DWORD_PTR process, all;
    SYSTEM_INFO si;
    int n = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &process, &all))
        for (; process; process &= process - 1) n++;
    if (n > 0) return n;               /* 0: on more than 64 CPUs */
    GetSystemInfo(&si);
    return (int)si.dwNumberOfProcessors;
#else
  #ifdef __linux__
    uint8_t mask[1024] = {0};          /* 8192 CPUs, the most that Linux can have */
    size_t i;
    int n = 0;
    if (bitnet__sched_getaffinity(0, sizeof mask, mask) >= 0)
        for (i = 0; i < 8 * sizeof mask; i++) n += mask[i / 8] >> i % 8 & 1;
    if (n > 0) return n;
  #endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* How many threads this process can run at a time. */
static int bitnet__usable_cpus(void) {
    int n = bitnet__allowed_cpus(), quota = bitnet__quota_cpus("");
    if (quota > 0 && quota < n) n = quota;
    return n < 1 ? 1 : n > BITNET__MAX_THREADS ? BITNET__MAX_THREADS : n;
}

/* Loads that see what the storing thread did before, and stores that show it. swap_if stores to if
   there was from, and says whether it did. */
#if defined(__GNUC__) || defined(__clang__)
static uint32_t bitnet__load_acquire(uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void bitnet__store_release(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static uint32_t bitnet__decrement(uint32_t *p) {
    return __atomic_sub_fetch(p, 1, __ATOMIC_ACQ_REL);
}
static int bitnet__swap_if(uint32_t *p, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static uintptr_t bitnet__load_word(uintptr_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void bitnet__store_word(uintptr_t *p, uintptr_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static int bitnet__swap_word_if(uintptr_t *p, uintptr_t from, uintptr_t to) {
    return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
#else
static uint32_t bitnet__load_acquire(uint32_t *p) {
    return (uint32_t)InterlockedOr((volatile LONG *)p, 0);
}
static void bitnet__store_release(uint32_t *p, uint32_t v) {
    InterlockedExchange((volatile LONG *)p, (LONG)v);
}
static uint32_t bitnet__decrement(uint32_t *p) {
    return (uint32_t)InterlockedDecrement((volatile LONG *)p);
}
static int bitnet__swap_if(uint32_t *p, uint32_t from, uint32_t to) {
    return (uint32_t)InterlockedCompareExchange((volatile LONG *)p, (LONG)to, (LONG)from) == from;
}
static int bitnet__swap_word_if(uintptr_t *p, uintptr_t from, uintptr_t to) {
    return InterlockedCompareExchangePointer((void *volatile *)p, (void *)to, (void *)from) ==
           (void *)from;
}
static uintptr_t bitnet__load_word(uintptr_t *p) {
    return (uintptr_t)InterlockedCompareExchangePointer((void *volatile *)p, 0, 0);
}
static void bitnet__store_word(uintptr_t *p, uintptr_t v) {
    InterlockedExchangePointer((void *volatile *)p, (void *)v);
}
#endif

/* Tells the core that this is a waiting loop: some 5 to 60 ns. */
static void bitnet__pause(void) {
#if defined(_WIN32)
    YieldProcessor();
#elif BITNET__ARCH_X86
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#elif defined(__EMSCRIPTEN__)           /* WebAssembly has no such instruction */
    volatile int i;
    for (i = 0; i < 8; i++) { }
#endif
}

/* ---- runs ----
   One word holds how many runs there are (upper 16 bits) and how many have been taken (lower 16
   bits). Threads count it up, so no thread can take a run of a call that is over. A thread reads
   the job only after it has taken a run, and the job stays until all runs that were taken are
   done. */

static uint32_t bitnet__runs(int n, int jobs) { (void)jobs; return (uint32_t)n << 16; }
static int bitnet__runs_left(uint32_t runs) { return (runs & 0xffff) < runs >> 16; }

/* Takes the next run; -1: none is left. thread, and last, the run that it had before, are used only
   where there are no atomics. */
static int bitnet__claim(uint32_t *runs, int thread, int last) {
    (void)thread; (void)last;
    for (;;) {
        const uint32_t now = bitnet__load_acquire(runs);
        if (!bitnet__runs_left(now)) return -1;
        if (bitnet__swap_if(runs, now, now + 1)) return (int)(now & 0xffff);
    }
}

/* ---- does sharing pay? ----
   Not where other programs have the CPUs: a worker that loses its CPU in the middle of a run keeps
   the caller waiting for milliseconds. So each call that is shared is compared with what the caller
   would have needed alone, by the time of its own runs. What is gained and lost goes into a balance
   of at most bitnet__credit, of which one call can lose a half: a single delay means nothing. When
   the balance is used up, the caller works alone for a while, longer each time that it happens
   again soon. All times are nanoseconds. */

static const int64_t bitnet__credit = 4000000;
static const int64_t bitnet__least_pause = 32000000, bitnet__most_pause = 1024000000;

typedef struct bitnet__ledger {
    int64_t balance;
    int64_t pause, end;                /* how long the latest pause is, and when it ends */
} bitnet__ledger;

static int64_t bitnet__clock(void) {
#if defined(_WIN32)
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (int64_t)((double)ticks.QuadPart * 1e9 / (double)per_second.QuadPart);
#elif defined(CLOCK_MONOTONIC)
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#else                                  /* -std=c99 hides the other one */
    struct timeval t;
    gettimeofday(&t, 0);
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
#endif
}

/* Whether there is no pause. One that seems longer than it is has seen the clock set back. */
static int bitnet__ledger_open(const bitnet__ledger *l, int64_t now) {
    return now >= l->end || now < l->end - l->pause;
}

static void bitnet__ledger_note(bitnet__ledger *l, int64_t gain, int64_t now) {
    if (gain < 0) l->balance += gain > -bitnet__credit / 2 ? gain : -bitnet__credit / 2;
    else if (l->balance < bitnet__credit)
        l->balance = gain < bitnet__credit - l->balance ? l->balance + gain : bitnet__credit;
    if (l->balance >= 0) return;
    l->pause = now - l->end > 8 * l->pause ? bitnet__least_pause :
               l->pause < bitnet__most_pause / 2 ? 2 * l->pause : bitnet__most_pause;
    l->end = now + l->pause;
    l->balance = bitnet__credit;
}

/* ---- the team ---- */

typedef struct bitnet__worker {
    struct bitnet__team *team;
    bitnet__thread thread;
    int index;
} bitnet__worker;

typedef struct bitnet__team {
    uint32_t runs;                     /* of the call that is at work; atomic */
    uint32_t n_left;                   /* runs that are not done; atomic */
    uint32_t n_asleep;                 /* workers; changes under the mutex; atomic */
    uint32_t quit;                     /* 1: workers end; atomic */
    char pad[128 - 4 * sizeof(uint32_t)];      /* those are written all the time */
    bitnet__job job;
    void *arg;
    int n_workers;
    int caller_asleep;                 /* under the mutex */
    bitnet__mutex mutex;
    bitnet__cond start, done;
    bitnet__ledger ledger;
#ifdef BITNET__THREADS_POSIX
    pid_t process;
#endif
    bitnet__worker workers[BITNET__MAX_THREADS];
} bitnet__team;

enum { BITNET__SPINS = 1500 };

static int bitnet__is_idle(bitnet__team *t) {
    return !bitnet__runs_left(bitnet__load_acquire(&t->runs)) && !bitnet__load_acquire(&t->quit);
}

/* Returns when there is something to do. The caller may miss that a worker is about to sleep: then
   this one sleeps through a call, which does not wait for it. */
static void bitnet__await_runs(bitnet__team *t) {
    int i;
    for (i = 0; i < BITNET__SPINS; i++) {
        if (!bitnet__is_idle(t)) return;
        bitnet__pause();
    }
    bitnet__lock(&t->mutex);
    bitnet__store_release(&t->n_asleep, t->n_asleep + 1);
    while (bitnet__is_idle(t)) bitnet__cond_wait(&t->start, &t->mutex);
    bitnet__store_release(&t->n_asleep, t->n_asleep - 1);
    bitnet__unlock(&t->mutex);
}

static BITNET__THREAD_RETURN bitnet__worker_main(void *p) {
    bitnet__worker *w = (bitnet__worker *)p;
    bitnet__team *t = w->team;
    int run, wake;
    for (;;) {
        bitnet__await_runs(t);
        if (bitnet__load_acquire(&t->quit)) return 0;
        while ((run = bitnet__claim(&t->runs, 0, 0)) >= 0) {
            t->job(t->arg, run, w->index);
            if (bitnet__decrement(&t->n_left) > 0) continue;
            /* The last one. A caller that sleeps said so under the mutex before it looked again. */
            bitnet__lock(&t->mutex);
            wake = t->caller_asleep;
            bitnet__unlock(&t->mutex);
            if (wake) bitnet__cond_wake_all(&t->done);
        }
    }
}

static void bitnet__await_workers(bitnet__team *t) {
    int i;
    for (i = 0; i < BITNET__SPINS; i++) {
        if (bitnet__load_acquire(&t->n_left) == 0) return;
        bitnet__pause();
    }
    bitnet__lock(&t->mutex);
    t->caller_asleep = 1;
    while (bitnet__load_acquire(&t->n_left) > 0) bitnet__cond_wait(&t->done, &t->mutex);
    t->caller_asleep = 0;
    bitnet__unlock(&t->mutex);
}

/* Returns the time that was gained; under 0: lost. Of the caller's runs the longest does not count:
   something else may have had its CPU meanwhile. */
static int64_t bitnet__team_run(bitnet__team *t, int n, bitnet__job job, void *arg) {
    const int64_t start = bitnet__clock();
    int64_t now, since, own = 0, longest = 0;
    int run = 0, n_own = 0;
    t->job = job;
    t->arg = arg;
    bitnet__store_release(&t->n_left, (uint32_t)n);
    bitnet__store_release(&t->runs, bitnet__runs(n, 0) + 1);
    if (bitnet__load_acquire(&t->n_asleep) > 0) bitnet__cond_wake_all(&t->start);
    now = bitnet__clock();
    for (; run >= 0; run = bitnet__claim(&t->runs, 0, 0)) {
        since = now;
        job(arg, run, 0);
        bitnet__decrement(&t->n_left);
        now = bitnet__clock();
        own += now - since;
        if (now - since > longest) longest = now - since;
        n_own++;
    }
    if (bitnet__load_acquire(&t->n_left) > 0) {
        bitnet__await_workers(t);
        now = bitnet__clock();
    }
    return (n_own > 1 ? (own - longest) / (n_own - 1) : own) * n - (now - start);
}

/* Shares a step of the network, unless that does not pay: then it returns 0, and has done
   nothing. */
static int bitnet__team_share(bitnet__team *t, int n, bitnet__job job, void *arg) {
    int64_t gain;
    if (n < 4 && bitnet__load_acquire(&t->n_asleep) == (uint32_t)t->n_workers) return 0;
    if (!bitnet__ledger_open(&t->ledger, bitnet__clock())) return 0;
    gain = bitnet__team_run(t, n, job, arg);
    bitnet__ledger_note(&t->ledger, gain, bitnet__clock());
    return 1;
}

/* Whether this is not the process that started the team. */
static int bitnet__team_lost(const bitnet__team *t) {
#ifdef BITNET__THREADS_POSIX
    return t->process != getpid();
#else
    (void)t;
    return 0;
#endif
}

static void bitnet__team_stop(bitnet__team *t) {
    int i;
    if (bitnet__team_lost(t)) return;  /* a lost worker may hold the mutex */
    bitnet__lock(&t->mutex);
    bitnet__store_release(&t->quit, 1);
    bitnet__unlock(&t->mutex);
    bitnet__cond_wake_all(&t->start);
    for (i = 0; i < t->n_workers; i++) bitnet__thread_join(t->workers[i].thread);
    bitnet__cond_destroy(&t->start);
    bitnet__cond_destroy(&t->done);
    bitnet__mutex_destroy(&t->mutex);
}

static int bitnet__signals_init(bitnet__team *t) {
    if (!bitnet__mutex_init(&t->mutex)) return 0;
    if (bitnet__cond_init(&t->start)) {
        if (bitnet__cond_init(&t->done)) return 1;
        bitnet__cond_destroy(&t->start);
    }
    bitnet__mutex_destroy(&t->mutex);
    return 0;
}

/* n threads with the caller's, or as many as the system grants. 0: not even a second one, and there
   is nothing to stop. */
static int bitnet__team_start(bitnet__team *t, int n) {
    int i;
    memset(t, 0, sizeof *t);
    t->ledger.balance = bitnet__credit;
#ifdef BITNET__THREADS_POSIX
    t->process = getpid();
#endif
    if (!bitnet__signals_init(t)) return 0;
    for (i = 1; i < n; i++) {
        bitnet__worker *w = &t->workers[i - 1];
        w->team = t;
        w->index = i;
        if (!bitnet__thread_start(&w->thread, bitnet__worker_main, w)) break;
        t->n_workers++;
    }
    if (t->n_workers == 0) bitnet__team_stop(t);
    return t->n_workers > 0;
}

static int bitnet__team_size(const bitnet__team *t) { return t ? 1 + t->n_workers : 1; }

#else /* no threads: the caller does it all, and who uses a context twice calls from a callback */

typedef struct bitnet__team { int unused; } bitnet__team;
static uintptr_t bitnet__this_thread(void) { return UINTPTR_MAX; }
static uint32_t bitnet__load_acquire(uint32_t *p) { return *p; }
static void bitnet__store_release(uint32_t *p, uint32_t v) { *p = v; }
static int bitnet__swap_if(uint32_t *p, uint32_t from, uint32_t to) {
    if (*p != from) return 0;
    *p = to;
    return 1;
}
static uintptr_t bitnet__load_word(uintptr_t *p) { return *p; }
static void bitnet__store_word(uintptr_t *p, uintptr_t v) { *p = v; }
static int bitnet__swap_word_if(uintptr_t *p, uintptr_t from, uintptr_t to) {
    if (*p != from) return 0;
    *p = to;
    return 1;
}
static int bitnet__usable_cpus(void) { return 1; }
static int bitnet__team_start(bitnet__team *t, int n) { (void)t; (void)n; return 0; }
static int bitnet__team_size(const bitnet__team *t) { (void)t; return 1; }
static int bitnet__team_lost(const bitnet__team *t) { (void)t; return 0; }
static void bitnet__team_stop(bitnet__team *t) { (void)t; }
static void bitnet__team_run(bitnet__team *t, int n, bitnet__job job, void *arg) {
    (void)t; (void)n; (void)job; (void)arg;
}
static int bitnet__team_share(bitnet__team *t, int n, bitnet__job job, void *arg) {
    (void)t; (void)n; (void)job; (void)arg;
    return 0;
}

/* parallel_fn may use threads, but without atomics they cannot share a counter. Of n jobs, job i
   does the runs i, i + n, i + 2 n and so on. */
static uint32_t bitnet__runs(int n, int jobs) { return (uint32_t)n << 16 | (uint32_t)jobs; }
static int bitnet__claim(const uint32_t *runs, int thread, int last) {
    const int run = last < 0 ? thread : last + (int)(*runs & 0xffff);
    return run < (int)(*runs >> 16) ? run : -1;
}

#endif

/* A team of n threads, or fewer: bitnet__team_size says how many. *out 0: the caller's alone. */
static bitnet_result bitnet__team_create(const bitnet_allocator *a, int n, bitnet__team **out,
                                         bitnet_error *err) {
    bitnet__team *t;
    *out = 0;
    if (n < 2) return BITNET_OK;
    t = (bitnet__team *)bitnet__alloc(a, sizeof *t);
    if (!t) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %d threads", n);
    if (bitnet__team_start(t, n)) *out = t;
    else bitnet__free(a, t);
    return BITNET_OK;
}

static void bitnet__team_free(const bitnet_allocator *a, bitnet__team *t) {
    if (t) bitnet__team_stop(t);
    bitnet__free(a, t);
}

/* ---- packing weights while a model is loaded: to I2_S as the kernels know it, and to what they
   make of that; each only where it is needed ---- */

/* A weight's code in the file. */
static uint32_t bitnet__file_code(bitnet_i2s_layout layout, const bitnet__linear *l, size_t row,
                                  size_t column) {
    const size_t at = row * (size_t)l->n_file + column;
    switch (layout) {
        case BITNET_I2S_128:
            return (uint32_t)l->w[at / 128 * 32 + at % 32] >> (6 - at / 32 % 4 * 2) & 3u;
        case BITNET_I2S_64:
            return (uint32_t)l->w[at / 64 * 16 + at % 16] >> (6 - at / 16 % 4 * 2) & 3u;
        default:
            return (uint32_t)l->w[row / 4 * (size_t)l->n_file + column] >> (6 - row % 4 * 2) & 3u;
    }
}

/* Eight bytes of four fields each, so that shifts need masks, but no byte order. These keep the
   first field of each byte; or the first and the third, side by side. */
static uint64_t bitnet__field_1(uint64_t x) { return x & 0xc0c0c0c0c0c0c0c0u; }
static uint64_t bitnet__fields_13(uint64_t x) {
    return (x & 0xc0c0c0c0c0c0c0c0u) | (x & 0x0c0c0c0c0c0c0c0cu) << 2;
}

/* Two 64-groups to one 128-group. Byte j of them has weights j, 16+j, 32+j, 48+j and the same
   beyond 64: the first and third of both go into byte j, the second and fourth into byte 16+j. */
static void bitnet__repack_64(const uint8_t *w, size_t n_blocks, uint8_t *out) {
    uint64_t a, b, x;
    int j;
    for (; n_blocks > 0; n_blocks--, w += 32, out += 32)
        for (j = 0; j < 16; j += 8) {
            memcpy(&a, w + j, 8);
            memcpy(&b, w + 16 + j, 8);
            x = bitnet__fields_13(a) | bitnet__fields_13(b) >> 4;
            memcpy(out + j, &x, 8);
            x = bitnet__fields_13(a << 2) | bitnet__fields_13(b << 2) >> 4;
            memcpy(out + 16 + j, &x, 8);
        }
}

/* Four rows of n: a field is a row's, and columns j, 32+j, 64+j, 96+j meet in a byte. */
static void bitnet__repack_4row(const uint8_t *w, int n, uint8_t *out) {
    uint64_t a, b, c, d, x;
    int i, j, r;
    for (i = 0; i < n; i += 128)
        for (j = 0; j < 32; j += 8) {
            memcpy(&a, w + i + j, 8);
            memcpy(&b, w + i + 32 + j, 8);
            memcpy(&c, w + i + 64 + j, 8);
            memcpy(&d, w + i + 96 + j, 8);
            for (r = 0; r < 4; r++, a <<= 2, b <<= 2, c <<= 2, d <<= 2) {
                x = bitnet__field_1(a) | bitnet__field_1(b) >> 2 | bitnet__field_1(c) >> 4 |
                    bitnet__field_1(d) >> 6;
                memcpy(out + bitnet__i2s_bytes(n, r) + i / 4 + j, &x, 8);
            }
        }
}

/* Rows [from, from + count), whole units, as I2_S in rows of whole 128-groups. 128-groups run over
   the file's whole tensor, so rows of another length begin inside of one: such rows are filled up
   with weight 0 (code 1). */
static void bitnet__repack_rows(bitnet_i2s_layout layout, const bitnet__linear *l, int32_t from,
                                int32_t count, uint8_t *out) {
    const uint8_t *w = l->w + bitnet__i2s_bytes(l->n_file, from);
    int32_t r, i, k;
    if (l->n_file == l->n_in && layout == BITNET_I2S_64) {
        bitnet__repack_64(w, (size_t)count * (size_t)(l->n_in / 128), out);
    } else if (l->n_file == l->n_in && layout == BITNET_I2S_4ROW) {
        for (r = 0; r < count; r += 4)
            bitnet__repack_4row(w + bitnet__i2s_bytes(l->n_in, r), l->n_in,
                                out + bitnet__i2s_bytes(l->n_in, r));
    } else {
        for (r = from; r < from + count; r++)
            for (i = 0; i < l->n_in / 4; i++) {
                uint32_t codes = 0;
                for (k = i / 32 * 128 + i % 32; k < i / 32 * 128 + 128; k += 32)
                    codes = codes << 2 | (k < l->n_file ? bitnet__file_code(layout, l, (size_t)r,
                                                                           (size_t)k) : 1u);
                *out++ = (uint8_t)codes;
            }
    }
}

/* ---- other types, unpacked to I2_S on the way ---- */

/* What a share of a tensor's rows turned out to be: the first thing in them that cannot be; and the
   scale of the blocks that have one, which a layer needs to be the same. */
typedef struct bitnet__findings {
    const char *flaw;                  /* 0: none */
    uint32_t value;                    /* what is there instead, and where */
    int32_t row, column;
    int32_t scale_row, scale_column;   /* the block that set the scale; row -1: none has */
    uint16_t scale;                    /* F16 */
} bitnet__findings;

static const char bitnet__two_scales[] = "another scale";          /* a flaw, value the scale */

static void bitnet__no_findings(bitnet__findings *f) {
    memset(f, 0, sizeof *f);
    f->scale_row = -1;
}

static int bitnet__flaw(bitnet__findings *f, const char *flaw, uint32_t value, int32_t row,
                        int32_t column) {
    f->flaw = flaw;
    f->value = value;
    f->row = row;
    f->column = column;
    return 0;
}

/* The codes of columns [from, to) of a row; 0: there is a flaw. These begin and end at multiples of
   768 columns, or at the end of the row: none cuts a triplet, byte or block. */

/* TL2, the file format. A unit has 8 triplets of 32 rows: four times 32 bytes of indices, two
   triplets each, high nibble first, and elsewhere 16 words of their signs. The unit's number is the
   same in both, so that only a wrong split into triplets and pairs shows, not a wrong order.

       index byte  32 i + x    rows 0-7, 16-23, 8-15, 24-31 for x = 0 .. 31; triplets 2 i, 2 i + 1
       sign word   c           bit 15 - (2 j + h): row 16 h + c, triplet j; 1: negative

   An index n is |9 a + 3 b + c|, 0 to 13, of the weights a, b, c. Three things do not exist: an
   index over 13, a negative 0, and among the pairs, 3 a + b + 4, a value over 8. With a wrong split
   the signs meet other triplets: of weights drawn evenly 1 in 56 is a negative 0 then (14 / 27 are
   not negative, 1 / 27 is 0), and more of a model's, many of which are 0. That all 2048 triplets of
   the smallest matrix, 32 rows of 256, are none has a probability of 1e-16. */
static int bitnet__unpack_tl2(const bitnet__linear *l, const bitnet__tl2_parts *parts, int32_t row,
                              int32_t from, int32_t to, uint8_t *codes, bitnet__findings *f) {
    static const uint8_t order[4] = {0, 2, 1, 3};
    const size_t BM = (size_t)l->tile.BM, per_tile = (size_t)l->tile.BK / 24;
    const size_t tm = (size_t)row / BM, mb = (size_t)row % BM / 32;
    const size_t x = (size_t)(order[row % 32 / 8] * 8 + row % 8), c = (size_t)row % 16;
    const size_t k_tiles = (size_t)(parts->k3 / l->tile.BK), m_blocks = BM / 32;
    const int h = row % 32 / 16;
    int32_t k = from;
    uint32_t n;
    int j;
    for (; k < to && k < parts->k3; k += 24) {
        const size_t g = (size_t)k / 24;
        const size_t unit = ((tm * k_tiles + g / per_tile) * m_blocks + mb) * per_tile +
                            g % per_tile;
        const uint8_t *p = l->w + unit * 128 + x;
        const uint32_t signs = bitnet__get_u16(l->w + parts->signs + unit * 32 + 2 * c);
        for (j = 0; j < 8; j++, codes += 3) {
            const uint32_t negative = signs >> (15 - (2 * j + h)) & 1u;
            n = (uint32_t)p[j / 2 * 32] >> (4 - j % 2 * 4) & 15u;
            if (n > 13) return bitnet__flaw(f, "no index", n, row, k + 3 * j);
            if (negative && n == 0) return bitnet__flaw(f, "negative zero", n, row, k + 3 * j);
            n = negative ? 13 - n : 13 + n;
            codes[0] = (uint8_t)(n / 9);
            codes[1] = (uint8_t)(n / 3 % 3);
            codes[2] = (uint8_t)(n % 3);
        }
    }
    for (; k < to; k += 4, codes += 4) {
        const size_t kb = (size_t)(k - parts->k3) / 32, pb = (size_t)(k - parts->k3) % 32 / 4;
        const size_t block = (tm * (size_t)(parts->k2 / 32) + kb) * m_blocks + mb;
        n = l->w[parts->pairs + (block * 8 + pb) * 32 + x];
        if (n >> 4 > 8 || (n & 15) > 8) return bitnet__flaw(f, "no pairs", n, row, k);
        codes[0] = (uint8_t)((n >> 4) / 3);
        codes[1] = (uint8_t)((n >> 4) % 3);
        codes[2] = (uint8_t)((n & 15) / 3);
        codes[3] = (uint8_t)((n & 15) % 3);
    }
    return 1;
}

/* TL1: a byte has two pairs of a row, as in TL2; 16 rows are neighbours. All bytes of any tile are
   bytes of any other: nothing shows a wrong one. */
static int bitnet__unpack_tl1(const bitnet__linear *l, int32_t row, int32_t from, int32_t to,
                              uint8_t *codes, bitnet__findings *f) {
    const size_t BM = (size_t)l->tile.BM, BK = (size_t)l->tile.BK, bm = (size_t)l->tile.bm;
    const size_t by = 256 / bm, tm = (size_t)row / BM, mb = (size_t)row % BM / bm;
    const size_t mg = (size_t)row % bm / 16, ml = (size_t)row % 16;
    int32_t k;
    for (k = from; k < to; k += 4, codes += 4) {
        const size_t kb = (size_t)k / BK, pb = (size_t)k % BK / by, pq = (size_t)k % by / 4;
        const size_t tile = (tm * ((size_t)l->n_file / BK) + kb) * (BM / bm) + mb;
        const size_t group = (tile * (BK / by) + pb) * (bm / 16) + mg;
        const uint32_t n = l->w[(group * (by / 4) + pq) * 16 + ml];
        if (n >> 4 > 8 || (n & 15) > 8) return bitnet__flaw(f, "no pairs", n, row, k);
        codes[0] = (uint8_t)((n >> 4) / 3);
        codes[1] = (uint8_t)((n >> 4) % 3);
        codes[2] = (uint8_t)((n & 15) / 3);
        codes[3] = (uint8_t)((n & 15) % 3);
    }
    return 1;
}

/* TQ1_0 and TQ2_0 (llama.cpp): blocks of 256 weights of a row and an F16 that multiplies them.

       TQ2_0   64 bytes  byte 32 a + j has weights 128 a + j, + 32, + 64, + 96 from the lowest bits
       TQ1_0   32 bytes  byte j has weights j, 32 + j, 64 + j, 96 + j, 128 + j
               16        byte j has weights 160 + j, 176 + j, 192 + j, 208 + j, 224 + j
                4        byte j has weights 240 + j, 244 + j, 248 + j, 252 + j

   A byte of TQ1_0 is a fraction of 256 in base 3: the first digit is what times 3 carries out of
   the byte, and so on. A block without weights may have any scale; all others need one. */
static int bitnet__unpack_tq(const bitnet__linear *l, int32_t row, int32_t from, int32_t to,
                             uint8_t *codes, bitnet__findings *f) {
    const int tq1 = l->type == BITNET_TENSOR_TQ1_0;
    const size_t size = tq1 ? 54 : 66;
    int32_t k;
    int i, j;
    for (k = from; k < to; k += 256, codes += 256) {
        const uint8_t *p = l->w + ((size_t)row * (size_t)(l->n_file / 256) + (size_t)(k / 256)) *
                                  size;
        const uint16_t scale = (uint16_t)bitnet__get_u16(p + size - 2);
        int any = 0;
        if (tq1)
            for (i = 0; i < 52; i++) {
                const int stride = i < 32 ? 32 : i < 48 ? 16 : 4;
                const int at = i < 32 ? i : i < 48 ? 160 + (i - 32) : 240 + (i - 48);
                uint32_t x = p[i];
                for (j = 0; j < (i < 48 ? 5 : 4); j++) {
                    x *= 3;
                    codes[at + stride * j] = (uint8_t)(x >> 8);
                    x &= 255;
                }
            }
        else
            for (i = 0; i < 256; i++)
                codes[i] = p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        for (i = 0; i < 256; i++) {
            if (codes[i] == 3) return bitnet__flaw(f, "no weight", 3, row, k + i);
            any |= codes[i] ^ 1;
        }
        if (!any) continue;
        if (f->scale_row < 0) {
            f->scale_row = row;
            f->scale_column = k;
            f->scale = scale;
        } else if (f->scale != scale) {
            return bitnet__flaw(f, bitnet__two_scales, scale, row, k);
        }
    }
    return 1;
}

/* Rows [from, from + count) as I2_S in rows of whole 128-groups, filled up with weight 0; 0: there
   is a flaw. */
static int bitnet__unpack_rows(const bitnet__linear *l, int32_t from, int32_t count, uint8_t *out,
                               bitnet__findings *f) {
    bitnet__tl2_parts parts = {0, 0, 0, 0, 0};
    uint8_t codes[768];
    int32_t row, k, to, i;
    int ok;
    if (l->type == BITNET_TENSOR_TL2)
        parts = bitnet__tl2_split(l->n_file, l->n_out, l->tile.BK);
    for (row = from; row < from + count; row++)
        for (k = 0; k < l->n_in; k += 768) {
            to = l->n_file - k < 768 ? l->n_file : k + 768;
            switch (l->type) {
                case BITNET_TENSOR_TL1: ok = bitnet__unpack_tl1(l, row, k, to, codes, f); break;
                case BITNET_TENSOR_TL2:
                    ok = bitnet__unpack_tl2(l, &parts, row, k, to, codes, f);
                    break;
                default: ok = bitnet__unpack_tq(l, row, k, to, codes, f); break;
            }
            if (!ok) return 0;
            for (i = to - k; i < 768; i++) codes[i] = 1;
            for (i = 0; i < 192 && i < (l->n_in - k) / 4; i++) {
                const uint8_t *p = codes + i / 32 * 128 + i % 32;
                *out++ = (uint8_t)(p[0] << 6 | p[32] << 4 | p[64] << 2 | p[96]);
            }
        }
    return 1;
}

#define BITNET__MAX_PACKERS 16         /* threads; memory is the limit */

static int bitnet__packers(void) {
    const int cpus = bitnet__usable_cpus();
    return cpus < BITNET__MAX_PACKERS ? cpus : BITNET__MAX_PACKERS;
}

typedef struct bitnet__packing {
    const bitnet_model *m;
    bitnet__linear *linear;
    uint8_t *out, *rows;               /* rows: [jobs][unit][n_in / 4], between the two steps */
    int jobs, unit;                    /* unit: rows that are repacked and packed together, a
                                          multiple of 4 and of row_group */
    uint8_t refused[BITNET__MAX_PACKERS];
    bitnet__findings found[BITNET__MAX_PACKERS];
} bitnet__packing;

static int bitnet__repacks(const bitnet_model *m, const bitnet__linear *l) {
    return m->params.i2s_layout != BITNET_I2S_128 || l->n_file != l->n_in ||
           l->type != BITNET_TENSOR_I2_S;
}

/* Whether one of n bytes of four codes each has a 3. 32 bytes at a time, of which a compiler makes
   vectors: memory is the limit then. */
static int bitnet__any_code_3(const uint8_t *p, size_t n) {
    uint64_t a[4], bad[4] = {0};
    int j;
    for (; n >= 32; n -= 32, p += 32) {
        memcpy(a, p, sizeof a);
        for (j = 0; j < 4; j++) bad[j] |= a[j] & a[j] >> 1;    /* bit 7: of the next byte's, too */
    }
    for (; n > 0; n--, p++) bad[0] |= (uint64_t)(*p & *p >> 1);
    return ((bad[0] | bad[1] | bad[2] | bad[3]) & 0x5555555555555555u) != 0;
}

/* The first code 3 of what byte at of a matrix belongs to: a 128-group, or two 64-groups, which
   hold the weights of their bytes one after the other, or four rows. */
static void bitnet__place_code_3(bitnet_i2s_layout layout, const bitnet__linear *l, size_t at,
                                 bitnet__findings *f) {
    const size_t n = (size_t)l->n_file, rows = layout == BITNET_I2S_4ROW ? 4 : 0;
    const size_t unit = rows ? rows * n : 128;     /* weights */
    size_t i = at / (unit / 4) * unit;
    while (bitnet__file_code(layout, l, i / n, i % n) != 3) i++;
    bitnet__flaw(f, "no weight", 3, (int32_t)(i / n), (int32_t)(i % n));
}

/* I2_S, a share of all its bytes, each of which has four weights. A unit that two shares cut has
   the same first place for both. */
static void bitnet__check_job(void *arg, int i, int thread) {
    bitnet__packing *p = (bitnet__packing *)arg;
    const bitnet__linear *l = p->linear;
    const uint64_t size = (uint64_t)l->n_file * (uint64_t)l->n_out / 4;
    size_t at = (size_t)(size * (uint64_t)i / (uint64_t)p->jobs), n;
    const size_t end = (size_t)(size * (uint64_t)(i + 1) / (uint64_t)p->jobs);
    (void)thread;
    bitnet__no_findings(&p->found[i]);
    for (; at < end; at += n) {
        n = end - at < 4096 ? end - at : 4096;
        if (!bitnet__any_code_3(l->w + at, n)) continue;
        while (!bitnet__any_code_3(l->w + at, 1)) at++;
        bitnet__place_code_3(p->m->params.i2s_layout, l, at, &p->found[i]);
        return;
    }
}

static void bitnet__pack_job(void *arg, int i, int thread) {
    bitnet__packing *p = (bitnet__packing *)arg;
    const bitnet_kernels *k = &p->m->kernels;
    const bitnet__linear *l = p->linear;
    int64_t units = (l->n_out + p->unit - 1) / p->unit;
    int32_t from = (int32_t)(units * i / p->jobs) * p->unit;
    int32_t to = (int32_t)(units * (i + 1) / p->jobs) * p->unit;
    (void)thread;
    if (to > l->n_out) to = l->n_out;
    p->refused[i] = 0;
    bitnet__no_findings(&p->found[i]);
    for (; from < to; from += p->unit) {
        int32_t count = to - from < p->unit ? to - from : p->unit;
        uint8_t *out = p->out + k->packed_bytes(l->n_in, from);
        uint8_t *rows = p->rows ? p->rows + (size_t)i * bitnet__i2s_bytes(l->n_in, p->unit) : out;
        const uint8_t *w = rows;
        if (l->type != BITNET_TENSOR_I2_S) {
            if (!bitnet__unpack_rows(l, from, count, rows, &p->found[i])) return;
        } else if (bitnet__repacks(p->m, l))
            bitnet__repack_rows(p->m->params.i2s_layout, l, from, count, rows);
        else w = l->w + bitnet__i2s_bytes(l->n_in, from);
        if (k->pack && k->pack(w, l->n_in, count, out)) p->refused[i] = 1;
    }
}

static bitnet_result bitnet__fail_scales(const char *name, const bitnet__findings *a,
                                         uint32_t scale, int32_t row, int32_t column,
                                         bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' has blocks of different scales: "
                        "%g (row %d, column %d), %g (row %d, column %d); a layer needs one", name,
                        (double)bitnet__f16_to_f32(a->scale), (int)a->scale_row,
                        (int)a->scale_column, (double)bitnet__f16_to_f32((uint16_t)scale),
                        (int)row, (int)column);
}

/* What the jobs found in their rows, in the rows' order: so the verdict does not depend on how many
   there were. The scale of blocks goes to the layer's. */
static bitnet_result bitnet__judge_rows(const bitnet__packing *p, const char *name,
                                        bitnet__linear *l, bitnet_error *err) {
    const char *type = bitnet__type_info(l->type)->name;
    const bitnet__findings *first = 0;
    int i;
    for (i = 0; i < p->jobs; i++) {
        const bitnet__findings *f = &p->found[i];
        if (f->scale_row >= 0 && !first) first = f;
        if (f->scale_row >= 0 && first->scale != f->scale)
            return bitnet__fail_scales(name, first, f->scale, f->scale_row, f->scale_column, err);
        if (f->flaw == bitnet__two_scales && first)
            return bitnet__fail_scales(name, first, f->value, f->row, f->column, err);
        if (f->flaw && l->tile.BM)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is no %s of tile %d,%d,%d: "
                                "%s, 0x%02x, at row %d, column %d (see tile)", name, type,
                                (int)l->tile.BM, (int)l->tile.BK, (int)l->tile.bm, f->flaw,
                                (unsigned)f->value, (int)f->row, (int)f->column);
        if (f->flaw)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s', %s, has %s, %u, at row %d, "
                                "column %d", name, type, f->flaw, (unsigned)f->value, (int)f->row,
                                (int)f->column);
    }
    if (!first) return BITNET_OK;
    l->scale *= bitnet__f16_to_f32(first->scale);
    return bitnet__check_scale(name, l->scale, err);
}

static void bitnet__run_jobs(bitnet__packing *p, bitnet__job job) {
    if (p->jobs > 1) bitnet__team_run(p->m->team, p->jobs, job, p);
    else job(p, 0, 0);
}

static bitnet_result bitnet__check_part(bitnet__packing *p, const char *name, bitnet_error *err) {
    bitnet__run_jobs(p, bitnet__check_job);
    return bitnet__judge_rows(p, name, p->linear, err);
}

/* A matrix to p->out, which moves on behind it. */
static bitnet_result bitnet__pack_part(bitnet_model *m, bitnet__packing *p, const char *name,
                                       bitnet_error *err) {
    bitnet__linear *l = p->linear;
    bitnet_result r;
    int i;
    bitnet__run_jobs(p, bitnet__pack_job);
    if ((r = bitnet__judge_rows(p, name, l, err))) return r;
    for (i = 0; i < p->jobs; i++) {
        if (!p->refused[i]) continue;
        if ((r = bitnet__check_part(p, name, err))) return r;      /* finds where the code 3 is */
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s': the kernels '%s' cannot pack it",
                            name, m->kernels.name);
    }
    bitnet__model_release(m, l->w, (size_t)bitnet__tensor_size(
                              l->type, bitnet__type_info(l->type), (uint64_t)l->n_file,
                              (uint64_t)l->n_out));
    l->w = p->out;
    p->out += (m->kernels.packed_bytes(l->n_in, l->n_out) + 63) / 64 * 64;
    return BITNET_OK;
}

/* Checks the codes of a layer, on all CPUs, and packs what is to be packed of it, into one piece of
   memory. A table that packs looks for codes 3 on the way. */
static bitnet_result bitnet__pack_layer(bitnet_model *m, int32_t i, bitnet__layer *l,
                                        bitnet_error *err) {
    struct { bitnet__linear *linear; const char *name; } parts[] = {
        {&l->attn_q, "attn_q"}, {&l->attn_k, "attn_k"}, {&l->attn_v, "attn_v"},
        {&l->attn_output, "attn_output"}, {&l->ffn_gate, "ffn_gate"}, {&l->ffn_up, "ffn_up"},
        {&l->ffn_down, "ffn_down"},
    };
    const size_t n_parts = sizeof parts / sizeof parts[0];
    bitnet__packing p;
    uint64_t total = 0, widest = 0, weights = 0;
    char name[BITNET__TEXT];
    bitnet_result r;
    size_t k;
    p.m = m;
    p.rows = 0;
    p.unit = m->kernels.row_group > 64 ? m->kernels.row_group : 64;
    for (k = 0; k < n_parts; k++) {
        const bitnet__linear *part = parts[k].linear;
        const int repacks = bitnet__repacks(m, part);
        weights += (uint64_t)part->n_file * (uint64_t)part->n_out;
        if (m->kernels.pack || repacks)
            total += m->kernels.packed_bytes(part->n_in, part->n_out) + 63;
        if (m->kernels.pack && repacks && bitnet__i2s_bytes(part->n_in, p.unit) > widest)
            widest = bitnet__i2s_bytes(part->n_in, p.unit);
    }
    /* Threads for all layers; little work is not worth them. */
    if (i == 0 && !m->team && (total > 0 || weights > 4000000) &&
        (r = bitnet__team_create(&m->params.allocator, bitnet__packers(), &m->team, err))) return r;
    p.jobs = bitnet__team_size(m->team);
    if (total > 0) {
        p.out = (uint8_t *)bitnet__model_alloc(m, total);
        if (p.out && widest > 0)
            p.rows = (uint8_t *)bitnet__model_alloc(m, widest * (uint64_t)p.jobs);
        if (!p.out || (widest > 0 && !p.rows))
            return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory to pack the tensors 'blk.%d.*' "
                                "(%llu bytes)", (int)i, (unsigned long long)total);
        bitnet__huge_pages(&m->params.allocator, p.out, (size_t)total);
    }
    for (k = 0; k < n_parts; k++) {
        p.linear = parts[k].linear;
        bitnet__format(name, "blk.%d.%s.weight", (int)i, parts[k].name);
        if (p.linear->type == BITNET_TENSOR_I2_S && !m->kernels.pack && !p.linear->sound &&
            (r = bitnet__check_part(&p, name, err))) return r;
        if ((m->kernels.pack || bitnet__repacks(m, p.linear)) &&
            (r = bitnet__pack_part(m, &p, name, err))) return r;
    }
    if (p.rows) bitnet__model_release(m, p.rows, 0);
    return bitnet__progress(m, m->gguf.data_start + m->bytes_read, err);
}

/* Building the tokenizer takes a CPU as long as reading most of the weights does. So if the file is
   in memory, the others look for codes 3 meanwhile; the caller helps them when it is done. */
typedef struct bitnet__ahead {
    bitnet_model *m;
    bitnet_error *err;
    bitnet_result result;              /* the tokenizer's */
    uint32_t next;                     /* the first tensor that is nobody's yet; atomic */
} bitnet__ahead;

static void bitnet__ahead_job(void *arg, int i, int thread) {
    bitnet__ahead *p = (bitnet__ahead *)arg;
    const bitnet__gguf *g = &p->m->gguf;
    const uint32_t n = (uint32_t)g->n_tensors;
    uint32_t k;
    (void)thread;
    if (i == 0 && (p->result = bitnet__load_tokenizer(p->m, p->err)) != BITNET_OK)
        bitnet__store_release(&p->next, n);            /* it will not be loaded */
    while ((k = bitnet__load_acquire(&p->next)) < n) {
        bitnet__tensor *t = &g->tensors[k];
        if (bitnet__swap_if(&p->next, k, k + 1) && t->type == BITNET_TENSOR_I2_S && t->size > 32)
            t->sound = !bitnet__any_code_3(g->src.data + t->offset, (size_t)t->size - 32);
    }
}

static bitnet_result bitnet__load_ahead(bitnet_model *m, bitnet_error *err) {
    bitnet__ahead ahead;
    bitnet_result r;
    if (m->gguf.src.io.read_fn || m->kernels.pack || m->gguf.src.size < 4 << 20)
        return bitnet__load_tokenizer(m, err);
    if ((r = bitnet__team_create(&m->params.allocator, bitnet__packers(), &m->team, err))) return r;
    if (!m->team) return bitnet__load_tokenizer(m, err);
    ahead.m = m;
    ahead.err = err;
    ahead.result = BITNET_OK;
    ahead.next = 0;
    bitnet__team_run(m->team, bitnet__team_size(m->team), bitnet__ahead_job, &ahead);
    return ahead.result;
}

static void bitnet__pack_end(bitnet_model *m) {
    bitnet__team_free(&m->params.allocator, m->team);
    m->team = 0;
}

/* =============================================================================================
   >>forward  contexts, and the network itself
   A batch of tokens goes through the layers together; one token is a batch of one, through the same
   code. Work is split by output rows, by tokens or by heads, never inside a sum, so the bits do not
   depend on the split. Arrays are named as in the papers, token-major: x is [n_tokens][dim].
   ============================================================================================= */

enum {
    BITNET__LEAST_RUN = 1 << 18,       /* products: some 5 us of AVX2's, 0.2 ms of plain C's */
    BITNET__SCREENED = 9,              /* hidden states to a pass: enough for a guess of 8 tokens */
    BITNET__CHUNK = 64                 /* rows that are bounded together */
};

/* What the bounds of logits need of their hidden state. */
typedef struct bitnet__screen_bound {
    float b, per_norm, per_residual;
} bitnet__screen_bound;

/* The head with 8 bits a weight; see "the screened head". No rows: not used in this context. The
   vocabulary counts up to a whole chunk here: n_chunks * BITNET__CHUNK. */
typedef struct bitnet__screen {
    uint8_t *rows;                     /* [n_vocab][dim]  h + 128 */
    float *scale, *residual, *norm;    /* [n_vocab]       a; upper bounds of |w - a h| and |w| */
    float *low, *high;                 /* [most][n_vocab] bounds of the logits */
    float *low_tops, *high_tops;       /* [most][n_chunks]    the largest of each chunk */
    int32_t *dots;                     /* [n_threads][most][2][BITNET__CHUNK] */
    float *lows;                       /* [n_vocab / 16]  heap of lower bounds */
    int8_t *q;                         /* [most][2][dim]  halves of the hidden states */
    uint8_t *wanted;                   /* [n_vocab]       1: exact in any case */
    uint8_t *wanted_chunks;            /* [n_chunks]      1: has such rows */
    bitnet__screen_bound bound[BITNET__SCREENED];
    int32_t sums[2 * BITNET__SCREENED];    /* of q */
    int32_t n_chunks, most;
    int32_t first, n_bound;            /* hidden rows [first, first + n_bound) have their bounds */
    int32_t built;                     /* 1: rows are filled in */
    int32_t exact_rows;                /* of the last bitnet_sample */
} bitnet__screen;

struct bitnet_ctx {
    const bitnet_model *m;
    bitnet_kernels k;
    bitnet_ctx_params p;               /* every default filled in */
    bitnet__team *team;                /* 0: parallel_fn, or one thread */
    int64_t least_run;                 /* work that is worth a thread's while; see run_step */
    uintptr_t use;                     /* BITNET__FREE and the like; atomic */
    int32_t n_past;                    /* positions in the cache */
    bitnet_token pending;              /* sampled, not yet evaluated; -1: none */
    int32_t n_rows;                    /* rows of hidden */
    int32_t n_ready;                   /* rows of logits computed from hidden */
    int32_t block, n_scores;           /* tokens that attend together; n_ctx to whole 16s */
    int32_t n_ahead;                   /* a guess's rows and positions, behind those: see lookup */
    int32_t odd_token, odd_layer;      /* the batch's first token that is not finite, and where */
    /* What follows lies in one arena, in this order; see bitnet__ctx_layout. */
    bitnet_token *history;             /* [n_ctx]                the tokens in the cache */
    uint8_t *k_cache, *v_cache;        /* [n_layers][n_kv_heads][n_ctx][head_dim]  F16 or F32 */
    float *x;                          /* [n_batch][dim]         the residual stream */
    float *h;                          /* [n_batch][widest]      normed, on the way to int8 */
    float *q;                          /* [n_batch][q_dim] */
    float *kv;                         /* [n_batch][2][kv_dim]   new keys, then new values */
    float *queries;                    /* [n_kv_heads][n_tokens][group][head_dim]  q, rotated */
    float *o;                          /* [n_batch][q_dim]       attention's output */
    float *g;                          /* [n_batch][ffn_dim]     relu(gate)^2 or silu(gate), * up */
    int8_t *act;                       /* [n_batch][widest, to whole blocks of 128]  int8 */
    float *act_scale;                  /* [n_batch]              s of quantize */
    int32_t *act_sum;                  /* [n_batch] */
    int32_t *dots;                     /* [n_threads][2][n_batch][BITNET__ROWS]  products */
    float *scores;                     /* [n_threads or n_kv_heads][cols][n_scores] */
    float *mixed;                      /* [n_threads][cols][head_dim]  of o */
    float *rope;                       /* [n_batch][2][n_rot / 2]  cosines, sines */
    float *hidden;                     /* [n_logits][dim]        output_norm of the last tokens */
    float *logits;                     /* [n_logits][n_vocab] */
    float *scratch;                    /* [n_threads][4][dim]    rows of the head */
    int32_t *odd;                      /* [n_threads]            what each knows of odd_token */
    struct bitnet__candidate *candidates;  /* [n_vocab]          the sampler's */
    bitnet__screen screen;
};

typedef struct bitnet__candidate {
    float logit;
    bitnet_token token;
} bitnet__candidate;

#define BITNET__MAX_SCREENED 65536     /* dotrows_u8's limit */

/* Defaults and ranges of context parameters, in one place. */
static bitnet_result bitnet__ctx_defaults(const bitnet_model *m, const bitnet_ctx_params *given,
                                          bitnet_ctx_params *p, bitnet_error *err) {
    memset(p, 0, sizeof *p);
    if (given) *p = *given;
    if (!p->n_ctx) p->n_ctx = m->n_ctx;
    if (!p->n_batch) p->n_batch = p->n_ctx < 512 ? p->n_ctx : 512;
    if (!p->n_logits) p->n_logits = 1;
    if (!p->n_threads) p->n_threads = bitnet__usable_cpus();
    if (p->n_ctx < 1 || p->n_ctx > BITNET__MAX_CONTEXT)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_ctx %lld is not in 1..%d", (long long)p->n_ctx,
                            BITNET__MAX_CONTEXT);
    if (p->n_batch < 1 || p->n_batch > 65536)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_batch %lld is not in 1..65536",
                            (long long)p->n_batch);
    if (p->n_logits < 1 || p->n_logits > p->n_ctx)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_logits %lld is not in 1..n_ctx",
                            (long long)p->n_logits);
    if (p->n_threads < 1 || p->n_threads > BITNET__MAX_THREADS)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_threads %lld is not in 1..%d",
                            (long long)p->n_threads, BITNET__MAX_THREADS);
    if (p->kv_type != BITNET_KV_F16 && p->kv_type != BITNET_KV_F32)
        return bitnet__fail(err, BITNET_ERR_ARG, "kv_type %lld is unknown", (long long)p->kv_type);
    if (!p->parallel_fn && p->n_threads > BITNET__OWN_THREADS) p->n_threads = BITNET__OWN_THREADS;
    return BITNET_OK;
}

enum {
    BITNET__ROWS = BITNET__MAX_GROUP,  /* rows of a layer at a time, whose products wait */
    BITNET__COLUMNS = 32,              /* tokens times heads of a group that attend together */
    BITNET__SCORE_ROWS = 64,           /* positions, and ... */
    BITNET__MIX_DIMS = 64              /* ... elements of a head: what a thread takes at least */
};

/* Carves the arena at base into c's arrays; with base 0 it only measures. UINT64_MAX: too large. */
typedef struct bitnet__carver { char *base; uint64_t used; } bitnet__carver;

static void *bitnet__carve(bitnet__carver *v, uint64_t count, uint64_t size) {
    void *p = v->base ? v->base + v->used : 0;
    if (v->used == UINT64_MAX || count > (UINT64_MAX / 4 - v->used) / size) {
        v->used = UINT64_MAX;
        return 0;
    }
    v->used += (count * size + 63) / 64 * 64;
    return p;
}

static int32_t bitnet__max(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t bitnet__min(int32_t a, int32_t b) { return a < b ? a : b; }

static uint64_t bitnet__ctx_layout(const bitnet_model *m, const bitnet_ctx_params *p, char *base,
                                   bitnet_ctx *c) {
    bitnet__carver v;
    uint64_t batch = (uint64_t)p->n_batch, ctx = (uint64_t)p->n_ctx;
    uint64_t widest = (uint64_t)bitnet__max(bitnet__max(m->dim, m->ffn_dim), m->q_dim);
    uint64_t padded = (widest + 127) / 128 * 128, threads = (uint64_t)p->n_threads, cols;
    uint64_t cell = p->kv_type == BITNET_KV_F32 ? 4 : 2;
    uint64_t cells = (uint64_t)m->n_layers * (uint64_t)m->kv_dim;   /* < 2^10 * 2^20 */
    c->block = bitnet__max(BITNET__COLUMNS / (m->n_heads / m->n_kv_heads), 1);
    c->n_scores = (p->n_ctx + BITNET__LANES - 1) / BITNET__LANES * BITNET__LANES;
    cols = (uint64_t)c->block * (uint64_t)(m->n_heads / m->n_kv_heads);
    v.base = base;
    v.used = 0;
    c->history = (bitnet_token *)bitnet__carve(&v, ctx, sizeof *c->history);
    c->k_cache = (uint8_t *)bitnet__carve(&v, cells * ctx, cell);   /* < 2^52 */
    c->v_cache = (uint8_t *)bitnet__carve(&v, cells * ctx, cell);
    c->x = (float *)bitnet__carve(&v, batch * (uint64_t)m->dim, 4);
    c->h = (float *)bitnet__carve(&v, batch * widest, 4);
    c->q = (float *)bitnet__carve(&v, batch * (uint64_t)m->q_dim, 4);
    c->kv = (float *)bitnet__carve(&v, batch * 2 * (uint64_t)m->kv_dim, 4);
    c->queries = (float *)bitnet__carve(&v, batch * (uint64_t)m->q_dim, 4);
    c->o = (float *)bitnet__carve(&v, batch * (uint64_t)m->q_dim, 4);
    c->g = (float *)bitnet__carve(&v, batch * (uint64_t)m->ffn_dim, 4);
    c->act = (int8_t *)bitnet__carve(&v, batch * padded, 1);
    c->act_scale = (float *)bitnet__carve(&v, batch, 4);
    c->act_sum = (int32_t *)bitnet__carve(&v, batch, 4);
    c->dots = (int32_t *)bitnet__carve(&v, threads * 2 * batch * BITNET__ROWS, 4);
    c->scores = (float *)bitnet__carve(&v, (uint64_t)bitnet__max(p->n_threads, m->n_kv_heads) *
                                           cols * (uint64_t)c->n_scores, 4);
    c->mixed = (float *)bitnet__carve(&v, threads * cols * (uint64_t)m->head_dim, 4);
    c->rope = (float *)bitnet__carve(&v, batch * (uint64_t)m->n_rot, 4);
    c->hidden = (float *)bitnet__carve(&v, (uint64_t)p->n_logits * (uint64_t)m->dim, 4);
    c->logits = (float *)bitnet__carve(&v, (uint64_t)p->n_logits * (uint64_t)m->n_vocab, 4);
    c->scratch = (float *)bitnet__carve(&v, threads * 4 * (uint64_t)m->dim, 4);
    c->odd = (int32_t *)bitnet__carve(&v, threads, sizeof *c->odd);
    c->candidates = (bitnet__candidate *)bitnet__carve(&v, (uint64_t)m->n_vocab,
                                                       sizeof *c->candidates);
    memset(&c->screen, 0, sizeof c->screen);
    if (!p->full_head && m->dim <= BITNET__MAX_SCREENED) {
        bitnet__screen *s = &c->screen;
        uint64_t chunks = ((uint64_t)m->n_vocab + BITNET__CHUNK - 1) / BITNET__CHUNK;
        uint64_t n = chunks * BITNET__CHUNK, dim = (uint64_t)m->dim, most;
        s->n_chunks = (int32_t)chunks;
        s->most = bitnet__min(p->n_logits, BITNET__SCREENED);
        most = (uint64_t)s->most;
        s->rows = (uint8_t *)bitnet__carve(&v, (uint64_t)m->n_vocab * dim, 1);
        s->scale = (float *)bitnet__carve(&v, n, 4);
        s->residual = (float *)bitnet__carve(&v, n, 4);
        s->norm = (float *)bitnet__carve(&v, n, 4);
        s->low = (float *)bitnet__carve(&v, most * n, 4);
        s->high = (float *)bitnet__carve(&v, most * n, 4);
        s->low_tops = (float *)bitnet__carve(&v, most * chunks, 4);
        s->high_tops = (float *)bitnet__carve(&v, most * chunks, 4);
        s->dots = (int32_t *)bitnet__carve(&v, (uint64_t)p->n_threads * most * 2,
                                           BITNET__CHUNK * 4);
        s->lows = (float *)bitnet__carve(&v, n / 16, 4);
        s->q = (int8_t *)bitnet__carve(&v, most * 2 * dim, 1);
        s->wanted = (uint8_t *)bitnet__carve(&v, n, 1);
        s->wanted_chunks = (uint8_t *)bitnet__carve(&v, chunks, 1);
    }
    return v.used;
}

BITNET_API uint64_t bitnet_ctx_bytes(const bitnet_model *m, const bitnet_ctx_params *params) {
    bitnet_ctx_params p;
    bitnet_ctx measure;
    uint64_t n;
    if (!m || bitnet__ctx_defaults(m, params, &p, 0) != BITNET_OK) return 0;
    n = bitnet__ctx_layout(m, &p, 0, &measure);
    return n == UINT64_MAX ? 0 : n + sizeof measure +
           (p.n_threads > 1 && !p.parallel_fn ? sizeof(bitnet__team) : 0);
}

BITNET_API bitnet_result bitnet_ctx_create(const bitnet_model *m, const bitnet_ctx_params *params,
                                           bitnet_ctx **out, bitnet_error *err) {
    const bitnet_allocator *a;
    bitnet_ctx_params p;
    bitnet_ctx *c, measure;
    char *arena = 0;
    uint64_t bytes;
    bitnet_result r;
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "there is nowhere to put the context");
    *out = 0;
    if (!m) return bitnet__fail(err, BITNET_ERR_ARG, "there is no model");
    r = bitnet__ctx_defaults(m, params, &p, err);
    if (r != BITNET_OK) return r;
    a = &m->params.allocator;
    bytes = bitnet__ctx_layout(m, &p, 0, &measure);
    c = (bitnet_ctx *)bitnet__alloc(a, sizeof *c);
    if (c && bytes <= SIZE_MAX) arena = (char *)bitnet__alloc(a, (size_t)bytes);
    if (!arena) {
        bitnet__free(a, c);
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a context of %d positions "
                            "(%llu MB)", (int)p.n_ctx, (unsigned long long)(bytes >> 20));
    }
    memset(c, 0, sizeof *c);
    c->m = m;
    c->k = m->kernels;
    c->p = p;
    c->pending = -1;
    c->least_run = BITNET__LEAST_RUN;
    bitnet__ctx_layout(m, &p, arena, c);
    if (p.n_threads > 1 && !p.parallel_fn) {
        r = bitnet__team_create(a, p.n_threads, &c->team, err);
        if (r != BITNET_OK) {
            bitnet_ctx_free(c);
            return r;
        }
        c->p.n_threads = bitnet__team_size(c->team);   /* the arena has room for all */
    }
    *out = c;
    return BITNET_OK;
}

/* In a child that fork() has made there are no workers: it goes on alone. */
static void bitnet__leave_lost_team(bitnet_ctx *c) {
    if (!c->team || !bitnet__team_lost(c->team)) return;
    bitnet__team_free(&c->m->params.allocator, c->team);
    c->team = 0;
    c->p.n_threads = 1;
}

/* ---- one call at a time ----
   A call that changes a context takes it. Who finds it taken is another thread, or a callback of
   the call that has it, and is refused: nobody waits, so nothing can wait for itself.
   bitnet_generate lends it to its callbacks, for their bitnet_logits. */

enum { BITNET__FREE, BITNET__TAKEN };  /* else: the thread to which it is lent; never 0 or 1 */

static bitnet_result bitnet__take(bitnet_ctx *c, bitnet_error *err) {
    if (!c) return bitnet__fail(err, BITNET_ERR_ARG, "there is no context");
    if (!bitnet__swap_word_if(&c->use, BITNET__FREE, BITNET__TAKEN))
        return bitnet__fail(err, BITNET_ERR_BUSY, "the context is in use, by another thread or by "
                            "the call whose callback this is");
    bitnet__leave_lost_team(c);
    return BITNET_OK;
}

static void bitnet__give_back(bitnet_ctx *c) { bitnet__store_word(&c->use, BITNET__FREE); }

/* Around a callback of bitnet_generate; what to say to bitnet__unlend. */
static uintptr_t bitnet__lend(bitnet_ctx *c) {
    const uintptr_t use = bitnet__load_word(&c->use);
    bitnet__store_word(&c->use, bitnet__this_thread());
    return use;
}

static void bitnet__unlend(bitnet_ctx *c, uintptr_t use) {
    bitnet__store_word(&c->use, use);
    bitnet__leave_lost_team(c);
}

BITNET_API void bitnet_ctx_free(bitnet_ctx *c) {
    const bitnet_allocator *a;
    if (bitnet__take(c, 0) != BITNET_OK) return;
    a = &c->m->params.allocator;
    bitnet__team_free(a, c->team);
    bitnet__free(a, c->history);       /* the arena's first array */
    bitnet__free(a, c);
}

BITNET_API int32_t bitnet_ctx_length(const bitnet_ctx *c) { return c ? c->n_past : 0; }
BITNET_API bitnet_token bitnet_ctx_pending(const bitnet_ctx *c) { return c ? c->pending : -1; }
BITNET_API int32_t bitnet_ctx_capacity(const bitnet_ctx *c) { return c ? c->p.n_ctx : 0; }
BITNET_API int32_t bitnet_ctx_threads(const bitnet_ctx *c) { return c ? c->p.n_threads : 0; }
BITNET_API int32_t bitnet_ctx_exact_rows(const bitnet_ctx *c) {
    return c ? c->screen.exact_rows : 0;
}

/* No logits, hidden states or guesses any more. */
static void bitnet__forget_rows(bitnet_ctx *c) {
    c->n_rows = c->n_ready = c->n_ahead = c->screen.n_bound = 0;
}

BITNET_API bitnet_result bitnet_ctx_rewind(bitnet_ctx *c, int32_t length) {
    bitnet_result r = bitnet__take(c, 0);
    if (r != BITNET_OK) return r;
    if (length < 0 || length > c->n_past) r = BITNET_ERR_ARG;
    else {
        if (length < c->n_past) bitnet__forget_rows(c);
        c->n_past = length;
        c->pending = -1;
    }
    bitnet__give_back(c);
    return r;
}

/* ---- splitting work ---- */

/* One step of the network over some items (rows, tokens, heads), cut into runs of them, which the
   threads take until none is left. */
typedef struct bitnet__step {
    bitnet_ctx *c;
    const bitnet__layer *layer;
    int32_t layer_index, n_tokens, n_items, n_runs;
    uint32_t runs;                     /* what parallel_fn's jobs have not taken; atomic */
    const char *part;                  /* of the network, for step_fn */
    void (*fn)(const struct bitnet__step *s, int32_t from, int32_t to, int thread);
    const bitnet__linear *linear;      /* of the steps that lead back into x */
    const float *in, *norm;            /* what is normed and quantized: [n_tokens][in_dim] */
    int32_t in_dim;
    int32_t n_rows;                    /* candidates that get their exact logits */
} bitnet__step;

static void bitnet__step_run(void *arg, int run, int thread) {
    const bitnet__step *s = (const bitnet__step *)arg;
    const bitnet_ctx_params *p = &s->c->p;
    const int64_t n = s->n_items;
    const int32_t from = (int32_t)(n * run / s->n_runs), to = (int32_t)(n * (run + 1) / s->n_runs);
    if (p->step_fn) p->step_fn(p->step_ud, s->part, thread, 1);
    s->fn(s, from, to, thread);        /* a range that is rounded may be empty */
    if (p->step_fn) p->step_fn(p->step_ud, s->part, thread, 0);
}

/* One of parallel_fn's jobs. */
static void bitnet__step_job(void *arg, int thread) {
    bitnet__step *s = (bitnet__step *)arg;
    int run = -1;
    while ((run = bitnet__claim(&s->runs, thread, run)) >= 0) bitnet__step_run(s, run, thread);
}

/* work: of one item, in products of a ternary weight, which is the least that a kernel does; what
   costs as much as several counts as several. A run has least_run of them, so that what threads
   have to say to each other costs little beside it; and there are some for each thread, so that a
   slow one takes fewer. */
static void bitnet__run_step(bitnet__step *s, const char *part, int32_t n_items, int64_t work,
                             void (*fn)(const bitnet__step *, int32_t, int32_t, int)) {
    bitnet_ctx *c = s->c;
    int64_t runs = (int64_t)n_items * work / c->least_run;
    if (runs > 4 * (int64_t)c->p.n_threads) runs = 4 * (int64_t)c->p.n_threads;
    if (runs > n_items) runs = n_items;
    if (runs < 1 || c->p.n_threads == 1) runs = 1;
    s->part = part;
    s->n_items = n_items;
    s->fn = fn;
    s->n_runs = (int32_t)runs;
    if (runs > 1 && c->p.parallel_fn) {
        s->runs = bitnet__runs(s->n_runs, c->p.n_threads);
        c->p.parallel_fn(c->p.parallel_ud, c->p.n_threads, bitnet__step_job, s);
    } else if (runs > 1 && bitnet__team_share(c->team, s->n_runs, bitnet__step_run, s)) {
    } else {
        s->n_runs = 1;
        bitnet__step_run(s, 0, 0);
    }
}

/* ---- what is not finite ----
   A NaN or an infinity spreads: to the rest of its token's layers, and to later tokens, through the
   cache. So a batch is evaluated to its end, whatever comes, and the first of its tokens that is
   not finite, with the first layer where it is not, does not depend on threads and batches. The
   residual stream is looked at where it is written, and all that goes into a linear layer as int8,
   where only a NaN becomes -128 (an infinity is one after its norm, or times a scale of 0). */

/* In integers: compilers may take floats for finite. Eight at a time, for vectors: adding 1 to an
   exponent of all ones sets the sign's bit. */
static int bitnet__all_finite(const float *x, int32_t n) {
    uint32_t u[8], bad[8] = {0};
    int32_t i, j;
    for (i = 0; i + 8 <= n; i += 8) {
        memcpy(u, x + i, sizeof u);
        for (j = 0; j < 8; j++) bad[j] |= (u[j] & 0x7f800000u) + 0x00800000u;
    }
    for (; i < n; i++) bad[0] |= (bitnet__float_bits(x[i]) & 0x7f800000u) + 0x00800000u;
    for (j = 1; j < 8; j++) bad[0] |= bad[j];
    return !(bad[0] >> 31);
}

static void bitnet__note_odd(const bitnet_ctx *c, int32_t t, int thread) {
    c->odd[thread] = bitnet__min(c->odd[thread], t);
}

/* After a step: what the threads have noted by then. layer -1: the embedding. */
static void bitnet__find_odd(bitnet_ctx *c, int32_t layer) {
    int32_t i;
    for (i = 0; i < c->p.n_threads; i++)
        if (c->odd[i] < c->odd_token) {
            c->odd_token = c->odd[i];
            c->odd_layer = layer;
        }
}

static bitnet_result bitnet__fail_odd(const bitnet_ctx *c, bitnet_error *err) {
    const int32_t at = c->n_past + c->odd_token;
    char where[BITNET__TEXT] = "its embedding";
    if (c->odd_layer >= 0) bitnet__format(where, "what layer %d makes of it", (int)c->odd_layer);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "token %d at position %d: %s is not finite (NaN or "
                        "infinity)", (int)c->history[at], (int)at, where);
}

/* ---- linear layers ---- */

static int32_t bitnet__pad128(int32_t n) { return (n + 127) / 128 * 128; }

/* Tokens [from, to): h = rmsnorm(in). */
static void bitnet__step_norm(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    size_t t, n = (size_t)s->in_dim;
    (void)thread;
    for (t = (size_t)from; t < (size_t)to; t++)
        c->k.rmsnorm(s->in + t * n, s->norm, s->in_dim, c->m->eps, c->h + t * n);
}

/* Tokens [from, to): act = int8(h), or int8(in) if there is no norm, filled up with zeros to whole
   blocks. */
static void bitnet__step_quantize(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    size_t t, n = (size_t)s->in_dim, padded = (size_t)bitnet__pad128(s->in_dim);
    const float *h = s->norm ? c->h : s->in;
    for (t = (size_t)from; t < (size_t)to; t++) {
        int8_t *act = c->act + t * padded;
        c->act_scale[t] = c->k.quantize(h + t * n, s->in_dim, act, &c->act_sum[t]);
        if (memchr(act, 0x80, n)) bitnet__note_odd(c, (int32_t)t, thread);     /* -128 */
        memset(act + n, 0, padded - n);
    }
}

/* Both, token by token, while h is in the cache. */
static void bitnet__step_norm_quantize(const bitnet__step *s, int32_t from, int32_t to,
                                       int thread) {
    for (; from < to; from++) {
        bitnet__step_norm(s, from, from + 1, thread);
        bitnet__step_quantize(s, from, from + 1, thread);
    }
}

/* Where a thread's rows begin and end: at whole groups of packed rows, and at whole panels of the
   kernels, which have 32 rows. */
static int32_t bitnet__round_rows(const bitnet_ctx *c, int32_t row, int32_t n_out) {
    int32_t unit = bitnet__max(32, c->k.row_group);
    return row <= 0 ? 0 : bitnet__min((row + unit - 1) / unit * unit, n_out);
}

/* The integer products of rows [from, from + count) of a linear layer, into dots
   [n_tokens][BITNET__ROWS]; y is then dot * (w_scale / s). */
static void bitnet__products(const bitnet__step *s, const bitnet__linear *l, int32_t from,
                             int32_t count, int32_t *dots) {
    const bitnet_ctx *c = s->c;
    c->k.dotrows_ternary(l->w + c->k.packed_bytes(l->n_in, from), c->act, c->act_sum, l->n_in,
                         count, s->n_tokens, dots, BITNET__ROWS);
}

/* A thread's room for two such products. */
static int32_t *bitnet__thread_dots(const bitnet_ctx *c, int thread) {
    return c->dots + (size_t)thread * 2 * (size_t)c->p.n_batch * BITNET__ROWS;
}

/* Rows [from, to): y, or with add y more, in out [n_tokens][out_stride]. */
static void bitnet__linear_rows(const bitnet__step *s, const bitnet__linear *l, int32_t from,
                                int32_t to, int thread, float *out, size_t out_stride, int add) {
    bitnet_ctx *c = s->c;
    int32_t *dots = bitnet__thread_dots(c, thread), t, count;
    for (; from < to; from += count) {
        count = bitnet__min(to - from, BITNET__ROWS);
        bitnet__products(s, l, from, count, dots);
        for (t = 0; t < s->n_tokens; t++) {
            float *y = out + (size_t)t * out_stride + from;
            c->k.dequantize(dots + (size_t)t * BITNET__ROWS, l->scale / c->act_scale[t], count,
                            add, y);
            if (add && !bitnet__all_finite(y, count)) bitnet__note_odd(c, t, thread);
        }
    }
}

/* Rows of q, k and v as if they were one matrix: one step, and equal shares for the threads. */
static void bitnet__step_qkv(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__layer *l = s->layer;
    const bitnet__linear *parts[3];
    float *outs[3];
    int32_t i, first = 0;
    parts[0] = &l->attn_q;
    parts[1] = &l->attn_k;
    parts[2] = &l->attn_v;
    outs[0] = c->q;
    outs[1] = c->kv;
    outs[2] = c->kv + c->m->kv_dim;
    for (i = 0; i < 3; first += parts[i++]->n_out) {
        int32_t low = bitnet__round_rows(c, from - first, parts[i]->n_out);
        int32_t high = bitnet__round_rows(c, to - first, parts[i]->n_out);
        if (low < high)
            bitnet__linear_rows(s, parts[i], low, high, thread, outs[i],
                                (size_t)(i == 0 ? c->m->q_dim : 2 * c->m->kv_dim), 0);
    }
}

/* Rows of the layer that leads back into the residual stream. */
static void bitnet__step_add_to_x(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    from = bitnet__round_rows(s->c, from, s->linear->n_out);
    to = bitnet__round_rows(s->c, to, s->linear->n_out);
    bitnet__linear_rows(s, s->linear, from, to, thread, s->c->x, (size_t)s->c->m->dim, 1);
}

/* y[i] = silu(gate[i] * gate_f) * (up[i] * up_f), where silu(g) = g / (1 + e^-g): our own e^x, and
   each operation rounded in this order. */
static void bitnet__silu_gate(const int32_t *gate, float gate_f, const int32_t *up, float up_f,
                              int n, float *y) {
    int i;
    for (i = 0; i < n; i++) {
        float g = (float)gate[i] * gate_f;
        y[i] = g / (1.0f + bitnet__expf(-g)) * ((float)up[i] * up_f);
    }
}

/* Rows of gate and up, and what joins them. */
static void bitnet__step_gate_up(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__linear *gate = &s->layer->ffn_gate, *up = &s->layer->ffn_up;
    int32_t *gates = bitnet__thread_dots(c, thread), t, count;
    int32_t *ups = gates + (size_t)c->p.n_batch * BITNET__ROWS;
    void (*join)(const int32_t *, float, const int32_t *, float, int, float *) =
        c->m->family->silu ? bitnet__silu_gate : c->k.relu2_gate;
    from = bitnet__round_rows(c, from, c->m->ffn_dim);
    to = bitnet__round_rows(c, to, c->m->ffn_dim);
    for (; from < to; from += count) {
        count = bitnet__min(to - from, BITNET__ROWS);
        bitnet__products(s, gate, from, count, gates);
        bitnet__products(s, up, from, count, ups);
        for (t = 0; t < s->n_tokens; t++) {
            size_t at = (size_t)t * BITNET__ROWS;
            join(gates + at, gate->scale / c->act_scale[t], ups + at,
                 up->scale / c->act_scale[t], count,
                 c->g + (size_t)t * (size_t)c->m->ffn_dim + from);
        }
    }
}

static void bitnet__norm_and_quantize(bitnet__step *s, const float *in, int32_t n,
                                      const float *norm) {
    s->in = in;
    s->in_dim = n;
    s->norm = norm;
    if (!norm || s->c->p.step_fn) {    /* a profile wants to see them apart */
        if (norm) bitnet__run_step(s, "norm", s->n_tokens, 16 * n, bitnet__step_norm);
        bitnet__run_step(s, "quantize", s->n_tokens, 16 * n, bitnet__step_quantize);
    } else bitnet__run_step(s, "norm", s->n_tokens, 32 * n, bitnet__step_norm_quantize);
}

static void bitnet__add_linear_to_x(bitnet__step *s, const bitnet__linear *l) {
    s->linear = l;
    bitnet__run_step(s, "matmul", l->n_out, (int64_t)l->n_in * s->n_tokens, bitnet__step_add_to_x);
}

/* ---- attention ---- */

/* One head's row [head_dim] of the K or V cache at a position. */
static size_t bitnet__cache_at(const bitnet_ctx *c, int32_t layer, int32_t kv_head, int32_t pos) {
    size_t row = ((size_t)layer * (size_t)c->m->n_kv_heads + (size_t)kv_head) * (size_t)c->p.n_ctx +
                 (size_t)pos;
    return row * (size_t)c->m->head_dim * (c->p.kv_type == BITNET_KV_F32 ? 4u : 2u);
}

static void bitnet__cache_store(const bitnet_ctx *c, const float *v, uint8_t *row) {
    int32_t i;
    if (c->p.kv_type == BITNET_KV_F16) {
        c->k.store_f16(v, c->m->head_dim, row);
        return;
    }
    for (i = 0; i < c->m->head_dim; i++, row += 4) {
        uint32_t u = bitnet__float_bits(v[i]);
        row[0] = (uint8_t)u;
        row[1] = (uint8_t)(u >> 8);
        row[2] = (uint8_t)(u >> 16);
        row[3] = (uint8_t)(u >> 24);
    }
}

/* The queries of a KV head at a token of the batch: [group][head_dim]. */
static float *bitnet__queries_at(const bitnet__step *s, int32_t kv_head, int32_t t) {
    const bitnet_model *m = s->c->m;
    size_t row = (size_t)kv_head * (size_t)s->n_tokens + (size_t)t;
    return s->c->queries + row * (size_t)(m->q_dim / m->n_kv_heads);
}

/* A head whose pairs are (2i, 2i + 1), in the order that kernels rotate: (i, i + n_rot / 2). In q
   and k alike it leaves their products as they are. */
static void bitnet__pairs_to_halves(const float *x, int n_rot, int n, float *y) {
    int i, half = n_rot / 2;
    for (i = 0; i < half; i++) {
        y[i] = x[2 * i];
        y[half + i] = x[2 * i + 1];
    }
    for (i = n_rot; i < n; i++) y[i] = x[i];
}

/* Tokens [from, to): rotate q and k, store k and v in the cache. The cache's keys have their pairs
   as (i, i + n_rot / 2) in every family; o, which is free here, is the room to get them there. */
static void bitnet__step_rope(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    int32_t t, i, j, hd = m->head_dim, group = m->n_heads / m->n_kv_heads;
    int shorten = c->p.kv_type == BITNET_KV_F16, adjacent = m->family->adjacent;
    (void)thread;
    for (t = from; t < to; t++) {
        const float *cos_sin = c->rope + (size_t)t * (size_t)m->n_rot;
        const float *q = c->q + (size_t)t * (size_t)m->q_dim;
        float *k = c->kv + (size_t)t * 2 * (size_t)m->kv_dim, *v = k + m->kv_dim;
        float *o = c->o + (size_t)t * (size_t)m->q_dim;
        for (i = 0; i < m->n_kv_heads; i++, k += hd, v += hd) {
            size_t at = bitnet__cache_at(c, s->layer_index, i, c->n_past + t);
            for (j = 0; j < group; j++, q += hd) {
                float *y = bitnet__queries_at(s, i, t) + (size_t)j * (size_t)hd;
                if (adjacent) bitnet__pairs_to_halves(q, m->n_rot, hd, y);
                c->k.rope(adjacent ? y : q, cos_sin, m->n_rot, hd, shorten, y);
            }
            if (adjacent) bitnet__pairs_to_halves(k, m->n_rot, hd, o);
            c->k.rope(adjacent ? o : k, cos_sin, m->n_rot, hd, 0, k);
            bitnet__cache_store(c, k, c->k_cache + at);
            bitnet__cache_store(c, v, c->v_cache + at);
        }
    }
}

/* Some tokens and one KV head: their queries are the columns that go over its keys and values. The
   last token sees all n_all positions, each one before it one less. */
typedef struct bitnet__attention {
    const bitnet__step *s;
    int32_t kv_head, t, n_tokens;      /* tokens [t, t + n_tokens) of the batch */
    int32_t n_all, n_cols;
    float *scores;                     /* [n_cols][n_scores] */
} bitnet__attention;

static bitnet__attention bitnet__attend(const bitnet__step *s, int32_t kv_head, int32_t t,
                                        float *scores) {
    const bitnet_ctx *c = s->c;
    bitnet__attention a;
    a.s = s;
    a.kv_head = kv_head;
    a.t = t;
    a.n_tokens = bitnet__min(s->n_tokens - t, c->block);
    a.n_all = c->n_past + t + a.n_tokens;
    a.n_cols = a.n_tokens * (c->m->n_heads / c->m->n_kv_heads);
    a.scores = scores;
    return a;
}

/* Products of the queries with the keys of positions [from, to). */
static void bitnet__score(const bitnet__attention *a, int32_t from, int32_t to) {
    const bitnet_ctx *c = a->s->c;
    size_t at = bitnet__cache_at(c, a->s->layer_index, a->kv_head, from);
    (c->p.kv_type == BITNET_KV_F32 ? c->k.dotrows_f32 : c->k.keys_f16)(
        c->k_cache + at, bitnet__queries_at(a->s, a->kv_head, a->t), c->m->head_dim, to - from,
        a->n_cols, a->scores + from, (size_t)c->n_scores);
}

/* Column i's scores become probabilities. */
static void bitnet__weigh(const bitnet__attention *a, int32_t i) {
    const bitnet_ctx *c = a->s->c;
    int32_t token = i / (a->n_cols / a->n_tokens);
    c->k.softmax(a->scores + (size_t)i * (size_t)c->n_scores, a->n_all - a->n_tokens + 1 + token,
                 (float)(1.0 / bitnet__sqrt((double)c->m->head_dim)),
                 c->p.kv_type == BITNET_KV_F16);
}

/* Elements [from, from + count) of the heads' outputs: the positions that all tokens see, then for
   each token those that it sees beyond them. */
static void bitnet__mix(const bitnet__attention *a, int32_t from, int32_t count, int thread) {
    const bitnet_ctx *c = a->s->c;
    const bitnet_model *m = c->m;
    int f32 = c->p.kv_type == BITNET_KV_F32;
    void (*mixrows)(const uint8_t *, size_t, const float *, size_t, int, int, int, float *) =
        f32 ? c->k.mixrows_f32 : c->k.mixrows_f16;
    int32_t i, shared = a->n_all - a->n_tokens + 1, group = a->n_cols / a->n_tokens;
    size_t hd = (size_t)m->head_dim, stride = (size_t)c->n_scores, cell = f32 ? 4 : 2;
    const uint8_t *v = c->v_cache + bitnet__cache_at(c, a->s->layer_index, a->kv_head, 0) +
                       (size_t)from * cell;
    float *mixed = c->mixed + (size_t)thread * (size_t)(c->block * group) * hd;
    memset(mixed, 0, (size_t)a->n_cols * (size_t)count * sizeof *mixed);
    mixrows(v, hd, a->scores, stride, count, shared, a->n_cols, mixed);
    for (i = 1; i < a->n_tokens; i++)
        mixrows(v + (size_t)shared * hd * cell, hd,
                a->scores + (size_t)(i * group) * stride + shared, stride, count, i, group,
                mixed + (size_t)(i * group) * (size_t)count);
    for (i = 0; i < a->n_cols; i++) {
        size_t head = (size_t)(a->kv_head * group + i % group);
        memcpy(c->o + (size_t)(a->t + i / group) * (size_t)m->q_dim + head * hd + from,
               mixed + (size_t)i * (size_t)count, (size_t)count * sizeof *mixed);
    }
}

/* A long batch: items are (block of tokens, KV head) pairs. The later the block, the more positions
   it sees: the last come first, so that the runs that are taken last are short. */
static void bitnet__step_attention(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    int32_t item, i, cols = c->block * (m->n_heads / m->n_kv_heads);
    for (item = s->n_items - 1 - from; item >= s->n_items - to; item--) {
        bitnet__attention a = bitnet__attend(s, item % m->n_kv_heads,
                                             item / m->n_kv_heads * c->block, c->scores +
                                             (size_t)(thread * cols) * (size_t)c->n_scores);
        bitnet__score(&a, 0, a.n_all);
        for (i = 0; i < a.n_cols; i++) bitnet__weigh(&a, i);
        bitnet__mix(&a, 0, m->head_dim, thread);
    }
}

/* A short batch, one block: there are too few KV heads to share out evenly, so each of the three
   parts is a step of its own, cut finer. */
static bitnet__attention bitnet__attend_short(const bitnet__step *s, int32_t kv_head) {
    size_t cols = (size_t)(s->n_tokens * (s->c->m->n_heads / s->c->m->n_kv_heads));
    return bitnet__attend(s, kv_head, 0,
                          s->c->scores + (size_t)kv_head * cols * (size_t)s->c->n_scores);
}

static void bitnet__step_score(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    int32_t item, n = s->n_items / s->c->m->n_kv_heads;
    (void)thread;
    for (item = from; item < to; item++) {
        bitnet__attention a = bitnet__attend_short(s, item / n);
        int32_t row = item % n * BITNET__SCORE_ROWS;
        bitnet__score(&a, row, bitnet__min(row + BITNET__SCORE_ROWS, a.n_all));
    }
}

static void bitnet__step_weigh(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    int32_t item, n = s->n_items / s->c->m->n_kv_heads;
    (void)thread;
    for (item = from; item < to; item++) {
        bitnet__attention a = bitnet__attend_short(s, item / n);
        bitnet__weigh(&a, item % n);
    }
}

static void bitnet__step_mix(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_model *m = s->c->m;
    int32_t item, n = s->n_items / m->n_kv_heads, count = m->head_dim / n;
    for (item = from; item < to; item++) {
        bitnet__attention a = bitnet__attend_short(s, item / n);
        bitnet__mix(&a, item % n * count, count, thread);
    }
}

static void bitnet__run_attention(bitnet__step *s) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t blocks = (s->n_tokens + c->block - 1) / c->block, n = c->n_past + s->n_tokens;
    const int32_t pieces = m->head_dim % BITNET__MIX_DIMS ? 1 : m->head_dim / BITNET__MIX_DIMS;
    const int64_t queries = (int64_t)bitnet__min(c->block, s->n_tokens) * (m->n_heads /
                                                                           m->n_kv_heads);
    const int64_t position = 4 * queries * m->head_dim;    /* work for one, in either half */
    if (blocks > 1) {
        bitnet__run_step(s, "attention", blocks * m->n_kv_heads, 2 * position * n,
                         bitnet__step_attention);
        return;
    }
    bitnet__run_step(s, "attention", m->n_kv_heads * ((n + BITNET__SCORE_ROWS - 1) /
                                                      BITNET__SCORE_ROWS),
                     position * BITNET__SCORE_ROWS, bitnet__step_score);
    bitnet__run_step(s, "attention", s->n_tokens * m->n_heads, 64 * (int64_t)n,
                     bitnet__step_weigh);
    bitnet__run_step(s, "attention", pieces * m->n_kv_heads, position * n / pieces,
                     bitnet__step_mix);
}

/* ---- layers ---- */

static void bitnet__forward_layer(bitnet__step *s, int32_t i) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const bitnet__layer *l = &m->layers[i];
    s->layer = l;
    s->layer_index = i;
    bitnet__norm_and_quantize(s, c->x, m->dim, l->attn_norm);
    bitnet__run_step(s, "matmul", m->q_dim + 2 * m->kv_dim, (int64_t)m->dim * s->n_tokens,
                     bitnet__step_qkv);
    bitnet__run_step(s, "attention", s->n_tokens, 32 * (int64_t)(m->q_dim + 2 * m->kv_dim),
                     bitnet__step_rope);
    bitnet__run_attention(s);
    bitnet__norm_and_quantize(s, c->o, m->q_dim, l->attn_sub_norm);
    bitnet__add_linear_to_x(s, &l->attn_output);
    bitnet__norm_and_quantize(s, c->x, m->dim, l->ffn_norm);
    bitnet__run_step(s, "matmul", m->ffn_dim, 2 * (int64_t)m->dim * s->n_tokens,
                     bitnet__step_gate_up);
    bitnet__norm_and_quantize(s, c->g, m->ffn_dim, l->ffn_sub_norm);
    bitnet__add_linear_to_x(s, &l->ffn_down);
}

/* Tokens [from, to): the embedding, and the rotations that belong to the position. */
static void bitnet__step_embed(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    int32_t t, i;
    for (t = from; t < to; t++) {
        float *cos_sin = c->rope + (size_t)t * (size_t)m->n_rot;
        float *x = c->x + (size_t)t * (size_t)m->dim;
        bitnet__matrix_row(&m->embed, c->history[c->n_past + t], x);
        if (!bitnet__all_finite(x, m->dim)) bitnet__note_odd(c, t, thread);
        for (i = 0; i < m->n_rot / 2; i++) {
            double sn, cs;
            bitnet__sincos((double)(c->n_past + t) * m->rope_freq[i], &sn, &cs);
            cos_sin[i] = (float)cs;
            cos_sin[m->n_rot / 2 + i] = (float)sn;
        }
    }
}

/* Logits of rows of the head, which lie at w, for cols hidden states x [cols][dim]. Blocks have
   become F32 there. */
static void bitnet__dot_head(const bitnet_ctx *c, const uint8_t *w, int32_t rows, const float *x,
                             int32_t cols, float *out, size_t out_stride) {
    const bitnet__matrix *a = &c->m->head;
    void (*dotrows)(const uint8_t *, const float *, int, int, int, float *, size_t) =
        a->type == BITNET_TENSOR_F16 ? c->k.dotrows_f16 :
        a->type == BITNET_TENSOR_BF16 ? c->k.dotrows_bf16 : c->k.dotrows_f32;
    dotrows(w, x, a->n_cols, rows, cols, out, out_stride);
}

/* A row of blocks as bitnet__dot_head takes it: little-endian F32. */
static void bitnet__unpack_head(const bitnet_ctx *c, int32_t row, float *out) {
    int32_t i;
    bitnet__matrix_row(&c->m->head, row, out);
    for (i = 0; i < c->m->head.n_cols; i++) {      /* changes nothing on little-endian machines */
        uint32_t u = bitnet__get_u32((const uint8_t *)(out + i));
        memcpy(out + i, &u, 4);
    }
}

/* Logits of rows [row, row + rows). Blocks are unpacked four rows at a time, which stay in a cache
   next to the core: each is read as often as there are hidden states. */
static void bitnet__head_rows(const bitnet_ctx *c, int32_t row, int32_t rows, const float *x,
                              int32_t cols, float *out, size_t out_stride, int thread) {
    const bitnet__matrix *a = &c->m->head;
    const size_t n = (size_t)a->n_cols;
    float *w = c->scratch + (size_t)thread * 4 * n;
    int32_t i, j, count;
    if (bitnet__is_float(a->type)) {
        bitnet__dot_head(c, a->data + (size_t)row * a->row_bytes, rows, x, cols, out,
                         out_stride);
        return;
    }
    for (i = 0; i < rows; i += count) {
        count = bitnet__min(4, rows - i);
        for (j = 0; j < count; j++) bitnet__unpack_head(c, row + i + j, w + (size_t)j * n);
        bitnet__dot_head(c, (const uint8_t *)w, count, x, cols, out + i, out_stride);
    }
}

static void bitnet__step_head(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__matrix *a = &c->m->head;
    size_t n = (size_t)a->n_cols, first = (size_t)c->n_ready, stride = (size_t)a->n_rows;
    bitnet__head_rows(c, from, to - from, c->hidden + first * n,
                      c->n_rows + c->n_ahead - c->n_ready, c->logits + first * stride + from,
                      stride, thread);
}

/* Every share of the steps before is done: bitnet__run_step waits for them. */
static void bitnet__show_layer(const bitnet__step *s, int32_t layer) {
    const bitnet_ctx_params *p = &s->c->p;
    if (!p->layer_fn) return;
    p->layer_fn(p->layer_ud, layer, s->c->x, s->n_tokens);
    bitnet__leave_lost_team(s->c);
}

/* One batch: n tokens, already in history. keep: hidden rows wanted of its last ones. */
static bitnet_result bitnet__forward(bitnet_ctx *c, int32_t n, int32_t keep, bitnet_error *err) {
    const bitnet_model *m = c->m;
    bitnet__step s;
    int32_t i;
    memset(&s, 0, sizeof s);
    s.c = c;
    s.n_tokens = n;
    c->odd_token = n;
    for (i = 0; i < c->p.n_threads; i++) c->odd[i] = n;
    bitnet__run_step(&s, "embed", n, 16 * (int64_t)m->dim + 512 * (int64_t)m->n_rot,
                     bitnet__step_embed);
    bitnet__find_odd(c, -1);
    bitnet__show_layer(&s, -1);
    for (i = 0; i < m->n_layers; i++) {
        bitnet__forward_layer(&s, i);
        bitnet__find_odd(c, i);
        bitnet__show_layer(&s, i);
    }
    if (c->odd_token < n) return bitnet__fail_odd(c, err);
    for (i = n - keep; i < n; i++, c->n_rows++)
        c->k.rmsnorm(c->x + (size_t)i * (size_t)m->dim, m->output_norm, m->dim, m->eps,
                     c->hidden + (size_t)c->n_rows * (size_t)m->dim);
    c->n_past += n;
    return BITNET_OK;
}

/* ---- appending tokens ----
   New tokens are first staged: written into history behind those of the context, where nobody looks
   for them, the pending one in front. Then they are evaluated. Until that has succeeded, the
   context holds what it held before. */

/* Do n tokens fit? The pending one counts. */
static bitnet_result bitnet__check_room(const bitnet_ctx *c, int64_t n, bitnet_error *err) {
    if (n <= c->p.n_ctx - c->n_past) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FULL,
                        "%lld tokens%s do not fit: the context has %d positions and %d are taken",
                        (long long)n, c->pending >= 0 ? " (with the pending one)" : "",
                        (int)c->p.n_ctx, (int)c->n_past);
}

/* Stages n tokens; *staged is how many there are with the pending one. */
static bitnet_result bitnet__stage(bitnet_ctx *c, const bitnet_token *tokens, int32_t n,
                                   int32_t *staged, bitnet_error *err) {
    bitnet_token *to = c->history + c->n_past;
    const int32_t first = c->pending >= 0;
    bitnet_result r;
    int32_t i;
    if (n < 1 || !tokens)
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no tokens to evaluate");
    r = bitnet__check_room(c, (int64_t)first + n, err);
    if (r != BITNET_OK) return r;
    for (i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= c->m->n_vocab)
            return bitnet__fail(err, BITNET_ERR_ARG,
                                "token %lld at %d is outside the vocabulary of %d",
                                (long long)tokens[i], (int)i, (int)c->m->n_vocab);
    if (first) to[0] = c->pending;
    memcpy(to + first, tokens, (size_t)n * sizeof *tokens);
    *staged = first + n;
    return BITNET_OK;
}

/* Nonzero: the caller wants to stop. */
static int bitnet__tell_progress(bitnet_ctx *c, const bitnet_generate_params *p, int32_t done,
                                 int32_t total) {
    uintptr_t use;
    int stop;
    if (!p || !p->progress_fn) return 0;
    use = bitnet__lend(c);
    stop = p->progress_fn(p->ud, done, total);
    bitnet__unlend(c, use);
    return stop;
}

/* Evaluates the n staged tokens, in batches; keep: hidden rows wanted of the last ones. p (may be
   0) has the progress_fn to tell. On failure the context is as before, but without logits. */
static bitnet_result bitnet__eval_staged(bitnet_ctx *c, int32_t n, int32_t keep,
                                         const bitnet_generate_params *p, bitnet_error *err) {
    const int32_t before = c->n_past;
    const bitnet_token pending = c->pending;
    int32_t done, batch;
    bitnet_result r = BITNET_OK;
    bitnet__forget_rows(c);
    c->pending = -1;
    for (done = 0; done < n && r == BITNET_OK; done += batch) {
        batch = bitnet__min(n - done, c->p.n_batch);
        r = bitnet__forward(c, batch, bitnet__max(0, bitnet__min(batch, done + batch - n + keep)),
                            err);
        if (r == BITNET_OK && bitnet__tell_progress(c, p, done + batch, n))
            r = bitnet__fail(err, BITNET_ERR_CANCELLED,
                             "the prompt was cancelled after %d of %d tokens", (int)(done + batch),
                             (int)n);
    }
    if (r == BITNET_OK) return r;
    bitnet__forget_rows(c);
    c->n_past = before;
    c->pending = pending;
    return r;
}

static bitnet_result bitnet__eval(bitnet_ctx *c, const bitnet_token *tokens, int32_t n,
                                  int all_logits, bitnet_error *err) {
    int32_t staged;
    bitnet_result r = bitnet__stage(c, tokens, n, &staged, err);
    if (r != BITNET_OK) return r;
    if (all_logits && n > c->p.n_logits)
        return bitnet__fail(err, BITNET_ERR_LIMIT,
                            "logits of %d tokens are wanted; the context keeps %d (n_logits)",
                            (int)n, (int)c->p.n_logits);
    return bitnet__eval_staged(c, staged, all_logits ? n : 1, 0, err);
}

BITNET_API bitnet_result bitnet_eval(bitnet_ctx *c, const bitnet_token *tokens, int32_t n,
                                     int all_logits, bitnet_error *err) {
    bitnet_result r = bitnet__take(c, err);
    if (r != BITNET_OK) return r;
    r = bitnet__eval(c, tokens, n, all_logits, err);
    bitnet__give_back(c);
    return r;
}

static const float *bitnet__logits(bitnet_ctx *c, int32_t i) {
    if (i == -1) i = c->n_rows - 1;
    if (i < 0 || i >= c->n_rows) return 0;
    if (c->n_ready < c->n_rows) { /* the head is most of a small batch's cost: only on demand */
        bitnet__step s;
        memset(&s, 0, sizeof s);
        s.c = c;
        bitnet__run_step(&s, "head", c->m->n_vocab, 8 * (int64_t)c->m->dim *
                         (c->n_rows + c->n_ahead - c->n_ready), bitnet__step_head);
        c->n_ready = c->n_rows + c->n_ahead;
    }
    return c->logits + (size_t)i * (size_t)c->m->n_vocab;
}

BITNET_API const float *bitnet_logits(bitnet_ctx *c, int32_t i) {
    const float *row;
    const uintptr_t me = bitnet__this_thread();
    const int lent = c && bitnet__load_word(&c->use) == me;
    if (lent) bitnet__unlend(c, BITNET__TAKEN);    /* its step_fn gets nothing */
    else if (bitnet__take(c, 0) != BITNET_OK) return 0;
    row = bitnet__logits(c, i);
    bitnet__store_word(&c->use, lent ? me : (uintptr_t)BITNET__FREE);
    return row;
}

/* =============================================================================================
   >>sampler  from logits to a token
   Everything is exact and replayable: ties go to the lower id, probabilities are sums of doubles
   in a fixed order, and the only state is the 64-bit number in the caller's struct.
   ============================================================================================= */

/* SplitMix64 (Steele, Lea, Flood 2014): a counter and a mix; a number in [0, 1). */
static double bitnet__random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

static int bitnet__better(const bitnet__candidate *a, const bitnet__candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

/* Restores the heap (best on top) below place i. */
static void bitnet__sift_down(bitnet__candidate *h, int32_t n, int32_t i) {
    bitnet__candidate moving = h[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && bitnet__better(&h[child + 1], &h[child])) child++;
        if (!bitnet__better(&h[child], &moving)) break;
        h[i] = h[child];
        i = child;
    }
    h[i] = moving;
}

/* exp(x) for x <= 0; far below it is nothing. */
static double bitnet__weight(double x) { return x > -700.0 ? bitnet__exp(x) : 0.0; }

/* The tokens that the repetition penalty sees: history [first, n_past). */
static int32_t bitnet__penalty_start(const bitnet_ctx *c, const bitnet_sampler *s) {
    int32_t window = s->repeat_window == 0 ? 64 : s->repeat_window;
    if (!(s->repeat_penalty > 0.0f) || s->repeat_penalty == 1.0f) return c->n_past;
    return window < 0 || window > c->n_past ? 0 : c->n_past - window;
}

/* The candidate for a token among n in id order, or 0. Its complement counts as the token. */
static bitnet__candidate *bitnet__find_candidate(bitnet__candidate *all, int32_t n,
                                                 bitnet_token t) {
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2, token = all[middle].token;
        if ((token < 0 ? ~token : token) < t) low = middle + 1;
        else high = middle;
    }
    return low < n && (all[low].token == t || all[low].token == ~t) ? &all[low] : 0;
}

static void bitnet__penalize(bitnet_ctx *c, const bitnet_sampler *s, int32_t n) {
    int32_t i, first = bitnet__penalty_start(c, s);
    for (i = first; i < c->n_past; i++) {
        bitnet__candidate *x = bitnet__find_candidate(c->candidates, n, c->history[i]);
        if (!x || x->token < 0) continue; /* a token counts once; its complement marks it */
        x->token = ~x->token;
        x->logit = x->logit > 0.0f ? x->logit / s->repeat_penalty : x->logit * s->repeat_penalty;
    }
    for (i = first; i < c->n_past; i++) {
        bitnet__candidate *x = bitnet__find_candidate(c->candidates, n, c->history[i]);
        if (x && x->token < 0) x->token = ~x->token;
    }
}

/* Bias and penalty applied to n candidates in id order; NaN becomes minus infinity. */
static void bitnet__adjust(bitnet_ctx *c, const bitnet_sampler *s, int32_t n) {
    const float lowest = bitnet__float_from_bits(0xff800000u);
    int32_t i;
    for (i = 0; i < s->n_bias; i++) {
        bitnet__candidate *x = s->bias[i].token < 0 ? 0 :
            bitnet__find_candidate(c->candidates, n, s->bias[i].token);
        if (x) x->logit += s->bias[i].bias;
    }
    bitnet__penalize(c, s, n);
    for (i = 0; i < n; i++)
        if (c->candidates[i].logit != c->candidates[i].logit) c->candidates[i].logit = lowest;
}

/* All tokens as candidates. */
static void bitnet__fill_candidates(bitnet_ctx *c, const bitnet_sampler *s, const float *logits) {
    int32_t i, n = c->m->n_vocab;
    for (i = 0; i < n; i++) {
        c->candidates[i].logit = logits[i];
        c->candidates[i].token = i;
    }
    bitnet__adjust(c, s, n);
}

/* Sorts out which candidates stay. They end up best first at the array's end, read backwards from
   all[n - 1]; the return value is how many. Sorting stops where the cut is. */
static int32_t bitnet__truncate(bitnet__candidate *all, int32_t n, const bitnet_sampler *s) {
    int32_t limit = s->top_k > 0 && s->top_k < n ? s->top_k : n, kept, i;
    int by_k = s->top_k > 0;           /* not "limit < n": n may be fewer than the vocabulary */
    double total = 0.0, sum = 0.0, top;
    for (i = n / 2 - 1; i >= 0; i--) bitnet__sift_down(all, n, i);
    top = all[0].logit;
    for (kept = 0; kept < limit; kept++) {          /* top-k: the k best go to the end */
        bitnet__candidate best = all[0];
        if (!by_k && kept > 0) {                    /* no top-k: stop as soon as the rest is out */
            double w = bitnet__weight((double)best.logit - top);
            if (s->min_p > 0.0f && w < (double)s->min_p) break;
            if (total > 0.0 && sum >= (double)s->top_p * total) break;
        }
        if (!by_k && kept == 0 && s->top_p > 0.0f && s->top_p < 1.0f)
            for (i = 0; i < n; i++) total += bitnet__weight((double)all[i].logit - top);
        sum += bitnet__weight((double)best.logit - top);
        all[0] = all[n - 1 - kept];
        all[n - 1 - kept] = best;
        bitnet__sift_down(all, n - 1 - kept, 0);
    }
    if (!by_k) return kept;
    total = sum;                                    /* with top-k: cut the k by top-p and min-p */
    sum = 0.0;
    for (kept = 0; kept < limit; kept++) {
        double w = bitnet__weight((double)all[n - 1 - kept].logit - top);
        if (kept > 0 && s->min_p > 0.0f && w < (double)s->min_p) break;
        if (kept > 0 && s->top_p > 0.0f && s->top_p < 1.0f && sum >= (double)s->top_p * total)
            break;
        sum += w;
    }
    return kept;
}

/* Draws from n candidates, read from first in steps of step, with weights exp(logit /
   temperature). */
static bitnet_token bitnet__draw(const bitnet__candidate *first, int32_t n, int step, double top,
                                 bitnet_sampler *s) {
    double total = 0.0, at, t = (double)s->temperature;
    const bitnet__candidate *x = first;
    bitnet_token drawn = first->token;
    int32_t i;
    for (i = 0; i < n; i++, x += step) total += bitnet__weight(((double)x->logit - top) / t);
    at = bitnet__random(&s->rng) * total;
    for (i = 0, x = first; i < n && at >= 0.0; i++, x += step) {
        double w = bitnet__weight(((double)x->logit - top) / t);
        if (w > 0.0) drawn = x->token; /* rounding may leave a little over at the end */
        at -= w;
    }
    return drawn;
}

/* Draws from the first n of c->candidates, which are in id order and adjusted. */
static bitnet_token bitnet__pick(bitnet_ctx *c, bitnet_sampler *s, int32_t n) {
    bitnet__candidate *all = c->candidates;
    const bitnet__candidate *best = all;
    int32_t i, kept;
    for (i = 1; i < n; i++)
        if (all[i].logit > best->logit) best = &all[i];
    if (!(s->temperature > 0.0f) || !(best->logit > -3.4e38f && best->logit < 3.4e38f))
        return best->token;            /* no odds to speak of beside an infinity */
    if (s->top_k <= 0 && !(s->top_p > 0.0f && s->top_p < 1.0f) && !(s->min_p > 0.0f))
        return bitnet__draw(all, n, 1, (double)best->logit, s);
    kept = bitnet__truncate(all, n, s);
    return bitnet__draw(&all[n - 1], kept, -1, (double)all[n - 1].logit, s);
}

static bitnet_token bitnet__sample_from(bitnet_ctx *c, bitnet_sampler *s, const float *logits) {
    bitnet__fill_candidates(c, s, logits);
    return bitnet__pick(c, s, c->m->n_vocab);
}

/* ---- the screened head ----
   A row of the head is w = a h + e: h are integers of 8 bits, a a scale, e what is left. A hidden
   state is x = b (128 u + v) + f, u and v from -64 to 64, so |f_i| <= 0.51 b. Then

       w.x = a b (128 h.u + h.v) + a h.f + e.x

   whose first part is exact integers, and whose others are bounded by Cauchy and Schwarz:
   |a h.f| <= (|w| + |e|) |f|, |e.x| <= |e| |x|. The logit is a float sum of n products, which is
   off by at most (n / 16 + 8) 2^-24 |w| |x| (each lane adds n / 16 products, the tree 4 levels).
   The bounds themselves are computed in floats, each step off by at most 2^-24 of its result: for
   the first part that makes less than 7 * 2^-24 (|w| + |e|) b (128 |u| + |v|), and the rest is
   widened by 1e-6. A NaN or an infinity anywhere leaves a row without bounds, and it is computed
   exactly.

   Bounds are made while the head streams by, a chunk of rows at a time, for all hidden states that
   wait. Who then looks for the largest sees first the largest of each chunk. */

/* One row of the head as floats; -0 may become +0. */
static void bitnet__screen_weights(const bitnet_ctx *c, int32_t r, float *w) {
    const bitnet__matrix *a = &c->m->head;
    const size_t n = (size_t)a->n_cols, at = (size_t)r * n;
    const float one = 1.0f;
    memset(w, 0, n * sizeof *w);
    if (a->type == BITNET_TENSOR_F16)
        c->k.mixrows_f16(a->data + at * 2, n, &one, 1, a->n_cols, 1, 1, w);
    else if (a->type == BITNET_TENSOR_F32)
        c->k.mixrows_f32(a->data + at * 4, n, &one, 1, a->n_cols, 1, 1, w);
    else bitnet__matrix_row(a, r, w);
}

/* Rows [from, to): h, a and the norms. Loops of BITNET__LANES steps are for the compiler, which
   makes vectors of them. */
static void bitnet__step_build_screen(const bitnet__step *step, int32_t from, int32_t to,
                                      int thread) {
    bitnet_ctx *c = step->c;
    bitnet__screen *s = &c->screen;
    int32_t r, i, j, n = c->m->dim, sum;
    float *w = c->scratch + (size_t)thread * 4 * (size_t)n;
    for (r = from; r < to; r++) {
        uint8_t *h = s->rows + (size_t)r * (size_t)n;
        const int8_t *q = (const int8_t *)h;
        float norm2[BITNET__LANES] = {0}, left2[BITNET__LANES] = {0}, left, a;
        bitnet__screen_weights(c, r, w);
        a = 1.0f / c->k.quantize(w, n, (int8_t *)h, &sum);
        for (i = 0; i + BITNET__LANES <= n; i += BITNET__LANES)
            for (j = 0; j < BITNET__LANES; j++) {
                left = w[i + j] - a * (float)q[i + j];
                norm2[j] += w[i + j] * w[i + j];
                left2[j] += left * left;
            }
        for (j = 0; i + j < n; j++) {
            left = w[i + j] - a * (float)q[i + j];
            norm2[j] += w[i + j] * w[i + j];
            left2[j] += left * left;
        }
        for (i = 0; i + BITNET__LANES <= n; i += BITNET__LANES)
            for (j = 0; j < BITNET__LANES; j++) h[i + j] ^= 128;
        for (; i < n; i++) h[i] ^= 128;
        /* 1 % covers the sums' rounding, 1e-6 |w| that of each difference (2^-23 |w_i|). */
        s->scale[r] = a;
        s->norm[r] = (float)bitnet__sqrt((double)bitnet__sum_lanes(norm2) * 1.01 + 1e-30);
        s->residual[r] = (float)bitnet__sqrt((double)bitnet__sum_lanes(left2) * 1.01 + 1e-30) +
                         1e-6f * s->norm[r];
    }
}

/* The bounds of a chunk's logits, and the largest of each, from the products of h with u and v. */
static void bitnet__screen_chunk(const bitnet__screen *s, int32_t chunk, int32_t row,
                                 const int32_t *u, const int32_t *v) {
    const bitnet__screen_bound k = s->bound[row];
    const float infinity = bitnet__float_from_bits(0x7f800000u);
    const size_t at = (size_t)chunk * BITNET__CHUNK, n_chunks = (size_t)s->n_chunks;
    const float *scale = s->scale + at, *norm = s->norm + at, *residual = s->residual + at;
    float *low = s->low + (size_t)row * n_chunks * BITNET__CHUNK + at;
    float *high = s->high + (size_t)row * n_chunks * BITNET__CHUNK + at;
    float lows[BITNET__LANES], highs[BITNET__LANES], low_tops[BITNET__LANES];
    float high_tops[BITNET__LANES];
    int i, j;
    for (j = 0; j < BITNET__LANES; j++) low_tops[j] = high_tops[j] = -infinity;
    for (i = 0; i < BITNET__CHUNK; i += BITNET__LANES) {
        for (j = 0; j < BITNET__LANES; j++) {
            float middle = scale[i + j] * k.b * (128.0f * (float)u[i + j] + (float)v[i + j]);
            float err = norm[i + j] * k.per_norm + residual[i + j] * k.per_residual + 1e-30f;
            float l = middle - err, h = middle + err;
            lows[j] = l < infinity ? l : -infinity;
            highs[j] = h > -infinity ? h : infinity;
        }
        for (j = 0; j < BITNET__LANES; j++) {
            low_tops[j] = lows[j] > low_tops[j] ? lows[j] : low_tops[j];
            high_tops[j] = highs[j] > high_tops[j] ? highs[j] : high_tops[j];
        }
        memcpy(low + i, lows, sizeof lows);
        memcpy(high + i, highs, sizeof highs);
    }
    for (j = 1; j < BITNET__LANES; j++) {
        low_tops[0] = low_tops[j] > low_tops[0] ? low_tops[j] : low_tops[0];
        high_tops[0] = high_tops[j] > high_tops[0] ? high_tops[j] : high_tops[0];
    }
    s->low_tops[(size_t)row * n_chunks + (size_t)chunk] = low_tops[0];
    s->high_tops[(size_t)row * n_chunks + (size_t)chunk] = high_tops[0];
}

/* Chunks [from, to), for all hidden states. Rows that the last chunk lacks have bounds around 0,
   which can at worst make it worth a look. */
static void bitnet__step_screen_chunks(const bitnet__step *step, int32_t from, int32_t to,
                                       int thread) {
    bitnet_ctx *c = step->c;
    bitnet__screen *s = &c->screen;
    int32_t *dots = s->dots + (size_t)thread * (size_t)s->most * 2 * BITNET__CHUNK;
    int32_t chunk, i;
    for (chunk = from; chunk < to; chunk++) {
        int32_t first = chunk * BITNET__CHUNK;
        c->k.dotrows_u8(s->rows + (size_t)first * (size_t)c->m->dim, s->q, s->sums, c->m->dim,
                        bitnet__min(BITNET__CHUNK, c->m->n_vocab - first), 2 * s->n_bound, dots,
                        BITNET__CHUNK);
        for (i = 0; i < s->n_bound; i++)
            bitnet__screen_chunk(s, chunk, i, dots + 2 * i * BITNET__CHUNK,
                                 dots + (2 * i + 1) * BITNET__CHUNK);
    }
}

static const float *bitnet__last_hidden(const bitnet_ctx *c) {
    return c->hidden + (size_t)(c->n_rows - 1) * (size_t)c->m->dim;
}

/* Fours of candidates, [from, to), get their exact logits. Four rows side by side take hardly
   longer than one: the sums of one row are a chain of additions. */
static void bitnet__step_exact_rows(const bitnet__step *step, int32_t from, int32_t to,
                                    int thread) {
    bitnet_ctx *c = step->c;
    const bitnet__matrix *a = &c->m->head;
    const size_t dim = (size_t)a->n_cols, bytes = a->row_bytes;
    float *w = c->scratch + (size_t)thread * 4 * dim;
    uint8_t *rows = (uint8_t *)w;
    int32_t i, j, n;
    for (i = from; i < to; i++) {
        bitnet__candidate *x = c->candidates + 4 * i;
        float logits[4];
        n = bitnet__min(4, step->n_rows - 4 * i);
        for (j = 0; j < n; j++)
            if (!bitnet__is_float(a->type))
                bitnet__unpack_head(c, x[j].token, w + (size_t)j * dim);
            else memcpy(rows + (size_t)j * bytes, a->data + (size_t)x[j].token * bytes, bytes);
        bitnet__dot_head(c, rows, n, bitnet__last_hidden(c), 1, logits, 4);
        for (j = 0; j < n; j++) x[j].logit = logits[j];
    }
}

/* Cuts x into b (128 u + v) + f, for hidden state number row of a pass. Returns 0 if it is not
   finite. */
static int bitnet__screen_hidden(bitnet_ctx *c, const float *x, int32_t row) {
    bitnet__screen *s = &c->screen;
    bitnet__screen_bound *k = &s->bound[row];
    int32_t i, n = c->m->dim, *sums = s->sums + 2 * row;
    int8_t *u = s->q + 2 * (size_t)row * (size_t)n, *v = u + n;
    float top = 1e-20f, inverse;
    double b, sum = 0.0, norm_x, norm_f, off, u2 = 0.0, v2 = 0.0;
    for (i = 0; i < n; i++) {
        float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        if (!(magnitude < 1e30f)) return 0;
        top = magnitude > top ? magnitude : top;
        sum += (double)x[i] * (double)x[i];
    }
    inverse = 8192.0f / top;           /* 64 * 128; under 1e24, so finite */
    sums[0] = sums[1] = 0;
    for (i = 0; i < n; i++) {
        int32_t q = (int32_t)bitnet__round((double)(x[i] * inverse));
        u[i] = (int8_t)((q + 64 + 128 * 128) / 128 - 128);  /* floor((q + 64) / 128) */
        v[i] = (int8_t)(q - 128 * u[i]);
        sums[0] += u[i];
        sums[1] += v[i];
        u2 += u[i] * u[i];
        v2 += v[i] * v[i];
    }
    b = (double)top / 8192.0;
    norm_x = bitnet__sqrt(sum + 1e-60);
    norm_f = 0.51 * b * bitnet__sqrt((double)n);
    off = norm_f + 8.0 / 16777216.0 * b * (128.0 * bitnet__sqrt(u2) + bitnet__sqrt(v2));
    k->b = (float)b;
    k->per_norm = (float)((((double)n / 16.0 + 8.0) / 16777216.0 * norm_x + off) * 1.000002);
    k->per_residual = (float)((norm_x + off) * 1.000002);
    return 1;
}

/* Keeps the k largest values seen in heap, the smallest on top; n are in it now. */
static int32_t bitnet__keep_largest(float *heap, int32_t n, int32_t k, float value) {
    int32_t i, child;
    if (n < k) {
        for (i = n++; i > 0 && heap[(i - 1) / 2] > value; i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
        heap[i] = value;
    } else if (value > heap[0]) {
        for (i = 0; (child = 2 * i + 1) < n; i = child) {
            if (child + 1 < n && heap[child + 1] < heap[child]) child++;
            if (!(heap[child] < value)) break;
            heap[i] = heap[child];
        }
        heap[i] = value;
    }
    return n;
}

static void bitnet__screen_want(bitnet__screen *s, bitnet_token t, uint8_t mark) {
    s->wanted[t] = mark;
    s->wanted_chunks[t / BITNET__CHUNK] = mark;
}

/* Marks (or unmarks) the tokens whose logits bias and penalty change: they are no match for others'
   bounds, and are always computed. */
static void bitnet__screen_mark(bitnet_ctx *c, const bitnet_sampler *s, uint8_t mark) {
    int32_t i;
    for (i = 0; i < s->n_bias; i++)
        if (s->bias[i].token >= 0 && s->bias[i].token < c->m->n_vocab)
            bitnet__screen_want(&c->screen, s->bias[i].token, mark);
    for (i = bitnet__penalty_start(c, s); i < c->n_past; i++)
        bitnet__screen_want(&c->screen, c->history[i], mark);
}

/* Is any of BITNET__LANES bounds at least this? */
static int bitnet__any_reaches(const float *bound, float threshold) {
    int i, any = 0;
    for (i = 0; i < BITNET__LANES; i++) any |= bound[i] >= threshold;
    return any;
}

/* The tokens that can be among the k largest logits, in id order; returns how many. k lower bounds
   lie at or above the threshold, so a row whose upper bound lies below it cannot be one. */
static int32_t bitnet__screen_rows(bitnet_ctx *c, int32_t row, int32_t k) {
    bitnet__screen *s = &c->screen;
    const size_t at = (size_t)row * (size_t)s->n_chunks;
    const float *low = s->low + at * BITNET__CHUNK, *high = s->high + at * BITNET__CHUNK;
    const float *low_tops = s->low_tops + at, *high_tops = s->high_tops + at;
    float threshold = bitnet__float_from_bits(0xff800000u);
    int32_t chunk, from, end, r, kept = 0, found = 0;
    for (chunk = 0; chunk < s->n_chunks; chunk++) {
        if (!(low_tops[chunk] > threshold)) continue;
        for (from = chunk * BITNET__CHUNK; from < (chunk + 1) * BITNET__CHUNK; from = end) {
            end = from + BITNET__LANES;
            if (!bitnet__any_reaches(low + from, threshold)) continue;
            for (r = from; r < end && r < c->m->n_vocab; r++)
                if (low[r] > threshold && !s->wanted[r]) {
                    kept = bitnet__keep_largest(s->lows, kept, k, low[r]);
                    if (kept == k) threshold = s->lows[0];
                }
        }
    }
    for (chunk = 0; chunk < s->n_chunks; chunk++) {
        if (high_tops[chunk] < threshold && !s->wanted_chunks[chunk]) continue;
        end = bitnet__min((chunk + 1) * BITNET__CHUNK, c->m->n_vocab);
        for (r = chunk * BITNET__CHUNK; r < end; r++) {    /* without a branch to mispredict */
            c->candidates[found].token = r;
            found += (high[r] >= threshold) | s->wanted[r];
        }
    }
    return found;
}

/* Bounds for the last row and for those of a guess behind it, unless they are there. Returns 0 if
   the last row is not finite. */
static int bitnet__screen_bounds(bitnet_ctx *c) {
    bitnet__screen *s = &c->screen;
    bitnet__step step;
    int32_t row = c->n_rows - 1, n = bitnet__min(1 + c->n_ahead, s->most);
    size_t whole = (size_t)s->n_chunks * BITNET__CHUNK, rows = (size_t)c->m->n_vocab;
    if (s->n_bound > 0 && row >= s->first && row < s->first + s->n_bound) return 1;
    memset(&step, 0, sizeof step);
    step.c = c;
    if (!s->built) {
        memset(s->wanted, 0, whole);
        memset(s->wanted_chunks, 0, (size_t)s->n_chunks);
        memset(s->dots, 0, (size_t)c->p.n_threads * (size_t)s->most * 2 * BITNET__CHUNK * 4);
        memset(s->scale + rows, 0, (whole - rows) * 4);
        memset(s->norm + rows, 0, (whole - rows) * 4);
        memset(s->residual + rows, 0, (whole - rows) * 4);
        bitnet__run_step(&step, "head", c->m->n_vocab, 64 * (int64_t)c->m->dim,
                         bitnet__step_build_screen);
        s->built = 1;
    }
    s->first = row;
    for (s->n_bound = 0; s->n_bound < n; s->n_bound++)
        if (!bitnet__screen_hidden(c, bitnet__last_hidden(c) + (size_t)s->n_bound *
                                   (size_t)c->m->dim, s->n_bound)) break;
    if (s->n_bound > 0)
        bitnet__run_step(&step, "head", s->n_chunks, BITNET__CHUNK * (int64_t)c->m->dim *
                         (4 + 2 * s->n_bound), bitnet__step_screen_chunks);
    return s->n_bound > 0;
}

/* All candidates that this sampler's draw can depend on, with exact logits; 0 if they are too many
   for screening to pay, or all logits are there already. */
static int32_t bitnet__screened_candidates(bitnet_ctx *c, const bitnet_sampler *s) {
    int32_t n, k = s->temperature > 0.0f ? s->top_k : 1;
    bitnet__step step;
    if (!c->screen.rows || c->n_ready >= c->n_rows || k < 1 || k > c->m->n_vocab / 16 ||
        !bitnet__screen_bounds(c))
        return 0;
    bitnet__screen_mark(c, s, 1);
    n = bitnet__screen_rows(c, c->n_rows - 1 - c->screen.first, k);
    bitnet__screen_mark(c, s, 0);
    if (n > c->m->n_vocab / 4) return 0;
    memset(&step, 0, sizeof step);
    step.c = c;
    step.n_rows = n;
    bitnet__run_step(&step, "head", (n + 3) / 4, 64 * (int64_t)c->m->dim, bitnet__step_exact_rows);
    return n;
}

static int bitnet__sampler_valid(const bitnet_sampler *s) {
    return !s || (s->n_bias >= 0 && (s->bias || s->n_bias == 0));
}

static bitnet_token bitnet__sample(bitnet_ctx *c, bitnet_sampler *s) {
    bitnet_sampler greedy;
    const float *logits;
    int32_t n;
    memset(&greedy, 0, sizeof greedy);
    if (!bitnet__sampler_valid(s) || c->n_rows == 0) return -1;
    if (!s) s = &greedy;
    n = bitnet__screened_candidates(c, s);
    if (n > 0) {
        c->screen.exact_rows = n;
        bitnet__adjust(c, s, n);
        return bitnet__pick(c, s, n);
    }
    c->screen.exact_rows = c->m->n_vocab;
    logits = bitnet__logits(c, -1);
    return bitnet__sample_from(c, s, logits);
}

BITNET_API bitnet_token bitnet_sample(bitnet_ctx *c, bitnet_sampler *s) {
    bitnet_token t;
    if (bitnet__take(c, 0) != BITNET_OK) return -1;
    t = bitnet__sample(c, s);
    bitnet__give_back(c);
    return t;
}

/* =============================================================================================
   >>text  tokenizing, detokenizing and the chat template, as the public functions
   ============================================================================================= */

/* Tokens on their way out: counts all, writes the first cap. The first error stays. */
typedef struct bitnet__token_sink {
    const bitnet_model *m;
    bitnet_token *out;
    size_t cap;
    int64_t n;                         /* or a negative bitnet_result */
} bitnet__token_sink;

static void bitnet__sink_token(bitnet__token_sink *s, bitnet_token t) {
    if (s->n < 0) return;
    if ((uint64_t)s->n < s->cap) s->out[s->n] = t;
    s->n++;
}

static void bitnet__sink_text(bitnet__token_sink *s, const char *text, size_t n,
                              int parse_special) {
    size_t used;
    int64_t got;
    if (s->n < 0) return;
    used = (uint64_t)s->n < s->cap ? (size_t)s->n : s->cap;
    got = bitnet__encode(&s->m->vocab, &s->m->params.allocator, (const uint8_t *)text, n,
                         parse_special, s->out ? s->out + used : 0, s->cap - used);
    s->n = got < 0 ? got : s->n + got;
}

static int bitnet__sink_result(const bitnet__token_sink *s) {
    return s->n > INT32_MAX ? (int)BITNET_ERR_LIMIT : (int)s->n;
}

BITNET_API int bitnet_tokenize(const bitnet_model *m, const char *text, size_t n, int flags,
                               bitnet_token *out, size_t cap) {
    bitnet__token_sink s;
    if (!m || (!text && n > 0)) return BITNET_ERR_ARG;
    if (n > INT32_MAX) return BITNET_ERR_LIMIT;
    s.m = m;
    s.out = out;
    s.cap = out ? cap : 0;
    s.n = 0;
    if ((flags & BITNET_ADD_BOS) && m->bos >= 0) bitnet__sink_token(&s, m->bos);
    bitnet__sink_text(&s, text ? text : "", n, (flags & BITNET_PARSE_SPECIAL) != 0);
    return bitnet__sink_result(&s);
}

/* Token t's bytes; 0 if there is no such token. Ids between the tokenizer's size and the head's
   have no text. */
static const uint8_t *bitnet__token_bytes(const bitnet_model *m, bitnet_token t, size_t *len) {
    *len = 0;
    if (t < 0 || t >= m->n_vocab) return 0;
    if ((uint32_t)t >= m->vocab.n_tokens) return m->vocab.bytes;
    return bitnet__vocab_bytes(&m->vocab, t, len);
}

BITNET_API int bitnet_detokenize(const bitnet_model *m, const bitnet_token *tokens, int n,
                                 char *buf, size_t cap) {
    uint64_t used = 0;
    int i;
    if (!m || n < 0 || (!tokens && n > 0)) return BITNET_ERR_ARG;
    if (!buf) cap = 0;
    for (i = 0; i < n; i++) {
        size_t len, room;
        const uint8_t *p = bitnet__token_bytes(m, tokens[i], &len);
        if (!p) return BITNET_ERR_ARG;
        room = used < cap ? (cap - used < len ? (size_t)(cap - used) : len) : 0;
        if (room) memcpy(buf + used, p, room);
        used += len;
    }
    return used > INT32_MAX ? (int)BITNET_ERR_LIMIT : (int)used;
}

BITNET_API int bitnet_detok_push(const bitnet_model *m, bitnet_detok *d, bitnet_token t,
                                 char *buf, size_t cap) {
    size_t len = 0;
    const uint8_t *p = t == -1 || !m ? 0 : bitnet__token_bytes(m, t, &len);
    if (!m || !d || !buf || (t != -1 && !p) || cap < 3 || (cap - 3) / 3 < len ||
        d->n_pending < 0 || d->n_pending > 3)
        return BITNET_ERR_ARG;
    if (t == -1 || len == 0 || m->vocab.types[t] == BITNET__TOKEN_CONTROL)
        return (int)bitnet__detok_flush(d, buf, cap);
    return (int)bitnet__detok_push(d, p, len, buf, cap);
}

BITNET_API bitnet_token bitnet_token_find(const bitnet_model *m, const char *text) {
    return m && text ? bitnet__vocab_find(&m->vocab, text, strlen(text)) : -1;
}

BITNET_API int bitnet_token_is_end(const bitnet_model *m, bitnet_token t) {
    return m && t >= 0 && (t == m->eos || t == m->eot || t == m->end_of_text);
}

static int bitnet__is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* "Role: text": the role's first letter upper case, the others lower case, the text trimmed.
   Returns the length; buf has room for both and two bytes more. */
static size_t bitnet__chat_line(const bitnet_message *msg, char *buf) {
    const char *from = msg->content, *to = from + strlen(from);
    size_t n = strlen(msg->role), i;
    for (i = 0; i < n; i++) {
        char c = msg->role[i];
        if (i == 0 && c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        if (i > 0 && c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        buf[i] = c;
    }
    buf[n++] = ':';
    buf[n++] = ' ';
    while (from < to && bitnet__is_space(*from)) from++;
    while (to > from && bitnet__is_space(to[-1])) to--;
    memcpy(buf + n, from, (size_t)(to - from));
    return n + (size_t)(to - from);
}

/* Template of BitNet b1.58-2B-4T: {BOS} {"Role: text" <|eot_id|>}... {"Assistant: "}. */
static void bitnet__sink_chat(bitnet__token_sink *s, const bitnet_message *messages, int n,
                              int flags) {
    const bitnet_model *m = s->m;
    const bitnet_allocator *a = &m->params.allocator;
    int i;
    if (m->eot < 0 || !m->family->chat) s->n = BITNET_ERR_UNSUPPORTED;
    if ((flags & BITNET_ADD_BOS) && m->bos >= 0) bitnet__sink_token(s, m->bos);
    for (i = 0; i < n && s->n >= 0; i++) {
        const bitnet_message *msg = &messages[i];
        const int given = msg->role && msg->role[0] && msg->content;
        const size_t role = given ? strlen(msg->role) : 0, text = given ? strlen(msg->content) : 0;
        const int sized = role <= INT32_MAX / 2 && text <= INT32_MAX / 2;
        char *line = given && sized ? (char *)bitnet__alloc(a, role + text + 2) : 0;
        if (line) bitnet__sink_text(s, line, bitnet__chat_line(msg, line), 0);
        else s->n = !given ? BITNET_ERR_ARG : !sized ? BITNET_ERR_LIMIT : BITNET_ERR_MEMORY;
        bitnet__free(a, line);
        bitnet__sink_token(s, m->eot);
    }
    if (flags & BITNET_OPEN_REPLY) bitnet__sink_text(s, "Assistant: ", 11, 0);
}

BITNET_API int bitnet_chat_tokenize(const bitnet_model *m, const bitnet_message *messages, int n,
                                    int flags, bitnet_token *out, size_t cap) {
    bitnet__token_sink s;
    if (!m || n < 0 || (!messages && n > 0)) return BITNET_ERR_ARG;
    s.m = m;
    s.out = out;
    s.cap = out ? cap : 0;
    s.n = 0;
    bitnet__sink_chat(&s, messages, n, flags);
    return bitnet__sink_result(&s);
}

/* =============================================================================================
   >>generate  the loop around bitnet_eval and bitnet_sample
   Text is handed out as soon as it is certain: whole code points, and nothing that could still
   become a stop string.
   ============================================================================================= */

/* ---- stop strings ----
   All stop strings are looked for together, by the automaton of Aho and Corasick. A node is a
   beginning of some stop strings; the root (0) is the empty one. The text so far stands at the node
   that is its longest end, and a node's link leads to the longest node that is an end of it. So a
   byte costs a few steps, however many strings there are and however long they are.

   The nodes of a string are numbered in its order, so that most ways down need no memory: a string
   adds the nodes that no earlier one has, its branch, and a 0 behind them. Only a branch's first
   node has to be looked up, in a hash table. Links are set when a text first comes to their node.
   A byte of a stop string takes 5 bytes, a string up to 33 besides. */

typedef struct bitnet__branch {
    uint32_t node, depth;              /* its first node, and how many bytes that is */
    uint32_t parent;                   /* the node above it */
} bitnet__branch;

typedef struct bitnet__stops {
    uint8_t *byte;                     /* [nodes]     its last byte; 0: the end of a branch */
    uint32_t *link;                    /* [nodes]     and three bits, below */
    bitnet__branch *branch;            /* [strings]   by their nodes */
    uint32_t *slots;                   /* [mask + 1]  open addressing: 1 + a branch's number */
    uint32_t n_branches, mask;
    uint32_t at;                       /* the node where the text stands; its link is set */
} bitnet__stops;

#define BITNET__STOP_HERE 0x80000000u  /* the node is a stop string */
#define BITNET__STOP_ENDS 0x40000000u  /* it ends in one */
#define BITNET__STOP_SET 0x20000000u   /* its link is set, and so are those of all behind it */
#define BITNET__STOP_NODE 0x1fffffffu

static uint32_t *bitnet__branch_slot(const bitnet__stops *s, uint32_t parent, uint8_t byte) {
    const uint64_t h = ((uint64_t)parent << 8 | byte) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(h >> 32) & s->mask;
    for (; s->slots[at]; at = (at + 1) & s->mask) {
        const bitnet__branch *b = &s->branch[s->slots[at] - 1];
        if (b->parent == parent && s->byte[b->node] == byte) break;
    }
    return &s->slots[at];
}

/* The node that byte leads to from node v; 0: none. */
static uint32_t bitnet__stop_child(const bitnet__stops *s, uint32_t v, uint8_t byte) {
    uint32_t found;
    if (byte == 0) return 0;
    if (s->byte[v + 1] == byte) return v + 1;
    found = *bitnet__branch_slot(s, v, byte);
    return found ? s->branch[found - 1].node : 0;
}

static uint32_t bitnet__stop_link(const bitnet__stops *s, uint32_t v) {
    return s->link[v] & BITNET__STOP_NODE;
}

/* The node that byte leads to from v or, if there is none, from the nodes behind it; *from is where
   it was found. v's link is set. 0: none. */
static uint32_t bitnet__stop_step(const bitnet__stops *s, uint32_t v, uint8_t byte,
                                  uint32_t *from) {
    uint32_t child = bitnet__stop_child(s, v, byte);
    for (; child == 0 && v != 0; child = bitnet__stop_child(s, v, byte))
        v = bitnet__stop_link(s, v);
    *from = v;
    return child;
}

/* Moves on by one byte. The links from the new node on are set up to the first that is. */
static void bitnet__stop_move(bitnet__stops *s, uint8_t byte) {
    uint32_t from, v = bitnet__stop_step(s, s->at, byte, &from), here;
    s->at = here = v;
    while (!(s->link[v] & BITNET__STOP_SET)) {     /* the root's is */
        const uint32_t link = from == 0 ? 0 :
            bitnet__stop_step(s, bitnet__stop_link(s, from), byte, &from);
        s->link[v] |= link | BITNET__STOP_SET;
        if (s->link[v] & BITNET__STOP_HERE) here = link;
        v = link;
    }
    if (s->link[v] & BITNET__STOP_ENDS) here = v;
    for (v = s->at; v != here; v = bitnet__stop_link(s, v)) s->link[v] |= BITNET__STOP_ENDS;
}

/* How many bytes node v is. */
static uint32_t bitnet__stop_depth(const bitnet__stops *s, uint32_t v) {
    uint32_t low = 0, high = s->n_branches;
    if (v == 0) return 0;
    while (high - low > 1) {           /* the last branch whose first node is not behind v */
        const uint32_t middle = low + (high - low) / 2;
        if (s->branch[middle].node <= v) low = middle;
        else high = middle;
    }
    return s->branch[low].depth + v - s->branch[low].node;
}

/* The length of the longest stop string in which the text ends; 0: none. */
static uint32_t bitnet__stop_length(const bitnet__stops *s) {
    uint32_t v = s->at;
    if (!(s->link[v] & BITNET__STOP_ENDS)) return 0;
    while (!(s->link[v] & BITNET__STOP_HERE)) v = bitnet__stop_link(s, v);
    return bitnet__stop_depth(s, v);
}

/* n counts the nodes so far; those behind them are free. */
static void bitnet__add_stop(bitnet__stops *s, const char *text, uint32_t *n) {
    const uint8_t *p = (const uint8_t *)text;
    uint32_t v = 0, child, depth = 0;
    for (; *p && (child = bitnet__stop_child(s, v, *p)) != 0; p++, depth++) v = child;
    if (*p) {
        bitnet__branch *b = &s->branch[s->n_branches];
        uint32_t *slot = bitnet__branch_slot(s, v, *p);
        b->node = *n;
        b->depth = depth + 1;
        b->parent = v;
        *slot = ++s->n_branches;
        for (v = *n - 1; *p; p++) s->byte[++v] = *p;
        *n = v + 2;                    /* behind the 0 that ends it */
    }
    s->link[v] |= BITNET__STOP_HERE;
}

/* Carves out what n strings with so many nodes need. */
static void bitnet__carve_stops(bitnet__carver *v, bitnet__stops *s, uint32_t n, uint64_t nodes) {
    for (s->mask = 1; s->mask / 2 < n; s->mask = 2 * s->mask + 1) {}
    s->byte = (uint8_t *)bitnet__carve(v, nodes, sizeof *s->byte);
    s->link = (uint32_t *)bitnet__carve(v, nodes, sizeof *s->link);
    s->branch = (bitnet__branch *)bitnet__carve(v, n, sizeof *s->branch);
    s->slots = (uint32_t *)bitnet__carve(v, (uint64_t)s->mask + 1, sizeof *s->slots);
}

static void bitnet__build_stops(bitnet__stops *s, const char *const *strings, int32_t n,
                                uint64_t nodes) {
    uint32_t used = 1;
    int32_t i;
    memset(s->byte, 0, (size_t)nodes);
    memset(s->link, 0, (size_t)nodes * sizeof *s->link);
    memset(s->slots, 0, ((size_t)s->mask + 1) * sizeof *s->slots);
    s->link[0] = BITNET__STOP_SET;
    for (i = 0; i < n; i++) bitnet__add_stop(s, strings[i], &used);
}

/* ---- a text on its way out ---- */

typedef struct bitnet__generation {
    bitnet_ctx *c;
    const bitnet_generate_params *p;
    bitnet_error *err;
    bitnet_detok detok;
    bitnet__stops stops;
    char *held;                        /* text not handed out yet, then room for one token more */
    size_t n_held, cap;
    int32_t reach, n_guess;            /* lookup: how far to guess, how far the last guess went */
    bitnet_lookup_stats lookup;
    bitnet_stop why;
} bitnet__generation;

#define BITNET__MAX_LOOKUP 64

static int bitnet__is_utf8(const char *text) {
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    uint32_t n = 1, cp;
    for (; p < end && n > 0; p += n) n = bitnet__utf8_decode(p, end, &cp);
    return n > 0;
}

/* Memory for the text, and the automaton; bitnet__end_generation frees both. */
static bitnet_result bitnet__begin_generation(bitnet__generation *g, bitnet_ctx *c,
                                              const bitnet_generate_params *p, bitnet_error *err) {
    const int32_t n = p->n_stop_strings;
    uint64_t nodes = 2, longest = 0;   /* the root, and where its first child would be */
    bitnet__carver v;
    int32_t pass, i;
    memset(g, 0, sizeof *g);
    g->c = c;
    g->p = p;
    g->err = err;
    g->reach = p->lookup;
    for (i = 0; i < n; i++) {
        const uint64_t length = strlen(p->stop_strings[i]);
        nodes += length + 1;
        if (length > longest) longest = length;
    }
    if (nodes > BITNET__STOP_NODE)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the stop strings have %llu bytes; %u at most",
                            (unsigned long long)nodes, BITNET__STOP_NODE);
    g->cap = 3 + 3 * (size_t)c->m->longest_token + (size_t)longest;
    v.base = 0;
    for (pass = 0; pass < 2; pass++) { /* measures, then carves */
        v.used = 0;
        g->held = (char *)bitnet__carve(&v, g->cap, 1);
        if (n > 0) bitnet__carve_stops(&v, &g->stops, (uint32_t)n, nodes);
        if (pass == 0 && v.used <= SIZE_MAX)
            v.base = (char *)bitnet__alloc(&c->m->params.allocator, (size_t)v.used);
        if (!v.base)
            return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %llu bytes of generated "
                                "text and stop strings", (unsigned long long)v.used);
    }
    if (n > 0) bitnet__build_stops(&g->stops, p->stop_strings, n, nodes);
    return BITNET_OK;
}

static void bitnet__end_generation(bitnet__generation *g) {
    if (g->c) bitnet__free(&g->c->m->params.allocator, g->held);   /* the block's first array */
    g->held = 0;
}

/* Leads the automaton through the held text from byte i on. Where the first stop string begins, of
   those that end there; -1: none. */
static int64_t bitnet__find_stop(bitnet__generation *g, size_t i) {
    size_t first = SIZE_MAX;
    if (g->stops.n_branches == 0) return -1;
    for (; i < g->n_held; i++) {
        uint32_t n;
        bitnet__stop_move(&g->stops, (uint8_t)g->held[i]);
        n = bitnet__stop_length(&g->stops);
        if (n > 0 && i + 1 - n < first) first = i + 1 - n;
    }
    return first == SIZE_MAX ? -1 : (int64_t)first;
}

/* Hands out the first n held bytes. Nonzero: the caller wants to stop. */
static int bitnet__hand_out(bitnet__generation *g, size_t n, bitnet_token t) {
    int stop = 0;
    if (g->p->text_fn) {
        const uintptr_t use = bitnet__lend(g->c);
        stop = g->p->text_fn(g->p->ud, g->held, n, t);
        bitnet__unlend(g->c, use);
    }
    g->n_held -= n;
    memmove(g->held, g->held + n, g->n_held);
    if (stop) g->why = BITNET_STOP_CALLBACK;
    return stop;
}

/* Takes in one new token's text and hands out what is certain. Nonzero: stop. */
static int bitnet__take_token(bitnet__generation *g, bitnet_token t) {
    const size_t before = g->n_held;
    int64_t at;
    int n = bitnet_detok_push(g->c->m, &g->detok, t, g->held + before, g->cap - before);
    g->n_held += (size_t)n;            /* never negative: cap leaves room for any token */
    at = bitnet__find_stop(g, before);
    if (at >= 0) {
        g->n_held = (size_t)at;
        if (!bitnet__hand_out(g, (size_t)at, t)) g->why = BITNET_STOP_STRING;
        return 1;
    }
    return bitnet__hand_out(g, t == -1 ? g->n_held :
                               g->n_held - bitnet__stop_depth(&g->stops, g->stops.at), t);
}

/* ---- lookup ----
   A guess is evaluated behind the token that was sampled, then put out of sight: n_past and n_rows
   are as if it had not been, n_ahead counts it. If the next draw is its first token, that is
   evaluated already and only comes into sight; if not, the guess is forgotten. So whoever looks at
   the context, sampler and text_fn included, sees what there would be without a guess. */

/* Stages the pending token, and up to most tokens that may follow it: those that followed the last
   place which ends in the same three tokens, or two. Returns how many. The copy may reach its own
   beginning, as a loop does. */
static int32_t bitnet__guess(bitnet_ctx *c, int32_t most) {
    bitnet_token *h = c->history;
    int32_t n = c->n_past, found = 0, at, i;
    h[n] = c->pending;
    for (at = n - 1; at > 0 && most > 0; at--) {
        if (h[at] != h[n] || h[at - 1] != h[n - 1]) continue;
        if (!found) found = at + 1;
        if (at < 2 || h[at - 2] != h[n - 2]) continue;
        found = at + 1;
        break;
    }
    if (!found) return 0;
    for (i = 0; i < most; i++) h[n + 1 + i] = h[found + i];
    return most;
}

/* Evaluates the pending token, the n-th new one, unless it was guessed. A guess may be longer by
   one than what was right of the last one, or twice as long as that if all of it was. */
static bitnet_result bitnet__run_token(bitnet__generation *g, int32_t n) {
    bitnet_ctx *c = g->c;
    int32_t most;
    bitnet_result r;
    if (c->n_ahead > 0 && c->history[c->n_past] == c->pending) {
        c->n_ahead--;
        c->n_rows++;
        c->n_past++;
        c->pending = -1;
        g->lookup.accepted++;
        return BITNET_OK;
    }
    if (g->n_guess > 0)
        g->reach = c->n_ahead > 0 ? g->n_guess - c->n_ahead + 1 : 2 * g->n_guess;
    g->reach = bitnet__min(g->reach, g->p->lookup);
    most = bitnet__min(g->reach, c->p.n_ctx - c->n_past - 1);
    if (g->p->max_tokens > 0) most = bitnet__min(most, g->p->max_tokens - n - 1);
    g->n_guess = bitnet__guess(c, most);
    r = bitnet__eval_staged(c, 1 + g->n_guess, 1 + g->n_guess, 0, g->n_guess > 0 ? 0 : g->err);
    if (r != BITNET_OK && g->n_guess > 0) {    /* it need not be the pending token that failed */
        g->n_guess = 0;
        r = bitnet__eval_staged(c, 1, 1, 0, g->err);
    }
    if (r != BITNET_OK) return r;
    c->n_ahead = g->n_guess;
    c->n_rows -= g->n_guess;
    c->n_past -= g->n_guess;
    g->lookup.drafts += g->n_guess > 0;
    g->lookup.drafted += g->n_guess;
    return BITNET_OK;
}

static bitnet_result bitnet__run_tokens(bitnet__generation *g) {
    bitnet_ctx *c = g->c;
    bitnet_result r = BITNET_OK;
    int32_t n;
    for (n = 1; r == BITNET_OK; n++) {
        bitnet_token t = bitnet__sample(c, g->p->sampler);
        int ended = !g->p->ignore_end && bitnet_token_is_end(c->m, t);
        c->pending = t;
        if (bitnet__take_token(g, t)) return BITNET_OK;
        if (ended || n == g->p->max_tokens || c->n_past == c->p.n_ctx) {
            g->why = ended ? BITNET_STOP_END : BITNET_STOP_LENGTH;
            break;
        }
        r = bitnet__run_token(g, n);
    }
    if (g->n_held > 0 || g->detok.n_pending > 0) bitnet__take_token(g, -1);
    return r;
}

/* Stages the pending token and the text or messages behind it. */
static bitnet_result bitnet__stage_text(bitnet_ctx *c, const bitnet_generate_params *p,
                                        int32_t *staged, bitnet_error *err) {
    const bitnet_model *m = c->m;
    bitnet__token_sink s;
    bitnet_result r;
    s.m = m;
    s.out = c->history + c->n_past;
    s.cap = (size_t)(c->p.n_ctx - c->n_past);
    s.n = 0;
    if (c->pending >= 0) bitnet__sink_token(&s, c->pending);
    if (p->messages) {                 /* a reply that was cut gets its end first */
        if (c->pending >= 0 && !bitnet_token_is_end(m, c->pending)) bitnet__sink_token(&s, m->eot);
        bitnet__sink_chat(&s, p->messages, p->n_messages,
                          BITNET_OPEN_REPLY | (c->n_past == 0 ? BITNET_ADD_BOS : 0));
    } else if (p->text) {
        if (c->n_past == 0 && m->add_bos && m->bos >= 0) bitnet__sink_token(&s, m->bos);
        bitnet__sink_text(&s, p->text, strlen(p->text), 0);
    }
    if (s.n == BITNET_ERR_UNSUPPORTED)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "no chat: the template of this file, "
                            "architecture '%s', is not known", m->arch);
    if (s.n < 0)
        return bitnet__fail(err, (bitnet_result)s.n, "the prompt cannot be tokenized: %s",
                            bitnet_result_text((bitnet_result)s.n));
    if (s.n == 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "there is no prompt, and no pending token");
    r = bitnet__check_room(c, s.n, err);
    *staged = (int32_t)s.n;
    return r;
}

/* What cannot be right, before anything is done. */
static bitnet_result bitnet__check_generate(const bitnet_ctx *c, const bitnet_generate_params *p,
                                            bitnet_error *err) {
    int32_t i, rows;
    if (!p) return bitnet__fail(err, BITNET_ERR_ARG, "there are no parameters");
    if (!!p->prompt + !!p->text + !!p->messages > 1)
        return bitnet__fail(err, BITNET_ERR_ARG,
                            "prompt, text and messages: only one of them can be given");
    if (p->messages && p->n_messages < 1)
        return bitnet__fail(err, BITNET_ERR_ARG, "there is no list of %lld messages",
                            (long long)p->n_messages);
    for (i = 0; p->messages && i < p->n_messages; i++) {
        const bitnet_message *msg = &p->messages[i];
        if (!msg->role || !msg->role[0] || !msg->content)
            return bitnet__fail(err, BITNET_ERR_ARG, "message %d has no %s", (int)i,
                                msg->role && msg->role[0] ? "text" : "role");
    }
    if (p->lookup < 0 || p->lookup > BITNET__MAX_LOOKUP)
        return bitnet__fail(err, BITNET_ERR_ARG, "lookup %lld is not in 0..%d",
                            (long long)p->lookup, BITNET__MAX_LOOKUP);
    rows = bitnet__min(p->lookup + 1, c->p.n_ctx);
    if (c->p.n_logits < rows)
        return bitnet__fail(err, BITNET_ERR_LIMIT,
                            "lookup of %d tokens needs a context with n_logits %d; it has %d",
                            (int)p->lookup, (int)rows, (int)c->p.n_logits);
    if (!bitnet__sampler_valid(p->sampler))
        return bitnet__fail(err, BITNET_ERR_ARG, "the sampler has no list of %lld biases",
                            (long long)p->sampler->n_bias);
    if (p->n_stop_strings < 0 || (p->n_stop_strings > 0 && !p->stop_strings))
        return bitnet__fail(err, BITNET_ERR_ARG, "there is no list of %lld stop strings",
                            (long long)p->n_stop_strings);
    for (i = 0; i < p->n_stop_strings; i++) {
        const char *stop = p->stop_strings[i];
        if (!stop || !stop[0])
            return bitnet__fail(err, BITNET_ERR_ARG, "stop string %d is empty", (int)i);
        if (!bitnet__is_utf8(stop))        /* it could match inside of a code point, and cut it */
            return bitnet__fail(err, BITNET_ERR_ARG, "stop string %d is not UTF-8", (int)i);
    }
    return BITNET_OK;
}

static bitnet_result bitnet__generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                      bitnet_stop *why, bitnet_error *err) {
    bitnet__generation g;
    int32_t staged;
    bitnet_result r = bitnet__begin_generation(&g, c, params, err);
    if (r != BITNET_OK) return r;
    if (params->prompt) r = bitnet__stage(c, params->prompt, params->n_prompt, &staged, err);
    else r = bitnet__stage_text(c, params, &staged, err);
    if (r == BITNET_OK) r = bitnet__eval_staged(c, staged, 1, params, err);
    if (r == BITNET_OK) r = bitnet__run_tokens(&g);
    c->n_ahead = 0;
    if (params->lookup_stats) {
        params->lookup_stats->drafts += g.lookup.drafts;
        params->lookup_stats->drafted += g.lookup.drafted;
        params->lookup_stats->accepted += g.lookup.accepted;
    }
    if (why) *why = g.why;
    bitnet__end_generation(&g);
    return r;
}

BITNET_API bitnet_result bitnet_generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                         bitnet_stop *why, bitnet_error *err) {
    bitnet_result r = bitnet__take(c, err);
    if (r != BITNET_OK) return r;
    r = bitnet__check_generate(c, params, err);
    if (r == BITNET_OK) r = bitnet__generate(c, params, why, err);
    bitnet__give_back(c);
    return r;
}

/* =============================================================================================
   >>selftest  does this build, on this machine, keep the promise under DETERMINISM?
   ============================================================================================= */

/* Where a kernel goes another way depends on its columns, rows and lengths, and each table has
   thresholds of its own. Nothing here knows them: the shapes below go through ranges and well past
   every threshold there is, and tests/planted.sh checks that a fault planted in any path is seen.

   The scalar entry computes each shape once. A result does not depend on how many rows and columns
   are computed with it, so every smaller shape is a part of what is known. An entry that is the
   scalar one itself is not compared. */
enum {
    BITNET__TEST_FLOATS = 7 * 4112,    /* the largest array of floats: seven columns of 4112 */
    BITNET__TEST_WEIGHTS = 5 * 4 * 4120,   /* bytes of the largest matrix: five rows of F32 */
    BITNET__TEST_COLS = 40,            /* the most columns */
    BITNET__TEST_LENGTH = 96,          /* entries without rows: every length up to this */
    BITNET__TEST_GUARD = 32,           /* elements behind an array that nobody may write */
    BITNET__TEST_MARGIN = 8192,        /* the same, in bytes, behind packed weights */
    BITNET__TEST_ROOM = BITNET__TEST_FLOATS + BITNET__TEST_GUARD,
    BITNET__TEST_CANARY = 0xa5
};

/* The entries that multiply rows with columns. */
enum {
    BITNET__TEST_TERNARY, BITNET__TEST_U8, BITNET__TEST_F32, BITNET__TEST_F16, BITNET__TEST_BF16,
    BITNET__TEST_KEYS
};
static const char *const bitnet__test_names[] = {
    "dotrows_ternary", "dotrows_u8", "dotrows_f32", "dotrows_f16", "dotrows_bf16", "keys_f16"
};

/* Up to so many rows and columns: all columns, then fewer by `step` each time, and the same with
   rows. */
typedef struct bitnet__test_shape { int n, rows, cols, step; } bitnet__test_shape;

static const bitnet__test_shape bitnet__test_ternary[] = {
    {128, 37, 40, 1}, {128, 70, 33, 7}, {128, 304, 26, 25},    /* the ends of tiles and panels */
    {384, 19, 34, 5},                      /* TL2: rows that end with a block */
    {4352, 9, 8, 1}, {2176, 35, 26, 9}     /* sums that are emptied on the way; several panels */
};
static const bitnet__test_shape bitnet__test_bytes[] = {
    {320, 9, 13, 1}, {96, 9, 13, 1}, {80, 9, 13, 1}, {48, 9, 13, 1}, {37, 3, 3, 1}
};
static const bitnet__test_shape bitnet__test_floats[] = {
    {272, 37, 13, 1}, {80, 70, 9, 3}, {37, 5, 5, 2}, {4112, 5, 7, 1}
};

#define BITNET__COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Inputs, what scalar makes of them, and what the tested table does. */
typedef struct bitnet__selftest {
    bitnet_kernels k;                  /* the tested table, without gaps */
    uint64_t random;
    int n, rows, cols;                 /* what is being tried */
    float x[BITNET__TEST_ROOM];        /* columns: of floats, or of int8 */
    float want[BITNET__TEST_ROOM], got[BITNET__TEST_ROOM];    /* or int32 */
    int32_t sums[BITNET__TEST_COLS], dots[2][BITNET__TEST_LENGTH];
    uint8_t w[BITNET__TEST_WEIGHTS];
    uint8_t *packed;                   /* behind this structure */
} bitnet__selftest;

static int bitnet__test_pick(bitnet__selftest *t, int below) {
    return (int)(bitnet__random(&t->random) * below);
}

static float bitnet__test_number(bitnet__selftest *t) {
    return (float)(bitnet__random(&t->random) * 8.0 - 4.0);
}

/* n elements of 4 bytes: equal bits, or both NaN, for which NaN it is is open. */
static int bitnet__test_same(const void *a, const void *b, size_t n, int floats) {
    size_t i;
    float x, y;
    if (!memcmp(a, b, n * sizeof x)) return 1;
    for (i = 0; i < n; i++) {
        memcpy(&x, (const char *)a + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)b + i * sizeof y, sizeof y);
        if (bitnet__float_bits(x) != bitnet__float_bits(y) && !(floats && x != x && y != y))
            return 0;
    }
    return 1;
}

/* Whether n bytes are as memset has left them. */
static int bitnet__test_untouched(const void *p, size_t n) {
    const uint8_t *byte = (const uint8_t *)p;
    size_t i;
    for (i = 0; i < n; i++)
        if (byte[i] != BITNET__TEST_CANARY) return 0;
    return 1;
}

/* ---- rows with columns ---- */

static void bitnet__test_multiply(const bitnet_kernels *k, int entry, const uint8_t *w,
                                  const float *x, int from, const int32_t *sums, int n, int rows,
                                  int cols, void *out, size_t stride) {
    const int8_t *q = (const int8_t *)x + (size_t)from * (size_t)n;
    int32_t *dots = (int32_t *)out;
    float *y = (float *)out;
    x += (size_t)from * (size_t)n;
    sums += from;
    switch (entry) {
        case BITNET__TEST_TERNARY:
            k->dotrows_ternary(w, q, sums, n, rows, cols, dots, stride);
            break;
        case BITNET__TEST_U8: k->dotrows_u8(w, q, sums, n, rows, cols, dots, stride); break;
        case BITNET__TEST_F32: k->dotrows_f32(w, x, n, rows, cols, y, stride); break;
        case BITNET__TEST_F16: k->dotrows_f16(w, x, n, rows, cols, y, stride); break;
        case BITNET__TEST_BF16: k->dotrows_bf16(w, x, n, rows, cols, y, stride); break;
        default: k->keys_f16(w, x, n, rows, cols, y, stride);
    }
}

static int bitnet__test_is_scalar(const bitnet_kernels *k, int entry) {
    const bitnet_kernels *s = &bitnet__kernels_scalar;
    switch (entry) {
        case BITNET__TEST_TERNARY:
            return !k->pack && k->dotrows_ternary == s->dotrows_ternary;
        case BITNET__TEST_U8: return k->dotrows_u8 == s->dotrows_u8;
        case BITNET__TEST_F32: return k->dotrows_f32 == s->dotrows_f32;
        case BITNET__TEST_F16: return k->dotrows_f16 == s->dotrows_f16;
        case BITNET__TEST_BF16: return k->dotrows_bf16 == s->dotrows_bf16;
        default: return k->keys_f16 == s->keys_f16;
    }
}

/* Integer columns and their sums. In turn random, as low as they get, in a pattern that fits no
   vector, and as high as they get; a matrix's rows likewise. */
static void bitnet__test_fill_q(bitnet__selftest *t, int entry) {
    int8_t *q = (int8_t *)t->x;
    int c, i;
    for (c = 0; c < t->cols; c++) {
        t->sums[c] = 0;
        for (i = 0; i < t->n; i++, q++) {
            int v = c % 4 == 0   ? bitnet__test_pick(t, 256) - 128
                    : c % 4 == 1 ? -128
                    : c % 4 == 2 ? (i + c) % 251 - 125
                                 : 127;
            if (entry == BITNET__TEST_U8) v = v == 127 ? 64 : v / 2;
            *q = (int8_t)v;
            t->sums[c] += v;
        }
    }
}

static void bitnet__test_fill_bytes(bitnet__selftest *t, int row_bytes) {
    uint8_t *w = t->w;
    int r, i;
    for (r = 0; r < t->rows; r++)
        for (i = 0; i < row_bytes; i++, w++)
            *w = (uint8_t)(r % 2 == 0 ? bitnet__test_pick(t, 256) : r % 4 == 1 ? 255 : 0);
}

/* Element i of a matrix in a format. */
static void bitnet__test_put(uint8_t *w, size_t i, int entry, float x) {
    uint32_t bits = bitnet__float_bits(x);
    uint32_t h = bitnet__f32_to_f16(x);
    if (entry == BITNET__TEST_F32) {
        w += 4 * i;
        w[2] = (uint8_t)(bits >> 16);
        w[3] = (uint8_t)(bits >> 24);
    } else {
        w += 2 * i;
        bits = entry == BITNET__TEST_BF16 ? bits >> 16 : h;
    }
    w[0] = (uint8_t)bits;
    w[1] = (uint8_t)(bits >> 8);
}

/* Some rows have subnormals of F16, an infinity or a NaN. */
static void bitnet__test_fill_rows(bitnet__selftest *t, int entry, int stride) {
    int r, i;
    for (r = 0; r < t->rows; r++)
        for (i = 0; i < stride; i++) {
            float v = bitnet__test_number(t);
            if (r % 8 == 3) v *= 3.8e-6f;
            if (r % 16 == 5 && i == t->n / 2) v = bitnet__float_from_bits(0x7f800000);
            if (r % 16 == 13 && i == t->n - 1) v = bitnet__float_from_bits(0x7fc00000);
            bitnet__test_put(t->w, (size_t)r * (size_t)stride + (size_t)i, entry, v);
        }
}

/* Numbers for columns: shortened ones fit every entry. */
static void bitnet__test_fill_x(bitnet__selftest *t, size_t count, int shorten) {
    size_t i;
    for (i = 0; i < count; i++) {
        t->x[i] = bitnet__test_number(t);
        if (shorten) t->x[i] = bitnet__shorten(t->x[i]);
    }
}

/* Packs the rows of I2_S at t->w, from which code 3 is taken out first, as a whole or group by
   group. TL2 is scalar-tl2's to the byte. */
static const char *bitnet__test_pack(bitnet__selftest *t, int whole) {
    const bitnet_kernels *k = &t->k;
    const size_t row_bytes = (size_t)(t->n / 4), bytes = (size_t)t->rows * row_bytes;
    const size_t packed = k->packed_bytes(t->n, t->rows);
    size_t i, at;
    int r, count;
    for (i = 0; i < bytes; i++) t->w[i] ^= (uint8_t)(t->w[i] & t->w[i] >> 1 & 0x55);
    memset(t->packed, BITNET__TEST_CANARY, packed + BITNET__TEST_MARGIN);
    for (r = 0; r < t->rows; r += count) {
        count = whole || t->rows - r < k->row_group ? t->rows - r : k->row_group;
        at = k->packed_bytes(t->n, r);
        if (at > packed || k->packed_bytes(t->n, count) > packed - at) return "packed_bytes";
        if (k->pack(t->w + (size_t)r * row_bytes, t->n, count, t->packed + at)) return "pack";
    }
    if (!bitnet__test_untouched(t->packed + packed, BITNET__TEST_MARGIN)) return "pack";
    if (k->packed_bytes != bitnet__packed_bytes_tl2) return 0;
    bitnet__pack_tl2_scalar(t->w, t->n, t->rows, (uint8_t *)t->got);
    return memcmp(t->got, t->packed, packed) ? "pack" : 0;
}

/* A code 3 must be refused wherever it is. */
static const char *bitnet__test_refusals(bitnet__selftest *t) {
    const char *bad;
    int i;
    t->random = 1;
    t->n = bitnet__test_ternary[0].n;
    t->rows = bitnet__test_ternary[0].rows;
    t->cols = 0;
    bitnet__test_fill_bytes(t, t->n / 4);
    if ((bad = bitnet__test_pack(t, 1)) != 0) return bad;
    for (i = 0; i < t->n; i++) {
        uint8_t *p = t->w + i * 11 % t->rows * (t->n / 4) + i / 4;
        const uint8_t old = *p;
        *p |= (uint8_t)(3 << i % 4 * 2);
        if (!t->k.pack(t->w, t->n, t->rows, t->packed)) return "pack";
        *p = old;
    }
    return 0;
}

/* t->rows rows, from row `first` on (0 unless they are packed), and t->cols columns, from `from`
   on: do they give what they gave in the whole, and is nothing else written? */
static int bitnet__test_part(bitnet__selftest *t, int entry, int first, int from, size_t stride) {
    const int packs = entry == BITNET__TEST_TERNARY && t->k.pack;
    const uint8_t *w = packs ? t->packed + t->k.packed_bytes(t->n, first) : t->w;
    const size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
    size_t c;
    memset(t->got, BITNET__TEST_CANARY, (cols + 1) * stride * sizeof *t->got);
    bitnet__test_multiply(&t->k, entry, w, t->x, from, t->sums, t->n, t->rows, t->cols, t->got,
                          stride);
    for (c = 0; c < cols; c++) {
        const float *want = t->want + ((size_t)from + c) * stride + (size_t)first;
        const float *got = t->got + c * stride;
        if (!bitnet__test_same(want, got, rows, entry >= BITNET__TEST_F32) ||
            !bitnet__test_untouched(got + rows, (stride - rows) * sizeof *got)) return 0;
    }
    return bitnet__test_untouched(t->got + cols * stride, stride * sizeof *t->got);
}

/* All parts of a shape. A few columns are taken in four places, to meet each kind of contents. */
static int bitnet__test_parts(bitnet__selftest *t, int entry, const bitnet__test_shape *s,
                              size_t stride) {
    int i, from;
    for (i = s->cols; i > 0; i -= s->step) {
        t->cols = i;
        for (from = 0; from == 0 || (from < 4 && i <= 4 && from + i <= s->cols); from++)
            if (!bitnet__test_part(t, entry, 0, from, stride)) return 0;
    }
    for (i = s->rows; i > 0; i -= s->step) {
        t->rows = i;
        t->cols = 1 + i * 7 % s->cols;
        if (!bitnet__test_part(t, entry, 0, s->cols - t->cols, stride)) return 0;
    }
    return 1;
}

/* Packed group by group, and read from the second group on. */
static const char *bitnet__test_groups(bitnet__selftest *t, const bitnet__test_shape *s,
                                       size_t stride) {
    const char *bad;
    t->rows = s->rows;
    t->cols = s->cols;
    if (!t->k.pack || t->k.row_group >= s->rows) return 0;
    if ((bad = bitnet__test_pack(t, 0)) != 0) return bad;
    t->rows -= t->k.row_group;
    return bitnet__test_part(t, BITNET__TEST_TERNARY, t->k.row_group, 0, stride)
               ? 0 : "dotrows_ternary";
}

static const char *bitnet__test_rows(bitnet__selftest *t, int entry,
                                     const bitnet__test_shape *shapes, size_t count) {
    const int ternary = entry == BITNET__TEST_TERNARY;
    const char *bad;
    size_t i;
    if (bitnet__test_is_scalar(&t->k, entry)) return 0;
    t->random = 1;                     /* the same for an entry whatever the others are */
    for (i = 0; i < count; i++) {
        const bitnet__test_shape *s = &shapes[i];
        const size_t stride = (size_t)s->rows + 3;
        t->n = s->n;
        t->rows = s->rows;
        t->cols = s->cols;
        if (entry <= BITNET__TEST_U8) {
            bitnet__test_fill_q(t, entry);
            bitnet__test_fill_bytes(t, ternary ? t->n / 4 : t->n);
        } else {
            bitnet__test_fill_x(t, (size_t)s->cols * (size_t)s->n, entry == BITNET__TEST_KEYS);
            bitnet__test_fill_rows(t, entry, s->n);
        }
        if (ternary && t->k.pack && (bad = bitnet__test_pack(t, 1)) != 0) return bad;
        bitnet__test_multiply(&bitnet__kernels_scalar, entry, t->w, t->x, 0, t->sums, t->n,
                              t->rows, t->cols, t->want, stride);
        if (!bitnet__test_parts(t, entry, s, stride)) return bitnet__test_names[entry];
        if (ternary && (bad = bitnet__test_groups(t, s, stride)) != 0) return bad;
    }
    return 0;
}

/* Weighted sums of rows, which are added to what is there. All rows are in every sum, so a part has
   fewer columns only. Returns how many elements may change; the guard is behind them. */
static size_t bitnet__test_add_rows(const bitnet__selftest *t, const bitnet_kernels *k, int entry,
                                    float *y) {
    const size_t w_stride = (size_t)t->n + 8, p_stride = (size_t)t->rows + 3;
    const size_t count = (size_t)t->cols * (size_t)t->n;
    size_t i;
    memset(y, BITNET__TEST_CANARY, (count + BITNET__TEST_GUARD) * sizeof *y);
    for (i = 0; i < count; i++) y[i] = (float)((int)(i % 63) - 31);
    if (entry == BITNET__TEST_F16)
        k->mixrows_f16(t->w, w_stride, t->x, p_stride, t->n, t->rows, t->cols, y);
    else k->mixrows_f32(t->w, w_stride, t->x, p_stride, t->n, t->rows, t->cols, y);
    return count;
}

static const char *bitnet__test_mix(bitnet__selftest *t, int entry) {
    const bitnet_kernels *scalar = &bitnet__kernels_scalar;
    const int f16 = entry == BITNET__TEST_F16;
    size_t i, count;
    if (f16 ? t->k.mixrows_f16 == scalar->mixrows_f16 : t->k.mixrows_f32 == scalar->mixrows_f32)
        return 0;
    t->random = 1;
    for (i = 0; i < BITNET__COUNT(bitnet__test_floats); i++) {
        const bitnet__test_shape *s = &bitnet__test_floats[i];
        t->n = s->n;
        t->rows = s->rows;
        t->cols = s->cols;
        bitnet__test_fill_x(t, (size_t)s->cols * ((size_t)s->rows + 3), f16);
        bitnet__test_fill_rows(t, entry, s->n + 8);
        bitnet__test_add_rows(t, scalar, entry, t->want);
        for (; t->cols > 0; t->cols--) {
            count = bitnet__test_add_rows(t, &t->k, entry, t->got);
            if (!bitnet__test_same(t->want, t->got, count, 1) ||
                !bitnet__test_untouched(t->got + count, BITNET__TEST_GUARD * sizeof(float)))
                return f16 ? "mixrows_f16" : "mixrows_f32";
        }
    }
    return 0;
}

/* ---- one row ---- */

/* 0: tame numbers, 1: NaNs among them, 2: other special ones, too, 3: special ones only. */
static void bitnet__test_fill_wild(bitnet__selftest *t, int wild) {
    static const uint32_t special[] = {
        0x7fc12345, 0x7f800000, 0xff800000, 0x00000000, 0x80000000,    /* NaN, infinities, 0 */
        0x7e967699, 0xfe967699, 0x71800001, 0xf1800001, 0x0d7fffff,    /* 1e38; 2^100, 2^-100 */
        0x8d7fffff, 0x0d800000, 0x00000001, 0x80400000,                /* subnormals */
        0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff000,                /* where F16 ends */
        0x387fc000, 0x38800000, 0x387fe000, 0x33000000, 0x33000001,    /* its subnormals */
        0x3f801000, 0x3f803000, 0x3f800fff, 0xbf801001,                /* its ties */
        0x3f000000, 0xbfc00000, 0x40200000, 0x42fe0000, 0xc2ff0000, 0x42b00000, 0xc3160000
    };
    const int count = wild == 1 ? 1 : (int)BITNET__COUNT(special);
    int i;
    for (i = 0; i < t->n; i++)
        t->x[i] = wild == 3 || (wild && bitnet__test_pick(t, 4) == 0)
                      ? bitnet__float_from_bits(special[bitnet__test_pick(t, count)])
                      : bitnet__test_number(t);
}

/* Both tables in turn, from t->x to t->want and t->got, with a guard behind the results; names the
   entry that differs. */
static const char *bitnet__test_length(bitnet__selftest *t, int wild) {
    const float *x = t->x, *gain = t->x + BITNET__TEST_LENGTH, *angles = gain + BITNET__TEST_LENGTH;
    const size_t size = ((size_t)t->n + BITNET__TEST_GUARD) * sizeof *x;
    const int n = t->n;
    int32_t sum;
    int i, rot;
    t->random = (uint64_t)(4 * n + wild);
    bitnet__test_fill_x(t, 3 * BITNET__TEST_LENGTH, 0);
    bitnet__test_fill_wild(t, wild);
    for (i = 0; i < n; i++) {
        t->dots[0][i] = bitnet__test_pick(t, 2001) - 1000;
        t->dots[1][i] = (bitnet__test_pick(t, 1 << 15) - (1 << 14)) * (1 << 14);
    }
#define BITNET__BOTH(entry, call) \
    if (t->k.entry != bitnet__kernels_scalar.entry) { \
        for (i = 0; i < 2; i++) { \
            const bitnet_kernels *k = i ? &t->k : &bitnet__kernels_scalar; \
            float *y = i ? t->got : t->want; \
            memset(y, BITNET__TEST_CANARY, size); \
            call; \
        } \
        if (!bitnet__test_same(t->want, t->got, size / sizeof *x, 1)) return #entry; \
    }
#define BITNET__COPY memcpy(y, x, (size_t)n * sizeof *x)
    BITNET__BOTH(quantize, y[n + 1] = k->quantize(x, n, (int8_t *)y, &sum); \
                 memcpy(y + n, &sum, sizeof sum))
    BITNET__BOTH(softmax, BITNET__COPY; k->softmax(y, n, 0.5f, 0))
    BITNET__BOTH(softmax, BITNET__COPY; k->softmax(y, n, 3.0f, 1))
    for (rot = 0; rot <= n; rot += 2) {
        BITNET__BOTH(rope, k->rope(x, angles, rot, n, wild % 2, y))
        BITNET__BOTH(rope, BITNET__COPY; k->rope(y, angles, rot, n, wild / 2, y))
    }
    BITNET__BOTH(store_f16, k->store_f16(x, n, (uint8_t *)y))
    BITNET__BOTH(dequantize, k->dequantize(t->dots[wild % 2], 0.1f, n, 0, y))
    BITNET__BOTH(dequantize, BITNET__COPY; k->dequantize(t->dots[wild % 2], 0.1f, n, 1, y))
    BITNET__BOTH(relu2_gate, k->relu2_gate(t->dots[0], 0.1f, t->dots[1], 0.3f, n, y))
    BITNET__BOTH(relu2_gate, k->relu2_gate(t->dots[1], 0.1f, t->dots[0], 0.3f, n, y))
    BITNET__BOTH(rmsnorm, k->rmsnorm(x, gain, n, 1e-5f, y))
    BITNET__BOTH(rmsnorm, BITNET__COPY; k->rmsnorm(y, gain, n, 1e-5f, y))
#undef BITNET__BOTH
#undef BITNET__COPY
    return 0;
}

static const char *bitnet__test_lengths(bitnet__selftest *t) {
    const char *bad = 0;
    int wild;
    t->rows = t->cols = 1;
    for (t->n = 1; t->n <= BITNET__TEST_LENGTH; t->n++)
        for (wild = 0; wild < 4; wild++)
            if ((bad = bitnet__test_length(t, wild)) != 0) return bad;
    return 0;
}

/* What no table replaces, the functions of >>math, as a number: the same one on every machine. */
static uint32_t bitnet__math_digest(void) {
    uint64_t bits, h = 0;
    double y[5];
    int i, j;
    for (i = 1; i <= 40; i++) {
        volatile double x = 0.40625 * i;           /* volatile: to be computed here and now */
        y[0] = bitnet__exp(8.0 - x);
        y[1] = bitnet__log(x);
        y[2] = bitnet__sqrt(x);
        bitnet__sincos(16.0 * x, &y[3], &y[4]);
        for (j = 0; j < 5; j++) {
            memcpy(&bits, &y[j], 8);
            h = (h ^ bits) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
    }
    return (uint32_t)(h >> 32);
}

/* The compiler's and the CPU's arithmetic, seen through scalar dot products of which only these
   elements are not 0. Half an ulp is lost next to 1, but not next to 1 + ulp. With a = 1 + 2^-12,
   a^2 rounds to 1 + 2^-11; a fused or wider multiply-add would keep 2^-24 of it. Next to 2^24 each
   1 is lost alone, but not two together. */
static const char *bitnet__check_arithmetic(void) {
    static const int at[5] = {0, 16, 8, 24, 4};
    const float a = 1.000244140625f, ulp = 1.1920928955078125e-07f, tiny = 1.40129846e-45f;
    const char *const contracts = "this build contracts a*b+c into an FMA, or computes it wider; "
                                  "use -ffp-contract=off (32-bit x86: -msse2 -mfpmath=sse; s390x: "
                                  "-fexcess-precision=fast; MSVC: /fp:precise)";
    const char *const reorders = "this build reorders float sums; compile without "
                                 "-fassociative-math, -funsafe-math-optimizations and the like";
    const struct { float w[5], x[5], sum; const char *bad; } cases[] = {
        {{1, 0.5f, 1 + ulp, 0.5f, 0}, {1, ulp, 1, ulp, 0}, 2 + 2 * ulp,
         "the rounding mode is not round-to-nearest-even"},
        {{-1.00048828125f, a, 0, 0, 0}, {1, a, 0, 0, 0}, 0, contracts},
        {{tiny, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, tiny,
         "subnormal numbers are flushed to zero; compile and link without -ffast-math and its "
         "parts, or switch that off before using the library"},
        {{16777216, 1, 1, 0, 1}, {1, 1, 1, 0, 1}, 16777216, reorders}
    };
    volatile float one = 1.0f;                     /* volatile: nothing is known beforehand */
    float x[32], y;
    uint8_t w[sizeof x];
    size_t i, j;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(x, 0, sizeof x);
        memset(w, 0, sizeof w);
        for (j = 0; j < 5; j++) {
            uint32_t bits = bitnet__float_bits(cases[i].w[j]);
            uint8_t *p = w + 4 * at[j];
            p[0] = (uint8_t)bits;
            p[1] = (uint8_t)(bits >> 8);
            p[2] = (uint8_t)(bits >> 16);
            p[3] = (uint8_t)(bits >> 24);
            x[at[j]] = cases[i].x[j] * one;
        }
        bitnet__dotrows_f32_scalar(w, x, 32, 1, 1, &y, 1);
        if (bitnet__float_bits(y) != bitnet__float_bits(cases[i].sum)) return cases[i].bad;
    }
    /* The compiler may have made vectors of the dot product, and not of other sums. */
    y = one * a;
    if (y * a * one - 1.00048828125f * one != 0.0f) return contracts;
    if (bitnet__round13(one + ulp) != 1.0f) return reorders;
    y = -0.0f * one;
    if (bitnet__float_bits(y + 0.0f) != 0)
        return "this build takes -0 for 0; compile without -fno-signed-zeros";
    if (5.0f * one / 3.0f != 1.66666663f)
        return "this build multiplies by a reciprocal where it should divide; compile without "
               "-freciprocal-math";
    if (bitnet__math_digest() != 0xc5aa8df7u)
        return "exp, log, sqrt, sin or cos differ from other builds; compile without options that "
               "relax floating point";
    return 0;
}

/* Bytes of t->packed, which a table must not ask too many of. */
static bitnet_result bitnet__test_packed_size(const bitnet_kernels *k, size_t *size,
                                              bitnet_error *err) {
    size_t i;
    *size = 0;
    for (i = 0; k->pack && i < BITNET__COUNT(bitnet__test_ternary); i++) {
        const bitnet__test_shape *s = &bitnet__test_ternary[i];
        const size_t bytes = k->packed_bytes(s->n, s->rows);
        if (bytes > (size_t)(s->rows + k->row_group) * (size_t)s->n)
            return bitnet__fail(err, BITNET_ERR_ARG, "kernels '%s': packed_bytes says %llu for %d "
                                "rows of %d weights: more than a byte for each", k->name,
                                (unsigned long long)bytes, s->rows, s->n);
        if (bytes > *size) *size = bytes;
    }
    return BITNET_OK;
}

/* Names the entry that is not as scalar's; *t says where. */
static const char *bitnet__test_entries(bitnet__selftest *t) {
    const char *bad = bitnet__test_lengths(t);
    int entry;
    if (!bad && t->k.pack) bad = bitnet__test_refusals(t);
    if (!bad)
        bad = bitnet__test_rows(t, BITNET__TEST_TERNARY, bitnet__test_ternary,
                                BITNET__COUNT(bitnet__test_ternary));
    if (!bad)
        bad = bitnet__test_rows(t, BITNET__TEST_U8, bitnet__test_bytes,
                                BITNET__COUNT(bitnet__test_bytes));
    for (entry = BITNET__TEST_F32; !bad && entry <= BITNET__TEST_KEYS; entry++)
        bad = bitnet__test_rows(t, entry, bitnet__test_floats, BITNET__COUNT(bitnet__test_floats));
    if (!bad) bad = bitnet__test_mix(t, BITNET__TEST_F32);
    return bad ? bad : bitnet__test_mix(t, BITNET__TEST_F16);
}
#undef BITNET__COUNT

BITNET_API bitnet_result bitnet_selftest(const bitnet_kernels *k, bitnet_error *err) {
    const bitnet_allocator a = {0, 0, 0};
    bitnet__selftest *t;
    bitnet_kernels full;
    bitnet_result r;
    size_t packed;
    const char *bad = bitnet__check_arithmetic();
    if (bad) return bitnet__fail(err, BITNET_ERR_SELFTEST, "%s", bad);
    if (!k) return bitnet__fail(err, BITNET_ERR_ARG, "there is no kernel table");
    if ((r = bitnet__check_kernels(k, err))) return r;
    full = bitnet__fill_kernels(k);
    if ((r = bitnet__test_packed_size(&full, &packed, err))) return r;
    packed += BITNET__TEST_MARGIN;
    t = (bitnet__selftest *)bitnet__alloc(&a, sizeof *t + packed);
    if (!t)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the self-test (%llu bytes)",
                            (unsigned long long)(sizeof *t + packed));
    t->k = full;
    t->packed = (uint8_t *)(t + 1);
    bad = bitnet__test_entries(t);
    if (bad)
        r = bitnet__fail(err, BITNET_ERR_SELFTEST, "kernels '%s': %s differs from scalar at n = "
                         "%d, %d rows, %d columns", k->name, bad, t->n, t->rows, t->cols);
    bitnet__free(&a, t);
    return r;
}

/* =============================================================================================
   >>files  GGUF files of any kind, to look into and to write
   Reading is >>gguf's, with its checks; what is handed out are copies of names and views of values.
   The writer collects the header's two lists in memory and puts them out as soon as both are
   complete; tensors' data only passes through.
   ============================================================================================= */

BITNET_API const char *bitnet_tensor_type_name(uint32_t type) {
    const bitnet__type *t = bitnet__type_info(type);
    return t ? t->name : 0;
}

BITNET_API uint64_t bitnet_tensor_size(uint32_t type, int32_t n_dims, const uint64_t *dims) {
    uint64_t n = 1;
    int32_t i;
    if (!dims || n_dims < 1 || n_dims > 4) return 0;
    for (i = 0; i < n_dims; i++) {
        if (dims[i] == 0 || dims[i] > ((uint64_t)1 << 40) / n) return 0;
        n *= dims[i];
    }
    return bitnet__tensor_size(type, bitnet__type_info(type), dims[0], n / dims[0]);
}

/* ---- reading ---- */

struct bitnet_gguf {
    bitnet__gguf file;
    bitnet_allocator allocator;
};

/* What a record of a tensor says: name, and after it in the header u32 n_dims, u64 dims[n_dims]. */
static void bitnet__gguf_tensor_at(const bitnet_gguf *g, const bitnet__tensor *t,
                                   bitnet_gguf_tensor *out) {
    const uint8_t *p = g->file.src.data + t->name + t->name_len;
    int32_t i;
    memset(out, 0, sizeof *out);
    memcpy(out->name, g->file.src.data + t->name, t->name_len);
    out->type = t->type;
    out->n_dims = (int32_t)bitnet__get_u32(p);
    for (i = 0; i < 4; i++) out->dims[i] = i < out->n_dims ? bitnet__get_u64(p + 4 + 8 * i) : 1;
    out->offset = t->offset;
    out->size = t->size;
    out->type_name = t->info ? t->info->name : 0;
    if (!g->file.src.io.read_fn) out->data = g->file.src.data + t->offset;
}

/* Every way to open ends here. Takes over the source, on failure too. */
static bitnet_result bitnet__gguf_open(bitnet__source *src, const bitnet_allocator *allocator,
                                       bitnet_gguf **out, bitnet_error *err) {
    bitnet_allocator a = {0, 0, 0};
    bitnet_gguf *g = 0;
    bitnet_result r = BITNET_OK;
    if (allocator) a = *allocator;
    if (!a.alloc_fn != !a.free_fn)
        r = bitnet__fail(err, BITNET_ERR_ARG, "the allocator needs both of its functions");
    else if (!(g = (bitnet_gguf *)bitnet__alloc(&a, sizeof *g)))
        r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for an open file");
    if (!g) {
        bitnet__source_close(src, &a);
        return r;
    }
    memset(g, 0, sizeof *g);
    g->allocator = a;
    g->file.src = *src;
    r = bitnet__gguf_parse(&g->file, &g->allocator, err);
    if (r != BITNET_OK) {
        bitnet_gguf_close(g);
        return r;
    }
    *out = g;
    return BITNET_OK;
}

BITNET_API void bitnet_gguf_close(bitnet_gguf *g) {
    bitnet_allocator a;
    if (!g) return;
    a = g->allocator;
    bitnet__gguf_free(&g->file, &a);
    bitnet__free(&a, g);
}

static bitnet_result bitnet__no_gguf(bitnet_gguf **out, bitnet_error *err) {
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "there is nowhere to put the open file");
    *out = 0;
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_open_memory(const void *data, size_t size,
                                                 const bitnet_allocator *allocator,
                                                 bitnet_gguf **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_gguf(out, err);
    if (r == BITNET_OK) r = bitnet__source_memory(data, size, &src, err);
    return r == BITNET_OK ? bitnet__gguf_open(&src, allocator, out, err) : r;
}

BITNET_API bitnet_result bitnet_gguf_open_io(const bitnet_io *io, const bitnet_allocator *allocator,
                                             bitnet_gguf **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_gguf(out, err);
    if (r == BITNET_OK) r = bitnet__source_io(io, &src, err);
    return r == BITNET_OK ? bitnet__gguf_open(&src, allocator, out, err) : r;
}

#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_gguf_open_file(const char *path, const bitnet_allocator *allocator,
                                               bitnet_gguf **out, bitnet_error *err) {
    bitnet__source src;
    bitnet_result r = bitnet__no_gguf(out, err);
    if (r == BITNET_OK) r = bitnet__source_file(path, 0, &src, err);
    return r == BITNET_OK ? bitnet__gguf_open(&src, allocator, out, err) : r;
}
#endif

static void bitnet__gguf_key_at(const bitnet_gguf *g, const bitnet__key *k, bitnet_gguf_key *out) {
    memset(out, 0, sizeof *out);
    memcpy(out->name, g->file.src.data + k->name, k->name_len);
    out->value.type = k->type;
    out->value.element = k->type == BITNET_GGUF_ARRAY ? k->element : 0u;
    out->value.count = k->type == BITNET_GGUF_ARRAY ? k->count : 1;
    out->value.size = k->size;
    out->value.data = g->file.src.data + k->value;
}

BITNET_API bitnet_result bitnet_gguf_get_key(const bitnet_gguf *g, uint64_t i,
                                             bitnet_gguf_key *out) {
    if (!g || !out || i >= g->file.n_keys) return BITNET_ERR_ARG;
    bitnet__gguf_key_at(g, &g->file.keys[i], out);
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_find_key(const bitnet_gguf *g, const char *name,
                                              bitnet_gguf_key *out) {
    const bitnet__key *k = g && name ? bitnet__find_key(&g->file, name) : 0;
    if (!k || !out) return BITNET_ERR_ARG;
    bitnet__gguf_key_at(g, k, out);
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_get_tensor(const bitnet_gguf *g, uint64_t i,
                                                bitnet_gguf_tensor *out) {
    if (!g || !out || i >= g->file.n_tensors) return BITNET_ERR_ARG;
    bitnet__gguf_tensor_at(g, &g->file.tensors[i], out);
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_find_tensor(const bitnet_gguf *g, const char *name,
                                                 bitnet_gguf_tensor *out) {
    const bitnet__tensor *t = g && name ? bitnet__find_tensor(&g->file, name) : 0;
    if (!t || !out) return BITNET_ERR_ARG;
    bitnet__gguf_tensor_at(g, t, out);
    return BITNET_OK;
}

/* A reader of bytes in memory, whose errors nobody sees. */
static void bitnet__reader_over(bitnet__reader *r, bitnet__source *src, const uint8_t *data,
                                uint64_t size) {
    memset(r, 0, sizeof *r);
    memset(src, 0, sizeof *src);
    src->data = data;
    src->size = src->have = size;
    r->src = src;
}

BITNET_API int bitnet_gguf_next(const bitnet_gguf_value *array, bitnet_gguf_value *element) {
    bitnet_gguf_value e = {0, 0, 1, 0, 0};
    bitnet__source src;
    bitnet__reader r;
    uint64_t at;
    if (!array || !element || array->type != BITNET_GGUF_ARRAY || !array->data) return 0;
    bitnet__reader_over(&r, &src, array->data, array->size);
    r.pos = element->data ? (uint64_t)(element->data - array->data) + element->size : 0;
    e.type = array->element;
    e.size = bitnet__value_size(e.type);
    if (r.pos >= array->size || e.size == 0) return 0;
    if (e.type == BITNET_GGUF_STRING) e.size = bitnet__reader_u64(&r);
    if (e.type == BITNET_GGUF_ARRAY) {
        e.element = bitnet__reader_u32(&r);
        e.count = bitnet__reader_u64(&r);
        at = r.pos;
        bitnet__reader_skip_array(&r, e.element, e.count);
    } else {
        at = r.pos;
        bitnet__reader_take(&r, e.size);
    }
    if (r.result != BITNET_OK) return 0;
    e.size = r.pos - at;
    e.data = array->data + at;
    *element = e;
    return 1;
}

BITNET_API int bitnet_gguf_text(const bitnet_gguf_value *value, char *buf, size_t cap) {
    if (!value || !value->data) return BITNET_ERR_ARG;
    if (!buf) cap = 0;
    if (value->type != BITNET_GGUF_STRING && value->size != bitnet__value_size(value->type))
        return value->type == BITNET_GGUF_ARRAY ? BITNET_ERR_UNSUPPORTED : BITNET_ERR_ARG;
    return bitnet__value_text(value->type, value->data, value->size, buf, cap);
}

BITNET_API bitnet_result bitnet_gguf_read(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                                          uint64_t at, void *dst, size_t n, bitnet_error *err) {
    const bitnet__source *src;
    char why[BITNET__TEXT];
    bitnet_result r;
    if (!g || !t || !dst || at > t->size || n > t->size - at || t->offset > g->file.src.size ||
        t->size > g->file.src.size - t->offset)
        return bitnet__fail(err, BITNET_ERR_ARG, "tensor '%.64s' has no such bytes",
                            t ? t->name : "");
    src = &g->file.src;
    if (!src->io.read_fn) {
        memcpy(dst, src->data + t->offset + at, n);
        return BITNET_OK;
    }
    r = bitnet__source_read(src, t->offset + at, dst, n, why);
    if (r == BITNET_OK) return r;
    return bitnet__fail(err, r, "tensor '%.64s': reading %llu bytes at offset %llu: %s", t->name,
                        (unsigned long long)n, (unsigned long long)(t->offset + at), why);
}

/* ---- writing ---- */

typedef struct bitnet__bytes { uint8_t *p; size_t n, room; } bitnet__bytes;

/* A key or tensor in the header: its name, and of a tensor where its offset is to stand. */
typedef struct bitnet__entry {
    size_t name, name_len, offset_at;
    uint64_t size;
} bitnet__entry;

typedef struct bitnet__section { bitnet__bytes header, entries; } bitnet__section;

struct bitnet__writing {
    bitnet__section keys, tensors;
    uint64_t alignment, total;         /* total: bytes of the file; 0: no header yet */
    uint64_t current, left;            /* the tensor that is due, and bytes it still lacks */
};

static uint64_t bitnet__section_count(const bitnet__section *s) {
    return s->entries.n / sizeof(bitnet__entry);
}

static bitnet__entry *bitnet__section_entries(const bitnet__section *s) {
    return (bitnet__entry *)(void *)s->entries.p;
}

/* n bytes more, which the caller fills; 0 and the writer's error if there is no memory. */
static uint8_t *bitnet__bytes_add(bitnet_gguf_writer *w, bitnet__bytes *b, uint64_t n) {
    if (w->err.code) return 0;
    if (n > b->room - b->n) {
        size_t room = b->room;
        uint8_t *p = 0;
        if (n < SIZE_MAX / 4 && b->n < SIZE_MAX / 4) {
            room = 2 * (b->n + (size_t)n) + 1024;
            p = (uint8_t *)bitnet__alloc(&w->allocator, room);
        }
        if (!p) {
            bitnet__fail(&w->err, BITNET_ERR_MEMORY, "no memory for a header of %llu bytes",
                         (unsigned long long)b->n + n);
            return 0;
        }
        if (b->n) memcpy(p, b->p, b->n);
        bitnet__free(&w->allocator, b->p);
        b->p = p;
        b->room = room;
    }
    b->n += (size_t)n;
    return b->p + (b->n - (size_t)n);
}

/* The lowest n bytes of v, little-endian. */
static void bitnet__put_int(uint8_t *p, uint64_t v, int n) {
    for (; n > 0; n--, v >>= 8) *p++ = (uint8_t)v;
}

static void bitnet__add_int(bitnet_gguf_writer *w, bitnet__bytes *b, uint64_t v, int n) {
    uint8_t *p = bitnet__bytes_add(w, b, (uint64_t)n);
    if (p) bitnet__put_int(p, v, n);
}

static void bitnet__add_text(bitnet_gguf_writer *w, bitnet__bytes *b, const void *text, size_t n) {
    uint8_t *p;
    bitnet__add_int(w, b, n, 8);
    p = bitnet__bytes_add(w, b, n);
    if (p && n) memcpy(p, text, n);
}

/* Begins a key or a tensor: its name goes into the header. 0 if the writer has failed. */
static bitnet__entry *bitnet__add_entry(bitnet_gguf_writer *w, const char *what, const char *name) {
    const int is_key = what[0] == 'k';
    const size_t len = name ? strlen(name) : 0;
    const size_t most = is_key ? BITNET__MAX_KEY_NAME : BITNET__MAX_TENSOR_NAME;
    bitnet__section *s;
    bitnet__entry *e;
    uint64_t i;
    if (!w || w->err.code) return 0;
    if (!w->write_fn || !w->allocator.alloc_fn != !w->allocator.free_fn) {
        bitnet__fail(&w->err, BITNET_ERR_ARG, "the writer has no write_fn, or half an allocator");
        w->allocator.alloc_fn = 0;
        return 0;
    }
    if (len > most || bitnet__name_flaw((const uint8_t *)name, len)) {
        bitnet__fail(&w->err, BITNET_ERR_ARG, "a %s's name must have 1 to %d bytes, in UTF-8", what,
                     (int)most);
        return 0;
    }
    if (!w->state) {
        w->state = (struct bitnet__writing *)bitnet__alloc(&w->allocator, sizeof *w->state);
        if (!w->state) {
            bitnet__fail(&w->err, BITNET_ERR_MEMORY, "no memory for a header");
            return 0;
        }
        memset(w->state, 0, sizeof *w->state);
        w->state->alignment = 32;
    }
    s = is_key ? &w->state->keys : &w->state->tensors;
    e = bitnet__section_entries(s);
    for (i = 0; i < bitnet__section_count(s); i++)
        if (e[i].name_len == len && !memcmp(s->header.p + e[i].name, name, len)) {
            bitnet__fail(&w->err, BITNET_ERR_ARG, "%s '%.64s' is there already", what, name);
            return 0;
        }
    if (w->state->total || i >= (is_key ? BITNET__MAX_KEYS : BITNET__MAX_TENSORS)) {
        bitnet__fail(&w->err, BITNET_ERR_ARG, "%s '%.64s' %s", what, name, w->state->total ?
                     "comes after the header" : "is one too many");
        return 0;
    }
    bitnet__add_text(w, &s->header, name, len);
    e = (bitnet__entry *)(void *)bitnet__bytes_add(w, &s->entries, sizeof *e);
    if (!e) return 0;
    memset(e, 0, sizeof *e);
    e->name = s->header.n - len;
    e->name_len = len;
    return e;
}

static bitnet_result bitnet__writer_result(const bitnet_gguf_writer *w) {
    return w ? w->err.code : BITNET_ERR_ARG;
}

/* Is the value whole and of known types? An array's elements have to fill it. */
static int bitnet__value_valid(const bitnet_gguf_value *v) {
    bitnet__source src;
    bitnet__reader r;
    if (!v || v->type >= BITNET__N_VALUE_TYPES || (!v->data && v->size)) return 0;
    if (v->type == BITNET_GGUF_STRING) return 1;
    if (v->type != BITNET_GGUF_ARRAY) return v->size == bitnet__value_size(v->type);
    bitnet__reader_over(&r, &src, v->data, v->size);
    bitnet__reader_skip_array(&r, v->element, v->count);
    return r.result == BITNET_OK && r.pos == v->size;
}

/* What stands before a value's data: its type, and an array's element type and count. */
static bitnet__bytes *bitnet__add_type(bitnet_gguf_writer *w, const char *name, uint32_t type,
                                       uint32_t element, uint64_t count) {
    bitnet__bytes *b;
    if (!bitnet__add_entry(w, "key", name)) return 0;
    b = &w->state->keys.header;
    bitnet__add_int(w, b, type, 4);
    if (type == BITNET_GGUF_ARRAY) {
        bitnet__add_int(w, b, element, 4);
        bitnet__add_int(w, b, count, 8);
    }
    return b;
}

BITNET_API bitnet_result bitnet_gguf_add_value(bitnet_gguf_writer *w, const char *name,
                                               const bitnet_gguf_value *value) {
    bitnet__bytes *b;
    uint8_t *p;
    uint64_t alignment;
    if (!w || w->err.code) return bitnet__writer_result(w);
    if (!bitnet__value_valid(value))
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "key '%.64s' has a value that breaks its type",
                            name ? name : "");
    b = bitnet__add_type(w, name, value->type, value->element, value->count);
    if (!b) return w->err.code;
    if (!strcmp(name, "general.alignment")) {
        alignment = value->type == BITNET_GGUF_U32 ? bitnet__get_u32(value->data) : 0;
        if (!alignment || (alignment & (alignment - 1)) || alignment > BITNET__MAX_ALIGNMENT)
            return bitnet__fail(&w->err, BITNET_ERR_ARG,
                                "key 'general.alignment' is not a power of two up to 65536 (U32)");
        w->state->alignment = alignment;
    }
    if (value->type == BITNET_GGUF_STRING) bitnet__add_int(w, b, value->size, 8);
    p = bitnet__bytes_add(w, b, value->size);
    /* Only an empty value has no data. NOLINTNEXTLINE */
    if (p && value->size) memcpy(p, value->data, (size_t)value->size);
    return w->err.code;
}

static bitnet_result bitnet__add_scalar(bitnet_gguf_writer *w, const char *name, uint32_t type,
                                        uint32_t bits) {
    bitnet_gguf_value v;
    uint8_t data[4];
    bitnet__put_int(data, bits, 4);
    v.type = type;
    v.element = 0;
    v.count = 1;
    v.size = type == BITNET_GGUF_BOOL ? 1 : 4;
    v.data = data;
    return bitnet_gguf_add_value(w, name, &v);
}

BITNET_API bitnet_result bitnet_gguf_add_u32(bitnet_gguf_writer *w, const char *name, uint32_t v) {
    return bitnet__add_scalar(w, name, BITNET_GGUF_U32, v);
}

BITNET_API bitnet_result bitnet_gguf_add_f32(bitnet_gguf_writer *w, const char *name, float v) {
    return bitnet__add_scalar(w, name, BITNET_GGUF_F32, bitnet__float_bits(v));
}

BITNET_API bitnet_result bitnet_gguf_add_bool(bitnet_gguf_writer *w, const char *name, int v) {
    return bitnet__add_scalar(w, name, BITNET_GGUF_BOOL, v != 0);
}

BITNET_API bitnet_result bitnet_gguf_add_string(bitnet_gguf_writer *w, const char *name,
                                                const char *text) {
    bitnet_gguf_value v;
    v.type = BITNET_GGUF_STRING;
    v.element = 0;
    v.count = 1;
    v.size = text ? strlen(text) : 1;  /* no text, no data: refused */
    v.data = (const uint8_t *)text;
    return bitnet_gguf_add_value(w, name, &v);
}

/* An array of 32-bit numbers, given by their bytes in memory. */
static bitnet_result bitnet__add_words(bitnet_gguf_writer *w, const char *name, uint32_t element,
                                       const void *v, uint64_t n) {
    const uint8_t *from = (const uint8_t *)v;
    bitnet__bytes *b;
    uint32_t bits;
    uint8_t *p;
    if (!w || w->err.code) return bitnet__writer_result(w);
    if ((!v && n) || n > SIZE_MAX / 8)
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "key '%.64s' has no values", name ? name : "");
    b = bitnet__add_type(w, name, BITNET_GGUF_ARRAY, element, n);
    p = b ? bitnet__bytes_add(w, b, n * 4) : 0;
    for (; p && n > 0; n--, p += 4, from += 4) {
        memcpy(&bits, from, 4);
        bitnet__put_int(p, bits, 4);
    }
    return w->err.code;
}

BITNET_API bitnet_result bitnet_gguf_add_i32s(bitnet_gguf_writer *w, const char *name,
                                              const int32_t *v, uint64_t n) {
    return bitnet__add_words(w, name, BITNET_GGUF_I32, v, n);
}

BITNET_API bitnet_result bitnet_gguf_add_f32s(bitnet_gguf_writer *w, const char *name,
                                              const float *v, uint64_t n) {
    return bitnet__add_words(w, name, BITNET_GGUF_F32, v, n);
}

BITNET_API bitnet_result bitnet_gguf_add_strings(bitnet_gguf_writer *w, const char *name,
                                                 const char *const *texts, const size_t *lengths,
                                                 uint64_t n) {
    bitnet__bytes *b;
    uint64_t i;
    if (!w || w->err.code) return bitnet__writer_result(w);
    for (i = 0; i < n && texts && texts[i]; i++) {}
    if (i < n)
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "key '%.64s': there is no string %llu",
                            name ? name : "", (unsigned long long)i);
    b = bitnet__add_type(w, name, BITNET_GGUF_ARRAY, BITNET_GGUF_STRING, n);
    for (i = 0; b && i < n && !w->err.code; i++)
        bitnet__add_text(w, b, texts[i], lengths ? lengths[i] : strlen(texts[i]));
    return w->err.code;
}

BITNET_API bitnet_result bitnet_gguf_add_tensor(bitnet_gguf_writer *w, const char *name,
                                                uint32_t type, int32_t n_dims,
                                                const uint64_t *dims) {
    const uint64_t size = bitnet_tensor_size(type, n_dims, dims);
    const char *type_name = bitnet_tensor_type_name(type);
    bitnet__bytes *b;
    bitnet__entry *e;
    int32_t i;
    if (!w || w->err.code) return bitnet__writer_result(w);
    if (size == 0)
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "tensor '%.64s': type %u (%s) cannot have its "
                            "shape", name ? name : "", (unsigned)type,
                            type_name ? type_name : "unknown");
    e = bitnet__add_entry(w, "tensor", name);
    if (!e) return w->err.code;
    b = &w->state->tensors.header;
    e->size = size;
    bitnet__add_int(w, b, (uint64_t)n_dims, 4);
    for (i = 0; i < n_dims; i++) bitnet__add_int(w, b, dims[i], 8);
    bitnet__add_int(w, b, type, 4);
    e->offset_at = b->n;
    bitnet__add_int(w, b, 0, 8);
    return w->err.code;
}

static bitnet_result bitnet__write(bitnet_gguf_writer *w, const void *p, size_t n) {
    if (!w->err.code && n > 0 && w->write_fn(w->ud, p, n))
        return bitnet__fail(&w->err, BITNET_ERR_IO, "write_fn could not write %llu bytes",
                            (unsigned long long)n);
    return w->err.code;
}

/* Zeros after n bytes, up to the next multiple of the alignment. */
static bitnet_result bitnet__write_padding(bitnet_gguf_writer *w, uint64_t n) {
    static const uint8_t zeros[256] = {0};
    uint64_t pad = (w->state->alignment - n % w->state->alignment) % w->state->alignment;
    for (; pad > 0 && !w->err.code; pad -= pad < sizeof zeros ? pad : sizeof zeros)
        bitnet__write(w, zeros, (size_t)(pad < sizeof zeros ? pad : sizeof zeros));
    return w->err.code;
}

BITNET_API bitnet_result bitnet_gguf_write_header(bitnet_gguf_writer *w) {
    struct bitnet__writing *s = w ? w->state : 0;
    bitnet__entry *e;
    uint8_t head[24];
    uint64_t i, n, header, at = 0;
    if (!w || w->err.code) return bitnet__writer_result(w);
    if (!s || s->total)
        return bitnet__fail(&w->err, BITNET_ERR_ARG, s ? "the header is written already"
                                                       : "the header has neither keys nor tensors");
    n = bitnet__section_count(&s->tensors);
    e = bitnet__section_entries(&s->tensors);
    for (i = 0; i < n; i++) {
        bitnet__put_int(s->tensors.header.p + e[i].offset_at, at, 8);
        at += (e[i].size + s->alignment - 1) / s->alignment * s->alignment;
    }
    header = sizeof head + s->keys.header.n + s->tensors.header.n;
    s->total = (header + s->alignment - 1) / s->alignment * s->alignment + at;
    memcpy(head, "GGUF\3\0\0", 8);
    bitnet__put_int(head + 8, n, 8);
    bitnet__put_int(head + 16, bitnet__section_count(&s->keys), 8);
    bitnet__write(w, head, sizeof head);
    bitnet__write(w, s->keys.header.p, s->keys.header.n);
    bitnet__write(w, s->tensors.header.p, s->tensors.header.n);
    bitnet__write_padding(w, header);
    s->left = n ? e[0].size : 0;
    return w->err.code;
}

/* Its entries outlive the header, so that errors can name the tensor. */
static void bitnet__tensor_due(const struct bitnet__writing *s, char name[BITNET__TEXT]) {
    const bitnet__entry *e = bitnet__section_entries(&s->tensors);
    bitnet__format(name, "no tensor");
    if (s->current >= bitnet__section_count(&s->tensors)) return;
    e += s->current;
    bitnet__format(name, "tensor '%.*s'", (int)e->name_len,
                   (const char *)s->tensors.header.p + e->name);
}

BITNET_API bitnet_result bitnet_gguf_write_data(bitnet_gguf_writer *w, const void *p, size_t n) {
    struct bitnet__writing *s = w ? w->state : 0;
    const bitnet__entry *e;
    char name[BITNET__TEXT];
    if (!w || w->err.code) return bitnet__writer_result(w);
    if (!s || !s->total)
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "data comes before the header");
    if (n > s->left || (!p && n)) {
        bitnet__tensor_due(s, name);
        return bitnet__fail(&w->err, BITNET_ERR_ARG, "%s is due, which lacks %llu bytes; %llu came",
                            name, (unsigned long long)s->left, (unsigned long long)n);
    }
    bitnet__write(w, p, n);
    s->left -= n;
    if (s->left || w->err.code || !n) return w->err.code;
    e = bitnet__section_entries(&s->tensors) + s->current++;
    bitnet__write_padding(w, e->size);
    if (s->current < bitnet__section_count(&s->tensors)) s->left = e[1].size;
    return w->err.code;
}

BITNET_API bitnet_result bitnet_gguf_write_end(bitnet_gguf_writer *w) {
    struct bitnet__writing *s = w ? w->state : 0;
    char name[BITNET__TEXT];
    if (!w) return BITNET_ERR_ARG;
    if (!w->err.code && (!s || !s->total))
        bitnet__fail(&w->err, BITNET_ERR_ARG, "no header was written");
    else if (!w->err.code && s->left) {
        bitnet__tensor_due(s, name);
        bitnet__fail(&w->err, BITNET_ERR_ARG, "%s lacks %llu bytes", name,
                     (unsigned long long)s->left);
    }
    bitnet_gguf_writer_free(w);
    return w->err.code;
}

BITNET_API void bitnet_gguf_writer_free(bitnet_gguf_writer *w) {
    if (!w || !w->state) return;
    bitnet__free(&w->allocator, w->state->keys.header.p);
    bitnet__free(&w->allocator, w->state->keys.entries.p);
    bitnet__free(&w->allocator, w->state->tensors.header.p);
    bitnet__free(&w->allocator, w->state->tensors.entries.p);
    bitnet__free(&w->allocator, w->state);
    w->state = 0;
}

BITNET_API uint64_t bitnet_gguf_writer_total(const bitnet_gguf_writer *w) {
    return w && w->state ? w->state->total : 0;
}

/* ---- ternary weights in each packing, row by row ---- */

static bitnet__linear bitnet__ternary_linear(const bitnet_ternary *t, const uint8_t *data) {
    bitnet__linear l;
    memset(&l, 0, sizeof l);
    l.w = data;
    l.type = t->type;
    l.tile = t->tile;
    l.n_file = t->n;
    l.n_in = (t->n + 127) / 128 * 128;
    l.n_out = t->rows;
    return l;
}

BITNET_API bitnet_result bitnet_ternary_check(bitnet_ternary *t, const char *name,
                                              bitnet_error *err) {
    bitnet__linear l;
    bitnet_result r;
    int64_t unit;
    if (!t || !name) return bitnet__fail(err, BITNET_ERR_ARG, "there is no matrix, or no name");
    if (t->n < 1 || t->n > BITNET__MAX_ROW || t->rows < 1)
        return bitnet__fail(err, BITNET_ERR_ARG, "tensor '%s' is %lld x %lld", name,
                            (long long)t->n, (long long)t->rows);
    switch (t->type) {
        case BITNET_TENSOR_I2_S:
            unit = t->i2s_layout == BITNET_I2S_128 ? 128 : t->i2s_layout == BITNET_I2S_64 ? 64 :
                   t->i2s_layout == BITNET_I2S_4ROW ? 4 : 0;
            if (!unit)
                return bitnet__fail(err, BITNET_ERR_ARG, "i2s_layout %lld is unknown",
                                    (long long)t->i2s_layout);
            if ((unit == 4 ? t->rows : (int64_t)t->n * t->rows) % unit)
                return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is %d x %d, which is not "
                                    "whole %s of %d (see i2s_layout)", name, (int)t->n,
                                    (int)t->rows, unit == 4 ? "groups of rows" : "blocks",
                                    (int)unit);
            return BITNET_OK;
        case BITNET_TENSOR_TL1:
        case BITNET_TENSOR_TL2:
            if (t->type == BITNET_TENSOR_TL2 && t->n < 256)
                return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s': TL2 needs rows of "
                                    "256 weights, not %d", name, (int)t->n);
            if (t->tile.BM < 0 || t->tile.BK < 0 || t->tile.bm < 0 || !t->tile.BM != !t->tile.BK ||
                (t->tile.bm && !t->tile.BM))
                return bitnet__fail(err, BITNET_ERR_ARG, "tile %lld,%lld,%lld is none: BM and BK "
                                    "must be given", (long long)t->tile.BM, (long long)t->tile.BK,
                                    (long long)t->tile.bm);
            l = bitnet__ternary_linear(t, 0);
            r = bitnet__load_tile(t->tile, name, &l, err);
            t->tile = l.tile;
            return r;
        case BITNET_TENSOR_TQ1_0:
        case BITNET_TENSOR_TQ2_0:
            if (t->n % 256 == 0) return BITNET_OK;
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' has rows of %d weights, "
                                "which are not whole blocks of 256, as %s needs them", name,
                                (int)t->n, bitnet_tensor_type_name(t->type));
        default:
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s': unsupported tensor type "
                                "%u (%s)", name, (unsigned)t->type, bitnet_tensor_type_name(t->type)
                                ? bitnet_tensor_type_name(t->type) : "unknown");
    }
}

/* Did it pass the check? And are those rows in it? */
static bitnet_result bitnet__ternary_args(const bitnet_ternary *t, const void *data, int32_t row,
                                          int32_t n_rows, const void *rows, bitnet_error *err) {
    bitnet_ternary again;
    if (!t || !data || !rows || row < 0 || n_rows < 0 || (int64_t)row + n_rows > t->rows)
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no such rows");
    again = *t;
    return bitnet_ternary_check(&again, "ternary", err);
}

/* Where the code of a weight is: byte and shift. */
static size_t bitnet__i2s_place(const bitnet_ternary *t, size_t row, size_t column, int *shift) {
    const size_t at = row * (size_t)t->n + column;
    switch (t->i2s_layout) {
        case BITNET_I2S_128:
            *shift = 6 - (int)(at / 32 % 4) * 2;
            return at / 128 * 32 + at % 32;
        case BITNET_I2S_64:
            *shift = 6 - (int)(at / 16 % 4) * 2;
            return at / 64 * 16 + at % 16;
        default:
            *shift = 6 - (int)(row % 4) * 2;
            return row / 4 * (size_t)t->n + column;
    }
}

/* The stretch of columns from column on whose codes lie in bytes side by side, at one shift. */
static int32_t bitnet__i2s_run(const bitnet_ternary *t, int32_t row, int32_t column) {
    const size_t at = (size_t)row * (size_t)t->n + (size_t)column;
    const size_t left = (size_t)(t->n - column);
    const size_t run = t->i2s_layout == BITNET_I2S_128 ? 32 - at % 32 :
                       t->i2s_layout == BITNET_I2S_64 ? 16 - at % 16 : left;
    return (int32_t)(run < left ? run : left);
}

BITNET_API bitnet_result bitnet_ternary_unpack(const bitnet_ternary *t, const uint8_t *data,
                                               int32_t row, int32_t n_rows, int8_t *out,
                                               bitnet_error *err) {
    bitnet_result result = bitnet__ternary_args(t, data, row, n_rows, out, err);
    bitnet__tl2_parts parts = {0, 0, 0, 0, 0};
    bitnet__findings found;
    bitnet__linear l;
    int32_t r, k, to, i;
    if (result != BITNET_OK) return result;
    l = bitnet__ternary_linear(t, data);
    memset(&found, 0, sizeof found);
    if (t->type == BITNET_TENSOR_TL2) parts = bitnet__tl2_split(t->n, t->rows, t->tile.BK);
    for (r = row; r < row + n_rows; r++, out += t->n)
        for (k = 0; k < t->n; k = to) {
            if (t->type == BITNET_TENSOR_I2_S) {
                int shift, bad = 0;
                const uint8_t *p = data + bitnet__i2s_place(t, (size_t)r, (size_t)k, &shift);
                to = k + bitnet__i2s_run(t, r, k);
                for (i = k; i < to; i++) {
                    const int code = p[i - k] >> shift & 3;
                    out[i] = (int8_t)(code - 1);
                    bad |= code & code >> 1;
                }
                for (i = k; bad && !found.flaw; i++)
                    if (out[i] == 2) bitnet__flaw(&found, "code 3", 3, r, i);
            } else {
                uint8_t codes[768];
                to = t->n - k < 768 ? t->n : k + 768;
                if (t->type == BITNET_TENSOR_TL1) bitnet__unpack_tl1(&l, r, k, to, codes, &found);
                else if (t->type == BITNET_TENSOR_TL2)
                    bitnet__unpack_tl2(&l, &parts, r, k, to, codes, &found);
                else {
                    to = k + 256;      /* alone, no block has another's scale */
                    found.scale_row = -1;
                    if (!bitnet__unpack_tq(&l, r, k, to, codes, &found)) found.flaw = "code 3";
                }
                for (i = k; i < to && !found.flaw; i++) out[i] = (int8_t)(codes[i - k] - 1);
            }
            if (found.flaw)
                return bitnet__fail(err, BITNET_ERR_FORMAT, "%s%s: %s, 0x%02x, at row %d, column "
                                    "%d, which is no weight", bitnet_tensor_type_name(t->type),
                                    t->tile.BM ? " with a wrong tile" : "", found.flaw,
                                    (unsigned)found.value, (int)found.row, (int)found.column);
        }
    return BITNET_OK;
}

/* Bits of a byte under mask become v's. */
static void bitnet__set_bits(uint8_t *p, uint32_t mask, uint32_t v) {
    *p = (uint8_t)((*p & ~mask) | v);
}

static void bitnet__pack_row_tl1(const bitnet_ternary *t, size_t row, const int8_t *w,
                                 uint8_t *data) {
    const size_t BM = (size_t)t->tile.BM, BK = (size_t)t->tile.BK, bm = (size_t)t->tile.bm;
    const size_t by = 256 / bm;
    size_t k;
    for (k = 0; k < (size_t)t->n; k += 4, w += 4) {
        const size_t tile = (row / BM * ((size_t)t->n / BK) + k / BK) * (BM / bm) + row % BM / bm;
        const size_t group = (tile * (BK / by) + k % BK / by) * (bm / 16) + row % bm / 16;
        data[(group * (by / 4) + k % by / 4) * 16 + row % 16] =
            (uint8_t)((3 * w[0] + w[1] + 4) << 4 | (3 * w[2] + w[3] + 4));
    }
}

/* The inverse of bitnet__unpack_tq, which draws the layout. The digits of a byte are a number below
   243 = 3^5; as a fraction it is that many 256ths of 243, rounded up. */
static void bitnet__pack_row_tq(const bitnet_ternary *t, size_t row, const int8_t *w,
                                uint8_t *data) {
    const int tq1 = t->type == BITNET_TENSOR_TQ1_0;
    const size_t size = tq1 ? 54 : 66;
    uint8_t *p = data + row * (size_t)(t->n / 256) * size;
    int32_t k;
    int i, j;
    for (k = 0; k < t->n; k += 256, w += 256, p += size)
        for (i = 0; i < (int)size - 2; i++) {
            const int stride = !tq1 || i < 32 ? 32 : i < 48 ? 16 : 4;
            const int at = !tq1 ? i / 32 * 128 + i % 32 :
                           i < 32 ? i : i < 48 ? 160 + (i - 32) : 240 + (i - 48);
            uint32_t x = 0;
            for (j = 0; j < (tq1 && i < 48 ? 5 : 4); j++) {
                const uint32_t code = (uint32_t)(w[at + stride * j] + 1);
                x = tq1 ? 3 * x + code : x | code << 2 * j;
            }
            if (tq1) x = ((i < 48 ? x : 3 * x) * 256 + 242) / 243;
            p[i] = (uint8_t)x;
        }
}

/* The inverse of bitnet__unpack_tl2, which draws the layout. */
static void bitnet__pack_row_tl2(const bitnet_ternary *t, size_t row, const int8_t *w,
                                 uint8_t *data) {
    static const uint8_t order[4] = {0, 2, 1, 3};
    const bitnet__tl2_parts parts = bitnet__tl2_split(t->n, t->rows, t->tile.BK);
    const size_t BM = (size_t)t->tile.BM, per_tile = (size_t)t->tile.BK / 24;
    const size_t tm = row / BM, mb = row % BM / 32, x = order[row % 32 / 8] * 8u + row % 8;
    const size_t k3 = (size_t)parts.k3, k_tiles = k3 / (size_t)t->tile.BK;
    size_t k, j;
    for (k = 0; k < k3; k += 24) {
        const size_t tile = (tm * k_tiles + k / 24 / per_tile) * (BM / 32) + mb;
        const size_t unit = tile * per_tile + k / 24 % per_tile;
        uint8_t *signs = data + parts.signs + unit * 32 + 2 * (row % 16);
        for (j = 0; j < 8; j++, w += 3) {
            const int v = 9 * w[0] + 3 * w[1] + w[2];
            const uint32_t n = (uint32_t)(v < 0 ? -v : v), bit = 15 - (2 * (uint32_t)j +
                                                                       (uint32_t)(row % 32 / 16));
            bitnet__set_bits(data + unit * 128 + j / 2 * 32 + x, j % 2 ? 15 : 240,
                             j % 2 ? n : n << 4);
            bitnet__set_bits(signs + bit / 8, 1u << bit % 8, (v < 0 ? 1u : 0u) << bit % 8);
        }
    }
    for (; k < (size_t)t->n; k += 4, w += 4) {
        const size_t tile = (tm * (size_t)(parts.k2 / 32) + (k - k3) / 32) * (BM / 32) + mb;
        data[parts.pairs + (tile * 8 + (k - k3) % 32 / 4) * 32 + x] =
            (uint8_t)((3 * w[0] + w[1] + 4) << 4 | (3 * w[2] + w[3] + 4));
    }
}

BITNET_API bitnet_result bitnet_ternary_pack(const bitnet_ternary *t, const int8_t *weights,
                                             int32_t row, int32_t n_rows, uint8_t *data,
                                             bitnet_error *err) {
    bitnet_result result = bitnet__ternary_args(t, data, row, n_rows, weights, err);
    const int8_t *w = weights;
    int32_t r, k, i, run;
    if (result != BITNET_OK) return result;
    for (r = row; r < row + n_rows; r++, w += t->n) {
        int bad = 0, shift;
        for (i = 0; i < t->n; i++) bad |= (w[i] + 1) >> 2 | ((w[i] + 1) & (w[i] + 1) >> 1 & 1);
        if (bad)
            return bitnet__fail(err, BITNET_ERR_ARG, "row %d holds what is none of -1, 0, 1",
                                (int)r);
        if (t->type == BITNET_TENSOR_TL1) bitnet__pack_row_tl1(t, (size_t)r, w, data);
        else if (t->type == BITNET_TENSOR_TL2) bitnet__pack_row_tl2(t, (size_t)r, w, data);
        else if (t->type != BITNET_TENSOR_I2_S) bitnet__pack_row_tq(t, (size_t)r, w, data);
        else for (k = 0; k < t->n; k += run) {
            uint8_t *p = data + bitnet__i2s_place(t, (size_t)r, (size_t)k, &shift);
            run = bitnet__i2s_run(t, r, k);
            for (i = 0; i < run; i++)
                p[i] = (uint8_t)((p[i] & ~(3 << shift)) | (w[k + i] + 1) << shift);
        }
    }
    return BITNET_OK;
}

/* Where the scale is, if not in blocks. */
static size_t bitnet__scale_at(const bitnet_ternary *t) {
    return (size_t)bitnet__tensor_size(t->type, bitnet__type_info(t->type), (uint64_t)t->n,
                                       (uint64_t)t->rows) - 32;
}

BITNET_API bitnet_result bitnet_ternary_scale(const bitnet_ternary *t, const uint8_t *data,
                                              float *out, bitnet_error *err) {
    bitnet_result result = bitnet__ternary_args(t, data, 0, 0, out, err);
    bitnet__findings found;
    bitnet__linear l;
    uint8_t codes[256];
    int32_t r, k;
    if (result != BITNET_OK) return result;
    if (!bitnet__type_info(t->type)->block) {
        *out = bitnet__load_f32(data + bitnet__scale_at(t));
        return BITNET_OK;
    }
    l = bitnet__ternary_linear(t, data);
    memset(&found, 0, sizeof found);
    found.scale_row = -1;
    for (r = 0; r < t->rows; r++)
        for (k = 0; k < t->n; k += 256) {
            if (bitnet__unpack_tq(&l, r, k, k + 256, codes, &found)) continue;
            if (found.flaw == bitnet__two_scales)
                return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "blocks of different scales: %g "
                                    "(row %d, column %d), %g (row %d, column %d)",
                                    (double)bitnet__f16_to_f32(found.scale), (int)found.scale_row,
                                    (int)found.scale_column,
                                    (double)bitnet__f16_to_f32((uint16_t)found.value), (int)r,
                                    (int)k);
            return bitnet__fail(err, BITNET_ERR_FORMAT, "%s, %u, at row %d, column %d", found.flaw,
                                (unsigned)found.value, (int)found.row, (int)found.column);
        }
    *out = found.scale_row < 0 ? 1.0f : bitnet__f16_to_f32(found.scale);
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_ternary_set_scale(const bitnet_ternary *t, float scale,
                                                  uint8_t *data, bitnet_error *err) {
    const uint16_t half = bitnet__f32_to_f16(scale);
    bitnet_result result = bitnet__ternary_args(t, data, 0, 0, data, err);
    bitnet__findings found;
    bitnet__linear l;
    uint8_t codes[256];
    size_t size;
    int32_t r, k;
    if (result != BITNET_OK) return result;
    if (!bitnet__type_info(t->type)->block) {
        bitnet__put_int(data + bitnet__scale_at(t), bitnet__float_bits(scale), 4);
        return BITNET_OK;
    }
    if (!(bitnet__f16_to_f32(half) == scale))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "its scale, %.9g, is no F16, and %s has "
                            "only those", (double)scale, bitnet_tensor_type_name(t->type));
    l = bitnet__ternary_linear(t, data);
    size = bitnet__type_info(t->type)->bytes;
    for (r = 0; r < t->rows; r++)
        for (k = 0; k < t->n; k += 256, data += size) {
            memset(&found, 0, sizeof found);
            found.scale_row = -1;      /* stays so in a block of zeros */
            bitnet__unpack_tq(&l, r, k, k + 256, codes, &found);
            bitnet__put_int(data + size - 2, found.scale_row < 0 ? 0 : half, 2);
        }
    return BITNET_OK;
}

/* ---- floats in each type ---- */

BITNET_API bitnet_result bitnet_floats_unpack(uint32_t type, const uint8_t *data, int32_t n,
                                              float *out, bitnet_error *err) {
    const bitnet__type *info = bitnet__type_info(type);
    bitnet__matrix row;
    if (!data || !out || n < 0) return bitnet__fail(err, BITNET_ERR_ARG, "there are no floats");
    switch (type) {
        case BITNET_TENSOR_F32: case BITNET_TENSOR_F16: case BITNET_TENSOR_BF16:
        case BITNET_TENSOR_Q4_0: case BITNET_TENSOR_Q8_0: case BITNET_TENSOR_Q6_K:
            if (n % info->block) break;
            row.data = data;
            row.type = type;
            row.n_cols = n;
            row.n_rows = 1;
            row.row_bytes = 0;
            bitnet__matrix_row(&row, 0, out);
            return BITNET_OK;
        default:
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "unsupported tensor type %u (%s)",
                                (unsigned)type, info ? info->name : "unknown");
    }
    return bitnet__fail(err, BITNET_ERR_ARG, "%d weights are not whole blocks of %s", (int)n,
                        info->name);
}

/* To the nearest whole number, halves away from 0, within [low, high]; NaN gives low. */
static int bitnet__nearest(float x, int low, int high) {
    if (!(x > (float)low)) return low;
    if (x >= (float)high) return high;
    return (int)(x < 0 ? x - 0.5f : x + 0.5f);
}

/* d = max|x| / 127 as an F16; q = x / d, to the nearest. */
static int bitnet__quantize_q8_0(const float *x, uint8_t *out) {
    float most = 0, d;
    int i;
    for (i = 0; i < 32; i++) most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
    bitnet__put_int(out, bitnet__f32_to_f16(most / 127.0f), 2);
    d = bitnet__load_f16(out);
    for (i = 0; i < 32; i++)
        out[2 + i] = d > 0 ? (uint8_t)bitnet__nearest(x[i] / d, -127, 127) : 0;
    return d <= 65504.0f;
}

/* The scale of 16 weights for which -32 .. 31 times it comes nearest to them, by squares: tried are
   nine grids about the one whose -32 is the largest weight, each with the best scale for what it
   rounds to. */
static float bitnet__scale_q6_k(const float *x) {
    float most = 0, best = 0, scale = 0;
    int i, k;
    for (i = 0; i < 16; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        if (a > (most < 0 ? -most : most)) most = x[i];
    }
    if (most == 0) return 0;
    for (k = -4; k <= 4; k++) {
        const float f = -(32.0f + 0.25f * (float)k) / most;
        float xq = 0, qq = 0;
        for (i = 0; i < 16; i++) {
            const float q = (float)bitnet__nearest(x[i] * f, -32, 31);
            xq += x[i] * q;
            qq += q * q;
        }
        if (qq > 0 && xq * xq > best * qq) {
            best = xq * xq / qq;
            scale = xq / qq;
        }
    }
    return scale;
}

/* Layout: see the blocks at >>model. The largest of the 16 scales becomes -128. */
static int bitnet__quantize_q6_k(const float *x, uint8_t *out) {
    float scales[16], most = 0, d, f;
    uint8_t q[256];
    int i, j, half;
    for (i = 0; i < 16; i++) {
        scales[i] = bitnet__scale_q6_k(x + 16 * i);
        if ((scales[i] < 0 ? -scales[i] : scales[i]) > (most < 0 ? -most : most)) most = scales[i];
    }
    memset(out, 0, 210);
    bitnet__put_int(out + 208, bitnet__f32_to_f16(most == 0 ? 0 : most / -128.0f), 2);
    d = bitnet__load_f16(out + 208);
    for (i = 0; i < 16; i++) {
        const int s = d < 0 || d > 0 ? bitnet__nearest(scales[i] / d, -128, 127) : 0;
        out[192 + i] = (uint8_t)s;
        f = d * (float)s;
        for (j = 16 * i; j < 16 * i + 16; j++)
            q[j] = (uint8_t)((f < 0 || f > 0 ? bitnet__nearest(x[j] / f, -32, 31) : 0) + 32);
    }
    for (half = 0; half < 2; half++)
        for (j = 0; j < 32; j++) {
            const uint8_t *p = q + 128 * half + j;
            out[64 * half + j] = (uint8_t)((p[0] & 15) | (p[64] & 15) << 4);
            out[64 * half + 32 + j] = (uint8_t)((p[32] & 15) | (p[96] & 15) << 4);
            out[128 + 32 * half + j] =
                (uint8_t)(p[0] >> 4 | p[32] >> 4 << 2 | p[64] >> 4 << 4 | p[96] >> 4 << 6);
        }
    return d >= -65504.0f && d <= 65504.0f;
}

BITNET_API bitnet_result bitnet_floats_pack(uint32_t type, const float *x, int32_t n, uint8_t *out,
                                            bitnet_error *err) {
    const bitnet__type *info = bitnet__type_info(type);
    int32_t i;
    int ok = 1;
    if (!x || !out || n < 0) return bitnet__fail(err, BITNET_ERR_ARG, "there are no floats");
    if (type != BITNET_TENSOR_F32 && type != BITNET_TENSOR_F16 && type != BITNET_TENSOR_BF16 &&
        type != BITNET_TENSOR_Q8_0 && type != BITNET_TENSOR_Q6_K)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "floats cannot become type %u (%s) here",
                            (unsigned)type, info ? info->name : "unknown");
    if (n % info->block)
        return bitnet__fail(err, BITNET_ERR_ARG, "%d weights are not whole blocks of %s", (int)n,
                            info->name);
    for (i = 0; i < n && ok; i++) ok = x[i] - x[i] == 0.0f;
    for (i = 0; i < n && ok; i += info->block, x += info->block, out += info->bytes) {
        const uint32_t bits = bitnet__float_bits(*x);
        switch (type) {
            case BITNET_TENSOR_F32: bitnet__put_int(out, bits, 4); break;
            case BITNET_TENSOR_BF16:  /* to nearest, ties to even */
                bitnet__put_int(out, (bits + 0x7fff + (bits >> 16 & 1)) >> 16, 2);
                ok = (out[1] & 0x7f) != 0x7f || out[0] < 0x80;
                break;
            case BITNET_TENSOR_F16:
                bitnet__put_int(out, bitnet__f32_to_f16(*x), 2);
                ok = *x < 65520.0f && *x > -65520.0f;
                break;
            case BITNET_TENSOR_Q8_0: ok = bitnet__quantize_q8_0(x, out); break;
            default: ok = bitnet__quantize_q6_k(x, out); break;
        }
    }
    if (!ok)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "a weight is a NaN or too large for %s",
                            info->name);
    return BITNET_OK;
}

/* =============================================================================================
   >>api  what is left: names of things
   ============================================================================================= */

BITNET_API const char *bitnet_version(void) { return BITNET_VERSION; }

BITNET_API const char *bitnet_result_text(bitnet_result r) {
    switch (r) {
#define BITNET_X(name, value, text) case name: return text;
        BITNET_RESULTS(BITNET_X)
#undef BITNET_X
        default: return "unknown result";
    }
}

#ifdef __cplusplus
}
#endif

#ifdef BITNET_STATIC
  #if defined(__GNUC__)
    #pragma GCC diagnostic pop
  #endif
#endif
#if defined(__clang__)
  #pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
  #pragma GCC pop_options
#elif defined(_MSC_VER) && (_MSC_VER < 1930 || defined(_M_FP_CONTRACT))   /* as it was before */
  #pragma fp_contract(on)
#endif
#undef BITNET__64
#undef BITNET__ARCH_ARM
#undef BITNET__ARCH_WASM
#undef BITNET__ARCH_X86
#undef BITNET__BOTH
#undef BITNET__CLOEXEC
#undef BITNET__CPU_QUOTA
#undef BITNET__DEFINE_DOTROWS
#undef BITNET__DEFINE_MIXROWS
#undef BITNET__FILES_POSIX
#undef BITNET__FILES_WIN32
#undef BITNET__HAVE_SIMD
#undef BITNET__KERNEL_ABI
#undef BITNET__KERNEL_HEADER
#undef BITNET__KERNEL_TABLES
#undef BITNET__KNOWN_COMPILER
#undef BITNET__LANES
#undef BITNET__LEAN
#undef BITNET__MAX_ALIGNMENT
#undef BITNET__MAX_CONTEXT
#undef BITNET__MAX_SCREENED
#undef BITNET__MAX_HEADS
#undef BITNET__MAX_KEYS
#undef BITNET__MAX_KEY_NAME
#undef BITNET__MAX_LOOKUP
#undef BITNET__MAX_NESTING
#undef BITNET__MAX_READ
#undef BITNET__MAX_ROW
#undef BITNET__MAX_GROUP
#undef BITNET__MAX_TENSORS
#undef BITNET__MAX_TENSOR_NAME
#undef BITNET__MAX_THREADS
#undef BITNET__MAX_PACKERS
#undef BITNET__MMAP_POSIX
#undef BITNET__MMAP_WIN32
#undef BITNET__NOMINMAX
#undef BITNET__NO_PAIR
#undef BITNET__NO_SLOT
#undef BITNET__OWN_THREADS
#undef BITNET__PATH
#undef BITNET__ROLL
#undef BITNET__SAME
#undef BITNET__SCALAR_ENTRIES
#undef BITNET__STOP_ENDS
#undef BITNET__STOP_HERE
#undef BITNET__STOP_NODE
#undef BITNET__STOP_SET
#undef BITNET__SLOW
#undef BITNET__TEXT
#undef BITNET__THREADS_POSIX
#undef BITNET__THREADS_WIN32
#undef BITNET__THREAD_RETURN
#endif /* BITNET__IMPLEMENTED */
#endif /* BITNET_IMPLEMENTATION */

/* MIT License

Copyright (c) 2026 the bitnet.h authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
