#!/bin/sh
# Tests of build.sh itself: what it installs and how it asks, what a run of suites says at the end, what
# it runs for a change.
# Nothing is installed: apt-get, apt-cache, sudo and id are fakes, and so are the tools, the packages
# and the suites of a copy of the tree.
# Ends with "build: N passed, N failed, N skipped". Run from the repository's root.
. tests/cases.sh

ALL_SUITES=$(BITNET_TEST_DATA='' sh -c '. tests/suites.sh; echo $ALL_SUITES')
tree=$tmp/tree bin=$tmp/bin
mkdir -p "$tree/tests" "$bin"
cp build.sh "$tree"

# ---- the tree: suite plain needs no tool, the others have one each
cat > "$tree/tests/packages.txt" << END
# packages; proof; suites; condition
tool-a lib-a; $bin/tool-a,tool-a /bin/sh; red     # with a comment
tool-b; tool-b; blue green
gcc-N-tool; tool-c; cyan; $(uname -m)
tool-d; tool-d; late
tool-e; tool-e; red; --all
other; no-such-tool; all; !$(uname -m)
data; no-such-tool; all; data/none
END
cat > "$tree/tests/suites.sh" << 'END'
SUITES="plain red
    blue cyan"
ALL_SUITES="late $SUITES"
suite_commands() {
    case $1 in
        plain) echo "whole: $BITNET__WHOLE"; echo "one ... skip models/x is not in BITNET_TEST_DATA"
            echo "two ... skip y is not in BITNET_TEST_DATA"
            echo "skip three: no such CPU"; echo "5 passed, 0 failed, 3 skipped" ;;
        red) need tool-a; echo "1 passed, 0 failed, 0 skipped" ;;
        blue) need tool-b; echo "1 passed, 0 failed, 0 skipped" ;;
        cyan) need tool-c; echo "1 passed, 0 failed, 0 skipped" ;;
        late) need tool-d; echo "7 passed, 0 failed, 0 skipped" ;;
        silent) : ;;
        failing) echo "FAIL it"; echo "1 passed, 1 failed, 0 skipped" ;;
    esac
}
END

# ---- the fakes: a package's tools come with it; $tmp/refused and $tmp/excluded name packages that
# cannot be had, and that others exclude
cat > "$bin/apt-get" << END
#!/bin/sh
[ ! -e "$tmp/no-apt" ] || exit 127     # as if there were none
[ "\$1" != --version ] || exit 0
echo "apt-get \$*" >> "$tmp/calls"
echo "\${DEBIAN_FRONTEND:-asks}" >> "$tmp/frontend"
for word; do
    ! grep -qxe "\$word" "$tmp/refused" || { echo "E: Unable to locate package \$word"; exit 100; }
    if grep -qxe "\$word" "$tmp/excluded"; then
        printf 'The following packages will be REMOVED:\n  old-1\n  old-2 old-3\nThe following NEW'
        printf ' packages will be installed:\n  %s\nE: Packages need to be removed but remove is disabled.\n' \$word
        exit 100
    fi
done
for word; do
    case \$word in
        tool-*) printf '#!/bin/sh\n' > "$bin/\$word"; chmod +x "$bin/\$word" ;;
        gcc-13-tool) printf '#!/bin/sh\n' > "$bin/tool-c"; chmod +x "$bin/tool-c" ;;
    esac
