// Tests of bad arguments: expects a code, a sentence that names function, rank, argument and
// remedy, and a communicator that still works.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

class Arguments : public ::testing::Test {
 protected:
  void TearDown() override {
    // After refused calls, the communicators still work.
    world_.each([](int rank, whorlComm_t comm) -> std::string {
      float in = static_cast<float>(rank), out = -1;
      if (std::string f =
              failure(whorlAllReduce(&in, &out, 1, whorlFloat32, whorlSum, comm, nullptr), comm);
          !f.empty()) {
        return f;
      }
      return out == 1 ? "" : "wrong sum";
    });
  }
  whorlComm_t comm() const { return world_.comm(1); }
  static void refused(whorlResult_t result, const std::vector<std::string>& words,
                      whorlResult_t code = whorlInvalidArgument) {
    EXPECT_EQ(result, code);
    const std::string text = whorlGetLastError(nullptr);
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
    }
  }

  ThreadWorld world_{2};
  std::vector<float> a_ = std::vector<float>(64), b_ = std::vector<float>(64);
};

TEST_F(Arguments, NullPointers) {
  refused(whorlAllReduce(nullptr, b_.data(), 4, whorlFloat32, whorlSum, comm(), nullptr),
          {"whorlAllReduce", "rank 1", "sendbuff is NULL"});
  refused(whorlAllReduce(a_.data(), nullptr, 4, whorlFloat32, whorlSum, comm(), nullptr),
          {"recvbuff is NULL"});
  refused(whorlAllReduce(a_.data(), b_.data(), 4, whorlFloat32, whorlSum, nullptr, nullptr),
          {"comm is NULL"});
  refused(whorlCommCount(comm(), nullptr), {"count is NULL"});
  refused(whorlGetUniqueId(nullptr), {"whorlGetUniqueId"});
  refused(whorlCommInitAll(nullptr, 2, nullptr), {"whorlCommInitAll"});
}

TEST_F(Arguments, ACallThatIsMadeOfOthersIsNamedOnce) {
  whorlWindow_t window{};
  EXPECT_EQ(whorlCommWindowRegister(comm(), nullptr, 64, &window, 0), whorlInvalidArgument);
  EXPECT_STREQ(whorlGetLastError(nullptr), "whorlCommWindowRegister: buff is NULL");
  EXPECT_EQ(whorlCommGetUniqueId(comm(), nullptr), whorlInvalidArgument);
  EXPECT_STREQ(whorlGetLastError(nullptr), "whorlCommGetUniqueId: uniqueId is NULL");
}

TEST_F(Arguments, NullPointersWithoutElementsAreFine) {
  world_.each([](int, whorlComm_t comm) {
    return failure(whorlAllReduce(nullptr, nullptr, 0, whorlFloat32, whorlSum, comm, nullptr),
                   comm);
  });
}

TEST_F(Arguments, CountsThatOverflow) {
  for (const std::size_t count :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 4,
        std::size_t{1} << 61U, std::size_t{1} << 50U}) {
    refused(whorlAllReduce(a_.data(), b_.data(), count, whorlFloat32, whorlSum, comm(), nullptr),
            {"count", "overflow"});
    refused(whorlAllGather(a_.data(), b_.data(), count, whorlFloat32, comm(), nullptr), {"count"});
  }
}

TEST_F(Arguments, Enumerators) {
  refused(whorlAllReduce(a_.data(), b_.data(), 4, static_cast<whorlDataType_t>(15), whorlSum,
                         comm(), nullptr),
          {"datatype is 15"});
  for (const int bad : {5, 6, 7, 11, 12, 63, 64, 1'000'000}) {
    refused(whorlAllReduce(a_.data(), b_.data(), 4, whorlFloat32, static_cast<whorlRedOp_t>(bad),
                           comm(), nullptr),
            {"op is " + std::to_string(bad)});
  }
  for (const whorlRedOp_t op : {whorlBand, whorlBor, whorlBxor}) {
    for (const whorlDataType_t type : {whorlFloat16, whorlFloat32, whorlFloat64, whorlBfloat16,
                                       whorlFloat8e4m3, whorlFloat8e5m2}) {
      refused(whorlAllReduce(a_.data(), b_.data(), 4, type, op, comm(), nullptr),
              {"combines bits", "for integers"});
    }
    refused(whorlRedOpDestroy(op, comm()), {"built in"});
  }
  refused(whorlAllReduce(a_.data(), b_.data(), 4, whorlBool, whorlAvg, comm(), nullptr),
          {"whorlAvg", "no average"});
  whorlRedOp_t op = whorlSum;
  refused(whorlRedOpCreatePreMulSum(&op, a_.data(), whorlBool, whorlScalarHostImmediate, comm()),
          {"whorlBool"});
  refused(whorlRedOpDestroy(whorlSum, comm()), {"built in"});
}

TEST_F(Arguments, RootsAndPeers) {
  for (const int bad : {-1, 2, 1000}) {
    refused(whorlBroadcast(a_.data(), a_.data(), 4, whorlFloat32, bad, comm(), nullptr),
            {"root is " + std::to_string(bad), "0 to 1"});
    refused(whorlSend(a_.data(), 4, whorlFloat32, bad, comm(), nullptr),
            {"peer is " + std::to_string(bad)});
  }
}

TEST_F(Arguments, OverlappingBuffers) {
  float* const a = a_.data();
  refused(whorlAllReduce(a, a + 1, 4, whorlFloat32, whorlSum, comm(), nullptr), {"overlap"});
  refused(whorlAllGather(a, a, 4, whorlFloat32, comm(), nullptr), {"overlap", "16 bytes into"});
  refused(whorlReduceScatter(a, a + 3, 4, whorlFloat32, whorlSum, comm(), nullptr), {"overlap"});
  refused(whorlAlltoAll(a, a, 4, whorlFloat32, comm(), nullptr), {"cannot be done in place"});
}

