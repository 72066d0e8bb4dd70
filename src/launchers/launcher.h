#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "launchers/key_value.h"

namespace whorl {

/// Facts from the launcher that started this process: its rank, and the way to meet the other
/// ranks. docs/launchers.md lists the variables and their order.
struct Launch {
  std::string source = "no launcher"; ///< the launcher's name in messages: "torchrun", "PMIx", …
  int rank = 0;
  int nranks = 1;
  int local_rank = -1;   ///< number of this rank among the ranks of this host; -1: unknown
  int local_nranks = -1; ///< number of the ranks of this host; -1: unknown
  std::string job_id;  ///< id of the launch, equal on all ranks, new after a restart; may be empty
  std::string address; ///< "host:port" where rank 0 listens; empty if there is a store
  KeyValue* store = nullptr; ///< store that lives until the process ends; null with an address

  // With nranks == 1 there may be neither an address nor a store.
};

/// Function that reads one environment variable; null if the variable is not set.
using Environment = std::function<const char*(const char* name)>;

/// Environment and servers in which detect_launch() looks; tests replace the members.
struct LaunchWorld {
  Environment environment;                            ///< default: getenv()
  std::function<Result<StoreProcess>()> open_pmix;    ///< default: open_pmix() of pmix_client.h
  std::function<Result<KeyValue*>(int fd)> open_pmi1; ///< default: open_pmi1() of pmi1.h
};
LaunchWorld process_world();

/// Finds the launcher. An error names the variable that is absent, malformed or contradicts another
/// one. A launcher that is present but cannot be used is passed over for the next one. If no
/// launcher is left then, that is an error too, so that ranks of one job never take themselves for
/// jobs of one rank.
Result<Launch> detect_launch(const LaunchWorld& world = process_world());

/// Variable that tells a process its rank, the number of ranks or where they meet.
struct LaunchVariable {
  std::string name;
  std::optional<std::string> value; ///< nothing: it is not set, or empty
};

/// Returns the variables by which a user starts ranks without a launcher, and those that launchers
/// have set. Names that no launcher reads are not in the list.
std::vector<LaunchVariable> launch_variables(const Environment& environment);

/// Returns rank 0's `value` on every rank, through the launch's store. Collective: all ranks make
/// the same calls in the same order, and each call uses a new key. `value` matters on rank 0 only.
Result<std::vector<std::byte>> share(const Launch& launch, std::span<const std::byte> value,
                                     std::int64_t timeout_ms);

/// Returns the first host of a Slurm host list: "node[03-05,9],gpu1" → "node03". Empty if
/// malformed.
std::string first_slurm_host(std::string_view list);

} // namespace whorl
