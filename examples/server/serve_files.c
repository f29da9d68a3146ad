#include "serve_files.h"
#include "serve.h"
#include "serve_system.h"
#include <errno.h>
#include <string.h>

enum { LONGEST = 512 };                /* bytes of a path */

static const char *type_of(const char *path) {
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"}, {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"}, {".json", HTTP_JSON},
        {".svg", "image/svg+xml"}, {".png", "image/png"}, {".wasm", "application/wasm"},
        {".txt", "text/plain; charset=utf-8"}
    };
    const char *dot = strrchr(path, '.');
    size_t i;
    for (i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(dot, types[i][0])) return types[i][1];
    return "application/octet-stream";
}

static answer send_to(struct MHD_Connection *c, const char *place) {
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(size_t)"",
                                                             MHD_RESPMEM_PERSISTENT);
    if (r) MHD_add_response_header(r, "Location", place);
    return http_send(c, 302, r, 0);
}

/* Why a file was not opened: it is none that is served, or the server has no room for it now. */
static http_error no_file(int error) {
    if (error == EMFILE || error == ENFILE || error == ENOMEM)
        return refuse(503, 0, "the server cannot open more files now: try again");
    return refuse(404, 0, "there is nothing at this address");
}

answer answer_file(struct MHD_Connection *c, const char *path) {
    static const char about[] = "This is a server with OpenAI's API. Its addresses: /v1/models, "
        "/v1/chat/completions, /v1/completions, /v1/embeddings, /tokenize, /detokenize, /health, "
        "/metrics.\n"
        "There is no page to chat here: --page FOLDER gives one, which ./build.sh server makes.\n";
    struct MHD_Response *r;
    int64_t size = 0;
    int fd, error;
    if (settings.page && !strcmp(path, "/") &&
        !MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "server"))
        return send_to(c, "/?server=1");       /* so the page knows that it has one to talk to */
    if (!settings.page && !strcmp(path, "/"))
        return http_send_text(c, 200, "text/plain; charset=utf-8", about, sizeof about - 1);
    if (!settings.page || path[0] != '/' || strstr(path, "/.") || strlen(path) >= LONGEST)
        return http_send_error(c, 0, no_file(ENOENT));
    if (!strcmp(path, "/")) path = "/index.html";
    fd = system_open_below(settings.page, path);
    error = fd < 0 || (size = system_file_size(fd)) < 0 ? errno : 0;
    if (error) {
        if (fd >= 0) system_close_file(fd);
        return http_send_error(c, 0, no_file(error));
    }
    r = MHD_create_response_from_fd64((uint64_t)size, fd);
    if (!r) system_close_file(fd);
    else {
        MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
        MHD_add_response_header(r, "Cross-Origin-Embedder-Policy", "require-corp");
        MHD_add_response_header(r, "Content-Security-Policy", "frame-ancestors 'self'");
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    }
    return http_send(c, 200, r, type_of(path));
}
