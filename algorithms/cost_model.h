#pragma once

#include <cstddef>
#include <optional>

#include "algorithms/algorithm.h"

namespace whorl {

/// What messages cost between two ranks.
struct Link {
  double alpha_us = 1.0;         ///< a round: both exchange empty messages, as all others do
  double overhead_us = 0.1;      ///< processor time for each message
  double beta_us_per_kib = 0;    ///< each further KiB that passes, beside what processors do
  double send_us_per_kib = 0.05; ///< processor time to send a KiB
  double receive_us_per_kib = 0.05;

  friend bool operator==(const Link&, const Link&) = default;
};

/// What messages and reductions cost in a communicator. Plain bytes: it is sent as it is.
struct LinkCosts {
  Link link;                         ///< the slowest
  std::optional<Link> inner;         ///< within the groups of the innermost dimension, if faster
  double gamma_us_per_kib = 0.02;    ///< reducing a KiB instead of copying it
  double copy_us_per_kib = 0.02;     ///< copying a KiB from place to place
  double ranks_per_core = 1;         ///< on the fullest host; 1 if there are cores to spare
  std::size_t message_bytes = 65536; ///< payload of one slot
  std::size_t slots = 4;             ///< of a FIFO
  std::size_t cache_bytes = 1 << 20; ///< of a core alone: what it writes there stays near

  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

/// Predicted time in µs of `algorithm` for `bytes` bytes (larger side of the operation).
double predict_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  const LinkCosts& links);
/// The supported algorithm with the lowest prediction; nullptr only if none supports the shape.
const Algorithm* choose_algorithm(Collective collective, const Shape& shape, std::size_t bytes,
                                  const LinkCosts& links);

} // namespace whorl
