#!/bin/sh
# Tests of the command examples/convert, from the outside; test_convert_hf.sh has those of Hugging Face's form.
#     test_convert.sh PATH_TO_CONVERT
# Prints a line for each case (ok, FAIL, skip) and at the end `convert: N passed, N failed, N skipped`; exit code 1 if a
# case failed. BITNET_TEST_DATA has models in other packings, made by another program (../shared); RUN is an emulator.
[ $# -eq 1 ] || { echo "usage: $0 PATH_TO_CONVERT" >&2; exit 2; }
. "$(dirname "$0")/convert_cases.sh"
a=$root/tests/data/a.gguf b=$root/tests/data/b.gguf tiny=$root/examples/tiny.gguf
mkdir "$tmp/made"
# fails NAME CODE WORD ARGS...: that exit code, one line on stderr that holds the word, and no file but $keep in the
# folder of the output
keep=
fails() {
    name=$1 code=$2 word=$3
    shift 3
    run "$@"
    if [ $rc -ne "$code" ]; then bad "$name" "exit code $rc, not $code; stderr: $(head -n 2 "$tmp/err")"
    elif [ "$(wc -l < "$tmp/err")" -ne 1 ]; then bad "$name" "stderr has $(wc -l < "$tmp/err") lines, not 1"
    elif ! grep -q -e "$word" "$tmp/err"; then bad "$name" "'$word' is not in: $(cat "$tmp/err")"
    elif [ "$(ls -A "$tmp/o")" != "$keep" ]; then bad "$name" "left behind: $(ls -A "$tmp/o")"
    else ok "$name"; fi
}
# makes NAME ARGS...: exit code 0, the output in $out
makes() {
    name=$1
    shift
    rm -f "$out"
    run "$@"
    check "$name" "exit code $rc, or no output" test $rc -eq 0 -a "$(ls -A "$tmp/o")" = out.gguf
}
# start FILE: where its tensors' data begins; all files here have the first tensor first
start() { $RUN "$program" --inspect "$1" 2> /dev/null | sed -n '/^tensor /{s/.* at \([0-9]*\),.*/\1/p;q;}'; }
# same_data NAME FILE: all tensors' bytes of $out are that file's
same_data() {
    tail -c +$(($(start "$out") + 1)) "$out" > "$tmp/data"
    tail -c +$(($(start "$2") + 1)) "$2" | cmp - "$tmp/data" > "$tmp/err" 2>&1
    check "$1" "other bytes" test ! -s "$tmp/err" -a -s "$tmp/data"
}
place() { sed -n "s/^tensor  $1 .* at \([0-9]*\), \([0-9]*\) bytes.*/\\$2/p" "$tmp/out"; }    # of what --inspect said
byte() { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }
poke() { printf "\\$(printf %03o "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null; }
# says NAME WORD: that is in what came on stdout
says() { check "$1" "'$2' is not in: $(head -c 200 "$tmp/out")" grep -q -e "$2" "$tmp/out"; }

# ---- wrong usage: 2; failures: 1; nothing is left behind
fails bad-flag 2 "--bogus" --bogus
fails no-files 2 "two files" "$a"
fails inspect-two 2 "one file" --inspect "$a" "$a"
fails three-files 2 "one file too many" "$a" "$out" "$out"
fails missing-value 2 "--to needs a value" "$a" "$out" --to
fails bad-type 2 "'tl3'" "$a" "$out" --to tl3
fails bad-i2s 2 "'32'" "$a" "$out" --i2s 32
fails bad-from 2 "'x'" "$a" "$out" --from-layout x
fails bad-head 2 "'q4_0'" "$a" "$out" --head q4_0
for t in 128 128, 128,0 128,96,32,1 x,96 128,96x -1,96 ,96; do fails "bad-tile $t" 2 "is not a tile" "$a" "$out" --to tl2 --tile $t; done
fails two-packings 2 "exclude" "$a" "$out" --to tl1 --i2s 64
fails tile-of-i2s 2 "--from-tile" "$a" "$out" --tile 128,96
fails two-commands 2 "exclude" --inspect --verify "$a"
fails verify-head 2 "writing" --verify "$a" "$a" --head f16
fails input-missing 1 "nowhere.gguf" "$tmp/nowhere.gguf" "$out"
fails input-not-gguf 1 "not a GGUF" "$0" "$out"
fails folder-missing 1 "cannot write: there is no such folder" "$a" "$tmp/nowhere/out.gguf"
fails output-folder 1 "is not a file" "$a" "$tmp/made" --force
fails no-name 2 "name is empty" "" "$out"
fails no-output-name 2 "name is empty" "$a" ""
fails type-in-capitals 2 "is not i2_s, tl1, .* pq2_0, ptq1_0 or q2_0_128$" "$a" "$out" --to I2_S
fails pre-of-gguf 2 "for a folder" "$a" "$out" --pre llama-bpe
fails name-of-gguf 2 "for a folder" "$a" "$out" --name x
fails verify-name 2 "writing" --verify "$a" "$a" --name x
for option in "--tile 128,96" "--from-tile 128,96" "--i2s 64" "--from-layout 64"; do
    fails "inspect $option" 2 "does not use" --inspect "$a" $option
done
if mkfifo "$tmp/pipe" 2> /dev/null; then       # nobody writes into it
    fails input-pipe 1 "this is not a file" "$tmp/pipe" "$out"
    fails inspect-pipe 1 "this is not a file" --inspect "$tmp/pipe"
    mkdir "$tmp/folder"
    mkfifo "$tmp/folder/config.json"
    fails folder-pipe 1 "config.json: cannot be read: it is not a file" "$tmp/folder" "$out"
    fails output-pipe 1 "is not a file" "$a" "$tmp/pipe" --force
fi
if ln -s nothing "$tmp/link" 2> /dev/null; then
    fails output-link-to-nothing 1 "cannot write: it is a link that leads nowhere" "$a" "$tmp/link"
    echo old > "$tmp/nothing"
    fails output-link-no-force 1 "force replaces it" "$a" "$tmp/link"
    check output-link-stays "it is gone, or what it leads to" test -L "$tmp/link" -a "$(cat "$tmp/nothing")" = old
    run "$a" "$tmp/no-link"
    run "$a" "$tmp/link" --force
    check output-link "exit code $rc, or it is gone, or another file" \
        sh -c "[ $rc -eq 0 ] && [ -L '$tmp/link' ] && cmp '$tmp/no-link' '$tmp/nothing' && [ ! -e '$tmp'/*.part ]"
    cp "$a" "$tmp/nothing.1-0.part"
    touch -t 202001010000 "$tmp/nothing.1-0.part"
    run "$a" "$tmp/link" --force
    check output-link-left-behind "$(cat "$tmp/err")" grep -q "nothing.1-0.part: left behind" "$tmp/err"
    rm -f "$tmp/nothing.1-0.part"
fi
fails no-tile 1 "a shape for which no tile was published; .* (see --tile)$" "$a" "$out" --to tl2
fails tile-does-not-fit 1 "cannot have been made with tile 96,96,32" "$a" "$out" --to tl2 --tile 96,96
run --help
check help "no help, or exit code $rc" grep -q -e "--from-layout" "$tmp/out"
cp "$tmp/out" "$tmp/help"
run "$a" -h
check help-short "exit code $rc, or another text" sh -c "[ $rc -eq 0 ] && cmp '$tmp/out' '$tmp/help'"
run --version
check version "exit code $rc, or no version" sh -c "[ $rc -eq 0 ] && grep -q -x 'convert [0-9]*[.][0-9]*[.][0-9]*' '$tmp/out'"
fails empty-value 2 "--to: the value (TYPE) is empty" "$a" "$out" --to ""

# one_tensor TYPE ROWS: a file with only token_embd.weight [256, ROWS] of that type, ROWS below 2^24 and in octal digits
# as the bytes \LOW\MIDDLE\HIGH
one_tensor() {
    printf 'GGUF\003\0\0\0\001\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\021\0\0\0\0\0\0\0token_embd.weight'
    printf "\\002\\0\\0\\0\\0\\001\\0\\0\\0\\0\\0\\0$2\\0\\0\\0\\0\\0\\$1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
}
{ one_tensor 143 '\001\000\000'; head -c 4096 /dev/zero; } > "$tmp/type99.gguf"
fails unknown-type 1 "unsupported tensor type 99 (unknown)" "$tmp/type99.gguf" "$out"
{ one_tensor 017 '\001\000\000'; head -c 4096 /dev/zero; } > "$tmp/q8k.gguf"
fails nothing-ternary 1 "no ternary weights" "$tmp/q8k.gguf" "$out" --to tl2 --tile 128,96
fails nothing-i2s 1 "no ternary weights" "$tmp/q8k.gguf" "$out" --i2s 64
LC_ALL=C sed 's/token_embd/token_abcd/' "$a" > "$tmp/headless.gguf"
fails no-head 1 "neither token_embd.weight nor" "$tmp/headless.gguf" "$out" --head f16
fails head-of-q8_k 1 "(Q8_K)" "$tmp/q8k.gguf" "$out" --head f16

# ---- packings, there and back; what another program wrote is the same, byte for byte
makes 128 "$a" "$out"
same_data 128-data "$a"
cp "$out" "$tmp/made/128.gguf"
check pre-added "no tokenizer.ggml.pre" grep -aq "tokenizer.ggml.pre" "$out"
makes 128-again "$tmp/made/128.gguf" "$out"
check 128-idempotent "another file" cmp "$out" "$tmp/made/128.gguf"
# packed NAME MODEL FILE BACK... -- THERE...: MODEL becomes what the other program wrote, and that the model
packed() {
    label=$1 from=$2 other=$data/models/$3 back=
    shift 3
    while [ "$1" != -- ]; do back="$back $1"; shift; done
    shift
    makes "$label" "$from" "$out" "$@"
    cp "$out" "$tmp/made/$label.gguf"
    if [ "${other##*/}" = - ]; then :          # nobody else has written it
    elif [ -f "$other" ]; then same_data "$label-data" "$other"; else skip "$label-data" "models/${other##*/} is not in BITNET_TEST_DATA"; fi
    check "$label-file-type" "another general.file_type" file_type "$out" "$@"
    makes "$label-back" "$tmp/made/$label.gguf" "$out" $back
    same_data "$label-back-data" "$from"
    [ "$from" != "$a" ] || check "$label-back-file" "another file" cmp "$out" "$tmp/made/128.gguf"
    [ "$1" != --to ] || shift 2                # the file says so
    run --verify "$from" "$tmp/made/$label.gguf" "$@"
    check "$label-verify" "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
}
file_type() { # FILE ARGS of the conversion
    made=$1
    shift
    case "$*" in *tl2_r16*) want=20016 ;; *tl1*) want=38 ;; *tl2*) want=39 ;; *) want=40 ;; esac
    $RUN "$program" --inspect "$made" | grep "general.file_type (u32) = $want\$"
}
packed i2s64 "$a" a-i2s64.gguf --from-layout 64 -- --i2s 64
packed i2s4row "$a" a-i2s4row.gguf --from-layout 4row -- --i2s 4row
packed tl1 "$a" a-tl1.gguf --from-tile 128,64,32 -- --to tl1 --tile 128,64,32
packed tl2 "$a" a-tl2.gguf --from-tile 128,96 -- --to tl2 --tile 128,96,32
packed tl2r16 "$a" - -- --to tl2_r16
# a tile for each shape, as kernel_config.ini has them: the same as with one where they are equal; else there and back
ini() { # NAME ROWS,N,BM,BK,bm...
    file=$1
    shift
    printf '\357\273\277; %s\n' "tiles" > "$file"       # a byte order mark is no part of it
    for section; do
        echo "$section" | tr , ' ' | { read -r m k bm bk bmm; printf '[Kernels]\r\n m = %s\nk=%s\n\nbm = %s\nbk = %s\nbmm =%s\n' $m $k $bm $bk $bmm; } >> "$file"
    done
}
ini "$tmp/one.ini" 256,256,128,64,32 128,256,128,64,32 768,256,128,64,32 256,768,128,64,32
packed tl1-ini "$a" a-tl1.gguf --from-tile "$tmp/one.ini" -- --to tl1 --tile "$tmp/one.ini"
ini "$tmp/four.ini" 256,256,128,64,32 128,256,64,32,64 768,256,256,128,32 256,768,128,128,64
packed tl1-shapes "$a" - --from-tile "$tmp/four.ini" -- --to tl1 --tile "$tmp/four.ini"
run --verify "$a" "$tmp/made/tl1-shapes.gguf" --tile "$tmp/one.ini"
check tl1-shapes-differ "exit code $rc, not 1" test $rc -eq 1 -a "$(grep -c '^differs .*: row' "$tmp/out")" -ge 1
rm -f "$out"
ini "$tmp/lacks.ini" 256,256,128,64,32 128,256,128,64,32 768,256,128,64,32
fails ini-lacks 1 "256 rows of 768, a shape for which .* (see --from-tile)$" "$tmp/made/tl1.gguf" "$out" --from-tile "$tmp/lacks.ini"
# bad_ini NAME WORD TEXT: no such file of tiles
bad_ini() {
    printf "$3" > "$tmp/bad.ini"
    fails "ini-$1" 2 "bad.ini: line $2" "$a" "$out" --to tl1 --tile "$tmp/bad.ini"
}
bad_ini empty "1: there is no" ""
bad_ini no-section "1: no .section. is in front" "m = 1\n"
bad_ini lacks "6: the section that ends here lacks" "[a]\nm=1\nk=1\nbm=1\nbk=1\n"
bad_ini key "2: this key is none of" "[a]\nn = 1\n"
bad_ini twice "3: this key occurs twice" "[a]\nm = 1\nm = 1\n"
bad_ini number "2: this is not a number" "[a]\nm = 1x\n"
bad_ini text "2: this is neither" "[a]\nm\n"
bad_ini same "12: two sections" "[a]\nm=1\nk=1\nbm=1\nbk=1\nbmm=1\n[b]\nm=1\nk=1\nbm=1\nbk=1\nbmm=1"
fails ini-missing 2 "no kernel_config.ini either: No such file" "$a" "$out" --to tl1 --tile "$tmp/nowhere.ini"
fails ini-folder 2 "it is not a file" "$a" "$out" --to tl1 --tile "$tmp/made"
packed b-tl2 "$b" b-tl2.gguf --from-tile 192,96 -- --to tl2 --tile 192,96,32
for from in "i2s64 --from-layout 64" "i2s4row --from-layout 4row" "tl1 --from-tile 128,64" "tl2 --from-tile 128,96" "tl2r16 "; do
    for to in "i2s64 --i2s 64" "i2s4row --i2s 4row" "tl1 --to tl1 --tile 128,64" "tl2 --to tl2 --tile 128,96" "tl2r16 --to tl2_r16"; do
        label="${from%% *}-to-${to%% *}"
        makes "$label" "$tmp/made/${from%% *}.gguf" "$out" ${from#* } ${to#* }
        check "$label-file" "another file" cmp "$out" "$tmp/made/${to%% *}.gguf"
    done
done
rm -f "$out"
fails wrong-tile 1 "cannot have been made with tile 128,264,32" "$tmp/made/tl2.gguf" "$out" --from-tile 128,264
run --verify "$a" "$tmp/made/i2s64.gguf"
check wrong-layout "exit code $rc, not 1" test $rc -eq 1
how="^note: a file does not say how its I2_S is packed;"
says wrong-layout-note "$how $a was read as 128 (see --from-layout), $tmp/made/i2s64.gguf as 128 (see --i2s)$"
run --verify "$tmp/made/i2s64.gguf" "$tmp/made/i2s4row.gguf" --from-layout 4row --i2s 64
says wrong-layouts-note "$how .*/i2s64.gguf was read as 4row (see --from-layout), .*/i2s4row.gguf as 64 (see --i2s)$"

# ---- TQ1_0 and TQ2_0: the scale has to be an F16, here with the last bits of its mantissa cut off
rm -f "$out"
fails tq-scale 1 "'blk.0.attn_q.weight': its scale, 0.109593831, is not an F16" "$a" "$out" --to tq2_0
fails tq-scale-way-out 1 "which TQ2_0 needs; --round-scales rounds it$" "$tmp/made/tl1.gguf" "$out" --from-tile 128,64 --to tq2_0
fails round-for-i2s 2 "is for --to tq1_0" "$a" "$out" --round-scales
fails inspect-copy 2 "writing a file" --inspect "$a" --copy
makes tq-rounded "$a" "$out" --to tq2_0 --round-scales
check tq-rounded-says "$(cat "$tmp/err")" grep -qx -e "convert: [0-9]* scales are rounded to F16" "$tmp/err"
run --inspect "$out"
says tq-rounded-scale "^tensor  blk.0.attn_q.weight TQ2_0 .*, blocks of 256, scale 0.10961914[0-9]*$"
run "$out" "$tmp/rounded.gguf" --to i2_s
run --verify "$a" "$tmp/rounded.gguf"
says tq-rounded-differs "^differs blk.0.attn_q.weight: the scale is 0.109593831 and "
check tq-rounded-no-note "there is one, and only scales differ" sh -c "! grep -q ^note: '$tmp/out'"
# the last scale is none that an F16 could be: that is found before anything is written
cp "$tmp/made/128.gguf" "$tmp/other.gguf"
run --inspect "$tmp/other.gguf"
last=$(sed -n 's/^tensor  \([^ ]*\) I2_S .*/\1/p' "$tmp/out" | tail -n 1)
at=$(($(place $last 1) + $(place $last 2) - 32))
for i in 0 1 2 3; do poke "$tmp/other.gguf" $((at + i)) $((i == 3 ? 0x7e : 0)); done
rm -f "$out"
fails tq-scale-range 1 "'$last': its scale, .*, is too small or too large for an F16" "$tmp/other.gguf" "$out" --to tq2_0 --round-scales
fails tq-shape 1 "rows of 384 weights, which are not whole blocks of 256" "$b" "$out" --to tq1_0
fails tq-tile 2 "--from-tile" "$a" "$out" --to tq1_0 --tile 128,96
cp "$tmp/made/128.gguf" "$tmp/half.gguf"
run --inspect "$tmp/half.gguf"
for tensor in $(sed -n 's/^tensor  \([^ ]*\) I2_S .*/\1/p' "$tmp/out"); do
    at=$(($(place $tensor 1) + $(place $tensor 2) - 32))
    poke "$tmp/half.gguf" $at 0
    poke "$tmp/half.gguf" $((at + 1)) $(($(byte "$tmp/half.gguf" $((at + 1))) & 0xe0))
done
for type in tq1_0 tq2_0; do
    makes $type "$tmp/half.gguf" "$out" --to $type
    cp "$out" "$tmp/made/$type.gguf"
    run --inspect "$out"
    [ $type = tq1_0 ] && bytes=13824 number=36 || bytes=16896 number=37   # 256 rows of 54 or of 66 bytes
    says $type-tensor "^tensor  blk.0.attn_q.weight $(echo $type | tr a-z A-Z) .* $bytes bytes, .*, scale 0.1095"
    says $type-file-type "general.file_type (u32) = $number\$"
    says $type-clean "^0 warnings$"
    run --verify "$tmp/made/$type.gguf" "$tmp/half.gguf"
    check $type-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
    run --verify "$tmp/made/$type.gguf" "$a"
    check $type-verify-scale "exit code $rc, not 1" test $rc -eq 1
    says $type-verify-scale-named "^differs blk.0.attn_q.weight: the scale is 0.1095[0-9]* and 0.109593831$"
    while IFS='|' read -r to there back; do
        makes $type-$to "$tmp/made/$type.gguf" "$out" $there
        cp "$out" "$tmp/made/other.gguf"
        [ $to != i2_s ] || check $type-$to-file "another file" cmp "$out" "$tmp/half.gguf"
        makes $type-$to-back "$tmp/made/other.gguf" "$out" --to $type $back
        check $type-$to-back-file "another file" cmp "$out" "$tmp/made/$type.gguf"
    done << 'END'
i2_s
i2s64|--i2s 64|--from-layout 64
i2s4row|--i2s 4row|--from-layout 4row
tl1|--to tl1 --tile 128,64|--from-tile 128,64
tl2|--to tl2 --tile 128,96|--from-tile 128,96
tl2_r16|--to tl2_r16
tq1_0|--to tq1_0
tq2_0|--to tq2_0
END
done
# experts: a tensor of three dimensions keeps them
if [ -f "$data/models/mp.gguf" ]; then
    makes experts "$data/models/mp.gguf" "$out" --to tq1_0 --copy
    cp "$out" "$tmp/made/experts.gguf"
    run --inspect "$out"
    says experts-dims "blk.3.ffn_up_exps.weight TQ1_0 \[256, 256, 10\]"
    run --verify "$data/models/mp.gguf" "$tmp/made/experts.gguf"
    check experts-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
    makes experts-back "$tmp/made/experts.gguf" "$out" --to tq2_0 --copy
    same_data experts-back-data "$data/models/mp.gguf"
    makes experts-groups "$data/models/mp.gguf" "$out" --to pq2_0
    cp "$out" "$tmp/made/experts.gguf"
    run --inspect "$out"
    says experts-groups-dims "blk.3.ffn_up_exps.weight PQ2_0 \[256, 256, 10\]"
    makes experts-groups-back "$tmp/made/experts.gguf" "$out" --to tq2_0
    same_data experts-groups-data "$data/models/mp.gguf"
else skip experts "models/mp.gguf is not in BITNET_TEST_DATA"; fi

# a scale beside the weights: what is in the tensor means nothing in I2_S, and is a factor in blocks. Nothing loads these
# files, because output_norm is missing.
beside() { LC_ALL=C sed 's/output_norm.weight/blk.0.attn_q.scale/' "$1"; }
beside "$tmp/half.gguf" > "$tmp/made/beside.gguf"
makes tq-beside "$tmp/made/beside.gguf" "$out" --to tq2_0 --copy
cp "$out" "$tmp/made/other.gguf"
run --inspect "$out"
says tq-beside-scale "^tensor  blk.0.attn_q.weight TQ2_0 .*, scale 1\$"
run --verify "$out" "$tmp/made/beside.gguf"
check tq-beside-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
makes tq-beside-back "$tmp/made/other.gguf" "$out" --copy
run --verify "$out" "$tmp/made/beside.gguf"
check tq-beside-back-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
beside "$tmp/made/tq2_0.gguf" > "$tmp/made/other.gguf"
makes tq-beside-blocks "$tmp/made/other.gguf" "$out" --to tq1_0 --copy
run --verify "$out" "$tmp/made/other.gguf"
check tq-beside-blocks-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
rm -f "$out"
fails tq-beside-both 1 "'blk.0.attn_q.weight': its blocks have the scale 0.1095.* another tensor has a second one" \
    "$tmp/made/other.gguf" "$out"

# other scales in some blocks; none in any; the embedding in blocks
cp "$tmp/made/tq2_0.gguf" "$tmp/other.gguf"
run --inspect "$tmp/other.gguf"
at=$(($(place blk.0.attn_q.weight 1) + 66 * 100 + 64))
poke "$tmp/other.gguf" $at $(($(byte "$tmp/other.gguf" $at) ^ 1))
scales="'blk.0.attn_q.weight': blocks of different scales: .*(row 0, column 0).*(row 100, column 0)"
fails tq-scales 1 "$scales" "$tmp/other.gguf" "$out"
run --inspect "$tmp/other.gguf"
says tq-scales-inspect "^tensor  blk.0.attn_q.weight TQ2_0 .*, blocks of 256, scales 0.10[0-9]* to 0.1[0-9]*$"
check tq-scales-inspect-code "exit code $rc" test $rc -eq 0
cp "$tmp/half.gguf" "$tmp/zeros.gguf"
run --inspect "$tmp/zeros.gguf"
head -c 16384 /dev/zero | tr '\0' U |
    dd of="$tmp/zeros.gguf" bs=1 seek=$(place blk.0.attn_q.weight 1) conv=notrunc 2> /dev/null
makes tq-zeros "$tmp/zeros.gguf" "$out" --to tq1_0
run --verify "$out" "$tmp/zeros.gguf"
check tq-zeros-verify "exit code $rc: $(tail -n 1 "$tmp/out")" test $rc -eq 0
{ one_tensor 042 '\002\000\000'; head -c 15 /dev/zero; tail -c 108 "$tiny"; head -c 20 /dev/zero; } > "$tmp/embedding.gguf"
rm -f "$out"
fails tq-embedding-copied 1 "has no ternary weights; --copy copies it" "$tmp/embedding.gguf" "$out"
makes tq-embedding "$tmp/embedding.gguf" "$out" --copy
same_data tq-embedding-data "$tmp/embedding.gguf"

# ---- floats that are -s, 0 and s are packed; others are copied only on demand
if command -v python3 > /dev/null; then
    cat > "$tmp/floats.py" << 'END'
"""floats.py IN OUT F32|F16|BF16 [BYTE]: linear layers of I2_S as floats, of which the last may have another lowest byte"""
import struct, sys
sys.path.insert(0, sys.argv[1])
import convert_hf as hf
keys, tensors = hf.read_gguf(sys.argv[2])
kind = sys.argv[4]
number = {"F32": 0, "F16": 1, "BF16": 30}[kind]
for name, (old, dims, raw) in list(tensors.items()):
    if old != hf.I2_S:
        continue
    scale, = struct.unpack("<f", raw[-32:-28])
    table = [hf.STORE[kind](x * scale) for x in (-1, 0, 1)]
    data = b"".join([table[c] for c in hf.unpack(raw)])
    if len(sys.argv) > 5 and "ffn_down" in name:
        data = data[:-len(table[0])] + hf.STORE[kind](float(sys.argv[5]))
    tensors[name] = number, dims, data
hf.write_gguf(sys.argv[3], keys, tensors)
END
    floats() { python3 "$tmp/floats.py" "$root/tests/tools" "$@"; }
    for kind in F32 F16 BF16; do
        floats "$a" "$tmp/floats.gguf" $kind
        rm -f "$out"
        makes "floats-$kind" "$tmp/floats.gguf" "$out"
        cp "$out" "$tmp/other.gguf"
        [ $kind != F32 ] || check floats-file "another file" cmp "$out" "$tmp/made/128.gguf"
        run --verify "$tmp/floats.gguf" "$tmp/other.gguf"
        check "floats-$kind-verify" "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
        run --inspect "$tmp/floats.gguf"
        says "floats-$kind-inspect" "^warning 21 of 21 matrices of layers are not ternary, 'blk.0.attn_q.weight' ($kind) and"
    done
    makes floats-to-tl1 "$tmp/floats.gguf" "$out" --to tl1 --tile 128,64
    floats "$a" "$tmp/floats.gguf" F16
    makes floats-to-tq "$tmp/floats.gguf" "$out" --to tq2_0
    run --verify "$tmp/floats.gguf" "$out"
    check floats-to-tq-verify "exit code $rc: $(grep -m 2 differs "$tmp/out")" test $rc -eq 0
    for last in 7 nan inf; do
        floats "$a" "$tmp/floats.gguf" F32 $last
        rm -f "$out"
        fails "floats-$last" 1 "'blk.0.ffn_down.weight': its numbers are not -s, 0 and s: row 255, column 767 is .*; --copy" "$tmp/floats.gguf" "$out"
    done
    makes floats-copied "$tmp/floats.gguf" "$out" --copy
    same_data floats-copied-data "$tmp/floats.gguf"
    rm -f "$out"
    fails floats-nothing 1 "it has no ternary weights$" "$tmp/floats.gguf" "$out" --copy --to i2_s
else skip floats "python3 is not installed"; fi
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' > "$tmp/pointer.gguf"
fails pointer 1 "this is a pointer of git-lfs" "$tmp/pointer.gguf" "$out"

# ---- head and embedding
for type in f32 f16 bf16 q8_0 q6_k q5_k q4_k q5_0; do
    makes "head-$type" "$a" "$out" --head $type
    cp "$out" "$tmp/made/head-$type.gguf"
    run --inspect "$out"
    says "head-$type-type" "^tensor  token_embd.weight $(echo $type | tr a-z A-Z) "
    run --verify "$a" "$out"
    case $type in
        f32|f16) check "head-$type-same" "exit code $rc" test $rc -eq 0 ;;
        *) check "head-$type-differs" "exit code $rc" test $rc -eq 1 -a "$(grep -c ^differs "$tmp/out")" -eq 1
            says "head-$type-named" "^differs token_embd.weight: row [0-9]*, column" ;;
    esac
    makes "head-$type-again" "$tmp/made/head-$type.gguf" "$out" --head $type
    check "head-$type-stays" "another file" cmp "$out" "$tmp/made/head-$type.gguf"
    makes "head-$type-f32" "$tmp/made/head-$type.gguf" "$out" --head f32
    run --verify "$tmp/made/head-$type.gguf" "$out"
    check "head-$type-read" "exit code $rc: $(grep -m 1 ^differs "$tmp/out")" test $rc -eq 0
