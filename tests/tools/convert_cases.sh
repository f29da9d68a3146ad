# Sourced by the tests of examples/convert, whose first argument is the program. Their outputs are $out, alone in $tmp/o;
# $data has models made by other programs.
case $1 in */*) program=$1 ;; *) program=./$1 ;; esac
root=$(dirname "$0")/../..
[ -x "$program" ] || { echo "$0: there is no program '$program'" >&2; exit 2; }
. "$root/tests/cases.sh"
data=${BITNET_TEST_DATA:-$root/../shared}
mkdir "$tmp/o"
out=$tmp/o/out.gguf

compare() { python3 -S "$root/tests/tools/convert_hf.py" compare "$@"; }
report() { "$crosscheck" -m "$1" -n 4 2>> "$tmp/err" | grep -v '^note'; }
same_report() { report "$1" > "$tmp/a" && report "$2" > "$tmp/b" && [ -s "$tmp/a" ] && cmp "$tmp/a" "$tmp/b"; }

# converts NAME MODEL KIND ARGS...: the model in that form becomes what it should, in $out
converts() {
    name=$1 model=$2 kind=$3
    shift 3
    rm -rf "$tmp/made" "$out"
    tool make "$model" "$tmp/made" "$kind" || { bad "$name" "it cannot be made"; return; }
    run "$tmp/made/hf" "$out" "$@"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 3 "$tmp/err")"
    elif ! compare "$tmp/made/want.gguf" "$out" 2> "$tmp/differs"; then bad "$name" "$(head -c 200 "$tmp/differs")"
    else ok "$name"; fi
}
# refused NAME WORD: the run ended with exit code 1, one line with the word, beside notes of what is left out, and no output
refused() {
    grep -v -e "left out are" -e "sliding_window 8 is left out" "$tmp/err" > "$tmp/says"
    if [ $rc -ne 1 ]; then bad "$1" "exit code $rc, not 1: $(head -n 2 "$tmp/err")"
    elif [ "$(wc -l < "$tmp/says")" -ne 1 ]; then bad "$1" "stderr has $(wc -l < "$tmp/says") lines, not 1"
    elif ! grep -qF -e "$2" "$tmp/says"; then bad "$1" "'$2' is not in: $(cat "$tmp/err")"
    elif [ -n "$(ls -A "$tmp/o")" ]; then
        bad "$1" "it left a file"
        rm -f "$tmp/o/"*
    else ok "$1"; fi
}
# refuses NAME WORD ARGS...: runs it, and it is refused
refuses() {
    name=$1 word=$2
    shift 2
    rm -f "$out"
    run "$@"
    refused "$name" "$word"
}
