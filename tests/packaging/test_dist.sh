#!/bin/sh
# A release, as ./build.sh dist makes it: bitnet_all.h, what dist refuses, and the folder.
# Ends with "dist: N passed, N failed, N skipped". Run from the repository's root; writes build/dist.
#
#     sh tests/packaging/test_dist.sh PROGRAM      examples/minimal.c, compiled with separate headers
#
# BITNET_SYSTEMS: binaries for these systems alone, to try it in less time; the ports need both of Windows.
. tests/cases.sh

CC=${CC:-cc}
root=$PWD program=$PWD/$1 model=$PWD/examples/tiny.gguf
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
: >"$tmp/err"
have() { command -v "$1" >/dev/null 2>&1; }
# in_folder FOLDER COMMAND...: what the command says goes to $tmp/err, for check.
in_folder() { (cd "$1" && shift && exec "$@") >"$tmp/err" 2>&1; }

# ---- bitnet_all.h ----

alone=$tmp/alone
mkdir "$alone"
check one-file "it is not written" sh -c "awk -f packaging/one_file.awk bitnet.h >'$alone/bitnet_all.h'"

mkdir "$tmp/incomplete"
cp bitnet.h bitnet_kernels_x86.h "$tmp/incomplete"
check incomplete "it is written without a kernel header" in_folder "$tmp/incomplete" sh -c \
    "! awk -f '$root/packaging/one_file.awk' bitnet.h >all.h && grep -q 'cannot read bitnet_kernels_arm.h' '$tmp/err'"

# The text that is left after the preprocessor is the program: it must be that of the separate headers.
for ext in c cc; do
    printf '#define BITNET_IMPLEMENTATION\n#include "bitnet.h"\n' >"$tmp/separate.$ext"
    printf '#define BITNET_IMPLEMENTATION\n#include "bitnet_all.h"\n' >"$alone/impl.$ext"
done
text_of() { "$@" -E -P | tr -s ' \n' '\n'; }
same_program() { # KERNELS COMPILER FLAGS...; the text must hold their table
    kernels=$1
    shift
    have "$1" || { skip "same-$1" "it is not installed"; return; }
    case $1 in *++) ext=cc ;; *) ext=c ;; esac
    text_of "$@" -I. "$tmp/separate.$ext" >"$tmp/separate" 2>"$tmp/err"
    text_of "$@" "$alone/impl.$ext" >"$tmp/all" 2>"$tmp/err"
    check "same $*" "another program" cmp "$tmp/separate" "$tmp/all"
    check "kernels $*" "it has no table $kernels" grep -q "bitnet__kernels_$kernels" "$tmp/all"
}
case $(uname -m) in
    x86_64) here=avx512vnni ;;
    aarch64) here=neon ;;
    *) here=scalar ;;
esac
same_program scalar $CC -DBITNET_NO_SIMD
for c in "$CC" "$CC -DBITNET_NO_TL2" g++ clang; do same_program $here $c; done
same_program i8mm aarch64-linux-gnu-gcc
same_program neon arm-linux-gnueabihf-gcc
same_program avx2 x86_64-w64-mingw32-gcc
same_program scalar s390x-linux-gnu-gcc
same_program simd128 "${EMCC:-emcc}" -msimd128

# In a folder without other headers, under the warnings that the headers are written for.
for c in "gcc -std=c99" "gcc -std=c99 -DBITNET_NO_SIMD" "clang -std=c99" "g++ -std=c++11" \
    "clang++ -std=c++11" "aarch64-linux-gnu-gcc -std=c99" "${EMCC:-emcc} -std=c99 -msimd128"; do
    have "${c%% *}" || { skip "strict $c" "it is not installed"; continue; }
    case $c in *++*) file=impl.cc ;; *) file=impl.c ;; esac
    check "strict $c" "it does not compile" in_folder "$alone" \
        $c -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only $file
done
sed 's|"../bitnet.h"|"bitnet_all.h"|' examples/minimal.c >"$alone/minimal.c"
check minimal "it does not compile" in_folder "$alone" $CC -O0 minimal.c -o minimal -lpthread
$RUN "$program" "$model" >"$tmp/wanted"
$RUN "$alone/minimal" "$model" >"$tmp/text"
check minimal-text "another text than with bitnet.h" cmp "$tmp/wanted" "$tmp/text"
check minimal-writes "there is no text" test -s "$tmp/wanted"

# The second header: after bitnet_all.h, and beside one that was renamed.
cp bitnet_grammar.h "$alone"
cat >"$alone/grammar.c" <<'END'
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "bitnet_all.h"
#include "bitnet_grammar.h"
int main(void) { return bitnet_grammar_bytes(0) != 0 || bitnet_version_number() == 0; }
END
cp "$alone/grammar.c" "$alone/grammar.cc"
check grammar "it does not link" in_folder "$alone" sh -c "$CC -O0 -DBITNET_NO_SIMD -c impl.c &&
    $CC -O0 grammar.c impl.o -o grammar -lpthread && $RUN ./grammar"
