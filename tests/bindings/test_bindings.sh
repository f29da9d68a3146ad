#!/bin/sh
# What bitnet.h promises to programs and bindings that meet the library as a shared object: names with
# a version, two versions in one process, structs that can grow, a header that other languages' tools
# can read.
#     test_bindings.sh [ZIG]     ZIG: zig 0.11; without it nothing is imported into Zig
# Ends with "N passed, N failed, N skipped". Run from the repository's root; writes to
# build/bindings.
set -u
STRICT="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
CC=${CC:-cc}
zig=${1:-}
model=examples/tiny.gguf
tests=tests/bindings
dir=build/bindings
export LC_ALL=C
rm -rf $dir
mkdir -p $dir/today $dir/next $dir/later
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s $dir/out ] || head -n 15 $dir/out; }
skip() { skipped=$((skipped + 1)); echo "skip $1"; }
# expect NAME COMMAND...: it must succeed.
expect() { name=$1; shift; if "$@" >$dir/out 2>&1; then ok; else bad "$name"; fi; }
# writes NAME TEXT COMMAND...: it must succeed and write this.
writes() {
    name=$1
    printf '%s\n' "$2" >$dir/wanted
    shift 2
    "$@" >$dir/written 2>&1
    code=$?
    echo "exit code $code" >$dir/out
    if diff $dir/wanted $dir/written >>$dir/out && [ $code -eq 0 ]; then ok; else bad "$name"; fi
}

# ---- three versions: today's; the next interface, with other names; a later one of today's ----

version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
set -- $(echo "$version" | tr . ' ')
suffix=_v$1 next=_v$(($1 + 1)) next_version=$(($1 + 1)).0.0
cp bitnet.h $dir/today

# changed FILE WORDS LINES: so many lines of the file hold the words, or sed has not made the version
# that is meant.
changed() { expect "$1 has '$2' in $3 lines" sh -c "[ \$(grep -c -e '$2' $dir/$1) -eq $3 ]"; }

# The next interface has a field in front of two structs.
sed -e "s/^\(#define bitnet_.*\)$suffix\$/\1$next/" \
    -e "s/^#define BITNET_VERSION .*/#define BITNET_VERSION \"$next_version\"/" \
    -e '/^typedef struct bitnet_\(model\|generate\)_params {/a\    uint64_t more;' \
    bitnet.h >$dir/next/bitnet.h
changed next/bitnet.h "^#define .*$suffix\$" 0
changed next/bitnet.h '"'$next_version'"' 1
changed next/bitnet.h 'uint64_t more;' 2

# The later version has a field in place of a reserved word in each struct. If it is 7 in parameters,
# the call fails with BITNET_ERR_FULL; bitnet_model_info has 41 there.
sed -e 's/^    uint64_t reserved\[1\];/    uint64_t later;/' \
    -e 's/^    \(uint64_t\|int32_t\) reserved\[\([0-9]*\)\];/    \1 later, reserved[\2 - 1];/' \
    -e 's/bitnet__check_reserved(\([a-z.>-]*\)reserved, \([0-9]*\)/LATER(\1later, \1reserved, \2 - 1/' \
    -e 's/^    memset(err->reserved/    err->later = 0;\n&/' \
    -e 's/^    info->group = m->group;/&\n    info->later = 41;/' bitnet.h >$dir/later/bitnet.h
changed later/bitnet.h 'bitnet__check_reserved(' 1
changed later/bitnet.h ' reserved\[[0-9]*\];' 0
changed later/bitnet.h 'info->later = 41;' 1
changed later/bitnet.h '_t later[,;]' $(grep -c ' reserved\[[0-9]*\];' bitnet.h)
cat >$dir/later/library.c <<'END'
#define LATER(later, words, n, of, err) \
    ((later) == 7 ? bitnet__fail(err, BITNET_ERR_FULL, "%s: later is 7", of) \
                  : bitnet__check_reserved(words, n, of, err))
END
for with in today next later; do
    printf '#define BITNET_IMPLEMENTATION\n#include "bitnet.h"\n' >>$dir/$with/library.c
    warnings=$STRICT
    [ $with != later ] || warnings=-w              # its initialisers are those of today
    expect "the library, $with" $CC -std=c99 $warnings -O0 -fPIC -DBITNET_NO_SIMD -I$dir/$with \
        -c $dir/$with/library.c -o $dir/$with/library.o
    expect "the shared library, $with" $CC -shared -Wl,-soname,libbitnet.so $dir/$with/library.o \
        -o $dir/$with/libbitnet.so -lpthread
