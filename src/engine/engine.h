#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/membership.h"
#include "base/status.h"
#include "engine/agreement.h"
#include "engine/observer.h"
#include "engine/plan_cache.h"
#include "engine/request.h"
#include "engine/transfer.h"
#include "engine/v_exchange.h"
#include "engine/workspace.h"
#include "exec/execution.h"
#include "monitor/recorder.h"
#include "transports/endpoint.h"
#include "transports/transport.h"
#include "tuning/selector.h"

namespace whorl {

/// Executor of batches of requests on one communicator: collectives one after the other, in order;
/// sends and receives of the batch at the same time, in order for each peer. Used by one thread at
/// a time: the caller's, or the progress thread.
class Engine {
 public:
  struct Config {
    const Membership* membership = nullptr;
    Shape shape;
    Selector selector;
    std::size_t nontemporal_bytes = 0; ///< size from which on outputs are written past the caches
    /// Whether operations in one direction are divided, so that both sides work at the same time.
    bool divides_one_way = false;
    bool verify = false;          ///< whether each schedule is proved before its first use
    bool devices = false;         ///< whether new buffers may be those of a device
    Trace* trace = nullptr;       ///< trace of the operations; may be null, outlives the engine
    Observer* observer = nullptr; ///< listener to the operations; may be null, outlives the engine
    monitor::Recorder* recorder = nullptr;      ///< recorder of the operations; outlives the engine
    std::uint64_t workspace_bytes = UINT64_MAX; ///< limit of scratch chunks
    /// Endpoints by [channel][peer]; the last channel is for sends and receives.
    std::vector<std::vector<Endpoint*>> endpoints;
  };
  explicit Engine(Config config);

  const Membership& membership() const noexcept { return *config_.membership; }
  /// Returns the windows into which a request without blocks will be cut. Any thread, also while
  /// another one drives the engine.
  Result<ChunkMap> windows_of(const Request& request);

  /// Begins a batch; `batch` and the buffers in it outlive it. An error means that nothing was
  /// sent.
  Status start(std::span<const Request> batch);
  /// Returns whether a call repeats the last one of its collective, with buffers that need no
  /// further check. False is always correct.
  bool matches_last_call(const RawCall& call) const noexcept {
    const CachedCall& cached = cached_calls_[static_cast<std::size_t>(call.collective)];
    const Request& last = cached.request;
    if (!cached.valid || last.scaled || call.count != last.count ||
        call.type != static_cast<int>(last.type) || call.op != static_cast<int>(last.op) ||
        call.peer != last.peer) {
      return false;
    }
    return (call.send == last.send && call.recv == last.recv) ||
           (!config_.devices && !cached.replaces_input && cached.apart(call.send, call.recv));
  }
  /// Begins a call that matches_last_call(): a batch of one, without the work that does not depend
  /// on the buffers.
  void repeat(Collective collective, const void* send, void* recv);
  Progress advance();

  /// Returns the error after kFailed; kOk if the CommError has it.
  Status failure() const;
  /// Returns whether an operation is under way.
  bool active() const noexcept {
    return collective_active_ || !active_transfers_.empty() || next_any_ < any_.size();
  }
  /// Returns the collective or the first transfer under way, for Transport::tell_stuck(); nothing
  /// if there is none. A receive from any rank waits for no rank in particular.
  std::optional<StuckOperation> stuck() const;
  /// Compares the collective in which a peer is stuck with this rank's of the same number, which is
  /// under way or complete. Returns the error if they differ.
  Status compare(int peer, const StuckOperation& theirs) const;
  /// Looks for a message of an earlier collective, which this rank has completed without the
  /// message. Only for a peer for which this rank waits, and which waits for this one. Returns the
  /// error if there is one: the two ranks called different collectives in which both only send, and
  /// wait now for each other to take these messages.
  Status compare_left_over(int peer) const;
  /// Returns whether this rank waits in a transfer for a peer that is stuck in a later collective.
  bool waits_before(int peer, const StuckOperation& theirs) const noexcept;
  /// Returns the error of such ranks if the peer waits for this rank.
  Status never_meet(int peer, const StuckOperation& theirs) const;
  /// Returns for each peer how many messages of transfers this rank has sent to it, modulo 2^32.
  std::vector<std::uint32_t> sent_messages() const;
  /// Returns whether as many messages of transfers as a peer had sent have been received.
  bool has_all_messages(int peer, const StuckOperation& theirs) const;
  /// Returns whether a peer has left in good order and all its transfers are received. Called by
  /// the thread that uses the endpoints.
  bool has_left(int peer) const noexcept {
    return config_.endpoints.back()[static_cast<std::size_t>(peer)]->has_ended();
  }
  /// Describes the operation under way: "allreduce number 7 of 2 float32 (sum)"; empty if there is
  /// none.
  std::string operation() const;
  /// Returns whom this rank waits for, and in which phase.
  Execution::Waiting waits_for() const noexcept;
  /// Describes that: "waiting for rank 2 (host …) while receiving".
  std::string describe_wait() const;
  /// Describes this rank, its operation and the wait in it: "rank 1 (host …) in allreduce number 7
  /// of …: waiting for …".
  std::string waiting() const;

