#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "base/scope.h"

namespace whorl {

/// Costs of messages between two ranks.
struct Link {
  double alpha_us = 1.0;      ///< time of a round: both exchange empty messages, as all others do
  double overhead_us = 0.1;   ///< processor time for each message
  double beta_us_per_kib = 0; ///< time for each further KiB, beside processor time
  double send_us_per_kib = 0.05; ///< processor time to send a KiB
  double receive_us_per_kib = 0.05;

  friend bool operator==(const Link&, const Link&) = default;
};

/// Costs of one level of a communicator's groups.
struct Level {
  /// Costs of messages within a group of this level, between its smaller groups.
  Link link;
  /// Time in which a KiB leaves or enters a group, through what its members share (a NIC, the ports
  /// of a switch); 0: they share nothing, or it is unknown.
  double boundary_us_per_kib = 0;
  Scope scope = Scope::kNetwork; ///< part of the job that each group is in

  friend bool operator==(const Level&, const Level&) = default;
};

/// Costs of messages and reductions in a communicator. Plain bytes, sent as they are.
struct LinkCosts {
  /// Levels, innermost first: one for each of divisions(), and the outermost one, whose group is
  /// the communicator. Entries from `count` on have no meaning.
  std::array<Level, kMaxLevels> levels{};
  std::size_t count = 1;
  double gamma_us_per_kib = 0.02;    ///< extra time to reduce a KiB instead of copying it
  double copy_us_per_kib = 0.02;     ///< time to copy a KiB within memory
  double ranks_per_core = 1;         ///< number on the fullest host; 1 if there are cores to spare
  std::size_t message_bytes = 65536; ///< payload of one slot
  std::size_t slots = 4;             ///< number of slots of a FIFO
  std::size_t cache_bytes = 1 << 20; ///< size of a core's own cache, where its writes stay

  Level& outermost() noexcept { return levels.at(count - 1); }
  const Level& outermost() const noexcept { return levels.at(count - 1); }

  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

/// Predicted time of an operation, in µs.
struct Prediction {
  double us = 0;
  /// Parts of `us` that go into rounds and messages on the links of each level, as in LinkCosts.
  /// The rest goes into arithmetic and into the processor time of messages whatever their size.
  std::array<double, kMaxLevels> level_us{};
};

/// Times that an algorithm will take, for any size.
class Predictor {
 public:
  /// Takes an algorithm that supports `shape`.
  Predictor(const Algorithm& algorithm, const Shape& shape, const LinkCosts& links);
  /// Predicts the time for `bytes` bytes (larger side of the operation).
  Prediction predict(std::size_t bytes) const;
  const Algorithm& algorithm() const noexcept { return *algorithm_; }

 private:
  std::size_t levels() const noexcept { return links_.count; }
  /// Returns the mean of a cost over the levels, weighed by what the algorithm does in each.
  double weighed(double Link::*what, double LevelPart::*by) const;

  const Algorithm* algorithm_;
  int nranks_;
  LinkCosts links_;
  Cost cost_;
  std::array<LevelPart, kMaxLevels> parts_{};
  double boundary_us_per_kib_ = 0; ///< time of the slowest boundary, for each KiB of the vector
  std::size_t narrowest_ = 0;      ///< level that this boundary leads to
};

/// Makes a predictor for each algorithm that supports the shape.
std::vector<Predictor> predictors(Collective collective, const Shape& shape,
                                  const LinkCosts& links);
/// Returns the algorithm with the lowest prediction; of equal ones the first; null if there is
/// none.
const Algorithm* choose_algorithm(const std::vector<Predictor>& predictors, std::size_t bytes);

} // namespace whorl
