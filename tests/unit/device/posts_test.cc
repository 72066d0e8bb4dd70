// Tests of what a rank makes of the posts of another process, which may say anything. Rank 0 is a
// DevicePeers; this program writes the posts of rank 1 itself. Whatever a post is, rank 0 gets an
// error, leaves the operation to the host, or queues kernels that stay within its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/shm_segment.h"
#include "device/ipc/group.h"
#include "device/staged/stream.h"
#include "tests/support/device.h"
#include "tests/support/pretended_device.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kTimeoutNs = 10'000'000'000;
constexpr std::size_t kCount = 64; ///< elements of the buffers of each rank

/// Post of rank 1, and the places of its blocks.
struct Forged {
  DevicePost post;
  std::vector<BlockPlace> places;
};

/// Process with the buffers of rank 1. Made before this process calls the driver.
class Owner {
 public:
  Owner() {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    child_ = fork();
    if (child_ < 0) std::abort(); // kill() would take −1 for all processes
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const test::DeviceContext context;
      const test::DeviceQueue stream;
      const test::DeviceCopy input(std::vector<int>(kCount, 1), stream.get());
      const test::DeviceCopy output(std::vector<int>(kCount), stream.get());
      gpu::MemoryExports exports;
      for (const auto* const buffer : {&input, &output}) {
        const auto found = exports.find(buffer->data(), kCount * sizeof(int));
        if (!found || write(pipe[1], &*found, sizeof *found) != sizeof *found) _exit(1);
      }
      for (;;) pause();
    }
    close(pipe[1]); // so that a child that ends ends the pipe
    for (auto* const buffer : {&input_, &output_}) {
      EXPECT_EQ(read(pipe[0], buffer, sizeof *buffer), static_cast<ssize_t>(sizeof *buffer));
    }
    close(pipe[0]);
  }
  ~Owner() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  const gpu::SharedMemory& input() const { return input_; }
  const gpu::SharedMemory& output() const { return output_; }

 private:
  pid_t child_;
  gpu::SharedMemory input_, output_;
};

/// Communicator of two processes, of which rank 1 is this test.
class World {
 public:
  World() {
    auto memory = ShmSegment::create("board", board_bytes_for(2, true));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    memory_ = *std::move(memory);
    members_.nranks = 2;
    members_.peers.resize(2);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      members_.peers[rank].rank = rank;
      members_.peers[rank].process_key = rank + 1;
    }
    rules_.shape.nranks = 2;
    other_ = std::make_unique<SharedState>(board(), 2);
    peers_ = std::make_unique<DevicePeers>(members_, board(), nullptr, watch_, rules_);
  }
  ~World() {
    error_.set(Status::error(Code::kRemoteError, "the test is over")); // streams wait for rank 1
    stream_.synchronize();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Makes rank 0 call `request`, and rank 1 post what `forge` makes of the right post. Returns the
  /// error, or who carries the operation out.
  Result<Met> meet(const Request& request, const Owner& owner,
                   const std::function<void(Forged&)>& forge) {
    const auto stream = device_stream(stream_.get());
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    const std::uint64_t number = peers_->post(0, request, stream->get(), kTimeoutNs);
    EXPECT_EQ(peers_->advance(kTimeoutNs), Progress::kAdvanced);
    Forged forged{.post = {}, .places = std::vector<BlockPlace>(4)};
    EXPECT_EQ(other_->call(0, number, &forged.post), SharedState::Call::kDevice);
    other_->blocks(0, number, forged.places);
    forged.post.input = owner.input();
    forged.post.output = owner.output();
    forge(forged);
    EXPECT_TRUE(other_->post(1, number, &forged.post, forged.places));
    other_->offer(1, nullptr);
    other_->answer(1, number, false); // that rank 1 cannot hand over descriptors
    while (peers_->advance(kTimeoutNs) == Progress::kAdvanced) {
    }
    ClockWaiter clock;
    return peers_->meet(0, number, {.timeout_ns = kTimeoutNs}, error_, clock);
  }

 private:
  std::span<std::byte> board() const { return {memory_.data(), memory_.size()}; }

  ShmSegment memory_;
  Membership members_;
  CommError error_;
  DeviceWatch watch_{.comm_error = &error_,
                     .look_at_peers = [] {},
                     .fail = [this](Status why) { error_.set(std::move(why)); }};
  DeviceRules rules_;
  test::DeviceQueue stream_;
  std::unique_ptr<SharedState> other_;
  std::unique_ptr<DevicePeers> peers_;
};

