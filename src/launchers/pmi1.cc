#include "launchers/pmi1.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/printable.h"

namespace whorl {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
/// Bytes of a segment of a value: 512 characters of text, where Hydra takes up to 1023.
constexpr std::size_t kSegmentBytes = 256;
constexpr std::int64_t kAnswerMs = 10'000; ///< timeout of the answer of a server on this host

/// Waiter that sleeps until the socket can be read or written.
class SocketWaiter final : public Waiter {
 public:
  SocketWaiter(int fd, short events) noexcept : poll_{.fd = fd, .events = events, .revents = 0} {}
  void block(std::uint64_t max_ns) noexcept override { sys().poll({&poll_, 1}, max_ns); }

 private:
  pollfd poll_;
};

/// Repeats `transfer` (which returns bytes ≥ 0 or −errno) until it has moved something.
template <class Transfer>
int transfer_some(int fd, short events, std::int64_t timeout_ms, Transfer&& transfer) {
  int moved = 0;
  SocketWaiter waiter(fd, events);
  const WaitResult result = wait_for_server(
      [&] {
        moved = static_cast<int>(transfer());
        return moved == -EAGAIN ? Progress::kIdle : Progress::kDone;
      },
      waiter, timeout_ms);
  return result == WaitResult::kTimedOut ? -ETIMEDOUT : moved;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

bool append_hex(std::string_view text, std::vector<std::byte>* bytes) {
  if (text.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc() || stop != text.data() + i + 2) return false;
    bytes->push_back(static_cast<std::byte>(value));
  }
  return true;
}

} // namespace

Result<std::unique_ptr<Pmi1>> Pmi1::connect(Fd socket, std::int64_t timeout_ms) {
  std::unique_ptr<Pmi1> client(new Pmi1(std::move(socket)));
  for (const auto& [line, answer] :
       {std::pair{"cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"},
        std::pair{"cmd=get_maxes", "maxes"}, std::pair{"cmd=get_my_kvsname", "my_kvsname"}}) {
    Result<Words> words = client->ask(line, answer, timeout_ms);
    if (!words.ok()) return words.status();
    if (const auto space = words->find("kvsname"); space != words->end()) {
      client->space_ = space->second;
    }
    if (const auto limit = words->find("vallen_max"); limit != words->end()) {
      int bytes = 0;
      std::from_chars(limit->second.data(), limit->second.data() + limit->second.size(), bytes);
      if (bytes <= static_cast<int>(2 * kSegmentBytes)) {
        return launcher_error(
            fmt::format("the PMI-1 server takes values of {} characters; {} are "
                        "needed",
                        printable(limit->second), 2 * kSegmentBytes + 1));
      }
    }
  }
  if (client->space_.empty()) return launcher_error("the PMI-1 server did not name its space");
  return client;
}

Pmi1::~Pmi1() {
  // Wait until the server has answered the last command. Answers that came too late for their
  // callers arrive before.
  constexpr std::int64_t kGoodbyeMs = 1000;
  constexpr int kMaxLate = 4;
  if (!send("cmd=finalize\n", kGoodbyeMs).ok()) return;
  for (int i = 0; i < kMaxLate; ++i) {
    const Result<std::string> line = receive(kGoodbyeMs);
    if (!line.ok() || line->find("finalize_ack") != std::string::npos) return;
  }
}

Status Pmi1::set(const std::string& key, std::span<const std::byte> value) {
  if (value.size() > kMaxValueBytes) {
    return Status::error(Code::kInternalError, fmt::format("{} bytes are too many", value.size()));
  }
  // The text of each segment begins with the number of segments.
  const std::size_t segments =
      std::max<std::size_t>(1, (value.size() + kSegmentBytes - 1) / kSegmentBytes);
  for (std::size_t i = 0; i < segments; ++i) {
    const std::size_t from = i * kSegmentBytes;
    const auto segment = value.subspan(from, std::min(kSegmentBytes, value.size() - from));
    const Result<Words> answer = ask(fmt::format("cmd=put kvsname={} key={}-{} value={}.{}", space_,
                                                 key, i, segments, to_hex(segment)),
                                     "put_result", kAnswerMs);
    if (!answer.ok()) return answer.status();
  }
  return {};
}

Status Pmi1::fence(std::int64_t timeout_ms) {
  return ask("cmd=barrier_in", "barrier_out", timeout_ms).status();
}

