// Verdicts of control links: which error follows from the end of a socket, and when.
#include <fmt/core.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <utility>

#include "transports/control/links.h"
#include "transports/error_text.h"

namespace whorl {
namespace {

// Time in which the control socket may explain the end of a data socket. Larger: better
// explanations over slow networks. Smaller: faster errors where no explanation comes.
constexpr std::uint64_t kExplainNs = 20'000'000;

} // namespace

void ControlLinks::set_error(Code code, std::string message) noexcept {
  membership_->comm_error->set(Status::error(code, std::move(message)));
}

void ControlLinks::set_unreachable(Peer& peer, std::string_view sign) noexcept {
  peer.unreachable = true;
  set_error(
      Code::kRemoteError,
      fmt::format("{} cannot be reached any more: its host or the network between is down ({})",
                  membership_->describe(peer.rank), sign));
}

void ControlLinks::set_death_error(Peer& peer, int error) noexcept {
  const std::string who = membership_->describe(peer.rank);
  if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH) {
    set_unreachable(peer, errno_text(error));
  } else if (error == 0 || error == -ECONNRESET || error == -EPIPE) {
    set_error(
        Code::kRemoteError,
        fmt::format("{} died: its connections were closed without a goodbye; look for the end of "
                    "that process in its own output",
                    who));
  } else if (error == -EBADMSG) {
    set_changed_error(peer.rank);
  } else {
    set_error(Code::kRemoteError,
              fmt::format("the connection to {} failed: {}", who, errno_text(error)));
  }
}

/// Sets the error of an encrypted connection on which something has come that the peer has not
/// sent.
void ControlLinks::set_changed_error(int rank) noexcept {
  membership_->comm_error->set(
      changed_on_the_way(membership_->describe(rank), membership_->describe(membership_->rank)));
}

Progress ControlLinks::connection_lost(int rank, int error, bool needed) noexcept {
  const std::lock_guard lock(state_mutex_);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  if (error == -EBADMSG) { // nothing explains that better
    set_changed_error(rank);
    return Progress::kFailed;
  }
  Peer& peer = *find(rank);
  if (peer.data_lost_ns == 0) peer.data_error = error;
  return judge(peer, needed);
}

Progress ControlLinks::connection_lost(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(state_mutex_);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  Peer& peer = *find(rank);
  if (peer.data_lost_ns == 0) peer.data_why = why;
  return judge(peer, false);
}

/// Sets the error of a peer whose link for data has failed, once nothing explains it better. The
/// caller holds state_mutex_.
Progress ControlLinks::judge(Peer& peer, bool needed) noexcept {
  if (peer.said_goodbye && !needed) return Progress::kDone;
  if (peer.data_lost_ns == 0) peer.data_lost_ns = sys().now_ns();
  // A peer may have left because of an error, or of the death of a third rank. Its error explains
  // more than the end of a data socket does, and may be on its way.
  for (Peer& any : peers_) read(any);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  if (peer.said_goodbye && !needed) return Progress::kDone;
  // The end of the control socket comes after all that it explains.
  if (!peer.ended && sys().now_ns() - peer.data_lost_ns < kExplainNs) return Progress::kIdle;
  if (!peer.said_goodbye && peer.data_why.empty()) {
    set_death_error(peer, peer.data_error);
  } else if (!peer.said_goodbye) {
    set_error(Code::kRemoteError,
              fmt::format("the connection of rank {} to {} failed: {}", membership_->rank,
                          membership_->describe(peer.rank), peer.data_why));
  } else {
    set_error(Code::kRemoteError, text_of_leaving(*membership_, peer.rank));
  }
  return Progress::kFailed;
}

void ControlLinks::malformed(int rank, const char* what) noexcept {
  set_error(Code::kRemoteError,
            fmt::format("{} sent {}: do all ranks use the same release and settings of whorl?",
                        membership_->describe(rank), what));
}

void ControlLinks::judge_deaths(std::uint64_t waited_ns) noexcept {
  if (!deaths_.load(std::memory_order_relaxed) || (waited_ns != 0 && waited_ns < kAfterDeathNs)) {
    return;
  }
  const std::lock_guard lock(state_mutex_);
  const std::uint64_t now = sys().now_ns();
  for (Peer& peer : peers_) {
    if (peer.died_ns != 0 && now - peer.died_ns >= kAfterDeathNs) set_death_error(peer, 0);
  }
}

bool ControlLinks::is_lost(int peer) noexcept {
  poll();
  const std::lock_guard lock(state_mutex_);
  const Peer* const found = find(peer);
  return found != nullptr && (found->ended || found->said_goodbye || found->unreachable);
}

} // namespace whorl