TEST_F(Arguments, RanksOfANewCommunicator) {
  whorlUniqueId id{};
  whorlComm_t fresh = nullptr;
  refused(whorlCommInitRank(&fresh, 0, id, 0), {"nranks is 0"});
  refused(whorlCommInitRank(&fresh, 2, id, 2), {"rank is 2"});
  refused(whorlCommInitRank(&fresh, 2, id, -1), {"rank is -1"});
  refused(whorlCommInitRank(nullptr, 2, id, 0), {"comm is NULL"});
  refused(whorlCommInitRank(&fresh, 2, id, 0), {"id"}); // zeros are not an id
  EXPECT_EQ(fresh, nullptr);
}

TEST_F(Arguments, Streams) {
  int not_a_stream = 0;
  refused(whorlBarrier(comm(), &not_a_stream), {"stream"});
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  ASSERT_EQ(whorlStreamDestroy(stream), whorlSuccess);
  refused(whorlStreamSynchronize(stream), {"stream"});
  EXPECT_EQ(whorlStreamDestroy(nullptr), whorlSuccess);
}

TEST_F(Arguments, AGroupWithABadCallDoesNothing) {
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlAllReduce(a_.data(), b_.data(), 4, whorlFloat32, whorlSum, comm(), nullptr),
            whorlSuccess);
  EXPECT_EQ(whorlBroadcast(a_.data(), a_.data(), 4, whorlFloat32, 9, comm(), nullptr),
            whorlInvalidArgument);
  refused(whorlGroupEnd(), {"root is 9"});
  refused(whorlGroupEnd(), {"whorlGroupStart"}, whorlInvalidUsage);
}

TEST_F(Arguments, HandlesThatAreNone) {
  whorlComm_t gone = nullptr;
  ASSERT_EQ(whorlCommInitAll(&gone, 1, nullptr), whorlSuccess);
  ASSERT_EQ(whorlCommDestroy(gone), whorlSuccess);
  // New communicators do not make an old handle valid again.
  std::vector<whorlComm_t> fresh(100);
  for (whorlComm_t& handle : fresh) ASSERT_EQ(whorlCommInitAll(&handle, 1, nullptr), whorlSuccess);
  std::vector<std::uint64_t> zeros(64), ones(64, UINT64_MAX);
  int value = 0;
  std::uint64_t bytes = 0;
  for (void* const wild :
       {static_cast<void*>(gone), reinterpret_cast<void*>(std::uintptr_t{8}),
        reinterpret_cast<void*>(UINTPTR_MAX), reinterpret_cast<void*>(std::uintptr_t{1} << 46),
        static_cast<void*>(zeros.data()), static_cast<void*>(ones.data()),
        static_cast<void*>(reinterpret_cast<char*>(comm()) + 8)}) {
    const auto handle = static_cast<whorlComm_t>(wild);
    refused(whorlBarrier(handle, nullptr), {"not a communicator"});
    refused(whorlCommCount(handle, &value), {"not a communicator"});
    refused(whorlCommMemStats(handle, whorlStatHostMemTotal, &bytes), {"not a communicator"});
    refused(whorlCommAbort(handle), {"not a communicator"});
    refused(whorlCommDestroy(handle), {"not a communicator"});
    EXPECT_NE(whorlGetLastError(handle), nullptr);
  }
  for (const whorlComm_t handle : fresh) EXPECT_EQ(whorlCommDestroy(handle), whorlSuccess);
}

TEST_F(Arguments, Configurations) {
  whorlComm_t fresh = nullptr;
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlConfig_t config{};
  refused(whorlCommInitRankConfig(&fresh, 1, id, 0, &config), {"WHORL_CONFIG_INITIALIZER"});
  config = WHORL_CONFIG_INITIALIZER;
  config.timeoutMs = -5;
  refused(whorlCommInitRankConfig(&fresh, 1, id, 0, &config), {"timeoutMs is -5"});
  config = WHORL_CONFIG_INITIALIZER;
  config.netName = "carrier pigeon";
  refused(whorlCommInitRankConfig(&fresh, 1, id, 0, &config), {"carrier pigeon"});
}

TEST_F(Arguments, EnvironmentVariables) {
  const auto with = [](const char* name, const char* value, const std::string& word) {
    const ScopedEnv env({{name, value}});
    whorlComm_t comms[2];
    EXPECT_NE(whorlCommInitAll(comms, 2, nullptr), whorlSuccess) << name << "=" << value;
    const std::string text = whorlGetLastError(nullptr);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  with("WHORL_ALGO", "nonsense", "nonsense");
  with("WHORL_ALGO", "allreduce:nonsense", "ring");
  with("WHORL_SLOT_BYTES", "12", "256");
  with("WHORL_TIMEOUT_MS", "soon", "soon");
  with("WHORL_TRANSPORTS", "smoke", "smoke");
  with("WHORL_DIMS", "3,5", "product");
  with("WHORL_DIMS", "two", "whole number");
  with("WHORL_DIMS", "2:nonsense", "nonsense");
  with("WHORL_HEAP_BYTES", "much", "much");
  with("WHORL_INSECURE", "maybe", "maybe");
  with("WHORL_CHANNELS", "4", "WHORL_MAX_CHANNELS");
  with("WHORL_SIMD", "mmx", "scalar");
  with("WHORL_MEMORY_BUDGET", "little", "little");
}

} // namespace
} // namespace whorl::test
