#!/bin/sh
# Builds the Python package of packaging/python and uses it where it is installed.
#     test_python.sh GENERATE MODEL CHAT_MODEL [PYRIGHT]
# CHAT_MODEL: a model that thinks, from tests/server/chat_model.c. PYRIGHT: a type checker's command.
# Run from the repository's root; writes to build/python. Compiles with CC and CFLAGS. Prints a line for
# each case and at the end `python: N passed, N failed, N skipped`.
[ $# -ge 3 ] || { echo "usage: $0 GENERATE MODEL CHAT_MODEL [PYRIGHT]" >&2; exit 2; }
here=$PWD generate=$PWD/$1 model=$PWD/$2 chat_model=$PWD/$3 pyright=${4:-}
. tests/cases.sh
dir=$PWD/build/python package=$PWD/packaging/python
version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 LC_ALL=C.UTF-8
export SOURCE_DATE_EPOCH=1700000000 PIP_CONFIG_FILE=/dev/null
unset PYTHONPATH BITNET_H_LIBRARY BITNET_H_PLATFORM
rm -rf "$dir"
mkdir -p "$dir/texts" "$dir/again" "$dir/sources" "$dir/else"
summary() { echo "python: $passed passed, $failed failed, $skipped skipped"; [ $failed -eq 0 ]; exit; }

# expect NAME COMMAND...: it must succeed.
expect() {
    name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then ok "$name"; else bad "$name" "$(tail -n 8 "$tmp/out")"; fi
}
# refuses NAME WORD COMMAND...: it must fail, and say this.
refuses() {
    name=$1 word=$2
    shift 2
    if "$@" >"$tmp/out" 2>&1; then bad "$name" "it was taken"
    elif ! grep -q -e "$word" "$tmp/out"; then bad "$name" "$(tail -n 3 "$tmp/out")"
    else ok "$name"; fi
}
environment() { "$1" -m venv "$2" || { bad "venv $1" "Debian: python3-venv"; summary; }; }

# ---- from source: what is in the repository stays as it is ----

environment python3 "$dir/source"
expect "pip install . with $CC" "$dir/source/bin/python" -m pip install "$package"
expect "nothing is left beside the sources" sh -c "! ls -d '$package'/*/__pycache__ '$package'/build \
    '$package'/*.egg-info '$package'/bitnet_h/_declarations.py 2>/dev/null"
installed=$(cd "$tmp" && "$dir/source/bin/python" -c 'import bitnet_h; print(bitnet_h.__path__[0])') ||
    { bad "it is installed" "$installed"; summary; }
case $installed in "$dir"/source/*) ok "it is installed" ;; *) bad "it is installed" "$installed" ;; esac
refuses "not beside its sources" "start Python in another folder" sh -c "cd '$package' && python3 -m bitnet_h x"
library=$dir/library.so
cp "$installed"/libbitnet.so "$library" || summary
exports() { nm -D --defined-only "$library" | grep -v ' bitnet_[a-z0-9_]*_v[0-9_]*$'; }
expect "the library exports nothing else" sh -c '[ -z "$1" ]' - "$(exports)"

# ---- wheels, of a library that is there ----

backend() { python3 "$package/backend.py" "$@"; }
tag=manylinux_2_99_$(uname -m)
wheel=bitnet_h-$version-py3-none-$tag.whl
expect "a wheel" backend wheel "$dir" "$library" "$tag"
SOURCE_DATE_EPOCH=1700000002 backend wheel "$dir/else" "$library" "$tag" >/dev/null
expect "the date is in it" sh -c "! cmp -s '$dir/$wheel' '$dir/else/$wheel'"
expect "the sources" backend sdist "$dir"
backend wheel "$dir/again" "$library" "$tag" >/dev/null
backend sdist "$dir/again" >/dev/null
expect "the same bytes again: wheel" cmp "$dir/$wheel" "$dir/again/$wheel"
expect "the same bytes again: sources" cmp "$dir/bitnet_h-$version.tar.gz" "$dir/again/bitnet_h-$version.tar.gz"
tar -xzf "$dir/bitnet_h-$version.tar.gz" -C "$dir/sources"
BITNET_H_LIBRARY=$library BITNET_H_PLATFORM=$tag expect "pip builds it of the sources" \
    python3 -m pip wheel -q --no-deps -w "$dir/again" "$dir/sources/bitnet_h-$version"
expect "the same bytes from the sources" cmp "$dir/$wheel" "$dir/again/$wheel"
expect "what is in it" python3 tests/packaging/wheel.py "$dir/$wheel" "$version" "$tag"
refuses "needs a newer glibc than it says" "needs glibc" backend wheel "$dir/else" "$library" manylinux_2_2_$(uname -m)
refuses "needs glibc, not musl" "needs glibc" backend wheel "$dir/else" "$library" musllinux_1_2_$(uname -m)
refuses "another system" "is not for" backend wheel "$dir/else" "$library" win_amd64
refuses "another machine" "is not for" backend wheel "$dir/else" "$library" manylinux_2_17_$(
    [ "$(uname -m)" = aarch64 ] && echo x86_64 || echo aarch64)
printf 'MZ%58s\100\0\0\0PE\0\0\144\252' '' >"$tmp/arm.dll"
expect "Windows on ARM" backend wheel "$dir/else" "$tmp/arm.dll" win_arm64
refuses "no other Windows" "is not for" backend wheel "$dir/else" "$tmp/arm.dll" win_amd64
printf '\317\372\355\376\014\0\0\001' >"$tmp/arm.dylib"
expect "macOS on ARM" backend wheel "$dir/else" "$tmp/arm.dylib" macosx_11_0_arm64
refuses "no other macOS" "is not for" backend wheel "$dir/else" "$tmp/arm.dylib" macosx_10_13_x86_64
expect "a system that it knows nothing of" backend wheel "$dir/else" "$library" freebsd_14_0_RELEASE_amd64
# What Python says of macOS is not always a name that pip takes: its tags are.
expect "macOS: pip takes the names" "$dir/source/bin/python" -c "
import sys; sys.path.insert(0, '$package')
import backend, platform, sysconfig
from pip._vendor.packaging import tags
for name, machine, of in (('macosx-10.9-universal2', 'arm64', (11, 0)), ('macosx-14-arm64', 'arm64', (14, 0)),
                          ('macosx-11.3-x86_64', 'x86_64', (11, 0)), ('macosx-14.0-arm64', 'arm64', (14, 0)),
                          ('macosx-10.13-universal2', 'x86_64', (10, 13))):
    sysconfig.get_platform, platform.machine = lambda: name, lambda: machine
    assert backend.this_platform() in tags.mac_platforms(of, machine), (name, backend.this_platform())"
expect "32 bits of x86 compute with SSE" "$dir/source/bin/python" -c "
import sys; sys.path.insert(0, '$package')
import backend, platform, subprocess
calls, sys.maxsize = [], (1 << 31) - 1
subprocess.run = lambda command, check: calls.append('-mfpmath=sse' in command)
for machine in 'i686', 'x86_64', 'AMD64', 'armv7l':
    platform.machine = lambda: machine
    backend.compiled('.')
assert calls == [True, True, True, False], calls"
expect "names of libraries" sh -c "cd '$dir/else' && python3 -m zipfile -l *win_arm64.whl | grep -q bitnet.dll &&
    python3 -m zipfile -l *macosx_11_0_arm64.whl | grep -q libbitnet.dylib"
CC=no-such-compiler refuses "no compiler" no-such-compiler python3 -m pip wheel --no-deps -w "$dir/else" "$package"

# ---- installed, in each Python that is here, from a folder outside of the repository ----

text() { "$generate" -m "$model" --log-disable --no-display-prompt "$@" | head -c -1; }
text -no-cnv -p "Once upon a time" -n 100 --temp 0 >"$dir/texts/story"
text -no-cnv -p "The dog" -n 40 --temp 0 >"$dir/texts/dog"
text -no-cnv -p "Once upon a time" -n 40 --temp 0.9 -s 7 >"$dir/texts/sampled"
text -cnv -st -p "Hello!" --temp 0 >"$dir/texts/chat"
expect "texts of generate" [ "$(cat "$dir"/texts/* | wc -c)" -gt 400 ]

# As distributions build packages: of the sources, with no other package than pip.
environment python3 "$dir/alone"
pip() { "$dir/alone/bin/python" -m pip "$@"; }
pip uninstall -q -y setuptools wheel >"$tmp/out" 2>&1
expect "--no-build-isolation: pip is alone" [ "$(pip list --format freeze | sed 's/=.*//')" = pip ]
expect "pip install --no-build-isolation with $CC" pip install --no-build-isolation "$dir/sources/bitnet_h-$version"
expect "--no-build-isolation: a text" sh -c 'cd "$1" && alone/bin/python -c "import sys, bitnet_h
print(end=bitnet_h.Model(sys.argv[1]).generate(\"Once upon a time\", max_tokens=100).text())" "$2" |
    cmp texts/story' - "$dir" "$model"

# installs PYTHON NAME VENV_FLAGS...: the wheel in an environment of its own, with what it tests
installs() {
    python=$1 with=$2
    shift 2
    "$python" -m venv "$@" "$dir/$with" || { bad "$with" "no venv"; return; }
    expect "$with: pip install" "$dir/$with/bin/python" -m pip install -q "$dir/$wheel"
    (cd "$tmp" && "$dir/$with/bin/python" -X dev -W error "$here/tests/packaging/test_python.py" "$model" \
        "$dir/texts" "$chat_model") >"$tmp/tests" 2>&1
    rc=$? counts=$(tail -n 1 "$tmp/tests")
    grep -v ' passed, ' "$tmp/tests" | sed "s/^FAIL python/FAIL $with/; s/^skip python/skip $with/"
    case $counts in
        *' passed, '*' failed, '*' skipped')
            set -- $counts
            passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5)) ;;
        *) bad "$with" "exit code $rc: $(tail -n 3 "$tmp/tests")" ;;
    esac
}
wheel_as_linux=bitnet_h-$version-py3-none-linux_$(uname -m).whl
backend wheel "$dir" "$library" linux_$(uname -m) >/dev/null && wheel=$wheel_as_linux
installs python3 python3 $(python3 -c 'import numpy' 2>/dev/null && echo --system-site-packages)
! python3 -c 'import numpy' 2>/dev/null || installs python3 python3-without-numpy
for n in 8 9 10 11 12 13 14 15; do
    python=python3.$n
    "$python" -c 'import venv, ensurepip' 2>/dev/null && [ "$("$python" -c 'import sys; print(sys.version)')" != \
        "$(python3 -c 'import sys; print(sys.version)')" ] || continue
    installs "$python" "$python"
done

# ---- types ----

if [ -n "$pyright" ]; then
    check_types() { $pyright --pythonpath "$dir/python3/bin/python" "$@"; }
    expect "types of the package" check_types "$dir"/python3/lib/python3*/site-packages/bitnet_h
    check_types tests/packaging/typed.py | sed -n 's/.*typed.py:\([0-9]*\):.* error: .*/\1/p' | sort -nu >"$tmp/errors"
    sed -n '/^ .*[( ]wrong[^,]*=/=' tests/packaging/typed.py >"$tmp/wrong"
    expect "types for programs" diff "$tmp/wrong" "$tmp/errors"
else skip types "no pyright"; fi
summary
