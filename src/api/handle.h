#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "comm/communicator.h"

/// Object that a whorlComm_t points to: a communicator, which may still be in creation.
struct whorlComm {
  static constexpr std::uint64_t kAlive = 0x776f726c636f6d6d;
  static constexpr std::uint64_t kDead = 0xdeadc0edeadc0ede;

  whorlComm();
  ~whorlComm();
  whorlComm(const whorlComm&) = delete;
  whorlComm& operator=(const whorlComm&) = delete;
  /// Allocates a handle. Freed memory is not reused before many other handles have been freed, so
  /// that an old handle is not taken for a new one.
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  /// The value kAlive; kDead as soon as a thread begins to end the handle, so that no other does.
  std::atomic<std::uint64_t> magic{kAlive};
  /// Number of calls inside the communicator, see Inside.
  std::atomic<int> inside{0};

  /// The outcome of the creation; kInProgress while it runs. Written once, when `communicator` is
  /// in its final state: leave_all() finds handles that a blocking creation has not returned yet.
  std::atomic<whorl::Code> created{whorl::Code::kInProgress};
  std::thread creator;
  /// The communicator's error; if set during the creation, it ends the creation.
  std::shared_ptr<whorl::CommError> comm_error = std::make_shared<whorl::CommError>();
  std::unique_ptr<whorl::Communicator> communicator; ///< null until created
  std::atomic<bool> finalized{false}; ///< whether only the end of the handle is allowed
  /// Whether leave_all() lets the communicator leave, or has done so.
  std::atomic<bool> leaving{false};

  /// Whether the communicator exists and may be used.
  bool usable() const noexcept {
    return magic.load(std::memory_order_seq_cst) == kAlive &&
           created.load(std::memory_order_acquire) == whorl::Code::kOk &&
           !finalized.load(std::memory_order_seq_cst); // see leave_all()
  }
  /// Notes the error of a creation, or of a call in which the communicator has ended; no other,
  /// because a communicator that works on has later errors, with reasons of their own.
  void set_error(const whorl::Status& status);
  whorl::Status error() const; ///< returns the last of these errors, for whorlGetLastError()

  /// Notes that a call inside this communicator makes another one, whose creation ends when `error`
  /// is set.
  void begin_making(std::shared_ptr<whorl::CommError> error);
  /// Notes that the call makes none any more. Returns the error with which stop_making() has ended
  /// the creation; kOk: it has not.
  whorl::Status end_making();
  /// Ends the creation under way, and all later ones.
  void stop_making(const whorl::Status& why);

 private:
  mutable std::mutex mutex_;
  whorl::Status error_;
  std::shared_ptr<whorl::CommError> making_; ///< error of the creation under way; null: none is
  whorl::Status stopped_;                    ///< error with which creations end; kOk: they do not
};

namespace whorl {

/// Whether a whorlComm exists at `handle`, which may be any address: the address is looked up, not
/// read. Takes a nanosecond or two; may be called by any thread.
bool exists(const whorlComm* handle) noexcept;

/// Makes the communicators of this process leave, for the end of the program, as far as no thread
/// is inside them: other ranks can then tell this end from a death. These handles are then
/// finalized; they may still be destroyed or aborted, by destructors of static objects for
/// instance.
void leave_all() noexcept;

/// Scope of a call inside a communicator; whorlCommAbort() waits for the end of the scope. A call
/// enters the scope before it reads the handle's `magic`: either the thread that ends the handle
/// waits for this call, or this call sees that the handle is dead.
class Inside {
 public:
  explicit Inside(whorlComm& handle) noexcept : handle_(&handle) { handle_->inside.fetch_add(1); }
  /// Enters the handle at any address, or nothing where no handle exists.
  explicit Inside(whorlComm* handle) noexcept : handle_(exists(handle) ? handle : nullptr) {
    if (handle_ != nullptr) handle_->inside.fetch_add(1);
  }
  ~Inside() {
    if (handle_ != nullptr) handle_->inside.fetch_sub(1);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  /// Whether the scope has a handle.
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  whorlComm* const handle_;
};

} // namespace whorl
