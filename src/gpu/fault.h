#pragma once

#include <cuda.h>

#include "base/status.h"

namespace whorl::gpu {

/// Whether a result of the driver means that a context is lost: a kernel or a copy in it has done
/// something that it must not, or the context has been destroyed. From then on the driver refuses
/// everything there, and nothing that is queued is done.
bool is_fault(CUresult result) noexcept;

/// kCudaError if the current context of the calling thread is lost: a sentence with the driver's
/// words. Does not wait.
Status current_fault();

/// Tells whether a context is lost, by asking for an event that nobody records: that is an error in
/// a lost context, and never waits. look() by any thread, also while a stream of the program is
/// being captured.
class FaultProbe {
 public:
  FaultProbe() = default;
  ~FaultProbe();
  FaultProbe(const FaultProbe&) = delete;
  FaultProbe& operator=(const FaultProbe&) = delete;

  /// For the current context. Once.
  Status prepare();
  /// kCudaError as of current_fault(). Before prepare(): success.
  Status look() const;

 private:
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
};

} // namespace whorl::gpu
