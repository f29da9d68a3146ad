/* What bitnet.h calls of the C library, of Windows and of macOS, declared as their documentation
   has it: tests/checks/check.sh puts it in the place of headers that no Linux has, to show a
   compiler the branches for MSVC and Apple. It proves what a parser can prove, no more. */
#ifndef FOREIGN_H
#define FOREIGN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int vsnprintf(char *buf, size_t size, const char *format, va_list args);
void *malloc(size_t size);
void free(void *p);
void *memchr(const void *p, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *p, int c, size_t n);
char *strchr(const char *s, int c);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
size_t strlen(const char *s);

#ifdef _WIN32

typedef int jmp_buf[16];               /* for clang's own intrin.h and mm_malloc.h */
void *_aligned_malloc(size_t size, size_t align);
void _aligned_free(void *p);

#define WINAPI __stdcall
#define INFINITE 0xFFFFFFFF
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#define GENERIC_READ 0x80000000L
#define FILE_SHARE_READ 1
#define FILE_SHARE_WRITE 2
#define FILE_SHARE_DELETE 4
#define FILE_ATTRIBUTE_DIRECTORY 0x10
#define INVALID_FILE_ATTRIBUTES ((DWORD)-1)
#define FILE_TYPE_DISK 1
#define OPEN_EXISTING 3
#define CP_UTF8 65001
#define MB_ERR_INVALID_CHARS 8
#define FORMAT_MESSAGE_FROM_SYSTEM 0x1000
#define FORMAT_MESSAGE_IGNORE_INSERTS 0x200
#define FORMAT_MESSAGE_MAX_WIDTH_MASK 0xFF
#define ERROR_HANDLE_EOF 38L
#define ERROR_FILENAME_EXCED_RANGE 206L
#define ERROR_NO_UNICODE_TRANSLATION 1113L
#define PAGE_READONLY 2
#define FILE_MAP_READ 4
#ifdef _M_ARM64
  #define YieldProcessor __yield
#else
  void _mm_pause(void);                /* winnt.h has it */
  #define YieldProcessor _mm_pause
#endif
#define min(a, b) (((a) < (b)) ? (a) : (b))     /* as if included before, without NOMINMAX */
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define far
#define near
#define small char
#define hyper int64_t
#define interface struct
#define IN
#define OUT
#define ERROR 0

typedef int BOOL;
typedef long LONG;
typedef unsigned long DWORD;
typedef intptr_t LONG_PTR;
typedef size_t SIZE_T;
typedef uintptr_t DWORD_PTR;
typedef void *HANDLE;
typedef wchar_t WCHAR;
typedef struct OVERLAPPED {
    uintptr_t Internal, InternalHigh;
    DWORD Offset, OffsetHigh;
    HANDLE hEvent;
} OVERLAPPED;
typedef struct RTL_SRWLOCK { void *Ptr; } SRWLOCK;
typedef struct RTL_CONDITION_VARIABLE { void *Ptr; } CONDITION_VARIABLE;
typedef union LARGE_INTEGER { int64_t QuadPart; } LARGE_INTEGER;
typedef struct SYSTEM_INFO { DWORD dwPageSize, dwNumberOfProcessors; } SYSTEM_INFO;
typedef DWORD (WINAPI *LPTHREAD_START_ROUTINE)(void *parameter);

void WINAPI InitializeSRWLock(SRWLOCK *lock);
void WINAPI AcquireSRWLockExclusive(SRWLOCK *lock);
void WINAPI ReleaseSRWLockExclusive(SRWLOCK *lock);
void WINAPI InitializeConditionVariable(CONDITION_VARIABLE *condition);
BOOL WINAPI SleepConditionVariableSRW(CONDITION_VARIABLE *condition, SRWLOCK *lock, DWORD ms,
                                      unsigned long flags);
void WINAPI WakeAllConditionVariable(CONDITION_VARIABLE *condition);
HANDLE WINAPI GetCurrentProcess(void);
BOOL WINAPI GetProcessAffinityMask(HANDLE process, DWORD_PTR *allowed, DWORD_PTR *system);
BOOL WINAPI QueryPerformanceCounter(LARGE_INTEGER *ticks);
BOOL WINAPI QueryPerformanceFrequency(LARGE_INTEGER *per_second);
HANDLE WINAPI CreateThread(void *security, SIZE_T stack, LPTHREAD_START_ROUTINE start,
                           void *parameter, DWORD flags, DWORD *id);
DWORD WINAPI GetCurrentThreadId(void);
DWORD WINAPI WaitForSingleObject(HANDLE handle, DWORD ms);
BOOL WINAPI CloseHandle(HANDLE handle);
void WINAPI GetSystemInfo(SYSTEM_INFO *info);
BOOL WINAPI IsProcessorFeaturePresent(DWORD feature);
DWORD WINAPI GetLastError(void);
void WINAPI SetLastError(DWORD code);
DWORD WINAPI FormatMessageW(DWORD flags, const void *source, DWORD message, DWORD language,
                            WCHAR *buf, DWORD size, va_list *arguments);
int WINAPI MultiByteToWideChar(unsigned page, DWORD flags, const char *text, int n, WCHAR *out,
                               int room);
