// Tests beside a thread of the program that is inside the driver because of a waiting stream: it
// frees memory or loads a kernel, which both wait for all streams of the context, or copies to
// pageable memory; the driver holds up the calls of all other threads of the process meanwhile. So
// nothing that the stream waits for may make a call of the driver. On the driver of
// device_processes_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 60'000;
constexpr char kModule[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

/// Path by which the ranks carry out an operation.
struct Way {
  const char* name;
  Environment environment;
  int devices = 1;
  bool replayed = false;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

/// Call of the program's thread that waits for the stream of the operations.
enum class Busy { kFrees, kLoads, kCopies };
constexpr const char* name_of(Busy busy) {
  return busy == Busy::kFrees ? "Frees" : busy == Busy::kLoads ? "Loads" : "Copies";
}
void PrintTo(Busy busy, std::ostream* out) { *out << name_of(busy); }

/// Operations of a rank, in a stream or in a graph.
class Operations {
 public:
  Operations(const Way& way, whorlComm_t comm) : comm_(comm) {
    queue(1); // which allocates and loads what later ones need
    stream.synchronize();
    if (!way.replayed) return;
    graph_ = std::make_unique<DeviceGraph>(stream.get(), [&] { queue(1); });
    graph_->launch(stream.get());
    stream.synchronize();
  }
  /// Queues `n` operations, each of which doubles the values.
  void run(int n) const {
    if (graph_ == nullptr) return queue(n);
    for (int i = 0; i < n; ++i) graph_->launch(stream.get());
  }
  /// Copies the last value behind the operations.
  float value() const {
    float last = 0;
    EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&last),
                            reinterpret_cast<CUdeviceptr>(values_.data<float>() + kCount - 1),
                            sizeof last, stream.get()),
              CUDA_SUCCESS);
    stream.synchronize();
    return last;
  }

  const DeviceQueue stream;

 private:
  void queue(int n) const {
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(failure(whorlAllReduce(values_.data(), values_.data(), kCount, whorlFloat32,
                                       whorlSum, comm_, stream.get()),
                        comm_),
                "");
    }
  }

  const whorlComm_t comm_;
  const DeviceCopy values_{std::vector<float>(kCount, 1.0f), stream.get()};
  std::unique_ptr<DeviceGraph> graph_;
};

/// Thread of the program that is inside the driver until the stream of the operations has passed
/// them. The constructor returns once it is there.
class BusyThread {
 public:
  BusyThread(Busy what, int device, const Operations& operations) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
    thread_ = std::thread([=, &operations] {
      const DeviceContext own(device);
      CUmodule module = nullptr;
      switch (what) {
        case Busy::kFrees:
          EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
          break;
        case Busy::kLoads:
          EXPECT_EQ(cuModuleLoadData(&module, kModule), CUDA_SUCCESS);
          break;
        case Busy::kCopies: // to pageable memory
          operations.value();
          break;
      }
    });
    if (device_is_pretended()) {
      while (waiting_in_driver() == 0) std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~BusyThread() { thread_.join(); }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;

 private:
  std::thread thread_;
};

class BusyDriver : public ::testing::TestWithParam<std::tuple<Way, Busy>> {
 protected:
  void SetUp() override {
    if (!device_is_pretended() && way().devices > 1) GTEST_SKIP() << "a real driver";
  }
  static const Way& way() { return std::get<Way>(GetParam()); }
  static Busy busy() { return std::get<Busy>(GetParam()); }
  /// Runs a rank in each of two processes.
  static std::string run(const DeviceProcess& body, Environment more = {}) {
    Environment all = way().environment;
    all.insert(all.end(), more.begin(), more.end());
    return run_world(2, body, all, way().devices);
  }
  static int device_of(int rank) { return rank % way().devices; }

  const ScopedEnv devices_{{"FAKE_CUDA_DEVICES", std::to_string(way().devices)}};
};
INSTANTIATE_TEST_SUITE_P(
    Ways, BusyDriver,
    ::testing::Combine(
        ::testing::Values(Way{.name = "Shared", .environment = {}},
                          Way{.name = "Replayed", .environment = {}, .replayed = true},
                          Way{.name = "Schedule", .environment = {}, .devices = 2},
                          Way{.name = "ByTheHost",
                              .environment = {{"WHORL_DEVICE_IPC", "0"},
                                              {"WHORL_SEGMENT_BYTES", "0"}}},
                          Way{.name = "InSegments",
                              .environment = {{"WHORL_DEVICE_IPC", "0"},
                                              {"WHORL_SEGMENT_BYTES", "16384"},
                                              {"WHORL_SLOT_BYTES", "1024"}}}),
        ::testing::Values(Busy::kFrees, Busy::kLoads, Busy::kCopies)),
    [](const auto& test) {
      return std::string(std::get<Way>(test.param).name) + "WhileItsThread" +
             name_of(std::get<Busy>(test.param));
    });

TEST_P(BusyDriver, DoesNotHoldUpOperationsThatAreQueued) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Operations operations(way(), comm);
    const float before = operations.value();
    StreamBarrier barrier(operations.stream.get());
    operations.run(3);
    context.barrier(); // all ranks have queued all operations
    {
      const BusyThread thread(busy(), device_of(context.rank), operations);
      context.barrier();
      barrier.open();
    }
    EXPECT_EQ(operations.value(), 8 * before);
  };
  EXPECT_EQ(run(body), "");
}

/// Two operations, queued on all ranks, that the stream of rank 1 does not reach.
struct Unreached {
  Unreached(RankContext& context, const Operations& operations) {
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(operations.stream.get());
    operations.run(2);
    context.barrier();
  }
  std::unique_ptr<StreamBarrier> barrier; ///< null but on rank 1
};

TEST_P(BusyDriver, DoesNotKeepARankThatDoesNotComeFromBeingNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Operations operations(way(), comm);
    const Unreached unreached(context, operations);
    if (context.rank == 0) {
      const BusyThread thread(busy(), device_of(context.rank), operations);
      EXPECT_THAT(error_of(comm), HasSubstr("waiting for rank 1"));
    }
    context.barrier();
    if (unreached.barrier) unreached.barrier->open();
    operations.stream.synchronize();
  };
  EXPECT_EQ(run(body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

TEST_P(BusyDriver, DoesNotKeepADeadRankFromBeingNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Operations operations(way(), comm);
    const Unreached unreached(context, operations);
    {
      std::unique_ptr<BusyThread> thread;
      if (context.rank == 0)
        thread = std::make_unique<BusyThread>(busy(), device_of(0), operations);
      context.barrier();
      if (context.rank == 1) context.die();
      EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
    }
    operations.stream.synchronize();
  };
  const auto outcomes = outcomes_of(2, way().environment, body, way().devices);
  EXPECT_TRUE(outcomes[1].killed);
  EXPECT_EQ(outcomes[0].failures, "");
}

} // namespace
} // namespace whorl::test
