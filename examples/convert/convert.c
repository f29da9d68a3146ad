/* convert.c - makes GGUF files of BitNet models, from Hugging Face's form or from another GGUF file

       cc -O2 examples/convert/[a-z]*.c examples/json/[a-z]*.c -o convert -lpthread
       ./convert FOLDER OUT.gguf                 config.json, safetensors, tokenizer.json to I2_S
       ./convert IN.gguf OUT.gguf [--to TYPE]    the same keys and tensors, weights in other types
       ./convert --inspect FILE
       ./convert --verify A.gguf B.gguf          are the weights the same in both packings?

   A file does not record which packing of I2_S it has, nor its tile: say so with --from-layout and
   --from-tile. README.md says how to find out. The output appears complete or not at all, and
   replaces a file only with --force. Exit codes: 0, 1 failure or a difference, 2 wrong usage. */
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../options.h"
#include "../streams.h"
#include "../utf8.h"
#include "check.h"
#include "commands.h"
#include "files.h"
#include "hf.h"
#include "output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static const char *to_name, *i2s_name, *from_name, *tile_text, *from_tile_text, *head_name;
static const char *pre_name, *model_name, *pooling_name, *unfold_name, *fold_name, *files[2];
static int inspecting, verifying, forcing, windowed, rounding, copying, n_files;

