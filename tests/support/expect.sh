# Helper of tests that call programs as users do: `tool` is the program, `failed` becomes 1.

# expect STATUS TEXT ARGUMENT...: checks the exit status, and that the output contains TEXT.
expect() {
  status=$1 text=$2
  shift 2
  output=$("$tool" "$@" 2>&1)
  got=$?
  if [ $got -ne "$status" ] || ! printf '%s\n' "$output" | grep -qiF -e "$text"; then
    printf '%s %s: status %s, expected %s and "%s":\n%s\n' "${tool##*/}" "$*" $got "$status" "$text" "$output"
    failed=1
  fi
}
