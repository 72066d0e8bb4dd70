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

/// Time without progress after which the destruction of a communicator gives up an operation for
/// which another rank has not come: so the destruction takes no more than the 100 ms that are
/// promised, and ranks that come to their ends some milliseconds apart lose nothing.
inline constexpr std::uint64_t kDestroyPatienceNs = 90'000'000;

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
  Engine& engine() noexcept { return *engine_; }
  const Options& options() const noexcept { return setup_.options; }
  /// Returns the selector of algorithms, which is alike on all ranks.
  const Selector& selector() const noexcept { return setup_.selector; }
  const LinkCosts& links() const noexcept { return setup_.links; }
  /// Whether the costs of links() were measured, and are not constants.
  bool probed() const noexcept { return setup_.probed; }
  std::uint64_t digest() const noexcept { return setup_.digest(); } ///< returns Setup::digest()
  /// Returns a line about ranks and choices, see whorlCommDescribe().
  std::string describe() const { return setup_.describe(); }
  /// Returns the name of the transport to a rank, a literal; empty for this rank, and after
  /// leave(). May be called by any thread.
  std::string_view transport_name(int peer) const noexcept {
    const std::lock_guard lock(look_mutex_);
    return setup_.transports.empty() ? std::string_view("") : setup_.transport_name(peer);
  }
  const Shape& shape() const noexcept { return setup_.shape; }

  /// Carries out a batch; returns when this rank's part is complete. After an error other than
  /// kInvalidArgument the communicator is dead. `timeout_factor` multiplies the timeout.
  Status run(std::span<const Request> batch, unsigned timeout_factor = 1);
  /// Whether a blocking call can be carried out by repeat(), because it differs from the last call
  /// of its collective in the buffers at most. False is always right.
  bool matches_last_call(const RawCall& call) const noexcept {
    return tasks_->idle() && (device_group_ == nullptr || device_group_->counts()) &&
           engine_->matches_last_call(call);
  }
  /// Carries out a call that matches_last_call(). A result other than kReady is passed to finish().
  WaitResult repeat(Collective collective, const void* send, void* recv) noexcept;
  /// Starts the thread that carries out tasks, unless there is one. Called before enqueue(). An
  /// error is this rank's alone, and so kills the communicator.
  Status start_progress();
  /// Queues a task, which starts when all its tickets may, and completes a part of each.
  void enqueue(Task task);
  /// Waits until all tasks are complete.
  Status drain();
  /// Waits until all tasks are complete, and all operations that this rank has in streams together
  /// with other processes.
  Status flush();

  /// Returns the group in which all ranks meet for operations on a device; null if they cannot.
  DeviceGroup* device_group() const noexcept { return device_group_.get(); }

  // A batch of several communicators that this thread drives at the same time: begin() on each,
  // then advance() all until each is done, then finish().
  Status begin(std::span<const Request> batch);
  Progress advance() noexcept;
  Status finish(WaitResult result);
  Waiter& waiter() noexcept { return waiter_; }
  const WaitPolicy& policy() const noexcept { return policy_; }
  /// Sets the timeout of the operations that are issued from now on.
  void set_timeout(std::uint64_t timeout_ns) noexcept { policy_.timeout_ns = timeout_ns; }
  const CommError& comm_error() const noexcept { return *setup_.comm_error; }

  /// Lets no operation wait for an absent rank any more, because the program destroys the
  /// communicator: from now on an operation that makes no progress for kDestroyPatienceNs ends the
  /// communicator on all ranks. May be called by any thread.
  void begin_destruction() noexcept;
  /// Returns the error with which operations were given up since begin_destruction(); kOk: none
  /// was.
  Status given_up() const;
  /// Leaves in good order, as the destructor does, at the end of the program; not while operations
  /// are queued, nor where a device is used, which the end of the program may have closed already.
  /// Returns whether it has left; then the communicator may only be aborted and destroyed.
  bool leave() noexcept;
  /// Kills the communicator on all ranks. May be called by any thread.
  void abort(Status why);
  /// Returns the status of a call that has failed with `status`, and kills the communicator on all
  /// ranks if the reason is that this rank's device is lost.
  Status end_if_device_is_lost(Status status);
  /// Polls the peers for failures, and returns the error that killed the communicator, or kOk. May
  /// be called by any thread.
  Status state();

  /// Whether another rank is known to have died or left. May be called by any thread.
  bool is_lost(int peer) const noexcept;
  /// Returns the addresses at which ranks of other hosts reached a rank during the set-up, by the
  /// transports that this rank uses.
  Result<std::vector<SocketAddress>> outer_addresses(int of) const;

  /// Bytes that this rank's part of the communicator occupies, and how it sends.
  struct Memory {
    TransportMemory transports; ///< sum of all transports
    std::size_t workspaces = 0, plans = 0, fixed = 0;
    std::uint64_t zero_copy_messages = 0; ///< sum of all transports
  };
  /// Returns the present figures. May be called by any thread.
  Memory memory() const noexcept;
  /// Returns the smallest memory budget of all ranks; 0: no limit.
  std::uint64_t memory_budget() const noexcept { return membership().smallest_budget(); }

  /// Derives the identity of the next communicator that is made out of this one: alike on all ranks
  /// with the same `color`, different each time.
  Result<Identity> derive_identity(int color);

  /// Tells the other ranks that this one has failed in the split under way, so that they do not
  /// wait for it before the next operation, by which it says why. By the owner of the engine.
  void tell_failed_split() noexcept;
  /// Whether a peer has told so of the split under way.
  bool has_failed_split(int peer) const;

  Operators& operators() noexcept { return operators_; }
  const Operators& operators() const noexcept { return operators_; }

 private:
  /// Waiter of the engine's owner, which blocks in the transports, and watches and serves the peers
  /// of this communicator meanwhile.
  class PeerWaiter final : public Waiter {
   public:
    explicit PeerWaiter(Communicator& comm) : comm_(comm) {}
    void block(std::uint64_t max_ns) noexcept override;
    void poll_failures(std::uint64_t waited_ns) noexcept override;

   private:
    Communicator& comm_;
    std::uint64_t compared_ns_ = 0; ///< time of the last compare_with_peers()
    std::uint64_t warned_ns_ = 0;   ///< time of the last warning; 0: there was none
  };

  Status run_task(const Task& task) override;
  void serve();
  void write_trace();
  Status execute(std::span<const Request> batch, std::uint64_t timeout_ns);
  Status begin(std::span<const Request> batch, std::uint64_t timeout_ns);
  void look(std::uint64_t waited_ns);
  void look_at_peers(std::uint64_t waited_ns = 0) noexcept;
  void end_if_interrupted() noexcept;
  void give_up_if_destroyed(std::uint64_t waited_ns, std::uint64_t now_ns) noexcept;
  Status destroyed_error() const;
  std::optional<StuckOperation> find_told(int peer) const;
  std::optional<StuckOperation> find_stuck(int peer) const;
  std::optional<StuckOperation> own_wait() const;
  bool needs_this_rank(int peer, const StuckOperation& theirs) const;
  Status compare_with_peers();
  void record_wait(std::uint64_t since_ns, std::uint64_t now_ns) noexcept;
  void notify_peers() noexcept;
  void revoke_access();
  void withdraw_stuck() noexcept;
  int rank_that_all_wait_for() const;
  std::string states_of_others() const;
  std::string obstacle_of(int culprit) const;
  std::string obstacle_of_network(int culprit) const;
  Status time_out_error() const;
  Status in_operation(const Status& error) const;
  Status before_operation(const Status& error, std::span<const Request> batch) const;

  Setup setup_;
  std::unique_ptr<Engine> engine_;
  WaitPolicy policy_;            ///< policy of new operations; used by the calling thread
  std::uint64_t timeout_ns_ = 0; ///< timeout of the current operation; used by the engine's owner
  /// Number of operations of the task under way, 0: none is; used by the engine's owner.
  std::size_t task_operations_ = 0;
  PeerWaiter waiter_;
  /// Guard of the transports' poll_failures(), and of their end in leave(), against calls that any
  /// thread may make.
  mutable std::mutex look_mutex_;
  std::atomic<bool> notified_{false};
  std::atomic<std::uint64_t> destroyed_ns_{0}; ///< time of begin_destruction(); 0: not yet
  std::atomic<bool> gave_up_{false}; ///< whether the error is that of give_up_if_destroyed()
  std::uint32_t splits_ = 0;
  // Used by the engine's owner, in compare_with_peers().
  std::optional<StuckOperation> told_stuck_; ///< report that the peers have got last
  Execution::Waiting shown_wait_;            ///< wait that the recorder shows in words
  StuckOperation suspect_;                   ///< report of a peer that did not fit the last time

  DeviceWatch device_watch_;
  std::shared_ptr<DeviceGroup> device_group_; ///< group of all ranks; may be null

  std::shared_ptr<TaskQueue> tasks_; ///< queue; while it is idle, the caller owns the engine
  std::thread progress_thread_;

  Operators operators_;
};

} // namespace whorl
