#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:10:00
# Runs PROGRAM on all tasks of a Slurm job: `sbatch slurm.sh PROGRAM [ARGS]`.
set -eu
if srun --mpi=list 2>&1 | grep -qw pmix; then
  exec srun --mpi=pmix "$@" # Slurm carries the secret of the job itself
fi
# Without PMIx the ranks meet at the first host, and prove by a file that they belong to the job. The home folder is
# one that all nodes share.
WHORL_SECRET_FILE=$(mktemp "$HOME/.whorl-secret-$SLURM_JOB_ID-XXXXXX")
export WHORL_SECRET_FILE
trap 'rm -f "$WHORL_SECRET_FILE"' EXIT # not where Slurm kills the script at the end of its time
head -c 32 /dev/urandom | base64 >"$WHORL_SECRET_FILE"
srun --mpi=none "$@"
