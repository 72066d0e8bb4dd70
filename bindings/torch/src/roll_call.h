#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <mutex>
#include <string>

namespace whorl_torch {

/// Which ranks of a group have ended, as far as this host can tell: each writes into the store
/// which process it is. For the time in which no communicator watches them. Any thread.
class RollCall {
 public:
  /// Enters this process as `rank`. `prefix` is that of the keys.
  RollCall(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank);
  /// Whether the process of a rank is known to have ended, orderly or not. Never throws: a rank
  /// that is not entered yet, or is on another host, has not ended.
  bool has_ended(int rank) noexcept;

 private:
  struct Process {
    std::string host; ///< empty: not known
    long id = 0;
    unsigned long long started = 0; ///< ticks since boot; ids are used again
  };
  static Process parse(const std::string& entry);
  static Process self();
  static bool ended(const Process& process);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const Process self_;
  std::mutex mutex_; ///< of entries_
  std::map<int, Process> entries_;
};

} // namespace whorl_torch
