// Tests of messages with file descriptors from one rank to another.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/membership.h"
#include "node/fd_channel.h"
#include "tests/support/descriptors.h"

namespace whorl {
namespace {

std::vector<Fd> files(std::size_t n) {
  std::vector<Fd> fds;
  for (std::size_t i = 0; i < n; ++i) {
    fds.emplace_back(sys().memfd_create("a test"));
    EXPECT_EQ(sys().ftruncate(fds.back().get(), i + 1), 0);
  }
  return fds;
}

std::size_t size_of(const Fd& file) {
  std::size_t size = 0;
  EXPECT_EQ(sys().file_size(file.get(), &size), 0);
  return size;
}

/// Both ends of a channel.
struct Pair {
  Pair() {
    FdChannelEnds ends = FdChannelEnds::make();
    sender = FdChannel({}, std::move(ends.outbox));
    receiver = FdChannel(std::move(ends.inbox), {});
  }
  Progress send(std::string_view text, std::span<const Fd> fds = {}) {
    return sender.send(std::as_bytes(std::span(text)), fds);
  }
  FdChannel sender, receiver;
};

std::string text_of(const FdChannel::Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.size};
}

TEST(FdChannel, MessagesComeWholeAndInOrder) {
  const int before = test::open_descriptors();
  {
    Pair pair;
    EXPECT_TRUE(pair.receiver.receives());
    EXPECT_TRUE(pair.sender.sends());
    FdChannel::Message message;
    EXPECT_EQ(pair.receiver.receive(message), Progress::kIdle);
    ASSERT_EQ(pair.send("one", files(FdChannel::kMaxFds)), Progress::kDone);
    ASSERT_EQ(pair.send("two", files(2)), Progress::kDone);
    ASSERT_EQ(pair.send("three"), Progress::kDone);
    ASSERT_EQ(pair.receiver.receive(message), Progress::kDone);
    EXPECT_EQ(text_of(message), "one");
    ASSERT_EQ(message.fds.size(), FdChannel::kMaxFds);
    EXPECT_FALSE(message.cut);
    for (std::size_t i = 0; i < message.fds.size(); ++i) {
      EXPECT_EQ(size_of(message.fds[i]), i + 1);
      EXPECT_EQ(fcntl(message.fds[i].get(), F_GETFD), FD_CLOEXEC);
    }
    ASSERT_EQ(pair.receiver.receive(message), Progress::kDone);
    EXPECT_EQ(text_of(message), "two");
    EXPECT_EQ(message.fds.size(), 2U);
    ASSERT_EQ(pair.receiver.receive(message), Progress::kDone);
    EXPECT_EQ(text_of(message), "three");
    EXPECT_TRUE(message.fds.empty());
    ASSERT_EQ(pair.send("never read", files(3)), Progress::kDone);
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(FdChannel, AMessageThatIsTooLongComesWithoutBytes) {
  FdChannelEnds ends = FdChannelEnds::make();
  FdChannel receiver(std::move(ends.inbox), {});
  FdChannel::Message message;
  for (const std::size_t size : {FdChannel::kMaxBytes, FdChannel::kMaxBytes + 1}) {
    const std::string text(size, 'x');
    ASSERT_EQ(::send(ends.outbox.get(), text.data(), size, 0), static_cast<ssize_t>(size));
    ASSERT_EQ(receiver.receive(message), Progress::kDone);
    EXPECT_EQ(text_of(message), size > FdChannel::kMaxBytes ? "" : text);
  }
}

TEST(FdChannel, AFullBoxIsTriedAgain) {
  Pair pair;
  std::size_t sent = 0;
  while (pair.send("message") == Progress::kDone) ASSERT_LT(++sent, 1'000'000U);
  EXPECT_EQ(pair.send("message"), Progress::kIdle);
  FdChannel::Message message;
  ASSERT_EQ(pair.receiver.receive(message), Progress::kDone);
  EXPECT_EQ(pair.send("last"), Progress::kDone);
  std::size_t received = 1;
  while (pair.receiver.receive(message) == Progress::kDone) ++received;
  EXPECT_EQ(received, sent + 1);
  EXPECT_EQ(text_of(message).size(), 0U);
}

TEST(FdChannel, WhoHasNoEndOrHasGoneIsNotReached) {
  Pair pair;
  EXPECT_FALSE(pair.receiver.sends());
  EXPECT_EQ(pair.receiver.send({}, {}), Progress::kFailed);
  EXPECT_FALSE(pair.sender.receives());
  FdChannel::Message message;
  EXPECT_EQ(pair.sender.receive(message), Progress::kFailed);
  EXPECT_EQ(pair.send(std::string(FdChannel::kMaxBytes + 1, 'x')), Progress::kFailed);
  EXPECT_EQ(pair.send("too many", files(FdChannel::kMaxFds + 1)), Progress::kFailed);
  pair.receiver = {};
  EXPECT_EQ(pair.send("nobody reads"), Progress::kFailed);
}

TEST(FdChannel, ALimitOfDescriptorsIsSeenByTheReceiver) {
  Pair pair;
  ASSERT_EQ(pair.send("many", files(20)), Progress::kDone);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd next(sys().memfd_create("the next one"));
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next.get()) + 6;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int open_before = test::open_descriptors();
  FdChannel::Message message;
  const Progress progress = pair.receiver.receive(message);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(progress, Progress::kDone);
  EXPECT_TRUE(message.cut);
  EXPECT_LT(message.fds.size(), 20U);
  message.fds.clear();
  EXPECT_EQ(test::open_descriptors(), open_before);
}

TEST(Membership, SharesDevicesOnOneHostWhereAllHaveThem) {
  Membership members;
  members.nranks = 3;
  members.peers.resize(3);
  for (PeerInfo& info : members.peers) info.device_peers = 1;
  EXPECT_TRUE(members.shares_devices());
  members.peers[2].device_peers = 0;
  EXPECT_FALSE(members.shares_devices());
  members.peers[2].device_peers = 1;
  members.peers[1].host_key = 1;
  EXPECT_FALSE(members.shares_devices());
  members.nranks = kMaxDeviceRanks + 1;
  members.peers.assign(kMaxDeviceRanks + 1, members.peers[0]);
  EXPECT_FALSE(members.shares_devices());
}

} // namespace
} // namespace whorl
