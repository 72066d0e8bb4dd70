#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "monitor/recorder.h"
#include "monitor/snapshot.h"
#include "tests/support/failing_system.h"
#include "tests/support/large_pages.h"

namespace whorl::monitor {
namespace {

using test::FailingSystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Recorder> recorder(std::uint32_t entries = 8) {
  Recorder::Who who{.identity = {}, .info = {}, .nranks = 4, .name = "model"};
  who.info.rank = 2;
  who.info.process_id = 77;
  std::strcpy(who.info.host_name.data(), "node7");
  who.identity.job[0] = std::byte{0xab};
  return Recorder::make(who, entries);
}

Fingerprint allreduce(std::uint32_t sequence, std::uint64_t count = 8) {
  return {.sequence = sequence,
          .types = static_cast<std::uint8_t>(DataType::kFloat32),
          .count_plan = count};
}

Snapshot snapshot(const Recorder& recorder) {
  const auto page = read_page(recorder.page());
  EXPECT_TRUE(page.ok()) << page.status().message();
  return page.ok() ? *page : Snapshot();
}

TEST(Monitor, ShowsWhoARankIs) {
  const auto made = recorder();
  const Snapshot page = snapshot(*made);
  EXPECT_EQ(page.rank, 2);
  EXPECT_EQ(page.nranks, 4);
  EXPECT_EQ(page.process_id, 77U);
  EXPECT_EQ(page.host, "node7");
  EXPECT_EQ(page.name, "model");
  EXPECT_EQ(hex(page.job), "ab000000000000000000000000000000");
  EXPECT_EQ(page.phase, Phase::kCreating);
  EXPECT_TRUE(page.wait.under_way);
  EXPECT_EQ(page.wait.text, "preparing the transports");
  EXPECT_LE(page.wait.since_ns, page.taken_ns);
  EXPECT_EQ(page.begun, 0U);
  EXPECT_TRUE(page.operations.empty());
}

TEST(Monitor, ShowsTheLastOperations) {
  const auto made = recorder(4);
  made->ready();
  for (std::uint32_t i = 1; i <= 10; ++i) made->end(made->begin(allreduce(i)), i % 2 == 0);
  const std::uint64_t send = made->begin(
      {.sequence = 3, .collective = static_cast<std::uint8_t>(Collective::kSend)}, 1, true);
  const Snapshot page = snapshot(*made);
  EXPECT_EQ(page.begun, 11U);
  // The oldest of the four may be about to be overwritten.
  ASSERT_EQ(page.operations.size(), 3U);
  EXPECT_EQ(describe(page.operations[0]), "allreduce number 9 of 8 float32 (sum)");
  EXPECT_FALSE(page.operations[0].under_way);
  EXPECT_EQ(page.operations[0].ended_ns, 0U); // not timed
  EXPECT_GE(page.operations[1].ended_ns, page.operations[1].began_ns);
  EXPECT_LE(page.operations[1].ended_ns, page.taken_ns);
  EXPECT_TRUE(page.operations[2].under_way);
  EXPECT_EQ(page.operations[2].peer, 1);
  EXPECT_EQ(describe(page.operations[2]), "send number 3 of 0 int8 to rank 1");
  made->end(send, true);
  EXPECT_FALSE(snapshot(*made).operations[2].under_way);
}

TEST(Monitor, ForgetsTheEndOfAnOperationThatTheRingNoLongerHas) {
  const auto made = recorder(2);
  const std::uint64_t first = made->begin(allreduce(1));
  made->begin(allreduce(2));
  made->begin(allreduce(3)); // reuses the entry of the first
  made->ready();
  made->waiting(1, 2, 1, "waiting for rank 1");
  EXPECT_TRUE(snapshot(*made).wait.under_way);
  made->end(first, true);
  EXPECT_TRUE(snapshot(*made).operations.back().under_way);
  EXPECT_FALSE(snapshot(*made).wait.under_way); // until the next look
}

TEST(Monitor, ShowsAndCountsAWait) {
  const auto made = recorder();
  made->ready();
  const std::uint64_t number = made->begin(allreduce(1));
  made->waiting(1'000'000, 3'000'000, 1, "waiting for rank 1");
  made->waiting(1'000'000, 4'000'000, 1, "waiting for rank 1");
  made->waiting(1'000'000, 9'000'000, 3, "waiting for rank 3"); // the chain ends elsewhere now
  Snapshot page = snapshot(*made);
  EXPECT_TRUE(page.wait.under_way);
  EXPECT_EQ(page.wait.since_ns, 1'000'000U);
  EXPECT_EQ(page.wait.peer, 3);
  EXPECT_EQ(page.wait.text, "waiting for rank 3");
  EXPECT_THAT(page.waited_ns, ElementsAre(0, 3'000'000, 0, 5'000'000));
  made->end(number, true);
  EXPECT_FALSE(snapshot(*made).wait.under_way);
}

TEST(Monitor, ShowsTheFirstError) {
  const auto made = recorder();
  made->fail("rank 1 died\x1b[31m");
  made->fail("something else");
  EXPECT_EQ(snapshot(*made).phase, Phase::kFailed);
  EXPECT_EQ(snapshot(*made).error, "rank 1 died [31m");
}

/// Returns the pages behind the descriptors of this process.
std::vector<Snapshot> own_pages() {
  std::vector<Snapshot> all;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(file, error) != "/memfd:whorl-monitor (deleted)") continue;
    const auto pages = read_pages(Fd(::dup(std::atoi(file.path().filename().c_str()))));
    EXPECT_TRUE(pages.ok()) << pages.status().message();
    EXPECT_TRUE(all.empty()) << "a second descriptor";
    if (pages.ok()) all = *pages;
  }
  return all;
}

