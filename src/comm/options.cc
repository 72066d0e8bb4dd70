#include "comm/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/bytes.h"
#include "base/log.h"
#include "base/params.h"
#include "base/printable.h"
#include "base/unknown_params.h"
#include "device/common/memory.h"
#include "kernels/reduce.h"
#include "memory/heap.h"
#include "monitor/layout.h"
#include "transports/tcp/tuning.h"
#include "transports/verbs/settings.h"
#include "tuning/selector.h"

namespace whorl {

namespace {

/// Checks WHORL_SIMD. The choice of kernels reads the variable, too, but reports no error.
Status check_simd() {
  const std::string wanted = param_text(Param::kSimd);
  if (wanted.empty()) return {};
  std::string usable;
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (!supported(simd)) continue;
    if (name_of(simd) == wanted) return {};
    usable += (usable.empty() ? "" : ", ") + std::string(name_of(simd));
  }
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_SIMD=\"{}\" is no instruction set of this build and processor; they have "
                  "{}",
                  printable(wanted), usable));
}

/// Checks that nothing was asked for which whorl cannot encrypt.
Status check_encryptable(const std::vector<std::string>& transports, const std::string& list) {
  for (const std::string& name : transports) {
    if (name != "verbs" && name != "ucx") continue;
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("WHORL_TRANSPORTS=\"{}\" does not go together with WHORL_ENCRYPT=1: whorl "
                    "encrypts only what it sends over TCP; take {} out of the list, or leave "
                    "WHORL_ENCRYPT out on a network that you trust",
                    printable(list), name));
  }
  return {};
}

/// Checks the numbers of a config by the rules of NCCL, also those without a meaning on host
/// memory: a program that gets one wrong learns it here, whichever library it runs with.
Status check_numbers(const whorlConfig_t& given) {
  struct Bounds {
    const char* field;
    int value, low, high;
  };
  for (const Bounds& each :
       {Bounds{"blocking", given.blocking, 0, 1},
        Bounds{"cgaClusterSize", given.cgaClusterSize, 0, 8},
        Bounds{"minCTAs", given.minCTAs, 1, INT_MAX}, Bounds{"maxCTAs", given.maxCTAs, 1, INT_MAX},
        Bounds{"splitShare", given.splitShare, 0, 1},
        Bounds{"collnetEnable", given.collnetEnable, 0, 1},
        Bounds{"CTAPolicy", given.CTAPolicy, 0, 3}, Bounds{"shrinkShare", given.shrinkShare, 0, 1},
        Bounds{"nvlsCTAs", given.nvlsCTAs, 1, INT_MAX},
        Bounds{"nChannelsPerNetPeer", given.nChannelsPerNetPeer, 1, INT_MAX},
        Bounds{"nvlinkCentricSched", given.nvlinkCentricSched, 0, 1},
        Bounds{"timeoutMs", given.timeoutMs, 1, INT_MAX}}) {
    if (each.value == WHORL_CONFIG_UNDEF_INT) continue;
    if (each.value >= each.low && each.value <= each.high) continue;
    return Status::error(
        Code::kInvalidArgument,
        fmt::format("config.{} is {}; it must be {}", each.field, each.value,
                    each.high == INT_MAX ? fmt::format("at least {}", each.low)
                                         : fmt::format("from {} to {}", each.low, each.high)));
  }
  const bool both_set =
      given.minCTAs != WHORL_CONFIG_UNDEF_INT && given.maxCTAs != WHORL_CONFIG_UNDEF_INT;
  if (!both_set || given.minCTAs <= given.maxCTAs) return {};
  return Status::error(Code::kInvalidArgument,
                       fmt::format("config.minCTAs is {}, more than config.maxCTAs, {}",
                                   given.minCTAs, given.maxCTAs));
}

} // namespace

