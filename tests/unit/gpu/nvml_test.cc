// Tests of the management library, the links of devices and the diagnostics of an unusable driver,
// on the library of pretended devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gpu/driver_diagnostics.h"
#include "gpu/nvml.h"
#include "tests/support/scoped_env.h"
#include "topology/nvlink.h"

namespace whorl::gpu {
namespace {

using test::ScopedEnv;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kPretended = FAKE_NVML;

TEST(Nvml, SaysThatThereIsNoLibrary) {
  const Nvml nvml("libno-such-thing.so.1");
  EXPECT_EQ(nvml.state(), Nvml::State::kNoLibrary);
  EXPECT_THAT(nvml.error(), HasSubstr("libno-such-thing.so.1"));
}

TEST(Nvml, SaysThatALibraryLacksFunctions) {
  const Nvml nvml("libc.so.6");
  EXPECT_EQ(nvml.state(), Nvml::State::kOldLibrary);
  EXPECT_THAT(nvml.error(), HasSubstr("has no nvml"));
}

TEST(Nvml, SaysWhyItCannotBeInitialised) {
  const ScopedEnv environment{{"FAKE_NVML_INIT", "18"}};
  const Nvml nvml(kPretended);
  EXPECT_EQ(nvml.state(), Nvml::State::kFailed);
  EXPECT_EQ(nvml.code(), NVML_ERROR_LIB_RM_VERSION_MISMATCH);
  EXPECT_EQ(nvml.error(), "Driver/library version mismatch");
}

TEST(Nvml, DescribesDevices) {
  const ScopedEnv environment{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_NVML_SLOWED", "0x24"}};
  const Nvml nvml(kPretended);
  ASSERT_EQ(nvml.state(), Nvml::State::kReady);
  EXPECT_EQ(nvml.driver_version(), "pretended");
  ASSERT_EQ(nvml.devices().size(), 2U);
  const DeviceFacts facts = facts_of(nvml, nvml.devices()[1]);
  EXPECT_EQ(facts.name, "pretended device");
  EXPECT_EQ(facts.uuid, "GPU-02000000-0000-0000-0000-000000000000");
  EXPECT_EQ(facts.bus_id, "00000000:2b:00.0");
  EXPECT_EQ(facts.memory_bytes, 1ULL << 30);
  EXPECT_EQ(facts.sm_clock_mhz, 345U);
  EXPECT_EQ(facts.max_sm_clock_mhz, 1980U);
  EXPECT_EQ(facts.memory_clock_mhz, 2619U);
  EXPECT_EQ(facts.power_limit_mw, 700000U);
  EXPECT_EQ(facts.partitioned, std::nullopt) << "it has no MIG";
  EXPECT_THAT(facts.slowed_by, ElementsAre("software power cap", "software thermal slowdown"));
}

TEST(Nvml, NamesWhatSlowsTheClocks) {
  EXPECT_THAT(slowdown_names(0), IsEmpty());
  EXPECT_THAT(slowdown_names(1), ElementsAre("idle"));
  EXPECT_THAT(slowdown_names(0x8 | 0x400), ElementsAre("hardware slowdown", "reason 10"));
}

TEST(Links, BetweenTwoDevices) {
  const ScopedEnv environment{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_NVML_LINKS", "3"}};
  const Nvml nvml(kPretended);
  const DeviceLinks found = find_links(nvml);
  EXPECT_THAT(found.bus_ids, ElementsAre("00000000:1b:00.0", "00000000:2b:00.0"));
  ASSERT_EQ(found.links.size(), 2U);
  ASSERT_EQ(found.links[0].size(), 3U);
  EXPECT_THAT(found.links[0],
              Each(AllOf(Field(&NvLink::end, NvLink::End::kGpu), Field(&NvLink::version, 4U),
                         Field(&NvLink::peer_bus_id, found.bus_ids[1]))));
  EXPECT_THAT(found.links[1], Each(Field(&NvLink::peer_bus_id, found.bus_ids[0])));
  ASSERT_EQ(found.pairs.size(), 2U);
  EXPECT_THAT(found.pairs,
              Each(AllOf(Field(&DevicePair::nvlinks, 3U), Field(&DevicePair::read, Reach::kWorks),
                         Field(&DevicePair::nvlink, Reach::kWorks))));
}

TEST(Links, OfThreeDevicesAreCountedByPair) {
  const ScopedEnv environment{{"FAKE_CUDA_DEVICES", "3"}, {"FAKE_NVML_LINKS", "2"}};
  const DeviceLinks found = find_links(Nvml(kPretended));
  EXPECT_EQ(found.links[1].size(), 4U);
  EXPECT_EQ(found.pairs.size(), 6U);
  EXPECT_THAT(found.pairs, Each(Field(&DevicePair::nvlinks, 2U)));
}

TEST(Links, ToASwitchReachAllDevices) {
  const ScopedEnv environment{
      {"FAKE_CUDA_DEVICES", "4"}, {"FAKE_NVML_LINKS", "18"}, {"FAKE_NVML_SWITCH", "1"}};
  const DeviceLinks found = find_links(Nvml(kPretended));
  ASSERT_EQ(found.links.size(), 4U);
  EXPECT_EQ(found.links[3].size(), 18U);
  EXPECT_THAT(found.links[3], Each(Field(&NvLink::end, NvLink::End::kSwitch)));
  EXPECT_EQ(found.pairs.size(), 12U);
  EXPECT_THAT(found.pairs, Each(Field(&DevicePair::nvlinks, 18U)));
}

TEST(Links, OfDevicesWithoutNvlink) {
  const ScopedEnv environment{{"FAKE_CUDA_DEVICES", "2"}};
  const DeviceLinks found = find_links(Nvml(kPretended));
  EXPECT_THAT(found.links, Each(IsEmpty()));
  EXPECT_THAT(found.pairs,
              Each(AllOf(Field(&DevicePair::nvlinks, 0U), Field(&DevicePair::read, Reach::kChipset),
                         Field(&DevicePair::nvlink, Reach::kNot))));
  EXPECT_STREQ(words_of(Reach::kChipset), "no: the chipset cannot");
}

/// Files of /sys, /proc and /dev that describe a driver.
class Files {
 public:
  Files() {
    std::string name = testing::TempDir() + "whorl_trouble_XXXXXX";
    root = mkdtemp(name.data());
  }
  ~Files() { std::filesystem::remove_all(root); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text << '\n';
  }
  std::filesystem::path root;
};

TEST(Trouble, LooksAtFiles) {
  const Files files;
  EXPECT_EQ(look_at_files(files.root).gpus, 0);
  EXPECT_EQ(look_at_files(files.root).kernel_module, "");
  files.write("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de");
  files.write("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200");
  files.write("sys/bus/pci/devices/0000:3b:00.1/vendor", "0x10de"); // the GPU's audio device
  files.write("sys/bus/pci/devices/0000:3b:00.1/class", "0x040300");
  files.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x1a03"); // another vendor's display
  files.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030000");
  files.write("proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build");
  files.write("dev/nvidiactl", "");
  const DriverSetup setup = look_at_files(files.root);
  EXPECT_EQ(setup.gpus, 1);
  EXPECT_EQ(setup.kernel_module, "580.95.05");
  EXPECT_TRUE(setup.nodes);
  EXPECT_EQ(setup.closed_node, "");
}

constexpr int kCuda13 = 13000;

DriverSetup good_setup() {
  return {.gpus = 1,
          .kernel_module = "580.95.05",
          .nodes = true,
          .cuda_version = kCuda13,
          .nvml = Nvml::State::kReady};
}

TEST(Trouble, IsNoneWhereAllIsWell) {
  EXPECT_EQ(diagnose_driver(good_setup(), kCuda13), "");
  DriverSetup setup = good_setup();
  setup.nvml = Nvml::State::kNoLibrary; // a container that has only CUDA
  EXPECT_EQ(diagnose_driver(setup, kCuda13), "");
  setup.nvml = Nvml::State::kFailed;
  setup.nvml_code = 999;
  EXPECT_EQ(diagnose_driver(setup, kCuda13), "") << "CUDA may work all the same";
  setup = good_setup();
  setup.closed_node = "/dev/nvidia0";
  EXPECT_EQ(diagnose_driver(setup, kCuda13), "") << "the process may have another GPU";
  setup = good_setup();
  setup.cuda_version = 13020;
  EXPECT_EQ(diagnose_driver(setup, kCuda13), "");
}

TEST(Trouble, NoGpuAndNoDriver) {
  EXPECT_EQ(diagnose_driver({.cuda_error = "libcuda.so.1: cannot open"}, kCuda13),
            "there is no CUDA driver: libcuda.so.1: cannot open; install NVIDIA's driver, or use "
            "host memory");
}

TEST(Trouble, AGpuWithoutTheLibrary) {
  DriverSetup setup{.gpus = 2, .cuda_error = "libcuda.so.1: cannot open"};
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("has 2 NVIDIA GPUs and no NVIDIA kernel module is loaded"),
                    HasSubstr("libcuda.so.1: cannot open"), HasSubstr("install the driver")));
  setup.kernel_module = "580.95.05";
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("kernel module 580.95.05 is loaded"),
                    HasSubstr("of version 580.95.05"), HasSubstr("NVIDIA_DRIVER_CAPABILITIES")));
}

