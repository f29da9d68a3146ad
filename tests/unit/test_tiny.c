/* The model that ships, end to end: what it says, how well, and that every build says the same. */
#include "test.h"

#include <math.h>

/* ---- helpers ---- */

typedef struct text {
    char s[4096];
    size_t n;
} text;

static int keep_text(void *ud, const char *p, size_t n, bitnet_token t) {
    text *out = (text *)ud;
    (void)t;
    if (n > sizeof out->s - 1 - out->n) return 1;
    memcpy(out->s + out->n, p, n);
    out->n += n;
    out->s[out->n] = 0;
    return 0;
}

static bitnet_model *load_example(const char *kernels) {
    bitnet_model_params p = {0};
    bitnet_model *m;
    bitnet_error err = {BITNET_OK, "", {0}};
    char path[512];
    snprintf(path, sizeof path, "%s/../../examples/tiny.gguf", test_data(""));
    p.kernels = kernels ? bitnet_kernels_find(kernels) : 0;
    if (bitnet_model_load_file(path, &p, &m, &err)) test_fail(__FILE__, __LINE__, "%s", err.text);
    return m;
}

/* What the model says after a prompt; the result tells why it stopped, or -1 for an error. */
static int say(bitnet_model *m, const bitnet_generate_params *params, text *out) {
    bitnet_generate_params p = *params;
    bitnet_ctx *c;
    bitnet_stop why = BITNET_STOP_LENGTH;
    bitnet_result r = bitnet_ctx_create(m, 0, &c, 0);
    memset(out, 0, sizeof *out);
    p.text_fn = keep_text;
    p.text_ud = out;
    if (r == BITNET_OK) r = bitnet_generate(c, &p, &why, 0);
    bitnet_ctx_free(c);
    return r == BITNET_OK ? (int)why : -1;
}

static int n_words(const char *s) {
    int n = 0;
    for (; *s; s++) n += *s == ' ' && s[1] != ' ';
    return n;
}

/* The text between two lines "%", without its last newline; 0 at the end. */
static char *next_document(char **at) {
    char *from = *at, *end;
    if (!*from) return 0;
    end = strncmp(from, "%\n", 2) ? strstr(from, "\n%\n") : from;
    if (!end) {
        *at = from + strlen(from);
        if (*at > from && (*at)[-1] == '\n') (*at)[-1] = 0;
        return from;
    }
    *at = end + (end == from ? 2 : 3);
    *end = 0;
    return from;
}

/* -ln of the probability of token t under these logits. */
static double surprise(const float *logits, int n, bitnet_token t) {
    double top = (double)logits[0], sum = 0;
    int i;
    for (i = 1; i < n; i++) top = (double)logits[i] > top ? (double)logits[i] : top;
    for (i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return log(sum) + top - (double)logits[t];
}

/* ---- tests ---- */

static void test_prompts(void) {
    static const struct { const char *prompt, *must_say; int words; } cases[] = {
        {"The capital of France is", " Paris", 1},
        {"Once upon a time", ".", 40},
        {"The future of artificial intelligence is", ".", 30},
    };
    bitnet_model *m = load_example(0);
    bitnet_generate_params p = {0};
    text out;
    size_t i;
    if (!m) return;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int why;
        p.text = text_of(cases[i].prompt);
        p.max_tokens = 300;
        why = say(m, &p, &out);
        printf("    %s%s\n", cases[i].prompt, out.s);
        CHECK_MSG(why == BITNET_STOP_END, "'%s' does not end by itself", cases[i].prompt);
        CHECK_MSG(strstr(out.s, cases[i].must_say) != 0, "'%s' goes on '%s'", cases[i].prompt,
                  out.s);
        CHECK_MSG(n_words(out.s) >= cases[i].words, "'%s' goes on '%s'", cases[i].prompt,
                  out.s);
    }
    p.text = text_of(cases[0].prompt);
    CHECK(say(m, &p, &out) >= 0 && !strncmp(out.s, " Paris", 6));
    bitnet_model_free(m);
}