done
rm -f "$out"
fails head-blocks 1 "rows of 384 weights are not whole blocks of Q4_K; --head q8_0 and q5_0" "$b" "$out" --head q4_k
makes head-small-blocks "$b" "$out" --head q5_0
makes head-f32-f16 "$tmp/made/head-f32.gguf" "$out" --head f16
check head-f32-f16-file "another file" cmp "$out" "$tmp/made/head-f16.gguf"

# ---- --verify finds what differs
cp "$tmp/made/128.gguf" "$tmp/other.gguf"
run --inspect "$tmp/other.gguf"
tensor=blk.0.ffn_up.weight at=$(($(place blk.0.ffn_up.weight 1) + 32 * 100 + 7))
old=$(byte "$tmp/other.gguf" $at)
poke "$tmp/other.gguf" $at $((old & 0xf3 | ((old >> 2 & 3) + 1) % 3 << 2))    # weight 12800 + 64 + 7 of rows of 256
run --verify "$tmp/made/128.gguf" "$tmp/other.gguf"
check flipped "exit code $rc, not 1" test $rc -eq 1 -a "$(grep -c ^differs "$tmp/out")" -eq 1
says flipped-named "^differs $tensor: row 50, column 71 is"
check flipped-no-note "there is one" sh -c "! grep -q ^note: '$tmp/out'"
run --verify "$tmp/made/tl2.gguf" "$tmp/other.gguf" --from-tile 128,96
says flipped-tl2 "^differs $tensor: row 50, column 71 is"
poke "$tmp/other.gguf" $at $old
run --verify "$tmp/made/128.gguf" "$tmp/other.gguf"
check flipped-back "exit code $rc" test $rc -eq 0
run --inspect "$tmp/other.gguf"
at=$(($(place $tensor 1) + $(place $tensor 2) - 32))
poke "$tmp/other.gguf" $at $(($(byte "$tmp/other.gguf" $at) ^ 1))
run --verify "$tmp/made/128.gguf" "$tmp/other.gguf"
says scale-named "^differs $tensor: the scale is"
run --verify "$tmp/made/128.gguf" "$tiny"
check other-model "exit code $rc, not 1" test $rc -eq 1
says other-model-only "only in"

