#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "whorl/whorl.h"

namespace whorl {

/// Options of one communicator, from whorlConfig_t and the environment.
struct Options {
  std::string name;           ///< in messages; may be empty
  int channels = 1;           ///< lanes of a ring
  int max_channels = 2;       ///< endpoints for each pair, without the one for sends and receives
  int slots = 0;              ///< 0: what suits their size
  std::size_t slot_bytes = 0; ///< 0: what suits the transports
  std::optional<std::size_t> stream_bytes; ///< as WHORL_STREAM_BYTES
  std::uint64_t memory_budget = 0;         ///< bytes; 0: no limit
  std::uint64_t timeout_ns = 30'000'000'000;
  std::vector<std::string> transports; ///< names, best first
  std::string algorithms;              ///< as in WHORL_ALGO
  std::string dims;                    ///< as in WHORL_DIMS
  std::string trace;                   ///< pattern of a file name; empty: no trace
  std::size_t trace_records = 65536;
  bool verify = false;
  std::optional<std::uint32_t> spins; ///< attempts before a wait yields; empty: what suits
  bool probe = false;                 ///< choose by measured costs of links; rank 0's counts
  int device = -1;                    ///< that the rank says is its own; −1: none

  /// From the environment alone. The error names the variable.
  static Result<Options> from_environment();
};

/// Options from the environment, overridden by the fields of `config` that are set; `config` may be
/// null. The device is the calling thread's. The error names the field.
Result<Options> make_options(const whorlConfig_t* config);
/// Whether the caller wants to wait for the creation.
bool blocking(const whorlConfig_t* config) noexcept;

} // namespace whorl
