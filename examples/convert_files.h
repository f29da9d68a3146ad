/* convert_files.h - a part of convert.c: the files of a folder, also those over 4 GB. A file that
   is there but cannot be read is an error, even where the file may be missing. */
#include <errno.h>
#include <sys/stat.h>
#ifdef _WIN32
  #define look_at _stat64              /* stat fails for files over 4 GB */
  typedef struct _stat64 file_stat;
  enum { FILE_PATH = 260 };            /* bytes of a path, with its NUL; longer ones seem absent */
#else
  #define look_at stat
  typedef struct stat file_stat;
  enum { FILE_PATH = 4096 };
#endif

/* A pipe, say, which would wait for somebody to write into it. */
static int is_no_file(const char *path) {
    file_stat st;
    return !look_at(path, &st) && (st.st_mode & S_IFMT) != S_IFREG;
}

/* Nothing has that name. A link to nothing does have it. */
static int is_absent(const char *path) {
    file_stat st;
#ifndef _WIN32
    if (!lstat(path, &st)) return 0;
#else
    if (!look_at(path, &st)) return 0;
#endif
    return errno == ENOENT;
}

static int file_seek(FILE *f, uint64_t at) {
#if defined(_WIN32)
    return at > INT64_MAX || _fseeki64(f, (int64_t)at, SEEK_SET);
#elif LONG_MAX > 0x7fffffff
    return at > LONG_MAX || fseek(f, (long)at, SEEK_SET);
#else                                  /* over 2 GB with _FILE_OFFSET_BITS 64 */
    return (uint64_t)(off_t)at != at || (off_t)at < 0 || fseeko(f, (off_t)at, SEEK_SET);
#endif
}

/* The size of an open file; -1: it has none that can be found. */
static int64_t file_size(FILE *f) {
#if defined(_WIN32)
    return _fseeki64(f, 0, SEEK_END) ? -1 : _ftelli64(f);
#elif LONG_MAX > 0x7fffffff
    return fseek(f, 0, SEEK_END) ? -1 : ftell(f);
#else
    return fseeko(f, 0, SEEK_END) ? -1 : ftello(f);
#endif
}

/* The error of a file that cannot be read, with the system's reason (an errno), if there is one. */
static bitnet_result file_fail(const char *name, int reason, bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_IO, "%s: cannot be read: %s", name,
                        reason ? strerror(reason) : "the file has become shorter");
}

/* Opens a file of the folder, at its beginning. *f is 0 after an error, and also if the file is
   optional and there is none, which is no error. */
static bitnet_result file_open(const char *dir, const char *name, int optional, FILE **f,
                               uint64_t *size, bitnet_error *err) {
    char path[FILE_PATH];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    int64_t end;
    *f = 0;
    *size = 0;
    if (n < 0 || n >= FILE_PATH)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "%s: the folder's name is too long", name);
    if (optional && is_absent(path)) return BITNET_OK;
    if (is_no_file(path))
        return bitnet__fail(err, BITNET_ERR_IO, "%s: cannot be read: that is no file", name);
    errno = 0;
    if (!(*f = fopen(path, "rb"))) return file_fail(name, errno, err);
    if ((end = file_size(*f)) >= 0 && !file_seek(*f, 0) && (fgetc(*f) != EOF || !ferror(*f)) &&
        !file_seek(*f, 0)) {
        *size = (uint64_t)end;
        return BITNET_OK;
    }
    file_fail(name, errno, err);
    fclose(*f);
    *f = 0;
    return BITNET_ERR_IO;
}

/* The next n bytes of f, in memory of their own with a NUL behind them. */
static bitnet_result file_read(FILE *f, const char *name, size_t n, char **out, bitnet_error *err) {
    *out = (char *)malloc(n + 1);
    if (!*out)
        return bitnet__fail(err, BITNET_ERR_MEMORY, "%s: no memory for its %llu bytes", name,
                            (unsigned long long)n);
    errno = 0;
    if (fread(*out, 1, n, f) != n) return file_fail(name, ferror(f) ? errno : 0, err);
    (*out)[n] = 0;
    return BITNET_OK;
}

/* n bytes of f, from base on, where it stands, parsed as the JSON of that name. */
static bitnet_result file_parse(FILE *f, const char *name, size_t base, uint64_t n, json *j,
                                bitnet_error *err) {
    bitnet_result r;
    memset(j, 0, sizeof *j);
    j->base = base;
    snprintf(j->name, sizeof j->name, "%s", name);
    if (n > JSON_MAX_BYTES)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "%s: %llu bytes of JSON are too many", name,
                            (unsigned long long)n);
    j->size = (size_t)n;
    r = file_read(f, name, j->size, &j->text, err);
    return r ? r : json_parse(j, err);
}

/* A whole file of JSON. Without an optional file j has no nodes. */
static bitnet_result file_load_json(const char *dir, const char *name, int optional, json *j,
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
