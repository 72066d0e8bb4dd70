/* One rank: its sum is its input. */
#include <stdio.h>
#include <whorl/whorl.h>

static void add_one(void* data, whorlResult_t status) {
  if (status == whorlSuccess) *(float*)data += 1;
}

int main(void) {
  int version = 0;
  whorlComm_t comm = NULL;
  whorlStream_t stream = NULL, other = NULL;
  whorlEvent_t event = NULL;
  whorlMemoryKind_t kind = whorlMemoryDevice;
  int device = 0;
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  whorlResult_t result = whorlGetVersion(&version);
  if (result == whorlSuccess) result = whorlCommInitAll(&comm, 1, NULL);
  if (result == whorlSuccess) {
    result = whorlAllReduce(in, out, 3, whorlFloat32, whorlSum, comm, NULL);
  }
  /* The same in a stream, where a callback then adds 1 to the first element; then, in order by an
     event, another callback in another stream adds 1 to the second. */
  if (result == whorlSuccess) result = whorlStreamCreate(&stream);
  if (result == whorlSuccess) result = whorlStreamCreate(&other);
  if (result == whorlSuccess) result = whorlEventCreate(&event);
  if (result == whorlSuccess) {
    result = whorlAllReduce(in, out, 3, whorlFloat32, whorlSum, comm, stream);
  }
  if (result == whorlSuccess) result = whorlStreamAddCallback(stream, add_one, out);
  if (result == whorlSuccess) result = whorlEventRecord(event, stream);
  if (result == whorlSuccess) result = whorlStreamWaitEvent(other, event);
  if (result == whorlSuccess) result = whorlStreamAddCallback(other, add_one, out + 1);
  if (result == whorlSuccess) result = whorlEventRecord(event, other);
  if (result == whorlSuccess) result = whorlEventWait(event, -1);
  if (result == whorlSuccess) result = whorlEventQuery(event);
  if (result == whorlSuccess) result = whorlPointerKind(out, &kind, &device);
  if (result != whorlSuccess) {
    fprintf(stderr, "%s: %s\n", whorlGetErrorString(result), whorlGetLastError(NULL));
    return 1;
  }
  whorlEventDestroy(event);
  whorlStreamDestroy(other);
  whorlStreamDestroy(stream);
  whorlCommDestroy(comm);
  printf("version %d sum %g\n", version, (double)(out[0] + out[1] + out[2]));
  if (kind != whorlMemoryHost || device != -1) return 1;
  return version == WHORL_VERSION_CODE && out[0] == 2 && out[1] == 3 && out[2] == 3 ? 0 : 1;
}
