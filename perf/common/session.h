#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "perf/common/api.h"
#include "perf/common/collective.h"
#include "perf/common/launch.h"
#include "perf/common/report.h"

namespace perf {

/// Returns a duration in microseconds.
inline double microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Rank that this thread drives.
struct LocalRank {
  Comm comm;
  int rank;
  int nranks;
  void* stream;    ///< stream; nullptr: calls return when complete
  int device = -1; ///< device of the rank's buffers and stream; −1: the host
};

/// Communicators of one thread, which it creates and destroys. Used by that thread only; all
/// threads of all processes make the same calls in the same order.
class Session {
 public:
  /// Creates communicators with the id of all ranks; `base` is the rank of this thread's first
  /// rank.
  static Session join(const Options& options, const UniqueId& id, int nranks, int base);
  /// Creates the communicator of one rank, which the launcher has placed.
  static Session from_launcher(const Options& options);
  ~Session();
  Session(Session&& other) noexcept;
  Session& operator=(Session&&) = delete;

  [[nodiscard]] const std::vector<LocalRank>& ranks() const { return ranks_; }
  [[nodiscard]] int nranks() const { return ranks_.front().nranks; }
  /// Returns how long the creation of this thread's communicators took.
  [[nodiscard]] double init_ms() const { return init_ms_; }
  [[nodiscard]] bool is_first() const { return ranks_.front().rank == 0; }

  /// Calls `call` for each local rank, `times` times over, in one group if there is more than one
  /// call or `force_group` is set.
  template <class F>
  void issue(F&& call, const char* name, int times = 1, bool force_group = false) const {
    const bool group = force_group || times > 1 || ranks_.size() > 1;
    if (group) check(XCCL(GroupStart)(), nullptr, "GroupStart");
    for (int i = 0; i < times; ++i) {
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        check(call(ranks_[r], r), ranks_[r].comm, name);
    }
    if (group) check(XCCL(GroupEnd)(), ranks_.front().comm, "GroupEnd");
  }
  /// Waits until all issued operations are complete. Does nothing without streams.
  void synchronize() const;
  /// Waits until all ranks have entered the barrier.
  void barrier() const;
  /// Combines the threads' values to one value, the same on all ranks.
  [[nodiscard]] double combine(double value, Average average) const;
  /// Returns the sum over all threads.
  [[nodiscard]] std::int64_t total(std::int64_t value) const;
  /// Returns what the library says of where the ranks are; empty if it says nothing.
  [[nodiscard]] std::string topology() const;
  /// Returns the memory of one of this thread's communicators, on the host and the device; 0 if the
  /// library does not say.
  [[nodiscard]] std::int64_t communicator_bytes() const;
  /// Returns the identities of all ranks in rank order. `thread` is this thread's number in its
  /// process.
  [[nodiscard]] std::vector<RankInfo> everyone(int thread) const;

 private:
  Session() = default;
  void open_streams(const Options& options);

  std::vector<LocalRank> ranks_;
  bool on_device_ = false; ///< true if the streams are device streams
  double init_ms_ = 0;
};

} // namespace perf
