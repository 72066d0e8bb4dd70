#!/bin/bash
# Runs in the virtual machine: the devices, then each test program that is given, whose tests for RDMA
# have "Verbs" or "verbs" in their names. Goes on after a failure, and returns 1 if there was one.
set -u
status=0
export TEST_RDMA_DEVICES=1
# Ports with the same number belong together; a single one of each rank makes packets cross the link.
export WHORL_IB_RAILS=1

check() { # description, command
  if "${@:2}"; then echo "ok: $1"; else status=1 && echo "FAILED: $1"; fi
}
active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state"; }

check 'rxe0 is active' active rxe0
check 'rxe1 is active' active rxe1
for program in "$@"; do
  check "$(basename "$program")" "$program" --gtest_brief=1 --gtest_filter='*erbs*'
done
exit $status
