#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "base/system.h"
#include "net/address.h"

/// Processes that do not belong to a job and disturb it.
namespace whorl::test {

/// Forked process that runs `body` on command, and whose result is read as text.
class Other {
 public:
  explicit Other(const std::function<std::string()>& body, uid_t user = ::geteuid()) {
    int down[2];
    int up[2];
    EXPECT_EQ(0, ::pipe(down));
    EXPECT_EQ(0, ::pipe(up));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(down[1]);
      ::close(up[0]);
      char go = 0;
      if (::read(down[0], &go, 1) != 1) ::_exit(1);
      if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(1);
      const std::string text = body();
      if (::write(up[1], text.data(), text.size()) < 0) ::_exit(1);
      ::close(up[1]);
      static_cast<void>(::read(down[0], &go, 1)); // until the parent closes or writes the pipe
      ::_exit(0);
    }
    ::close(down[0]);
    ::close(up[1]);
    down_ = Fd(down[1]);
    up_ = Fd(up[0]);
  }
  ~Other() {
    down_.reset();
    ::waitpid(pid_, nullptr, 0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  /// Runs the body, waits for its end and returns its text.
  std::string run() {
    EXPECT_EQ(1, ::write(down_.get(), "g", 1));
    std::string text;
    std::array<char, 1024> bytes;
    for (ssize_t got = 0; (got = ::read(up_.get(), bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd down_;
  Fd up_;
};

/// Scope with a lower limit of open files in this process.
class FewFiles {
 public:
  explicit FewFiles(rlim_t limit) {
    EXPECT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before_));
    const rlimit low{std::min(limit, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &low));
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

/// Runs `meanwhile` while another process holds 1,010 idle connections to the address. The
/// listening side reads its limit of open files when it is made, so the caller must lower the limit
/// before.
inline void with_idle_connections(const SocketAddress& address,
                                  const std::function<void()>& meanwhile) {
  constexpr int kConnections = 1010;
  std::vector<Fd> sockets;
  Other other([&] {
    rlimit all{};
    ::getrlimit(RLIMIT_NOFILE, &all);
    all.rlim_cur = all.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &all);
    for (int i = 0; i < kConnections; ++i) {
      sockets.emplace_back(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(sockets.back().get(), address.data(), address.size()) != 0) {
        return std::string("connection ") + std::to_string(i) + ": " + errno_text(errno);
      }
    }
    return std::string("connected");
  });
  ASSERT_EQ("connected", other.run());
  meanwhile();
}

} // namespace whorl::test
