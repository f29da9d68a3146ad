/* convert.c - makes GGUF files of BitNet models: from Hugging Face's form, or in another packing

       cc -O2 examples/convert.c -o convert -lpthread
       ./convert FOLDER OUT.gguf                 config.json, safetensors, tokenizer.json to I2_S
       ./convert IN.gguf OUT.gguf [--to TYPE]    weights in another packing, keys as they are
       ./convert --inspect FILE
       ./convert --verify A.gguf B.gguf          the same weights, whatever the packing?

   Packings of ternary weights are told in bitnet.h (PACKINGS, and TILES for TL1 and TL2); files
   don't say which of I2_S they have, nor the tile. TQ1_0 and TQ2_0 hold F16 scales: another is
   refused, and so is a tensor of theirs whose blocks' scales differ. The output appears whole or
   not at all, and replaces nothing unless --force is given. Exit codes: 0, 1 failure or a
   difference, 2 wrong usage. */
#define _DEFAULT_SOURCE 1              /* fsync, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* stat and fseeko over 2 GB, also with 32 bits */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#include <errno.h>
#include <stdio.h>

#include "convert_json.h"
#include "convert_files.h"
#include "convert_output.h"
#include "convert_leftovers.h"
#include "convert_gguf.h"
#include "convert_inspect.h"
#include "convert_verify.h"
#include "convert_safetensors.h"
#include "convert_tokenizer.h"
#include "convert_hf.h"
#include "convert_hf_weights.h"

/* The options fill these. */
static const char *to_name, *i2s_name, *from_name, *tile_text, *from_tile_text, *head_name;
static const char *pre_name, *model_name, *files[2];
static int inspecting, verifying, forcing, helping, n_files;

static const struct option {
    const char *name, *arg, *help;
    const char **text;                 /* or, without an argument, a flag */
    int *flag;
} options[] = {
    {"--to", "TYPE", "ternary weights become i2_s, tl1, tl2, tq1_0 or tq2_0 (i2_s)", &to_name, 0},
    {"--i2s", "L", "packing of I2_S: 128, 64 or 4row (128); with --verify: B's", &i2s_name, 0},
    {"--tile", "BM,BK,bm", "tile of TL1 or TL2 (the published one); with --verify: B's",
     &tile_text, 0},
    {"--from-layout", "L", "the input's packing of I2_S, or A's (128)", &from_name, 0},
    {"--from-tile", "BM,BK,bm", "the input's tile, or A's (the published one)", &from_tile_text, 0},
    {"--head", "TYPE", "embedding and head become f16, bf16, f32, q8_0 or q6_k", &head_name, 0},
    {"--name", "NAME", "of a folder's model: general.name", &model_name, 0},
    {"--pre", "NAME", "of a folder's model: tokenizer.ggml.pre (recognised)", &pre_name, 0},
    {"--force", 0, "replace OUT.gguf", 0, &forcing},
    {"--inspect", 0, "keys, tensors, checksums and what is odd", 0, &inspecting},
    {"--verify", 0, "compare the weights of two files", 0, &verifying},
    {"--help", 0, "this text", 0, &helping}
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static void parse(int argc, char **argv) {
    int i, j;
    for (i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            if (!argv[i][0]) fail(2, "a file's name is empty; see --help");
            if (n_files == 2) fail(2, "'%s' is one file too many; see --help", argv[i]);
            files[n_files++] = argv[i];
            continue;
        }
        for (j = 0; j < N_OPTIONS && strcmp(argv[i], options[j].name); j++) {}
        if (j == N_OPTIONS) fail(2, "unknown option '%s'; see --help", argv[i]);
        if (options[j].flag) *options[j].flag = 1;
        else if (++i == argc || !*argv[i])
            fail(2, "%s needs a value (%s); see --help", options[j].name, options[j].arg);
        else *options[j].text = argv[i];
    }
}

static void print_help(void) {
    int i;
    puts("convert FOLDER|IN.gguf OUT.gguf, convert --inspect FILE, convert --verify A B");
    for (i = 0; i < N_OPTIONS; i++)
        printf("  %-13s %-8s %s\n", options[i].name, options[i].arg ? options[i].arg : "",
               options[i].help);
}

/* ---- what the texts mean ---- */

/* Which of n names; without text the first. */
static int which(const char *option, const char *text, const char *const *names, int n) {
    char all[64] = "";
    int i;
    for (i = 0; text && i < n && strcmp(text, names[i]); i++) {
        strcat(all, i == 0 ? "" : i == n - 1 ? " or " : ", ");
        strcat(all, names[i]);
    }
    if (i == n) fail(2, "%s: '%s' is unknown; it can be %s", option, text, all);
    return i;
}

