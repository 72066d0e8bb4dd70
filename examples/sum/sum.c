#include <stdio.h>
#include <whorl/whorl.h>

int main(void) {
  whorlComm_t comm;
  if (whorlCommInitEnv(&comm, NULL) != whorlSuccess) { // rank and size from the launcher
    fprintf(stderr, "%s\n", whorlGetLastError(NULL));
    return 1;
  }
  int rank;
  whorlCommUserRank(comm, &rank);
  float mine[2] = {1, rank}, sum[2];
  if (whorlAllReduce(mine, sum, 2, whorlFloat32, whorlSum, comm, NULL) != whorlSuccess) {
    fprintf(stderr, "%s\n", whorlGetLastError(comm));
    return 1;
  }
  printf("rank %d: %g ranks, their numbers add up to %g\n", rank, sum[0], sum[1]);
  whorlCommDestroy(comm);
  return 0;
}
