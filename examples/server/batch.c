/* batch.c - a file of requests, many at a time: one line of JSON in, one line out

       batch -m MODEL < requests.jsonl > results.jsonl
       batch -m MODEL --resume results.jsonl [--retry-errors] < requests.jsonl

   README.md has examples. A line is a request of OpenAI's batch API ("custom_id", "url", "body") or
   the body alone ("prompt", "messages" or "input"). What a line gives depends on the line, the
   model and the program's version alone, not on the machine or the other lines: its id and its seed
   are a hash of the line. So lines can be computed anywhere, and twice. */
#define _DEFAULT_SOURCE 1              /* for threads.h, also with -std=c99 */
#include "batch_files.h"
#include "memory.h"
#include "reply.h"
#include "../options.h"
#include "../streams.h"
#include "../threads.h"
#include "../utf8.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* What schedulers make of exit codes: 75 is EX_TEMPFAIL of sysexits.h. */
enum { ALL_DONE = 0, SOME_FAILED = 1, USAGE = 2, MODEL_REFUSED = 3, TRY_AGAIN = 75 };
enum { LINE_BYTES = 256 << 20, SYNC_SECONDS = 5, SLOTS = 32 };

/* ---- options ---- */

static const char *model_path, *resume_path, *audit_path, *shard;
static double sample = 0.01;
static long n_slots, n_ctx, n_kv, n_threads;
static int ordered, quiet, retry_errors, in_place;
static bitnet_kv_type kv_type;
static uint64_t shard_index, shard_count = 1;

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", .text = &model_path},
    {"--resume", "FILE", "adds to these results, and skips the lines that have one",
     .text = &resume_path},
    {"--retry-errors", 0, "with --resume: lines whose result is an error are computed again",
     .flag = &retry_errors},
    {"--ordered", 0, "results in the order of the lines", .flag = &ordered},
    {"--shard", "I/N", "each N-th line, from line I (0 ...) on; auto: from the variables of "
     "Slurm or Kubernetes", .text = &shard},
    {"--audit", "FILE", "computes some lines again and compares them with these results",
     .text = &audit_path},
    {"--sample", "P", "which part of them (0.01)", .share = &sample},
    {"-np --parallel", "N", "lines at the same time (32, or what the memory allows)",
     .number = {&n_slots, 1, 1024}},
    {"-c --ctx-size", "N", "tokens of a text with its prompt (4096, or what the model was "
     "trained for)", .number = {&n_ctx, 16, 1 << 20}},
    {"--kv-tokens", "N", "tokens of all lines at the same time (what half of the memory holds that "
     "is left)",
     .number = {&n_kv, 64, MEMORY_MOST_TOKENS}},
    {"--kv-type", "TYPE", "keys and values as " KV_TYPES ", which takes half the memory (f16)",
     .kv_type = &kv_type},
    {"-t --threads", "N", "threads that compute (all processors)", .number = {&n_threads, 1, 256}},
    {"-nr --no-repack", 0, "weights in blocks stay where the file is mapped: half of the memory, "
     "but slower", .flag = &in_place},
    {"-q --quiet", 0, "no progress, and no count at the end", .flag = &quiet},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const char notes[] =
    "exit codes: 0 all lines have a result, 1 some of them an error, 2 usage, 3 the model was\n"
    "refused, 75 try again (no memory, no room, or it was stopped)\n";

static int usage(const char *what, const char *value) {
    fprintf(stderr, "batch: %s%s; --help lists the options\n", what, value);
    return USAGE + 1;
}

static int read_number(const char *text, unsigned long long *out) {
    char more;
    return text && !strchr(text, '-') && sscanf(text, "%llu%c", out, &more) == 1;
}

/* What a scheduler says. A Slurm array may begin anywhere, but its tasks must follow each other:
   of others, nobody would compute some lines. */
static int read_scheduler(unsigned long long *i, unsigned long long *n) {
    const char *task = getenv("SLURM_ARRAY_TASK_ID"), *least = getenv("SLURM_ARRAY_TASK_MIN"),
               *most = getenv("SLURM_ARRAY_TASK_MAX");
    unsigned long long from = 0, to;
    if (!task)
        return read_number(getenv("JOB_COMPLETION_INDEX"), i) &&
               read_number(getenv("JOB_COMPLETIONS"), n);
    if (!read_number(task, i) || !read_number(getenv("SLURM_ARRAY_TASK_COUNT"), n) ||
        (least && !read_number(least, &from)) || *i < from) return 0;
    if (most && (!read_number(most, &to) || to - from + 1 != *n)) return 0;
    *i -= from;
    return 1;
}

/* I/N, or auto. Returns 0 if it is neither. */
static int read_shard(void) {
    unsigned long long i, n;
    char more;
    const int is_there = !strcmp(shard, "auto") ? read_scheduler(&i, &n)
                         : !strchr(shard, '-') && sscanf(shard, "%llu/%llu%c", &i, &n, &more) == 2;
    if (!is_there || i >= n) return 0;
    shard_index = i;
    shard_count = n;
    return 1;
}

