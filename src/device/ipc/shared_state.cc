#include "device/ipc/shared_state.h"

#include <cstring>

#include "base/bytes.h"

namespace whorl {

template <class T>
void SharedState::Words<T>::store(const T& value) noexcept {
  std::array<std::uint64_t, kWords> words{};
  std::memcpy(words.data(), &value, sizeof value);
  for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
}

template <class T>
void SharedState::Words<T>::load(T& value) const noexcept {
  std::array<std::uint64_t, kWords> words;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
}

SharedState::SharedState(std::span<std::byte> memory, int nranks) noexcept
    : stop_words_(reinterpret_cast<gpu::StopWords*>(memory.data())),
      barriers_(reinterpret_cast<StreamBarrier*>(memory.data() + sizeof(gpu::StopWords))),
      reports_(reinterpret_cast<gpu::Report*>(barriers_ + nranks)),
      nranks_(nranks) {
  boxes_ = reinterpret_cast<Box*>(memory.data() + words().size());
  places_ = reinterpret_cast<Words<BlockPlace>*>(boxes_ + nranks);
}

std::span<std::byte> SharedState::words() const noexcept {
  const auto ranks = static_cast<std::size_t>(nranks_);
  const std::size_t bytes =
      sizeof(gpu::StopWords) + ranks * (sizeof(StreamBarrier) + sizeof(gpu::Report));
  return {reinterpret_cast<std::byte*>(stop_words_), round_up(bytes, kPage)};
}

bool SharedState::post(int rank, std::uint64_t number, const DevicePost* what,
                       std::span<const BlockPlace> blocks) noexcept {
  Box& box = boxes_[rank];
  if (what != nullptr) {
    const std::size_t turn = turn_ % kSlots;
    Slot& slot = box.slots[turn];
    const std::uint64_t before = slot.number.load(std::memory_order_relaxed);
    for (int other = 0; before > 0 && other < nranks_; ++other) {
      if (other == rank) continue;
      // Pairs with the store below: the other rank has read the post.
      if (boxes_[other].posted.load(std::memory_order_acquire) <= before) return false;
    }
    ++turn_;
    slot.post.store(*what);
    for (std::size_t i = 0; i < blocks.size(); ++i) places(rank, turn)[i].store(blocks[i]);
    slot.number.store(number, std::memory_order_release); // pairs with the first load of call()
  }
  box.posted.store(number, std::memory_order_release); // pairs with the load of call()
  return true;
}

void SharedState::leave(int rank) noexcept {
  boxes_[rank].posted.store(kLeft, std::memory_order_release); // pairs with the load of call()
}

SharedState::Call SharedState::call(int rank, std::uint64_t number,
                                    DevicePost* what) const noexcept {
  const Box& box = boxes_[rank];
  if (box.posted.load(std::memory_order_acquire) < number) return Call::kNone;
  for (const Slot& slot : box.slots) {
    if (slot.number.load(std::memory_order_acquire) != number) continue;
    slot.post.load(*what);
    return Call::kDevice;
  }
  return box.posted.load(std::memory_order_relaxed) == kLeft ? Call::kLeft : Call::kHost;
}

void SharedState::blocks(int rank, std::uint64_t number,
                         std::span<BlockPlace> places) const noexcept {
  const Box& box = boxes_[rank];
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (box.slots[slot].number.load(std::memory_order_acquire) != number) continue;
    for (std::size_t i = 0; i < places.size(); ++i) this->places(rank, slot)[i].load(places[i]);
  }
}

void SharedState::answer(int rank, std::uint64_t number, bool yes) noexcept {
  // Pairs with the load below; no other memory depends on the word.
  boxes_[rank].answer.store(2 * number + (yes ? 1 : 0), std::memory_order_release);
}

SharedState::Answer SharedState::answer(int rank, std::uint64_t number) const noexcept {
  const std::uint64_t last = boxes_[rank].answer.load(std::memory_order_acquire);
  if (last < 2 * number) return Answer::kNone;
  return last % 2 == 1 ? Answer::kYes : Answer::kNo;
}

void SharedState::ask(int rank, std::uint64_t number, Wanted wanted) noexcept {
  // Pairs with the load below; no other memory depends on the word.
  boxes_[rank].asked.store(4 * number + (wanted.input ? 1 : 0) + (wanted.output ? 2 : 0),
                           std::memory_order_release);
}

SharedState::Wanted SharedState::asked(int rank, std::uint64_t number) const noexcept {
  const std::uint64_t last = boxes_[rank].asked.load(std::memory_order_acquire);
  if (last / 4 != number) return {};
  return {.input = (last & 1) != 0, .output = (last & 2) != 0};
}

void SharedState::offer(int rank, const DeviceOffer* what) noexcept {
  Box& box = boxes_[rank];
  if (what != nullptr) box.offer.store(*what);
  box.offered.store(what != nullptr ? 2 : 1, std::memory_order_release); // pairs with offer_of()
}

SharedState::Answer SharedState::offer_of(int rank, DeviceOffer& what) const noexcept {
  const Box& box = boxes_[rank];
  const std::uint64_t offered = box.offered.load(std::memory_order_acquire);
  if (offered == 0) return Answer::kNone;
  if (offered == 1) return Answer::kNo;
  box.offer.load(what);
  return Answer::kYes;
}

} // namespace whorl
