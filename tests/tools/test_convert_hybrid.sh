#!/bin/sh
# Tests of examples/convert with models of two kinds of layers (architecture qwen35), folded or not.
# tests/tools/convert_hybrid.py makes the models.
#     test_convert_hybrid.sh PATH_TO_CONVERT
# Prints a line for each case (ok, FAIL, skip) and at the end `convert-hybrid: N passed, ...`; exit code 1 if one failed.
[ $# -eq 1 ] || { echo "usage: $0 PATH_TO_CONVERT" >&2; exit 2; }
. "$(dirname "$0")/convert_cases.sh"
tool() { python3 -S "$root/tests/tools/convert_hybrid.py" "$@"; }
# becomes NAME INPUT WANT ARGS...: the output has the tensors and the network of WANT
becomes() {
    name=$1 from=$2 want=$3
    shift 3
    rm -f "$out"
    run "$from" "$out" "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 3 "$tmp/err")"
    elif ! tool compare "$want" "$out" 2> "$tmp/differs"; then bad "$name" "$(head -c 200 "$tmp/differs")"
    else ok "$name"; fi
}

# ---- folders: value heads in turn, norms + 1, decays; what is not ternary stays as it is
for kind in 64 128-bf16; do
    model=$tmp/$kind.gguf
    tool new "$model" $kind
    run --inspect "$model"
    check "$kind-loads" "$(grep ^warning "$tmp/out")" grep -qx "0 warnings" "$tmp/out"
    case $kind in 64) to=q2_0 ;; *) to=pq2_0 ;; esac
    for form in f16 f16-whole f32-shards; do
        rm -rf "$tmp/made"
        tool make "$model" "$tmp/made" $form
        becomes "$kind-$form" "$tmp/made/hf" "$model" --to $to
    done
done
rm -f "$out"
run "$tmp/made/hf" "$out" --to pq2_0
check left-out "it does not say so" grep -q "left out are parts that read images .* (visual, mtp): 1 tensor$" "$tmp/err"
refuses no-type "the weights of Qwen3_5ForCausalLM have a scale per group, which needs --to q2_0" "$tmp/made/hf" "$out"
rm -rf "$tmp/made"
tool make "$tmp/128-bf16.gguf" "$tmp/made" f16
tool break "$tmp/made" "$tmp/broken" || bad broken "they cannot be made"
tool cases > "$tmp/cases"
while read -r name word; do refuses "$name" "$word" "$tmp/broken/$name" "$out" --to pq2_0; done < "$tmp/cases"
if [ -f "$data/models/h2.gguf" ]; then
    rm -rf "$tmp/made"
    tool make "$data/models/h2.gguf" "$tmp/made" f16-whole
    becomes h2 "$tmp/made/hf" "$data/models/h2.gguf" --to q2_0
else skip h2 "models/h2.gguf is not in BITNET_TEST_DATA"; fi

# ---- folded models: to the plain basis and back, with the same codes and scales
# near NAME A B: --verify finds no difference, and tensors in another basis
near() {
    run --verify "$2" "$3"
    check "$1" "exit code $rc: $(grep -m 2 differs "$tmp/out")" grep -q "^0 differences, [1-9][0-9]* tensors in another basis$" "$tmp/out"
}
# unfolds NAME MODEL TO: unfolded to F32 it has the right numbers, and folds back to MODEL; so does F16
unfolds() {
    plain=$tmp/$1-plain.gguf
    run "$2" "$plain" --unfold f32 --force
    check "$1-unfold" "exit code $rc" test $rc -eq 0
    tool unfold "$2" "$plain" > "$tmp/off" 2> "$tmp/err"
    check "$1-numbers" "off by $(cat "$tmp/off")" python3 -S -c "import sys; sys.exit(float(open('$tmp/off').read()) > 1e-6)"
    near "$1-verify" "$2" "$plain"
    near "$1-verify-other" "$plain" "$2"
    becomes "$1-fold" "$plain" "$2" --fold "$2" --to $3
    check "$1-fold-says" "it does not" grep -q "^convert: folded: the weights were off -s, 0 and s by up to [0-9.e-]* s$" "$tmp/err"
    run --verify "$2" "$out"
    check "$1-fold-verify" "exit code $rc" grep -qx "0 differences" "$tmp/out"
    run "$2" "$tmp/f16.gguf" --unfold f16 --force
    near "$1-f16" "$2" "$tmp/f16.gguf"
}
tool new "$tmp/fold.gguf" 128-bf16-fold
unfolds fold "$tmp/fold.gguf" pq2_0
cp "$tmp/fold.gguf" "$tmp/kept.gguf"
fails fold-keeps 2 "the same file" "$tmp/fold-plain.gguf" "$tmp/kept.gguf" --fold "$tmp/kept.gguf" --to pq2_0 --force
check fold-keeps-file "another file" cmp "$tmp/fold.gguf" "$tmp/kept.gguf"
becomes fold-f16-fold "$tmp/f16.gguf" "$tmp/fold.gguf" --fold "$tmp/fold.gguf" --to pq2_0
run "$tmp/fold.gguf" "$tmp/q2.gguf" --to q2_0
near fold-q2-verify "$tmp/q2.gguf" "$plain"
becomes fold-q2-fold "$plain" "$tmp/q2.gguf" --fold "$tmp/fold.gguf" --to q2_0
run "$tmp/fold.gguf" "$tmp/q8.gguf" --unfold q8_0 --copy
near fold-q8 "$tmp/fold.gguf" "$tmp/q8.gguf"
if [ -f "$data/models/hp.gguf" ]; then unfolds hp "$data/models/hp.gguf" pq2_0
else skip hp "models/hp.gguf is not in BITNET_TEST_DATA"; fi
if [ -f "$data/models/ht.gguf" ]; then
    run "$data/models/ht.gguf" "$tmp/ht.gguf" --unfold f32
    near ht "$data/models/ht.gguf" "$tmp/ht.gguf"
    rm -f "$out"
    run "$tmp/ht.gguf" "$out" --fold "$data/models/ht.gguf" --to pq2_0
    run --verify "$data/models/ht.gguf" "$out"
    check ht-fold "exit code $rc: $(grep -m 2 differs "$tmp/out")" grep -qx "0 differences" "$tmp/out"
