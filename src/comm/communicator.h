#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/operators.h"
#include "comm/setup.h"
#include "device/common/group.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "engine/task_queue.h"

namespace whorl {

/// A rank's membership in a group of ranks: what a whorlComm_t stands for once it has been created.
class Communicator final : private TaskRunner {
 public:
  /// Takes over what set_up() has made.
  explicit Communicator(Setup setup);
  /// Ends the communicator on this rank without waiting for any other.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept { return setup_.membership->rank; }
  int nranks() const noexcept { return setup_.membership->nranks; }
  const Membership& membership() const noexcept { return *setup_.membership; }
  const Options& options() const noexcept { return setup_.options; }
  /// How algorithms are chosen; alike on all ranks.
  const Selector& selector() const noexcept { return setup_.selector; }
  const LinkCosts& links() const noexcept { return setup_.links; }
  /// Whether links were measured, and not by constants.
  bool probed() const noexcept { return setup_.probed; }
  std::uint64_t digest() const noexcept { return setup_.digest(); } ///< see Setup
  const Shape& shape() const noexcept { return setup_.shape; }

  /// Carries out a batch; returns when this rank's part is complete. After an error other than
  /// kInvalidArgument the communicator is dead. `patience` multiplies the timeout.
  Status run(std::span<const Request> batch, unsigned patience = 1);
  /// Whether a blocking call can be carried out by repeat(), which saves what does not depend on
  /// the buffers, because the last call of this collective was the same otherwise. False is always
  /// right.
  bool repeats(const RawCall& call) const noexcept {
    return tasks_->idle() && (device_group_ == nullptr || device_group_->counts()) &&
           engine_->repeats(call);
  }
  /// To be finished if it is not kReady.
  WaitResult repeat(Collective collective, const void* send, void* recv) noexcept;
  /// Queues a task. It starts when all its tickets may, and completes a part of each.
  Status submit(Task task);
  /// Waits until all tasks are complete.
  Status drain();
  /// drain(), and waits for what this rank has in its streams together with other processes.
  Status flush();

  /// Where all ranks meet for operations on a device; null if they cannot.
  DeviceGroup* device_group() const noexcept { return device_group_.get(); }

  // A batch of several communicators that this thread drives at the same time: begin() on each,
  // then advance() all until each is done, then finish().
  Status begin(std::span<const Request> batch);
  Progress advance() noexcept;
  Status finish(WaitResult result);
  Napper& napper() noexcept { return napper_; }
  const WaitPolicy& policy() const noexcept { return policy_; }
  /// Of the operations that are issued from now on.
  void set_timeout(std::uint64_t timeout_ns) noexcept { policy_.timeout_ns = timeout_ns; }
  const Verdict& verdict() const noexcept { return *setup_.verdict; }

  /// Kills the communicator on all ranks. Any thread.
  void abort(Status why);
  /// For a call that has failed with `status`: if that is because this rank's device is lost, kills
  /// the communicator on all ranks. Returns what the call returns.
  Status end_if_device_is_lost(Status status);
  /// What killed the communicator; looks for news of peers. Any thread.
  Status state();

  /// Bytes that this rank's part occupies now. Any thread.
  struct Memory {
    TransportMemory transports; ///< all of them together
    std::size_t workspaces = 0, plans = 0, fixed = 0;
  };
  Memory memory() const noexcept;
  std::uint64_t memory_budget() const noexcept { return setup_.memory_budget; } ///< 0: no limit

  /// What this rank knows to make the next communicator out of this one: alike on all ranks,
  /// different each time.
  Result<Identity> derive_identity(int color);

  Operators& operators() noexcept { return operators_; }
  const Operators& operators() const noexcept { return operators_; }

 private:
  /// Blocks in the transports, and watches the peers of this communicator while waiting.
  class PeerNapper final : public Napper {
   public:
    explicit PeerNapper(Communicator& comm) : comm_(comm) {}
    void nap(std::uint64_t max_ns) noexcept override;
    void look_around(std::uint64_t waited_ns) noexcept override;

   private:
    Communicator& comm_;
    std::uint64_t warned_ns_ = 0;
  };

  Status run_task(const Task& task) override;
  void serve();
  Status wait_in_stream(Ticket& ticket);
  void write_trace();
  Status execute(std::span<const Request> batch, std::uint64_t timeout_ns);
  Status begin(std::span<const Request> batch, std::uint64_t timeout_ns);
  void look_at_peers() noexcept;
  void tell_peers() noexcept;
  void withdraw_memory();
  Status time_out_error() const;

  Setup setup_;
  std::unique_ptr<Engine> engine_;
  WaitPolicy policy_;            ///< of new operations; the calling thread's
  std::uint64_t timeout_ns_ = 0; ///< of the operation under way; of whom the engine is
  PeerNapper napper_;
  std::mutex look_mutex_; ///< look_around() of the transports: one thread at a time
  std::atomic<bool> told_{false};
  std::uint32_t splits_ = 0;

  DeviceWatch device_watch_;
  std::shared_ptr<DeviceGroup> device_group_; ///< may be null

  std::shared_ptr<TaskQueue> tasks_; ///< idle: the engine is the caller's
  std::thread progress_thread_;

  Operators operators_;
};

} // namespace whorl
