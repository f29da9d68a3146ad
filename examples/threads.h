/* threads.h - threads, locks, signals and clocks: POSIX's, or those of Windows

   static THREAD_FN(work, ud) { ...; return 0; }       what a thread runs, with its argument
   static thread_lock lock = THREAD_LOCK;              one that needs no thread_lock_init
   static thread_signal news = THREAD_SIGNAL;          what one waits for, and another one sends */
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
  #define THREAD_SIGNAL CONDITION_VARIABLE_INIT
typedef HANDLE thread;
typedef SRWLOCK thread_lock;
typedef CONDITION_VARIABLE thread_signal;

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

/* With the lock, which others have meanwhile. It may end without a signal. */
static inline void thread_wait(thread_signal *s, thread_lock *l) {
    SleepConditionVariableSRW(s, l, INFINITE, 0);
}
/* The same, for less than a second. */
static inline void thread_wait_for(thread_signal *s, thread_lock *l, double seconds) {
    SleepConditionVariableSRW(s, l, (DWORD)(seconds * 1e3), 0);
}
/* One that waits goes on; all of them. */
static inline void thread_send(thread_signal *s) { WakeConditionVariable(s); }
static inline void thread_send_all(thread_signal *s) { WakeAllConditionVariable(s); }
static inline void thread_sleep(double seconds) { Sleep((DWORD)(seconds * 1e3)); }

/* Others come before this thread. */
static inline void thread_be_nice(void) {
    SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
}

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

/* Seconds of a processor that this thread has had: here in steps of 1/64. */
static inline double thread_own_clock(void) {
    FILETIME begun, ended, kernel, own;
    if (!GetThreadTimes(GetCurrentThread(), &begun, &ended, &kernel, &own)) return 0;
    return ((double)kernel.dwHighDateTime + (double)own.dwHighDateTime) * 4294967296e-7 +
           ((double)kernel.dwLowDateTime + (double)own.dwLowDateTime) * 1e-7;
}
#else                                  /* sources that include it begin with _DEFAULT_SOURCE */
  #include <pthread.h>
  #include <time.h>
  #include <unistd.h>
  #ifdef __linux__
    #include <sys/resource.h>
  #endif

  #define THREAD_FN(name, ud) void *name(void *ud)
  #define THREAD_LOCK PTHREAD_MUTEX_INITIALIZER
  #define THREAD_SIGNAL PTHREAD_COND_INITIALIZER
typedef pthread_t thread;
typedef pthread_mutex_t thread_lock;
typedef pthread_cond_t thread_signal;

static inline int thread_start(thread *t, void *(*fn)(void *), void *ud) {
    return pthread_create(t, 0, fn, ud) == 0;
}
static inline void thread_join(thread t) { pthread_join(t, 0); }
static inline void thread_lock_init(thread_lock *l) { pthread_mutex_init(l, 0); }
static inline void thread_lock_free(thread_lock *l) { pthread_mutex_destroy(l); }
static inline void thread_take(thread_lock *l) { pthread_mutex_lock(l); }
static inline void thread_give(thread_lock *l) { pthread_mutex_unlock(l); }

static inline void thread_wait(thread_signal *s, thread_lock *l) { pthread_cond_wait(s, l); }
static inline void thread_wait_for(thread_signal *s, thread_lock *l, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(s, l, &until);
}
static inline void thread_send(thread_signal *s) { pthread_cond_signal(s); }
static inline void thread_send_all(thread_signal *s) { pthread_cond_broadcast(s); }
static inline void thread_sleep(double seconds) {
    struct timespec pause;
    pause.tv_sec = (time_t)seconds;
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    nanosleep(&pause, 0);
}

static inline void thread_be_nice(void) {
  #ifdef __linux__                     /* where a nice value is a thread's */
    if (setpriority(PRIO_PROCESS, 0, 5)) {}      /* then without */
  #endif
}

static inline int thread_processors(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static inline double thread_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double thread_own_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
#endif

#endif
