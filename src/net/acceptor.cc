#include "net/acceptor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor_error.h"
#include "base/log.h"
#include "net/address.h"
#include "net/listener.h"

namespace whorl {

Acceptor::Acceptor(std::vector<int> listeners, AcceptorRules rules)
    : listeners_(std::move(listeners)), rules_(std::move(rules)), places_(places()) {}

std::size_t Acceptor::places() noexcept {
  return std::clamp<std::size_t>(sys().open_files() / 8, 4, 1024);
}

void Acceptor::add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns) {
  for (const Handshake& stranger : strangers_) {
    fds.push_back({stranger.fd(), stranger.events(), 0});
    *wake_ns = std::min(*wake_ns, stranger.deadline_ns() + 1);
  }
  polled_ = strangers_.size();
  // A listening socket stays ready while nothing can be accepted.
  const bool pausing = sys().now_ns() < resume_ns_;
  if (pausing) *wake_ns = std::min(*wake_ns, resume_ns_);
  for (const int listener : listeners_) fds.push_back({pausing ? -1 : listener, POLLIN, 0});
}

Status Acceptor::step(std::span<const pollfd> ready) {
  for (std::size_t i = 0; i < polled_; ++i) {
    if (ready[i].revents != 0 || sys().now_ns() > strangers_[i].deadline_ns()) {
      greet(strangers_[i]);
    }
  }
  const auto gone = [](const Handshake& stranger) { return stranger.fd() < 0; };
  std::erase_if(strangers_, gone);
  if (strangers_.empty()) places_ = places();           // make_room() may have lowered it
  for (std::size_t i = 0; i < listeners_.size(); ++i) { // empty after stop()
    if (ready[polled_ + i].revents != 0) WHORL_TRY(accept_from(i));
  }
  return {};
}

Status Acceptor::accept_from(std::size_t listener) {
  // A bound for each round, so that a flood of connections cannot keep the others waiting.
  for (int i = 0; i < 256 && listener < listeners_.size(); ++i) {
    Fd socket(sys().accept(listeners_[listener]));
    if (descriptors_used_up(socket.get())) {
      // The kernel takes a descriptor before it looks whether a connection waits.
      pollfd waiting{listeners_[listener], POLLIN, 0};
      if (sys().poll({&waiting, 1}, 0) == 0) return {};
      if (make_room()) continue;
      constexpr std::uint64_t kPauseNs = 1'000'000'000;
      resume_ns_ = sys().now_ns() + kPauseNs;
      return Status::error(Code::kSystemError,
                           fmt::format("{} cannot accept a connection: {}; raise the limit on open "
                                       "files (ulimit -n) of its process",
                                       rules_.name, errno_text(socket.get())));
    }
    if (!socket.valid()) return {}; // no connection waits, or the peer has closed it already
    const std::size_t awaited = rules_.awaited ? rules_.awaited() : 0;
    if (strangers_.size() >= places_ + awaited) drop_one();
    strangers_.push_back(
        rules_.identity != nullptr
            ? Handshake::accepting(std::move(socket), *rules_.identity, rules_.rank,
                                   rules_.encrypts)
            : Handshake::accepting(std::move(socket), rules_.rank, rules_.encrypts));
    greet(strangers_.back());
    if (strangers_.back().fd() < 0) strangers_.pop_back();
  }
  return {};
}

void Acceptor::drop_one() {
  const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Handshake& stranger) { return stranger.silent(); });
  strangers_.erase(silent != strangers_.end() ? silent : strangers_.begin());
}

bool Acceptor::make_room() {
  if (strangers_.empty()) return false;
  places_ = std::max<std::size_t>(strangers_.size() / 2, 1);
  do drop_one();
  while (strangers_.size() > places_);
  return true;
}

void Acceptor::greet(Handshake& stranger) {
  Progress progress = stranger.step();
  if (progress == Progress::kAdvanced) {
    HandshakeFailure failure = rules_.judge(stranger.name());
    ucred peer{};
    if (rules_.same_user && failure == HandshakeFailure::kNone &&
        (peer_credentials(stranger.fd(), &peer) < 0 || peer.uid != sys().user_id())) {
      failure = HandshakeFailure::kUser;
    }
    Identity asked{.job = stranger.job(), .secret = {}};
    if (rules_.identity == nullptr && failure == HandshakeFailure::kNone &&
        !rules_.find_secret(asked)) {
      failure = HandshakeFailure::kJob;
    }
    if (failure == HandshakeFailure::kNone && rules_.identity == nullptr) {
      stranger.admit(asked.secret);
    } else if (failure == HandshakeFailure::kNone) {
      stranger.admit();
    } else {
      stranger.refuse(failure);
    }
    progress = stranger.step();
  }
  if (progress == Progress::kDone) {
    const ConnectionName name = stranger.name();
    const auto job = stranger.job();
    rules_.welcome(name, job, stranger.take());
  } else if (progress == Progress::kFailed) {
    // A peer that hangs up is not turned away. Mostly that peer has several addresses of this rank,
    // and has reached this rank at another one meanwhile.
    if (log_enabled(LogLevel::kInfo) && !stranger.hung_up()) {
      log(LogLevel::kInfo,
          fmt::format("{} turned a connection away: {}", rules_.name, stranger.status().message()));
    }
    const Handshake refused = std::exchange(stranger, Handshake());
    if (refused.failure() == HandshakeFailure::kEncryption && rules_.disagree) {
      rules_.disagree(refused.name(), refused.job(), refused.status());
    }
  }
}

} // namespace whorl