# ---- --inspect
run --inspect "$tiny"
check inspect "exit code $rc" test $rc -eq 0
says inspect-arch '^key     general.architecture (string) = "bitnet-b1.58"$'
says inspect-array "^key     tokenizer.ggml.tokens (string\\[[0-9]*\\]) = .* \\.\\.\\.$"
says inspect-tensor "^tensor  token_embd.weight F16 \\[[0-9]*, [0-9]*\\] at [0-9]*, [0-9]* bytes, fnv [0-9a-f]\\{16\\}"
says inspect-i2s "^tensor  blk.0.attn_q.weight I2_S .*, scale "
if command -v python3 > /dev/null; then
    python3 - "$tiny" "$tmp/out" > "$tmp/err" 2>&1 << 'END'
import re, sys
data = open(sys.argv[1], 'rb').read()
n = 0
for m in re.finditer(r'^tensor .* at (\d+), (\d+) bytes, fnv (\w+)', open(sys.argv[2]).read(), re.M):
    h = 0xcbf29ce484222325
    for b in data[int(m[1]):int(m[1]) + int(m[2])]:
        h = (h ^ b) * 0x100000001b3 & 0xffffffffffffffff
    assert '%016x' % h == m[3], m[0]
    n += 1
assert n > 10
END
    check inspect-checksums "another checksum" test $? -eq 0
