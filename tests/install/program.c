/* One rank: its sum is its input. */
#include <stdio.h>
#include <whorl/whorl.h>

int main(void) {
  int version = 0;
  whorlComm_t comm = NULL;
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  whorlResult_t result = whorlGetVersion(&version);
  if (result == whorlSuccess) result = whorlCommInitAll(&comm, 1, NULL);
  if (result == whorlSuccess) {
    result = whorlAllReduce(in, out, 3, whorlFloat32, whorlSum, comm, NULL);
  }
  if (result != whorlSuccess) {
    fprintf(stderr, "%s: %s\n", whorlGetErrorString(result), whorlGetLastError(NULL));
    return 1;
  }
  whorlCommDestroy(comm);
  printf("version %d sum %g\n", version, (double)(out[0] + out[1] + out[2]));
  return version == WHORL_VERSION_CODE && out[0] == 1 && out[1] == 2 && out[2] == 3 ? 0 : 1;
}
