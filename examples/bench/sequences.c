#include "sequences.h"
#include "limits.h"
#include "model.h"
#include "report.h"
#include <stdio.h>
#include <stdlib.h>

enum { BEGINNING = 8, MAX_LISTED = 64, MAX_SEQUENCES = 4096 };
enum { N_WRITERS = 8, PROMPT = 512 };  /* the sequences and the prompt beside them */
enum { PAGE = 64 };                    /* of the KV cache; a writer needs one, and one to spare */

/* ---- writing together ---- */

static void eval_inputs(writers *w, int n) {
    bitnet_error err;
    if (bitnet_eval_many(w->ctx, w->inputs, n, &err)) fail(1, "%s", err.text);
}

static const bitnet_token beginning[BEGINNING] = {0, 1, 2, 3, 4, 5, 6, 7};

/* The state of some models cannot go back there: then the beginning is evaluated now. */
static void go_to_beginning(writers *w, int seq) {
    bitnet_input in = {0};
    bitnet_error err;
    if (!bitnet_seq_rewind(w->ctx, seq, BEGINNING, NULL) && !bitnet_seq_again(w->ctx, seq)) return;
    in.seq = seq;
    in.tokens = beginning;
    in.n_tokens = BEGINNING;
    if (bitnet_seq_rewind(w->ctx, seq, 0, &err) || bitnet_eval_many(w->ctx, &in, 1, &err))
        fail(1, "%s", err.text);
}

/* The beginning is evaluated once and copied. */
static void begin_alike(writers *w) {
    int i;
    for (i = 0; i < w->n; i++) {
        w->inputs[i].seq = i;
        w->inputs[i].n_tokens = 1;
        w->inputs[i].tokens = &w->tokens[i];
        w->inputs[i].n_logits = 1;
    }
    w->inputs[0].tokens = beginning;
    w->inputs[0].n_tokens = BEGINNING;
    eval_inputs(w, 1);
    w->inputs[0].tokens = w->tokens;
    w->inputs[0].n_tokens = 1;
    for (i = 1; i < w->n; i++)
        if (bitnet_seq_copy(w->ctx, 0, i, BEGINNING, NULL)) fail(1, "cannot copy a sequence");
}

void open_writers(writers *w, const bitnet_model *m, int n, int chunk, int n_threads,
                  void (*step_fn)(void *, const char *, int, int)) {
    bitnet_input *inputs = (bitnet_input *)calloc((size_t)n + 1, sizeof *inputs);
    bitnet_token *tokens = (bitnet_token *)malloc((size_t)n * sizeof *tokens);
    bitnet_ctx_params cp = {0};
    bitnet_error err;
    w->n = n;
    w->inputs = inputs;
    w->tokens = tokens;
    if (!inputs || !tokens) fail(1, "no memory for sequences");
    cp.n_seqs = n + (chunk > 0);
    cp.n_ctx = 2 * PAGE + (chunk > 0 ? PROMPT : 0);
    cp.n_batch = n + chunk > BEGINNING ? n + chunk : BEGINNING;    /* a pass is one batch */
    cp.n_threads = n_threads;
    cp.hooks.step_fn = step_fn;
    cp.kv_type = kv_type;
    if (bitnet_ctx_create(m, &cp, &w->ctx, &err)) fail(1, "%s", err.text);
    begin_alike(w);
    write_together(w, 1, 0);           /* each gets memory of its own */
}

void close_writers(writers *w) {
    bitnet_ctx_free(w->ctx);
    free(w->inputs);
    free(w->tokens);
}

