/* Calls of the system that tests can make fail. Included before bitnet.h. */
#ifndef HOOKS_H
#define HOOKS_H

/* Machines that fail: of the wishes of one kind, number test_refuse.at is refused (-1: none), with
   test_refuse.later all after it too. asked counts them while at is set; nobody may have threads
   that ask then. */
enum { TEST_SYSTEM, TEST_MEMORY, TEST_READS, TEST_CALLBACKS };
typedef struct test_refusal { int kind, later; long at, asked; } test_refusal;
extern test_refusal test_refuse;
int test_refused(int kind);
extern int test_cpus;    /* how many there seem to be; 0: as many as there are */
extern int test_unmapped;    /* 1: no file can be mapped */
extern const char *test_point;    /* the decimal point of floats in texts; 0: a point */

#if defined(_WIN32)
  #ifndef WIN32_LEAN_AND_MEAN
    #define WIN32_LEAN_AND_MEAN
  #endif
  #ifndef NOMINMAX
    #define NOMINMAX
  #endif
  #include <windows.h>
  #define CreateThread(a, n, f, x, b, id) \
    (test_refused(TEST_SYSTEM) ? 0 : CreateThread(a, n, f, x, b, id))
  #define MapViewOfFile(h, access, high, low, n) \
    (test_unmapped ? 0 : MapViewOfFile(h, access, high, low, n))
#elif defined(__unix__) || defined(__APPLE__)
  #include <errno.h>
  #include <pthread.h>
  #include <sys/mman.h>
  #include <unistd.h>
  #define pthread_mutex_init(m, a) \
    (test_refused(TEST_SYSTEM) ? ENOMEM : pthread_mutex_init(m, a))
  #define pthread_cond_init(c, a) \
    (test_refused(TEST_SYSTEM) ? ENOMEM : pthread_cond_init(c, a))
  #define pthread_create(t, a, f, x) \
    (test_refused(TEST_SYSTEM) ? EAGAIN : pthread_create(t, a, f, x))
  #define sysconf(name) \
    ((name) == _SC_NPROCESSORS_ONLN && test_cpus ? test_cpus : sysconf(name))
  #define mmap(p, n, how, flags, fd, at) \
    (test_unmapped ? MAP_FAILED : mmap(p, n, how, flags, fd, at))
  #define bitnet__sched_getaffinity(pid, size, mask) \
    (test_cpus ? -1 : bitnet__sched_getaffinity(pid, size, mask))
#endif

#endif
