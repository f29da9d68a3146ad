#!/bin/sh
# Builds and tests bitnet.h. Writes only to build/, prints each command that it runs.
#
#   ./build.sh t [FILTER...]   after a change: the quick unit tests whose names hold one of the words
#   ./build.sh [run]       the default: builds generate and lets the tiny model tell a story; needs only
#                          a C compiler
#   ./build.sh test [--all]    installs the Debian packages that suites lack, then runs the suites of
#                          every change; with --all every suite in full, as before a release
#   ./build.sh test --changed [--list] [BASE]   only what the table of tests/README.md names for what
#                          differs from the commit BASE (HEAD); with --list says it and runs nothing
#   ./build.sh suite NAME...   these suites in full, installs nothing; without a name it lists them
#   ./build.sh examples    builds the programs generate, convert, embed, bench, crosscheck, perplexity,
#                          minimal and village
#   ./build.sh server      build/serve, a server with OpenAI's API, which needs Debian's
#                          libmicrohttpd-dev, with a page in build/page, and build/batch
#   ./build.sh perplexity  build/perplexity, which compares models by a text
#   ./build.sh web         the WASM modules and the page, into build/web; npm downloads markdown-it
#                          and pdf.js for the page, once
#   ./build.sh serve [PORT]    shows the page on localhost (8080); builds it if it is not there
#   ./build.sh dist        a release, into build/dist: headers, page, npm package, sources, binaries, checksums
#   ./build.sh binaries [SYSTEM...]   programs and shared library for Linux, Windows and macOS, by zig,
#                          into build/binaries
#   ./build.sh check       the header under every compiler, standard and switch; symbols; macros
#   ./build.sh bench [MODEL] [-t N]   speed of every usable kernel, as a share of this machine's limit
#   ./build.sh bench --web [MODEL] [-t N]   the same of the browser part, in Node and Chromium
#   ./build.sh bench --server [MODEL] [-t N]   of serve with 64 clients, and of batch (55 minutes)
#   ./build.sh fuzz SECONDS [TARGET...]   fuzzes each target of tests/fuzz for so long; fails if one
#                          finds something, or hardly runs
#   ./build.sh coverage    which lines of the library the fuzzers' inputs reach
#   ./build.sh deps [--all]    installs what test would install, and runs nothing
#   ./build.sh clean       removes build/
#   ./build.sh help        this list
#
# CC, CFLAGS    compiler and its flags (cc, -O2)
# RUN           put in front of every program that is run, for an emulator
# EMCC, EMCC_RELAXED   emscripten's compiler, 3.1.6 or newer (emcc); one with relaxed SIMD, if not that
# BITNET_INSTALL=sudo    test and deps install through sudo; without it only root installs
# BITNET_NO_INSTALL=1    nothing is installed; suites that lack their tools are skipped, by name
# BITNET_TEST_DATA       folder of the larger test data (../shared); tests without it are skipped
set -eu
cd "$(dirname "$(readlink -f "$0" 2>/dev/null || echo "$0")")"    # $0 may be a link
mkdir -p build

CC=${CC:-cc}
CFLAGS=${CFLAGS:--O2}
RUN=${RUN:-}
export CC CFLAGS RUN BITNET_TEST_DATA="${BITNET_TEST_DATA:-../shared}"
WARN="-Wall -Wextra -Wpedantic -Wconversion -Wshadow"

have() { command -v "$1" >/dev/null 2>&1; }
run() { echo "+ $*"; "$@"; }
# is_fresh FILE PATH...: is it there, and no older than these? PATH... is as find takes it.
is_fresh() { [ -e "$1" ] && made=$1 && shift && [ -z "$(find "$@" -newer "$made")" ]; }

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

need_compiler() {
    have "${1%% *}" || { echo "there is no C compiler '$1' (Debian: gcc libc6-dev)" >&2; return 1; }
}