/* "BM,BK,bm" or "BM,BK". */
static bitnet_tile tile(const char *option, const char *text) {
    int32_t v[3] = {0, 0, 0};
    bitnet_tile t = {0, 0, 0};
    const char *p = text;
    char *end;
    int i;
    if (!text) return t;
    for (i = 0; i < 3; i++) {
        const long n = strtol(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || n < 1 || n > 65536) break;
        v[i] = (int32_t)n;
        p = end + (*end == ',');
        if (!*end) break;
    }
    if (i == 3 || *p || p[-1] == ',' || !v[1])
        fail(2, "%s: '%s' is no tile such as 128,96,32", option, text);
    t.BM = v[0];
    t.BK = v[1];
    t.bm = v[2];
    return t;
}

static void resolve(void) {
    static const char *const types[] = {"i2_s", "tl1", "tl2", "tq1_0", "tq2_0"};
    static const char *const layouts[] = {"128", "64", "4row"};
    static const uint32_t numbers[] = {BITNET_TENSOR_I2_S, BITNET_TENSOR_TL1, BITNET_TENSOR_TL2,
                                       BITNET_TENSOR_TQ1_0, BITNET_TENSOR_TQ2_0};
    static const char *const heads[] = {"f16", "bf16", "f32", "q8_0", "q6_k"};
    static const uint32_t head_numbers[] = {BITNET_TENSOR_F16, BITNET_TENSOR_BF16,
                                            BITNET_TENSOR_F32, BITNET_TENSOR_Q8_0,
                                            BITNET_TENSOR_Q6_K};
    packing_out.type = numbers[which("--to", to_name, types, 5)];
    packing_out.i2s_layout = (bitnet_i2s_layout)which("--i2s", i2s_name, layouts, 3);
    packing_in.i2s_layout = (bitnet_i2s_layout)which("--from-layout", from_name, layouts, 3);
    packing_out.tile = tile("--tile", tile_text);
    packing_in.tile = tile("--from-tile", from_tile_text);
    converts_ternary = to_name || i2s_name;
    converts_head = head_name != 0;
    head_type = head_numbers[which("--head", head_name, heads, 5)];
    if (helping) return;
    if (inspecting && verifying) fail(2, "--inspect and --verify: one of them, please");
    if (n_files != (inspecting ? 1 : 2))
        fail(2, "%s needs %s; see --help", inspecting ? "--inspect" : verifying ? "--verify" : "it",
             inspecting ? "one file" : "two files");
    if (inspecting && (i2s_name || tile_text || from_name || from_tile_text))
        fail(2, "--inspect shows any packing as it is, without options for it");
    if (verifying || inspecting) {
        if (to_name || head_name || forcing || pre_name || model_name)
            fail(2, "--to, --head, --pre, --name and --force are for writing a file");
    } else if ((pre_name || model_name) && !is_folder(files[0]))
        fail(2, "--pre and --name are for a folder's model");
    else if (to_name && i2s_name && packing_out.type != BITNET_TENSOR_I2_S)
        fail(2, "--i2s and --to %s exclude each other", to_name);
    else if (tile_text && packing_out.type != BITNET_TENSOR_TL1 &&
             packing_out.type != BITNET_TENSOR_TL2)
        fail(2, "--tile is for --to tl1 and --to tl2; the input's tile is --from-tile");
}

/* ---- from Hugging Face ---- */

static void pack_head(uint32_t type, const float *x, uint64_t n, uint8_t *out) {
    bitnet_error err = {BITNET_OK, ""};
    if (n > INT32_MAX || bitnet_floats_pack(type, x, (int32_t)n, out, &err))
        fail(1, "embedding or head: %s", err.text);
}

static void log_text(void *ud, const char *text) {
    (void)ud;
    say("%s", text);
}

static void convert_folder(const char *in, const char *out) {
    hf_options o;
    hf_model h;
    bitnet_error err = {BITNET_OK, ""};
    memset(&o, 0, sizeof o);
    o.name = model_name;
    o.pre = pre_name;
    o.head_type = converts_head ? head_type : BITNET_TENSOR_F16;
    o.quantize_fn = pack_head;
    o.log_fn = log_text;
    if (to_name || i2s_name || from_name || from_tile_text)
        fail(2, "a folder becomes I2_S in 128-groups; convert that file for others");
    if (hf_open(&h, in, &o, &err)) fail(1, "%s: %s", in, err.text);
    open_output(out, in, forcing);
    if (hf_write(&h, &writer, &err)) fail(1, "%s: %s", in, err.text);
    hf_close(&h);
    close_output(forcing);
}

int main(int argc, char **argv) {
    int code = 0;
    parse(argc, argv);
    resolve();
    if (helping) print_help();
    else if (inspecting) inspect(files[0]);
    else if (verifying) code = verify(files[0], files[1]);
    else {
        name_leftovers(files[1]);
        if (is_folder(files[0])) convert_folder(files[0], files[1]);
        else convert_gguf(files[0], files[1], forcing);
    }
    free(bytes_in);
    free(bytes_out);
    free(weights[0]);
    free(weights[1]);
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write: %s", strerror(errno));
    return code;
}