/* Returns 0, or an exit code + 1. */
static int read_options(int argc, char **argv) {
    int wrong = options_read(argc, argv, "batch", options, N_OPTIONS,
                             "batch -m MODEL [options] < requests.jsonl > results.jsonl\n", notes);
    if (wrong) return wrong;
    if (!model_path) return usage("-m MODEL is needed", "");
    if (resume_path && audit_path) return usage("--resume and --audit exclude each other", "");
    if (retry_errors && !resume_path) return usage("--retry-errors needs --resume FILE", "");
    if (shard && !read_shard())
        return usage("--shard: I/N with I < N is needed, or auto in a Slurm array without gaps or "
                     "with JOB_COMPLETION_INDEX and JOB_COMPLETIONS: ", shard);
    return 0;
}

/* ---- messages ---- */

static int progress_shown;             /* in a line of a terminal that has not ended */

/* Says something, in clean text, since it may hold what is in a file. */
static void note(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    bitnet_clean_text(line, strlen(line), line, sizeof line);
    fprintf(stderr, "%sbatch: %s\n", progress_shown ? "\r\033[K" : "", line);
    progress_shown = 0;
}

/* ---- ids ---- */

typedef struct id { uint64_t a, b; } id;

/* 128 bits of a line, on every machine the same. */
static id id_of(const char *line, size_t n) {
    id h = {n, ~(uint64_t)n};
    size_t i, k;
    for (i = 0; i < n; i += 8) {
        uint64_t word = 0;
        for (k = 0; k < 8 && i + k < n; k++) word |= (uint64_t)(uint8_t)line[i + k] << 8 * k;
        h.a = request_mix(h.a ^ word);
        h.b = request_mix(h.b + word * 0xd1342543de82ef95u);
    }
    return h;
}

static int same_id(id x, id y) { return x.a == y.a && x.b == y.b; }

/* ---- results that are there: how often each line has one ---- */

/* at: of the last one in the file; its size is 0 once all have been met. */
typedef struct known { id key; uint32_t n, size, n_failed; uint64_t at; } known;
static known *table;
static size_t table_size, n_known;
static unsigned long long n_dropped;   /* errors that are to be computed again */

static known *find_known(id key) {
    size_t i = (size_t)key.a & (table_size - 1);
    while (table[i].n && !same_id(table[i].key, key)) i = (i + 1) & (table_size - 1);
    return &table[i];
}

static int add_known(id key, int has_failed, uint64_t at, uint32_t size) {
    known *old = table, *k;
    const size_t n = table_size;
    size_t i;
    if (2 * (n_known + 1) > table_size) {
        table_size = n ? 2 * n : 1024;
        table = (known *)calloc(table_size, sizeof *table);
        if (!table) return 0;
        for (i = 0; i < n; i++)
            if (old[i].n) *find_known(old[i].key) = old[i];
        free(old);
    }
    k = find_known(key);
    n_known += k->n == 0;
    k->key = key;
    k->n++;
    k->n_failed += (uint32_t)has_failed;
    k->at = at;
    k->size = size;
    return 1;
}

/* ---- custom ids that were met: 64 bits of each, so that a million of them take 16 MB ---- */

static uint64_t *met;                  /* 0: a free place */
static size_t met_size, n_met;

static uint64_t *find_met(uint64_t key) {
    size_t i = (size_t)key & (met_size - 1);
    while (met[i] && met[i] != key) i = (i + 1) & (met_size - 1);
    return &met[i];
}

/* Remembers a custom_id, JSON. *is_new becomes 0 if it was met before. Returns 0 without memory. */
static int meet(const char *custom_id, size_t length, int *is_new) {
    const uint64_t hash = id_of(custom_id, length).a, key = hash ? hash : 1;
    uint64_t *old = met;
    const size_t n = met_size;
    size_t i;
    if (2 * (n_met + 1) > met_size) {
        met_size = n ? 2 * n : 1024;
        met = (uint64_t *)calloc(met_size, sizeof *met);
        if (!met) return 0;
        for (i = 0; i < n; i++)
            if (old[i]) *find_met(old[i]) = old[i];
        free(old);
    }
    *is_new = !*find_met(key);
    n_met += (size_t)*is_new;
    *find_met(key) = key;
    return 1;
}

/* What each result begins with; 32 digits follow. */
static const char beginning[] = "{\"id\":\"batch_req_";
enum { N_BEGINNING = sizeof beginning - 1 };

/* The id in a result. */
static int read_id(const char *line, id *out) {
    unsigned long long a, b;
    char end;
    if (strncmp(line, beginning, N_BEGINNING) ||
        sscanf(line + N_BEGINNING, "%16llx%16llx%c", &a, &b, &end) != 3 || end != '"')
        return 0;
    out->a = a;
    out->b = b;
    return 1;
}

/* ---- what results depend on beside their lines: each result ends with it ---- */

static const char before_fingerprint[] = ",\"error\":null,\"fingerprint\":\"";

/* VERSION-MODEL-KVTYPE-TOKENS; the last is what a text with its prompt may have. */
typedef char fingerprint[112];
static fingerprint ours, first;        /* this run's; that of the first result in the file */
static unsigned long long first_line;

/* Takes it from the end of a result; empty: it has none. */
static void read_fingerprint(const char *line, size_t n, fingerprint out) {
    const size_t before = sizeof before_fingerprint - 1;
    size_t from = n - 2;
    out[0] = 0;
    if (n < before + 2 || line[n - 1] != '}' || line[n - 2] != '"') return;
    while (from > 0 && line[from - 1] != '"') from--;
    if (from < before || memcmp(line + from - before, before_fingerprint, before) ||
        n - 2 - from >= sizeof(fingerprint)) return;
    memcpy(out, line + from, n - 2 - from);
    out[n - 2 - from] = 0;
}

