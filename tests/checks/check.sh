#!/bin/sh
# The header as its users meet it: every compiler and standard here, the warnings of other projects,
# every switch, the include orders, what it exports and defines, and the programs that its manual and
# the README show.
# Ends with "N passed, N failed, N skipped". Run from the repository's root; writes to build/check.
#
# BITNET__WHOLE=0   without what takes long and seldom finds what the rest does not: most pairs of a
#                   compiler and a standard, other machines' compilers, builds that break the floats
set -u
whole() { [ "${BITNET__WHOLE:-1}" = 1 ]; }
STRICT="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
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

# ---- compilers, standards, optimisation ----

# Every build runs and gives the same bits as the first (same_bits.c). The suites compile the library
# in further ways: gcc -O2 (cc), gcc -O3 -march=native -funsigned-char and clang -O2.
model=examples/tiny.gguf
echo '#include "tests/checks/same_bits.c"' >$dir/bits.cc

# same COMPILER FLAGS...: strict, in C or C++.
same() {
    command -v "$1" >/dev/null 2>&1 || { skip "$*: $1 is not installed"; return; }
    case $1 in *++*) file=$dir/bits.cc ;; *) file=tests/checks/same_bits.c ;; esac
    expect "compiles: $*" "$@" $STRICT -I. $file -o $dir/bits -lpthread
    runs_same "$*"
}
runs_same() {
    expect "runs: $1" $dir/bits $model
    cp $dir/out $dir/bits.now
    [ -e $dir/bits.first ] || cp $dir/bits.now $dir/bits.first
    expect "the same bits: $1" cmp $dir/bits.first $dir/bits.now
    rm -f $dir/bits
}
timed() { sh -c '"$@"; code=$?; times >'$dir/times'; exit $code' sh "$@"; }
# same_apart COMPILER FLAGS...: with the library and its user compiled apart and linked.
same_apart() {
    command -v "$1" >/dev/null 2>&1 || { skip "apart, $*: $1 is not installed"; return; }
    expect "compiles the library: $*" timed "$@" $STRICT -I. -c $dir/impl.c -o $dir/impl.o
    expect "compiles its user: $*" "$@" $STRICT -DBITNET__IMPLEMENTED -I. \
        -c tests/checks/same_bits.c -o $dir/user.o
    expect "links: $*" "$@" $dir/user.o $dir/impl.o -o $dir/bits -lpthread
    runs_same "apart, $*"
}

same gcc -std=c99 -O0 -DBITNET_NO_OPTIMIZE -DBITNET_NO_SIMD     # what all others are compared with
same clang++ -std=c++11 -O0 -fsigned-char
same tcc -std=c99                                   # neither atomics nor intrinsics
if whole; then
    same clang -std=c99 -O0
    same_apart $CC -std=c17 -O2 -Wframe-larger-than=98304      # musl's threads have 128 KB
    mv $dir/impl.o $dir/optimised.o                 # what that costs is said below
    mv $dir/times $dir/optimised.times
    same_apart gcc -std=c11 -Os -flto
    same clang-19 -std=c23 -O2
    same g++ -std=c++20 -O1
    same gcc -std=c99                                           # optimised by the header
    same g++ -std=c++11 -O0 -g
    same gcc -std=c99 -O0 -g1 -DBITNET_NO_SIMD -fsanitize=address,undefined -fno-sanitize-recover=all
fi
# Some warnings of gcc come with optimisation; this one does not need its code.
expect "aliasing" gcc -O2 -fsyntax-only -Wstrict-aliasing=1 -Werror -I. $dir/impl.c
# What was not compiled above, nor is by the suites of other machines: C without the tables named
# -tl2, groups' scales and the int8 cache, and C++. Programs include the declarations in all standards.
less="-DBITNET_NO_TL2 -DBITNET_NO_GROUPS -DBITNET_NO_KV_I8"
for c in "gcc c2x" "clang c2x" "g++ c++11 c++17" "clang++ c++20" "clang-19 c99" \
    "aarch64-linux-gnu-gcc c2x" "arm-linux-gnueabihf-gcc c2x" "s390x-linux-gnu-gcc c2x" \
    "riscv64-linux-gnu-gcc c2x" "x86_64-w64-mingw32-gcc c2x"; do
    compiler=${c%% *}
    case $compiler in *-*) whole || continue ;; esac
    command -v $compiler >/dev/null 2>&1 || { skip "syntax $c: $compiler is not installed"; continue; }
    for std in ${c#* }; do
        case $std in c++*) file=$dir/impl.cc ;; *) file="$less $dir/impl.c" ;; esac
        expect "syntax $compiler $std" $compiler -std=$std $STRICT -fsyntax-only -I. $file
    done
    case $compiler in
        *++) stds="c++11 c++14 c++17 c++20" file=$dir/other.cc ;;
        *) stds="c99 c11 c2x" file=$dir/other.c ;;
    esac
    for std in $stds; do
        expect "syntax $compiler $std, declarations only" \
            $compiler -std=$std $STRICT -fsyntax-only -I. $file
    done
