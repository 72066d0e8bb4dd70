// Ranks of several hosts that connect to each other over a network that is late, cuts connections
// at any byte, and has strangers in it.
#include <poll.h>

#include <array>
#include <cerrno>
#include <optional>

#include "net/mesh.h"
#include "simulation/network.h"
#include "simulation/scenario_list.h"
#include "simulation/world.h"
#include "tests/support/identity.h"

namespace whorl::simulation {
namespace {

using test::identity_of;

constexpr std::uint64_t kDeadlineNs = 3'000'000'000;
constexpr std::uint64_t kQuickNs = 1'000'000'000; ///< longest time where nothing goes wrong

SocketAddress address_of(int rank, int number) {
  return SocketAddress::ipv4({10, 0, static_cast<std::uint8_t>(number), 1},
                             static_cast<std::uint16_t>(7000 + rank));
}

/// A rank, with what connect_mesh() returned to it.
struct MeshRank {
  std::vector<Fd> listeners;
  MeshPlan plan;
  std::optional<Result<std::vector<MeshLink>>> result;
  std::uint64_t took_ns = 0;
};

/// Makes the plan of a rank: it connects to all ranks below it, at two addresses of each, and those
/// above it connect to it.
MeshPlan plan_of(int rank, int ranks, const Identity& identity) {
  MeshPlan plan{.rank = rank, .identity = &identity};
  for (int peer = 0; peer < ranks; ++peer) {
    for (const SocketRole role : {SocketRole::kControl, SocketRole::kData}) {
      if (peer < rank) {
        plan.targets.push_back({peer, role, 0, {address_of(peer, 0), address_of(peer, 1)}});
      }
      if (peer > rank) plan.expected.push_back({peer, role, 0});
    }
  }
  return plan;
}

/// Waits until a socket has an event, not for long.
void wait_for_event(int fd, short events) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  sys().poll({&entry, 1}, 10'000'000);
}

/// Sends or receives bytes, as many as come within some tries. Returns their number.
template <class Move>
std::size_t move_bytes(int fd, short events, std::span<std::byte> bytes, Move&& move) {
  std::size_t moved = 0;
  for (int tries = 0; tries < 400 && moved < bytes.size(); ++tries) {
    iovec part{bytes.data() + moved, bytes.size() - moved};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t result = move(fd, &message);
    if (result > 0) moved += static_cast<std::size_t>(result);
    if (result == 0 || (result < 0 && result != -EAGAIN)) break;
    if (result < 0) wait_for_event(fd, events);
  }
  return moved;
}
std::size_t send_bytes(int fd, std::span<std::byte> bytes) {
  return move_bytes(fd, POLLOUT, bytes,
                    [](int to, const msghdr* message) { return sys().sendmsg(to, message); });
}
std::size_t receive_bytes(int fd, std::span<std::byte> bytes) {
  return move_bytes(fd, POLLIN, bytes,
                    [](int from, msghdr* message) { return sys().recvmsg(from, message); });
}

/// Advances a handshake for some steps.
Progress advance(Handshake& handshake) {
  Progress progress = Progress::kIdle;
  for (int i = 0; i < 20 && progress == Progress::kIdle; ++i) {
    progress = handshake.step();
    if (progress == Progress::kAdvanced) {
      handshake.admit();
      progress = Progress::kIdle;
    }
    if (progress == Progress::kIdle) wait_for_event(handshake.fd(), handshake.events());
  }
  return progress;
}

/// Begins a handshake with the name of a member, and goes on with a proof that is made up. Returns
/// whether the rank accepts it.
bool pretend(Handshake& handshake) {
  while (handshake.events() == POLLOUT && handshake.step() != Progress::kFailed) {
    wait_for_event(handshake.fd(), POLLOUT);
  }
  const Fd socket = handshake.take().take();
  std::array<std::byte, 108> challenge{};
  if (!socket.valid() || receive_bytes(socket.get(), challenge) < challenge.size()) return false;
  std::array<std::byte, 36> proof{};
  send_bytes(socket.get(), proof);
  std::array<std::byte, 4> answer{};
  return receive_bytes(socket.get(), answer) == answer.size() && answer[0] == std::byte{0};
}

/// Connects to ranks, and does what no member does: is silent, names another job, rank or role,
/// makes up a proof, or has other secrets.
void be_a_stranger(int ranks, const Identity& member) {
  std::vector<Fd> silent;
  for (std::uint64_t visits = world().random().below(6); visits > 0; --visits) {
    sys().sleep_ns(world().random().below(2'000'000));
    const int rank = static_cast<int>(world().random().below(static_cast<std::uint64_t>(ranks)));
    const SocketAddress to = address_of(rank, 0);
    Fd socket(sys().socket(AF_INET, SOCK_STREAM));
    if (sys().connect(socket.get(), to.data(), to.size()) == -ECONNREFUSED) continue;
    Identity identity = member;
    ConnectionName name{.from = static_cast<std::uint32_t>(ranks - 1),
                        .to = static_cast<std::uint32_t>(rank),
                        .role = SocketRole::kData};
    bool pretends = false;
    switch (world().random().below(6)) {
      case 0:
        silent.push_back(std::move(socket));
        continue;
      case 1:
        identity.job = identity_of(9, 0).job;
        break;
      case 2:
        identity.secret = identity_of(0, 9).secret;
        break;
      case 3:
        ++name.to;
        break;
      case 4:
        name.role = SocketRole::kBootstrap;
        break;
      default:
        pretends = true;
        identity.secret = identity_of(0, 9).secret; // a step may go on to a proof
    }
    Handshake handshake = Handshake::connecting(std::move(socket), identity, name);
    world().require(!(pretends ? pretend(handshake) : advance(handshake) == Progress::kDone),
                    "rank {} lets a stranger in", rank);
  }
}

/// Listens at the second address of rank 0, without its secret.
void be_an_impostor(const Identity& member) {
  const Result<Fd> listener = listen_at(address_of(0, 1));
  std::vector<Fd> kept;
  for (int i = 0; i < 20; ++i) {
    wait_for_event(listener->get(), POLLIN);
    Fd socket(sys().accept(listener->get()));
    if (!socket.valid()) continue;
    Identity identity = member;
    identity.secret = identity_of(0, 9).secret;
    // Sends a challenge with a wrong proof, and accepts any proof of the other side.
    Handshake handshake = Handshake::accepting(std::move(socket), identity, 0);
    bool greeted = false;
    for (int steps = 0; steps < 40 && !(greeted && handshake.events() == POLLIN); ++steps) {
      if (handshake.step() == Progress::kAdvanced) {
        greeted = true;
        handshake.admit();
        continue;
      }
      wait_for_event(handshake.fd(), handshake.events());
    }
    Fd taken = handshake.take().take();
    std::array<std::byte, 36> proof{};
    if (!taken.valid() || receive_bytes(taken.get(), proof) < proof.size()) continue;
    std::array<std::byte, 4> accepted{};
    send_bytes(taken.get(), accepted);
    kept.push_back(std::move(taken));
  }
}

/// Sends a few bytes over each link at once, and requires those of the other end: no byte after the
/// handshake is lost.
void exchange_tokens(const MeshRank& rank) {
  for (const MeshLink& link : **rank.result) {
    std::array<std::byte, 2> token{static_cast<std::byte>(rank.plan.rank),
                                   static_cast<std::byte>(link.role)};
    send_bytes(link.socket.get(), token);
  }
  for (const MeshLink& link : **rank.result) {
    std::array<std::byte, 2> token{};
    const std::size_t got = receive_bytes(link.socket.get(), token);
    world().require(got == token.size() && token[0] == static_cast<std::byte>(link.rank) &&
                        token[1] == static_cast<std::byte>(link.role),
                    "rank {} gets {} bytes, of rank {}, over its link to rank {}", rank.plan.rank,
                    got, static_cast<int>(token[0]), link.rank);
  }
}

/// Requires that the two ends of each connection are links of the same name.
void check_links(const Network& network, std::span<MeshRank> ranks) {
  for (const MeshRank& rank : ranks) {
    for (const MeshLink& link : **rank.result) {
      const int other = network.other_end(link.socket.get());
      bool paired = false;
      for (const MeshLink& back : **ranks[static_cast<std::size_t>(link.rank)].result) {
        paired |= back.socket.get() == other && back.rank == rank.plan.rank &&
                  back.role == link.role && back.channel == link.channel;
      }
      world().require(paired, "the link of rank {} to rank {} has no link at its other end",
                      rank.plan.rank, link.rank);
    }
  }
}

} // namespace

