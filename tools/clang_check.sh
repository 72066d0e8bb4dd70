#!/bin/sh
# The compiler of `./run lint`: clang, by the name in WHORL_CLANG. `clang_check.sh --headers FILE` writes what clang
# makes of tests/lint/clang_headers.h. With that FILE in WHORL_CLANG_HEADERS this script reads sources and warns,
# and leaves empty object files, which takes much less time than compiling.
clang=${WHORL_CLANG:?is set by ./run lint}
# FILE and the source that uses it must agree on these.
alike='-fPIC -pthread -fvisibility=hidden -fno-sanitize=all'
if [ "$1" = --headers ]; then
  # Templates are instantiated now as far as they can be, not in each source again.
  # shellcheck disable=SC2086  # a list of words
  exec "$clang" -std=c++20 -fpch-instantiate-templates $alike -DNDEBUG -D_FILE_OFFSET_BITS=64 -DGTEST_HAS_PTHREAD=1 \
    -x c++-header "$(dirname "$0")/../tests/lint/clang_headers.h" -o "$2"
fi
object='' before='' headers=no
for argument in "$@"; do
  [ "$before" != -o ] || object=$argument
  case "$argument" in
    -std=c++20) headers=yes ;;
    -fno-exceptions) headers=no ;;
  esac
  before=$argument
done
case "${WHORL_CLANG_HEADERS:+checks} $* " in
  checks*' -c '*) ;;
  *) exec "$clang" "$@" ;;
esac
[ "$headers" = no ] || set -- -include-pch "$WHORL_CLANG_HEADERS" "$@"
# shellcheck disable=SC2086  # a list of words
"$clang" -fsyntax-only "$@" $alike && : >"$object"
