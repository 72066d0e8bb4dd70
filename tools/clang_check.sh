#!/bin/sh
# The compiler of `./run lint`: clang, by the name in WHORL_CLANG. With WHORL_CLANG_CHECKS set it reads
# sources and warns, and leaves empty object files, which takes less time.
clang=${WHORL_CLANG:?is set by ./run lint}
object='' before=''
for argument in "$@"; do
  [ "$before" != -o ] || object=$argument
  before=$argument
done
case "${WHORL_CLANG_CHECKS:-no} $* " in
  'no '*) exec "$clang" "$@" ;;
  *' -c '*) "$clang" -fsyntax-only "$@" && : >"$object" ;;
  *) exec "$clang" "$@" ;;
esac
