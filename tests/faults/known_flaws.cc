#include "tests/faults/known_flaws.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <array>

namespace whorl::test {
namespace {

/// Cells by a glob, with their flaws.
struct Entry {
  const char* cells; ///< glob
  KnownFlaws flaws;
};

/// The table: globs with @(one|other) and !(none of these); a later entry takes precedence.
constexpr std::array kTable{
    // --- A rank is stopped ---
    // The report of a rank about its wait may be older than the present wait.
    Entry{"kill/*/*/stop/*/*", {.rarely = kNeighbour}},

    // --- Calls differ: a rank that only sends is done before anybody finds it out ---
    // A message of 16 MiB does not fit into the slots, so its sender is still there.
    Entry{"mismatch/*/reduce/!(16M)/!(order)/*", {.mostly = kNextCall}},
    Entry{"mismatch/*/reduce/16M/*/*", {.sometimes = kNextCall}},
    Entry{"mismatch/*/broadcast/@(0|1|1k)/@(count|dtype)/*", {.mostly = kNextCall}},
    Entry{"mismatch/*/broadcast/256k/@(count|dtype)/*", {.sometimes = kNextCall}},
    Entry{"mismatch/*/broadcast/16M/@(count|dtype)/*", {.sometimes = kNextCall | kTouched}},
    Entry{"mismatch/*/@(scatter|scatterv)/!(16M)/@(count|dtype)/*", {.mostly = kNextCall}},
    Entry{"mismatch/*/@(scatter|scatterv)/16M/@(count|dtype)/*",
          {.mostly = kTouched, .sometimes = kNextCall}},
    Entry{"mismatch/*/@(broadcast|scatter|scatterv)/!(16M)/@(root|kind)/rank2",
          {.mostly = kNextCall, .sometimes = kTouched}},
    Entry{"mismatch/*/@(broadcast|scatter|scatterv)/16M/@(root|kind)/rank2",
          {.sometimes = kNextCall | kTouched}},
    Entry{"mismatch/*/@(gather|gatherv)/!(16M)/!(order)/*", {.mostly = kNextCall}},
    Entry{"mismatch/*/@(gather|gatherv)/16M/!(order)/*", {.sometimes = kNextCall}},
    Entry{"mismatch/*/sendrecv/*/@(count|dtype|kind)/*", {.sometimes = kNextCall | kTouched}},
    Entry{"mismatch/*/sendrecv/!(16M)/@(dtype|kind)/*",
          {.mostly = kNextCall, .sometimes = kTouched}},

    // --- Calls differ: a rank's own block, or a peer that makes the same call, comes first ---
    Entry{"mismatch/*/@(broadcast|scatter|scatterv)/*/order/rank2", {.sometimes = kTouched}},
    Entry{"mismatch/*/recvany/*/*/*", {.sometimes = kTouched}},

    // --- Calls differ: each rank waits for a message, and none has a number to compare ---
    Entry{"mismatch/*/gatherv/16M/root/*", {.sometimes = kDeadline | kNextCall | kTouched}},
    Entry{"mismatch/*/recvany/!(16M)/root/rank0", {.mostly = kNoError}},
    Entry{"mismatch/*/recvany/16M/root/rank0", {.mostly = kDeadline}},
    Entry{"mismatch/*/recvany/*/root/rank2", {.mostly = kDeadline, .sometimes = kTouched}},
    Entry{"mismatch/tcp/recvany/16M/@(order|kind)/*", {.sometimes = kDeadline | kTouched}},
    Entry{"mismatch/*/sendrecv/*/order/*", {.sometimes = kTouched}},
    Entry{"mismatch/tcp/sendrecv/16M/kind/*", {.sometimes = kDeadline | kNextCall | kTouched}},
};

} // namespace

KnownFlaws known_flaws(const std::string& cell) {
  KnownFlaws flaws;
  for (const Entry& entry : kTable) {
    if (::fnmatch(entry.cells, cell.c_str(), FNM_EXTMATCH | FNM_PATHNAME) == 0) flaws = entry.flaws;
  }
  return flaws;
}

std::string compare_with_known(const std::string& cell, std::uint8_t flaws) {
  const KnownFlaws known = known_flaws(cell);
  if ((flaws & ~(known.mostly | known.sometimes)) == 0) return {};
  return fmt::format(
      "flaws: {}; known: {}{}; ", describe_flaws(flaws), describe_flaws(known.mostly),
      known.sometimes == 0 ? "" : ", and sometimes " + describe_flaws(known.sometimes));
}

std::string describe_flaws(std::uint8_t flaws) {
  constexpr std::array<std::string_view, 6> kNames{"only from the next calls",
                                                   "only at the deadline",
                                                   "buffer touched",
                                                   "no error",
                                                   "error does not name both calls and the field",
                                                   "error names a rank that waits itself, or none"};
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((flaws >> i & 1) == 0) continue;
    if (!text.empty()) text += ", ";
    text += kNames[i];
  }
  return text.empty() ? "none" : text;
}

} // namespace whorl::test
