#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>

namespace whorl {

/// Calls `use` with the number of each descriptor that a received message has brought, which `use`
/// may change in the message.
template <class Use>
void for_each_received_fd(msghdr& message, Use&& use) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      unsigned char* const place = CMSG_DATA(c) + i * sizeof fd;
      std::memcpy(&fd, place, sizeof fd);
      use(fd);
      std::memcpy(place, &fd, sizeof fd);
    }
  }
}

} // namespace whorl
