#include "net/sealed_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

#include "base/system.h"

namespace whorl::sealed {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kFd = 3;
const StreamKey kKey = [] {
  StreamKey key;
  key.fill(std::byte{5});
  return key;
}();

/// System with one socket, which takes and gives few bytes at a time, and sometimes none.
class Wire final : public System {
 public:
  std::size_t most = SIZE_MAX; ///< largest number of bytes of one call
  bool pauses = false;         ///< whether every other call moves nothing
  bool ended = false;          ///< whether the sender has hung up
  int reads = 0;
  Bytes bytes; ///< bytes on the way

  ssize_t send(int, std::span<const std::byte> data) noexcept override {
    if (pauses && (paused_ = !paused_)) return -EAGAIN;
    const auto part = data.first(std::min(most, data.size()));
    bytes.insert(bytes.end(), part.begin(), part.end());
    return static_cast<ssize_t>(part.size());
  }
  ssize_t recv(int, std::span<std::byte> out) noexcept override {
    ++reads;
    if (pauses && (paused_ = !paused_)) return -EAGAIN;
    if (bytes.empty()) return ended ? 0 : -EAGAIN;
    const std::size_t size = std::min({most, out.size(), bytes.size()});
    std::copy_n(bytes.begin(), size, out.begin());
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    return static_cast<ssize_t>(size);
  }

 private:
  bool paused_ = false;
};

/// Both sides of a stream over a wire.
class SealedStreamTest : public ::testing::Test {
 protected:
  /// Sends all bytes, as parts of the given size.
  void send(Sealer& sealer, const Bytes& all, std::size_t part_bytes = SIZE_MAX) {
    std::size_t sent = 0;
    for (int tries = 0; sent < all.size(); ++tries) {
      ASSERT_LT(tries, 1'000'000);
      std::vector<iovec> parts;
      for (std::size_t at = sent; at < all.size();) {
        const std::size_t size = std::min(part_bytes, all.size() - at);
        parts.push_back({const_cast<std::byte*>(all.data()) + at, size});
        at += size;
      }
      const ssize_t result = sealer.send(kFd, parts);
      ASSERT_TRUE(result > 0 || result == -EAGAIN) << result;
      if (result > 0) sent += static_cast<std::size_t>(result);
    }
    EXPECT_FALSE(sealer.sending());
  }
  /// Receives into parts of the given size until nothing comes any more. Returns the last result.
  ssize_t receive(Opener& opener, Bytes* all, std::size_t part_bytes) {
    for (int idle = 0; idle < 3;) {
      Bytes one(part_bytes, std::byte{0xee}), two(part_bytes, std::byte{0xee});
      const iovec parts[] = {{one.data(), one.size()}, {}, {two.data(), two.size()}};
      const ssize_t got = opener.receive(kFd, parts);
      if (got == 0 || (got < 0 && got != -EAGAIN)) return got;
      idle = got == -EAGAIN && wire_.bytes.empty() ? idle + 1 : 0;
      if (got < 0) continue;
      one.insert(one.end(), two.begin(), two.end());
      all->insert(all->end(), one.begin(), one.begin() + got);
    }
    return -EAGAIN;
  }
  static Bytes random_bytes(std::size_t size) {
    std::mt19937 random(static_cast<unsigned>(size) + 1);
    Bytes out(size);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random());
    return out;
  }
  /// Returns the record of one more call of send().
  Bytes record_of(Sealer& sealer, const Bytes& payload) {
    wire_.bytes.clear();
    send(sealer, payload);
    return std::exchange(wire_.bytes, {});
  }
  /// Returns the lengths of the records on the way.
  std::vector<std::uint32_t> lengths_on_the_way() const {
    std::vector<std::uint32_t> lengths;
    RecordCipher cipher(kKey, false);
    for (std::size_t at = 0; at < wire_.bytes.size();) {
      cipher.begin(Part::kHeader, lengths.size());
      std::uint32_t& length = lengths.emplace_back();
      cipher.add({wire_.bytes.data() + at, kLengthBytes}, reinterpret_cast<std::byte*>(&length));
      at += kHeaderBytes + length + kTagBytes;
    }
    return lengths;
  }
  /// Returns what an opener makes of bytes, after which the stream ends.
  ssize_t result_of(const Bytes& bytes, Bytes* received) {
    Opener opener(kKey);
    wire_.bytes = bytes;
    wire_.ended = true;
    return receive(opener, received, 64);
  }

