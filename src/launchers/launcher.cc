#include "launchers/launcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "base/log.h"
#include "base/printable.h"
#include "launchers/pmi1.h"
#include "launchers/pmix_client.h"

namespace whorl {
namespace {

Status usage_error(std::string sentence) {
  return Status::error(Code::kInvalidUsage, std::move(sentence));
}

// Names for launch_variables(): those that users set, and those that launchers set.
constexpr std::array kOwnNames{"WHORL_RANK", "WHORL_NRANKS", "WHORL_ADDRESS", "WHORL_PORT"};
constexpr std::array kLauncherNames{"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "PMIX_RANK",
                                    "PMIX_NAMESPACE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_FD",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_RESTART_COUNT",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_STEP_NODELIST"};

/// The environment with checked reads.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  /// Whether a variable is set. An empty variable counts as absent, because launchers clear
  /// variables by empty values.
  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* const value = environment_(name);
    return value != nullptr ? value : "";
  }
  /// Reads a whole number in [low, high].
  Status read(const char* name, int low, int high, int* value) const {
    const std::string found = text(name);
    if (found.empty()) return usage_error(fmt::format("{} is not set", name));
    const char* const end = found.data() + found.size();
    const auto [stop, error] = std::from_chars(found.data(), end, *value);
    if (error != std::errc() || stop != end || *value < low || *value > high) {
      return usage_error(fmt::format("{}=\"{}\" is not a whole number from {} to {}", name,
                                     printable(found), low, high));
    }
    return {};
  }
  /// Reads a rank and the number of ranks, which must fit together.
  Status read_rank(const char* rank_name, const char* size_name, int* rank, int* size) const {
    WHORL_TRY(read(size_name, 1, INT_MAX, size));
    WHORL_TRY(read(rank_name, 0, INT_MAX, rank));
    if (*rank >= *size) {
      return usage_error(
          fmt::format("{}={} is not below {}={}", rank_name, *rank, size_name, *size));
    }
    return {};
  }
  /// Reads rank and number of ranks on this host, if both variables are set.
  Status read_local(const char* rank_name, const char* size_name, Launch* launch) const {
    if (!has(rank_name) || !has(size_name)) return {};
    WHORL_TRY(read_rank(rank_name, size_name, &launch->local_rank, &launch->local_nranks));
    if (launch->local_nranks > launch->nranks) {
      return usage_error(fmt::format("{}={} is more than the {} ranks of the job", size_name,
                                     launch->local_nranks, launch->nranks));
    }
    return {};
  }

 private:
  const Environment& environment_;
};

std::string join(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

/// Sets the meeting point: `host`, or loopback if all ranks are on this host (which needs no
/// secret), and WHORL_PORT, or a port made from `seed`. Such ports lie in 10000 … 29999, below the
/// range that systems use for outgoing connections.
Status meet_at(const Variables& variables, std::string host, std::uint64_t seed, Launch* launch) {
  if (launch->nranks == 1) return {};
  int port = 10'000 + static_cast<int>(seed % 20'000);
  if (variables.has("WHORL_PORT")) WHORL_TRY(variables.read("WHORL_PORT", 1, 65535, &port));
  if (launch->local_nranks == launch->nranks) host = "127.0.0.1";
  launch->address = join(host, port);
  return {};
}

std::uint64_t hash_text(std::string_view text) { // FNV-1a: the same on every machine
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Status check_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* const end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
    if (error == std::errc() && stop == end && port >= 1 && port <= 65535) return {};
  }
  return usage_error(fmt::format(
      "WHORL_ADDRESS=\"{}\" is not host:port with a port from 1 to 65535", printable(address)));
}

// Two functions for each launcher: one returns whether its variables are set, one reads them.

bool whorl_present(const Variables& variables) {
  return variables.has("WHORL_RANK") || variables.has("WHORL_NRANKS");
}