done

# compile VERSION FILE.c FLAGS...: makes $dir/VERSION/FILE with that version's header and library.
compile() {
    with=$1 source=$2
    shift 2
    expect "compiles with $with: $source" $CC -std=c99 $STRICT -O0 "$@" -I$dir/$with $source \
        -o $dir/$with/$(basename $source .c) -L$dir/$with -lbitnet -lpthread
}
# linked VERSION PROGRAM...: runs it with that version's shared library.
linked() { with=$1; shift; LD_LIBRARY_PATH=$dir/$with "$@"; }

# ---- names ----

# declared HEADER: the functions that it declares for programs.
declared() {
    sed '/^#endif \/\* BITNET.*_H \*\/$/q' "$1" |
        sed -n 's/^BITNET_[A-Z_]*API [a-z].*[ *]\(bitnet_[a-z0-9_]*\)(.*/\1/p' | sort
}
# names_of HEADER OBJECT: the header's list, its declarations and what the object exports are one.
names_of() {
    declared $1 >$dir/declared
    sed -n 's/^#define \(bitnet_[a-z0-9_]*\) .*/\1/p' $1 | sort >$dir/listed
    sed "s/.*/#define & &$suffix/" $dir/listed | sort >$dir/lines
    sed "s/\$/$suffix/" $dir/declared | sort >$dir/wanted
    nm -g --defined-only $2 | sed 's/.* _*//' | sort >$dir/exported
    expect "$1 declares functions" [ -s $dir/declared ]
    expect "$1: every function has a versioned name, and nothing else has" \
        diff $dir/declared $dir/listed
    expect "$1: each in a literal line, with the version of BITNET_VERSION" sh -c \
        "grep '^#define bitnet_' $1 | sort | diff - $dir/lines"
    expect "$1: exports these names alone" diff $dir/wanted $dir/exported
}
names_of bitnet.h $dir/today/library.o
cp $dir/declared $dir/functions
if grep -q '^#define bitnet_' bitnet_grammar.h; then
    printf '#define BITNET_GRAMMAR_IMPLEMENTATION\n#include "bitnet_grammar.h"\n' >$dir/grammar.c
    expect "the grammar" $CC -O0 -I. -c $dir/grammar.c -o $dir/grammar.o
    names_of bitnet_grammar.h $dir/grammar.o
else skip "names of bitnet_grammar.h: it has no versions yet"; fi

# A program that uses every function links with its own version, and with no function of another.
{
    printf '#include "bitnet.h"\n'
    printf 'typedef void (*any)(void);\nextern const any all[];\nconst any all[] = {\n'
    sed 's/.*/    (any)&,/' $dir/functions
    printf '};\nint main(void) { return 0; }\n'
} >$dir/all.c
# link_all HEADER LIBRARY
link_all() { $CC -O0 -I$dir/$1 $dir/all.c $dir/$2/library.o -o $dir/all -lpthread; }
expect "all functions link" link_all today today
for pair in "today next $suffix" "next today $next"; do
    set -- $pair
    link_all $1 $2 2>&1 | sed -n 's/.*undefined reference to .\(bitnet_[a-z0-9_]*\).*/\1/p' |
        sort -u >$dir/unresolved
    sed "s/\$/$3/" $dir/functions | sort >$dir/wanted
    expect "none links: header $1, library $2" diff $dir/wanted $dir/unresolved
done

# ---- two versions in one process ----

