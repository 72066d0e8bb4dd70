/* One process for each rank. Rank 0 makes the id, and the others read it from a pipe. Then a rank
 * more joins. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kRanks = 3, kCount = 1000 };

static void work(ncclComm_t comm, int rank, int ranks) {
  float *send, *recv;
  NCCLCHECK(ncclMemAlloc((void**)&send, kCount * sizeof(float)));
  NCCLCHECK(ncclMemAlloc((void**)&recv, kCount * sizeof(float)));
  ncclWindow_t window;
  NCCLCHECK(
      ncclCommWindowRegister(comm, recv, kCount * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC));
  for (int i = 0; i < kCount; ++i) send[i] = (float)(i + rank);
  NCCLCHECK(ncclAllReduce(send, recv, kCount, ncclFloat, ncclSum, comm, NULL));
  printf("rank %d of %d: sum %g", rank, ranks, recv[kCount - 1]);
  NCCLCHECK(ncclAllReduce(send, recv, kCount, ncclFloat, AVERAGE, comm, NULL));
  printf(", average %g\n", recv[kCount - 1]);
  void* address;
  NCCLCHECK(ncclWinGetUserPtr(comm, window, &address));
  if (address != recv) exit(1);
  NCCLCHECK(ncclCommWindowDeregister(comm, window));
  NCCLCHECK(ncclMemFree(send));
  NCCLCHECK(ncclMemFree(recv));
}

/* Passes an id through the pipes of all ranks; each gets a copy. */
static void give(const ncclUniqueId* id, int pipes[][2], int count) {
  for (int i = 0; i < count; ++i) {
    if (write(pipes[i][1], id, sizeof *id) != sizeof *id) exit(1);
  }
}
static ncclUniqueId take(int pipe[2]) {
  ncclUniqueId id;
  if (read(pipe[0], &id, sizeof id) != sizeof id) exit(1);
  return id;
}

static int run_rank(int rank, int pipes[][2]) {
  ncclComm_t comm = NCCL_COMM_NULL, larger = NCCL_COMM_NULL;
  ncclUniqueId id;
  if (rank < kRanks) {
    if (rank == 0) {
      NCCLCHECK(ncclGetUniqueId(&id));
      give(&id, pipes + 1, kRanks - 1);
    } else {
      id = take(pipes[rank]);
    }
    NCCLCHECK(ncclCommInitRankScalable(&comm, kRanks, rank, 1, &id, NULL));
    work(comm, rank, kRanks);
    if (rank == 0) {
      NCCLCHECK(ncclCommGetUniqueId(comm, &id));
      give(&id, pipes + kRanks, 1);
    }
    NCCLCHECK(ncclCommGrow(comm, kRanks + 1, rank == 0 ? &id : NULL, -1, &larger, NULL));
  } else {
    id = take(pipes[rank]);
    NCCLCHECK(ncclCommGrow(NCCL_COMM_NULL, kRanks + 1, &id, rank, &larger, NULL));
  }
  work(larger, rank, kRanks + 1);
  NCCLCHECK(ncclCommFinalize(larger));
  NCCLCHECK(ncclCommDestroy(larger));
  if (comm != NCCL_COMM_NULL) NCCLCHECK(ncclCommDestroy(comm));
  fflush(stdout);
  return 0;
}

int main(void) {
  int pipes[kRanks + 1][2];
  for (int i = 0; i <= kRanks; ++i) {
    if (pipe(pipes[i]) != 0) return 1;
  }
  for (int rank = 0; rank <= kRanks; ++rank) {
    if (fork() == 0) _exit(run_rank(rank, pipes));
  }
  int failed = 0, status;
  while (wait(&status) > 0) failed |= status;
  return failed != 0;
}
