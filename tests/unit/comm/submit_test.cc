// Requests of one and of several communicators: who carries each out, and whose the errors are.
#include "comm/submit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "api/handle.h"
#include "engine/host_stream.h"
#include "tests/support/thread_world.h"

namespace whorl {
namespace {

using test::ThreadWorld;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

Request allreduce(int& value) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kInt32,
          .count = 1,
          .send = &value,
          .recv = &value};
}

Request transfer(Collective collective, int peer, int& value) {
  return {.collective = collective,
          .type = DataType::kInt32,
          .peer = peer,
          .count = 1,
          .send = &value,
          .recv = &value};
}

Status submit_one(Communicator& communicator, const Request& request,
                  const std::shared_ptr<Stream>& stream, Status& error) {
  return submit(communicator, {&request, 1}, stream, error);
}

/// A stream that fails at one of its steps.
class FailingStream final : public Stream {
 public:
  enum class At { kPrepare, kIssue, kFollow };
  explicit FailingStream(At at) : at_(at) {}
  Status prepare(std::span<const Part>, bool) override { return status(At::kPrepare); }
  Result<std::uint64_t> issue(std::span<const Part> parts) override {
    if (Status refused = status(At::kIssue); !refused.ok()) return refused;
    return Stream::issue(parts);
  }
  Status follow(std::uint64_t) override { return status(At::kFollow); }

 private:
  Status status(At at) const {
    return at == at_ ? Status::error(Code::kInvalidUsage, "this stream fails") : Status();
  }
  At at_;
};

/// Three communicators of the same ranks.
class SubmitTest : public ::testing::Test {
 protected:
  Communicator& communicator(std::size_t world, int rank) {
    return *worlds_[world].comm(rank)->communicator;
  }
  /// Runs `body(rank)` on a thread for each rank; what it returns is a failure.
  void each(const std::function<std::string(int)>& body) {
    worlds_[0].each([&](int rank, whorlComm_t) { return body(rank); });
  }

  std::array<ThreadWorld, 3> worlds_{ThreadWorld(kRanks), ThreadWorld(kRanks), ThreadWorld(kRanks)};
};

TEST(ChoosePath, TheDeviceComesFirst) {
  for (const bool in_stream : {false, true}) {
    EXPECT_EQ(choose_path(Met::kQueued, in_stream), Path::kDevice);
    EXPECT_EQ(choose_path(Met::kRefused, in_stream), Path::kNone);
  }
  EXPECT_EQ(choose_path(Met::kHost, true), Path::kStream);
  EXPECT_EQ(choose_path(Met::kHost, false), Path::kHost);
}

// The batches are in another order on each rank: all communicators are driven at the same time.
TEST_F(SubmitTest, SeveralCommunicatorsWithoutStreams) {
  each([&](int rank) -> std::string {
    std::array<int, 3> values{1, 10, 100};
    std::vector<Batch> batches(3);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t world = rank == 0 ? i : 2 - i;
      batches[i].communicator = &communicator(world, rank);
      batches[i].add(allreduce(values[world]), nullptr);
      batches[i].add(allreduce(values[world]), nullptr);
    }
    if (const Status status = submit(batches); !status.ok()) return status.message();
    for (const Batch& batch : batches) {
      EXPECT_THAT(batch.paths, ElementsAre(Path::kHost, Path::kHost));
      EXPECT_TRUE(batch.error.ok());
    }
    EXPECT_THAT(values, ElementsAre(4, 40, 400));
    return {};
  });
}

TEST_F(SubmitTest, SeveralCommunicatorsWithAndWithoutStreams) {
  each([&](int rank) -> std::string {
    const auto one = std::make_shared<Stream>(), two = std::make_shared<Stream>();
    std::array<int, 4> values{1, 10, 100, 1000};
    for (int i = 0; i < 50; ++i) {
      std::vector<Batch> batches(3);
      for (std::size_t w = 0; w < 3; ++w) batches[w].communicator = &communicator(w, rank);
      batches[0].add(allreduce(values[0]), one);
      batches[0].add(allreduce(values[1]), two);
      batches[1].add(allreduce(values[2]), one);
      batches[2].add(allreduce(values[3]), nullptr);
      const int before = values[3];
      if (const Status status = submit(batches); !status.ok()) return status.message();
      EXPECT_THAT(batches[0].paths, ElementsAre(Path::kStream, Path::kStream));
      EXPECT_THAT(batches[1].paths, ElementsAre(Path::kStream));
      EXPECT_THAT(batches[2].paths, ElementsAre(Path::kHost));
      EXPECT_EQ(values[3], 2 * before) << "complete on return";
      if (i % 10 != 9) continue;
      for (const auto& stream : {one, two}) {
        if (const Status status = stream->synchronize(); !status.ok()) return status.message();
      }
      EXPECT_THAT(values, ElementsAre(1024, 10240, 102400, 1024000));
      values = {1, 10, 100, 1000};
    }
    return {};
  });
}

