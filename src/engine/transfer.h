#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "base/status.h"
#include "engine/request.h"
#include "exec/execution.h"
#include "transports/endpoint.h"

namespace whorl {

/// The two halves of a transfer: what a rank that sends does, and what one that receives does.
struct TransferSchedules {
  const Schedule* send = nullptr;
  const Schedule* receive = nullptr;
};

/// Vectors on their way to or from one peer over one endpoint, one after the other. Owned by one
/// thread at a time; kept, so that a repeated transfer allocates nothing.
class Transfer final : Execution::Endpoints {
 public:
  Transfer(int peer, bool sends, Endpoint* endpoint, Trace* trace)
      : endpoint_(endpoint), peer_(peer), sends_(sends) {
    execution_.trace_to(trace, Trace::transfers(peer, sends));
  }

  int peer() const noexcept { return peer_; }
  bool sends() const noexcept { return sends_; }
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  const Execution& execution() const noexcept { return execution_; }

  /// Begins `count` elements of `type` at `data`, which is only read if they are sent. No message
  /// is larger than `slot_bytes`. With a feed, which outlives the transfer, `data` is not used.
  Status start(const TransferSchedules& schedules, DataType type, std::size_t count,
               std::byte* data, std::size_t slot_bytes, const Fingerprint& fingerprint,
               Feed* feed = nullptr);
  Progress advance() noexcept { return execution_.advance(); }

  /// How much larger the execution is than at the last call, modulo 2^64.
  std::size_t grown() noexcept;

 private:
  Endpoint* find(std::uint32_t, std::uint16_t) noexcept override { return endpoint_; }

  Endpoint* endpoint_;
  int peer_;
  bool sends_;
  Execution execution_;
  std::size_t counted_bytes_ = 0;
  Fingerprint fingerprint_;
};

/// Advances all of `active` by `advance(item)` and takes out those that are done. kDone when none
/// is left; after kFailed the first one is that which has failed.
template <class Item, class Advance>
Progress advance_all(std::vector<Item*>& active, Advance&& advance) noexcept {
  bool moved = false;
  for (std::size_t i = 0; i < active.size();) {
    switch (advance(*active[i])) {
      case Progress::kFailed:
        std::swap(active[i], active.front());
        return Progress::kFailed;
      case Progress::kDone:
        active[i] = active.back();
        active.pop_back();
        moved = true;
        continue;
      case Progress::kAdvanced:
        moved = true;
        break;
      case Progress::kIdle:
        break;
    }
    ++i;
  }
  if (active.empty()) return Progress::kDone;
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

} // namespace whorl
