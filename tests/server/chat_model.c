/* chat_model.c - a small model with random weights, whose file has a chat template and its tokens

       chat_model TEMPLATE.jinja OUT.gguf [bare]

   bare: the tags of thinking and tools are no tokens. The model's text means nothing: tests say
   what it writes, with a grammar. */
#include "../unit/gguf_builder.h"

static const char *const tags[] = {
    "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>",
    "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|user|>", "<|assistant|>",
    "<|system|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>"
};
enum { N_TAGS = sizeof tags / sizeof tags[0], N_CONTROL = 11, BOS = 256, ENDOFTEXT = BOS + 5 };

static char template_text[1 << 16];
static size_t template_size;

static void add_template(gb_file *f) {
    gb_key_u32(f, "tokenizer.ggml.bos_token_id", BOS);
    gb_key_u32(f, "tokenizer.ggml.eos_token_id", ENDOFTEXT);
    gb_key(f, "tokenizer.chat_template", GB_STR);
    gb_string(&f->keys, template_text, template_size);
}

int main(int argc, char **argv) {
    static gb_model g;
    uint8_t types[N_TAGS];
    FILE *in = argc == 3 || argc == 4 ? fopen(argv[1], "rb") : 0, *out;
    int i, bad;
    if (!in) return 2;
    template_size = fread(template_text, 1, sizeof template_text, in);
    fclose(in);
    for (i = 0; i < N_TAGS; i++) types[i] = i < N_CONTROL ? 3 : 4;
    g.arch = "llama";
    g.dim = g.ffn = 64;
    g.layers = g.heads = g.kv_heads = 1;
    g.n_ctx = 4096;
    g.eps = 1e-5f;
    g.no_sub_norms = 1;
    g.words = tags;
    g.n_words = argc == 4 ? N_CONTROL : N_TAGS;
    g.word_types = types;
    g.no_specials = 1;                 /* but those of the tags */
    g.file.add_keys = add_template;
    gb_make_model(&g);
    out = fopen(argv[2], "wb");
    bad = !out || fwrite(g.data, 1, g.size, out) != g.size;
    if (out) bad |= fclose(out) != 0;
    gb_free_model(&g);
    return bad;
}
