#!/usr/bin/env bash
# Builds the image of packaging/docker with buildah, on a bare Debian of tools/fresh as debian:12 and with the packages
# in the folder that is the argument, and uses it. `./run image test` calls it; images lie in build/image only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
debs=${1:?"usage: image_test.sh DIRECTORY"}
. tests/packages/common.sh
images=$PWD/build/image
rm -rf --one-file-system "$images"
mkdir -p "$images"
builder() { buildah --root "$images/root" --runroot "$images/run" --storage-driver vfs "$@"; }

step 'a bare Debian as debian:12'
tools/fresh true
container=$(builder from scratch)
base=$(builder mount "$container")
tar -C "$base" -xzf build/fresh/bookworm.tar.gz
chmod 755 "$base"
builder umount "$container" >/dev/null
builder commit -q "$container" docker.io/library/debian:12 >/dev/null
builder rm "$container" >/dev/null

step 'the image'
# Isolation by chroot needs no rights that a machine of continuous integration lacks.
builder build --pull-never --isolation chroot --network host --build-context debs="$debs" \
  -f packaging/docker/Dockerfile -t whorl . >"$images/log" 2>&1 || {
  tail -20 "$images/log" >&2
  fail 'the image cannot be built'
}

step 'its programs, as its user'
container=$(builder from --pull-never localhost/whorl)
inside() { builder run --isolation chroot --network host "$container" -- "$@"; }
[ "$(inside id -u)" = 1000 ] || fail 'programs run as another user'
if inside touch /usr/bin/whorl-of-nobody 2>/dev/null; then fail 'the user may write to the system'; fi
inside whorl-info
inside whorl-perf all_reduce --ranks 4 -b 8 -e 64K -f 8 -n 5
# shellcheck disable=SC2016  # for the shell inside
maps=$(inside sh -c 'LD_PRELOAD=$(echo /usr/lib/*/whorl/nccl/libnccl.so.2) cat /proc/self/maps')
grep -q libnccl.so.2 <<<"$maps" || fail 'libnccl.so.2 cannot be preloaded'
left=$(inside sh -c 'ls -d /packages /var/lib/apt/lists/*' 2>/dev/null || true)
[ -z "$left" ] || fail "these are left in the image: $left"
command=$(builder inspect --format '{{.OCIv1.Config.Cmd}}' "$container")
[ "$command" = '[whorl-info]' ] || fail "the image runs $command"
echo 'the image is built and used'
