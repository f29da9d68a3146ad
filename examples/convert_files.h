/* convert_files.h - a part of convert.c: the files of a folder, also those over 4 GB. */
#include <sys/stat.h>
#ifdef _WIN32
  #define look_at _stat64              /* stat fails for files over 4 GB */
  typedef struct _stat64 file_stat;
#else
  #define look_at stat
  typedef struct stat file_stat;
#endif

/* A pipe, say, which would wait for somebody to write into it. */
static int is_no_file(const char *path) {
    file_stat st;
    return !look_at(path, &st) && (st.st_mode & S_IFMT) != S_IFREG;
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

/* A file of the folder, and its size; 0 if it cannot be read, as if it is a folder itself. */
static FILE *file_open(const char *dir, const char *name, uint64_t *size) {
    char path[1024 + 160];
    FILE *f;
    int ok;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = is_no_file(path) ? 0 : fopen(path, "rb");
    if (!f) return 0;
#if defined(_WIN32)
    ok = !_fseeki64(f, 0, SEEK_END);
    *size = ok ? (uint64_t)_ftelli64(f) : 0;
#elif LONG_MAX > 0x7fffffff
    ok = !fseek(f, 0, SEEK_END);
    *size = ok ? (uint64_t)ftell(f) : 0;
#else
    ok = !fseeko(f, 0, SEEK_END);
    *size = ok ? (uint64_t)ftello(f) : 0;
#endif
    if (ok && *size <= INT64_MAX && !file_seek(f, 0) && (fgetc(f) != EOF || !ferror(f)) &&
        !file_seek(f, 0)) return f;
    fclose(f);
    return 0;
}

/* n bytes of f, from base on, where it stands, parsed as the JSON of that name. */
static bitnet_result file_parse(FILE *f, const char *name, size_t base, uint64_t n, json *j,
                                bitnet_error *err) {
    memset(j, 0, sizeof *j);
    j->base = base;
    snprintf(j->name, sizeof j->name, "%s", name);
    if (n > JSON_MAX_BYTES)
        return bitnet__fail(err, BITNET_ERR_LIMIT, "%s: %llu bytes of JSON are too many", name,
                            (unsigned long long)n);
    j->size = (size_t)n;
    if (!(j->text = (char *)malloc(j->size + 1)))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "%s: no memory for its %llu bytes", name,
                            (unsigned long long)n);
    if (fread(j->text, 1, j->size, f) != j->size)
        return bitnet__fail(err, BITNET_ERR_IO, "%s: cannot be read", name);
    j->text[j->size] = 0;
    return json_parse(j, err);
}

/* A whole file of JSON. *found may be 0: then it has to be there. */
static bitnet_result file_load_json(const char *dir, const char *name, int *found, json *j,
                                  bitnet_error *err) {
    uint64_t size = 0;
    FILE *f = file_open(dir, name, &size);
    bitnet_result r;
    memset(j, 0, sizeof *j);
    if (found) *found = f != 0;
    if (!f)
        return found ? BITNET_OK : bitnet__fail(err, BITNET_ERR_IO, "%s: cannot be read", name);
    r = file_parse(f, name, 0, size, j, err);
    fclose(f);
    return r;
}