/* Does a result with it belong to what the other one makes? What has failed since a text was too
   long may be computed again with more tokens. */
static int is_of_same(const fingerprint a, const fingerprint b) {
    const char *end = strrchr(a, '-');
    const size_t n = retry_errors && end ? (size_t)(end - a) + 1 : sizeof(fingerprint);
    return a[0] && !strncmp(a, b, n);
}

/* Can these bytes without a line's end be the beginning of a result? */
static int is_torn_result(const char *line, size_t n) {
    return !memcmp(line, beginning, n < N_BEGINNING ? n : N_BEGINNING);
}

/* ---- lines ---- */

/* Lines of a file or a pipe. */
typedef struct lines {
    int fd, at_end;
    char *p;                           /* [n] was read, from `at` on not yet taken */
    size_t n, at, cap;
} lines;

enum { LINE_THERE, LINE_TORN, NO_LINE_YET, NO_MORE_LINES, LINE_FAILED };

/* Reads on. wait 0: only what is there already. Returns what went wrong, or LINE_THERE. */
static int read_more(lines *in, int wait) {
    int64_t got;
    if (!wait && !file_is_ready(in->fd)) return NO_LINE_YET;
    if (in->at > 0) memmove(in->p, in->p + in->at, in->n -= in->at);
    in->at = 0;
    if (in->cap - in->n < 65536) {
        const size_t cap = 2 * in->cap + 131072;
        char *more = cap > LINE_BYTES ? 0 : (char *)realloc(in->p, cap);
        if (cap > LINE_BYTES) errno = EFBIG;
        if (!more) return LINE_FAILED;
        in->p = more;
        in->cap = cap;
    }
    got = file_read(in->fd, in->p + in->n, 65535);
    if (got < 0) return errno == EINTR ? NO_LINE_YET : LINE_FAILED;
    in->at_end = got == 0;
    in->n += (size_t)got;
    return LINE_THERE;
}

/* The next line, [*n] and a NUL in place of its end, until the next call. LINE_TORN: it has no end,
   and is the last one. */
static int next_line(lines *in, int wait, char **line, size_t *n) {
    size_t seen = 0;
    for (;;) {
        const size_t left = in->n - in->at;
        char *start = left ? in->p + in->at : 0, *end = 0;
        int r;
        if (start) end = (char *)memchr(start + seen, '\n', left - seen);
        if (start && !end && in->at_end) end = start + left;
        if (end) {
            const int torn = in->at_end && end == in->p + in->n;
            *line = start;
            *n = (size_t)(end - start);
            *end = 0;                  /* there is room: read_more leaves a byte */
            in->at += *n + !torn;
            return torn ? LINE_TORN : LINE_THERE;
        }
        if (in->at_end) return NO_MORE_LINES;
        seen = left;
        if ((r = read_more(in, wait)) != LINE_THERE) return r;
    }
}

static int io_error(const char *what, const char *path) {
    note("%s %s: %s", what, path, strerror(errno));
    return TRY_AGAIN;
}

static int not_ours(const char *path, uint64_t at) {
    note("%s, byte %llu: this is no result of batch", path, (unsigned long long)at);
    return USAGE;
}

/* Remembers the custom_id of a result. Two results with one cannot be told apart by it. Returns 0
   without memory. */
static int meet_result(const char *path, uint64_t at, const char *line, size_t n) {
    static const char key[] = "\",\"custom_id\":\"";
    const size_t from = N_BEGINNING + 32, before = sizeof key - 2;
    const char *own, *end;
    int is_new = 1;
    if (n < from || strncmp(line + from, key, sizeof key - 1)) return 1;
    own = line + from + before;
    end = own + 1;
    while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
    if (!meet(own, (size_t)(end - own) + 1, &is_new)) return 0;
    if (!is_new)
        note("%s, byte %llu: another result has the same custom_id, %.*s", path,
             (unsigned long long)at, (int)(end - own < 100 ? end - own + 1 : 100), own);
    return 1;
}

static int has_failed(const char *line) {
    return !strstr(line, ",\"response\":{\"status_code\":200,");
}

/* All results of a file must be of the same run as the first. */
static int check_result(const char *path, unsigned long long number, const char *line, size_t n) {
    fingerprint of;
    read_fingerprint(line, n, of);
    if (!first_line) {
        first_line = number;
        strcpy(first, of);
    }
    if (first[0] == 0 || is_of_same(of, first)) return ALL_DONE;
    note("%s: the result in line %llu is of %s, but that in line %llu of %s", path, first_line,
         first, number, of[0] ? of : "a version without fingerprints");
    return USAGE;
}

/* Are the results of a file those of this run? */
static int check_first(void) {
    const char *path = resume_path ? resume_path : audit_path;
    if (!first_line || is_of_same(first, ours)) return ALL_DONE;
    note("%s: the result in line %llu is of %s, but this run is %s: another version, model, "
         "--kv-type, --ctx-size or --kv-tokens", path, first_line,
         first[0] ? first : "a version without fingerprints", ours);
    return USAGE;
}

