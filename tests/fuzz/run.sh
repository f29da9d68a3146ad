#!/bin/sh
# Fuzzing, called by build.sh from the repository's root; see tests/fuzz/README.md.
#
#   run.sh fuzz SECONDS [TARGET...]   each target for so long, as many at a time as there are
#                                     processors; corpora grow in build/fuzz/corpus. It fails if a
#                                     target finds something, or runs under FEWEST inputs a second
#   run.sh probe                      fails if there is no libFuzzer here
#   run.sh coverage [TARGET...]       lines and branches of bitnet.h that all inputs reach
#   run.sh replay CC FLAGS...         the program that runs inputs once, to build/fuzz-replay
#   run.sh keep TARGET NAME FILE      adds FILE to the target's inputs, tests/fuzz/inputs/TARGET.txt
#
# CLANG   a clang with libFuzzer (clang)
set -eu

CLANG=${CLANG:-clang}
TARGETS="gguf tokenizer chat jinja sampler safetensors import kernels pipeline state sequences grammar\
    request"
FLAGS="-std=c99 -g -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
SANITIZERS="-fsanitize=address,undefined -fno-sanitize-recover=all"
OUT=build/fuzz
# The slowest target, safetensors, runs 60 inputs a second, and 20 where six programs share two
# processors. What runs fewer than this is dead: it stops at once, or hangs.
FEWEST=5

run() { echo "+ $*"; "$@"; }
fail() { echo "fuzz: $*" >&2; exit 1; }
processors() { getconf _NPROCESSORS_ONLN || echo 2; }

check_targets() {
    for target; do
        case " $TARGETS " in *" $target "*) ;; *) fail "'$target' is none of: $TARGETS" ;; esac
    done
}

# unpack FOLDER TARGET...: their inputs, as files of FOLDER/TARGET. inputs/TARGET.txt has a line for
# each: its name, a blank, its bytes in base64.
unpack() {
    folder=$1
    shift
    rm -rf "$folder"
    for target; do
        mkdir -p "$folder/$target"
        while read -r name bytes; do
            echo "$bytes" | base64 -d >"$folder/$target/$name" || fail "$target: $name is not base64"
        done <"tests/fuzz/inputs/$target.txt"
    done
}

keep() {
    check_targets "$1"
    case $2 in *[!a-z0-9-]* | '') fail "the name '$2' has other characters than a-z, 0-9 and -" ;; esac
    ! grep -q "^$2 " "tests/fuzz/inputs/$1.txt" || fail "$1 has an input '$2'"
    [ -r "$3" ] || fail "$3 cannot be read"
    echo "$2 $(base64 <"$3" | tr -d '\n')" >>"tests/fuzz/inputs/$1.txt"
}

# Fails if there is no clang with libFuzzer.
probe() {
    command -v "$CLANG" >/dev/null 2>&1 ||
        fail "$CLANG is not installed (Debian: clang libclang-rt-dev, or CLANG=...)"
    mkdir -p $OUT
    echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return p && n < 0; }' >$OUT/empty.c
    "$CLANG" -fsanitize=fuzzer $OUT/empty.c -o $OUT/empty 2>$OUT/empty.log ||
        fail "$CLANG has no libFuzzer (Debian: libclang-rt-dev); see $OUT/empty.log"
}

# clang takes a minute for the sanitized program, hence one for all targets, which its name chooses.
build_fuzz() {
    probe
    sources="bitnet*.h examples tests/unit/*.h tests/fuzz/*.[ch] tests/fuzz/*.txt"
    if [ ! -x $OUT/all ] || [ -n "$(find $sources -newer $OUT/all)" ]; then
        run "$CLANG" $FLAGS -O1 $SANITIZERS -fsanitize=fuzzer,float-cast-overflow \
            -fsanitize-coverage-ignorelist=tests/fuzz/quiet.txt \
            -fsanitize-ignorelist=tests/fuzz/unchecked.txt tests/fuzz/all.c -o $OUT/all
    fi
    for target in $TARGETS; do ln -sf all "$OUT/fuzz-$target"; done
}

# fuzz_one SECONDS TARGET: its log goes to build/fuzz/TARGET.log.
fuzz_one() {
    mkdir -p "$OUT/corpus/$2" "$OUT/crashes" "$TMPDIR"
    dict=
    [ ! -e "tests/fuzz/$2.dict" ] || dict="-dict=tests/fuzz/$2.dict"
    echo ".. $2"
    # its own corpus first: what is new goes there
    "$OUT/fuzz-$2" -max_total_time="$1" -max_len=16384 -timeout=20 -rss_limit_mb=2048 $dict \
        -print_final_stats=1 -artifact_prefix="$OUT/crashes/$2-" "$OUT/corpus/$2" \
        "$OUT/inputs/$2" >"$OUT/$2.log" 2>&1 || true
}

