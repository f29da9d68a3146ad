# The suites of ./build.sh test, which sources this file. Each runs in a subshell of its own, with
# its name in $suite and its output in build/NAME.log. What counts there are the lines that hold
# "N passed, N failed, N skipped"; lines that begin with FAIL and skip are shown.

# Long ones first, but those that wait for a browser or a disk apart from each other, so that there is
# no time in which all wait.
SUITES="cc web-node sanitizers check web-chromium analysis aarch64-max s390x web-cache
    aarch64-neoverse-n1 i686 windows convert aarch64-cortex-a53-signed-char armhf web-firefox
    riscv64 races wasm-simd gcc-native-unsigned-char planted wasm-relaxed clang fuzz-replay crosscheck
    cli build"

# Of these, where they are, every machine's report must be the same.
MODELS="examples/tiny.gguf tests/data/a.gguf tests/data/b.gguf $BITNET_TEST_DATA/models/c.gguf"

suite_commands() {
    exe='' filters=''
    case $1 in
        cc) tests $CC $CFLAGS && on_older_cpus ;;
        cli)
            shared_example generate && shared_example bench &&
                sh tests/test_cli.sh build/generate examples/tiny.gguf build/bench ;;
        build) sh tests/test_build.sh ;;
        check) sh tests/check.sh ;;
        analysis) sh tests/analysis.sh ;;
        planted)                       # faults in the kernels, which the self-test has to find
            find_relaxed || relaxed=
            EMCC_RELAXED=$relaxed sh tests/planted.sh ;;
        crosscheck)
            shared_example crosscheck &&
                sh tests/test_crosscheck.sh build/crosscheck examples/tiny.gguf ;;
        convert) convert ;;
        gcc-native-unsigned-char)      # what else a CPU's own instructions make of kernels and floats
            need gcc
            filters='kernels/ model/ screen/ tokenizer/ text/ tiny/'
            quick_tests gcc -O3 -march=native -funsigned-char ;;
        clang)
            need clang
            filters='kernels/ tokenizer/ gguf/ hostile files/ sources/ machine/ model/variants text/
                tiny/'
            quick_tests clang -O2 ;;
        sanitizers)                    # gcc's: clang takes minutes for a file
            need gcc
            quick_tests gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all ;;
        races)                         # the tests that share contexts and models between threads
            need gcc
            build_tests gcc -O1 -g -fsanitize=thread &&
                BITNET_TEST_QUICK=1 run build/tests-races model/head48 model/callers_pool \
                    screen/switch screen/ahead lookup/samplers machine/busy machine/parallel \
                    machine/small_steps sources/two_readers ;;
        fuzz-replay)                   # without libFuzzer: inputs that were found before
            need gcc
            sh tests/fuzz/run.sh replay gcc ;;
        web-node) web_node ;;
        web-chromium) web_page chromium ;;
        web-firefox) web_page firefox ;;
        web-cache) web_cache ;;
        *) machine "$1" && require_machine && on_machine ;;
    esac
}

