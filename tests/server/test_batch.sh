#!/bin/sh
# Tests of the command batch, from the outside.
#     test_batch.sh PATH_TO_BATCH PATH_TO_GENERATE PATH_TO_MODEL
# The model is examples/tiny.gguf or another one that was trained on English. Prints a line for each case (ok, FAIL,
# skip) and at the end `batch: N passed, N failed, N skipped`; exit code 1 if a case failed. BATCH_KILLS is how often
# it is killed (20).
[ $# -eq 3 ] || { echo "usage: $0 PATH_TO_BATCH PATH_TO_GENERATE PATH_TO_MODEL" >&2; exit 2; }
program=$1 generate=$2 model=$3 root=$(dirname "$0")/../..
. "$root/tests/cases.sh"
requests=$tmp/requests.jsonl

# A line of each kind, so many times.
make_requests() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++) {
            printf "{\"custom_id\":\"chat %d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",", i
            printf "\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"What is %d?\"}]}}\n", i
            printf "{\"custom_id\":\"two %d\",\"url\":\"/v1/completions\",\"body\":{\"n\":2,\"logprobs\":1,", i
            printf "\"prompt\":\"Once upon a time there was a cat. %d\",\"max_tokens\":30}}\n", i
            printf "{\"prompt\": \"The %d\", \"max_tokens\": 50, \"temperature\": 0.7}\n", i
            printf "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi %d\"}]}\n", i
        }
    }'
}
make_requests 12 >"$requests"
cp "$requests" "$tmp/good.jsonl"
printf '%s\n' '{"broken": ' '[]' '{"custom_id":"e","url":"/v1/embeddings","body":{}}' '' \
    '{"custom_id":5,"prompt":"x"}' '{"prompt":"x","temperature":-1}' >>"$requests"
lines=$(grep -c . "$requests")

# sorted NAME CODE ARGS...: that exit code, and the results of all lines, in any order.
sorted() {
    name=$1 code=$2
    shift 2
    input=$requests run -m "$model" "$@"
    sort "$tmp/out" >"$tmp/got"
    [ $rc -eq "$code" ] || { bad "$name" "exit code $rc, not $code: $(head -n 2 "$tmp/err")"; return; }
    check "$name" "other results: $(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
}

# ---- results

input=$requests run -m "$model" --parallel 1 -t 1 --ordered
cp "$tmp/out" "$tmp/ordered"
sort "$tmp/out" >"$tmp/want"
check "a line for each line" "there are $(wc -l <"$tmp/out"), not $lines" [ "$(wc -l <"$tmp/out")" -eq "$lines" ]
check "some failed: 1" "exit code $rc" [ $rc -eq 1 ]
check "failures have a line, too" "$(grep -c '"status_code":4' "$tmp/out") of them" \
    [ "$(grep -c '"status_code":40[04]' "$tmp/out")" -eq 5 ]
check "a model of text makes no embeddings" "$(grep '"custom_id":"e"' "$tmp/out")" \
    grep -q '"custom_id":"e","response":{"status_code":400.*does not say how to make embeddings' "$tmp/out"
sorted "together: the same results" 1
sorted "three at a time: the same results" 1 --parallel 3 -t 2
sorted "with little memory: the same results" 1 --parallel 16 --kv-tokens 512
input=$requests run -m "$model" --parallel 7 --ordered
check "the order of the lines" "another order" cmp "$tmp/out" "$tmp/ordered"
# The other APIs for chats, each with its own form; results have neither times nor what was read before.
printf '%s\n' '{"custom_id":"r","url":"/v1/responses","body":{"input":"Hi","max_output_tokens":5}}' \
    '{"custom_id":"r 2","url":"/v1/responses","body":{"input":"Hi","max_output_tokens":6}}' \
    '{"custom_id":"m","url":"/v1/messages","body":{"messages":[{"role":"user","content":"Hi"}],"max_tokens":5}}' \
    '{"custom_id":"m 2","url":"/v1/messages","body":{"messages":[]}}' >"$tmp/apis.jsonl"
input=$tmp/apis.jsonl run -m "$model" --ordered
cp "$tmp/out" "$tmp/apis"
api() { check "$1" "$(cat "$tmp/apis")" grep -q "$2" "$tmp/apis"; }
api "a response" '"custom_id":"r",.*"object":"response","created_at":0,"status":"incomplete",.*"output_text","text":"[^"]'
api "a message" '"custom_id":"m",.*"type":"message",.*"stop_reason":"max_tokens",'
api "a message that is refused" '"custom_id":"m 2",.*"body":{"type":"error","error":{"type":"invalid_request_error",'
check "no times" "$(cat "$tmp/apis")" [ "$(grep -c timings "$tmp/apis" "$tmp/ordered" | grep -c ':0$')" -eq 2 ]
input=$tmp/apis.jsonl run -m "$model" --ordered --parallel 1
check "one after the other: the same" "other results" cmp "$tmp/out" "$tmp/apis"
# Texts without an end (2046, which is forbidden, is tiny.gguf's) fill the cache, and begin again: with a seed, echoes,
# log-probabilities and a grammar they are what they are alone.
awk 'BEGIN {
    for (i = 0; i < 3; i++) {
        printf "{\"prompt\": \"Story %d\", \"max_tokens\": -1, \"logit_bias\": {\"2046\": -100}}\n", i
        printf "{\"prompt\": \"Two %d\", \"n\": 2, \"max_tokens\": 300, \"logprobs\": 1, \"echo\": true, ", i
        printf "\"temperature\": 0.9, \"logit_bias\": {\"2046\": -100}}\n"
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"List %d\"}], \"max_tokens\": 200, ", i
        printf "\"response_format\": {\"type\": \"json_object\"}}\n"
    }
}' >"$tmp/endless.jsonl"
input=$tmp/endless.jsonl run -m "$model" -c 512 --parallel 1 --ordered
cp "$tmp/out" "$tmp/alone"
for room in "--parallel 4 --kv-tokens 512" "--kv-tokens 900"; do
    input=$tmp/endless.jsonl run -m "$model" -c 512 --ordered $room
    check "texts that need more than all of the cache ($room): 0" "exit code $rc" [ $rc -eq 0 ]
    check "and the same results" "$(cmp "$tmp/alone" "$tmp/out" 2>&1)" cmp "$tmp/alone" "$tmp/out"