# library COMPILER FLAGS...: compiles the implementation once for these, into $object. Programs that
# link it are compiled with $USE_OBJECT.
library() {
    need_compiler "$1" || return 1
    object=build/bitnet-$(echo "$*" | cksum | cut -d ' ' -f 1).o
    (
        ! have flock || flock 9
        is_fresh "$object" bitnet*.h || {
            printf '#define BITNET_IMPLEMENTATION\n#include "../bitnet.h"\n' >build/bitnet.c &&
                run "$@" $(stb_flags "$1") -c build/bitnet.c -o "$object.new" &&
                mv "$object.new" "$object"
        }
    ) 9>"$object.lock"
}
USE_OBJECT=-DBITNET__IMPLEMENTED

# sources NAME: the files of an example, examples/NAME.c or examples/NAME/*.c and what they share.
sources() {
    case $1 in
        bench | convert) echo examples/$1/*.c examples/json/*.c ;;
        embed) echo examples/embed/*.c examples/server/buffer.c examples/json/*.c ;;
        perplexity) echo examples/perplexity/*.c examples/embed/file.c examples/embed/say.c ;;
        # names of files that only one of them has begin as it does
        serve | batch) echo examples/server/$1*.c examples/server/[!bs]*.c \
            examples/server/buffer.c examples/json/*.c ;;
        *) if [ -d "examples/$1" ]; then echo examples/"$1"/*.c; else echo "examples/$1.c"; fi ;;
    esac
}
PROGRAMS='bench convert crosscheck embed generate perplexity'     # of several files

# server: build/batch and build/serve, and a page beside it, unless build/web is one.
server() {
    example batch && need_microhttpd && example serve || return 1
    if [ -e build/web/index.html ]; then echo "The page of serve is build/web, as ./build.sh web made it."
    else
        server_page build/page || return 1
        echo "The page of serve is build/page. One that also runs models in the browser: ./build.sh web"
    fi
}

# server_page FOLDER: the page for serve alone. It opens no model itself, so nothing has to be compiled.
server_page() {
    rm -rf "$1"
    mkdir -p "$1" && cp web/page/* LICENSE "$1" && cp -r web/client web/shared "$1" &&
        rm "$1/client/platform-node.js" "$1/client/platform-inline.js" || return 1
    for file in web/client/*.js; do
        [ ! -e "$1/client/${file##*/}" ] ||
            sed -e "s|'bitnet-platform'|'./platform-browser.js'|" -e "s|'bitnet-engines'|'./engines.js'|" \
                -e "s|'bitnet-worker-script'|'./worker-script.js'|" $file >"$1/client/${file##*/}" ||
            return 1
    done
    echo "export * from './client/bitnet.js';" >"$1/bitnet.js"
    echo 'export const engines = {};' >"$1/client/engines.js"
    echo "export default '';" >"$1/client/worker-script.js"
    if have "${ESBUILD:-esbuild}" && have npm; then page_markdown "$1" || return 1
    else echo 'export default null;' >"$1/markdown-it.js"      # replies are plain text
    fi
    if have node; then run node web/list.mjs "$1"; fi           # or no browser keeps the page
}

need_microhttpd() {
    echo '#include <microhttpd.h>' | $CC -E - >/dev/null 2>&1 && return 0
    echo "serve: libmicrohttpd is not installed (Debian: libmicrohttpd-dev)" >&2
    return 1
}

# example NAME: builds it to build/NAME.
example() {
    libraries=''
    library $CC $CFLAGS || return 1
    case $1 in
        generate) libraries=$(editline_flags "$CC $CFLAGS") ;;
        serve) libraries='-lmicrohttpd -lm' ;;
        batch | embed | perplexity) libraries=-lm ;;
    esac
    run $CC $CFLAGS $USE_OBJECT $(sources "$1") "$object" -o "build/$1" $libraries -lpthread
}

# shared_example NAME: the same for suites that run at the same time: made once, and again only if a
# source or the compiler is another.
shared_example() {
    (
        ! have flock || flock 9
        [ "$(cat "build/$1.made" 2>/dev/null)" = "$CC $CFLAGS" ] &&
            is_fresh "build/$1" bitnet*.h examples -name '*.[ch]' ||
            { example "$1" && echo "$CC $CFLAGS" >"build/$1.made"; }
    ) 9>"build/$1.lock"
}