TEST(Monitor, HasAllPagesOfAProcessBehindOneDescriptor) {
  auto first = recorder(8);
  auto second = recorder(8);
  const auto third = recorder(1024); // larger
  first->begin(allreduce(1));
  third->begin(allreduce(3));
  std::vector<Snapshot> pages = own_pages();
  ASSERT_EQ(pages.size(), 3U);
  EXPECT_EQ(pages[0].operations.at(0).fingerprint.sequence, 1U);
  EXPECT_EQ(pages[2].operations.at(0).fingerprint.sequence, 3U);
  second.reset();
  EXPECT_EQ(own_pages().size(), 2U);
  second = recorder(8); // takes the place of the one before
  EXPECT_EQ(own_pages().size(), 3U);
  first.reset();
  const auto fourth = recorder(512); // does not fit into the free place
  EXPECT_EQ(own_pages().size(), 3U);
}

TEST(Monitor, HasAllPagesWhereThoseOfMemoryAreLarge) {
  whorl::test::LargePages large;
  const ScopedSystem scope(&large);
  const auto first = recorder();
  const auto second = recorder();
  EXPECT_EQ(own_pages().size(), 2U);
}

TEST(Monitor, ClosesTheDescriptorWithTheLastPage) {
  { const auto made = recorder(); }
  EXPECT_TRUE(own_pages().empty());
}

/// A communicator does not depend on the page.
TEST(Monitor, KeepsThePageToItselfWithoutSharedMemory) {
  for (const char* const call : {"memfd_create", "ftruncate", "seal_size", "mmap", "fallocate"}) {
    FailingSystem system;
    const ScopedSystem scope(&system);
    system.fail(call, ENOMEM);
    const auto made = recorder();
    made->begin(allreduce(9));
    EXPECT_EQ(snapshot(*made).operations.back().fingerprint.sequence, 9U) << call;
  }
}

TEST(Monitor, RefusesWhatIsNoPage) {
  alignas(128) std::array<std::byte, 4096> bytes{};
  EXPECT_FALSE(read_page(bytes).ok());
  EXPECT_FALSE(read_page(std::span<const std::byte>(bytes).first(100)).ok());
  const auto made = recorder(8);
  std::memcpy(bytes.data(), made->page().data(), made->page().size());
  ASSERT_TRUE(read_page(bytes).ok());
  auto& header = *reinterpret_cast<PageHeader*>(bytes.data());
  for (const auto& [nranks, rank, entries] :
       {std::tuple(4, 4, 8), {4, -1, 8}, {0, 0, 8}, {4, 2, 7}, {4, 2, 1024}, {100'000, 2, 8}}) {
    header.nranks = nranks;
    header.rank = rank;
    header.entries = static_cast<std::uint32_t>(entries);
    EXPECT_FALSE(read_page(bytes).ok()) << nranks << " " << rank << " " << entries;
  }
}

TEST(Monitor, SurvivesNonsenseInAPage) {
  const auto made = recorder(8);
  alignas(128) std::array<std::byte, 4096> bytes{};
  std::memcpy(bytes.data(), made->page().data(), made->page().size());
  std::memset(bytes.data() + PageLayout::state(), 0xff, made->page().size() - PageLayout::state());
  const auto page = read_page(bytes);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->wait.peer, -1);
  for (const RecordedOperation& operation : page->operations) {
    EXPECT_EQ(describe(operation), "an operation that this version does not know");
  }
  EXPECT_FALSE(nlohmann::json::parse(to_json(*page)).is_null());
}

TEST(Monitor, IsConsistentWhileOperationsGoOn) {
  const auto made = recorder(16);
  made->ready();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint32_t i = 1; !stop.load(); ++i) {
      made->end(made->begin(allreduce(i, i)), false);
      made->waiting(1, 2, 1, i % 2 == 0 ? "aaaaaaaaaaaaaaaa" : "bbbbbbbbbbbbbbbb");
    }
  });
  std::uint64_t seen = 0;
  for (int i = 0; i < 2000 || (seen < 1000 && i < 2'000'000); ++i) {
    const Snapshot page = snapshot(*made);
    seen += page.operations.size();
    for (const RecordedOperation& operation : page.operations) {
      ASSERT_EQ(operation.fingerprint.sequence, operation.number + 1);
      ASSERT_EQ(operation.fingerprint.count(), operation.number + 1);
    }
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(seen, 0U);
}

TEST(Monitor, SaysEverythingAsJson) {
  const auto made = recorder();
  made->ready();
  made->end(made->begin(allreduce(1)), true);
  made->begin({.sequence = 4,
               .collective = static_cast<std::uint8_t>(Collective::kBroadcast),
               .types = static_cast<std::uint8_t>(DataType::kInt64),
               .root = 3,
               .count_plan = 6});
  made->waiting(1'000'000, 3'000'000, 1, "waiting for rank 1");
  const auto json = nlohmann::json::parse(to_json(snapshot(*made)));
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["phase"], "ready");
  EXPECT_EQ(json["wait"]["rank"], 1);
  EXPECT_EQ(json["waited_ns"]["1"], 2'000'000);
  ASSERT_EQ(json["operations"].size(), 2U);
  EXPECT_EQ(json["operations"][0]["state"], "completed");
  EXPECT_EQ(json["operations"][0]["operator"], "sum");
  EXPECT_EQ(json["operations"][1]["operation"], "broadcast");
  EXPECT_EQ(json["operations"][1]["root"], 3);
  EXPECT_EQ(json["operations"][1]["state"], "started");
  EXPECT_THAT(json["operations"][1]["text"], HasSubstr("broadcast number 4 of 6 int64"));
}

} // namespace
} // namespace whorl::monitor
