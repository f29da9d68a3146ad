/* plugin.c - the library inside of a plugin, and a host that loads two plugins at once

       cc -O2 -shared -fPIC examples/hosts/plugin.c -o one.so -lpthread      on Linux
       cc -O2 -bundle examples/hosts/plugin.c -o one.so                      on macOS
       cl /O2 /LD examples\hosts\plugin.c /Fe:one.dll                        on Windows
       cp one.so two.so
       cc -O2 -DPLUGIN_HOST examples/hosts/plugin.c -o host -ldl
       ./host MODEL.gguf "Once upon a time" ./one.so ./two.so

   Each plugin has its own copy of the library, perhaps of another version. BITNET_STATIC keeps it
   inside: the linker sees the plugin's three functions and nothing else. So no copy takes the place
   of another, even in a host that loads with RTLD_GLOBAL, as PostgreSQL does. A plugin frees its
   contexts before the host unloads it, since their threads run its code. */
#include <stddef.h>
#include <stdio.h>

#ifdef _WIN32
  #define PLUGIN_API __declspec(dllexport)
#else
  #define PLUGIN_API __attribute__((visibility("default")))
#endif

typedef struct teller teller;
typedef void teller_text(void *ud, const char *text, size_t n);

#ifndef PLUGIN_HOST

#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include <stdlib.h>
#include <string.h>

struct teller {
    bitnet_model *model;
    bitnet_ctx *ctx;
    teller_text *text_fn;
    void *ud;
};

PLUGIN_API void teller_close(teller *w) {
    if (!w) return;
    bitnet_ctx_free(w->ctx);           /* its threads end before this returns */
    bitnet_model_free(w->model);
    free(w);
}

/* 0: it failed, and error [cap] says why. */
PLUGIN_API teller *teller_open(const char *model, char *error, size_t cap) {
    teller *w = (teller *)calloc(1, sizeof *w);
    bitnet_error err;
    if (w && bitnet_model_load_file(model, 0, &w->model, &err) == BITNET_OK &&
        bitnet_ctx_create(w->model, 0, &w->ctx, &err) == BITNET_OK) return w;
    snprintf(error, cap, "%s", w ? err.text : "out of memory");
    teller_close(w);
    return 0;
}

static int on_text(void *ud, const char *text, size_t n, bitnet_token t) {
    teller *w = (teller *)ud;
    (void)t;
    w->text_fn(w->ud, text, n);
    return 0;
}

/* Goes on from the text. Nonzero: it failed, and error [cap] says why. */
PLUGIN_API int teller_tell(teller *w, const char *text, int max_tokens, teller_text *text_fn,
                           void *ud, char *error, size_t cap) {
    bitnet_generate_params p;
    bitnet_error err;
    memset(&p, 0, sizeof p);
    p.text = bitnet_text_of(text);
    p.max_tokens = max_tokens;
    p.text_fn = on_text;
    p.text_ud = w;
    w->text_fn = text_fn;
    w->ud = ud;
    if (bitnet_generate(w->ctx, &p, 0, &err) == BITNET_OK) return 0;
    snprintf(error, cap, "%s", err.text);
    return 1;
}

#else /* the host, which knows nothing of bitnet.h; with LoadLibrary on Windows */

#include <dlfcn.h>

static void print(void *ud, const char *text, size_t n) { fwrite(text, 1, n, (FILE *)ud); }

int main(int argc, char **argv) {
    void *plugin[2] = {0, 0};
    teller *w[2] = {0, 0}, *(*open)(const char *, char *, size_t) = 0;
    int (*tell)(teller *, const char *, int, teller_text *, void *, char *, size_t);
    void (*close)(teller *);
    char error[200];
    int i, code = argc != 5;
    if (code) fprintf(stderr, "usage: %s MODEL.gguf PROMPT PLUGIN PLUGIN\n", argv[0]);
    for (i = 0; i < 2 && !code; i++) {
        plugin[i] = dlopen(argv[3 + i], RTLD_NOW | RTLD_GLOBAL);
        if (plugin[i]) *(void **)&open = dlsym(plugin[i], "teller_open");
        if (!plugin[i] || !open) fprintf(stderr, "host: %s\n", dlerror());
        else if (!(w[i] = open(argv[1], error, sizeof error))) fprintf(stderr, "host: %s\n", error);
        code |= !w[i];
    }
    for (i = 0; i < 2 && !code; i++) { /* both are open, and take turns */
        *(void **)&tell = dlsym(plugin[i], "teller_tell");
        code = tell(w[i], argv[2], 100, print, stdout, error, sizeof error);
        if (code) fprintf(stderr, "host: %s\n", error);
        else printf("\n");
    }
    for (i = 0; i < 2; i++) {
        if (!plugin[i]) continue;
        *(void **)&close = dlsym(plugin[i], "teller_close");
        if (w[i]) close(w[i]);
        dlclose(plugin[i]);
    }
    return code || fflush(stdout) || ferror(stdout);
}

#endif