TEST(Trouble, TheLibrariesAreOfAnotherVersion) {
  const ScopedEnv environment{{"FAKE_NVML_INIT", "18"}};
  const Nvml nvml(kPretended);
  DriverSetup setup = good_setup();
  setup.nvml = nvml.state();
  setup.nvml_code = nvml.code();
  setup.nvml_error = nvml.error();
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("1 NVIDIA GPU and NVIDIA's kernel module 580.95.05"),
                    HasSubstr("Driver/library version mismatch"), HasSubstr("restart")));
  setup.cuda_works = true;
  EXPECT_EQ(diagnose_driver(setup, kCuda13), "") << "this process has a device";
}

TEST(Trouble, NoPermission) {
  DriverSetup setup = good_setup();
  setup.nvml = Nvml::State::kFailed;
  setup.nvml_code = NVML_ERROR_NO_PERMISSION;
  setup.nvml_error = "Insufficient Permissions";
  EXPECT_THAT(diagnose_driver(setup, kCuda13), HasSubstr("may not use the driver"));
  setup.closed_node = "/dev/nvidiactl";
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("may not open /dev/nvidiactl"), HasSubstr("group")));
}

TEST(Trouble, TheDriverIsNotThere) {
  DriverSetup setup{.gpus = 1,
                    .cuda_version = kCuda13,
                    .nvml = Nvml::State::kFailed,
                    .nvml_code = NVML_ERROR_DRIVER_NOT_LOADED,
                    .nvml_error = "Driver Not Loaded"};
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("no NVIDIA kernel module"), HasSubstr("modprobe nvidia")));
  setup.kernel_module = "580.95.05";
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("there is no /dev/nvidiactl"), HasSubstr("nvidia-modprobe")));
  setup.nvml_code = NVML_ERROR_GPU_IS_LOST;
  EXPECT_THAT(diagnose_driver(setup, kCuda13), HasSubstr("dmesg"));
}

TEST(Trouble, TheDriverIsTooOldForTheKernels) {
  DriverSetup setup = good_setup();
  setup.cuda_version = 12020;
  setup.cuda_works = true;
  EXPECT_THAT(diagnose_driver(setup, kCuda13),
              AllOf(HasSubstr("for CUDA 12.2"), HasSubstr("compiled by CUDA 13.0"),
                    HasSubstr("build whorl with CUDA 12"), Not(HasSubstr("\n"))));
}

} // namespace
} // namespace whorl::gpu