done
END
cat > "$bin/sudo" << END
#!/bin/sh
echo "sudo" >> "$tmp/calls"
exec "\$@"
END
cat > "$bin/id" << END
#!/bin/sh
echo \$FAKE_UID
END
cat > "$bin/apt-cache" << END
#!/bin/sh
printf 'gcc\n  Depends: cpp\n  Depends: gcc-13\n  Suggests: gcc-13-doc\n'
END
printf '#!/bin/sh\nexit 1\n' > "$bin/gcc"       # as if there were none
chmod +x "$bin"/*

# bare: nothing is installed, everything can be had
bare() {
    rm -rf "$tree/build" "$bin"/tool-* "$tmp/calls" "$tmp/frontend"
    : > "$tmp/calls"
    : > "$tmp/refused"
    : > "$tmp/excluded"
}
# build UID ARGS...: build.sh as that user; its code in rc, all it says in $tmp/out. Words with = in
# front of the UID are its environment.
build() {
    set -- "$@" --end
    environment=
    while case $1 in *=*) true ;; *) false ;; esac do environment="$environment $1"; shift; done
    uid=$1
    shift
    words=
    while [ "$1" != --end ]; do words="$words $1"; shift; done
    (cd "$tree" && env -u BITNET_NO_INSTALL -u BITNET_INSTALL -u RUN -u BITNET__SET_UP CC=sh \
        BITNET_TEST_DATA=/no/data PATH="$bin:$PATH" FAKE_UID="$uid" $environment ./build.sh $words) \
        > "$tmp/out" 2>&1
    rc=$?
    cp "$tmp/out" "$tmp/err"
}
says() { check "$1" "'$2' is not in: $(tail -n 12 "$tmp/out" | tr '\n' '/')" grep -q -e "$2" "$tmp/out"; }
silent_on() { check "$1" "'$2' is in: $(tail -n 12 "$tmp/out" | tr '\n' '/')" sh -c "! grep -q -e '$2' '$tmp/out'"; }
ends() { check "$1" "exit code $rc, not $2: $(tail -n 5 "$tmp/out" | tr '\n' '/')" test $rc -eq "$2"; }
calls() { # NAME CALL...: these and no others
    name=$1
    shift
    for call; do echo "$call"; done > "$tmp/wanted"
    check "$name" "$(tr '\n' '/' < "$tmp/calls")" cmp -s "$tmp/wanted" "$tmp/calls"
}
wait_for_lock="-o DPkg::Lock::Timeout=600"
update="apt-get $wait_for_lock update -q"
install="apt-get $wait_for_lock install -y -q --no-remove --no-install-recommends"

# ---- who may install: root, and sudo only where it is asked for
bare
build 0 test
ends root 0
calls root-calls "$update" "$install tool-a lib-a tool-b gcc-13-tool"
says root-tells-before "^    tool-a lib-a  *for red$"
says root-tells-packages "^    gcc-13-tool  *for cyan$"
check root-order "it installs before it says what" sh -c "grep -n -e 'for red' -e ' install ' '$tmp/out' |
    head -n 1 | grep -q 'for red'"
check root-asks-nothing "a package may ask: $(cat "$tmp/frontend")" sh -c "! grep -vx noninteractive '$tmp/frontend'"
says root-runs "^8 passed, 0 failed, 3 skipped$"
build 0 test
silent_on root-again-is-silent "set-up"
check root-again-installs-nothing "$(tail -n 1 "$tmp/calls")" test "$(wc -l < "$tmp/calls")" -eq 2

bare
: > "$tmp/no-apt"
build 0 test
rm "$tmp/no-apt"
ends no-apt 0
calls no-apt-calls
says no-apt-tells "not installed (there is no apt-get)"
says no-apt-runs-the-rest "^5 passed, 0 failed, 6 skipped$"

bare
build 1000 test
ends user 0
calls user-calls
says user-tells "not installed (this is not root; with BITNET_INSTALL=sudo"
says user-tells-what "^    tool-b  *for blue green$"
says user-runs-the-rest "^5 passed, 0 failed, 6 skipped$"
says user-left-out "^left out: red (tool-a is not installed), blue (tool-b is not installed), cyan (tool-c"
build 1000 deps
ends user-deps 1
calls user-deps-calls

bare
build BITNET_INSTALL=sudo 1000 test
ends sudo 0
calls sudo-calls sudo "$update" sudo "$install tool-a lib-a tool-b gcc-13-tool"
says sudo-runs "^8 passed, 0 failed, 3 skipped$"
bare
build BITNET_INSTALL=sudo 0 deps
ends sudo-as-root 0
calls sudo-as-root-calls "$update" "$install tool-a lib-a tool-b gcc-13-tool"
bare
build BITNET_INSTALL=yes 1000 test
says install-other-value "BITNET_INSTALL can only be sudo"
calls install-other-value-calls

bare
for uid in 0 1000; do
    build BITNET_NO_INSTALL=1 BITNET_INSTALL=sudo $uid test
    ends "no-install-$uid" 0
    calls "no-install-$uid-calls"
    says "no-install-$uid-tells" "not installed (BITNET_NO_INSTALL=1)"
done
build 0 suite plain red
calls suite-installs-nothing
says suite-skips "^left out: red (tool-a is not installed)$"
ends suite-skips-code 0

# ---- test --all: a suite that test has not, with its packages
bare
build 0 test --all
ends all 0
calls all-calls "$update" "$install tool-a lib-a tool-b gcc-13-tool tool-d tool-e"
says all-runs "^15 passed, 0 failed, 3 skipped$"
bare
build 0 deps --all
calls all-deps-calls "$update" "$install tool-a lib-a tool-b gcc-13-tool tool-d tool-e"
build 0 suite late
ends all-suite 0
in_full() { # NAME 0|1 ARGS...: test alone runs suites in part
    full=$1-in-full wanted=$2
    shift 2
    build BITNET_NO_INSTALL=1 0 "$@"
    check "$full" "$(head -n 1 "$tree/build/plain.log")" grep -qx "whole: $wanted" "$tree/build/plain.log"
}
in_full test 0 test
in_full all 1 test --all
in_full suite 1 suite plain
for typed in "test all" "test --al" "test --all x" "deps late"; do
    build 0 $typed
    ends "$typed" 2
    says "$typed-says" "^${typed%% *}: '${typed#* }' is neither --all nor --changed "
    silent_on "$typed-runs-nothing" "passed"
done

# ---- what cannot be had
bare
echo tool-b > "$tmp/refused"
build 0 test
ends refused 1
says refused-named "^FAIL set-up: tool-b could not be installed (build/apt.log); for blue green$"
says refused-others-run "^7 passed, 1 failed, 4 skipped$"
says refused-left-out "^left out: blue (tool-b is not installed)$"
check refused-others-installed "$(cat "$tmp/calls")" grep -qx -e "$install tool-a lib-a" "$tmp/calls"
check refused-log "no reason in build/apt.log" grep -q "locate package tool-b" "$tree/build/apt.log"
bare
echo tool-b > "$tmp/refused"
build 0 deps
ends refused-deps 1

bare
echo tool-b > "$tmp/excluded"
build 0 test
ends excluded 0
says excluded-named "^skip set-up: tool-b: apt would remove old-1 old-2 old-3; for blue green$"
says excluded-left-out "^left out: blue (tool-b is not installed)$"
silent_on excluded-only "apt would remove.*for red"

bare
printf '%s\n' tool-a > "$tmp/refused"
build BITNET_INSTALL=sudo 1000 test
ends sudo-refused 1
says sudo-refused-named "^FAIL set-up: tool-a lib-a could not be installed"

# a tool that is there for the set-up, and is gone for the suite
bare
build 0 deps
sed 's/need tool-c;/rm -f "$(command -v tool-c)"; need tool-c;/' "$tree/tests/suites.sh" > "$tmp/suites.sh"
cp "$tree/tests/suites.sh" "$tmp/kept.sh"
cp "$tmp/suites.sh" "$tree/tests/suites.sh"
build 0 test
cp "$tmp/kept.sh" "$tree/tests/suites.sh"
ends vanished 1
says vanished-named "^FAIL set-up: cyan: tool-c is not installed$"

# ---- a run that tests nothing fails
for words in "suite" "suite nosuch" "suite plain nosuch"; do
    build 0 $words
    ends "$words" 2
    says "$words-lists" "late plain red blue cyan"
    silent_on "$words-runs-nothing" "passed"
done
bare
build 0 suite red
ends nothing-passed 1
says nothing-passed-says "^nothing was tested$"
sed -i 's/plain red$/plain red silent failing/' "$tree/tests/suites.sh"
build 0 suite plain silent
ends counted-nothing 1
says counted-nothing-says "^FAIL silent counted no test$"
build 0 suite plain failing
ends one-failed 1
says one-failed-says "^6 passed, 1 failed, 3 skipped$"
for typed in run "suite plain"; do
    build CC=no-such-compiler 0 $typed
    ends "no-compiler $typed" 1
    says "no-compiler-says $typed" "no C compiler 'no-such-compiler'"
done

# ---- the summary says why tests were skipped; from another folder, and with sh in front
build 0 suite plain
says skipped-data "^skipped: *2 BITNET_TEST_DATA (/no/data) is not there$"
says skipped-cpu "^skipped: *1 no such CPU$"
build BITNET_TEST_DATA="$tmp" 0 suite plain
says skipped-data-there "^skipped: *2 its data are not in BITNET_TEST_DATA ($tmp)$"
(cd "$tmp" && CC=sh BITNET_TEST_DATA=/no/data sh tree/build.sh suite plain) > "$tmp/out" 2>&1
rc=$?
ends other-folder 0
mkdir "$tmp/elsewhere"
ln -s ../tree/build.sh "$tmp/elsewhere/link"
(cd "$tmp" && CC=sh BITNET_TEST_DATA=/no/data sh elsewhere/link suite plain) > "$tmp/out" 2>&1
rc=$?
ends link 0
(cd "$tmp" && sh tree/build.sh nonsense) > "$tmp/out" 2>&1
rc=$?
says usage-other-folder "^  ./build.sh t "
ends usage 2
for typed in help --help; do
    build 0 $typed
    ends "$typed" 0
    says "$typed-is-whole" "^BITNET_TEST_DATA "
done

# ---- the page of serve: whole, or the command fails
cat > "$bin/fake-cc" << 'END'
#!/bin/sh
for word; do [ "$last" != -o ] || : > "$word"; last=$word; done
END
chmod +x "$bin/fake-cc"
mkdir -p "$tree/web/page" "$tree/web/client" "$tree/web/shared"
touch "$tree/LICENSE" "$tree/bitnet.h" "$tree/web/client/platform-node.js" \
    "$tree/web/client/platform-inline.js" "$tree/web/list.mjs" "$tree/web/page/index.html"
echo "import 'bitnet-engines';" > "$tree/web/client/bitnet.js"
build CC=fake-cc ESBUILD=none 0 server
ends page 0
says page-is-there "^The page of serve is build/page"
check page-links "$(cat "$tree/build/page/client/bitnet.js")" grep -qx "import './engines.js';" \
    "$tree/build/page/client/bitnet.js"
rm "$tree/web/page/index.html"
build CC=fake-cc ESBUILD=none 0 server
ends page-lacks-a-file 1
silent_on page-lacks-a-file-says "The page of serve is"

# ---- wrong arguments
for port in abc 1x 65536 100000; do
    build 0 serve $port
    ends "port-$port" 2
    says "port-$port-says" "^serve: '$port' is not a port (0 to 65535)$"
done

# ---- fuzz: a target that finds something fails, and so does one that hardly runs. The fake compiler
# makes a program that tells how much it has run: each target something else.
mkdir -p "$tree/tests/fuzz/inputs"
cp tests/fuzz/run.sh "$tree/tests/fuzz"
for target in $(sed -n '/^TARGETS=/,/"$/p' tests/fuzz/run.sh | tr -d '"\\' | sed 's/TARGETS=//'); do
    : > "$tree/tests/fuzz/inputs/$target.txt"
    check "fuzz-inputs-$target" "no inputs" test -s "tests/fuzz/inputs/$target.txt"
done
cat > "$bin/fake-clang" << 'END'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
cat > "$2" << 'PROGRAM'
#!/bin/sh
for word; do
    case $0$word in *-state-artifact_prefix=*) echo x > "${word#*=}crash-1"; echo "ERROR: a fault" ;; esac
done
case $0 in
    *-gguf) echo "stat::number_of_executed_units: 25" ;;
    *-chat) echo "stat::number_of_executed_units: 24" ;;
    *-request) exit 1 ;;
    *) echo "stat::number_of_executed_units: 5000" ;;
esac
PROGRAM
chmod +x "$2"
END
chmod +x "$bin/fake-clang"
build CLANG=fake-clang 0 fuzz 5 gguf kernels
ends fuzz 0
says fuzz-passes "^fuzz: 2 passed, 0 failed, 0 skipped$"
build CLANG=fake-clang 0 fuzz 5 gguf chat request state
ends fuzz-dead 1
says fuzz-slow "^FAIL chat ran 24 inputs in 5 s, under 5 a second; see build/fuzz/chat.log$"
says fuzz-no-run "^FAIL request ran no inputs in 5 s"
says fuzz-finding "^FAIL state: build/fuzz/crashes/state-crash-1; replay: "
says fuzz-finding-why "^ERROR: a fault$"
says fuzz-counts "^fuzz: 1 passed, 3 failed, 0 skipped$"
build CLANG=fake-clang 0 fuzz
ends fuzz-no-time 1
build CLANG=fake-clang 0 fuzz 5 nothing
ends fuzz-no-target 1
build CLANG=no-such-clang 0 fuzz 5
ends fuzz-no-clang 1
says fuzz-no-clang-says "no-such-clang is not installed"
# inputs are kept as text, and come out of it as they were
printf 'x\0\377 \n\n' > "$tmp/bytes"
: > "$tmp/empty"
keep() { (cd "$tree" && sh tests/fuzz/run.sh keep "$@") > "$tmp/out" 2>&1; rc=$?; cp "$tmp/out" "$tmp/err"; }
keep gguf odd-bytes "$tmp/bytes"
ends keep 0
keep gguf none "$tmp/empty"
ends keep-none 0
build CLANG=fake-clang 0 fuzz 5 gguf
for file in bytes/odd-bytes empty/none; do
    check "kept-$file" "not what was kept" cmp "$tmp/${file%/*}" "$tree/build/fuzz/inputs/gguf/${file#*/}"