done
{
    echo '{"prompt":"x","max_tokens":4}'
    awk 'BEGIN { printf "{\"prompt\":\""; for (i = 0; i < 200; i++) printf "word "; print "\",\"max_tokens\":4}" }'
    head -n 1 "$tmp/endless.jsonl"
    echo '{"prompt":"y","max_tokens":4}'
} >"$tmp/long.jsonl"
input=$tmp/long.jsonl run -m "$model" -c 512 --kv-tokens 64 --ordered
check "texts that are longer than the cache: 1" "exit code $rc" [ $rc -eq 1 ]
check "they get an error, and those behind them a result" "$(cat "$tmp/out")" \
    [ "$(sed 's/.*"status_code":\([0-9]*\).*/\1/' "$tmp/out" | tr '\n' ' ')" = "200 400 400 200 " ]
check "it says why" "$(cat "$tmp/out")" [ "$(grep -c '"code":"context_length_exceeded"' "$tmp/out")" -eq 2 ]
cp "$tmp/out" "$tmp/narrow"
input=$tmp/long.jsonl run -m "$model" -c 512 --kv-tokens 64 --ordered -np 1
check "one at a time: the same" "$(cmp "$tmp/narrow" "$tmp/out" 2>&1)" cmp "$tmp/narrow" "$tmp/out"
printf '\0\0\n{"prompt":"x","max_tokens":2}\n' >"$tmp/nul"
input=$tmp/nul run -m "$model" --ordered
check "a line of NUL bytes is an error" "exit code $rc, $(cat "$tmp/out")" \
    [ $rc -eq 1 -a "$(sed 's/.*"status_code":\([0-9]*\).*/\1/' "$tmp/out" | tr '\n' ' ')" = "400 200 " ]

# A byte order mark and \r\n are no part of a line.
printf '{"custom_id":"one","prompt":"x","max_tokens":2}\n{"prompt":"y","max_tokens":2}\n' >"$tmp/plain"
{ printf '\357\273\277'; sed 's/$/\r/' "$tmp/plain"; } >"$tmp/marked"
input=$tmp/plain run -m "$model" --ordered
cp "$tmp/out" "$tmp/plain.out"
input=$tmp/marked run -m "$model" --ordered
check "a byte order mark and CRLF: the same results" "exit code $rc, $(cat "$tmp/out")" cmp "$tmp/plain.out" "$tmp/out"
{ printf '\357\273\277'; sed 's/$/\r/' "$tmp/plain.out"; } >"$tmp/marked.out"
input=$tmp/plain run -m "$model" --audit "$tmp/marked.out" --sample 1
check "and in results: an audit finds nothing" "exit code $rc, $(cat "$tmp/err")" \
    grep -q "^batch: 2 lines computed again, 0" "$tmp/err"
cp "$tmp/marked.out" "$tmp/marked.2"
input=$tmp/plain run -m "$model" --resume "$tmp/marked.2"
check "and nothing is computed again" "exit code $rc" [ $rc -eq 0 -a "$(wc -l <"$tmp/marked.2")" -eq 2 ]

# Lines that are bad, or that have one custom_id.
printf '%s\n' '{"custom_id":"no url","body":{"prompt":"x"}}' '{"custom_id":"t\"orn \u0041","url":"/v1/comp' '' '["custom_id"]' \
    '{"body":{"custom_id":"inner"}, ' '{"custom_id":"' '{"custom_id":"\x"' '{"custom_id" "x"' '{"prompt":5}' >"$tmp/bad"
input=$tmp/bad run -m "$model" --ordered
check "a line without url: the error says so" "$(head -n 1 "$tmp/out")" \
    grep -q '"custom_id":"no url","response":{"status_code":400,.*"message":"url: ' "$tmp/out"
check "a torn line has its custom_id" "$(sed -n 2p "$tmp/out")" \
    grep -q '"custom_id":"t\\"orn A","response":{"status_code":400,.*has no end' "$tmp/out"
check "no other one has" "$(cut -c 1-100 "$tmp/out")" [ "$(grep -c '"custom_id":null,"response":{"status_code":400,' "$tmp/out")" -eq 6 ]
check "their numbers are said" "$(cat "$tmp/err")" \
    [ "$(sed -n 's/^batch: line \([0-9]*\): .*/\1/p' "$tmp/err" | tr '\n' ' ')" = "4 5 6 7 8 9 " ]
printf '%s\n' '{"method":"POST","custom_id":"second","url":"/v1/completions","body":{"prompt":"a","prompt":"b"}}' \
    '{"a":{},"b":[{"custom_id":"inner"}],"custom_id":"third", x' '{"b":{"custom_id":"inner","custom_id":"x"}}' \
    '{"custom_id":"one","custom_id":"two"}' '{"custom_id":{"custom_id":"inner"}, x' '{"a":1,"custom_id"' >"$tmp/bad"
input=$tmp/bad run -m "$model" --ordered
check "what stands in front of the fault is read" "$(cut -c 1-100 "$tmp/out")" \
    [ "$(sed 's/.*"custom_id":\([^,]*\),"response":{"status_code":400,.*/\1/' "$tmp/out" | tr '\n' ' ')" = \
    '"second" "third" null "one" null null ' ]
