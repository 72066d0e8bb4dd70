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

#include "bindings/torch/src/callback_order.h"
#include "bindings/torch/src/deadline.h"
#include "bindings/torch/src/device_run.h"

namespace whorl_torch {

class Executor;

/// Work whose future may have callbacks that communicate.
class OrderedWork : public c10d::Work {
 public:
  using c10d::Work::Work;
  /// Returns the place of its callbacks in the order of callbacks.
  virtual Origin origin() const = 0;
};

/// One operation, as c10d hands it to the program. The tensors live in the body, which is released
/// when the operation is complete, so a Work may be dropped at any time. Whether the operation is
/// complete is kept in the future alone, so waits for the Work and for the future agree.
///
/// With tensors of a device the operation is executed, and the future is complete, when everything
/// is queued on the device, where the future has its event. Then wait() makes the caller's current
/// stream wait, and isCompleted() asks the device.
class WhorlWork final : public OrderedWork {
 public:
  struct Description {
    c10d::OpType type;
    const char* title; ///< name in profiles, "whorl:all_reduce"
    int rank;
    std::uint64_t sequence;
    std::vector<at::Tensor> outputs;               ///< value of the future
    std::optional<std::vector<at::Tensor>> inputs; ///< tensors whose shapes are in profiles
    std::shared_ptr<DeviceRun> device; ///< part on a device; null: the tensors are on the CPU
  };
  WhorlWork(Description description, std::function<void()> body);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  /// Carries the operation out if it is the next one and nobody has begun it, else waits. With a
  /// timeout the call only waits, also for the device: it could not leave an operation that it had
  /// begun.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Waits as wait() does, until the deadline; an error names `timeout`.
  void wait_until(Deadline deadline, std::chrono::milliseconds timeout);
  void synchronize() override { wait(); }
  /// Ends the process group that the operation belongs to.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

  /// Calls the body, for the executor; returns the error of the body, and throws none.
  std::exception_ptr run() noexcept;
  /// Completes the operation and runs its callbacks, for the executor, which holds no lock.
  void complete(std::exception_ptr error);
  /// Sets the executor that carries the operation out, before the operation is queued; a receive
  /// from any rank has none.
  void set_executor(std::weak_ptr<Executor> executor) { executor_ = std::move(executor); }
  /// Sets the place in the order of callbacks, before the operation is queued.
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  Origin origin() const override { return origin_; }
  /// Makes wait() call `overdue` when the operation is not complete after `grace`; `overdue` ends
  /// the operation unless its end has begun. Without this the communicator keeps the time.
  void set_grace(std::chrono::milliseconds grace, std::function<void()> overdue) {
    grace_ = grace;
    overdue_ = std::move(overdue);
  }
  void set_abort(std::function<void()> abort) { abort_ = std::move(abort); }
  void set_source(int rank) { source_.store(rank, std::memory_order_relaxed); }
  /// Whether the operation has been executed. Guarded by the lock of the executor.
  bool executed = false;

 private:
  std::function<void()> body_;
  std::function<void()> abort_;
  Origin origin_;
  std::chrono::milliseconds grace_{0};
  std::function<void()> overdue_;
  std::vector<at::Tensor> outputs_;
  /// Waits until the operation is complete or overdue.
  void wait_with_grace();
  /// Waits for the future of an operation that is complete or about to be, throws its error, and
  /// makes the caller's current stream wait.
  void take_result();
  std::weak_ptr<Executor> executor_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::uint64_t sequence_;
  const std::shared_ptr<DeviceRun> device_;
  std::atomic<int> source_{-1}; // published by the completion
};

using WorkPtr = c10::intrusive_ptr<WhorlWork>;

/// Work of the operations between startCoalescing() and endCoalescing(), complete when all parts
/// are.
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
  /// Returns the origin of the last part.
  Origin origin() const override { return parts_.empty() ? Origin() : parts_.back()->origin(); }

 private:
  std::vector<WorkPtr> parts_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace whorl_torch