Status read_whorl(const LaunchWorld&, const Variables& variables, Launch* launch) {
  WHORL_TRY(variables.read_rank("WHORL_RANK", "WHORL_NRANKS", &launch->rank, &launch->nranks));
  if (launch->nranks > 1 && !variables.has("WHORL_ADDRESS")) {
    return usage_error(
        "WHORL_ADDRESS is not set; WHORL_RANK and WHORL_NRANKS need the host:port at which rank 0 "
        "listens");
  }
  return {};
}

constexpr std::array kTorchNames{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

bool torchrun_present(const Variables& variables) {
  // RANK and WORLD_SIZE alone prove nothing: scripts export them under other launchers too.
  return variables.has("TORCHELASTIC_RUN_ID") ||
         std::all_of(kTorchNames.begin(), kTorchNames.end(),
                     [&](const char* name) { return variables.has(name); });
}

Status read_torchrun(const LaunchWorld&, const Variables& variables, Launch* launch) {
  int master_port = 0;
  WHORL_TRY(variables.read_rank("RANK", "WORLD_SIZE", &launch->rank, &launch->nranks));
  WHORL_TRY(variables.read("MASTER_PORT", 0, 65535, &master_port));
  WHORL_TRY(variables.read_local("LOCAL_RANK", "LOCAL_WORLD_SIZE", launch));
  if (!variables.has("MASTER_ADDR")) return usage_error("MASTER_ADDR is not set");
  launch->job_id = fmt::format("{}.{}", variables.text("TORCHELASTIC_RUN_ID"),
                               variables.text("TORCHELASTIC_RESTART_COUNT"));
  // torch's own store listens at MASTER_PORT, and other jobs often have the ports beside it. This
  // offset maps no port to itself.
  constexpr std::uint64_t kOffset = 3511;
  return meet_at(variables, variables.text("MASTER_ADDR"),
                 static_cast<std::uint64_t>(master_port) + kOffset, launch);
}

bool pmix_present(const Variables& variables) {
  return variables.has("PMIX_RANK") && variables.has("PMIX_NAMESPACE");
}

Status read_pmix(const LaunchWorld& world, const Variables&, Launch* launch) {
  const Result<StoreProcess> process = world.open_pmix();
  if (!process.ok()) return process.status();
  launch->rank = process->rank;
  launch->nranks = process->nranks;
  launch->local_rank = process->local_rank;
  launch->local_nranks = process->local_nranks;
  launch->job_id = process->job_id;
  launch->store = process->store;
  return {};
}

bool pmi1_present(const Variables& variables) {
  return variables.has("PMI_RANK") && variables.has("PMI_SIZE") && variables.has("PMI_FD");
}

Status read_pmi1(const LaunchWorld& world, const Variables& variables, Launch* launch) {
  WHORL_TRY(variables.read_rank("PMI_RANK", "PMI_SIZE", &launch->rank, &launch->nranks));
  WHORL_TRY(variables.read_local("MPI_LOCALRANKID", "MPI_LOCALNRANKS", launch));
  int fd = -1;
  WHORL_TRY(variables.read("PMI_FD", 0, INT_MAX, &fd));
  if (launch->nranks == 1) return {};
  const Result<KeyValue*> store = world.open_pmi1(fd);
  if (!store.ok()) return store.status();
  launch->store = *store;
  return {};
}

bool open_mpi_present(const Variables& variables) { return variables.has("OMPI_COMM_WORLD_RANK"); }

Status read_open_mpi(const LaunchWorld&, const Variables& variables, Launch* launch) {
  WHORL_TRY(variables.read_rank("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &launch->rank,
                                &launch->nranks));
  WHORL_TRY(
      variables.read_local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", launch));
  launch->job_id = variables.text(variables.has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE"
                                                                  : "OMPI_MCA_ess_base_jobid");
  if (launch->local_nranks != launch->nranks && !variables.has("WHORL_ADDRESS")) {
    return usage_error(
        "WHORL_ADDRESS is not set; Open MPI's variables do not say where the ranks of several "
        "hosts can meet");
  }
  return meet_at(variables, "127.0.0.1", hash_text(launch->job_id), launch);
}

bool slurm_present(const Variables& variables) {
  // Only what srun started is a rank. A batch script and the shell of salloc have some of the
  // variables too, without a step or with one of the reserved step numbers from 0xfffffff0 on.
  const std::string step = variables.text("SLURM_STEP_ID");
  const bool reserved = step.size() == 10 && step >= "4294967280";
  return variables.has("SLURM_PROCID") && !step.empty() && !reserved;
}

Status read_slurm(const LaunchWorld&, const Variables& variables, Launch* launch) {
  WHORL_TRY(variables.read_rank(
      "SLURM_PROCID",
      variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
      &launch->rank, &launch->nranks));
  if (variables.has("SLURM_LOCALID")) {
    WHORL_TRY(variables.read("SLURM_LOCALID", 0, launch->nranks - 1, &launch->local_rank));
  }
  if (variables.text("SLURM_STEP_NUM_NODES") == "1") launch->local_nranks = launch->nranks;
  const std::string step =
      fmt::format("{}.{}", variables.text("SLURM_JOB_ID"), variables.text("SLURM_STEP_ID"));
  launch->job_id = fmt::format("{}.{}", step, variables.text("SLURM_RESTART_COUNT"));
  const std::string list = variables.text("SLURM_STEP_NODELIST");
  const std::string host = first_slurm_host(list);
  if (host.empty() && launch->nranks > 1 && !variables.has("WHORL_ADDRESS")) {
    return usage_error(
        fmt::format("SLURM_STEP_NODELIST=\"{}\" is not a host list, so there is no host to meet at",
                    printable(list)));
  }
  return meet_at(variables, host, hash_text(step), launch);
}

struct Launcher {
  const char* name;
  bool (*present)(const Variables& variables);
  Status (*read)(const LaunchWorld& world, const Variables& variables, Launch* launch);
};

// Launchers in the order in which their variables count. torchrun may run below mpirun or srun, and
// then its variables are the right ones; mpirun under Slurm leaves both sets of variables, and
// Slurm's describe mpirun's daemon.
constexpr std::array kLaunchers{
    Launcher{"WHORL_RANK", whorl_present, read_whorl},
    Launcher{"torchrun", torchrun_present, read_torchrun},
    Launcher{"PMIx", pmix_present, read_pmix},
    Launcher{"PMI-1", pmi1_present, read_pmi1},
    Launcher{"Open MPI", open_mpi_present, read_open_mpi},
    Launcher{"Slurm", slurm_present, read_slurm},
};

/// Returns a launch of one rank, for a process that no launcher has started. Returns an error if
/// some variable says that there are more ranks, or if a launcher was passed over.
Result<Launch> single_process(const Variables& variables, const Status& passed_over) {
  if (!passed_over.ok()) return passed_over;
  if (variables.has("WHORL_ADDRESS")) {
    return usage_error(
        "WHORL_ADDRESS is set, but no launcher says which rank this is; set WHORL_RANK and "
        "WHORL_NRANKS");
  }
  if (variables.has("RANK") && variables.has("WORLD_SIZE")) {
    int size = 0;
    WHORL_TRY(variables.read("WORLD_SIZE", 1, INT_MAX, &size));
    if (size > 1) {
      return usage_error(fmt::format("{} is not set, although RANK and WORLD_SIZE={} are",
                                     variables.has("MASTER_ADDR") ? "MASTER_PORT" : "MASTER_ADDR",
                                     size));
    }
  }
  if (variables.has("PMI_RANK") && variables.has("PMI_SIZE")) {
    int size = 0;
    WHORL_TRY(variables.read("PMI_SIZE", 1, INT_MAX, &size));
    if (size > 1) {
      return usage_error(
          fmt::format("PMI_FD is not set, although PMI_RANK and PMI_SIZE={} are; if the launcher "
                      "does not set it, set WHORL_RANK, WHORL_NRANKS and WHORL_ADDRESS",
                      size));
    }
  }
  Launch launch;
  launch.local_rank = 0;
  launch.local_nranks = 1;
  return launch;
}

} // namespace

std::vector<LaunchVariable> launch_variables(const Environment& environment) {
  const Variables variables(environment);
  std::vector<LaunchVariable> found;
  for (const char* const name : kOwnNames) {
    found.push_back({name, std::nullopt});
    if (variables.has(name)) found.back().value = variables.text(name);
  }
  for (const char* const name : kLauncherNames) {
    if (variables.has(name)) found.push_back({name, variables.text(name)});
  }
  return found;
}

LaunchWorld process_world() {
  return {.environment = [](const char* name) -> const char* { return std::getenv(name); },
          .open_pmix = open_pmix,
          .open_pmi1 = open_pmi1};
}

std::string first_slurm_host(std::string_view list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      if (list[i] == ']' || list[i] == ' ') return {};
      host += list[i];
      continue;
    }
    const std::size_t close = list.find(']', i);
    if (close == std::string_view::npos) return {};
    const std::string_view ranges = list.substr(i + 1, close - i - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of(",-"));
    if (first.empty()) return {};
    host += first;
    i = close;
  }
  return host;
}

