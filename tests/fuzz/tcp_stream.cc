// The stream of a data connection: headers and payloads. The first byte gives the size of pieces,
// the second one how receivers post buffers; the rest is what the peer sends.
#include <memory>
#include <optional>

#include "fed_system.h"
#include "input.h"
#include "target.h"
#include "transports/tcp/endpoint.h"

namespace whorl::fuzz {
namespace {

constexpr int kFd = 3;
constexpr int kSlots = 2;
constexpr std::size_t kSlotBytes = 256;

struct Judge final : FailureJudge {
  Progress connection_lost(int, int, bool) noexcept override {
    lost = true;
    return Progress::kFailed;
  }
  void malformed(int, const char* what) noexcept override { complaint = what; }
  bool lost = false;
  std::string complaint;
};

/// A simple reader of the same stream, with which the endpoint must agree.
class Reader {
 public:
  explicit Reader(Input input) : input_(input) {}
  struct Next {
    tcp::MessageHeader header;
    std::span<const std::byte> payload;
  };
  /// Returns the next message; nothing where the stream ends or is malformed.
  std::optional<Next> next() {
    if (input_.rest().size() < sizeof(tcp::MessageHeader)) return {};
    Next next;
    next.header = input_.take<tcp::MessageHeader>();
    malformed_ = next.header.magic != tcp::MessageHeader::kMagic ||
                 next.header.bytes > kSlotBytes || next.header.number != number_++;
    if (malformed_ || input_.rest().size() < next.header.bytes) return {};
    next.payload = input_.take(next.header.bytes);
    return next;
  }
  bool malformed() const { return malformed_; }

 private:
  Input input_;
  std::uint64_t number_ = 0;
  bool malformed_ = false;
};

} // namespace

std::vector<std::string> seeds() {
  std::string stream;
  std::uint64_t number = 0;
  for (const std::uint32_t bytes : {0U, 1U, 40U, 256U, 7U}) {
    tcp::MessageHeader header;
    header.bytes = bytes;
    header.fingerprint.sequence = 7;
    header.number = number++;
    stream += bytes_of(header) + std::string(bytes, static_cast<char>('a' + number));
  }
  return {bytes_of(char{0}, char{0}) + stream, bytes_of(char{1}, char{1}) + stream,
          bytes_of(char{33}, char{3}) + stream};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  const std::size_t piece = input.byte();
  const std::uint8_t posts = input.byte();
  FedSystem system;
  const ScopedSystem scope(&system);
  system[kFd] = {.in = input.rest(), .piece = piece == 0 ? SIZE_MAX : piece};
  Judge judge;
  const std::size_t bytes = TcpEndpoint::memory_bytes(kSlots, kSlotBytes);
  std::vector<std::byte> memory(bytes + 64);
  const std::size_t ahead = -reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  TcpEndpoint endpoint(StreamSocket(Fd(kFd)), 1, kSlots, kSlotBytes,
                       std::span(memory).subspan(ahead, bytes), judge);
  Reader reader(input);
  for (int i = 0; !judge.lost && judge.complaint.empty(); ++i) {
    const auto expected = reader.next();
    // A posted buffer is written only if size and fingerprint are the expected ones.
    const bool fits = expected && (posts >> i % 8 & 1) != 0;
    constexpr std::byte kUntouched{0xee};
    std::vector<std::byte> posted(expected ? expected->payload.size() + (fits ? 0 : 1) : 8,
                                  kUntouched);
    Message message;
    while (!message && !judge.lost && judge.complaint.empty()) {
      endpoint.post_recv(posted, expected ? expected->header.fingerprint : Fingerprint());
      message = endpoint.try_peek();
    }
    require(static_cast<bool>(message) == expected.has_value(), "a message where there is one");
    if (!expected) break;
    require(message.bytes == expected->payload.size(), "the size of the message");
    require(std::equal(expected->payload.begin(), expected->payload.end(), message.data),
            "the bytes of the message");
    require(message.fingerprint == expected->header.fingerprint, "its fingerprint");
    require(fits || posted.empty() || posted.back() == kUntouched, "writes only what is expected");
    endpoint.release();
  }
  require(reader.malformed() == !judge.complaint.empty(), "a complaint about a malformed header");
  return 0;
}
