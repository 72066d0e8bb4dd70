// Many communicators of the same ranks: differences of their choices and costs.
#include <array>

#include "api/handle.h"
#include "tools/explain/measure.h"
#include "tools/explain/ranks.h"
#include "tuning/selector.h"

namespace whorl::explain {
namespace {

constexpr std::size_t kClasses = Selector::kClasses;

/// Costs and choices of a communicator, as written by rank 0.
struct Found {
  LinkCosts links;
  std::uint64_t digest;
  std::array<std::array<std::uint8_t, kClasses>, kNumCollectives> picks;
};

void note(const Communicator& communicator, Found& found) {
  found.links = communicator.links();
  found.digest = communicator.digest();
  for (std::size_t c = 0; c < found.picks.size(); ++c) {
    for (std::size_t k = 0; k < kClasses; ++k) {
      const Algorithm& pick =
          communicator.selector().pick(static_cast<Collective>(c), std::size_t{1} << k);
      found.picks[c][k] = static_cast<std::uint8_t>(&pick - all_algorithms().data());
    }
  }
}

} // namespace

Result<Scatter> measure_scatter(int nranks, int communicators, bool fresh) {
  const int each = fresh ? 1 : communicators; // communicators of one set of processes
  Scatter result;
  result.picks.assign(kNumCollectives, {kClasses, std::vector<const Algorithm*>{}});
  const auto create = [&](RankProcess& process, void* shared) {
    for (int i = 0; i < each; ++i) {
      const whorlComm_t comm = process.create("");
      if (process.rank() == 0) note(*comm->communicator, static_cast<Found*>(shared)[i]);
      process.check(whorlCommDestroy(comm), "whorlCommDestroy");
    }
  };
  const auto add = [&](void* shared) {
    for (int i = 0; i < each; ++i) {
      const Found& found = static_cast<Found*>(shared)[i];
      result.links.push_back(found.links);
      result.digests.push_back(found.digest);
      for (std::size_t c = 0; c < kNumCollectives; ++c) {
        for (std::size_t k = 0; k < kClasses; ++k) {
          result.picks[c][k].push_back(&all_algorithms()[found.picks[c][k]]);
        }
      }
    }
  };
  for (int made = 0; made < communicators; made += each) {
    WHORL_TRY(run_ranks(nranks, static_cast<std::size_t>(each) * sizeof(Found), create, add));
  }
  return result;
}

} // namespace whorl::explain
