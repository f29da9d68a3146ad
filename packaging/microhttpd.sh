#!/bin/sh
# libmicrohttpd as a static library for another system, from Debian's source package, by zig.
#
#     microhttpd.sh VERSION ZIG TARGET FLAGS FOLDER
#
# FOLDER gets include/ and lib/. The sources come through apt, with a list of its own, so that the system's
# stays as it is.
set -eu
version=$1 zig=$2 target=$3 flags=$4 folder=$5
work=$(dirname "$folder")
sources=$work/libmicrohttpd_$version.orig.tar.xz
mkdir -p "$work/apt/lists/partial" "$work/apt/sources"
if [ ! -e "$sources" ]; then
    for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [ ! -e "$list" ] || sed -e 's/^Types: deb$/Types: deb-src/' -e 's/^deb /deb-src /' "$list" \
            >"$work/apt/sources/${list##*/}"
    done
    [ ! -e "$work/apt/sources/sources.list" ] ||
        mv "$work/apt/sources/sources.list" "$work/apt/sources/all.list"
    apt="apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$work/apt/sources \
        -o Dir::State::lists=$work/apt/lists -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache="
    $apt update
    (cd "$work" && $apt source --download-only libmicrohttpd)
fi
build=$work/build-$target
rm -rf "$build"
mkdir -p "$build"
tar -xJf "$sources" -C "$build" --strip-components=1
cd "$build"
case $target in
    aarch64-macos*) host=aarch64-apple-darwin ;;
    x86_64-macos*) host=x86_64-apple-darwin ;;
    *-windows-gnu) host=${target%%-*}-w64-mingw32 ;;
    *) host=$target ;;
esac
# What serve does not use is left out: TLS (a proxy has it), authentication, form data. With -s zig links
# what it has compiled of the C runtime for our programs already; else it compiles that once more.
CC="$zig cc -target $target" AR="$zig ar" RANLIB="$zig ranlib" CFLAGS="$flags" \
    LDFLAGS=-s ./configure --host="$host" --enable-static --disable-shared --disable-https --disable-curl \
    --disable-doc --disable-examples --disable-bauth --disable-dauth --disable-postprocessor \
    --disable-nls
# The resources that it has for a DLL need a compiler of their own.
make -C src/microhttpd MHD_DLL_RES_LO= libmicrohttpd.la
mkdir -p "$folder/include" "$folder/lib"
cp src/include/microhttpd.h "$folder/include"
cp COPYING "$folder"
cp src/microhttpd/.libs/libmicrohttpd.a "$folder/lib/new.a"
mv "$folder/lib/new.a" "$folder/lib/libmicrohttpd.a"