void write_together(writers *w, int passes, int chunk) {
    static bitnet_token prompt[PROMPT];
    int pass, i;
    double head_bytes = 0;
    for (i = 0; i < w->n; i++) {
        go_to_beginning(w, i);
        w->tokens[i] = (bitnet_token)(i * 7919 % info.n_vocab);
    }
    for (i = 0; i < PROMPT; i++) prompt[i] = (bitnet_token)(i * 104729 % info.n_vocab);
    if (chunk > 0) bitnet_seq_rewind(w->ctx, w->n, 0, NULL);
    w->start = seconds();
    for (pass = 0; pass < passes; pass++) {
        w->inputs[w->n].seq = w->n;
        w->inputs[w->n].tokens = prompt + pass * chunk;
        w->inputs[w->n].n_tokens = chunk;
        eval_inputs(w, w->n + (chunk > 0));
        for (i = 0; i < w->n; i++) {
            w->tokens[i] = bitnet_sample(w->ctx, w->inputs[i].row, 0, NULL);
            head_bytes += (double)bitnet_ctx_head_bytes(w->ctx);
        }
    }
    w->head_bytes = head_bytes / passes;
}

/* ---- what is measured ---- */

typedef struct row {                   /* of the first table: sequences; of the second: a chunk */
    int n;
    writers *w;
    double speed[MAX_ROUNDS];          /* passes per second */
} row;

static row counts[MAX_LISTED], chunks[1 + MAX_LISTED];     /* the first chunk is 0: no prompt */
static writers many[MAX_LISTED], beside;
static int n_counts, n_chunks, threads;
static const bitnet_kernels *kernels;
/* GB/s and GMAC/s. */
static double bandwidth[MAX_LISTED * MAX_ROUNDS], peak[MAX_LISTED * MAX_ROUNDS];

/* Reads the numbers that follow the option a[0]; returns how many they are. */
static int read_list(row *rows, char **a, int high) {
    const char *text = a[1] ? a[1] : "";
    char says[256], *end = says;
    int n;
    snprintf(says, sizeof says, " needs up to %d numbers from 1 to %d with commas between them, "
             "not '%.64s'", (int)MAX_LISTED, high, text);
    for (n = 0; ; text = end + 1) {
        const long v = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : 0;
        if (v < 1 || v > high || n == MAX_LISTED || (*end && *end != ','))
            fail(2, "%s%s", a[0], says);
        rows[n++].n = (int)v;
        if (!*end) return n;
    }
}

int list_sequences(char **a) { return n_counts = read_list(counts, a, MAX_SEQUENCES); }
int list_chunks(char **a) { return n_chunks = 1 + read_list(chunks + 1, a, PROMPT); }

void list_all(int quick) {
    char sequences[] = "1,2,4,8,16,32", few_sequences[] = "1,4,16";
    char sizes[] = "16,32,64,128", few_sizes[] = "32,128";
    char *a[2] = {0, 0};
    a[1] = quick ? few_sequences : sequences;
    list_sequences(a);
    a[1] = quick ? few_sizes : sizes;
    list_chunks(a);
}

/* As many passes as the prompt has whole chunks. */
static int passes_of(int chunk) { return chunk > 0 ? PROMPT / chunk : N_DECODE; }

static double passes_per_second(writers *w, int chunk) {
    write_together(w, passes_of(chunk), chunk);
    return passes_of(chunk) / (seconds() - w->start);
}

static void open_rows(const bitnet_model *m) {
    int i, largest = 0;
    for (i = 0; i < n_counts; i++) {
        counts[i].w = &many[i];
        open_writers(&many[i], m, counts[i].n, 0, threads, 0);
    }
    for (i = 0; i < n_chunks; i++) {
        chunks[i].w = &beside;
        if (chunks[i].n > largest) largest = chunks[i].n;
    }
    if (n_chunks) open_writers(&beside, m, N_WRITERS, largest, threads, 0);
}

