#!/bin/sh
# The programs and libraries that ./build.sh binaries makes for other systems: what they import, and the text
# that they write in emulators. Ends with "binaries: N passed, N failed, N skipped". Run from the
# repository's root.
#
#     sh tests/packaging/test_binaries.sh GENERATE SYSTEM...      GENERATE: the program for this machine
#
# ZIG: compiles through_pipe.c for Windows; without it that case is skipped.
. tests/cases.sh

generate=$1
shift
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
: >"$tmp/err"
for tool in llvm-objdump llvm-readobj; do            # Debian also installs them with a version only
    command -v $tool >/dev/null 2>&1 || tool=$tool-19
    case $tool in llvm-objdump*) objdump=$tool ;; *) readobj=$tool ;; esac
done
story() { "$@" -m "$model" -p 'Once upon a time' -n 40 --temp 0 2>"$tmp/err"; }
model=examples/tiny.gguf
story "$generate" >"$tmp/wanted"
check here "it writes no text" test -s "$tmp/wanted"

cat >"$tmp/requests" <<'END'
{"custom_id":"a","url":"/v1/completions","body":{"prompt":"A dog","max_tokens":8,"seed":1}}
{"custom_id":"b","url":"/v1/completions","body":{"prompt":"A cat","max_tokens":"many"}}
{"messages":[{"role":"user","content":"Who are you?"}],"max_tokens":8}
END

# runs SYSTEM FOLDER EXE EMULATOR...
runs() {
    system=$1 folder=$2 exe=$3
    shift 3
    story "$@" "$folder/generate$exe" | tr -d '\r' >"$tmp/text"
    check "$system: generate" "another text" cmp "$tmp/wanted" "$tmp/text"
    for program in $programs; do
        [ $program != generate ] || continue
        "$@" "$folder/$program$exe" --help >"$tmp/out" 2>"$tmp/err"
        check "$system: $program" "it has no help" \
            grep -qiE 'usage|^ +-' "$tmp/out" "$tmp/err"
    done
    head -c 3000 README.md >"$tmp/long"
    "$@" "$folder/perplexity$exe" -m $model -f "$tmp/long" -c 64 2>"$tmp/err" | tr -d '\r' >"$tmp/perplexity"
    check "$system: perplexity" "it has no estimate" grep -q 'Final estimate: PPL = [0-9]' "$tmp/perplexity"
    "$@" "$folder/embed$exe" -m $model --pooling mean --format npy -f "$tmp/long" -o "$tmp/rows.npy" 2>"$tmp/err"
    check "$system: embed" "it writes no rows" test -s "$tmp/rows.npy"
    "$@" "$folder/batch$exe" -m $model -q --ordered <"$tmp/requests" >"$tmp/results" 2>"$tmp/err"
    check "$system: batch" "it wrote other lines" \
        test "$(grep -c '"status_code":200' "$tmp/results")" -eq 2 -a "$(wc -l <"$tmp/results")" -eq 3
    { sed -n 1p "$tmp/results"; printf '{"id":"batch_req_'; } >"$tmp/kept"         # the last one is torn
    "$@" "$folder/batch$exe" -m $model -q --ordered --resume "$tmp/kept" --retry-errors <"$tmp/requests" \
        >"$tmp/out" 2>"$tmp/err"
    check "$system: batch goes on with its results" "they differ" cmp "$tmp/results" "$tmp/kept"
    "$@" "$folder/batch$exe" -m $model -q --resume "$tmp/kept" --retry-errors </dev/null >"$tmp/out" 2>"$tmp/err"
    check "$system: batch takes errors out" "they are there" \
        sh -c "grep -v '\"status_code\":400' '$tmp/results' | cmp - '$tmp/kept'"
    case $system in
        windows-*)
            if [ -z "${ZIG:-}" ]; then skip "$system: batch, Ctrl-C" "ZIG is not set"
            elif zig=$ZIG zig_cc x86_64-windows-gnu -s tests/packaging/through_pipe.c -o "$tmp/through.exe"; then
                ends "$system" "$@" "$tmp/through.exe" "$folder/batch$exe"
            else bad "$system: batch, Ctrl-C" "through_pipe.c is not compiled"
            fi ;;
        *) ends "$system" "$@" "$folder/batch$exe" ;;
    esac
    for made in perplexity rows.npy results; do
        [ -e "$tmp/first-$made" ] || cp "$tmp/$made" "$tmp/first-$made"
        check "$system: $made" "other numbers than on the first system" cmp "$tmp/first-$made" "$tmp/$made"
    done
    "$@" "$folder/crosscheck$exe" --short -m $model -n 4 2>"$tmp/err" | tr -d '\r' >"$tmp/report"
    check "$system: crosscheck" "the report is short" test "$(wc -l <"$tmp/report")" -gt 20
    [ ! -e "$tmp/report-first" ] || check "$system: crosscheck, the bits" "they differ" \
        "$folder_first/crosscheck" --compare "$tmp/report-first" "$tmp/report"
    [ -e "$tmp/report-first" ] || { cp "$tmp/report" "$tmp/report-first"; folder_first=$folder; }
}