# machine NAME: a compiler with flags and what runs its programs here. The kernel tables in $has
# must be found there, those in $lacks must be refused; a build with the flags in $wrong too. $break
# (for sed) breaks a kernel that $break_names, so that crosscheck has to find it. Some take only the
# tests in $filters, for what is left is the same plain C everywhere; whole models they run for the
# reports.
machine() {
    compiler='' flags='-O2 -static' emulator='' exe='' has='' lacks='' wrong='' break='' filters=''
    by_kernels='kernels/ model/variants screen/ahead'
    case $1 in
        aarch64-cortex-a53-signed-char)
            compiler=aarch64-linux-gnu-gcc flags="$flags -fsigned-char"
            emulator='qemu-aarch64 -cpu cortex-a53' has=neon lacks='neon-dotprod neon-i8mm'
            filters='kernels/ screen/ahead'
            break_file=bitnet_kernels_arm.h break='s/#define BITNET__FOLD 5/#define BITNET__FOLD 9/'
            break_names='dotrows_ternary .*, kernel neon, only in' ;;
        aarch64-neoverse-n1)
            compiler=aarch64-linux-gnu-gcc
            emulator='qemu-aarch64 -cpu neoverse-n1' has='neon neon-dotprod' lacks=neon-i8mm
            filters='kernels/ screen/ahead'
            break_file=bitnet_kernels_arm.h break='s/part\[2\], 4);/part[2], 3);/'
            break_names='dotrows_ternary .*, kernel neon-dotprod, only in' ;;
        aarch64-max)
            compiler=aarch64-linux-gnu-gcc flags='-O3 -static -march=armv8.6-a'
            emulator='qemu-aarch64 -cpu max' has='neon neon-dotprod neon-i8mm'
            filters='kernels/ model/ screen/'
            break_file=bitnet_kernels_arm.h break='s/vtrn2q_s64(a0, a1)/vtrn2q_s64(a1, a0)/'
            break_names='dotrows_ternary .*, kernel neon-i8mm, only in' ;;
        armhf)
            compiler=arm-linux-gnueabihf-gcc emulator='qemu-arm -cpu max' has=neon
            filters="$by_kernels gguf/ hostile sources/ machine/" ;;
        s390x)                         # in ISO C its gcc computes with doubles
            compiler=s390x-linux-gnu-gcc flags="$flags -fexcess-precision=fast"
            emulator=qemu-s390x wrong=-fexcess-precision=standard
            filters='kernels/ tokenizer/ gguf/ heads/every hostile machine/' ;;
        riscv64)
            compiler=riscv64-linux-gnu-gcc emulator=qemu-riscv64
            filters='kernels/ tokenizer/ gguf/' ;;
        i686)                          # asm/, which only gcc-multilib links for 32 bits
            compiler=gcc wrong=-mfpmath=387
            flags='-O2 -m32 -msse2 -mfpmath=sse -idirafter /usr/include/x86_64-linux-gnu' ;;
        windows)
            compiler=x86_64-w64-mingw32-gcc emulator=wine64 exe=.exe
            have wine64 || emulator=/usr/lib/wine/wine64
            unset DISPLAY
            export WINEPREFIX="$PWD/build/wine" WINEDEBUG=-all ;;
        wasm-*)                        # Node.js; modules with and without threads
            exe=.js compiler=${EMCC:-emcc} emulator='node'
            export NODE_PATH="${NODE_PATH:-/usr/share/nodejs}"
            # modules have an environment of their own, those that use it
            echo 'Module.preRun = [() => { if (typeof ENV !== "undefined")' \
                'ENV.BITNET_TEST_QUICK = process.env.BITNET_TEST_QUICK; }];' >build/environment.js
            flags='-O2 -msimd128 -sNODERAWFS=1 -sEXIT_RUNTIME=1 -sTOTAL_STACK=1MB'
            flags="$flags --pre-js build/environment.js"
            for option in --no-experimental-fetch --experimental-wasm-relaxed-simd --no-liftoff; do
                ! node $option -e 0 2>/dev/null || emulator="$emulator $option"
            done
            break_file=bitnet_kernels_wasm.h
            if [ "$1" = wasm-simd ]; then
                flags="$flags -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB"
                has=simd128 break='s/shr(v\[r\], 6)/shr(v[r], 4)/'
                break_names='dotrows_ternary .*, kernel simd128, only in'
            else
                find_relaxed || skip "$why"
                compiler=$relaxed
                filters=$by_kernels
                flags="$flags -mrelaxed-simd -pthread -sPTHREAD_POOL_SIZE=16"
                flags="$flags -sINITIAL_MEMORY=1GB"       # threads slow memory that grows
                has='relaxed-simd simd128' break='s/shr(v\[r\], 4)/shr(v[r], 2)/'
                break_names='dotrows_ternary .*, kernel relaxed-simd, only in'
            fi ;;
        *) echo "there is no suite $1"; return 1 ;;
    esac
}

