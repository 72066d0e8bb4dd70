// Tests of what a forked child has of the sockets of its parent.
#include "base/open_sockets.h"

#include <gtest/gtest.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>

#include "base/received_fds.h"
#include "base/system.h"

namespace whorl {
namespace {

/// Two ends of a connection.
struct Connection {
  Connection() {
    const Fd listener(sys().socket(AF_UNIX, SOCK_STREAM));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t size = sizeof(sa_family_t); // the kernel chooses the name
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_GE(sys().bind(listener.get(), any, size), 0);
    size = sizeof address;
    EXPECT_GE(sys().getsockname(listener.get(), any, &size), 0);
    EXPECT_GE(sys().listen(listener.get(), 1), 0);
    near = Fd(sys().socket(AF_UNIX, SOCK_STREAM));
    EXPECT_GE(sys().connect(near.get(), any, size), 0);
    far = Fd(sys().accept(listener.get()));
    EXPECT_TRUE(far.valid());
  }
  Fd near, far;
};

/// Runs `in_child` in a forked child, which stays while the parent runs `meanwhile`. Returns
/// whether `in_child` has returned true.
bool beside_a_child(const std::function<bool()>& in_child, const std::function<void()>& meanwhile) {
  keep_sockets_from_children();
  int stay[2];
  EXPECT_EQ(::pipe(stay), 0);
  const pid_t child = ::fork();
  std::byte none{};
  if (child == 0) {
    ::close(stay[1]);
    const bool good = in_child();
    ::_exit(::read(stay[0], &none, 1) == 0 && good ? 0 : 1);
  }
  meanwhile();
  ::close(stay[1]);
  ::close(stay[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

/// Expects that `near` sees the end of a connection while a child has the other end, `far`.
void expect_end_beside_a_child(const Fd& near, Fd& far) {
  EXPECT_TRUE(beside_a_child([] { return true; },
                             [&] {
                               far.reset();
                               std::array poll{pollfd{near.get(), POLLIN, 0}};
                               ASSERT_EQ(sys().poll(poll, 10'000'000'000), 1);
                               std::byte none{};
                               EXPECT_EQ(sys().recv(near.get(), {&none, 1}), 0);
                             }));
}

/// Passes a descriptor to this process itself, which gets another one for the same file.
Fd passed(const Fd& fd) {
  std::array<int, 2> ends{};
  EXPECT_GE(sys().socket_pair(SOCK_DGRAM, ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  std::byte one{1};
  iovec piece{.iov_base = &one, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(rights), &number, sizeof number);
  EXPECT_EQ(sys().sendmsg(out.get(), &message), 1);
  EXPECT_EQ(sys().recvmsg(in.get(), &message), 1);
  Fd got;
  for_each_received_fd(message, [&](int each) { got = Fd(each); });
  EXPECT_TRUE(got.valid());
  return got;
}

TEST(OpenSockets, ConnectionsEndWithTheParent) {
  Connection connection;
  expect_end_beside_a_child(connection.near, connection.far);
}

TEST(OpenSockets, PairsReceivedSocketsAndDuplicatesEndWithTheParentToo) {
  for (const int kind : {0, 1, 2}) { // pair, received, duplicate
    std::array<int, 2> ends{};
    ASSERT_GE(sys().socket_pair(SOCK_STREAM, ends), 0);
    const Fd near(ends[0]);
    Fd far(ends[1]);
    if (kind == 1) far = passed(far);
    if (kind == 2) far = Fd(sys().duplicate(far.get()));
    SCOPED_TRACE(kind);
    expect_end_beside_a_child(near, far);
  }
}

TEST(OpenSockets, TheNumbersStayTakenInTheChild) {
  std::optional<Connection> connection(std::in_place);
  const std::array numbers{connection->near.get(), connection->far.get()};
  const std::byte one{1};
  EXPECT_TRUE(beside_a_child(
      [&] {
        for (const int number : numbers) {
          if (sys().send(number, {&one, 1}) != -ENOTCONN) return false;
        }
        const Fd other(sys().duplicate(1));
        connection.reset(); // as the destructor of an object that the child has inherited
        std::uint64_t inode = 0;
        return sys().file_inode(other.get(), &inode) == 0;
      },
      [&] {
        EXPECT_EQ(sys().send(connection->near.get(), {&one, 1}), 1);
      }));
  std::byte got{};
  EXPECT_EQ(sys().recv(connection->far.get(), {&got, 1}), 1);
}

TEST(Descriptors, AreNotThoseOfClosedStandardStreams) {
  EXPECT_TRUE(beside_a_child(
      [] {
        for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(standard);
        const Connection connection;
        std::array<int, 2> ends{};
        if (sys().socket_pair(SOCK_STREAM, ends) < 0) return false;
        const Fd file(sys().memfd_create("descriptors")), copy(sys().duplicate(file.get()));
        const Fd received = passed(file);
        const std::array numbers{connection.near.get(),
                                 connection.far.get(),
                                 ends[0],
                                 ends[1],
                                 file.get(),
                                 copy.get(),
                                 received.get(),
                                 sys().epoll_create(),
                                 sys().pidfd_open(::getpid())};
        return std::all_of(numbers.begin(), numbers.end(),
                           [](int number) { return number > STDERR_FILENO; });
      },
      [] {}));
}

TEST(OpenSockets, AnotherDescriptorWithTheNumberOfAClosedSocketIsKept) {
  std::array<int, 2> pipe{};
  { const Connection connection; }
  ASSERT_EQ(::pipe(pipe.data()), 0); // the lowest numbers, which the sockets had
  const std::byte one{1};
  EXPECT_TRUE(beside_a_child([&] { return ::write(pipe[1], &one, 1) == 1; }, [] {}));
  std::byte got{};
  EXPECT_EQ(::read(pipe[0], &got, 1), 1);
  for (const int end : pipe) ::close(end);
}

TEST(OpenSockets, WhatIsNoSocketAnyMoreIsKept) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  for (const int end : ends) note_open_socket(end); // as if sockets had been closed past System
  const Fd file = passed(Fd(sys().duplicate(ends[1])));
  const std::byte one{1};
  ASSERT_TRUE(beside_a_child([&] { return ::write(file.get(), &one, 1) == 1; }, [] {}));
  std::byte got{};
  EXPECT_EQ(::read(ends[0], &got, 1), 1);
  for (const int end : ends) sys().close(end);
}

} // namespace
} // namespace whorl