// They stay together, so that they keep their order.
TEST_F(SubmitTest, ABatchWithOneStreamIsInStreamsAsAWhole) {
  each([&](int rank) -> std::string {
    const auto stream = std::make_shared<Stream>();
    int value = 1;
    std::vector<Batch> batches(1);
    batches[0].communicator = &communicator(0, rank);
    batches[0].add(allreduce(value), stream);
    batches[0].add(allreduce(value), nullptr);
    if (const Status status = submit(batches); !status.ok()) return status.message();
    EXPECT_THAT(batches[0].paths, Each(Path::kStream));
    EXPECT_EQ(value, 4) << "one has no stream, so they are complete on return";
    EXPECT_TRUE(stream->idle());
    return {};
  });
}

TEST_F(SubmitTest, TransfersOfSeveralCommunicators) {
  each([&](int rank) -> std::string {
    std::array<int, 2> sent{rank + 1, rank + 11}, received{};
    std::vector<Batch> batches(2);
    for (std::size_t w = 0; w < 2; ++w) {
      batches[w].communicator = &communicator(w, rank);
      batches[w].add(transfer(Collective::kSend, 1 - rank, sent[w]), nullptr);
      batches[w].add(transfer(Collective::kRecv, 1 - rank, received[w]), nullptr);
    }
    if (const Status status = submit(batches); !status.ok()) return status.message();
    EXPECT_THAT(received, ElementsAre(2 - rank, 12 - rank));
    return {};
  });
}

TEST_F(SubmitTest, ErrorsAreThoseOfTheirCommunicators) {
  for (int rank = 0; rank < kRanks; ++rank) {
    communicator(1, rank).abort(Status::error(Code::kRemoteError, "aborted by the test"));
  }
  each([&](int rank) -> std::string {
    for (const bool in_stream : {false, true}) {
      const auto stream = in_stream ? std::make_shared<Stream>() : nullptr;
      std::array<int, 3> values{1, 10, 100};
      std::vector<Batch> batches(3);
      for (std::size_t w = 0; w < 3; ++w) {
        batches[w].communicator = &communicator(w, rank);
        batches[w].add(allreduce(values[w]), w == 2 ? stream : nullptr);
      }
      const Status status = submit(batches);
      EXPECT_THAT(status.message(), HasSubstr("aborted by the test"));
      EXPECT_TRUE(batches[0].error.ok()) << batches[0].error.message();
      EXPECT_THAT(batches[1].error.message(), HasSubstr("aborted by the test"));
      EXPECT_TRUE(batches[2].error.ok()) << batches[2].error.message();
      if (in_stream) {
        EXPECT_TRUE(stream->synchronize().ok());
      }
      EXPECT_THAT(values, ElementsAre(2, 10, 200)) << "the others are carried out";
    }
    return {};
  });
}

// Rank 1 makes no call on the communicator in the middle, and the others wait for nobody.
TEST_F(SubmitTest, OneCommunicatorTimesOut) {
  communicator(1, 0).set_timeout(50'000'000);
  each([&](int rank) -> std::string {
    communicator(0, rank).set_timeout(50'000'000);
    std::array<int, 2> values{1, 10};
    std::vector<Batch> batches(rank == 0 ? 2 : 1);
    for (std::size_t w = 0; w < batches.size(); ++w) {
      batches[w].communicator = &communicator(w, rank);
      batches[w].add(allreduce(values[w]), nullptr);
    }
    const Status status = submit(batches);
    EXPECT_TRUE(batches[0].error.ok()) << batches[0].error.message();
    EXPECT_EQ(values[0], 2);
    if (rank == 1) return status.message();
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_THAT(batches[1].error.message(), HasSubstr("no progress within the timeout of 0.1 s"));
    return {};
  });
}

