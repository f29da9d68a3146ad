# Sourced by check.sh: the warnings that other projects ask their compilers for. At their flags the
# headers give none, neither the interface nor the implementation. What an implementation is silent
# about is named in it; this looks at the rest, and that a project's own files are not silenced.

# PostgreSQL 15, as its configure writes them into CFLAGS for gcc, and format attributes.
postgresql="-Wall -Wmissing-prototypes -Wpointer-arith -Wdeclaration-after-statement -Werror=vla
    -Wendif-labels -Wmissing-format-attribute -Wimplicit-fallthrough=3 -Wcast-function-type
    -Wshadow=compatible-local -Wformat-security -fno-strict-aliasing -fwrapv
    -fexcess-precision=standard -Wno-format-truncation -Wno-stringop-truncation
    -Wsuggest-attribute=format"

# tmux, Makefile.am: configure --enable-debug.
tmux="-std=gnu99 -Wno-long-long -Wall -W -Wformat=2 -Wmissing-prototypes -Wstrict-prototypes
    -Wmissing-declarations -Wwrite-strings -Wshadow -Wpointer-arith -Wsign-compare -Wundef
    -Wbad-function-cast -Winline -Wcast-align -Wdeclaration-after-statement -Wno-pointer-sign
    -Wno-attributes -Wno-unused-result -Wno-format-y2k"

# FTXUI, a library in C++20, and a project around it that turns on what has to do with casts.
ftxui="-std=c++20 -fno-exceptions -fno-rtti -Wall -Wextra -pedantic -Wmissing-declarations
    -Wdeprecated -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wuseless-cast -Wcast-qual
    -Wzero-as-null-pointer-constant"

# Meson, warning_level=everything with gcc 12; with clang it is -Weverything.
meson="-Wall -Winvalid-pch -Wextra -Wpedantic -Wcast-qual -Wconversion -Wfloat-equal -Wformat=2
    -Winline -Wmissing-declarations -Wredundant-decls -Wshadow -Wundef -Wuninitialized
    -Wwrite-strings -Wdisabled-optimization -Wpacked -Wpadded -Wmultichar -Wswitch-default
    -Wswitch-enum -Wunused-macros -Wmissing-include-dirs -Wunsafe-loop-optimizations
    -Wstack-protector -Wstrict-overflow=5 -Warray-bounds=2 -Wlogical-op -Wstrict-aliasing=3 -Wvla
    -Wdouble-promotion -Wsuggest-attribute=const -Wsuggest-attribute=noreturn
    -Wsuggest-attribute=pure -Wtrampolines -Wvector-operation-performance -Wsuggest-attribute=format
    -Wdate-time -Wformat-signedness -Wnormalized=nfc -Wduplicated-cond -Wnull-dereference
    -Wshift-negative-value -Wshift-overflow=2 -Wunused-const-variable=2 -Walloca -Walloc-zero
    -Wformat-overflow=2 -Wformat-truncation=2 -Wstringop-overflow=3 -Wduplicated-branches
    -Wattribute-alias=2 -Wcast-align=strict -Wsuggest-attribute=cold -Wsuggest-attribute=malloc
    -Wanalyzer-too-complex -Warith-conversion -Wbidi-chars=ucn -Wopenacc-parallelism
    -Wtrivial-auto-var-init"
meson_c="-Wbad-function-cast -Wmissing-prototypes -Wnested-externs -Wstrict-prototypes
    -Wold-style-definition -Winit-self -Wc++-compat -Wunsuffixed-float-constants"
