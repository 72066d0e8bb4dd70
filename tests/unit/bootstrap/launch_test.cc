// Tests of ranks that meet through the key-value space of a launcher.
#include <gtest/gtest.h>

#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/gathering.h"
#include "launchers/launcher.h"
#include "tests/support/failing_system.h"
#include "tests/support/run_ranks.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

using test::FailingSystem;
using test::Mode;
using test::RankContext;

/// Key-value space of the ranks of a run, of which each sets one value before a fence.
class RunStore final : public KeyValue {
 public:
  explicit RunStore(RankContext& context) : context_(context) {}

  Status set(const std::string& key, std::span<const std::byte> value) override {
    key_and_value_ = key + "=";
    key_and_value_.append(reinterpret_cast<const char*>(value.data()), value.size());
    return {};
  }
  Status fence(std::int64_t) override {
    all_ = context_.allgather(std::as_bytes(std::span(key_and_value_)));
    return {};
  }
  Result<std::vector<std::byte>> get(int rank, const std::string& key, std::int64_t) override {
    const std::vector<std::byte>& stored = all_[static_cast<std::size_t>(rank)];
    const std::string_view text(reinterpret_cast<const char*>(stored.data()), stored.size());
    if (!text.starts_with(key + "=")) return launcher_error("no rank has stored " + key);
    return std::vector<std::byte>(stored.begin() + static_cast<std::ptrdiff_t>(key.size()) + 1,
                                  stored.end());
  }

 private:
  RankContext& context_;
  std::string key_and_value_; ///< empty on ranks that set nothing
  std::vector<std::vector<std::byte>> all_;
};

TEST(Launch, ARootThatCannotStartFailsAllRanksAtOnceAndTheNextMeetingWorks) {
  auto& system = lasting<FailingSystem>();
  const ScopedSystem scope(&system);
  const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
    RunStore store(context);
    const Launch launch{.source = "a test",
                        .rank = context.rank,
                        .nranks = context.nranks,
                        .local_nranks = context.nranks,
                        .store = &store};
    const CommError comm_error;
    if (context.rank == 0) system.fail("socket", EMFILE);
    const auto start = Clock::now();
    const auto failed = meet_by_launch(launch, 60'000'000'000, comm_error);
    EXPECT_LT(seconds_since(start), 20);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.status().code(), Code::kSystemError);
    const std::string& text = failed.status().message();
    EXPECT_TRUE(contains(text, "Too many open files")) << text;
    EXPECT_TRUE(contains(text, "raise the limit on open files")) << text;
    const std::string why = "rank 0 could not open the place where ranks meet: ";
    EXPECT_EQ(contains(text, why), context.rank != 0) << text;

    system.heal();
    const auto met = meet_by_launch(launch, 20'000'000'000, comm_error);
    EXPECT_TRUE(met.ok()) << met.status().message();
    context.barrier(); // rank 0 has the root
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl
