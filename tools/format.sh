#!/usr/bin/env bash
# Formats every tracked C++ file with clang-format 14; `--check` only says which are not formatted. Exit status 77:
# there is no clang-format 14.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
format=$(command -v clang-format-14 || command -v clang-format) && "$format" --version | grep -q 'version 14\.' || {
  echo 'format.sh: not looked at: other versions of clang-format than 14 break lines elsewhere, and it is not' \
    'installed (Debian 12: apt-get install clang-format-14)' >&2
  exit 77
}
mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  files() { git ls-files -zco --exclude-standard '*.h' '*.hpp' '*.cc' '*.c' '*.cu' '*.cuh'; }
else
  files() { find . \( -path ./build -o -path ./subprojects \) -prune -o -regex '.*\.\(h\|hpp\|cc\|c\|cu\|cuh\)' -print0; }
fi
files | xargs -0 -r "$format" --style=file "${mode[@]}"