meson_cxx="-Wctor-dtor-privacy -Weffc++ -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
    -Wsign-promo -Wstrict-null-sentinel -Wnoexcept -Wzero-as-null-pointer-constant -Wabi-tag
    -Wuseless-cast -Wconditionally-supported -Wsuggest-final-methods -Wsuggest-final-types
    -Wsuggest-override -Wmultiple-inheritance -Wplacement-new=2 -Wvirtual-inheritance
    -Waligned-new=all -Wnoexcept-type -Wregister -Wcatch-value=3 -Wextra-semi
    -Wdeprecated-copy-dtor -Wredundant-move -Wcomma-subscript -Wmismatched-tags -Wredundant-tags
    -Wvolatile -Wdeprecated-enum-enum-conversion -Wdeprecated-enum-float-conversion
    -Winvalid-imported-macros"

# All headers as one file. Two things are no fault of the interface, which silences nothing: structs
# are laid out as the system does it.
cat >$dir/interface.c <<'END'
#if defined(__GNUC__)
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wpadded"
#endif
#include "bitnet_grammar.h"
#if defined(__GNUC__)
  #pragma GCC diagnostic pop
#endif
END
{
    cat $dir/interface.c
    printf '#define BITNET_IMPLEMENTATION\n#define BITNET_GRAMMAR_IMPLEMENTATION\n'
    printf '#include "bitnet.h"\n#include "bitnet_grammar.h"\n'
} >$dir/headers.c
# A user's file after them, of which compilers warn.
{
    cat $dir/headers.c
    printf 'int leaks(double x, double y);\nint leaks(double x, double y) { return x == y; }\n'
} >$dir/leaks.c
for name in interface headers leaks; do cp $dir/$name.c $dir/$name.cc; done

# known COMPILER FLAGS...: those that it knows; Meson, too, asks for the others by its version alone.
known() {
    unknown=$(LC_ALL=C "$@" -fsyntax-only -x c /dev/null 2>&1 |
        sed -n 's/.*unrecognized command-line option .\([^ ]*\).$/\1/p')
    shift
    for flag; do
        case " $(echo $unknown) " in *" ${flag} "*) ;; *) echo "$flag" ;; esac
    done
}

# silent PROJECT COMPILER FLAGS...: nothing is said of the headers.
silent() {
    project=$1
    shift
    command -v "$1" >/dev/null 2>&1 || { skip "warnings of $project: $1 is not installed"; return; }
    case $1 in *++*) ext=cc ;; *) ext=c ;; esac
    for name in interface headers; do
        expect "warnings of $project, $1: $name" "$@" -Werror -fsyntax-only -I. $dir/$name.$ext
    done
}
silent PostgreSQL gcc $(known gcc $postgresql)
silent tmux gcc $(known gcc $tmux)
silent FTXUI g++ $ftxui
silent Meson gcc $(known gcc $meson $meson_c)
silent Meson g++ $(known g++ $meson $meson_cxx)
for c in clang clang++; do silent Meson $c -Weverything; done
for c in $(! whole || echo clang-19 clang++-19); do silent Meson $c -Weverything; done
for c in $(! whole || echo aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc x86_64-w64-mingw32-gcc); do
    silent Meson $c $(known $c $meson $meson_c)
done
! whole || silent Meson emcc -msimd128 -mrelaxed-simd -pthread -Weverything

for c in gcc g++ clang clang++; do
    case $c in *++*) ext=cc ;; *) ext=c ;; esac
    if ! command -v $c >/dev/null 2>&1; then skip "its user's warnings: $c is not installed"
    else
        refuse "its user's warnings, $c" "leaks[.].*float.*float-equal" \
            $c -Werror -Wfloat-equal -fsyntax-only -I. $dir/leaks.$ext
    fi
done

# What gcc says only when it optimises. It gives some of -Wstrict-overflow no place but the end of the
# file, which no header can silence.
silent_optimised() {
    LC_ALL=C gcc -O2 "$@" -I. -c $dir/headers.c -o $dir/headers.o 2>$dir/said ||
        { cat $dir/said; return 1; }
    ! grep 'warning:' $dir/said | grep -v "^$dir/headers.c:.*-Wstrict-overflow"
}
! whole || expect "warnings of Meson, gcc -O2" silent_optimised $(known gcc $meson $meson_c)
