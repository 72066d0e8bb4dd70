// Tests of the order of a stream: numbers, abandoned operations, errors, handles.
#include "engine/host_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace whorl {
namespace {

Status dead(int rank) {
  return Status::error(Code::kRemoteError, "rank " + std::to_string(rank) + " is dead");
}

/// Issues `count` operations, which get the numbers from 1.
void issue(Stream& stream, std::uint64_t count) {
  for (std::uint64_t number = 1; number <= count; ++number) {
    const auto issued = stream.issue({});
    ASSERT_TRUE(issued.ok());
    EXPECT_EQ(*issued, number);
  }
}

TEST(Stream, IsIdleWithoutOperations) {
  Stream stream;
  EXPECT_TRUE(stream.idle());
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_FALSE(stream.device().has_value());
}

TEST(Stream, OperationsStartInTheOrderOfTheirNumbers) {
  Stream stream;
  issue(stream, 3);
  for (std::uint64_t done = 0; done < 3; ++done) {
    EXPECT_FALSE(stream.idle());
    for (std::uint64_t number = 1; number <= 3; ++number) {
      EXPECT_EQ(stream.may_start(number), number == done + 1) << number << " after " << done;
    }
    stream.complete(done + 1, {});
  }
  EXPECT_TRUE(stream.idle());
}

TEST(Stream, KeepsTheFirstError) {
  Stream stream;
  issue(stream, 4);
  stream.complete(1, {});
  EXPECT_TRUE(stream.error().ok());
  stream.complete(2, dead(1));
  stream.complete(3, dead(2));
  stream.complete(4, {});
  EXPECT_TRUE(stream.idle());
  EXPECT_EQ(stream.error().message(), "rank 1 is dead");
  EXPECT_EQ(stream.synchronize().code(), Code::kRemoteError);
}

/// Stream that keeps the last released number, and checks that the numbers only grow.
struct Releases final : Stream {
  void release(std::uint64_t number) noexcept override {
    EXPECT_GT(number, released);
    released = number;
    Stream::release(number);
  }
  std::uint64_t released = 0;
};

TEST(Stream, OperationsAreGivenUpAndCompletedInAnyOrder) {
  // Each operation is either given up, at any time, or completed, when it may start: tests all
  // choices and all orders of six operations.
  constexpr std::uint64_t kCount = 6;
  std::vector<std::uint64_t> order(kCount);
  for (unsigned given_up = 0; given_up < 1U << kCount; ++given_up) {
    std::iota(order.begin(), order.end(), std::uint64_t{1});
    do {
      Releases stream;
      issue(stream, kCount);
      std::vector<bool> over(kCount + 2);
      const auto is_given_up = [&](std::uint64_t number) {
        return (given_up >> (number - 1) & 1U) != 0;
      };
      for (const std::uint64_t number : order) {
        if (!is_given_up(number)) continue;
        stream.complete(number, {});
        over[number] = true;
        // In between, complete one operation if one may start.
        for (std::uint64_t next = 1; next <= kCount; ++next) {
          if (is_given_up(next) || over[next] || !stream.may_start(next)) continue;
          stream.complete(next, {});
          over[next] = true;
          break;
        }
        std::uint64_t first_open = 1;
        while (over[first_open]) ++first_open;
        ASSERT_EQ(stream.released, first_open - 1) << "operation " << number << " given up";
      }
      for (std::uint64_t next = 1; next <= kCount; ++next) {
        if (over[next]) continue;
        ASSERT_TRUE(stream.may_start(next));
        stream.complete(next, {});
      }
      ASSERT_TRUE(stream.idle());
      ASSERT_TRUE(stream.error().ok());
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Ticket, StartsInItsTurnAndCompletesWithItsLastPart) {
  const auto stream = std::make_shared<Stream>();
  Ticket first(stream, 3);
  auto second = std::make_unique<Ticket>(stream, 1);
  EXPECT_TRUE(first.issue({}).ok() && second->issue({}).ok());
  EXPECT_EQ(&first.stream(), stream.get());
  EXPECT_TRUE(first.may_start());
  EXPECT_FALSE(second->may_start());
  first.complete_part({});
  first.complete_part(dead(1));
  EXPECT_FALSE(second->may_start()) << "a part is missing";
  EXPECT_TRUE(stream->error().ok()) << "the error comes with the operation's end";
  first.complete_part(dead(2));
  EXPECT_TRUE(second->may_start());
  EXPECT_EQ(stream->error().message(), "rank 1 is dead");
  second.reset();
  EXPECT_TRUE(stream->idle());
}

TEST(Ticket, GivesItsPlaceUpWhenItGoes) {
  const auto stream = std::make_shared<Stream>();
  const Ticket unused(stream, 1);
  auto first = std::make_unique<Ticket>(stream, 2), second = std::make_unique<Ticket>(stream, 1);
  EXPECT_TRUE(first->issue({}).ok() && second->issue({}).ok());
  second.reset();
  EXPECT_FALSE(stream->idle()) << "in its turn";
  first->complete_part(dead(1));
  first.reset();
  EXPECT_TRUE(stream->idle());
  EXPECT_EQ(stream->error().message(), "rank 1 is dead");
}

/// Helper that completes the operations of a stream, one for each call, up to number `last`.
struct Helper final : StreamHelper {
  bool help(const Stream* of, std::uint64_t number) override {
    EXPECT_EQ(of, stream);
    EXPECT_EQ(number, 3U);
    ++calls;
    if (done == last) return false;
    stream->complete(++done, {});
    return true;
  }
  void hurry() noexcept override {}
  bool patient() const noexcept override { return false; }
  Stream* stream = nullptr;
  std::uint64_t done = 0, last = 0;
  int calls = 0;
};

TEST(Stream, SynchronizeHelpsTheQueuesThatItHasEntered) {
  Stream stream;
  issue(stream, 3);
  const auto helper = std::make_shared<Helper>();
  helper->stream = &stream;
  helper->last = 3;
  stream.enter(helper);
  stream.enter(helper);
  EXPECT_EQ(helper.use_count(), 2) << "once is enough";
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(helper->done, 3U);
  EXPECT_EQ(helper->calls, 3);
}

TEST(Stream, SynchronizeLetsGoOfQueues) {
  Stream stream;
  const auto helper = std::make_shared<Helper>();
  stream.enter(helper);
  EXPECT_EQ(helper.use_count(), 2);
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(helper.use_count(), 1);
  EXPECT_EQ(helper->calls, 0) << "nothing was queued";
}

TEST(Stream, SynchronizeWaitsForOtherThreads) {
  Stream stream;
  issue(stream, 3);
  std::thread runner([&] {
    stream.complete(3, {});
    stream.complete(1, {});
    stream.complete(2, dead(1));
  });
  EXPECT_EQ(stream.synchronize().message(), "rank 1 is dead");
  EXPECT_TRUE(stream.idle());
  runner.join();
}

TEST(Stream, ThreadsIssueDifferentNumbers) {
  constexpr std::size_t kThreads = 4, kEach = 500;
  Stream stream;
  std::vector<std::vector<std::uint64_t>> numbers(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : numbers) {
    threads.emplace_back([&stream, &own] {
      for (std::size_t i = 0; i < kEach; ++i) own.push_back(*stream.issue({}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& own : numbers) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i + 1);
}

TEST(Stream, ThreadsGiveUpAndCompleteAtTheSameTime) {
  constexpr std::uint64_t kCount = 300;
  Stream stream;
  issue(stream, kCount);
  const auto abandon = [&stream](std::uint64_t first, std::uint64_t step) {
    for (std::uint64_t number = first; number <= kCount; number += step)
      stream.complete(number, {});
  };
  std::thread evens(abandon, 2, 4), others(abandon, 4, 4);
  CommError never_set;
  Event::Waiter waiter(stream.event());
  for (std::uint64_t number = 1; number <= kCount; number += 2) {
    const auto attempt = [&] {
      return stream.may_start(number) ? Progress::kDone : Progress::kIdle;
    };
    ASSERT_EQ(wait_until(attempt, {.timeout_ns = 20'000'000'000}, never_set, waiter),
              WaitResult::kReady);
    stream.complete(number, {});
  }
  EXPECT_TRUE(stream.synchronize().ok());
  evens.join();
  others.join();
  EXPECT_TRUE(stream.idle());
}

TEST(StreamHandles, AreFoundUntilTheyAreDestroyedAndNeverUsedAgain) {
  const auto first = create_stream();
  ASSERT_TRUE(first.ok());
  EXPECT_NE(find_stream(*first), nullptr);
  EXPECT_TRUE(was_stream(*first));
  destroy_stream(*first);
  EXPECT_EQ(find_stream(*first), nullptr);
  EXPECT_TRUE(was_stream(*first)) << "also afterwards";
  destroy_stream(*first); // a second call does nothing
  const auto second = create_stream();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_NE(find_stream(*second), nullptr);
  destroy_stream(*second);
}

TEST(StreamHandles, AStreamThatIsInUseOutlivesItsHandle) {
  const auto handle = create_stream();
  ASSERT_TRUE(handle.ok());
  const std::shared_ptr<Stream> stream = find_stream(*handle);
  issue(*stream, 1);
  destroy_stream(*handle);
  stream->complete(1, {});
  EXPECT_TRUE(stream->idle());
}

TEST(StreamHandles, OtherAddressesAreNoStreams) {
  int on_stack = 0;
  for (void* const address : {static_cast<void*>(nullptr), static_cast<void*>(&on_stack),
                              reinterpret_cast<void*>(UINTPTR_MAX)}) {
    EXPECT_EQ(find_stream(address), nullptr);
    EXPECT_FALSE(was_stream(address));
    destroy_stream(address);
  }
  const auto handle = create_stream();
  ASSERT_TRUE(handle.ok());
  void* const next = static_cast<std::byte*>(*handle) + 1; // the next handle that will be made
  EXPECT_FALSE(was_stream(next));
  EXPECT_EQ(find_stream(next), nullptr);
  destroy_stream(*handle);
}

} // namespace
} // namespace whorl
