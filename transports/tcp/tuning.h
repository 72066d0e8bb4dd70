#pragma once

#include <string>

#include "base/status.h"

namespace whorl {

/// Settings of the sockets for data, from WHORL_TCP_CONGESTION and WHORL_TCP_BUFFER_BYTES.
///
/// Congestion control is chosen before sockets are connected. BBR sends at its measured rate, from
/// a timer. Between processes of one host, and where round trips take microseconds, BBR measures
/// when the receiver had the processor, and the timer is coarser than a round trip. The timer stays
/// when a connection changes to another congestion control. So if the system's default is BBR, all
/// connections begin with CUBIC, and those with long round trips change back.
class TcpTuning {
 public:
  /// Reads the environment. The error names the variable.
  static Result<TcpTuning> from_environment();

  /// Sets up the listening socket, before any rank connects to it: accepted sockets inherit its
  /// settings.
  Status prepare(int listener);
  /// Returns the initial congestion control of sockets that connect; empty: the system's. Valid
  /// after prepare().
  const std::string& congestion() const noexcept { return congestion_; }
  /// Sets up a connected socket for data.
  Status finish(int socket) const;

 private:
  void warn_if_cut(int socket, int option) const;

  std::string congestion_;
  std::string for_long_paths_; ///< replacement of congestion_ there; empty: none
  int buffer_bytes_ = 0;       ///< 0: the system adapts the buffers
};

} // namespace whorl
