#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/launch.h"
#include "perf/common/memory.h"
#include "perf/common/options.h"
#include "perf/common/replay.h"
#include "perf/common/report.h"
#include "perf/common/runner.h"
#include "perf/common/session.h"

namespace perf {
namespace {

/// Exit status of a run with wrong results; launch() knows that the table shows them.
constexpr int kWrongResults = 3;

/// Refuses a run that would swap; every rank of this host needs `bytes`.
void require_memory(std::size_t bytes, const std::vector<RankInfo>& everyone,
                    const RankInfo& self) {
  const auto here = static_cast<std::size_t>(std::count_if(
      everyone.begin(), everyone.end(),
      [&](const RankInfo& other) { return std::strcmp(other.host, self.host) == 0; }));
  const std::size_t available = available_memory();
  if (bytes <= available / here / 10 * 9) return;
  throw Failure("The buffers of " + std::to_string(here) + " ranks on host " + self.host +
                " need " + std::to_string(bytes / (1 << 20) * here) + " MiB, but only " +
                std::to_string(available >> 20) + " MiB are available; -e " +
                std::to_string((available / here / 10 * 9 / 2) >> 20) + "M would fit.");
}

/// Measurements of one thread; the thread of rank 0 prints them.
class Measurement {
 public:
  Measurement(const Collective& collective, const Options& options, const Session& session,
              int thread)
      : collective_(collective), options_(options), session_(session), thread_(thread) {}

  int run() {
    if (options_.root >= session_.nranks()) {
      throw Failure("-r " + std::to_string(options_.root) + " is not one of " +
                    std::to_string(session_.nranks()) + " ranks.");
    }
    job_ = {launcher_name(), session_.everyone(thread_), session_.topology()};
    const RankInfo& self = job_.ranks[static_cast<std::size_t>(session_.ranks().front().rank)];
    const std::vector<std::size_t> sizes =
        collective_.moves_data ? sweep_sizes(options_) : std::vector<std::size_t>{0};
    const bool sweep = options_.workload.empty();
    require_memory(sweep
                       ? 2 * Runner::bytes_per_rank(collective_, options_, sizes, session_.nranks())
                       : replay_bytes(options_),
                   job_.ranks, self);
    session_.barrier(); // no rank allocates before all have read the available memory
    print(format_header(collective_.name, options_, job_));

    const std::vector<Operator> operators =
        collective_.reduces ? options_.operators : std::vector<Operator>{Operator::kNone};
    if (sweep) {
      run_sweep(sizes, operators);
    } else {
      run_replay(operators);
    }

    Summary summary =
        summarize(rows_, steps_, session_.total(guard_damage_), options_.check_iterations > 0);
    summary.init_ms = session_.combine(session_.init_ms(), Average::kMax);
    print(format_summary(summary));
    if (session_.is_first() && !options_.json_file.empty()) write_json(summary);
    return summary.out_of_bounds == 0 ? 0 : kWrongResults;
  }