else skip ht "models/ht.gguf is not in BITNET_TEST_DATA"; fi

plain=$tmp/fold-plain.gguf
# a number that is not finite is no rounding, also where others follow it
run --inspect "$plain"
at=$(sed -n 's/^tensor  blk.0.ffn_up.weight F32 .* at \([0-9]*\), .*/\1/p' "$tmp/out")
for number in 'nan=\300\177' 'inf=\200\177' '-inf=\200\377'; do
    cp "$plain" "$tmp/other.gguf"
    printf "\\0\\0${number#*=}" | dd of="$tmp/other.gguf" bs=1 seek=$((at + 4000)) conv=notrunc 2> /dev/null
    for order in "fold other" "other fold"; do
        run --verify "$tmp/${order% *}.gguf" "$tmp/${order#* }.gguf"
        check "verify-${number%=*}, $order" "exit code $rc: $(tail -n 1 "$tmp/out")" grep -q \
            "^differs blk.0.ffn_up.weight: unfolded, row .*, column .* is .*${number%=*}.* (\(PQ2_0, F32\|F32, PQ2_0\))$" "$tmp/out"
        check "verify-${number%=*}-alone, $order" "$(tail -n 1 "$tmp/out")" grep -q "^1 difference, [1-9]" "$tmp/out"
    done
done

# ---- folds that are not known, files that are not folded, other signs
fold=prism.hadamard
while read -r key value; do
    tool change "$tmp/fold.gguf" "$tmp/other.gguf" $fold.$key "$value"
    refuses "unknown-$key" "key '$fold.$key' is missing or not known here" "$tmp/other.gguf" "$out" --unfold f32
    run --verify "$tmp/other.gguf" "$plain"
    check "unknown-$key-verify" "exit code $rc" test $rc -eq 1
    refuses "unknown-$key-fold" "key '$fold.$key' is missing or not known here" "$plain" "$out" --fold "$tmp/other.gguf" --to pq2_0
done << 'END'
version 3
version -
block_size 96
transform hadamard
axis output
sign_mode random
sign_widths [256,256]
sign_values [2]
sign_values -
END
rm -f "$out"
run "$tmp/other.gguf" "$out" --to pq2_0 --copy
check unknown-copy "exit code $rc, or without the keys" grep -q "$fold.axis" "$out"
tool change "$tmp/fold.gguf" "$tmp/other.gguf" $fold.block_size 1024
refuses block-too-large "rows of 256 weights have no blocks of 1024 with signs" "$tmp/other.gguf" "$out" --unfold f32
tool change "$tmp/fold.gguf" "$tmp/other.gguf" $fold.weight_names '["blk.9.attn_q.weight"]'
refuses name-missing "tensor 'blk.9.attn_q.weight', which is folded, is missing" "$tmp/other.gguf" "$out" --unfold f32
tool change "$tmp/fold.gguf" "$tmp/other.gguf" $fold.sign_values '[1,1,1,1,-1,-1,-1,-1]'
refuses other-signs "folded, they are not -s, 0 and s" "$plain" "$out" --fold "$tmp/other.gguf" --to pq2_0
run --verify "$tmp/other.gguf" "$plain"
check other-signs-verify "exit code $rc" grep -q "^differs .*: unfolded, row .* of the largest weight (PQ2_0, F32)$" "$tmp/out"
for change in "gdn_v_grouped false" "sign_mode identity"; do
    tool change "$tmp/fold.gguf" "$tmp/other.gguf" $fold.${change% *} ${change#* }
    run --verify "$tmp/other.gguf" "$plain"
    check "${change% *}-verify" "exit code $rc" grep -q "^differs .*: unfolded, row" "$tmp/out"
done
refuses not-folded "it is not folded: it has no keys $fold" "$plain" "$out" --unfold f32
refuses not-folded-model "it is not folded: it has no keys $fold" "$plain" "$out" --fold "$plain" --to pq2_0
refuses folded-already "it is folded already; --unfold first" "$tmp/fold.gguf" "$out" --fold "$tmp/fold.gguf" --to pq2_0
[ ! -f "$data/models/hp.gguf" ] ||
    refuses blocks-too-long "rows of 384 weights are not whole blocks of Q4_K" "$data/models/hp.gguf" "$out" --unfold q4_k
fails unfold-to 2 "^convert: --unfold says the type of all matrices" "$tmp/fold.gguf" "$out" --unfold f32 --to q2_0
fails fold-without 2 "^convert: --fold needs --to q2_0" "$plain" "$out" --fold "$tmp/fold.gguf"
fails unfold-folder 2 "are for a GGUF file" "$tmp/made/hf" "$out" --unfold f32
fails unfold-verify 2 "are for writing a file" --verify "$plain" "$tmp/fold.gguf" --unfold f32
fails unfold-type 2 "^convert: --unfold: 'i2_s' is not f16, bf16, f32" "$tmp/fold.gguf" "$out" --unfold i2_s

echo "convert-hybrid: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
