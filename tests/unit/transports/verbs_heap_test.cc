// Tests endpoints over RDMA devices in memory with messages from and to the heap.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/transports/verbs_endpoints.h"

namespace whorl::verbs_test {
namespace {

TEST_F(VerbsHeap, AMessageFromTheHeapNeedsItsSourceUntilItIsWritten) {
  fabric.hold_writes(true);
  ASSERT_TRUE(publish(kBytes, 1));
  EXPECT_EQ(a.endpoint->released(), 0U);
  ASSERT_TRUE(a.send(8, 2));
  EXPECT_EQ(a.endpoint->released(), 0U);
  fabric.carry_out(1);
  EXPECT_EQ(a.endpoint->released(), 2U) << "the second one has no source";
  fabric.hold_writes(false);
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes));
  EXPECT_EQ(b.receive(2), 8);
}

TEST_F(VerbsHeap, OtherSourcesAreNotForTheDevice) {
  std::vector<std::byte> plain(kBytes);
  EXPECT_FALSE(a.endpoint->can_send_descriptor(plain));
  EXPECT_FALSE(a.endpoint->can_send_descriptor({source, kMinSharedBytes - 1})) << "small";
  EXPECT_FALSE(a.endpoint->can_send_descriptor({source, 2 * kBytes + 1})) << "more than a slot";
  EXPECT_FALSE(a.endpoint->can_send_descriptor({source + 3 * kBytes, 2 * kBytes})) << "its end";
  EXPECT_TRUE(a.endpoint->can_send_descriptor({source + 3 * kBytes, kBytes}));
}

TEST_F(VerbsHeap, AnOfferedBufferGetsThePayloadInOneWrite) {
  for (const bool from_heap : {false, true}) {
    const std::uint64_t number = b.endpoint->received() + 1;
    ASSERT_TRUE(offer(number, kBytes, 3));
    const int before = fabric.writes();
    ASSERT_TRUE(from_heap ? publish(kBytes, 3) : a.send(kBytes, 3));
    EXPECT_EQ(fabric.writes() - before, 1);
    fabric.hold_notices(true);
    EXPECT_FALSE(b.endpoint->try_peek()) << "the device has not said so";
    fabric.hold_notices(false);
    EXPECT_EQ(b.endpoint->try_peek().data, target);
    EXPECT_EQ(b.receive(3), static_cast<int>(kBytes));
  }
}

TEST_F(VerbsHeap, OtherMessagesDoNotGoToAnOfferedBuffer) {
  std::memset(target, 0x77, kBytes);
  ASSERT_TRUE(offer(1, kBytes, 1));
  ASSERT_TRUE(offer(2, kBytes, 2));
  ASSERT_TRUE(a.send(kBytes - 1, 1));
  ASSERT_TRUE(a.send(kBytes, 1));
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes - 1));
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes));
  EXPECT_EQ(target[0], std::byte{0x77});
  EXPECT_FALSE(offer(2, kBytes, 1)) << "has arrived";
  EXPECT_FALSE(offer(3 + verbs::kOffers, kBytes, 1)) << "too far ahead";
  EXPECT_TRUE(offer(2 + verbs::kOffers, kBytes, 1));
  std::vector<std::byte> plain(kBytes);
  EXPECT_FALSE(b.endpoint->expose_recv_buffer(3, plain, {}));
}

TEST_F(VerbsHeap, ALineFromBeforeManyPlacedMessagesIsNotTakenForALaterOne) {
  ASSERT_TRUE(a.send(8, 1));
  ASSERT_EQ(b.receive(1), 8);
  // Until the number of a message at that place has the same lower bits.
  const std::uint64_t later = 1 + 65536 * a.layout.places();
  while (a.endpoint->sent() + 1 < later) {
    ASSERT_TRUE(offer(a.endpoint->sent() + 1, kMinSharedBytes, 2));
    const auto slot = a.endpoint->try_reserve();
    ASSERT_FALSE(slot.empty());
    a.endpoint->commit(kMinSharedBytes, {.sequence = 2});
    ASSERT_EQ(b.endpoint->try_peek().data, target);
    b.endpoint->release();
  }
  EXPECT_FALSE(b.endpoint->try_peek());
}

