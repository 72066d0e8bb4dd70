#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "comm/request.h"
#include "comm/transfer.h"
#include "transports/endpoint.h"

namespace whorl {

/// Carries out collectives whose blocks have different sizes: every block is a transfer, all of one
/// collective are under way at the same time. A block without elements is sent, too, as an empty
/// message, so that two ranks that disagree on a count always notice. Uses the endpoints of a
/// collective channel, so that these collectives keep their place among the others and never meet
/// the messages of whorlSend(). Owned by one thread at a time.
class Exchange {
 public:
  /// `endpoints` is a row of Engine::Config::endpoints; all arguments outlive the exchange.
  Exchange(const Membership& membership, const std::vector<Endpoint*>& endpoints, Trace* trace);

  /// Begins a request that has blocks. Every message carries `fingerprint` with its own count.
  /// `grown` is increased by the memory that this has taken, modulo 2^64.
  Status start(const Request& request, const TransferSchedules& schedules,
               const Fingerprint& fingerprint, std::size_t& grown);
  Progress advance() noexcept;

  /// The transfer that advance() has failed on, or the first one that is not complete; null if
  /// there is none.
  const Transfer* current() const noexcept { return active_.empty() ? nullptr : active_.front(); }

 private:
  const Membership& membership_;
  std::vector<std::unique_ptr<Transfer>> sends_, receives_; ///< by rank; null for this one
  std::vector<Transfer*> active_;
};

} // namespace whorl
