/* What a test is, and how it says that it failed.

   A test is a function without arguments. CHECK and SKIP record and return from it, so a test frees
   what it holds before it checks, or leaks only when it fails. run.c runs the tables. */
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

void test_fail(const char *file, int line, const char *format, ...);
void test_skip(const char *format, ...);
const char *test_data(const char *name);    /* path in tests/data */
const char *test_shared(const char *name);  /* path below BITNET_TEST_DATA; 0: not there */
int test_quick(void);    /* fewer repetitions, please: see BITNET_TEST_QUICK in run.c */
const char *test_path(const char *name);    /* for a file of this process alone; in TMPDIR */
void *test_read_file(const char *path, size_t *size);  /* malloc; 0 if it cannot be read */

#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            test_fail(__FILE__, __LINE__, "%s", #cond); \
            return; \
        } \
    } while (0)
#define CHECK_MSG(cond, ...) \
    do { \
        if (!(cond)) { \
            test_fail(__FILE__, __LINE__, __VA_ARGS__); \
            return; \
        } \
    } while (0)
#define SKIP(...) \
    do { \
        test_skip(__VA_ARGS__); \
        return; \
    } while (0)

#endif
