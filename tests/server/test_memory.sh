#!/bin/sh
# Tests of how batch and serve count the memory that is left: with made folders in place of /proc and /sys, and in real
# control groups where this machine lets one make them.
#     test_memory.sh PATH_TO_MEMORY PATH_TO_BATCH PATH_TO_MODEL [PATH_TO_SERVE]
# PATH_TO_MEMORY is memory.c, compiled. Prints a line for each case and at the end `memory: N passed, N failed, N
# skipped`.
[ $# -ge 3 ] || { echo "usage: $0 PATH_TO_MEMORY PATH_TO_BATCH PATH_TO_MODEL [PATH_TO_SERVE]" >&2; exit 2; }
tool=$1 program=$2 model=$3 serve=${4:-} root=$(dirname "$0")/../..
. "$root/tests/cases.sh"

# ---- made folders

# machine TOTAL AVAILABLE: a new one, in kB.
machine() {
    rm -rf "$tmp/root"
    mkdir -p "$tmp/root/proc/self"
    printf 'MemTotal:       %d kB\nMemFree:         1000 kB\nMemAvailable:   %d kB\nBuffers:  7 kB\n' "$1" "$2" \
        >"$tmp/root/proc/meminfo"
    : >"$tmp/root/proc/self/cgroup"
}
# in_group LINE: of /proc/self/cgroup
in_group() { echo "$1" >>"$tmp/root/proc/self/cgroup"; }
# of_2 GROUP MAX HIGH CURRENT ACTIVE INACTIVE: a group of version 2; of_1 GROUP LIMIT USAGE ACTIVE INACTIVE: of 1
of_2() {
    mkdir -p "$tmp/root/sys/fs/cgroup$1"
    (
        cd "$tmp/root/sys/fs/cgroup$1" || exit
        echo "$2" >memory.max
        echo "$3" >memory.high
        echo "$4" >memory.current
        printf 'anon 5\nfile 99999\nshmem 77\ninactive_anon 3\nactive_anon 4\ninactive_file %d\nactive_file %d\n' "$6" "$5"
    ) >"$tmp/stat"
    mv "$tmp/stat" "$tmp/root/sys/fs/cgroup$1/memory.stat"
}
of_1() {
    mkdir -p "$tmp/root/sys/fs/cgroup/memory$1"
    (
        cd "$tmp/root/sys/fs/cgroup/memory$1" || exit
        echo "$2" >memory.limit_in_bytes
        echo "$3" >memory.usage_in_bytes
        printf 'cache 9\nactive_file 1\ninactive_file 1\ntotal_inactive_file %d\ntotal_active_file %d\n' "$5" "$4"
    ) >"$tmp/stat"
    mv "$tmp/stat" "$tmp/root/sys/fs/cgroup/memory$1/memory.stat"
}
# finds NAME LEFT LIMIT GROUP: is that what it finds?
finds() {
    name=$1
    shift
    "$tool" "$tmp/root" >"$tmp/got" 2>"$tmp/err"
    check "$name" "it finds $(cat "$tmp/got"), not $*" [ "$(cat "$tmp/got")" = "$*" ]
}
none=9223372036854775807

machine 8000 5000
finds "no group: the machine" $((5000 * 1024)) $((8000 * 1024)) 0
rm "$tmp/root/proc/self/cgroup"
finds "no file of groups" $((5000 * 1024)) $((8000 * 1024)) 0
rm "$tmp/root/proc/meminfo"
finds "nobody says" $none $none 0

machine 8000 5000
in_group '0::/a/b/c'
of_2 /a max max 500 0 0
of_2 /a/b 100000 max 70000 11000 200
of_2 /a/b/c max max 60000 0 0
finds "version 2: the limit of a group above, less what it has, with its file cache" 41200 100000 1
of_2 /a/b/c 50000 max 45000 100 20
finds "of two limits the one that leaves less" 5120 50000 1
of_2 /a 90000 max 88000 0 10
finds "also the outermost" 2010 90000 1
of_2 /a/b/c 50000 48000 47500 100 20
finds "memory.high counts" 620 48000 1
of_2 /a/b/c 50000 max 60000 0 0
finds "more in use than allowed: nothing is left" 0 50000 1
of_2 /a/b/c 50000 max 10 90 20
finds "no more is left than the limit" 2010 90000 1

machine 8000 5000
in_group '0::/a'
of_2 /a 9999999999 max 10 0 0
finds "a limit over what the machine has" $((5000 * 1024)) $((8000 * 1024)) 0
machine 8000 5000
in_group '0::/'
of_2 '' 70000 max 10 0 0
finds "a container's own root" 69990 70000 1
machine 8000 5000
in_group '0::/../../other'
of_2 '' 70000 max 10 0 0
finds "a group outside of what is mounted" 69990 70000 1
machine 8000 5000
in_group '0::/docker/1234'
of_2 '' 70000 max 10 0 0
finds "a group that has another name here" 69990 70000 1
machine 8000 5000
in_group '0::/a:b/c d'
of_2 '/a:b/c d' 70000 max 10 0 0
finds "colons and blanks in a name" 69990 70000 1

machine 8000 5000
in_group '11:cpu,cpuacct:/x'
in_group '4:memory:/x/y'
in_group '0::/x'
of_1 '' 9223372036854771712 999 0 0
of_1 /x 80000 70000 1000 300
of_1 /x/y 9223372036854771712 60000 0 0
of_2 /x 10 max 1 0 0                 # of the version 2 that a hybrid has elsewhere
rm "$tmp/root/sys/fs/cgroup/x/memory.current"
finds "version 1: the same" 11300 80000 1
of_1 /x/y 50000 49000 0 1
finds "version 1: its own limit" 1001 50000 1
machine 8000 5000
in_group '4:memoryless:/x'
in_group '5:hugetlb,memory:/x'
of_1 /x 50000 49000 0 0
finds "version 1: controllers in one line" 1000 50000 1
machine 8000 5000
in_group '7:memory:relative'
in_group 'nonsense'
in_group ''
of_1 /x 50000 49000 0 0
finds "lines that are none" $((5000 * 1024)) $((8000 * 1024)) 0

# ---- what fits

# fit NAME BYTES CONDITION: tokens that fit, and whether a short text does, when so many bytes are left
fit() {
    machine 100000000 90000000
    in_group '0::/a'
    of_2 /a $2 max 0 0 0
    "$tool" "$tmp/root" "$model" $4 >"$tmp/got" 2>"$tmp/err"
    set -- "$1" "$3" $(sed -n 2p "$tmp/got")
    tokens=$3 can=$4
    check "$1" "$tokens tokens, $can: $(cat "$tmp/got")" eval "[ $2 ]"
}
fit "no room for the model" 1000000 '$tokens -le 0 -a $can -eq 0'
fit "room for a few tokens" $((9 << 20)) '$tokens -ge 0'
fit "room for many" $((64 << 20)) '$tokens -gt 10000 -a $can -eq 1'
many=$tokens
fit "with one slot likewise, though its tokens are allocated at once" $((64 << 20)) \
    "\$tokens -gt $((many * 9 / 10)) -a \$tokens -lt $((many * 12 / 10))" -1
check "it is described" "$(cat "$tmp/got")" grep -q "control group.* has 64 MB, of which 64 MB are left for 1 MB of" \
    "$tmp/got"

# ---- real control groups

# make_group MB: sets $group to a folder of one, or $why.
make_group() {
    why= most=memory.max group=/sys/fs/cgroup
    if [ -d $group/memory ]; then
        most=memory.limit_in_bytes group=$group/memory
    elif ! grep -qw memory $group/cgroup.subtree_control 2>/dev/null; then
        why="there are no control groups for memory"
        return
    fi
    group=$group/bitnet-test-$$
    { mkdir "$group" && echo $(($1 << 20)) >"$group/$most" && sh -c "echo \$\$ >'$group/cgroup.procs'"; } 2>"$tmp/err" ||
        why="no control group can be made here: $(tail -n 1 "$tmp/err")"
    [ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
}
leave_group() {
    waited=0
    until rmdir "$group" 2>/dev/null || [ ! -d "$group" ] || [ $waited -eq 50 ]; do sleep 0.1; waited=$((waited + 1)); done
}
trap 'leave_group; rm -rf "$tmp"' EXIT
# inside MB ARGS...: batch in a group of that size; its code in rc, its outputs in $tmp/out and $tmp/err
inside() {
    make_group "$1"
    shift
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$program" -m "$model" -t 1 "$@" \
        <"$tmp/lines" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    leave_group
}

awk 'BEGIN {
    for (i = 0; i < 64; i++) printf "{\"prompt\":\"Once %d\",\"max_tokens\":250,\"ignore_eos\":true}\n", i
}' >"$tmp/lines"
"$program" -m "$model" --ordered <"$tmp/lines" >"$tmp/want" 2>"$tmp/err"
make_group 16
leave_group
if [ -z "$why" ]; then
    inside 16 -np 64 --kv-tokens 99999
    check "what does not fit is killed, if one says so" "exit code $rc" [ $rc -eq 137 ]
    check "but first there is a word" "$(cat "$tmp/err")" grep -q "^batch: the control group.* has 16 MB" "$tmp/err"
    inside 16 -np 64 --ordered
    check "by itself it goes on with less: 0" "exit code $rc" [ $rc -eq 0 ]
    check "and all lines have the same result" "$(cmp "$tmp/want" "$tmp/out" 2>&1)" cmp "$tmp/want" "$tmp/out"
    inside 2 -q
    check "a group that cannot hold the model: 3" "exit code $rc" [ $rc -eq 3 ]
    check "it says why" "$(cat "$tmp/err")" grep -q "that is too little for this model" "$tmp/err"
    echo '{"custom_id":"long","prompt":"x","max_tokens":2500,"ignore_eos":true}' >>"$tmp/lines"
    inside 14 -np 64 --ordered -c 4096
    check "one that holds less than --ctx-size: 75, if a line needs more" "exit code $rc" [ $rc -eq 75 ]
    check "and it says which" "$(cat "$tmp/err")" grep -q "^batch: line 65: it needs more tokens than" "$tmp/err"
    sed 's/-4096"}$/-512"}/' "$tmp/out" >"$tmp/got"    # all that says how long a text may be
    check "all others have the same result, and this one none" "$(cmp "$tmp/want" "$tmp/got" 2>&1)" \
        cmp "$tmp/want" "$tmp/got"
else skip "batch in a control group" "$why"; fi

if [ -z "$why" ] && [ -n "$serve" ]; then
    make_group 20
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$serve" -m "$model" -np 8 -c 4096 --port 0 2>"$tmp/err" &
    pid=$!
    wait_for $pid grep -q "^serve: .* on http" "$tmp/err"
    kill $pid
    wait $pid
    leave_group
    check "serve says how many tokens fit" "$(cat "$tmp/err")" grep -q \
        "^serve: so all texts hold [0-9]* tokens together" "$tmp/err"
else skip "serve in a control group" "${why:-it is not built}"; fi

echo "memory: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
