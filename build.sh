#!/bin/sh
# Builds and tests bitnet.h. Writes only to build/, prints each command that it runs.
#
#   ./build.sh [run]       builds generate and lets the tiny model tell a story; needs a C compiler only
#   ./build.sh test        installs what the suites need and is missing, then runs them all
#   ./build.sh examples    builds every example
#   ./build.sh check       the header under every compiler, standard and switch; symbols; macros
#   ./build.sh bench [MODEL] [-t N]   speed of every usable kernel, as a share of this machine's limit
#   ./build.sh deps        installs what test needs (apt-get, as root or through sudo)
#   ./build.sh clean       removes build/
#
# CC, CFLAGS    compiler and its flags (cc, -O2)
# RUN           put in front of every program that is run, for an emulator
# BITNET_NO_INSTALL=1    test installs nothing; suites that lack their tools are skipped, by name
# BITNET_TEST_DATA       folder of the larger test data (../shared); tests without it are skipped
set -eu
cd "$(dirname "$0")"

CC=${CC:-cc}
CFLAGS=${CFLAGS:--O2}
RUN=${RUN:-}
export CC CFLAGS RUN BITNET_TEST_DATA="${BITNET_TEST_DATA:-../shared}"
WARN="-Wall -Wextra -Wpedantic -Wconversion -Wshadow"

have() { command -v "$1" >/dev/null 2>&1; }
run() { echo "+ $*"; "$@"; }

# Format functions: stb_sprintf where its header is installed, else the C library's.
stb_flags() {
    if echo '#include <stb/stb_sprintf.h>' | $CC -E - >/dev/null 2>&1; then
        echo "-include stb/stb_sprintf.h -DSTB_SPRINTF_IMPLEMENTATION -DSTB_SPRINTF_STATIC" \
            "-DBITNET_VSNPRINTF=stbsp_vsnprintf"
    fi
}

# example NAME: builds examples/NAME.c to build/NAME.
example() {
    mkdir -p build
    run $CC $CFLAGS $STB "examples/$1.c" -o "build/$1" -lpthread
}

# ---- packages (Debian's names) ----

# Prints the packages whose tools are missing.
missing_packages() {
    have gcc || echo gcc
    have g++ || echo g++
    have clang || echo clang
    have python3 || echo python3
    have qemu-x86_64 || echo qemu-user
    [ -e /usr/include/stb/stb_sprintf.h ] || echo libstb-dev
    [ -e /usr/share/unicode/UnicodeData.txt ] || echo unicode-data
}

deps() {
    packages=$(missing_packages | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    if [ "${BITNET_NO_INSTALL:-0}" = 1 ]; then
        echo "not installed (BITNET_NO_INSTALL=1): $packages"
        return 0
    fi
    root=
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then root=sudo
        else
            echo "not installed (neither root nor sudo): $packages"
            return 0
        fi
    fi
    have apt-get || { echo "not installed (no apt-get here): $packages"; return 0; }
    echo "installing: $packages"
    run $root apt-get update -qq || true
    run $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends $packages >build/apt.log 2>&1 ||
        { tail -n 5 build/apt.log; echo "some packages could not be installed"; }
}

# ---- suites ----

passed=0 failed=0 skipped=0

# suite NAME COMMAND...: runs it and adds up its closing line "N passed, N failed, N skipped".
suite() {
    name=$1
    shift
    echo "== $name"
    "$@" >"build/$name.log" 2>&1 && code=0 || code=$?
    line=$(grep -E '[0-9]+ passed, [0-9]+ failed' "build/$name.log" | tail -n 1)
    counts=$(echo "$line" | tr -dc '0-9,' | tr ',' ' ')
    set -- $counts
    if [ $# -ne 3 ]; then set -- 0 1 0; fi
    if [ "$code" -ne 0 ] && [ "$2" -eq 0 ]; then set -- "$1" 1 "$3"; fi
    grep -E '^(FAIL|skip)' "build/$name.log" || true
    if [ "$2" -ne 0 ]; then tail -n 30 "build/$name.log"; fi
    echo "$name: $1 passed, $2 failed, $3 skipped"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

skip_suite() {
    echo "== $1"
    echo "skip $1: $2"
    skipped=$((skipped + 1))
}

# tests NAME COMPILER FLAGS: builds the test program to build/tests-NAME and runs it.
build_tests() {
    out=build/tests-$1 compiler=$2
    shift 2
    run $compiler -std=c99 $WARN -Werror "$@" $STB -DBITNET_STATIC -DBITNET_IMPLEMENTATION \
        -DTEST_DATA_DIR='"tests/data"' tests/all.c -o "$out" -lm -lpthread
}

tests() {
    build_tests "$@" && run $RUN "build/tests-$1"
}

# The tests that share contexts and models between threads.
races() {
    build_tests races gcc -O1 -g -fsanitize=thread &&
        run build/tests-races model/head48 model/callers_pool screen/switch screen/ahead \
            lookup/samplers tiny/same_text
}

# The same kernels on CPUs that lack something: each level must be found, and none beyond it.
emulated() {
    run env RUN= qemu-x86_64 -cpu "$1" build/tests-cc kernels/
}

# The suites that make sense for this machine's own compilers.
test_host() {
    if have gcc; then suite gcc-native tests gcc-native gcc -O3 -march=native -funsigned-char
    else skip_suite gcc-native "gcc is not installed"; fi
    if have clang; then suite clang tests clang clang -O2
    else skip_suite clang "clang is not installed"; fi
    if have gcc; then
        suite sanitizers tests sanitizers gcc -O1 -g -fsanitize=address,undefined \
            -fno-sanitize-recover=all
        suite races races
    else skip_suite sanitizers "gcc is not installed"; fi
    if [ "$(uname -m)" = x86_64 ] && have qemu-x86_64; then
        for cpu in qemu64 Nehalem Haswell; do suite "qemu-$cpu" emulated "$cpu"; done
    else skip_suite qemu "qemu-x86_64 is not installed, or this is no x86-64"; fi
    suite check sh tests/check.sh
}

test_all() {
    mkdir -p build
    deps
    STB=$(stb_flags)
    [ -z "$STB" ] || STB="$STB -DSTB_SPRINTF_NOUNALIGNED"
    suite cc tests cc "$CC" $CFLAGS
    for program in generate bench crosscheck; do example $program >/dev/null; done
    suite cli sh tests/test_cli.sh build/generate examples/tiny.gguf build/bench
    suite crosscheck sh tests/test_crosscheck.sh build/crosscheck examples/tiny.gguf
    [ -n "$RUN" ] || test_host
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}

command=${1:-run}
[ $# -eq 0 ] || shift
STB=$(stb_flags)
case $command in
    run)
        example generate
        run $RUN build/generate -m examples/tiny.gguf -p "Once upon a time" -n 300 -s 1 "$@" ;;
    examples) for f in examples/*.c; do example "$(basename "$f" .c)"; done ;;
    test) test_all ;;
    check) mkdir -p build && run sh tests/check.sh ;;
    bench) example bench && run $RUN build/bench "$@" ;;
    deps) mkdir -p build && deps ;;
    clean) run rm -rf build ;;
    *) sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
