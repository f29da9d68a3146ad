#!/bin/sh
# Plants faults in the kernels and sees bitnet_selftest find each of them. planted.txt has the
# faults: one or more for every path of every kernel, so that a path which the self-test does not
# reach fails here. planted.awk puts all faults of a header into a copy of it, one of them in force
# at a time: so each header is compiled once, and planted.c goes through its faults.
#
#   sh tests/machines/planted.sh [x86] [arm] [arm32] [wasm]     without a name: all of them
#
# Ends with "N passed, N failed, N skipped". What this machine lacks, a compiler, an emulator or the
# instructions of a table, is skipped by name. Run from the repository's root; writes to
# build/planted.
set -u
CC=${CC:-cc} EMCC=${EMCC:-emcc}
dir=build/planted
passed=0 failed=0 skipped=0

skip() { echo "skip $1"; skipped=$((skipped + 1)); }
bad() { echo "FAIL $1"; failed=$((failed + 1)); }

# plant NAME HEADER EMULATOR COMPILER FLAGS...: EMULATOR may be empty.
plant() {
    name=$1 header=$2 emulator=$3
    shift 3
    for tool in ${emulator%% *} $1; do
        command -v "$tool" >/dev/null 2>&1 || { skip "$name: $tool is not installed"; return; }
    done
    here=$dir/$name
    rm -rf "$here"
    mkdir -p "$here"
    for file in bitnet.h "$header"; do
        awk -v header="$file" -v machine="$name" -v list="$here/faults.h" \
            -f tests/machines/planted.awk tests/machines/planted.txt "$file" >"$here/$file" ||
            failed=$((failed + 1))
    done
    if ! "$@" -w -I"$here" tests/machines/planted.c -o "$here/planted.js" >"$here/out" 2>&1; then
        bad "$name: a fault in planted.txt does not compile"
        head -n 15 "$here/out"
        return
    fi
    $emulator "$here/planted.js" >"$here/out" 2>&1
    if ! tail -n 1 "$here/out" | grep -q "passed, .* failed, "; then
        bad "$name: the program ends early"
        tail -n 15 "$here/out" | cut -c 1-200
        return
    fi
    sed "s/^FAIL /FAIL $name, /; s/^skip /skip $name, /; \$d" "$here/out"
    counts=$(tail -n 1 "$here/out" | tr -d a-z,)
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

machine() {
    case $1 in
        x86) plant x86 bitnet_kernels_x86.h "${RUN:-}" $CC -O1 ;;
        arm)
            plant arm bitnet_kernels_arm.h "qemu-aarch64 -cpu max" \
                aarch64-linux-gnu-gcc -O2 -static ;;
        arm32)
            plant arm32 bitnet_kernels_arm.h "qemu-arm -cpu max" \
                arm-linux-gnueabihf-gcc -O2 -static ;;
        wasm)                          # with relaxed SIMD where a compiler has it
            set -- $EMCC -O2 -msimd128
            [ -z "${EMCC_RELAXED:-}" ] || set -- $EMCC_RELAXED -O2 -msimd128 -mrelaxed-simd
            node=node
            for option in --no-experimental-fetch --experimental-wasm-relaxed-simd --no-liftoff; do
                ! node $option -e 0 2>/dev/null || node="$node $option"
            done
            NODE_PATH=${NODE_PATH:-/usr/share/nodejs}
            export NODE_PATH
            plant wasm bitnet_kernels_wasm.h "$node" "$@" -sEXIT_RUNTIME=1 -sTOTAL_STACK=1MB ;;
        *) echo "there is no machine $1"; exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- x86 arm arm32 wasm
for machine; do machine "$machine"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