/* Remembers one result, unless it is to be computed again. */
static int read_result(const char *path, uint64_t at, unsigned long long number, char *line,
                       size_t n, int is_resumed) {
    const int failed = has_failed(line);
    id key;
    int wrong;
    if (n > 0 && line[n - 1] == '\r') line[--n] = 0;
    if (!read_id(line, &key)) return not_ours(path, at);
    if (failed && retry_errors) {
        n_dropped++;
        return ALL_DONE;
    }
    if ((wrong = check_result(path, number, line, n)) != ALL_DONE) return wrong;
    if (add_known(key, failed, at, (uint32_t)n) &&
        (!is_resumed || meet_result(path, at, line, n))) return ALL_DONE;
    return io_error("cannot read", path);
}

/* Learns what a file of results has. A last line that is torn is cut off if `mend`, but only if it
   is ours: the path may be that of any file. */
static int read_results(const char *path, int fd, int mend) {
    lines in = {fd, 0, 0, 0, 0, 0};
    char *line = 0;
    size_t n = 0, mark;
    uint64_t at = 0, number = 0;
    int r, wrong = ALL_DONE;
    while (wrong == ALL_DONE && (r = next_line(&in, 1, &line, &n)) != NO_MORE_LINES &&
           r != NO_LINE_YET) {         /* a signal, which ends the run */
        mark = r != LINE_FAILED && at == 0 ? utf8_mark(line, n) : 0;
        if (r == LINE_FAILED) wrong = io_error("cannot read", path);
        else if (r == LINE_TORN) {
            if (!is_torn_result(line + mark, n - mark)) wrong = not_ours(path, at);
            else if (mend && file_cut(fd, (int64_t)at)) wrong = io_error("cannot mend", path);
        } else {
            wrong = read_result(path, at + mark, ++number, line + mark, n - mark, mend);
            at += n + 1;
        }
    }
    free(in.p);
    return wrong;
}

/* ---- work ---- */

/* A line that is being computed, or waits for those before it. */
typedef struct work {
    id key;
    unsigned long long line;           /* of the input, from 1 on */
    char *custom_id;                   /* JSON, or 0 */
    request request;
    choice *choices;
    int32_t n_ended;
    int is_done;
    buffer vectors;                    /* the body of a result with embeddings */
    buffer out;                        /* its result */
    struct work *next;
} work;

static work *first_work, **last_work = &first_work;
static long n_work;
static engine *eng;
static service serving;
static lines input;
static int output = 1, code = ALL_DONE;
static const char *output_name = "standard output";
static volatile sig_atomic_t signalled;
static unsigned long long n_lines, n_done, n_failed, n_skipped, n_tokens, n_total, n_audited,
    n_different, n_left;
static uint64_t line_number;           /* of those that are not blank, which shards share */
static unsigned long long input_line;  /* of all, for people */
static int at_end, is_closing;
static int is_narrow;                  /* the memory holds no text of --ctx-size: see choose_room */
static FILE *audited;

/* This run cannot go on because of a line, but another one may. Says why, once. */
static void try_again(unsigned long long line, const char *why) {
    if (code != TRY_AGAIN) note("line %llu: %s", line, why);
    code = TRY_AGAIN;
}

/* Writes a whole line, or none: what could not be written to its end is taken back. */
static void write_result(const char *p, size_t n) {
    static double synced;
    size_t done = 0;
    while (done < n && code != TRY_AGAIN) {
        const int64_t k = file_write(output, p + done, n - done);
        if (k > 0) done += (size_t)k;
        else if (errno != EINTR) {
            int64_t size;
            code = io_error("cannot write to", output_name);
            if (done && (size = file_size(output)) >= 0 &&
                file_cut(output, size - (int64_t)done))
                io_error("a torn line stays in", output_name);
        }
    }
    if (resume_path && thread_clock() - synced > SYNC_SECONDS) {
        file_sync(output);
        synced = thread_clock();
    }
}

/* The same line as in the results? */
static void compare(const work *w) {
    const known *k = find_known(w->key);
    char *line = (char *)malloc((size_t)k->size + 1);
    n_audited++;
    if (line) errno = EIO;             /* of a file that has become shorter nothing else says so */
    if (!line || file_seek(audited, k->at) ||
        fread(line, 1, k->size, audited) != k->size) code = io_error("cannot read", audit_path);
    else if (k->size + 1u != w->out.n || memcmp(line, w->out.p, k->size)) {
        n_different++;
        write_result(w->out.p, w->out.n);
    }
    free(line);
}

static void free_work(work *w) {
    int32_t i;
    for (i = 0; w->choices && i < w->request.n_texts; i++) choice_free(&w->choices[i]);
    free(w->choices);
    free(w->custom_id);
    buffer_free(&w->vectors);
    buffer_free(&w->out);
    request_free(&w->request);
    free(w);
}

/* Hands out results, and forgets their lines. */
static void write_results(void) {
    work **at = &first_work, *w;
    while ((w = *at) != 0 && code != TRY_AGAIN) {
        if (!w->is_done) {
            if (ordered) return;
            at = &w->next;
            continue;
        }
        if (w->out.failed) try_again(w->line, "no memory for its result");
        else if (w->out.n == 0) n_done--;        /* it was left */
        else if (audit_path) compare(w);
        else write_result(w->out.p, w->out.n);
        n_done += code != TRY_AGAIN;
        if (last_work == &w->next) last_work = at;
        *at = w->next;
        n_work--;
        free_work(w);
    }
}

