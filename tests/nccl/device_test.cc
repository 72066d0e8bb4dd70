// Tests of libnccl.so.2 on memory of a (pretended) device, see tests/support/fake_cuda.
#include "tests/support/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "bindings/nccl/abi.h"

namespace {

using whorl::test::DeviceContext;
using whorl::test::DeviceCopy;
using whorl::test::DeviceQueue;
using whorl::test::KeepMemory;

cudaStream_t runtime(CUstream stream) { return reinterpret_cast<cudaStream_t>(stream); }

class World {
 public:
  explicit World(int nranks) : comms_(static_cast<std::size_t>(nranks)) {
    const std::vector<int> devices(comms_.size(), 0); // all ranks on one device, which NCCL refuses
    EXPECT_EQ(ncclCommInitAll(comms_.data(), nranks, devices.data()), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ~World() {
    for (const ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  template <class Body>
  void each(Body body) {
    const KeepMemory until_all_are_joined;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const DeviceContext context;
        body(static_cast<int>(rank), comms_[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ncclComm_t comm(std::size_t rank) const { return comms_[rank]; }

 private:
  std::vector<ncclComm_t> comms_;
};

TEST(NcclDevice, CollectivesAreInTheStream) {
  const DeviceContext context;
  World world(3);
  world.each([](int rank, ncclComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy in(std::vector<float>(300, static_cast<float>(rank + 1)), stream.get());
    const DeviceCopy sum(std::vector<float>(300), stream.get());
    const DeviceCopy part(std::vector<float>(100), stream.get());
    const DeviceCopy all(std::vector<float>(900), stream.get());
    const cudaStream_t on = runtime(stream.get());
    EXPECT_EQ(ncclAllReduce(in.data(), sum.data(), 300, ncclFloat32, ncclSum, comm, on),
              ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(sum.data(), part.data(), 100, ncclFloat32, ncclMax, comm, on),
              ncclSuccess);
    EXPECT_EQ(ncclAllGather(in.data(), all.data(), 300, ncclFloat32, comm, on), ncclSuccess);
    EXPECT_EQ(sum.read<float>(stream.get()), std::vector<float>(300, 6.0f));
    EXPECT_EQ(part.read<float>(stream.get()), std::vector<float>(100, 6.0f));
    const std::vector<float> gathered = all.read<float>(stream.get());
    for (std::size_t i = 0; i < 900; ++i) {
      ASSERT_EQ(gathered[i], static_cast<float>(i / 300 + 1)) << i;
    }
  });
}

TEST(NcclDevice, OfACommunicatorIsThatOfItsCreation) {
  const auto device_of = [](ncclComm_t comm) {
    int device = -5;
    EXPECT_EQ(ncclCommCuDevice(comm, &device), ncclSuccess);
    return device;
  };
  ncclComm_t comms[3] = {};
  const int devices[] = {0, 2, 0};
  ASSERT_EQ(ncclCommInitAll(comms, 3, devices), ncclSuccess) << ncclGetLastError(nullptr);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(device_of(comms[rank]), devices[rank]);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);

  const auto alone = [&](int expected) {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(device_of(comm), expected);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  };
  std::thread(alone, -1).join(); // in a thread without a current context
  const DeviceContext context;
  alone(0);
}

TEST(NcclDevice, OfNoElementsMayBeCaptured) {
  const DeviceContext context;
  const World world(2);
  const DeviceQueue stream;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (const std::size_t rank : {0u, 1u}) {
    EXPECT_EQ(ncclReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, 0, world.comm(rank),
                         runtime(stream.get())),
              ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(cuStreamEndCapture(stream.get(), &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST(NcclDevice, SendsAndReceivesAreInTheStream) {
  const DeviceContext context;
  World world(2);
  world.each([](int rank, ncclComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy out(std::vector<float>(50, static_cast<float>(rank)), stream.get());
    const DeviceCopy in(std::vector<float>(50, -1.0f), stream.get());
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(out.data(), 50, ncclFloat32, 1 - rank, comm, runtime(stream.get())),
              ncclSuccess);
    EXPECT_EQ(ncclRecv(in.data(), 50, ncclFloat32, 1 - rank, comm, runtime(stream.get())),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(in.read<float>(stream.get()), std::vector<float>(50, static_cast<float>(1 - rank)));
  });
}

TEST(NcclDevice, OneThreadHasAllRanksOnTheDefaultStream) {
  const DeviceContext context;
  World world(2);
  const DeviceCopy a(std::vector<double>(10, 1.0), nullptr),
      b(std::vector<double>(10, 2.0), nullptr);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclAllReduce(a.data(), a.data(), 10, ncclFloat64, ncclAvg, world.comm(0), nullptr),
            ncclSuccess);
  ASSERT_EQ(ncclAllReduce(b.data(), b.data(), 10, ncclFloat64, ncclAvg, world.comm(1), nullptr),
            ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(a.read<double>(nullptr), std::vector<double>(10, 1.5));
  EXPECT_EQ(b.read<double>(nullptr), std::vector<double>(10, 1.5));
}

// Checks an operation whose buffers are on the host, but not its factor: it is in the call's
// stream, not in the default stream.
TEST(NcclDevice, AFactorOnTheDeviceIsUsedInTheStream) {
  const DeviceContext context;
  World world(1);
  const DeviceQueue stream;
  const DeviceCopy factor(std::vector<float>{3.0f}, stream.get());
  const DeviceCopy word(std::vector<std::uint32_t>{0}, stream.get());
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, sizeof(float), 0), CUDA_SUCCESS);
  auto& value = *static_cast<float*>(pinned);
  value = 2.0f;
  ncclRedOp_t op = ncclSum;
  ASSERT_EQ(
      ncclRedOpCreatePreMulSum(&op, factor.data(), ncclFloat32, ncclScalarDevice, world.comm(0)),
      ncclSuccess);
  const auto at = reinterpret_cast<CUdeviceptr>(word.data());
  ASSERT_EQ(cuStreamWaitValue32(nullptr, at, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  EXPECT_EQ(ncclAllReduce(pinned, pinned, 1, ncclFloat32, op, world.comm(0), runtime(stream.get())),
            ncclSuccess)
      << ncclGetLastError(world.comm(0));
  stream.synchronize();
  EXPECT_EQ(value, 6.0f);
  ASSERT_EQ(cuStreamWriteValue32(stream.get(), at, 1, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(ncclRedOpDestroy(op, world.comm(0)), ncclSuccess);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST(NcclDevice, AllocatesWhereTheProgramComputes) {
  const DeviceContext context;
  World world(1);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  unsigned type = 0;
  ASSERT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(memory)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(world.comm(0), memory, 4096, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(world.comm(0), handle), ncclSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(world.comm(0), memory, 4096, &window, 0), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(world.comm(0), window), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_NE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(memory)),
            CUDA_SUCCESS);
}

} // namespace
