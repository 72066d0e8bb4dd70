#!/usr/bin/env bash
# Builds Debian packages of the working tree into build/deb: with the version of packaging/debian/changelog,
# or with --version VERSION. DEB_BUILD_OPTIONS applies: nocuda, parallel=N and so on. Without it no packages of debug
# symbols are made, which take longer to compress than all others, and a compilation is a short line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/build/deb tree=$PWD/build/deb/whorl
version=
while [ $# -gt 0 ]; do
  case "$1" in
    --version) version=${2:?"--version takes the version of the packages"} && shift 2 ;;
    *) printf 'deb.sh: there is no argument %s; usage: deb.sh [--version VERSION]\n' "$1" >&2 && exit 2 ;;
  esac
done

# The tree has the files of the project and nothing that lies beside them.
rm -rf "$tree"
mkdir -p "$tree"
rm -f "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  git ls-files -zco --exclude-standard | xargs -0 -r ls -d 2>/dev/null | tar -c -T -
else
  tar -c --exclude='./build*' --exclude=./.git .
fi | tar -C "$tree" -x
cp -r packaging/debian "$tree/debian"
if [ -n "$version" ]; then
  sed -i "1s/(.*)/($version)/" "$tree/debian/changelog"
fi

# debhelper gives the build a home of its own, where a compiler cache would be empty.
export CCACHE_DIR=${CCACHE_DIR-$HOME/.cache/ccache} CCACHE_NOHASHDIR=true
export DEB_BUILD_OPTIONS=${DEB_BUILD_OPTIONS-"noautodbgsym terse parallel=$(nproc)"}
(cd "$tree" && dpkg-buildpackage --build=binary --no-sign)
