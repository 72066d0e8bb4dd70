/* One thread for each rank, which makes its communicator without waiting, and asks when it is
 * ready. */
#include <pthread.h>
#include <sched.h>

#include "check.h"

enum { kRanks = 2 };
static ncclUniqueId id;

static void wait_for(ncclComm_t comm) {
  ncclResult_t state;
  do {
    NCCLCHECK(ncclCommGetAsyncError(comm, &state));
    sched_yield();
  } while (state == ncclInProgress);
  NCCLCHECK(state);
}

static void* run(void* argument) {
  const int rank = (int)(long)argument;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = 4;
  config.netName = "Socket";
  config.commName = "nonblocking";
  ncclComm_t comm = NCCL_COMM_NULL;
  NCCLCHECK(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config));
  wait_for(comm);

  /* Each rank scales its part before they are added. */
  double half = 0.5, mine = 10 * (rank + 1), sum = 0;
  ncclRedOp_t scaled;
  NCCLCHECK(ncclRedOpCreatePreMulSum(&scaled, &half, ncclDouble, ncclScalarHostImmediate, comm));
  NCCLCHECK(ncclAllReduce(&mine, &sum, 1, ncclDouble, scaled, comm, NULL));
  NCCLCHECK(ncclRedOpDestroy(scaled, comm));
  printf("rank %d: %g\n", rank, sum);

  const ncclResult_t wrong = ncclBcast(&sum, 1, ncclDouble, 7, comm, NULL); /* there is no rank 7 */
  printf("rank %d: %s\n", rank, wrong == ncclInvalidArgument ? "refused" : "accepted");
  NCCLCHECK(ncclCommFinalize(comm));
  wait_for(comm);
  NCCLCHECK(ncclCommDestroy(comm));
  return NULL;
}

int main(void) {
  pthread_t threads[kRanks];
  NCCLCHECK(ncclGetUniqueId(&id));
  for (long r = 0; r < kRanks; ++r) pthread_create(&threads[r], NULL, run, (void*)r);
  for (int r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);
  return 0;
}