 private:
  void print(const std::string& text) const {
    if (!session_.is_first()) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void run_sweep(const std::vector<std::size_t>& sizes, const std::vector<Operator>& operators) {
    Runner runner(collective_, options_, session_, sizes);
    std::vector<int> roots{std::max(options_.root, 0)};
    if (collective_.has_root && options_.root < 0) {
      for (int root = 1; root < session_.nranks(); ++root) roots.push_back(root);
    }
    std::size_t total = 0;
    for (DataType type : options_.types) {
      for (Operator op : operators) {
        if (combines(info_of(type), op)) total += roots.size() * sizes.size();
      }
    }
    Progress progress;
    for (DataType type : options_.types) {
      for (Operator op : operators) {
        if (!combines(info_of(type), op)) continue;
        const Pattern pattern(type, op, session_.nranks());
        for (int root : roots) {
          for (std::size_t size : sizes) {
            rows_.push_back(runner.measure(size, pattern, type, op, root));
            print(format_row(rows_.back()));
            if (options_.percentiles) print(format_percentiles(rows_.back()));
            if (session_.is_first()) progress.step(rows_.size(), total);
          }
        }
      }
    }
    guard_damage_ += runner.guard_damage();
  }

  void run_replay(const std::vector<Operator>& operators) {
    for (DataType type : options_.types) {
      for (Operator op : operators) {
        if (!combines(info_of(type), op)) continue;
        const std::size_t first = rows_.size();
        steps_.push_back(replay(options_, session_, type, op, &rows_, &guard_damage_));
        for (std::size_t i = first; i < rows_.size(); ++i) print(format_row(rows_[i]));
        print(format_step(steps_.back()));
      }
    }
  }

  void write_json(const Summary& summary) const {
    std::ofstream file(options_.json_file);
    file << to_json(collective_.name, options_, job_, this_machine(), rows_, steps_, summary);
    file.close();
    if (!file) throw Failure("Cannot write -J " + options_.json_file + ".");
  }

  const Collective& collective_;
  const Options& options_;
  const Session& session_;
  int thread_;
  Job job_;
  std::vector<Row> rows_;
  std::vector<StepResult> steps_;
  std::int64_t guard_damage_ = 0;
};

/// Id of the communicator and first rank of this process.
struct Meeting {
  UniqueId id;
  int nranks;
  int base;
};

/// Exchanges the id of all ranks through a communicator of the processes, where a launcher started
/// one process for several ranks.
Meeting meet_through_launcher(const Options& options) {
  Options plain = options;
  plain.stream = false;
  plain.ranks_per_thread = 1;
  const Session processes = Session::from_launcher(plain);
  const LocalRank& self = processes.ranks().front();
  Meeting meeting{};
  if (self.rank == 0) check(XCCL(GetUniqueId)(&meeting.id), nullptr, "GetUniqueId");
  check(XCCL(Broadcast)(&meeting.id, &meeting.id, sizeof(meeting.id), XCCL(Uint8), 0, self.comm,
                        nullptr),
        self.comm, "Broadcast");
  meeting.nranks = self.nranks * options.ranks_per_process();
  meeting.base = self.rank * options.ranks_per_process();
  return meeting;
}

int run_process(const Collective& collective, const Options& options, const Process& process) {
  const bool forked = process.board != nullptr;
  const std::string label =
      forked ? "Process " + std::to_string(process.index) : std::string(collective.name);
  std::optional<Meeting> meeting;
  try {
    if (forked) {
      meeting = Meeting{process.meet(), options.ranks, process.index * options.ranks_per_process()};
    } else if (options.ranks_per_process() > 1) {
      meeting = meet_through_launcher(options);
    }
  } catch (const std::exception& error) {
    process.fail(label, error.what());
  }

  std::vector<int> codes(static_cast<std::size_t>(options.threads), 0);
  const auto body = [&](int thread) {
    const int base = meeting ? meeting->base + thread * options.ranks_per_thread : -1;
    const std::string who = base >= 0 ? "Rank " + std::to_string(base) : label;
    try {
      const Session session = meeting ? Session::join(options, meeting->id, meeting->nranks, base)
                                      : Session::from_launcher(options);
      codes[static_cast<std::size_t>(thread)] =
          Measurement(collective, options, session, thread).run();
    } catch (const std::exception& error) {
      process.fail(who, error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 1; thread < options.threads; ++thread) threads.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

} // namespace

int run_program(const Collective& collective, int argc, const char* const* argv) {
  const bool has_workloads = std::strcmp(collective.name, "all_reduce_perf") == 0;
  const auto parsed =
      parse(argc, argv, collective.name, has_workloads,
            static_cast<int>(std::thread::hardware_concurrency()), collective.uneven);
  if (const Exit* end = std::get_if<Exit>(&parsed)) {
    std::fputs(end->text.c_str(), end->code == 0 ? stdout : stderr);
    return end->code;
  }
  const Options& options = std::get<Options>(parsed);
  const int code = launch(
      options, [&](const Process& process) { return run_process(collective, options, process); });
  return code == 0 ? 0 : 1;
}

} // namespace perf
