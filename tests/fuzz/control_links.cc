// The control connections of a transport: what peers send there. An input begins with the size of
// pieces; the rest is what one peer sends.
#include "transports/control/links.h"

#include "base/fingerprint.h"
#include "fed_system.h"
#include "input.h"
#include "target.h"
#include "transports/control/exchange.h"
#include "transports/ucx/wire.h"
#include "transports/verbs/wire.h"

namespace whorl::fuzz {
namespace {

constexpr int kFd = 3;

Membership make_members(CommError& comm_error) {
  Membership members;
  members.nranks = 2;
  members.peers.resize(2);
  members.comm_error = &comm_error;
  members.timeout_ns = 1'000'000'000;
  return members;
}

std::vector<MeshLink> make_links() {
  std::vector<MeshLink> links;
  links.push_back({.rank = 1,
                   .role = SocketRole::kControl,
                   .channel = 0,
                   .socket = StreamSocket(Fd(kFd)),
                   .via = ""});
  return links;
}

/// Words and goodbye in the frames of a stream, read in the simplest way.
struct Told {
  std::vector<std::string> words;
  std::string last_words;
  bool goodbye = false, malformed = false;

  explicit Told(Input input) {
    while (input.rest().size() >= sizeof(control::FrameHeader)) {
      const auto header = input.take<control::FrameHeader>();
      malformed = !header.sane();
      if (malformed || input.rest().size() < header.text_bytes) return;
      const std::string text = text_of(input.take(header.text_bytes));
      if (header.kind == static_cast<std::uint16_t>(control::FrameKind::kWord))
        words.push_back(text);
      if (header.kind == static_cast<std::uint16_t>(control::FrameKind::kGoodbye)) {
        goodbye = true;
        last_words = text;
      }
    }
  }
};

void check_frames(Input input, std::size_t piece) {
  FedSystem system;
  const ScopedSystem scope(&system);
  CommError comm_error;
  const Membership members = make_members(comm_error);
  const Told told(input);
  std::vector<std::string> words;
  std::string last_words;
  {
    auto mesh = make_links();
    ControlLinks links;
    require(links.adopt(members, mesh, "TCP").ok(), "adopted");
    system[kFd].in = input.rest();
    system[kFd].piece = piece == 0 ? SIZE_MAX : piece;
    for (std::size_t turns = 0; turns < input.rest().size() + 8; ++turns) {
      links.poll([&](int, std::span<const std::byte> bytes) { last_words = text_of(bytes); },
                 [&](int, std::span<const std::byte> bytes) { words.push_back(text_of(bytes)); });
      if (const auto stuck = links.find_stuck(1)) {
        const std::string text = describe(stuck->fingerprint);
        require(std::none_of(text.begin(), text.end(), is_control), "a printable operation");
      }
    }
    links.judge_deaths(UINT64_MAX);
  }
  constexpr std::size_t kSurelyAccepted = 256;
  if (told.words.size() <= kSurelyAccepted) {
    require(words == told.words, "the words that were sent");
  }
  if (told.goodbye) require(last_words.size() <= control::FrameHeader::kMaxTextBytes, "last words");
  if (told.malformed) require(comm_error.is_set(), "an error about a malformed frame");
  if (comm_error.is_set()) require_error(comm_error.status());
}

/// Requires that a blob is what the peer has sent behind its size, and decodes it in all ways.
void check_blob(Input input, std::size_t piece) {
  FedSystem system;
  const ScopedSystem scope(&system);
  CommError comm_error;
  const Membership members = make_members(comm_error);
  system[kFd].in = input.rest();
  system[kFd].piece = piece == 0 ? SIZE_MAX : piece;
  auto links = make_links();
  const std::vector<std::vector<std::byte>> mine(1);
  const auto blobs = exchange_blobs(members, links, mine);
  if (!blobs.ok()) return require_error(blobs.status());
  const std::vector<std::byte>& blob = blobs->front();
  require(input.take<std::uint32_t>() == blob.size() && blob.size() <= kMaxBlobBytes, "its size");
  require(text_of(input.take(blob.size())) == text_of(blob), "its bytes");
  if (const auto introduced = ucx::read_introduction(blob)) {
    require(introduced->address.size() == blob.size() - sizeof(ucx::Introduction), "an address");
  }
  constexpr std::size_t kChannels = 3;
  if (const auto endpoints = verbs::read_endpoints(blob, kChannels)) {
    require(endpoints->size() == kChannels, "an endpoint for each channel");
    for (const verbs::EndpointAddress& endpoint : *endpoints) {
      for (const verbs::RailAddress& rail : endpoint.rails) {
        require(rail.queue < 1U << 24, "the number of a queue pair");
      }
    }
  }
}

std::string frame(control::FrameKind kind, const std::string& text) {
  control::FrameHeader header;
  header.kind = static_cast<std::uint16_t>(kind);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  return bytes_of(header) + text;
}

} // namespace

std::vector<std::string> seeds() {
  using control::FrameKind;
  const std::string beats = frame(FrameKind::kBeat, "") + frame(FrameKind::kBeatsRead, "");
  const std::string words = frame(FrameKind::kWord, "abc") + frame(FrameKind::kWord, "");
  const std::string stuck = frame(FrameKind::kStuck, bytes_of(StuckOperation()));
  const auto blob = [](const std::string& bytes) {
    return bytes_of(static_cast<std::uint32_t>(bytes.size())) + bytes;
  };
  return {
      bytes_of(char{0}, char{0}) + beats + words + stuck + frame(FrameKind::kGoodbye, "12345678"),
      bytes_of(char{0}, char{5}) + words + frame(FrameKind::kError, "rank 3 died \x1b[31m"),
      bytes_of(char{1}, char{0}) + blob(bytes_of(ucx::Introduction()) + "address"),
      bytes_of(char{1}, char{9}) + blob(bytes_of(std::array<verbs::EndpointAddress, 3>()))};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Input input(data, size);
  const bool blob = (input.byte() & 1) != 0;
  const std::size_t piece = input.byte();
  blob ? check_blob(input, piece) : check_frames(input, piece);
  return 0;
}
