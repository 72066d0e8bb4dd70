#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/launch.h"
#include "perf/common/memory.h"
#include "perf/common/options.h"
#include "perf/common/output.h"
#include "perf/common/progress.h"
#include "perf/common/replay.h"
#include "perf/common/report.h"
#include "perf/common/runner.h"
#include "perf/common/session.h"
#include "perf/common/watched_algorithm.h"

namespace perf {
namespace {

/// Exit status of a run with wrong results; launch() knows that the table shows them.
constexpr int kWrongResults = 3;

/// Returns the operators that are measured: kNone where a collective takes none.
std::vector<Operator> operators_of(const Collective& collective, const Options& options) {
  return collective.reduces ? options.operators : std::vector<Operator>{Operator::kNone};
}

/// Returns the number of roots that are measured.
int count_roots(const Collective& collective, const Options& options, int nranks) {
  return collective.has_root && options.root < 0 ? nranks : 1;
}

/// Returns the number of curves that --plot draws: of each combination of datatype, operator and
/// root one for each side; none where no size is measured.
std::size_t count_curves(const Collective& collective, const Options& options, int nranks) {
  if (!collective.moves_data) return 0;
  std::size_t pairs = 0;
  for (DataType type : options.types) {
    for (Operator op : operators_of(collective, options)) {
      pairs += combines(info_of(type), op) ? 1U : 0U;
    }
  }
  if (!options.workload.empty()) return pairs;
  const std::size_t sides = collective.in_place && options.side == Side::kBoth ? 2 : 1;
  return pairs * sides * static_cast<std::size_t>(count_roots(collective, options, nranks));
}

/// Refuses flags that do not go together with the number of ranks.
void require_ranks(const Collective& collective, const Options& options, int nranks) {
  if (options.root >= nranks) {
    throw BadCommand("-r " + std::to_string(options.root) + " is not one of " +
                     std::to_string(nranks) + " ranks, 0 to " + std::to_string(nranks - 1) +
                     (launcher_name() == nullptr ? "; --ranks sets their number." : "."));
  }
  if (collective.only_ranks > 0 &&
      (nranks != collective.only_ranks || options.ranks_per_thread > 1 || options.aggregate > 1)) {
    throw BadCommand(std::string(collective.name) + " is for " +
                     std::to_string(collective.only_ranks) +
                     " ranks, without -g and -m; there are " + std::to_string(nranks) + " ranks.");
  }
}

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
    if (launcher_name() != nullptr && options_.ranks_given && options_.ranks != session_.nranks()) {
      throw BadCommand("--ranks " + std::to_string(options_.ranks) +
                       " is for runs without a launcher; " + launcher_name() + " has started " +
                       std::to_string(session_.nranks()) + " ranks.");
    }
    require_ranks(collective_, options_, session_.nranks());
    job_ = {launcher_name(), session_.everyone(thread_), session_.topology()};
    const RankInfo& self = job_.ranks[static_cast<std::size_t>(session_.ranks().front().rank)];
    if (options_.together &&
        std::any_of(job_.ranks.begin(), job_.ranks.end(), [&](const RankInfo& other) {
          return std::strcmp(other.host, self.host) != 0;
        })) {
      throw BadCommand("--together is for ranks of one host, which share a clock; leave it out.");
    }
    const std::vector<std::size_t> sizes =
        collective_.moves_data ? sweep_sizes(options_) : std::vector<std::size_t>{0};
    const bool sweep = options_.workload.empty();
    const std::size_t buffer_bytes =
        sweep ? 2 * Runner::bytes_per_rank(collective_, options_, sizes, session_.nranks())
              : replay_bytes(options_);
    require_memory(buffer_bytes, job_.ranks, self);
    if (session_.is_first() && launcher_name() != nullptr) {
      require_outputs(options_, count_curves(collective_, options_, session_.nranks()));
    }
    session_.barrier(); // no rank allocates before all have read the available memory
    print(format_header(collective_.name, options_, job_));

    const std::vector<Operator> operators = operators_of(collective_, options_);
    if (sweep) {
      run_cycles(sizes, operators);
    } else {
      run_replay(operators);
    }

    Summary summary =
        summarize(rows_, steps_, session_.total(guard_damage_), options_.check_iterations > 0);
    summary.init_ms = session_.combine(session_.init_ms(), Average::kMax);
    summary.buffer_bytes = static_cast<std::int64_t>(buffer_bytes);
    summary.communicator_bytes = static_cast<std::int64_t>(
        session_.combine(static_cast<double>(session_.communicator_bytes()), Average::kMax));
    if (options_.memory_report) print(format_memory(summary));
    print(format_summary(summary));
    if (session_.is_first()) {
      json_ = to_json(collective_.name, options_, job_, this_machine(), rows_, steps_, summary);
    }
    return summary.out_of_bounds == 0 ? 0 : kWrongResults;
  }

  /// Returns the whole run as JSON on rank 0, after run(); empty on others.
  [[nodiscard]] const std::string& json() const { return json_; }

