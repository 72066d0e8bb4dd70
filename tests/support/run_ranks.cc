#include "tests/support/run_ranks.h"

#include <fmt/core.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <atomic>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/system.h"
#include "base/wait.h"
#include "tests/support/shared_array.h"

namespace whorl::test {

/// Memory that all ranks of a run share, also across fork().
struct RankContext::Board {
  alignas(64) std::atomic<std::uint32_t> arrived{0};
  alignas(64) std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint32_t> finished_threads{0};
  static constexpr int kMaxRanks = 1024;
  struct Entry {
    std::uint32_t size;
    std::byte bytes[kBoardBytes];
  } entries[kMaxRanks];
  std::byte shared[kSharedBytes];
};

/// Operations of a run that need to be a friend of RankContext.
struct Run {
  using Board = RankContext::Board;
  static RankContext context(Board* board, int rank, int nranks, Mode mode,
                             std::uint64_t deadline_ns) {
    RankContext context;
    context.rank = rank;
    context.nranks = nranks;
    context.mode = mode;
    context.board_ = board;
    context.shared_ = board->shared;
    context.deadline_ns_ = deadline_ns;
    return context;
  }
};

namespace {

class BarrierWaiter final : public Waiter {
 public:
  void block(std::uint64_t max_ns) noexcept override { sys().sleep_ns(max_ns); }
};

} // namespace

void RankContext::barrier() {
  const std::uint32_t round = board_->round.load(std::memory_order_acquire);
  if (board_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<std::uint32_t>(nranks)) {
    board_->arrived.store(0, std::memory_order_relaxed);
    board_->round.store(round + 1, std::memory_order_release); // pairs with acquire below
    return;
  }
  const auto passed = [&] {
    return board_->round.load(std::memory_order_acquire) != round ? Progress::kDone
                                                                  : Progress::kIdle;
  };
  BarrierWaiter waiter;
  const CommError none;
  const std::uint64_t now = sys().now_ns();
  WaitPolicy policy{.timeout_ns = deadline_ns_ > now ? deadline_ns_ - now : 1, .spins = 20};
  constexpr int kFewRanks = 64;
  constexpr std::uint64_t kBlockPerRankNs = 50'000;
  if (nranks > kFewRanks) { // polling would delay ranks that have not arrived
    policy.yield_ns = 0;
    policy.block_ns = policy.first_block_ns = static_cast<std::uint64_t>(nranks) * kBlockPerRankNs;
  }
  if (wait_until(passed, policy, none, waiter) != WaitResult::kReady) {
    throw std::runtime_error("a rank did not come to the test's barrier");
  }
}

std::vector<std::vector<std::byte>> RankContext::allgather(std::span<const std::byte> mine) {
  if (mine.size() > kBoardBytes) throw std::length_error("too much for the test's board");
  Board::Entry& entry = board_->entries[rank];
  entry.size = static_cast<std::uint32_t>(mine.size());
  std::copy(mine.begin(), mine.end(), entry.bytes);
  barrier();
  std::vector<std::vector<std::byte>> all;
  for (int r = 0; r < nranks; ++r) {
    const Board::Entry& other = board_->entries[r];
    all.emplace_back(other.bytes, other.bytes + other.size);
  }
  barrier(); // no rank overwrites an entry that another still reads
  return all;
}

void RankContext::die() {
  if (mode != Mode::kProcesses) throw std::logic_error("a thread cannot be killed");
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

namespace {

/// Runs the body and returns gtest's failures of this thread instead of reporting them.
std::string run_body(const std::function<void(RankContext&)>& body, RankContext& context) {
  std::string failures;
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    try {
      body(context);
    } catch (const std::exception& exception) {
      failures += fmt::format("exception: {}\n", exception.what());
    }
  }
  for (int i = 0; i < results.size(); ++i) {
    const ::testing::TestPartResult& result = results.GetTestPartResult(i);
    if (!result.failed()) continue;
    failures += fmt::format("{}:{}: {}\n", result.file_name() != nullptr ? result.file_name() : "",
                            result.line_number(), result.message());
  }
  return failures;
}

std::vector<RankOutcome> run_threads(RankContext::Board* board, int nranks,
                                     const std::function<void(RankContext&)>& body,
                                     const RunOptions& options) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(nranks));
  std::vector<std::thread> threads;
  const std::uint64_t deadline = sys().now_ns() + options.timeout_ns;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankContext context = Run::context(board, rank, nranks, Mode::kThreads, deadline);
      outcomes[static_cast<std::size_t>(rank)].failures = run_body(body, context);
      board->finished_threads.fetch_add(1, std::memory_order_release); // pairs with acquire below
    });
  }
  const auto finished = [&] {
    return board->finished_threads.load(std::memory_order_acquire) ==
                   static_cast<std::uint32_t>(nranks)
               ? Progress::kDone
               : Progress::kIdle;
  };
  ClockWaiter waiter;
  const CommError none;
  const WaitPolicy policy{.timeout_ns = options.timeout_ns + 1'000'000'000, .spins = 0};
  if (wait_until(finished, policy, none, waiter) != WaitResult::kReady) {
    fmt::print(stderr, "run_ranks: {} of {} threads hang; giving up\n",
               nranks - static_cast<int>(board->finished_threads.load()), nranks);
    std::abort();
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// Forked rank, and the pipe from which its failures are read.
struct Child {
  pid_t pid = -1;
  Fd pipe;
  bool open = true;
};

[[noreturn]] void run_child(RankContext context, const std::function<void(RankContext&)>& body,
                            int pipe) {
  std::string failures = run_body(body, context);
  std::fflush(nullptr);
  std::string_view left = failures;
  while (!left.empty()) {
    const ssize_t written = ::write(pipe, left.data(), left.size());
    if (written <= 0) break;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  ::_exit(0);
}

/// Reads the output of the children until all pipes are closed or the time is up.
void read_failures(std::vector<Child>& children, std::vector<RankOutcome>& outcomes,
                   std::uint64_t deadline) {
  for (;;) {
    std::vector<pollfd> polled;
    for (const Child& child : children) {
      polled.push_back({.fd = child.open ? child.pipe.get() : -1, .events = POLLIN, .revents = 0});
    }
    bool any = false;
    for (const Child& child : children) any |= child.open;
    const std::uint64_t now = sys().now_ns();
    if (!any || now >= deadline) return;
    sys().poll(polled, deadline - now);
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (polled[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(children[i].pipe.get(), buffer, sizeof buffer);
      if (got > 0) outcomes[i].failures.append(buffer, static_cast<std::size_t>(got));
      if (got <= 0) children[i].open = false;
    }
  }
}

std::vector<RankOutcome> run_processes(RankContext::Board* board, int nranks,
                                       const std::function<void(RankContext&)>& body,
                                       const RunOptions& options) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(nranks));
  std::vector<Child> children;
  const std::uint64_t deadline = sys().now_ns() + options.timeout_ns;
  std::fflush(nullptr);
  for (int rank = 0; rank < nranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe() failed");
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork() failed");
    if (pid == 0) {
      children.clear(); // closes the pipes of the others
      ::close(ends[0]);
      run_child(Run::context(board, rank, nranks, Mode::kProcesses, deadline), body, ends[1]);
    }
    ::close(ends[1]);
    children.push_back({.pid = pid, .pipe = Fd(ends[0]), .open = true});
  }
  read_failures(children, outcomes, deadline + 1'000'000'000);
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (children[i].open) {
      outcomes[i].failures += "did not finish in time and was killed\n";
      ::kill(children[i].pid, SIGKILL);
    }
    int status = 0;
    ::waitpid(children[i].pid, &status, 0);
    outcomes[i].killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (WIFSIGNALED(status) && !outcomes[i].killed) {
      outcomes[i].failures += fmt::format("crashed: {}\n", ::strsignal(WTERMSIG(status)));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      outcomes[i].failures += fmt::format("exited with {}\n", WEXITSTATUS(status));
    }
  }
  return outcomes;
}

} // namespace

std::vector<RankOutcome> run_ranks(int nranks, Mode mode,
                                   const std::function<void(RankContext&)>& body,
                                   const RunOptions& options) {
  if (nranks < 1 || nranks > RankContext::Board::kMaxRanks) throw std::length_error("nranks");
  SharedArray<RankContext::Board> board(1);
  return mode == Mode::kThreads ? run_threads(board.data(), nranks, body, options)
                                : run_processes(board.data(), nranks, body, options);
}

std::string run_at_once(int count, const std::function<void(int)>& body) {
  const RunOptions options{.timeout_ns = 4 * RunOptions().timeout_ns}; // of several runs of ranks
  return failures_of(run_ranks(
      count, Mode::kProcesses, [&](RankContext& context) { body(context.rank); }, options));
}

std::string failures_of(const std::vector<RankOutcome>& outcomes) {
  std::string all;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].failures.empty()) {
      all += fmt::format("rank {}: {}", rank, outcomes[rank].failures);
    }
    if (outcomes[rank].killed) all += fmt::format("rank {}: killed\n", rank);
  }
  return all;
}

} // namespace whorl::test
