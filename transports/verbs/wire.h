#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/fingerprint.h"

/// Bytes that ranks which are connected by RDMA write into each other's memory.
namespace whorl::verbs {

/// Kind of network behind a port. Two ports reach each other only if they are of one kind.
enum class Fabric : std::uint8_t {
  kNone = 0,
  kInfiniBand = 1,
  kRoceIpv4 = 2,      ///< RoCE v2, GID of an IPv4 address
  kRoceIpv6 = 3,      ///< RoCE v2, GID of a global IPv6 address
  kRoceLinkLocal = 4, ///< RoCE v2, GID of a link-local address
  kRoceV1 = 5,        ///< RoCE v1: only within one Ethernet segment
};

/// Port of a rank, behind its TCP addresses in its PeerInfo.
struct PortAddress {
  Fabric fabric = Fabric::kNone;
  std::uint8_t mtu = 0; ///< code of the largest packet, an ibv_mtu
  std::uint16_t lid = 0;
  std::uint16_t rate = 0; ///< rate of the port, 10^8 bits per second
  // Flags. No bools, because they come from another process.
  std::uint8_t near : 1 = 1; ///< whether no other port is nearer to the rank
  /// Whether packets from and to this port need a global routing header (GRH) on InfiniBand, too,
  /// as those of virtual functions.
  std::uint8_t needs_grh : 1 = 0;
  std::uint8_t number =
      0; ///< place among the ports of the host that may be used, with a link or without
  std::array<std::uint8_t, 16> gid{};
};
static_assert(sizeof(PortAddress) == 24);

/// Largest number of rails, which are connections by different ports, between two ranks.
inline constexpr std::size_t kMaxRails = 4;

/// Ports of a rank, the first one for its most important rail.
using PortAddresses = std::array<PortAddress, kMaxRails>;

/// Queue pair of an endpoint at one of its rails, for the peer's.
struct RailAddress {
  std::uint32_t queue = 0; ///< number of the queue pair
  std::uint32_t first = 0; ///< number of the first packet
  std::uint32_t key = 0;   ///< key of the endpoint's memory
};

/// Queue pairs and memory of one endpoint, for the peer's.
struct EndpointAddress {
  std::uint64_t memory = 0; ///< address of the endpoint's memory, see EndpointLayout
  std::array<RailAddress, kMaxRails> rails;
};
static_assert(sizeof(EndpointAddress) == 56);

/// Reads the addresses of a peer's `count` endpoints, one for each channel. Returns nothing if they
/// are malformed. The bytes need not be trusted.
inline std::optional<std::vector<EndpointAddress>> read_endpoints(std::span<const std::byte> bytes,
                                                                  std::size_t count) {
  constexpr std::uint32_t kLastQueue = 0xffffff; // numbers have 24 bits
  ByteReader in(bytes);
  std::vector<EndpointAddress> endpoints;
  while (endpoints.size() < count) {
    const auto& endpoint = endpoints.emplace_back(in.get<EndpointAddress>());
    for (const RailAddress& rail : endpoint.rails) {
      if (rail.queue > kLastQueue) return {};
    }
    if (!in.ok()) return {};
  }
  return endpoints;
}

/// Hashes pairs of words. Words that are a mixture of an older and a newer text do not have the
/// hash of either.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a ^ 0x9e3779b97f4a7c15ULL} * (b ^ 0xd1b54a32d192ed03ULL);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Largest payload that travels in the line. A receiver that is awake sees such a message in its
/// memory, before the device reports it.
inline constexpr std::size_t kSmallBytes = 32;

/// Head of a message. Devices may make the bytes of one write visible in any order, so the line has
/// arrived only when its seal fits the rest, and a payload behind it only when the device has
/// reported the notice of the write.
struct alignas(64) Line {
  std::array<std::byte, kSmallBytes> small; ///< payload of up to kSmallBytes
  Fingerprint fingerprint;
  /// Bits 0–15: number of the message, from 1; 16–31: number of messages that its sender has
  /// released; both modulo 2¹⁶; then bytes. What a place has before is the last message there,
  /// whose number is less by the number of places.
  std::uint64_t word;
  std::uint64_t seal;

  static std::uint64_t make_word(std::uint64_t number, std::uint64_t released,
                                 std::size_t bytes) noexcept {
    return (number & 0xffff) | (released & 0xffff) << 16 | std::uint64_t{bytes} << 32;
  }
  /// Returns whether a line with this word may be that of a message.
  static bool has_number(std::uint64_t word, std::uint64_t number) noexcept {
    return ((word ^ number) & 0xffff) == 0;
  }
  static std::size_t bytes(std::uint64_t word) noexcept { return word >> 32; }
  /// Returns the number of messages that the sender has released, which is one of the 2¹⁶ from
  /// `known` on.
  static std::uint64_t released(std::uint64_t word, std::uint64_t known) noexcept {
    return known + (((word >> 16) - known) & 0xffff);
  }
};
static_assert(sizeof(Line) == 64);

/// Buffer of the receiver to which the payload of a message may be written instead, without a line:
/// a message of this size with this fingerprint.
struct alignas(64) Offer {
  std::uint64_t address;
  Fingerprint fingerprint;
  std::uint32_t bytes;
  std::uint32_t unused;
  std::array<std::uint32_t, kMaxRails> keys; ///< key of the buffer's memory for each rail
  std::uint64_t word;                        ///< number of the message, from 1
  std::uint64_t seal;
};
static_assert(sizeof(Offer) == 64);

/// Words of a Line or an Offer.
using Words = std::array<std::uint64_t, 8>;

/// Returns the seal that fits the rest of a Line or an Offer.
template <class Record>
std::uint64_t make_seal(const Record& record) noexcept {
  const auto words = std::bit_cast<Words>(record);
  return mix(words[0], words[1]) ^ mix(words[2], words[3] + 1) ^ mix(words[4], words[5] + 2) ^
         mix(words[6], 3);
}

/// Count of released messages, written by the receiver.
struct Credit {
  std::uint64_t released;
  std::uint64_t seal;

