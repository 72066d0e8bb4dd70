// Tests of what a rank keeps of operations that were captured into graphs.
#include "device/ipc/graph_replay.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/shm_segment.h"
#include "tests/support/device.h"
#include "tests/support/pretended_device.h"

namespace whorl {
namespace {

/// Rank of two, of which the other one does nothing.
class DeviceReplaysTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!test::device_is_pretended()) GTEST_SKIP() << "a real driver";
    auto memory = ShmSegment::create("board", board_bytes_for(2, true));
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    memory_ = *std::move(memory);
    const SharedState board({memory_.data(), memory_.size()}, 2);
    const std::vector<std::string> names{"rank 0", "rank 1"};
    barriers_ = std::make_unique<StreamSync>(board, GetParam(), names, watch_);
    ASSERT_EQ(barriers_->prepare().message(), "");
    replays_ = std::make_unique<DeviceReplays>(board, GetParam(), names, watch_, *barriers_);
    ASSERT_EQ(replays_->prepare().message(), "");
  }
  /// Captures an operation, and destroys the graph.
  void capture() {
    ASSERT_EQ(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    const auto captured = capture_of(stream_.get(), test::primary_context(0));
    ASSERT_TRUE(captured.ok()) << captured.status().message();
    const Status status = replays_->capture(
        {.stream = stream_.get(), .stream_id = 1, .timeout_ns = 1'000'000'000, .call = {}},
        *captured, [] { return Status(); });
    EXPECT_EQ(status.message(), "");
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream_.get(), &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    test::wait_for_graphs_to_go();
  }

  test::DeviceContext context_;
  test::DeviceQueue stream_;
  ShmSegment memory_;
  CommError comm_error_;
  DeviceWatch watch_{.comm_error = &comm_error_,
                     .look_at_peers = [] {},
                     .fail = [this](Status why) { comm_error_.set(std::move(why)); }};
  std::unique_ptr<StreamSync> barriers_;
  std::unique_ptr<DeviceReplays> replays_;
};

TEST_P(DeviceReplaysTest, ForgetsOperationsWhoseGraphsAreGone) {
  for (int i = 0; i < 20; ++i) capture();
  EXPECT_LE(replays_->kept(), 1U);
}

TEST_P(DeviceReplaysTest, FreesNothingThatAResetHasFreed) {
  capture();
  CUcontext next = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&next, 0), CUDA_SUCCESS);
  const long before = test::stale_calls();
  replays_.reset();
  EXPECT_EQ(test::stale_calls(), before);
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceReplaysTest, ::testing::Values(0, 1));

} // namespace
} // namespace whorl
