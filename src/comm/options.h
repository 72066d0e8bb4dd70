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
  std::string name;           ///< name for messages; may be empty
  int channels = 1;           ///< lanes of a ring
  int max_channels = 2;       ///< endpoints for each pair, without the one for sends and receives
  int slots = 0;              ///< slots of each FIFO; 0: a number that suits their size
  std::size_t slot_bytes = 0; ///< size of a slot; 0: a size that suits the transports
  std::optional<std::size_t> nontemporal_bytes; ///< value of WHORL_NONTEMPORAL_BYTES
  std::uint64_t memory_budget = 0;              ///< bytes; 0: no limit
  std::uint64_t timeout_ns = 30'000'000'000;
  std::vector<std::string> transports; ///< names, best first
  std::string algorithms;              ///< value of WHORL_ALGO
  std::string dims;                    ///< value of WHORL_DIMS
  /// Whether the communicator is a part of another one, for whose ranks `algorithms` and `dims` may
  /// be meant.
  bool made_of_another = false;
  std::string trace; ///< pattern of a file name; empty: no trace
  std::size_t trace_records = 65536;
  std::string profiler_plugin;        ///< library, or STATIC; empty: none
  std::string flight_file;            ///< pattern of a file name, then its path; empty: no file
  std::uint32_t flight_records = 128; ///< size of the ring, a power of two
  bool encrypts = false;              ///< whether what goes over TCP is encrypted
  bool verify = false;
  std::optional<std::uint32_t>
      spins;          ///< attempts before a wait yields; empty: chosen by ranks per core
  bool probe = false; ///< whether to choose by measured costs of links; rank 0's value counts
  int device = -1;    ///< number of the rank's CUDA device; −1: none

  /// Reads options from the environment alone. The error names the variable.
  static Result<Options> from_environment();
};

/// Makes options from the environment, overridden by the fields of `config` that are set; `config`
/// may be null. The device is the calling thread's. The error names the field.
Result<Options> make_options(const whorlConfig_t* config);
/// Returns whether the creation of the communicator blocks.
bool blocking(const whorlConfig_t* config) noexcept;

} // namespace whorl
