// Tests of memory from CUDA's virtual memory management that is shared with other processes. Both
// ranks are in this process, and act as if they were not.
#include "device/ipc/mappings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/descriptors.h"
#include "tests/support/device.h"
#include "tests/support/mapped_memory.h"
#include "tests/support/pretended_device.h"

namespace whorl {
namespace {

using gpu::MemoryExports;
using gpu::SharedMemory;
using test::MappedMemory;

class Mappings : public ::testing::Test {
 protected:
  const test::DeviceContext context_;
  const test::DeviceQueue stream_;
};

TEST_F(Mappings, AreDescribedAsRuns) {
  MappedMemory memory({1, 2, 1});
  MemoryExports exports;
  const auto run_at = [&](std::size_t offset, std::size_t bytes) {
    const auto found = exports.find(memory.data() + offset, bytes);
    EXPECT_TRUE(found.has_value());
    return found.value_or(SharedMemory{});
  };
  const std::size_t unit = memory.unit();
  const SharedMemory first = run_at(8, 100), same = run_at(16, unit - 16), both = run_at(8, unit),
                     second = run_at(unit, 2 * unit), all = run_at(1, 4 * unit - 1);
  EXPECT_EQ(first.mappings, 1U);
  EXPECT_EQ(first.address - first.allocation, 8U);
  EXPECT_EQ(first.allocated, unit);
  EXPECT_EQ(first.id, same.id);
  EXPECT_EQ(both.mappings, 2U);
  EXPECT_EQ(both.allocated, 3 * unit);
  EXPECT_NE(both.id, first.id);
  EXPECT_EQ(second.mappings, 1U);
  EXPECT_EQ(second.allocation, first.allocation + unit);
  EXPECT_EQ(all.mappings, 3U);
  for (const SharedMemory& one : {first, both, second, all}) EXPECT_TRUE(one.valid(one.bytes));
  EXPECT_FALSE(exports.find(memory.data() + 3 * unit, unit + 1).has_value()); // goes beyond
}

TEST_F(Mappings, ThatCannotBeExportedAreNot) {
  MemoryExports exports;
  const MappedMemory none({1, 1}, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_FALSE(exports.find(none.data(), 100).has_value());
  CUdeviceptr pooled = 0;
  ASSERT_EQ(cuMemAllocAsync(&pooled, 4096, stream_.get()), CUDA_SUCCESS);
  EXPECT_FALSE(exports.find(reinterpret_cast<void*>(pooled), 100).has_value());
  const MappedMemory large(std::vector<std::size_t>(gpu::kMaxMappings + 1, 1));
  EXPECT_TRUE(exports.find(large.data(), large.bytes() - large.unit()).has_value());
  EXPECT_FALSE(exports.find(large.data(), large.bytes()).has_value());
}

TEST_F(Mappings, HaveAnotherIdWhenTheirMemoryIsAnother) {
  MappedMemory memory({1, 1});
  MemoryExports exports(4);
  const auto id = [&] { return exports.find(memory.data(), memory.bytes())->id; };
  for (int round = 0; round < 10; ++round) {
    const SharedMemory run = *exports.find(memory.data(), memory.bytes());
    EXPECT_EQ(id(), run.id);
    const auto held = exports.hold(run); // keeps these handles from being reused
    ASSERT_TRUE(held.ok()) << held.status().message();
    EXPECT_EQ((*held)->bytes(), memory.bytes());
    memory.map_anew();
    EXPECT_FALSE(exports.hold(run).ok());
    EXPECT_NE(id(), run.id);
    EXPECT_LE(exports.known(), 4U);
  }
}

TEST_F(Mappings, AreHeldWhileTheyAreAmongTheLast) {
  constexpr std::size_t kSurplus = 5;
  const std::size_t n = MemoryExports::kMaxHeld + kSurplus;
  const MappedMemory memory(std::vector<std::size_t>(n, 1));
  MemoryExports exports;
  const auto find = [&](std::size_t i) {
    return *exports.find(memory.data() + i * memory.unit(), memory.unit());
  };
  const long before = test::virtual_memory();
  std::vector<SharedMemory> runs;
  for (std::size_t i = 0; i < n; ++i) runs.push_back(find(i));
  EXPECT_EQ(test::virtual_memory(), before); // what nobody has asked for is not held
  for (const SharedMemory& run : runs) ASSERT_TRUE(exports.hold(run).ok());
  EXPECT_EQ(find(0).id, runs[0].id); // used again
  exports.trim();
  EXPECT_EQ(exports.known(), MemoryExports::kMaxHeld);
  EXPECT_EQ(find(0).id, runs[0].id);
  EXPECT_EQ(find(n - 1).id, runs[n - 1].id);
  // A run that was described, but has been forgotten, can still be handed over; later it is new.
  EXPECT_TRUE(exports.hold(runs[1]).ok());
  EXPECT_EQ(find(1).id, runs[1].id);
  EXPECT_NE(find(2).id, runs[2].id);
  EXPECT_FALSE(exports.hold(runs[2]).ok()); // the place has another id by now
}

TEST_F(Mappings, ThatCannotAllBeMappedAreNotMapped) {
  if (!test::device_is_pretended()) GTEST_SKIP() << "a real driver";
  const MappedMemory memory({1, 1, 1});
  const long before = test::virtual_memory();
  for (long allowed = 0; allowed < 3; ++allowed) {
    auto physical =
        gpu::hold_mappings(reinterpret_cast<std::uint64_t>(memory.data()), memory.bytes());
    ASSERT_TRUE(physical.ok());
    test::allow_mappings(allowed);
    EXPECT_FALSE(gpu::MappedMemory::map(*physical).ok());
    test::allow_mappings(-1);
    EXPECT_EQ(test::virtual_memory(), before);
    EXPECT_TRUE(gpu::MappedMemory::map(*physical).ok());
  }
  EXPECT_EQ(test::virtual_memory(), before);
  EXPECT_FALSE(gpu::MappedMemory::map({}).ok());
}

/// The leader, rank 0, and rank 1, which take each other for other processes.
class Messages : public Mappings {
 protected:
  static constexpr std::uint64_t kOperation = 7;

  Messages() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      PeerInfo info;
      info.rank = rank;
      info.process_key = rank;
      std::strcpy(info.host_name.data(), "here");
      members_.peers.push_back(info);
    }
    members_.nranks = 2;
    FdChannelEnds ends = FdChannelEnds::make();
    leaders_ = FdChannel(std::move(ends.inbox), {});
    channel_ = FdChannel({}, std::move(ends.outbox));
  }

