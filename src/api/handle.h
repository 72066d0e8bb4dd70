#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "comm/communicator.h"

/// What a whorlComm_t points to: a communicator, or one that is being created in the background.
struct whorlComm {
  static constexpr std::uint64_t kAlive = 0x776f726c636f6d6d;
  static constexpr std::uint64_t kDead = 0xdeadc0edeadc0ede;

  whorlComm();
  ~whorlComm();
  whorlComm(const whorlComm&) = delete;
  whorlComm& operator=(const whorlComm&) = delete;
  /// Freed memory is not given out again before many others have been freed, so that an old handle
  /// is not taken for a new one.
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  /// kDead from the beginning of the end: only one thread ends a handle.
  std::atomic<std::uint64_t> magic{kAlive};
  /// Calls of other threads that are inside; abort waits for them to leave.
  std::atomic<int> inside{0};

  /// kInProgress while a nonblocking creation runs; then its outcome.
  std::atomic<whorl::Code> created{whorl::Code::kOk};
  std::thread creator;
  /// The communicator's; raised while it is being created, it ends the creation.
  std::shared_ptr<whorl::Verdict> verdict = std::make_shared<whorl::Verdict>();
  std::unique_ptr<whorl::Communicator> communicator; ///< null until created
  std::atomic<bool> finalized{false};

  /// Whether the communicator exists and may be used.
  bool usable() const noexcept {
    return magic.load(std::memory_order_seq_cst) == kAlive &&
           created.load(std::memory_order_acquire) == whorl::Code::kOk &&
           !finalized.load(std::memory_order_relaxed);
  }
  void set_error(const whorl::Status& status);
  whorl::Status error() const; ///< the last error, for whorlGetLastError()

 private:
  mutable std::mutex mutex_;
  whorl::Status error_;
};

namespace whorl {

/// Whether a whorlComm exists at `handle`, which may be any address: it is looked up, not read. A
/// nanosecond or two; any thread.
bool exists(const whorlComm* handle) noexcept;

/// A call that is inside a communicator: whorlCommAbort() waits for it to leave. Made before the
/// handle's `magic` is read: either the thread that ends the handle waits for this call, or this
/// call sees that the handle is dead.
class Inside {
 public:
  explicit Inside(whorlComm& handle) noexcept : handle_(&handle) { handle_->inside.fetch_add(1); }
  /// Of any address; inside nothing where there is no handle.
  explicit Inside(whorlComm* handle) noexcept : handle_(exists(handle) ? handle : nullptr) {
    if (handle_ != nullptr) handle_->inside.fetch_add(1);
  }
  ~Inside() {
    if (handle_ != nullptr) handle_->inside.fetch_sub(1);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  /// Whether there is a handle.
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  whorlComm* const handle_;
};

} // namespace whorl
