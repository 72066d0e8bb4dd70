// Tests of a communicator's tasks: which thread runs them, in which order, and what happens to
// their tickets.
#include "engine/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/until.h"

namespace whorl {
namespace {

using test::until;

constexpr WaitPolicy kPolicy{
    .timeout_ns = UINT64_MAX, .yield_ns = 50'000, .block_ns = 1'000'000'000};

/// Runner that records the tasks it runs. Each task is identified by its timeout.
class Runner final : public TaskRunner {
 public:
  Status run_task(const Task& task) override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two tasks at a time";
    for (const auto& ticket : task.tickets) until([&] { return ticket->may_start(); });
    order.push_back(task.timeout_ns); // not guarded: one task at a time
    by.push_back(std::this_thread::get_id());
    const Status status = body(task);
    EXPECT_EQ(inside_.fetch_sub(1), 1);
    return status;
  }

  std::vector<std::uint64_t> order;
  std::vector<std::thread::id> by;
  std::function<Status(const Task&)> body = [](const Task&) { return Status(); };

 private:
  std::atomic<int> inside_{0};
};

std::shared_ptr<Ticket> next_ticket(const std::shared_ptr<Stream>& stream, int parts = 1) {
  auto ticket = std::make_shared<Ticket>(stream, parts);
  EXPECT_TRUE(ticket->issue({}).ok());
  return ticket;
}

Task task_of(std::uint64_t name, std::vector<std::shared_ptr<Ticket>> tickets) {
  return {.batch = {}, .tickets = std::move(tickets), .timeout_ns = name};
}

struct TaskQueueTest : ::testing::Test {
  void push(std::uint64_t name, const std::shared_ptr<Stream>& in) {
    push(name, std::vector{next_ticket(in)});
  }
  void push(std::uint64_t name, std::vector<std::shared_ptr<Ticket>> tickets) {
    for (const auto& ticket : tickets) ticket->stream().enter(queue);
    queue->push(task_of(name, std::move(tickets)));
  }

  /// Carries out what is left: a stream and the queue in which it has work hold each other.
  ~TaskQueueTest() override {
    while (queue->help(nullptr)) {
    }
  }

  using Names = std::vector<std::uint64_t>;
  Runner runner;
  std::shared_ptr<TaskQueue> queue = std::make_shared<TaskQueue>(runner);
  std::shared_ptr<Stream> stream = std::make_shared<Stream>(), other = std::make_shared<Stream>();
};

TEST_F(TaskQueueTest, ServesInTheOrderOfPushes) {
  EXPECT_TRUE(queue->idle());
  for (const std::uint64_t name : {1U, 2U, 3U}) push(name, stream);
  EXPECT_FALSE(queue->idle());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue->serve(kPolicy));
  EXPECT_EQ(runner.order, (Names{1, 2, 3}));
  EXPECT_TRUE(queue->idle());
  EXPECT_TRUE(stream->idle());
}

TEST_F(TaskQueueTest, ServesWhatIsQueuedBeforeItStops) {
  push(1, stream);
  queue->stop();
  EXPECT_TRUE(queue->serve(kPolicy));
  EXPECT_FALSE(queue->serve(kPolicy));
  EXPECT_EQ(runner.order, (Names{1}));
}

TEST_F(TaskQueueTest, ServesAfterItStopsWhatIsBehindATaskOfAnotherThread) {
  std::atomic<bool> inside{false}, may_end{false};
  runner.body = [&](const Task& task) {
    if (task.timeout_ns != 1) return Status();
    inside = true;
    until([&] { return may_end.load(); });
    return Status();
  };
  push(1, stream);
  push(2, other);
  std::thread helper([&] { EXPECT_TRUE(queue->help(stream.get())); });
  until([&] { return inside.load(); });
  queue->stop();
  std::thread server([&] {
    EXPECT_TRUE(queue->serve(kPolicy));
    EXPECT_FALSE(queue->serve(kPolicy));
  });
  sys().sleep_ns(20'000'000); // in which the server looks at the queue
  may_end = true;
  helper.join();
  server.join();
  EXPECT_EQ(runner.order, (Names{1, 2}));
}

TEST_F(TaskQueueTest, StopWakesTheThreadThatServes) {
  std::thread server([&] { EXPECT_FALSE(queue->serve(kPolicy)); });
  queue->stop();
  server.join();
}

