#!/bin/sh
# Projects that use bitnet.h through CMake, pkg-config and Meson, in each way that packaging/README.md
# names. Their programs must write the same text. Ends with "N passed, N failed, N skipped". Run from
# the repository's root; writes to build/packaging.
set -u
CC=${CC:-cc}
dir=$PWD/build/packaging model=examples/tiny.gguf
rm -rf "$dir"
mkdir -p "$dir"
passed=0 failed=0 skipped=0
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
soname=libbitnet.so.${version%%.*}

# expect NAME COMMAND...: it must succeed.
expect() {
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 15 "$dir/out"
    fi
}
# same NAME PROGRAM...: it writes what the first one wrote.
same() {
    what=$1
    shift
    expect "$what runs" "$@" $model
    cp "$dir/out" "$dir/now"
    [ -e "$dir/text" ] || cp "$dir/now" "$dir/text"
    expect "$what writes the same text" cmp "$dir/now" "$dir/text"
}
# project WAY OPTION...: configures, builds and runs tests/packaging/project.
project() {
    way=$1
    shift
    expect "$way: configure" cmake -S tests/packaging/project -B "$dir/$way" -DWAY="$way" \
        -DBITNET="$PWD" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@"
    expect "$way: build" cmake --build "$dir/$way"
    same "$way, bitnet::impl" "$dir/$way/compiled"
    same "$way, bitnet::bitnet" "$dir/$way/header_only"
}
# macros_of WAY FILE: the macros with which the project compiles this file. Meson's commands also write
# a list of what it includes.
macros_of() {
    sed -n "s|^ *\"command\": \"\(.*\) -o [^ ]*[/_]$2.*|\1|p" "$dir/$1/compile_commands.json" |
        sed 's/ -MD.*//;s/\\//g;q' >"$dir/command"
    (cd "$dir/$1" && sh -c "$(cat "$dir/command") -dM -E -x c /dev/null")
}
# optimises_alone WAY PROGRAM: what a library is compiled with, and the program PROGRAM is not.
optimises_alone() {
    macros_of "$1" bitnet.c >"$dir/library"
    macros_of "$1" "$2" >"$dir/program"
    expect "$1: a Debug build optimises the library" grep -q '__OPTIMIZE__ 1' "$dir/library"
    expect "$1: and leaves its floats alone" sh -c \
        "! grep -q -e __FAST_MATH__ -e '__FINITE_MATH_ONLY__ 1' '$dir/library'"
    expect "$1: and does not optimise the program" sh -c \
        "grep -q __GNUC__ '$dir/program' && ! grep -q __OPTIMIZE__ '$dir/program'"
}
# installed_shared WAY FOLDER: what is installed there is a shared library with its names, which exports the
# functions of the static one and nothing else; pkg-config finds it.
installed_shared() {
    so=$(find "$2" -name libbitnet.so) lib=${so%/*}
    expect "$1: its soname" sh -c "readelf -d '$so' | grep -F '[$soname]'"
    expect "$1: its version" test -f "$lib/libbitnet.so.$version"
    expect "$1: no static one" test ! -e "$lib/libbitnet.a"
    nm -g --defined-only "$dir/static.a" | sed -n 's/.* T //p' | sort >"$dir/public"
    expect "$1: exports all" sh -c "[ -s '$dir/public' ] &&
        nm -D --defined-only '$so' | sed -n 's/.* T \(.*\)@@BITNET_1[.]0\$/\1/p' | sort |
        cmp - '$dir/public' && [ \$(nm -D --defined-only '$so' | grep -vc ' A ') -eq \
            \$(wc -l <'$dir/public') ]"
    expect "$1: the grammar, too" grep -qx bitnet_matcher_mask_v1 "$dir/public"
    expect "$1: was compiled hidden" grep -q -e '-fvisibility=hidden .*bitnet[.]c' \
        "$dir/$1/compile_commands.json"
    expect "$1: pkg-config builds" $CC tests/packaging/project/main.c -o "$dir/pc" \
        $(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --cflags --libs bitnet)
    expect "$1: needs it" sh -c "! '$dir/pc' $model && readelf -d '$dir/pc' | grep -F '[$soname]'"
    same "$1: pkg-config" env LD_LIBRARY_PATH="$lib" "$dir/pc"
}

# Without kernels, which take the longest to compile, and with the worst options a user can have.
project add_subdirectory -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-DBITNET_NO_SIMD" \
    -DCMAKE_C_FLAGS="-DBITNET_NO_SIMD -O0 -ffast-math"
optimises_alone add_subdirectory main.cc

project FetchContent -DCMAKE_C_FLAGS=-DBITNET_NO_SIMD
expect "a project that links only bitnet::bitnet does not build the library" sh -c \
    "rm '$dir/FetchContent/_deps/bitnet-build/libbitnet.a' &&
     cmake --build '$dir/FetchContent' --target header_only &&
     [ ! -e '$dir/FetchContent/_deps/bitnet-build/libbitnet.a' ]"

# What find_package and pkg-config find is what vcpkg's port installs, with kernels, moved elsewhere.
expect "vcpkg's port installs" cmake -DPORT="$PWD/packaging/vcpkg/bitnet-h" \
    -DCURRENT_PACKAGES_DIR="$dir/built" -P tests/packaging/vcpkg.cmake
expect "with the licence" cmp LICENSE "$dir/built/share/copyright"
rm -rf "$dir/built/build"
mv "$dir/built" "$dir/installed"
project find_package -DCMAKE_PREFIX_PATH="$dir/installed"
pc() { PKG_CONFIG_PATH="$dir/installed/lib/pkgconfig" pkg-config "$@" bitnet; }
expect "pkg-config builds" $CC tests/packaging/project/main.c -o "$dir/pc" $(pc --cflags --libs)
same pkg-config "$dir/pc"
expect "pkg-config knows the version" [ "$(pc --modversion)" = "$version" ]
expect "vcpkg's port, too" grep -q "\"version\": \"$version\"" packaging/vcpkg/bitnet-h/vcpkg.json
expect "the text is a text" grep -q "^$version $version\$" "$dir/text"
expect "installs the headers" sh -c \
    "for h in bitnet*.h; do cmp \$h '$dir/installed/include/'\$h || exit 1; done"

# A shared library, of which projects find the installed and moved files.
cp "$dir/add_subdirectory/bitnet/libbitnet.a" "$dir/static.a"
expect "shared: configure" cmake -S . -B "$dir/shared" -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS=-DBITNET_NO_SIMD -DCMAKE_INSTALL_PREFIX="$dir/made" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
expect "shared: build" cmake --build "$dir/shared"
expect "shared: install" cmake --install "$dir/shared"
mv "$dir/made" "$dir/moved"
installed_shared shared "$dir/moved"
project find_shared -DCMAKE_PREFIX_PATH="$dir/moved"

# Folders may be absolute, which CMake allows and some distributions do: bitnet.pc names them as they are.
# absolute FOLDER OPTION...: what pkg-config says then of FOLDER.
absolute() {
    folder=$1
    shift
    cmake -S . -B "$dir/absolute" -DCMAKE_INSTALL_PREFIX=/opt/one "$@" >/dev/null &&
        PKG_CONFIG_PATH="$dir/absolute" pkg-config --variable="$folder" bitnet
}
expect "an absolute libdir" [ "$(absolute libdir -DCMAKE_INSTALL_LIBDIR=/opt/two/lib)" = /opt/two/lib ]
expect "the includedir beside it" [ "$(absolute includedir)" = /opt/one/include ]
expect "an absolute includedir" [ "$(absolute includedir -DCMAKE_INSTALL_INCLUDEDIR=/opt/three)" = /opt/three ]

# The library of Windows has the name that the release's has, as far as it can be seen without a build.
dll=bitnet-${version%%.*}.dll mingw=$(command -v x86_64-w64-mingw32-gcc)
if [ -n "$mingw" ]; then
    expect "Windows: configure" cmake -S . -B "$dir/windows" -G "Unix Makefiles" -DBUILD_SHARED_LIBS=ON \
        -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER="$mingw"
    expect "Windows: the library's name" grep -q -e " -o $dll .*libbitnet[.]dll[.]a" \
        "$dir/windows/CMakeFiles/bitnet_impl.dir/link.txt"
else
    skipped=$((skipped + 1))
    echo "skip Windows: gcc-mingw-w64-x86-64 is not installed"
fi

# Meson gets what a user puts into the folder subprojects: the wrap, the file that it adds to the
# sources, and the sources of a release.
# meson_cross SYSTEM CPU ENDIAN COMPILER: sets the project up for another machine, in meson_SYSTEM.
meson_cross() {
    printf '%s\n' '[binaries]' "c = '$4'" '[host_machine]' "system = '$1'" "cpu_family = '$2'" "cpu = '$2'" \
        "endian = '$3'" >"$dir/cross.txt"
    expect "meson_$1: setup" meson setup "$dir/meson_$1" "$dir/meson" -Ddefault_library=shared \
        --cross-file "$dir/cross.txt"
}
meson_projects() {
    mkdir -p "$dir/meson"
    cp -R tests/packaging/project/. "$dir/meson"
    cp -R packaging/meson "$dir/meson/subprojects"
    tar -czf "$dir/meson/subprojects/packagefiles/bitnet-$version.tar.gz" \
        --transform="s|^|bitnet-$version/|" bitnet*.h packaging/bitnet*.c \
        packaging/exports.h packaging/bitnet.map
    for kind in static shared; do
        export CFLAGS="-DBITNET_NO_SIMD -O0 -ffast-math"
        expect "meson_$kind: setup" meson setup "$dir/meson_$kind" "$dir/meson" --buildtype=debug \
            -Ddefault_library=$kind --prefix="$dir/meson_$kind/installed" --libdir=lib
        unset CFLAGS
        expect "meson_$kind: build" ninja -C "$dir/meson_$kind"
        same "meson_$kind, compiled" "$dir/meson_$kind/compiled"
        same "meson_$kind, header_only" "$dir/meson_$kind/header_only"
        optimises_alone meson_$kind main.c
        expect "meson_$kind: install" meson install -C "$dir/meson_$kind"
        expect "meson_$kind: installs the headers" sh -c "for h in bitnet*.h; do
            cmp \$h '$dir/meson_$kind/installed/include/'\$h || exit 1; done"
        expect "meson_$kind: bitnet.pc" grep -qx "Version: $version" \
            "$dir/meson_$kind/installed/lib/pkgconfig/bitnet.pc"
    done
    # What only other machines need, as far as it can be seen without a build.
    if [ -n "$mingw" ]; then
        meson_cross windows x86_64 little "$mingw"
        expect "meson_windows: the library's name" grep -q "^build [^ ]*/$dll[: ]" "$dir/meson_windows/build.ninja"
    fi
    s390x=$(command -v s390x-linux-gnu-gcc)
    if [ -n "$s390x" ]; then
        meson_cross linux s390x big "$s390x"
        macros_of meson_linux bitnet.c >"$dir/library"
        expect "meson_linux: s390x computes in float" grep -q '__FLT_EVAL_METHOD__ 0' "$dir/library"
    fi
    expect "meson_static: no shared library" sh -c \
        "! find '$dir/meson_static/installed' -name '*.so*' | grep ."
    installed_shared meson_shared "$dir/meson_shared/installed"
}
if command -v meson >/dev/null 2>&1 && command -v ninja >/dev/null 2>&1; then meson_projects
else
    skipped=$((skipped + 1))
    echo "skip Meson: meson or ninja is not installed"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
