// Stands for the CUDA driver where there is none: what libnccl.so.2 asks it. One range of addresses
// is the device's.
#include <stddef.h>
#include <stdint.h>

static uintptr_t device_begin, device_end;
static unsigned managed;
static int has_context, synchronize_result, synchronized, pointer_error;

void fakeSetDeviceMemory(void* begin, size_t bytes, int is_managed) {
  device_begin = (uintptr_t)begin;
  device_end = device_begin + bytes;
  managed = (unsigned)is_managed;
}
void fakeSetStreams(int context, int result) {
  has_context = context;
  synchronize_result = result;
}
void fakeSetPointerError(int code) { pointer_error = code; }
int fakeSynchronized(void) { return synchronized; }

int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  enum { kMemoryType = 2, kIsManaged = 8, kDevice = 2, kInvalidValue = 1 };
  if (pointer_error != 0) return pointer_error;
  if (pointer < device_begin || pointer >= device_end) return kInvalidValue;
  if (attribute == kMemoryType) *(unsigned*)data = kDevice;
  if (attribute == kIsManaged) *(unsigned*)data = managed;
  return 0;
}

int cuStreamSynchronize(void* stream) {
  (void)stream;
  ++synchronized;
  return synchronize_result;
}

int cuCtxGetCurrent(void** context) {
  *context = has_context ? &has_context : NULL;
  return 0;
}
