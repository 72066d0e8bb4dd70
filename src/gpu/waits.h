#pragma once

// Waits of a kernel's threads for other ranks. Block: see interpret.h.

#include "gpu/fifo_layout.h"
#include "gpu/program.h"
#include "gpu/vectors.h"

namespace whorl::gpu {
namespace {

/// Number of looks at a flag between two at the host's word, which take as long.
inline constexpr int kFlagLooks = 64;

/// Event that a thread waits for, as the report names it.
struct Awaited {
  WaitPhase phase;
  std::uint32_t peer;
  std::uint32_t lane, step;
  std::uint64_t window;
};

/// Threads of one block that wait, until one has waited for the timeout, or the host says so.
template <class Block>
class Waits {
 public:
  /// Makes the waits of block `number` of the launch.
  WHORL_HOST_DEVICE Waits(const Launch& launch, const Launch::Rank& rank, std::uint32_t number,
                          Block& block)
      : launch_(launch), rank_(rank), block_(block), number_(number) {}

  WHORL_HOST_DEVICE bool is_to_stop() const {
    return block_.look(launch_.stop->of_block(number_)) != 0;
  }

  /// Waits until `arrived()` returns true. Returns false if the timeout passed, or all are to
  /// stop. Looks at the host's word after each `looks` calls of `arrived`.
  template <class Arrived>
  WHORL_HOST_DEVICE bool wait(Arrived&& arrived, int looks, const Awaited& what) const {
    std::uint64_t begin = 0;
    for (;;) {
      WHORL_DO_NOT_UNROLL
      for (int look = 0; look < looks; ++look) {
        if (arrived()) return true;
        block_.pause();
      }
      const std::uint64_t now = block_.now_ns();
      if (begin == 0) begin = now;
      const bool expired = now - begin > launch_.timeout_ns;
      if (!expired && !is_to_stop()) continue;
      if (report(what, expired) && expired) stop_all();
      return false;
    }
  }

 private:
  WHORL_HOST_DEVICE void stop_all() const {
    // As StopWords::set() does: the first word comes last, and behind the report.
    WHORL_DO_NOT_UNROLL
    for (std::uint32_t w = StopWords::kWords - 1; w > 0; --w) {
      block_.post(&launch_.stop->words[w].value, std::uint32_t{1});
    }
    block_.publish(&launch_.stop->words[0].value, 1);
  }

  /// Writes the rank's report. Returns false if another thread has done so: that one stops all.
  WHORL_HOST_DEVICE bool report(const Awaited& what, bool expired) const {
    auto& head = *reinterpret_cast<RegionHead*>(launch_.regions[rank_.rank]);
    if (block_.add(&head.reported, 1) != 0) return false;
    Report& report = launch_.reports[rank_.rank];
    report.expired = expired ? 1 : 0;
    report.peer = what.peer;
    report.phase = static_cast<std::uint32_t>(what.phase);
    report.lane = what.lane;
    report.step = what.step;
    report.window = what.window;
    report.operation = launch_.operation;
    report.count = launch_.count;
    report.timeout_ns = launch_.timeout_ns;
    block_.publish(&report.state, 1);
    return true;
  }

  const Launch& launch_;
  const Launch::Rank& rank_;
  Block& block_;
  const std::uint32_t number_;
};

} // namespace
} // namespace whorl::gpu
