#include "node/fd_channel.h"

#include <cerrno>
#include <cstring>

#include "base/received_fds.h"

namespace whorl {

FdChannelEnds FdChannelEnds::make() noexcept {
  std::array<int, 2> fds{};
  if (sys().socket_pair(SOCK_DGRAM, fds) < 0) return {};
  return {.inbox = Fd(fds[0]), .outbox = Fd(fds[1])};
}

Progress FdChannel::send(std::span<const std::byte> body, std::span<const Fd> fds) noexcept {
  if (!sends() || body.size() > kMaxBytes || fds.size() > kMaxFds) return Progress::kFailed;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
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
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  const ssize_t sent = sys().sendmsg(outbox_.get(), &message);
  if (sent >= 0) return Progress::kDone;
  // ETOOMANYREFS: too many descriptors of this user are in flight; ENOBUFS: no memory of the
  // kernel.
  const bool full = sent == -EAGAIN || sent == -ETOOMANYREFS || sent == -ENOBUFS;
  return full ? Progress::kIdle : Progress::kFailed;
}

Progress FdChannel::receive(Message& message) {
  message.size = 0;
  message.fds.clear();
  message.cut = false;
  // Room for as many descriptors as the kernel passes at once, so only this process's limit can cut
  // them, and so that none is lost for want of memory.
  constexpr std::size_t kMost = 253;
  message.fds.reserve(kMost);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMost * sizeof(int))> control;
  iovec piece{.iov_base = message.bytes.data(), .iov_len = message.bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = sys().recvmsg(inbox_.get(), &header);
  if (got == -EAGAIN) return Progress::kIdle;
  if (got < 0) return Progress::kFailed;
  for_each_received_fd(header, [&](int fd) { message.fds.emplace_back(fd); });
  // A longer message than any rank sends is none.
  const bool whole = (header.msg_flags & MSG_TRUNC) == 0;
  message.size = whole ? static_cast<std::size_t>(got) : 0;
  message.cut = (header.msg_flags & MSG_CTRUNC) != 0;
  return Progress::kDone;
}

} // namespace whorl
