#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/transfer.h"
#include "transports/endpoint.h"

namespace whorl {

/// Carries out collectives whose blocks have different sizes: every block is a transfer, and those
/// of one collective are under way at the same time, up to kMostAtOnce. A block without elements is
/// sent, too, as an empty message, so that two ranks that disagree on a count always notice. Uses
/// the endpoints of a collective channel, so that these collectives keep their place among the
/// others and never meet the messages of whorlSend(). Owned by one thread at a time.
class Exchange {
 public:
  /// `endpoints` is a row of Engine::Config::endpoints; `counted_bytes` is increased by the memory
  /// that operations take, modulo 2^64. All arguments outlive the exchange.
  Exchange(const Membership& membership, const std::vector<Endpoint*>& endpoints, Trace* trace,
           std::atomic<std::size_t>& counted_bytes);

  /// Begins a request that has blocks, which outlives the operation. Every message carries
  /// `fingerprint` with its own count.
  Status start(const Request& request, const TransferSchedules& schedules,
               const Fingerprint& fingerprint);
  Progress advance();
  /// Why advance() has failed, where it was no transfer.
  const Status& error() const noexcept { return error_; }

  /// The transfer that advance() has failed on, or the first one that is not complete; null if
  /// there is none.
  const Transfer* current() const noexcept { return active_.empty() ? nullptr : active_.front(); }

 private:
  /// To look at all that are under way takes long where they are many.
  static constexpr std::size_t kMostAtOnce = 128;

  Status begin(Transfer& transfer, const Blocks::Block& block);
  Status open();

  const Membership& membership_;
  std::atomic<std::size_t>& counted_bytes_;                 ///< carries no other data
  std::vector<std::unique_ptr<Transfer>> sends_, receives_; ///< by rank; null for this one
  std::vector<Transfer*> active_;
  // The operation.
  const Request* request_ = nullptr;
  TransferSchedules schedules_;
  Fingerprint fingerprint_;
  int distance_ = 1; ///< of the ranks that come next
  Status error_;
};

} // namespace whorl
