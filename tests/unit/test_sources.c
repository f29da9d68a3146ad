/* Where bytes come from: files that are mapped, read or refused, by several threads, large, or with
   unusual names; and what the texts of errors say and hold. */
#include "test.h"
#include "../../examples/convert/gguf_write.h"

#include <time.h>
#include "gguf_builder.h"

/* ---- texts that are safe to show ---- */

static const struct { const char *text, *clean; } clean_cases[] = {
    {"", ""},
    {"plain ~ text", "plain ~ text"},
    {"W\xC3\xB6rld \xE2\x82\xAC \xF0\x9F\x98\x80", "W\xC3\xB6rld \xE2\x82\xAC \xF0\x9F\x98\x80"},
    {"tab\there\r\n", "tab?here??"},
    {"\x1B[31m", "?[31m"},
    {"\x7F\xC2\x80\xC2\x9F\xC2\xA0", "???\xC2\xA0"},                    /* DEL, C1, not U+00A0 */
    {"\xFF\xC3=\xE2\x82", "?" "?=??"},                                  /* no UTF-8, one a byte */
    {"\xED\xA0\x80", "???"},                                            /* a surrogate */
    {"a\xC2\xAD" "b\xD8\x9C" "c\xE1\xA0\x8E", "a?b?c?"},                /* U+00AD, 061C, 180E */
    {"\xE2\x80\x8A\xE2\x80\x8B\xE2\x80\x8F\xE2\x80\x90", "\xE2\x80\x8A??\xE2\x80\x90"}, /* 200A.. */
    {"\xE2\x80\xA7\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\xE2\x80\xAE\xE2\x80\xAF",
     "\xE2\x80\xA7????\xE2\x80\xAF"},                                   /* 2027 to 202F */
    {"\xE2\x81\x9F\xE2\x81\xA0\xE2\x81\xA6\xE2\x81\xA9\xE2\x81\xAF\xE2\x81\xB0",
     "\xE2\x81\x9F????\xE2\x81\xB0"},                                   /* 205F to 2070 */
    {"\xEF\xBB\xBF\xEF\xBF\xB9\xEF\xBF\xBB\xEF\xBF\xBC", "???\xEF\xBF\xBC"},   /* FEFF, FFF9.. */
    {"\xF3\xA0\x80\x80\xF3\xA0\x80\xA0\xF3\xA0\xBF\xBF\xF3\xA1\x80\x80", "???\xF3\xA1\x80\x80"},
    /* the ends of ranges, and their neighbours */
    {"\xCD\x8E\xCD\x8F\xCD\x90", "\xCD\x8E?\xCD\x90"},                   /* 034E to 0350 */
    {"\xE1\x85\x9E\xE1\x85\x9F\xE1\x85\xA0\xE1\x85\xA1", "\xE1\x85\x9E??\xE1\x85\xA1"}, /* 115E.. */
    {"\xE1\x9E\xB3\xE1\x9E\xB4\xE1\x9E\xB5\xE1\x9E\xB6", "\xE1\x9E\xB3??\xE1\x9E\xB6"}, /* 17B3.. */
    {"\xE1\xA0\x8A\xE1\xA0\x8B\xE1\xA0\x8F\xE1\xA0\x90", "\xE1\xA0\x8A??\xE1\xA0\x90"}, /* 180A.. */
    {"\xE3\x85\xA3\xE3\x85\xA4\xE3\x85\xA5", "\xE3\x85\xA3?\xE3\x85\xA5"},             /* 3163.. */
    {"\xEF\xB7\xBF\xEF\xB8\x80\xEF\xB8\x8F\xEF\xB8\x90", "\xEF\xB7\xBF??\xEF\xB8\x90"}, /* FDFF.. */
    {"\xEF\xBE\x9F\xEF\xBE\xA0\xEF\xBE\xA1", "\xEF\xBE\x9F?\xEF\xBE\xA1"},             /* FF9F.. */
    {"\xEF\xBF\xAF\xEF\xBF\xB0\xEF\xBF\xB8", "\xEF\xBF\xAF??"},                         /* FFEF.. */
    {"\xF0\x9B\xB2\x9F\xF0\x9B\xB2\xA0\xF0\x9B\xB2\xA3\xF0\x9B\xB2\xA4",
     "\xF0\x9B\xB2\x9F??\xF0\x9B\xB2\xA4"},    /* 1BC9F.. */
    {"\xF0\x9D\x85\xB2\xF0\x9D\x85\xB3\xF0\x9D\x85\xBA\xF0\x9D\x85\xBB",
     "\xF0\x9D\x85\xB2??\xF0\x9D\x85\xBB"}     /* 1D172.. */
};

