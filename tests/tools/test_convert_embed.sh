#!/bin/sh
# Tests of examples/convert with text embeddings (qwen3, gemma3), which tests/tools/convert_embed.py makes.
#     test_convert_embed.sh PATH_TO_CONVERT PATH_TO_CROSSCHECK [NAME...]
# Prints a line for each case (ok, FAIL, skip) and at the end `convert-embed: N passed, N failed, N skipped`; exit code 1
# if a case failed. BITNET_TEST_DATA has models and vocabularies made by another program (../shared); the models of these
# names go through every form, as two small ones do that are made here.
[ $# -ge 2 ] || { echo "usage: $0 PATH_TO_CONVERT PATH_TO_CROSSCHECK [NAME...]" >&2; exit 2; }
. "$(dirname "$0")/convert_cases.sh"
crosscheck=$2
shift 2
tool() { python3 -S "$root/tests/tools/convert_embed.py" "$@"; }
notes() { check "$1" "$(cat "$tmp/err")" grep -q -x -e "convert: $2" "$tmp/err"; }      # NAME LINE
quiet() { check "$1" "$(cat "$tmp/err")" test ! -s "$tmp/err"; }
keeps() { $RUN "$program" --inspect "$out" | grep -q "^key     $1"; }     # is there such a key?

for arch in qwen3 gemma3; do tool new $arch "$tmp/$arch.gguf"; done
models="$tmp/qwen3.gguf $tmp/gemma3.gguf"
for short; do
    if [ -f "$data/models/$short.gguf" ]; then models="$models $data/models/$short.gguf"
    else skip "$short" "models/$short.gguf is not in BITNET_TEST_DATA"; fi
done

# ---- folders: tensor for tensor and key for key
for model in $models; do
    short=$(basename "$model" .gguf) window=
    case $short in gemma3|gw) window=--window ;; esac
    converts "$short-exact" "$model" exact${window:+-window} $window
    check "$short-exact-file" "another file" compare "$model" "$out"
    check "$short-exact-states" "other hidden states" same_report "$model" "$out"
    run --inspect "$out"
    check "$short-inspect" "$(grep ^warning "$tmp/out")" grep -q -x "0 warnings" "$tmp/out"
    for kind in bf16-frame f16-plain-newer-pairs f32-shards-mean-head bf16-plain-cls-frame-untied; do
        converts "$short-$kind" "$model" $kind
    done
    run --inspect "$out"
    check "$short-no-head" "there is an output.weight" sh -c "! grep -q '^tensor  output.weight' '$tmp/out'"
done
converts window "$tmp/gemma3.gguf" f32
notes window-noted "sliding_window 8 is left out, as in the published file: .*"
check window-out "it is there" sh -c "! grep -aq sliding_window '$out'"
converts window-newer "$tmp/gemma3.gguf" f32-newer-window --window
quiet window-kept-quiet
converts ids "$tmp/gemma3.gguf" f32-window-ids --window
converts beyond "$tmp/gemma3.gguf" f32-window-beyond --window
notes beyond-noted "tokenizer.json: 1 added tokens are left out: their ids are over the vocab_size of config.json"
converts untied "$tmp/qwen3.gguf" f32-untied
notes untied-noted "lm_head.weight is left out: a model of embeddings has no head"
converts tied "$tmp/qwen3.gguf" f32-head
quiet tied-quiet
converts pooling "$tmp/qwen3.gguf" f32-mean --pooling mean
rm -f "$tmp/made/hf/modules.json" "$out"
run "$tmp/made/hf" "$out" --pooling mean
check pooling-without-modules "exit code $rc: $(cat "$tmp/err")" compare "$tmp/made/want.gguf" "$out"
for pooling in mean:1 first:2 last:3; do
    run "$tmp/made/hf" "$out" --pooling ${pooling%:*} --force
    check "pooling-$pooling" "exit code $rc" keeps "qwen3.pooling_type (u32) = ${pooling#*:}\$"
done
sed -i 's/"add_bos_token": false/"add_eos_token": false/' "$tmp/made/hf/tokenizer_config.json"
run "$tmp/made/hf" "$out" --pooling last --force
check qwen-eos "$(cat "$tmp/err")" keeps "tokenizer.ggml.add_eos_token (bool) = true\$"
tool make "$tmp/gemma3.gguf" "$tmp/no-eos" f32-window
sed -i 's/"add_eos_token": true/"add_eos_token": false/' "$tmp/no-eos/hf/tokenizer_config.json"
run "$tmp/no-eos/hf" "$out" --window --force
check gemma-no-eos "exit code $rc" keeps "tokenizer.ggml.add_eos_token (bool) = false\$"
notes no-eos-noted "the last token becomes the vector, and the tokenizer puts no EOS there"
for type in f32 bf16 q8_0 q6_k q4_k q5_0; do
    run "$tmp/made/hf" "$out" --pooling last --head $type --force
    run --inspect "$out"
    check "head-$type" "exit code $rc" grep -q "^tensor  token_embd.weight $(echo $type | tr a-z A-Z) " "$tmp/out"
done
for arch in qwen3 gemma3; do
    converts $arch-rounded "$tmp/$arch.gguf" f32-odd-window $([ $arch = qwen3 ] || echo --window)
    notes $arch-rounded-norms "norms: [1-9][0-9]* of [0-9]* numbers are rounded"
    check $arch-rounded-lines "$(cat "$tmp/err")" test "$(wc -l < "$tmp/err")" -eq 2
done

