#!/usr/bin/env bash
# Tests, as root on a bare Debian, a user who cannot become root: a command of ./run (the arguments, or
# perf) ends with one sentence that contains a command line for root, and works after root has run that
# line.
set -euo pipefail
[ $# -gt 0 ] || set -- perf all_reduce --ranks 2 -b 1K -e 1K
useradd --create-home someone
cp -r . /home/someone/whorl
chown -R someone: /home/someone/whorl
as_user() { runuser -u someone -- env HOME=/home/someone bash -c 'cd ~/whorl && exec "$@"' bash "$@"; }
fail() {
  printf 'ordinary_user.sh: %s\n' "$1" >&2
  exit 1
}

if said=$(as_user ./run "$@" 2>&1); then fail "it works without packages: $said"; fi
printf '%s\n' "$said"
[ "$(wc -l <<<"$said")" = 1 ] || fail 'that is more than a sentence'
line=${said#*please type: }
[ "$line" != "$said" ] || fail 'there is no line to type'
bash -c "$line" >/dev/null 2>&1 || fail "as root, this fails: $line"
as_user ./run "$@"
