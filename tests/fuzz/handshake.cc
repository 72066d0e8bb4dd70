// Each side of the handshake against a peer that sends any bytes. The first byte chooses side,
// encryption and size of pieces; the rest is what the peer sends.
#include "net/handshake.h"

#include "fed_system.h"
#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

constexpr int kFd = 3;

Identity identity() {
  Identity identity;
  identity.job.fill(std::byte{1});
  identity.secret.fill(std::byte{2});
  return identity;
}

Handshake start(bool accepting, bool encrypts) {
  if (accepting) return Handshake::accepting(Fd(kFd), identity(), 5, encrypts);
  return Handshake::connecting(Fd(kFd), identity(), {3, 5, SocketRole::kData, 1}, encrypts);
}

/// Runs one side to its end. Returns whether it takes the peer for authenticated.
bool run(FedSystem& system, Handshake& side) {
  for (;;) {
    switch (side.step()) {
      case Progress::kAdvanced:
        require(side.name().to == 5, "the name of this rank");
        require(side.name().role >= SocketRole::kBootstrap && side.name().role <= SocketRole::kShm,
                "a role that there is");
        side.admit();
        break;
      case Progress::kDone:
        return true;
      case Progress::kFailed:
        require(side.failure() != HandshakeFailure::kNone, "a reason");
        require_error(side.status());
        return false;
      case Progress::kIdle:
        if (system[kFd].in.empty() && !system[kFd].ends) return false;
    }
  }
}

/// Returns what the other side of a good handshake sends. Random bytes are always the same ones,
/// so this is the only answer that a peer which does not know the secret could repeat.
std::vector<std::byte> good_bytes(bool of_connecting, bool encrypts) {
  FedSystem system;
  const ScopedSystem scope(&system);
  std::array<std::vector<std::byte>, 2> sent; // by accepting
  for (int round = 0; round < 3; ++round) {   // each lets one more message through
    for (const bool accepting : {false, true}) {
      system[kFd] = {.in = sent[accepting ? 0 : 1], .ends = false};
      Handshake side = start(accepting, encrypts);
      run(system, side);
      sent[accepting ? 1 : 0] = system[kFd].out;
    }
  }
  return sent[of_connecting ? 0 : 1];
}

/// Returns whether two streams are equal but for bytes without a meaning: those behind the first
/// byte of the last two messages.
bool same(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t ignored) {
  if (a.size() < b.size()) return false;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (a[i] != b[i] && (i <= ignored || i > ignored + 3)) return false;
  }
  return true;
}

} // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (int choice = 0; choice < 4; ++choice) {
    for (const int pieces : {0, 4, 52}) {
      all.push_back(static_cast<char>(pieces + choice) +
                    text_of(good_bytes((choice & 1) != 0, (choice & 2) != 0)));
    }
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  static const std::array<std::vector<std::byte>, 2> good[2] = {
      {good_bytes(false, false), good_bytes(true, false)},
      {good_bytes(false, true), good_bytes(true, true)}};
  Input input(data, size);
  const std::uint8_t choice = input.byte();
  const bool accepting = (choice & 1) != 0;
  const bool encrypts = (choice & 2) != 0;
  FedSystem system;
  const ScopedSystem scope(&system);
  system[kFd] = {.in = input.rest(), .piece = choice < 4 ? SIZE_MAX : choice / 4U};
  Handshake side = start(accepting, encrypts);
  if (!run(system, side)) return 0;
  const std::size_t first = accepting ? 104 : 108; // bytes of a hello, and of a challenge
  require(same(input.rest(), good[encrypts ? 1 : 0][accepting ? 1 : 0], first),
          "only the holder of the secret is let in");
  return 0;
}