# ends SYSTEM COMMAND...: Ctrl-C ends batch while it waits for more lines from a pipe, which on Windows
# is one of through_pipe.c.
ends() {
    system=$1
    shift
    rm -f "$tmp/request" "$tmp/got"
    case $system in
        windows-*) sed -n 1p "$tmp/requests" >"$tmp/request" ;;
        *) mkfifo "$tmp/request" ;;
    esac
    timeout -k 5 300 "$@" -m $model -q <"$tmp/request" >"$tmp/got" 2>"$tmp/err" &
    batch=$!
    case $system in windows-*) ;; *) exec 3>"$tmp/request" && sed -n 1p "$tmp/requests" >&3 ;; esac
    wait_for $batch test -s "$tmp/got"
    sleep 1                            # it has nothing to do but to wait
    kill -INT $batch
    code=0
    wait $batch || code=$?
    exec 3>&-
    check "$system: batch, Ctrl-C while it waits" "its code is $code" test $code -eq 75
    check "$system: batch, Ctrl-C: it says so" "it does not" grep -q stopped "$tmp/err"
}

# serves SYSTEM PROGRAM EMULATOR...: serve answers with what generate writes here, sends its page and
# nothing else, and ends when it is told to.
serves() {
    system=$1 program=$2
    shift 2
    command -v curl >"$tmp/out" || { skip "$system: serve" "curl is not installed"; return; }
    printf '{"messages":[{"role":"user","content":"Who are you?"}],"max_tokens":8,"temperature":0}' >"$tmp/chat"
    printf '{"prompt":"Once upon a time","max_tokens":40,"temperature":0,"stream":true}' >"$tmp/story"
    "$generate" -m $model -cnv -p 'Who are you?' -n 8 --temp 0 </dev/null 2>"$tmp/err" | head -n 1 >"$tmp/words"
    timeout -k 5 300 "$@" "$program" -m $model --port 0 >"$tmp/out" 2>"$tmp/err" &
    server=$!
    wait_for $server grep -q 'http://' "$tmp/err"
    at=$(sed -n 's|.* on \(http://127[.]0[.]0[.]1:[0-9]*\).*|\1|p' "$tmp/err")
    get() { curl -s -m 60 --path-as-is "$@"; }
    status() { get -o "$tmp/page" -w '%{http_code}' "$at$1"; }
    get "$at/health" >"$tmp/health"
    check "$system: serve, its health" "it has none" grep -q '"ok"' "$tmp/health"
    get "$at/v1/chat/completions" -d @"$tmp/chat" >"$tmp/answer"
    check "$system: serve, a chat" "another text than generate's" \
        grep -qF "\"content\":\"$(cat "$tmp/words")\"" "$tmp/answer"
    get -N "$at/v1/completions" -d @"$tmp/story" >"$tmp/events"
    { printf 'Once upon a time'; printf '%b' "$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$tmp/events" | tr -d '\n')"
      echo; } >"$tmp/text"
    check "$system: serve, a stream" "another text than generate's" cmp "$tmp/wanted" "$tmp/text"
    check "$system: serve, a stream's parts" "it came as one" \
        test "$(grep -c '^data: {' "$tmp/events")" -gt 20 -a "$(grep -c '^data: .DONE' "$tmp/events")" -eq 1
    check "$system: serve --health" "it does not find the server" \
        "$@" "$program" --health --port "${at##*:}"
    timeout -k 5 60 "$@" "$program" -m $model --port "${at##*:}" 2>"$tmp/second"
    check "$system: serve, the same port again" "it begins" grep -q 'in use' "$tmp/second"
    status /index.html >"$tmp/status"
    check "$system: serve, its page" "another file" cmp "${program%/*}/page/index.html" "$tmp/page"
    for path in /../README.txt /..%5CREADME.txt /%2E%2E/README.txt /client%5Cbitnet.js /index.html. \
        /index.html%20 '/index.html::$DATA' /client /con /nul.txt /c:/windows/win.ini; do
        check "$system: serve, no file at $path" "there is one" test "$(status "$path")" = 404
    done
    kill -INT $server
    code=0
    wait $server || code=$?
    check "$system: serve ends" "its code is $code" test $code -eq 0
    check "$system: serve says so" "it does not" grep -q 'stopping' "$tmp/err"
}

