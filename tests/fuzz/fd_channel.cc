// Datagrams with descriptors that a rank of the host sends at any time. The first byte is the
// number of descriptors, the second one that of further bytes; the rest is the datagram.
#include "node/fd_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "device/ipc/mapping_message.h"
#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

constexpr std::size_t kMostFds = 253; // of one datagram, by the kernel

/// Sends a datagram as a peer could that does not use FdChannel::send(). Returns whether the kernel
/// takes it.
bool send(int socket, std::span<const std::byte> body, const std::vector<int>& fds) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  iovec piece{.iov_base = const_cast<std::byte*>(body.data()), .iov_len = body.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/// Returns the lowest descriptor that is not open.
int next_descriptor() {
  const Fd next(::dup(STDERR_FILENO));
  return next.get();
}

void check_mappings(std::span<const std::byte> body) {
  const auto message = MappingMessage::decode(body);
  if (!message) return;
  require(message->sizes.size() <= FdChannel::kMaxFds, "a part for each descriptor");
  if (message->sizes.empty()) return;
  require(text_of(message->encode()) == text_of(body), "a message is encoded as decoded");
}

} // namespace

std::vector<std::string> seeds() {
  const MappingMessage message{.rank = 1, .operation = 7, .run = 5, .first = 0, .sizes = {64, 8}};
  const std::string body = text_of(message.encode());
  return {bytes_of(char{2}, char{0}) + body, bytes_of(char{0}, char{0}) + body,
          bytes_of(char{65}, char{1}) + body, bytes_of('\xff', '\xff') + body,
          bytes_of(char{1}, char{0})};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  const std::vector<int> fds(std::min<std::size_t>(input.byte(), kMostFds), STDERR_FILENO);
  const std::size_t more = std::size_t{16} * input.byte();
  std::vector<std::byte> body(input.rest().begin(), input.rest().end());
  body.resize(body.size() + more);
  static FdChannelEnds ends = FdChannelEnds::make();
  static FdChannel receiver(std::move(ends.inbox), {});
  if (!send(ends.outbox.get(), body, fds)) return 0;
  const int next = next_descriptor();
  {
    FdChannel::Message message;
    require(receiver.receive(message) == Progress::kDone, "a message");
    require(message.fds.size() == fds.size() && !message.cut, "its descriptors");
    const bool fits = body.size() <= FdChannel::kMaxBytes;
    require(text_of(message.body()) == (fits ? text_of(body) : ""), "its bytes, or none of many");
    check_mappings(message.body());
  }
  require(next_descriptor() == next, "no descriptor stays open");
  return 0;
}
