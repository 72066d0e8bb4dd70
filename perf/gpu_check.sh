#!/usr/bin/env bash
# Tests and measures device memory on a machine with a GPU that has nothing but the CUDA driver and
# Python. Where it has the CUDA toolkit, PyTorch or CuPy, programs that need these run, too.
#
#   perf/gpu_check.sh pack      on the machine of the build: makes build/gpu_check/pack.tar.xz of
#                               programs and libraries
#   perf/gpu_check.sh run [OPTION…] [PART…]
#                               on the machine of the GPU, with this checkout and that file. Parts:
#                               figures (perf/gpu/measure.py), facts, tests, tools (compute-sanitizer
#                               and Python programs); all without one. Options: --out FOLDER (default
#                               build/gpu_check/results), --seconds (570) for everything, --jobs,
#                               --smoke. In FOLDER measure.md has the tables, summary.json the outcome
#                               of each step. perf/gpu/check.py says more.
#
# Exit status: 0 if nothing failed, 77 where there is no device.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pack=build/gpu_check

tests=(driver_facts device_test device_blocks_test device_group_test device_context_test device_pair_test device_schedule_test
  device_processes_test device_processes_blocks_test device_processes_errors_test device_mappings_test device_replays_test
  device_replays_errors_test device_segments_test device_busy_driver_test nccl_device_test)

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
  if [ "$pack/pack.tar.xz" -nt "$pack/unpacked" ]; then
    find "$pack" -maxdepth 1 -type f ! -name 'pack.tar.xz' -delete # programs of an older pack
    { command -v xz >/dev/null && tar -xJmf "$pack/pack.tar.xz" -C "$pack"; } ||
      python3 -m tarfile -e "$pack/pack.tar.xz" "$pack" || exit 2
    # A folder for Python processes, which have a C++ library and an OpenSSL of their own.
    rm -rf "$pack/python" && mkdir "$pack/python"
    find "$pack/lib" -type f ! -name 'libstdc++*' ! -name 'libgcc_s*' ! -name 'libssl*' \
      ! -name 'libcrypto*' -exec ln -t "$pack/python" {} +
    touch "$pack/unpacked"
  fi
  if [ ! -x "$pack/gpu_bench" ]; then
    echo "There is no $pack/pack.tar.xz: run \`perf/gpu_check.sh pack\` where the build is." >&2
    exit 2
  fi
}

run() {
  command -v python3 >/dev/null || {
    echo "There is no python3, which runs the steps." >&2
    exit 2
  }
  unpack
  local driver
  driver=$(ldconfig -p 2>/dev/null | awk '/libcuda\.so\.1/ { print $NF; exit }')
  driver=$(dirname "${driver:-/usr/local/nvidia/lib64/libcuda.so.1}")
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver"
  export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" # compute-sanitizer
  exec python3 -u perf/gpu/check.py --pack "$pack" --out "$pack/results" "$@"
}

case "${1:-}" in
  pack) pack ;;
  run) run "${@:2}" ;;
  *)
    sed -n '2,17s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
