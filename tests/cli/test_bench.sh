# Sourced by test_cli.sh, which has the other cases of bench: its help, and what it says about files.
program=$bench

# ---- help, and arguments that are none
run --help
cp "$tmp/out" "$tmp/help"
check bench-help "exit code $rc" sh -c \
    "[ $rc -eq 0 ] && [ ! -s '$tmp/err' ] && head -n 1 '$tmp/help' | grep -q '^usage: bench \[MODEL | --family NAME\] '"
run -h
check bench-help-short "exit code $rc, or another text" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/help'"
run "$tmp/nowhere.gguf" --quick --help
check bench-help-later "exit code $rc, or another text" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/help'"
for option in "--family NAME" "--layers N" "-t N" "-r ROUNDS" "--kernel NAME" "--kv-type TYPE" --quick --profile --json \
    "--sequences LIST" "--chunks LIST" "--compare COMMAND" "--compare-form FORM" "--compare-limit SECONDS" \
    "--save FILE" --ask --help; do
    check "bench-help-of${option%% *}" "no line for it" grep -q -e "^  $option  *[^ ]" "$tmp/help"
    check "bench-usage-of${option%% *}" "the usage lacks it" \
        sh -c "sed '/^How close/,\$d' '$tmp/help' | grep -q -F -e '$option]'"
done
check bench-help-width "a line is too long" sh -c "! grep '.\{101\}' '$tmp/help'"
if [ -c /dev/full ]; then
    $RUN "$bench" --help > /dev/full 2> "$tmp/err"
    rc=$?
    check bench-help-full "exit code $rc" test $rc -eq 1
else skip bench-help-full "there is no /dev/full"; fi
fails bench-unknown 2 "^bench: unknown argument '--bogus'; --help lists them$" "$model" --bogus
fails bench-unknown-short 2 "^bench: unknown argument '-'; --help lists them$" -
fails bench-unknown-word 2 "^bench: unknown argument 'stray'; --help lists them$" "$model" stray
fails bench-unknown-escape 2 "'--a?\[31m'" "$(printf -- '--a\033[31m')"
for option in "--family NAME" "--kernel NAME" "--kv-type TYPE" "--sequences LIST" "--compare COMMAND" \
    "--compare-form FORM" "--save FILE"; do
    fails "bench-no-value${option%% *}" 2 "^bench: ${option%% *} needs a value: ${option##* }$" \
        "$model" "${option%% *}"
done
fails bench-family-of-file 2 "^bench: --family makes a model" "$model" --family bitnet
fails bench-unknown-family 2 "^bench: the families are .*, not bogus$" --family bogus
fails bench-layers-of-file 2 "^bench: --layers is for a random model, not for a file: " "$model" --layers 2
fails bench-unknown-kv-type 2 "^bench: --kv-type can be .*, not bogus$" "$model" --kv-type bogus

# ---- errors about a file say which one, and why
head -c 100000 "$model" > "$tmp/short.gguf"
fails bench-names-model 1 "^bench: $tmp/short.gguf: GGUF tensor '" "$tmp/short.gguf"
fails bench-names-model-ask 1 "^bench: $tmp/short.gguf: GGUF tensor '" "$tmp/short.gguf" --ask
fails bench-names-missing 1 "^bench: cannot read $tmp/nowhere.gguf: No such file" "$tmp/nowhere.gguf"
fails bench-names-directory 1 "^bench: cannot read $tmp: [A-Z]" "$tmp"
fails bench-names-empty 1 "^bench: cannot read $tmp/empty: it is empty" "$tmp/empty"
fails bench-names-escape 1 "cannot read $tmp/a?\[31m: No such file" "$(printf '%s/a\033[31m' "$tmp")"
fails bench-names-output 1 "^bench: cannot write $tmp/no/x: there is no such folder$" "$model" --save "$tmp/no/x"
if [ -c /dev/full ]; then fails bench-names-full 1 "^bench: cannot write /dev/full: No space" "$model" --save /dev/full
else skip bench-names-full "there is no /dev/full"; fi

# ---- --save says what it has written; it measures only with --ask, and then the same model
written="$tmp/saved.gguf: $(wc -c < "$model" | awk '{ printf "%.1f", $1 / 1e6 }') MB written"
says_written() { [ "$rc" -eq 0 ] && [ "$(cat "$tmp/err")" = "$written" ] && cmp "$tmp/saved.gguf" "$model"; }
rm -f "$tmp/saved.gguf"
run "$model" --save "$tmp/saved.gguf" --quick -r 1
check bench-save-says "exit code $rc, or not '$written' alone" says_written
check bench-save-alone "it has measured" test ! -s "$tmp/out"
rm -f "$tmp/saved.gguf"
echo "scalar 1" > "$tmp/ask"
input=$tmp/ask
run "$model" --ask --save "$tmp/saved.gguf"
input=
check bench-save-ask "exit code $rc, or not '$written' alone" says_written
check bench-save-ask-answers "$(cat "$tmp/out")" sh -c \
    "[ \$(wc -l < '$tmp/out') -eq 2 ] && sed -n 1p '$tmp/out' | grep -q scalar &&
     sed -n 2p '$tmp/out' | grep -qE '^[1-9][0-9.]* [1-9][0-9.]*$'"

