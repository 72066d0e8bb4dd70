#pragma once

// Processes with one pretended device each that form one communicator.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {

class DevicePeers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device_is_pretended()) GTEST_SKIP() << "needs several devices, and holds kernels";
  }
  /// Runs each rank on a device of its own, with slots so small that messages take several.
  static std::string run(int nranks, const DeviceProcess& body, Environment environment = {}) {
    environment.push_back({"WHORL_SLOT_BYTES", "1024"});
    environment.push_back({"WHORL_SLOTS", "2"});
    return run_world(nranks, body, environment, nranks);
  }
  static whorlResult_t sum_up(const DeviceCopy& values, std::size_t count, whorlComm_t comm,
                              const DeviceQueue& stream) {
    return whorlAllReduce(values.data(), values.data(), count, whorlInt32, whorlSum, comm,
                          stream.get());
  }

  const ScopedEnv settings_{{"FAKE_CUDA_DEVICES", "4"}, {"FAKE_CUDA_PROCESSORS", "32"}};
};

} // namespace whorl::test
