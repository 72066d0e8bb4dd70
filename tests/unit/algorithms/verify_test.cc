// Proofs that every algorithm is right for every number of ranks up to 64, all roots, up to three
// channels, in place and out of place, and with messages that the receiver reads in the sender's
// memory. The quick suite verifies all numbers of ranks up to 16 and some above.
#include <algorithm>
#include <array>

#include "support.h"

namespace whorl {
namespace {

using test::text;
using test::verifies;

class Quick : public ::testing::TestWithParam<Algorithm> {};
class Full : public ::testing::TestWithParam<Algorithm> {};

/// Returns the roots to verify; with `every` all of them.
std::vector<int> roots_of(const Algorithm& algorithm, int nranks, bool every) {
  if (!has_root(algorithm.collective)) return {0};
  if (every || nranks <= 8) {
    std::vector<int> roots;
    for (int root = 0; root < nranks; ++root) roots.push_back(root);
    return roots;
  }
  return {0, nranks / 2 + 1, nranks - 1};
}

void verify_all_sizes(const Algorithm& algorithm, bool every) {
  constexpr int kFew = 16;
  constexpr std::array kSome{17, 24, 31, 33, 48, 64}; // around powers of two, and products
  int supported = 0;
  for (int n = 1; n <= 64; ++n) {
    const bool some = std::find(kSome.begin(), kSome.end(), n) != kSome.end();
    if (!every && n > kFew && !some) continue;
    for (int channels = 1; channels <= 3; ++channels) {
      if (!every && n > kFew && channels != n % 3 + 1) continue;
      // Above 32 ranks the full suite, too, verifies one number of channels for each root.
      for (const int root : roots_of(algorithm, n, every)) {
        if (every && n > 2 * kFew && has_root(algorithm.collective) && channels != root % 3 + 1) {
          continue;
        }
        const Shape shape{.nranks = n, .root = root, .channels = channels};
        if (!algorithm.supports(shape)) continue;
        ++supported;
        ASSERT_TRUE(verifies(algorithm, shape, every || n <= kFew));
      }
    }
  }
  if (test::needs_dims(algorithm)) return;
  EXPECT_GT(supported, 0) << algorithm.name;
}

TEST_P(Quick, VerifiesAllSizes) { verify_all_sizes(GetParam(), false); }
TEST_P(Full, VerifiesAllSizes) { verify_all_sizes(GetParam(), true); }

TEST_P(Full, VerifiesManyRanks) {
  // Numbers above 255 partners, and where sizes stop being powers of two.
  for (const int n : {256, 257, 300}) {
    const Shape shape{.nranks = n, .root = has_root(GetParam().collective) ? n / 2 : 0};
    if (!GetParam().supports(shape)) continue;
    ASSERT_TRUE(verifies(GetParam(), shape, false));
  }
  const Shape shape{.nranks = 1024};
  if (GetParam().collective != Collective::kAllToAll || !GetParam().supports(shape)) return;
  ASSERT_TRUE(verifies(GetParam(), shape, false));
}

TEST_P(Quick, NeedsNoMoreSlotsForManyWindows) {
  const Collective collective = GetParam().collective;
  for (const int n : {2, 3, 7, 8, 13}) {
    for (const bool in_place : {false, true}) {
      const Shape shape{.nranks = n, .root = has_root(collective) ? n - 1 : 0, .channels = 2};
      if (!GetParam().supports(shape) || (in_place && !test::has_in_place(collective))) continue;
      const auto report = verify(build_all(GetParam(), shape), {collective, shape.root, in_place},
                                 {.slots = kMinSlots, .windows = 9, .published = in_place});
      ASSERT_TRUE(report.ok()) << text(GetParam(), shape) << ": " << report.status().message();
    }
  }
}

TEST_P(Quick, StaysSmall) {
  for (int n = 1; n <= 64; ++n) {
    const Shape shape{.nranks = n, .root = n - 1, .channels = 2};
    if (!GetParam().supports(shape)) continue;
    for (const Schedule& schedule : build_all(GetParam(), shape)) {
      ASSERT_LE(test::load_of(schedule).max_steps, 256) << text(GetParam(), shape);
    }
  }
}

TEST_P(Quick, SaysNoWhereItCannotBeEncoded) {
  for (const int n : {255, 256, 257, 300, 1000, 1024, 70000}) {
    for (const int channels : {1, 300}) {
      const Shape shape{.nranks = n, .root = n / 2, .channels = channels};
      // Every supported shape must build, at least for a few ranks.
      if (!GetParam().supports(shape)) continue;
      for (const int rank : {0, 1, n / 2, n - 1}) {
        const Schedule schedule = build_schedule(GetParam(), shape, rank);
        EXPECT_EQ(schedule.nranks, n);
        for (const Lane& lane : schedule.lanes) EXPECT_LE(lane.peers.size(), 255U);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Quick, ::testing::ValuesIn(all_algorithms()), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, Full, ::testing::ValuesIn(all_algorithms()), name_of_test);

} // namespace
} // namespace whorl