# ---- unit tests ----

processors() { getconf _NPROCESSORS_ONLN || echo 2; }

# test_files [FILTER...]: the names of the files tests/unit/test_NAME.c that can hold tests with such
# names. The tests of a file are called NAME/...; a filter is any part of such a name.
test_files() {
    for file in tests/unit/test_*.c; do
        name=${file#tests/unit/test_} name=${name%.c} found=$#
        for filter; do
            case $filter in
                */*) case $name in *"${filter%%/*}") found=0 ;; esac ;;
                *) ! grep -qF -e "$filter" "$file" || found=0 ;;
            esac
        done
        [ "$found" -ne 0 ] || echo "$name"
    done
}

# unit_tests FOLDER FILTERS COMPILER FLAGS...: the test program FOLDER/tests with the files that
# FILTERS ask for. Each file has an object of its own, compiled again only if it is older than what it
# includes, or was compiled otherwise; the library is compiled once, as library.o, if $prebuilt is not
# one. $exe is the program's suffix.
unit_tests() {
    folder=$1 names=$(test_files $2)
    shift 2
    [ -n "$names" ] || { echo "no test has such a name"; return 1; }
    set -- "$@" -std=c99 $WARN -Werror $(stb_flags "$1") -DSTB_SPRINTF_NOUNALIGNED
    [ "$(cat "$folder/made" 2>/dev/null)" = "$*" ] || rm -rf "$folder"
    mkdir -p "$folder"
    echo "$*" >"$folder/made"
    stale= objects=${prebuilt:-}
    for file in $([ -n "${prebuilt:-}" ] || echo tests/unit/library.c) tests/unit/hooks.c $(printf 'tests/unit/test_%s.c ' $names) $TESTED_EXAMPLES; do
        object=$folder/$(basename "$file" .c).o objects="$objects $object"
        is_fresh "$object" $(test_headers $file) || stale="$stale $file"
    done
    [ -z "$stale" ] || printf '%s\n' $stale | compile_all "$folder" "$@" || return 1
    run "$@" -DTEST_FILES="$(printf 'X(%s) ' $names)" tests/unit/run.c $objects \
        -o "$folder/tests${exe:-}" -lm -lpthread
}

# What tests link of the examples.
TESTED_EXAMPLES='examples/json/text.c examples/json/json.c examples/convert/gguf_write.c
    examples/convert/pack.c examples/embed/bits.c'

# test_headers FILE: the file and what it includes, or more.
test_headers() {
    case $1 in
        */library.c) echo $1 bitnet*.h tests/unit/hooks.h ;;
        */hooks.c) echo $1 tests/unit/hooks.h ;;
        examples/*) echo $1 bitnet.h examples/*/*.h ;;
        *) echo $1 bitnet*.h tests/unit/*.h examples/*/*.h ;;
    esac
}

# compile_all FOLDER COMPILER FLAGS...: the files that stdin names, several at a time. What optimises
# the library does not matter for test files: -Og compiles them fastest. emcc has no -Og, and does not
# want to be told about linking yet.
compile_all() {
    folder=$1
    shift
    echo "+ $* -c FILE"
    xargs -P "$(processors)" -I FILE sh -c 'file=$1 folder=$2
        shift 2
        level=-Og
        case $1 in *emcc) level=-O1; set -- "$@" -Wno-unused-command-line-argument ;; esac
        case $file in tests/unit/test_*) set -- "$@" $level ${test_flags:-} ;; esac
        exec "$@" -c "$file" -o "$folder/$(basename "$file" .c).o"' sh FILE "$folder" "$@"
}