class Posts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { owner_ = std::make_unique<Owner>(); }
  static void TearDownTestSuite() { owner_.reset(); }
  void SetUp() override {
    if (!test::device_is_pretended()) GTEST_SKIP() << "needs several devices";
  }
  /// Returns a request of whole buffers.
  Request whole(Collective collective) const {
    return {.collective = collective,
            .type = DataType::kInt32,
            .count = kCount,
            .send = input_.data(),
            .recv = output_.data()};
  }
  Request sum() const { return whole(Collective::kAllReduce); }
  /// Returns an all-to-all of blocks, of which each rank sends half of its buffer to each.
  Request exchange() const {
    auto blocks = std::make_shared<Blocks>();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::size_t at = rank * kCount / 2 * sizeof(int);
      blocks->sends.push_back({true, input_.data() + at, kCount / 2});
      blocks->receives.push_back({true, output_.data() + at, kCount / 2});
    }
    return {
        .collective = Collective::kAllToAll, .type = DataType::kInt32, .blocks = std::move(blocks)};
  }

  /// Meets as World does.
  Result<Met> meet(const Request& request, const std::function<void(Forged&)>& forge) const {
    return World().meet(request, *owner_, forge);
  }
  /// Returns the error of such a call.
  std::string error_of(const Request& request, const std::function<void(Forged&)>& forge) const {
    const auto met = meet(request, forge);
    return met.ok() ? "" : std::string(met.status().message());
  }

  static inline std::unique_ptr<Owner> owner_;
  const test::DeviceContext context_;
  const test::DeviceQueue stream_;
  const test::DeviceCopy input_{std::vector<int>(kCount, 1), stream_.get()};
  const test::DeviceCopy output_{std::vector<int>(kCount), stream_.get()};
};

/// Makes the post that of a rank on another device.
void on_another_device(Forged& forged) { forged.post.device[0] ^= std::byte{1}; }

constexpr const char* kBadBuffers =
    "rank 1 (host , pid 0) sent a malformed description of its buffers";

TEST_F(Posts, AreTakenIfTheyAreRight) {
  for (const Request& request : {sum(), exchange()}) {
    const auto met = meet(request, [](Forged&) {});
    ASSERT_TRUE(met.ok()) << met.status().message();
    EXPECT_EQ(*met, Met::kQueued);
  }
}

TEST_F(Posts, OfBuffersThatAreTooSmallAreErrors) {
  for (const auto part : {&DevicePost::input, &DevicePost::output}) {
    for (const Request& request : {sum(), exchange()}) {
      EXPECT_THAT(error_of(request, [&](Forged& forged) { (forged.post.*part).bytes = 0; }),
                  HasSubstr(kBadBuffers));
      EXPECT_THAT(error_of(request, [&](Forged& forged) { (forged.post.*part).bytes -= 4; }),
                  HasSubstr(kBadBuffers));
      EXPECT_THAT(
          error_of(request, [&](Forged& forged) { (forged.post.*part).bytes = ~std::uint64_t{0}; }),
          HasSubstr(kBadBuffers));
      EXPECT_THAT(
          error_of(request, [&](Forged& forged) { (forged.post.*part).address += 1 << 30; }),
          HasSubstr(kBadBuffers));
    }
  }
}

TEST_F(Posts, OfBlocksThatAreNotInTheBuffersAreErrors) {
  for (std::size_t place = 0; place < 4; ++place) {
    const auto forge = [&](BlockPlace block) {
      return [=](Forged& forged) { forged.places[place] = block; };
    };
    for (const BlockPlace block : {BlockPlace{.offset = kCount * sizeof(int), .count = 1},
                                   {.offset = 0, .count = kCount + 1},
                                   {.offset = ~std::uint64_t{3}, .count = 1},
                                   {.offset = 0, .count = ~std::uint64_t{0} / 4}}) {
      EXPECT_THAT(error_of(exchange(), forge(block)), HasSubstr(kBadBuffers));
    }
  }
}

TEST_F(Posts, OfBlocksInACallWithoutAreErrors) {
  const auto has_blocks = [](Forged& forged) { forged.post.uneven = 1; };
  EXPECT_THAT(error_of(sum(), has_blocks), HasSubstr(kBadBuffers));
  EXPECT_THAT(error_of(whole(Collective::kBroadcast),
                       [&](Forged& forged) {
                         has_blocks(forged);
                         on_another_device(forged);
                       }),
              HasSubstr("malformed description of its call"));
}

TEST_F(Posts, WithoutBlocksInACallWithThemAreErrors) {
  const auto has_none = [](Forged& forged) { forged.post.uneven = 0; };
  EXPECT_NE(error_of(exchange(), has_none), "");
}

TEST_F(Posts, WithAnyBitsDoNoHarm) {
  std::mt19937 random(7);
  std::array<int, 3> outcomes{}; // by Met, and errors
  for (int i = 0; i < 400; ++i) {
    const bool uneven = i % 2 == 1, apart = i % 4 >= 2;
    const auto met = meet(uneven ? exchange() : sum(), [&](Forged& forged) {
      if (apart) on_another_device(forged);
      const auto spoil = [&](std::span<std::byte> bytes) {
        bytes[random() % bytes.size()] ^= std::byte{1} << random() % 8;
      };
      for (std::uint_fast32_t bits = 1 + random() % 3; bits > 0; --bits) {
        spoil(uneven && random() % 2 == 0
                  ? std::as_writable_bytes(std::span(forged.places))
                  : std::span(reinterpret_cast<std::byte*>(&forged.post), sizeof forged.post));
      }
      forged.post.input.handle = owner_->input().handle; // which the driver checks
      forged.post.output.handle = owner_->output().handle;
    });
    ++outcomes[met.ok() ? static_cast<std::size_t>(*met) : 2];
  }
  for (const int count : outcomes) EXPECT_GT(count, 20);
}

} // namespace
} // namespace whorl
