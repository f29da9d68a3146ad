/* All fuzz targets as one program; ./build.sh fuzz and the suite fuzz-replay build it.

   With clang's libFuzzer the name by which the program is called ends in the target's: fuzz-gguf.
   With -DFUZZ_REPLAY it needs no libFuzzer, and runs inputs once: files for the target before them,
   or whole folders that are named as a target is:

       fuzz-replay TARGET FILE... FOLDER/TARGET...
*/
#include "fuzz.h"

#define FUZZ_TARGETS(X) \
    X(gguf) X(tokenizer) X(chat) X(jinja) X(sampler) X(safetensors) X(import) X(kernels) \
    X(pipeline) X(state) X(sequences) X(grammar)
#define FUZZ_TARGET(name) static void fuzz_##name(const uint8_t *data, size_t size)

#include "../../examples/convert/files.c"
#include "../../examples/json/text.c"
#include "../../examples/json/json.c"
#include "../../examples/convert/safetensors.c"
#include "../../examples/convert/sentencepiece.c"
#include "../../examples/convert/steps.c"
#include "../../examples/convert/tokenizer.c"
#include "../../examples/convert/gguf_write.c"
#include "../../examples/convert/pack.c"
#include "../../examples/convert/pooling.c"
#include "../../examples/convert/hf.c"

#include "fuzz_gguf.c"
#include "fuzz_tokenizer.c"
#include "fuzz_chat.c"
#include "fuzz_jinja.c"
#include "fuzz_sampler.c"
#include "fuzz_safetensors.c"
#include "fuzz_import.c"
#include "fuzz_kernels.c"
#include "fuzz_pipeline.c"
#include "fuzz_state.c"
#include "fuzz_sequences.c"
#include "fuzz_grammar.c"

int test_unmapped;       /* of test.h; 0: files are mapped */

typedef void (*fuzz_target)(const uint8_t *data, size_t size);

static const struct { const char *name; fuzz_target run; } fuzz_targets[] = {
#define FUZZ_ENTRY(name) {#name, fuzz_##name},
    FUZZ_TARGETS(FUZZ_ENTRY)
#undef FUZZ_ENTRY
};

/* The target that path ends with; 0: none does. */
static fuzz_target fuzz_find(const char *path) {
    const size_t n = strlen(path);
    size_t i;
    for (i = 0; i < sizeof fuzz_targets / sizeof fuzz_targets[0]; i++) {
        const size_t len = strlen(fuzz_targets[i].name);
        if (n >= len && !strcmp(path + n - len, fuzz_targets[i].name)) return fuzz_targets[i].run;
    }
    return 0;
}

#ifndef FUZZ_REPLAY

static fuzz_target fuzz_chosen;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    fuzz_chosen = fuzz_find((*argv)[0]);
    if (fuzz_chosen) return 0;
    fprintf(stderr, "%s: no target's name ends this\n", (*argv)[0]);
    exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_chosen(data, size);
    return 0;
}

#else

#include <dirent.h>

/* Runs a file, in a block of exactly its size. Returns how many there were. */
static int replay_file(fuzz_target run, const char *path) {
    FILE *f = fopen(path, "rb");
    long size = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    uint8_t *p = size < 0 ? 0 : (uint8_t *)malloc((size_t)size + 1), *exact;
    int ok = p && !fseek(f, 0, SEEK_SET) && fread(p, 1, (size_t)size, f) == (size_t)size;
    if (f) fclose(f);
    if (!ok) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(p);
        return 0;
    }
    exact = (uint8_t *)realloc(p, (size_t)size ? (size_t)size : 1);
    if (exact) p = exact;
    fprintf(stderr, "%s\n", path);     /* the last one is what stopped it */
    run(p, (size_t)size);
    free(p);
    return 1;
}

static int replay_folder(fuzz_target run, const char *path) {
    DIR *d = opendir(path);
    const struct dirent *e;
    char name[1024];
    int n = 0;
    while (d && (e = readdir(d)) != 0) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        n += replay_file(run, name);
    }
    if (d) closedir(d);
    return n;
}

int main(int argc, char **argv) {
    fuzz_target run = 0;
    int i, n = 0;
    for (i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st)) run = fuzz_find(argv[i]);
        else if (!S_ISDIR(st.st_mode) && run) n += replay_file(run, argv[i]);
        else if (fuzz_find(argv[i])) n += replay_folder(fuzz_find(argv[i]), argv[i]);
        if (stat(argv[i], &st) && !run) {
            fprintf(stderr, "%s: neither a target nor a file\n", argv[i]);
            return 2;
        }
    }
    printf("%d passed, 0 failed, 0 skipped\n", n);     /* a failure does not come this far */
    return n ? 0 : 1;
}

#endif
