#!/bin/sh
# Tests of the commands examples/generate and examples/bench, from the outside.
#     test_cli.sh PATH_TO_GENERATE PATH_TO_MODEL [PATH_TO_BENCH PATH_TO_CONVERT]
# Prints a line for each case (ok, FAIL, skip) and at the end `cli: N passed, N failed, N skipped`; exit code 1 if a
# case failed. RUN in the environment is put in front of the program (an emulator).
[ $# -eq 2 ] || [ $# -eq 4 ] ||
    { echo "usage: $0 PATH_TO_GENERATE PATH_TO_MODEL [PATH_TO_BENCH PATH_TO_CONVERT]" >&2; exit 2; }
case $1 in */*) program=$1 ;; *) program=./$1 ;; esac
model=$2 bench=${3:-} convert=${4:-}
[ -x "$program" ] || { echo "$0: there is no program '$program'" >&2; exit 2; }
[ -f "$model" ] || { echo "$0: there is no model '$model'" >&2; exit 2; }
. "$(dirname "$0")/../cases.sh"
text() { run -m "$model" -n 24 -s 7 "$@"; }     # a seeded run
say() { text -p "Once upon a time" "$@"; }

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
fails missing-prompt-no-chat 2 "no prompt" -m "$model" -no-cnv
fails value-of-a-flag 2 "--ignore-eos takes no value" -m "$model" -p x --ignore-eos=1
fails unknown-with-value 2 "'--bogus=1'" -m "$model" -p x --bogus=1
fails bad-kv-type 2 "'q8_0' is not f16, f32 or i8" -m "$model" -p x --kv-type q8_0
fails bad-switch 2 "'purple' is not on, off or auto" -m "$model" -p x --color=purple
fails bad-grammar 2 "--grammar: line 1, column 10: the rule x is not defined" -m "$model" -p x --grammar "root ::= x"
fails bad-schema 2 "--json-schema: line 1, column 9: #/type: none of the types object, array, string" -m "$model" -p x -j '{"type":"x"}'
fails no-grammar-file 1 "'no-such-file'" -m "$model" -p x --grammar-file no-such-file
fails two-grammars 2 "only one of" -m "$model" -p x -j "{}" --grammar 'root ::= "x"'
fails bad-number 2 "'12x'" -m "$model" -p x -n 12x
fails bad-number-empty 2 "-n" -m "$model" -p x -n ""
fails bad-number-zero 2 "-n" -m "$model" -p x -n 0
fails bad-number-huge 2 "99999999999999999999" -m "$model" -p x -n 99999999999999999999
fails bad-number-fraction 2 "'1.5'" -m "$model" -p x -t 1.5
fails bad-number-negative 2 "-c: '-1'" -m "$model" -p x -c -1
fails bad-number-below 2 "--predict: '-3'" -m "$model" -p x --predict=-3
fails bad-number-threads 2 "-t: '-2'" -m "$model" -p x -t -2
fails bad-number-batch 2 "--batch-size: '0'" -m "$model" -p x --batch-size 0
fails bad-number-keep 2 "--keep: '-2'" -m "$model" -p x --keep -2
fails bad-number-last-n 2 "--repeat-last-n: '-2'" -m "$model" -p x --repeat-last-n -2
fails bad-number-seed 2 "'4294967296'" -m "$model" -p x -s 4294967296
fails bad-number-hex 2 "'0x10'" -m "$model" -p x -n 0x10
fails bad-real 2 "'nan'" -m "$model" -p x --temp nan
fails bad-real-infinite 2 "'inf'" -m "$model" -p x --temp=inf
fails bad-real-hex 2 "'0x1p2'" -m "$model" -p x --temp 0x1p2
fails bad-real-negative 2 "'-0.5'" -m "$model" -p x --temp -0.5
fails bad-real-huge 2 "'1e999'" -m "$model" -p x --repeat-penalty 1e999
fails bad-real-empty 2 "--temp: ''" -m "$model" -p x --temp=
fails bad-real-range 2 "'1.01'" -m "$model" -p x --top-p 1.01
fails empty-prompt 2 "empty" -m "$model" -p ""
fails empty-stop 2 "empty" -m "$model" -p x --stop ""
fails bad-lookup 2 "from 0 to 64" -m "$model" -p x --lookup 65
fails bad-lookup-negative 2 "'-1'" -m "$model" -p x --lookup -1
fails two-prompts 2 "file" -m "$model" -p x --file "$model"
fails reasoning-on 2 "'bitnet-2b-4t' does not think" -m "$model" -cnv -st -p x --reasoning on
fails reasoning-bad 2 "'maybe' is not on, off or auto" -m "$model" -p x --reasoning=maybe
fails system-without-chat 2 "-no-cnv" -m "$model" -p x --system y -no-cnv
fails two-systems 2 "-sysf" -m "$model" -p x -sys y -sysf z
fails zero-escape 2 "-p: .x00" -m "$model" -p 'a\x00b'
fails unknown-kernel 2 "known are:.* scalar" -m "$model" -p x --kernel bogus
fails unknown-packing 2 "'32' is not 128, 64 or 4row" -m "$model" -p x --i2s-packing 32
fails bad-tile 2 "'64,96' is not BM,BK,bm" -m "$model" -p x --tile 64,96
fails bad-tile-end 2 "'64,96,32x' is not" -m "$model" -p x --tile 64,96,32x

# ---- failures: 1
echo "This is no model, but a text that is long enough to hold a header." > "$tmp/text"
head -c 70000 "$model" > "$tmp/cut.gguf"
: > "$tmp/empty"
fails model-missing 1 "$tmp/nowhere.gguf.*cannot open" -m "$tmp/nowhere.gguf" -p x
fails hostile-name 1 "a?.31mb?c" -m "$(printf 'a\033[31mb\342\200\256c')" -p x
check hostile-name-clean "the name's escape characters are in the message" \
    sh -c "! LC_ALL=C grep -q '$(printf '\033')' '$tmp/err'"
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

# ---- standard streams that are closed
fills_streams streams-closed -m "$model" -f "$tmp/waits"
"$program" -m "$model" -p "Once" -n 4 -s 7 > "$tmp/want" 2> /dev/null
"$program" -m "$model" -p "Once" -n 4 -s 7 > "$tmp/out" 2>&-
check stderr-closed "exit code $?, or another text" cmp "$tmp/want" "$tmp/out"
"$program" -m "$model" -p "Once" -n 4 -s 7 2> "$tmp/err" >&-
check stdout-closed "exit code $?" [ $? -eq 1 ]
"$program" -m "$model" -n 4 > "$tmp/out" 2> "$tmp/err" <&-
check stdin-closed "exit code $?" [ $? -eq 1 ]
check stdin-closed-said "it does not say so" grep -q "cannot read 'stdin'" "$tmp/err"
if [ -n "$bench" ]; then program=$bench fills_streams bench-streams-closed "$tmp/waits"; fi

# ---- no memory for a file that is written: nothing of it is left
if [ -z "$RUN" ] && ${CC:-cc} -shared -fPIC "$(dirname "$0")/../faults.c" -o "$tmp/faults.so" -ldl 2> "$tmp/err"; then
    mkdir "$tmp/scarce"
    FAULT_FDOPEN=1 LD_PRELOAD=$tmp/faults.so "$program" -m "$model" -p x -n 1 --prompt-cache "$tmp/scarce/cache" \
        > "$tmp/out" 2> "$tmp/err"
    check no-memory-cache "exit code $?" [ $? -eq 1 ]
    check no-memory-cache-said "it does not say so" grep -q "cannot write '$tmp/scarce/cache': Cannot allocate" "$tmp/err"
    check no-memory-cache-leaves "$(ls "$tmp/scarce")" [ -z "$(ls "$tmp/scarce")" ]
else skip no-memory-cache "a library for LD_PRELOAD cannot be made"; fi

# ---- lists
run --help
check help "no help, or exit code $rc" grep -q -e "--repeat-penalty" "$tmp/out"
run --version
check version "no version, or exit code $rc" grep -q "bitnet.h [0-9]*[.][0-9]*[.][0-9]*, kernels" "$tmp/out"
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
same kv-f16 --kv-type f16
say --kv-type i8 -t 1
cp "$tmp/out" "$tmp/i8"
check kv-i8 "exit code $rc or an empty text" test $rc -eq 0 -a -s "$tmp/i8"
mv "$tmp/want" "$tmp/f16"
mv "$tmp/i8" "$tmp/want"
for k in $kernels; do same "kv-i8-$k" --kernel "$k" --kv-type i8 -t 2; done
mv "$tmp/f16" "$tmp/want"
same long-names --ctx-size 64 --threads 1
same llama-names --predict=24 --seed 7 --temp=0.8 --top_k 40 --threads -1 --batch-size 3
same llama-defaults --escape --mmap --display-prompt --no-context-shift --keep 3 --color off
same no-mmap --no-mmap
same no-penalty --repeat-penalty 9 --repeat-last-n 0
say --repeat-penalty 9 --repeat-last-n -1
check penalty "the text is the same, or exit code $rc" sh -c "[ $rc -eq 0 ] && ! cmp -s '$tmp/out' '$tmp/want'"
for penalty in frequency presence; do
    same no-$penalty --$penalty-penalty 9 --repeat-last-n 0
    say --$penalty-penalty 9 --repeat-last-n -1
    check $penalty-penalty "the text is the same, or exit code $rc" \
        sh -c "[ $rc -eq 0 ] && ! cmp -s '$tmp/out' '$tmp/want'"
done
same without-effect -ngl 99 --mlock -fa on --flash-attn -fa --numa distribute -tb 2 --no-warmup --mirostat=0
check without-effect-says "the warning does not name them, or is not one line" sh -c "[ \$(wc -l < '$tmp/err') -eq 2 ] &&
    grep -q 'without effect here: -ngl, --mlock, -fa, --flash-attn, -fa, --numa, -tb, --no-warmup, --mirostat' '$tmp/err'"
same log-disable --log-disable -ngl 99 --no-perf
check log-disable-says "there is something on stderr" test ! -s "$tmp/err"
same no-perf --no-perf
check no-perf-says "there are statistics" test ! -s "$tmp/err"
say --no-display-prompt
check no-display-prompt "the text is not the same without the prompt" \
    sh -c "{ printf 'Once upon a time'; cat '$tmp/out'; } | cmp - '$tmp/want'"
same verbose --verbose
check verbose-says "no parameters or no self-test on stderr" grep -q "parameters" "$tmp/err"
same packing-128 --i2s-packing 128
for p in 64 4row; do        # the model is in none of them, so the text has to be another one
    say -t 1 --i2s-packing $p
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
same greedy-top-p-0 --temp 50 --top-p 0 --min-p 0

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
input=$tmp/prompt
text --temp 0 -f -
check file-stdin "-f - gave another text than -p" cmp "$tmp/out" "$tmp/want"
text --temp 0
check piped "a piped prompt gave another text than -p" cmp "$tmp/out" "$tmp/want"
text --temp 0 -p "Once upon a time"
check piped-unread "-p gave another text with something on stdin" cmp "$tmp/out" "$tmp/want"
input=
# windows FILE: the same text in $tmp/windows, with a byte order mark in front and lines that end in CRLF
windows() { { printf '\357\273\277'; sed 's/$/\r/' "$1"; } > "$tmp/windows"; }
windows "$tmp/prompt"
text --temp 0 --file "$tmp/windows"
check file-windows "a byte order mark or CRLF made another text" cmp "$tmp/out" "$tmp/want"
input=$tmp/windows
text --temp 0
check piped-windows "a byte order mark or CRLF made another text" cmp "$tmp/out" "$tmp/want"
input=
printf '\357\273\277\r\n' > "$tmp/windows"
fails file-windows-empty 1 "is empty" -m "$model" --file "$tmp/windows"
# begins NAME PROMPT ARGS...: the output begins with this prompt, which printf makes
begins() {
    name=$1
    printf "$2" > "$tmp/begin"
    shift 2
    run -m "$model" -n 1 "$@"
    check "$name" "exit code $rc, or it begins otherwise: $(head -c 40 "$tmp/out" | od -An -c | tr '\n' ' ')" \
        sh -c "[ $rc -eq 0 ] && head -c $(wc -c < "$tmp/begin") '$tmp/out' | cmp - '$tmp/begin'"
}
begins escapes 'a\nb\tc\rd"e\047f\\g\101\351h\\q\\x4\\' -p 'a\nb\tc\rd\"e\'"'"'f\\g\x41\xE9h\q\x4\'
begins no-escapes 'a\\nb\\x41' --no-escape -p 'a\nb\x41'
printf 'a\\nb' > "$tmp/begin-file"
begins escapes-not-in-files 'a\\nb' -f "$tmp/begin-file"
begins escapes-in-files 'a\nb' -f "$tmp/begin-file" -e
printf 'a\r\nb\r\n\r\n' > "$tmp/begin-file"
begins one-line-end-less 'a\r\nb\r\n' -f "$tmp/begin-file"
printf 'a\r' > "$tmp/begin-file"
begins no-line-end 'a\r' -f "$tmp/begin-file"
# control tokens that a prompt spells: tokens in plain text, text in messages or if that is asked for
# counts NAME N ARGS...: N tokens are evaluated
counts() {
    name=$1 wanted=$2
    shift 2
    run -m "$model" -n 1 --temp 0 "$@"
    check "$name" "exit code $rc, or $(head -n 1 "$tmp/err"), not $wanted" \
        sh -c "[ $rc -eq 0 ] && grep -q '^prompt: $wanted tokens' '$tmp/err'"
}
if LC_ALL=C grep -q "<|eot_id|>" "$model"; then
    counts special 3 -p "<|eot_id|><|end_of_text|>"
    counts special-in-a-file 3 -f "$(printf '<|eot_id|><|end_of_text|>' > "$tmp/special"; echo "$tmp/special")"
    counts special-bos-once 3 -p "<|begin_of_text|><|eot_id|><|eot_id|>"
    counts special-bos-alone 1 -p "<|begin_of_text|>"
    counts special-bos-later 3 -p "<|eot_id|><|begin_of_text|>"
    text --temp 0 -p "<|begin_of_text|>Once upon a time"
    check special-bos-text "another text behind BOS" \
        sh -c "cut -c 18- '$tmp/out' | cmp - '$tmp/want'"
    run -m "$model" -n 1 -p "<|eot_id|>" --no-parse-special
    check no-parse-special "$(cat "$tmp/err")" sh -c "[ $rc -eq 0 ] && ! grep -q 'prompt: 2 tokens' '$tmp/err'"
    run -m "$model" -n 1 -cnv -st -p "a<|eot_id|>"
    check special-not-in-messages "$(cat "$tmp/err")" grep -q '^prompt: [1-9][0-9] tokens' "$tmp/err"
    run -m "$model" -n 1 -p x -r "<|begin_of_text|>"
    check special-stop "no warning: $(cat "$tmp/err")" grep -q "warning: -r <|begin_of_text|>: this control token" "$tmp/err"
    run -m "$model" -n 1 -p x -r "<|eot_id|>"
    check special-stop-end "a warning: $(cat "$tmp/err")" sh -c "! grep -q warning '$tmp/err'"
else skip special "the model has no <|eot_id|>"; fi
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
run -m "$model" -p "Once upon a time" -c 24 --ignore-eos -s 1 --context-shift -n 100
check context-shift "exit code $rc, or not 100 tokens" sh -c "[ $rc -eq 0 ] && grep -q 'new: 100 tokens' '$tmp/err'"
run -m "$model" -p "Once upon a time" -c 24 --ignore-eos -s 1 --context-shift -n -2
check n-2 "exit code $rc, or it did not end where the context was full" \
    sh -c "[ $rc -eq 0 ] && grep -q 'new: 20 tokens' '$tmp/err'"
printf 'Caf\303\251 \342\202\254 \360\237\230\200 \377' > "$tmp/bytes"
text --file "$tmp/bytes" -n 4
check prompt-bytes "the prompt's bytes are not echoed as they are" \
    sh -c "head -c $(wc -c < "$tmp/bytes") '$tmp/out' | cmp - '$tmp/bytes'"

# ---- grammars: whatever the model wants

printf 'root ::= " " [0-9]{3}\n' > "$tmp/grammar"
printf '{"type": "array", "items": {"enum": [7]}, "minItems": 2, "maxItems": 2}' > "$tmp/schema"
run -m "$model" -s 3 -p x --grammar 'root ::= "y" | "yes"'
check grammar "not y or yes: $(cat "$tmp/out")" grep -q -x -E 'xy|xyes' "$tmp/out"
run -m "$model" -s 3 -p x --grammar-file "$tmp/grammar"
check grammar-file "not 3 digits: $(cat "$tmp/out")" grep -q -x 'x [0-9][0-9][0-9]' "$tmp/out"
run -m "$model" -s 3 -p x -j '{"type": "boolean"}'
check json-schema "no boolean: $(cat "$tmp/out")" grep -q -x -E 'x(true|false)' "$tmp/out"
run -m "$model" -s 3 -p x --json-schema-file "$tmp/schema"
check json-schema-file "no such array: $(cat "$tmp/out")" \
    sh -c "tr -d ' \\t\\n' < '$tmp/out' | grep -q -x 'x\[7,7\]'"
windows "$tmp/grammar"
run -m "$model" -s 3 -p x --grammar-file "$tmp/windows"
check grammar-file-windows "not 3 digits: $(cat "$tmp/out" "$tmp/err")" grep -q -x 'x [0-9][0-9][0-9]' "$tmp/out"
windows "$tmp/schema"
run -m "$model" -s 3 -p x --json-schema-file "$tmp/windows"
check json-schema-file-windows "no such array: $(cat "$tmp/out" "$tmp/err")" \
    sh -c "tr -d ' \\t\\n' < '$tmp/out' | grep -q -x 'x\[7,7\]'"
printf 'root ::= "a\\n\\"b"\n' > "$tmp/grammar"
run -m "$model" -p x --grammar-file "$tmp/grammar" -e --no-perf
check grammar-file-escapes "-e changed the grammar: $(cat "$tmp/err")" sh -c "printf 'xa\n\"b\n' | cmp - '$tmp/out'"
run -m "$model" -s 3 -p x -n 4 -j '{"type": "string", "minLength": 90}'
check grammar-cut "no word about it: $(cat "$tmp/err")" grep -q "ends before the grammar's end" "$tmp/err"

# ---- chat
printf 'Hello\n\nWhat is the capital of France?\n' > "$tmp/chat"
input=$tmp/chat
run -m "$model" -cnv -s 1 --temp 0 --system "You are a helpful assistant."
if grep -q "no chat" "$tmp/err"; then skip chat "the model has no <|eot_id|>"
else
    check chat-ends "exit code $rc" test $rc -eq 0
    check chat-replies "$(wc -l < "$tmp/out") lines for 2 messages" test "$(wc -l < "$tmp/out")" -eq 2
    check chat-end-of-text "the last reply did not end by itself" grep -q "end of text" "$tmp/err"
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
    printf 'You are a helpful assistant.\n' > "$tmp/system"
    run -m "$model" --interactive --system-prompt-file "$tmp/system" --temp=0
    check chat-system-file "another chat with -sysf" cmp "$tmp/out" "$tmp/want"
    read_tokens=$(grep -o '^prompt: [0-9]* tokens' "$tmp/err")
    windows "$tmp/system"
    run -m "$model" --interactive --system-prompt-file "$tmp/windows" --temp=0
    check chat-system-file-windows "a byte order mark or CRLF made another chat, or not $read_tokens" \
        sh -c "cmp '$tmp/out' '$tmp/want' && grep -q '^$read_tokens' '$tmp/err'"
    windows "$tmp/chat"
    input=$tmp/windows
    run -m "$model" --interactive --system-prompt-file "$tmp/system" --temp=0 -v
    check chat-windows "another chat with a byte order mark or CRLF" cmp "$tmp/out" "$tmp/want"
    check chat-template-said "no word of it: $(cat "$tmp/err")" grep -q "^chat template: [a-z0-9]" "$tmp/err"
    input=$tmp/chat
    run -m "$model" --conversation --system-prompt "You are a helpful assistant." --temp 0 --reverse-prompt "Nowhere"
    check chat-llama-names "another chat" cmp "$tmp/out" "$tmp/want"

    # single turns: -p, or all of stdin, is the only message
    run -m "$model" --temp 0 -st -p Hello
    cp "$tmp/out" "$tmp/hello"
    check single-turn "not one line, or exit code $rc" test $rc -eq 0 -a "$(wc -l < "$tmp/out")" -eq 1
    echo Hello > "$tmp/chat1"
    input=$tmp/chat1
    run -m "$model" --temp 0 --single-turn
    check single-turn-stdin "another reply" cmp "$tmp/out" "$tmp/hello"
    input=/dev/null
    fails single-turn-empty 2 "no message: give -p or --file; stdin is empty" -m "$model" -cnv -st -n 40
    input=$tmp/chat1

    # what cannot be sent is refused in a line, and the chat goes on: the reply to Hello is its first
    # refused NAME WORD MESSAGE: printf makes the message
    refused() {
        { printf "$3"; printf '\nHello\n'; } > "$tmp/chat1"
        run -m "$model" -cnv --temp 0 --no-perf
        check "$1" "exit code $rc, not one line with '$2', or another reply" sh -c "[ $rc -eq $4 ] &&
            [ \$(wc -l < '$tmp/err') -eq 1 ] && grep -q -e '$2' '$tmp/err' && cmp '$tmp/out' '$tmp/hello'"
    }
    refused chat-refused "tokens do not fit; the context has 512" "$(seq 300 | tr '\n' ' ')" 1
    refused chat-zero-byte "zero byte" 'He\000llo' 1
    refused chat-megabyte "tokens do not fit" "$(head -c 1000000 /dev/zero | tr '\0' 'a')" 1
    refused chat-unknown-command "/home. is not a command" '/home is where the heart is' 1
    printf 'Tell me a story.\n/clear\nHello\n/exit\nHello\n' > "$tmp/chat1"
    run -m "$model" -cnv --temp 0
    check chat-clear "/clear did not begin anew, or /exit did not end" \
        sh -c "[ $rc -eq 0 ] && tail -n +2 '$tmp/out' | cmp - '$tmp/hello'"
    # the first reply fills the context
    printf 'Tell me a story.\n/clear\nHello\n' > "$tmp/chat1"
    run -m "$model" -cnv -s 1 -c 64 --ignore-eos --no-context-shift
    check chat-clear-room "exit code $rc, or no second reply" \
        sh -c "[ $rc -eq 0 ] && [ \$(wc -l < '$tmp/out') -eq 2 ] && ! grep -q 'do not fit' '$tmp/err'"
    printf '//x\n' > "$tmp/chat1"
    run -m "$model" -cnv --temp 0
    cp "$tmp/out" "$tmp/slash"
    run -m "$model" -st --temp 0 -p /x
    check chat-slash "//x is not /x" cmp "$tmp/out" "$tmp/slash"
    printf 'One\\\ntwo\\\nthree\n' > "$tmp/chat1"
    run -m "$model" -cnv --temp 0
    cp "$tmp/out" "$tmp/lines"
    run -m "$model" -st --temp 0 -p 'One\ntwo\nthree'
    check chat-lines "lines that end in a backslash are not one message" cmp "$tmp/out" "$tmp/lines"

    # a context that is too short for the chat
    for i in 1 2 3 4 5 6 7 8; do echo "Tell me a story."; done > "$tmp/chat1"
    run -m "$model" -cnv -s 1 -c 64 -n 30 --ignore-eos
    check chat-context-full "exit code $rc, or not 240 tokens" \
        sh -c "[ $rc -eq 0 ] && grep -q 'new: 240 tokens' '$tmp/err' && grep -q 'context of 64 tokens is full' '$tmp/err'"
    run -m "$model" -cnv -s 1 -c 64 --ignore-eos
    check chat-endless-reply "exit code $rc, or not 64 tokens for each reply" \
        sh -c "[ $rc -eq 0 ] && grep -q 'new: 512 tokens' '$tmp/err'"
    run -m "$model" -cnv -s 1 -c 64 --ignore-eos --no-context-shift
    check chat-no-shift "exit code $rc, or no word of it" sh -c "[ $rc -eq 1 ] && [ \$(wc -l < '$tmp/out') -eq 1 ] &&
        grep -q 'the reply ends here' '$tmp/err' && [ \$(grep -c 'do not fit.*/clear' '$tmp/err') -eq 7 ]"
    fails chat-long-system 1 "system message is too long" -m "$model" -cnv -c 64 -sys "$(seq 30 | tr '\n' ' ')"

    # without a template: lines that go on with the text
    printf 'there was\n' > "$tmp/chat1"
    run -m "$model" -no-cnv -i --temp 0 -p "Once upon a time" -n 5
    check interactive-text "exit code $rc, or not two texts of 5 tokens" \
        sh -c "[ $rc -eq 0 ] && [ \$(wc -l < '$tmp/out') -eq 2 ] && grep -q 'new: 10 tokens' '$tmp/err'"
    input=/dev/null
    fails system-stdin-empty 1 "'stdin' is empty" -m "$model" -cnv -sysf -
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

# ---- the prompt cache
story="Once upon a time there was a girl who liked to play in the garden"
cached() { text -v --prompt-cache "$tmp/cache" "$@"; }  # -v says how much of the prompt it had
text -p "$story"
cp "$tmp/out" "$tmp/want"
# has NAME N OF WANT ARGS...: the text of WANT, of whose prompt the cache had N of OF tokens
has() {
    name=$1 word="$2 of $3 tokens are in the prompt cache" want=$4
    shift 4
    cached "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(grep generate: "$tmp/err" | tail -n 1)"
    elif ! cmp -s "$tmp/out" "$want"; then bad "$name" "another text: $(head -c 80 "$tmp/out")"
    elif ! grep -q "$word" "$tmp/err"; then bad "$name" "not '$word': $(grep 'in the prompt' "$tmp/err")"
    else ok "$name"; fi
}
cached -p "$story" --prompt-cache-ro
check cache-read-only "exit code $rc, or there is a file" sh -c "[ $rc -eq 0 ] && [ ! -e '$tmp/cache' ]"
n=$(sed -n 's/.* 0 of \([0-9]*\) tokens.*/\1/p' "$tmp/err")
: > "$tmp/cache"                       # as mktemp makes it
has cache-empty 0 "$n" "$tmp/want" -p "$story"
cp "$tmp/cache" "$tmp/cache1"
has cache-full $((n - 1)) "$n" "$tmp/want" -p "$story" -t 2 -b 3 -c 200
check cache-unchanged "the file changed, or something is beside it" sh -c "cmp '$tmp/cache' '$tmp/cache1' && [ ! -e '$tmp/cache'.* ]"
for k in $kernels; do has "cache-kernel-$k" $((n - 1)) "$n" "$tmp/want" -p "$story" --kernel "$k"; done
text -p "$story near the old tree"
cp "$tmp/out" "$tmp/longer"
cached -p "$story near the old tree" --prompt-cache-ro
check cache-longer "another text, or exit code $rc" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/longer'"
check cache-longer-part "not $((n - 1)) tokens were kept, or the file changed" \
    sh -c "grep -q ' $((n - 1)) of .* in the prompt cache' '$tmp/err' && cmp '$tmp/cache' '$tmp/cache1'"
cached -p "$story near the old tree"
check cache-grows "the file is as before, or exit code $rc" \
    sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/longer' && ! cmp -s '$tmp/cache' '$tmp/cache1'"
has cache-shorter $((n - 1)) "$n" "$tmp/want" -p "$story"
text -p "Tom had a cat"
cp "$tmp/out" "$tmp/other"
cached -p "Tom had a cat"
check cache-other-prompt "exit code $rc, or another text" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/other'"
cached -p "$story" --prompt-cache-all --no-display-prompt
check cache-all "exit code $rc, or a file without the new text" \
    sh -c "[ $rc -eq 0 ] && [ \$(wc -c < '$tmp/cache') -gt \$(wc -c < '$tmp/cache1') ]"
cp "$tmp/cache1" "$tmp/cache"
chmod 600 "$tmp/cache"
run -m "$model" -cnv --prompt-cache "$tmp/cache" --prompt-cache-all < /dev/null
check cache-no-reply "exit code $rc, or the file changed" sh -c "[ $rc -eq 0 ] && cmp '$tmp/cache' '$tmp/cache1'"
cached -p "$story near the old tree"
check cache-private "exit code $rc, or others may read it" sh -c "[ $rc -eq 0 ] && ! cmp -s '$tmp/cache' '$tmp/cache1' &&
    ls -l '$tmp/cache' | grep -q '^-rw-------'"
cp "$tmp/cache1" "$tmp/cache"
head -c 5000 "$tmp/cache1" > "$tmp/cut"
fails cache-cut 1 "saved sequence.*but it has 5000" -m "$model" -p "$story" --prompt-cache "$tmp/cut"
fails cache-no-state 1 "this is no saved sequence" -m "$model" -p "$story" --prompt-cache "$model"
fails cache-too-long 1 "saved sequence has .* tokens, the context 8 .*; see -c" -m "$model" -p a -c 8 --prompt-cache "$tmp/cache"
fails cache-directory 1 "cannot read '$tmp': it is not a file" -m "$model" -p "$story" --prompt-cache "$tmp"
LC_ALL=C sed 's/<|eot_id|>/<|eot_no|>/g' "$model" > "$tmp/other.gguf" 2> "$tmp/err"
if cmp -s "$model" "$tmp/other.gguf"; then skip cache-other-model "this sed cannot edit the model"
else
    fails cache-other-model 1 "saved with another model" -m "$tmp/other.gguf" -p "$story" --prompt-cache "$tmp/cache"
fi
text -p "$story" --prompt-cache "$tmp/nowhere/cache"
check cache-not-written "exit code $rc, not 1, another text, or no word of it" \
    sh -c "[ $rc -eq 1 ] && cmp '$tmp/out' '$tmp/want' && grep -q \"cannot write '$tmp/nowhere/cache'\" '$tmp/err'"
# a disk that is full: a limit of 8 KB or 16 KB, by the shell
if (ulimit -f 16) 2> /dev/null && [ -z "$RUN" ]; then
    (ulimit -f 16; text -p "$story near the old tree" --prompt-cache "$tmp/cache"; exit $rc)
    rc=$?
    check cache-disk-full "exit code $rc, another text, or the old file is not as it was" \
        sh -c "[ $rc -eq 1 ] && cmp '$tmp/out' '$tmp/longer' && grep -q \"cannot write '$tmp/cache': File too large\" '$tmp/err' &&
            cmp '$tmp/cache' '$tmp/cache1' && [ ! -e '$tmp/cache'.* ]"
else skip cache-disk-full "this shell cannot limit the size of files"; fi

# only a file is replaced, and nothing beside it; FD 4 is the pipe's other end, so that nobody waits for one
mkdir "$tmp/beside"
echo other > "$tmp/beside/cache.new"
pipe=
if mkfifo "$tmp/pipe" 2> /dev/null && exec 4<> "$tmp/pipe"; then
    pipe=$tmp/pipe
    fails cache-pipe 1 "cannot read '$pipe': it is not a file" -m "$model" -p "$story" --prompt-cache "$pipe"
    check cache-pipe-stays "it is gone" test -p "$pipe"
else skip cache-pipe "there are no pipes with names here"; fi
text -p "$story" --prompt-cache "$tmp/beside/cache"
check cache-beside "exit code $rc, or more than the cache was written" sh -c "[ $rc -eq 0 ] && [ -s '$tmp/beside/cache' ] &&
    [ \"\$(ls '$tmp/beside' | tr '\n' ' ')\" = 'cache cache.new ' ] && [ \$(cat '$tmp/beside/cache.new') = other ]"
rm "$tmp/beside/cache"                 # the program gets the process of the shell that takes the first name for its file
sh -c 'echo other > "$0.$$-0.part" && exec "$@"' "$tmp/beside/cache" $RUN "$program" -m "$model" -n 1 -p "$story" \
    --prompt-cache "$tmp/beside/cache" > "$tmp/out" 2> "$tmp/err"
rc=$?
check cache-name-taken "exit code $rc, or the other file was taken" sh -c "[ $rc -eq 0 ] && [ -s '$tmp/beside/cache' ] &&
    [ \"\$(cat '$tmp/beside'/cache.*-0.part)\" = other ]"
if ln -s beside/target "$tmp/link" 2> /dev/null; then
    text -p "$story" --prompt-cache "$tmp/link"
    check cache-link-to-nothing "exit code $rc, or no word of it" \
        sh -c "[ $rc -eq 1 ] && [ -L '$tmp/link' ] && grep -q \"cannot write '$tmp/link': it is a link that leads nowhere\" '$tmp/err'"
    : > "$tmp/beside/target"
    text -p "$story" --prompt-cache "$tmp/link"
    check cache-link "exit code $rc, or the link was replaced, not its target" \
        sh -c "[ $rc -eq 0 ] && [ -L '$tmp/link' ] && [ -s '$tmp/beside/target' ] && [ ! -e '$tmp/link'.* ] && [ ! -e '$tmp/beside/target'.* ]"
else skip cache-link "there are no links here"; fi

# /save and /load
printf 'Tell me a story.\nHello\nTell me a story.\n' > "$tmp/chat1"
input=$tmp/chat1
run -m "$model" -cnv --temp 0
if grep -q "no chat" "$tmp/err"; then skip chat-save "the model has no <|eot_id|>"
else
    cp "$tmp/out" "$tmp/want"
    printf 'Tell me a story.\n/save %s\nWho are you?\n/load %s\nHello\n' "$tmp/saved" "$tmp/saved" > "$tmp/chat1"
    run -m "$model" -cnv --temp 0
    check chat-load "exit code $rc, or the chat did not go on from where it was saved" \
        sh -c "[ $rc -eq 0 ] && sed 2d '$tmp/out' > '$tmp/lines' && head -n 2 '$tmp/want' | cmp - '$tmp/lines'"
    printf '/load %s  \nHello\nTell me a story.\n/clear\nTell me a story.\n' "$tmp/saved" > "$tmp/chat1"
    run -m "$model" -cnv --temp 0 -sys "You are a pirate." -t 2
    head -n 2 "$tmp/out" > "$tmp/lines"
    check chat-load-later "exit code $rc, or another program goes on otherwise" \
        sh -c "[ $rc -eq 0 ] && sed 1d '$tmp/want' | cmp - '$tmp/lines'"
    tail -n 1 "$tmp/out" > "$tmp/lines"
    printf 'Tell me a story.\n' > "$tmp/chat1"
    run -m "$model" -cnv --temp 0 -sys "You are a pirate."
    check chat-load-clear "/clear did not go back to this chat's system message" cmp "$tmp/out" "$tmp/lines"
    printf '/load %s\n/save %s\n/load\n/save %s/nowhere/x\nHello\n' "$tmp/nowhere" "$tmp" "$tmp" > "$tmp/chat1"
    run -m "$model" -cnv --temp 0 --log-disable
    check chat-load-refused "exit code $rc, not 4 lines of why, or the chat did not go on" sh -c "[ $rc -eq 1 ] &&
        [ \$(grep -c 'cannot\|needs' '$tmp/err') -eq 4 ] && [ \$(wc -l < '$tmp/err') -eq 4 ] && cmp '$tmp/out' '$tmp/hello'"
    check chat-load-nothing-beside "a file was left behind" test ! -e "$tmp".*
    check chat-save-folder "another word" grep -q "cannot write '$tmp': it is not a file" "$tmp/err"
    echo precious > "$tmp/notes"
    printf '/save %s\nHello\n' "$tmp/notes" > "$tmp/chat1"
    run -m "$model" -cnv --temp 0 --log-disable
    check chat-save-text "exit code $rc, or another file was replaced" sh -c "[ $rc -eq 1 ] && [ \$(cat '$tmp/notes') = precious ] &&
        grep -q 'is no saved conversation' '$tmp/err' && cmp '$tmp/out' '$tmp/hello'"
    if [ -n "$pipe" ]; then
        printf '/load %s\n/save %s\nHello\n' "$pipe" "$pipe" > "$tmp/chat1"
        run -m "$model" -cnv --temp 0 --log-disable
        check chat-save-pipe "exit code $rc, or it was read or replaced" sh -c "[ $rc -eq 1 ] && [ -p '$pipe' ] &&
            [ \$(grep -c \"cannot \(read\|write\) '$pipe': it is not a file\" '$tmp/err') -eq 2 ] && cmp '$tmp/out' '$tmp/hello'"
    fi
fi
input=

# ---- an output that takes nothing
if [ -c /dev/full ] && ! (: && echo x > /dev/full) 2> /dev/null; then
    $RUN "$program" -m "$model" -p "Once upon a time" -n 8 > /dev/full 2> "$tmp/err"
    rc=$?
    check full-device "exit code $rc, not 1, or no word of it" sh -c "[ $rc -eq 1 ] && grep -q 'cannot write' '$tmp/err'"
    $RUN "$program" --help > /dev/full 2> "$tmp/err"
    rc=$?
    check full-device-help "exit code $rc, not 1" test $rc -eq 1
else skip full-device "there is no /dev/full here"; fi

# ---- on a terminal, and signals
terminal=0
if command -v python3 > /dev/null && python3 -c 'import pty' 2> /dev/null; then
    python3 "$(dirname "$0")/test_cli_terminal.py" "$program" "$model" || terminal=1
else skip terminal "python3 is not installed, or has no pty"; fi

# ---- bench: wrong usage, and which rows it prints; never how fast anything is
bench_rows() { # NAME TEXT COUNT: so many rows of the last output hold the text
    n=$(grep -c -e "$2" "$tmp/out")
    check "$1" "$n rows with $2, not $3" test "$n" -eq "$3"
}
json_is() { # NAME CONDITION: Python's, of the last output as j
    check "$1" "not so: $2" python3 -c "import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$tmp/out"
}
# A stand-in for llama-bench: "fake FORM [LAST]" prints what that does with -o FORM, for tests of 16 read, 4 written, 4
# written behind 8, and 8 read and 4 written. The first test is faster by 100 tokens/s in each call.
fake_bench() {
    cat > "$tmp/fake" << 'END'
calls=$(($(cat "$0.calls" 2>/dev/null || echo 0) + 1))
echo $calls > "$0.calls"
row() { # N_PROMPT N_GEN N_DEPTH TEST SPEED
    case $form in
        csv) printf '"8cf4","A ""fast"", CPU","m.gguf","2","%s","%s","%s","2025-04-24T11:57:09Z","702","98","%s","1.25"\n' $1 $2 $3 $5 ;;
        md) printf '| bitnet 2B I2_S - 2 bpw         |   1.10 GiB |     2.41 B | CPU        |       2 | %15s | %15s ± 0.55 |\n' "$4" $5 ;;
        *) printf '%s{"cpu_info": "A \\"fast\\", CPU", "n_threads": 2, "use_mmap": true, "n_prompt": %s, "n_gen": %s, "n_depth": %s, "avg_ns": 702, "avg_ts": %s, "stddev_ts": 1.25, "samples_ts": [ 1.5, 2.5 ]}' "$comma" $1 $2 $3 $5
           [ $form = json ] && comma=',
  ' || echo ;;
    esac
}
form=$1 comma=
case $form in
    csv) echo build_commit,cpu_info,model_filename,n_threads,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts ;;
    md) echo '| model                          |       size |     params | backend    | threads |            test |                  t/s |'
        echo '| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |' ;;
    json) echo '['; comma='  ' ;;
