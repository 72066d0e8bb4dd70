# shellcheck shell=bash
# Functions that the tests of packages share. Sourced under `set -euo pipefail`.
export DEBIAN_FRONTEND=noninteractive
name_of_test=${0##*/}
fail() {
  printf '%s: %s\n' "$name_of_test" "$1" >&2
  exit 1
}
step() { printf -- '-- %s\n' "$*"; }

# Installs Debian packages on the bare Debian that the test runs on.
install_packages() {
  apt-get -qq install -y --no-install-recommends "$@" </dev/null >/tmp/apt.log 2>&1 || {
    tail -20 /tmp/apt.log >&2
    fail "apt-get cannot install $*"
  }
}
