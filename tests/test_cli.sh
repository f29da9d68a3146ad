#!/bin/sh
# Tests of the commands examples/generate.c and examples/bench.c, from the outside.
#     test_cli.sh PATH_TO_GENERATE PATH_TO_MODEL [PATH_TO_BENCH]
# Prints a line for each case (ok, FAIL, skip) and at the end `cli: N passed, N failed, N skipped`; exit code 1 if a
# case failed. RUN in the environment is put in front of the program (an emulator).
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: $0 PATH_TO_GENERATE PATH_TO_MODEL [PATH_TO_BENCH]" >&2; exit 2; }
case $1 in */*) program=$1 ;; *) program=./$1 ;; esac
model=$2 bench=${3:-}
[ -x "$program" ] || { echo "$0: there is no program '$program'" >&2; exit 2; }
[ -f "$model" ] || { echo "$0: there is no model '$model'" >&2; exit 2; }
. "$(dirname "$0")/cases.sh"
text() { run -m "$model" -n 24 -s 7 "$@"; }     # a seeded run
say() { text -p "Once upon a time" "$@"; }

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

# same NAME ARGS...: exit code 0 and the text in $tmp/want
same() {
    name=$1
    shift
    say "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 2 "$tmp/err")"
    elif ! cmp -s "$tmp/out" "$tmp/want"; then bad "$name" "another text: $(head -c 80 "$tmp/out")"
    else ok "$name"; fi
}

# ---- wrong usage: 2
fails no-arguments 2 "-m FILE"
fails bad-flag 2 "--bogus" --bogus
fails stray-word 2 "stray" -m "$model" stray
fails missing-value 2 "-n needs a value" -m "$model" -p x -n
fails missing-prompt 2 "no prompt" -m "$model"
fails bad-number 2 "'12x'" -m "$model" -p x -n 12x
fails bad-number-empty 2 "-n" -m "$model" -p x -n ""
fails bad-number-zero 2 "-n" -m "$model" -p x -n 0
fails bad-number-huge 2 "99999999999999999999" -m "$model" -p x -n 99999999999999999999
fails bad-number-fraction 2 "'1.5'" -m "$model" -p x -t 1.5
fails bad-real 2 "'nan'" -m "$model" -p x --temp nan
fails bad-real-range 2 "'1.01'" -m "$model" -p x --top-p 1.01
fails empty-prompt 2 "empty" -m "$model" -p ""
fails empty-stop 2 "empty" -m "$model" -p x --stop ""
fails bad-lookup 2 "from 0 to 64" -m "$model" -p x --lookup 65
fails bad-lookup-negative 2 "'-1'" -m "$model" -p x --lookup -1
fails two-prompts 2 "file" -m "$model" -p x --file "$model"
fails system-without-chat 2 "cnv" -m "$model" -p x --system y
fails unknown-kernel 2 "known are:.* scalar" -m "$model" -p x --kernel bogus
fails unknown-packing 2 "'32' is not 128, 64 or 4row" -m "$model" -p x --i2s-layout 32
fails bad-tile 2 "'64,96' is not BM,BK,bm" -m "$model" -p x --tile 64,96
fails bad-tile-end 2 "'64,96,32x' is not" -m "$model" -p x --tile 64,96,32x

# ---- failures: 1
echo "This is no model, but a text that is long enough to hold a header." > "$tmp/text"
head -c 70000 "$model" > "$tmp/cut.gguf"
: > "$tmp/empty"
fails model-missing 1 "$tmp/nowhere.gguf.*cannot open" -m "$tmp/nowhere.gguf" -p x
fails model-not-gguf 1 "not a GGUF" -m "$tmp/text" -p x
fails model-empty 1 "$tmp/empty" -m "$tmp/empty" -p x
fails model-directory 1 "$tmp" -m "$tmp" -p x
fails model-truncated 1 "$tmp/cut.gguf" -m "$tmp/cut.gguf" -p x
fails tile-negative 1 "tile -64,96,32" -m "$model" -p x --tile -64,96,32
tl2=$BITNET_TEST_DATA/models/a-tl2.gguf plain=$BITNET_TEST_DATA/models/a.gguf
if [ -f "$tl2" ]; then
    fails tile-missing 1 "TL2 of 256 rows of 256.* tile" -m "$tl2" -p x
    fails tile-wrong 1 "tile 128,384,32" -m "$tl2" -p x --tile 128,384,32
    run -m "$plain" -p x -n 8 -s 7 && cp "$tmp/out" "$tmp/plain"
    run -m "$tl2" -p x -n 8 -s 7 --tile 128,96,32
    check tile "exit code $rc, or another text" cmp -s "$tmp/out" "$tmp/plain"
else
    skip tile "models/a-tl2.gguf is not in BITNET_TEST_DATA"
fi
fails prompt-too-long 1 "do not fit" -m "$model" -c 8 -p "One two three four five six seven eight nine ten."
fails file-missing 1 "$tmp/nowhere" -m "$model" --file "$tmp/nowhere"
fails file-directory 1 "$tmp" -m "$model" --file "$tmp"
fails file-empty 1 "empty" -m "$model" --file "$tmp/empty"
printf 'a\000b' > "$tmp/zero"
fails file-zero-byte 1 "zero" -m "$model" --file "$tmp/zero"

# ---- lists
run --help
check help "no help, or exit code $rc" grep -q -e "--repeat-penalty" "$tmp/out"
run --list-kernels
check list-kernels "no usable scalar, or exit code $rc" grep -q "^scalar  *usable$" "$tmp/out"
kernels=$(awk '$2 == "usable" { print $1 }' "$tmp/out")
unusable=$(awk '$2 == "not" { print $1 }' "$tmp/out")
for k in $unusable; do fails "kernel-unusable-$k" 1 "$k" -m "$model" -p x --kernel "$k"; done
[ -n "$unusable" ] || skip kernel-unusable "this machine can run every kernel"

# ---- the same text, whatever it runs on
say -t 1
cp "$tmp/out" "$tmp/want"
check text "exit code $rc or an empty text" test $rc -eq 0 -a -s "$tmp/want"
check echo "the text does not begin with the prompt" grep -q "^Once upon a time" "$tmp/want"
check closing-line "no closing line with the seed" grep -q "prompt: .* tokens, .*new: .* tokens, .*seed 7" "$tmp/err"
check closing-line-only "more than the closing line on stderr" test "$(wc -l < "$tmp/err")" -eq 1
same seed-twice -t 1
same threads-2 -t 2
same threads-3 -t 3
same threads-default
for k in $kernels; do same "kernel-$k" --kernel "$k"; done
same context-size -c 64
same long-names --ctx-size 64 --threads 1
same verbose --verbose
check verbose-says "no parameters or no self-test on stderr" grep -q "parameters" "$tmp/err"
same packing-128 --i2s-layout 128
for p in 64 4row; do        # the model is in none of them, so the text has to be another one
    say -t 1 --i2s-layout $p
    check "packing-$p" "exit code $rc, or the text is the same" \
        sh -c "[ $rc -eq 0 ] && [ -s '$tmp/out' ] && ! cmp -s '$tmp/out' '$tmp/want'"
done
same lookup --lookup 4
same lookup-64 --lookup 64 -c 64
say -s 8
check other-seed "another seed gave the same text" sh -c "! cmp -s '$tmp/out' '$tmp/want'"
run -m "$model" -n 24 -p "Once upon a time"
cp "$tmp/out" "$tmp/first"
s=$(sed -n 's/.*seed \([0-9]*\);.*/\1/p' "$tmp/err")
run -m "$model" -n 24 -p "Once upon a time" -s "${s:-none}"
check clock-seed-repeats "-s with the printed seed '$s' gave another text" cmp "$tmp/out" "$tmp/first"
say --temp 0 -s 1
cp "$tmp/out" "$tmp/want"
same greedy-twice --temp 0 -s 2
same greedy-top-k-1 --top-k 1

