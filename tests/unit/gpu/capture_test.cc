// Tests of captures on the pretended device: which of them a call makes invalid that cannot be part
// of a graph.
#include <gtest/gtest.h>

#include "tests/support/device.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

CUresult end_capture(const DeviceQueue& stream) {
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(stream.get(), &graph);
  EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
  if (graph != nullptr) {
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  return result;
}

TEST(PretendedCaptures, AnUnsafeCallInvalidatesAllGlobalOnesUnderWay) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const DeviceContext context;
  const DeviceQueue first, second, relaxed, later;
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(relaxed.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  for (const DeviceQueue* const stream : {&first, &second}) {
    ASSERT_EQ(cuStreamBeginCapture(stream->get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_EQ(cuStreamBeginCapture(later.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(end_capture(later), CUDA_SUCCESS);
  EXPECT_EQ(end_capture(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end_capture(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end_capture(relaxed), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

} // namespace
} // namespace whorl::test