 private:
  void print(const std::string& text) const {
    if (!session_.is_first()) return;
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
      throw Failure(std::string("Cannot write the table: ") + std::strerror(errno) + ".");
    }
  }

  /// Measures all rows once for each cycle, without an end if the number of cycles is 0. A cycle
  /// with wrong results is the last one.
  void run_cycles(const std::vector<std::size_t>& sizes, const std::vector<Operator>& operators) {
    Runner runner(collective_, options_, session_, sizes);
    std::vector<int> roots{std::max(options_.root, 0)};
    for (int root = 1; root < count_roots(collective_, options_, session_.nranks()); ++root) {
      roots.push_back(root);
    }
    bool correct = true;
    for (int cycle = 1; (options_.cycles == 0 || cycle <= options_.cycles) && correct; ++cycle) {
      if (options_.cycles == 0) rows_.clear(); // nobody would read so many
      if (options_.cycles != 1) {
        print("# Cycle " + std::to_string(cycle) +
              (options_.cycles > 0 ? " of " + std::to_string(options_.cycles) : "") + "\n");
      }
      const auto first = static_cast<std::ptrdiff_t>(rows_.size());
      run_sweep(runner, cycle, sizes, operators, roots);
      correct = std::none_of(rows_.begin() + first, rows_.end(), [](const Row& row) {
        return row.out_of_place.wrong > 0 || row.in_place.wrong > 0;
      });
    }
    guard_damage_ += runner.guard_damage();
  }

  void run_sweep(Runner& runner, int cycle, const std::vector<std::size_t>& sizes,
                 const std::vector<Operator>& operators, const std::vector<int>& roots) {
    std::vector<std::size_t> all;
    for (DataType type : options_.types) {
      for (Operator op : operators) {
        for (std::size_t i = 0; combines(info_of(type), op) && i < roots.size(); ++i) {
          all.insert(all.end(), sizes.begin(), sizes.end());
        }
      }
    }
    Progress progress(all);
    for (DataType type : options_.types) {
      for (Operator op : operators) {
        if (!combines(info_of(type), op)) continue;
        const Pattern pattern(type, op, session_.nranks());
        for (int root : roots) {
          for (std::size_t size : sizes) {
            rows_.push_back(runner.measure(size, pattern, type, op, root));
            rows_.back().cycle = cycle;
            if (session_.is_first()) progress.clear();
            print(format_row(rows_.back(), options_.timestamps));
            if (options_.percentiles) print(format_percentiles(rows_.back()));
            if (session_.is_first()) progress.step();
          }
        }
      }
    }
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

  const Collective& collective_;
  const Options& options_;
  const Session& session_;
  int thread_;
  Job job_;
  std::vector<Row> rows_;
  std::vector<StepResult> steps_;
  std::int64_t guard_damage_ = 0;
  std::string json_;
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

  std::string json; // written after the communicators are gone, so that no rank waits for it
  std::vector<int> codes(static_cast<std::size_t>(options.threads), 0);
  const auto body = [&](int thread) {
    const int base = meeting ? meeting->base + thread * options.ranks_per_thread : -1;
    const std::string who = base >= 0 ? "Rank " + std::to_string(base) : label;
    try {
      const Session session = meeting ? Session::join(options, meeting->id, meeting->nranks, base)
                                      : Session::from_launcher(options);
      Measurement measurement(collective, options, session, thread);
      codes[static_cast<std::size_t>(thread)] = measurement.run();
      if (session.is_first()) json = measurement.json();
    } catch (const BadCommand& error) {
      process.fail(who, error.what(), BadCommand::kStatus);
    } catch (const std::exception& error) {
      process.fail(who, error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 1; thread < options.threads; ++thread) threads.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : threads) thread.join();
  try {
    if (!json.empty()) write_outputs(options, json);
  } catch (const std::exception& error) {
    process.fail(label, error.what());
  }
  return *std::max_element(codes.begin(), codes.end());
}

/// Opens /dev/null for reading as each standard stream that is closed: a descriptor of the library
/// would otherwise get that number, and the table. Writes to such a stream still fail.
void occupy_standard_streams() {
  int descriptor = 0;
  do {
    descriptor = open("/dev/null", O_RDONLY);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) close(descriptor);
}

/// Returns the program as its user has called it: whorl-perf passes on the name of the collective.
std::string called(const Collective& collective, const std::string& word) {
  return word + "_perf" == collective.name ? "whorl-perf " + word : collective.name;
}

} // namespace

int run_program(const Collective& collective, int argc, const char* const* argv) {
  occupy_standard_streams();
  const bool has_workloads = std::strcmp(collective.name, "all_reduce_perf") == 0;
  const std::string name = called(collective, argv[0]);
  auto parsed = parse(argc, argv, name, has_workloads,
                      static_cast<int>(std::thread::hardware_concurrency()), collective.uneven);
  if (const Exit* end = std::get_if<Exit>(&parsed)) {
    if (end->code != 0) {
      std::fprintf(stderr, "%s: %s", name.c_str(), end->text.c_str());
    } else if (std::fputs(end->text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
      std::fprintf(stderr, "%s: cannot write the output: %s\n", name.c_str(), std::strerror(errno));
      return 2;
    }
    return end->code;
  }
  Options& options = std::get<Options>(parsed);
  if (collective.only_ranks > 0) {
    if (!options.ranks_given && collective.only_ranks % options.ranks_per_process() == 0) {
      options.ranks = collective.only_ranks;
    }
    options.percentiles = options.mode == Mode::kDirty || options.mode == Mode::kMoving;
  }
  if (launcher_name() == nullptr) { // under a launcher, the first rank does so
    try {
      require_ranks(collective, options, options.ranks);
      require_outputs(options, count_curves(collective, options, options.ranks));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
      return BadCommand::kStatus;
    }
  }
  offer_profiler();
  const int code = launch(
      options, [&](const Process& process) { return run_process(collective, options, process); });
  return code == 0 ? 0 : 1;
}

} // namespace perf
