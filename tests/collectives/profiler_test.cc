// Tests of profiler plug-ins: this program is one (WHORL_PROFILER_PLUGIN=STATIC).
#include "whorl/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/thread_world.h"

namespace {

/// Operation that a plug-in was told of.
struct Told {
  std::string func, algo, datatype, red_op;
  std::uint64_t number;
  std::size_t count, bytes;
  int root, peer;
  bool stopped = false;
};

/// Plug-in's part of a communicator.
struct Context {
  int rank, nranks;
  int* mask;
  std::vector<Told> told;
  std::size_t finalized = 0;
};

std::mutex mutex; // guards the contexts
std::vector<std::unique_ptr<Context>> contexts;
int first_mask = whorlProfileColl | whorlProfileP2p;
whorlResult_t answer_of_init = whorlSuccess;
std::string function_that_fails;

whorlResult_t init(void** context, int* mask, const char*, std::uint64_t, int nranks, int rank) {
  if (answer_of_init != whorlSuccess) return answer_of_init;
  const std::lock_guard lock(mutex);
  *mask = first_mask;
  contexts.push_back(std::make_unique<Context>(Context{rank, nranks, mask, {}}));
  *context = contexts.back().get();
  return whorlSuccess;
}

whorlResult_t start_event(void* context, void** handle, const whorlProfilerEvent_v1_t* event) {
  const std::lock_guard lock(mutex);
  auto& told = static_cast<Context*>(context)->told;
  EXPECT_EQ(event->size, sizeof *event);
  EXPECT_EQ(event->rank, static_cast<Context*>(context)->rank);
  EXPECT_EQ(event->type, event->peer < 0 ? whorlProfileColl : whorlProfileP2p);
  told.push_back({event->func, event->algo, event->datatype, event->redOp, event->seqNumber,
                  event->count, event->bytes, event->root, event->peer});
  *handle = reinterpret_cast<void*>(told.size());
  return function_that_fails == "startEvent" ? whorlInternalError : whorlSuccess;
}

whorlResult_t stop_event(void* context, void* handle) {
  const std::lock_guard lock(mutex);
  static_cast<Context*>(context)->told.at(reinterpret_cast<std::size_t>(handle) - 1).stopped = true;
  return function_that_fails == "stopEvent" ? whorlInternalError : whorlSuccess;
}

whorlResult_t finalize(void* context) {
  const std::lock_guard lock(mutex);
  ++static_cast<Context*>(context)->finalized;
  return whorlSuccess;
}

} // namespace

const whorlProfiler_v1_t whorlProfiler_v1{"test", init, start_event, stop_event, finalize};

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

class Profiler : public ::testing::Test {
 protected:
  void TearDown() override {
    contexts.clear();
    first_mask = whorlProfileColl | whorlProfileP2p;
    answer_of_init = whorlSuccess;
    function_that_fails.clear();
  }
  /// Returns what the communicator of a rank was told; the first one with that rank.
  static const Context& of(int rank) {
    for (const auto& context : contexts) {
      if (context->rank == rank) return *context;
    }
    throw std::runtime_error("no context");
  }
};

/// Makes communicators of two ranks, one call of each kind, and destroys them.
void all_kinds() {
  ThreadWorld world(2);
  world.each([&](int rank, whorlComm_t comm) {
    std::vector<float> in(64, 1), out(128);
    const std::size_t counts[] = {3, 5}, offsets[] = {0, 3};
    std::string f;
    const auto call = [&](whorlResult_t result) {
      if (f.empty()) f = failure(result, comm);
    };
    call(whorlAllReduce(in.data(), out.data(), 64, whorlFloat32, whorlMax, comm, nullptr));
    call(whorlBroadcast(in.data(), out.data(), 8, whorlFloat32, 1, comm, nullptr));
    call(whorlAllGatherv(in.data(), counts[rank], out.data(), counts, offsets, whorlFloat32, comm,
                         nullptr));
    whorlGroupStart();
    call(whorlSend(in.data(), 16, whorlFloat32, 1 - rank, comm, nullptr));
    call(whorlRecv(out.data(), 16, whorlFloat32, 1 - rank, comm, nullptr));
    call(whorlGroupEnd());
    call(whorlBarrier(comm, nullptr));
    return f;
  });
}

