// Substitute for the CUDA driver with the functions that libnccl.so.2 calls. One range of addresses
// is device memory.
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

// Like the driver, succeeds for addresses that it does not know, with zeros.
int cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                           unsigned long long pointer) {
  enum { kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9, kDevice = 2 };
  const int known = pointer >= device_begin && pointer < device_end;
  if (pointer_error != 0) return pointer_error;
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == kMemoryType) *(unsigned*)values[i] = known ? kDevice : 0;
    if (attributes[i] == kIsManaged) *(unsigned*)values[i] = known ? managed : 0;
    if (attributes[i] == kDeviceOrdinal) *(int*)values[i] = known ? 0 : -2;
  }
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
