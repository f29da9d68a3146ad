#define _DEFAULT_SOURCE 1              /* for written.h */
#define _FILE_OFFSET_BITS 64
#define WRITTEN_IMPLEMENTATION
#include "save.h"
#include "../written.h"
#include "model.h"
#include "report.h"

/* Returns 0, or why it failed. */
static const char *save(written *w, const char *path) {
    const char *why = written_create(w, path, 1);
    if (why) return why;
    if (file ? fwrite(file, 1, file_size, w->f) != file_size : !write_model(w->f))
        return strerror(errno);
    why = written_end(w);
    return why ? why : written_name(w);
}

void save_file(const char *path, const char *model) {
    char shown[1024];
    written w;
    const char *why;
    if (model && file_is_same(path, model)) fail(2, "--save %s: it is the model", path);
    why = save(&w, path);
    written_free(&w);
    if (why) fail(1, "cannot write %s: %s", path, why);
    bitnet_clean_text(path, strlen(path), shown, sizeof shown);
    fprintf(stderr, "%s: %.1f MB written\n", shown, (double)file_size * 1e-6);
}