done
keep gguf odd-bytes "$tmp/empty"
says keep-twice "gguf has an input 'odd-bytes'"
ends keep-twice-fails 1
keep gguf "two words" "$tmp/empty"
ends keep-name 1
keep nothing name "$tmp/empty"
ends keep-target 1

# ---- what a change needs: this tree's table, sections and files, in a repository of their own
if command -v git > /dev/null 2>&1; then
    repo=$tmp/repo
    mkdir -p "$repo/tests/unit" "$repo/examples"
    cp bitnet.h build.sh "$repo"
    cp tests/README.md tests/changed.sh tests/suites.sh "$repo/tests"
    echo build > "$repo/.gitignore"
    echo 1 | tee "$repo/tests/unit/test_text.c" > "$repo/examples/generate.c"
    in_repo() { git -C "$repo" -c user.name=x -c user.email=x@x "$@"; }
    kept() { in_repo add -A && in_repo commit -qm x; }
    in_repo init -q && kept
    list() { # ARGS...: build.sh test --changed --list; its code in rc
        rc=0
        (cd "$repo" && ./build.sh test --changed --list "$@") > "$tmp/out" 2>&1 || rc=$?
        cp "$tmp/out" "$tmp/err"
    }
    edit() { in_repo checkout -qf . && sed -i.old "$2" "$repo/$1" && rm "$repo/$1.old"; }

    list
    ends changed-nothing 2
    says changed-nothing-says "^nothing differs from HEAD$"
    edit bitnet.h '/^   @sampler /s/$/ x/'
    list
    ends changed-section 0
    says changed-section-named "^changed @sampler bitnet.h$"
    says changed-section-tests "^t .*head/ .*text/"
    says changed-section-suites "^suite .*check"
    silent_on changed-section-alone "server"
    edit bitnet.h '/^   @sampler /,/^   @generate /{/bitnet__/d;}'
    list
    says changed-lines-gone "^changed @sampler bitnet.h$"
    edit bitnet.h '3s/$/ x/'
    list
    says changed-manual "^changed @manual bitnet.h$"
    edit bitnet.h '/^   @head /s/$/ x/; /^   @generate /s/$/ x/'
    echo 2 | tee "$repo/tests/unit/test_text.c" > "$repo/examples/generate.c"
    list
    says changed-many "^changed @generate @head bitnet.h examples/generate.c tests/unit/test_text.c$"
    says changed-many-suites "^suite .*cli"
    kept
    list HEAD
    ends changed-base-is-head 2
    list HEAD~1
    says changed-base "^changed @generate @head bitnet.h examples/generate.c"
    list HEAD HEAD
    ends changed-two-bases 2
    list nowhere
    ends changed-no-base 2
    says changed-no-base-says "there is no commit 'nowhere'"
    echo 2 > "$repo/tests/unit/test_text.c"
    echo 3 >> "$repo/tests/unit/test_text.c"
    list
    says changed-test-file "^t text/$"
    echo 1 > "$repo/examples/other.c"
    list
    ends changed-unnamed 2
    says changed-unnamed-says "^no row of tests/README.md names examples/other.c$"
    rm "$repo/examples/other.c"
    rm "$repo/examples/generate.c"
    list
    says changed-file-gone "^changed examples/generate.c "
    edit bitnet.h 's/^   @sampler /   @another /'
    (cd "$repo" && sh tests/changed.sh --unnamed) > "$tmp/out"
    rc=$?
    ends changed-section-without-row 1
    says changed-section-without-row-says "^@another$"
    echo '#!/bin/sh
