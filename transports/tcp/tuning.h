#pragma once

#include <string>

#include "base/status.h"

namespace whorl {

/// How the sockets for data are set up. From the environment: WHORL_TCP_CONGESTION,
/// WHORL_TCP_BUFFER_BYTES.
///
/// Congestion control is chosen before sockets are connected. BBR sends at the rate that it has
/// measured, from a timer. Between processes of one host, and where round trips take microseconds,
/// what it measures is when the receiver had the processor, and the timer is coarser than a round
/// trip. The timer stays when a connection changes to another congestion control. So where the
/// system's is BBR all connections begin with CUBIC, and those that turn out to be long change
/// back.
class TcpTuning {
 public:
  /// The error names the variable.
  static Result<TcpTuning> from_environment();

  /// Sets up the listening socket, before anyone connects to it: what it accepts inherits from it.
  Status prepare(int listener);
  /// Congestion control to begin with on sockets that connect; empty: the system's. After
  /// prepare().
  const std::string& congestion() const noexcept { return congestion_; }
  /// Sets up a connected socket for data.
  Status finish(int socket) const;

 private:
  std::string congestion_;
  std::string for_long_paths_; ///< replaces congestion_ there; empty: nothing does
  int buffer_bytes_ = 0;       ///< 0: the system adapts the buffers
};

} // namespace whorl
