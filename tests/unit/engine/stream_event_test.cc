// Tests of events and callbacks of streams: places, errors, timeouts, steps that wait for other
// streams, callbacks.
#include "engine/stream_event.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/host_stream.h"
#include "engine/task_queue.h"
#include "tests/support/until.h"

namespace whorl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::until;

constexpr std::uint64_t kMs = 1'000'000;

Status dead(int rank) {
  return Status::error(Code::kRemoteError, "rank " + std::to_string(rank) + " is dead");
}

std::uint64_t issue(Stream& stream) {
  const auto number = stream.issue({});
  EXPECT_TRUE(number.ok());
  return *number;
}

/// Returns whether all up to the event's place is complete.
bool complete(const StreamEvent& event) {
  const StreamPoint at = event.point();
  return at.stream == nullptr || at.stream->has_completed(at.number);
}
/// Returns the first error up to the event's place.
Status error(const StreamEvent& event) {
  const StreamPoint at = event.point();
  return at.stream != nullptr ? at.stream->error(at.number) : Status();
}

/// Runner whose tasks fail with the error of the rank that is their timeout; 0: succeed.
struct Runner final : TaskRunner {
  Status run_task(const Task& task) override {
    const CommError never_set;
    for (const auto& ticket : task.tickets) EXPECT_TRUE(ticket->wait(never_set, [] {}).ok());
    ++done;
    return task.timeout_ns == 0 ? Status() : dead(static_cast<int>(task.timeout_ns));
  }
  std::atomic<int> done{0};
};

struct StreamEventTest : ::testing::Test {
  ~StreamEventTest() override {
    for (const auto& stream : {a, b, c}) {
      EXPECT_TRUE(stream->idle());
      stream->stop();
    }
  }

  /// Queues an operation of `queue`, which nobody but a waiting thread carries out.
  static void push(const std::shared_ptr<TaskQueue>& queue, const std::shared_ptr<HostStream>& in,
                   int dead_rank = 0) {
    auto ticket = std::make_shared<Ticket>(in, 1);
    EXPECT_TRUE(ticket->issue({}).ok());
    in->enter(queue);
    queue->push({.batch = {},
                 .tickets = {std::move(ticket)},
                 .timeout_ns = static_cast<std::uint64_t>(dead_rank)});
  }
  static void add(const std::shared_ptr<HostStream>& stream,
                  std::function<Status(const Status&)> callback) {
    EXPECT_TRUE(HostStream::add_callback(stream, std::move(callback)).ok());
  }

  Runner runner;
  std::shared_ptr<TaskQueue> queue = std::make_shared<TaskQueue>(runner);
  std::shared_ptr<HostStream> a = std::make_shared<HostStream>(),
                              b = std::make_shared<HostStream>(),
                              c = std::make_shared<HostStream>();
  StreamEvent event;
};

TEST_F(StreamEventTest, StandsForNothingAtFirst) {
  EXPECT_TRUE(complete(event));
  EXPECT_TRUE(error(event).ok());
  EXPECT_TRUE(event.wait(UINT64_MAX).ok());
  issue(*a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok());
  EXPECT_TRUE(b->idle());
  a->complete(1, {});
}

TEST_F(StreamEventTest, StandsForWhatWasQueuedBefore) {
  issue(*a);
  issue(*a);
  event.record(a);
  issue(*a);
  a->complete(1, {});
  EXPECT_FALSE(complete(event));
  a->complete(2, {});
  EXPECT_TRUE(complete(event));
  a->complete(3, dead(3));
  EXPECT_TRUE(error(event).ok()) << "a later operation";
  EXPECT_TRUE(event.wait(UINT64_MAX).ok());
  event.record(a);
  EXPECT_EQ(error(event).message(), "rank 3 is dead");
  EXPECT_EQ(event.wait(UINT64_MAX).message(), "rank 3 is dead");
}

TEST_F(StreamEventTest, RecordReplaces) {
  issue(*a);
  event.record(a);
  EXPECT_FALSE(complete(event));
  event.record(b);
  EXPECT_TRUE(complete(event));
  event.record(a);
  event.record(nullptr);
  EXPECT_TRUE(complete(event));
  a->complete(1, dead(1));
  EXPECT_TRUE(error(event).ok());
}

TEST_F(StreamEventTest, AWaitThatHasBegunKeepsItsPlace) {
  issue(*a);
  event.record(a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok());
  event.record(nullptr);
  EXPECT_FALSE(b->idle());
  a->complete(1, {});
  EXPECT_TRUE(b->idle());
}

TEST_F(StreamEventTest, AWaitEndsWithItsTime) {
  issue(*a);
  event.record(a);
  EXPECT_EQ(event.wait(0).code(), Code::kInProgress);
  const auto start = steady_clock::now();
  EXPECT_EQ(event.wait(30 * kMs).code(), Code::kInProgress);
  const auto took = steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(30));
  EXPECT_LT(took, milliseconds(3000)) << "generous: the machine may be busy";
  a->complete(1, {});
  EXPECT_TRUE(event.wait(0).ok());
}

