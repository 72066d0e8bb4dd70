#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/node.h"
#include "simulation/host_kernel.h"

namespace whorl::simulation {

/// Time in which the ranks of a host have to meet.
inline constexpr std::uint64_t kMeetingNs = 1'000'000'000;

/// Time of words that never come, because the ranks have no root of their rendezvous.
inline constexpr std::uint64_t kNoWordNs = UINT64_MAX;

/// Flaw of one process.
enum class Flaw : std::uint8_t {
  kNone,
  kDeath,     ///< dies at any access
  kRefusal,   ///< is refused a call by the kernel
  kLimit,     ///< may have few descriptors more than it has
  kAbsent,    ///< comes when the others have given up
  kFrozen,    ///< stops at any access until then
  kOtherUser, ///< belongs to another user
  kGivesUp,   ///< has an error at any time
};

/// A rank, and what it has when it has met the others.
struct NodeRank {
  int number = 0;
  std::size_t process = 0; ///< fibre of the process
  CommError comm_error;
  Membership membership;
  Fd listener;
  Node node;
  std::optional<ShmMeeting> met;
  Status error;
  std::uint64_t took_ns = 0;
  std::uint64_t ended_ns = 0; ///< 0: it has not
};

/// Ranks of a host and the plan of a run.
struct NodePlan {
  std::vector<NodeRank> ranks;
  std::vector<Fd> heaps; ///< by process; invalid: it has none
  std::vector<PeerInfo> infos;
  Flaw flaw = Flaw::kNone;
  std::size_t culprit = 0;   ///< process with the flaw
  bool has_pidfds = true;    ///< whether the lowest rank's process may open pidfds
  HostKernel::Call call{};   ///< call that is refused
  int refusal = 0;           ///< −errno of that
  std::size_t listening = 0; ///< number of ranks whose sockets are there
  std::uint64_t word_ns = 0; ///< time until others hear by the rendezvous that a rank has failed
};

std::string describe(const NodePlan& plan, int rank);
/// Returns the lowest rank of a process.
int lowest_of(const NodePlan& plan, std::size_t process);
inline std::size_t processes_of(const NodePlan& plan) noexcept { return plan.heaps.size(); }

/// Makes the ranks: the first ones in processes of their own, others in any.
void make_ranks(NodePlan& plan);
/// Opens the socket of a rank, and waits until all others have done that.
void listen(NodePlan& plan, NodeRank& rank);
/// Returns the input of a rank to Node::meet().
ShmMeetingPlan meeting_of(const NodePlan& plan, const NodeRank& rank);

} // namespace whorl::simulation
