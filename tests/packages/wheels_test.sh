#!/usr/bin/env bash
# Tests, as root on a bare Debian, the wheels in the folder that is the argument: installs them into environments
# where no library of whorl's dependencies is, and runs ranks. `./run wheels test` calls it.
set -euo pipefail
wheels=${1:?"usage: wheels_test.sh DIRECTORY"}
project=$PWD
# shellcheck source=tests/packages/common.sh
. "$project/tests/packages/common.sh"
work=$(mktemp -d)
cd "$work"

# Requires a library to need only libraries of the system's C and C++ compilers, besides those in the arguments.
check_needed() { # library [patterns]
  local library=$1 needed allowed='libc libm libdl libpthread librt libgcc_s libstdc++ ld-linux-x86-64 ld-linux-aarch64'
  shift
  for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    # shellcheck disable=SC2076  # the words are literal
    [[ " $allowed $* " =~ " ${needed%%.so*} " ]] || fail "${library##*/} needs $needed"
  done
}

step 'environment'
apt-get -qq update >/dev/null
install_packages python3 python3-venv binutils
for library in libfmt libpugixml libyaml-cpp libhwloc; do
  if ldconfig -p | grep "$library"; then fail "this Debian is not bare: it has $library"; fi
done
python3 -m venv environment
install=(environment/bin/pip -q install --no-index --find-links "$wheels/needed")
"${install[@]}" "$wheels"/whorl_nccl-*.whl
packages=$(echo environment/lib/python3*/site-packages)

step 'libnccl.so.2'
nccl=$(environment/bin/python -m whorl_nccl)
[ "$nccl" = "$PWD/$packages/whorl_nccl/libnccl.so.2" ] || fail "python -m whorl_nccl prints $nccl"
check_needed "$nccl" libwhorl
check_needed "${nccl%/*}/libwhorl.so.0"
[ -n "$(ls "$packages"/whorl_nccl-*.dist-info/licenses/libssl.txt)" ]
for scenario in every_type_and_operator groups_and_transfers; do
  timeout 120 environment/bin/python "$project/tests/nccl/client.py" "$nccl" "$scenario"
done
# By its name, as programs open it.
LD_PRELOAD=$nccl environment/bin/python - <<'PY'
import ctypes
version = ctypes.c_int()
assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version)) == 0
assert version.value == 22809, version.value
assert "/whorl_nccl/libwhorl.so.0" in open("/proc/self/maps").read()
PY
# Secrets and encrypted connections use what the library has of OpenSSL.
WHORL_ENCRYPT=1 WHORL_TRANSPORTS=tcp timeout 120 environment/bin/python "$project/tests/nccl/client.py" "$nccl" data_movement

step 'the torch backend'
wheel=$(ls "$wheels"/whorl_torch-*.whl)
tag=$(environment/bin/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
case "$wheel" in
  *-"$tag"-*) ;;
  *)
    echo "skipped: ${wheel##*/} is not for the Python of this Debian, $tag"
    exit 0
    ;;
esac
"${install[@]}" "$wheel" # and torch, which it needs
check_needed "$packages/whorl_torch/libwhorl.so.0"
cat >train.py <<'PY'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("whorl")
rank, ranks = dist.get_rank(), dist.get_world_size()
numbers = torch.full((1000,), float(rank))
dist.all_reduce(numbers)
assert numbers.eq(ranks * (ranks - 1) / 2).all(), numbers
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
weights = [torch.empty_like(model.module.weight) for _ in range(ranks)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights), weights
if rank == 0:
    print(f"{ranks} ranks have trained on {dist.get_backend()}")
dist.destroy_process_group()
PY
OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore timeout 300 environment/bin/torchrun --nproc-per-node 4 \
  --rdzv-backend static --master-addr 127.0.0.1 --master-port 29511 train.py >said 2>&1 || fail "torchrun fails: $(cat said)"
cat said
grep -qxF '4 ranks have trained on whorl' said || fail 'no rank says that it has trained'
maps=$(environment/bin/python -W ignore -c 'import whorl_torch; print(open("/proc/self/maps").read())')
grep -q whorl_torch/libwhorl.so.0 <<<"$maps" || fail 'the backend has loaded another libwhorl'

step 'removal'
environment/bin/pip -q uninstall -y whorl-torch whorl-nccl
left=$(find environment -ipath '*whorl*')
[ -z "$left" ] || fail "these are left: $left"
echo 'the wheels are installed, used and removed'