# t [FILTER...]: for those who change something: the quick tests with such names.
t() {
    unit_tests build/t "$*" $CC -Og || return 1
    BITNET_TEST_QUICK=1 run $RUN build/t/tests "$@"
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

# web_module SOURCES NAME FLAGS...: build/em/NAME.js and .wasm. The stack's size has its old name,
# which every version knows.
web_module() {
    sources=$1 name=$2
    shift 2
    rm -f build/em/"$name".*
    run em "$@" $sources -o "build/em/$name.js" -msimd128 \
        -sMODULARIZE=1 -sALLOW_MEMORY_GROWTH=1 \
        -sTOTAL_STACK=512KB -sNODEJS_CATCH_EXIT=0 -sNODEJS_CATCH_REJECTION=0
}

# What makes an engine small: every function but the kernels is compiled for size, as bitnet_web.c says;
# these spare copies of functions and of loads, and tests of numbers that every engine with SIMD makes.
# Not emmalloc, which would take 2.5 KB less: asked for more than is left of 4 GB, that of 3.1.6 does not
# refuse.
WEB_SMALL='-Os -mllvm -inline-threshold=-60 -mllvm -enable-load-pre=0 -mnontrapping-fptoint'

# web_variant NAME FLAGS...: the library, as an engine of the package.
web_variant() {
    variants="$variants $1" name=bitnet-$1
    shift
    web_module web/bitnet_web.c $name $WEB_SMALL "$@" --no-entry -sFILESYSTEM=0 -sMAXIMUM_MEMORY=4GB -sIMPORTED_MEMORY=1 \
        -sMEMORY_GROWTH_GEOMETRIC_CAP=16MB -sEXPORTED_FUNCTIONS=_malloc,_free \
        -sEXPORT_NAME=bitnetModule
    run node web/order.mjs build/em/$name.wasm
}

# web_crosscheck NAME FLAGS...: examples/crosscheck, for the page, which compares its report on the
# kernels and tiny.gguf with crosscheck.txt, this machine's.
web_crosscheck() {
    name=crosscheck-$1
    shift
    web_module "$(sources crosscheck)" $name -O2 "$@" $WEB_FLAGS -sENVIRONMENT=web,worker,node -sEXPORT_ES6=1 -sINVOKE_RUN=0 \
        -sEXIT_RUNTIME=1 -sEXPORTED_RUNTIME_METHODS=callMain,FS
    cp build/em/"$name".* build/web
}

# licences PACKAGE...: theirs, of those in the folder $from.
licences() {
    for name; do
        printf '%s\n\n' "$name:"
        cat $from/$name/LICENSE*
        echo
    done
}

# page_markdown FOLDER: what the page draws replies with: one module of npm's markdown-it, which has all
# that it needs inside. Without it the page is whole, but shows replies as plain text.
page_markdown() {
    from=build/npm-page/node_modules out=$1/markdown-it
    if ! have npm || ! npm_packages web/markdown-it.json build/npm-page; then
        echo "web: npm cannot get markdown-it, so the page shows replies as plain text." \
            "With a network, run it again." >&2
        echo 'export default null;' >$out.js
        return 0
    fi
    run "${ESBUILD:-esbuild}" $from/markdown-it/dist/browser/markdown-it.esm.min.mjs --minify \
        --format=esm --log-level=warning --outfile=$out.js || return 1
    licences markdown-it entities linkify-it mdurl punycode.js uc.micro >$out.txt
}

# page_documents FOLDER: what Search reads PDF and Word files with, which a browser loads when it has
# such a file. Without it they are refused.
page_documents() {
    from=build/npm-documents/node_modules
    if ! have npm || ! npm_packages web/documents.json build/npm-documents; then
        echo "web: npm cannot get pdfjs-dist and fflate, so Search reads no PDF and Word files." \
            "With a network, run it again." >&2
        return 0
    fi
    echo "export { getDocument, PDFWorker } from 'pdfjs-dist/legacy/build/pdf.min.mjs';
        export { unzipSync } from 'fflate';" |
        NODE_PATH=$from run "${ESBUILD:-esbuild}" --bundle --minify --format=esm --target=es2022 \
            --log-level=error --outfile=$1/documents.js
    cp $from/pdfjs-dist/legacy/build/pdf.worker.min.mjs $1/documents-worker.txt
    cp -r $from/pdfjs-dist/cmaps $1/cmaps              # with a licence of their own
    licences pdfjs-dist fflate >$1/documents.txt
}

web() {
    have "${EMCC%% *}" || { echo "web: $EMCC is not installed (Debian: emscripten)" >&2; exit 1; }
    have "${ESBUILD:-esbuild}" || { echo "web: esbuild is not installed (Debian: esbuild)" >&2; exit 1; }
    WEB_FLAGS='' variants=
    threads="-sENVIRONMENT=web,worker,node -pthread -sPTHREAD_POOL_SIZE=Module['poolSize'] -sDEFAULT_PTHREAD_STACK_SIZE=512KB
        -Wno-pthreads-mem-growth"
    made_with="$EMCC ${EMCC_RELAXED:-}"
    rm -rf build/web
    mkdir -p build/web build/em/stb
    cp web/page/* web/package.json web/README.md web/bitnet.d.ts examples/tiny.gguf LICENSE build/web
    if [ -e /usr/include/stb/stb_sprintf.h ]; then   # by itself: a host's other headers don't fit
        cp /usr/include/stb/stb_sprintf.h build/em/stb
        WEB_FLAGS="-Ibuild/em $(stb_flags "em -Ibuild/em") -DSTB_SPRINTF_NOUNALIGNED"
    fi
    web_variant simd -sENVIRONMENT=web,worker      # nothing of Node's, for bundlers of inline.js
    web_variant threads $threads
    web_crosscheck simd
    EMCC=${EMCC_RELAXED:-$EMCC}
    if em_has_relaxed; then
        # the page makes sure that relaxed SIMD is right; binaryen's packing of data costs more than it saves
        web_variant relaxed -mrelaxed-simd -DBITNET_NO_SIMD128 $threads \
            -sBINARYEN_EXTRA_PASSES=-Oz,--skip-pass=memory-packing
        web_crosscheck relaxed -mrelaxed-simd
    fi
    run node web/bundle.mjs engines build/em build/web $variants
    run node web/bundle.mjs modules web build/web
    page_markdown build/web
    page_documents build/web
    echo "$made_with" >build/em/compiler
    shared_example crosscheck &&
        build/crosscheck --short -m examples/tiny.gguf -n 8 >build/web/crosscheck.txt
    run node web/list.mjs build/web
    echo "   bytes  as gzip"
    for file in build/web/bitnet.js build/web/node.js build/web/inline.js build/web/engine-*.js \
        build/em/bitnet-*.wasm; do
        printf '%8s %8s  %s\n' "$(wc -c <"$file")" "$(gzip -9c "$file" | wc -c)" "${file##*/}"
    done
}