/* Each of them, into every size of buffer, and where it stands. */
static void test_clean_text(void) {
    size_t i, cap;
    for (i = 0; i < sizeof clean_cases / sizeof clean_cases[0]; i++) {
        const char *text = clean_cases[i].text, *want = clean_cases[i].clean;
        const size_t n = strlen(text), size = strlen(want);
        char buf[64];
        CHECK_MSG(bitnet_clean_text(text, n, 0, 0) == (int)size, "text %d: length", (int)i);
        for (cap = 0; cap <= size + 2; cap++) {
            size_t kept = cap <= size ? (cap ? cap - 1 : 0) : size;
            while (((uint8_t)want[kept] & 0xC0) == 0x80) kept--;        /* whole code points */
            memset(buf, '#', sizeof buf);
            CHECK(bitnet_clean_text(text, n, buf, cap) == (int)size);
            CHECK_MSG(!memcmp(buf, want, cap ? kept : 0), "text %d in %d bytes", (int)i, (int)cap);
            CHECK_MSG(cap == 0 || buf[kept] == 0, "text %d in %d bytes: no end", (int)i, (int)cap);
            CHECK_MSG(buf[cap] == '#', "text %d in %d bytes: one more", (int)i, (int)cap);
        }
        memcpy(buf, text, n);
        CHECK(bitnet_clean_text(buf, n, buf, sizeof buf) == (int)size);
        CHECK_MSG(!strcmp(buf, want), "text %d, in place: %s", (int)i, buf);
    }
    CHECK(bitnet_clean_text("a\0b", 3, 0, 0) == 3);
#if SIZE_MAX > INT32_MAX
    CHECK(bitnet_clean_text("a", (size_t)INT32_MAX + 1, 0, 0) == BITNET_ERR_LIMIT);
#endif
}

/* Every code point, whole and cut; every pair of first bytes; what no text begins with. */
static void test_utf8_decode(void) {
    uint32_t cp, got;
    int a, b;
    for (cp = 0; cp < 0x110000; cp++) {
        const int n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        const size_t want = cp >= 0xD800 && cp < 0xE000 ? 0 : (size_t)n;
        char text[5] = "    ";
        int i;
        for (i = n - 1; i > 0; i--) text[i] = (char)(0x80 | (cp >> 6 * (n - 1 - i) & 63));
        text[0] = (char)(n == 1 ? cp : (0xF00u >> n & 0xFF) | cp >> 6 * (n - 1));
        if (bitnet_utf8_decode(text, 5, &got) != want || (want && got != cp) ||
            bitnet_utf8_decode(text, (size_t)n, 0) != want ||
            bitnet_utf8_decode(text, (size_t)n - 1, &got)) break;
    }
    CHECK_MSG(cp == 0x110000, "U+%04X", (unsigned)cp);
    for (a = 0x80; a < 256; a++)
        for (b = 0; b < 256; b++) {
            const char text[] = {(char)a, (char)b, '\x80', '\xBF'};
            const int low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
            const int high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
            const size_t n = a < 0xC2 || a > 0xF4 || b < low || b > high ? 0
                             : a < 0xE0 ? 2 : a < 0xF0 ? 3 : 4;
            CHECK_MSG(bitnet_utf8_decode(text, 4, &got) == n, "%02X %02X", (unsigned)a,
                      (unsigned)b);
        }
    CHECK(!bitnet_utf8_decode("\xE2\x82-", 3, 0) && !bitnet_utf8_decode("\xF0\x9F\x98 ", 4, 0));
}