! have g++ || check grammar-c++ "it does not compile" in_folder "$alone" g++ -fsyntax-only grammar.cc
mv "$alone/bitnet_all.h" "$alone/bitnet.h"
sed '/bitnet_all/d' "$alone/grammar.c" >"$alone/renamed.c"
check renamed "it does not compile" in_folder "$alone" $CC -fsyntax-only renamed.c

# ---- what dist refuses, in a tree with what it reads ----

tree=$tmp/tree
fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/web" "$tree/tests" "$tree/build/dist/old"
    cp -R build.sh bitnet.h CMakeLists.txt README.md CHANGELOG.md packaging "$tree"
    cp web/package.json web/README.md "$tree/web"
    cp tests/suites.sh "$tree/tests"
}
refused() { # NAME TEXT [VARIABLE=VALUE...]: it says the text, and leaves nothing
    place=$1 text=$2
    shift 2
    check "refuses $place" "it goes on" sh -c "! env $* '$tree/build.sh' dist >'$tmp/err' 2>&1"
    check "refuses $place, says why" "it does not say '$text'" grep -q -e "$text" "$tmp/err"
    check "refuses $place, leaves nothing" "there is build/dist" test ! -e "$tree/build/dist"
}
for place in bitnet.h web/package.json web/README.md packaging/vcpkg/bitnet-h/vcpkg.json \
    packaging/meson/bitnet.wrap; do
    fresh
    sed "/^#define/!s/$version/9.8.7/" "$place" >"$tree/$place"
    refused "$place" "^    $place: 9.8.7$"
done
fresh
sed 's/VERSION ${version} LANG/VERSION 9.8.7 LANG/' CMakeLists.txt >"$tree/CMakeLists.txt"
refused CMakeLists.txt "^    CMakeLists.txt: 9.8.7$"
fresh
sed '/"version"/d' web/package.json >"$tree/web/package.json"
refused no-version "^    web/package.json: none$"
fresh
echo "npm install bitnet-h@9.8.7" >>"$tree/README.md"
refused README.md "^    README.md: 9.8.7$"
fresh
sed "s/^## $version/## 9.8.7/" CHANGELOG.md >"$tree/CHANGELOG.md"
refused CHANGELOG.md "CHANGELOG.md has no entry for version $version"

# A folder of commands that lacks some, among them all that not everybody has.
bin=$tmp/bin
mkdir "$bin"
ln -s /usr/bin/* "$bin"
for tool in npm node nodejs emcc esbuild git cmake flock; do rm -f "$bin/$tool"; done
rm -f "$bin"/python* "$bin"/clang*
fresh
refused tools "not installed: no-such-emcc (Debian: emscripten), no-such-esbuild (Debian: esbuild)" \
    EMCC=no-such-emcc ESBUILD=no-such-esbuild
fresh
refused npm "node (Debian: nodejs), npm (Debian: npm)" "PATH=$bin"

# What it notes of the change log's entry.
noted() { (. packaging/dist.sh && entry="## $version ($1)" && notes) >"$tmp/notes" 2>&1; }
noted unreleased
check notes-no-date "'$(cat "$tmp/notes")'" grep -q "(unreleased)', without a date" "$tmp/notes"
noted 2026-12-31
check notes-a-date "'$(cat "$tmp/notes")'" sh -c "! grep -q 'a date' '$tmp/notes'"

# ---- the release ----

finish() {
    echo "dist: $passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}
for tool in "${EMCC:-emcc}" "${ESBUILD:-esbuild}" node npm; do
    have "${tool%% *}" || { skip release "${tool%% *} is not installed"; finish; }
done
command -v zip >/dev/null || { skip release "zip is not installed"; finish; }
release=$root/build/dist/bitnet-$version
export BITNET_RELEASE_URL=https://releases.invalid/v$version
check release "dist fails" sh -c "./build.sh dist >'$tmp/err' 2>&1"
check release-alone "there is more in build/dist: $(ls build/dist)" test "$(ls build/dist)" = "bitnet-$version"
[ -d "$release" ] || finish
check checksums "they are wrong" in_folder "$release" sha256sum -c --strict --quiet SHA256SUMS
check checksums-of-all "files are missing in it" test \
    "$(find "$release" -type f | wc -l)" -eq "$(($(wc -l <"$release/SHA256SUMS") + 1))"
check release-one-file "not what the script writes" cmp "$release/bitnet_all.h" "$alone/bitnet.h"
check release-headers "they are not those here" sh -c "for h in bitnet*.h LICENSE README.md CHANGELOG.md; do
    cmp \$h '$release/'\$h || exit 1; done"
check release-examples "one does not compile" in_folder "$release" $CC -fsyntax-only examples/generate/*.c
check page "a file is missing" sh -c "for f in web/page/* bitnet.js engine-simd.js tiny.gguf crosscheck.txt; do
    [ -s '$release/page/'\${f##*/} ] || exit 1; done"