printf '{"custom_id":"%s","prompt":"x","max_tokens":%d}\n' a 1 b 1 '\u0061' 2 A 1 a 3 '\u202ec' 1 '\u202ec' 2 >"$tmp/same"
input=$tmp/same run -m "$model" --ordered
check "two lines with one custom_id are told" "exit code $rc, $(cat "$tmp/err")" \
    [ $rc -eq 0 -a "$(sed -n 's/^batch: line \([0-9]*\): .*same custom_id, \(.*\)$/\1\2/p' "$tmp/err" | tr '\n' ' ')" = \
    '3"a" 5"a" 7"?c" ' ]
cp "$tmp/out" "$tmp/same.out"
input=/dev/null run -m "$model" --resume "$tmp/same.out"
check "and two results with one" "exit code $rc, $(cat "$tmp/err")" [ $rc -eq 0 -a "$(grep -c 'same custom_id' "$tmp/err")" -eq 3 ]
check "at their bytes" "$(cat "$tmp/err")" grep -q "same.out, byte $(head -n 2 "$tmp/same.out" | wc -c): " "$tmp/err"
head -n 2 "$tmp/same.out" >"$tmp/some.out"
input=$tmp/same run -m "$model" --resume "$tmp/some.out"
check "a line with the custom_id of a result" "$(cat "$tmp/err")" [ "$(grep -c 'same custom_id' "$tmp/err")" -eq 3 ]
awk 'BEGIN { for (i = 0; i < 5000; i++) printf "{\"custom_id\":\"%d\",\"prompt\":5}\n", i % 4999 }' >"$tmp/many"
input=$tmp/many run -m "$model"
check "one of 5000" "$(head -n 3 "$tmp/err")" [ "$(grep -c '^batch: line 5000: .*same custom_id, "0"$' "$tmp/err")" -eq 1 -a "$(wc -l <"$tmp/err")" -eq 2 ]
input=$tmp/good.jsonl run -m "$model"
check "all done: 0" "exit code $rc" [ $rc -eq 0 ]
printf '{"prompt":"Once upon a time","temperature":0,"max_tokens":40}' >"$tmp/one"
input=$tmp/one run -m "$model"
"$generate" -m "$model" -p "Once upon a time" -n 40 --temp 0 2>"$tmp/err" | sed 's/^Once upon a time//' >"$tmp/text"
sed 's/.*"text":"//; s/","logprobs".*//' "$tmp/out" >"$tmp/got"
check "the text of generate, from a line without an end" "$(cat "$tmp/got")" cmp "$tmp/text" "$tmp/got"
input=/dev/null run -m "$model"
check "no lines" "exit code $rc, $(cat "$tmp/out")" [ "$rc" -eq 0 -a ! -s "$tmp/out" ]

# A result comes as soon as it is there, though the next line does not.
mkfifo "$tmp/fifo"
"$program" -m "$model" <"$tmp/fifo" >"$tmp/out" 2>"$tmp/err" &
pid=$!
exec 3>"$tmp/fifo"
head -n 1 "$requests" >&3
wait_for $pid test -s "$tmp/out"
check "a pipe that waits" "no result" test -s "$tmp/out"
exec 3>&-
wait $pid

# ---- resuming

half() { head -n $((lines / 2)) "$tmp/ordered" >"$tmp/part"; }
half
size=$(sed -n "$((lines / 2 + 1))p" "$tmp/ordered" | head -c 60)
printf '%s' "$size" >>"$tmp/part"      # torn
input=$requests run -m "$model" --resume "$tmp/part"
sort "$tmp/part" >"$tmp/got"
check "resumes after a torn line" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
check "failures of the run before count" "exit code $rc" [ $rc -eq 1 ]
cp "$tmp/part" "$tmp/before"
input=$requests run -m "$model" --resume "$tmp/part"
check "nothing is done twice" "the file has changed" cmp "$tmp/part" "$tmp/before"
cat "$tmp/good.jsonl" "$tmp/good.jsonl" >"$tmp/twice.jsonl"
input=$tmp/twice.jsonl run -m "$model" --resume "$tmp/twice"
input=$tmp/twice.jsonl run -m "$model" --resume "$tmp/twice"
check "lines that are there twice have two results" "$(wc -l <"$tmp/twice")" \
    [ "$(wc -l <"$tmp/twice")" -eq "$(wc -l <"$tmp/twice.jsonl")" ]
echo 'something else' >"$tmp/other"
input=$requests fails "no file of results" 2 "no result of batch" -m "$model" --resume "$tmp/other"
for text in 'my notes' 'my notes\nmore' '{"id":"another"'; do
    printf "$text" >"$tmp/other"
    printf "$text" >"$tmp/before"
    fails "no file of results, without a newline" 2 "no result of batch" -m "$model" --resume "$tmp/other"
    check "and it stays as it is" "$(cat "$tmp/other")" cmp "$tmp/other" "$tmp/before"
done
printf '{"id":' >"$tmp/other"
run -m "$model" --resume "$tmp/other"
check "a result that was hardly begun is cut" "exit code $rc, $(cat "$tmp/other")" [ $rc -eq 0 -a ! -s "$tmp/other" ]
echo 'something else' >"$tmp/other"
cp "$tmp/other" "$tmp/before"
"$program" -m "$model" --resume "$tmp/other" </dev/null >"$tmp/out" 2>&-
check "no message gets into the file where stderr is closed" "$(cat "$tmp/other")" cmp "$tmp/other" "$tmp/before"
mkfifo "$tmp/pipe"
"$program" -m "$model" --resume "$tmp/pipe" </dev/null >"$tmp/out" 2>"$tmp/err" &
pid=$!
waited=0
while kill -0 $pid 2>/dev/null && [ $waited -lt 100 ]; do sleep 0.1; waited=$((waited + 1)); done
kill $pid 2>/dev/null                  # it would wait for ever
wait $pid
check "a pipe takes no results: 2" "exit code $?" [ $? -eq 2 ]
check "and it says so" "$(cat "$tmp/err")" grep -q "it is not a file" "$tmp/err"
# Results that are read as requests have errors as their results, and so on.
cp "$tmp/good.jsonl" "$tmp/other"
"$program" -m "$model" <"$tmp/other" >>"$tmp/other" 2>"$tmp/err"
check "results behind the requests of the same file: 2" "exit code $?" [ $? -eq 2 ]
check "and it says so" "$(cat "$tmp/err")" grep -q "standard output is the file of the requests" "$tmp/err"
check "and it stays as it is" "it has changed" cmp "$tmp/good.jsonl" "$tmp/other"
cp "$tmp/ordered" "$tmp/other"
input=$tmp/other fails "results as requests" 2 "other is the file of the requests" -m "$model" --resume "$tmp/other"
check "and they stay as they are" "they have changed" cmp "$tmp/ordered" "$tmp/other"

