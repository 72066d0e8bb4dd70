// Ranks for a measurement: processes that are forked from this one and share a board with it. Each
// has one communicator that chooses for itself and one for each algorithm; an operation of each in
// turn, so that what the machine does meanwhile hits all of them alike.
#include "tools/explain/measure.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "comm/handle.h"
#include "whorl/whorl.h"

namespace whorl::explain {
namespace {

constexpr double kBatchUs = 600; // of one algorithm in one round
constexpr int kMostOperations = 40;
constexpr unsigned kLimitSeconds = 120;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What parent and ranks share; the times follow it.
struct Board {
  pthread_barrier_t barrier; ///< blocks: who waits takes no core from the others
  whorlUniqueId id;
  LinkCosts links;
  double creation_us;
  std::array<std::uint8_t, 64> picks;
  std::array<char, 1024> error; ///< of a rank
  double times[1];              ///< see Times
};

/// A rank's time in µs for each size, round and communicator.
class Times {
 public:
  Times(Board& board, const Plan& plan)
      : board_(board),
        rounds_(static_cast<std::size_t>(plan.rounds)),
        columns_(plan.algorithms.size() + 1),
        ranks_(static_cast<std::size_t>(plan.nranks)) {}
  static std::size_t bytes(const Plan& plan) {
    return sizeof(Board) + sizeof(double) * plan.sizes.size() *
                               static_cast<std::size_t>(plan.rounds) *
                               (plan.algorithms.size() + 1) * static_cast<std::size_t>(plan.nranks);
  }
  double& at(std::size_t size, std::size_t round, std::size_t column, std::size_t rank) {
    return board_.times[((size * rounds_ + round) * columns_ + column) * ranks_ + rank];
  }
  double slowest(std::size_t size, std::size_t round, std::size_t column) {
    double* const first = &at(size, round, column, 0);
    return *std::max_element(first, first + ranks_);
  }

 private:
  Board& board_;
  std::size_t rounds_, columns_, ranks_;
};

class Rank {
 public:
  Rank(Board& board, const Plan& plan, int rank)
      : board_(board), plan_(plan), rank_(rank), times_(board, plan) {}

  void run() {
    meet();
    const double begin = now_us();
    const whorlComm_t free = create("");
    if (rank_ == 0) {
      const Communicator& communicator = *free->communicator;
      board_.creation_us = now_us() - begin;
      board_.links = communicator.links();
      for (std::size_t s = 0; s < plan_.sizes.size(); ++s) {
        const Algorithm& pick = communicator.selector().pick(plan_.collective, plan_.sizes[s]);
        board_.picks[s] = static_cast<std::uint8_t>(&pick - all_algorithms().data());
      }
    }
    for (const Algorithm* algorithm : plan_.algorithms) {
      comms_.push_back(
          create(fmt::format("{}:{}", name_of(algorithm->collective), algorithm->name)));
    }
    comms_.push_back(free);
    const std::size_t largest = *std::max_element(plan_.sizes.begin(), plan_.sizes.end());
    input_.assign(largest / sizeof(float) + static_cast<std::size_t>(plan_.nranks), 1.0F);
    output_.assign(input_.size(), 0.0F);
    for (std::size_t size = 0; size < plan_.sizes.size(); ++size) measure(size);
    output_[0] = sum_;
    for (const whorlComm_t comm : comms_) check(whorlCommDestroy(comm), "whorlCommDestroy");
  }

