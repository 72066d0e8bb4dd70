#include "node/fd_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/system.h"

namespace whorl {
namespace {

TEST(FdMessage, CarriesHundredsOfDescriptors) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
  const Fd left(sockets[0]);
  const Fd right(sockets[1]);
  std::vector<Fd> owned;
  std::vector<int> fds;
  for (std::size_t i = 0; i < 300; ++i) {
    owned.emplace_back(sys().memfd_create("message"));
    ASSERT_TRUE(owned.back().valid());
    ASSERT_EQ(sys().ftruncate(owned.back().get(), i + 1), 0);
    fds.push_back(owned.back().get());
  }
  const std::vector<std::byte> body(1000, std::byte{42});
  FdMessageSender sender(body, fds);
  FdMessageReceiver receiver;
  Progress sent = Progress::kIdle;
  Progress received = Progress::kIdle;
  for (int i = 0; i < 1000 && received == Progress::kIdle; ++i) {
    if (sent == Progress::kIdle) sent = sender.step(left.get());
    received = receiver.step(right.get());
  }
  ASSERT_EQ(sent, Progress::kDone);
  ASSERT_EQ(received, Progress::kDone);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), receiver.body().begin(), receiver.body().end()));
  ASSERT_EQ(receiver.fds().size(), 300U);
  for (std::size_t i = 0; i < 300; ++i) {
    std::size_t size = 0;
    ASSERT_EQ(sys().file_size(receiver.fds()[i].get(), &size), 0);
    EXPECT_EQ(size, i + 1) << "out of order";
  }
}

TEST(FdMessage, RefusesGarbage) {
  for (const std::size_t bytes : {5U, 12U, 100U}) {
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    Fd left(sockets[0]);
    const Fd right(sockets[1]);
    const std::vector<std::byte> garbage(bytes, std::byte{0xff});
    ASSERT_EQ(::write(left.get(), garbage.data(), bytes), static_cast<ssize_t>(bytes));
    left.reset();
    FdMessageReceiver receiver;
    EXPECT_EQ(receiver.step(right.get()), Progress::kFailed);
    EXPECT_TRUE(receiver.fds().empty());
  }
}

} // namespace
} // namespace whorl
