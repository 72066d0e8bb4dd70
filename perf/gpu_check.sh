#!/usr/bin/env bash
# Tests and measures device memory on a machine with a GPU that has nothing but the CUDA driver. Where
# it has the CUDA toolkit, PyTorch or CuPy, programs that need these run, too.
#
#   perf/gpu_check.sh pack          on the machine of the build: makes build/gpu_check/pack.tar.xz of
#                                   programs and libraries
#   perf/gpu_check.sh run [FOLDER]  on the machine of the GPU, with this checkout and that file:
#                                   tests, measurements (perf/gpu/measure.py), compute-sanitizer,
#                                   Python programs. Output goes to FOLDER, too (default
#                                   build/gpu_check/results): measure.md has the tables,
#                                   summary.json the outcome of each step
#   perf/gpu_check.sh python [FOLDER]  only the Python programs
#
# A run takes WHORL_CHECK_SECONDS at most (570); steps without time are marked. With
# WHORL_CHECK_SMOKE=1 sizes are small: a test of the script. Exit status: 0 if nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pack=build/gpu_check
budget=${WHORL_CHECK_SECONDS:-570}
smoke=${WHORL_CHECK_SMOKE:-}
SECONDS=0

tests=(driver_facts device_test device_group_test device_context_test device_schedule_test
  device_processes_test device_processes_errors_test device_mappings_test device_replays_test
  device_replays_errors_test device_segments_test nccl_device_test)

# Prints the tests above that the build has.
programs_of_build() {
  local name
  for name in "${tests[@]}"; do
    case $name in
      nccl_*) echo "tests/nccl/$name" ;;
      driver_facts) echo "tests/gpu/$name" ;;
      *) echo "tests/collectives/$name" ;;
    esac
  done
  echo perf/gpu/gpu_bench perf/all_reduce_perf tools/whorl-devices
}

pack() {
  command -v xz >/dev/null || {
    echo "There is no xz, which packs; it is in the package xz-utils." >&2
    exit 2
  }
  ./run perf all_reduce --ranks 2 -b 8 -e 8 >/dev/null || exit 1
  local programs program
  # shellcheck disable=SC2046  # a list of words
  read -ra programs <<<"$(echo $(programs_of_build))"
  ninja -C build/release "${programs[@]}" || exit 1
  local files=$pack/files
  rm -rf "$pack" && mkdir -p "$files/lib"
  # Copy each program with the libraries it loads, except the driver, the C library and the loader.
  for program in "${programs[@]}"; do
    cp "build/release/$program" "$files" || exit 1
    ldd "build/release/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
  done | xargs realpath -s | sort -u |
    grep -vE '/(libcuda|libc|libm|libdl|libpthread|ld-linux[^/]*)\.so' | xargs cp -Lt "$files/lib"
  find "$files" -type f -exec strip --strip-unneeded {} + 2>/dev/null
  git rev-parse HEAD >"$files/commit" 2>/dev/null
  # A large dictionary: programs have most of their bytes, the kernels, in common.
  tar -c -C "$files" . | xz --lzma2=preset=1,dict=128MiB >"$pack/pack.tar.xz" || exit 1
  rm -r "$files"
  du -h "$pack/pack.tar.xz"
}

unpack() {
  if [ "$pack/pack.tar.xz" -nt "$pack/gpu_bench" ]; then
    { command -v xz >/dev/null && tar -xJmf "$pack/pack.tar.xz" -C "$pack"; } ||
      python3 -m tarfile -e "$pack/pack.tar.xz" "$pack" || exit 2
    # A folder for Python processes, which have a C++ library and an OpenSSL of their own.
    rm -rf "$pack/python" && mkdir "$pack/python"
    find "$pack/lib" -type f ! -name 'libstdc++*' ! -name 'libgcc_s*' ! -name 'libssl*' \
      ! -name 'libcrypto*' -exec ln -t "$pack/python" {} +
  fi
  if [ ! -x "$pack/gpu_bench" ]; then
    echo "There is no $pack/pack.tar.xz: run \`perf/gpu_check.sh pack\` where the build is." >&2
    exit 2
  fi
}

failures=0
limit=60 # seconds for one step
summary=()
note() { # title outcome status seconds
  summary+=("  {\"step\": \"$1\", \"outcome\": \"$2\", \"status\": $3, \"seconds\": $4}")
}

check() { # title command...
  local title=$1 status=0 began=$SECONDS outcome=ok left=$((budget - SECONDS))
  shift
  if [ "$left" -lt 5 ]; then
    echo "----  $title: not run: time"
    note "$title" "not run: time" 0 0
    return
  fi
  timeout -k 5 $((limit < left ? limit : left)) "$@" >"$results/$title.txt" 2>&1 || status=$?
  case $status in
    0) echo "ok    $title ($((SECONDS - began)) s)" ;;
    77)
      outcome=skipped
      echo "skip  $title: $(tail -1 "$results/$title.txt")"
      ;;
    *)
      outcome=failed
      [ "$status" = 124 ] && outcome="failed: no end in time"
      echo "FAIL  $title (status $status)"
      tail -15 "$results/$title.txt" | sed 's/^/        /'
      failures=$((failures + 1))
      ;;
  esac
  note "$title" "$outcome" "$status" $((SECONDS - began))
}