done

# ---- at the flags of other projects ----

. tests/checks/warnings.sh

# ---- switches, one at a time, and together with another copy ----

case $(uname -m) in
    x86_64) family=x86 tables="NO_AVX2 NO_AVXVNNI NO_AVX512 NO_AMX NO_TL2" intrinsics=immintrin.h ;;
    aarch64) family=arm tables="NO_NEON NO_DOTPROD NO_I8MM" intrinsics=arm_neon.h ;;
    *) family=none tables= intrinsics=stddef.h ;;
esac
quick=gcc                                           # which of them compiles faster
! command -v clang >/dev/null 2>&1 || quick=clang
# What is left without one must not call what is gone, nor keep what only that called, of which clang
# warns without making code. $CC has other warnings.
for switch in STATIC NO_STDIO NO_MMAP NO_THREADS NO_SIMD NO_GROUPS NO_KV_I8 $tables REQUIRE_SIMD; do
    for c in $quick "$CC"; do
        [ "$c" = $quick ] || whole || continue
        expect "switch BITNET_$switch, $c" \
            $c -std=c99 $STRICT -fsyntax-only -DBITNET_$switch -I. $dir/impl.c
    done
done
for c in g++ clang++ "emcc -msimd128" "emcc -msimd128 -mrelaxed-simd"; do
    case $c in *++*) file=$dir/impl.cc std=c++11 ;; *) file=$dir/impl.c std=c99 ;; esac
    if ! command -v ${c%% *} >/dev/null 2>&1; then skip "switches that leave out, $c: not installed"
    elif whole || [ "$c" = clang++ ]; then
        expect "switches that leave out, $c" $c -std=$std $STRICT -fsyntax-only $less -I. $file
    fi
done
# They leave code out, and do not only refuse to run it.
if whole; then
    expect "an object without groups and int8 cache" $CC -O1 $less -I. -c $dir/impl.c -o $dir/less.o
    left='dotrows_(groups|tl2)|repack_groups|groups_row|group_products|(scores|weigh|sumrows|store|visit)_i8'
    expect "has none of their functions" sh -c "! nm $dir/less.o | grep -E '$left'"
    expect "which others have" sh -c "nm $dir/optimised.o | grep -E -c '$left' | grep .."
fi
# What runs otherwise than without the switches: threads, and the ways to a file. NO_SIMD runs above;
# that all tables give the same bits is tested by others.
same $quick -std=c99 -O0 -funsigned-char -DBITNET_STATIC -DBITNET_NO_MMAP -DBITNET_NO_THREADS
same $quick -std=c99 -O0 -DBITNET_NO_STDIO -DBITNET_REQUIRE_SIMD $less
# Unoptimised, so that no call is lost: the sections below look into this object, and link it.
unoptimised=$CC
whole || unoptimised=$quick
expect "all include orders" $unoptimised -std=c99 $STRICT -O0 -DBITNET_NO_OPTIMIZE -I. -c $dir/orders.c -o $dir/symbols.o
expect "two translation units" $CC $STRICT -O0 -I. $dir/symbols.o $dir/other.c $dir/main.c \
    -o $dir/two -lpthread
expect "two translation units run" $dir/two

