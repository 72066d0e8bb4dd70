#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/torch/src/device_run.h"
#include "bindings/torch/src/turns.h"

namespace whorl_torch {

class Executor;

/// A Work whose future may have callbacks that communicate.
class OrderedWork : public c10d::Work {
 public:
  using c10d::Work::Work;
  /// In whose turn its callbacks run.
  virtual Origin origin() const = 0;
};

/// One operation: what c10d hands to the user. The tensors live in the body, which is released when
/// the operation is complete, so a Work may be dropped at any time. Its future is the one place
/// that knows whether it is complete: what waits for either sees the same.
///
/// With tensors of a device the operation is executed, and the future is complete, when all is
/// queued on the device; the future has its event there. Then wait() makes the caller's current
/// stream wait, and isCompleted() asks the device.
class WhorlWork final : public OrderedWork {
 public:
  struct Description {
    c10d::OpType type;
    const char* title; ///< in profiles, "whorl:all_reduce"
    int rank;
    std::uint64_t sequence;
    std::vector<at::Tensor> outputs;               ///< value of the future
    std::optional<std::vector<at::Tensor>> inputs; ///< shapes in profiles
    std::shared_ptr<DeviceRun> device;             ///< null: the tensors are on the CPU
  };
  WhorlWork(Description description, std::function<void()> body);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  /// Carries the operation out if it is next and nobody has begun it, else waits. With a timeout it
  /// only waits: an operation that was begun here could not be left; and it waits for the device,
  /// too.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  /// Ends the process group that the operation belongs to.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

  /// For the executor: does what is to be done; an error is returned, not thrown.
  std::exception_ptr run() noexcept;
  /// For the executor: runs callbacks, so no lock may be held.
  void complete(std::exception_ptr error);
  /// Who carries it out; before the work is queued. Null: threads of its own.
  void set_executor(std::weak_ptr<Executor> executor) { executor_ = std::move(executor); }
  /// Its place in the order of callbacks; before the work is queued.
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  Origin origin() const override { return origin_; }
  /// wait() calls `overdue` when the operation is not complete after `patience`; it then ends the
  /// operation, unless that is about to end by itself. Unset: whoever carries it out keeps the
  /// time.
  void set_patience(std::chrono::milliseconds patience, std::function<void()> overdue) {
    patience_ = patience;
    overdue_ = std::move(overdue);
  }
  void set_abort(std::function<void()> abort) { abort_ = std::move(abort); }
  void set_source(int rank) { source_.store(rank, std::memory_order_relaxed); }
  /// Set and read under the lock of the executor.
  bool executed = false;

 private:
  std::function<void()> body_;
  std::function<void()> abort_;
  Origin origin_;
  std::chrono::milliseconds patience_{0};
  std::function<void()> overdue_;
  std::vector<at::Tensor> outputs_;
  /// Until the operation is complete or overdue.
  void wait_with_patience();
  /// Until the operation is complete; throws if it is not by the end of the timeout.
  void wait_at_most(std::chrono::milliseconds timeout);
  std::weak_ptr<Executor> executor_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::uint64_t sequence_;
  const std::shared_ptr<DeviceRun> device_;
  std::atomic<int> source_{-1}; // published by completion, which synchronizes
};

using WorkPtr = c10::intrusive_ptr<WhorlWork>;

/// What startCoalescing … endCoalescing yields: complete when all its parts are.
class CoalescedWork final : public OrderedWork {
 public:
  CoalescedWork(int rank, std::vector<WorkPtr> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  /// That of the last part.
  Origin origin() const override { return parts_.empty() ? Origin() : parts_.back()->origin(); }

 private:
  std::vector<WorkPtr> parts_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace whorl_torch