# What results depend on beside their lines must be the same.
input=$tmp/good.jsonl run -m "$model"
cp "$tmp/out" "$tmp/made"
of_line=$(sed -n '1s/.*,"error":null,"fingerprint":"\(bitnet.h-[0-9.]*[-a-z0-9]*-[0-9a-f]\{16\}\)-f16-512"}$/\1/p' "$tmp/made")
check "results say what made them" "$(head -n 1 "$tmp/made" | tail -c 100)" [ -n "$of_line" ]
# other NAME ARGS...: such a run is refused, and the results stay as they are
other() {
    name=$1
    shift
    cp "$tmp/made" "$tmp/other"
    input=$tmp/good.jsonl fails "$name" 2 "line 1 is of $of_line-f16-512, but this run is bitnet.h-" "$@" --resume "$tmp/other"
    check "$name: the results stay as they are" "they do not" cmp "$tmp/made" "$tmp/other"
}
other "another model" -m "$root/tests/data/a.gguf" -c 512
other "another model that takes errors again" -m "$root/tests/data/a.gguf" -c 512 --retry-errors
other "another type of cache" -m "$model" --kv-type f32
other "another type of cache that takes errors again" -m "$model" --kv-type i8 --retry-errors
other "a shorter context" -m "$model" -c 511
other "a shorter context by --kv-tokens" -m "$model" --kv-tokens 448
input=$tmp/good.jsonl fails "an audit with another model: 2" 2 "is of $of_line-f16" -m "$root/tests/data/a.gguf" --audit "$tmp/made"
cp "$tmp/made" "$tmp/other"
input=$tmp/good.jsonl run -m "$model" --kv-tokens 449 -np 3 -t 1 --ordered --resume "$tmp/other" -c 512
check "options that change no result" "exit code $rc" [ $rc -eq 0 ]
sed "3s/$of_line/bitnet.h-0.0.1-0123456789abcdef/g" "$tmp/made" >"$tmp/other"
input=$tmp/good.jsonl fails "a result among others" 2 "line 1 is of $of_line-f16-512, but that in line 3 of bitnet.h-0.0.1-" \
    -m "$model" --resume "$tmp/other"
sed 's/,"fingerprint":"[^"]*"}$/}/' "$tmp/made" >"$tmp/other"
input=$tmp/good.jsonl fails "results of an older version" 2 "line 1 is of a version without" -m "$model" --resume "$tmp/other"
sed '2s/,"fingerprint":"[^"]*"}$/}/' "$tmp/made" >"$tmp/other"
input=$tmp/good.jsonl fails "one result of an older version" 2 "line 2 of a version without" -m "$model" --resume "$tmp/other"

# Errors are computed again if one says so.
awk 'BEGIN {
    for (i = 0; i < 40; i++) {
        printf "{\"custom_id\":\"%d\",\"prompt\":\"Once upon a time\",\"max_tokens\":5}\n", i
        printf "{\"prompt\":\"%d", i
        for (k = 0; k < 70; k++) printf " word"
        print "\",\"max_tokens\":20}"
    }
}' >"$tmp/two.jsonl"
echo '{"prompt":7}' >>"$tmp/two.jsonl"
input=$tmp/two.jsonl run -m "$model" -c 512
sort "$tmp/out" >"$tmp/all"
short() { rm -f "$1"; input=$tmp/two.jsonl run -m "$model" -c 64 --resume "$1"; }
short "$tmp/short"
check "40 lines are too long, and one is none" "$(cut -c 1-200 "$tmp/short" | grep -c ':{"status_code":400')" \
    [ "$(cut -c 1-200 "$tmp/short" | grep -c ':{"status_code":400')" -eq 41 ]