# one_web: web, while no other process builds the same files.
one_web() { (! have flock || flock 9; web) 9>build/one_web.lock; }

# bench_web ARGUMENTS...: with what the suites build and install; Chromium may be missing.
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
    else npm_packages tests/web/package.json build/npm || missing="npm cannot install what drives it"
    fi
    BENCH_NO_CHROMIUM=$missing BENCH_MODULES=build/npm run node tests/web/bench.mjs "$@"
}

# bench_server ARGUMENTS...: the same of serve and batch.
bench_server() {
    have node || { echo "bench: node is not installed (Debian: nodejs)" >&2; exit 1; }
    need_microhttpd || exit 1
    missing=''
    for name in bench batch serve; do shared_example $name || exit 1; done
    have npm || missing="npm is not installed"
    [ -n "$missing" ] || npm_packages tests/server/package.json build/npm-server ||
        missing="npm cannot install autocannon"
    export BENCH_COMPILER="$($CC --version | head -n 1) $CFLAGS"
    BENCH_NO_LOAD=$missing BENCH_MODULES=build/npm-server run node tests/server/bench.mjs "$@"
}

# ---- packages (Debian's; tests/packages.txt has them) ----

# applies CONDITION...: of a line of tests/packages.txt, here.
applies() {
    for condition; do
        case $condition in
            --all) [ "${BITNET__WHOLE:-1}" = 1 ] || return 1 ;;
            */*) [ -f "$BITNET_TEST_DATA/$condition" ] || return 1 ;;
            !*) [ "$(uname -m)" != "${condition#?}" ] || return 1 ;;
            *) [ "$(uname -m)" = "$condition" ] || return 1 ;;
        esac
    done
}

# present PROOF...: what shows that a line's packages are installed is all there.
present() {
    for proof; do
        found=
        for one in $(echo "$proof" | tr , ' '); do
            case $one in
                /*) [ ! -e "$one" ] || found=1 ;;
                *:*) ! echo '#include <stdio.h>' | "${one%%:*}" "${one#*:}" -E - >/dev/null 2>&1 ||
                    found=1 ;;
                *) ! have "$one" || found=1 ;;
            esac
        done
        [ -n "$found" ] || return 1
    done
}

# used_by SUITES SUITE...: is one of them among SUITES?
used_by() {
    users=" $(echo $1) "
    shift
    for user; do
        case $users in *" all "* | *" $user "*) return 0 ;; esac
    done
    return 1
}

# missing_packages SUITE...: the lines of tests/packages.txt whose packages these suites lack, as
# "PACKAGES;SUITES". Packages named after a version of gcc are those of the gcc that is here or that
# apt would install.
missing_packages() {
    version=$(gcc -dumpversion 2>/dev/null | sed 's/[.].*//')
    [ -n "$version" ] || version=$(apt-cache depends gcc 2>/dev/null |
        sed -n 's/.*Depends: gcc-\([0-9][0-9]*\)$/\1/p')
    sed -e 's/ *#.*//' -e '/^ *$/d' -e "s/gcc-N-/gcc-${version:-N}-/" -e 's/ *; */;/g' \
        tests/packages.txt |
        while IFS=';' read -r packages proof suites condition; do
            ! applies $condition || ! used_by "$suites" "$@" || present $proof ||
                echo "$packages;$suites"
        done
}

