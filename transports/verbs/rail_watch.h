#pragma once

#include <atomic>
#include <vector>

namespace whorl {

class VerbsEndpoint;

/// Endpoints with several rails of one transport, all of which handle failures of rails while the
/// engine uses any of them. The peer of an idle endpoint may need an answer for an operation that
/// is complete on this side: which of its messages have arrived, or how many were released.
class RailWatch {
 public:
  /// Adds an endpoint, which outlives all calls of look().
  void add(VerbsEndpoint& endpoint) { endpoints_.push_back(&endpoint); }
  /// Makes the next look() look. Any thread.
  void raise() noexcept { raised_.store(true, std::memory_order_release); }
  /// Lets all endpoints handle failures of rails, if there may be any. Called by the thread that
  /// uses the endpoints.
  void look() noexcept {
    if (raised_.load(std::memory_order_relaxed)) [[unlikely]]
      look_at_all();
  }

 private:
  void look_at_all() noexcept; // in failover.cc

  std::vector<VerbsEndpoint*> endpoints_;
  std::atomic<bool> raised_{false}; ///< whether an endpoint has something to handle, or may have
};

} // namespace whorl
