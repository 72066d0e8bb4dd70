#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace whorl {

class VerbsCompletions;
class VerbsEndpoint;
class VerbsJudge;

/// Endpoints with several rails of one transport, all of which settle failures of rails while the
/// engine uses any of them. The peer of an idle endpoint may need an answer for an operation that
/// is complete on this side: which of its messages have arrived, or how many were released.
class RailWatch {
 public:
  explicit RailWatch(VerbsJudge& judge) noexcept : judge_(judge) {}
  /// Adds an endpoint or completions, which outlive all calls of serve().
  void add(VerbsEndpoint& endpoint) { endpoints_.push_back(&endpoint); }
  void add(VerbsCompletions& completions) { completions_.push_back(&completions); }
  /// Tells that an endpoint has something to settle. Any thread.
  void raise() noexcept {
    // A read-modify-write, so that who takes it back sees what each thread did before its call.
    raised_.exchange(true, std::memory_order_release);
  }
  /// Lets all endpoints settle failures, if there may be any. Called by the thread that uses the
  /// endpoints.
  void serve() noexcept {
    if (++calls_ % kCallsPerRead == 0 || raised_.load(std::memory_order_relaxed)) [[unlikely]]
      serve_all();
  }

 private:
  /// Number of calls of serve() for each look at what peers have told, which enters the kernel: an
  /// operation whose waits are short looks at nothing else.
  static constexpr std::uint32_t kCallsPerRead = 1024;

  void serve_all() noexcept; // in failover.cc

  VerbsJudge& judge_;
  std::vector<VerbsEndpoint*> endpoints_;
  std::vector<VerbsCompletions*> completions_;
  std::uint32_t calls_ = 0;
  std::atomic<bool> raised_{false}; ///< whether an endpoint has something to settle, or may have
};

} // namespace whorl