TEST_F(StreamEventTest, AWaitCarriesOutWhatStandsBeforeIt) {
  for (int i = 0; i < 3; ++i) push(queue, a);
  event.record(a);
  EXPECT_EQ(event.wait(0).code(), Code::kInProgress);
  EXPECT_EQ(runner.done, 0) << "with no time it only looks";
  push(queue, a);
  EXPECT_TRUE(event.wait(UINT64_MAX).ok());
  EXPECT_EQ(runner.done, 3) << "and no more";
  EXPECT_TRUE(a->synchronize().ok()) << "which carries out the last one";
  EXPECT_EQ(runner.done, 4);
}

TEST_F(StreamEventTest, AStreamWaitsForAnotherOne) {
  issue(*a);
  event.record(a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok());
  const std::uint64_t behind = issue(*b);
  EXPECT_EQ(behind, 2U);
  EXPECT_FALSE(b->may_start(behind));
  a->complete(1, {});
  EXPECT_TRUE(b->may_start(behind));
  b->complete(behind, {});
}

TEST_F(StreamEventTest, AWaitInAStreamIsCompleteInItsTurn) {
  const std::uint64_t before = issue(*b);
  issue(*a);
  event.record(a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok());
  const std::uint64_t behind = issue(*b);
  a->complete(1, {}); // earlier than what stands before the wait
  EXPECT_FALSE(b->may_start(behind));
  EXPECT_TRUE(b->may_start(before));
  b->complete(before, {});
  EXPECT_TRUE(b->may_start(behind));
  b->complete(behind, {});
}

TEST_F(StreamEventTest, ErrorsTravelUpToTheEvent) {
  issue(*a);
  event.record(a);
  issue(*a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok()); // before the error
  StreamEvent later;
  later.record(a);
  EXPECT_TRUE(c->wait_for(c, later.point()).ok());
  a->complete(1, {});
  EXPECT_TRUE(b->error().ok());
  a->complete(2, dead(2));
  EXPECT_TRUE(b->idle());
  EXPECT_TRUE(b->error().ok()) << "of an operation behind the event";
  EXPECT_EQ(c->error().message(), "rank 2 is dead");
  EXPECT_TRUE(b->wait_for(b, later.point()).ok()); // after the error
  EXPECT_EQ(b->error().message(), "rank 2 is dead");
}

TEST_F(StreamEventTest, EventsOfTheOwnStreamNeedNoWait) {
  issue(*a);
  event.record(a);
  EXPECT_TRUE(a->wait_for(a, event.point()).ok());
  EXPECT_EQ(a->issued(), 1U);
  a->complete(1, {});
}

TEST_F(StreamEventTest, LongChainsOfWaitsEnd) {
  constexpr int kSteps = 100'000; // a recursion of that depth would overflow the stack
  const std::array<std::shared_ptr<HostStream>, 2> two{a, b};
  issue(*a);
  for (std::size_t i = 0; i < kSteps; ++i) {
    event.record(two[i % 2]);
    const auto& waiting = two[(i + 1) % 2];
    ASSERT_TRUE(waiting->wait_for(waiting, event.point()).ok());
  }
  EXPECT_FALSE(b->idle());
  a->complete(1, dead(1));
  EXPECT_TRUE(a->idle());
  EXPECT_TRUE(b->idle());
  EXPECT_EQ(error(event).message(), "rank 1 is dead");
}

TEST_F(StreamEventTest, AWaitHelpsTheStreamsThatItsStreamWaitsFor) {
  push(queue, a, 7);
  event.record(a);
  EXPECT_TRUE(b->wait_for(b, event.point()).ok());
  event.record(b);
  EXPECT_TRUE(c->wait_for(c, event.point()).ok());
  push(queue, a);
  EXPECT_EQ(c->synchronize().message(), "rank 7 is dead");
  EXPECT_EQ(runner.done, 1);
  EXPECT_EQ(a->synchronize().message(), "rank 7 is dead");
}

TEST_F(StreamEventTest, AWaitHelpsAlongALongChain) {
  constexpr int kStreams = 20'000; // a recursion of that depth would overflow the stack
  push(queue, a);
  std::vector<std::shared_ptr<Stream>> chain{a};
  for (int i = 0; i < kStreams; ++i) {
    auto next = std::make_shared<Stream>();
    ASSERT_TRUE(next->wait_for(next, {chain.back(), 1}).ok());
    chain.push_back(std::move(next));
  }
  EXPECT_TRUE(chain.back()->synchronize().ok());
  EXPECT_EQ(runner.done, 1);
}

TEST_F(StreamEventTest, AWaitIsCompleteAheadOfItsTurnWithoutTheOtherStream) {
  const std::uint64_t before = issue(*b);
  auto other = std::make_shared<Stream>();
  issue(*other);
  EXPECT_TRUE(b->wait_for(b, {other, 1}).ok());
  const std::weak_ptr<Stream> gone = other;
  other->complete(1, dead(1));
  other.reset();
  EXPECT_TRUE(gone.expired());
  b->complete(before, {});
  EXPECT_EQ(b->error().message(), "rank 1 is dead");
}

