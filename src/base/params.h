#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace whorl {

/// Environment variables that tune whorl, in one table (see params.cc). Launcher variables are not
/// here: they are facts, not settings.
enum class Param : std::uint8_t {
  kAlgo,             // WHORL_ALGO
  kChannels,         // WHORL_CHANNELS
  kMaxChannels,      // WHORL_MAX_CHANNELS
  kSlots,            // WHORL_SLOTS
  kSlotBytes,        // WHORL_SLOT_BYTES
  kMemoryBudget,     // WHORL_MEMORY_BUDGET
  kNontemporalBytes, // WHORL_NONTEMPORAL_BYTES
  kTimeoutMs,        // WHORL_TIMEOUT_MS
  kSpins,            // WHORL_SPINS
  kProbe,            // WHORL_PROBE
  kCostFile,         // WHORL_COST_FILE
  kTransports,       // WHORL_TRANSPORTS
  kFaulty,           // WHORL_FAULTY
  kHostId,           // WHORL_HOST_ID
  kHostAddress,      // WHORL_HOST_ADDRESS
  kFabricFile,       // WHORL_FABRIC_FILE
  kTcpCongestion,    // WHORL_TCP_CONGESTION
  kTcpBufferBytes,   // WHORL_TCP_BUFFER_BYTES
  kIbDisable,        // WHORL_IB_DISABLE
  kIbHca,            // WHORL_IB_HCA
  kIbGidIndex,       // WHORL_IB_GID_INDEX
  kIbTrafficClass,   // WHORL_IB_TC
  kIbServiceLevel,   // WHORL_IB_SL
  kIbTimeout,        // WHORL_IB_TIMEOUT
  kIbRetryCount,     // WHORL_IB_RETRY_CNT
  kIbPkey,           // WHORL_IB_PKEY
  kIbRails,          // WHORL_IB_RAILS
  kUcxLibrary,       // WHORL_UCX_LIBRARY
  kHeapBytes,        // WHORL_HEAP_BYTES
  kSegmentBytes,     // WHORL_SEGMENT_BYTES
  kZeroCopy,         // WHORL_ZERO_COPY
  kDeviceIpc,        // WHORL_DEVICE_IPC
  kDeviceAlgo,       // WHORL_DEVICE_ALGO
  kSimd,             // WHORL_SIMD
  kVerify,           // WHORL_VERIFY
  kDims,             // WHORL_DIMS
  kTopoFile,         // WHORL_TOPO_FILE
  kSecretFile,       // WHORL_SECRET_FILE
  kInsecure,         // WHORL_INSECURE
  kEncrypt,          // WHORL_ENCRYPT
  kTrace,            // WHORL_TRACE
  kTraceRecords,     // WHORL_TRACE_RECORDS
  kProfilerPlugin,   // WHORL_PROFILER_PLUGIN
  kFlightFile,       // WHORL_FLIGHT_FILE
  kFlightRecords,    // WHORL_FLIGHT_RECORDS
  kLog,              // WHORL_LOG
};

struct ParamInfo {
  Param param;
  const char* name;               ///< environment variable
  const char* default_value;      ///< default, as the variable's value
  const char* doc;                ///< meaning, unit, accepted values
  const char* old_name = nullptr; ///< environment variable of earlier releases or of NCCL, read
                                  ///< where `name` is not set; null: none
};

/// Returns the whole table, in the order of Param.
std::span<const ParamInfo> all_params() noexcept;

/// Reads the value in the environment, or the default, at each call: set-up code only. A variable's
/// old name counts where the new one is not set.
std::string param_text(Param param);
/// Returns whether the variable, or its old name, is set.
bool param_is_set(Param param);
/// Reads a whole number in [low, high], which K, M or G may follow where the parameter is a number
/// of bytes; the error names the variable that was set, its value and the range.
Result<std::int64_t> param_int(Param param, std::int64_t low, std::int64_t high);
/// Reads "1"/"true"/"on" or "0"/"false"/"off"; the error names the variable that was set.
Result<bool> param_bool(Param param);

/// Reads into `out`, which has room for `high`, what param_int() returns.
template <class Number>
Status read_param(Param param, std::int64_t low, std::int64_t high, Number& out) {
  const auto value = param_int(param, low, high);
  if (value.ok()) out = static_cast<Number>(*value);
  return value.status();
}
/// Reads into `out` what param_bool() returns.
Status read_param(Param param, bool& out);

} // namespace whorl