Result<std::vector<std::byte>> Pmi1::get(int, const std::string& key, std::int64_t timeout_ms) {
  std::vector<std::byte> value;
  std::size_t segments = 1;
  for (std::size_t i = 0; i < segments; ++i) {
    const Result<Words> answer =
        ask(fmt::format("cmd=get kvsname={} key={}-{}", space_, key, i), "get_result", timeout_ms);
    if (!answer.ok()) return answer.status();
    const auto found = answer->find("value");
    const std::string_view text = found == answer->end() ? std::string_view() : found->second;
    const std::size_t point = text.find('.');
    const char* const end = text.data() + std::min(point, text.size());
    const auto [stop, error] = std::from_chars(text.data(), end, segments);
    if (point == std::string_view::npos || error != std::errc() || stop != end ||
        segments > kMaxValueBytes / kSegmentBytes || !append_hex(text.substr(point + 1), &value)) {
      return launcher_error(
          fmt::format("the PMI-1 server's value of {}-{} was not written by whorl", key, i));
    }
    if (value.size() > kMaxValueBytes) {
      return launcher_error(fmt::format("the PMI-1 server's value of {} is too long", key));
    }
  }
  return value;
}

Result<Pmi1::Words> Pmi1::ask(const std::string& line, std::string_view answer,
                              std::int64_t timeout_ms) {
  if (broken_) return launcher_error("an earlier exchange with the PMI-1 server failed");
  broken_ = true; // because a late answer would be taken for the answer to the next command
  const std::string context = fmt::format("PMI-1 \"{}\"", printable(line.substr(0, 40)));
  WHORL_TRY(send(line + "\n", timeout_ms).with_context(context));
  const Result<std::string> reply = receive(timeout_ms);
  if (!reply.ok()) return reply.status().with_context(context);
  broken_ = false;
  Words words;
  std::string_view rest = *reply;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      words.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  const auto command = words.find("cmd");
  const auto rc = words.find("rc");
  if (command == words.end() || command->second != answer ||
      (rc != words.end() && rc->second != "0")) {
    return launcher_error(fmt::format("the PMI-1 server answered \"{}\" to \"{}\"",
                                      printable(reply->substr(0, 120)),
                                      printable(line.substr(0, 40))));
  }
  return words;
}

Status Pmi1::send(std::string_view line, std::int64_t timeout_ms) {
  while (!line.empty()) {
    const int sent = transfer_some(socket_.get(), POLLOUT, timeout_ms, [&] {
      return sys().send(socket_.get(), std::as_bytes(std::span(line)));
    });
    if (sent < 0) {
      return launcher_error(
          fmt::format("cannot write to the socket of PMI_FD: {}", std::strerror(-sent)));
    }
    line.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> Pmi1::receive(std::int64_t timeout_ms) {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() > kMaxLineBytes)
      return launcher_error("the PMI-1 server's line never ends");
    std::array<char, 1024> bytes;
    const int got = transfer_some(socket_.get(), POLLIN, timeout_ms, [&] {
      return sys().recv(socket_.get(), std::as_writable_bytes(std::span(bytes)));
    });
    if (got == 0) return launcher_error("the PMI-1 server closed the connection");
    if (got < 0) {
      return launcher_error(
          got == -ETIMEDOUT
              ? fmt::format("no answer within {} ms; another rank may not have come", timeout_ms)
              : fmt::format("cannot read from the socket of PMI_FD: {}", std::strerror(-got)));
    }
    received_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

Result<KeyValue*> open_pmi1(int fd) {
  // An MPI library in this process may use the same socket, and closes its descriptor before the
  // end of the process; so this client uses a duplicate.
  static std::mutex mutex;
  static Pmi1* client = nullptr;
  const std::lock_guard lock(mutex);
  if (client != nullptr) return client;
  Fd socket(sys().duplicate(fd));
  if (!socket.valid()) {
    return launcher_error(fmt::format(
        "PMI_FD={} is not an open descriptor; a program between the launcher and this one may have "
        "closed it",
        fd));
  }
  Result<std::unique_ptr<Pmi1>> connected = Pmi1::connect(std::move(socket), kAnswerMs);
  if (!connected.ok()) return connected.status();
  client = connected->release();
  static const pid_t owner = ::getpid();
  std::atexit([] {
    if (::getpid() == owner) delete client; // not in a child of fork()
  });
  return client;
}

} // namespace whorl
