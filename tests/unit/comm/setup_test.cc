// Tests of the rounds in which ranks set a communicator up.
#include "comm/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <thread>

#include "base/membership.h"
#include "bootstrap/gathering.h"

namespace whorl {
namespace {

/// The rounds of another Oob, and no other way to tell the ranks anything, like an all-gather of
/// the caller.
class RoundsOnly final : public Oob {
 public:
  explicit RoundsOnly(Oob& below) : below_(below) {}
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return below_.allgather(mine, all);
  }

 private:
  Oob& below_;
};

/// Sets up one of two ranks, whose connections stay in this process.
Status set_up_rank(const Gathering& met, const Options& options) {
  return without_exceptions([&] {
    RoundsOnly oob(*met.oob);
    return set_up(oob, met.nranks, met.rank, met.identity, options, std::make_shared<CommError>())
        .status();
  });
}

TEST(SetUp, ReportsAnExceptionOfOneRankToTheOthers) {
  auto met = meet_in_process(2, 2'000'000'000);
  ASSERT_TRUE(met.ok());
  auto options = Options::from_environment();
  ASSERT_TRUE(options.ok());
  options->transports = {"inproc"};
  Options too_large = *options;
  too_large.trace = testing::TempDir() + "/whorl-setup-trace-%r";
  too_large.trace_records = std::numeric_limits<std::size_t>::max(); // no vector has so many
  Status own;
  std::thread other([&] { own = set_up_rank((*met)[1], too_large); });
  const Status status = set_up_rank((*met)[0], *options);
  other.join();
  std::filesystem::remove(testing::TempDir() + "/whorl-setup-trace-1");
  EXPECT_THAT(status.message(), testing::HasSubstr("rank 1 could not join: "));
  EXPECT_THAT(own.message(), testing::HasSubstr("rank 1 could not join: "));
}

} // namespace
} // namespace whorl