  /// Begins an operation in which rank 1 gives memory and the leader expects it.
  void begin(const SharedMemory& run, std::uint64_t operation = kOperation) {
    receiver_.begin(operation);
    sender_.begin(operation);
    sender_.add(run, *exports_.hold(run));
    receiver_.expect(1, run);
  }
  /// Contents of a message as rank 1 could send it: any bytes, any descriptors.
  struct Message {
    std::uint32_t magic = 0x4d4d5057, from = 1;
    std::uint64_t operation = kOperation, run = 0;
    std::uint32_t first = 0, parts = 1;
  };
  void send(const Message& message, const std::vector<std::uint64_t>& sizes,
            const std::vector<Fd>& fds) {
    std::vector<std::byte> body(sizeof message + 8 * sizes.size());
    std::memcpy(body.data(), &message, sizeof message);
    if (!sizes.empty()) std::memcpy(body.data() + sizeof message, sizes.data(), 8 * sizes.size());
    ASSERT_EQ(channel_.send(body, fds), Progress::kDone);
  }

  Membership members_;
  FdChannel leaders_, channel_;
  MemoryExports exports_;
  RunReceiver receiver_{members_, &leaders_};
  RunSender sender_{1, &channel_};
};

TEST_F(Messages, HandOverAllOfARun) {
  MappedMemory memory(std::vector<std::size_t>(200, 1));
  std::vector<int> contents(memory.bytes() / 4);
  for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<int>(i);
  memory.write(0, std::as_bytes(std::span(contents)), stream_.get());
  const int descriptors = test::open_descriptors();
  const long before = test::virtual_memory();
  const SharedMemory run = *exports_.find(memory.data(), memory.bytes());
  EXPECT_TRUE(sender_.possible());
  begin(run);
  EXPECT_TRUE(receiver_.waits_for(1));
  EXPECT_EQ(receiver_.step(), Progress::kIdle);
  for (int i = 0; i < 100 && sender_.step() != Progress::kDone; ++i) {
    // The limit is the number of descriptors in one message.
    EXPECT_LE(test::open_descriptors(),
              descriptors + static_cast<int>(2 * 200 + FdChannel::kMaxFds));
    receiver_.step();
  }
  EXPECT_EQ(sender_.step(), Progress::kDone);
  EXPECT_EQ(receiver_.step(), Progress::kDone);
  EXPECT_FALSE(receiver_.waits_for(1));
  {
    const auto mapped = gpu::MappedMemory::map(receiver_.take(1, run));
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    std::vector<int> seen(contents.size());
    ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(seen.data()), mapped->base(),
                            4 * seen.size(), stream_.get()),
              CUDA_SUCCESS);
    stream_.synchronize();
    EXPECT_EQ(seen, contents);
  }
  receiver_.begin(0);
  sender_.begin(0);
  exports_ = MemoryExports();
  EXPECT_EQ(test::virtual_memory(), before);
  EXPECT_EQ(test::open_descriptors(), descriptors);
}

TEST_F(Messages, WaitForAReceiver) {
  const MappedMemory memory({1, 1});
  const SharedMemory run = *exports_.find(memory.data(), memory.bytes());
  while (channel_.send(std::as_bytes(std::span("old", 3)), {}) == Progress::kDone) continue;
  begin(run);
  EXPECT_EQ(sender_.step(), Progress::kIdle);
  EXPECT_EQ(receiver_.step(), Progress::kAdvanced); // reads the queued messages
  EXPECT_EQ(sender_.step(), Progress::kDone);
  EXPECT_EQ(receiver_.step(), Progress::kDone);
}