compile today $tests/write.c -DMAIN
text=$(linked today $dir/today/write $model | sed "s/^$version: *//")
expect "writes a text" test ${#text} -gt 100
plugin() { # NAME FUNCTION FLAGS...
    which=$1 function=$2
    shift 2
    expect "plugin $which" $CC -std=c99 $STRICT -O0 -fPIC -shared -DWRITE=$function "$@" \
        -I$dir/$which $tests/write.c $dir/$which/library.o -o $dir/lib$function.so -lpthread
}
plugin today write_this
plugin next write_that -DMORE
two="$version: $text
$next_version: $text"
for order in "this that" "that this"; do
    set -- $order
    expect "linked, $order" $CC -O0 $tests/both.c -o $dir/both -L$dir -lwrite_$1 -lwrite_$2
    writes "linked, $order: both write" "$two" env LD_LIBRARY_PATH=$dir $dir/both $model
done
expect "for loading" $CC -D_GNU_SOURCE -DLOAD -O0 $tests/both.c -o $dir/load -ldl
for order in "this that" "that this"; do
    set -- $order
    writes "loaded, $order: both write" "$two" \
        $dir/load $model $dir/libwrite_$1.so $dir/libwrite_$2.so
done

# ---- structs that grow ----

# The same program file, with a library that knows more.
writes "an older program writes the same text" "$version: $text" \
    linked later $dir/today/write $model
if command -v python3 >/dev/null 2>&1; then
    expect "a program that prints the layout" sh -c \
        "python3 -B $tests/layout.py bitnet.h >$dir/layout.c"
    for with in today later; do
        compile $with $dir/layout.c
        linked $with $dir/$with/layout >$dir/$with/layout.txt
    done
    expect "the layout has the structs" grep -q '^bitnet_generate_params.cancel_ud ' \
        $dir/today/layout.txt
    expect "the same sizes and offsets" diff $dir/today/layout.txt $dir/later/layout.txt
else skip "layout: python3 is not installed"; fi

# ---- what stays as it is until 2.0 ----

# tests/data/interface-1.txt has the functions, callbacks, structs and constants of bitnet.h, without
# those for tools, and of bitnet_grammar.h. New ones may come; then take the file that this writes.
promised=$dir/promised.h
{
    sed -e '/^#include </d' -e '/^\/\* ---- for tools ----/,$d' bitnet.h
    sed -n '/^#define bitnet_/p;/^\/\* A compiled grammar/,/^#ifdef __cplusplus/p' bitnet_grammar.h |
        sed -e '/^#ifdef __cplusplus/d' -e 's/BITNET_GRAMMAR_API/BITNET_API/'
    printf '#ifdef __cplusplus\n}\n#endif\n#endif /* BITNET_H */\n'
} >$promised
declared $promised | sed 's/.*/^#define & /' >$dir/kept          # names without those of tools
{ grep -v '^#define bitnet_' $promised | sed '/^#ifndef BITNET_H$/q'; grep -f $dir/kept $promised
  grep -v '^#define bitnet_' $promised | sed '1,/^#ifndef BITNET_H$/d'; } >$promised.new
mv $promised.new $promised
interface=tests/data/interface-1.txt now=$dir/interface.txt
$CC -E -P $promised | tr -s ' \n' ' ' | sed 's/;/;\n/g' |
    sed -n 's/^ *extern \(.*\);/\1/p; s/^ *typedef \([^{}]*(\*.*\);/\1/p' >$dir/declarations
if ! command -v python3 >/dev/null 2>&1; then skip "the promised interface: python3 is not installed"
elif [ "$(getconf LONG_BIT)" != 64 ]; then skip "the promised interface: its list is that of 64 bits"
else
    expect "a program that prints what is promised" sh -c "python3 -B $tests/layout.py $promised \
        bitnet_grammar.h >$dir/promised.c && $CC -I. $dir/promised.c -o $dir/promised"
    { cat $dir/declarations && $dir/promised; } | sort >$now
    expect "the list has functions and structs" sh -c \
        "grep -q '^bitnet_result bitnet_eval_v1(' $now && grep -q '^bitnet_matcher_params[.]' $now"
    expect "$interface: all that it lists is as it was" sh -c "! comm -23 $interface $now | grep ."
    expect "$interface lists all; if not: cp $now $interface" cmp $interface $now
fi

# What the manual shows compiles with the later header, too, without a warning.
{
    printf '#include "bitnet.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
    sed -n '/^       static .*(.*{$/,/^       }$/s/^       //p' bitnet.h
} >$dir/manual.c
cp $dir/manual.c $dir/manual.cc
expect "the manual's functions" grep -q '^static void chat' $dir/manual.c
for c in "$CC -std=c99 $dir/manual.c" "g++ -std=c++11 $dir/manual.cc"; do
    command -v ${c%% *} >/dev/null 2>&1 || { skip "the manual: ${c%% *} is not installed"; continue; }
    expect "the manual with the later header: $c" \
        $c $STRICT -Wno-unused-function -fsyntax-only -I$dir/later
done
# A later program: what it asks for is refused by today's library.
compile later $tests/later.c
expect "new fields have an effect" linked later $dir/later/later $model new
expect "today's library refuses them" linked today $dir/later/later $model old

# ---- Python ----

if command -v python3 >/dev/null 2>&1; then
    printf '%s' "$text" >$dir/text
    python3 -B -X dev -W error $tests/test_ctypes.py $dir/today/libbitnet.so bitnet.h $model \
        $dir/text $dir/today/layout.txt >$dir/ctypes.out 2>&1
    code=$? counts=$(tail -n 1 $dir/ctypes.out)
    grep -e '^FAIL' -e '^skip' $dir/ctypes.out
    case $code,$counts in
        0,*' passed, 0 failed, 0 skipped') passed=$((passed + ${counts%% *})) ;;
        *) cp $dir/ctypes.out $dir/out; bad "ctypes, exit code $code" ;;
    esac
