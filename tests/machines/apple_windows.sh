#!/bin/sh
# Builds the examples for macOS and for Windows on ARM with zig, which brings the headers of macOS and
# those of MinGW, and checks what they import. Nothing is run: there is no such machine here. Windows
# on x86-64 has a suite of its own, which runs what Debian's MinGW builds.
#
#   apple_windows.sh ZIG [TARGET...]
#
# Ends with "N passed, N failed, N skipped". Run from the repository's root; writes to
# build/apple-windows, and zig's caches to build/zig.
set -u
zig=$1
shift
[ $# -gt 0 ] || set -- aarch64-macos x86_64-macos aarch64-windows-gnu
dir=build/apple-windows
passed=0 failed=0
export LC_ALL=C ZIG_GLOBAL_CACHE_DIR="$PWD/build/zig/cache" ZIG_LOCAL_CACHE_DIR="$PWD/build/zig/cache"
mkdir -p $dir
for tool in llvm-nm llvm-objdump; do   # Debian also installs them with a version only
    command -v $tool >/dev/null 2>&1 || tool=$tool-19
    case $tool in llvm-nm*) nm=$tool ;; *) objdump=$tool ;; esac
done

# expect NAME COMMAND...: it must succeed and print nothing.
expect() {
    name=$1
    shift
    if "$@" >$dir/out 2>&1 && [ ! -s $dir/out ]; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $target, $name"
        head -n 15 $dir/out
    fi
}

# What bitnet.h may call: of the C library everywhere, of POSIX and macOS, and of Windows.
c_library="errno free malloc memchr memcmp memcpy memmove memset strchr strcmp strlen strncmp vsnprintf"
macos="clock_gettime close fstat getpid lseek madvise mmap munmap open pread
    pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_wait pthread_create
    pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock
    pthread_self pthread_sigmask stat strerror_r sysconf sysctlbyname"
windows="AcquireSRWLockExclusive CloseHandle CreateFileMappingW CreateFileW CreateThread
    FormatMessageW GetCurrentProcess GetCurrentThreadId GetFileAttributesW GetFileSizeEx GetFileType
    GetLastError GetProcessAffinityMask GetSystemInfo InitializeConditionVariable InitializeSRWLock
    IsProcessorFeaturePresent MapViewOfFile MultiByteToWideChar QueryPerformanceCounter
    QueryPerformanceFrequency ReadFile ReleaseSRWLockExclusive SetLastError
    SleepConditionVariableSRW UnmapViewOfFile WaitForSingleObject WakeAllConditionVariable
    WideCharToMultiByte"
# What compilers call for themselves: stack probes, and other forms of the C library's functions.
compiler="bzero chkstk chkstk_ms memset_pattern16"

# unexpected_calls OBJECT: the names that it imports and that are not among these, as the manual
# spells them.
unexpected_calls() {
    case $target in
        *macos) system=$macos prefix=_ ;;
        *) system=$windows prefix='' ;;
    esac
    printf '%s\n' $c_library $system $compiler | sort >$dir/known
    $nm -u "$1" | sed -e 's/^ *U *//' -e "s/^$prefix//" -e 's/^__imp_//' -e 's/^__mingw_//' \
        -e 's/[$].*//' -e 's/^__*//' -e 's/^error$/errno/' -e 's/_chk$//' | sort -u |
        comm -13 $dir/known -
}

# unexpected_libraries PROGRAM
unexpected_libraries() {
    case $target in
        *macos) $objdump --macho --dylibs-used "$1" | sed 1d | grep -v ' *.usr/lib/libSystem.B.dylib ' ;;
        *) $objdump -p "$1" | sed -n 's/^ *DLL Name: //p' | grep -vixE '(kernel32|msvcrt|shell32).dll' ;;
    esac
    true
}

for target; do
    # No optimisation: nothing is left out because it is never reached. zig compiles the C runtime in
    # the same way, in half of the time.
    set -- "$zig" cc -target "$target" -std=c99 -Wall -Wextra -Wpedantic -Werror -O0 \
        -fno-stack-protector -fno-sanitize=undefined
    echo '#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"' >$dir/library.c
    # zig compiles the C runtime when it first links for a target, and prints warnings about it
    echo 'int main(void) { return 0; }' >$dir/empty.c
    "$@" $dir/empty.c -o $dir/program >/dev/null 2>&1
    rm -f $dir/library.o
    expect "the library" "$@" -c $dir/library.c -o $dir/library.o
    expect "what the library calls" unexpected_calls $dir/library.o
    for example in generate minimal village convert bench crosscheck embed perplexity batch; do
        sources=examples/$example.c          # as build.sh has them
        [ ! -d "examples/$example" ] || sources=$(echo examples/"$example"/*.c)
        case $example in
            bench | convert) sources="$sources $(echo examples/json/*.c)" ;;
            embed) sources="$sources examples/server/buffer.c $(echo examples/json/*.c)" ;;
            perplexity) sources="$sources examples/embed/file.c examples/embed/say.c" ;;
            batch) sources=$(echo examples/server/batch*.c examples/server/[!bs]*.c examples/server/buffer.c \
                examples/json/*.c) ;;
        esac
        rm -f $dir/program
        expect $example "$@" -DBITNET__IMPLEMENTED $sources $dir/library.o -o $dir/program
        expect "$example's libraries" unexpected_libraries $dir/program
    done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
