#include "comm/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/file_pattern.h"
#include "base/log.h"
#include "monitor/snapshot.h"
#include "topology/host.h"

namespace whorl {
namespace {

Status open_trace(Setup& setup, const PeerInfo& self, const FilePatternFacts& facts, int nranks) {
  if (setup.options.trace.empty()) return {};
  auto trace = Trace::open(
      setup.options.trace, setup.options.trace_records,
      {.nranks = nranks,
       .process = fmt::format("host {}, pid {}", self.host_name.data(), self.process_id),
       .facts = facts});
  if (!trace.ok()) return trace.status();
  setup.trace = *std::move(trace);
  return {};
}

Status open_profiler(Setup& setup, const FilePatternFacts& facts, int nranks) {
  if (setup.options.profiler_plugin.empty()) return {};
  auto profiler = Profiler::open(
      setup.options.profiler_plugin,
      {.name = setup.options.name, .id = facts.job, .rank = facts.rank, .nranks = nranks});
  if (!profiler.ok()) return profiler.status();
  setup.profiler = *std::move(profiler);
  return {};
}

/// Makes the pattern of the flight file a path, and checks that its folder is there, because the
/// file is not made before a failure, when the program may have another working directory.
Status place_flight_file(std::string& name, const FilePatternFacts& facts) {
  if (name.empty()) return {};
  const auto file = std::filesystem::absolute(expand_file_pattern(name, facts));
  name = file.string();
  const std::filesystem::path folder = file.parent_path();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_FLIGHT_FILE: rank {} finds no folder {}", facts.rank, folder.string()));
}

Status write_flight_file(const Setup& setup) {
  const Membership* const members = setup.membership.get();
  if (setup.options.flight_file.empty() || members == nullptr) return {};
  const auto snapshot = monitor::read_page(setup.recorder->page());
  if (!snapshot.ok()) return snapshot.status();
  std::ofstream file(setup.options.flight_file, std::ios::trunc);
  file << monitor::to_json(*snapshot) << '\n';
  file.close();
  if (file) return {};
  return Status::error(Code::kSystemError,
                       fmt::format("rank {} cannot write its last operations to {}: {}",
                                   members->rank, setup.options.flight_file, std::strerror(errno)));
}

} // namespace

Status open_records(Setup& setup, const Identity& identity, int rank, int nranks) {
  monitor::Recorder::Who who{
      .identity = identity, .info = {}, .nranks = nranks, .name = setup.options.name};
  who.info.rank = static_cast<std::uint32_t>(rank);
  describe_local_host(who.info);
  setup.recorder = monitor::Recorder::make(who, setup.options.flight_records);
  const FilePatternFacts facts = file_pattern_facts(identity, rank, who.info.process_id);
  WHORL_TRY(place_flight_file(setup.options.flight_file, facts));
  WHORL_TRY(open_profiler(setup, facts, nranks));
  return open_trace(setup, who.info, facts, nranks);
}

void record_failure(const Setup& setup) noexcept {
  const Status status = without_exceptions([&]() -> Status {
    setup.recorder->fail(setup.comm_error->status().message());
    return write_flight_file(setup);
  });
  if (!status.ok()) log(LogLevel::kWarn, status.message());
}

void log_waits(const Membership& members, const monitor::Recorder& recorder) {
  constexpr std::size_t kShown = 3;
  if (!log_enabled(LogLevel::kInfo)) return;
  const auto page = monitor::read_page(recorder.page());
  if (!page.ok()) return;
  std::vector<int> ranks(page->waited_ns.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto waited = [&](int rank) { return page->waited_ns[static_cast<std::size_t>(rank)]; };
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return waited(a) > waited(b); });
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, ranks.size()) && waited(ranks[i]) > 0; ++i) {
    text += fmt::format("{}{:.3f} s for {}", i == 0 ? "" : ", ",
                        static_cast<double>(waited(ranks[i])) * 1e-9, members.describe(ranks[i]));
  }
  if (text.empty()) return;
  log(LogLevel::kInfo, fmt::format("{} has waited in {} operations, counting waits of more than a "
                                   "millisecond: {}",
                                   members.describe(members.rank), page->begun, text));
}

} // namespace whorl