esac
row 16 0 0 "${pp:-pp16}" $((calls * 100)).25
row 0 4 0 tg4 50.5
row 0 4 8 'tg4 @ d8' 40.125
row ${last:-8} 4 0 pp${last:-8}+tg4 60
case $form in md) printf '\nbuild: 8cf4 (5163)\n' ;; json) printf '\n]\n' ;; esac
END
    printf 'print: prompt eval time =   12.50 ms /    16 tokens ( 0.78 ms per token,  1280.5 tokens per second)\n' > "$tmp/timings"
    printf 'print:        eval time =  100.00 ms /     4 runs   ( 25.0 ms per token,    40.25 tokens per second)\n' >> "$tmp/timings"
    printf 'pp 1,234.5 tokens/s\n' > "$tmp/thousands"
}
# compared NAME COMMAND: runs it in three rounds; the command's own figures must come back, in whatever form
compared() {
    name=$1
    rm -f "$tmp/fake.calls"
    run "$model" -r 3 -t 2 --json --compare "$2"
    json_is "$name" "[(r['test'], r['their_tok_s'], r['their_spread_percent'], r['their_threads']) for r in j['comparison']
        if r['head'] != 'full'] == [('pp16', 200.25, 49.938, 2), ('tg4', 50.5, 0, 2), ('tg4 @ d8', 40.125, 0, 2),
        ('pp8+tg4', 60, 0, 2)]"
}
# refuses_command NAME WORD COMMAND ARGS...: exit code 1, nothing on stdout, and a line on stderr that holds the word
refuses_command() {
    name=$1 word=$2
    shift 2
    run "$model" -r 2 -t 1 --compare "$@"
    check "$name" "exit code $rc" sh -c "[ $rc -eq 1 ] && [ ! -s '$tmp/out' ] && grep -q -e \"\$1\" '$tmp/err'" sh "$word"
}
gone() { n=0; while kill -0 "$(cat "$1")" 2> /dev/null; do [ $n -lt 50 ] || return 1; n=$((n + 1)); sleep 0.1; done; }
compare_tests() {
    fails compare-missing 2 "--compare" "$model" --compare
    fails compare-form-alone 2 "there is no --compare" "$model" --compare-form "{pp16}"
    fails compare-limit-alone 2 "there is no --compare" "$model" --compare-limit 9
    fails compare-bad-limit 2 "--compare-limit needs a number from 1" "$model" --compare true --compare-limit 0
    for option in --profile --ask "--sequences 2" "--chunks 8" "--save $tmp/no"; do
        fails "compare-with-${option%% *}" 2 "it takes no --profile" "$model" --compare true $option
    done
    n=0
    for form in "" "tokens" "{pp}" "{pp16" "{tg0}" "{pp-5}" "{pp16x}" "{tg9 @ 8}" "{pp16} {x}" "{pp16}{pp16}{pp16}{pp16}{pp16}{pp16}{pp16}{pp16}{pp16}"; do
        fails "compare-bad-form-$((n += 1))" 2 "needs placeholders such as {pp512}" "$model" --compare true --compare-form "$form"
    done

    fake_bench
    refuses_command compare-not-found "was not found (exit code 127)" "$tmp/no-such-program -m x"
    refuses_command compare-exit-code "ended with exit code 3; it printed:" "seq 7 20; exit 3"
    check compare-last-lines "not the last ten lines" sh -c "sed -n 's/^    //p' '$tmp/err' | tr '\n' ' ' | grep -qx '11 12 .* 20 '"
    refuses_command compare-signal "was ended by signal 15; it printed nothing" 'kill -TERM $$'
    refuses_command compare-no-figure "printed no speed in a form that is known" "echo \"INSERT INTO llama_bench ('512', '9.5');\""
    check compare-shows-output "it is not shown" grep -q "^    INSERT INTO" "$tmp/err"
    refuses_command compare-control "^    a?\[31mb" "printf 'a\\033[31mb'"
    refuses_command compare-hang "is not done in time (see --compare-limit); it printed:" \
        "echo \$\$ > $tmp/pid; echo so far; sleep 300 & sleep 300" --compare-limit 1
    check compare-hang-killed "it still runs" gone "$tmp/pid"
    refuses_command compare-hang-closed "is not done in time" "exec >&-; sleep 300" --compare-limit 1
    echo 0 > "$tmp/fake.calls"
    refuses_command compare-other-test "has another test than at first: pp9+tg4" \
        "last=\$((\$(cat $tmp/fake.calls) + 8)) sh $tmp/fake csv"
    echo 0 > "$tmp/fake.calls"
    refuses_command compare-fewer-tests "has another number of tests" \
        "lines=\$((4 - \$(cat $tmp/fake.calls))); sh $tmp/fake jsonl | head -n \$lines"
    refuses_command compare-too-long "pp99999+tg4 needs a context of 100003; the model has " "last=99999 sh $tmp/fake md"
    refuses_command compare-unknown-test "has an unknown test: speed" "pp=speed sh $tmp/fake md"
    refuses_command compare-zero "has a speed that is none: -0.5" "sh $tmp/fake csv | sed s/50.5/-0.5/"
    refuses_command compare-no-tokens "has a test of no tokens" "last=0 sh $tmp/fake json | sed 's/\"n_gen\": 4/\"n_gen\": 0/'"
    refuses_command compare-no-line "printed no line that fits the form {pp16} apples" "cat $tmp/timings" --compare-form "{pp16} apples"
    for form in "{pp16} tokens" "pp {pp16}"; do
        refuses_command compare-thousands "printed no line that fits" "cat $tmp/thousands" --compare-form "$form"
    done
    refuses_command compare-too-many "has too many tests" "for i in \$(seq 17); do sh $tmp/fake jsonl; done"

    # a killed bench leaves no command behind
    rm -f "$tmp/pid"
    $RUN "$bench" "$model" --compare "echo \$\$ > $tmp/pid; sleep 300; sleep 300" > "$tmp/out" 2> "$tmp/err" &
    job=$!
    wait_for $job test -s "$tmp/pid"
    kill -TERM $job
    wait $job 2> /dev/null
    check compare-interrupted "the command still runs" gone "$tmp/pid"

    rm -f "$tmp/fake.calls"
    run "$model" -r 1 -t 2 --compare "sh $tmp/fake md"
    bench_rows compare-text "^pp16  *-  *[0-9.]*  *-  *100.2  *-  *[0-9.]* .* 2$" 1
    bench_rows compare-text-heads "^tg4  *[sf][cu][rl][el][e ].* 50.5 " 2
    check compare-threads "no such line" sh -c "! grep -q 'we have' '$tmp/err'"
    run "$model" -r 1 -t 1 --compare "sh $tmp/fake csv"
    check compare-other-threads "no such line" grep -qx "bench: pp16 has 2 threads, we have 1 (-t)" "$tmp/err"
    command -v python3 > /dev/null || { skip compare-json "python3 is not installed"; return; }
    for form in md csv json jsonl; do compared "compare-$form" "sh $tmp/fake $form"; done
    check compare-calls "$(cat "$tmp/fake.calls") calls" test "$(cat "$tmp/fake.calls")" -eq 3
    compared compare-noise "echo 'warning: no GPU, [x], {y}'; echo '| a | b |'; sh $tmp/fake json; echo 'done.'"
    compared compare-noise-jsonl "echo '{\"event\": \"start\"}'; sh $tmp/fake jsonl"
    compared compare-noise-csv "echo 'warning: no GPU, no BLAS'; sh $tmp/fake csv | sed 's/\$/\r/'"
    compared compare-old-name "pp='pp 16' sh $tmp/fake md | sed 's/tg4 @ d8/tg4@pp8/'"
    json_is compare-command "j['command'] == \"pp='pp 16' sh $tmp/fake md | sed 's/tg4 @ d8/tg4@pp8/'\""
    run "$model" -r 1 -t 1 --json --compare "printf '\"\\\\\\\\' > $tmp/odd; sh $tmp/fake md"
    json_is compare-escapes "j['command'].startswith('printf \\'\"' + 4 * chr(92) + '\\' >')"
    json_is compare-heads "[r['head'] for r in j['comparison']] == ['-'] + 3 * ['screened', 'full']"
    json_is compare-ratio "all(abs(r['ratio'] - r['tok_s'] / r['their_tok_s']) < 0.002 * r['ratio'] + 0.0001 for r in j['comparison'])"
    json_is compare-limits "all((r['limit'] is None or r['limit'] > 0) and (r['limit'] is None) == ('+' in r['test'])
        for r in j['comparison'] if r['test'][0] == 't' or '+' in r['test'])"
    json_is compare-positive "all(r['tok_s'] > 0 for r in j['comparison'])"
    run "$model" -r 1 -t 1 --json --compare "cat $tmp/timings; sed 's/40.25/7.75/' $tmp/timings" \
        --compare-form "print: prompt eval time *{pp16} tokens per" --compare-form "print: eval time *{tg4 @ d16} tokens"
    json_is compare-forms "[(r['test'], r['their_tok_s'], r['their_threads']) for r in j['comparison']] ==
        [('pp16', 1280.5, None), ('tg4 @ d16', 7.75, None), ('tg4 @ d16', 7.75, None)]"
    run "$model" -r 1 -t 1 --json --compare "echo 'read 120.5, wrote 9 files, wrote 30 tokens/s'" \
        --compare-form "read {pp16}*wrote {tg4} tokens"
    json_is compare-form-of-two "[(r['test'], r['their_tok_s']) for r in j['comparison']][:2] == [('pp16', 120.5), ('tg4', 30)]"
}

