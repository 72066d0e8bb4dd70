#include "algorithms/cost_model.h"

#include <algorithm>
#include <cmath>

namespace whorl {

// Predicts T = rounds + passage + processor time, for a vector cut into windows:
//
//     rounds      α for each, once for each window that waits for the one before, else once in all
//     passage     β·volume: time on the links, beside processor time
//     processor   of the busiest rank, or where ranks share cores, of all the ranks of a core if
//                 that is more: overhead for each message; sending, receiving, reducing and copying
//                 for each byte
//     filling     of a pipeline of chunks: data costs of one window, in part
//
// A rank sends and receives with the same processor, so in shared memory a message costs a copy at
// either end. Slots are written in turn, so all slots that a core's ranks use compete for its
// cache; where they do not fit, each byte moved costs a share more.
double predict_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  const LinkCosts& links) {
  const Cost cost = algorithm.cost(shape);
  const double total_kib = static_cast<double>(bytes) / 1024;
  const double window_kib = std::max(1.0, cost.window) *
                            static_cast<double>(std::max<std::size_t>(links.message_bytes, 1)) /
                            1024;
  const double windows = std::max(1.0, std::ceil(total_kib / window_kib));
  const double waits = cost.streams ? 1.0 : windows;
  // Rounds were measured with all ranks of a core taking part.
  const double crowd = std::max(1.0, links.ranks_per_core);
  Link outer = links.link;
  outer.alpha_us *= std::max(cost.outer_ranks, 1 / crowd);
  const Link& inner = links.inner ? *links.inner : outer;
  // Weighs the two links by the share of the inner one.
  const auto mixed = [&](double Link::*what, double part, double whole) {
    const double share = whole > 0 ? part / whole : 0;
    return inner.*what * share + outer.*what * (1 - share);
  };
  const auto per_kib = [&](double Link::*what) {
    return mixed(what, cost.inner_volume, cost.volume);
  };
  const double latency = cost.rounds * mixed(&Link::alpha_us, cost.inner_rounds, cost.rounds);
  const double overhead =
      cost.messages * mixed(&Link::overhead_us, cost.inner_messages, cost.messages);
  const double message_kib = std::min(total_kib, window_kib) / std::max(1.0, cost.window);

  // Slots lie in the caches of both ends: up to about twice the cache of a core the used ones stay
  // there; beyond that, moving them costs so much more.
  constexpr double kFarther = 1.2;
  const double used_kib = crowd * cost.fifos * static_cast<double>(links.slots) * message_kib;
  const double cache_kib = 2 * static_cast<double>(links.cache_bytes) / 1024;
  const double dear = 1 + kFarther * (used_kib > cache_kib ? 1 - cache_kib / used_kib : 0);
  const double send = dear * per_kib(&Link::send_us_per_kib);
  const double receive = dear * per_kib(&Link::receive_us_per_kib);
  const double beta = per_kib(&Link::beta_us_per_kib);

  // If one rank sends everything, or receives everything, the last message has still to be
  // received, or the first one to be sent; and each other rank is busy with its part.
  const bool sends = cost.sent > cost.received, collects = cost.received > cost.sent;
  const double other = sends ? receive : (collects ? send : 0);
  const double others_part =
      shape.nranks > 1 ? other * cost.mean * shape.nranks / (shape.nranks - 1) : 0;
  const double local = links.gamma_us_per_kib * cost.reduced + links.copy_us_per_kib * cost.copied;
  // Messages that are merged with others of a fan are only read, all in one pass.
  constexpr double kSaved = 0.75;
  const double saved = receive * cost.merged * kSaved;
  const double busiest =
      std::max(send * cost.sent + receive * cost.received - saved + local, others_part);
  // Load of the average rank, from its share of the busiest one's.
  const double evenness = cost.volume > 0 ? std::min(1.0, cost.mean / cost.volume) : 1.0;
  const double average = (send + receive) * cost.mean + (local - saved) * evenness;
  // Ranks that share cores let a pipeline run dry whenever another rank has the core.
  const double filled_kib = cost.fill * (crowd > 1 ? total_kib : std::min(total_kib, window_kib));
  // A rank that shares its core moves no more messages in a turn than there are slots.
  const double turns =
      crowd > 1 && cost.streams ? cost.messages * windows / static_cast<double>(links.slots) : 0;
  return latency * (waits + (cost.rounds > 0 ? turns / cost.rounds : 0)) +
         overhead * windows * std::max(1.0, crowd * evenness) +
         beta * (cost.volume * total_kib + filled_kib) +
         std::max(busiest, crowd * average) * total_kib + other * message_kib +
         (send + receive) * filled_kib;
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
