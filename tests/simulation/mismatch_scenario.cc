// Ranks with real communicators whose programs differ in one place, or do not: what they tell each
// other of the waits in which they are stuck, and whom their errors name.
#include <algorithm>
#include <iterator>

#include "simulation/programs.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

/// How the program of one rank differs from that of the others.
enum class Flaw : std::uint8_t {
  kNone,     ///< not at all; ranks come late, which is no error
  kArgument, ///< in an argument of one call
  kOrder,    ///< in the order of two calls
  kAbsent,   ///< the rank does not come to a call
  kTransfer, ///< the rank receives a message that nobody sends
};

bool has_root(const Step& step) {
  return step.collective == Collective::kBroadcast || step.collective == Collective::kReduce;
}

bool same_call(const Step& a, const Step& b) {
  return a.collective == b.collective && a.type == b.type && a.op == b.op && a.root == b.root &&
         a.count == b.count;
}

/// Changes an argument of a step in the program of a rank.
void change_argument(Step& step, int ranks) {
  switch (world().random().below(4)) {
    case 0:
      if (has_root(step)) {
        step.root = (step.root + 1) % ranks;
        return;
      }
      break;
    case 1:
      if (reduces(step.collective)) {
        step.op = step.op == ReduceOp::kSum ? ReduceOp::kMax : ReduceOp::kSum;
        return;
      }
      break;
    case 2:
      if (step.collective != Collective::kSend) {
        step.collective = step.collective == Collective::kAllReduce ? Collective::kAllGather
                                                                    : Collective::kAllReduce;
        step.root = 0;
        step.op = ReduceOp::kSum;
        step.count = std::max<std::size_t>(step.count, 1);
        return;
      }
      break;
    case 3:
      if (step.collective != Collective::kBarrier) {
        step.type = step.type == DataType::kInt64 ? DataType::kInt32 : DataType::kInt64;
        return;
      }
      break;
  }
  if (step.collective == Collective::kBarrier) {
    step = {.collective = Collective::kBroadcast, .count = 2, .pause_ns = step.pause_ns};
  } else {
    step.count += 1 + world().random().below(60);
  }
}

/// The programs of all ranks, one of which may have a flaw.
struct Plan {
  std::vector<Program> programs;
  Flaw flaw = Flaw::kNone;
  int culprit = 0;
};

/// Puts a flaw into the culprit's program. Returns false if that program has no place for it.
bool add_flaw(Plan& plan) {
  const int ranks = static_cast<int>(plan.programs.size());
  Program& program = plan.programs[static_cast<std::size_t>(plan.culprit)];
  std::vector<std::size_t> concerned;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].concerns(plan.culprit)) concerned.push_back(i);
  }
  const std::size_t chosen = concerned[world().random().below(concerned.size())];
  Step& step = program[chosen];
  switch (plan.flaw) {
    case Flaw::kNone:
      return true;
    case Flaw::kArgument:
      change_argument(step, ranks);
      return true;
    case Flaw::kOrder: {
      if (chosen + 1 == program.size()) return false;
      Step& next = program[chosen + 1];
      const bool collectives =
          step.collective != Collective::kSend && next.collective != Collective::kSend;
      if (!collectives || same_call(step, next)) return false;
      std::swap(step, next);
      return true;
    }
    case Flaw::kAbsent:
      step.pause_ns = 8 * CommWorld::kTimeoutNs;
      return true;
    case Flaw::kTransfer: {
      if (step.collective == Collective::kSend) return false;
      const int sender = (plan.culprit + 1) % ranks;
      step = {.collective = Collective::kSend,
              .root = sender,
              .receiver = plan.culprit,
              .count = 1,
              .pause_ns = step.pause_ns};
      return true;
    }
  }
  return false;
}

Plan make_plan(int ranks) {
  Plan plan;
  const Program common = make_program(ranks);
  const std::uint64_t latest_ns =
      world().random().one_of<std::uint64_t>(10'000, 1'000'000, 200'000'000);
  for (int rank = 0; rank < ranks; ++rank) {
    add_pauses(plan.programs.emplace_back(common), latest_ns);
  }
  plan.culprit = static_cast<int>(world().random().below(static_cast<std::uint64_t>(ranks)));
  plan.flaw = world().random().one_of(Flaw::kNone, Flaw::kArgument, Flaw::kArgument, Flaw::kOrder,
                                      Flaw::kAbsent, Flaw::kTransfer);
  if (!add_flaw(plan)) plan.flaw = Flaw::kNone;
  return plan;
}

/// Whether all ranks came to their ends in transfers.
bool all_in_transfers(const Plan& plan, std::span<const CommRank> ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const CommRank& rank) {
    const auto number = static_cast<std::size_t>(rank.number);
    return rank.failed_step >= 0 &&
           plan.programs[number][static_cast<std::size_t>(rank.failed_step)].collective ==
               Collective::kSend;
  });
}

/// Requires that the error of a rank says what is wrong with the culprit's program.
void check_error(CommWorld& ranks, const Plan& plan, const CommRank& rank) {
  const std::string& text = rank.error.message();
  if (ranks.may_be_unexplained(text)) return;
  const std::string who = ranks.describe(plan.culprit);
  const bool disagrees = has(text, "ranks disagree on an operation") && has(text, who + " calls");
  const bool never_meets =
      has(text, "ranks wait for each other in different operations") && has(text, who + " in ");
  const bool late = has(text, "no progress within") && has(text, who + " may be ");
  bool right = disagrees;
  if (plan.flaw == Flaw::kNone) right = false;
  if (plan.flaw == Flaw::kAbsent) right = late;
  if (plan.flaw == Flaw::kTransfer) right = disagrees || never_meets;
  // A chain of waits through other ranks may be no proof, and a receive may have to wait for one
  // from which nothing has come: then the deadline decides.
  if (plan.flaw == Flaw::kTransfer &&
      (ranks.nranks() > 2 || all_in_transfers(plan, ranks.ranks()))) {
    right = right || has(text, "no progress within");
  }
  world().require(right, "rank {} has the wrong error, {} is to blame: {}", rank.number,
                  plan.flaw == Flaw::kNone ? "nobody" : who, text);
}

void run_mismatch(Fabric fabric) {
  const int ranks = 2 + static_cast<int>(world().random().below(2));
  CommWorld all(ranks, fabric);
  const Plan plan = make_plan(ranks);
  all.run([&](CommRank& rank) {
    run_program(rank, plan.programs[static_cast<std::size_t>(rank.number)]);
  });
  if (!world().failure().empty()) return;
  // A rank that has all messages it needs has the results, and no error.
  bool found = plan.flaw == Flaw::kNone;
  for (const CommRank& rank : all.ranks()) {
    if (rank.error.ok()) continue;
    found = true;
    check_error(all, plan, rank);
  }
  world().require(found, "no rank has an error");
}

} // namespace

void run_mismatch_in_memory() { run_mismatch(Fabric::kMemory); }
void run_mismatch_over_tcp() { run_mismatch(Fabric::kTcp); }

} // namespace whorl::simulation