else skip inspect-checksums "python3 is not installed"; fi
zeros='\0\0\0\0\0\0\0'                # of 8 bytes; then an array of arrays: [7] and []
printf "GGUF\\3\\0\\0\\0\\0$zeros\\1$zeros\\1${zeros}k\\11\\0\\0\\0\\11\\0\\0\\0\\2$zeros" >"$tmp/nested.gguf"
printf "\\4\\0\\0\\0\\1$zeros\\7\\0\\0\\0\\10\\0\\0\\0\\0$zeros" >>"$tmp/nested.gguf"
run --inspect "$tmp/nested.gguf"
says inspect-nested '^key     k (array\[2\]) = u32\[1\] string\[0\]$'
run --inspect "$a"
says inspect-pre "^warning key 'tokenizer.ggml.pre' is missing"
LC_ALL=C sed 's/general.name/generax.name/' "$tmp/made/128.gguf" > "$tmp/other.gguf"
run --inspect "$tmp/made/128.gguf"
says inspect-clean "^0 warnings$"
at=$(place $tensor 1) end=$(($(place $tensor 1) + $(place $tensor 2) - 32))
poke "$tmp/other.gguf" $((at + 5)) 255
for i in 0 1 2 3; do poke "$tmp/other.gguf" $((end + i)) 0; done
run --inspect "$tmp/other.gguf"
says inspect-threes "^warning tensor '$tensor': 4 invalid codes (3)"
says inspect-scale "^warning tensor '$tensor': the scale 0 is unusual"
says inspect-zero "^warning all numbers are zero in 1 tensor: $tensor"
says inspect-count "^4 warnings$"
# keyed KEY=TEXT...: a file with these keys, and no tensor
text() { printf "\\$(printf %03o ${#1})\\0\\0\\0\\0\\0\\0\\0%s" "$1"; }
keyed() {
    printf "GGUF\\3\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\$#\\0\\0\\0\\0\\0\\0\\0"
    for key; do
        text "${key%%=*}"
        printf '\010\0\0\0'
        text "${key#*=}"
    done
    head -c 64 /dev/zero
}
warns() { # NAME WARNING KEY=TEXT...: the only one, but that it does not load; - none
    name=$1 warning=$2
    shift 2
    keyed "$@" > "$tmp/keyed.gguf"
    run --inspect "$tmp/keyed.gguf"
    [ "$warning" != - ] || warning=
    check "$name" "exit code $rc; $(grep -a ^warning "$tmp/out")" \
        test $rc -eq 0 -a "$(sed -n '/^warning bitnet.h does not/d;s/^warning //p' "$tmp/out")" = "$warning"
}
arch=general.architecture model=tokenizer.ggml.model pre=tokenizer.ggml.pre template=tokenizer.chat_template
published="{{ message['role'] | capitalize + ': ' }}...{{ 'Assistant: ' }}"
warns inspect-no-pre "key '$pre' is missing: it means llama-bpe" $arch=bitnet-b1.58 $model=gpt2
warns inspect-no-pre-llama "key '$pre' is missing" $arch=llama $model=gpt2
warns inspect-pre-of-spm - $arch=bitnet $model=llama
warns inspect-template - $arch=bitnet-b1.58 $model=gpt2 $pre=x "$template=$published"
warns inspect-wrong-template "key '$template' differs from the published template" \
    $arch=bitnet-b1.58 $model=gpt2 $pre=x "$template={{ message['role'] }} Assistant: "
