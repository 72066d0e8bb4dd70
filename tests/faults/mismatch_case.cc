#include "tests/faults/mismatch_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <regex>

#include "tests/faults/known_flaws.h"
#include "tests/support/process_world.h"
#include "tests/support/shared_array.h"

namespace whorl::test {
namespace {

using Clock = std::chrono::steady_clock;
using Field = MismatchCase::Field;

/// Deadline of operations: what is found before is found long before, also on a busy machine.
constexpr const char* kTimeoutMs = "1500";
/// Content of receive buffers before a call; no operation writes it.
constexpr auto kUntouched = std::byte{0xa5};

/// Report of one rank, in memory that it shares with the parent of all ranks.
struct Report {
  bool done = false;
  bool failed = false;      ///< whether the call failed
  bool failed_next = false; ///< whether the next call failed, where the call did not
  bool touched = false;     ///< whether the receive buffer has changed although the call failed
  double ms = 0;
  std::array<char, 1500> text{};
};
using Reports = std::array<Report, kMismatchRanks>;

const Operation& other_kind(const Operation& one) {
  return operation(one.name == "allreduce" ? "reducescatter" : "allreduce");
}

/// Makes the calls of a rank. Returns the first error.
whorlResult_t call(const MismatchCase& c, const Caller& caller, Arguments arguments) {
  const bool odd = caller.rank == c.odd;
  const Operation* first = c.operation;
  if (odd) {
    if (c.field == Field::kCount) ++arguments.count;
    if (c.field == Field::kType) arguments.type = whorlInt32;
    if (c.field == Field::kOperator) arguments.op = whorlMax;
    if (c.field == Field::kRoot) arguments.root = 1;
    if (c.field == Field::kKind) first = &other_kind(*c.operation);
  }
  if (c.field != Field::kOrder) return first->call(arguments, caller);
  const Operation& second = other_kind(*c.operation);
  const whorlResult_t result = (odd ? second : *first).call(arguments, caller);
  return result != whorlSuccess ? result : (odd ? *first : second).call(arguments, caller);
}

/// Carries out one case on this rank. Returns false if the processes cannot go on.
bool play(const MismatchCase& c, RankContext& context, std::vector<std::byte>& send,
          std::vector<std::byte>& recv, Report& mine) {
  const Arguments arguments{.count = c.bytes / sizeof(float)};
  std::fill(recv.begin(), recv.end(), kUntouched);
  whorlComm_t comm = join(
      context,
      {{"WHORL_TRANSPORTS", c.transport}, {"WHORL_TIMEOUT_MS", kTimeoutMs}, {"WHORL_LOG", "off"}});
  if (comm == nullptr) return false;
  context.barrier();
  const Caller caller{.rank = context.rank,
                      .nranks = context.nranks,
                      .send = send.data(),
                      .recv = recv.data(),
                      .comm = comm};
  const auto start = Clock::now();
  whorlResult_t result = call(c, caller, arguments);
  mine.failed = result != whorlSuccess;
  if (!mine.failed) {
    // The first may need no message of a rank that has failed.
    for (int i = 0; i < 2 && result == whorlSuccess; ++i) result = whorlBarrier(comm, nullptr);
    mine.failed_next = result != whorlSuccess;
  } else {
    mine.touched =
        std::any_of(recv.begin(), recv.end(), [](std::byte byte) { return byte != kUntouched; });
  }
  mine.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const std::string text = failure(result, comm);
  text.copy(mine.text.data(), mine.text.size() - 1);
  context.barrier(); // no rank leaves while another may still learn of the mismatch
  whorlCommAbort(comm);
  mine.done = true;
  return true;
}

/// Returns whether an error names two calls, and what differs.
bool names_both_calls(const std::string& text, const MismatchCase& c) {
  static const std::regex calls(
      "ranks disagree on an operation: rank ([0-9]+) \\(host [^)]*\\) calls .+, "
      "rank ([0-9]+) \\(host [^)]*\\) calls .+; they differ in (.*)\\. All ranks");
  static const std::regex waits(
      "ranks wait for each other in different operations: rank [0-9]+ "
      "\\(host [^)]*\\) in .+, rank [0-9]+ \\(host [^)]*\\) in ");
  if (std::regex_search(text, waits)) return c.field == Field::kKind || c.field == Field::kOrder;
  std::smatch found;
  if (!std::regex_search(text, found, calls)) return false;
  const std::string odd = std::to_string(c.odd), differ = found[3];
  if (found[1] != odd && found[2] != odd) return false;
  constexpr std::array<std::string_view, 6> kWords{"count", "datatype",   "operator",
                                                   "root",  "collective", "collective"};
  // A rank that has completed its call is in another one, with another number.
  return differ.find("operation number") != std::string::npos ||
         differ.find(kWords[static_cast<std::size_t>(c.field)]) != std::string::npos;
}

MismatchOutcome judge(const MismatchCase& c, const Reports& reports) {
  MismatchOutcome outcome;
  for (int rank = 0; rank < kMismatchRanks; ++rank) {
    const Report& report = reports[static_cast<std::size_t>(rank)];
    const std::string text(report.text.data());
    if (!report.done) outcome.wrong += fmt::format("rank {} did not come to the end; ", rank);
    std::uint8_t flaws = 0;
    if (!report.failed) flaws |= report.failed_next ? kNextCall : kNoError;
    const bool late = text.find("no progress within the timeout") != std::string::npos;
    if (late) flaws |= kDeadline;
    if (report.touched) flaws |= kTouched;
    if (!late && (report.failed || report.failed_next) && !names_both_calls(text, c)) {
      flaws |= kUnnamed;
    }
    outcome.flaws |= flaws;
    outcome.texts += fmt::format("rank {} ({}): {}; ", rank, describe_flaws(flaws), text);
    outcome.ms = std::max(outcome.ms, report.ms);
  }
  return outcome;
}

} // namespace

std::vector<MismatchOutcome> run_mismatches(const std::vector<MismatchCase>& cases) {
  SharedArray<Reports> reports(cases.size());
  constexpr std::uint64_t kCaseNs = 10'000'000'000;
  const auto outcomes = run_ranks(
      kMismatchRanks, Mode::kProcesses,
      [&](RankContext& context) {
        const Arguments largest{.count = cases[0].bytes / sizeof(float) + 1};
        std::vector<std::byte> send(buffer_bytes(largest, kMismatchRanks)), recv(send.size());
        for (std::size_t i = 0; i < cases.size(); ++i) {
          if (!play(cases[i], context, send, recv,
                    reports[i][static_cast<std::size_t>(context.rank)])) {
            return;
          }
        }
      },
      {.timeout_ns = cases.size() * kCaseNs});
  std::vector<MismatchOutcome> results;
  for (std::size_t i = 0; i < cases.size(); ++i) results.push_back(judge(cases[i], reports[i]));
  const std::string failures = failures_of(outcomes);
  if (!failures.empty()) results[0].wrong += "in one of the cells of this operation: " + failures;
  return results;
}

} // namespace whorl::test
