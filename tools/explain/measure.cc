// Times all algorithms in turn within a round, so that disturbances of the machine affect all of
// them alike:
//
//     round     | A1 | B1 | C1 | pick2 | C1 | pick2 | A1 | B1 | …     1, 2: communicators
//     distance  ^                      ^                      ^       of the cores, between rounds
#include "tools/explain/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

#include "api/handle.h"
#include "perf/common/forked.h"
#include "tools/explain/ranks.h"

namespace whorl::explain {
namespace {

constexpr double kBatchUs = 600; // time of one algorithm in one round
constexpr int kMaxOperations = 40;

/// Memory that the ranks share; the times follow it.
struct Board {
  LinkCosts links;
  bool probed;
  std::uint64_t digest;
  std::array<std::uint8_t, 64> picks;
  double times[1]; ///< first of the values of Times
};

/// Times in µs by size, round, column (the algorithms, then the pick again) and rank. The distances
/// of the cores follow, for each size, before each round and after the last.
class Times {
 public:
  Times(Board& board, const Plan& plan)
      : board_(board),
        rounds_(static_cast<std::size_t>(plan.rounds)),
        columns_(plan.algorithms.size() + 1),
        ranks_(static_cast<std::size_t>(plan.nranks)),
        all_(plan.sizes.size() * rounds_ * columns_ * ranks_) {}
  std::size_t bytes(const Plan& plan) const {
    return sizeof(Board) + sizeof(double) * (all_ + plan.sizes.size() * (rounds_ + 1));
  }
  double& at(std::size_t size, std::size_t round, std::size_t column, std::size_t rank) {
    return board_.times[((size * rounds_ + round) * columns_ + column) * ranks_ + rank];
  }
  double slowest(std::size_t size, std::size_t round, std::size_t column) {
    double* const first = &at(size, round, column, 0);
    return *std::max_element(first, first + ranks_);
  }
  double& distance(std::size_t size, std::size_t round) {
    return board_.times[all_ + size * (rounds_ + 1) + round];
  }

 private:
  Board& board_;
  std::size_t rounds_, columns_, ranks_, all_;
};

class Rank {
 public:
  Rank(RankProcess& process, Board& board, const Plan& plan)
      : process_(process), board_(board), plan_(plan), times_(board, plan) {}

  void run() {
    process_.meet();
    free_ = process_.create("");
    const Communicator& communicator = *free_->communicator;
    if (process_.rank() == 0) {
      board_.links = communicator.links();
      board_.probed = communicator.probed();
      board_.digest = communicator.digest();
    }
    for (const Algorithm* algorithm : plan_.algorithms) comms_.push_back(create(*algorithm));
    const Shape shape{.nranks = plan_.nranks};
    for (std::size_t s = 0; s < plan_.sizes.size(); ++s) {
      const Algorithm& pick = communicator.selector().pick(plan_.collective, plan_.sizes[s]);
      if (process_.rank() == 0) {
        board_.picks[s] = static_cast<std::uint8_t>(&pick - all_algorithms().data());
      }
      const Algorithm* const shown = same_schedules(&pick, plan_.algorithms, shape);
      if (!again_.contains(shown)) again_[shown] = create(*shown);
      picks_.push_back(again_[shown]);
    }
    const std::size_t largest = *std::max_element(plan_.sizes.begin(), plan_.sizes.end());
    input_.assign(largest / sizeof(float) + static_cast<std::size_t>(plan_.nranks), 1.0F);
    output_.assign(input_.size(), 0.0F);
    for (std::size_t size = 0; size < plan_.sizes.size(); ++size) measure(size);
    output_[0] = sum_;
    for (const auto& [algorithm, comm] : again_) comms_.push_back(comm);
    comms_.push_back(free_);
    for (const whorlComm_t comm : comms_) {
      process_.check(whorlCommDestroy(comm), "whorlCommDestroy");
    }
  }

