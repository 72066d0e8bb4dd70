#include "tests/support/device_blocks.h"

#include <algorithm>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/device_processes.h"
#include "tests/support/thread_world.h"
#include "tests/support/uneven_blocks.h"

namespace whorl::test {
namespace {

/// Returns the elements and one more, because a device allocates no memory of 0 bytes.
std::vector<int> padded(std::vector<int> elements) {
  elements.push_back(kGuard);
  return elements;
}
std::vector<int> unpadded(std::vector<int> elements) {
  elements.pop_back();
  return elements;
}

/// Gathers to all ranks and to one, and scatters what has been gathered. Ranks place blocks
/// differently.
std::string gather(const DeviceCaller& caller, unsigned seed, std::size_t largest, bool in_place) {
  const Counts counts = random_matrix(caller.nranks, seed, largest)[0];
  const auto own = static_cast<std::size_t>(caller.rank);
  const std::size_t gap = (seed + own) % 3;
  AllGatherv all(counts, caller.rank, gap, in_place);
  const DeviceCopy in(padded(all.send), caller.stream), out(padded(all.recv), caller.stream);
  const int* const from = in_place ? out.data<int>() + all.at[own] : in.data<int>();
  whorlResult_t result = all.gather_all(from, out.data(), caller.comm, caller.stream);
  if (result != whorlSuccess) return failure(result, caller.comm);
  all.recv = unpadded(out.read<int>(caller.stream));
  if (!all.check().empty()) return "all-gather: " + all.check();

  const int root = static_cast<int>(seed) % caller.nranks;
  const bool here = caller.rank == root;
  const DeviceCopy gathered(std::vector<int>(all.recv.size() + 1, kGuard), caller.stream);
  result = all.gather(root, in.data(), gathered.data(), caller.comm, caller.stream);
  if (result != whorlSuccess) return failure(result, caller.comm);
  if (here) {
    all.recv = unpadded(gathered.read<int>(caller.stream));
    if (!all.check().empty()) return "gather: " + all.check();
  }
  const DeviceCopy back(std::vector<int>(counts[own] + 1, kGuard), caller.stream);
  result = whorlScatterv(here ? gathered.data() : nullptr, here ? counts.data() : nullptr,
                         here ? all.at.data() : nullptr, back.data(), counts[own], whorlInt32, root,
                         caller.comm, caller.stream);
  if (result != whorlSuccess) return failure(result, caller.comm);
  const auto got = back.read<int>(caller.stream);
  const bool right = std::equal(all.send.begin(), all.send.end(), got.begin());
  return right && got.back() == kGuard ? "" : "wrong scatter";
}

/// Reduce-scatters small whole numbers, by sum and by average.
std::string reduce_scatter(const DeviceCaller& caller, unsigned seed, std::size_t largest) {
  const Counts counts = random_matrix(caller.nranks, seed, largest)[0];
  const auto own = static_cast<std::size_t>(caller.rank);
  const Counts at = displacements(counts, 0);
  const auto n = static_cast<float>(caller.nranks);
  std::vector<float> values(total(counts, 0) + 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 1000) * static_cast<float>(caller.rank + 1);
  }
  const DeviceCopy in(values, caller.stream);
  const auto check = [&](const float* got, whorlRedOp_t op) -> std::string {
    for (std::size_t i = 0; i < counts[own]; ++i) {
      const float sum = static_cast<float>((at[own] + i) % 1000) * n * (n + 1) / 2;
      if (got[i] != (op == whorlAvg ? sum / n : sum)) return "wrong sum at " + std::to_string(i);
    }
    return {};
  };
  for (const whorlRedOp_t op : {whorlSum, whorlAvg}) {
    const DeviceCopy out(std::vector<float>(counts[own] + 1, -1.0F), caller.stream);
    const whorlResult_t result = whorlReduceScatterv(in.data(), out.data(), counts.data(),
                                                     whorlFloat32, op, caller.comm, caller.stream);
    if (result != whorlSuccess) return failure(result, caller.comm);
    const auto got = out.read<float>(caller.stream);
    if (std::string text = check(got.data(), op); !text.empty()) return text;
    if (got.back() != -1.0F) return "more than the block was written";
  }
  const whorlResult_t result =
      whorlReduceScatterv(in.data(), in.data<float>() + at[own], counts.data(), whorlFloat32,
                          whorlSum, caller.comm, caller.stream);
  if (result != whorlSuccess) return failure(result, caller.comm);
  auto got = in.read<float>(caller.stream);
  if (std::string text = check(got.data() + at[own], whorlSum); !text.empty()) return text;
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at[own]), counts[own],
              got.begin() + static_cast<std::ptrdiff_t>(at[own]));
  if (got != values) return "more than the block was written in place";
  return {};
}