# ---- it never writes over the model, and replaces a file only when it is complete
mkdir "$tmp/saves"
saves() { # NAME: a file that was there has stayed, and nothing else is there
    check "$1" "another file, or another name: $(ls -A "$tmp/saves")" \
        sh -c "[ \"\$(ls -A '$tmp/saves')\" = model.gguf ] && cmp '$tmp/saves/model.gguf' '$tmp/kept'"
}
cp "$model" "$tmp/saves/model.gguf"
cp "$model" "$tmp/kept"
fails bench-save-model 2 "^bench: --save $tmp/saves/../saves/model.gguf: it is the model$" \
    "$tmp/saves/model.gguf" --save "$tmp/saves/../saves/model.gguf"
saves bench-save-model-stays
ln "$tmp/saves/model.gguf" "$tmp/linked.gguf"
fails bench-save-model-linked 2 "it is the model$" "$tmp/linked.gguf" --save "$tmp/saves/model.gguf"
saves bench-save-model-linked-stays
rm "$tmp/linked.gguf"
echo old > "$tmp/kept"
chmod 600 "$tmp/kept"
cp -p "$tmp/kept" "$tmp/saves/model.gguf"
if (ulimit -f 100) 2> /dev/null && [ -z "$RUN" ]; then
    (ulimit -f 100; failed=0; fails bench-save-full 1 "^bench: cannot write " "$model" --save "$tmp/saves/model.gguf"
        [ $failed -eq 0 ])
    check bench-save-full "see above" test $? -eq 0
    saves bench-save-full-stays
else skip bench-save-full "no limit on sizes here"; fi
run "$model" --save "$tmp/saves/model.gguf"
cp -p "$model" "$tmp/kept"
saves bench-save-replaces
check bench-save-permissions "$(ls -l "$tmp/saves")" sh -c "ls -l '$tmp/saves/model.gguf' | grep -q '^-rw-------'"
echo old > "$tmp/saves/model.gguf"
ln -s saves/model.gguf "$tmp/save-link"
run "$model" --save "$tmp/save-link"
saves bench-save-through-link
check bench-save-link-stays "it is gone" test -L "$tmp/save-link"
rm "$tmp/save-link"
ln -s saves/none "$tmp/save-link"
fails bench-save-link-to-nothing 1 "^bench: cannot write $tmp/save-link: it is a link that leads nowhere$" "$model" \
    --save "$tmp/save-link"
rm "$tmp/save-link"
# A shell starts processes in the background with SIGINT ignored, which env undoes.
if [ -z "$RUN" ] && env --default-signal=INT true 2> /dev/null; then
    for signal in INT TERM HUP; do
        env --default-signal=$signal "$bench" --family bonsai-27b --save "$tmp/saves/model.gguf" > "$tmp/out" 2> "$tmp/err" &
        job=$!
        wait_for $job sh -c "[ -s '$tmp'/saves/model.gguf.*.part ]"
        kill -$signal $job
        wait $job 2> /dev/null
        rc=$?
        check "bench-save-$signal" "exit code $rc" test $rc -gt 128
        saves "bench-save-$signal-stays"
    done
else skip bench-save-INT "an emulator, or no env --default-signal"; fi

# ---- a family's random model has the size of the published one: the bytes of its tensors, and 3.7 MB of keys
if (ulimit -v 100000) 2> /dev/null && [ -z "$RUN" ] && [ -c /dev/null ]; then
    for family in bitnet-tq2=1197.6 bonsai-27b=7198.8 bonsai-27b-ptq=5939.3 bonsai-27b-q2=7578.0; do
        (ulimit -v 100000; run --family "${family%=*}" --save /dev/null; exit $rc)
        rc=$?
        check "bench-size-${family%=*}" "exit code $rc, or another size: $(cat "$tmp/err")" \
            sh -c "[ $rc -eq 0 ] && [ \"\$(cat '$tmp/err')\" = '/dev/null: ${family#*=} MB written' ]"
    done
else skip bench-size "memory is not limited here"; fi
if [ -c /dev/fd/3 ] || [ -e /dev/fd/1 ]; then
    { $RUN "$bench" --family bonsai-27b --layers 4 --save /dev/fd/3 3>&1 2> "$tmp/err"; } | head -c 5000000 > "$tmp/head"
    check bench-fold-keys "not the ten keys of prism.hadamard" \
        test "$(grep -a -o 'prism\.hadamard\.[a-z_]*' "$tmp/head" | sort -u | wc -l)" -eq 10
    check bench-layers "not three layers with a state and one of attention" test \
        "$(grep -a -o 'blk\.[0-9]*\.\(ssm_a\|attn_k.weight\)' "$tmp/head" | sort -u | tr '\n' ' ')" = \
        "blk.0.ssm_a blk.1.ssm_a blk.2.ssm_a blk.3.attn_k.weight "
else skip bench-fold-keys "there is no /dev/fd"; fi