/* Names from a file, in the text of an error. */
static void test_clean_errors(void) {
    static const char name[] = "weight\xE2\x80\xAE" "1\xE2\x81\xA6" "2\xE2\x80\x8B" "3\xE2\x80\xA8"
                               "4\xE2\x80\xA9" "5\n6";
    gguf_writer w;
    bitnet_gguf *g = 0;
    memset(&w, 0, sizeof w);
    CHECK(!g && gguf_add_tensor(&w, name, 77, 1, 0) == BITNET_ERR_ARG);
    CHECK_MSG(strstr(w.err.text, "weight?1?2?3?4?5?6"), "%s", w.err.text);
    gguf_writer_free(&w);
}


#ifndef BITNET_NO_STDIO

/* ---- files ---- */

#ifdef _WIN32
  #define SOURCES_THREAD DWORD WINAPI
#else
  #include <fcntl.h>
  #include <sys/resource.h>
  #include <sys/stat.h>
  #define SOURCES_THREAD void *
#endif

static int write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    const int ok = f && fwrite(data, 1, n, f) == n;
    return f && !fclose(f) && ok;
}

/* What opening says; mapped or not. */
static const char *opening(const char *path, int unmapped) {
    static bitnet_error err;
    bitnet_gguf *g = 0;
    memset(&err, 0, sizeof err);
    test_unmapped = unmapped;
    if (!bitnet_gguf_open_file(path, 0, &g, &err)) strcpy(err.text, "opened");
    test_unmapped = 0;
    bitnet_gguf_close(g);
    return err.text;
}

/* ---- one file, read by two threads ---- */

typedef struct file_reader {
    const bitnet_gguf *g;
    const uint8_t *file;               /* what must come */
    uint64_t seed;
    long wrong, failed;
} file_reader;

static void read_much(file_reader *r) {
    uint8_t buf[96];
    int i;
    for (i = 0; i < 20000; i++) {
        bitnet_gguf_tensor t;
        uint64_t at;
        bitnet_gguf_get_tensor(r->g, gb_random(&r->seed) % 8, &t);
        if (t.size < sizeof buf) continue;
        at = gb_random(&r->seed) % (t.size - sizeof buf);
        if (bitnet_gguf_read(r->g, &t, at, buf, sizeof buf, 0)) r->failed++;
        else if (memcmp(buf, r->file + t.offset + at, sizeof buf)) r->wrong++;
    }
}

#if !TEST_THREADS
static void read_side_by_side(file_reader r[2]) {
    read_much(&r[0]);
    read_much(&r[1]);
}
#else
static SOURCES_THREAD read_main(void *r) {
    read_much((file_reader *)r);
    return 0;
}

static void read_side_by_side(file_reader r[2]) {
    bitnet__thread t;
    if (!bitnet__thread_start(&t, read_main, &r[0])) {
        r[0].failed = 1;
        return;
    }
    read_much(&r[1]);
    bitnet__thread_join(t);
}
#endif

/* Unmapped and mapped: every byte is right. */
static void test_two_readers(void) {
    size_t size;
    uint8_t *file = (uint8_t *)test_read_file(test_data("a.gguf"), &size);
    int unmapped, i;
    CHECK(file);
    for (unmapped = 0; unmapped < 2; unmapped++) {
        file_reader r[2];
        bitnet_gguf *g = 0;
        memset(r, 0, sizeof r);
        test_unmapped = unmapped;
        CHECK(!bitnet_gguf_open_file(test_data("a.gguf"), 0, &g, 0));
        test_unmapped = 0;
        for (i = 0; i < 2; i++) {
            r[i].g = g;
            r[i].file = file;
            r[i].seed = (uint64_t)i + 1;
        }
        CHECK(unmapped == 0 || g->file.src.io.read_fn);
        read_side_by_side(r);
        bitnet_gguf_close(g);
        CHECK_MSG(r[0].failed + r[1].failed == 0, "%ld reads fail", r[0].failed + r[1].failed);
        CHECK_MSG(r[0].wrong + r[1].wrong == 0, "%ld of 40000 reads are wrong",
                  r[0].wrong + r[1].wrong);
    }
    free(file);
}

/* ---- large files ---- */

