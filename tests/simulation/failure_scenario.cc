// Ranks with real communicators, one or two of which fail or die in the middle of the same program:
// the cause that all others report, and that it stays.
#include <algorithm>

#include "simulation/programs.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

/// Kind of failure.
enum class Failure : std::uint8_t {
  kAbort, ///< another thread of the rank aborts the communicator, whatever its program is doing
  kDeath, ///< the rank dies
  kLeave, ///< the rank destroys its communicator in the middle of its program
};

struct Plan {
  Failure failure = Failure::kAbort;
  std::vector<int> failing; ///< ranks that fail
  Program program;
};

std::string cause_of(int rank) { return fmt::format("cause {}", rank); }

Plan make_plan(int ranks) {
  Random& random = world().random();
  Plan plan;
  plan.failure = random.one_of(Failure::kAbort, Failure::kDeath, Failure::kDeath, Failure::kLeave);
  const int first = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  plan.failing.push_back(first);
  if (plan.failure == Failure::kAbort && random.chance(50)) {
    plan.failing.push_back((first + 1) % ranks);
  }
  plan.program = make_program(ranks);
  add_pauses(plan.program, random.one_of<std::uint64_t>(10'000, 1'000'000, 100'000'000));
  return plan;
}

bool fails(const Plan& plan, int rank) {
  return std::find(plan.failing.begin(), plan.failing.end(), rank) != plan.failing.end();
}

/// Aborts from another thread of the rank, at any time of the program.
void abort_later(CommRank& rank) {
  const std::uint64_t delay_ns =
      world().random().below(world().random().one_of<std::uint64_t>(10'000, 1'000'000, 60'000'000));
  world().add_to_process(fmt::format("aborts {}", rank.number), [&rank, delay_ns] {
    sys().sleep_ns(delay_ns);
    if (rank.comm == nullptr) return;
    rank.aborts = true;
    rank.comm->abort(Status::error(Code::kInvalidUsage, cause_of(rank.number)));
    rank.aborts = false;
  });
}

/// Whether the text of an error names what really went wrong.
bool names_cause(CommWorld& all, const Plan& plan, const CommRank& failed) {
  const std::string& text = failed.error.message();
  if (all.may_be_unexplained(text)) return true;
  return std::any_of(plan.failing.begin(), plan.failing.end(), [&](int rank) {
    const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
    switch (plan.failure) {
      case Failure::kAbort:
        return has(cause_of(rank));
      case Failure::kDeath:
        // A rank that died before it was connected may also not have come.
        return has(all.describe(rank) + (failed.failed_step < 0 ? "" : " died"));
      case Failure::kLeave:
        return has(all.describe(rank) + " has destroyed its communicator");
    }
    return false;
  });
}

/// Looks at a communicator that has failed for a while: its error must not change.
void look_again(CommRank& rank) {
  const std::string before = rank.comm_error->status().message();
  for (int looks = 0; looks < 4; ++looks) {
    sys().sleep_ns(world().random().below(20'000'000));
    const std::string now = rank.comm->state().message();
    world().require(now == before, "the error of rank {} was \"{}\" and is now \"{}\"", rank.number,
                    before, now);
  }
}

void run_failure(Fabric fabric) {
  const int ranks = 2 + static_cast<int>(world().random().below(2));
  CommWorld all(ranks, fabric);
  const Plan plan = make_plan(ranks);
  const std::size_t leaves_at = world().random().below(plan.program.size());
  const auto body = [&](CommRank& rank) {
    const bool failing = fails(plan, rank.number);
    if (failing && plan.failure == Failure::kAbort) abort_later(rank);
    Program program = plan.program;
    if (failing && plan.failure == Failure::kLeave) program.resize(leaves_at);
    run_program(rank, program);
    if (!rank.error.ok()) look_again(rank);
    while (rank.aborts) sys().sleep_ns(1'000);
  };
  all.run(body, [&](CommRank& rank) {
    if (plan.failure == Failure::kDeath && fails(plan, rank.number)) {
      world().scheduler().kill_in(1 + world().random().below(1'000));
    }
  });
  if (!world().failure().empty()) return;
  for (const CommRank& rank : all.ranks()) {
    if (rank.died() || rank.error.ok()) continue;
    const std::string& text = rank.error.message();
    world().require(names_cause(all, plan, rank), "rank {} has the wrong error, rank {} failed: {}",
                    rank.number, plan.failing.front(), text);
    // Before the timeout, which would be a second after the last call.
    world().require(rank.failed_step < 0 || rank.ended_ns < 1'000'000'000 + CommWorld::kTimeoutNs,
                    "rank {} has its error after {} ms", rank.number, rank.ended_ns / 1'000'000);
  }
}

} // namespace

void run_failure_in_memory() { run_failure(Fabric::kMemory); }
void run_failure_over_tcp() { run_failure(Fabric::kTcp); }

} // namespace whorl::simulation
