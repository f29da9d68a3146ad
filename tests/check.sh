#!/bin/sh
# The header as its users meet it: every compiler and standard here, every switch, the include orders,
# what it exports and defines, and the programs that its manual and the README show.
# Ends with "N passed, N failed, N skipped". Run from the repository's root; writes to build/check.
set -u
STRICT="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -O1"
CC=${CC:-cc}
dir=build/check
rm -rf $dir
mkdir -p $dir
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s $dir/out ] || head -n 15 $dir/out; }
skip() { skipped=$((skipped + 1)); echo "skip $1"; }
# expect NAME COMMAND...: it must succeed.    refuse NAME TEXT COMMAND...: it must fail and say TEXT.
expect() { name=$1; shift; if "$@" >$dir/out 2>&1; then ok; else bad "$name"; fi; }
refuse() {
    name=$1 text=$2
    shift 2
    if "$@" >$dir/out 2>&1 || ! grep -q -e "$text" $dir/out; then bad "$name"; else ok; fi
}

implementation='#define BITNET_IMPLEMENTATION
#include "bitnet.h"'
echo "$implementation" >$dir/impl.c
echo "$implementation" >$dir/impl.cc
printf '#include "bitnet.h"\n%s\n#include "bitnet.h"\n%s\n' "$implementation" "$implementation" \
    >$dir/orders.c
printf '#include "bitnet.h"\nint other(void); int other(void) { return bitnet_kernels_count(); }\n' \
    >$dir/other.c
cp $dir/other.c $dir/other.cc
cat >$dir/main.c <<'EOF'
#include "bitnet.h"
#include <stdio.h>
int other(void);
int main(void) { return printf("%s %d\n", bitnet_version(), other()) < 0; }
EOF

# ---- compilers, standards, switches ----

for c in "gcc c99" "gcc c11" "gcc gnu17" "clang c99" "clang c11" "g++ c++11" "g++ c++17" \
    "clang++ c++11" "clang++ c++17"; do
    set -- $c
    command -v "$1" >/dev/null 2>&1 || { skip "compile $c: $1 is not installed"; continue; }
    case $1 in *++) ext=cc ;; *) ext=c ;; esac
    case $2 in                         # the oldest of each, and with all that the CPU has
        c99|c++11)
            expect "compile $c" "$1" -std="$2" $STRICT -I. -c $dir/impl.$ext -o $dir/o.o
            [ $ext = cc ] || expect "compile $c -O3 -march=native" "$1" -std="$2" $STRICT -O3 \
                -march=native -I. -c $dir/impl.$ext -o $dir/o.o ;;
        *) expect "compile $c" "$1" -std="$2" $STRICT -fsyntax-only -I. -c $dir/impl.$ext -o $dir/o.o ;;
    esac
    expect "compile $c declarations only" "$1" -std="$2" $STRICT -I. -c $dir/other.$ext -o $dir/o.o
done
case $(uname -m) in
    x86_64) family=x86 tables="NO_AVX2 NO_AVXVNNI NO_AVX512" intrinsics=immintrin.h ;;
    aarch64) family=arm tables="NO_NEON NO_DOTPROD NO_I8MM" intrinsics=arm_neon.h ;;
    *) family=none tables= intrinsics=stddef.h ;;
esac
for switch in STATIC NO_STDIO NO_MMAP NO_THREADS NO_SIMD $tables REQUIRE_SIMD; do
    expect "switch BITNET_$switch" $CC -std=c99 $STRICT -fsyntax-only -DBITNET_$switch -I. -c \
        $dir/impl.c -o $dir/o.o
done
expect "all include orders" $CC -std=c99 $STRICT -fsyntax-only -I. -c $dir/orders.c -o $dir/orders.o
expect "two translation units" $CC $STRICT -I. $dir/orders.c $dir/other.c $dir/main.c \
    -o $dir/two -lpthread
expect "two translation units run" $dir/two

# ---- the header alone ----

mkdir -p $dir/alone
cp bitnet.h $dir/alone
expect "bitnet.h without kernel headers" $CC -std=c99 $STRICT -fsyntax-only -I$dir/alone -c $dir/impl.c -o $dir/o.o
refuse "BITNET_REQUIRE_SIMD without them" "no kernel header" \
    $CC -DBITNET_REQUIRE_SIMD -I$dir/alone -c $dir/impl.c -o $dir/o.o
refuse "-ffast-math" "ffast-math" $CC -O2 -ffast-math -I. -c $dir/impl.c -o $dir/o.o

# ---- what bitnet_selftest says of builds that break the rule for floats ----

cat >$dir/selftest.c <<'EOF'
#include <stdio.h>
#define BITNET_NO_SIMD
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
int main(void) {
    bitnet_error err = {BITNET_OK, ""};
    bitnet_selftest(bitnet_kernels_default(), &err);
    return printf("%s\n", err.text) < 0;
}
EOF
# says TEXT COMPILER OPTION...
says() {
    text=$1
    shift
    command -v "$1" >/dev/null 2>&1 || { skip "selftest, $*: $1 is not installed"; return; }
    expect "selftest, $* compiles" "$@" -I. $dir/selftest.c -o $dir/selftest -lpthread
    expect "selftest, $* says '$text'" sh -c "$dir/selftest | tee $dir/said | grep -q -e '$text'"
    cat $dir/said >$dir/out
}
reorder="-fassociative-math -fno-signed-zeros -fno-trapping-math"
says '^$' gcc -O2
says '^$' clang -O2
says "reorders" gcc -O2 $reorder
says "reorders" clang -O2 $reorder
says "differ from other builds" gcc -O3 -freciprocal-math
case $(uname -m) in
    x86_64)
        says "contracts" clang -O2 -mfma -ffp-contract=fast
        says '^$' gcc -O2 -mfma -ffp-contract=fast
        says "computes it wider" gcc -O2 -mfpmath=387 ;;
    aarch64)
        says "contracts" clang -O2 -ffp-contract=fast
        says '^$' gcc -O2 -ffp-contract=fast ;;
