// The messages of the ranks of a host, which carry descriptors. The first byte chooses the decoder
// and the number of descriptors; the rest is what another process sends.
#include "fed_system.h"
#include "input.h"
#include "node/fd_message.h"
#include "node/offer.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

constexpr std::array kMembers{0, 2, 3, 7};

void check_hello(std::span<const std::byte> body, std::size_t fds) {
  const auto hello = NodeHello::decode(body, fds);
  if (!hello) return;
  require(hello->heap == (fds == 1), "a heap has a descriptor");
  require(text_of(hello->encode()) == text_of(body), "a hello is encoded as decoded");
}

void check_offer(std::span<const std::byte> body, std::size_t fds) {
  const auto offer = NodeOffer::decode(body, fds, kMembers);
  if (!offer) return;
  require(std::none_of(offer->reason.begin(), offer->reason.end(), is_control), "printable");
  require(offer->failed ? offer->entries.empty() : offer->entries.size() + 1 == fds,
          "an entry for each descriptor but the first one");
  for (const NodeOffer::Entry& entry : offer->entries) {
    require(std::binary_search(kMembers.begin(), kMembers.end(), entry.rank), "a rank of the host");
  }
  const auto again = NodeOffer::decode(offer->encode(), fds, kMembers);
  require(again && again->failed == offer->failed && again->reason == offer->reason &&
              again->entries == offer->entries,
          "an offer is encoded as decoded");
}

/// Requires that a whole message without descriptors is that of a sender of its body.
void check_message(std::span<const std::byte> bytes, std::size_t piece) {
  constexpr int kFd = 3;
  FedSystem system;
  const ScopedSystem scope(&system);
  system[kFd] = {.in = bytes, .piece = piece + 1};
  FdMessageReceiver receiver;
  Progress progress = Progress::kIdle;
  while (progress == Progress::kIdle) progress = receiver.step(kFd);
  require(receiver.body().size() <= kMaxMessageBytes, "a body within the limit");
  if (progress == Progress::kFailed) return;
  require(receiver.fds().empty(), "no descriptors");
  FdMessageSender sender(receiver.body(), {});
  require(sender.step(kFd) == Progress::kDone, "sent");
  const std::string sent = text_of(system[kFd].out);
  require(text_of(bytes).starts_with(sent), "a message is encoded as decoded");
}

} // namespace

std::vector<std::string> seeds() {
  const NodeHello hello{.heap = true};
  NodeOffer offer;
  offer.entries = {{FdKind::kHeap, 0}, {FdKind::kPidfd, 2}, {FdKind::kOutbox, 7}};
  FedSystem system;
  const ScopedSystem scope(&system);
  FdMessageSender sender(hello.encode(), {});
  sender.step(3);
  return {
      char{0} + (char{1} + text_of(hello.encode())), char{1} + (char{4} + text_of(offer.encode())),
      char{1} + (char{0} + text_of(NodeOffer::failure("no memory \x1b[31m").encode())),
      char{2} + (char{0} + text_of(system[3].out)), char{2} + (char{6} + text_of(system[3].out))};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Input input(data, size);
  const std::uint8_t choice = input.byte();
  const std::size_t number = input.byte();
  switch (choice % 3) {
    case 0:
      check_hello(input.rest(), number);
      break;
    case 1:
      check_offer(input.rest(), number);
      break;
    default:
      check_message(input.rest(), number);
  }
  return 0;
}