# gcc without -O optimises the header, and nothing else: not even the macros that stand for its
# intrinsics there become functions, which take no constants in an unoptimised build.
if command -v gcc >/dev/null 2>&1; then
    if whole; then
        for switch in NOTHING NO_OPTIMIZE; do       # there is no BITNET_NOTHING
            expect "gcc -O0, BITNET_$switch" \
                gcc -O0 -DBITNET_NO_SIMD -DBITNET_$switch -I. -c $dir/impl.c -o $dir/$switch.o
        done
        expect "gcc -O0 is optimised, without BITNET_NO_OPTIMIZE" sh -c \
            "[ \$(size $dir/NOTHING.o | awk 'END { print \$1 }') -lt \
               \$(size $dir/NO_OPTIMIZE.o | awk 'END { print int(\$1 * 0.85) }') ]"
    fi
    pragma='^#pragma GCC optimize..O2'
    expect "gcc -O0 is told to optimise, but not with BITNET_NO_OPTIMIZE" sh -c \
        "gcc -O0 -I. -E $dir/impl.c | grep -q '$pragma' &&
         ! gcc -O0 -DBITNET_NO_OPTIMIZE -I. -E $dir/impl.c | grep -q '$pragma'"
    for c in "gcc c" "g++ cc"; do
        cat $dir/impl.c - >$dir/outside.${c#* } <<'EOF'
#ifdef __OPTIMIZE__
  #error "the including file is optimised"
#endif
#if defined(__x86_64__) && !defined(_mm_shuffle_epi32)
  #error "the intrinsics are functions"
#endif
EOF
        ! command -v ${c% *} >/dev/null 2>&1 ||
            expect "${c% *} -O0: not the rest" ${c% *} -O0 -fsyntax-only -I. $dir/outside.${c#* }
    done
    for flag in -Og -O1 -Os; do                     # the same with the switch
        for switch in NOTHING NO_OPTIMIZE; do
            gcc $flag -DBITNET_$switch -I. -E -P $dir/impl.c >$dir/$switch.i
        done
        expect "gcc $flag is left as it is" cmp $dir/NOTHING.i $dir/NO_OPTIMIZE.i
    done
fi

# Two releases in one program, each static in a file of its own: neither sees the other.
mkdir -p $dir/release
sed -e 's/^#define BITNET_VERSION .*/#define BITNET_VERSION "99.1.2"/' \
    -e 's/"no error"/"nothing wrong"/' bitnet.h >$dir/release/bitnet.h
for name in this that; do
    cat >$dir/$name.c <<EOF
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
const char *$name(int i);
const char *$name(int i) { return i ? bitnet_version() : bitnet_result_text(BITNET_OK); }
EOF
done
cat >$dir/both.c <<'EOF'
#include <stdio.h>
const char *this(int i), *that(int i);
int main(void) { return printf("%s %s %s %s\n", this(1), this(0), that(1), that(0)) < 0; }
EOF
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
expect "two releases: this" $unoptimised $STRICT -O0 -DBITNET_NO_OPTIMIZE -DBITNET_NO_SIMD -I. -c $dir/this.c -o $dir/this.o
expect "two releases: that" $unoptimised $STRICT -O0 -DBITNET_NO_OPTIMIZE -DBITNET_NO_SIMD -I$dir/release -c $dir/that.c -o $dir/that.o
expect "two releases link" $CC $dir/both.c $dir/this.o $dir/that.o -o $dir/both -lpthread
expect "two releases say who they are" sh -c \
    "$dir/both | grep -x '$version no error 99.1.2 nothing wrong'"

# ---- after headers full of macros ----

cat >$dir/macros.c <<'EOF'
#define _GNU_SOURCE
#include <complex.h>
#include <math.h>
#include <sys/param.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define far
#define near
#define small char
#define interface struct
#define IN
#define OUT
#define ERROR 0
#define DEBUG 1
EOF
cat $dir/impl.c >>$dir/macros.c
printf '#include <windows.h>\n%s\n' "$implementation" >$dir/windows.c
expect "after complex.h and others' macros" $CC $STRICT -fsyntax-only -I. $dir/macros.c
if command -v x86_64-w64-mingw32-gcc >/dev/null 2>&1; then
    expect "after windows.h" x86_64-w64-mingw32-gcc $STRICT -fsyntax-only -I. $dir/windows.c
else skip "after windows.h: x86_64-w64-mingw32-gcc is not installed"; fi

# ---- compilers that are not here: MSVC, Apple's clang ----

# Their branches as clang parses them, with declarations in the place of their headers. Without its
# name clang takes MSVC's own branches; then it needs the instructions from the command line.
mkdir -p $dir/foreign/sys
for header in stdio stdlib string errno windows pthread signal time fcntl unistd malloc setjmp \
    sys/mman sys/stat sys/sysctl sys/time; do
    echo '#include "foreign.h"' >$dir/foreign/$header.h
done
# foreign TARGET FLAGS...
foreign() {
    what="$*" target=$1
    shift
    for std in $(! whole || echo c99) c++14; do         # C++ refuses more
        case $std in c++*) ext=cc ;; *) ext=c ;; esac
        expect "$std for $what" clang --target=$target -std=$std $STRICT -Wvla -Wgnu \
            -Wgcc-compat "$@" -nostdlibinc -isystem $dir/foreign -isystem tests/checks -fsyntax-only \
            -I. $dir/impl.$ext
    done
}
if command -v clang >/dev/null 2>&1; then
    x86="-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi
        -mavxvnni"
    msvc="-U__clang__ -fms-compatibility-version=19.40 -Wno-builtin-macro-redefined
        -Wno-unknown-pragmas -Wno-language-extension-token"
    foreign x86_64-pc-windows-msvc
    foreign x86_64-pc-windows-msvc $x86
    foreign x86_64-pc-windows-msvc $x86 $msvc
    foreign i686-pc-windows-msvc $x86 $msvc
    foreign aarch64-pc-windows-msvc
    foreign aarch64-pc-windows-msvc -march=armv8.2-a+dotprod $msvc
    foreign arm64-apple-macos11
    foreign x86_64-apple-macos11
