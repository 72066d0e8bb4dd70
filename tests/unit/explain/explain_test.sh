#!/bin/sh
# Tests whorl-explain as a user calls it: exit status and output. $1 is the program.
tool=$1
failed=0

. "$(dirname "$0")/../../support/expect.sh"

expect 0 '8 B  oneshot' allreduce --ranks 4
expect 0 '512 MiB  twoshot' allreduce --ranks 4
expect 0 'a round 3.00' allreduce --ranks 4 --alpha 3
expect 0 '"choice": "direct"' allgather --ranks 48 -b 4K --json --alpha 100 --overhead 0.01
expect 0 '"choice": "circulant"' allgather --ranks 48 -b 4K --json --alpha 0.1 --overhead 10
expect 0 '"choice": "doubling"' barrier --ranks 64 --ranks-per-core 1 --json
expect 0 'costs as given' allreduce --send 1
expect 0 'costs of ranks like this process' allreduce
expect 0 'digest of choices' allreduce --ranks 4
expect 0 '"digest"' allreduce --ranks 4 --hosts 2 --json
expect 0 'passing 0.350' allreduce --ranks 4 --hosts 2
expect 0 'over the network: a round' allreduce --ranks 4 --hosts 2
expect 0 'network 8' allreduce --ranks 4 --hosts 2 -b 8
expect 0 '"limit": "a round on the network level"' allreduce --ranks 4 --hosts 2 -b 8 --json
expect 0 '5 + 3' allreduce --ranks 8 --hosts 5,3
expect 0 'passing 0.200' allreduce --ranks 4 --hosts 2 --one-machine
expect 2 'does not add up' allreduce --ranks 8 --hosts 5,2
expect 2 'more hosts (3) than ranks' allreduce --ranks 2 --hosts 3
expect 2 'requires' allreduce --ranks 2 --one-machine
expect 2 'excludes' allreduce --hosts 2 --measure
costs=$(mktemp)
echo '{"host": {"boundary_gb_per_s": 1}, "network": {"alpha_us": 77}}' > "$costs"
export WHORL_COST_FILE="$costs"
expect 0 '; 1 GB/s out of it' allreduce --ranks 4 --hosts 2
expect 0 'a round 77' allreduce --ranks 4 --hosts 2
expect 0 '"limit": "what crosses the boundary of each host"' allreduce --ranks 4 --hosts 2 -b 64M --json
echo '{"hosts": {}}' > "$costs"
expect 1 'there is no level "hosts"' allreduce --ranks 4
rm "$costs"
expect 1 'No such file' allreduce --ranks 4
unset WHORL_COST_FILE
same=$($tool allreduce --ranks 4 | grep digest)
expect 0 "$same" broadcast --ranks 4
expect 0 "$same" barrier --ranks 4 --measure --rounds 3
expect 0 "${same#digest of choices } 2" barrier --ranks 4 --communicators 2 --fresh
export WHORL_ALGO=allreduce:ring
expect 0 '"choice": "ring"' allreduce --ranks 4 -b 8 --json
export WHORL_ALGO=rings
expect 1 '"rings" is neither' allreduce --ranks 4
unset WHORL_ALGO
expect 0 'hierarchical' allreduce --ranks 8 --dims 4,2 -b 1M
# Several levels within a host are one part of the time.
twice=$($tool allreduce --ranks 8 --dims 2,2,2 -b 64 | grep -c 'host.*host [0-9]* %')
[ "$twice" = 0 ] || { echo "a level is named twice"; failed=1; }
expect 0 'regret' allreduce --ranks 2 -b 8,4K --measure --rounds 3
expect 0 '"measured_us"' barrier --ranks 3 --measure --rounds 3 --json
expect 0 'noise' allreduce --ranks 2 -b 8 --measure --rounds 3
expect 0 '"exchange_ns"' reduce --ranks 2 -b 8 --measure --rounds 3 --json
expect 0 'choices of allreduce' allreduce --ranks 3 --communicators 3
expect 0 'are not those of most' barrier --ranks 2 --communicators 2 --fresh
expect 2 'excludes' allreduce --measure --communicators 3
expect 2 'requires' allreduce --fresh
expect 0 'Usage' --help
# Names as the perf programs and nccl-tests spell them.
expect 0 '"collective": "allreduce"' all_reduce -b 8 --json
expect 0 '"collective": "reducescatter"' reduce_scatter -b 8 --json
expect 2 'no collective "all_reduction"' all_reduction
expect 2 'no collective "sen_d"; there are allreduce' sen_d
export WHORL_ALGO=all_gather:ring
expect 0 '"choice": "ring"' allgather --ranks 4 -b 8 --json
unset WHORL_ALGO
expect 2 'no collective "allreduction"' allreduction
expect 2 'required'
expect 2 'ranks' allreduce --ranks 0
expect 2 'ranks' allreduce --ranks x
expect 2 'alpha' allreduce --alpha -1
expect 2 'excludes' allreduce --measure --alpha 1
expect 2 'nan is not a number' allreduce --alpha nan
expect 2 'cache-bytes' allreduce --cache-bytes -1
expect 2 'from 0 to 1 PiB' allreduce -b 8,-1
expect 2 'at most 64 ranks' allreduce --measure --ranks 65
expect 2 'product of the sizes' allreduce --ranks 8 --dims 3,2
exit $failed
