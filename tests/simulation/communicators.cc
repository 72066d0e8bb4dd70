#include "simulation/communicators.h"

#include <cstdlib>

#include "transports/tcp/transport.h"

namespace whorl::simulation {
namespace {

constexpr std::uint32_t kChannels = 2; // one for collectives, one for sends and receives
constexpr std::uint32_t kSlots = 2;
constexpr std::size_t kSlotBytes = 128;

Shape shape_of(int ranks) {
  return {.nranks = ranks,
          .channels = static_cast<int>(kChannels) - 1,
          .order = {},
          .groups = {},
          .dims = {}};
}

/// Returns the table of algorithms, which is the same in each run.
const Selector& selector_for(int ranks) {
  static std::vector<std::optional<Selector>> made(kMaxFibres);
  auto& selector = made.at(static_cast<std::size_t>(ranks));
  if (!selector) selector = *Selector::make(shape_of(ranks), LinkCosts{}, "");
  return *selector;
}

} // namespace

CommWorld::CommWorld(int ranks, Fabric fabric, const CommLimits& limits)
    : fabric_(fabric), limits_(limits) {
  network_.fill(false); // control connections have room for all that is sent over them
  if (world().random().chance(25)) network_.delay(80'000'000); // longer than it takes to be stuck
  // The addresses of this machine are not those of the simulated hosts.
  ::setenv("WHORL_HOST_ADDRESS", "10.0.0.1", 1); // NOLINT: there is one thread
  if (fabric == Fabric::kMemory) {
    host_.emplace(HostShape{
        .ranks = ranks, .channels = kChannels, .slots = kSlots, .slot_bytes = kSlotBytes});
  }
  for (int number = 0; number < ranks; ++number) {
    infos_.push_back(info_of(number));
    ranks_.emplace_back().number = number;
  }
}

CommWorld::~CommWorld() {
  // A rank that died may have had locks.
  for (CommRank& rank : ranks_) static_cast<void>(rank.comm.release());
}

PeerInfo CommWorld::info_of(int number) const {
  PeerInfo info;
  info.rank = static_cast<std::uint32_t>(number);
  info.process_id = 2'000'000'000 + info.rank; // of no process of this machine
  info.host_key = fabric_ == Fabric::kMemory ? 1 : 1 + info.rank;
  info.machine_key = info.host_key;
  info.process_key = 100 + info.rank;
  info.host_name = {'h', static_cast<char>('0' + (fabric_ == Fabric::kMemory ? 0 : number))};
  return info;
}

std::string CommWorld::describe(int number) const {
  Membership membership;
  membership.peers = infos_;
  return membership.describe(number);
}

/// Waits for the infos of all ranks; stands for the rendezvous, which another scenario simulates.
Status CommWorld::wait_for_infos() {
  while (met_ < nranks()) {
    sys().sleep_ns(50'000);
    for (const CommRank& rank : ranks_) {
      if (rank.died()) return Status::error(Code::kRemoteError, describe(rank.number) + " died");
    }
  }
  return {};
}

/// Lets a link between two hosts lose what it gets in one direction for a moment, now and then.
void CommWorld::stall_a_link() {
  Random& random = world().random();
  if (fabric_ != Fabric::kTcp || !limits_.links_stall || !random.chance(25)) return;
  stalled_ = true;
  const std::size_t from = random.below(ranks_.size());
  const std::size_t to = (from + 1 + random.below(ranks_.size() - 1)) % ranks_.size();
  const std::uint64_t begin_ns = sys().now_ns() + random.below(50'000'000);
  network_.links().interrupt(from, to, begin_ns, begin_ns + random.below(300'000'000));
}

/// Makes the communicator of a rank.
Status CommWorld::connect(CommRank& rank) {
  Setup setup;
  setup.comm_error = rank.comm_error;
  setup.membership = std::make_unique<Membership>();
  Membership& members = *setup.membership;
  members.rank = rank.number;
  members.nranks = nranks();
  members.channels = static_cast<int>(kChannels);
  members.slots = static_cast<int>(kSlots);
  members.slot_bytes = kSlotBytes;
  members.timeout_ns = limits_.timeout_ns;
  members.comm_error = rank.comm_error.get();
  members.identity.job.fill(std::byte{7});
  if (fabric_ == Fabric::kMemory) {
    setup.transports.push_back(std::make_unique<SimulatedTransport>(*host_));
  } else {
    setup.transports.push_back(std::make_unique<TcpTransport>());
  }
  Transport& transport = *setup.transports.front();
  setup.options.transports.emplace_back(transport.traits().name);
  const auto address = transport.listen(members.identity);
  if (!address.ok()) return address.status();
  PeerInfo::Address& field = infos_[static_cast<std::size_t>(rank.number)].addresses[0];
  field.size = static_cast<std::uint32_t>(address->size());
  std::copy(address->begin(), address->end(), field.bytes.begin());
  ++met_;
  WHORL_TRY(wait_for_infos());
  members.peers = infos_;
  std::vector<int> peers;
  for (int peer = 0; peer < nranks(); ++peer) {
    if (peer != rank.number) peers.push_back(peer);
    setup.transport_of.push_back(peer == rank.number ? -1 : 0);
  }
  WHORL_TRY(transport.connect(members, peers, 0));
  setup.shape = shape_of(nranks());
  setup.selector = selector_for(nranks());
  setup.policy = wait_policy();
  setup.policy.timeout_ns = limits_.timeout_ns;
  setup.policy.block_ns = limits_.block_ns;
  setup.recorder = monitor::Recorder::make({.identity = members.identity,
                                            .info = members.info(rank.number),
                                            .nranks = nranks(),
                                            .name = ""},
                                           8);
  rank.comm = std::make_unique<Communicator>(std::move(setup));
  return {};
}

void CommWorld::run(const std::function<void(CommRank&)>& body,
                    const std::function<void(CommRank&)>& before) {
  for (CommRank& rank : ranks_) {
    rank.fibre = world().add(fmt::format("rank {}", rank.number), [this, &rank, &body, &before] {
      if (before) before(rank);
      rank.error = connect(rank);
      if (rank.error.ok()) {
        if (++connected_ == nranks()) stall_a_link();
        body(rank);
      }
      if (rank.ended_ns == 0) rank.ended_ns = sys().now_ns();
      rank.comm.reset();
    });
    if (host_) host_->fibres.push_back(rank.fibre);
  }
  world().run();
  for (const CommRank& rank : ranks_) {
    world().require(world().scheduler().ended(rank.fibre) || rank.died(),
                    "rank {} has not come to its end", rank.number);
  }
}

} // namespace whorl::simulation