TEST_F(TaskQueueTest, PushWakesTheThreadThatServes) {
  std::thread server([&] { EXPECT_TRUE(queue->serve(kPolicy)); });
  push(1, stream);
  server.join();
  EXPECT_EQ(runner.order, (Names{1}));
}

TEST_F(TaskQueueTest, HelpHasNothingToDoInAnEmptyQueue) {
  EXPECT_FALSE(queue->help(nullptr));
  EXPECT_FALSE(queue->help(stream.get()));
}

TEST_F(TaskQueueTest, HelpCarriesOutOneTaskInTheCallingThread) {
  push(1, stream);
  push(2, stream);
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_EQ(runner.order, (Names{1}));
  EXPECT_EQ(runner.by.front(), std::this_thread::get_id());
  EXPECT_TRUE(queue->help(nullptr));
  EXPECT_EQ(runner.order, (Names{1, 2}));
  EXPECT_FALSE(queue->help(nullptr));
}

TEST_F(TaskQueueTest, AnExceptionIsTheErrorOfItsTask) {
  class Throwing final : public TaskRunner {
   public:
    Status run_task(const Task&) override { throw std::bad_alloc(); }
  } throwing;
  queue = std::make_shared<TaskQueue>(throwing);
  push(1, stream);
  EXPECT_TRUE(queue->serve(kPolicy));
  EXPECT_EQ(stream->error().code(), Code::kSystemError);
  EXPECT_TRUE(stream->idle());
  EXPECT_TRUE(queue->idle());
}

TEST_F(TaskQueueTest, HelpForAStreamLeavesAQueueWithoutItAlone) {
  push(1, other);
  EXPECT_FALSE(queue->help(stream.get()));
  EXPECT_TRUE(runner.order.empty());
}

TEST_F(TaskQueueTest, HelpForAStreamCarriesOutWhatStandsBeforeIt) {
  push(1, other);
  push(2, stream);
  push(3, other);
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_EQ(runner.order, (Names{1}));
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_FALSE(queue->help(stream.get())) << "only another stream's task is left";
  EXPECT_EQ(runner.order, (Names{1, 2}));
}

TEST_F(TaskQueueTest, HelpForAPlaceLeavesAloneWhatStandsBehindIt) {
  push(1, stream);
  push(2, other);
  push(3, stream);
  EXPECT_TRUE(queue->help(stream.get(), 1));
  EXPECT_FALSE(queue->help(stream.get(), 1));
  EXPECT_EQ(runner.order, (Names{1}));
  EXPECT_TRUE(queue->help(stream.get(), 2));
  EXPECT_TRUE(queue->help(stream.get(), 2));
  EXPECT_EQ(runner.order, (Names{1, 2, 3}));
}

TEST_F(TaskQueueTest, HelpFindsAnyStreamOfATask) {
  push(1, {next_ticket(other), next_ticket(stream)});
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_TRUE(stream->idle());
  EXPECT_TRUE(other->idle());
}

TEST_F(TaskQueueTest, HelpDoesNotBeginWhatAStreamIsNotReadyFor) {
  const auto before = next_ticket(other); // a ticket of another communicator
  push(1, {next_ticket(stream), next_ticket(other)});
  EXPECT_FALSE(queue->help(stream.get()));
  EXPECT_FALSE(queue->help(nullptr));
  before->complete_part({});
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_EQ(runner.order, (Names{1}));
}

TEST_F(TaskQueueTest, HelpDoesNotOvertakeTheFirstTask) {
  const auto before = next_ticket(other);
  push(1, other);
  push(2, stream); // could start by itself
  EXPECT_FALSE(queue->help(stream.get()));
  EXPECT_TRUE(runner.order.empty());
  before->complete_part({});
  queue->drain();
  EXPECT_EQ(runner.order, (Names{1, 2}));
}

TEST_F(TaskQueueTest, HelpDoesNotBeginASecondTask) {
  push(1, stream);
  push(2, other);
  bool helped = true;
  runner.body = [&](const Task& task) {
    EXPECT_FALSE(queue->idle());
    if (task.timeout_ns == 1) helped = queue->help(other.get());
    return Status();
  };
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_FALSE(helped);
  EXPECT_EQ(runner.order, (Names{1}));
  queue->drain();
  EXPECT_EQ(runner.order, (Names{1, 2}));
}