/* {"id":...,"custom_id":...,"response":{"status_code":...,"body": */
static void begin_result(work *w, int status) {
    buffer_format(&w->out, "{\"id\":\"batch_req_%016llx%016llx\",\"custom_id\":%s,\"response\":"
                  "{\"status_code\":%d,\"request_id\":\"%016llx\",\"body\":",
                  (unsigned long long)w->key.a, (unsigned long long)w->key.b,
                  w->custom_id ? w->custom_id : "null", status, (unsigned long long)w->key.a);
}

/* Without a custom_id only the number of a line says which one has failed. It is not in the result,
   which would depend on the lines before. */
static void finish(work *w, const http_error *error) {
    const endpoint *how = w->request.endpoint;
    int32_t i;
    if (error->status && !w->custom_id && !audit_path) note("line %llu: %s", w->line, error->text);
    begin_result(w, error->status ? error->status : 200);
    for (i = 0; i < w->request.n_texts; i++)       /* depends on the other lines */
        w->request.texts[i].n_cached = 0;
    if (error->status) (how ? how->error : reply_error)(&w->out, error);
    else if (w->request.embed.n) buffer_add(&w->out, w->vectors.p, w->vectors.n);
    else how->whole(&w->out, &w->request, w->choices);
    buffer_format(&w->out, "}%s%s\"}\n", before_fingerprint, ours);
    w->out.failed |= w->vectors.failed;
    n_failed += error->status != 0;
    w->is_done = 1;
}

/* A line that another run has to compute: it gets no result here. */
static void leave(work *w) {
    note("line %llu: it needs more tokens than there is memory for, and is left for another run",
         w->line);
    n_left++;
    w->is_done = 1;
}

/* A line has ended, perhaps with an error. A text that finds the cache full was alone (see again_fn
   in engine.h): it is too long, as one that is over the context. The engine's words for that depend
   on the other lines. */
static void end_line(work *w, const bitnet_error *err) {
    http_error e = err->code ? reply_failure(err) : refuse_none();
    if (err->code == BITNET_ERR_FULL && is_narrow) {
        leave(w);
        return;
    }
    if (err->code == BITNET_ERR_FULL) {
        e = refuse(400, 0, "the prompt and the text need more tokens than --kv-tokens allows");
        e.code = "context_length_exceeded";
    }
    if (e.status == 503) try_again(w->line, e.text);   /* memory: another time or machine */
    else finish(w, &e);
}

static void on_piece(engine_text *t, const char *piece, size_t n, const token_info *token) {
    work *w = (work *)t->ud;
    n_tokens += token != 0;
    choice_add(&w->choices[t - w->request.texts], &w->request, t, piece, n, token);
}

/* Others need the room of this text, which begins again later: what it has said is void. */
static void on_again(engine_text *t) {
    work *w = (work *)t->ud;
    choice *c = &w->choices[t - w->request.texts];
    choice_free(c);
    memset(c, 0, sizeof *c);
}

static void on_end(engine_text *t) {
    work *w = (work *)t->ud;
    int32_t i = 0;
    if (is_closing || ++w->n_ended < w->request.n_texts) return;
    while (i < w->request.n_texts - 1 && !w->request.texts[i].err.code) i++;
    end_line(w, &w->request.texts[i].err);         /* of the first that failed, if any did */
}

static void on_vector(engine_embed *t, const float *vector) {
    work *w = (work *)t->ud;
    n_tokens += (unsigned long long)t->inputs[t->n_done].n_tokens;
    reply_vector(&w->vectors, &w->request, vector);
}

static void on_embedded(engine_embed *t) {
    if (!is_closing) end_line((work *)t->ud, &t->err);
}

/* ---- what a line asks for ---- */