bench_tests() {
    program=$bench                                  # what run and fails start
    fails bench-bad-flag 2 "--bogus" "$model" --bogus
    fails bench-two-models 2 "stray" "$model" stray
    fails bench-missing-value 2 "-t needs a number" "$model" -t
    fails bench-bad-number 2 "-r needs a number from 1" "$model" -r 0
    fails bench-bad-number-tail 2 "-t needs a number from 1" "$model" -t 2x
    fails bench-missing-kernel 2 "--kernel" "$model" --kernel
    fails bench-unknown-kernel 2 "bogus" "$model" --kernel bogus
    fails bench-profile-sequences 2 "--profile takes neither" "$model" --profile --sequences 2
    n=0
    for list in "" 0 -1 x 1x 1, ,1 1,,2 4097 99999999999999999999 "1 2" $(printf '1,%.0s' $(seq 64))1; do
        fails "bench-bad-sequences-$((n += 1))" 2 "^bench: --sequences needs up to 64 numbers from 1 to 4096" \
            "$model" --sequences "$list"
    done
    fails bench-missing-sequences 2 "--sequences needs" "$model" --sequences
    fails bench-bad-chunks 2 "--chunks needs up to 64 numbers from 1 to 512" "$model" --chunks 513
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
    vectors=${BITNET_TEST_DATA:-../shared}/models/q.gguf input=$tmp/ask
    if [ -f "$vectors" ]; then
        run "$vectors" --ask
        check bench-ask-embeddings "exit code $rc: $(cat "$tmp/out")" \
            sh -c "sed -n 2p '$tmp/out' | grep -qE '^[1-9][0-9.]* [1-9][0-9.]*$'"
    else skip bench-ask-embeddings "models/q.gguf is not in BITNET_TEST_DATA"; fi
    input=

    n_kernels=$(echo "$kernels" | wc -w)
    run "$model" --quick -r 1 -t 2 --json
    check bench "exit code $rc" test $rc -eq 0
    check bench-numbers "a number that is none" sh -c "! grep -i -e '[ -]nan' -e '[ -]inf' '$tmp/out'"
    for k in $kernels; do bench_rows "bench-kernel-$k" "\"kernel\": \"$k\", \"run\"" 5; done
    for n in 32 128 512; do bench_rows "bench-prefill-$n" "\"prefill\", \"tokens\": $n, \"head\": \"-\"" "$n_kernels"; done
    for head in screened full; do bench_rows "bench-decode-$head" "\"decode\", \"tokens\": 0, \"head\": \"$head\"" "$n_kernels"; done
    for n in 1 2; do bench_rows "bench-threads-$n" "\"threads\": $n, \"prefill" 1; done
    for n in 1 4 16; do bench_rows "bench-sequences-$n" "\"sequences\": $n," 1; done
    for n in 0 32 128; do bench_rows "bench-chunk-$n" "\"chunk\": $n, " 1; done
    run "$model" --quick -r 1 -t 1 --kernel scalar
    bench_rows bench-text-prefill "^scalar  *prefill " 3
    bench_rows bench-text-decode "^scalar  *decode " 2
    bench_rows bench-one-thread "threads prefill" 0
    bench_rows bench-text-sequences "^scalar  *1 \( *[0-9][0-9.]*\)\{4\}  *-$" 3
    bench_rows bench-text-chunks "^prompt beside 8 writers$" 1
    run "$model" -r 1 -t 1 --kernel scalar --sequences 3,2
    bench_rows bench-only-sequences "^scalar " 2
    bench_rows bench-no-ratio "^scalar  *1  *[32]  *[0-9.]*  *- " 2
    # of the tables that read TL2_R16 as it lies, the best that is usable comes first
    $RUN "$convert" "$model" "$tmp/tl2.gguf" --to tl2_r16 > /dev/null
    run "$tmp/tl2.gguf" -r 1 -t 1 --json --sequences 1
    bench_rows bench-table-of-file "\"kernels\": \"$(echo "$kernels" | grep -m 1 -e '-tl2$')\"" 1
    command -v python3 > /dev/null || { skip bench-json "python3 is not installed"; return; }

    # a context that is long enough for every row: the file's number, 32 bits behind its key and type
    long='p = b.index(b".context_length") + 19; open(sys.argv[2], "wb").write(b[:p] + b"\0\x10\0\0" + b[p + 4:])'
    python3 -c "import sys; b = open(sys.argv[1], 'rb').read(); $long" "$model" "$tmp/long.gguf"
    run "$tmp/long.gguf" -r 2 -t 3 --json --kernel "$(echo "$kernels" | head -n 1)"
    json_is bench-json "[t['threads'] for t in j['threads']] == [1, 2, 3] and len(j['kernels']) == 1"
    json_is bench-long-prefill "[r['tokens'] for r in j['runs'] if r['run'] == 'prefill'] == [32, 128, 512, 4096]"
    json_is bench-long-decode "[r['tokens'] for r in j['runs'] if r['head'] == 'full'] == [0, 1024, 4096]"
    json_is bench-exact-rows "all(0 < r['exact_logits'] < 2048 for r in j['runs'] if r['head'] == 'screened')"
    json_is bench-positive "all(r['tok_s'] > 0 and r['gmac_s'] > 0 for r in j['runs'])"
    check bench-long-tables "not so" python3 -c "import json, sys; j = json.load(open(sys.argv[1]))
sys.exit([r['sequences'] for r in j['sequences']] != [1, 2, 4, 8, 16, 32] or
         [r['chunk'] for r in j['chunks']] != [0, 16, 32, 64, 128])" "$tmp/out"
    run "$model" -r 3 -t 2 --json --sequences 40,1,3 --chunks 512 --kernel scalar
    check bench-lines "exit code $rc, or other lines: $(cat "$tmp/out")" python3 -c "import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
s, c = rows[:3], rows[3:]
assert [r['sequences'] for r in s] == [40, 1, 3] and [r['chunk'] for r in c] == [0, 512]
assert all(r['kernels'] == 'scalar' and r['threads'] == 2 for r in rows)
assert all(r['tok_s'] > 0 and r['share'] > 0 for r in s)
assert all(abs(r['ratio'] - r['tok_s'] / s[1]['tok_s']) < 1e-3 * r['ratio'] + 1e-3 for r in s)
assert all(abs(r['writers_tok_s'] * r['pass_ms'] - 8000) < 80 for r in c)
assert c[0]['prompt_tok_s'] is None and c[1]['prompt_tok_s'] > c[1]['writers_tok_s']" "$tmp/out"
    run "$tmp/long.gguf" --profile -r 2 -t 3 --json
    json_is bench-profile "[(r['run'], r['tokens']) for r in j['profile'] if r['unit'] == 'ms'] ==
        [('prefill', 128), ('prefill', 512), ('decode', 0), ('decode', 1024), ('together', 8), ('together', 16)]"
    json_is bench-profile-sum "all(abs(sum(v for k, v in r.items() if k not in ('run', 'tokens', 'unit', 'total'))
        - r['total']) < r['total'] / 1000 for r in j['profile'])"
    json_is bench-profile-parts "all(r[k] > 0 for r in j['profile'] for k in
        ('norm', 'quantize', 'matmul', 'attention', 'embed', 'waiting', 'rest'))"
    json_is bench-profile-head "all((r['head'] > 0) == (r['run'] != 'prefill') for r in j['profile'])"
}
if [ -n "$bench" ]; then bench_tests; compare_tests; else skip bench "no program was named"; fi
[ -z "$bench" ] || . "$(dirname "$0")/test_bench.sh"

echo "cli: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $terminal -eq 0 ]