void measure_sequences(const bitnet_model *m, const bitnet_kernels *k, int n_threads, int rounds) {
    int i, r;
    kernels = k;
    threads = n_threads;
    open_rows(m);
    for (r = 0; r < rounds; r++) {
        fprintf(stderr, "bench: sequences, round %d of %d\n", r + 1, rounds);
        for (i = 0; i < n_counts; i++) {
            bandwidth[r * n_counts + i] = measure_bandwidth(threads, file, file_size);
            peak[r * n_counts + i] = measure_peak(threads, k);
            counts[i].speed[r] = passes_per_second(counts[i].w, 0);
        }
        for (i = 0; i < n_chunks; i++)
            chunks[i].speed[r] = passes_per_second(chunks[i].w, chunks[i].n);
    }
    for (i = 0; i < n_counts; i++) close_writers(&many[i]);
    if (n_chunks) close_writers(&beside);
}

/* ---- the report ---- */

/* The shortest time of a pass. It reads the ternary weights once, what the samples need of the head
   and its copy, and the keys and values of each sequence. It multiplies each ternary weight with
   one column for each sequence, and so each weight of the copy, in both planes. */
static double least_seconds(const row *r, double gb_s, double gmac_s) {
    const double copy = info.head_copy_bytes ? (double)info.n_vocab * info.dim : 0;
    const double positions = BEGINNING + (N_DECODE + 1) / 2.0;
    const double bytes = token_bytes(kernels, r->n, r->w->head_bytes, positions);
    const double macs = r->n * (layer_weights() + 2 * copy);
    return bytes * 1e-9 / gb_s + (gmac_s > 0 ? macs * 1e-9 / gmac_s : 0);
}

static void report_counts(int rounds, int lines) {
    const double gb_s = median(bandwidth, rounds * n_counts);
    const double gmac_s = median(peak, rounds * n_counts);
    double one = -1;
    int i;
    for (i = 0; i < n_counts; i++)
        if (counts[i].n == 1) one = median(counts[i].speed, rounds);
    begin_list(lines ? 0 : "sequences",
               "kernels        threads sequences    tok/s   ratio limit %  +- %");
    for (i = 0; i < n_counts; i++) {
        const double passes = median(counts[i].speed, rounds);
        const double share = gb_s > 0 ? passes * least_seconds(&counts[i], gb_s, gmac_s) : -1;
        begin_row();
        show_text("kernels", bitnet_kernels_name(kernels), -15);
        show("threads", threads, 7, 0);
        show("sequences", counts[i].n, 9, 0);
        show("tok_s", passes * counts[i].n, 9, 1);
        show("ratio", one > 0 ? passes * counts[i].n / one : -1, 7, 2);
        show("share", as_json ? share : share * 100, 7, 1 + as_json);
        show("spread_percent", spread_percent(counts[i].speed, rounds), 5, 1);
        end_row();
    }
    end_list();
}

static void report_chunks(int rounds, int lines) {
    const double alone = median(chunks[0].speed, rounds);
    char heading[160];
    int i;
    snprintf(heading, sizeof heading, "prompt beside %d writers\nkernels        threads   chunk"
             "  writers tok/s   ratio  prompt tok/s  ms/pass  +- %%", (int)N_WRITERS);
    begin_list(lines ? 0 : "chunks", heading);
    for (i = 0; i < n_chunks; i++) {
        const double passes = median(chunks[i].speed, rounds);
        begin_row();
        show_text("kernels", bitnet_kernels_name(kernels), -15);
        show("threads", threads, 7, 0);
        show("chunk", chunks[i].n, 8, 0);
        show("writers_tok_s", passes * N_WRITERS, 15, 1);
        show("ratio", passes / alone, 8, 2);
        show("prompt_tok_s", i ? passes * chunks[i].n : -1, 14, 1);
        show("pass_ms", 1e3 / passes, 9, 1);
        show("spread_percent", spread_percent(chunks[i].speed, rounds), 6, 1);
        end_row();
    }
    end_list();
}

void report_sequences(int rounds, int lines) {
    if (n_counts) report_counts(rounds, lines);
    if (n_chunks) report_chunks(rounds, lines);
}
