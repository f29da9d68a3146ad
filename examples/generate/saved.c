#include "saved.h"
#include "conversation.h"
#include "files.h"
#include "options.h"
#include "screen.h"
#include "../utf8.h"
#include <errno.h>
#include <string.h>

int cache_failed, cache_is_read;

static bitnet_result write_piece(void *ud, const void *data, size_t n) {
    return fwrite(data, 1, n, (FILE *)ud) == n ? BITNET_OK : BITNET_ERR_IO;
}

static bitnet_result read_piece(void *ud, uint64_t offset, void *dst, size_t n) {
    if (seek_file((FILE *)ud, (int64_t)offset, SEEK_SET) < 0) return BITNET_ERR_IO;
    if (fread(dst, 1, n, (FILE *)ud) == n) return BITNET_OK;
    return ferror((FILE *)ud) ? BITNET_ERR_IO : BITNET_ERR_TRUNCATED;
}

/* Returns 0, or why it failed. */
static const char *write_state(written *w) {
    bitnet_io io = {.write_fn = write_piece, .ud = w->f};
    const bitnet_result r = bitnet_seq_save_io(ctx, 0, &io, &err);
    const char *reason = r == BITNET_ERR_IO ? strerror(errno) : r ? err.text : written_end(w);
    return reason ? reason : written_name(w);
}

int save_state(const char *path) {
    written w;
    const char *reason;
    int code = GO_ON;
    if (is_not_a_file(path)) return fail(1, "cannot write '%s': it is not a file", path);
    if (file_begins_otherwise(path, "BITNETSQ"))
        return fail(1, "cannot write '%s': it is there, and is no saved conversation", path);
    reason = written_create(&w, path, 0);
    if (!reason) reason = write_state(&w);
    if (reason) code = fail(1, "cannot write '%s': %s", path, reason);
    written_free(&w);
    return code;
}

int load_state(const char *path, int may_lack) {
    bitnet_io io = {.read_fn = read_piece};
    bitnet_result r = BITNET_OK;
    int64_t size;
    FILE *f;
    if (is_not_a_file(path)) return fail(1, "cannot read '%s': it is not a file", path);
    io.ud = f = utf8_fopen(path, "rb");
    if (!f && may_lack && errno == ENOENT) return GO_ON;
    if (!f) return fail(1, "cannot read '%s': %s", path, strerror(errno));
    size = seek_file(f, 0, SEEK_END);
    io.size = size < 0 ? 0 : (uint64_t)size;
    errno = 0;
    if (size != 0 || !may_lack) r = bitnet_seq_load_io(ctx, 0, &io, &err);
    if (r == BITNET_ERR_IO) fail(1, "cannot read '%s': %s", path, strerror(errno));
    else if (r == BITNET_ERR_FULL) fail(1, "'%s': %s; see -c", path, err.text);
    else if (r != BITNET_OK) fail(1, "'%s': %s", path, err.text);
    fclose(f);
    return r == BITNET_OK ? GO_ON : 1;
}

int evaluate_to(int32_t n) {
    int32_t at;
    started = now();
    bar_begin("prompt");
    while ((at = bitnet_seq_length(ctx, 0)) < n && !interrupted) {
        int32_t count = n - at < ctx_params.n_batch ? n - at : ctx_params.n_batch;
        if (bitnet_eval(ctx, 0, tokens + at, count, 1, &err)) return fail(1, "%s", err.text);
        n_prompt += count;
        bar_update((double)(at + count) / n);
    }
    bar_end();
    prompt_seconds += now() - started;
    return GO_ON;
}

int use_cache(void) {
    const int32_t n = n_tokens - 1;
    int32_t kept;
    int code = load_state(cache_path, 1);
    if (code != GO_ON) return code;
    cache_is_read = 1;
    keep_common(n);
    kept = bitnet_seq_length(ctx, 0) - bitnet_seq_again(ctx, 0);
    if (verbose) say("%d of %d tokens are in the prompt cache", kept, n_tokens);
    code = evaluate_to(n);
    if (code == GO_ON && kept < n && !cache_read_only && !interrupted)
        cache_failed = save_state(cache_path) != GO_ON;
    return code;
}
