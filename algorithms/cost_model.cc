#include "algorithms/cost_model.h"

#include <algorithm>
#include <cmath>

#include "algorithms/crossing.h"

namespace whorl {

// Predicts T = rounds + passage + processor time, for a vector cut into windows:
//
//     rounds      α for each, once for each window that waits for the one before, else once in all
//     passage     β·volume: time on the links, beside processor time; or the time of the slowest
//                 boundary of a group, if that is more
//     processor   of the busiest rank, or where ranks share cores, of all the ranks of a core if
//                 that is more: overhead for each message; sending, receiving, reducing and copying
//                 for each byte
//     filling     of a pipeline of chunks: data costs of one window, in part
//
// A rank sends and receives with the same processor, so in shared memory a message costs a copy at
// either end. Slots are written in turn, so all slots that a core's ranks use compete for its
// cache; where they do not fit, each byte moved costs a share more.

Predictor::Predictor(const Algorithm& algorithm, const Shape& shape, const LinkCosts& links)
    : algorithm_(&algorithm), nranks_(shape.nranks), links_(links), cost_(algorithm.cost(shape)) {
  const std::size_t outermost = levels() - 1;
  LevelPart rest{cost_.rounds, cost_.volume, cost_.messages};
  for (std::size_t level = 0; level < std::min(outermost, cost_.inner.size()); ++level) {
    const LevelPart& part = parts_.at(level) = cost_.inner.at(level);
    rest.rounds -= part.rounds;
    rest.volume -= part.volume;
    rest.messages -= part.messages;
  }
  parts_.at(outermost) = rest;
  // Rounds were measured with all ranks of a core taking part.
  links_.ranks_per_core = std::max(1.0, links.ranks_per_core);
  links_.outermost().link.alpha_us *= std::max(cost_.outer_ranks, 1 / links_.ranks_per_core);
  const auto shared = [](const Level& level) { return level.boundary_us_per_kib > 0; };
  if (std::none_of(links.levels.begin(), links.levels.begin() + outermost, shared)) return;
  const auto crossed = crossings(algorithm, shape);
  for (std::size_t level = 0; level < outermost; ++level) {
    const double us = links.levels.at(level).boundary_us_per_kib * crossed.at(level);
    if (us <= boundary_us_per_kib_) continue;
    boundary_us_per_kib_ = us;
    narrowest_ = level + 1;
  }
}

double Predictor::weighed(double Link::*what, double LevelPart::*by) const {
  double sum = 0, weights = 0;
  for (std::size_t level = 0; level < levels(); ++level) {
    sum += links_.levels.at(level).link.*what * parts_.at(level).*by;
    weights += parts_.at(level).*by;
  }
  return weights > 0 ? sum / weights : links_.outermost().link.*what;
}

Prediction Predictor::predict(std::size_t bytes) const {
  const double total_kib = static_cast<double>(bytes) / 1024;
  const double window_kib = std::max(1.0, cost_.window) *
                            static_cast<double>(std::max<std::size_t>(links_.message_bytes, 1)) /
                            1024;
  const double windows = std::max(1.0, std::ceil(total_kib / window_kib));
  const double waits = cost_.streams ? 1.0 : windows;
  const double crowd = links_.ranks_per_core;
  const double overhead = cost_.messages * weighed(&Link::overhead_us, &LevelPart::messages);
  const double message_kib = std::min(total_kib, window_kib) / std::max(1.0, cost_.window);

  // Slots lie in the caches of both ends: up to about twice the cache of a core the used ones stay
  // there; beyond that, moving them costs so much more.
  constexpr double kFarther = 1.2;
  const double used_kib = crowd * cost_.fifos * static_cast<double>(links_.slots) * message_kib;
  const double cache_kib = 2 * static_cast<double>(links_.cache_bytes) / 1024;
  const double dear = 1 + kFarther * (used_kib > cache_kib ? 1 - cache_kib / used_kib : 0);
  const double send = dear * weighed(&Link::send_us_per_kib, &LevelPart::volume);
  const double receive = dear * weighed(&Link::receive_us_per_kib, &LevelPart::volume);
  const double beta = weighed(&Link::beta_us_per_kib, &LevelPart::volume);

  // If one rank sends everything, or receives everything, the last message has still to be
  // received, or the first one to be sent; and each other rank is busy with its part.
  const bool sends = cost_.sent > cost_.received, collects = cost_.received > cost_.sent;
  const double other = sends ? receive : (collects ? send : 0);
  const double others_part = nranks_ > 1 ? other * cost_.mean * nranks_ / (nranks_ - 1) : 0;
  const double local =
      links_.gamma_us_per_kib * cost_.reduced + links_.copy_us_per_kib * cost_.copied;
  // Messages that are merged with others of a fan are only read, all in one pass.
  constexpr double kSaved = 0.75;
  const double saved = receive * cost_.merged * kSaved;
  const double moved = send * cost_.sent + receive * cost_.received - saved;
  const double busiest = std::max(moved + local, others_part);
  // Load of the average rank, from its share of the busiest one's.
  const double evenness = cost_.volume > 0 ? std::min(1.0, cost_.mean / cost_.volume) : 1.0;
  const double average = (send + receive) * cost_.mean + (local - saved) * evenness;
  // Ranks that share cores let a pipeline run dry whenever another rank has the core.
  const double filled_kib = cost_.fill * (crowd > 1 ? total_kib : std::min(total_kib, window_kib));
  // A rank that shares its core moves no more messages in a turn than there are slots.
  const double turns =
      crowd > 1 && cost_.streams ? cost_.messages * windows / static_cast<double>(links_.slots) : 0;
  const double times = waits + (cost_.rounds > 0 ? turns / cost_.rounds : 0);
  const double processor = std::max(busiest, crowd * average) * total_kib + other * message_kib +
                           (send + receive) * filled_kib;
  const double on_links = beta * cost_.volume * total_kib;
  const double through_boundary = boundary_us_per_kib_ * total_kib;

  Prediction found;
  const double copying = moved + local > 0 ? processor * moved / (moved + local) : 0;
  const double volume_us = (weighed(&Link::send_us_per_kib, &LevelPart::volume) +
                            weighed(&Link::receive_us_per_kib, &LevelPart::volume)) *
                           cost_.volume;
  for (std::size_t level = 0; level < levels(); ++level) {
    const Link& link = links_.levels.at(level).link;
    const LevelPart& part = parts_.at(level);
    double& us = found.level_us.at(level);
    us = part.rounds * link.alpha_us * times;
    if (on_links >= through_boundary) us += link.beta_us_per_kib * part.volume * total_kib;
    if (cost_.volume > 0) us += beta * filled_kib * part.volume / cost_.volume;
    if (volume_us > 0) {
      us += copying * (link.send_us_per_kib + link.receive_us_per_kib) * part.volume / volume_us;
    }
  }
  if (on_links < through_boundary) found.level_us.at(narrowest_) += through_boundary;
  found.us = cost_.rounds * weighed(&Link::alpha_us, &LevelPart::rounds) * times +
             overhead * windows * std::max(1.0, crowd * evenness) +
             std::max(on_links, through_boundary) + beta * filled_kib + processor;
  return found;
}

std::vector<Predictor> predictors(Collective collective, const Shape& shape,
                                  const LinkCosts& links) {
  std::vector<Predictor> found;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == collective && algorithm.supports(shape)) {
      found.emplace_back(algorithm, shape, links);
    }
  }
  return found;
}

const Algorithm* choose_algorithm(const std::vector<Predictor>& predictors, std::size_t bytes) {
  const Algorithm* best = nullptr;
  double best_us = 0;
  for (const Predictor& predictor : predictors) {
    const double us = predictor.predict(bytes).us;
    if (best == nullptr || us < best_us) {
      best = &predictor.algorithm();
      best_us = us;
    }
  }
  return best;
}

} // namespace whorl