# Sets $relaxed to an emcc with relaxed SIMD, which Debian 12's has not: EMCC_RELAXED, or $EMCC, or
# one that the test data's script makes, once. Else says in $why that there is none.
find_relaxed() {
    script=$BITNET_TEST_DATA/tools/emscripten-3.1.69.sh relaxed=${EMCC_RELAXED:-} why=
    [ -z "$relaxed" ] || return 0
    relaxed=$EMCC
    ! em_has_relaxed || return 0
    relaxed=$PWD/build/emscripten/emcc why="$EMCC has no relaxed SIMD, and"
    [ -f "$script" ] || { why="$why $script is not there"; return 1; }
    have clang-19 || { why="$why clang-19 is not installed"; return 1; }
    (
        ! have flock || flock 9
        [ -x "$relaxed" ] || run bash "$script" build/emscripten
    ) 9>build/emscripten.lock && [ -x "$relaxed" ] || { why="$why $script failed"; return 1; }
}

# Leaves the suite if the machine's tools are missing.
require_machine() {
    missing=
    for tool in ${emulator%% *} $compiler; do have "$tool" || missing=$tool; done
    if [ -z "$missing" ]; then
        echo 'int main(void) { return 0; }' >"build/$suite.c"
        run $compiler $flags "build/$suite.c" -o "build/$suite.empty" || missing="a C library for it"
    fi
    [ -z "$missing" ] || lacks "$missing is not installed"
}

# verdict NAME COMMAND...: one case of a suite, which passes if the command does.
verdict() {
    case_name=$1
    shift
    if "$@"; then echo "$suite $case_name: 1 passed, 0 failed, 0 skipped"
    else printf 'FAIL %s\n%s: 0 passed, 1 failed, 0 skipped\n' "$case_name" "$suite"; fi
}

# For several examples of one machine: the library once, and each of them as its user, which then has
# to be given the headers that the implementation would have brought.
build_library() {
    run $1 $(stb_flags "${1%% *}") -DBITNET_IMPLEMENTATION -x c -c bitnet.h -o "build/bitnet-$suite.o"
}
build_user() {
    run $1 -DBITNET__IMPLEMENTED -include stdlib.h -include string.h -include stdarg.h \
        "examples/$2.c" "build/bitnet-$suite.o" -o "build/$2-$suite$exe" -lpthread
}

build_example() { run $1 $(stb_flags "${1%% *}") "examples/$2.c" -o "build/$2-$suite$exe" -lpthread; }

build_tests() {
    run "$@" -std=c99 $WARN -Werror $(stb_flags "$1") -DSTB_SPRINTF_NOUNALIGNED -DBITNET_STATIC \
        -DBITNET_IMPLEMENTATION -DTEST_DATA_DIR='"tests/data"' tests/all.c \
        -o "build/tests-$suite$exe" -lm -lpthread
}

tests() { build_tests "$@" && run $RUN "build/tests-$suite"; }
quick_tests() { build_tests "$@" && BITNET_TEST_QUICK=1 run $RUN "build/tests-$suite" $filters; }

# convert.c with gcc's sanitizers, where they are; models in Hugging Face's form need Python.
convert() {
    compiler="$CC $CFLAGS" bad=0
    ! have gcc || compiler="gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
        -DSTB_SPRINTF_NOUNALIGNED"
    build_example "$compiler" convert && shared_example crosscheck || return 1
    sh tests/test_convert.sh "build/convert-$suite" || bad=1
    need python3
    sh tests/test_convert_hf.sh "build/convert-$suite" build/crosscheck \
        examples/tiny.gguf tests/data/a.gguf || bad=1
    return $bad
}

# ---- on other machines ----