  Wire wire_;
  const ScopedSystem scope_{&wire_};
};

TEST_F(SealedStreamTest, CarriesBytesThroughReadsAndWritesOfEverySize) {
  const Bytes all = random_bytes(150);
  for (std::size_t most = 1; most < 180; ++most) {
    for (const std::size_t part : {1U, 7U, 64U, 1000U}) {
      for (const bool ahead : {false, true}) {
        Sealer sealer(kKey);
        Opener opener(kKey);
        if (ahead) opener.allow_read_ahead();
        wire_.most = most;
        wire_.pauses = most % 2 == 0;
        send(sealer, all, part * 3);
        send(sealer, all, part);
        Bytes received;
        EXPECT_EQ(-EAGAIN, receive(opener, &received, part));
        ASSERT_EQ(received.size(), 2 * all.size());
        EXPECT_TRUE(std::equal(all.begin(), all.end(), received.begin()));
        EXPECT_TRUE(std::equal(all.begin(), all.end(), received.begin() + 150));
      }
    }
  }
}

TEST_F(SealedStreamTest, CarriesMoreThanARecordHolds) {
  for (const std::size_t size :
       {kMaxPayload - 1, kMaxPayload, kMaxPayload + 1, 3 * kMaxPayload + 17, 10 * kOwnRecord}) {
    const Bytes all = random_bytes(size);
    for (const std::size_t most : {SIZE_MAX, std::size_t{1000}, std::size_t{70'001}}) {
      for (const std::size_t part : {std::size_t{100}, kOwnRecord, 4 * kMaxPayload}) {
        Sealer sealer(kKey);
        Opener opener(kKey);
        opener.allow_read_ahead();
        wire_.most = most;
        send(sealer, all, part);
        Bytes received;
        receive(opener, &received, part);
        EXPECT_TRUE(received == all) << size << " bytes in parts of " << part;
      }
    }
  }
}

TEST_F(SealedStreamTest, ALargePartHasRecordsOfItsOwn) {
  Bytes header = random_bytes(32), payload = random_bytes(2 * kMaxPayload);
  Sealer sealer(kKey);
  const iovec parts[] = {{header.data(), 32}, {payload.data(), payload.size()}};
  ASSERT_EQ(static_cast<ssize_t>(32 + payload.size()), sealer.send(kFd, parts));
  EXPECT_EQ(lengths_on_the_way(), (std::vector<std::uint32_t>{32, kMaxPayload, kMaxPayload}));
}

TEST_F(SealedStreamTest, ALargePartHasRecordsOfItsOwnBehindMuchElse) {
  Bytes much = random_bytes(kOwnRecord - 1), large = random_bytes(kOwnRecord);
  Sealer sealer(kKey);
  const iovec part{much.data(), much.size()};
  const iovec parts[] = {part, part, part, part, {large.data(), large.size()}};
  ASSERT_GT(4 * much.size() + kOwnRecord, kMaxPayload) << "only a rest of the part would fit";
  ASSERT_EQ(static_cast<ssize_t>(4 * much.size() + large.size()), sealer.send(kFd, parts));
  EXPECT_EQ(lengths_on_the_way(),
            (std::vector<std::uint32_t>{static_cast<std::uint32_t>(4 * much.size()), kOwnRecord}));
}

TEST_F(SealedStreamTest, HidesWhatItCarries) {
  const Bytes all(64, std::byte{'x'});
  Sealer sealer(kKey);
  const Bytes first = record_of(sealer, all), second = record_of(sealer, all);
  EXPECT_EQ(std::search_n(first.begin(), first.end(), 4, std::byte{'x'}), first.end());
  EXPECT_NE(first, second) << "equal bytes are not seen to be equal";
}

TEST_F(SealedStreamTest, EveryChangedBitIsFatal) {
  Sealer sealer(kKey);
  const Bytes payload = random_bytes(40);
  const Bytes record = record_of(sealer, payload);
  Bytes received;
  EXPECT_EQ(0, result_of(record, &received));
  EXPECT_EQ(payload, received);
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    Bytes changed = record;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    received.clear();
    EXPECT_EQ(-EBADMSG, result_of(changed, &received)) << "bit " << bit;
    EXPECT_TRUE(received.empty()) << "bit " << bit;
  }
}

TEST_F(SealedStreamTest, AChangedLengthIsFoundBeforeAnyOtherByteComes) {
  Sealer sealer(kKey);
  Bytes header = record_of(sealer, random_bytes(40));
  header.resize(kHeaderBytes);
  Bytes received;
  for (std::size_t bit = 0; bit < 8 * header.size(); ++bit) {
    Opener opener(kKey);
    wire_.bytes = header;
    wire_.bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_EQ(-EBADMSG, receive(opener, &received, 64)) << "bit " << bit;
  }
  Opener opener(kKey);
  wire_.bytes = header;
  EXPECT_EQ(-EAGAIN, receive(opener, &received, 64)) << "the rest may follow";
}

TEST_F(SealedStreamTest, ALengthThatNoSealerWritesIsRefused) {
  for (const std::uint32_t length :
       {std::uint32_t{0}, std::uint32_t{kMaxPayload + 1}, UINT32_MAX}) {
    RecordCipher cipher(kKey, true);
    Bytes header(kHeaderBytes);
    ASSERT_TRUE(cipher.begin(Part::kHeader, 0) &&
                cipher.add(std::as_bytes(std::span(&length, 1)), header.data()) &&
                cipher.make_tag(std::span(header).last<kTagBytes>()));
    Bytes received;
    wire_.bytes = header;
    Opener opener(kKey);
    EXPECT_EQ(-EBADMSG, receive(opener, &received, 64)) << length;
  }
}

TEST_F(SealedStreamTest, NothingOfAChangedRecordStaysInTheDestination) {
  Sealer sealer(kKey);
  wire_.bytes = record_of(sealer, random_bytes(1000));
  wire_.bytes.back() ^= std::byte{1};
  Opener opener(kKey);
  Bytes out(1000, std::byte{0});
  const iovec part{out.data(), out.size()};
  EXPECT_EQ(-EBADMSG, opener.receive(kFd, {&part, 1}));
  EXPECT_EQ(out, Bytes(1000, std::byte{0}));
}

TEST_F(SealedStreamTest, AChangedRecordEndsTheStreamForEver) {
  Sealer sealer(kKey);
  const Bytes first = record_of(sealer, random_bytes(9)), second = record_of(sealer, Bytes(7));
  Opener opener(kKey);
  wire_.bytes = first;
  wire_.bytes.back() ^= std::byte{1};
  Bytes received;
  EXPECT_EQ(-EBADMSG, receive(opener, &received, 64));
  for (const Bytes& later : {first, second}) {
    wire_.bytes = later;
    EXPECT_EQ(-EBADMSG, receive(opener, &received, 64));
  }
  EXPECT_TRUE(received.empty());
}

TEST_F(SealedStreamTest, RecordsArriveOnceAndInOrder) {
  Sealer sealer(kKey);
  const Bytes one = record_of(sealer, Bytes(10, std::byte{1}));
  const Bytes two = record_of(sealer, Bytes(10, std::byte{2}));
  const auto joined = [](Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  Bytes received;
  EXPECT_EQ(0, result_of(joined(one, two), &received));
  EXPECT_EQ(received.size(), 20U);
  received.clear();
  EXPECT_EQ(-EBADMSG, result_of(joined(one, one), &received)) << "again";
  EXPECT_EQ(received, Bytes(10, std::byte{1}));
  received.clear();
  EXPECT_EQ(-EBADMSG, result_of(joined(two, one), &received)) << "in another order";
  EXPECT_EQ(-EBADMSG, result_of(two, &received)) << "one left out";
  EXPECT_TRUE(received.empty());
}

TEST_F(SealedStreamTest, NothingOfACutRecordIsDelivered) {
  Sealer sealer(kKey);
  const Bytes record = record_of(sealer, random_bytes(33));
  for (std::size_t size = 0; size < record.size(); ++size) {
    Bytes received;
    EXPECT_EQ(0, result_of({record.begin(), record.begin() + static_cast<std::ptrdiff_t>(size)},
                           &received));
    EXPECT_TRUE(received.empty());
  }
}

TEST_F(SealedStreamTest, AnotherKeyIsNoKey) {
  StreamKey other = kKey;
  other[31] ^= std::byte{1};
  Sealer sealer(other);
  Bytes received;
  EXPECT_EQ(-EBADMSG, result_of(record_of(sealer, Bytes(10)), &received));
}

TEST_F(SealedStreamTest, NoNumberIsUsedTwice) {
  Sealer sealer(kKey, UINT64_MAX - 1);
  Opener opener(kKey, UINT64_MAX - 1);
  Bytes payload(10);
  const iovec part{payload.data(), payload.size()};
  EXPECT_EQ(10, sealer.send(kFd, {&part, 1}));
  const Bytes last = wire_.bytes;
  EXPECT_EQ(-EOVERFLOW, sealer.send(kFd, {&part, 1}));
  EXPECT_EQ(-EOVERFLOW, sealer.send(kFd, {&part, 1}));
  EXPECT_EQ(wire_.bytes, last) << "nothing is sent any more";
  EXPECT_EQ(10, opener.receive(kFd, {&part, 1}));
  wire_.bytes = last;
  EXPECT_EQ(-EBADMSG, opener.receive(kFd, {&part, 1}));
}

TEST_F(SealedStreamTest, ARecordUnderWayIsNotEncryptedAgain) {
  Bytes payload = random_bytes(10), more = random_bytes(20);
  Sealer reference(kKey);
  Bytes expected = record_of(reference, payload);
  const Bytes second = record_of(reference, more);
  expected.insert(expected.end(), second.begin(), second.end());
  for (std::size_t taken = 0; taken < kHeaderBytes + payload.size() + kTagBytes; ++taken) {
    for (const bool changes : {false, true}) {
      Sealer sealer(kKey);
      Bytes again = payload;
      Wire wire;
      const ScopedSystem scope(&wire);
      wire.most = taken > 0 ? taken : SIZE_MAX;
      wire.pauses = taken == 0;
      const iovec first{again.data(), again.size()};
      ASSERT_EQ(-EAGAIN, sealer.send(kFd, {&first, 1}));
      ASSERT_EQ(wire.bytes.size(), taken);
      if (changes) again.assign(again.size(), std::byte{0});
      wire.most = SIZE_MAX;
      wire.pauses = false;
      const iovec parts[] = {{again.data(), again.size()}, {more.data(), more.size()}};
      ASSERT_EQ(static_cast<ssize_t>(again.size() + more.size()), sealer.send(kFd, parts));
      EXPECT_EQ(wire.bytes, expected)
          << "a number has encrypted two records, after " << taken << " bytes";
    }
  }
}

TEST_F(SealedStreamTest, ASenderThatTakesBytesBackIsStopped) {
  Sealer sealer(kKey);
  Bytes payload(10);
  iovec part{payload.data(), payload.size()};
  wire_.most = 3;
  EXPECT_EQ(-EAGAIN, sealer.send(kFd, {&part, 1}));
  EXPECT_TRUE(sealer.sending());
  part.iov_len = 9;
  EXPECT_EQ(-EINVAL, sealer.send(kFd, {&part, 1}));
  EXPECT_EQ(wire_.bytes.size(), 3U);
}

TEST_F(SealedStreamTest, WithoutReadAheadAReaderCanWaitForTheSocket) {
  Sealer sealer(kKey);
  Opener opener(kKey);
  send(sealer, Bytes(10));
  send(sealer, Bytes(20));
  Bytes out(64);
  iovec part{out.data(), 10};
  EXPECT_EQ(10, opener.receive(kFd, {&part, 1}));
  EXPECT_EQ(wire_.bytes.size(), 20 + kTagBytes) << "at most the next header has been read";
}

TEST_F(SealedStreamTest, ReadAheadSavesSystemCalls) {
  Sealer sealer(kKey);
  Opener opener(kKey);
  opener.allow_read_ahead();
  for (int i = 0; i < 20; ++i) send(sealer, Bytes(40));
  Bytes out(2000);
  const iovec part{out.data(), out.size()};
  EXPECT_EQ(800, opener.receive(kFd, {&part, 1}));
  EXPECT_EQ(1, wire_.reads);
}

} // namespace
} // namespace whorl::sealed
