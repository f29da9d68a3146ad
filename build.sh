#!/bin/sh
# Builds and tests bitnet.h. Writes only to build/, prints each command that it runs.
#
#   ./build.sh [run]       builds generate and lets the tiny model tell a story; needs a C compiler only
#   ./build.sh test        installs what the suites need and is missing, then runs them all
#   ./build.sh suite NAME...   runs these suites (tests/suites.sh has the names)
#   ./build.sh examples    builds every example
#   ./build.sh web         the WASM modules and the page, into build/web
#   ./build.sh serve [PORT]    shows the page on localhost (8080); builds it if it is not there
#   ./build.sh check       the header under every compiler, standard and switch; symbols; macros
#   ./build.sh bench [MODEL] [-t N]   speed of every usable kernel, as a share of this machine's limit
#   ./build.sh bench --web [MODEL] [-t N]   the same of the browser part, in Node and Chromium
#   ./build.sh fuzz SECONDS [TARGET...]   fuzzes each target of tests/fuzz for so long
#   ./build.sh coverage    which lines of the library the fuzzers' inputs reach
#   ./build.sh deps        installs what test needs (apt-get, as root or through sudo)
#   ./build.sh clean       removes build/
#
# CC, CFLAGS    compiler and its flags (cc, -O2)
# RUN           put in front of every program that is run, for an emulator
# EMCC, EMCC_RELAXED   emscripten's compiler, 3.1.6 or newer (emcc); one with relaxed SIMD, if not that
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

# stb_flags COMPILER: format functions of stb_sprintf where its header is installed, else the C
# library's.
stb_flags() {
    if echo '#include <stb/stb_sprintf.h>' | $1 -E - >/dev/null 2>&1; then
        echo "-include stb/stb_sprintf.h -DSTB_SPRINTF_IMPLEMENTATION -DSTB_SPRINTF_STATIC" \
            "-DBITNET_VSNPRINTF=stbsp_vsnprintf"
    fi
}

# editline_flags COMPILER: generate edits its input lines where libedit can be linked.
editline_flags() {
    if echo '#include <stdio.h>
            #include <histedit.h>
            int main(void) { return el_init == 0; }' |
        $1 -x c - -o build/editline -ledit >/dev/null 2>&1; then echo "-DGENERATE_EDITLINE -ledit"; fi
}

# example NAME: builds examples/NAME.c to build/NAME.
example() {
    mkdir -p build
    editline=''
    [ "$1" != generate ] || editline=$(editline_flags "$CC $CFLAGS")
    run $CC $CFLAGS $(stb_flags $CC) "examples/$1.c" -o "build/$1" $editline -lpthread
}

# shared_example NAME: the same for suites that run at the same time: made once, and again only if a
# source or the compiler is another.
shared_example() {
    mkdir -p build
    (
        ! have flock || flock 9
        [ -x "build/$1" ] && [ "$(cat "build/$1.made" 2>/dev/null)" = "$CC $CFLAGS" ] &&
            [ -z "$(find bitnet*.h examples/*.[ch] -newer "build/$1")" ] ||
            { example "$1" && echo "$CC $CFLAGS" >"build/$1.made"; }
    ) 9>"build/$1.lock"
}

# ---- the browser part ----

EMCC=${EMCC:-emcc}

# em ARGUMENTS...: emcc, which in Debian 12 does not find its own acorn.
em() { NODE_PATH="${NODE_PATH:-/usr/share/nodejs}" $EMCC "$@"; }

# 3.1.6 takes -mrelaxed-simd, but has none of its functions.
em_has_relaxed() {
    mkdir -p build/em
    echo '#include <wasm_simd128.h>
        v128_t f(v128_t x) { return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, x, x); }' |
        em -Werror -msimd128 -mrelaxed-simd -x c -c - -o build/em/relaxed.o >/dev/null 2>&1
}

# web_module SOURCE NAME FLAGS...: build/web/NAME.js and .wasm. The stack's size has its old name,
# which every version knows.
web_module() {
    source=$1 name=$2
    shift 2
    rm -f build/em/"$name".*
    run em "$@" $WEB_FLAGS "$source" -o "build/em/$name.js" -msimd128 \
        -sMODULARIZE=1 -sEXPORT_ES6=1 -sENVIRONMENT=web,worker,node -sALLOW_MEMORY_GROWTH=1 \
        -sTOTAL_STACK=512KB -sNODEJS_CATCH_EXIT=0 -sNODEJS_CATCH_REJECTION=0
    cp build/em/"$name".* build/web
    # pthreads of old versions, where Node is to take it for CommonJS
    [ ! -e "build/em/$name.worker.js" ] || cp "build/em/$name.worker.js" "build/web/$name.worker.cjs"
}

