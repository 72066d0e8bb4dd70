#include "transports/tcp/endpoint.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace whorl {
namespace {

/// System whose calls move few bytes at a time, or none, or fail, as a seeded generator says.
class FaultySystem final : public System {
 public:
  explicit FaultySystem(std::uint64_t seed) : random_(seed) {}
  std::size_t max_bytes = SIZE_MAX; ///< maximum number of bytes in one call
  int again_percent = 0;            ///< share of calls that needlessly return EAGAIN
  int fail_after_bytes = INT_MAX;   ///< number of bytes after which every call returns ECONNRESET
  int calls = 0;

  ssize_t sendmsg(int fd, const msghdr* message) noexcept override {
    return shortened(*message, [&](const msghdr* m) { return System::sendmsg(fd, m); });
  }
  ssize_t recvmsg(int fd, msghdr* message) noexcept override {
    return shortened(*message, [&](msghdr* m) { return System::recvmsg(fd, m); });
  }
  ssize_t send(int fd, std::span<const std::byte> data) noexcept override {
    iovec part{const_cast<std::byte*>(data.data()), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return sendmsg(fd, &message);
  }
  ssize_t recv(int fd, std::span<std::byte> out) noexcept override {
    iovec part{out.data(), out.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return recvmsg(fd, &message);
  }

 private:
  template <class Call>
  ssize_t shortened(msghdr message, Call&& call) noexcept {
    ++calls;
    if (moved_ >= fail_after_bytes) return -ECONNRESET;
    if (static_cast<int>(random_() % 100) < again_percent) return -EAGAIN;
    std::vector<iovec> parts(message.msg_iov, message.msg_iov + message.msg_iovlen);
    std::size_t left = max_bytes == SIZE_MAX ? SIZE_MAX : 1 + random_() % max_bytes;
    for (iovec& part : parts) {
      part.iov_len = std::min(part.iov_len, left);
      left -= part.iov_len;
    }
    message.msg_iov = parts.data();
    const ssize_t result = call(&message);
    if (result > 0) moved_ += static_cast<int>(result);
    return result;
  }
  std::mt19937_64 random_;
  int moved_ = 0;
};

struct Judge final : FailureJudge {
  Progress connection_lost(int, int error, bool needed) noexcept override {
    losses.push_back(error);
    if (left && !needed) return Progress::kDone;
    return patient ? Progress::kIdle : Progress::kFailed;
  }
  void malformed(int, const char* what) noexcept override { complaint = what; }
  std::vector<int> losses;
  std::string complaint;
  bool patient = false, left = false;
};

constexpr std::size_t kSlotBytes = 8192;

Fingerprint print_of(std::uint32_t sequence) {
  Fingerprint fingerprint;
  fingerprint.sequence = sequence;
  return fingerprint;
}

/// Two connected endpoints of one thread.
struct Pair {
  explicit Pair(int slots = 4, bool encrypts = false)
      : memory_a(bytes(slots)), memory_b(bytes(slots)) {
    int fds[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    raw_b = fds[1];
    StreamKeys keys, opposite;
    keys.send.fill(std::byte{1});
    opposite.receive = keys.send;
    const auto socket = [&](int fd, const StreamKeys& of) {
      return StreamSocket(Fd(fd), encrypts ? std::make_unique<SealedStream>(of) : nullptr);
    };
    a = std::make_unique<TcpEndpoint>(socket(fds[0], keys), 1, slots, kSlotBytes, aligned(memory_a),
                                      judge_a);
    b = std::make_unique<TcpEndpoint>(socket(fds[1], opposite), 0, slots, kSlotBytes,
                                      aligned(memory_b), judge_b);
  }
  static std::size_t bytes(int slots) { return TcpEndpoint::memory_bytes(slots, kSlotBytes) + 64; }
  static std::span<std::byte> aligned(std::vector<std::byte>& memory) {
    void* at = memory.data();
    std::size_t space = memory.size();
    std::align(64, memory.size() - 64, at, space);
    return {static_cast<std::byte*>(at), space};
  }
  std::vector<std::byte> memory_a, memory_b;
  Judge judge_a, judge_b;
  int raw_b = -1;
  std::unique_ptr<TcpEndpoint> a, b;
};

void send_text(Endpoint& endpoint, std::string_view text, std::uint32_t sequence) {
  const std::span<std::byte> slot = endpoint.try_reserve();
  ASSERT_GE(slot.size(), text.size());
  std::memcpy(slot.data(), text.data(), text.size());
  endpoint.commit(text.size(), print_of(sequence));
}

std::string_view text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.data), message.bytes};
}

TEST(TcpEndpoint, DeliversInOrder) {
  Pair pair;
  EXPECT_FALSE(pair.b->try_peek());
  send_text(*pair.a, "one", 1);
  send_text(*pair.a, "", 2);
  send_text(*pair.a, "three", 3);
  EXPECT_EQ(3U, pair.a->sent());
  EXPECT_EQ(3U, pair.a->released());
  EXPECT_TRUE(pair.a->flushed());
  for (const auto& [text, sequence] : {std::pair{"one", 1U}, {"", 2U}, {"three", 3U}}) {
    const Message message = pair.b->try_peek();
    ASSERT_TRUE(message);
    EXPECT_EQ(text, text_of(message));
    EXPECT_EQ(print_of(sequence), message.fingerprint);
    EXPECT_EQ(message.data, pair.b->try_peek().data) << "the same until release()";
    pair.b->release();
  }
  EXPECT_FALSE(pair.b->try_peek());
}

TEST(TcpEndpoint, SeveralSmallMessagesCostOneSystemCall) {
  FaultySystem system(1);
  const ScopedSystem scope(&system);
  Pair pair;
  for (std::uint32_t i = 0; i < 4; ++i) send_text(*pair.a, "small", i);
  system.calls = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(pair.b->try_peek());
    pair.b->release();
  }
  EXPECT_EQ(1, system.calls);
}

