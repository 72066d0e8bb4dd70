// Litmus tests of the simulated memory: what C++ allows comes up in some runs, and what it forbids
// in none. Compiled with the calls at each access, as the scenarios are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "simulation/system.h"
#include "simulation/world.h"

namespace whorl::simulation {
namespace {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Objects of a litmus test, in the arena. Zeros at first.
struct Objects {
  alignas(64) std::atomic<int> x;
  alignas(64) std::atomic<int> y;
  alignas(64) long data;
};

using Body = std::function<void(Objects&)>;

/// Runs the bodies as fibres with one seed. Returns what went wrong.
std::string run_once(std::uint64_t seed, const std::vector<Body>& bodies) {
  SimulatedSystem system;
  const ScopedSystem replaced(&system);
  world().begin(seed, false);
  auto& objects = *reinterpret_cast<Objects*>(arena().allocate(sizeof(Objects)));
  for (const Body& body : bodies) {
    world().add("fibre", [&body, &objects] { body(objects); });
  }
  world().run();
  return world().failure();
}

/// Returns everything that went wrong in many runs; "" stands for runs in which all was well.
std::set<std::string> run_many(const std::vector<Body>& bodies, int seeds = 2000) {
  std::set<std::string> failures;
  for (int seed = 0; seed < seeds; ++seed) {
    failures.insert(run_once(static_cast<std::uint64_t>(seed), bodies).substr(0, 9));
  }
  return failures;
}

/// Returns the values of `seen` after each of many runs.
template <std::size_t n>
std::set<std::vector<int>> outcomes(const std::vector<Body>& bodies, std::array<int, n>& seen) {
  std::set<std::vector<int>> all;
  for (int seed = 0; seed < 4000; ++seed) {
    EXPECT_EQ(run_once(static_cast<std::uint64_t>(seed), bodies), "");
    all.insert({seen.begin(), seen.end()});
  }
  return all;
}

/// Passes data by a flag with the given orders.
std::vector<Body> pass(std::memory_order store, std::memory_order load) {
  return {[=](Objects& o) {
            o.data = 1;
            o.x.store(1, store);
          },
          [=](Objects& o) {
            if (o.x.load(load) == 1) {
              EXPECT_EQ(o.data, 1);
            }
          }};
}

TEST(MemoryModel, DataPassesByReleaseAndAcquireOnly) {
  const std::set<std::string> well{""};
  EXPECT_EQ(run_many(pass(memory_order_release, memory_order_acquire)), well);
  EXPECT_EQ(run_many(pass(memory_order_seq_cst, memory_order_seq_cst)), well);
  EXPECT_THAT(run_many(pass(memory_order_relaxed, memory_order_acquire)), Contains("data race"));
  EXPECT_THAT(run_many(pass(memory_order_release, memory_order_relaxed)), Contains("data race"));
}

TEST(MemoryModel, FencesPassDataToo) {
  const Body reader = [](Objects& o) {
    if (o.x.load(memory_order_relaxed) != 1) return;
    std::atomic_thread_fence(memory_order_acquire);
    EXPECT_EQ(o.data, 1);
  };
  const Body writer = [](Objects& o) {
    o.data = 1;
    std::atomic_thread_fence(memory_order_release);
    o.x.store(1, memory_order_relaxed);
  };
  const Body late = [](Objects& o) {
    std::atomic_thread_fence(memory_order_release);
    o.data = 1;
    o.x.store(1, memory_order_relaxed);
  };
  EXPECT_EQ(run_many({writer, reader}), std::set<std::string>{""});
  EXPECT_THAT(run_many({late, reader}), Contains("data race"));
}

TEST(MemoryModel, ReadModifyWritesContinueARelease) {
  const Body writer = [](Objects& o) {
    o.data = 1;
    o.x.store(1, memory_order_release);
  };
  const Body adds = [](Objects& o) {
    int one = 1;
    o.x.compare_exchange_strong(one, 2, memory_order_relaxed);
  };
  const Body stores = [](Objects& o) {
    if (o.x.load(memory_order_relaxed) == 1) o.x.store(2, memory_order_relaxed);
  };
  const Body reader = [](Objects& o) {
    if (o.x.load(memory_order_acquire) == 2) {
      EXPECT_EQ(o.data, 1);
    }
  };
  EXPECT_EQ(run_many({writer, adds, reader}), std::set<std::string>{""});
  EXPECT_THAT(run_many({writer, stores, reader}), Contains("data race"));
}

TEST(MemoryModel, WritesMustNotMeetReads) {
  const Body reader = [](Objects& o) {
    EXPECT_EQ(o.data, 0);
    o.x.store(1, memory_order_relaxed);
  };
  const Body releasing = [](Objects& o) {
    EXPECT_EQ(o.data, 0);
    o.x.store(1, memory_order_release);
  };
  const Body writer = [](Objects& o) {
    if (o.x.load(memory_order_acquire) == 1) o.data = 1;
  };
  EXPECT_THAT(run_many({reader, writer}), Contains("data race"));
  EXPECT_EQ(run_many({releasing, writer}), std::set<std::string>{""});
}

TEST(MemoryModel, StoreBuffering) {
  std::array<int, 2> seen{};
  const auto bodies = [&](std::memory_order store, std::memory_order load) {
    return std::vector<Body>{[&, store, load](Objects& o) {
                               o.x.store(1, store);
                               seen[0] = o.y.load(load);
                             },
                             [&, store, load](Objects& o) {
                               o.y.store(1, store);
                               seen[1] = o.x.load(load);
                             }};
  };
  const std::vector<int> both_old{0, 0};
  EXPECT_THAT(outcomes(bodies(memory_order_release, memory_order_acquire), seen),
              Contains(both_old));
  EXPECT_THAT(outcomes(bodies(memory_order_release, memory_order_seq_cst), seen),
              Contains(both_old));
  const auto sequential = outcomes(bodies(memory_order_seq_cst, memory_order_seq_cst), seen);
  EXPECT_THAT(sequential, Not(Contains(both_old)));
  EXPECT_EQ(sequential.size(), 3U) << "all others come up";
}

TEST(MemoryModel, TwoReadersMayDisagreeOnTheOrderOfTwoWriters) {
  std::array<int, 4> seen{};
  const auto bodies = [&](std::memory_order store, std::memory_order load) {
    return std::vector<Body>{
        [store](Objects& o) { o.x.store(1, store); }, [store](Objects& o) { o.y.store(1, store); },
        [&, load](Objects& o) { seen[0] = o.x.load(load), seen[1] = o.y.load(load); },
        [&, load](Objects& o) { seen[2] = o.y.load(load), seen[3] = o.x.load(load); }};
  };
  const std::vector<int> disagree{1, 0, 1, 0};
  EXPECT_THAT(outcomes(bodies(memory_order_release, memory_order_acquire), seen),
              Contains(disagree));
  EXPECT_THAT(outcomes(bodies(memory_order_seq_cst, memory_order_seq_cst), seen),
              Not(Contains(disagree)));
}

TEST(MemoryModel, OneObjectNeverGoesBack) {
  std::array<int, 2> seen{};
  const std::vector<Body> bodies{[](Objects& o) {
                                   o.x.store(1, memory_order_relaxed);
                                   o.x.store(2, memory_order_relaxed);
                                 },
                                 [&](Objects& o) {
                                   seen[0] = o.x.load(memory_order_relaxed);
                                   seen[1] = o.x.load(memory_order_relaxed);
                                 }};
  const auto all = outcomes(bodies, seen);
  for (const auto& outcome : all) EXPECT_LE(outcome[0], outcome[1]);
  EXPECT_EQ(all.size(), 6U);
}

TEST(MemoryModel, WhatOneFibreHasSeenIsOldForThoseThatItTells) {
  std::array<int, 3> seen{};
  const std::vector<Body> bodies{[](Objects& o) { o.x.store(1, memory_order_relaxed); },
                                 [&](Objects& o) {
                                   seen[0] = o.x.load(memory_order_relaxed);
                                   o.y.store(1, memory_order_release);
                                 },
                                 [&](Objects& o) {
                                   seen[1] = o.y.load(memory_order_acquire);
                                   seen[2] = o.x.load(memory_order_relaxed);
                                 }};
  EXPECT_THAT(outcomes(bodies, seen), Not(Contains(std::vector<int>{1, 1, 0})));
}

TEST(MemoryModel, ReadModifyWritesLoseNothing) {
  int sum = 0;
  const Body add = [](Objects& o) {
    for (int i = 0; i < 20; ++i) o.x.fetch_add(1, memory_order_relaxed);
  };
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    ASSERT_EQ(run_once(seed, {add, add, add}), "");
    sum = reinterpret_cast<Objects*>(arena().begin())->x.load();
    ASSERT_EQ(sum, 60);
  }
}

TEST(Simulation, AStoreBecomesVisible) {
  const Body writer = [](Objects& o) { o.x.store(1, memory_order_relaxed); };
  const Body reader = [](Objects& o) {
    while (o.x.load(memory_order_relaxed) == 0) sys().yield();
  };
  EXPECT_EQ(run_many({writer, reader}, 300), std::set<std::string>{""});
}

TEST(Simulation, ASleeperIsWokenOrTimesOut) {
  static_assert(sizeof(std::atomic<int>) == sizeof(std::atomic<std::uint32_t>));
  const auto word = [](Objects& o) { return reinterpret_cast<std::atomic<std::uint32_t>*>(&o.x); };
  std::array<int, 1> seen{};
  const Body sleeper = [&](Objects& o) {
    const std::uint64_t before = sys().now_ns();
    const int result = sys().futex_wait(word(o), 0, 1'000'000);
    seen[0] = result < 0 ? 2 : sys().now_ns() - before < 900'000 ? 1 : 0;
  };
  const Body waker = [&](Objects& o) {
    o.x.store(1, memory_order_release);
    sys().futex_wake(word(o));
  };
  EXPECT_EQ(outcomes({sleeper, waker}, seen), (std::set<std::vector<int>>{{1}}));
  EXPECT_THAT(outcomes({sleeper}, seen), Contains(std::vector<int>{2}));
}

TEST(Simulation, ASeedIsARun) {
  const std::vector<Body> bodies = pass(memory_order_relaxed, memory_order_relaxed);
  std::set<std::string> all;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string first = run_once(seed, bodies);
    const std::uint64_t accesses = world().scheduler().accesses();
    const std::uint64_t end = world().scheduler().now_ns();
    ASSERT_EQ(run_once(seed, bodies), first);
    ASSERT_EQ(world().scheduler().accesses(), accesses);
    ASSERT_EQ(world().scheduler().now_ns(), end);
    all.insert(first);
  }
  EXPECT_GT(all.size(), 1U);
}

