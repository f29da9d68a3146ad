#!/bin/sh
# Tests of examples/convert with weights that have a scale per group: Q1_0, PTQ1_0, and Q2_0 in blocks of 64 and of 128, from
# folders and from one to the other. tests/tools/convert_groups.py makes the models.
#     test_convert_groups.sh PATH_TO_CONVERT PATH_TO_CROSSCHECK
# Prints a line for each case (ok, FAIL, skip) and at the end `convert-groups: N passed, ...`; exit code 1 if one failed.
[ $# -eq 2 ] || { echo "usage: $0 PATH_TO_CONVERT PATH_TO_CROSSCHECK" >&2; exit 2; }
. "$(dirname "$0")/convert_cases.sh"
crosscheck=$2
tool() { python3 -S "$root/tests/tools/convert_groups.py" "$@"; }
# becomes NAME INPUT WANT [tensors] -- ARGS...: the output has the keys and tensors, or only the tensors, of WANT
becomes() {
    name=$1 from=$2 want=$3 what=
    shift 3
    [ "$1" = -- ] || { what=$1; shift; }
    shift
    rm -f "$out"
    run "$from" "$out" "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 3 "$tmp/err")"
    elif ! compare "$want" "$out" $what 2> "$tmp/err"; then bad "$name" "$(head -c 200 "$tmp/err")"
    else ok "$name"; fi
}
says() { check "$1" "'$2' is not in: $(grep -m 3 '^tensor\|^warn' "$tmp/out")" grep -q -e "$2" "$tmp/out"; }

# ---- one size to the other; what is copied keeps its bytes
for kind in 128 128-pq 128-ptq 128-yarn-untied; do
    model=$tmp/$kind.gguf
    tool new "$model" $kind
    check "$kind-loads" "it does not" "$crosscheck" -m "$model" -n 1
    tool to "$model" "$tmp/64.want" 64 42
    tool to "$model" "$tmp/128.want" 128 42
    tool to "$model" "$tmp/pq.want" 128 142
    tool to "$model" "$tmp/ptq.want" 128 143
    becomes "$kind-64" "$model" "$tmp/64.want" -- --to q2_0
    cp "$out" "$tmp/64.gguf"
    check "$kind-64-loads" "it does not" "$crosscheck" -m "$tmp/64.gguf" -n 1
    becomes "$kind-128" "$model" "$tmp/128.want" -- --to q2_0_128
    becomes "$kind-pq" "$model" "$tmp/pq.want" -- --to pq2_0
    becomes "$kind-back" "$tmp/64.gguf" "$tmp/pq.want" -- --to pq2_0
    becomes "$kind-back-128" "$tmp/64.gguf" "$tmp/128.want" -- --to q2_0_128
    becomes "$kind-64-again" "$tmp/64.gguf" "$tmp/64.want" -- --to q2_0
    run --verify "$model" "$tmp/64.gguf"
    check "$kind-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    becomes "$kind-ptq" "$model" "$tmp/ptq.want" -- --to ptq1_0
    check "$kind-ptq-loads" "it does not" "$crosscheck" -m "$out" -n 1
    run --verify "$model" "$out"
    check "$kind-ptq-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    cp "$out" "$tmp/ptq.gguf"
    becomes "$kind-ptq-pq" "$tmp/ptq.gguf" "$tmp/pq.want" -- --to pq2_0
done
tool new "$tmp/64.gguf" 64
tool new "$tmp/equal.gguf" 64-equal
tool to "$tmp/equal.gguf" "$tmp/equal.want" 128 142
becomes equal-128 "$tmp/equal.gguf" "$tmp/equal.want" -- --to pq2_0
run --verify "$tmp/equal.gguf" "$out"
check equal-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
refuses other-scales "'token_embd.weight': row 0 has other scales from column 64 on than from 0 on, and in PQ2_0 128 weights share one" \
    "$tmp/64.gguf" "$out" --to pq2_0
refuses to-i2s "; one is needed here; --to q2_0, q2_0_128" "$tmp/128.gguf" "$out" --to i2_s
refuses to-tq "and in TQ2_0 256 weights share one" "$tmp/128.gguf" "$out" --to tq2_0
run --verify "$tmp/64.gguf" "$tmp/equal.gguf"
check other-verify "exit code $rc, not 1" test $rc -eq 1

# ---- weights of one bit: to Q2_0 and back, also where blocks hold zeros
for kind in q1 q1-zeros-untied; do
    model=$tmp/$kind.gguf
    tool new "$model" $kind
    check "$kind-loads" "it does not" "$crosscheck" -m "$model" -n 1
    for form in "q2_0 64 42" "q2_0_128 128 42" "pq2_0 128 142" "ptq1_0 128 143"; do
        set -- $form
        tool to "$model" "$tmp/other.want" $2 $3
        becomes "$kind-$1" "$model" "$tmp/other.want" -- --to $1
        cp "$out" "$tmp/other.gguf"
        becomes "$kind-$1-back" "$tmp/other.gguf" "$model" -- --to q1_0
        run --verify "$model" "$tmp/other.gguf"
        check "$kind-$1-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    done
    becomes "$kind-again" "$model" "$model" -- --to q1_0
done
check q1-back-loads "it does not" "$crosscheck" -m "$out" -n 1
run --verify "$tmp/q1.gguf" "$tmp/q1-zeros-untied.gguf"
check q1-other-verify "exit code $rc, not 1" test $rc -eq 1
refuses q1-has-no-zero "'token_embd.weight': row 0, column 0 is the weight 0, which Q1_0 cannot hold beside others" \
    "$tmp/128.gguf" "$out" --to q1_0
refuses q1-to-tq "and in TQ2_0 256 weights share one" "$tmp/q1.gguf" "$out" --to tq2_0
tool new "$tmp/minus.gguf" q1-zeros-minus
tool to "$tmp/minus.gguf" "$tmp/minus.want" 128 142
becomes q1-minus "$tmp/minus.gguf" "$tmp/minus.want" -- --to pq2_0
run --verify "$tmp/minus.gguf" "$out"
check q1-minus-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
# a block of zeros is one whatever its scale is
tool new "$tmp/loose.gguf" 128-signs-zeros-loose
tool to "$tmp/loose.gguf" "$tmp/loose.want" 128 41
becomes q1-loose "$tmp/loose.gguf" "$tmp/loose.want" -- --to q1_0
run --verify "$tmp/loose.gguf" "$out"
check q1-loose-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
# blocks of 256 hold two of Q1_0 with one scale; the embedding stays
tool new "$tmp/q1-equal.gguf" q1-equal-wide
for type in tq1_0 tq2_0; do
    rm -f "$out"
    run "$tmp/q1-equal.gguf" "$out" --to $type
    check q1-$type "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0
    cp "$out" "$tmp/other.gguf"
    becomes q1-$type-back "$tmp/other.gguf" "$tmp/q1-equal.gguf" -- --to q1_0
    run --verify "$tmp/other.gguf" "$out"
    check q1-$type-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
done
# all with one scale, but for blocks of zeros
tool new "$tmp/q1-one.gguf" q1-one-zeros
for type in i2_s tl2_r16; do
    rm -f "$out"
    run "$tmp/q1-one.gguf" "$out" --to $type
    check q1-$type "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0
    cp "$out" "$tmp/other.gguf"
    run --verify "$tmp/q1-one.gguf" "$tmp/other.gguf"
    check q1-$type-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    becomes q1-$type-back "$tmp/other.gguf" "$tmp/q1-one.gguf" -- --to q1_0
done

# ---- a weight of 2, which only Q2_0 holds
for kind in 128-signs-one-two-wide 64-signs-one-two-wide; do
    tool new "$tmp/two.gguf" $kind
    check "$kind-loads" "it does not" "$crosscheck" -m "$tmp/two.gguf" -n 1
    for form in "q2_0 64 42" "q2_0_128 128 42" "pq2_0 128 142"; do
        set -- $form
        tool to "$tmp/two.gguf" "$tmp/other.want" $2 $3
        becomes "$kind-$1" "$tmp/two.gguf" "$tmp/other.want" -- --to $1
    done
    run --verify "$tmp/two.gguf" "$out"
    check "$kind-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    while read -r type name tile; do
        refuses "$kind-$type" "'blk.1.ffn_up.weight': row 3, column 130 is the weight 2, which $name cannot hold" \
            "$tmp/two.gguf" "$out" --to $type $tile
    done << 'END'
i2_s I2_S
tl1 TL1 --tile 128,64,32
tl2 TL2 --tile 128,96,32
tl2_r16 TL2_R16
tq1_0 TQ1_0
tq2_0 TQ2_0
q1_0 Q1_0
ptq1_0 PTQ1_0
END
done
tool new "$tmp/signs.gguf" 64-signs-one-wide
run --verify "$tmp/two.gguf" "$tmp/signs.gguf"
check two-other-verify "exit code $rc, not 1" test $rc -eq 1

# ---- --inspect tells the size of the blocks
run --inspect "$tmp/64.gguf"
says inspect-64 "^tensor  blk.0.attn_q.weight Q2_0 .*, blocks of 64, scales 0.0[0-9]* to 0.[12][0-9]*$"
run --inspect "$tmp/128.gguf"
says inspect-128 "^tensor  token_embd.weight PQ2_0 .*, blocks of 128 under number 42, scales"
run --inspect "$tmp/128-pq.gguf"
says inspect-pq "^tensor  blk.0.attn_q.weight PQ2_0 .*, blocks of 128, scales"
says inspect-clean "^0 warnings$"
run --inspect "$tmp/128-ptq.gguf"
says inspect-ptq "^tensor  token_embd.weight PTQ1_0 .*, blocks of 128, scales 0.0[0-9]* to 0.[12][0-9]*$"
says inspect-ptq-clean "^0 warnings$"
run --inspect "$tmp/q1.gguf"
says inspect-q1 "^tensor  token_embd.weight Q1_0 .*, blocks of 128, scales 0.0[0-9]* to 0.[12][0-9]*$"
says inspect-q1-clean "^0 warnings$"
run --inspect "$tmp/two.gguf"
says inspect-two "^tensor  blk.1.ffn_up.weight Q2_0 .*, blocks of 64, scale 0.125, 1 weight of 2$"

# ---- one scale for all: from I2_S and back
one=$root/tests/data/a.gguf
rm -f "$out"
run "$one" "$out" --to q2_0 --round-scales
check one-scale "exit code $rc: $(cat "$tmp/err")" grep -q "scales are rounded to F16" "$tmp/err"
cp "$out" "$tmp/one.gguf"
check one-scale-loads "it does not" "$crosscheck" -m "$tmp/one.gguf" -n 1
rm -f "$out"
run "$tmp/one.gguf" "$out"
cp "$out" "$tmp/back.gguf"
run --verify "$tmp/one.gguf" "$tmp/back.gguf"
check one-scale-back "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
refuses one-scale-exact "is not an F16, which Q2_0 needs; --round-scales rounds it" "$one" "$out" --to q2_0

# ---- folders: exactly, in either size of blocks
for kind in f32 f16 f16-shards; do
    for model in 128 128-yarn-untied; do
        rm -rf "$tmp/made"
        tool make "$tmp/$model.gguf" "$tmp/made" $kind
        tool to "$tmp/$model.gguf" "$tmp/64.want" 64 42
        tool to "$tmp/$model.gguf" "$tmp/pq.want" 128 142
        tool to "$tmp/$model.gguf" "$tmp/ptq.want" 128 143
        becomes "$kind-$model-128" "$tmp/made/hf" "$tmp/$model.gguf" -- --to q2_0_128
        becomes "$kind-$model-64" "$tmp/made/hf" "$tmp/64.want" -- --to q2_0
        becomes "$kind-$model-pq" "$tmp/made/hf" "$tmp/pq.want" -- --to pq2_0
        becomes "$kind-$model-ptq" "$tmp/made/hf" "$tmp/ptq.want" -- --to ptq1_0
        check "$kind-$model-loads" "it does not" "$crosscheck" -m "$out" -n 1
    done
done
for kind in f32 f16; do
    for model in q1 q1-zeros-untied; do
        rm -rf "$tmp/made"
        tool make "$tmp/$model.gguf" "$tmp/made" $kind
        tool to "$tmp/$model.gguf" "$tmp/pq.want" 128 142
        becomes "$kind-$model" "$tmp/made/hf" "$tmp/$model.gguf" -- --to q1_0
        becomes "$kind-$model-pq" "$tmp/made/hf" "$tmp/pq.want" -- --to pq2_0
    done
done
tool new "$tmp/bf16.gguf" 128-bf16
rm -rf "$tmp/made"
tool make "$tmp/bf16.gguf" "$tmp/made" bf16
becomes bf16 "$tmp/made/hf" "$tmp/bf16.gguf" -- --to q2_0_128
rm -rf "$tmp/made"
tool make "$tmp/64.gguf" "$tmp/made" f16
becomes groups-of-64 "$tmp/made/hf" "$tmp/64.gguf" -- --to q2_0
refuses groups-of-64-as-128 "embed_tokens.weight' at offset" "$tmp/made/hf" "$out" --to pq2_0
refuses not-embeddings "--to q2_0 is for weights with a scale per group" "$tmp/made/hf" "$out" --pooling last
rm -rf "$tmp/made"
tool make "$tmp/128.gguf" "$tmp/made" f16
refuses folder-has-zeros "is the weight 0, which Q1_0 cannot hold beside others" "$tmp/made/hf" "$out" --to q1_0
tool break "$tmp/made" "$tmp/broken" || bad broken "they cannot be made"
tool cases > "$tmp/cases"
while read -r name word; do refuses "$name" "$word" "$tmp/broken/$name" "$out" --to pq2_0; done < "$tmp/cases"

# ---- models that another program wrote
for model in s64 s128 s128p; do
    [ -f "$data/models/$model.gguf" ] || { skip "$model" "models/$model.gguf is not in BITNET_TEST_DATA"; continue; }
    case $model in s64) to=q2_0 ;; s128) to=q2_0_128 ;; *) to=pq2_0 ;; esac
    rm -rf "$tmp/made"
    tool make "$data/models/$model.gguf" "$tmp/made" f16
    becomes "$model" "$tmp/made/hf" "$data/models/$model.gguf" tensors -- --to $to
done
for model in q1 q2t; do
    model=$data/models/$model.gguf
    [ -f "$model" ] || { skip "$model" "it is not in BITNET_TEST_DATA"; continue; }
    case $model in *q1.gguf) to=q1_0 other=pq2_0 ;; *) to=q2_0 other=q2_0 ;; esac
    rm -f "$out"
    run "$model" "$out" --to $other
    cp "$out" "$tmp/other.gguf"
    run --verify "$model" "$tmp/other.gguf"
    check "${model##*/}-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    becomes "${model##*/}" "$tmp/other.gguf" "$model" tensors -- --to $to
done
[ ! -f "$data/models/q2t.gguf" ] || {
    refuses q2t-i2s "is the weight 2, which I2_S cannot hold" "$data/models/q2t.gguf" "$out"
    run --inspect "$data/models/q2t.gguf"
    says q2t-inspect "^tensor  blk.0.attn_q.weight Q2_0 .*, blocks of 64, scales .*, [0-9]* weights of 2$"
}

echo "convert-groups: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