else skip "MSVC and Apple: clang is not installed"; fi

# What is left for MSVC when the conditions are decided, and no macro replaced: nothing of GNU's.
mkdir -p $dir/empty
for header in $(sed -n 's/^ *# *include <\([a-z_0-9]*\.h\)>.*/\1/p' bitnet*.h | sort -u); do
    : >$dir/empty/$header
done
gnu='__attribute__|__builtin_|__asm__|__extension__|typeof|(^|[^a-z_])__(atomic|sync)_|[(][{]'
for cpu in _M_X64 _M_IX86 _M_ARM64; do
    expect "plain C for MSVC, $cpu" sh -c "gcc -E -fdirectives-only -nostdinc -isystem $dir/empty -I. \
        -U__GNUC__ -U__unix__ -U__linux__ -U__x86_64__ -D_WIN32 -D_MSC_VER=1940 -D$cpu $dir/impl.c \
        >$dir/msvc.i && grep -q InitializeSRWLock $dir/msvc.i && ! grep -nE '$gnu' $dir/msvc.i"
done

# ---- the header alone ----

mkdir -p $dir/alone
cp bitnet.h $dir/alone
# notes WANTED NAME COMPILER FLAGS...: says 1 or 0 times that the kernel header is missing; no error.
notes() {
    wanted=$1 what=$2
    shift 2
    command -v "$1" >/dev/null 2>&1 || { skip "$what: $1 is not installed"; return; }
    case $1 in *++*) file=$dir/impl.cc ;; *) file=$dir/impl.c ;; esac
    expect "$what compiles: $*" "$@" $STRICT -fsyntax-only $file
    cp $dir/out $dir/notes
    found=0
    ! grep -q "$header was not found beside bitnet.h" $dir/notes || found=1
    expect "$what, notes: $*" [ $found -eq $wanted ]
}
header=bitnet_kernels_$family.h missing=1
[ $family != none ] || missing=0
for c in "$CC -std=c99" "clang -std=c99" g++ clang++; do
    notes $missing "bitnet.h alone" $c -I$dir/alone
    notes 0 "bitnet.h alone, BITNET_NO_SIMD" $c -DBITNET_NO_SIMD -I$dir/alone
    notes 0 "bitnet.h with its kernels" $c -I.
done
header=bitnet_kernels
notes 0 "bitnet.h alone on a CPU without kernels" s390x-linux-gnu-gcc -I$dir/alone
cat >$dir/log.c <<'EOF'
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
#include <stdio.h>
static void say(void *ud, bitnet_log_level level, const char *text) {
    (void)ud;
    printf("%d %s\n", (int)level, text);
}
int main(int argc, char **argv) {
    bitnet_model *m = 0;
    bitnet_model_params p;
    memset(&p, 0, sizeof p);
    p.log_fn = say;
    if (argc > 2) p.kernels = bitnet_kernels_find(argv[2]);
    return argc < 2 || bitnet_model_load_file(argv[1], &p, &m, 0);
}
EOF
expect "a program with bitnet.h alone" $CC -O0 -DBITNET_NO_OPTIMIZE -I$dir/alone \
    $dir/log.c -o $dir/log -lpthread
expect "its log names the table" sh -c "$dir/log $model | grep '^0 .*kernels scalar'"
expect "its log warns" sh -c \
    "[ \$($dir/log $model | grep -c '^1 .*not found beside bitnet.h') -eq $missing ]"
expect "its log does not if that table was asked for" sh -c "! $dir/log $model scalar | grep '^1'"
refuse "BITNET_REQUIRE_SIMD without them" "no kernel header" \
    $CC -DBITNET_REQUIRE_SIMD -I$dir/alone -c $dir/impl.c -o $dir/o.o
for flag in -ffast-math -ffinite-math-only; do
    refuse "$flag" "e $flag\|: $flag" $CC -O2 $flag -fsyntax-only -I. $dir/impl.c
done

# ---- what bitnet_selftest says of builds that break the rule for floats ----

cat >$dir/selftest.c <<'EOF'
#include <stdio.h>
#define BITNET_NO_SIMD
#define BITNET_STATIC                  /* what the self-test does not call is not compiled */
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
int main(void) {
    bitnet_error err = {BITNET_OK, "", {0}};
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
for c in $(! whole || echo gcc clang); do
    says '^$' $c -O1 -fno-trapping-math -fno-math-errno      # parts of -ffast-math that do no harm
    says "reorders" $c -O2 $reorder
    says "takes -0 for 0" $c -O1 -fno-signed-zeros
    says "reciprocal" $c -O1 -freciprocal-math
done
says "differ from other builds" gcc -O1 -fsingle-precision-constant
case $(! whole || uname -m) in
    x86_64)
        says "contracts" clang -O2 -mfma -ffp-contract=fast
        says '^$' gcc -O2 -mfma -ffp-contract=fast
        says "computes it wider" gcc -O1 -mfpmath=387 ;;
    aarch64)
        says "contracts" clang -O2 -ffp-contract=fast
        says '^$' gcc -O2 -ffp-contract=fast ;;
