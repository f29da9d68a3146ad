#!/bin/sh
# Tests of examples/convert with models in Hugging Face's form, which tests/tools/convert_hf.py makes.
#     test_convert_hf.sh PATH_TO_CONVERT PATH_TO_CROSSCHECK PATH_TO_MODEL...
# Python runs without site-packages (-S), which takes it a quarter of the time to start.
# Prints a line for each case (ok, FAIL, skip) and at the end `convert-hf: N passed, N failed, N skipped`; exit code 1
# if a case failed.
[ $# -ge 3 ] || { echo "usage: $0 PATH_TO_CONVERT PATH_TO_CROSSCHECK PATH_TO_MODEL..." >&2; exit 2; }
. "$(dirname "$0")/convert_cases.sh"
crosscheck=$2
shift 2
tool() { python3 -S "$root/tests/tools/convert_hf.py" "$@"; }

# ---- the same weights, whatever form they came in; what is not rounded is the model's own, and so are its logits
for model; do
    short=$(basename "$model" .gguf)
    for kind in auto-bf16scale auto-bf16scale-shards-ascii auto-newer-pad div-bf16scale-pairs div-newer-shards bf16 \
        bf16-shards-pad f16-newer-untied f32-ascii-pairs auto-extras f16-older-untied auto-generation; do
        converts "$short-$kind" "$model" $kind
    done
    converts "$short-exact" "$model" auto-f32scale
    check "$short-exact-tensors" "not the model's" tool compare "$model" "$out" tensors
    check "$short-exact-logits" "not the model's" same_report "$model" "$out"
    # LlamaForCausalLM: the same weights with their rows in another order, and other tokenizers
    for kind in llama-div-bf16scale-untied llama-div-newer-shards-linear llama-auto-llama3-newer llama-auto-llama3 \
        llama-exact-bf16-untied-digits-bare llama-exact-f32-falcon llama-online-bf16-untied llama-div-spm \
        llama-exact-f16-prepend-pairs llama-minicpm-exact-bf16-longrope-spm llama-minicpm-exact-f32-untied-prepend \
        llama-exact-f32-longrope older-f16-spm older-bf16-metaspace-shards; do
        converts "$short-$kind" "$model" $kind
        check "$short-$kind-loads" "it does not" sh -c "report() { '$crosscheck' -m '$out' -n 1; }; report > '$tmp/a'"
    done
done
# ---- the network that the folder describes, computed from it alone, gives these logits
numpy=
for python in python3 /usr/bin/python3; do
    [ -n "$numpy" ] || ! $python -c 'import numpy' 2> /dev/null || numpy=$python
done
if [ -n "$numpy" ] && ${CC:-cc} -O1 -DBITNET_IMPLEMENTATION -include "$root/bitnet.h" "$root/tests/tools/token_logits.c" \
    -o "$tmp/token_logits" -lpthread > "$tmp/err" 2>&1; then
    for model; do
        for kind in llama-div-bf16scale-untied llama-auto-llama3-newer llama-div-newer-shards-linear llama-exact-bf16-untied \
            llama-online-bf16-untied llama-minicpm-exact-bf16-longrope-spm llama-minicpm-exact-f32-untied-prepend \
            auto-bf16scale div-newer-shards older-f16-spm; do
            label=$(basename "$model" .gguf)-$kind-forward
            converts "$label-made" "$model" $kind
            rm -f "$out"
            run "$tmp/made/hf" "$out" --head f32
            check "$label" "$(tail -n 1 "$tmp/err")" "$numpy" "$root/tests/tools/convert_forward.py" "$tmp/made/hf" "$out" "$tmp/token_logits"
        done
    done
else skip forward "numpy is not installed, or the library cannot be compiled: $(head -c 200 "$tmp/err")"; fi

model=$1
converts name "$model" auto --name "a name"
check name-key "another name" grep -q "a name" "$out"
rm -f "$out"
run "$tmp/made/hf" "$out"
check name-folder "another name, or exit code $rc" sh -c "'$program' --inspect '$out' | grep -q 'general.name (string) = \"hf\"$'"
run "$tmp/made/hf/./../hf/." "$out" --force
check name-folder-dot "another name, or exit code $rc" sh -c "'$program' --inspect '$out' | grep -q 'general.name (string) = \"hf\"$'"
mkdir -p "$tmp/models--org--a-model/snapshots"
cp -r "$tmp/made/hf" "$tmp/models--org--a-model/snapshots/0a1b"
run "$tmp/models--org--a-model/snapshots/0a1b/" "$out" --force
check name-cache "another name, or exit code $rc" sh -c "'$program' --inspect '$out' | grep -q 'general.name (string) = \"a-model\"$'"
check no-overwriting "it does" sh -c "! $program '$tmp/made/hf' '$out'"
converts pre "$model" auto --pre llama-bpe

# ---- no file that is read is replaced, not even with --force
converts keeps-shards "$model" auto-newer-shards
kept=$(cksum "$tmp/made/hf/"*)
for file in "$tmp/made/hf/"*; do fails "keeps-${file##*/}" 2 "the same file" "$tmp/made/hf" "$file" --force; done
check keeps "there is another file: $(ls -A "$tmp/made/hf")" test "$kept" = "$(cksum "$tmp/made/hf/"*)"
run "$tmp/made/hf" "$tmp/made/hf/model.gguf"
check beside-what-is-read "exit code $rc, or another file" cmp "$tmp/made/hf/model.gguf" "$out"

rm -rf "$tmp/made"
tool make "$model" "$tmp/made" auto-f32scale
run "$tmp/made/hf" "$out" --head bf16 --force
check note "exit code $rc; $(cat "$tmp/err")" grep -q -x "convert: token_embd.weight: .* numbers are rounded" "$tmp/err"
if [ -z "$RUN" ] && has_terminal; then         # what is told meanwhile has lines of its own
    on_terminal "'$program' '$tmp/made/hf' '$out' --head bf16 --force"
    erased=$(printf '\033[K')
    check bar-note "exit code $rc: $(tail -n 3 "$tmp/tty")" \
        test $rc -eq 0 -a "$(grep -c "^${erased%?K}\[Kconvert: token_embd.weight: [0-9]* of [0-9]* numbers are rounded\$" "$tmp/tty")" = 1
    check bar-note-goes-on "the bar has no end" test "$(grep -c '^convert: .*\] 100 %$' "$tmp/tty")" = 1
else skip bar-note "script gives no terminal here, or an emulator"; fi

# ---- what is damaged: exit code 1, one line that says what, and no file
for kind in auto auto-shards div bf16 f32 llama-exact-bf16 llama-div-spm llama-exact-f16-prepend llama-exact-f32-falcon \
    older-bf16-metaspace auto-newer llama-minicpm-exact-bf16-longrope-spm; do
    tool make "$model" "$tmp/base/$kind" $kind
done
rm -f "$out"
tool make "$root/tests/data/b.gguf" "$tmp/384" auto
run "$tmp/384/hf" "$out" --head q4_k
check head-blocks "exit code $rc: $(cat "$tmp/err")" \
    sh -c "[ $rc -eq 1 ] && grep -q 'embed_tokens.weight.*: its rows are not whole blocks of the type' '$tmp/err' && ! [ -e '$out' ]"
tool cases > "$tmp/cases"
tool break "$tmp/base" "$tmp/broken" || bad broken "they cannot be made"
while read -r name kind word; do
    run "$tmp/broken/$name" "$out"
    refused "$name" "$word"
done < "$tmp/cases"

# ---- what is not used may be anything, and the newer template is taken: the same file
tool varied > "$tmp/cases"
tool vary "$tmp/base" "$tmp/varied" || bad varied "they cannot be made"
while read -r name kind; do
    run "$tmp/varied/$name" "$out" --force
    what=                              # the key of a padding token that does not exist is left out
    [ "$name" != pad-unknown ] || what=tensors
    check "taken-$name" "exit code $rc, or another file: $(cat "$tmp/err")" sh -c "[ $rc -eq 0 ] &&
        python3 -S '$root/tests/tools/convert_hf.py' compare '$tmp/base/$kind/want.gguf' '$out' $what"
done < "$tmp/cases"
rm "$tmp/varied/template-empty/tokenizer_config.json"        # a link to that of others
printf '{"chat_template": ""}' > "$tmp/varied/template-empty/tokenizer_config.json"
run "$tmp/varied/template-empty" "$out" --force
check template-none "exit code $rc, or there is one" sh -c "[ $rc -eq 0 ] && ! grep -aq tokenizer.chat_template '$out'"
tool template-list "$tmp/varied/nan"
run "$tmp/varied/nan" "$out" --force
check template-list "exit code $rc: $(cat "$tmp/err")" \
    sh -c "[ $rc -eq 0 ] && grep -q \"a list without 'default'\" '$tmp/err'"
rm -f "$out"

# ---- files of which something is zero, parts of files, and what the library would refuse
zero="all numbers are zero in 3 tensors: blk.0.ffn_norm.weight, blk.0-1.ffn_gate.weight"
tool change "$model" "$tmp/zeros.gguf" zeros blk.0.ffn_norm blk.0.ffn_gate.w blk.1.ffn_gate.w
for to in "" "--to tl2_r16" "--to tq1_0 --round-scales" "--to tq2_0 --round-scales"; do
    run "$tmp/zeros.gguf" "$out" --force $to
    check "zeros${to#--to}" "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 0 ] && grep -q -x 'convert: $zero' '$tmp/err'"
    run --inspect "$out"
    check "zeros${to#--to}-inspect" "no word" grep -q -x "warning $zero" "$tmp/out"
done
run --inspect "$model"
check zeros-none "there are none" sh -c "! grep -q 'are zero' '$tmp/out'"
tool change "$model" "$tmp/part.gguf" part
run "$tmp/part.gguf" "$out" --force
check part "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 1 ] && grep -q 'this is part 2 of a file split in 3' '$tmp/err'"
run --verify "$model" "$tmp/part.gguf"
check part-verify "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 1 ] && grep -q 'this is part 2 of a file' '$tmp/err'"
run --inspect "$tmp/part.gguf"
check part-inspect "exit code $rc" sh -c "[ $rc -eq 0 ] && grep -q '^warning this is part 2 of a file split in 3' '$tmp/out'"
rm -f "$out"
rm -rf "$tmp/made"
tool make "$model" "$tmp/made" bf16
tool zeros "$tmp/made/hf" layers.0.mlp
run "$tmp/made/hf" "$out"
check zeros-folder "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 0 ] && grep -q 'are zero in .* blk.0.ffn_down.weight' '$tmp/err'"
rm -f "$out"
tool change "$model" "$tmp/eps.gguf" eps
run "$tmp/eps.gguf" "$out"
check refused "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 1 ] && [ -z \"\$(ls -A '$tmp/o')\" ] &&
    grep -q 'it is not written, because bitnet.h would refuse it: .*rms_epsilon.*; --copy writes it' '$tmp/err'"
run "$tmp/eps.gguf" "$out" --copy
check refused-copy "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0 -a -s "$out"
rm -f "$out"
tool change "$model" "$tmp/gate.gguf" gate relu2
run "$tmp/gate.gguf" "$out"
check gate-kept "exit code $rc: $(cat "$tmp/err")" sh -c "[ $rc -eq 0 ] && grep -aq hidden_activation '$out'"
run --inspect "$out"
check gate-known "exit code $rc" sh -c "[ $rc -eq 0 ] && ! grep -q 'hidden_activation.*unknown' '$tmp/out'"
rm -f "$out"

# ---- a call of the system's that fails, one after the other: then there is an error, or nothing is lost
calls="malloc calloc realloc fopen fopen64 fseek ftell fread lstat lstat64"
# faults NAME FOLDER: one after the other, until the fourth tensor: from there on it goes on like that. With
# BITNET__WHOLE=0 each third.
faults() {
    label=$1 folder=$2 fault=0 tensors=0 step=1
    [ "${BITNET__WHOLE:-1}" = 1 ] || step=3
    while [ $tensors -lt 4 ]; do
        fault=$((fault + step))
        rm -f "$tmp/o/"* "$tmp/call"
        FAULT=$fault FAULT_LOG=$tmp/call
        export FAULT FAULT_LOG
        run "$folder" "$out"
        [ -e "$tmp/call" ] || break
        call="$label-$fault-$(cat "$tmp/call")"
        sed -i '/ is left out/d' "$tmp/err"
        if [ $rc -eq 0 ]; then check "$call" "something is lost" cmp "$out" "$tmp/want.gguf"
        else
            check "$call" "exit code $rc, or a file is left: $(ls -A "$tmp/o")" \
                sh -c "[ $rc -eq 1 ] && [ \$(wc -l < '$tmp/err') -eq 1 ] && [ -z \"\$(ls -A '$tmp/o')\" ]"
        fi
        ! grep -q "tensor '" "$tmp/err" || tensors=$((tensors + step))
    done
    unset FAULT FAULT_LOG
    check "$label-all" "only $fault calls" test $fault -gt 100
}
wraps=$(for call in $calls; do printf ' -Wl,--wrap=%s' $call; done)
if [ -z "$RUN" ] && ${CC:-cc} -O0 -DBITNET_NO_SIMD "$root"/examples/convert/*.c "$root"/examples/json/*.c "$root/tests/tools/convert_faults.c" \
    $wraps -o "$tmp/faulty" -lpthread > "$tmp/err" 2>&1; then
    program=$tmp/faulty
    rm -rf "$tmp/made"
    cp -r "$tmp/base/auto" "$tmp/made"
    tool template "$tmp/made"
    run "$tmp/made/hf" "$tmp/want.gguf"
    check fault-none "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0
    check fault-template "no chat template" grep -aq tokenizer.chat_template "$tmp/want.gguf"
    faults fault "$tmp/made/hf"
    rm -rf "$tmp/made" "$tmp/want.gguf"
    tool make "$model" "$tmp/made" llama-auto-spm-llama3
    run "$tmp/made/hf" "$tmp/want.gguf"
    check fault-spm-none "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0
    faults fault-spm "$tmp/made/hf"
    rm -rf "$tmp/made" "$tmp/want.gguf"
    python3 -S "$root/tests/tools/convert_embed.py" new gemma3 "$tmp/gemma3.gguf"
    python3 -S "$root/tests/tools/convert_embed.py" make "$tmp/gemma3.gguf" "$tmp/made" f32
    run "$tmp/made/hf" "$tmp/want.gguf"
    check fault-embed-none "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0
    faults fault-embed "$tmp/made/hf"
else skip faults "an emulator, or no linker with --wrap"; fi

echo "convert-hf: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
