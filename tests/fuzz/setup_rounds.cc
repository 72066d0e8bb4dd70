// What ranks exchange before they are connected: infos, rank 0's decisions, reports. The first byte
// chooses the round; the rest is what the other ranks send.
#include "comm/arrangement.h"
#include "comm/decisions.h"
#include "comm/rank_info.h"
#include "comm/setup_round.h"
#include "input.h"
#include "target.h"
#include "transports/control/ports.h"
#ifdef WHORL_HAVE_VERBS
#include "transports/verbs/rails.h"
#endif

namespace whorl::fuzz {
namespace {

constexpr int kRanks = 3;

/// Exchange in which the other ranks send the bytes of an input.
class FedOob final : public Oob {
 public:
  explicit FedOob(Input& input) : input_(input) {}
  Status allgather(std::span<const std::byte>, std::span<std::byte> all) override {
    const auto given = input_.take(all.size());
    std::copy(given.begin(), given.end(), all.begin());
    return {};
  }
  Status check() override { return {}; }

 private:
  Input& input_;
};

std::vector<PeerInfo> good_peers() {
  std::vector<PeerInfo> peers(kRanks);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    peers[rank].rank = rank;
    peers[rank].host_key = peers[rank].machine_key = 1 + rank / 2;
    peers[rank].process_key = rank;
    peers[rank].version = kWireVersion;
    peers[rank].channels = 3;
    std::memcpy(peers[rank].host_name.data(), "node7", 6);
    std::vector<std::byte> address{std::byte{1}};
    const auto encoded =
        SocketAddress::ipv4({10, 0, 0, 7}, static_cast<std::uint16_t>(4000 + rank)).encode();
    address.insert(address.end(), encoded.begin(), encoded.end());
    peers[rank].addresses[0].size = static_cast<std::uint32_t>(address.size());
    std::copy(address.begin(), address.end(), peers[rank].addresses[0].bytes.begin());
  }
  return peers;
}

Membership good_members() {
  Membership members;
  members.nranks = kRanks;
  members.peers = good_peers();
  members.channels = 3;
  members.slots = 16;
  return members;
}

Decisions good_decisions() {
  Membership members = good_members();
  members.slot_bytes = 65536;
  return *decide(members, {}, {}, [](int, std::size_t) { return std::size_t{0}; });
}

void check_infos(std::vector<PeerInfo> peers) {
  Setup setup;
  setup.comm_error = std::make_shared<CommError>();
  const Status made = make_membership(setup, std::move(peers), {}, 1);
  if (!made.ok()) return require_error(made);
  const Membership& members = *setup.membership;
  require(members.slots >= 2 && members.slots <= 1024 && members.channels >= 1, "slots, channels");
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string name = members.describe(rank);
    require(std::none_of(name.begin(), name.end(), is_control), "a printable name");
    require(members.info(rank).addresses[0].size <= kMaxAddressBytes, "an address that fits");
    const auto addresses = PeerPorts().outer_addresses(members.info(rank), 0);
    if (!addresses.ok()) require_error(addresses.status());
#ifdef WHORL_HAVE_VERBS
    const auto rails = verbs::rails_between(members.info(0), members.info(rank), 0);
    for (const verbs::RailPorts& rail : rails) {
      require(rail.own < verbs::kMaxRails && rail.peers < verbs::kMaxRails, "ports of a rail");
    }
#endif
  }
  const Arrangement found = arrange(members.peers);
  std::vector<int> order = found.order;
  std::sort(order.begin(), order.end());
  require(order.empty() || order == std::vector<int>{0, 1, 2}, "an order of all ranks");
  describe(found, members.peers);
  topology_digest(members.peers);
}

void check_decisions(const Decisions& decisions) {
  const Membership members = good_members();
  const Status checked = check(decisions, members);
  if (!checked.ok()) return require_error(checked);
  require(decisions.memory.slots >= 2 && decisions.memory.slots <= 16, "slots");
  require(decisions.memory.slot_bytes >= 64 && decisions.memory.slot_bytes < 1 << 30, "slot bytes");
  require(decisions.memory.channels <= 3, "channels");
  const auto shape = shape_of(decisions, members);
  require(shape.ok() && shape->nranks == kRanks, "a shape");
  require(!name_of(decisions.links.outermost().scope).empty(), "the name of a level");
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (!decisions.selector.has(collective)) continue;
    for (std::size_t bytes = 1; bytes != 0; bytes <<= 1) {
      require(decisions.selector.pick(collective, bytes).collective == collective, "an algorithm");
    }
  }
}

/// Requires that a round gives either a content of each rank or an error that may be shown.
template <class Content>
Result<std::vector<Content>> round(Input& input) {
  FedOob oob(input);
  auto contents = exchange(oob, kRanks, SetupReport<Content>());
  if (!contents.ok()) {
    require_error(contents.status());
    require(contents.status().code() >= Code::kCudaError &&
                contents.status().code() <= Code::kRemoteError,
            "the code of an error");
  }
  return contents;
}

template <class Content>
std::string reports(const std::vector<Content>& contents, const Status& status = {}) {
  std::string all;
  for (const Content& content : contents) {
    SetupReport<Content> report;
    report.content = content;
    report.set(status);
    all += bytes_of(report);
  }
  return all;
}

} // namespace

std::vector<std::string> seeds() {
  const std::vector<Decisions> decisions(kRanks, good_decisions());
  return {char{0} + reports(good_peers()), char{1} + reports(decisions),
          char{2} + reports(std::vector<Nothing>(kRanks)),
          char{2} + reports(std::vector<Nothing>(kRanks),
                            Status::error(Code::kSystemError, "no memory \x1b[31m"))};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  switch (input.byte() % 3) {
    case 0:
      if (auto peers = fuzz::round<PeerInfo>(input); peers.ok()) check_infos(*std::move(peers));
      break;
    case 1:
      if (const auto all = fuzz::round<Decisions>(input); all.ok()) check_decisions(all->front());
      break;
    default:
      static_cast<void>(fuzz::round<Nothing>(input));
  }
  return 0;
}