 private:
  whorlComm_t create(const Algorithm& algorithm) {
    return process_.create(fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name));
  }
  /// Returns the bytes of a rank's input and output, where the larger side has `bytes`.
  std::pair<std::size_t, std::size_t> sides(std::size_t bytes) const {
    const std::size_t block =
        std::max<std::size_t>(bytes / static_cast<std::size_t>(plan_.nranks), sizeof(float));
    const bool root = process_.rank() == 0;
    switch (plan_.collective) {
      case Collective::kReduceScatter:
        return {bytes, block};
      case Collective::kAllGather:
        return {block, bytes};
      case Collective::kGather:
        return {block, root ? bytes : 0};
      case Collective::kScatter:
        return {root ? bytes : 0, block};
      case Collective::kBroadcast:
        return {root ? bytes : 0, bytes};
      case Collective::kReduce:
        return {bytes, root ? bytes : 0};
      case Collective::kBarrier:
        return {0, 0};
      default:
        return {bytes, bytes};
    }
  }
  whorlResult_t call(std::size_t bytes, whorlComm_t comm) {
    const float* const in = input_.data();
    float* const out = output_.data();
    const auto n = static_cast<std::size_t>(plan_.nranks);
    const std::size_t count = std::max<std::size_t>(bytes / sizeof(float), 1);
    const std::size_t block = std::max<std::size_t>(count / n, 1);
    switch (plan_.collective) {
      case Collective::kAllReduce:
        return whorlAllReduce(in, out, count, whorlFloat32, whorlSum, comm, nullptr);
      case Collective::kReduce:
        return whorlReduce(in, out, count, whorlFloat32, whorlSum, 0, comm, nullptr);
      case Collective::kBroadcast:
        return whorlBroadcast(in, out, count, whorlFloat32, 0, comm, nullptr);
      case Collective::kAllGather:
        return whorlAllGather(in, out, block, whorlFloat32, comm, nullptr);
      case Collective::kReduceScatter:
        return whorlReduceScatter(in, out, block, whorlFloat32, whorlSum, comm, nullptr);
      case Collective::kAllToAll:
        return whorlAlltoAll(in, out, block, whorlFloat32, comm, nullptr);
      case Collective::kGather:
        return whorlGather(in, out, block, whorlFloat32, 0, comm, nullptr);
      case Collective::kScatter:
        return whorlScatter(in, out, block, whorlFloat32, 0, comm, nullptr);
      default:
        return whorlBarrier(comm, nullptr);
    }
  }
  /// Returns the mean time in µs of `operations`, between which the input is rewritten and the
  /// result read, as programs do.
  double time(std::size_t bytes, whorlComm_t comm, int operations) {
    const auto [input, output] = sides(bytes);
    double total = 0;
    float sum = 0;
    for (int i = -1; i < operations; ++i) { // the first, after other calls, is not timed
      for (std::size_t k = 0; k < input / sizeof(float); ++k) input_[k] += 1.0F;
      process_.check(whorlBarrier(free_, nullptr), "whorlBarrier");
      const double begin = perf::now_us();
      process_.check(call(bytes, comm), name_of(plan_.collective).data());
      if (i >= 0) total += perf::now_us() - begin;
      // A rank that reads its result too early may take the core of a rank that is not done.
      process_.check(whorlBarrier(free_, nullptr), "whorlBarrier");
      for (std::size_t k = 0; k < output / sizeof(float); ++k) sum += output_[k];
    }
    sum_ += sum;
    return total / operations;
  }
  /// Measures all algorithms at one size. All ranks compute the same numbers of operations.
  void measure(std::size_t size) {
    const std::size_t bytes = plan_.sizes[size];
    const auto rank = static_cast<std::size_t>(process_.rank());
    std::vector<whorlComm_t> columns = comms_;
    columns.push_back(picks_[size]);
    const std::size_t n = columns.size();
    std::vector<int> operations(n);
    for (std::size_t c = 0; c < n; ++c) {
      time(bytes, columns[c], 1); // the first use allocates memory
      times_.at(size, 0, c, rank) = time(bytes, columns[c], 3);
    }
    process_.meet();
    for (std::size_t c = 0; c < n; ++c) {
      operations[c] =
          std::clamp(static_cast<int>(kBatchUs / std::max(times_.slowest(size, 0, c), 0.01)), 1,
                     kMaxOperations);
    }
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    note_distance(size, 0);
    for (std::size_t round = 0; round < static_cast<std::size_t>(plan_.rounds); ++round) {
      // All ranks compute the same order, another one in each round, so that what an operation
      // leaves in the caches affects all others alike.
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t c : order) {
        times_.at(size, round, c, rank) = time(bytes, columns[c], operations[c]);
      }
      note_distance(size, round + 1);
    }
  }
  void note_distance(std::size_t size, std::size_t round) {
    const double ns = process_.exchange_ns();
    if (process_.rank() == 0) times_.distance(size, round) = ns;
  }

  RankProcess& process_;
  Board& board_;
  const Plan& plan_;
  Times times_;
  whorlComm_t free_ = nullptr;                    ///< communicator that chooses its algorithms
  std::vector<whorlComm_t> comms_;                ///< communicator of each algorithm
  std::map<const Algorithm*, whorlComm_t> again_; ///< second communicator of each picked algorithm
  std::vector<whorlComm_t> picks_;                ///< communicators of again_, by size
  std::vector<float> input_, output_;
  float sum_ = 0; ///< sum of all results, so that reading them is not optimised away
};

Measurement summarize(Board& board, const Plan& plan) {
  Measurement result{.links = board.links, .probed = board.probed, .digest = board.digest};
  Times times(board, plan);
  for (std::size_t s = 0; s < plan.sizes.size(); ++s) {
    auto& rounds = result.rounds.emplace_back();
    for (std::size_t r = 0; r < static_cast<std::size_t>(plan.rounds); ++r) {
      Round& round =
          rounds.emplace_back(Round{.exchange_ns = {times.distance(s, r), times.distance(s, r + 1)},
                                    .us = {},
                                    .again_us = times.slowest(s, r, plan.algorithms.size())});
      for (std::size_t a = 0; a < plan.algorithms.size(); ++a) {
        round.us.push_back(times.slowest(s, r, a));
      }
    }
    result.picks.push_back(same_schedules(&all_algorithms()[board.picks[s]], plan.algorithms,
                                          {.nranks = plan.nranks}));
  }
  return result;
}

} // namespace

const Algorithm* same_schedules(const Algorithm* algorithm,
                                const std::vector<const Algorithm*>& algorithms,
                                const Shape& shape) {
  if (std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end()) {
    return algorithm;
  }
  const auto schedules = build_all(*algorithm, shape);
  const auto same = std::find_if(
      algorithms.begin(), algorithms.end(),
      [&](const Algorithm* candidate) { return build_all(*candidate, shape) == schedules; });
  return same == algorithms.end() ? algorithm : *same;
}

Result<Measurement> measure(const Plan& plan) {
  Board none{};
  Result<Measurement> result{Measurement{}};
  const Status status = run_ranks(
      plan.nranks, Times(none, plan).bytes(plan),
      [&](RankProcess& process, void* shared) {
        Rank(process, *static_cast<Board*>(shared), plan).run();
      },
      [&](void* shared) { result = summarize(*static_cast<Board*>(shared), plan); });
  if (!status.ok()) return status;
  return result;
}

} // namespace whorl::explain
