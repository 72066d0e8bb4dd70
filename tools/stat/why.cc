#include "tools/stat/why.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tools/stat/table.h"

namespace whorl::stat {
namespace {

using monitor::Phase;
using monitor::RecordedOperation;

/// Shortest wait that is worth a question: waits of milliseconds belong to every program.
constexpr std::uint64_t kLongNs = 100'000'000;

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
      if (!waits_long(*rank)) continue;
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
                      waiters.in, duration(waiters.longest_ns), why));
    }
  }

 private:
  static bool waits_long(const Rank& rank) {
    return rank.waits() && rank.waited_ns() >= kLongNs && !rank.stopped();
  }

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
      if (std::string why = obstacle(peer, *at); !why.empty()) return why;
      at = &peer;
    }
  }

  /// Describes a creation that takes long: its step, and the ranks that are not on this machine.
  std::string creation(const Rank& rank) const {
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

  /// Returns why a rank for which `waiter` waits does not go on, in words; empty if it waits
  /// itself.
  std::string obstacle(const Rank& rank, const Rank& waiter) const {
    const std::string name = rank.name();
    if (rank.stopped()) {
      return fmt::format("{} is stopped, by a signal or a debugger; kill -CONT {} lets it go on",
                         name, rank.pid);
    }
    if (rank.page.phase == Phase::kFailed) {
      return fmt::format("{} has failed: {}", name, rank.page.error);
    }
    const RecordedOperation* const current = rank.current();
    if (current == nullptr && waits_long(rank)) return {};
    if (current == nullptr) {
      if (const Rank* const other = busy_elsewhere(rank)) {
        return fmt::format("{} has not made this call; its process is in {} of communicator {}{}",
                           name, activity(*other), monitor::hex(other->page.job).substr(0, 8),
                           other->page.name.empty() ? "" : " \"" + other->page.name + "\"");
      }
      return fmt::format("{} has not made this call; {}", name, activity(rank));
    }
    const RecordedOperation* const awaited = waiter.current();
    if (awaited != nullptr && awaited->peer < 0 && current->peer < 0 &&
        awaited->fingerprint.sequence == current->fingerprint.sequence &&
        !(awaited->fingerprint == current->fingerprint)) {
      return fmt::format(
          "{} is in another operation, {}; all ranks must make the same calls in the "
          "same order",
          name, describe(*current));
    }
    if (waits_long(rank)) return {};
    return fmt::format("{} works on {}", name, activity(rank));
  }

  /// Returns the rank of the same process that is in an operation of another communicator; null if
  /// there is none, or the process has several ranks here, whose threads do different things.
  const Rank* busy_elsewhere(const Rank& rank) const {
    const auto here = std::count_if(by_number_.begin(), by_number_.end(),
                                    [&](const auto& it) { return it.second->pid == rank.pid; });
    if (here > 1) return nullptr;
    const auto found = std::find_if(everybody_.begin(), everybody_.end(), [&](const Rank& other) {
      return other.pid == rank.pid && other.page.job != rank.page.job &&
             other.page.phase == Phase::kReady && other.current() != nullptr;
    });
    return found == everybody_.end() ? nullptr : &*found;
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
