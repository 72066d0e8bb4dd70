#pragma once

#include <cstddef>
#include <optional>

#include "algorithms/algorithm.h"

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

/// Costs of messages and reductions in a communicator. Plain bytes, sent as they are.
struct LinkCosts {
  Link link;                      ///< costs of the slowest link
  std::optional<Link> inner;      ///< costs within the groups of the innermost dimension, if lower
  double gamma_us_per_kib = 0.02; ///< extra time to reduce a KiB instead of copying it
  double copy_us_per_kib = 0.02;  ///< time to copy a KiB within memory
  double ranks_per_core = 1;      ///< number on the fullest host; 1 if there are cores to spare
  std::size_t message_bytes = 65536; ///< payload of one slot
  std::size_t slots = 4;             ///< number of slots of a FIFO
  std::size_t cache_bytes = 1 << 20; ///< size of a core's own cache, where its writes stay

  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

/// Predicts the time in µs of `algorithm` for `bytes` bytes (larger side of the operation).
double predict_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  const LinkCosts& links);
/// Returns the supported algorithm with the lowest prediction; nullptr only if none supports the
/// shape.
const Algorithm* choose_algorithm(Collective collective, const Shape& shape, std::size_t bytes,
                                  const LinkCosts& links);

} // namespace whorl
