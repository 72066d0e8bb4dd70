// Tests of events and callbacks of host streams on real ranks, by the C API.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/thread_world.h"
#include "whorl/streams.hpp"

namespace whorl::test {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 2;

/// Callback that keeps itself alive until it has been called.
using Body = std::function<void(whorlResult_t)>;
void run_body(void* data, whorlResult_t status) {
  const std::unique_ptr<Body> body(static_cast<Body*>(data));
  (*body)(status);
}
std::string add(whorlStream_t stream, Body body) {
  auto* const data = new Body(std::move(body));
  const whorlResult_t result = whorlStreamAddCallback(stream, run_body, data);
  if (result != whorlSuccess) delete data;
  return failure(result);
}

std::string all_reduce(int& value, whorlComm_t comm, whorlStream_t stream) {
  return failure(whorlAllReduce(&value, &value, 1, whorlInt32, whorlSum, comm, stream), comm);
}

template <class Condition>
void until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Events, MarkAPlaceInAStream) {
  ThreadWorld world(kRanks);
  ASSERT_TRUE(world.ok()) << world.error();
  world.each([](int rank, whorlComm_t comm) -> std::string {
    const Stream stream;
    const Event event;
    for (int i = 0; i < 200; ++i) {
      int first = rank + i, second = 1;
      std::string f = all_reduce(first, comm, stream);
      if (f.empty()) f = failure(whorlEventRecord(event, stream));
      if (f.empty()) f = all_reduce(second, comm, stream);
      if (f.empty() && i % 5 == 0) std::this_thread::yield();
      if (f.empty()) f = failure(whorlEventWait(event, -1));
      if (f.empty()) f = failure(whorlEventQuery(event));
      if (f.empty() && first != 2 * i + 1) f = "the operation before the event is not complete";
      if (f.empty()) f = failure(whorlStreamSynchronize(stream));
      if (f.empty() && second != kRanks) f = "the operation behind the event is wrong";
      if (!f.empty()) return "round " + std::to_string(i) + ": " + f;
    }
    return {};
  });
}

TEST(Events, AWaitEndsWithItsTime) {
  ThreadWorld world(kRanks);
  ASSERT_TRUE(world.ok()) << world.error();
  std::atomic<bool> may_call{false};
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const Stream stream;
    const Event event;
    int value = 1;
    if (rank == 1) {
      until([&] { return may_call.load(); });
      std::string f = all_reduce(value, comm, stream);
      return f.empty() ? failure(whorlStreamSynchronize(stream)) : f;
    }
    // The callback keeps the operation from being begun, which a wait could not leave.
    std::atomic<bool> begun{false};
    std::string f = add(stream, [&](whorlResult_t) {
      begun = true;
      until([&] { return may_call.load(); });
    });
    until([&] { return begun.load(); });
    if (f.empty()) f = all_reduce(value, comm, stream);
    if (f.empty()) f = failure(whorlEventRecord(event, stream));
    const whorlResult_t query = whorlEventQuery(event), look = whorlEventWait(event, 0),
                        wait = whorlEventWait(event, 20);
    may_call = true;
    if (f.empty() && query != whorlInProgress) f = "query of a pending event";
    if (f.empty() && look != whorlInProgress) f = "wait without time";
    if (f.empty() && wait != whorlInProgress) f = "wait of 20 ms";
    if (f.empty()) f = failure(whorlEventWait(event, INT64_MAX));
    if (f.empty() && value != kRanks) f = "wrong sum";
    return f;
  });
}