fails "--retry-errors alone" 2 "needs --resume" -m "$model" --retry-errors
input=$tmp/two.jsonl fails "a longer context by itself" 2 "ctx-size" -m "$model" -c 512 --resume "$tmp/short"
same_but_context() {                   # what was good is still of the short one
    sed 's/-64"}$/-512"}/' "$1" | sort >"$tmp/got"
    cmp -s "$tmp/all" "$tmp/got"
}
chmod 640 "$tmp/short"
ln -s short "$tmp/link"
input=$tmp/two.jsonl run -m "$model" -c 512 --resume "$tmp/link" --retry-errors
check "with --retry-errors: 1, for the one that is none" "exit code $rc" [ $rc -eq 1 ]
check "each line has one result, that of a run with more" "$(cmp "$tmp/all" "$tmp/got" 2>&1)" same_but_context "$tmp/short"
check "the file has the same rights" "$(ls -l "$tmp/short")" [ "$(ls -l "$tmp/short" | cut -c 1-10)" = -rw-r----- ]
check "a link stays one" "$(ls -l "$tmp/link")" [ -L "$tmp/link" ]
check "and nothing is left beside it" "$(ls "$tmp")" [ ! -e "$tmp/short.retry" ]
input=$tmp/two.jsonl run -m "$model" -c 512 --resume "$tmp/short" --retry-errors
check "again: the same" "$(cmp "$tmp/all" "$tmp/got" 2>&1)" same_but_context "$tmp/short"
short "$tmp/short"
cp "$tmp/short" "$tmp/before"
(ulimit -f 8 && exec "$program" -m "$model" -c 512 --resume "$tmp/short" --retry-errors <"$tmp/two.jsonl" >"$tmp/out" 2>"$tmp/err")
rc=$?
check "no room for the copy: 75" "exit code $rc" [ $rc -eq 75 ]
check "it says so, and all results are still there" "$(cat "$tmp/err")" cmp "$tmp/short" "$tmp/before"
check "and no copy" "$(ls "$tmp")" [ ! -e "$tmp/short.retry" ]
mkfifo "$tmp/later"
"$program" -m "$model" -c 512 --resume "$tmp/short" --retry-errors <"$tmp/later" 2>"$tmp/err" &
pid=$!
exec 4>"$tmp/later"
has_good_alone() { ! grep -q '"status_code":400' "$tmp/short"; }
wait_for $pid has_good_alone
input=$tmp/two.jsonl fails "and has one writer: 75" 75 "another run" -m "$model" -c 512 --resume "$tmp/short"
exec 4>&-
wait $pid
tries=0
while [ $tries -lt "${BATCH_KILLS:-20}" ]; do
    tries=$((tries + 1))
    [ $((tries % 4)) -ne 1 ] || short "$tmp/short"
    "$program" -m "$model" -c 512 -t 1 --resume "$tmp/short" --retry-errors <"$tmp/two.jsonl" 2>"$tmp/err" &
    pid=$!
    sleep "0.0$((tries % 9 + 1))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    good=$(grep -c '"status_code":200.*"}$' "$tmp/short")
    [ "$good" -ge 40 ] || break
done
check "killed $tries times, it has all good results" "only $good" [ "$good" -ge 40 ]
input=$tmp/two.jsonl run -m "$model" -c 512 --resume "$tmp/short" --retry-errors
check "and in the end all" "$(cmp "$tmp/all" "$tmp/got" 2>&1)" same_but_context "$tmp/short"

# kill -9 at any moment, five times to a file of results: in the end each line is there, once. The
# moments are up to 11 % of the time that all lines take here and now, behind the run's first line,
# and now and then before it.
make_requests 60 >"$tmp/many.jsonl"
start=$(date +%s%N)
input=$tmp/many.jsonl run -m "$model" -t 1
all_ms=$((($(date +%s%N) - start) / 1000000))
sort "$tmp/out" >"$tmp/all"
rm -f "$tmp/killed"
kills=0 midway=0 wrong=0
n_killed() { cat "$tmp/killed" 2>/dev/null | wc -l; }
while [ $kills -lt "${BATCH_KILLS:-20}" ]; do
    "$program" -m "$model" -t 1 --resume "$tmp/killed" <"$tmp/many.jsonl" >"$tmp/out" 2>"$tmp/err" &
    pid=$! n=$(n_killed)
    until [ $((kills % 4)) -eq 3 ] || [ "$(n_killed)" -gt "$n" ] || ! kill -0 $pid 2>/dev/null; do
        sleep 0.01
    done
    sleep "$(printf '%d.%03d' $((all_ms * (kills % 9 + 1) / 80 / 1000)) \
        $((all_ms * (kills % 9 + 1) / 80 % 1000)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    kills=$((kills + 1))
    n=$(n_killed)
    [ "$n" -eq 0 ] || [ "$n" -eq "$(wc -l <"$tmp/all")" ] || midway=$((midway + 1))
    [ $((kills % 5)) -eq 0 ] || continue
    input=$tmp/many.jsonl run -m "$model" --resume "$tmp/killed"
    sort "$tmp/killed" >"$tmp/got"
    cmp -s "$tmp/all" "$tmp/got" || wrong=$((wrong + 1))
    rm -f "$tmp/killed"
done
check "killed $kills times, and nothing is lost or there twice" "$wrong files differ" [ $wrong -eq 0 ]
check "and killed on the way" "$midway times of $kills" [ $midway -gt $((kills / 2)) ]

# SIGTERM ends it, and what was not finished is done later.
rm -f "$tmp/stopped"
mkfifo "$tmp/endless"
"$program" -m "$model" --resume "$tmp/stopped" <"$tmp/endless" 2>"$tmp/err" &
pid=$!
exec 3>"$tmp/endless"
cat "$tmp/good.jsonl" >&3
wait_for $pid test -s "$tmp/stopped"
input=$tmp/good.jsonl fails "one writer at a time: 75" 75 "another run" -m "$model" --resume "$tmp/stopped"
kill -TERM $pid
wait $pid
check "stopped: 75" "exit code $?" [ $? -eq 75 ]
exec 3>&-
input=$tmp/good.jsonl run -m "$model" --resume "$tmp/stopped"
check "and resumed" "$(wc -l <"$tmp/stopped")" [ "$(wc -l <"$tmp/stopped")" -eq "$(wc -l <"$tmp/good.jsonl")" ]

# ---- shards

: >"$tmp/shards"
for i in 0 1 2; do
    input=$requests run -m "$model" --shard $i/3
    cat "$tmp/out" >>"$tmp/shards"
done
sort "$tmp/shards" >"$tmp/got"
check "three shards make the whole" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
: >"$tmp/shards"
for i in 4 5; do
    export SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_COUNT=2
    input=$requests run -m "$model" --shard auto
    cat "$tmp/out" >>"$tmp/shards"
done
export SLURM_ARRAY_TASK_MAX=6
fails "an array with gaps: 2" 2 "without gaps" -m "$model" --shard auto
export SLURM_ARRAY_TASK_MAX=5
input=/dev/null run -m "$model" --shard auto
check "an array without gaps: 0" "exit code $rc" [ $rc -eq 0 ]
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_COUNT
sort "$tmp/shards" >"$tmp/got"
check "shards of Slurm" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
: >"$tmp/shards"
for i in 0 1 2 3; do
    export JOB_COMPLETION_INDEX=$i JOB_COMPLETIONS=4
    input=$requests run -m "$model" --shard auto
    cat "$tmp/out" >>"$tmp/shards"
