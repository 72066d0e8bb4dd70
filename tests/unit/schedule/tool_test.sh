#!/bin/sh
# Tests whorl-schedule as a user calls it: exit status and output. $1 is the program.
tool=$1
failed=0

. "$(dirname "$0")/../../support/expect.sh"

expect 0 'allreduce: ' list
expect 0 'recv_reduce_send <3 i2 >1 x2 by -1' show allreduce ring 4
expect 0 'recv_reduce_send <3 i2 >1 x2 by -1' show all_reduce ring 4
expect 0 'min_slots=2' show allreduce ring 4 --rank 0 --text
expect 0 '"recv_reduce_copy_send"' show allreduce ring 4 --json
expect 0 '<svg' show allreduce tree 8 --svg
expect 0 'rank=7/8' show allreduce hierarchical 8 --dims 4:twoshot,2:ring
expect 0 'recv_copy_send <5 -> o4 >2' show allgather ring 6 --order 0,2,4,1,3,5 --rank 0
expect 0 'root 1: correct' verify reduce hierarchical 8 --dims 4,2 --order 0,2,4,6,1,3,5,7 --root 1
expect 0 'hierarchical, 8 ranks: correct' verify allreduce hierarchical 8 --groups 5,3 --channels 2
expect 0 'leaders, 4 ranks: correct' verify allreduce leaders 4 --groups 3,1 --order 0,2,3,1
expect 0 'allreduce ring, 4 ranks: correct' verify allreduce ring 4 --in-place
expect 0 'root 2: correct' verify reduce tree 5 --root 2 --channels 2 --published
expect 0 'twoshot, 3 ranks: correct' verify allreduce twoshot 3 --in-place --published --placed
expect 0 'rounds           9' verify alltoall bruck 300
# Printed schedules are verified when they are read back, as text and as JSON.
files=$(mktemp -d)
trap 'rm -r "$files"' EXIT
$tool show allreduce ring 4 --text > "$files/ring.txt"
$tool show reduce tree 5 --root 2 --json > "$files/tree.json"
sed 's/x2 by -1/x3 by -1/' "$files/ring.txt" > "$files/wrong.txt"
sed 's/min_slots=2/min_slots=1/' "$files/ring.txt" > "$files/slots.txt"
expect 0 'allreduce, 4 ranks: correct' verify allreduce --file "$files/ring.txt" --published
expect 0 'reduce, 5 ranks: correct' verify reduce --root 2 --file "$files/tree.json"
expect 1 'is not marked as final' verify allreduce --file "$files/wrong.txt"
expect 1 'has min_slots=1 (1 where it is left out), and 2 are needed' verify allreduce --file "$files/slots.txt"
expect 1 'There are no schedules' verify allreduce --file /dev/null
expect 2 'Cannot read' verify allreduce --file "$files/none"
expect 2 'Line 1' verify allreduce --file "$0"
expect 2 'excludes' verify allreduce ring 4 --file "$files/ring.txt"
expect 2 'do not go with --file' verify allreduce --file "$files/ring.txt" --order 0,1,2,3
expect 2 'do not go with --file' verify allreduce --file "$files/ring.txt" --groups 3,1
expect 2 'are required, or --file' verify allreduce
expect 2 'are required, or --file' verify allreduce ring
expect 2 'must be 1 to 4096, not 0' verify allreduce ring 0
expect 0 'ring, 1 rank: correct' verify allreduce ring 1
expect 2 'list, show or verify' display
expect 2 'list, show or verify'
expect 0 'Usage' --help
expect 2 'no collective "allreduction"' show allreduction ring 4
expect 2 'no algorithm "rung"' verify allreduce rung 4
expect 2 'must be 1 to 4096' show allreduce ring 0
expect 2 'must be 1 to 4096' show allreduce ring 1000000
expect 2 'ranks = x' show allreduce ring x
expect 2 '--root must be 0 to 3' show reduce tree 4 --root 4
expect 2 '--rank must be 0 to 3' show allreduce ring 4 --rank -1
expect 2 '--channels must be' show allreduce ring 4 --channels 0
expect 2 'do not multiply to 4' show allreduce hierarchical 4 --dims 3:ring
expect 2 '"x" is not a size' show allreduce hierarchical 4 --dims x
expect 2 'no algorithm "rung"' show allreduce hierarchical 4 --dims 2:rung,2
expect 2 'each of the ranks 0 to 3 must be there once' show allreduce ring 4 --order 0,1,2
expect 2 'each of the ranks 0 to 3 must be there once' show allreduce ring 4 --order 0,1,1,3
expect 2 'each of the ranks 0 to 3 must be there once' show allreduce ring 4 --order -1,0,1,2
expect 2 '"x" is not a number' show allreduce ring 4 --order 0,x
expect 2 'do not add up to 4 ranks' show allreduce hierarchical 4 --groups 3,2
expect 2 '0 is not a size' show allreduce hierarchical 4 --groups 4,0
expect 2 '"2:ring" is not a number' show allreduce hierarchical 4 --groups 2:ring,2
expect 2 'does not go with --dims' show allreduce hierarchical 4 --groups 3,1 --dims 2,2
expect 2 'does not support 4 ranks in these groups' show allreduce hierarchical 4 --groups 1,1,1,1
expect 2 'does not support 8 ranks without --dims or --groups' verify allreduce hierarchical 8
expect 2 'does not support 6 ranks in these dimensions' show allgather doubling 6 --dims 3,2
expect 2 'Cannot write' show allreduce ring 4 --svg /nonexistent/x.svg
expect 2 'excludes' show allreduce ring 4 --json --text
expect 2 'required' show
expect 2 'required'
for ranks in 1 64; do # a little, and more than a buffer
  if $tool show allreduce ring $ranks 2> "$files/full" > /dev/full || [ $? -ne 2 ] ||
    ! grep -q 'No space left' "$files/full"; then
    echo "no error for an output that cannot be written:"
    cat "$files/full"
    failed=1
  fi
done
exit $failed