begin() { # [FOLDER]
  results=${1:-$pack/results}
  mkdir -p "$results" || exit 1
  results=$(realpath "$results")
  unpack
  local driver
  driver=$(ldconfig -p 2>/dev/null | awk '/libcuda\.so\.1/ { print $NF; exit }')
  driver=$(dirname "${driver:-/usr/local/nvidia/lib64/libcuda.so.1}")
  with_driver="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver"
  export LD_LIBRARY_PATH="$with_driver:$PWD/$pack/lib"
  export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" # compute-sanitizer
  if command -v nvidia-smi >/dev/null; then nvidia-smi -q >"$results/nvidia_smi.txt" 2>&1; fi
  # Show the device, and whether whorl can use it.
  { "$pack/whorl-devices" || true; } 2>&1 | tee "$results/device.txt"
  "$pack/gpu_bench" device --name device >"$results/bench_device.json" 2>"$results/no_device.txt" ||
    { sed 's/^gpu_bench: /No device: /' "$results/no_device.txt"; no_device=77; }
}
no_device=0

finish() {
  {
    local separator='[' entry
    for entry in "${summary[@]}"; do
      printf '%s\n%s' "$separator" "$entry"
      separator=,
    done
    printf '\n]\n'
  } >"$results/summary.json"
  echo "$failures of ${#summary[@]} steps failed, in $SECONDS s; everything is in $results"
  [ "$failures" = 0 ]
}

# Runs the Python programs; each skips itself where a package it needs is missing.
python_programs() {
  local name
  for name in nccl_random nccl_torch nccl_cupy backend_torch; do
    limit=$([ "$name" = backend_torch ] && echo 200 || echo 80) check "$name" env \
      ${smoke:+WHORL_GPU_TEST_ROUNDS=8} PYTHONUNBUFFERED=1 LD_LIBRARY_PATH="$with_driver" WHORL_GPU_LIBRARIES="$PWD/$pack/python" \
      python3 "tests/gpu/$name.py"
    grep -E '^(ok|FAIL)' "$results/$name.txt" 2>/dev/null | sed 's/^/        /'
  done
}

measure() {
  if ! command -v python3 >/dev/null; then
    echo "FAIL  measure: there is no python3"
    failures=$((failures + 1))
    note measure failed 127 0
    return
  fi
  # Keep 200 s for the steps that follow.
  local seconds=$((budget - SECONDS - 200))
  [ "$seconds" -le 270 ] || seconds=270
  [ "$seconds" -ge 0 ] || seconds=0
  limit=$((seconds + 30)) check measure python3 -u perf/gpu/measure.py --bench "$pack/gpu_bench" \
    --devices "$pack/whorl-devices" --out "$results" --seconds "$seconds" ${smoke:+--smoke} \
    --note "whorl at commit $(cat "$pack/commit" 2>/dev/null || echo unknown)"
  grep '^|' "$results/measure.txt" 2>/dev/null | sed 's/^/        /'
}

sanitizers() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo "skip  compute-sanitizer: it is not here; it comes with the CUDA toolkit"
    note compute-sanitizer skipped 77 0
    return
  fi
  local sanitizer=(compute-sanitizer --error-exitcode 9)
  local bench=("$pack/gpu_bench" collectives --name sanitizer -N 4 --sizes 4K,1M --rounds 1 --ms 1
    --memory 256M --ring --eager)
  limit=40 check memcheck_bench "${sanitizer[@]}" --tool memcheck "${bench[@]}"
  limit=30 check racecheck_bench "${sanitizer[@]}" --tool racecheck "${bench[@]}"
  limit=60 check memcheck "${sanitizer[@]}" --tool memcheck "$pack/device_test" \
    --gtest_filter='Ranks/*:DeviceOrder.*'
  limit=40 check racecheck "${sanitizer[@]}" --tool racecheck "$pack/device_test" \
    --gtest_filter='Ranks/Device.Every*'
}

run() {
  begin "$@"
  if [ "$no_device" != 0 ]; then
    echo "Nothing to test or to measure without a device."
    note device skipped 77 0
    finish
    return 77
  fi
  local name
  for name in "${tests[@]}"; do check "$name" "$pack/$name"; done
  # Called like nccl-tests: four ranks of one thread, and two processes.
  local perf=("$pack/all_reduce_perf" --alloc device --mode warm -b 4K
    -e "$([ -n "$smoke" ] && echo 64K || echo 64M)" -f 16 -n 10)
  check all_reduce_g4 "${perf[@]}" -N 4 -g 4 -J "$results/all_reduce_g4.json"
  check all_reduce_processes "${perf[@]}" -N 2 -J "$results/all_reduce_processes.json"
  measure
  sanitizers
  python_programs
  finish
}

only_python() {
  begin "$@"
  python_programs
  finish
}

case "${1:-}" in
  pack) pack ;;
  run) run "${@:2}" ;;
  python) only_python "${@:2}" ;;
  *)
    sed -n '2,18s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