esac

# ---- symbols and macros ----

expect "exports only bitnet_ names" sh -c \
    "! nm -g --defined-only $dir/symbols.o | grep -v ' bitnet_[a-z]'"
expect "exports no bitnet__ names" sh -c "! nm -g --defined-only $dir/symbols.o | grep ' bitnet__'"
$CC -O0 -DBITNET_NO_OPTIMIZE -DBITNET_STATIC -I. -c $dir/impl.c -o $dir/static.o
expect "BITNET_STATIC exports nothing" sh -c "! nm -g --defined-only $dir/static.o | grep ."
expect "calls no printf, exit, abort, getenv or libm" sh -c \
    "! nm -u $dir/symbols.o | grep -E ' (printf|puts|fprintf|putchar|fputs|fwrite|exit|_exit|abort|getenv|exp|expf|log|logf|sin|sinf|cos|cosf|pow|powf|sqrt|sqrtf|rint|lrintf|floor|fmaf?|__assert_fail)\$'"
# What the headers that bitnet.h includes define is not its doing; all else must be BITNET_, or give a
# function the version in its symbol.
set -- $(echo "$version" | tr . ' ')
symbol=_v$1
versioned="^#define (bitnet_[a-z0-9_]+) \\1$symbol\$"
cat bitnet.h bitnet_kernels_$family.h 2>/dev/null |
    sed -n 's/^ *# *include \(<[a-z_./]*>\).*/#include \1/p' | sort -u |
    grep -v -e windows.h -e intrin.h -e arm_neon -e wasm_simd -e sysctl >$dir/system.c
printf '#include <%s>\n' $intrinsics >>$dir/system.c
for file in system impl; do
    $CC -I. -dM -E $dir/$file.c | grep -v ' BITNET_IMPLEMENTATION ' | sort >$dir/$file.macros
done
expect "leaks no foreign macro" sh -c \
    "! comm -13 $dir/system.macros $dir/impl.macros | grep -v '^#define BITNET_' |
        grep -vE '$versioned'"

# A program compiled with the header of another interface does not link, whatever it begins with; and
# the number, the text and the symbols name one version.
expect "the numeric version" grep -qx "#define BITNET_VERSION_NUMBER \
$(($1 * 10000 + $2 * 100 + $3)) .*" bitnet.h
expect "the version is in all symbols" sh -c \
    "! nm -g --defined-only $dir/symbols.o | grep -v '$symbol\$'"
mkdir -p $dir/later
sed "s/$symbol\$/_v$(($1 + 1))/" bitnet.h >$dir/later/bitnet.h
for use in 'bitnet_model_load_file("", 0, 0, 0)' 'bitnet_model_load_memory("", 0, 0, 0, 0)' \
    'bitnet_model_load_io(0, 0, 0, 0)' 'bitnet_gguf_open_file("", 0, 0, 0)' \
    'bitnet_gguf_open_memory("", 0, 0, 0, 0)' 'bitnet_gguf_open_io(0, 0, 0, 0)' \
    'bitnet_selftest(bitnet_kernels_default(), 0)' 'bitnet_selftest(bitnet_kernels_get(0), 0)' \
    'bitnet_selftest(bitnet_kernels_find("x"), 0)' 'bitnet_ternary_check(0, 0, 0)'; do
    printf '#include "bitnet.h"\nint main(void) { return (int)%s; }\n' "$use" >$dir/begins.c
    expect "links: $use" $CC -O0 -I. $dir/begins.c $dir/symbols.o -o $dir/begins -lpthread
    refuse "links with another interface: $use" "_v$(($1 + 1))" \
        $CC -O0 -I$dir/later $dir/begins.c $dir/symbols.o -o $dir/begins -lpthread
done

# ---- the programs in the manual and in the README: one and the same ----

sed -n '/THE SMALLEST PROGRAM/,/^   In C++/p' bitnet.h | sed '1d;$d;s/^       //' | sed '1d;$d' \
    >$dir/manual.c
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' >$dir/readme.c
sed '1d;s#"../bitnet.h"#"bitnet.h"#' examples/minimal.c >$dir/minimal.c
expect "the manual's program is the README's" cmp $dir/manual.c $dir/readme.c
expect "and examples/minimal.c" cmp $dir/manual.c $dir/minimal.c
own="-DBITNET__IMPLEMENTED $dir/symbols.o"          # compiled once for all programs here
expect "it compiles" $CC -std=c99 $STRICT -O0 -I. $dir/manual.c $own -o $dir/manual -lpthread
expect "it runs" sh -c "$dir/manual $model 'Once upon a time' | grep -i once"
refuse "it names a missing file" "no-such-file" $dir/manual no-such-file