TEST_F(Messages, OfAnotherOperationAreNotTaken) {
  MappedMemory memory({1, 1});
  const int descriptors = test::open_descriptors();
  const SharedMemory run = *exports_.find(memory.data(), memory.bytes());
  begin(run);
  EXPECT_EQ(sender_.step(), Progress::kDone); // rank 1 does not read the message
  sender_.begin(0);
  begin(run, kOperation + 1);
  EXPECT_EQ(receiver_.step(), Progress::kAdvanced); // the old message, which is dropped
  EXPECT_TRUE(receiver_.waits_for(1));
  EXPECT_EQ(sender_.step(), Progress::kDone);
  EXPECT_EQ(receiver_.step(), Progress::kDone);
  EXPECT_EQ(receiver_.take(1, run).bytes(), memory.bytes());
  begin(run);
  EXPECT_EQ(sender_.step(), Progress::kDone);
  receiver_.abandon();
  sender_.begin(0);
  EXPECT_EQ(test::open_descriptors(), descriptors);
}

TEST_F(Messages, ThatMakeNoSenseAreRefusedOrIgnored) {
  MappedMemory memory({2, 2});
  const SharedMemory run = *exports_.find(memory.data(), memory.bytes());
  const std::uint64_t half = memory.bytes() / 2;
  const int descriptors = test::open_descriptors();
  const long before = test::virtual_memory();
  const auto fds = [&](std::size_t n, bool good = true) {
    std::vector<Fd> all;
    const auto held = exports_.hold(run);
    for (std::size_t i = 0; i < n; ++i) {
      all.push_back(good ? *(*held)->descriptor(i % 2) : Fd(sys().memfd_create("no memory")));
    }
    return all;
  };
  struct Wrong {
    const char* name;
    Message message;
    std::vector<std::uint64_t> sizes;
    std::size_t fds;
    bool good, ignored;
  };
  const Message one{.run = run.id}, two{.run = run.id, .parts = 2};
  Message magic = one, sender = one, far = one, operation = one, id = one, late = one;
  magic.magic = 1;
  sender.from = 0;
  far.from = 0xffffffff;
  operation.operation = 6;
  id.run = 5;
  late.first = 1;
  const std::vector<Wrong> all{
      {"magic", magic, {half}, 1, true, true},
      {"sender", sender, {half}, 1, true, true},
      {"no rank", far, {half}, 1, true, true},
      {"operation", operation, {half}, 1, true, true},
      {"run", id, {half}, 1, true, true},
      {"begin", late, {half}, 1, true, true},
      {"fewer descriptors", two, {half, half}, 1, true, false},
      {"more descriptors", one, {half}, 2, true, false},
      {"more parts", {.run = run.id, .parts = 3}, {half, half, half}, 3, true, false},
      {"many parts", {.run = run.id, .parts = 0xffffffff}, {half}, 1, true, false},
      {"no sizes", two, {}, 2, true, false},
      {"empty part", two, {0, 2 * half}, 2, true, false},
      {"large part", one, {UINT64_MAX}, 1, true, false},
      {"larger than the run", two, {half, half + 1}, 2, true, false},
      {"smaller than the run", two, {half, half / 2}, 2, true, false},
      {"no memory", one, {half}, 1, false, false},
      {"none", {.run = run.id, .parts = 0}, {}, 0, true, false},
  };
  for (const Wrong& wrong : all) {
    receiver_.begin(kOperation);
    receiver_.expect(1, run);
    send(wrong.message, wrong.sizes, fds(wrong.fds, wrong.good));
    const Progress progress = receiver_.step();
    EXPECT_EQ(progress, wrong.ignored ? Progress::kAdvanced : Progress::kFailed) << wrong.name;
    EXPECT_EQ(receiver_.error().ok(), wrong.ignored) << wrong.name;
    receiver_.abandon();
    EXPECT_EQ(test::open_descriptors(), descriptors) << wrong.name;
    EXPECT_EQ(test::virtual_memory(), before) << wrong.name;
  }
  ASSERT_EQ(channel_.send(std::as_bytes(std::span("x", 1)), {}), Progress::kDone);
  begin(run);
  EXPECT_EQ(sender_.step(), Progress::kDone);
  EXPECT_EQ(receiver_.step(), Progress::kDone);
  SharedMemory large = run;
  large.mappings = UINT64_MAX;
  receiver_.begin(kOperation);
  receiver_.expect(1, large);
  EXPECT_EQ(receiver_.step(), Progress::kFailed);
}

TEST_F(Messages, NeedALeaderThatReceives) {
  EXPECT_FALSE(RunSender(1, nullptr).possible());
  FdChannel none;
  EXPECT_FALSE(RunSender(1, &none).possible());
}

} // namespace
} // namespace whorl
