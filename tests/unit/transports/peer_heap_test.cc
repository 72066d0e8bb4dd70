#include "transports/shm/peer_heap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/heap.h"

namespace whorl {
namespace {

TEST(PeerHeap, ShowsWhatTheOwnerWritesAndNothingBeyond) {
  const auto heap = Heap::create(std::size_t{256} << 20);
  ASSERT_TRUE(heap.ok());
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 3; ++i) {
    const auto memory = (*heap)->alloc(1 << 20);
    ASSERT_TRUE(memory.ok());
    blocks.push_back(static_cast<std::byte*>(*memory));
    std::memset(*memory, i + 1, 1 << 20);
  }
  const auto peer = PeerHeap::of(12345, Fd(::dup((*heap)->fd())));
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  EXPECT_EQ(PeerHeap::of(12345, Fd(::dup((*heap)->fd())))->get(), peer->get()) << "not shared";
  EXPECT_EQ((*peer)->windows(), 0U);
  for (int i = 0; i < 3; ++i) {
    Descriptor descriptor{.offset = 0, .bytes = 1 << 20};
    ASSERT_TRUE((*heap)->find(blocks[static_cast<std::size_t>(i)], 1 << 20, &descriptor.offset));
    const std::byte* const data = (*peer)->at(descriptor);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(data[(1 << 20) - 1], static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ((*peer)->windows(), 1U);
  const Descriptor across{.offset = PeerHeap::kWindowBytes - 4096, .bytes = 8192};
  EXPECT_TRUE((*peer)->contains(across));
  EXPECT_NE((*peer)->at(across), nullptr);
  const std::uint64_t end = std::uint64_t{256} << 20;
  EXPECT_TRUE((*peer)->contains({.offset = end - 1, .bytes = 1}));
  EXPECT_NE((*peer)->at({.offset = end - 1, .bytes = 1}), nullptr);
  EXPECT_FALSE((*peer)->contains({.offset = end, .bytes = 1}));
  EXPECT_FALSE((*peer)->contains({.offset = 4096, .bytes = UINT64_MAX - 4095}));
  EXPECT_FALSE((*peer)->contains({.offset = UINT64_MAX, .bytes = 1}));
}

TEST(PeerHeap, RefusesMemoryThatCouldShrink) {
  const int fd = sys().memfd_create("unsealed");
  ASSERT_GE(fd, 0);
  ASSERT_EQ(sys().ftruncate(fd, 8192), 0);
  EXPECT_FALSE(PeerHeap::of(999, Fd(fd)).ok());
}

} // namespace
} // namespace whorl