Result<Options> Options::from_environment() {
  Options options;
  std::int64_t timeout_ms = 0;
  WHORL_TRY(read_param(Param::kMaxChannels, 2, 16, options.max_channels));
  WHORL_TRY(read_param(Param::kChannels, 1, options.max_channels, options.channels)
                .with_context("the upper bound is WHORL_MAX_CHANNELS"));
  if (!param_text(Param::kSlots).empty()) {
    WHORL_TRY(read_param(Param::kSlots, 2, 64, options.slots));
  }
  if (!param_text(Param::kSlotBytes).empty()) {
    WHORL_TRY(read_param(Param::kSlotBytes, 256, 16 << 20, options.slot_bytes));
  }
  WHORL_TRY(read_param(Param::kMemoryBudget, 0, std::int64_t{1} << 62, options.memory_budget));
  if (!param_text(Param::kNontemporalBytes).empty()) {
    WHORL_TRY(read_param(Param::kNontemporalBytes, 0, std::int64_t{1} << 62,
                         options.nontemporal_bytes.emplace()));
  }
  WHORL_TRY(read_param(Param::kTimeoutMs, 1, std::int64_t{1} << 31, timeout_ms));
  options.slot_bytes = round_up(options.slot_bytes, 64);
  options.timeout_ns = static_cast<std::uint64_t>(timeout_ms) * 1'000'000;
  options.algorithms = param_text(Param::kAlgo);
  WHORL_TRY(check_overrides(options.algorithms));
  options.dims = param_text(Param::kDims);
  WHORL_TRY(parse_dims(options.dims).status());
  options.trace = param_text(Param::kTrace);
  WHORL_TRY(read_param(Param::kTraceRecords, 1, 1 << 28, options.trace_records));
  options.profiler_plugin = param_text(Param::kProfilerPlugin);
  options.flight_file = param_text(Param::kFlightFile);
  WHORL_TRY(read_param(Param::kFlightRecords, 1, monitor::kMaxEntries - 1, options.flight_records));
  options.flight_records = std::bit_ceil(options.flight_records + 1); // one may be in the making

  if (!param_text(Param::kSpins).empty()) {
    WHORL_TRY(read_param(Param::kSpins, 0, 1'000'000'000, options.spins.emplace()));
  }

  // Settings that are used elsewhere, checked here so that a mistake does not pass in silence.
  WHORL_TRY(TcpTuning::from_environment().status());
  WHORL_TRY(VerbsSettings::from_environment().status());
  WHORL_TRY(heap_capacity().status());
  WHORL_TRY(param_int(Param::kSegmentBytes, 0, std::int64_t{1} << 40).status());
  for (const Param param : {Param::kInsecure, Param::kZeroCopy, Param::kDeviceIpc}) {
    WHORL_TRY(param_bool(param).status());
  }

  WHORL_TRY(check_simd());
  if (const std::string level = param_text(Param::kLog);
      level != "off" && level != "error" && level != "warn" && level != "info") {
    static std::once_flag once; // messages are no reason to end a job
    std::call_once(once, [&] {
      log(LogLevel::kWarn,
          fmt::format("WHORL_LOG=\"{}\" is none of off, error, warn and info; warn is used",
                      printable(level)));
    });
  }

  WHORL_TRY(read_param(Param::kProbe, options.probe));
  WHORL_TRY(read_param(Param::kEncrypt, options.encrypts));

  const std::string list = param_text(Param::kTransports);
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    options.transports.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  if (options.encrypts && param_is_set(Param::kTransports)) {
    WHORL_TRY(check_encryptable(options.transports, list));
  }
  if (param_text(Param::kVerify).empty()) {
#ifdef NDEBUG
    options.verify = false;
#else
    options.verify = true;
#endif
  } else {
    WHORL_TRY(read_param(Param::kVerify, options.verify));
  }
  return options;
}

bool blocking(const whorlConfig_t* config) noexcept {
  return config == nullptr || config->blocking == WHORL_CONFIG_UNDEF_INT || config->blocking != 0;
}

Result<Options> make_options(const whorlConfig_t* config) {
  warn_of_unknown_params();
  auto options = Options::from_environment();
  if (!options.ok()) return options;
  options->device = current_device();
  if (config == nullptr) return options;
  whorlConfig_t given = WHORL_CONFIG_INITIALIZER;
  if (config->magic != WHORL_CONFIG_MAGIC ||
      config->size < offsetof(whorlConfig_t, cgaClusterSize)) {
    return Status::error(Code::kInvalidArgument,
                         "config was not initialised; start from WHORL_CONFIG_INITIALIZER");
  }
  // A caller that was built with an older header has a shorter structure.
  std::memcpy(&given, config, std::min(config->size, sizeof given));

  WHORL_TRY(check_numbers(given));
  const auto set = [](int value, int& out) {
    if (value != WHORL_CONFIG_UNDEF_INT) out = value;
  };
  int timeout_ms = 0, min_channels = 1;
  set(given.maxCTAs, options->max_channels);
  set(given.nChannelsPerNetPeer, options->max_channels);
  options->max_channels = std::clamp(options->max_channels, 2, 16);
  set(given.minCTAs, min_channels);
  options->channels = std::min(std::max(options->channels, min_channels), options->max_channels);
  set(given.timeoutMs, timeout_ms);
  if (timeout_ms > 0) options->timeout_ns = static_cast<std::uint64_t>(timeout_ms) * 1'000'000;
  if (given.memoryBudget != 0) options->memory_budget = given.memoryBudget;
  const std::string_view net = given.netName != nullptr ? given.netName : "tcp";
  if (net != "tcp" && net != "Socket" && net != "IB") { // the last two are NCCL's names
    return Status::error(Code::kInvalidArgument,
                         fmt::format("config.netName is \"{}\"; there is \"tcp\"", given.netName));
  }
  if (given.commName != nullptr) options->name = given.commName;
  return options;
}

} // namespace whorl
