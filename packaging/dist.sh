# ./build.sh dist; build.sh sources this file. Makes the folder of a release, build/dist/bitnet-VERSION:
#
#   bitnet_all.h               bitnet.h and its kernel headers in one file
#   bitnet*.h, examples/       the separate headers, and programs that use them
#   page/                      the page, for any web server
#   bitnet-h-VERSION.tgz       the npm package, for npm install or npm publish
#   bitnet-VERSION.tar.gz      the sources: all that git has, in the state of this folder
#   bitnet-VERSION-SYSTEM.*    programs and shared library for each system of binaries.sh
#   bitnet_h-VERSION*          the Python package for each of them, and its sources
#   ports/                     recipes of package managers, if BITNET_RELEASE_URL says where the release lies;
#                              winget's names both of Windows
#   LICENSE, README.md, CHANGELOG.md
#   SHA256SUMS                 of all these files, for sha256sum -c
#
# BITNET_SYSTEMS: only these systems, to try it.
#
# The same sources and tools give the same bytes. All times are that of the last commit, or
# SOURCE_DATE_EPOCH (seconds since 1970). It also works in the unpacked sources, without git.

. packaging/binaries.sh
SYSTEMS=${BITNET_SYSTEMS:-$SYSTEMS}

refuse() { echo "dist: $1" >&2; exit 1; }

# names FILE PATTERN: "FILE VERSION"; the first group of sed's pattern is the version.
names() { found=$(sed -n "s/$2/\1/p" "$1"); echo "$1 ${found:-none}"; }

# versions: what each place names that people read or that a package takes its version from.
versions() {
    names bitnet.h '^\/\* bitnet.h - v\([^ ]*\) .*'
    names web/package.json '^ *"version": "\([^"]*\)".*'
    names packaging/vcpkg/bitnet-h/vcpkg.json '^ *"version": "\([^"]*\)".*'
    names packaging/meson/bitnet.wrap '^directory = bitnet-\(.*\)'
    names packaging/meson/bitnet.wrap '^source_filename = bitnet-\(.*\)[.]tar[.]gz$'
    names CMakeLists.txt '^project(bitnet VERSION \([^ ]*\) .*' |
        sed "s/ \${version}\$/ $version/"      # it reads bitnet.h
    for file in README.md web/README.md packaging/README.md; do
        grep -Eo 'bitnet(-h)?[-@]v?[0-9]+([.][0-9]+)+' $file | sed "s|.*[-@]v*|$file |"
    done
}

check_versions() {
    wrong=$(versions | awk -v version="$version" '$2 != version { print "    " $1 ": " $2 }')
    [ -z "$wrong" ] || refuse "BITNET_VERSION is $version, but these name another:
$wrong"
    entry=$(awk -v version="$version" '$1 == "##" && $2 == version' CHANGELOG.md)
    [ -n "$entry" ] || refuse "CHANGELOG.md has no entry for version $version"
}

check_tools() {
    missing=
    for tool in "${EMCC%% *}:emscripten" "${ESBUILD:-esbuild}:esbuild" node:nodejs npm:npm python3:python3 tar:tar zip:zip \
        gzip:gzip sha256sum:coreutils; do
        have "${tool%:*}" || missing="$missing, ${tool%:*} (Debian: ${tool##*:})"
    done
    [ ! -e .git ] || have git || missing="$missing, git (Debian: git)"
    [ -z "$missing" ] || refuse "not installed: ${missing#, }"
    tar --version | grep -q GNU || refuse "tar is not GNU tar (Debian: tar)"
}

# sources_of_release: the names of the files that belong to the sources, sorted.
sources_of_release() {
    if [ -e .git ]; then git -c core.quotePath=off ls-files
    else find . -path ./build -prune -o -type f -print | sed 's|^\./||'
    fi | LC_ALL=C sort
}

# time_of_release: headers have that of the last commit where the sources were unpacked.
time_of_release() {
    if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then echo "$SOURCE_DATE_EPOCH"
    elif [ -e .git ]; then git log -1 --format=%ct
    else date -r bitnet.h +%s
    fi
}

# source_tarball FILE.tar.gz: nothing of this machine is in it, nor its users and access rights.
source_tarball() {
    tar -cf "${1%.gz}" --format=ustar --no-recursion --mtime="@$(time_of_release)" \
        --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --transform="s|^|bitnet-$version/|" -T build/dist/sources
    gzip -n -9 "${1%.gz}"
}

# page FOLDER: build/web without what only the npm package needs.
page() {
    cp -R build/web "$1"
    for file in package.json README.md bitnet.d.ts node.js inline.js; do
        rm "$1/$file"
        rm -f "$1/$file.map"
    done
}

