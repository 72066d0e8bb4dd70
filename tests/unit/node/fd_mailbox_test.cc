// Letters with file descriptors between two ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/membership.h"
#include "node/fd_mailbox.h"
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

/// Rank 1 receives, rank 0 sends.
struct Pair {
  Pair() {
    FdMailboxEnds ends = FdMailboxEnds::make();
    std::vector<Fd> outboxes(2);
    outboxes[1] = std::move(ends.outbox);
    sender = FdMailbox({}, std::move(outboxes));
    receiver = FdMailbox(std::move(ends.inbox), {});
  }
  Progress send(std::string_view text, std::span<const Fd> fds = {}) {
    return sender.send(1, std::as_bytes(std::span(text)), fds);
  }
  FdMailbox sender, receiver;
};

std::string text_of(const FdMailbox::Letter& letter) {
  return {reinterpret_cast<const char*>(letter.bytes.data()), letter.size};
}

TEST(FdMailbox, LettersComeWholeAndInOrder) {
  const int before = test::open_descriptors();
  {
    Pair pair;
    EXPECT_TRUE(pair.receiver.receives());
    EXPECT_TRUE(pair.sender.reaches(1));
    FdMailbox::Letter letter;
    EXPECT_EQ(pair.receiver.receive(letter), Progress::kIdle);
    ASSERT_EQ(pair.send("one", files(FdMailbox::kMostFds)), Progress::kDone);
    ASSERT_EQ(pair.send("two", files(2)), Progress::kDone);
    ASSERT_EQ(pair.send("three"), Progress::kDone);
    ASSERT_EQ(pair.receiver.receive(letter), Progress::kDone);
    EXPECT_EQ(text_of(letter), "one");
    ASSERT_EQ(letter.fds.size(), FdMailbox::kMostFds);
    EXPECT_FALSE(letter.cut);
    for (std::size_t i = 0; i < letter.fds.size(); ++i) {
      EXPECT_EQ(size_of(letter.fds[i]), i + 1);
      EXPECT_EQ(fcntl(letter.fds[i].get(), F_GETFD), FD_CLOEXEC);
    }
    ASSERT_EQ(pair.receiver.receive(letter), Progress::kDone);
    EXPECT_EQ(text_of(letter), "two");
    EXPECT_EQ(letter.fds.size(), 2U);
    ASSERT_EQ(pair.receiver.receive(letter), Progress::kDone);
    EXPECT_EQ(text_of(letter), "three");
    EXPECT_TRUE(letter.fds.empty());
    ASSERT_EQ(pair.send("never read", files(3)), Progress::kDone);
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(FdMailbox, AFullBoxIsTriedAgain) {
  Pair pair;
  std::size_t sent = 0;
  while (pair.send("letter") == Progress::kDone) ASSERT_LT(++sent, 1'000'000U);
  EXPECT_EQ(pair.send("letter"), Progress::kIdle);
  FdMailbox::Letter letter;
  ASSERT_EQ(pair.receiver.receive(letter), Progress::kDone);
  EXPECT_EQ(pair.send("last"), Progress::kDone);
  std::size_t received = 1;
  while (pair.receiver.receive(letter) == Progress::kDone) ++received;
  EXPECT_EQ(received, sent + 1);
  EXPECT_EQ(text_of(letter).size(), 0U);
}

TEST(FdMailbox, WhoHasNoneOrHasGoneIsNotReached) {
  Pair pair;
  EXPECT_FALSE(pair.sender.reaches(0));
  EXPECT_FALSE(pair.sender.reaches(2));
  EXPECT_EQ(pair.sender.send(0, {}, {}), Progress::kFailed);
  EXPECT_FALSE(pair.sender.receives());
  FdMailbox::Letter letter;
  EXPECT_EQ(pair.sender.receive(letter), Progress::kFailed);
  EXPECT_EQ(pair.send(std::string(FdMailbox::kMostBytes + 1, 'x')), Progress::kFailed);
  EXPECT_EQ(pair.send("too many", files(FdMailbox::kMostFds + 1)), Progress::kFailed);
  pair.receiver = {};
  EXPECT_EQ(pair.send("nobody reads"), Progress::kFailed);
}

TEST(FdMailbox, ALimitOfDescriptorsIsSeenByTheReceiver) {
  Pair pair;
  ASSERT_EQ(pair.send("many", files(20)), Progress::kDone);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd next(sys().memfd_create("the next one"));
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next.get()) + 6;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int open_before = test::open_descriptors();
  FdMailbox::Letter letter;
  const Progress progress = pair.receiver.receive(letter);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(progress, Progress::kDone);
  EXPECT_TRUE(letter.cut);
  EXPECT_LT(letter.fds.size(), 20U);
  letter.fds.clear();
  EXPECT_EQ(test::open_descriptors(), open_before);
}

TEST(Membership, SharesDevicesOnOneHostWhereAllHaveThem) {
  Membership members;
  members.nranks = 3;
  members.cards.resize(3);
  for (RankCard& card : members.cards) card.device_peers = 1;
  EXPECT_TRUE(members.shares_devices());
  members.cards[2].device_peers = 0;
  EXPECT_FALSE(members.shares_devices());
  members.cards[2].device_peers = 1;
  members.cards[1].host_key = 1;
  EXPECT_FALSE(members.shares_devices());
  members.nranks = kMostDeviceRanks + 1;
  members.cards.assign(kMostDeviceRanks + 1, members.cards[0]);
  EXPECT_FALSE(members.shares_devices());
}

} // namespace
} // namespace whorl
