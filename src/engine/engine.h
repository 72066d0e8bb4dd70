#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/membership.h"
#include "base/status.h"
#include "engine/plan_cache.h"
#include "engine/request.h"
#include "engine/transfer.h"
#include "engine/v_exchange.h"
#include "engine/workspace.h"
#include "exec/execution.h"
#include "transports/endpoint.h"
#include "tuning/selector.h"

namespace whorl {

/// Carries out batches of requests on one communicator: collectives one after the other, in order;
/// sends and receives of the batch at the same time, in order for each peer. Used by one thread at
/// a time: the caller's, or the progress thread.
class Engine {
 public:
  struct Config {
    const Membership* membership = nullptr;
    Shape shape;
    Selector selector;
    std::size_t stream_bytes = 0; ///< operations from this size on stream their output
    bool verify = false;          ///< prove each schedule before its first use
    bool devices = false;         ///< whether new buffers may be those of a device
    Trace* trace = nullptr;       ///< where to record; may be null, outlives the engine
    std::uint64_t workspace_bytes = UINT64_MAX; ///< limit of scratch chunks
    /// Endpoints by [channel][peer]; the last channel is for sends and receives.
    std::vector<std::vector<Endpoint*>> endpoints;
  };
  explicit Engine(Config config);

  /// Begins a batch; `batch` and the buffers in it outlive it. An error means that nothing was
  /// sent.
  Status start(std::span<const Request> batch);
  /// Whether a call repeats the last one of its collective, with buffers that need no further
  /// check. False is always right.
  bool repeats(const RawCall& call) const noexcept {
    const Prepared& prepared = prepared_[static_cast<std::size_t>(call.collective)];
    const Request& last = prepared.request;
    if (!prepared.valid || last.scaled || call.count != last.count ||
        call.type != static_cast<int>(last.type) || call.op != static_cast<int>(last.op) ||
        call.peer != last.peer) {
      return false;
    }
    return (call.send == last.send && call.recv == last.recv) ||
           (!config_.devices && prepared.apart(call.send, call.recv));
  }
  /// Begins a call that repeats(): a batch of one, without what does not depend on the buffers.
  void repeat(Collective collective, const void* send, void* recv);
  Progress advance();

  /// After kFailed without a verdict: the error.
  Status failure() const;
  /// "waiting for rank 2 (host …) while receiving (channel 0, step 3) in allreduce number 7 of …".
  std::string waiting() const;

  /// Bytes now occupied; any thread.
  std::size_t workspace_bytes() const noexcept {
    return workspace_bytes_.load(std::memory_order_relaxed);
  }
  std::size_t plan_bytes() const noexcept {
    return plans_.bytes() + plan_bytes_.load(std::memory_order_relaxed);
  }

 private:
  /// All transfers of a batch with one peer in one direction.
  struct TransferQueue {
    Transfer transfer;
    std::vector<const Request*> requests = {};
    std::size_t next = 0; ///< in requests; the one before it is under way
  };
  struct CollectiveEndpoints final : Execution::Endpoints {
    Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept override {
      return (*table)[channel][peer];
    }
    std::vector<std::vector<Endpoint*>>* table = nullptr;
  };

  /// A collective and all that does not depend on its buffers. Programs repeat calls, so the last
  /// one of each collective is kept.
  struct Prepared {
    bool valid = false;
    Request request; ///< the last one
    std::size_t input_bytes = 0, output_bytes = 0;
    std::size_t bytes = 0; ///< of the larger side, as the selector counts
    const Plan* plan = nullptr;
    ChunkMap map;
    MoveKernels kernels;
    bool stream = false; ///< whether the output is streamed
    std::size_t scratch_bytes = 0;
    Fingerprint fingerprint; ///< of every repetition, but for the number
    Execution execution;
    std::size_t counted_bytes = 0; ///< of the execution, in plan_bytes_

    bool fits(const Request& other) const noexcept {
      return valid && request.count == other.count && request.type == other.type &&
             request.op == other.op && request.peer == other.peer && request.scaled == other.scaled;
    }
    /// Whether these buffers are none that a check could object to.
    bool apart(const void* send, const void* recv) const noexcept;
  };

  void trace_begin() noexcept;
  void count_execution(const Execution& execution, std::size_t& counted_bytes) noexcept;
  Status prepare(Prepared& prepared, const Request& request);
  const Algorithm& algorithm_for(const Request& request, std::size_t bytes) const;
  Status start_collective(const Request& request);
  Status reserve(std::size_t bytes, const Request& request);
  Status start_exchange(const Request& request);
  Result<TransferSchedules> transfer_schedules();
  Status start_transfer(TransferQueue& queue);
  Status queue_transfers(std::span<const Request> batch);
  TransferQueue& transfer_queue(bool sends, int peer);
  void activate(TransferQueue& queue);
  Progress meet_any_rank();
  Progress advance_collectives();
  Progress advance_transfer(TransferQueue& queue);
  /// Says why the collective under way has failed; no error if the verdict knows.
  Status failure_of_collective() const;
  Status fail_on(const Execution::Mismatch& mismatch, int peer, const Fingerprint& ours) const;
  Status fail_on(const Transfer& transfer) const;
  std::string own_counts() const;

  Config config_;
  CollectiveEndpoints endpoints_;
  PlanCache plans_;
  std::array<Prepared, kNumCollectives> prepared_;
  Prepared uneven_scatter_, uneven_gather_; ///< of requests with a table; never valid
  Workspace scratch_;
  std::atomic<std::size_t> workspace_bytes_{0}; // carries no other data, nor does
  std::atomic<std::size_t> plan_bytes_{0};      // what executions and transfers take

  std::span<const Request> batch_;
  std::size_t next_ = 0; ///< in batch_: the next collective to look for
  bool collective_active_ = false;
  bool exchanging_ = false;            ///< the active collective is exchange_'s
  std::unique_ptr<Exchange> exchange_; ///< null until there is one
  Prepared* current_ = nullptr;        ///< the collective under way, or the last one
  Fingerprint fingerprint_;
  std::uint32_t sequence_ = 0;
  TraceRecord traced_; ///< the collective under way

  std::vector<std::unique_ptr<TransferQueue>> transfers_; ///< at 2·peer, plus 1 if it sends
  std::vector<TransferQueue*> active_transfers_;
  // Receives from any rank, met one after the other.
  std::vector<const Request*> any_;
  std::size_t next_any_ = 0;           ///< in any_: the one to be met, or under way
  TransferQueue* any_queue_ = nullptr; ///< where that one is under way; null: it is to be met
  int any_turn_ = 0;                   ///< the rank to be looked at first
  std::vector<std::uint32_t> sent_, received_; ///< transfers with each peer so far
  Status failure_;
};

} // namespace whorl
