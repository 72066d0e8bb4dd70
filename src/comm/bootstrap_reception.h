#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "transports/socket/handshake.h"

namespace whorl::bootstrap {

/// Somebody who has proved to know the secret of a job.
struct Guest {
  Fd socket;
  std::uint32_t rank = 0;
  decltype(Identity::job) job{};
};

/// Accepts connections to a root and authenticates them. A stranger costs a bounded time and a
/// bounded number of sockets. Used by one thread.
class Reception {
 public:
  /// Writes the secret of `identity.job`; false if there is no such job here.
  using Secret = std::function<bool(Identity& identity)>;

  Reception(Fd listener, Secret secret)
      : listener_(std::move(listener)), secret_(std::move(secret)) {}

  /// Adds what is to be polled, in the order in which serve() expects it; the time at which to
  /// serve at the latest.
  std::uint64_t collect(std::vector<pollfd>& fds) const;
  /// How many entries collect() adds.
  std::size_t connections() const { return 1 + strangers_.size(); }
  /// Appends those who have been authenticated. An error if this process has no socket for one.
  Status serve(std::span<const pollfd> fds, std::vector<Guest>& guests);
  bool open() const noexcept { return listener_.valid(); }
  /// Nobody else is expected.
  void close() noexcept { listener_.reset(); }

 private:
  Status accept_all(std::vector<Guest>& guests);
  void greet(Handshake& handshake, std::vector<Guest>& guests);

  Fd listener_;
  Secret secret_;
  std::vector<Handshake> strangers_; ///< oldest first
};

} // namespace whorl::bootstrap
