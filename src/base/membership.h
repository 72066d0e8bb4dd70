#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/comm_error.h"
#include "base/status.h"

namespace whorl {

inline constexpr std::size_t kMaxAddressBytes = 192;

/// Largest number of ranks of a communicator that share devices.
inline constexpr int kMaxDeviceRanks = 64;
/// Rank whose kernel carries out the operations of ranks in several processes that share a device.
inline constexpr int kDeviceLeader = 0;

/// Place of a rank in the topology of its job. What is unknown is 0 or −1.
struct RankPlace {
  /// Processing units that the rank may use, as bits by their numbers; all 0 if unknown, also where
  /// a number does not fit.
  std::array<std::uint64_t, 16> cpus{};
  /// Numbers of the package, NUMA node and last-level cache that hold all of `cpus`; −1: several.
  std::int32_t package = -1, numa = -1, cache = -1;
  std::int32_t nic_numa = -1; ///< number of the NUMA node that is nearest to the rank's NIC
  double nic_gb_per_s = 0;    ///< rate of the rank's NIC in one direction, 10^9 bytes per second
  /// Keys of the switch above the host, and of the group of switches above that.
  std::uint64_t leaf = 0, pod = 0;
  /// Bandwidth of all links that lead out of these, in one direction, 10^9 bytes per second.
  double leaf_gb_per_s = 0, pod_gb_per_s = 0;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Facts that each rank sends to all others before connections are made. Fixed size, sent as raw
/// bytes; every field comes from another process and is checked before use.
struct PeerInfo {
  std::uint32_t rank = 0;
  std::uint32_t process_id = 0;
  std::uint64_t host_key = 0;    ///< key equal on ranks that can share memory
  std::uint64_t machine_key = 0; ///< key equal on ranks that share processors, also in containers
  std::uint64_t process_key = 0; ///< random key, equal on ranks of one process
  std::array<char, 64> host_name{}; ///< name of the host, zero-terminated, for messages
  std::uint32_t slots = 0;          ///< number of slots that this rank requests; 0: any
  std::uint32_t slot_bytes = 0;     ///< bytes of a slot that this rank requests; 0: any
  std::uint32_t channels = 0;
  std::uint32_t version = 0;
  std::uint64_t transports = 0;    ///< hash of the list that `addresses` is indexed by
  std::uint64_t memory_budget = 0; ///< bytes that this rank's part may occupy; 0: no limit
  /// Flag: 1 if the rank shares device memory (if the program has any) with processes of its host.
  std::uint64_t device_peers = 0;
  std::uint64_t encrypts = 0; ///< flag: 1 if the rank encrypts what it sends over TCP
  RankPlace place;
  struct Address {
    std::uint32_t size = 0;
    std::array<std::byte, kMaxAddressBytes> bytes{};
  };
  std::array<Address, 4>
      addresses{}; ///< addresses, indexed by the transport's place in the communicator's list
};

/// Key material by which the members of one communicator authenticate each other.
struct Identity {
  std::array<std::byte, 16> job{};    ///< public name of the communicator on the wire
  std::array<std::byte, 32> secret{}; ///< key, never sent
};

/// Description of a communicator for its transports. Outlives them.
struct Membership {
  std::string name; ///< name of the communicator, for messages; may be empty
  int rank = 0;
  int nranks = 1;
  Identity identity;
  std::vector<PeerInfo> peers;               ///< infos of all ranks, in rank order
  int channels = 2;                          ///< number of endpoints for each pair of ranks
  int slots = 8;                             ///< number of slots in each direction of an endpoint
  std::size_t slot_bytes = 65536;            ///< bytes of a slot, a multiple of 64
  std::uint64_t timeout_ns = 30'000'000'000; ///< timeout of connect(), in nanoseconds
  CommError* comm_error = nullptr;
  /// Asked in the waits of connect(): an error says that another rank has given up. May be empty.
  std::function<Status()> check_others;

  /// Returns "rank 3 (host node7, pid 4242)", with the communicator's name if it has one.
  std::string describe(int rank) const;
  /// Returns the names of all ranks, as describe() gives them.
  std::vector<std::string> names() const;
  const PeerInfo& info(int of) const { return peers[static_cast<std::size_t>(of)]; }
  bool same_process(int a, int b) const { return info(a).process_key == info(b).process_key; }
  /// Returns the number of ranks with the key of `member`: of its host, machine or process.
  int ranks_sharing(std::uint64_t PeerInfo::*key, int member) const noexcept;
  /// Returns the largest number of ranks that have one key.
  int most_ranks_sharing(std::uint64_t PeerInfo::*key) const;
  /// Returns the smallest memory budget of all ranks; 0: no rank has one.
  std::uint64_t smallest_budget() const noexcept;
  /// Returns whether all ranks can share memory.
  bool on_one_host() const noexcept;
  /// Returns whether processes of this communicator may map each other's device memory: all ranks
  /// are on one host, few, have a driver, and allow it.
  bool shares_devices() const noexcept;
};

/// Checks the limits on what is accepted in a PeerInfo from another rank.
Status check_peer_info(const PeerInfo& info, int rank, int nranks);

} // namespace whorl
