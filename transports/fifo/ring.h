#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "transports/fifo/host.h"
#include "transports/fifo/layout.h"

namespace whorl {

/// Order in which a sender puts payloads into the ring of its FIFO: one behind the other.
///
/// Writing a line that the peer has just read is expensive, unless the line has left the peer's
/// cache meanwhile or both sides use one cache. In slots, small messages would come back to their
/// lines soon; in the ring, messages of every size come back late. Used by one thread.
class PayloadRing {
 public:
  struct Place {
    int peer = 0;
    std::byte* fifo = nullptr; ///< FIFO to the peer
    const FifoShape* shape = nullptr;
    std::size_t slot_bytes = 0;
    /// Payload bytes sent through the rings and received through the FIFOs of a transport.
    std::uint64_t* moved = nullptr;
    /// Whether the transport has no other peer, so that long laps are certain and their memory can
    /// be mapped before the first message.
    bool only_peer = false;
  };
  PayloadRing(const Place& place, FifoHost& host) noexcept : place_(place), host_(host) {}

  /// Returns where the next payload goes, with room for as many bytes as a slot has; null if the
  /// error was set.
  std::byte* next() noexcept {
    if (backed_ == 0 && !begin()) [[unlikely]]
      return nullptr;
    return place_.fifo + place_.shape->slots_size + next_;
  }
  /// Records that a payload of `bytes` is at next().
  void take(std::size_t bytes) noexcept {
    const std::size_t taken = round_up(bytes, alignof(SlotHeader));
    *place_.moved += taken;
    next_ += taken; // never more than has moved since the lap began
    if (next_ >= place_.shape->shortest_lap) [[unlikely]]
      end_lap();
  }

 private:
  /// Bytes that a rank with several peers moves before laps become longer than the shortest ones.
  /// Fewer: short programs pay for more pages, each of which costs some 2 µs at its first use.
  /// More: long programs are slower at first.
  static constexpr std::uint64_t kBytesBeforeLongLaps = 16 << 20;
  /// Bytes that are backed with memory at a time.
  static constexpr std::size_t kPart = 256 * 1024;

  bool begin() noexcept;
  void end_lap() noexcept;
  bool fits() noexcept;
  bool grow(std::size_t end, bool needed) noexcept;

  const Place place_;
  FifoHost& host_;
  std::size_t next_ = 0;        ///< offset in the ring of the next payload
  std::size_t backed_ = 0;      ///< end of the part of the FIFO with memory; 0: only the slots
  bool can_grow_ = true;        ///< whether the host may have memory for more
  std::uint64_t lap_began_ = 0; ///< *Place::moved when the lap of the ring began
};

} // namespace whorl
