#include "node/fd_message.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/received_fds.h"

namespace whorl {
namespace {

constexpr std::uint32_t kMagic = 0x4c435057; // "WPCL"
constexpr std::size_t kFdsAtOnce = 250;
constexpr std::size_t kControlBytes = CMSG_SPACE(253 * sizeof(int));

} // namespace

FdMessageSender::FdMessageSender(std::span<const std::byte> body, std::vector<int> fds)
    : fds_(std::move(fds)) {
  ByteWriter out;
  out.put(kMagic);
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put(static_cast<std::uint32_t>(fds_.size()));
  out.put_bytes(body);
  bytes_ = out.bytes();
}

Progress FdMessageSender::step(int socket) noexcept {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  std::array<std::byte, kFdsAtOnce> carriers{};
  while (bytes_sent_ < bytes_.size() || fds_sent_ < fds_.size()) {
    const bool body = bytes_sent_ < bytes_.size();
    const std::size_t batch = body ? 0 : std::min(kFdsAtOnce, fds_.size() - fds_sent_);
    iovec piece{.iov_base = body ? bytes_.data() + bytes_sent_ : carriers.data(),
                .iov_len = body ? bytes_.size() - bytes_sent_ : batch};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (batch > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(batch * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(batch * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds_.data() + fds_sent_, batch * sizeof(int));
    }
    const ssize_t sent = sys().sendmsg(socket, &message);
    if (sent == -EAGAIN || sent == -ETOOMANYREFS) return Progress::kIdle;
    if (sent < 0) {
      error_ = static_cast<int>(sent);
      return Progress::kFailed;
    }
    if (body) {
      bytes_sent_ += static_cast<std::size_t>(sent);
    } else {
      // The kernel takes so few bytes whole. If it took only some of them, all descriptors would
      // have gone with these.
      if (static_cast<std::size_t>(sent) != batch) {
        error_ = -EPROTO;
        return Progress::kFailed;
      }
      fds_sent_ += batch;
    }
  }
  return Progress::kDone;
}

Progress FdMessageReceiver::fail(int error) noexcept {
  error_ = error;
  fds_.clear();
  return Progress::kFailed;
}

Progress FdMessageReceiver::step(int socket) {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  std::array<std::byte, kFdsAtOnce> carriers;
  for (;;) {
    // The part that is received next: first the header, then the body, then descriptors.
    std::span<std::byte> target;
    if (received_ < header_.size()) {
      target = std::span(header_).subspan(received_);
    } else if (received_ < header_.size() + body_.size()) {
      target = std::span(body_).subspan(received_ - header_.size());
    } else {
      const std::size_t carried = received_ - header_.size() - body_.size();
      if (carried == wanted_fds_)
        return fds_.size() == wanted_fds_ ? Progress::kDone : fail(-EPROTO);
      target = std::span(carriers).first(std::min(carriers.size(), wanted_fds_ - carried));
    }
    iovec piece{.iov_base = target.data(), .iov_len = target.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = sys().recvmsg(socket, &message);
    if (got == -EAGAIN) return Progress::kIdle;
    if (got < 0) return fail(static_cast<int>(got));
    for_each_received_fd(message, [&](int fd) { fds_.emplace_back(fd); });
    // The kernel has cut the control data, because this process may not open as many descriptors.
    if ((message.msg_flags & MSG_CTRUNC) != 0) return fail(-EMFILE);
    if (got == 0) return fail(0);
    if (fds_.size() > wanted_fds_) return fail(-EPROTO);
    received_ += static_cast<std::size_t>(got);
    if (received_ == header_.size() && body_.empty()) {
      ByteReader in(header_);
      const auto magic = in.get<std::uint32_t>();
      const auto bytes = in.get<std::uint32_t>();
      wanted_fds_ = in.get<std::uint32_t>();
      if (magic != kMagic || bytes > kMaxMessageBytes || wanted_fds_ > kMaxMessageFds) {
        return fail(-EPROTO);
      }
      body_.resize(bytes);
    }
  }
}

} // namespace whorl
