# ./build.sh binaries [SYSTEM...]; build.sh sources this file. Makes build/binaries/bitnet-VERSION-SYSTEM, a
# folder, and its archive for each system, with npm's zig:
#
#   generate ...               the programs, static on Linux; serve, and its page, where libmicrohttpd
#                              can be built
#   lib/                       the shared library, for programs and other languages
#   include/                   bitnet_all.h and bitnet_grammar.h
#   tiny.gguf                  the small model, to try them
#   LICENSE, README.txt
#
# The same sources give the same bytes. SYSTEM... makes these alone; those that are newer than the sources
# stay.
SYSTEMS='linux-x86_64 linux-aarch64 windows-x86_64 windows-arm64 macos-x86_64 macos-arm64'
MICROHTTPD=0.9.75
ZIG_FLAGS='-O2 -g0 -fno-lto -fno-sanitize=undefined -ffp-contract=off'

# zig_target SYSTEM: sets $target, $exe, $programs, what they link ($threads, $sockets), and of the library
# $library_target, $library_file and $library_flags.
zig_target() {
    exe='' threads=-lpthread sockets='' programs='generate embed convert bench crosscheck perplexity batch'
    case $1 in
        linux-*)
            target=${1#linux-}-linux-musl
            # an old glibc: programs that load the library bring their own, newer one
            library_target=${1#linux-}-linux-gnu.2.17
            library_file=libbitnet.so.1
            library_flags="-Wl,-soname,$library_file -Wl,--version-script=packaging/bitnet.map" ;;
        windows-*)
            target=${1#windows-}-windows-gnu exe=.exe threads='' sockets=-lws2_32
            library_file=bitnet-1.dll library_flags='' ;;
        macos-*)
            target=${1#macos-}-macos.11.0-none
            library_file=libbitnet.1.dylib
            library_flags="-Wl,-install_name,@rpath/$library_file" ;;
        *) echo "binaries: there is no system $1; there are $SYSTEMS" >&2; return 1 ;;
    esac
    case $target in arm64-*) target=aarch64-${target#arm64-} ;; esac
    case $1 in linux-*) ;; *) library_target=$target ;; esac
}

# zig_cc TARGET ARGUMENTS...: zig prints warnings about the C libraries that it compiles. A thread of musl
# has 128 KB of stack unless the program says more.
zig_cc() {
    to=$1
    shift
    set -- "$zig" cc -target "$to" $ZIG_FLAGS "$@"
    case $to in *-musl) set -- "$@" -Wl,-z,stack-size=1048576 ;; esac
    "$@" 2>build/binaries/errors || { cat build/binaries/errors >&2; return 1; }
}

# without_time FILE: takes the time of linking out of a program or library of Windows, whose header begins
# where the number at offset 60 says.
without_time() {
    set -- "$1" $(od -An -tu4 -j60 -N4 "$1")
    printf '\0\0\0\0' | dd of="$1" bs=1 seek=$(($2 + 8)) conv=notrunc 2>build/binaries/errors
}

# microhttpd: libmicrohttpd for $target, static, from Debian's source package; sets $http to its
# folder. Fails where there is none.
microhttpd() {
    http=$PWD/build/microhttpd/$target
    [ ! -e "$http/lib/libmicrohttpd.a" ] || return 0
    sh packaging/microhttpd.sh "$MICROHTTPD" "$zig" "$target" "$ZIG_FLAGS" "$http" >build/microhttpd.log 2>&1
}

# binary_programs FOLDER: all programs for $target; $serves is empty if serve is not among them.
binary_programs() {
    zig_cc "$target" -c packaging/bitnet.c -o "$1.o" || return 1
    for program in $programs; do
        zig_cc "$target" -s $USE_OBJECT $(sources $program) "$1.o" -o "$1/$program$exe" -lm $threads ||
            return 1
    done
    serves=
    if microhttpd; then
        zig_cc "$target" -s $USE_OBJECT -I"$http/include" $(sources serve) "$1.o" \
            "$http/lib/libmicrohttpd.a" -o "$1/serve$exe" -lm $threads $sockets &&
            cp "$http/COPYING" "$1/LICENSE-libmicrohttpd.txt" &&
            (server_page "$1/page") &&      # it has variables of the same names
            serves=1
    else
        echo "note: $system has no serve: libmicrohttpd cannot be built (build/microhttpd.log)"
    fi
}

binary_readme() {
    page='
    ./serve -m MODEL.gguf                   a page for chats, and an API: http://127.0.0.1:8080'
    cat <<END
bitnet.h $version for $1: programs that run ternary language models

    ./generate -m tiny.gguf                 chats with the small model, which is a toy
    ./generate -m MODEL.gguf                with another one, such as BitNet b1.58-2B-4T (1.2 GB):
        https://huggingface.co/microsoft/bitnet-b1.58-2B-4T-gguf/resolve/main/ggml-model-i2_s.gguf${serves:+$page}

On Windows start generate.exe by a double click, or drop a model's file on it. On macOS a program that
was downloaded wants a permission once:  xattr -d com.apple.quarantine generate

Every program has --help. lib/ has the shared library, include/ its headers; bitnet_all.h begins with
the manual.
END
}

# binary SYSTEM: its folder and its archive.
binary() {
    system=$1
    zig_target "$system" || return 1
    name=bitnet-$version-$system new=build/binaries/unfinished
    case $system in windows-*) archive=$name.zip ;; *) archive=$name.tar.gz ;; esac
    ! is_fresh "build/binaries/$archive" bitnet*.h examples packaging web LICENSE -type f || return 0
    echo "+ binaries $system"
    rm -rf $new "build/binaries/$name" "build/binaries/$archive"
    mkdir -p $new/lib $new/include
    binary_programs $new || return 1
    zig_cc "$library_target" -s -shared -fPIC -fvisibility=hidden -DBITNET_SHARED packaging/bitnet*.c \
        $library_flags -o "$new/lib/$library_file" $threads || return 1
    awk -f packaging/one_file.awk bitnet.h >$new/include/bitnet_all.h
    cp bitnet_grammar.h $new/include
    cp examples/tiny.gguf LICENSE $new
    binary_readme "$system" >$new/README.txt
    rm -f $new/*.pdb $new/*.lib $new/lib/*.pdb $new/lib/*.lib "$new.o"
    mv $new "build/binaries/$name" && rm -f build/binaries/errors
    case $archive in
        *.zip)
            for file in "build/binaries/$name"/*.exe "build/binaries/$name"/lib/*.dll; do
                without_time "$file" || return 1
            done
            rm -f build/binaries/errors
            made=$(time_of_release)
            (cd build/binaries && find "$name" -exec touch -h -d "@$made" {} + &&
                find "$name" -type f | LC_ALL=C sort | TZ=UTC zip -q -X -9 "$archive" -@) ;;
        *)
            tar -cf "build/binaries/$name.tar" -C build/binaries --format=ustar --sort=name \
                --mtime="@$(time_of_release)" --owner=0 --group=0 --numeric-owner \
                --mode=u=rwX,go=rX "$name" && gzip -n -9 "build/binaries/$name.tar" ;;
    esac
}

binaries() {
    version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
    find_zig || { echo "binaries: $why" >&2; return 1; }
    have zip || { echo "binaries: zip is not installed (Debian: zip)" >&2; return 1; }
    export ZIG_GLOBAL_CACHE_DIR="$PWD/build/zig/cache" ZIG_LOCAL_CACHE_DIR="$PWD/build/zig/cache"
    mkdir -p build/binaries
    [ $# -gt 0 ] || set -- $SYSTEMS
    for one; do binary "$one" || return 1; done
}