# The functions that the manual and the heads of @templates and @generate show, in one program.
{
    sed '/^int main/,$d' $dir/manual.c
    sed -n '/^       static void chat(/,/^       }$/s/^       //p' bitnet.h
    sed -n '/^       static void own_template(/,/^       }$/s/^       //p' bitnet.h
    sed -n '/^       static bitnet_result write_on(/,/^       }$/s/^       //p' bitnet.h
    sed -n '/^       static bitnet_result write_all(/,/^       }$/s/^       //p' bitnet.h
    cat <<'EOF'
/* Goes on with several texts, each in its own sequence. */
static bitnet_result together(const bitnet_model *model, char **texts, int n,
                              bitnet_generate_params *gen) {
    bitnet_ctx_params params;
    bitnet_ctx *ctx = NULL;
    bitnet_gen *gens[10];
    bitnet_result r;
    int i;
    memset(gens, 0, sizeof gens);
    memset(&params, 0, sizeof params);
    params.n_seqs = n;
    gen->text_fn = NULL;
    r = bitnet_ctx_create(model, &params, &ctx, NULL);
    for (i = 0; i < n && r == BITNET_OK; i++) {
        gen->seq = i;
        gen->text.data = texts[i];
        gen->text.size = strlen(texts[i]);
        r = bitnet_gen_begin(ctx, gen, &gens[i], NULL);
    }
    if (r == BITNET_OK) r = write_all(gens, n, NULL);
    for (i = 0; i < n; i++) bitnet_gen_end(gens[i]);
    bitnet_ctx_free(ctx);
    return r;
}

int main(int argc, char **argv) {
    bitnet_model *model = NULL;
    bitnet_ctx *ctx = NULL;
    bitnet_generate_params gen;
    bitnet_result r;
    memset(&gen, 0, sizeof gen);
    gen.text_fn = print;
    gen.max_tokens = 40;
    if (argc > 9) own_template(&gen);
    r = bitnet_model_load_file(argv[1], NULL, &model, NULL);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, NULL, &ctx, NULL);
    if (r == BITNET_OK && argc > 3) r = together(model, argv + 2, argc - 2, &gen);
    else if (r == BITNET_OK && argc > 2) r = write_on(model, ctx, argv[2]);
    else if (r == BITNET_OK) chat(ctx, &gen);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return r != BITNET_OK && r != BITNET_ERR_FULL;
}
EOF
} >$dir/loops.c
# And the one at the head of @embed.
{
    printf '#define BITNET_IMPLEMENTATION\n#include "bitnet.h"\n'
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n'
    sed -n '/^       static double likeness(/,/^       }$/s/^       //p' bitnet.h
    cat <<'EOF'

int main(int argc, char **argv) {
    bitnet_model *model = NULL;
    bitnet_ctx *ctx = NULL;
    bitnet_ctx_params params;
    bitnet_model_info info;
    memset(&params, 0, sizeof params);
    params.n_seqs = 2;
    if (argc < 4 || bitnet_model_load_file(argv[1], NULL, &model, NULL) != BITNET_OK ||
        bitnet_ctx_create(model, &params, &ctx, NULL) != BITNET_OK) return 1;
    bitnet_model_get_info(model, &info);
    printf("%.4f\n", likeness(ctx, info.dim, argv[2], argv[3]));
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return 0;
}
EOF
} >$dir/likeness.c
# Both languages, no warning. Without the implementation, which is compiled in many ways above.
for sample in manual loops likeness; do
    sed '/BITNET_IMPLEMENTATION/d' $dir/$sample.c | tee $dir/use.c >$dir/use.cc
    for compiler in gcc clang g++ clang++; do
        case $compiler in *++) file=$dir/use.cc std=c++11 ;; *) file=$dir/use.c std=c99 ;; esac
        if ! command -v $compiler >/dev/null 2>&1; then skip "$sample: no $compiler"
        else expect "$sample: $compiler" $compiler -std=$std $STRICT -O2 -I. -c $file -o $dir/use.o
        fi
    done
done
expect "the loops compile" $CC -std=c99 $STRICT -O0 -I. $dir/loops.c $own -o $dir/loops -lpthread
$dir/manual $model "Once upon a time" | head -c 80 >$dir/ours
expect "the manual's loop writes what bitnet_generate writes" sh -c \
    "[ -s $dir/ours ] && $dir/loops $model 'Once upon a time' | head -c 80 | cmp - $dir/ours"