# The lines of missing_packages for people.
list_packages() { echo "$1" | awk -F';' '{ printf "    %-44s for %s\n", $1, $2 }'; }

# Prints "sudo" or nothing, to be put in front of apt-get; fails with the reason if nothing may be
# installed.
installer() {
    case ${BITNET_INSTALL:-} in
        '' | sudo) ;;
        *) echo "BITNET_INSTALL can only be sudo"; return 1 ;;
    esac
    if [ "${BITNET_NO_INSTALL:-0}" = 1 ]; then echo "BITNET_NO_INSTALL=1"; return 1
    elif ! apt-get --version >/dev/null 2>&1; then echo "there is no apt-get"; return 1
    elif [ "$(id -u)" = 0 ]; then return 0
    elif [ "${BITNET_INSTALL:-}" = sudo ]; then echo sudo
    else echo "this is not root; with BITNET_INSTALL=sudo it goes through sudo"; return 1
    fi
}

# apt ARGUMENTS...: apt-get, which waits while another one runs. Its output goes to build/apt.out.
apt() {
    echo "+ $sudo${sudo:+ }apt-get $*"
    $sudo env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@" \
        >build/apt.out 2>&1 && code=0 || code=$?
    cat build/apt.out >>build/apt.log
    return $code
}
# Nothing that is installed is removed for it: gcc-multilib and the cross compilers exclude each
# other, and apt would swap them without a word.
apt_install() { apt install -y -q --no-remove --no-install-recommends "$@"; }

# set_up SUITE...: installs what these suites lack, if that is allowed, and says before what and why.
# build/set-up.txt gets a line for each set of packages that is missing after that:
#     FAIL set-up: PACKAGES could not be installed; for SUITES
#     skip set-up: PACKAGES: the reason; for SUITES
set_up() {
    : >build/set-up.txt
    lines=$(missing_packages "$@")
    [ -n "$lines" ] || return 0
    if ! sudo=$(installer); then
        echo "set-up: these Debian packages are missing and are not installed ($sudo):"
        list_packages "$lines"
        echo "$lines" | sed "s/\(.*\);\(.*\)/skip set-up: \1: not installed; for \2/" >build/set-up.txt
        return 0
    fi
    : >build/apt.log
    : >build/set-up.conflicts
    apt update -q || echo "set-up: apt-get update failed; build/apt.log says why"
    lines=$(missing_packages "$@")
    echo "set-up: these Debian packages are missing and will be installed (BITNET_NO_INSTALL=1" \
        "would not):"
    list_packages "$lines"
    apt_install $(echo "$lines" | sed 's/;.*//') || install_each "$lines"
    missing_packages "$@" | while IFS=';' read -r packages suites; do
        removed=$(sed -n "s/^$packages;//p" build/set-up.conflicts)
        if [ -n "$removed" ]; then
            echo "skip set-up: $packages: apt would remove$removed; for $suites"
        else echo "FAIL set-up: $packages could not be installed (build/apt.log); for $suites"
        fi
    done | tee build/set-up.txt
}

