#pragma once

#include <cuda.h>

#include <memory>

#include "base/status.h"

namespace whorl::gpu {

/// Returns whether a result of the driver means that a context is lost: a kernel or a copy in it
/// has made an illegal access, or the context has been destroyed. From then on the driver refuses
/// all calls there, and carries out nothing that is queued.
bool is_fault(CUresult result) noexcept;

/// Returns kCudaError if the current context of the calling thread is lost: a sentence with the
/// driver's words. Does not wait.
Status current_fault();

/// Check of whether a context is lost, by a query of an event that is never recorded: the query
/// fails in a lost context. A driver that holds one thread's call up until a stream goes on may
/// hold up the query as well, so a thread of its own makes the queries of all probes, which no
/// other thread ever waits for. Any thread, also while a stream of the program is being captured.
class FaultProbe {
 public:
  FaultProbe() = default;
  ~FaultProbe(); ///< makes no call of the driver
  FaultProbe(const FaultProbe&) = delete;
  FaultProbe& operator=(const FaultProbe&) = delete;

  /// Makes the event in the current context. Called once.
  Status prepare();
  /// Returns kCudaError as current_fault() does, if that is known, and asks for another query: the
  /// next call has its answer if the driver answers in between. Makes no call of the driver. Before
  /// prepare(): success.
  Status look() const;

 private:
  struct Query;
  class Thread;
  std::shared_ptr<Query> query_;
};

} // namespace whorl::gpu
