#include "net/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/system.h"

namespace whorl {

int keep_alive(int socket, const KeepAlive& terms) noexcept {
  int result = sys().setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  const auto set = [&](int option, int value) {
    if (result >= 0) result = sys().setsockopt(socket, IPPROTO_TCP, option, value);
  };
  set(TCP_KEEPIDLE, terms.idle_s);
  set(TCP_KEEPINTVL, terms.interval_s);
  set(TCP_KEEPCNT, terms.count);
  if (terms.unacknowledged_s > 0) set(TCP_USER_TIMEOUT, terms.unacknowledged_s * 1000);
  return result;
}

} // namespace whorl
