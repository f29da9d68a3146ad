#!/bin/sh
# Tests of examples/languages, but for its page (page.mjs): what they write is what generate and embed do.
#     test_languages.sh FOLDER GENERATE EMBED MODEL
# FOLDER has libbitnet.so (packaging/bitnet*.c) and embed.so (examples/languages/sqlite.c). The model is
# examples/tiny.gguf: the prompts are for it. Run from the repository's root. Prints a line for each case and at
# the end `languages: N passed, N failed, N skipped`.
[ $# -eq 4 ] || { echo "usage: $0 FOLDER GENERATE EMBED MODEL" >&2; exit 2; }
here=$PWD folder=$PWD/$1 generate=$PWD/$2 embed=$PWD/$3 model=$PWD/$4 examples=$PWD/examples/languages
. tests/cases.sh

# reply ARGS...: what generate writes, greedily, and a newline
reply() { "$generate" -m "$model" --log-disable --no-display-prompt --temp 0 "$@" 2> "$tmp/err"; }
story="Once upon a time" question="What is the capital of France?"
reply -no-cnv -p "$story" -n 40 > "$tmp/story"
reply -cnv -st -p "$question" > "$tmp/chat"
check texts "there is none" [ "$(cat "$tmp/story" "$tmp/chat" | wc -c)" -gt 150 ]
# same NAME FILE...: exit code 0, and the output is these files
same() {
    name=$1
    shift
    cat "$@" > "$tmp/want"
    if [ $rc -ne 0 ]; then bad "$name" "exit code $rc: $(head -n 2 "$tmp/err")"
    elif ! cmp -s "$tmp/out" "$tmp/want"; then bad "$name" "another text: $(head -c 300 "$tmp/out")"
    else ok "$name"; fi
}

# ---- Lua, in a folder with the library and its declarations, made as the comment says
if command -v luajit > /dev/null 2>&1; then
    sed '/^#include <std/d' bitnet.h | $CC -E -P -x c - > "$folder/bitnet.cdef"
    in_folder() { (cd "$folder" && exec luajit "$examples/talk.lua" "$@"); }
    program=in_folder
    fails lua-usage 2 usage "$model" x
    run "$model" "$story" "$question"
    same lua-texts "$tmp/story" "$tmp/chat"
    run "$tmp/none.gguf" x x
    check lua-no-model "$(cat "$tmp/err")" grep -q "^luajit: cannot open '$tmp/none.gguf': No such file" "$tmp/err"
    check lua-no-model-code "exit code $rc" [ $rc -eq 1 ]
else skip lua "luajit is not installed"; fi

# ---- Python, with the package's wheel
if command -v python3 > /dev/null 2>&1; then
    export PYTHONDONTWRITEBYTECODE=1
    rm -rf "$folder/wheel" "$folder/site"
    mkdir "$folder/wheel"
    python3 packaging/python/backend.py wheel "$folder/wheel" "$folder/libbitnet.so" "linux_$(uname -m)" \
        > "$tmp/out" && python3 -m zipfile -e "$folder"/wheel/*.whl "$folder/site" || bad wheel "$(cat "$tmp/out")"
    with_package() { PYTHONPATH=$folder/site python3 "$examples/talk.py" "$@"; }
    program=with_package
    schema() { python3 -c "import sys; sys.path[:0] = ['$folder/site', '$examples']; import json, talk
$1"; }
    reply -cnv -st -p "$question" -j "$(schema 'print(json.dumps(talk.SCHEMA))')" > "$tmp/json"
    schema "print(json.load(open('$tmp/json'))['city'])" > "$tmp/city"
    schema "print(*talk.NOTES, '$question', sep='\n')" |
        "$embed" -m "$model" --pooling mean -q --format raw > "$tmp/vectors"
    schema "import array
data = array.array('f', open('$tmp/vectors', 'rb').read())
dim = len(data) // (len(talk.NOTES) + 1)
*notes, query = [data[i:i + dim] for i in range(0, len(data), dim)]
print('%.6f %s' % max((sum(x * y for x, y in zip(v, query)), n) for v, n in zip(notes, talk.NOTES)))" > "$tmp/note"
    cat "$tmp/city" "$tmp/note" > "$tmp/lines"
    check python-wants "$(cat "$tmp/lines")" [ "$(grep -Ec '^(Berlin|Paris|Rome|0[.][0-9]+ .*[.])$' "$tmp/lines")" -eq 2 ]
    fails python-usage 1 usage
    fails python-no-model 1 "cannot open" "$tmp/none.gguf" x
    run "$model" "$question"
    same python-chat-json-vectors "$tmp/chat" "$tmp/city" "$tmp/note"
    run "$model" "$question" "$model"
    check python-embedding-model "$(cat "$tmp/err")" grep -q "pooling" "$tmp/err"
else skip python "python3 is not installed"; fi

# ---- SQLite, by Python's module and by its own shell
for python in python3 /usr/bin/python3 ''; do    # some are built without this
    "$python" -c 'import sqlite3; sqlite3.connect(":memory:").enable_load_extension(True)' 2> /dev/null && break
done
if [ ! -e "$folder/embed.so" ]; then skip sqlite "libsqlite3-dev is not installed"
elif [ -z "$python" ]; then skip sqlite "there is no python3 whose sqlite3 loads extensions"
else
    "$python" tests/languages/test_sqlite.py "$folder/embed" "$embed" "$model" > "$tmp/cases" 2>&1
    cat "$tmp/cases"
    passed=$((passed + $(grep -c '^ok ' "$tmp/cases"))) failed=$((failed + $(grep -c '^FAIL ' "$tmp/cases")))
    grep -q '^end$' "$tmp/cases" || bad sqlite "the test has not come to its end"
fi
if [ -e "$folder/embed.so" ] && command -v sqlite3 > /dev/null 2>&1; then
    # The comment's session, with the name of a model; and the note that embed says is the nearest.
    in_shell() {
        cd "$folder" && rm -f "$tmp/notes.db" && sed -n '/^ *[.]load/,/LIMIT/s/^ *//p' "$examples/sqlite.c" |
            sed "s|'EMBEDDING.gguf'|'$model', 'mean'|" | sqlite3 "$tmp/notes.db"
    }
    (in_shell) > "$tmp/out" 2> "$tmp/err"
    rc=$?
    printf 'The sky is blue.\nBread needs an hour in the oven.\nWhen is bread done?\n' |
        "$embed" -m "$model" --pooling mean -q --format raw > "$tmp/vectors"
    python3 -c "import array
v = array.array('f', open('$tmp/vectors', 'rb').read())
n = len(v) // 3
like = [sum(x * y for x, y in zip(v[i * n:], v[2 * n:])) for i in (0, 1)]
texts = ['The sky is blue.', 'Bread needs an hour in the oven.']
print(n, *sorted(texts, key=lambda t: -like[texts.index(t)]), sep='\n')" > "$tmp/nearest"
    same sqlite-shell "$tmp/nearest"
else skip sqlite-shell "sqlite3 is not installed"; fi

echo "languages: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