# install_each LINES: what can be had of them. build/set-up.conflicts names what excludes the others.
install_each() {
    echo "$1" | while IFS=';' read -r packages suites; do
        apt_install $packages </dev/null || ! grep -q 'remove is disabled' build/apt.out ||
            echo "$packages;$(removed_packages)" >>build/set-up.conflicts
    done
}
# Which packages apt would have removed, each after a blank.
removed_packages() {
    sed -n '/will be REMOVED/,/^[^ ]/{/will be REMOVED/d;/^ /p;}' build/apt.out | tr -s ' \n' ' ' |
        sed 's/ $//'
}

# ---- suites ----

. tests/suites.sh

skip() { echo "skip $suite: $1"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

# lacks REASON: skips the suite, which has no tool for its work. But where test was allowed to
# install, that is a failure of the set-up, unless the set-up has already said it.
lacks() {
    [ "${BITNET__SET_UP:-0}" = 1 ] || skip "$1"
    ! sed 's/.*; for / /; s/$/ /' build/set-up.txt | grep -Eq " ($suite|all) " || skip "$1"
    printf 'FAIL set-up: %s: %s\n0 passed, 1 failed, 0 skipped\n' "$suite" "$1"
    exit 1
}
need() { have "$1" || lacks "$1 is not installed"; }

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
    if [ "$*" = "0 0 0" ]; then
        echo "FAIL $suite counted no test" >>"$log"
        set -- 0 1 0
    elif [ "$code" -ne 0 ] && [ "$2" -eq 0 ]; then set -- "$1" 1 "$3"
    fi
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

# tier [--all | --changed [--list] [BASE]]: $names are the suites of test, of all, or those that a
# change needs, $filters the unit tests that it needs; with RUN the suites that it applies to.
tier() {
    filters='' names=$SUITES BITNET__WHOLE=0
    export BITNET__WHOLE
    case ${1:-},$# in
        ,0) ;;
        --all,1) names=$ALL_SUITES BITNET__WHOLE=1 ;;
        --changed,[123])
            shift
            list=${1:-}
            [ "$list" != --list ] || shift
            needs=$(sh tests/changed.sh "$@") || exit 2
            echo "$needs"
            [ "$list" != --list ] || exit 0
            filters=$(echo "$needs" | sed -n 's/^t //p') names=
            for name in $ALL_SUITES; do
                ! used_by "$(echo "$needs" | sed -n 's/^suite //p')" $name || names="$names $name"
            done ;;
        *) echo "$command: '$*' is neither --all nor --changed [--list] [BASE]" >&2; exit 2 ;;
    esac
    [ -z "$RUN" ] || names="cc cli"
}