warns inspect-other-template - $arch=llama $model=gpt2 $pre=x "$template={{ message['role'] }}"
warns inspect-spm "architecture 'bitnet-b1.58' with a SentencePiece tokenizer: 1bitLLM's models have one, but their architecture is 'bitnet'" \
    $arch=bitnet-b1.58 $model=llama
warns inspect-clean-text - $arch=llama $model=llama "a$(printf '\033')[31mb=1"
says inspect-clean-text-key '^key     a?\[31mb (string) = "1"'
bidi=$(printf '\342\200\256')                   # U+202E, which turns the text that follows around
warns inspect-clean-bidi - $arch=llama $model=llama "a${bidi}b=1"
says inspect-clean-bidi-key '^key     a?b (string) = "1"'
check inspect-clean-bidi-all "it is on stdout" sh -c "! grep -q '$bidi' '$tmp/out'"
rm -f "$out"
hostile=$tmp/a$bidi$(printf '\033')b.gguf
fails clean-file-name 1 "/a??b.gguf" "$hostile" "$out"
mkdir "$hostile"
fails clean-output-name 1 "/a??b.gguf: this exists and is not a file" "$a" "$hostile"
LC_ALL=C sed "s/output_norm.w/output_n$bidi.w/" "$a" > "$tmp/keyed.gguf"     # as long as before
run --verify "$tmp/keyed.gguf" "$a"
check verify-clean-name "$(cat "$tmp/out")" sh -c "[ $rc -eq 1 ] && grep -q '^differs output_n?.weight: only' '$tmp/out'"
keyed $arch=bitnet $model=llama > "$tmp/keyed.gguf"
makes spm "$tmp/keyed.gguf" "$out" --copy
run --inspect "$out"
check spm-no-pre "$(grep "$pre" "$tmp/out")" test $rc -eq 0 -a -z "$(grep "$pre" "$tmp/out")"
printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' > "$tmp/zero.gguf"
{
    text $arch
    printf '\010\0\0\0\100\1\0\0\0\0\0\0a'      # 320 bytes: an a, and zeros
    head -c 319 /dev/zero
    text a
    printf '\010\0\0\0'
    text 1
} >> "$tmp/zero.gguf"
run --inspect "$tmp/zero.gguf"
says inspect-zero-arch "^warning bitnet.h does not load it: GGUF key 'general.architecture' "
LC_ALL=C sed 's/tokenizer.ggml.padding_token_id/tokenizer.ggml.padding_token_xx/' "$a" > "$tmp/keyed.gguf"
run --inspect "$tmp/keyed.gguf"
says inspect-key "^warning bitnet.h does not load it: GGUF key 'tokenizer.ggml.padding_token_xx' at offset [0-9]* is not known"
LC_ALL=C sed 's/tokenizer.ggml.padding_token_id/tokenizer.ggml.somekey_token_id/' "$tmp/made/128.gguf" > "$tmp/keyed.gguf"
run --inspect "$tmp/keyed.gguf"
says inspect-key-that-is-read "^0 warnings$"
LC_ALL=C sed 's/attn_sub_norm/attn_sob_norm/' "$tmp/made/128.gguf" > "$tmp/keyed.gguf"
run --inspect "$tmp/keyed.gguf"
says inspect-no-sub-norms "^warning architecture 'bitnet-b1.58' without blk.0.attn_sub_norm.weight: these are the tensors of 'llama'"
run --inspect "$tmp/type99.gguf"
says inspect-type "^warning tensor 'token_embd.weight': unsupported tensor type 99 (unknown)"
rm -f "$out"
fails three 1 "code 3.* at row 0, column 5" "$tmp/other.gguf" "$out" --i2s 64