# imports FILE WORDS: the libraries that it needs are among these.
imports() {
    $readobj --needed-libs "$1" 2>"$tmp/err" | sed -n 's/^ \{2,\}\([^ ].*\)/\1/p' |
        grep -vixE "$2" >"$tmp/more"
    check "$1 needs only $2" "it needs $(tr '\n' ' ' <"$tmp/more")" test ! -s "$tmp/more"
}

. packaging/binaries.sh
for system; do
    zig_target "$system"
    name=bitnet-$version-$system folder=build/binaries/bitnet-$version-$system
    case $system in windows-*) archive=$name.zip ;; *) archive=$name.tar.gz ;; esac
    check "$system: archive" "there is none" test -s "build/binaries/$archive"
    for file in LICENSE README.txt tiny.gguf include/bitnet_all.h include/bitnet_grammar.h; do
        check "$system: $file" "it is not there" test -s "$folder/$file"
    done
    check "$system: the page of serve" "it is not there" test -s "$folder/page/index.html"
    check "$system: names nothing of this machine" "a file names $PWD" \
        sh -c "! grep -rlF '$PWD' '$folder' | grep ."
    case $system in
        linux-*)
            lib=$folder/lib/libbitnet.so.1
            for program in $programs serve; do
                imports "$folder/$program" nothing
            done
            imports "$lib" 'libc.so.6|libpthread.so.0|libm.so.6|ld-linux-.*'
            check "$system: soname" "it has another" sh -c \
                "$readobj -d '$lib' | grep -q 'SONAME.*\[libbitnet.so.1\]'"
            check "$system: an old glibc is enough" "it wants a newer one" sh -c \
                "! $readobj --version-info '$lib' | grep -E 'GLIBC_2[.](1[89]|[2-9][0-9])'"
            $readobj --dyn-syms "$lib" | sed -n 's/^ *Name: \(bitnet_[a-z0-9_]*\)@.*/\1/p' | sort >"$tmp/names" ;;
        windows-*)
            lib=$folder/lib/bitnet-1.dll
            dlls='(kernel32|msvcrt|shell32|ws2_32|api-ms-win-crt-.*|ucrtbase|ntdll|advapi32)[.]dll'
            for program in $programs serve; do
                imports "$folder/$program.exe" "$dlls"
            done
            imports "$lib" "$dlls"
            $readobj --coff-exports "$lib" | sed -n 's/^ *Name: \(bitnet_.*\)/\1/p' | sort >"$tmp/names" ;;
        macos-*)
            lib=$folder/lib/libbitnet.1.dylib
            for program in $programs serve; do
                check "$system: $program, its libraries" "it needs others" sh -c \
                    "! $objdump --macho --dylibs-used '$folder/$program' | sed 1d | grep -v libSystem"
                check "$system: $program, for macOS 11" "it is not" sh -c \
                    "$objdump --macho --private-headers '$folder/$program' | grep -q 'minos 11.0'"
            done
            check "$system: the library's name" "it has another" sh -c \
                "$objdump --macho --dylib-id '$lib' | grep -q '@rpath/libbitnet.1.dylib'"
            $objdump --macho --exports-trie "$lib" | sed -n 's/.* _\(bitnet_[a-z0-9_]*\)$/\1/p' | sort >"$tmp/names" ;;
    esac
    sed -n 's/^[^(]*[ *]\(bitnet_[a-z0-9_]*_v1\)(.*/\1/p' tests/data/interface-1.txt | sort >"$tmp/promised"
    check "$system: the library has what is promised" "$(comm -23 "$tmp/promised" "$tmp/names" | head -3)" \
        sh -c "[ -s '$tmp/promised' ] && ! comm -23 '$tmp/promised' '$tmp/names' | grep ."
    check "$system: and exports nothing else" "$(grep -v '_v1$' "$tmp/names" | head -3)" \
        sh -c "! grep -v '_v1\$' '$tmp/names'"
    emulator=
    case $system in
        linux-"$(uname -m)")
            runs "$system" "$folder" '' env -i
            serves "$system" "$folder/serve" env -i ;;
        linux-aarch64) emulator=qemu-aarch64 exe='' ;;
        windows-x86_64)
            emulator=wine64 exe=.exe
            have_wine() { command -v wine64 >/dev/null 2>&1 || [ -x /usr/lib/wine/wine64 ]; }
            command -v wine64 >/dev/null 2>&1 || emulator=/usr/lib/wine/wine64
            unset DISPLAY
            export WINEPREFIX="$PWD/build/wine" WINEDEBUG=-all ;;
    esac
    case $emulator in
        '') ;;
        *) if command -v $emulator >/dev/null 2>&1; then
                runs "$system" "$folder" "$exe" $emulator
                serves "$system" "$folder/serve$exe" $emulator
            else skip "$system runs" "$emulator is not installed"
            fi ;;
    esac
done

# What nobody can tell from the outside: the folder is what the archive has, and the same sources give the
# same bytes again, in another folder.
first=$1 again=$tmp/again
case $first in windows-*) file=bitnet-$version-$first.zip ;; *) file=bitnet-$version-$first.tar.gz ;; esac
mkdir -p "$again"
git ls-files -z 2>/dev/null | xargs -0 cp --parents -t "$again" 2>"$tmp/err"
mkdir -p "$again/build"
ln -s "$PWD/build/zig" "$again/build/zig"
[ ! -d build/microhttpd ] || ln -s "$PWD/build/microhttpd" "$again/build/microhttpd"
export SOURCE_DATE_EPOCH=1700000000
check "again" "it fails" sh -c "cd '$again' && ./build.sh binaries $first >'$tmp/err' 2>&1"
rm -f "build/binaries/$file"
check "once more" "it fails" sh -c "./build.sh binaries $first >'$tmp/err' 2>&1"
check "the same bytes" "they differ" cmp "build/binaries/$file" "$again/build/binaries/$file"
check "refuses another system" "it goes on" sh -c "! ./build.sh binaries plan9-mips 2>'$tmp/err'"
echo "binaries: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
