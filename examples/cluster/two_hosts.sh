#!/bin/sh
# Runs PROGRAM on two hosts without a launcher: rank 0 here, rank 1 on OTHER, which is reached by ssh and has the
# program at the same path.
#
#   usage: two_hosts.sh ADDRESS OTHER PROGRAM [ARGS]
#
# ADDRESS is that of this host, as OTHER reaches it; an address of IPv6 has brackets. The variable REMOTE takes the place of ssh.
set -eu
address=$1 other=$2
shift 2
remote=${REMOTE:-ssh}

# The secret proves that a rank belongs to the job. It goes to the other host by standard input, because other users
# there can read the arguments of processes.
secret=$(mktemp)
trap 'rm -f "$secret"' EXIT
trap 'exit 130' INT TERM HUP
head -c 32 /dev/urandom | base64 >"$secret" # mktemp has made the file for this user alone

quoted='' # the program and its arguments for the other host's shell
for word in "$@"; do
  quoted="$quoted '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"
done

export WHORL_NRANKS=2 WHORL_ADDRESS="$address:29400"
$remote "$other" "umask 077; secret=\$(mktemp); trap 'rm -f \$secret' EXIT; trap 'exit 130' INT TERM HUP; cat >\$secret
  WHORL_RANK=1 WHORL_NRANKS=2 WHORL_ADDRESS='$WHORL_ADDRESS' WHORL_SECRET_FILE=\$secret $quoted" <"$secret" &
WHORL_RANK=0 WHORL_SECRET_FILE="$secret" "$@"
wait $!
