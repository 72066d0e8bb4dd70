#include "tools/stat/why.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "monitor/obstacle.h"

namespace whorl::stat {
namespace {

using monitor::Phase;
using monitor::RecordedOperation;

/// Ranks of one communicator on this machine.
class Chains {
 public:
  /// `everybody`: the ranks of all communicators; outlives this object, as `ranks` does.
  Chains(const std::vector<Rank>& ranks, const std::vector<Rank>& everybody)
      : everybody_(everybody) {
    for (const Rank& rank : ranks) by_number_[rank.page.rank] = &rank;
  }

  /// Adds the sentences of find_culprits() to `out`.
  void explain(std::vector<std::string>& out) const {
    struct Waiters {
      std::vector<int> ranks;
      std::uint64_t longest_ns = 0;
      std::string in;
    };
    std::map<std::string, Waiters> by_reason;
    for (const auto& [number, rank] : by_number_) {
      if (!rank->waits_long()) continue;
      Waiters& waiters = by_reason[reason(*rank)];
      waiters.ranks.push_back(number);
      if (rank->waited_ns() <= waiters.longest_ns) continue;
      waiters.longest_ns = rank->waited_ns();
      const RecordedOperation* const current = rank->current();
      waiters.in = rank->page.phase == Phase::kCreating ? "the creation of the communicator"
                   : current == nullptr                 ? "an operation"
                                                        : describe(*current);
    }
    for (const auto& [why, waiters] : by_reason) {
      out.push_back(
          fmt::format("{} {} {} in {}, for {}: {}", waiters.ranks.size() > 1 ? "ranks" : "rank",
                      fmt::join(waiters.ranks, ", "), waiters.ranks.size() > 1 ? "wait" : "waits",
                      waiters.in, monitor::duration(waiters.longest_ns), why));
    }
  }

 private:
  /// Returns why a rank waits: what is wrong at the end of its chain.
  std::string reason(const Rank& waiting) const {
    const Rank* at = &waiting;
    std::vector<int> chain;
    for (;;) {
      if (std::find(chain.begin(), chain.end(), at->page.rank) != chain.end()) {
        return circle({std::find(chain.begin(), chain.end(), at->page.rank), chain.end()});
      }
      chain.push_back(at->page.rank);
      const int next = at->page.wait.peer;
      if (at->page.phase == Phase::kCreating) return creation(*at);
      if (next < 0) return fmt::format("{} is {}", at->name(), at->page.wait.text);
      const auto found = by_number_.find(next);
      if (found == by_number_.end()) return elsewhere(*at);
      const Rank& peer = *found->second;
      if (std::string why = monitor::obstacle(peer, *at, everybody_); !why.empty()) return why;
      at = &peer;
    }
  }

  /// Describes a creation that takes long: a rank that is stopped; else its step, and the ranks
  /// that are not on this machine.
  std::string creation(const Rank& rank) const {
    for (const auto& [number, other] : by_number_) {
      if (other->stopped()) return monitor::obstacle(*other, rank, everybody_);
    }
    constexpr std::size_t kShown = 16;
    std::vector<int> missing;
    for (int number = 0; number < rank.page.nranks && missing.size() <= kShown; ++number) {
      if (!by_number_.contains(number)) missing.push_back(number);
    }
    if (missing.empty())
      return fmt::format("{}; all ranks are on this machine", rank.page.wait.text);
    const bool more = missing.size() > kShown;
    if (more) missing.pop_back();
    return fmt::format("{}; not on this machine, or not begun: {}{}", rank.page.wait.text,
                       fmt::join(missing, ", "), more ? " and more" : "");
  }

  static std::string circle(std::vector<int> ranks) {
    std::rotate(ranks.begin(), std::min_element(ranks.begin(), ranks.end()), ranks.end());
    return fmt::format(
        "ranks {} wait for one another in a circle: sends and receives that do not "
        "fit together, or calls of several communicators in different orders",
        fmt::join(ranks, ", "));
  }

  static std::string elsewhere(const Rank& waiter) {
    return fmt::format(
        "{} is {}, which has ended, or belongs to another host or user: if so, run "
        "whorl-stat --why there",
        waiter.name(), waiter.page.wait.text);
  }

  const std::vector<Rank>& everybody_;
  std::map<int, const Rank*> by_number_;
};

} // namespace

std::vector<std::string> find_culprits(const std::vector<Rank>& ranks) {
  std::vector<std::string> sentences;
  for (const auto& communicator : by_communicator(ranks)) {
    Chains(communicator, ranks).explain(sentences);
  }
  return sentences;
}

} // namespace whorl::stat
