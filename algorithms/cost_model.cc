#include "algorithms/cost_model.h"

#include <algorithm>
#include <cmath>

namespace whorl {

// T = start-up + data, for a vector cut into windows:
//
//     start-up   α·rounds, once for each window that waits for the one before, else once in all
//                + processor time for each message, of links within the innermost groups apart
//     data       β·volume + γ·(reduced + copied), and β times what fills the pipeline of the first
//     window
//
// Reducing overlaps with the transfer of other chunks only where there are several messages; adding
// both is right for the small sizes and pessimistic by at most γ for the large ones, alike for all.
double predict_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  const LinkCosts& links) {
  const Cost cost = algorithm.cost(shape);
  const double total_kib = static_cast<double>(bytes) / 1024;
  const double window_kib = std::max(1.0, cost.window) *
                            static_cast<double>(std::max<std::size_t>(links.message_bytes, 1)) /
                            1024;
  const double windows = std::max(1.0, std::ceil(total_kib / window_kib));
  const double waits = cost.streams ? 1.0 : windows;
  const LinkCosts::Inner inner = links.inner.value_or(
      LinkCosts::Inner{links.alpha_us, links.overhead_us, links.beta_us_per_kib});
  const double latency =
      links.alpha_us * (cost.rounds - cost.inner_rounds) + inner.alpha_us * cost.inner_rounds;
  const double processor = links.overhead_us * (cost.messages - cost.inner_messages) +
                           inner.overhead_us * cost.inner_messages;
  const double transfer = links.beta_us_per_kib * (cost.volume - cost.inner_volume) +
                          inner.beta_us_per_kib * cost.inner_volume;
  return latency * waits + processor * windows + transfer * total_kib +
         links.beta_us_per_kib * cost.fill * std::min(total_kib, window_kib) +
         links.gamma_us_per_kib * (cost.reduced + cost.copied) * total_kib;
}

const Algorithm* choose_algorithm(Collective collective, const Shape& shape, std::size_t bytes,
                                  const LinkCosts& links) {
  const Algorithm* best = nullptr;
  double best_us = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective || !algorithm.supports(shape)) continue;
    const double us = predict_us(algorithm, shape, bytes, links);
    if (best == nullptr || us < best_us) {
      best = &algorithm;
      best_us = us;
    }
  }
  return best;
}

} // namespace whorl