done
unset JOB_COMPLETION_INDEX JOB_COMPLETIONS
sort "$tmp/shards" >"$tmp/got"
check "shards of Kubernetes" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
fails "auto without a scheduler" 2 "shard" -m "$model" --shard auto
for wrong in 3/3 0/0 1/-8 -1/8 1/8x 1 /; do fails "shard $wrong" 2 "shard" -m "$model" --shard $wrong; done

# ---- the jobs, with a folder here in place of theirs

mkdir "$tmp/data"
cp "$model" "$tmp/data/model.gguf"
cp "$requests" "$tmp/data/requests.jsonl"
cp "$program" "$tmp/data/batch"
yaml=$root/examples/server/kubernetes.yaml
job=$(sed -n '/- >-$/,/env:/p' "$yaml" | sed '1d; $d' | tr '\n' ' ' |
    sed "s|/data/|$tmp/data/|g; s|batch -m|$program -m|")
pod() { JOB_COMPLETION_INDEX=$1 JOB_COMPLETIONS=2 sh -c "$job" 2>"$tmp/err"; }
pod 0 && pod 1
check "the pods of Kubernetes: 0, though lines failed" "exit code $?" [ $? -eq 0 ]
cat "$tmp"/data/results.?.jsonl | sort >"$tmp/got"
check "and their results" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
check "they may have what they ask for, and no more" "no limits" eval \
    "[ \"\$(sed -n 's/^ *requests: {cpu/{cpu/p' '$yaml')\" = \"\$(sed -n 's/^ *limits: {cpu/{cpu/p' '$yaml')\" ]"
echo text >"$tmp/data/model.gguf"
pod 0
check "a pod whose model is refused: 3" "exit code $?" [ $? -eq 3 ]
python3=$(command -v python3)
if [ -n "$python3" ]; then
    # A pyspark that has one executor, here, and says what it was asked for.
    mkdir "$tmp/pyspark"
    cat >"$tmp/pyspark/sql.py" <<'END'
import subprocess, sys

class SparkSession:
    class builder:
        appName = staticmethod(lambda name: SparkSession.builder)
        getOrCreate = staticmethod(lambda: SparkSession)
    class sparkContext:
        defaultParallelism = 12
        getConf = staticmethod(lambda: {"spark.task.cpus": "3"})
        def textFile(name, minPartitions):
            print("partitions:", minPartitions)
            return Lines(name)

class Lines:
    def __init__(self, name): self.name = name
    def pipe(self, command, checkCode):
        print("command:", command)
        done = subprocess.run(["sh", "-c", command], stdin=open(self.name), stdout=open("piped", "w"))
        sys.exit(done.returncode) if done.returncode and checkCode else None
        return self
    def saveAsTextFile(self, name): open(name, "w").write(open("piped").read())
END
    touch "$tmp/pyspark/__init__.py"
    spark() {
        script=$(cd "$root/examples/server" && pwd)/spark.py
        (cd "$tmp/data" && PYTHONPATH="$tmp" PYTHONDONTWRITEBYTECODE=1 "$python3" "$script" requests.jsonl spark.out \
            >"$tmp/out" 2>"$tmp/err")
    }
    spark
    check "a partition of Spark whose model is refused: 3" "exit code $?" [ $? -eq 3 ]
    cp "$model" "$tmp/data/model.gguf"
    spark
    check "a partition of Spark: 0, though lines failed" "exit code $?" [ $? -eq 0 ]
    sort "$tmp/data/spark.out" >"$tmp/got"
    check "and its results" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
    check "four partitions for each process" "$(cat "$tmp/out")" grep -q -x "partitions: 16" "$tmp/out"
    check "a thread for each core of a task" "$(cat "$tmp/out")" grep -q "^command: .* -t 3 " "$tmp/out"
else skip "the job of Spark" "python3 is not installed"; fi