repeat() { text --temp 0 -n 200 -c 160 --ignore-eos -p "One, two, one, two, one, two, one, two" "$@"; }
repeat
cp "$tmp/out" "$tmp/want"
repeat --lookup 6 -v
check lookup-repeats "another text with --lookup" cmp "$tmp/out" "$tmp/want"
check lookup-says "no guesses were right" grep -q "lookup: [1-9].* guesses, [1-9].* tokens right" "$tmp/err"
say --temp 0
cp "$tmp/out" "$tmp/want"

# ---- prompts from a file, stop strings, limits
printf 'Once upon a time\n' > "$tmp/prompt"
text --temp 0 --file "$tmp/prompt"
check file "--file gave another text than -p" cmp "$tmp/out" "$tmp/want"
text --temp 0 -f "$tmp/prompt" -n 1
check n-1 "-n 1 did not make one token" grep -q "new: 1 tokens" "$tmp/err"
# as a stop string: two characters of the greedy text, some way behind the prompt
stop=$(head -n 1 "$tmp/want" | cut -c 26-27)
if printf '%s' "$stop" | LC_ALL=C grep -q '^[ -~][ -~]$'; then
    say --temp 0 --stop "not in it" --stop "$stop"
    tail=$(cut -c 17- "$tmp/out")
    case $tail in *"$stop"*) bad stop "'$stop' is in the text" ;; *) ok stop ;; esac
    check stop-says "the closing line does not name the stop string" grep -q "stop string" "$tmp/err"
    check stop-prefix "the text is not the beginning of the whole one" \
        sh -c "case \$(cat '$tmp/want') in \"\$(cat '$tmp/out')\"*) ;; *) exit 1 ;; esac"