# ---- whole vocabularies of the publishers
for kind in qwen3 gemma3; do
    vocab=$data/tokenizer/$kind-vocab.gguf
    if [ ! -f "$vocab" ]; then skip "vocab-$kind" "tokenizer/$kind-vocab.gguf is not in BITNET_TEST_DATA"; continue; fi
    rm -rf "$tmp/made" "$out"
    tool vocab "$vocab" "$tmp/made"
    run "$tmp/made/hf" "$out"
    check "vocab-$kind" "exit code $rc: $(cat "$tmp/err")" tool same "$vocab" "$out"
done

# ---- packings, there and back
# packed NAME MODEL BACK... -- THERE...: what it becomes has the same weights and makes the same hidden states, and back
# it is the same file
packed() {
    label=$1 from=$2 back=
    shift 2
    while [ "$1" != -- ]; do back="$back $1"; shift; done
    shift
    rm -f "$out" "$tmp/back.gguf"
    run "$from" "$out" "$@"
    check "$label" "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0 -a ! -s "$tmp/err"
    run --inspect "$out"
    case $label in                             # no tile was published for these shapes
        *-tl[12]) wanted="^warning bitnet.h does not load it: .* give the converter's BM, BK, bm" n=1 ;;
        *) wanted='^0 warnings$' n=0 ;;
    esac
    check "$label-inspect" "$(grep ^warning "$tmp/out")" \
        test "$(grep -c "$wanted" "$tmp/out") $(sed -n 's/ warnings*$//p' "$tmp/out")" = "1 $n"
    run "$out" "$tmp/back.gguf" $back
    check "$label-back" "exit code $rc, or another file" cmp "$tmp/back.gguf" "$from"
    [ "$1" != --to ] || shift 2                # the file says so
    run --verify "$from" "$out" "$@"
    check "$label-verify" "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
}
for model in $models; do
    short=$(basename "$model" .gguf) tile=128,64 tile2=128,96
    case $short in
        qwen3) tile=32,64 tile2=32,96 ;;
        gemma3) tile=64,64 tile2= ;;           # its rows are too short for TL2
    esac
    $RUN "$program" "$model" "$tmp/from.gguf" --force > "$tmp/out"   # its keys in this program's order
    check "$short-copy" "another file" compare "$model" "$tmp/from.gguf"
    packed "$short-i2s64" "$tmp/from.gguf" --from-layout 64 -- --i2s 64
    packed "$short-i2s4row" "$tmp/from.gguf" --from-layout 4row -- --i2s 4row
    packed "$short-tl1" "$tmp/from.gguf" --from-tile $tile -- --to tl1 --tile $tile
    [ -z "$tile2" ] || packed "$short-tl2" "$tmp/from.gguf" --from-tile $tile2 -- --to tl2 --tile $tile2
    for type in f32 bf16; do
        rm -f "$out"
        run "$model" "$out" --head $type
        check "$short-head-$type" "exit code $rc: $(cat "$tmp/err")" keeps "general.file_type (u32) = 40"
    done
done
if [ -f "$data/models/q.gguf" ]; then         # rows are whole blocks of 256, but scales are no F16s
    tool half "$data/models/q.gguf" "$tmp/half.gguf"
    for type in tq1_0 tq2_0; do
        packed "q-$type" "$tmp/half.gguf" -- --to $type
        check "q-$type-states" "other hidden states" same_report "$tmp/half.gguf" "$out"
    done
else skip q-tq "models/q.gguf is not in BITNET_TEST_DATA"; fi

# ---- wrong usage, and folders that are damaged: one line that says what, and no file
rm -f "$tmp/o/"*
fails pooling-other 2 "'cls' is not mean, first or last" "$tmp/made/hf" "$out" --pooling cls
fails pooling-of-gguf 2 "for a folder's model" "$tmp/qwen3.gguf" "$out" --pooling last
fails window-of-gguf 2 "for a folder's model" "$tmp/qwen3.gguf" "$out" --window
for base in qwen3-f32 qwen3-head gemma3-f32 gemma3-plain gemma3-newer; do
    tool make "$tmp/${base%-*}.gguf" "$tmp/base/$base" "f32-${base#*-}"
done
fails window-of-qwen 1 "'sliding_window' is missing, for --window" "$tmp/base/qwen3-f32/hf" "$out" --window
python3 -S "$root/tests/tools/convert_hf.py" make "$root/tests/data/a.gguf" "$tmp/text" auto
fails pooling-of-text 1 "is not that of a model of embeddings, for --pooling" "$tmp/text/hf" "$out" --pooling last
fails pre-of-gemma 1 "tokenizer.json: --pre is for byte-level BPE" "$tmp/base/gemma3-f32/hf" "$out" --pre qwen2
for change in 's/"sliding_window_pattern": 6/"sliding_window_pattern": 5/:sliding_window_pattern' \
    's/"rope_local_base_freq": 10000.0/"rope_local_base_freq": 20000/:rope_local_base_freq'; do
    rm -rf "$tmp/window"
    cp -r "$tmp/base/gemma3-f32/hf" "$tmp/window"
    sed -i "${change%:*}" "$tmp/window/config.json"
    fails "window-${change##*:}" 1 "'${change##*:}' is not" "$tmp/window" "$out" --window
done
rm -rf "$tmp/window"
cp -r "$tmp/base/gemma3-newer/hf" "$tmp/window"
sed -i 's/"full_attention", /"sliding_attention", /' "$tmp/window/config.json"
fails window-layers 1 "'layer_types' does not have" "$tmp/window" "$out" --window
tool cases > "$tmp/cases"
tool break "$tmp/base" "$tmp/broken" || bad broken "they cannot be made"
while read -r name base word; do
    run "$tmp/broken/$name" "$out"
    refused "$name" "$word"
done < "$tmp/cases"

echo "convert-embed: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
