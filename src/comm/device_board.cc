#include "comm/device_board.h"

#include <cstring>

#include "base/bytes.h"

namespace whorl {

DeviceBoard::DeviceBoard(std::span<std::byte> memory, int nranks) noexcept
    : head_(reinterpret_cast<Head*>(memory.data())),
      gates_(reinterpret_cast<Gate*>(memory.data() + sizeof(Head))),
      nranks_(nranks) {
  boxes_ = reinterpret_cast<Box*>(memory.data() + words().size());
}

std::span<std::byte> DeviceBoard::words() const noexcept {
  const std::size_t bytes = sizeof(Head) + static_cast<std::size_t>(nranks_) * sizeof(Gate);
  return {reinterpret_cast<std::byte*>(head_), round_up(bytes, kPage)};
}

bool DeviceBoard::post(int rank, std::uint64_t number, const DevicePost* what) noexcept {
  Box& box = boxes_[rank];
  if (what != nullptr) {
    Slot& slot = box.slots[turn_ % 2];
    const std::uint64_t before = slot.number.load(std::memory_order_relaxed);
    for (int other = 0; before > 0 && other < nranks_; ++other) {
      if (other == rank) continue;
      // Pairs with the store below: that rank has read the post.
      if (boxes_[other].posted.load(std::memory_order_acquire) <= before) return false;
    }
    ++turn_;
    std::array<std::uint64_t, kPostWords> words{};
    std::memcpy(words.data(), what, sizeof *what);
    for (std::size_t i = 0; i < kPostWords; ++i) {
      slot.words[i].store(words[i], std::memory_order_relaxed);
    }
    slot.number.store(number, std::memory_order_release); // pairs with the first load of call()
  }
  box.posted.store(number, std::memory_order_release); // pairs with the load of call()
  return true;
}

DeviceBoard::Call DeviceBoard::call(int rank, std::uint64_t number,
                                    DevicePost* what) const noexcept {
  const Box& box = boxes_[rank];
  if (box.posted.load(std::memory_order_acquire) < number) return Call::kNone;
  for (const Slot& slot : box.slots) {
    if (slot.number.load(std::memory_order_acquire) != number) continue;
    std::array<std::uint64_t, kPostWords> words;
    for (std::size_t i = 0; i < kPostWords; ++i) {
      words[i] = slot.words[i].load(std::memory_order_relaxed);
    }
    std::memcpy(static_cast<void*>(what), words.data(), sizeof *what);
    return Call::kDevice;
  }
  return Call::kHost;
}

void DeviceBoard::answer(int rank, std::uint64_t number, bool yes) noexcept {
  // Pairs with the load below: nothing but the word itself depends on it.
  boxes_[rank].answer.store(2 * number + (yes ? 1 : 0), std::memory_order_release);
}

DeviceBoard::Answer DeviceBoard::answer(int rank, std::uint64_t number) const noexcept {
  const std::uint64_t last = boxes_[rank].answer.load(std::memory_order_acquire);
  if (last < 2 * number) return Answer::kNone;
  return last % 2 == 1 ? Answer::kYes : Answer::kNo;
}

} // namespace whorl
