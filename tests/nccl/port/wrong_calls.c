/* Calls with wrong arguments or in a wrong order, by one thread that drives all ranks: their codes
 * are NCCL's, and the ranks work afterwards. */
#include "check.h"

enum { kRanks = 2, kCount = 4 };
static ncclComm_t comms[kRanks];
static int in[kRanks][kCount], out[kRanks][kCount];

static int calls;

#define EXPECT(code, call) expect(code, call, #call)
static void expect(ncclResult_t wanted, ncclResult_t got, const char* call) {
  ++calls;
  if (got == wanted) return;
  fprintf(stderr, "%s: %s, not %s: %s\n", call, ncclGetErrorString(got), ncclGetErrorString(wanted),
          ncclGetLastError(NULL));
  exit(1);
}

/* Puts transfers of rank 0 with itself into a group; a count of 0 leaves that half out. */
static ncclResult_t with_itself(int sent, int received) {
  NCCLCHECK(ncclGroupStart());
  if (sent > 0) NCCLCHECK(ncclSend(in[0], sent, ncclInt, 0, comms[0], NULL));
  if (received > 0) NCCLCHECK(ncclRecv(out[0], received, ncclInt, 0, comms[0], NULL));
  return ncclGroupEnd();
}

int main(void) {
  NCCLCHECK(ncclCommInitAll(comms, kRanks, NULL));
  EXPECT(ncclSuccess, with_itself(kCount, kCount));
  EXPECT(ncclInvalidUsage, with_itself(kCount, 0));
  EXPECT(ncclInvalidUsage, with_itself(0, kCount));
  EXPECT(ncclInvalidUsage, with_itself(kCount, 1));
  EXPECT(ncclInvalidUsage, ncclSend(in[0], kCount, ncclInt, 0, comms[0], NULL));
  EXPECT(ncclInvalidArgument, ncclSend(in[0], kCount, ncclInt, -1, comms[0], NULL));
  EXPECT(ncclInvalidArgument, ncclRecv(NULL, kCount, ncclInt, 1, comms[0], NULL));
  EXPECT(ncclInvalidArgument,
         ncclAllReduce(in[0], out[0], kCount, ncclInt, ncclNumOps, comms[0], NULL));
  EXPECT(ncclInvalidArgument, ncclGather(in[0], out[0], (size_t)-1, ncclInt, 0, comms[0], NULL));
  EXPECT(ncclInvalidUsage, ncclGroupEnd());
  EXPECT(ncclSuccess, ncclCommFinalize(NULL));
  EXPECT(ncclSuccess, ncclCommRevoke(NULL, NCCL_REVOKE_DEFAULT));
  EXPECT(ncclSuccess, ncclCommDestroy(NULL));
  EXPECT(ncclSuccess, ncclCommAbort(NULL));

  /* A wrong color stops the split on all ranks; the sentence has names of this API. */
  ncclComm_t parts[kRanks];
  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) NCCLCHECK(ncclCommSplit(comms[r], -9, r, &parts[r], NULL));
  EXPECT(ncclInvalidArgument, ncclGroupEnd());
  printf("%s\n", strstr(ncclGetLastError(NULL), "NCCL_SPLIT_NOCOLOR") != NULL ? "known names"
                                                                              : "other names");

  NCCLCHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    in[r][0] = r + 1;
    NCCLCHECK(ncclAllReduce(in[r], out[r], kCount, ncclInt, ncclSum, comms[r], NULL));
  }
  NCCLCHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) printf("rank %d: sum %d\n", r, out[r][0]);
  for (int r = 0; r < kRanks; ++r) NCCLCHECK(ncclCommDestroy(comms[r]));
  EXPECT(ncclInvalidArgument, ncclCommDestroy(comms[0]));
  printf("%d calls\n", calls);
  return 0;
}
