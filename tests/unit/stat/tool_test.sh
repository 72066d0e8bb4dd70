#!/bin/sh
# Tests whorl-stat as a user calls it: exit status and output. $1 is the program.
tool=$1
failed=0

. "$(dirname "$0")/../../support/expect.sh"

expect 0 'Usage' --help
expect 2 "there is no communicator in process $$; its children may have some" $$
expect 2 "there is no communicator in process $$, $$" $$ $$
expect 2 'process 4194304 does not exist' 4194304
expect 2 'x not in range' x
expect 2 '0 not in range' 0
expect 2 'excludes' --why --skew
expect 2 'watch' --watch 0
exit $failed