TEST_F(Profiler, IsToldOfEveryOperationOfEveryRank) {
  const ScopedEnv env({{"WHORL_PROFILER_PLUGIN", "STATIC"}});
  all_kinds();
  ASSERT_EQ(contexts.size(), 2u);
  for (const int rank : {0, 1}) {
    const Context& context = of(rank);
    EXPECT_EQ(context.nranks, 2);
    EXPECT_EQ(context.finalized, 1u);
    std::map<std::string, Told> by_name;
    for (const Told& told : context.told) {
      EXPECT_TRUE(told.stopped) << told.func;
      by_name[told.func] = told;
    }
    const Told& reduction = by_name.at("allreduce");
    EXPECT_EQ(reduction.algo, "oneshot");
    EXPECT_EQ(reduction.datatype, "float32");
    EXPECT_EQ(reduction.red_op, "max");
    EXPECT_EQ(reduction.number, 1u);
    EXPECT_EQ(reduction.count, 64u);
    EXPECT_EQ(reduction.bytes, 256u);
    EXPECT_EQ(reduction.root, -1);
    EXPECT_EQ(reduction.peer, -1);
    EXPECT_EQ(by_name.at("broadcast").root, 1);
    EXPECT_EQ(by_name.at("broadcast").red_op, "");
    EXPECT_EQ(by_name.at("allgather").number, 3u);
    EXPECT_EQ(by_name.at("send").peer, 1 - rank);
    EXPECT_EQ(by_name.at("send").bytes, 64u);
    EXPECT_EQ(by_name.at("send").algo, "");
    EXPECT_EQ(by_name.at("recv").peer, 1 - rank);
    EXPECT_EQ(by_name.at("barrier").bytes, 0u);
    EXPECT_EQ(by_name.size(), 6u);
  }
}

TEST_F(Profiler, ChoosesKindsAtAnyTime) {
  const ScopedEnv env({{"WHORL_PROFILER_PLUGIN", "STATIC"}});
  first_mask = 0;
  {
    ThreadWorld world(2);
    const auto barrier = [&] {
      world.each([](int, whorlComm_t comm) { return failure(whorlBarrier(comm, nullptr), comm); });
    };
    barrier();
    std::atomic_ref(*of(1).mask) = whorlProfileColl;
    barrier();
    std::atomic_ref(*of(1).mask) = whorlProfileP2p;
    barrier();
  }
  EXPECT_EQ(of(0).told.size(), 0u);
  ASSERT_EQ(of(1).told.size(), 1u);
  EXPECT_EQ(of(1).told[0].number, 2u);
}

TEST_F(Profiler, GetsNoMoreEventsAfterAnError) {
  for (const char* const function : {"startEvent", "stopEvent"}) {
    TearDown();
    const ScopedEnv env({{"WHORL_PROFILER_PLUGIN", "STATIC"}, {"WHORL_LOG", "off"}});
    function_that_fails = function;
    all_kinds(); // which succeed
    EXPECT_EQ(of(0).told.size(), 1u);
    EXPECT_EQ(of(0).finalized, 1u);
  }
}

TEST_F(Profiler, ThatCannotBeLoadedIsAnError) {
  const auto error_with = [](const char* plugin) {
    const ScopedEnv env({{"WHORL_PROFILER_PLUGIN", plugin}});
    return creation_error(2);
  };
  EXPECT_THAT(
      error_with("/nowhere/plugin.so"),
      HasSubstr("WHORL_PROFILER_PLUGIN=/nowhere/plugin.so: /nowhere/plugin.so: cannot open"));
  EXPECT_THAT(error_with("libm.so.6"), HasSubstr("does not define the variable whorlProfiler_v1"));
  answer_of_init = whorlSystemError;
  EXPECT_THAT(error_with("STATIC"), HasSubstr("init() of test returned 2 on rank"));
}

} // namespace
} // namespace whorl::test
