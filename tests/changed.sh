#!/bin/sh
# What a change needs, by the first table of tests/README.md; ./build.sh test --changed calls it.
#
#   changed.sh [BASE]       what differs from the commit BASE (HEAD), and what to run for that:
#
#       changed @kernels tests/cli/test_cli.sh
#       t kernels/ model/variants
#       suite cc cli planted
#
#   changed.sh --unnamed    the sections of bitnet.h and the files that no row names; fails if there
#                           are some
#   changed.sh --rows       the rows
set -euf                               # f: patterns of the table are for case, not for files

# A row as "NAMES|FILTERS|SUITES".
rows() {
    awk -F'|' '/^\| you changed / { table = 1; next }
        table && !/^\|/ { exit }
        table && !/^\| -/ { gsub(/`/, ""); print $2 "|" $3 "|" $4 }' tests/README.md
}

# The section of each line of bitnet.h. What stands above all is @manual.
sections() {
    awk 'BEGIN { name = "@manual" }
        banner { if ($1 ~ /^@/) name = $1; print name }
        { banner = /^\/\* =+$/; if (!banner) print name }' bitnet.h
}

# changed BASE: sections and files. A part of bitnet.h that is gone was in the section that holds the
# line above it.
changed() {
    git rev-parse -q --verify "$1^{commit}" >/dev/null ||
        { echo "there is no commit '$1'" >&2; exit 2; }
    mkdir -p build
    sections >build/sections
    git diff -U0 --no-color --no-ext-diff "$1" -- bitnet.h | awk '
        FNR == NR { section[FNR] = $0; next }
        /^@@ .* @@/ {
            split($3, part, /[+,]/)
            for (i = part[2]; i == part[2] || i < part[2] + part[3]; i++) print section[i]
        }' build/sections - | sort -u
    git diff --name-only --no-renames "$1"
    git ls-files --others --exclude-standard
}

# needed THING...: $filters and $suites of the rows that name them; $unnamed, what none does.
needed() {
    filters= suites= unnamed=
    for thing; do
        found= own=${thing##*/test_}
        while IFS='|' read -r names tests others; do
            for pattern in $names; do
                case $thing in
                    $pattern)
                        found=1 suites="$suites $others"
                        filters="$filters $(echo "$tests" | sed "s|NAME/|${own%.c}/|")" ;;
                esac
            done
        done <<END
$(rows)
END
        [ -n "$found" ] || unnamed="$unnamed $thing"
    done
}

once() { printf '%s\n' "$@" | sort -u | tr '\n' ' ' | sed 's/ $//'; }

case ${1:-} in
    --rows) rows ;;
    --unnamed)
        needed $(sections | sort -u) $(git ls-files)
        for thing in $unnamed; do echo "$thing"; done
        [ -z "$unnamed" ] ;;
    *)
        [ $# -le 1 ] || { echo "changed.sh: '$2' is too much" >&2; exit 2; }
        things=$(changed "${1:-HEAD}")
        [ -n "$things" ] || { echo "nothing differs from ${1:-HEAD}" >&2; exit 2; }
        needed $things
        echo changed $things
        for thing in $unnamed; do echo "no row of tests/README.md names $thing" >&2; done
        [ -z "$unnamed" ] || exit 2
        echo "t $(once $filters)"
        echo "suite $(once $suites)" ;;
esac
