// Ranks of several hosts whose links or connections fail, or which are stopped for a while, in the
// middle of the same program: short outages are survived, of others each rank has an error in time,
// which names a rank that is cut off.
#include <algorithm>

#include "simulation/meeting_again.h"
#include "simulation/programs.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

constexpr std::uint64_t kBeginNs = 1'000'000'000; ///< time at which runs begin
/// Limits so long that silence is noticed before they end, with sleeps that make runs short.
constexpr CommLimits kLimits{
    .timeout_ns = 10'000'000'000, .block_ns = 10'000'000, .links_stall = false};

// Times that docs/reliability.md promises, and the slack for looks at the clock and latencies.
constexpr std::uint64_t kSurvivedNs = 2'000'000'000, kSilenceNs = 3'000'000'000;
constexpr std::uint64_t kDeathNs = 200'000'000, kSlackNs = 150'000'000;

enum class Fault : std::uint8_t {
  kLink,       ///< all that is sent between two hosts is lost, in one direction or both
  kHost,       ///< the same between one host and all others
  kConnection, ///< connections end at any byte
};

struct Plan {
  Fault fault = Fault::kLink;
  int culprit = 0; ///< rank at one end of all that is lost
  int other = 0;   ///< rank at the other end, if there is only one
  bool both_ways = true;
  std::uint64_t begin_ns = 0, end_ns = 0;
  bool ends_notice_late = false; ///< whether an end of a connection may learn of the cut by sending
  int frozen = -1;               ///< rank that is stopped for a while; −1: none
  std::uint64_t frozen_ns = 0;
  Program program;
};

int any_rank(int ranks) {
  return static_cast<int>(world().random().below(static_cast<std::uint64_t>(ranks)));
}

Plan make_plan(int ranks, std::uint64_t lasts_ns) {
  Random& random = world().random();
  Plan plan;
  plan.fault = random.one_of(Fault::kLink, Fault::kHost);
  plan.culprit = any_rank(ranks);
  plan.other = (plan.culprit + 1 + any_rank(ranks - 1)) % ranks;
  plan.both_ways = random.chance(50);
  plan.begin_ns =
      kBeginNs + random.below(random.one_of<std::uint64_t>(1'000'000, 30'000'000, 150'000'000));
  plan.end_ns = lasts_ns == Links::kNever ? Links::kNever : plan.begin_ns + lasts_ns;
  for (int parts = 0; parts < 2; ++parts) {
    const Program part = make_program(ranks);
    plan.program.insert(plan.program.end(), part.begin(), part.end());
  }
  add_pauses(plan.program, random.one_of<std::uint64_t>(10'000, 1'000'000, 100'000'000));
  return plan;
}

void add_freeze(Plan& plan, int ranks, std::uint64_t most_ns) {
  plan.frozen = any_rank(ranks);
  plan.frozen_ns = world().random().below(most_ns);
}

/// Puts a plan into effect. The process of a rank has the number of the rank.
void prepare(CommWorld& all, const Plan& plan) {
  all.network().delay(world().random().one_of<std::uint64_t>(100'000, 5'000'000)); // near hosts
  if (plan.fault == Fault::kConnection) {
    all.network().cut(1 + static_cast<unsigned>(world().random().below(2)),
                      world().random().one_of<std::uint64_t>(160, 600, 2'000),
                      plan.ends_notice_late);
    return;
  }
  const auto culprit = static_cast<std::size_t>(plan.culprit);
  for (int rank = 0; rank < all.nranks(); ++rank) {
    if (rank == plan.culprit || (plan.fault == Fault::kLink && rank != plan.other)) continue;
    const auto other = static_cast<std::size_t>(rank);
    all.network().links().interrupt(culprit, other, plan.begin_ns, plan.end_ns);
    if (plan.both_ways) {
      all.network().links().interrupt(other, culprit, plan.begin_ns, plan.end_ns);
    }
  }
}

void freeze_if_planned(const Plan& plan, const CommRank& rank) {
  if (rank.number != plan.frozen) return;
  world().scheduler().freeze_in(1 + world().random().below(1'000), plan.frozen_ns);
}

/// Returns the rank that an error blames, as its text describes it first; −1: none.
int blamed(const CommWorld& all, const std::string& text) {
  const bool late = has(text, "no progress within");
  int found = -1;
  std::size_t first = std::string::npos;
  for (int rank = 0; rank < all.nranks(); ++rank) {
    const std::size_t at = text.find(all.describe(rank) + (late ? " may be " : ""));
    if (at >= first) continue;
    first = at;
    found = rank;
  }
  return found;
}

/// Whether a rank is at an end of what was cut.
bool is_cut_off(CommWorld& all, const Plan& plan, int rank) {
  if (plan.fault == Fault::kConnection) {
    const auto& cuts = all.network().cuts();
    const auto process = static_cast<std::size_t>(rank);
    return std::any_of(cuts.begin(), cuts.end(),
                       [&](const auto& cut) { return cut.from == process || cut.to == process; });
  }
  return plan.fault == Fault::kHost || rank == plan.culprit || rank == plan.other;
}

/// Requires that the error of a rank names a rank that is cut off.
void check_error(CommWorld& all, const Plan& plan, const CommRank& rank) {
  const std::string& text = rank.error.message();
  if (has(text, "goes on without others")) return; // that rank was done before the cut
  const int named = blamed(all, text);
  world().require(named >= 0 && is_cut_off(all, plan, named),
                  "rank {} has an error that blames rank {}, which is not cut off: {}", rank.number,
                  named, text);
  if (plan.fault != Fault::kHost || !plan.both_ways) return;
  world().require((named == plan.culprit) == (rank.number != plan.culprit),
                  "rank {} blames rank {}, but {} is cut off from all: {}", rank.number, named,
                  plan.culprit, text);
}

/// Returns the time at which each rank that fails has its error, if all are in their last steps.
std::uint64_t deadline_of(CommWorld& all, const Plan& plan) {
  std::uint64_t from_ns = plan.begin_ns;
  bool all_connected = true;
  for (const CommRank& rank : all.ranks()) {
    from_ns = std::max(from_ns, rank.began_ns);
    all_connected &= rank.began_ns != 0;
  }
  for (const auto& cut : all.network().cuts()) from_ns = std::max(from_ns, cut.at_ns);
  from_ns += plan.frozen_ns + kSlackNs;
  if (!all_connected) return from_ns + kLimits.timeout_ns;
  if (plan.fault != Fault::kConnection) return from_ns + kSilenceNs;
  // An end that does not know of the cut, and waits for data only, has nothing but the deadline.
  return from_ns + (plan.ends_notice_late ? kLimits.timeout_ns : kDeathNs);
}

/// Requires that ranks which have met again agree, and that those have met which an outage has not
/// cut off.
void check_meeting(CommWorld& all, const Plan& plan, const std::vector<MetAgain>& met) {
  bool failed = false, all_connected = true; // the cut came between connect() and the meeting
  for (const CommRank& rank : all.ranks()) {
    failed |= has(rank.error.message(), "cannot be reached");
    all_connected &= rank.began_ns != 0;
  }
  for (int rank = 0; rank < all.nranks(); ++rank) {
    const MetAgain& one = met[static_cast<std::size_t>(rank)];
    for (const int other : one.members) {
      const MetAgain& two = met[static_cast<std::size_t>(other)];
      world().require(
          !one.error.ok() || !two.error.ok() ||
              (two.members == one.members && two.identity.secret == one.identity.secret),
          "ranks {} and {} have met each other and different ranks", rank, other);
    }
    if (!failed || !all_connected || rank == plan.culprit) continue;
    world().require(one.error.ok() && one.members.size() + 1 == met.size(),
                    "rank {} has met {} ranks, {} is cut off: {}", rank, one.members.size(),
                    plan.culprit, one.error.message());
  }
}

} // namespace

void run_outage_over_tcp() {
  const int ranks = 2 + any_rank(2);
  CommWorld all(ranks, Fabric::kTcp, kLimits);
  Random& random = world().random();
  Plan plan = make_plan(
      ranks, random.below(random.one_of<std::uint64_t>(50'000'000, 500'000'000, kSurvivedNs)));
  if (random.chance(50)) add_freeze(plan, ranks, 4'000'000'000);
  prepare(all, plan);
  all.run([&](CommRank& rank) { run_program(rank, plan.program); },
          [&](CommRank& rank) { freeze_if_planned(plan, rank); });
  for (const CommRank& rank : all.ranks()) {
    world().require(rank.error.ok(), "rank {} has an error after an outage of {} ms: {}",
                    rank.number, (plan.end_ns - plan.begin_ns) / 1'000'000, rank.error.message());
  }
}

void run_cut_over_tcp() {
  const int ranks = 2 + any_rank(2);
  CommWorld all(ranks, Fabric::kTcp, kLimits);
  Random& random = world().random();
  Plan plan = make_plan(ranks, Links::kNever);
  if (random.chance(50)) {
    plan.fault = Fault::kConnection;
    plan.ends_notice_late = random.chance(30);
  } else if (random.chance(20)) {
    add_freeze(plan, ranks, 900'000'000); // less than Heartbeat::kLongestPauseNs
  }
  const bool goes_on = plan.fault == Fault::kHost && plan.both_ways && random.chance(50);
  std::vector<MetAgain> met(static_cast<std::size_t>(ranks));
  prepare(all, plan);
  all.run(
      [&](CommRank& rank) {
        run_program(rank, plan.program);
        rank.ended_ns = sys().now_ns();
        if (goes_on) meet_again(rank, {}, met[static_cast<std::size_t>(rank.number)]);
      },
      [&](CommRank& rank) { freeze_if_planned(plan, rank); });
  if (!world().failure().empty()) return;
  const std::uint64_t deadline = deadline_of(all, plan);
  for (const CommRank& rank : all.ranks()) {
    if (rank.error.ok()) continue;
    check_error(all, plan, rank);
    world().require(rank.ended_ns <= deadline, "rank {} has its error at {} ms, after {} ms: {}",
                    rank.number, rank.ended_ns / 1'000'000, deadline / 1'000'000,
                    rank.error.message());
    const bool silent = has(rank.error.message(), "cannot be reached");
    world().require(!silent || rank.ended_ns >= plan.begin_ns + kSurvivedNs,
                    "rank {} gives rank {} up too early", rank.number, plan.culprit);
  }
  if (goes_on) check_meeting(all, plan, met);
}

} // namespace whorl::simulation
