// The root of a rendezvous of which the members, who know the secret, send any messages. An input
// is a sequence of records: connection, size of pieces, header of a contribution, body.
#include <memory>

#include "bootstrap/root_connections.h"
#include "fed_system.h"
#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

using bootstrap::Answer;
using bootstrap::Contribution;
using bootstrap::ContributionKind;

constexpr int kConnections = 4;
constexpr int kFirstFd = 10;

/// Makes a well-formed record out of any bytes: few ranks and small contributions, so that inputs
/// cost no memory.
Contribution tame(Contribution header, int connection) {
  if (header.magic == 0) header.magic = Contribution::kMagic;
  if (header.rank > 8) header.rank = static_cast<std::uint32_t>(connection);
  if (header.sane() && header.kind == ContributionKind::kData) {
    header.nranks = (header.nranks - 1) % 8 + 1;
    header.bytes %= 64;
  }
  return header;
}

/// Requires that a rank can take what the root has sent: answers to all-gathers, or one error.
void check_answers(std::span<const std::byte> sent) {
  while (!sent.empty()) {
    Answer answer;
    require(sent.size() >= sizeof answer, "whole answers");
    std::memcpy(&answer, sent.data(), sizeof answer);
    sent = sent.subspan(sizeof answer);
    require(answer.sane(answer.round, answer.bytes), "an answer that ranks accept");
    require(answer.bytes <= sent.size(), "an answer with its bytes");
    if (answer.code != 0) {
      require_error(
          Status::error(static_cast<Code>(answer.code), text_of(sent.first(answer.bytes))));
    }
    sent = sent.subspan(answer.bytes);
    require(answer.code == 0 || sent.empty(), "nothing after an error");
  }
}

} // namespace

std::vector<std::string> seeds() {
  const auto record = [](char connection, ContributionKind kind, std::string body = "",
                         std::uint32_t round = 0) {
    Contribution header;
    header.rank = static_cast<std::uint32_t>(connection);
    header.nranks = 2;
    header.round = round;
    header.bytes = static_cast<std::uint32_t>(body.size());
    header.timeout_ms = 1000;
    header.kind = kind;
    header.code = kind == ContributionKind::kFailed ? 2 : 0;
    std::memcpy(header.who.data(), "host node7, pid 42", 19);
    return bytes_of(connection, char{0}, header) + body;
  };
  const auto data = ContributionKind::kData;
  const std::string met = record(0, data) + record(1, data);
  return {met + record(1, data, "abcdefgh", 1) + record(0, data, "ABCDEFGH", 1) +
              record(0, ContributionKind::kLeaving) + record(1, ContributionKind::kLeaving),
          met + record(1, ContributionKind::kFailed, "no memory \x1b[31m"),
          record(0, ContributionKind::kFailed, "no transport"), record(2, data) + record(3, data)};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  FedSystem system;
  const ScopedSystem scope(&system);
  bootstrap::Root root(1'000'000);
  require(root.prepare().ok(), "a salt");
  std::vector<bool> known(kConnections);
  while (!input.empty() && !root.finished()) {
    const int connection = input.byte() % kConnections;
    const std::size_t piece = input.byte();
    const Contribution header = tame(input.take<Contribution>(), connection);
    const bool has_body = header.kind != ContributionKind::kLeaving;
    std::string bytes = bytes_of(header);
    if (has_body) bytes += text_of(input.take(std::min<std::size_t>(header.bytes, 4096)));
    const int fd = kFirstFd + connection;
    system[fd].in = std::as_bytes(std::span(bytes));
    system[fd].piece = piece == 0 ? SIZE_MAX : piece;
    system[fd].ends = false;
    if (!known[static_cast<std::size_t>(connection)]) {
      known[static_cast<std::size_t>(connection)] = true;
      root.welcome(static_cast<std::uint32_t>(connection), StreamSocket(Fd(fd)));
    }
    for (std::size_t turns = 0; !system[fd].in.empty() && turns < 2 * bytes.size(); ++turns) {
      std::vector<pollfd> fds;
      std::uint64_t wake = UINT64_MAX;
      root.add_to(fds, &wake);
      for (pollfd& entry : fds) entry.revents = POLLIN;
      root.serve(fds);
    }
    system[fd].in = {}; // of a connection that has been dropped
  }
  for (int i = 0; i < kConnections; ++i) check_answers(system[kFirstFd + i].out);
  return 0;
}