expect "its loop over sequences writes the same" sh -c \
    "$dir/loops $model 'The capital of' 'Once upon a time' | sed -n 's/^1: //p' | tr -d '\\n' |
     head -c 60 >$dir/second; [ -s $dir/second ] && tr -d '\\n' <$dir/ours | head -c 60 |
     cmp - $dir/second"
expect "the manual's embeddings compile" $CC -std=c99 $STRICT -O0 -I. $dir/likeness.c $own \
    -o $dir/likeness -lpthread
if [ -f "$BITNET_TEST_DATA/models/q.gguf" ]; then
    expect "the same text has the same direction" sh -c \
        "[ \$($dir/likeness $BITNET_TEST_DATA/models/q.gguf 'a sky' 'a sky') = 1.0000 ] &&
         [ \$($dir/likeness $BITNET_TEST_DATA/models/q.gguf 'a sky' 'two cats') != 1.0000 ]"
else skip "the manual's embeddings: no q.gguf in the test data"; fi
expect "the manual's chat answers each line" sh -c \
    "[ \$(printf 'Hello!\nWho are you?\n' | $dir/loops $model | grep -c '^[A-Z]') = 2 ]"

for program in generate "bench json" crosscheck "convert json" "embed json server/buffer" \
    "perplexity embed/file embed/say"; do
    case $program in embed* | perplexity*) libm=-lm ;; *) libm= ;; esac
    expect "examples: $program compiles" $CC -std=c99 $STRICT -O0 $own \
        $(for part in $program; do ls examples/$part.c examples/$part/*.c 2>/dev/null; done) \
        -o $dir/${program%% *} -lpthread $libm
done

# ---- what switches leave out ----

# Files in which weights have a scale, or their blocks have scales; the first are read as usual.
for type in tq2_0 q2_0; do
    expect "convert to $type" $dir/convert --round-scales --to $type $model $dir/$type.gguf
done
expect "generate without groups and int8 cache" $quick -std=c99 $STRICT -O0 -DBITNET_NO_SIMD $less \
    examples/generate/*.c -o $dir/less -lpthread
expect "it reads what has one scale" sh -c \
    "$dir/less -m $dir/tq2_0.gguf --temp 0 -p 'Once upon' -n 30 >$dir/less.text && [ -s $dir/less.text ] &&
     $dir/generate -m $dir/tq2_0.gguf --temp 0 -p 'Once upon' -n 30 | cmp - $dir/less.text"
expect "generate reads scales of blocks" $dir/generate -m $dir/q2_0.gguf -p Once -n 2
refuse "without groups it does not" "attn_q.weight' (Q2_0) has .* BITNET_NO_GROUPS left out" \
    $dir/less -m $dir/q2_0.gguf -p Once -n 2
expect "generate has an int8 cache" $dir/generate -m $model --kv-type i8 -p Once -n 2
refuse "without it, it does not" "BITNET_NO_KV_I8 left kv_type BITNET_KV_I8 out" \
    $dir/less -m $model --kv-type i8 -p Once -n 2

# The manual's command for a small program, and the size that it names.
if whole && [ "$(uname -sm)" = "Linux x86_64" ] && command -v gcc >/dev/null 2>&1; then
    small=$(sed -n '/^       cc -Os -s/,/-lpthread$/p' bitnet.h | tr -s '\n ' ' ' |
        sed "s#^ cc #gcc $STRICT -I. #; s#main.c -o main#$dir/manual.c -o $dir/small#")
    size=$(sed -n 's/^   it has \([0-9]*\) KB; .*/\1/p' bitnet.h)
    expect "the manual's small program: $small" $small
    expect "it writes the same" sh -c "$dir/manual $model 'Once upon a time' >$dir/ours &&
        $dir/small $model 'Once upon a time' | cmp - $dir/ours"
    expect "it has $size KB: $(wc -c <$dir/small) bytes" \
        [ $(wc -c <$dir/small) -le $((size * 1040)) -a $(wc -c <$dir/small) -ge $((size * 900)) ]
fi

# ---- bitnet_grammar.h, which needs bitnet.h's public interface alone ----

printf '#define BITNET_GRAMMAR_IMPLEMENTATION\n#include "bitnet_grammar.h"\n' >$dir/grammar.c
cp $dir/grammar.c $dir/grammar.cc
for c in "gcc c99 c2x" "clang c99" "g++ c++11 c++20" "clang++ c++11" "arm-linux-gnueabihf-gcc c99" \
    "x86_64-w64-mingw32-gcc c99"; do
    compiler=${c%% *}
    command -v $compiler >/dev/null 2>&1 || { skip "grammar, $c: $compiler is not installed"; continue; }
    for std in ${c#* }; do
        case $std in c++*) ext=cc ;; *) ext=c ;; esac
        expect "grammar: syntax $compiler $std" \
            $compiler -std=$std $STRICT -fsyntax-only -I. $dir/grammar.$ext
    done