# known_suites NAME...: fails unless there are names, and suites of all these names.
known_suites() {
    wrong=$([ $# -gt 0 ] || echo "no suite is named")
    for name; do used_by "$ALL_SUITES" "$name" || wrong="there is no suite '$name'"; done
    [ -n "$wrong" ] || return 0
    echo "suite: $wrong; these are there:" >&2
    echo $ALL_SUITES | fold -s -w 90 | sed 's/^/    /' >&2
    return 1
}

# find_python: python3 without the script that pyenv puts in its place. That looks for a version at
# each start, which takes ten times as long as Python does; tests and emcc start it often.
find_python() {
    mkdir -p build/bin
    rm -f build/bin/python3
    python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) && [ -x "$python" ] || return 0
    ln -s "$python" build/bin/python3
    PATH=$PWD/build/bin:$PATH
}

# suites NAME...: two more at a time than there are processors, since some wait for a browser, a disk
# or a time that has to pass. It fails if one fails, if the set-up has failed, or if nothing was
# tested.
suites() {
    need_compiler "$CC" || return 1
    find_python
    for name; do rm -f "build/$name.result" "build/$name.log"; done
    printf '%s\n' "$@" | xargs -n 1 -P $(($(processors) + 2)) ./build.sh one_suite || true
    summary "$@"
}

summary() {
    passed=0 failed=$(grep -c ^FAIL build/set-up.txt) || true
    skipped=0 left_out=
    for name; do
        set -- $(cat "build/$name.result" 2>/dev/null || echo 0 1 0)   # it was killed
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
        [ "$1 $2" != "0 0" ] ||
            left_out="$left_out, $name ($(sed -n "s/^skip $name: //p" "build/$name.log" | head -n 1))"
        logs="${logs:-} build/$name.log"
    done
    echo
    why_skipped $logs
    cat build/set-up.txt
    [ -z "$left_out" ] || echo "left out: ${left_out#, }"
    [ "$passed" -gt 0 ] || echo "nothing was tested"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# why_skipped LOG...: how many tests were skipped for each reason. "NAME is not in BITNET_TEST_DATA"
# is one reason, whatever the name.
why_skipped() {
    data="its data are not in BITNET_TEST_DATA ($BITNET_TEST_DATA)"
    [ -d "$BITNET_TEST_DATA" ] || data="BITNET_TEST_DATA ($BITNET_TEST_DATA) is not there"
    cat "$@" 2>/dev/null | sed -n -e 's/^.* [.][.][.] skip //p' -e 's/^skip [^:]*: *//p' |
        sed -e 's/ ([0-9.]* s)$//' \
            -e "s|.* is not in BITNET_TEST_DATA$|$data|" |
        sort | uniq -c | sort -rn | sed 's/^/skipped:/'
}

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' build.sh; }

command=${1:-run}
[ $# -eq 0 ] || shift
case $command in
    run)
        example generate
        run $RUN build/generate -m examples/tiny.gguf -p "Once upon a time" -n 300 -s 1 "$@" ;;
    examples)
        for name in examples/*.c $PROGRAMS; do example "$(basename "$name" .c)"; done ;;
    server) server ;;
    perplexity) example perplexity ;;
    t) t "$@" ;;
    test)
        tier "$@"
        set_up $names
        ! installer >/dev/null || export BITNET__SET_UP=1
        [ -z "$filters" ] || t $filters
        [ -z "$names" ] || suites $names ;;
    suite)
        known_suites "$@" || exit 2
        : >build/set-up.txt
        export BITNET__WHOLE=1
        suites "$@" ;;
    one_suite) one_suite "$1" ;;
    web) one_web ;;
    serve)
        port=${1:-8080}
        { expr "$port" : '[0-9]\{1,5\}$' >/dev/null && [ "$port" -le 65535 ]; } ||
            { echo "serve: '$port' is not a port (0 to 65535)" >&2; exit 2; }
        [ -e build/web/crosscheck.txt ] || one_web
        run node tests/web/serve.mjs build/web "$port" ;;
    dist) . packaging/dist.sh; dist ;;
    binaries) . packaging/dist.sh; binaries "$@" ;;
    check) run sh tests/checks/check.sh ;;
    bench)
        case ${1:-} in
            --web | --server) bench=bench_${1#--}; shift; $bench "$@" ;;
            *) example bench && run $RUN build/bench "$@" ;;
        esac ;;
    fuzz | coverage) sh tests/fuzz/run.sh "$command" "$@" ;;
    deps)
        tier "$@"
        set_up $names && [ ! -s build/set-up.txt ] ;;
    clean) run rm -rf build ;;
    help | --help | -h) usage ;;
    *) usage >&2; exit 2 ;;
esac