# slurm.sh without Slurm: BATCH dies so many times, and scontrol starts it again. $tmp/tries has what it was called with.
mkdir "$tmp/bin" "$tmp/slurm"
cat >"$tmp/bin/scontrol" <<'END'
#!/bin/sh
echo "$*" >>requeued
END
cat >"$tmp/bin/dies" <<'END'
#!/bin/sh
echo "$*" >>tries
[ "$(wc -l <tries)" -gt "$KILLS" ] || kill -9 $$
exit "$CODE"
END
chmod +x "$tmp/bin/scontrol" "$tmp/bin/dies"
slurm=$(cd "$root/examples/server" && pwd)/slurm.sh
# slurm_task KILLS CODE: until it is not requeued; its last code in rc
slurm_task() {
    rm -f "$tmp/slurm"/*
    restarts=0
    (
        cd "$tmp/slurm" || exit
        export PATH="$tmp/bin:$PATH" BATCH="$tmp/bin/dies" MODEL=m REQUESTS=/dev/null SLURM_ARRAY_TASK_ID=2 \
            SLURM_JOB_ID=77 KILLS=$1 CODE=$2
        while
            rm -f requeued
            SLURM_RESTART_COUNT=$restarts sh "$slurm" 2>/dev/null
            rc=$?
            [ -s requeued ] && [ $restarts -lt 20 ]
        do restarts=$((restarts + 1)); done
        exit $rc
    )
    rc=$?
}
tries() { sed 's/.* -np \([0-9]*\) .*/\1/' "$tmp/slurm/tries" | tr '\n' ' '; }
slurm_task 0 1
check "a task of Slurm: one try" "$(tries), exit code $rc" [ "$(tries)" = "32 " -a $rc -eq 1 ]
slurm_task 2 0
check "killed twice: each time half as many lines at a time" "$(tries), exit code $rc" \
    [ "$(tries)" = "32 16 8 " -a $rc -eq 0 ]
check "and nothing is left of that" "$(ls "$tmp/slurm")" [ "$(ls "$tmp/slurm")" = tries ]
slurm_task 99 0
check "always killed: it gives up" "$(tries), exit code $rc" [ "$(tries)" = "32 16 8 4 2 1 " -a $rc -eq 137 ]
slurm_task 0 75
check "no memory now: five more tries, as they are" "$(tries), exit code $rc" \
    [ "$(tries)" = "32 32 32 32 32 32 " -a $rc -eq 75 ]
slurm_task 0 3
check "a model that is refused: one try" "$(tries), exit code $rc" [ "$(tries)" = "32 " -a $rc -eq 3 ]

if command -v parallel >/dev/null 2>&1; then
    parallel --pipe -N 7 -j 2 "$program" -m "$model" -t 1 <"$requests" 2>"$tmp/err" | sort >"$tmp/got"
    check "GNU parallel" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
    mkdir "$tmp/parts"
    grep . "$requests" | (cd "$tmp/parts" && split -l 10)
    for try in 1 2; do
        parallel -j 2 --joblog "$tmp/joblog" --resume \
            "$program -m $model -t 1 --resume {}.results <{}; [ \$? -le 1 ]" ::: "$tmp"/parts/x?? 2>"$tmp/err"
    done
    cat "$tmp"/parts/*.results | sort >"$tmp/got"
    check "GNU parallel with a log of jobs" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
    check "and resumed" "$(wc -l <"$tmp/joblog")" [ "$(wc -l <"$tmp/joblog")" -eq $((1 + (lines + 9) / 10)) ]
    rm "$tmp/joblog" "$tmp"/parts/*.results
    mkdir "$tmp/parts/xaa.results"     # cannot be written to: 2
    for try in 1 2; do
        parallel -j 2 --joblog "$tmp/joblog" --resume-failed "$program -m $model -t 1 --resume {}.results <{}" \
            ::: "$tmp"/parts/x?? 2>"$tmp/err"
        [ $try -eq 2 ] || rmdir "$tmp/parts/xaa.results"
    done
    cat "$tmp"/parts/*.results | sort >"$tmp/got"
    check "and a part that failed repeated" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
else skip "GNU parallel" "parallel is not installed"; fi

# ---- audit

input=$requests run -m "$model" --audit "$tmp/ordered" --sample 1
check "an audit finds nothing" "exit code $rc, $(cat "$tmp/err")" grep -q "^batch: $lines lines computed again, 0" "$tmp/err"
check "and says so: 0" "exit code $rc" [ $rc -eq 0 ]
input=$requests run -m "$model" --audit "$tmp/ordered" --sample 0.3
some=$(sed -n 's/^batch: \([0-9]*\) lines computed.*/\1/p' "$tmp/err")
check "a part of the lines" "$some of $lines" [ "${some:-0}" -gt 4 -a "${some:-0}" -lt 30 ]
sed '3s/The/the/2; 5s/"completion_tokens":\([0-9]\)/"completion_tokens":9\1/' "$tmp/ordered" >"$tmp/wrong"
input=$requests run -m "$model" --audit "$tmp/wrong" --sample 1
check "an audit finds what differs" "exit code $rc, $(cat "$tmp/err")" [ $rc -eq 1 ]
check "and prints what it should be" "$(cat "$tmp/out")" sh -c "sed -n 5p '$tmp/ordered' | grep -qxFf - '$tmp/out'"
cat "$tmp/ordered" >"$tmp/pipe" &
input=$requests fails "an audit of a pipe: 75, and it says why" 75 "cannot read $tmp/pipe: " -m "$model" \
    --audit "$tmp/pipe" --sample 1

# ---- embeddings, with a model that writes no text

text_model=$model text_requests=$requests
models=${BITNET_TEST_DATA:-../shared}/models model=$models/q.gguf
if [ -e "$model" ]; then
    requests=$tmp/texts.jsonl
    {
        awk 'BEGIN {
            for (i = 0; i < 60; i++) {
                printf "{\"custom_id\":\"e %d\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",", i
                printf "\"body\":{\"model\":\"any\",\"input\":\"This is text %d.\"}}\n", i
                printf "{\"input\": [\"The %d\", \"A dog\"], \"encoding_format\": \"base64\"}\n", i
            }
        }'
        printf '%s\n' '{"custom_id":"empty","url":"/v1/embeddings","body":{"input":["x",""]}}' \
            '{"custom_id":"text","url":"/v1/completions","body":{"prompt":"x"}}' '{"messages":[]}' '{"prompt":"x"}'
    } >"$requests"
    lines=$(wc -l <"$requests")
    input=$requests run -m "$model" --parallel 1 -t 1 --ordered
    cp "$tmp/out" "$tmp/ordered"
    sort "$tmp/out" >"$tmp/want"
    check "embeddings: some failed: 1" "exit code $rc" [ $rc -eq 1 ]
    check "embeddings: a line for each line" "$(wc -l <"$tmp/out")" [ "$(wc -l <"$tmp/out")" -eq "$lines" ]
    check "embeddings: the form of OpenAI's results" "$(head -n 1 "$tmp/out" | head -c 400)" grep -q -x \
        '{"id":"batch_req_[0-9a-f]*","custom_id":"e 59","response":{"status_code":200,"request_id":"[0-9a-f]*","body":{'\
