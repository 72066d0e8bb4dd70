#pragma once

// Processes that share a device and form one communicator. Only the processes that are ranks use
// the driver.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/process_world.h"

namespace whorl::test {

using DeviceProcess = std::function<void(RankContext&, whorlComm_t)>;

/// Runs `body` in n processes that form one communicator; rank r has the context of device r modulo
/// `devices`.
std::vector<RankOutcome> outcomes_of(int n, const Environment& environment,
                                     const DeviceProcess& body, int devices = 1);
/// Returns the failures of all ranks; "" if there is none.
std::string run_world(int n, const DeviceProcess& body, const Environment& environment = {},
                      int devices = 1);

/// Body of run_pairs(), with the context of a process, its two ranks and a stream for each.
using PairOfRanks = std::function<void(RankContext&, std::array<whorlComm_t, 2>&,
                                       const std::array<DeviceQueue, 2>&)>;

/// Runs `body` in two processes that form one communicator of four ranks; each acts for two, on one
/// device. Communicators that `body` sets to null have been destroyed by it.
std::string run_pairs(const PairOfRanks& body);

/// Returns whether the host has carried out a collective of this communicator.
bool host_was_used(whorlComm_t comm);

/// Waits up to ten seconds for the communicator's error and returns it; "" if there is none.
std::string error_of(whorlComm_t comm);

/// Barrier in a stream, which the host opens.
class StreamBarrier {
 public:
  explicit StreamBarrier(CUstream stream);
  void open() { word_->store(1, std::memory_order_release); } // pairs with the stream's wait

 private:
  std::atomic<std::uint32_t>* word_; ///< kept until the process ends
};

} // namespace whorl::test