static void test_tiny_chat(void) {
    static const bitnet_message turns[] = {MESSAGE("system", "You are a helpful assistant."),
                                           MESSAGE("user", "What is the capital of Japan?")};
    bitnet_model *m = load_example(0);
    bitnet_token prompt[128];
    bitnet_generate_params p = {0};
    text out;
    int why;
    if (!m) return;
    p.n_tokens = bitnet_chat_tokenize(m, 0, turns, 2, BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY,
                                      prompt, 128, NULL);
    p.tokens = prompt;
    p.max_tokens = 200;
    CHECK(p.n_tokens > 0 && p.n_tokens <= 128);
    why = say(m, &p, &out);
    printf("    %s\n", out.s);
    CHECK(why == BITNET_STOP_END);
    CHECK_MSG(strstr(out.s, "Tokyo") != 0, "the reply is '%s'", out.s);
    bitnet_model_free(m);
}

/* Perplexity of the held-out text, each document alone: BOS, tokens, EOS; against the figure that
   the training script computed from the same file with the same definition, in
   tiny-heldout.expected. A quick run takes every eighth document. */
static void test_perplexity(void) {
    bitnet_model *m = load_example(0);
    bitnet_ctx_params cp = {0};
    bitnet_model_info info;
    bitnet_ctx *c;
    size_t size;
    double nll = 0, all = 0, eighth = 0, expected;
    long n_predicted = 0, n_documents = 0;
    char *data, *at, *doc;
    FILE *f = fopen(test_data("tiny-heldout.expected"), "r");
    int got = f ? fscanf(f, "perplexity %lf%*[^\n]\n%*[^\n]\nperplexity %lf", &all, &eighth) : 0;
    if (f) fclose(f);
    CHECK(got == 2);
    expected = test_quick() ? eighth : all;
    if (!m) return;
    data = (char *)test_read_file(test_data("tiny-heldout.txt"), &size);
    CHECK(data != 0);
    at = data = (char *)realloc(data, size + 1);
    CHECK(data != 0);
    data[size] = 0;
    bitnet_model_get_info(m, &info);
    cp.n_logits = info.ctx_train;
    cp.kv_type = BITNET_KV_F32;
    CHECK(!bitnet_ctx_create(m, &cp, &c, 0));
    while ((doc = next_document(&at)) != 0) {
        if (test_quick() && n_documents++ % 8) continue;
        bitnet_token t[512];
        int n = bitnet_tokenize(m, doc, strlen(doc), BITNET_ADD_BOS, t, 511), i;
        CHECK_MSG(n > 0 && n < 512, "a document of %d tokens", n);
        t[n] = info.eos;
        bitnet_seq_rewind(c, 0, 0, NULL);
        CHECK(!bitnet_eval(c, 0, t, n, n, 0));
        for (i = 0; i < n; i++) nll += surprise(bitnet_logits(c, i, NULL), info.n_vocab, t[i + 1]);
        n_predicted += n;
    }
    printf("    perplexity %.4f over %ld tokens; expected %.4f\n", exp(nll / (double)n_predicted),
           n_predicted, expected);
    free(data);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    CHECK(fabs(exp(nll / (double)n_predicted) / expected - 1.0) < 2e-3);
}

/* Sampled text is the same for every kernel table: the promise as a user sees it. */
static void test_same_text(void) {
    text first, out;
    int i, n = 0;
    for (i = 0; i < bitnet_kernels_count(); i++) {
        bitnet_sampler s = {0};
        bitnet_generate_params p = {0};
        bitnet_model *m;
        if (!bitnet_kernels_usable(bitnet_kernels_get(i))) continue;
        m = load_example(bitnet_kernels_get(i)->name);
        if (!m) return;
        s.temperature = 0.9f;
        s.top_p = 0.95f;
        s.rng = 42;
        p.text = text_of("Once upon a time");
        p.max_tokens = 100;
        p.sampler = &s;
        CHECK(say(m, &p, n++ ? &out : &first) >= 0);
        if (n == 1) out = first;
        CHECK_MSG(first.n > 0 && !strcmp(out.s, first.s), "kernels %s say '%s', others '%s'",
                  bitnet_kernels_get(i)->name, out.s, first.s);
        bitnet_model_free(m);
    }
}

extern const test_case tiny_tests[];
const test_case tiny_tests[] = {
    {"tiny/prompts", test_prompts},
    {"tiny/chat", test_tiny_chat},
    {"tiny/perplexity", test_perplexity},
    {"tiny/same_text", test_same_text},
    {0, 0}
};