TEST(TcpEndpoint, QueuedMessagesAreWrittenTogether) {
  FaultySystem system(1);
  const ScopedSystem scope(&system);
  Pair pair;
  system.again_percent = 100;
  for (std::uint32_t i = 0; i < 4; ++i) send_text(*pair.a, "small", i);
  EXPECT_EQ(0U, pair.a->released());
  EXPECT_FALSE(pair.a->flushed());
  EXPECT_TRUE(pair.a->try_reserve().empty());
  system.again_percent = 0;
  system.calls = 0;
  EXPECT_EQ(Progress::kAdvanced, pair.a->progress());
  EXPECT_EQ(1, system.calls);
  EXPECT_EQ(4U, pair.a->released());
  EXPECT_EQ(Progress::kIdle, pair.a->progress());
}

TEST(TcpEndpoint, APostedBufferIsFilledOnlyByTheExpectedMessage) {
  Pair pair;
  std::vector<std::byte> wanted(5, std::byte{'-'});
  send_text(*pair.a, "other", 1);
  send_text(*pair.a, "longer", 2);
  send_text(*pair.a, "right", 2);
  for (int i = 0; i < 2; ++i) { // wrong fingerprint, wrong size
    pair.b->post_recv(wanted, print_of(2));
    const Message message = pair.b->try_peek();
    ASSERT_TRUE(message);
    EXPECT_NE(wanted.data(), message.data);
    EXPECT_EQ(std::byte{'-'}, wanted[0]);
    pair.b->release();
  }
  pair.b->post_recv(wanted, print_of(2));
  const Message message = pair.b->try_peek();
  ASSERT_TRUE(message);
  EXPECT_EQ(wanted.data(), message.data);
  EXPECT_EQ("right", text_of(message));
  pair.b->release();
  send_text(*pair.a, "after", 2);
  EXPECT_NE(wanted.data(), pair.b->try_peek().data) << "a posted buffer ends with release()";
}

TEST(TcpEndpoint, PublishesTheUsersMemory) {
  Pair pair(2);
  std::vector<std::byte> source(kSlotBytes, std::byte{7});
  EXPECT_TRUE(pair.a->can_send_descriptor(source));
  EXPECT_EQ(DescriptorSend::kSent, pair.a->try_send_descriptor(source, print_of(1)));
  ASSERT_EQ(1U, pair.a->released());
  std::fill(source.begin(), source.end(), std::byte{8}); // released: may change
  const Message message = pair.b->try_peek();
  ASSERT_TRUE(message);
  EXPECT_EQ(std::byte{7}, message.data[kSlotBytes - 1]);
  source.resize(kSlotBytes + 1);
  EXPECT_FALSE(pair.a->can_send_descriptor(source));
  EXPECT_EQ(DescriptorSend::kUnreachable, pair.a->try_send_descriptor(source, print_of(2)));
}

