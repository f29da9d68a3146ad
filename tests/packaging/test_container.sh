#!/bin/sh
# packaging/Dockerfile: the image is built, and serve runs in it as nobody, on a model from a volume.
# Ends with "container: N passed, N failed, N skipped". Run from the repository's root.
. tests/cases.sh

version=$(sed -n 's/^#define BITNET_VERSION "\(.*\)"/\1/p' bitnet.h)
built=bitnet-$version-linux-$(uname -m)
image=localhost/bitnet-test
: >"$tmp/err"
finish() {
    echo "container: $passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}
check binaries "they cannot be made" sh -c "./build.sh binaries '${built#bitnet-$version-}' >'$tmp/err' 2>&1"
[ -d "build/binaries/$built" ] || finish
[ -e "build/binaries/$built/serve" ] || { skip container "there is no serve: libmicrohttpd cannot be built"; finish; }

# All that buildah writes is in a folder of its own; without a kernel that allows more, in a plain way.
export BUILDAH_ISOLATION=chroot
store() { buildah --root "$tmp/store" --runroot "$tmp/run" --storage-driver vfs "$@" 2>"$tmp/err"; }
if ! store from --name probe scratch >"$tmp/out"; then
    skip container "buildah cannot run here: $(tail -n 1 "$tmp/err")"
    finish
fi
check build "it is not built" store bud --format docker -f packaging/Dockerfile --build-arg NAME="$built" \
    -t $image build/binaries
store inspect --type image $image >"$tmp/out" || finish
config() { store inspect --type image --format "$1" $image; }
words() { config "{{range .OCIv1.Config.$1}}{{.}} {{end}}"; }
check user "it is root" test "$(config '{{.OCIv1.Config.User}}')" = 65532:65532
check volume "there is none" sh -c "echo '$(config '{{.OCIv1.Config.Volumes}}')' | grep -q /models"
check health "there is no check" sh -c "echo '$(config '{{.Docker.Config.Healthcheck}}')' | grep -q -e --health"
container=$(store from $image)
place=$(store mount "$container")
check files "there is more in it: $(ls "$place" | tr '\n' ' ')" \
    test "$(ls "$place" | tr '\n' ' ')" = "LICENSE LICENSE-libmicrohttpd.txt batch page serve "

# What it starts, by its own entry point, as its own user, in its own files.
port=$((20000 + $$ % 20000))
mkdir "$tmp/models"
cp examples/tiny.gguf "$tmp/models/model.gguf"
chmod -R a+rX "$tmp"
in_image() { # ARGUMENTS...: serve as the container has it, in place of this shell
    exec chroot --userspec=65532:65532 "$place" /serve "$@"
}
if mkdir -p "$place/models" && mount --bind "$tmp/models" "$place/models" 2>"$tmp/err"; then
    trap 'umount "$place/models" 2>/dev/null; rm -rf "$tmp"' EXIT
else cp "$tmp/models/model.gguf" "$place/models"
fi
set -- $(words Entrypoint) $(words Cmd)
check entry "it starts something else: $*" test "$*" = "/serve --host 0.0.0.0 -m /models/model.gguf"
[ "$1" = /serve ] || finish
shift
ready() { (in_image --health --port $port) 2>"$tmp/err"; }
ready
check unhealthy "nothing runs, and it is well" test $? -eq 1
BITNET_API_KEY=secret in_image "$@" --port $port >"$tmp/out" 2>"$tmp/log" &
pid=$!
wait_for $pid ready
check healthy "it is not" ready
curl -s -H 'Authorization: Bearer secret' "http://127.0.0.1:$port/v1/completions" \
    -d '{"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}' >"$tmp/answer" 2>"$tmp/err"
for file in '' page.js client/bitnet.js; do
    curl -sL "http://127.0.0.1:$port/$file" >"$tmp/out" 2>"$tmp/err"
    check "page/$file" "it is not there" cmp "$place/page/${file:-index.html}" "$tmp/out"
done
check answers "no text: $(head -c 200 "$tmp/answer")" grep -q '"text"' "$tmp/answer"
curl -s -o "$tmp/out" -w '%{http_code}' "http://127.0.0.1:$port/v1/models" >"$tmp/code" 2>"$tmp/err"
check key "it answers without one" grep -qx 401 "$tmp/code"
kill -TERM $pid
wait $pid
check ends "exit code not 0" test $? -eq 0
finish