TEST(Events, StreamsOfTwoCommunicatorsInOrder) {
  ThreadWorld first(kRanks), second(kRanks);
  ASSERT_TRUE(first.ok() && second.ok()) << first.error() << second.error();
  first.each([&](int rank, whorlComm_t comm) -> std::string {
    const Stream one, two;
    const Event event;
    int value = 1;
    unsigned expected = 1;
    std::string f;
    // Each operation doubles the value; the two streams are in order by events alone.
    for (int i = 0; i < 25 && f.empty(); ++i) {
      f = all_reduce(value, comm, one);
      if (f.empty()) f = failure(whorlEventRecord(event, one));
      if (f.empty()) f = failure(whorlStreamWaitEvent(two, event));
      if (f.empty()) {
        f = add(two, [&](whorlResult_t) { value -= 1; }); // 2v - 1
      }
      if (f.empty()) f = all_reduce(value, second.comm(rank), two);
      if (f.empty()) f = failure(whorlEventRecord(event, two));
      if (f.empty()) f = failure(whorlStreamWaitEvent(one, event));
      if (f.empty()) {
        f = add(one, [&](whorlResult_t) { value -= 1; }); // 4v - 3
      }
      expected = 4 * expected - 3;
      if (f.empty() && i % 4 == 3) f = failure(whorlEventWait(event, -1));
    }
    if (f.empty()) f = failure(whorlStreamSynchronize(one));
    if (f.empty() && value != static_cast<int>(expected)) f = "an operation was out of order";
    return f;
  });
}

TEST(Events, ErrorsTravel) {
  for (int round = 0; round < 5; ++round) {
    std::array<whorlComm_t, kRanks> comms{};
    ASSERT_EQ(whorlCommInitAll(comms.data(), kRanks, nullptr), whorlSuccess);
    whorlStream_t stream = nullptr, other = nullptr;
    whorlEvent_t event = nullptr, before = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    ASSERT_EQ(whorlStreamCreate(&other), whorlSuccess);
    ASSERT_EQ(whorlEventCreate(&event), whorlSuccess);
    ASSERT_EQ(whorlEventCreate(&before), whorlSuccess);
    int value = 1;
    std::string sentence;
    std::atomic<int> statuses{0};
    ASSERT_EQ(whorlEventRecord(before, stream), whorlSuccess);
    ASSERT_EQ(all_reduce(value, comms[0], stream), ""); // rank 1 never calls
    ASSERT_EQ(whorlEventRecord(event, stream), whorlSuccess);
    ASSERT_EQ(whorlStreamWaitEvent(other, event), whorlSuccess);
    ASSERT_EQ(add(other,
                  [&](whorlResult_t status) {
                    sentence = whorlGetLastError(nullptr);
                    statuses = status;
                  }),
              "");
    std::thread waiter([&] { EXPECT_EQ(whorlEventWait(event, -1), whorlRemoteError); });
    if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(2));
    EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
    waiter.join();
    EXPECT_EQ(whorlEventQuery(event), whorlRemoteError);
    EXPECT_EQ(whorlEventQuery(before), whorlSuccess) << "nothing had failed before";
    EXPECT_EQ(whorlStreamDestroy(other), whorlRemoteError);
    EXPECT_EQ(statuses, whorlRemoteError);
    EXPECT_NE(sentence.find("whorlCommAbort"), std::string::npos) << sentence;
    EXPECT_EQ(whorlStreamDestroy(stream), whorlRemoteError);
    EXPECT_EQ(whorlEventQuery(event), whorlRemoteError) << "also without the stream";
    EXPECT_EQ(whorlEventDestroy(event), whorlSuccess);
    EXPECT_EQ(whorlEventDestroy(before), whorlSuccess);
    EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
  }
}

TEST(Events, TwoThreadsWait) {
  ThreadWorld world(kRanks);
  ASSERT_TRUE(world.ok()) << world.error();
  world.each([](int, whorlComm_t comm) -> std::string {
    const Stream stream;
    std::array<Event, 2> events;
    std::atomic<int> round{-1}, done{0};
    std::string waiting;
    std::array<int, 100> values{};
    values.fill(1);
    std::thread waiter([&] {
      for (int i = 0; i < 100 && waiting.empty(); ++i) {
        while (round < i) std::this_thread::yield();
        const auto index = static_cast<std::size_t>(i);
        waiting = failure(whorlEventWait(events[index % 2], -1));
        if (waiting.empty() && values[index] != kRanks) waiting = "waited for too little";
        ++done;
      }
      done = 100;
    });
    std::string f;
    for (int i = 0; i < 100 && f.empty(); ++i) {
      const auto index = static_cast<std::size_t>(i);
      f = all_reduce(values[index], comm, stream);
      if (f.empty()) f = failure(whorlEventRecord(events[index % 2], stream));
      round = i;
      if (f.empty()) f = failure(whorlEventWait(events[index % 2], -1));
      if (f.empty() && values[index] != kRanks) f = "waited for too little";
      while (done < i) std::this_thread::yield(); // the event of two rounds before is free
    }
    round = 100;
    waiter.join();
    return f.empty() ? waiting : f;
  });
}

