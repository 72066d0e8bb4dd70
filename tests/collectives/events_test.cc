// Tests of events of host streams on real ranks, by the C API.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/stream_calls.h"
#include "tests/support/thread_world.h"
#include "tests/support/until.h"
#include "whorl/streams.hpp"

namespace whorl::test {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 2;

TEST(Events, MarkAPlaceInAStream) {
  ThreadWorld world(kRanks);
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
