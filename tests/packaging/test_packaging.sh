#!/bin/sh
# Projects that use bitnet.h through CMake and pkg-config, in each way that packaging/README.md
# names. Their programs must write the same text. Ends with "N passed, N failed, N skipped". Run from
# the repository's root; writes to build/packaging.
set -u
CC=${CC:-cc}
dir=$PWD/build/packaging model=examples/tiny.gguf
rm -rf "$dir"
mkdir -p "$dir"
passed=0 failed=0

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
# same NAME PROGRAM: it writes what the first one wrote.
same() {
    expect "$1 runs" "$2" $model
    cp "$dir/out" "$dir/now"
    [ -e "$dir/text" ] || cp "$dir/now" "$dir/text"
    expect "$1 writes the same text" cmp "$dir/now" "$dir/text"
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
# macros_of WAY FILE: the macros with which the project compiles this file.
macros_of() {
    sed -n "s|^ *\"command\": \"\(.*\) -o .*/$2.*|\1|p" "$dir/$1/compile_commands.json" |
        sed 's/\\//g;q' >"$dir/command"
    sh -c "$(cat "$dir/command") -dM -E -x c /dev/null"
}

# Without kernels, which take the longest to compile, and with the worst options a user can have.
project add_subdirectory -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-DBITNET_NO_SIMD" \
    -DCMAKE_C_FLAGS="-DBITNET_NO_SIMD -O0 -ffast-math"
macros_of add_subdirectory bitnet.c >"$dir/library"
macros_of add_subdirectory main.cc >"$dir/program"
expect "a Debug build optimises the library" grep -q '__OPTIMIZE__ 1' "$dir/library"
expect "and leaves its floats alone" sh -c \
    "! grep -q -e __FAST_MATH__ -e '__FINITE_MATH_ONLY__ 1' '$dir/library'"
expect "and does not optimise the program" sh -c \
    "grep -q __GNUC__ '$dir/program' && ! grep -q __OPTIMIZE__ '$dir/program'"

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
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
expect "pkg-config knows the version" [ "$(pc --modversion)" = "$version" ]
expect "vcpkg's port, too" grep -q "\"version\": \"$version\"" packaging/vcpkg/bitnet-h/vcpkg.json
expect "the text is a text" grep -q "^$version $version\$" "$dir/text"
expect "installs the headers" sh -c \
    "for h in bitnet*.h; do cmp \$h '$dir/installed/include/'\$h || exit 1; done"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
