#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "perf/common/api.h"
#include "perf/common/collective.h"
#include "perf/common/launch.h"
#include "perf/common/report.h"

namespace perf {

/// One rank that this thread drives.
struct LocalRank {
  Comm comm;
  int rank;
  int nranks;
  void* stream;    ///< nullptr: calls return when complete
  int device = -1; ///< where its buffers and its stream are; −1: the host
};

/// Creates and ends the communicators of one thread. Used by that thread only; all threads of all
/// processes make the same calls in the same order.
class Session {
 public:
  /// `id`: of the communicator of all ranks. `base`: the rank of this thread's first rank.
  static Session join(const Options& options, const UniqueId& id, int nranks, int base);
  /// One rank, placed by the launcher.
  static Session from_launcher(const Options& options);
  ~Session();
  Session(Session&& other) noexcept;
  Session& operator=(Session&&) = delete;

  [[nodiscard]] const std::vector<LocalRank>& ranks() const { return ranks_; }
  [[nodiscard]] int nranks() const { return ranks_.front().nranks; }
  /// How long this thread's communicators took to create.
  [[nodiscard]] double init_ms() const { return init_ms_; }
  [[nodiscard]] bool is_first() const { return ranks_.front().rank == 0; }

  /// Calls `call` for each local rank, `times` times over, in one group where that is needed: for
  /// several calls, or if `force_group`.
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
  /// Waits until all that was issued is complete. Nothing to do without streams.
  void synchronize() const;
  /// Returns when all ranks have entered it.
  void barrier() const;
  /// The threads' values as one, the same on all ranks.
  [[nodiscard]] double combine(double value, Average average) const;
  /// Sum over all threads.
  [[nodiscard]] std::int64_t total(std::int64_t value) const;
  /// Who all ranks are, in rank order. `thread`: this one's number in its process.
  [[nodiscard]] std::vector<RankInfo> everyone(int thread) const;

 private:
  Session() = default;
  void open_streams(const Options& options);

  std::vector<LocalRank> ranks_;
  bool on_device_ = false; ///< streams are those of a device
  double init_ms_ = 0;
};

} // namespace perf