else skip stop "the model's text does not suit"; fi
run -m "$model" -p "Once upon a time" -c 24 --ignore-eos -s 1
check context-full "exit code $rc" test $rc -eq 0
printf 'Caf\303\251 \342\202\254 \360\237\230\200 \377' > "$tmp/bytes"
text --file "$tmp/bytes" -n 4
check prompt-bytes "the prompt's bytes are not echoed as they are" \
    sh -c "head -c $(wc -c < "$tmp/bytes") '$tmp/out' | cmp - '$tmp/bytes'"

# ---- chat
printf 'Hello\n\nWhat is the capital of France?\n' > "$tmp/chat"
input=$tmp/chat
run -m "$model" -cnv -s 1 --temp 0 --system "You are a helpful assistant."
if grep -q "no chat" "$tmp/err"; then skip chat "the model has no <|eot_id|>"
else
    if grep -q "context .* full" "$tmp/err"; then skip chat-ends "this model does not end its replies"
    else
        check chat-ends "exit code $rc" test $rc -eq 0
        check chat-replies "$(wc -l < "$tmp/out") lines for 2 messages" test "$(wc -l < "$tmp/out")" -ge 2
        check chat-end-of-text "the last reply did not end by itself" grep -q "end of text" "$tmp/err"
    fi
    cp "$tmp/out" "$tmp/want"
    tail -n 1 "$tmp/chat" > "$tmp/chat2"
    input=$tmp/chat2
    run -m "$model" --chat -s 1 --temp 0 -sys "You are a helpful assistant." -p Hello
    check chat-first-message "-p as the first message gave another chat" cmp "$tmp/out" "$tmp/want"
    input=$tmp/chat
    run -m "$model" -cnv -s 1 --temp 0 --system "You are a helpful assistant." --lookup 8
    check chat-lookup "another chat with --lookup" cmp "$tmp/out" "$tmp/want"
    run -m "$model" -cnv -s 1 --temp 0 -n 3
    check chat-cut-reply "exit code $rc with replies cut off by -n 3" test $rc -eq 0
    run -m "$model" -cnv -s 1 --temp 0 -c 24 --ignore-eos
    check chat-context-full "exit code $rc, or no word of the context" \
        sh -c "[ $rc -eq 1 ] && grep -q 'context.*full' '$tmp/err'"
    input=/dev/null
    run -m "$model" -cnv
    check chat-no-input "exit code $rc" test $rc -eq 0 -a ! -s "$tmp/out"