TEST(Simulation, NamesWhatRaces) {
  const Body body = [](Objects& o) {
    arena().name(&o.data, sizeof o.data, "the data");
    o.data = 1;
  };
  EXPECT_THAT(run_once(1, {body, body}), HasSubstr("the data"));
}

TEST(Simulation, AThreadKnowsWhatItsStarterDidBeforeOnly) {
  const auto starts_reader = [](Objects& o) {
    world().add_to_process("thread", [&o] {
      sys().sleep_ns(100'000); // the starter goes first
      EXPECT_EQ(o.data, 1);
    });
  };
  const auto outlives_reader = [] { sys().sleep_ns(200'000); };
  const Body before = [&](Objects& o) {
    o.data = 1;
    starts_reader(o);
    outlives_reader();
  };
  const Body after = [&](Objects& o) {
    starts_reader(o);
    o.data = 1;
    outlives_reader();
  };
  EXPECT_EQ(run_many({before}), std::set<std::string>{""});
  EXPECT_THAT(run_many({after}), Contains("data race"));
}

TEST(Simulation, AThreadForgetsWhatTheOneBeforeItSaw) {
  std::array<int, 2> seen{};
  std::array<std::size_t, 2> fibres{};
  const Body starter = [&](Objects& o) {
    const auto start_and_wait = [](auto&& body) {
      bool ended = false;
      world().add_to_process("thread", [&] {
        body();
        ended = true;
      });
      while (!ended) sys().sleep_ns(10);
    };
    // From here on each thread has the fibre of the one before it.
    for (std::size_t i = 0; i < kMaxFibres; ++i) start_and_wait([] {});
    for (std::size_t i = 0; i < seen.size(); ++i) {
      start_and_wait([&, i] {
        seen[i] = o.x.load(memory_order_relaxed);
        fibres[i] = world().scheduler().current();
      });
    }
    EXPECT_EQ(fibres[0], fibres[1]);
  };
  const Body writer = [](Objects& o) {
    sys().sleep_ns(world().random().below(1'000));
    o.x.store(1, memory_order_relaxed);
  };
  EXPECT_THAT(outcomes({starter, writer}, seen), Contains(std::vector<int>{1, 0}));
}

TEST(Simulation, AFibreMayDieAnywhere) {
  std::set<int> values;
  for (std::uint64_t access = 1; access < 6; ++access) {
    world().begin(access, false);
    auto& objects = *reinterpret_cast<Objects*>(arena().allocate(sizeof(Objects)));
    const std::size_t fibre = world().add("victim", [&] {
      for (int i = 1; i <= 3; ++i) objects.x.store(i, memory_order_relaxed);
    });
    world().scheduler().kill_at(fibre, access);
    world().run();
    EXPECT_EQ(world().scheduler().died(fibre), access <= 3);
    values.insert(objects.x.load());
  }
  EXPECT_EQ(values, (std::set<int>{0, 1, 2, 3}));
}

} // namespace
} // namespace whorl::simulation