TEST_F(TaskQueueTest, DrainCarriesOutEverything) {
  queue->drain(); // the queue is empty
  for (const std::uint64_t name : {1U, 2U, 3U, 4U}) push(name, name % 2 == 0 ? stream : other);
  queue->drain();
  EXPECT_EQ(runner.order, (Names{1, 2, 3, 4}));
  EXPECT_TRUE(queue->idle());
}

TEST_F(TaskQueueTest, DrainWaitsForATaskThatAnotherThreadHasBegun) {
  std::atomic<bool> begun{false}, may_end{false}, ended{false};
  runner.body = [&](const Task&) {
    begun = true;
    until([&] { return may_end.load(); });
    ended = true;
    return Status();
  };
  push(1, stream);
  std::thread server([&] { EXPECT_TRUE(queue->serve(kPolicy)); });
  until([&] { return begun.load(); });
  std::thread releaser([&] { may_end = true; });
  queue->drain();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(queue->idle());
  releaser.join();
  server.join();
}

TEST_F(TaskQueueTest, AnErrorGoesToTheStreamsOfItsTaskAndTheNextTasksRun) {
  const auto third = std::make_shared<Stream>();
  runner.body = [](const Task& task) {
    return task.timeout_ns == 1 ? Status::error(Code::kRemoteError, "rank 1 is dead") : Status();
  };
  push(1, {next_ticket(stream), next_ticket(other)});
  push(2, {next_ticket(stream), next_ticket(third)});
  queue->drain();
  EXPECT_EQ(runner.order, (Names{1, 2}));
  for (const auto& failed : {stream, other}) {
    EXPECT_TRUE(failed->idle());
    EXPECT_EQ(failed->error().code(), Code::kRemoteError);
    EXPECT_EQ(failed->error().message(), "rank 1 is dead");
  }
  EXPECT_TRUE(third->error().ok());
}

TEST_F(TaskQueueTest, TicketsCompleteWhenTheEngineIsFree) {
  // A thread that sees the stream idle may use the engine, and begin the next task.
  struct Watching final : Stream {
    void release(std::uint64_t number) noexcept override {
      idle_at_release = queue->idle();
      Stream::release(number);
    }
    TaskQueue* queue = nullptr;
    bool idle_at_release = false;
  };
  const auto watching = std::make_shared<Watching>();
  watching->queue = queue.get();
  push(1, watching);
  queue->drain();
  EXPECT_TRUE(watching->idle_at_release);
}

TEST_F(TaskQueueTest, ATicketOfTwoQueuesCompletesWithTheSecondPart) {
  Runner second_runner;
  const auto second = std::make_shared<TaskQueue>(second_runner);
  const auto ticket = next_ticket(stream, 2);
  push(1, {ticket});
  second->push(task_of(2, {ticket}));
  EXPECT_TRUE(queue->help(stream.get()));
  EXPECT_FALSE(stream->idle());
  EXPECT_TRUE(second->help(stream.get()));
  EXPECT_TRUE(stream->idle());
}

struct PatientTaskQueueTest : TaskQueueTest {
  static constexpr std::uint64_t kForever = UINT64_MAX / 4;
  void be_patient(std::uint64_t ns) { queue = std::make_shared<TaskQueue>(runner, ns); }
  /// Lets the queue's own thread serve one task, or end.
  std::thread serve_one(bool expected) {
    return std::thread([this, expected] { EXPECT_EQ(queue->serve(kPolicy), expected); });
  }
};

TEST_F(PatientTaskQueueTest, LeavesTasksToThoseWhoWait) {
  be_patient(kForever);
  std::thread server([&] {
    while (queue->serve(kPolicy)) continue;
  });
  for (const std::uint64_t name : {1U, 2U, 3U}) {
    push(name, stream);
    EXPECT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(runner.by.back(), std::this_thread::get_id());
  }
  queue->stop();
  server.join();
  EXPECT_EQ(runner.order, (Names{1, 2, 3}));
}

TEST_F(PatientTaskQueueTest, ServesWhatNobodyHasWaitedFor) {
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  be_patient(kPatienceNs);
  for (const std::uint64_t name : {1U, 2U}) {
    const std::uint64_t pushed_ns = sys().now_ns();
    push(name, stream);
    EXPECT_TRUE(queue->serve(kPolicy));
    EXPECT_GE(sys().now_ns() - pushed_ns, kPatienceNs);
    push(name, stream);
    stream->hurry(); // ends with the queue
    EXPECT_TRUE(queue->serve(kPolicy));
  }
  EXPECT_EQ(runner.order, (Names{1, 1, 2, 2}));
}

