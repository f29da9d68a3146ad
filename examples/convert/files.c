#define _DEFAULT_SOURCE 1              /* fseeko and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* fseeko beyond 2 GB, also on 32-bit systems */
#define WRITTEN_IMPLEMENTATION
#include "files.h"
#include "../utf8.h"
#include "../json/text.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ---- */

static const char *output_path;
static int output_is_read;

void file_set_output(const char *path) { output_path = path; }

void file_note_read(const char *path) {
    if (output_path && file_is_same(path, output_path)) output_is_read = 1;
}

int file_output_is_read(void) { return output_is_read; }

int is_folder(const char *path) {
    file_facts facts;
    return !file_look(&facts, path, 1) && facts.is_folder;
}

/* Does nothing have that name? A link that leads nowhere exists. */
static int file_is_absent(const char *path) {
    file_facts facts;
    return file_look(&facts, path, 0) == ENOENT;
}

int file_exists(const char *dir, const char *name) {
    char path[FILE_PATH];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && n < FILE_PATH && !file_is_absent(path);
}

/* Ends the path before its last name, without separators, and returns that. */
static char *file_cut_name(char *path) {
    size_t n = strlen(path);
    while (n > 0 && strchr("/\\", path[n - 1])) n--;
    path[n] = 0;
    while (n > 0 && !strchr("/\\", path[n - 1])) n--;
    if (n > 0) path[n - 1] = 0;
    return path + n;
}

void file_base_name(const char *path, char *out, size_t cap) {
    char full[FILE_PATH];
    const char *base, *other, *at;
#ifdef _WIN32
    WCHAR wide[UTF8_PATH], wide_full[UTF8_PATH];
    if (!utf8_wide(path, wide) || !_wfullpath(wide_full, wide, UTF8_PATH) ||
        !WideCharToMultiByte(CP_UTF8, 0, wide_full, -1, full, sizeof full, 0, 0))
        snprintf(full, sizeof full, "%s", path);
#else
    char *real = realpath(path, 0);
    snprintf(full, sizeof full, "%s", real ? real : path);
    free(real);
#endif
    base = file_cut_name(full);
    if (base > full && !strcmp(file_cut_name(full), "snapshots")) {
        other = file_cut_name(full);
        if (!strncmp(other, "models--", 8))
            for (base = other; (at = strstr(base, "--")) != 0;) base = at + 2;
    }
    bitnet_clean_text(base, strlen(base), out, cap);
}

/* ---- offsets ---- */

int file_seek(FILE *f, uint64_t at) {
#if defined(_WIN32)
    return at > INT64_MAX || _fseeki64(f, (int64_t)at, SEEK_SET);
#elif LONG_MAX > 0x7fffffff
    return at > LONG_MAX || fseek(f, (long)at, SEEK_SET);
#else
    return (uint64_t)(off_t)at != at || (off_t)at < 0 || fseeko(f, (off_t)at, SEEK_SET);
#endif
}

/* The size of an open file; -1 if it cannot be found. */
static int64_t file_size(FILE *f) {
#if defined(_WIN32)
    return _fseeki64(f, 0, SEEK_END) ? -1 : _ftelli64(f);
#elif LONG_MAX > 0x7fffffff
    return fseek(f, 0, SEEK_END) ? -1 : ftell(f);
#else
    return fseeko(f, 0, SEEK_END) ? -1 : ftello(f);
#endif
}

/* ---- reading ---- */

/* The error of a file that cannot be read; reason is an errno, or 0. */
static bitnet_result file_fail(const char *name, int reason, bitnet_error *err) {
    return set_error(err, BITNET_ERR_IO, "%s: cannot be read: %s", name,
                     reason ? strerror(reason) : "the file has become shorter");
}

/* Does the file, which is at its start, begin as a pointer of git-lfs? */
static int file_begins_as_pointer(FILE *f) {
    static const char first[] = "version https://git-lfs.github.com/spec/";
    char bytes[sizeof first - 1];
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    return n == sizeof bytes && !memcmp(bytes, first, n);
}

int file_is_pointer(const char *path) {
    FILE *f = utf8_fopen(path, "rb");
    const int yes = f && file_begins_as_pointer(f);
    if (f) fclose(f);
    return yes;
}

bitnet_result file_open(const char *dir, const char *name, int optional, FILE **f, uint64_t *size,
                        bitnet_error *err) {
    char path[FILE_PATH];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    int64_t end;
    *f = 0;
    *size = 0;
    if (n < 0 || n >= FILE_PATH)
        return set_error(err, BITNET_ERR_LIMIT, "%s: the folder's name is too long", name);
    if (optional && file_is_absent(path)) return BITNET_OK;
    if (is_not_a_file(path))
        return set_error(err, BITNET_ERR_IO, "%s: cannot be read: it is not a file", name);
    errno = 0;
    *f = utf8_fopen(path, "rb");
    if (!*f) return file_fail(name, errno, err);
    file_note_read(path);
    end = file_size(*f);
    /* Some file systems open what they cannot read: try the first byte. */
    if (end >= 0 && !file_seek(*f, 0)) {
        const int is_pointer = file_begins_as_pointer(*f);
        if (is_pointer) set_error(err, BITNET_ERR_FORMAT, "%s: %s", name, FILE_POINTER);
        else if (!ferror(*f) && !file_seek(*f, 0)) {
            *size = (uint64_t)end;
            return BITNET_OK;
        } else file_fail(name, errno, err);
    } else file_fail(name, errno, err);
    fclose(*f);
    *f = 0;
    return BITNET_ERR_IO;
}

bitnet_result file_read(FILE *f, const char *name, size_t n, char **out, bitnet_error *err) {
    *out = (char *)malloc(n + 1);
    if (!*out)
        return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for its %llu bytes", name,
                         (unsigned long long)n);
    errno = 0;
    if (fread(*out, 1, n, f) != n) return file_fail(name, ferror(f) ? errno : 0, err);
    (*out)[n] = 0;
    return BITNET_OK;
}

bitnet_result file_parse(FILE *f, const char *name, size_t base, uint64_t n, json *j,
                         bitnet_error *err) {
    bitnet_result r;
    memset(j, 0, sizeof *j);
    j->base = base;
    j->python = 1;                     /* NaN in a field that nobody reads does no harm */
    snprintf(j->name, sizeof j->name, "%s", name);
    if (n > JSON_MAX_BYTES)
        return set_error(err, BITNET_ERR_LIMIT, "%s: %llu bytes of JSON are too many", name,
                         (unsigned long long)n);
    j->size = (size_t)n;
    r = file_read(f, name, j->size, &j->text, err);
    return r ? r : json_parse(j, err);
}

bitnet_result file_load_json(const char *dir, const char *name, int optional, json *j,
                             bitnet_error *err) {
    uint64_t size;
    FILE *f;
    bitnet_result r;
    memset(j, 0, sizeof *j);
    r = file_open(dir, name, optional, &f, &size, err);
    if (!f) return r;
    r = file_parse(f, name, 0, size, j, err);
    fclose(f);
    return r;
}
