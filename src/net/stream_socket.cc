#include "net/stream_socket.h"

#include <fmt/core.h>

namespace whorl {
namespace {

std::span<std::byte> bytes_of_part(const iovec& part) noexcept {
  return {static_cast<std::byte*>(part.iov_base), part.iov_len};
}

msghdr message_of(std::span<const iovec> parts) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

} // namespace

// The calls for one part are a little faster.

ssize_t StreamSocket::send_plain(std::span<const iovec> parts) const noexcept {
  if (parts.size() == 1) return sys().send(fd_.get(), bytes_of_part(parts[0]));
  const msghdr message = message_of(parts);
  return sys().sendmsg(fd_.get(), &message);
}

ssize_t StreamSocket::receive_plain(std::span<const iovec> parts) const noexcept {
  if (parts.size() == 1) return sys().recv(fd_.get(), bytes_of_part(parts[0]));
  msghdr message = message_of(parts);
  return sys().recvmsg(fd_.get(), &message);
}

Status changed_on_the_way(std::string_view from, std::string_view to) {
  return Status::error(
      Code::kRemoteError,
      fmt::format("what {} has sent to {} was changed on the way: it does not pass the "
                  "authentication of WHORL_ENCRYPT=1, so nothing of it was used; an attacker or a "
                  "faulty device is between the two",
                  from, to));
}

} // namespace whorl
