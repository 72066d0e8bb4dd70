/* One thread drives all ranks, in groups. */
#include "check.h"

enum { kRanks = 4, kCount = 16 };

int main(void) {
  ncclComm_t comms[kRanks];
  int devices[kRanks] = {0, 1, 2, 3};
  static int send[kRanks][kCount], recv[kRanks][kCount];
  NCCLCHECK(ncclCommInitAll(comms, kRanks, devices));
  for (int r = 0; r < kRanks; ++r) {
    for (int i = 0; i < kCount; ++i) send[r][i] = 100 * r + i;
  }

  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    NCCLCHECK(ncclAllReduce(send[r], recv[r], kCount, ncclInt, ncclMax, comms[r], NULL));
  }
  NCCLCHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) printf("rank %d: max %d\n", r, recv[r][kCount - 1]);

  /* A ring of sends and receives. */
  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    NCCLCHECK(ncclSend(send[r], kCount, ncclInt32, (r + 1) % kRanks, comms[r], NULL));
    NCCLCHECK(ncclRecv(recv[r], kCount, ncclInt32, (r + kRanks - 1) % kRanks, comms[r], NULL));
  }
  NCCLCHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) printf("rank %d: from its neighbour %d\n", r, recv[r][0]);

  /* The same again, only to ask how long it would take: nothing is sent. */
  for (int r = 0; r < kRanks; ++r) recv[r][0] = -1;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    NCCLCHECK(ncclAllReduce(send[r], recv[r], kCount, ncclInt, ncclMax, comms[r], NULL));
  }
  NCCLCHECK(ncclGroupSimulateEnd(&info));
  printf("after a simulation %d\n", recv[0][0]);

  /* Halves, by split. */
  ncclComm_t halves[kRanks];
  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) NCCLCHECK(ncclCommSplit(comms[r], r % 2, r, &halves[r], NULL));
  NCCLCHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) {
    int rank, count;
    NCCLCHECK(ncclCommUserRank(halves[r], &rank));
    NCCLCHECK(ncclCommCount(halves[r], &count));
    printf("rank %d is %d of %d\n", r, rank, count);
    NCCLCHECK(ncclCommDestroy(halves[r]));
  }
  for (int r = 0; r < kRanks; ++r) NCCLCHECK(ncclCommDestroy(comms[r]));

  int version;
  NCCLCHECK(ncclGetVersion(&version));
  printf("version %d, %s\n", version,
         version == NCCL_VERSION_CODE ? "that of the header" : "another");
  return 0;
}
