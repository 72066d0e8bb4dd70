#!/usr/bin/env bash
# Makes wheels in build/wheels of the packages in the arguments, with the Python environment build/venv and the
# library of build/wheel. What a wheel contains of others has its licence in the wheel, and a tag says how old a
# C library may be where it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/build/wheels bin=$PWD/build/venv/bin
export WHORL_ROOT=$PWD/build/wheel PATH=$bin:$PATH
# Projects whose headers or archives are in the library, by their Debian packages.
contained='libssl-dev libfmt-dev libpugixml-dev nlohmann-json3-dev'
# Libraries of torch, which is installed beside its backend.
of_torch=()
for name in libtorch.so libtorch_cpu.so libtorch_python.so libtorch_cuda.so libc10.so libc10_cuda.so; do
  of_torch+=(--exclude "$name")
done

rm -rf "$out"
mkdir -p "$out"
for package in "$@"; do
  work=$(mktemp -d "$out/work.XXXXXX")
  pip -q wheel --no-deps --no-build-isolation -w "$work" "$package"
  wheel unpack -d "$work/tree" "$work"/*.whl >/dev/null
  licences=$(echo "$work"/tree/*/*.dist-info)/licenses
  mkdir -p "$licences" "$work/packed"
  cp LICENSE "$licences/"
  for project in $contained; do
    cp "/usr/share/doc/$project/copyright" "$licences/${project%-dev}.txt"
  done
  wheel pack -d "$work/packed" "$work"/tree/* >/dev/null
  auditwheel repair --strip --only-plat "${of_torch[@]}" -w "$out" "$work"/packed/*.whl
  rm -rf "$work"
done