'"object":"list","data":\[{"object":"embedding","index":0,"embedding":\[[-0-9.e,]*\]}\],"model":"random",'\
'"usage":{"prompt_tokens":\([0-9]*\),"total_tokens":\1}}},"error":null,'\
'"fingerprint":"bitnet.h-[0-9.]*-[0-9a-f]*-f16-[0-9]*"}' "$tmp/out"
    check "embeddings: a text is refused" "$(tail -n 3 "$tmp/out")" \
        [ "$(tail -n 3 "$tmp/out" | grep -c '"status_code":400.*has no output head')" -eq 3 ]
    check "embeddings: an empty input is named" "$(tail -n 4 "$tmp/out")" grep -q '"empty".*input\[1\]: it is' "$tmp/out"
    sorted "embeddings together: the same results" 1
    sorted "embeddings with two threads: the same results" 1 --parallel 3 -t 2
    head -n 37 "$tmp/ordered" >"$tmp/part"
    printf '{"id":"batch_req_' >>"$tmp/part"
    input=$requests run -m "$model" --resume "$tmp/part"
    sort "$tmp/part" >"$tmp/got"
    check "embeddings resumed" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
    for i in 0 1 2; do
        input=$requests run -m "$model" --shard $i/3
        cat "$tmp/out"
    done | sort >"$tmp/got"
    check "embeddings in shards" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" cmp "$tmp/want" "$tmp/got"
    input=$requests run -m "$model" --audit "$tmp/ordered" --sample 1
    check "an audit of embeddings" "exit code $rc, $(cat "$tmp/err")" grep -q "^batch: $lines lines .* 0 of" "$tmp/err"
    sed '5s/"embedding":\[/&9.5,/' "$tmp/ordered" >"$tmp/wrong"
    input=$requests run -m "$model" --audit "$tmp/wrong" --sample 1
    check "an audit finds a number that differs" "exit code $rc, $(cat "$tmp/err")" \
        grep -q "^batch: $lines lines .* 1 of" "$tmp/err"
    tr -d '\n' <"$models/q.json" | sed 's/.*"tokens": *\(\[[^]]*\]\).*/{"input":\1}/' >"$tmp/reference"
    input=$tmp/reference run -m "$model"
    sed 's/.*"embedding":\[\([^]]*\)\].*/\1/' "$tmp/out" | tr ',' '\n' >"$tmp/got"
    od -A n -v -t f4 -w4 "$models/q.embedding.f32" | paste - "$tmp/got" |
        awk '{ off += ($1 - $2) ^ 2; all += $1 ^ 2 } END { exit !(NR == 256 && off < 0.0025 * all) }'
    check "the vector of the reference" "another" [ $? -eq 0 ]
else skip "embeddings" "models/q.gguf is not in BITNET_TEST_DATA"; fi
model=$text_model requests=$text_requests lines=$(grep -c . "$text_requests")

# ---- the compiler lines of README.md, without optimization

grep '^cc ' "$root/examples/server/README.md" | sed "s/-O2/-O0/; s| -o | -o $tmp/|" >"$tmp/lines"
echo '#include <microhttpd.h>' | cc -E - >"$tmp/out" 2>&1 ||
    { grep -v microhttpd "$tmp/lines" >"$tmp/got"; mv "$tmp/got" "$tmp/lines"; }
(cd "$root" && sh -e "$tmp/lines") >"$tmp/out" 2>"$tmp/err"
check "one line each" "exit code $?" [ $? -eq 0 ]
"$tmp/batch" -m "$model" <"$tmp/one" >"$tmp/out" 2>"$tmp/err"
check "and it works" "$(cat "$tmp/out")" grep -qF "$(cat "$tmp/text")" "$tmp/out"

# ---- exit codes

fails "a flag that is none" 2 "--bogus" --bogus
fails "a kv_type that is none" 2 "f16, f32 or i8" -m "$model" --kv-type q8_0
fails "no model" 2 "-m MODEL" --ordered
fails "no such model" 75 "no-such" -m no-such.gguf
echo text >"$tmp/model"
fails "no model file: 3" 3 "model" -m "$tmp/model"
if [ -c /dev/full ]; then
    "$program" -m "$model" <"$requests" >/dev/full 2>"$tmp/err"
    rc=$?
    check "a full disk: 75" "exit code $rc" [ $rc -eq 75 ]
    check "and it says so" "$(cat "$tmp/err")" grep -q "cannot write to standard output" "$tmp/err"
fi
# A limit on files, 4 or 8 KiB: a signal, which would end it in the middle of a line.
(ulimit -f 8 && "$program" -m "$model" <"$requests" >"$tmp/out" 2>"$tmp/err")
rc=$?
check "a file that may not grow: 75" "exit code $rc" [ $rc -eq 75 ]
check "and it says so" "$(cat "$tmp/err")" grep -q "cannot write to standard output" "$tmp/err"
check "whole lines only" "$(tail -c 60 "$tmp/out")" [ -s "$tmp/out" -a -z "$(tail -c 1 "$tmp/out")" ]
"$program" -m "$model" <"$tmp/one" 2>"$tmp/err" >&-
check "stdout is closed: 75" "exit code $?" [ $? -eq 75 ]
"$program" -m "$model" >"$tmp/out" 2>"$tmp/err" <&-
check "stdin is closed: 75" "exit code $?" [ $? -eq 75 ]
if has_terminal; then
    on_terminal "$program -m $model <$requests >$tmp/out"
    check "progress on a terminal" "$(tail -n 1 "$tmp/tty")" grep -q "$lines of $lines lines, 5 failed" "$tmp/tty"
else skip "progress on a terminal" "no terminal"; fi
input=$requests run -m "$model"
check "in a log the last line of it" "$(cat "$tmp/err")" grep -q "^batch: $lines lines, 5 failed, [0-9.]* tokens/s\$" "$tmp/err"
check "once, without control characters" "$(od -c "$tmp/err")" [ "$(grep -c 'lines, ' "$tmp/err")" = 1 -a -z "$(tr -d '[:print:]\n' <"$tmp/err")" ]
input=$requests run -m "$model" --quiet
check "but not with --quiet" "$(cat "$tmp/err")" sh -c "! grep -q 'lines, ' '$tmp/err'"

echo "batch: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