TEST_F(SubmitTest, AFreedStreamKeepsItsOperations) {
  each([&](int rank) -> std::string {
    const auto made = create_stream();
    if (!made.ok()) return made.status().message();
    auto stream = find_stream(*made);
    std::array<int, 2> values{1, 10};
    std::vector<Batch> batches(2);
    for (std::size_t w = 0; w < 2; ++w) {
      batches[w].communicator = &communicator(w, rank);
      batches[w].add(allreduce(values[w]), stream);
    }
    destroy_stream(*made);
    stream.reset();
    if (const Status status = submit(batches); !status.ok()) return status.message();
    batches.clear();
    for (std::size_t w = 0; w < 2; ++w) {
      if (const Status status = communicator(w, rank).drain(); !status.ok()) {
        return status.message();
      }
    }
    EXPECT_THAT(values, ElementsAre(2, 20));
    return {};
  });
}

TEST_F(SubmitTest, NothingHappensWhereAStreamFails) {
  using At = FailingStream::At;
  each([&](int rank) -> std::string {
    for (const At at : {At::kPrepare, At::kIssue, At::kFollow}) {
      const auto good = std::make_shared<Stream>();
      std::array<int, 3> values{1, 10, 100};
      std::vector<Batch> batches(3);
      for (std::size_t w = 0; w < 3; ++w) batches[w].communicator = &communicator(w, rank);
      batches[0].add(allreduce(values[0]), good);
      batches[1].add(allreduce(values[1]), std::make_shared<FailingStream>(at));
      batches[2].add(allreduce(values[2]), nullptr);
      EXPECT_EQ(submit(batches).message(), "this stream fails");
      for (const Batch& batch : batches) EXPECT_EQ(batch.error.message(), "this stream fails");
      EXPECT_THAT(values, ElementsAre(1, 10, 100));
      EXPECT_TRUE(good->synchronize().ok()) << "its place has been given up";
      for (std::size_t w = 0; w < 3; ++w) {
        Status kept;
        const Status status = submit_one(communicator(w, rank), allreduce(values[w]), good, kept);
        if (!status.ok()) return status.message();
      }
      EXPECT_TRUE(good->synchronize().ok());
      EXPECT_THAT(values, ElementsAre(2, 20, 200)) << "all can still be used";
    }
    return {};
  });
}

TEST_F(SubmitTest, ASingleRequest) {
  each([&](int rank) -> std::string {
    const auto stream = std::make_shared<Stream>();
    int value = 1;
    Status kept;
    EXPECT_TRUE(submit_one(communicator(0, rank), allreduce(value), nullptr, kept).ok());
    EXPECT_EQ(value, 2);
    EXPECT_TRUE(submit_one(communicator(0, rank), allreduce(value), stream, kept).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(value, 4);
    EXPECT_TRUE(kept.ok());
    return {};
  });
}

TEST_F(SubmitTest, RequestsOfOneCommunicatorShareAStream) {
  each([&](int rank) -> std::string {
    const std::shared_ptr<Stream> none, some = std::make_shared<Stream>();
    for (const auto& stream : {none, some}) {
      std::array<int, 3> values{rank, -1, 1};
      Status kept;
      EXPECT_TRUE(
          submit(communicator(0, rank),
                 std::array{transfer(Collective::kSend, 1 - rank, values[0]),
                            transfer(Collective::kRecv, 1 - rank, values[1]), allreduce(values[2])},
                 stream, kept)
              .ok());
      EXPECT_TRUE(some->synchronize().ok());
      EXPECT_TRUE(kept.ok());
      EXPECT_THAT(values, ElementsAre(rank, 1 - rank, 2));
    }
    return {};
  });
}

TEST_F(SubmitTest, TheErrorOfASingleRequestIsKeptIfItIsTheCommunicators) {
  each([&](int rank) -> std::string {
    int value = 1;
    Status kept;
    const auto failing = std::make_shared<FailingStream>(FailingStream::At::kIssue);
    const Status refused = submit_one(communicator(0, rank), allreduce(value), failing, kept);
    EXPECT_EQ(refused.message(), "this stream fails");
    EXPECT_TRUE(kept.ok()) << "nothing has happened to the communicator";
    communicator(0, rank).abort(Status::error(Code::kRemoteError, "aborted by the test"));
    EXPECT_FALSE(submit_one(communicator(0, rank), allreduce(value), nullptr, kept).ok());
    EXPECT_THAT(kept.message(), HasSubstr("aborted by the test"));
    return {};
  });
}

} // namespace
} // namespace whorl
