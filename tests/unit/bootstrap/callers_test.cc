// Tests of the caller's stores and all-gathers.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/failing_system.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

using test::FailingSystem;

struct MapStore {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;

  static int set(void* context, const char* key, const void* value, std::size_t size) {
    auto& self = *static_cast<MapStore*>(context);
    const std::lock_guard lock(self.mutex);
    self.values[key] = std::string(static_cast<const char*>(value), size);
    self.changed.notify_all();
    return 0;
  }
  static int get(void* context, const char* key, void* value, std::size_t capacity,
                 std::size_t* size, int timeout_ms) {
    auto& self = *static_cast<MapStore*>(context);
    std::unique_lock lock(self.mutex);
    if (!self.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                               [&] { return self.values.contains(key); })) {
      return 110;
    }
    const std::string& found = self.values.at(key);
    *size = found.size();
    std::memcpy(value, found.data(), std::min(capacity, found.size()));
    return 0;
  }
  Store store() { return {this, "job7/", &set, &get}; }
};

TEST(MeetByStore, AllRanks) {
  MapStore store;
  meet(4, [&](int rank) { return meet_by_store(store.store(), attendant(rank, 4)); });
}

TEST(MeetByStore, AnAbsentRankZeroIsNamed) {
  MapStore store;
  const Result<Rendezvous> rendezvous = meet_by_store(store.store(), attendant(1, 2, 0.05));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), "returned 110 for key job7/"));
}

TEST(MeetByStore, ARootThatCannotStartIsToldToTheOthers) {
  MapStore store;
  {
    FailingSystem system;
    const ScopedSystem scope(&system);
    system.fail("socket", EMFILE);
    const Status own = meet_by_store(store.store(), attendant(0, 2)).status();
    EXPECT_EQ(own.code(), Code::kSystemError);
    EXPECT_TRUE(contains(own.message(), "Too many open files")) << own.message();
  }
  const Status told = meet_by_store(store.store(), attendant(1, 2)).status();
  EXPECT_EQ(told.code(), Code::kSystemError);
  EXPECT_TRUE(contains(told.message(), "rank 0 could not open the place where ranks meet: "));
  EXPECT_TRUE(contains(told.message(), "Too many open files")) << told.message();
}

TEST(MeetByStore, GarbageInTheStoreIsAnError) {
  MapStore store;
  store.values["job7/whorl/unique_id"] = std::string(128, 'x');
  EXPECT_FALSE(meet_by_store(store.store(), attendant(1, 2)).ok());
  for (const std::size_t size : {200U, 4000U}) {
    store.values["job7/whorl/unique_id"] = std::string(size, 'x');
    const Status status = meet_by_store(store.store(), attendant(1, 2)).status();
    EXPECT_TRUE(contains(status.message(), "something else uses the same prefix"));
  }
  store.values["job7/whorl/unique_id"] = "x";
  EXPECT_FALSE(meet_by_store(store.store(), attendant(1, 2)).ok());
}

/// All-gather among threads, with one context for each rank.
struct Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::byte>> rounds;
  std::vector<int> arrived;
};
struct TableContext {
  Table* table;
  int rank;
  int nranks;
  std::size_t round = 0;
  int shift = 0; ///< shift that misplaces contributions
  static int allgather(void* context, const void* in, void* out, std::size_t size) {
    auto& self = *static_cast<TableContext*>(context);
    Table& table = *self.table;
    const auto nranks = static_cast<std::size_t>(self.nranks);
    std::unique_lock lock(table.mutex);
    const std::size_t round = self.round++;
    if (table.rounds.size() <= round) {
      table.rounds.resize(round + 1);
      table.arrived.resize(round + 1);
    }
    table.rounds[round].resize(size * nranks);
    const auto place = static_cast<std::size_t>((self.rank + self.shift) % self.nranks);
    std::memcpy(table.rounds[round].data() + place * size, in, size);
    ++table.arrived[round];
    table.changed.notify_all();
    if (!table.changed.wait_for(lock, std::chrono::seconds(20),
                                [&] { return table.arrived[round] == self.nranks; })) {
      return 1;
    }
    std::memcpy(out, table.rounds[round].data(), size * nranks);
    return 0;
  }
};

TEST(MeetByAllgather, AllRanks) {
  Table table;
  std::vector<TableContext> contexts;
  for (int rank = 0; rank < 5; ++rank) contexts.push_back({&table, rank, 5});
  meet(5, [&](int rank) {
    return meet_by_allgather({&contexts[static_cast<std::size_t>(rank)], &TableContext::allgather},
                             attendant(rank, 5));
  });
}

TEST(MeetByAllgather, AWrongOrderIsFound) {
  Table table;
  std::vector<TableContext> contexts;
  for (int rank = 0; rank < 2; ++rank) contexts.push_back({&table, rank, 2, 0, 1});
  std::atomic<int> found = 0;
  in_threads(2, [&](int rank) {
    const Result<Rendezvous> rendezvous = meet_by_allgather(
        {&contexts[static_cast<std::size_t>(rank)], &TableContext::allgather}, attendant(rank, 2));
    if (!rendezvous.ok() && contains(rendezvous.status().message(), "order")) ++found;
  });
  EXPECT_EQ(2, found);
}

TEST(MeetByAllgather, TheFunctionsErrorIsPassedOn) {
  const Allgather failing{nullptr, [](void*, const void*, void*, std::size_t) { return 7; }};
  const Result<Rendezvous> rendezvous = meet_by_allgather(failing, attendant(3, 4));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), "rank 3 of 4"));
  EXPECT_TRUE(contains(rendezvous.status().message(), "returned 7"));
}

} // namespace
} // namespace whorl
