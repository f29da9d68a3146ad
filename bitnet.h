/* bitnet.h - v0.3.0 - runs BitNet b1.58 (1.58-bit, ternary) language models on any CPU; MIT licence

   In *one* C or C++ file write
       #define BITNET_IMPLEMENTATION
       #include "bitnet.h"
   and include it without the macro everywhere else. Keep bitnet_kernels_x86.h, _arm.h and _wasm.h
   beside this file: they hold the fast kernels, and the right one is included automatically.
   Compile with -O2 even in debug builds (@setup): without -O clang's code is up to 80 times slower.
   Link with -lpthread; there is nothing else to link. For CMake, Meson and pkg-config see
   packaging/README.md.

   WHAT IT DOES NOT DO
   - It runs only models with ternary weights, of the families under FORMATS. It refuses the rest,
     with an error that names what it found: other architectures, tensor types and pre-tokenizers;
     biases, shared experts and all other tensors that it would not use; keys of architecture and
     tokenizer that it does not know, or that ask for something else than it computes; weights
     folded with a Hadamard matrix (Bonsai 2); hybrid networks (qwen35); GGUF v1, big-endian files,
     and a part of a split file.
   - It refuses files over 16 GiB (bitnet_model_params.max_bytes allows them), and on 32-bit
     machines files larger than the address space.
   - It chats only with templates that it knows or that you give it, and cannot tell how a file
     packs its weights: most files of another packing load, and the model writes noise (@formats).
   - It uses no GPU and does not train. examples/convert turns Hugging Face folders into GGUF, and
     converts between all packings. bitnet_grammar.h keeps a text to a grammar or a JSON schema.
   - It does not print, exit, abort, read the environment or use the network.
   - It does not keep structs the same between minor versions: compile with the header you link.

   THE SMALLEST PROGRAM (the tests extract, build and run it)

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
           gen.text = bitnet_text_of(argc > 2 ? argv[2] : "Once upon a time");
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

   In C++ the library needs C++11. A parameter struct that is all zero means defaults: clear it with
   memset, as above, or write {0} in C and {} in C++.

   STEP BY STEP
   1. Load a model. bitnet_model_load_file checks a GGUF file and maps it; bitnet_model_load_memory
   and _io take it from memory or a callback. A model does not change after loading, so any number
   of contexts and threads may share it.

   2. Create a context: the KV cache, the scratch memory and the threads. It holds one text or chat,
   or with n_seqs many (SEQUENCES). Model and context may be freed in any order.

   3. Write. bitnet_generate appends a text, tokens or messages to the context, then samples until
   something ends the text, and passes it to text_fn. It does not evaluate the last token that it
   samples, because nothing may follow. That is the pending token: text_fn has received it, and the
   next call evaluates it first; do not pass it again. So two calls of 20 tokens write what one of
   40 writes, except that an incomplete character at the end of the first becomes U+FFFD.

   CHAT
   Pass messages instead of text. bitnet_generate writes them in the model's chat template, opens
   the reply, and stops where the model ends it. The context remembers the conversation, so each
   call takes only the new messages. A complete chat (gen has a text_fn and is otherwise zero):

       static void chat(bitnet_ctx *ctx, bitnet_generate_params *gen) {
           char line[4096];
           bitnet_message message;
           bitnet_error err;
           memset(&message, 0, sizeof message);
           message.role = bitnet_text_of("user");
           message.content.data = line;
           gen->messages = &message;
           gen->n_messages = 1;
           while (fgets(line, sizeof line, stdin)) {
               message.content.size = strcspn(line, "\r\n");
               if (bitnet_generate(ctx, gen, NULL, &err) != BITNET_OK) printf("(%s)", err.text);
               printf("\n");
           }
       }

   For a system message pass an array of two messages, system and user, in the first call. BOS is
   added only to an empty context. If the last reply was cut by max_tokens, a stop string or
   text_fn, the library inserts its end-of-turn token. A message that does not fit, fails or is
   cancelled leaves the context as it was. When that is full, a reply ends with BITNET_STOP_LENGTH,
   and the next message is BITNET_ERR_FULL. To go on, rewind to 0, or to the end of the system
   message, and pass again the messages worth keeping.

   The file's template is a program in Jinja, which the library compares with the templates that it
   knows (@chat): those of BitNet 2B-4T, Llama 3, Qwen 2.5 and 3, ChatML and Falcon. For a file
   without one, or with another, chat is BITNET_ERR_UNSUPPORTED, and the error says where the two
   differ. Then give one of your own: bitnet_chat_template. The text of a message never becomes a
   special token, but for <think> and <tool_call> in the assistant's, which the model has written.

   Some models think before they reply: bitnet_chat_params.thinking leaves that to the model, turns
   it off, or opens it. bitnet_reply_next divides what text_fn gets. Tools: name the functions in
   bitnet_chat_params.tools when a chat begins. A call comes as
   BITNET_REPLY_TOOL_CALL, {"name": "...", "arguments": {...}}; answer it with a message of the role
   "tool". In messages of earlier replies a call stands as the model wrote it, with its tags.

   YOUR OWN LOOP
   Apart from stop strings and prompt lookup, bitnet_generate uses only public functions. To choose
   tokens yourself, call them directly:

       static bitnet_result write_on(const bitnet_model *model, bitnet_ctx *ctx, const char *text) {
           bitnet_token tokens[1000];
           char piece[1000];
           bitnet_sampler sampler;
           bitnet_detok detok;
           bitnet_result r;
           int n = bitnet_tokenize(model, text, strlen(text), BITNET_ADD_BOS, tokens, 1000);
           if (n > 1000) return BITNET_ERR_LIMIT;
           if (n < 0) return (bitnet_result)n;
           memset(&sampler, 0, sizeof sampler);  // greedy; or set temperature, top_k, rng ...
           memset(&detok, 0, sizeof detok);
           for (r = bitnet_eval(ctx, 0, tokens, n, 1, NULL); r == BITNET_OK;
                r = bitnet_eval(ctx, 0, tokens, 1, 1, NULL)) {
               tokens[0] = bitnet_sample(ctx, -1, &sampler, NULL);
               if (bitnet_token_is_end(model, tokens[0])) break;
               n = bitnet_detok_push(model, &detok, tokens[0], piece, sizeof piece);
               if (n > 0) fwrite(piece, 1, (size_t)n, stdout);
           }
           n = bitnet_detok_push(model, &detok, -1, piece, sizeof piece);
           if (n > 0) fwrite(piece, 1, (size_t)n, stdout);
           return r;
       }

   BITNET_ADD_BOS is only for the beginning. bitnet_detok_push holds back the bytes of an incomplete
   character; 1000 bytes suffice for every known vocabulary. For a sampler of your own read
   bitnet_logits, or let a mask_fn say which tokens may follow. bitnet_seq_rewind drops tokens.

   SEQUENCES (@context, @generate)
   A context can hold many conversations: with n_seqs = S they are the sequences 0 .. S - 1, each
   with its own tokens and pending token. A program with one conversation writes 0. One pass over
   the weights serves all: with AVX-512 VNNI a token for each of four costs 1.2 to 2 times as much
   as for one, for each of eight 1.8 to 4 times (bench --sequences 1,4,8). The logits of a sequence
   are the same bits whatever is evaluated beside it.

   To write several texts at once, begin a generation for each (bitnet_gen_begin), call
   bitnet_gen_next again and again, and end each: @generate has a loop. For one of your own,
   bitnet_eval_many evaluates any mix of inputs, and bitnet_sample samples from a row of its logits.

   bitnet_seq_copy lets a sequence begin as another one does, and shares its memory. bitnet_seq_sync
   gives a sequence new tokens and evaluates only what differs; bitnet_seq_remove takes some out of
   its middle, as when old turns must go (@state). bitnet_seq_save_io and _load_io keep it in a
   file, _save_memory and _load_memory in memory; on any machine it goes on with the same bits.

   HOST LOOPS (each has a program in examples/hosts)
   With BitNet 2B and two threads a call takes about 10 ms for each token of a prompt, and 20 ms for
   each that is written. What goes on meanwhile can be done so:
   - thread.c: a thread of its own calls bitnet_generate, and hands text over under a mutex. The
     text's cancel_fn, asked every 20 ms, ends it. Join the thread, then free the context.
   - events.c: a loop that is idle calls bitnet_gen_next, and pause_fn (bitnet_hooks) looks for
     events. Nonzero pauses the pass, behind a layer or a part of the head: the call returns
     BITNET_OK, its pieces say `paused`, and the next one with the same generations goes on.
   - game.c: pause_fn looks at the clock, so that frames of 16 ms can spare 8. A layer takes 0.7 ms
     for one token, 3 ms for an n_batch of 8; larger ones do not read a prompt faster.
   - server.c: users are sequences that share each pass, and come and go between two. Of a prompt, a
     pass reads n_batch of bitnet_generate_params, 32 beside other texts.
   - plugin.c: with BITNET_STATIC, plugins that have copies of the library do not meet.

   EMBEDDINGS (@embed)
   Microsoft's ternary embedding models (qwen3 and gemma3) write no text: bitnet_embed turns a text
   into a vector of dim floats, and texts of similar meaning have vectors of similar direction.
   @embed has an example, and says what queries want in front.

   FORMATS (@formats, @gguf, @tokenizer)
       Models      GGUF v2 and v3, little-endian, of these architectures (general.architecture):
                     bitnet-b1.58, bitnet-25   BitNet b1.58-2B-4T, the official file as it is
                     bitnet                    1bitLLM's bitnet_b1_58-large and -3B; BitNet
                                               b1.58-2B-4T by llama.cpp's converters
                     llama                     Llama3-8B-1.58, Falcon3-1.58, Falcon-E; BitCPM 1B
                     minicpm, maple            BitCPM-CANN 0.5B, 8B; Maple-preview 20B-A1B
                     qwen3                     Ternary and 1-bit Bonsai 1.7B, 4B, 8B
                     qwen3, gemma3             Microsoft's text embeddings, 0.6B and 270M
       Weights     linear layers in I2_S (all three packings), TL1, TL2, TL2_R16, or in blocks:
                   TQ1_0, TQ2_0, Q1_0, Q2_0, PQ2_0. Embedding and head in such blocks, in F32, F16,
                   BF16, Q8_0, Q2_K to Q6_K, Q5_0 or Q4_0; norms in F32, F16 or BF16
       Tokenizers  byte-level BPE with the pre-tokenizers llama-bpe (also called llama3, llama-v3,
                   falcon3), falcon_e and qwen2 (with NFC); SentencePiece BPE (model: llama)
       RoPE        without scaling, linear, YaRN, longrope, or a factor per pair (rope_freqs.weight)

   THREADS (@threads)
   A context may be used by only one thread at a time. While another thread, or the call whose
   callback is running, uses it, further calls fail at once with BITNET_ERR_BUSY; with
   BITNET_NO_THREADS, calls from other threads are not detected. Functions that take a const
   bitnet_ctx are not refused: do not call them from another thread meanwhile, that is a data race.
   Callbacks may call them; those of bitnet_generate may call bitnet_logits, too. Callbacks must
   return: after a longjmp or an exception out of one, the context stays in use.

   Loading uses up to 16 threads, which end before the call returns; it calls hooks and the
   allocator on the caller's thread only. A context works with n_threads threads, and gives the same
   bits for any number. @threads says how many are the default, and what signals and fork() do.

   MEMORY (@model, @context)
   BitNet b1.58-2B-4T, in MB, with one thread and default parameters (another thread adds about 1):

       the mapped file                1188    (weights 521, in TL2_R16 434; embedding and head 657)
       tokenizer and norms              10    once per model
       copy of the head                248    once per model, unless no context uses it (@head)
       a context with n_ctx            512    2048    4096
           KV cache                     39     157     315     77 KB per position
           scratch                      60      62      64     6 to 11 with n_batch = 32
           total                        99     219     379

   A context with one sequence takes bitnet_ctx_bytes when it is created, and nothing later. With
   BITNET_KV_I8 the cache is half as large, and long texts are faster; @context has what it changes.
   bitnet_eval, bitnet_logits and bitnet_sample allocate nothing, but for the pages of further
   sequences. Tokenizing, chat and bitnet_generate allocate, and free before they return.

   Do not change a file while it is mapped: writing to it changes the weights, and truncating it
   kills the process with SIGBUS. For a file that others may touch, set bitnet_model_params.copy.

   ERRORS
   Functions that can fail return BITNET_OK or a negative bitnet_result, and fill in a bitnet_error,
   whose pointer may be 0, with a text that says what is wrong, where, and if possible what to do.
   A function that creates something sets *out to 0 on failure. Functions that return a length
   return a negative bitnet_result instead. Unless its comment says otherwise, a call that fails
   changes nothing and can be repeated; but an array that it was to fill may hold anything.

   No function crashes on a null pointer, or on a number out of the range in its comment. Unless the
   comment allows it, a function that returns a bitnet_result or a length returns BITNET_ERR_ARG,
   one that returns a pointer or a count 0, one that returns a token a negative number, and one that
   returns nothing does nothing. Sizes and lifetimes of what pointers point to are trusted.

   SPEED (@kernels, @head, @generate)
   The best kernel table that the CPU and the system support is chosen at run time, without any -m
   flag; in WebAssembly when compiling. Greedy and top-k sampling compute exactly only the logits
   that they need, and find them with a copy of the output head in few bits: the token is the same.
   With prompt lookup (bitnet_generate_params.lookup, 3 to 8) the text is the same, too, and comes
   sooner where it repeats names, quotations or code.

   DETERMINISM (@kernels, @math)
   The logits are the same bits for every kernel table, thread count, batch split and machine. The
   scalar C of this file defines them. In return the compiler must follow rules: no -ffast-math
   (refused), no contraction of a*b+c into an FMA (switched off here by pragma; if your compiler
   ignores that, use -ffp-contract=off; MSVC: /fp:precise), -msse2 -mfpmath=sse on 32-bit x86, and
   -fexcess-precision=fast on s390x, where gcc -std=c99 computes in double. bitnet_selftest names
   what a build breaks. examples/crosscheck finds the first operation where two machines differ.

   SECURITY
   Files may be hostile. No accepted file causes an access out of bounds. A refusal takes time
   bounded by the size of the file, and at most four times its size plus 4 KB of memory, and leaves
   nothing allocated. Values that become infinite or NaN end the evaluation with an error.

   Prompts may be hostile, and may hold any bytes. The text of a control token becomes that token
   only with BITNET_PARSE_SPECIAL, and never in messages or bitnet_generate_params.text. The model's
   output is valid UTF-8, but may hold control characters or markup: see bitnet_clean_text.

   The library opens only the files that it is given and, on Linux, those that say how many CPUs it
   may use. The calling program is trusted. Not promised: that a model tells the truth, keeps its
   prompt secret or obeys, or that timing leaks nothing. README.md says how to report a fault.

   BUILD SWITCHES (define before the include that has BITNET_IMPLEMENTATION)
       BITNET_STATIC          makes every function static: the library lives in one file of yours
       BITNET_API             precedes every public function; default extern
       BITNET_NO_STDIO        no functions that open files; no <stdio.h> except for vsnprintf
       BITNET_NO_MMAP         reads files instead of mapping them
       BITNET_NO_THREADS      starts no threads; bitnet_ctx_params.parallel_fn still works
       BITNET_NO_SIMD         plain C only, without the note that a kernel header is missing
       BITNET_NO_AVX2, BITNET_NO_AVXVNNI, BITNET_NO_AVX512, BITNET_NO_AMX, BITNET_NO_NEON,
       BITNET_NO_DOTPROD, BITNET_NO_I8MM, BITNET_NO_RELAXED
                              leaves out a kernel table. NO_AVX2 also leaves out avxvnni, NO_AVX512
                              amx, and NO_DOTPROD neon-i8mm, which build on those tables
       BITNET_NO_TL2          leaves out the tables named -tl2 (28 KB); TL2_R16 is repacked as I2_S
       BITNET_NO_GROUPS       leaves out linear layers with a scale per block (65 KB): Q1_0, Q2_0,
                              PQ2_0, and TQ1_0 and TQ2_0 with more than one scale in a matrix
       BITNET_NO_KV_I8        leaves out BITNET_KV_I8 (20 KB)
       BITNET_NO_OPTIMIZE     without -O gcc does not optimise the library: to debug that itself
       BITNET_REQUIRE_SIMD    #error if there is no kernel header beside this file
       BITNET_VSNPRINTF       formats error texts; default vsnprintf; stbsp_vsnprintf works

   COMPILERS AND MACHINES
   Any compiler of C99 or C++11 works. gcc, clang and MSVC build threads and kernels; others, such
   as tcc, plain C without threads. Tested are gcc, clang and tcc on Linux (x86), browsers, Node,
   and in emulators ARM, RISC-V, s390x (big-endian) and Windows. Programs for macOS and for Windows
   on ARM were linked but not run, MSVC has not compiled the library, and no ARM kernel has run on
   real hardware. Of models, only small trained ones and random ones of published shapes have run.

   CONTENTS (search for the tag; in brackets: sections below, of which it declares what it uses)
   --------
    tag        what it owns                         leans on
    @api       types and functions for programs     -
    @setup     compilers, systems, switches         -
    @util      memory, UTF-8, error texts, a heap   -
    @math      exp, log, sqrt, sin, cos             -
    @threads   a team of worker threads             -
    @kernels   the scalar kernels; CPU features     math
    @tokenizer text -> tokens -> text               (model) (unicode)
    @jinja     a bounded reader of chat templates   -
    @chat      messages -> tokens; reply -> parts   tokenizer jinja (model)
    @formats   each weight type: sizes, unpacking   kernels
    @gguf      a file -> metadata, tensors          formats
    @model     families; what a model consists of   threads tokenizer formats gguf (head)
    @weights   layer kinds; tensors -> matrices     threads kernels formats gguf model (forward)
    @load      metadata, tokenizer, a whole model   all above (head)
    @context   cache types, sequences, their pages  all above (forward) (head)
    @forward   tokens -> hidden states: the layers  math threads kernels formats model context
    @eval      tokens appended to sequences         context forward
    @state     sequences saved and loaded           gguf model context forward
    @head      hidden -> logits; masks; top k       all above
    @sampler   logits -> next token                 math context head
    @generate  prompt -> text: the loop over all    threads tokenizer chat context eval sampler
    @embed     texts -> vectors                     math tokenizer context forward eval
    @unicode   character classes, NFC               tokenizer
    @selftest  a kernel table against the scalar    math kernels formats load context sampler
*/
#ifndef BITNET_H
#define BITNET_H

/* =============================================================================================
   @api  types and functions for programs
   "0" in a comment about a pointer means a null pointer. Unless a comment says so, pointers may not
   be 0, and what they point to is only used during the call. THREADS says which calls may run at
   the same time, ERRORS what a call returns if its arguments are wrong.
   ============================================================================================= */

#include <stddef.h>
#include <stdint.h>

#define BITNET_VERSION "0.3.0"
#define BITNET_VERSION_NUMBER 300              /* major * 10000 + minor * 100 + patch */

/* The version is in the symbol of every function. So two copies of the library, of different
   versions, can be in one process, and a program that was compiled with another version's header
   does not link, instead of misreading structs. A foreign-function interface uses these names. A
   plugin should keep its copy to itself: BITNET_STATIC, or a BITNET_API that hides it. */
#define bitnet_version bitnet_version_v0_3
#define bitnet_version_number bitnet_version_number_v0_3
#define bitnet_result_text bitnet_result_text_v0_3
#define bitnet_text_of bitnet_text_of_v0_3
#define bitnet_clean_text bitnet_clean_text_v0_3
#define bitnet_utf8_decode bitnet_utf8_decode_v0_3
#define bitnet_model_load_file bitnet_model_load_file_v0_3
#define bitnet_model_load_memory bitnet_model_load_memory_v0_3
#define bitnet_model_load_io bitnet_model_load_io_v0_3
#define bitnet_model_free bitnet_model_free_v0_3
#define bitnet_model_get_info bitnet_model_get_info_v0_3
#define bitnet_model_get_meta bitnet_model_get_meta_v0_3
#define bitnet_model_meta_key bitnet_model_meta_key_v0_3
#define bitnet_tokenize bitnet_tokenize_v0_3
#define bitnet_detokenize bitnet_detokenize_v0_3
#define bitnet_detok_push bitnet_detok_push_v0_3
#define bitnet_token_find bitnet_token_find_v0_3
#define bitnet_token_text bitnet_token_text_v0_3
#define bitnet_token_is_special bitnet_token_is_special_v0_3
#define bitnet_token_is_end bitnet_token_is_end_v0_3
#define bitnet_model_chat_template bitnet_model_chat_template_v0_3
#define bitnet_chat_tokenize bitnet_chat_tokenize_v0_3
#define bitnet_reply_begin bitnet_reply_begin_v0_3
#define bitnet_reply_next bitnet_reply_next_v0_3
#define bitnet_ctx_bytes bitnet_ctx_bytes_v0_3
#define bitnet_ctx_create bitnet_ctx_create_v0_3
#define bitnet_ctx_free bitnet_ctx_free_v0_3
#define bitnet_ctx_model bitnet_ctx_model_v0_3
#define bitnet_ctx_capacity bitnet_ctx_capacity_v0_3
#define bitnet_ctx_threads bitnet_ctx_threads_v0_3
#define bitnet_ctx_set_threads bitnet_ctx_set_threads_v0_3
#define bitnet_ctx_set_hooks bitnet_ctx_set_hooks_v0_3
#define bitnet_seq_length bitnet_seq_length_v0_3
#define bitnet_seq_tokens bitnet_seq_tokens_v0_3
#define bitnet_seq_pending bitnet_seq_pending_v0_3
#define bitnet_seq_figures bitnet_seq_figures_v0_3
#define bitnet_seq_rewind bitnet_seq_rewind_v0_3
#define bitnet_seq_copy bitnet_seq_copy_v0_3
#define bitnet_seq_again bitnet_seq_again_v0_3
#define bitnet_seq_sync bitnet_seq_sync_v0_3
#define bitnet_seq_remove bitnet_seq_remove_v0_3
#define bitnet_seq_state_bytes bitnet_seq_state_bytes_v0_3
#define bitnet_seq_save_io bitnet_seq_save_io_v0_3
#define bitnet_seq_save_memory bitnet_seq_save_memory_v0_3
#define bitnet_seq_load_io bitnet_seq_load_io_v0_3
#define bitnet_seq_load_memory bitnet_seq_load_memory_v0_3
#define bitnet_eval bitnet_eval_v0_3
#define bitnet_eval_many bitnet_eval_many_v0_3
#define bitnet_logits bitnet_logits_v0_3
#define bitnet_hidden bitnet_hidden_v0_3
#define bitnet_sample bitnet_sample_v0_3
#define bitnet_sample_logits bitnet_sample_logits_v0_3
#define bitnet_logprobs bitnet_logprobs_v0_3
#define bitnet_generate bitnet_generate_v0_3
#define bitnet_gen_begin bitnet_gen_begin_v0_3
#define bitnet_gen_next bitnet_gen_next_v0_3
#define bitnet_gen_piece bitnet_gen_piece_v0_3
#define bitnet_gen_end bitnet_gen_end_v0_3
#define bitnet_embed bitnet_embed_v0_3
#define bitnet_kernels_count bitnet_kernels_count_v0_3
#define bitnet_kernels_get bitnet_kernels_get_v0_3
#define bitnet_kernels_find bitnet_kernels_find_v0_3
#define bitnet_kernels_name bitnet_kernels_name_v0_3
#define bitnet_kernels_usable bitnet_kernels_usable_v0_3
#define bitnet_kernels_default bitnet_kernels_default_v0_3
#define bitnet_selftest bitnet_selftest_v0_3
#define bitnet_ctx_exact_logits bitnet_ctx_exact_logits_v0_3
#define bitnet_ctx_head_bytes bitnet_ctx_head_bytes_v0_3
#define bitnet_gguf_open_file bitnet_gguf_open_file_v0_3
#define bitnet_gguf_open_memory bitnet_gguf_open_memory_v0_3
#define bitnet_gguf_open_io bitnet_gguf_open_io_v0_3
#define bitnet_gguf_close bitnet_gguf_close_v0_3
#define bitnet_gguf_get_key bitnet_gguf_get_key_v0_3
#define bitnet_gguf_find_key bitnet_gguf_find_key_v0_3
#define bitnet_gguf_get_tensor bitnet_gguf_get_tensor_v0_3
#define bitnet_gguf_find_tensor bitnet_gguf_find_tensor_v0_3
#define bitnet_gguf_next bitnet_gguf_next_v0_3
#define bitnet_gguf_text bitnet_gguf_text_v0_3
#define bitnet_gguf_read bitnet_gguf_read_v0_3
#define bitnet_tensor_type_name bitnet_tensor_type_name_v0_3
#define bitnet_tensor_size bitnet_tensor_size_v0_3
#define bitnet_ternary_check bitnet_ternary_check_v0_3
#define bitnet_ternary_unpack bitnet_ternary_unpack_v0_3
#define bitnet_ternary_scale bitnet_ternary_scale_v0_3
#define bitnet_floats_unpack bitnet_floats_unpack_v0_3

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

/* Results and their texts. This list makes the enum and bitnet_result_text. */
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
    X(BITNET_ERR_BUSY, -11, "context is in use") \
    X(BITNET_ERR_NOT_FOUND, -12, "there is no such thing")

typedef enum bitnet_result {
#define BITNET_X(name, value, text) name = value,
    BITNET_RESULTS(BITNET_X)
#undef BITNET_X
    BITNET_RESULT_FORCE_INT = 0x7fffffff
} bitnet_result;

/* Structs of parameters and results end with reserved words. In parameters they must be 0, or the
   call is BITNET_ERR_ARG: clear a struct before you fill it in, and set fields by their names. A
   later version may use these words, so a program that does is told by an older library that it
   does not know what is asked. In results they are 0. Small values (a bitnet_text, a tile, a bias)
   have none and stay as they are. */

/* Filled in only on failure. text is one line of clean UTF-8, NUL-terminated. */
typedef struct bitnet_error {
    bitnet_result code;
    char text[200];
    int32_t reserved[13];
} bitnet_error;

/* A text of size bytes, without a NUL at the end; a NUL in it is a character like any other. data
   0: there is none, which is not the same as an empty one. Texts are UTF-8. */
typedef struct bitnet_text { const char *data; size_t size; } bitnet_text;

/* Initialises a bitnet_text with a string literal. */
#define BITNET_TEXT(literal) {literal, sizeof(literal) - 1}

typedef int32_t bitnet_token;                 /* 0 .. n_vocab - 1; -1: none */
typedef struct bitnet_model bitnet_model;     /* weights and tokenizer; immutable; any thread */
typedef struct bitnet_ctx bitnet_ctx;         /* KV cache, scratch, logits; one thread at a time */
typedef struct bitnet_kernels bitnet_kernels; /* inner loops for one CPU feature set; static */

/* Callbacks. Each gets as ud the pointer that stands beside it; what it must do is said there. */
typedef void *(*bitnet_alloc_fn)(void *ud, size_t size, size_t align);
typedef void (*bitnet_free_fn)(void *ud, void *p, size_t size);
typedef bitnet_result (*bitnet_read_fn)(void *ud, uint64_t offset, void *dst, size_t n);
typedef bitnet_result (*bitnet_write_fn)(void *ud, const void *data, size_t n);
typedef int (*bitnet_progress_fn)(void *ud, uint64_t done, uint64_t total);
typedef int (*bitnet_cancel_fn)(void *ud);
typedef int (*bitnet_pause_fn)(void *ud);
typedef void (*bitnet_step_fn)(void *ud, const char *op, int thread, int begin);
typedef void (*bitnet_layer_fn)(void *ud, int layer, const float *x, int n_tokens);
typedef void (*bitnet_job)(void *arg, int i);
typedef void (*bitnet_parallel_fn)(void *ud, int jobs, bitnet_job job, void *arg);
typedef void (*bitnet_rewrite_fn)(void *ud, float *logits, int32_t n_vocab);
typedef void (*bitnet_mask_fn)(void *ud, uint32_t *allowed);
typedef void (*bitnet_chosen_fn)(void *ud, bitnet_token t);
typedef int (*bitnet_text_fn)(void *ud, const char *text, size_t n, bitnet_token t);

/* All zero: malloc and free. Otherwise both functions are needed, and must be as thread-safe as
   malloc if several threads share a model. align is a power of two, at most 64; free_fn gets the
   size that alloc_fn got. */
typedef struct bitnet_allocator {
    bitnet_alloc_fn alloc_fn;
    bitnet_free_fn free_fn;
    void *ud;                    /* of both */
    uint64_t reserved[2];
} bitnet_allocator;

/* Where loading reads from, and saving writes to. Loading: random access to size bytes; read_fn
   copies n bytes at offset to dst, never past size. Saving: write_fn gets the bytes in order. If
   one returns anything but BITNET_OK, the call that needed it fails with that code. */
typedef struct bitnet_io {
    uint64_t size;               /* to load: of the file */
    bitnet_read_fn read_fn;      /* to load */
    bitnet_write_fn write_fn;    /* to save */
    void *ud;                    /* of both */
    uint64_t reserved[2];
} bitnet_io;

typedef enum bitnet_log_level { BITNET_LOG_INFO = 0, BITNET_LOG_WARNING = 1 } bitnet_log_level;
typedef void (*bitnet_log_fn)(void *ud, bitnet_log_level level, const char *text);

/* How a file packs I2_S weights; see @formats. */
typedef enum bitnet_i2s_packing {
    BITNET_I2S_128 = 0, BITNET_I2S_64, BITNET_I2S_4ROW
} bitnet_i2s_packing;

/* Tiles of TL1 and TL2 weights: rows by cols weights, in groups of `group` rows (0: 32, the only
   size that TL2 has). bitnet.cpp calls them BM, BK and bm. See @formats. */
typedef struct bitnet_tile { int32_t rows, cols, group; } bitnet_tile;

/* The tile of the matrices of one shape: rows, each of n weights. */
typedef struct bitnet_shape_tile {
    int32_t rows, n;
    bitnet_tile tile;
} bitnet_shape_tile;

/* In this and every other parameter struct, all zero means defaults. */
typedef struct bitnet_model_params {
    bitnet_allocator allocator;  /* also for the contexts of the model; copied */
    /* Called after each layer, or each 4 MB read, and at the end, with bytes of the file. Nonzero
       cancels the load: BITNET_ERR_CANCELLED. 0: not called. */
    bitnet_progress_fn progress_fn;
    void *progress_ud;
    bitnet_log_fn log_fn;        /* called only while loading; 0: silent */
    void *log_ud;
    const bitnet_kernels *kernels;       /* 0: bitnet_kernels_default(), or for TL2_R16 the best one
                                            that reads that in place */
    bitnet_i2s_packing i2s_packing;        /* of the whole file; 0: the 128 packing */
    bitnet_tile tile;            /* of all TL1 and TL2 weights of the file; 0: by their shape */
    const bitnet_shape_tile *tiles;      /* [n_tiles], of these shapes instead; used in loading */
    int32_t n_tiles;
    int32_t q2_0_block;          /* weights in a block of Q2_0: 64 or 128; 0: told from the file */
    uint64_t max_bytes;          /* refuse larger files; 0: 16 GiB */
    int32_t copy;                /* 1: bitnet_model_load_file reads the file and never maps it */
    int32_t vocab_only;          /* 1: the tokenizer and the metadata alone, from any file that has
                                    them, with weights or without. The model has no contexts */
    int32_t prefault;            /* 1: loading reads all of a mapped file, so that the first text
                                    does not wait for the disk; progress_fn is called meanwhile */
    int32_t in_place;            /* 1: weights with a scale per block stay where the file is mapped,
                                    which x86 would pack into as much memory. One text at a time is
                                    written about as fast, several at a time slower */
    uint64_t reserved[6];
} bitnet_model_params;

/* How the rows of a text's tokens become one vector; the numbers are those of GGUF. */
typedef enum bitnet_pooling {
    BITNET_POOLING_MODEL,        /* as the file says */
    BITNET_POOLING_MEAN, BITNET_POOLING_FIRST, BITNET_POOLING_LAST
} bitnet_pooling;

/* The strings belong to the model. */
typedef struct bitnet_model_info {
    const char *arch;            /* general.architecture */
    const char *kernels_name;    /* of the kernel table in use */
    const char *layout;          /* of the ternary weights in memory: I2_S, TL2_R16, or GROUPS, as
                                    drawn in @kernels, each group with its scale */
    int32_t n_vocab, n_layers, dim, ffn_dim, n_heads, n_kv_heads, head_dim, ctx_train;
    const char *embed_type, *head_type;  /* F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K,
                                            Q5_0, Q4_0, Q1_0, Q2_0, PQ2_0, PTQ1_0, TQ1_0, TQ2_0,
                                            "none" */
    uint64_t head_bytes;         /* of the output head, which may be the embedding */
    uint64_t n_params;           /* weights and norms; a head that is the embedding counts once */
    uint64_t file_bytes;
    uint64_t own_bytes;          /* allocated by the model, beyond the mapped or borrowed file */
    uint64_t head_copy_bytes;    /* of the copy of the head, which the first context that uses
                                    it adds to own_bytes; 0: no head, one with ternary weights and
                                    a scale per group, or a dim under 16 or over 32768 */
    bitnet_token bos, eos, eot;  /* -1: the file has none */
    int32_t add_bos, add_eos;    /* 1: the file wants BOS before a text, EOS behind it */
    int32_t has_head;            /* 1: it writes text; 0: it only makes embeddings */
    bitnet_pooling pooling;      /* of embeddings; BITNET_POOLING_MODEL: the file does not say */
    int32_t longest_token;       /* bytes of the longest token's text */
    int32_t group;               /* weights that share a scale: 64, 128 or 256, the fewest if
                                    matrices differ; 0: each matrix has one scale */
    const char *chat_template_name;      /* such as "chatml"; 0: no chat template is known */
    int32_t n_experts;           /* in each layer, each of ffn_dim rows; 0: layers have an FFN */
    int32_t n_experts_used;      /* of them, for a token */
    uint64_t reserved[5];
} bitnet_model_info;

/* How keys and values are kept. I8: 8 bits a number, and a scale for each position and head: half
   the memory of F16, faster in long contexts, not as close to the model (@context has figures). The
   size of a head must be a multiple of 4, at most 65536. */
typedef enum bitnet_kv_type {
    BITNET_KV_F16 = 0, BITNET_KV_F32 = 1, BITNET_KV_I8 = 2
} bitnet_kv_type;

/* What a context calls while it evaluates. Each hook that is 0 is not called. */
typedef struct bitnet_hooks {
    /* Nonzero cancels the evaluation: BITNET_ERR_CANCELLED, and the sequences are as before. Asked
       again and again, for BitNet b1.58-2B-4T at least every 20 ms, on the thread that called (with
       parallel_fn: the one that runs job 0). */
    bitnet_cancel_fn cancel_fn;
    void *cancel_ud;
    /* Nonzero pauses a pass of bitnet_gen_next, which then returns: HOST LOOPS. Asked behind each
       layer, and between parts of the head, on the caller's thread. (With a mask_fn, and in a
       ternary head, the head is one part.) */
    bitnet_pause_fn pause_fn;
    void *pause_ud;
    /* For profiles. The network is evaluated in steps; op is "embed", "norm", "quantize", "matmul",
       "attention", "router", "experts" or "head". Threads take runs of a step's rows. Each calls
       this before (begin 1) and after (begin 0) its runs, perhaps several at once. thread is 0 for
       the caller, which takes part in every step, 1 .. n_threads - 1 for workers, which may not; or
       with parallel_fn the job's i. All calls of a step return before the next one begins. */
    bitnet_step_fn step_fn;
    void *step_ud;
    /* To look inside. Called on the caller's thread for each batch of at most n_batch tokens, after
       the embedding (layer -1) and each layer (0 .. n_layers - 1). x [n_tokens][dim] is the
       residual stream of the tokens, in the order in which they were given, from position
       bitnet_seq_length() on, or bitnet_seq_again() before it; of a model with a residual_scale
       (minicpm), divided by that. */
    bitnet_layer_fn layer_fn;
    void *layer_ud;
    uint64_t reserved[4];
} bitnet_hooks;

typedef struct bitnet_ctx_params {
    int32_t n_ctx;               /* positions, 1 .. 2^20; 0: 4096, or ctx_train if that is less. A
                                    model with RoPE scaling by longrope has factors for contexts up
                                    to its original length, and others for longer ones: a saved
                                    sequence can be loaded only where the same ones are used */
    int32_t n_batch;             /* tokens evaluated together, 1 .. 65536; 0: 512 or less */
    int32_t n_logits;            /* rows that a call can keep, 1 .. n_seqs * n_ctx; 0: n_seqs */
    int32_t n_seqs;              /* conversations, 1 .. 4096; 0: 1; see SEQUENCES */
    int64_t n_kv;                /* positions of all sequences together, if there are more than
                                    one, rounded up to pages of 64; at most, and for 0: n_seqs
                                    times n_ctx in whole pages */
    int32_t n_threads;           /* 1 .. 256; 0: as many as the process may use; see THREADS */
    bitnet_kv_type kv_type;      /* of the KV cache */
    int32_t no_head_copy;        /* 1: no copy of the output head; see @head */
    /* The program's own thread pool; 0: the library's threads. It must call job(arg, i) once for
       each i in 0 .. jobs - 1, on any threads and in any order, and return when all are done. jobs
       is n_threads. It does not get steps too small to share. */
    bitnet_parallel_fn parallel_fn;
    void *parallel_ud;
    bitnet_hooks hooks;          /* bitnet_ctx_set_hooks sets others later */
    int64_t mark_bytes;          /* memory for marks, at most; see bitnet_seq_again. 0: that of
                                    n_seqs + 3 of them, or 64 MiB if this is more; < 0: none */
    uint64_t reserved[5];
} bitnet_ctx_params;

/* What bitnet_eval_many evaluates for one sequence. */
typedef struct bitnet_input {
    int32_t seq;                 /* 0 .. n_seqs - 1; each at most once in a call */
    int32_t n_tokens;            /* 1 or more */
    const bitnet_token *tokens;  /* [n_tokens] */
    int32_t n_logits;            /* keep the logits of its last so many tokens, 0 .. n_tokens */
    int32_t row;                 /* set by the call: the number of the first of these rows */
    uint64_t reserved[2];
} bitnet_input;

typedef struct bitnet_logit_bias { bitnet_token token; float bias; } bitnet_logit_bias;

/* All zero is greedy: the largest logit, and of equal ones the lowest id. The order is rewrite_fn,
   mask_fn, logit bias, penalties, top-k, top-p, min-p, temperature, chosen_fn. Any float is
   accepted; NaN counts as 0, as does any below 0 but for frequency_ and presence_penalty. */
typedef struct bitnet_sampler {
    float temperature;           /* 0: greedy; infinity: all that are left are equally likely */
    float top_p;                 /* keep the most likely tokens up to this sum; 0 or >= 1: all */
    float min_p;                 /* drop tokens under min_p times the best one's probability */
    float repeat_penalty;        /* > 1 makes recent tokens less likely; 0 or 1: off */
    int32_t top_k;               /* keep the k largest logits; 0 or less: all */
    int32_t repeat_window;       /* how many recent tokens the penalties see; 0: 64, < 0: all */
    float frequency_penalty;     /* subtracted for each time that a token is among these; 0: off */
    float presence_penalty;      /* subtracted once for such a token; 0: off */
    const bitnet_logit_bias *bias;   /* -INFINITY or NaN forbids a token, unless no other is left;
                                        unknown ids are ignored */
    int32_t n_bias;              /* 0 or more */
    uint64_t rng;                /* the whole random state; any seed; each draw advances it */
    bitnet_rewrite_fn rewrite_fn;        /* changes a copy of the logits [n_vocab], all of which
                                            are computed for it; 0: not called */
    void *rewrite_ud;
    /* Says which tokens may follow, as the rules of a game or a grammar do: allowed
       [(n_vocab + 31) / 32] is all zero, and bit t % 32 of allowed[t / 32] allows token t. Only
       their logits are computed (@head). If nothing is allowed, no token is chosen (-1), and a
       generation ends with BITNET_STOP_MASK. 0: not called. */
    bitnet_mask_fn mask_fn;
    void *mask_ud;
    bitnet_chosen_fn chosen_fn;  /* gets each token of the text once and in order, with lookup too;
                                    0: not called */
    void *chosen_ud;
    uint64_t reserved[4];
} bitnet_sampler;

/* role is "system", "user", "assistant", "tool" (what a function has answered) or another one that
   the template knows; never "". No data is 0. See CHAT. */
typedef struct bitnet_message {
    bitnet_text role, content;
    uint64_t reserved[2];
} bitnet_message;

/* What is written before and behind a message. Special tokens in it become tokens; {role} stands
   for the message's role, {Role} for the same with its first letter in upper case and the rest in
   lower case. Data 0: see below. */
typedef struct bitnet_chat_turn { bitnet_text prefix, suffix; } bitnet_chat_turn;

/* How a model thinks before it replies. */
typedef enum bitnet_thinking {
    BITNET_THINK_AUTO = 0,       /* as the template does by default: often the model decides */
    BITNET_THINK_OFF,            /* the reply begins behind thinking that is empty */
    BITNET_THINK_ON              /* the reply begins with thinking */
} bitnet_thinking;

/* A chat template as strings: one of the library's (bitnet_model_chat_template) or the caller's. A
   text whose data is 0 is not there. A caller needs user, assistant, reply and end, and perhaps
   system. */
typedef struct bitnet_chat_template {
    const char *name;            /* for people, NUL-terminated; may be 0 */
    bitnet_chat_turn system, user, assistant, tool;    /* without a prefix: as other */
    bitnet_chat_turn other;      /* all other roles; without a prefix they are an error */
    bitnet_chat_turn tools_turn; /* around messages of the role tool that follow each other */
    bitnet_text reply;           /* opens the reply */
    bitnet_text end;             /* the token that ends a reply, with which assistant.suffix begins;
                                    none: only the end tokens of the model */
    bitnet_text system_text;     /* of chats that begin without a system message */
    bitnet_text think, no_think; /* behind reply, for BITNET_THINK_ON and _OFF */
    bitnet_text tools_before, tools_behind;      /* around bitnet_chat_params.tools in the system
                                                    message; see @chat */
    bitnet_thinking thinking;    /* what BITNET_THINK_AUTO does; AUTO: neither think nor no_think */
    int32_t trim;                /* 1: white space around a message is left out */
    int32_t drop_thinking;       /* 1: <think>...</think> in the assistant's messages is left out if
                                    a user's message follows, as Qwen3 wants it (a context that
                                    goes on still holds it) */
    int32_t system_first;        /* 1: only the first message of a chat may be a system message */
    uint64_t reserved[4];
} bitnet_chat_template;

typedef struct bitnet_chat_params {
    const bitnet_chat_template *chat_template;   /* 0: the model's */
    bitnet_thinking thinking;
    /* Functions that the model may call: for each a line with a JSON object as in OpenAI's API,
       {"type": "function", "function": ...}. They are written at the beginning of a chat, and a
       template that has no tools (tools_before, tool) gets Qwen's for it: see @chat. Data 0:
       none. */
    bitnet_text tools;
    uint64_t reserved[4];
} bitnet_chat_params;

/* Flags of bitnet_chat_tokenize: what is in front of the messages, and behind them. */
typedef enum bitnet_chat_flags {
    BITNET_CHAT_BEGIN = 1,       /* nothing is in front: BOS and the template's system text come */
    BITNET_CHAT_CUT_REPLY = 2,   /* a reply that was cut off is in front: end it first */
    BITNET_CHAT_ENDED_REPLY = 4, /* a reply with its end token is in front: what is behind that */
    BITNET_CHAT_OPEN_REPLY = 8   /* end with the beginning of a reply */
} bitnet_chat_flags;

/* The parts of a reply; see bitnet_reply_next. */
typedef enum bitnet_reply_part {
    BITNET_REPLY_TEXT,
    BITNET_REPLY_THINKING,       /* between <think> and </think> */
    BITNET_REPLY_TOOL_CALL       /* between <tool_call> and </tool_call> */
} bitnet_reply_part;

/* The state of bitnet_reply_next. All zero: a reply without thinking and tool calls. */
typedef struct bitnet_reply {
    int32_t thinks, calls;       /* 1: look for <think>; for <tool_call> */
    bitnet_reply_part part;      /* of the text that comes next */
    int32_t n_calls;             /* tool calls that have begun */
    int32_t begun;               /* 1: text has come, so there is no <think> any more */
    int32_t n_newlines;          /* held back: newlines in front of what is held ... */
    int32_t n_held;              /* ... bytes that may become a tag */
    int32_t skips;               /* 1: newlines are left out until something else comes */
    char held[16];
    uint64_t reserved[2];
} bitnet_reply;

/* The state of bitnet_detok_push: the bytes of an incomplete character. All zero to begin. */
typedef struct bitnet_detok {
    uint8_t pending[4];
    int32_t n_pending;
    uint64_t reserved[1];
} bitnet_detok;

/* Why bitnet_generate ended. */
typedef enum bitnet_stop {
    BITNET_STOP_END,             /* the model ended its text; see bitnet_token_is_end */
    BITNET_STOP_LENGTH,          /* max_tokens, or the context is full */
    BITNET_STOP_STRING,          /* a stop string was generated; text_fn does not get it */
    BITNET_STOP_CALLBACK,        /* text_fn returned nonzero */
    BITNET_STOP_MASK             /* the sampler's mask_fn allowed no token. None is pending, so a
                                    message that follows does not end this reply: append the token
                                    that does before it */
} bitnet_stop;

typedef struct bitnet_generate_params {
    int32_t seq;                 /* the sequence, 0 .. n_seqs - 1 */
    /* What is appended to it: at most one of tokens, text and messages; the others 0. */
    const bitnet_token *tokens;
    int32_t n_tokens;            /* 1 or more */
    bitnet_text text;            /* its special tokens are plain text. BOS is put in front if the
                                    sequence is empty and the file asks for it. */
    const bitnet_message *messages;      /* written in the chat template; see CHAT */
    int32_t n_messages;          /* 1 or more */
    const bitnet_chat_params *chat;      /* how they are written; 0: defaults */
    int32_t max_tokens;          /* 0 or less: until the context is full */
    int32_t n_batch;             /* tokens of the prompt that a pass reads, at most; 0: n_batch of
                                    the context, or 32 beside other generations */
    int32_t ignore_end;          /* 1: go on past end tokens */
    int32_t lookup;              /* tokens to draft, at most, 0 .. 64; 0: off; see @generate. There
                                    are no drafts with recurrent layers (qwen35) */
    bitnet_sampler *sampler;     /* 0: greedy. Copied, with its bias; bitnet_generate sets its rng
                                    to what that has become */
    const bitnet_text *stop_strings;     /* copied; UTF-8, none of them empty */
    int32_t n_stop_strings;      /* 0 or more */
    /* Called once for each new token t, sampled from bitnet_logits(c, -1), with the text that is
       now certain: n bytes (perhaps 0) of whole characters that cannot belong to a stop string,
       without a NUL at the end. A last call may follow with t = -1 and the text held back until
       then. Nonzero stops, and drops text still held back. 0: not called. */
    bitnet_text_fn text_fn;
    void *text_ud;
    /* Called after each n_batch tokens of the prompt; total counts the pending token, BOS and the
       template's. There are logits only when done == total. Nonzero cancels this generation:
       BITNET_ERR_CANCELLED. 0: not called. */
    bitnet_progress_fn progress_fn;
    void *progress_ud;
    /* As in bitnet_hooks, for this generation: nonzero ends it with BITNET_ERR_CANCELLED, and the
       others of the pass are as before it. 0: not called. */
    bitnet_cancel_fn cancel_fn;
    void *cancel_ud;
    uint64_t reserved[6];
} bitnet_generate_params;

/* What a generation has done so far. Times are of the passes in which it read or wrote, whoever
   else was in them, and 0 with BITNET_NO_THREADS. */
typedef struct bitnet_figures {
    int32_t n_prompt;            /* tokens of the prompt; pending token, BOS and template counted */
    int32_t n_read, n_written;   /* tokens of it evaluated; tokens sampled */
    int32_t n_passes;            /* over the weights */
    int32_t drafts;              /* passes that evaluated a draft of prompt lookup */
    int32_t drafted, accepted;   /* tokens in drafts, and how many of them were sampled */
    uint64_t read_ns, write_ns;  /* nanoseconds */
    uint64_t reserved[4];
} bitnet_figures;

/* What bitnet_embed makes a vector of: a text, or tokens. */
typedef struct bitnet_embed_input {
    bitnet_text text;            /* BOS and EOS are added as the file says. Data 0: see tokens */
    const bitnet_token *tokens;  /* if there is no text: these, as they are */
    int32_t n_tokens;            /* 1 or more */
    uint64_t reserved[2];
} bitnet_embed_input;

typedef struct bitnet_embed_params {
    bitnet_pooling pooling;
    int32_t raw;                 /* 1: the vector as it is; 0: divided by its length (L2 norm) */
    int32_t cut;                 /* 1: what is over n_ctx tokens is cut off (an EOS that the file
                                    asks for stays the last token); 0: BITNET_ERR_FULL */
    /* Called after each pass with the inputs done and n. Nonzero cancels: BITNET_ERR_CANCELLED. */
    bitnet_progress_fn progress_fn;      /* may be 0 */
    void *progress_ud;
    uint64_t reserved[4];
} bitnet_embed_params;

/* Flags of bitnet_tokenize. */
typedef enum bitnet_tokenize_flags {
    BITNET_ADD_BOS = 1,          /* BOS first, if the vocabulary has one */
    BITNET_ADD_EOS = 2,          /* EOS last, if the vocabulary has one */
    BITNET_PARSE_SPECIAL = 4     /* "<|eot_id|>" in the text becomes the control token */
} bitnet_tokenize_flags;

/* BITNET_VERSION, "major.minor.patch", and BITNET_VERSION_NUMBER of the library that is linked. */
BITNET_API const char *bitnet_version(void);
BITNET_API int bitnet_version_number(void);
/* A few words for a result, "unknown result" for other numbers. Never 0. */
BITNET_API const char *bitnet_result_text(bitnet_result r);

/* A text that ends with a NUL, which it does not count. s 0: none. */
BITNET_API bitnet_text bitnet_text_of(const char *s);
/* Makes n bytes of untrusted text safe to show in one line. One '?' replaces each byte that is not
   UTF-8, each control character (newline and tab too), and each code point that is invisible or
   changes the direction or order of text. Returns the length of the result, at most n. Writes the
   code points that fit in cap bytes, and a NUL (if cap > 0). buf may be text, or 0: nothing is
   written. text may be 0 if n is 0. BITNET_ERR_LIMIT: n is over INT32_MAX. */
BITNET_API int bitnet_clean_text(const char *text, size_t n, char *buf, size_t cap);
/* The size of the character that text [n] begins with, 1 to 4 bytes, and in *cp (may be 0) its code
   point. 0: n is 0, or the text does not begin with well-formed UTF-8. */
BITNET_API size_t bitnet_utf8_decode(const char *text, size_t n, uint32_t *cp);

/* ---- models ---- */

/* Loads a GGUF file; bitnet_model_free frees the model. params and err may be 0. Without
   params->copy the file is mapped, where the system can, and must not change while the model lives:
   loading reads the ternary weights, to check them, and the rest is read when it is needed.
   BITNET_ERR_IO, _TRUNCATED, _FORMAT, _UNSUPPORTED, _LIMIT, _MEMORY: err says what is wrong with
   the file. BITNET_ERR_CANCELLED: progress_fn said so. */
#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_model_load_file(const char *path, const bitnet_model_params *params,
                                                bitnet_model **out, bitnet_error *err);
#endif

/* Like bitnet_model_load_file, from size bytes at data, borrowed until the model is freed. */
BITNET_API bitnet_result bitnet_model_load_memory(const void *data, size_t size,
                                                  const bitnet_model_params *params,
                                                  bitnet_model **out, bitnet_error *err);

/* Like bitnet_model_load_file, through io->read_fn, and always into memory of the model's own. */
BITNET_API bitnet_result bitnet_model_load_io(const bitnet_io *io,
                                              const bitnet_model_params *params,
                                              bitnet_model **out, bitnet_error *err);

/* Frees a model. m may be 0. If it still has contexts, the last of them frees it: only then may
   memory that it borrows go. */
BITNET_API void bitnet_model_free(bitnet_model *m);
/* Describes a model. If m is 0, *info is all zero. */
BITNET_API void bitnet_model_get_info(const bitnet_model *m, bitnet_model_info *info);

/* ---- text and tokens ----
   Any thread may call these functions. Like snprintf, those that fill an array return the length
   of the whole result, or a negative bitnet_result, and write the first cap elements. The array may
   be 0: then they write nothing. BITNET_ERR_LIMIT: the length is over INT32_MAX. */

/* The value of a metadata key as text: numbers in decimal (a point in every locale), BOOL as true
   or false, and a NUL at the end (if cap > 0; the length does not count it). BITNET_ERR_NOT_FOUND:
   no such key. BITNET_ERR_UNSUPPORTED: an array; see bitnet_gguf_find_key. */
BITNET_API int bitnet_model_get_meta(const bitnet_model *m, const char *key, char *buf, size_t cap);

/* The name of metadata key i, in the file's order, as bitnet_model_get_meta gives a value.
   BITNET_ERR_NOT_FOUND: there are not that many. */
BITNET_API int bitnet_model_meta_key(const bitnet_model *m, int32_t i, char *buf, size_t cap);

/* The tokens of a text of n bytes, any bytes; text may be 0 if n is 0. flags: of
   bitnet_tokenize_flags. BITNET_ERR_LIMIT: a single word, or with a SentencePiece tokenizer the
   whole text, is over 64 MiB. BITNET_ERR_MEMORY. BITNET_ERR_ARG: there is no such flag. */
BITNET_API int bitnet_tokenize(const bitnet_model *m, const char *text, size_t n, int flags,
                               bitnet_token *out, size_t cap);

/* The exact bytes of n tokens, without a NUL at the end; special tokens give their names. tokens
   may be 0 if n is 0. With a SentencePiece tokenizer the text begins with the space that it added.
   BITNET_ERR_ARG: a token is outside the vocabulary. */
BITNET_API int bitnet_detokenize(const bitnet_model *m, const bitnet_token *tokens, int n,
                                 char *buf, size_t cap);

/* Turns a stream of tokens into text: writes to buf the characters that t completes, without a NUL,
   and returns the bytes written. *d keeps incomplete ones. Bytes that cannot be UTF-8 become
   U+FFFD. A control token (but <think>, <tool_call> and their ends are text), or t = -1 for the
   end, writes only what is held back. BITNET_ERR_ARG: t is outside the vocabulary, buf is 0, or cap
   is under 3 + 3 * t's bytes. */
BITNET_API int bitnet_detok_push(const bitnet_model *m, bitnet_detok *d, bitnet_token t,
                                 char *buf, size_t cap);

/* The token with exactly this text of n bytes, special tokens included ("<|eot_id|>"), or -1. */
BITNET_API bitnet_token bitnet_token_find(const bitnet_model *m, const char *text, size_t n);
/* The bytes of a token, *n of them, without a NUL; they belong to the model. 0, and *n 0: t is
   outside the vocabulary. n may be 0. A special token has its name. */
BITNET_API const char *bitnet_token_text(const bitnet_model *m, bitnet_token t, size_t *n);

/* 1 if t is a control token, which text becomes only with BITNET_PARSE_SPECIAL; else 0. (What a
   vocabulary calls user-defined, as Gemma's runs of spaces, is text.) t may be any number. */
BITNET_API int bitnet_token_is_special(const bitnet_model *m, bitnet_token t);

/* 1 if t ends a text, else 0: EOS, <|eot_id|>, <|end_of_text|>, the file's eot_token_id (without
   one, <|im_end|>), or an end token of the chat template. t may be any number. */
BITNET_API int bitnet_token_is_end(const bitnet_model *m, bitnet_token t);

/* The model's chat template; 0: the file has none, or one that is not known. It belongs to the
   model; a copy may be changed. */
BITNET_API const bitnet_chat_template *bitnet_model_chat_template(const bitnet_model *m);

/* The tokens of n messages in a chat template. chat and err may be 0, and messages if n is 0.
   flags: of bitnet_chat_flags. With BITNET_CHAT_BEGIN, BOS comes if the model's template has it;
   with another one, a copy too, if the file asks for it. BITNET_ERR_ARG: a message has no role or
   no content, the template does not know a role, thinking or a flag is out of range, or
   system_first is not followed. BITNET_ERR_UNSUPPORTED: the model's template is not known, has no
   such thinking, or no message that could take the tools. */
BITNET_API int bitnet_chat_tokenize(const bitnet_model *m, const bitnet_chat_params *chat,
                                    const bitnet_message *messages, int n, int flags,
                                    bitnet_token *out, size_t cap, bitnet_error *err);

/* Divides the text of a reply into its parts, while it comes. bitnet_reply_begin prepares *r for
   what bitnet_generate writes with the same chat, which may be 0; without tools, a tool call is
   text. bitnet_reply_next takes bytes off the beginning of *text, *n of them, and returns 1 with
   part_n bytes of a part, or 0 when nothing is left: call it in a loop for each text. *text 0: the
   reply has ended, and what was held back comes out. Tags are left out, and newlines at the ends of
   thinking and tool calls and behind them. part_text lives until the next call, or as text does. */
BITNET_API void bitnet_reply_begin(bitnet_reply *r, const bitnet_model *m,
                                   const bitnet_chat_params *chat);
BITNET_API int bitnet_reply_next(bitnet_reply *r, const char **text, size_t *n,
                                 bitnet_reply_part *part, const char **part_text, size_t *part_n);

/* ---- contexts ---- */

/* The bytes that bitnet_ctx_create allocates, and those that marks (bitnet_seq_again) may take
   later; an allocator of the caller's is asked for 64 more in each block. params may be 0. 0 if
   they are out of range. */
BITNET_API uint64_t bitnet_ctx_bytes(const bitnet_model *m, const bitnet_ctx_params *params);

/* Creates an empty context, which bitnet_ctx_free frees. params and err may be 0. Hooks and their
   uds must outlive it. BITNET_ERR_ARG (err names the parameter), _MEMORY, _UNSUPPORTED
   (BITNET_KV_I8, with heads of another size; a model loaded with vocab_only). */
BITNET_API bitnet_result bitnet_ctx_create(const bitnet_model *m, const bitnet_ctx_params *params,
                                           bitnet_ctx **out, bitnet_error *err);

/* Ends the context's threads and frees it. c may be 0. If generations still have its sequences, the
   end of the last one frees it; until then they can only be asked and ended. BITNET_ERR_BUSY: it is
   in use, and nothing has happened. */
BITNET_API bitnet_result bitnet_ctx_free(bitnet_ctx *c);

/* The model that the context was created with; 0 if c is 0. */
BITNET_API const bitnet_model *bitnet_ctx_model(const bitnet_ctx *c);
/* The number of positions: n_ctx. */
BITNET_API int32_t bitnet_ctx_capacity(const bitnet_ctx *c);
/* The number of threads that the context works with, the caller's included. */
BITNET_API int32_t bitnet_ctx_threads(const bitnet_ctx *c);
/* Sets it, 1 .. the number that the context was created with. err may be 0. BITNET_ERR_ARG: it is
   out of range. BITNET_ERR_BUSY. */
BITNET_API bitnet_result bitnet_ctx_set_threads(bitnet_ctx *c, int32_t n, bitnet_error *err);
/* Replaces all hooks; hooks 0: none. err may be 0. BITNET_ERR_ARG, _BUSY. */
BITNET_API bitnet_result bitnet_ctx_set_hooks(bitnet_ctx *c, const bitnet_hooks *hooks,
                                              bitnet_error *err);

/* ---- sequences ----
   seq is 0 .. n_seqs - 1. Where it is another number, or c is 0, functions without a result return
   0, and bitnet_seq_pending -1; those with one return BITNET_ERR_ARG. BITNET_ERR_BUSY: the context
   is in use, or a generation has the sequence. err may be 0. */

/* The number of tokens evaluated: the positions taken, without the pending token. */
BITNET_API int32_t bitnet_seq_length(const bitnet_ctx *c, int32_t seq);
/* These tokens, [bitnet_seq_length()]. The pointer stays valid as long as the context; its contents
   change with every call that appends or drops tokens. */
BITNET_API const bitnet_token *bitnet_seq_tokens(const bitnet_ctx *c, int32_t seq);
/* The pending token (see STEP BY STEP), or -1. */
BITNET_API bitnet_token bitnet_seq_pending(const bitnet_ctx *c, int32_t seq);
/* What the generation that has the sequence, or had it last, has done. */
BITNET_API void bitnet_seq_figures(const bitnet_ctx *c, int32_t seq, bitnet_figures *out);

/* Keeps the first length tokens (0 .. bitnet_seq_length) and drops the rest with their logits, and
   always the pending token. Nothing is evaluated; but see bitnet_seq_again. BITNET_ERR_ARG: length
   is out of range. */
BITNET_API bitnet_result bitnet_seq_rewind(bitnet_ctx *c, int32_t seq, int32_t length,
                                           bitnet_error *err);

/* Replaces what sequence `to` holds by the first length tokens (0 .. bitnet_seq_length) of another
   sequence, `from`. Nothing is evaluated or allocated: the two share pages, until one of them
   writes to a page and needs a copy. (A state is copied; see bitnet_seq_again.) `to` has no pending
   token and no logits. BITNET_ERR_ARG, and for `to` BITNET_ERR_BUSY. */
BITNET_API bitnet_result bitnet_seq_copy(bitnet_ctx *c, int32_t from, int32_t to, int32_t length,
                                         bitnet_error *err);

/* How many tokens the next evaluation of the sequence reads again before its own: 0, but for models
   with recurrent layers (qwen35). Their state cannot be cut back, and is 157 MB for a sequence of a
   model of 27B. So the context marks states: near the ends of prompts, at the ends of turns, and
   where a sequence was cut. A sequence that is rewound, copied in part or synchronised, or whose
   evaluation failed or was cancelled, gets the state of its longest beginning that has a mark,
   whichever sequence left it, and reads the tokens behind that again when it goes on. Only the time
   shows it: results are the same bits, and in bitnet_gen_next other generations go on meanwhile.
   Marks are allocated when they are made, within mark_bytes of bitnet_ctx_params, and freed with
   the context; without memory for one, more is read again. While a pass is paused: 0. */
BITNET_API int32_t bitnet_seq_again(const bitnet_ctx *c, int32_t seq);

/* Makes a sequence hold exactly these n tokens, one or more, with the logits of the last. The
   beginning that agrees with what it holds is kept, the rest is dropped, the pending token too, and
   what is missing is evaluated, always the last token. *n_kept (which may be 0): the tokens of the
   beginning that were not evaluated, 0 .. n - 1; those of bitnet_seq_again were. tokens may be the
   sequence's own: that computes its logits again. BITNET_ERR_ARG, _BUSY, and _FULL if n is over
   n_ctx: nothing has changed, nor *n_kept. Any other failure (see bitnet_eval_many) leaves the
   beginning that agrees, and no pending token. */
BITNET_API bitnet_result bitnet_seq_sync(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                         int32_t n, int32_t *n_kept, bitnet_error *err);

/* Removes tokens from .. to - 1 (0 <= from <= to <= bitnet_seq_length). Those behind them move up
   and are evaluated again, as if what is removed had never been there: there are logits of the last
   one, if there are any behind. The pending token stays. from == to changes nothing.
   BITNET_ERR_ARG, _BUSY: nothing has changed. Any other failure (see bitnet_eval) leaves the tokens
   before `from`, and no pending token. */
BITNET_API bitnet_result bitnet_seq_remove(bitnet_ctx *c, int32_t seq, int32_t from, int32_t to,
                                           bitnet_error *err);

/* The bytes that saving writes: 52, for each token 4 and its keys and values (@context has their
   size), and if there are any a state of recurrent layers. */
BITNET_API uint64_t bitnet_seq_state_bytes(const bitnet_ctx *c, int32_t seq);

/* Saves a sequence through io->write_fn, at most 4096 bytes a call: its tokens, their keys and
   values, and the pending token; of recurrent layers the state, without marks. Tokens that would be
   read again (bitnet_seq_again) are read now, as by bitnet_eval; otherwise nothing is allocated.
   The bytes are the same on every machine, with any threads and kernel table. Whoever reads them
   reads the conversation. BITNET_ERR_ARG, _BUSY, and what write_fn returns. */
BITNET_API bitnet_result bitnet_seq_save_io(bitnet_ctx *c, int32_t seq, const bitnet_io *io,
                                            bitnet_error *err);

/* The same into memory of the caller's, cap bytes at out; see bitnet_seq_state_bytes.
   BITNET_ERR_LIMIT: it takes more; the first cap bytes may have been written. */
BITNET_API bitnet_result bitnet_seq_save_memory(bitnet_ctx *c, int32_t seq, void *out, size_t cap,
                                                bitnet_error *err);

/* Puts a saved sequence in place of sequence seq, which goes on with the same bits; a pending token
   is pending again. The context may be another one, of the same kv_type and model file (with the
   same i2s_packing and tile). Logits are not saved: without a pending token, bitnet_seq_sync with
   its own tokens computes them. io is read from beginning to end, and may be hostile: sizes are
   checked before io->size bytes are allocated for the call, and a checksum finds damage, but
   whoever can write the file decides what the model goes on with. BITNET_ERR_TRUNCATED, _FORMAT:
   cut, damaged or no saved sequence. _UNSUPPORTED: another version, model or kv_type. _FULL: more
   than n_ctx tokens, or n_kv is used up. _MEMORY, _ARG, _BUSY, and what read_fn returns. */
BITNET_API bitnet_result bitnet_seq_load_io(bitnet_ctx *c, int32_t seq, const bitnet_io *io,
                                            bitnet_error *err);

/* The same from size bytes at data, without a copy of them. */
BITNET_API bitnet_result bitnet_seq_load_memory(bitnet_ctx *c, int32_t seq, const void *data,
                                                size_t size, bitnet_error *err);

/* ---- evaluating and sampling ---- */

/* Appends n tokens, one or more, to a sequence, after the pending token if there is one, and keeps
   the logits of its last n_logits tokens (0 .. n). err may be 0. On failure the sequence holds the
   tokens that it held before; its logits may be gone. BITNET_ERR_FULL: they do not all fit. _ARG: a
   token is outside the vocabulary. _LIMIT: n_logits is over that of the context. _CANCELLED:
   cancel_fn said so. _FORMAT: weights gave a NaN or an infinity, as only damaged or hostile ones
   do; err names the first token and the layer. _MEMORY: for a page of several sequences. _BUSY. */
BITNET_API bitnet_result bitnet_eval(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                     int32_t n, int32_t n_logits, bitnet_error *err);

/* Appends tokens to several sequences, to each after its pending token, and evaluates them
   together: in the order of the inputs, with one pass over the weights for n_batch tokens. Sets
   each input's row; rows are numbered through the inputs. On failure all sequences hold what they
   held before, and the context has no logits. BITNET_ERR_FULL: tokens do not fit in n_ctx, or their
   pages in n_kv. _LIMIT: more rows than n_logits of the context. _BUSY: the context is in use, or a
   generation has the sequence. _ARG, _FORMAT, _CANCELLED, _MEMORY: as for bitnet_eval. */
BITNET_API bitnet_result bitnet_eval_many(bitnet_ctx *c, bitnet_input *inputs, int32_t n_inputs,
                                          bitnet_error *err);

/* The logits [n_vocab] of row i of the last evaluation; -1: of the last row. They are computed when
   first asked for, belong to the context and are valid until the next call that evaluates or drops
   its tokens. err may be 0. 0: there is no such row (BITNET_ERR_ARG), the model has no head
   (_UNSUPPORTED), or the context is in use (_BUSY). A NaN or an infinity in the head stays. */
BITNET_API const float *bitnet_logits(bitnet_ctx *c, int32_t i, bitnet_error *err);

/* The hidden state [dim] of row i, which the head multiplies: the last layer's, after the last
   norm, and of a model with a logit_scale (minicpm) divided by that. Otherwise as bitnet_logits. */
BITNET_API const float *bitnet_hidden(bitnet_ctx *c, int32_t i, bitnet_error *err);

/* Samples a token from the logits of row i, -1: the last one, and does not evaluate it. s may be 0:
   greedy. s->rng advances. The token is in the vocabulary, even if logits are not finite. err may
   be 0. If there is none, a negative bitnet_result: BITNET_ERR_ARG: there is no such row (nothing
   has been evaluated, or its token was dropped), or s has an n_bias without a list. _NOT_FOUND:
   mask_fn allows nothing. _UNSUPPORTED: the model has no head. _BUSY. */
BITNET_API bitnet_token bitnet_sample(bitnet_ctx *c, int32_t i, bitnet_sampler *s,
                                      bitnet_error *err);

/* The same from the caller's own logits [n_vocab], which follow the given tokens; tokens may be 0
   if n_tokens is 0, and matter only for penalties. */
BITNET_API bitnet_token bitnet_sample_logits(bitnet_ctx *c, const float *logits,
                                             const bitnet_token *tokens, int32_t n_tokens,
                                             bitnet_sampler *s, bitnet_error *err);

/* The n most likely tokens of row i (-1: the last one), the best first, with natural logarithms of
   their probabilities (softmax of all logits, before any sampler; they mean nothing if a logit is
   infinite), in out [n]. err may be 0. BITNET_ERR_ARG: there is no such row, or n is not in
   1 .. n_vocab. BITNET_ERR_UNSUPPORTED: the model has no head. BITNET_ERR_BUSY. */
typedef struct bitnet_logprob { bitnet_token token; float logprob; } bitnet_logprob;
BITNET_API bitnet_result bitnet_logprobs(bitnet_ctx *c, int32_t i, bitnet_logprob *out, int32_t n,
                                         bitnet_error *err);

/* ---- writing ---- */

/* Evaluates the prompt, then samples and evaluates tokens until something ends the text: *why says
   what, unless the call fails. why and err may be 0. The token sampled last is pending. With no
   prompt (none given, or an empty text) the text goes on from the pending token. A full context
   ends the text, one token after the last that fits. If the prompt fails or is cancelled, the
   context is as after a failed bitnet_eval. If a later token fails, text_fn still gets the text
   held back, the context keeps what was generated, and that token is pending. BITNET_ERR_ARG: a
   parameter is out of range, or the prompt has no token, BOS counted, and none is pending. _FULL:
   these do not fit. _LIMIT: n_logits is too small for lookup. _CANCELLED: a hook said so.
   _UNSUPPORTED: the model has no head. _MEMORY, and what bitnet_eval and bitnet_chat_tokenize
   return. */
BITNET_API bitnet_result bitnet_generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                         bitnet_stop *why, bitnet_error *err);

/* The same pass by pass, for any number of sequences of a context at once. A bitnet_gen writes on
   one sequence, and no other call may change that sequence meanwhile (BITNET_ERR_BUSY). What params
   points to is copied or only read now, but for hooks and their uds, which must live until
   bitnet_gen_end. Errors are those of bitnet_generate that need no evaluation. */
typedef struct bitnet_gen bitnet_gen;
BITNET_API bitnet_result bitnet_gen_begin(bitnet_ctx *c, const bitnet_generate_params *params,
                                          bitnet_gen **out, bitnet_error *err);

/* One pass over the weights for n generations of one context. Each that has not ended reads the
   next n_batch tokens of its prompt, or writes on, by one token or as many as its draft got right.
   On failure the sequences are as before the call, which can be repeated, and there are no pieces.
   But if a progress_fn or cancel_fn of a generation cancels that (BITNET_ERR_CANCELLED, as from the
   context's cancel_fn), it has ended; after progress_fn the others have gone on and have pieces.
   A pass that pause_fn pauses gives nothing yet, and the next call with the same generations goes
   on with it. Any other call that may change the context drops what was computed of it (with
   recurrent layers, back to a mark: see bitnet_seq_again). */
BITNET_API bitnet_result bitnet_gen_next(bitnet_gen *const *gens, int32_t n, bitnet_error *err);

/* What the last pass gave. Pointers are valid until the next pass or bitnet_gen_end. */
typedef struct bitnet_piece {
    bitnet_text text;            /* that is now certain, as text_fn gets it */
    const bitnet_token *tokens;  /* [n_tokens] new tokens, more than 1 only with lookup */
    int32_t n_tokens;
    int32_t row;                 /* of bitnet_logits, from which the last of them was drawn */
    int32_t n_read, n_prompt;    /* tokens of the prompt evaluated, and in all */
    int32_t ended;               /* 1: nothing more comes; why says why, unless it was cancelled */
    int32_t paused;              /* 1: pause_fn has paused the pass, which has given nothing yet */
    bitnet_stop why;
    uint64_t rng;                /* the sampler's, after the last of them */
    uint64_t reserved[4];
} bitnet_piece;
BITNET_API void bitnet_gen_piece(const bitnet_gen *g, bitnet_piece *out);

/* Ends a generation, at any time, and frees it. g may be 0. The token sampled last is pending. A
   prompt that was not read to its end is taken back. BITNET_ERR_BUSY: the context is in use, and
   nothing has happened. */
BITNET_API bitnet_result bitnet_gen_end(bitnet_gen *g);

/* ---- embeddings ---- */

/* Turns n inputs into vectors: out is [n][dim] with dim of bitnet_model_info, in their order. The
   texts are packed into passes of n_batch tokens, on all sequences of the context, which must be
   empty, and are empty again afterwards. A vector has the same bits whatever else is in its pass;
   of the context's parameters only kv_type matters. No head is read: for a model that has one, set
   no_head_copy. params (0: defaults) and err may be 0. Memory: with BITNET_POOLING_MEAN one vector
   of double for each sequence. BITNET_ERR_FULL: an input has more than n_ctx tokens (err names it),
   or n_kv is too small for it. BITNET_ERR_ARG: an input has no tokens (the text "" may have BOS and
   EOS) or one outside the vocabulary; pooling is out of range, or neither the file nor params name
   one; a sequence is not empty. _LIMIT: as bitnet_tokenize. Others as bitnet_eval. */
BITNET_API bitnet_result bitnet_embed(bitnet_ctx *c, const bitnet_embed_input *inputs, int32_t n,
                                      const bitnet_embed_params *params, float *out,
                                      bitnet_error *err);

/* ---- kernels ---- */

/* The number of kernel tables compiled in. */
BITNET_API int bitnet_kernels_count(void);
/* Table i, the best first and scalar last; 0 if i is out of range. */
BITNET_API const bitnet_kernels *bitnet_kernels_get(int i);
/* The table of this name; 0 if it is not compiled in. */
BITNET_API const bitnet_kernels *bitnet_kernels_find(const char *name);
/* Its name, as the manual has them; 0 if k is 0. */
BITNET_API const char *bitnet_kernels_name(const bitnet_kernels *k);
/* 1 if this CPU and operating system can run the table, else 0. */
BITNET_API int bitnet_kernels_usable(const bitnet_kernels *k);
/* The table that models use by default, except those in TL2_R16: the best usable one that reads
   I2_S in place. Never 0. */
BITNET_API const bitnet_kernels *bitnet_kernels_default(void);

/* Compares every entry of a table with the scalar one, bit for bit, on fixed inputs that reach
   every path, and checks that the build follows the rules under DETERMINISM. err may be 0. Takes
   about 50 ms (scalar-tl2: 250, scalar: 1) and half a megabyte from malloc.
   BITNET_ERR_SELFTEST: err names the entry and the shape, or what the build breaks. BITNET_ERR_ARG:
   k is 0. BITNET_ERR_UNSUPPORTED: the table cannot run here. BITNET_ERR_MEMORY. */
BITNET_API bitnet_result bitnet_selftest(const bitnet_kernels *k, bitnet_error *err);

/* ---- for tools ----
   What follows serves converters, benchmarks and whoever looks into files. It may change with any
   version, also after 1.0. */

/* How many of the n_vocab logits the last bitnet_sample computed exactly; see @head. */
BITNET_API int32_t bitnet_ctx_exact_logits(const bitnet_ctx *c);
/* Bytes of the head and its copy read since the last bitnet_sample began, that one's included. Rows
   of logits that wait are bounded together, by the first sample of one of them. */
BITNET_API uint64_t bitnet_ctx_head_bytes(const bitnet_ctx *c);

/* GGUF files of any kind, to inspect. */

/* Types of metadata values, and the tensor types that this library reads. */
typedef enum bitnet_gguf_type {
    BITNET_GGUF_U8, BITNET_GGUF_I8, BITNET_GGUF_U16, BITNET_GGUF_I16, BITNET_GGUF_U32,
    BITNET_GGUF_I32, BITNET_GGUF_F32, BITNET_GGUF_BOOL, BITNET_GGUF_STRING, BITNET_GGUF_ARRAY,
    BITNET_GGUF_U64, BITNET_GGUF_I64, BITNET_GGUF_F64
} bitnet_gguf_type;
typedef enum bitnet_tensor_type {
    BITNET_TENSOR_F32 = 0, BITNET_TENSOR_F16 = 1, BITNET_TENSOR_Q4_0 = 2, BITNET_TENSOR_Q5_0 = 6,
    BITNET_TENSOR_Q8_0 = 8, BITNET_TENSOR_Q2_K = 10, BITNET_TENSOR_Q3_K = 11,
    BITNET_TENSOR_Q4_K = 12, BITNET_TENSOR_Q5_K = 13, BITNET_TENSOR_Q6_K = 14,
    BITNET_TENSOR_BF16 = 30, BITNET_TENSOR_TQ1_0 = 34, BITNET_TENSOR_TQ2_0 = 35,
    BITNET_TENSOR_I2_S = 36, BITNET_TENSOR_TL1 = 38, BITNET_TENSOR_TL2 = 39,
    BITNET_TENSOR_Q1_0 = 41,     /* 128 weights a block, each -1 or +1 */
    BITNET_TENSOR_Q2_0 = 42,     /* 64 weights a block. With 128 under this number: PQ2_0 */
    BITNET_TENSOR_PQ2_0 = 142,   /* 128 weights a block */
    BITNET_TENSOR_PTQ1_0 = 143,  /* the same, each -1, 0 or +1 */
    BITNET_TENSOR_TL2_R16 = 20016        /* of this library alone; see @formats */
} bitnet_tensor_type;

typedef struct bitnet_gguf bitnet_gguf;   /* an open file; any number of threads; see @gguf */

/* A metadata value. data belongs to the open file and is as in it: little-endian, unaligned, not
   NUL-terminated. In an array, a string has its length in front (8 bytes), an array its element
   type and count (4 and 8 bytes). */
typedef struct bitnet_gguf_value {
    uint32_t type, element;      /* BITNET_GGUF_*; element: type of an array's elements, else 0 */
    uint64_t count;              /* elements of an array, else 1 */
    uint64_t size;               /* bytes at data */
    const uint8_t *data;
} bitnet_gguf_value;

typedef struct bitnet_gguf_key {
    char name[257];              /* NUL-terminated */
    bitnet_gguf_value value;
} bitnet_gguf_key;

typedef struct bitnet_gguf_tensor {
    char name[257];              /* NUL-terminated */
    uint32_t type;               /* ggml's number, any; see Q2_0 */
    uint32_t stored_type;        /* the number in the file: 42 for either kind of Q2_0 */
    const char *type_name;       /* ggml's, or TL2_R16; 0: unknown. Number 39 is TL2, or MXFP4 */
    int32_t n_dims;              /* 1 .. 4 */
    uint64_t dims[4];            /* row length, rows, ...; 1 beyond n_dims */
    uint64_t offset;             /* of its data from the start of the file */
    uint64_t size;               /* bytes; 0: the size of this type is not known */
    const uint8_t *data;         /* belongs to the open file; 0: use bitnet_gguf_read */
} bitnet_gguf_tensor;

/* Opens a GGUF file of any architecture, mapped where the system can, and checks its header as
   loading a model does (not the bytes behind the last tensor). allocator (0: malloc) and err may
   be 0. Close it with bitnet_gguf_close. */
#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_gguf_open_file(const char *path, const bitnet_allocator *allocator,
                                               bitnet_gguf **out, bitnet_error *err);
#endif

/* Like bitnet_gguf_open_file, from size bytes at data, which are borrowed until it is closed. */
BITNET_API bitnet_result bitnet_gguf_open_memory(const void *data, size_t size,
                                                 const bitnet_allocator *allocator,
                                                 bitnet_gguf **out, bitnet_error *err);

/* Like bitnet_gguf_open_file, through io->read_fn. *io is copied; its ud must outlive *out. */
BITNET_API bitnet_result bitnet_gguf_open_io(const bitnet_io *io, const bitnet_allocator *allocator,
                                             bitnet_gguf **out, bitnet_error *err);

/* Closes a file. g may be 0. Ends the life of all data got from it. */
BITNET_API void bitnet_gguf_close(bitnet_gguf *g);
/* Key i in the file's order. BITNET_ERR_NOT_FOUND: there are not that many. */
BITNET_API bitnet_result bitnet_gguf_get_key(const bitnet_gguf *g, uint64_t i,
                                             bitnet_gguf_key *out);
/* The key of this name. BITNET_ERR_NOT_FOUND: there is none. */
BITNET_API bitnet_result bitnet_gguf_find_key(const bitnet_gguf *g, const char *name,
                                              bitnet_gguf_key *out);
/* Tensor i in the file's order. BITNET_ERR_NOT_FOUND: there are not that many. */
BITNET_API bitnet_result bitnet_gguf_get_tensor(const bitnet_gguf *g, uint64_t i,
                                                bitnet_gguf_tensor *out);
/* The tensor of this name. BITNET_ERR_NOT_FOUND: there is none. */
BITNET_API bitnet_result bitnet_gguf_find_tensor(const bitnet_gguf *g, const char *name,
                                                 bitnet_gguf_tensor *out);

/* Walks the elements of an array: *element all zero gives the first one, an element the next.
   Returns 0 at the end, or if *array is not an array; else 1. */
BITNET_API int bitnet_gguf_next(const bitnet_gguf_value *array, bitnet_gguf_value *element);
/* A value as text, like bitnet_model_get_meta. BITNET_ERR_UNSUPPORTED: it is an array. */
BITNET_API int bitnet_gguf_text(const bitnet_gguf_value *value, char *buf, size_t cap);

/* Copies n bytes of a tensor's data, from byte at on, to dst, however the file was opened. err may
   be 0. BITNET_ERR_ARG: the tensor has no such bytes. BITNET_ERR_IO, or what read_fn returns. */
BITNET_API bitnet_result bitnet_gguf_read(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                                          uint64_t at, void *dst, size_t n, bitnet_error *err);

/* ggml's name of a tensor type, or TL2_R16; static; 0: unknown. Number 39 is TL2 here. */
BITNET_API const char *bitnet_tensor_type_name(uint32_t type);
/* The bytes of a tensor; dims as in bitnet_gguf_tensor. 0: unknown type, or not of this shape. What
   shapes I2_S and TL1 may have, bitnet_ternary_check tells. */
BITNET_API uint64_t bitnet_tensor_size(uint32_t type, int32_t n_dims, const uint64_t *dims);

/* A matrix of ternary weights as stored in a file. */
typedef struct bitnet_ternary {
    uint32_t type;               /* BITNET_TENSOR_I2_S, _TL1, _TL2, _TL2_R16, _TQ1_0, _TQ2_0, _Q1_0,
                                    _Q2_0, _PQ2_0, _PTQ1_0 */
    int32_t n, rows;             /* weights per row; number of rows */
    bitnet_i2s_packing i2s_packing;    /* of I2_S; see @formats */
    bitnet_tile tile;            /* of TL1 and TL2; 0: the published one for this shape */
} bitnet_ternary;

/* Checks that such a matrix, of bitnet_tensor_size bytes, can exist, and sets its tile. name is for
   err's text; err may be 0. BITNET_ERR_ARG: n, rows or i2s_packing is out of range.
   BITNET_ERR_FORMAT, _UNSUPPORTED: no such matrix has this type. */
BITNET_API bitnet_result bitnet_ternary_check(bitnet_ternary *t, const char *name,
                                              bitnet_error *err);

/* Unpacks n_rows rows from row on as -1, 0 and 1, and 2 of Q2_0 and PQ2_0, to out [n_rows][n],
   whatever the scales are. *t has passed bitnet_ternary_check; data is the whole tensor; err may be
   0. BITNET_ERR_FORMAT: an invalid code, with its place. BITNET_ERR_ARG: there are not that many
   rows. */
BITNET_API bitnet_result bitnet_ternary_unpack(const bitnet_ternary *t, const uint8_t *data,
                                               int32_t row, int32_t n_rows, int8_t *out,
                                               bitnet_error *err);

/* The scale of such a tensor. In blocks, the scales of all-zero blocks are ignored (1 if all are);
   if the others differ, BITNET_ERR_UNSUPPORTED, with both places. err may be 0. */
BITNET_API bitnet_result bitnet_ternary_scale(const bitnet_ternary *t, const uint8_t *data,
                                              float *out, bitnet_error *err);

/* Converts n weights to floats, of any type that an embedding may have (see embed_type). n must be
   whole blocks, or BITNET_ERR_ARG; err may be 0. BITNET_ERR_UNSUPPORTED: another type. A code 3
   counts as weight 2; where it is invalid, bitnet_ternary_unpack finds it. */
BITNET_API bitnet_result bitnet_floats_unpack(uint32_t type, const uint8_t *data, int32_t n,
                                              float *out, bitnet_error *err);

#ifdef __cplusplus
}
#endif

#endif /* BITNET_H */

/* End of the interface. If you only use the library, stop reading here. */

#ifdef BITNET_IMPLEMENTATION

/* Warnings of what is meant here are off up to the end of the implementation, and nowhere else. */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(BITNET__IMPLEMENTED)
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wpragmas"           /* names below that this compiler lacks */
  #pragma GCC diagnostic ignored "-Wunknown-warning-option"
  #ifdef BITNET_STATIC                 /* functions that the program does not use */
    #pragma GCC diagnostic ignored "-Wunused-function"
  #endif
  /* what the optimizer assumes, what it wishes to be told, and what it does not know of callers */
  #pragma GCC diagnostic ignored "-Wstrict-overflow"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=malloc"
  #pragma GCC diagnostic ignored "-Wsuggest-attribute=cold"
  #pragma GCC diagnostic ignored "-Winline"
  #pragma GCC diagnostic ignored "-Wnull-dereference"
  #pragma GCC diagnostic ignored "-Wstack-protector"
  /* conditions that are constant for some instruction sets */
  #pragma GCC diagnostic ignored "-Wduplicated-branches"
  #pragma GCC diagnostic ignored "-Wtautological-value-range-compare"
  /* texts cut on purpose, floats compared to the bit, layouts, switches, commas for semicolons */
  #pragma GCC diagnostic ignored "-Wformat-truncation"
  #pragma GCC diagnostic ignored "-Wfloat-equal"
  #pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
  #pragma GCC diagnostic ignored "-Wpadded"
  #pragma GCC diagnostic ignored "-Wswitch-enum"
  #pragma GCC diagnostic ignored "-Wswitch-default"
  #pragma GCC diagnostic ignored "-Wcomma"
  /* what is good C and not the best C++ */
  #pragma GCC diagnostic ignored "-Wold-style-cast"
  #pragma GCC diagnostic ignored "-Wuseless-cast"
  #pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
  #pragma GCC diagnostic ignored "-Wreserved-identifier"
  #pragma GCC diagnostic ignored "-Wreserved-macro-identifier"
  #pragma GCC diagnostic ignored "-Wc++98-compat-pedantic"
  #pragma GCC diagnostic ignored "-Wunsafe-buffer-usage"
#endif

/* A kernel table. Everything else about kernels is in @kernels. This part stands outside of the
   guard below, for programs that call kernels to test them: with BITNET__IMPLEMENTED they see it
   and link the rest. */
#ifndef BITNET__KERNEL_ABI
#define BITNET__KERNEL_ABI 11

/* CPU features, as bits of bitnet_kernels.needs. The operating system must support them too. */
typedef enum bitnet_cpu_features {
    BITNET_CPU_AVX2 = 1,         /* and FMA */
    BITNET_CPU_F16C = 2,
    BITNET_CPU_AVX512 = 4,       /* F, BW, DQ and VL */
    BITNET_CPU_AVX512VNNI = 8,
    BITNET_CPU_AVXVNNI = 16,     /* VNNI on ymm registers, for CPUs without AVX-512 */
    BITNET_CPU_AVX512VBMI = 32,
    BITNET_CPU_NEON = 64,
    BITNET_CPU_DOTPROD = 128,    /* SDOT and UDOT */
    BITNET_CPU_I8MM = 256,       /* SMMLA */
    BITNET_CPU_SIMD128 = 512,    /* WebAssembly: what the module was compiled for */
    BITNET_CPU_RELAXED = 1024,   /* and relaxed SIMD, if the engine computes it correctly */
    BITNET_CPU_AMX = 2048        /* AMX's tiles of int8, which Linux has permitted */
} bitnet_cpu_features;

/* Products of rows of weights with columns: out[c * stride + r] is that of row r and column c. */
typedef struct bitnet__dots {
    const uint8_t *w;
    const int8_t *q;                   /* [cols][n] */
    const int32_t *sums;               /* [cols], each of a column of q */
    int n, rows, cols;
    int32_t *out;
    size_t stride;
} bitnet__dots;

/* How a file stores a scale group: a block of weights with an F16 scale and a string of codes. The
   layouts are drawn under "a scale per group" in @kernels. */
typedef struct bitnet__blocks {
    int group;                         /* weights: 64, 128 or 256 */
    int bytes, scale_at, codes_at;     /* of a block; where in it they begin */
    int bits;                          /* of a code: 2, or 1; 0: codes are digits, of PTQ1_0 */
    void (*order)(const int8_t *q, int n, int8_t *to);     /* activations as the codes meet them */
} bitnet__blocks;

/* The same for weights with a scale d per group: out = sum over the groups g, in order, of
   dot * (d * scale), or with add out += that. */
typedef struct bitnet__grouped {
    const uint8_t *w;                  /* [rows][n / group] blocks */
    const bitnet__blocks *blocks;
    const int8_t *q;                   /* [cols][n], each group in the order of the blocks */
    const int32_t *sums;               /* [cols][n / group], of a group's q */
    const float *scales;               /* [cols][n / group]: what a code of q is worth */
    int n, rows, cols, add;
    float *out;
    size_t stride;
    int packed;                        /* 1: w is what pack_groups made */
} bitnet__grouped;

/* The gated delta rule for some value columns of a head, drawn under "a recurrent state" in
   @kernels. All arrays of tokens begin with the first one's; rows are stride floats apart. */
typedef struct bitnet__delta {
    float *state;                      /* [n_keys][n_values] */
    const float *q, *k;                /* [n_tokens][n_keys] */
    const float *v;                    /* [n_tokens][n_values] */
    const float *decay, *beta;         /* [n_tokens], gate_stride apart */
    float *out;                        /* [n_tokens][n_values], out_stride apart */
    int n_keys, n_values, n_tokens;    /* n_values is at most 32 */
    size_t stride, gate_stride, out_stride;
} bitnet__delta;

/* Every entry gives the same bits as the scalar table's for any input (where that is a NaN, any
   NaN).

   Weights have no alignment; their rows are contiguous. x and out are [cols][...]: row r and
   column (token) c of a product are at out[c * out_stride + r]. "Rounded to 13 bits" means at most
   13 significant bits, in 2^-113 .. 2^100 or 0: the product with an F16 is exact in a float, so a
   fused multiply-add gives the same bits. */
struct bitnet_kernels {
    const char *name;            /* scalar, avx2, neon, simd128 ... */
    uint32_t needs;              /* BITNET_CPU_* bits, all required */
    /* The layout of ternary weights, which dotrows_ternary reads: I2_S, as in a file, or what pack
       makes of it when a model is loaded. A row pack has pack_rows rows, a power of two up to
       MAX_PACK_ROWS; the last one is padded. Row r, a multiple of pack_rows, begins
       packed_bytes(n, r) bytes into the matrix. pack returns 0, or 1 if i2s has a code 3. */
    const char *layout;          /* I2_S, or TL2_R16: then it reads that tensor type in place */
    int pack_rows;
    size_t (*packed_bytes)(int n, int rows);
    int (*pack)(const uint8_t *i2s, int n, int rows, uint8_t *out);        /* of I2_S 0 */
    /* q[i] = clamp(round_half_even(x[i] * s), -128, 127) with s = 127 / max(max|x|, 1e-5). If any x
       is NaN, max|x| counts as 0; a NaN itself gives -128. *sum = sum of q. Returns s. n is at most
       2^20. */
    float (*quantize)(const float *x, int n, int8_t *q, int32_t *sum);
    /* Sums over i of (code - 1) * q[i], exact. w is I2_S (128 packing) or what pack made of it. n
       is a multiple of 128, at most 2^20. */
    void (*dotrows_ternary)(const bitnet__dots *d);
    /* Weights with a scale per group: dot is the sum over a group of (code - 1) * q, exact, or for
       codes of one bit of (2 code - 1) * q. A code 3 is only in groups of at most 128; n is a
       multiple of group, at most 2^20. With BITNET_NO_GROUPS: 0. */
    void (*dotrows_groups)(const bitnet__grouped *d);
    /* Packs up to 16 rows for dotrows_groups when a model is loaded: as drawn in @kernels, in the
       bytes of 16 rows. 0: the table reads only blocks as files have them. */
    void (*pack_groups)(const bitnet__blocks *b, const uint8_t *w, int n, int rows, uint8_t *out);
    /* out = sum over i of w[i] * x[i] in the order under DETERMINISM; w is little-endian. */
    void (*dotrows_f32)(const uint8_t *w, const float *x, int n, int rows, int cols,
                        float *out, size_t out_stride);
    void (*dotrows_f16)(const uint8_t *w, const float *x, int n, int rows, int cols,
                        float *out, size_t out_stride);
    void (*dotrows_bf16)(const uint8_t *w, const float *x, int n, int rows, int cols,
                         float *out, size_t out_stride);
    /* dotrows_f16 for x rounded to 13 bits: queries times the keys of an F16 cache. */
    void (*scores_f16)(const uint8_t *w, const float *x, int n, int rows, int cols, float *out,
                     size_t out_stride);
    /* out[c][i] += p[c][r] * w[r][i], with r in order. Rows of w are w_stride elements apart; p is
       [cols][p_stride], out is [cols][n]. For F16, p is rounded to 13 bits. */
    void (*sumrows_f32)(const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n,
                        int rows, int cols, float *out);
    void (*sumrows_f16)(const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n,
                        int rows, int cols, float *out);
    /* x = softmax(x * scale) in place; to_f13 1: rounded to 13 bits. n is at most 2^20. */
    void (*softmax)(float *x, int n, float scale, int to_f13);
    /* Rotates the pairs (i, i + n_rot / 2) of x [n] by angles given as n_rot / 2 cosines and then
       n_rot / 2 sines, and copies the rest, or with n_rot 0 all. to_f13 1: rounded to 13 bits. y
       may be x. */
    void (*rope)(const float *x, const float *cos_sin, int n_rot, int n, int to_f13, float *y);
    /* out = x as little-endian F16, rounded to nearest, ties to even. */
    void (*store_f16)(const float *x, int n, uint8_t *out);
    /* y[i] = dots[i] * f, or with add y[i] += dots[i] * f. */
    void (*dequantize)(const int32_t *dots, float f, int n, int add, float *y);
    /* y[i] = max(gate[i], 0)^2 * up[i]. */
    void (*relu2_gate)(const float *gate, const float *up, int n, float *y);
    /* y[i] = g / (1 + e^((a + b g g) g)) * up[i], with g = gate[i]. For a = -1, b = 0 that is
       SiLU(g), for a = -2 sqrt(2/pi), b = 0.044715 a the tanh form of GELU(g), times up. */
    void (*sigmoid_gate)(const float *gate, const float *up, float a, float b, int n, float *y);
    /* y[i] = x[i] / sqrt(mean(x^2) + eps) * gain[i]. y may be x. */
    void (*rmsnorm)(const float *x, const float *gain, int n, float eps, float *y);
    /* Sums over i of (code - 8) * q[i], exact, for codes of 4 bits: of 128 weights, byte j of 64
       has weight j in its upper half and weight 64 + j in its lower. n as in dotrows_ternary. */
    void (*dotrows_u4)(const bitnet__dots *d);
    /* dotrows_ternary for I2_S with codes 0 to 3, whatever the table's own layout. */
    void (*dotrows_i2s)(const bitnet__dots *d);
    /* Attention over an int8 cache, drawn under "an int8 cache" in @kernels: w has keys or values
       of heads of n elements, n a multiple of 4 up to 2^16, at `rows` positions, a multiple of 64.
       Scores: out[c * out_stride + r] = dot * (what a code of position r is worth), where dot is
       the sum over i of key code * q[c][i], exact. q is in -127 .. 127; sums [cols] are of q. With
       BITNET_NO_KV_I8 these three are 0. */
    void (*scores_i8)(const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows,
                      int cols, float *out, size_t out_stride);
    /* The weights of values: p [rows] times what a code of the position is worth, as multiples in
       0 .. 127 of a scale for each 64 positions: q [rows], scales [rows / 64]. Positions outside
       [from, to) weigh 0. */
    void (*weigh_i8)(const float *p, const uint8_t *w, int n, int rows, int from, int to,
                     uint8_t *q, float *scales);
    /* Elements [first, first + count) of the sums of values: out[c][i] += dot * scales[c][b] for
       each 64 positions b in order, where dot is the exact sum over these of p * value code. p is
       [cols][p_stride], scales [cols][p_stride / 64], out [cols][count]. */
    void (*sumrows_i8)(const uint8_t *w, const uint8_t *p, const float *scales, size_t p_stride,
                       int n, int first, int count, int rows, int cols, float *out);
    /* y[i] = x[i] / (1 + e^-gate[i]). x, gate and y may be the same. */
    void (*sigmoid)(const float *gate, const float *x, int n, float *y);
    /* Each block of x [n], a power of two, becomes H x, where H[i][j] = (-1)^popcount(i & j): sums
       and differences of elements 1 apart, then 2, 4 and so on. n is a multiple of block. */
    void (*hadamard)(float *x, int n, int block);
    /* Takes a run of tokens through a recurrent state; see bitnet__delta. */
    void (*delta_rule)(const bitnet__delta *d);
};
#endif

#ifndef BITNET__IMPLEMENTED
#define BITNET__IMPLEMENTED
#define BITNET__GOES_ON                /* until the row kernels in @kernels */

/* =============================================================================================
   @setup  includes, and what differs between compilers, CPUs and systems
   gcc without -O optimises this file nevertheless, as with -O2; with -Og it is 4 times slower than
   that. With clang and MSVC a file cannot ask for it: in debug builds, too, compile the file of
   yours that has BITNET_IMPLEMENTATION with -O2, or with /O2 and without /RTC. CMake's and Meson's
   bitnet is compiled so.

   The KB are of gcc 12 -O2 on x86-64. There the smallest program has 539 KB, stripped. Made so,
   it has 232 KB; with -O2 in place of -Os 281 KB, and then it writes faster by a third:

       cc -Os -s -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections
          -Wl,--gc-sections -DBITNET_STATIC -DBITNET_NO_AVXVNNI -DBITNET_NO_AVX512 -DBITNET_NO_TL2
          -DBITNET_NO_GROUPS -DBITNET_NO_KV_I8 main.c -o main -lpthread
   ============================================================================================= */

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifndef BITNET_VSNPRINTF
  #include <stdio.h>
  #define BITNET_VSNPRINTF vsnprintf
#endif

/* Floats must give the same bits everywhere: see DETERMINISM. */
#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
  #error "bitnet.h: -ffast-math (MSVC: /fp:fast) reorders sums; compile this file without it"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
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

/* Compilers whose intrinsics and atomics are known; some others also define __GNUC__. All others
   compile plain C without threads. */
#if (defined(__GNUC__) || defined(__clang__) || defined(_MSC_VER)) && !defined(__TINYC__) && \
    !defined(__PCC__)
  #define BITNET__KNOWN_COMPILER 1
#else
  #define BITNET__KNOWN_COMPILER 0
#endif
/* 0: a switch leaves the feature out. Where a condition begins with it, compilers drop the code
   behind it, and the functions that only that code calls. */
#ifdef BITNET_NO_GROUPS
  #define BITNET__GROUPS 0
#else
  #define BITNET__GROUPS 1
#endif
#ifdef BITNET_NO_KV_I8
  #define BITNET__KV_I8 0
#else
  #define BITNET__KV_I8 1
#endif
/* INLINE: always inlined, for functions with constant arguments. APART: never inlined, so that a
   loop has all registers for itself, a large frame leaves the stack, or a function that many call
   is there once. COLD: APART, and for size rather than speed. PREFETCH: asks for a line of memory.
   FORMAT: the parameters, counted from 1, that are printf's format and the first of its values. */
#if !BITNET__KNOWN_COMPILER
  #define BITNET__INLINE static
  #define BITNET__APART static
  #define BITNET__COLD static
  #define BITNET__PREFETCH(p) ((void)(p))
  #define BITNET__FORMAT(text, values)
#elif defined(__GNUC__) || defined(__clang__)
  #define BITNET__INLINE static inline __attribute__((always_inline))
  #define BITNET__APART static __attribute__((noinline))
  #define BITNET__COLD static __attribute__((noinline, cold))
  #define BITNET__PREFETCH(p) __builtin_prefetch((p), 0, 2)
  #ifdef __clang__
    #define BITNET__FORMAT(text, values) __attribute__((format(printf, text, values)))
  #else                                /* gcc's "printf" is Microsoft's on Windows */
    #define BITNET__FORMAT(text, values) __attribute__((format(gnu_printf, text, values)))
  #endif
#else
  #define BITNET__INLINE static __forceinline
  #define BITNET__APART static __declspec(noinline)
  #define BITNET__COLD BITNET__APART
  #define BITNET__PREFETCH(p) ((void)(p))
  #define BITNET__FORMAT(text, values)
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
  #define BITNET__ARCH_X86 1
#else
  #define BITNET__ARCH_X86 0
#endif
/* ARMv7-A counts if NEON can be compiled: gcc has an attribute for it, clang only an option. */
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
  #define BITNET__CPU_QUOTA 1          /* read from the text files of control groups */
  #include <stdio.h>
#endif

/* Without -O gcc optimises this file nevertheless, from here to its end. The system's headers come
   before that: without -O gcc's intrinsics are macros, which whoever includes this file may use. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__) && \
    !defined(BITNET_NO_OPTIMIZE)
  #if BITNET__ARCH_X86 && BITNET__KNOWN_COMPILER && !defined(BITNET_NO_SIMD)
    #include <immintrin.h>
  #endif
  #define BITNET__OPTIMIZED
  #pragma GCC optimize("O2")
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =============================================================================================
   @util  memory, UTF-8, error texts, a heap, little-endian loads and stores, float formats
   No other section calls malloc, and only @threads formats text, its paths. Files and weights are
   read byte by byte or with memcpy, because nothing in a file is known to be aligned.
   ============================================================================================= */

enum {
    BITNET__MAX_ROW = 1 << 20,         /* elements in a row of weights: integer sums fit int32 */
    BITNET__MAX_PACK_ROWS = 256,       /* rows that a kernel table may pack together */
    BITNET__ROWS = BITNET__ARCH_WASM ? 640 : BITNET__MAX_PACK_ROWS,    /* rows of a layer whose
                                          products are computed at a time; the WASM kernels look up
                                          that many in a table */
    BITNET__LANES = 16,                /* partial sums of every float sum */
    BITNET__TEXT = 128                 /* bytes of a short text */
};

static void *bitnet__alloc(const bitnet_allocator *a, size_t size) {
    char *raw, *p;
    if (size > SIZE_MAX - 128) return 0;
    if (a->alloc_fn) {                 /* 64 bytes in front keep the size for free_fn */
        size += 64;
        p = (char *)a->alloc_fn(a->ud, size, 64);
        if (p) memcpy(p, &size, sizeof size);
        return p ? p + 64 : 0;
    }
    raw = (char *)malloc(size + 128);
    if (!raw) return 0;
    /* The pointer for free() is stored just below the aligned memory. */
    p = raw + 64;
    p += (64 - ((uintptr_t)p & 63)) & 63;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

BITNET__APART void bitnet__free(const bitnet_allocator *a, void *p) {
    size_t size;
    void *raw;
    if (!p) return;
    if (a->alloc_fn) {
        raw = (char *)p - 64;
        memcpy(&size, raw, sizeof size);
        a->free_fn(a->ud, raw, size);
        return;
    }
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}

/* Asks for large pages for what is streamed through for each token: with small pages, 5 to 20 % of
   the time went into address translation. A mapped file has them if the system reads it in runs
   that large, which it does when asked beforehand. A single sequence's cache stays with small ones:
   the first token writes a little everywhere in it, and large pages would fill hundreds of MB with
   zeros then. A strict -std=c99 hides MADV_HUGEPAGE. */
static void bitnet__huge_pages(const void *p, size_t size) {
#if defined(BITNET__MMAP_POSIX) && defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t to = ((uintptr_t)p + size) / page * page;
    if (from < to) madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
    (void)p; (void)size;
}

/* The same, of memory from malloc: a caller's own stays as it is. */
static void bitnet__huge_memory(const bitnet_allocator *a, const void *p, size_t size) {
    if (!a->alloc_fn) bitnet__huge_pages(p, size);
}

/* Divides an allocation into arrays. With base 0 it only measures. used is UINT64_MAX if that is
   too large. */
typedef struct bitnet__arena { char *base; uint64_t used; } bitnet__arena;

BITNET__APART void *bitnet__arena_take(bitnet__arena *a, uint64_t count, uint64_t size) {
    void *p = a->base ? a->base + a->used : 0;
    if (a->used == UINT64_MAX || count > (UINT64_MAX / 4 - a->used) / size) {
        a->used = UINT64_MAX;
        return 0;
    }
    a->used += (count * size + 63) / 64 * 64;
    return p;
}

/* Allocates what was measured, to be divided in the same order. Returns 0 if there is no memory. */
static int bitnet__arena_alloc(bitnet__arena *a, const bitnet_allocator *allocator) {
    if (a->used < SIZE_MAX) a->base = (char *)bitnet__alloc(allocator, (size_t)a->used);
    if (a->base) a->used = 0;
    return a->base != 0;
}

/* ---- texts ---- */

BITNET_API bitnet_text bitnet_text_of(const char *s) {
    bitnet_text t;
    t.data = s;
    t.size = s ? strlen(s) : 0;
    return t;
}

static int bitnet__is_text(bitnet_text t, const char *s) {
    return t.data && t.size == strlen(s) && !memcmp(t.data, s, t.size);
}

/* ---- UTF-8 and error texts ---- */

/* The length of a sequence with this first byte, 1 to 4, or 0 if none begins with it. C0 and C1
   could only begin overlong forms, F5 and up only code points above U+10FFFF. */
static uint32_t bitnet__utf8_length(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    return lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : lead < 0xF5 ? 4u : 0u;
}

/* Whether b may be the second byte after lead. This rules out the remaining overlong forms (E0,
   F0), surrogates (ED) and code points above U+10FFFF (F4). Later bytes may be any of 80 to BF. */
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

BITNET_API size_t bitnet_utf8_decode(const char *text, size_t n, uint32_t *cp) {
    const uint8_t *p = (const uint8_t *)text;
    uint32_t any;
    return text && n > 0 ? bitnet__utf8_decode(p, p + n, cp ? cp : &any) : 0;
}

/* Ranges of invisible code points: controls, line separators, annotation marks, and Unicode's
   Default_Ignorable_Code_Point (zero width, changes of direction, fillers, variation selectors,
   tags). They could upset a terminal or disguise a text. */
static const uint32_t bitnet__invisible[][2] = {
    {0, 0x1F}, {0x7F, 0x9F}, {0xAD, 0xAD}, {0x34F, 0x34F}, {0x61C, 0x61C}, {0x115F, 0x1160},
    {0x17B4, 0x17B5}, {0x180B, 0x180F}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
    {0x3164, 0x3164}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}, {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFB},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}
};

static int bitnet__is_visible(uint32_t cp) {
    size_t i;
    for (i = 0; i < sizeof bitnet__invisible / sizeof bitnet__invisible[0]; i++)
        if (cp >= bitnet__invisible[i][0] && cp <= bitnet__invisible[i][1]) return 0;
    return 1;
}

BITNET_API int bitnet_clean_text(const char *text, size_t n, char *buf, size_t cap) {
    const uint8_t *p = (const uint8_t *)text, *end;
    size_t length = 0, kept = 0;
    if (!text && n > 0) return BITNET_ERR_ARG;
    if (n > INT32_MAX) return BITNET_ERR_LIMIT;
    for (end = n ? p + n : p; p < end; ) {
        uint32_t cp, size = bitnet__utf8_decode(p, end, &cp);
        const int visible = size > 0 && bitnet__is_visible(cp);
        const uint32_t out = visible ? size : 1;
        if (buf && kept == length && cap > length && cap - length > out) {
            if (visible) memmove(buf + length, p, size);
            else buf[length] = '?';
            kept += out;
        }
        length += out;
        p += size ? size : 1;
    }
    if (buf && cap > 0) buf[kept] = 0;
    return (int)length;
}

/* Fills err, which may be null, and returns code. Print a number that may be INT_MIN with %lld:
   stb_sprintf negates within the type. */
BITNET__FORMAT(3, 4)
static bitnet_result bitnet__fail(bitnet_error *err, bitnet_result code, const char *format, ...) {
    va_list args;
    if (!err) return code;
    memset(err->reserved, 0, sizeof err->reserved);
    err->code = code;
    va_start(args, format);
    BITNET_VSNPRINTF(err->text, (int)sizeof err->text, format, args);
    va_end(args);
    err->text[sizeof err->text - 1] = 0;
    bitnet_clean_text(err->text, strlen(err->text), err->text, sizeof err->text);
    return code;
}

/* Reserved words of a struct of parameters must be 0. */
static bitnet_result bitnet__check_reserved(const uint64_t *words, int n, const char *of,
                                            bitnet_error *err) {
    int i;
    for (i = 0; i < n; i++)
        if (words[i])
            return bitnet__fail(err, BITNET_ERR_ARG, "%s: a reserved word is not 0: the struct was "
                                "not cleared, or a newer version's", of);
    return BITNET_OK;
}

/* Formats a short text: a key, a tensor name, a number. The rest is cut off. */
BITNET__FORMAT(2, 3)
static void bitnet__format(char buf[BITNET__TEXT], const char *format, ...) {
    va_list args;
    va_start(args, format);
    BITNET_VSNPRINTF(buf, (int)BITNET__TEXT, format, args);
    va_end(args);
}

/* The system's reason for its last error: "No such file or directory". */
#if defined(BITNET__FILES_WIN32)
static void bitnet__system_reason(char buf[BITNET__TEXT]) {
    const DWORD code = GetLastError();
    WCHAR wide[512];                       /* a text that does not fit is not returned at all */
    char text[3 * 512 + 1];                /* a UTF-16 unit has at most 3 bytes in UTF-8 */
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                             FORMAT_MESSAGE_MAX_WIDTH_MASK, 0, code, 0, wide, 512, 0);
    int size;
    while (n > 0 && (wide[n - 1] == ' ' || wide[n - 1] == '.')) n--;
    size = WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, text, (int)sizeof text - 1, 0, 0);
    text[size] = 0;
    if (size > 0) bitnet__format(buf, "%s", text);
    else bitnet__format(buf, "system error %lu", (unsigned long)code);
}
#elif !defined(BITNET_NO_STDIO)
static void bitnet__system_reason(char buf[BITNET__TEXT]) {
    const int code = errno;
  #if defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__)
    if (strerror_r(code, buf, BITNET__TEXT)) bitnet__format(buf, "system error %d", code);
  #else                                    /* thread-safe in glibc, musl and bionic */
    bitnet__format(buf, "%s", code ? strerror(code) : "the system gives no reason");
  #endif
}
#endif

/* Writes a code point as UTF-8; returns its length. */
static uint32_t bitnet__utf8_encode(uint32_t cp, uint8_t *out) {
    const uint32_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    uint32_t i;
    for (i = n - 1; i > 0; i--, cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 63));
    out[0] = (uint8_t)(lead[n] | cp);
    return n;
}

/* Compares two strings by bytes; a prefix comes first. */
static int bitnet__compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len) {
    const int c = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* ---- a binary heap ----
   The root comes before all others in the order that before() defines. The functions are inlined
   into each user, where size and before are constants, and are then as fast as a heap that is
   written for one type. */

typedef struct bitnet__heap {
    void *first;                       /* element i is at first + i * stride */
    size_t stride, size;               /* size: 4 or 8 bytes, which are all that is moved */
    int (*before)(const void *arg, const void *a, const void *b);
    const void *arg;
} bitnet__heap;

BITNET__INLINE void *bitnet__heap_at(const bitnet__heap *h, size_t i) {
    return (char *)h->first + i * h->stride;
}

/* Puts x into the free place i of n, or lower: children that come before x move up. x lies outside
   the heap. */
BITNET__INLINE void bitnet__heap_sink(const bitnet__heap *h, size_t n, size_t i, const void *x) {
    size_t child;
    for (child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n &&
            h->before(h->arg, bitnet__heap_at(h, child + 1), bitnet__heap_at(h, child)))
            child++;
        if (!h->before(h->arg, bitnet__heap_at(h, child), x)) break;
        memcpy(bitnet__heap_at(h, i), bitnet__heap_at(h, child), h->size);
        i = child;
    }
    memcpy(bitnet__heap_at(h, i), x, h->size);
}

/* Puts x into the free place i, or higher: parents that come after x move down. */
BITNET__INLINE void bitnet__heap_rise(const bitnet__heap *h, size_t i, const void *x) {
    for (; i > 0 && h->before(h->arg, x, bitnet__heap_at(h, (i - 1) / 2)); i = (i - 1) / 2)
        memcpy(bitnet__heap_at(h, i), bitnet__heap_at(h, (i - 1) / 2), h->size);
    memcpy(bitnet__heap_at(h, i), x, h->size);
}

/* Makes n elements a heap. x is room for one element. */
BITNET__INLINE void bitnet__heap_make(const bitnet__heap *h, size_t n, void *x) {
    size_t i;
    for (i = n / 2; i-- > 0;) {
        memcpy(x, bitnet__heap_at(h, i), h->size);
        bitnet__heap_sink(h, n, i, x);
    }
}

/* Moves the root of n elements behind the others. x is room for one element. */
BITNET__INLINE void bitnet__heap_pop(const bitnet__heap *h, size_t n, void *x) {
    memcpy(x, bitnet__heap_at(h, n - 1), h->size);
    memmove(bitnet__heap_at(h, n - 1), h->first, h->size);
    bitnet__heap_sink(h, n - 1, 0, x);
}

/* An order of indices into `arg`; a heap in the reverse order sorts them. */
typedef struct bitnet__order {
    int (*less)(const void *arg, uint32_t a, uint32_t b);
    const void *arg;
} bitnet__order;

static int bitnet__index_after(const void *arg, const void *a, const void *b) {
    const bitnet__order *o = (const bitnet__order *)arg;
    return o->less(o->arg, *(const uint32_t *)b, *(const uint32_t *)a);
}

/* Heap sort of n indices into `arg`, which are stride bytes apart. Not qsort: it takes no context,
   may allocate, and may take quadratic time. */
static void bitnet__sort(uint32_t *list, size_t stride, uint32_t n,
                         int (*less)(const void *arg, uint32_t a, uint32_t b), const void *arg) {
    const bitnet__order order = {less, arg};
    const bitnet__heap heap = {list, stride, sizeof *list, bitnet__index_after, &order};
    uint32_t i, x;
    bitnet__heap_make(&heap, n, &x);
    for (i = n; i > 1; i--) bitnet__heap_pop(&heap, i, &x);
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

static void bitnet__put_u16(uint8_t *p, uint32_t x) {
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static void bitnet__put_u32(uint8_t *p, uint32_t x) {
    bitnet__put_u16(p, x);
    bitnet__put_u16(p + 2, x >> 16);
}

static void bitnet__put_u64(uint8_t *p, uint64_t x) {
    bitnet__put_u32(p, (uint32_t)x);
    bitnet__put_u32(p + 4, (uint32_t)(x >> 32));
}

#define BITNET__HASH_START 0xcbf29ce484222325u

/* Continues a hash with n bytes: the round of FNV-1a, but with 8 bytes at a time (the last ones
   padded with zeros), and a shift as in MurmurHash, since products move bits only upwards. With the
   rest fixed each round is a bijection of h and of the 8 bytes, so data that differs in one round's
   bytes never has the same hash. This finds damage, not forgery. 8 bytes take about 6 cycles. */
static uint64_t bitnet__hash(uint64_t h, const uint8_t *p, size_t n) {
    uint8_t last[8] = {0};
    for (; n >= 8; p += 8, n -= 8) {
        h = (h ^ bitnet__get_u64(p)) * 0x100000001b3u;
        h ^= h >> 32;
    }
    if (n == 0) return h;
    memcpy(last, p, n);
    return bitnet__hash(h, last, 8);
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

/* F16 (1 sign, 5 exponent, 10 mantissa bits) to F32, exact. After the shift into F32's fields the
   exponent is 112 too small: normals add it, and for subnormals a subtraction of floats normalises.
   NaN becomes quiet and keeps its payload, as with F16C and NEON. */
static float bitnet__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13, bits;
    if (rest >= 0x0f800000u) bits = rest | 0x7f800000u | (rest > 0x0f800000u ? 0x400000u : 0u);
    else if (rest >= 0x00800000u) bits = rest + 0x38000000u;
    else bits = bitnet__float_bits(bitnet__float_from_bits(rest + 0x38800000u) -
                                   bitnet__float_from_bits(0x38800000u));
    return bitnet__float_from_bits(sign | bits);
}

/* F32 to F16, rounded to nearest, ties to even. Overflow gives infinity; NaN becomes quiet. */
static uint16_t bitnet__f32_to_f16(float x) {
    uint32_t bits = bitnet__float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);   /* >= 65520 rounds to infinity */
    if (rest < 0x38800000u) {
        /* Below 2^-14 the last bit of an F16 is 2^-24, as is the last bit of an F32 in [0.5, 1):
           adding 0.5 rounds to it. */
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

/* A GGUF string array, checked by the reader: count strings, each a u64 length and the bytes. */
typedef struct bitnet__strings {
    const uint8_t *data;
    size_t size;
    uint64_t count;
} bitnet__strings;

BITNET_API const char *bitnet_version(void) { return BITNET_VERSION; }
BITNET_API int bitnet_version_number(void) { return BITNET_VERSION_NUMBER; }

BITNET_API const char *bitnet_result_text(bitnet_result r) {
    switch (r) {
#define BITNET_X(name, value, text) case name: return text;
        BITNET_RESULTS(BITNET_X)
#undef BITNET_X
        default: return "unknown result";
    }
}

/* =============================================================================================
   @math  exp, log, sqrt, sin, cos
   The last bit of libm's results differs between machines. These functions consist of additions,
   multiplications and divisions in a fixed order, which IEEE 754 defines to the bit. It defines the
   square root, too.
   ============================================================================================= */

/* The nearest integer, ties to even, for |x| < 2^51. A double near 1.5 * 2^52 has no fraction, so
   the addition rounds. */
static double bitnet__round(double x) {
    volatile double big = x + 6755399441055744.0;  /* volatile: must not be optimised away */
    return big - 6755399441055744.0;
}

/* x * 2^e for results in the normal range. */
static double bitnet__scale2(double x, int e) {
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double two_e;
    memcpy(&two_e, &bits, 8);
    return x * two_e;
}

/* sqrt rounded to nearest, as IEEE 754 defines it, for 0, infinity, NaN and positive normal x;
   other x give a useless number. x = m 2^e with e even: the root of m 2^54, digit by digit, has 54
   bits, one more than a double. That bit rounds. The root is never halfway: an odd number has an
   odd square. Kernels may use an instruction instead. Bound: rest <= 2 root, under 2^55. */
BITNET__APART double bitnet__sqrt(double x) {
    uint64_t m, root = 0, rest = 0;
    int e, i;
    memcpy(&m, &x, 8);
    e = (int)(m >> 52 & 0x7ff) - 1023 - 52;
    if (x == 0 || e == 1024 - 52) return x;
    m = (m & 0xfffffffffffffu) | 0x10000000000000u;
    if (e % 2 != 0) {
        m *= 2;
        e--;
    }
    m <<= 10;
    for (i = 0; i < 54; i++, m <<= 2) {
        const uint64_t next = rest << 2 | m >> 62;
        const uint64_t digit = 4 * root + 1;       /* (2 root + 1)^2 - (2 root)^2 */
        root = 2 * root + (next >= digit);
        rest = next >= digit ? next - digit : next;
    }
    root = (root + 1) / 2;
    return bitnet__scale2((double)root, e / 2 - 26);
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
   Taylor to r^6 / 6!, relative error under 3e-7. e^-64 is 2^-92, so even among 2^20 positions a
   probability exceeds 2^-113, and the last of its 13 bits is worth at least 2^-125. */
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

/* x rounded to 13 significant bits by Veltkamp's splitting. An F16 has 11, the last worth at least
   2^-24, so their product has at most 24, the last worth at least 2^-149: it is exact. */
static float bitnet__round13(float x) {
    float t = x * 2049.0f;
    return t - (t - x);
}

/* x rounded to 13 bits, clamped to +-2^100, and 0 below 2^-100. NaN stays NaN. */
static float bitnet__to_f13(float x) {
    const float huge = 1.2676506e30f, tiny = 7.8886091e-31f;
    if (x < tiny && x > -tiny) return 0.0f;
    x = -huge > x ? -huge : x;
    x = huge < x ? huge : x;
    return bitnet__round13(x);
}

/* =============================================================================================
   @threads  a fixed team of worker threads
   A team calls job(arg, task, thread) for every task in [0, n) and returns when all are done. The
   caller is thread 0: it runs task 0, then every task that no worker has taken yet. So it never
   waits for a worker that sleeps or has lost its CPU, except in the middle of a task. A token takes
   a few hundred such calls of about 100 us. Waking a thread takes longer than most waits, so
   threads spin for 10 to 100 us before they sleep.

   By default a context has as many threads as the process may use: the CPUs in its affinity mask
   (Linux and Windows; elsewhere all that are online), and on Linux no more than its cgroup's CPU
   quota, rounded up. If the system cannot start a thread, it works with fewer. Small steps run on
   the caller's thread alone. If sharing saves no time, because other programs keep the CPUs busy,
   all run there for up to a second.

   Workers block all signals except SIGBUS, SIGFPE, SIGILL and SIGSEGV. After fork() a child process
   has no workers: it can use and free the contexts and models it inherits, with the same results,
   on the caller's thread. It must not use a context that another thread was using during the fork,
   or whose step_fn or parallel_fn called fork(), nor continue a load whose hook did.
   ============================================================================================= */

enum {
    BITNET__MAX_THREADS = 256,
    BITNET__SPINS = 1500
};

typedef void (*bitnet__job)(void *arg, int task, int thread);
typedef uintptr_t bitnet__atomic;

#if defined(BITNET__THREADS_POSIX)
typedef pthread_mutex_t bitnet__mutex;
typedef pthread_cond_t bitnet__cond;
typedef pthread_t bitnet__thread;
  #define BITNET__THREAD_RETURN void *
static uintptr_t bitnet__this_thread(void) {
    const pthread_t self = pthread_self();     /* a number, or on some systems a pointer */
    return (uintptr_t)self;
}
static uintptr_t bitnet__this_process(void) { return (uintptr_t)getpid(); }
static int bitnet__mutex_init(bitnet__mutex *m) { return pthread_mutex_init(m, 0) == 0; }
static void bitnet__mutex_destroy(bitnet__mutex *m) { pthread_mutex_destroy(m); }
static void bitnet__lock(bitnet__mutex *m) { pthread_mutex_lock(m); }
static void bitnet__unlock(bitnet__mutex *m) { pthread_mutex_unlock(m); }
static int bitnet__cond_init(bitnet__cond *c) { return pthread_cond_init(c, 0) == 0; }
static void bitnet__cond_destroy(bitnet__cond *c) { pthread_cond_destroy(c); }
static void bitnet__cond_wait(bitnet__cond *c, bitnet__mutex *m) { pthread_cond_wait(c, m); }
static void bitnet__cond_wake_all(bitnet__cond *c) { pthread_cond_broadcast(c); }
static void bitnet__thread_join(bitnet__thread t) { pthread_join(t, 0); }

/* ---- signals ----
   Workers start with signals blocked, so that a program's signals go to its own threads. Signals of
   faults are not blocked: a fault whose signal is blocked ends the program without its handler. */
#if defined(__linux__)                 /* hidden by -std=c99: declared here under other names */
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

static int bitnet__thread_start(bitnet__thread *t, BITNET__THREAD_RETURN (*fn)(void *), void *arg) {
    int ok;
#if defined(__linux__) || defined(SIG_SETMASK)     /* not Emscripten, which has no signals */
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    bitnet__sigset all, old;
    size_t i;
    bitnet__sigfillset(&all);
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) bitnet__sigdelset(&all, faults[i]);
    bitnet__sigmask(BITNET__SIG_SETMASK, &all, &old);
#endif
    ok = pthread_create(t, 0, fn, arg) == 0;
#if defined(__linux__) || defined(SIG_SETMASK)
    bitnet__sigmask(BITNET__SIG_SETMASK, &old, 0);
#endif
    return ok;
}
#elif defined(BITNET__THREADS_WIN32)
typedef SRWLOCK bitnet__mutex;
typedef CONDITION_VARIABLE bitnet__cond;
typedef HANDLE bitnet__thread;
  #define BITNET__THREAD_RETURN DWORD WINAPI
static uintptr_t bitnet__this_thread(void) { return GetCurrentThreadId(); }
static uintptr_t bitnet__this_process(void) { return 0; }      /* Windows has no fork */
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
#else
static uintptr_t bitnet__this_thread(void) { return UINTPTR_MAX; }
#endif

/* ---- atomics ----
   A load sees all that the storing thread did before its store. swap_if stores `to` if the value is
   `from`, and returns whether it was. */

#if !defined(BITNET__THREADS_POSIX) && !defined(BITNET__THREADS_WIN32)   /* one thread */
static uintptr_t bitnet__load_acquire(const bitnet__atomic *p) { return *p; }
static void bitnet__store_release(bitnet__atomic *p, uintptr_t v) { *p = v; }
static int bitnet__swap_if(bitnet__atomic *p, uintptr_t from, uintptr_t to) {
    if (*p != from) return 0;
    *p = to;
    return 1;
}
#elif defined(__GNUC__) || defined(__clang__)
static uintptr_t bitnet__load_acquire(const bitnet__atomic *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static void bitnet__store_release(bitnet__atomic *p, uintptr_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static int bitnet__swap_if(bitnet__atomic *p, uintptr_t from, uintptr_t to) {
    return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
#else
static int bitnet__swap_if(bitnet__atomic *p, uintptr_t from, uintptr_t to) {
    return InterlockedCompareExchangePointer((void *volatile *)p, (void *)to, (void *)from) ==
           (void *)from;
}
static uintptr_t bitnet__load_acquire(const bitnet__atomic *p) {
    return (uintptr_t)InterlockedCompareExchangePointer((void *volatile *)p, 0, 0);
}
static void bitnet__store_release(bitnet__atomic *p, uintptr_t v) {
    InterlockedExchangePointer((void *volatile *)p, (void *)v);
}
#endif

/* Adds to a counter; returns what it is then. */
static uintptr_t bitnet__count(bitnet__atomic *p, uintptr_t change) {
    for (;;) {
        const uintptr_t now = bitnet__load_acquire(p);
        if (bitnet__swap_if(p, now, now + change)) return now + change;
    }
}

#if defined(BITNET__THREADS_POSIX) || defined(BITNET__THREADS_WIN32)

enum { BITNET__OWN_THREADS = BITNET__MAX_THREADS };    /* the most that a team can have */

/* ---- how many CPUs this process may use ---- */

#ifdef BITNET__CPU_QUOTA

enum { BITNET__PATH = 1024 };          /* bytes of the longest path, with its 0 */

/* Reads up to n numbers from a control group's file; returns how many there are. mount: the folder
   of the root group. */
static int bitnet__read_numbers(const char *mount, const char *group, const char *name,
                                long long *numbers, int n) {
    char path[BITNET__PATH];
    FILE *f;
    int i = 0;
    if (snprintf(path, sizeof path, "%s%s/%s", mount, group, name) >= BITNET__PATH) return 0;
    f = fopen(path, "rb");
    if (!f) return 0;
    while (i < n && fscanf(f, "%lld", &numbers[i]) == 1) i++;
    fclose(f);
    return i;
}

/* The quota of one control group as a number of CPUs, rounded up; without one, the maximum. */
static int bitnet__cgroup_cpus(const char *mount, const char *cgroup) {
    long long us[2];                   /* of CPU time, per period of this length */
    if (bitnet__read_numbers(mount, cgroup, "cpu.max", us, 2) < 2 &&             /* version 2 */
        (bitnet__read_numbers(mount, cgroup, "cpu.cfs_quota_us", us, 1) < 1 ||   /* version 1 */
         bitnet__read_numbers(mount, cgroup, "cpu.cfs_period_us", us + 1, 1) < 1))
        return BITNET__MAX_THREADS;
    if (us[0] < 1 || us[1] < 1 || us[0] / us[1] >= BITNET__MAX_THREADS) return BITNET__MAX_THREADS;
    return (int)(us[0] / us[1]) + (us[0] % us[1] > 0);
}

/* The least quota of this process's control groups and their ancestors. The file's lines are
   number:controllers:/group; in version 2 there are no controllers. root is put in front of all
   paths; only tests use it. */
static int bitnet__quota_cpus(const char *root) {
    char line[BITNET__PATH], mount[BITNET__PATH];
    int least = BITNET__MAX_THREADS, at_start = 1, cpus;
    FILE *f;
    if (snprintf(line, sizeof line, "%s/proc/self/cgroup", root) >= BITNET__PATH) return least;
    f = fopen(line, "rb");
    if (!f) return least;
    while (fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':'), *group, *cpu;      /* list: ",controllers,/group" */
        const int is_rest = !at_start;     /* of a line that is longer than the buffer */
        at_start = strchr(line, '\n') != 0;
        if (is_rest || !list || !(group = strchr(list + 1, ':')) || group[1] != '/') continue;
        *list = *group++ = ',';
        group[strcspn(group, "\n")] = 0;
        if (!strncmp(group, "/..", 3)) *group = 0;     /* outside of what is mounted here */
        cpu = strstr(list, ",cpu,");
        if (group - list > 2 && (!cpu || cpu > group)) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, group - list > 2 ? "/cpu" : "");
        for (;; *strrchr(group, '/') = 0) {
            cpus = bitnet__cgroup_cpus(mount, group);
            if (cpus < least) least = cpus;
            if (!*group) break;
        }
    }
    fclose(f);
    return least;
}

#else
static int bitnet__quota_cpus(const char *root) { (void)root; return BITNET__MAX_THREADS; }
#endif

#ifdef __linux__   /* <sched.h> declares it only with _GNU_SOURCE */
extern int (bitnet__sched_getaffinity)(int pid, size_t size, void *mask)
    __asm__("sched_getaffinity");
#endif

/* The CPUs on which the system lets this process run. */
static int bitnet__allowed_cpus(void) {
#if defined(_WIN32)
    DWORD_PTR process, all;
    SYSTEM_INFO si;
    int n = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &process, &all))
        for (; process; process &= process - 1) n++;
    if (n > 0) return n;               /* 0: more than 64 CPUs */
    GetSystemInfo(&si);
    return (int)si.dwNumberOfProcessors;
#else
  #ifdef __linux__
    uint8_t mask[1024] = {0};          /* 8192 CPUs, the most that Linux supports */
    size_t i;
    int n = 0;
    if (bitnet__sched_getaffinity(0, sizeof mask, mask) >= 0)
        for (i = 0; i < 8 * sizeof mask; i++) n += mask[i / 8] >> i % 8 & 1;
    if (n > 0) return n;
  #endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* How many threads of this process can run at the same time. */
static int bitnet__usable_cpus(void) {
    const int n = bitnet__allowed_cpus(), quota = bitnet__quota_cpus("");
    return n < 1 ? 1 : n < quota ? n : quota;
}

/* ---- tasks ----
   One word holds the number of tasks (upper 16 of 32 bits) and how many are taken (lower 16 bits).
   It is only ever counted up, so no thread can take a task of a call that has ended. A thread reads
   the job after it has taken a task, and the job stays until all tasks that were taken are done. */

static uintptr_t bitnet__tasks(int n, int jobs) { (void)jobs; return (uintptr_t)n << 16; }
static int bitnet__tasks_left(uintptr_t tasks) { return (tasks & 0xffff) < tasks >> 16; }

/* Takes the next task; -1: none is left. thread and last, the thread's previous task, matter only
   without atomics. */
static int bitnet__claim(bitnet__atomic *tasks, int thread, int last) {
    (void)thread; (void)last;
    for (;;) {
        const uintptr_t now = bitnet__load_acquire(tasks);
        if (!bitnet__tasks_left(now)) return -1;
        if (bitnet__swap_if(tasks, now, now + 1)) return (int)(now & 0xffff);
    }
}

/* ---- does sharing pay? ----
   Not if other programs use the CPUs: a worker that loses its CPU in the middle of a task delays
   the caller by milliseconds. So the time of each shared call is compared with the time that the
   caller would have needed alone, estimated from its own tasks. Gains and losses add up to a
   balance of at most bitnet__credit. One call can lose at most half of that, so that a single delay
   does not count. When the balance is used up, the caller works alone for a pause, which doubles
   each time that this happens again soon. All times are in nanoseconds. */

static const int64_t bitnet__credit = 4000000;
static const int64_t bitnet__least_pause = 32000000, bitnet__most_pause = 1024000000;

typedef struct bitnet__ledger {
    int64_t balance;
    int64_t pause, end;                /* length and end of the latest pause */
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
#else                                  /* -std=c99 hides clock_gettime */
    struct timeval t;
    gettimeofday(&t, 0);
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
#endif
}

/* 1 unless sharing is paused. If more than a whole pause is left, the clock was set back: the
   pause is over. */
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
    int index;                         /* from 1 on */
} bitnet__worker;

enum { BITNET__WORKERS, BITNET__CALLER };      /* those that wait for each other */

typedef struct bitnet__team {
    bitnet__atomic tasks;              /* of the current call */
    bitnet__atomic n_left;             /* tasks that are not done */
    bitnet__atomic n_asleep[2];        /* of workers, of callers; changes under the mutex */
    bitnet__atomic quit;               /* 1: workers end */
    char pad[128 - 5 * sizeof(bitnet__atomic)];    /* keeps the rest off the busy cache lines */
    bitnet__job job;
    void *arg;
    int n_workers;
    bitnet__mutex mutex;
    bitnet__cond wake[2];              /* workers and the caller */
    bitnet__ledger ledger;
    uintptr_t process;                 /* that started it */
    bitnet__worker workers[BITNET__MAX_THREADS];
} bitnet__team;

/* Tells the core that this is a spin loop; 5 to 60 ns. */
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

static int bitnet__must_wait(bitnet__team *t, int who) {
    if (who == BITNET__CALLER) return bitnet__load_acquire(&t->n_left) > 0;
    return !bitnet__tasks_left(bitnet__load_acquire(&t->tasks)) && !bitnet__load_acquire(&t->quit);
}

/* Returns when there is something to do. The caller may not notice that a worker is about to sleep:
   that worker then sleeps through the call, which does not wait for it. */
static void bitnet__await(bitnet__team *t, int who) {
    int i;
    for (i = 0; i < BITNET__SPINS; i++) {
        if (!bitnet__must_wait(t, who)) return;
        bitnet__pause();
    }
    bitnet__lock(&t->mutex);
    bitnet__store_release(&t->n_asleep[who], t->n_asleep[who] + 1);
    while (bitnet__must_wait(t, who)) bitnet__cond_wait(&t->wake[who], &t->mutex);
    bitnet__store_release(&t->n_asleep[who], t->n_asleep[who] - 1);
    bitnet__unlock(&t->mutex);
}

static BITNET__THREAD_RETURN bitnet__worker_main(void *p) {
    bitnet__worker *w = (bitnet__worker *)p;
    bitnet__team *t = w->team;
    uintptr_t asleep;
    int task;
    for (;;) {
        bitnet__await(t, BITNET__WORKERS);
        if (bitnet__load_acquire(&t->quit)) return 0;
        while ((task = bitnet__claim(&t->tasks, 0, 0)) >= 0) {
            t->job(t->arg, task, w->index);
            if (bitnet__count(&t->n_left, UINTPTR_MAX) > 0) continue;
            /* The last task. A sleeping caller set n_asleep before it checked n_left. */
            bitnet__lock(&t->mutex);
            asleep = t->n_asleep[BITNET__CALLER];
            bitnet__unlock(&t->mutex);
            if (asleep) bitnet__cond_wake_all(&t->wake[BITNET__CALLER]);
        }
    }
}

/* Returns the time gained over working alone; a loss is negative. The caller's longest task is left
   out of the estimate: another program may have had the CPU meanwhile. */
static int64_t bitnet__team_run(bitnet__team *t, int n, bitnet__job job, void *arg) {
    const int64_t start = bitnet__clock();
    int64_t now, since, own = 0, longest = 0;
    int task = 0, n_own = 0;
    t->job = job;
    t->arg = arg;
    bitnet__store_release(&t->n_left, (uintptr_t)n);
    bitnet__store_release(&t->tasks, bitnet__tasks(n, 0) + 1);
    if (bitnet__load_acquire(&t->n_asleep[BITNET__WORKERS]) > 0)
        bitnet__cond_wake_all(&t->wake[BITNET__WORKERS]);
    now = bitnet__clock();
    for (; task >= 0; task = bitnet__claim(&t->tasks, 0, 0)) {
        since = now;
        job(arg, task, 0);
        bitnet__count(&t->n_left, UINTPTR_MAX);
        now = bitnet__clock();
        own += now - since;
        if (now - since > longest) longest = now - since;
        n_own++;
    }
    if (bitnet__load_acquire(&t->n_left) > 0) {
        bitnet__await(t, BITNET__CALLER);
        now = bitnet__clock();
    }
    return (n_own > 1 ? (own - longest) / (n_own - 1) : own) * n - (now - start);
}

/* Runs n tasks on the team and returns 1. Returns 0, with nothing done, if sharing does not pay
   at the moment. */
static int bitnet__team_share(bitnet__team *t, int n, bitnet__job job, void *arg) {
    const uintptr_t asleep = bitnet__load_acquire(&t->n_asleep[BITNET__WORKERS]);
    int64_t gain;
    if (n < 4 && asleep == (uintptr_t)t->n_workers) return 0;
    if (!bitnet__ledger_open(&t->ledger, bitnet__clock())) return 0;
    gain = bitnet__team_run(t, n, job, arg);
    bitnet__ledger_note(&t->ledger, gain, bitnet__clock());
    return 1;
}

/* After a fork, the child has no workers. */
static int bitnet__team_lost(const bitnet__team *t) {
    return t->process != bitnet__this_process();
}

static void bitnet__team_free(const bitnet_allocator *a, bitnet__team *t) {
    int i;
    if (t && !bitnet__team_lost(t)) {  /* a lost worker may hold the mutex */
        bitnet__lock(&t->mutex);
        bitnet__store_release(&t->quit, 1);
        bitnet__unlock(&t->mutex);
        bitnet__cond_wake_all(&t->wake[BITNET__WORKERS]);
        for (i = 0; i < t->n_workers; i++) bitnet__thread_join(t->workers[i].thread);
        for (i = 0; i < 2; i++) bitnet__cond_destroy(&t->wake[i]);
        bitnet__mutex_destroy(&t->mutex);
    }
    bitnet__free(a, t);
}

static int bitnet__sync_init(bitnet__team *t) {
    if (!bitnet__mutex_init(&t->mutex)) return 0;
    if (bitnet__cond_init(&t->wake[0])) {
        if (bitnet__cond_init(&t->wake[1])) return 1;
        bitnet__cond_destroy(&t->wake[0]);
    }
    bitnet__mutex_destroy(&t->mutex);
    return 0;
}

/* A team of n threads, or of as many as the system grants: bitnet__team_size tells. *out is 0 if
   only the caller's thread is there. */
static bitnet_result bitnet__team_create(const bitnet_allocator *a, int n, bitnet__team **out,
                                         bitnet_error *err) {
    bitnet__team *t;
    int i;
    *out = 0;
    if (n < 2) return BITNET_OK;
    t = (bitnet__team *)bitnet__alloc(a, sizeof *t);
    if (!t) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %d threads", n);
    memset(t, 0, sizeof *t);
    t->ledger.balance = bitnet__credit;
    t->process = bitnet__this_process();
    if (!bitnet__sync_init(t)) {
        bitnet__free(a, t);
        return BITNET_OK;
    }
    for (i = 1; i < n; i++) {
        bitnet__worker *w = &t->workers[i - 1];
        w->team = t;
        w->index = i;
        if (!bitnet__thread_start(&w->thread, bitnet__worker_main, w)) break;
        t->n_workers++;
    }
    if (t->n_workers > 0) *out = t;
    else bitnet__team_free(a, t);
    return BITNET_OK;
}

static int bitnet__team_size(const bitnet__team *t) { return t ? 1 + t->n_workers : 1; }

#else /* no threads: the caller does everything */

enum { BITNET__OWN_THREADS = 1 };
typedef struct bitnet__team { int unused; } bitnet__team;
static int bitnet__usable_cpus(void) { return 1; }
static bitnet_result bitnet__team_create(const bitnet_allocator *a, int n, bitnet__team **out,
                                         bitnet_error *err) {
    (void)a; (void)n; (void)err;
    *out = 0;
    return BITNET_OK;
}
static int bitnet__team_size(const bitnet__team *t) { (void)t; return 1; }
static int64_t bitnet__clock(void) { return 0; }
static int bitnet__team_lost(const bitnet__team *t) { (void)t; return 0; }
static void bitnet__team_free(const bitnet_allocator *a, bitnet__team *t) { (void)a; (void)t; }
static int bitnet__team_share(bitnet__team *t, int n, bitnet__job job, void *arg) {
    (void)t; (void)n; (void)job; (void)arg;
    return 0;
}
static void bitnet__team_run(bitnet__team *t, int n, bitnet__job job, void *arg) {
    bitnet__team_share(t, n, job, arg);
}

/* parallel_fn may still use threads, but without atomics they cannot share a counter: of n jobs,
   job i does the tasks i, i + n, i + 2 n and so on. */
static uintptr_t bitnet__tasks(int n, int jobs) { return (uintptr_t)n << 16 | (uintptr_t)jobs; }
static int bitnet__claim(const bitnet__atomic *tasks, int thread, int last) {
    const int task = last < 0 ? thread : last + (int)(*tasks & 0xffff);
    return task < (int)(*tasks >> 16) ? task : -1;
}

#endif

/* =============================================================================================
   @kernels  the scalar table, which defines every result
   A kernel table is a set of inner loops for one instruction set and one weight layout. A kernel
   header may replace an entry by a faster one that gives the same bits:

       x86            avx2, avxvnni, avx512vnni; amx (Linux, 64 bits)
       ARM            neon, neon-dotprod, neon-i8mm; on 32-bit ARM only the integer kernels use NEON
       WebAssembly    simd128 (-msimd128), relaxed-simd (and -mrelaxed-simd); threads: -pthread
                      (stacks of 512 KB: -sSTACK_SIZE, and -sDEFAULT_PTHREAD_STACK_SIZE)
       every CPU      scalar: plain C, for IEEE-754 floats

   These read I2_S, 2 bits a weight, in place. On x86 there are also tables named -tl2 (scalar-tl2
   is their slow twin). They read TL2_R16, 5 bits for 3 weights, in place: lossless, the same
   logits, 5/6 of the bytes, which gains 6 % where memory bandwidth is the limit. A file in TL2_R16
   uses the best of them. For another file bitnet_model_params.kernels can ask for one, which then
   repacks the weights when the model is loaded, into a copy that the model owns (434 MB and up to
   1 s for the 2B model).

   The tiles of AMX, which read prompts over twice as fast, need Linux's permission. Asking whether
   a table is usable, as loading does, gets it for the whole process, until it ends. From then on
   sigaltstack() refuses stacks that are too small for tiles (below 11 KB or so). A process that has
   such a stack already gets no permission, and uses avx512vnni. BITNET_NO_AMX never asks.

   Every table computes the same. Integer sums are exact. Linear layers round their input to int8,
   with one scale for all of a token; where weights have a scale per block, with one scale for each
   block, and the blocks' results are added as floats, in order. (Those models were not trained so.
   With random weights it changes the logits by 2 to 3 % RMS. A scale for each 32 elements would
   make that a quarter less, and prompts take a quarter longer.) A float sum of n products keeps 16
   partial sums, with element i in sum i % 16 and each product rounded before it is added (no FMA);
   a tree adds the 16 (lanes 8 apart, then 4, 2, 1). Missing elements are not added. That equals
   adding +0, because a partial sum starts at +0 and is never -0; so SIMD may pad with zeros. With
   an F16 cache, queries and probabilities are first rounded to 13 significant bits: their products
   with the cache's 11 bits are then exact, so an FMA gives the same result, and kernels may use it.
   ============================================================================================= */

/* The tree: lanes 8 apart, 4, 2, 1. */
static float bitnet__sum_lanes(float *lanes) {
    int half, i;
    for (half = BITNET__LANES / 2; half > 0; half /= 2)
        for (i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* max|x| is taken on the bits: for floats without their sign, integer order is float order, and a
   NaN is the largest, in any order of comparison. The comparisons are written so that a NaN
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

/* I2_S: a block of 128 weights is 32 bytes; byte j holds the codes (weight + 1) of

       bits  7-6   5-4    3-2    1-0
             j     32+j   64+j   96+j          j = 0 .. 31

   Bound: a code is at most 3 (2 in a valid file) and |q| <= 128, so |sum of code * q| <= 384 n,
   under 2^31 for n <= 2^20 (BITNET__MAX_ROW) with room to spare; the correction subtracts the sum
   of q. */
static void bitnet__dotrows_i2s_scalar(const bitnet__dots *d) {
    int r, c, b, j;
    for (r = 0; r < d->rows; r++) {
        for (c = 0; c < d->cols; c++) {
            const uint8_t *p = d->w + (size_t)r * (size_t)(d->n / 4);
            const int8_t *a = d->q + (size_t)c * (size_t)d->n;
            int32_t dot = 0;
            for (b = 0; b < d->n / 128; b++, p += 32, a += 128)
                for (j = 0; j < 32; j++)
                    dot += (p[j] >> 6) * a[j] + (p[j] >> 4 & 3) * a[32 + j] +
                           (p[j] >> 2 & 3) * a[64 + j] + (p[j] & 3) * a[96 + j];
            d->out[(size_t)c * d->stride + (size_t)r] = dot - d->sums[c];
        }
    }
}

static size_t bitnet__i2s_bytes(int n, int rows) { return (size_t)rows * (size_t)(n / 4); }

/* TL2_R16: three ternary weights (a triple) in 5 bits: a nibble, and a fifth bit that is stored
   apart. A row pack is 16 rows; a row's weights are taken 24 at a time (the last 24 filled up with
   code 0, which adds nothing), eight triples: triple (h, t), h < 2, t < 4, has weights 12 h + t, 12
   h + 4 + t and 12 h + 8 + t, so that place k of four triples meets four neighbouring activations.
   Four times 24 weights, i = 0 to 3, are a block:

       bytes   0 ..  63   fifths    byte 4 row + t, bit 2 i + h
              64 .. 127   nibbles   i = 0: byte 4 row + t, bits 3-0 for h = 0, 7-4 for h = 1
             128 .. 319             the same for i = 1, 2, 3

   A last block of fewer than four ends after the nibbles it needs, and its other fifths are 0.
   Packs follow one another; a pack's missing rows repeat the matrix's last one. Nibble 5 b + m
   and fifth s stand for the codes (weight + 1) a, b, c of a triple:

       m   0 1 2    3      4
       a   m        2 s    1      s = 0 in the last column
       c   s        2      2

   so b depends on the nibble alone, and the fifth decides only between two values of a or c. Five
   of 32 values stand for nothing: nibble 15, and fifth 1 with m = 4. */
enum { BITNET__TL2_ROWS = 16, BITNET__TL2_BLOCK = 320 };

/* Bytes of a row pack whose rows are count times 24 weights. */
static size_t bitnet__tl2_bytes(int count) { return 64 * (size_t)(count + (count + 3) / 4); }

/* A scale per group. A block's codes are words of 32 bits. Kernels take 16 rows at a time, so that
   no sum goes across the lanes of a vector, in a row pack for each scale group:

       scales    [16]                      F16, of 16 rows
       codes     [words of a block][16]    a word of each row, then the next word

   All tables read the blocks of a file in place: they make such packs in a cache, or do without for
   one column. The tables of x86 also have pack_groups, which packs a matrix when a model is loaded,
   into as many bytes. From packs they multiply few columns up to twice as fast; one column then
   mostly waits for memory either way. The caller chooses, by in_place.

   So 4 bytes of a row, shifted and masked, meet 4 neighbouring activations: word i, shifted by 2 t,
   meets 16 i + 4 t + b with byte b. Which weights these are depends on the type, so the activations
   are brought into their order once, when they have been rounded:

       weight of        word i       shift   byte b
       TQ2_0            8 h + k      2 t             128 h + 32 t + 4 k + b        k < 8
       Q2_0, PQ2_0      i            2 t             16 i + 4 b + t
       Q1_0             2 i          2 t             32 i + 8 b + 2 t
                        2 i + 1      2 t             32 i + 8 b + 2 t + 1
       PTQ1_0           i            2 t             16 i + 4 t + b: activations stay as they are

   A word of Q1_0 has 32 codes of one bit. It becomes two words of codes 0 and 2, which stand for -1
   and +1: its even bits, shifted up by one, and its odd bits. Then the rest is as with 2 bits.

   A block of PTQ1_0 has no words, but 26 bytes of up to five codes, the digits of a fraction of 256
   in base 3. Activations stay in order: digit k of neighbouring bytes is of neighbouring weights.

       byte j      digits k    weight                   in word
        0 .. 15     0 .. 4      16 k + j                k
       16 .. 23     0 .. 4      80 + 8 k + j - 16       5 + k / 2
       24, 25       0 .. 3      120 + 2 k + j - 24      7
       26, 27      the scale

   Digit k of a byte x is (3^k x mod 256) * 3 / 256. A kernel need not compute it. Let s_k be that
   remainder minus 128, or 3^k (x - 128) as an int8. Then 3 s_k = 256 (digit k - 1) + s_k+1, so
   256 times the sum of (digit - 1) * q is 3 times the sum of s_k * q, minus that of s_k+1 * q.

   Activations have one scale per token and scale group. With a scale for 32 activations, as in
   other engines, the logits of three random models differ from those of unrounded activations
   by 2.0 to 2.3 % (RMS), with these by 2.3 to 3.0 % (tests/checks/activation_groups.py). But 4
   times as many sums become floats: the same loops with groups of 32 compute 240 and 107 GMAC/s
   instead of 370 and 136 (AVX-512 VNNI and AVX2, one thread of an Intel Xeon, 128 columns, rows of
   2048).

   Bound: a code is at most 3 in a group of 128 and 2 in one of 256, so |sum of code * q| is at most
   65536. (float)dot is exact. */
enum {
    BITNET__PACK_ROWS = 16,
    BITNET__PACK_SCALES = 2 * BITNET__PACK_ROWS,       /* bytes */
    BITNET__MAX_PACK = BITNET__PACK_SCALES + 4 * 256   /* of a pack; a group has 256 weights */
};

/* The bytes of `rows` rows of n weights. Packed ones take as many as whole packs of rows. */
static size_t bitnet__blocks_bytes(const bitnet__blocks *b, int n, int rows) {
    return (size_t)rows * (size_t)(n / b->group) * (size_t)b->bytes;
}

/* The patch of a product from row r and column c on. Field by field: gcc would copy the whole in
   wide registers, and then wait for what was just written. */
BITNET__INLINE bitnet__grouped bitnet__grouped_from(const bitnet__grouped *x, int r, int c) {
    const size_t at = (size_t)c * (size_t)(x->n / x->blocks->group);
    bitnet__grouped patch;
    patch.w = x->w + bitnet__blocks_bytes(x->blocks, x->n, r);
    patch.blocks = x->blocks;
    patch.q = x->q + (size_t)c * (size_t)x->n;
    patch.sums = x->sums + at;
    patch.scales = x->scales + at;
    patch.n = x->n;
    patch.rows = x->rows - r;
    patch.cols = x->cols - c;
    patch.add = x->add;
    patch.out = x->out + (size_t)c * x->stride + (size_t)r;
    patch.stride = x->stride;
    patch.packed = x->packed;
    return patch;
}

/* Unpacks `count` bytes of PTQ1_0 or TQ1_0: the first digit of each, then the second of each. */
static uint8_t *bitnet__digits(const uint8_t *p, int count, int digits, uint8_t *codes) {
    uint32_t power = 1;
    int i, k;
    for (k = 0; k < digits; k++, power *= 3)
        for (i = 0; i < count; i++) *codes++ = (uint8_t)((p[i] * power & 255) * 3 >> 8);
    return codes;
}

static void bitnet__block_ptq1_0(const uint8_t *p, int n, uint8_t *codes) {
    (void)n;
    codes = bitnet__digits(p, 16, 5, codes);
    codes = bitnet__digits(p + 16, 8, 5, codes);
    bitnet__digits(p + 24, 2, 4, codes);
}

/* The word of 16 codes, in the order in which it meets activations. */
static uint32_t bitnet__word_of_codes(const uint8_t *codes) {
    return bitnet__get_u32(codes) | bitnet__get_u32(codes + 4) << 2 |
           bitnet__get_u32(codes + 8) << 4 | bitnet__get_u32(codes + 12) << 6;
}

#ifndef BITNET_NO_GROUPS
static void bitnet__order_tq2_0(const int8_t *q, int n, int8_t *to) {
    int h, k, t;
    for (h = 0; h < n; h += 128)
        for (k = 0; k < 32; k += 4)
            for (t = 0; t < 4; t++, to += 4) memcpy(to, q + h + 32 * t + k, 4);
}

/* Byte b of word t becomes byte t of word b. */
static void bitnet__put_turned(const uint32_t *w, int8_t *to) {
    const uint32_t even = 0x00ff00ffu, low = 0xffffu;
    const uint32_t a = (w[0] & even) | (w[1] & even) << 8, b = (w[0] >> 8 & even) | (w[1] & ~even);
    const uint32_t c = (w[2] & even) | (w[3] & even) << 8, d = (w[2] >> 8 & even) | (w[3] & ~even);
    uint8_t *p = (uint8_t *)to;
    bitnet__put_u32(p, (a & low) | c << 16);
    bitnet__put_u32(p + 4, (b & low) | d << 16);
    bitnet__put_u32(p + 8, a >> 16 | (c & ~low));
    bitnet__put_u32(p + 12, b >> 16 | (d & ~low));
}

static void bitnet__order_q2_0(const int8_t *q, int n, int8_t *to) {
    uint32_t w[4];
    int i, b;
    for (i = 0; i < n; i += 16) {
        for (b = 0; b < 4; b++) w[b] = bitnet__get_u32((const uint8_t *)q + i + 4 * b);
        bitnet__put_turned(w, to + i);
    }
}

/* The bytes 0, 2, 4 and 6. */
static uint32_t bitnet__even_bytes(uint64_t x) {
    x &= 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(x | x >> 16);
}

static void bitnet__order_q1_0(const int8_t *q, int n, int8_t *to) {
    uint32_t even[4], odd[4];
    int i, b;
    for (i = 0; i < n; i += 32) {
        for (b = 0; b < 4; b++) {
            const uint64_t x = bitnet__get_u64((const uint8_t *)q + i + 8 * b);
            even[b] = bitnet__even_bytes(x);
            odd[b] = bitnet__even_bytes(x >> 8);
        }
        bitnet__put_turned(even, to + i);
        bitnet__put_turned(odd, to + i + 16);
    }
}

static void bitnet__order_ptq1_0(const int8_t *q, int n, int8_t *to) { memcpy(to, q, (size_t)n); }

static const bitnet__blocks bitnet__blocks_q2_0 = {64, 18, 0, 2, 2, bitnet__order_q2_0};
static const bitnet__blocks bitnet__blocks_pq2_0 = {128, 34, 0, 2, 2, bitnet__order_q2_0};
static const bitnet__blocks bitnet__blocks_tq2_0 = {256, 66, 64, 0, 2, bitnet__order_tq2_0};
static const bitnet__blocks bitnet__blocks_q1_0 = {128, 18, 0, 2, 1, bitnet__order_q1_0};
static const bitnet__blocks bitnet__blocks_ptq1_0 = {128, 28, 26, 0, 0, bitnet__order_ptq1_0};

/* The row pack of a scale group whose first row's block is at w. Rows past the last one repeat
   it. */
static void bitnet__pack_group(const bitnet__blocks *b, const uint8_t *w, size_t row_bytes,
                               int rows, uint8_t *pack) {
    uint8_t digits[128];
    int r, i;
    for (r = 0; r < BITNET__PACK_ROWS; r++, w += r < rows ? row_bytes : 0) {
        const uint8_t *codes = w + b->codes_at;
        uint8_t *to = pack + BITNET__PACK_SCALES + 4 * r;
        memcpy(pack + 2 * r, w + b->scale_at, 2);
        if (!b->bits) {
            bitnet__block_ptq1_0(codes, 128, digits);
            for (i = 0; i < 8; i++)
                bitnet__put_u32(to + 64 * i, bitnet__word_of_codes(digits + 16 * i));
        }
        for (i = 0; i < b->group * b->bits / 32; i++, codes += 4) {
            const uint32_t x = bitnet__get_u32(codes);
            if (b->bits == 2) bitnet__put_u32(to + 64 * i, x);
            else {
                bitnet__put_u32(to + 128 * i, x << 1 & 0xaaaaaaaau);
                bitnet__put_u32(to + 128 * i + 64, x & 0xaaaaaaaau);
            }
        }
    }
}

/* The sum of code * q over a scale group of a row of a pack; w: the row's first word. */
static int32_t bitnet__dot_group(const uint8_t *w, const int8_t *q, int group) {
    int32_t dot = 0;
    int i, b;
    for (i = 0; i < group; i += 16, w += 4 * BITNET__PACK_ROWS, q += 16)
        for (b = 0; b < 4; b++)
            dot += (w[b] & 3) * q[b] + (w[b] >> 2 & 3) * q[4 + b] + (w[b] >> 4 & 3) * q[8 + b] +
                   (w[b] >> 6) * q[12 + b];
    return dot;
}

/* Up to 16 rows with up to 16 columns. */
static void bitnet__tile_groups_scalar(const bitnet__grouped *d) {
    const int group = d->blocks->group;
    const size_t groups = (size_t)(d->n / group);
    float sum[16][BITNET__PACK_ROWS] = {{0}}, scale;
    uint8_t pack[BITNET__MAX_PACK];
    int32_t dot;
    int r, c;
    size_t g;
    for (g = 0; g < groups; g++) {
        bitnet__pack_group(d->blocks, d->w + g * (size_t)d->blocks->bytes,
                           groups * (size_t)d->blocks->bytes, d->rows, pack);
        for (c = 0; c < d->cols; c++) {
            const size_t at = (size_t)c * groups + g;
            for (r = 0; r < d->rows; r++) {
                dot = bitnet__dot_group(pack + BITNET__PACK_SCALES + 4 * r,
                                        d->q + at * (size_t)group, group) - d->sums[at];
                scale = bitnet__load_f16(pack + 2 * r) * d->scales[at];
                sum[c][r] += (float)dot * scale;
            }
        }
    }
    for (c = 0; c < d->cols; c++)
        for (r = 0; r < d->rows; r++) {
            float *y = d->out + (size_t)c * d->stride + (size_t)r;
            *y = d->add ? *y + sum[c][r] : sum[c][r];
        }
}

static void bitnet__dotrows_groups_scalar(const bitnet__grouped *d) {
    int r, c;
    for (r = 0; r < d->rows; r += BITNET__PACK_ROWS)
        for (c = 0; c < d->cols; c += 16) {
            bitnet__grouped tile = bitnet__grouped_from(d, r, c);
            if (tile.rows > BITNET__PACK_ROWS) tile.rows = BITNET__PACK_ROWS;
            if (tile.cols > 16) tile.cols = 16;
            bitnet__tile_groups_scalar(&tile);
        }
}
  #define BITNET__IN_BLOCKS(name) &bitnet__blocks_##name
#else
  #define BITNET__IN_BLOCKS(name) 0
#endif

/* For each float format one loop of dot products and one of weighted sums. */
#define BITNET__DEFINE_DOTROWS(name, type, bytes) \
    static void bitnet__##name##_scalar(const uint8_t *w, const float *x, int n, int rows, \
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
#define BITNET__DEFINE_SUMROWS(type, bytes) \
    static void bitnet__sumrows_##type##_scalar(const uint8_t *w, size_t w_stride, const float *p, \
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
BITNET__DEFINE_DOTROWS(dotrows_f32, f32, 4)
BITNET__DEFINE_DOTROWS(dotrows_f16, f16, 2)
BITNET__DEFINE_DOTROWS(dotrows_bf16, bf16, 2)
BITNET__DEFINE_DOTROWS(scores_f16, f16, 2)
BITNET__DEFINE_SUMROWS(f32, 4)
BITNET__DEFINE_SUMROWS(f16, 2)

static void bitnet__softmax_scalar(float *x, int n, float scale, int to_f13) {
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
    for (i = 0; i < n; i++) x[i] = to_f13 ? bitnet__round13(x[i] * inv) : x[i] * inv;
}

static void bitnet__rope_scalar(const float *x, const float *cos_sin, int n_rot, int n,
                                int to_f13, float *y) {
    int i, half = n_rot / 2;
    for (i = 0; i < half; i++) {
        float a = x[i], b = x[half + i], cs = cos_sin[i], sn = cos_sin[half + i];
        y[i] = a * cs - b * sn;
        y[half + i] = b * cs + a * sn;
    }
    for (i = n_rot; i < n; i++) y[i] = x[i];
    for (i = 0; i < n && to_f13; i++) y[i] = bitnet__to_f13(y[i]);
}

static void bitnet__store_f16_scalar(const float *x, int n, uint8_t *out) {
    int i;
    for (i = 0; i < n; i++) bitnet__put_u16(out + 2 * i, bitnet__f32_to_f16(x[i]));
}

static void bitnet__dequantize_scalar(const int32_t *dots, float f, int n, int add, float *y) {
    int i;
    for (i = 0; i < n; i++) y[i] = add ? y[i] + (float)dots[i] * f : (float)dots[i] * f;
}

static void bitnet__relu2_gate_scalar(const float *gate, const float *up, int n, float *y) {
    int i;
    for (i = 0; i < n; i++) {
        float g = gate[i] > 0.0f ? gate[i] : 0.0f;
        y[i] = g * g * up[i];
    }
}

/* 0.5 (1 + tanh(t)) = 1 / (1 + e^(-2t)), so GELU's tanh form is a sigmoid, too. bitnet__expf
   clamps: below -88 a gate gives g / e^88, and the truth is smaller still. */
static void bitnet__sigmoid_gate_scalar(const float *gate, const float *up, float a, float b,
                                        int n, float *y) {
    int i;
    for (i = 0; i < n; i++) {
        float g = gate[i];
        y[i] = g / (1.0f + bitnet__expf((b * g * g + a) * g)) * up[i];
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

/* Weights are halves of bytes minus 8. Bound: the sum of products is at most 15 * 128 n, and 8
   times the sum of q at most 1024 n: each under 2^31 for n <= 2^20, and so is their difference. */
static void bitnet__dotrows_u4_scalar(const bitnet__dots *d) {
    int r, c, b, j;
    for (r = 0; r < d->rows; r++) {
        for (c = 0; c < d->cols; c++) {
            const uint8_t *p = d->w + (size_t)r * (size_t)(d->n / 2);
            const int8_t *a = d->q + (size_t)c * (size_t)d->n;
            int32_t dot = 0;
            for (b = 0; b < d->n / 128; b++, p += 64, a += 128)
                for (j = 0; j < 64; j++) dot += (p[j] >> 4) * a[j] + (p[j] & 15) * a[64 + j];
            d->out[(size_t)c * d->stride + (size_t)r] = dot - 8 * d->sums[c];
        }
    }
}

/* ---- an int8 cache ----
   Keys, or values, of a KV head with n elements at 64 positions take 64 (4 + n) bytes. Each code is
   in -127 .. 127 as quantize makes it:

       scales   [64]             float, little-endian: what a code of the position is worth
       keys     [n / 4][64][4]   byte b of position r in row d: element 4 d + b, plus 128
       values   [16][n][4]       byte b of element i in row g: position 4 g + b

   So 4 neighbouring bytes meet 4 elements of a query, or the weights of 4 positions, and no sum
   goes across the lanes of a vector.

   Bounds: a key's byte is at most 255 and |q| at most 127, so |sum of byte * q| <= 32385 n, under
   2^31 for n <= 2^16; so is 128 times the sum of q. 64 weights of at most 127 and values of at most
   128 give sums up to 1,040,384, and two products fit 16 bits: 2 * 127 * 128 = 32512. */
enum { BITNET__KV_BLOCK = 64, BITNET__KV_SCALES = 4 * BITNET__KV_BLOCK };      /* bytes */

static size_t bitnet__kv_block_bytes(int n) { return (size_t)BITNET__KV_BLOCK * (size_t)(4 + n); }

#ifndef BITNET_NO_KV_I8
static void bitnet__scores_i8_scalar(const uint8_t *w, const int8_t *q, const int32_t *sums, int n,
                                     int rows, int cols, float *out, size_t out_stride) {
    int r, c, i;
    for (c = 0; c < cols; c++, q += n) {
        for (r = 0; r < rows; r++) {
            const uint8_t *kv_block = w + (size_t)(r / 64) * bitnet__kv_block_bytes(n);
            const uint8_t *key = kv_block + BITNET__KV_SCALES + r % 64 * 4;
            int32_t dot = 0;
            for (i = 0; i < n; i++) dot += key[(size_t)(i / 4) * 256 + (size_t)(i % 4)] * q[i];
            out[(size_t)c * out_stride + (size_t)r] =
                (float)(dot - 128 * sums[c]) * bitnet__load_f32(kv_block + r % 64 * 4);
        }
    }
}

/* The largest of 64 counts as 1e-30 at least, so that the scale is finite. A NaN falls through the
   comparisons and counts as 0. */
static void bitnet__weigh_i8_scalar(const float *p, const uint8_t *w, int n, int rows, int from,
                                    int to, uint8_t *q, float *scales) {
    float t[BITNET__KV_BLOCK], top, scale;
    int b, r;
    for (b = 0; b < rows / 64; b++, p += 64, w += bitnet__kv_block_bytes(n), q += 64) {
        top = 1e-30f;
        for (r = 0; r < 64; r++) {
            const int at = 64 * b + r;
            t[r] = at >= from && at < to ? p[r] * bitnet__load_f32(w + 4 * r) : 0.0f;
            top = t[r] > top ? t[r] : top;
        }
        scale = 127.0f / top;
        for (r = 0; r < 64; r++) {
            float x = t[r] * scale;
            x = x > 0.0f ? x : 0.0f;
            x = x < 127.0f ? x : 127.0f;
            q[r] = (uint8_t)(bitnet__float_bits(x + 12582912.0f) & 0xff);   /* as in quantize */
        }
        scales[b] = top / 127.0f;
    }
}

static void bitnet__sumrows_i8_scalar(const uint8_t *w, const uint8_t *p, const float *scales,
                                      size_t p_stride, int n, int first, int count, int rows,
                                      int cols, float *out) {
    int b, c, i, r;
    for (c = 0; c < cols; c++, p += p_stride, scales += p_stride / 64, out += count) {
        for (b = 0; b < rows / 64; b++) {
            const uint8_t *v = w + (size_t)b * bitnet__kv_block_bytes(n) + BITNET__KV_SCALES;
            for (i = 0; i < count; i++) {
                int32_t dot = 0;
                for (r = 0; r < 64; r++)
                    dot += p[64 * b + r] *
                           (int8_t)v[((size_t)(r / 4) * (size_t)n + (size_t)(first + i)) * 4 +
                                     (size_t)(r % 4)];
                out[i] += (float)dot * scales[b];
            }
        }
    }
}
#endif

static void bitnet__sigmoid_scalar(const float *gate, const float *x, int n, float *y) {
    int i;
    for (i = 0; i < n; i++) y[i] = x[i] / (1.0f + bitnet__expf(0.0f - gate[i]));
}

static void bitnet__hadamard_scalar(float *x, int n, int block) {
    int h, i, j;
    for (h = 1; h < block; h *= 2)
        for (i = 0; i < n; i += 2 * h)
            for (j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}

/* ---- a recurrent state ----
   A gated delta net keeps a matrix S for each value head: how the values depend on the keys. Each
   token lets it fade, corrects what it says about the token's key, and reads it with the query:

       p[i] = sum over j of S[j][i] * k[j]                  keys j, values i
       e[i] = beta * (v[i] - decay * p[i])
       S[j][i] = decay * S[j][i] + k[j] * e[i]              two products, then their sum
       o[i] = sum over j of S[j][i] * q[j]

   A sum over the keys has two partial sums, of the even and of the odd j, which are added at the
   end. No sum goes across values, so any number of them can be computed together. Memory has 32
   values (or the rest of them) for all keys, then the next 32: such a slice, 16 KB of a head of
   128, is all that a task needs of S, and stays in the L1 cache for all tokens of a batch:

       state    [n_values / 32][n_keys][32]

   A token needs S after the token before it, in this order only; so the bits do not depend on how
   a prompt is cut. The chunked form that other engines use adds in another order for each cut. */
enum { BITNET__SLICE = 32 };           /* values */

static void bitnet__delta_rule_scalar(const bitnet__delta *d) {
    const int n = d->n_values;
    int t, i, j;
    for (t = 0; t < d->n_tokens; t++) {
        const size_t at = (size_t)t * d->stride;
        const float *q = d->q + at, *k = d->k + at, *v = d->v + at;
        const float decay = d->decay[(size_t)t * d->gate_stride];
        const float beta = d->beta[(size_t)t * d->gate_stride];
        float p[2][BITNET__SLICE] = {{0}}, o[2][BITNET__SLICE] = {{0}}, e[BITNET__SLICE];
        float *s = d->state;
        for (j = 0; j < d->n_keys; j++, s += n)
            for (i = 0; i < n; i++) p[j % 2][i] += s[i] * k[j];
        for (i = 0; i < n; i++) e[i] = beta * (v[i] - decay * (p[0][i] + p[1][i]));
        for (j = 0, s = d->state; j < d->n_keys; j++, s += n)
            for (i = 0; i < n; i++) {
                s[i] = decay * s[i] + k[j] * e[i];
                o[j % 2][i] += s[i] * q[j];
            }
        for (i = 0; i < n; i++) d->out[(size_t)t * d->out_stride + (size_t)i] = o[0][i] + o[1][i];
    }
}

/* How a table reads I2_S in place. */
#define BITNET__LAYOUT_I2S "I2_S", 1, bitnet__i2s_bytes, 0

/* What a table has of the features that a switch leaves out: 0 without them. */
#ifndef BITNET_NO_GROUPS
  #define BITNET__ENTRY_GROUPS(name) bitnet__dotrows_groups_##name, BITNET__PACKS_##name
  #define BITNET__PACKS_scalar 0
#else
  #define BITNET__ENTRY_GROUPS(name) 0, 0
#endif
#ifndef BITNET_NO_KV_I8
  #define BITNET__ENTRIES_I8(scores, weigh, sumrows) \
      bitnet__scores_i8_##scores, bitnet__weigh_i8_##weigh, bitnet__sumrows_i8_##sumrows
#else
  #define BITNET__ENTRIES_I8(scores, weigh, sumrows) 0, 0, 0
#endif

/* The functions of a table, by the ends of their names: those of floats; of integers; of integers,
   with panels or an int8 cache; and dotrows_ternary's whole name. */
#define BITNET__ENTRIES(floats, integers, panels, ternary) \
    bitnet__quantize_##floats, ternary, BITNET__ENTRY_GROUPS(panels), \
    bitnet__dotrows_f32_##floats, bitnet__dotrows_f16_##floats, bitnet__dotrows_bf16_##floats, \
    bitnet__scores_f16_##floats, bitnet__sumrows_f32_##floats, bitnet__sumrows_f16_##floats, \
    bitnet__softmax_##floats, bitnet__rope_##floats, bitnet__store_f16_##floats, \
    bitnet__dequantize_##floats, bitnet__relu2_gate_##floats, bitnet__sigmoid_gate_##floats, \
    bitnet__rmsnorm_##floats, bitnet__dotrows_u4_##integers, bitnet__dotrows_i2s_##panels, \
    BITNET__ENTRIES_I8(panels, floats, panels), bitnet__sigmoid_##floats, \
    bitnet__hadamard_##floats, bitnet__delta_rule_##floats
#define BITNET__SCALAR_ENTRIES(ternary) BITNET__ENTRIES(scalar, scalar, scalar, ternary)

static const bitnet_kernels bitnet__kernels_scalar = {
    "scalar", 0, BITNET__LAYOUT_I2S, BITNET__SCALAR_ENTRIES(bitnet__dotrows_i2s_scalar)
};

/* ---- for the kernel headers: row kernels over vectors ----
   A kernel header includes this file again for each of its vector types. Only the lines below count
   then, and become functions for that type. Before, the header defines

       V(x)            the name of function x           TARGET  its attribute
       FLOATS          a vector of PER_VECTOR floats    COUNTS  a vector that adds up bytes
       HOT             static, for long loops           LEAVE() stands before a call of plain C
       UNROLL64        UNROLL, if 64 floats fit in registers
       ROUND_AT_ONCE   1: rope rotates and rounds in one loop, which takes over 16 registers

       splat(x)            x in all lanes               load_f32(p), store(p, v)
       load_i32(p)         integers, as floats          add, sub, mul, div(a, b)
       min, max(a, b)      b if a is a quiet NaN
       limit(v, most)      -most to most; a NaN stays
       positive(v)         0 for what is not above 0, also for a signalling NaN
       top(a, v)           the larger of a and |v| by their bits, as in quantize
       zero_tiny(x, y)     y, but 0 where |x| < 2^-100
       add_shifted(p, t)   the end of bitnet__expf: the bits of p plus those of t << 23
       largest(v)          its largest lane; none is a NaN
       root(x)             bitnet__sqrt
       flip(v, h)          lane i gets lane i ^ h, for h = 1, 2, 4 .. below PER_VECTOR

   and, for 16 floats in VECTORS vectors,

       tree(v)             bitnet__sum_lanes
       put_i8(q, v, &sum)  as bytes -128 to 127, ties to even, a NaN -128; adds them to COUNTS sum
       put_u8(q, v)        as bytes 0 to 127, ties to even, a NaN 0
       put_f16(p, x)       from memory
       no_counts()         COUNTS of nothing
       counted(sum, n)     the sum of n bytes

   Element i of a float sum stays in lane i % 16. Lengths that do not fill vectors go to the scalar
   functions, or their last elements do, so no load passes the end of an array. */
#endif /* BITNET__IMPLEMENTED, which goes on below */
#ifdef BITNET__ROW_KERNELS
#define BITNET__VECTORS (BITNET__LANES / BITNET__PER_VECTOR)

BITNET__HOT BITNET__TARGET float BITNET__V(quantize)(const float *x, int n, int8_t *q,
                                                     int32_t *sum) {
    BITNET__FLOATS v[BITNET__VECTORS], tops = BITNET__V(splat)(0.0f);
    BITNET__COUNTS total = BITNET__V(no_counts)();
    float lanes[BITNET__PER_VECTOR], a, s;
    uint32_t top = 0;
    int i, j;
    if (n % BITNET__LANES) return bitnet__quantize_scalar(x, n, q, sum);
    for (i = 0; i < n; i += BITNET__PER_VECTOR)
        tops = BITNET__V(top)(tops, BITNET__V(load_f32)(x + i));
    BITNET__V(store)(lanes, tops);
    for (i = 0; i < BITNET__PER_VECTOR; i++) {
        const uint32_t bits = bitnet__float_bits(lanes[i]);
        top = bits > top ? bits : top;
    }
    a = bitnet__float_from_bits(top);
    a = a > 1e-5f ? a : 1e-5f;
    s = 127.0f / a;
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++)
            v[j] = BITNET__V(mul)(BITNET__V(load_f32)(x + i + j * BITNET__PER_VECTOR),
                                  BITNET__V(splat)(s));
        BITNET__V(put_i8)(q + i, v, &total);
    }
    *sum = BITNET__V(counted)(total, n);
    return s;
}

BITNET__INLINE BITNET__TARGET BITNET__FLOATS BITNET__V(horner)(BITNET__FLOATS p, BITNET__FLOATS x,
                                                               float next) {
    return BITNET__V(add)(BITNET__V(mul)(p, x), BITNET__V(splat)(next));
}

BITNET__INLINE BITNET__TARGET BITNET__FLOATS BITNET__V(expf)(BITNET__FLOATS x) {
    BITNET__FLOATS t, n, r, p;
    x = BITNET__V(max)(x, BITNET__V(splat)(-64.0f));
    x = BITNET__V(min)(x, BITNET__V(splat)(88.0f));
    t = BITNET__V(horner)(x, BITNET__V(splat)(1.44269504f), 12582912.0f);
    n = BITNET__V(sub)(t, BITNET__V(splat)(12582912.0f));
    r = BITNET__V(sub)(x, BITNET__V(mul)(n, BITNET__V(splat)(0.693359375f)));
    r = BITNET__V(sub)(r, BITNET__V(mul)(n, BITNET__V(splat)(-2.12194440e-4f)));
    p = BITNET__V(horner)(r, BITNET__V(splat)(1.0f / 720.0f), 1.0f / 120.0f);
    p = BITNET__V(horner)(p, r, 1.0f / 24.0f);
    p = BITNET__V(horner)(p, r, 1.0f / 6.0f);
    p = BITNET__V(horner)(p, r, 0.5f);
    p = BITNET__V(horner)(p, r, 1.0f);
    p = BITNET__V(horner)(p, r, 1.0f);
    return BITNET__V(add_shifted)(p, t);
}

BITNET__INLINE BITNET__TARGET BITNET__FLOATS BITNET__V(round13)(BITNET__FLOATS x) {
    const BITNET__FLOATS t = BITNET__V(mul)(x, BITNET__V(splat)(2049.0f));
    return BITNET__V(sub)(t, BITNET__V(sub)(t, x));
}

BITNET__INLINE BITNET__TARGET BITNET__FLOATS BITNET__V(to_f13)(BITNET__FLOATS x) {
    return BITNET__V(zero_tiny)(x, BITNET__V(round13)(BITNET__V(limit)(x, 1.2676506e30f)));
}

BITNET__APART BITNET__TARGET void BITNET__V(exp_rest)(float *x, float top) {
    int i;
    BITNET__UNROLL for (i = 0; i < BITNET__LANES; i += BITNET__PER_VECTOR)
        BITNET__V(store)(x + i, BITNET__V(expf)(BITNET__V(sub)(BITNET__V(load_f32)(x + i),
                                                               BITNET__V(splat)(top))));
}

/* n is the context's length, any number. The elements after the last 16 are padded with the
   largest one, and the padding is left out of the sum. */
BITNET__HOT BITNET__TARGET void BITNET__V(softmax)(float *x, int n, float scale, int to_f13) {
    BITNET__FLOATS v, sum[BITNET__VECTORS], tops = BITNET__V(splat)(-3.4e38f), inv;
    float lanes[BITNET__LANES], rest[BITNET__LANES], top;
    int i, j, whole = n - n % BITNET__LANES;
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        v = BITNET__V(mul)(BITNET__V(load_f32)(x + i), BITNET__V(splat)(scale));
        tops = BITNET__V(max)(v, tops);
        BITNET__V(store)(x + i, v);
    }
    top = BITNET__V(largest)(tops);
    for (i = whole; i < n; i++) {
        x[i] *= scale;
        top = x[i] > top ? x[i] : top;
    }
    BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) sum[j] = BITNET__V(splat)(0.0f);
    for (i = 0; i < whole; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) {
            float *at = x + i + j * BITNET__PER_VECTOR;
            v = BITNET__V(sub)(BITNET__V(load_f32)(at), BITNET__V(splat)(top));
            v = BITNET__V(expf)(v);
            sum[j] = BITNET__V(add)(sum[j], v);
            BITNET__V(store)(at, v);
        }
    }
    for (j = 0; j < BITNET__VECTORS; j++)
        BITNET__V(store)(lanes + j * BITNET__PER_VECTOR, sum[j]);
    for (i = 0; i < BITNET__LANES; i++) rest[i] = whole + i < n ? x[whole + i] : top;
    BITNET__V(exp_rest)(rest, top);
    for (i = 0; i < n - whole; i++) lanes[i] += rest[i];
    inv = BITNET__V(splat)(1.0f / bitnet__sum_lanes(lanes));
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        v = BITNET__V(mul)(BITNET__V(load_f32)(x + i), inv);
        BITNET__V(store)(x + i, to_f13 ? BITNET__V(round13)(v) : v);
    }
    for (i = 0; i < BITNET__LANES; i += BITNET__PER_VECTOR) {
        v = BITNET__V(mul)(BITNET__V(load_f32)(rest + i), inv);
        BITNET__V(store)(rest + i, to_f13 ? BITNET__V(round13)(v) : v);
    }
    memcpy(x + whole, rest, (size_t)(n - whole) * sizeof *x);
}

BITNET__HOT BITNET__TARGET void BITNET__V(rope)(const float *x, const float *cos_sin, int n_rot,
                                                int n, int to_f13, float *y) {
    const int half = n_rot / 2, now = BITNET__ROUND_AT_ONCE && to_f13;
    BITNET__FLOATS a, b, cs, sn, v;
    int i;
    if (half % BITNET__PER_VECTOR || n % BITNET__PER_VECTOR) {
        bitnet__rope_scalar(x, cos_sin, n_rot, n, to_f13, y);
        return;
    }
    for (i = 0; i < half; i += BITNET__PER_VECTOR) {
        a = BITNET__V(load_f32)(x + i);
        b = BITNET__V(load_f32)(x + half + i);
        cs = BITNET__V(load_f32)(cos_sin + i);
        sn = BITNET__V(load_f32)(cos_sin + half + i);
        v = BITNET__V(sub)(BITNET__V(mul)(a, cs), BITNET__V(mul)(b, sn));
        BITNET__V(store)(y + i, now ? BITNET__V(to_f13)(v) : v);
        v = BITNET__V(add)(BITNET__V(mul)(b, cs), BITNET__V(mul)(a, sn));
        BITNET__V(store)(y + half + i, now ? BITNET__V(to_f13)(v) : v);
    }
    for (i = n_rot; i < n; i += BITNET__PER_VECTOR) {
        v = BITNET__V(load_f32)(x + i);
        BITNET__V(store)(y + i, now ? BITNET__V(to_f13)(v) : v);
    }
    for (i = 0; i < n && to_f13 && !now; i += BITNET__PER_VECTOR)
        BITNET__V(store)(y + i, BITNET__V(to_f13)(BITNET__V(load_f32)(y + i)));
}

BITNET__HOT BITNET__TARGET void BITNET__V(store_f16)(const float *x, int n, uint8_t *out) {
    int i, whole = n - n % BITNET__LANES;
    for (i = 0; i < whole; i += BITNET__LANES) BITNET__V(put_f16)(out + 2 * (size_t)i, x + i);
    BITNET__LEAVE();
    bitnet__store_f16_scalar(x + whole, n - whole, out + 2 * (size_t)whole);
}

BITNET__HOT BITNET__TARGET void BITNET__V(dequantize)(const int32_t *dots, float f, int n, int add,
                                                      float *y) {
    int i, whole = n - n % BITNET__PER_VECTOR;
    BITNET__FLOATS v;
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        v = BITNET__V(mul)(BITNET__V(load_i32)(dots + i), BITNET__V(splat)(f));
        if (add) v = BITNET__V(add)(BITNET__V(load_f32)(y + i), v);
        BITNET__V(store)(y + i, v);
    }
    BITNET__LEAVE();
    bitnet__dequantize_scalar(dots + whole, f, n - whole, add, y + whole);
}

BITNET__HOT BITNET__TARGET void BITNET__V(relu2_gate)(const float *gate, const float *up, int n,
                                                      float *y) {
    int i, whole = n - n % BITNET__PER_VECTOR;
    BITNET__FLOATS g;
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        g = BITNET__V(positive)(BITNET__V(load_f32)(gate + i));
        BITNET__V(store)(y + i, BITNET__V(mul)(BITNET__V(mul)(g, g), BITNET__V(load_f32)(up + i)));
    }
    BITNET__LEAVE();
    bitnet__relu2_gate_scalar(gate + whole, up + whole, n - whole, y + whole);
}

BITNET__HOT BITNET__TARGET void BITNET__V(sigmoid_gate)(const float *gate, const float *up, float a,
                                                        float b, int n, float *y) {
    int i, whole = n - n % BITNET__PER_VECTOR;
    BITNET__FLOATS g, t;
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        g = BITNET__V(load_f32)(gate + i);
        t = BITNET__V(mul)(BITNET__V(mul)(BITNET__V(splat)(b), g), g);
        t = BITNET__V(mul)(BITNET__V(add)(t, BITNET__V(splat)(a)), g);
        t = BITNET__V(div)(g, BITNET__V(add)(BITNET__V(splat)(1.0f), BITNET__V(expf)(t)));
        BITNET__V(store)(y + i, BITNET__V(mul)(t, BITNET__V(load_f32)(up + i)));
    }
    BITNET__LEAVE();
    bitnet__sigmoid_gate_scalar(gate + whole, up + whole, a, b, n - whole, y + whole);
}

BITNET__HOT BITNET__TARGET void BITNET__V(rmsnorm)(const float *x, const float *gain, int n,
                                                   float eps, float *y) {
    BITNET__FLOATS v, sum[BITNET__VECTORS];
    float mean, inv;
    int i, j;
    if (n % BITNET__LANES) {
        bitnet__rmsnorm_scalar(x, gain, n, eps, y);
        return;
    }
    BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) sum[j] = BITNET__V(splat)(0.0f);
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) {
            v = BITNET__V(load_f32)(x + i + j * BITNET__PER_VECTOR);
            sum[j] = BITNET__V(add)(sum[j], BITNET__V(mul)(v, v));
        }
    }
    mean = BITNET__V(tree)(sum) / (float)n;
    inv = (float)(1.0 / BITNET__V(root)((double)mean + (double)eps));
    for (i = 0; i < n; i += BITNET__PER_VECTOR) {
        v = BITNET__V(mul)(BITNET__V(load_f32)(x + i), BITNET__V(splat)(inv));
        BITNET__V(store)(y + i, BITNET__V(mul)(v, BITNET__V(load_f32)(gain + i)));
    }
}

BITNET__HOT BITNET__TARGET void BITNET__V(sigmoid)(const float *gate, const float *x, int n,
                                                   float *y) {
    int i, whole = n - n % BITNET__PER_VECTOR;
    BITNET__FLOATS t;
    for (i = 0; i < whole; i += BITNET__PER_VECTOR) {
        t = BITNET__V(sub)(BITNET__V(splat)(0.0f), BITNET__V(load_f32)(gate + i));
        t = BITNET__V(add)(BITNET__V(splat)(1.0f), BITNET__V(expf)(t));
        BITNET__V(store)(y + i, BITNET__V(div)(BITNET__V(load_f32)(x + i), t));
    }
    BITNET__LEAVE();
    bitnet__sigmoid_scalar(gate + whole, x + whole, n - whole, y + whole);
}

/* Elements h apart of 16: in two vectors, or in the lanes of one. */
BITNET__INLINE BITNET__TARGET void BITNET__V(butterflies)(BITNET__FLOATS *v, const int h) {
    int j;
    BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) {
        if (h < BITNET__PER_VECTOR)
            v[j] = BITNET__V(add)(BITNET__V(flip)(v[j], h),
                                  BITNET__V(mul)(v[j], BITNET__V(load_f32)(bitnet__signs(h))));
        else if (!(j & h / BITNET__PER_VECTOR)) {
            const BITNET__FLOATS a = v[j], b = v[j + h / BITNET__PER_VECTOR];
            v[j] = BITNET__V(add)(a, b);
            v[j + h / BITNET__PER_VECTOR] = BITNET__V(sub)(a, b);
        }
    }
}

/* Elements h apart, then 2 h; h is a multiple of 16. */
BITNET__INLINE BITNET__TARGET void BITNET__V(butterflies4)(float *x, int n, int h) {
    BITNET__FLOATS a, b, c, d, even, odd;
    int i, j;
    for (i = 0; i < n; i += 4 * h)
        for (j = i; j < i + h; j += BITNET__PER_VECTOR) {
            float *p = x + j;
            a = BITNET__V(load_f32)(p);
            b = BITNET__V(load_f32)(p + h);
            c = BITNET__V(load_f32)(p + 2 * h);
            d = BITNET__V(load_f32)(p + 3 * h);
            even = BITNET__V(add)(a, b);
            odd = BITNET__V(sub)(a, b);
            a = BITNET__V(add)(c, d);
            b = BITNET__V(sub)(c, d);
            BITNET__V(store)(p, BITNET__V(add)(even, a));
            BITNET__V(store)(p + h, BITNET__V(add)(odd, b));
            BITNET__V(store)(p + 2 * h, BITNET__V(sub)(even, a));
            BITNET__V(store)(p + 3 * h, BITNET__V(sub)(odd, b));
        }
}

BITNET__HOT BITNET__TARGET void BITNET__V(hadamard)(float *x, int n, int block) {
    BITNET__FLOATS v[BITNET__VECTORS], a, b;
    int i, j, h;
    if (block < BITNET__LANES) {
        bitnet__hadamard_scalar(x, n, block);
        return;
    }
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++)
            v[j] = BITNET__V(load_f32)(x + i + j * BITNET__PER_VECTOR);
        BITNET__V(butterflies)(v, 1);
        BITNET__V(butterflies)(v, 2);
        BITNET__V(butterflies)(v, 4);
        BITNET__V(butterflies)(v, 8);
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++)
            BITNET__V(store)(x + i + j * BITNET__PER_VECTOR, v[j]);
    }
    for (h = BITNET__LANES; 4 * h <= block; h *= 4) BITNET__V(butterflies4)(x, n, h);
    for (i = 0; i < n && h < block; i += 2 * h)
        for (j = i; j < i + h; j += BITNET__PER_VECTOR) {
            a = BITNET__V(load_f32)(x + j);
            b = BITNET__V(load_f32)(x + j + h);
            BITNET__V(store)(x + j, BITNET__V(add)(a, b));
            BITNET__V(store)(x + j + h, BITNET__V(sub)(a, b));
        }
}

/* A slice, whose rows are `count` vectors. All of a slice at once is faster than its
   halves one after the other, since memory is read as it lies; and their sums fit in registers,
   except in WebAssembly's. */
BITNET__INLINE BITNET__TARGET void BITNET__V(delta_values)(const bitnet__delta *d,
                                                           const int count) {
    const int n = count * BITNET__PER_VECTOR;
    enum { most = BITNET__SLICE / BITNET__PER_VECTOR };
    BITNET__FLOATS sum[2][most], e[most], s;
    int t, i, j, p;
    for (t = 0; t < d->n_tokens; t++) {
        const size_t at = (size_t)t * d->stride;
        const float *q = d->q + at, *k = d->k + at, *v = d->v + at;
        const BITNET__FLOATS decay = BITNET__V(splat)(d->decay[(size_t)t * d->gate_stride]);
        const BITNET__FLOATS beta = BITNET__V(splat)(d->beta[(size_t)t * d->gate_stride]);
        float *row = d->state, *out = d->out + (size_t)t * d->out_stride;
        BITNET__UNROLL for (i = 0; i < count; i++) sum[0][i] = sum[1][i] = BITNET__V(splat)(0.0f);
        for (j = 0; j < d->n_keys; j += 2)
            BITNET__UNROLL for (p = 0; p < 2; p++, row += n) {
                const BITNET__FLOATS key = BITNET__V(splat)(k[j + p]);
                BITNET__UNROLL for (i = 0; i < count; i++) {
                    s = BITNET__V(load_f32)(row + i * BITNET__PER_VECTOR);
                    sum[p][i] = BITNET__V(add)(sum[p][i], BITNET__V(mul)(s, key));
                }
            }
        BITNET__UNROLL for (i = 0; i < count; i++) {
            s = BITNET__V(mul)(decay, BITNET__V(add)(sum[0][i], sum[1][i]));
            s = BITNET__V(sub)(BITNET__V(load_f32)(v + i * BITNET__PER_VECTOR), s);
            e[i] = BITNET__V(mul)(beta, s);
            sum[0][i] = sum[1][i] = BITNET__V(splat)(0.0f);
        }
        for (j = 0, row = d->state; j < d->n_keys; j += 2)
            BITNET__UNROLL for (p = 0; p < 2; p++, row += n) {
                const BITNET__FLOATS key = BITNET__V(splat)(k[j + p]);
                const BITNET__FLOATS query = BITNET__V(splat)(q[j + p]);
                BITNET__UNROLL for (i = 0; i < count; i++) {
                    s = BITNET__V(load_f32)(row + i * BITNET__PER_VECTOR);
                    s = BITNET__V(add)(BITNET__V(mul)(decay, s), BITNET__V(mul)(key, e[i]));
                    BITNET__V(store)(row + i * BITNET__PER_VECTOR, s);
                    sum[p][i] = BITNET__V(add)(sum[p][i], BITNET__V(mul)(s, query));
                }
            }
        BITNET__UNROLL for (i = 0; i < count; i++)
            BITNET__V(store)(out + i * BITNET__PER_VECTOR, BITNET__V(add)(sum[0][i], sum[1][i]));
    }
}

BITNET__HOT BITNET__TARGET void BITNET__V(delta_rule)(const bitnet__delta *d) {
    const int n = d->n_keys % 2 ? 0 : d->n_values;
    if (n == BITNET__SLICE) BITNET__V(delta_values)(d, BITNET__SLICE / BITNET__PER_VECTOR);
    else if (n == BITNET__LANES) BITNET__V(delta_values)(d, BITNET__VECTORS);
    else bitnet__delta_rule_scalar(d);
}

#ifndef BITNET_NO_KV_I8
/* 64 positions, in four times 16 floats. */
BITNET__INLINE BITNET__TARGET float BITNET__V(weigh_block)(const float *p, const uint8_t *w,
                                                           uint8_t *q) {
    BITNET__FLOATS t[4][BITNET__VECTORS], tops = BITNET__V(splat)(1e-30f);
    float top, scale;
    int i, j;
    BITNET__UNROLL64 for (i = 0; i < 4; i++) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++) {
            const int at = i * BITNET__LANES + j * BITNET__PER_VECTOR;
            t[i][j] = BITNET__V(mul)(BITNET__V(load_f32)(p + at), BITNET__V(load_f32)(w + 4 * at));
            tops = BITNET__V(max)(t[i][j], tops);
        }
    }
    top = BITNET__V(largest)(tops);
    scale = 127.0f / top;
    BITNET__UNROLL64 for (i = 0; i < 4; i++) {
        BITNET__UNROLL for (j = 0; j < BITNET__VECTORS; j++)
            t[i][j] = BITNET__V(mul)(t[i][j], BITNET__V(splat)(scale));
        BITNET__V(put_u8)(q + i * BITNET__LANES, t[i]);
    }
    return top / 127.0f;
}

BITNET__HOT BITNET__TARGET void BITNET__V(weigh_i8)(const float *p, const uint8_t *w, int n,
                                                    int rows, int from, int to, uint8_t *q,
                                                    float *scales) {
    float inside[BITNET__KV_BLOCK];
    int r;
    for (r = 0; r < rows; r += 64, w += bitnet__kv_block_bytes(n), scales++) {
        const int begin = from > r ? from - r : 0, end = to < r + 64 ? to - r : 64;
        const float *x = p + r;
        if (begin > 0 || end < 64) {
            memset(inside, 0, sizeof inside);
            if (begin < end) memcpy(inside + begin, x + begin, (size_t)(end - begin) * sizeof *x);
            x = inside;
        }
        *scales = BITNET__V(weigh_block)(x, w, q + r);
    }
}
#endif

#undef BITNET__VECTORS
#undef BITNET__ROW_KERNELS
#endif /* BITNET__ROW_KERNELS */
#ifdef BITNET__GOES_ON
#undef BITNET__GOES_ON

/* ---- for the kernel headers: the loops around their tiles and panels ----
   A tile is a few rows and columns whose dot products stay in registers. With few columns tiles
   take the weights as they are. With many, panels of rows are unpacked once for all columns. Each
   instruction set has functions for a tile and a panel. The loops below inline them: a pointer to
   a function is always a constant where they are called. */
#if !defined(BITNET_NO_SIMD) && BITNET__KNOWN_COMPILER
  #if BITNET__ARCH_X86
    #define BITNET__KERNEL_HEADER "bitnet_kernels_x86.h"
  #elif BITNET__ARCH_ARM && !(defined(BITNET_NO_NEON) && defined(BITNET_NO_DOTPROD))
    #define BITNET__KERNEL_HEADER "bitnet_kernels_arm.h"
  #elif BITNET__ARCH_WASM
    #define BITNET__KERNEL_HEADER "bitnet_kernels_wasm.h"
  #endif
#endif
#ifdef BITNET__KERNEL_HEADER

/* UNROLL: before a loop over the sums of a tile, which are in registers only if the loop is
   unrolled. */
#if defined(__clang__)
  #define BITNET__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
  #define BITNET__UNROLL _Pragma("GCC unroll 8")
#else
  #define BITNET__UNROLL
#endif

typedef void bitnet__dots_fn(const bitnet__dots *d);

/* The first tile of rows and columns: as many as it has, at most all. Returns how many columns it
   took. */
typedef int bitnet__tile_fn(const bitnet__dots *d);

/* Unpacks weights k to k + len - 1 of the panel of rows that begins with row r. */
typedef void bitnet__unpack_fn(const bitnet__dots *d, int r, int k, int len, void *panel);

/* Multiplies such a panel by as many columns as it takes. Subtracts the sums if k is 0, or else
   adds to out. */
typedef void bitnet__multiply_fn(void *panel, int k, int len, const bitnet__dots *d);

/* For the lanes of a vector: 1, or -1 where bit h of the lane's number is set. */
BITNET__INLINE const float *bitnet__signs(int h) {
    static const float signs[4][BITNET__LANES] = {
        {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
        {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
        {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
        {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}
    };
    return signs[h == 1 ? 0 : h == 2 ? 1 : h == 4 ? 2 : 3];
}

/* Index i, or the last one: past the end a tile repeats the last row or column. */
BITNET__INLINE size_t bitnet__clamp(int i, int count) {
    return (size_t)(i < count ? i : count - 1);
}

/* How many of `left` columns the next tile takes if it has room for `most`: the last two tiles
   share what is left. */
BITNET__INLINE int bitnet__share(int left, int most) {
    return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most;
}

/* Writes the results of a tile's column: 4, or fewer at the end, of 4 bytes each. */
BITNET__INLINE void bitnet__put(void *to, const void *four, int count) {
    if (count >= 4) memcpy(to, four, 16);
    else memcpy(to, four, (size_t)count * 4);
}

/* The patch from row r, which begins w_bytes into the matrix, and column c on. Field by field: gcc
   would copy the whole in wide registers, and then wait for what was just written. */
BITNET__INLINE bitnet__dots bitnet__dots_from(const bitnet__dots *d, size_t w_bytes, int r, int c) {
    bitnet__dots patch;
    patch.w = d->w + w_bytes;
    patch.q = d->q + (size_t)c * (size_t)d->n;
    patch.sums = d->sums + c;
    patch.n = d->n;
    patch.rows = d->rows - r;
    patch.cols = d->cols - c;
    patch.out = d->out + (size_t)c * d->stride + (size_t)r;
    patch.stride = d->stride;
    return patch;
}

/* Runs of rows of 20 KB (rounded up to whole tiles of tile_bytes) are multiplied by all columns
   before the next run. So a tile's columns stay in the L1 cache for a run, and the run in L1 or L2
   for the next columns. */
BITNET__INLINE void bitnet__tiles(const bitnet__dots *d, bitnet__tile_fn *tile,
                                  const int tile_rows, size_t tile_bytes) {
    enum { run_bytes = 20480 };
    size_t from, at = 0;
    int r, i = d->rows, c, count = 0;
    for (r = 0, from = 0; r < d->rows; r = i, from = at) {
        for (c = 0; c < d->cols; c += count) {
            bitnet__dots patch = bitnet__dots_from(d, from, r, c);
            for (i = r, at = from; i < d->rows && at - from < run_bytes; i += tile_rows) {
                count = tile(&patch);
                at += tile_bytes;
                patch.w += tile_bytes;
                patch.rows -= tile_rows;
                patch.out += tile_rows;
            }
        }
    }
}

/* A panel has panel_rows rows of at most `depth` weights, so that it stays in the L1 cache. out
   carries the sums from one depth to the next. Keeps to the same rows for several depths while
   their activations fit in 128 KB of L2: so the weights are read almost as they lie, and a page of
   memory is not left before it has been read. */
BITNET__INLINE void bitnet__panels(const bitnet__dots *d, void *panel, bitnet__unpack_fn *unpack,
                                   bitnet__multiply_fn *multiply, const int panel_rows,
                                   const int depth, const int panel_cols) {
    const int most = 131072 / d->cols / depth * depth, deep = most > depth ? most : depth;
    int r, k, c, len, end, from;
    for (from = 0; from < d->n; from = end) {
        end = d->n - from < deep ? d->n : from + deep;
        for (r = 0; r < d->rows; r += panel_rows) {
            for (k = from; k < end; k += len) {
                len = end - k < depth ? end - k : depth;
                unpack(d, r, k, len, panel);
                for (c = 0; c < d->cols; c += panel_cols) {
                    const bitnet__dots patch = bitnet__dots_from(d, 0, r, c);
                    multiply(panel, k, len, &patch);
                }
            }
        }
    }
}

/* Uses panels if there are at least `from` columns, for a multiple of `wide` of them. A rest of at
   most wide / 2 columns uses tiles. 256 rows at a time: meanwhile the activations of a panel's
   depth stay in the L2 cache (512 to 640 KB for 512 columns). bytes(n, rows): the size of so many
   rows. */
BITNET__INLINE void bitnet__tiles_and_panels(const bitnet__dots *d, bitnet__dots_fn *tiles,
                                             bitnet__dots_fn *panels, const int wide,
                                             const int from, size_t (*bytes)(int n, int rows)) {
    const int rest = d->cols % wide > wide / 2 ? 0 : d->cols % wide;
    int r;
    if (d->cols < from) {
        tiles(d);
        return;
    }
    for (r = 0; r < d->rows; r += 256) {
        bitnet__dots patch = bitnet__dots_from(d, bytes(d->n, r), r, 0);
        if (patch.rows > 256) patch.rows = 256;
        patch.cols -= rest;
        panels(&patch);
        if (!rest) continue;
        patch = bitnet__dots_from(&patch, 0, 0, patch.cols);
        patch.cols = rest;
        tiles(&patch);
    }
}

/* Rows of floats, whose length is a multiple of 16. CACHE is F16, WIDE a run of its rows as floats;
   both are multiplied by floats rounded to 13 bits, so the products are exact. A header's `dots`
   and `mix` are dot products and weighted sums of rows of one kind. */
enum { BITNET__ROWS_F32, BITNET__ROWS_F16, BITNET__ROWS_BF16, BITNET__ROWS_CACHE,
       BITNET__ROWS_WIDE };
#define BITNET__ROW_BYTES(kind) \
    ((kind) == BITNET__ROWS_F32 || (kind) == BITNET__ROWS_WIDE ? (size_t)4 : (size_t)2)

#define BITNET__ROW_DOTS(name, type, kind) \
    BITNET__HOT BITNET__TARGET void BITNET__V(name)(const uint8_t *w, const float *x, int n, \
                                                    int rows, int cols, float *out, \
                                                    size_t out_stride) { \
        if (n % BITNET__LANES) \
            bitnet__dotrows_##type##_scalar(w, x, n, rows, cols, out, out_stride); \
        else BITNET__V(dots)(w, x, n, rows, cols, out, out_stride, kind); \
    }

/* 32 rows at a time, so that they are still in the L1 cache for the next tile. */
#define BITNET__ROW_SUMS_F32 \
    static BITNET__TARGET void BITNET__V(sumrows_f32)(const uint8_t *w, size_t w_stride, \
                                                      const float *p, size_t p_stride, int n, \
                                                      int rows, int cols, float *out) { \
        int r, count; \
        if (n % BITNET__LANES) \
            bitnet__sumrows_f32_scalar(w, w_stride, p, p_stride, n, rows, cols, out); \
        else for (r = 0; r < rows; r += count) { \
            count = rows - r < 32 ? rows - r : 32; \
            BITNET__V(mix)(w + (size_t)r * w_stride * 4, w_stride * 4, p + r, p_stride, n, count, \
                           cols, out, BITNET__ROWS_F32); \
        } \
    }

/* For a header's list of tables: one, if it is there (1). */
#define BITNET__LISTED(there, table) BITNET__LISTED2(there, table)
#define BITNET__LISTED2(there, table) BITNET__LISTED_##there(table)
#define BITNET__LISTED_0(table)
#define BITNET__LISTED_1(table) &bitnet__kernels_##table,
#endif

/* A kernel header defines BITNET__HAVE_SIMD, its tables, and a list of them, best first. */
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
    BITNET__KERNEL_TABLES              /* each with a comma after it */
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

BITNET_API const char *bitnet_kernels_name(const bitnet_kernels *k) { return k ? k->name : 0; }

BITNET_API int bitnet_kernels_usable(const bitnet_kernels *k) {
    return k && (k->needs & ~bitnet__cpu_features()) == 0;
}

BITNET_API const bitnet_kernels *bitnet_kernels_default(void) {
    int i = 0;                         /* the last one, scalar, is always usable */
    while (bitnet_kernels_get(i)->pack || !bitnet_kernels_usable(bitnet_kernels_get(i))) i++;
    return bitnet_kernels_get(i);
}

/* Is a table's layout that of the tensor type TL2_R16? */
static int bitnet__reads_tl2_r16(const bitnet_kernels *k) {
    return !strcmp(k->layout, "TL2_R16");
}

/* =============================================================================================
   @tokenizer  text to tokens and back
   Owns the vocabulary (built once from GGUF arrays, then read-only and shared by threads), the
   scanners that cut text into words, the merging of words, and the decoder.
   Nothing in the arrays is trusted except their sizes, and the text may be any bytes. The tests
   compare the tokens with those of the reference implementation.

   Byte-level BPE, as in LLaMA 3 and BitNet:

       text -> special tokens -> NFC (qwen2) -> scanner -> words -> merges by rank -> tokens

   SentencePiece's BPE, as in LLaMA 1 and 2 and Gemma, has no words: all characters of the text are
   merged, in the order of the scores of the tokens that they make. By default a space is put in
   front of the text, but not behind a special token in it; it stays there when the tokens are
   decoded.

   Each byte that is not UTF-8 is a word of its own, and the text before and after it is tokenized
   separately. Decoding restores the same bytes, or with qwen2 those of the text in NFC.

   Memory of a call: 32 to 64 times the size of a word over 256 bytes; SentencePiece, which has no
   words, 41 to 81 times a text over 255 bytes; qwen2, for a text that is not NFC, 3 times its bytes
   and 32 bytes for each code point of its longest run of combining marks (19 times the text at
   most).
   ============================================================================================= */

/* Classes of code points; the tables are in @unicode. 0 to 3 are also the low two bits of
   bitnet__class_runs. */
enum {
    BITNET__OTHER = 0,      /* punctuation, marks, symbols, controls, unassigned */
    BITNET__LETTER = 1,     /* general category L* */
    BITNET__NUMBER = 2,     /* general category N* */
    BITNET__SPACE = 3,      /* White_Space without CR and LF */
    BITNET__NEWLINE = 4,    /* CR and LF, for which the pre-tokenizer has special rules */
    BITNET__STOP = 5        /* not a code point: the end of the text, or an invalid byte */
};

static int bitnet__is_punctuation(uint32_t cp);
static int bitnet__class_at(const uint8_t *p, const uint8_t *end, uint32_t *length);
static int bitnet__is_stable(uint32_t cp);
static const uint8_t *bitnet__skip_ascii(const uint8_t *p, const uint8_t *end);
static const uint8_t *bitnet__segment_end(const uint8_t *p, const uint8_t *end, size_t *count);
static size_t bitnet__longest_unstable(const uint8_t *p, const uint8_t *end);
static size_t bitnet__nfc(const uint8_t *p, const uint8_t *end, uint64_t *cps, uint8_t *out);

enum {                                  /* limits; ids and ranks are packed into these widths */
    BITNET__ID_BITS = 20,
    BITNET__RANK_BITS = 22,
    BITNET__MAX_TOKENS = (1 << BITNET__ID_BITS) - 1,
    BITNET__MAX_MERGES = 1 << BITNET__RANK_BITS,
    BITNET__MAX_PROBES = 1024,          /* a longer hash chain is an attack */
    BITNET__POWERS = 16,                /* bytes of most tokens of SentencePiece */
    BITNET__MAX_SPECIAL = 1024,         /* bytes in the text of a special token */
    BITNET__MAX_WORD = 1 << 26,         /* bytes in one word, which needs 32 or 40 times as much */
    BITNET__SMALL_WORD = 256            /* bytes of a word that is merged on the stack */
};

enum {                                  /* tokenizer.ggml.token_type */
    BITNET__TOKEN_UNDEFINED = 0, BITNET__TOKEN_NORMAL = 1, BITNET__TOKEN_UNKNOWN = 2,
    BITNET__TOKEN_CONTROL = 3, BITNET__TOKEN_USER = 4, BITNET__TOKEN_UNUSED = 5,
    BITNET__TOKEN_BYTE = 6
};

static const uint32_t bitnet__no_slot = 0xFFFFFFFFu;    /* an empty hash slot, or no rank */
static const uint64_t bitnet__no_pair = ~(uint64_t)0;

/* How a pre-tokenizer of byte-level BPE cuts text, by tokenizer.ggml.pre. */
typedef struct bitnet__pre {
    const char *name;
    int nfc;                        /* 1: the text is brought to NFC first */
    int digits;                     /* \p{N}{1,digits}; 0: falcon_e's own scanner */
    int whole;                      /* 1: a word that is a token is not merged (ignore_merges) */
} bitnet__pre;

static const bitnet__pre bitnet__pres[] = {
    {"llama-bpe", 0, 3, 1}, {"llama3", 0, 3, 1}, {"llama-v3", 0, 3, 1}, {"falcon3", 0, 3, 1},
    {"falcon_e", 0, 0, 0}, {"qwen2", 1, 1, 0}, {"qwen35", 1, 1, 0},
};

/* A vocabulary. LLaMA 3's (128256 tokens, 280147 merges, 7.8 MB in the file) takes 8.1 MB.

   slots: open addressing, linear probing, at most 2/3 full; keys are the bytes of normal tokens,
       and without SentencePiece of byte tokens, which are then like them
       bits 31-20  top bits of the hash, so that few other tokens' bytes are compared
       bits 19-0   token
   pairs: the same; keys are (left token, right token)
       bits 61-42  left     bits 41-22  right     bits 21-0  rank of the merge
   No entry is deleted, and none is more than MAX_PROBES from its home. */
typedef struct bitnet__vocab {
    uint32_t n_tokens, n_merges, n_literals;
    uint32_t n_user, n_special;     /* literals that are user-defined; those and control tokens */
    uint32_t longest;               /* bytes of the longest token that is no literal, as the file
                                       writes it */
    uint32_t longest_token;         /* bytes of the longest token */
    size_t memory;                  /* bytes of the arena to which the arrays below belong */
    uint32_t slot_mask, pair_mask;  /* size of each table minus one; sizes are powers of two */
    uint32_t *offsets;              /* [n_tokens + 1] token t is bytes[offsets[t]..offsets[t+1]) */
    uint8_t *bytes;                 /* of all tokens, decoded */
    uint8_t *types;                 /* [n_tokens] BITNET__TOKEN_* */
    uint32_t *slots;                /* [slot_mask + 1] */
    uint64_t *pairs;                /* [pair_mask + 1] */
    uint32_t *results;              /* [n_merges] token that the merge of this rank makes */
    uint32_t *ranks;                /* [n_tokens] SentencePiece: order of the scores; else null */
    uint64_t powers[BITNET__POWERS + 1];    /* SentencePiece: of roll_factor */
    uint8_t *raw;                   /* [longest + 1] buffer for building */
    uint32_t *literals;             /* [n_literals] tokens that are not normal: user-defined ones,
                                       control ones, the rest, each sorted by bytes, then by id */
    int32_t byte_token[256];        /* the token of each single byte */
    uint8_t special_start[256];     /* bit 0: some user-defined token begins with this byte; bit 1:
                                       some control token */

    /* Set by the loader. */
    int32_t n_ids;                  /* >= n_tokens; ids from n_tokens on have no text */
    bitnet_token bos, eos, eot;     /* -1: none */
    bitnet_token ends[16];          /* [n_ends] eos, eot and all others that end a text */
    int32_t add_bos, n_ends;
    const bitnet_chat_template *chat;   /* 0: the file has none that is known */
    bitnet_error no_chat;           /* why chat is 0 */
    int32_t chat_bos;               /* 1: it puts BOS in front */
    int32_t space_prefix;           /* SentencePiece: 1: a space is put in front of a text */
    const bitnet__pre *pre;         /* byte-level BPE's pre-tokenizer */
    int32_t add_eos;
} bitnet__vocab;

/* The raw bytes of token t < n_tokens. They live as long as the vocabulary. */
static const bitnet__vocab *bitnet__vocab_of(const bitnet_model *m);
static const bitnet_allocator *bitnet__allocator_of(const bitnet_model *m);

static const uint8_t *bitnet__vocab_bytes(const bitnet__vocab *v, bitnet_token t, size_t *n) {
    *n = v->offsets[t + 1] - v->offsets[t];
    return v->bytes + v->offsets[t];
}

/* Byte tokens are the single bytes that SentencePiece writes as <0x0A>. */
static int bitnet__is_literal(uint32_t type) {
    return type != BITNET__TOKEN_NORMAL && type != BITNET__TOKEN_BYTE;
}

static int bitnet__is_special(uint32_t type) {
    return type == BITNET__TOKEN_CONTROL || type == BITNET__TOKEN_USER;
}

/* ---- hashing ---- */

/* Texts are hashed by a polynomial: h(ab) = h(a) m^|b| + h(b). So SentencePiece, which looks up the
   text of every pair of neighbours, gets each hash from those of two prefixes. mix() comes last. */
static const uint64_t bitnet__roll_factor = 0xD6E8FEB86659FD93u;        /* m */
static const uint64_t bitnet__golden = 0x9E3779B97F4A7C15u;             /* 2^64 / golden ratio */

static uint64_t bitnet__roll(uint64_t h, uint8_t byte) {
    return h * bitnet__roll_factor + byte + 1;
}

static uint64_t bitnet__mix(uint64_t h) {
    h = (h ^ h >> 32) * bitnet__golden;
    return h ^ h >> 29;
}

static uint64_t bitnet__hash_bytes(const uint8_t *p, size_t n) {
    uint64_t h = 0;
    for (; n > 0; n--) h = bitnet__roll(h, *p++);
    return bitnet__mix(h);
}

static uint64_t bitnet__pair_key(uint32_t left, uint32_t right) {
    return (uint64_t)left << BITNET__ID_BITS | right;
}

/* Keys come in patterns (one left token, many right ones), hence two rounds. */
static uint32_t bitnet__pair_home(const bitnet__vocab *v, uint64_t key) {
    return (uint32_t)bitnet__mix(key * bitnet__golden) & v->pair_mask;
}

/* Size minus one of a table that n <= 1 << 22 entries fill to at most 2/3. */
static uint32_t bitnet__table_mask(uint32_t n) {
    uint32_t size = 1;
    while (size < n + n / 2 + 1) size *= 2;
    return size - 1;
}

/* The slot of the normal token with these bytes, else the empty slot where it would go, or no_slot
   after MAX_PROBES. */
static uint32_t bitnet__find_slot(const bitnet__vocab *v, const uint8_t *p, size_t n, uint64_t h) {
    uint32_t tag = (uint32_t)(h >> 52) << BITNET__ID_BITS, at = (uint32_t)h, i, token, entry;
    for (i = 0; i < BITNET__MAX_PROBES; i++, at++) {
        at &= v->slot_mask;
        entry = v->slots[at];
        if (entry == bitnet__no_slot) return at;
        token = entry & BITNET__MAX_TOKENS;
        if ((entry ^ token) == tag && v->offsets[token + 1] - v->offsets[token] == n &&
            memcmp(v->bytes + v->offsets[token], p, n) == 0)
            return at;
    }
    return bitnet__no_slot;
}

/* The normal token with these bytes, whose hash is h, or -1. */
static int32_t bitnet__find_hashed(const bitnet__vocab *v, const uint8_t *p, size_t n,
                                   uint64_t h) {
    const uint32_t at = bitnet__find_slot(v, p, n, h);
    if (at == bitnet__no_slot || v->slots[at] == bitnet__no_slot) return -1;
    return (int32_t)(v->slots[at] & BITNET__MAX_TOKENS);
}

/* The normal token with these bytes, or -1. */
static int32_t bitnet__find_normal(const bitnet__vocab *v, const uint8_t *p, size_t n) {
    if (n > v->longest || n == 0) return -1;
    return bitnet__find_hashed(v, p, n, bitnet__hash_bytes(p, n));
}

/* The place of this pair in pairs, else the empty place where it would go, or no_slot after
   MAX_PROBES. */
static uint32_t bitnet__find_pair(const bitnet__vocab *v, uint64_t key) {
    uint32_t at = bitnet__pair_home(v, key), i;
    for (i = 0; i < BITNET__MAX_PROBES; i++) {
        uint64_t entry = v->pairs[at];
        if (entry == bitnet__no_pair || entry >> BITNET__RANK_BITS == key) return at;
        at = (at + 1) & v->pair_mask;
    }
    return bitnet__no_slot;
}

/* Rank of the merge of these two tokens, or no_slot. */
static uint32_t bitnet__pair_rank(const bitnet__vocab *v, uint32_t left, uint32_t right) {
    uint32_t at = bitnet__find_pair(v, bitnet__pair_key(left, right));
    if (at == bitnet__no_slot || v->pairs[at] == bitnet__no_pair) return bitnet__no_slot;
    return (uint32_t)v->pairs[at] & (BITNET__MAX_MERGES - 1);
}

/* ---- literals: special tokens, and tokens that no text becomes ---- */

/* Orders two literals by bytes, then by id. */
static int bitnet__literal_less(const void *arg, uint32_t a, uint32_t b) {
    const bitnet__vocab *v = (const bitnet__vocab *)arg;
    size_t na, nb;
    const uint8_t *pa = bitnet__vocab_bytes(v, (bitnet_token)a, &na);
    const uint8_t *pb = bitnet__vocab_bytes(v, (bitnet_token)b, &nb);
    const int c = bitnet__compare(pa, na, pb, nb);
    return c ? c < 0 : a < b;
}

/* Byte `depth` of literal i, or -1 past its end. */
static int bitnet__literal_byte(const bitnet__vocab *v, uint32_t i, size_t depth) {
    size_t n;
    const uint8_t *p = bitnet__vocab_bytes(v, (bitnet_token)v->literals[i], &n);
    return depth < n ? p[depth] : -1;
}

/* The first of the literals [low, high), which agree in their first `depth` bytes, whose next byte
   is not below c. */
static uint32_t bitnet__literal_bound(const bitnet__vocab *v, uint32_t low, uint32_t high,
                                      size_t depth, int c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (bitnet__literal_byte(v, middle, depth) < c) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The longest of the sorted literals [low, high) that p begins with, and its length; or -1. Narrows
   the range byte by byte, so it reads no more text than it matches. Of equal literals the lowest id
   wins. */
static int32_t bitnet__match_literal(const bitnet__vocab *v, uint32_t low, uint32_t high,
                                     const uint8_t *p, size_t n, size_t *length) {
    int32_t found = -1;
    size_t depth;
    for (depth = 0; low < high; depth++) {
        if (depth > 0 && bitnet__literal_byte(v, low, depth) < 0) {
            found = (int32_t)v->literals[low];      /* complete; all others are longer */
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

/* The longest special token that the text at p begins with, and its length; or -1. Control tokens
   only count with parse_special. */
static int32_t bitnet__match_special(const bitnet__vocab *v, int parse_special, const uint8_t *p,
                                     size_t n, size_t *length) {
    size_t more = 0;
    int32_t token = bitnet__match_literal(v, 0, v->n_user, p, n, length), control = -1;
    if (parse_special) control = bitnet__match_literal(v, v->n_user, v->n_special, p, n, &more);
    if (control < 0 || (token >= 0 && (more < *length || (more == *length && token < control))))
        return token;
    *length = more;
    return control;
}

/* The first special token in [p, end), with its place and length; or -1 and *at = end. */
static int32_t bitnet__find_special(const bitnet__vocab *v, int parse_special, const uint8_t *p,
                                    const uint8_t *end, const uint8_t **at, size_t *length) {
    const int wanted = parse_special ? 3 : 1;
    for (; p < end && (parse_special ? v->n_special : v->n_user) > 0; p++) {
        int32_t token;
        if (!(v->special_start[*p] & wanted)) continue;
        token = bitnet__match_special(v, parse_special, p, (size_t)(end - p), length);
        if (token >= 0) {
            *at = p;
            return token;
        }
    }
    *at = end;
    return -1;
}

/* The token with exactly this text, or -1: special tokens first, then normal ones, then the rest.
   Finds tokens such as <|eot_id|>; encoding does not use it. */
static int32_t bitnet__vocab_find(const bitnet__vocab *v, const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    size_t length = 0;
    int32_t token = bitnet__match_special(v, 1, p, n, &length);
    if (token >= 0 && length == n) return token;
    token = bitnet__find_normal(v, p, n);
    if (token >= 0) return token;
    token = bitnet__match_literal(v, v->n_special, v->n_literals, p, n, &length);
    return token >= 0 && length == n ? token : -1;
}

/* ---- building ---- */

/* Takes the next string off a GGUF string array: u64 length, then the bytes. Fails unless 8 bytes
   remain for each string after it, so the sum of all lengths is at most size - 8 * count. */
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

static void bitnet__vocab_free(bitnet__vocab *v, const bitnet_allocator *a) {
    bitnet__free(a, v->offsets);                    /* the arena's first array */
    memset(v, 0, sizeof *v);
}

static uint32_t bitnet__token_type(const uint8_t *types, uint32_t t) {
    return types ? bitnet__get_u32(types + 4 * (size_t)t) : (uint32_t)BITNET__TOKEN_NORMAL;
}

BITNET__APART bitnet_result bitnet__fail_item(bitnet_error *err, bitnet_result code,
                                              const char *kind, uint32_t i, const char *text) {
    return bitnet__fail(err, code, "%s %u: %s", kind, (unsigned)i, text);
}

/* Checks what can be checked before anything is allocated, and counts the tokens of each kind. */
static bitnet_result bitnet__vocab_measure(bitnet__vocab *v, const bitnet__strings *tokens,
                                           const uint8_t *types, const bitnet__strings *merges,
                                           bitnet_error *err) {
    bitnet__strings unread = *tokens;
    const uint8_t *p = 0;
    uint32_t t;
    size_t n = 0;
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
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the tokens' text has 4 GiB or more");
    v->n_tokens = (uint32_t)tokens->count;
    v->n_ids = (int32_t)v->n_tokens;
    v->n_merges = (uint32_t)merges->count;
    for (t = 0; t < v->n_tokens; t++) {
        const uint32_t type = bitnet__token_type(types, t);
        if (type > BITNET__TOKEN_BYTE)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "token %u: type %lld is unknown",
                                (unsigned)t, (long long)(int32_t)type);
        if (!bitnet__next_string(&unread, &p, &n))
            return bitnet__fail_item(err, BITNET_ERR_TRUNCATED, "token", t, "text ends early");
        v->n_literals += (uint32_t)bitnet__is_literal(type);
        v->n_special += (uint32_t)bitnet__is_special(type);
        v->n_user += type == BITNET__TOKEN_USER;
        if (!bitnet__is_literal(type) && n > v->longest) v->longest = (uint32_t)n;
    }
    v->slot_mask = bitnet__table_mask(v->n_tokens - v->n_literals);
    v->pair_mask = bitnet__table_mask(v->n_merges);
    return BITNET_OK;
}

/* A token takes at most 21 bytes and its text (in the file: at least 8 bytes and its text), a merge
   at most 28 (in the file: at least 8): in all less than four times the input. */
static void bitnet__vocab_layout(bitnet__vocab *v, bitnet__arena *a, size_t text, int spm) {
    const uint64_t n = v->n_tokens;
    v->offsets = (uint32_t *)bitnet__arena_take(a, n + 1, 4);
    v->bytes = (uint8_t *)bitnet__arena_take(a, text, 1);
    v->types = (uint8_t *)bitnet__arena_take(a, n, 1);
    v->slots = (uint32_t *)bitnet__arena_take(a, (uint64_t)v->slot_mask + 1, 4);
    v->pairs = (uint64_t *)bitnet__arena_take(a, (uint64_t)v->pair_mask + 1, 8);
    v->results = (uint32_t *)bitnet__arena_take(a, v->n_merges, 4);
    v->literals = (uint32_t *)bitnet__arena_take(a, v->n_literals, 4);
    v->raw = (uint8_t *)bitnet__arena_take(a, (uint64_t)v->longest + 1, 1);
    if (spm) v->ranks = (uint32_t *)bitnet__arena_take(a, n, 4);
}

static bitnet_result bitnet__vocab_alloc(bitnet__vocab *v, const bitnet_allocator *allocator,
                                         size_t text, int spm, bitnet_error *err) {
    bitnet__arena a = {0, 0};
    bitnet__vocab_layout(v, &a, text, spm);
    if (!bitnet__arena_alloc(&a, allocator))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a vocabulary of %u tokens",
                            (unsigned)v->n_tokens);
    bitnet__vocab_layout(v, &a, text, spm);
    v->memory = (size_t)a.used;
    v->offsets[0] = 0;
    memset(v->slots, 0xFF, 4 * ((size_t)v->slot_mask + 1));        /* no_slot, no_pair */
    memset(v->pairs, 0xFF, 8 * ((size_t)v->pair_mask + 1));
    return BITNET_OK;
}

/* GPT-2 writes bytes as printable characters (bytes_to_unicode in its encoder.py): 21-7E, A1-AC and
   AE-FF as U+0021..., the other 68 bytes, in order, as U+0100 to U+0143. map[character] is the
   byte, or NO_BYTE. */
enum { BITNET__NO_BYTE = 0x100, BITNET__GPT2_END = 0x144 };

static void bitnet__make_gpt2_map(uint16_t map[BITNET__GPT2_END]) {
    uint32_t b, next = 256;
    for (b = 0; b < BITNET__GPT2_END; b++) map[b] = BITNET__NO_BYTE;
    for (b = 0; b < 256; b++) {
        int same = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        map[same ? b : next++] = (uint16_t)b;
    }
}

/* Maps characters of [p, end) back to bytes until one is not in the map or dst is full. Each has
   one or two bytes, so dst never needs more than the input. Returns the number of bytes written
   and moves *p to the first character left. */
static size_t bitnet__decode_gpt2(const uint16_t *map, const uint8_t **p, const uint8_t *end,
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
        if (cp >= BITNET__GPT2_END || map[cp] == BITNET__NO_BYTE) break;
        dst[n++] = (uint8_t)map[cp];
        q += length;
    }
    *p = q;
    return n;
}

/* Copies SentencePiece's text [p, p + n) with a space for each U+2581. Returns the length. */
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

/* The byte of SentencePiece's byte token <0x00> to <0xFF>, or -1. */
static int bitnet__parse_byte_token(const uint8_t *p, size_t n) {
    const int whole = n == 6 && !memcmp(p, "<0x", 3) && p[5] == '>';
    const int high = whole ? bitnet__hex_digit(p[3]) : -1;
    const int low = whole ? bitnet__hex_digit(p[4]) : -1;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Enters token t into the hash table unless an earlier token has the same bytes. */
static bitnet_result bitnet__add_slot(bitnet__vocab *v, uint32_t t, bitnet_error *err) {
    size_t n;
    const uint8_t *p = bitnet__vocab_bytes(v, (bitnet_token)t, &n);
    const uint64_t h = bitnet__hash_bytes(p, n);
    uint32_t at;
    if (n == 0) return BITNET_OK;               /* no text becomes it */
    at = bitnet__find_slot(v, p, n, h);
    if (at == bitnet__no_slot)
        return bitnet__fail_item(err, BITNET_ERR_LIMIT, "token", t, "too many hash collisions");
    if (v->slots[at] == bitnet__no_slot)
        v->slots[at] = (uint32_t)(h >> 52) << BITNET__ID_BITS | t;
    return BITNET_OK;
}

/* Appends token t, whose text in the file is [p, p + n). map is used by byte-level BPE only. */
static bitnet_result bitnet__add_token(bitnet__vocab *v, uint32_t t, const uint16_t *map,
                                       const uint8_t *p, size_t n, bitnet_error *err) {
    const uint8_t *end = p + n;
    uint8_t *dst = v->bytes + v->offsets[t];
    size_t length = n;
    int literal = bitnet__is_literal(v->types[t]), byte = -1;
    if (literal && n > BITNET__MAX_SPECIAL)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "token %u: a special token of over %d bytes",
                            (unsigned)t, (int)BITNET__MAX_SPECIAL);
    if (!map && v->types[t] == BITNET__TOKEN_USER) {
        length = bitnet__unmark_spaces(p, n, dst);
    } else if (literal) {
        memcpy(dst, p, n);
    } else if (map) {
        length = bitnet__decode_gpt2(map, &p, end, dst, n);
        if (p != end)
            return bitnet__fail(err, BITNET_ERR_FORMAT,
                                "token %u: byte %u of its text is not in GPT-2's byte encoding",
                                (unsigned)t, (unsigned)(n - (size_t)(end - p)));
    } else if (v->types[t] == BITNET__TOKEN_NORMAL) {
        length = bitnet__unmark_spaces(p, n, dst);
    } else {
        byte = bitnet__parse_byte_token(p, n);
        if (byte < 0)
            return bitnet__fail_item(err, BITNET_ERR_FORMAT, "token", t,
                                     "a byte token must be <0x00> to <0xFF>");
        if (v->byte_token[byte] < 0) v->byte_token[byte] = (int32_t)t;
        dst[0] = (uint8_t)byte;
        length = 1;
    }
    v->offsets[t + 1] = v->offsets[t] + (uint32_t)length;
    if (length > v->longest_token) v->longest_token = (uint32_t)length;
    return literal || byte >= 0 ? BITNET_OK : bitnet__add_slot(v, t, err);
}

/* Reads all tokens and sorts the literals. */
static bitnet_result bitnet__add_tokens(bitnet__vocab *v, const bitnet__strings *tokens,
                                        const uint8_t *types, const uint16_t *map,
                                        bitnet_error *err) {
    bitnet__strings unread = *tokens;
    const uint8_t *p = 0;
    uint32_t t, user = 0, control = v->n_user, rest = v->n_special;
    size_t n = 0;
    for (t = 0; t < v->n_tokens; t++) {
        const uint32_t type = bitnet__token_type(types, t);
        bitnet_result r;
        bitnet__next_string(&unread, &p, &n);
        v->types[t] = (uint8_t)type;
        r = bitnet__add_token(v, t, map, p, n, err);
        if (r != BITNET_OK) return r;
        if (!bitnet__is_literal(type)) continue;
        v->literals[type == BITNET__TOKEN_USER ? user++ :
                    type == BITNET__TOKEN_CONTROL ? control++ : rest++] = t;
        p = bitnet__vocab_bytes(v, (bitnet_token)t, &n);
        if (bitnet__is_special(type) && n > 0)
            v->special_start[p[0]] |= type == BITNET__TOKEN_USER ? 1 : 2;
    }
    bitnet__sort(v->literals, sizeof *v->literals, v->n_user, bitnet__literal_less, v);
    bitnet__sort(v->literals + v->n_user, sizeof *v->literals, v->n_special - v->n_user,
                 bitnet__literal_less, v);
    bitnet__sort(v->literals + v->n_special, sizeof *v->literals, v->n_literals - v->n_special,
                 bitnet__literal_less, v);
    return BITNET_OK;
}

/* Without a token for every byte some texts could not be encoded. */
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

/* Reads one merge, "left right" in GPT-2's encoding (which has no blank), into raw: left at
   [0, *split), right at [*split, *n). Returns 0 if it has another form, or does not fit and is
   therefore too long to be a token. */
static int bitnet__read_merge(const uint16_t *map, const uint8_t *p, size_t length, uint8_t *raw,
                              size_t room, size_t *split, size_t *n) {
    const uint8_t *end = p + length;
    *split = bitnet__decode_gpt2(map, &p, end, raw, room);
    if (p == end || *p != ' ') return 0;
    p++;
    *n = *split + bitnet__decode_gpt2(map, &p, end, raw + *split, room - *split);
    return p == end && *split > 0 && *n > *split;
}

/* Reads all merges. Files made from LLaMA 3's ranks list every
   way to split a token, so the result is often that of the merge before. */
static bitnet_result bitnet__add_merges(bitnet__vocab *v, const bitnet__strings *merges,
                                        const uint16_t *map, bitnet_error *err) {
    bitnet__strings unread = *merges;
    const uint8_t *p = 0;
    uint8_t *raw = v->raw;
    size_t length = 0, split = 0, n = 0, last_n = 0;
    int32_t left, right, result = -1;
    uint32_t i, place;
    for (i = 0; i < v->n_merges; i++) {
        uint64_t key;
        if (!bitnet__next_string(&unread, &p, &length))
            return bitnet__fail_item(err, BITNET_ERR_TRUNCATED, "merge", i, "text ends early");
        if (!bitnet__read_merge(map, p, length, raw, v->longest, &split, &n))
            return bitnet__fail_item(err, BITNET_ERR_FORMAT, "merge", i,
                                     "not two tokens and a blank");
        left = bitnet__find_normal(v, raw, split);
        right = bitnet__find_normal(v, raw + split, n - split);
        if (n != last_n || memcmp(v->bytes + v->offsets[result], raw, n) != 0)
            result = bitnet__find_normal(v, raw, n);
        if (left < 0 || right < 0 || result < 0)
            return bitnet__fail_item(err, BITNET_ERR_FORMAT, "merge", i,
                                     left < 0 ? "its left part is not a token" :
                                     right < 0 ? "its right part is not a token" :
                                     "its result is not a token");
        last_n = n;
        v->results[i] = (uint32_t)result;
        key = bitnet__pair_key((uint32_t)left, (uint32_t)right);
        place = bitnet__find_pair(v, key);
        if (place == bitnet__no_slot)
            return bitnet__fail_item(err, BITNET_ERR_LIMIT, "merge", i,
                                     "too many hash collisions");
        if (v->pairs[place] == bitnet__no_pair)     /* else the pair has a lower rank already */
            v->pairs[place] = key << BITNET__RANK_BITS | i;
    }
    return BITNET_OK;
}

/* Maps SentencePiece's scores [n_tokens] to ranks: a higher score gives a lower rank. */
static bitnet_result bitnet__add_scores(bitnet__vocab *v, const uint8_t *scores,
                                        bitnet_error *err) {
    uint32_t t, i;
    for (t = 0; t < v->n_tokens; t++) {
        float x = bitnet__load_f32(scores + 4 * (size_t)t) + 0.0f;      /* -0 becomes 0 */
        uint32_t bits = bitnet__float_bits(x);
        if (!(x >= -3.4e38f && x <= 3.4e38f))
            return bitnet__fail_item(err, BITNET_ERR_FORMAT, "token", t,
                                     "its score is not a finite number");
        v->ranks[t] = bits >> 31 ? bits : ~(bits | 0x80000000u);
    }
    v->powers[0] = 1;
    for (i = 0; i < BITNET__POWERS; i++) v->powers[i + 1] = v->powers[i] * bitnet__roll_factor;
    return BITNET_OK;
}

/* Builds a vocabulary from the GGUF arrays tokens, token_type (little-endian int32 each, null: all
   normal) and merges, or for SentencePiece's BPE scores (little-endian float each). The arrays are
   not needed afterwards. On failure *v is all zero and owns nothing. LLaMA 3's takes about 30 ms on
   a server core. */
static bitnet_result bitnet__vocab_build(bitnet__vocab *v, const bitnet_allocator *a,
                                         const bitnet__strings *tokens, const uint8_t *types,
                                         const bitnet__strings *merges, const uint8_t *scores,
                                         bitnet_error *err) {
    static const bitnet__strings none = {0, 0, 0};
    uint16_t map[BITNET__GPT2_END];
    bitnet_result r;
    memset(v, 0, sizeof *v);
    if (scores) merges = &none;
    bitnet__make_gpt2_map(map);
    memset(v->byte_token, 0xFF, sizeof v->byte_token);      /* -1 */
    v->bos = v->eos = v->eot = -1;
    v->pre = &bitnet__pres[0];
    r = bitnet__vocab_measure(v, tokens, types, merges, err);
    if (r == BITNET_OK)
        r = bitnet__vocab_alloc(v, a, tokens->size - 8 * v->n_tokens, scores != 0, err);
    if (r == BITNET_OK && scores) r = bitnet__add_scores(v, scores, err);
    if (r == BITNET_OK) r = bitnet__add_tokens(v, tokens, types, scores ? 0 : map, err);
    if (r == BITNET_OK) r = bitnet__find_byte_tokens(v, err);
    if (r == BITNET_OK) r = bitnet__add_merges(v, merges, map, err);
    if (r != BITNET_OK) bitnet__vocab_free(v, a);
    return r;
}

/* ---- the scanner: text to words ----

   LLaMA 3's pre-tokenizer is a regular expression. It is matched from left to right, and the first
   alternative that matches wins (L = \p{L}, N = \p{N}, S = \s, nl = CR or LF):

       (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^nl L N]?L+ | N{1,3} | ?[^S L N]+[nl]* | S*[nl]+
       | S+(?!\S) | S+

   No alternative backs up over more than the last character of a run, because
     - `S*[nl]+` ends after the last CR or LF of a run of white space;
     - `S+(?!\S)` is the run without its last character, or all of it at the end of the text;
     - the optional first character belongs to the word exactly if the run follows it.
   A run of white space is scanned at most three times: up to its last CR or LF, then the rest, then
   its last character. So the time is linear in the text. */

/* The end of the run of one class that starts at p; the run may be empty. */
static const uint8_t *bitnet__skip_class(const uint8_t *p, const uint8_t *end, int wanted) {
    uint32_t n;
    while (bitnet__class_at(p, end, &n) == wanted) p += n;
    return p;
}

/* Length of 's 't 're 've 'm 'll 'd, in any case, at the apostrophe p; 0 if there is none. U+017F,
   the long s, is the only character beyond ASCII that folds to one of these letters
   (CaseFolding.txt, status C and S; tests/checks/unicode_tables.py checks it). */
static size_t bitnet__contraction(const uint8_t *p, const uint8_t *end) {
    size_t n = (size_t)(end - p);
    int a = n > 1 ? p[1] | 0x20 : 0, b = n > 2 ? p[2] | 0x20 : 0;   /* ASCII lower case */
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return n > 2 && p[1] == 0xC5 && p[2] == 0xBF ? 3 : 0;
}

/* Length of the word that begins with the white space at p. */
static size_t bitnet__space_length(const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = p, *last = p, *newline_end = p;
    uint32_t n;
    int c = bitnet__class_at(q, end, &n);
    while (c == BITNET__SPACE || c == BITNET__NEWLINE) {
        last = q;                                   /* the run's last character so far */
        q += n;
        if (c == BITNET__NEWLINE) newline_end = q;
        c = bitnet__class_at(q, end, &n);
    }
    if (newline_end > p) return (size_t)(newline_end - p);
    if (c != BITNET__STOP && last > p) return (size_t)(last - p);
    return (size_t)(q - p);
}

/* Length of the word at p < end: at least 1, and 1 for a byte that is not UTF-8. digits: the most
   in a word; Qwen's expression has \p{N} in the place of \p{N}{1,3}. */
static size_t bitnet__word_length(const uint8_t *p, const uint8_t *end, int digits) {
    const uint8_t *q = p;
    uint32_t n, next_n;
    int c = bitnet__class_at(p, end, &n), next, i;
    size_t length = *p == '\'' ? bitnet__contraction(p, end) : 0;
    if (length > 0) return length;
    if (c == BITNET__STOP) return 1;
    if (c == BITNET__NUMBER) {
        for (i = 0; i < digits && c == BITNET__NUMBER; i++) {
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

/* The pre-tokenizer falcon_e applies three regular expressions in turn (P = \p{P}). Each cuts the
   words that the one before left: its matches become words, and so does the text between them.

       [P $+<=>^~|`]+
       's|'t|'re|'ve|'m|'ll|'d | ?L+ | ?N+ | ?[^S L N]+ | S+(?!\S) | S+
       [0-9]

   This is the definition of bitnet.cpp, whose converter writes that name; ik_llama.cpp treats it as
   llama-bpe. As in bitnet.cpp, a word is merged even if it is a token, and BOS is added only if
   the file asks for it. In one pass:
     - a run of punctuation is a word, so no apostrophe is left for the contractions;
     - each ASCII digit is a word; a space before it, which ` ?N+` took, is one again;
     - a run of letters, other numbers or anything else takes one space before it;
     - a run of white space leaves its last character to what follows, except before punctuation
       and at the end of the text.
   Only the last character of a run of white space is scanned twice. */

enum { BITNET__PUNCTUATION = 6, BITNET__DIGIT = 7 };        /* classes that only falcon_e has */

/* As bitnet__class_at, with PUNCTUATION and DIGIT, and SPACE for NEWLINE. */
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

/* Length of falcon_e's word at p < end: at least 1, and 1 for a byte that is not UTF-8. */
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

/* ---- the encoder: words to tokens ----

   A word starts as one token per byte. Again and again, the pair of neighbours with the lowest
   rank, the leftmost of equal ones, is replaced by the result of its merge. The tokens are a list
   linked over the bytes of the word (a token is at the index of its first byte). The pairs wait in
   a heap of `rank << 32 | index of the left token`. An entry is stale if the token at its index has
   another rank by now; it is dropped when it comes up. Each merge takes one entry and adds at most
   two, so a heap of 2n entries is large enough. */

typedef struct bitnet__symbol {
    uint32_t token;                 /* SentencePiece: unused; looked up by its bytes at the end */
    uint32_t previous, next;        /* indices; next of the last is the number of bytes */
    uint32_t rank;                  /* of the merge with the next token, or no_slot */
} bitnet__symbol;

typedef struct bitnet__encoder {
    const bitnet__vocab *vocab;
    const bitnet_allocator *allocator;
    bitnet_token *out;
    size_t cap, count;              /* counts all tokens; out gets the first cap of them */
    bitnet_result result;           /* the first error */
    const uint8_t *word;            /* SentencePiece: the bytes that are being merged */
    bitnet__symbol *symbols;        /* [room] the arrays below, or larger ones when needed */
    uint64_t *heap;                 /* [2 * room] */
    uint64_t *rolled;               /* [room] SentencePiece: hashes of the first 1, 2, .. bytes */
    int32_t at_start;               /* SentencePiece: 1: a text begins here */
    size_t room;
    void *allocation;               /* for larger arrays, or null */
    bitnet__symbol small_symbols[BITNET__SMALL_WORD];
    uint64_t small_heap[2 * BITNET__SMALL_WORD], small_rolled[BITNET__SMALL_WORD];
} bitnet__encoder;

static void bitnet__emit(bitnet__encoder *e, bitnet_token t) {
    if (e->count < e->cap) e->out[e->count] = t;
    e->count++;
}

/* A special token that stands in a text. */
static void bitnet__emit_special(bitnet__encoder *e, bitnet_token t) {
    e->at_start = 0;
    bitnet__emit(e, t);
}

/* Makes room for a word of n bytes. Doubling keeps the number of allocations logarithmic. */
static bitnet_result bitnet__reserve(bitnet__encoder *e, size_t n) {
    size_t room = e->room;
    uint8_t *p;
    if (n <= room) return BITNET_OK;
    if (n > BITNET__MAX_WORD) return BITNET_ERR_LIMIT;
    while (room < n) room *= 2;
    if (room > BITNET__MAX_WORD) room = BITNET__MAX_WORD;
    bitnet__free(e->allocator, e->allocation);
    e->allocation = 0;
    e->room = 0;
    p = (uint8_t *)bitnet__alloc(e->allocator, room * (e->vocab->ranks ? 40 : 32));
    if (!p) return BITNET_ERR_MEMORY;
    e->allocation = p;
    e->heap = (uint64_t *)(void *)p;                /* 16 bytes per byte of the word, ... */
    e->symbols = (bitnet__symbol *)(void *)(p + room * 16);         /* ... 16 more, ... */
    e->rolled = (uint64_t *)(void *)(p + room * 32);                /* ... and perhaps 8 more */
    e->room = room;
    return BITNET_OK;
}

static int bitnet__key_before(const void *arg, const void *a, const void *b) {
    (void)arg;
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* roll_factor^n: few tokens have more bytes than the table has powers. */
static uint64_t bitnet__power(const bitnet__vocab *v, size_t n) {
    uint64_t p = v->powers[n % BITNET__POWERS], square = v->powers[BITNET__POWERS];
    for (n /= BITNET__POWERS; n > 0; n /= 2, square *= square)
        if (n % 2) p *= square;
    return p;
}

/* SentencePiece: the token of bytes [from, to) of the word, or -1. */
static int32_t bitnet__find_stretch(const bitnet__encoder *e, size_t from, size_t to) {
    const bitnet__vocab *v = e->vocab;
    uint64_t h = e->rolled[to - 1];
    if (to - from > v->longest) return -1;
    if (from > 0) h -= e->rolled[from - 1] * bitnet__power(v, to - from);
    return bitnet__find_hashed(v, e->word + from, to - from, bitnet__mix(h));
}

/* Looks up the pair that begins at symbol i; returns 1 and its heap key if it can be merged. */
static int bitnet__rate_pair(const bitnet__encoder *e, size_t i, size_t n, uint64_t *key) {
    bitnet__symbol *s = e->symbols + i;
    s->rank = bitnet__no_slot;
    if (s->next < n && e->vocab->ranks) {
        int32_t token = bitnet__find_stretch(e, i, e->symbols[s->next].next);
        if (token >= 0) s->rank = e->vocab->ranks[token];
    } else if (s->next < n) {
        s->rank = bitnet__pair_rank(e->vocab, s->token, e->symbols[s->next].token);
    }
    *key = (uint64_t)s->rank << 32 | i;
    return s->rank != bitnet__no_slot;
}

/* Makes the symbols, one per byte or in SentencePiece per character, and the unordered keys of all
   pairs. Returns the number of keys. */
static size_t bitnet__start_word(bitnet__encoder *e, const uint8_t *p, size_t n) {
    size_t i, count = 0, before = (size_t)0 - 1;    /* never followed */
    uint64_t h = 0;
    e->word = p;
    for (i = 0; e->vocab->ranks && i < n; i++) e->rolled[i] = h = bitnet__roll(h, p[i]);
    for (i = 0; i < n; i = e->symbols[i].next) {
        uint32_t length = 1;
        if (e->vocab->ranks) bitnet__class_at(p + i, p + n, &length);
        e->symbols[i].token = (uint32_t)e->vocab->byte_token[p[i]];
        e->symbols[i].previous = (uint32_t)before;
        e->symbols[i].next = (uint32_t)(i + length);
        before = i;
    }
    for (i = 0; i < n; i = e->symbols[i].next)
        count += (size_t)bitnet__rate_pair(e, i, n, e->heap + count);
    return count;
}

/* Merges one word, for which there is room, and emits its tokens. */
static void bitnet__merge_word(bitnet__encoder *e, const uint8_t *p, size_t n) {
    const bitnet__heap heap = {e->heap, 8, 8, bitnet__key_before, 0};
    bitnet__symbol *symbols = e->symbols;
    size_t count = bitnet__start_word(e, p, n), i;
    uint64_t key;
    bitnet__heap_make(&heap, count, &key);
    while (count > 0) {
        uint32_t rank = (uint32_t)(e->heap[0] >> 32), right;
        i = (size_t)(e->heap[0] & 0xFFFFFFFFu);
        count--;
        if (count > 0) bitnet__heap_sink(&heap, count, 0, &e->heap[count]);
        if (symbols[i].rank != rank) continue;      /* stale */
        right = symbols[i].next;
        symbols[right].rank = bitnet__no_slot;      /* makes its entry stale, if it has one */
        if (!e->vocab->ranks) symbols[i].token = e->vocab->results[rank];
        symbols[i].next = symbols[right].next;
        if (symbols[i].next < n) symbols[symbols[i].next].previous = (uint32_t)i;
        if (bitnet__rate_pair(e, i, n, &key)) bitnet__heap_rise(&heap, count++, &key);
        if (i > 0 && bitnet__rate_pair(e, symbols[i].previous, n, &key))
            bitnet__heap_rise(&heap, count++, &key);
    }
    for (i = 0; i < n; i = symbols[i].next) {
        const int32_t token = e->vocab->ranks ? bitnet__find_stretch(e, i, symbols[i].next)
                                              : (int32_t)symbols[i].token;
        size_t j = i;
        if (token >= 0) bitnet__emit(e, token);
        else while (j < symbols[i].next) bitnet__emit(e, e->vocab->byte_token[p[j++]]);
    }
}

/* SentencePiece: merges a text without special tokens as one word. A character that ends up in no
   token becomes its bytes. A U+2581 in the text is a space. */
static bitnet_result bitnet__encode_spm(bitnet__encoder *e, const uint8_t *p,
                                        const uint8_t *end) {
    const size_t prefix = e->at_start && e->vocab->space_prefix;
    size_t n = (size_t)(end - p);
    bitnet_result r;
    uint8_t own[BITNET__SMALL_WORD], *text = own;      /* "small" is a macro of Windows */
    if (n == 0) return BITNET_OK;
    r = bitnet__reserve(e, n + 1);
    if (r != BITNET_OK) return r;
    if (n >= sizeof own) text = (uint8_t *)bitnet__alloc(e->allocator, n + 1);
    if (!text) return BITNET_ERR_MEMORY;
    text[0] = ' ';
    n = bitnet__unmark_spaces(p, n, text + prefix);
    bitnet__merge_word(e, text, n + prefix);
    e->at_start = 0;
    if (text != own) bitnet__free(e->allocator, text);
    return BITNET_OK;
}

/* Byte-level BPE: encodes text without special tokens, word by word. */
static bitnet_result bitnet__encode_bpe(bitnet__encoder *e, const uint8_t *p, const uint8_t *end) {
    const bitnet__pre *pre = e->vocab->pre;
    while (p < end) {
        size_t n = pre->digits ? bitnet__word_length(p, end, pre->digits)
                               : bitnet__falcon_length(p, end);
        int32_t token = pre->whole ? bitnet__find_normal(e->vocab, p, n) : -1;
        if (token >= 0) {
            bitnet__emit(e, token);
        } else {
            bitnet_result r = bitnet__reserve(e, n);
            if (r != BITNET_OK) return r;
            bitnet__merge_word(e, p, n);
        }
        p += n;
    }
    return BITNET_OK;
}

/* The same for a text that is brought to NFC first. */
static bitnet_result bitnet__encode_nfc(bitnet__encoder *e, const uint8_t *p, const uint8_t *end) {
    const size_t n = (size_t)(end - p), longest = bitnet__longest_unstable(p, end);
    uint64_t *cps;
    bitnet_result r;
    uint8_t *text;
    if (longest == 0) return bitnet__encode_bpe(e, p, end);
    if (n > SIZE_MAX / 64) return BITNET_ERR_LIMIT;
    cps = (uint64_t *)bitnet__alloc(e->allocator, 4 * longest * sizeof *cps + 3 * n);
    if (!cps) return BITNET_ERR_MEMORY;
    text = (uint8_t *)(cps + 4 * longest);
    r = bitnet__encode_bpe(e, text, text + bitnet__nfc(p, end, cps, text));
    bitnet__free(e->allocator, cps);
    return r;
}

/* Encodes text without special tokens. */
static bitnet_result bitnet__encode_stretch(bitnet__encoder *e, const uint8_t *p,
                                            const uint8_t *end) {
    if (e->vocab->ranks) return bitnet__encode_spm(e, p, end);
    return e->vocab->pre->nfc ? bitnet__encode_nfc(e, p, end) : bitnet__encode_bpe(e, p, end);
}

/* Starts a list of tokens; out may be null. bitnet__encoder_close ends it. */
static void bitnet__encoder_open(bitnet__encoder *e, const bitnet__vocab *v,
                                 const bitnet_allocator *a, bitnet_token *out, size_t cap) {
    e->vocab = v;
    e->allocator = a;
    e->out = out;
    e->cap = out ? cap : 0;
    e->count = 0;
    e->at_start = 1;
    e->result = BITNET_OK;
    e->symbols = e->small_symbols;
    e->heap = e->small_heap;
    e->rolled = e->small_rolled;
    e->room = BITNET__SMALL_WORD;
    e->allocation = 0;
}

/* Frees what the encoder owns; returns the number of tokens or the first error. */
static int bitnet__encoder_close(bitnet__encoder *e) {
    bitnet__free(e->allocator, e->allocation);
    if (e->result == BITNET_OK && e->count > INT32_MAX) return BITNET_ERR_LIMIT;
    return e->result == BITNET_OK ? (int)e->count : (int)e->result;
}

static int bitnet__is_among(const bitnet_token *list, int32_t n, bitnet_token t) {
    while (n > 0 && list[n - 1] != t) n--;
    return n > 0;
}

/* Adds the tokens of n bytes of text. User-defined tokens in it become these tokens, and with
   parse_special control tokens, too (leftmost first, the longest at each place), except those in
   not_these [n_not], which stay text. Sets e->result to BITNET_ERR_MEMORY, or to BITNET_ERR_LIMIT
   for a word of over 64 MiB. */
static void bitnet__encode_except(bitnet__encoder *e, const void *text, size_t n, int parse_special,
                                  const bitnet_token *not_these, int32_t n_not) {
    const uint8_t *p = (const uint8_t *)text, *end = n > 0 ? p + n : p, *at = p;
    while (p < end && e->result == BITNET_OK) {
        size_t length = 0;
        const int32_t token = bitnet__find_special(e->vocab, parse_special, at, end, &at, &length);
        if (token >= 0 && bitnet__is_among(not_these, n_not, token)) {
            at++;
            continue;
        }
        e->result = bitnet__encode_stretch(e, p, at);
        if (token >= 0) bitnet__emit_special(e, token);
        p = at += length;
    }
}

static void bitnet__encode_text(bitnet__encoder *e, const void *text, size_t n,
                                int parse_special) {
    bitnet__encode_except(e, text, n, parse_special, 0, 0);
}

/* Adds EOS if flags ask for it and the vocabulary has it. */
static void bitnet__encode_eos(bitnet__encoder *e, int flags) {
    if ((flags & BITNET_ADD_EOS) && e->vocab->eos >= 0) bitnet__emit(e, e->vocab->eos);
}

/* Adds BOS if flags ask for it and the vocabulary has it. */
static void bitnet__encode_bos(bitnet__encoder *e, int flags) {
    if ((flags & BITNET_ADD_BOS) && e->vocab->bos >= 0) bitnet__emit(e, e->vocab->bos);
}

/* bitnet_tokenize on a vocabulary. */
static int bitnet__encode(const bitnet__vocab *v, const bitnet_allocator *a, const void *text,
                          size_t n, int flags, bitnet_token *out, size_t cap) {
    bitnet__encoder e;
    if (n > INT32_MAX) return BITNET_ERR_LIMIT;
    bitnet__encoder_open(&e, v, a, out, cap);
    bitnet__encode_bos(&e, flags);
    bitnet__encode_text(&e, text, n, (flags & BITNET_PARSE_SPECIAL) != 0);
    if (e.result == BITNET_OK) bitnet__encode_eos(&e, flags);
    return bitnet__encoder_close(&e);
}

/* ---- the decoder ---- */

/* The bytes of token t; null if there is no such token. */
static const uint8_t *bitnet__token_bytes(const bitnet__vocab *v, bitnet_token t, size_t *n) {
    *n = 0;
    if (t < 0 || t >= v->n_ids) return 0;
    return (uint32_t)t < v->n_tokens ? bitnet__vocab_bytes(v, t, n) : v->bytes;
}

/* Tokens are byte strings and may end inside a character. The functions below take their bytes in
   any portions and give out well-formed UTF-8, whole code points only. Bytes that cannot be part of
   a character become U+FFFD, one for each maximal subpart (Unicode Standard, section 3.9; Python's
   errors='replace'). */

/* Whether byte b can follow the n_pending >= 1 bytes of an unfinished character. */
static int bitnet__detok_continues(const bitnet_detok *d, uint8_t b) {
    if (d->n_pending == 1) return bitnet__utf8_second_ok(d->pending[0], b);
    return (b & 0xC0) == 0x80;
}

/* Writes the pending bytes, or U+FFFD if they are not a whole character; returns the length. */
static size_t bitnet__detok_flush(bitnet_detok *d, char *out) {
    static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};
    const size_t n = (size_t)d->n_pending;
    const int whole = bitnet__utf8_length(d->pending[0]) == n;
    if (n == 0) return 0;
    d->n_pending = 0;
    memcpy(out, whole ? d->pending : replacement, whole ? n : 3);
    return whole ? n : 3;
}

/* Takes n more bytes; returns how many come out, at most 3 * n + 3. A zeroed state starts a new
   text. */
static size_t bitnet__detok_push(bitnet_detok *d, const uint8_t *bytes, size_t n, char *out) {
    size_t at = 0, i;
    for (i = 0; i < n; i++) {
        if (d->n_pending > 0 && !bitnet__detok_continues(d, bytes[i]))
            at += bitnet__detok_flush(d, out + at);
        d->pending[d->n_pending++] = bytes[i];
        if (bitnet__utf8_length(d->pending[0]) <= (uint32_t)d->n_pending)
            at += bitnet__detok_flush(d, out + at);
    }
    return at;
}

/* ---- public functions ---- */

static bitnet_result bitnet__fail_tokenize(bitnet_result r, bitnet_error *err) {
    return bitnet__fail(err, r, "the text cannot be tokenized: %s", bitnet_result_text(r));
}

BITNET_API int bitnet_tokenize(const bitnet_model *m, const char *text, size_t n, int flags,
                               bitnet_token *out, size_t cap) {
    if (!m || (!text && n > 0) ||
        flags & ~(BITNET_ADD_BOS | BITNET_ADD_EOS | BITNET_PARSE_SPECIAL)) return BITNET_ERR_ARG;
    return bitnet__encode(bitnet__vocab_of(m), bitnet__allocator_of(m), text, n, flags, out, cap);
}


BITNET_API int bitnet_detokenize(const bitnet_model *m, const bitnet_token *tokens, int n,
                                 char *buf, size_t cap) {
    uint64_t used = 0;
    int i;
    if (!m || n < 0 || (!tokens && n > 0)) return BITNET_ERR_ARG;
    for (i = 0; i < n; i++) {
        size_t length, room;
        const uint8_t *p = bitnet__token_bytes(bitnet__vocab_of(m), tokens[i], &length);
        if (!p) return BITNET_ERR_ARG;
        room = buf && used < cap ? cap - (size_t)used : 0;
        if (room > 0) memcpy(buf + used, p, length < room ? length : room);
        used += length;
    }
    return used > INT32_MAX ? (int)BITNET_ERR_LIMIT : (int)used;
}

static const char *const bitnet__tags[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
enum { BITNET__OPEN_THINK, BITNET__CLOSE_THINK, BITNET__OPEN_CALL, BITNET__CLOSE_CALL,
       BITNET__N_TAGS };

/* What the assistant writes to be read by programs. */
static int bitnet__is_tag(const char *p, size_t n) {
    int i;
    for (i = 0; i < BITNET__N_TAGS; i++)
        if (strlen(bitnet__tags[i]) == n && !memcmp(bitnet__tags[i], p, n)) return 1;
    return 0;
}

BITNET_API int bitnet_detok_push(const bitnet_model *m, bitnet_detok *d, bitnet_token t,
                                 char *buf, size_t cap) {
    size_t n = 0;
    const uint8_t *p = t == -1 || !m ? 0 : bitnet__token_bytes(bitnet__vocab_of(m), t, &n);
    if (!m || !d || !buf || (t != -1 && !p) || cap < 3 || (cap - 3) / 3 < n || d->n_pending < 0 ||
        d->n_pending > 3)
        return BITNET_ERR_ARG;
    if (t == -1 || n == 0 || (bitnet__vocab_of(m)->types[t] == BITNET__TOKEN_CONTROL &&
                              !bitnet__is_tag((const char *)p, n)))
        return (int)bitnet__detok_flush(d, buf);
    return (int)bitnet__detok_push(d, p, n, buf);
}

BITNET_API bitnet_token bitnet_token_find(const bitnet_model *m, const char *text, size_t n) {
    return m && text ? bitnet__vocab_find(bitnet__vocab_of(m), text, n) : -1;
}

BITNET_API const char *bitnet_token_text(const bitnet_model *m, bitnet_token t, size_t *n) {
    size_t unused;
    if (!n) n = &unused;
    *n = 0;
    return m ? (const char *)bitnet__token_bytes(bitnet__vocab_of(m), t, n) : 0;
}

BITNET_API int bitnet_token_is_special(const bitnet_model *m, bitnet_token t) {
    return m && t >= 0 && (uint32_t)t < bitnet__vocab_of(m)->n_tokens &&
           bitnet__vocab_of(m)->types[t] == BITNET__TOKEN_CONTROL;
}

BITNET_API int bitnet_token_is_end(const bitnet_model *m, bitnet_token t) {
    const bitnet__vocab *v = m ? bitnet__vocab_of(m) : 0;
    return v && t >= 0 && bitnet__is_among(v->ends, v->n_ends, t);
}

/* =============================================================================================
   @jinja  a bounded reader of Jinja, as far as chat templates need it
   ============================================================================================= */

/* ---- Jinja, as far as chat templates need it ----
   Text is read, evaluated and written in one go; a loop reads its body again for each item. Values
   have no side effects, so both sides of `and`, `or` and `if ... else` are evaluated, and one that
   fails counts only where it is used. Steps, memory, output and nesting have limits. */

typedef enum bitnet__jinja_kind {
    BITNET__UNDEFINED, BITNET__NONE, BITNET__BOOL, BITNET__INT, BITNET__STRING, BITNET__LIST,
    BITNET__DICT, BITNET__FAILED
} bitnet__jinja_kind;

/* Why a value, or all of the text, failed. */
enum { BITNET__RAISED = 1, BITNET__NOT_UNDERSTOOD, BITNET__TOO_MUCH };

enum {
    BITNET__JINJA_MEMORY = 1 << 15,    /* of values and texts */
    BITNET__JINJA_OUT = 1 << 12,       /* bytes of a prompt */
    BITNET__JINJA_WORK = 1 << 23,      /* of all probes: bytes that are read or compared */
    BITNET__JINJA_DEPTH = 16,          /* of blocks and expressions in each other: 48 KB of stack */
    BITNET__JINJA_NAMES = 64,
    BITNET__JINJA_ARGS = 16            /* of calls in each other */
};

/* A string is a view: of the template, of a constant or of the interpreter's memory. A list has
   items; a dictionary has keys and values by turns. */
typedef struct bitnet__jvalue {
    bitnet__jinja_kind kind;
    int32_t n;                         /* a number; bytes of a string; why it failed */
    const char *s;                     /* a string; where it failed */
    struct bitnet__jlist *list;
} bitnet__jvalue;

typedef struct bitnet__jlist { bitnet__jvalue *items; int32_t n, cap; } bitnet__jlist;
typedef struct bitnet__jname { const char *s; int32_t n; bitnet__jvalue value; } bitnet__jname;
typedef struct bitnet__jargs { const bitnet__jname *a; int32_t n; } bitnet__jargs;

typedef struct bitnet__jinja {
    const char *start, *at, *end;      /* of the template, and where it is being read */
    char *memory;
    size_t used, cap;
    int64_t work;                      /* that is left: see BITNET__JINJA_WORK */
    int32_t depth, n_names, scope;     /* names from scope on are of the innermost loop */
    int32_t n_out;
    bitnet__jvalue failure;            /* of the whole text; kind BITNET__FAILED, if it failed */
    bitnet__jname names[BITNET__JINJA_NAMES];
    bitnet__jname args[BITNET__JINJA_ARGS];
    int32_t n_args;
    char out[BITNET__JINJA_OUT];
} bitnet__jinja;

static bitnet__jvalue bitnet__jvalue_of(bitnet__jinja_kind kind, size_t n, const char *s) {
    bitnet__jvalue v;
    v.kind = kind;
    v.n = (int32_t)n;
    v.s = s;
    v.list = 0;
    return v;
}

static bitnet__jvalue bitnet__jstring_of(const char *s, size_t n) {
    return bitnet__jvalue_of(BITNET__STRING, n, s);
}

static bitnet__jvalue bitnet__jstring(const char *s) { return bitnet__jstring_of(s, strlen(s)); }

static bitnet__jvalue bitnet__jbool(int b) { return bitnet__jvalue_of(BITNET__BOOL, b != 0, 0); }

static bitnet__jvalue bitnet__jint(int32_t n) {
    return bitnet__jvalue_of(BITNET__INT, (size_t)n, 0);
}

static bitnet__jvalue bitnet__jundefined(void) {
    return bitnet__jvalue_of(BITNET__UNDEFINED, 0, 0);
}

static bitnet__jvalue bitnet__jfail(const char *place, int why) {
    return bitnet__jvalue_of(BITNET__FAILED, (size_t)why, place);
}

/* Records the failure and moves to the template's end, so that every loop over it ends. Returns
   the failure. */
static bitnet__jvalue bitnet__jinja_stop(bitnet__jinja *j, bitnet__jvalue failure) {
    if (j->failure.kind != BITNET__FAILED) j->failure = failure;
    j->at = j->end;
    return j->failure;
}

static bitnet__jvalue bitnet__jinja_stop_here(bitnet__jinja *j, int why) {
    return bitnet__jinja_stop(j, bitnet__jfail(j->at, why));
}

static void bitnet__jinja_work(bitnet__jinja *j, size_t n) {
    j->work -= (int64_t)n + 1;
    if (j->work < 0) bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
}

/* Memory for n bytes, or for values if they are aligned; 0: there is no more. */
static char *bitnet__jinja_alloc(bitnet__jinja *j, size_t n, int aligned) {
    const size_t at = aligned ? (j->used + 7) & ~(size_t)7 : j->used;
    bitnet__jinja_work(j, n);
    if (at > j->cap || n > j->cap - at) {
        bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
        return 0;
    }
    j->used = at + n;
    return j->memory + at;
}

/* a and n more bytes. If a is what was made last, it grows in place. */
static bitnet__jvalue bitnet__jinja_append(bitnet__jinja *j, bitnet__jvalue a, const char *s,
                                           size_t n) {
    char *p;
    if (n == 0) return a;
    if (a.n > 0 && a.s + a.n == j->memory + j->used) {
        p = bitnet__jinja_alloc(j, n, 0);
        if (!p) return j->failure;
        memcpy(p, s, n);
        a.n += (int32_t)n;
        return a;
    }
    p = bitnet__jinja_alloc(j, (size_t)a.n + n, 0);
    if (!p) return j->failure;
    if (a.n) memcpy(p, a.s, (size_t)a.n);
    memcpy(p + a.n, s, n);
    return bitnet__jstring_of(p, (size_t)a.n + n);
}

/* A list or dictionary with room for n values, which grows. */
static bitnet__jvalue bitnet__jinja_list(bitnet__jinja *j, bitnet__jinja_kind kind, size_t n) {
    bitnet__jvalue v = bitnet__jvalue_of(kind, 0, 0);
    char *p = bitnet__jinja_alloc(j, sizeof *v.list, 1), *items;
    items = p && n < BITNET__JINJA_MEMORY ? bitnet__jinja_alloc(j, n * sizeof v, 1) : 0;
    if (!items) return bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
    v.list = (bitnet__jlist *)(void *)p;
    v.list->items = (bitnet__jvalue *)(void *)items;
    v.list->n = 0;
    v.list->cap = (int32_t)n;
    return v;
}

/* A value that failed fails the list. */
static void bitnet__jinja_push(bitnet__jinja *j, bitnet__jvalue *list, bitnet__jvalue v) {
    bitnet__jlist *l = list->list;
    if (list->kind == BITNET__FAILED) return;
    if (v.kind == BITNET__FAILED) {
        *list = v;
        return;
    }
    if (l->n == l->cap) {
        const bitnet__jvalue more = bitnet__jinja_list(j, BITNET__LIST, 2 * (size_t)l->n + 2);
        if (more.kind == BITNET__FAILED) {
            *list = more;
            return;
        }
        if (l->n) memcpy(more.list->items, l->items, (size_t)l->n * sizeof v);
        l->items = more.list->items;
        l->cap = more.list->cap;
    }
    l->items[l->n++] = v;
}

static int bitnet__jsame(bitnet__jvalue v, const char *s, int32_t n) {
    return v.kind == BITNET__STRING && v.n == n && (n == 0 || !memcmp(v.s, s, (size_t)n));
}

static bitnet__jvalue *bitnet__jinja_entry(bitnet__jinja *j, bitnet__jvalue dict, const char *key,
                                           int32_t n) {
    int32_t i;
    bitnet__jinja_work(j, (size_t)dict.list->n);
    for (i = 0; i < dict.list->n; i += 2)
        if (bitnet__jsame(dict.list->items[i], key, n)) return &dict.list->items[i + 1];
    return 0;
}

/* Sets an entry. */
static void bitnet__jinja_put(bitnet__jinja *j, bitnet__jvalue *dict, bitnet__jvalue key,
                              bitnet__jvalue value) {
    bitnet__jvalue *known;
    if (key.kind != BITNET__STRING && key.kind != BITNET__FAILED)
        key = bitnet__jfail(j->at, BITNET__NOT_UNDERSTOOD);
    if (dict->kind == BITNET__FAILED || key.kind == BITNET__FAILED) {
        bitnet__jinja_push(j, dict, key);
        return;
    }
    known = bitnet__jinja_entry(j, *dict, key.s, key.n);
    if (known && value.kind != BITNET__FAILED) *known = value;
    else {
        bitnet__jinja_push(j, dict, key);
        bitnet__jinja_push(j, dict, value);
    }
}

static int bitnet__jtruth(bitnet__jvalue v) {
    return v.kind >= BITNET__LIST && v.kind <= BITNET__DICT ? v.list->n > 0
           : v.kind >= BITNET__BOOL && v.kind <= BITNET__STRING && v.n != 0;
}

/* The text of a value, as {{ }} writes it. */
static bitnet__jvalue bitnet__jinja_text(bitnet__jinja *j, bitnet__jvalue v, const char *place) {
    char digits[12];
    int at = 12;
    int64_t n = v.n < 0 ? -(int64_t)v.n : v.n;
    if (v.kind == BITNET__STRING || v.kind == BITNET__FAILED) return v;
    if (v.kind == BITNET__UNDEFINED) return bitnet__jstring("");
    if (v.kind == BITNET__NONE) return bitnet__jstring("None");
    if (v.kind == BITNET__BOOL) return bitnet__jstring(v.n ? "True" : "False");
    if (v.kind != BITNET__INT) return bitnet__jfail(place, BITNET__NOT_UNDERSTOOD);
    do digits[--at] = (char)('0' + n % 10); while ((n /= 10) > 0);
    if (v.n < 0) digits[--at] = '-';
    return bitnet__jinja_append(j, bitnet__jstring(""), digits + at, (size_t)(12 - at));
}

/* ---- reading ---- */

static int bitnet__is_digit(char c) { return c >= '0' && c <= '9'; }
static int bitnet__is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int bitnet__is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || bitnet__is_digit(c) || c == '_';
}

static int bitnet__jinja_sees(const bitnet__jinja *j, const char *what) {
    const size_t n = strlen(what);
    return (size_t)(j->end - j->at) >= n && !memcmp(j->at, what, n);
}

static void bitnet__jinja_blanks(bitnet__jinja *j) {
    const char *from = j->at;
    while (j->at < j->end && bitnet__is_space(*j->at)) j->at++;
    bitnet__jinja_work(j, (size_t)(j->at - from));
}

/* Takes an operator or a keyword, if it is what comes next. A minus sign in front of %} or }}
   belongs to the tag's end. */
static int bitnet__jinja_take(bitnet__jinja *j, const char *what) {
    const size_t n = strlen(what);
    bitnet__jinja_blanks(j);
    if (!bitnet__jinja_sees(j, what)) return 0;
    if (n == 1 && strchr("+-%", *what) &&
        (bitnet__jinja_sees(j, "%}") || bitnet__jinja_sees(j, "-%}") ||
         bitnet__jinja_sees(j, "+%}") || bitnet__jinja_sees(j, "-}}"))) return 0;
    if (bitnet__is_name_byte(what[n - 1]) && (size_t)(j->end - j->at) > n &&
        bitnet__is_name_byte(j->at[n])) return 0;
    j->at += n;
    return 1;
}

static void bitnet__jinja_need(bitnet__jinja *j, const char *what) {
    if (!bitnet__jinja_take(j, what)) bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
}

/* A name; empty, if there is none. */
static bitnet__jname bitnet__jinja_name(bitnet__jinja *j) {
    bitnet__jname name;
    bitnet__jinja_blanks(j);
    name.s = j->at;
    if (j->at < j->end && !bitnet__is_digit(*j->at))
        while (j->at < j->end && bitnet__is_name_byte(*j->at)) j->at++;
    name.n = (int32_t)(j->at - name.s);
    name.value = bitnet__jundefined();
    bitnet__jinja_work(j, (size_t)name.n);
    if (name.n == 0) bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
    return name;
}

static int bitnet__jis(bitnet__jname name, const char *s) {
    return (size_t)name.n == strlen(s) && !memcmp(name.s, s, (size_t)name.n);
}

static bitnet__jname *bitnet__jinja_lookup(bitnet__jinja *j, bitnet__jname name, int32_t from) {
    int32_t i;
    bitnet__jinja_work(j, (size_t)j->n_names);
    for (i = j->n_names - 1; i >= from; i--)
        if (j->names[i].n == name.n && !memcmp(j->names[i].s, name.s, (size_t)name.n))
            return &j->names[i];
    return 0;
}

/* Gives a name of the innermost scope a value. */
static void bitnet__jinja_set(bitnet__jinja *j, bitnet__jname name, bitnet__jvalue v) {
    bitnet__jname *known = bitnet__jinja_lookup(j, name, j->scope);
    if (v.kind == BITNET__FAILED) bitnet__jinja_stop(j, v);
    else if (!known && j->n_names == BITNET__JINJA_NAMES)
        bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
    else {
        if (!known) known = &j->names[j->n_names++];
        *known = name;
        known->value = v;
    }
}

/* ---- what filters and methods do ---- */

static int bitnet__jinja_is_ascii(bitnet__jinja *j, bitnet__jvalue v) {
    int32_t i;
    bitnet__jinja_work(j, (size_t)v.n);
    for (i = 0; i < v.n; i++) if ((uint8_t)v.s[i] >= 128) return 0;
    return 1;
}

/* Index of the first `what` in v at or after `from`; -1: none. */
static int32_t bitnet__jinja_find(bitnet__jinja *j, bitnet__jvalue v, int32_t from,
                                  bitnet__jvalue what) {
    int32_t i;
    bitnet__jinja_work(j, (size_t)(v.n - from) * ((size_t)what.n / 16 + 1));
    for (i = from; i + what.n <= v.n; i++)
        if (what.n == 0 || !memcmp(v.s + i, what.s, (size_t)what.n)) return i;
    return -1;
}

static int bitnet__jis_among(char c, const bitnet__jvalue *set) {
    return set ? set->n > 0 && memchr(set->s, c, (size_t)set->n) != 0 : bitnet__is_space(c);
}

/* sides: 1 left, 2 right. set 0: white space. */
static bitnet__jvalue bitnet__jstrip(bitnet__jvalue v, int sides, const bitnet__jvalue *set) {
    while (sides & 1 && v.n > 0 && bitnet__jis_among(*v.s, set)) v.s++, v.n--;
    while (sides & 2 && v.n > 0 && bitnet__jis_among(v.s[v.n - 1], set)) v.n--;
    return v;
}

/* Upper and lower case: 'u'pper, 'l'ower, 'c'apitalize, 't'itle. */
static bitnet__jvalue bitnet__jinja_case(bitnet__jinja *j, bitnet__jvalue v, char how,
                                         const char *place) {
    char *p;
    int32_t i;
    if (!bitnet__jinja_is_ascii(j, v)) return bitnet__jfail(place, BITNET__NOT_UNDERSTOOD);
    p = bitnet__jinja_alloc(j, (size_t)v.n, 0);
    if (!p) return j->failure;
    for (i = 0; i < v.n; i++) {
        const char c = v.s[i];
        const int first = i == 0 || (how == 't' && bitnet__is_space(v.s[i - 1]));
        const int up = how == 'u' || (how != 'l' && first);
        p[i] = (char)(up && c >= 'a' && c <= 'z' ? c - 'a' + 'A'
                      : !up && c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return bitnet__jstring_of(p, (size_t)v.n);
}

static bitnet__jvalue bitnet__jinja_replace(bitnet__jinja *j, bitnet__jvalue v,
                                            bitnet__jvalue from, bitnet__jvalue to) {
    bitnet__jvalue out = bitnet__jstring("");
    int32_t at = 0, next;
    while (from.n > 0 && (next = bitnet__jinja_find(j, v, at, from)) >= 0 &&
           out.kind == BITNET__STRING) {
        out = bitnet__jinja_append(j, out, v.s + at, (size_t)(next - at));
        if (out.kind == BITNET__STRING) out = bitnet__jinja_append(j, out, to.s, (size_t)to.n);
        at = next + from.n;
    }
    if (out.kind != BITNET__STRING) return out;
    return bitnet__jinja_append(j, out, v.s + at, (size_t)(v.n - at));
}

static bitnet__jvalue bitnet__jinja_split(bitnet__jinja *j, bitnet__jvalue v, bitnet__jvalue by) {
    bitnet__jvalue list = bitnet__jinja_list(j, BITNET__LIST, 4);
    int32_t at = 0, next;
    while (list.kind == BITNET__LIST && (next = bitnet__jinja_find(j, v, at, by)) >= 0) {
        bitnet__jinja_push(j, &list, bitnet__jstring_of(v.s + at, (size_t)(next - at)));
        at = next + by.n;
    }
    bitnet__jinja_push(j, &list, bitnet__jstring_of(v.s + at, (size_t)(v.n - at)));
    return list;
}

/* Appends a string of JSON, as json.dumps(ensure_ascii=False) writes it. */
static bitnet__jvalue bitnet__jinja_quote(bitnet__jinja *j, bitnet__jvalue out, bitnet__jvalue v) {
    static const char plain[] = "\"\\\n\r\t\b\f", escapes[] = "\"\\nrtbf";
    static const char hex[] = "0123456789abcdef";
    int32_t i;
    out = bitnet__jinja_append(j, out, "\"", 1);
    for (i = 0; i < v.n && out.kind == BITNET__STRING; i++) {
        const char c = v.s[i], *known = c ? strchr(plain, c) : 0;
        char text[6] = {'\\', 'u', '0', '0', 0, 0};
        text[4] = hex[(uint8_t)c >> 4];
        text[5] = hex[(uint8_t)c & 15];
        if (known) text[1] = escapes[known - plain];
        if (known) out = bitnet__jinja_append(j, out, text, 2);
        else if ((uint8_t)c < 32) out = bitnet__jinja_append(j, out, text, 6);
        else out = bitnet__jinja_append(j, out, v.s + i, 1);
    }
    return out.kind == BITNET__STRING ? bitnet__jinja_append(j, out, "\"", 1) : out;
}

/* Appends a value as JSON. It is nested no deeper than expressions are. */
static bitnet__jvalue bitnet__jinja_json(bitnet__jinja *j, bitnet__jvalue out, bitnet__jvalue v,
                                         const char *place, int depth) {
    const int is_dict = v.kind == BITNET__DICT;
    int32_t i;
    if (out.kind != BITNET__STRING) return out;
    if (v.kind == BITNET__STRING) return bitnet__jinja_quote(j, out, v);
    if (v.kind == BITNET__NONE) return bitnet__jinja_append(j, out, "null", 4);
    if (v.kind == BITNET__BOOL)
        return bitnet__jinja_append(j, out, v.n ? "true" : "false", v.n ? 4 : 5);
    if (v.kind == BITNET__INT) {
        v = bitnet__jinja_text(j, v, place);
        return v.kind == BITNET__STRING ? bitnet__jinja_append(j, out, v.s, (size_t)v.n) : v;
    }
    if (v.kind != BITNET__LIST && !is_dict) return bitnet__jfail(place, BITNET__RAISED);
    if (depth == BITNET__JINJA_DEPTH) return bitnet__jfail(place, BITNET__TOO_MUCH);
    out = bitnet__jinja_append(j, out, is_dict ? "{" : "[", 1);
    for (i = 0; i < v.list->n && out.kind == BITNET__STRING; i++) {
        if (i) out = bitnet__jinja_append(j, out, is_dict && i % 2 ? ": " : ", ", 2);
        out = bitnet__jinja_json(j, out, v.list->items[i], place, depth + 1);
    }
    if (out.kind != BITNET__STRING) return out;
    return bitnet__jinja_append(j, out, is_dict ? "}" : "]", 1);
}

static bitnet__jvalue bitnet__jinja_join(bitnet__jinja *j, bitnet__jvalue v, bitnet__jvalue by,
                                         const char *place) {
    bitnet__jvalue out = bitnet__jstring("");
    int32_t i;
    for (i = 0; i < v.list->n && out.kind == BITNET__STRING; i++) {
        const bitnet__jvalue text = bitnet__jinja_text(j, v.list->items[i], place);
        if (text.kind != BITNET__STRING) return text;
        if (i) out = bitnet__jinja_append(j, out, by.s, (size_t)by.n);
        if (out.kind == BITNET__STRING)
            out = bitnet__jinja_append(j, out, text.s, (size_t)text.n);
    }
    return out;
}

/* Of a dictionary: the 'k'eys, the 'v'alues or the 'i'tems, which are pairs. */
static bitnet__jvalue bitnet__jinja_entries(bitnet__jinja *j, bitnet__jvalue dict, char what) {
    bitnet__jvalue list = bitnet__jinja_list(j, BITNET__LIST, (size_t)dict.list->n / 2), pair;
    int32_t i;
    for (i = 0; i < dict.list->n; i += 2) {
        const bitnet__jvalue *entry = &dict.list->items[i];
        if (what == 'i') {
            pair = bitnet__jinja_list(j, BITNET__LIST, 2);
            bitnet__jinja_push(j, &pair, entry[0]);
            bitnet__jinja_push(j, &pair, entry[1]);
        } else pair = what == 'k' ? entry[0] : entry[1];
        bitnet__jinja_push(j, &list, pair);
    }
    return list;
}

/* The filters and methods of strings. *done 0: it is none of them. */
static bitnet__jvalue bitnet__jinja_of_string(bitnet__jinja *j, bitnet__jvalue v,
                                              bitnet__jname f, const bitnet__jargs *args,
                                              int *done) {
    const bitnet__jvalue a = args->n > 0 ? args->a[0].value : bitnet__jstring("");
    const bitnet__jvalue b = args->n > 1 ? args->a[1].value : a;
    const bitnet__jvalue *set = args->n > 0 ? &a : 0;
    const int texts = a.kind == BITNET__STRING && b.kind == BITNET__STRING;
    const int right = v.n >= a.n ? v.n - a.n : 0;
    *done = texts;
    if (args->n <= 1 && texts) {
        if (bitnet__jis(f, "trim") || bitnet__jis(f, "strip")) return bitnet__jstrip(v, 3, set);
        if (bitnet__jis(f, "lstrip")) return bitnet__jstrip(v, 1, set);
        if (bitnet__jis(f, "rstrip")) return bitnet__jstrip(v, 2, set);
    }
    if (args->n == 1 && texts) {
        if (bitnet__jis(f, "startswith"))
            return bitnet__jbool(v.n >= a.n && !memcmp(v.s, a.s, (size_t)a.n));
        if (bitnet__jis(f, "endswith"))
            return bitnet__jbool(v.n >= a.n && !memcmp(v.s + right, a.s, (size_t)a.n));
        if (bitnet__jis(f, "split") && a.n > 0) return bitnet__jinja_split(j, v, a);
    }
    if (args->n == 2 && texts && bitnet__jis(f, "replace") && a.n > 0)
        return bitnet__jinja_replace(j, v, a, b);
    if (args->n == 0 && (bitnet__jis(f, "upper") || bitnet__jis(f, "lower") ||
                         bitnet__jis(f, "capitalize") || bitnet__jis(f, "title")))
        return bitnet__jinja_case(j, v, *f.s, f.s);
    if (args->n == 0 && (bitnet__jis(f, "string") || bitnet__jis(f, "safe"))) return v;
    *done = 0;
    return v;
}

/* The filters and methods of lists, dictionaries, and of any value. */
static bitnet__jvalue bitnet__jinja_of_any(bitnet__jinja *j, bitnet__jvalue v, bitnet__jname f,
                                           const bitnet__jargs *args, int *done) {
    const bitnet__jvalue a = args->n > 0 ? args->a[0].value : bitnet__jundefined();
    const int is_list = v.kind == BITNET__LIST, is_dict = v.kind == BITNET__DICT;
    *done = 1;
    if (bitnet__jis(f, "default") || bitnet__jis(f, "d")) {
        const int also_false = args->n > 1 && bitnet__jtruth(args->a[1].value);
        return v.kind == BITNET__UNDEFINED || (also_false && !bitnet__jtruth(v)) ? a : v;
    }
    if (args->n == 0) {
        if (bitnet__jis(f, "tojson"))
            return bitnet__jinja_json(j, bitnet__jstring(""), v, f.s, 0);
        if (bitnet__jis(f, "length") || bitnet__jis(f, "count")) {
            if (is_list || is_dict)
                return bitnet__jint(v.list->n / (is_dict ? 2 : 1));
            if (v.kind == BITNET__UNDEFINED) return bitnet__jint(0);
            if (v.kind == BITNET__STRING && bitnet__jinja_is_ascii(j, v)) return bitnet__jint(v.n);
        }
        if (is_list && bitnet__jis(f, "list")) return v;
        if (is_list && bitnet__jis(f, "first"))
            return v.list->n ? v.list->items[0] : bitnet__jundefined();
        if (is_list && bitnet__jis(f, "last"))
            return v.list->n ? v.list->items[v.list->n - 1] : bitnet__jundefined();
        if (is_dict && (bitnet__jis(f, "items") || bitnet__jis(f, "keys") ||
                        bitnet__jis(f, "values")))
            return bitnet__jinja_entries(j, v, *f.s);
    }
    if (is_list && args->n <= 1 && bitnet__jis(f, "join"))
        return bitnet__jinja_join(j, v, args->n ? a : bitnet__jstring(""), f.s);
    if (is_dict && args->n > 0 && a.kind == BITNET__STRING && bitnet__jis(f, "get")) {
        const bitnet__jvalue *found = bitnet__jinja_entry(j, v, a.s, a.n);
        return found ? *found : args->n > 1 ? args->a[1].value
                              : bitnet__jvalue_of(BITNET__NONE, 0, 0);
    }
    *done = 0;
    return v;
}

/* Applies a filter or a method; undefined values have no methods. BITNET__APART keeps its large
   stack frame out of the recursion. */
BITNET__APART bitnet__jvalue bitnet__jinja_apply(bitnet__jinja *j, bitnet__jvalue v,
                                                 bitnet__jname f, const bitnet__jargs *args,
                                                 int is_method) {
    const bitnet__jvalue *set = args->n && args->a[0].value.kind == BITNET__STRING
                                ? &args->a[0].value : 0;
    bitnet__jvalue out;
    int32_t i;
    int done;
    if (v.kind == BITNET__FAILED) return v;
    if (is_method && v.kind < BITNET__STRING) return bitnet__jfail(f.s, BITNET__RAISED);
    for (i = 0; i < args->n; i++) {
        if (args->a[i].value.kind == BITNET__FAILED) return args->a[i].value;
        if (args->a[i].n && !bitnet__jis(args->a[i], "boolean"))
            return bitnet__jfail(f.s, BITNET__NOT_UNDERSTOOD);
    }
    out = bitnet__jinja_of_any(j, v, f, args, &done);
    if (done) return out;
    v = bitnet__jinja_text(j, v, f.s);
    if (v.kind == BITNET__FAILED) return v;
    bitnet__jinja_work(j, (size_t)v.n * ((size_t)(set ? set->n : 0) / 16 + 1));
    out = bitnet__jinja_of_string(j, v, f, args, &done);
    return done ? out : bitnet__jfail(f.s, BITNET__NOT_UNDERSTOOD);
}

static bitnet__jvalue bitnet__jinja_test(bitnet__jvalue v, bitnet__jname test) {
    static const struct { const char *name; int kinds; } tests[] = {
        {"undefined", 1 << BITNET__UNDEFINED}, {"none", 1 << BITNET__NONE},
        {"boolean", 1 << BITNET__BOOL}, {"integer", 1 << BITNET__INT},
        {"number", 1 << BITNET__INT | 1 << BITNET__BOOL}, {"string", 1 << BITNET__STRING},
        {"mapping", 1 << BITNET__DICT},
        {"sequence", 1 << BITNET__STRING | 1 << BITNET__LIST | 1 << BITNET__DICT},
        {"iterable", 1 << BITNET__STRING | 1 << BITNET__LIST | 1 << BITNET__DICT |
                     1 << BITNET__UNDEFINED},
        {"defined", ~(1 << BITNET__UNDEFINED)},
    };
    size_t i;
    if (v.kind == BITNET__FAILED) return v;
    if (bitnet__jis(test, "true")) return bitnet__jbool(v.kind == BITNET__BOOL && v.n);
    if (bitnet__jis(test, "false")) return bitnet__jbool(v.kind == BITNET__BOOL && !v.n);
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (bitnet__jis(test, tests[i].name)) return bitnet__jbool(tests[i].kinds >> v.kind & 1);
    return bitnet__jfail(test.s, BITNET__NOT_UNDERSTOOD);
}

/* ---- operators ---- */

/* 1: equal; 0: not; -1: they cannot be compared here. */
static int bitnet__jequal(bitnet__jvalue a, bitnet__jvalue b) {
    const int numbers = (a.kind == BITNET__BOOL || a.kind == BITNET__INT) &&
                        (b.kind == BITNET__BOOL || b.kind == BITNET__INT);
    if (numbers) return a.n == b.n;
    if (a.kind != b.kind) return 0;
    if (a.kind == BITNET__STRING) return bitnet__jsame(a, b.s, b.n);
    if (a.kind == BITNET__LIST || a.kind == BITNET__DICT)
        return !a.list->n && !b.list->n ? 1 : a.list->n != b.list->n ? 0 : -1;
    return a.kind <= BITNET__NONE;
}

static bitnet__jvalue bitnet__jinja_in(bitnet__jinja *j, bitnet__jvalue a, bitnet__jvalue b,
                                       const char *place) {
    int32_t i;
    int same = 0;
    if (a.kind == BITNET__STRING && b.kind == BITNET__STRING)
        return bitnet__jbool(bitnet__jinja_find(j, b, 0, a) >= 0);
    if (b.kind == BITNET__UNDEFINED) return bitnet__jbool(0);
    if (b.kind != BITNET__LIST && b.kind != BITNET__DICT)
        return bitnet__jfail(place, BITNET__RAISED);
    bitnet__jinja_work(j, (size_t)b.list->n);
    for (i = 0; i < b.list->n && same == 0; i += b.kind == BITNET__DICT ? 2 : 1)
        same = bitnet__jequal(a, b.list->items[i]);
    return same < 0 ? bitnet__jfail(place, BITNET__NOT_UNDERSTOOD) : bitnet__jbool(same);
}

/* Python's // and % round down. */
static bitnet__jvalue bitnet__jcompute(const char *op, bitnet__jvalue a, bitnet__jvalue b) {
    const int64_t x = a.n, y = b.n;
    int64_t n;
    if (*op == '+') n = x + y;
    else if (*op == '-') n = x - y;
    else if (*op == '*') n = x * y;
    else if (y == 0) return bitnet__jfail(op, BITNET__RAISED);
    else {
        n = x / y - (x % y != 0 && (x < 0) != (y < 0));
        if (*op == '%') n = x - n * y;
        else if (op[1] != '/') return bitnet__jfail(op, BITNET__NOT_UNDERSTOOD);   /* a float */
    }
    if (n > INT32_MAX || n < -INT32_MAX) return bitnet__jfail(op, BITNET__TOO_MUCH);
    return bitnet__jint((int32_t)n);
}

/* a < b, for numbers and for strings: -1, 0 or 1 as a is less, equal or more. */
static int bitnet__jorder(bitnet__jvalue a, bitnet__jvalue b) {
    const int32_t n = a.n < b.n ? a.n : b.n;
    int order = a.kind == BITNET__STRING && n ? memcmp(a.s, b.s, (size_t)n) : 0;
    if (order == 0) order = a.n < b.n ? -1 : a.n > b.n;
    return order;
}

/* op stands in the template, which is how a failure says where. */
static bitnet__jvalue bitnet__jinja_operate(bitnet__jinja *j, const char *op, bitnet__jvalue a,
                                            bitnet__jvalue b) {
    const int numbers = (a.kind == BITNET__BOOL || a.kind == BITNET__INT) &&
                        (b.kind == BITNET__BOOL || b.kind == BITNET__INT);
    const int strings = a.kind == BITNET__STRING && b.kind == BITNET__STRING;
    int order;
    if (a.kind == BITNET__FAILED) return a;
    if (*op == 'o') return bitnet__jtruth(a) ? a : b;
    if (*op == 'a') return bitnet__jtruth(a) ? b : a;
    if (b.kind == BITNET__FAILED) return b;
    if (*op == '~') {
        a = bitnet__jinja_text(j, a, op);
        if (a.kind == BITNET__FAILED) return a;
        b = bitnet__jinja_text(j, b, op);
        return b.kind == BITNET__FAILED ? b : bitnet__jinja_append(j, a, b.s, (size_t)b.n);
    }
    if (*op == 'i') return bitnet__jinja_in(j, a, b, op);
    if (*op == 'n') {
        a = bitnet__jinja_in(j, a, b, op);
        return a.kind == BITNET__FAILED ? a : bitnet__jbool(!a.n);
    }
    if (strings) bitnet__jinja_work(j, (size_t)a.n);
    if (op[0] == '=' || op[0] == '!') {
        order = bitnet__jequal(a, b);
        return order < 0 ? bitnet__jfail(op, BITNET__NOT_UNDERSTOOD)
                         : bitnet__jbool(order == (*op == '='));
    }
    if (*op == '<' || *op == '>') {
        if (!numbers && !strings) return bitnet__jfail(op, BITNET__RAISED);
        order = bitnet__jorder(a, b);
        return bitnet__jbool((op[1] == '=' && order == 0) || (*op == '<' ? order < 0 : order > 0));
    }
    if (*op == '+' && strings) return bitnet__jinja_append(j, a, b.s, (size_t)b.n);
    return numbers ? bitnet__jcompute(op, a, b) : bitnet__jfail(op, BITNET__RAISED);
}

/* ---- expressions ---- */

static bitnet__jvalue bitnet__jinja_expression(bitnet__jinja *j);
static bitnet__jvalue bitnet__jinja_binary(bitnet__jinja *j, int level);

/* A string, behind its quotation mark. */
static bitnet__jvalue bitnet__jinja_literal(bitnet__jinja *j, char quote) {
    static const char known[] = "nrtbf\\'\"", means[] = "\n\r\t\b\f\\'\"";
    const char *from = j->at, *place = from - 1;
    bitnet__jvalue out = bitnet__jstring("");
    for (; j->at < j->end && *j->at != quote; j->at++) {
        const char *escape;
        if (*j->at != '\\') continue;
        escape = j->at + 1 < j->end && j->at[1] ? strchr(known, j->at[1]) : 0;
        if (!escape) return bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
        out = bitnet__jinja_append(j, out, from, (size_t)(j->at - from));
        if (out.kind == BITNET__STRING)
            out = bitnet__jinja_append(j, out, means + (escape - known), 1);
        if (out.kind != BITNET__STRING) return out;
        from = j->at++ + 2;
    }
    bitnet__jinja_work(j, (size_t)(j->at - place));
    if (j->at == j->end)
        return bitnet__jinja_stop(j, bitnet__jfail(place, BITNET__NOT_UNDERSTOOD));
    if (out.n == 0) out = bitnet__jstring_of(from, (size_t)(j->at - from));
    else out = bitnet__jinja_append(j, out, from, (size_t)(j->at - from));
    if (out.kind == BITNET__STRING) j->at++;
    return out;
}

static bitnet__jvalue bitnet__jinja_number(bitnet__jinja *j) {
    const char *place = j->at;
    int64_t n = 0;
    for (; j->at < j->end && bitnet__is_digit(*j->at) && n < INT32_MAX; j->at++)
        n = 10 * n + (*j->at - '0');
    if (n >= INT32_MAX || (j->at < j->end && (bitnet__is_name_byte(*j->at) || *j->at == '.')))
        return bitnet__jinja_stop(j, bitnet__jfail(place, BITNET__NOT_UNDERSTOOD));
    return bitnet__jint((int32_t)n);
}

/* The rest of a list, a tuple or a dictionary, with the bracket that closes it. */
static bitnet__jvalue bitnet__jinja_items(bitnet__jinja *j, bitnet__jvalue list,
                                          const char *close) {
    while (!bitnet__jinja_take(j, close)) {
        bitnet__jvalue v = bitnet__jinja_expression(j);
        if (list.kind == BITNET__DICT) {
            bitnet__jinja_need(j, ":");
            bitnet__jinja_put(j, &list, v, bitnet__jinja_expression(j));
        } else bitnet__jinja_push(j, &list, v);
        if (bitnet__jinja_take(j, ",")) continue;
        bitnet__jinja_need(j, close);
        break;
    }
    return list;
}

/* The arguments of a call, behind its bracket, which stay until n_args is what it was. Those with a
   name have n > 0. */
static bitnet__jargs bitnet__jinja_arguments(bitnet__jinja *j) {
    bitnet__jargs args;
    args.a = j->args + j->n_args;
    args.n = 0;
    while (!bitnet__jinja_take(j, ")")) {
        const char *from = j->at;
        bitnet__jname a = {0, 0, {BITNET__UNDEFINED, 0, 0, 0}};
        if (from < j->end && bitnet__is_name_byte(*from) && !bitnet__is_digit(*from))
            a = bitnet__jinja_name(j);
        if (a.n && (!bitnet__jinja_take(j, "=") || bitnet__jinja_sees(j, "="))) {
            if (j->failure.kind == BITNET__FAILED) break;
            a.n = 0;
            j->at = from;
        }
        a.value = bitnet__jinja_expression(j);
        if (j->n_args == BITNET__JINJA_ARGS) bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
        else {
            j->args[j->n_args++] = a;
            args.n++;
        }
        if (bitnet__jinja_take(j, ",")) continue;
        bitnet__jinja_need(j, ")");
        break;
    }
    return args;
}

/* A function, behind its bracket. */
static bitnet__jvalue bitnet__jinja_call(bitnet__jinja *j, bitnet__jname name) {
    const int32_t n_args = j->n_args;
    const bitnet__jargs args = bitnet__jinja_arguments(j);
    bitnet__jvalue dict;
    int32_t i;
    j->n_args = n_args;
    for (i = 0; i < args.n; i++)
        if (args.a[i].value.kind == BITNET__FAILED) return args.a[i].value;
    if (bitnet__jis(name, "raise_exception")) return bitnet__jfail(name.s, BITNET__RAISED);
    if (!bitnet__jis(name, "namespace") && !bitnet__jis(name, "dict"))
        return bitnet__jfail(name.s, BITNET__NOT_UNDERSTOOD);
    dict = bitnet__jinja_list(j, BITNET__DICT, 2 * (size_t)args.n);
    for (i = 0; i < args.n; i++) {
        const bitnet__jname *a = &args.a[i];
        if (a->n == 0) return bitnet__jfail(name.s, BITNET__NOT_UNDERSTOOD);
        bitnet__jinja_put(j, &dict, bitnet__jstring_of(a->s, (size_t)a->n), a->value);
    }
    return dict;
}

static bitnet__jvalue bitnet__jinja_primary(bitnet__jinja *j) {
    static const struct { const char *word; bitnet__jinja_kind kind; int n; } words[] = {
        {"true", BITNET__BOOL, 1}, {"True", BITNET__BOOL, 1}, {"false", BITNET__BOOL, 0},
        {"False", BITNET__BOOL, 0}, {"none", BITNET__NONE, 0}, {"None", BITNET__NONE, 0}};
    const bitnet__jname *known;
    bitnet__jname name;
    bitnet__jvalue v, list;
    size_t i;
    bitnet__jinja_blanks(j);
    if (bitnet__jinja_take(j, "'")) return bitnet__jinja_literal(j, '\'');
    if (bitnet__jinja_take(j, "\"")) return bitnet__jinja_literal(j, '"');
    if (j->at < j->end && bitnet__is_digit(*j->at)) return bitnet__jinja_number(j);
    if (bitnet__jinja_take(j, "["))
        return bitnet__jinja_items(j, bitnet__jinja_list(j, BITNET__LIST, 4), "]");
    if (bitnet__jinja_take(j, "{"))
        return bitnet__jinja_items(j, bitnet__jinja_list(j, BITNET__DICT, 8), "}");
    if (bitnet__jinja_take(j, "(")) {
        v = bitnet__jinja_expression(j);
        if (bitnet__jinja_take(j, ",")) {
            list = bitnet__jinja_list(j, BITNET__LIST, 4);
            bitnet__jinja_push(j, &list, v);
            return bitnet__jinja_items(j, list, ")");
        }
        bitnet__jinja_need(j, ")");
        return v;
    }
    name = bitnet__jinja_name(j);
    for (i = 0; i < sizeof words / sizeof words[0]; i++)
        if (bitnet__jis(name, words[i].word))
            return bitnet__jvalue_of(words[i].kind, (size_t)words[i].n, 0);
    if (bitnet__jinja_take(j, "(")) return bitnet__jinja_call(j, name);
    known = bitnet__jinja_lookup(j, name, 0);
    return known ? known->value : bitnet__jundefined();
}

/* v.name and v["name"]: undefined if there is none. An error only if v itself is undefined. */
static bitnet__jvalue bitnet__jinja_attribute(bitnet__jinja *j, bitnet__jvalue v,
                                              const char *name, int32_t n, const char *place) {
    const bitnet__jvalue *found;
    if (v.kind == BITNET__FAILED) return v;
    if (v.kind == BITNET__UNDEFINED) return bitnet__jfail(place, BITNET__RAISED);
    found = v.kind == BITNET__DICT ? bitnet__jinja_entry(j, v, name, n) : 0;
    return found ? *found : bitnet__jundefined();
}

/* v[from:to:step] as Python has it; step is 1 or -1. */
BITNET__APART bitnet__jvalue bitnet__jinja_slice(bitnet__jinja *j, bitnet__jvalue v,
                                                 const bitnet__jvalue part[3],
                                                 const char *place) {
    const int is_list = v.kind == BITNET__LIST;
    const int32_t n = is_list ? v.list->n : v.n;
    const int back = part[2].kind == BITNET__INT && part[2].n == -1;
    int32_t bound[2], i;
    bitnet__jvalue list;
    for (i = 0; i < 3; i++)
        if (part[i].kind != BITNET__INT && part[i].kind != BITNET__NONE)
            return bitnet__jfail(place, BITNET__RAISED);
    if (part[2].kind == BITNET__INT && part[2].n != 1 && !(back && is_list))
        return bitnet__jfail(place, BITNET__NOT_UNDERSTOOD);
    for (i = 0; i < 2; i++) {
        const int32_t least = back ? -1 : 0;
        bound[i] = (i == 0) == back ? n - back * (i == 0) : least;
        if (part[i].kind == BITNET__INT) {
            bound[i] = part[i].n < 0 ? part[i].n + n : part[i].n;
            if (bound[i] < least) bound[i] = least;
            if (bound[i] > n - back) bound[i] = n - back;
        }
    }
    if (!is_list)
        return bitnet__jstring_of(v.s + bound[0],
                                  bound[1] > bound[0] ? (size_t)(bound[1] - bound[0]) : 0);
    list = bitnet__jinja_list(j, BITNET__LIST, 4);
    for (i = bound[0]; back ? i > bound[1] : i < bound[1]; i += back ? -1 : 1)
        bitnet__jinja_push(j, &list, v.list->items[i]);
    return list;
}

/* v[...], behind its bracket. */
static bitnet__jvalue bitnet__jinja_subscript(bitnet__jinja *j, bitnet__jvalue v) {
    const char *place = j->at - 1;
    bitnet__jvalue part[3];
    int32_t i, n = 0, length;
    for (i = 0; i < 3; i++) part[i] = bitnet__jvalue_of(BITNET__NONE, 0, 0);
    for (;;) {
        bitnet__jinja_blanks(j);
        if (!bitnet__jinja_sees(j, ":") && !bitnet__jinja_sees(j, "]"))
            part[n] = bitnet__jinja_expression(j);
        if (n == 2 || !bitnet__jinja_take(j, ":")) break;
        n++;
    }
    bitnet__jinja_need(j, "]");
    for (i = 2; i >= 0; i--) if (part[i].kind == BITNET__FAILED) v = part[i];
    if (n == 0 && part[0].kind == BITNET__STRING)
        return bitnet__jinja_attribute(j, v, part[0].s, part[0].n, place);
    if (v.kind == BITNET__STRING && !bitnet__jinja_is_ascii(j, v))
        return bitnet__jfail(place, BITNET__NOT_UNDERSTOOD);
    if (v.kind != BITNET__LIST && v.kind != BITNET__STRING)
        return n ? v.kind == BITNET__FAILED ? v : bitnet__jfail(place, BITNET__RAISED)
                 : bitnet__jinja_attribute(j, v, "", 0, place);
    if (n) return bitnet__jinja_slice(j, v, part, place);
    length = v.kind == BITNET__LIST ? v.list->n : v.n;
    i = part[0].n < 0 ? part[0].n + length : part[0].n;
    if (part[0].kind != BITNET__INT || i < 0 || i >= length) return bitnet__jundefined();
    return v.kind == BITNET__LIST ? v.list->items[i] : bitnet__jstring_of(v.s + i, 1);
}

/* A value with its attributes, subscripts, calls, filters and tests. */
static bitnet__jvalue bitnet__jinja_postfix(bitnet__jinja *j) {
    bitnet__jvalue v = bitnet__jinja_primary(j);
    for (;;) {
        const int dot = bitnet__jinja_take(j, "."), pipe = !dot && bitnet__jinja_take(j, "|");
        if (dot || pipe) {
            const bitnet__jname name = bitnet__jinja_name(j);
            const int call = bitnet__jinja_take(j, "(");
            const int32_t n_args = j->n_args;
            bitnet__jargs args = {0, 0};
            if (call) args = bitnet__jinja_arguments(j);
            j->n_args = n_args;
            v = call || pipe ? bitnet__jinja_apply(j, v, name, &args, dot)
                             : bitnet__jinja_attribute(j, v, name.s, name.n, name.s);
        } else if (bitnet__jinja_take(j, "[")) v = bitnet__jinja_subscript(j, v);
        else if (bitnet__jinja_take(j, "is")) {
            const int no = bitnet__jinja_take(j, "not");
            v = bitnet__jinja_test(v, bitnet__jinja_name(j));
            if (no && v.kind == BITNET__BOOL) v.n = !v.n;
        } else return v;
    }
}

/* Operators that bind at least as strongly as this level: or, and, comparisons, + -, ~, * / %. */
static bitnet__jvalue bitnet__jinja_binary(bitnet__jinja *j, int level) {
    static const struct { const char *text; int level; } ops[] = {
        {"or", 0}, {"and", 1}, {"==", 2}, {"!=", 2}, {"<=", 2}, {">=", 2}, {"<", 2}, {">", 2},
        {"in", 2}, {"not", 2}, {"+", 3}, {"-", 3}, {"~", 4}, {"//", 5}, {"/", 5}, {"*", 5},
        {"%", 5}};
    const size_t most = sizeof ops / sizeof ops[0];
    bitnet__jvalue a;
    int compared = 0;
    if (level <= 2 && bitnet__jinja_take(j, "not")) {
        int no = 1;
        while (bitnet__jinja_take(j, "not")) no = !no;
        a = bitnet__jinja_binary(j, 2);
        if (a.kind != BITNET__FAILED) a = bitnet__jbool(bitnet__jtruth(a) != no);
    } else if (bitnet__jinja_take(j, "-")) {
        const char *op = j->at - 1;
        a = bitnet__jinja_operate(j, op, bitnet__jint(0), bitnet__jinja_postfix(j));
    } else a = bitnet__jinja_postfix(j);
    for (;;) {
        const char *op;
        size_t i = 0;
        bitnet__jvalue b;
        while (i < most && (ops[i].level < level || !bitnet__jinja_take(j, ops[i].text))) i++;
        if (i == most) return a;
        op = j->at - strlen(ops[i].text);
        if (*op == 'n') bitnet__jinja_need(j, "in");
        if (ops[i].level == 2 && compared++)               /* a < b < c */
            return bitnet__jinja_stop(j, bitnet__jfail(op, BITNET__NOT_UNDERSTOOD));
        b = bitnet__jinja_binary(j, ops[i].level + 1);
        a = bitnet__jinja_operate(j, op, a, b);
    }
}

static bitnet__jvalue bitnet__jinja_expression(bitnet__jinja *j) {
    bitnet__jvalue v, condition, other;
    if (j->depth == BITNET__JINJA_DEPTH) return bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
    j->depth++;
    v = bitnet__jinja_binary(j, 0);
    if (bitnet__jinja_take(j, "if")) {
        condition = bitnet__jinja_binary(j, 0);
        other = bitnet__jundefined();
        if (bitnet__jinja_take(j, "else")) other = bitnet__jinja_expression(j);
        if (condition.kind == BITNET__FAILED) v = condition;
        else if (!bitnet__jtruth(condition)) v = other;
    }
    j->depth--;
    return v;
}

/* ---- tags ---- */

/* The tags that end a Jinja block or a branch of it. */
static const char *const bitnet__jinja_ends[] = {"", "else", "elif", "endif", "endfor", "endset"};
enum { BITNET__END, BITNET__ELSE, BITNET__ELIF, BITNET__ENDIF, BITNET__ENDFOR, BITNET__ENDSET,
       BITNET__N_ENDS };

static int bitnet__jinja_block(bitnet__jinja *j, int live);

static void bitnet__jinja_emit(bitnet__jinja *j, const char *s, size_t n) {
    bitnet__jinja_work(j, n);
    if (j->failure.kind == BITNET__FAILED) return;
    if (n > (size_t)(BITNET__JINJA_OUT - j->n_out)) {
        bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
        return;
    }
    if (n) memcpy(j->out + j->n_out, s, n);
    j->n_out += (int32_t)n;
}

/* What was written since then, as a value. */
static bitnet__jvalue bitnet__jinja_capture(bitnet__jinja *j, int32_t from) {
    const int32_t n = j->n_out - from;
    j->n_out = from;
    if (j->failure.kind == BITNET__FAILED) return j->failure;
    return bitnet__jinja_append(j, bitnet__jstring(""), j->out + from, (size_t)n);
}

/* Takes the end of a tag ("%}", "}}" or "#}") and the white space that goes with it: all behind a
   minus sign, else the newline behind "%}" and "#}" (trim_blocks). */
static void bitnet__jinja_close(bitnet__jinja *j, const char *end) {
    int minus, plus;
    bitnet__jinja_blanks(j);
    minus = bitnet__jinja_sees(j, "-");
    plus = *end != '}' && bitnet__jinja_sees(j, "+");
    if (minus || plus) j->at++;
    if (!bitnet__jinja_sees(j, end)) {
        bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
        return;
    }
    j->at += 2;
    if (minus) bitnet__jinja_blanks(j);
    else if (!plus && *end != '}' && bitnet__jinja_sees(j, "\n")) j->at++;
}

/* Goes to the end of a tag without reading it, past strings and brackets, and takes it. */
static void bitnet__jinja_skip(bitnet__jinja *j, const char *end) {
    const char *from = j->at;
    int open = 0;
    char quote = 0;
    for (; j->at < j->end; j->at++) {
        const char c = *j->at;
        if (quote) {
            if (c == '\\' && j->at + 1 < j->end) j->at++;
            else if (c == quote) quote = 0;
        } else if (c == '"' || c == '\'') quote = c;
        else if (open == 0 && bitnet__jinja_sees(j, end)) break;
        else open += c == '{' ? 1 : c == '}' && open > 0 ? -1 : 0;
    }
    if (j->at > from && (j->at[-1] == '-' || j->at[-1] == '+')) j->at--;
    bitnet__jinja_work(j, (size_t)(j->at - from));
    bitnet__jinja_close(j, end);
}

/* Writes text up to the next tag, without the white space that a minus sign takes, or the blanks in
   front of a block that begins its line (lstrip_blocks). Returns '%', '{' or '#'; 0: no tag. */
static char bitnet__jinja_up_to_tag(bitnet__jinja *j, int live) {
    const char *from = j->at, *to = from, *line;
    const int begins = from == j->start || from[-1] == '\n';
    char tag = 0;
    for (; to < j->end && !tag; to++)
        if (*to == '{' && j->end - to >= 2 && strchr("%{#", to[1])) tag = to[1];
    j->at = to;
    if (tag) {
        to--;
        j->at++;
        if (bitnet__jinja_sees(j, "-")) {
            j->at++;
            while (to > from && bitnet__is_space(to[-1])) to--;
        } else if (tag != '{' && bitnet__jinja_sees(j, "+")) j->at++;
        else if (tag != '{') {
            for (line = to; line > from && line[-1] != '\n' && bitnet__is_space(line[-1]);) line--;
            if (line == from ? begins : line[-1] == '\n') to = line;
        }
    }
    bitnet__jinja_work(j, (size_t)(j->at - from));
    if (live) bitnet__jinja_emit(j, from, (size_t)(to - from));
    return tag;
}

/* Reads the next expression and returns whether it is true. If `live` is 0, skips it. */
static int bitnet__jinja_condition(bitnet__jinja *j, int live) {
    bitnet__jvalue v;
    if (!live) {
        bitnet__jinja_skip(j, "%}");
        return 0;
    }
    v = bitnet__jinja_expression(j);
    if (v.kind == BITNET__FAILED) bitnet__jinja_stop(j, v);
    bitnet__jinja_close(j, "%}");
    return bitnet__jtruth(v);
}

static void bitnet__jinja_if(bitnet__jinja *j, int live) {
    int run = bitnet__jinja_condition(j, live), done = !live;
    for (;;) {
        const int end = bitnet__jinja_block(j, run);
        done |= run;
        if (end == BITNET__ELIF) run = bitnet__jinja_condition(j, !done);
        else if (end == BITNET__ELSE || end == BITNET__ENDIF) {
            bitnet__jinja_close(j, "%}");
            if (end == BITNET__ENDIF) return;
            run = !done;
        } else {
            bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
            return;
        }
    }
}

/* Gives the one or two names of a loop their values. */
static void bitnet__jinja_bind(bitnet__jinja *j, const bitnet__jname names[2], bitnet__jvalue v) {
    if (!names[1].n) bitnet__jinja_set(j, names[0], v);
    else if (v.kind == BITNET__LIST && v.list->n == 2) {
        bitnet__jinja_set(j, names[0], v.list->items[0]);
        bitnet__jinja_set(j, names[1], v.list->items[1]);
    } else bitnet__jinja_stop_here(j, BITNET__RAISED);
}

/* The items of a loop's head, those for which its condition holds. */
static bitnet__jvalue bitnet__jinja_loop_items(bitnet__jinja *j, const bitnet__jname names[2]) {
    const char *place = j->at, *at;
    bitnet__jvalue all = bitnet__jinja_binary(j, 0), list, v;
    int32_t i;
    if (all.kind == BITNET__DICT) all = bitnet__jinja_entries(j, all, 'k');
    if (all.kind == BITNET__UNDEFINED) all = bitnet__jinja_list(j, BITNET__LIST, 0);
    if (all.kind != BITNET__LIST && all.kind != BITNET__FAILED)
        all = bitnet__jfail(place, all.kind == BITNET__STRING ? BITNET__NOT_UNDERSTOOD
                                                              : BITNET__RAISED);
    if (all.kind == BITNET__FAILED) return bitnet__jinja_stop(j, all);
    if (!bitnet__jinja_take(j, "if")) {
        bitnet__jinja_close(j, "%}");
        return all;
    }
    at = j->at;
    list = bitnet__jinja_list(j, BITNET__LIST, 4);
    for (i = 0; i < all.list->n && j->failure.kind != BITNET__FAILED; i++) {
        j->at = at;
        bitnet__jinja_bind(j, names, all.list->items[i]);
        v = bitnet__jinja_expression(j);
        if (v.kind == BITNET__FAILED) return bitnet__jinja_stop(j, v);
        if (bitnet__jtruth(v)) bitnet__jinja_push(j, &list, all.list->items[i]);
    }
    bitnet__jinja_skip(j, "%}");
    return list;
}

/* The variable loop, for item i of n. */
static bitnet__jvalue bitnet__jinja_loop(bitnet__jinja *j, bitnet__jvalue items, int32_t i) {
    bitnet__jvalue loop = bitnet__jinja_list(j, BITNET__DICT, 10);
    const int32_t n = items.list->n;
    bitnet__jinja_put(j, &loop, bitnet__jstring("index0"), bitnet__jint(i));
    bitnet__jinja_put(j, &loop, bitnet__jstring("index"), bitnet__jint(i + 1));
    bitnet__jinja_put(j, &loop, bitnet__jstring("first"), bitnet__jbool(i == 0));
    bitnet__jinja_put(j, &loop, bitnet__jstring("last"), bitnet__jbool(i == n - 1));
    bitnet__jinja_put(j, &loop, bitnet__jstring("length"), bitnet__jint(n));
    return loop;
}

static void bitnet__jinja_for(bitnet__jinja *j, int live) {
    const bitnet__jname loop = {"loop", 4, {BITNET__UNDEFINED, 0, 0, 0}};
    const int32_t n_names = j->n_names, scope = j->scope;
    bitnet__jname names[2] = {loop, {"", 0, {BITNET__UNDEFINED, 0, 0, 0}}};
    bitnet__jvalue items = bitnet__jundefined();
    const char *body;
    int32_t i, n = 0;
    int end;
    j->scope = n_names;
    if (live) {
        names[0] = bitnet__jinja_name(j);
        if (bitnet__jinja_take(j, ",")) names[1] = bitnet__jinja_name(j);
        bitnet__jinja_need(j, "in");
        items = bitnet__jinja_loop_items(j, names);
        n = items.kind == BITNET__LIST ? items.list->n : 0;
    } else bitnet__jinja_skip(j, "%}");
    body = j->at;
    for (i = 0; i < n && j->failure.kind != BITNET__FAILED; i++) {
        j->at = body;
        j->n_names = n_names;
        bitnet__jinja_set(j, loop, bitnet__jinja_loop(j, items, i));
        bitnet__jinja_bind(j, names, items.list->items[i]);
        bitnet__jinja_block(j, 1);
    }
    j->n_names = n_names;
    j->scope = scope;
    if (j->failure.kind == BITNET__FAILED) return;
    j->at = body;
    end = bitnet__jinja_block(j, 0);
    bitnet__jinja_close(j, "%}");
    if (end == BITNET__ELSE) {
        end = bitnet__jinja_block(j, live && n == 0);
        bitnet__jinja_close(j, "%}");
    }
    if (end != BITNET__ENDFOR) bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
}

/* set name = value; set name.attribute = value; set name ... endset. */
static void bitnet__jinja_set_tag(bitnet__jinja *j, int live) {
    const bitnet__jname name = bitnet__jinja_name(j);
    const int32_t from = j->n_out;
    bitnet__jname *known = bitnet__jinja_lookup(j, name, 0), attribute;
    bitnet__jvalue v;
    attribute.n = 0;
    if (bitnet__jinja_take(j, ".")) attribute = bitnet__jinja_name(j);
    if (bitnet__jinja_take(j, "=")) {
        if (!live) {
            bitnet__jinja_skip(j, "%}");
            return;
        }
        v = bitnet__jinja_expression(j);
        if (v.kind == BITNET__FAILED) bitnet__jinja_stop(j, v);
        bitnet__jinja_close(j, "%}");
    } else {
        bitnet__jinja_close(j, "%}");
        if (bitnet__jinja_block(j, live) != BITNET__ENDSET)
            bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
        bitnet__jinja_close(j, "%}");
        v = bitnet__jinja_capture(j, from);
    }
    if (!live || j->failure.kind == BITNET__FAILED) return;
    if (!attribute.n) bitnet__jinja_set(j, name, v);
    else if (known && known->value.kind == BITNET__DICT)
        bitnet__jinja_put(j, &known->value,
                          bitnet__jstring_of(attribute.s, (size_t)attribute.n), v);
    else bitnet__jinja_stop(j, bitnet__jfail(name.s, BITNET__RAISED));
}

static void bitnet__jinja_tag(bitnet__jinja *j, bitnet__jname name, int live) {
    if (bitnet__jis(name, "if")) bitnet__jinja_if(j, live);
    else if (bitnet__jis(name, "for")) bitnet__jinja_for(j, live);
    else if (bitnet__jis(name, "set")) bitnet__jinja_set_tag(j, live);
    else if (bitnet__jis(name, "generation") || bitnet__jis(name, "endgeneration"))
        bitnet__jinja_close(j, "%}");
    else bitnet__jinja_stop(j, bitnet__jfail(name.s, BITNET__NOT_UNDERSTOOD));
}

/* Renders up to the tag that ends this Jinja block (live 0: skips it). Returns that tag; the
   position is behind its name. */
static int bitnet__jinja_block(bitnet__jinja *j, int live) {
    int end = BITNET__END;
    if (j->depth == BITNET__JINJA_DEPTH) {
        bitnet__jinja_stop_here(j, BITNET__TOO_MUCH);
        return end;
    }
    j->depth++;
    while (end == BITNET__END) {
        const char tag = bitnet__jinja_up_to_tag(j, live);
        if (!tag) break;
        if (tag == '#') {
            const char *from = j->at;
            while (j->at < j->end && !bitnet__jinja_sees(j, "#}")) j->at++;
            bitnet__jinja_work(j, (size_t)(j->at - from));
            if (j->at > from && j->at[-1] == '-') j->at--;
            bitnet__jinja_close(j, "#}");
        } else if (tag == '{' && !live) bitnet__jinja_skip(j, "}}");
        else if (tag == '{') {
            const char *place = j->at;
            const bitnet__jvalue v = bitnet__jinja_text(j, bitnet__jinja_expression(j), place);
            if (v.kind == BITNET__FAILED) bitnet__jinja_stop(j, v);
            else bitnet__jinja_emit(j, v.s, (size_t)v.n);
            bitnet__jinja_close(j, "}}");
        } else {
            const bitnet__jname name = bitnet__jinja_name(j);
            for (end = BITNET__N_ENDS - 1; end > 0; end--)
                if (bitnet__jis(name, bitnet__jinja_ends[end])) break;
            if (end == BITNET__END) bitnet__jinja_tag(j, name, live);
        }
    }
    j->depth--;
    return end;
}

/* Begins anew, with no names and values. */
static void bitnet__jinja_begin(bitnet__jinja *j) {
    j->at = j->start;
    j->used = 0;
    j->depth = j->n_names = j->n_args = j->scope = j->n_out = 0;
    j->failure = bitnet__jundefined();
}

/* Renders the template, with the names that are set, into out. */
static void bitnet__jinja_render(bitnet__jinja *j) {
    if (bitnet__jinja_block(j, 1) != BITNET__END)
        bitnet__jinja_stop_here(j, BITNET__NOT_UNDERSTOOD);
}

/* =============================================================================================
   @chat  messages to tokens, and the text of a reply to its parts
   A file's template is a program in Jinja. When a file is loaded, a small reader of Jinja (at most
   16 levels deep, and for 8 million bytes that it reads) writes a few probes by it, and the row of
   a table that writes the same is taken; it never sees a user's text. All probes must agree to the
   byte, with these exceptions: a default system text, BOS and whether texts are trimmed are taken
   from the file; system messages and other roles that it refuses or leaves out are refused; and of
   tools it may have another form, or none. (It does not check that users and assistant take turns.)
   The rows follow tokenizer_config.json of these models on Hugging Face:

       bitnet-2b-4t    microsoft/bitnet-b1.58-2B-4T. The one in its GGUF file ("Human: ...
                       BITNETAssistant: ") is not what the model was trained with.
       llama-3         meta-llama/Meta-Llama-3-8B-Instruct
       llama-3.1       meta-llama/Llama-3.1-8B-Instruct, which puts two fixed dates in front of the
                       system message. Files that would ask a clock get the same ones.
       qwen-3          Qwen/Qwen3-8B, and for tools; -thinking: Qwen3-4B-Thinking-2507
       chatml          Qwen/Qwen2.5-7B-Instruct, and all others with <|im_start|>; -thinking: the
                       reply begins with <think>, and earlier thinking stays
       falcon-3        tiiuae/Falcon3-7B-Instruct, whose tools have another form

       falcon-e        what the publisher added to bitnet.cpp's engine (Eddie-Wang1120/llama.cpp,
                       pull request 8): the role, the text, a newline, without marks between. The
                       Jinja of these files could not be seen. A reply is opened by "assistant" and
                       a newline, so that is also how one is written in front of a later message.

   To add one, add a row, and a template that does the same to tests/data/chat.json.

   A chat with tools in a template without them gets Qwen's form. Its words and the functions stand
   behind the text of the system message, which is added if there is none; a template without
   system messages has them in front of the user's first. What tools say one after the other is a
   turn of the user, each between <tool_response> tags, also where a template has no role tool. A
   call stands in the assistant's message as the model wrote it. Tags that are no tokens of the
   vocabulary are plain text, so what a tool says can spell them.

   A string of the template becomes tokens with its special tokens. A message never does, but its
   text and what is around it are cut into words together. That takes 3 times the memory of the
   longest text between two special tokens of the template: a message with what is around it, the
   system message with the tools, or the whole chat if the template has no such tokens (falcon-e).

   A program's own template is strings around the messages of each role:

       static void own_template(bitnet_generate_params *gen) {
           static bitnet_chat_template mine;  // all else is 0
           static bitnet_chat_params chat;
           mine.user.prefix = bitnet_text_of("[USER] ");
           mine.user.suffix = bitnet_text_of("\n");
           mine.assistant.prefix = mine.reply = bitnet_text_of("[BOT] ");
           mine.assistant.suffix = bitnet_text_of("</s>\n");
           mine.end = bitnet_text_of("</s>");
           chat.chat_template = &mine;
           gen->chat = &chat;
       }
   ============================================================================================= */

typedef struct bitnet__chat_row {
    bitnet_chat_template t;
    const char *needs;              /* a token without which there is no chat, or 0; t.end is one */
    const char *ends[3];            /* tokens that end a text, beside t.end */
} bitnet__chat_row;

#define BITNET__NO_TEXT {0, 0}
#define BITNET__NO_TURN {{0, 0}, {0, 0}}
#define BITNET__TURN(prefix, suffix) {BITNET_TEXT(prefix), BITNET_TEXT(suffix)}
#define BITNET__MODES(thinking, trim, drop_thinking, system_first) \
    thinking, trim, drop_thinking, system_first, {0, 0, 0, 0}

#define BITNET__CHATML_TURNS                                                                \
    BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN,                                      \
    BITNET__TURN("\n<tool_response>\n", "\n</tool_response>"),                             \
    BITNET__TURN("<|im_start|>{role}\n", "<|im_end|>\n"),                                   \
    BITNET__TURN("<|im_start|>user", "<|im_end|>\n"),                                       \
    BITNET_TEXT("<|im_start|>assistant\n"), BITNET_TEXT("<|im_end|>"), BITNET__NO_TEXT

/* Qwen2.5's and Qwen3's. */
#define BITNET__TOOLS                                                                       \
    BITNET_TEXT("# Tools\n\nYou may call one or more functions to assist with the user "    \
        "query.\n\nYou are provided with function signatures within <tools></tools> XML "   \
        "tags:\n<tools>\n"),                                                                \
    BITNET_TEXT("\n</tools>\n\nFor each function call, return a json object with function " \
        "name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"        \
        "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>")
#define BITNET__NO_TOOLS BITNET__NO_TEXT, BITNET__NO_TEXT

#define BITNET__EMPTY_THINKING "<think>\n\n</think>\n\n"
#define BITNET__THINKS BITNET_TEXT("<think>\n"), BITNET_TEXT(BITNET__EMPTY_THINKING)
#define BITNET__ALWAYS_THINKS BITNET_TEXT("<think>\n"), BITNET__NO_TEXT
#define BITNET__THINKS_NOT BITNET__NO_TEXT, BITNET__NO_TEXT
#define BITNET__CHATML_ENDS 0, {"<|endoftext|>", 0, 0}
#define BITNET__LLAMA_3                                                                     \
    BITNET__TURN("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),           \
    BITNET__NO_TURN, BITNET_TEXT("<|start_header_id|>assistant<|end_header_id|>\n\n"),      \
    BITNET_TEXT("<|eot_id|>")
#define BITNET__LLAMA_3_ENDS "<|start_header_id|>", {"<|end_of_text|>", "<|eom_id|>", 0}

/* The first that writes the same as the file's template is taken. */
static const bitnet__chat_row bitnet__chat_rows[] = {
    {{"bitnet-2b-4t", BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN,
      BITNET__TURN("{Role}: ", "<|eot_id|>"), BITNET__NO_TURN, BITNET_TEXT("Assistant: "),
      BITNET_TEXT("<|eot_id|>"), BITNET__NO_TEXT, BITNET__THINKS_NOT, BITNET__NO_TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 1, 0, 0)},
     0, {"<|end_of_text|>", 0, 0}},
    {{"llama-3", BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN,
      BITNET__LLAMA_3, BITNET__NO_TEXT, BITNET__THINKS_NOT, BITNET__NO_TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 1, 0, 0)}, BITNET__LLAMA_3_ENDS},
    {{"llama-3.1",
      BITNET__TURN("<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
                   "December 2023\nToday Date: 26 Jul 2024\n\n", "<|eot_id|>"),
      BITNET__NO_TURN, BITNET__NO_TURN, BITNET__NO_TURN, BITNET__LLAMA_3, BITNET_TEXT(""),
      BITNET__THINKS_NOT, BITNET__NO_TOOLS, BITNET__MODES(BITNET_THINK_AUTO, 1, 0, 1)},
     BITNET__LLAMA_3_ENDS},
    /* Thinking that the model decides; that is always opened; that is closed, whatever one asks
       for; that only is left out of earlier replies; that is not known; that is always opened, and
       stays. */
    {{"qwen-3", BITNET__CHATML_TURNS, BITNET__THINKS, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 0, 1, 0)}, BITNET__CHATML_ENDS},
    {{"qwen-3-thinking", BITNET__CHATML_TURNS, BITNET__ALWAYS_THINKS, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_ON, 0, 1, 0)}, BITNET__CHATML_ENDS},
    {{"qwen-3", BITNET__CHATML_TURNS, BITNET__THINKS, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_OFF, 0, 1, 0)}, BITNET__CHATML_ENDS},
    {{"qwen-3", BITNET__CHATML_TURNS, BITNET__THINKS_NOT, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 0, 1, 0)}, BITNET__CHATML_ENDS},
    {{"chatml", BITNET__CHATML_TURNS, BITNET__THINKS_NOT, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 0, 0, 0)}, BITNET__CHATML_ENDS},
    {{"chatml-thinking", BITNET__CHATML_TURNS, BITNET__ALWAYS_THINKS, BITNET__TOOLS,
      BITNET__MODES(BITNET_THINK_ON, 0, 0, 0)}, BITNET__CHATML_ENDS},
    {{"falcon-3", BITNET__TURN("<|system|>\n", "\n"), BITNET__TURN("<|user|>\n", "\n"),
      BITNET__TURN("<|assistant|>\n", "<|endoftext|>\n"), BITNET__NO_TURN, BITNET__NO_TURN,
      BITNET__NO_TURN, BITNET_TEXT("<|assistant|>\n"), BITNET_TEXT("<|endoftext|>"),
      BITNET__NO_TEXT, BITNET__THINKS_NOT, BITNET__NO_TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 0, 0, 0)},
     0, {0, 0, 0}},
    {{"falcon-e", BITNET__NO_TURN, BITNET__NO_TURN, BITNET__TURN("assistant\n", "\n"),
      BITNET__NO_TURN, BITNET__TURN("{role}", "\n"), BITNET__NO_TURN, BITNET_TEXT("assistant\n"),
      BITNET__NO_TEXT, BITNET__NO_TEXT, BITNET__THINKS_NOT, BITNET__NO_TOOLS,
      BITNET__MODES(BITNET_THINK_AUTO, 0, 0, 0)},
     0, {0, 0, 0}},
};

enum { BITNET__MARKS = 32 };

/* Returns the first token that this row needs and the vocabulary lacks; 0: it lacks none. */
static const char *bitnet__lacks_token(const bitnet__vocab *v, const bitnet__chat_row *row) {
    const bitnet_text end = row->t.end;
    if (end.data && bitnet__vocab_find(v, end.data, end.size) < 0) return end.data;
    if (row->needs && bitnet__vocab_find(v, row->needs, strlen(row->needs)) < 0) return row->needs;
    return 0;
}

static void bitnet__add_end(bitnet__vocab *v, bitnet_token t) {
    const int32_t most = (int32_t)(sizeof v->ends / sizeof v->ends[0]);
    if (t >= 0 && v->n_ends < most && !bitnet__is_among(v->ends, v->n_ends, t))
        v->ends[v->n_ends++] = t;
}

static void bitnet__add_ends(bitnet__vocab *v, const bitnet__chat_row *row) {
    size_t i;
    if (row->t.end.data)
        bitnet__add_end(v, bitnet__vocab_find(v, row->t.end.data, row->t.end.size));
    for (i = 0; i < 3 && row->ends[i]; i++)
        bitnet__add_end(v, bitnet__vocab_find(v, row->ends[i], strlen(row->ends[i])));
}

/* ---- chats ---- */

/* Collects text between two template tokens, because words may reach across the end of a
   message. */
typedef struct bitnet__chat {
    bitnet__encoder *e;             /* 0: all is text and stays there, in memory of the caller's */
    bitnet_result result;           /* the first error */
    const bitnet_chat_template *t;
    uint8_t *text;                  /* [cap] */
    size_t n, cap;
    bitnet_token marks[BITNET__MARKS];  /* [n_marks] the template's tokens, and the tags: no message
                                           has them */
    int32_t n_marks;
    bitnet_text lent_role;          /* whose turn takes what tools say, if not the template's own */
    bitnet_text tools;              /* to be written in front of the next message of the user */
} bitnet__chat;

static void bitnet__chat_put(bitnet__chat *c, const char *p, size_t n) {
    bitnet__encoder *e = c->e;
    if (c->result == BITNET_OK && n > (e ? INT32_MAX / 2 : c->cap) - c->n)
        c->result = BITNET_ERR_LIMIT;
    if (c->result != BITNET_OK || n == 0) return;
    if (n > c->cap - c->n) {
        const size_t cap = 2 * (c->n + n);
        uint8_t *text = (uint8_t *)bitnet__alloc(e->allocator, cap);
        if (!text) {
            c->result = BITNET_ERR_MEMORY;
            return;
        }
        if (c->n) memcpy(text, c->text, c->n);
        bitnet__free(e->allocator, c->text);
        c->text = text;
        c->cap = cap;
    }
    memcpy(c->text + c->n, p, n);
    c->n += n;
}

/* Encodes the collected text, then appends token t unless it is -1. */
static void bitnet__chat_flush(bitnet__chat *c, bitnet_token t) {
    if (!c->e) return;
    if (c->result == BITNET_OK) {
        bitnet__encode_except(c->e, c->text, c->n, 0, c->marks, c->n_marks);
        c->result = c->e->result;
    }
    c->n = 0;
    if (t >= 0) bitnet__emit_special(c->e, t);
}

/* Is the token the template's business, rather than part of the text as spaces can be? */
static int bitnet__is_mark(const bitnet__vocab *v, bitnet_token t) {
    size_t n;
    return v->types[t] == BITNET__TOKEN_CONTROL || *bitnet__vocab_bytes(v, t, &n) == '<';
}

/* Tokenizes text, matching the template's special tokens (only_tags: only <think>, <tool_call>
   and their ends). */
static void bitnet__chat_parse(bitnet__chat *c, const char *text, size_t n, int only_tags) {
    const uint8_t *p = (const uint8_t *)text, *end = p + n, *at = p;
    size_t length = 0;
    if (!c->e) bitnet__chat_put(c, text, n);
    while (c->e && p < end) {
        const bitnet__vocab *v = c->e->vocab;
        const int32_t t = bitnet__find_special(v, 1, at, end, &at, &length);
        if (t >= 0 && (only_tags ? !bitnet__is_tag((const char *)at, length)
                                 : !bitnet__is_mark(v, t))) {
            at++;
            continue;
        }
        bitnet__chat_put(c, (const char *)p, (size_t)(at - p));
        if (t < 0) break;
        bitnet__chat_flush(c, t);
        p = at += length;
    }
}

/* Collects the tokens of a string of the template. */
static void bitnet__chat_collect(bitnet__chat *c, bitnet_text text) {
    const bitnet__vocab *v = c->e->vocab;
    const uint8_t *at = (const uint8_t *)(text.data ? text.data : ""), *end = at + text.size;
    size_t length;
    while (at < end) {
        const int32_t t = bitnet__find_special(v, 1, at, end, &at, &length);
        if (t < 0) break;
        if (bitnet__is_mark(v, t) && c->n_marks < BITNET__MARKS &&
            !bitnet__is_among(c->marks, c->n_marks, t)) c->marks[c->n_marks++] = t;
        at += length;
    }
}

static void bitnet__chat_open(bitnet__chat *c, bitnet__encoder *e, const bitnet_chat_template *t) {
    static const bitnet_text response = BITNET_TEXT("<tool_response></tool_response>");
    const bitnet_chat_turn *const turns[] = {&t->system, &t->user, &t->assistant, &t->tool,
                                             &t->other, &t->tools_turn};
    size_t i;
    c->e = e;
    c->t = t;
    for (i = 0; i < BITNET__N_TAGS; i++) bitnet__chat_collect(c, bitnet_text_of(bitnet__tags[i]));
    for (i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        bitnet__chat_collect(c, turns[i]->prefix);
        bitnet__chat_collect(c, turns[i]->suffix);
    }
    bitnet__chat_collect(c, t->reply);
    bitnet__chat_collect(c, response);
}

/* The strings around a message of this role; 0: the template has no such role. */
static const bitnet_chat_turn *bitnet__turn_of(const bitnet_chat_template *t, bitnet_text role) {
    const bitnet_chat_turn *turn = bitnet__is_text(role, "system") ? &t->system :
                                   bitnet__is_text(role, "user") ? &t->user :
                                   bitnet__is_text(role, "assistant") ? &t->assistant :
                                   bitnet__is_text(role, "tool") ? &t->tool : &t->other;
    if (!turn->prefix.data) turn = &t->other;
    return turn->prefix.data ? turn : 0;
}

/* The role as {Role} wants it: its first letter in upper case, the rest in lower case. */
static void bitnet__chat_put_role(bitnet__chat *c, bitnet_text role) {
    size_t i;
    for (i = 0; i < role.size; i++) {
        const char b = role.data[i];
        const char other = i == 0 && b >= 'a' && b <= 'z' ? (char)(b - 'a' + 'A') :
                           i > 0 && b >= 'A' && b <= 'Z' ? (char)(b - 'A' + 'a') : b;
        bitnet__chat_put(c, &other, 1);
    }
}

/* Is {role} (1) or {Role} (2) at p? */
static int bitnet__role_at(const char *p, const char *end) {
    if (end - p < 6) return 0;
    return !memcmp(p, "{role}", 6) ? 1 : !memcmp(p, "{Role}", 6) ? 2 : 0;
}

/* Adds a string of the template around a message of a role. Without data {role} is text. */
static void bitnet__chat_write(bitnet__chat *c, bitnet_text text, bitnet_text role) {
    const char *p = text.data ? text.data : "", *end = p + text.size, *next;
    for (; p < end; p = next) {
        const int is_role = role.data ? bitnet__role_at(p, end) : 0;
        next = p + (is_role ? 6 : 1);
        if (is_role == 1) bitnet__chat_put(c, role.data, role.size);
        if (is_role == 2) bitnet__chat_put_role(c, role);
        if (is_role) continue;
        while (next < end && !(role.data && bitnet__role_at(next, end))) next++;
        bitnet__chat_parse(c, p, (size_t)(next - p), 0);
    }
}

/* Adds a string of the template that stands by itself. */
static void bitnet__chat_string(bitnet__chat *c, bitnet_text text) {
    static const bitnet_text none = BITNET__NO_TEXT;
    bitnet__chat_write(c, text, none);
}

/* What is written of a message. */
static bitnet_text bitnet__content(const bitnet_chat_template *t, bitnet_text s) {
    while (t->trim && s.size > 0 && bitnet__is_space(s.data[s.size - 1])) s.size--;
    while (t->trim && s.size > 0 && bitnet__is_space(*s.data)) s.data++, s.size--;
    return s;
}

static bitnet_text bitnet__strip_newlines(bitnet_text s) {
    while (s.size > 0 && s.data[s.size - 1] == '\n') s.size--;
    while (s.size > 0 && *s.data == '\n') s.data++, s.size--;
    return s;
}

/* What Qwen3's template takes for thinking: from the last <think> in front of the first </think>.
   The text begins behind the last </think>. */
static void bitnet__split_thinking(bitnet_text all, bitnet_text *thinking, bitnet_text *text) {
    const char *open = bitnet__tags[BITNET__OPEN_THINK], *close = bitnet__tags[BITNET__CLOSE_THINK];
    const size_t n_open = strlen(open), n_close = strlen(close);
    size_t i, first = SIZE_MAX, last = 0;
    *text = all;
    thinking->data = all.data;
    thinking->size = 0;
    for (i = 0; i + n_close <= all.size; i++) {
        if (memcmp(all.data + i, close, n_close)) continue;
        if (first == SIZE_MAX) first = i;
        last = i + n_close;
    }
    if (first == SIZE_MAX) return;
    text->data = all.data + last;
    text->size = all.size - last;
    while (text->size > 0 && *text->data == '\n') text->data++, text->size--;
    thinking->size = first;
    for (i = first; i >= n_open; i--)
        if (!memcmp(all.data + i - n_open, open, n_open)) {
            thinking->data = all.data + i;
            thinking->size = first - i;
            break;
        }
    *thinking = bitnet__strip_newlines(*thinking);
}

/* Adds the assistant's text. Its tags are tokens, as they were when the model wrote it. */
static void bitnet__chat_assistant(bitnet__chat *c, bitnet_text all, int keep_thinking,
                                   int is_last) {
    bitnet_text thinking, text;
    if (c->t->drop_thinking) {
        bitnet__split_thinking(all, &thinking, &text);
        all = text;
        if (keep_thinking && (thinking.size > 0 || is_last)) {
            while (all.size > 0 && *all.data == '\n') all.data++, all.size--;
            bitnet__chat_parse(c, "<think>\n", 8, 0);
            bitnet__chat_put(c, thinking.data, thinking.size);
            bitnet__chat_parse(c, "\n</think>\n\n", 11, 0);
        }
    }
    bitnet__chat_parse(c, all.data, all.size, 1);
}

static int bitnet__has_role(const bitnet_message *messages, int n, int i, const char *role) {
    return i >= 0 && i < n && bitnet__is_text(messages[i].role, role);
}

/* Index of the last message of role user; -1: none. */
static int bitnet__last_query(const bitnet_message *messages, int n) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    int i;
    for (i = n - 1; i >= 0; i--) {
        const bitnet_text text = messages[i].content;
        if (!bitnet__has_role(messages, n, i, "user") || !text.data) continue;
        if (text.size < n_close || memcmp(text.data, open, n_open) ||
            memcmp(text.data + text.size - n_close, close, n_close)) return i;
    }
    return n - 1;
}

/* Adds the functions that the model may call. */
static void bitnet__chat_tools(bitnet__chat *c, bitnet_text tools) {
    bitnet__chat_string(c, c->t->tools_before);
    bitnet__chat_put(c, tools.data, tools.size);
    bitnet__chat_string(c, c->t->tools_behind);
}

static void bitnet__chat_message(bitnet__chat *c, const bitnet_message *messages, int n, int i,
                                 int last_query) {
    const bitnet_message *msg = &messages[i];
    const bitnet_chat_turn *turn = bitnet__turn_of(c->t, msg->role);
    const int is_tool = bitnet__is_text(msg->role, "tool") && c->t->tool.prefix.data;
    const bitnet_text text = bitnet__content(c->t, msg->content);
    if (is_tool && !bitnet__has_role(messages, n, i - 1, "tool"))
        bitnet__chat_write(c, c->t->tools_turn.prefix, c->lent_role);
    else if (is_tool && c->lent_role.data) bitnet__chat_put(c, "\n", 1);
    bitnet__chat_write(c, turn->prefix, msg->role);
    if (c->tools.data && bitnet__is_text(msg->role, "user")) {
        bitnet__chat_tools(c, c->tools);
        bitnet__chat_put(c, "\n\n", 2);
        c->tools.data = 0;
    }
    if (bitnet__is_text(msg->role, "assistant"))
        bitnet__chat_assistant(c, text, i > last_query, i == n - 1);
    else bitnet__chat_put(c, text.data, text.size);
    bitnet__chat_write(c, turn->suffix, msg->role);
    if (is_tool && !bitnet__has_role(messages, n, i + 1, "tool"))
        bitnet__chat_write(c, c->t->tools_turn.suffix, c->lent_role);
}

/* The system message with the tools, or the template's own; 1: it stands for the first message. If
   the template has no such message, the user's first one gets the tools. */
static int bitnet__chat_begin(bitnet__chat *c, bitnet_text tools, const bitnet_message *messages,
                              int n) {
    const int given = bitnet__has_role(messages, n, 0, "system") && messages[0].content.data;
    const bitnet_text role = bitnet_text_of("system");
    const bitnet_chat_turn *turn = bitnet__turn_of(c->t, role);
    const bitnet_text content = given ? messages[0].content : c->t->system_text;
    const bitnet_text text = bitnet__content(c->t, content);
    if (!turn) c->tools = tools;
    if (!turn || (!tools.data && (given || !content.data))) return 0;
    bitnet__chat_write(c, turn->prefix, role);
    bitnet__chat_put(c, text.data, text.size);
    if (tools.data && content.data) bitnet__chat_put(c, "\n\n", 2);
    if (tools.data) bitnet__chat_tools(c, tools);
    bitnet__chat_write(c, turn->suffix, role);
    return given;
}

/* Ends the reply in front: with the whole suffix if it was cut, else with what follows the end
   token in it. */
static void bitnet__chat_end_reply(bitnet__chat *c, int ended) {
    const bitnet_text role = bitnet_text_of("assistant"), end = c->t->end;
    const bitnet_chat_turn *turn = bitnet__turn_of(c->t, role);
    bitnet_text suffix = BITNET__NO_TEXT;
    if (turn && turn->suffix.data) suffix = turn->suffix;
    if (ended && end.size && suffix.size >= end.size && !memcmp(suffix.data, end.data, end.size)) {
        suffix.data += end.size;
        suffix.size -= end.size;
    }
    bitnet__chat_write(c, suffix, role);
}

/* Opens the reply as `thinking` asks. */
static void bitnet__chat_reply(bitnet__chat *c, bitnet_thinking thinking) {
    const bitnet_chat_template *t = c->t;
    if (thinking == BITNET_THINK_AUTO) thinking = t->thinking;
    bitnet__chat_string(c, t->reply);
    if (thinking == BITNET_THINK_ON) bitnet__chat_string(c, t->think);
    if (thinking == BITNET_THINK_OFF) bitnet__chat_string(c, t->no_think);
}

/* A copy of a template, with the tools that it lacks: see the head of this section. */
static const bitnet_chat_template *bitnet__lend_tools(const bitnet_chat_template *t,
                                                      bitnet_text tools, bitnet__chat *c,
                                                      bitnet_chat_template *own) {
    static const bitnet_text words[] = {BITNET__TOOLS};
    static const bitnet_chat_turn answer = BITNET__TURN("<tool_response>\n", "\n</tool_response>");
    const int lacks_tools = tools.data && !t->tools_before.data;
    const bitnet_text user = bitnet_text_of("user");
    const bitnet_chat_turn *turn = bitnet__turn_of(t, user);
    *own = *t;
    if (lacks_tools) {
        own->tools_before = words[0];
        own->tools_behind = words[1];
    }
    if (turn && !t->tool.prefix.data && (lacks_tools || !t->other.prefix.data)) {
        own->tool = answer;
        own->tools_turn = *turn;
        c->lent_role = user;
    }
    return own;
}

static int bitnet__is_thinking(bitnet_thinking t) {
    return (int)t >= BITNET_THINK_AUTO && (int)t <= BITNET_THINK_ON;
}

/* Index of a system message that is not where the template allows it; -1: none. */
static int bitnet__late_system(const bitnet_chat_template *t, const bitnet_message *messages, int n,
                               int flags) {
    int i = (flags & BITNET_ADD_BOS) != 0;
    if (!t->system_first) return -1;
    while (i < n && !bitnet__has_role(messages, n, i, "system")) i++;
    return i < n ? i : -1;
}

/* Checks what a chat asks of its template. One without tools, such as a row of the table, refuses
   them; a chat's own has got them (bitnet__lend_tools). */
static bitnet_result bitnet__check_chat(const bitnet_chat_template *t, const bitnet_chat_params *p,
                                        const bitnet_message *messages, int n, int flags,
                                        bitnet_error *err) {
    int i;
    bitnet_result r = bitnet__check_reserved(p->reserved, 4, "bitnet_chat_params", err);
    if (r == BITNET_OK) r = bitnet__check_reserved(t->reserved, 4, "bitnet_chat_template", err);
    if (r != BITNET_OK) return r;
    if (flags & ~(BITNET_CHAT_BEGIN | BITNET_CHAT_CUT_REPLY | BITNET_CHAT_ENDED_REPLY |
                  BITNET_CHAT_OPEN_REPLY))
        return bitnet__fail(err, BITNET_ERR_ARG, "there is no such flag in 0x%x", (unsigned)flags);
    if (!bitnet__is_thinking(p->thinking))
        return bitnet__fail(err, BITNET_ERR_ARG, "the chat's thinking is %lld, not in 0..%d",
                            (long long)p->thinking, BITNET_THINK_ON);
    for (i = 0; i < n; i++) {
        const bitnet_message *msg = &messages[i];
        r = bitnet__check_reserved(msg->reserved, 2, "bitnet_message", err);
        if (r != BITNET_OK) return r;
        if (!msg->role.data || msg->role.size == 0 || !msg->content.data)
            return bitnet__fail(err, BITNET_ERR_ARG, "message %d has no %s", i,
                                msg->role.data && msg->role.size ? "text" : "role");
        if (!bitnet__turn_of(t, msg->role))
            return bitnet__fail(err, BITNET_ERR_ARG, "message %d: the chat template has no role "
                                "'%.*s'", i, (int)(msg->role.size < 20 ? msg->role.size : 20),
                                msg->role.data);
    }
    i = bitnet__late_system(t, messages, n, flags);
    if (i >= 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "message %d: the chat template has a system "
                            "message only at the beginning of a chat", i);
    for (i = 0; i < n && !bitnet__has_role(messages, n, i, "user"); i++) {}
    if (p->tools.data && (!t->tools_before.data || (flags & BITNET_CHAT_BEGIN && i == n &&
                                                    !bitnet__turn_of(t, bitnet_text_of("system")))))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "the chat template has no message that "
                            "could take the tools");
    if (flags & BITNET_CHAT_OPEN_REPLY &&
        ((p->thinking == BITNET_THINK_ON && !t->think.data) ||
         (p->thinking == BITNET_THINK_OFF && t->think.data && !t->no_think.data)))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "the chat template cannot turn thinking "
                            "on or off");
    return BITNET_OK;
}

/* Writes messages, as tokens or as text. */
static void bitnet__chat_all(bitnet__chat *c, const bitnet_chat_params *p,
                             const bitnet_message *messages, int n, int flags) {
    const int last_query = bitnet__last_query(messages, n);
    int i = 0;
    if (flags & (BITNET_CHAT_CUT_REPLY | BITNET_CHAT_ENDED_REPLY))
        bitnet__chat_end_reply(c, (flags & BITNET_CHAT_ENDED_REPLY) != 0);
    if (flags & BITNET_CHAT_BEGIN) i = bitnet__chat_begin(c, p->tools, messages, n);
    for (; i < n && c->result == BITNET_OK; i++)
        bitnet__chat_message(c, messages, n, i, last_query);
    if (flags & BITNET_CHAT_OPEN_REPLY) bitnet__chat_reply(c, p->thinking);
    bitnet__chat_flush(c, -1);
}

/* Adds a chat: bitnet_chat_tokenize on an encoder. BITNET_OK: see e->result. */
static bitnet_result bitnet__encode_chat(bitnet__encoder *e, const bitnet_chat_params *params,
                                         const bitnet_message *messages, int n, int flags,
                                         bitnet_error *err) {
    static const bitnet_chat_params defaults = {0, BITNET_THINK_AUTO, {0, 0}, {0, 0, 0, 0}};
    const bitnet_chat_params *p = params ? params : &defaults;
    const bitnet_chat_template *t = p->chat_template ? p->chat_template : e->vocab->chat;
    const int bos = t == e->vocab->chat ? e->vocab->chat_bos : e->vocab->add_bos;
    bitnet_chat_template own;
    bitnet_result r;
    bitnet__chat c;
    if (!t) return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "%s",
                                e->vocab->no_chat.text);
    memset(&c, 0, sizeof c);           /* as bitnet__lend_tools and bitnet__chat_open want it */
    t = bitnet__lend_tools(t, p->tools, &c, &own);
    if ((r = bitnet__check_chat(t, p, messages, n, flags, err)) != BITNET_OK) return r;
    bitnet__chat_open(&c, e, t);
    e->at_start = (flags & BITNET_CHAT_BEGIN) != 0;
    if (bos) bitnet__encode_bos(e, flags & BITNET_CHAT_BEGIN ? BITNET_ADD_BOS : 0);
    bitnet__chat_all(&c, p, messages, n, flags);
    bitnet__free(e->allocator, c.text);
    if (e->result == BITNET_OK) e->result = c.result;
    return BITNET_OK;
}

/* ---- which template a file has ----
   Each probe is a chat. What the file's Jinja writes for it is compared with what each row writes;
   a row that writes something else is out. Some things of a row are learned instead: BOS, the
   default system text, trimming, how thinking is turned off, and the roles and tools that the
   file's template does not have. What the library would refuse needs no comparison. */

typedef enum bitnet__learns {
    BITNET__LEARN_NOTHING, BITNET__LEARN_START, BITNET__LEARN_OFF, BITNET__LEARN_SYSTEM,
    /* What a row may leave out or refuse although the file's template writes it. */
    BITNET__LEARN_LATER, BITNET__LEARN_ROLES, BITNET__LEARN_TOOLS, BITNET__LEARN_TOOL,
    BITNET__MAY_RAISE,              /* the library need not refuse what the template refuses */
    BITNET__MAY_END                 /* without a reply: one may be there, or the last newline not */
} bitnet__learns;

enum { BITNET__PROBE_MESSAGES = 6 };

typedef struct bitnet__probe {
    const char *what;
    bitnet__learns learns;
    int32_t n;
    struct { const char *role, *content; } messages[BITNET__PROBE_MESSAGES];
} bitnet__probe;

#define BITNET__PROBE_TOOL_1                                                                \
    "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "            \
    "\"A \\\"\xC3\xA9\\\" & <b>.\", \"parameters\": {\"type\": \"object\", \"properties\": " \
    "{\"x\": {\"type\": \"integer\"}}, \"required\": [\"x\"]}}}"
#define BITNET__PROBE_TOOL_2 "{\"type\": \"function\", \"function\": {\"name\": \"a\"}}"
#define BITNET__PROBE_CALL_1 "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"
#define BITNET__PROBE_CALL_2 "{\"name\": \"a\", \"arguments\": {}}"
#define BITNET__PROBE_CALLS                                                                 \
    "\n<tool_call>\n" BITNET__PROBE_CALL_1 "\n</tool_call>\n<tool_call>\n"                  \
    BITNET__PROBE_CALL_2 "\n</tool_call>"
#define BITNET__THOUGHT "<think>\nHm,\nso.\n</think>\n\nYes."

static const bitnet__probe bitnet__probes[] = {
    {"a user", BITNET__LEARN_START, 1, {{"user", "\n Hi \n"}}},
    {"a system message", BITNET__LEARN_SYSTEM, 2, {{"system", "\n Be.\n "}, {"user", "Hi"}}},
    {"two turns", BITNET__LEARN_NOTHING, 3,
     {{"user", "\tHi\n"}, {"assistant", " \nYes. \n"}, {"user", " So?"}}},
    {"three turns", BITNET__LEARN_NOTHING, 6,
     {{"system", "Be."}, {"user", "Hi"}, {"assistant", "Yes."}, {"user", "So?"},
      {"assistant", "No.\n\nNo."}, {"user", "Oh\nno"}}},
    {"an empty system message", BITNET__MAY_RAISE, 2, {{"system", ""}, {"user", "Hi"}}},
    {"empty texts", BITNET__MAY_RAISE, 3, {{"user", ""}, {"assistant", ""}, {"user", ""}}},
    {"two users", BITNET__MAY_RAISE, 2, {{"user", "Hi"}, {"user", "So?"}}},
    {"earlier thinking", BITNET__LEARN_NOTHING, 3,
     {{"user", "Hi"}, {"assistant", BITNET__THOUGHT}, {"user", "So?"}}},
    {"the last thinking", BITNET__MAY_END, 2, {{"user", "Hi"}, {"assistant", BITNET__THOUGHT}}},
    {"a last reply", BITNET__MAY_END, 2, {{"user", "Hi"}, {"assistant", "Yes."}}},
    {"a user without a reply", BITNET__MAY_END, 1, {{"user", "Hi"}}},
    {"thinking turned off", BITNET__LEARN_OFF, 1, {{"user", "Hi"}}},
    {"a later system message", BITNET__LEARN_LATER, 4,
     {{"user", "Hi"}, {"assistant", "Yes."}, {"system", "Be."}, {"user", "So?"}}},
    {"another role", BITNET__LEARN_ROLES, 4,
     {{"user", "Hi"}, {"assistant", "Yes."}, {"critic", "Be."}, {"user", "So?"}}},
    {"tools", BITNET__LEARN_TOOLS, 1, {{"user", "Hi"}}},
    {"tools and a system message", BITNET__LEARN_TOOLS, 2, {{"system", "Be."}, {"user", "Hi"}}},
    {"a tool call", BITNET__LEARN_TOOLS, 5,
     {{"system", "Be."}, {"user", "Hi"}, {"assistant", "Well." BITNET__PROBE_CALLS},
      {"tool", "2"}, {"tool", "{\"y\": 3}\n"}}},
    {"what a tool says", BITNET__LEARN_TOOL, 5,
     {{"user", "Hi"}, {"assistant", "Well."}, {"tool", "2"}, {"tool", " 3"}, {"user", "So?"}}},
};

/* A row with what was learned of the file. */
typedef struct bitnet__chat_fit {
    const bitnet__chat_row *row;
    bitnet_chat_template t;
    int bos, out;
} bitnet__chat_fit;

enum { BITNET__N_ROWS = sizeof bitnet__chat_rows / sizeof bitnet__chat_rows[0],
       BITNET__N_PROBES = sizeof bitnet__probes / sizeof bitnet__probes[0] };

/* Working memory for recognising a template. Behind it lies j's memory, which also takes what a
   row writes (from the front) and system texts (from the end). */
typedef struct bitnet__recognition {
    const bitnet__vocab *vocab;
    bitnet__chat_fit c[BITNET__N_ROWS];
    bitnet__jinja j;
} bitnet__recognition;

static bitnet__jvalue bitnet__token_value(const bitnet__vocab *v, bitnet_token t) {
    size_t n = 0;
    const uint8_t *p = t >= 0 && (uint32_t)t < v->n_tokens ? bitnet__vocab_bytes(v, t, &n) : 0;
    return p ? bitnet__jstring_of((const char *)p, n) : bitnet__jstring("");
}

static void bitnet__jinja_define(bitnet__jinja *j, const char *name, bitnet__jvalue v) {
    bitnet__jname n;
    n.s = name;
    n.n = (int32_t)strlen(name);
    n.value = v;
    bitnet__jinja_set(j, n, v);
}

/* The value of an expression that is ours. */
static bitnet__jvalue bitnet__jinja_eval(bitnet__jinja *j, const char *text) {
    const char *at = j->at, *end = j->end;
    bitnet__jvalue v;
    j->at = text;
    j->end = text + strlen(text);
    v = bitnet__jinja_expression(j);
    j->at = at;
    j->end = end;
    return v;
}

static void bitnet__probe_messages(const bitnet__probe *p, bitnet_message *out) {
    int32_t i;
    memset(out, 0, BITNET__PROBE_MESSAGES * sizeof *out);
    for (i = 0; i < p->n; i++) {
        out[i].role = bitnet_text_of(p->messages[i].role);
        out[i].content = bitnet_text_of(p->messages[i].content);
    }
}

static bitnet__jvalue bitnet__probe_message(bitnet__jinja *j, const bitnet_message *m) {
    static const char tail[] = BITNET__PROBE_CALLS;
    const size_t all = m->content.size, size = sizeof tail - 1;
    const int calls = all >= size && !memcmp(m->content.data + all - size, tail, size);
    const size_t n = calls ? all - size : all;
    bitnet__jvalue v = bitnet__jinja_list(j, BITNET__DICT, 6);
    bitnet__jinja_put(j, &v, bitnet__jstring("role"),
                      bitnet__jstring_of(m->role.data, m->role.size));
    bitnet__jinja_put(j, &v, bitnet__jstring("content"), bitnet__jstring_of(m->content.data, n));
    if (calls)
        bitnet__jinja_put(j, &v, bitnet__jstring("tool_calls"), bitnet__jinja_eval(j,
                          "[{\"type\": \"function\", \"function\": " BITNET__PROBE_CALL_1 "},"
                          " {\"type\": \"function\", \"function\": " BITNET__PROBE_CALL_2 "}]"));
    return v;
}

/* Writes the probe by the file's template into j->out. Returns why it failed, or 0. */
static int bitnet__render_probe(bitnet__recognition *r, const bitnet__probe *p) {
    bitnet__jinja *j = &r->j;
    const bitnet__jvalue none = bitnet__jvalue_of(BITNET__NONE, 0, 0);
    bitnet_message said[BITNET__PROBE_MESSAGES];
    bitnet__jvalue messages;
    int32_t i;
    bitnet__probe_messages(p, said);
    bitnet__jinja_begin(j);
    messages = bitnet__jinja_list(j, BITNET__LIST, 6);
    for (i = 0; i < p->n; i++)
        bitnet__jinja_push(j, &messages, bitnet__probe_message(j, &said[i]));
    bitnet__jinja_define(j, "messages", messages);
    bitnet__jinja_define(j, "bos_token", bitnet__token_value(r->vocab, r->vocab->bos));
    bitnet__jinja_define(j, "eos_token", bitnet__token_value(r->vocab, r->vocab->eos));
    bitnet__jinja_define(j, "add_generation_prompt", bitnet__jbool(p->learns != BITNET__MAY_END));
    bitnet__jinja_define(j, "documents", none);
    bitnet__jinja_define(j, "tools", p->learns != BITNET__LEARN_TOOLS ? none :
                         bitnet__jinja_eval(j, "[" BITNET__PROBE_TOOL_1 "," BITNET__PROBE_TOOL_2
                                               "]"));
    if (p->learns == BITNET__LEARN_OFF)
        bitnet__jinja_define(j, "enable_thinking", bitnet__jbool(0));
    bitnet__jinja_render(j);
    return j->failure.kind == BITNET__FAILED ? j->failure.n : 0;
}

static void bitnet__chat_put_value(bitnet__chat *c, bitnet__jvalue v) {
    bitnet__chat_put(c, v.s, (size_t)v.n);
}

/* Writes the probe by a row, from a message on, into the memory of j. Returns the size; -1: the
   library refuses this; -2: there is no room. */
static int32_t bitnet__write_probe(bitnet__recognition *r, const bitnet__chat_fit *c,
                                   const bitnet__probe *p, int32_t from, int open) {
    static const bitnet_text tools = BITNET_TEXT(BITNET__PROBE_TOOL_1 "\n" BITNET__PROBE_TOOL_2);
    const int flags = BITNET_CHAT_BEGIN | (open ? BITNET_CHAT_OPEN_REPLY : 0);
    bitnet_message said[BITNET__PROBE_MESSAGES];
    bitnet_chat_params params;
    bitnet__chat chat;
    bitnet__probe_messages(p, said);
    memset(&params, 0, sizeof params);
    memset(&chat, 0, sizeof chat);
    chat.t = &c->t;
    chat.text = (uint8_t *)r->j.memory;
    chat.cap = r->j.cap;
    if (p->learns == BITNET__LEARN_OFF) params.thinking = BITNET_THINK_OFF;
    if (p->learns == BITNET__LEARN_TOOLS) params.tools = tools;
    if (bitnet__check_chat(&c->t, &params, said + from, p->n - from, flags, 0)) return -1;
    if (c->bos) bitnet__chat_put_value(&chat, bitnet__token_value(r->vocab, r->vocab->bos));
    bitnet__chat_all(&chat, &params, said + from, p->n - from, flags);
    return chat.result == BITNET_OK ? (int32_t)chat.n : chat.result == BITNET_ERR_LIMIT ? -2 : -1;
}

/* Does the row write what the file's template wrote? */
static int bitnet__agrees(bitnet__recognition *r, const bitnet__chat_fit *c,
                          const bitnet__probe *p, int32_t from) {
    const bitnet__jinja *j = &r->j;
    const int ends = p->learns == BITNET__MAY_END;
    int32_t n = bitnet__write_probe(r, c, p, from, !ends);
    if (n < 0) return 0;
    while (ends && n > j->n_out && j->memory[n - 1] == '\n') n--;
    if (n == j->n_out && !memcmp(j->memory, j->out, (size_t)n)) return 1;
    n = ends ? bitnet__write_probe(r, c, p, from, 1) : -1;
    return n == j->n_out && !memcmp(j->memory, j->out, (size_t)n);
}

/* The default system text: what is between the strings around a system message. */
static int bitnet__learn_system_text(bitnet__recognition *r, bitnet__chat_fit *c,
                                     const bitnet__probe *p) {
    const bitnet_text role = bitnet_text_of("system");
    const bitnet_chat_turn *turn = bitnet__turn_of(&c->t, role);
    bitnet__jinja *j = &r->j;
    const uint8_t *at, *end;
    const char *text;
    bitnet__chat front;
    int32_t size;
    size_t length = 0;
    char *own;
    if (!turn) return 0;
    memset(&front, 0, sizeof front);
    front.text = (uint8_t *)j->memory;
    front.cap = j->cap;
    if (c->bos) bitnet__chat_put_value(&front, bitnet__token_value(r->vocab, r->vocab->bos));
    bitnet__chat_write(&front, turn->prefix, role);
    if (front.n > (size_t)j->n_out || memcmp(j->out, j->memory, front.n)) return 0;
    text = j->out + front.n;
    c->t.system_text = bitnet_text_of("");
    size = j->n_out - bitnet__write_probe(r, c, p, 0, 1);
    if (size < 0 || (size_t)size > j->cap || front.n + (size_t)size > (size_t)j->n_out) return 0;
    for (at = (const uint8_t *)text, end = at + size; at < end; at += length) {
        const int32_t t = bitnet__find_special(r->vocab, 1, at, end, &at, &length);
        if (t < 0) break;
        if (bitnet__is_mark(r->vocab, t)) return 0;    /* it would be text */
    }
    j->cap -= (size_t)size;
    own = j->memory + j->cap;
    memcpy(own, text, (size_t)size);
    c->t.system_text.data = own;
    c->t.system_text.size = (size_t)size;
    if (bitnet__agrees(r, c, p, 0)) return 1;
    j->cap += (size_t)size;
    return 0;
}

/* BOS, trimming and the default system text, of a user's message alone. */
static int bitnet__learn_start(bitnet__recognition *r, bitnet__chat_fit *c,
                               const bitnet__probe *p) {
    const bitnet__jvalue bos = bitnet__token_value(r->vocab, r->vocab->bos);
    int i;
    for (i = 0; i < 8; i++) {
        c->t = c->row->t;
        c->bos = i & 1;
        c->t.trim ^= i >> 1 & 1;
        if (i < 4 ? bitnet__agrees(r, c, p, 0) : bitnet__learn_system_text(r, c, p)) return 1;
    }
    c->t = c->row->t;                                  /* the nearest, to tell of */
    c->bos = bos.n > 0 && r->j.n_out >= bos.n && !memcmp(r->j.out, bos.s, (size_t)bos.n);
    return 0;
}

/* From now on only roles that have strings of their own are written. */
static void bitnet__leave_out_roles(bitnet_chat_template *t) {
    static const bitnet_chat_turn none = BITNET__NO_TURN;
    bitnet_chat_turn *const turns[] = {&t->system, &t->user, &t->assistant, &t->tool};
    int i;
    for (i = 0; i < 4; i++) if (!turns[i]->prefix.data) *turns[i] = t->other;
    t->other = none;
}

/* Does the row still fit, perhaps with something left out? failed: the file's template did. */
static int bitnet__fits(bitnet__recognition *r, bitnet__chat_fit *c, const bitnet__probe *p,
                        int failed) {
    static const bitnet_chat_turn none = BITNET__NO_TURN;
    static const bitnet_text nothing = BITNET__NO_TEXT;
    bitnet_chat_template *t = &c->t;
    if (p->learns == BITNET__LEARN_START) return !failed && bitnet__learn_start(r, c, p);
    if (p->learns == BITNET__LEARN_OFF && t->think.data && !t->no_think.data && !failed) {
        t->no_think = bitnet_text_of(BITNET__EMPTY_THINKING);
        if (!bitnet__agrees(r, c, p, 0)) t->no_think = nothing;
    }
    if (bitnet__write_probe(r, c, p, 0, p->learns != BITNET__MAY_END) == -1) return 1;
    if (failed ? failed == BITNET__RAISED && p->learns >= BITNET__MAY_RAISE
               : bitnet__agrees(r, c, p, 0)) return 1;
    if (p->learns == BITNET__LEARN_SYSTEM) {           /* refused, or left out */
        if (failed ? failed != BITNET__RAISED : !bitnet__agrees(r, c, p, 1)) return 0;
        bitnet__leave_out_roles(t);
        t->system = none;
        return 1;
    }
    if (p->learns == BITNET__LEARN_LATER) t->system_first = 1;
    else if (p->learns == BITNET__LEARN_ROLES) bitnet__leave_out_roles(t);
    else if (p->learns == BITNET__LEARN_TOOLS) t->tools_before = t->tools_behind = nothing;
    else if (p->learns == BITNET__LEARN_TOOL) {
        t->tool = t->tools_turn = none;
        if (failed || !bitnet__agrees(r, c, p, 0)) {
            bitnet__leave_out_roles(t);
            t->tool = none;
        }
    } else return 0;
    return 1;
}

/* What is around a place of a text, in one line. */
static void bitnet__excerpt(char out[BITNET__TEXT], const char *text, const char *at,
                            const char *end) {
    const char *p = at - text > 12 ? at - 12 : text;
    size_t n = 0;
    for (; p < end && n < 32; p++) {
        if (*p == '\n') out[n++] = '\\';
        out[n++] = *p == '\n' ? 'n' : *p ? *p : '?';
    }
    out[n] = 0;
}

static void bitnet__explain_failure(const bitnet__jinja *j, const bitnet__probe *p,
                                    bitnet_error *why) {
    const bitnet__jvalue f = j->failure;
    const char *at = f.s && f.s >= j->start && f.s < j->end ? f.s : j->end, *q;
    char place[BITNET__TEXT];
    int line = 1;
    for (q = j->start; q < at; q++) line += *q == '\n';
    bitnet__excerpt(place, at, at, j->end);
    bitnet__fail(why, BITNET_ERR_UNSUPPORTED, "no chat: tokenizer.chat_template %s%s, line %d: %s",
                 f.n == BITNET__RAISED ? "refuses a chat: " :
                 f.n == BITNET__TOO_MUCH ? "takes too much time, memory or nesting"
                                         : "cannot be understood",
                 f.n == BITNET__RAISED ? p->what : "", line, place);
}

/* Row c->row stopped fitting at probe k. Keeps the reason if it is the furthest so far. */
static int32_t bitnet__explain_difference(bitnet__recognition *r, const bitnet__chat_fit *c,
                                          const bitnet__probe *p, int32_t k, int32_t nearest,
                                          bitnet_error *why) {
    const int32_t n = bitnet__write_probe(r, c, p, 0, p->learns != BITNET__MAY_END);
    char his[BITNET__TEXT], ours[BITNET__TEXT];
    int32_t at = 0;
    while (at < n && at < r->j.n_out && r->j.memory[at] == r->j.out[at]) at++;
    if (k * BITNET__JINJA_OUT + at <= nearest) return nearest;
    bitnet__excerpt(his, r->j.out, r->j.out + at, r->j.out + r->j.n_out);
    bitnet__excerpt(ours, r->j.memory, r->j.memory + at, r->j.memory + (n > 0 ? n : 0));
    bitnet__fail(why, BITNET_ERR_UNSUPPORTED, "no chat: tokenizer.chat_template is unknown: "
                 "for %s it writes \"%s\", not \"%s\" as %s", p->what, his, ours, c->t.name);
    return k * BITNET__JINJA_OUT + at;
}

/* The row that the file's template is, with what was learned; or 0, and why there is none. room:
   the size of r and what is behind it. */
static const bitnet__chat_fit *bitnet__recognise(bitnet__recognition *r, size_t room,
                                                  const bitnet__vocab *v, const char *jinja,
                                                  size_t n, bitnet_error *why) {
    bitnet__jinja *j = &r->j;
    int32_t k, i, left = BITNET__N_ROWS, nearest = -1;
    memset(r->c, 0, sizeof r->c);
    r->vocab = v;
    j->start = jinja;
    j->end = jinja + n - (n > 0 && jinja[n - 1] == '\n');          /* as Jinja has it */
    j->memory = (char *)(r + 1);
    j->cap = room - sizeof *r;
    j->work = BITNET__JINJA_WORK;
    for (i = 0; i < left; i++) r->c[i].row = &bitnet__chat_rows[i];
    for (k = 0; k < BITNET__N_PROBES && left > 0; k++) {
        const bitnet__probe *p = &bitnet__probes[k];
        const int failed = bitnet__render_probe(r, p);
        for (i = 0; i < BITNET__N_ROWS; i++) {
            bitnet__chat_fit *c = &r->c[i];
            if (c->out || bitnet__fits(r, c, p, failed)) continue;
            c->out = 1;
            left--;
            if (failed) bitnet__explain_failure(j, p, why);
            else nearest = bitnet__explain_difference(r, c, p, k, nearest, why);
        }
    }
    for (i = 0; i < BITNET__N_ROWS; i++) if (!r->c[i].out) return &r->c[i];
    return 0;
}

/* ---- parts of a reply ---- */

static int bitnet__is_wanted(const bitnet_reply *r, int tag) {
    if (tag == BITNET__OPEN_THINK)
        return r->part == BITNET_REPLY_TEXT && r->thinks && !r->begun;
    if (tag == BITNET__CLOSE_THINK) return r->part == BITNET_REPLY_THINKING;
    if (tag == BITNET__OPEN_CALL) return r->part == BITNET_REPLY_TEXT && r->calls;
    return r->part == BITNET_REPLY_TOOL_CALL;
}

/* Takes a byte into what may become a tag. 0: it cannot; 1: it can; 2: it has, and the next part
   has begun. */
static int bitnet__take_tag(bitnet_reply *r, char b) {
    int i;
    for (i = 0; i < BITNET__N_TAGS; i++) {
        const char *tag = bitnet__tags[i];
        if (!bitnet__is_wanted(r, i) || strncmp(tag, r->held, (size_t)r->n_held) ||
            tag[r->n_held] != b) continue;
        r->held[r->n_held++] = b;
        if (tag[r->n_held]) return 1;
        r->n_held = r->n_newlines = 0;
        r->begun = r->skips = 1;
        r->part = i == BITNET__OPEN_THINK ? BITNET_REPLY_THINKING :
                  i == BITNET__OPEN_CALL ? BITNET_REPLY_TOOL_CALL : BITNET_REPLY_TEXT;
        r->n_calls += i == BITNET__OPEN_CALL;
        return 2;
    }
    return 0;
}

/* Gives out what was held back: newlines first. 0: nothing was. */
static int bitnet__give_held(bitnet_reply *r, const char **text, size_t *n) {
    static const char newlines[] = "\n\n\n\n\n\n\n\n";
    int32_t *count = r->n_newlines > 0 ? &r->n_newlines : &r->n_held;
    const int32_t most = count == &r->n_held ? (int32_t)sizeof r->held : 8;
    *text = count == &r->n_held ? r->held : newlines;
    *n = (size_t)(*count < most ? *count : most);
    *count -= (int32_t)*n;
    r->skips = 0;
    r->begun = 1;
    return *n > 0;
}

/* ---- public functions ---- */

BITNET_API const bitnet_chat_template *bitnet_model_chat_template(const bitnet_model *m) {
    return m ? bitnet__vocab_of(m)->chat : 0;
}

BITNET_API int bitnet_chat_tokenize(const bitnet_model *m, const bitnet_chat_params *chat,
                                    const bitnet_message *messages, int n, int flags,
                                    bitnet_token *out, size_t cap, bitnet_error *err) {
    bitnet__encoder e;
    bitnet_result r;
    int length;
    if (!m || n < 0 || (!messages && n > 0))
        return bitnet__fail(err, BITNET_ERR_ARG, m ? "there are no messages" : "the model is 0");
    bitnet__encoder_open(&e, bitnet__vocab_of(m), bitnet__allocator_of(m), out, cap);
    r = bitnet__encode_chat(&e, chat, messages, n, flags, err);
    length = bitnet__encoder_close(&e);
    if (r != BITNET_OK) return r;
    return length >= 0 ? length : bitnet__fail_tokenize((bitnet_result)length, err);
}

BITNET_API void bitnet_reply_begin(bitnet_reply *r, const bitnet_model *m,
                                   const bitnet_chat_params *chat) {
    const bitnet_chat_template *t = chat && chat->chat_template ? chat->chat_template
                                    : m ? bitnet__vocab_of(m)->chat : 0;
    bitnet_thinking thinking = chat ? chat->thinking : BITNET_THINK_AUTO;
    if (!r) return;
    memset(r, 0, sizeof *r);
    if (!t) return;
    if (thinking == BITNET_THINK_AUTO) thinking = t->thinking;
    r->thinks = t->think.data || t->no_think.data || t->drop_thinking;
    r->calls = chat && chat->tools.data;
    if (!t->think.data || thinking != BITNET_THINK_ON) return;
    r->part = BITNET_REPLY_THINKING;
    r->skips = 1;
}

BITNET_API int bitnet_reply_next(bitnet_reply *r, const char **text, size_t *n,
                                 bitnet_reply_part *part, const char **part_text, size_t *part_n) {
    const char *end;
    if (!r || !text || (*text && !n) || !part || !part_text || !part_n) return 0;
    *part = r->part;
    if (!*text) return bitnet__give_held(r, part_text, part_n);
    for (end = *text + *n; *text < end; *n = (size_t)(end - *text)) {
        const char b = **text, *p = *text;
        const int taken = b == '\n' && !r->n_held ? 0 : bitnet__take_tag(r, b);
        if (!taken && r->n_held) {     /* it was no tag; b comes again */
            if (bitnet__give_held(r, part_text, part_n)) return 1;
        } else if (taken || b == '\n') {
            if (!taken && !r->skips) r->n_newlines++;
            ++*text;
            *part = r->part;
        } else if (r->n_newlines > 0) {
            return bitnet__give_held(r, part_text, part_n);
        } else {                       /* up to what may have to be held back */
            do ++p;
            while (p < end && *p != '\n' && *p != '<');
            *part_text = *text;
            *part_n = (size_t)(p - *text);
            *text = p;
            *n = (size_t)(end - p);
            r->begun = 1;
            r->skips = 0;
            return 1;
        }
    }
    return 0;
}
/* =============================================================================================
   @formats  weights as files store them: types, sizes, layouts, and how to read each
   Floats and blocks of floats are unpacked to F32, ternary weights to codes (weight + 1: 0, 1, 2),
   and these are packed to rows of I2_S, which kernels read. bitnet__types has a row for each type
   and says what a new one touches. The weights of a tensor need not be aligned.

   PACKINGS. Builds of one converter have written I2_S in three ways, and a file does not say which.
   Each puts the codes of four weights into a byte; they differ in which four:

       bits             7-6    5-4    3-2    1-0
       128 packing      j      32+j   64+j   96+j     byte j of 32, for 128 consecutive weights:
                                                      x86 and Python converters, the official file
       64 packing       j      16+j   32+j   48+j     byte j of 16, for 64 weights: ARM converters
       4-row packing    r      r+1    r+2    r+3      byte c of rows r to r+3, for column c:
                                                      x86 converters built without ACT_PARALLEL

   The default is the 128 packing. For the others set bitnet_model_params.i2s_packing; the model
   then repacks the weights into memory of its own (521 MB for the 2B model), as it does TL1 and
   TL2. A file does not record the tiles of those either. The library knows those of
   bitnet_b1_58-large, bitnet_b1_58-3B and Llama3-8B-1.58 by the shapes. For other shapes set
   bitnet_model_params.tile, which applies to all such tensors of the file, or .tiles, for each
   shape its own. The results are the same. With the wrong packing or tile most files load without
   an error, and the model writes noise: examples/convert/README.md says how to find the right one.

   For TL1 of Llama3-8B-1.58 bitnet.cpp has two sets of tiles (BM,BK,bm). The library takes the
   first; a file that was packed with the second (setup_env.py --use-pretuned) writes noise unless
   .tiles says so:

       rows x columns       14336 x 4096    4096 x 14336    1024 x 4096    4096 x 4096
       as generated         256,128,32      128,64,64       256,128,32     128,64,64
       --use-pretuned       256,128,64      256,128,32      128,64,64      128,64,32

   TL2_R16, type 20016, is this library's own: the weights of TL2, 5 bits for 3, in the order in
   which the kernel tables named -tl2 read them (drawn in @kernels), so that a mapped file needs no
   copy. Without such a table, or if rows are not a multiple of 128 weights, they are repacked as
   I2_S. A generated token of the 2B model reads 87 MB less than with I2_S. llama.cpp and other
   engines refuse the file, because they do not know the number; examples/convert turns it back into
   every other packing, without loss. Like I2_S, TL1 and TL2 a tensor ends with 32 bytes, which
   begin with its scale. An unused value, a code other than 0 where a row is filled up, and a last
   pack of rows that is not filled up with its last row, are refused.

   Blocks with a scale each are read in place or packed, as the kernel table needs it (@kernels); of
   TQ1_0 blocks of TQ2_0 are made first, and of PTQ1_0 such of PQ2_0 where digits would be slow.
   Q2_0 has 64 weights a block in ggml, and 128 in files of Bonsai's publisher, with the same
   number; the room that the tensors have tells them apart. If all are tiny, both fit, and
   q2_0_block must say it. TQ1_0 and TQ2_0 count as weights with one scale if all their blocks have
   the same; then they are repacked as I2_S.
   ============================================================================================= */

/* What unpacking found: the first invalid value. */
typedef struct bitnet__unpacked {
    const char *invalid;               /* the kind of value; 0: all are valid */
    uint32_t value;
    int32_t row, column;
} bitnet__unpacked;

/* A type of tensors, which this library may or may not read. Rows are whole blocks; block 0: the
   tensor is stored as a whole. Of the functions a type has those that fit it:

   size          bytes of a tensor that is stored as a whole; 0: it cannot have this shape
   floats        unpacks n weights, a multiple of the block
   block_codes   unpacks a block of n ternary weights to codes, which may be 3; such a block has an
                 F16 scale, at the byte scale_at
   codes         unpacks columns of a ternary tensor that is stored as a whole: see
                 bitnet__unpack_i2s */
typedef struct bitnet__type {
    const char *name;                  /* ggml's */
    uint16_t block, bytes;             /* weights and bytes of a block */
    uint8_t scale_at;
    uint8_t keeps_scales;              /* 1: blocks have different scales; 0: they may have one */
    uint8_t most;                      /* the largest code that is valid: 2; 3, a weight of +2 */
    const bitnet__blocks *groups;      /* what kernels read if the scales differ; 0: no kernel */
    uint64_t (*size)(uint64_t n_cols, uint64_t n_rows);
    void (*floats)(const uint8_t *p, size_t n, float *out);
    void (*block_codes)(const uint8_t *p, int n, uint8_t *codes);
    int (*codes)(const bitnet_ternary *t, const uint8_t *data, int32_t row, size_t from, size_t to,
                 uint8_t *codes, bitnet__unpacked *u);
} bitnet__type;

/* ---- floats, and blocks of integers with common scales ----
   A weight of a block is d * q; with a scale for each sub-block, (d * scale) * q; with a minimum,
   too, (d * scale) * q - dmin * minimum. d and dmin are F16, the others integers.

       Q8_0     34 bytes    32 weights               d, q[32]: signed
       Q4_0     18          32                       d, low[16]: of q + 8
       Q5_0     22          32                       d, high[4], low[16]: of q + 16
       Q2_K     84         256 in sub-blocks of 16   sub[16], low[64], d, dmin
       Q3_K    110         256                  16   high[32], low[64], sub[12], d: of q + 4
       Q4_K    144         256                  32   d, dmin, sub[12], low[128]
       Q5_K    176         256                  32   d, dmin, sub[12], high[32], low[128]
       Q6_K    210         256                  16   low[128], high[64], sub[16], d: of q + 32

   low has the lowest bits of q, high those above them. Weights of byte j, from its lowest bits on:

       4 bits   low of Q4_0, Q5_0              j, 16 + j
                low of Q4_K, Q5_K              j, 32 + j: 32 bytes for 64 weights
                low of Q6_K                    j, 64 + j: 64 bytes for 128 weights
       2 bits   low of Q2_K, Q3_K;             j, 32 + j, 64 + j, 96 + j: 32 bytes for 128 weights
                high of Q6_K
       1 bit    high of Q5_0                   8 j, 8 j + 1, ... 8 j + 7
                high of Q3_K, Q5_K             j, 32 + j, ... 224 + j

   sub of Q6_K is the scales, which are signed; of Q2_K, scales in bits 3-0 and minima in bits 7-4.
   The others have 6 bits for a scale, which Q3_K reduces by 32, and 6 for a minimum:

           Q3_K           bytes 0-7             bytes 8-11
           bits 3-0       scales 0-7: 3-0       byte 8 + j has bits 5-4 of the scales j, 4 + j,
                7-4       scales 8-15: 3-0      8 + j and 12 + j, from its lowest bits on

           Q4_K, Q5_K     bytes 0-3             bytes 4-7             bytes 8-11
           bits 5-0       scales 0-3            minima 0-3            3-0: scales 4-7: 3-0
                7-6       scales 4-7: 5-4       minima 4-7: 5-4       7-4: minima 4-7: 3-0

   d has 11 significant bits, in Q6_K a scale 7 and q 5 (or they are powers of two), elsewhere scale
   and q together at most 11. So for a finite d each product has at most 23 bits and is a multiple
   of 2^-24 below 2^29: none is rounded. Only the difference is, once, so that even a contraction
   would not change it. An infinite or NaN d gives infinite or NaN weights.

   Each block is copied first: then the compiler knows that the floats do not overlap it, and
   vectorises the loops. */

static void bitnet__unpack_f32(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n--, p += 4) *out++ = bitnet__load_f32(p);
}

static void bitnet__unpack_f16(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n--, p += 2) *out++ = bitnet__load_f16(p);
}

static void bitnet__unpack_bf16(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n--, p += 2) *out++ = bitnet__load_bf16(p);
}

static void bitnet__unpack_q8_0(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n -= 32, p += 34, out += 32) {
        const float d = bitnet__load_f16(p);
        int8_t q[32];
        int i;
        memcpy(q, p + 2, sizeof q);
        for (i = 0; i < 32; i++) out[i] = d * (float)q[i];
    }
}

static void bitnet__unpack_q4_0(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n -= 32, p += 18, out += 32) {
        const float d = bitnet__load_f16(p);
        uint8_t b[16];
        int i;
        memcpy(b, p + 2, sizeof b);
        for (i = 0; i < 16; i++) out[i] = d * (float)((b[i] & 15) - 8);
        for (i = 0; i < 16; i++) out[16 + i] = d * (float)((b[i] >> 4) - 8);
    }
}

static void bitnet__unpack_q5_0(const uint8_t *p, size_t n, float *out) {
    for (; n > 0; n -= 32, p += 22, out += 32) {
        const float d = bitnet__load_f16(p);
        const uint32_t high = bitnet__get_u32(p + 2);
        uint8_t low[16], q[32];
        int i;
        memcpy(low, p + 6, sizeof low);
        for (i = 0; i < 16; i++) q[i] = low[i] & 15;
        for (i = 0; i < 16; i++) q[16 + i] = low[i] >> 4;
        for (i = 0; i < 32; i += 4) {  /* bits 3-0 become bit 4 of four bytes */
            const uint32_t x = high >> i & 15;
            bitnet__put_u32(q + i, bitnet__get_u32(q + i) | (x * 0x00204081u & 0x01010101u) << 4);
        }
        for (i = 0; i < 32; i++) out[i] = d * (float)(q[i] - 16);
    }
}

/* Takes the next 2 bits of 32 bytes. */
static void bitnet__take_two_bits(uint8_t *low, uint8_t *q) {
    int i;
    for (i = 0; i < 32; i++) {
        q[i] = low[i] & 3;
        low[i] >>= 2;
    }
}

/* Takes the next bit of 32 bytes, which in q is worth so much. */
static void bitnet__take_high_bit(uint8_t *high, int worth, uint8_t *q) {
    int i;
    for (i = 0; i < 32; i++) {
        q[i] = (uint8_t)(q[i] + (high[i] & 1) * worth);
        high[i] >>= 1;
    }
}

static void bitnet__unpack_q2_k(const uint8_t *p, size_t n, float *out) {
    uint8_t low[32] = {0}, q[32];
    for (; n > 0; n -= 256, p += 84) {
        const float d = bitnet__load_f16(p + 80), dmin = bitnet__load_f16(p + 82);
        int s, i;
        for (s = 0; s < 16; s++, out += 16) {
            const float f = d * (float)(p[s] & 15), g = dmin * (float)(p[s] >> 4);
            const uint8_t *half = q + s % 2 * 16;
            if (s % 8 == 0) memcpy(low, p + 16 + 4 * s, sizeof low);
            if (s % 2 == 0) bitnet__take_two_bits(low, q);
            for (i = 0; i < 16; i++) out[i] = f * (float)half[i] - g;
        }
    }
}

static void bitnet__unpack_q3_k(const uint8_t *p, size_t n, float *out) {
    uint8_t high[32], low[32] = {0}, q[32] = {0};
    for (; n > 0; n -= 256, p += 110) {
        const float d = bitnet__load_f16(p + 108);
        const uint8_t *sub = p + 96;
        int s, i;
        memcpy(high, p, sizeof high);
        for (s = 0; s < 16; s++, out += 16) {
            const int lower = sub[s % 8] >> s / 8 * 4 & 15, upper = sub[8 + s % 4] >> s / 4 * 2 & 3;
            const float f = d * (float)((lower | upper << 4) - 32);
            const uint8_t *half = q + s % 2 * 16;
            if (s % 8 == 0) memcpy(low, p + 32 + 4 * s, sizeof low);
            if (s % 2 == 0) {
                bitnet__take_two_bits(low, q);
                bitnet__take_high_bit(high, 4, q);
            }
            for (i = 0; i < 16; i++) out[i] = f * (float)(half[i] - 4);
        }
    }
}

/* Q4_K; with has_high Q5_K. */
BITNET__INLINE void bitnet__unpack_k4(const uint8_t *p, size_t n, int has_high, float *out) {
    uint8_t low[32], high[32] = {0}, q[64];
    for (; n > 0; n -= 256, p += has_high ? 176 : 144) {
        const float d = bitnet__load_f16(p), dmin = bitnet__load_f16(p + 2);
        const uint8_t *sub = p + 4;
        int s, i;
        if (has_high) memcpy(high, p + 16, sizeof high);
        for (s = 0; s < 8; s++, out += 32) {
            const int j = s % 4;
            const int scale = s < 4 ? sub[j] & 63 : (sub[8 + j] & 15) | sub[j] >> 6 << 4;
            const int least = s < 4 ? sub[4 + j] & 63 : sub[8 + j] >> 4 | sub[4 + j] >> 6 << 4;
            const float f = d * (float)scale, g = dmin * (float)least;
            const uint8_t *half = q + s % 2 * 32;
            if (s % 2 == 0) {
                memcpy(low, p + (has_high ? 48 : 16) + 16 * s, sizeof low);
                for (i = 0; i < 32; i++) q[i] = low[i] & 15;
                for (i = 0; i < 32; i++) q[32 + i] = low[i] >> 4;
                if (has_high) bitnet__take_high_bit(high, 16, q);
                if (has_high) bitnet__take_high_bit(high, 16, q + 32);
            }
            for (i = 0; i < 32; i++) out[i] = f * (float)half[i] - g;
        }
    }
}

static void bitnet__unpack_q4_k(const uint8_t *p, size_t n, float *out) {
    bitnet__unpack_k4(p, n, 0, out);
}

static void bitnet__unpack_q5_k(const uint8_t *p, size_t n, float *out) {
    bitnet__unpack_k4(p, n, 1, out);
}

static void bitnet__unpack_q6_k(const uint8_t *p, size_t n, float *out) {
    uint8_t low[64], high[32], q[128];
    for (; n > 0; n -= 256, p += 210) {
        const float d = bitnet__load_f16(p + 208);
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
}

/* ---- I2_S: two bits a weight, four codes a byte ----
   bitnet__i2s_place knows the three packings, drawn above under PACKINGS. */

/* Columns (for BITNET_I2S_4ROW: rows) that are stored together; 0: there is no such packing. */
static int bitnet__i2s_together(bitnet_i2s_packing packing) {
    return packing == BITNET_I2S_128 ? 128 : packing == BITNET_I2S_64 ? 64 :
           packing == BITNET_I2S_4ROW ? 4 : 0;
}

/* The byte that holds a weight's code, and the code's shift in it. The codes of the next columns,
   *run of them with this one, have the same shift in the following bytes. */
static size_t bitnet__i2s_place(const bitnet_ternary *t, size_t row, size_t column, int *shift,
                                size_t *run) {
    const size_t n = (size_t)t->n, at = row * n + column, rest = n - column;
    const size_t lanes = (size_t)bitnet__i2s_together(t->i2s_packing) / 4;
    *run = rest;
    if (t->i2s_packing == BITNET_I2S_4ROW) {
        *shift = 6 - (int)(row % 4) * 2;
        return row / 4 * n + column;
    }
    if (*run > lanes - at % lanes) *run = lanes - at % lanes;
    *shift = 6 - (int)(at / lanes % 4) * 2;
    return at / (4 * lanes) * lanes + at % lanes;
}

/* ---- ternary weights, unpacked to codes ---- */

static int bitnet__unpacked_invalid(bitnet__unpacked *u, const char *what, uint32_t value,
                                    int32_t row, size_t column) {
    u->invalid = what;
    u->value = value;
    u->row = row;
    u->column = (int32_t)column;
    return 0;
}

/* These functions unpack columns [from, to) of a row, which begin and end at multiples of 768
   columns or at the end of the row: so that no triplet, byte or block is cut. They return 0 if
   something is invalid. data is the whole tensor, t has passed bitnet_ternary_check. */

static int bitnet__unpack_i2s(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                              size_t from, size_t to, uint8_t *codes, bitnet__unpacked *u) {
    uint64_t x[2] = {0}, bad = 0;      /* x: 16 bytes, each with one code once it is shifted */
    size_t k, i, run;
    int shift;
    for (k = from; k < to; k += run, codes += run) {
        const uint8_t *p = data + bitnet__i2s_place(t, (size_t)row, k, &shift, &run);
        if (run > to - k) run = to - k;
        if (run > 16) run = 16;
        if (run == 16) memcpy(x, p, 16);       /* without a call: most are of this size */
        else memcpy(x, p, run);        /* the rest of x is still codes, none of them 3 */
        for (i = 0; i < 2; i++) {
            x[i] = x[i] >> shift & 0x0303030303030303u;
            bad |= x[i] & x[i] >> 1;
        }
        if (run == 16) memcpy(codes, x, 16);
        else memcpy(codes, x, run);
        if (!bad) continue;
        for (i = 0; codes[i] != 3; i++) {}
        return bitnet__unpacked_invalid(u, "code", 3, row, k + i);
    }
    return 1;
}

/* A byte of TL1 or TL2 that holds two pairs: 3 a + b + 4 for the weights a, b, high nibble first.
   0 if one is over 8. */
static int bitnet__unpack_pairs(uint32_t byte, uint8_t *codes) {
    const uint32_t first = byte >> 4, second = byte & 15;
    codes[0] = (uint8_t)(first / 3);
    codes[1] = (uint8_t)(first % 3);
    codes[2] = (uint8_t)(second / 3);
    codes[3] = (uint8_t)(second % 3);
    return first <= 8 && second <= 8;
}

/* TL1: bytes of two pairs in columns k to k + 3, 16 rows side by side. Any bytes that are valid
   with one tile are valid with every other, so a wrong tile cannot be detected. */
static int bitnet__unpack_tl1(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                              size_t from, size_t to, uint8_t *codes, bitnet__unpacked *u) {
    const size_t BM = (size_t)t->tile.rows, BK = (size_t)t->tile.cols, bm = (size_t)t->tile.group;
    const size_t by = 256 / bm, r = (size_t)row;
    size_t k;
    for (k = from; k < to; k += 4, codes += 4) {
        const size_t tile = (r / BM * ((size_t)t->n / BK) + k / BK) * (BM / bm) + r % BM / bm;
        const size_t sixteen = (tile * (BK / by) + k % BK / by) * (bm / 16) + r % bm / 16;
        const uint32_t byte = data[(sixteen * (by / 4) + k % by / 4) * 16 + r % 16];
        if (!bitnet__unpack_pairs(byte, codes))
            return bitnet__unpacked_invalid(u, "pairs", byte, row, k);
    }
    return 1;
}

/* The sections of a TL2 tensor: triplets of columns [0, k3), as indices and signs, then the other
   k2 columns as pairs, zeros, and 32 bytes that begin with the scale. rows is a multiple of 32, k3
   of 24, and k2 at most 256. So end is a multiple of 32 and at most rows (5 n + 256) / 24, which
   bitnet__tensor_size rounds up to 32: all sections lie before the last 32 bytes. */
typedef struct bitnet__tl2_sections {
    size_t k3, k2, signs, pairs, end;  /* where signs and pairs begin; the end of the pairs */
} bitnet__tl2_sections;

static bitnet__tl2_sections bitnet__tl2_split(const bitnet_ternary *t) {
    bitnet__tl2_sections s;
    s.k2 = (size_t)(t->n % t->tile.cols);
    s.k3 = (size_t)t->n - s.k2;
    s.signs = (size_t)((uint64_t)t->rows * s.k3 / 6);
    s.pairs = s.signs + (size_t)((uint64_t)t->rows * s.k3 / 24);
    s.end = s.pairs + (size_t)((uint64_t)t->rows * s.k2 / 4);
    return s;
}

/* TL2. A unit is 8 triplets of 32 rows: 4 times 32 bytes of indices, two triplets each, high nibble
   first, and 16 words with their signs. Units have the same order in both sections, so that only a
   wrong split into triplets and pairs is detected, not a wrong order.

       index byte  32 i + x    rows 0-7, 16-23, 8-15, 24-31 for x = 0 .. 31; triplets 2 i, 2 i + 1
       sign word   c           bit 15 - (2 j + h): row 16 h + c, triplet j; 1: negative

   An index is |9 a + 3 b + c|, 0 to 13, for the weights a, b, c. Invalid are an index over 13, a
   negative 0, and a pair over 8. With a wrong split the signs meet other triplets: of evenly drawn
   weights 1 in 56 is then a negative 0 (14 / 27 are not negative, 1 / 27 is 0), and more in a
   model, which has many zeros. The smallest matrix, 32 rows of 256, has 2048 triplets: that none of
   them is a negative 0 has a probability of 1e-16. */
static int bitnet__unpack_tl2(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                              size_t from, size_t to, uint8_t *codes, bitnet__unpacked *u) {
    static const uint8_t order[4] = {0, 2, 1, 3};
    const bitnet__tl2_sections s = bitnet__tl2_split(t);
    const size_t BM = (size_t)t->tile.rows, per_tile = (size_t)t->tile.cols / 24, r = (size_t)row;
    const size_t units = BM / 32, tm = r / BM, mb = r % BM / 32, c = r % 16, h = r % 32 / 16;
    const size_t x = order[r % 32 / 8] * (size_t)8 + r % 8;
    size_t k, j;
    for (k = from; k < to && k < s.k3; k += 24) {
        const size_t tile = (tm * (s.k3 / (size_t)t->tile.cols) + k / 24 / per_tile) * units + mb;
        const size_t unit = tile * per_tile + k / 24 % per_tile;
        const uint8_t *p = data + unit * 128 + x;
        const uint32_t signs = bitnet__get_u16(data + s.signs + unit * 32 + 2 * c);
        for (j = 0; j < 8; j++, codes += 3) {
            const uint32_t negative = signs >> (15 - (2 * j + h)) & 1u;
            uint32_t n = (uint32_t)p[j / 2 * 32] >> (4 - j % 2 * 4) & 15u;
            if (n > 13) return bitnet__unpacked_invalid(u, "index", n, row, k + 3 * j);
            if (negative && n == 0)
                return bitnet__unpacked_invalid(u, "negative index", n, row, k + 3 * j);
            n = negative ? 13 - n : 13 + n;
            codes[0] = (uint8_t)(n / 9);
            codes[1] = (uint8_t)(n / 3 % 3);
            codes[2] = (uint8_t)(n % 3);
        }
    }
    for (; k < to; k += 4, codes += 4) {
        const size_t unit = (tm * (s.k2 / 32) + (k - s.k3) / 32) * units + mb;
        const uint32_t byte = data[s.pairs + (unit * 8 + (k - s.k3) % 32 / 4) * 32 + x];
        if (!bitnet__unpack_pairs(byte, codes))
            return bitnet__unpacked_invalid(u, "pairs", byte, row, k);
    }
    return 1;
}

/* Checks the padding of TL2_R16: unused fifths at a row's end are 0, and the missing rows of the
   last row pack repeat the last row. */
static int bitnet__check_tl2_end(const bitnet_ternary *t, const uint8_t *pack, int32_t row,
                                 bitnet__unpacked *u) {
    const int count = (t->n + 23) / 24;
    const size_t bytes = bitnet__tl2_bytes(count), r = (size_t)(row % BITNET__TL2_ROWS) * 4;
    const uint8_t *fifths = pack + (size_t)(count / 4) * BITNET__TL2_BLOCK + r;
    size_t at, j;
    for (j = 0; j < 4 && count % 4; j++)
        if (fifths[j] >> count % 4 * 2)
            return bitnet__unpacked_invalid(u, "unused fifths", fifths[j], row, (size_t)t->n);
    if (row + 1 < t->rows) return 1;
    for (at = 0; at < bytes; at += 64)
        for (j = r + 4; j < 64; j++)
            if (pack[at + j] != pack[at + r + j % 4])
                return bitnet__unpacked_invalid(u, "repetition of the last row", pack[at + j],
                                                row + (int32_t)(j - r) / 4, at / 320 * 96);
    return 1;
}

/* The codes a, b and c of eight triples, a byte for each. Returns bit 0 of the bytes of those that
   are invalid. x + 16 - y has bit 4 where x >= y; no sum is over 31. */
static uint64_t bitnet__tl2_triples(uint64_t nibbles, uint64_t fifths, uint64_t abc[3]) {
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t b = ((nibbles + 11 * ones) >> 4 & ones) + ((nibbles + 6 * ones) >> 4 & ones);
    const uint64_t m = nibbles - 5 * b;
    const uint64_t from3 = (m + 13 * ones) >> 4 & ones, from4 = (m + 12 * ones) >> 4 & ones;
    const uint64_t low = (ones - from3) * 255;         /* bytes with m < 3 */
    abc[0] = (m & low) + 2 * (fifths & from3 & ~from4) + from4;
    abc[1] = b;
    abc[2] = (fifths & low) + 2 * from3;
    return (fifths & from4) | ((m + 11 * ones) >> 4 & ones);
}

/* TL2_R16, drawn in @kernels; then 32 bytes that begin with the scale. 24 weights of a row at a
   time, as eight triples: byte 4 h + t of a word is triple (h, t). */
static int bitnet__unpack_tl2_r16(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                  size_t from, size_t to, uint8_t *codes, bitnet__unpacked *u) {
    const uint8_t *pack = data + (size_t)(row / BITNET__TL2_ROWS) *
                                  bitnet__tl2_bytes((t->n + 23) / 24);
    size_t k, i, j;
    for (k = from; k < to; k += 24, codes += 24) {
        const uint8_t *block = pack + k / 96 * BITNET__TL2_BLOCK + row % BITNET__TL2_ROWS * 4;
        const uint32_t nibbles = bitnet__get_u32(block + 64 + k % 96 / 24 * 64);
        const uint32_t fifths = bitnet__get_u32(block) >> k % 96 / 24 * 2;
        const size_t left = (size_t)t->n - k;
        uint64_t abc[3], bad;
        uint8_t set[24] = {0};
        bad = bitnet__tl2_triples((nibbles & 0x0f0f0f0fu) |
                                  (uint64_t)(nibbles >> 4 & 0x0f0f0f0fu) << 32,
                                  (fifths & 0x01010101u) |
                                  (uint64_t)(fifths >> 1 & 0x01010101u) << 32, abc);
        if (bad) {
            for (j = 0; !(bad >> 8 * j & 1); j++) {}
            return bitnet__unpacked_invalid(
                u, "triple", (nibbles >> 8 * (j % 4) >> j / 4 * 4 & 15) |
                (fifths >> 8 * (j % 4) >> j / 4 & 1) << 4, row, k + j / 4 * 12 + j % 4);
        }
        for (i = 0; i < 2; i++)
            for (j = 0; j < 3; j++)
                bitnet__put_u32(set + 12 * i + 4 * j, (uint32_t)(abc[j] >> 32 * i));
        memcpy(codes, set, left < 24 ? left : 24);
        for (j = left; j < 24; j++)
            if (set[j]) return bitnet__unpacked_invalid(u, "padding", set[j], row, k + j);
    }
    return to < (size_t)t->n || bitnet__check_tl2_end(t, pack, row, u);
}

/* The blocks, each with an F16 scale, of TQ1_0, TQ2_0 (llama.cpp), Q1_0 and Q2_0 (ggml), and of
   PQ2_0 and PTQ1_0 (the publisher of Bonsai).

       TQ2_0   64 bytes  byte 32 a + j has weights 128 a + j, + 32, + 64, + 96 from the lowest bits
       TQ1_0   32 bytes  byte j has weights j, 32 + j, 64 + j, 96 + j, 128 + j
               16        byte j has weights 160 + j, 176 + j, 192 + j, 208 + j, 224 + j
                4        byte j has weights 240 + j, 244 + j, 248 + j, 252 + j
                         behind the codes of either: the scale
       PTQ1_0  16 bytes  byte j has weights j, 16 + j, 32 + j, 48 + j, 64 + j
                8        byte j has weights 80 + j, 88 + j, 96 + j, 104 + j, 112 + j
                2        byte j has weights 120 + j, 122 + j, 124 + j, 126 + j
                2        the scale
       Q2_0     2        the scale
       PQ2_0   16, 32    byte j has weights 4 j, 4 j + 1, 4 j + 2, 4 j + 3 from the lowest bits
       Q1_0     2        the scale
               16        byte j has weights 8 j to 8 j + 7 from the lowest bit: 1 is +1, 0 is -1

   A code 3 of Q2_0 and PQ2_0 is a weight of +2, as ggml defines it; elsewhere it is invalid.
   A byte of TQ1_0 or PTQ1_0 is a fraction of 256 in base 3: multiplied by 3 it carries out the
   first digit, and so on. So all 256 bytes are valid, though 243 suffice. */
static void bitnet__block_tq1_0(const uint8_t *p, int n, uint8_t *codes) {
    (void)n;
    codes = bitnet__digits(p, 32, 5, codes);
    codes = bitnet__digits(p + 32, 16, 5, codes);
    bitnet__digits(p + 48, 4, 4, codes);
}

static void bitnet__block_tq2_0(const uint8_t *p, int n, uint8_t *codes) {
    int i;
    (void)n;                           /* a constant lets compilers vectorise the loop */
    for (i = 0; i < 256; i++) codes[i] = p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* 4 bytes of codes at a time: byte j of a word gets code j of a byte, bits 2 j + 1 and 2 j. */
static void bitnet__block_q2_0(const uint8_t *p, int n, uint8_t *codes) {
    int i;
    for (i = 0, p += 2; i < n; i += 4, p++) {
        const uint32_t x = *p;
        bitnet__put_u32(codes + i, (x | x << 6 | x << 12 | x << 18) & 0x03030303u);
    }
}

static void bitnet__block_q1_0(const uint8_t *p, int n, uint8_t *codes) {
    int i;
    for (i = 0, p += 2; i < n; i++) codes[i] = (uint8_t)((p[i / 8] >> i % 8 & 1) << 1);
}

/* ---- the types ---- */

/* Sizes of tensors that are stored as a whole: codes, then 32 bytes that begin with the F32 scale.
   n_cols * n_rows is at most 2^40, so nothing overflows: TL2_R16 takes most, 128 bytes for 16 rows
   of one weight or 1 row of 24. */
static uint64_t bitnet__size_i2s(uint64_t n_cols, uint64_t n_rows) {
    return n_cols * n_rows / 4 + 32;
}

/* Always with room for 256 columns in pairs. */
static uint64_t bitnet__size_tl2(uint64_t n_cols, uint64_t n_rows) {
    if (n_cols < 256) return 0;
    return ((n_cols - 256) * n_rows / 3 * 5 / 8 + 128 * n_rows * 4 / 8 + 31) / 32 * 32 + 32;
}

/* See bitnet__tl2_bytes. */
static uint64_t bitnet__size_tl2_r16(uint64_t n_cols, uint64_t n_rows) {
    const uint64_t triples = (n_cols + 23) / 24;
    return (n_rows + 15) / 16 * (triples + (triples + 3) / 4) * 64 + 32;
}

#define BITNET__UNREAD(name, block, bytes) {name, block, bytes, 0, 0, 0, 0, 0, 0, 0, 0}
#define BITNET__FLOAT_TYPE(name, block, bytes, floats) \
    {name, block, bytes, 0, 0, 0, 0, 0, floats, 0, 0}
#define BITNET__BLOCKS(name, block, bytes, scale_at, keeps, most, groups, fn) \
    {name, block, bytes, scale_at, keeps, most, BITNET__IN_BLOCKS(groups), 0, 0, fn, 0}
#define BITNET__TENSOR(name, size, codes) {name, 0, 0, 0, 0, 2, 0, size, 0, 0, codes}

/* The types by ggml's number. Types 36 to 39 follow BitNet's fork of ggml; upstream uses 39 for
   MXFP4 (see bitnet__gguf_resolve_39).

   A new type that is read touches four places and no other: its number among BITNET_TENSOR_* in
   @api; the function that unpacks it; its row here; and its name in the lists below, for error
   texts. A number of 43 or more needs a line in bitnet__type_info, too. */
static const bitnet__type bitnet__types[] = {
    BITNET__FLOAT_TYPE("F32", 1, 4, bitnet__unpack_f32),
    BITNET__FLOAT_TYPE("F16", 1, 2, bitnet__unpack_f16),
    BITNET__FLOAT_TYPE("Q4_0", 32, 18, bitnet__unpack_q4_0),
    BITNET__UNREAD("Q4_1", 32, 20), BITNET__UNREAD("Q4_2", 16, 10), BITNET__UNREAD("Q4_3", 16, 12),
    BITNET__FLOAT_TYPE("Q5_0", 32, 22, bitnet__unpack_q5_0), BITNET__UNREAD("Q5_1", 32, 24),
    BITNET__FLOAT_TYPE("Q8_0", 32, 34, bitnet__unpack_q8_0),
    BITNET__UNREAD("Q8_1", 32, 36),
    BITNET__FLOAT_TYPE("Q2_K", 256, 84, bitnet__unpack_q2_k),
    BITNET__FLOAT_TYPE("Q3_K", 256, 110, bitnet__unpack_q3_k),
    BITNET__FLOAT_TYPE("Q4_K", 256, 144, bitnet__unpack_q4_k),
    BITNET__FLOAT_TYPE("Q5_K", 256, 176, bitnet__unpack_q5_k),
    BITNET__FLOAT_TYPE("Q6_K", 256, 210, bitnet__unpack_q6_k),
    BITNET__UNREAD("Q8_K", 256, 292), BITNET__UNREAD("IQ2_XXS", 256, 66),
    BITNET__UNREAD("IQ2_XS", 256, 74), BITNET__UNREAD("IQ3_XXS", 256, 98),
    BITNET__UNREAD("IQ1_S", 256, 50), BITNET__UNREAD("IQ4_NL", 32, 18),
    BITNET__UNREAD("IQ3_S", 256, 110), BITNET__UNREAD("IQ2_S", 256, 82),
    BITNET__UNREAD("IQ4_XS", 256, 136), BITNET__UNREAD("I8", 1, 1), BITNET__UNREAD("I16", 1, 2),
    BITNET__UNREAD("I32", 1, 4), BITNET__UNREAD("I64", 1, 8), BITNET__UNREAD("F64", 1, 8),
    BITNET__UNREAD("IQ1_M", 256, 56),
    BITNET__FLOAT_TYPE("BF16", 1, 2, bitnet__unpack_bf16),
    BITNET__UNREAD("Q4_0_4_4", 32, 18), BITNET__UNREAD("Q4_0_4_8", 32, 18),
    BITNET__UNREAD("Q4_0_8_8", 32, 18),
    BITNET__BLOCKS("TQ1_0", 256, 54, 52, 0, 2, tq2_0, bitnet__block_tq1_0),
    BITNET__BLOCKS("TQ2_0", 256, 66, 64, 0, 2, tq2_0, bitnet__block_tq2_0),
    BITNET__TENSOR("I2_S", bitnet__size_i2s, bitnet__unpack_i2s),
    BITNET__TENSOR("I8_S", 0, 0),
    BITNET__TENSOR("TL1", bitnet__size_i2s, bitnet__unpack_tl1),
    BITNET__TENSOR("TL2", bitnet__size_tl2, bitnet__unpack_tl2),
    BITNET__UNREAD("NVFP4", 64, 36),
    BITNET__BLOCKS("Q1_0", 128, 18, 0, 1, 2, q1_0, bitnet__block_q1_0),
    BITNET__BLOCKS("Q2_0", 64, 18, 0, 1, 3, q2_0, bitnet__block_q2_0)
};

/* 142 and 143 are numbers of Bonsai's publisher, whose earlier files have blocks of PQ2_0 under 42
   (see bitnet__gguf_resolve_42). 20016 is this library's own: llama.cpp counts to 42, its fork
   ik_llama.cpp to 399, and both refuse higher numbers. */
static const bitnet__type bitnet__type_pq2_0 = BITNET__BLOCKS("PQ2_0", 128, 34, 0, 1, 3, pq2_0,
                                                              bitnet__block_q2_0);
static const bitnet__type bitnet__type_ptq1_0 = BITNET__BLOCKS("PTQ1_0", 128, 28, 26, 1, 2, ptq1_0,
                                                               bitnet__block_ptq1_0);
static const bitnet__type bitnet__type_tl2_r16 = BITNET__TENSOR("TL2_R16", bitnet__size_tl2_r16,
                                                               bitnet__unpack_tl2_r16);
static const bitnet__type bitnet__type_mxfp4 = BITNET__UNREAD("MXFP4", 32, 17);
#undef BITNET__UNREAD
#undef BITNET__FLOAT_TYPE
#undef BITNET__BLOCKS
#undef BITNET__TENSOR

static const char bitnet__needs_ternary[] =
    "it is not ternary: a linear layer needs I2_S, TL1, TL2, TL2_R16, TQ1_0, TQ2_0, PTQ1_0, Q1_0 "
    "or Q2_0";
static const char bitnet__needs_floats[] =
    "F32, F16, BF16, Q8_0, Q2_K to Q6_K, Q5_0, Q4_0, Q2_0, Q1_0, TQ1_0, TQ2_0 or PTQ1_0 is needed "
    "there";

/* The row of a type; 0: its number is unknown. */
BITNET__APART const bitnet__type *bitnet__type_info(uint32_t type) {
    if (type == BITNET_TENSOR_PQ2_0) return &bitnet__type_pq2_0;
    if (type == BITNET_TENSOR_PTQ1_0) return &bitnet__type_ptq1_0;
    if (type == BITNET_TENSOR_TL2_R16) return &bitnet__type_tl2_r16;
    return type < sizeof bitnet__types / sizeof bitnet__types[0] ? &bitnet__types[type] : 0;
}

/* 1 if a linear layer can have the type. */
static int bitnet__is_ternary(const bitnet__type *t) { return t && (t->codes || t->block_codes); }

/* 1 if the type can be unpacked to floats. */
static int bitnet__has_floats(const bitnet__type *t) { return t && (t->floats || t->block_codes); }

static int bitnet__is_float(uint32_t type) {
    return type == BITNET_TENSOR_F32 || type == BITNET_TENSOR_F16 || type == BITNET_TENSOR_BF16;
}

/* Bytes of a tensor; 0 if the type cannot have this shape, or is unknown. */
static uint64_t bitnet__tensor_size(const bitnet__type *type, uint64_t n_cols, uint64_t n_rows) {
    if (!type) return 0;
    if (!type->block) return type->size ? type->size(n_cols, n_rows) : 0;
    return n_cols % type->block ? 0 : n_cols * n_rows / type->block * type->bytes;
}

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
    return bitnet__tensor_size(bitnet__type_info(type), dims[0], n / dims[0]);
}

/* ---- any type: rows of floats, codes of ternary weights ---- */

/* Unpacks n weights, a multiple of the block, to floats. */
static void bitnet__unpack_floats(const bitnet__type *type, const uint8_t *p, size_t n,
                                  float *out) {
    uint8_t codes[256];
    int i;
    if (type->floats) {
        type->floats(p, n, out);
        return;
    }
    for (; n > 0; n -= type->block, p += type->bytes, out += type->block) {
        const float d = bitnet__load_f16(p + type->scale_at);
        type->block_codes(p, type->block, codes);
        for (i = 0; i < type->block; i++) out[i] = d * (float)(codes[i] - 1);
    }
}

typedef struct bitnet__matrix {        /* floats, or blocks of them; rows contiguous */
    const uint8_t *data;
    size_t row_bytes;
    uint32_t type;
    int32_t n_cols, n_rows;
} bitnet__matrix;

/* Unpacks row r of a matrix. */
static void bitnet__matrix_row(const bitnet__matrix *a, int32_t r, float *out) {
    bitnet__unpack_floats(bitnet__type_info(a->type), a->data + (size_t)r * a->row_bytes,
                          (size_t)a->n_cols, out);
}

BITNET_API bitnet_result bitnet_floats_unpack(uint32_t type, const uint8_t *data, int32_t n,
                                              float *out, bitnet_error *err) {
    const bitnet__type *info = bitnet__type_info(type);
    if (!data || !out || n < 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "data or out is 0, or n is negative");
    if (!bitnet__has_floats(info))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "unsupported tensor type %u (%s)",
                            (unsigned)type, info ? info->name : "unknown");
    if (n % info->block)
        return bitnet__fail(err, BITNET_ERR_ARG, "%d weights are not whole blocks of %s", (int)n,
                            info->name);
    bitnet__unpack_floats(info, data, (size_t)n, out);
    return BITNET_OK;
}

/* The block that begins at a column of a row. */
static const uint8_t *bitnet__block_at(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                       int32_t column) {
    const bitnet__type *type = bitnet__type_info(t->type);
    return data + ((size_t)row * (size_t)t->n + (size_t)column) / type->block * type->bytes;
}

/* Unpacks columns [from, to) of a row to codes, as bitnet__type.codes does, for any type. */
static int bitnet__unpack_codes(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                int32_t from, int32_t to, uint8_t *codes, bitnet__unpacked *u) {
    const bitnet__type *type = bitnet__type_info(t->type);
    const uint8_t *p;
    int i;
    if (type->codes)
        return type->codes(t, data, row, (size_t)from, (size_t)to, codes, u);
    for (p = bitnet__block_at(t, data, row, from); from < to; p += type->bytes) {
        uint8_t bad = 0;
        type->block_codes(p, type->block, codes);
        for (i = 0; i < type->block && type->most < 3; i++)
            bad |= (uint8_t)(codes[i] & codes[i] >> 1);
        for (i = 0; bad; i++)
            if (codes[i] == 3)
                return bitnet__unpacked_invalid(u, "code", 3, row, (size_t)(from + i));
        from += type->block;
        codes += type->block;
    }
    return 1;
}

/* Finds the first two different scales of a tensor in blocks, and the first block with each.
   Returns how many it found, 0 to 2. A block of zeros may have any scale and does not count. */
static int bitnet__find_scales(const bitnet_ternary *t, const uint8_t *data, uint16_t scale[2],
                               int64_t block[2]) {
    const bitnet__type *type = bitnet__type_info(t->type);
    const int64_t blocks = (int64_t)t->n / type->block * t->rows;
    uint8_t codes[256];
    int64_t b;
    int i, found = 0;
    for (b = 0; b < blocks && found < 2; b++, data += type->bytes) {
        const uint16_t s = bitnet__get_u16(data + type->scale_at);
        if (found && s == scale[0]) continue;
        type->block_codes(data, type->block, codes);
        for (i = 0; i < type->block && codes[i] == 1; i++) {}
        if (i == type->block) continue;
        scale[found] = s;
        block[found++] = b;
    }
    return found;
}

/* ---- checks of ternary tensors ---- */

/* A tile that is given has both BM and BK. */
static bitnet_result bitnet__check_tile(bitnet_tile t, bitnet_error *err) {
    if (t.rows >= 0 && t.cols >= 0 && t.group >= 0 && !t.rows == !t.cols && (t.rows || !t.group))
        return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_ARG, "tile %lld,%lld,%lld: BM and BK are needed, or none "
                        "at all", (long long)t.rows, (long long)t.cols, (long long)t.group);
}

static bitnet_result bitnet__check_tiles(const bitnet_model_params *p, bitnet_error *err) {
    bitnet_result r = bitnet__check_tile(p->tile, err);
    int32_t i;
    if (r == BITNET_OK && (p->n_tiles < 0 || (p->n_tiles > 0 && !p->tiles)))
        return bitnet__fail(err, BITNET_ERR_ARG, "%lld tiles at tiles, which is %s",
                            (long long)p->n_tiles, p->tiles ? "not 0" : "0");
    for (i = 0; i < p->n_tiles && r == BITNET_OK; i++)
        r = bitnet__check_tile(p->tiles[i].tile, err);
    return r;
}

/* The tile that the caller gives for a shape; all 0: none. */
static bitnet_tile bitnet__tile_for(const bitnet_model_params *p, int32_t rows, int32_t n) {
    int32_t i;
    for (i = 0; i < p->n_tiles; i++)
        if (p->tiles[i].rows == rows && p->tiles[i].n == n) return p->tiles[i].tile;
    return p->tile;
}

static bitnet_result bitnet__check_packing(bitnet_i2s_packing packing, bitnet_error *err) {
    if (bitnet__i2s_together(packing)) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_ARG, "i2s_packing %lld is unknown", (long long)packing);
}

/* Fills in the tile of a TL1 or TL2 tensor, if it has none, with the one published for its shape,
   and checks that it fits. */
static bitnet_result bitnet__fit_tile(bitnet_ternary *m, const char *name, bitnet_error *err) {
    static const struct { int16_t rows, n; bitnet_tile tl1, tl2; } published[] = {
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
    const int tl2 = m->type == BITNET_TENSOR_TL2;
    bitnet_tile t = m->tile;
    bitnet_result r = bitnet__check_tile(t, err);
    size_t i;
    int fits;
    if (r != BITNET_OK) return r;
    for (i = 0; !t.rows && i < sizeof published / sizeof published[0]; i++)
        if (published[i].rows == m->rows && published[i].n == m->n)
            t = tl2 ? published[i].tl2 : published[i].tl1;
    if (!t.rows)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' is %s of %d rows of %d, a "
                            "shape for which no tile was published; give the converter's BM, BK, "
                            "bm (see tile)", name, tl2 ? "TL2" : "TL1", (int)m->rows, (int)m->n);
    if (!t.group) t.group = 32;
    if (tl2)                           /* units of 32 rows by 24 columns, pairs by 32 */
        fits = t.group == 32 && t.rows % 32 == 0 && t.cols % 24 == 0 && m->n % t.cols % 32 == 0 &&
               m->n % t.cols <= 256;
    else                               /* bm rows by 256 / bm columns */
        fits = (t.group == 16 || t.group == 32 || t.group == 64) && t.rows % t.group == 0 &&
               t.cols % (256 / t.group) == 0 && m->n % t.cols == 0;
    if (!fits || m->rows % t.rows)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s', %s of %d rows of %d, cannot have "
                            "been made with tile %d,%d,%d", name, tl2 ? "TL2" : "TL1",
                            (int)m->rows, (int)m->n, (int)t.rows, (int)t.cols, (int)t.group);
    m->tile = t;
    return BITNET_OK;
}

/* Checks that a tensor of the type can have this shape. */
static bitnet_result bitnet__check_shape(const char *name, const bitnet__type *info,
                                         uint64_t n_cols, uint64_t n_rows, bitnet_error *err) {
    if (bitnet__tensor_size(info, n_cols, n_rows)) return BITNET_OK;
    if (!info->block)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s': %s cannot have rows of %llu "
                            "weights", name, info->name, (unsigned long long)n_cols);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is %s with rows of %llu weights, "
                        "which are not whole blocks of %d", name, info->name,
                        (unsigned long long)n_cols, (int)info->block);
}

BITNET_API bitnet_result bitnet_ternary_check(bitnet_ternary *t, const char *name,
                                              bitnet_error *err) {
    const bitnet__type *info = t ? bitnet__type_info(t->type) : 0;
    int64_t together;
    bitnet_result r;
    if (!t || !name) return bitnet__fail(err, BITNET_ERR_ARG, "t or name is 0");
    if (t->n < 1 || t->n > BITNET__MAX_ROW || t->rows < 1)
        return bitnet__fail(err, BITNET_ERR_ARG, "tensor '%s' is %lld x %lld", name,
                            (long long)t->n, (long long)t->rows);
    if (!bitnet__is_ternary(info))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s': unsupported tensor type %u "
                            "(%s)", name, (unsigned)t->type, info ? info->name : "unknown");
    r = bitnet__check_shape(name, info, (uint64_t)t->n, (uint64_t)t->rows, err);
    if (r != BITNET_OK || info->block) return r;
    if (t->type == BITNET_TENSOR_TL2_R16) return BITNET_OK;
    if (t->type != BITNET_TENSOR_I2_S) return bitnet__fit_tile(t, name, err);
    if ((r = bitnet__check_packing(t->i2s_packing, err))) return r;
    together = bitnet__i2s_together(t->i2s_packing);
    if ((together == 4 ? t->rows : (int64_t)t->n * t->rows) % together == 0) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is %d x %d, which is not whole %s of "
                        "%d (see i2s_packing)", name, (int)t->n, (int)t->rows,
                        together == 4 ? "groups of rows" : "blocks", (int)together);
}

/* Checks that the bytes of TL2 between pairs and scale are zeros. */
static bitnet_result bitnet__check_padding(const bitnet_ternary *t, const char *name,
                                           const uint8_t *data, uint64_t size, bitnet_error *err) {
    size_t at = t->type == BITNET_TENSOR_TL2 ? bitnet__tl2_split(t).end : (size_t)size;
    for (; at + 32 < size; at++)
        if (data[at])
            return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' (TL2): the padding at byte "
                                "%llu of %llu is not 0; is tile %d,%d,%d right? (see tile)", name,
                                (unsigned long long)at, (unsigned long long)size, (int)t->tile.rows,
                                (int)t->tile.cols, (int)t->tile.group);
    return BITNET_OK;
}

/* The error for an invalid value; name 0: the caller's text names the tensor. */
static bitnet_result bitnet__fail_unpacked(const bitnet_ternary *t, const char *name,
                                           const bitnet__unpacked *u, bitnet_error *err) {
    char title[BITNET__TEXT] = "", tile[BITNET__TEXT] = "";
    if (name) bitnet__format(title, "tensor '%s' (%s): ", name, bitnet_tensor_type_name(t->type));
    if (t->tile.rows)
        bitnet__format(tile, "; is tile %d,%d,%d right? (see tile)", (int)t->tile.rows,
                       (int)t->tile.cols, (int)t->tile.group);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%sinvalid %s %u at row %d, column %d%s", title,
                        u->invalid, (unsigned)u->value, (int)u->row, (int)u->column, tile);
}

/* Checks every code of rows [row, row + n_rows). 0: one is invalid. */
static int bitnet__check_rows(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                              int32_t n_rows, bitnet__unpacked *u) {
    const int32_t end = row + n_rows;
    uint8_t codes[768];
    int32_t k;
    for (; row < end; row++)
        for (k = 0; k < t->n; k += 768)
            if (!bitnet__unpack_codes(t, data, row, k, t->n - k < 768 ? t->n : k + 768, codes, u))
                return 0;
    return 1;
}

/* 1 if one of n bytes of four codes each has a 3. Reads 32 bytes at a time, which compilers
   vectorise, so that memory is the limit. */
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

/* Which nibbles of 8 bytes are invalid with their fifths: bit 0 of a byte of the result for the low
   nibble, bit 4 for the high one. Of fifths, bit 0 of a byte belongs to the low nibble, bit 1 to
   the high one. */
static uint64_t bitnet__bad_triples(uint64_t nibbles, uint64_t fifths) {
    const uint64_t a = nibbles, b = nibbles >> 1, c = nibbles >> 2, d = nibbles >> 3;
    const uint64_t s = (fifths & 0x0101010101010101u) | (fifths << 3 & 0x1010101010101010u);
    const uint64_t four = (c & ~a & ~(b ^ d)) | (a & ~b & ~c & d);     /* 4, 14, or 9 */
    return ((a & b & c & d) | (s & four)) & 0x1111111111111111u;
}

/* 1 if something is invalid in rows [row, row + n_rows) of TL2_R16; row is the first of a row pack.
   Reads blocks 8 bytes at a time, which compilers vectorise. The unpacker checks the padding. */
static int bitnet__any_bad_triple(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                  int32_t n_rows) {
    const int count = (t->n + 23) / 24;
    const size_t bytes = bitnet__tl2_bytes(count), last = (size_t)(count - 1) * 24;
    const uint8_t *w = data + (size_t)(row / BITNET__TL2_ROWS) * bytes;
    const int32_t end = row + n_rows;
    bitnet__unpacked unused;
    uint64_t f[8], x[8], bad = 0;
    uint8_t codes[24];
    int32_t r;
    int i, j;
    for (r = row; r < end; r += BITNET__TL2_ROWS)
        for (i = 0; i < count; i++, w += 64) {
            if (i % 4 == 0) {
                memcpy(f, w, sizeof f);
                w += 64;
            }
            memcpy(x, w, sizeof x);
            for (j = 0; j < 8; j++) bad |= bitnet__bad_triples(x[j], f[j]);
            for (j = 0; j < 8; j++) f[j] = f[j] >> 2 & 0x3f3f3f3f3f3f3f3fu;
        }
    for (r = row; r < end && !bad; r++)
        bad = !bitnet__unpack_tl2_r16(t, data, r, last, (size_t)t->n, codes, &unused);
    return bad != 0;
}

/* ---- public: rows of a tensor, and its scale ---- */

/* Checks *t into *checked, and that it has rows [row, row + n_rows). */
static bitnet_result bitnet__ternary_args(const bitnet_ternary *t, const void *data, int32_t row,
                                          int32_t n_rows, const void *out, bitnet_ternary *checked,
                                          bitnet_error *err) {
    if (!t || !data || !out || row < 0 || n_rows < 0 || (int64_t)row + n_rows > t->rows)
        return bitnet__fail(err, BITNET_ERR_ARG, "a pointer is 0, or the matrix has no such rows");
    *checked = *t;
    return bitnet_ternary_check(checked, "ternary", err);
}

BITNET_API bitnet_result bitnet_ternary_unpack(const bitnet_ternary *t, const uint8_t *data,
                                               int32_t row, int32_t n_rows, int8_t *out,
                                               bitnet_error *err) {
    bitnet_ternary c;
    const bitnet_result result = bitnet__ternary_args(t, data, row, n_rows, out, &c, err);
    bitnet__unpacked u;
    int32_t r, i;
    if (result != BITNET_OK) return result;
    for (r = row; r < row + n_rows; r++, out += c.n) {
        if (!bitnet__unpack_codes(&c, data, r, 0, c.n, (uint8_t *)out, &u))
            return bitnet__fail_unpacked(&c, 0, &u, err);
        for (i = 0; i < c.n; i++) out[i] = (int8_t)(out[i] - 1);
    }
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_ternary_scale(const bitnet_ternary *t, const uint8_t *data,
                                              float *out, bitnet_error *err) {
    bitnet_ternary c;
    const bitnet_result result = bitnet__ternary_args(t, data, 0, 0, out, &c, err);
    const bitnet__type *info;
    bitnet__unpacked u;
    uint16_t scale[2];
    int64_t block[2];
    int found, per_row;
    if (result != BITNET_OK) return result;
    info = bitnet__type_info(c.type);
    if (!info->block) {
        *out = bitnet__load_f32(data + bitnet__tensor_size(info, (uint64_t)c.n, (uint64_t)c.rows) -
                                32);
        return BITNET_OK;
    }
    if (!bitnet__check_rows(&c, data, 0, c.rows, &u)) return bitnet__fail_unpacked(&c, 0, &u, err);
    found = bitnet__find_scales(&c, data, scale, block);
    per_row = c.n / info->block;
    if (found == 2)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "blocks of different scales: %g (row %d, "
                            "column %d), %g (row %d, column %d); one is needed here",
                            (double)bitnet__f16_to_f32(scale[0]), (int)(block[0] / per_row),
                            (int)(block[0] % per_row) * info->block,
                            (double)bitnet__f16_to_f32(scale[1]), (int)(block[1] / per_row),
                            (int)(block[1] % per_row) * info->block);
    *out = found ? bitnet__f16_to_f32(scale[0]) : 1.0f;
    return BITNET_OK;
}

/* How a matrix gets from the file to the kernels: see bitnet__choose_plan. */
typedef enum bitnet__plan {
    BITNET__ONLY_CHECKED,              /* rows are read as floats; no kernel multiplies them */
    BITNET__AS_IT_IS,                  /* kernels read the file's bytes, which are checked */
    BITNET__TO_BLOCKS,                 /* blocks that kernels read are made of other ones */
    BITNET__TO_PACKS,                  /* the table's pack_groups reads these, or the file's */
    BITNET__PACKED,                    /* the table's pack reads the file's rows */
    BITNET__UNPACKED,                  /* to rows of I2_S; a table with pack packs these */
    BITNET__IN_FLOATS                  /* kernels multiply the file's floats with floats */
} bitnet__plan;

/* What turns the input of a folded matrix; see "folded weights" in @forward. */
typedef struct bitnet__turn {
    int32_t block;                     /* of the Hadamard matrix; 0: the input is not turned */
    const float *signs;                /* [n_in]  1 or -1, divided by sqrt(block) */
    int regroups;                      /* 1: value heads get the order of their key heads first */
} bitnet__turn;

/* A matrix of ternary weights, or of floats, as kernels read it. Until it is packed, w is the
   tensor as in the file, which `file` describes. */
typedef struct bitnet__linear {
    const uint8_t *w;
    int32_t n_in;                      /* file.n; without scale groups padded with zeros to a
                                          multiple of 128 */
    int32_t n_out;
    int32_t group;                     /* weights that share a scale; 0: all, and it is scale */
    const bitnet__blocks *blocks;      /* with groups: how w has them, ... */
    int in_packs;                      /* ... or 1: pack_groups has packed them */
    bitnet__plan plan;
    float scale;
    bitnet__turn turn;
    bitnet_ternary file;               /* rows 0: the layer has no such matrix */
} bitnet__linear;

BITNET__INLINE int bitnet__has_groups(const bitnet__linear *l) {
    return BITNET__GROUPS && l->group > 0;
}

BITNET__INLINE int bitnet__in_floats(const bitnet__linear *l) {
    return l->plan == BITNET__IN_FLOATS;
}

/* Bytes of a row of a matrix of floats. */
static size_t bitnet__float_row(const bitnet__linear *l) {
    return (size_t)l->n_in * (l->file.type == BITNET_TENSOR_F32 ? 4 : 2);
}

/* ---- blocks with a scale each, as kernels read them ---- */

/* Checks the blocks of rows [row, row + n_rows). 0: a scale is not finite, or a code is invalid,
   which only TQ2_0 can have. */
static int bitnet__check_blocks(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                int32_t n_rows, bitnet__unpacked *u) {
    const bitnet__type *type = bitnet__type_info(t->type);
    const int32_t end = row + n_rows;
    uint8_t codes[256];
    int32_t k;
    for (; row < end; row++) {
        const uint8_t *p = bitnet__block_at(t, data, row, 0);
        for (k = 0; k < t->n; k += type->block, p += type->bytes) {
            const uint16_t scale = bitnet__get_u16(p + type->scale_at);
            if ((scale & 0x7c00) == 0x7c00)
                return bitnet__unpacked_invalid(u, "scale (not finite), F16 bits", scale, row,
                                                (size_t)k);
            if (t->type == BITNET_TENSOR_TQ2_0 && bitnet__any_code_3(p, 64))
                return bitnet__unpack_codes(t, data, row, k, k + type->block, codes, u);
        }
    }
    return 1;
}

/* Makes the blocks `to`, with codes of 2 bits, of rows [row, row + n_rows). 0: something is
   invalid. */
static int bitnet__repack_blocks(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                                 int32_t n_rows, const bitnet__blocks *to, uint8_t *out,
                                 bitnet__unpacked *u) {
    const bitnet__type *type = bitnet__type_info(t->type);
    const uint8_t *p = bitnet__block_at(t, data, row, 0);
    int64_t b, blocks = (int64_t)n_rows * (t->n / type->block);
    uint8_t codes[256], ordered[256];
    int i;
    if (!bitnet__check_blocks(t, data, row, n_rows, u)) return 0;
    for (b = 0; b < blocks; b++, p += type->bytes, out += to->bytes) {
        type->block_codes(p, type->block, codes);
        to->order((const int8_t *)codes, type->block, (int8_t *)ordered);
        for (i = 0; i < type->block; i += 16)
            bitnet__put_u32(out + to->codes_at + i / 4, bitnet__word_of_codes(ordered + i));
        memcpy(out + to->scale_at, p + type->scale_at, 2);
    }
    return 1;
}

/* A part of the group that begins at a column of a row: word -1 is its scale, F16 bits; the others
   are the words of its codes. */
static uint32_t bitnet__group_part(const bitnet__linear *l, int32_t row, int32_t column, int word) {
    const bitnet__blocks *b = l->blocks;
    const int32_t lane = l->in_packs ? row % BITNET__PACK_ROWS : 0;
    const size_t at = (size_t)(column / b->group) * (size_t)b->bytes;
    const uint8_t *p = l->w + bitnet__blocks_bytes(b, l->n_in, row - lane);
    p += l->in_packs ? BITNET__PACK_ROWS * at : at;
    if (word < 0) return bitnet__get_u16(p + (l->in_packs ? 2 * lane : b->scale_at));
    return bitnet__get_u32(p + (l->in_packs ? BITNET__PACK_SCALES + 64 * word + 4 * lane
                                            : b->codes_at + 4 * word));
}

/* Unpacks a row of a matrix with scale groups to floats. */
static void bitnet__groups_row(const bitnet__linear *l, int32_t row, float *out) {
    const bitnet__blocks *b = l->blocks;
    const int n = b->bits ? 32 / b->bits : 0;      /* codes of a word */
    int8_t number[256], order[256];
    int32_t k;
    int i, j;
    if (!n) {                          /* digits are as in the file */
        bitnet__unpack_floats(bitnet__type_info(l->file.type),
                              bitnet__block_at(&l->file, l->w, row, 0), (size_t)l->n_in, out);
        return;
    }
    for (i = 0; i < b->group; i++) number[i] = (int8_t)(i < 128 ? i : i - 256);
    b->order(number, b->group, order);
    for (k = 0; k < l->n_in; k += b->group, out += b->group) {
        const float d = bitnet__f16_to_f32((uint16_t)bitnet__group_part(l, row, k, -1));
        for (i = 0; i < b->group; i += n) {
            const uint32_t x = bitnet__group_part(l, row, k, i / n);
            for (j = 0; j < n; j++)    /* activation i + j meets byte j % 4 of the word */
                out[(uint8_t)order[i + j]] =
                    d * (float)(b->bits == 2 ? (int)(x >> (j % 4 * 8 + j / 4 * 2) & 3) - 1
                                : (int)(x >> (j % 4 * 8 + j / 4 % 4 * 2 + j / 16) & 1) * 2 - 1);
        }
    }
}

/* ---- repacking to I2_S in rows of whole blocks of 128 ---- */

/* Weights of such a row. */
static int32_t bitnet__padded_row(int32_t n) { return (n + 127) / 128 * 128; }

/* Repacks rows [row, row + n_rows) of any type, padded with weight 0 (code 1). 0: something is
   invalid. */
static int bitnet__repack_rows(const bitnet_ternary *t, const uint8_t *data, int32_t row,
                               int32_t n_rows, uint8_t *out, bitnet__unpacked *u) {
    const int32_t end = row + n_rows, n = bitnet__padded_row(t->n);
    uint8_t codes[768];
    const uint8_t *p;
    int32_t k, i, to;
    for (; row < end; row++)
        for (k = 0; k < n; k += 768) {
            to = t->n - k < 768 ? t->n : k + 768;
            if (!bitnet__unpack_codes(t, data, row, k, to, codes, u)) return 0;
            memset(codes + (to - k), 1, (size_t)(768 - (to - k)));
            for (p = codes; p < codes + 768 && p < codes + (n - k); p += 128, out += 32)
                for (i = 0; i < 32; i++)
                    out[i] = (uint8_t)(p[i] << 6 | p[32 + i] << 4 | p[64 + i] << 2 | p[96 + i]);
        }
    return 1;
}

/* =============================================================================================
   @gguf  the container: header, metadata, tensor directory; and the files it comes from
   Reads GGUF v2 and v3 (ggml's docs/gguf.md), little-endian:

       "GGUF"  u32 version  u64 n_tensors  u64 n_keys
       n_keys    times  string key, u32 type, value        string = u64 length, bytes
       n_tensors times  string name, u32 n_dims, u64 dims[n_dims] (fastest first), u32 type,
                        u64 offset from the start of the data
       zeros to the next multiple of general.alignment, then the data

   No number in a file is trusted: a length is compared with the bytes left, by subtraction, before
   it is used. Positions are offsets, because the header of a file that is read through callbacks
   moves in memory as it grows. Each key and tensor becomes one small record; the records are also
   ordered by name. No two keys or tensors may share a name, no two tensors a byte of data.

   On Windows a path is UTF-8, of at most 1023 UTF-16 units; elsewhere it is passed to the system
   unchanged. Only regular files are opened, and child processes do not inherit them. If the system
   refuses something, the error's text ends with its reason in its own language. 32-bit programs can
   inspect files that are too large to load. (If off_t has 32 bits and the C library is not glibc,
   compile with -D_FILE_OFFSET_BITS=64. Emscripten opens files of up to 2 GiB.)

   Any number of threads may use one bitnet_gguf, even with BITNET_NO_THREADS. But bitnet_gguf_read
   calls the read_fn of bitnet_gguf_open_io on the calling thread, which read_fn must allow; and on
   a system that is neither POSIX nor Windows, only one thread at a time may read a file opened by
   path.
   ============================================================================================= */

enum {
    BITNET__MAX_KEYS = 8192, BITNET__MAX_TENSORS = 8192,
    BITNET__MAX_KEY_NAME = 256, BITNET__MAX_TENSOR_NAME = 64,  /* bytes; 64 is GGUF's own limit */
    BITNET__MAX_NESTING = 8,           /* arrays in arrays in an array */
    BITNET__MAX_ALIGNMENT = 65536,
    BITNET__N_VALUE_TYPES = BITNET_GGUF_F64 + 1
};

/* ---- sources: the caller's memory, the caller's callbacks, a file ----
   data holds bytes [0, have) of the file: all of it if it is mapped or borrowed, else the header as
   far as it has been read, in memory of our own. */
typedef struct bitnet__source {
    const uint8_t *data;
    uint64_t size, have;
    bitnet_result result;              /* of opening it */
    bitnet_io io;                      /* io.read_fn 0: data is the whole file */
    void *map, *file;                  /* a file of ours, mapped or open; else 0 */
} bitnet__source;

static bitnet__source bitnet__source_memory(const void *data, size_t size, bitnet_error *err) {
    bitnet__source src;
    memset(&src, 0, sizeof src);
    src.data = (const uint8_t *)data;
    src.size = src.have = size;
    if (!data) src.result = bitnet__fail(err, BITNET_ERR_ARG, "data is 0");
    return src;
}

static bitnet__source bitnet__source_io(const bitnet_io *io, bitnet_error *err) {
    bitnet__source src;
    memset(&src, 0, sizeof src);
    if (io) src.io = *io;
    src.size = src.io.size;
    if (!src.io.read_fn) src.result = bitnet__fail(err, BITNET_ERR_ARG, "io has no read_fn");
    else src.result = bitnet__check_reserved(src.io.reserved, 2, "bitnet_io", err);
    return src;
}

/* An open file is a void *, because it becomes the ud of a bitnet_io. It is read at 64-bit offsets
   and has no position that changes, so any number of threads can read it at once. Only the ISO C
   version has a position: one thread at a time.

   bitnet__file_open(): shared 1: others may write to the file meanwhile.
   bitnet__file_some(): reads up to n bytes; 0: the file ends there, -1: an error of the system.
   bitnet__file_map(): the whole file in memory; 0: it must be read. */
#ifndef BITNET_NO_STDIO

static bitnet_result bitnet__cannot_open(const char *path, bitnet_error *err) {
    char why[BITNET__TEXT];
    bitnet__system_reason(why);
    return bitnet__fail(err, BITNET_ERR_IO, "cannot open '%.120s': %s", path, why);
}

#if defined(BITNET__FILES_POSIX)

/* On 32-bit systems glibc's usual functions have 32-bit offsets, and strict C hides pread, unless
   macros are defined before the first system header, which may not be ours. The 64-bit functions
   always exist, even where they are not declared. */
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

/* The pointer is the descriptor plus 1, so that 0 is not a file. */
static int bitnet__fd(void *file) { return (int)((intptr_t)file - 1); }

static void bitnet__file_close(void *file) {
    if (file) close(bitnet__fd(file));
}

/* O_NONBLOCK: opening a pipe would wait for its writer. A regular file then gives EAGAIN while
   another program, such as a file server, has a lease on it: that must be waited for. fstat fails
   for files too large for st_size, but then the file is not a pipe. */
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
#ifdef __EMSCRIPTEN__                  /* its pread drops the upper half of an offset */
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

static int64_t bitnet__file_some(void *file, uint64_t offset, uint8_t *p, size_t n) {
    ssize_t got;
    do got = BITNET__64(pread)(bitnet__fd(file), p, n, (bitnet__offset)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

#elif defined(BITNET__FILES_WIN32)

static void bitnet__file_close(void *file) {
    if (file) CloseHandle((HANDLE)file);
}

/* CreateFileW reports a directory only as "access denied". Keeps the last error. */
static int bitnet__is_directory(const WCHAR *path) {
    const DWORD code = GetLastError(), found = GetFileAttributesW(path);
    SetLastError(code);
    return found != INVALID_FILE_ATTRIBUTES && (found & FILE_ATTRIBUTE_DIRECTORY);
}

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
        bitnet__cannot_open(path, err);
        CloseHandle(h);
        return BITNET_ERR_IO;
    }
    *file = h;
    *size = (uint64_t)n.QuadPart;
    return BITNET_OK;
}

static int64_t bitnet__file_some(void *file, uint64_t offset, uint8_t *p, size_t n) {
    OVERLAPPED at;                     /* only says where to read; the call is synchronous */
    DWORD got = 0;
    memset(&at, 0, sizeof at);
    at.Offset = (DWORD)(offset & 0xFFFFFFFFu);
    at.OffsetHigh = (DWORD)(offset >> 32);
    if (ReadFile((HANDLE)file, p, (DWORD)n, &got, &at)) return got;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : -1;
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

static int64_t bitnet__file_some(void *file, uint64_t offset, uint8_t *p, size_t n) {
    FILE *f = (FILE *)file;
    size_t got;
    errno = 0;
    if (offset > LONG_MAX || fseek(f, (long)offset, SEEK_SET)) return -1;
    got = fread(p, 1, n, f);
    return got > 0 || feof(f) ? (int64_t)got : -1;
}

#endif

/* A bitnet_io's read_fn. Not more than 16 MB at once, since some systems refuse 31 bits. */
static bitnet_result bitnet__file_read(void *ud, uint64_t offset, void *dst, size_t n) {
    uint8_t *p = (uint8_t *)dst;
    while (n > 0) {
        const int64_t got = bitnet__file_some(ud, offset, p, n < (1 << 24) ? n : 1 << 24);
        if (got < 0) return BITNET_ERR_IO;
        if (got == 0) return BITNET_ERR_TRUNCATED;     /* shorter than it was */
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return BITNET_OK;
}

static void *bitnet__file_map(void *file, size_t size) {
#if defined(BITNET__MMAP_POSIX)
    void *p = mmap(0, size, PROT_READ, MAP_PRIVATE, bitnet__fd(file), 0);
    if (p == MAP_FAILED) return 0;
    bitnet__huge_pages(p, size);
    return p;
#elif defined(BITNET__MMAP_WIN32)
    HANDLE mapping = CreateFileMappingW((HANDLE)file, 0, PAGE_READONLY, 0, 0, 0);
    void *p = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size) : 0;
    if (mapping) CloseHandle(mapping);
    return p;
#else
    (void)file; (void)size;
    return 0;
#endif
}

/* copy 1: the file is read even where it could be mapped. */
static bitnet__source bitnet__source_file(const char *path, int copy, bitnet_error *err) {
    bitnet__source src;
    memset(&src, 0, sizeof src);
    src.result = path ? bitnet__file_open(path, copy, &src.file, &src.size, err)
                      : bitnet__fail(err, BITNET_ERR_ARG, "path is 0");
    if (src.result != BITNET_OK) return src;
    if (!copy && src.size > 0 && src.size <= SIZE_MAX)
        src.map = bitnet__file_map(src.file, (size_t)src.size);
    if (src.map) {
        bitnet__file_close(src.file);
        src.file = 0;
        src.data = (const uint8_t *)src.map;
        src.have = src.size;
    } else {
        src.io.size = src.size;
        src.io.read_fn = bitnet__file_read;
        src.io.ud = src.file;
    }
    return src;
}

#endif /* BITNET_NO_STDIO */

/* Closes the file, of which nothing more will be read. */
static void bitnet__source_close_file(bitnet__source *src) {
#ifndef BITNET_NO_STDIO
    bitnet__file_close(src->file);
#endif
    src->file = 0;
}

static void bitnet__source_close(bitnet__source *src, const bitnet_allocator *a) {
    if (src->io.read_fn && src->data) bitnet__free(a, (void *)(uintptr_t)src->data);
#if defined(BITNET__MMAP_POSIX)
    if (src->map) munmap(src->map, (size_t)src->size);
#elif defined(BITNET__MMAP_WIN32)
    if (src->map) UnmapViewOfFile(src->map);
#endif
    bitnet__source_close_file(src);
}

/* Reads n bytes at an offset, which the file has; what, for the error, names what they belong
   to. */
static bitnet_result bitnet__source_read(const bitnet__source *src, const char *what, uint64_t at,
                                         void *dst, size_t n, bitnet_error *err) {
    bitnet_result r = BITNET_OK;
    char why[BITNET__TEXT];
    if (src->io.read_fn) r = src->io.read_fn(src->io.ud, at, dst, n);
    else memcpy(dst, src->data + at, n);
    if (r == BITNET_OK) return r;
#ifndef BITNET_NO_STDIO
    if (r == BITNET_ERR_IO && src->file) bitnet__system_reason(why);
    else
#endif
        bitnet__format(why, "%s", bitnet_result_text(r));
    return bitnet__fail(err, r, "reading %s, %llu bytes at offset %llu: %s", what,
                        (unsigned long long)n, (unsigned long long)at, why);
}

/* Makes [0, end) of the file available at src->data; end <= src->size. Doubles the buffer, so that
   a header of n bytes costs at most 2 n bytes and log n reads. Both buffers are held while the old
   one is copied. A small file, whose records may take over twice its size, is read at once. */
static bitnet_result bitnet__source_need(bitnet__source *src, const bitnet_allocator *a,
                                         uint64_t end, bitnet_error *err) {
    uint64_t want = src->have >= 32768 ? src->have * 2 : src->size <= 262144 ? src->size : 65536;
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
    r = bitnet__source_read(src, "the header", src->have, p + src->have,
                            (size_t)(want - src->have), err);
    if (r != BITNET_OK) {
        bitnet__free(a, p);
        return r;
    }
    bitnet__free(a, (void *)(uintptr_t)src->data);
    src->data = p;
    src->have = want;
    return BITNET_OK;
}

/* ---- parsing ---- */

typedef struct bitnet__name {
    uint64_t at;                       /* offset of its first byte */
    uint32_t len;
    uint32_t order;                    /* in record i: the number of the i-th record by name */
} bitnet__name;

typedef struct bitnet__key {
    bitnet__name name;
    uint64_t count, size;              /* see bitnet_gguf_value */
    uint32_t value;                    /* offset of its data from name.at */
    uint8_t type, element;
} bitnet__key;

static uint64_t bitnet__value_offset(const bitnet__key *k) { return k->name.at + k->value; }

typedef struct bitnet__tensor {
    bitnet__name name;
    uint64_t offset, size;             /* offset in the file; size in bytes */
    uint64_t dims[2];                  /* row length, rows; more dimensions multiply into rows */
    const bitnet__type *info;          /* 0: unknown; then, and if rows are not whole blocks, size
                                          is 0 */
    uint32_t type, stored_type;        /* stored_type: the number in the file */
    uint32_t used;                     /* 1: the network has asked for it */
} bitnet__tensor;

typedef struct bitnet__gguf {
    bitnet__source src;
    bitnet__key *keys;                 /* in the file's order, as tensors */
    bitnet__tensor *tensors;
    uint64_t n_keys, n_tensors;
    uint64_t data_start;               /* offset of the tensors' data */
    uint64_t alignment;                /* of each tensor's data */
    int32_t q2_0_block;                /* of type 42, 64 or 128; 0: as the tensors' room says */
    int32_t q2_0_unclear;              /* 1: nobody says, and both fit */
} bitnet__gguf;

static const uint8_t *bitnet__value_of(const bitnet__gguf *g, const bitnet__key *k) {
    return g->src.data + bitnet__value_offset(k);
}

/* A place in the header while it is parsed. After the first error every function fails, and err
   keeps that error. */
typedef struct bitnet__reader {
    bitnet__source *src;
    const bitnet_allocator *allocator;
    bitnet_error *err;
    bitnet_result result;
    uint64_t pos;
    const char *kind;                  /* for error texts: "key", "tensor", or 0; and which */
    uint64_t index, name, name_len;    /* name_len 0: not known yet */
} bitnet__reader;

/* The fewest bytes that a metadata value of each type takes. */
static uint32_t bitnet__value_size(uint32_t type) {
    static const uint8_t sizes[BITNET__N_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    return type < BITNET__N_VALUE_TYPES ? sizes[type] : 0;
}

/* Records the reader's first error: "GGUF key 'name' at offset 123: what". */
static void bitnet__reader_fail(bitnet__reader *r, bitnet_result code, const char *what) {
    unsigned long long pos = r->pos;
    if (r->result != BITNET_OK) return;
    r->result = code;
    if (r->kind == 0)
        bitnet__fail(r->err, code, "GGUF header at offset %llu: %s", pos, what);
    else if (r->name_len)
        bitnet__fail(r->err, code, "GGUF %s '%.*s' at offset %llu: %s", r->kind,
                     (int)(r->name_len < 64 ? r->name_len : 64),
                     (const char *)r->src->data + r->name, pos, what);
    else
        bitnet__fail(r->err, code, "GGUF %s %llu at offset %llu: %s", r->kind,
                     (unsigned long long)r->index, pos, what);
}

/* The same about a key or tensor whose name has been read. */
static void bitnet__reader_fail_name(bitnet__reader *r, const bitnet__name *name,
                                     bitnet_result code, const char *what) {
    r->name = r->pos = name->at;
    r->name_len = name->len;
    bitnet__reader_fail(r, code, what);
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

/* Why n bytes cannot name a key or tensor; 0 if they can. Names are handed out as C strings, hence
   no NUL. */
static const char *bitnet__bad_name(const uint8_t *p, uint64_t n) {
    const uint8_t *end = p + n;
    uint32_t cp, length;
    if (n == 0) return "it has no name";
    for (; p < end; p += length) {
        length = bitnet__utf8_decode(p, end, &cp);
        if (length == 0) return "its name is not UTF-8";
        if (cp == 0) return "its name holds a NUL";
    }
    return 0;
}

/* Reads a key's or tensor's name, by which errors call it from here on. */
static void bitnet__reader_name(bitnet__reader *r, uint64_t max, bitnet__name *name) {
    const uint8_t *p;
    const char *bad;
    uint64_t n;
    r->name_len = 0;
    n = bitnet__reader_u64(r);
    name->at = r->pos;
    if (n > max) bitnet__reader_fail(r, BITNET_ERR_FORMAT, "its name is too long");
    p = bitnet__reader_take(r, n);
    if (!p) return;
    name->len = (uint32_t)n;
    r->name = name->at;
    r->name_len = n;
    bad = bitnet__bad_name(p, n);
    if (bad) bitnet__reader_fail_name(r, name, BITNET_ERR_FORMAT, bad);
}

/* Steps over n strings; later walks need not check them again. If the whole file is at hand, this
   is the hot loop of loading (400,000 strings): only the slow path calls functions. */
static void bitnet__reader_skip_strings(bitnet__reader *r, uint64_t n) {
    while (n > 0 && r->result == BITNET_OK) {
        const uint64_t have = r->src->have;
        uint64_t pos = r->pos;         /* no pointers: on 32 bits their difference ends at 2 GB */
        for (; n > 0 && have - pos >= 8; n--) {
            const uint64_t len = bitnet__get_u64(r->src->data + pos);
            if (len > have - pos - 8) break;
            pos += 8 + len;
        }
        r->pos = pos;
        if (n > 0) {                   /* beyond have: read more, or fail */
            bitnet__reader_take(r, bitnet__reader_u64(r));
            n--;
        }
    }
}

/* Steps over the count elements of an array. Nested arrays are walked without recursion: left holds
   how many elements each enclosing array still has. Each takes at least 12 bytes, so the file's
   size bounds the loop. */
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

/* Steps over a value of a type, and returns the offset of its data. */
static uint64_t bitnet__reader_value(bitnet__reader *r, uint32_t type, bitnet_gguf_value *v) {
    uint64_t at;
    memset(v, 0, sizeof *v);
    v->type = type;
    v->count = 1;
    if (type >= BITNET__N_VALUE_TYPES)
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, "unknown type of value");
    if (type == BITNET_GGUF_ARRAY) {
        v->element = bitnet__reader_u32(r);
        v->count = bitnet__reader_u64(r);
        at = r->pos;
        bitnet__reader_skip_array(r, v->element, v->count);
    } else {
        v->size = type == BITNET_GGUF_STRING ? bitnet__reader_u64(r) : bitnet__value_size(type);
        at = r->pos;
        bitnet__reader_take(r, v->size);
    }
    v->size = r->pos - at;
    return at;
}

static void bitnet__reader_key(bitnet__reader *r, bitnet__key *k) {
    bitnet_gguf_value v;
    memset(k, 0, sizeof *k);
    bitnet__reader_name(r, BITNET__MAX_KEY_NAME, &k->name);
    k->value = (uint32_t)(bitnet__reader_value(r, bitnet__reader_u32(r), &v) - k->name.at);
    k->type = (uint8_t)v.type;
    k->element = (uint8_t)v.element;
    k->count = v.count;
    k->size = v.size;
}

static void bitnet__reader_tensor(bitnet__reader *r, bitnet__tensor *t) {
    uint32_t n_dims, i;
    memset(t, 0, sizeof *t);
    t->dims[0] = t->dims[1] = 1;
    bitnet__reader_name(r, BITNET__MAX_TENSOR_NAME, &t->name);
    n_dims = bitnet__reader_u32(r);
    if (r->result == BITNET_OK && (n_dims < 1 || n_dims > 4))
        bitnet__reader_fail(r, BITNET_ERR_FORMAT, "it must have 1 to 4 dimensions");
    for (i = 0; i < n_dims && r->result == BITNET_OK; i++) {
        uint64_t d = bitnet__reader_u64(r), *into = &t->dims[i > 0];
        if (r->result == BITNET_OK && (d == 0 || d > ((uint64_t)1 << 40) / t->dims[0] / t->dims[1]))
            bitnet__reader_fail(r, BITNET_ERR_LIMIT, "a dimension is 0 or the tensor is too large");
        *into *= d;
    }
    t->type = t->stored_type = bitnet__reader_u32(r);
    t->offset = bitnet__reader_u64(r);
    t->info = bitnet__type_info(t->type);
    t->size = bitnet__tensor_size(t->info, t->dims[0], t->dims[1]);
}

/* ---- keys and tensors by name ---- */

typedef struct bitnet__records {       /* all keys, or all tensors: both begin with their name */
    const uint8_t *data;               /* the header */
    bitnet__name *first;
    size_t stride;
    uint32_t n;
} bitnet__records;

static bitnet__records bitnet__keys_of(const bitnet__gguf *g) {
    bitnet__records list = {g->src.data, &g->keys->name, sizeof *g->keys, (uint32_t)g->n_keys};
    return list;
}

static bitnet__records bitnet__tensors_of(const bitnet__gguf *g) {
    bitnet__records list = {g->src.data, &g->tensors->name, sizeof *g->tensors,
                            (uint32_t)g->n_tensors};
    return list;
}

static bitnet__name *bitnet__record(const bitnet__records *list, uint32_t i) {
    return (bitnet__name *)(void *)((char *)list->first + i * list->stride);
}

static int bitnet__compare_names(const bitnet__records *list, uint32_t a, uint32_t b) {
    const bitnet__name *x = bitnet__record(list, a), *y = bitnet__record(list, b);
    return bitnet__compare(list->data + x->at, x->len, list->data + y->at, y->len);
}

static int bitnet__name_less(const void *of, uint32_t a, uint32_t b) {
    const int c = bitnet__compare_names((const bitnet__records *)of, a, b);
    return c ? c < 0 : a < b;
}

/* Orders keys or tensors by name. A name that is there twice is an error: a program that reads the
   first and one that reads the last would see different files. */
static void bitnet__sort_names(bitnet__records list, bitnet__reader *r) {
    char what[BITNET__TEXT];
    uint32_t i;
    if (list.n == 0) return;
    for (i = 0; i < list.n; i++) bitnet__record(&list, i)->order = i;
    bitnet__sort(&list.first->order, list.stride, list.n, bitnet__name_less, &list);
    for (i = 1; i < list.n && r->result == BITNET_OK; i++) {
        const uint32_t a = bitnet__record(&list, i - 1)->order, b = bitnet__record(&list, i)->order;
        if (bitnet__compare_names(&list, a, b)) continue;
        bitnet__format(what, "the same name is at offset %llu",
                       (unsigned long long)bitnet__record(&list, a)->at);
        bitnet__reader_fail_name(r, bitnet__record(&list, b), BITNET_ERR_FORMAT, what);
    }
}

/* The key or tensor called name, or 0. */
static const void *bitnet__find_name(bitnet__records list, const char *name) {
    uint32_t low = 0, high = list.n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const bitnet__name *x = bitnet__record(&list, bitnet__record(&list, middle)->order);
        const int c = bitnet__compare(list.data + x->at, x->len, (const uint8_t *)name,
                                      strlen(name));
        if (c == 0) return x;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return 0;
}

static const bitnet__key *bitnet__find_key(const bitnet__gguf *g, const char *name) {
    return (const bitnet__key *)bitnet__find_name(bitnet__keys_of(g), name);
}

static const bitnet__tensor *bitnet__find_tensor(const bitnet__gguf *g, const char *name) {
    return (const bitnet__tensor *)bitnet__find_name(bitnet__tensors_of(g), name);
}

/* ---- where tensors are ---- */

static int bitnet__tensor_before(const void *of, uint32_t a, uint32_t b) {
    const bitnet__tensor *t = ((const bitnet__gguf *)of)->tensors;
    return t[a].offset != t[b].offset ? t[a].offset < t[b].offset : a < b;
}

/* The bytes from tensor i, in the order of offsets, to the next one or the end. Offsets are still
   from the start of the tensors' data, which has `left` bytes; tensor i begins in it. */
static uint64_t bitnet__tensor_room(const bitnet__gguf *g, uint64_t i, uint64_t left) {
    const bitnet__tensor *t = &g->tensors[g->tensors[i].name.order];
    const bitnet__tensor *next = i + 1 < g->n_tensors ?
                                 &g->tensors[g->tensors[i + 1].name.order] : 0;
    return (next && next->offset < left ? next->offset : left) - t->offset;
}

/* 1 if a tensor of `size` bytes, which are not 0, fills its room up to alignment. */
static int bitnet__fits_room(const bitnet__gguf *g, uint64_t size, uint64_t room) {
    return size > 0 && size <= room && room - size < g->alignment;
}

/* Type 39 is TL2 in BitNet's fork of ggml and MXFP4 in ggml itself. MXFP4 takes over twice as many
   bytes, so the distance to the next tensor tells them apart; if both or neither fits, architecture
   and file type decide. */
static void bitnet__gguf_resolve_39(bitnet__gguf *g, uint64_t left) {
    const bitnet__key *arch = bitnet__find_key(g, "general.architecture");
    const bitnet__key *ftype = bitnet__find_key(g, "general.file_type");
    const int fork = (arch && arch->type == BITNET_GGUF_STRING && arch->size >= 6 &&
                      !memcmp(bitnet__value_of(g, arch), "bitnet", 6)) ||
                     (ftype && ftype->type == BITNET_GGUF_U32 &&
                      bitnet__get_u32(bitnet__value_of(g, ftype)) == 39);
    uint64_t i;
    for (i = 0; i < g->n_tensors; i++) {
        bitnet__tensor *t = &g->tensors[g->tensors[i].name.order];
        uint64_t room, mxfp4;
        int fits_tl2, fits_mxfp4;
        if (t->type != BITNET_TENSOR_TL2 || t->offset > left) continue;
        room = bitnet__tensor_room(g, i, left);
        mxfp4 = bitnet__tensor_size(&bitnet__type_mxfp4, t->dims[0], t->dims[1]);
        fits_tl2 = bitnet__fits_room(g, t->size, room);
        fits_mxfp4 = bitnet__fits_room(g, mxfp4, room);
        if (fits_tl2 != fits_mxfp4 ? fits_tl2 : fork && t->size > 0) continue;
        t->info = &bitnet__type_mxfp4;
        t->size = mxfp4 <= room ? mxfp4 : 0;
    }
}

/* Type 42 is Q2_0, with 64 weights a block in ggml and 128 in files of Bonsai's publisher. 128 take
   1/16 fewer bytes, so the room of the tensors tells which all of a file have, unless all of them
   are tiny. Those of 128 become type 142. */
static void bitnet__gguf_resolve_42(bitnet__gguf *g, uint64_t left, bitnet__reader *r) {
    const bitnet__tensor *misfit[2] = {0, 0};
    char what[BITNET__TEXT];
    uint64_t i, found = 0;
    int k, large, fits[2];
    for (i = 0; i < g->n_tensors; i++) {
        const bitnet__tensor *t = &g->tensors[g->tensors[i].name.order];
        uint64_t room;
        if (t->type != BITNET_TENSOR_Q2_0 || t->offset > left) continue;
        found++;
        room = bitnet__tensor_room(g, i, left);
        for (k = 0; k < 2; k++) {
            const bitnet__type *info = k ? &bitnet__type_pq2_0 : t->info;
            fits[k] = bitnet__fits_room(g, bitnet__tensor_size(info, t->dims[0], t->dims[1]), room);
        }
        /* The file may be cut in its last tensor, or go on behind it: that says nothing. */
        if (!fits[0] && !fits[1] && room == left - t->offset) continue;
        for (k = 0; k < 2; k++)
            if (!misfit[k] && !fits[k]) misfit[k] = t;
    }
    g->q2_0_unclear = found > 0 && !g->q2_0_block && !misfit[0] && !misfit[1];
    large = g->q2_0_block ? g->q2_0_block == 128 : misfit[0] && !misfit[1];
    if (misfit[large]) {
        bitnet__format(what, "its data has not the size of blocks of %s weights",
                       g->q2_0_block ? large ? "128" : "64" : "64 or of 128");
        bitnet__reader_fail_name(r, &misfit[large]->name, BITNET_ERR_FORMAT, what);
        return;
    }
    for (i = 0; i < g->n_tensors && large; i++) {
        bitnet__tensor *t = &g->tensors[i];
        if (t->type != BITNET_TENSOR_Q2_0) continue;
        t->type = BITNET_TENSOR_PQ2_0;
        t->info = bitnet__type_info(t->type);
        t->size = bitnet__tensor_size(t->info, t->dims[0], t->dims[1]);
    }
}

/* The directory is followed by zeros up to the start of the data. Anything else is a tensor that
   the count leaves out. */
static void bitnet__reader_padding(bitnet__reader *r, uint64_t alignment) {
    const uint64_t start = r->pos, left = r->src->size - start;
    uint64_t pad = (alignment - start % alignment) % alignment, i;
    const uint8_t *p;
    if (pad > left) pad = left;
    p = bitnet__reader_take(r, pad);
    for (i = 0; p && i < pad && r->result == BITNET_OK; i++)
        if (p[i]) {
            r->kind = 0;
            r->pos = start + i;
            bitnet__reader_fail(r, BITNET_ERR_FORMAT, "the padding before the tensors' data is not "
                                "0; does the directory lack a tensor?");
        }
}

/* Checks that the tensors lie one after the other behind the header: if they shared bytes, a small
   file could ask for much memory. A tensor of unknown size has at least one byte. */
static void bitnet__gguf_place_tensors(bitnet__gguf *g, bitnet__reader *r) {
    const bitnet__tensor *last = 0;
    uint64_t i, left, end = 0;
    char what[BITNET__TEXT];
    bitnet__reader_padding(r, g->alignment);
    if (r->result != BITNET_OK) return;
    g->data_start = r->pos;
    left = r->src->size - g->data_start;
    for (i = 0; i < g->n_tensors; i++) g->tensors[i].name.order = (uint32_t)i;
    bitnet__sort(&g->tensors[0].name.order, sizeof *g->tensors, (uint32_t)g->n_tensors,
                 bitnet__tensor_before, g);
    bitnet__gguf_resolve_39(g, left);
    bitnet__gguf_resolve_42(g, left, r);
    for (i = 0; i < g->n_tensors && r->result == BITNET_OK; i++) {
        bitnet__tensor *t = &g->tensors[g->tensors[i].name.order];
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
            bitnet__format(what, "its data overlaps '%.*s'", (int)last->name.len,
                           (const char *)r->src->data + last->name.at);
        if (what[0]) bitnet__reader_fail_name(r, &t->name, code, what);
        end = t->offset + size;
        t->offset += g->data_start;
        last = t;
    }
    if (r->result == BITNET_OK) bitnet__sort_names(bitnet__tensors_of(g), r);
}

/* Bytes behind the last tensor must be 0: otherwise the directory leaves out a tensor. If the
   missing entry happens to fill what would be padding, all data is elsewhere than it seems. */
static bitnet_result bitnet__gguf_check_end(const bitnet__gguf *g, bitnet_error *err) {
    const bitnet__source *src = &g->src;
    const bitnet__tensor *last = 0;
    uint8_t slice[4096];
    uint64_t i, at;
    for (i = 0; i < g->n_tensors; i++)
        if (!last || g->tensors[i].offset > last->offset) last = &g->tensors[i];
    if (!last || last->size == 0) return BITNET_OK;
    for (at = last->offset + last->size; at < src->size; at += i) {
        const uint64_t n = src->size - at < sizeof slice ? src->size - at : sizeof slice;
        const bitnet_result r = bitnet__source_read(src, "behind the last tensor", at, slice,
                                                    (size_t)n, err);
        if (r != BITNET_OK) return r;
        for (i = 0; i < n; i++)
            if (slice[i])
                return bitnet__fail(err, BITNET_ERR_FORMAT, "the bytes at offset %llu, behind the "
                                    "last tensor '%.*s', belong to none; does the directory lack "
                                    "one?", (unsigned long long)(at + i), (int)last->name.len,
                                    (const char *)src->data + last->name.at);
    }
    return BITNET_OK;
}

/* The first 24 bytes. */
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
    /* A tensor takes at least 33 bytes, a key 14: this bounds the records by the file's size. */
    left = r->src->size - r->pos;
    if (g->n_tensors > BITNET__MAX_TENSORS || g->n_tensors * 33 > left) r->pos = 8;
    else if (g->n_keys > BITNET__MAX_KEYS || g->n_keys * 14 > left - g->n_tensors * 33) r->pos = 16;
    else return;
    bitnet__reader_fail(r, BITNET_ERR_LIMIT, "it names more keys or tensors than can be");
}

/* The value of general.alignment, or 32. */
static void bitnet__gguf_get_alignment(bitnet__gguf *g, bitnet__reader *r) {
    const bitnet__key *k = bitnet__find_key(g, "general.alignment");
    uint32_t a = 32;
    if (k) a = k->type == BITNET_GGUF_U32 ? bitnet__get_u32(bitnet__value_of(g, k)) : 0;
    g->alignment = a;
    if (a && !(a & (a - 1)) && a <= BITNET__MAX_ALIGNMENT) return;
    r->name = k->name.at;
    r->name_len = k->name.len;
    r->pos = bitnet__value_offset(k);
    bitnet__reader_fail(r, BITNET_ERR_FORMAT, "it must be a power of two up to 65536, as U32");
}

/* Parses the header of g->src. g->keys and g->tensors are allocated here and freed by the caller,
   on failure too. */
static bitnet_result bitnet__gguf_parse(bitnet__gguf *g, const bitnet_allocator *a,
                                        bitnet_error *err) {
    bitnet__reader r;
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
    r.kind = "key";
    for (r.index = 0; r.index < g->n_keys && r.result == BITNET_OK; r.index++)
        bitnet__reader_key(&r, &g->keys[r.index]);
    if (r.result == BITNET_OK) bitnet__sort_names(bitnet__keys_of(g), &r);
    if (r.result == BITNET_OK) bitnet__gguf_get_alignment(g, &r);
    r.kind = "tensor";
    for (r.index = 0; r.index < g->n_tensors && r.result == BITNET_OK; r.index++)
        bitnet__reader_tensor(&r, &g->tensors[r.index]);
    if (r.result == BITNET_OK) bitnet__gguf_place_tensors(g, &r);
    return r.result;
}

static void bitnet__gguf_free(bitnet__gguf *g, const bitnet_allocator *a) {
    bitnet__free(a, g->keys);
    bitnet__free(a, g->tensors);
    bitnet__source_close(&g->src, a);
}

/* ---- values ---- */

/* Reads an integer of any type; a negative one wraps to 2^64. 0: the value is not an integer. */
static int bitnet__value_integer(uint32_t type, const uint8_t *p, uint64_t *v) {
    const uint32_t size = bitnet__value_size(type);
    const int is_signed = type == BITNET_GGUF_I8 || type == BITNET_GGUF_I16 ||
                          type == BITNET_GGUF_I32 || type == BITNET_GGUF_I64;
    uint32_t i;
    if (type == BITNET_GGUF_F32 || type == BITNET_GGUF_F64 || type == BITNET_GGUF_STRING ||
        type == BITNET_GGUF_ARRAY) return 0;
    *v = is_signed && p[size - 1] >= 0x80 ? ~(uint64_t)0 : 0;
    for (i = size; i > 0; i--) *v = *v << 8 | p[i - 1];
    return 1;
}

static bitnet_gguf_value bitnet__key_value(const bitnet__gguf *g, const bitnet__key *k) {
    bitnet_gguf_value v;
    v.type = k->type;
    v.element = k->element;
    v.count = k->count;
    v.size = k->size;
    v.data = bitnet__value_of(g, k);
    return v;
}

/* Formats x with `digits` significant digits. The C library takes the decimal point from the
   locale, where it may have several bytes. */
static void bitnet__format_number(char text[BITNET__TEXT], int digits, double x) {
    const char *from = text;
    char *to = text;
    bitnet__format(text, "%.*g", digits, x);
    for (; *from; from++) {
        if (strchr("0123456789e+-infa", *from)) *to++ = *from;
        else if (to == text || to[-1] != '.') *to++ = '.';
    }
    *to = 0;
}

/* Copies size bytes as snprintf does. */
static int bitnet__copy_text(const uint8_t *p, size_t size, char *buf, size_t cap) {
    if (buf && cap > 0) {
        const size_t kept = size < cap ? size : cap - 1;
        memcpy(buf, p, kept);
        buf[kept] = 0;
    }
    return (int)size;
}

BITNET_API int bitnet_gguf_text(const bitnet_gguf_value *value, char *buf, size_t cap) {
    char text[BITNET__TEXT];
    const uint8_t *p = value ? value->data : 0;
    uint64_t size, n = 0;
    double d;
    if (!p) return BITNET_ERR_ARG;
    if (value->type == BITNET_GGUF_ARRAY) return BITNET_ERR_UNSUPPORTED;
    size = value->size;
    if (value->type == BITNET_GGUF_STRING) {
        if (size > INT32_MAX) return BITNET_ERR_LIMIT;
    } else if (!size || size != bitnet__value_size(value->type)) {
        return BITNET_ERR_ARG;
    } else {
        if (value->type == BITNET_GGUF_BOOL) {
            bitnet__format(text, "%s", p[0] ? "true" : "false");
        } else if (value->type == BITNET_GGUF_F32) {
            bitnet__format_number(text, 9, (double)bitnet__load_f32(p));
        } else if (bitnet__value_integer(value->type, p, &n)) {
            /* Sign and digits apart: not every snprintf prints the lowest number of a type. */
            const int negative = value->type != BITNET_GGUF_U64 && n >> 63;
            bitnet__format(text, "%s%llu", negative ? "-" : "",
                           (unsigned long long)(negative ? 0 - n : n));
        } else {
            n = bitnet__get_u64(p);
            memcpy(&d, &n, 8);
            bitnet__format_number(text, 17, d);
        }
        p = (const uint8_t *)text;
        size = strlen(text);
    }
    return bitnet__copy_text(p, (size_t)size, buf, cap);
}

/* ---- public: files of any kind, to look into; names are copied out, values are views ---- */

struct bitnet_gguf {
    bitnet__gguf file;
    bitnet_allocator allocator;
};

/* What every function that opens a file or loads a model checks first. */
static bitnet_result bitnet__check_open(const bitnet__source *src, int has_out,
                                        const bitnet_allocator *a, bitnet_error *err) {
    if (!has_out) return bitnet__fail(err, BITNET_ERR_ARG, "out is 0");
    if (src->result == BITNET_OK && !a->alloc_fn != !a->free_fn)
        return bitnet__fail(err, BITNET_ERR_ARG, "the allocator needs both of its functions");
    return src->result ? src->result : bitnet__check_reserved(a->reserved, 2, "bitnet_allocator",
                                                              err);
}

/* Takes over the source, on failure too. */
static bitnet_result bitnet__gguf_open(bitnet__source src, const bitnet_allocator *allocator,
                                       bitnet_gguf **out, bitnet_error *err) {
    bitnet_allocator a = {0, 0, 0, {0, 0}};
    bitnet_gguf *g = 0;
    bitnet_result r;
    if (out) *out = 0;
    if (allocator) a = *allocator;
    r = bitnet__check_open(&src, out != 0, &a, err);
    if (r == BITNET_OK && !(g = (bitnet_gguf *)bitnet__alloc(&a, sizeof *g)))
        r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for an open file");
    if (!g) {
        bitnet__source_close(&src, &a);
        return r;
    }
    memset(g, 0, sizeof *g);
    g->allocator = a;
    g->file.src = src;
    r = bitnet__gguf_parse(&g->file, &a, err);
    if (r == BITNET_OK) *out = g;
    else bitnet_gguf_close(g);
    return r;
}

BITNET_API void bitnet_gguf_close(bitnet_gguf *g) {
    bitnet_allocator a;
    if (!g) return;
    a = g->allocator;
    bitnet__gguf_free(&g->file, &a);
    bitnet__free(&a, g);
}

BITNET_API bitnet_result bitnet_gguf_open_memory(const void *data, size_t size,
                                                 const bitnet_allocator *allocator,
                                                 bitnet_gguf **out, bitnet_error *err) {
    return bitnet__gguf_open(bitnet__source_memory(data, size, err), allocator, out, err);
}

BITNET_API bitnet_result bitnet_gguf_open_io(const bitnet_io *io, const bitnet_allocator *allocator,
                                             bitnet_gguf **out, bitnet_error *err) {
    return bitnet__gguf_open(bitnet__source_io(io, err), allocator, out, err);
}

#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_gguf_open_file(const char *path, const bitnet_allocator *allocator,
                                               bitnet_gguf **out, bitnet_error *err) {
    return bitnet__gguf_open(bitnet__source_file(path, 0, err), allocator, out, err);
}
#endif

static bitnet_result bitnet__gguf_key_at(const bitnet_gguf *g, const bitnet__key *k,
                                         bitnet_gguf_key *out) {
    if (!k || !out) return out && g ? BITNET_ERR_NOT_FOUND : BITNET_ERR_ARG;
    memset(out, 0, sizeof *out);
    memcpy(out->name, g->file.src.data + k->name.at, k->name.len);
    out->value = bitnet__key_value(&g->file, k);
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_get_key(const bitnet_gguf *g, uint64_t i,
                                             bitnet_gguf_key *out) {
    return bitnet__gguf_key_at(g, g && i < g->file.n_keys ? &g->file.keys[i] : 0, out);
}

BITNET_API bitnet_result bitnet_gguf_find_key(const bitnet_gguf *g, const char *name,
                                              bitnet_gguf_key *out) {
    if (!name) return BITNET_ERR_ARG;
    return bitnet__gguf_key_at(g, g ? bitnet__find_key(&g->file, name) : 0, out);
}

/* In the header a name is followed by u32 n_dims, u64 dims[n_dims]. */
static bitnet_result bitnet__gguf_tensor_at(const bitnet_gguf *g, const bitnet__tensor *t,
                                            bitnet_gguf_tensor *out) {
    const uint8_t *p;
    int32_t i;
    if (!t || !out) return out && g ? BITNET_ERR_NOT_FOUND : BITNET_ERR_ARG;
    memset(out, 0, sizeof *out);
    p = g->file.src.data + t->name.at + t->name.len;
    memcpy(out->name, p - t->name.len, t->name.len);
    out->type = t->type;
    out->stored_type = t->stored_type;
    out->n_dims = (int32_t)bitnet__get_u32(p);
    for (i = 0; i < 4; i++) out->dims[i] = i < out->n_dims ? bitnet__get_u64(p + 4 + 8 * i) : 1;
    out->offset = t->offset;
    out->size = t->size;
    out->type_name = t->info ? t->info->name : 0;
    if (!g->file.src.io.read_fn) out->data = g->file.src.data + t->offset;
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_gguf_get_tensor(const bitnet_gguf *g, uint64_t i,
                                                bitnet_gguf_tensor *out) {
    return bitnet__gguf_tensor_at(g, g && i < g->file.n_tensors ? &g->file.tensors[i] : 0, out);
}

BITNET_API bitnet_result bitnet_gguf_find_tensor(const bitnet_gguf *g, const char *name,
                                                 bitnet_gguf_tensor *out) {
    if (!name) return BITNET_ERR_ARG;
    return bitnet__gguf_tensor_at(g, g ? bitnet__find_tensor(&g->file, name) : 0, out);
}

BITNET_API int bitnet_gguf_next(const bitnet_gguf_value *array, bitnet_gguf_value *element) {
    bitnet_gguf_value e;
    bitnet__source src;
    bitnet__reader r;
    if (!array || !element || array->type != BITNET_GGUF_ARRAY || !array->data) return 0;
    memset(&r, 0, sizeof r);
    src = bitnet__source_memory(array->data, (size_t)array->size, 0);
    r.src = &src;
    r.pos = element->data ? (uint64_t)(element->data - array->data) + element->size : 0;
    if (r.pos >= array->size) return 0;
    e.data = array->data + bitnet__reader_value(&r, array->element, &e);
    if (r.result != BITNET_OK) return 0;
    *element = e;
    return 1;
}

BITNET_API bitnet_result bitnet_gguf_read(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                                          uint64_t at, void *dst, size_t n, bitnet_error *err) {
    const bitnet__source *src = g ? &g->file.src : 0;
    char what[BITNET__TEXT];
    if (!g || !t || !dst || at > t->size || n > t->size - at || t->offset > src->size ||
        t->size > src->size - t->offset)
        return bitnet__fail(err, BITNET_ERR_ARG, "tensor '%.64s' has no such bytes",
                            t ? t->name : "");
    bitnet__format(what, "tensor '%.64s'", t->name);
    return bitnet__source_read(src, what, t->offset + at, dst, n, err);
}

/* =============================================================================================
   @model  from a GGUF file to a network: hyperparameters, weights, tokenizer
   A model is immutable once loaded. Large tensors stay where the file's bytes are; norms (a few
   MB) are converted to aligned F32, and ternary weights are repacked only for kernels that need
   it. All memory that the model allocates is in one list of allocations. Codes that are invalid,
   scales that are not positive and norms that are not finite are refused.

   Linux is asked for large pages (MADV_HUGEPAGE), with which generation is 5 to 15 % faster: for
   the mapped file and, of memory from malloc, for packed weights, the head's copy and the cache of
   several sequences. A file has large pages where the file system has them and the file was not in
   memory before it was mapped. So right after a download it has none. bitnet_model_params.copy
   gives the weights large pages even then.
   ============================================================================================= */

enum {
    BITNET__MAX_CONTEXT = 1 << 20,     /* positions: sin and cos are exact enough up to there */
    BITNET__DEFAULT_CONTEXT = 4096,    /* or what the model was trained for, if that is less */
    BITNET__MAX_HEADS = 4096,
    BITNET__MAX_EXPERTS = 1024,
    BITNET__MAX_TAPS = 8,              /* of a convolution */
    BITNET__MAX_STATE = 1 << 30,       /* bytes of fixed size that layers keep for a sequence */
    BITNET__MAX_WIDTHS = 16,           /* of folded matrices */
    BITNET__MAX_PACKERS = 16           /* threads that pack: with more, memory is the limit */
};

/* What only some families have: norms, and other parts. */
enum {
    BITNET__SUB_NORMS = 1,             /* in front of attn_output and ffn_down */
    BITNET__IN_NORMS = 2,              /* in front of every linear layer */
    BITNET__HEAD_NORMS = 4,            /* of each head's q and k, before RoPE */
    BITNET__POST_NORMS = 8,            /* of attention and FFN, before they are added to x */
    BITNET__EXPERTS = 16,              /* in place of an FFN in each layer */
    BITNET__OWN_HEAD = 32,             /* output.weight must be there */
    BITNET__HYBRID = 64,               /* most layers are gated delta nets; attention has a gate */
    BITNET__ANY_FLOATS = 128           /* matrices may be F32, F16 or BF16 */
};

/* Factors that only some families have. */
enum {
    BITNET__EMBED_SCALE = 1,           /* the embedding is multiplied by sqrt(dim) */
    BITNET__FILE_SCALES = 2            /* those that the file names */
};

/* bitnet__family.slide_except: the file says by attention.sliding_window_pattern which layers
   slide, and the others have no RoPE. */
enum { BITNET__SLIDE_PATTERN = -1 };

/* How the supported networks differ, by general.architecture: a row of bitnet__families, which says
   what a new family touches. */
typedef struct bitnet__family {
    const char *arch;
    int norms;                         /* and other parts: BITNET__SUB_NORMS and so on */
    float gate_a, gate_b;              /* the gate: see sigmoid_gate; both 0: squared ReLU */
    int any_gate;                      /* 1: the file may name another one: see load_gate */
    int adjacent;                      /* RoPE rotates 1: (2i, 2i + 1); 0: (i, i + n_rot / 2) */
    int scales;                        /* BITNET__EMBED_SCALE and so on: see load_scales */
    int slide_except;                  /* with attention.sliding_window, each layer of this number
                                          sees all positions, the others only those in the window;
                                          0: there is no window; or BITNET__SLIDE_PATTERN */
    float slide_base;                  /* freq_base of the layers that slide, without a key; 0: the
                                          other layers' */
    int default_pre;                   /* 1: without tokenizer.ggml.pre, llama-bpe is right */
    int chat;                          /* 1: the template of bitnet-2b-4t, whatever the file has */
    float eps, freq_base;              /* defaults of absent keys; 0: the key must be there */
} bitnet__family;

#define BITNET__RELU2 0.0f, 0.0f
#define BITNET__SILU -1.0f, 0.0f
#define BITNET__GELU -1.59576912f, -0.0713548163f      /* -2 sqrt(2/pi), and 0.044715 of it */

/* Each row says which published models it is for. Of two with one name the file's tensors decide:
   see load_family. Many other networks call themselves llama, qwen3 or gemma3, with biases, experts
   or norms that are not supported: see check_keys and check_unused.

   A new dense family is a row here. It touches no other place, unless it has what no family had:

     a norm                    a bit above, a number below, a row of bitnet__layer_tensors, and its
                               step in @forward
     a factor                  a bit above; bitnet__load_scales
     a gate a * x * sigmoid    nothing: gate_a and gate_b; a name for it in files: bitnet__gates
     experts                   nothing: BITNET__EXPERTS, if they are chosen as @forward does
     a key of its own          bitnet__read_keys, and where it is read; bitnet__neutral_keys if only
                               one value is supported
     a pre-tokenizer           bitnet__pres in @tokenizer
     a chat template           bitnet__chat_rows in @chat */
static const bitnet__family bitnet__families[] = {
    /* the official BitNet b1.58-2B-4T */
    {"bitnet-b1.58", BITNET__SUB_NORMS, BITNET__RELU2, 0, 0, 0, 0, 0.0f, 1, 1, 1e-5f, 500000.0f},
    /* the same under its other name */
    {"bitnet-25", BITNET__SUB_NORMS, BITNET__RELU2, 0, 0, 0, 0, 0.0f, 1, 1, 1e-5f, 500000.0f},
    /* 1bitLLM's bitnet_b1_58-large and -3B; BitNet b1.58-2B-4T by llama.cpp's converters */
    {"bitnet", BITNET__SUB_NORMS, BITNET__SILU, 1, 0, 0, 0, 0.0f, 1, 0, 0.0f, 10000.0f},
    /* Llama3-8B-1.58, Falcon3-1.58 and similar ones */
    {"llama", 0, BITNET__SILU, 0, 1, 0, 0, 0.0f, 0, 0, 0.0f, 10000.0f},
    /* BitCPM-CANN 0.5B and 8B */
    {"minicpm", 0, BITNET__SILU, 0, 1, BITNET__FILE_SCALES, 0, 0.0f, 0, 0, 0.0f, 10000.0f},
    /* Ternary Bonsai */
    {"qwen3", BITNET__HEAD_NORMS, BITNET__SILU, 0, 0, 0, 0, 0.0f, 0, 0, 1e-6f, 1e6f},
    /* Microsoft's text embeddings of 0.6B */
    {"qwen3", BITNET__IN_NORMS | BITNET__HEAD_NORMS, BITNET__SILU, 0, 0, 0, 0, 0.0f, 0, 0, 1e-6f,
     1e6f},
    /* Microsoft's text embeddings of 270M */
    {"gemma3", BITNET__IN_NORMS | BITNET__HEAD_NORMS | BITNET__POST_NORMS, BITNET__GELU, 0, 0,
     BITNET__EMBED_SCALE, 6, 10000.0f, 0, 0, 1e-6f, 10000.0f},
    /* Maple-preview 20B-A1B */
    {"maple", BITNET__HEAD_NORMS | BITNET__EXPERTS | BITNET__OWN_HEAD, BITNET__SILU, 0, 0, 0,
     BITNET__SLIDE_PATTERN, 0.0f, 0, 0, 1e-6f, 10000.0f},
    /* Ternary Bonsai 27B and Ternary Bonsai 2 27B */
    {"qwen35", BITNET__HEAD_NORMS | BITNET__HYBRID | BITNET__ANY_FLOATS, BITNET__SILU, 0, 0, 0, 0,
     0.0f, 0, 0, 1e-6f, 1e7f},
};

/* The gates that `<arch>.hidden_activation` can name: what config.json calls hidden_act. */
typedef struct bitnet__gate { const char *name; float a, b; } bitnet__gate;

static const bitnet__gate bitnet__gates[] = {
    {"relu2", BITNET__RELU2}, {"silu", BITNET__SILU}, {"swish", BITNET__SILU},
    {"swiglu", BITNET__SILU}, {"gelu_pytorch_tanh", BITNET__GELU}
};

/* The linear layers and the norms of a layer. A linear layer's own norm in front has its number.
   With experts the matrices of the FFN are those of all experts, one below the other. */
enum {
    BITNET__ATTN_Q, BITNET__ATTN_K, BITNET__ATTN_V, BITNET__ATTN_OUTPUT, BITNET__FFN_GATE,
    BITNET__FFN_UP, BITNET__FFN_DOWN, BITNET__GDN_QKV, BITNET__GDN_GATE, BITNET__GDN_ALPHA,
    BITNET__GDN_BETA, BITNET__GDN_OUT, BITNET__LINEARS,
    BITNET__ATTN_NORM = BITNET__LINEARS, BITNET__FFN_NORM, BITNET__Q_HEAD_NORM, BITNET__K_HEAD_NORM,
    BITNET__POST_ATTN_NORM, BITNET__POST_FFN_NORM, BITNET__GDN_CONV, BITNET__GDN_DT, BITNET__GDN_A,
    BITNET__GDN_NORM, BITNET__NORMS    /* those of GDN are no norms, but vectors like them */
};

struct bitnet__step;

/* A kind of layer: a row of bitnet__layer_kinds. What a sequence keeps of its tokens is keys and
   values for each position, which can be cut back to any earlier one, or a fixed number of floats,
   which cannot: see marks in @context. */
typedef struct bitnet__layer_kind {
    int sets;                          /* its tensors: those of these BITNET__..._SETs */
    int caches;                        /* 1: it keeps a key and a value for each position */
    size_t (*n_state)(const bitnet_model *m);          /* floats for a sequence; 0: none */
    void (*forward)(struct bitnet__step *s, int32_t i);    /* layer number i of a batch */
} bitnet__layer_kind;

typedef struct bitnet__layer {
    const bitnet__layer_kind *kind;
    int32_t cache;                     /* its number among those that cache */
    size_t state;                      /* where its floats begin in the state of a sequence */
    const float *norm[BITNET__NORMS];  /* gains; 0: the layer has none there */
    int32_t window;                    /* positions that it sees; 0: all */
    int32_t rope;                      /* its frequencies, of rope_freq; -1: it has no RoPE */
    float clamp;                       /* of its experts' gate and up; 0: there is none */
    const uint8_t *router;             /* [n_experts][dim] F32, little-endian; 0: no experts */
    bitnet__linear linear[BITNET__LINEARS];
    uint32_t zeros;                    /* bit k: all weights of linear[k] are 0 */
} bitnet__layer;

/* A value of the file for each layer: that of layer i is at + i * step. at 0: there is none. */
typedef struct bitnet__per_layer { const uint8_t *at; int32_t step; } bitnet__per_layer;

typedef struct bitnet__allocation {    /* header of everything the model allocates */
    struct bitnet__allocation *next;
    uint64_t size;
} bitnet__allocation;

struct bitnet_model {
    bitnet_model_params params;
    bitnet__gguf gguf;
    bitnet__allocation *allocations;
    bitnet_kernels kernels;            /* a copy of the chosen table */
    bitnet__vocab vocab;
    bitnet__layer *layers;             /* [n_layers] */
    int32_t n_caches;                  /* layers that cache */
    size_t n_state;                    /* floats that all layers keep for a sequence */
    const float *output_norm;          /* [dim], divided by scales.logit */
    bitnet__matrix embed, head;        /* [n_vocab][dim]; the same data if they are tied; head.data
                                          0: a model of embeddings, which has none */
    const double *rope_freq[2];        /* [n_rot / 2] radians a position; [1]: of layers that slide;
                                          0: no layer has these */
    const double *rope_long;           /* the same as [0], for contexts of more than rope_original
                                          positions; 0: there is none. See bitnet__rope_of */
    const bitnet__family *family;
    bitnet_chat_template chat;         /* vocab.chat, if it is not 0 */
    char arch[32];
    int32_t n_vocab, n_layers, dim, ffn_dim, n_heads, n_kv_heads, head_dim, n_rot, n_ctx;
    int32_t heads_per_kv;              /* n_heads / n_kv_heads: query heads that share a KV head */
    int32_t q_dim, kv_dim;             /* n_heads * head_dim, n_kv_heads * head_dim */
    int32_t norm_dim;                  /* 1: rows of a norm */
    /* Of gated delta nets; n_taps 0: there are none. Queries, keys and values of a token are
       n_channels numbers, and a convolution sees those of the last n_taps tokens. A value head has
       the key head of its number % n_key_heads. */
    int32_t n_taps, n_key_heads, n_value_heads, state_dim;
    int32_t n_channels, value_dim;     /* state_dim * all heads, and * n_value_heads */
    int32_t q_rows;                    /* of attn_q: q_dim, or 2 q_dim with gates behind queries */
    int32_t full_interval;             /* each layer of this number has attention, unless ... */
    const bitnet__key *recurrent;      /* ... a list says which have not */
    int32_t n_experts, n_used;         /* of a layer, and for a token; 0: layers have an FFN */
    int32_t experts_ffn, experts_dim;  /* n_experts * ffn_dim, n_experts * dim */
    int32_t window;                    /* positions that a sliding layer sees; 0: no layer slides */
    int32_t embeds;                    /* 1: the file has a pooling_type: it is for embeddings */
    int32_t pooling;                   /* BITNET_POOLING_*; 0: the file names none */
    float eps, freq_base, rope_factor; /* rope_factor divides positions: 1, or a scaling's */
    double rope_length;                /* of (cosine, sine): 1, or YaRN's */
    int32_t rope_original;             /* longrope's; 0: no longrope */
    float score_scale;                 /* of the scores of attention: 1 / sqrt(head_dim) */
    struct { float embedding, residual, logit; } scales;   /* as the file has them, or 1 */
    float embed_scale;                 /* multiplies the embedding: see load_scales */
    float gate_a, gate_b;              /* the family's, or those of the gate that the file names */
    float slide_base;                  /* freq_base of the layers that slide */
    bitnet__per_layer slides, clamps;  /* bools (0: slide_except says it) and F32 of the file */
    struct { int32_t original; float beta_fast, beta_slow; } yarn;     /* original 0: no YaRN */
    int32_t group;                     /* the smallest scale group; 0: there are none */
    int32_t tied;                      /* 1: the head is the embedding */
    bitnet__linear ternary_head;       /* group 0: the head is of another type */
    bitnet__turn embed_turn, head_turn;
    struct bitnet__fold *fold;         /* while the model is loaded; 0: no weights are folded */
    int turns;                         /* 1: some linear layer's input is turned */
    struct bitnet__head_copy *copy;    /* of the head, in 6 bits; see @head */
    uint64_t n_params, own_bytes;
    uint64_t bytes_read;               /* of tensors, for progress */
    uint64_t identity;                 /* a hash; see bitnet__model_identity */
    bitnet__atomic n_users;            /* its contexts, and 1 until bitnet_model_free */
    struct bitnet__team *team;         /* while the model is loaded; 0: one thread */
};

static const bitnet__vocab *bitnet__vocab_of(const bitnet_model *m) { return &m->vocab; }
static const bitnet_allocator *bitnet__allocator_of(const bitnet_model *m) {
    return &m->params.allocator;
}

/* What @head gives to the sections before it. bitnet__head_copy_bytes returns the bytes that the
   copy has now; *bytes_of_copy are those that it will have. */
typedef struct bitnet__head bitnet__head;
static struct bitnet__head_copy *bitnet__head_copy_create(bitnet_model *m);
static uint64_t bitnet__head_copy_bytes(const bitnet_model *m, uint64_t *bytes_of_copy);
static void bitnet__head_copy_free(const bitnet_model *m);
static uint64_t bitnet__head_bytes(const bitnet_model *m, const bitnet_ctx_params *p);
static bitnet_result bitnet__head_create(bitnet_ctx *c, bitnet_error *err);
static void bitnet__head_forget(bitnet__head *t);

/* Memory that lives as long as the model, 64-byte aligned. */
static void *bitnet__model_alloc(bitnet_model *m, uint64_t size) {
    bitnet__allocation *b = 0;
    if (size < SIZE_MAX - 64)
        b = (bitnet__allocation *)bitnet__alloc(&m->params.allocator, (size_t)size + 64);
    if (!b) return 0;
    b->next = m->allocations;
    b->size = size;
    m->allocations = b;
    m->own_bytes += size + 64;
    return (char *)b + 64;
}

/* Gives memory back early: an allocation of the model's, or pages of the mapped file, which the
   system can read again. Memory of the caller's is left alone. */
static void bitnet__model_release(bitnet_model *m, const uint8_t *p, size_t size) {
    bitnet__allocation **link = &m->allocations, *b;
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
    if (m->params.log_fn) m->params.log_fn(m->params.log_ud, level, text);
}

static bitnet_result bitnet__progress(bitnet_model *m, uint64_t done, bitnet_error *err) {
    if (!m->params.progress_fn ||
        !m->params.progress_fn(m->params.progress_ud, done, m->gguf.src.size))
        return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_CANCELLED, "loading was cancelled");
}

/* =============================================================================================
   @weights  from tensors to the matrices that kernels read: looked up, checked, packed
   ============================================================================================= */

/* ---- tensors ---- */

/* The error for a type that cannot be used here; what: the types that can. */
static bitnet_result bitnet__refuse_type(const char *name, const bitnet__tensor *t,
                                         const char *what, bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED,
                        "tensor '%s' at offset %llu: unsupported tensor type %u (%s); %s", name,
                        (unsigned long long)t->offset, (unsigned)t->type,
                        t->info ? t->info->name : "unknown", what);
}

/* Finds the tensor called name, which must be [n_rows][n_cols]. */
static bitnet_result bitnet__want_tensor(bitnet_model *m, const char *name, int32_t n_cols,
                                         int32_t n_rows, const bitnet__tensor **out,
                                         bitnet_error *err) {
    const bitnet__tensor *t = bitnet__find_tensor(&m->gguf, name);
    bitnet_result r;
    *out = t;
    if (!t) return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is missing", name);
    if (!t->info || (t->size == 0 && !t->info->block))
        return bitnet__refuse_type(name, t, t->info ? "it cannot have this shape" :
                                   "no such type is known", err);
    if ((r = bitnet__check_shape(name, t->info, t->dims[0], t->dims[1], err))) return r;
    if (t->dims[0] != (uint64_t)n_cols || t->dims[1] != (uint64_t)n_rows)
        return bitnet__fail(err, BITNET_ERR_FORMAT,
                            "tensor '%s' is %llu x %llu; the metadata wants %d x %d", name,
                            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                            (int)n_cols, (int)n_rows);
    if (t->stored_type == BITNET_TENSOR_Q2_0 && m->gguf.q2_0_unclear)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' (Q2_0): its data could be blocks "
                            "of 64 weights or of 128; set q2_0_block", name);
    m->gguf.tensors[t - m->gguf.tensors].used = 1;
    return BITNET_OK;
}

/* Reads a byte of each page, so that all are in memory. */
static void bitnet__touch(const uint8_t *p, size_t n) {
    const volatile uint8_t *page = p;
    size_t at;
    for (at = 0; at < n; at += 4096) (void)page[at];
}

/* The tensor's bytes: in place, or read through the callbacks; in slices of 4 MB where they are
   read. */
static bitnet_result bitnet__tensor_bytes(bitnet_model *m, const bitnet__tensor *t,
                                          const uint8_t **out, bitnet_error *err) {
    const bitnet__source *src = &m->gguf.src;
    char title[BITNET__TEXT];
    uint64_t done, n;
    uint8_t *p = 0;
    bitnet_result r = BITNET_OK;
    if (!src->io.read_fn) {
        *out = src->data + t->offset;
        if (!m->params.prefault) {
            m->bytes_read += t->size;
            return BITNET_OK;
        }
    } else *out = p = (uint8_t *)bitnet__model_alloc(m, t->size);
    bitnet__format(title, "tensor '%.*s'", (int)t->name.len, (const char *)src->data + t->name.at);
    if (!*out)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %s (%llu bytes)", title,
                            (unsigned long long)t->size);
    for (done = 0; done < t->size && r == BITNET_OK; done += n) {
        n = t->size - done < 4194304 ? t->size - done : 4194304;
        m->bytes_read += n;
        if (p) r = bitnet__source_read(src, title, t->offset + done, p + done, (size_t)n, err);
        else bitnet__touch(*out + done, (size_t)n);
        if (r == BITNET_OK) r = bitnet__progress(m, m->gguf.data_start + m->bytes_read, err);
    }
    return r;
}

/* Loads a matrix that is unpacked to floats; only_floats 1: it must be F32, F16 or BF16. */
static bitnet_result bitnet__load_matrix(bitnet_model *m, const char *name, int32_t n_cols,
                                         int32_t n_rows, int only_floats, bitnet__matrix *out,
                                         bitnet_error *err) {
    const bitnet__tensor *t;
    bitnet_result r = bitnet__want_tensor(m, name, n_cols, n_rows, &t, err);
    if (r != BITNET_OK) return r;
    if (only_floats && !bitnet__is_float(t->type))
        return bitnet__refuse_type(name, t, "a norm needs F32, F16 or BF16", err);
    if (!bitnet__has_floats(t->info))
        return bitnet__refuse_type(name, t, bitnet__needs_floats, err);
    out->type = t->type;
    out->n_cols = n_cols;
    out->n_rows = n_rows;
    out->row_bytes = (size_t)(t->size / (uint64_t)n_rows);
    m->n_params += (uint64_t)n_cols * (uint64_t)n_rows;
    return bitnet__tensor_bytes(m, t, &out->data, err);
}

/* Loads rows of n floats as F32. An element that is not finite would make every later result so. */
static bitnet_result bitnet__load_vectors(bitnet_model *m, const char *name, int32_t n,
                                          int32_t rows, const float **out, bitnet_error *err) {
    bitnet__matrix a;
    float *p;
    int32_t i, k;
    bitnet_result r = bitnet__load_matrix(m, name, n, rows, 1, &a, err);
    if (r != BITNET_OK) return r;
    *out = p = (float *)bitnet__model_alloc(m, (uint64_t)n * (uint64_t)rows * sizeof *p);
    if (!p) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for tensor '%s'", name);
    for (k = 0; k < rows; k++, p += n) {
        bitnet__matrix_row(&a, k, p);
        for (i = 0; i < n; i++)
            if ((bitnet__float_bits(p[i]) & 0x7f800000u) == 0x7f800000u)
                return bitnet__fail(err, BITNET_ERR_FORMAT, "element %lld of tensor '%s' is not "
                                    "finite", (long long)k * n + i, name);
    }
    return BITNET_OK;
}

/* Loads a vector of n gains. */
static bitnet_result bitnet__load_norm(bitnet_model *m, const char *name, int32_t n,
                                       const float **out, bitnet_error *err) {
    return bitnet__load_vectors(m, name, n, 1, out, err);
}

static bitnet_result bitnet__check_scale(const char *name, float scale, bitnet_error *err) {
    if (scale > 0.0f && scale <= 1e30f) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FORMAT, "the scale of tensor '%s' is %g, which is not "
                        "positive and at most 1e30", name, (double)scale);
}

/* Loads a tensor's scale: the first F32 after the codes, or, as older converters wrote it, a tensor
   of its own. The scales of types in blocks are multiplied by that tensor's, or by 1. */
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
        if ((r = bitnet__want_tensor(m, scale_name, 1, 1, &s, err))) return r;
        if (s->type != BITNET_TENSOR_F32)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' is not F32", scale_name);
        if ((r = bitnet__tensor_bytes(m, s, &p, err))) return r;
        break;
    }
    *out = p ? bitnet__load_f32(p) : 1.0f;
    return bitnet__check_scale(name, *out, err);
}

/* What the file says of folded weights: see "folded weights" in @load. */
typedef struct bitnet__fold {
    int32_t block;
    float scale;                       /* 1 / sqrt(block) */
    int is_explicit, regroups, is_tied;
    bitnet__strings names, inverse;    /* of the tensors */
    int32_t n_widths;
    struct { int32_t n; float *signs; } widths[BITNET__MAX_WIDTHS];
} bitnet__fold;

static int bitnet__is_listed(const bitnet__strings *list, const char *name) {
    const size_t n = strlen(name);
    const uint8_t *p = list->data;
    uint64_t i;
    for (i = 0; i < list->count; i++) {
        const uint64_t size = bitnet__get_u64(p);
        if (size == n && !memcmp(p + 8, name, n)) return 1;
        p += 8 + size;
    }
    return 0;
}

/* The turn of inputs of n floats. Without explicit signs all are 1. */
static bitnet_result bitnet__make_turn(bitnet_model *m, const char *name, int32_t n,
                                       bitnet__turn *turn, bitnet_error *err) {
    bitnet__fold *f = m->fold;
    int32_t w, i;
    if (n % f->block)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is folded in blocks of %d, but "
                            "has %d columns", name, (int)f->block, (int)n);
    for (w = 0; w < f->n_widths && f->widths[w].n != n; w++) {}
    if (w == f->n_widths) {
        if (f->is_explicit || w == BITNET__MAX_WIDTHS)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is folded, but GGUF key "
                                "'prism.hadamard.sign_widths' has no width %d", name, (int)n);
        f->widths[w].n = n;
        f->widths[w].signs = (float *)bitnet__model_alloc(m, (uint64_t)n * sizeof(float));
        if (!f->widths[w].signs)
            return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for signs of %d", (int)n);
        for (i = 0; i < n; i++) f->widths[w].signs[i] = f->scale;
        f->n_widths++;
    }
    turn->block = f->block;
    turn->signs = f->widths[w].signs;
    m->turns = 1;
    return BITNET_OK;
}

/* The turn of a matrix's input; none if it is not folded. */
static bitnet_result bitnet__fold_turn(bitnet_model *m, const char *name, int32_t n,
                                       bitnet__turn *turn, bitnet_error *err) {
    if (!m->fold || !bitnet__is_listed(&m->fold->names, name)) return BITNET_OK;
    turn->regroups = m->fold->regroups && strstr(name, ".ssm_out.") != 0;
    return bitnet__make_turn(m, name, n, turn, err);
}

static bitnet_result bitnet__load_linear(bitnet_model *m, const char *name, int32_t n_in,
                                         int32_t n_out, bitnet__linear *l, bitnet_error *err) {
    const bitnet__tensor *t;
    bitnet_result r = bitnet__want_tensor(m, name, n_in, n_out, &t, err);
    int floats;
    if (r != BITNET_OK) return r;
    floats = bitnet__is_float(t->type) && (m->family->norms & BITNET__ANY_FLOATS);
    if (!floats && !bitnet__is_ternary(t->info))
        return bitnet__refuse_type(name, t, bitnet__needs_ternary, err);
    memset(l, 0, sizeof *l);
    l->file.type = t->type;
    l->file.n = n_in;
    l->file.rows = n_out;
    if ((r = bitnet__fold_turn(m, name, n_in, &l->turn, err))) return r;
    if (floats) {
        l->plan = BITNET__IN_FLOATS;
        l->n_in = n_in;
        l->n_out = n_out;
        l->scale = 1.0f;
        m->n_params += (uint64_t)n_in * (uint64_t)n_out;
        return bitnet__tensor_bytes(m, t, &l->w, err);
    }
    l->file.i2s_packing = m->params.i2s_packing;
    if (t->type == BITNET_TENSOR_TL1 || t->type == BITNET_TENSOR_TL2)
        l->file.tile = bitnet__tile_for(&m->params, n_out, n_in);
    if ((r = bitnet_ternary_check(&l->file, name, err))) return r;
    if (n_in < 64)                     /* padded to 128, they would take too much memory */
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' has rows of %d weights; at "
                            "least 64 are supported", name, (int)n_in);
    l->n_in = bitnet__padded_row(n_in);
    l->n_out = n_out;
    m->n_params += (uint64_t)n_in * (uint64_t)n_out;
    if ((r = bitnet__tensor_bytes(m, t, &l->w, err)) ||
        (r = bitnet__load_scale(m, name, t, l->w, &l->scale, err))) return r;
    return bitnet__check_padding(&l->file, name, l->w, t->size, err);
}

/* ---- checking and packing ---- */

static bitnet_result bitnet__no_groups(const char *name, uint32_t type, bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' (%s) has a scale for each block, "
                        "which BITNET_NO_GROUPS left out of this build", name,
                        bitnet__type_info(type)->name);
}

/* Each block of a matrix becomes a scale group, if it has blocks. */
static void bitnet__set_group(bitnet__linear *l) {
    const bitnet__type *type = bitnet__type_info(l->file.type);
    l->group = type->block;
    l->blocks = type->groups;
    if (l->group > 0) l->n_in = l->file.n;
}

typedef struct bitnet__packing {
    const bitnet_model *m;
    bitnet__linear *linear;
    uint8_t *out, *rows;               /* rows: [jobs][row_room], unpacked, not yet packed */
    size_t row_room;                   /* for `unit` rows */
    int jobs, unit;                    /* unit: rows handled together, a multiple of pack_rows */
    bitnet__unpacked found[BITNET__MAX_PACKERS];
} bitnet__packing;

/* The plan for a matrix, which is decided here and nowhere else. A table with pack reads what pack
   makes, a table without it rows of I2_S. But blocks are alike for all tables, except digits. From
   PTQ1_0 blocks of PQ2_0 are made where digits take longer to multiply than the codes' additional
   0.375 bits to read: for packs of x86, and in WebAssembly, where a column of digits took 2.5 times
   as long (Node 20). */
static bitnet__plan bitnet__choose_plan(const bitnet_model *m, bitnet__linear *l) {
    const bitnet_kernels *k = &m->kernels;
    const bitnet_ternary *t = &l->file;
    const int padded = t->n != l->n_in;
    const int packs = k->pack_groups && !m->params.in_place;
    if (bitnet__has_groups(l) && !l->blocks->bits && (packs || BITNET__ARCH_WASM))
        l->blocks = BITNET__IN_BLOCKS(pq2_0);
    if (bitnet__has_groups(l))
        return packs ? BITNET__TO_PACKS
               : bitnet__type_info(t->type)->bytes == l->blocks->bytes ? BITNET__AS_IT_IS
                                                                       : BITNET__TO_BLOCKS;
    if (t->type == BITNET_TENSOR_TL2_R16 && bitnet__reads_tl2_r16(k) && !padded)
        return BITNET__AS_IT_IS;
    if (t->type == BITNET_TENSOR_I2_S && t->i2s_packing == BITNET_I2S_128 && !padded)
        return k->pack ? BITNET__PACKED : BITNET__AS_IT_IS;
    return BITNET__UNPACKED;
}

/* The bytes of a layer's first rows, as kernels read them. */
static size_t bitnet__linear_bytes(const bitnet_kernels *k, const bitnet__linear *l, int32_t rows) {
    if (!bitnet__has_groups(l)) return k->packed_bytes(l->n_in, rows);
    if (l->plan == BITNET__TO_PACKS) rows = (rows + 15) / BITNET__PACK_ROWS * BITNET__PACK_ROWS;
    return bitnet__blocks_bytes(l->blocks, l->n_in, rows);
}

/* Checks and packs rows [row, row + n_rows) of blocks, for job number `job`. */
static void bitnet__pack_rows(const bitnet__packing *p, int job, int32_t row, int32_t n_rows,
                              bitnet__unpacked *u) {
    const bitnet_kernels *k = &p->m->kernels;
    const bitnet__linear *l = p->linear;
    const size_t row_bytes = bitnet__blocks_bytes(l->blocks, l->n_in, 1);
    const uint8_t *w = l->w + (size_t)row * row_bytes;
    uint8_t *out = p->out + bitnet__linear_bytes(k, l, row), *room;
    int32_t r;
    if (bitnet__type_info(l->file.type)->bytes != l->blocks->bytes) {
        room = p->rows + (size_t)job * p->row_room;
        if (!bitnet__repack_blocks(&l->file, l->w, row, n_rows, l->blocks, room, u)) return;
        w = room;
    } else if (!bitnet__check_blocks(&l->file, l->w, row, n_rows, u)) return;
    for (r = 0; r < n_rows; r += BITNET__PACK_ROWS) {
        const int32_t rows = n_rows - r < BITNET__PACK_ROWS ? n_rows - r : BITNET__PACK_ROWS;
        k->pack_groups(l->blocks, w, l->n_in, rows, out);
        w += BITNET__PACK_ROWS * row_bytes;
        out += BITNET__PACK_ROWS * row_bytes;
    }
}

/* Carries out the plan for a share of the rows, and checks them. */
static void bitnet__pack_job(void *arg, int i, int thread) {
    bitnet__packing *p = (bitnet__packing *)arg;
    const bitnet_kernels *k = &p->m->kernels;
    const bitnet__linear *l = p->linear;
    const bitnet_ternary *t = &l->file;
    const int64_t units = (l->n_out + p->unit - 1) / p->unit;
    int32_t from = (int32_t)(units * i / p->jobs) * p->unit;
    int32_t to = (int32_t)(units * (i + 1) / p->jobs) * p->unit;
    bitnet__unpacked *u = &p->found[i];
    (void)thread;
    if (to > l->n_out) to = l->n_out;
    for (u->invalid = 0; from < to && !u->invalid; from += p->unit) {
        const int32_t count = to - from < p->unit ? to - from : p->unit;
        const size_t at = bitnet__linear_bytes(k, l, from);
        const size_t i2s_at = bitnet__i2s_bytes(l->n_in, from);
        uint8_t *rows;
        int suspect = 0;               /* look again, row by row: it is slow and finds the place */
        switch (l->plan) {
            case BITNET__IN_FLOATS: break;
            case BITNET__ONLY_CHECKED: suspect = 1; break;
            case BITNET__AS_IT_IS:
                if (bitnet__has_groups(l)) bitnet__check_blocks(t, l->w, from, count, u);
                else if (t->type == BITNET_TENSOR_TL2_R16)
                    suspect = bitnet__any_bad_triple(t, l->w, from, count);
                else suspect = bitnet__any_code_3(l->w + i2s_at, bitnet__i2s_bytes(l->n_in, count));
                break;
            case BITNET__TO_BLOCKS:
                bitnet__repack_blocks(t, l->w, from, count, l->blocks, p->out + at, u);
                break;
            case BITNET__TO_PACKS:
                bitnet__pack_rows(p, i, from, count, u);
                break;
            case BITNET__PACKED:       /* pack fails if it meets an invalid code */
                suspect = k->pack(l->w + i2s_at, l->n_in, count, p->out + at);
                break;
            case BITNET__UNPACKED:
                rows = k->pack ? p->rows + (size_t)i * p->row_room : p->out + at;
                if (bitnet__repack_rows(t, l->w, from, count, rows, u) && k->pack)
                    suspect = k->pack(rows, l->n_in, count, p->out + at);
                break;
        }
        if (suspect) bitnet__check_rows(t, l->w, from, count, u);
    }
}

/* Checks and packs p->linear, and reports the first error in the order of rows, so that it does not
   depend on the number of jobs. Then it checks the scale, which may include that of the blocks. */
static bitnet_result bitnet__pack_linear(bitnet_model *m, bitnet__packing *p, const char *name,
                                         bitnet_error *err) {
    bitnet__linear *l = p->linear;
    int i;
    if (p->jobs > 1) bitnet__team_run(m->team, p->jobs, bitnet__pack_job, p);
    else bitnet__pack_job(p, 0, 0);
    for (i = 0; i < p->jobs; i++)
        if (p->found[i].invalid)
            return bitnet__fail_unpacked(&l->file, name, &p->found[i], err);
    if (bitnet__check_scale(name, l->scale, err)) return BITNET_ERR_FORMAT;
    if (l->plan == BITNET__ONLY_CHECKED || l->plan == BITNET__AS_IT_IS) return BITNET_OK;
    bitnet__model_release(m, l->w,
                          (size_t)bitnet__tensor_size(bitnet__type_info(l->file.type),
                                                      (uint64_t)l->file.n, (uint64_t)l->file.rows));
    l->w = p->out;
    l->in_packs = l->plan == BITNET__TO_PACKS;
    p->out += (bitnet__linear_bytes(&m->kernels, l, l->n_out) + 63) / 64 * 64;
    return BITNET_OK;
}

/* The tensors of a layer: linear layers, and norms. */
typedef struct bitnet__layer_tensor {
    const char *name;
    int set;                           /* kinds of layers that have it: one of the sets below */
    int norms;                         /* families that have it: BITNET__SUB_NORMS ...; 0: all */
    int linear, norm;                  /* its number; -1: it is of another kind; both: the router */
    size_t n_in, n_out;                /* where in bitnet_model its size is */
    const char *suffix;                /* behind its name */
} bitnet__layer_tensor;

enum {
    BITNET__QKV_SET = 1, BITNET__GATED_SET = 2, BITNET__GDN_SET = 4, BITNET__FFN_SET = 8,
    BITNET__EXPERT_SET = 16, BITNET__POST_SET = 32,        /* POST: post_attention_norm */
    BITNET__ATTN_SET = BITNET__QKV_SET | BITNET__GATED_SET,
    BITNET__MIXER_SET = BITNET__ATTN_SET | BITNET__GDN_SET,
    BITNET__ALONE_SET = 64             /* ffn_norm */
};

#define BITNET__DIM(name) offsetof(bitnet_model, name)
#define BITNET__A_LINEAR(set, name, i, n_in, n_out) \
    {name, BITNET__##set##_SET, 0, i, -1, BITNET__DIM(n_in), BITNET__DIM(n_out), ".weight"}
#define BITNET__A_NORM(set, name, norms, i, n_in) \
    {name, BITNET__##set##_SET, norms, -1, i, BITNET__DIM(n_in), BITNET__DIM(norm_dim), ".weight"}
static const bitnet__layer_tensor bitnet__layer_tensors[] = {
    BITNET__A_NORM(MIXER, "attn_norm", 0, BITNET__ATTN_NORM, dim),
    BITNET__A_NORM(ATTN, "attn_q_norm_in", BITNET__IN_NORMS, BITNET__ATTN_Q, dim),
    BITNET__A_NORM(ATTN, "attn_k_norm_in", BITNET__IN_NORMS, BITNET__ATTN_K, dim),
    BITNET__A_NORM(ATTN, "attn_v_norm_in", BITNET__IN_NORMS, BITNET__ATTN_V, dim),
    BITNET__A_NORM(ATTN, "attn_q_norm", BITNET__HEAD_NORMS, BITNET__Q_HEAD_NORM, head_dim),
    BITNET__A_NORM(ATTN, "attn_k_norm", BITNET__HEAD_NORMS, BITNET__K_HEAD_NORM, head_dim),
    BITNET__A_NORM(ATTN, "attn_sub_norm", BITNET__SUB_NORMS, BITNET__ATTN_OUTPUT, q_dim),
    BITNET__A_NORM(ATTN, "attn_output_norm_in", BITNET__IN_NORMS, BITNET__ATTN_OUTPUT, q_dim),
    BITNET__A_NORM(ATTN, "post_attention_norm", BITNET__POST_NORMS, BITNET__POST_ATTN_NORM, dim),
    BITNET__A_NORM(POST, "post_attention_norm", 0, BITNET__FFN_NORM, dim),
    BITNET__A_NORM(ALONE, "ffn_norm", 0, BITNET__FFN_NORM, dim),
    BITNET__A_NORM(FFN, "ffn_gate_norm_in", BITNET__IN_NORMS, BITNET__FFN_GATE, dim),
    BITNET__A_NORM(FFN, "ffn_up_norm_in", BITNET__IN_NORMS, BITNET__FFN_UP, dim),
    BITNET__A_NORM(FFN, "ffn_sub_norm", BITNET__SUB_NORMS, BITNET__FFN_DOWN, ffn_dim),
    BITNET__A_NORM(FFN, "ffn_down_norm_in", BITNET__IN_NORMS, BITNET__FFN_DOWN, ffn_dim),
    BITNET__A_NORM(FFN, "post_ffw_norm", BITNET__POST_NORMS, BITNET__POST_FFN_NORM, dim),
    BITNET__A_LINEAR(ATTN, "attn_q", BITNET__ATTN_Q, dim, q_rows),
    BITNET__A_LINEAR(ATTN, "attn_k", BITNET__ATTN_K, dim, kv_dim),
    BITNET__A_LINEAR(ATTN, "attn_v", BITNET__ATTN_V, dim, kv_dim),
    BITNET__A_LINEAR(ATTN, "attn_output", BITNET__ATTN_OUTPUT, q_dim, dim),
    BITNET__A_LINEAR(FFN, "ffn_gate", BITNET__FFN_GATE, dim, ffn_dim),
    BITNET__A_LINEAR(FFN, "ffn_up", BITNET__FFN_UP, dim, ffn_dim),
    BITNET__A_LINEAR(FFN, "ffn_down", BITNET__FFN_DOWN, ffn_dim, dim),
    BITNET__A_LINEAR(GDN, "attn_qkv", BITNET__GDN_QKV, dim, n_channels),
    BITNET__A_LINEAR(GDN, "attn_gate", BITNET__GDN_GATE, dim, value_dim),
    BITNET__A_LINEAR(GDN, "ssm_alpha", BITNET__GDN_ALPHA, dim, n_value_heads),
    BITNET__A_LINEAR(GDN, "ssm_beta", BITNET__GDN_BETA, dim, n_value_heads),
    BITNET__A_LINEAR(GDN, "ssm_out", BITNET__GDN_OUT, value_dim, dim),
    {"ssm_conv1d", BITNET__GDN_SET, 0, -1, BITNET__GDN_CONV, BITNET__DIM(n_taps),
     BITNET__DIM(n_channels), ".weight"},
    {"ssm_dt", BITNET__GDN_SET, 0, -1, BITNET__GDN_DT, BITNET__DIM(n_value_heads),
     BITNET__DIM(norm_dim), ".bias"},
    {"ssm_a", BITNET__GDN_SET, 0, -1, BITNET__GDN_A, BITNET__DIM(n_value_heads),
     BITNET__DIM(norm_dim), ""},
    BITNET__A_NORM(GDN, "ssm_norm", 0, BITNET__GDN_NORM, state_dim),
    BITNET__A_LINEAR(EXPERT, "ffn_gate_inp", -1, dim, n_experts),
    BITNET__A_LINEAR(EXPERT, "ffn_gate_exps", BITNET__FFN_GATE, dim, experts_ffn),
    BITNET__A_LINEAR(EXPERT, "ffn_up_exps", BITNET__FFN_UP, dim, experts_ffn),
    BITNET__A_LINEAR(EXPERT, "ffn_down_exps", BITNET__FFN_DOWN, ffn_dim, experts_dim),
};
#undef BITNET__DIM
#undef BITNET__A_LINEAR
#undef BITNET__A_NORM
enum { BITNET__LAYER_TENSORS = sizeof bitnet__layer_tensors / sizeof bitnet__layer_tensors[0] };

static void bitnet__forward_layer(struct bitnet__step *s, int32_t i);
static void bitnet__forward_expert_layer(struct bitnet__step *s, int32_t i);
static void bitnet__forward_gdn_layer(struct bitnet__step *s, int32_t i);

/* Is layer number i a gated delta net? A list of the file says it, which bitnet__load_hybrid has
   checked, or else the interval. */
static int bitnet__is_recurrent(const bitnet_model *m, int32_t i) {
    const bitnet__key *k = m->recurrent;
    const uint8_t *p = k ? bitnet__value_of(&m->gguf, k) : 0;
    uint64_t v = 0;
    if (!k) return (i + 1) % m->full_interval != 0;
    bitnet__value_integer(k->element, p + (size_t)i * bitnet__value_size(k->element), &v);
    return v != 0;
}

/* The floats of a gated delta net: S of all value heads, then the inputs of its convolution. */
static size_t bitnet__gdn_state(const bitnet_model *m) {
    return (size_t)m->value_dim * (size_t)m->state_dim +
           (size_t)(m->n_taps - 1) * (size_t)m->n_channels;
}

/* The kinds of layers. A new one touches these places:
     @model    numbers for its matrices and norms, behind the others in their enum; fields for the
               sizes that it needs, which bitnet__load_shape reads
     here      its tensors in bitnet__layer_tensors, those that other kinds lack in a set of their
               own; its row; bitnet__kind_of; in bitnet__choose_groups, which of its matrices read
               the same; in bitnet__pack_layer, passing over the matrices that it lacks
     @context  room for what its steps compute: bitnet_ctx, bitnet__ctx_layout
     @forward  its function. A recurrent layer has other steps in place of attention, and reads and
               writes bitnet__seq_state
   Pages, copies, cutting, marks, drafts, failures and saved sequences need no change: they use
   n_caches and n_state. But a recurrent layer gives its state to the marks of tokens. */
static const bitnet__layer_kind bitnet__layer_kinds[] = {
    {BITNET__QKV_SET | BITNET__ALONE_SET | BITNET__FFN_SET, 1, 0, bitnet__forward_layer},
    {BITNET__QKV_SET | BITNET__ALONE_SET | BITNET__EXPERT_SET, 1, 0, bitnet__forward_expert_layer},
    {BITNET__GATED_SET | BITNET__POST_SET | BITNET__FFN_SET, 1, 0, bitnet__forward_layer},
    {BITNET__GDN_SET | BITNET__POST_SET | BITNET__FFN_SET, 0, bitnet__gdn_state,
     bitnet__forward_gdn_layer},
};

/* The kind of layer number i. Only hybrid networks have layers of different kinds. */
static const bitnet__layer_kind *bitnet__kind_of(const bitnet_model *m, int32_t i) {
    const int norms = m->family->norms;
    if (norms & BITNET__HYBRID) return &bitnet__layer_kinds[bitnet__is_recurrent(m, i) ? 3 : 2];
    return &bitnet__layer_kinds[(norms & BITNET__EXPERTS) != 0];
}

/* The layers get their kinds in order. */
static void bitnet__set_kind(bitnet_model *m, bitnet__layer *l, const bitnet__layer_kind *kind) {
    l->kind = kind;
    l->cache = m->n_caches;
    l->state = m->n_state;
    m->n_caches += kind->caches;
    m->n_state += kind->n_state ? kind->n_state(m) : 0;
}

static int bitnet__has_tensor(const bitnet_model *m, const bitnet__layer_kind *kind,
                              const bitnet__layer_tensor *t) {
    return (kind->sets & t->set) && (!t->norms || (m->family->norms & t->norms));
}

/* A size of the model's, by where it is in bitnet_model. */
static int32_t bitnet__tensor_dim(const bitnet_model *m, size_t at) {
    return *(const int32_t *)(const void *)((const char *)m + at);
}

/* The name of a linear layer; layer -1: the head. */
static void bitnet__linear_name(const bitnet_model *m, int32_t layer, int linear, char *name) {
    const bitnet__layer_tensor *t = bitnet__layer_tensors;
    if (layer < 0) {
        bitnet__format(name, m->tied ? "token_embd.weight" : "output.weight");
        return;
    }
    while (t->linear != linear || !(t->set & bitnet__kind_of(m, layer)->sets)) t++;
    bitnet__format(name, "blk.%d.%s.weight", (int)layer, t->name);
}

/* 1 if the matrix is there and not of floats. */
static int bitnet__has_codes(const bitnet__linear *l) {
    return l->file.rows > 0 && !bitnet__in_floats(l);
}

/* Checks the codes of a layer's matrices, or with i -1 of the head, on all CPUs, and packs what
   needs it into one allocation. */
static bitnet_result bitnet__pack_layer(bitnet_model *m, int32_t i, bitnet_error *err) {
    bitnet__linear *linear = i < 0 ? &m->ternary_head : m->layers[i].linear;
    const int n = i < 0 ? 1 : BITNET__LINEARS;
    const bitnet_kernels *kernels = &m->kernels;
    const int cpus = bitnet__usable_cpus();
    bitnet__packing p;
    uint64_t total = 0, widest = 0, weights = 0, room;
    char name[BITNET__TEXT];
    bitnet_result r;
    int k;
    p.m = m;
    p.out = p.rows = 0;
    p.unit = kernels->pack_rows > 64 ? kernels->pack_rows : 64;
    for (k = 0; k < n; k++) {
        bitnet__linear *l = &linear[k];
        if (!bitnet__has_codes(l)) continue;
        l->plan = bitnet__choose_plan(m, l);
        weights += (uint64_t)l->file.n * (uint64_t)l->file.rows;
        if (l->plan == BITNET__AS_IT_IS) continue;
        total += bitnet__linear_bytes(kernels, l, l->n_out) + 63;
        room = 0;
        if (kernels->pack && l->plan == BITNET__UNPACKED)
            room = bitnet__i2s_bytes(l->n_in, p.unit);
        if (l->plan == BITNET__TO_PACKS &&
            bitnet__type_info(l->file.type)->bytes != l->blocks->bytes)
            room = bitnet__blocks_bytes(l->blocks, l->n_in, p.unit);
        widest = room > widest ? room : widest;
    }
    /* One team for all layers, unless there is too little work. */
    if (i <= 0 && !m->team && (total > 0 || weights > 4000000) &&
        (r = bitnet__team_create(&m->params.allocator,
                                 cpus < BITNET__MAX_PACKERS ? cpus : BITNET__MAX_PACKERS, &m->team,
                                 err))) return r;
    p.jobs = bitnet__team_size(m->team);
    if (total > 0) p.out = (uint8_t *)bitnet__model_alloc(m, total);
    p.row_room = (size_t)widest;
    if (p.out && widest > 0)
        p.rows = (uint8_t *)bitnet__model_alloc(m, widest * (uint64_t)p.jobs);
    if ((total > 0 && !p.out) || (widest > 0 && !p.rows)) {
        for (k = 0; !bitnet__has_codes(&linear[k]); k++) {}
        bitnet__linear_name(m, i, k, name);
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory to pack the tensors from '%s' on "
                            "(%llu bytes)", name, (unsigned long long)total);
    }
    bitnet__huge_memory(&m->params.allocator, p.out, (size_t)total);
    for (k = 0; k < n; k++) {
        if (!bitnet__has_codes(&linear[k])) continue;
        p.linear = &linear[k];
        bitnet__linear_name(m, i, k, name);
        if ((r = bitnet__pack_linear(m, &p, name, err))) return r;
    }
    if (p.rows) bitnet__model_release(m, p.rows, 0);
    return bitnet__progress(m, m->gguf.data_start + m->bytes_read, err);
}

/* Which matrices of a layer read the same input. */
static const int8_t bitnet__input_of[BITNET__LINEARS] = {0, 0, 0, 1, 2, 2, 3, 0, 0, 4, 4, 1};
enum { BITNET__INPUTS = 5 };

/* Matrices with one input are all ternary or all floats, and all folded in the same way. */
static bitnet_result bitnet__check_inputs(const bitnet_model *m, int32_t layer,
                                          const bitnet__linear *l, bitnet_error *err) {
    char first[BITNET__TEXT], other[BITNET__TEXT];
    int a, b;
    for (a = 0; a < BITNET__LINEARS; a++)
        for (b = 0; b < a; b++) {
            const bitnet__turn *x = &l[a].turn, *y = &l[b].turn;
            if (!l[a].file.rows || !l[b].file.rows || bitnet__input_of[a] != bitnet__input_of[b] ||
                (bitnet__in_floats(&l[a]) == bitnet__in_floats(&l[b]) && x->block == y->block))
                continue;
            bitnet__linear_name(m, layer, b, first);
            bitnet__linear_name(m, layer, a, other);
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensors '%s' and '%s' read the same "
                                "input, but only one of them is %s", first, other,
                                x->block == y->block ? "of floats" : "folded");
        }
    return BITNET_OK;
}

/* Decides how a layer's scales of blocks are kept. If those of a matrix differ, its blocks become
   scale groups, else their one scale becomes the matrix's. q, k and v (gate and up) share one
   quantized input, so they must share one size of scale groups. If the scales of one of them
   differ, all keep theirs, and one without blocks beside it is an error. */
static bitnet_result bitnet__choose_groups(bitnet_model *m, int32_t layer, bitnet__linear *l,
                                           bitnet_error *err) {
    const int8_t *input = bitnet__input_of;
    char first[BITNET__TEXT], other[BITNET__TEXT];
    int found[BITNET__LINEARS], differ[BITNET__INPUTS] = {0}, a, b;
    uint16_t scale[BITNET__LINEARS][2];
    int64_t at[2];
    bitnet_result r = bitnet__check_inputs(m, layer, l, err);
    if (r != BITNET_OK) return r;
    for (a = 0; a < BITNET__LINEARS; a++) {
        const bitnet__type *type = bitnet__type_info(l[a].file.type);
        if (!bitnet__has_codes(&l[a])) continue;
        found[a] = !type->block ? 0 : type->keeps_scales ? 2 :
                   bitnet__find_scales(&l[a].file, l[a].w, scale[a], at);
        if (found[a] != 2) continue;
        differ[input[a]] = 1;
        bitnet__linear_name(m, layer, a, first);
        if (!BITNET__GROUPS) return bitnet__no_groups(first, l[a].file.type, err);
    }
    for (a = 0; a < BITNET__LINEARS; a++) {
        if (!bitnet__has_codes(&l[a])) continue;
        bitnet__linear_name(m, layer, a, other);
        if (!differ[input[a]]) {
            if (found[a]) l[a].scale *= bitnet__f16_to_f32(scale[a][0]);
            continue;
        }
        bitnet__set_group(&l[a]);
        for (b = 0; input[b] != input[a] || !bitnet__has_codes(&l[b]); b++) {}
        bitnet__linear_name(m, layer, b, first);
        if (l[b].group != l[a].group)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensors '%s' and '%s' read the same "
                                "input, but share scales among %d and %d weights (0: all)", first,
                                other, (int)l[b].group, (int)l[a].group);
        if (l[a].group > 0 && l[b].blocks->order != l[a].blocks->order)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensors '%s' (%s) and '%s' (%s) read "
                                "the same input, but have their weights in different orders", first,
                                bitnet_tensor_type_name(l[b].file.type), other,
                                bitnet_tensor_type_name(l[a].file.type));
        if (l[a].group > 0 && l[a].scale != 1.0f)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%s' has a scale for each "
                                "block and another one, %g", other, (double)l[a].scale);
        if (!m->group || l[a].group < m->group) m->group = l[a].group;
    }
    return BITNET_OK;
}

/* 1 if all weights are 0. Of most matrices this reads a few bytes. 0 if a code is invalid: such a
   file is refused later. */
static int bitnet__only_zeros(const bitnet__linear *l) {
    const bitnet_ternary *t = &l->file;
    const bitnet__type *type = bitnet__type_info(t->type);
    const int32_t run = type->block ? type->block : 768;
    uint8_t codes[768];
    bitnet__unpacked unused;
    int32_t row, k, i, n;
    for (row = 0; row < t->rows; row++)
        for (k = 0; k < t->n; k += run) {
            n = t->n - k < run ? t->n - k : run;
            if (type->block && !(bitnet__get_u16(bitnet__block_at(t, l->w, row, k) +
                                                 type->scale_at) & 0x7fff)) continue;
            if (!bitnet__unpack_codes(t, l->w, row, k, k + n, codes, &unused)) return 0;
            for (i = 0; i < n; i++)
                if (codes[i] != 1) return 0;
        }
    return 1;
}

/* Says which matrices have only zeros: such files were published. */
static void bitnet__log_zeros(const bitnet_model *m) {
    char text[BITNET__TEXT], longer[BITNET__TEXT];
    int32_t i, from;
    int k;
    for (k = 0; k < BITNET__LAYER_TENSORS; k++) {
        const bitnet__layer_tensor *t = &bitnet__layer_tensors[k];
        if (t->linear < 0) continue;
        text[0] = 0;
        for (i = 0; i < m->n_layers && strlen(text) < 60; i++) {
            if (!(m->layers[i].zeros >> t->linear & 1) || !(m->layers[i].kind->sets & t->set))
                continue;
            for (from = i; i + 1 < m->n_layers && m->layers[i + 1].zeros >> t->linear & 1;) i++;
            bitnet__format(longer, "%s%s%d", text, text[0] ? ", " : "", (int)from);
            if (i > from) bitnet__format(text, "%s-%d", longer, (int)i);
            else memcpy(text, longer, sizeof text);
        }
        if (!text[0]) continue;
        bitnet__format(longer, "all weights of %s are zero in layers %s%s", t->name, text,
                       i < m->n_layers ? ", ..." : "");
        bitnet__log_text(m, BITNET_LOG_WARNING, longer);
    }
}

/* No converter writes the router in another type. */
static bitnet_result bitnet__load_router(bitnet_model *m, const char *name, const uint8_t **out,
                                         bitnet_error *err) {
    const bitnet__tensor *t = bitnet__find_tensor(&m->gguf, name);
    bitnet__matrix router;
    bitnet_result r;
    if (t && t->type != BITNET_TENSOR_F32)
        return bitnet__refuse_type(name, t, "the router of experts needs F32", err);
    r = bitnet__load_matrix(m, name, m->dim, m->n_experts, 1, &router, err);
    if (r == BITNET_OK) *out = router.data;
    return r;
}

/* The matrices of all experts are one tensor of three dimensions: row length, rows, experts. In
   rows it is one matrix. (In the header a name is followed by u32 n_dims, u64 dims[n_dims].) */
static bitnet_result bitnet__check_experts(const bitnet_model *m, const char *name, int32_t rows,
                                           bitnet_error *err) {
    const bitnet__tensor *t = bitnet__find_tensor(&m->gguf, name);
    const uint8_t *p = t ? m->gguf.src.data + t->name.at + t->name.len : 0;
    if (!p || (bitnet__get_u32(p) >= 3 && bitnet__get_u64(p + 12) == (uint64_t)rows))
        return BITNET_OK;              /* the product of the others is checked elsewhere */
    return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is not %llu x %d x %d: the matrices "
                        "of %d experts", name, (unsigned long long)t->dims[0], (int)rows,
                        (int)m->n_experts, (int)m->n_experts);
}

static const uint8_t *bitnet__value_of_layer(const bitnet__per_layer *values, int32_t i) {
    return values->at ? values->at + (size_t)i * (size_t)values->step : 0;
}

/* Which positions a layer sees, and how it rotates them. */
static void bitnet__set_sliding(const bitnet_model *m, int32_t i, bitnet__layer *l) {
    const uint8_t *slides = bitnet__value_of_layer(&m->slides, i);
    const int does = slides ? *slides != 0
                            : m->window > 0 && (i + 1) % m->family->slide_except != 0;
    l->window = does ? m->window : 0;
    l->rope = does ? 1 : slides ? -1 : 0;
}

/* A state that grows has no bound. The taps of a channel become neighbours of other channels' taps:
   [n_taps][n_channels], as the convolution reads them. */
static bitnet_result bitnet__check_gdn(bitnet_model *m, int32_t layer, bitnet__layer *l,
                                       bitnet_error *err) {
    const float *a = l->norm[BITNET__GDN_A], *w = l->norm[BITNET__GDN_CONV];
    float *p = (float *)bitnet__model_alloc(m, (uint64_t)m->n_taps * (uint64_t)m->n_channels *
                                               sizeof *p);
    int32_t i, k;
    for (i = 0; i < m->n_value_heads; i++)
        if (a[i] > 0.0f)
            return bitnet__fail(err, BITNET_ERR_FORMAT, "element %d of tensor 'blk.%d.ssm_a' is "
                                "%g: it must not be positive", (int)i, (int)layer, (double)a[i]);
    if (!p) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for tensor "
                                "'blk.%d.ssm_conv1d.weight'", (int)layer);
    for (i = 0; i < m->n_channels; i++)
        for (k = 0; k < m->n_taps; k++) p[(size_t)k * (size_t)m->n_channels + (size_t)i] = *w++;
    bitnet__model_release(m, (const uint8_t *)l->norm[BITNET__GDN_CONV], 0);
    l->norm[BITNET__GDN_CONV] = p;
    return BITNET_OK;
}

static bitnet_result bitnet__load_layer(bitnet_model *m, int32_t i, bitnet__layer *l,
                                        bitnet_error *err) {
    char name[BITNET__TEXT];
    bitnet_result r;
    int k;
    memset(l, 0, sizeof *l);
    bitnet__set_kind(m, l, bitnet__kind_of(m, i));
    bitnet__set_sliding(m, i, l);
    if (m->clamps.at) l->clamp = bitnet__load_f32(bitnet__value_of_layer(&m->clamps, i));
    if (l->clamp <= 1e-6f) l->clamp = 0.0f;
    for (k = 0; k < BITNET__LAYER_TENSORS; k++) {
        const bitnet__layer_tensor *t = &bitnet__layer_tensors[k];
        const int32_t n_in = bitnet__tensor_dim(m, t->n_in);
        if (!bitnet__has_tensor(m, l->kind, t)) continue;
        bitnet__format(name, "blk.%d.%s%s", (int)i, t->name, t->suffix);
        r = t->norm >= 0 ? bitnet__load_vectors(m, name, n_in, bitnet__tensor_dim(m, t->n_out),
                                                &l->norm[t->norm], err) :
            t->linear < 0 ? bitnet__load_router(m, name, &l->router, err) :
                            bitnet__load_linear(m, name, n_in, bitnet__tensor_dim(m, t->n_out),
                                                &l->linear[t->linear], err);
        if (r == BITNET_OK && t->linear >= 0 && t->set == BITNET__EXPERT_SET)
            r = bitnet__check_experts(m, name, bitnet__tensor_dim(m, t->n_out) / m->n_experts, err);
        if (r != BITNET_OK) return r;
        if (t->linear >= 0 && bitnet__has_codes(&l->linear[t->linear]) &&
            bitnet__only_zeros(&l->linear[t->linear])) l->zeros |= 1u << t->linear;
    }
    if (l->norm[BITNET__GDN_A] && (r = bitnet__check_gdn(m, i, l, err))) return r;
    return bitnet__choose_groups(m, i, l->linear, err);
}

/* =============================================================================================
   @load  metadata to a network: kernels, hyperparameters, tokenizer, weights; loading as a whole
   ============================================================================================= */

/* ---- metadata ----
   Keys are read one after the other. After the first error every function gives a value that does
   no harm, of numbers the lowest, and err keeps that error. A name with a point in front is one of
   the architecture's. */
typedef struct bitnet__meta {
    bitnet_model *m;
    bitnet_error *err;
    bitnet_result result;
} bitnet__meta;

/* Finds a key; 0: it is absent. */
static const bitnet__key *bitnet__meta_key(const bitnet__meta *x, const char *name) {
    char full[BITNET__TEXT];
    bitnet__format(full, "%s%s", name[0] == '.' ? x->m->arch : "", name);
    return bitnet__find_key(&x->m->gguf, full);
}

static const uint8_t *bitnet__meta_value(const bitnet__meta *x, const bitnet__key *k) {
    return bitnet__value_of(&x->m->gguf, k);
}

/* "GGUF key 'name' at offset 123 is not ..." */
BITNET__APART void bitnet__meta_fail(bitnet__meta *x, const char *name, const char *what) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    char at[BITNET__TEXT] = "";
    if (x->result != BITNET_OK) return;
    if (k) bitnet__format(at, " at offset %llu", (unsigned long long)bitnet__value_offset(k));
    x->result = bitnet__fail(x->err, BITNET_ERR_FORMAT, "GGUF key '%s%s'%s %s",
                             name[0] == '.' ? x->m->arch : "", name, at, what);
}

/* An unsigned number of any integer type, from low to high. If the key is absent: fallback, or an
   error if that is below low. */
BITNET__APART uint64_t bitnet__meta_uint(bitnet__meta *x, const char *name, uint64_t fallback,
                                         uint64_t low, uint64_t high) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    char what[BITNET__TEXT] = "is missing";
    uint64_t v = fallback;
    if ((!k || bitnet__value_integer(k->type, bitnet__meta_value(x, k), &v)) && v >= low &&
        v <= high) return v;
    if (k || fallback >= low)
        bitnet__format(what, "is not an integer from %llu to %llu", (unsigned long long)low,
                       (unsigned long long)high);
    bitnet__meta_fail(x, name, what);
    return low;
}

/* The same for a size, at least 1; fallback 0: the key is required. */
static int32_t bitnet__meta_size(bitnet__meta *x, const char *name, int32_t fallback,
                                 int64_t high) {
    return (int32_t)bitnet__meta_uint(x, name, (uint64_t)fallback, 1, (uint64_t)high);
}

/* The same for a positive F32. */
BITNET__APART float bitnet__meta_float(bitnet__meta *x, const char *name, float fallback, float low,
                                       float high) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    char what[BITNET__TEXT] = "is missing";
    float v = fallback;
    if (k) v = k->type == BITNET_GGUF_F32 ? bitnet__load_f32(bitnet__meta_value(x, k)) : 0.0f;
    if (v > 0.0f && v >= low && v <= high) return v;
    if (k) bitnet__format(what, "is not an F32 from %g to %g", (double)low, (double)high);
    bitnet__meta_fail(x, name, what);
    return low;
}

/* A string value, NUL-terminated in buf; "" if the key is absent. */
static void bitnet__meta_text(bitnet__meta *x, const char *name, char *buf, size_t cap) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    char what[BITNET__TEXT];
    buf[0] = 0;
    if (!k) return;
    if (k->type == BITNET_GGUF_STRING && k->size < cap &&
        !memchr(bitnet__meta_value(x, k), 0, (size_t)k->size)) {
        memcpy(buf, bitnet__meta_value(x, k), (size_t)k->size);
        buf[k->size] = 0;
        return;
    }
    bitnet__format(what, "is not a string of under %u bytes", (unsigned)cap);
    bitnet__meta_fail(x, name, what);
}

/* A string array, which must be there. */
static bitnet__strings bitnet__meta_strings(bitnet__meta *x, const char *name) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    bitnet__strings list;
    memset(&list, 0, sizeof list);
    if (!k || k->type != BITNET_GGUF_ARRAY || k->element != BITNET_GGUF_STRING) {
        bitnet__meta_fail(x, name, k ? "is not an array of strings" : "is missing");
        return list;
    }
    list.data = bitnet__meta_value(x, k);
    list.size = (size_t)k->size;
    list.count = k->count;
    return list;
}

/* An array of one 32-bit number for each of n tokens, an F32 or, by default, an integer; 0: the key
   is absent. */
static const uint8_t *bitnet__meta_per_token(bitnet__meta *x, const char *name, uint64_t n,
                                             int is_float) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    if (!k) return 0;
    if (k->type != BITNET_GGUF_ARRAY || k->count != n ||
        (is_float ? k->element != BITNET_GGUF_F32
                  : k->element != BITNET_GGUF_I32 && k->element != BITNET_GGUF_U32))
        bitnet__meta_fail(x, name, is_float ? "is not one F32 for each token"
                                            : "is not one 32-bit integer for each token");
    return bitnet__meta_value(x, k);
}

/* A value of this type for each layer, an F32 or a bool: an array, or one value for all. */
static bitnet__per_layer bitnet__meta_per_layer(bitnet__meta *x, const char *name, uint32_t type) {
    const bitnet__key *k = bitnet__meta_key(x, name);
    const int is_array = k && k->type == BITNET_GGUF_ARRAY;
    bitnet__per_layer values = {0, 0};
    if (!k) return values;
    if (is_array ? k->element != type || k->count != (uint64_t)x->m->n_layers : k->type != type)
        bitnet__meta_fail(x, name, type == BITNET_GGUF_F32 ? "is not one F32 for each layer"
                                                           : "is not one bool for each layer");
    values.at = bitnet__meta_value(x, k);
    if (is_array) values.step = type == BITNET_GGUF_F32 ? 4 : 1;
    return values;
}

/* A token's number; without the key, the token with this text; else -1. */
static bitnet_token bitnet__meta_token(bitnet__meta *x, const char *name, const char *text) {
    if (!bitnet__meta_key(x, name)) return bitnet_token_find(x->m, text, strlen(text));
    return (bitnet_token)bitnet__meta_uint(x, name, 0, 0, (uint64_t)x->m->n_vocab - 1);
}

/* Networks whose name looks supported, but that compute something else. */
static const struct { const char *arch, *why; } bitnet__refused[] = {
    {"qwen35moe", "a hybrid network, most of whose layers have linear attention"},
    {"qwen3next", "a hybrid network, most of whose layers have linear attention"},
    {"qwen3moe", "its layers have experts"}
};

static bitnet_result bitnet__refuse_arch(const bitnet_model *m, bitnet_error *err) {
    char names[BITNET__TEXT] = "", longer[BITNET__TEXT];
    size_t i;
    for (i = 0; i < sizeof bitnet__refused / sizeof bitnet__refused[0]; i++)
        if (!strcmp(m->arch, bitnet__refused[i].arch))
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "architecture '%s' is not supported: "
                                "%s", m->arch, bitnet__refused[i].why);
    for (i = 0; i < sizeof bitnet__families / sizeof bitnet__families[0]; i++) {
        const char *arch = bitnet__families[i].arch;
        if (i > 0 && !strcmp(arch, bitnet__families[i - 1].arch)) continue;
        bitnet__format(longer, "%s%s%s", names, i ? ", " : "", arch);
        memcpy(names, longer, sizeof names);
    }
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "architecture '%s' is not supported; these "
                        "are: %s", m->arch, names);
}

/* 1 if a text of n bytes fits a pattern, in which one * stands for anything. */
static int bitnet__is_like(const char *text, size_t n, const char *pattern) {
    const char *star = strchr(pattern, '*');
    const size_t all = strlen(pattern), head = star ? (size_t)(star - pattern) : all;
    const size_t tail = star ? all - head - 1 : 0;
    if (head == all) return n == all && !memcmp(text, pattern, n);
    return n >= head + tail && !memcmp(text, pattern, head) &&
           !memcmp(text + n - tail, pattern + all - tail, tail);
}

/* 1 if a key's name begins with prefix. */
static int bitnet__key_begins(const bitnet_model *m, const bitnet__key *k, const char *prefix) {
    const size_t n = strlen(prefix);
    return k->name.len >= n && !memcmp(m->gguf.src.data + k->name.at, prefix, n);
}

/* Refuses a split file: its first part has all keys and few tensors, the others have no keys. */
static void bitnet__refuse_split(bitnet__meta *x) {
    const uint64_t count = bitnet__meta_uint(x, "split.count", 1, 0, 65535);
    const uint64_t split = bitnet__meta_uint(x, "split.no", 0, 0, 65535);
    if (x->result != BITNET_OK || count <= 1) return;
    x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "this is part %u of a model that was "
                             "split into %u files; join them first (llama.cpp: llama-gguf-split "
                             "--merge)", (unsigned)split + 1, (unsigned)count);
}

/* The family of an architecture, by the file's tensors if there are several; 0: it is not known. */
static const bitnet__family *bitnet__family_of(const bitnet_model *m, const char *arch) {
    const int in_norms = bitnet__find_tensor(&m->gguf, "blk.0.attn_q_norm_in.weight") != 0;
    const bitnet__family *f = bitnet__families, *found = 0;
    for (; f < bitnet__families + sizeof bitnet__families / sizeof *f; f++)
        if (!strcmp(arch, f->arch) && (!found || !(f->norms & BITNET__IN_NORMS) == !in_norms))
            found = f;
    return found;
}

static void bitnet__load_arch(bitnet__meta *x) {
    static const char key[] = "general.architecture";
    bitnet_model *m = x->m;
    bitnet__meta_text(x, key, m->arch, sizeof m->arch);
    if (!m->arch[0]) bitnet__meta_fail(x, key, "is missing");
    m->family = bitnet__family_of(m, m->arch);
}

static void bitnet__load_family(bitnet__meta *x) {
    bitnet__refuse_split(x);
    bitnet__load_arch(x);
    if (x->result == BITNET_OK && !x->m->family) x->result = bitnet__refuse_arch(x->m, x->err);
}

/* ---- folded weights ----
   A matrix W may be stored as W' = W diag(s) H, in blocks along its rows, with H symmetric and its
   own inverse and signs s; then W x = W' H (s * x). Rows of the embedding become H row * s after
   they are looked up. Keys that are not understood are refused: ignoring one gives noise. */

/* Is this a matrix whose input can be turned? */
static int bitnet__can_fold(const uint8_t *name, uint64_t n) {
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate",
                                        "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ssm_out"};
    char pattern[BITNET__TEXT];
    size_t i;
    if (bitnet__is_like((const char *)name, (size_t)n, "output.weight")) return 1;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        bitnet__format(pattern, "blk.*.%s.weight", names[i]);
        if (bitnet__is_like((const char *)name, (size_t)n, pattern)) return 1;
    }
    return 0;
}

/* A list of tensors' names, each of which must exist and be such that it can be folded; inverse 1:
   only the embedding can. */
static void bitnet__load_fold_names(bitnet__meta *x, const char *key, int inverse,
                                    bitnet__strings *out) {
    const bitnet__strings list = bitnet__meta_strings(x, key);
    const uint8_t *p = list.data;
    char name[BITNET__TEXT];
    uint64_t i, n;
    for (i = 0; i < list.count && x->result == BITNET_OK; i++, p += 8 + n) {
        n = bitnet__get_u64(p);
        bitnet__format(name, "%.*s", (int)(n < 100 ? n : 100), (const char *)p + 8);
        if (n >= 100 || !bitnet__find_tensor(&x->m->gguf, name))
            x->result = bitnet__fail(x->err, BITNET_ERR_FORMAT, "GGUF key '%s': there is no tensor "
                                     "'%s'", key, name);
        else if (inverse ? strcmp(name, "token_embd.weight") != 0 : !bitnet__can_fold(p + 8, n))
            x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key '%s': tensor '%s' "
                                     "cannot be folded here", key, name);
    }
    if (x->result == BITNET_OK) *out = list;
}

/* An integer of an array of them. */
static int bitnet__meta_element(const bitnet__meta *x, const bitnet__key *k, uint64_t i,
                                uint64_t *v) {
    return k->type == BITNET_GGUF_ARRAY && i < k->count &&
           bitnet__value_integer(k->element, bitnet__meta_value(x, k) +
                                             (size_t)i * bitnet__value_size(k->element), v);
}

/* The signs of each width, divided by sqrt(block). */
static void bitnet__load_signs(bitnet__meta *x, bitnet__fold *f) {
    static const char widths[] = "prism.hadamard.sign_widths";
    static const char values[] = "prism.hadamard.sign_values";
    const bitnet__key *w = bitnet__meta_key(x, widths), *k = bitnet__meta_key(x, values);
    uint64_t n, v, at = 0, i;
    int32_t a;
    if (!w || !k) bitnet__meta_fail(x, w ? values : widths, "is missing");
    for (; x->result == BITNET_OK && (uint64_t)f->n_widths < w->count; f->n_widths++) {
        float *signs;
        if (!bitnet__meta_element(x, w, (uint64_t)f->n_widths, &n) || n < 1 ||
            n > BITNET__MAX_ROW || f->n_widths == BITNET__MAX_WIDTHS)
            bitnet__meta_fail(x, widths, "is not a list of at most 16 row lengths");
        for (a = 0; a < f->n_widths && x->result == BITNET_OK; a++)
            if ((uint64_t)f->widths[a].n == n) bitnet__meta_fail(x, widths, "has a width twice");
        if (x->result != BITNET_OK) return;
        signs = (float *)bitnet__model_alloc(x->m, n * sizeof *signs);
        if (!signs) x->result = bitnet__fail(x->err, BITNET_ERR_MEMORY, "no memory for signs");
        for (i = 0; signs && i < n; i++, at++) {
            if (!bitnet__meta_element(x, k, at, &v) || (v != 1 && v != ~(uint64_t)0)) {
                bitnet__meta_fail(x, values, "is not a 1 or -1 for each column of each width");
                return;
            }
            signs[i] = v == 1 ? f->scale : -f->scale;
        }
        f->widths[f->n_widths].n = (int32_t)n;
        f->widths[f->n_widths].signs = signs;
    }
    if (x->result == BITNET_OK && at != k->count)
        bitnet__meta_fail(x, values, "is not a 1 or -1 for each column of each width");
}

/* A string that must have this value. */
static void bitnet__want_text(bitnet__meta *x, const char *name, const char *want) {
    char text[64];
    bitnet__meta_text(x, name, text, sizeof text);
    if (x->result != BITNET_OK || !strcmp(text, want)) return;
    x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key '%s' is '%s'; only '%s' is "
                             "supported", name, text, want);
}

static void bitnet__load_fold(bitnet__meta *x) {
    static const char *const keys[] = {
        "version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values",
        "weight_names", "inverse_weight_names", "gdn_v_grouped", "tied_output"
    };
    static const char prefix[] = "prism.hadamard.";
    bitnet_model *m = x->m;
    bitnet__fold *f = 0;
    char mode[32];
    uint64_t i, version;
    size_t k;
    for (i = 0; i < m->gguf.n_keys && x->result == BITNET_OK; i++) {
        const bitnet__key *key = &m->gguf.keys[i];
        const char *name = (const char *)m->gguf.src.data + key->name.at;
        if (!bitnet__key_begins(m, key, prefix)) continue;
        for (k = 0; k < sizeof keys / sizeof keys[0]; k++)
            if (bitnet__is_like(name + 15, (size_t)key->name.len - 15, keys[k])) break;
        if (m->family->norms & (BITNET__IN_NORMS | BITNET__SUB_NORMS | BITNET__EXPERTS))
            x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key '%.*s': folded "
                                     "weights are not supported in this architecture",
                                     (int)key->name.len, name);
        else if (k == sizeof keys / sizeof keys[0])
            x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key '%.*s' is not "
                                     "known, and could change the results", (int)key->name.len,
                                     name);
        if (!m->fold)
            m->fold = (bitnet__fold *)bitnet__model_alloc(m, sizeof *m->fold);
        if (!m->fold) x->result = bitnet__fail(x->err, BITNET_ERR_MEMORY, "no memory for a model");
    }
    f = m->fold;
    if (x->result != BITNET_OK || !f) return;
    memset(f, 0, sizeof *f);
    version = bitnet__meta_uint(x, "prism.hadamard.version", 0, 1, 2);
    f->is_tied = (int)bitnet__meta_uint(x, "prism.hadamard.tied_output", 0, 0, 1);
    if (x->result == BITNET_OK && (version == 2) != f->is_tied)
        bitnet__meta_fail(x, "prism.hadamard.version", "is 2 if and only if tied_output is true");
    if (f->is_tied && bitnet__find_tensor(&m->gguf, "output.weight"))
        bitnet__meta_fail(x, "prism.hadamard.tied_output",
                          "is true, but there is an output.weight");
    f->block = bitnet__meta_size(x, "prism.hadamard.block_size", 0, BITNET__MAX_ROW);
    if (f->block & (f->block - 1))
        bitnet__meta_fail(x, "prism.hadamard.block_size", "is not a power of two");
    bitnet__want_text(x, "prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    bitnet__want_text(x, "prism.hadamard.axis", "input-last-dimension");
    bitnet__meta_text(x, "prism.hadamard.sign_mode", mode, sizeof mode);
    f->is_explicit = !strcmp(mode, "explicit");
    if (!f->is_explicit) bitnet__want_text(x, "prism.hadamard.sign_mode", "identity");
    f->regroups = (int)bitnet__meta_uint(x, "prism.hadamard.gdn_v_grouped", 0, 0, 1);
    f->scale = (float)(1.0 / bitnet__sqrt((double)f->block));
    if (bitnet__meta_key(x, "prism.hadamard.weight_names"))
        bitnet__load_fold_names(x, "prism.hadamard.weight_names", 0, &f->names);
    if (bitnet__meta_key(x, "prism.hadamard.inverse_weight_names"))
        bitnet__load_fold_names(x, "prism.hadamard.inverse_weight_names", 1, &f->inverse);
    if (f->is_explicit) bitnet__load_signs(x, f);
}

/* The turns of the embedding and of the head. */
static bitnet_result bitnet__fold_ends(bitnet_model *m, bitnet_error *err) {
    static const char embedding[] = "token_embd.weight", output[] = "output.weight";
    bitnet_result r = BITNET_OK;
    if (!m->fold) return BITNET_OK;
    if (bitnet__is_listed(&m->fold->inverse, embedding))
        r = bitnet__make_turn(m, embedding, m->dim, &m->embed_turn, err);
    if (r == BITNET_OK && (m->fold->is_tied || bitnet__is_listed(&m->fold->names, output)))
        r = bitnet__make_turn(m, m->fold->is_tied ? embedding : output, m->dim, &m->head_turn,
                              err);
    return r;
}

/* ---- hybrid networks ---- */

/* The sizes of gated delta nets, and which layers these are. */
static void bitnet__load_hybrid(bitnet__meta *x, int32_t n_listed) {
    static const char list[] = ".attention.recurrent_layers";
    bitnet_model *m = x->m;
    const bitnet__key *k = bitnet__meta_key(x, list);
    uint64_t v, all;
    int32_t inner, i, n_recurrent = 0;
    char type[32];
    m->n_taps = (int32_t)bitnet__meta_uint(x, ".ssm.conv_kernel", 0, 2, BITNET__MAX_TAPS);
    m->state_dim = bitnet__meta_size(x, ".ssm.state_size", 0, 1024);
    m->n_key_heads = bitnet__meta_size(x, ".ssm.group_count", 0, BITNET__MAX_HEADS);
    m->n_value_heads = bitnet__meta_size(x, ".ssm.time_step_rank", 0, BITNET__MAX_HEADS);
    inner = bitnet__meta_size(x, ".ssm.inner_size", 0, BITNET__MAX_ROW);
    m->full_interval = bitnet__meta_size(x, ".full_attention_interval", 4, BITNET__MAX_ROW);
    if (m->n_value_heads % m->n_key_heads)
        bitnet__meta_fail(x, ".ssm.time_step_rank", "is not a multiple of ssm.group_count");
    if ((int64_t)m->n_value_heads * m->state_dim != inner)
        bitnet__meta_fail(x, ".ssm.inner_size", "is not ssm.time_step_rank * ssm.state_size");
    m->value_dim = inner;
    if (((int64_t)2 * m->n_key_heads + m->n_value_heads) * m->state_dim > BITNET__MAX_ROW)
        bitnet__meta_fail(x, ".ssm.group_count", "and ssm.time_step_rank make too many channels");
    else m->n_channels = (2 * m->n_key_heads + m->n_value_heads) * m->state_dim;
    if (k && k->type == BITNET_GGUF_ARRAY && k->count != (uint64_t)m->n_layers &&
        k->count != (uint64_t)n_listed)
        bitnet__meta_fail(x, list, "is not one bool for each layer");
    for (i = 0; k && i < m->n_layers && x->result == BITNET_OK; i++)
        if (!bitnet__meta_element(x, k, (uint64_t)i, &v) || v > 1)
            bitnet__meta_fail(x, list, "is not one bool for each layer");
    bitnet__meta_text(x, ".rope.scaling.type", type, sizeof type);
    if (x->result == BITNET_OK && type[0] && strcmp(type, "none"))
        x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "%s.rope.scaling.type is '%s'; "
                                 "only none is supported in this architecture", m->arch, type);
    if (x->result != BITNET_OK) return;
    m->recurrent = k;
    for (i = 0; i < m->n_layers; i++) n_recurrent += bitnet__is_recurrent(m, i);
    all = (uint64_t)n_recurrent * bitnet__gdn_state(m) * sizeof(float);
    if (all > BITNET__MAX_STATE)
        x->result = bitnet__fail(x->err, BITNET_ERR_LIMIT, "GGUF keys '%s.ssm.*': %d layers with "
                                 "heads of %d x %d keep %llu MB for each sequence; at most %d are "
                                 "supported", m->arch, (int)n_recurrent, (int)m->n_value_heads,
                                 (int)m->state_dim, (unsigned long long)(all >> 20),
                                 BITNET__MAX_STATE >> 20);
}

/* Layers behind the last one predict more tokens; nothing here needs them. */
static void bitnet__skip_layers(bitnet_model *m, int32_t from, int32_t to) {
    char prefix[BITNET__TEXT];
    uint64_t i;
    for (; from < to; from++) {
        size_t n;
        bitnet__format(prefix, "blk.%d.", (int)from);
        n = strlen(prefix);
        for (i = 0; i < m->gguf.n_tensors; i++) {
            bitnet__tensor *t = &m->gguf.tensors[i];
            if (t->name.len >= n && !memcmp(m->gguf.src.data + t->name.at, prefix, n)) t->used = 1;
        }
    }
}

/* The gate is the family's. But architecture bitnet is 1bitLLM's models, with SiLU, and by
   llama.cpp's converters BitNet b1.58-2B-4T, with squared ReLU. Patched converters write which one
   it is; without that key the sizes tell, which no other published model of this name has. */
static void bitnet__load_gate(bitnet__meta *x) {
    bitnet_model *m = x->m;
    const bitnet__family *f = m->family;
    const bitnet__gate *gate = bitnet__gates, *end = gate + sizeof bitnet__gates / sizeof *gate;
    char text[32];
    bitnet__meta_text(x, ".hidden_activation", text, sizeof text);
    if (x->result != BITNET_OK) return;
    m->gate_a = f->gate_a;
    m->gate_b = f->gate_b;
    if (bitnet__meta_key(x, ".hidden_activation")) {
        while (gate < end && strcmp(gate->name, text)) gate++;
        if (gate == end || (!f->any_gate && (gate->a < f->gate_a || gate->a > f->gate_a))) {
            x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key "
                                     "'%s.hidden_activation' is '%s', which is not %s", m->arch,
                                     text, gate == end ? "a known gate"
                                                       : "the gate of this architecture");
            return;
        }
    } else if (f->any_gate && m->n_layers == 30 && m->dim == 2560 && m->ffn_dim == 6912)
        bitnet__log_text(m, BITNET_LOG_INFO, "the file names no hidden_activation; its sizes are "
                         "those of BitNet b1.58-2B-4T, so the gate is relu2");
    else return;
    m->gate_a = gate->a;
    m->gate_b = gate->b;
}

/* MiniCPM's network multiplies the embedding, what each layer adds to x, and the logits:

       x = embedding * embed[token]      x += residual * layer(norm(x))      head(norm(x)) / logit

   Only norms read x, and a norm undoes any factor of x if eps has the factor's square. So x is kept
   divided by `residual`, eps by its square, and the gains of the last norm by `logit`. That leaves
   one product, the embedding's, and the results are the same up to rounding. It holds for families
   all of whose norms read x; others, such as those of a head, would need an eps of their own. */
static void bitnet__load_scales(bitnet__meta *x) {
    bitnet_model *m = x->m;
    const int own = (m->family->scales & BITNET__FILE_SCALES) != 0;
    const float residual = (float)(1.4 / bitnet__sqrt((double)m->n_layers));
    m->embed_scale = m->family->scales & BITNET__EMBED_SCALE ? (float)bitnet__sqrt((double)m->dim)
                                                             : 1.0f;
    m->scales.embedding = m->scales.residual = m->scales.logit = 1.0f;
    if (!own) return;
    m->scales.embedding = bitnet__meta_float(x, ".embedding_scale", 12.0f, 1e-3f, 1e6f);
    m->scales.residual = bitnet__meta_float(x, ".residual_scale", residual, 1e-3f, 1e3f);
    m->scales.logit = bitnet__meta_float(x, ".logit_scale", (float)m->dim / 256.0f, 1e-3f, 1e6f);
    m->embed_scale *= m->scales.embedding / m->scales.residual;
    m->eps /= m->scales.residual * m->scales.residual;
}

/* Linear scaling divides positions. YaRN (Peng et al., 2023) divides those of slow pairs only, see
   bitnet__yarn_share, and makes cosines and sines longer. longrope divides each pair's by factors
   in the file, one for short contexts and one for long ones; see bitnet__rope_of. */
static void bitnet__load_rope_scaling(bitnet__meta *x) {
    bitnet_model *m = x->m;
    char type[32];
    int yarn, longrope;
    bitnet__meta_text(x, ".rope.scaling.type", type, sizeof type);
    yarn = !strcmp(type, "yarn");
    longrope = !strcmp(type, "longrope");
    if (x->result == BITNET_OK && type[0] && strcmp(type, "none") && strcmp(type, "linear") &&
        !yarn && !longrope)
        x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "%s.rope.scaling.type is '%s'; "
                                 "only none, linear, yarn and longrope are supported", m->arch,
                                 type);
    m->rope_length = (double)bitnet__meta_float(x, ".rope.scaling.attn_factor", 1.0f, 1e-3f, 1e3f);
    bitnet__meta_float(x, ".rope.scaling.yarn_attn_factor", 1.0f, 1.0f, 1.0f);
    m->rope_factor = 1.0f;
    if (!strcmp(type, "none")) return;
    if (longrope) {                    /* another factor beside those of the pairs has no meaning */
        m->rope_original = bitnet__meta_size(x, ".rope.scaling.original_context_length", m->n_ctx,
                                             BITNET__MAX_CONTEXT);
        bitnet__meta_float(x, ".rope.scale_linear", 1.0f, 1.0f, 1.0f);
        bitnet__meta_float(x, ".rope.scaling.factor", 1.0f, 1.0f, 1.0f);
        return;
    }
    m->rope_factor = bitnet__meta_float(x, ".rope.scale_linear", 1.0f, 1e-3f, 1e6f);
    m->rope_factor = bitnet__meta_float(x, ".rope.scaling.factor", m->rope_factor, 1e-3f, 1e6f);
    if (!yarn) return;                 /* scale_linear was the older name */
    m->yarn.original = bitnet__meta_size(x, ".rope.scaling.original_context_length", 0,
                                         BITNET__MAX_CONTEXT);
    m->yarn.beta_fast = bitnet__meta_float(x, ".rope.scaling.yarn_beta_fast", 32.0f, 1e-3f, 1e6f);
    m->yarn.beta_slow = bitnet__meta_float(x, ".rope.scaling.yarn_beta_slow", 1.0f, 1e-3f, 1e6f);
    bitnet__meta_float(x, ".rope.scaling.yarn_ext_factor", 1.0f, 1.0f, 1.0f);
    if (m->rope_factor > 1.0f) m->rope_length *= 1.0 + 0.1 * bitnet__log((double)m->rope_factor);
}

/* The rows of an expert: a number, or one for each layer, which must be equal. */
static int32_t bitnet__load_expert_size(bitnet__meta *x) {
    static const char name[] = ".expert_feed_forward_length";
    const bitnet__key *k = bitnet__meta_key(x, name);
    bitnet_gguf_value list, one;
    uint64_t v, first = 0, n = 0;
    if (!k || k->type != BITNET_GGUF_ARRAY) return bitnet__meta_size(x, name, 0, BITNET__MAX_ROW);
    list = bitnet__key_value(&x->m->gguf, k);
    memset(&one, 0, sizeof one);
    for (; bitnet_gguf_next(&list, &one); n++) {
        if (!bitnet__value_integer(one.type, one.data, &v) || v < 1 || v > BITNET__MAX_ROW)
            bitnet__meta_fail(x, name, "has an element that is not an integer from 1 to 1048576");
        if (n == 0) first = v;
        if (x->result == BITNET_OK && v != first)
            x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "GGUF key '%s%s': layers have "
                                     "experts of %d and of %d rows; they must be equal", x->m->arch,
                                     name, (int)first, (int)v);
        if (x->result != BITNET_OK) return 1;
    }
    if (n != (uint64_t)x->m->n_layers) bitnet__meta_fail(x, name, "is not one for each layer");
    return x->result == BITNET_OK ? (int32_t)first : 1;
}

/* Experts: how many, how large, and the clamp of what they multiply. */
static void bitnet__load_experts(bitnet__meta *x) {
    static const uint8_t seven[4] = {0, 0, 0xe0, 0x40};
    static const char clamp[] = ".swiglu_clamp_exp";
    bitnet_model *m = x->m;
    const uint8_t *p;
    int32_t i, unit;                   /* unit: an expert begins at the first row of a pack */
    m->ffn_dim = bitnet__load_expert_size(x);
    m->n_experts = bitnet__meta_size(x, ".expert_count", 0, BITNET__MAX_EXPERTS);
    m->n_used = bitnet__meta_size(x, ".expert_used_count", 0, m->n_experts);
    m->experts_ffn = m->n_experts * m->ffn_dim;            /* at most 2^30 */
    m->experts_dim = m->n_experts * m->dim;
    unit = m->kernels.pack_rows > 64 ? m->kernels.pack_rows : 64;
    if (x->result == BITNET_OK && (m->dim % unit || m->ffn_dim % unit))
        x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "experts of %d rows of %d: only "
                                 "multiples of %d are supported", (int)m->ffn_dim, (int)m->dim,
                                 (int)unit);
    m->clamps = bitnet__meta_per_layer(x, clamp, BITNET_GGUF_F32);
    if (!m->clamps.at) m->clamps.at = seven;
    for (i = 0; i < m->n_layers && x->result == BITNET_OK; i++) {
        p = bitnet__value_of_layer(&m->clamps, i);
        if ((bitnet__get_u32(p) & 0x7f800000u) == 0x7f800000u)
            bitnet__meta_fail(x, clamp, "is not finite");
    }
}

/* The layers that slide: their window, their RoPE, and which they are. */
static void bitnet__load_sliding(bitnet__meta *x) {
    static const char pattern[] = ".attention.sliding_window_pattern";
    bitnet_model *m = x->m;
    const bitnet__family *f = m->family;
    if (f->slide_except == BITNET__SLIDE_PATTERN) {
        m->slides = bitnet__meta_per_layer(x, pattern, BITNET_GGUF_BOOL);
        if (!m->slides.at) bitnet__meta_fail(x, pattern, "is missing");
    } else if (!f->slide_except || !bitnet__meta_key(x, ".attention.sliding_window")) return;
    m->window = bitnet__meta_size(x, ".attention.sliding_window", 0, BITNET__MAX_CONTEXT);
    m->slide_base = bitnet__meta_float(x, ".rope.freq_base_swa",
                                       f->slide_base > 0.0f ? f->slide_base : m->freq_base, 1.0f,
                                       1e15f);
}

/* How tokens become one vector. */
static void bitnet__load_pooling(bitnet__meta *x) {
    bitnet_model *m = x->m;
    m->pooling = (int32_t)bitnet__meta_uint(x, ".pooling_type", 0, 0, BITNET_POOLING_LAST);
    m->embeds = bitnet__meta_key(x, ".pooling_type") != 0;
}

/* ---- keys that change the numbers ---- */

/* Keys that are read elsewhere, or change nothing. A point in front stands for the architecture,
   and * for anything. */
static const char *const bitnet__read_keys[] = {
    ".vocab_size", ".context_length", ".embedding_length", ".block_count", ".feed_forward_length",
    ".hidden_activation", ".pooling_type", ".tensor_data_layout", ".attention.head_count",
    ".attention.head_count_kv", ".attention.key_length", ".attention.value_length",
    ".attention.layer_norm_rms_epsilon", ".rope.dimension_count", ".rope.freq_base",
    ".rope.freq_base_swa", ".rope.scale_linear", ".rope.scaling.type", ".rope.scaling.factor",
    ".rope.scaling.attn_factor", ".rope.scaling.original_context_length", ".rope.scaling.finetuned",
    ".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow", ".rope.scaling.yarn_ext_factor",
    ".rope.scaling.yarn_attn_factor", "tokenizer.ggml.model", "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges", "tokenizer.ggml.*_token_id", "tokenizer.ggml.eos_token_ids",
    "tokenizer.ggml.added_tokens", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix", "tokenizer.chat_template*", "tokenizer.huggingface.json"
};

/* Keys that are read if layers have experts; for the others see below. */
static const char *const bitnet__expert_keys[] = {
    ".expert_count", ".expert_used_count", ".expert_feed_forward_length", ".swiglu_clamp_exp",
    ".attention.sliding_window_pattern"
};

/* The same if layers are gated delta nets. */
static const char *const bitnet__hybrid_keys[] = {
    ".full_attention_interval", ".attention.recurrent_layers", ".ssm.conv_kernel",
    ".ssm.state_size", ".ssm.group_count", ".ssm.time_step_rank", ".ssm.inner_size",
    ".rope.dimension_sections", ".nextn_predict_layers"
};

/* Keys of what is not supported, which a file may have if they change nothing: if their value is */
enum {
    BITNET__KEY_VALUE,                 /* `value` */
    BITNET__KEY_INT,                   /* the int32_t at `field` */
    BITNET__KEY_FLOAT,                 /* the float there, up to its rounding */
    BITNET__KEY_WINDOW                 /* 0, or at least the int32_t there, which is the trained
                                          context; anything if the model has layers that slide */
};

typedef struct bitnet__neutral_key {
    const char *name;
    int rule;                          /* one of these */
    double value;
    size_t field;                      /* in bitnet_model */
} bitnet__neutral_key;

#define BITNET__ONLY(name, value) {name, BITNET__KEY_VALUE, value, 0}
#define BITNET__OWN(name, rule, field) {name, rule, 0.0, offsetof(bitnet_model, field)}
static const bitnet__neutral_key bitnet__neutral_keys[] = {
    BITNET__ONLY(".rope.scaling.yarn_log_multiplier", 0.0), BITNET__ONLY(".attention.causal", 1.0),
    BITNET__ONLY(".attention.max_alibi_bias", 0.0), BITNET__ONLY(".attention.clamp_kqv", 0.0),
    BITNET__ONLY(".attention.shared_kv_layers", 0.0),
    BITNET__OWN(".attention.scale", BITNET__KEY_FLOAT, score_scale),
    BITNET__OWN(".attention.sliding_window", BITNET__KEY_WINDOW, n_ctx),
    BITNET__ONLY(".attention.sliding_window_pattern", 6.0),
    BITNET__OWN(".attention.key_length_swa", BITNET__KEY_INT, head_dim),
    BITNET__OWN(".attention.value_length_swa", BITNET__KEY_INT, head_dim),
    BITNET__OWN(".rope.dimension_count_swa", BITNET__KEY_INT, n_rot),
    BITNET__OWN(".embedding_length_out", BITNET__KEY_INT, dim),
    BITNET__OWN(".embedding_scale", BITNET__KEY_FLOAT, scales.embedding),
    BITNET__OWN(".residual_scale", BITNET__KEY_FLOAT, scales.residual),
    BITNET__OWN(".logit_scale", BITNET__KEY_FLOAT, scales.logit),
    BITNET__ONLY(".attn_logit_softcapping", 0.0),
    BITNET__ONLY(".final_logit_softcapping", 0.0), BITNET__ONLY(".use_parallel_residual", 0.0),
    BITNET__ONLY(".leading_dense_block_count", 0.0), BITNET__ONLY(".nextn_predict_layers", 0.0),
    BITNET__ONLY(".expert_count", 0.0), BITNET__ONLY(".expert_used_count", 0.0),
    BITNET__ONLY(".expert_shared_count", 0.0), BITNET__ONLY(".expert_weights_norm", 1.0),
    BITNET__ONLY(".expert_weights_scale", 1.0), BITNET__ONLY(".expert_gating_func", 1.0),
    BITNET__ONLY("tokenizer.ggml.add_sep_token", 0.0),
    BITNET__ONLY("tokenizer.ggml.remove_extra_whitespaces", 0.0)
};
#undef BITNET__ONLY
#undef BITNET__OWN

/* Reads a number of any type, or a bool; 0: it is none. */
static int bitnet__value_number(const bitnet__gguf *g, const bitnet__key *k, double *out) {
    const uint8_t *p = bitnet__value_of(g, k);
    uint64_t n;
    if (k->type == BITNET_GGUF_F32) {
        *out = (double)bitnet__load_f32(p);
    } else if (k->type == BITNET_GGUF_F64) {
        n = bitnet__get_u64(p);
        memcpy(out, &n, 8);
    } else if (!bitnet__value_integer(k->type, p, &n)) {
        return 0;
    } else {
        *out = k->type == BITNET_GGUF_U64 ? (double)n : (double)(int64_t)n;
    }
    return 1;
}

/* 1 if the key says what is computed anyway. *want: what it should say. */
static int bitnet__is_neutral(const bitnet_model *m, const bitnet__neutral_key *neutral,
                              const bitnet__key *k, double *want) {
    const char *field = (const char *)m + neutral->field;
    double v = 0.0, room = 0.0;
    *want = neutral->value;
    if (neutral->rule == BITNET__KEY_WINDOW && m->window > 0) return 1;
    if (neutral->rule == BITNET__KEY_FLOAT) {
        *want = (double)*(const float *)(const void *)field;
        room = 1e-6 * *want;
    } else if (neutral->rule != BITNET__KEY_VALUE) {
        *want = (double)*(const int32_t *)(const void *)field;
    }
    if (!bitnet__value_number(&m->gguf, k, &v)) return 0;
    if (neutral->rule == BITNET__KEY_WINDOW && (v >= *want || (v >= 0.0 && v <= 0.0))) return 1;
    return v >= *want - room && v <= *want + room;
}

/* Checks a key of the architecture or the tokenizer; name [length] is without the architecture. */
static bitnet_result bitnet__check_key(const bitnet_model *m, const bitnet__key *k,
                                       const char *name, size_t length, bitnet_error *err) {
    const char *whole = (const char *)m->gguf.src.data + k->name.at;
    char text[BITNET__TEXT];
    double want;
    size_t i;
    for (i = 0; i < sizeof bitnet__read_keys / sizeof bitnet__read_keys[0]; i++)
        if (bitnet__is_like(name, length, bitnet__read_keys[i])) return BITNET_OK;
    for (i = 0; m->n_experts && i < sizeof bitnet__expert_keys / sizeof *bitnet__expert_keys; i++)
        if (bitnet__is_like(name, length, bitnet__expert_keys[i])) return BITNET_OK;
    for (i = 0; m->n_taps && i < sizeof bitnet__hybrid_keys / sizeof *bitnet__hybrid_keys; i++)
        if (bitnet__is_like(name, length, bitnet__hybrid_keys[i])) return BITNET_OK;
    for (i = 0; i < sizeof bitnet__neutral_keys / sizeof bitnet__neutral_keys[0]; i++) {
        if (!bitnet__is_like(name, length, bitnet__neutral_keys[i].name)) continue;
        if (bitnet__is_neutral(m, &bitnet__neutral_keys[i], k, &want)) return BITNET_OK;
        bitnet__format_number(text, 9, want);
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "GGUF key '%.*s' at offset %llu: only %s "
                            "is supported here", (int)k->name.len, whole,
                            (unsigned long long)bitnet__value_offset(k), text);
    }
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "GGUF key '%.*s' at offset %llu is not known, "
                        "and could change the results", (int)k->name.len, whole,
                        (unsigned long long)bitnet__value_offset(k));
}

/* A key that is not read could change the numbers, so it is refused rather than ignored. */
static bitnet_result bitnet__check_keys(const bitnet_model *m, bitnet_error *err) {
    char prefix[BITNET__TEXT];
    bitnet_result r = BITNET_OK;
    uint64_t i;
    bitnet__format(prefix, "%s.", m->arch);
    for (i = 0; i < m->gguf.n_keys && r == BITNET_OK; i++) {
        const bitnet__key *k = &m->gguf.keys[i];
        const size_t arch = bitnet__key_begins(m, k, prefix) ? strlen(m->arch) : 0;
        if (arch || bitnet__key_begins(m, k, "tokenizer."))
            r = bitnet__check_key(m, k, (const char *)m->gguf.src.data + k->name.at + arch,
                                  (size_t)k->name.len - arch, err);
    }
    return r;
}

static bitnet_result bitnet__load_shape(bitnet_model *m, bitnet_error *err) {
    bitnet__meta x = {m, err, BITNET_OK};
    int32_t value_length, n_tensors = 0, n_skipped, i;
    int hybrid;
    bitnet__load_family(&x);
    if (x.result != BITNET_OK) return x.result;
    hybrid = (m->family->norms & BITNET__HYBRID) != 0;
    m->norm_dim = m->full_interval = 1;
    /* The tensors of a layer bound n_layers by what the file holds. Those of attention are fewer
       than a gated delta net's. */
    for (i = 0; i < BITNET__LAYER_TENSORS; i++)
        n_tensors += bitnet__has_tensor(m, bitnet__kind_of(m, 0), &bitnet__layer_tensors[i]);
    m->dim = bitnet__meta_size(&x, ".embedding_length", 0, BITNET__MAX_ROW);
    m->n_layers = bitnet__meta_size(&x, ".block_count", 0,
                                    (int64_t)(m->gguf.n_tensors / (uint64_t)n_tensors));
    n_skipped = hybrid ? (int32_t)bitnet__meta_uint(&x, ".nextn_predict_layers", 0, 0,
                                                    (uint64_t)m->n_layers - 1) : 0;
    bitnet__skip_layers(m, m->n_layers - n_skipped, m->n_layers);
    m->n_layers -= n_skipped;
    if (hybrid) bitnet__load_hybrid(&x, m->n_layers + n_skipped);
    if (m->family->norms & BITNET__EXPERTS) bitnet__load_experts(&x);
    else m->ffn_dim = bitnet__meta_size(&x, ".feed_forward_length", 0, BITNET__MAX_ROW);
    m->n_ctx = bitnet__meta_size(&x, ".context_length", 0, BITNET__MAX_CONTEXT);
    m->n_heads = bitnet__meta_size(&x, ".attention.head_count", 0, BITNET__MAX_HEADS);
    m->n_kv_heads = bitnet__meta_size(&x, ".attention.head_count_kv", m->n_heads, m->n_heads);
    m->head_dim = bitnet__meta_size(&x, ".attention.key_length", m->dim / m->n_heads,
                                    BITNET__MAX_ROW / m->n_heads);
    value_length = bitnet__meta_size(&x, ".attention.value_length", m->head_dim, BITNET__MAX_ROW);
    m->n_rot = bitnet__meta_size(&x, ".rope.dimension_count", m->head_dim, m->head_dim);
    if (x.result != BITNET_OK) return x.result;
    if (value_length != m->head_dim)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "keys of %d and values of %d elements: "
                            "they must be equal", (int)m->head_dim, (int)value_length);
    if (m->n_heads % m->n_kv_heads)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s.attention.head_count_kv': %d "
                            "heads are not a multiple of %d KV heads", m->arch, (int)m->n_heads,
                            (int)m->n_kv_heads);
    if (m->n_rot % 2)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "GGUF key '%s.rope.dimension_count': %d is "
                            "odd, and RoPE rotates pairs", m->arch, (int)m->n_rot);
    m->score_scale = (float)(1.0 / bitnet__sqrt((double)m->head_dim));
    m->heads_per_kv = m->n_heads / m->n_kv_heads;
    m->q_dim = m->n_heads * m->head_dim;
    m->q_rows = hybrid ? 2 * m->q_dim : m->q_dim;
    m->kv_dim = m->n_kv_heads * m->head_dim;
    m->eps = bitnet__meta_float(&x, ".attention.layer_norm_rms_epsilon", m->family->eps, 1e-30f,
                                1.0f);
    m->freq_base = bitnet__meta_float(&x, ".rope.freq_base", m->family->freq_base, 1.0f, 1e15f);
    bitnet__load_scales(&x);
    bitnet__load_sliding(&x);
    bitnet__load_pooling(&x);
    bitnet__load_gate(&x);
    bitnet__load_rope_scaling(&x);
    bitnet__load_fold(&x);
    return x.result != BITNET_OK ? x.result : bitnet__check_keys(m, err);
}

/* ---- tokenizer ---- */

/* The pre-tokenizer of byte-level BPE; without a key, the first one. */
static const bitnet__pre *bitnet__load_pre(bitnet__meta *x) {
    char text[32], names[BITNET__TEXT] = "", longer[BITNET__TEXT];
    size_t i;
    bitnet__meta_text(x, "tokenizer.ggml.pre", text, sizeof text);
    if (!text[0] && x->result == BITNET_OK && !x->m->family->default_pre)
        bitnet__log_text(x->m, BITNET_LOG_WARNING, "the file has no tokenizer.ggml.pre; llama-bpe "
                         "is assumed, and if that is wrong, texts become wrong tokens");
    for (i = 0; text[0] && i < sizeof bitnet__pres / sizeof bitnet__pres[0]; i++) {
        if (!strcmp(text, bitnet__pres[i].name)) return &bitnet__pres[i];
        bitnet__format(longer, "%s%s%s", names, i ? ", " : "", bitnet__pres[i].name);
        memcpy(names, longer, sizeof names);
    }
    if (text[0])
        x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.pre is '%s'; only "
                                 "these are supported: %s", text, names);
    return &bitnet__pres[0];
}

/* The scanner of byte-level BPE; 0: the tokenizer is SentencePiece. */
static const bitnet__pre *bitnet__load_tokenizer_kind(bitnet__meta *x) {
    char text[32];
    bitnet__meta_text(x, "tokenizer.ggml.model", text, sizeof text);
    if (!strcmp(text, "gpt2")) return bitnet__load_pre(x);
    if (x->result == BITNET_OK && strcmp(text, "llama"))
        x->result = bitnet__fail(x->err, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.model is '%s'; "
                                 "only gpt2 (byte-level BPE) and llama (SentencePiece) are "
                                 "supported", text);
    return 0;
}

/* Compares the file's template with those that are known, into m->chat and *row; *row 0: it is none
   of them. With what loading has allocated before, this takes at most four times the file's
   size. */
static bitnet_result bitnet__find_chat_row(bitnet_model *m, const char *jinja, size_t n,
                                           const bitnet__chat_row **row, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    const size_t most = sizeof(bitnet__recognition) + BITNET__JINJA_MEMORY;
    const uint64_t held = m->vocab.memory + g->n_keys * sizeof *g->keys +
                          g->n_tensors * sizeof *g->tensors + g->data_start;
    const uint64_t left = g->src.size > held / 4 ? 4 * (g->src.size - held / 4) : 0;
    const size_t room = left < most ? (size_t)left : most;
    const bitnet__chat_fit *fit;
    bitnet__recognition *r;
    bitnet_result result = BITNET_OK;
    if (room < sizeof *r) {
        bitnet__fail(&m->vocab.no_chat, BITNET_ERR_UNSUPPORTED, "no chat: the file is too small "
                     "for its tokenizer.chat_template to be read");
        return BITNET_OK;
    }
    r = (bitnet__recognition *)bitnet__alloc(&m->params.allocator, room);
    if (!r) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the chat template");
    fit = bitnet__recognise(r, room, &m->vocab, jinja, n, &m->vocab.no_chat);
    if (fit) {
        *row = fit->row;
        m->chat = fit->t;
        m->vocab.chat_bos = fit->bos;
    }
    if (fit && fit->t.system_text.data) {
        const bitnet_text own = fit->t.system_text;
        char *text = (char *)bitnet__model_alloc(m, own.size + 1);
        if (text) memcpy(text, own.data, own.size);
        else result = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the chat template");
        m->chat.system_text.data = text;
    }
    bitnet__free(&m->params.allocator, r);
    return result;
}

/* Logs which template the file has, and what was learned of it. */
static void bitnet__log_chat(const bitnet_model *m) {
    const bitnet_chat_template *t = &m->chat;
    bitnet_error text;
    bitnet__fail(&text, BITNET_OK, "chat template %s: %s%s%s%s", t->name,
                 !bitnet__turn_of(t, bitnet_text_of("system")) ? "no system messages" :
                 t->system_first ? "system messages only at the beginning" : "system messages",
                 t->system_text.size > 0 ? ", a system text by default" : "",
                 t->tools_before.data ? ", tools" : ", tools in the library's form",
                 t->other.prefix.data ? ", any other roles" : "");
    bitnet__log_text(m, BITNET_LOG_INFO, text.text);
}

/* Loads the chat template, and the tokens that end a text. The official BitNet model's own file has
   a template that it was not trained with, so its architecture decides. */
static void bitnet__load_chat_template(bitnet__meta *x) {
    static const char name[] = "tokenizer.chat_template";
    bitnet_model *m = x->m;
    bitnet__vocab *v = &m->vocab;
    const bitnet__key *k = bitnet__meta_key(x, name);
    const bitnet__chat_row *row = 0;
    const bitnet_token sentence = bitnet__vocab_find(v, "</s>", 4);
    const char *lacks;
    if (k && k->type != BITNET_GGUF_STRING) bitnet__meta_fail(x, name, "is not a string");
    if (x->result != BITNET_OK) return;
    bitnet__fail(&v->no_chat, BITNET_ERR_UNSUPPORTED, "no chat: the file has no %s; give one of "
                 "your own, see bitnet_chat_template", name);
    if (m->family->chat) {
        row = &bitnet__chat_rows[0];
        m->chat = row->t;
        v->chat_bos = 1;
    } else if (k)
        x->result = bitnet__find_chat_row(m, (const char *)bitnet__meta_value(x, k),
                                          (size_t)k->size, &row, x->err);
    if (x->result != BITNET_OK) return;
    bitnet__add_end(v, v->eos);
    bitnet__add_end(v, v->eot);
    bitnet__add_end(v, bitnet__vocab_find(v, "<|end_of_text|>", 15));
    if (bitnet_token_is_special(m, sentence)) bitnet__add_end(v, sentence);   /* else it is HTML */
    lacks = row ? bitnet__lacks_token(v, row) : 0;
    if (lacks)
        bitnet__fail(&v->no_chat, BITNET_ERR_UNSUPPORTED, "no chat: its template is %s, but the "
                     "vocabulary lacks the token '%s'", row->t.name, lacks);
    if (k && (!row || lacks)) bitnet__log_text(m, BITNET_LOG_WARNING, m->vocab.no_chat.text);
    if (!row || lacks) return;
    bitnet__add_ends(v, row);
    v->chat = &m->chat;
    if (!m->family->chat) bitnet__log_chat(m);
}

/* Adds the tokens that end a text beside eos and eot: the end of a message, and those that some
   converters write as a list. */
static void bitnet__load_more_ends(bitnet__meta *x) {
    static const char name[] = "tokenizer.ggml.eos_token_ids";
    const bitnet__key *k = bitnet__meta_key(x, name);
    uint64_t i;
    bitnet__add_end(&x->m->vocab, bitnet__meta_token(x, "tokenizer.ggml.eom_token_id", ""));
    if (k && (k->type != BITNET_GGUF_ARRAY || k->count > 4 ||
              (k->element != BITNET_GGUF_I32 && k->element != BITNET_GGUF_U32)))
        bitnet__meta_fail(x, name, "is not a list of at most 4 32-bit integers");
    for (i = 0; k && x->result == BITNET_OK && i < k->count; i++) {
        const uint32_t id = bitnet__get_u32(bitnet__meta_value(x, k) + 4 * i);
        if (id < (uint32_t)x->m->n_vocab) bitnet__add_end(&x->m->vocab, (bitnet_token)id);
        else bitnet__meta_fail(x, name, "names a token that the vocabulary lacks");
    }
}

static bitnet_result bitnet__load_tokenizer(bitnet_model *m, bitnet_error *err) {
    bitnet__meta x = {m, err, BITNET_OK};
    bitnet__vocab *vocab = &m->vocab;
    const bitnet__pre *pre = bitnet__load_tokenizer_kind(&x);
    const int spm = !pre;
    const bitnet__strings tokens = bitnet__meta_strings(&x, "tokenizer.ggml.tokens");
    const bitnet__strings merges = spm ? tokens : bitnet__meta_strings(&x, "tokenizer.ggml.merges");
    const uint8_t *types = bitnet__meta_per_token(&x, "tokenizer.ggml.token_type", tokens.count, 0);
    const uint8_t *scores = bitnet__meta_per_token(&x, "tokenizer.ggml.scores", tokens.count, 1);
    int prefix;
    if (spm && (!types || !scores))
        bitnet__meta_fail(&x, types ? "tokenizer.ggml.scores" : "tokenizer.ggml.token_type",
                          "is missing, which a SentencePiece tokenizer needs");
    prefix = bitnet__meta_uint(&x, "tokenizer.ggml.add_space_prefix", 1, 0, 1) && spm;
    if (x.result == BITNET_OK)
        x.result = bitnet__vocab_build(vocab, &m->params.allocator, &tokens, types,
                                       spm ? 0 : &merges, spm ? scores : 0, err);
    if (x.result != BITNET_OK) return x.result;
    vocab->space_prefix = prefix;
    if (pre) vocab->pre = pre;
    m->n_vocab = (int32_t)bitnet__meta_uint(&x, ".vocab_size", tokens.count, tokens.count, 1 << 24);
    vocab->n_ids = m->n_vocab;
    /* The end of a turn. The template bitnet-2b-4t needs this very token, whatever a key says. */
    vocab->eot = bitnet__meta_token(&x, "tokenizer.ggml.eot_token_id", "<|eot_id|>");
    if (m->family->chat) vocab->eot = bitnet__vocab_find(vocab, "<|eot_id|>", 10);
    else if (vocab->eot < 0) vocab->eot = bitnet__vocab_find(vocab, "<|im_end|>", 10);
    vocab->bos = bitnet__meta_token(&x, "tokenizer.ggml.bos_token_id",
                                    spm ? "<s>" : "<|begin_of_text|>");
    vocab->eos = bitnet__meta_token(&x, "tokenizer.ggml.eos_token_id",
                                    spm ? "</s>" : "<|end_of_text|>");
    vocab->add_bos = bitnet__meta_uint(&x, "tokenizer.ggml.add_bos_token",
                                       !pre || pre->digits == 3, 0, 1) && vocab->bos >= 0;
    vocab->add_eos = bitnet__meta_uint(&x, "tokenizer.ggml.add_eos_token", 0, 0, 1) &&
                     vocab->eos >= 0;
    bitnet__load_more_ends(&x);
    bitnet__load_chat_template(&x);
    return x.result;
}

/* ---- loading ---- */

/* Index (a fraction) of the pair that rotates `turns` times within YaRN's original length. */
static double bitnet__yarn_pair(const bitnet_model *m, float turns) {
    const double length = (double)m->yarn.original / ((double)turns * 6.283185307179586);
    return (double)m->n_rot * bitnet__log(length) / (2.0 * bitnet__log((double)m->freq_base));
}

/* How much of its own frequency YaRN leaves to pair i: 1 to those that rotate beta_fast times or
   more, 0 to those that rotate beta_slow times or less, and the share falls evenly between them. */
static double bitnet__yarn_share(const bitnet_model *m, int32_t i) {
    const double last = (double)(m->n_rot - 1);
    const double fast = bitnet__yarn_pair(m, m->yarn.beta_fast);
    const double slow = bitnet__yarn_pair(m, m->yarn.beta_slow);
    const double low = fast > 0.0 ? fast < last ? (double)(int32_t)fast : last : 0.0;
    double high = slow > 0.0 ? slow < last ? (double)(int32_t)slow : last : 0.0, x;
    if (high < slow && high < last) high += 1.0;       /* rounded up; low is rounded down */
    x = ((double)i - low) / (high - low > 0.001 ? high - low : 0.001);
    return 1.0 - (x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x);
}

/* base ^ (-2 i / n_rot) for each rotated pair i, divided by the scaling's factor and by the pair's
   own factor in the tensor of that name; 0: there is none. */
static bitnet_result bitnet__make_rope(bitnet_model *m, float base, float factor, const char *name,
                                       const double **out, bitnet_error *err) {
    double *freq = (double *)bitnet__model_alloc(m, (uint64_t)(m->n_rot / 2) * sizeof *freq);
    const double log_base = bitnet__log((double)base);
    const float *own = 0;
    double own_factor;
    int32_t i;
    bitnet_result r = name ? bitnet__load_norm(m, name, m->n_rot / 2, &own, err) : BITNET_OK;
    if (r != BITNET_OK) return r;
    if (!freq) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the rotary table");
    for (i = 0; i < m->n_rot / 2; i++) {
        const double kept = factor != 1.0f && m->yarn.original ? bitnet__yarn_share(m, i) : 0.0;
        if (own && !(own[i] >= 1e-3f && own[i] <= 1e6f))
            return bitnet__fail(err, BITNET_ERR_FORMAT, "element %d of tensor '%s' is not a number "
                                "from 1e-3 to 1e6", (int)i, name);
        freq[i] = bitnet__exp(-2.0 * (double)i / (double)m->n_rot * log_base);
        own_factor = own ? (double)own[i] : 1.0;
        if (kept > 0.0)
            freq[i] = freq[i] / ((double)factor * own_factor) * (1.0 - kept) +
                      freq[i] / own_factor * kept;
        else freq[i] /= (double)factor * own_factor;
    }
    *out = freq;
    return BITNET_OK;
}

/* The pairs have factors of their own with longrope, and in files of LLaMA 3.1's converters. The
   layers that slide have a base of their own, and see too few positions to need scaling. */
static bitnet_result bitnet__load_rope(bitnet_model *m, bitnet_error *err) {
    static const char each[] = "rope_freqs.weight";
    const char *own = m->rope_original ? "rope_factors_short.weight" :
                      bitnet__find_tensor(&m->gguf, each) ? each : 0;
    bitnet_result r;
    if (m->slides.at && (m->rope_original || m->rope_factor < 1.0f || m->rope_factor > 1.0f ||
                         m->rope_length < 1.0 || m->rope_length > 1.0))
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "GGUF keys '%s.rope.scaling.*': only "
                            "layers that slide have RoPE here, and that is not scaled", m->arch);
    if (m->slides.at)
        return bitnet__make_rope(m, m->slide_base, 1.0f, 0, &m->rope_freq[1], err);
    r = bitnet__make_rope(m, m->freq_base, m->rope_factor, own, &m->rope_freq[0], err);
    if (r == BITNET_OK && m->rope_original)
        r = bitnet__make_rope(m, m->freq_base, 1.0f, "rope_factors_long.weight", &m->rope_long,
                              err);
    if (r == BITNET_OK && m->window > 0)
        r = bitnet__make_rope(m, m->slide_base, 1.0f, 0, &m->rope_freq[1], err);
    return r;
}

/* An unused tensor means a network that computes something else. */
static bitnet_result bitnet__check_unused(const bitnet_model *m, bitnet_error *err) {
    const bitnet__gguf *g = &m->gguf;
    uint64_t i;
    for (i = 0; i < g->n_tensors; i++)
        if (!g->tensors[i].used)
            return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "tensor '%.*s' is not part of "
                                "architecture '%s' as it is supported",
                                (int)g->tensors[i].name.len,
                                (const char *)g->src.data + g->tensors[i].name.at, m->arch);
    return BITNET_OK;
}

/* Makes a ternary matrix a linear layer with a scale per block. */
static bitnet_result bitnet__as_linear(const bitnet__matrix *a, const char *name,
                                       bitnet__linear *l, bitnet_error *err) {
    memset(l, 0, sizeof *l);
    l->file.type = a->type;
    l->file.n = a->n_cols;
    l->file.rows = l->n_out = a->n_rows;
    l->scale = 1.0f;
    l->w = a->data;
    bitnet__set_group(l);
    return bitnet_ternary_check(&l->file, name, err);
}

/* A ternary head becomes a linear layer; if it is the embedding, rows of that are read from it. An
   embedding of its own is checked. */
static bitnet_result bitnet__load_ternary_head(bitnet_model *m, bitnet_error *err) {
    static const char embedding[] = "token_embd.weight", output[] = "output.weight";
    bitnet__linear *head = &m->ternary_head, embed;
    bitnet__packing p;
    bitnet_result r;
    if (m->head.data && bitnet__is_ternary(bitnet__type_info(m->head.type))) {
        if (!BITNET__GROUPS)
            return bitnet__no_groups(m->tied ? embedding : output, m->head.type, err);
        if ((r = bitnet__as_linear(&m->head, output, head, err)) ||
            (r = bitnet__pack_layer(m, -1, err))) return r;
        m->head.data = head->w;
        if (m->tied) m->embed.data = head->w;
        if (!m->group || head->group < m->group) m->group = head->group;
    }
    if (m->tied || !bitnet__is_ternary(bitnet__type_info(m->embed.type))) return BITNET_OK;
    if ((r = bitnet__as_linear(&m->embed, embedding, &embed, err))) return r;
    memset(&p, 0, sizeof p);
    embed.plan = BITNET__ONLY_CHECKED;
    p.m = m;
    p.linear = &embed;
    p.jobs = bitnet__team_size(m->team);
    p.unit = 64;
    return bitnet__pack_linear(m, &p, embedding, err);
}

static bitnet_result bitnet__load_weights(bitnet_model *m, bitnet_error *err) {
    bitnet_result r;
    int32_t i;
    m->copy = bitnet__head_copy_create(m);
    if (!m->copy) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a model");
    m->layers = (bitnet__layer *)bitnet__model_alloc(m, (uint64_t)m->n_layers * sizeof *m->layers);
    if (!m->layers) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the list of layers");
    if ((r = bitnet__load_matrix(m, "token_embd.weight", m->dim, m->n_vocab, 0, &m->embed, err)) ||
        (r = bitnet__load_norm(m, "output_norm.weight", m->dim, &m->output_norm, err))) return r;
    for (i = 0; i < m->dim; i++) ((float *)(uintptr_t)m->output_norm)[i] /= m->scales.logit;
    if (!m->embeds) m->head = m->embed;
    if ((bitnet__find_tensor(&m->gguf, "output.weight") || (m->family->norms & BITNET__OWN_HEAD)) &&
        (r = bitnet__load_matrix(m, "output.weight", m->dim, m->n_vocab, 0, &m->head, err)))
        return r;
    m->tied = m->head.data && m->head.data == m->embed.data;
    if ((r = bitnet__fold_ends(m, err))) return r;
    for (i = 0; i < m->n_layers; i++)
        if ((r = bitnet__load_layer(m, i, &m->layers[i], err)) ||
            (r = bitnet__pack_layer(m, i, err))) return r;
    return bitnet__load_ternary_head(m, err);
}

static bitnet_result bitnet__check_kernels(const bitnet_kernels *k, bitnet_error *err) {
    if (bitnet_kernels_usable(k)) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED,
                        "this CPU or its operating system lacks what the kernels '%s' need",
                        k->name);
}

static uint64_t bitnet__hash_floats(uint64_t h, const float *x, int32_t n) {
    uint8_t bytes[8] = {0};
    int32_t i;
    for (i = 0; i < n; i++) {
        bitnet__put_u32(bytes, bitnet__float_bits(x[i]));
        h = bitnet__hash(h, bytes, 8);
    }
    return h;
}

/* The scales of the first 16 rows, if the layer has scale groups. */
static uint64_t bitnet__hash_groups(uint64_t h, const bitnet__linear *l) {
    uint8_t scales[2 * 16] = {0};
    int32_t k, r;
    for (k = 0; bitnet__has_groups(l) && k < l->n_in; k += l->group) {
        for (r = 0; r < 16 && r < l->n_out; r++)
            bitnet__put_u16(scales + 2 * r, bitnet__group_part(l, r, k, -1));
        h = bitnet__hash(h, scales, sizeof scales);
    }
    return h;
}

static uint64_t bitnet__hash_ints(uint64_t h, const int32_t *x, int n) {
    uint8_t bytes[20];
    int i;
    for (i = 0; i < n; i++) bitnet__put_u32(bytes + 4 * i, (uint32_t)x[i]);
    return bitnet__hash(h, bytes, 4 * (size_t)n);
}

/* What saved sequences know their model by: the header, how the weights are read, the last norm
   and the scales of all linear layers (with scale groups, in such a head, too, those of 16 rows).
   Another training of the same shape has other scales. Not all weights, because loading does not
   read the embedding. */
static uint64_t bitnet__model_identity(const bitnet_model *m) {
    const bitnet_tile all = m->params.tile;
    const int32_t how[4] = {(int32_t)m->params.i2s_packing, all.rows, all.cols, all.group};
    uint64_t h = bitnet__hash(BITNET__HASH_START, m->gguf.src.data, (size_t)m->gguf.data_start);
    float scales[BITNET__LINEARS];
    int32_t i;
    int k, n;
    h = bitnet__hash_ints(h, how, 4);
    for (i = 0; i < m->params.n_tiles; i++) {
        const bitnet_shape_tile *t = &m->params.tiles[i];
        const int32_t one[5] = {t->rows, t->n, t->tile.rows, t->tile.cols, t->tile.group};
        h = bitnet__hash_ints(h, one, 5);
    }
    h = bitnet__hash_floats(h, m->output_norm, m->dim);
    for (i = 0; i < m->n_layers; i++) {
        for (k = n = 0; k < BITNET__LINEARS; k++) {
            const bitnet__linear *l = &m->layers[i].linear[k];
            if (!l->file.rows) continue;
            scales[n++] = l->scale;
            h = bitnet__hash_groups(h, l);
            if (bitnet__in_floats(l))      /* the first row */
                h = bitnet__hash(h, l->w, bitnet__float_row(l));
        }
        h = bitnet__hash_floats(h, scales, n);
    }
    return bitnet__hash_groups(h, &m->ternary_head);
}

static const char *bitnet__layout(const bitnet_model *m) {
    return m->group > 0 ? "GROUPS" : m->kernels.layout;
}

/* The default table for a file: if it has weights in TL2_R16, the best one that reads them in
   place. */
static const bitnet_kernels *bitnet__kernels_for(const bitnet__gguf *g) {
    uint64_t t = 0;
    int i;
    while (t < g->n_tensors && g->tensors[t].type != BITNET_TENSOR_TL2_R16) t++;
    for (i = 0; t < g->n_tensors && i < bitnet_kernels_count(); i++)
        if (bitnet__reads_tl2_r16(bitnet_kernels_get(i)) &&
            bitnet_kernels_usable(bitnet_kernels_get(i))) return bitnet_kernels_get(i);
    return bitnet_kernels_default();
}

/* The tokenizer alone, whatever the architecture is. What a known one means for the tokenizer still
   holds; another's is read as llama's. */
static bitnet_result bitnet__load_vocab_only(bitnet_model *m, bitnet_error *err) {
    bitnet__meta x = {m, err, BITNET_OK};
    bitnet_result r = BITNET_OK;
    bitnet__load_arch(&x);
    if (!m->family) m->family = bitnet__family_of(m, "llama");
    m->n_ctx = (int32_t)bitnet__meta_uint(&x, ".context_length", 0, 0, BITNET__MAX_CONTEXT);
    m->kernels = *bitnet_kernels_default();
    if (x.result != BITNET_OK || (r = bitnet__load_tokenizer(m, err)))
        return x.result ? x.result : r;
    return bitnet__progress(m, m->gguf.src.size, err);
}

static bitnet_result bitnet__load_model(bitnet_model *m, bitnet_error *err) {
    const uint64_t max_bytes = m->params.max_bytes ? m->params.max_bytes : (uint64_t)16 << 30;
    const bitnet_kernels *k = m->params.kernels;
    char text[BITNET__TEXT];
    bitnet_result r;
    if (m->gguf.src.size > max_bytes)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the file has %llu bytes; the limit is %llu "
                            "(max_bytes)", (unsigned long long)m->gguf.src.size,
                            (unsigned long long)max_bytes);
    if (k && (r = bitnet__check_kernels(k, err))) return r;
    m->gguf.q2_0_block = m->params.q2_0_block;
    if ((r = bitnet__gguf_parse(&m->gguf, &m->params.allocator, err))) return r;
    if (m->params.vocab_only) return bitnet__load_vocab_only(m, err);
    m->kernels = k ? *k : *bitnet__kernels_for(&m->gguf);
    if ((r = bitnet__load_shape(m, err)) || (r = bitnet__load_tokenizer(m, err)) ||
        (r = bitnet__load_weights(m, err)) || (r = bitnet__load_rope(m, err)) ||
        (r = bitnet__check_unused(m, err)) || (r = bitnet__gguf_check_end(&m->gguf, err)) ||
        (r = bitnet__progress(m, m->gguf.src.size, err))) return r;
    m->identity = bitnet__model_identity(m);
    if (m->fold) bitnet__model_release(m, (const uint8_t *)m->fold, 0);
    m->fold = 0;
    bitnet__format(text, "%s, %d layers of %d, vocabulary of %d, kernels %s, weights in %s",
                   m->arch, (int)m->n_layers, (int)m->dim, (int)m->n_vocab, m->kernels.name,
                   bitnet__layout(m));
    bitnet__log_text(m, BITNET_LOG_INFO, text);
    if (m->n_experts > 0) {
        bitnet__format(text, "%d experts a layer, of which each token uses %d", (int)m->n_experts,
                       (int)m->n_used);
        bitnet__log_text(m, BITNET_LOG_INFO, text);
    }
    bitnet__log_zeros(m);
#ifdef BITNET__SLOW
    if (!m->params.kernels) bitnet__log_text(m, BITNET_LOG_WARNING, BITNET__SLOW);
#endif
    return BITNET_OK;
}

/* Every way to load ends here. Takes over the source, on failure too. */
static bitnet_result bitnet__load(bitnet__source src, const bitnet_model_params *params,
                                  bitnet_model **out, bitnet_error *err) {
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_result r;
    if (out) *out = 0;
    memset(&p, 0, sizeof p);
    if (params) p = *params;
    r = bitnet__check_open(&src, out != 0, &p.allocator, err);
    if (r == BITNET_OK) r = bitnet__check_reserved(p.reserved, 6, "bitnet_model_params", err);
    if (r == BITNET_OK) r = bitnet__check_packing(p.i2s_packing, err);
    if (r == BITNET_OK) r = bitnet__check_tiles(&p, err);
    if (r == BITNET_OK && p.q2_0_block && p.q2_0_block != 64 && p.q2_0_block != 128)
        r = bitnet__fail(err, BITNET_ERR_ARG, "q2_0_block %lld is not 64 or 128",
                         (long long)p.q2_0_block);
    if (r == BITNET_OK && !(m = (bitnet_model *)bitnet__alloc(&p.allocator, sizeof *m)))
        r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a model");
    if (r != BITNET_OK) {
        bitnet__source_close(&src, &p.allocator);
        return r;
    }
    memset(m, 0, sizeof *m);
    m->params = p;
    m->n_users = 1;
    m->gguf.src = src;
    r = bitnet__load_model(m, err);
    bitnet__team_free(&m->params.allocator, m->team);
    m->team = 0;
    m->params.tiles = 0;               /* the caller's, who may free it now */
    m->params.n_tiles = 0;
    if (r != BITNET_OK) {
        bitnet_model_free(m);
        return r;
    }
    bitnet__source_close_file(&m->gguf.src);
    *out = m;
    return BITNET_OK;
}

/* Gives up a use of the model; the last one frees it. */
static void bitnet__model_leave(bitnet_model *m) {
    bitnet_allocator a;
    bitnet__allocation *b, *next;
    if (bitnet__count(&m->n_users, UINTPTR_MAX) > 0) return;
    a = m->params.allocator;
    bitnet__head_copy_free(m);
    bitnet__vocab_free(&m->vocab, &a);
    for (b = m->allocations; b; b = next) {
        next = b->next;
        bitnet__free(&a, b);
    }
    bitnet__gguf_free(&m->gguf, &a);
    bitnet__free(&a, m);
}

BITNET_API void bitnet_model_free(bitnet_model *m) {
    if (m) bitnet__model_leave(m);
}

BITNET_API bitnet_result bitnet_model_load_memory(const void *data, size_t size,
                                                  const bitnet_model_params *params,
                                                  bitnet_model **out, bitnet_error *err) {
    return bitnet__load(bitnet__source_memory(data, size, err), params, out, err);
}

BITNET_API bitnet_result bitnet_model_load_io(const bitnet_io *io,
                                              const bitnet_model_params *params,
                                              bitnet_model **out, bitnet_error *err) {
    return bitnet__load(bitnet__source_io(io, err), params, out, err);
}

#ifndef BITNET_NO_STDIO
BITNET_API bitnet_result bitnet_model_load_file(const char *path, const bitnet_model_params *params,
                                                bitnet_model **out, bitnet_error *err) {
    return bitnet__load(bitnet__source_file(path, params && params->copy, err), params, out, err);
}
#endif

BITNET_API void bitnet_model_get_info(const bitnet_model *m, bitnet_model_info *info) {
    uint32_t head;
    if (!info) return;
    memset(info, 0, sizeof *info);
    if (!m) return;
    info->arch = m->arch;
    info->kernels_name = m->kernels.name;
    info->layout = bitnet__layout(m);
    info->n_vocab = m->n_vocab;
    info->n_layers = m->n_layers;
    info->dim = m->dim;
    info->ffn_dim = m->ffn_dim;
    info->n_heads = m->n_heads;
    info->n_kv_heads = m->n_kv_heads;
    info->head_dim = m->head_dim;
    info->ctx_train = m->n_ctx;
    head = m->ternary_head.group ? m->ternary_head.file.type : m->head.type;
    info->embed_type = !m->embed.data ? "none"
                       : bitnet_tensor_type_name(m->tied ? head : m->embed.type);
    info->head_type = m->head.data ? bitnet_tensor_type_name(head) : "none";
    info->head_bytes = (uint64_t)m->head.row_bytes * (uint64_t)m->head.n_rows;
    info->n_params = m->n_params;
    info->file_bytes = m->gguf.src.size;
    info->own_bytes = m->own_bytes + sizeof *m + m->vocab.memory +
                      (m->gguf.n_keys + 1) * sizeof *m->gguf.keys +
                      (m->gguf.n_tensors + 1) * sizeof *m->gguf.tensors +
                      (m->gguf.src.io.read_fn ? m->gguf.src.have : 0);
    info->own_bytes += bitnet__head_copy_bytes(m, &info->head_copy_bytes);
    info->bos = m->vocab.bos;
    info->eos = m->vocab.eos;
    info->eot = m->vocab.eot;
    info->chat_template_name = m->vocab.chat ? m->vocab.chat->name : 0;
    info->add_bos = m->vocab.add_bos;
    info->add_eos = m->vocab.add_eos;
    info->has_head = m->head.data != 0;
    info->pooling = (bitnet_pooling)m->pooling;
    info->longest_token = (int32_t)m->vocab.longest_token;
    info->group = m->group;
    info->n_experts = m->n_experts;
    info->n_experts_used = m->n_used;
}

BITNET_API int bitnet_model_meta_key(const bitnet_model *m, int32_t i, char *buf, size_t cap) {
    const bitnet__key *k;
    if (!m) return BITNET_ERR_ARG;
    if (i < 0 || (uint64_t)i >= m->gguf.n_keys) return BITNET_ERR_NOT_FOUND;
    k = &m->gguf.keys[i];
    return bitnet__copy_text(m->gguf.src.data + k->name.at, k->name.len, buf, cap);
}

BITNET_API int bitnet_model_get_meta(const bitnet_model *m, const char *key, char *buf,
                                     size_t cap) {
    const bitnet__key *k = m && key ? bitnet__find_key(&m->gguf, key) : 0;
    bitnet_gguf_value v;
    if (!k) return m && key ? BITNET_ERR_NOT_FOUND : BITNET_ERR_ARG;
    v = bitnet__key_value(&m->gguf, k);
    return bitnet_gguf_text(&v, buf, cap);
}

/* =============================================================================================
   @context  sequences and their pages of keys and values; room for a batch; work split to threads
   Work is split by output rows, tokens or heads, never inside a sum, so the results do not depend
   on the split. Arrays are token-major and named as in the papers: x is [n_tokens][dim].

   A context of one sequence has the memory for all its positions from the beginning. Otherwise they
   come in pages of 64: bitnet_eval_many and bitnet_gen_next allocate pages when sequences grow, and
   n_kv limits them: where they would need more, they return BITNET_ERR_FULL and change nothing.
   Pages that a sequence gives up serve the others; bitnet_ctx_free frees them. n_logits rows of
   logits take 4 bytes for each token of the vocabulary.

   The KV cache takes 4*layers*kv_heads*head_size bytes per position, twice that with BITNET_KV_F32,
   and 2*layers*kv_heads*(head_size+4) with BITNET_KV_I8. n_ctx 0 means 4096, or the length that the
   model was trained for if that is less; it can be longer, but the 32768 positions of Falcon3 take
   gigabytes. What I8 changes, against F32 (x86-64; build/perplexity and build/embed, --kv-type):

       tiny.gguf, chunks of 512 of tests/data/tiny-heldout.txt         F32       F16       I8
           perplexity                                                  3.8121    3.8120    3.8172
           mean KL divergence from F32                                           0.00035   0.00077
           same likeliest token                                                  99.6 %    99.3 %
       embeddings of random models, 1 minus the cosine with F32
           0.6B (bench --family qwen3-embedding), 512 tokens                     7e-5      1.3e-4
           the same, 4096 tokens                                                 5e-5      1.5e-4
   ============================================================================================= */

enum {
    BITNET__MIN_TASK = 1 << 18,        /* products: 5 us with AVX2, 0.2 ms in plain C */
    BITNET__DOT_STRIDE = BITNET__ROWS + 16,    /* from a token's products to the next one's; a
                                          multiple of 1 KB would put those of many tokens into a few
                                          sets of the L1 cache */
    BITNET__TOKENS = 512,              /* for at most so many tokens: the products fit the L2 cache,
                                          and take a few ms, between which cancel_fn is asked */
    BITNET__COLUMNS = 64,              /* tokens of a span, times heads that share a KV head */
    BITNET__PAGE = 64,                 /* positions in a page of the KV cache, if sequences share
                                          them out, and in a task of attention: whole KV blocks */
    BITNET__MIX_DIMS = 64,             /* elements in a slice of a head */
    BITNET__MAX_SEQS = 4096,
    BITNET__MAX_MARKS = 256,
    BITNET__MARK_BEFORE = 8,           /* tokens; see marks */
    BITNET__MARK_GAP = 16,
    BITNET__NO_STATE = INT32_MAX,
    BITNET__GATHERED = 64,             /* tokens of an expert whose inputs a thread puts together */
    BITNET__ROUTED = 32,               /* tokens whose hidden states meet the router's rows: they
                                          stay in the L2 cache */
    BITNET__PROMPT_CHUNK = 32          /* tokens of a prompt that go along with other sequences */
};

/* ---- types of the cache ---- */

struct bitnet__attention;
typedef void bitnet__bytes_fn(void *ud, uint8_t *bytes, size_t n);

/* A cell is one head's key, or value, at a position. These are the cells of positions
   [from, from + n), which follow each other in a page. */
typedef struct bitnet__cells { uint8_t *at; int32_t from, n; } bitnet__cells;

/* How the cache stores keys and values, and what attention does with them: a row for each
   bitnet_kv_type; `what` is 0 for keys and 1 for values. A new type touches these places: MEMORY in
   the manual; bitnet_kv_type; if it needs kernels, @kernels, @selftest and the kernel headers; its
   functions and its row in @forward, under "the cache, by type". No other place in the library asks
   which type it is. */
typedef struct bitnet__kv_ops {
    const char *name;
    int32_t head_unit, max_head;       /* head_dim is a multiple of this, and at most that */
    int32_t element, extra;            /* bytes of a cell: element * head_dim + extra */
    int32_t unit;                      /* positions that are stored together: 1 or a KV block */
    int rounds;                        /* 1: queries and probabilities are rounded to F16 */
    int int8;                          /* 1: queries and the weights of values are int8, too */
    /* Stores v [head_dim] of a position in the unit at `to`; room [head_dim] may be written.
       Returns 1 if a NaN would be lost, else 0. */
    int (*store)(const bitnet_ctx *c, uint8_t *to, int32_t position, int what, const float *v,
                 int8_t *room);
    /* Products of all columns with these keys. */
    void (*scores)(const struct bitnet__attention *a, const bitnet__cells *keys);
    /* If int8: turns the probabilities of column i at these values into weights. Positions outside
       [first, end) get the weight 0. */
    void (*weigh)(const struct bitnet__attention *a, const bitnet__cells *values, int32_t i,
                  int32_t first, int32_t end);
    /* out [n_cols][count] += elements [first, first + count) of these values, times the weights of
       the columns from number `col` on. */
    void (*add)(const struct bitnet__attention *a, const bitnet__cells *values, int32_t col,
                int32_t n_cols, int32_t first, int32_t count, float *out);
    /* Calls fn for the bytes of these cells, in the order of saved states; fn may change them. */
    void (*visit)(const bitnet_ctx *c, const bitnet__cells *cells, int what, void *ud,
                  bitnet__bytes_fn *fn);
} bitnet__kv_ops;

static const bitnet__kv_ops *bitnet__kv_ops_of(bitnet_kv_type type);

BITNET__INLINE int bitnet__is_int8(const bitnet__kv_ops *kv) { return BITNET__KV_I8 && kv->int8; }

/* ---- a context ---- */

/* Keys and values of page_len consecutive positions, for all layers that cache; the data follows:
   [n_caches][n_kv_heads][keys, values][page_len] cells. Types whose unit is a KV block have those
   in place of cells, as drawn in @kernels; a KV block is as large as its cells. Sequences that
   begin with the same tokens may share pages. A page is written only by a sequence that has it
   alone. */
typedef struct bitnet__page {
    struct bitnet__page *next;         /* in the list of free pages */
    int32_t n_users;                   /* sequences that have it */
} bitnet__page;

typedef struct bitnet__seq {
    bitnet_token *history;             /* [n_ctx]  its tokens */
    bitnet__page **pages;              /* [n_ctx / page_len, rounded up] */
    int32_t n_past, n_pages;           /* positions in the cache, pages for them */
    int32_t n_in_state;                /* the first tokens of history, whose state it has; less than
                                          n_past after a cut. BITNET__NO_STATE: of none */
    int32_t mark_cut, mark_end;        /* numbers of tokens after which it wants a mark */
    bitnet_token pending;              /* sampled, not yet evaluated; -1: none */
    /* While a call appends to it: */
    int32_t n_again, again_from;       /* tokens from this one on, to be read again before */
    int32_t n_queued;                  /* tokens in history behind n_past, to be evaluated */
    int32_t is_prompt;                 /* 1: the end of a turn is in front of these */
    int32_t n_before;                  /* n_past before the call */
    bitnet_token pending_before;       /* pending before the call */
    bitnet__page *leaves;              /* the shared page of which it needs a copy; 0: none */
    int32_t in_generation;             /* 1: a bitnet_gen has it */
    int32_t n_paused;                  /* while a pass is paused: n_past in it */
    bitnet_figures figures;            /* of its last generation */
} bitnet__seq;

/* A pass over the weights for c->inputs, which may be paused between two layers. Nothing of it
   shows then: the sequences are as before, but keep the pages that it has written. */
typedef struct bitnet__pass {
    int32_t n_inputs;                  /* of a paused pass; 0: none is paused */
    int32_t total, done;               /* queued tokens; how many of them are evaluated */
    int32_t input, of_input;           /* the token that comes next into a batch */
    int32_t batch;                     /* tokens of the batch that is being evaluated; 0: none */
    int32_t layer;                     /* its next layer; -1: the embedding */
    uint64_t ns;                       /* that it has taken so far */
} bitnet__pass;

/* A copy of a state: of any sequence that begins with these tokens. The state [n_state] and the
   tokens [n_ctx] follow. */
typedef struct bitnet__mark {
    float *state;
    bitnet_token *tokens;              /* [n] */
    int32_t n;                         /* 0: it is free */
    int32_t is_open;                   /* 1: the pass that writes the state has not ended */
    int64_t used;                      /* mark_clock when it was made or last gave its state */
} bitnet__mark;

/* A token: of a batch, or of a row of hidden states. */
typedef struct bitnet__place {
    int32_t seq, pos;                  /* seq -1: a row whose token was dropped */
    int32_t row;                       /* in a batch: of its hidden state; -1: it is not kept */
    bitnet__mark *mark;                /* in a batch: gets the state after it; 0: none */
} bitnet__place;

/* Consecutive tokens [t, t + n) of a batch, neighbours in one sequence, that attend together; or
   all of a sequence, a run. */
typedef struct bitnet__span { int32_t t, n; } bitnet__span;

/* The int8 input of linear layers. Without scale groups they divide by s, with them they multiply
   by scales, which are 1 / s: to the bit, that is not the same. */
typedef struct bitnet__act {
    int8_t *q;                         /* [n_batch][n, rounded up to 128 without scale groups] */
    float *s;                          /* [n_batch]               without: q = round(x * s) */
    float *scale;                      /* [n_batch][groups]       with: x is about q * scale */
    int32_t *sum;                      /* [n_batch][1 or groups]  of q */
} bitnet__act;

/* An expert that tokens of the batch have chosen. Its pairs, as in bitnet_ctx: [pair, pair + n). */
typedef struct bitnet__expert { int32_t number, pair, n; } bitnet__expert;

struct bitnet_ctx {
    const bitnet_model *m;
    bitnet_kernels k;
    bitnet_ctx_params p;               /* every default filled in */
    const bitnet__kv_ops *cache;       /* those of p.kv_type */
    bitnet__team *team;                /* 0: parallel_fn, or one thread */
    int64_t min_task;                  /* work below which sharing does not pay; see run_step */
    bitnet__atomic cancelled;          /* 1: cancel_fn has ended this evaluation */
    bitnet__atomic owner;              /* BITNET__FREE, BITNET__BUSY or a thread */
    bitnet__pass pass;
    int32_t may_pause;                 /* 1: bitnet_gen_next is running */
    int (*asks)(const bitnet_ctx *c);  /* asks each cancel_fn of gens; 0: there are none */
    bitnet_gen *const *gens;           /* [n_gens]  of the pass */
    int32_t n_gens;
    int32_t n_users;                   /* generations, and 1 until bitnet_ctx_free */
    int32_t is_freed;                  /* 1: bitnet_ctx_free was called */
    int32_t max_threads;               /* for which there is room */
    int32_t n_rows;                    /* rows of hidden */
    int32_t row;                       /* the row that -1 means in calls; -1: there is none */
    int32_t max_span;                  /* tokens of a span, at most */
    int32_t n_scores;                  /* n_ctx, rounded up to 64 */
    int32_t nonfinite_token;           /* the batch's first that is not finite; its number of tokens
                                          if there is none */
    int32_t nonfinite_layer;           /* the first layer where it is not */
    int32_t n_spans, n_runs;           /* of the batch */
    int32_t n_chosen;                  /* experts that a token of the batch has chosen */
    size_t dot_room;                   /* numbers of a thread in dots, and in outputs */
    int32_t page_len;                  /* positions in a page */
    int32_t n_pages;                   /* that exist, free or not */
    int32_t n_free;
    bitnet__page *free_pages;
    int32_t n_marks, max_marks;        /* that exist; that may */
    int64_t mark_clock;                /* counts what is done with marks */
    bitnet__head *head;                /* logits and the search for the largest; see @head */
    /* The rest points into one arena, in this order; see bitnet__ctx_layout. */
    bitnet__seq *seqs;                 /* [n_seqs] */
    bitnet_token *history;             /* [n_seqs][n_ctx] */
    bitnet__page **page_table;         /* [n_seqs][pages of a sequence] */
    bitnet__page *own_page;            /* [n_seqs is 1 ? 1 : 0] */
    float *states;                     /* [n_seqs][n_state]      zeros from the first token on */
    bitnet__mark **marks;              /* [max_marks] */
    bitnet__place *places;             /* [n_batch]              the batch's tokens */
    bitnet__place *row_places;         /* [n_logits]             the tokens of the rows */
    bitnet__span *spans;               /* [n_batch] */
    bitnet__span *runs;                /* [n_batch] */
    bitnet_input *inputs;              /* [n_seqs] */
    float *x;                          /* [n_batch][dim]         the residual stream */
    float *h;                          /* [n_batch][widest]      normalised, before int8 */
    float *q;                          /* [n_batch][q_rows]  queries, and gates behind them; or
                                          the gates of a gated delta net, [n_batch][value_dim] */
    float *kv;                         /* [n_batch][2][kv_dim]   new keys, then new values */
    float *queries;                    /* [n_kv_heads][n_tokens][heads_per_kv][head_dim]
                                          q, rotated */
    float *o;                          /* [n_batch][q_dim]       attention's output, or
                                          [n_batch][value_dim]   that of a gated delta net */
    float *u;                          /* [n_batch][n_channels]  its queries, keys and values */
    float *rates;                      /* [n_batch][2][n_value_heads]  its decays, then betas */
    float *turned;                     /* [n_batch][widest]      the input of folded matrices */
    float *g;                          /* [n_batch or n_pairs][ffn_dim]  gate and up, joined */
    /* A pair is a token and one of the n_used experts that it has chosen. Pairs are numbered by
       expert, and those of an expert by token. */
    float *routes;                     /* [n_batch][n_experts]   what the router says */
    float *shares;                     /* [n_batch][n_used]      the weight of each chosen expert */
    int32_t *chosen;                   /* [n_batch][n_used]      its number; the best one first */
    int32_t *pairs;                    /* [n_batch][n_used]      its pair's number */
    int32_t *pair_tokens;              /* [n_pairs] */
    int32_t *n_pairs_of;               /* [n_experts]            while pairs are numbered */
    bitnet__expert *experts;           /* [n_experts]            the n_chosen ones, by number */
    bitnet__act act[3];                /* q, k, v or gate, up if their norms differ; else [0]. With
                                          experts: [1] the inputs of down [n_pairs], [2] those of
                                          an expert's gate and up [n_threads][BITNET__GATHERED].
                                          Of a gated delta net: [1] the input of alpha and beta */
    int32_t *dots;                     /* [n_threads][2][n_batch or BITNET__TOKENS]
                                          [BITNET__DOT_STRIDE]; or [n_threads][n_pairs][...] */
    float *outputs;                    /* the same, for scale groups and matrices of floats */
    float *scores;                     /* [n_threads or n_kv_heads][cols][n_scores] */
    bitnet__act query;                 /* if int8: queries, for each head a sum and a scale */
    bitnet__act weight;                /* if int8: weights of values [...][cols][n_scores]; scale
                                          [...][cols][n_scores / 64] */
    float *mixed;                      /* [n_threads][cols][head_dim]  of o */
    float *rope[2];                    /* [n_batch][2][n_rot / 2]  cosines, sines; [1]: of layers
                                          that slide */
    float *hidden;                     /* [n_logits][dim]        output_norm of the last tokens */
    float *head_in;                    /* the same, turned if the head is folded, else hidden */
    float *scratch;                    /* [n_threads][4][dim]    rows of the head */
    int32_t *nonfinite;                /* [n_threads]            nonfinite_token, per thread */
};

static int32_t bitnet__max(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t bitnet__min(int32_t a, int32_t b) { return a < b ? a : b; }

/* Where row t of an array [...][n] begins. All sizes and numbers are int32_t; products of them that
   are offsets in memory are computed here. */
static size_t bitnet__row(int32_t t, int32_t n) { return (size_t)t * (size_t)n; }

/* Rounded up to whole pages of 64. */
static int32_t bitnet__round_page(int32_t positions) {
    return (positions + BITNET__PAGE - 1) / BITNET__PAGE * BITNET__PAGE;
}

/* Positions in a page. A single sequence has one page, so that attention reads long runs: pages of
   64 make it slower by a third. */
static int32_t bitnet__page_len(const bitnet_ctx_params *p) {
    return p->n_seqs > 1 ? BITNET__PAGE : bitnet__round_page(p->n_ctx);
}

static int32_t bitnet__pages_for(const bitnet_ctx *c, int32_t positions) {
    return (positions + c->page_len - 1) / c->page_len;
}

static bitnet_result bitnet__check_range(const char *name, int32_t value, int32_t most,
                                         bitnet_error *err) {
    if (value >= 1 && value <= most) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_ARG, "%s %lld is not in 1..%d", name, (long long)value,
                        (int)most);
}

static bitnet_result bitnet__check_kv_type(const bitnet_model *m, bitnet_kv_type type,
                                           bitnet_error *err) {
    const bitnet__kv_ops *kv = bitnet__kv_ops_of(type);
    if (!BITNET__KV_I8 && type == BITNET_KV_I8)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "BITNET_NO_KV_I8 left kv_type "
                            "BITNET_KV_I8 out of this build");
    if (!kv) return bitnet__fail(err, BITNET_ERR_ARG, "kv_type %lld is unknown", (long long)type);
    if (m->head_dim % kv->head_unit == 0 && m->head_dim <= kv->max_head) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "kv_type %s needs heads whose size is a "
                        "multiple of %d and at most %d; this model's is %d", kv->name,
                        (int)kv->head_unit, (int)kv->max_head, (int)m->head_dim);
}

/* Bytes of a mark, its state and tokens behind it; under 2^33. */
static int64_t bitnet__mark_bytes(const bitnet_model *m, const bitnet_ctx_params *p) {
    return (int64_t)(64 + m->n_state * sizeof(float)) + 4 * (int64_t)p->n_ctx;
}

/* As many marks as one conversation uses, and one more for each other; small ones as they fit. */
static int64_t bitnet__default_marks(const bitnet_model *m, const bitnet_ctx_params *p) {
    const int64_t some = (p->n_seqs + 3) * bitnet__mark_bytes(m, p), least = (int64_t)64 << 20;
    return some > least ? some : least;
}

static int32_t bitnet__max_marks(const bitnet_model *m, const bitnet_ctx_params *p) {
    const int64_t n = m->n_state ? p->mark_bytes / bitnet__mark_bytes(m, p) : 0;
    return n < 0 ? 0 : n > BITNET__MAX_MARKS ? BITNET__MAX_MARKS : (int32_t)n;
}

/* Defaults and ranges of all context parameters. */
static bitnet_result bitnet__ctx_defaults(const bitnet_model *m, const bitnet_ctx_params *given,
                                          bitnet_ctx_params *p, bitnet_error *err) {
    bitnet_result r;
    int64_t all;
    memset(p, 0, sizeof *p);
    if (given) *p = *given;
    if (m->params.vocab_only)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "the model was loaded with vocab_only: it "
                            "has no weights");
    if ((r = bitnet__check_reserved(p->reserved, 5, "bitnet_ctx_params", err)) ||
        (r = bitnet__check_reserved(p->hooks.reserved, 4, "bitnet_hooks", err))) return r;
    if (!p->n_ctx) p->n_ctx = bitnet__min(m->n_ctx, BITNET__DEFAULT_CONTEXT);
    if (!p->n_seqs) p->n_seqs = 1;
    all = (int64_t)p->n_seqs * p->n_ctx;
    if (!p->n_batch) p->n_batch = all > 0 && all < 512 ? (int32_t)all : 512;
    if (!p->n_logits) p->n_logits = p->n_seqs;
    if (!p->n_threads) p->n_threads = bitnet__usable_cpus();
    if ((r = bitnet__check_range("n_ctx", p->n_ctx, BITNET__MAX_CONTEXT, err)) ||
        (r = bitnet__check_range("n_batch", p->n_batch, 65536, err)) ||
        (r = bitnet__check_range("n_seqs", p->n_seqs, BITNET__MAX_SEQS, err)) ||
        (r = bitnet__check_range("n_threads", p->n_threads, BITNET__MAX_THREADS, err))) return r;
    r = bitnet__check_range("n_logits", p->n_logits, all < INT32_MAX ? (int32_t)all : INT32_MAX,
                            err);
    if (r != BITNET_OK) return r;
    if ((r = bitnet__check_kv_type(m, p->kv_type, err)) != BITNET_OK) return r;
    all = (int64_t)p->n_seqs * bitnet__round_page(p->n_ctx);
    if (p->n_kv < 0 || p->n_kv > all)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_kv is not in 0..%lld", (long long)all);
    if (!p->n_kv) p->n_kv = all;
    if (!p->mark_bytes) p->mark_bytes = bitnet__default_marks(m, p);
    if (!p->parallel_fn && p->n_threads > BITNET__OWN_THREADS) p->n_threads = BITNET__OWN_THREADS;
    return BITNET_OK;
}

static size_t bitnet__cell_bytes(const bitnet_model *m, const bitnet__kv_ops *kv) {
    return bitnet__row(kv->element, m->head_dim) + (size_t)kv->extra;
}

/* Longrope has two tables of frequencies. n_ctx decides for the whole life of a context, so that
   all its keys are rotated alike. */
static const double *bitnet__rope_of(const bitnet_ctx *c) {
    const bitnet_model *m = c->m;
    return m->rope_long && c->p.n_ctx > m->rope_original ? m->rope_long : m->rope_freq[0];
}

/* Bytes of a page and its header, a multiple of 64; under 2^38 for each position. */
static uint64_t bitnet__page_bytes(const bitnet_model *m, const bitnet_ctx_params *p) {
    return 64 + (uint64_t)m->n_caches * (uint64_t)m->n_kv_heads * 2 *
                bitnet__cell_bytes(m, bitnet__kv_ops_of(p->kv_type)) *
                (uint64_t)bitnet__page_len(p);
}

/* Tokens whose products a thread computes at a time. */
static int32_t bitnet__dot_tokens(const bitnet_ctx_params *p) {
    return bitnet__min(p->n_batch, BITNET__TOKENS);
}

static int bitnet__in_norms(const bitnet_model *m) {
    return (m->family->norms & BITNET__IN_NORMS) != 0;
}

/* Numbers in a thread's dots for each pair, at least: the rows that threads share out, and 4, since
   a multiple of 1 KB is slow (see BITNET__DOT_STRIDE). */
static int32_t bitnet__pair_stride(const bitnet_model *m) {
    return (m->kernels.pack_rows > 32 ? m->kernels.pack_rows : 32) + 4;
}

/* Arrays of the arena, [rows][n]. */
static float *bitnet__floats(bitnet__arena *a, int64_t rows, int64_t n) {
    return (float *)bitnet__arena_take(a, (uint64_t)(rows * n), sizeof(float));
}
static int32_t *bitnet__ints(bitnet__arena *a, int64_t rows, int64_t n) {
    return (int32_t *)bitnet__arena_take(a, (uint64_t)(rows * n), sizeof(int32_t));
}
static int8_t *bitnet__codes(bitnet__arena *a, int64_t rows, int64_t n) {
    return (int8_t *)bitnet__arena_take(a, (uint64_t)(rows * n), 1);
}

static void bitnet__ctx_layout(const bitnet_model *m, const bitnet_ctx_params *p,
                               bitnet__arena *a, bitnet_ctx *c) {
    const int32_t threads = p->n_threads;
    const int32_t out_dim = bitnet__max(m->q_dim, m->value_dim);
    const int32_t widest = bitnet__max(bitnet__max(m->dim, m->ffn_dim), out_dim);
    const int64_t batch = p->n_batch, pairs = batch * m->n_used;
    const int64_t i8 = bitnet__is_int8(bitnet__kv_ops_of(p->kv_type)) ? batch : 0;
    const uint64_t seqs = (uint64_t)p->n_seqs, ctx = (uint64_t)p->n_ctx;
    int64_t cols, dots, scores;
    int i;
    c->page_len = bitnet__page_len(p);
    c->max_span = bitnet__max(BITNET__COLUMNS / m->heads_per_kv, 1);
    c->n_scores = bitnet__round_page(p->n_ctx);
    cols = (int64_t)c->max_span * m->heads_per_kv;
    c->seqs = (bitnet__seq *)bitnet__arena_take(a, seqs, sizeof *c->seqs);
    c->history = (bitnet_token *)bitnet__arena_take(a, seqs * ctx, sizeof *c->history);
    c->page_table = (bitnet__page **)bitnet__arena_take(
        a, seqs * (uint64_t)bitnet__pages_for(c, p->n_ctx), sizeof(void *));
    c->own_page = (bitnet__page *)bitnet__arena_take(a, seqs == 1, bitnet__page_bytes(m, p));
    c->states = (float *)bitnet__arena_take(a, seqs * m->n_state, sizeof(float));
    c->max_marks = bitnet__max_marks(m, p);
    c->marks = (bitnet__mark **)bitnet__arena_take(a, (uint64_t)c->max_marks, sizeof *c->marks);
    c->places = (bitnet__place *)bitnet__arena_take(a, (uint64_t)batch, sizeof *c->places);
    c->row_places = (bitnet__place *)bitnet__arena_take(a, (uint64_t)p->n_logits,
                                                        sizeof *c->row_places);
    c->spans = (bitnet__span *)bitnet__arena_take(a, (uint64_t)batch, sizeof *c->spans);
    c->runs = (bitnet__span *)bitnet__arena_take(a, m->n_state ? (uint64_t)batch : 0,
                                                 sizeof *c->runs);
    c->inputs = (bitnet_input *)bitnet__arena_take(a, seqs, sizeof *c->inputs);
    c->x = bitnet__floats(a, batch, m->dim);
    c->h = bitnet__floats(a, batch, widest);
    c->q = bitnet__floats(a, batch, bitnet__max(m->q_rows, m->value_dim));
    c->kv = bitnet__floats(a, batch, 2 * (int64_t)m->kv_dim);
    c->queries = bitnet__floats(a, batch, m->q_dim);
    c->o = bitnet__floats(a, batch, out_dim);
    c->u = bitnet__floats(a, batch, m->n_channels);
    c->rates = bitnet__floats(a, batch, 2 * (int64_t)m->n_value_heads);
    c->turned = bitnet__floats(a, m->turns ? batch : 0, widest);
    c->g = bitnet__floats(a, pairs > 0 ? pairs : batch, m->ffn_dim);
    c->routes = bitnet__floats(a, pairs > 0 ? batch : 0, m->n_experts);
    c->shares = bitnet__floats(a, pairs, 1);
    c->chosen = bitnet__ints(a, pairs, 1);
    c->pairs = bitnet__ints(a, pairs, 1);
    c->pair_tokens = bitnet__ints(a, pairs, 1);
    c->n_pairs_of = bitnet__ints(a, m->n_experts, 1);
    c->experts = (bitnet__expert *)bitnet__arena_take(a, (uint64_t)m->n_experts,
                                                      sizeof *c->experts);
    for (i = 0; i < 3; i++) {
        const int64_t tokens = i == 0 || bitnet__in_norms(m) || (i == 1 && m->n_taps) ? batch :
                               pairs == 0 ? 0 :
                               i == 1 ? pairs : (int64_t)threads * BITNET__GATHERED;
        const int32_t n = bitnet__padded_row(i == 0 ? widest : i == 1 && pairs > 0 ? m->ffn_dim
                                                                                   : m->dim);
        const int32_t groups = m->group > 0 ? bitnet__max(1, n / m->group) : 0;
        c->act[i].q = bitnet__codes(a, tokens, n);
        c->act[i].s = bitnet__floats(a, tokens, 1);
        c->act[i].scale = bitnet__floats(a, tokens, groups);
        c->act[i].sum = bitnet__ints(a, tokens, bitnet__max(1, groups));
    }
    dots = 2 * (int64_t)bitnet__dot_tokens(p) * BITNET__DOT_STRIDE;
    if (dots < pairs * bitnet__pair_stride(m)) dots = pairs * bitnet__pair_stride(m);
    c->dot_room = (size_t)dots;
    c->dots = bitnet__ints(a, threads, dots);
    c->outputs = bitnet__floats(
        a, m->group > 0 || (m->family->norms & BITNET__ANY_FLOATS) ? threads : 0, dots);
    scores = bitnet__max(threads, m->n_kv_heads) * cols * c->n_scores;
    c->scores = bitnet__floats(a, scores, 1);
    c->query.q = bitnet__codes(a, i8, m->q_dim);
    c->query.scale = bitnet__floats(a, i8, m->n_heads);
    c->query.sum = bitnet__ints(a, i8, m->n_heads);
    c->weight.q = bitnet__codes(a, i8 > 0, scores);
    c->weight.scale = bitnet__floats(a, i8 > 0, scores / BITNET__KV_BLOCK);
    c->mixed = bitnet__floats(a, threads, cols * m->head_dim);
    for (i = 0; i < 2; i++) c->rope[i] = bitnet__floats(a, m->rope_freq[i] ? batch : 0, m->n_rot);
    c->hidden = bitnet__floats(a, p->n_logits, m->dim);
    c->head_in = m->head_turn.block ? bitnet__floats(a, p->n_logits, m->dim) : c->hidden;
    c->scratch = bitnet__floats(a, threads, 4 * (int64_t)m->dim);
    c->nonfinite = bitnet__ints(a, threads, 1);
}

BITNET_API uint64_t bitnet_ctx_bytes(const bitnet_model *m, const bitnet_ctx_params *params) {
    bitnet_ctx_params p;
    bitnet_ctx measure;
    bitnet__arena arena = {0, 0};
    uint64_t head;
    if (!m || bitnet__ctx_defaults(m, params, &p, 0) != BITNET_OK) return 0;
    bitnet__ctx_layout(m, &p, &arena, &measure);
    head = bitnet__head_bytes(m, &p);
    head += (uint64_t)measure.max_marks * (uint64_t)bitnet__mark_bytes(m, &p);
    return arena.used > UINT64_MAX - head ? 0 : arena.used + head + sizeof measure +
           (p.n_threads > 1 && !p.parallel_fn ? sizeof(bitnet__team) : 0);
}

/* ---- pages of the KV cache ---- */

static void bitnet__page_free(bitnet_ctx *c, bitnet__page *page) {
    page->next = c->free_pages;
    c->free_pages = page;
    c->n_free++;
}

/* Gives up a sequence's pages from number n on. */
static void bitnet__seq_cut(bitnet_ctx *c, bitnet__seq *q, int32_t n) {
    while (q->n_pages > n) {
        bitnet__page *page = q->pages[--q->n_pages];
        if (--page->n_users == 0) bitnet__page_free(c, page);
    }
}

/* The page that a sequence will write to next, if it shares that with others and so needs a copy;
   else 0. */
static bitnet__page *bitnet__shared_page(const bitnet_ctx *c, const bitnet__seq *q) {
    const int32_t at = q->n_past / c->page_len;
    return at < q->n_pages && q->pages[at]->n_users > 1 ? q->pages[at] : 0;
}

/* How many pages the inputs need for their queued tokens, beside those that their sequences have.
   The last of several that share a page needs no copy of it. */
static int32_t bitnet__pages_needed(bitnet_ctx *c, const bitnet_input *inputs, int32_t n) {
    int32_t i, needed = 0;
    for (i = 0; i < n; i++) {
        bitnet__seq *q = &c->seqs[inputs[i].seq];
        const int32_t end = bitnet__pages_for(c, q->n_past + q->n_queued);
        if (end > q->n_pages) needed += end - q->n_pages;
        q->leaves = q->n_queued > 0 ? bitnet__shared_page(c, q) : 0;
        if (!q->leaves) continue;
        q->leaves->n_users--;
        needed++;
    }
    for (i = 0; i < n; i++)            /* takes back what counting changed */
        if (c->seqs[inputs[i].seq].leaves) c->seqs[inputs[i].seq].leaves->n_users++;
    return needed;
}

/* Makes sure that n pages are free, within n_kv. */
static bitnet_result bitnet__reserve_pages(bitnet_ctx *c, int32_t n, bitnet_error *err) {
    const bitnet_allocator *a = &c->m->params.allocator;
    const uint64_t bytes = bitnet__page_bytes(c->m, &c->p);
    const int64_t limit = (c->p.n_kv + c->page_len - 1) / c->page_len;
    for (; c->n_free < n; c->n_pages++) {
        bitnet__page *page;
        if (c->n_pages >= limit && c->p.n_seqs > 1)
            return bitnet__fail(err, BITNET_ERR_FULL, "the KV cache is full: %d pages of %d "
                                "positions are needed, and %d of %lld are free (n_kv)", (int)n,
                                (int)c->page_len, (int)c->n_free, (long long)limit);
        page = bytes <= SIZE_MAX ? (bitnet__page *)bitnet__alloc(a, (size_t)bytes) : 0;
        if (!page)
            return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a page of the KV cache "
                                "(%llu bytes)", (unsigned long long)bytes);
        bitnet__huge_memory(a, page, (size_t)bytes);
        page->n_users = 0;
        bitnet__page_free(c, page);
    }
    return BITNET_OK;
}

static bitnet__page *bitnet__page_take(bitnet_ctx *c) {
    bitnet__page *page = c->free_pages;
    c->free_pages = page->next;
    c->n_free--;
    page->n_users = 1;
    return page;
}

/* Gives a sequence the pages for n more positions, which have been reserved. */
static void bitnet__seq_extend(bitnet_ctx *c, bitnet__seq *q, int32_t n) {
    const int32_t end = bitnet__pages_for(c, q->n_past + n);
    bitnet__page *shared = n > 0 ? bitnet__shared_page(c, q) : 0;
    if (shared) {
        bitnet__page *page = bitnet__page_take(c);
        memcpy((char *)page + 64, (const char *)shared + 64,
               (size_t)bitnet__page_bytes(c->m, &c->p) - 64);
        shared->n_users--;
        q->pages[q->n_past / c->page_len] = page;
    }
    while (q->n_pages < end) q->pages[q->n_pages++] = bitnet__page_take(c);
}

/* Frees the pages that no sequence has. */
static void bitnet__free_spare_pages(bitnet_ctx *c) {
    while (c->free_pages) {
        bitnet__page *page = c->free_pages;
        c->free_pages = page->next;
        if (page != c->own_page) bitnet__free(&c->m->params.allocator, page);
    }
}

/* Makes all sequences empty. A single one has its page in the arena. */
static void bitnet__seqs_init(bitnet_ctx *c) {
    const int32_t n_pages = bitnet__pages_for(c, c->p.n_ctx);
    int32_t i;
    for (i = 0; i < c->p.n_seqs; i++) {
        bitnet__seq *q = &c->seqs[i];
        memset(q, 0, sizeof *q);
        q->history = c->history + bitnet__row(i, c->p.n_ctx);
        q->pages = c->page_table + bitnet__row(i, n_pages);
        q->pending = -1;
    }
    if (c->p.n_seqs > 1) return;
    c->own_page->n_users = 0;
    c->n_pages = 1;
    bitnet__page_free(c, c->own_page);
}

BITNET_API bitnet_result bitnet_ctx_create(const bitnet_model *m, const bitnet_ctx_params *params,
                                           bitnet_ctx **out, bitnet_error *err) {
    const bitnet_allocator *a;
    bitnet_ctx_params p;
    bitnet_ctx *c, measure;
    bitnet__arena arena = {0, 0};
    bitnet_result r;
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "out is NULL");
    *out = 0;
    if (!m) return bitnet__fail(err, BITNET_ERR_ARG, "the model is NULL");
    if ((r = bitnet__ctx_defaults(m, params, &p, err))) return r;
    a = &m->params.allocator;
    bitnet__ctx_layout(m, &p, &arena, &measure);
    c = (bitnet_ctx *)bitnet__alloc(a, sizeof *c);
    if (!c || !bitnet__arena_alloc(&arena, a)) {
        bitnet__free(a, c);
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a context of %d positions "
                            "(%llu MB)", (int)p.n_ctx, (unsigned long long)(arena.used >> 20));
    }
    memset(c, 0, sizeof *c);
    c->m = m;
    c->n_users = 1;
    bitnet__count(&((bitnet_model *)(uintptr_t)m)->n_users, 1);
    c->k = m->kernels;
    c->p = p;
    c->cache = bitnet__kv_ops_of(p.kv_type);
    c->row = -1;
    c->min_task = BITNET__MIN_TASK;
    bitnet__ctx_layout(m, &p, &arena, c);
    bitnet__seqs_init(c);
    if (p.n_threads > 1 && !p.parallel_fn) {
        r = bitnet__team_create(a, p.n_threads, &c->team, err);
        c->p.n_threads = bitnet__team_size(c->team);   /* the arena has room for all */
    }
    c->max_threads = c->p.n_threads;
    if (r == BITNET_OK) r = bitnet__head_create(c, err);
    if (r == BITNET_OK) *out = c;
    else bitnet_ctx_free(c);
    return r;
}

/* A child made by fork() has no workers and continues with one thread. */
static void bitnet__leave_lost_team(bitnet_ctx *c) {
    if (!c->team || !bitnet__team_lost(c->team)) return;
    bitnet__team_free(&c->m->params.allocator, c->team);
    c->team = 0;
    c->p.n_threads = 1;
}

/* ---- one call at a time ----
   A call that changes a context acquires it first. A call from another thread, or from a callback
   of the call that has it, is refused: calls never wait, so there is no deadlock. While
   bitnet_generate runs a callback, the callback's thread owns the context and may call
   bitnet_logits. */

static void bitnet__drop_pass(bitnet_ctx *c);

enum { BITNET__FREE, BITNET__BUSY };   /* or the thread of a callback, which is never 0 or 1 */

/* As bitnet__acquire, but a pass that is paused stays. */
static bitnet_result bitnet__acquire_paused(bitnet_ctx *c, bitnet_error *err) {
    if (!c) return bitnet__fail(err, BITNET_ERR_ARG, "the context is NULL");
    if (!bitnet__swap_if(&c->owner, BITNET__FREE, BITNET__BUSY))
        return bitnet__fail(err, BITNET_ERR_BUSY, "the context is in use by another thread, or by "
                            "the call that runs this callback");
    bitnet__leave_lost_team(c);
    return BITNET_OK;
}

static bitnet_result bitnet__acquire(bitnet_ctx *c, bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_paused(c, err);
    if (r == BITNET_OK) bitnet__drop_pass(c);
    return r;
}

static void bitnet__release(bitnet_ctx *c) { bitnet__store_release(&c->owner, BITNET__FREE); }

/* The end of a call that has acquired a context: `return r ? r : bitnet__done(c, WORK)`, where r is
   what acquiring it returned, does WORK in between. */
static bitnet_result bitnet__done(bitnet_ctx *c, bitnet_result r) {
    bitnet__release(c);
    return r;
}

/* Returns the owner to pass to bitnet__end_callback. */
static uintptr_t bitnet__begin_callback(bitnet_ctx *c) {
    const uintptr_t owner = bitnet__load_acquire(&c->owner);
    bitnet__store_release(&c->owner, bitnet__this_thread());
    return owner;
}

static void bitnet__end_callback(bitnet_ctx *c, uintptr_t owner) {
    bitnet__store_release(&c->owner, owner);
    bitnet__leave_lost_team(c);
}

/* Calls fn, if there is one. Nonzero: it asks to stop. */
static int bitnet__report_progress(bitnet_ctx *c, bitnet_progress_fn fn, void *ud, int32_t done,
                                   int32_t total) {
    const uintptr_t owner = bitnet__begin_callback(c);
    const int stop = fn && fn(ud, (uint64_t)done, (uint64_t)total);
    bitnet__end_callback(c, owner);
    return stop;
}

/* Gives up a use of a context, which the caller has acquired; the last one frees it. */
static void bitnet__ctx_leave(bitnet_ctx *c) {
    const bitnet_allocator *a = &c->m->params.allocator;
    bitnet_model *m = (bitnet_model *)(uintptr_t)c->m;
    int32_t i;
    if (--c->n_users > 0) {
        bitnet__release(c);
        return;
    }
    bitnet__team_free(a, c->team);
    for (i = 0; i < c->p.n_seqs; i++) bitnet__seq_cut(c, &c->seqs[i], 0);
    bitnet__free_spare_pages(c);
    for (i = 0; i < c->n_marks; i++) bitnet__free(a, c->marks[i]);
    bitnet__free(a, c->head);
    bitnet__free(a, c->seqs);          /* the arena's first array */
    bitnet__free(a, c);
    bitnet__model_leave(m);
}

BITNET_API bitnet_result bitnet_ctx_free(bitnet_ctx *c) {
    const bitnet_result r = c ? bitnet__acquire(c, 0) : BITNET_OK;
    if (!c || r != BITNET_OK) return r;
    c->is_freed = 1;
    bitnet__ctx_leave(c);
    return BITNET_OK;
}

BITNET_API const bitnet_model *bitnet_ctx_model(const bitnet_ctx *c) { return c ? c->m : 0; }
BITNET_API int32_t bitnet_ctx_capacity(const bitnet_ctx *c) { return c ? c->p.n_ctx : 0; }
BITNET_API int32_t bitnet_ctx_threads(const bitnet_ctx *c) { return c ? c->p.n_threads : 0; }

static bitnet_result bitnet__set_threads(bitnet_ctx *c, int32_t n, bitnet_error *err) {
    const bitnet_allocator *a = &c->m->params.allocator;
    bitnet_result r = bitnet__check_range("n_threads", n, c->max_threads, err);
    if (r != BITNET_OK || n == c->p.n_threads) return r;
    if (!c->p.parallel_fn) {
        bitnet__team_free(a, c->team);
        r = bitnet__team_create(a, n, &c->team, err);
        n = bitnet__team_size(c->team);
    }
    c->p.n_threads = n;
    return r;
}

BITNET_API bitnet_result bitnet_ctx_set_threads(bitnet_ctx *c, int32_t n, bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__set_threads(c, n, err));
}

static bitnet_result bitnet__set_hooks(bitnet_ctx *c, const bitnet_hooks *hooks,
                                       bitnet_error *err) {
    bitnet_hooks h;
    bitnet_result r;
    memset(&h, 0, sizeof h);
    if (hooks) h = *hooks;
    r = bitnet__check_reserved(h.reserved, 4, "bitnet_hooks", err);
    if (r == BITNET_OK) c->p.hooks = h;
    return r;
}

BITNET_API bitnet_result bitnet_ctx_set_hooks(bitnet_ctx *c, const bitnet_hooks *hooks,
                                              bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__set_hooks(c, hooks, err));
}

/* Drops logits and hidden states. */
static void bitnet__forget_rows(bitnet_ctx *c) {
    c->n_rows = 0;
    c->row = -1;
    bitnet__head_forget(c->head);
}

/* ---- sequences ---- */

static bitnet__seq *bitnet__seq_of(const bitnet_ctx *c, int32_t seq) {
    return c && seq >= 0 && seq < c->p.n_seqs ? &c->seqs[seq] : 0;
}

BITNET_API int32_t bitnet_seq_length(const bitnet_ctx *c, int32_t seq) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    return q ? q->n_past : 0;
}

BITNET_API const bitnet_token *bitnet_seq_tokens(const bitnet_ctx *c, int32_t seq) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    return q ? q->history : 0;
}

BITNET_API bitnet_token bitnet_seq_pending(const bitnet_ctx *c, int32_t seq) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    return q ? q->pending : -1;
}

BITNET_API void bitnet_seq_figures(const bitnet_ctx *c, int32_t seq, bitnet_figures *out) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    if (!out) return;
    memset(out, 0, sizeof *out);
    if (q) *out = q->figures;
}

/* The floats that the layers keep for a sequence, [n_state]; see bitnet__layer_kind. */
static float *bitnet__seq_state(const bitnet_ctx *c, int32_t seq) {
    return c->states + (size_t)seq * c->m->n_state;
}

/* ---- marks ----
   Keys and values can be cut back to any length, a state of fixed size cannot: it is that of all
   tokens that went through the layers. So the context keeps copies of states, marks. A mark has the
   tokens that lead to its state, and serves every sequence that begins with them. After a cut, a
   copy or a failure a sequence gets the state of the longest such mark, of n_in_state tokens, and
   keeps all n_past tokens with their keys and values. The next evaluation begins with the tokens
   between the two, which go through the layers again; nothing else about the sequence is different.

   Marks are made
   - BITNET__MARK_BEFORE tokens before the end of a prompt (mark_end). What is written again differs
     in the last tokens: one of them is evaluated for its logits, and templates open a reply there;
   - at the end of a turn, when the next prompt begins;
   - where a sequence was cut and had to read again (mark_cut): such a place is likely to be the end
     of what many texts have in common.
   The first and the last take the state from within a batch, layer by layer. No mark is made within
   BITNET__MARK_GAP tokens of another one: a pass for so many is not much slower than for one. With
   157 MB making a mark, or taking its state, takes about 15 ms; the first time 100 more, for memory
   that is new. If there is no room that mark goes whose tokens no sequence holds any more, or that
   spares the fewest tokens for its age. */

/* The longest mark of a state of the first n tokens at most; open ones only if asked for. */
static bitnet__mark *bitnet__find_mark(const bitnet_ctx *c, const bitnet_token *tokens, int32_t n,
                                       int open_too, const bitnet__mark *but) {
    bitnet__mark *best = 0;
    int32_t i;
    for (i = 0; i < c->n_marks; i++) {
        bitnet__mark *x = c->marks[i];
        if (x == but || x->n > n || x->n <= (best ? best->n : 0)) continue;
        if ((open_too || !x->is_open) && !memcmp(x->tokens, tokens, (size_t)x->n * sizeof *tokens))
            best = x;
    }
    return best;
}

/* How many tokens would be read again if there were no such mark: 0 if no sequence holds its
   tokens. */
static int64_t bitnet__mark_gap(const bitnet_ctx *c, const bitnet__mark *x) {
    const bitnet__mark *lower = bitnet__find_mark(c, x->tokens, x->n, 1, x);
    int32_t i;
    for (i = 0; i < c->p.n_seqs; i++) {
        const bitnet__seq *q = &c->seqs[i];
        if (q->n_past >= x->n && !memcmp(x->tokens, q->history, (size_t)x->n * sizeof *x->tokens))
            return x->n - (lower ? lower->n : 0);
    }
    return 0;
}

/* The mark that is worth least: tokens that it spares, divided by its age. 0: all are open. */
static bitnet__mark *bitnet__least_mark(const bitnet_ctx *c) {
    bitnet__mark *least = 0;
    int64_t gap = 0, age = 1;
    int32_t i;
    for (i = 0; i < c->n_marks; i++) {
        bitnet__mark *x = c->marks[i];
        const int64_t x_gap = x->n ? bitnet__mark_gap(c, x) : -1;
        const int64_t x_age = c->mark_clock - x->used + 1;
        if (x->is_open || (least && x_gap * age >= gap * x_age)) continue;
        least = x;
        gap = x_gap;
        age = x_age;
    }
    return least;
}

static bitnet__mark *bitnet__new_mark(bitnet_ctx *c) {
    const int64_t bytes = bitnet__mark_bytes(c->m, &c->p);
    bitnet__mark *x = c->n_marks < c->max_marks && (uint64_t)bytes <= SIZE_MAX
        ? (bitnet__mark *)bitnet__alloc(&c->m->params.allocator, (size_t)bytes) : 0;
    char *rest;
    if (!x) return 0;
    bitnet__huge_memory(&c->m->params.allocator, x, (size_t)bytes);
    memset(x, 0, sizeof *x);
    rest = (char *)x + 64;
    x->state = (float *)(void *)rest;
    x->tokens = (bitnet_token *)(void *)(rest + c->m->n_state * sizeof *x->state);
    return c->marks[c->n_marks++] = x;
}

/* An open mark for the first n tokens of a sequence; 0: it needs none, or there is no memory, in
   which case the tokens will be read again. */
static bitnet__mark *bitnet__open_mark(bitnet_ctx *c, const bitnet__seq *q, int32_t n) {
    const bitnet__mark *lower = bitnet__find_mark(c, q->history, n, 1, 0);
    bitnet__mark *x;
    if (n - (lower ? lower->n : 0) < BITNET__MARK_GAP) return 0;
    if (!(x = bitnet__new_mark(c)) && !(x = bitnet__least_mark(c))) return 0;
    x->n = n;
    x->is_open = 1;
    x->used = ++c->mark_clock;
    memcpy(x->tokens, q->history, (size_t)n * sizeof *x->tokens);
    return x;
}

/* Frees the marks of a pass that has failed or was dropped. */
static void bitnet__drop_open_marks(bitnet_ctx *c) {
    int32_t i;
    for (i = 0; i < c->n_marks; i++)
        if (c->marks[i]->is_open) c->marks[i]->n = c->marks[i]->is_open = 0;
}

/* Gives sequence `to`, which holds the first tokens of `from` or is that, the longest state that
   there is of at most so many of them. */
static void bitnet__take_state(bitnet_ctx *c, int32_t from, int32_t to, int32_t length) {
    bitnet__seq *b = &c->seqs[to];
    const float *state = bitnet__seq_state(c, from);
    int32_t n = c->seqs[from].n_in_state;
    if (c->m->n_state == 0) return;
    if (n > length) {
        bitnet__mark *x = bitnet__find_mark(c, c->seqs[from].history, length, 0, 0);
        n = x ? x->n : 0;
        if (x) state = x->state;
        if (x) x->used = ++c->mark_clock;
    }
    if (n > 0 && state != bitnet__seq_state(c, to))
        memcpy(bitnet__seq_state(c, to), state, c->m->n_state * sizeof *state);
    b->n_in_state = n;
    b->mark_cut = n < length ? length : 0;
    b->mark_end = 0;
}

/* The tokens that a sequence reads again before others. While a pass is paused nobody knows. */
static int32_t bitnet__behind(const bitnet_ctx *c, const bitnet__seq *q) {
    return c->m->n_state && q->n_in_state < q->n_past ? q->n_past - q->n_in_state : 0;
}

BITNET_API int32_t bitnet_seq_again(const bitnet_ctx *c, int32_t seq) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    return q ? bitnet__behind(c, q) : 0;
}

/* Shortens a sequence. The rows of its tokens that are dropped have no logits any more. */
static void bitnet__seq_shorten(bitnet_ctx *c, int32_t seq, int32_t length) {
    bitnet__seq *q = &c->seqs[seq];
    int32_t i;
    for (i = 0; i < c->n_rows; i++)
        if (c->row_places[i].seq == seq && c->row_places[i].pos >= length)
            c->row_places[i].seq = -1;
    q->n_past = length;
    q->pending = -1;
    bitnet__take_state(c, seq, seq, length);
    bitnet__seq_cut(c, q, bitnet__pages_for(c, length));
}

/* Gives up what was computed of a paused pass. */
static void bitnet__drop_pass(bitnet_ctx *c) {
    int32_t i;
    for (i = 0; i < c->pass.n_inputs; i++) {
        const int32_t seq = c->inputs[i].seq;
        bitnet__seq *q = &c->seqs[seq];
        const bitnet_token pending = q->pending;
        bitnet__seq_shorten(c, seq, q->n_past);
        q->pending = pending;
        q->n_queued = 0;
    }
    if (c->pass.n_inputs > 0) {
        bitnet__drop_open_marks(c);
        bitnet__forget_rows(c);
    }
    c->pass.n_inputs = 0;
}

static bitnet_result bitnet__fail_seq(const bitnet_ctx *c, int32_t seq, bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_ARG, "sequence %lld is not in 0..%d", (long long)seq,
                        (int)c->p.n_seqs - 1);
}

/* Can a sequence keep its first length tokens, in itself or in a copy? */
static bitnet_result bitnet__check_cut(const bitnet_ctx *c, int32_t seq, int32_t length,
                                       bitnet_error *err) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    if (!q) return bitnet__fail_seq(c, seq, err);
    if (length < 0 || length > q->n_past)
        return bitnet__fail(err, BITNET_ERR_ARG, "length %lld is not in 0..%d", (long long)length,
                            (int)q->n_past);
    return BITNET_OK;
}

/* Acquires a context to change a sequence, which must exist and not be in a generation. */
static bitnet_result bitnet__acquire_seq(bitnet_ctx *c, int32_t seq, bitnet_error *err) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    bitnet_result r;
    if (c && !q) return bitnet__fail_seq(c, seq, err);
    r = bitnet__acquire(c, err);
    if (r != BITNET_OK || !q || !q->in_generation) return r;
    return bitnet__done(c, bitnet__fail(err, BITNET_ERR_BUSY, "a generation has sequence %d",
                                        (int)seq));
}

static bitnet_result bitnet__seq_rewind(bitnet_ctx *c, int32_t seq, int32_t length,
                                        bitnet_error *err) {
    const bitnet_result r = bitnet__check_cut(c, seq, length, err);
    if (r == BITNET_OK) bitnet__seq_shorten(c, seq, length);
    return r;
}

BITNET_API bitnet_result bitnet_seq_rewind(bitnet_ctx *c, int32_t seq, int32_t length,
                                           bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_seq(c, seq, err);
    return r ? r : bitnet__done(c, bitnet__seq_rewind(c, seq, length, err));
}

static bitnet_result bitnet__seq_copy(bitnet_ctx *c, int32_t from, int32_t to, int32_t length,
                                      bitnet_error *err) {
    const bitnet__seq *a = bitnet__seq_of(c, from);
    bitnet__seq *b = &c->seqs[to];
    bitnet_result r = bitnet__check_cut(c, from, length, err);
    int32_t i;
    if (r == BITNET_OK && a == b)
        r = bitnet__fail(err, BITNET_ERR_ARG, "sequence %d cannot be copied to itself", (int)to);
    if (r != BITNET_OK) return r;
    bitnet__seq_shorten(c, to, 0);
    memcpy(b->history, a->history, (size_t)length * sizeof *b->history);
    bitnet__take_state(c, from, to, length);
    b->n_past = length;
    b->n_pages = bitnet__pages_for(c, length);
    for (i = 0; i < b->n_pages; i++) (b->pages[i] = a->pages[i])->n_users++;
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_seq_copy(bitnet_ctx *c, int32_t from, int32_t to, int32_t length,
                                         bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_seq(c, to, err);
    return r ? r : bitnet__done(c, bitnet__seq_copy(c, from, to, length, err));
}

/* ---- splitting work ---- */

struct bitnet__attention;

/* One step of the network over some items (rows, tokens, heads), cut into tasks of consecutive
   items, which the threads take until none is left. */
typedef struct bitnet__step {
    bitnet_ctx *c;
    const bitnet__layer *layer;
    int32_t n_tokens, n_items, n_tasks;
    int32_t window;                    /* positions that this layer sees; 0: all */
    bitnet__atomic tasks;              /* that parallel_fn's jobs have not taken */
    const char *op;                    /* its name for step_fn */
    void (*fn)(const struct bitnet__step *s, int32_t from, int32_t to, int thread);
    void (*attend)(const struct bitnet__attention *a, int32_t i, int thread);
    const bitnet__span *span;          /* whose phase of attention this is */
    const bitnet__linear *linear;      /* of step_out, which writes y to out or adds it */
    float *out;                        /* [n_tokens][dim] */
    int32_t add;                       /* 1: out += y */
    const float *in, *gain;            /* of step_norm_quantize */
    const bitnet__turn *turn;          /* 0: it turns nothing */
    const float *floats;               /* its output, for matrices of floats */
    int32_t act;                       /* the first of its acts; with a turn there is one */
    const float *const *gains;
    const bitnet__blocks *blocks;      /* of the layers that read `in`; 0: no scale groups */
    int32_t in_dim, n_acts;
    int32_t row, n_rows;               /* of @head: the row of hidden; candidates whose exact logits
                                          it computes */
} bitnet__step;

BITNET__APART bitnet__step bitnet__make_step(bitnet_ctx *c, int32_t n_tokens) {
    bitnet__step s;
    memset(&s, 0, sizeof s);
    s.c = c;
    s.n_tokens = n_tokens;
    return s;
}

static void bitnet__step_task(void *arg, int task, int thread) {
    const bitnet__step *s = (const bitnet__step *)arg;
    const bitnet_hooks *h = &s->c->p.hooks;
    const int64_t n = s->n_items;
    const int32_t from = (int32_t)(n * task / s->n_tasks);
    const int32_t to = (int32_t)(n * (task + 1) / s->n_tasks);
    if (h->step_fn) h->step_fn(h->step_ud, s->op, thread, 1);
    s->fn(s, from, to, thread);        /* after rounding to row packs a range may be empty */
    if (h->step_fn) h->step_fn(h->step_ud, s->op, thread, 0);
}

/* One of parallel_fn's jobs. */
static void bitnet__step_job(void *arg, int thread) {
    bitnet__step *s = (bitnet__step *)arg;
    int task = -1;
    while ((task = bitnet__claim(&s->tasks, thread, task)) >= 0) bitnet__step_task(s, task, thread);
}

/* 1 if the evaluation has been cancelled. Thread 0 asks the hooks. */
static int bitnet__is_cancelled(bitnet_ctx *c, int thread) {
    const bitnet_hooks *h = &c->p.hooks;
    if (thread == 0 && !bitnet__load_acquire(&c->cancelled) &&
        ((h->cancel_fn && h->cancel_fn(h->cancel_ud)) || (c->asks && c->asks(c))))
        bitnet__store_release(&c->cancelled, 1);
    return (int)bitnet__load_acquire(&c->cancelled);
}

/* 1 if the pass shall pause; only a pass of bitnet_gen_next can. */
static int bitnet__pauses(const bitnet_ctx *c) {
    const bitnet_hooks *h = &c->p.hooks;
    return c->may_pause && h->pause_fn && h->pause_fn(h->pause_ud);
}

/* Runs a step. work: the cost of one item, in products of a ternary weight, the cheapest operation.
   A task costs at least min_task, so that synchronising the threads costs little beside it. There
   are at most per_thread tasks for each thread. */
static void bitnet__run_tasks(bitnet__step *s, const char *op, int32_t n_items, int64_t work,
                              int per_thread,
                              void (*fn)(const bitnet__step *, int32_t, int32_t, int)) {
    bitnet_ctx *c = s->c;
    int64_t tasks = (int64_t)n_items * work / c->min_task;
    if (tasks > per_thread * (int64_t)c->p.n_threads) tasks = per_thread * (int64_t)c->p.n_threads;
    if (tasks > n_items) tasks = n_items;
    if (tasks < 1 || c->p.n_threads == 1) tasks = 1;
    s->op = op;
    s->n_items = n_items;
    s->fn = fn;
    s->n_tasks = (int32_t)tasks;
    if (tasks > 1 && c->p.parallel_fn) {
        s->tasks = bitnet__tasks(s->n_tasks, c->p.n_threads);
        c->p.parallel_fn(c->p.parallel_ud, c->p.n_threads, bitnet__step_job, s);
    } else if (tasks < 2 || !bitnet__team_share(c->team, s->n_tasks, bitnet__step_task, s)) {
        s->n_tasks = 1;
        bitnet__step_task(s, 0, 0);
    }
}

/* Up to four tasks for each thread, so that a slow thread takes fewer. */
static void bitnet__run_step(bitnet__step *s, const char *op, int32_t n_items, int64_t work,
                             void (*fn)(const bitnet__step *, int32_t, int32_t, int)) {
    bitnet__run_tasks(s, op, n_items, work, 4, fn);
}

/* Products of linear layers. For many tokens, the WASM kernels compute a table of sums, which all
   rows of a task look up: fewer and larger tasks are faster there. */
static void bitnet__run_products(bitnet__step *s, int32_t n_rows, int64_t work,
                                 void (*fn)(const bitnet__step *, int32_t, int32_t, int)) {
    bitnet__run_tasks(s, "matmul", n_rows, work,
                      BITNET__ARCH_WASM && s->n_tokens >= 8 ? 2 : 4, fn);
}

/* ---- numbers that are not finite ----
   A NaN or an infinity spreads through its token's layers and, through the cache, to later tokens.
   So a batch is always evaluated to its end, and the error names the first token that is not finite
   and the first layer where it is not: this does not depend on threads or batches. Two places are
   checked: the residual stream where it is written, and the int8 input of each linear layer, where
   only a NaN becomes -128. (Its norm, or a scale of 0, has made a NaN of an infinity.) */

/* Tests the bits, since compilers may assume that floats are finite; eight lanes for SIMD. Adding 1
   to an exponent of all ones sets the sign bit. */
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

static void bitnet__note_nonfinite(const bitnet_ctx *c, int32_t t, int thread) {
    c->nonfinite[thread] = bitnet__min(c->nonfinite[thread], t);
}

static bitnet_result bitnet__fail_nonfinite(const bitnet_ctx *c, bitnet_error *err) {
    const bitnet__place at = c->places[c->nonfinite_token];
    char where[BITNET__TEXT] = "its embedding", of[BITNET__TEXT] = "";
    if (c->nonfinite_layer >= 0)
        bitnet__format(where, "the output of layer %d", (int)c->nonfinite_layer);
    if (c->p.n_seqs > 1) bitnet__format(of, " of sequence %d", (int)at.seq);
    return bitnet__fail(err, BITNET_ERR_FORMAT, "token %d at position %d%s: %s is not finite (NaN "
                        "or infinity)", (int)c->seqs[at.seq].history[at.pos], (int)at.pos, of,
                        where);
}

/* =============================================================================================
   @forward  tokens to hidden states: the layers
   A batch of tokens goes through the layers together; a single token is a batch of one and takes
   the same path.
   ============================================================================================= */

static void bitnet__quantize_input(bitnet__step *s, const float *in, int32_t n, const float *gain,
                                   int32_t linear, int32_t n_acts);
static void bitnet__quantize_rates(bitnet__step *s);
static void bitnet__step_gdn_inputs(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__step_gdn_conv(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__step_gdn_state(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__step_gdn_gate(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__step_attention_gate(const bitnet__step *s, int32_t from, int32_t to,
                                        int thread);
static void bitnet__step_qkv(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__step_rope(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__run_attention(bitnet__step *s);
static void bitnet__add_linear_to_x(bitnet__step *s, int linear, const float *gain);
static void bitnet__step_gate_up(const bitnet__step *s, int32_t from, int32_t to, int thread);
static void bitnet__route(bitnet__step *s);
static void bitnet__step_experts_gate_up(const bitnet__step *s, int32_t from, int32_t to,
                                         int thread);
static void bitnet__step_quantize_pairs(const bitnet__step *s, int32_t from, int32_t to,
                                        int thread);
static void bitnet__step_experts_down(const bitnet__step *s, int32_t from, int32_t to, int thread);

/* The network in one read: the attention of a layer, then its FFN or its experts. Each step is
   written out below, in this order. */
static void bitnet__forward_attention(bitnet__step *s, const bitnet__layer *l) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int several = bitnet__in_norms(m);
    s->layer = l;
    s->window = l->window;
    bitnet__quantize_input(s, c->x, m->dim, l->norm[BITNET__ATTN_NORM], BITNET__ATTN_Q,
                           several ? 3 : 1);
    bitnet__run_products(s, m->q_rows + 2 * m->kv_dim, (int64_t)m->dim * s->n_tokens,
                         bitnet__step_qkv);
    bitnet__run_step(s, "attention", s->n_tokens, 32 * (int64_t)(m->q_dim + 2 * m->kv_dim),
                     bitnet__step_rope);
    bitnet__run_attention(s);
    if (m->q_rows > m->q_dim)
        bitnet__run_step(s, "attention", s->n_tokens, 64 * (int64_t)m->q_dim,
                         bitnet__step_attention_gate);
    bitnet__quantize_input(s, c->o, m->q_dim, 0, BITNET__ATTN_OUTPUT, 1);
    bitnet__add_linear_to_x(s, BITNET__ATTN_OUTPUT, l->norm[BITNET__POST_ATTN_NORM]);
}

static void bitnet__forward_ffn(bitnet__step *s) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const bitnet__layer *l = s->layer;
    bitnet__quantize_input(s, c->x, m->dim, l->norm[BITNET__FFN_NORM], BITNET__FFN_GATE,
                           bitnet__in_norms(m) ? 2 : 1);
    bitnet__run_products(s, m->ffn_dim, 2 * (int64_t)m->dim * s->n_tokens,
                         bitnet__step_gate_up);
    bitnet__quantize_input(s, c->g, m->ffn_dim, 0, BITNET__FFN_DOWN, 1);
    bitnet__add_linear_to_x(s, BITNET__FFN_DOWN, l->norm[BITNET__POST_FFN_NORM]);
}

static void bitnet__forward_layer(bitnet__step *s, int32_t i) {
    bitnet__forward_attention(s, &s->c->m->layers[i]);
    bitnet__forward_ffn(s);
}

/* A gated delta net in place of attention. */
static void bitnet__forward_gdn_layer(bitnet__step *s, int32_t i) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const bitnet__layer *l = s->layer = &m->layers[i];
    const int32_t heads = 2 * m->n_key_heads + m->n_value_heads;
    const int32_t slices = (m->state_dim + BITNET__SLICE - 1) / BITNET__SLICE;
    bitnet__quantize_input(s, c->x, m->dim, l->norm[BITNET__ATTN_NORM], BITNET__GDN_QKV, 1);
    bitnet__quantize_rates(s);
    bitnet__run_products(s, m->n_channels + m->value_dim + 2 * m->n_value_heads,
                         (int64_t)m->dim * s->n_tokens, bitnet__step_gdn_inputs);
    bitnet__run_step(s, "recurrent", c->n_runs * heads,
                     128 * (int64_t)m->state_dim * s->n_tokens / c->n_runs, bitnet__step_gdn_conv);
    bitnet__run_step(s, "recurrent", c->n_runs * m->n_value_heads * slices,
                     24 * (int64_t)m->state_dim * BITNET__SLICE * s->n_tokens / c->n_runs,
                     bitnet__step_gdn_state);
    bitnet__run_step(s, "recurrent", s->n_tokens, 128 * (int64_t)m->value_dim,
                     bitnet__step_gdn_gate);
    bitnet__quantize_input(s, c->o, m->value_dim, 0, BITNET__GDN_OUT, 1);
    bitnet__add_linear_to_x(s, BITNET__GDN_OUT, 0);
    bitnet__forward_ffn(s);
}

/* Weights are read once for all tokens that have chosen an expert. A token takes 3 steps that
   threads share: the router, gate and up of its experts, and down with the sum of all. */
static void bitnet__forward_expert_layer(bitnet__step *s, int32_t i) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const bitnet__layer *l = &m->layers[i];
    const int32_t n_pairs = s->n_tokens * m->n_used;
    bitnet__forward_attention(s, l);
    bitnet__quantize_input(s, c->x, m->dim, l->norm[BITNET__FFN_NORM], BITNET__FFN_GATE, 1);
    bitnet__route(s);
    if (bitnet__is_cancelled(c, 0)) return;
    bitnet__run_step(s, "experts", c->n_chosen * m->ffn_dim,
                     2 * (int64_t)m->dim * n_pairs / c->n_chosen, bitnet__step_experts_gate_up);
    s->in_dim = m->ffn_dim;
    s->blocks = l->linear[BITNET__FFN_DOWN].blocks;
    bitnet__run_step(s, "quantize", n_pairs, 16 * (int64_t)m->ffn_dim,
                     bitnet__step_quantize_pairs);
    bitnet__run_step(s, "experts", m->dim, (int64_t)m->ffn_dim * n_pairs,
                     bitnet__step_experts_down);
}

/* ---- linear layers ---- */

/* Row t of act = int8(x): each scale group by itself, or all at once and padded with zeros to a
   multiple of 128. Returns 1 if a NaN is among them, else 0. */
static int bitnet__quantize_row(const bitnet__step *s, const float *x, int32_t t,
                                const bitnet__act *act) {
    const bitnet_ctx *c = s->c;
    const int32_t n = s->in_dim, group = s->blocks ? s->blocks->group : n;
    const int32_t groups = s->blocks ? n / group : 0;
    const int32_t padded = groups ? n : bitnet__padded_row(n);
    int8_t *q = act->q + bitnet__row(t, padded), codes[256];
    int32_t i;
    for (i = 0; i < groups; i++) {
        const size_t at = bitnet__row(t, groups) + (size_t)i;
        act->scale[at] = 1.0f / c->k.quantize(x + i * group, group, codes, &act->sum[at]);
        s->blocks->order(codes, group, q + i * group);
    }
    if (!groups) act->s[t] = c->k.quantize(x, n, q, &act->sum[t]);
    memset(q + n, 0, (size_t)(padded - n));
    return memchr(q, 0x80, (size_t)n) != 0;                            /* -128 */
}

/* act = int8(x) of token t. */
static void bitnet__quantize_token(const bitnet__step *s, const float *x, int32_t t,
                                   const bitnet__act *act, int thread) {
    if (bitnet__quantize_row(s, x, t, act)) bitnet__note_nonfinite(s->c, t, thread);
}

/* y = the input x [n] of a folded matrix, turned; see "folded weights" in @load. */
static void bitnet__turn_row(const bitnet_ctx *c, const bitnet__turn *turn, const float *x,
                             int32_t n, float *y) {
    const bitnet_model *m = c->m;
    const int32_t per_key = m->n_key_heads ? m->n_value_heads / m->n_key_heads : 0;
    int32_t i, g, r;
    for (g = 0; turn->regroups && g < m->n_key_heads; g++)
        for (r = 0; r < per_key; r++)  /* head r * n_key_heads + g becomes g * per_key + r */
            memcpy(y + bitnet__row(g * per_key + r, m->state_dim),
                   x + bitnet__row(r * m->n_key_heads + g, m->state_dim),
                   (size_t)m->state_dim * sizeof *y);
    if (turn->regroups) x = y;
    for (i = 0; i < n; i++) y[i] = x[i] * turn->signs[i];
    c->k.hadamard(y, n, turn->block);
}

/* A row of a folded embedding, unfolded. */
static void bitnet__turn_back(const bitnet_ctx *c, const bitnet__turn *turn, int32_t n, float *x) {
    int32_t i;
    c->k.hadamard(x, n, turn->block);
    for (i = 0; i < n; i++) x[i] *= turn->signs[i];
}

/* Tokens [from, to): x = rmsnorm(in) if there is a gain, else x = in, turned if there is a turn.
   Then, for each i below n_acts, act[i] = int8(x), or int8(rmsnorm(x)) if there is gains[i]. */
static void bitnet__step_norm_quantize(const bitnet__step *s, int32_t from, int32_t to,
                                       int thread) {
    bitnet_ctx *c = s->c;
    const int32_t n = s->in_dim;
    int32_t t, i;
    for (t = from; t < to; t++) {
        const float *x = s->in + bitnet__row(t, n);
        float *h = c->h + bitnet__row(t, n);
        if ((t == from || t % 64 == 0) && bitnet__is_cancelled(c, thread)) return;
        if (s->gain) {
            c->k.rmsnorm(x, s->gain, n, c->m->eps, h);
            x = h;
            h = c->scratch + bitnet__row(4 * thread, c->m->dim);
        }
        if (s->turn) {
            float *turned = c->turned + bitnet__row(t, n);
            bitnet__turn_row(c, s->turn, x, n, turned);
            x = turned;
        }
        for (i = 0; i < s->n_acts; i++) {
            if (s->gains[i]) c->k.rmsnorm(x, s->gains[i], n, c->m->eps, h);
            bitnet__quantize_token(s, s->gains[i] ? h : x, t, &c->act[s->act + i], thread);
        }
    }
}

/* The int8 inputs of n_acts linear layers that all read in [n_tokens][n]: number `linear` and those
   after it. A gain (then n is dim) is of a norm before all of them; each may have its own, too. */
static void bitnet__quantize_input(bitnet__step *s, const float *in, int32_t n, const float *gain,
                                   int linear, int32_t n_acts) {
    static const float *const none = 0;
    const bitnet__linear *l = &s->layer->linear[linear];
    const bitnet__turn *turn = l->turn.block ? &l->turn : 0;
    const float *const *gains = linear < BITNET__GDN_QKV ? &s->layer->norm[linear] : &none;
    const int64_t work = 16 * (int64_t)n;
    const int32_t norms = (gain != 0) + (gains[0] ? n_acts : 0);
    if (bitnet__in_floats(l)) n_acts = 0;
    s->in = in;
    s->in_dim = n;
    s->blocks = l->blocks;
    s->gain = gain;
    s->gains = gains;
    s->n_acts = n_acts;
    s->turn = turn;
    s->act = linear == BITNET__GDN_ALPHA;
    s->floats = turn ? s->c->turned : gain ? s->c->h : in;
    if (!norms && !turn && !n_acts) return;
    if (norms == 1 && s->c->p.hooks.step_fn) {       /* a profile shows them separately */
        s->gain = gain ? gain : gains[0];
        s->n_acts = 0;
        s->turn = 0;
        bitnet__run_step(s, "norm", s->n_tokens, work, bitnet__step_norm_quantize);
        s->in = s->c->h;
        s->gain = 0;
        s->gains = &none;
        s->n_acts = n_acts;
        s->turn = turn;
        if (n_acts || turn)
            bitnet__run_step(s, "quantize", s->n_tokens, work, bitnet__step_norm_quantize);
        return;
    }
    bitnet__run_step(s, norms ? "norm" : "quantize", s->n_tokens,
                     work * (norms + n_acts + (turn ? 3 : 0)), bitnet__step_norm_quantize);
}

/* Rounds up to where a thread's rows may begin or end: at the rows that the kernels pack together,
   and at multiples of 32, which they compute together. */
static int32_t bitnet__round_rows(const bitnet_ctx *c, int32_t row, int32_t n_out) {
    int32_t unit = bitnet__max(32, c->k.pack_rows);
    return row <= 0 ? 0 : bitnet__min((row + unit - 1) / unit * unit, n_out);
}

/* A patch of a linear layer's products: some rows, for some tokens of the batch. */
typedef struct bitnet__product {
    const bitnet__linear *l;
    const bitnet__act *act;            /* its input, ... */
    const float *floats;               /* ... or that of a matrix of floats, [n_tokens][n_in] */
    int32_t row, n_rows, t, n_tokens;
    int32_t stride;                    /* from a token's products to the next one's */
} bitnet__product;

/* Iterates over the patches of rows [from, to) times all tokens; set the numbers in *x to 0 first.
   Returns 0 at the end, or if the evaluation is cancelled. */
static int bitnet__next_product(const bitnet__step *s, int32_t from, int32_t to, int thread,
                                bitnet__product *x) {
    bitnet_ctx *c = s->c;
    const int32_t t = x->t + x->n_tokens;
    if (x->n_rows == 0) x->row = from;
    else if (t == s->n_tokens) x->row += x->n_rows;
    x->t = t == s->n_tokens ? 0 : t;
    x->n_rows = bitnet__min(to - x->row, BITNET__ROWS);
    x->n_tokens = bitnet__min(s->n_tokens - x->t, bitnet__dot_tokens(&c->p));
    return x->row < to && !bitnet__is_cancelled(c, thread);
}

/* A patch of a layer with scale groups: out = y, or out += y with add. */
static void bitnet__group_products(const bitnet_ctx *c, const bitnet__product *x, int add,
                                   float *out, size_t out_stride) {
    const bitnet__linear *l = x->l;
    const size_t at = bitnet__row(x->t, l->n_in / l->group);
    bitnet__grouped d;
    d.w = l->w + bitnet__blocks_bytes(l->blocks, l->n_in, x->row);
    d.blocks = l->blocks;
    d.q = x->act->q + bitnet__row(x->t, l->n_in);
    d.sums = x->act->sum + at;
    d.scales = x->act->scale + at;
    d.n = l->n_in;
    d.rows = x->n_rows;
    d.cols = x->n_tokens;
    d.add = add;
    d.out = out;
    d.stride = out_stride;
    d.packed = l->in_packs;
    c->k.dotrows_groups(&d);
}

/* Products of rows of little-endian floats. */
typedef void bitnet__dotrows_fn(const uint8_t *w, const float *x, int n, int rows, int cols,
                                float *out, size_t out_stride);
static bitnet__dotrows_fn *bitnet__dotrows_of(const bitnet_ctx *c, uint32_t type) {
    return type == BITNET_TENSOR_F16 ? c->k.dotrows_f16 :
           type == BITNET_TENSOR_BF16 ? c->k.dotrows_bf16 : c->k.dotrows_f32;
}

/* 1 if a patch's products are floats in outputs, else integers in dots. */
static int bitnet__gives_floats(const bitnet__linear *l) {
    return bitnet__has_groups(l) || bitnet__in_floats(l);
}

/* A patch, written from element `at` on, [n_tokens][stride]: integers in dots, of which
   y = dot * (w_scale / s); or y itself in outputs, if the layer has scale groups or is of
   floats. */
static void bitnet__products(const bitnet_ctx *c, const bitnet__product *x, size_t at) {
    const bitnet__linear *l = x->l;
    bitnet__dots d;
    if (bitnet__has_groups(l)) {
        bitnet__group_products(c, x, 0, c->outputs + at, (size_t)x->stride);
        return;
    }
    if (bitnet__in_floats(l)) {
        bitnet__dotrows_of(c, l->file.type)(l->w + (size_t)x->row * bitnet__float_row(l),
                                            x->floats + bitnet__row(x->t, l->n_in), l->n_in,
                                            x->n_rows, x->n_tokens, c->outputs + at,
                                            (size_t)x->stride);
        return;
    }
    d.w = l->w + c->k.packed_bytes(l->n_in, x->row);
    d.q = x->act->q + bitnet__row(x->t, l->n_in);
    d.sums = x->act->sum + x->t;
    d.n = l->n_in;
    d.rows = x->n_rows;
    d.cols = x->n_tokens;
    d.out = c->dots + at;
    d.stride = (size_t)x->stride;
    c->k.dotrows_ternary(&d);
}

/* y of the patch's token i, from what bitnet__products left. Integers are turned to floats in room
   [BITNET__ROWS]. */
static const float *bitnet__outputs(const bitnet_ctx *c, const bitnet__product *x, int32_t i,
                                    size_t at, float *room) {
    at += bitnet__row(i, x->stride);
    if (bitnet__gives_floats(x->l)) return c->outputs + at;
    c->k.dequantize(c->dots + at, x->l->scale / x->act->s[x->t + i], x->n_rows, 0, room);
    return room;
}

/* Where a thread's patches begin in dots and outputs. It has room for two: `which` is 0 or 1. */
static size_t bitnet__thread_dots(const bitnet_ctx *c, int thread, int which) {
    return (size_t)thread * c->dot_room +
           bitnet__row(which, bitnet__dot_tokens(&c->p) * BITNET__DOT_STRIDE);
}

/* Rows [from, to): out = y, or out += y with add; out is [n_tokens][out_stride]. */
static void bitnet__linear_rows(const bitnet__step *s, const bitnet__linear *l,
                                const bitnet__act *act, int32_t from, int32_t to, int thread,
                                float *out, int32_t out_stride, int add) {
    bitnet_ctx *c = s->c;
    const size_t at = bitnet__thread_dots(c, thread, 0);
    bitnet__product x = {l, act, s->floats, 0, 0, 0, 0, BITNET__DOT_STRIDE};
    int32_t i, j;
    from = bitnet__round_rows(c, from, l->n_out);
    to = bitnet__round_rows(c, to, l->n_out);
    while (bitnet__next_product(s, from, to, thread, &x)) {
        float *patch = out + bitnet__row(x.t, out_stride) + x.row;
        if (bitnet__has_groups(l)) bitnet__group_products(c, &x, add, patch, (size_t)out_stride);
        else bitnet__products(c, &x, at);
        for (i = 0; i < x.n_tokens; i++) {
            const int32_t t = x.t + i;
            float *y = patch + bitnet__row(i, out_stride);
            const float *one = c->outputs + at + bitnet__row(i, BITNET__DOT_STRIDE);
            if (bitnet__in_floats(l))
                for (j = 0; j < x.n_rows; j++) y[j] = add ? y[j] + one[j] : one[j];
            else if (!bitnet__has_groups(l))
                c->k.dequantize(c->dots + at + bitnet__row(i, BITNET__DOT_STRIDE),
                                l->scale / act->s[t], x.n_rows, add, y);
            if (add && !bitnet__all_finite(y, x.n_rows)) bitnet__note_nonfinite(c, t, thread);
        }
    }
}

/* The input of the i-th of the layers that read the same. */
static const bitnet__act *bitnet__act_of(const bitnet_ctx *c, int i) {
    return &c->act[bitnet__in_norms(c->m) ? i : 0];
}

/* Rows of q, k and v, numbered as if they were one matrix, so that one step shares them out
   evenly. */
static void bitnet__step_qkv(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__linear *l = s->layer->linear;
    const int32_t q_rows = c->m->q_rows, kv_dim = c->m->kv_dim, v = q_rows + kv_dim;
    bitnet__linear_rows(s, &l[BITNET__ATTN_Q], bitnet__act_of(c, 0), from, to, thread, c->q, q_rows,
                        0);
    bitnet__linear_rows(s, &l[BITNET__ATTN_K], bitnet__act_of(c, 1), from - q_rows, to - q_rows,
                        thread, c->kv, 2 * kv_dim, 0);
    bitnet__linear_rows(s, &l[BITNET__ATTN_V], bitnet__act_of(c, 2), from - v, to - v, thread,
                        c->kv + kv_dim, 2 * kv_dim, 0);
}

/* Rows of a layer that writes to s->out. */
static void bitnet__step_out(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet__linear_rows(s, s->linear, &s->c->act[0], from, to, thread, s->out, s->c->m->dim,
                        s->add);
}

static void bitnet__join_gate(const bitnet_ctx *c, const float *g, const float *u, int32_t n,
                              float *y) {
    const bitnet_model *m = c->m;
    if (m->gate_a < 0.0f) c->k.sigmoid_gate(g, u, m->gate_a, m->gate_b, n, y);
    else c->k.relu2_gate(g, u, n, y);
}

/* Rows of gate and up, and the activation that joins them. */
static void bitnet__step_gate_up(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__linear *l = s->layer->linear;
    const size_t gates = bitnet__thread_dots(c, thread, 0);
    const size_t ups = bitnet__thread_dots(c, thread, 1);
    float gate_room[BITNET__ROWS], up_room[BITNET__ROWS];
    bitnet__product x = {&l[BITNET__FFN_GATE], bitnet__act_of(c, 0), s->floats, 0, 0, 0, 0,
                         BITNET__DOT_STRIDE}, up;
    int32_t i;
    from = bitnet__round_rows(c, from, c->m->ffn_dim);
    to = bitnet__round_rows(c, to, c->m->ffn_dim);
    while (bitnet__next_product(s, from, to, thread, &x)) {
        up = x;
        up.l = &l[BITNET__FFN_UP];
        up.act = bitnet__act_of(c, 1);
        bitnet__products(c, &x, gates);
        bitnet__products(c, &up, ups);
        for (i = 0; i < x.n_tokens; i++) {
            const float *g = bitnet__outputs(c, &x, i, gates, gate_room);
            const float *u = bitnet__outputs(c, &up, i, ups, up_room);
            bitnet__join_gate(c, g, u, x.n_rows,
                              c->g + bitnet__row(x.t + i, c->m->ffn_dim) + x.row);
        }
    }
}

/* Tokens [from, to): x += rmsnorm(h). */
static void bitnet__step_post_norm(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const int32_t dim = c->m->dim;
    int32_t t, i;
    for (t = from; t < to; t++) {
        float *x = c->x + bitnet__row(t, dim), *h = c->h + bitnet__row(t, dim);
        c->k.rmsnorm(h, s->gain, dim, c->m->eps, h);
        for (i = 0; i < dim; i++) x[i] += h[i];
        if (!bitnet__all_finite(x, dim)) bitnet__note_nonfinite(c, t, thread);
    }
}

/* x += a linear layer's output, through a norm if there is a gain. */
static void bitnet__add_linear_to_x(bitnet__step *s, int linear, const float *gain) {
    bitnet_ctx *c = s->c;
    s->linear = &s->layer->linear[linear];
    s->out = gain ? c->h : c->x;
    s->add = !gain;
    bitnet__run_products(s, s->linear->n_out, (int64_t)s->linear->n_in * s->n_tokens,
                         bitnet__step_out);
    if (!gain) return;
    s->gain = gain;
    bitnet__run_step(s, "norm", s->n_tokens, 20 * (int64_t)c->m->dim, bitnet__step_post_norm);
}

/* ---- experts ----
   All floats of a token are computed in an order that does not depend on threads, on the batch or
   on which other tokens have chosen the same experts:

       r = router h               each sum as bitnet_kernels.dotrows_f32 has it
       p = softmax(r)             as bitnet_kernels.softmax has it, over all experts
       e[0 .. n_used)             the experts with the largest p, of equal ones the lowest first
       w[k]                       p[e[k]] / max(p[e[0]] + p[e[1]] + ..., 2^-14), added in this order
       g, u                       products of the rows of expert e[k] with int8(h)
       a = silu(min(g, clamp)) * max(min(u, clamp), -clamp)
       d[k]                       products of its rows of down with int8(a)
       x += ((0 + w[0] d[0]) + w[1] d[1]) + ...

   Where an r is not finite, the token is reported; any experts are right then. */

/* The router's rows [from, to), for all tokens. */
static void bitnet__step_router(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_model *m = s->c->m;
    bitnet_ctx *c = s->c;
    int32_t t, n;
    for (t = 0; t < s->n_tokens && from < to; t += n) {
        n = bitnet__min(s->n_tokens - t, BITNET__ROUTED);
        if (bitnet__is_cancelled(c, thread)) return;
        c->k.dotrows_f32(s->layer->router + 4 * bitnet__row(from, m->dim),
                         c->h + bitnet__row(t, m->dim), m->dim, to - from, n,
                         c->routes + bitnet__row(t, m->n_experts) + from, (size_t)m->n_experts);
    }
}

/* Tokens [from, to) choose their experts. A chosen one's probability becomes -1. Numbers are in
   range even if probabilities are NaN. */
static void bitnet__step_choose(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_ctx *c = s->c;
    const int32_t n = c->m->n_experts, n_used = c->m->n_used;
    int32_t t, k, e;
    for (t = from; t < to; t++) {
        float *p = c->routes + bitnet__row(t, n), *share = c->shares + bitnet__row(t, n_used);
        int32_t *chosen = c->chosen + bitnet__row(t, n_used);
        float sum = 0.0f;
        if (!bitnet__all_finite(p, n)) bitnet__note_nonfinite(c, t, thread);
        c->k.softmax(p, n, 1.0f, 0);
        for (k = 0; k < n_used; k++) {
            int32_t best = -1;
            for (e = 0; e < n; e++)
                if (!(p[e] < 0.0f) && (best < 0 || p[e] > p[best])) best = e;
            chosen[k] = best;
            share[k] = p[best];
            sum += p[best];
            p[best] = -1.0f;
        }
        sum = sum > 6.103515625e-5f ? sum : 6.103515625e-5f;
        for (k = 0; k < n_used; k++) share[k] /= sum;
    }
}

/* Numbers the pairs: all tokens of an expert become neighbours. */
static void bitnet__number_pairs(bitnet_ctx *c, int32_t n_tokens) {
    const int32_t n_used = c->m->n_used, n_pairs = n_tokens * n_used;
    int32_t i, pair = 0;
    memset(c->n_pairs_of, 0, (size_t)c->m->n_experts * sizeof *c->n_pairs_of);
    for (i = 0; i < n_pairs; i++) c->n_pairs_of[c->chosen[i]]++;
    c->n_chosen = 0;
    for (i = 0; i < c->m->n_experts; i++) {
        const bitnet__expert e = {i, pair, c->n_pairs_of[i]};
        if (e.n == 0) continue;
        c->experts[c->n_chosen++] = e;
        c->n_pairs_of[i] = pair;       /* from here on: the number of its next pair */
        pair += e.n;
    }
    for (i = 0; i < n_pairs; i++) {
        c->pairs[i] = c->n_pairs_of[c->chosen[i]]++;
        c->pair_tokens[c->pairs[i]] = i / n_used;
    }
}

/* Each token's experts, by its hidden state in h. */
static void bitnet__route(bitnet__step *s) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    bitnet__run_step(s, "router", m->n_experts, 16 * (int64_t)m->dim * s->n_tokens,
                     bitnet__step_router);
    if (bitnet__is_cancelled(c, 0)) return;
    bitnet__run_step(s, "router", s->n_tokens, 8 * (int64_t)m->n_experts * (m->n_used + 4),
                     bitnet__step_choose);
    bitnet__number_pairs(c, s->n_tokens);
}

/* The inputs of n pairs from number `pair` on, which *x takes: a token's own input, or those of
   several put together in the thread's part of act[2]. */
static void bitnet__gather(const bitnet__step *s, int32_t pair, int32_t n, int thread,
                           bitnet__product *x) {
    const bitnet_ctx *c = s->c;
    const int32_t n_in = x->l->n_in, groups = x->l->group > 0 ? n_in / x->l->group : 0;
    const bitnet__act *from = &c->act[0], *to = &c->act[2];
    int32_t i;
    x->n_tokens = n;
    x->act = n == 1 ? from : to;
    x->t = n == 1 ? c->pair_tokens[pair] : thread * BITNET__GATHERED;
    for (i = 0; i < n && n > 1; i++) {
        const int32_t t = c->pair_tokens[pair + i], at = x->t + i;
        memcpy(to->q + bitnet__row(at, n_in), from->q + bitnet__row(t, n_in), (size_t)n_in);
        if (!groups) {
            to->s[at] = from->s[t];
            to->sum[at] = from->sum[t];
            continue;
        }
        memcpy(to->scale + bitnet__row(at, groups), from->scale + bitnet__row(t, groups),
               (size_t)groups * sizeof *to->scale);
        memcpy(to->sum + bitnet__row(at, groups), from->sum + bitnet__row(t, groups),
               (size_t)groups * sizeof *to->sum);
    }
}

/* y = min(x, high), not below low; a NaN stays. n is a multiple of 16, x may be y. */
static void bitnet__limit(const float *x, float low, float high, int32_t n, float *y) {
    float v[16];
    int32_t i, j;
    for (i = 0; i < n; i += 16) {
        memcpy(v, x + i, sizeof v);
        for (j = 0; j < 16; j++) {
            v[j] = v[j] > high ? high : v[j];
            v[j] = v[j] < low ? low : v[j];
        }
        memcpy(y + i, v, sizeof v);
    }
}

/* Rows [from, to) of an expert's gate and up, for all its pairs, and the activation that joins
   them. */
static void bitnet__expert_gate_up(const bitnet__step *s, const bitnet__expert *e, int32_t from,
                                   int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet__linear *l = s->layer->linear;
    const int32_t ffn_dim = c->m->ffn_dim;
    const size_t gates = bitnet__thread_dots(c, thread, 0);
    const size_t ups = bitnet__thread_dots(c, thread, 1);
    const float clamp = s->layer->clamp, none = bitnet__float_from_bits(0xff800000u);
    float gate_room[BITNET__ROWS], up_room[BITNET__ROWS];
    bitnet__product x = {&l[BITNET__FFN_GATE], 0, 0, 0, 0, 0, 0, BITNET__DOT_STRIDE}, up;
    int32_t p, row, i;
    for (p = 0; p < e->n; p += x.n_tokens) {
        bitnet__gather(s, e->pair + p, bitnet__min(e->n - p, BITNET__GATHERED), thread, &x);
        for (row = from; row < to; row += x.n_rows) {
            if (bitnet__is_cancelled(c, thread)) return;
            x.row = e->number * ffn_dim + row;
            x.n_rows = bitnet__min(to - row, BITNET__ROWS);
            up = x;
            up.l = &l[BITNET__FFN_UP];
            bitnet__products(c, &x, gates);
            bitnet__products(c, &up, ups);
            for (i = 0; i < x.n_tokens; i++) {
                const float *g = bitnet__outputs(c, &x, i, gates, gate_room);
                const float *u = bitnet__outputs(c, &up, i, ups, up_room);
                if (clamp > 0.0f) {
                    bitnet__limit(g, none, clamp, x.n_rows, gate_room);
                    bitnet__limit(u, -clamp, clamp, x.n_rows, up_room);
                    g = gate_room;
                    u = up_room;
                }
                bitnet__join_gate(c, g, u, x.n_rows,
                                  c->g + bitnet__row(e->pair + p + i, ffn_dim) + row);
            }
        }
    }
}

/* Rows of gate and up of all chosen experts, numbered as if these were one matrix. */
static void bitnet__step_experts_gate_up(const bitnet__step *s, int32_t from, int32_t to,
                                         int thread) {
    const bitnet_ctx *c = s->c;
    const int32_t ffn_dim = c->m->ffn_dim;
    int32_t end;
    from = bitnet__round_rows(c, from, s->n_items);
    to = bitnet__round_rows(c, to, s->n_items);
    for (; from < to; from = end) {
        const int32_t i = from / ffn_dim;
        end = bitnet__min(to, (i + 1) * ffn_dim);
        bitnet__expert_gate_up(s, &c->experts[i], from - i * ffn_dim, end - i * ffn_dim, thread);
    }
}

/* The inputs of down, of pairs [from, to). */
static void bitnet__step_quantize_pairs(const bitnet__step *s, int32_t from, int32_t to,
                                        int thread) {
    const bitnet_ctx *c = s->c;
    int32_t i;
    for (i = from; i < to; i++)
        if (bitnet__quantize_row(s, c->g + bitnet__row(i, s->in_dim), i, &c->act[1]))
            bitnet__note_nonfinite(c, c->pair_tokens[i], thread);
}

/* y += w d. n is a multiple of 16. Copies do not overlap, so that compilers vectorise the loop. */
static void bitnet__add_share(const float *d, float w, int32_t n, float *y) {
    float v[16], sum[16];
    int32_t i, j;
    for (i = 0; i < n; i += 16) {
        memcpy(v, d + i, sizeof v);
        memcpy(sum, y + i, sizeof sum);
        for (j = 0; j < 16; j++) sum[j] += w * v[j];
        memcpy(y + i, sum, sizeof sum);
    }
}

/* Rows of x: those of down, of all pairs, then for each token the sum of its experts. A thread
   computes as many rows at a time as it has room for. */
static void bitnet__step_experts_down(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const size_t at = bitnet__thread_dots(c, thread, 0);
    const int32_t n_pairs = s->n_tokens * m->n_used, n_used = m->n_used;
    const size_t room = c->dot_room / (size_t)n_pairs - 4;
    const int32_t unit = bitnet__pair_stride(m) - 4;
    const int32_t rows = room < BITNET__ROWS ? (int32_t)room / unit * unit : BITNET__ROWS;
    bitnet__product x = {&s->layer->linear[BITNET__FFN_DOWN], &c->act[1], 0, 0, 0, 0, 0, rows + 4};
    float y[BITNET__ROWS], one[BITNET__ROWS];
    int32_t i, t, k;
    from = bitnet__round_rows(c, from, m->dim);
    to = bitnet__round_rows(c, to, m->dim);
    for (; from < to; from += x.n_rows) {
        float *to_x = c->x + from;
        x.n_rows = bitnet__min(to - from, rows);
        for (i = 0; i < c->n_chosen; i++) {
            const bitnet__expert *e = &c->experts[i];
            if (bitnet__is_cancelled(c, thread)) return;
            x.row = e->number * m->dim + from;
            x.t = e->pair;
            x.n_tokens = e->n;
            bitnet__products(c, &x, at + bitnet__row(e->pair, x.stride));
        }
        for (t = 0, x.t = 0; t < s->n_tokens; t++, to_x += m->dim) {
            memset(y, 0, sizeof y);
            for (k = 0; k < n_used; k++) {
                const size_t choice = bitnet__row(t, n_used) + (size_t)k;
                bitnet__add_share(bitnet__outputs(c, &x, c->pairs[choice], at, one),
                                  c->shares[choice], x.n_rows, y);
            }
            for (i = 0; i < x.n_rows; i++) to_x[i] += y[i];
            if (!bitnet__all_finite(to_x, x.n_rows)) bitnet__note_nonfinite(c, t, thread);
        }
    }
}

/* ---- gated delta nets ----
   A token's order of operations; heads of queries and keys come first, then those of values:

       u = queries, keys and values        products with h, like z, alpha and beta
       c = w[0] u[t - 3] + w[1] u[t - 2] + w[2] u[t - 1] + w[3] u[t]      in this order, by channel
       c = c / (1 + e^-c)
       r = 1 / max(sqrt(sum of c^2), eps)  of each head of queries and keys, in double; the sum as
                                           floats, as bitnet_kernels.rmsnorm has it
       q = c * float(r / sqrt(d)), k = c * float(r)
       decay = float(exp(a * log(1 + e^(alpha + dt))))        in double but for e^, which is expf;
                                           the logarithm is alpha + dt above 20
       beta = 1 / (1 + e^-beta)
       o = bitnet_kernels.delta_rule
       o = rmsnorm(o) of each head, then silu(z) * o as bitnet_kernels.sigmoid_gate has it

   In the state of a sequence, position p's u is in row p % (n_taps - 1), so that a token writes one
   row and moves none. */

/* The int8 input of alpha and beta: h, which is not turned. */
static void bitnet__quantize_rates(bitnet__step *s) {
    const float *floats = s->floats;
    bitnet__quantize_input(s, s->c->h, s->c->m->dim, 0, BITNET__GDN_ALPHA, 1);
    s->floats = floats;
}

/* Rows of u, z, alpha and beta, numbered as if they were one matrix. */
static void bitnet__step_gdn_inputs(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const bitnet__linear *l = s->layer->linear;
    const int32_t n = m->n_value_heads, z = m->n_channels, alpha = z + m->value_dim;
    const int32_t beta = alpha + n;
    bitnet__step rates = *s;
    rates.floats = c->h;
    bitnet__linear_rows(s, &l[BITNET__GDN_QKV], &c->act[0], from, to, thread, c->u, z, 0);
    bitnet__linear_rows(s, &l[BITNET__GDN_GATE], &c->act[0], from - z, to - z, thread, c->q,
                        m->value_dim, 0);
    bitnet__linear_rows(&rates, &l[BITNET__GDN_ALPHA], &c->act[1], from - alpha, to - alpha, thread,
                        c->rates, 2 * n, 0);
    bitnet__linear_rows(&rates, &l[BITNET__GDN_BETA], &c->act[1], from - beta, to - beta, thread,
                        c->rates + n, 2 * n, 0);
}

/* Where the state of a layer and a sequence begins. */
static float *bitnet__gdn_state_of(const bitnet__step *s, const bitnet__span *run) {
    return bitnet__seq_state(s->c, s->c->places[run->t].seq) + s->layer->state;
}

/* Copies n floats of the state after token t to its mark. */
static void bitnet__mark_state(const bitnet__step *s, int32_t t, const float *x, int32_t n) {
    const bitnet__place *at = &s->c->places[t];
    memcpy(at->mark->state + (x - bitnet__seq_state(s->c, at->seq)), x, (size_t)n * sizeof *x);
}

/* Channels [at, at + n) of a run, n at most 64: the convolution in place, and its inputs to the
   state. rows: [n_taps - 1], there. */
static void bitnet__convolve(const bitnet__step *s, const bitnet__span *run, int32_t at,
                             int32_t n, float *rows) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t taps = m->n_taps, channels = m->n_channels;
    const float *w = s->layer->norm[BITNET__GDN_CONV] + at;
    float *u = c->u + bitnet__row(run->t, channels) + at, sum[64], one[64];
    int32_t t, k, i, pos = c->places[run->t].pos;
    for (t = 0; t < run->n; t++, pos++, u += channels) {
        memcpy(one, u, (size_t)n * sizeof *u);
        for (k = 0; k < taps - 1; k++) {               /* the oldest is where this one goes */
            const float *x = rows + bitnet__row((pos + k) % (taps - 1), channels) + at;
            const float *f = w + bitnet__row(k, channels);
            for (i = 0; i < n; i++) sum[i] = k ? sum[i] + f[i] * x[i] : f[i] * x[i];
        }
        for (i = 0; i < n; i++) sum[i] += w[bitnet__row(taps - 1, channels) + (size_t)i] * one[i];
        memcpy(rows + bitnet__row(pos % (taps - 1), channels) + at, one, (size_t)n * sizeof *u);
        for (k = 0; k < taps - 1 && c->places[run->t + t].mark; k++)
            bitnet__mark_state(s, run->t + t, rows + bitnet__row(k, channels) + at, n);
        c->k.sigmoid(sum, sum, n, u);
    }
}

/* x [n], a head's query or key, to the length `length`. */
static void bitnet__to_unit(float *x, int32_t n, float eps, double length) {
    float lanes[BITNET__LANES] = {0}, r;
    double norm;
    int32_t i, j;
    for (i = 0; i + BITNET__LANES <= n; i += BITNET__LANES)
        for (j = 0; j < BITNET__LANES; j++) lanes[j] += x[i + j] * x[i + j];
    for (j = 0; i + j < n; j++) lanes[j] += x[i + j] * x[i + j];
    norm = bitnet__sqrt((double)bitnet__sum_lanes(lanes));
    r = (float)(length / (norm > (double)eps ? norm : (double)eps));
    for (i = 0; i < n; i++) x[i] *= r;
}

/* The decay and beta of a value head, in place of alpha and beta. A NaN, which is noted, counts as
   -64 in the one and stays in the other. */
static void bitnet__gdn_rates(const bitnet__step *s, int32_t t, int32_t head, int thread) {
    const bitnet_ctx *c = s->c;
    float *alpha = c->rates + bitnet__row(t, 2 * c->m->n_value_heads) + head;
    float *beta = alpha + c->m->n_value_heads;
    const float x = *alpha + s->layer->norm[BITNET__GDN_DT][head];
    double y = x > 20.0f ? (double)x : bitnet__log(1.0 + (double)bitnet__expf(x));
    if (!bitnet__all_finite(alpha, 1) || !bitnet__all_finite(beta, 1))
        bitnet__note_nonfinite(c, t, thread);
    y *= (double)s->layer->norm[BITNET__GDN_A][head];
    *alpha = y > -80.0 ? (float)bitnet__exp(y) : 0.0f;
    *beta = 1.0f / (1.0f + bitnet__expf(0.0f - *beta));
}

/* Heads of all runs, those of queries, keys and values: convolved; then queries and keys become
   units, and value heads get their decays and betas. */
static void bitnet__step_gdn_conv(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t d = m->state_dim, keys = m->n_key_heads, heads = 2 * keys + m->n_value_heads;
    int32_t item, t, i;
    for (item = from; item < to; item++) {
        const bitnet__span *run = &c->runs[item / heads];
        const int32_t head = item % heads;
        float *rows = bitnet__gdn_state_of(s, run) + bitnet__row(m->value_dim, d);
        const double length = head < keys ? 1.0 / bitnet__sqrt((double)d) : 1.0;
        if (bitnet__is_cancelled(c, thread)) return;
        for (i = 0; i < d; i += 64)
            bitnet__convolve(s, run, head * d + i, bitnet__min(d - i, 64), rows);
        for (t = run->t; t < run->t + run->n; t++) {
            if (head < 2 * keys)
                bitnet__to_unit(c->u + bitnet__row(t, m->n_channels) + bitnet__row(head, d), d,
                                m->eps, length);
            else bitnet__gdn_rates(s, t, head - 2 * keys, thread);
        }
    }
}

/* Slices of value heads of all runs. */
static void bitnet__step_gdn_state(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t d = m->state_dim, slices = (d + BITNET__SLICE - 1) / BITNET__SLICE;
    const int32_t items = m->n_value_heads * slices;
    bitnet__delta x;
    int32_t item;
    x.n_keys = d;
    x.stride = (size_t)m->n_channels;
    x.gate_stride = 2 * (size_t)m->n_value_heads;
    x.out_stride = (size_t)m->value_dim;
    for (item = from; item < to; item++) {
        const bitnet__span *run = &c->runs[item / items];
        const int32_t head = item % items / slices, first = item % slices * BITNET__SLICE;
        const int32_t end = run->t + run->n;
        int32_t t, next;
        if (bitnet__is_cancelled(c, thread)) return;
        x.state = bitnet__gdn_state_of(s, run) + bitnet__row(head * d + first, d);
        x.n_values = bitnet__min(d - first, BITNET__SLICE);
        for (t = run->t; t < end; t = next) {          /* up to the next mark */
            const float *u = c->u + bitnet__row(t, m->n_channels);
            for (next = t + 1; next < end && !c->places[next - 1].mark;) next++;
            x.q = u + bitnet__row(head % m->n_key_heads, d);
            x.k = x.q + bitnet__row(m->n_key_heads, d);
            x.v = u + bitnet__row(2 * m->n_key_heads + head, d) + first;
            x.decay = c->rates + bitnet__row(t, 2 * m->n_value_heads) + head;
            x.beta = x.decay + m->n_value_heads;
            x.out = c->o + bitnet__row(t, m->value_dim) + bitnet__row(head, d) + first;
            x.n_tokens = next - t;
            c->k.delta_rule(&x);
            if (c->places[next - 1].mark)
                bitnet__mark_state(s, next - 1, x.state, x.n_values * d);
        }
    }
}

/* Tokens [from, to): the output is normalised by heads, and z is its gate. */
static void bitnet__step_gdn_gate(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t d = m->state_dim;
    int32_t t, i;
    (void)thread;
    for (t = from; t < to; t++) {
        float *o = c->o + bitnet__row(t, m->value_dim);
        for (i = 0; i < m->value_dim; i += d)
            c->k.rmsnorm(o + i, s->layer->norm[BITNET__GDN_NORM], d, m->eps, o + i);
        c->k.sigmoid_gate(c->q + bitnet__row(t, m->value_dim), o, -1.0f, 0.0f, m->value_dim, o);
    }
}

/* ---- attention ---- */

/* Tokens [from, to): each head's output times the sigmoid of its gate. */
static void bitnet__step_attention_gate(const bitnet__step *s, int32_t from, int32_t to,
                                        int thread) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t hd = m->head_dim;
    int32_t t, i;
    (void)thread;
    for (t = from; t < to; t++) {
        const float *gate = c->q + bitnet__row(t, m->q_rows) + hd;
        float *o = c->o + bitnet__row(t, m->q_dim);
        for (i = 0; i < m->n_heads; i++, gate += 2 * hd, o += hd) c->k.sigmoid(gate, o, hd, o);
    }
}

/* The cells of a head's keys, or with `what` 1 its values, from a position on: those of them before
   `to` that are in the same page. The position must be a multiple of the type's unit. */
static bitnet__cells bitnet__cache_cells(const bitnet_ctx *c, int32_t seq, const bitnet__layer *l,
                                         int32_t kv_head, int what, int32_t from, int32_t to) {
    const size_t head = (bitnet__row(l->cache, c->m->n_kv_heads) + (size_t)kv_head) * 2;
    const size_t cell = (head + (size_t)what) * (size_t)c->page_len + (size_t)(from % c->page_len);
    bitnet__cells cells;
    cells.at = (uint8_t *)c->seqs[seq].pages[from / c->page_len] + 64 +
               cell * bitnet__cell_bytes(c->m, c->cache);
    cells.from = from;
    cells.n = bitnet__min(to - from, c->page_len - from % c->page_len);
    return cells;
}

/* Stores v [head_dim], a key or a value of token t, unless that is read again and has them. */
static int bitnet__cache_store(const bitnet__step *s, int32_t t, int32_t kv_head, int what,
                               const float *v, int8_t *room) {
    const bitnet_ctx *c = s->c;
    const bitnet__place at = c->places[t];
    const int32_t unit = at.pos - at.pos % c->cache->unit;
    if (at.pos < c->seqs[at.seq].n_past) return 0;
    return c->cache->store(c, bitnet__cache_cells(c, at.seq, s->layer, kv_head, what, unit,
                                                  at.pos + 1).at, at.pos, what, v, room);
}

/* Index of the first of the queries of (kv_head, t); its floats are at index * head_dim of queries.
   At most n_batch * n_heads, 2^28. */
static int32_t bitnet__query_at(const bitnet__step *s, int32_t kv_head, int32_t t) {
    return (kv_head * s->n_tokens + t) * s->c->m->heads_per_kv;
}

/* Reorders a head from pairs (2i, 2i + 1) to pairs (i, i + n_rot / 2), which the kernels rotate.
   The products of q and k stay the same, since both are reordered. */
static void bitnet__pairs_to_halves(const float *x, int n_rot, int n, float *y) {
    int i, half = n_rot / 2;
    for (i = 0; i < half; i++) {
        y[i] = x[2 * i];
        y[half + i] = x[2 * i + 1];
    }
    for (i = n_rot; i < n; i++) y[i] = x[i];
}

/* A query, rotated, from q to its place; also as int8, if the cache wants that. */
static void bitnet__store_query(const bitnet__step *s, const float *q, const float *cos_sin,
                                int32_t n_rot, int32_t at, int32_t t, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t hd = m->head_dim;
    float *y = c->queries + bitnet__row(at, hd);
    int8_t *codes;
    if (m->family->adjacent) bitnet__pairs_to_halves(q, n_rot, hd, y);
    c->k.rope(m->family->adjacent ? y : q, cos_sin, n_rot, hd, c->cache->rounds, y);
    if (!bitnet__is_int8(c->cache)) return;
    codes = c->query.q + bitnet__row(at, hd);
    c->query.scale[at] = 1.0f / c->k.quantize(y, hd, codes, &c->query.sum[at]);
    if (memchr(codes, 0x80, (size_t)hd)) bitnet__note_nonfinite(c, t, thread);     /* -128 */
}

/* Tokens [from, to): normalises the heads, if the family does; rotates q and k; stores k and v in
   the cache. In every family the cached keys have the pairs (i, i + n_rot / 2). o is not in use yet
   and holds a key while it is reordered or becomes int8. */
static void bitnet__step_rope(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t hd = m->head_dim, q_stride = m->q_rows / m->n_heads;
    int32_t t, i, j;
    const int adjacent = m->family->adjacent;
    const float *q_gain = s->layer->norm[BITNET__Q_HEAD_NORM];
    const float *k_gain = s->layer->norm[BITNET__K_HEAD_NORM];
    for (t = from; t < to; t++) {
        const int32_t n_rot = s->layer->rope < 0 ? 0 : m->n_rot;       /* 0: nothing is rotated */
        const float *cos_sin = n_rot ? c->rope[s->layer->rope] + bitnet__row(t, n_rot) : 0;
        float *q = c->q + bitnet__row(t, m->q_rows);
        float *k = c->kv + bitnet__row(t, 2 * m->kv_dim), *v = k + m->kv_dim;
        float *o = c->o + bitnet__row(t, m->q_dim);
        for (i = 0; i < m->n_kv_heads; i++, k += hd, v += hd) {
            for (j = 0; j < m->heads_per_kv; j++, q += q_stride) {
                if (q_gain) c->k.rmsnorm(q, q_gain, hd, m->eps, q);
                bitnet__store_query(s, q, cos_sin, n_rot, bitnet__query_at(s, i, t) + j, t, thread);
            }
            if (k_gain) c->k.rmsnorm(k, k_gain, hd, m->eps, k);
            if (adjacent) bitnet__pairs_to_halves(k, n_rot, hd, o);
            c->k.rope(adjacent ? o : k, cos_sin, n_rot, hd, 0, k);
            if (bitnet__cache_store(s, t, i, 0, k, (int8_t *)o) |
                bitnet__cache_store(s, t, i, 1, v, (int8_t *)o))
                bitnet__note_nonfinite(c, t, thread);
        }
    }
}

/* The tokens of a span and one KV head: the queries are columns, which are multiplied with the
   head's keys and values. The last token sees the positions up to n_all - 1 of its sequence, each
   token before it one less; a layer that slides sees only the last `window` of them. */
typedef struct bitnet__attention {
    const bitnet__step *s;
    int32_t kv_head, t, n_tokens;      /* tokens [t, t + n_tokens) of the batch */
    int32_t seq, n_all, n_cols;
    size_t stride;                     /* n_scores */
    float *scores;                     /* [n_cols][n_scores] */
    uint8_t *weights;                  /* if int8: [n_cols][n_scores], and ... */
    float *scales;                     /* ... [n_cols][n_scores / 64] */
} bitnet__attention;

/* share: which share of c->scores it uses; each has room for the longest span. */
static bitnet__attention bitnet__make_attention(const bitnet__step *s, int32_t kv_head,
                                                const bitnet__span *span, int32_t share) {
    const bitnet_ctx *c = s->c;
    const int32_t heads_per_kv = c->m->heads_per_kv;
    const size_t at = bitnet__row(share * c->max_span * heads_per_kv, c->n_scores);
    const bitnet__place last = c->places[span->t + span->n - 1];
    bitnet__attention a;
    a.s = s;
    a.kv_head = kv_head;
    a.t = span->t;
    a.n_tokens = span->n;
    a.seq = last.seq;
    a.n_all = last.pos + 1;
    a.n_cols = a.n_tokens * heads_per_kv;
    a.stride = (size_t)c->n_scores;
    a.scores = c->scores + at;
    a.weights = (uint8_t *)c->weight.q + at;
    a.scales = c->weight.scale + at / BITNET__KV_BLOCK;
    return a;
}

/* The position of the span's token i, and the first position that it sees. */
static int32_t bitnet__position(const bitnet__attention *a, int32_t i) {
    return a->n_all - a->n_tokens + i;
}
static int32_t bitnet__first_seen(const bitnet__step *s, int32_t position) {
    return s->window > 0 ? bitnet__max(position - s->window + 1, 0) : 0;
}

static bitnet__cells bitnet__values(const bitnet__attention *a, int32_t from, int32_t to) {
    return bitnet__cache_cells(a->s->c, a->seq, a->s->layer, a->kv_head, 1, from, to);
}

/* Products of the queries with the keys of positions [from, to), and of whole units around them. */
static void bitnet__attend_keys(const bitnet__attention *a, int32_t from, int32_t to) {
    const bitnet__kv_ops *kv = a->s->c->cache;
    bitnet__cells keys;
    to = (to + kv->unit - 1) / kv->unit * kv->unit;
    for (from -= from % kv->unit; from < to; from += keys.n) {
        keys = bitnet__cache_cells(a->s->c, a->seq, a->s->layer, a->kv_head, 0, from, to);
        kv->scores(a, &keys);
    }
}

/* The positions of all KV blocks that any column of the span sees: [*from, return value). */
static int32_t bitnet__kv_blocks_seen(const bitnet__attention *a, int32_t *from) {
    *from = bitnet__first_seen(a->s, bitnet__position(a, 0));
    *from -= *from % BITNET__KV_BLOCK;
    return (a->n_all + BITNET__KV_BLOCK - 1) / BITNET__KV_BLOCK * BITNET__KV_BLOCK;
}

/* Turns the scores of column i into probabilities, and these into weights if the cache is int8. */
static void bitnet__attend_softmax(const bitnet__attention *a, int32_t i, int thread) {
    const bitnet_ctx *c = a->s->c;
    const int32_t at = bitnet__position(a, i / c->m->heads_per_kv);
    const int32_t first = bitnet__first_seen(a->s, at);
    const int32_t query = bitnet__query_at(a->s, a->kv_head, a->t) + i;
    bitnet__cells values;
    int32_t from, to;
    (void)thread;
    c->k.softmax(a->scores + bitnet__row(i, c->n_scores) + first, at + 1 - first,
                 bitnet__is_int8(c->cache) ? c->m->score_scale * c->query.scale[query]
                                           : c->m->score_scale,
                 c->cache->rounds);
    if (!bitnet__is_int8(c->cache)) return;
    for (to = bitnet__kv_blocks_seen(a, &from); from < to; from += values.n) {
        values = bitnet__values(a, from, to);
        c->cache->weigh(a, &values, i, first, at + 1);
    }
}

/* Adds to out [n_cols][count] the values of positions [from, to), elements [first, first + count),
   weighted by the columns from number `col` on. */
static void bitnet__add_values(const bitnet__attention *a, int32_t from, int32_t to, int32_t col,
                               int32_t n_cols, int32_t first, int32_t count, float *out) {
    bitnet__cells values;
    for (; from < to; from += values.n) {
        values = bitnet__values(a, from, to);
        a->s->c->cache->add(a, &values, col, n_cols, first, count, out);
    }
}

/* Sums elements [first, first + count) of the values, for all columns. Floats: for each token first
   the positions before those that all tokens see (in a layer that slides), then these, then those
   behind. So each sum has the order of positions, whatever the span is. int8: all KV blocks that
   any column sees, in order; positions that a column does not see have weight 0. */
static void bitnet__sum_values(const bitnet__attention *a, int32_t first, int32_t count,
                               float *out) {
    const int32_t heads_per_kv = a->s->c->m->heads_per_kv, end = bitnet__position(a, 0) + 1;
    const int32_t last = bitnet__first_seen(a->s, a->n_all - 1);
    const int32_t begin = bitnet__min(last, end);      /* all see [begin, end) */
    int32_t i;
    if (bitnet__is_int8(a->s->c->cache)) {
        const int32_t to = bitnet__kv_blocks_seen(a, &i);
        bitnet__add_values(a, i, to, 0, a->n_cols, first, count, out);
        return;
    }
    for (i = 0; i < a->n_tokens; i++)
        bitnet__add_values(a, bitnet__first_seen(a->s, bitnet__position(a, i)), begin,
                           i * heads_per_kv, heads_per_kv, first, count,
                           out + bitnet__row(i * heads_per_kv, count));
    bitnet__add_values(a, begin, end, 0, a->n_cols, first, count, out);
    for (i = 1; i < a->n_tokens; i++)
        bitnet__add_values(a, bitnet__max(end, bitnet__first_seen(a->s, bitnet__position(a, i))),
                           bitnet__position(a, i) + 1, i * heads_per_kv, heads_per_kv, first,
                           count, out + bitnet__row(i * heads_per_kv, count));
}

/* Computes elements [from, from + count) of the heads' outputs. */
static void bitnet__attend_values(const bitnet__attention *a, int32_t from, int32_t count,
                                  int thread) {
    const bitnet_ctx *c = a->s->c;
    const bitnet_model *m = c->m;
    const int32_t heads_per_kv = m->heads_per_kv, hd = m->head_dim;
    float *mixed = c->mixed + bitnet__row(thread, c->max_span * heads_per_kv * hd);
    int32_t i;
    memset(mixed, 0, bitnet__row(a->n_cols, count) * sizeof *mixed);
    bitnet__sum_values(a, from, count, mixed);
    for (i = 0; i < a->n_cols; i++) {
        const int32_t head = a->kv_head * heads_per_kv + i % heads_per_kv;
        memcpy(c->o + bitnet__row(a->t + i / heads_per_kv, m->q_dim) + head * hd + from,
               mixed + bitnet__row(i, count), (size_t)count * sizeof *mixed);
    }
}

/* Attention of many spans: items are (span, KV head) pairs. The later spans of a prompt see more
   positions: they come first, so that the tasks taken last are short. */
static void bitnet__step_attention(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    int32_t item, i;
    for (item = s->n_items - 1 - from; item >= s->n_items - to; item--) {
        bitnet__attention a = bitnet__make_attention(s, item % m->n_kv_heads,
                                                     &c->spans[item / m->n_kv_heads], thread);
        if (bitnet__is_cancelled(s->c, thread)) return;
        bitnet__attend_keys(&a, bitnet__first_seen(s, bitnet__position(&a, 0)), a.n_all);
        for (i = 0; i < a.n_cols; i++) bitnet__attend_softmax(&a, i, thread);
        bitnet__attend_values(&a, 0, m->head_dim, thread);
    }
}

/* With few spans there are too few such pairs to share out evenly. So for each span each of the
   three phases is a step of its own, with several items per KV head. */
static void bitnet__step_attention_phase(const bitnet__step *s, int32_t from, int32_t to,
                                         int thread) {
    const bitnet_ctx *c = s->c;
    const int32_t n = s->n_items / c->m->n_kv_heads;
    int32_t item;
    for (item = from; item < to; item++) {
        bitnet__attention a = bitnet__make_attention(s, item / n, s->span, item / n);
        s->attend(&a, item % n, thread);
    }
}

static void bitnet__attend_key_rows(const bitnet__attention *a, int32_t i, int thread) {
    const int32_t first = bitnet__first_seen(a->s, bitnet__position(a, 0));
    const int32_t row = (first / BITNET__PAGE + i) * BITNET__PAGE;
    (void)thread;
    bitnet__attend_keys(a, bitnet__max(row, first), bitnet__min(row + BITNET__PAGE, a->n_all));
}

/* Each head's elements are cut into slices. Slices [from, to) of all heads; those of one head are
   summed together, since whole rows of values are read up to half again as fast as halves. */
static void bitnet__step_attention_values(const bitnet__step *s, int32_t from, int32_t to,
                                          int thread) {
    const bitnet_model *m = s->c->m;
    const int32_t slices = s->n_items / m->n_kv_heads, dims = m->head_dim / slices;
    int32_t end;
    for (; from < to; from = end) {
        const int32_t head = from / slices;
        const bitnet__attention a = bitnet__make_attention(s, head, s->span, head);
        end = bitnet__min(to, (head + 1) * slices);
        bitnet__attend_values(&a, from % slices * dims, (end - from) * dims, thread);
    }
}

/* The work of attention per position that a span sees: its keys, or its values. */
static int64_t bitnet__attention_work(const bitnet_model *m, const bitnet__span *span) {
    return 4 * (int64_t)span->n * m->heads_per_kv * m->head_dim;
}

static void bitnet__run_attention_phases(bitnet__step *s, const bitnet__span *span) {
    const bitnet_model *m = s->c->m;
    const int32_t end = s->c->places[span->t + span->n - 1].pos + 1;
    const int32_t first = bitnet__first_seen(s, end - span->n) / BITNET__PAGE;
    const int32_t n = end - first * BITNET__PAGE;
    const int32_t slices = m->head_dim % BITNET__MIX_DIMS ? 1 : m->head_dim / BITNET__MIX_DIMS;
    const int64_t work = bitnet__attention_work(m, span);
    s->span = span;
    s->attend = bitnet__attend_key_rows;
    bitnet__run_step(s, "attention", m->n_kv_heads * (bitnet__round_page(n) / BITNET__PAGE),
                     work * BITNET__PAGE, bitnet__step_attention_phase);
    s->attend = bitnet__attend_softmax;
    bitnet__run_step(s, "attention", span->n * m->n_heads, 64 * (int64_t)n,
                     bitnet__step_attention_phase);
    bitnet__run_tasks(s, "attention", slices * m->n_kv_heads, work * n / slices, 1,
                      bitnet__step_attention_values);
}

/* Chooses one of the two ways, by the number of threads. The results are the same. */
static void bitnet__run_attention(bitnet__step *s) {
    const bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const int32_t n_items = c->n_spans * m->n_kv_heads;
    int64_t work = 0;
    int32_t i;
    if (c->n_spans == 1 || n_items < 2 * c->p.n_threads) {
        for (i = 0; i < c->n_spans; i++) bitnet__run_attention_phases(s, &c->spans[i]);
        return;
    }
    for (i = 0; i < c->n_spans; i++) {
        const bitnet__span *span = &c->spans[i];
        const int32_t at = c->places[span->t + span->n - 1].pos;
        work += 2 * bitnet__attention_work(m, span) * (at + 1 - bitnet__first_seen(s, at));
    }
    bitnet__run_step(s, "attention", n_items, work / c->n_spans, bitnet__step_attention);
}

/* ---- the cache, by type ----
   The rows that bitnet__kv_ops explains, and their functions. */

static int bitnet__store_floats(const bitnet_ctx *c, uint8_t *to, int32_t position, int what,
                                const float *v, int8_t *room) {
    const int32_t n = c->m->head_dim;
    int32_t i;
    (void)position, (void)what, (void)room;
    if (c->cache->element == 2) c->k.store_f16(v, n, to);
    else
        for (i = 0; i < n; i++) bitnet__put_u32(to + 4 * i, bitnet__float_bits(v[i]));
    return 0;
}

static void bitnet__scores_floats(const bitnet__attention *a, const bitnet__cells *keys) {
    const bitnet_ctx *c = a->s->c;
    const int32_t hd = c->m->head_dim;
    const float *q = c->queries + bitnet__row(bitnet__query_at(a->s, a->kv_head, a->t), hd);
    (c->cache->element == 4 ? c->k.dotrows_f32 : c->k.scores_f16)(
        keys->at, q, hd, keys->n, a->n_cols, a->scores + keys->from, a->stride);
}

static void bitnet__add_floats(const bitnet__attention *a, const bitnet__cells *values, int32_t col,
                               int32_t n_cols, int32_t first, int32_t count, float *out) {
    const bitnet_ctx *c = a->s->c;
    const int32_t element = c->cache->element;
    (element == 4 ? c->k.sumrows_f32 : c->k.sumrows_f16)(
        values->at + first * element, (size_t)c->m->head_dim,
        a->scores + (size_t)col * a->stride + values->from, a->stride, count, values->n, n_cols,
        out);
}

static void bitnet__visit_floats(const bitnet_ctx *c, const bitnet__cells *cells, int what,
                                 void *ud, bitnet__bytes_fn *fn) {
    (void)what;
    fn(ud, cells->at, bitnet__cell_bytes(c->m, c->cache) * (size_t)cells->n);
}

#ifndef BITNET_NO_KV_I8
/* Element i of the key, or value, at a position of a KV block. */
static uint8_t *bitnet__i8_code(uint8_t *kv_block, int32_t n, int32_t position, int32_t i,
                                int what) {
    const size_t r = (size_t)(position % BITNET__KV_BLOCK), e = (size_t)i;
    return kv_block + BITNET__KV_SCALES + (what ? (r / 4 * (size_t)n + e) * 4 + r % 4
                                               : (e / 4 * BITNET__KV_BLOCK + r) * 4 + e % 4);
}

static int bitnet__store_i8(const bitnet_ctx *c, uint8_t *to, int32_t position, int what,
                            const float *v, int8_t *room) {
    const int32_t n = c->m->head_dim;
    int32_t i, sum;
    const float scale = 1.0f / c->k.quantize(v, n, room, &sum);
    bitnet__put_u32(to + 4 * (position % BITNET__KV_BLOCK), bitnet__float_bits(scale));
    for (i = 0; i < n; i++)
        *bitnet__i8_code(to, n, position, i, what) = (uint8_t)(room[i] + (what ? 0 : 128));
    return memchr(room, 0x80, (size_t)n) != 0;                         /* -128 */
}

static void bitnet__scores_i8(const bitnet__attention *a, const bitnet__cells *keys) {
    const bitnet_ctx *c = a->s->c;
    const int32_t hd = c->m->head_dim;
    const int32_t at = bitnet__query_at(a->s, a->kv_head, a->t);
    c->k.scores_i8(keys->at, c->query.q + bitnet__row(at, hd), c->query.sum + at, hd, keys->n,
                   a->n_cols, a->scores + keys->from, a->stride);
}

static void bitnet__weigh_i8(const bitnet__attention *a, const bitnet__cells *values, int32_t i,
                             int32_t first, int32_t end) {
    const bitnet_ctx *c = a->s->c;
    const int32_t from = values->from;
    const size_t at = (size_t)i * a->stride + (size_t)from;
    c->k.weigh_i8(a->scores + at, values->at, c->m->head_dim, values->n, first - from, end - from,
                  a->weights + at, a->scales + at / BITNET__KV_BLOCK);
}

static void bitnet__add_i8(const bitnet__attention *a, const bitnet__cells *values, int32_t col,
                           int32_t n_cols, int32_t first, int32_t count, float *out) {
    const bitnet_ctx *c = a->s->c;
    const size_t at = (size_t)col * a->stride + (size_t)values->from;
    c->k.sumrows_i8(values->at, a->weights + at, a->scales + at / BITNET__KV_BLOCK, a->stride,
                    c->m->head_dim, first, count, values->n, n_cols, out);
}

/* For each position its scale, then its codes in order. */
static void bitnet__visit_i8(const bitnet_ctx *c, const bitnet__cells *cells, int what, void *ud,
                             bitnet__bytes_fn *fn) {
    const int32_t hd = c->m->head_dim;
    uint8_t codes[256], *kv_block = cells->at;
    int32_t p, i, j, n;
    for (p = 0; p < cells->n; p++) {
        if (p > 0 && p % BITNET__KV_BLOCK == 0) kv_block += bitnet__kv_block_bytes(hd);
        fn(ud, kv_block + 4 * (p % BITNET__KV_BLOCK), 4);
        for (i = 0; i < hd; i += n) {
            n = bitnet__min(hd - i, (int32_t)sizeof codes);
            for (j = 0; j < n; j++) codes[j] = *bitnet__i8_code(kv_block, hd, p, i + j, what);
            fn(ud, codes, (size_t)n);
            for (j = 0; j < n; j++) *bitnet__i8_code(kv_block, hd, p, i + j, what) = codes[j];
        }
    }
}
#endif

static const bitnet__kv_ops *bitnet__kv_ops_of(bitnet_kv_type type) {
    /* [bitnet_kv_type]: name, head_unit, max_head, element, extra, unit, rounds, int8, ... */
    static const bitnet__kv_ops rows[] = {
        {"BITNET_KV_F16", 1, BITNET__MAX_ROW, 2, 0, 1, 1, 0, bitnet__store_floats,
         bitnet__scores_floats, 0, bitnet__add_floats, bitnet__visit_floats},
        {"BITNET_KV_F32", 1, BITNET__MAX_ROW, 4, 0, 1, 0, 0, bitnet__store_floats,
         bitnet__scores_floats, 0, bitnet__add_floats, bitnet__visit_floats},
#ifndef BITNET_NO_KV_I8
        {"BITNET_KV_I8", 4, 65536, 1, 4, BITNET__KV_BLOCK, 0, 1, bitnet__store_i8,
         bitnet__scores_i8, bitnet__weigh_i8, bitnet__add_i8, bitnet__visit_i8},
#endif
    };
    return (size_t)type < sizeof rows / sizeof rows[0] ? &rows[type] : 0;
}

/* ---- a batch through all layers ---- */

/* Writes the cosines, then the sines of a position's angles, times length. */
static void bitnet__rotations(const bitnet_model *m, const double *freq, double length, int32_t pos,
                              float *cos_sin) {
    int32_t i;
    for (i = 0; i < m->n_rot / 2; i++) {
        double sn, cs;
        bitnet__sincos((double)pos * freq[i], &sn, &cs);
        cos_sin[i] = (float)(cs * length);
        cos_sin[m->n_rot / 2 + i] = (float)(sn * length);
    }
}

/* Tokens [from, to): their embeddings, and the rotations of their positions. */
static void bitnet__step_embed(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const bitnet_model *m = c->m;
    const double *const freq[2] = {bitnet__rope_of(c), m->rope_freq[1]};
    int32_t t, i;
    for (t = from; t < to; t++) {
        const bitnet__place at = c->places[t];
        float *x = c->x + bitnet__row(t, m->dim);
        const bitnet_token token = c->seqs[at.seq].history[at.pos];
        if (m->tied && bitnet__has_groups(&m->ternary_head))
            bitnet__groups_row(&m->ternary_head, token, x);
        else bitnet__matrix_row(&m->embed, token, x);
        if (m->embed_turn.block) bitnet__turn_back(c, &m->embed_turn, m->dim, x);
        for (i = 0; i < m->dim; i++) x[i] *= m->embed_scale;
        if (!bitnet__all_finite(x, m->dim)) bitnet__note_nonfinite(c, t, thread);
        for (i = 0; i < 2; i++)
            if (freq[i])
                bitnet__rotations(m, freq[i], i == 0 ? m->rope_length : 1.0, at.pos,
                                  c->rope[i] + bitnet__row(t, m->n_rot));
    }
}

/* Notes what is not finite, and calls layer_fn, after a layer (-1: the embedding), when all its
   tasks have ended. */
static void bitnet__end_layer(const bitnet__step *s, int32_t layer) {
    bitnet_ctx *c = s->c;
    int32_t i;
    for (i = 0; i < c->p.n_threads; i++)
        if (c->nonfinite[i] < c->nonfinite_token) {
            c->nonfinite_token = c->nonfinite[i];
            c->nonfinite_layer = layer;
        }
    if (!c->p.hooks.layer_fn) return;
    c->p.hooks.layer_fn(c->p.hooks.layer_ud, layer, c->x, s->n_tokens);
    bitnet__leave_lost_team(c);
}

/* Cuts the batch into spans. */
static void bitnet__find_spans(bitnet_ctx *c, int32_t n) {
    bitnet__span *span = c->spans;
    int32_t t;
    c->n_spans = 0;
    for (t = 0; t < n; t++) {
        if (t == 0 || span->n == c->max_span || c->places[t].seq != c->places[t - 1].seq) {
            span = &c->spans[c->n_spans++];
            span->t = t;
            span->n = 0;
        }
        span->n++;
    }
}

/* The runs of the batch, if layers keep a state, which begins as zeros. */
static void bitnet__find_runs(bitnet_ctx *c, int32_t n) {
    const size_t bytes = c->m->n_state * sizeof(float);
    bitnet__span *run = c->runs;
    int32_t t;
    c->n_runs = 0;
    for (t = 0; t < n && bytes; t++) {
        const bitnet__place at = c->places[t];
        if (at.pos == 0) memset(bitnet__seq_state(c, at.seq), 0, bytes);
        if (t == 0 || at.seq != c->places[t - 1].seq) {
            run = &c->runs[c->n_runs++];
            run->t = t;
            run->n = 0;
        }
        run->n++;
    }
}

/* The embeddings of the batch, the n tokens at c->places. */
static void bitnet__begin_batch(bitnet__step *s) {
    bitnet_ctx *c = s->c;
    const int32_t n = s->n_tokens;
    int32_t i;
    bitnet__find_spans(c, n);
    bitnet__find_runs(c, n);
    c->nonfinite_token = n;
    for (i = 0; i < c->p.n_threads; i++) c->nonfinite[i] = n;
    for (i = 0; i < n; i++) c->seqs[c->places[i].seq].n_in_state = BITNET__NO_STATE;
    bitnet__run_step(s, "embed", n, 16 * (int64_t)c->m->dim + 512 * (int64_t)c->m->n_rot,
                     bitnet__step_embed);
    bitnet__end_layer(s, -1);
}

/* Evaluates one batch, the n tokens at c->places, from a layer on (-1: the embedding). Where it may
   pause, it does so behind a layer of this call; then *layer is the next one, else n_layers. */
static bitnet_result bitnet__forward(bitnet_ctx *c, int32_t n, int32_t *layer, bitnet_error *err) {
    const bitnet_model *m = c->m;
    bitnet__step s = bitnet__make_step(c, n);
    int32_t i;
    c->cancelled = 0;
    if (*layer < 0) {
        bitnet__begin_batch(&s);
        *layer = 0;
    }
    for (i = *layer; *layer < m->n_layers && !bitnet__is_cancelled(c, 0); ++*layer) {
        if (*layer > i && bitnet__pauses(c)) return BITNET_OK;
        m->layers[*layer].kind->forward(&s, *layer);
        if (!bitnet__is_cancelled(c, 0)) bitnet__end_layer(&s, *layer);
    }
    if (bitnet__load_acquire(&c->cancelled))
        return bitnet__fail(err, BITNET_ERR_CANCELLED, "the evaluation was cancelled");
    if (c->nonfinite_token < n) return bitnet__fail_nonfinite(c, err);
    for (i = 0; i < n; i++) {
        const bitnet__place at = c->places[i];
        c->seqs[at.seq].n_in_state = at.pos + 1;
        c->seqs[at.seq].n_past += at.pos == c->seqs[at.seq].n_past;    /* it is not read again */
        if (at.mark) at.mark->is_open = 0;
        if (at.row < 0) continue;
        c->k.rmsnorm(c->x + bitnet__row(i, m->dim), m->output_norm, m->dim, m->eps,
                     c->hidden + bitnet__row(at.row, m->dim));
        if (m->head_turn.block)
            bitnet__turn_row(c, &m->head_turn, c->hidden + bitnet__row(at.row, m->dim), m->dim,
                             c->head_in + bitnet__row(at.row, m->dim));
        c->row_places[at.row] = at;
    }
    return BITNET_OK;
}

/* =============================================================================================
   @eval  appending tokens: queued, checked, evaluated in batches
   New tokens are first queued: written to the history behind the sequence's own, the pending token
   first. Then they are evaluated. If that fails, the sequences still hold what they held before.
   ============================================================================================= */

/* Checks that n tokens fit, the pending one included. */
static bitnet_result bitnet__check_room(const bitnet_ctx *c, const bitnet__seq *q, int64_t n,
                                        bitnet_error *err) {
    if (n <= c->p.n_ctx - q->n_past) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FULL,
                        "%lld tokens%s do not fit: the context has %d positions and %d are taken",
                        (long long)n, q->pending >= 0 ? " (with the pending one)" : "",
                        (int)c->p.n_ctx, (int)q->n_past);
}

/* Checks that a sequence can take n tokens more. */
static bitnet_result bitnet__check_tokens(const bitnet_ctx *c, const bitnet__seq *q,
                                          const bitnet_token *tokens, int32_t n,
                                          bitnet_error *err) {
    bitnet_result r;
    int32_t i;
    if (n < 1 || !tokens)
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no tokens to evaluate");
    if ((r = bitnet__check_room(c, q, (int64_t)(q->pending >= 0) + n, err))) return r;
    for (i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= c->m->n_vocab)
            return bitnet__fail(err, BITNET_ERR_ARG,
                                "token %lld at index %d is outside the vocabulary of %d",
                                (long long)tokens[i], (int)i, (int)c->m->n_vocab);
    return BITNET_OK;
}

/* The queued tokens of a sequence are a prompt of n tokens from a position on, or a part of it. */
static void bitnet__queue_prompt(bitnet__seq *q, int32_t from, int32_t n) {
    q->is_prompt = n > 1;
    q->mark_end = n > BITNET__MARK_BEFORE ? from + n - BITNET__MARK_BEFORE : 0;
}

/* Queues n tokens; q->n_queued counts the pending one, too. */
static bitnet_result bitnet__queue(const bitnet_ctx *c, bitnet__seq *q, const bitnet_token *tokens,
                                   int32_t n, bitnet_error *err) {
    bitnet_token *to = q->history + q->n_past;
    const int32_t first = q->pending >= 0;
    const bitnet_result r = bitnet__check_tokens(c, q, tokens, n, err);
    if (r != BITNET_OK) return r;
    memmove(to + first, tokens, (size_t)n * sizeof *tokens);    /* they may be the history's own */
    if (first) to[0] = q->pending;
    q->n_queued = first + n;
    q->n_again = bitnet__behind(c, q);
    bitnet__queue_prompt(q, q->n_past, q->n_queued);
    return BITNET_OK;
}

/* Puts the token number `done` of an input into the batch. */
static void bitnet__add_to_batch(bitnet_ctx *c, const bitnet_input *in, int32_t done,
                                 bitnet__place *place) {
    const bitnet__seq *q = &c->seqs[in->seq];
    const int32_t kept = done - (q->n_again + q->n_queued - in->n_logits);
    const int32_t n = q->again_from + done + 1;
    place->seq = in->seq;
    place->pos = n - 1;
    place->row = kept >= 0 ? in->row + kept : -1;
    place->mark = n == q->mark_cut || n == q->mark_end ? bitnet__open_mark(c, q, n) : 0;
}

/* The end of a turn. */
static void bitnet__mark_turn(bitnet_ctx *c, int32_t seq) {
    bitnet__mark *x = bitnet__open_mark(c, &c->seqs[seq], c->seqs[seq].n_past);
    if (!x) return;
    memcpy(x->state, bitnet__seq_state(c, seq), c->m->n_state * sizeof *x->state);
    x->is_open = 0;
}

/* Takes the pages and numbers the rows that the inputs need; nothing has changed if it fails. */
static bitnet_result bitnet__prepare_inputs(bitnet_ctx *c, bitnet_input *inputs, int32_t n_inputs,
                                            int32_t *n_tokens, bitnet_error *err) {
    int64_t rows = 0, total = 0;
    bitnet_result r;
    int32_t i;
    for (i = 0; i < n_inputs; i++) {
        const bitnet__seq *q = &c->seqs[inputs[i].seq];
        rows += inputs[i].n_logits;
        total += q->n_again + (int64_t)q->n_queued;
    }
    if (rows > c->p.n_logits)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "the logits of %lld tokens are to be kept: the "
                            "context has room for %d (n_logits)", (long long)rows,
                            (int)c->p.n_logits);
    if (total > INT32_MAX) return bitnet__fail(err, BITNET_ERR_LIMIT, "over 2^31 tokens");
    r = bitnet__reserve_pages(c, bitnet__pages_needed(c, inputs, n_inputs), err);
    if (r != BITNET_OK) return r;
    bitnet__forget_rows(c);
    for (i = 0; i < n_inputs; i++) {
        bitnet__seq *q = &c->seqs[inputs[i].seq];
        bitnet__seq_extend(c, q, q->n_queued);
        q->n_before = q->n_past;
        q->again_from = q->n_past - bitnet__behind(c, q);
        q->pending_before = q->pending;
        if (q->n_queued > 0) q->pending = -1;
        if (q->is_prompt && q->n_again == 0) bitnet__mark_turn(c, inputs[i].seq);
        inputs[i].row = c->n_rows;
        c->n_rows += inputs[i].n_logits;
    }
    for (i = 0; i < c->n_rows; i++) c->row_places[i].seq = -1;     /* until it is evaluated */
    *n_tokens = (int32_t)total;
    return BITNET_OK;
}

/* Fills the next batch; returns its tokens. */
static int32_t bitnet__fill_batch(bitnet_ctx *c, bitnet__pass *pass, const bitnet_input *inputs,
                                  int32_t n_inputs) {
    int32_t n;
    for (n = 0; n < c->p.n_batch && pass->input < n_inputs; n++) {
        const bitnet_input *in = &inputs[pass->input];
        bitnet__add_to_batch(c, in, pass->of_input++, &c->places[n]);
        if (pass->of_input < c->seqs[in->seq].n_again + c->seqs[in->seq].n_queued) continue;
        pass->of_input = 0;
        pass->input++;
    }
    return n;
}

/* Pauses the pass: its sequences look as before it. */
static void bitnet__pause_pass(bitnet_ctx *c, const bitnet_input *inputs, int32_t n_inputs) {
    int32_t i;
    for (i = 0; i < n_inputs; i++) {
        bitnet__seq *q = &c->seqs[inputs[i].seq];
        q->n_paused = q->n_past;
        q->n_past = q->n_before;
        q->pending = q->pending_before;
    }
    c->pass.n_inputs = n_inputs;
}

static void bitnet__resume_pass(bitnet_ctx *c, const bitnet_input *inputs, int32_t n_inputs) {
    int32_t i;
    for (i = 0; i < n_inputs; i++) {
        bitnet__seq *q = &c->seqs[inputs[i].seq];
        q->n_past = q->n_paused;
        if (q->n_queued > 0) q->pending = -1;
    }
    c->pass.n_inputs = 0;
}

/* Evaluates the queued tokens of the inputs, in this order, in batches, or goes on with that pass
   if it is paused. On failure the sequences are as before, and the context has no logits. */
static bitnet_result bitnet__eval_queued(bitnet_ctx *c, bitnet_input *inputs, int32_t n_inputs,
                                         bitnet_error *err) {
    bitnet__pass *pass = &c->pass;
    bitnet_result r = BITNET_OK;
    int32_t i;
    if (pass->n_inputs > 0) bitnet__resume_pass(c, inputs, n_inputs);
    else {
        memset(pass, 0, sizeof *pass);
        r = bitnet__prepare_inputs(c, inputs, n_inputs, &pass->total, err);
        if (r != BITNET_OK) return r;
    }
    while (pass->done < pass->total && r == BITNET_OK) {
        if (pass->batch == 0) {
            pass->batch = bitnet__fill_batch(c, pass, inputs, n_inputs);
            pass->layer = -1;
        }
        r = bitnet__forward(c, pass->batch, &pass->layer, err);
        if (r == BITNET_OK && pass->layer < c->m->n_layers) {
            bitnet__pause_pass(c, inputs, n_inputs);
            return r;
        }
        pass->done += pass->batch;
        pass->batch = 0;
    }
    c->row = c->n_rows - 1;
    if (r == BITNET_OK) return r;
    bitnet__forget_rows(c);
    bitnet__drop_open_marks(c);
    for (i = 0; i < n_inputs; i++) {
        bitnet__seq *q = &c->seqs[inputs[i].seq];
        bitnet__seq_shorten(c, inputs[i].seq, q->n_before);
        q->pending = q->pending_before;
    }
    return r;
}

/* Queues the tokens of all inputs. *n: how many inputs may have tokens queued now, also if it
   fails. */
static bitnet_result bitnet__queue_inputs(bitnet_ctx *c, const bitnet_input *inputs,
                                          int32_t n_inputs, int32_t *n, bitnet_error *err) {
    bitnet_result r = BITNET_OK;
    for (*n = 0; *n < n_inputs && r == BITNET_OK; ++*n) {
        const bitnet_input *in = &inputs[*n];
        bitnet__seq *q = bitnet__seq_of(c, in->seq);
        if (!q)
            return bitnet__fail(err, BITNET_ERR_ARG, "input %d: sequence %lld is not in 0..%d",
                                (int)*n, (long long)in->seq, (int)c->p.n_seqs - 1);
        r = bitnet__check_reserved(in->reserved, 2, "bitnet_input", err);
        if (r != BITNET_OK) return r;
        if (q->in_generation)
            return bitnet__fail(err, BITNET_ERR_BUSY, "input %d: a generation has sequence %d",
                                (int)*n, (int)in->seq);
        if (q->n_queued)
            return bitnet__fail(err, BITNET_ERR_ARG, "input %d: sequence %d is there twice",
                                (int)*n, (int)in->seq);
        if (in->n_tokens >= 1 && (in->n_logits < 0 || in->n_logits > in->n_tokens))
            return bitnet__fail(err, BITNET_ERR_ARG, "input %d: n_logits %lld is not in 0..%lld",
                                (int)*n, (long long)in->n_logits, (long long)in->n_tokens);
        r = bitnet__queue(c, q, in->tokens, in->n_tokens, err);
        if (in->n_logits > 1) bitnet__queue_prompt(q, 0, 0);   /* it is measured, or a draft */
    }
    return r;
}

static bitnet_result bitnet__eval_many(bitnet_ctx *c, bitnet_input *inputs, int32_t n_inputs,
                                       bitnet_error *err) {
    int32_t i, n;
    bitnet_result r;
    if (n_inputs < 1 || !inputs)
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no inputs");
    r = bitnet__queue_inputs(c, inputs, n_inputs, &n, err);
    if (r == BITNET_OK) r = bitnet__eval_queued(c, inputs, n_inputs, err);
    for (i = 0; i < n; i++) c->seqs[inputs[i].seq].n_queued = 0;
    return r;
}

BITNET_API bitnet_result bitnet_eval_many(bitnet_ctx *c, bitnet_input *inputs, int32_t n_inputs,
                                          bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__eval_many(c, inputs, n_inputs, err));
}

BITNET_API bitnet_result bitnet_eval(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                     int32_t n, int32_t n_logits, bitnet_error *err) {
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.tokens = tokens;
    in.n_tokens = n;
    in.n_logits = n_logits;
    return bitnet_eval_many(c, &in, 1, err);
}

/* Evaluates n tokens more of a sequence without a pending token; they may be its history's own. */
static bitnet_result bitnet__append(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                    int32_t n, bitnet_error *err) {
    bitnet_input in;
    bitnet_result r;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.n_logits = 1;
    r = bitnet__queue(c, &c->seqs[seq], tokens, n, err);
    if (r == BITNET_OK) r = bitnet__eval_queued(c, &in, 1, err);
    c->seqs[seq].n_queued = 0;
    return r;
}

/* Gives a sequence the state of all its tokens. */
static bitnet_result bitnet__read_again(bitnet_ctx *c, int32_t seq, bitnet_error *err) {
    bitnet__seq *q = &c->seqs[seq];
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    q->n_again = bitnet__behind(c, q);
    bitnet__queue_prompt(q, 0, 0);
    return q->n_again > 0 ? bitnet__eval_queued(c, &in, 1, err) : BITNET_OK;
}

static bitnet_result bitnet__seq_sync(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                      int32_t n, int32_t *n_kept, bitnet_error *err) {
    bitnet__seq *q = &c->seqs[seq], empty = *q;
    bitnet_result r;
    int32_t kept = 0;
    empty.n_past = 0;
    empty.pending = -1;
    if ((r = bitnet__check_tokens(c, &empty, tokens, n, err))) return r;
    while (kept < q->n_past && kept < n - 1 && tokens[kept] == q->history[kept]) kept++;
    bitnet__seq_shorten(c, seq, kept);
    *n_kept = kept - bitnet__behind(c, q);
    return bitnet__append(c, seq, tokens + kept, n - kept, err);
}

BITNET_API bitnet_result bitnet_seq_sync(bitnet_ctx *c, int32_t seq, const bitnet_token *tokens,
                                         int32_t n, int32_t *n_kept, bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_seq(c, seq, err);
    int32_t unused;
    return r ? r : bitnet__done(c, bitnet__seq_sync(c, seq, tokens, n, n_kept ? n_kept : &unused,
                                                    err));
}

static bitnet_result bitnet__seq_remove(bitnet_ctx *c, int32_t seq, int32_t from, int32_t to,
                                        bitnet_error *err) {
    bitnet__seq *q = &c->seqs[seq];
    const bitnet_token pending = q->pending;
    const int32_t length = q->n_past;
    bitnet_result r = BITNET_OK;
    int32_t left;
    if (from < 0 || from > to || to > length)
        return bitnet__fail(err, BITNET_ERR_ARG, "tokens %lld..%lld are not in 0..%d",
                            (long long)from, (long long)to, (int)length);
    if (from == to) return BITNET_OK;
    bitnet__seq_shorten(c, seq, from);
    left = length - to;
    memmove(q->history + from, q->history + to, (size_t)left * sizeof *q->history);
    if (left > 0) r = bitnet__append(c, seq, q->history + from, left, err);
    if (r == BITNET_OK) q->pending = pending;
    return r;
}

BITNET_API bitnet_result bitnet_seq_remove(bitnet_ctx *c, int32_t seq, int32_t from, int32_t to,
                                           bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_seq(c, seq, err);
    return r ? r : bitnet__done(c, bitnet__seq_remove(c, seq, from, to, err));
}

/* =============================================================================================
   @state  saved sequences
   Little-endian on every machine, without padding:

        0  "BITNETSQ"
        8  u32 version                    1
       12  u32 kv_type                    of bitnet_kv_type
       16  u64 model                      see bitnet__model_identity; plus 1 if the keys are
                                          rotated by longrope's factors for long contexts
       24  u32 n_layers, n_kv_heads, head_dim
       36  u32 n                          tokens
       40  i32 pending                    -1: none
       44  u32 tokens [n]
           keys and values                [layers that cache][n_kv_heads][keys, values][n]; each
                                          is [head_dim] F16 or F32, or for I8 an F32 scale and
                                          [head_dim] codes: of a value, or of a key plus 128
           F32 state [n_state]            of layers that keep one; not if n is 0
           u64 checksum                   bitnet__hash of all bytes before it

   So neither pages nor anything else of the context shows, except kv_type.
   ============================================================================================= */

enum { BITNET__STATE_HEADER = 44, BITNET__STATE_BUFFER = 4096 };
static const uint8_t bitnet__state_magic[8] = {'B', 'I', 'T', 'N', 'E', 'T', 'S', 'Q'};

static void bitnet__state_header(const bitnet_ctx *c, uint32_t n, bitnet_token pending,
                                 uint8_t *p) {
    memcpy(p, bitnet__state_magic, sizeof bitnet__state_magic);
    bitnet__put_u32(p + 8, 1);
    bitnet__put_u32(p + 12, (uint32_t)c->p.kv_type);
    bitnet__put_u64(p + 16, c->m->identity + (bitnet__rope_of(c) != c->m->rope_freq[0]));
    bitnet__put_u32(p + 24, (uint32_t)c->m->n_layers);
    bitnet__put_u32(p + 28, (uint32_t)c->m->n_kv_heads);
    bitnet__put_u32(p + 32, (uint32_t)c->m->head_dim);
    bitnet__put_u32(p + 36, n);
    bitnet__put_u32(p + 40, (uint32_t)pending);
}

/* Under 2^60, since n is at most 2^20 and a position under 2^38 bytes. */
static uint64_t bitnet__state_size(const bitnet_ctx *c, uint32_t n) {
    const uint64_t position = (uint64_t)c->m->n_caches * (uint64_t)c->m->n_kv_heads * 2 *
                              bitnet__cell_bytes(c->m, c->cache);
    return BITNET__STATE_HEADER + n * (4 + position) + (n ? 4 * c->m->n_state : 0) + 8;
}

/* Calls fn for all keys and values of the first n positions, in the order above, and for the state
   of fixed size. It writes the bytes to a file, or replaces them by those of a file. */
static void bitnet__state_rows(const bitnet_ctx *c, int32_t seq, int32_t n, void *ud,
                               bitnet__bytes_fn *fn) {
    const bitnet_model *m = c->m;
    float *state = bitnet__seq_state(c, seq);
    uint8_t bytes[1024];
    bitnet__cells cells;
    int32_t i, head, what, from;
    size_t k, j, some;
    for (i = 0; i < m->n_layers; i++)
        for (head = 0; m->layers[i].kind->caches && head < m->n_kv_heads; head++)
            for (what = 0; what < 2; what++)
                for (from = 0; from < n; from += cells.n) {
                    cells = bitnet__cache_cells(c, seq, &m->layers[i], head, what, from, n);
                    c->cache->visit(c, &cells, what, ud, fn);
                }
    for (k = 0; k < m->n_state && n > 0; k += some) {
        some = m->n_state - k < 256 ? m->n_state - k : 256;
        for (j = 0; j < some; j++) bitnet__put_u32(bytes + 4 * j, bitnet__float_bits(state[k + j]));
        fn(ud, bytes, 4 * some);
        for (j = 0; j < some; j++) state[k + j] = bitnet__load_f32(bytes + 4 * j);
    }
}

/* Collects bytes in a buffer, and writes that when it is full. After a failure it drops them. */
typedef struct bitnet__state_writer {
    const bitnet_io *io;
    bitnet_result result;
    uint64_t hash, done;               /* of what is written; its bytes */
    size_t n;                          /* bytes in the buffer */
    uint8_t buffer[BITNET__STATE_BUFFER];
} bitnet__state_writer;

static void bitnet__state_flush(bitnet__state_writer *w) {
    w->hash = bitnet__hash(w->hash, w->buffer, w->n);
    w->result = w->io->write_fn(w->io->ud, w->buffer, w->n);
    if (w->result == BITNET_OK) w->done += w->n;
    w->n = 0;
}

static void bitnet__state_put(void *writer, uint8_t *p, size_t n) {
    bitnet__state_writer *w = (bitnet__state_writer *)writer;
    while (n > 0 && w->result == BITNET_OK) {
        const size_t room = sizeof w->buffer - w->n, count = n < room ? n : room;
        memcpy(w->buffer + w->n, p, count);
        w->n += count;
        p += count;
        n -= count;
        if (w->n == sizeof w->buffer) bitnet__state_flush(w);
    }
}

static bitnet_result bitnet__seq_save(const bitnet_ctx *c, int32_t seq, const bitnet_io *io,
                                      bitnet_error *err) {
    const bitnet__seq *q = &c->seqs[seq];
    bitnet__state_writer writer, *w = &writer;
    uint8_t bytes[BITNET__STATE_HEADER];
    bitnet_result r;
    int32_t i;
    if (!io || !io->write_fn) return bitnet__fail(err, BITNET_ERR_ARG, "io has no write_fn");
    if ((r = bitnet__check_reserved(io->reserved, 2, "bitnet_io", err))) return r;
    memset(w, 0, sizeof *w);
    w->io = io;
    w->hash = BITNET__HASH_START;
    bitnet__state_header(c, (uint32_t)q->n_past, q->pending, bytes);
    bitnet__state_put(w, bytes, sizeof bytes);
    for (i = 0; i < q->n_past; i++) {
        bitnet__put_u32(bytes, (uint32_t)q->history[i]);
        bitnet__state_put(w, bytes, 4);
    }
    bitnet__state_rows(c, seq, q->n_past, w, bitnet__state_put);
    bitnet__put_u64(bytes, bitnet__hash(w->hash, w->buffer, w->n));
    bitnet__state_put(w, bytes, 8);
    if (w->n > 0 && w->result == BITNET_OK) bitnet__state_flush(w);
    if (w->result == BITNET_OK) return BITNET_OK;
    return bitnet__fail(err, w->result, "writing the sequence at byte %llu of %llu: %s",
                        (unsigned long long)w->done,
                        (unsigned long long)bitnet__state_size(c, (uint32_t)q->n_past),
                        bitnet_result_text(w->result));
}

BITNET_API uint64_t bitnet_seq_state_bytes(const bitnet_ctx *c, int32_t seq) {
    const bitnet__seq *q = bitnet__seq_of(c, seq);
    return q ? bitnet__state_size(c, (uint32_t)q->n_past) : 0;
}

BITNET_API bitnet_result bitnet_seq_save_io(bitnet_ctx *c, int32_t seq, const bitnet_io *io,
                                            bitnet_error *err) {
    bitnet_result r = bitnet__acquire_seq(c, seq, err);
    if (r != BITNET_OK) return r;
    r = bitnet__read_again(c, seq, err);
    return bitnet__done(c, r ? r : bitnet__seq_save(c, seq, io, err));
}

typedef struct bitnet__room { uint8_t *p; size_t n; } bitnet__room;

static bitnet_result bitnet__write_memory(void *ud, const void *data, size_t n) {
    bitnet__room *to = (bitnet__room *)ud;
    if (n > to->n) return BITNET_ERR_LIMIT;
    memcpy(to->p, data, n);
    to->p += n;
    to->n -= n;
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_seq_save_memory(bitnet_ctx *c, int32_t seq, void *out, size_t cap,
                                                bitnet_error *err) {
    bitnet__room to;
    bitnet_io io;
    to.p = (uint8_t *)out;
    to.n = cap;
    memset(&io, 0, sizeof io);
    io.write_fn = bitnet__write_memory;
    io.ud = &to;
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "out is NULL");
    return bitnet_seq_save_io(c, seq, &io, err);
}

/* Checks the header p of a file of this size against the one that the context would write. */
static bitnet_result bitnet__check_state(const bitnet_ctx *c, const uint8_t *p, uint64_t size,
                                         bitnet_error *err) {
    static const struct { int32_t at, size; bitnet_result code; const char *text; } fields[] = {
        {0, 8, BITNET_ERR_FORMAT, "this is no saved sequence"},
        {8, 4, BITNET_ERR_UNSUPPORTED, "the version is not 1"},
        {12, 4, BITNET_ERR_UNSUPPORTED, "the kv_type is not the context's"},
        {16, 20, BITNET_ERR_UNSUPPORTED, "it was saved with another model"},
    };
    const uint32_t n = bitnet__get_u32(p + 36);
    uint8_t want[BITNET__STATE_HEADER];
    size_t i;
    bitnet__state_header(c, n, 0, want);
    for (i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (memcmp(p + fields[i].at, want + fields[i].at, (size_t)fields[i].size))
            return bitnet__fail(err, fields[i].code, "saved sequence, offset %d: %s%s",
                                (int)fields[i].at, fields[i].text,
                                fields[i].at == 16 && c->m->rope_long
                                    ? ", or with longrope's factors for another n_ctx" : "");
    if (n > BITNET__MAX_CONTEXT)
        return bitnet__fail(err, BITNET_ERR_FORMAT, "saved sequence, offset 36: %u tokens are more "
                            "than a context can hold", (unsigned)n);
    if (size != bitnet__state_size(c, n))
        return bitnet__fail(err, size < bitnet__state_size(c, n) ? BITNET_ERR_TRUNCATED
                                                                 : BITNET_ERR_FORMAT,
                            "saved sequence: %u tokens take %llu bytes, but it has %llu",
                            (unsigned)n, (unsigned long long)bitnet__state_size(c, n),
                            (unsigned long long)size);
    if (n <= (uint32_t)c->p.n_ctx) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FULL, "the saved sequence has %u tokens, the context %d "
                        "positions (n_ctx)", (unsigned)n, (int)c->p.n_ctx);
}

/* Checks what is behind the header; p has all n tokens and the size that the header says. */
static bitnet_result bitnet__check_state_body(const bitnet_ctx *c, const uint8_t *p, size_t size,
                                              bitnet_error *err) {
    const uint32_t n = bitnet__get_u32(p + 36);
    uint32_t i;
    if (bitnet__hash(BITNET__HASH_START, p, size - 8) != bitnet__get_u64(p + size - 8))
        return bitnet__fail(err, BITNET_ERR_FORMAT, "saved sequence: it is damaged; the checksum "
                            "at offset %llu is that of other bytes", (unsigned long long)size - 8);
    for (i = 0; i <= n; i++) {         /* the pending one first: + 1 makes -1, for none, 0 */
        const uint32_t t = bitnet__get_u32(p + 40 + 4 * (size_t)i);
        if (t + (i == 0) >= (uint32_t)c->m->n_vocab + (i == 0))
            return bitnet__fail(err, BITNET_ERR_FORMAT, "saved sequence, offset %llu: token %u is "
                                "outside the vocabulary of %d", 40 + 4 * (unsigned long long)i,
                                (unsigned)t, (int)c->m->n_vocab);
    }
    return BITNET_OK;
}

static void bitnet__state_get(void *ud, uint8_t *rows, size_t size) {
    const uint8_t **p = (const uint8_t **)ud;
    memcpy(rows, *p, size);
    *p += size;
}

/* Replaces a sequence by a file that has passed all checks. */
static bitnet_result bitnet__state_restore(bitnet_ctx *c, int32_t seq, const uint8_t *p,
                                           bitnet_error *err) {
    bitnet__seq *q = &c->seqs[seq];
    const int32_t n = (int32_t)bitnet__get_u32(p + 36);
    int32_t pages = bitnet__pages_for(c, n), i;
    bitnet_result r;
    for (i = 0; i < q->n_pages; i++) pages -= q->pages[i]->n_users == 1;    /* become free */
    if ((r = bitnet__reserve_pages(c, pages, err))) return r;
    bitnet__seq_shorten(c, seq, 0);
    bitnet__seq_extend(c, q, n);
    q->pending = (bitnet_token)bitnet__get_u32(p + 40);
    for (p += BITNET__STATE_HEADER, i = 0; i < n; i++, p += 4)
        q->history[i] = (bitnet_token)bitnet__get_u32(p);
    bitnet__state_rows(c, seq, n, &p, bitnet__state_get);
    q->n_past = q->n_in_state = n;
    return BITNET_OK;
}

/* Reads a whole file, whose header is given, into *own; does nothing if it is in the caller's
   memory. */
static bitnet_result bitnet__state_bytes(const bitnet_ctx *c, const bitnet__source *src,
                                         const uint8_t *header, uint8_t **own,
                                         bitnet_error *err) {
    const size_t at = BITNET__STATE_HEADER;
    if (src->data) return BITNET_OK;
    if (src->size <= SIZE_MAX)
        *own = (uint8_t *)bitnet__alloc(&c->m->params.allocator, (size_t)src->size);
    if (!*own)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a saved sequence (%llu bytes)",
                            (unsigned long long)src->size);
    memcpy(*own, header, at);          /* not read again: it might have changed */
    return bitnet__source_read(src, "the saved sequence", at, *own + at, (size_t)src->size - at,
                               err);
}

static bitnet_result bitnet__seq_load(bitnet_ctx *c, int32_t seq, const bitnet__source *src,
                                      bitnet_error *err) {
    uint8_t header[BITNET__STATE_HEADER], *own = 0;
    const uint8_t *p;
    bitnet_result r;
    if (src->result != BITNET_OK) return src->result;
    if (src->size < BITNET__STATE_HEADER + 8)
        return bitnet__fail(err, BITNET_ERR_TRUNCATED, "saved sequence: it has %llu bytes, and the "
                            "shortest have 52", (unsigned long long)src->size);
    if ((r = bitnet__source_read(src, "the saved sequence", 0, header, sizeof header, err)) ||
        (r = bitnet__check_state(c, header, src->size, err))) return r;
    r = bitnet__state_bytes(c, src, header, &own, err);
    p = own ? own : src->data;
    if (r == BITNET_OK) r = bitnet__check_state_body(c, p, (size_t)src->size, err);
    if (r == BITNET_OK) r = bitnet__state_restore(c, seq, p, err);
    bitnet__free(&c->m->params.allocator, own);
    return r;
}

static bitnet_result bitnet__load_from(bitnet_ctx *c, int32_t seq, bitnet__source src,
                                       bitnet_error *err) {
    const bitnet_result r = bitnet__acquire_seq(c, seq, err);
    return r ? r : bitnet__done(c, bitnet__seq_load(c, seq, &src, err));
}

BITNET_API bitnet_result bitnet_seq_load_io(bitnet_ctx *c, int32_t seq, const bitnet_io *io,
                                            bitnet_error *err) {
    return bitnet__load_from(c, seq, bitnet__source_io(io, err), err);
}

BITNET_API bitnet_result bitnet_seq_load_memory(bitnet_ctx *c, int32_t seq, const void *data,
                                                size_t size, bitnet_error *err) {
    return bitnet__load_from(c, seq, bitnet__source_memory(data, size, err), err);
}

/* =============================================================================================
   @head  the output head: all logits, or the exact top k by means of a copy in 4 + 2 bits
   For a small batch the head is most of the work: over half of the bytes that a token of the 2B
   model can need. So logits are computed only on demand. Greedy and top-k sampling need few: a copy
   of the head, 6 bits a weight in two planes, bounds every logit at a quarter to 3/8 of the memory
   traffic, and only the rows that can be among the k largest are computed exactly. The sampled
   token is always the same. Other samplers, and bitnet_logits, compute all logits.

   The first plane, 4 bits of each weight (164 MB of the 2B model), suffices where few logits are
   near the largest, as a trained model's greedy choice usually is. If it leaves over an eighth of
   the rows, both planes are read (248 MB), and at once for the next tokens. The head itself has
   657 MB. bitnet_ctx_head_bytes says what a sample has read.

   The copy belongs to the model: its first context without no_head_copy allocates it
   (head_copy_bytes of bitnet_model_info), and all contexts share it. The first samples fill it in,
   a quarter each of a large head, and compute all logits meanwhile, so that the first token does
   not wait for it. While one context fills in a quarter, the others compute all logits.
   ============================================================================================= */

enum {
    BITNET__STRIP = 64,                /* rows of the copy that are bounded together */
    BITNET__MAX_COPY_DIM = 32768,      /* limits of the copy: see join_planes, ... */
    BITNET__MIN_COPY_DIM = 16,         /* ... and step_build_copy */
    BITNET__BOUND_STATES = 16,         /* hidden states per pass over the copy */
    BITNET__BOUND_DOTS = 2 * BITNET__BOUND_STATES * BITNET__STRIP  /* products of a call with one
                                          plane. The columns are u and v of each state; the fewer
                                          they are, the more strips a call has, since long runs of
                                          rows are read faster */
};

/* The head with 6 bits per weight, in two planes, drawn below. All contexts share it, and whoever
   needs it fills it in, share by share. Whoever finds it BUSY does not wait, but computes all
   logits. Here n_vocab is rounded up to whole strips, n_strips * BITNET__STRIP, and dim to a
   multiple of 128. */
enum { BITNET__COPY_NONE, BITNET__COPY_BUSY, BITNET__COPY_EMPTY, BITNET__COPY_READY };

struct bitnet__head_copy {
    bitnet__atomic state;              /* BITNET__COPY_*; EMPTY: there is memory */
    int32_t n_built;                   /* rows that are filled in */
    uint8_t *high;                     /* [n_vocab][dim / 2]  the plane of 4 bits */
    uint8_t *low;                      /* [n_vocab][dim / 4]  the plane of 2 bits */
    float *scale, *norm;               /* [n_vocab]  a / 2; upper bounds of |w|, ... */
    float *coarse, *fine;              /* ... of |e| with the high plane, and with both */
};

/* What the bounds of all logits need to know about one hidden state. */
typedef struct bitnet__bound {
    float b;
    float per_norm[2], per_residual[2];    /* [0]: with u alone, [1]: with u and v */
} bitnet__bound;

typedef struct bitnet__candidate {
    float logit;
    bitnet_token token;
} bitnet__candidate;

/* What a context needs for the head, in one allocation that begins with this struct. */
struct bitnet__head {
    float *logits;                     /* [n_logits][n_vocab] */
    int32_t n_ready;                   /* rows of logits that are computed */
    bitnet__candidate *candidates;     /* [n_vocab] */
    float *largest;                    /* [n_vocab / 16]  heap of logits or their lower bounds */
    uint32_t *mask;                    /* [n_vocab / 32, rounded up]  what mask_fn allows */
    int32_t n_allowed;                 /* bits in mask; -1: no mask, all are allowed */
    float *rewritten;                  /* [n_vocab]  what rewrite_fn makes of logits, and the
                                          weights of a draw */
    /* The bounds from the copy; low is 0 without one. */
    float *low, *high;                 /* [max_states][n_vocab]   bounds of the logits */
    float *max_low, *max_high;         /* [max_states][n_strips]  the largest in each strip */
    int32_t *dots;                     /* [n_threads][plane][BITNET__BOUND_DOTS]; in a plane, a
                                          call's products [column][strip][BITNET__STRIP] */
    int8_t *q;                         /* [2][n_bound][dim]       u, then v, of hidden states */
    bitnet__bound bound[BITNET__BOUND_STATES];
    int32_t sums[2 * BITNET__BOUND_STATES];    /* of q */
    int32_t n_strips, max_states;
    int32_t first, n_bound;            /* hidden rows [first, first + n_bound) have bounds ... */
    int32_t fine;                      /* ... from: 0: the high plane, 1: both */
    int32_t with_v;                    /* and from: 0: u alone, 1: u and v */
    int32_t n_strips_ahead;            /* strips of these bounds that slices have done, ... */
    int32_t n_rows_ahead;              /* ... and rows of the head, of all logits */
    int32_t n_fine, pause;             /* the next passes that read both at once; see refine */
    int32_t exact_logits;              /* of the last bitnet_sample */
    uint64_t bytes;                    /* that it read of the head and its copy */
};

static int bitnet__can_copy_head(const bitnet_model *m) {
    return m->head.data && !bitnet__has_groups(&m->ternary_head) &&
           m->dim >= BITNET__MIN_COPY_DIM && m->dim <= BITNET__MAX_COPY_DIM;
}

/* Divides the arena of the head's copy; returns its bytes, 0 if the model cannot have one. */
static uint64_t bitnet__head_copy_layout(const bitnet_model *m, bitnet__arena *a,
                                         struct bitnet__head_copy *t) {
    const uint64_t rows = (uint64_t)m->n_vocab, dim = (uint64_t)bitnet__padded_row(m->dim);
    const uint64_t n = (rows + BITNET__STRIP - 1) / BITNET__STRIP * BITNET__STRIP;
    if (!bitnet__can_copy_head(m)) return 0;
    t->high = (uint8_t *)bitnet__arena_take(a, rows * dim / 2, 1);
    t->low = (uint8_t *)bitnet__arena_take(a, rows * dim / 4, 1);
    t->scale = (float *)bitnet__arena_take(a, n, 4);
    t->norm = (float *)bitnet__arena_take(a, n, 4);
    t->coarse = (float *)bitnet__arena_take(a, n, 4);
    t->fine = (float *)bitnet__arena_take(a, n, 4);
    return a->used;
}

static struct bitnet__head_copy *bitnet__head_copy_create(bitnet_model *m) {
    struct bitnet__head_copy *t =
        (struct bitnet__head_copy *)bitnet__model_alloc(m, sizeof *t);
    if (t) memset(t, 0, sizeof *t);
    return t;
}

static uint64_t bitnet__head_copy_bytes(const bitnet_model *m, uint64_t *bytes_of_copy) {
    struct bitnet__head_copy unused;
    bitnet__arena a = {0, 0};
    *bytes_of_copy = bitnet__head_copy_layout(m, &a, &unused);
    return !m->copy || bitnet__load_acquire(&m->copy->state) == BITNET__COPY_NONE ? 0 :
           *bytes_of_copy;
}

static void bitnet__head_copy_free(const bitnet_model *m) {
    if (m->copy) bitnet__free(&m->params.allocator, m->copy->high);    /* the arena's first array */
}

/* Allocates the head's copy, unless that is done or another thread is about to. 0: no memory. */
static int bitnet__head_copy_alloc(const bitnet_model *m) {
    struct bitnet__head_copy *t = m->copy;
    struct bitnet__head_copy unused;
    bitnet__arena a = {0, 0};
    if (!bitnet__head_copy_layout(m, &a, &unused) ||
        !bitnet__swap_if(&t->state, BITNET__COPY_NONE, BITNET__COPY_BUSY)) return 1;
    if (bitnet__arena_alloc(&a, &m->params.allocator)) {
        bitnet__head_copy_layout(m, &a, t);
        bitnet__huge_memory(&m->params.allocator, a.base, (size_t)a.used);
    }
    bitnet__store_release(&t->state, a.base ? BITNET__COPY_EMPTY : BITNET__COPY_NONE);
    return a.base != 0;
}

/* Divides the arena of a context's head, whose first array is *t itself. */
static void bitnet__head_layout(const bitnet_model *m, const bitnet_ctx_params *p,
                                bitnet__arena *a, bitnet__head *t) {
    const uint64_t vocab = m->head.data ? (uint64_t)m->n_vocab : 0;
    const uint64_t strips = (vocab + BITNET__STRIP - 1) / BITNET__STRIP;
    const uint64_t n = strips * BITNET__STRIP, dim = (uint64_t)bitnet__padded_row(m->dim);
    const int32_t max_states = bitnet__min(p->n_logits, BITNET__BOUND_STATES);
    const uint64_t states = (uint64_t)max_states;
    (void)bitnet__arena_take(a, 1, sizeof *t);
    memset(t, 0, sizeof *t);
    t->n_allowed = -1;
    t->logits = (float *)bitnet__arena_take(a, (uint64_t)p->n_logits * vocab, 4);
    t->candidates = (bitnet__candidate *)bitnet__arena_take(a, vocab, sizeof *t->candidates);
    t->largest = (float *)bitnet__arena_take(a, vocab / 16, sizeof *t->largest);
    t->mask = (uint32_t *)bitnet__arena_take(a, (vocab + 31) / 32, 4);
    t->rewritten = (float *)bitnet__arena_take(a, vocab, 4);
    if (!bitnet__can_copy_head(m) || p->no_head_copy) return;
    t->n_strips = (int32_t)strips;
    t->max_states = max_states;
    t->low = (float *)bitnet__arena_take(a, states * n, 4);
    t->high = (float *)bitnet__arena_take(a, states * n, 4);
    t->max_low = (float *)bitnet__arena_take(a, states * strips, 4);
    t->max_high = (float *)bitnet__arena_take(a, states * strips, 4);
    t->dots = (int32_t *)bitnet__arena_take(a, (uint64_t)p->n_threads * 2,
                                            BITNET__BOUND_DOTS * 4);
    t->q = (int8_t *)bitnet__arena_take(a, states * 2 * dim, 1);
}

static uint64_t bitnet__head_bytes(const bitnet_model *m, const bitnet_ctx_params *p) {
    bitnet__arena a = {0, 0};
    bitnet__head measure;
    bitnet__head_layout(m, p, &a, &measure);
    return a.used;
}

/* Also allocates the model's copy, unless that is done. */
static bitnet_result bitnet__head_create(bitnet_ctx *c, bitnet_error *err) {
    bitnet__arena a = {0, 0};
    a.used = bitnet__head_bytes(c->m, &c->p);
    if (!bitnet__arena_alloc(&a, &c->m->params.allocator))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the logits of %d rows",
                            (int)c->p.n_logits);
    c->head = (bitnet__head *)(void *)a.base;
    bitnet__head_layout(c->m, &c->p, &a, c->head);
    if (c->head->dots)                 /* of rows that the last strip lacks */
        memset(c->head->dots, 0, (size_t)c->p.n_threads * 2 * BITNET__BOUND_DOTS * 4);
    if (c->p.no_head_copy || bitnet__head_copy_alloc(c->m)) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a copy of the output head "
                        "(no_head_copy does without)");
}

static void bitnet__head_forget(bitnet__head *t) {
    t->n_ready = t->n_bound = t->n_strips_ahead = t->n_rows_ahead = 0;
}

BITNET_API int32_t bitnet_ctx_exact_logits(const bitnet_ctx *c) {
    return c ? c->head->exact_logits : 0;
}
BITNET_API uint64_t bitnet_ctx_head_bytes(const bitnet_ctx *c) { return c ? c->head->bytes : 0; }

/* Products of cols hidden states x [cols][dim] with rows at w: rows as in the file or, for block
   types, F32. */
static void bitnet__dot_head(const bitnet_ctx *c, const uint8_t *w, int32_t rows, const float *x,
                             int32_t cols, float *out, size_t out_stride) {
    const bitnet__matrix *a = &c->m->head;
    bitnet__dotrows_of(c, a->type)(w, x, a->n_cols, rows, cols, out, out_stride);
}

/* Copies a row to w for bitnet__dot_head; blocks are unpacked to little-endian F32. Returns where
   the next row goes. */
static uint8_t *bitnet__copy_head_row(const bitnet_ctx *c, int32_t row, uint8_t *w) {
    const bitnet__matrix *a = &c->m->head;
    float *out = (float *)(void *)w;
    int32_t i;
    if (bitnet__is_float(a->type)) {
        memcpy(w, a->data + (size_t)row * a->row_bytes, a->row_bytes);
        return w + a->row_bytes;
    }
    bitnet__matrix_row(a, row, out);
    for (i = 0; i < a->n_cols; i++) {  /* no code at all on little-endian machines */
        const uint32_t u = bitnet__get_u32(w + 4 * i);
        memcpy(w + 4 * i, &u, 4);
    }
    return w + 4 * (size_t)a->n_cols;
}

/* A thread's room for four rows. */
static uint8_t *bitnet__row_buffer(const bitnet_ctx *c, int thread) {
    return (uint8_t *)(c->scratch + (size_t)thread * 4 * (size_t)c->m->dim);
}

/* Logits of rows [row, row + rows). Blocks are unpacked four rows at a time, which stay in the L1
   cache while every hidden state is multiplied with them. */
static void bitnet__head_rows(const bitnet_ctx *c, int32_t row, int32_t rows, const float *x,
                              int32_t cols, float *out, size_t out_stride, int thread) {
    const bitnet__matrix *a = &c->m->head;
    uint8_t *buffer = bitnet__row_buffer(c, thread), *w;
    int32_t i, j, count;
    if (bitnet__is_float(a->type)) {
        bitnet__dot_head(c, a->data + (size_t)row * a->row_bytes, rows, x, cols, out, out_stride);
        return;
    }
    for (i = 0; i < rows; i += count) {
        count = bitnet__min(4, rows - i);
        for (j = 0, w = buffer; j < count; j++) w = bitnet__copy_head_row(c, row + i + j, w);
        bitnet__dot_head(c, buffer, count, x, cols, out + i, out_stride);
    }
}

/* A ternary head takes its hidden states as int8, as a linear layer does. Nothing here can be
   cancelled. */
static void bitnet__step_quantize_hidden(const bitnet__step *s, int32_t from, int32_t to,
                                         int thread) {
    int32_t t;
    for (t = from; t < to; t++)
        bitnet__quantize_token(s, s->in + (size_t)t * (size_t)s->in_dim, t, &s->c->act[0], thread);
}

static void bitnet__step_ternary_head(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    const bitnet__linear *head = &s->c->m->ternary_head;
    bitnet__product x = {head, &s->c->act[0], 0, 0, 0, 0, 0, 0};
    x.row = bitnet__round_rows(s->c, from, head->n_out);
    x.n_rows = bitnet__round_rows(s->c, to, head->n_out) - x.row;
    x.n_tokens = s->n_tokens;
    (void)thread;
    if (x.n_rows > 0)
        bitnet__group_products(s->c, &x, 0, s->out + x.row, (size_t)head->n_out);
}

/* The logits of n rows of hidden states, at most n_batch. */
static void bitnet__ternary_logits(bitnet_ctx *c, int32_t first, int32_t n) {
    const int32_t dim = c->m->dim;
    bitnet__step s = bitnet__make_step(c, n);
    s.in = c->head_in + (size_t)first * (size_t)dim;
    s.in_dim = dim;
    s.blocks = c->m->ternary_head.blocks;
    s.out = c->head->logits + (size_t)first * (size_t)c->m->n_vocab;
    bitnet__run_step(&s, "quantize", n, 16 * (int64_t)dim, bitnet__step_quantize_hidden);
    bitnet__run_step(&s, "head", c->m->n_vocab, (int64_t)dim * n, bitnet__step_ternary_head);
}

/* Rows [from, to) of the head, counted from s->row on. */
static void bitnet__step_head(const bitnet__step *s, int32_t from, int32_t to, int thread) {
    bitnet_ctx *c = s->c;
    const size_t first = (size_t)c->head->n_ready, vocab = (size_t)c->m->n_vocab;
    const int32_t row = s->row + from;
    bitnet__head_rows(c, row, to - from, c->head_in + first * (size_t)c->m->dim, s->n_tokens,
                      c->head->logits + first * vocab + row, vocab, thread);
}

/* Multiplies n rows of the head, from `row` on, with all hidden states that have no logits yet. */
static void bitnet__multiply_head(bitnet_ctx *c, int32_t row, int32_t n) {
    bitnet__step s = bitnet__make_step(c, c->n_rows - c->head->n_ready);
    s.row = row;
    bitnet__run_step(&s, "head", n, 8 * (int64_t)c->m->dim * s.n_tokens, bitnet__step_head);
}

/* The number of a row, of which -1 is c->row; -1: there is no such row. */
static int32_t bitnet__find_row(const bitnet_ctx *c, int32_t i) {
    if (i == -1) i = c->row;
    return i >= 0 && i < c->n_rows && c->row_places[i].seq >= 0 ? i : -1;
}

/* Finds a row that is to be multiplied with the head. */
static bitnet_result bitnet__check_row(const bitnet_ctx *c, int32_t *i, bitnet_error *err) {
    const int32_t row = bitnet__find_row(c, *i);
    if (!c->m->head.data)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "this model turns texts into vectors "
                            "(bitnet_embed): it has no output head, so it writes no text");
    if (row < 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no logits of row %lld: nothing was "
                            "evaluated, its token was dropped, or n_logits did not keep it",
                            (long long)*i);
    *i = row;
    return BITNET_OK;
}

/* The logits of a row that is there. */
static const float *bitnet__logits(bitnet_ctx *c, int32_t i) {
    if (c->head->n_ready < c->n_rows)
        c->head->bytes += c->m->head.row_bytes * (uint64_t)c->m->n_vocab;
    while (bitnet__has_groups(&c->m->ternary_head) && c->head->n_ready < c->n_rows) {
        const int32_t n = bitnet__min(c->n_rows - c->head->n_ready, c->p.n_batch);
        bitnet__ternary_logits(c, c->head->n_ready, n);
        c->head->n_ready += n;
    }
    if (c->head->n_ready < c->n_rows) {
        bitnet__multiply_head(c, 0, c->m->n_vocab);
        c->head->n_ready = c->n_rows;
    }
    return c->head->logits + (size_t)i * (size_t)c->m->n_vocab;
}

/* A callback of bitnet_generate may ask for rows. */
static const float *bitnet__ask_row(bitnet_ctx *c, int32_t i, int hidden, bitnet_error *err) {
    const float *row = 0;
    const uintptr_t me = bitnet__this_thread();
    const int in_callback = c && bitnet__load_acquire(&c->owner) == me;
    if (in_callback) bitnet__end_callback(c, BITNET__BUSY);    /* step_fn may not call anything */
    else if (bitnet__acquire(c, err) != BITNET_OK) return 0;
    if (hidden && (i = bitnet__find_row(c, i)) >= 0) row = c->hidden + bitnet__row(i, c->m->dim);
    else if (hidden) bitnet__fail(err, BITNET_ERR_ARG, "there is no such row");
    else if (bitnet__check_row(c, &i, err) == BITNET_OK) row = bitnet__logits(c, i);
    bitnet__store_release(&c->owner, in_callback ? me : (uintptr_t)BITNET__FREE);
    return row;
}

BITNET_API const float *bitnet_logits(bitnet_ctx *c, int32_t i, bitnet_error *err) {
    return bitnet__ask_row(c, i, 0, err);
}

BITNET_API const float *bitnet_hidden(bitnet_ctx *c, int32_t i, bitnet_error *err) {
    return bitnet__ask_row(c, i, 1, err);
}

/* ---- the copy in two planes ----
   A row of the head is w = a h + e, with a scale a and a residual e. h comes from w rounded to 8
   bits, of which the copy keeps 6, in two planes; what is not read of them counts as the middle of
   its values:

       bits of the 8-bit integer + 128     7-4     3-2     1-0
                                           high    low     not kept

       coarse    h = 16 (high - 8) + 7.5
       fine      h = 16 (high - 8) + 4 (low - 1) + 5.5

   A hidden state is x = b (128 u + v) + f, with integers u from -127 to 127 and v from -64 to 63,
   and |f_i| <= 0.51 b. Then

       w.x = a b (128 h.u + h.v) + a h.f + e.x
           = a b 128 h.u + a h.(b v + f) + e.x

   The first part is computed in exact integers, of 2 h. By Cauchy-Schwarz, |a h.f| <= (|w| + |e|)
   |f| and |e.x| <= |e| |x|. Without v, b |v| + |f| takes the place of |f|. The logit itself is a
   float sum of n products and is off by at most (n / 16 + 8) 2^-24 |w| |x| (each lane adds n / 16
   products, the tree has 4 levels), if no sum overflows: see bound_chunk. The bounds are computed
   in floats, where each operation is off by at most 2^-24 of its result: less than 7 * 2^-24
   (|w| + |e|) b (128 |u| + |v|) for the first part; the rest is widened by 1e-6. A row with a NaN
   or an infinity gets no bounds and is always computed exactly.

   v is taken only if it has more than 1/64 of the norm of x, which needs elements far larger than
   the others; else the columns are half as many, and the bounds hardly wider.

   A pass over the copy, a strip of rows at a time, bounds the logits of all hidden states that wait
   for them. It reads the high plane. Where a few logits stand out, as those of trained models do,
   that leaves few rows; if it leaves many, a second pass reads both planes. A search then looks at
   each strip's largest bound first. */

/* A row of the head as floats; -0 may become +0. sumrows is faster than bitnet__matrix_row. */
static void bitnet__head_weights(const bitnet_ctx *c, int32_t r, float *w) {
    const bitnet__matrix *a = &c->m->head;
    const size_t n = (size_t)a->n_cols, at = (size_t)r * n;
    const float one = 1.0f;
    memset(w, 0, n * sizeof *w);
    if (a->type == BITNET_TENSOR_F16)
        c->k.sumrows_f16(a->data + at * 2, n, &one, 1, a->n_cols, 1, 1, w);
    else if (a->type == BITNET_TENSOR_F32)
        c->k.sumrows_f32(a->data + at * 4, n, &one, 1, a->n_cols, 1, 1, w);
    else bitnet__matrix_row(a, r, w);
}

/* Adds the squares of count weights w, and of w - a 2h, to lanes; inlined with a constant count,
   which compilers turn into SIMD. 2h is twice the upper bits of the 8-bit integer + 128 less 241 or
   253, which is added to w first. */
BITNET__INLINE void bitnet__add_squares(const float *w, const uint8_t *h, float a, int count,
                                        float *norm2, float *coarse2, float *fine2) {
    int j;
    for (j = 0; j < count; j++) {
        const float coarse = w[j] + 241.0f * a - 2.0f * a * (float)(h[j] & 0xf0);
        const float fine = w[j] + 253.0f * a - 2.0f * a * (float)(h[j] & 0xfc);
        norm2[j] += w[j] * w[j];
        coarse2[j] += coarse * coarse;
        fine2[j] += fine * fine;
    }
}

/* A norm from partial sums of squares: 1 % covers the rounding of the sums. */
static float bitnet__upper_norm(float *lanes) {
    return (float)bitnet__sqrt((double)bitnet__sum_lanes(lanes) * 1.01 + 1e-30);
}

/* Puts 128 8-bit integers + 128 into the two planes; see dotrows_u4 and I2_S. Arrays that
   cannot overlap let compilers use SIMD. */
static void bitnet__pack_planes(const uint8_t *block, uint8_t *high, uint8_t *low) {
    uint8_t h[128], upper[64], next[32];
    int j;
    memcpy(h, block, sizeof h);
    for (j = 0; j < 64; j++) upper[j] = (uint8_t)((h[j] & 0xf0) | h[64 + j] >> 4);
    for (j = 0; j < 32; j++)
        next[j] = (uint8_t)((h[j] << 4 & 0xc0) | (h[32 + j] << 2 & 0x30) | (h[64 + j] & 0x0c) |
                            (h[96 + j] >> 2 & 3));
    memcpy(high, upper, sizeof upper);
    memcpy(low, next, sizeof next);
}

/* Rows [from, to) of a share of the copy: planes, scale and norms. The row's 8-bit integers lie
   behind its floats in the row buffer, which has room for them from MIN_COPY_DIM on. */
static void bitnet__step_build_copy(const bitnet__step *step, int32_t from, int32_t to,
                                    int thread) {
    bitnet_ctx *c = step->c;
    struct bitnet__head_copy *t = c->m->copy;
    const int32_t n = c->m->dim, whole = n / BITNET__LANES * BITNET__LANES;
    const int32_t padded = bitnet__padded_row(n);
    const float root = (float)bitnet__sqrt((double)n);
    float *w = (float *)(void *)bitnet__row_buffer(c, thread);
    uint8_t *h = (uint8_t *)(w + n);
    int32_t r, i, sum;
    for (r = step->row + from; r < step->row + to; r++) {
        float norm2[BITNET__LANES] = {0}, coarse2[BITNET__LANES] = {0};
        float fine2[BITNET__LANES] = {0}, a, off;
        bitnet__head_weights(c, r, w);
        a = 0.5f / c->k.quantize(w, n, (int8_t *)h, &sum);
        memset(h + n, 0, (size_t)(padded - n));
        for (i = 0; i < padded; i++) h[i] ^= 128;
        for (i = 0; i < padded; i += 128) {
            const size_t at = (size_t)r * (size_t)padded + (size_t)i;
            bitnet__pack_planes(h + i, t->high + at / 2, t->low + at / 4);
        }
        for (i = 0; i < whole; i += BITNET__LANES)
            bitnet__add_squares(w + i, h + i, a, BITNET__LANES, norm2, coarse2, fine2);
        bitnet__add_squares(w + i, h + i, a, n - i, norm2, coarse2, fine2);
        /* The roundings of a difference: (253 + 507 + 504 + 16) 2^-24 a < 1e-4 a. */
        off = 1e-4f * a * root;
        t->scale[r] = a;
        t->norm[r] = bitnet__upper_norm(norm2);
        t->coarse[r] = bitnet__upper_norm(coarse2) + off;
        t->fine[r] = bitnet__upper_norm(fine2) + off;
    }
}

/* Is the copy filled in? Whoever needs it fills in the next share, of so many rows. */
static int bitnet__build_copy(bitnet_ctx *c, int32_t share) {
    struct bitnet__head_copy *t = c->m->copy;
    bitnet__step step = bitnet__make_step(c, 0);
    const int32_t rows = c->m->n_vocab;
    const size_t rest = ((size_t)c->head->n_strips * BITNET__STRIP - (size_t)rows) * sizeof(float);
    if (!bitnet__swap_if(&t->state, BITNET__COPY_EMPTY, BITNET__COPY_BUSY))
        return bitnet__load_acquire(&t->state) == BITNET__COPY_READY;
    step.row = t->n_built;
    step.n_rows = bitnet__min(share, rows - t->n_built);
    bitnet__run_step(&step, "head", step.n_rows, 64 * (int64_t)c->m->dim, bitnet__step_build_copy);
    t->n_built += step.n_rows;
    if (t->n_built < rows) {
        bitnet__store_release(&t->state, BITNET__COPY_EMPTY);
        return 0;
    }
    memset(t->scale + rows, 0, rest);
    memset(t->norm + rows, 0, rest);
    memset(t->coarse + rows, 0, rest);
    memset(t->fine + rows, 0, rest);
    bitnet__store_release(&t->state, BITNET__COPY_READY);
    return 1;
}

/* Twice the products of h with a column of q, whose sum is given, for the rows of a strip. low 0:
   coarse. Bound: |2 h| <= 255 and |q| <= 127, so they are at most 32385 n; 32 |high| <= 32512 n, 8
   |low| <= 2032 n and 15 |sum| <= 1905 n. All are under 2^31 for n <= 2^15. */
static void bitnet__join_planes(const int32_t *high, const int32_t *low, int32_t sum,
                                int32_t *out) {
    int i;
    for (i = 0; i < BITNET__STRIP && !low; i++) out[i] = 32 * high[i] + 15 * sum;
    for (i = 0; i < BITNET__STRIP && low; i++) out[i] = 32 * high[i] + 8 * low[i] + 11 * sum;
}

/* Bounds the logits of a strip for one hidden state, from twice the products of h with u and v; v
   0: with u alone. If an error is under 1e30, no sum of the logit overflows: its products add up to
   less than 2^24 / 8 times the error. Otherwise, or if it is NaN, there are no bounds. */
static void bitnet__bound_strip(const bitnet__head *t, const struct bitnet__head_copy *copy,
                                int32_t strip, int32_t state, const int32_t *u,
                                const int32_t *v) {
    static const int32_t none[BITNET__STRIP] = {0};
    const bitnet__bound *k = &t->bound[state];
    const float infinity = bitnet__float_from_bits(0x7f800000u);
    const float per_norm = k->per_norm[v != 0], per_residual = k->per_residual[v != 0];
    const size_t first = (size_t)strip * BITNET__STRIP;
    const size_t at = (size_t)state * (size_t)t->n_strips + (size_t)strip;
    const float *scale = copy->scale + first, *norm = copy->norm + first;
    const float *residual = (t->fine ? copy->fine : copy->coarse) + first, b = k->b;
    float low[BITNET__STRIP], high[BITNET__STRIP], max_low[BITNET__LANES], max_high[BITNET__LANES];
    int i, j;
    if (!v) v = none;
    for (i = 0; i < BITNET__STRIP; i++) {
        const float middle = scale[i] * b * (128.0f * (float)u[i] + (float)v[i]);
        const float err = norm[i] * per_norm + residual[i] * per_residual + 1e-30f;
        low[i] = err < 1e30f ? middle - err : -infinity;
        high[i] = err < 1e30f ? middle + err : infinity;
    }
    memcpy(max_low, low, sizeof max_low);
    memcpy(max_high, high, sizeof max_high);
    for (i = BITNET__LANES; i < BITNET__STRIP; i += BITNET__LANES)
        for (j = 0; j < BITNET__LANES; j++) {
            max_low[j] = low[i + j] > max_low[j] ? low[i + j] : max_low[j];
            max_high[j] = high[i + j] > max_high[j] ? high[i + j] : max_high[j];
        }
    for (j = 1; j < BITNET__LANES; j++) {
        max_low[0] = max_low[j] > max_low[0] ? max_low[j] : max_low[0];
        max_high[0] = max_high[j] > max_high[0] ? max_high[j] : max_high[0];
    }
    memcpy(t->low + at * BITNET__STRIP, low, sizeof low);
    memcpy(t->high + at * BITNET__STRIP, high, sizeof high);
    t->max_low[at] = max_low[0];
    t->max_high[at] = max_high[0];
}

/* Bounds a strip's logits for all hidden states, from its products with the planes. */
static void bitnet__bound_products(const bitnet__head *t, const struct bitnet__head_copy *copy,
                                   int32_t strip, const int32_t *high, const int32_t *low,
                                   size_t stride) {
    const int32_t cols = t->n_bound * (1 + t->with_v);
    int32_t u[2][BITNET__STRIP], i, j;
    for (i = 0; i < t->n_bound; i++) {
        for (j = i; j < cols; j += t->n_bound)
            bitnet__join_planes(high + (size_t)j * stride, low ? low + (size_t)j * stride : 0,
                                t->sums[j], u[j != i]);
        bitnet__bound_strip(t, copy, strip, i, u[0], t->with_v ? u[1] : 0);
    }
}

/* Strips [from, to), counted from step->row on, for all hidden states. The rows that the last strip
   lacks get bounds around 0, which at worst make a search look at the strip. */
static void bitnet__step_bound_strips(const bitnet__step *step, int32_t from, int32_t to,
                                      int thread) {
    bitnet_ctx *c = step->c;
    bitnet__head *t = c->head;
    const struct bitnet__head_copy *copy = c->m->copy;
    const int32_t n = bitnet__padded_row(c->m->dim);
    const int32_t cols = t->n_bound * (1 + t->with_v);
    const int32_t some = 2 * BITNET__BOUND_STATES / cols;      /* strips of a call */
    const size_t stride = (size_t)some * BITNET__STRIP;
    int32_t *high = t->dots + (size_t)thread * 2 * BITNET__BOUND_DOTS;
    int32_t *low = t->fine ? high + BITNET__BOUND_DOTS : 0, strip, count, i;
    bitnet__dots d;
    d.q = t->q;
    d.sums = t->sums;
    d.n = n;
    d.cols = cols;
    d.stride = stride;
    for (strip = step->row + from; strip < step->row + to; strip += count) {
        const size_t first = (size_t)strip * BITNET__STRIP, row = (size_t)n;
        count = bitnet__min(some, step->row + to - strip);
        d.rows = bitnet__min(count * BITNET__STRIP, c->m->n_vocab - (int32_t)first);
        d.w = copy->high + first * row / 2;
        d.out = high;
        c->k.dotrows_u4(&d);
        d.w = copy->low + first * row / 4;
        d.out = low;
        if (low) c->k.dotrows_i2s(&d);
        for (i = 0; i < count; i++)
            bitnet__bound_products(t, copy, strip + i, high + i * BITNET__STRIP,
                                   low ? low + i * BITNET__STRIP : 0, stride);
    }
}

/* 1 if all elements are numbers under 1e30, as the bounds assume. */
static int bitnet__is_moderate(const float *x, int32_t n) {
    int32_t i;
    for (i = 0; i < n; i++)
        if (!(x[i] > -1e30f && x[i] < 1e30f)) return 0;
    return 1;
}

/* Splits x into b (128 u + v) + f, as hidden state number `state` of t->n_bound. Returns 1 if its
   bounds need v. */
static int bitnet__split_hidden(bitnet_ctx *c, const float *x, int32_t state) {
    bitnet__head *t = c->head;
    bitnet__bound *k = &t->bound[state];
    const int32_t n = c->m->dim, padded = bitnet__padded_row(n);
    int32_t *sum_u = t->sums + state, *sum_v = sum_u + t->n_bound, i, j;
    int8_t *u = t->q + (size_t)state * (size_t)padded, *v = u + (size_t)t->n_bound * (size_t)padded;
    float top = 1e-20f, inverse;
    double b, sum = 0.0, norm_x, norm_f, norm_u, norm_v, u2 = 0.0, v2 = 0.0;
    for (i = 0; i < n; i++) {
        const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        top = magnitude > top ? magnitude : top;
        sum += (double)x[i] * (double)x[i];
    }
    inverse = 16256.0f / top;          /* 127 * 128; below 2e24, so finite */
    memset(u + n, 0, (size_t)(padded - n));
    memset(v + n, 0, (size_t)(padded - n));
    *sum_u = *sum_v = 0;
    for (i = 0; i < n; i++) {
        const double nearest = bitnet__round((double)(x[i] * inverse));
        const int32_t q = (int32_t)nearest;
        u[i] = (int8_t)((q + 64 + 128 * 128) / 128 - 128);  /* floor((q + 64) / 128) */
        v[i] = (int8_t)(q - 128 * u[i]);
        *sum_u += u[i];
        *sum_v += v[i];
        u2 += u[i] * u[i];
        v2 += v[i] * v[i];
    }
    b = (double)top / 16256.0;
    norm_x = bitnet__sqrt(sum + 1e-60);
    norm_f = 0.51 * b * bitnet__sqrt((double)n);
    norm_u = 128.0 * b * bitnet__sqrt(u2);
    norm_v = b * bitnet__sqrt(v2);
    k->b = (float)b;
    for (j = 0; j < 2; j++) {          /* with u alone; with u and v */
        const double off = norm_f + (j ? 0.0 : norm_v) +
                           8.0 / 16777216.0 * (norm_u + (j ? norm_v : 0.0));
        k->per_norm[j] = (float)((((double)n / 16.0 + 8.0) / 16777216.0 * norm_x + off) * 1.000002);
        k->per_residual[j] = (float)((norm_x + off) * 1.000002);
    }
    return norm_v > norm_x / 64.0;
}

/* What the bounds of a strip cost; see run_step. */
static int64_t bitnet__strip_work(const bitnet_ctx *c) {
    return BITNET__STRIP * (int64_t)c->m->dim * (4 + 2 * c->head->n_bound);
}

static void bitnet__bound_some(bitnet_ctx *c, int32_t strip, int32_t n) {
    bitnet__step step = bitnet__make_step(c, 0);
    step.row = strip;
    bitnet__run_step(&step, "head", n, bitnet__strip_work(c), bitnet__step_bound_strips);
}

/* Bounds the logits of t->n_bound hidden states: from the high plane or, if fine, from both. */
static void bitnet__bound_pass(bitnet_ctx *c, int fine) {
    bitnet__head *t = c->head;
    const uint64_t n = (uint64_t)bitnet__padded_row(c->m->dim);
    t->fine = fine;
    t->bytes += (uint64_t)c->m->n_vocab * (n / 2 + (fine ? n / 4 : 0) + 3 * sizeof(float));
    bitnet__bound_some(c, 0, t->n_strips);
}

/* A hidden state as the head reads it. */
static const float *bitnet__hidden_row(const bitnet_ctx *c, int32_t row) {
    return c->head_in + (size_t)row * (size_t)c->m->dim;
}

/* Prepares bounds of a row and of those behind it. Returns 1 if a pass shall read both planes. */
static int bitnet__begin_bounds(bitnet_ctx *c, int32_t row) {
    bitnet__head *t = c->head;
    const int32_t n = bitnet__min(c->n_rows - row, t->max_states), fine = t->n_fine > 0;
    int32_t i;
    t->first = row;
    for (t->n_bound = 0; t->n_bound < n; t->n_bound++)
        if (!bitnet__is_moderate(bitnet__hidden_row(c, row + t->n_bound), c->m->dim)) break;
    for (i = t->with_v = 0; i < t->n_bound; i++)
        t->with_v |= bitnet__split_hidden(c, bitnet__hidden_row(c, row + i), i);
    t->n_fine -= fine;
    return fine;
}

/* Bounds the logits of a row and of those behind it, unless that is done. Returns 0 if there is no
   copy, or if the row is not finite. A quarter of the copy is filled in at a time or, of a small
   head, all of it. So the first token of a large model does not wait for the whole copy; until that
   is complete, all logits are computed. */
static int bitnet__bound_logits(bitnet_ctx *c, int32_t row) {
    bitnet__head *t = c->head;
    int fine;
    if (!t->low) return 0;
    if (t->n_bound > 0 && row >= t->first && row < t->first + t->n_bound) return 1;
    if (!bitnet__build_copy(c, bitnet__max((c->m->n_vocab + 3) / 4, (1 << 24) / c->m->dim)))
        return 0;
    fine = bitnet__begin_bounds(c, row);
    if (t->n_bound > 0) bitnet__bound_pass(c, fine);
    return t->n_bound > 0;
}

/* A search in the bounds has found n rows. If these are so many that a pass over both planes is
   faster than computing them, makes that pass and returns 1. Back-off: a coarse pass that leaves
   over 1/16 of the rows was useless. After each useless one in a row, skip it for twice as many
   samples plus one: 1, 3, 7, at most 63. */
static int bitnet__refine_bounds(bitnet_ctx *c, int32_t n) {
    bitnet__head *t = c->head;
    if (t->fine) return 0;
    t->pause = n <= c->m->n_vocab / 16 ? 0 : bitnet__min(2 * t->pause + 1, 63);
    t->n_fine = t->pause;
    if (n <= c->m->n_vocab / 8) return 0;
    bitnet__bound_pass(c, 1);
    return 1;
}

/* Forces a token into the candidates of a row's search, without counting it among the k, by
   making its bounds infinite. They stay so, which is wider than needed, but correct. */
static void bitnet__require_token(bitnet_ctx *c, int32_t row, bitnet_token token) {
    bitnet__head *t = c->head;
    const float infinity = bitnet__float_from_bits(0x7f800000u);
    const size_t at = (size_t)(row - t->first) * (size_t)t->n_strips;
    t->low[at * BITNET__STRIP + (size_t)token] = -infinity;
    t->high[at * BITNET__STRIP + (size_t)token] = infinity;
    t->max_high[at + (size_t)(token / BITNET__STRIP)] = infinity;
}

/* Does the sampler's mask allow a token? */
static int bitnet__is_allowed(const bitnet_ctx *c, int32_t t) {
    return c->head->n_allowed < 0 || (c->head->mask[t / 32] >> t % 32 & 1);
}

/* Is one of BITNET__LANES bounds at least the threshold? */
static int bitnet__any_at_least(const float *bound, float threshold) {
    int i, any = 0;
    for (i = 0; i < BITNET__LANES; i++) any |= bound[i] >= threshold;
    return any;
}

static int bitnet__float_before(const void *of, const void *a, const void *b) {
    (void)of;
    return *(const float *)a < *(const float *)b;
}

/* Puts what tokens [from, to) have in x, if the mask allows them, into the heap of the k largest;
   returns its root, the least of the k. */
static float bitnet__keep_largest(bitnet_ctx *c, const float *x, int32_t from, int32_t to,
                                  int32_t k) {
    const bitnet__heap heap = {c->head->largest, sizeof *x, sizeof *x, bitnet__float_before, 0};
    int32_t end, t;
    for (; from < to; from = end) {
        end = bitnet__min(from + BITNET__LANES, to);
        if (end - from == BITNET__LANES && !bitnet__any_at_least(x + from, c->head->largest[0]))
            continue;
        for (t = from; t < end; t++)
            if (x[t] > c->head->largest[0] && bitnet__is_allowed(c, t))
                bitnet__heap_sink(&heap, (size_t)k, 0, &x[t]);
    }
    return c->head->largest[0];
}

/* Empties the heap of the k largest; returns its root. */
static float bitnet__keep_none(bitnet_ctx *c, int32_t k) {
    while (k > 0) c->head->largest[--k] = bitnet__float_from_bits(0xff800000u);
    return c->head->largest[0];
}

/* Asks for the rows of four candidates, which lie anywhere; else each would wait for memory. */
static void bitnet__fetch_rows(const bitnet_ctx *c, const bitnet__candidate *x, int32_t n) {
    const bitnet__matrix *a = &c->m->head;
    int32_t j;
    size_t at;
    for (j = 0; j < n && j < 4; j++)
        for (at = 0; at < a->row_bytes; at += 64)
            BITNET__PREFETCH(a->data + (size_t)x[j].token * a->row_bytes + at);
}

/* Fours of candidates, [from, to), get their exact logits. Four rows take hardly longer than one,
   whose sums are one chain of additions. */
static void bitnet__step_exact_logits(const bitnet__step *step, int32_t from, int32_t to,
                                    int thread) {
    bitnet_ctx *c = step->c;
    uint8_t *buffer = bitnet__row_buffer(c, thread), *w;
    int32_t i, j, n;
    for (i = from; i < to; i++) {
        bitnet__candidate *x = c->head->candidates + 4 * i;
        float logits[4];
        n = bitnet__min(4, step->n_rows - 4 * i);
        bitnet__fetch_rows(c, x + 4, step->n_rows - 4 * i - 4);
        for (j = 0, w = buffer; j < n; j++) w = bitnet__copy_head_row(c, x[j].token, w);
        bitnet__dot_head(c, buffer, n, bitnet__hidden_row(c, step->row), 1, logits, 4);
        for (j = 0; j < n; j++) x[j].logit = logits[j];
    }
}

/* Computes the logits of the first n candidates for a row. Returns n, or 0 if they are so many that
   the whole head is faster. */
static int32_t bitnet__exact_logits(bitnet_ctx *c, int32_t row, int32_t n) {
    bitnet__step step = bitnet__make_step(c, 0);
    step.row = row;
    step.n_rows = n;
    if (n > c->m->n_vocab / 4) return 0;
    c->head->bytes += (uint64_t)n * c->m->head.row_bytes;
    bitnet__run_step(&step, "head", (n + 3) / 4, 64 * (int64_t)c->m->dim,
                     bitnet__step_exact_logits);
    return n;
}

/* Writes the tokens whose bound, of a hidden state's, is at least the threshold to candidates, in
   id order, without those that the mask forbids; returns how many. */
static int32_t bitnet__list_bounds(bitnet_ctx *c, const float *bound, const float *max_bound,
                                   float threshold) {
    int32_t strip, end, r, found = 0;
    for (strip = 0; strip < c->head->n_strips; strip++) {
        if (max_bound[strip] < threshold) continue;
        end = bitnet__min((strip + 1) * BITNET__STRIP, c->m->n_vocab);
        for (r = strip * BITNET__STRIP; r < end; r++) {    /* no branch to mispredict */
            c->head->candidates[found].token = r;
            found += (bound[r] >= threshold) & bitnet__is_allowed(c, r);
        }
    }
    return found;
}

/* Writes the required tokens, and those that can be among the k largest logits of the others, to
   candidates, in id order, without those that the mask forbids; returns how many. The k-th largest
   logit is not below the k-th largest lower bound, nor below the least logit of the k rows with the
   largest lower bounds. The larger of both is the threshold: a row whose upper bound lies below it
   is not among the k largest. */
static int32_t bitnet__select_rows(bitnet_ctx *c, int32_t row, int32_t k) {
    const bitnet__head *t = c->head;
    const float infinity = bitnet__float_from_bits(0x7f800000u);
    const size_t at = (size_t)(row - t->first) * (size_t)t->n_strips;
    const float *low = t->low + at * BITNET__STRIP, *max_low = t->max_low + at;
    float threshold = bitnet__keep_none(c, k), least = infinity;
    int32_t strip, i, n;
    for (strip = 0; strip < t->n_strips; strip++)
        if (max_low[strip] > threshold)
            threshold = bitnet__keep_largest(
                c, low, strip * BITNET__STRIP,
                bitnet__min((strip + 1) * BITNET__STRIP, c->m->n_vocab), k);
    if (threshold > -infinity) {       /* k rows have bounds */
        n = bitnet__exact_logits(c, row, bitnet__list_bounds(c, low, max_low, threshold));
        for (i = 0; i < n; i++)
            least = c->head->candidates[i].logit < least ? c->head->candidates[i].logit : least;
        if (n > 0 && least > threshold) threshold = least;
    }
    return bitnet__list_bounds(c, t->high + at * BITNET__STRIP, t->max_high + at, threshold);
}

/* Writes the tokens with the k largest of all logits (and more if some are equal) to candidates, in
   id order, without those that the mask forbids; returns how many, or 0 if fewer than k are numbers
   above minus infinity. */
static int32_t bitnet__list_largest(bitnet_ctx *c, const float *logits, int32_t k) {
    const int32_t n = c->m->n_vocab;
    int32_t from, end, t, found = 0;
    float threshold;
    bitnet__keep_none(c, k);
    threshold = bitnet__keep_largest(c, logits, 0, n, k);
    if (!(threshold > bitnet__float_from_bits(0xff800000u))) return 0;
    for (from = 0; from < n; from = end) {
        end = bitnet__min(from + BITNET__LANES, n);
        if (end - from == BITNET__LANES && !bitnet__any_at_least(logits + from, threshold))
            continue;
        for (t = from; t < end; t++) {
            c->head->candidates[found].token = t;
            found += (logits[t] >= threshold) & bitnet__is_allowed(c, t);
        }
    }
    return found;
}

/* Writes all tokens that the mask allows to candidates, in id order; returns how many. */
static int32_t bitnet__list_allowed(bitnet_ctx *c) {
    int32_t t, n = 0;
    for (t = 0; t < c->m->n_vocab; t++) {
        c->head->candidates[n].token = t;
        n += bitnet__is_allowed(c, t);
    }
    return n;
}

/* ---- the head of a pass that may pause ----
   What samples read of the head is read before them, in slices of about a layer's work, and
   pause_fn is asked between two. The copy is filled in first. Samples then find what they need, and
   give the same tokens. What remains for them is short: a search in the bounds, exact logits of the
   rows that it finds, and rarely a second pass. */

/* How many items a slice has, of n that are left and cost so much each. */
static int32_t bitnet__slice(const bitnet_ctx *c, int32_t n, int64_t work) {
    const int64_t most = 256 * c->min_task / work;
    return most < 1 ? 1 : most < n ? (int32_t)most : n;
}

/* All logits, ahead. 0: paused. */
static int bitnet__logits_ahead(bitnet_ctx *c) {
    bitnet__head *t = c->head;
    const int32_t n = c->m->n_vocab;
    while (t->n_ready < c->n_rows) {
        const int32_t some = bitnet__slice(c, n - t->n_rows_ahead,
                                           8 * (int64_t)c->m->dim * (c->n_rows - t->n_ready));
        bitnet__multiply_head(c, t->n_rows_ahead, some);
        t->n_rows_ahead += some;
        if (t->n_rows_ahead == n) t->n_ready = c->n_rows;
        else if (bitnet__pauses(c)) return 0;
    }
    return 1;
}

/* The bounds of all rows, ahead. 0: paused. */
static int bitnet__bounds_ahead(bitnet_ctx *c) {
    bitnet__head *t = c->head;
    while (!bitnet__build_copy(c, bitnet__slice(c, c->m->n_vocab, 64 * (int64_t)c->m->dim))) {
        if (bitnet__load_acquire(&c->m->copy->state) != BITNET__COPY_EMPTY)
            return bitnet__logits_ahead(c);    /* another context fills it in */
        if (bitnet__pauses(c)) return 0;
    }
    if (t->n_bound == 0) t->fine = bitnet__begin_bounds(c, 0);
    while (t->n_bound > 0 && t->n_strips_ahead < t->n_strips) {
        const int32_t some = bitnet__slice(c, t->n_strips - t->n_strips_ahead,
                                           bitnet__strip_work(c));
        bitnet__bound_some(c, t->n_strips_ahead, some);
        t->n_strips_ahead += some;
        if (t->n_strips_ahead < t->n_strips && bitnet__pauses(c)) return 0;
    }
    return 1;
}
/* =============================================================================================
   @sampler  from logits to a token
   Everything is exact and can be replayed: ties go to the lower id, probabilities are sums of
   doubles in a fixed order, and the only state is the 64-bit number in the caller's struct.
   ============================================================================================= */

/* SplitMix64 (Steele, Lea, Flood 2014): a counter and a mix; a number in [0, 1). */
BITNET__APART double bitnet__random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

/* The order of candidates: the larger logit first, of equal ones the lower token. */
static int bitnet__candidate_before(const void *of, const void *a, const void *b) {
    const bitnet__candidate *x = (const bitnet__candidate *)a, *y = (const bitnet__candidate *)b;
    (void)of;
    return x->logit > y->logit || (x->logit == y->logit && x->token < y->token);
}

/* exp(x) for x <= 0, to 3e-7, so that a vocabulary takes under a millisecond; 0 below -64. */
static double bitnet__weight(double x) {
    return x > -64.0 ? (double)bitnet__expf((float)x) : 0.0;
}

/* ---- bias and penalty ---- */

typedef struct bitnet__tokens {
    const bitnet_token *p;
    int32_t n;
} bitnet__tokens;

static int bitnet__not_0(float x) { return x > 0.0f || x < 0.0f; }     /* NaN counts as 0 */

/* The last of the tokens before the sampled one, to which penalties apply. */
static bitnet__tokens bitnet__penalized(const bitnet_sampler *s, bitnet__tokens before) {
    const int repeat = s->repeat_penalty > 0.0f && s->repeat_penalty != 1.0f;
    int32_t window = s->repeat_window == 0 ? 64 : s->repeat_window;
    if (window < 0 || window > before.n) window = before.n;
    if (!repeat && !bitnet__not_0(s->frequency_penalty) && !bitnet__not_0(s->presence_penalty))
        window = 0;
    if (before.n > window) before.p += before.n - window;      /* p may be 0 */
    before.n = window;
    return before;
}

/* The tokens of a row's sequence up to the row's own. */
static bitnet__tokens bitnet__row_tokens(const bitnet_ctx *c, int32_t row) {
    bitnet__tokens before;
    before.p = c->seqs[c->row_places[row].seq].history;
    before.n = c->row_places[row].pos + 1;
    return before;
}

/* Finds a token among n candidates in id order; 0: it is not there. A complement, ~token, counts as
   the token. */
static bitnet__candidate *bitnet__find_candidate(bitnet__candidate *all, int32_t n,
                                                 bitnet_token t) {
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2, token = all[middle].token;
        if ((token < 0 ? ~token : token) < t) low = middle + 1;
        else high = middle;
    }
    return t >= 0 && low < n && (all[low].token == t || all[low].token == ~t) ? &all[low] : 0;
}

static void bitnet__penalize(bitnet_ctx *c, const bitnet_sampler *s, bitnet__tokens before,
                             int32_t n) {
    const bitnet__tokens recent = bitnet__penalized(s, before);
    int32_t i;
    for (i = 0; i < recent.n; i++) {
        bitnet__candidate *x = bitnet__find_candidate(c->head->candidates, n, recent.p[i]);
        if (!x) continue;
        if (x->token >= 0) {
            x->token = ~x->token;      /* marked: the following happens once */
            if (s->repeat_penalty > 0.0f)
                x->logit = x->logit > 0.0f ? x->logit / s->repeat_penalty
                                           : x->logit * s->repeat_penalty;
            if (bitnet__not_0(s->presence_penalty)) x->logit -= s->presence_penalty;
        }
        if (bitnet__not_0(s->frequency_penalty)) x->logit -= s->frequency_penalty;
    }
    for (i = 0; i < recent.n; i++) {
        bitnet__candidate *x = bitnet__find_candidate(c->head->candidates, n, recent.p[i]);
        if (x && x->token < 0) x->token = ~x->token;
    }
}

/* Applies bias and penalty to n candidates in id order; NaN becomes minus infinity. */
static void bitnet__adjust(bitnet_ctx *c, const bitnet_sampler *s, bitnet__tokens before,
                           int32_t n) {
    const float lowest = bitnet__float_from_bits(0xff800000u);
    bitnet__candidate *all = c->head->candidates;
    int32_t i;
    for (i = 0; i < s->n_bias; i++) {
        bitnet__candidate *x = s->bias[i].token < 0 ? 0 :
            bitnet__find_candidate(all, n, s->bias[i].token);
        if (x) x->logit += s->bias[i].bias;
    }
    bitnet__penalize(c, s, before, n);
    for (i = 0; i < n; i++)
        if (all[i].logit != all[i].logit) all[i].logit = lowest;
}

/* ---- drawing ---- */

/* Applies top-k, top-p and min-p; returns how many of the n candidates stay. These end up at the
   array's end, the best one last. Nothing beyond the cut is sorted. With top-k, top-p and min-p
   apply to the k best. */
static int32_t bitnet__truncate(bitnet__candidate *all, int32_t n, const bitnet_sampler *s) {
    const int32_t limit = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    const int32_t k = s->top_k > 0 ? limit : 0;
    const int by_p = s->top_p > 0.0f && s->top_p < 1.0f;
    const bitnet__heap heap = {all, sizeof *all, sizeof *all, bitnet__candidate_before, 0};
    bitnet__candidate x;
    double total = 0.0, sum = 0.0, top, w;
    int32_t kept, sorted, i;
    bitnet__heap_make(&heap, (size_t)n, &x);
    top = (double)all[0].logit;
    for (i = 0; k == 0 && by_p && i < n; i++) total += bitnet__weight((double)all[i].logit - top);
    for (sorted = 0; sorted < k; sorted++) {
        total += bitnet__weight((double)all[0].logit - top);
        bitnet__heap_pop(&heap, (size_t)(n - sorted), &x);
    }
    for (kept = 0; kept < limit; kept++) {
        if (kept >= sorted) bitnet__heap_pop(&heap, (size_t)(n - kept), &x);
        w = bitnet__weight((double)all[n - 1 - kept].logit - top);
        if (kept > 0 && ((s->min_p > 0.0f && w < (double)s->min_p) ||
                         (by_p && sum >= (double)s->top_p * total))) break;
        sum += w;
    }
    return kept;
}

/* Draws one of n candidates, which are read from first in strides, with the weights exp(logit /
   temperature), for which there is room. */
static bitnet_token bitnet__draw(const bitnet__candidate *first, int32_t n, int stride, double top,
                                 float *weights, bitnet_sampler *s) {
    double total = 0.0, at, t = (double)s->temperature;
    const bitnet__candidate *x = first;
    bitnet_token drawn = first->token;
    int32_t i;
    for (i = 0; i < n; i++, x += stride) {
        const double w = bitnet__weight(((double)x->logit - top) / t);
        weights[i] = (float)w;         /* exact: it comes from a float */
        total += w;
    }
    at = bitnet__random(&s->rng) * total;
    for (i = 0, x = first; i < n && at >= 0.0; i++, x += stride) {
        if (weights[i] > 0.0f) drawn = x->token;   /* rounding may leave a little at the end */
        at -= (double)weights[i];
    }
    return drawn;
}

/* Samples from the first n of c->head->candidates, which are in id order with exact logits. */
static bitnet_token bitnet__sample_candidates(bitnet_ctx *c, bitnet_sampler *s,
                                              bitnet__tokens before, int32_t n) {
    bitnet__candidate *all = c->head->candidates;
    const bitnet__candidate *best = all;
    int32_t i, kept;
    bitnet__adjust(c, s, before, n);
    for (i = 1; i < n; i++)
        if (all[i].logit > best->logit) best = &all[i];
    if (!(s->temperature > 0.0f) || !(best->logit > -3.4e38f && best->logit < 3.4e38f))
        return best->token;            /* beside an infinity, probabilities mean nothing */
    if (s->top_k <= 0 && !(s->top_p > 0.0f && s->top_p < 1.0f) && !(s->min_p > 0.0f))
        return bitnet__draw(all, n, 1, (double)best->logit, c->head->rewritten, s);
    kept = bitnet__truncate(all, n, s);
    return bitnet__draw(&all[n - 1], kept, -1, (double)all[n - 1].logit, c->head->rewritten, s);
}

/* How many of the largest logits a sample depends on; below 1: on all. */
static int32_t bitnet__top_k(const bitnet_sampler *s) {
    return s->temperature > 0.0f ? s->top_k : 1;
}

/* With at most so many candidates, bounds pay. */
static int32_t bitnet__few(const bitnet_ctx *c) { return c->m->n_vocab / 16; }

/* Adds a token to n candidates in id order, if it is not there and the mask allows it; returns how
   many there are then. */
static int32_t bitnet__add_candidate(bitnet_ctx *c, int32_t n, bitnet_token t) {
    bitnet__candidate *all = c->head->candidates;
    int32_t i = n;
    if (t < 0 || t >= c->m->n_vocab || !bitnet__is_allowed(c, t) ||
        bitnet__find_candidate(all, n, t)) return n;
    for (; i > 0 && all[i - 1].token > t; i--) all[i] = all[i - 1];
    all[i].token = t;
    return n + 1;
}

/* Fills the candidates with all tokens on which a sample can depend, and their logits. Returns how
   many. Bias and penalty may lift some tokens above the k best and take others from among them. */
static int32_t bitnet__fill_candidates(bitnet_ctx *c, const bitnet_sampler *s,
                                       bitnet__tokens before, const float *logits) {
    const bitnet__tokens recent = bitnet__penalized(s, before);
    const int64_t changed = (int64_t)s->n_bias + recent.n, k = bitnet__top_k(s);
    int32_t i, n = 0;
    if (k >= 1 && k + changed <= bitnet__few(c))
        n = bitnet__list_largest(c, logits, (int32_t)(k + changed));
    if (n == 0) n = bitnet__list_allowed(c);
    else {
        for (i = 0; i < s->n_bias; i++) n = bitnet__add_candidate(c, n, s->bias[i].token);
        for (i = 0; i < recent.n; i++) n = bitnet__add_candidate(c, n, recent.p[i]);
    }
    for (i = 0; i < n; i++) c->head->candidates[i].logit = logits[c->head->candidates[i].token];
    return n;
}

static bitnet_token bitnet__sample_logits(bitnet_ctx *c, bitnet_sampler *s, bitnet__tokens before,
                                          const float *logits) {
    if (s->rewrite_fn) {
        memcpy(c->head->rewritten, logits, (size_t)c->m->n_vocab * sizeof *logits);
        s->rewrite_fn(s->rewrite_ud, c->head->rewritten, c->m->n_vocab);
        logits = c->head->rewritten;
    }
    return bitnet__sample_candidates(c, s, before,
                                     bitnet__fill_candidates(c, s, before, logits));
}

/* ---- bitnet_sample ---- */

/* Asks mask_fn which tokens may follow. Returns how many; without mask_fn, -1: all. */
static int32_t bitnet__ask_mask(bitnet_ctx *c, const bitnet_sampler *s) {
    const int32_t n_words = (c->m->n_vocab + 31) / 32, rest = c->m->n_vocab % 32;
    uint32_t word;
    int32_t i;
    c->head->n_allowed = -1;
    if (!s->mask_fn) return -1;
    memset(c->head->mask, 0, (size_t)n_words * sizeof *c->head->mask);
    s->mask_fn(s->mask_ud, c->head->mask);
    if (rest) c->head->mask[n_words - 1] &= (1u << rest) - 1u;
    for (i = c->head->n_allowed = 0; i < n_words; i++)
        for (word = c->head->mask[i]; word; word &= word - 1) c->head->n_allowed++;
    return c->head->n_allowed;
}

/* Requires the tokens whose logits bias or penalty change: their bounds mean nothing. */
static void bitnet__require_changed(bitnet_ctx *c, int32_t row, const bitnet_sampler *s) {
    const bitnet__tokens recent = bitnet__penalized(s, bitnet__row_tokens(c, row));
    int32_t i;
    for (i = 0; i < s->n_bias; i++)
        if (s->bias[i].token >= 0 && s->bias[i].token < c->m->n_vocab)
            bitnet__require_token(c, row, s->bias[i].token);
    for (i = 0; i < recent.n; i++) bitnet__require_token(c, row, recent.p[i]);
}

/* Fills the candidates with all on which this sample can depend, with exact logits. Returns how
   many; 0: use all logits, because they are computed already, rewrite_fn wants them, the candidates
   are too many, or the head has scale groups: its rows are not read one by one. */
static int32_t bitnet__top_candidates(bitnet_ctx *c, int32_t row, const bitnet_sampler *s) {
    const int32_t k = bitnet__top_k(s);
    int32_t n;
    if (c->head->n_ready >= c->n_rows || s->rewrite_fn || c->m->ternary_head.group) return 0;
    if (c->head->n_allowed >= 0 && c->head->n_allowed <= bitnet__few(c))
        return bitnet__exact_logits(c, row, bitnet__list_allowed(c));
    if (k < 1 || k > bitnet__few(c) || !bitnet__bound_logits(c, row)) return 0;
    do {
        bitnet__require_changed(c, row, s);
        n = bitnet__select_rows(c, row, k);
    } while (bitnet__refine_bounds(c, n));
    return bitnet__exact_logits(c, row, n);
}

static bitnet_result bitnet__check_sampler(const bitnet_sampler *s, bitnet_error *err) {
    if (s->n_bias < 0 || (s->n_bias > 0 && !s->bias))
        return bitnet__fail(err, BITNET_ERR_ARG, "the sampler's n_bias is %lld%s",
                            (long long)s->n_bias, s->bias ? "" : ", and bias is NULL");
    return bitnet__check_reserved(s->reserved, 4, "bitnet_sampler", err);
}

/* Reads what a sample with s needs. 0: paused. A ternary head is not read ahead, nor for a mask_fn,
   which may allow few tokens. */
static int bitnet__read_ahead(bitnet_ctx *c, const bitnet_sampler *s) {
    const int32_t k = bitnet__top_k(s);
    if (c->m->ternary_head.group || s->mask_fn || c->head->n_ready >= c->n_rows) return 1;
    if (!c->head->low || s->rewrite_fn || k < 1 || k > bitnet__few(c))
        return bitnet__logits_ahead(c);
    return c->n_rows > c->head->max_states || bitnet__bounds_ahead(c);
}

/* The end of sampling: t, or why there is none. */
static bitnet_token bitnet__chosen(const bitnet_sampler *s, bitnet_token t) {
    if (s->chosen_fn) s->chosen_fn(s->chosen_ud, t);
    return t;
}

static bitnet_token bitnet__fail_mask(bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_NOT_FOUND, "the sampler's mask_fn allows no token");
}

static bitnet_token bitnet__sample(bitnet_ctx *c, int32_t row, bitnet_sampler *s,
                                   bitnet_error *err) {
    bitnet__tokens before;
    bitnet_result r;
    int32_t n;
    if ((r = bitnet__check_sampler(s, err)) || (r = bitnet__check_row(c, &row, err))) return r;
    if (bitnet__ask_mask(c, s) == 0) return bitnet__fail_mask(err);
    c->head->bytes = 0;
    n = bitnet__top_candidates(c, row, s);
    c->head->exact_logits = n > 0 ? n : c->m->n_vocab;
    before = bitnet__row_tokens(c, row);
    return bitnet__chosen(s, n > 0 ? bitnet__sample_candidates(c, s, before, n) :
                             bitnet__sample_logits(c, s, before, bitnet__logits(c, row)));
}

BITNET_API bitnet_token bitnet_sample(bitnet_ctx *c, int32_t i, bitnet_sampler *s,
                                      bitnet_error *err) {
    bitnet_sampler greedy;
    bitnet_token t = bitnet__acquire(c, err);
    if (t != BITNET_OK) return t;
    memset(&greedy, 0, sizeof greedy);
    t = bitnet__sample(c, i, s ? s : &greedy, err);
    bitnet__release(c);
    return t;
}

static int bitnet__candidate_after(const void *of, const void *a, const void *b) {
    return bitnet__candidate_before(of, b, a);
}

/* Puts the n best of all candidates first, in order. A heap holds them; its root is the worst. */
static void bitnet__best_candidates(bitnet__candidate *all, int32_t n_all, int32_t n) {
    const bitnet__heap heap = {all, sizeof *all, sizeof *all, bitnet__candidate_after, 0};
    bitnet__candidate x;
    int32_t i;
    bitnet__heap_make(&heap, (size_t)n, &x);
    for (i = n; i < n_all; i++)
        if (bitnet__candidate_before(0, &all[i], &all[0]))
            bitnet__heap_sink(&heap, (size_t)n, 0, &all[i]);
    for (i = n; i > 1; i--) bitnet__heap_pop(&heap, (size_t)i, &x);
}

static bitnet_result bitnet__logprobs(bitnet_ctx *c, int32_t i, bitnet_logprob *out, int32_t n,
                                      bitnet_error *err) {
    bitnet__candidate *all = c->head->candidates;
    bitnet_result r = bitnet__check_row(c, &i, err);
    const float *logits;
    double sum = 0.0, top;
    int32_t k;
    if (r == BITNET_OK) r = bitnet__check_range("n", n, c->m->n_vocab, err);
    if (r == BITNET_OK && !out) r = bitnet__fail(err, BITNET_ERR_ARG, "out is 0");
    if (r != BITNET_OK) return r;
    logits = bitnet__logits(c, i);
    for (k = 0; k < c->m->n_vocab; k++) {
        const int is_nan = logits[k] != logits[k];
        all[k].token = k;
        all[k].logit = is_nan ? bitnet__float_from_bits(0xff800000u) : logits[k];
    }
    bitnet__best_candidates(all, c->m->n_vocab, n);
    top = (double)all[0].logit;
    for (k = 0; k < c->m->n_vocab; k++) sum += bitnet__weight((double)logits[k] - top);
    for (k = 0; k < n; k++) {
        out[k].token = all[k].token;
        out[k].logprob = (float)((double)all[k].logit - top - bitnet__log(sum));
    }
    return BITNET_OK;
}

BITNET_API bitnet_result bitnet_logprobs(bitnet_ctx *c, int32_t i, bitnet_logprob *out, int32_t n,
                                         bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__logprobs(c, i, out, n, err));
}

BITNET_API bitnet_token bitnet_sample_logits(bitnet_ctx *c, const float *logits,
                                             const bitnet_token *tokens, int32_t n_tokens,
                                             bitnet_sampler *s, bitnet_error *err) {
    bitnet_sampler greedy;
    bitnet__tokens before;
    bitnet_token t;
    memset(&greedy, 0, sizeof greedy);
    if (!s) s = &greedy;
    before.p = tokens;
    before.n = n_tokens;
    if (!logits || n_tokens < 0 || (!tokens && n_tokens > 0))
        return bitnet__fail(err, BITNET_ERR_ARG, "there are no %s", logits ? "tokens" : "logits");
    if ((t = bitnet__check_sampler(s, err)) || (t = bitnet__acquire(c, err))) return t;
    t = bitnet__ask_mask(c, s) == 0 ? bitnet__fail_mask(err) :
        bitnet__chosen(s, bitnet__sample_logits(c, s, before, logits));
    bitnet__release(c);
    return t;
}

/* =============================================================================================
   @generate  the loop around evaluating and sampling
   Text is passed on as soon as it is certain: whole code points, and nothing that could still
   become part of a stop string. A call allocates, and frees before it returns, a buffer for the
   text that it holds back, usually a few hundred bytes, and for stop strings up to 9 bytes per byte
   and 32 per string.

   Prompt lookup (speculative decoding) finds the latest earlier place in the context with the same
   last three (or two) tokens, drafts up to N of the tokens that followed there, and evaluates them
   together with the sampled token in one pass over the weights. Then it samples row by row until a
   sampled token differs from the draft. N is 1 to 64. n_logits of the context must be at least
   N + 1 (or n_ctx if that is less); of several generations in one pass each needs N + 1 rows, or it
   leaves the drafts out. Drafts get shorter after a miss, so text that does not repeat costs almost
   nothing. With recurrent layers there are none: a wrong draft would change their state, which
   cannot be cut back.

   A loop over several generations, each begun by bitnet_gen_begin:

       static bitnet_result write_all(bitnet_gen **gens, int n, bitnet_error *err) {
           bitnet_piece piece;
           int i, open = n;
           while (open > 0) {
               bitnet_result r = bitnet_gen_next(gens, n, err);
               if (r != BITNET_OK) return r;
               for (i = open = 0; i < n; i++) {
                   bitnet_gen_piece(gens[i], &piece);
                   printf("%d: %.*s\n", i, (int)piece.text.size, piece.text.data);
                   if (!piece.ended) open++;
               }
           }
           return BITNET_OK;  // then bitnet_gen_end for each
       }
   ============================================================================================= */

/* ---- stop strings ----
   Each is searched for as Knuth, Morris and Pratt do: its state is how many of its bytes the text
   ends with, at most, and its links say which states are left when the next byte is another. So no
   text is read again, and a byte of it costs a few comparisons per string, however long that is. */

typedef struct bitnet__stop_search {
    bitnet_text text;
    size_t state;
    size_t *link;                      /* [text.size]  from state i + 1 to the next lower one */
} bitnet__stop_search;

/* The state that follows a state below text.size. */
static size_t bitnet__stop_advance(const bitnet__stop_search *s, size_t state, char byte) {
    while (state > 0 && s->text.data[state] != byte) state = s->link[state - 1];
    return state + (s->text.data[state] == byte);
}

/* ---- generated text ---- */

struct bitnet_gen {
    bitnet_ctx *c;
    bitnet__seq *q;
    bitnet_generate_params p;          /* its sampler and bias are those below */
    bitnet_sampler sampler;
    bitnet_logit_bias *bias;           /* [sampler.n_bias] */
    int32_t n_prompt, n_read;          /* tokens of the prompt, and how many are evaluated */
    int32_t start;                     /* n_past before the prompt */
    bitnet_token pending_at_start;     /* pending before the prompt */
    int32_t row;                       /* of the logits for the next token */
    int32_t n_hidden;                  /* evaluated draft tokens behind q->n_past */
    int32_t max_draft, n_draft;        /* length limit of the next draft, length of the last */
    int32_t is_queued;                 /* 1: its pass has begun; still 1 in the next: it was lost */
    int32_t n_new;                     /* tokens generated so far */
    bitnet_token end;                  /* ends a reply in the caller's chat template, or -1 */
    int32_t ended, cancelled;          /* cancelled: by its progress_fn or cancel_fn */
    int32_t is_listed;                 /* 1: bitnet_gen_next has met it in its list */
    bitnet_stop why;
    bitnet_detok detok;
    bitnet__stop_search *stops;        /* [n_stop_strings]  their texts are in stop_bytes */
    char *stop_bytes;
    bitnet_token *tokens;              /* [1 + lookup]  of the last pass */
    int32_t n_tokens;
    char *text;                        /* of the last pass, then text that is held back */
    size_t n_out, n_text, cap, begun;  /* n_out: bytes that are passed on; begun: bytes at the
                                          end that may become a stop string */
};

/* Divides the memory of a generation. */
static void bitnet__gen_layout(bitnet_gen *g, bitnet__arena *a, uint64_t stop_bytes,
                               size_t **links) {
    g->text = (char *)bitnet__arena_take(a, g->cap, 1);
    g->tokens = (bitnet_token *)bitnet__arena_take(a, 1 + (uint64_t)g->p.lookup, sizeof *g->tokens);
    g->bias = (bitnet_logit_bias *)bitnet__arena_take(a, (uint64_t)g->sampler.n_bias,
                                                      sizeof *g->bias);
    g->stops = (bitnet__stop_search *)bitnet__arena_take(a, (uint64_t)g->p.n_stop_strings,
                                                         sizeof *g->stops);
    g->stop_bytes = (char *)bitnet__arena_take(a, stop_bytes, 1);
    *links = (size_t *)bitnet__arena_take(a, stop_bytes, sizeof **links);
}

static void bitnet__prepare_stops(bitnet_gen *g, size_t *link) {
    char *bytes = g->stop_bytes;
    size_t i, k;
    for (i = 0; i < (size_t)g->p.n_stop_strings; i++) {
        bitnet__stop_search *s = &g->stops[i];
        s->text.size = g->p.stop_strings[i].size;
        s->text.data = bytes;
        memcpy(bytes, g->p.stop_strings[i].data, s->text.size);
        bytes += s->text.size;
        s->state = link[0] = 0;
        s->link = link;
        link += s->text.size;
        for (k = 1; k < s->text.size; k++)
            s->link[k] = bitnet__stop_advance(s, s->link[k - 1], s->text.data[k]);
    }
}

/* Allocates what the text, the bias and the stop strings need; bitnet__gen_free frees it. */
static bitnet_result bitnet__gen_alloc(bitnet_gen *g, bitnet_ctx *c,
                                       const bitnet_generate_params *p, bitnet_error *err) {
    bitnet__arena a = {0, 0};
    size_t longest = 0, *links = 0;
    uint64_t total = 0, cap;
    int32_t i;
    memset(g, 0, sizeof *g);
    g->c = c;
    g->q = &c->seqs[p->seq];
    g->p = *p;
    if (p->sampler) g->sampler = *p->sampler;
    g->max_draft = p->lookup;
    for (i = 0; i < p->n_stop_strings; i++) {
        total += p->stop_strings[i].size;
        if (p->stop_strings[i].size > longest) longest = p->stop_strings[i].size;
    }
    cap = (2 + (uint64_t)p->lookup) * (3 + 3 * (uint64_t)c->m->vocab.longest_token) + longest;
    if (cap > SIZE_MAX / 4)            /* a hostile file's token, in 32 bits */
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %llu bytes of generated text",
                            (unsigned long long)cap);
    g->cap = (size_t)cap;
    bitnet__gen_layout(g, &a, total, &links);
    if (!bitnet__arena_alloc(&a, &c->m->params.allocator))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for %llu bytes of generated text, "
                            "bias and stop strings", (unsigned long long)a.used);
    bitnet__gen_layout(g, &a, total, &links);
    bitnet__prepare_stops(g, links);
    if (g->sampler.n_bias > 0)
        memcpy(g->bias, g->sampler.bias, (size_t)g->sampler.n_bias * sizeof *g->bias);
    g->sampler.bias = g->bias;
    return BITNET_OK;
}

static void bitnet__gen_free(bitnet_gen *g) {
    bitnet__free(&g->c->m->params.allocator, g->text);     /* the arena's first array */
}

/* Searches the held text from a byte on for ends of stop strings. Returns where the first of these
   stop strings begins; -1: there is none, and begun is set. */
static int64_t bitnet__find_stop(bitnet_gen *g, size_t from) {
    size_t first = SIZE_MAX, i, at;
    g->begun = 0;
    for (i = 0; i < (size_t)g->p.n_stop_strings; i++) {
        bitnet__stop_search *s = &g->stops[i];
        for (at = from; at < g->n_text && s->state < s->text.size; at++)
            s->state = bitnet__stop_advance(s, s->state, g->text[at]);
        if (s->state == s->text.size && at - s->text.size < first) first = at - s->text.size;
        if (s->state > g->begun) g->begun = s->state;
    }
    return first == SIZE_MAX ? -1 : (int64_t)first;
}

/* Gives text_fn the held text up to byte number `to`. Nonzero: it asks to stop. */
static int bitnet__pass_on(bitnet_gen *g, size_t to, bitnet_token t) {
    const size_t from = g->n_out;
    int stop = 0;
    g->n_out = to;
    if (g->p.text_fn) {
        const uintptr_t owner = bitnet__begin_callback(g->c);
        stop = g->p.text_fn(g->p.text_ud, g->text + from, to - from, t);
        bitnet__end_callback(g->c, owner);
    }
    if (stop) g->why = BITNET_STOP_CALLBACK;
    return stop;
}

/* Adds the text of a token (-1: the end) and passes on what is certain. Nonzero: stop. */
static int bitnet__push_token(bitnet_gen *g, bitnet_token t) {
    const size_t before = g->n_text;
    int64_t at;
    int n = bitnet_detok_push(g->c->m, &g->detok, t, g->text + before, g->cap - before);
    g->n_text += (size_t)n;            /* never negative: cap leaves room for a pass's tokens */
    at = bitnet__find_stop(g, before);
    if (at >= 0) {
        g->n_text = (size_t)at;
        if (!bitnet__pass_on(g, (size_t)at, t)) g->why = BITNET_STOP_STRING;
        return 1;
    }
    return bitnet__pass_on(g, t == -1 ? g->n_text : g->n_text - g->begun, t);
}

/* Passes on what is still held back. */
static void bitnet__flush_text(bitnet_gen *g) {
    if (g->n_text > g->n_out || g->detok.n_pending > 0) bitnet__push_token(g, -1);
}

/* ---- prompt lookup ----
   Speculative decoding without a second model: a draft, copied from the text so far, is evaluated
   together with the sampled token. It is then hidden: n_past is as if there were no draft, n_hidden
   counts it. If the next sampled token is the draft's first, that one is evaluated already and
   becomes visible; if not, the draft is dropped. So the sampler, text_fn and everyone else see the
   sequence as it would be without drafts. */

enum { BITNET__MAX_LOOKUP = 64 };

/* Queues the pending token and a draft of up to `most` tokens: those that followed the latest place
   that ends with the same three tokens, or else two. Returns the draft's length. The copy may run
   into itself, as in a loop. */
static int32_t bitnet__queue_draft(const bitnet__seq *q, int32_t most) {
    bitnet_token *h = q->history;
    int32_t n = q->n_past, found = 0, at, i;
    h[n] = q->pending;
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

/* If the pending token equals the draft's next token, it is already evaluated: accepts it and
   returns 1. */
static int bitnet__accept_draft(bitnet_gen *g) {
    bitnet__seq *q = g->q;
    if (g->n_hidden == 0 || q->history[q->n_past] != q->pending) return 0;
    g->n_hidden--;
    g->row++;
    q->n_past++;
    q->pending = -1;
    q->figures.accepted++;
    return 1;
}

/* The length limit of a new draft: the accepted length plus 1, or twice the length if all was
   accepted. */
static int32_t bitnet__draft_limit(bitnet_gen *g) {
    int32_t most;
    if (g->n_draft > 0)
        g->max_draft = g->n_hidden > 0 ? g->n_draft - g->n_hidden + 1 : 2 * g->n_draft;
    g->n_hidden = g->n_draft = 0;
    g->max_draft = bitnet__min(g->max_draft, g->p.lookup);
    most = bitnet__min(g->max_draft, g->c->p.n_ctx - g->q->n_past - 1);
    return g->p.max_tokens > 0 ? bitnet__min(most, g->p.max_tokens - g->n_new - 1) : most;
}

/* ---- a pass of several generations ----
   Each reads a chunk of its prompt, or evaluates its pending token and a draft. */

/* Queues what a generation evaluates next. Returns the length of its draft. */
static int32_t bitnet__gen_queue(bitnet_gen *g, int32_t chunk, int drafts, bitnet_input *in) {
    const int32_t left = g->n_prompt - g->n_read, behind = bitnet__behind(g->c, g->q);
    if (g->p.n_batch > 0) chunk = g->p.n_batch;
    if (g->is_queued) g->n_draft = 0;
    g->is_queued = 1;
    in->seq = g->p.seq;
    g->q->n_again = bitnet__min(behind, chunk);
    bitnet__queue_prompt(g->q, g->start, left > 0 ? g->n_prompt : 0);
    g->q->is_prompt &= g->n_read == 0;
    if (left > 0 || behind >= chunk) {
        g->q->n_queued = bitnet__min(left, chunk - g->q->n_again);
        in->n_logits = left > 0 && g->q->n_queued == left;
        g->n_draft = 0;
        return 0;
    }
    drafts = drafts && g->c->m->n_state == 0;  /* else a wrong one would cost reading again */
    g->n_draft = bitnet__queue_draft(g->q, drafts ? bitnet__draft_limit(g) : 0);
    g->q->n_queued = in->n_logits = 1 + g->n_draft;
    return g->n_draft;
}

/* Queues the tokens of the next pass. Returns how many generations take part, and the length of all
   drafts. */
static int32_t bitnet__queue_pass(bitnet_ctx *c, bitnet_gen *const *gens, int32_t n,
                                  int with_drafts, int32_t *drafts) {
    int32_t chunk = c->p.n_batch, open = 0, active = 0, i;
    for (i = 0; i < n; i++) open += !gens[i]->ended;
    if (open > 1) chunk = bitnet__min(chunk, BITNET__PROMPT_CHUNK);
    for (*drafts = i = 0; i < n; i++) {
        if (gens[i]->ended) continue;
        *drafts += bitnet__gen_queue(gens[i], chunk, with_drafts, &c->inputs[active++]);
    }
    return active;
}

/* Did nobody allow a token? The prompt's logits remain. */
static void bitnet__gen_masked(bitnet_gen *g) {
    g->ended = 1;
    g->why = BITNET_STOP_MASK;
    bitnet__flush_text(g);
}

static void bitnet__gen_sample(bitnet_gen *g) {
    bitnet_ctx *c = g->c;
    do {
        const bitnet_token t = bitnet__sample(c, c->row = g->row, &g->sampler, 0);
        const int ended = !g->p.ignore_end &&
                          (bitnet_token_is_end(c->m, t) || (t >= 0 && t == g->end));
        if (t < 0) {
            bitnet__gen_masked(g);
            return;
        }
        g->q->pending = g->tokens[g->n_tokens++] = t;
        g->q->figures.n_written = ++g->n_new;
        g->ended = bitnet__push_token(g, t);
        if (g->ended) return;
        if (ended || g->n_new == g->p.max_tokens || g->q->n_past == c->p.n_ctx) {
            g->ended = 1;
            g->why = ended ? BITNET_STOP_END : BITNET_STOP_LENGTH;
            bitnet__flush_text(g);
            return;
        }
    } while (bitnet__accept_draft(g));
}

/* After a pass, which took ns: counts the chunk, or hides the draft; then samples if there are
   logits. */
static void bitnet__gen_advance(bitnet_gen *g, const bitnet_input *in, uint64_t ns) {
    bitnet_ctx *c = g->c;
    bitnet_figures *f = &g->q->figures;
    g->row = in->row;
    g->is_queued = 0;
    f->n_passes++;
    if (g->n_read < g->n_prompt) {
        f->read_ns += ns;
        f->n_read = g->n_read = g->q->n_past - g->start;
        c->row = in->n_logits ? g->row : -1;
        if (bitnet__report_progress(c, g->p.progress_fn, g->p.progress_ud, g->n_read,
                                    g->n_prompt)) {
            g->ended = g->cancelled = 1;
            return;
        }
        if (g->n_read < g->n_prompt) return;
    } else {
        f->write_ns += ns;
        if (in->n_logits == 0) return;         /* it has only read again */
    }
    g->n_hidden = g->n_draft;
    g->q->n_past -= g->n_draft;
    f->drafts += g->n_draft > 0;
    f->drafted += g->n_draft;
    bitnet__gen_sample(g);
    bitnet__seq_cut(c, g->q, bitnet__pages_for(g->c, g->q->n_past));  /* a wrong draft has none */
}

/* Asks the cancel_fn of the generations of a pass. */
static int bitnet__ask_gens(const bitnet_ctx *c) {
    int32_t i;
    for (i = 0; i < c->n_gens; i++) {
        bitnet_gen *g = c->gens[i];
        if (g->ended || !g->p.cancel_fn || !g->p.cancel_fn(g->p.cancel_ud)) continue;
        g->ended = g->cancelled = 1;
        return 1;
    }
    return 0;
}

/* Reads the head for the samples of a pass, if it may pause. 0: paused. */
static int bitnet__gens_read_ahead(bitnet_ctx *c, bitnet_gen *const *gens, int32_t n) {
    int32_t i, k = 0;
    for (i = 0; i < n; i++) {
        if (gens[i]->ended) continue;
        if (c->inputs[k++].n_logits > 0 && !bitnet__read_ahead(c, &gens[i]->sampler)) return 0;
    }
    return 1;
}

/* Evaluates what is queued for the generations, and asks them meanwhile. */
static bitnet_result bitnet__gen_eval(bitnet_ctx *c, bitnet_gen *const *gens, int32_t n,
                                      int32_t active, bitnet_error *err) {
    const int in_head = c->pass.n_inputs > 0 && c->pass.done == c->pass.total;
    bitnet_result r;
    c->asks = bitnet__ask_gens;
    c->gens = gens;
    c->n_gens = n;
    r = bitnet__eval_queued(c, c->inputs, active, err);
    c->asks = 0;
    c->gens = 0;
    if (r == BITNET_OK && c->pass.n_inputs == 0 && c->n_rows > 0 && c->may_pause &&
        c->p.hooks.pause_fn &&
        ((!in_head && bitnet__pauses(c)) || !bitnet__gens_read_ahead(c, gens, n)))
        bitnet__pause_pass(c, c->inputs, active);
    return r;
}

/* The paused pass, if these are its generations: how many of them it has; else 0. */
static int32_t bitnet__paused_pass(const bitnet_ctx *c, bitnet_gen *const *gens, int32_t n,
                                   int32_t *drafts) {
    int32_t i, k = 0;
    for (*drafts = i = 0; i < n; i++) {
        if (gens[i]->ended) continue;
        if (k == c->pass.n_inputs || c->inputs[k].seq != gens[i]->p.seq) return 0;
        *drafts += gens[i]->n_draft;
        k++;
    }
    return k == c->pass.n_inputs ? k : 0;
}

static bitnet_result bitnet__fail_cancelled(const bitnet_gen *g, bitnet_error *err) {
    if (g->n_new == 0)
        return bitnet__fail(err, BITNET_ERR_CANCELLED, "the prompt was cancelled after %d of %d "
                            "tokens", (int)g->n_read, (int)g->n_prompt);
    return bitnet__fail(err, BITNET_ERR_CANCELLED, "the text was cancelled after %d tokens",
                        (int)g->n_new);
}

static bitnet_result bitnet__gen_pass(bitnet_ctx *c, bitnet_gen *const *gens, int32_t n,
                                      bitnet_error *err) {
    const int64_t start = bitnet__clock();
    int32_t drafts, active = bitnet__paused_pass(c, gens, n, &drafts), i, k;
    bitnet_result r = BITNET_OK;
    uint64_t ns;
    if (active == 0) {
        bitnet__drop_pass(c);
        active = bitnet__queue_pass(c, gens, n, 1, &drafts);
    }
    for (i = 0; i < n; i++) {          /* a pass that fails gives nothing */
        bitnet_gen *g = gens[i];
        memmove(g->text, g->text + g->n_out, g->n_text -= g->n_out);
        g->n_out = 0;
        g->n_tokens = 0;
    }
    if (active > 0) r = bitnet__gen_eval(c, gens, n, active, drafts > 0 ? 0 : err);
    if (r == BITNET_ERR_CANCELLED) bitnet__fail(err, r, "the evaluation was cancelled");
    else if (r != BITNET_OK && drafts > 0) {   /* perhaps only a draft failed */
        bitnet__queue_pass(c, gens, n, 0, &drafts);
        r = bitnet__gen_eval(c, gens, n, active, err);
    }
    ns = (uint64_t)(bitnet__clock() - start);
    if (c->pass.n_inputs > 0) {        /* paused */
        c->pass.ns += ns;
        return r;
    }
    ns += c->pass.ns;
    for (i = 0; i < n; i++) {
        gens[i]->q->n_queued = 0;
        if (r != BITNET_OK && gens[i]->cancelled) bitnet__fail_cancelled(gens[i], err);
    }
    if (r != BITNET_OK) return r;
    for (i = k = 0; i < n; i++) {
        bitnet_gen *g = gens[i];
        if (g->ended) continue;
        bitnet__gen_advance(g, &c->inputs[k++], ns);
        if (g->cancelled) r = bitnet__fail_cancelled(g, err);
    }
    return r;
}

/* ---- beginning and ending ---- */

/* The token that ends a reply in the caller's template; -1: there is none. */
static bitnet_token bitnet__own_end(const bitnet_model *m, const bitnet_chat_params *chat) {
    const bitnet_chat_template *t = chat ? chat->chat_template : 0;
    return t && t->end.data ? bitnet_token_find(m, t->end.data, t->end.size) : -1;
}

/* Queues the pending token, then the text or the messages. APART: an encoder has 10 KB. */
BITNET__APART bitnet_result bitnet__queue_text(bitnet_ctx *c, bitnet__seq *q,
                                               const bitnet_generate_params *p,
                                               bitnet_error *err) {
    const bitnet_model *m = c->m;
    bitnet_result r = BITNET_OK;
    bitnet__encoder e;
    int n;
    bitnet__encoder_open(&e, &m->vocab, &m->params.allocator, q->history + q->n_past,
                         (size_t)(c->p.n_ctx - q->n_past));
    e.at_start = q->n_past == 0;
    if (q->pending >= 0) bitnet__emit(&e, q->pending);
    if (p->messages) {
        const int in_front =
            q->pending < 0 ? q->n_past == 0 ? BITNET_CHAT_BEGIN : 0 :
            bitnet_token_is_end(m, q->pending) || q->pending == bitnet__own_end(m, p->chat)
                ? BITNET_CHAT_ENDED_REPLY : BITNET_CHAT_CUT_REPLY;
        r = bitnet__encode_chat(&e, p->chat, p->messages, p->n_messages,
                                BITNET_CHAT_OPEN_REPLY | in_front, err);
    } else if (p->text.data) {
        if (q->n_past == 0 && m->vocab.add_bos) bitnet__encode_bos(&e, BITNET_ADD_BOS);
        bitnet__encode_text(&e, p->text.data, p->text.size, 0);
    }
    n = bitnet__encoder_close(&e);
    if (r != BITNET_OK) return r;
    if (n < 0) return bitnet__fail_tokenize((bitnet_result)n, err);
    if (n == 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "there is no token in the prompt, and none is "
                            "pending");
    q->n_queued = n;
    return bitnet__check_room(c, q, n, err);
}

static int bitnet__is_utf8(bitnet_text text) {
    const uint8_t *p = (const uint8_t *)text.data, *end = p + text.size;
    uint32_t n = 1, cp;
    for (; p < end && n > 0; p += n) n = bitnet__utf8_decode(p, end, &cp);
    return n > 0;
}

static bitnet_result bitnet__check_stops(const bitnet_generate_params *p, bitnet_error *err) {
    int32_t i;
    if (p->n_stop_strings < 0 || (p->n_stop_strings > 0 && !p->stop_strings))
        return bitnet__fail(err, BITNET_ERR_ARG, "n_stop_strings is %lld%s",
                            (long long)p->n_stop_strings, p->stop_strings ? "" :
                            ", and stop_strings is NULL");
    for (i = 0; i < p->n_stop_strings; i++) {
        const bitnet_text stop = p->stop_strings[i];
        if (!stop.data || stop.size == 0)
            return bitnet__fail(err, BITNET_ERR_ARG, "stop string %d is empty", (int)i);
        if (!bitnet__is_utf8(stop))    /* it could match within a code point and cut it */
            return bitnet__fail(err, BITNET_ERR_ARG, "stop string %d is not UTF-8", (int)i);
    }
    return BITNET_OK;
}

/* Checks all parameters before anything is done, but for those of a chat. */
static bitnet_result bitnet__check_generate(const bitnet_ctx *c, const bitnet_generate_params *p,
                                            bitnet_error *err) {
    bitnet_result r;
    int32_t rows;
    if (!p) return bitnet__fail(err, BITNET_ERR_ARG, "params is NULL");
    if (!c->m->head.data)
        return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "this model turns texts into vectors "
                            "(bitnet_embed): it has no output head, so it writes no text");
    if (!bitnet__seq_of(c, p->seq)) return bitnet__fail_seq(c, p->seq, err);
    if (c->seqs[p->seq].in_generation)
        return bitnet__fail(err, BITNET_ERR_BUSY, "a generation has sequence %d", (int)p->seq);
    if (!!p->tokens + !!p->text.data + !!p->messages > 1)
        return bitnet__fail(err, BITNET_ERR_ARG, "tokens, text and messages: set only one of them");
    if (p->messages && p->n_messages < 1)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_messages is %lld", (long long)p->n_messages);
    if (p->n_batch < 0)
        return bitnet__fail(err, BITNET_ERR_ARG, "n_batch is %lld", (long long)p->n_batch);
    if (p->lookup < 0 || p->lookup > BITNET__MAX_LOOKUP)
        return bitnet__fail(err, BITNET_ERR_ARG, "lookup %lld is not in 0..%d",
                            (long long)p->lookup, BITNET__MAX_LOOKUP);
    rows = bitnet__min(p->lookup + 1, c->p.n_ctx);
    if (c->p.n_logits < rows)
        return bitnet__fail(err, BITNET_ERR_LIMIT,
                            "lookup of %d tokens needs a context with n_logits %d; it has %d",
                            (int)p->lookup, (int)rows, (int)c->p.n_logits);
    if ((r = bitnet__check_reserved(p->reserved, 6, "bitnet_generate_params", err)) ||
        (p->sampler && (r = bitnet__check_sampler(p->sampler, err)))) return r;
    return bitnet__check_stops(p, err);
}

/* Checks the parameters and writes the prompt's tokens behind the sequence's history. g is the
   caller's memory. */
static bitnet_result bitnet__gen_start(bitnet_gen *g, bitnet_ctx *c,
                                       const bitnet_generate_params *p, bitnet_error *err) {
    bitnet__seq *q;
    bitnet_result r = bitnet__check_generate(c, p, err);
    if (r != BITNET_OK || (r = bitnet__gen_alloc(g, c, p, err))) return r;
    q = g->q;
    g->end = bitnet__own_end(c->m, p->chat);
    r = p->tokens ? bitnet__queue(c, q, p->tokens, p->n_tokens, err)
                  : bitnet__queue_text(c, q, p, err);
    g->n_prompt = q->n_queued;
    q->n_queued = 0;
    g->start = q->n_past;
    g->pending_at_start = q->pending;
    if (r != BITNET_OK) {
        bitnet__gen_free(g);
        return r;
    }
    q->in_generation = 1;
    memset(&q->figures, 0, sizeof q->figures);
    q->figures.n_prompt = g->n_prompt;
    return BITNET_OK;
}

/* Takes back a prompt that was not read to its end. */
static void bitnet__gen_finish(bitnet_gen *g) {
    g->q->in_generation = 0;
    if (g->n_read < g->n_prompt || (g->cancelled && g->n_new == 0)) {
        bitnet__seq_shorten(g->c, g->p.seq, g->start);
        g->q->pending = g->pending_at_start;
    }
    bitnet__gen_free(g);
}

static bitnet_result bitnet__gen_begin(bitnet_ctx *c, const bitnet_generate_params *params,
                                       bitnet_gen **out, bitnet_error *err) {
    const bitnet_allocator *a = &c->m->params.allocator;
    bitnet_gen *g = (bitnet_gen *)bitnet__alloc(a, sizeof *g);
    const bitnet_result r = g ? bitnet__gen_start(g, c, params, err)
                              : bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a generation");
    c->n_users += r == BITNET_OK;
    if (r == BITNET_OK) *out = g;
    else bitnet__free(a, g);
    return r;
}

BITNET_API bitnet_result bitnet_gen_begin(bitnet_ctx *c, const bitnet_generate_params *params,
                                          bitnet_gen **out, bitnet_error *err) {
    bitnet_result r;
    if (!out) return bitnet__fail(err, BITNET_ERR_ARG, "out is 0");
    *out = 0;
    r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__gen_begin(c, params, out, err));
}

static bitnet_result bitnet__gen_next(bitnet_ctx *c, bitnet_gen *const *gens, int32_t n,
                                      bitnet_error *err) {
    bitnet_result r = BITNET_OK;
    int32_t i, k;
    if (c->is_freed) return bitnet__fail(err, BITNET_ERR_ARG, "the context has been freed");
    for (i = 0; i < n && r == BITNET_OK; i++) {
        if (!gens[i] || gens[i]->c != c || gens[i]->is_listed)
            r = bitnet__fail(err, BITNET_ERR_ARG, "generation %d is 0, of another context, or "
                             "there twice", (int)i);
        else gens[i]->is_listed = 1;
    }
    for (k = r == BITNET_OK ? n : i - 1; k > 0; k--) gens[k - 1]->is_listed = 0;
    if (r != BITNET_OK) return r;
    c->may_pause = 1;
    r = bitnet__gen_pass(c, gens, n, err);
    c->may_pause = 0;
    return r;
}

BITNET_API bitnet_result bitnet_gen_next(bitnet_gen *const *gens, int32_t n, bitnet_error *err) {
    bitnet_ctx *c = gens && n > 0 && gens[0] ? gens[0]->c : 0;
    const bitnet_result r = c ? bitnet__acquire_paused(c, err) :
                            bitnet__fail(err, BITNET_ERR_ARG, "there are no generations");
    return r ? r : bitnet__done(c, bitnet__gen_next(c, gens, n, err));
}

BITNET_API void bitnet_gen_piece(const bitnet_gen *g, bitnet_piece *out) {
    if (!out) return;
    memset(out, 0, sizeof *out);
    if (!g) return;
    out->text.data = g->text;
    out->text.size = g->n_out;
    out->tokens = g->tokens;
    out->n_tokens = g->n_tokens;
    out->row = g->row;
    out->n_read = g->n_read;
    out->n_prompt = g->n_prompt;
    out->ended = g->ended;
    out->paused = g->c->pass.n_inputs > 0 && !g->ended;
    out->why = g->why;
    out->rng = g->sampler.rng;
}

BITNET_API bitnet_result bitnet_gen_end(bitnet_gen *g) {
    bitnet_ctx *c = g ? g->c : 0;
    const bitnet_result r = g ? bitnet__acquire(c, 0) : BITNET_OK;
    if (!g || r != BITNET_OK) return r;
    bitnet__gen_finish(g);
    bitnet__free(&c->m->params.allocator, g);
    if (c->n_users == 1) {             /* the context was freed: this was its last generation */
        bitnet__ctx_leave(c);
        return BITNET_OK;
    }
    c->n_users--;
    return bitnet__done(c, BITNET_OK);
}

static bitnet_result bitnet__generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                      bitnet_stop *why, bitnet_error *err) {
    bitnet_gen gen, *g = &gen;
    bitnet_result r = bitnet__gen_start(g, c, params, err);
    if (r != BITNET_OK) return r;
    while (r == BITNET_OK && !g->ended) r = bitnet__gen_pass(c, &g, 1, err);
    if (r != BITNET_OK && g->n_read == g->n_prompt && !g->cancelled) bitnet__flush_text(g);
    if (why) *why = g->why;
    if (params->sampler) params->sampler->rng = g->sampler.rng;
    bitnet__gen_finish(g);
    return r;
}

BITNET_API bitnet_result bitnet_generate(bitnet_ctx *c, const bitnet_generate_params *params,
                                         bitnet_stop *why, bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    return r ? r : bitnet__done(c, bitnet__generate(c, params, why, err));
}
/* =============================================================================================
   @embed  texts to vectors
   Each text has a sequence until its last token is evaluated. A pass takes tokens of as many texts
   as it has room for, so a text may begin in one pass and end in another. A text of n tokens takes
   as much of the KV cache as a prompt would, and gives it back. For short texts create the context
   with n_seqs of 16 to 64. Queries want an instruction in front, "Instruct: TASK\nQuery: TEXT",
   with what the model's card recommends as TASK; documents go in as they are. An example:

       #include <stdlib.h>

       static double likeness(bitnet_ctx *ctx, int dim, const char *a, const char *b) {
           bitnet_embed_input in[2];
           float *v = (float *)malloc(2 * (size_t)dim * sizeof *v);
           double dot = -2;
           int i;
           memset(in, 0, sizeof in);
           in[0].text = bitnet_text_of(a);
           in[1].text = bitnet_text_of(b);
           if (v && bitnet_embed(ctx, in, 2, NULL, v, NULL) == BITNET_OK)
               for (i = 0, dot = 0; i < dim; i++) dot += (double)v[i] * (double)v[dim + i];
           free(v);
           return dot;  // 1: the same direction
       }
   ============================================================================================= */

/* The text that a sequence has. */
typedef struct bitnet__embedding { int32_t input, n_tokens; } bitnet__embedding;

typedef struct bitnet__embedder {
    bitnet_ctx *c;
    const bitnet_embed_input *inputs;
    const bitnet_embed_params *p;
    float *out;                        /* [n_inputs][dim] */
    int32_t n_inputs, next, done;      /* next: the first that has no sequence yet */
    int32_t pooling;
    bitnet__embedding *of_seq;         /* [n_seqs]  input -1: none */
    double *sums;                      /* [n_seqs][dim]  for the mean */
} bitnet__embedder;

/* Queues the tokens of input i in an empty sequence. */
BITNET__APART bitnet_result bitnet__embed_queue(const bitnet__embedder *e, int32_t i,
                                                bitnet__seq *q, bitnet_error *err) {
    const bitnet_embed_input *in = &e->inputs[i];
    const bitnet__vocab *v = &e->c->m->vocab;
    const int32_t cap = e->c->p.n_ctx;
    const int flags = (v->add_bos ? BITNET_ADD_BOS : 0) | (v->add_eos ? BITNET_ADD_EOS : 0);
    bitnet_result r = bitnet__check_reserved(in->reserved, 2, "bitnet_embed_input", err);
    int n;
    if (r != BITNET_OK) return r;
    if (!in->text.data) {
        n = in->n_tokens;
        if (e->p->cut && n > cap) n = cap;
        r = bitnet__queue(e->c, q, in->tokens, n, err);
    } else {
        n = bitnet__encode(v, &e->c->m->params.allocator, in->text.data, in->text.size, flags,
                           q->history, (size_t)cap);
        if (n < 0) r = bitnet__fail_tokenize((bitnet_result)n, err);
        else if (n == 0) r = bitnet__fail(err, BITNET_ERR_ARG, "the text has no tokens");
        else r = e->p->cut ? BITNET_OK : bitnet__check_room(e->c, q, n, err);
        if (r == BITNET_OK && n > cap && v->add_eos) q->history[cap - 1] = v->eos;
        q->n_queued = bitnet__min(n, cap);
    }
    if (r != BITNET_OK && err) {       /* which one */
        char text[sizeof err->text];
        memcpy(text, err->text, sizeof text);
        bitnet__fail(err, r, "input %d: %s", (int)i, text);
    }
    return r;
}

/* Gives the next input a sequence, *begun, and its pages. *begun -1: no input or no sequence is
   left, or the pages are not free as long as other texts have some. */
static bitnet_result bitnet__embed_begin(bitnet__embedder *e, int32_t n_open, int32_t *begun,
                                         bitnet_error *err) {
    bitnet_ctx *c = e->c;
    bitnet__seq *q;
    bitnet_input in;
    bitnet_result r;
    int32_t seq = 0, n;
    *begun = -1;
    while (seq < c->p.n_seqs && e->of_seq[seq].input >= 0) seq++;
    if (seq == c->p.n_seqs || e->next == e->n_inputs) return BITNET_OK;
    q = &c->seqs[seq];
    if ((r = bitnet__embed_queue(e, e->next, q, err))) {
        q->n_queued = 0;
        return r;
    }
    memset(&in, 0, sizeof in);
    in.seq = seq;
    n = q->n_queued;
    r = bitnet__reserve_pages(c, bitnet__pages_needed(c, &in, 1), n_open > 0 ? 0 : err);
    q->n_queued = 0;
    if (r != BITNET_OK) {
        if (n_open == 0) return r;
        return r == BITNET_ERR_FULL ? BITNET_OK :
               bitnet__fail(err, r, "no memory for the KV cache of input %d", (int)e->next);
    }
    bitnet__seq_extend(c, q, n);
    e->of_seq[seq].input = e->next++;
    e->of_seq[seq].n_tokens = n;
    if (e->sums) memset(e->sums + (size_t)seq * (size_t)c->m->dim, 0,
                        (size_t)c->m->dim * sizeof *e->sums);
    *begun = seq;
    return BITNET_OK;
}

/* Adds the tokens of a sequence's text that are not evaluated to the batch, as many as fit. */
static int32_t bitnet__embed_add(const bitnet__embedder *e, int32_t seq, int32_t n) {
    bitnet_ctx *c = e->c;
    int32_t pos;
    for (pos = c->seqs[seq].n_past; pos < e->of_seq[seq].n_tokens && n < c->p.n_batch; pos++, n++) {
        c->places[n].seq = seq;
        c->places[n].pos = pos;
        c->places[n].row = -1;
        c->places[n].mark = 0;
    }
    return n;
}

/* Fills the batch: first the texts that have begun, then new ones. *n_tokens: its tokens. */
static bitnet_result bitnet__embed_fill(bitnet__embedder *e, int32_t *n_tokens,
                                        bitnet_error *err) {
    bitnet_ctx *c = e->c;
    int32_t seq, n = 0, n_open = 0, begun = 0;
    bitnet_result r = BITNET_OK;
    for (seq = 0; seq < c->p.n_seqs; seq++) {
        if (e->of_seq[seq].input < 0) continue;
        n = bitnet__embed_add(e, seq, n);
        n_open++;
    }
    for (; r == BITNET_OK && begun >= 0 && n < c->p.n_batch; n_open++) {
        r = bitnet__embed_begin(e, n_open, &begun, err);
        if (begun >= 0) n = bitnet__embed_add(e, begun, n);
    }
    *n_tokens = n;
    return r;
}

/* Ends a text: finishes its vector, and empties the sequence. */
static void bitnet__embed_end(bitnet__embedder *e, int32_t seq) {
    bitnet_ctx *c = e->c;
    const int32_t dim = c->m->dim;
    const bitnet__embedding *text = &e->of_seq[seq];
    float *out = e->out + (size_t)text->input * (size_t)dim;
    double sum = 0.0;
    int32_t i;
    for (i = 0; e->sums && i < dim; i++)
        out[i] = (float)(e->sums[(size_t)seq * (size_t)dim + (size_t)i] / (double)text->n_tokens);
    for (i = 0; i < dim; i++) sum += (double)out[i] * (double)out[i];
    if (!e->p->raw && sum > 0.0) {
        const double length = bitnet__sqrt(sum);
        for (i = 0; i < dim; i++) out[i] = (float)((double)out[i] / length);
    }
    bitnet__seq_shorten(c, seq, 0);
    e->of_seq[seq].input = -1;
    e->done++;
}

/* After a pass of n tokens: pools their rows. */
static void bitnet__embed_pool(bitnet__embedder *e, int32_t n) {
    bitnet_ctx *c = e->c;
    const bitnet_model *m = c->m;
    const size_t dim = (size_t)m->dim;
    int32_t t, i;
    for (t = 0; t < n; t++) {
        const bitnet__place at = c->places[t];
        const int32_t last = at.pos + 1 == e->of_seq[at.seq].n_tokens;
        const float *x = c->x + (size_t)t * dim;
        if (e->sums) {
            double *sums = e->sums + (size_t)at.seq * dim;
            c->k.rmsnorm(x, m->output_norm, m->dim, m->eps, c->h);
            for (i = 0; i < m->dim; i++) sums[i] += (double)c->h[i];
        } else if (e->pooling == BITNET_POOLING_FIRST ? at.pos == 0 : last) {
            c->k.rmsnorm(x, m->output_norm, m->dim, m->eps,
                         e->out + (size_t)e->of_seq[at.seq].input * dim);
        }
        if (last) bitnet__embed_end(e, at.seq);
    }
}

static bitnet_result bitnet__embed_all(bitnet__embedder *e, bitnet_error *err) {
    while (e->done < e->n_inputs) {
        int32_t n, layer = -1;
        bitnet_result r = bitnet__embed_fill(e, &n, err);
        if (r != BITNET_OK || (r = bitnet__forward(e->c, n, &layer, err))) return r;
        bitnet__embed_pool(e, n);
        if (bitnet__report_progress(e->c, e->p->progress_fn, e->p->progress_ud, e->done,
                                    e->n_inputs))
            return bitnet__fail(err, BITNET_ERR_CANCELLED, "cancelled after %d of %d inputs",
                                (int)e->done, (int)e->n_inputs);
    }
    return BITNET_OK;
}

static bitnet_result bitnet__embed_check(const bitnet__embedder *e, bitnet_error *err) {
    const bitnet_ctx *c = e->c;
    const bitnet_result r = bitnet__check_reserved(e->p->reserved, 4, "bitnet_embed_params", err);
    int32_t i;
    if (r != BITNET_OK) return r;
    if (e->n_inputs < 0 || (e->n_inputs > 0 && (!e->inputs || !e->out)))
        return bitnet__fail(err, BITNET_ERR_ARG, "inputs or out is 0, or n is negative");
    if (e->pooling < BITNET_POOLING_MEAN || e->pooling > BITNET_POOLING_LAST)
        return bitnet__fail(err, BITNET_ERR_ARG, e->pooling ? "pooling %d is unknown" :
                            "this is no model of embeddings: its file has no pooling_type. To "
                            "make vectors with it nevertheless, set pooling to mean, first or last",
                            (int)e->pooling);
    for (i = 0; i < c->p.n_seqs; i++)
        if (c->seqs[i].n_past > 0 || c->seqs[i].pending >= 0 || c->seqs[i].in_generation)
            return bitnet__fail(err, BITNET_ERR_ARG, "sequence %d of the context is not empty",
                                (int)i);
    return BITNET_OK;
}

static bitnet_result bitnet__embed(bitnet__embedder *e, bitnet_error *err) {
    bitnet_ctx *c = e->c;
    const bitnet_allocator *a = &c->m->params.allocator;
    const size_t seqs = (size_t)c->p.n_seqs, dim = (size_t)c->m->dim;
    bitnet_result r = bitnet__embed_check(e, err);
    int32_t i;
    if (r != BITNET_OK) return r;
    e->of_seq = (bitnet__embedding *)bitnet__alloc(a, seqs * sizeof *e->of_seq);
    if (e->of_seq && e->pooling == BITNET_POOLING_MEAN && dim <= SIZE_MAX / sizeof *e->sums / seqs)
        e->sums = (double *)bitnet__alloc(a, seqs * dim * sizeof *e->sums);
    if (!e->of_seq || (e->pooling == BITNET_POOLING_MEAN && !e->sums))
        r = bitnet__fail(err, BITNET_ERR_MEMORY, "no memory to embed texts");
    for (i = 0; e->of_seq && i < c->p.n_seqs; i++) e->of_seq[i].input = -1;
    bitnet__forget_rows(c);
    if (r == BITNET_OK) r = bitnet__embed_all(e, err);
    for (i = 0; e->of_seq && i < c->p.n_seqs; i++) bitnet__seq_shorten(c, i, 0);
    bitnet__free(a, e->sums);
    bitnet__free(a, e->of_seq);
    return r;
}

BITNET_API bitnet_result bitnet_embed(bitnet_ctx *c, const bitnet_embed_input *inputs, int32_t n,
                                      const bitnet_embed_params *params, float *out,
                                      bitnet_error *err) {
    const bitnet_result r = bitnet__acquire(c, err);
    bitnet_embed_params defaults;
    bitnet__embedder e;
    if (r != BITNET_OK) return r;
    memset(&e, 0, sizeof e);
    e.c = c;
    e.inputs = inputs;
    e.n_inputs = n;
    memset(&defaults, 0, sizeof defaults);
    e.p = params ? params : &defaults;
    e.out = out;
    e.pooling = e.p->pooling ? (int32_t)e.p->pooling : c->m->pooling;
    return bitnet__done(c, bitnet__embed(&e, err));
}

/* =============================================================================================
   @unicode  the character classes that the pre-tokenizers use, and NFC
   Owns the tables of \p{L}, \p{N}, \s and \p{P} of Unicode 15.0, and of its normalization form C.
   Neither the locale nor <ctype.h> is used: the classes must not depend on the machine.
   ============================================================================================= */

/* All code points from U+0000 on as runs of one class, each `length << 2 | class` (a run too long
   for 14 bits is split in two), and the first code point of every 16th run. ASCII has a table of
   its own, which tells CR and LF from SPACE. */

/* begin of tables written by tests/checks/unicode_tables.py from Unicode 15.0.0 */
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
/* 14618 bytes: NFC. Code points that are not stable, `first << 11 | length`. */
enum {
    BITNET__UNSTABLE_RUNS = 278, BITNET__MARK_RUNS = 412, BITNET__SECONDS = 86,
    BITNET__FULL_RUNS = 231, BITNET__FULL_ENTRIES = 2061, BITNET__COMPOSED = 941,
    BITNET__STABLE_FROM = 0x309B, BITNET__STABLE_COUNT = 30164     /* the longest run */
};
static const uint32_t bitnet__unstable[BITNET__UNSTABLE_RUNS] = {
    0x18004F,0x1A8020,0x1BA001,0x1BF001,0x1C3801,0x241805,0x2C882D,0x2DF801,0x2E0802,0x2E2002,
    0x2E3801,0x30800B,0x325815,0x338001,0x36B007,0x36F806,0x373802,0x375004,0x388801,0x39801B,
    0x3F5809,0x3FE801,0x40B004,0x40D809,0x412803,0x414805,0x42C803,0x44C008,0x465018,0x47181D,
    0x49E001,0x4A6801,0x4A8804,0x4AC008,0x4DE001,0x4DF001,0x4E6801,0x4EB801,0x4EE002,0x4EF801,
    0x4FF001,0x519801,0x51B001,0x51E001,0x526801,0x52C803,0x52F001,0x55E001,0x566801,0x59E001,
    0x59F001,0x5A6801,0x5AB002,0x5AE002,0x5DF001,0x5E6801,0x5EB801,0x61E001,0x626801,0x62A802,
    0x65E001,0x661001,0x666801,0x66A802,0x69D802,0x69F001,0x6A6801,0x6AB801,0x6E5001,0x6E7801,
    0x6EF801,0x71C003,0x724004,0x75C003,0x764004,0x78C002,0x79A801,0x79B801,0x79C801,0x7A1801,
    0x7A6801,0x7A9001,0x7AB801,0x7AE001,0x7B4801,0x7B8806,0x7BC001,0x7BD004,0x7C0005,0x7C3002,
    0x7C9801,0x7CE801,0x7D1001,0x7D3801,0x7D6001,0x7DC801,0x7E3001,0x817001,0x81B801,0x81C802,
    0x846801,0x8B0815,0x8D401B,0x9AE803,0xB8A002,0xB9A001,0xBE9001,0xBEE801,0xC54801,0xC9C803,
    0xD0B802,0xD30001,0xD3A808,0xD3F801,0xD5800E,0xD5F810,0xD9A002,0xDA2001,0xDB5809,0xDD5002,
    0xDF3001,0xDF9002,0xE1B801,0xE68003,0xE6A00D,0xE71007,0xE76801,0xE7A001,0xE7C002,0xEE0040,
    0xFB8801,0xFB9801,0xFBA801,0xFBB801,0xFBC801,0xFBD801,0xFBE801,0xFDD801,0xFDF001,0xFE4801,
    0xFE5801,0xFE9801,0xFED801,0xFF1801,0xFF5801,0xFF7002,0xFFC801,0xFFD801,0xFFE801,0x1000002,
    0x106800D,0x1070801,0x107280C,0x1093001,0x1095002,0x1194802,0x156E001,0x1677803,0x16BF801,
    0x16F0020,0x1815006,0x184C802,0x5337801,0x533A00A,0x534F002,0x5378002,0x5403001,0x5416001,
    0x5462001,0x5470012,0x5495803,0x54A9801,0x54D9801,0x54E0001,0x5558001,0x5559003,0x555B802,
    0x555F002,0x5560801,0x557B001,0x55F6801,0x7C8010E,0x7D08001,0x7D09001,0x7D0A80A,0x7D10001,
    0x7D11001,0x7D12802,0x7D15044,0x7D3806A,0x7D8E803,0x7D9500D,0x7D9C005,0x7D9F001,0x7DA0002,
    0x7DA1802,0x7DA3009,0x7F10010,0x80FE801,0x8170001,0x81BB005,0x8506801,0x8507801,0x851C003,
    0x851F801,0x8572802,0x8692004,0x8755802,0x877E803,0x87A300B,0x87C1004,0x8823001,0x8838001,
    0x883F801,0x885C802,0x8880003,0x8893801,0x8899802,0x88B9801,0x88E0001,0x88E5001,0x891A802,
    0x8974802,0x899D802,0x899F001,0x89A6801,0x89AB801,0x89B3007,0x89B8005,0x8A21001,0x8A23001,
    0x8A2F001,0x8A58001,0x8A5D001,0x8A5E801,0x8A61002,0x8AD7801,0x8ADF802,0x8B1F801,0x8B5B002,
    0x8B95801,0x8C1C802,0x8C98001,0x8C9E802,0x8CA1801,0x8CF0001,0x8D1A001,0x8D23801,0x8D4C801,
    0x8E1F801,0x8EA1001,0x8EA2002,0x8ECB801,0x8FA0802,0xB578005,0xB598007,0xB7F8002,0xDE4F001,
    0xE8AF00C,0xE8B6806,0xE8BD808,0xE8C2807,0xE8D5004,0xE8DD806,0xE921003,0xF000007,0xF004011,
    0xF00D807,0xF011802,0xF013005,0xF047801,0xF098007,0xF157001,0xF176004,0xF276004,0xF468007,
    0xF4A2007,0x17C0021E
};
/* Combining classes, `first << 11 | length << 8 | class`. */
static const uint32_t bitnet__marks[BITNET__MARK_RUNS] = {
    0x1807E6,0x183FE6,0x1877E6,0x18A9E8,0x18B4DC,0x18D1E8,0x18D9D8,0x18E5DC,0x190ACA,0x191CDC,
    0x193ACA,0x194FDC,0x1984DC,0x19A501,0x19CCDC,0x19EFE6,0x1A21E6,0x1A29F0,0x1A31E6,0x1A3BDC,
    0x1A53E6,0x1A6ADC,0x1A83E6,0x1A9CDC,0x1AB9E6,0x1AC1E8,0x1ACADC,0x1AD9E6,0x1AE1E9,0x1AEAEA,
    0x1AF9E9,0x1B02EA,0x1B11E9,0x1B1FE6,0x1B56E6,0x241DE6,0x2C89DC,0x2C94E6,0x2CB1DC,0x2CBBE6,
    0x2CD1DE,0x2CD9DC,0x2CE6E6,0x2D16DC,0x2D42E6,0x2D51DC,0x2D5AE6,0x2D69DE,0x2D71E4,0x2D79E6,
    0x2D810A,0x2D890B,0x2D910C,0x2D990D,0x2DA10E,0x2DA90F,0x2DB110,0x2DB911,0x2DC112,0x2DCA13,
    0x2DD914,0x2DE115,0x2DE916,0x2DF917,0x2E0918,0x2E1119,0x2E21E6,0x2E29DC,0x2E3912,0x3087E6,
    0x30B9E6,0x30C11E,0x30C91F,0x30D120,0x32591B,0x32611C,0x32691D,0x32711E,0x32791F,0x328120,
    0x328921,0x329122,0x329AE6,0x32AADC,0x32BDE6,0x32E1DC,0x32EAE6,0x32F9DC,0x338123,0x36B7E6,
    0x36FCE6,0x3719DC,0x3721E6,0x373AE6,0x3751DC,0x375AE6,0x3769DC,0x388924,0x3981E6,0x3989DC,
    0x3992E6,0x39A1DC,0x39AAE6,0x39BBDC,0x39D1E6,0x39DADC,0x39E9E6,0x39F1DC,0x39FBE6,0x3A11DC,
    0x3A19E6,0x3A21DC,0x3A29E6,0x3A31DC,0x3A39E6,0x3A41DC,0x3A4AE6,0x3F5FE6,0x3F91DC,0x3F99E6,
    0x3FE9DC,0x40B4E6,0x40DFE6,0x4112E6,0x412BE6,0x414DE6,0x42CBDC,0x44C1E6,0x44CBDC,0x44E4E6,
    0x4655E6,0x467DDC,0x46A7E6,0x46DFE6,0x4719DC,0x4722E6,0x4731DC,0x473AE6,0x4749DC,0x4753E6,
    0x476BDC,0x47811B,0x47891C,0x47911D,0x479BE6,0x47B1DC,0x47BAE6,0x47CADC,0x47DDE6,0x49E107,
    0x4A6909,0x4A89E6,0x4A91DC,0x4A9AE6,0x4DE107,0x4E6909,0x4FF1E6,0x51E107,0x526909,0x55E107,
    0x566909,0x59E107,0x5A6909,0x5E6909,0x61E107,0x626909,0x62A954,0x62B15B,0x65E107,0x666909,
    0x69DA09,0x6A6909,0x6E5109,0x71C267,0x71D109,0x72446B,0x75C276,0x75D109,0x76447A,0x78C2DC,
    0x79A9DC,0x79B9DC,0x79C9D8,0x7B8981,0x7B9182,0x7BA184,0x7BD482,0x7C0182,0x7C12E6,0x7C2109,
    0x7C32E6,0x7E31DC,0x81B907,0x81CA09,0x8469DC,0x9AEBE6,0xB8A209,0xB9A109,0xBE9109,0xBEE9E6,
    0xC549E4,0xC9C9DE,0xC9D1E6,0xC9D9DC,0xD0B9E6,0xD0C1DC,0xD30109,0xD3AFE6,0xD3E1E6,0xD3F9DC,
    0xD585E6,0xD5AEDC,0xD5DAE6,0xD5E9DC,0xD5FADC,0xD60AE6,0xD61ADC,0xD62DE6,0xD651DC,0xD65CE6,
    0xD9A107,0xDA2109,0xDB59E6,0xDB61DC,0xDB6FE6,0xDD5209,0xDF3107,0xDF9209,0xE1B907,0xE683E6,
    0xE6A101,0xE6ADDC,0xE6D2E6,0xE6E4DC,0xE701E6,0xE71701,0xE769DC,0xE7A1E6,0xE7C2E6,0xEE02E6,
    0xEE11DC,0xEE1FE6,0xEE51DC,0xEE5AE6,0xEE69EA,0xEE71D6,0xEE79DC,0xEE81CA,0xEE8FE6,0xEEC7E6,
    0xEEFFE6,0xEF37E6,0xEF6FE6,0xEFA2E6,0xEFB1E8,0xEFBAE4,0xEFC9DC,0xEFD1DA,0xEFD9E6,0xEFE1E9,
    0xEFE9DC,0xEFF1E6,0xEFF9DC,0x10682E6,0x1069201,0x106A4E6,0x106C301,0x106DAE6,0x10709E6,
    0x1072A01,0x10739E6,0x10741DC,0x10749E6,0x1075201,0x10764DC,0x10781E6,0x1677BE6,0x16BF909,
    0x16F07E6,0x16F3FE6,0x16F77E6,0x16FAFE6,0x16FE4E6,0x18151DA,0x18159E4,0x18161E8,0x18169DE,
    0x18172E0,0x184CA08,0x53379E6,0x533A7E6,0x533DBE6,0x534F2E6,0x53782E6,0x5403109,0x5416109,
    0x5462109,0x54707E6,0x5473FE6,0x54774E6,0x5495BDC,0x54A9909,0x54D9907,0x54E0109,0x55581E6,
    0x55592E6,0x555A1DC,0x555BAE6,0x555F2E6,0x55609E6,0x557B109,0x55F6909,0x7D8F11A,0x7F107E6,
    0x7F13FDC,0x7F172E6,0x80FE9DC,0x81701DC,0x81BB5E6,0x85069DC,0x85079E6,0x851C1E6,0x851C901,
    0x851D1DC,0x851F909,0x85729E6,0x85731DC,0x86924E6,0x8755AE6,0x877EBDC,0x87A32DC,0x87A43E6,
    0x87A59DC,0x87A61E6,0x87A6CDC,0x87C11E6,0x87C19DC,0x87C21E6,0x87C29DC,0x8823109,0x8838109,
    0x883F909,0x885C909,0x885D107,0x88803E6,0x8899A09,0x88B9907,0x88E0109,0x88E5107,0x891A909,
    0x891B107,0x8974907,0x8975109,0x899DA07,0x89A6909,0x89B37E6,0x89B85E6,0x8A21109,0x8A23107,
    0x8A2F1E6,0x8A61109,0x8A61907,0x8ADF909,0x8AE0107,0x8B1F909,0x8B5B109,0x8B5B907,0x8B95909,
    0x8C1C909,0x8C1D107,0x8C9EA09,0x8CA1907,0x8CF0109,0x8D1A109,0x8D23909,0x8D4C909,0x8E1F909,
    0x8EA1107,0x8EA2209,0x8ECB909,0x8FA0A09,0xB578501,0xB5987E6,0xB7F8206,0xDE4F101,0xE8B2AD8,
    0xE8B3B01,0xE8B69E2,0xE8B75D8,0xE8BDFDC,0xE8C11DC,0xE8C2DE6,0xE8C52DC,0xE8D54E6,0xE9213E6,
    0xF0007E6,0xF0047E6,0xF007FE6,0xF00B3E6,0xF00DFE6,0xF011AE6,0xF0135E6,0xF0479E6,0xF0987E6,
    0xF1571E6,0xF1764E6,0xF2762E8,0xF2771DC,0xF2779E6,0xF4687DC,0xF4A26E6,0xF4A5107
};
/* Canonical decompositions: of a run's code points, from entry start[run] on. */
static const uint32_t bitnet__full_first[BITNET__FULL_RUNS] = {
    0xC0,0xC7,0xD1,0xD9,0xE0,0xE7,0xF1,0xF9,0xFF,0x112,0x128,0x134,0x139,0x143,0x14C,0x154,
    0x168,0x1A0,0x1AF,0x1CD,0x1DE,0x1E6,0x1F4,0x1F8,0x21E,0x226,0x340,0x343,0x374,0x37E,0x385,
    0x38C,0x38E,0x3AA,0x3CA,0x3D3,0x400,0x403,0x407,0x40C,0x419,0x439,0x450,0x453,0x457,0x45C,
    0x476,0x4C1,0x4D0,0x4D6,0x4DA,0x4E2,0x4EA,0x4F8,0x622,0x6C0,0x6C2,0x6D3,0x929,0x931,0x934,
    0x958,0x9CB,0x9DC,0x9DF,0xA33,0xA36,0xA59,0xA5E,0xB48,0xB4B,0xB5C,0xB94,0xBCA,0xC48,0xCC0,
    0xCC7,0xCCA,0xD4A,0xDDA,0xDDC,0xF43,0xF4D,0xF52,0xF57,0xF5C,0xF69,0xF73,0xF75,0xF78,0xF81,
    0xF93,0xF9D,0xFA2,0xFA7,0xFAC,0xFB9,0x1026,0x1B06,0x1B08,0x1B0A,0x1B0C,0x1B0E,0x1B12,0x1B3B,
    0x1B3D,0x1B40,0x1B43,0x1E00,0x1E9B,0x1EA0,0x1F00,0x1F18,0x1F20,0x1F48,0x1F50,0x1F59,0x1F5B,
    0x1F5D,0x1F5F,0x1F80,0x1FB6,0x1FBE,0x1FC1,0x1FC6,0x1FD6,0x1FDD,0x1FF2,0x1FF6,0x2000,0x2126,
    0x212A,0x219A,0x21AE,0x21CD,0x2204,0x2209,0x220C,0x2224,0x2226,0x2241,0x2244,0x2247,0x2249,
    0x2260,0x2262,0x226D,0x2274,0x2278,0x2280,0x2284,0x2288,0x22AC,0x22E0,0x22EA,0x2329,0x2ADC,
    0x304C,0x304E,0x3050,0x3052,0x3054,0x3056,0x3058,0x305A,0x305C,0x305E,0x3060,0x3062,0x3065,
    0x3067,0x3069,0x3070,0x3073,0x3076,0x3079,0x307C,0x3094,0x309E,0x30AC,0x30AE,0x30B0,0x30B2,
    0x30B4,0x30B6,0x30B8,0x30BA,0x30BC,0x30BE,0x30C0,0x30C2,0x30C5,0x30C7,0x30C9,0x30D0,0x30D3,
    0x30D6,0x30D9,0x30DC,0x30F4,0x30F7,0x30FE,0xF900,0xFA10,0xFA12,0xFA15,0xFA20,0xFA22,0xFA25,
    0xFA2A,0xFA70,0xFB1D,0xFB1F,0xFB2A,0xFB38,0xFB3E,0xFB40,0xFB43,0xFB46,0x1109A,0x1109C,
    0x110AB,0x1112E,0x1134B,0x114BB,0x114BE,0x115BA,0x11938,0x1D15E,0x1D1BB,0x2F800
};
static const uint16_t bitnet__full_start[BITNET__FULL_RUNS + 1] = {
    0,6,15,21,26,32,41,47,52,69,89,98,102,108,114,120,138,161,163,165,181,187,198,200,236,238,
    252,254,256,257,258,264,265,268,275,280,282,284,285,286,289,290,291,293,294,295,298,300,302,
    306,308,314,320,332,334,339,340,341,342,343,344,345,353,355,357,358,359,360,363,364,365,367,
    369,370,373,374,375,377,379,382,383,386,387,388,389,390,391,392,393,395,396,397,398,399,400,
    401,402,403,404,405,406,407,408,409,410,411,412,414,415,569,570,660,682,688,726,732,740,741,
    742,743,774,827,834,835,839,853,859,878,881,889,891,892,894,896,897,900,901,902,903,904,905,
    906,907,908,909,910,911,916,918,920,922,924,926,930,934,938,940,941,942,943,944,945,946,947,
    948,949,950,951,952,953,954,955,956,958,960,962,964,966,967,968,969,970,971,972,973,974,975,
    976,977,978,979,980,981,982,983,985,987,989,991,993,994,998,999,1269,1270,1271,1281,1282,
    1283,1285,1353,1459,1460,1461,1474,1479,1480,1482,1484,1493,1494,1495,1496,1498,1500,1502,
    1503,1505,1506,1513,1519,2061
};
/* `second << 21 | first code point`; second: a place in bitnet__seconds. */
static const uint32_t bitnet__full_entries[BITNET__FULL_ENTRIES] = {
    0x200041,0x400041,0x600041,0x800041,0x1000041,0x1400041,0x2C00043,0x200045,0x400045,
    0x600045,0x1000045,0x200049,0x400049,0x600049,0x1000049,0x80004E,0x20004F,0x40004F,0x60004F,
    0x80004F,0x100004F,0x200055,0x400055,0x600055,0x1000055,0x400059,0x200061,0x400061,0x600061,
    0x800061,0x1000061,0x1400061,0x2C00063,0x200065,0x400065,0x600065,0x1000065,0x200069,
    0x400069,0x600069,0x1000069,0x80006E,0x20006F,0x40006F,0x60006F,0x80006F,0x100006F,0x200075,
    0x400075,0x600075,0x1000075,0x400079,0x1000079,0xA00041,0xA00061,0xC00041,0xC00061,
    0x2E00041,0x2E00061,0x400043,0x400063,0x600043,0x600063,0xE00043,0xE00063,0x1800043,
    0x1800063,0x1800044,0x1800064,0xA00045,0xA00065,0xC00045,0xC00065,0xE00045,0xE00065,
    0x2E00045,0x2E00065,0x1800045,0x1800065,0x600047,0x600067,0xC00047,0xC00067,0xE00047,
    0xE00067,0x2C00047,0x2C00067,0x600048,0x600068,0x800049,0x800069,0xA00049,0xA00069,0xC00049,
    0xC00069,0x2E00049,0x2E00069,0xE00049,0x60004A,0x60006A,0x2C0004B,0x2C0006B,0x40004C,
    0x40006C,0x2C0004C,0x2C0006C,0x180004C,0x180006C,0x40004E,0x40006E,0x2C0004E,0x2C0006E,
    0x180004E,0x180006E,0xA0004F,0xA0006F,0xC0004F,0xC0006F,0x160004F,0x160006F,0x400052,
    0x400072,0x2C00052,0x2C00072,0x1800052,0x1800072,0x400053,0x400073,0x600053,0x600073,
    0x2C00053,0x2C00073,0x1800053,0x1800073,0x2C00054,0x2C00074,0x1800054,0x1800074,0x800055,
    0x800075,0xA00055,0xA00075,0xC00055,0xC00075,0x1400055,0x1400075,0x1600055,0x1600075,
    0x2E00055,0x2E00075,0x600057,0x600077,0x600059,0x600079,0x1000059,0x40005A,0x40007A,
    0xE0005A,0xE0007A,0x180005A,0x180007A,0x220004F,0x220006F,0x2200055,0x2200075,0x1800041,
    0x1800061,0x1800049,0x1800069,0x180004F,0x180006F,0x1800055,0x1800075,0xA000DC,0xA000FC,
    0x4000DC,0x4000FC,0x18000DC,0x18000FC,0x2000DC,0x2000FC,0xA000C4,0xA000E4,0xA00226,0xA00227,
    0xA000C6,0xA000E6,0x1800047,0x1800067,0x180004B,0x180006B,0x2E0004F,0x2E0006F,0xA001EA,
    0xA001EB,0x18001B7,0x1800292,0x180006A,0x400047,0x400067,0x20004E,0x20006E,0x4000C5,
    0x4000E5,0x4000C6,0x4000E6,0x4000D8,0x4000F8,0x1A00041,0x1A00061,0x1C00041,0x1C00061,
    0x1A00045,0x1A00065,0x1C00045,0x1C00065,0x1A00049,0x1A00069,0x1C00049,0x1C00069,0x1A0004F,
    0x1A0006F,0x1C0004F,0x1C0006F,0x1A00052,0x1A00072,0x1C00052,0x1C00072,0x1A00055,0x1A00075,
    0x1C00055,0x1C00075,0x2A00053,0x2A00073,0x2A00054,0x2A00074,0x1800048,0x1800068,0xE00041,
    0xE00061,0x2C00045,0x2C00065,0xA000D6,0xA000F6,0xA000D5,0xA000F5,0xE0004F,0xE0006F,0xA0022E,
    0xA0022F,0xA00059,0xA00079,0x300,0x301,0x313,0x400308,0x2B9,0x3B,0x4000A8,0x400391,0xB7,
    0x400395,0x400397,0x400399,0x40039F,0x4003A5,0x4003A9,0x4003CA,0x1000399,0x10003A5,0x4003B1,
    0x4003B5,0x4003B7,0x4003B9,0x4003CB,0x10003B9,0x10003C5,0x4003BF,0x4003C5,0x4003C9,0x4003D2,
    0x10003D2,0x200415,0x1000415,0x400413,0x1000406,0x40041A,0x200418,0xC00423,0xC00418,
    0xC00438,0x200435,0x1000435,0x400433,0x1000456,0x40043A,0x200438,0xC00443,0x1A00474,
    0x1A00475,0xC00416,0xC00436,0xC00410,0xC00430,0x1000410,0x1000430,0xC00415,0xC00435,
    0x10004D8,0x10004D9,0x1000416,0x1000436,0x1000417,0x1000437,0xA00418,0xA00438,0x1000418,
    0x1000438,0x100041E,0x100043E,0x10004E8,0x10004E9,0x100042D,0x100044D,0xA00423,0xA00443,
    0x1000423,0x1000443,0x1600423,0x1600443,0x1000427,0x1000447,0x100042B,0x100044B,0x4E00627,
    0x5000627,0x5000648,0x5200627,0x500064A,0x50006D5,0x50006C1,0x50006D2,0x5400928,0x5400930,
    0x5400933,0x5400915,0x5400916,0x5400917,0x540091C,0x5400921,0x5400922,0x540092B,0x540092F,
    0x58009C7,0x5A009C7,0x56009A1,0x56009A2,0x56009AF,0x5C00A32,0x5C00A38,0x5C00A16,0x5C00A17,
    0x5C00A1C,0x5C00A2B,0x6200B47,0x6000B47,0x6400B47,0x5E00B21,0x5E00B22,0x6800B92,0x6600BC6,
    0x6600BC7,0x6800BC6,0x6A00C46,0x6E00CBF,0x6E00CC6,0x7000CC6,0x6C00CC6,0x6E00CCA,0x7200D46,
    0x7200D47,0x7400D46,0x7600DD9,0x7800DD9,0x7600DDC,0x7A00DD9,0x8400F42,0x8400F4C,0x8400F51,
    0x8400F56,0x8400F5B,0x8200F40,0x7C00F71,0x7E00F71,0x8000FB2,0x8000FB3,0x8000F71,0x8400F92,
    0x8400F9C,0x8400FA1,0x8400FA6,0x8400FAB,0x8200F90,0x8601025,0x8801B05,0x8801B07,0x8801B09,
    0x8801B0B,0x8801B0D,0x8801B11,0x8801B3A,0x8801B3C,0x8801B3E,0x8801B3F,0x8801B42,0x2800041,
    0x2800061,0xE00042,0xE00062,0x2400042,0x2400062,0x3600042,0x3600062,0x4000C7,0x4000E7,
    0xE00044,0xE00064,0x2400044,0x2400064,0x3600044,0x3600064,0x2C00044,0x2C00064,0x3000044,
    0x3000064,0x200112,0x200113,0x400112,0x400113,0x3000045,0x3000065,0x3400045,0x3400065,
    0xC00228,0xC00229,0xE00046,0xE00066,0xA00047,0xA00067,0xE00048,0xE00068,0x2400048,0x2400068,
    0x1000048,0x1000068,0x2C00048,0x2C00068,0x3200048,0x3200068,0x3400049,0x3400069,0x4000CF,
    0x4000EF,0x40004B,0x40006B,0x240004B,0x240006B,0x360004B,0x360006B,0x240004C,0x240006C,
    0xA01E36,0xA01E37,0x360004C,0x360006C,0x300004C,0x300006C,0x40004D,0x40006D,0xE0004D,
    0xE0006D,0x240004D,0x240006D,0xE0004E,0xE0006E,0x240004E,0x240006E,0x360004E,0x360006E,
    0x300004E,0x300006E,0x4000D5,0x4000F5,0x10000D5,0x10000F5,0x20014C,0x20014D,0x40014C,
    0x40014D,0x400050,0x400070,0xE00050,0xE00070,0xE00052,0xE00072,0x2400052,0x2400072,0xA01E5A,
    0xA01E5B,0x3600052,0x3600072,0xE00053,0xE00073,0x2400053,0x2400073,0xE0015A,0xE0015B,
    0xE00160,0xE00161,0xE01E62,0xE01E63,0xE00054,0xE00074,0x2400054,0x2400074,0x3600054,
    0x3600074,0x3000054,0x3000074,0x2600055,0x2600075,0x3400055,0x3400075,0x3000055,0x3000075,
    0x400168,0x400169,0x100016A,0x100016B,0x800056,0x800076,0x2400056,0x2400076,0x200057,
    0x200077,0x400057,0x400077,0x1000057,0x1000077,0xE00057,0xE00077,0x2400057,0x2400077,
    0xE00058,0xE00078,0x1000058,0x1000078,0xE00059,0xE00079,0x60005A,0x60007A,0x240005A,
    0x240007A,0x360005A,0x360007A,0x3600068,0x1000074,0x1400077,0x1400079,0xE0017F,0x2400041,
    0x2400061,0x1200041,0x1200061,0x4000C2,0x4000E2,0x2000C2,0x2000E2,0x12000C2,0x12000E2,
    0x8000C2,0x8000E2,0x601EA0,0x601EA1,0x400102,0x400103,0x200102,0x200103,0x1200102,0x1200103,
    0x800102,0x800103,0xC01EA0,0xC01EA1,0x2400045,0x2400065,0x1200045,0x1200065,0x800045,
    0x800065,0x4000CA,0x4000EA,0x2000CA,0x2000EA,0x12000CA,0x12000EA,0x8000CA,0x8000EA,0x601EB8,
    0x601EB9,0x1200049,0x1200069,0x2400049,0x2400069,0x240004F,0x240006F,0x120004F,0x120006F,
    0x4000D4,0x4000F4,0x2000D4,0x2000F4,0x12000D4,0x12000F4,0x8000D4,0x8000F4,0x601ECC,0x601ECD,
    0x4001A0,0x4001A1,0x2001A0,0x2001A1,0x12001A0,0x12001A1,0x8001A0,0x8001A1,0x24001A0,
    0x24001A1,0x2400055,0x2400075,0x1200055,0x1200075,0x4001AF,0x4001B0,0x2001AF,0x2001B0,
    0x12001AF,0x12001B0,0x8001AF,0x8001B0,0x24001AF,0x24001B0,0x200059,0x200079,0x2400059,
    0x2400079,0x1200059,0x1200079,0x800059,0x800079,0x1E003B1,0x20003B1,0x201F00,0x201F01,
    0x401F00,0x401F01,0x3A01F00,0x3A01F01,0x1E00391,0x2000391,0x201F08,0x201F09,0x401F08,
    0x401F09,0x3A01F08,0x3A01F09,0x1E003B5,0x20003B5,0x201F10,0x201F11,0x401F10,0x401F11,
    0x1E00395,0x2000395,0x201F18,0x201F19,0x401F18,0x401F19,0x1E003B7,0x20003B7,0x201F20,
    0x201F21,0x401F20,0x401F21,0x3A01F20,0x3A01F21,0x1E00397,0x2000397,0x201F28,0x201F29,
    0x401F28,0x401F29,0x3A01F28,0x3A01F29,0x1E003B9,0x20003B9,0x201F30,0x201F31,0x401F30,
    0x401F31,0x3A01F30,0x3A01F31,0x1E00399,0x2000399,0x201F38,0x201F39,0x401F38,0x401F39,
    0x3A01F38,0x3A01F39,0x1E003BF,0x20003BF,0x201F40,0x201F41,0x401F40,0x401F41,0x1E0039F,
    0x200039F,0x201F48,0x201F49,0x401F48,0x401F49,0x1E003C5,0x20003C5,0x201F50,0x201F51,
    0x401F50,0x401F51,0x3A01F50,0x3A01F51,0x20003A5,0x201F59,0x401F59,0x3A01F59,0x1E003C9,
    0x20003C9,0x201F60,0x201F61,0x401F60,0x401F61,0x3A01F60,0x3A01F61,0x1E003A9,0x20003A9,
    0x201F68,0x201F69,0x401F68,0x401F69,0x3A01F68,0x3A01F69,0x2003B1,0x3AC,0x2003B5,0x3AD,
    0x2003B7,0x3AE,0x2003B9,0x3AF,0x2003BF,0x3CC,0x2003C5,0x3CD,0x2003C9,0x3CE,0x3C01F00,
    0x3C01F01,0x3C01F02,0x3C01F03,0x3C01F04,0x3C01F05,0x3C01F06,0x3C01F07,0x3C01F08,0x3C01F09,
    0x3C01F0A,0x3C01F0B,0x3C01F0C,0x3C01F0D,0x3C01F0E,0x3C01F0F,0x3C01F20,0x3C01F21,0x3C01F22,
    0x3C01F23,0x3C01F24,0x3C01F25,0x3C01F26,0x3C01F27,0x3C01F28,0x3C01F29,0x3C01F2A,0x3C01F2B,
    0x3C01F2C,0x3C01F2D,0x3C01F2E,0x3C01F2F,0x3C01F60,0x3C01F61,0x3C01F62,0x3C01F63,0x3C01F64,
    0x3C01F65,0x3C01F66,0x3C01F67,0x3C01F68,0x3C01F69,0x3C01F6A,0x3C01F6B,0x3C01F6C,0x3C01F6D,
    0x3C01F6E,0x3C01F6F,0xC003B1,0xA003B1,0x3C01F70,0x3C003B1,0x3C003AC,0x3A003B1,0x3C01FB6,
    0xC00391,0xA00391,0x200391,0x386,0x3C00391,0x3B9,0x3A000A8,0x3C01F74,0x3C003B7,0x3C003AE,
    0x3A003B7,0x3C01FC6,0x200395,0x388,0x200397,0x389,0x3C00397,0x201FBF,0x401FBF,0x3A01FBF,
    0xC003B9,0xA003B9,0x2003CA,0x390,0x3A003B9,0x3A003CA,0xC00399,0xA00399,0x200399,0x38A,
    0x201FFE,0x401FFE,0x3A01FFE,0xC003C5,0xA003C5,0x2003CB,0x3B0,0x1E003C1,0x20003C1,0x3A003C5,
    0x3A003CB,0xC003A5,0xA003A5,0x2003A5,0x38E,0x20003A1,0x2000A8,0x385,0x60,0x3C01F7C,
    0x3C003C9,0x3C003CE,0x3A003C9,0x3C01FF6,0x20039F,0x38C,0x2003A9,0x38F,0x3C003A9,0xB4,0x2002,
    0x2003,0x3A9,0x4B,0xC5,0x3802190,0x3802192,0x3802194,0x38021D0,0x38021D4,0x38021D2,
    0x3802203,0x3802208,0x380220B,0x3802223,0x3802225,0x380223C,0x3802243,0x3802245,0x3802248,
    0x380003D,0x3802261,0x380224D,0x380003C,0x380003E,0x3802264,0x3802265,0x3802272,0x3802273,
    0x3802276,0x3802277,0x380227A,0x380227B,0x3802282,0x3802283,0x3802286,0x3802287,0x38022A2,
    0x38022A8,0x38022A9,0x38022AB,0x380227C,0x380227D,0x3802291,0x3802292,0x38022B2,0x38022B3,
    0x38022B4,0x38022B5,0x3008,0x3009,0x3802ADD,0x8A0304B,0x8A0304D,0x8A0304F,0x8A03051,
    0x8A03053,0x8A03055,0x8A03057,0x8A03059,0x8A0305B,0x8A0305D,0x8A0305F,0x8A03061,0x8A03064,
    0x8A03066,0x8A03068,0x8A0306F,0x8C0306F,0x8A03072,0x8C03072,0x8A03075,0x8C03075,0x8A03078,
    0x8C03078,0x8A0307B,0x8C0307B,0x8A03046,0x8A0309D,0x8A030AB,0x8A030AD,0x8A030AF,0x8A030B1,
    0x8A030B3,0x8A030B5,0x8A030B7,0x8A030B9,0x8A030BB,0x8A030BD,0x8A030BF,0x8A030C1,0x8A030C4,
    0x8A030C6,0x8A030C8,0x8A030CF,0x8C030CF,0x8A030D2,0x8C030D2,0x8A030D5,0x8C030D5,0x8A030D8,
    0x8C030D8,0x8A030DB,0x8C030DB,0x8A030A6,0x8A030EF,0x8A030F0,0x8A030F1,0x8A030F2,0x8A030FD,
    0x8C48,0x66F4,0x8ECA,0x8CC8,0x6ED1,0x4E32,0x53E5,0x9F9C,0x9F9C,0x5951,0x91D1,0x5587,0x5948,
    0x61F6,0x7669,0x7F85,0x863F,0x87BA,0x88F8,0x908F,0x6A02,0x6D1B,0x70D9,0x73DE,0x843D,0x916A,
    0x99F1,0x4E82,0x5375,0x6B04,0x721B,0x862D,0x9E1E,0x5D50,0x6FEB,0x85CD,0x8964,0x62C9,0x81D8,
    0x881F,0x5ECA,0x6717,0x6D6A,0x72FC,0x90CE,0x4F86,0x51B7,0x52DE,0x64C4,0x6AD3,0x7210,0x76E7,
    0x8001,0x8606,0x865C,0x8DEF,0x9732,0x9B6F,0x9DFA,0x788C,0x797F,0x7DA0,0x83C9,0x9304,0x9E7F,
    0x8AD6,0x58DF,0x5F04,0x7C60,0x807E,0x7262,0x78CA,0x8CC2,0x96F7,0x58D8,0x5C62,0x6A13,0x6DDA,
    0x6F0F,0x7D2F,0x7E37,0x964B,0x52D2,0x808B,0x51DC,0x51CC,0x7A1C,0x7DBE,0x83F1,0x9675,0x8B80,
    0x62CF,0x6A02,0x8AFE,0x4E39,0x5BE7,0x6012,0x7387,0x7570,0x5317,0x78FB,0x4FBF,0x5FA9,0x4E0D,
    0x6CCC,0x6578,0x7D22,0x53C3,0x585E,0x7701,0x8449,0x8AAA,0x6BBA,0x8FB0,0x6C88,0x62FE,0x82E5,
    0x63A0,0x7565,0x4EAE,0x5169,0x51C9,0x6881,0x7CE7,0x826F,0x8AD2,0x91CF,0x52F5,0x5442,0x5973,
    0x5EEC,0x65C5,0x6FFE,0x792A,0x95AD,0x9A6A,0x9E97,0x9ECE,0x529B,0x66C6,0x6B77,0x8F62,0x5E74,
    0x6190,0x6200,0x649A,0x6F23,0x7149,0x7489,0x79CA,0x7DF4,0x806F,0x8F26,0x84EE,0x9023,0x934A,
    0x5217,0x52A3,0x54BD,0x70C8,0x88C2,0x8AAA,0x5EC9,0x5FF5,0x637B,0x6BAE,0x7C3E,0x7375,0x4EE4,
    0x56F9,0x5BE7,0x5DBA,0x601C,0x73B2,0x7469,0x7F9A,0x8046,0x9234,0x96F6,0x9748,0x9818,0x4F8B,
    0x79AE,0x91B4,0x96B8,0x60E1,0x4E86,0x50DA,0x5BEE,0x5C3F,0x6599,0x6A02,0x71CE,0x7642,0x84FC,
    0x907C,0x9F8D,0x6688,0x962E,0x5289,0x677B,0x67F3,0x6D41,0x6E9C,0x7409,0x7559,0x786B,0x7D10,
    0x985E,0x516D,0x622E,0x9678,0x502B,0x5D19,0x6DEA,0x8F2A,0x5F8B,0x6144,0x6817,0x7387,0x9686,
    0x5229,0x540F,0x5C65,0x6613,0x674E,0x68A8,0x6CE5,0x7406,0x75E2,0x7F79,0x88CF,0x88E1,0x91CC,
    0x96E2,0x533F,0x6EBA,0x541D,0x71D0,0x7498,0x85FA,0x96A3,0x9C57,0x9E9F,0x6797,0x6DCB,0x81E8,
    0x7ACB,0x7B20,0x7C92,0x72C0,0x7099,0x8B58,0x4EC0,0x8336,0x523A,0x5207,0x5EA6,0x62D3,0x7CD6,
    0x5B85,0x6D1E,0x66B4,0x8F3B,0x884C,0x964D,0x898B,0x5ED3,0x5140,0x55C0,0x585A,0x6674,0x51DE,
    0x732A,0x76CA,0x793C,0x795E,0x7965,0x798F,0x9756,0x7CBE,0x7FBD,0x8612,0x8AF8,0x9038,0x90FD,
    0x98EF,0x98FC,0x9928,0x9DB4,0x90DE,0x96B7,0x4FAE,0x50E7,0x514D,0x52C9,0x52E4,0x5351,0x559D,
    0x5606,0x5668,0x5840,0x58A8,0x5C64,0x5C6E,0x6094,0x6168,0x618E,0x61F2,0x654F,0x65E2,0x6691,
    0x6885,0x6D77,0x6E1A,0x6F22,0x716E,0x722B,0x7422,0x7891,0x793E,0x7949,0x7948,0x7950,0x7956,
    0x795D,0x798D,0x798E,0x7A40,0x7A81,0x7BC0,0x7DF4,0x7E09,0x7E41,0x7F72,0x8005,0x81ED,0x8279,
    0x8279,0x8457,0x8910,0x8996,0x8B01,0x8B39,0x8CD3,0x8D08,0x8FB6,0x9038,0x96E3,0x97FF,0x983B,
    0x6075,0x242EE,0x8218,0x4E26,0x51B5,0x5168,0x4F80,0x5145,0x5180,0x52C7,0x52FA,0x559D,0x5555,
    0x5599,0x55E2,0x585A,0x58B3,0x5944,0x5954,0x5A62,0x5B28,0x5ED2,0x5ED9,0x5F69,0x5FAD,0x60D8,
    0x614E,0x6108,0x618E,0x6160,0x61F2,0x6234,0x63C4,0x641C,0x6452,0x6556,0x6674,0x6717,0x671B,
    0x6756,0x6B79,0x6BBA,0x6D41,0x6EDB,0x6ECB,0x6F22,0x701E,0x716E,0x77A7,0x7235,0x72AF,0x732A,
    0x7471,0x7506,0x753B,0x761D,0x761F,0x76CA,0x76DB,0x76F4,0x774A,0x7740,0x78CC,0x7AB1,0x7BC0,
    0x7C7B,0x7D5B,0x7DF4,0x7F3E,0x8005,0x8352,0x83EF,0x8779,0x8941,0x8986,0x8996,0x8ABF,0x8AF8,
    0x8ACB,0x8B01,0x8AFE,0x8AED,0x8B39,0x8B8A,0x8D08,0x8F38,0x9072,0x9199,0x9276,0x967C,0x96E3,
    0x9756,0x97DB,0x97FF,0x980B,0x983B,0x9B12,0x9F9C,0x2284A,0x22844,0x233D5,0x3B9D,0x4018,
    0x4039,0x25249,0x25CD0,0x27ED3,0x9F43,0x9F8E,0x3E005D9,0x40005F2,0x4A005E9,0x4C005E9,
    0x4A0FB49,0x4C0FB49,0x40005D0,0x42005D0,0x46005D0,0x46005D1,0x46005D2,0x46005D3,0x46005D4,
    0x46005D5,0x46005D6,0x46005D8,0x46005D9,0x46005DA,0x46005DB,0x46005DC,0x46005DE,0x46005E0,
    0x46005E1,0x46005E3,0x46005E4,0x46005E6,0x46005E7,0x46005E8,0x46005E9,0x46005EA,0x44005D5,
    0x48005D1,0x48005DB,0x48005E4,0x8E11099,0x8E1109B,0x8E110A5,0x9011131,0x9011132,0x9211347,
    0x9411347,0x98114B9,0x96114B9,0x9A114B9,0x9C115B8,0x9C115B9,0x9E11935,0xA01D157,0xA01D158,
    0xA21D15F,0xA41D15F,0xA61D15F,0xA81D15F,0xAA1D15F,0xA01D1B9,0xA01D1BA,0xA21D1BB,0xA21D1BC,
    0xA41D1BB,0xA41D1BC,0x4E3D,0x4E38,0x4E41,0x20122,0x4F60,0x4FAE,0x4FBB,0x5002,0x507A,0x5099,
    0x50E7,0x50CF,0x349E,0x2063A,0x514D,0x5154,0x5164,0x5177,0x2051C,0x34B9,0x5167,0x518D,
    0x2054B,0x5197,0x51A4,0x4ECC,0x51AC,0x51B5,0x291DF,0x51F5,0x5203,0x34DF,0x523B,0x5246,
    0x5272,0x5277,0x3515,0x52C7,0x52C9,0x52E4,0x52FA,0x5305,0x5306,0x5317,0x5349,0x5351,0x535A,
    0x5373,0x537D,0x537F,0x537F,0x537F,0x20A2C,0x7070,0x53CA,0x53DF,0x20B63,0x53EB,0x53F1,
    0x5406,0x549E,0x5438,0x5448,0x5468,0x54A2,0x54F6,0x5510,0x5553,0x5563,0x5584,0x5584,0x5599,
    0x55AB,0x55B3,0x55C2,0x5716,0x5606,0x5717,0x5651,0x5674,0x5207,0x58EE,0x57CE,0x57F4,0x580D,
    0x578B,0x5832,0x5831,0x58AC,0x214E4,0x58F2,0x58F7,0x5906,0x591A,0x5922,0x5962,0x216A8,
    0x216EA,0x59EC,0x5A1B,0x5A27,0x59D8,0x5A66,0x36EE,0x36FC,0x5B08,0x5B3E,0x5B3E,0x219C8,
    0x5BC3,0x5BD8,0x5BE7,0x5BF3,0x21B18,0x5BFF,0x5C06,0x5F53,0x5C22,0x3781,0x5C60,0x5C6E,0x5CC0,
    0x5C8D,0x21DE4,0x5D43,0x21DE6,0x5D6E,0x5D6B,0x5D7C,0x5DE1,0x5DE2,0x382F,0x5DFD,0x5E28,
    0x5E3D,0x5E69,0x3862,0x22183,0x387C,0x5EB0,0x5EB3,0x5EB6,0x5ECA,0x2A392,0x5EFE,0x22331,
    0x22331,0x8201,0x5F22,0x5F22,0x38C7,0x232B8,0x261DA,0x5F62,0x5F6B,0x38E3,0x5F9A,0x5FCD,
    0x5FD7,0x5FF9,0x6081,0x393A,0x391C,0x6094,0x226D4,0x60C7,0x6148,0x614C,0x614E,0x614C,0x617A,
    0x618E,0x61B2,0x61A4,0x61AF,0x61DE,0x61F2,0x61F6,0x6210,0x621B,0x625D,0x62B1,0x62D4,0x6350,
    0x22B0C,0x633D,0x62FC,0x6368,0x6383,0x63E4,0x22BF1,0x6422,0x63C5,0x63A9,0x3A2E,0x6469,
    0x647E,0x649D,0x6477,0x3A6C,0x654F,0x656C,0x2300A,0x65E3,0x66F8,0x6649,0x3B19,0x6691,0x3B08,
    0x3AE4,0x5192,0x5195,0x6700,0x669C,0x80AD,0x43D9,0x6717,0x671B,0x6721,0x675E,0x6753,0x233C3,
    0x3B49,0x67FA,0x6785,0x6852,0x6885,0x2346D,0x688E,0x681F,0x6914,0x3B9D,0x6942,0x69A3,0x69EA,
    0x6AA8,0x236A3,0x6ADB,0x3C18,0x6B21,0x238A7,0x6B54,0x3C4E,0x6B72,0x6B9F,0x6BBA,0x6BBB,
    0x23A8D,0x21D0B,0x23AFA,0x6C4E,0x23CBC,0x6CBF,0x6CCD,0x6C67,0x6D16,0x6D3E,0x6D77,0x6D41,
    0x6D69,0x6D78,0x6D85,0x23D1E,0x6D34,0x6E2F,0x6E6E,0x3D33,0x6ECB,0x6EC7,0x23ED1,0x6DF9,
    0x6F6E,0x23F5E,0x23F8E,0x6FC6,0x7039,0x701E,0x701B,0x3D96,0x704A,0x707D,0x7077,0x70AD,
    0x20525,0x7145,0x24263,0x719C,0x243AB,0x7228,0x7235,0x7250,0x24608,0x7280,0x7295,0x24735,
    0x24814,0x737A,0x738B,0x3EAC,0x73A5,0x3EB8,0x3EB8,0x7447,0x745C,0x7471,0x7485,0x74CA,0x3F1B,
    0x7524,0x24C36,0x753E,0x24C92,0x7570,0x2219F,0x7610,0x24FA1,0x24FB8,0x25044,0x3FFC,0x4008,
    0x76F4,0x250F3,0x250F2,0x25119,0x25133,0x771E,0x771F,0x771F,0x774A,0x4039,0x778B,0x4046,
    0x4096,0x2541D,0x784E,0x788C,0x78CC,0x40E3,0x25626,0x7956,0x2569A,0x256C5,0x798F,0x79EB,
    0x412F,0x7A40,0x7A4A,0x7A4F,0x2597C,0x25AA7,0x25AA7,0x7AEE,0x4202,0x25BAB,0x7BC6,0x7BC9,
    0x4227,0x25C80,0x7CD2,0x42A0,0x7CE8,0x7CE3,0x7D00,0x25F86,0x7D63,0x4301,0x7DC7,0x7E02,
    0x7E45,0x4334,0x26228,0x26247,0x4359,0x262D9,0x7F7A,0x2633E,0x7F95,0x7FFA,0x8005,0x264DA,
    0x26523,0x8060,0x265A8,0x8070,0x2335F,0x43D5,0x80B2,0x8103,0x440B,0x813E,0x5AB5,0x267A7,
    0x267B5,0x23393,0x2339C,0x8201,0x8204,0x8F9E,0x446B,0x8291,0x828B,0x829D,0x52B3,0x82B1,
    0x82B3,0x82BD,0x82E6,0x26B3C,0x82E5,0x831D,0x8363,0x83AD,0x8323,0x83BD,0x83E7,0x8457,0x8353,
    0x83CA,0x83CC,0x83DC,0x26C36,0x26D6B,0x26CD5,0x452B,0x84F1,0x84F3,0x8516,0x273CA,0x8564,
    0x26F2C,0x455D,0x4561,0x26FB1,0x270D2,0x456B,0x8650,0x865C,0x8667,0x8669,0x86A9,0x8688,
    0x870E,0x86E2,0x8779,0x8728,0x876B,0x8786,0x45D7,0x87E1,0x8801,0x45F9,0x8860,0x8863,0x27667,
    0x88D7,0x88DE,0x4635,0x88FA,0x34BB,0x278AE,0x27966,0x46BE,0x46C7,0x8AA0,0x8AED,0x8B8A,
    0x8C55,0x27CA8,0x8CAB,0x8CC1,0x8D1B,0x8D77,0x27F2F,0x20804,0x8DCB,0x8DBC,0x8DF0,0x208DE,
    0x8ED4,0x8F38,0x285D2,0x285ED,0x9094,0x90F1,0x9111,0x2872E,0x911B,0x9238,0x92D7,0x92D8,
    0x927C,0x93F9,0x9415,0x28BFA,0x958B,0x4995,0x95B7,0x28D77,0x49E6,0x96C3,0x5DB2,0x9723,
    0x29145,0x2921A,0x4A6E,0x4A76,0x97E0,0x2940A,0x4AB2,0x29496,0x980B,0x980B,0x9829,0x295B6,
    0x98E2,0x4B33,0x9929,0x99A7,0x99C2,0x99FE,0x4BCE,0x29B30,0x9B12,0x9C40,0x9CFD,0x4CCE,0x4CED,
    0x9D67,0x2A0CE,0x4CF8,0x2A105,0x2A20E,0x2A291,0x9EBB,0x4D56,0x9EF9,0x9EFE,0x9F05,0x9F0F,
    0x9F16,0x9F3B,0x2A600
};
static const uint32_t bitnet__seconds[BITNET__SECONDS] = {
    0x0,0x300,0x301,0x302,0x303,0x304,0x306,0x307,0x308,0x309,0x30A,0x30B,0x30C,0x30F,0x311,
    0x313,0x314,0x31B,0x323,0x324,0x325,0x326,0x327,0x328,0x32D,0x32E,0x330,0x331,0x338,0x342,
    0x345,0x5B4,0x5B7,0x5B8,0x5B9,0x5BC,0x5BF,0x5C1,0x5C2,0x653,0x654,0x655,0x93C,0x9BC,0x9BE,
    0x9D7,0xA3C,0xB3C,0xB3E,0xB56,0xB57,0xBBE,0xBD7,0xC56,0xCC2,0xCD5,0xCD6,0xD3E,0xD57,0xDCA,
    0xDCF,0xDDF,0xF72,0xF74,0xF80,0xFB5,0xFB7,0x102E,0x1B35,0x3099,0x309A,0x110BA,0x11127,
    0x1133E,0x11357,0x114B0,0x114BA,0x114BD,0x115AF,0x11930,0x1D165,0x1D16E,0x1D16F,0x1D170,
    0x1D171,0x1D172
};
/* The entries that NFC composes, sorted by first code point, then second. */
static const uint16_t bitnet__composed[BITNET__COMPOSED] = {
    912,909,913,0,1,2,3,53,55,238,4,572,5,165,208,210,570,415,57,417,419,421,59,61,63,65,6,425,
    67,427,431,433,429,7,8,9,598,69,71,73,10,596,77,212,214,594,240,75,439,441,445,198,79,447,
    81,83,187,85,87,449,453,236,451,455,457,11,12,13,89,91,93,97,14,610,167,216,218,612,95,459,
    98,463,189,465,100,467,102,106,469,104,475,473,477,479,481,200,108,15,483,112,485,110,489,
    487,16,17,18,19,114,116,246,20,616,118,169,220,222,161,614,191,499,501,120,503,124,224,226,
    505,122,509,126,128,511,132,513,232,130,521,136,523,234,134,527,525,21,22,23,138,140,142,24,
    640,144,146,171,228,230,163,638,529,148,533,531,539,541,543,545,150,549,547,551,553,555,652,
    25,152,658,250,557,154,656,654,155,559,157,159,561,563,26,27,28,29,54,56,239,30,573,31,166,
    209,211,571,416,58,418,420,422,60,62,64,66,32,426,68,428,432,434,430,33,34,35,599,70,72,74,
    36,597,78,213,215,595,241,76,440,442,446,199,80,448,82,84,188,86,88,450,454,237,452,456,458,
    565,37,38,39,90,92,94,40,611,168,217,219,613,96,460,99,197,464,190,466,101,468,103,107,470,
    105,476,474,478,480,482,201,109,41,484,113,486,111,490,488,42,43,44,45,115,117,247,46,617,
    119,170,221,223,162,615,192,500,502,121,504,125,225,227,506,123,510,127,129,512,133,514,233,
    131,522,566,137,524,235,135,528,526,47,48,49,139,141,143,50,641,145,147,172,229,231,164,639,
    530,149,534,532,540,542,544,546,151,550,548,567,552,554,556,653,51,153,659,251,558,52,657,
    568,655,156,560,158,160,562,564,875,258,835,576,574,580,578,181,202,204,185,423,602,600,606,
    604,461,620,618,624,622,491,244,493,242,206,179,175,173,177,577,575,581,579,182,203,205,186,
    424,603,601,607,605,462,621,619,625,623,492,245,494,243,207,180,176,174,178,586,584,590,588,
    587,585,591,589,435,437,436,438,495,497,496,498,515,516,517,518,535,536,537,538,569,630,628,
    634,632,636,631,629,635,633,637,644,642,648,646,650,645,643,649,647,651,195,193,194,183,184,
    443,444,248,249,196,831,259,830,829,668,669,833,841,261,682,683,843,262,696,697,845,857,263,
    856,855,268,712,713,883,264,726,727,874,872,265,871,870,269,740,885,266,752,753,887,826,838,
    760,270,823,822,660,661,827,825,762,271,676,677,764,272,688,689,839,837,766,273,850,849,275,
    704,705,853,768,277,720,721,866,867,770,278,863,862,276,732,733,868,772,279,744,745,881,879,
    851,267,854,864,274,869,880,280,281,285,302,304,284,282,306,283,300,310,312,287,314,289,316,
    286,318,324,288,326,328,330,332,322,303,305,293,291,307,292,301,311,313,296,315,290,317,295,
    319,325,297,327,329,331,333,323,294,298,299,308,309,320,321,334,335,337,336,338,340,341,339,
    342,343,344,353,354,365,364,366,369,370,372,371,373,374,377,375,376,378,379,381,380,382,383,
    385,384,403,404,405,406,407,408,409,410,411,412,413,414,471,472,507,508,519,520,582,592,583,
    593,608,609,626,627,662,664,666,774,663,665,667,775,776,777,778,779,780,781,670,672,674,782,
    671,673,675,783,784,785,786,787,788,789,678,680,679,681,684,686,685,687,690,692,694,790,691,
    693,695,791,792,793,794,795,796,797,698,700,702,798,699,701,703,799,800,801,802,803,804,805,
    706,708,710,707,709,711,714,716,718,715,717,719,722,724,723,725,728,730,729,731,734,736,738,
    735,737,739,741,742,743,746,748,750,806,747,749,751,807,808,809,810,811,812,813,754,756,758,
    814,755,757,759,815,816,817,818,819,820,821,824,836,878,828,846,847,848,840,882,859,860,861,
    894,895,896,897,899,898,900,901,902,903,904,905,906,907,908,911,910,914,915,916,917,918,919,
    920,921,930,931,922,923,924,925,932,933,926,927,928,929,934,935,936,937,966,941,942,943,944,
    945,946,947,948,949,950,951,952,953,954,955,956,957,958,959,960,961,962,963,964,965,967,993,
    968,969,970,971,972,973,974,975,976,977,978,979,980,981,982,983,984,985,986,987,988,989,990,
    991,992,994,995,996,997,998,1493,1494,1495,1496,1497,1498,1499,1501,1500,1502,1503,1504,
    1505
};
/* end of tables written by tests/checks/unicode_tables.py */
/* The class of a code point. Finds the last index entry not above cp, then walks up to 16 runs. */
static int bitnet__class_of(uint32_t cp) {
    uint32_t low = 0, high = BITNET__CLASS_INDEX, start, i, stop;
    if (cp < 128) return bitnet__ascii_class[cp];
    while (high - low > 1) {                        /* index[low] <= cp < index[high] */
        uint32_t middle = (low + high) / 2;
        if (bitnet__class_index[middle] <= cp) low = middle;
        else high = middle;
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

/* The last of n > 0 sorted runs that does not begin above cp, or the first. A run begins at
   runs[i] >> shift. */
static uint32_t bitnet__find_run(const uint32_t *runs, uint32_t n, int shift, uint32_t cp) {
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (runs[middle] >> shift <= cp) low = middle;
        else high = middle;
    }
    return low;
}

/* Whether a code point beyond ASCII has general category P*, a part of OTHER. */
static int bitnet__is_punctuation(uint32_t cp) {
    const uint32_t run = bitnet__punctuation[bitnet__find_run(bitnet__punctuation,
                                                              BITNET__PUNCTUATION_RUNS, 6, cp)];
    return cp - (run >> 6) < (run & 63);
}

/* Class of the character at p, and its length in bytes. At the end: STOP and 0. At a byte that is
   not UTF-8: STOP and 1, so that the scanners treat it as the end of the text. */
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

/* ---- NFC ----
   Unicode Standard Annex 15: decompose, sort marks by their combining class, compose. A stable code
   point is never changed by what precedes it, so a text falls into segments: a stable code point
   and the unstable ones behind it. A segment of one stable code point is NFC already, and most
   texts have no other. */

/* Whether a code point begins a segment: it is no mark, NFC keeps it, and it never composes with
   what is before it. */
static int bitnet__is_stable(uint32_t cp) {
    uint32_t run;
    if (cp < 0x300 || cp - BITNET__STABLE_FROM < BITNET__STABLE_COUNT) return 1;
    run = bitnet__unstable[bitnet__find_run(bitnet__unstable, BITNET__UNSTABLE_RUNS, 11, cp)];
    return cp - (run >> 11) >= (run & 2047);
}

static uint32_t bitnet__combining_class(uint32_t cp) {
    const uint32_t run = bitnet__marks[bitnet__find_run(bitnet__marks, BITNET__MARK_RUNS, 11, cp)];
    return cp - (run >> 11) < (run >> 8 & 7) ? run & 255 : 0;
}

/* Hangul syllables are composed by arithmetic, of 19 leading consonants, 21 vowels and 27 trailing
   consonants or none. */
enum { BITNET__HANGUL = 0xAC00, BITNET__HANGUL_L = 0x1100, BITNET__HANGUL_V = 0x1161,
       BITNET__HANGUL_T = 0x11A7, BITNET__HANGUL_COUNT = 19 * 21 * 28 };

/* Writes the code points of cp's canonical decomposition, at most 4; returns how many. */
static size_t bitnet__decompose(uint32_t cp, uint64_t *out) {
    uint32_t seconds[3], n = 0;
    size_t count = 0;
    if (cp - BITNET__HANGUL < BITNET__HANGUL_COUNT) {
        const uint32_t i = cp - BITNET__HANGUL;
        out[count++] = BITNET__HANGUL_L + i / 588;
        out[count++] = BITNET__HANGUL_V + i / 28 % 21;
        if (i % 28) out[count++] = BITNET__HANGUL_T + i % 28;
        return count;
    }
    for (;;) {
        const uint32_t run = bitnet__find_run(bitnet__full_first, BITNET__FULL_RUNS, 0, cp);
        const uint32_t i = bitnet__full_start[run] + (cp - bitnet__full_first[run]);
        uint32_t entry;
        if (cp < bitnet__full_first[run] || i >= bitnet__full_start[run + 1]) break;
        entry = bitnet__full_entries[i];
        if (entry >> 21) seconds[n++] = bitnet__seconds[entry >> 21];
        cp = entry & 0x1FFFFF;
    }
    out[count++] = cp;
    while (n > 0) out[count++] = seconds[--n];
    return count;
}

/* The code point that a and b compose to, or 0. */
static uint32_t bitnet__compose(uint32_t a, uint32_t b) {
    uint32_t low = 0, high = BITNET__COMPOSED;
    if (a - BITNET__HANGUL_L < 19 && b - BITNET__HANGUL_V < 21)
        return BITNET__HANGUL + ((a - BITNET__HANGUL_L) * 21 + (b - BITNET__HANGUL_V)) * 28;
    if (a - BITNET__HANGUL < BITNET__HANGUL_COUNT && (a - BITNET__HANGUL) % 28 == 0 &&
        b - BITNET__HANGUL_T - 1 < 27)
        return a + (b - BITNET__HANGUL_T);
    while (low < high) {
        const uint32_t middle = (low + high) / 2, i = bitnet__composed[middle];
        const uint32_t first = bitnet__full_entries[i] & 0x1FFFFF;
        const uint32_t second = bitnet__seconds[bitnet__full_entries[i] >> 21];
        uint32_t run = 0, last = BITNET__FULL_RUNS;
        if (first < a || (first == a && second < b)) low = middle + 1;
        else high = middle;
        if (first != a || second != b) continue;
        while (last - run > 1) {                    /* the run that has entry i */
            const uint32_t at = (run + last) / 2;
            if (bitnet__full_start[at] <= i) run = at;
            else last = at;
        }
        return bitnet__full_first[run] + (i - bitnet__full_start[run]);
    }
    return 0;
}

static int bitnet__key_after(const void *arg, const void *a, const void *b) {
    (void)arg;
    return *(const uint64_t *)a > *(const uint64_t *)b;
}

/* Sorts each run of marks among n code points by class; marks of one class keep their order. */
static void bitnet__sort_marks(uint64_t *cps, size_t n) {
    bitnet__heap heap = {0, 8, 8, bitnet__key_after, 0};
    size_t from, i, k;
    uint64_t c, x;
    for (from = 0; from < n; from = i + 1) {
        /* bits 63-56: class; 55-21: place; 20-0: code point */
        for (i = from; i < n && (c = bitnet__combining_class((uint32_t)cps[i])) != 0; i++)
            cps[i] |= c << 56 | (uint64_t)(i - from) << 21;
        heap.first = cps + from;
        bitnet__heap_make(&heap, i - from, &x);
        for (k = i - from; k > 1; k--) bitnet__heap_pop(&heap, k, &x);
        for (k = from; k < i; k++) cps[k] &= 0x1FFFFF;
    }
}

/* Composes n sorted code points in place; returns how many remain. A mark composes with the last
   starter (a code point of class 0) unless something between them is of class 0, or of a class that
   is not lower. */
static size_t bitnet__compose_marks(uint64_t *cps, size_t n) {
    size_t i, out = 0, starter = 0;
    uint32_t before = 0;               /* the class of what is between, 0: there is nothing */
    int has_starter = 0;
    for (i = 0; i < n; i++) {
        const uint32_t cp = (uint32_t)cps[i], c = bitnet__combining_class(cp);
        const int free = has_starter && (out == starter + 1 || before < c);
        const uint32_t both = free ? bitnet__compose((uint32_t)cps[starter], cp) : 0;
        if (both) {
            cps[starter] = both;
            continue;
        }
        if (c == 0) {
            starter = out;
            has_starter = 1;
        }
        before = c;
        cps[out++] = cp;
    }
    return out;
}

/* The last of a run of ASCII characters, or the end: the others are segments of their own. */
static const uint8_t *bitnet__skip_ascii(const uint8_t *p, const uint8_t *end) {
    for (; end - p > 8 && !(bitnet__get_u64(p) & 0x8080808080808080u) && p[8] < 0x80; p += 8) {}
    while (end - p > 1 && p[0] < 0x80 && p[1] < 0x80) p++;
    return end - p == 1 && *p < 0x80 ? end : p;
}

/* The end of the segment that begins at p < end, and how many code points it has; 0: at p is a byte
   that is not UTF-8. */
static const uint8_t *bitnet__segment_end(const uint8_t *p, const uint8_t *end, size_t *count) {
    uint32_t cp, n = bitnet__utf8_decode(p, end, &cp);
    *count = n > 0;
    if (n == 0) return p + 1;
    for (p += n; p < end; p += n, ++*count) {
        n = bitnet__utf8_decode(p, end, &cp);
        if (n == 0 || bitnet__is_stable(cp)) break;
    }
    return p;
}

static int bitnet__is_stable_at(const uint8_t *p, const uint8_t *end) {
    uint32_t cp;
    bitnet__utf8_decode(p, end, &cp);
    return bitnet__is_stable(cp);
}

/* How many code points the longest segment of a text has that may not be NFC; 0: all is NFC. */
static size_t bitnet__longest_unstable(const uint8_t *p, const uint8_t *end) {
    size_t longest = 0, count;
    for (p = bitnet__skip_ascii(p, end); p < end; p = bitnet__skip_ascii(p, end)) {
        const uint8_t *from = p;
        p = bitnet__segment_end(p, end, &count);
        if (count > longest && (count > 1 || !bitnet__is_stable_at(from, end))) longest = count;
    }
    return longest;
}

/* Writes a text in NFC to out, at most 3 times its bytes; returns the length. Bytes that are not
   UTF-8 stay, and separate what is around them. cps: room for 4 times the longest segment. */
static size_t bitnet__nfc(const uint8_t *p, const uint8_t *end, uint64_t *cps, uint8_t *out) {
    const uint8_t *from = p, *stop;
    uint8_t *to = out;
    size_t count, n, i;
    for (p = bitnet__skip_ascii(p, end); p < end; p = bitnet__skip_ascii(p, end)) {
        stop = bitnet__segment_end(p, end, &count);
        if (count > 1 || (count == 1 && !bitnet__is_stable_at(p, end))) {
            memcpy(to, from, (size_t)(p - from));
            to += p - from;
            for (n = 0; count > 0; count--) {
                uint32_t cp;
                p += bitnet__utf8_decode(p, stop, &cp);
                n += bitnet__decompose(cp, cps + n);
            }
            bitnet__sort_marks(cps, n);
            n = bitnet__compose_marks(cps, n);
            for (i = 0; i < n; i++) to += bitnet__utf8_encode((uint32_t)cps[i], to);
            from = stop;
        }
        p = stop;
    }
    memcpy(to, from, (size_t)(end - from));
    to += end - from;
    return (size_t)(to - out);
}

/* =============================================================================================
   @selftest  does this build, on this machine, give the results that the scalar table defines?
   A kernel chooses its path by columns, rows and length, with thresholds that differ from table to
   table. Nothing here knows them: the shapes below cover ranges that go well past every threshold,
   and tests/machines/planted.py checks that a fault in any path is found.

   The scalar entry computes each shape once. A result does not depend on the rows and columns that
   are computed with it, so that also gives the results of all smaller shapes. An entry that is the
   scalar one is not compared.
   ============================================================================================= */

enum {
    BITNET__TEST_STRIDE = 4160,        /* the longest column of results has 4112 */
    BITNET__TEST_FLOATS = 8 * BITNET__TEST_STRIDE, /* 7 of them, a guard; or 8 of 16640 int8 */
    BITNET__TEST_WEIGHTS = 5 * 4 * 4120,   /* bytes of the largest matrix: 5 rows of F32 */
    BITNET__TEST_SUMS = 20 * 4096 / 64,    /* the most scale groups, or KV blocks, of all columns */
    BITNET__TEST_LENGTH = 96,          /* entries without rows: every length up to this */
    BITNET__TEST_MARGIN = 8192         /* guard bytes behind packed weights */
};

/* The entries that multiply rows with columns. KEYS and VALUES are those of an int8 cache. The
   columns of VALUES and MIX are weights of rows. */
enum { BITNET__TEST_TERNARY, BITNET__TEST_U4, BITNET__TEST_GROUPS, BITNET__TEST_KEYS,
       BITNET__TEST_VALUES, BITNET__TEST_DOT, BITNET__TEST_MIX };

/* Corners of a matrix with this many rows and columns: all columns, then `fewer` less each time;
   and the same with rows, or with KV blocks. The shapes of DOT also serve MIX, where fewer is 1. */
typedef struct bitnet__test_shape {
    int kind, n, rows, cols, fewer;
    int valid;                         /* 1: I2_S without a code 3; 2 to 5: with a single one */
} bitnet__test_shape;

static const bitnet__test_shape bitnet__test_shapes[] = {
    {BITNET__TEST_TERNARY, 128, 37, 40, 1, 0},         /* the ends of tiles and panels */
    {BITNET__TEST_TERNARY, 128, 70, 49, 7, 0}, {BITNET__TEST_TERNARY, 128, 304, 26, 25, 0},
    {BITNET__TEST_TERNARY, 384, 19, 34, 5, 0},         /* rows that end with a whole block of TL2 */
    {BITNET__TEST_TERNARY, 16640, 19, 8, 3, 0},        /* widened sums and a rest; runs of tiles */
    {BITNET__TEST_TERNARY, 2176, 35, 26, 9, 0},        /* several panels */
    {BITNET__TEST_TERNARY, 3328, 33, 39, 19, 0},       /* more activations than follow each other */
    {BITNET__TEST_TERNARY, 1152, 73, 59, 3, 1}, {BITNET__TEST_TERNARY, 128, 650, 17, 323, 1},
    {BITNET__TEST_TERNARY, 128, 70, 59, 65, 2}, {BITNET__TEST_TERNARY, 128, 70, 59, 65, 3},
    {BITNET__TEST_TERNARY, 128, 70, 59, 65, 4}, {BITNET__TEST_TERNARY, 128, 70, 59, 65, 5},
    {BITNET__TEST_U4, 128, 9, 13, 1, 0}, {BITNET__TEST_U4, 384, 37, 13, 3, 0},
    {BITNET__TEST_U4, 16384, 9, 2, 1, 0},              /* runs of tiles */
    {BITNET__TEST_GROUPS, 256, 37, 40, 1, 0}, {BITNET__TEST_GROUPS, 768, 70, 13, 3, 0},
    {BITNET__TEST_GROUPS, 512, 33, 150, 149, 0},       /* more columns than panels take at once */
    {BITNET__TEST_GROUPS, 256, 658, 17, 327, 0}, {BITNET__TEST_GROUPS, 256, 530, 2, 263, 0},
    {BITNET__TEST_GROUPS, 8448, 17, 2, 1, 0},          /* runs of tiles, and of units */
    {BITNET__TEST_KEYS, 4, 64, 5, 1, 0}, {BITNET__TEST_KEYS, 100, 192, 13, 1, 0},
    {BITNET__TEST_KEYS, 256, 192, 13, 1, 0}, {BITNET__TEST_KEYS, 128, 128, 20, 7, 0},
    {BITNET__TEST_VALUES, 36, 128, 5, 1, 0}, {BITNET__TEST_VALUES, 112, 192, 13, 1, 0},
    {BITNET__TEST_VALUES, 256, 192, 13, 1, 0}, {BITNET__TEST_VALUES, 288, 192, 20, 7, 0},
    {BITNET__TEST_DOT, 272, 37, 13, 1, 0}, {BITNET__TEST_DOT, 80, 70, 9, 3, 0},
    {BITNET__TEST_DOT, 37, 5, 5, 2, 0}, {BITNET__TEST_DOT, 4112, 5, 7, 1, 0}
};

typedef struct bitnet__test_entry {
    const char *name;
    size_t offset;                     /* in bitnet_kernels */
    int kind, type;                    /* of a matrix of floats, or of blocks */
    int form;                          /* 1: columns have 13 significant bits; of blocks: packed */
} bitnet__test_entry;

#define BITNET__ENTRY(name) #name, offsetof(bitnet_kernels, name)
static const bitnet__test_entry bitnet__test_entries[] = {
    {BITNET__ENTRY(dotrows_ternary), BITNET__TEST_TERNARY, 0, 0},
    {BITNET__ENTRY(dotrows_i2s), BITNET__TEST_TERNARY, 0, 0},
    {BITNET__ENTRY(dotrows_u4), BITNET__TEST_U4, 0, 0},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_Q2_0, 0},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_Q2_0, 1},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_Q1_0, 0},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_Q1_0, 1},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_PQ2_0, 0},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_PQ2_0, 1},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_TQ2_0, 0},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_TQ2_0, 1},
    {BITNET__ENTRY(dotrows_groups), BITNET__TEST_GROUPS, BITNET_TENSOR_PTQ1_0, 0},
    {BITNET__ENTRY(scores_i8), BITNET__TEST_KEYS, 0, 0},
    {BITNET__ENTRY(sumrows_i8), BITNET__TEST_VALUES, 0, 0},
    {BITNET__ENTRY(dotrows_f32), BITNET__TEST_DOT, BITNET_TENSOR_F32, 0},
    {BITNET__ENTRY(dotrows_f16), BITNET__TEST_DOT, BITNET_TENSOR_F16, 0},
    {BITNET__ENTRY(dotrows_bf16), BITNET__TEST_DOT, BITNET_TENSOR_BF16, 0},
    {BITNET__ENTRY(scores_f16), BITNET__TEST_DOT, BITNET_TENSOR_F16, 1},
    {BITNET__ENTRY(sumrows_f32), BITNET__TEST_MIX, BITNET_TENSOR_F32, 0},
    {BITNET__ENTRY(sumrows_f16), BITNET__TEST_MIX, BITNET_TENSOR_F16, 1}
};

/* Those that take one row. */
static const struct { const char *name; size_t offset; } bitnet__test_row_entries[] = {
    {BITNET__ENTRY(quantize)}, {BITNET__ENTRY(softmax)}, {BITNET__ENTRY(rope)},
    {BITNET__ENTRY(store_f16)}, {BITNET__ENTRY(dequantize)}, {BITNET__ENTRY(relu2_gate)},
    {BITNET__ENTRY(sigmoid_gate)}, {BITNET__ENTRY(rmsnorm)}, {BITNET__ENTRY(weigh_i8)},
    {BITNET__ENTRY(sigmoid)}
};
enum { BITNET__TEST_QUANTIZE, BITNET__TEST_SOFTMAX, BITNET__TEST_ROPE, BITNET__TEST_STORE,
       BITNET__TEST_DEQUANTIZE, BITNET__TEST_GATE, BITNET__TEST_SIGMOID, BITNET__TEST_NORM,
       BITNET__TEST_WEIGH, BITNET__TEST_SIGMOID_OF, BITNET__TEST_ROW_ENTRIES };
#undef BITNET__ENTRY

typedef struct bitnet__selftest {
    bitnet_kernels k;                  /* the tested table */
    const bitnet__test_entry *entry;
    uint64_t random;
    int n, rows, cols;                 /* of the corner that is being tested */
    int packs;                         /* the entry reads what pack made of w */
    size_t w_stride, x_stride, stride; /* elements from row to row of w, column to column of ... */
    float x[BITNET__TEST_FLOATS];      /* ... the columns, floats or int8, and ... */
    float want[BITNET__TEST_FLOATS], got[BITNET__TEST_FLOATS];     /* ... results, maybe int32 */
    float blank[BITNET__TEST_STRIDE];  /* what a column contains before a call, and a guard after */
    int32_t sums[BITNET__TEST_SUMS];   /* of columns, or of their scale groups */
    float scales[BITNET__TEST_SUMS];
    int32_t dots[2][BITNET__TEST_LENGTH];
    uint8_t w[BITNET__TEST_WEIGHTS];
    uint8_t *packed;                   /* behind this structure */
} bitnet__selftest;

/* ---- inputs ---- */

static int bitnet__test_below(bitnet__selftest *t, int n) {
    return (int)(bitnet__random(&t->random) * n);
}

/* Floats from -4 to 4. special 1: some are NaNs; 2: some are special numbers; 3: all are. */
static void bitnet__test_floats(bitnet__selftest *t, float *x, int count, int special) {
    static const uint32_t numbers[] = {
        0x7fc12345, 0x7f800000, 0xff800000, 0x00000000, 0x80000000,    /* NaN, infinities, 0 */
        0x7e967699, 0xfe967699, 0x71800001, 0xf1800001, 0x0d7fffff,    /* 1e38; 2^100, 2^-100 */
        0x8d7fffff, 0x0d800000, 0x00000001, 0x80400000,                /* subnormals */
        0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff000,                /* the end of F16 */
        0x387fc000, 0x38800000, 0x387fe000, 0x33000000, 0x33000001,    /* its subnormals */
        0x3f801000, 0x3f803000, 0x3f800fff, 0xbf801001,                /* its ties */
        0x3f000000, 0xbfc00000, 0x40200000, 0x42fe0000, 0xc2ff0000, 0x42b00000, 0xc3160000
    };
    const int kinds = special == 1 ? 1 : (int)(sizeof numbers / sizeof numbers[0]);
    int i;
    for (i = 0; i < count; i++)
        x[i] = special == 3 || (special && bitnet__test_below(t, 4) == 0)
                   ? bitnet__float_from_bits(numbers[bitnet__test_below(t, kinds)])
                   : (float)(bitnet__random(&t->random) * 8.0 - 4.0);
}

/* Rows of n random bytes from low to high. Every other row begins with n / 2 equal bytes, in turn
   low and high; four rows further on, these are the other rows. Whole rows of equal bytes would
   hide a wrong offset. */
static void bitnet__test_bytes(bitnet__selftest *t, uint8_t *p, int rows, int n, int low,
                               int high) {
    int r, i;
    for (r = 0; r < rows; r++) {
        const int kind = (r + r / 4) % 4, equal = kind % 2 ? n / 2 : 0;
        for (i = 0; i < n; i++)
            *p++ = (uint8_t)(i >= equal  ? low + bitnet__test_below(t, high - low + 1)
                             : kind == 1 ? low : high);
    }
}

/* Columns and matrix of an entry that takes int8, and the columns' sums. */
static void bitnet__test_fill_ints(bitnet__selftest *t) {
    const int8_t *q = (const int8_t *)t->x;
    const int bits = t->entry->kind == BITNET__TEST_U4 ? 4 : 2;
    int c, i;
    bitnet__test_bytes(t, (uint8_t *)t->x, t->cols, t->n, -128, 127);
    bitnet__test_bytes(t, t->w, t->rows, t->n * bits / 8, 0, 255);
    for (c = 0; c < t->cols; c++)
        for (i = t->sums[c] = 0; i < t->n; i++) t->sums[c] += *q++;
}

static const bitnet__blocks *bitnet__test_blocks(const bitnet__selftest *t) {
    return bitnet__type_info((uint32_t)t->entry->type)->groups;
}

/* The same for a matrix with scale groups, whose scales may be negative, subnormal or 0. */
static void bitnet__test_fill_groups(bitnet__selftest *t) {
    const bitnet__blocks *b = bitnet__test_blocks(t);
    const int groups = t->n / b->group;
    const int8_t *q = (const int8_t *)t->x;
    uint8_t *p = t->w;
    int r, i, j;
    bitnet__test_bytes(t, (uint8_t *)t->x, t->cols, t->n, -128, 127);
    for (i = 0; i < t->cols * groups; i++) {
        t->scales[i] = (float)bitnet__random(&t->random);
        for (j = t->sums[i] = 0; j < b->group; j++) t->sums[i] += *q++;
    }
    for (r = 0; r < t->rows * groups; r++, p += b->bytes) {
        for (i = 0; i < b->bytes; i++) {
            p[i] = (uint8_t)bitnet__test_below(t, 256);
            if (b->group == 256) p[i] ^= (uint8_t)(p[i] & p[i] >> 1 & 0x55);   /* no code 3 */
        }
        bitnet__put_u16(p + b->scale_at, (uint32_t)bitnet__test_below(t, 0x4000) |
                                         (uint32_t)(r % 3 ? 0 : 0x8000));
    }
}

/* The same for an int8 cache. */
static void bitnet__test_fill_cache(bitnet__selftest *t) {
    const int values = t->entry->kind == BITNET__TEST_VALUES, stride = (int)t->x_stride;
    const int8_t *q = (const int8_t *)t->x;
    int c, i;
    bitnet__test_bytes(t, (uint8_t *)t->x, t->cols, stride, values ? 0 : -127, 127);
    bitnet__test_bytes(t, t->w, t->rows, 4 + t->n, 0, 255);
    bitnet__test_floats(t, t->got, t->rows, 0);
    for (i = 0; i < t->rows; i++)
        bitnet__put_u32(t->w + (size_t)(i / 64) * bitnet__kv_block_bytes(t->n) + i % 64 * 4,
                        bitnet__float_bits(t->got[i]));
    for (c = 0; c < t->cols; c++)
        for (i = t->sums[c] = 0; i < stride; i++) t->sums[c] += *q++;
    for (i = 0; values && i < t->cols * stride / 64; i++)
        t->scales[i] = (float)bitnet__random(&t->random);
}

/* The same for floats. Some rows have F16 subnormals, an infinity or a NaN. */
static void bitnet__test_fill_floats(bitnet__selftest *t) {
    const int stride = (int)t->w_stride, columns = t->cols * (int)t->x_stride;
    int r, i;
    bitnet__test_floats(t, t->x, columns, 0);
    for (i = 0; i < columns && t->entry->form; i++) t->x[i] = bitnet__to_f13(t->x[i]);
    bitnet__test_floats(t, t->got, t->rows * stride, 0);
    for (i = 0; i < t->rows * stride; i++) {
        uint32_t bits = bitnet__float_bits(t->got[i]);
        r = i / stride;
        if (r % 7 == 3) bits = bitnet__float_bits(t->got[i] * 3.8e-6f);
        if (r % 11 == 5 && i % stride == t->n / 2) bits = 0x7f800000;
        if (r % 13 == 6 && i % stride == t->n - 1) bits = 0x7fc00000;
        if (t->entry->type == BITNET_TENSOR_F32) bitnet__put_u32(t->w + 4 * i, bits);
        else if (t->entry->type == BITNET_TENSOR_BF16) bitnet__put_u16(t->w + 2 * i, bits >> 16);
        else bitnet__put_u16(t->w + 2 * i, bitnet__f32_to_f16(bitnet__float_from_bits(bits)));
    }
}

/* ---- rows with columns ---- */

/* n elements of 4 bytes: the same bits or, of floats, any two NaNs. */
static int bitnet__test_same(const float *a, const float *b, size_t n, int floats) {
    size_t i;
    for (i = 0; memcmp(a, b, n * sizeof *a) && i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) && !(floats && a[i] != a[i] && b[i] != b[i])) return 0;
    return 1;
}

/* What dotrows_groups of a table with pack_groups reads of blocks at w. */
static const uint8_t *bitnet__test_pack_groups(const bitnet__selftest *t, const bitnet_kernels *k,
                                               const uint8_t *w) {
    const bitnet__blocks *b = bitnet__test_blocks(t);
    const size_t row = bitnet__blocks_bytes(b, t->n, 1);
    int r;
    for (r = 0; r < t->rows; r += BITNET__PACK_ROWS)
        k->pack_groups(b, w + (size_t)r * row, t->n, bitnet__min(t->rows - r, BITNET__PACK_ROWS),
                       t->packed + (size_t)r * row);
    return t->packed;
}

/* The entry of table k, for t->cols columns from number `from` on, and a guard column. out is for
   float or int32_t, as the entry has it. */
static void bitnet__test_multiply(const bitnet__selftest *t, const bitnet_kernels *k,
                                  const uint8_t *w, int from, void *out) {
    const size_t first = (size_t)from * t->x_stride;
    const int8_t *q = (const int8_t *)t->x + first;
    union {
        void (*ints)(const bitnet__dots *);
        void (*groups)(const bitnet__grouped *);
        void (*keys)(const uint8_t *, const int8_t *, const int32_t *, int, int, int, float *,
                     size_t);
        void (*values)(const uint8_t *, const uint8_t *, const float *, size_t, int, int, int, int,
                       int, float *);
        void (*dot)(const uint8_t *, const float *, int, int, int, float *, size_t);
        void (*mix)(const uint8_t *, size_t, const float *, size_t, int, int, int, float *);
    } f;
    int c;
    for (c = 0; c <= t->cols; c++)
        memcpy((float *)out + (size_t)c * t->stride, t->blank, t->stride * sizeof(float));
    memcpy(&f, (const char *)k + t->entry->offset, sizeof f);
    if (t->entry->kind <= BITNET__TEST_U4) {
        const bitnet__dots d = {w, q, t->sums + from, t->n, t->rows, t->cols, (int32_t *)out,
                                t->stride};
        f.ints(&d);
    } else if (t->entry->kind == BITNET__TEST_GROUPS) {
        const bitnet__blocks *b = bitnet__test_blocks(t);
        const int at = from * (t->n / b->group);
        const int packed = t->entry->form && k->pack_groups;
        const bitnet__grouped d = {packed ? bitnet__test_pack_groups(t, k, w) : w, b, q,
                                   t->sums + at, t->scales + at, t->n, t->rows, t->cols,
                                   t->n > 256, (float *)out, t->stride, packed};
        f.groups(&d);
    } else if (t->entry->kind == BITNET__TEST_KEYS)
        f.keys(w, q, t->sums + from, t->n, t->rows, t->cols, (float *)out, t->stride);
    else if (t->entry->kind == BITNET__TEST_VALUES)            /* the last t->stride elements */
        f.values(w, (const uint8_t *)q, t->scales + (size_t)from * (t->x_stride / 64), t->x_stride,
                 t->n, t->n - (int)t->stride, (int)t->stride, t->rows, t->cols, (float *)out);
    else if (t->entry->kind == BITNET__TEST_DOT)
        f.dot(w, t->x + first, t->n, t->rows, t->cols, (float *)out, t->stride);
    else f.mix(w, t->w_stride, t->x + first, t->x_stride, t->n, t->rows, t->cols, (float *)out);
}

/* 1 if pack refuses an invalid code 3 wherever it is. */
static int bitnet__test_refusals(bitnet__selftest *t) {
    int i, refused = 1;
    for (i = 0; i < t->n && refused; i++) {
        uint8_t *p = t->w + i * 11 % t->rows * (t->n / 4) + i / 4;
        const uint8_t old = *p;
        *p |= (uint8_t)(3 << i % 4 * 2);
        refused = t->k.pack(t->w, t->n, t->rows, t->packed);
        *p = old;
    }
    return refused;
}

/* Takes the invalid codes 3 out of the I2_S rows at t->w. */
static void bitnet__test_make_valid(bitnet__selftest *t) {
    const int bytes = t->rows * (t->n / 4);
    int i;
    for (i = 0; i < bytes; i++) t->w[i] ^= (uint8_t)(t->w[i] & t->w[i] >> 1 & 0x55);
}

/* Makes all codes 0 or 2, but one 3: place 0 is the first byte, 3 the last one. Nor is there one in
   front of the rows, where a kernel may not look for it. */
static void bitnet__test_put_code3(bitnet__selftest *t, int place) {
    const int bytes = t->rows * (t->n / 4);
    int i;
    memset(t->scales, 0, sizeof t->scales);
    memset(t->dots, 0, sizeof t->dots);
    for (i = 0; i < bytes; i++) t->w[i] &= 0xaa;
    t->w[(bytes - 1) * place / 3] |= (uint8_t)(3 << 2 * place);
}

/* Packs the I2_S rows at t->w, without codes 3: one row pack, another, and the rest. Of the first
   shape (first: 1) tests more: that codes 3 are refused, and every bit of TL2_R16, which files
   have. */
static const char *bitnet__test_pack(bitnet__selftest *t, int first) {
    const bitnet_kernels *k = &t->k;
    const size_t row_bytes = (size_t)(t->n / 4);
    const size_t packed = k->packed_bytes(t->n, t->rows);
    size_t at;
    int r, count;
    bitnet__test_make_valid(t);
    memset(t->packed, 0xa5, packed);
    memcpy(t->packed + packed, t->blank, BITNET__TEST_MARGIN);
    if (first && !bitnet__test_refusals(t)) return "pack";
    for (r = 0; r < t->rows; r += count) {
        count = r < 2 * k->pack_rows ? bitnet__min(k->pack_rows, t->rows - r) : t->rows - r;
        at = k->packed_bytes(t->n, r);
        if (at > packed || k->packed_bytes(t->n, count) > packed - at) return "packed_bytes";
        if (k->pack(t->w + (size_t)r * row_bytes, t->n, count, t->packed + at)) return "pack";
    }
    if (first && bitnet__reads_tl2_r16(k) &&
        bitnet__hash(BITNET__HASH_START, t->packed, packed) != 0x3fc2883923bf51a5u)
        return "pack";
    return memcmp(t->packed + packed, t->blank, BITNET__TEST_MARGIN) ? "pack" : 0;
}

/* 1 if the sums are over rows; otherwise each row has its own. */
static int bitnet__test_mixes(const bitnet__selftest *t) {
    return t->entry->kind == BITNET__TEST_MIX || t->entry->kind == BITNET__TEST_VALUES;
}

/* 1 if computing only `rows` rows from `first` on and `cols` columns from `from` on gives the same
   as in the whole, and writes nothing else. first is 0 unless rows are packed. */
static int bitnet__test_corner(bitnet__selftest *t, int first, int rows, int from, int cols) {
    const int kind = t->entry->kind;
    int c;
    t->rows = rows;
    t->cols = cols;
    bitnet__test_multiply(t, &t->k, t->packs ? t->packed + t->k.packed_bytes(t->n, first) : t->w,
                          from, t->got);
    for (c = 0; c <= cols; c++) {
        const float *want = t->want + (size_t)(from + c) * t->stride + first;
        const float *got = t->got + (size_t)c * t->stride;
        const size_t n = c == cols ? 0 : bitnet__test_mixes(t) ? t->stride : (size_t)rows;
        if (!bitnet__test_same(want, got, n, kind >= BITNET__TEST_GROUPS) ||
            memcmp(got + n, t->blank + n, (t->stride - n) * sizeof *got)) return 0;
    }
    return 1;
}

/* Tests the corners of a shape. Up to four columns are tested in four places, to meet columns of
   each kind. Packed rows are also read from the second row pack on. */
static int bitnet__test_corners(bitnet__selftest *t, const bitnet__test_shape *s) {
    const int pack = t->k.pack_rows, mix = bitnet__test_mixes(t);
    const int unit = t->entry->kind == BITNET__TEST_KEYS ? BITNET__KV_BLOCK : 1;
    int i, from, cols;
    for (i = s->cols; i > 0; i -= mix ? 1 : s->fewer)
        for (from = 0; from == 0 || (from < 4 && i <= 4 && from + i <= s->cols); from++)
            if (!bitnet__test_corner(t, 0, s->rows, from, i)) return 0;
    for (i = s->rows; i > 0 && !mix; i -= s->fewer * unit) {
        cols = 1 + i * 7 % s->cols;
        if (!bitnet__test_corner(t, 0, i, s->cols - cols, cols)) return 0;
    }
    return !t->packs || pack >= s->rows ||
           bitnet__test_corner(t, pack, s->rows - pack, 0, s->cols);
}

/* Tests the entry with a shape. Returns the name of the entry that fails; 0: none. The columns of
   VALUES are 63 blocks or more apart, since a wrong stride may be right for few. */
static const char *bitnet__test_one_shape(bitnet__selftest *t, const bitnet__test_shape *s) {
    const int kind = t->entry->kind, mix = kind == BITNET__TEST_MIX;
    const int values = kind == BITNET__TEST_VALUES;
    const char *bad = 0;
    t->n = s->n;
    t->rows = s->rows;
    t->cols = s->cols;
    t->w_stride = (size_t)(mix ? s->n + 8 : s->n);
    t->x_stride = (size_t)(mix ? s->rows + 3 : values ? s->rows + 3904 : s->n);
    t->stride = (size_t)(mix ? s->n : values ? s->n - s->n / 128 * 16 : s->rows + 3);
    if (kind <= BITNET__TEST_U4) bitnet__test_fill_ints(t);
    else if (BITNET__GROUPS && kind == BITNET__TEST_GROUPS) bitnet__test_fill_groups(t);
    else if (BITNET__KV_I8 && (kind == BITNET__TEST_KEYS || values)) bitnet__test_fill_cache(t);
    else bitnet__test_fill_floats(t);
    if (s->valid) bitnet__test_make_valid(t);
    if (s->valid > 1) bitnet__test_put_code3(t, s->valid - 2);
    if (t->packs) bad = bitnet__test_pack(t, s == bitnet__test_shapes);
    bitnet__test_multiply(t, &bitnet__kernels_scalar, t->w, 0, t->want);
    return bad ? bad : bitnet__test_corners(t, s) ? 0 : t->entry->name;
}

/* 1 if the entry at this offset is the scalar one. */
static int bitnet__test_is_scalar(const bitnet__selftest *t, size_t offset) {
    return !memcmp((const char *)&t->k + offset, (const char *)&bitnet__kernels_scalar + offset,
                   sizeof(void (*)(void)));
}

/* 1 if the entry needs no test, because it is the scalar one, one that was tested before it,
   or one that reads no such blocks. */
static int bitnet__test_is_known(const bitnet__selftest *t) {
    const int packed = t->entry->kind == BITNET__TEST_GROUPS && t->entry->form;
    if (packed && !t->k.pack_groups) return 1;
    return !t->packs && (bitnet__test_is_scalar(t, t->entry->offset) ||
                         (t->entry->offset == offsetof(bitnet_kernels, dotrows_i2s) &&
                          t->k.dotrows_i2s == t->k.dotrows_ternary));
}

static const char *bitnet__test_one_entry(bitnet__selftest *t, const bitnet__test_entry *e) {
    const bitnet__test_shape *s = bitnet__test_shapes;
    const size_t count = sizeof bitnet__test_shapes / sizeof *s;
    const char *bad = 0;
    t->entry = e;
    t->packs = e->offset == offsetof(bitnet_kernels, dotrows_ternary) && t->k.pack;
    t->random = 1;                     /* an entry gets the same numbers whatever the others are */
    if (bitnet__test_is_known(t)) return 0;
    for (; s < bitnet__test_shapes + count && !bad; s++)
        if (s->kind == bitnet__min(e->kind, BITNET__TEST_DOT)) bad = bitnet__test_one_shape(t, s);
    return bad;
}

/* ---- one row ---- */

/* An entry of table k, from t->x to y, with a guard behind the results. Way 1 of those that can
   work in place does, and of the others has other arguments. */
static void bitnet__test_row(const bitnet__selftest *t, const bitnet_kernels *k, int entry,
                             int way, int rot, int special, float *y) {
    const float *x = way ? y : t->x, *gain = t->x + BITNET__TEST_LENGTH;
    const float *angles = gain + BITNET__TEST_LENGTH;
    const int n = t->n, dots = special % 2;
    int32_t sum;
    memcpy(y, t->blank, ((size_t)n + 32) * sizeof *y);
    if (way || entry == BITNET__TEST_SOFTMAX) memcpy(y, t->x, (size_t)n * sizeof *y);
    switch (entry) {
        case BITNET__TEST_QUANTIZE:
            y[n + 1] = k->quantize(t->x, n, (int8_t *)y, &sum);
            memcpy(y + n, &sum, sizeof sum);
            break;
        case BITNET__TEST_SOFTMAX: k->softmax(y, n, way ? 3.0f : 0.5f, way); break;
        case BITNET__TEST_ROPE:
            k->rope(x, angles, rot, n, way ? special / 2 : special % 2, y);
            break;
        case BITNET__TEST_STORE: k->store_f16(t->x, n, (uint8_t *)y); break;
        case BITNET__TEST_DEQUANTIZE: k->dequantize(t->dots[dots], 0.1f, n, way, y); break;
        case BITNET__TEST_GATE:
            k->relu2_gate(way ? gain : t->x, way ? t->x : gain, n, y);
            break;
        case BITNET__TEST_SIGMOID:
            k->sigmoid_gate(t->x, gain, way ? -1.6f : -1.0f, way ? -0.07f : 0.0f, n, y);
            break;
        case BITNET__TEST_WEIGH: {     /* of heads of 4 elements */
            const int rows = bitnet__round_page(n);
            k->weigh_i8(t->x, t->w, 4, rows, way ? n * 3 / 4 : -1, n, (uint8_t *)y, y + rows / 4);
            break;
        }
        case BITNET__TEST_SIGMOID_OF: k->sigmoid(x, way ? y : gain, n, y); break;
        default: k->rmsnorm(x, gain, n, 1e-5f, y); break;
    }
}

/* Runs the entries that take one row on both tables. Returns the name of one that differs. */
static const char *bitnet__test_length(bitnet__selftest *t, int special) {
    const int n = t->n;
    int i, rot, way;
    t->random = (uint64_t)(4 * n + special);
    bitnet__test_floats(t, t->x, 3 * BITNET__TEST_LENGTH, 0);
    bitnet__test_floats(t, t->x, n, special);
    for (i = 0; i < n && special == 0 && n % 32 == 0; i++) t->x[i] *= i ? 0.01f : 0.25f;
    for (i = 0; i < n; i++) {
        t->dots[0][i] = bitnet__test_below(t, 2001) - 1000;
        t->dots[1][i] = (bitnet__test_below(t, 1 << 15) - (1 << 14)) * (1 << 14);
    }
    bitnet__test_floats(t, t->want, 2 * BITNET__KV_BLOCK, special);    /* scales of a cache */
    for (i = 0; i < 2 * BITNET__KV_BLOCK; i++)
        bitnet__put_u32(t->w + (size_t)(i / 64) * bitnet__kv_block_bytes(4) + i % 64 * 4,
                        bitnet__float_bits(t->want[i]));
    for (i = 0; i < BITNET__TEST_ROW_ENTRIES; i++) {
        if (bitnet__test_is_scalar(t, bitnet__test_row_entries[i].offset)) continue;
        for (rot = 0; rot <= (i == BITNET__TEST_ROPE ? n : 0); rot += 2)
            for (way = 0; way < 2; way++) {
                bitnet__test_row(t, &bitnet__kernels_scalar, i, way, rot, special, t->want);
                bitnet__test_row(t, &t->k, i, way, rot, special, t->got);
                if (!bitnet__test_same(t->want, t->got, (size_t)n + 32, 1))
                    return bitnet__test_row_entries[i].name;
            }
    }
    return 0;
}

/* ---- a recurrent state, and blocks ---- */

/* Columns of a state, for t->cols tokens: n keys, t->rows values. The state stands in want or got,
   and behind it what is read of it, in rows that are longer than needed. */
static int bitnet__test_delta(bitnet__selftest *t, int special) {
    const size_t room = 128 * BITNET__SLICE + 8 * (BITNET__SLICE + 5);
    float *const y[2] = {t->want, t->got};
    bitnet__delta d;
    int i;
    bitnet__test_floats(t, t->x, 4000, special);
    bitnet__test_floats(t, t->want, (int)room, special);
    memcpy(t->got, t->want, room * sizeof(float));
    d.n_keys = t->n;
    d.n_values = t->rows;
    d.n_tokens = t->cols;
    d.stride = (size_t)(2 * t->n + t->rows + 3);
    d.gate_stride = 3;
    d.out_stride = (size_t)t->rows + 5;
    d.q = t->x;
    d.k = d.q + t->n;
    d.v = d.k + t->n;
    d.decay = t->x + 3900;
    d.beta = d.decay + 1;
    for (i = 0; i < 2; i++) {
        d.state = y[i];
        d.out = y[i] + t->n * t->rows + 3;
        (i ? &t->k : &bitnet__kernels_scalar)->delta_rule(&d);
    }
    return bitnet__test_same(t->want, t->got, room, 1);
}

/* Three blocks of n elements. */
static int bitnet__test_hadamard(bitnet__selftest *t, int special) {
    bitnet__test_floats(t, t->want, 3 * t->n + 16, special);
    memcpy(t->got, t->want, (size_t)(3 * t->n + 16) * sizeof(float));
    bitnet__kernels_scalar.hadamard(t->want, 3 * t->n, t->n);
    t->k.hadamard(t->got, 3 * t->n, t->n);
    return bitnet__test_same(t->want, t->got, (size_t)(3 * t->n + 16), 1);
}

static const char *bitnet__test_states(bitnet__selftest *t) {
    static const struct { int keys, values, tokens; } shapes[] = {
        {1, 1, 1}, {2, 16, 1}, {3, 16, 2}, {16, 15, 3}, {32, 32, 5}, {64, 31, 2}, {126, 16, 4},
        {128, 32, 1}, {128, 32, 7}, {128, 17, 2}
    };
    int i, special;
    t->random = 1;
    for (special = 0; special < 4; special++) {
        t->rows = t->cols = 1;
        for (t->n = 1; t->n <= 4096; t->n *= 2)
            if (!bitnet__test_hadamard(t, special)) return "hadamard";
        for (i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
            t->n = shapes[i].keys;
            t->rows = shapes[i].values;
            t->cols = shapes[i].tokens;
            if (!bitnet__test_delta(t, special)) return "delta_rule";
        }
    }
    return 0;
}

/* Tests all entries; *t then says where the first that differs is. */
BITNET__COLD const char *bitnet__test_table(bitnet__selftest *t) {
    const size_t count = sizeof bitnet__test_entries / sizeof bitnet__test_entries[0];
    const char *bad = 0;
    size_t i;
    int special;
    bitnet__test_floats(t, t->blank, BITNET__TEST_STRIDE, 0);
    for (t->n = t->rows = t->cols = 1; t->n <= BITNET__TEST_LENGTH; t->n++)
        for (special = 0; special < 4; special++)
            if ((bad = bitnet__test_length(t, special)) != 0) return bad;
    for (i = 0; i < count && !bad; i++) bad = bitnet__test_one_entry(t, &bitnet__test_entries[i]);
    return bad ? bad : bitnet__test_states(t);
}

/* ---- the compiler's arithmetic ---- */

/* A hash of results of @math, which no table replaces: the same on every machine. */
static uint32_t bitnet__math_hash(void) {
    uint64_t bits, h = 0;
    double y[5];
    int i, j;
    for (i = 1; i <= 40; i++) {
        volatile double x = 0.40625 * i;           /* volatile: computed at run time */
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

/* Tests the arithmetic by scalar dot products in which all but these elements are 0. Half an ulp is
   lost when it is added to 1, but not to 1 + ulp. With a = 1 + 2^-12, a^2 rounds to 1 + 2^-11; a
   fused or wider multiply-add would keep 2^-24 of it. Added to 2^24, each 1 alone is lost, but two
   together are not. */
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
    volatile float one = 1.0f;                     /* volatile: unknown to the compiler */
    float x[32], y;
    uint8_t w[sizeof x];
    size_t i, j;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(x, 0, sizeof x);
        memset(w, 0, sizeof w);
        for (j = 0; j < 5; j++) {
            bitnet__put_u32(w + 4 * at[j], bitnet__float_bits(cases[i].w[j]));
            x[at[j]] = cases[i].x[j] * one;
        }
        bitnet__dotrows_f32_scalar(w, x, 32, 1, 1, &y, 1);
        if (bitnet__float_bits(y) != bitnet__float_bits(cases[i].sum)) return cases[i].bad;
    }
    /* The compiler may treat other sums differently from the dot product's, which may use SIMD. */
    y = one * a;
    if (y * a * one - 1.00048828125f * one != 0.0f) return contracts;
    if (bitnet__round13(one + ulp) != 1.0f) return reorders;
    y = -0.0f * one;
    if (bitnet__float_bits(y + 0.0f) != 0)
        return "this build takes -0 for 0; compile without -fno-signed-zeros";
    if (5.0f * one / 3.0f != 1.66666663f)
        return "this build multiplies by a reciprocal where it should divide; compile without "
               "-freciprocal-math";
    if (bitnet__math_hash() != 0x0bd2fd98u)
        return "exp, log, sqrt, sin or cos differ from other builds; compile without options that "
               "relax floating point";
    return 0;
}

/* The size of t->packed. */
static size_t bitnet__test_packed_size(const bitnet_kernels *k) {
    const bitnet__test_shape *s = bitnet__test_shapes;
    size_t size = k->pack_groups ? BITNET__TEST_WEIGHTS + BITNET__TEST_WEIGHTS / 2 : 0;
    for (; k->pack && s->kind == BITNET__TEST_TERNARY; s++)
        if (k->packed_bytes(s->n, s->rows) > size) size = k->packed_bytes(s->n, s->rows);
    return size + BITNET__TEST_MARGIN;
}

BITNET_API bitnet_result bitnet_selftest(const bitnet_kernels *k, bitnet_error *err) {
    const bitnet_allocator a = {0, 0, 0, {0, 0}};
    bitnet__selftest *t;
    bitnet_result r;
    size_t size;
    const char *bad = bitnet__check_arithmetic();
    if (bad) return bitnet__fail(err, BITNET_ERR_SELFTEST, "%s", bad);
    if (!k) return bitnet__fail(err, BITNET_ERR_ARG, "the kernel table is NULL");
    if ((r = bitnet__check_kernels(k, err))) return r;
    size = sizeof *t + bitnet__test_packed_size(k);
    t = (bitnet__selftest *)bitnet__alloc(&a, size);
    if (!t)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for the self-test (%llu bytes)",
                            (unsigned long long)size);
    t->k = *k;
    t->packed = (uint8_t *)(t + 1);
    bad = bitnet__test_table(t);
    if (bad)
        r = bitnet__fail(err, BITNET_ERR_SELFTEST, "kernels '%s': %s differs from scalar at n = "
                         "%d, %d rows, %d columns", k->name, bad, t->n, t->rows, t->cols);
    bitnet__free(&a, t);
    return r;
}
#ifdef __cplusplus
}
#endif

#if defined(__clang__)
  #pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
  #pragma GCC pop_options
  #ifdef BITNET__OPTIMIZED             /* gcc forgets that in C */
    #undef __OPTIMIZE__
  #endif
#elif defined(_MSC_VER) && (_MSC_VER < 1930 || defined(_M_FP_CONTRACT))   /* the default */
  #pragma fp_contract(on)
#endif
#if defined(__GNUC__) || defined(__clang__)
  #pragma GCC diagnostic pop
#endif
#endif /* BITNET__GOES_ON */
#endif /* BITNET_IMPLEMENTATION */

/* MIT License

Copyright (c) 2026 the bitnet.h authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