# web_variant NAME FLAGS...: the library, for web/worker.js.
web_variant() {
    variants="'$1'${variants:+, $variants}" name=bitnet-$1
    shift
    web_module web/bitnet_web.c $name -Os "$@" --no-entry -sFILESYSTEM=0 -sMAXIMUM_MEMORY=4GB \
        -sMEMORY_GROWTH_GEOMETRIC_CAP=16MB -sEXPORTED_FUNCTIONS=_malloc,_free
}

# web_crosscheck NAME FLAGS...: examples/crosscheck.c, for the page, which compares its report on the
# kernels and tiny.gguf with crosscheck.txt, this machine's.
web_crosscheck() {
    name=crosscheck-$1
    shift
    web_module examples/crosscheck.c $name -O2 "$@" -sINVOKE_RUN=0 -sEXIT_RUNTIME=1 \
        -sEXPORTED_RUNTIME_METHODS=callMain,FS
}

web() {
    have "${EMCC%% *}" || { echo "web: $EMCC is not installed (Debian: emscripten)" >&2; exit 1; }
    WEB_FLAGS='' variants=
    threads="-pthread -sPTHREAD_POOL_SIZE=Module['poolSize'] -sDEFAULT_PTHREAD_STACK_SIZE=512KB
        -Wno-pthreads-mem-growth"
    made_with="$EMCC ${EMCC_RELAXED:-}"
    rm -rf build/web
    mkdir -p build/web build/em/stb
    cp web/* examples/tiny.gguf LICENSE build/web
    rm build/web/bitnet_web.c
    if [ -e /usr/include/stb/stb_sprintf.h ]; then   # by itself: a host's other headers don't fit
        cp /usr/include/stb/stb_sprintf.h build/em/stb
        WEB_FLAGS="-Ibuild/em $(stb_flags "em -Ibuild/em") -DSTB_SPRINTF_NOUNALIGNED"
    fi
    web_variant simd
    web_variant threads $threads
    web_crosscheck simd
    EMCC=${EMCC_RELAXED:-$EMCC}
    if em_has_relaxed; then
        web_variant relaxed -mrelaxed-simd $threads
        web_crosscheck relaxed -mrelaxed-simd
    fi
    echo "export const variants = [$variants];" >build/web/variants.js
    echo "$made_with" >build/em/compiler
    shared_example crosscheck &&
        build/crosscheck --short -m examples/tiny.gguf -n 8 >build/web/crosscheck.txt
    echo "   bytes  as gzip"
    for file in build/web/*-*.js build/web/*-*.wasm; do
        printf '%8s %8s  %s\n' "$(wc -c <"$file")" "$(gzip -9c "$file" | wc -c)" "${file##*/}"
    done
}

# bench_web --web ARGUMENTS...: with what the suites build and install; Chromium may be missing.
bench_web() {
    have node || { echo "bench: node is not installed (Debian: nodejs)" >&2; exit 1; }
    have "${EMCC%% *}" || { echo "bench: $EMCC is not installed (Debian: emscripten)" >&2; exit 1; }
    suite=bench missing='' CHROMIUM=$(command -v "${CHROMIUM:-chromium}") || missing=chromium
    export TMPDIR="$PWD/build/tmp/bench" CHROMIUM
    mkdir -p "$TMPDIR"
    example bench
    make_web
    have npm || missing=npm
    if [ -n "$missing" ]; then missing="$missing is not installed"
    else npm_packages || missing="npm cannot install what drives it"
    fi
    shift
    BENCH_NO_CHROMIUM=$missing BENCH_MODULES=build/npm run node tests/web/bench.mjs "$@"
}

# ---- packages (Debian's names) ----

