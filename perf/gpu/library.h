#pragma once

#include <cstddef>
#include <string>

#include "perf/common/api.h"

namespace perf::gpu {

// clang-format off
#define PERF_LIBRARY_FUNCTIONS(function)                                                      \
  function(GetUniqueId) function(CommInitRank) function(CommDestroy) function(CommAbort)     \
  function(GroupStart) function(GroupEnd) function(AllReduce) function(ReduceScatter) function(AllGather)          \
  function(Reduce) function(GetErrorString) function(GetLastError) function(GetVersion)
// clang-format on

/// Library with NCCL's interface: whorl, or NCCL, whose types and numbers are whorl's.
class Library {
 public:
  /// Returns whorl, which this program is linked with.
  static Library whorl();
  /// Loads and returns the NCCL at `path`, which stays loaded. Throws Failure.
  static Library nccl(const std::string& path);

#define PERF_LIBRARY_MEMBER(name) decltype(&XCCL(name)) name = nullptr;
  PERF_LIBRARY_FUNCTIONS(PERF_LIBRARY_MEMBER)
#undef PERF_LIBRARY_MEMBER

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int version() const;
  /// Throws Failure with the library's sentence unless `result` is success.
  void check(Result result, Comm comm, const char* call) const;

 private:
  std::string name_;
};

/// Group of calls. An exception ends the group, too, without its calls: later calls are not part of
/// it.
class Group {
 public:
  explicit Group(const Library& library) : library_(library) {
    library.check(library.GroupStart(), nullptr, "GroupStart");
  }
  ~Group() {
    if (open_) static_cast<void>(library_.GroupEnd());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Makes the calls. `comm` is one of theirs, or null.
  void end(Comm comm) {
    open_ = false;
    library_.check(library_.GroupEnd(), comm, "GroupEnd");
  }

 private:
  const Library& library_;
  bool open_ = true;
};

/// Returns whether the file of the library whorl contains the text `name`: whether it has that
/// parameter.
bool whorl_mentions(const std::string& name);

} // namespace perf::gpu
