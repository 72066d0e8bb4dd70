#pragma once

// Processes that share a device and form one communicator. Only the processes that are ranks use
// the driver.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/process_world.h"

namespace whorl::test {

using DeviceProcess = std::function<void(testing::RankContext&, whorlComm_t)>;

/// Runs `body` in n processes that form one communicator; that of rank r has the context of device
/// r modulo `devices`.
std::vector<testing::RankOutcome> outcomes_of(int n, const Environment& environment,
                                              const DeviceProcess& body, int devices = 1);
/// The failures of all of them; "" if there is none.
std::string run_world(int n, const DeviceProcess& body, const Environment& environment = {},
                      int devices = 1);

/// Whether the host has carried out a collective of this communicator.
bool host_was_used(whorlComm_t comm);

/// The error of a communicator, as soon as it has one; "" if it has none after ten seconds.
std::string error_of(whorlComm_t comm);

/// Keeps a stream from going on until it is opened, by the host.
class StreamBarrier {
 public:
  explicit StreamBarrier(CUstream stream);
  void open() { word_->store(1, std::memory_order_release); } // pairs with the stream's wait

 private:
  std::atomic<std::uint32_t>* word_; ///< kept until the process ends
};

} // namespace whorl::test