TEST_F(PatientTaskQueueTest, DoesNotWaitForEverForThoseWhoHelp) {
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  be_patient(kPatienceNs);
  std::atomic<bool> served{false};
  std::thread server([&] {
    while (queue->serve(kPolicy)) served = true;
  });
  push(0, other);
  std::uint64_t pushed = 1, helped = 0;
  const std::uint64_t begin_ns = sys().now_ns();
  while (!served && sys().now_ns() - begin_ns < 10'000'000'000) { // a helper that is always early
    push(pushed++, other);
    push(pushed++, other);
    helped += queue->help(nullptr) ? 1 : 0;
    sys().sleep_ns(kPatienceNs / 4);
  }
  EXPECT_TRUE(served) << helped << " tasks were carried out by another thread";
  queue->stop();
  server.join();
}

TEST_F(PatientTaskQueueTest, WakesAfterALongRest) {
  be_patient(1'000'000);
  std::thread server([&] {
    while (queue->serve(kPolicy)) continue;
  });
  for (const std::uint64_t name : {1U, 2U}) {
    sys().sleep_ns(50'000'000); // the thread sleeps until it is woken
    push(name, stream);
    until([&] { return stream->idle(); });
  }
  queue->stop();
  server.join();
  EXPECT_EQ(runner.order, (Names{1, 2}));
}

TEST_F(PatientTaskQueueTest, ServesAtOnceIfSomebodyIsInAHurry) {
  be_patient(kForever);
  stream->hurry(); // nothing is queued, so this is forgotten
  for (const bool hurried_first : {false, true}) {
    push(1, stream);
    if (hurried_first) stream->hurry();
    std::thread server = serve_one(true);
    if (!hurried_first) stream->hurry();
    server.join();
    EXPECT_TRUE(stream->idle());
  }
}

TEST_F(PatientTaskQueueTest, HurriesWhatAStreamWaitsFor) {
  be_patient(kForever);
  push(1, other);
  ASSERT_TRUE(stream->wait_for(stream, {.stream = other, .number = 1}).ok());
  std::thread server = serve_one(true);
  stream->hurry();
  server.join();
  EXPECT_TRUE(stream->idle());
}

TEST_F(PatientTaskQueueTest, ServesDevicesAtOnce) {
  struct OfDevice final : Stream {
    std::optional<Device> device() const noexcept override { return Device{}; }
  };
  be_patient(kForever);
  std::thread server = serve_one(true);
  push(1, std::make_shared<OfDevice>());
  server.join();
}

TEST_F(PatientTaskQueueTest, ServesWhatIsQueuedBeforeItStops) {
  be_patient(kForever);
  push(1, stream);
  queue->stop();
  EXPECT_TRUE(queue->serve(kPolicy));
  EXPECT_FALSE(queue->serve(kPolicy));
}

TEST_F(TaskQueueTest, ManyThreadsCarryOutEachTaskOnceAndInOrder) {
  constexpr std::uint64_t kTasks = 100, kThreads = 3;
  std::thread server([&] {
    while (queue->serve(kPolicy)) continue;
  });
  std::vector<std::thread> users;
  for (std::uint64_t user = 0; user < kThreads; ++user) {
    users.emplace_back([&, user] {
      const auto own = std::make_shared<Stream>();
      for (std::uint64_t i = 0; i < kTasks; ++i) {
        push(user * kTasks + i, own);
        if (i % 7 == user) {
          EXPECT_TRUE(own->synchronize().ok());
        }
        if (i % 16 == user) {
          queue->drain();
        }
      }
      EXPECT_TRUE(own->synchronize().ok());
      EXPECT_TRUE(own->idle());
    });
  }
  for (std::thread& user : users) user.join();
  queue->stop();
  server.join();
  EXPECT_TRUE(queue->idle());
  ASSERT_EQ(runner.order.size(), kThreads * kTasks);
  std::vector<std::uint64_t> next(kThreads);
  for (const std::uint64_t name : runner.order) EXPECT_EQ(name % kTasks, next[name / kTasks]++);
}

} // namespace
} // namespace whorl