# Prints the packages whose files are missing, a line for each set that is of use by itself.
missing_packages() {
    have gcc || echo gcc libc6-dev
    have g++ || echo g++
    have clang || echo clang
    have tcc || echo tcc
    have clang-tidy || echo clang-tidy
    have cppcheck || echo cppcheck
    have python3 || echo python3
    have qemu-x86_64 || echo qemu-user
    [ -e /usr/include/stb/stb_sprintf.h ] || echo libstb-dev
    [ -e /usr/include/histedit.h ] || echo libedit-dev
    [ -e /usr/share/unicode/UnicodeData.txt ] || echo unicode-data
    have emcc || echo emscripten
    have node || echo nodejs
    [ -e /usr/share/nodejs/acorn ] || echo node-acorn
    [ ! -f "$BITNET_TEST_DATA/tools/emscripten-3.1.69.sh" ] || have clang-19 ||
        echo clang-19 lld-19 llvm-19
    for names in aarch64-linux-gnu:arm64 arm-linux-gnueabihf:armhf s390x-linux-gnu:s390x \
        riscv64-linux-gnu:riscv64; do
        target=${names%:*} arch=${names#*:}
        [ "$(uname -m)" != "${target%%-*}" ] || continue
        have "$target-gcc" && [ -e "/usr/$target/include/stdio.h" ] ||
            echo "gcc-$target" "libc6-dev-$arch-cross"
    done
    have emcc || echo emscripten
    have node || echo nodejs
    have npm || echo npm
    have chromium || echo chromium
    have firefox-esr || have firefox || echo firefox-esr
    [ "$(uname -m)" = x86_64 ] || return 0
    if ! echo '#include <stdio.h>' | gcc -m32 -E - >/dev/null 2>&1; then
        # not gcc-multilib, which would remove the cross compilers
        echo "gcc-$(gcc -dumpversion 2>/dev/null || echo 12)-multilib"
    fi
    have x86_64-w64-mingw32-gcc || echo gcc-mingw-w64-x86-64
    have wine64 || [ -x /usr/lib/wine/wine64 ] || echo wine64
}

install() {
    run $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $1 >>build/apt.log 2>&1
}

deps() {
    packages=$(missing_packages)
    [ -n "$packages" ] || return 0
    all=$(echo "$packages" | tr '\n' ' ') root=
    if [ "${BITNET_NO_INSTALL:-0}" = 1 ]; then
        echo "not installed (BITNET_NO_INSTALL=1): $all"
        return 0
    fi
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then root=sudo
        else
            echo "not installed (neither root nor sudo): $all"
            return 0
        fi
    fi
    have apt-get || { echo "not installed (no apt-get here): $all"; return 0; }
    echo "installing: $all"
    run $root apt-get update -qq || true
    install "$all" || echo "$packages" | while read -r some; do    # what can be had of them
        install "$some" || echo "could not be installed: $some"
    done
}

# ---- suites ----

. tests/suites.sh

# one_suite NAME: runs it. The sums of its counts go to build/NAME.result, and all that is said of it
# is said at once, since others run at the same time.
one_suite() {
    suite=$1 log=build/$1.log start=$(date +%s)
    ulimit -c 0                        # an emulator leaves them in the current folder
    echo ".. $suite"
    export TMPDIR="$PWD/build/tmp/$suite"
    mkdir -p "$TMPDIR"
    (suite_commands "$suite") >"$log" 2>&1 && code=0 || code=$?
    set -- $(awk '/[0-9] passed, [0-9]+ failed, [0-9]+ skipped/ {
            for (i = 2; i <= NF; i++) {
                if ($i == "passed,") p += $(i - 1)
                if ($i == "failed,") f += $(i - 1)
                if ($i ~ /^skipped/) s += $(i - 1)
            }
        } END { print p + 0, f + 0, s + 0 }' "$log")
    if [ "$*" = "0 0 0" ] || { [ "$code" -ne 0 ] && [ "$2" -eq 0 ]; }; then set -- "$1" 1 "$3"; fi
    echo "$*" >"build/$suite.result"
    times >"build/$suite.times"
    {
        echo "== $suite"
        grep -E '^(FAIL|skip)|[.][.][.] FAIL' "$log" || true
        [ "$2" -eq 0 ] || tail -n 30 "$log"
        echo "$suite: $1 passed, $2 failed, $3 skipped ($(($(date +%s) - start)) s," \
            "processor time $(sed -n '2s/ .*//p' "build/$suite.times"))"
    } >"build/$suite.report"
    cat "build/$suite.report"
}

# suites NAME...: as many at a time as there are processors.
suites() {
    mkdir -p build
    for name; do rm -f "build/$name.result"; done
    make_reports || echo "no reports to compare with"
    printf '%s\n' "$@" | xargs -n 1 -P "$(getconf _NPROCESSORS_ONLN || echo 2)" "$0" one_suite || true
    passed=0 failed=0 skipped=0
    for name; do
        set -- $(cat "build/$name.result" 2>/dev/null || echo 0 1 0)   # it was killed
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    done
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}

command=${1:-run}
[ $# -eq 0 ] || shift
case $command in
    run)
        example generate
        run $RUN build/generate -m examples/tiny.gguf -p "Once upon a time" -n 300 -s 1 "$@" ;;
    examples) for f in examples/*.c; do example "$(basename "$f" .c)"; done ;;
    test) mkdir -p build && deps && if [ -n "$RUN" ]; then suites cc cli; else suites $SUITES; fi ;;
    suite) suites "$@" ;;
    one_suite) one_suite "$1" ;;
    web) web ;;
    serve) [ -e build/web/crosscheck.txt ] || web; run node tests/web/serve.mjs build/web "${1:-8080}" ;;
    check) mkdir -p build && run sh tests/check.sh ;;
    bench)
        if [ "${1:-}" = --web ]; then bench_web "$@"
        else example bench && run $RUN build/bench "$@"
        fi ;;
    fuzz | coverage) sh tests/fuzz/run.sh "$command" "$@" ;;
    deps) mkdir -p build && deps ;;
    clean) run rm -rf build ;;
    *) sed -n '2,24s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
