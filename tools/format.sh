#!/usr/bin/env bash
# Formats every tracked C++ file with clang-format 14; `--check` only says which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
format=$(command -v clang-format-14 || command -v clang-format) || {
  echo 'format.sh: clang-format 14 is not installed; apt-get install clang-format-14' >&2
  exit 1
}
mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  files() { git ls-files -zco --exclude-standard '*.h' '*.hpp' '*.cc' '*.c' '*.cu' '*.cuh'; }
else
  files() { find . -path ./build -prune -o -regex '.*\.\(h\|hpp\|cc\|c\|cu\|cuh\)' -print0; }
fi
files | xargs -0 -r "$format" --style=file "${mode[@]}"