TEST(Callbacks, IssueOperations) {
  ThreadWorld world(kRanks);
  ASSERT_TRUE(world.ok()) << world.error();
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
  ASSERT_TRUE(world.ok()) << world.error();
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
  ASSERT_TRUE(world.ok()) << world.error();
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
  ASSERT_TRUE(world.ok()) << world.error();
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
  int calls = 0;
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
  ASSERT_TRUE(world.ok()) << world.error();
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

TEST(Handles, AreLookedUp) {
  int on_stack = 0;
  whorlStream_t gone = nullptr;
  whorlEvent_t destroyed = nullptr;
  ASSERT_EQ(whorlStreamCreate(&gone), whorlSuccess);
  ASSERT_EQ(whorlStreamDestroy(gone), whorlSuccess);
  ASSERT_EQ(whorlEventCreate(&destroyed), whorlSuccess);
  ASSERT_EQ(whorlEventDestroy(destroyed), whorlSuccess);
  const Stream stream;
  const Event event;
  const auto ignore = [](void*, whorlResult_t) {};
  const auto refused = [](whorlResult_t result, const char* words) {
    EXPECT_EQ(result, whorlInvalidArgument);
    const std::string sentence = whorlGetLastError(nullptr);
    EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
  };
  for (auto* const wrong :
       {static_cast<whorlEvent_t>(nullptr), destroyed, reinterpret_cast<whorlEvent_t>(&on_stack),
        reinterpret_cast<whorlEvent_t>(stream.get())}) {
    refused(whorlEventRecord(wrong, stream), "whorlEventRecord: event");
    refused(whorlEventQuery(wrong), "whorlEventQuery: event");
    refused(whorlEventWait(wrong, 0), "whorlEventWait: event");
    refused(whorlStreamWaitEvent(stream, wrong), "whorlStreamWaitEvent: event");
    if (wrong != nullptr) refused(whorlEventDestroy(wrong), "whorlEventDestroy: event");
  }
  for (auto* const wrong :
       {gone, reinterpret_cast<whorlStream_t>(&on_stack),
        reinterpret_cast<whorlStream_t>(event.get()), reinterpret_cast<whorlStream_t>(1)}) {
    refused(whorlEventRecord(event, wrong), "cudaEventRecord()");
    refused(whorlStreamWaitEvent(wrong, event), "whorlEventWait()");
    refused(whorlStreamAddCallback(wrong, ignore, nullptr), "cudaLaunchHostFunc()");
  }
  refused(whorlStreamWaitEvent(nullptr, event), "NULL");
  refused(whorlStreamAddCallback(stream, nullptr, nullptr), "callback is NULL");
  refused(whorlEventCreate(nullptr), "event is NULL");
  EXPECT_EQ(whorlEventDestroy(nullptr), whorlSuccess);
  EXPECT_EQ(whorlEventRecord(event, nullptr), whorlSuccess);
  EXPECT_EQ(whorlEventQuery(event), whorlSuccess);
}

TEST(Handles, EventsAreDestroyedWhileOthersWait) {
  for (int round = 0; round < 20; ++round) {
    whorlStream_t stream = nullptr;
    whorlEvent_t event = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    ASSERT_EQ(whorlEventCreate(&event), whorlSuccess);
    std::atomic<bool> begun{false}, may_end{false};
    ASSERT_EQ(add(stream,
                  [&](whorlResult_t) {
                    begun = true;
                    until([&] { return may_end.load(); });
                  }),
              "");
    until([&] { return begun.load(); }); // by the stream's own thread
    ASSERT_EQ(whorlEventRecord(event, stream), whorlSuccess);
    std::thread waiter([&] {
      const whorlResult_t result = whorlEventWait(event, -1);
      EXPECT_TRUE(result == whorlSuccess || result == whorlInvalidArgument) << result;
    });
    if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(whorlEventDestroy(event), whorlSuccess);
    may_end = true;
    waiter.join();
    EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
  }
}

/// Checks that a group takes its places in two streams before or after another thread makes one of
/// them wait for the other.
TEST(Events, AreWaitedForWhileAGroupTakesItsPlaces) {
  ThreadWorld world(1);
  ASSERT_TRUE(world.ok()) << world.error();
  const Stream one, two;
  const Event of_one, of_two;
  std::atomic<bool> through{false};
  std::string waiting;
  std::thread other([&] {
    while (!through && waiting.empty()) {
      waiting = failure(whorlEventRecord(of_one, one));
      if (waiting.empty()) waiting = failure(whorlStreamWaitEvent(two, of_one));
      if (waiting.empty()) waiting = failure(whorlEventRecord(of_two, two));
      if (waiting.empty()) waiting = failure(whorlStreamWaitEvent(one, of_two));
    }
  });
  std::string f;
  int first = 1, second = 1;
  for (int i = 0; i < 2000 && f.empty(); ++i) {
    f = failure(whorlGroupStart());
    if (f.empty()) f = all_reduce(first, world.comm(0), one);
    if (f.empty()) f = all_reduce(second, world.comm(0), two);
    if (f.empty()) f = failure(whorlGroupEnd());
    if (f.empty() && i % 50 == 0) f = failure(whorlStreamSynchronize(one));
  }
  through = true;
  other.join();
  if (f.empty()) f = failure(whorlStreamSynchronize(two));
  EXPECT_EQ(f, "");
  EXPECT_EQ(waiting, "");
}

TEST(Events, ManyThreadsAtOnce) {
  constexpr std::size_t kThreads = 4;
  ThreadWorld world(kRanks);
  ASSERT_TRUE(world.ok()) << world.error();
  world.each([](int, whorlComm_t comm) -> std::string {
    const std::array<Stream, 2> streams;
    const std::array<Event, 3> events;
    std::atomic<bool> through{false};
    std::atomic<int> added{0}, called{0}, wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = t; !through; ++i) {
          const whorlStream_t stream = streams[i % 2];
          const whorlEvent_t event = events[i % 3];
          std::string f;
          switch ((i + t) % 5) {
            case 0:
              f = failure(whorlEventRecord(event, stream));
              break;
            case 1:
              f = failure(whorlStreamWaitEvent(stream, event));
              break;
            case 2:
              ++added;
              f = add(stream, [&](whorlResult_t status) { called += status == whorlSuccess; });
              break;
            case 3:
              f = failure(whorlEventWait(event, -1));
              break;
            default:
              f = failure(whorlStreamSynchronize(stream));
              break;
          }
          if (!f.empty()) ++wrong;
        }
      });
    }
    std::string f;
    for (std::size_t i = 0; i < 60 && f.empty(); ++i) {
      int value = 1;
      f = all_reduce(value, comm, streams[i % 2]);
      if (f.empty()) f = failure(whorlStreamSynchronize(streams[i % 2]));
      if (f.empty() && value != kRanks) f = "wrong sum";
    }
    through = true;
    for (std::thread& thread : threads) thread.join();
    for (const Stream& stream : streams) {
      if (f.empty()) f = failure(whorlStreamSynchronize(stream));
    }
    if (f.empty() && wrong != 0) f = "a call failed";
    return f.empty() && called != added ? "a callback was left out" : f;
  });
}

} // namespace
} // namespace whorl::test