/* field: that by which a body alone is known; 0: its line has to have a url. */
static const struct { const endpoint *to; const char *field; } kinds[] = {
    {&endpoint_completions, "prompt"}, {&endpoint_chat, "messages"},
    {&endpoint_embeddings, "input"}, {&endpoint_responses, 0}, {&endpoint_messages, 0}
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* The endpoint that the url of a line names, or 0; without one, whose field is there. */
static const endpoint *endpoint_of(const json *j, uint32_t url) {
    int i = 0;
    while (i < N_KINDS && (url ? !json_is(j, url, kinds[i].to->path)
                               : !kinds[i].field || !json_get(j, JSON_ROOT, kinds[i].field))) i++;
    return i < N_KINDS ? kinds[i].to : url ? 0 : &endpoint_completions;
}

/* The custom_id of a line that is no JSON, if it stands in front of what is wrong: JSON, or 0. Only
   the last pair may be without its value. */
static char *broken_id(const json *j) {
    const uint32_t n = j->n_nodes > JSON_ROOT && json_kind(j, JSON_ROOT) == JSON_OBJECT
                       ? j->nodes[JSON_ROOT].n : 0;
    uint32_t at = JSON_ROOT + 1, i;
    buffer name = {0};
    for (i = 0; i < n && at + 1 < j->n_nodes; i++, at = j->nodes[at + 1].next) {
        if (!json_is(j, at, "custom_id")) continue;
        if (json_kind(j, at + 1) == JSON_STRING && j->nodes[at + 1].len)     /* it has its end */
            buffer_value(&name, j, at + 1);
        break;
    }
    if (name.failed) buffer_free(&name);
    return name.p;
}

/* Remembers the line's custom_id, and says if another line or result has it. */
static void meet_line(const work *w) {
    const char *own = w->custom_id;
    int is_new = 1;
    if (!own || audit_path) return;
    if (!meet(own, strlen(own), &is_new)) try_again(w->line, "no memory");
    else if (!is_new)
        note("line %llu: another line or result has the same custom_id, %.100s", w->line, own);
}

/* Takes the body out of a line of the batch API, or of a line that is one. */
static http_error read_body(work *w, json *j, buffer *body, const endpoint **to) {
    const uint32_t url = json_get(j, JSON_ROOT, "url"), method = json_get(j, JSON_ROOT, "method");
    const uint32_t inner = json_get(j, JSON_ROOT, "body"),
                   own = json_get(j, JSON_ROOT, "custom_id");
    buffer name = {0};
    if (json_kind(j, own) == JSON_STRING) buffer_value(&name, j, own);
    w->custom_id = name.p;
    *to = endpoint_of(j, url);
    if (name.failed) return refuse_memory();
    if (own && !name.p) return refuse(400, 0, "custom_id: a string is needed");
    if (!*to || (!url && inner))
        return refuse(url ? 404 : 400, 0, "url: /v1/chat/completions, /v1/completions, "
                      "/v1/responses, /v1/messages or /v1/embeddings is needed");
    if (method && !json_is(j, method, "POST")) return refuse(405, 0, "method: POST is needed");
    if (url && json_kind(j, inner) != JSON_OBJECT)
        return refuse(400, 0, "body: an object is needed");
    buffer_value(body, j, url ? inner : JSON_ROOT);
    return body->failed ? refuse_memory() : refuse_none();
}

/* Begins a line, which is from malloc. It is in the list already. */
static void begin(work *w, char *line, size_t n) {
    http_error e;
    bitnet_error err;
    buffer body = {0};
    json j;
    int32_t i;
    const endpoint *to = &endpoint_completions;
    memset(&j, 0, sizeof j);
    snprintf(j.name, sizeof j.name, "the line");
    j.text = line;
    j.size = n;
    if (json_parse(&j, &err)) {
        w->custom_id = broken_id(&j);
        e = refuse_library(err.code, 0, err.text);
    } else if (json_kind(&j, JSON_ROOT) != JSON_OBJECT)
        e = refuse(400, 0, "the line must be a JSON object");
    else e = read_body(w, &j, &body, &to);
    meet_line(w);
    if (!e.status) {
        e = request_parse(&w->request, &serving, to, "the body", body.p, body.n,
                          request_mix(w->key.a) >> 11 | 1);
        memset(&body, 0, sizeof body);
    }
    w->request.created = 0;            /* no time: the result is the same whenever it is made */
    snprintf(w->request.id, sizeof w->request.id, "%s-%016llx", to ? to->id : "",
             (unsigned long long)w->key.a);
    json_free(&j);
    buffer_free(&body);
    w->choices = e.status ? 0 : (choice *)calloc((size_t)w->request.n_texts + 1,
                                                 sizeof *w->choices);
    if (!e.status && !w->choices) e = refuse_memory();
    if (e.status == 503) try_again(w->line, e.text);
    else if (e.status) finish(w, &e);
    if (e.status) return;
    for (i = 0; i < w->request.n_texts; i++) {
        w->request.texts[i].piece_fn = on_piece;
        w->request.texts[i].end_fn = on_end;
        w->request.texts[i].again_fn = on_again;
        w->request.texts[i].ud = w;
        engine_add(eng, &w->request.texts[i]);
    }
    w->request.embed.vector_fn = on_vector;
    w->request.embed.end_fn = on_embedded;
    w->request.embed.ud = w;
    if (w->request.embed.n) engine_add_embed(eng, &w->request.embed);
}

/* Is this line ours, and not done yet? */
static int is_wanted(id key) {
    known *k = table_size ? find_known(key) : 0;
    if (audit_path)
        return k && k->n && (double)(request_mix(key.b) >> 11) / 9007199254740992.0 < sample;
    if (!k || !k->n || !k->size) return 1;
    if (k->n_failed) k->n_failed--, n_failed++;
    if (--k->n == 0) k->n = 1, k->size = 0;        /* it stays in its place of the table */
    n_skipped++;
    return 0;
}

/* Begins a line that is wanted. */
static void add_line(char *line, size_t n) {
    const id key = id_of(line, n);
    char *copy;
    work *w;
    n_lines++;
    if (!is_wanted(key)) return;
    w = (work *)calloc(1, sizeof *w);
    copy = (char *)malloc(n + 1);
    if (!w || !copy) {
        try_again(input_line, "no memory");
        free(w);
        free(copy);
        return;
    }
    memcpy(copy, line, n);
    copy[n] = 0;
    w->key = key;
    w->line = input_line;
    *last_work = w;
    last_work = &w->next;
    n_work++;
    begin(w, copy, n);
}

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Takes one line of the input. Returns 0 if there is none now. */
static int take_line(int wait) {
    size_t n = 0, from = 0;
    char *line = 0;
    const int r = next_line(&input, wait, &line, &n);
    if (r == LINE_FAILED) code = io_error("cannot read", "standard input");
    if (r == NO_MORE_LINES) at_end = 1;
    if (r != LINE_THERE && r != LINE_TORN) return 0;
    if (++input_line == 1) from = utf8_mark(line, n);
    while (n > from && is_blank(line[n - 1])) n--;
    while (from < n && is_blank(line[from])) from++;
    if (from < n && line_number++ % shard_count == shard_index) add_line(line + from, n - from);
    return 1;
}

/* ---- progress ---- */

/* On a terminal twice a second; in a job's log only how it ended. */
static void show_progress(double begun, int is_last) {
    static double shown;
    const int live = file_is_terminal(2);
    const double time = thread_clock(), seconds = time - begun;
    const unsigned long long all = n_done + n_skipped;
    char left[64] = "";
    if (quiet || (is_last ? !live && !all : !live || time - shown < 0.5)) return;
    shown = time;
    if (n_total && n_done && all < n_total) {
        const double s = seconds / (double)n_done * (double)(n_total - all);
        snprintf(left, sizeof left, ", %d:%02d left", (int)(s / 60), (int)s % 60);
    }
    progress_shown = !is_last;
    fprintf(stderr, "%s%llu%s%.0llu lines, %llu failed, %.1f tokens/s%s%s%s",
            live ? "\r" : "batch: ", all, n_total ? " of " : "", n_total, n_failed,
            (double)n_tokens / seconds, left, live ? "\033[K" : "", is_last ? "\n" : "");
}

/* How many lines a file has for us, from where it is read; 0 of a pipe. */
static void count_lines(void) {
    char block[65536], before = '\n';
    unsigned long long n = 0;
    int64_t got, i;
    if (file_size(0) < 0 || file_place(0) != 0 || !file_is_terminal(2)) return;
    while ((got = file_read(0, block, sizeof block)) > 0)
        for (i = 0; i < got; before = block[i++]) n += block[i] != '\n' && before == '\n';
    n_total = file_rewind(0) ? 0 : (n + shard_count - 1 - shard_index) / shard_count;
}

/* ---- beginning and ending ---- */

/* Copies the results that are no errors to a file. */
static int copy_good(int from, FILE *to) {
    lines in = {from, 0, 0, 0, 0, 0};
    char *line = 0;
    size_t n = 0, mark;
    int r, is_first = 1, is_good = !file_rewind(from);
    while (is_good && (r = next_line(&in, 1, &line, &n)) != NO_MORE_LINES) {
        if (r == NO_LINE_YET && !signalled) continue;
        if (r != LINE_THERE) is_good = 0;
        mark = is_good && is_first ? utf8_mark(line, n) : 0;
        is_first = 0;
        if (!is_good || has_failed(line)) continue;
        is_good = fwrite(line + mark, 1, n - mark, to) == n - mark && putc('\n', to) != EOF;
    }
    free(in.p);
    return is_good && fflush(to) == 0 && file_sync(fileno(to)) == 0;
}

/* Takes the errors out of the file of results: a copy without them gets its name, so that there is
   a whole file at any time. */
static int drop_errors(int *fd) {
    char *path = file_real_path(resume_path), *name = path ? (char *)malloc(strlen(path) + 7) : 0;
    FILE *copy = 0;
    int r = ALL_DONE;
    if (name) {
        sprintf(name, "%s.retry", path);
        copy = utf8_fopen(name, "wb");
    }
    if (!copy) r = io_error("cannot write beside", resume_path);
    else if (file_permit(*fd, copy) || !copy_good(*fd, copy)) r = io_error("cannot write to", name);
    if (copy && fclose(copy) && r == ALL_DONE) r = io_error("cannot write to", name);
    if (r == ALL_DONE && file_take_place(name, path, fd))
        r = io_error("cannot replace", resume_path);
    if (r != ALL_DONE && copy) file_remove(name);
    free(name);
    free(path);
    return r;
}

/* Opens the file that --resume names, as the output. */
static int open_output(void) {
    int fd;
    if (file_is_other(resume_path)) {
        fprintf(stderr, "batch: %s: it is not a file\n", resume_path);
        return USAGE;
    }
    fd = file_open(resume_path);
    if (fd < 0) return io_error("cannot open", resume_path);
    /* the name may be that of another file by now: see drop_errors */
    if (!file_lock(fd) || !file_is_named(fd, resume_path)) {
        fprintf(stderr, "batch: %s: another run writes to it\n", resume_path);
        return TRY_AGAIN;
    }
    output = fd;
    output_name = resume_path;
    return ALL_DONE;
}

/* Opens the file that --resume or --audit names, and learns what it has. */
static int open_results(void) {
    const int wrong = resume_path ? open_output() : ALL_DONE;
    if (wrong) return wrong;
    if (files_are_same(0, output)) {     /* each result would become a request, and have one */
        fprintf(stderr, "batch: %s is the file of the requests\n", output_name);
        return USAGE;
    }
    if (resume_path) return read_results(resume_path, output, 1);
    if (!audit_path) return ALL_DONE;
    if (!(audited = utf8_fopen(audit_path, "rb"))) return io_error("cannot open", audit_path);
    return read_results(audit_path, fileno(audited), 0);
}

/* Sets n_kv: half of what fits, since other processes may look at the same time as this one, but at
   least one text. Where a control group has no room for that, it is what fits. Returns an exit
   code: where the group could not hold the model at all no other try can help. */
static int choose_room(const bitnet_model *model, int has_head, engine_params *p) {
    const memory m = memory_look("");
    const memory_need need = memory_needed(model, p);
    const int64_t fit = memory_tokens(&m, &need), all = (int64_t)p->n_slots * p->n_ctx;
    const int64_t wanted = !has_head ? 1 : !n_kv ? p->n_ctx : n_kv < all ? n_kv : all;
    char text[MEMORY_TEXT];
    p->n_kv = n_kv ? n_kv : fit / 2 > p->n_ctx ? fit / 2 : p->n_ctx;
    if (fit >= wanted) return ALL_DONE;
    note("%s", memory_describe(&m, &need, text));
    if (n_kv || !m.is_group) return ALL_DONE;
    if (!memory_can_do(&need, m.left)) {
        note("that is too little for this model: it would be killed, or read the file again for "
             "each token (--kv-tokens N tries in spite of that)");
        return memory_can_do(&need, m.limit - need.loaded) ? TRY_AGAIN : MODEL_REFUSED;
    }
    note("so there is room for %lld tokens, not for --ctx-size %d: lines that need more are left "
         "for a run with more memory", (long long)fit, (int)p->n_ctx);
    p->n_kv = fit;
    is_narrow = 1;
    return ALL_DONE;
}

/* What --kv-tokens allows by itself has the effect of --ctx-size, in whole pages. */
static void name_run(const engine_params *p) {
    static const char *const names[] = {"f16", "f32", "i8"};
    const long given = (n_kv + 63) / 64 * 64;
    snprintf(ours, sizeof ours, "%s-%s-%ld", serving.fingerprint, names[p->kv_type],
             n_kv && given < p->n_ctx ? given : (long)p->n_ctx);
}

static int open_model(bitnet_model **model) {
    static char program[] = "batch";
    bitnet_error err;
    engine_params p;
    bitnet_model_info info;
    bitnet_model_params mp;
    bitnet_result r;
    int wrong;
    memset(&mp, 0, sizeof mp);
    mp.log_fn = quiet ? 0 : options_warning;
    mp.in_place = in_place;
    mp.log_ud = program;
    r = bitnet_model_load_file(model_path, &mp, model, &err);
    memset(&p, 0, sizeof p);
    if (r == BITNET_OK) {
        bitnet_model_get_info(*model, &info);
        p.n_ctx = n_ctx ? (int32_t)n_ctx
                        : info.ctx_train > 0 && info.ctx_train < 4096 ? info.ctx_train : 4096;
        p.n_slots = n_slots ? (int32_t)n_slots : SLOTS;
        p.n_threads = (int32_t)n_threads;
        p.kv_type = kv_type;
        if ((wrong = choose_room(*model, info.has_head, &p)) != ALL_DONE) return wrong;
        if (p.n_kv > (int64_t)p.n_slots * p.n_ctx) p.n_kv = 0;
        eng = engine_create(*model, &p, &err);
        r = eng ? service_open(&serving, *model, model_path, engine_ctx(eng), &err) : err.code;
    }
    if (r == BITNET_OK) {
        name_run(&p);
        return ALL_DONE;
    }
    fprintf(stderr, "batch: %s: %s\n", model_path, err.text);
    return r == BITNET_ERR_MEMORY || r == BITNET_ERR_IO ? TRY_AGAIN : MODEL_REFUSED;
}

static void on_signal(int number) {
    (void)number;
    signalled = 1;
}

/* Reads ahead as many lines as have slots, and as many again. */
static void run(void) {
    const double begun = thread_clock();
    const long most = 2 * engine_most(eng);
    count_lines();
    while (code != TRY_AGAIN && !signalled) {
        while (!at_end && code != TRY_AGAIN && !signalled && engine_waiting(eng) < most / 2 &&
               n_work < (ordered ? 64 * most : most) && take_line(n_work == 0)) {}
        if (engine_pass(eng) == 0 && at_end) break;
        write_results();
        show_progress(begun, 0);
    }
    if (code != TRY_AGAIN && !signalled) write_results();
    show_progress(begun, 1);
}

static void report_audit(void) {
    fprintf(stderr, "batch: %llu lines computed again, %llu of them differ\n", n_audited,
            n_different);
    if (n_different) code = SOME_FAILED;
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    work *w;
    int wrong;
    if (!streams_fill()) return TRY_AGAIN;
    streams_binary();
    argv = utf8_arguments(&argc, argv);
    wrong = read_options(argc, argv);
    if (wrong) return wrong - 1;
    file_on_signal(on_signal);
    if ((code = open_results()) == ALL_DONE && (code = open_model(&model)) == ALL_DONE &&
        (code = check_first()) == ALL_DONE &&
        (n_dropped == 0 || (code = drop_errors(&output)) == ALL_DONE)) {
        run();
        if (signalled && code != TRY_AGAIN) {
            fprintf(stderr, "batch: stopped; what was begun is not in the results\n");
            code = TRY_AGAIN;
        }
        if (code == ALL_DONE && n_left) code = TRY_AGAIN;
        if (code == ALL_DONE && n_failed && !audit_path) code = SOME_FAILED;
        if (code != TRY_AGAIN && audit_path) report_audit();
        if (resume_path && output >= 0 && file_sync(output))
            code = io_error("cannot write to", output_name);
    }
    is_closing = 1;                    /* no results any more */
    engine_free(eng);
    while ((w = first_work) != 0) {
        first_work = w->next;
        free_work(w);
    }
    if (model) service_close(&serving);
    bitnet_model_free(model);
    free(table);
    free(met);
    return code;
}
