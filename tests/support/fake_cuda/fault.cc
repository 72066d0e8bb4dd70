// Errors that tests cause on the pretended device, see fault.h.
#include "tests/support/fake_cuda/fault.h"

#include <cstdlib>
#include <string_view>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/graphs.h"

#pragma GCC visibility push(default)

namespace fake_cuda {
namespace {

std::atomic<bool> lost_{false};
std::atomic<long> ipc_refusals{0}, module_refusals{0}, launches{0};
std::atomic<int> waiting{0};
std::atomic<long> waiting_calls{0};
thread_local bool calls_are_forbidden = false;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Takes one off a number of refusals and returns whether there was one left.
bool one_of(std::atomic<long>& refusals) {
  long left = refusals;
  while (left > 0 && !refusals.compare_exchange_weak(left, left - 1)) continue;
  return left > 0;
}

/// Returns whether calls wait for streams.
bool calls_wait() {
  static const char* const text = std::getenv("FAKE_CUDA_IMPLICIT");
  return current_context() != nullptr && (text == nullptr || std::string_view(text) != "0");
}

} // namespace

bool lost() {
  if (calls_are_forbidden) std::abort();
  return lost_;
}
void lose() { lost_ = true; }
void forbid_calls() { calls_are_forbidden = true; }

CUresult refused(CUstream stream) {
  if (lost()) return kFault;
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) {
    return current_context() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  return stream_of(stream).exists() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool ipc_is_refused() { return one_of(ipc_refusals); }
bool modules_are_refused() { return one_of(module_refusals); }

void count_call_that_may_wait() { ++waiting_calls; }

void synchronize_implicitly() {
  count_call_that_may_wait();
  if (!calls_wait()) return;
  ++waiting;
  synchronize_all();
  --waiting;
}

void synchronize_implicitly(Stream& stream) {
  if (!calls_wait() || capture_of(stream) != 0) return;
  ++waiting;
  stream.synchronize();
  --waiting;
}

void count_launch() { ++launches; }

bool unsafe_call_is_refused() {
  return capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && invalidate_global_captures();
}

} // namespace fake_cuda

extern "C" {

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, fake_cuda::capture_mode);
  return CUDA_SUCCESS;
}

void fake_cuda_fault(CUstream stream) { fake_cuda::stream_of(stream).push(fake_cuda::lose); }

void fake_cuda_refuse_ipc(long n) { fake_cuda::ipc_refusals = n; }
void fake_cuda_refuse_modules(long n) { fake_cuda::module_refusals = n; }
long fake_cuda_launches() { return fake_cuda::launches; }
int fake_cuda_waiting() { return fake_cuda::waiting; }
long fake_cuda_calls_that_may_wait() { return fake_cuda::waiting_calls; }

} // extern "C"