/* Writes n bytes at an offset; what lies before it stays, or becomes a hole. */
static int write_at(const char *path, uint64_t at, const void *p, size_t n) {
    int ok;
#ifdef _WIN32
    LARGE_INTEGER to;
    DWORD done = 0;
    HANDLE h = CreateFileA(path, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, 0, OPEN_ALWAYS,
                           0, 0);
    to.QuadPart = (int64_t)at;
    if (h == INVALID_HANDLE_VALUE) return 0;
    ok = SetFilePointerEx(h, to, 0, FILE_BEGIN) && WriteFile(h, p, (DWORD)n, &done, 0) && done == n;
    CloseHandle(h);
#else
  #ifdef __GLIBC__                     /* as bitnet.h, where off_t may have 32 bits */
    const int fd = open64(path, O_WRONLY | O_CREAT, 0600);
    ok = fd >= 0 && lseek64(fd, (__off64_t)at, SEEK_SET) == (__off64_t)at;
  #else
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    ok = fd >= 0 && lseek(fd, (off_t)at, SEEK_SET) == (off_t)at;
  #endif
    ok = ok && write(fd, p, n) == (ssize_t)n;
    if (fd >= 0) close(fd);
#endif
    return ok;
}

typedef struct large_header { uint8_t p[2048]; size_t n; } large_header;

static int header_write(void *ud, const void *p, size_t n) {
    large_header *h = (large_header *)ud;
    if (n > sizeof h->p - h->n) return 1;
    memcpy(h->p + h->n, p, n);
    h->n += n;
    return 0;
}

/* A file of 5 GB with a small tensor beyond 2 GiB and one beyond 4 GiB, all else a hole. */
static void test_large_file(void) {
    static const uint64_t large[2] = {1 << 20, 600}, little[1] = {4};
    static const char *const names[2] = {"beyond 2 GiB", "beyond 4 GiB"};
    static const uint8_t data[2][16] = {"2 GiB and more.", "4 GiB and more."};
    large_header header = {{0}, 0};
    const char *path = test_path("large");
    gguf_writer w;
    bitnet_gguf_tensor t;
    bitnet_gguf *g = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    int i, unmapped, written;
#ifdef __EMSCRIPTEN__
    char text[400];
#endif
    memset(&w, 0, sizeof w);
    w.write_fn = header_write;
    w.ud = &header;
    gguf_add_tensor(&w, "hole 1", BITNET_TENSOR_F32, 2, large);
    gguf_add_tensor(&w, names[0], BITNET_TENSOR_F32, 1, little);
    gguf_add_tensor(&w, "hole 2", BITNET_TENSOR_F32, 2, large);
    gguf_add_tensor(&w, names[1], BITNET_TENSOR_F32, 1, little);
    CHECK(!gguf_write_header(&w));
    remove(path);
    written = write_at(path, 0, header.p, header.n) &&
              write_at(path, gguf_writer_total(&w) - 1, "", 1);
    gguf_writer_free(&w);
#ifdef __EMSCRIPTEN__
    if (written) {
        snprintf(text, sizeof text, "cannot open '%.120s': %s", path, strerror(EFBIG));
        written = !strcmp(opening(path, 0), text);
        remove(path);
        CHECK_MSG(written, "not: %s", text);
        return;
    }
#endif
    for (i = 0; written && i < 2; i++) {
        if (bitnet_gguf_open_file(path, 0, &g, &err) || bitnet_gguf_find_tensor(g, names[i], &t))
            test_fail(__FILE__, __LINE__, "%s", err.text);
        bitnet_gguf_close(g);
        if (g) written = write_at(path, t.offset, data[i], 16);
    }
    if (!written) {
        remove(path);
        SKIP("a file of 5 GB cannot be made at %s", path);
    }
    for (unmapped = 0; unmapped < 2; unmapped++) {
        test_unmapped = unmapped;
        bitnet_gguf_open_file(path, 0, &g, &err);
        test_unmapped = 0;
        for (i = 0; g && i < 2; i++) {
            uint8_t buf[16] = {0};
            if (bitnet_gguf_find_tensor(g, names[i], &t) || t.offset >> (31 + i) == 0 ||
                bitnet_gguf_read(g, &t, 0, buf, 16, &err) || memcmp(buf, data[i], 16))
                test_fail(__FILE__, __LINE__, "unmapped %d, %s: '%.16s' %s", unmapped, names[i],
                          (char *)buf, err.text);
        }
        if (!g) test_fail(__FILE__, __LINE__, "unmapped %d: %s", unmapped, err.text);
        bitnet_gguf_close(g);
    }
    remove(path);
}

/* ---- what is no file, or cannot be opened ---- */

