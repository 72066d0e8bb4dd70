#include "transports/tcp/tuning.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "base/log.h"
#include "base/params.h"
#include "base/printable.h"
#include "base/system.h"
#include "net/address.h"
#include "net/keep_alive.h"

namespace whorl {
namespace {

constexpr int kMinBuffer = 4096;
constexpr int kLargestBuffer = 1 << 30;

// Round-trip time in µs from which a path is long: it leaves the data centre and may be lossy.
constexpr std::uint32_t kLongUs = 1000;

// A firewall between two hosts forgets a connection after some minutes of silence, and drops in
// silence what comes later. Probes come so early that firewalls that wait longer than a minute do
// not forget an idle connection.
constexpr KeepAlive kKeepAlive{.idle_s = 60, .interval_s = 10, .count = 6};

/// Returns the name of a connection's congestion control; empty if the socket is no TCP socket.
std::string congestion_of(int fd) {
  std::array<char, 16> name{}; // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  if (sys().getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) < 0) return {};
  return {name.data(), std::find(name.begin(), name.begin() + size, '\0')};
}

bool is_long(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return sys().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) >= 0 && info.tcpi_rtt >= kLongUs;
}

} // namespace

Result<TcpTuning> TcpTuning::from_environment() {
  TcpTuning tuning;
  tuning.congestion_ = param_text(Param::kTcpCongestion);
  WHORL_TRY(read_param(Param::kTcpBufferBytes, 0, kLargestBuffer, tuning.buffer_bytes_));
  if (tuning.buffer_bytes_ != 0 && tuning.buffer_bytes_ < kMinBuffer) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("WHORL_TCP_BUFFER_BYTES=\"{}\" is less than {}; leave it out, "
                                     "and the system adapts the buffers",
                                     tuning.buffer_bytes_, kMinBuffer));
  }
  return tuning;
}

Status TcpTuning::prepare(int listener) {
  if (congestion_.empty()) {
    const std::string system = congestion_of(listener);
    constexpr const char* kBegin = "cubic";
    if (system.starts_with("bbr") &&
        sys().setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, std::string_view(kBegin)) >= 0) {
      congestion_ = kBegin;
      for_long_paths_ = system;
    }
    return {};
  }
  const int result = sys().setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, congestion_);
  if (result >= 0) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_TCP_CONGESTION=\"{}\" cannot be used: {}; "
                  "/proc/sys/net/ipv4/tcp_available_congestion_control lists what there is, and "
                  "tcp_allowed_congestion_control what any user may choose",
                  printable(congestion_), errno_text(result)));
}

Status TcpTuning::finish(int socket) const {
  if (!for_long_paths_.empty() && is_long(socket)) {
    static_cast<void>(sys().setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, for_long_paths_));
  }
  static_cast<void>(keep_alive(socket, kKeepAlive)); // best effort
  if (buffer_bytes_ == 0) return {};
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    if (const int result = sys().setsockopt(socket, SOL_SOCKET, option, buffer_bytes_);
        result < 0) {
      return Status::error(Code::kSystemError,
                           fmt::format("WHORL_TCP_BUFFER_BYTES={} cannot be used: {}",
                                       buffer_bytes_, errno_text(result)));
    }
    warn_if_cut(socket, option);
  }
  return {};
}

/// Warns once in a process, for each kind of buffer, if the kernel has made one smaller than asked
/// for.
void TcpTuning::warn_if_cut(int socket, int option) const {
  int doubled = 0; // the kernel counts its own overhead, too
  socklen_t size = sizeof doubled;
  if (sys().getsockopt(socket, SOL_SOCKET, option, &doubled, &size) < 0) return;
  static std::atomic<bool> warned_of_send{false}, warned_of_receive{false};
  std::atomic<bool>& warned = option == SO_SNDBUF ? warned_of_send : warned_of_receive;
  if (doubled / 2 >= buffer_bytes_ || warned.exchange(true, std::memory_order_relaxed)) return;
  const char* const limit = option == SO_SNDBUF ? "net.core.wmem_max" : "net.core.rmem_max";
  log(LogLevel::kWarn,
      fmt::format("WHORL_TCP_BUFFER_BYTES={} is cut to {} by {}, and the system adapts the buffers "
                  "no more; raise that with sysctl, or leave the variable out",
                  buffer_bytes_, doubled / 2, limit));
}

} // namespace whorl
