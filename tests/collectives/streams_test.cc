// Tests of operations on streams: the progress thread or a waiting thread carries them out,
// whichever comes first. The results do not depend on it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

constexpr int kRanks = 2;

class ScopedStream {
 public:
  ScopedStream() { EXPECT_EQ(whorlStreamCreate(&stream_), whorlSuccess); }
  ~ScopedStream() { EXPECT_EQ(whorlStreamDestroy(stream_), whorlSuccess); }
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;
  operator whorlStream_t() const { return stream_; } // used in its place

 private:
  whorlStream_t stream_ = nullptr;
};

TEST(Streams, WaitedForAtOnce) {
  ThreadWorld world(kRanks);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    const ScopedStream stream;
    for (int i = 0; i < 300; ++i) {
      const std::array<int, 3> in{rank + i, i, 1};
      std::array<int, 3> out{}, again{};
      std::string f = failure(
          whorlAllReduce(in.data(), out.data(), 3, whorlInt32, whorlSum, comm, stream), comm);
      if (f.empty() && i % 7 == 0) std::this_thread::yield();
      if (f.empty()) f = failure(whorlStreamSynchronize(stream), comm);
      // The engine belongs to this thread again.
      if (f.empty() && i % 2 == 0) {
        f = failure(
            whorlAllReduce(out.data(), again.data(), 3, whorlInt32, whorlSum, comm, nullptr), comm);
      }
      if (!f.empty()) return f;
      const std::array<int, 3> expected{2 * i + 1, 2 * i, 2};
      if (out != expected) return "operation " + std::to_string(i) + " is wrong";
      for (std::size_t e = 0; e < 3 && i % 2 == 0; ++e) {
        if (again[e] != 2 * expected[e]) return "blocking call " + std::to_string(i) + " is wrong";
      }
    }
    return {};
  });
}

/// Checks two communicators and three streams in a pseudorandom order: each operation doubles the
/// value of its stream, so that an operation out of order changes the result.
TEST(Streams, KeepTheirOrderAcrossCommunicators) {
  constexpr unsigned kSeed = 20260;
  ThreadWorld first(kRanks), second(kRanks);
  first.each([&](int rank, whorlComm_t comm) -> std::string {
    const std::array<whorlComm_t, 2> comms{comm, second.comm(rank)};
    const std::array<ScopedStream, 3> streams;
    std::array<unsigned, 3> value{1, 2, 3}, expected = value;
    unsigned blocking = 1, expected_blocking = 1;
    std::minstd_rand random(kSeed); // equal on all ranks
    for (int i = 0; i < 400; ++i) {
      const std::size_t which = random() % 3, where = random() % 2;
      const std::string text = "action " + std::to_string(i) + " of seed " + std::to_string(kSeed);
      std::string f;
      switch (random() % 6) {
        case 0:
          f = failure(whorlStreamSynchronize(streams[which]), comm);
          if (f.empty() && value[which] != expected[which]) return text + ": wrong value";
          break;
        case 1:
          f = failure(
              whorlAllReduce(&blocking, &blocking, 1, whorlUint32, whorlSum, comms[where], nullptr),
              comm);
          expected_blocking *= 2;
          if (f.empty() && blocking != expected_blocking) return text + ": wrong blocking call";
          break;
        case 2: // both communicators at once, on two streams
          f = failure(whorlGroupStart());
          for (std::size_t part = 0; part < 2 && f.empty(); ++part) {
            const std::size_t s = (which + part) % 3;
            f = failure(whorlAllReduce(&value[s], &value[s], 1, whorlUint32, whorlSum,
                                       comms[(where + part) % 2], streams[s]));
            expected[s] *= 2;
          }
          if (f.empty()) f = failure(whorlGroupEnd());
          break;
        default:
          f = failure(whorlAllReduce(&value[which], &value[which], 1, whorlUint32, whorlSum,
                                     comms[where], streams[which]),
                      comm);
          expected[which] *= 2;
          break;
      }
      if (!f.empty()) return text + ": " + f;
    }
    for (std::size_t s = 0; s < 3; ++s) {
      if (const std::string f = failure(whorlStreamSynchronize(streams[s])); !f.empty()) return f;
      if (value[s] != expected[s]) return "stream " + std::to_string(s) + " is wrong at the end";
    }
    return {};
  });
}

/// Checks a rank with one thread that calls and another that waits.
TEST(Streams, AnotherThreadWaits) {
  ThreadWorld world(kRanks);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    const ScopedStream stream;
    std::atomic<bool> through{false};
    std::string waiting;
    std::thread waiter([&] {
      while (!through && waiting.empty()) waiting = failure(whorlStreamSynchronize(stream));
    });
    std::string f;
    for (int i = 0; i < 200 && f.empty(); ++i) {
      const int in = rank;
      int out = 0, blocking = 0;
      f = failure(whorlAllReduce(&in, &out, 1, whorlInt32, whorlSum, comm, stream), comm);
      if (f.empty() && i % 3 == 0) {
        f = failure(whorlAllReduce(&in, &blocking, 1, whorlInt32, whorlSum, comm, nullptr), comm);
        if (f.empty() && blocking != 1) f = "wrong blocking call";
      }
      if (f.empty()) f = failure(whorlStreamSynchronize(stream));
      if (f.empty() && out != 1) f = "wrong operation";
    }
    through = true;
    waiter.join();
    return f.empty() ? waiting : f;
  });
}

TEST(Streams, AbortEndsAWait) {
  for (int round = 0; round < 10; ++round) {
    std::array<whorlComm_t, kRanks> comms{};
    ASSERT_EQ(whorlCommInitAll(comms.data(), kRanks, nullptr), whorlSuccess);
    whorlStream_t stream = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    int value = 1;
    ASSERT_EQ(whorlAllReduce(&value, &value, 1, whorlInt32, whorlSum, comms[0], stream),
              whorlSuccess);
    std::thread waiter([&] { EXPECT_EQ(whorlStreamSynchronize(stream), whorlRemoteError); });
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess); // rank 1 never calls
    waiter.join();
    EXPECT_EQ(whorlStreamDestroy(stream), whorlRemoteError);
    EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
  }
}

/// Checks that a rank which destroys its communicator completes its queued operations, even without
/// a wait.
TEST(Streams, DestroyCompletesWhatIsQueued) {
  for (int round = 0; round < 10; ++round) {
    std::array<whorlComm_t, kRanks> comms{};
    ASSERT_EQ(whorlCommInitAll(comms.data(), kRanks, nullptr), whorlSuccess);
    std::array<std::string, kRanks> failures;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const ScopedStream stream;
        std::array<int, 20> values{};
        values.fill(1);
        std::string& f = failures[rank];
        for (int& value : values) {
          if (!f.empty()) break;
          f = failure(whorlAllReduce(&value, &value, 1, whorlInt32, whorlSum, comms[rank], stream));
        }
        if (f.empty()) f = failure(whorlCommDestroy(comms[rank]));
        if (f.empty()) f = failure(whorlStreamSynchronize(stream));
        for (const int value : values) {
          if (f.empty() && value != kRanks) f = "an operation was left out";
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& f : failures) EXPECT_EQ(f, "");
  }
}

} // namespace
} // namespace whorl::test