TEST_F(StreamEventTest, CallbacksAreCalledOnceAndInOrder) {
  std::vector<int> order; // not guarded: the stream orders
  for (int i = 0; i < 20; ++i) {
    push(queue, a);
    add(a, [&, i](const Status& before) {
      EXPECT_TRUE(before.ok());
      EXPECT_EQ(runner.done, i + 1) << "the operation before is complete, the next has not begun";
      order.push_back(i);
      return Status();
    });
  }
  EXPECT_TRUE(a->synchronize().ok());
  ASSERT_EQ(order.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(StreamEventTest, CallbacksGetTheFirstErrorAndGiveTheirs) {
  std::vector<std::string> seen;
  const auto see = [&](const Status& before) {
    seen.push_back(before.message());
    return before.ok() ? Status::error(Code::kInternalError, "thrown") : Status();
  };
  add(a, see);
  event.record(a);
  add(a, see);
  push(queue, b, 5);
  add(b, see);
  EXPECT_EQ(a->synchronize().message(), "thrown");
  EXPECT_EQ(error(event).message(), "thrown");
  EXPECT_EQ(b->synchronize().message(), "rank 5 is dead");
  EXPECT_EQ(seen, (std::vector<std::string>{"", "thrown", "rank 5 is dead"}));
}

TEST_F(StreamEventTest, StopCallsWhatIsQueued) {
  std::atomic<int> called{0};
  for (int i = 0; i < 5; ++i) {
    add(a, [&](const Status&) {
      ++called;
      return Status();
    });
  }
  a->stop();
  EXPECT_EQ(called, 5);
  EXPECT_EQ(HostStream::add_callback(a, [](const Status&) { return Status(); }).code(),
            Code::kInvalidArgument);
}

TEST_F(StreamEventTest, AStreamThatNobodyHoldsEndsInItsThread) {
  std::atomic<bool> may_end{false}, ended{false};
  auto stream = std::make_shared<HostStream>();
  add(stream, [&](const Status&) {
    until([&] { return may_end.load(); });
    ended = true;
    return Status();
  });
  stream.reset();
  may_end = true;
  until([&] { return ended.load(); });
}

TEST_F(StreamEventTest, CallbacksQueueMoreInTheirStream) {
  int depth = 0; // not guarded: the stream orders
  std::function<Status(const Status&)> again = [&](const Status&) {
    if (++depth < 50) add(a, again);
    return Status();
  };
  add(a, again);
  while (!a->idle()) EXPECT_TRUE(a->synchronize().ok());
  EXPECT_EQ(depth, 50);
}

TEST_F(StreamEventTest, ManyThreadsRecordWaitAndCall) {
  constexpr int kThreads = 4, kEach = 60;
  const std::array<std::shared_ptr<HostStream>, 3> streams{a, b, c};
  std::array<StreamEvent, 3> events;
  std::atomic<int> called{0};
  std::thread server([&] {
    constexpr WaitPolicy kPolicy{
        .timeout_ns = UINT64_MAX, .yield_ns = 50'000, .block_ns = 1'000'000'000};
    while (queue->serve(kPolicy)) continue;
  });
  std::mutex pushing; // a queue has its operations in the order of their numbers
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < kEach; ++i) {
        const auto& own = streams[(t + i) % 3];
        StreamEvent& mark = events[(t * i) % 3];
        {
          const std::lock_guard lock(pushing);
          push(queue, own);
        }
        add(own, [&](const Status& before) {
          EXPECT_TRUE(before.ok());
          ++called;
          return Status();
        });
        mark.record(own);
        const auto& other = streams[(t + 2 * i) % 3];
        EXPECT_TRUE(other->wait_for(other, events[(t + i) % 3].point()).ok());
        if (i % 5 == t) {
          EXPECT_TRUE(mark.wait(UINT64_MAX).ok());
        }
        if (i % 7 == t) {
          EXPECT_TRUE(own->synchronize().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& stream : streams) EXPECT_TRUE(stream->synchronize().ok());
  queue->stop();
  server.join();
  EXPECT_EQ(called, kThreads * kEach);
  EXPECT_EQ(runner.done, kThreads * kEach);
}

TEST(EventHandles, AreFoundUntilTheyAreDestroyed) {
  const auto first = create_event();
  ASSERT_TRUE(first.ok());
  const auto found = find_event(*first);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(destroy_event(*first));
  EXPECT_FALSE(destroy_event(*first));
  EXPECT_EQ(find_event(*first), nullptr);
  EXPECT_TRUE(complete(*found)) << "who has found it may use it";
  const auto second = create_event();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(destroy_event(*second));
  int on_stack = 0;
  EXPECT_EQ(find_event(&on_stack), nullptr);
  EXPECT_EQ(find_event(nullptr), nullptr);
}

} // namespace
} // namespace whorl