done
! whole || expect "grammar: $CC -O3" $CC -std=c99 $STRICT -O3 -I. -c $dir/grammar.c -o $dir/o.o  # more warnings
$CC -O0 -I. -c $dir/grammar.c -o $dir/grammar.o
expect "grammar: exports bitnet_grammar and bitnet_matcher names alone" sh -c \
    "! nm -g --defined-only $dir/grammar.o | grep -v -E ' bitnet_(grammar|matcher)_[a-z]'"
expect "grammar: the version is in all symbols" sh -c \
    "! nm -g --defined-only $dir/grammar.o | grep -v '$symbol\$'"
expect "grammar: exports no private names" sh -c "! nm -g --defined-only $dir/grammar.o | grep __"
expect "grammar: uses no private names of bitnet.h" sh -c "! grep -ni 'bitnet__' bitnet_grammar.h"
expect "grammar: calls no exit, abort, getenv or libm" sh -c \
    "! nm -u $dir/grammar.o | grep -E ' (printf|puts|fprintf|exit|_exit|abort|getenv|floor|pow|fmod)\$'"
printf '#include "bitnet.h"\n#include <stdarg.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n' \
    >$dir/grammar_system.c
for file in grammar_system grammar; do
    $CC -I. -dM -E $dir/$file.c | sort >$dir/$file.macros
done
expect "grammar: leaks no foreign macro" sh -c \
    "! comm -13 $dir/grammar_system.macros $dir/grammar.macros | grep -v '^#define BITNET_GRAMMAR' |
        grep -vE '$versioned'"
{
    printf '#include "bitnet_grammar.h"\n#include <string.h>\n'
    sed -n '/^       static bitnet_result write_json(/,/^       }$/s/^       //p' bitnet_grammar.h
    printf 'int main(void) { return write_json(0, 0, "", 0, 0) == BITNET_OK; }\n'
} >$dir/grammar_manual.c
cp $dir/grammar_manual.c $dir/grammar_manual.cc
expect "grammar: the manual's program in C" $CC -std=c99 $STRICT -I. -c $dir/grammar_manual.c -o $dir/o.o
expect "grammar: the manual's program in C++" g++ -std=c++11 $STRICT -I. -c $dir/grammar_manual.cc -o $dir/o.o

# ---- what it costs to compile ----

if whole; then
    seconds=$(awk 'END { split($1, t, /[ms]/); print 60 * t[1] + t[2] }' $dir/optimised.times)
    echo "$CC -O2: $seconds s of processor time, an object of" \
        "$(($(wc -c <$dir/optimised.o) / 1024)) KB, $(size $dir/optimised.o | awk 'END { print int($1 / 1024) }') KB of code"
fi

# ---- what must agree ----

expect "the table of contents" awk -f tests/checks/contents.awk bitnet.h
expect "version in the first line" sh -c "head -n 1 bitnet.h | grep -q 'v$version '"
expect "version in CHANGELOG.md" grep -q "^## $version" CHANGELOG.md
if [ -e /usr/share/unicode/UnicodeData.txt ] && command -v python3 >/dev/null 2>&1; then
    expect "Unicode tables" python3 tests/checks/unicode_tables.py --check bitnet.h
    expect "NFC: the test is compiled" $quick -O0 -DBITNET_NO_OPTIMIZE -DBITNET_NO_SIMD -I. tests/checks/nfc.c \
        -o $dir/nfc -lpthread
    expect "NFC: Unicode's own test" sh -c "python3 -c 'import bz2, sys
sys.stdout.buffer.write(bz2.open(\"/usr/share/unicode/NormalizationTest.txt.bz2\").read())' | $dir/nfc"
else skip "Unicode tables: python3 or unicode-data is not installed"; fi
# crosscheck calls the entries of kernel tables, which are private; the browser's module is bitnet.h itself
# and loads it piece by piece.
expect "examples and web use public names alone" sh -c \
    "! grep -rnI --include='*.[ch]' --include='*.js' -i bitnet__ examples web |
        grep -v -e ^examples/crosscheck/kernels.c: -e ^web/bitnet_web.c:"
# minimal, village and hosts write no files.
expect "all programs fill closed standard streams" sh -c \
    "! grep -L '^    if (!streams_fill()) return' \$(grep -l '^int main(' examples/*.c examples/*/*.c) |
        grep -v -e minimal.c -e village.c -e /hosts/ | grep ."
expect "lines of at most 100 columns" sh -c \
    "! awk 'length > 100 { print FILENAME \":\" FNR }' *.h examples/*.[ch] examples/*/*.[ch] tests/*/*.[ch] | grep ."

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
