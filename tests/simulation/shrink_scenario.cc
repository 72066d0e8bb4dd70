// Ranks that remain when others die, or are excluded, meet in a new communicator: all in the same
// one, whoever dies meanwhile.
#include <algorithm>

#include "simulation/meeting_again.h"
#include "simulation/programs.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

constexpr std::uint64_t kLongestNs = 8'000'000'000; ///< longest time until all have met

struct Plan {
  Program program;
  std::vector<int> victims;          ///< ranks that die, if they come that far
  std::vector<std::uint64_t> deaths; ///< accesses until then, by victim
  std::vector<int> excluded;         ///< list that ranks give; empty: they find out who is lost
  int differs = -1;                  ///< rank that gives another list; −1: none
};

Plan make_plan(int ranks) {
  Random& random = world().random();
  Plan plan;
  plan.program = make_program(ranks);
  add_pauses(plan.program, random.one_of<std::uint64_t>(10'000, 1'000'000, 40'000'000));
  const int first = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  plan.victims = {first};
  plan.deaths.push_back(1 + random.below(random.one_of<std::uint64_t>(300, 1'000, 3'000)));
  if (random.chance(40)) { // a second one, often after the meeting has begun
    plan.victims.push_back((first + 1) % ranks);
    plan.deaths.push_back(1 + random.below(random.one_of<std::uint64_t>(1'000, 3'000)));
  }
  if (random.chance(20)) plan.excluded = plan.victims;
  if (!plan.excluded.empty() && random.chance(30)) {
    plan.differs = (plan.victims.back() + 1) % ranks;
  }
  return plan;
}

bool holds(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

/// Shrinks, as a rank does that has seen a failure, or that others may have left with one.
void go_on(const Plan& plan, CommRank& rank, MetAgain& self) {
  std::vector<int> excluded = plan.excluded;
  if (holds(excluded, rank.number)) return;
  if (rank.number == plan.differs) excluded = {(rank.number + 1) % rank.comm->nranks()};
  meet_again(rank, excluded, self);
}

void check(CommWorld& all, const Plan& plan, const std::vector<MetAgain>& outcomes) {
  const MetAgain* first = nullptr;
  // A rank that is on the way into the new communicator may die there.
  bool may_fail = plan.differs >= 0;
  for (const CommRank& rank : all.ranks()) {
    may_fail |= rank.died() && outcomes[static_cast<std::size_t>(rank.number)].shrinks;
  }
  for (const CommRank& rank : all.ranks()) {
    if (rank.died() || holds(plan.excluded, rank.number)) continue;
    const MetAgain& one = outcomes[static_cast<std::size_t>(rank.number)];
    world().require(rank.ended_ns < 1'000'000'000 + kLongestNs, "rank {} took {} ms", rank.number,
                    rank.ended_ns / 1'000'000);
    world().require(one.error.ok() || may_fail, "rank {} cannot go on: {}", rank.number,
                    one.error.message());
    if (!one.error.ok()) continue;
    if (first == nullptr) first = &one;
    world().require(one.members == first->members && one.identity.secret == first->identity.secret,
                    "rank {} has met other ranks than others have", rank.number);
    for (const CommRank& other : all.ranks()) {
      // One that had an error may have left.
      const bool goes_on = !other.died() && !holds(plan.excluded, other.number) &&
                           outcomes[static_cast<std::size_t>(other.number)].error.ok();
      world().require(!goes_on || holds(one.members, other.number),
                      "rank {} has met without rank {}, which lives", rank.number, other.number);
    }
  }
  world().require(plan.differs < 0 || first == nullptr, "ranks with different lists have met");
}

void run_shrink(Fabric fabric) {
  constexpr int kRanks = 3;
  CommWorld all(kRanks, fabric);
  const Plan plan = make_plan(kRanks);
  std::vector<MetAgain> outcomes(kRanks);
  const auto body = [&](CommRank& rank) {
    for (std::size_t i = 0; i < plan.victims.size(); ++i) {
      if (plan.victims[i] == rank.number) world().scheduler().kill_in(plan.deaths[i]);
    }
    run_program(rank, plan.program);
    go_on(plan, rank, outcomes[static_cast<std::size_t>(rank.number)]);
  };
  all.run(body);
  if (world().failure().empty()) check(all, plan, outcomes);
}

} // namespace

void run_shrink_in_memory() { run_shrink(Fabric::kMemory); }
void run_shrink_over_tcp() { run_shrink(Fabric::kTcp); }

} // namespace whorl::simulation
