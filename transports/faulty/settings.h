#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace whorl {

/// Fault that strikes once, at one message of a communicator.
struct Fault {
  enum class Kind : std::uint8_t {
    kStall,    ///< the thread goes no further
    kCut,      ///< the connection to the peer of the message is broken
    kTruncate, ///< a message arrives without its last bytes
    kKill,     ///< the process gets a signal
  };
  Kind kind = Kind::kKill;
  std::uint64_t message = 0;     ///< number of the message, from 1
  std::uint64_t duration_ns = 0; ///< length of a stall; 0: for good
  int signal = 0;                ///< signal of kKill
};

/// Faults that WHORL_FAULTY asks for.
struct FaultySettings {
  std::uint64_t seed = 1;
  int rank = -1;                  ///< rank whose transports have the faults; −1: every rank
  double delay_share = 0;         ///< part of the messages that arrive late, 0 to 1
  std::uint64_t delay_ns = 0;     ///< longest delay of such a message
  std::uint64_t reorder_ns = 0;   ///< longest delay that all messages of a connection have
  std::vector<Fault> faults = {}; ///< faults at single messages

  /// Reads "seed=7,rank=1,delay=0.1:5ms,reorder=2ms,stall@200:300ms,cut@50,truncate@9,kill@317:19",
  /// any part of which may be left out. The error names the variable and the part that is wrong.
  static Result<FaultySettings> parse(std::string_view text);
};

} // namespace whorl