 private:
  void meet() { pthread_barrier_wait(&board_.barrier); }
  void check(whorlResult_t result, const char* what) {
    if (result == whorlSuccess) return;
    fmt::format_to_n(board_.error.data(), board_.error.size() - 1, "rank {}: {}: {}", rank_, what,
                     whorlGetLastError(nullptr));
    std::_Exit(1);
  }
  whorlComm_t create(const std::string& algorithm) {
    setenv("WHORL_ALGO", algorithm.c_str(), 1);
    if (rank_ == 0) check(whorlGetUniqueId(&board_.id), "whorlGetUniqueId");
    meet();
    whorlComm_t comm = nullptr;
    check(whorlCommInitRank(&comm, plan_.nranks, board_.id, rank_), "whorlCommInitRank");
    return comm;
  }
  /// Bytes of a rank's input and output, where the larger side has `bytes`.
  std::pair<std::size_t, std::size_t> sides(std::size_t bytes) const {
    const std::size_t block =
        std::max<std::size_t>(bytes / static_cast<std::size_t>(plan_.nranks), sizeof(float));
    const bool root = rank_ == 0;
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
  /// Mean time of `operations`, with everything between them that a program does.
  double time(std::size_t bytes, whorlComm_t comm, int operations) {
    const auto [input, output] = sides(bytes);
    double total = 0;
    float sum = 0;
    for (int i = -1; i < operations; ++i) { // the first one finds caches that others have used
      for (std::size_t k = 0; k < input / sizeof(float); ++k) input_[k] += 1.0F;
      check(whorlBarrier(comms_.back(), nullptr), "whorlBarrier");
      const double begin = now_us();
      check(call(bytes, comm), name_of(plan_.collective).data());
      if (i >= 0) total += now_us() - begin;
      for (std::size_t k = 0; k < output / sizeof(float); ++k) sum += output_[k];
    }
    sum_ += sum;
    return total / operations;
  }
  void measure(std::size_t size) {
    const std::size_t bytes = plan_.sizes[size];
    const std::size_t n = comms_.size();
    const auto rank = static_cast<std::size_t>(rank_);
    std::vector<int> operations(n);
    for (std::size_t c = 0; c < n; ++c) {
      time(bytes, comms_[c], 1); // memory comes with the first use
      times_.at(size, 0, c, rank) = time(bytes, comms_[c], 3);
    }
    meet();
    for (std::size_t c = 0; c < n; ++c) {
      operations[c] =
          std::clamp(static_cast<int>(kBatchUs / std::max(times_.slowest(size, 0, c), 0.01)), 1,
                     kMostOperations);
    }
    meet();
    for (int round = 0; round < plan_.rounds; ++round) {
      for (std::size_t c = 0; c < n; ++c) {
        times_.at(size, static_cast<std::size_t>(round), c, rank) =
            time(bytes, comms_[c], operations[c]);
      }
    }
    meet();
  }

  Board& board_;
  const Plan& plan_;
  int rank_;
  Times times_;
  std::vector<whorlComm_t> comms_; ///< for each algorithm; the last one chooses for itself
  std::vector<float> input_, output_;
  float sum_ = 0; ///< of what was read, so that it is
};

/// Binds a rank to a core of its own, as launchers do, where there are enough cores.
void bind_to_core(int rank, int nranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < nranks) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || rank-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    static_cast<void>(sched_setaffinity(0, sizeof one, &one));
    return;
  }
}

[[noreturn]] void run_child(Board& board, const Plan& plan, int rank, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) std::_Exit(1);
  alarm(kLimitSeconds);
  bind_to_core(rank, plan.nranks);
  Rank(board, plan, rank).run();
  std::_Exit(0);
}

/// Waits for the children; the first that fails ends the others.
bool await(const std::vector<pid_t>& children, bool started) {
  bool ok = started;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (ok && wait(&status) > 0 && status == 0) continue;
    ok = false;
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, &status, 0);
    break;
  }
  return ok;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

Measurement summarize(Board& board, const Plan& plan) {
  Measurement result{.links = board.links, .creation_ms = board.creation_us / 1000};
  Times times(board, plan);
  for (std::size_t s = 0; s < plan.sizes.size(); ++s) {
    auto& us = result.us.emplace_back();
    auto& spread = result.spread.emplace_back();
    for (std::size_t a = 0; a <= plan.algorithms.size(); ++a) {
      std::vector<double> rounds;
      for (int r = 0; r < plan.rounds; ++r) {
        rounds.push_back(times.slowest(s, static_cast<std::size_t>(r), a));
      }
      if (a == plan.algorithms.size()) {
        result.again_us.push_back(quantile(rounds, 0.5));
        break;
      }
      us.push_back(quantile(rounds, 0.5));
      spread.push_back((quantile(rounds, 0.75) - quantile(rounds, 0.25)) / us.back());
    }
    result.picks.push_back(&all_algorithms()[board.picks[s]]);
  }
  return result;
}

} // namespace

Result<Measurement> measure(const Plan& plan) {
  const std::size_t bytes = Times::bytes(plan);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot map {} bytes to share with the ranks", bytes));
  }
  Board& board = *new (memory) Board; // zeroed by the system
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&board.barrier, &shared, static_cast<unsigned>(plan.nranks));
  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  bool ok = true;
  for (int rank = 0; rank < plan.nranks && ok; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(board, plan, rank, parent);
    ok = child > 0;
    if (ok) children.push_back(child);
  }
  ok = await(children, ok);
  Result<Measurement> result =
      ok ? Result<Measurement>(summarize(board, plan))
         : Result<Measurement>(Status::error(
               Code::kSystemError, board.error[0] != '\0'
                                       ? std::string(board.error.data())
                                       : "a rank ended without a word, or took longer than 120 s"));
  munmap(memory, bytes);
  return result;
}

} // namespace whorl::explain
