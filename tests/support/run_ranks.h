#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace whorl::test {

enum class Mode { kThreads, kProcesses };

/// Context of one rank's function.
class RankContext {
 public:
  static constexpr std::size_t kBoardBytes = 4096; ///< largest allgather() contribution
  static constexpr std::size_t kSharedBytes = 65536;
  struct Board;

  int rank = 0;
  int nranks = 0;
  Mode mode = Mode::kThreads;

  /// Exchanges bytes and returns those of all ranks in rank order; all living ranks must call it.
  /// Does not use whorl. Throws if a rank does not call it within the time limit of the run.
  std::vector<std::vector<std::byte>> allgather(std::span<const std::byte> mine);
  /// Waits for all ranks, with the rules of allgather().
  void barrier();
  /// Returns kSharedBytes of memory that all ranks share, zeroed at the start. For atomics.
  std::byte* shared() const noexcept { return shared_; }
  /// Kills this rank like kill -9. Only for processes.
  [[noreturn]] void die();

 private:
  friend struct Run;
  Board* board_ = nullptr;
  std::byte* shared_ = nullptr;
  std::uint64_t deadline_ns_ = 0;
};

/// Outcome of one rank.
struct RankOutcome {
  std::string failures; ///< failed assertions, exceptions, crashes and hangs; empty if none
  bool killed = false;  ///< true if SIGKILL ended the rank
};

struct RunOptions {
  /// Time after which processes are killed and reported; threads, which cannot be killed, end the
  /// test program with a message.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  std::uint64_t timeout_ns = 120'000'000'000; // a sanitizer makes everything slower
#else
  std::uint64_t timeout_ns = 30'000'000'000;
#endif
};

/// Runs `body` once for each rank, as threads or as forked processes, and waits for all. `body` may
/// use gtest's assertions; their texts are returned in the outcome instead of failing the test.
/// Call it from the main thread, while no other thread runs if `mode` is kProcesses.
std::vector<RankOutcome> run_ranks(int nranks, Mode mode,
                                   const std::function<void(RankContext&)>& body,
                                   const RunOptions& options = {});

/// Runs `body` with 0 to count - 1 at the same time, each in a process of its own, which may run
/// ranks. For bodies that wait most of their time. Returns what has failed; "" for nothing.
std::string run_at_once(int count, const std::function<void(int)>& body);

/// Returns the failures of all ranks, each with its rank in front; "" if none failed and none was
/// killed. For EXPECT_EQ(failures_of(run_ranks(...)), "").
std::string failures_of(const std::vector<RankOutcome>& outcomes);

} // namespace whorl::test
