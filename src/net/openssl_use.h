#pragma once

namespace whorl {

/// Guard of a use of OpenSSL, which frees its data when the process exits although threads of ours
/// may be in a handshake. Converts to false once the exit has begun, or if OpenSSL cannot be
/// prepared; then OpenSSL must not be used. Any thread.
class OpensslUse {
 public:
  OpensslUse() noexcept;
  /// Frees at once what OpenSSL keeps for a thread of ours: if the thread ended during the exit,
  /// thread and exit would both free it.
  ~OpensslUse();
  OpensslUse(const OpensslUse&) = delete;
  OpensslUse& operator=(const OpensslUse&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  bool entered_ = false;
};

} // namespace whorl
