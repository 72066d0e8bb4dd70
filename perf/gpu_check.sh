#!/usr/bin/env bash
# Tests and measures device memory on a machine with a GPU that has nothing but the CUDA driver. Where
# it has PyTorch or CuPy, and a compiler for the extension, these are tested, too (tests/gpu).
#
#   perf/gpu_check.sh pack          where the build is: collects programs and libraries in
#                                   build/gpu_check
#   perf/gpu_check.sh run [FOLDER]  where the GPU is: tests, then tables, also into FOLDER
#                                   (default build/gpu_check/results); minutes. summary.json has
#                                   what became of each step
#   perf/gpu_check.sh python [FOLDER]  only what Python programs do
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pack=build/gpu_check

pack() {
  ./run perf all_reduce --ranks 2 -b 8 -e 8 >/dev/null || exit 1
  local programs=(tests/collectives/device_test tests/collectives/device_processes_test
    tests/collectives/device_processes_errors_test tests/nccl/nccl_device_test
    perf/{all_reduce,reduce_scatter,all_gather,broadcast}_perf) program
  programs+=(tests/collectives/device_pieces_test)
  ninja -C build/release "${programs[@]}" || exit 1
  rm -rf "$pack" && mkdir -p "$pack/lib"
  # With each program what it loads, but the driver, the C library and the loader.
  for program in "${programs[@]}"; do
    cp "build/release/$program" "$pack" || exit 1
    ldd "build/release/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
  done | sort -u | grep -vE '/(libcuda|libc|libm|libdl|libpthread|ld-linux[^/]*)\.so' |
    xargs cp -Lt "$pack/lib"
  # For other people's processes, which have a C++ library and an OpenSSL of their own.
  mkdir "$pack/python"
  find "$pack/lib" -type f ! -name 'libstdc++*' ! -name 'libgcc_s*' ! -name 'libssl*' \
    ! -name 'libcrypto*' -exec ln -t "$pack/python" {} +
  du -sh "$pack"
}

failures=0
limit=120 # seconds for one step
summary=()
check() { # title command...
  local title=$1 status=0 began=$SECONDS outcome=ok
  shift
  timeout -k 10 "$limit" "$@" >"$results/$title.txt" 2>&1 || status=$?
  case $status in
    0) echo "ok    $title" ;;
    77)
      outcome=skipped
      echo "skip  $title: $(tail -1 "$results/$title.txt")"
      ;;
    *)
      outcome=failed
      echo "FAIL  $title ($status)"
      tail -15 "$results/$title.txt"
      failures=$((failures + 1))
      ;;
  esac
  summary+=("  {\"step\": \"$title\", \"outcome\": \"$outcome\", \"status\": $status, \"seconds\": $((SECONDS - began))}")
}

begin() { # [FOLDER]
  results=${1:-$pack/results}
  mkdir -p "$results"
  local driver
  driver=$(dirname "$(ldconfig -p | awk '/libcuda\.so\.1/ { print $NF; exit }')")
  [ "$driver" != . ] || driver=/usr/local/nvidia/lib64
  with_driver="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver"
  export LD_LIBRARY_PATH="$with_driver:$PWD/$pack/lib"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$results/device.txt"
}

finish() {
  {
    echo '['
    (IFS=$',\n' && printf '%s' "${summary[0]}" && printf ',\n%s' "${summary[@]:1}")
    printf '\n]\n'
  } >"$results/summary.json"
  echo "$failures failed; everything is in $results"
  [ "$failures" = 0 ]
}

# Each skips by itself where what it needs is missing.
python_programs() {
  local name
  for name in nccl_random nccl_torch nccl_cupy backend_torch; do
    limit=$([ "$name" = backend_torch ] && echo 280 || echo 100) check "$name" env \
      PYTHONUNBUFFERED=1 LD_LIBRARY_PATH="$with_driver" WHORL_GPU_LIBRARIES="$PWD/$pack/python" \
      python3 "tests/gpu/$name.py"
    grep -E '^(ok|FAIL)' "$results/$name.txt" | sed 's/^/        /'
  done
}

run() {
  begin "$@"

  check device_test "$pack/device_test"
  check device_processes_test "$pack/device_processes_test"
  check device_processes_errors_test "$pack/device_processes_errors_test"
  check nccl_device_test "$pack/nccl_device_test"
  check device_pieces_test "$pack/device_pieces_test"
  if command -v compute-sanitizer >/dev/null; then
    check memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$pack/device_test" \
      --gtest_filter='Ranks/*:DeviceOrder.*'
    check racecheck compute-sanitizer --tool racecheck --error-exitcode 9 "$pack/device_test" \
      --gtest_filter='Ranks/Device.Every*'
  fi

  local ranks name type
  for ranks in 2 4 8; do
    for name in all_reduce reduce_scatter all_gather; do
      check "${name}_threads_$ranks" "$pack/${name}_perf" -N "$ranks" -t "$ranks" --alloc device \
        --mode warm -b 4K -e 1G -f 8 -n 20 -J "$results/${name}_threads_$ranks.json"
    done
  done
  for type in bfloat16 half f8e4m3 double; do
    check "all_reduce_$type" "$pack/all_reduce_perf" -N 4 -t 4 --alloc device --mode warm -d "$type" \
      -b 64M -e 256M -f 4 -n 20 -J "$results/all_reduce_$type.json"
  done
  for ranks in 2 4; do
    check "all_reduce_processes_$ranks" "$pack/all_reduce_perf" -N "$ranks" --alloc device \
      --mode warm -b 4K -e 256M -f 8 -n 10 -J "$results/all_reduce_processes_$ranks.json"
    check "all_reduce_by_host_$ranks" env WHORL_DEVICE_IPC=0 "$pack/all_reduce_perf" -N "$ranks" \
      --alloc device --mode warm -b 4K -e 256M -f 8 -n 10 \
      -J "$results/all_reduce_by_host_$ranks.json"
  done
  cat "$results"/all_reduce_{threads,processes,by_host}_*.txt
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
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