  static Credit of(std::uint64_t released) noexcept { return {released, mix(released, 4)}; }
};

/// Notice of a write: the immediate data, which the peer's device reports once the write is in its
/// memory, and which wakes a peer that sleeps.
class Notice {
 public:
  explicit Notice(std::uint32_t word) noexcept : word_(word) {}
  /// Returns the notice of a message; `placed` tells that its payload is in the offered buffer.
  static Notice of_message(std::uint64_t number, bool placed) noexcept {
    return Notice((static_cast<std::uint32_t>(number) & kNumber) | (placed ? kPlaced : 0));
  }
  static Notice of_credit() noexcept { return Notice(kCredit); }

  std::uint32_t word() const noexcept { return word_; }
  bool is_message() const noexcept { return (word_ & kCredit) == 0; }
  bool is_placed() const noexcept { return (word_ & kPlaced) != 0; }
  /// Returns the number of the message, which is one of the 2³⁰ after `received`.
  std::uint64_t number(std::uint64_t received) const noexcept {
    return received + ((word_ - static_cast<std::uint32_t>(received)) & kNumber);
  }

 private:
  static constexpr std::uint32_t kCredit = std::uint32_t{1} << 31, kPlaced = kCredit >> 1;
  static constexpr std::uint32_t kNumber = kPlaced - 1;
  std::uint32_t word_;
};

/// Number of messages, from the next one on, for which buffers may be offered.
inline constexpr std::uint64_t kOffers = 16;

/// Word to the peer, by the control socket, that a rail is closed on the sender's side.
struct RailReport {
  static constexpr std::size_t kMessages = 512; ///< more than an endpoint has places
  std::uint16_t channel = 0;
  std::uint16_t rail = 0;
  std::uint32_t reserved = 0;
  std::uint64_t received = 0; ///< number of messages that the sender has released
  std::array<std::uint8_t, kMessages / 8> arrived{}; ///< bits of later messages that are there

  bool has(std::uint64_t number) const noexcept {
    const std::uint64_t bit = number - received - 1;
    return number <= received || (bit < kMessages && (arrived[bit / 8] >> bit % 8 & 1) != 0);
  }
  void add(std::uint64_t number) noexcept {
    const std::uint64_t bit = number - received - 1;
    if (bit < kMessages) arrived[bit / 8] |= static_cast<std::uint8_t>(1U << bit % 8);
  }
};
static_assert(sizeof(RailReport) == 80);

/// Offsets in the memory of one endpoint, alike on both sides; the peer writes to the first half:
///
///   credit | offers | places for messages ‖ own credit | own offers | places for own messages
///
/// Messages take the places of a ring in turn; a place is a line and, behind it, a payload. The
/// ring has more places than the FIFO has slots, so that a receiver may give slots back a few at a
/// time.
class EndpointLayout {
 public:
  EndpointLayout(int slots, std::size_t slot_bytes) noexcept
      : batch_(slots < 8 ? 1 : static_cast<std::uint64_t>(slots) / 4),
        places_(static_cast<std::uint64_t>(slots) + batch_ - 1),
        slot_bytes_(slot_bytes) {}

  /// Returns the number of released messages after which a receiver says so.
  std::uint64_t batch() const noexcept { return batch_; }
  std::uint64_t places() const noexcept { return places_; }
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  static constexpr std::size_t credit() noexcept { return 0; }
  static std::size_t offer(std::uint64_t message) noexcept {
    return kCreditBytes + message % kOffers * sizeof(Offer);
  }
  std::size_t line(std::uint64_t message) const noexcept {
    return kCreditBytes + kOffers * sizeof(Offer) + message % places_ * place_bytes();
  }
  std::size_t payload(std::uint64_t message) const noexcept { return line(message) + sizeof(Line); }
  /// Returns the offset of this side's own credit, offers and messages: those above are at the same
  /// distance behind it.
  std::size_t own() const noexcept {
    return kCreditBytes + kOffers * sizeof(Offer) + places_ * place_bytes();
  }
  /// Returns the bytes of the whole memory, in pages.
  std::size_t bytes() const noexcept { return (2 * own() + 4095) / 4096 * 4096; }

 private:
  static constexpr std::size_t kCreditBytes = 128; ///< distance of data with different writers
  std::size_t place_bytes() const noexcept {
    return sizeof(Line) + (slot_bytes_ + alignof(Line) - 1) / alignof(Line) * alignof(Line);
  }

  std::uint64_t batch_;
  std::uint64_t places_;
  std::size_t slot_bytes_;
};

} // namespace whorl::verbs