echo "changed build.sh"; echo t; echo suite plain' > "$tree/tests/changed.sh"
    bare
    build BITNET_NO_INSTALL=1 0 test --changed
    ends changed-runs 0
    says changed-runs-suite "^5 passed, 0 failed, 3 skipped$"
    silent_on changed-runs-no-other "red"

    if git rev-parse -q --verify HEAD > /dev/null 2>&1; then
        sh tests/changed.sh --unnamed > "$tmp/out"
        check changed-all-named "no row names $(tr '\n' ' ' < "$tmp/out")" test ! -s "$tmp/out"
    else skip changed-all-named "this is no repository"; fi
else skip changed "git is not installed"; fi

# the table's words: tests and suites that are there
eval "$(sed -n '/^test_files() {/,/^}/p' build.sh)"
for filter in $(sh tests/changed.sh --rows | cut -d'|' -f2 | sort -u); do
    [ "$filter" = NAME/ ] || check "row-test-$filter" "no such test" test -n "$(test_files "$filter")"
done
# A filter is a text, no option or pattern of grep.
for filter in --help '[nosuch'; do check "filter-$filter" "it is one" test -z "$(test_files "$filter" 2>&1)"; done
for suite in $(sh tests/changed.sh --rows | cut -d'|' -f3 | sort -u); do
    check "row-suite-$suite" "no such suite" sh -c "echo $ALL_SUITES | tr ' ' '\n' | grep -qx -e '$suite'"
done

# ---- the real table: its suites are there, each line has its parts
sed -e 's/#.*//' -e '/^ *$/d' tests/packages.txt > "$tmp/table"
check table-parts "$(awk -F';' 'NF < 3 || NF > 4' "$tmp/table")" sh -c "! awk -F';' 'NF < 3 || NF > 4' '$tmp/table' | grep ."
for suite in $(cut -d';' -f3 "$tmp/table"); do
    check "table-suite-$suite" "no such suite" sh -c "echo all $ALL_SUITES | tr ' ' '\\n' | grep -qx -e '$suite'"
done

echo "build: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
