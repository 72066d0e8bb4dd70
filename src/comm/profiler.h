#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/observer.h"
#include "whorl/profiler.h"

namespace whorl {

/// Plug-in that is told of the operations of one communicator, see whorl/profiler.h.
class Profiler final : public Observer {
 public:
  /// Names of the communicator and of the rank.
  struct Who {
    std::string name; ///< name of the communicator; may be empty
    std::uint64_t id = 0;
    int rank = 0;
    int nranks = 1;
  };
  /// Loads the plug-in and tells the plug-in of a communicator. `plugin` is the value of
  /// WHORL_PROFILER_PLUGIN, which the error names.
  static Result<std::unique_ptr<Profiler>> open(const std::string& plugin, const Who& who);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void* begin(const ObservedOperation& operation) noexcept override;
  void end(void* handle) noexcept override;

 private:
  Profiler(const whorlProfiler_v1_t& plugin, int rank) noexcept : plugin_(plugin), rank_(rank) {}
  void check(whorlResult_t result, const char* function) noexcept;

  const whorlProfiler_v1_t& plugin_;
  int rank_;
  int mask_ = 0; ///< kinds of events that the plug-in wants; it writes them from any thread
  void* context_ = nullptr;
  bool ready_ = false;  ///< whether init() has succeeded
  bool failed_ = false; ///< whether the plug-in has returned an error
};

} // namespace whorl
