#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "transports/fifo/endpoint.h"
#include "transports/fifo/layout.h"

namespace whorl {

/// Two endpoints over plain memory, and a host that records its calls.
class Pair : public FifoHost {
 public:
  explicit Pair(std::uint32_t slots, std::size_t slot_bytes = 256)
      : layout_(*SegmentLayout::make(
            {.ranks = 2, .channels = 1, .slots = slots, .slot_bytes = slot_bytes})),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, layout_.size()))) {
    std::memset(memory_, 0, layout_.size());
  }
  ~Pair() override { std::free(memory_); }

  FifoEndpoint endpoint(int rank) {
    const auto self = static_cast<std::size_t>(rank);
    return {{.peer = 1 - rank,
             .send = memory_ + layout_.fifo_offset(0, self, 1 - self),
             .receive = memory_ + layout_.fifo_offset(0, 1 - self, self),
             .slots = layout_.shape().slots,
             .slot_bytes = layout_.shape().slot_bytes,
             .shape = &layout_.fifo(),
             .own = &state(self),
             .peers = &state(1 - self),
             .moved = &moved_[self],
             .only_peer = only_peer_,
             .zero_copy = true},
            *this};
  }
  RankState& state(std::size_t rank) {
    return *reinterpret_cast<RankState*>(memory_ + layout_.state_offset(rank));
  }
  SlotHeader& slot(int from, std::size_t i) {
    const auto f = static_cast<std::size_t>(from);
    return *reinterpret_cast<SlotHeader*>(memory_ + layout_.fifo_offset(0, f, 1 - f) +
                                          sizeof(FifoHead) + i * layout_.fifo().stride);
  }
  FifoHead& head(int from) {
    const auto f = static_cast<std::size_t>(from);
    return *reinterpret_cast<FifoHead*>(memory_ + layout_.fifo_offset(0, f, 1 - f));
  }

  bool back(int, std::span<std::byte> part, bool needed) noexcept override {
    ++(needed ? prepared_ : ring_parts_);
    if (refuse_memory_ || part.size() > most_ - backed_) return false;
    backed_ += part.size();
    return true;
  }
  bool locate(std::span<const std::byte> source, std::uint64_t* offset) noexcept override {
    *offset = static_cast<std::uint64_t>(source.data() - heap_.data());
    return source.data() >= heap_.data() && *offset < heap_.size();
  }
  std::byte* resolve(int, const Descriptor& d) noexcept override {
    return d.offset <= heap_.size() && d.bytes <= heap_.size() - d.offset ? heap_.data() + d.offset
                                                                          : nullptr;
  }
  void corrupt(int peer, const char* what) noexcept override {
    corrupt_peer_ = peer;
    corrupt_ = what;
  }

  SegmentLayout layout_;
  std::byte* memory_;
  std::array<std::byte, 2 * kMinSharedBytes> heap_{};
  std::array<std::uint64_t, 2> moved_{};
  bool only_peer_ = false;
  int prepared_ = 0;
  int ring_parts_ = 0;
  std::size_t backed_ = 0;
  std::size_t most_ = SIZE_MAX; ///< memory of the host, in bytes
  bool refuse_memory_ = false;
  int corrupt_peer_ = -1;
  std::string corrupt_;
};

} // namespace whorl
