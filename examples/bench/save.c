#define _DEFAULT_SOURCE 1              /* for written.h */
#define _FILE_OFFSET_BITS 64
#define WRITTEN_IMPLEMENTATION
#include "save.h"
#include "../written.h"
#include "model.h"
#include "report.h"

static char *volatile unfinished;      /* the file's name so far; 0: it has none of its own */

/* Ends the program as the signal would have done. */
static void drop_unfinished(int which) {
    if (unfinished) written_remove(unfinished);
    signal(which, SIG_DFL);
    raise(which);
}

/* A parent may have set a signal to be ignored, as nohup does. */
static void drop_on(int which) {
    if (signal(which, SIG_IGN) != SIG_IGN) signal(which, drop_unfinished);
}

/* Returns 0, or why it failed. */
static const char *save(written *w, const char *path) {
    const char *why;
    drop_on(SIGINT);
    drop_on(SIGTERM);
#ifdef SIGHUP
    drop_on(SIGHUP);
#endif
    if ((why = written_create(w, path, 1)) != 0) return why;
    unfinished = w->part;
    if (file ? fwrite(file, 1, file_size, w->f) != file_size : !write_model(w->f))
        return strerror(errno);
    why = written_end(w);
    unfinished = 0;
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