on_machine() {
    build_library "$compiler $flags" && build_user "$compiler $flags" generate &&
        check_levels "build/generate-$suite$exe" && check_paths && check_selftest && check_reports &&
        check_convert &&
        build_tests $compiler $flags &&
        BITNET_TEST_QUICK=1 run $emulator "build/tests-$suite$exe" $filters
}

# check_levels GENERATE: the kernel tables that the CPU has, and what the program says to one that it
# lacks: no crash.
check_levels() {
    for table in $has scalar; do verdict "has $table" writes_with "$1" "$table"; done
    for table in $lacks; do verdict "refuses $table" refuses "$1" "$table"; done
}

# Windows hands arguments over in a code page; generate takes them in UTF-8.
check_paths() {
    [ "$suite" = windows ] || return 0
    verdict "opens a path beyond ASCII" opens_utf8_path
}

opens_utf8_path() {
    folder="build/path-$suite-\303\244\320\266"
    folder=$(printf "$folder")
    mkdir -p "$folder"
    cp examples/tiny.gguf "$folder"
    printf 'The capital of France is' >"$folder/prompt.txt"
    LC_ALL=C.UTF-8 $emulator "build/generate-$suite$exe" -m "$folder/tiny.gguf" \
        -f "$folder/prompt.txt" -n 20 --temp 0 | grep Paris
}

writes_with() {
    $emulator "$1" -m examples/tiny.gguf -p "The capital of France is" -n 20 \
        --temp 0 --kernel "$2" | grep Paris
}

refuses() {
    code=0
    $emulator "$1" -m examples/tiny.gguf -p x --kernel "$2" \
        >"build/$suite.out" 2>"build/$suite.err" || code=$?
    cat "build/$suite.err"
    [ $code -eq 1 ] && [ ! -s "build/$suite.out" ] && grep -q "cannot run '$2'" "build/$suite.err"
}

# convert.c where files, numbers or addresses are others: what it writes is what it writes here.
check_convert() {
    case $suite in windows|s390x|i686) ;; *) return 0 ;; esac
    build_example "$compiler $flags" convert || return 1
    there="$emulator build/convert-$suite$exe" folder=build/files-$suite
    rm -rf "$folder"
    mkdir -p "$folder"
    verdict "converts to TL1" same_conversion --to tl1 --tile 128,64
    verdict "replaces nothing" replaces_nothing
    verdict "replaces it with --force" same_conversion --head q6_k --force
    verdict "finds what differs" finds_head
    verdict "names what a killed run left" names_leftover
    verdict "leaves nothing behind" test "$(ls -A "$folder" | tr '\n' ' ')" = \
        "here.gguf there.gguf "
}

same_conversion() {
    build/convert tests/data/a.gguf "$folder/here.gguf" "$@" &&
        $there tests/data/a.gguf "$folder/there.gguf" "$@" &&
        cmp "$folder/here.gguf" "$folder/there.gguf"
}

finds_head() {
    if $there --verify tests/data/a.gguf "$folder/there.gguf" >"build/$suite.out"; then return 1; fi
    [ "$(grep -c ^differs "build/$suite.out")" -eq 1 ] &&
        grep "^differs token_embd.weight: row" "build/$suite.out"
}

names_leftover() {
    part=$folder/there.gguf.1-0.part
    cp tests/data/a.gguf "$part"
    $there tests/data/a.gguf "$folder/there.gguf" --head q6_k --force 2>"build/$suite.err" || return 1
    cat "build/$suite.err"
    cmp tests/data/a.gguf "$part" && rm "$part" &&
        grep -q "there.gguf.1-0.part: left behind .* by a run that was killed" "build/$suite.err"
}