# npm_package FOLDER: build/web as npm takes it. Where BITNET_HOME says where the sources are, the package
# names that, without which npm signs no provenance.
npm_package() {
    cp -R build/web "$1/npm"
    chmod -R u=rwX,go=rX "$1/npm"      # whatever the umask is: npm packs access rights, too
    [ -z "${BITNET_HOME:-}" ] ||
        (cd "$1/npm" && npm pkg set repository.type=git "repository.url=git+$BITNET_HOME.git")
    (cd "$1/npm" && npm pack --silent --pack-destination "$1") && rm -rf "$1/npm"
}

# python_packages FOLDER: a wheel with each system's library, and one to be compiled.
python_packages() {
    for system in $SYSTEMS; do
        case $system in
            linux-*) tag=manylinux_2_17_${system#linux-} ;;
            windows-x86_64) tag=win_amd64 ;;
            windows-*) tag=win_${system#windows-} ;;
            macos-*) tag=macosx_11_0_${system#macos-} ;;
        esac
        SOURCE_DATE_EPOCH=$(time_of_release) python3 -B packaging/python/backend.py wheel "$1" \
            "$(echo build/binaries/bitnet-"$version-$system"/lib/*)" $tag || return 1
    done
    SOURCE_DATE_EPOCH=$(time_of_release) python3 -B packaging/python/backend.py sdist "$1"
}

# ports FOLDER: the recipes, with what this release is called, where it lies and its checksums.
ports() {
    sum() { sha256sum "$1/$2" | cut -d ' ' -f 1; }
    mkdir -p "$1/ports"
    cp -R packaging/ports/. "$1/ports"
    find "$1/ports" -name '*.in' | while read -r file; do
        sed -e "s|@VERSION@|$version|g" -e "s|@URL@|$BITNET_RELEASE_URL|g" \
            -e "s|@HOME@|${BITNET_HOME:-$BITNET_RELEASE_URL}|g" \
            -e "s|@SHA256@|$(sum "$1" "bitnet-$version.tar.gz")|g" \
            -e "s|@SHA256_windows-x86_64@|$(sum "$1" "bitnet-$version-windows-x86_64.zip")|g" \
            -e "s|@SHA256_windows-arm64@|$(sum "$1" "bitnet-$version-windows-arm64.zip")|g" \
            "$file" >"${file%.in}"
        rm "$file"
    done
}

checksums() {
    (cd "$1" && find . -type f ! -name SHA256SUMS | sed 's|^\./||' | LC_ALL=C sort |
        xargs sha256sum >SHA256SUMS)
}

# The folder gets its name when all is in it. If anything fails, nothing is left.
dist() {
    version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
    rm -rf build/dist
    check_versions
    check_tools
    make_web
    binaries || refuse "the binaries cannot be made"
    trap 'rm -rf build/dist' EXIT
    trap 'exit 130' INT TERM
    new=$PWD/build/dist/unfinished
    mkdir -p "$new"
    sources_of_release >build/dist/sources
    source_tarball "$new/bitnet-$version.tar.gz"
    grep -E '^(examples/.*|bitnet[^/]*\.h|LICENSE|README\.md|CHANGELOG\.md)$' build/dist/sources |
        xargs cp --parents -t "$new"
    awk -f packaging/one_file.awk bitnet.h >"$new/bitnet_all.h"
    npm_package "$new"
    page "$new/page"
    for system in $SYSTEMS; do cp build/binaries/bitnet-"$version-$system".[tz]* "$new"; done
    python_packages "$new" || refuse "the Python packages cannot be made"
    case ${BITNET_RELEASE_URL:+$SYSTEMS} in *windows-x86_64*windows-arm64*) ports "$new" ;; esac
    checksums "$new"
    rm build/dist/sources
    mv "$new" "build/dist/bitnet-$version"
    trap - EXIT INT TERM
    echo "build/dist/bitnet-$version:"
    (cd "build/dist/bitnet-$version" && du -hs --apparent-size -- *)
    notes
}

# notes: what a release should not have.
notes() {
    [ ! -e .git ] || [ -z "$(git status --porcelain)" ] ||
        echo "note: it has changes that are not committed"
    case $entry in *"("20*")"*) ;; *) echo "note: CHANGELOG.md says '$entry', without a date" ;; esac
    [ -n "${BITNET_RELEASE_URL:-}" ] ||
        echo "note: it has no ports/, since BITNET_RELEASE_URL does not say where it will lie"
    [ -z "${BITNET_SYSTEMS:-}" ] || echo "note: it is for $SYSTEMS alone (BITNET_SYSTEMS)"
    [ -e build/web/documents.js ] ||
        echo "note: Search reads no PDF and Word files, since npm could not get what reads them"
    [ -e build/web/markdown-it.txt ] ||
        echo "note: the page shows replies as plain text, since npm could not get markdown-it"
    [ -e build/web/engine-relaxed.js ] ||
        echo "note: the page and the package have no relaxed SIMD (EMCC_RELAXED, a newer emscripten)"
}