  /// Returns the bytes that scratch memory, or plans and executions, now occupy. May be called by
  /// any thread.
  std::size_t workspace_bytes() const noexcept {
    return workspace_bytes_.load(std::memory_order_relaxed);
  }
  std::size_t plan_bytes() const noexcept {
    return plans_.bytes() + plan_bytes_.load(std::memory_order_relaxed);
  }

 private:
  /// Transfers of a batch with one peer in one direction.
  struct TransferQueue {
    Transfer transfer;
    std::vector<const Request*> requests = {}; ///< requests; only valid until their call returns
    std::size_t next = 0;       ///< index of the next request, whose predecessor is in progress
    std::uint64_t recorded = 0; ///< number that the recorder gave the transfer in progress
    void* observed = nullptr;   ///< handle that the observer gave the transfer in progress
  };
  /// Receive from any rank.
  struct AnyReceive {
    const Request* request = nullptr; ///< request of the batch; only valid until its call returns
    Fingerprint fingerprint;          ///< fingerprint, without a number
  };
  struct CollectiveEndpoints final : Execution::Endpoints {
    Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept override {
      return (*table)[channel][peer];
    }
    std::vector<std::vector<Endpoint*>>* table = nullptr;
  };

  /// Collective with everything that does not depend on its buffers. Programs repeat calls, so
  /// the last one of each collective is kept.
  struct CachedCall {
    bool valid = false;
    Request request; ///< last request
    std::size_t input_bytes = 0, output_bytes = 0;
    std::size_t bytes = 0; ///< bytes of the larger side, as the selector counts
    const Plan* plan = nullptr;
    ChunkMap map;
    MoveKernels kernels;
    /// Whether the output is written past the caches, unless the operation replaces its input.
    bool nontemporal = false;
    bool replaces_input = false; ///< whether the last call reduced into the memory of its input
    Agreement agreement = Agreement::kByData;
    std::size_t scratch_bytes = 0; ///< bytes of scratch chunks, and of the output if it is copied
    std::size_t result_at = 0;     ///< offset in scratch memory of the output if it is copied
    Fingerprint fingerprint;       ///< fingerprint of every repetition, but for the number
    Execution execution;

    bool fits(const Request& other) const noexcept {
      return valid && request.count == other.count && request.type == other.type &&
             request.op == other.op && request.peer == other.peer && request.scaled == other.scaled;
    }
    /// Returns whether these buffers are disjoint, so that a check cannot object to them.
    bool apart(const void* send, const void* recv) const noexcept;
  };

