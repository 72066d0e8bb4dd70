// Evaluation of measured times and choices.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/explain/explain.h"
#include "tools/explain/ranks.h"
#include "tuning/selector.h"

namespace whorl::explain {
namespace {

/// Number of classes of the distance between two processors, as shown by an exchange of flags:
/// threads of one core, cores that share a last-level cache, cores that do not.
constexpr std::size_t kDistances = 3;
std::size_t distance(double exchange_ns) {
  constexpr double kNearNs = 22, kFarNs = 120;
  return exchange_ns < kNearNs ? 0 : (exchange_ns < kFarNs ? 1 : 2);
}

std::size_t index_of(const std::vector<const Algorithm*>& algorithms, const Algorithm* one) {
  return static_cast<std::size_t>(std::find(algorithms.begin(), algorithms.end(), one) -
                                  algorithms.begin());
}

/// Returns the rounds of the most frequent distance, if that was the same before and after the
/// round.
std::vector<const Round*> alike(const std::vector<Round>& rounds) {
  std::array<std::vector<const Round*>, kDistances> found;
  for (const Round& round : rounds) {
    const std::size_t before = distance(round.exchange_ns[0]);
    if (before == distance(round.exchange_ns[1])) found[before].push_back(&round);
  }
  return *std::max_element(found.begin(), found.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
}

std::string quantiles(const std::vector<LinkCosts>& links,
                      const std::function<double(const LinkCosts&)>& field) {
  std::vector<double> values;
  for (const LinkCosts& costs : links) values.push_back(field(costs));
  return fmt::format("{:.3f} … {:.3f} … {:.3f} … {:.3f}", quantile(values, 0),
                     quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9)) +
         fmt::format(" … {:.3f}", quantile(values, 1));
}

/// Returns how often each algorithm was picked.
std::map<const Algorithm*, int> count(const std::vector<const Algorithm*>& picks) {
  std::map<const Algorithm*, int> times;
  for (const Algorithm* pick : picks) ++times[pick];
  return times;
}
int not_as_most(const std::vector<const Algorithm*>& picks) {
  int most = 0;
  for (const auto& [pick, times] : count(picks)) most = std::max(most, times);
  return static_cast<int>(picks.size()) - most;
}

} // namespace

double Row::regret(const std::vector<const Algorithm*>& algorithms) const {
  const std::size_t chosen = index_of(algorithms, choice);
  if (chosen == algorithms.size()) return 0;
  const double ours = (measured_us[chosen] + again_us) / 2;
  double best = ours;
  for (std::size_t a = 0; a < measured_us.size(); ++a) {
    if (a != chosen) best = std::min(best, measured_us[a]);
  }
  return ours / best - 1;
}

double Row::of_bound(const std::vector<const Algorithm*>& algorithms) const {
  const std::size_t chosen = index_of(algorithms, choice);
  if (chosen == algorithms.size()) return 0;
  const double ours =
      measured_us.empty() ? predicted[chosen].us : (measured_us[chosen] + again_us) / 2;
  return ours > 0 ? least.us / ours : 0;
}

double Row::noise(const std::vector<const Algorithm*>& algorithms) const {
  const std::size_t chosen = index_of(algorithms, choice);
  if (chosen == algorithms.size()) return 0;
  const auto [less, more] = std::minmax(measured_us[chosen], again_us);
  return more / less - 1;
}

void enter(std::vector<Row>& rows, const Measurement& measured) {
  for (std::size_t s = 0; s < rows.size(); ++s) {
    Row& row = rows[s];
    row.choice = measured.picks[s];
    row.rounds = measured.rounds[s];
    std::vector<const Round*> rounds = alike(row.rounds);
    if (rounds.empty()) { // the distance changed in every round
      for (const Round& round : row.rounds) rounds.push_back(&round);
    }
    const auto values = [&](const auto& field) {
      std::vector<double> found;
      for (const Round* round : rounds) found.push_back(field(*round));
      return found;
    };
    for (std::size_t a = 0; a < row.predicted.size(); ++a) {
      const auto us = values([a](const Round& round) { return round.us[a]; });
      row.measured_us.push_back(quantile(us, 0.5));
      row.spread.push_back((quantile(us, 0.75) - quantile(us, 0.25)) / row.measured_us.back());
    }
    row.again_us = quantile(values([](const Round& round) { return round.again_us; }), 0.5);
  }
}

std::string scatter_text(const Arguments& arguments, const Scatter& scatter) {
  const auto& links = scatter.links;
  std::string text =
      fmt::format("{} communicators of {} ranks; least … 10 % … median … 90 % … greatest\n",
                  links.size(), arguments.shape.nranks);
  const auto add = [&](const char* name, const std::function<double(const LinkCosts&)>& field) {
    text += fmt::format("{:>22}  {}\n", name, quantiles(links, field));
  };
  add("a round, µs", [](const LinkCosts& c) { return c.outermost().link.alpha_us; });
  add("a message, µs", [](const LinkCosts& c) { return c.outermost().link.overhead_us; });
  add("sending, µs/KiB", [](const LinkCosts& c) { return c.outermost().link.send_us_per_kib; });
  add("receiving, µs/KiB",
      [](const LinkCosts& c) { return c.outermost().link.receive_us_per_kib; });
  add("passing, µs/KiB", [](const LinkCosts& c) { return c.outermost().link.beta_us_per_kib; });
  add("reducing, µs/KiB", [](const LinkCosts& c) { return c.gamma_us_per_kib; });
  add("copying, µs/KiB", [](const LinkCosts& c) { return c.copy_us_per_kib; });
  std::map<std::uint64_t, int> digests;
  for (const std::uint64_t digest : scatter.digests) ++digests[digest];
  text += "\ndigests of choices, and of how many communicators:";
  for (const auto& [digest, times] : digests) text += fmt::format("  {:016x} {}", digest, times);
  text += fmt::format("\n\n{:>10}  choices of {}\n", "up to", name_of(arguments.collective));
  int others = 0, entries = 0;
  for (std::size_t c = 0; c < scatter.picks.size(); ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::kSend || collective == Collective::kRecv) continue;
    for (std::size_t k = 3; k <= 30; ++k) { // 8 B to 1 GiB
      const auto& picks = scatter.picks[c][k];
      others += not_as_most(picks);
      entries += static_cast<int>(picks.size());
      if (collective != arguments.collective) continue;
      text += fmt::format("{:>8} B ", std::size_t{1} << k);
      for (const auto& [pick, times] : count(picks))
        text += fmt::format("  {} {}", pick->name, times);
      text += "\n";
    }
  }
  text += fmt::format(
      "\nall collectives, 8 B to 1 GiB: {:.2f} % of choices are not those of most communicators\n",
      100.0 * others / std::max(entries, 1));
  return text;
}

} // namespace whorl::explain
