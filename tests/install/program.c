/* One rank: its sum is its input. */
#include <stdio.h>
#include <whorl/whorl.h>

static void add_one(void* data, whorlResult_t status) {
  if (status == whorlSuccess) *(float*)data += 1;
}

int main(void) {
  int version = 0;
  whorlComm_t comm = NULL;
  whorlStream_t stream = NULL;
  whorlEvent_t event = NULL;
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  whorlResult_t result = whorlGetVersion(&version);
  if (result == whorlSuccess) result = whorlCommInitAll(&comm, 1, NULL);
  if (result == whorlSuccess) {
    result = whorlAllReduce(in, out, 3, whorlFloat32, whorlSum, comm, NULL);
  }
  /* The same in a stream, where a callback then adds 1 to the first element. */
  if (result == whorlSuccess) result = whorlStreamCreate(&stream);
  if (result == whorlSuccess) result = whorlEventCreate(&event);
  if (result == whorlSuccess) {
    result = whorlAllReduce(in, out, 3, whorlFloat32, whorlSum, comm, stream);
  }
  if (result == whorlSuccess) result = whorlStreamAddCallback(stream, add_one, out);
  if (result == whorlSuccess) result = whorlEventRecord(event, stream);
  if (result == whorlSuccess) result = whorlEventWait(event, -1);
  if (result != whorlSuccess) {
    fprintf(stderr, "%s: %s\n", whorlGetErrorString(result), whorlGetLastError(NULL));
    return 1;
  }
  whorlEventDestroy(event);
  whorlStreamDestroy(stream);
  whorlCommDestroy(comm);
  printf("version %d sum %g\n", version, (double)(out[0] + out[1] + out[2]));
  return version == WHORL_VERSION_CODE && out[0] == 2 && out[1] == 2 && out[2] == 3 ? 0 : 1;
}
