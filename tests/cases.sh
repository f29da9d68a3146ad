# Sourced by the shell tests of commands: cases, and the run of $program, with $RUN (an emulator) in
# front of it.
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0 rc=0
emulator=${RUN%% *} emulator=${emulator##*/}     # its own warnings on stderr don't count

ok() { echo "ok $1"; passed=$((passed + 1)); }
bad() { echo "FAIL $1: $2"; failed=$((failed + 1)); }
skip() { echo "skip $1: $2"; skipped=$((skipped + 1)); }
check() { # NAME WHAT_IS_WRONG COMMAND...: the case passes if the command does
    name=$1 wrong=$2
    shift 2
    if "$@" > /dev/null 2>&1; then ok "$name"; else bad "$name" "$wrong; stderr: $(head -n 3 "$tmp/err" | tr '\n' ' ')"; fi
}
# run ARGS...: the program without a terminal; its code in rc, its outputs in $tmp/out and $tmp/err
run() {
    $RUN "$program" "$@" > "$tmp/out" 2> "$tmp/err" < "${input:-/dev/null}"
    rc=$?
    [ -z "$RUN" ] || { grep -v "^[^ ]*$emulator: " "$tmp/err" > "$tmp/own"; mv "$tmp/own" "$tmp/err"; }
}
# fails NAME CODE WORD ARGS...: that exit code, nothing on stdout, one line on stderr that holds the word
fails() {
    name=$1 code=$2 word=$3
    shift 3
    run "$@"
    if [ $rc -ne "$code" ]; then bad "$name" "exit code $rc, not $code; stderr: $(head -n 2 "$tmp/err")"
    elif [ -s "$tmp/out" ]; then bad "$name" "there is text on stdout: $(head -c 60 "$tmp/out")"
    elif [ "$(wc -l < "$tmp/err")" -ne 1 ]; then bad "$name" "stderr has $(wc -l < "$tmp/err") lines, not 1"
    elif ! grep -q -e "$word" "$tmp/err"; then bad "$name" "'$word' is not in: $(cat "$tmp/err")"
    else ok "$name"; fi
}
# wait_for PID COMMAND...: until the command succeeds; fails if that process ends before, or after ten minutes
wait_for() {
    waits_on=$1 waited=0
    shift
    until "$@"; do
        kill -0 "$waits_on" 2> /dev/null || { "$@"; return; }
        [ $waited -lt 6000 ] || return 1
        sleep 0.1
        waited=$((waited + 1))
    done
}
# fills_streams NAME ARGS...: the program, which waits for the pipe $tmp/waits, has something in the places of
# descriptors 0 to 2 that are closed
fills_streams() {
    name=$1 waited=0
    shift
    if [ ! -d /proc/self/fd ] || [ -n "$RUN" ]; then skip "$name" "no /proc, or an emulator"; return; fi
    [ -p "$tmp/waits" ] || mkfifo "$tmp/waits"
    "$program" "$@" <&- >&- 2>&- &
    until are_filled $! || [ $waited -eq 50 ]; do sleep 0.1; waited=$((waited + 1)); done
    check "$name" "descriptors: $(ls -l /proc/$!/fd | tr '\n' ' ')" are_filled $!
    kill $!
    wait $! 2> /dev/null
}
are_filled() { [ /proc/$1/fd/0 -ef /dev/null -a /proc/$1/fd/1 -ef /dev/null -a /proc/$1/fd/2 -ef /dev/null ]; }
# on_terminal COMMAND: what it shows on one, as it comes in $tmp/raw, in lines in $tmp/tty; its code in rc
on_terminal() {
    script -qec "$1" /dev/null < /dev/null > "$tmp/raw" 2> /dev/null
    rc=$?
    tr '\r' '\n' < "$tmp/raw" > "$tmp/tty"
}
has_terminal() { on_terminal 'test -t 2 && echo yes' && grep -q -x yes "$tmp/tty"; }
