#include "node/fd_mailbox.h"

#include <cerrno>
#include <cstring>

namespace whorl {

FdMailboxEnds FdMailboxEnds::make() noexcept {
  std::array<int, 2> fds{};
  if (sys().socket_pair(SOCK_DGRAM, fds) < 0) return {};
  return {.inbox = Fd(fds[0]), .outbox = Fd(fds[1])};
}

bool FdMailbox::reaches(int rank) const noexcept {
  return static_cast<std::size_t>(rank) < outboxes_.size() &&
         outboxes_[static_cast<std::size_t>(rank)].valid();
}

Progress FdMailbox::send(int rank, std::span<const std::byte> body,
                         std::span<const Fd> fds) noexcept {
  if (!reaches(rank) || body.size() > kMostBytes || fds.size() > kMostFds) return Progress::kFailed;
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
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  const ssize_t sent = sys().sendmsg(outboxes_[static_cast<std::size_t>(rank)].get(), &message);
  if (sent >= 0) return Progress::kDone;
  // The last two: descriptors of this user under way, and memory of the kernel.
  const bool full = sent == -EAGAIN || sent == -ETOOMANYREFS || sent == -ENOBUFS;
  return full ? Progress::kIdle : Progress::kFailed;
}

Progress FdMailbox::receive(Letter& letter) {
  letter.size = 0;
  letter.fds.clear();
  letter.cut = false;
  // Room for more than a rank sends, so that a letter which is cut means this process's limit.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(253 * sizeof(int))> control;
  iovec piece{.iov_base = letter.bytes.data(), .iov_len = letter.bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = sys().recvmsg(inbox_.get(), &message);
  if (got == -EAGAIN) return Progress::kIdle;
  if (got < 0) return Progress::kFailed;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      letter.fds.emplace_back(fd);
    }
  }
  letter.size = static_cast<std::size_t>(got);
  letter.cut = (message.msg_flags & MSG_CTRUNC) != 0;
  return Progress::kDone;
}

} // namespace whorl