else skip "ctypes: python3 is not installed"; fi

# ---- Rust, by bindgen; Zig, by @cImport ----

missing() { command -v "$1" >/dev/null 2>&1 || echo "$1 is not installed"; }
why=$(missing bindgen)
if [ -z "$why" ]; then
    echo 'int probe(void);' >$dir/probe.h
    bindgen $dir/probe.h >$dir/probe.rs 2>&1 || why="bindgen finds no libclang"
fi
if [ -z "$why" ]; then
    rust=$dir/bindings.rs
    bind="bindgen bitnet.h -o $rust"   # in newer versions size_t is usize without being asked for
    expect "bindgen" sh -c "$bind --size_t-is-usize || $bind"
    sed -n 's/.*pub fn \(bitnet_[a-z0-9_]*\).*/\1/p' $rust | sort >$dir/bound
    sed "s/\$/$suffix/" $dir/functions | sort >$dir/wanted
    expect "bindgen binds all functions" diff $dir/wanted $dir/bound
    expect "bindgen binds the version" grep -q "^pub const BITNET_VERSION:.*\"$version" $rust
    sed 's/.*/pub use self::&'$suffix' as &;/' $dir/functions >>$rust
    why=$(missing rustc)
fi
if [ -n "$why" ]; then skip "Rust: $why"
else
    expect "a program in Rust" env BINDINGS="$PWD/$rust" rustc --edition 2021 $tests/text.rs \
        -o $dir/text-rust -L $dir/today -l bitnet
    writes "Rust writes the same text" "$text" linked today $dir/text-rust $model
fi
if [ -n "$zig" ]; then
    export ZIG_GLOBAL_CACHE_DIR="$PWD/build/zig/cache" ZIG_LOCAL_CACHE_DIR="$PWD/build/zig/cache"
    sed -e 's/.*/    "&",/' -e '1s/^/pub const all = .{\n/' -e '$s/$/\n};/' $dir/functions \
        >$dir/names.zig
    expect "a program in Zig" "$zig" build-exe $tests/text.zig -I. -L$dir/today -lbitnet -lc \
        --mod names::$dir/names.zig --deps names -femit-bin=$dir/text-zig
    writes "Zig writes the same text" " $text" linked today $dir/text-zig $model
fi

# ---- C and C++ that want no warning from a header ----

cp $tests/interface.c $dir/interface.cc
# clean FLAGS...: the interface and its user, without a warning.
clean() {
    command -v $1 >/dev/null 2>&1 || { skip "clean: $1 is not installed"; return; }
    case $1 in *++*) file=$dir/interface.cc ;; *) file=$tests/interface.c ;; esac
    expect "clean: $*" "$@" -Wall -Wextra -Werror -fsyntax-only -I. $file
}
clean gcc -std=c89 -pedantic-errors -Wconversion -Wsign-conversion -Wstrict-prototypes \
    -Wdeclaration-after-statement -Wbad-function-cast
clean g++ -std=c++17 -Wpedantic -Wold-style-cast -Wconversion -Wsign-conversion -Wuseless-cast \
    -Wzero-as-null-pointer-constant -Wcast-qual -fno-exceptions -fno-rtti
clean clang -std=c99 -Weverything -Wno-padded
clean clang++ -std=c++17 -Weverything -Wno-padded -Wno-c++98-compat -Wno-c++98-compat-pedantic

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
