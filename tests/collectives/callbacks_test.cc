// Tests of callbacks of host streams on real ranks, by the C API.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/stream_calls.h"
#include "tests/support/thread_world.h"
#include "whorl/streams.hpp"

namespace whorl::test {
namespace {

constexpr int kRanks = 2;

TEST(Callbacks, IssueOperations) {
  ThreadWorld world(kRanks);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    const Stream stream, other;
    int value = 1, count = 0;
    std::string f;
    // The callbacks alone use the communicator, one at a time.
    Body next = [&](whorlResult_t status) {
      if (status != whorlSuccess && f.empty()) f = "status " + std::to_string(status);
      if (++count > 20) return;
      if (f.empty()) f = all_reduce(value, comm, count % 2 == rank ? stream : other);
      if (!f.empty()) return;
      // From here on the next callback may run, in another thread.
      if (std::string error = add(count % 2 == rank ? stream : other, next); !error.empty()) {
        f = std::move(error);
      }
    };
    std::string added = add(stream, next);
    // Destroying waits for what callbacks queue in the own stream, not for the other one's.
    for (bool idle = false; added.empty() && !idle;) {
      added = failure(whorlStreamSynchronize(stream));
      if (added.empty()) added = failure(whorlStreamSynchronize(other));
      idle = whorlStreamQuery(stream) == whorlSuccess && whorlStreamQuery(other) == whorlSuccess;
    }
    if (f.empty()) f = added;
    if (f.empty() && value != 1 << 20) f = "wrong value";
    return f;
  });
}

/// Calls `body` in a callback of a new stream, or in one without a stream.
void in_callback(bool has_stream, const std::function<void(whorlStream_t)>& body) {
  const Stream stream;
  const whorlStream_t handle = has_stream ? stream.get() : nullptr;
  bool called = false;
  EXPECT_EQ(add(handle,
                [&](whorlResult_t) {
                  body(stream);
                  called = true;
                }),
            "");
  EXPECT_EQ(whorlStreamSynchronize(stream), whorlSuccess);
  EXPECT_TRUE(called);
}

TEST(Callbacks, AreRefusedEveryCallThatWaits) {
  ThreadWorld world(1);
  const whorlComm_t comm = world.comm(0);
  const Stream other;
  const Event event;
  const auto refused = [](whorlResult_t result, const std::string& function) {
    EXPECT_EQ(result, whorlInvalidUsage) << function;
    const std::string sentence = whorlGetLastError(nullptr);
    EXPECT_TRUE(sentence.starts_with(function + " may wait")) << sentence;
    EXPECT_NE(sentence.find("on another thread"), std::string::npos) << sentence;
  };
  std::array<int, 2> data{1, 1};
  void* const buffer = data.data();
  const std::array<std::size_t, 1> counts{1}, places{0};
  // The communicator can repeat this call within some hundred instructions.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(all_reduce(data[0], comm, nullptr), "");
  for (const bool has_stream : {true, false}) {
    in_callback(has_stream, [&](whorlStream_t stream) {
      refused(whorlAllReduce(buffer, buffer, 1, whorlInt32, whorlSum, comm, nullptr),
              "whorlAllReduce");
      refused(whorlBarrier(comm, nullptr), "whorlBarrier");
      refused(whorlAllGatherv(buffer, counts[0], buffer, counts.data(), places.data(), whorlInt32,
                              comm, nullptr),
              "whorlAllGatherv");
      refused(whorlSend(buffer, 1, whorlInt32, 0, comm, nullptr), "whorlSend");
      refused(whorlStreamSynchronize(stream), "whorlStreamSynchronize");
      refused(whorlStreamSynchronize(other), "whorlStreamSynchronize");
      refused(whorlStreamDestroy(other), "whorlStreamDestroy");
      refused(whorlStreamDestroy(nullptr), "whorlStreamDestroy");
      refused(whorlEventWait(event, -1), "whorlEventWait");
      refused(whorlEventWait(event, 1), "whorlEventWait");
      refused(whorlCommFinalize(comm), "whorlCommFinalize");
      refused(whorlCommDestroy(comm), "whorlCommDestroy");
      refused(whorlCommAbort(comm), "whorlCommAbort");
    });
  }
  EXPECT_EQ(all_reduce(data[0], comm, nullptr), "") << "the communicator has to stay usable";
  EXPECT_EQ(data, (std::array{1, 1}));
}

TEST(Callbacks, AreRefusedCreationsThatWait) {
  ThreadWorld world(1);
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlComm_t created = nullptr;
  std::vector<whorlResult_t> results;
  in_callback(true, [&](whorlStream_t) {
    results.push_back(whorlCommInitRank(&created, 1, id, 0));
    results.push_back(whorlCommInitAll(&created, 1, nullptr));
    results.push_back(whorlCommSplit(world.comm(0), 0, 0, &created, nullptr));
    EXPECT_EQ(whorlGroupStart(), whorlSuccess);
    EXPECT_EQ(whorlCommInitRank(&created, 1, id, 0), whorlSuccess);
    results.push_back(whorlGroupEnd());
    EXPECT_EQ(whorlGroupStart(), whorlSuccess);
    EXPECT_EQ(whorlCommSplit(world.comm(0), 0, 0, &created, nullptr), whorlSuccess);
    results.push_back(whorlGroupEnd());
  });
  EXPECT_EQ(results, std::vector(5, whorlInvalidUsage));
  EXPECT_EQ(created, nullptr);
  ASSERT_EQ(whorlCommInitRank(&created, 1, id, 0), whorlSuccess) << "the id has not been used";
  EXPECT_EQ(whorlCommDestroy(created), whorlSuccess);
}

