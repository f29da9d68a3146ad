#!/bin/sh
# Tests of the command examples/crosscheck, from the outside.
#     test_crosscheck.sh PATH_TO_CROSSCHECK PATH_TO_MODEL
# The model is examples/tiny.gguf or another one that was trained on English. Prints a line for each case (ok, FAIL,
# skip) and at the end `crosscheck: N passed, N failed, N skipped`; exit code 1 if a case failed. RUN in the
# environment is put in front of the program (an emulator); CC builds one with a wrong kernel.
[ $# -eq 2 ] || { echo "usage: $0 PATH_TO_CROSSCHECK PATH_TO_MODEL" >&2; exit 2; }
case $1 in */*) program=$1 ;; *) program=./$1 ;; esac
model=$2 root=$(dirname "$0")/../..
[ -x "$program" ] || { echo "$0: there is no program '$program'" >&2; exit 2; }
[ -f "$model" ] || { echo "$0: there is no model '$model'" >&2; exit 2; }
. "$root/tests/cases.sh"
report() { run -m "$model" -n 4 "$@"; }          # of the kernels and the model
# same NAME ARGS...: exit code 0 and the report in $tmp/want
same() {
    name=$1
    shift
    report "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 2 "$tmp/err")"
    elif ! cmp -s "$tmp/out" "$tmp/want"; then bad "$name" "another report: $(cmp "$tmp/out" "$tmp/want")"
    else ok "$name"; fi
}
# differs NAME WORDS...: $tmp/want and $tmp/other have a first difference, told with each of these words
differs() {
    name=$1
    shift
    run --compare "$tmp/want" "$tmp/other"
    [ $rc -eq 1 ] || { bad "$name" "exit code $rc, not 1: $(cat "$tmp/out" "$tmp/err")"; return; }
    for word in "$@"; do
        grep -q -e "$word" "$tmp/out" || { bad "$name" "'$word' is not in: $(cat "$tmp/out")"; return; }
    done
    ok "$name"
}
# refused NAME WORD: $tmp/other is nothing to compare
refused() { fails "$1" 2 "$2" --compare "$tmp/want" "$tmp/other"; }
edit() { sed -e "$1" "$tmp/want" > "$tmp/other"; }

# ---- wrong usage: 2; failures: 1
fills_streams streams-closed --compare "$tmp/waits" "$tmp/waits"
fails bad-flag 2 "--bogus" --bogus
fails stray-word 2 "stray" stray
fails missing-value 2 "-m needs a value" -m
fails one-report 2 "A B" --compare "$model"
fails bad-number 2 "'0'" -m "$model" -n 0
fails bad-number-tail 2 "'2x'" -m "$model" -t 2x
fails empty-prompt 2 "empty" -m "$model" -p ""
fails bad-kv 2 "not f16, f32 or i8" -m "$model" --kv f8
fails bad-layout 2 "128, 64 or 4row" -m "$model" --i2s-packing 32
fails bad-bug 2 "arm64-layout" -m "$model" --emulate-bug other
fails bad-tile 2 "'1,2' is not BM,BK,bm" -m "$model" --tile 1,2
fails bug-and-layout 2 "exclude" -m "$model" --emulate-bug arm64-layout --i2s-packing 64
fails which-and-layout 2 "exclude" -m "$model" --which-packing --i2s-packing 64
fails which-without-model 2 "-m FILE" --which-packing
fails unknown-kernel 2 "bogus" --kernel bogus
fails model-missing 1 "nowhere.gguf.*cannot open" -m "$tmp/nowhere.gguf"
fails model-not-gguf 1 "not a GGUF" -m "$0"
fails bad-batch 2 "65536" -m "$model" -b 65537
run --help
check help "no help, or exit code $rc" grep -q -e "--emulate-bug" "$tmp/out"

# ---- the same report, whatever computes it
run
check kernels "exit code $rc" test $rc -eq 0
check kernels-size "over 320 KB, or nothing" test "$(wc -c < "$tmp/out")" -lt 320000 -a -s "$tmp/out"
check kernels-nan "a NaN, whose bits differ between CPUs" \
    sh -c "! grep ' | f[0-9]* ' '$tmp/out' | grep -ow '[7f]f[89a-f][0-9a-f]\{5\}' | grep -v f800000"
for op in quantize dotrows_ternary dotrows_f32 dotrows_f16 dotrows_bf16 scores_f16 sumrows_f32 sumrows_f16 softmax rope \
    store_f16 dequantize relu2_gate silu_gate gelu_gate rmsnorm sigmoid dotrows_u4 dotrows_i2s dotrows_q4_k \
    "dotrows_groups Q2_0" "dotrows_groups PQ2_0" "dotrows_groups TQ2_0" "dotrows_groups Q1_0" "dotrows_groups PTQ1_0"; do
    check "kernels-$op" "no such lines" grep -q "^$op n=33 .*| scalar |\|^$op n=.* cols=33 .*| scalar |" "$tmp/out"
done
for op in scores_i8 weigh_i8 "weigh_i8 part" sumrows_i8 hadamard delta_rule; do
    check "kernels-$op" "no such lines" grep -q "^$op n=64 .*| scalar |\|^$op n=128 .*| scalar |" "$tmp/out"
done
cp "$tmp/out" "$tmp/kernels"
kernels=$(sed -n 's/^crosscheck: kernels://p' "$tmp/err" | sed 's/ (default)//; s/[^ ]* (not usable here)//g')
check kernels-named "no scalar on stderr" sh -c "echo '$kernels' | grep -qw scalar"
check kernels-default "no default on stderr" grep -q "(default)" "$tmp/err"
run --short
check short "values, or other lines than without" sh -c "sed 's/^\(.* | .* | [^|]*\) |.*/\1/' '$tmp/kernels' | cmp - '$tmp/out'"

report -t 1
cp "$tmp/out" "$tmp/want"
check report "exit code $rc" test $rc -eq 0
check report-begins "not the report without a model at its beginning" \
    sh -c "sed '\$d' '$tmp/kernels' > '$tmp/head'; head -n \$(wc -l < '$tmp/head') '$tmp/want' | cmp - '$tmp/head'"
check report-text "no text on stderr" grep -q "goes on: .*[a-z]" "$tmp/err"
sed -n 's/.*goes on: //p' "$tmp/err" > "$tmp/text"
for t in 0 2 3; do same "threads-$t" -t $t; done
for b in 1 7 32; do same "batch-$b" -b $b -t 2; done
for k in $kernels; do
    same "kernel-$k" --kernel "$k" -t 2 -b 20
    check "kernel-$k-named" "it did not run the model" grep -q "model with kernels $k, 2 threads" "$tmp/err"
done
report --kv f32
check kv-f32 "exit code $rc" test $rc -eq 0
cp "$tmp/out" "$tmp/other"
differs kv-differs "different runs" "kv f16" "kv f32"
cp "$tmp/want" "$tmp/f16"
report --kv i8 -t 1
cp "$tmp/out" "$tmp/want"
check kv-i8 "exit code $rc" test $rc -eq 0
for k in $kernels; do same "kv-i8-$k" --kernel "$k" --kv i8 -t 2 -b 20; done
cp "$tmp/f16" "$tmp/want"
report --short
cp "$tmp/out" "$tmp/short"

if command -v python3 > /dev/null; then
    cat > "$tmp/hash.py" << 'END'
import re, sys
for line in open(sys.argv[1]):
    fields = line.rstrip("\n").split(" | ")
    if len(fields) < 4: continue
    types, h = fields[2].split()
    sizes = [{"b": 1, "h": 2}.get(t, 4) for t, n in re.findall("([bhif])([0-9]+)", types) for i in range(int(n))]
    values, fnv = fields[3].split(), 0xcbf29ce484222325
    assert [len(v) for v in values] == [2 * s for s in sizes], line[:80]
    for v in values:
        for byte in bytes.fromhex(v)[::-1]: fnv = (fnv ^ byte) * 0x100000001b3 % 2**64
    assert "%016x" % fnv == h, line[:80]
END
    check hashes "they are not FNV-1a of the values" python3 "$tmp/hash.py" "$tmp/want"
else skip hashes "python3 is not installed"; fi

# ---- two reports
run --compare "$tmp/want" "$tmp/want"
check compare-same "exit code $rc, or not 'same: N lines'" grep -qx "same: $(grep -c ' | ' "$tmp/want") lines" "$tmp/out"
run --compare "$tmp/short" "$tmp/want"
check compare-short "exit code $rc" test $rc -eq 0
sed 's/$/\r/' "$tmp/want" > "$tmp/other"
run --compare "$tmp/other" "$tmp/want"
check compare-crlf "exit code $rc" test $rc -eq 0
{ printf '\357\273\277'; cat "$tmp/want"; } > "$tmp/other"
run --compare "$tmp/other" "$tmp/want"
check compare-mark "exit code $rc" test $rc -eq 0
number='[0-9a-f]\{8\}'
product='dotrows_ternary n=128 rows=37 cols=1 random seed=1'
edit "s/^\($product | scalar | .*| $number $number \)$number/\10000007b/"
differs kernel-element "$product, kernel scalar" "element 2 of i37 (row 2, column 0): " "other 123$"
edit "s/^\($product | scalar | .*| $number $number \)$number/\1ffffff85/"
differs negative-element "$product" "element 2 of i37" "other -123$"
edit "s/^\(sumrows_f32 n=17 rows=5 cols=2 wide seed=1 |.* \)$number/\13fc00000/"
differs mixed-element "sumrows_f32 n=17" "element 33 of f34 (place 16, column 1): .*, .*other 1.5 (0x3fc00000)$"
edit "s/^\(store_f16 n=3 wide seed=1 | .*| .... \)..../\13c01/"
differs f16-element "store_f16 n=3 wide" "element 1 of h3" "other 1.00097656 (0x3c01)$"
edit "s/^\(quantize n=3 normal seed=1 | .*| .. \)../\1fe/"
differs int8-element "quantize n=3 normal" "element 1 of b3i1f1" "other -2$"
edit "s/^\(quantize n=3 normal seed=1 | .*| .. .. .. $number \)$number/\13fc00000/"
differs type-of-element "element 4 of b3i1f1" "other 1.5 (0x3fc00000)$"
edit "s/^\(stream after layer 1, token [0-9]* | model .*| $number \)$number/\13fc00000/"
differs layer-element "first difference: stream after layer 1, token [0-9]*, model" "element 1 of f256" "1.5 (0x3fc00000)$"
edit "s/^\(stream after layer 1, tokens .*\)...$/\1xyz/"
differs layer-earlier "stream after layer 1, tokens 0 to" "hash" "xyz$"
edit "s/^\(logits .* | model .*| $number \)$number/\13fc00000/"
differs logits "logits after the prompt" "element 1 of f2048" "1.5 (0x3fc00000)$"
edit "s/^\(greedy token 3 .*| \)$number/\10000002a/"
differs token "greedy token 3" "element 0 of i1f1" "other 42$"
edit "s/^\(greedy token 3 .*| $number \)$number/\13fc00000/"
differs token-logit "greedy token 3" "element 1 of i1f1" "1.5 (0x3fc00000)$"
edit "s/^\(note model .*\)...$/\1xyz/"
run --compare "$tmp/want" "$tmp/other"
check other-model "exit code $rc, or no word of the other model" sh -c "[ $rc -eq 0 ] && grep -q 'want: note model' '$tmp/out' && grep -q 'other: note.*xyz' '$tmp/out'"
# a line of a wrong kernel, in either report
awk -v p="$product" '{ print } index($0, p " | scalar") == 1 { sub(/scalar/, "wrong9"); sub(/[0-9a-f]+$/, "0000007b"); print; n = 1 }
    /^end/ && n == 0 { exit 1 }' "$tmp/want" | sed "s/^end .*/end $(wc -l < "$tmp/want")/" > "$tmp/other"
differs wrong-kernel "$product, kernel wrong9, only in .*other" "element 36 of i37 .*: scalar .*, wrong9 123$"
cp "$tmp/want" "$tmp/good"
mv "$tmp/other" "$tmp/want"
mv "$tmp/good" "$tmp/other"
differs wrong-kernel-first "$product, kernel wrong9, only in .*want" "element 36 of i37 .*: scalar .*, wrong9 123$"
mv "$tmp/other" "$tmp/want"
cp "$tmp/kernels" "$tmp/other"
differs one-without-model "different runs" "ends here"
report -n 5
cp "$tmp/out" "$tmp/other"
differs other-n "different runs" "-n 5"

head -n 100 "$tmp/want" > "$tmp/other"; refused truncated-lines "truncated"
head -c 100000 "$tmp/want" > "$tmp/other"; refused truncated-bytes "truncated"
sed 50d "$tmp/want" > "$tmp/other"; refused missing-line "truncated"
printf '%s' "$(cat "$tmp/want")" > "$tmp/other"; refused missing-newline "truncated"
cat "$tmp/want" "$tmp/want" > "$tmp/other"; refused two-in-one "truncated"
edit '1s/2$/3/'; refused version "version 3"
edit '20s/ | / /g'; refused damaged "line 20"
: > "$tmp/other"; refused empty "is not a report"
cp "$model" "$tmp/other"; refused no-text "is not a report"
rm "$tmp/other"; refused missing "cannot open"
mkdir "$tmp/other"; refused directory "other"
rmdir "$tmp/other"

# ---- layouts
report --emulate-bug arm64-layout
cp "$tmp/out" "$tmp/other"
check bug "exit code $rc" test $rc -eq 0
check bug-text "the same text as without the bug" sh -c "sed -n 's/.*goes on: //p' '$tmp/err' | grep . && ! sed -n 's/.*goes on: //p' '$tmp/err' | cmp - '$tmp/text'"
differs bug-compare "other: note emulated bug: arm64-layout" "stream after layer 0, token" "element 0 of f256"
report --i2s-packing 64
check layout-64 "not what the emulated bug gives" sh -c "grep -v '^note' '$tmp/out' | head -c -1 > '$tmp/a'; grep -v '^note' '$tmp/other' | head -c -1 | cmp - '$tmp/a'"
same layout-128 --i2s-packing 128
run -m "$model" --which-packing
check which-packing "exit code $rc, or not by 128" sh -c "[ $rc -eq 0 ] && grep -q 'likeliest.* by 128' '$tmp/out'"
check which-packing-all "not all three" test "$(grep -c 'nats per token' "$tmp/out")" -eq 3
check which-packing-proof "no such sentence" grep -q "The file does not record" "$tmp/out"

# ---- an output that takes nothing
if [ -c /dev/full ] && ! (: && echo x > /dev/full) 2> /dev/null; then
    for args in "" "--short" "--help" "--compare $tmp/want $tmp/want"; do
        $RUN "$program" $args > /dev/full 2> "$tmp/err"
        rc=$?
        check "full-device${args:+ ${args%% *}}" "exit code $rc, not 1, or no word of it" sh -c "[ $rc -eq 1 ] && grep -q 'cannot write' '$tmp/err'"
    done
else skip full-device "there is no /dev/full here"; fi

# ---- a build whose AVX2 kernels are wrong in one constant: bfloat16 becomes float by a shift of 16
wrong_build() {
    mkdir -p "$tmp/wrong/examples"
    cp "$root"/bitnet*.h "$tmp/wrong"
    cp -r "$root/examples/crosscheck" "$root"/examples/*.h "$tmp/wrong/examples"
    sed 's/_mm256_slli_epi32(lo, 16)/_mm256_slli_epi32(lo, 15)/' "$root/bitnet_kernels_x86.h" > "$tmp/wrong/bitnet_kernels_x86.h"
    ${CC:-cc} -O1 -DBITNET_NO_AVX512 "$tmp"/wrong/examples/crosscheck/*.c -o "$tmp/wrong/crosscheck" -lpthread > "$tmp/err" 2>&1
}
case " $kernels " in *" avx2 "*)
    if wrong_build; then
        program=$tmp/wrong/crosscheck
        report
        cp "$tmp/out" "$tmp/other"
        check wrong-build "exit code $rc, not 1" test $rc -eq 1
        check wrong-build-stderr "not named on stderr" grep -q "kernel avx2 is wrong: dotrows_bf16 n=.*, element [0-9]*: .* instead of" "$tmp/err"
        check wrong-build-only "another operation is said to be wrong" sh -c "! grep 'is wrong' '$tmp/err' | grep -v ': dotrows_bf16 '"
        check wrong-build-lines "no line of its own" grep -q "^dotrows_bf16 .* | avx2 | f" "$tmp/other"
        differs wrong-build-compare "dotrows_bf16 n=.*, kernel avx[2v].*, only in .*other" "element [0-9]* of f[0-9]* (row .*): scalar .*(0x.*), avx"
        run --kernel scalar
        check wrong-build-scalar "exit code $rc, or another report" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/kernels'"
    else bad wrong-build "it does not compile"; fi ;;
*) skip wrong-build "there are no AVX2 kernels here" ;;
esac

echo "crosscheck: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
