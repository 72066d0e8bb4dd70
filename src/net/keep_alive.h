#pragma once

namespace whorl {

/// Probes by which the kernel finds out that the host of a silent TCP peer has vanished.
struct KeepAlive {
  int idle_s;     ///< silence before the first probe
  int interval_s; ///< time between probes
  int count;      ///< number of probes without an answer that end the connection
  /// Time after which bytes that the peer has not acknowledged end the connection; 0: the kernel's.
  int unacknowledged_s = 0;
};

/// Turns the probes on. Returns −errno if the kernel refuses; sockets that are not TCP's need none,
/// and are refused.
int keep_alive(int socket, const KeepAlive& terms) noexcept;

} // namespace whorl