static void test_no_regular_file(void) {
    char text[400];
    int unmapped;
    for (unmapped = 0; unmapped < 2; unmapped++) {
        snprintf(text, sizeof text, "'%.120s' is a directory", test_data("."));
        CHECK_MSG(!strcmp(opening(test_data("."), unmapped), text), "not: %s", text);
#ifdef _WIN32
        CHECK(!strcmp(opening("NUL", unmapped), "'NUL' is not a regular file"));
#else
        {
            const char *pipe = test_path("pipe"), *said;
            struct stat st;
            CHECK(!strcmp(opening("/dev/null", unmapped), "'/dev/null' is not a regular file"));
            remove(pipe);
            if (mkfifo(pipe, 0600) || stat(pipe, &st) || !S_ISFIFO(st.st_mode)) {
                remove(pipe);
                SKIP("a pipe cannot be made at %s", pipe);
            }
            said = opening(pipe, unmapped);        /* must not wait for somebody who writes to it */
            snprintf(text, sizeof text, "'%.120s' is not a regular file", pipe);
            remove(pipe);
            CHECK_MSG(!strcmp(said, text), "%s", said);
        }
#endif
    }
}

#ifdef _WIN32
/* What Windows says, however long: the beginning of it, if it does not fit. */
static void check_long_reasons(void) {
    DWORD code;
    int n_long = 0;
    for (code = 1; code < 2000; code++) {
        const DWORD flags = FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM |
                            FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK;
        char got[128], want[4096];
        WCHAR *wide = 0;
        int n = (int)FormatMessageW(flags, 0, code, 0, (WCHAR *)(void *)&wide, 0, 0);
        if (n > 0) n = WideCharToMultiByte(CP_UTF8, 0, wide, n, want, (int)sizeof want - 1, 0, 0);
        LocalFree(wide);
        want[n] = 0;
        if (n < 2) continue;
        SetLastError(code);
        bitnet__system_reason(got);
        n_long += n > 42;               /* Wine says less than Windows */
        CHECK_MSG(got[0] && !strncmp(got, want, strlen(got)), "%lu: '%s' instead of '%s'",
                  (unsigned long)code, got, want);
    }
    CHECK_MSG(n_long > 0, "no reason is long");
}
#else
static void check_long_reasons(void) {}
#endif

/* The system's reason is in the text, whatever it is. */
static void test_open_reasons(void) {
    const char *missing = test_path("missing");
    char text[400], first[400];
    int unmapped;
    check_long_reasons();
    for (unmapped = 0; unmapped < 2; unmapped++) {
        snprintf(first, sizeof first, "%s", opening(missing, unmapped));
        snprintf(text, sizeof text, "cannot open '%.120s': ", missing);
        CHECK_MSG(!strncmp(first, text, strlen(text)) && first[strlen(text)], "%s", first);
#ifdef _WIN32
        {
            const char *path = test_path("locked");
            HANDLE h = CreateFileA(path, GENERIC_WRITE, 0, 0, CREATE_ALWAYS, 0, 0);
            CHECK(h != INVALID_HANDLE_VALUE);
            snprintf(first, sizeof first, "%s", opening(path, unmapped));
            CloseHandle(h);
            remove(path);
            snprintf(text, sizeof text, "cannot open '%.120s': ", path);
            CHECK_MSG(!strncmp(first, text, strlen(text)) && first[strlen(text)] &&
                      strcmp(first + strlen(text), opening(missing, 0) + strlen(text)), "%s",
                      first);
        }
#else
        CHECK_MSG(!strcmp(first + strlen(text), strerror(ENOENT)), "%s", first);
        snprintf(first, sizeof first, "%s/x", test_data("a.gguf"));
        snprintf(text, sizeof text, "cannot open '%.120s': %s", first, strerror(ENOTDIR));
        CHECK_MSG(!strcmp(opening(first, unmapped), text), "%s", opening(first, unmapped));
  #ifndef __EMSCRIPTEN__
        {
            struct rlimit all, none;
            CHECK(!getrlimit(RLIMIT_NOFILE, &all));
            none = all;
            none.rlim_cur = 0;
            if (setrlimit(RLIMIT_NOFILE, &none)) SKIP("the number of open files cannot be limited");
            snprintf(first, sizeof first, "%s", opening(test_data("a.gguf"), unmapped));
            CHECK(!setrlimit(RLIMIT_NOFILE, &all));
            snprintf(text, sizeof text, "cannot open '%.120s': %s", test_data("a.gguf"),
                     strerror(EMFILE));
            CHECK_MSG(!strcmp(first, text), "%s", first);
        }
  #endif
#endif
    }
}

