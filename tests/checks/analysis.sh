#!/bin/sh
# Static analysis of the library and the examples: clang-tidy (clang-tidy.yml says what is left out,
# and why), cppcheck, gcc -fanalyzer of the examples, and spills in the kernels' inner loops
# (inner_loops.py). Any finding fails, but those that are named here or beside the code.
# Ends with "N passed, N failed, N skipped". Run from the repository's root; writes to build/analysis.
set -u
export LC_ALL=C                       # no other quotes in messages
dir=build/analysis
rm -rf $dir
mkdir -p $dir
passed=0 failed=0 skipped=0

# finds_nothing NAME: it is in $dir/out, one line each.
finds_nothing() {
    if [ -s $dir/out ]; then
        failed=$((failed + 1))
        echo "FAIL $1"
        head -n 20 $dir/out
    else passed=$((passed + 1))
    fi
}
have() {
    command -v "$1" >/dev/null 2>&1 && return
    skipped=$((skipped + 1))
    echo "skip $1: it is not installed"
    return 1
}

# The examples, as users of a library that is compiled elsewhere; but plugins have their own inside.
users=$(ls examples/*.c examples/*/*.c | grep -v -e /plugin.c -e /sqlite.c)
user="-std=c99 -D_DEFAULT_SOURCE -DBITNET__IMPLEMENTED"

# ---- gcc ----

# Only the examples: the headers are too large. Within the limits that it sets itself, gcc 12 found
# neither a leaked FILE nor a variable without a value that were planted in bitnet.h; clang's analyzer
# found the latter, and reported 15 faults that are none. The sanitizers' suite has the headers.

# Findings of gcc 12 (function, text) that are not faults:
#   fopen          fail ends the program, which closes its files
#   read_bias, read_stops, make_inputs, tokens_make_texts, tokenize_messages
#                  what they allocate is the request's, which was zero before and request_free frees
#   read_job       what it allocates is the job's, which free_job frees
#   messages_read  what follows refuse_memory, which always gives an error
#   save, save_file  there is a path, and strerror always has a text
#   read_more      what was taken was read before, so there is memory
gcc_knows='leak of .*fopen(path
read_bias: .*leak of .*bias
read_stops: .*leak of .*stops
make_inputs: .*leak of
read_job: .*leak of
tokens_make_texts: .*leak of
tokenize_messages: .*leak of .*begun
messages_read: .*possibly-NULL
save: .*use of NULL
save_file: .*use of NULL
read_more: .*use of NULL'
echo "$gcc_knows" >$dir/known

# gcc_finds FLAGS...: one line for each finding: function, warning. -Og takes half of the time of -O1
# and of -O0: there is less code to follow, and no loop comes twice.
gcc_finds() {
    gcc -fanalyzer -fdiagnostics-plain-output -Og -I. "$@" -o $dir/o.o 2>&1 | awk '
        /(^| )In function / { sub(/.*In function ./, ""); sub(/.:$/, ""); where = $0 }
        / (warning|error): / { print where ": " $0 }' | grep -av -f $dir/known >$dir/out
}
if have gcc; then
    case $(gcc -dumpversion) in
        [0-9]|1[01])
            skipped=$((skipped + 1))
            echo "skip gcc -fanalyzer: it needs gcc 12" ;;
        *)
            for file in $users; do
                [ $file != examples/server/grammar.c ] || continue     # the header alone
                gcc_finds $user -c $file
                finds_nothing "gcc -fanalyzer $file"
            done ;;
    esac
fi

# ---- inner loops ----

# loops COMPILER: what inner_loops.py finds in the kernels' assembly of it.
loops() {
    have "${1%% *}" || return
    python3 tests/checks/inner_loops.py check "$1" >$dir/out 2>&1 || echo "inner_loops.py failed" >>$dir/out
    finds_nothing "inner loops, $1"
}
# predictions TABLE: can it still be computed? Its loops are known by the instructions of gcc 12.
predictions() {
    command -v llvm-mca-19 >/dev/null || return 0
    case $(aarch64-linux-gnu-gcc -dumpversion 2>/dev/null) in 12*) ;; *) return 0 ;; esac
    python3 tests/checks/inner_loops.py "$1" aarch64-linux-gnu-gcc >$dir/table 2>$dir/out ||
        echo "inner_loops.py failed" >>$dir/out
    finds_nothing "table of inner loops, $1"
}
if have python3; then
    have llvm-mca-19 || echo "     (inner loops are checked for spills, not for cycles)"
    if [ "$(uname -m)" = x86_64 ]; then
        loops gcc
        loops clang
    fi
    loops aarch64-linux-gnu-gcc
    predictions embed
    predictions text
    ! clang --print-targets 2>/dev/null | grep -q aarch64 ||
        [ ! -e /usr/aarch64-linux-gnu/include/stdio.h ] ||
        loops "clang --target=aarch64-linux-gnu"
fi

# ---- clang-tidy ----

tidy_finds() {
    clang-tidy --quiet --config-file=tests/checks/clang-tidy.yml "$@" 2>/dev/null |
        grep -aE ' (warning|error): ' >$dir/out
}
if have clang-tidy; then
    tidy_finds bitnet.h -- -x c -std=c99 -DBITNET_IMPLEMENTATION
    finds_nothing "clang-tidy bitnet.h"
    tidy_finds '--checks=-clang-analyzer-*' bitnet_grammar.h -- -x c -std=c99 \
        -DBITNET_GRAMMAR_IMPLEMENTATION
    finds_nothing "clang-tidy bitnet_grammar.h"
    for file in $users; do
        tidy_finds $file -- $user
        finds_nothing "clang-tidy $file"
    done
fi

# ---- cppcheck ----

# uninitvar: in crosscheck/kernels.c it does not see that a kernel writes its results.
cpp_finds() {
    cppcheck --quiet --enable=warning,portability --std=c99 --language=c --inline-suppr \
        --suppress=uninitvar:examples/crosscheck/kernels.c \
        --template='{file}:{line}: {message} [{id}]' "$@" 2>&1 | grep -a ': ' >$dir/out
}
if have cppcheck; then
    for cpu in __x86_64__ __aarch64__; do
        cpp_finds -D__linux__ -D__unix__ -D$cpu -D__GNUC__=12 \
            -DBITNET_IMPLEMENTATION bitnet.h
        finds_nothing "cppcheck bitnet.h, $cpu"
    done
    cpp_finds -D_WIN32 -D_MSC_VER=1940 -D_M_X64 -DBITNET_IMPLEMENTATION bitnet.h
    finds_nothing "cppcheck bitnet.h, MSVC"
    cpp_finds -D__linux__ -D__unix__ -D__GNUC__=12 -DBITNET_GRAMMAR_IMPLEMENTATION bitnet_grammar.h
    finds_nothing "cppcheck bitnet_grammar.h"
    cpp_finds -D__linux__ -D__unix__ -D__GNUC__=12 -DBITNET__IMPLEMENTED $users
    finds_nothing "cppcheck examples"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
