#pragma once

#include <functional>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "net/mesh.h"
#include "node/segment.h"

namespace whorl {

/// Authenticated unix sockets between the lowest rank of a host and each other rank there, while
/// they meet.
class HostLinks {
 public:
  /// Function that sends or receives a part of link i's message on its socket, and sets the error
  /// when it returns kFailed.
  using LinkStep = std::function<Progress(std::size_t i, int socket, int* error)>;

  /// Keeps the plan, which outlives the links.
  explicit HostLinks(const ShmMeetingPlan& plan) : plan_(plan), membership_(*plan.membership) {}

  /// Returns whether this rank is the lowest one.
  bool leads() const noexcept { return plan_.members.front() == membership_.rank; }
  std::vector<MeshLink>& all() noexcept { return links_; }

  /// Connects to the lowest rank, or lets the others connect.
  Status connect();
  /// Checks that the peer is of this user: every process that can write to the shared memory can
  /// stop all ranks. Sets the pid that the kernel gives for the peer.
  Status check_user(const MeshLink& link, int* pid) const;
  /// Sends or receives one message on every link. `doing` completes "while it …" in errors. An
  /// error that the communicator gets meanwhile ends the wait, but does not make it fail once all
  /// messages are through.
  Status advance(const char* doing, const LinkStep& step_of);
  /// Returns the error of a rank whose link has ended (0), or failed with −errno; the reason, if
  /// the ranks hear of one soon.
  Status lost(int rank, int error) const;

 private:
  const ShmMeetingPlan& plan_;
  const Membership& membership_;
  std::vector<MeshLink> links_;
};

} // namespace whorl
