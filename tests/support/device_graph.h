#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <functional>

namespace whorl::test {

/// Graph of the operations that `body` queues in a stream, which run only at launch().
class DeviceGraph {
 public:
  DeviceGraph(CUstream stream, const std::function<void()>& body,
              CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
    body();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    if (graph == nullptr) return;
    EXPECT_EQ(cuGraphInstantiate(&executable_, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  ~DeviceGraph() {
    if (executable_ == nullptr) return;
    EXPECT_EQ(cuGraphExecDestroy(executable_), CUDA_SUCCESS);
  }
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  void launch(CUstream stream) const {
    ASSERT_NE(executable_, nullptr);
    EXPECT_EQ(cuGraphLaunch(executable_, stream), CUDA_SUCCESS);
  }

 private:
  CUgraphExec executable_ = nullptr;
};

} // namespace whorl::test
