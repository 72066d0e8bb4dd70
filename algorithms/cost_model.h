#pragma once

#include <cstddef>
#include <optional>

#include "algorithms/algorithm.h"

namespace whorl {

/// What messages and reductions cost on the slowest link of a communicator.
struct LinkCosts {
  /// On the links within the groups of the innermost dimension, where these are faster.
  struct Inner {
    double alpha_us, overhead_us, beta_us_per_kib;
  };
  double alpha_us = 1.0;             ///< an empty message, sender to receiver
  double overhead_us = 0.1;          ///< processor time for each message
  double beta_us_per_kib = 0.1;      ///< each further KiB
  double gamma_us_per_kib = 0.02;    ///< reducing a KiB
  std::size_t message_bytes = 65536; ///< payload of one slot
  std::optional<Inner> inner;
};

/// Predicted time in µs of `algorithm` for `bytes` bytes (larger side of the operation).
double predict_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  const LinkCosts& links);
/// The supported algorithm with the lowest prediction; nullptr only if none supports the shape.
const Algorithm* choose_algorithm(Collective collective, const Shape& shape, std::size_t bytes,
                                  const LinkCosts& links);

} // namespace whorl
