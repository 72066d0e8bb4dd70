#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "transports/ucx/library.h"

namespace whorl {

/// Context and worker of UCX for one communicator. UCX is called by one thread at a time, under
/// mutex(); callbacks run inside progress(), in whichever thread calls it.
class UcxWorker {
 public:
  /// Loads UCX and makes a worker. The error has a remedy.
  static Result<std::unique_ptr<UcxWorker>> make();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  const UcxApi& api() const noexcept { return *api_; }
  ucp_worker_h handle() const noexcept { return worker_; }
  std::mutex& mutex() noexcept { return mutex_; }
  std::span<const std::byte> address() const noexcept { return address_; }
  /// Returns the descriptor that becomes readable when there is something to do, once arm() is
  /// true.
  int descriptor() const noexcept { return descriptor_; }

  /// Sets the function for active messages of kind `id`.
  Status set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);
  /// Moves messages. Returns the number of events.
  unsigned progress() noexcept {
    const std::lock_guard lock(mutex_);
    return api_->worker_progress(worker_);
  }
  /// Asks for a sign at descriptor(). Returns false if there is something to do now.
  bool arm() noexcept {
    const std::lock_guard lock(mutex_);
    return api_->worker_arm(worker_) == UCS_OK;
  }

 private:
  explicit UcxWorker(const UcxApi* api) noexcept : api_(api) {}
  Status create();
  Status failed(const char* what, ucs_status_t status) const;

  const UcxApi* const api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  int descriptor_ = -1; ///< owned by the worker
  std::mutex mutex_;
};

} // namespace whorl