  void record_begin() noexcept;
  void watch_begin() noexcept;
  void watch_end() noexcept;
  /// Returns whether the end of an operation on so many bytes is recorded with the time.
  static bool is_timed(std::size_t bytes) noexcept {
    // Less: small operations notice the reading of the counter, 3 to 10 ns. More: fewer ends known.
    constexpr std::size_t kMinTimedBytes = 4096;
    return bytes >= kMinTimedBytes;
  }
  /// Adds to plan_bytes_ what an execution has grown() by.
  void count_memory(std::size_t grown) noexcept {
    if (grown != 0) plan_bytes_.fetch_add(grown, std::memory_order_relaxed);
  }
  /// Plan and windows of a collective.
  struct Division {
    std::size_t bytes = 0; ///< bytes of the larger side, as the selector counts
    const Plan* plan = nullptr;
    ChunkMap map;
  };
  Result<Division> divide(const Request& request);
  Status prepare(CachedCall& cached, const Request& request);
  Result<const Algorithm*> algorithm_for(const Request& request, std::size_t bytes) const;
  Status start_collective(const Request& request);
  void begin(CachedCall& cached);
  void meet();
  Progress advance_meeting();
  Progress advance_execution();
  /// Returns the execution that is under way if no exchange is.
  const Execution& execution() const noexcept {
    return in_meeting_ ? meeting_.execution : current_->execution;
  }
  Status reserve(std::size_t bytes, const Request& request);
  Status start_exchange(const Request& request);
  Result<TransferSchedules> transfer_schedules();
  Status start_transfer(TransferQueue& queue);
  Status queue_transfers(std::span<const Request> batch);
  /// Returns the index of a queue in transfers_.
  static std::size_t transfer_index(bool sends, int peer) noexcept {
    return 2 * static_cast<std::size_t>(peer) + (sends ? 1 : 0);
  }
  TransferQueue& transfer_queue(bool sends, int peer);
  void activate(TransferQueue& queue);
  Progress meet_any_rank();
  Progress advance_collectives();
  bool next_transfer(const Transfer& done);
  Progress advance_transfers();
  /// Returns the error of the collective that has failed; kOk if the CommError has it.
  Status failure_of_collective() const;
  Status fail_on(const Execution::Mismatch& mismatch, int peer, const Fingerprint& ours) const;
  Status fail_on(const Transfer& transfer) const;
  Status fail_on_block(const Execution::Mismatch& mismatch, int peer,
                       const Fingerprint& ours) const;
  static bool is_alike(const Fingerprint& fingerprint) noexcept;
  std::optional<Fingerprint> earlier_call(const Fingerprint& theirs, const Fingerprint& ours) const;
  std::string own_counts() const;
  std::optional<Fingerprint> call_number(std::uint32_t sequence) const;

  Config config_;
  CollectiveEndpoints endpoints_;
  PlanCache plans_;
  std::array<CachedCall, kNumCollectives> cached_calls_;
  CachedCall reduce_scatterv_call_, all_gatherv_call_; ///< calls with a table; never valid
  CachedCall meeting_; ///< barrier before the collective under way, see Agreement::kByBarrier
  Workspace scratch_;
  std::atomic<std::size_t> workspace_bytes_{0}; // orders no other data
  std::atomic<std::size_t> plan_bytes_{0};      // of executions and transfers; orders no other data

  std::span<const Request> batch_;
  std::size_t next_ = 0; ///< index in batch_ from which the next collective is looked for
  bool collective_active_ = false;
  bool in_meeting_ = false;             ///< whether meeting_ is not over
  std::byte* copied_to_ = nullptr;      ///< output to which the result is copied; null: made there
  bool exchanging_ = false;             ///< whether exchange_ does the active collective
  std::unique_ptr<VExchange> exchange_; ///< exchange; null until the first one
  CachedCall* current_ = nullptr; ///< collective under way, unless exchanging_, or the last one
  Fingerprint fingerprint_;
  std::uint32_t sequence_ = 0;
  TraceRecord traced_;         ///< record of the collective under way
  std::uint64_t recorded_ = 0; ///< number that the recorder gave this collective
  bool unrecorded_ = false;    ///< whether the recorder has not seen its begin
  bool watched_ = false;       ///< whether there is a trace or an observer
  void* observed_ = nullptr;   ///< handle that the observer gave this collective

  TransferSchedules transfer_schedules_; ///< schedules of all transfers; null until the first one
  std::vector<std::unique_ptr<TransferQueue>> transfers_; ///< queues by transfer_index()
  ActiveTransfers active_transfers_;
  // Receives from any rank, which are matched one after the other.
  std::vector<AnyReceive> any_;
  std::size_t next_any_ = 0;           ///< index in any_ of the first receive that is not complete
  TransferQueue* any_queue_ = nullptr; ///< queue of that receive; null: no message matched so far
  int any_turn_ = 0;                   ///< rank to be polled first
  std::vector<std::uint32_t> sent_, received_; ///< numbers of transfers with each peer so far
  Status failure_;
};

} // namespace whorl