/* A file that another program has a lease of: it is told to give it up, with a signal that ends it
   here, and waited for. */
#ifdef __linux__
#include <sys/wait.h>

static void test_leased(void) {
    enum { SET_LEASE = 1024 };         /* F_SETLEASE, which strict C hides */
    const char *path = test_path("leased"), *said;
    int ready[2];
    char leased = 0;
    pid_t pid;
    CHECK(write_file(path, "GGUF", 4) && !pipe(ready));
    pid = fork();
    if (pid == 0) {
        const int fd = open(path, O_RDWR);
        leased = fd >= 0 && !fcntl(fd, SET_LEASE, F_WRLCK);
        alarm(60);
        if (write(ready[1], &leased, 1) == 1 && leased) pause();
        _exit(0);
    }
    if (pid < 0 || read(ready[0], &leased, 1) != 1) leased = 0;
    said = opening(path, 1);
    close(ready[0]);
    close(ready[1]);
    remove(path);
    CHECK(pid > 0 && waitpid(pid, 0, 0) == pid);
    if (!leased) SKIP("no leases here");
    CHECK_MSG(!strncmp(said, "GGUF header", 11), "%s", said);
}
#else
static void test_leased(void) { SKIP("not Linux"); }
#endif

/* A file that gets shorter, and one that may not be read any longer. */
static void test_read_reasons(void) {
    size_t size;
    uint8_t *data = (uint8_t *)test_read_file(test_data("a.gguf"), &size);
    const char *path = test_path("shorter");
    bitnet_error cut = {BITNET_OK, "", {0}}, shut = {BITNET_OK, "", {0}};
    bitnet_gguf *g = 0;
    bitnet_gguf_tensor t;
    uint8_t buf[8];
    CHECK(data && write_file(path, data, size));
    test_unmapped = 1;
    bitnet_gguf_open_file(path, 0, &g, &shut);
    test_unmapped = 0;
    free(data);
    CHECK_MSG(g && !bitnet_gguf_get_tensor(g, 0, &t) && t.size > 8, "%s", shut.text);
    CHECK(!bitnet_gguf_read(g, &t, 0, buf, 8, &cut));
#ifdef _WIN32                          /* where a file that is open stays as it is */
    bitnet__file_close(g->file.src.file);
    g->file.src.file = g->file.src.io.ud =
        CreateFileA(path, GENERIC_WRITE, FILE_SHARE_READ, 0, OPEN_EXISTING, 0, 0);
#else
    CHECK(write_file(path, buf, 8));
    CHECK(bitnet_gguf_read(g, &t, 0, buf, 8, &cut) == BITNET_ERR_TRUNCATED);
    bitnet__file_close(g->file.src.file);
    g->file.src.file = g->file.src.io.ud = (void *)((intptr_t)open(path, O_WRONLY) + 1);
#endif
    bitnet_gguf_read(g, &t, 0, buf, 8, &shut);
    bitnet_gguf_close(g);
    remove(path);
    CHECK_MSG(shut.code == BITNET_ERR_IO && strstr(shut.text, "tensor '"), "%s", shut.text);
    CHECK_MSG(!strstr(shut.text, bitnet_result_text(BITNET_ERR_IO)), "%s", shut.text);
#ifndef _WIN32
    CHECK_MSG(strstr(shut.text, strerror(EBADF)), "%s", shut.text);
    CHECK_MSG(strstr(cut.text, bitnet_result_text(BITNET_ERR_TRUNCATED)), "%s", cut.text);
#endif
}