# Nor files whose size is over 32 bits.
replaces_nothing() {
    dd if=/dev/null of="$folder/large.gguf" bs=1 seek=5368709120 2>/dev/null || return 0
    for name in there large; do
        code=0
        $there tests/data/a.gguf "$folder/$name.gguf" 2>"build/$suite.err" || code=$?
        cat "build/$suite.err"
        [ $code -eq 1 ] && grep -q "force replaces it\|cannot be written" "build/$suite.err" ||
            return 1
    done
    [ "$(wc -c <"$folder/large.gguf")" -eq 5368709120 ] && rm "$folder/large.gguf" &&
        cmp "$folder/here.gguf" "$folder/there.gguf"
}

# bitnet_selftest, which --verbose calls, names a compiler's floats that are not those of the manual.
check_selftest() {
    [ -n "$wrong" ] || return 0
    build_example "$compiler $flags $wrong -O1 -DBITNET_NO_SIMD" generate || return 1
    verdict "finds $wrong" finds_wide_floats
}

finds_wide_floats() {
    code=0
    $emulator "build/generate-$suite$exe" -v -m examples/tiny.gguf -p x -n 1 2>"build/$suite.err" ||
        code=$?
    [ $code -eq 1 ] && grep "computes it wider" "build/$suite.err"
}

# What every kernel gives must be this machine's, byte for byte, alone and in a model; see
# examples/crosscheck.c.
check_reports() {
    build_user "$compiler $flags" crosscheck || return 1
    for name in $(report_names); do
        verdict "the same report: $name" same_report "$name"
    done
    [ -z "$break" ] || verdict "names the kernel that is broken" names_broken
}

report_names() {
    echo kernels
    for model in $MODELS; do
        [ ! -f "$model" ] || basename "$model" .gguf
    done
}

# write_report NAME COMMAND...: of the kernels, or of the model NAME.gguf.
write_report() {
    for model in $MODELS; do
        [ "$(basename "$model" .gguf)" != "$1" ] || set -- "$@" -m "$model" -n 8
    done
    shift
    "$@"
}

same_report() {
    theirs=build/report-$1-$suite.txt
    write_report "$1" $emulator "build/crosscheck-$suite$exe" >"$theirs"
    cmp "build/report-$1.txt" "$theirs" ||
        { build/crosscheck --compare "build/report-$1.txt" "$theirs"; return 1; }
}

# With one constant of a kernel changed, the report differs, and --compare names table and entry.
names_broken() {
    dir=build/broken-$suite
    rm -rf "$dir"
    mkdir -p "$dir/examples"
    cp bitnet*.h "$dir"
    cp examples/crosscheck* "$dir/examples"
    sed "$break" "$break_file" >"$dir/$break_file"
    ! cmp -s "$break_file" "$dir/$break_file" || { echo "nothing to break"; return 1; }
    run $compiler $flags "$dir/examples/crosscheck.c" -o "$dir/crosscheck$exe" -lpthread || return 1
    if $emulator "$dir/crosscheck$exe" >"$dir/report.txt" 2>"$dir/err"; then return 1; fi
    build/crosscheck --compare build/report-kernels.txt "$dir/report.txt" >"$dir/difference"
    cat "$dir/difference"
    grep -q "$break_names" "$dir/difference"
}

make_reports() {
    shared_example crosscheck >/dev/null
    shared_example convert >/dev/null  # for check_convert
    for name in $(report_names); do
        write_report "$name" build/crosscheck >"build/report-$name.txt" 2>/dev/null
    done
}

# x86 CPUs that lack something: each level must be found, and none beyond it.
on_older_cpus() {
    [ "$(uname -m)" = x86_64 ] && [ -z "$RUN" ] || return 0
    if ! have qemu-x86_64; then
        printf 'skip older CPUs: qemu-x86_64 is not installed\n0 passed, 0 failed, 1 skipped\n'
        return 0
    fi
    shared_example generate || return 1
    bad=0
    for cpu in qemu64 Nehalem Haswell; do
        emulator="qemu-x86_64 -cpu $cpu" has='' lacks='avx2 avxvnni avx512vnni'
        [ $cpu != Haswell ] || has=avx2 lacks='avxvnni avx512vnni'
        check_levels build/generate || bad=1
        [ $cpu = qemu64 ] ||           # as Nehalem
            BITNET_TEST_QUICK=1 run $emulator "build/tests-$suite" kernels/ || bad=1
    done
    return $bad
}