TEST(Callbacks, AreRefusedGroupsThatWait) {
  ThreadWorld world(kRanks);
  world.each([](int, whorlComm_t comm) -> std::string {
    int value = 1, other = 1;
    std::string f, inside;
    whorlResult_t refused = whorlSuccess;
    const Stream stream;
    f = add(stream, [&](whorlResult_t) {
      whorlGroupStart();
      inside = all_reduce(value, comm, stream);
      if (inside.empty()) inside = all_reduce(other, comm, nullptr);
      refused = whorlGroupEnd();
      whorlGroupStart(); // the one before was dropped as a whole
      if (inside.empty()) inside = all_reduce(value, comm, stream);
      if (inside.empty()) inside = failure(whorlGroupEnd());
      whorlGroupStart(); // an empty one waits for nothing
      if (inside.empty()) inside = failure(whorlGroupEnd());
    });
    while (f.empty() && whorlStreamQuery(stream) == whorlInProgress) {
      f = failure(whorlStreamSynchronize(stream));
    }
    if (f.empty()) f = inside;
    if (f.empty() && refused != whorlInvalidUsage) f = "a group that waits was not refused";
    return f.empty() && (value != kRanks || other != 1) ? "wrong values" : f;
  });
}

TEST(Callbacks, MayDoWhatReturnsAtOnce) {
  const Stream other;
  const Event event;
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlComm_t created = nullptr;
  std::atomic<int> calls{0}; // the two callbacks may run at the same time
  in_callback(true, [&](whorlStream_t stream) {
    EXPECT_EQ(add(other, [&](whorlResult_t) { ++calls; }), "");
    EXPECT_EQ(add(nullptr, [&](whorlResult_t) { ++calls; }), "");
    EXPECT_EQ(whorlEventRecord(event, stream), whorlSuccess);
    EXPECT_EQ(whorlEventQuery(event), whorlInProgress) << "this callback comes before the event";
    EXPECT_EQ(whorlEventWait(event, 0), whorlInProgress);
    EXPECT_EQ(whorlStreamQuery(stream), whorlInProgress);
    EXPECT_EQ(whorlStreamWaitEvent(other, event), whorlSuccess);
    whorlMemoryKind_t kind = whorlMemoryDevice;
    EXPECT_EQ(whorlPointerKind(&kind, &kind, nullptr), whorlSuccess);
    EXPECT_EQ(kind, whorlMemoryHost);
    void* memory = nullptr;
    EXPECT_EQ(whorlMemAlloc(&memory, 100), whorlSuccess);
    EXPECT_EQ(whorlMemFree(memory), whorlSuccess);
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(whorlCommInitRankConfig(&created, 1, id, 0, &config), whorlInProgress);
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(created, &state), whorlSuccess);
  });
  EXPECT_EQ(whorlStreamSynchronize(other), whorlSuccess);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(whorlCommDestroy(created), whorlSuccess);
}

TEST(Callbacks, AreCalledAtOnceWithoutAStream) {
  int called = 0;
  EXPECT_EQ(add(nullptr,
                [&](whorlResult_t status) {
                  EXPECT_EQ(status, whorlSuccess);
                  ++called;
                }),
            "");
  EXPECT_EQ(called, 1);
}

TEST(Callbacks, AreCalledWhenTheStreamIsDestroyed) {
  int called = 0;
  for (int round = 0; round < 20; ++round) {
    whorlStream_t stream = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(add(stream,
                    [&, stream, i](whorlResult_t) {
                      ++called;
                      if (i != 2) return;
                      EXPECT_EQ(add(stream, [&](whorlResult_t) { ++called; }), "");
                    }),
                "");
    }
    ASSERT_EQ(whorlStreamDestroy(stream), whorlSuccess);
    ASSERT_EQ(called, 4 * (round + 1));
  }
}

TEST(Callbacks, HaveNoGroupAndNoExceptionLeavesThem) {
  ThreadWorld world(1);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  const Stream other;
  int value = 1, left = 1;
  const auto nested = [&](whorlResult_t) {
    EXPECT_EQ(all_reduce(value, world.comm(0), other), "");
    EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage) << "the group is not the callback's";
    EXPECT_EQ(whorlGroupStart(), whorlSuccess); // and is left open
    EXPECT_EQ(all_reduce(left, world.comm(0), other), "");
  };
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  ASSERT_EQ(add(stream, nested), "");
  ASSERT_EQ(whorlStreamSynchronize(stream), whorlSuccess);
  ASSERT_EQ(whorlGroupEnd(), whorlSuccess);
  EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
  ASSERT_EQ(add(stream, [](whorlResult_t) { throw std::runtime_error("in a callback"); }), "");
  EXPECT_EQ(whorlStreamSynchronize(stream), whorlInternalError);
  EXPECT_EQ(std::string(whorlGetLastError(nullptr)),
            "a callback of a stream has thrown in a callback");
  EXPECT_EQ(whorlStreamDestroy(stream), whorlInternalError);
}

} // namespace
} // namespace whorl::test