TEST(TcpEndpoint, AFullSocketBlocksAfterAllSlots) {
  Pair pair(3);
  const std::vector<std::byte> source(kSlotBytes);
  int sent = 0;
  while (pair.a->try_send_descriptor(source, print_of(0)) == DescriptorSend::kSent)
    ASSERT_LT(++sent, 10'000);
  EXPECT_EQ(3U, pair.a->sent() - pair.a->released());
  EXPECT_TRUE(pair.a->try_reserve().empty());
  int received = 0;
  for (int i = 0; i < 100'000 && received < sent; ++i) {
    if (pair.b->try_peek()) {
      pair.b->release();
      ++received;
    }
    pair.a->progress();
  }
  EXPECT_EQ(sent, received);
  EXPECT_TRUE(pair.a->flushed());
}

/// Sends random messages in both directions under a system that moves a few bytes at a time.
void random_traffic(std::uint64_t seed, std::size_t max_bytes, int again_percent, bool encrypts) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", at most " << max_bytes << " bytes, "
                                  << again_percent << " % EAGAIN");
  FaultySystem system(seed);
  system.max_bytes = max_bytes;
  system.again_percent = again_percent;
  const ScopedSystem scope(&system);
  Pair pair(4, encrypts);
  std::mt19937_64 random(seed + 1);
  const std::uint32_t messages = max_bytes < 30 ? 8 : 40;
  const auto size_of_message = [&](std::uint32_t side, std::uint32_t number) -> std::size_t {
    std::mt19937_64 one(seed * 1000 + side * 100 + number);
    const std::size_t limits[] = {0, 1, 33, 300, 3000, kSlotBytes};
    const std::size_t limit = limits[one() % 6];
    return limit == kSlotBytes ? kSlotBytes : one() % (limit + 1);
  };
  const auto byte_of = [](std::uint32_t side, std::uint32_t number, std::size_t at) {
    return static_cast<std::byte>((side * 101 + number * 17 + at * 3) & 255);
  };
  struct Side {
    Endpoint* endpoint;
    std::uint32_t sent = 0, received = 0;
    std::vector<std::byte> destination;
    bool posted = false;
    std::vector<std::vector<std::byte>> published;
  };
  Side sides[2] = {{pair.a.get(), 0, 0, {}, false, {}}, {pair.b.get(), 0, 0, {}, false, {}}};
  for (int turn = 0; turn < 4'000'000; ++turn) {
    const std::uint32_t s = random() % 2;
    Side& side = sides[s];
    if (side.sent < messages && random() % 2 == 0) {
      const std::size_t size = size_of_message(s, side.sent);
      const auto fill = [&](std::byte* out) {
        for (std::size_t i = 0; i < size; ++i) out[i] = byte_of(s, side.sent, i);
      };
      if (side.sent % 3 == 0) {
        std::vector<std::byte> source(size);
        fill(source.data());
        if (side.endpoint->try_send_descriptor(source, print_of(side.sent)) ==
            DescriptorSend::kSent) {
          side.published.push_back(std::move(source));
          ++side.sent;
        }
      } else if (const auto slot = side.endpoint->try_reserve(); !slot.empty()) {
        ASSERT_EQ(0U, reinterpret_cast<std::uintptr_t>(slot.data()) % 64);
        fill(slot.data());
        side.endpoint->commit(size, print_of(side.sent++));
      }
    }
    if (side.received < messages) {
      const std::uint32_t from = 1 - s;
      const std::size_t size = size_of_message(from, side.received);
      if (side.received % 2 == 0 && !side.posted) {
        side.destination.assign(size, std::byte{0});
        side.posted = true;
      }
      if (side.posted) side.endpoint->post_recv(side.destination, print_of(side.received));
      if (const Message message = side.endpoint->try_peek()) {
        ASSERT_EQ(size, message.bytes);
        ASSERT_EQ(print_of(side.received), message.fingerprint);
        if (side.posted && size > 0) {
          ASSERT_EQ(side.destination.data(), message.data);
        }
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_EQ(byte_of(from, side.received, i), message.data[i]) << i;
        }
        side.endpoint->release();
        side.posted = false;
        ++side.received;
      }
    }
    ASSERT_NE(Progress::kFailed, side.endpoint->progress());
    if (sides[0].received == messages && sides[1].received == messages) return;
  }
  FAIL() << "no end: " << sides[0].received << " and " << sides[1].received << " received";
}

class TcpTraffic : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Encryption, TcpTraffic, ::testing::Bool());

TEST_P(TcpTraffic, ShortReadsAndWritesOfEverySize) {
  for (const std::size_t max_bytes : {1U, 2U, 31U, 32U, 33U, 64U, 1000U, 5000U}) {
    random_traffic(11, max_bytes, 0, GetParam());
  }
}