# ---- the progress bar: on a terminal, and nowhere else
run "$a" "$out" --force
check no-bar "stderr is not empty" test $rc -eq 0 -a ! -s "$tmp/err"
check written "$(cat "$tmp/out")" test "$(cat "$tmp/out")" = "$out: 1.2 MB written"
rm -f "$out"
if [ -z "$RUN" ] && has_terminal; then
    on_terminal "'$program' '$a' '$out'"
    check bar "exit code $rc, or another file" cmp "$out" "$tmp/made/128.gguf"
    check bar-only "there is more: $(grep -v '^convert: \[' "$tmp/tty" | head -n 3)" \
        test -z "$(grep -v -x -e 'convert: \[#*\.*\] *[0-9]* %' -e '' -e "$out: .* MB written" "$tmp/tty")"
    check bar-width "it is not 32 wide" test "$(sed -n 's/.*\[\(.*\)\].*/\1/p' "$tmp/tty" | awk '{ print length }' | sort -u)" = 32
    sed -n 's/.*\] *\([0-9]*\) %/\1/p' "$tmp/tty" > "$tmp/percents"
    check bar-grows "it goes back" sort -n -u -c "$tmp/percents"
    check bar-ends "from $(head -n 1 "$tmp/percents") to $(tail -n 1 "$tmp/percents") in $(wc -l < "$tmp/percents")" \
        test "$(tail -n 1 "$tmp/percents")" = 100 -a "$(head -n 1 "$tmp/percents")" -lt 10 -a "$(wc -l < "$tmp/percents")" -ge 10
    for to in "> '$tmp/file' 2>&1" "2>&1 | cat > '$tmp/file'" "2> '$tmp/file'"; do
        on_terminal "'$program' '$a' '$out' --force $to"
        check "no-bar $to" "there is something" test -z "$(cat "$tmp/file" "$tmp/raw" | tr -d '\r' | grep -v "MB written$")"
    done
    on_terminal "'$program' '$a' '$out' --force > '$tmp/file'"
    check bar-of-stderr "in a file, or not on the terminal" test -s "$tmp/raw" -a "$(cat "$tmp/file")" = "$out: 1.2 MB written"
    rm -f "$out"
    on_terminal "'$program' '$tmp/other.gguf' '$out' --i2s 64"
    erased=$(printf '\033[K')
    check bar-erased "exit code $rc: $(tail -n 3 "$tmp/tty")" test $rc -eq 1 -a "$(grep -c '^convert: \[' "$tmp/tty")" -ge 5 \
        -a "$(sed -n "s/^${erased%?K}\[Kconvert: \(tensor\) .*/\1/p" "$tmp/tty")" = tensor
else skip bar "script gives no terminal here, or an emulator"; fi

# ---- what stands there is replaced only on demand, and only by a whole file
echo old > "$out"
keep=out.gguf
old_stays() { check "$1" "the old file is gone" test "$(head -c 4 "$out")" = "old"; }
fails no-force 1 "force replaces it" "$a" "$out"
old_stays no-force-old
fails three-forced 1 "code 3" "$tmp/other.gguf" "$out" --i2s 64 --force
old_stays three-forced-old
if (ulimit -f 100) 2> /dev/null && [ -z "$RUN" ]; then
    (ulimit -f 100; failed=0; fails disk-full 1 "cannot write" "$a" "$out" --force; [ $failed -eq 0 ])
    check disk-full "see above" test $? -eq 0
    old_stays disk-full-old
else skip disk-full "no limit on sizes here"; fi
run "$a" "$out" --force
check force "exit code $rc, or not replaced" cmp "$out" "$tmp/made/128.gguf"
fails same-file 2 "the same file" "$out" "$out" --force
ln "$out" "$tmp/link.gguf" 2> /dev/null && fails same-file-linked 2 "the same file" "$tmp/link.gguf" "$out" --force
cp "$tmp/one.ini" "$tmp/kept.ini"
fails same-file-tiles 2 "the same file" "$a" "$tmp/kept.ini" --to tl1 --tile "$tmp/kept.ini" --force
check same-file-tiles-stays "another file" cmp "$tmp/one.ini" "$tmp/kept.ini"
check same-file-stays "another file" cmp "$out" "$tmp/made/128.gguf"

if dd if=/dev/null of="$tmp/5gb.gguf" bs=1 seek=5368709120 2> /dev/null; then
    fails no-force-large 1 "force replaces it" "$a" "$tmp/5gb.gguf"
    check no-force-large-stays "it is gone" test "$(wc -c < "$tmp/5gb.gguf")" = 5368709120
    rm -f "$tmp/5gb.gguf"
else skip no-force-large "no large files here"; fi

# ---- a file that is replaced leaves its permissions to the new one, from the first byte on
mode() { stat -c %a "$1"; }
if chmod 640 "$out" && [ "$(mode "$out" 2> /dev/null)" = 640 ]; then
    for mode in 600 640 444 755; do
        chmod 644 "$out"
        echo old > "$out"
        chmod $mode "$out"
        run "$a" "$out" --force
        check "permissions-$mode" "exit code $rc, or $(mode "$out")" test $rc -eq 0 -a "$(mode "$out")" = $mode
    done
    rm -f "$out"
    (umask 027; run "$a" "$out"; exit $rc)
    check permissions-new "exit code $?, or $(mode "$out")" test "$(mode "$out")" = 640
    chmod 644 "$out"
else skip permissions "no permissions here"; fi
# as_nobody ARGS...: the program without root's rights, in $tmp/o, where it is ./convert; not with sanitizers, which
# need files that nobody may read
mkdir "$tmp/nobody"
as_nobody() { (cd "$tmp/nobody" && setpriv --reuid 65534 --regid 65534 --clear-groups "$@"); }
if [ "$(id -u)" = 0 ] && [ -z "$RUN" ] && cp "$program" "$tmp/nobody/convert" && chmod 777 "$tmp/nobody" &&
    cp "$a" "$tmp/nobody/a.gguf" && as_nobody ./convert --help > /dev/null 2>&1; then
    echo old > "$out"
    chown 1234:4321 "$out"
    run "$a" "$out" --force
    check owner "exit code $rc, or $(stat -c %u:%g "$out")" test $rc -eq 0 -a "$(stat -c %u:%g "$out")" = 1234:4321
    rm -f "$out"
    for modes in 664:644 660:600 777:777 674:644; do
        echo old > "$tmp/nobody/out.gguf"
        chmod ${modes%:*} "$tmp/nobody/out.gguf"      # of group 0, to which nobody cannot give it
        as_nobody ./convert a.gguf out.gguf --force > "$tmp/out" 2> "$tmp/err"
        check "other-group-$modes" "exit code $?, or $(mode "$tmp/nobody/out.gguf")" \
            test "$(stat -c %u:%a "$tmp/nobody/out.gguf")" = 65534:${modes#*:}
        rm -f "$tmp/nobody/out.gguf"
    done
    mkdir "$tmp/nobody/closed"
    as_nobody ./convert a.gguf closed/out.gguf > "$tmp/out" 2> "$tmp/err"
    check forbidden-folder "exit code $?: $(cat "$tmp/err")" \
        grep -qx "convert: closed/out.gguf: cannot write: no permission to write in its folder" "$tmp/err"
    chmod 000 "$tmp/nobody/a.gguf"
    as_nobody ./convert a.gguf out.gguf > "$tmp/out" 2> "$tmp/err"
    rc=$?
    check forbidden-input "exit code $rc" test $rc -eq 1 -a "$(wc -l < "$tmp/err")" -eq 1
else skip owner "not root, an emulator, or nobody cannot run programs here"; fi

# ---- a signal: ends as that does, and leaves nothing; 2 GB of zeros are quantized meanwhile
is_part() { [ -e "$(echo "$tmp"/o/*.part)" ]; }
has_bytes() { [ -s "$(echo "$tmp"/o/*.part)" ]; }
# begin FILE COMMAND...: the command converts it to $out, whose .part is there afterwards; its process is $pid. A shell
# starts processes in the background with SIGINT ignored, which the command has to undo
begin() {
    large=$1
    shift
    "$@" "$program" "$large" "$out" --head q6_k --copy --force > "$tmp/out" 2> "$tmp/err" &
    pid=$!
    wait_for $pid is_part
}
one_tensor 0 '\000\000\040' > "$tmp/large.gguf"
one_tensor 0 '\000\000\001' > "$tmp/smaller.gguf"
run "$a" "$out" --force
if [ -z "$RUN" ] && env --default-signal=INT true 2> /dev/null &&
    dd if=/dev/null of="$tmp/large.gguf" bs=1 seek=2147483744 2> /dev/null; then
    dd if=/dev/null of="$tmp/smaller.gguf" bs=1 seek=67108960 2> /dev/null
    keep=out.gguf
    for signal in INT TERM HUP; do
        begin "$tmp/large.gguf" env --default-signal=$signal
        kill -$signal $pid
        wait $pid 2> /dev/null
        rc=$?
        check "signal-$signal" "exit code $rc" test $rc -gt 128
        check "signal-$signal-nothing" "left behind: $(ls -A "$tmp/o")" test "$(ls -A "$tmp/o")" = out.gguf
        check "signal-$signal-old" "another file" cmp "$out" "$tmp/made/128.gguf"
    done

    # what the parent ignores, as nohup and the shell's & do, stays ignored
    run "$tmp/smaller.gguf" "$tmp/made/smaller.gguf" --head q6_k --copy
    begin "$tmp/smaller.gguf" env --ignore-signal=HUP,INT,TERM
    for signal in HUP INT TERM; do kill -$signal $pid; done
    wait $pid 2> /dev/null
    rc=$?
    check signal-ignored "exit code $rc: $(cat "$tmp/err")" cmp "$out" "$tmp/made/smaller.gguf"

    # kill -9 leaves a file, which the next run names and leaves alone; not one that is being written
    begin "$tmp/large.gguf" env
    wait_for $pid has_bytes
    run "$a" "$out" --force
    check part-in-use "exit code $rc: $(cat "$tmp/err")" test $rc -eq 0 -a ! -s "$tmp/err"
    kill -KILL $pid
    wait $pid 2> /dev/null
    part=$(echo "$tmp"/o/*.part)
    cp "$part" "$tmp/part"
    for name in "out.gguf.1-2.part.gguf" "out.gguf.1-x.part" "out.gguf.part" "xout.gguf.1-2.part"; do
        echo x > "$tmp/o/$name"
    done
    touch -d "3 hours ago" "$part"
    run "$a" "$out" --force
    check left-behind "exit code $rc" cmp "$out" "$tmp/made/128.gguf"
    check left-behind-named "$(cat "$tmp/err")" grep -qx -e \
        "convert: $part: left behind 3 hours ago by a run that was killed (.* MB); it can be deleted" "$tmp/err"
    check left-behind-only "$(cat "$tmp/err")" test "$(wc -l < "$tmp/err")" -eq 1
    check left-behind-stays "it is gone, or another" cmp "$part" "$tmp/part"
    (cd "$tmp/o" && case $program in /*) program=$program ;; *) program=$OLDPWD/$program ;; esac && a=$tmp/made/128.gguf &&
        run "$a" out.gguf)
    check left-behind-here "$(cat "$tmp/err")" grep -q -e "^convert: ${part##*/}: left behind" "$tmp/err"
    run "$a" "$tmp/o/other.gguf"
    check left-behind-others "$(cat "$tmp/err")" test $rc -eq 0 -a ! -s "$tmp/err"
    rm -f "$tmp/o"/*.part* "$tmp/o/other.gguf"
else skip signals "an emulator, no large files, or an env without --default-signal"; fi

echo "convert: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