int WINAPI WideCharToMultiByte(unsigned page, DWORD flags, const WCHAR *text, int n, char *out,
                               int room, const char *fallback, BOOL *used_fallback);
HANDLE WINAPI CreateFileW(const WCHAR *name, DWORD access, DWORD share, void *security,
                          DWORD creation, DWORD flags, HANDLE template_file);
DWORD WINAPI GetFileAttributesW(const WCHAR *name);
DWORD WINAPI GetFileType(HANDLE file);
BOOL WINAPI GetFileSizeEx(HANDLE file, LARGE_INTEGER *size);
BOOL WINAPI ReadFile(HANDLE file, void *p, DWORD n, DWORD *done, OVERLAPPED *overlapped);
HANDLE WINAPI CreateFileMappingW(HANDLE file, void *security, DWORD protect, DWORD size_high,
                                 DWORD size_low, const WCHAR *name);
void *WINAPI MapViewOfFile(HANDLE mapping, DWORD access, DWORD offset_high, DWORD offset_low,
                           SIZE_T size);
BOOL WINAPI UnmapViewOfFile(const void *view);
LONG _InterlockedOr(LONG volatile *p, LONG v);
LONG _InterlockedExchange(LONG volatile *p, LONG v);
LONG _InterlockedDecrement(LONG volatile *p);
LONG _InterlockedCompareExchange(LONG volatile *p, LONG to, LONG from);
#define InterlockedOr _InterlockedOr
#define InterlockedExchange _InterlockedExchange
#define InterlockedDecrement _InterlockedDecrement
#define InterlockedCompareExchange _InterlockedCompareExchange
void *_InterlockedExchangePointer(void *volatile *p, void *v);
void *_InterlockedCompareExchangePointer(void *volatile *p, void *to, void *from);
#define InterlockedExchangePointer _InterlockedExchangePointer
#define InterlockedCompareExchangePointer _InterlockedCompareExchangePointer

#ifdef _M_ARM64                        /* its intrin.h */
void __prefetch(const void *p);
void __yield(void);
#endif

#else

#define O_RDONLY 0
#define O_NONBLOCK 0x4
#define O_NOCTTY 0x20000
#define O_CLOEXEC 0x1000000
#define F_SETFD 2
#define FD_CLOEXEC 1
#define SEEK_END 2
#define EINTR 4
#define EAGAIN 35
#define errno (*__error())
#define PROT_READ 1
#define MAP_PRIVATE 2
#define MAP_FAILED ((void *)-1)
#define S_ISDIR(m) (((m) & 0170000) == 0040000)
#define S_ISREG(m) (((m) & 0170000) == 0100000)
#define _SC_NPROCESSORS_ONLN 58
#define _SC_PAGESIZE 29
#define SIGILL 4
#define SIGFPE 8
#define SIGBUS 10
#define SIGSEGV 11
#define SIG_SETMASK 3
#define CLOCK_MONOTONIC CLOCK_MONOTONIC

typedef long long off_t;
typedef long ssize_t;
typedef int pid_t;
typedef unsigned sigset_t;
typedef enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 6 } clockid_t;
struct timespec { long tv_sec, tv_nsec; };
struct timeval { long tv_sec; int tv_usec; };
struct stat { unsigned short st_mode; off_t st_size; };
typedef struct { long sig; char opaque[56]; } pthread_mutex_t;
typedef struct { long sig; char opaque[40]; } pthread_cond_t;
typedef struct opaque_pthread_t *pthread_t;
typedef struct pthread_attr_t pthread_attr_t;

int *__error(void);
int strerror_r(int code, char *buf, size_t size);
int open(const char *path, int flags, ...);
int fcntl(int fd, int what, ...);
off_t lseek(int fd, off_t offset, int whence);
ssize_t pread(int fd, void *p, size_t n, off_t offset);
int close(int fd);
int fstat(int fd, struct stat *st);
int stat(const char *path, struct stat *st);
void *mmap(void *p, size_t size, int protect, int flags, int fd, off_t offset);
int munmap(void *p, size_t size);
long sysconf(int name);
pid_t getpid(void);
int sigfillset(sigset_t *set);
int sigdelset(sigset_t *set, int number);
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int clock_gettime(clockid_t clock, struct timespec *t);
int gettimeofday(struct timeval *t, void *zone);
int sysctlbyname(const char *name, void *old, size_t *old_size, void *now, size_t size);
int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
pthread_t pthread_self(void);
int pthread_equal(pthread_t a, pthread_t b);
int pthread_join(pthread_t t, void **value);
int pthread_mutex_init(pthread_mutex_t *m, const void *attr);
int pthread_mutex_destroy(pthread_mutex_t *m);
int pthread_mutex_lock(pthread_mutex_t *m);
int pthread_mutex_unlock(pthread_mutex_t *m);
int pthread_cond_init(pthread_cond_t *c, const void *attr);
int pthread_cond_destroy(pthread_cond_t *c);
int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int pthread_cond_broadcast(pthread_cond_t *c);

#endif

#ifdef __cplusplus
}
#endif

#endif