static const option options[] = {
    {"--to", "TYPE", "ternary weights become i2_s, tl1, tl2, tl2_r16, tq1_0, tq2_0, q1_0, q2_0, "
     "q2_0_128, pq2_0 or ptq1_0 (i2_s)", .text = &to_name},
    {"--i2s", "L", "packing of I2_S: 128, 64 or 4row (128); with --verify: B's",
     .text = &i2s_name},
    {"--tile", "BM,BK,bm", "tile of TL1 or TL2, or a kernel_config.ini (the published one); with "
     "--verify: B's", .text = &tile_text},
    {"--from-layout", "L", "the input's packing of I2_S, or A's (128)", .text = &from_name},
    {"--from-tile", "BM,BK,bm", "the input's tile, or A's (the published one)",
     .text = &from_tile_text},
    {"--head", "TYPE", "embedding and head become f16, bf16, f32, q8_0, q6_k, q5_k, q4_k or q5_0",
     .text = &head_name},
    {"--unfold", "TYPE", "a folded model's matrices become TYPE, of --head, in the plain basis",
     .text = &unfold_name},
    {"--fold", "FILE", "they are folded as FILE's are, and become the TYPE of --to",
     .text = &fold_name},
    {"--round-scales", 0, "scales become F16, which all from tq1_0 on need", .flag = &rounding},
    {"--copy", 0, "copy layers that are not ternary, and write what bitnet.h cannot load",
     .flag = &copying},
    {"--name", "NAME", "general.name of a folder's model (the folder's)", .text = &model_name},
    {"--pre", "NAME", "tokenizer.ggml.pre of a folder's model (detected)", .text = &pre_name},
    {"--pooling", "KIND", "of a folder's embeddings: mean, first or last (modules.json)",
     .text = &pooling_name},
    {"--window", 0, "write the sliding window of a folder's Gemma", .flag = &windowed},
    {"--force", 0, "replace OUT.gguf", .flag = &forcing},
    {"--inspect", 0, "print keys, tensors, checksums and warnings", .flag = &inspecting},
    {"--verify", 0, "compare the weights of two files", .flag = &verifying}
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const char usage[] =
    "convert FOLDER OUT.gguf          of a Hugging Face model\n"
    "convert IN.gguf OUT.gguf         the same model, packed in another way\n"
    "convert --inspect FILE\n"
    "convert --verify A B\n";

/* Returns 0, or an exit code + 1. */
static int parse(int argc, char **argv) {
    char error[OPTION_ERROR];
    int i, shown;
    for (i = 1; i < argc; i++) {
        const option *o = option_find(options, N_OPTIONS, argv[i]);
        if (argv[i][0] != '-') {
            if (!argv[i][0]) fail(2, "a file's name is empty; see --help");
            if (n_files == 2) fail(2, "'%s' is one file too many; see --help", argv[i]);
            files[n_files++] = argv[i];
            continue;
        }
        shown = options_show(argv[i], "convert", options, N_OPTIONS, usage,
                             "exit codes: 0 success, 1 failure or a difference, 2 usage\n");
        if (shown) return shown;
        if (!option_take(o, argv, &i, error)) fail(2, "%s", error);
        if (o->text && !**o->text) fail(2, "%s: the value (%s) is empty", o->names, o->arg);
    }
    return 0;
}

/* ---- the options' values ---- */

#define Q2_0_128 "q2_0_128"            /* blocks of PQ2_0 under the number of Q2_0 */

static const option_name ternary_types[] = {
    {"i2_s", BITNET_TENSOR_I2_S}, {"tl1", BITNET_TENSOR_TL1}, {"tl2", BITNET_TENSOR_TL2},
    {"tl2_r16", BITNET_TENSOR_TL2_R16}, {"tq1_0", BITNET_TENSOR_TQ1_0},
    {"tq2_0", BITNET_TENSOR_TQ2_0}, {"q1_0", BITNET_TENSOR_Q1_0}, {"q2_0", BITNET_TENSOR_Q2_0},
    {"pq2_0", BITNET_TENSOR_PQ2_0}, {"ptq1_0", BITNET_TENSOR_PTQ1_0},
    {Q2_0_128, BITNET_TENSOR_PQ2_0}, {0, BITNET_TENSOR_I2_S}};
static const option_name head_types[] = {
    {"f16", BITNET_TENSOR_F16}, {"bf16", BITNET_TENSOR_BF16}, {"f32", BITNET_TENSOR_F32},
    {"q8_0", BITNET_TENSOR_Q8_0}, {"q6_k", BITNET_TENSOR_Q6_K}, {"q5_k", BITNET_TENSOR_Q5_K},
    {"q4_k", BITNET_TENSOR_Q4_K}, {"q5_0", BITNET_TENSOR_Q5_0}, {0, BITNET_TENSOR_F16}};
static const option_name poolings[] = {
    {"mean", BITNET_POOLING_MEAN}, {"first", BITNET_POOLING_FIRST}, {"last", BITNET_POOLING_LAST},
    {0, BITNET_POOLING_MODEL}};

static uint32_t value_of(const char *own, const char *text, const option_name *names) {
    char error[OPTION_ERROR];
    int value;
    if (!option_value(own, text, names, &value, error)) fail(2, "%s", error);
    return (uint32_t)value;
}

static bitnet_i2s_packing layout(const char *own, const char *text) {
    bitnet_i2s_packing p = BITNET_I2S_128;
    if (text && !value_packing(text, &p)) fail(2, "%s: '%s' is not " I2S_PACKINGS, own, text);
    return p;
}

static tile_set tiles(const char *own, const char *text) {
    bitnet_error err = {0};
    tile_set set;
    memset(&set, 0, sizeof set);
    if (text && tiles_read(&set, text, &err)) fail(2, "%s: %s", own, err.text);
    return set;
}

static void resolve(repack_options *o) {
    memset(o, 0, sizeof *o);
    o->to.type = value_of("--to", to_name, ternary_types);
    o->to.i2s_packing = layout("--i2s", i2s_name);
    o->to.tiles = tiles("--tile", tile_text);
    o->to.tile_option = "--tile";
    o->to.i2s_option = "--i2s";
    o->from.i2s_packing = layout("--from-layout", from_name);
    o->from.tiles = tiles("--from-tile", from_tile_text);
    o->from.tile_option = "--from-tile";
    o->from.i2s_option = "--from-layout";
    o->wants_ternary = to_name || i2s_name;
    o->wants_head = head_name != 0;
    o->head_type = value_of("--head", head_name, head_types);
    o->unfold = unfold_name != 0;
    o->unfold_type = value_of("--unfold", unfold_name, head_types);
    o->fold = fold_name;
    o->pq2_0_as_42 = to_name && !strcmp(to_name, Q2_0_128);
    o->round_scales = rounding;
    o->copy = copying;
    o->force = forcing;
}

/* Options that exclude each other. */
static void check(const repack_options *o) {
    if (inspecting && verifying) fail(2, "--inspect and --verify exclude each other");
    if (n_files != (inspecting ? 1 : 2))
        fail(2, "%s needs %s; see --help",
             inspecting ? "--inspect" : verifying ? "--verify" : "convert",
             inspecting ? "one file" : "two files");
    if (inspecting && (i2s_name || tile_text || from_name || from_tile_text))
        fail(2, "--inspect does not use options for packings");
    if (inspecting || verifying) {
        if (to_name || head_name || forcing || pre_name || model_name || pooling_name || windowed ||
            rounding || copying || unfold_name || fold_name)
            fail(2, "--to, --head, --unfold, --fold, --pre, --name, --pooling, --window, "
                 "--round-scales, --copy and --force are for writing a file");
    } else if ((pre_name || model_name || pooling_name || windowed) && !is_folder(files[0]))
        fail(2, "--pre, --name, --pooling and --window are for a folder's model");
    else if ((rounding || copying || unfold_name || fold_name) && is_folder(files[0]))
        fail(2, "--round-scales, --copy, --unfold and --fold are for a GGUF file");
    else if (unfold_name && (to_name || head_name || i2s_name || fold_name))
        fail(2, "--unfold says the type of all matrices: it takes no --to, --head, --i2s or "
             "--fold");
    else if (fold_name && (!in_blocks(o->to.type) || head_name))
        fail(2, "--fold needs --to q2_0 or another type with a scale per group, and takes no "
             "--head");
    else if (rounding && !in_blocks(o->to.type))
        fail(2, "--round-scales is for --to tq1_0, tq2_0, q1_0, q2_0, q2_0_128, pq2_0 and ptq1_0");
    else if (to_name && i2s_name && o->to.type != BITNET_TENSOR_I2_S)
        fail(2, "--i2s and --to %s exclude each other", to_name);
    else if (tile_text && o->to.type != BITNET_TENSOR_TL1 && o->to.type != BITNET_TENSOR_TL2)
        fail(2, "--tile is for --to tl1 and --to tl2; the input's tile is --from-tile");
}

/* ---- from Hugging Face ---- */

static void log_text(void *ud, const char *text) {
    (void)ud;
    say("%s", text);
}

static void convert_folder(const char *in, const char *out) {
    hf_options o;
    hf_model h;
    packing p;                         /* I2_S in groups of 128, or blocks */
    bitnet_error err = {0};
    memset(&p, 0, sizeof p);
    memset(&o, 0, sizeof o);
    o.name = model_name;
    o.pre = pre_name;
    o.head_type = value_of("--head", head_name, head_types);
    o.wants_head = head_name != 0;
    o.group_type = to_name ? value_of("--to", to_name, ternary_types) : 0;
    o.group_number = to_name && !strcmp(to_name, Q2_0_128) ? BITNET_TENSOR_Q2_0 : o.group_type;
    o.pooling = value_of("--pooling", pooling_name, poolings);
    o.window = windowed;
    o.log_fn = log_text;
    if (o.group_type == BITNET_TENSOR_I2_S) o.group_type = 0;
    if ((o.group_type && o.group_type != BITNET_TENSOR_Q1_0 &&
         o.group_type != BITNET_TENSOR_Q2_0 && o.group_type != BITNET_TENSOR_PQ2_0 &&
         o.group_type != BITNET_TENSOR_PTQ1_0) || i2s_name || from_name || from_tile_text)
        fail(2, "a folder becomes I2_S in groups of 128, or q1_0, q2_0, q2_0_128, pq2_0 or ptq1_0; "
             "convert that file for other types");
    if (hf_open(&h, in, &o, &err)) fail(1, "%s: %s", in, err.text);
    output_open(out, forcing);
    if (hf_write(&h, &writer, &err)) fail(1, "%s: %s", in, err.text);
    hf_close(&h);
    check_output(output_end(), out, &p, 1, "");
    output_close(forcing);
}

int main(int argc, char **argv) {
    repack_options o;
    int code;
    if (!streams_fill()) return 1;
    argv = utf8_arguments(&argc, argv);
    if ((code = parse(argc, argv)) != 0) return code - 1;
    file_set_output(files[1]);
    resolve(&o);
    check(&o);
    if (inspecting) inspect(files[0]);
    else if (verifying) code = verify(files[0], &o.from, files[1], &o.to);
    else {
        output_report_leftovers(files[1]);
        if (is_folder(files[0])) convert_folder(files[0], files[1]);
        else repack(files[0], files[1], &o);
    }
    free_buffers();
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write: %s", strerror(errno));
    return code;
}