esac

# ---- symbols and macros ----

$CC -O2 -I. -c $dir/impl.c -o $dir/symbols.o
expect "exports only bitnet_ names" sh -c \
    "! nm -g --defined-only $dir/symbols.o | grep -v ' bitnet_[a-z]'"
expect "exports no bitnet__ names" sh -c "! nm -g --defined-only $dir/symbols.o | grep ' bitnet__'"
$CC -O2 -DBITNET_STATIC -I. -c $dir/impl.c -o $dir/static.o
expect "BITNET_STATIC exports nothing" sh -c "! nm -g --defined-only $dir/static.o | grep ."
expect "calls no printf, exit, abort, getenv or libm" sh -c \
    "! nm -u $dir/symbols.o | grep -E ' (printf|puts|fprintf|putchar|fputs|fwrite|exit|_exit|abort|getenv|exp|expf|log|logf|sin|sinf|cos|cosf|pow|powf|sqrt|sqrtf|rint|lrintf|floor|fmaf?|__assert_fail)\$'"
# What the headers that bitnet.h includes define is not its doing; all else must be BITNET_ and public.
cat bitnet.h bitnet_kernels_$family.h 2>/dev/null |
    sed -n 's/^ *# *include \(<[a-z_./]*>\).*/#include \1/p' | sort -u |
    grep -v -e windows.h -e intrin.h -e arm_neon -e wasm_simd -e sysctl >$dir/system.c
printf '#include <%s>\n' $intrinsics >>$dir/system.c
for file in system impl; do
    $CC -I. -dM -E $dir/$file.c | grep -v ' BITNET_IMPLEMENTATION ' | sort >$dir/$file.macros
done
expect "leaks no foreign macro" sh -c \
    "! comm -13 $dir/system.macros $dir/impl.macros | grep -v '^#define BITNET_'"
expect "leaks no private macro" sh -c \
    "! grep '^#define BITNET__' $dir/impl.macros | grep -v BITNET__IMPLEMENTED"

# ---- the programs in the manual and in the README ----

model=examples/tiny.gguf
sed -n '/THE SMALLEST PROGRAM/,/WHAT WORKS/p' bitnet.h | sed '1d;$d' >$dir/manual.c
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' >$dir/readme.c
sed 's#"../bitnet.h"#"bitnet.h"#' examples/minimal.c >$dir/minimal.c
for program in manual readme minimal; do
    expect "the $program's program compiles" $CC -std=c99 $STRICT -I. $dir/$program.c \
        -o $dir/$program -lpthread
    expect "the $program's program runs" $dir/$program $model "Once upon a time"
    mv $dir/out $dir/$program.text
    expect "the $program's program says something" test -s $dir/$program.text
done
expect "they say the same" sh -c \
    "cmp $dir/manual.text $dir/readme.text && cmp $dir/manual.text $dir/minimal.text"
refuse "the minimal program names a missing file" "no-such-file" $dir/minimal no-such-file

for program in generate bench crosscheck convert; do
    expect "examples/$program.c compiles" $CC -std=c99 $STRICT examples/$program.c \
        -o $dir/$program -lpthread
done

# ---- the same text from every build ----

text() { "$@" -m $model -p "The capital of France is" -n 60 -s 7 --temp 0.9 2>/dev/null; }
for switch in "" -DBITNET_NO_MMAP -DBITNET_NO_THREADS -DBITNET_NO_SIMD -DBITNET_NO_AVX512 \
    "-O3 -march=native" -fsigned-char -funsigned-char -O0; do
    $CC -O2 $switch examples/generate.c -o $dir/generate -lpthread >$dir/out 2>&1
    text $dir/generate >$dir/text.now
    [ -e $dir/text.first ] || cp $dir/text.now $dir/text.first
    expect "the same text with '$switch'" sh -c "test -s $dir/text.now && cmp $dir/text.first $dir/text.now"
done

# ---- what must agree ----

version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
expect "version in the first line" sh -c "head -n 1 bitnet.h | grep -q 'v$version '"
expect "version in CHANGELOG.md" grep -q "^## $version" CHANGELOG.md
if [ -e /usr/share/unicode/UnicodeData.txt ] && command -v python3 >/dev/null 2>&1; then
    expect "Unicode tables" python3 tests/unicode_tables.py --check bitnet.h
else skip "Unicode tables: python3 or unicode-data is not installed"; fi
expect "lines of at most 100 columns" sh -c \
    "! awk 'length > 100 { print FILENAME \":\" FNR }' *.h examples/*.[ch] tests/*.c tests/*.h | grep ."
expect "examples of under 300 lines" sh -c \
    "! wc -l examples/*.[ch] | awk '\$1 >= 300 && \$2 != \"total\"' | grep ."

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
