#include "tests/support/all_operations.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/support/oracle.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

/// Returns a number that differs between ranks and elements.
std::int32_t value(int from, int to, std::size_t element) {
  return from * 10'007 + to * 13 + static_cast<std::int32_t>(element);
}

/// Returns the size of a rank's block, 0 to 2 elements.
std::size_t size_of_block(int rank) { return static_cast<std::size_t>(rank % 3); }

/// Sizes of the blocks of all ranks, and their sum.
struct Sizes {
  explicit Sizes(int nranks) {
    for (int r = 0; r < nranks; ++r) counts.push_back(size_of_block(r));
    total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  std::vector<std::size_t> counts;
  std::size_t total = 0;
};

std::string even_collectives(int rank, int nranks, whorlComm_t comm) {
  for (const CollectiveCase::Kind kind : CollectiveCase::kKinds) {
    const CollectiveCase c{.kind = kind, .count = 3, .root = nranks - 1};
    Buffers buffers(c, rank, nranks);
    if (auto failed = failure(buffers.run(comm), comm); !failed.empty()) {
      return c.text() + ": " + failed;
    }
    if (auto wrong = buffers.check(); !wrong.empty()) return wrong;
  }
  return failure(whorlBarrier(comm, nullptr), comm);
}

std::string all_gatherv(int rank, int nranks, whorlComm_t comm) {
  const Sizes sizes(nranks);
  std::vector<std::int32_t> mine, got(sizes.total), want;
  for (int r = 0; r < nranks; ++r) {
    for (std::size_t i = 0; i < size_of_block(r); ++i) want.push_back(value(r, 0, i));
  }
  for (std::size_t i = 0; i < size_of_block(rank); ++i) mine.push_back(value(rank, 0, i));
  const auto result = whorlAllGatherv(mine.data(), mine.size(), got.data(), sizes.counts.data(),
                                      nullptr, whorlInt32, comm, nullptr);
  if (auto failed = failure(result, comm); !failed.empty()) return "allgatherv: " + failed;
  return got == want ? "" : "allgatherv: wrong elements";
}

std::string reduce_scatterv(int rank, int nranks, whorlComm_t comm) {
  const Sizes sizes(nranks);
  std::vector<std::int32_t> mine, got(size_of_block(rank)), want;
  for (int r = 0; r < nranks; ++r) {
    for (std::size_t i = 0; i < size_of_block(r); ++i) mine.push_back(rank + r);
  }
  want.assign(size_of_block(rank), nranks * (nranks - 1) / 2 + nranks * rank);
  const auto result = whorlReduceScatterv(mine.data(), got.data(), sizes.counts.data(), whorlInt32,
                                          whorlSum, comm, nullptr);
  if (auto failed = failure(result, comm); !failed.empty()) return "reducescatterv: " + failed;
  return got == want ? "" : "reducescatterv: wrong elements";
}

std::string all_to_allv(int rank, int nranks, whorlComm_t comm) {
  std::vector<std::size_t> out_counts, in_counts;
  std::vector<std::int32_t> out, want;
  for (int r = 0; r < nranks; ++r) {
    out_counts.push_back(size_of_block(rank + r));
    in_counts.push_back(size_of_block(rank + r));
    for (std::size_t i = 0; i < out_counts.back(); ++i) {
      out.push_back(value(rank, r, i));
      want.push_back(value(r, rank, i));
    }
  }
  std::vector<std::int32_t> got(want.size());
  const auto result = whorlAlltoAllv(out.data(), out_counts.data(), nullptr, got.data(),
                                     in_counts.data(), nullptr, whorlInt32, comm, nullptr);
  if (auto failed = failure(result, comm); !failed.empty()) return "alltoallv: " + failed;
  return got == want ? "" : "alltoallv: wrong elements";
}

std::string gatherv_and_scatterv(int rank, int nranks, whorlComm_t comm) {
  const Sizes sizes(nranks);
  const int root = nranks / 2;
  const bool is_root = rank == root;
  std::vector<std::int32_t> mine, all(is_root ? sizes.total : 0), want;
  for (std::size_t i = 0; i < size_of_block(rank); ++i) mine.push_back(value(rank, root, i));
  for (int r = 0; r < nranks; ++r) {
    for (std::size_t i = 0; i < size_of_block(r); ++i) want.push_back(value(r, root, i));
  }
  auto result = whorlGatherv(mine.data(), mine.size(), all.data(), sizes.counts.data(), nullptr,
                             whorlInt32, root, comm, nullptr);
  if (auto failed = failure(result, comm); !failed.empty()) return "gatherv: " + failed;
  if (is_root && all != want) return "gatherv: wrong elements";
  std::vector<std::int32_t> back(mine.size());
  result = whorlScatterv(all.data(), sizes.counts.data(), nullptr, back.data(), back.size(),
                         whorlInt32, root, comm, nullptr);
  if (auto failed = failure(result, comm); !failed.empty()) return "scatterv: " + failed;
  return back == mine ? "" : "scatterv: wrong elements";
}

std::string send_and_receive(int rank, int nranks, whorlComm_t comm) {
  for (const int distance : {1, nranks / 2, nranks - 1}) {
    const int to = (rank + distance) % nranks, from = (rank + nranks - distance) % nranks;
    const std::vector<std::int32_t> out(100, value(rank, to, 0));
    std::vector<std::int32_t> in(100);
    whorlGroupStart();
    whorlSend(out.data(), out.size(), whorlInt32, to, comm, nullptr);
    whorlRecv(in.data(), in.size(), whorlInt32, from, comm, nullptr);
    if (auto failed = failure(whorlGroupEnd(), comm); !failed.empty()) {
      return "send and receive: " + failed;
    }
    if (in != std::vector<std::int32_t>(100, value(from, rank, 0))) {
      return "send and receive: wrong elements";
    }
  }
  return {};
}

} // namespace

std::string all_operations(int rank, int nranks, whorlComm_t comm) {
  for (const auto operation : {even_collectives, all_gatherv, reduce_scatterv, all_to_allv,
                               gatherv_and_scatterv, send_and_receive}) {
    if (auto failed = operation(rank, nranks, comm); !failed.empty()) return failed;
  }
  return {};
}

} // namespace whorl::test