TEST_F(VerbsHeap, AMessageThatCrossesItsOfferGoesToItsPlace) {
  fabric.hold_writes(true);
  ASSERT_TRUE(offer(1, kBytes, 1));
  ASSERT_TRUE(a.send(kBytes, 1));
  fabric.hold_writes(false);
  EXPECT_NE(b.endpoint->try_peek().data, target);
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes));
}

TEST_F(VerbsHeap, ATornOfferIsNotUsed) {
  ASSERT_TRUE(offer(1, kBytes, 1));
  // As if the number had arrived before the address.
  auto& torn = *reinterpret_cast<verbs::Offer*>(a.bytes() + verbs::EndpointLayout::offer(0));
  torn.address += 64;
  ASSERT_TRUE(a.send(kBytes, 1));
  EXPECT_NE(b.endpoint->try_peek().data, target);
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes));
}

TEST_F(VerbsHeap, AfterALostDeviceNothingIsAwaited) {
  fabric.hold_completions(true);
  fabric.refuse_state(IBV_QPS_ERR, EIO);
  EXPECT_TRUE(b.endpoint->close());
}

TEST_F(VerbsHeap, ChildrenKeepRegisteredMemory) {
  fabric.device(0).hides_from_children = true;
  ASSERT_TRUE(publish(kBytes, 7));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(source[kBytes - 1] == std::byte{7} ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(VerbsHeap, MemoryIsRegisteredOnceAndUntilItLeavesTheHeap) {
  const int before = fabric.objects();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(publish(kBytes, 1));
    b.receive(1);
  }
  EXPECT_EQ(fabric.objects(), before + 1);
  struct alignas(4096) Pages {
    std::byte bytes[kBytes];
  };
  const auto buffer = std::make_unique<Pages>();
  const auto registration = heap_adopt(buffer->bytes, kBytes);
  ASSERT_TRUE(registration.ok());
  EXPECT_TRUE(a.endpoint->can_send_descriptor(buffer->bytes));
  EXPECT_EQ(fabric.objects(), before + 2);
  EXPECT_TRUE(heap_release(*registration).ok());
  EXPECT_EQ(fabric.objects(), before + 1);
  EXPECT_FALSE(a.endpoint->can_send_descriptor(buffer->bytes)) << "gone, though used last";
}

TEST_F(VerbsHeap, MemoryThatIsAllocatedAgainIsStillRegistered) {
  void* first = nullptr;
  int registered = 0;
  for (int i = 0; i < 3; ++i) {
    const auto memory = heap_alloc(kBytes);
    ASSERT_TRUE(memory.ok());
    if (i == 0) first = *memory;
    EXPECT_EQ(*memory, first);
    EXPECT_TRUE(a.endpoint->can_send_descriptor({static_cast<std::byte*>(*memory), kBytes}));
    if (i == 0) registered = fabric.objects();
    EXPECT_EQ(fabric.objects(), registered);
    EXPECT_TRUE(heap_free(*memory).ok());
  }
}

TEST_F(VerbsHeap, MemoryThatTheDeviceRefusesIsCopied) {
  fabric.device(0).memory_bytes = 0;
  EXPECT_FALSE(publish(kBytes, 1));
  EXPECT_FALSE(offer(1, kBytes, 1));
  EXPECT_TRUE(a.send(kBytes, 1));
  EXPECT_EQ(b.receive(1), static_cast<int>(kBytes));
}

TEST_F(VerbsHeap, AfterTheEndNothingIsWritten) {
  ASSERT_TRUE(offer(1, kBytes, 1));
  std::memset(target, 0x77, kBytes);
  fabric.hold_completions(true);
  EXPECT_FALSE(b.endpoint->close()) << "the device has not said so";
  fabric.hold_completions(false);
  EXPECT_TRUE(b.endpoint->close());
  a.send(kBytes, 1);
  EXPECT_EQ(target[0], std::byte{0x77});
}

} // namespace
} // namespace whorl::verbs_test
