// Data-parallel training: every rank holds the whole model, works on its share of each batch, and
// whorl adds up the gradients. The numbers that come out do not depend on the number of ranks,
// except for the order in which sums are rounded.
//
//   train_digits --ranks 4     four ranks, started here
//   mpirun -n 4 train_digits   four ranks, started by a launcher (torchrun and srun likewise)
//   train_digits --compare     1, 2 and 4 ranks after one another, then 4 of which one dies in the
//                              middle, and how their losses differ
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "examples/train_digits/network.h"
#include "whorl/whorl.hpp"

namespace {

constexpr int kEpochs = 30;
constexpr std::size_t kBatch = 48;            // divisible by 1, 2, 3, 4, 6, 8, 12, 16, 24, 48 ranks
constexpr std::size_t kTrained = 30 * kBatch; // of 1797 examples; the others test
constexpr double kLearningRate = 0.05, kMomentum = 0.9, kWeightDecay = 0.003;
// Doubles carry 16 digits; the ranks' different order of rounding, amplified by 900 steps of
// training, was never seen to reach the twelfth.
constexpr double kLossTolerance = 1e-9;

struct Outcome {
  double loss[kEpochs]; ///< mean cross-entropy of each epoch's training examples
  double accuracy;      ///< on the examples not trained on
};

/// A rank that ends itself in the middle of an epoch, to show how the others go on; −1: none does.
struct Loss {
  int rank = -1;
  int epoch = 0;
};

/// All that a rank needs to go on with the training.
struct State {
  Network network;
  std::vector<double> velocity = std::vector<double>(Network::kParameters, 0.0);
  int epoch = 0; ///< number of epochs that are complete
  Outcome outcome{};
};

/// Trains one epoch.
void train_epoch(const whorl::Communicator& comm, const std::vector<Example>& examples,
                 const Loss& lost, State& state) {
  const auto nranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  if (kBatch % nranks != 0) {
    throw std::runtime_error(std::to_string(kBatch) + " examples do not divide among " +
                             std::to_string(nranks) + " ranks.");
  }
  const std::size_t share = kBatch / nranks;
  Network& network = state.network;
  // The loss travels behind the gradient. Memory from whorl moves between ranks without staging.
  whorl::MemoryBuffer<double> sums(Network::kParameters + 1);
  std::vector<double> gradient(Network::kParameters);
  double epoch_loss = 0;
  for (std::size_t batch = 0; batch < kTrained; batch += kBatch) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    double loss = 0;
    for (std::size_t i = 0; i < share; ++i) {
      loss += network.add_gradient(examples[batch + rank * share + i], gradient);
    }
    std::copy(gradient.begin(), gradient.end(), sums.begin());
    sums[Network::kParameters] = loss;
    if (comm.rank() == lost.rank && state.epoch == lost.epoch && batch == kTrained / 2) {
      raise(SIGKILL);
    }
    comm.all_reduce(sums, whorlSum);
    for (std::size_t p = 0; p < Network::kParameters; ++p) {
      double& parameter = network.parameters()[p];
      const double slope = sums[p] / kBatch + kWeightDecay * parameter;
      state.velocity[p] = kMomentum * state.velocity[p] - kLearningRate * slope;
      parameter += state.velocity[p];
    }
    epoch_loss += sums[Network::kParameters];
  }
  state.outcome.loss[state.epoch++] = epoch_loss / kTrained;
}

/// Trains to the end. If a rank dies, the others go on with a smaller communicator, which replaces
/// `comm`, from the last epoch that all of them have completed.
Outcome train(whorl::Communicator& comm, const std::vector<Example>& examples, Loss lost = {}) {
  State state;
  if (comm.rank() == 0) state.network.initialize(/*seed=*/7);
  comm.broadcast(state.network.parameters(), /*root=*/0);
  // One rank may have completed an epoch in whose last step another one has seen the death.
  State last = state, before_last = state;
  while (state.epoch < kEpochs) {
    try {
      train_epoch(comm, examples, lost, state);
      before_last = std::exchange(last, state);
    } catch (const whorl::Error& error) {
      if (error.code() != whorlRemoteError) throw;
      comm = comm.shrink();
      lost = {}; // numbers of ranks have changed
      std::vector<int> complete{last.epoch};
      comm.all_reduce(complete, whorlMin);
      state = last.epoch == complete[0] ? last : before_last;
      last = before_last = state;
    }
  }
  Network& network = state.network;
  Outcome outcome = state.outcome;
  const auto nranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());

  // Every rank has made the same updates, so all models are the same, bit for bit.
  std::vector<double> least(Network::kParameters), most(Network::kParameters);
  comm.all_reduce(network.parameters(), least, whorlMin);
  comm.all_reduce(network.parameters(), most, whorlMax);
  if (least != most) throw std::runtime_error("The ranks' models differ.");

  // Each rank tests every nranks-th of the other examples.
  std::vector<int> right(1, 0);
  for (std::size_t i = kTrained + rank; i < examples.size(); i += nranks) {
    right[0] += network.classify(examples[i]) == examples[i].digit ? 1 : 0;
  }
  comm.all_reduce(right, whorlSum);
  outcome.accuracy = right[0] / static_cast<double>(examples.size() - kTrained);
  return outcome;
}

