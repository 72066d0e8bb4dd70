#include "simulation/node_ranks.h"

#include <algorithm>

#include "net/listener.h"
#include "simulation/world.h"

namespace whorl::simulation {
namespace {

constexpr std::size_t kMemoryBytes = 2 * Arena::kPageBytes;

/// Header of the memory that the ranks share.
struct Header {
  std::uint64_t magic, ranks;
};
constexpr std::uint64_t kMagic = 0x6e6f6465;

/// Returns what the rendezvous tells of ranks that have failed or died; stands for Oob::check().
Status check_others(const NodePlan& plan) {
  for (const NodeRank& rank : plan.ranks) {
    const std::uint64_t died_ns = world().scheduler().process_died_ns(rank.process);
    if (died_ns < Scheduler::kForEver && died_ns + plan.word_ns <= sys().now_ns()) {
      return Status::error(Code::kRemoteError, describe(plan, rank.number) + " died");
    }
    if (!rank.error.ok() && rank.ended_ns + plan.word_ns <= sys().now_ns()) return rank.error;
  }
  return {};
}

} // namespace

std::string describe(const NodePlan& plan, int rank) {
  return plan.ranks[static_cast<std::size_t>(rank)].membership.describe(rank);
}

int lowest_of(const NodePlan& plan, std::size_t process) {
  const auto found = std::find_if(plan.ranks.begin(), plan.ranks.end(),
                                  [&](const NodeRank& rank) { return rank.process == process; });
  return found->number;
}

void make_ranks(NodePlan& plan) {
  Random& random = world().random();
  const std::size_t processes = 2 + random.below(2);
  const std::size_t ranks = processes + random.below(3);
  plan.heaps.resize(processes);
  plan.infos.resize(ranks);
  plan.ranks = std::vector<NodeRank>(ranks);
  const bool shares_devices = random.chance(50);
  for (std::size_t number = 0; number < ranks; ++number) {
    NodeRank& rank = plan.ranks[number];
    rank.number = static_cast<int>(number);
    rank.process = number < processes ? number : random.below(processes);
    PeerInfo& info = plan.infos[number];
    info.rank = static_cast<std::uint32_t>(number);
    info.process_id = HostKernel::pid_of(rank.process);
    info.process_key = 100 + rank.process;
    info.host_key = info.machine_key = 1;
    info.device_peers = shares_devices;
    info.host_name = {'h', '0'};
    rank.membership.rank = rank.number;
    rank.membership.nranks = static_cast<int>(ranks);
    rank.membership.identity.secret.fill(std::byte{3});
    rank.membership.timeout_ns = kMeetingNs;
    rank.membership.comm_error = &rank.comm_error;
    rank.membership.peers = plan.infos;
  }
  for (NodeRank& rank : plan.ranks) rank.membership.peers = plan.infos;
}

void listen(NodePlan& plan, NodeRank& rank) {
  const SocketAddress address = SocketAddress::unix_name(fmt::format("n{}", rank.number));
  rank.listener = *listen_at(address);
  const auto bytes = address.encode();
  PeerInfo::Address& field = plan.infos[static_cast<std::size_t>(rank.number)].addresses[0];
  field.size = static_cast<std::uint32_t>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), field.bytes.begin());
  ++plan.listening;
  while (plan.listening < plan.ranks.size()) sys().sleep_ns(20'000);
  rank.membership.peers = plan.infos;
  if (plan.word_ns != kNoWordNs) {
    rank.membership.check_others = [&plan] { return check_others(plan); };
  }
}

ShmMeetingPlan meeting_of(const NodePlan& plan, const NodeRank& rank) {
  const auto ranks = static_cast<std::uint64_t>(plan.ranks.size());
  ShmMeetingPlan meeting;
  meeting.membership = &rank.membership;
  for (const NodeRank& one : plan.ranks) meeting.members.push_back(one.number);
  meeting.segment = {.bytes = kMemoryBytes,
                     .backed_bytes = Arena::kPageBytes,
                     .stamp =
                         [ranks](std::byte* memory) {
                           *reinterpret_cast<Header*>(memory) = {.magic = kMagic, .ranks = ranks};
                         },
                     .check = [ranks](const std::byte* memory) -> Status {
                       const Header& header = *reinterpret_cast<const Header*>(memory);
                       if (header.magic == kMagic && header.ranks == ranks) return {};
                       return Status::error(Code::kInternalError, "the memory has no header");
                     }};
  meeting.listener = &rank.listener;
  meeting.heap_fd = plan.heaps[rank.process].get();
  meeting.deadline_ns = sys().now_ns() + kMeetingNs;
  return meeting;
}

} // namespace whorl::simulation
