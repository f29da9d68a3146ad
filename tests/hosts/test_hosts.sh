#!/bin/sh
# Tests of examples/hosts: the library in other people's loops. The texts are those of generate.
#     test_hosts.sh FOLDER_OF_THE_PROGRAMS PATH_TO_GENERATE PATH_TO_MODEL
# The model is examples/tiny.gguf: the prompts and counts are for it. Prints a line for each case and at the end
# `hosts: N passed, N failed, N skipped`.
[ $# -eq 3 ] || { echo "usage: $0 FOLDER_OF_THE_PROGRAMS PATH_TO_GENERATE PATH_TO_MODEL" >&2; exit 2; }
folder=$1 generate=$2 model=$3 here=$(dirname "$0")
. "$here/../cases.sh"

# text PROMPT N: what generate writes behind it, greedily, and a newline
text() {
    "$generate" -m "$model" -p "$1" -n "$2" --temp 0 --log-disable -no-cnv 2> "$tmp/err" | tail -c +$((${#1} + 1))
}
story="Once upon a time" dog="The dog" cat="A cat"
text "$story" 100 > "$tmp/story"
text "$dog" 100 > "$tmp/dog"
text "$cat" 100 > "$tmp/cat"
[ "$(wc -c < "$tmp/story")" -gt 200 ] && ! cmp -s "$tmp/dog" "$tmp/cat" || { bad texts "$(cat "$tmp/err")"; exit 1; }

# same NAME FILE...: exit code 0, and the output is these files
same() {
    name=$1
    shift
    cat "$@" > "$tmp/want"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 2 "$tmp/err")"
    elif ! cmp -s "$tmp/out" "$tmp/want"; then bad "$name" "another text: $(head -c 200 "$tmp/out")"
    else ok "$name"; fi
}
# cut_short NAME FILE LEAST MOST NEXT: the first line has LEAST to MOST bytes that FILE begins with, the others
# are NEXT
cut_short() {
    head -n 1 "$tmp/out" | tr -d '\n' > "$tmp/first"
    n=$(wc -c < "$tmp/first")
    head -c "$n" "$2" > "$tmp/begins"
    if [ "$n" -lt "$3" ] || [ "$n" -gt "$4" ]; then bad "$1" "$n bytes of the text that was cancelled"
    elif ! cmp -s "$tmp/first" "$tmp/begins"; then bad "$1" "it begins with another text: $(cat "$tmp/first")"
    else tail -n +2 "$tmp/out" > "$tmp/rest"; mv "$tmp/rest" "$tmp/out"; same "$1" "$5"; fi
}

# ---- thread: the queue holds 64 bytes, so that the host cancels before the text has ended
program=$folder/thread
fails thread-usage 1 usage
run "$model" "$(printf '%05000d' 0)" "$dog"
check thread-failed "exit code $rc; $(cat "$tmp/err")" sh -c "[ $rc -eq 1 ] && grep -q 'do not fit' '$tmp/err'"
fails thread-no-model 1 "cannot open" "$tmp/none.gguf" x
run "$model" "$story" "$dog" "$cat"
same thread-texts "$tmp/story" "$tmp/dog" "$tmp/cat"
run "$model" "-$story" "$dog"
cut_short thread-cancel "$tmp/story" 20 84 "$tmp/dog"

# ---- events: a file always has an event, until its end
program=$folder/events input=$tmp/lines
printf '%s\n' "$story" > "$tmp/lines"
fails events-usage 2 usage
run "$model"
same events-text "$tmp/story"
printf '%s\n?\n?\n?\n?\n\n%s' "$story" "$dog" > "$tmp/lines"
run "$model"
cut_short events-cancel "$tmp/story" 1 40 "$tmp/dog"
# Events came between layers of the prompt's only pass, not just between passes.
check events-pause "$(cat "$tmp/err")" grep -qx "0 of 5 tokens read, 2 pauses" "$tmp/err"
printf '%05000d\n%s' 0 "$dog" > "$tmp/lines"
run "$model"
same events-long-line "$tmp/dog"
check events-long-line-said "$(cat "$tmp/err")" grep -qx "events: a line of over 4095 bytes is left out" "$tmp/err"
input=

# ---- game: with no budget a frame has one layer, of 4
program=$folder/game
text "$story" 40 > "$tmp/reply"
fails game-usage 2 usage "$model"
for wrong in x 0 8x 65537; do fails "game-batch-$wrong" 2 "65536" "$model" "$dog" "$wrong"; done
for wrong in x -1 8ms nan; do fails "game-budget-$wrong" 2 usage "$model" "$dog" 8 "$wrong"; done
frames() { sed -n 's/^the prompt was read: \([0-9]*\) frames.*/\1/p' "$tmp/err"; }
run "$model" "$story"
same game-text "$tmp/reply"
run "$model" "$story" 2 0
same game-text-by-layers "$tmp/reply"
check game-frames "$(cat "$tmp/err")" [ "$(frames)" -ge 11 ]

# ---- server
program=$folder/server
for wrong in x 80x 65536 -1 ""; do fails "server-port-$wrong" 1 65535 "$model" "$wrong"; done
if command -v python3 > /dev/null 2>&1; then
    python3 "$here/server_users.py" "$folder/server" "$model" "$story=$tmp/story" "$dog=$tmp/dog" "$cat=$tmp/cat" \
        > "$tmp/users" 2>&1
    cat "$tmp/users"
    passed=$((passed + $(grep -c '^ok ' "$tmp/users"))) failed=$((failed + $(grep -c '^FAIL ' "$tmp/users")))
    grep -q '^end$' "$tmp/users" || bad server "the test has not come to its end"
else skip server "python3 is not installed"; fi

# ---- plugin: two copies of the library in one process
program=$folder/host
fails plugin-usage 1 usage
run "$model" "$dog" "$folder/one.so" "$folder/two.so"
same plugin-texts "$tmp/dog" "$tmp/dog"
fails plugin-none 1 teller_open "$model" "$dog" libc.so.6 "$folder/two.so"
fails plugin-long-prompt 1 "do not fit" "$model" "$(printf '%03000d' 0)" "$folder/one.so" "$folder/two.so"
if command -v nm > /dev/null 2>&1; then
    nm -D --defined-only "$folder/one.so" | sed 's/.* //' | grep -v '^_' | sort | tr '\n' ' ' > "$tmp/names"
    check plugin-names "it shows $(cat "$tmp/names")" grep -qx "teller_close teller_open teller_tell " "$tmp/names"
else skip plugin-names "nm is not installed"; fi

echo "hosts: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