void run_mesh() {
  Network network;
  const ScopedSystem replaced(&network);
  const int count = 2 + static_cast<int>(world().random().below(2));
  const Identity identity = identity_of(1, 2);
  const bool dies = world().random().chance(30);
  const bool cuts = !dies && world().random().chance(50);
  if (cuts) network.cut(3, 160, false);
  const bool impostor = !dies && !cuts && world().random().chance(30);
  const bool quiet = !dies && !cuts && !impostor;
  std::vector<MeshRank> ranks(static_cast<std::size_t>(count));
  for (int number = 0; number < count; ++number) {
    MeshRank& rank = ranks[static_cast<std::size_t>(number)];
    rank.plan = plan_of(number, count, identity);
    world().add(fmt::format("rank {}", number), [&rank, number, impostor, quiet] {
      sys().sleep_ns(
          world().random().below(world().random().one_of<std::uint64_t>(100'000, 20'000'000)));
      for (const int address : {0, 1}) {
        if (impostor && number == 0 && address == 1) break;
        rank.listeners.push_back(*listen_at(address_of(number, address)));
      }
      const std::uint64_t began = sys().now_ns();
      rank.plan.deadline_ns = began + kDeadlineNs;
      rank.result = connect_mesh(rank.listeners, rank.plan);
      rank.took_ns = sys().now_ns() - began;
      if (quiet && rank.result->ok()) exchange_tokens(rank);
    });
  }
  world().add("stranger",
              [&] { impostor ? be_an_impostor(identity) : be_a_stranger(count, identity); });
  const std::size_t victim = world().random().below(static_cast<std::uint64_t>(count));
  if (dies) world().scheduler().kill_at(victim, 1 + world().random().below(120));
  world().run();
  if (!world().failure().empty()) return;

  const bool died = dies && world().scheduler().died(victim);
  bool all_well = true;
  for (std::size_t number = 0; number < ranks.size(); ++number) {
    const MeshRank& rank = ranks[number];
    if (died && number == victim) continue;
    world().require(rank.result.has_value(), "rank {} has not come to its end", number);
    if (!rank.result) return;
    world().require(rank.took_ns < (quiet ? kQuickNs : kDeadlineNs + 100'000'000),
                    "rank {} took {} ms", number, rank.took_ns / 1'000'000);
    if (!rank.result->ok()) {
      all_well = false;
      const std::string& why = rank.result->status().message();
      // A cut may come when the peer has all its connections and listens no more.
      world().require(!quiet, "rank {} fails: {}", number, why);
      if (died) {
        world().require(why.find(fmt::format("rank {} ", victim)) != std::string::npos,
                        "the error does not name rank {}, which died: {}", victim, why);
      }
      continue;
    }
    for (const MeshLink& link : **rank.result) {
      world().require(link.socket.valid(), "rank {} has no link to rank {}", number, link.rank);
      if (!link.socket.valid()) return;
      const std::size_t fibre = network.led_to(link.socket.get());
      world().require(fibre == static_cast<std::size_t>(link.rank),
                      "the link of rank {} to rank {} leads to fibre {}", number, link.rank, fibre);
    }
  }
  if (all_well && quiet) check_links(network, ranks);
  ranks.clear(); // closes sockets of this network
}

} // namespace whorl::simulation