/* A program that is started meanwhile does not get the file. */
static void test_not_inherited(void) {
    bitnet_gguf *g = 0;
    int inherited;
    test_unmapped = 1;
    bitnet_gguf_open_file(test_data("a.gguf"), 0, &g, 0);
    test_unmapped = 0;
    CHECK(g && g->file.src.file);
#ifdef _WIN32
    {
        DWORD flags = 0;
        inherited = !GetHandleInformation(g->file.src.file, &flags) ||
                    (flags & HANDLE_FLAG_INHERIT);
    }
#else
    inherited = !(fcntl(bitnet__fd(g->file.src.file), F_GETFD) & FD_CLOEXEC);
#endif
    bitnet_gguf_close(g);
#ifdef __EMSCRIPTEN__
    if (inherited) SKIP("no program can be started");
#endif
    CHECK(!inherited);
}

/* Names beyond ASCII: UTF-8 on Windows, any bytes elsewhere. */
static void test_path_encoding(void) {
    static const char utf8[] = "\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80.gguf", bytes[] = "\xFF.gguf";
    size_t size;
    void *data = test_read_file(test_data("a.gguf"), &size);
    const char *said, *path = test_path(utf8);
    CHECK(data);
#ifdef _WIN32
    {
        WCHAR wide[512];
        DWORD n = 0;
        HANDLE h;
        MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 512);
        h = CreateFileW(wide, GENERIC_WRITE, 0, 0, CREATE_ALWAYS, 0, 0);
        if (h == INVALID_HANDLE_VALUE) SKIP("no file can have the name %s", path);
        WriteFile(h, data, (DWORD)size, &n, 0);
        CloseHandle(h);
        said = opening(path, 0);
        DeleteFileW(wide);
        CHECK_MSG(n == size && !strcmp(said, "opened"), "%s", said);
        path = test_path(bytes);
        CHECK_MSG(strstr(opening(path, 0), "?.gguf' is not UTF-8"), "%s", opening(path, 0));
    }
#else
    if (!write_file(path, data, size)) SKIP("no file can have the name %s", path);
    said = opening(path, 0);
    remove(path);
    CHECK_MSG(!strcmp(said, "opened"), "%s", said);
    path = test_path(bytes);
    CHECK_MSG(strstr(opening(path, 0), "?.gguf': "), "%s", opening(path, 0));
    if (!write_file(path, data, size)) SKIP("no file can have a name that is not UTF-8");
    said = opening(path, 0);
    remove(path);
    CHECK_MSG(!strcmp(said, "opened"), "%s", said);
#endif
    free(data);
}

#endif /* BITNET_NO_STDIO */

/* ---- what is said when it goes well ---- */

static void keep_info(void *ud, bitnet_log_level level, const char *text) {
    char *said_so = (char *)ud;
    if (level == BITNET_LOG_INFO) snprintf(said_so, 200, "%s", text);
}

/* The log names the kernel table in use, the default and each that is asked for. */
static void test_log_names_kernels(void) {
    size_t size;
    void *data = test_read_file(test_data("a.gguf"), &size);
    int i;
    CHECK(data);
    for (i = -1; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = i < 0 ? bitnet_kernels_default() : bitnet_kernels_get(i);
        bitnet_model *m = 0;
        bitnet_model_params p;
        char info[200] = "", want[64];
        memset(&p, 0, sizeof p);
        p.log_fn = keep_info;
        p.log_ud = info;
        if (i >= 0) p.kernels = k;
        if (!bitnet_kernels_usable(k)) continue;
        CHECK(!bitnet_model_load_memory(data, size, &p, &m, 0));
        bitnet_model_free(m);
        snprintf(want, sizeof want, " kernels %s, weights in %s", k->name,
                 k->layout);
        CHECK_MSG(strstr(info, want), "table %d, %s: %s", i, k->name, info);
    }
    free(data);
}

const test_case sources_tests[] = {
    {"sources/clean_text", test_clean_text},
    {"sources/utf8_decode", test_utf8_decode},
    {"sources/clean_errors", test_clean_errors},
    {"sources/log_names_kernels", test_log_names_kernels},
#ifndef BITNET_NO_STDIO
    {"sources/two_readers", test_two_readers},
    {"sources/large_file", test_large_file},
    {"sources/no_regular_file", test_no_regular_file},
    {"sources/open_reasons", test_open_reasons},
    {"sources/leased", test_leased},
    {"sources/read_reasons", test_read_reasons},
    {"sources/not_inherited", test_not_inherited},
    {"sources/path_encoding", test_path_encoding},
#endif
    {0, 0}
};
