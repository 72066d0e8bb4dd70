#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/verdict.h"

namespace whorl {

inline constexpr std::size_t kMaxAddressBytes = 192;

/// Ranks of one communicator that share devices at most.
inline constexpr int kMostDeviceRanks = 64;

/// What one rank tells all others about itself before connections are made. Fixed size, sent as it
/// is; every field comes from another process and is checked before use.
struct RankCard {
  std::uint32_t rank = 0;
  std::uint32_t process_id = 0;
  std::uint64_t host_key = 0;       ///< equal on ranks that can share memory
  std::uint64_t machine_key = 0;    ///< equal on ranks that share processors, also in containers
  std::uint64_t process_key = 0;    ///< random, equal on ranks of one process
  std::array<char, 64> host_name{}; ///< zero-terminated, for messages
  std::uint32_t slots = 0;          ///< that this rank asks for; 0: any number
  std::uint32_t slot_bytes = 0;     ///< … and of which size; 0: any
  std::uint32_t channels = 0;
  std::uint32_t version = 0;
  std::uint64_t transports = 0;    ///< hash of the list that `addresses` is indexed by
  std::uint64_t memory_budget = 0; ///< bytes that this rank's part may occupy; 0: no limit
  /// 1: shares memory of devices with the processes of its host, where the program has any.
  std::uint64_t device_peers = 0;
  struct Address {
    std::uint32_t size = 0;
    std::array<std::byte, kMaxAddressBytes> bytes{};
  };
  std::array<Address, 4>
      addresses{}; ///< indexed by the transport's place in the communicator's list
};

/// What authenticates the members of one communicator to each other.
struct Identity {
  std::array<std::byte, 16> job{};    ///< public: names the communicator on the wire
  std::array<std::byte, 32> secret{}; ///< never sent
};

/// A communicator as its transports see it. Outlives them.
struct Membership {
  std::string name; ///< of the communicator, for messages; may be empty
  int rank = 0;
  int nranks = 1;
  Identity identity;
  std::vector<RankCard> cards;               ///< of all ranks, in rank order
  int channels = 2;                          ///< endpoints for each pair of ranks
  int slots = 8;                             ///< of each direction of an endpoint
  std::size_t slot_bytes = 65536;            ///< multiple of 64
  std::uint64_t timeout_ns = 30'000'000'000; ///< for connect()
  Verdict* verdict = nullptr;

  /// "rank 3 (host node7, pid 4242)", with the communicator's name if it has one.
  std::string describe(int rank) const;
  std::vector<std::string> names() const; ///< of all ranks, as describe() has them
  const RankCard& card(int of) const { return cards[static_cast<std::size_t>(of)]; }
  bool same_process(int a, int b) const { return card(a).process_key == card(b).process_key; }
  /// How many ranks the process of `member` has.
  int ranks_in_process_of(int member) const noexcept;
  /// Whether all ranks can share memory.
  bool on_one_host() const noexcept;
  /// Whether processes of this communicator may map each other's device memory: all ranks are on
  /// one host, few, have a driver, and want to.
  bool shares_devices() const noexcept;
};

/// Limits on what is accepted in a card from another rank.
Status check_card(const RankCard& card, int rank, int nranks);

} // namespace whorl
