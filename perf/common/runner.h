#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/computing.h"
#include "perf/common/memory.h"
#include "perf/common/report.h"
#include "perf/common/session.h"
#include "perf/common/verify.h"

namespace perf {

/// Positions of one row's buffers in a rank's memory: `slots` copies, `stride_bytes` apart from
/// `first_bytes` on, used in turn. Only cold mode has more than one slot.
struct Layout {
  std::size_t count; ///< count argument of the call
  std::size_t bytes; ///< bytes of the larger side
  std::size_t first_bytes;
  int slots;
  std::size_t stride_bytes;
  [[nodiscard]] std::size_t arena_bytes() const {
    return first_bytes + static_cast<std::size_t>(slots - 1) * stride_bytes + bytes;
  }
};

/// Returns the layout of a row of `requested` bytes, rounded down to whole elements and blocks;
/// each block has at least one element unless `requested` is 0.
Layout layout_of(const Collective& collective, const Options& options, std::size_t requested,
                 std::size_t element_bytes, int nranks);

/// Measurement of one collective's rows with the ranks of one thread.
class Runner {
 public:
  /// Allocates buffers for the largest of `sizes` and `options.types`.
  Runner(const Collective& collective, const Options& options, const Session& session,
         const std::vector<std::size_t>& sizes);

  /// Returns the bytes that one rank's buffers take.
  static std::size_t bytes_per_rank(const Collective& collective, const Options& options,
                                    const std::vector<std::size_t>& sizes, int nranks);

  Row measure(std::size_t requested, const Pattern& pattern, DataType type, Operator op, int root);
  /// Returns the number of changed guard bytes of this thread's ranks so far.
  [[nodiscard]] std::int64_t guard_damage() const { return guard_damage_; }

 private:
  struct Buffers {
    GuardedBuffer send, recv;
  };
  struct Task; // one side of a row

  Sample measure_side(Task& task);
  void time_dirty(Task& task);
  void time_back_to_back(Task& task);
  /// Returns the number of untimed operations: at least 1 if they show how many timed ones fit the
  /// budget.
  [[nodiscard]] int warmup() const;
  [[nodiscard]] int iterations_for(double iteration_us, int least) const;
  void meet() const;
  void run_once(const Task& task, int slot, int times);
  void prepare(const Task& task, int slot, std::size_t shift);
  void renew(const Task& task);
  void rewrite(const Task& task, int slot, std::size_t shift);
  [[nodiscard]] std::size_t wrong(const Task& task, int slot, std::size_t shift) const;
  [[nodiscard]] CollectiveCall call_of(const Task& task, std::size_t local, int slot) const;
  void evict();

  const Collective& collective_;
  const Options& options_;
  const Session& session_;
  const Computing computing_;
  std::vector<Buffers> buffers_; ///< buffers of each local rank
  std::vector<std::byte> evictor_;
  std::int64_t guard_damage_ = 0;
};

} // namespace perf
