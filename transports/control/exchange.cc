#include "transports/control/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/system.h"
#include "base/wait.h"

namespace whorl {
namespace {

/// The exchange with one peer: a size of 4 bytes and the bytes, in each direction.
class Exchange {
 public:
  Exchange(int rank, StreamSocket& socket, const std::vector<std::byte>& mine)
      : rank_(rank), socket_(&socket) {
    ByteWriter out;
    out.put(static_cast<std::uint32_t>(mine.size()));
    out.put_bytes(mine);
    out_ = out.bytes();
    in_.resize(kSizeBytes);
  }

  bool sent_all() const noexcept { return sent_ == out_.size(); }
  bool done() const noexcept { return sent_all() && has_size_ && got_ == in_.size(); }
  /// Moves as many bytes as possible. Returns their number, or −errno; −ECONNRESET also if the peer
  /// has closed the socket.
  ssize_t step() {
    ssize_t moved = 0;
    while (!sent_all()) {
      const ssize_t n = socket_->send(std::span<const std::byte>(out_).subspan(sent_));
      if (n == -EAGAIN) break;
      if (n < 0) return n;
      sent_ += static_cast<std::size_t>(n);
      moved += n;
    }
    while (!has_size_ || got_ < in_.size()) { // exactly the bytes of the exchange are read
      const ssize_t n = socket_->receive(std::span(in_).subspan(got_));
      if (n == -EAGAIN) break;
      if (n <= 0) return n < 0 ? n : -ECONNRESET;
      got_ += static_cast<std::size_t>(n);
      moved += n;
      if (has_size_ || got_ < kSizeBytes) continue;
      std::uint32_t size = 0;
      std::memcpy(&size, in_.data(), sizeof size);
      if (size > kMaxBlobBytes) return -EPROTO;
      has_size_ = true;
      got_ = 0;
      in_.resize(size);
    }
    return moved;
  }
  int rank() const noexcept { return rank_; }
  pollfd interest() const noexcept {
    return {.fd = done() ? -1 : socket_->get(),
            .events = static_cast<short>(POLLIN | (sent_all() ? 0 : POLLOUT)),
            .revents = 0};
  }
  std::vector<std::byte> take() noexcept { return std::move(in_); }

 private:
  static constexpr std::size_t kSizeBytes = sizeof(std::uint32_t);
  int rank_;
  StreamSocket* socket_;
  std::vector<std::byte> out_, in_;
  std::size_t sent_ = 0, got_ = 0;
  bool has_size_ = false;
};

/// Waiter that sleeps until a socket of the exchanges is ready.
class PollWaiter final : public Waiter {
 public:
  explicit PollWaiter(const std::vector<Exchange>& exchanges) : exchanges_(exchanges) {
    polled_.resize(exchanges.size());
  }
  void block(std::uint64_t max_ns) noexcept override {
    std::transform(exchanges_.begin(), exchanges_.end(), polled_.begin(),
                   [](const Exchange& one) { return one.interest(); });
    static_cast<void>(sys().poll(polled_, max_ns));
  }

 private:
  const std::vector<Exchange>& exchanges_;
  std::vector<pollfd> polled_;
};

} // namespace

Result<std::vector<std::vector<std::byte>>> exchange_blobs(
    const Membership& membership, std::span<MeshLink> links,
    std::span<const std::vector<std::byte>> mine) {
  std::vector<Exchange> all;
  for (MeshLink& link : links) {
    if (link.role != SocketRole::kControl) continue;
    const std::vector<std::byte>& blob = mine[all.size()];
    if (blob.size() > kMaxBlobBytes) {
      return Status::error(
          Code::kInternalError,
          fmt::format("rank {} has {} bytes of addresses for {}, more than {}", membership.rank,
                      blob.size(), membership.describe(link.rank), kMaxBlobBytes));
    }
    all.emplace_back(link.rank, link.socket, blob);
  }
  Status failure;
  const auto attempt = [&] {
    bool done = true;
    bool advanced = false;
    for (Exchange& one : all) {
      if (one.done()) continue;
      const ssize_t moved = one.step();
      if (moved < 0) {
        failure = Status::error(
            Code::kRemoteError,
            fmt::format("{} ended its connection while rank {} was connecting to it: it died or "
                        "gave up, and its own output says why ({})",
                        membership.describe(one.rank()), membership.rank,
                        errno_text(static_cast<int>(moved))));
        return Progress::kFailed;
      }
      advanced |= moved > 0;
      done &= one.done();
    }
    return done ? Progress::kDone : advanced ? Progress::kAdvanced : Progress::kIdle;
  };
  PollWaiter waiter(all);
  const WaitPolicy policy{.timeout_ns = membership.timeout_ns};
  switch (wait_until(attempt, policy, *membership.comm_error, waiter)) {
    case WaitResult::kReady:
      break;
    case WaitResult::kFailed:
      return failure.ok() ? membership.comm_error->status() : failure;
    case WaitResult::kTimedOut: {
      const auto late =
          std::find_if(all.begin(), all.end(), [](const Exchange& one) { return !one.done(); });
      return Status::error(
          Code::kRemoteError,
          fmt::format("{} has not sent its address to rank {} within {} ms; is it stopped?",
                      membership.describe(late->rank()), membership.rank,
                      membership.timeout_ns / 1'000'000));
    }
  }
  std::vector<std::vector<std::byte>> out;
  for (Exchange& one : all) out.push_back(one.take());
  return out;
}

} // namespace whorl