void print(const Outcome& outcome, int nranks) {
  std::printf("%d rank%s\n", nranks, nranks == 1 ? "" : "s");
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    if (epoch < 3 || epoch % 5 == 4) {
      std::printf("  epoch %2d  loss %.15f\n", epoch + 1, outcome.loss[epoch]);
    }
  }
  std::printf("  test accuracy %.2f %%\n", 100 * outcome.accuracy);
}

/// What the forked ranks share with the program.
struct Shared {
  std::atomic<bool> id_ready; ///< release by rank 0, acquire by the others
  whorl::UniqueId::Bytes id;
  Outcome outcome; ///< that of the last rank 0; read after it has ended
};

void run_rank(Shared& shared, int nranks, int rank, const std::vector<Example>& examples,
              const Loss& lost) {
  if (rank == 0) {
    shared.id = whorl::UniqueId::create().bytes();
    shared.id_ready.store(true, std::memory_order_release);
  }
  for (int waited_ms = 0; !shared.id_ready.load(std::memory_order_acquire); ++waited_ms) {
    if (waited_ms == 30000) throw std::runtime_error("Rank 0 has not started.");
    usleep(1000);
  }
  const auto id = whorl::UniqueId::from_bytes(shared.id);
  auto comm = whorl::Communicator::join(nranks, id, rank);
  const Outcome outcome = train(comm, examples, lost);
  if (comm.rank() == 0) shared.outcome = outcome;
}

/// Trains on `nranks` processes forked here. They must be forked before this process uses whorl.
Outcome run_forked(int nranks, const std::vector<Example>& examples, const Loss& lost = {}) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("Cannot map memory to share with the ranks.");
  auto* shared = new (memory) Shared{};
  std::fflush(nullptr);
  int failed = 0, started = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      try {
        run_rank(*shared, nranks, rank, examples, lost);
        std::_Exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "Rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    }
    if (pid < 0) break;
    ++started;
  }
  int killed = 0;
  for (int i = 0; i < started;
       ++i) { // whorl sees to it that the others do not wait for a dead rank
    int status = 0;
    const bool ended = wait(&status) > 0;
    const bool was_killed = ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    killed += was_killed ? 1 : 0;
    failed += (ended && status == 0) || was_killed ? 0 : 1;
  }
  failed += killed != (lost.rank >= 0 ? 1 : 0) ? 1 : 0;
  const Outcome outcome = shared->outcome;
  munmap(memory, sizeof(Shared));
  if (failed > 0 || started < nranks) throw std::runtime_error("Not all ranks have finished.");
  return outcome;
}

int compare(const std::vector<Example>& examples) {
  const Outcome alone = run_forked(1, examples);
  print(alone, 1);
  bool good = alone.accuracy > 0.95;
  struct Case {
    int nranks;
    Loss lost;
  };
  for (const auto& [nranks, lost] : {Case{2, {}}, Case{4, {}}, Case{4, {.rank = 2, .epoch = 10}},
                                     Case{4, {.rank = 0, .epoch = 0}}}) {
    const Outcome together = run_forked(nranks, examples, lost);
    double difference = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      difference = std::max(difference, std::fabs(together.loss[epoch] - alone.loss[epoch]));
    }
    print(together, nranks);
    if (lost.rank >= 0) {
      std::printf("  rank %d died in epoch %d, the others went on\n", lost.rank, lost.epoch + 1);
    }
    std::printf("  largest difference of a loss from 1 rank: %.2g\n", difference);
    good = good && difference <= kLossTolerance && together.accuracy > 0.95;
  }
  std::printf("%s\n", good ? "equal" : "NOT EQUAL");
  return good ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  int nranks = 0;
  bool comparing = false;
  std::string data = DIGITS_FILE;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--compare") {
      comparing = true;
    } else if (flag == "--ranks" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      nranks = std::atoi(argv[++i]);
    } else if (flag == "--data" && i + 1 < argc) {
      data = argv[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--ranks N | --compare] [--data digits.txt]\n", argv[0]);
      return 2;
    }
  }
  try {
    const std::vector<Example> examples = load_digits(data);
    if (comparing) return compare(examples);
    if (nranks > 0) {
      print(run_forked(nranks, examples), nranks);
      return 0;
    }
    auto comm = whorl::Communicator::from_env();
    const Outcome outcome = train(comm, examples);
    if (comm.rank() == 0) print(outcome, comm.size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