# ---- the browser part ----

# Makes build/web unless it is newer than what it is made of; suites that need it take turns. web has
# a shell of its own, since it is to end at the first error, which set -e does not do in a condition.
make_web() {
    need "${EMCC%% *}"
    find_relaxed || { relaxed=; echo "$why: no such module"; }
    (
        ! have flock || flock 9
        [ "$(cat build/em/compiler 2>/dev/null)" = "$EMCC $relaxed" ] &&
            [ -e build/web/crosscheck.txt ] &&
            [ -z "$(find web bitnet*.h build.sh examples -newer build/web/crosscheck.txt)" ] ||
            EMCC_RELAXED=$relaxed ./build.sh web
    ) 9>build/web.lock
}

# The JavaScript API in Node. Its relaxed SIMD needs Node 20 to be asked for it.
web_node() {
    need node
    make_web && shared_example generate || return 1
    bad=0 options=
    node tests/web/node.mjs build/generate || bad=1
    if [ -e build/web/bitnet-relaxed.js ]; then
        for option in --experimental-wasm-relaxed-simd --no-liftoff; do
            ! node $option -e 0 2>/dev/null || options="$options $option"
        done
        node $options tests/web/node.mjs build/generate relaxed/ || bad=1
    fi
    shared_example bench && for row in "Node simd" "Chromium simd"; do
        verdict "bench, $row" shows_speed "$row"
    done
    return $bad
}

# One thread's row of the table, without Chromium; no matter how fast.
shows_speed() {
    BENCH_NO_CHROMIUM="there is none" node tests/web/bench.mjs examples/tiny.gguf -r 1 -t 1 \
        --only "$1" >"build/$suite.out" || return 1
    cat "build/$suite.out"
    numbers=" +[0-9.]+ +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9]+ % +[0-9.]+ +[0-9]+ % +-"
    case $1 in
        Node*) grep -Eqx "$1 +1$numbers" "build/$suite.out" ;;
        *) grep -Eqx "$1 +1 +there is none" "build/$suite.out" ;;
    esac
}

# The npm packages that drive the browsers, in build/npm, for all suites; nothing else is fetched.
npm_packages() {
    mkdir -p build/npm
    (
        ! have flock || flock 9
        ! cmp -s tests/web/package.json build/npm/installed || exit 0
        cp tests/web/package.json build/npm &&
            run npm install --prefix build/npm --no-package-lock --no-audit --no-fund &&
            cp tests/web/package.json build/npm/installed
    ) 9>build/npm.lock
}
need_npm_packages() {
    need node
    need npm
    npm_packages || lacks "npm cannot install what drives the browsers"
}

# Firefox is called so by all but Debian.
find_browsers() {
    CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
    FIREFOX=$(command -v "${FIREFOX:-firefox-esr}" || command -v firefox)
    export CHROMIUM FIREFOX
}

# web_page chromium|firefox: the page in it.
web_page() {
    find_browsers
    [ -n "$([ $1 = firefox ] && echo "$FIREFOX" || echo "$CHROMIUM")" ] || lacks "$1 is not installed"
    need_npm_packages
    make_web && shared_example generate || return 1
    run node tests/web/browser.mjs $1 build/web build/generate build/npm
}

# The cache in both.
web_cache() {
    find_browsers
    need_npm_packages
    [ -n "$CHROMIUM$FIREFOX" ] || lacks "neither chromium nor firefox is installed"
    bad=0
    for name in ${CHROMIUM:+chromium} ${FIREFOX:+firefox}; do
        run node tests/web/cache.mjs $name build/npm || bad=1
    done
    return $bad
}
