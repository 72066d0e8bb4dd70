#include "comm/bootstrap_reception.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "comm/bootstrap_root.h"

namespace whorl::bootstrap {
namespace {

// Connections that have not authenticated themselves, at most; the oldest is dropped for a new one
// (a member tries again).
constexpr std::size_t kMaxStrangers = 1024;

} // namespace

std::uint64_t Reception::collect(std::vector<pollfd>& fds) const {
  std::uint64_t wake_ns = UINT64_MAX;
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const Handshake& stranger : strangers_) {
    fds.push_back({stranger.fd(), stranger.events(), 0});
    wake_ns = std::min(wake_ns, stranger.deadline_ns() + 1);
  }
  return wake_ns;
}

Status Reception::serve(std::span<const pollfd> fds, std::vector<Guest>& guests) {
  const std::uint64_t now = sys().now_ns();
  for (std::size_t i = 0; i < strangers_.size(); ++i) {
    if (fds[i + 1].revents != 0 || now > strangers_[i].deadline_ns()) greet(strangers_[i], guests);
  }
  Status accepted;
  if (fds[0].revents != 0 && listener_.valid()) accepted = accept_all(guests);
  std::erase_if(strangers_, [](const Handshake& stranger) { return stranger.fd() < 0; });
  return accepted;
}

Status Reception::accept_all(std::vector<Guest>& guests) {
  for (int i = 0; i < 256; ++i) { // a bound: those already here come next
    Fd socket(sys().accept(listener_.get()));
    if (socket.get() == -EMFILE || socket.get() == -ENFILE) {
      return Status::error(
          Code::kSystemError,
          fmt::format("the root of the rendezvous cannot open a socket for every rank: {}; raise "
                      "the limit on open files (ulimit -n) of its process",
                      errno_text(socket.get())));
    }
    if (!socket.valid()) return {};
    std::erase_if(strangers_, [](const Handshake& stranger) { return stranger.fd() < 0; });
    if (strangers_.size() >= kMaxStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(Handshake::accepting(std::move(socket), kRootRank));
    greet(strangers_.back(), guests);
  }
  return {};
}

void Reception::greet(Handshake& stranger, std::vector<Guest>& guests) {
  Progress progress = stranger.step();
  if (progress == Progress::kAdvanced) {
    Identity asked{.job = stranger.job(), .secret = {}};
    if (stranger.name().role != SocketRole::kBootstrap) {
      stranger.refuse(HandshakeFailure::kName);
    } else if (!secret_(asked)) {
      stranger.refuse(HandshakeFailure::kJob);
    } else {
      stranger.admit(asked.secret);
    }
    progress = stranger.step();
  }
  if (progress == Progress::kDone) {
    const std::uint32_t rank = stranger.name().from;
    const auto job = stranger.job();
    guests.push_back({stranger.take(), rank, job});
  } else if (progress == Progress::kFailed) {
    if (log_enabled(LogLevel::kInfo)) {
      log(LogLevel::kInfo,
          "the root of the rendezvous turned a connection away: " + stranger.status().message());
    }
    stranger = Handshake();
  }
}

} // namespace whorl::bootstrap
