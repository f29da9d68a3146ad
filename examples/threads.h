/* threads.h - threads, locks and a steady clock: POSIX's, or those of Windows

   static THREAD_FN(work, ud) { ...; return 0; }       what a thread runs, with its argument
   static thread_lock lock = THREAD_LOCK;              one that needs no thread_lock_init */
#ifndef EXAMPLES_THREADS_H
#define EXAMPLES_THREADS_H

#ifdef _WIN32
  #ifndef WIN32_LEAN_AND_MEAN
    #define WIN32_LEAN_AND_MEAN
  #endif
  #ifndef NOMINMAX
    #define NOMINMAX
  #endif
  #include <windows.h>
  #include <process.h>
  #include <stdint.h>

  #define THREAD_FN(name, ud) unsigned __stdcall name(void *ud)
  #define THREAD_LOCK SRWLOCK_INIT
typedef HANDLE thread;
typedef SRWLOCK thread_lock;

/* Returns 0 if there is no thread to be had. */
static inline int thread_start(thread *t, unsigned(__stdcall *fn)(void *), void *ud) {
    *t = (HANDLE)_beginthreadex(0, 0, fn, ud, 0, 0);
    return *t != 0;
}
static inline void thread_join(thread t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
static inline void thread_lock_init(thread_lock *l) { InitializeSRWLock(l); }
static inline void thread_lock_free(thread_lock *l) { (void)l; }
static inline void thread_take(thread_lock *l) { AcquireSRWLockExclusive(l); }
static inline void thread_give(thread_lock *l) { ReleaseSRWLockExclusive(l); }

/* How many processors there are. */
static inline int thread_processors(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 0 ? (int)info.dwNumberOfProcessors : 1;
}

/* Seconds since some moment. */
static inline double thread_clock(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
}
#else                                  /* sources that include it begin with _DEFAULT_SOURCE */
  #include <pthread.h>
  #include <time.h>
  #include <unistd.h>

  #define THREAD_FN(name, ud) void *name(void *ud)
  #define THREAD_LOCK PTHREAD_MUTEX_INITIALIZER
typedef pthread_t thread;
typedef pthread_mutex_t thread_lock;

static inline int thread_start(thread *t, void *(*fn)(void *), void *ud) {
    return pthread_create(t, 0, fn, ud) == 0;
}
static inline void thread_join(thread t) { pthread_join(t, 0); }
static inline void thread_lock_init(thread_lock *l) { pthread_mutex_init(l, 0); }
static inline void thread_lock_free(thread_lock *l) { pthread_mutex_destroy(l); }
static inline void thread_take(thread_lock *l) { pthread_mutex_lock(l); }
static inline void thread_give(thread_lock *l) { pthread_mutex_unlock(l); }

static inline int thread_processors(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static inline double thread_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
#endif

#endif