TEST_P(TcpTraffic, StormsOfEagain) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    random_traffic(seed, 700, 60, GetParam());
    random_traffic(seed, SIZE_MAX, 60, GetParam());
  }
}

TEST(TcpEndpoint, AnEncryptedMessageOfSmallSizeCostsOneSystemCallOfEachSide) {
  FaultySystem system(3);
  const ScopedSystem scope(&system);
  Pair pair(4, true);
  send_text(*pair.a, "x", 1);
  EXPECT_EQ(1, system.calls);
  EXPECT_TRUE(pair.b->try_peek());
  EXPECT_EQ(2, system.calls);
}

TEST(TcpEndpoint, AChangedRecordIsReportedAndSticks) {
  Pair pair(4, true);
  const std::string record(100, '\1'); // of somebody else
  ASSERT_EQ(100, ::send(pair.a->fd(), record.data(), record.size(), 0));
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(std::vector<int>{-EBADMSG}, pair.judge_b.losses);
  EXPECT_EQ(Progress::kFailed, pair.b->progress());
  EXPECT_FALSE(pair.b->try_peek());
}

TEST(TcpEndpoint, AResetIsReportedAndSticks) {
  FaultySystem system(3);
  const ScopedSystem scope(&system);
  Pair pair;
  send_text(*pair.a, "lost", 1);
  system.fail_after_bytes = 0;
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(std::vector<int>{-ECONNRESET}, pair.judge_b.losses);
  EXPECT_EQ(Progress::kFailed, pair.b->progress());
  EXPECT_TRUE(pair.b->try_reserve().empty());
  EXPECT_EQ(DescriptorSend::kBusy, pair.b->try_send_descriptor({}, {}));
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(1U, pair.judge_b.losses.size());
}

TEST(TcpEndpoint, APatientJudgeIsAskedAgain) {
  Pair pair;
  pair.judge_b.patient = true;
  pair.a->close();
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(Progress::kIdle, pair.b->progress());
  pair.judge_b.patient = false;
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(Progress::kFailed, pair.b->progress());
  EXPECT_EQ((std::vector<int>{0, 0}), pair.judge_b.losses);
}

TEST(TcpEndpoint, WhatWasSentBeforeTheCloseArrives) {
  Pair pair;
  send_text(*pair.b, "never read", 1);
  send_text(*pair.a, "last words", 1);
  pair.a->close();
  const Message message = pair.b->try_peek();
  ASSERT_TRUE(message);
  EXPECT_EQ("last words", text_of(message));
  EXPECT_TRUE(pair.judge_b.losses.empty());
}

TEST(TcpEndpoint, APeerThatHasLeftIsAFailureOnlyForThoseWhoNeedIt) {
  Pair pair;
  pair.judge_b.left = true;
  send_text(*pair.a, "last words", 1);
  pair.a->close();
  ASSERT_TRUE(pair.b->peek_arrived());
  EXPECT_FALSE(pair.b->has_ended());
  pair.b->release();
  EXPECT_FALSE(pair.b->peek_arrived());
  EXPECT_TRUE(pair.b->has_ended());
  EXPECT_EQ(Progress::kIdle, pair.b->progress());
  EXPECT_FALSE(pair.b->try_peek());
  EXPECT_EQ(Progress::kFailed, pair.b->progress());
}

TEST(TcpEndpoint, MalformedHeadersAreRefused) {
  const auto complaint_about = [](auto&& change) {
    Pair pair;
    tcp::MessageHeader header;
    header.bytes = 4;
    change(header);
    EXPECT_EQ(static_cast<ssize_t>(sizeof header),
              ::send(pair.raw_b, &header, sizeof header, MSG_NOSIGNAL));
    EXPECT_FALSE(pair.a->try_peek());
    EXPECT_TRUE(pair.judge_a.complaint.empty() || pair.a->progress() == Progress::kFailed);
    return pair.judge_a.complaint;
  };
  EXPECT_EQ("", complaint_about([](auto&) {}));
  EXPECT_EQ("no message header", complaint_about([](auto& h) { h.magic = 1; }));
  EXPECT_EQ("a message larger than a slot", complaint_about([](auto& h) { h.bytes = 8193; }));
  EXPECT_EQ("a message larger than a slot", complaint_about([](auto& h) { h.bytes = UINT32_MAX; }));
  EXPECT_EQ("a message out of order", complaint_about([](auto& h) { h.number = 1; }));
}

} // namespace
} // namespace whorl