Result<Launch> detect_launch(const LaunchWorld& world) {
  const Variables variables(world.environment);
  const std::string address = variables.text("WHORL_ADDRESS");
  if (!address.empty()) WHORL_TRY(check_address(address));

  Status passed_over;
  for (const Launcher& launcher : kLaunchers) {
    if (!launcher.present(variables)) continue;
    Launch launch;
    launch.source = launcher.name;
    const Status error = launcher.read(world, variables, &launch)
                             .with_context(fmt::format("launched by {}", launcher.name));
    if (error.ok()) {
      if (!address.empty() && launch.nranks > 1) {
        launch.address = address;
        launch.store = nullptr;
      }
      return launch;
    }
    // Bad variables are an error at once; an unreachable server leaves the next launcher to try.
    if (error.code() == Code::kInvalidUsage) {
      return passed_over.ok()
                 ? error
                 : usage_error(fmt::format("{} ({})", error.message(), passed_over.message()));
    }
    log(LogLevel::kInfo, error.message());
    if (passed_over.ok()) passed_over = error;
  }
  return single_process(variables, passed_over);
}

Result<std::vector<std::byte>> share(const Launch& launch, std::span<const std::byte> value,
                                     std::int64_t timeout_ms) {
  if (launch.nranks == 1) return std::vector<std::byte>(value.begin(), value.end());
  if (launch.store == nullptr) {
    return Status::error(Code::kInternalError,
                         fmt::format("{} offers no key-value space", launch.source));
  }
  if (launch.rank == 0 && value.size() > KeyValue::kMaxValueBytes) {
    return Status::error(Code::kInternalError,
                         fmt::format("{} bytes are more than a launcher's value may have, {}",
                                     value.size(), KeyValue::kMaxValueBytes));
  }
  static std::atomic<unsigned> calls{0};
  const std::string key = fmt::format("whorl-{}", calls.fetch_add(1, std::memory_order_relaxed));
  const std::string context = fmt::format("rank {} of {}, launched by {}, exchanging {}",
                                          launch.rank, launch.nranks, launch.source, key);
  if (launch.rank == 0) WHORL_TRY(launch.store->set(key, value).with_context(context));
  WHORL_TRY(launch.store->fence(timeout_ms).with_context(context));
  Result<std::vector<std::byte>> shared = launch.store->get(0, key, timeout_ms);
  if (!shared.ok()) return shared.status().with_context(context);
  return shared;
}

} // namespace whorl
