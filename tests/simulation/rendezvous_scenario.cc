// Ranks that meet at a root and gather data in a few rounds, one of which may die, not come, give
// up or want something else.
#include <optional>

#include "bootstrap/root.h"
#include "bootstrap/root_client.h"
#include "net/listener.h"
#include "simulation/network.h"
#include "simulation/scenario_list.h"
#include "simulation/world.h"

namespace whorl::simulation {
namespace {

constexpr std::uint64_t kTimeoutNs = 1'000'000'000;

/// Kind of trouble with one of the ranks.
enum class Trouble : std::uint8_t {
  kNone,
  kDeath,   ///< it dies
  kAbsent,  ///< it does not come
  kNumber,  ///< it expects another number of ranks
  kTwice,   ///< another process says that it is the same rank
  kGivesUp, ///< it gives up between two rounds
  kSize,    ///< it contributes another number of bytes in one round
};

struct Plan {
  int ranks = 2;
  Trouble trouble = Trouble::kNone;
  int culprit = 0;
  bool dies_in_round = false;     ///< whether it dies in a round, and not anywhere
  bool root_in_rank0 = true;      ///< whether the root is in the process of rank 0
  int round = 0;                  ///< round of kGivesUp, of kSize, and of kDeath if it dies in one
  std::vector<std::size_t> sizes; ///< bytes of each contribution, by round
  Identity identity;
};

/// How the rendezvous ended for a rank.
struct Outcome {
  int rank = 0;
  std::size_t fibre = 0;
  Status error;
  bool ended = false;
  std::uint64_t ended_ns = 0;
  std::optional<Identity> identity; ///< identity that it got
};

std::vector<SocketAddress> places() {
  return {SocketAddress::unix_name("w1"), SocketAddress::ipv4({10, 0, 0, 1}, 7000)};
}

std::byte content(int rank, int round, std::size_t index) {
  return static_cast<std::byte>(rank * 50 + round * 7 + static_cast<int>(index));
}

Status start(const Plan& plan) {
  std::vector<Fd> listeners;
  for (const SocketAddress& place : places()) listeners.push_back(*listen_at(place));
  return start_root_on(std::move(listeners), plan.identity,
                       {.join_timeout_ns = 2 * kTimeoutNs, .port_is_users = true});
}

/// Gathers once; requires the right table.
Status gather(const Plan& plan, Oob& oob, int rank, int round) {
  std::size_t size = plan.sizes[static_cast<std::size_t>(round)];
  if (plan.trouble == Trouble::kSize && rank == plan.culprit && round == plan.round) ++size;
  if (plan.dies_in_round && rank == plan.culprit && round == plan.round) {
    world().scheduler().kill_in(1 + world().random().below(12));
  }
  std::vector<std::byte> mine(size);
  for (std::size_t i = 0; i < size; ++i) mine[i] = content(rank, round, i);
  std::vector<std::byte> all(size * static_cast<std::size_t>(plan.ranks));
  WHORL_TRY(oob.allgather(mine, all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::byte right = content(static_cast<int>(i / size), round, i % size);
    world().require(all[i] == right, "rank {} gets {} instead of {} at {} of round {}", rank,
                    static_cast<int>(all[i]), static_cast<int>(right), i, round);
  }
  return {};
}

/// Does all that a rank does at the rendezvous.
Status meet(const Plan& plan, Outcome& self, int nranks) {
  if (self.rank == 0 && plan.root_in_rank0) WHORL_TRY(start(plan));
  RootPlace place{.identity = plan.identity,
                  .addresses = places(),
                  .same_user = false,
                  .where = "in rank 0",
                  .gone = ""};
  auto met =
      join_root({.rank = self.rank, .nranks = nranks, .timeout_ns = kTimeoutNs}, std::move(place));
  if (!met.ok()) return met.status();
  self.identity = met->identity;
  for (int round = 0; round < static_cast<int>(plan.sizes.size()); ++round) {
    if (world().random().chance(30)) sys().sleep_ns(world().random().below(3'000'000));
    if (plan.trouble == Trouble::kGivesUp && self.rank == plan.culprit && round == plan.round) {
      return met->oob->give_up(Status::error(Code::kInvalidUsage, "cause 7"));
    }
    WHORL_TRY(gather(plan, *met->oob, self.rank, round));
  }
  return {};
}

Plan make_plan() {
  Random& random = world().random();
  Plan plan;
  plan.ranks = 2 + static_cast<int>(random.below(2));
  plan.trouble =
      random.one_of(Trouble::kNone, Trouble::kDeath, Trouble::kDeath, Trouble::kAbsent,
                    Trouble::kNumber, Trouble::kTwice, Trouble::kGivesUp, Trouble::kSize);
  plan.culprit = static_cast<int>(random.below(static_cast<std::uint64_t>(plan.ranks)));
  plan.root_in_rank0 = random.chance(70);
  plan.dies_in_round = plan.trouble == Trouble::kDeath && random.chance(50);
  for (std::uint64_t rounds = 1 + random.below(3); rounds > 0; --rounds) {
    plan.sizes.push_back(random.one_of<std::size_t>(0, 1, 24, 300, 3000));
  }
  plan.round = static_cast<int>(random.below(plan.sizes.size()));
  plan.identity.job.fill(std::byte{3});
  plan.identity.secret.fill(std::byte{4});
  // The root lives where the ranks look for it.
  if (plan.trouble == Trouble::kAbsent && plan.culprit == 0) plan.root_in_rank0 = false;
  if (plan.trouble == Trouble::kTwice && plan.culprit == 0) plan.root_in_rank0 = false;
  return plan;
}

/// Whether an error names the culprit and what it did.
bool names_culprit(const Plan& plan, const Outcome& failed) {
  const std::string& text = failed.error.message();
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  const bool with_root = plan.culprit == 0 && plan.root_in_rank0;
  const std::string who = fmt::format("rank {} ", plan.culprit);
  switch (plan.trouble) {
    case Trouble::kNone:
      return false;
    case Trouble::kDeath:
      if (with_root && has("the root of the rendezvous")) return true;
      return has(who) && (has("died in the middle") || has("did not"));
    case Trouble::kAbsent:
      return has(who) && has("did not arrive");
    case Trouble::kNumber:
      return has("the ranks disagree about their number") || has("does not exist among");
    case Trouble::kTwice:
      // A rank that comes after all have met finds no root, or one that is about to end.
      return has(fmt::format("two processes say that they are rank {}", plan.culprit)) ||
             (failed.rank == plan.culprit &&
              (has("could not be reached") || has("has hung up") || has("ranks have met")));
    case Trouble::kGivesUp:
      return has("cause 7");
    case Trouble::kSize:
      return has("bytes in round");
  }
  return false;
}

void check(const Plan& plan, std::span<const Outcome> outcomes) {
  const Outcome* first_met = nullptr;
  for (const Outcome& one : outcomes) {
    if (world().scheduler().died(one.fibre) && !one.ended) continue;
    world().require(one.ended, "rank {} has not come to its end", one.rank);
    world().require(one.ended_ns < 1'000'000'000 + 2 * kTimeoutNs, "rank {} took {} ms", one.rank,
                    (one.ended_ns - 1'000'000'000) / 1'000'000);
    if (one.identity) {
      if (first_met == nullptr) first_met = &one;
      world().require(one.identity->secret == first_met->identity->secret,
                      "ranks {} and {} have different secrets", one.rank, first_met->rank);
    }
    const bool may_be_well = plan.trouble == Trouble::kNone || plan.trouble == Trouble::kDeath ||
                             plan.trouble == Trouble::kTwice;
    world().require(!one.error.ok() || may_be_well, "rank {} has no error", one.rank);
    world().require(one.error.ok() || names_culprit(plan, one),
                    "rank {} has the wrong error, trouble {} is with rank {}: {}", one.rank,
                    static_cast<int>(plan.trouble), plan.culprit, one.error.message());
  }
}

} // namespace

void run_rendezvous() {
  Network network;
  const ScopedSystem replaced(&network);
  const Plan plan = make_plan();
  const bool fills = world().random().chance(50);
  network.fill(fills);
  if (!plan.root_in_rank0) {
    world().add("root", [&] {
      const Status started = start(plan);
      world().require(started.ok(), "{}", started.message());
    });
  }
  std::vector<int> numbers;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (plan.trouble != Trouble::kAbsent || rank != plan.culprit) numbers.push_back(rank);
  }
  if (plan.trouble == Trouble::kTwice) numbers.push_back(plan.culprit);
  std::vector<Outcome> outcomes(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Outcome& self = outcomes[i];
    self.rank = numbers[i];
    self.fibre = world().add(fmt::format("rank {}", self.rank), [&plan, &self, fills] {
      if (world().random().chance(70)) sys().sleep_ns(world().random().below(30'000'000));
      if (plan.trouble == Trouble::kDeath && !plan.dies_in_round && self.rank == plan.culprit) {
        world().scheduler().kill_in(1 + world().random().below(200));
      }
      const bool miscounts = plan.trouble == Trouble::kNumber && self.rank == plan.culprit;
      self.error = meet(plan, self, plan.ranks + (miscounts ? 1 : 0));
      self.ended_ns = sys().now_ns();
      self.ended = true;
      // The process may end at once, and a root in it. Where a socket was full, the root has not
      // sent all answers yet, and after a failure it answers ranks that come late.
      if (fills || !self.error.ok()) sys().sleep_ns(3 * kTimeoutNs);
      world().scheduler().exit();
    });
  }
  world().run();
  if (world().failure().empty()) check(plan, outcomes);
}

} // namespace whorl::simulation