# A row of the table: target, executions, a second, edges, features, inputs, findings.
row() {
    awk -v target="$1" '
        /^stat::number_of_executed_units/ { runs = $2 }
        /^stat::average_exec_per_sec/ { rate = $2 }
        / cov: / {
            for (i = 1; i < NF; i++) {
                if ($i == "cov:") edges = $(i + 1)
                if ($i == "ft:") features = $(i + 1)
                if ($i == "corp:") { split($(i + 1), c, "/"); inputs = c[1] }
            }
            seen = substr($1, 2)
        }
        /Test unit written/ { crashes++ }
        END {
            printf "%-12s %11d %8d %7d %9d %7d %9d\n", target, runs ? runs : seen, rate, edges,
                features, inputs, crashes
        }' "$OUT/$1.log"
}

# judge TARGET: fails, and says why, if it found something or hardly ran.
judge() {
    bad=0
    for crash in "$OUT/crashes/$1"-*; do
        [ -e "$crash" ] || continue
        bad=1
        printf '\nFAIL %s: %s; replay: %s %s\n' "$1" "$crash" "$OUT/fuzz-$1" "$crash"
        grep -ah -m 2 -E 'does not hold|runtime error|^SUMMARY|ERROR: ' "$OUT/$1.log" || true
    done
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$OUT/$1.log")
    [ "${runs:-0}" -lt $((FEWEST * seconds)) ] || return $bad
    printf '\nFAIL %s ran %s inputs in %s s, under %s a second; see %s\n' "$1" "${runs:-no}" \
        "$seconds" $FEWEST "$OUT/$1.log"
    return 1
}

fuzz() {
    seconds=${1:-}
    case $seconds in '' | *[!0-9]*) fail "how many seconds for each target?" ;; esac
    shift
    check_targets "$@"
    [ $# -gt 0 ] || set -- $TARGETS
    build_fuzz
    rm -rf $OUT/crashes
    for target; do rm -f "$OUT/$target.log"; done
    unpack $OUT/inputs "$@"
    printf '%s\n' "$@" | xargs -n 1 -P "$(processors)" sh "$0" one "$seconds"
    echo
    echo "target        executions   a sec.   edges  features  inputs  findings"
    for target; do row "$target"; done
    failed=0
    for target; do judge "$target" || failed=$((failed + 1)); done
    echo "fuzz: $(($# - failed)) passed, $failed failed, 0 skipped"
    [ $failed -eq 0 ]
}

# Without sanitizers, with clang's counters.
coverage() {
    check_targets "$@"
    [ $# -gt 0 ] || set -- $TARGETS
    version=$("$CLANG" -dumpversion 2>/dev/null) || fail "$CLANG is not installed"
    tool=
    for suffix in "-${version%%.*}" ''; do
        ! command -v "llvm-cov$suffix" >/dev/null 2>&1 || { tool=$suffix; break; }
    done
    command -v "llvm-profdata$tool" >/dev/null 2>&1 || fail "llvm-cov is not installed (llvm)"
    mkdir -p $OUT "$TMPDIR"
    run "$CLANG" $FLAGS -w -O1 -DFUZZ_REPLAY -DFUZZ_COVERAGE -fprofile-instr-generate \
        -fcoverage-mapping tests/fuzz/all.c -o $OUT/covered -lm
    unpack $OUT/inputs "$@"
    for target; do
        found=$OUT/corpus/$target      # what was found before
        [ -d "$found" ] || found=
        LLVM_PROFILE_FILE=$OUT/$target.profraw $OUT/covered $OUT/inputs/$target $found 2>/dev/null ||
            fail "$target: an input fails; see ./build.sh fuzz 1 $target"
    done
    run "llvm-profdata$tool" merge -o $OUT/profdata $(for t; do echo "$OUT/$t.profraw"; done)
    "llvm-cov$tool" show $OUT/covered -instr-profile=$OUT/profdata -show-branches=count \
        "$PWD/bitnet.h" >$OUT/coverage.txt
    awk -f tests/fuzz/coverage.awk $OUT/coverage.txt
    echo "lines with their counts: $OUT/coverage.txt"
}

# Inputs of some targets are folders: in memory, if that can be.
if [ -z "${FUZZ_TMP:-}" ]; then
    FUZZ_TMP=$PWD/$OUT/tmp
    [ ! -w /dev/shm ] || FUZZ_TMP=/dev/shm/bitnet-fuzz-$$
    export FUZZ_TMP
    trap 'rm -rf "$FUZZ_TMP"' EXIT
    trap 'exit 1' INT TERM
fi
export TMPDIR="$FUZZ_TMP"
mkdir -p "$TMPDIR"
command=$1
shift
case $command in
    fuzz) fuzz "$@" ;;
    one) fuzz_one "$@" ;;
    probe) probe ;;
    coverage) coverage "$@" ;;
    replay)
        unpack build/fuzz-inputs $TARGETS
        run "$@" $FLAGS $SANITIZERS -DFUZZ_REPLAY tests/fuzz/all.c -o build/fuzz-replay -lm &&
            run build/fuzz-replay build/fuzz-inputs/* ;;
    keep) [ $# -eq 3 ] || fail "keep TARGET NAME FILE"; keep "$@" ;;
esac
