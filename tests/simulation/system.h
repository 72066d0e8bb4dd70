#pragma once

#include "base/system.h"

namespace whorl::simulation {

/// Operating system of the simulated ranks: the clock, sleeping, and futexes in shared memory.
class SimulatedSystem : public System {
 public:
  std::uint64_t now_ns() noexcept override;
  void sleep_ns(std::uint64_t duration_ns) noexcept override;
  void yield() noexcept override;
  int populate(void* address, std::size_t size) noexcept override;
  int memfd_create(const char* name) noexcept override; ///< fails: records stay private
  int futex_wait(const std::atomic<std::uint32_t>* word, std::uint32_t expected,
                 std::uint64_t timeout_ns) noexcept override;
  int futex_wake(std::atomic<std::uint32_t>* word) noexcept override;
};

} // namespace whorl::simulation
