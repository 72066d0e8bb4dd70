#pragma once

#include "base/wait.h"

namespace whorl {

/// Judge of failed links for data, which finds the best explanation of a failure.
class FailureJudge {
 public:
  virtual ~FailureJudge() = default;
  /// Handles that the link for data to `peer` was closed (error 0) or failed (−errno). Sets the
  /// error, with the best explanation there is, and returns kFailed; or returns kIdle while a
  /// better explanation may still arrive: then it is called again. `needed`: whether it is an error
  /// if the peer has left in good order; otherwise kDone is returned then. Any thread.
  virtual Progress connection_lost(int peer, int error, bool needed) noexcept = 0;
  /// Sets the error: `peer` has sent something other than a message.
  virtual void malformed(int peer, const char* what) noexcept = 0;
};

} // namespace whorl
