#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace whorl {

/// Every environment variable that tunes whorl, in one table (see params.cc). Launcher variables
/// are not here: they are facts, not settings.
enum class Param : std::uint8_t {
  kAlgo,           // WHORL_ALGO
  kChannels,       // WHORL_CHANNELS
  kMaxChannels,    // WHORL_MAX_CHANNELS
  kSlots,          // WHORL_SLOTS
  kSlotBytes,      // WHORL_SLOT_BYTES
  kMemoryBudget,   // WHORL_MEMORY_BUDGET
  kStreamBytes,    // WHORL_STREAM_BYTES
  kTimeoutMs,      // WHORL_TIMEOUT_MS
  kSpins,          // WHORL_SPINS
  kProbe,          // WHORL_PROBE
  kTransports,     // WHORL_TRANSPORTS
  kHostId,         // WHORL_HOST_ID
  kHostAddress,    // WHORL_HOST_ADDRESS
  kTcpCongestion,  // WHORL_TCP_CONGESTION
  kTcpBufferBytes, // WHORL_TCP_BUFFER_BYTES
  kHeapBytes,      // WHORL_HEAP_BYTES
  kPieceBytes,     // WHORL_PIECE_BYTES
  kZeroCopy,       // WHORL_ZERO_COPY
  kDeviceIpc,      // WHORL_DEVICE_IPC
  kDeviceAlgo,     // WHORL_DEVICE_ALGO
  kSimd,           // WHORL_SIMD
  kVerify,         // WHORL_VERIFY
  kDims,           // WHORL_DIMS
  kSecretFile,     // WHORL_SECRET_FILE
  kInsecure,       // WHORL_INSECURE
  kTrace,          // WHORL_TRACE
  kTraceRecords,   // WHORL_TRACE_RECORDS
  kLog,            // WHORL_LOG
};

struct ParamInfo {
  Param param;
  const char* name;          ///< environment variable
  const char* default_value; ///< as it would be written in the environment
  const char* doc;           ///< meaning, unit, accepted values
};

/// The whole table, in the order of Param.
std::span<const ParamInfo> all_params() noexcept;

/// The value in the environment, or the default. Read each time: set-up code only.
std::string param_text(Param param);
/// As a whole number in [low, high]; the error names the variable, its value and the range.
Result<std::int64_t> param_int(Param param, std::int64_t low, std::int64_t high);
/// "1"/"true"/"on" or "0"/"false"/"off".
Result<bool> param_bool(Param param);

} // namespace whorl