fi
input=
# the same model without its end-of-turn token
LC_ALL=C sed 's/<|eot_id|>/<|eot_no|>/g' "$model" > "$tmp/no-eot.gguf" 2> "$tmp/err"
run -m "$tmp/no-eot.gguf" -p "Once" -n 2
if [ $rc -eq 0 ] && ! cmp -s "$model" "$tmp/no-eot.gguf"; then
    fails chat-without-template 1 "no chat" -m "$tmp/no-eot.gguf" -cnv
else skip chat-without-template "this sed cannot edit the model"; fi

# ---- an output that takes nothing, and Ctrl-C
if [ -c /dev/full ] && ! (: && echo x > /dev/full) 2> /dev/null; then
    $RUN "$program" -m "$model" -p "Once upon a time" -n 8 > /dev/full 2> "$tmp/err"
    rc=$?
    check full-device "exit code $rc, not 1, or no word of it" sh -c "[ $rc -eq 1 ] && grep -q 'cannot write' '$tmp/err'"
    $RUN "$program" --help > /dev/full 2> "$tmp/err"
    rc=$?
    check full-device-help "exit code $rc, not 1" test $rc -eq 1
else skip full-device "there is no /dev/full here"; fi

# A shell starts background jobs with SIGINT ignored, and only the program itself can undo that: generate does. The
# long context gives it text for minutes.
: > "$tmp/running"
$RUN "$program" -m "$model" -p "Once upon a time" --ignore-eos -c 100000 -t 1 > "$tmp/out" 2> "$tmp/err" &
pid=$!
i=0
while [ ! -s "$tmp/out" ] && [ $i -lt 100 ] && kill -0 $pid 2> /dev/null; do sleep 0.1; i=$((i + 1)); done
sleep 0.2
kill -INT $pid 2> /dev/null
(   # after 20 s by force; ends by itself half a second after the file is gone
    trap - EXIT
    i=0
    while [ -e "$tmp/running" ] && [ $i -lt 40 ]; do sleep 0.5; i=$((i + 1)); done
    [ ! -e "$tmp/running" ] || kill -KILL $pid
) > /dev/null 2>&1 &
wait $pid
rc=$?
rm -f "$tmp/running"
check interrupt "exit code $rc, not 130" test $rc -eq 130
check interrupt-text "no text, or no newline at its end" sh -c "[ -s '$tmp/out' ] && [ \"\$(tail -c 1 '$tmp/out' | wc -l)\" -eq 1 ]"
check interrupt-closing-line "no closing line" grep -q "interrupted" "$tmp/err"

