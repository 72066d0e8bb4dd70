#include "tests/faults/kill_matrix.h"

#include <fmt/core.h>

#include <array>

#include "algorithms/algorithm.h"
#include "tests/faults/kill_case.h"
#include "tests/faults/known_flaws.h"

namespace whorl::test {
namespace {

constexpr std::array<std::string_view, 4> kFailures{"kill", "stop", "exit", "abort"};
constexpr std::array kPoints{KillCase::kBefore, 1, 2, 5, KillCase::kAfter};
constexpr std::array kVictims{0, 1, kKillRanks - 1};

std::string name_of_point(int message) {
  if (message == KillCase::kBefore) return "before";
  if (message == KillCase::kAfter) return "after";
  return fmt::format("message{}", message);
}

/// Returns the values of WHORL_ALGO that force each algorithm of an operation; "" if there is
/// nothing to choose.
std::vector<std::string> algorithms_of(const Operation& operation) {
  std::vector<std::string> values;
  const Shape flat{.nranks = kKillRanks};
  const Shape nested{.nranks = kKillRanks, .dims = {{2, "twoshot"}, {kKillRanks / 2, "ring"}}};
  for (const Algorithm& algorithm : all_algorithms()) {
    if (name_of(algorithm.collective) != operation.name) continue;
    if (algorithm.supports(flat) || algorithm.supports(nested)) {
      values.push_back(fmt::format("{}:{}", operation.name, algorithm.name));
    }
  }
  if (values.empty()) values.emplace_back();
  return values;
}

} // namespace

KillMatrix::KillMatrix() {
  for (const char* const transport : {"shm", "tcp"}) {
    for (const Operation& operation : operations()) {
      for (const std::string& algorithm : algorithms_of(operation)) {
        for (std::size_t failure = 0; failure < kFailures.size(); ++failure) {
          for (const int message : kPoints) {
            for (const int victim : kVictims) {
              cases_.push_back({.operation = &operation,
                                .algorithm = algorithm,
                                .transport = transport,
                                .failure = static_cast<Failure>(failure),
                                .message = message,
                                .victim = victim});
              names_.push_back(
                  fmt::format("kill/{}/{}/{}/{}/rank{}", transport,
                              algorithm.empty() ? std::string(operation.name) : algorithm,
                              kFailures[failure], name_of_point(message), victim));
            }
          }
        }
      }
    }
  }
}

std::string_view KillMatrix::measure() const {
  return "Time: of the longest call that failed, without the deadline where a rank was stopped.";
}

void KillMatrix::run(std::span<const std::size_t> cells, CellResult* results) const {
  for (const std::size_t cell : cells) {
    KillOutcome outcome = run_kill_case(cases_[cell]);
    if ((outcome.flaws & known_flaws(names_[cell]).rarely) != 0 && outcome.wrong.empty()) {
      outcome = run_kill_case(cases_[cell]);
    }
    const std::string surprise = compare_with_known(names_[cell], outcome.flaws);
    std::string wrong = outcome.wrong + surprise;
    if (!surprise.empty()) wrong += outcome.texts;
    results[cell].set(wrong, outcome.ms);
  }
}

} // namespace whorl::test