check page-only "the package is in it" test ! -e "$release/page/package.json"
while read -r system archive tag; do               # which must be these, and no others
    case " ${BITNET_SYSTEMS:-$system} " in *" $system "*) ;; *) continue ;; esac
    check "binaries $system" "they are not there" test -s "$release/bitnet-$version-$system.$archive"
    check "wheel $tag" "it is not there" test -s "$release/bitnet_h-$version-py3-none-$tag.whl"
done <<'END'
linux-x86_64 tar.gz manylinux_2_17_x86_64
linux-aarch64 tar.gz manylinux_2_17_aarch64
windows-x86_64 zip win_amd64
windows-arm64 zip win_arm64
macos-x86_64 tar.gz macosx_11_0_x86_64
macos-arm64 tar.gz macosx_11_0_arm64
END
check "Python's sources" "they are not there" test -s "$release/bitnet_h-$version.tar.gz"
case ${BITNET_SYSTEMS:-windows-x86_64 windows-arm64} in
    *windows-x86_64*windows-arm64*)
        python3 -B tests/packaging/test_ports.py "$release" "$version" "$BITNET_RELEASE_URL" >"$tmp/ports" 2>&1
        grep '^skip' "$tmp/ports"
        check ports "$(grep -v '^skip' "$tmp/ports" | head -n 3)" \
            grep -q '^[1-9][0-9]* passed, 0 failed' "$tmp/ports" ;;
    *) skip ports "BITNET_SYSTEMS leaves out Windows" ;;
esac
mkdir "$tmp/npm"
tar -xzf "$release/bitnet-h-$version.tgz" -C "$tmp/npm"
check npm "a file is missing" sh -c "cd '$tmp/npm/package' && for f in README.md LICENSE bitnet.d.ts bitnet.js \
    node.js inline.js engine-simd.js engine-threads.js tiny.gguf; do [ -s \$f ] || exit 1; done"
# What everybody downloads who installs it, 1.7 MB of it tiny.gguf: 2565357 bytes, and 0.2 MB more with relaxed SIMD.
budget=2600000
[ ! -e "$tmp/npm/package/engine-relaxed.js" ] || budget=2800000
size=$(wc -c <"$release/bitnet-h-$version.tgz")
check npm-size "$size bytes are more than $budget" test "$size" -le $budget
check nothing-of-here "a file names this folder" sh -c "! grep -rlF '$root' '$release' '$tmp/npm' | tee '$tmp/err' | grep ."

# The figures of the page that announces it are those of README.md, which says how they were made.
grep -E '^\|.*\| [0-9.]+ \|$' packaging/RELEASE.md >"$tmp/table"
check speed "other figures than in README.md" sh -c "[ -s '$tmp/table' ] &&
    ! grep -vxFf README.md '$tmp/table' >'$tmp/err' && grep -q 'commit [0-9a-f]' packaging/RELEASE.md"

# The unpacked sources: a C compiler is enough for the program, and they make the same release again,
# at another time, in another zone, with other rights, and without git.
tar -xzf "$release/bitnet-$version.tar.gz" -C "$tmp"
unpacked=$tmp/bitnet-$version
check unpacked "files of the repository are missing" sh -c "git ls-files >'$tmp/files' 2>/dev/null ||
    exit 0; cd '$unpacked' && find . -type f | sed 's|^./||' | LC_ALL=C sort >'$tmp/found' &&
    LC_ALL=C sort '$tmp/files' | diff - '$tmp/found' >'$tmp/err'"
(cd "$unpacked" && PATH=$bin CFLAGS=-O0 ./build.sh) >"$tmp/out" 2>"$tmp/err"
check unpacked-runs "it tells no story" grep -Eq '^([A-Za-z]+[ ,.]+){9}' "$tmp/out"
touch "$unpacked/tests/README.md"
chmod 600 "$unpacked/tests/README.md"
mkdir -p "$unpacked/build/em"
cp -R build/web build/binaries "$unpacked/build"
[ ! -e build/zig ] || ln -s "$root/build/zig" "$unpacked/build/zig"
cp build/em/compiler "$unpacked/build/em"
touch "$unpacked/build/web/crosscheck.txt"         # it is newer than the sources
check again "dist fails in the unpacked sources" sh -c "umask 077
    cd '$unpacked' && TZ=Asia/Tokyo ./build.sh dist >'$tmp/err' 2>&1"
check again-without-web "it builds the browser part again" sh -c "! grep -q '^+ em ' '$tmp/err'"
check reproducible "other bytes" sh -c "cd '$unpacked/build/dist/bitnet-$version' &&
    diff SHA256SUMS '$release/SHA256SUMS' >'$tmp/err' && sha256sum -c --quiet SHA256SUMS"
mkdir "$tmp/failing"
printf '#!/bin/sh\nexit 1\n' >"$tmp/failing/npm"
chmod +x "$tmp/failing/npm"
check half-made "dist goes on without npm's file" sh -c "cd '$unpacked' &&
    ! PATH='$tmp/failing:$PATH' ./build.sh dist >'$tmp/err' 2>&1"
check half-made-leaves-nothing "there is build/dist" test ! -e "$unpacked/build/dist"
finish