# ---- bench: wrong usage, and which rows it prints; never how fast anything is
bench_rows() { # NAME TEXT COUNT: so many rows of the last output hold the text
    n=$(grep -c -e "$2" "$tmp/out")
    check "$1" "$n rows with $2, not $3" test "$n" -eq "$3"
}
json_is() { # NAME CONDITION: Python's, of the last output as j
    check "$1" "not so: $2" python3 -c "import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$tmp/out"
}
bench_tests() {
    program=$bench                                  # what run and fails start
    fails bench-bad-flag 2 "--bogus" "$model" --bogus
    fails bench-two-models 2 "stray" "$model" stray
    fails bench-missing-value 2 "-t wants a number" "$model" -t
    fails bench-bad-number 2 "-r wants a number from 1" "$model" -r 0
    fails bench-bad-number-tail 2 "-t wants a number from 1" "$model" -t 2x
    fails bench-missing-kernel 2 "--kernel" "$model" --kernel
    fails bench-unknown-kernel 2 "bogus" "$model" --kernel bogus
    for k in $unusable; do fails "bench-kernel-unusable-$k" 1 "$k" "$model" --kernel "$k"; done
    fails bench-model-missing 1 "$tmp/nowhere.gguf" "$tmp/nowhere.gguf"
    fails bench-model-directory 1 "cannot read $tmp" "$tmp"
    fails bench-model-empty 1 "cannot read $tmp/empty" "$tmp/empty"
    fails bench-model-not-gguf 1 "not a GGUF" "$tmp/text"

    # what tests/web/bench.mjs asks
    run "$model" --save "$tmp/saved.gguf"
    check bench-save "exit code $rc" cmp "$model" "$tmp/saved.gguf"
    fails bench-save-nowhere 1 "cannot write $tmp/no/" "$model" --save "$tmp/no/saved.gguf"
    echo "scalar 2" > "$tmp/ask"
    input=$tmp/ask
    run "$model" --ask
    input=
    check bench-ask "exit code $rc: $(cat "$tmp/out")" sh -c "sed -n 2p '$tmp/out' | grep -qE '^[1-9][0-9.]* [1-9][0-9.]*$'"
    bench_rows bench-ask-kernels "^.*scalar $" 1

    n_kernels=$(echo "$kernels" | wc -w)
    run "$model" --quick -r 1 -t 2 --json
    check bench "exit code $rc" test $rc -eq 0
    check bench-numbers "a number that is none" sh -c "! grep -i -e '[ -]nan' -e '[ -]inf' '$tmp/out'"
    for k in $kernels; do bench_rows "bench-kernel-$k" "\"kernel\": \"$k\", \"run\"" 5; done
    for n in 32 128 512; do bench_rows "bench-prefill-$n" "\"prefill\", \"tokens\": $n, \"head\": \"-\"" "$n_kernels"; done
    for head in screened full; do bench_rows "bench-decode-$head" "\"decode\", \"tokens\": 0, \"head\": \"$head\"" "$n_kernels"; done
    for n in 1 2; do bench_rows "bench-threads-$n" "\"threads\": $n," 1; done
    run "$model" --quick -r 1 -t 1 --kernel scalar
    bench_rows bench-text-prefill "^scalar  *prefill " 3
    bench_rows bench-text-decode "^scalar  *decode " 2
    bench_rows bench-one-thread "threads prefill" 0
    command -v python3 > /dev/null || { skip bench-json "python3 is not installed"; return; }

    # a context that is long enough for every row: the file's number, 32 bits behind its key and type
    long='p = b.index(b".context_length") + 19; open(sys.argv[2], "wb").write(b[:p] + b"\0\x10\0\0" + b[p + 4:])'
    python3 -c "import sys; b = open(sys.argv[1], 'rb').read(); $long" "$model" "$tmp/long.gguf"
    run "$tmp/long.gguf" -r 2 -t 3 --json --kernel "$(echo "$kernels" | head -n 1)"
    json_is bench-json "[t['threads'] for t in j['threads']] == [1, 2, 3] and len(j['kernels']) == 1"
    json_is bench-long-prefill "[r['tokens'] for r in j['runs'] if r['run'] == 'prefill'] == [32, 128, 512, 4096]"
    json_is bench-long-decode "[r['tokens'] for r in j['runs'] if r['head'] == 'full'] == [0, 1024, 4096]"
    json_is bench-exact-rows "all(0 < r['exact_rows'] < 2048 for r in j['runs'] if r['head'] == 'screened')"
    json_is bench-positive "all(r['tok_s'] > 0 and r['gmac_s'] > 0 for r in j['runs'])"
    run "$tmp/long.gguf" --profile -r 2 -t 3 --json
    json_is bench-profile "[(r['run'], r['tokens']) for r in j['profile'] if r['unit'] == 'ms'] ==
        [('prefill', 512), ('decode', 0), ('decode', 1024)]"
    json_is bench-profile-sum "all(abs(sum(v for k, v in r.items() if k not in ('run', 'tokens', 'unit', 'total'))
        - r['total']) < r['total'] / 1000 for r in j['profile'])"
    json_is bench-profile-parts "all(r[k] > 0 for r in j['profile'] for k in
        ('norm', 'quantize', 'matmul', 'attention', 'embed', 'waiting', 'rest'))"
    json_is bench-profile-head "all((r['head'] > 0) == (r['run'] == 'decode') for r in j['profile'])"
}
if [ -n "$bench" ]; then bench_tests; else skip bench "no program was named"; fi

echo "cli: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