/// Calls `form(seed, largest)` for some sizes of blocks.
template <class Form>
std::string with_every_size(Form&& form) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    if (auto text = form(seed, seed == 5 ? 100'000 : 700); !text.empty()) return text;
  }
  return {};
}

} // namespace

std::string all_to_all_v(const DeviceCaller& caller, unsigned seed, std::size_t largest) {
  AllToAllv exchange(random_matrix(caller.nranks, seed, largest), caller.rank, seed % 2);
  const DeviceCopy in(padded(exchange.send), caller.stream);
  const DeviceCopy out(padded(exchange.recv), caller.stream);
  const whorlResult_t result = exchange.run(in.data(), out.data(), caller.comm, caller.stream);
  if (result != whorlSuccess) return failure(result, caller.comm);
  exchange.recv = unpadded(out.read<int>(caller.stream));
  return exchange.check();
}

std::string every_form(const DeviceCaller& caller, bool sums_by_host) {
  std::string text = with_every_size([&](unsigned seed, std::size_t largest) {
    std::string wrong = all_to_all_v(caller, seed, largest);
    for (const bool in_place : {false, true}) {
      if (wrong.empty()) wrong = gather(caller, seed, largest, in_place);
    }
    return wrong;
  });
  if (!text.empty()) return text;
  if (host_was_used(caller.comm)) return "the host has moved blocks";
  text = with_every_size(
      [&](unsigned seed, std::size_t largest) { return reduce_scatter(caller, seed, largest); });
  if (text.empty() && host_was_used(caller.comm) != sums_by_host) {
    text = sums_by_host ? "the device has combined blocks" : "the host has combined blocks";
  }
  return text;
}

std::string both_forms(const DeviceCaller& caller) {
  constexpr std::size_t kCount = 1001, kGap = 3;
  const auto n = static_cast<std::size_t>(caller.nranks);
  const DeviceCopy in(std::vector<int>(kCount, caller.rank), caller.stream);
  const Counts counts(n, kCount);
  for (int plain = 0; plain < caller.nranks; ++plain) {
    // With gaps, since a call whose blocks lie side by side is the plain one.
    const bool gaps = caller.rank != plain;
    const Counts at = displacements(counts, gaps ? kGap : 0);
    std::vector<int> expected(total(counts, gaps ? kGap : 0), kGuard);
    const DeviceCopy out(expected, caller.stream);
    const whorlResult_t result =
        gaps
            ? whorlAllGatherv(in.data(), kCount, out.data(), counts.data(), at.data(), whorlInt32,
                              caller.comm, caller.stream)
            : whorlAllGather(in.data(), out.data(), kCount, whorlInt32, caller.comm, caller.stream);
    if (result != whorlSuccess) return failure(result, caller.comm);
    for (std::size_t r = 0; r < n; ++r) {
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at[r]), kCount,
                  static_cast<int>(r));
    }
    if (out.read<int>(caller.stream) != expected) return "wrong blocks";
  }
  return host_was_used(caller.comm) ? "the host has carried it out" : "";
}

std::string wrong_counts(const DeviceCaller& caller) {
  Counts out(3, 1), in(3, 1);
  if (caller.rank == 2) out[1] = 3;
  if (caller.rank == 1) in[2] = 5;
  const DeviceCopy from(std::vector<int>(total(out, 0)), caller.stream);
  const DeviceCopy to(std::vector<int>(total(in, 0)), caller.stream);
  const whorlResult_t result =
      whorlAlltoAllv(from.data(), out.data(), nullptr, to.data(), in.data(), nullptr, whorlInt32,
                     caller.comm, caller.stream);
  const std::string text =
      result != whorlSuccess ? whorlGetLastError(caller.comm) : error_of(caller.comm);
  const char* const expected =
      "in alltoallv rank 2 sends 3 int32 to rank 1, which expects 5; they differ in count";
  return text.find(expected) != std::string::npos ? "" : "the error is: " + text;
}

} // namespace whorl::test
