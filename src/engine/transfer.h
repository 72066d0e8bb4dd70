#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "base/status.h"
#include "engine/request.h"
#include "exec/execution.h"
#include "transports/endpoint.h"

namespace whorl {

/// The two halves of a transfer: the schedules of the rank that sends and of the one that receives.
struct TransferSchedules {
  const Schedule* send = nullptr;
  const Schedule* receive = nullptr;
};

/// Transfers of vectors to or from one peer over one endpoint, one after the other. Owned by one
/// thread at a time; kept and reused, so that a repeated transfer allocates nothing.
class Transfer final : Execution::Endpoints {
 public:
  Transfer(int peer, bool sends, Endpoint* endpoint, Trace* trace)
      : endpoint_(endpoint), peer_(peer), sends_(sends) {
    execution_.trace_to(trace, Trace::transfers(peer, sends));
  }

  int peer() const noexcept { return peer_; }
  bool sends() const noexcept { return sends_; }
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  std::size_t bytes() const noexcept {
    return fingerprint_.count() * size_of(fingerprint_.data_type());
  }
  const Execution& execution() const noexcept { return execution_; }
  /// Returns the peer for which this rank waits as long as the transfer is not complete.
  Execution::Waiting waiting() const noexcept {
    return {.peer = peer_,
            .phase = sends_ ? "sending" : "receiving",
            .for_device = execution_.waiting().for_device};
  }

  /// Begins a transfer of `count` elements of `type` at `data`, which is only read if this rank
  /// sends. No message is larger than `slot_bytes`. With a pipeline, which outlives the transfer,
  /// `data` is not used.
  Status start(const TransferSchedules& schedules, DataType type, std::size_t count,
               std::byte* data, std::size_t slot_bytes, const Fingerprint& fingerprint,
               StagingPipeline* pipeline = nullptr);
  Progress advance() noexcept { return execution_.advance(); }

  /// Does what Execution::grown() does.
  std::size_t grown() noexcept { return execution_.grown(); }

 private:
  /// Arguments of ChunkMap::make().
  struct MapArguments {
    const Schedule* schedule = nullptr;
    std::size_t count = 0, element_size = 0, slot_bytes = 0;
    bool operator==(const MapArguments&) const = default;
  };

  Endpoint* find(std::uint32_t, std::uint16_t) noexcept override { return endpoint_; }

  Endpoint* endpoint_;
  int peer_;
  bool sends_;
  MapArguments map_arguments_; ///< arguments of the call that made map_
  ChunkMap map_;
  Execution execution_;
  Fingerprint fingerprint_;
};

/// Transfers that are in progress at the same time: those of a batch, or of one collective.
class ActiveTransfers {
 public:
  bool empty() const noexcept { return active_.empty(); }
  std::size_t size() const noexcept { return active_.size(); }
  std::span<Transfer* const> all() const noexcept { return active_; }
  bool contains(const Transfer& transfer) const noexcept {
    return std::find(active_.begin(), active_.end(), &transfer) != active_.end();
  }
  void add(Transfer& transfer) { active_.push_back(&transfer); }
  void clear() noexcept { active_.clear(); }

  /// Advances all transfers, and removes each that is done; then `next(transfer)` may begin and add
  /// others, or the same again, and returns whether that succeeded. kDone when no transfer is left.
  /// After kFailed, unless `next` failed, the first of all() is the transfer that has failed.
  template <class Next>
  Progress advance(Next&& next) {
    bool moved = false;
    for (std::size_t i = 0; i < active_.size();) {
      Transfer& transfer = *active_[i];
      switch (transfer.advance()) {
        case Progress::kFailed:
          std::swap(active_[i], active_.front());
          return Progress::kFailed;
        case Progress::kDone:
          active_[i] = active_.back();
          active_.pop_back();
          moved = true;
          if (!next(transfer)) return Progress::kFailed;
          continue;
        case Progress::kAdvanced:
          moved = true;
          break;
        case Progress::kIdle:
          break;
      }
      ++i;
    }
    if (active_.empty()) return Progress::kDone;
    return moved ? Progress::kAdvanced : Progress::kIdle;
  }

 private:
  std::vector<Transfer*> active_;
};

} // namespace whorl
