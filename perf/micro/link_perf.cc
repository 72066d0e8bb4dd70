// Measures one endpoint between two processes, as ucx_perftest does for active messages of UCX:
// half the time of a round trip, or the rate of messages in one direction, sent from memory of the
// user. Prints one number: microseconds, or MB/s (10^6 bytes).
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"
#include "transports/ucx/make.h"

namespace whorl {
namespace {

struct Case {
  std::string transport = "ucx";
  bool latency = false;
  std::size_t bytes = 8;
  std::uint64_t messages = 10'000;
  int slots = 16;
  std::uint32_t spins = WaitPolicy{.timeout_ns = 0}.spins;
  bool untouched = false;
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "link_perf: %s\n", text.c_str());
  ::_exit(1);
}

std::unique_ptr<Transport> make(const std::string& name) {
  if (name == "shm") return std::make_unique<ShmTransport>();
  if (name == "tcp") return std::make_unique<TcpTransport>();
  auto ucx = make_ucx_transport();
  if (!ucx.ok()) fail(ucx.status().message());
  return *std::move(ucx);
}

/// Rank of two connected ones.
class Rank {
 public:
  Rank(const Case& c, int rank, int other_process)
      : case_(c), rank_(rank), transport_(make(c.transport)) {
    members_.rank = rank;
    members_.nranks = 2;
    members_.comm_error = &comm_error_;
    members_.channels = 1;
    members_.slots = c.slots;
    members_.slot_bytes = std::max<std::size_t>(c.bytes, 4096);
    members_.peers.resize(2);
    PeerInfo& self = members_.peers[static_cast<std::size_t>(rank)];
    self.rank = static_cast<std::uint32_t>(rank);
    self.process_id = static_cast<std::uint32_t>(::getpid());
    self.process_key = self.process_id;
    const auto address = transport_->listen(members_.identity);
    if (!address.ok()) fail(address.status().message());
    self.addresses[0].size = static_cast<std::uint32_t>(address->size());
    std::copy(address->begin(), address->end(), self.addresses[0].bytes.begin());
    const int peer = 1 - rank;
    PeerInfo& theirs = members_.peers[static_cast<std::size_t>(peer)];
    if (::send(other_process, &self, sizeof self, 0) != sizeof self ||
        ::recv(other_process, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs) {
      fail("the other process is gone");
    }
    const Status status = transport_->connect(members_, std::span(&peer, 1), 0);
    if (!status.ok()) fail(status.message());
    end_ = transport_->endpoint(peer, 0);
    source_.resize(c.bytes);
    target_.resize(c.bytes);
  }

  /// Returns the time of the measured messages in seconds.
  double run() {
    const std::uint64_t warm_up = std::min<std::uint64_t>(case_.messages / 10 + 1, 1000);
    repeat(warm_up);
    const std::uint64_t begin = sys().now_ns();
    repeat(case_.messages);
    return static_cast<double>(sys().now_ns() - begin) * 1e-9;
  }

 private:
  void repeat(std::uint64_t messages) {
    for (std::uint64_t i = 0; i < messages; ++i) {
      if (rank_ == 0) send();
      if (case_.latency || rank_ == 1) receive();
      if (case_.latency && rank_ == 1) send();
    }
    if (!case_.latency && rank_ == 1) send(); // all messages are there when the answer is
    wait([&] { return end_->released() == end_->sent() && end_->flushed(); });
    if (!case_.latency && rank_ == 0) receive();
  }
  void send() {
    DescriptorSend sent = DescriptorSend::kBusy;
    wait([&] {
      sent = end_->can_send_descriptor(source_) ? end_->try_send_descriptor(source_, {})
                                                : DescriptorSend::kUnreachable;
      return sent != DescriptorSend::kBusy;
    });
    if (sent == DescriptorSend::kSent) return;
    std::span<std::byte> slot;
    wait([&] { return !(slot = end_->try_reserve(case_.bytes)).empty(); });
    std::memcpy(slot.data(), source_.data(), case_.bytes);
    end_->commit(case_.bytes, {});
  }
  void receive() {
    const std::uint64_t ahead = end_->traits().recv_buffers_ahead;
    for (; case_.bytes >= kMinSharedBytes && exposed_ < end_->received() + ahead; ++exposed_) {
      static_cast<void>(end_->expose_recv_buffer(exposed_ + 1, target_, {}));
    }
    Message message;
    wait([&] {
      if (ahead == 0 && case_.bytes > 0) end_->post_recv(target_, {});
      return static_cast<bool>(message = end_->try_peek());
    });
    if (!case_.untouched && message.data != target_.data()) {
      std::memcpy(target_.data(), message.data, message.bytes);
    }
    end_->release();
  }
  template <class Done>
  void wait(Done&& done) {
    const auto attempt = [&] {
      if (done()) return Progress::kDone;
      return end_->progress();
    };
    if (wait_until(attempt, {.timeout_ns = 30'000'000'000, .spins = case_.spins}, comm_error_,
                   *transport_) != WaitResult::kReady) {
      fail(comm_error_.is_set() ? comm_error_.status().message() : "no message within 30 s");
    }
  }

  const Case& case_;
  const int rank_;
  CommError comm_error_;
  Membership members_;
  std::unique_ptr<Transport> transport_;
  Endpoint* end_ = nullptr;
  std::uint64_t exposed_ = 0;
  std::vector<std::byte> source_, target_;
};

} // namespace
} // namespace whorl

int main(int argc, char** argv) {
  whorl::Case c;
  CLI::App app("One endpoint between two processes: latency in us, or rate in MB/s");
  app.add_option("transport", c.transport)->check(CLI::IsMember({"shm", "tcp", "ucx"}));
  app.add_flag("--latency", c.latency, "half the time of a round trip");
  app.add_option("-s,--bytes", c.bytes)->check(CLI::Range(0, 16 << 20));
  app.add_option("-n,--messages", c.messages);
  app.add_option("--slots", c.slots)->check(CLI::Range(2, 64));
  app.add_option("--spins", c.spins, "attempts before a wait yields the core, as WHORL_SPINS");
  app.add_flag("--untouched", c.untouched,
               "leave small messages where they arrive, as ucx_perftest does");
  CLI11_PARSE(app, argc, argv);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    whorl::fail("no socket");
  }
  const pid_t child = ::fork();
  if (child < 0) whorl::fail("no process");
  if (child == 0) {
    whorl::Rank(c, 1, ends[1]).run();
    ::_exit(0);
  }
  const double seconds = whorl::Rank(c, 0, ends[0]).run();
  const auto messages = static_cast<double>(c.messages);
  std::printf("%.3f\n", c.latency ? seconds / messages / 2 * 1e6
                                  : messages * static_cast<double>(c.bytes) / seconds * 1e-6);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
