#include "transports/fifo/ring.h"

#include <algorithm>
#include <span>

#include "base/system.h"

namespace whorl {

/// Gets memory before the first message. Returns false if there is not even enough for the shortest
/// laps.
bool PayloadRing::begin() noexcept {
  const FifoShape& shape = *place_.shape;
  return (place_.only_peer && grow(shape.size, false)) || grow(shape.first_size, true);
}

/// Begins a new lap, unless few bytes have passed through this core's cache since the last one
/// began: then the peer's cache, too, may still have lines at the start of the ring.
void PayloadRing::end_lap() noexcept {
  const std::uint64_t moved = *place_.moved;
  if (moved - lap_began_ < place_.shape->longest_lap && fits()) return;
  next_ = 0;
  lap_began_ = moved;
}

/// Returns whether there is memory for a message at next(), after getting more if there is not.
bool PayloadRing::fits() noexcept {
  const FifoShape& shape = *place_.shape;
  if (shape.slots_size + next_ + place_.slot_bytes <= backed_) return true;
  if (*place_.moved < kBytesBeforeLongLaps) return false;
  const std::size_t part = std::max(kPart, round_up(place_.slot_bytes, kPageBytes));
  can_grow_ = can_grow_ && grow(std::min(shape.size, backed_ + part), false);
  return can_grow_;
}

/// Backs the FIFO with memory up to `end`. Returns false if there is none.
bool PayloadRing::grow(std::size_t end, bool needed) noexcept {
  const std::size_t begin = std::max(backed_, place_.shape->slots_size);
  const std::span<std::byte> part(place_.fifo + begin, end - begin);
  if (!host_.back(place_.peer, part, needed)) return false;
  // At once, since every page would be touched one by one. If that fails, they are.
  sys().populate(part.data(), part.size());
  backed_ = end;
  return true;
}

} // namespace whorl
