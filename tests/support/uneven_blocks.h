#pragma once

// Collectives whose blocks have different sizes, and the elements that they must give.

#include <whorl/whorl.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace whorl::test {

using Counts = std::vector<std::size_t>;
inline constexpr int kGuard = -7;

/// Counts of one exchange as counts[from][to], equal on all ranks.
using Matrix = std::vector<Counts>;

inline int element(int from, int to, std::size_t i) {
  return from * 1'000'003 + to * 10'007 + static_cast<int>(i % 9973);
}

/// Returns the positions of blocks with a gap before each, or side by side.
inline Counts displacements(const Counts& counts, std::size_t gap) {
  Counts at;
  std::size_t next = 0;
  for (const std::size_t count : counts) {
    at.push_back(next + gap);
    next = at.back() + count;
  }
  return at;
}

inline std::size_t total(const Counts& counts, std::size_t gap) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) + gap * (counts.size() + 1);
}

inline Counts column(const Matrix& matrix, int to) {
  Counts counts;
  for (const Counts& row : matrix) counts.push_back(row[static_cast<std::size_t>(to)]);
  return counts;
}

/// Makes small, empty and large counts; rank 1 sends nothing, rank 2 receives nothing.
inline Matrix random_matrix(int nranks, unsigned seed, std::size_t largest) {
  std::mt19937 random(seed);
  Matrix matrix(static_cast<std::size_t>(nranks), Counts(static_cast<std::size_t>(nranks)));
  for (std::size_t from = 0; from < matrix.size(); ++from) {
    for (std::size_t to = 0; to < matrix.size(); ++to) {
      const std::size_t kind = random() % 4;
      const std::size_t count = kind == 0 ? 0 : kind == 1 ? 1 + random() % 3 : random() % largest;
      matrix[from][to] = from == 1 || to == 2 ? 0 : count;
    }
  }
  return matrix;
}

/// Fills the blocks of a buffer with the elements that `from(j)` sends to `to(j)`.
template <class From, class To>
std::vector<int> blocks(const Counts& counts, const Counts& at, std::size_t size, From from,
                        To to) {
  std::vector<int> data(size, kGuard);
  for (std::size_t j = 0; j < counts.size(); ++j) {
    for (std::size_t i = 0; i < counts[j]; ++i) {
      data[at[j] + i] = element(from(static_cast<int>(j)), to(static_cast<int>(j)), i);
    }
  }
  return data;
}

/// All-to-all of blocks of different sizes of one rank, and its right result.
struct AllToAllv {
  AllToAllv(const Matrix& matrix, int rank, std::size_t gap)
      : send_counts(matrix[static_cast<std::size_t>(rank)]),
        recv_counts(column(matrix, rank)),
        send_at(displacements(send_counts, gap)),
        recv_at(displacements(recv_counts, gap)),
        packed(gap == 0) {
    const auto self = [rank](int) { return rank; };
    const auto other = [](int j) { return j; };
    send = blocks(send_counts, send_at, total(send_counts, gap), self, other);
    expected = blocks(recv_counts, recv_at, total(recv_counts, gap), other, self);
    recv.assign(expected.size(), kGuard);
  }
  whorlResult_t run(whorlComm_t comm, void* stream = nullptr) {
    return run(send.data(), recv.data(), comm, stream);
  }
  /// Does the same with other buffers, of the same sizes.
  whorlResult_t run(const void* from, void* to, whorlComm_t comm, void* stream) const {
    return whorlAlltoAllv(from, send_counts.data(), packed ? nullptr : send_at.data(), to,
                          recv_counts.data(), packed ? nullptr : recv_at.data(), whorlInt32, comm,
                          stream);
  }
  std::string check() const { return recv == expected ? "" : "wrong data of all-to-all-v"; }

  Counts send_counts, recv_counts, send_at, recv_at;
  std::vector<int> send, recv, expected;
  bool packed;
};

/// All-gather, or gather, of blocks of different sizes of one rank, and its right result.
struct AllGatherv {
  AllGatherv(const Counts& counts_of_all, int rank, std::size_t gap, bool in_place)
      : counts(counts_of_all), at(displacements(counts, gap)), own(static_cast<std::size_t>(rank)) {
    const auto other = [](int j) { return j; };
    expected = blocks(counts, at, total(counts, gap), other, [](int) { return 0; });
    recv.assign(expected.size(), kGuard);
    for (std::size_t i = 0; i < counts[own]; ++i) send.push_back(element(rank, 0, i));
    if (in_place) {
      std::copy(send.begin(), send.end(), recv.begin() + static_cast<std::ptrdiff_t>(at[own]));
    }
    source = in_place ? recv.data() + at[own] : send.data();
  }
  whorlResult_t gather_all(whorlComm_t comm) {
    return gather_all(source, recv.data(), comm, nullptr);
  }
  /// Does the same with other buffers, of the same sizes.
  whorlResult_t gather_all(const void* from, void* to, whorlComm_t comm, void* stream) const {
    return whorlAllGatherv(from, counts[own], to, counts.data(), at.data(), whorlInt32, comm,
                           stream);
  }
  whorlResult_t gather(int root, whorlComm_t comm) {
    return gather(root, source, recv.data(), comm, nullptr);
  }
  whorlResult_t gather(int root, const void* from, void* to, whorlComm_t comm, void* stream) const {
    const bool here = static_cast<int>(own) == root;
    return whorlGatherv(from, counts[own], here ? to : nullptr, here ? counts.data() : nullptr,
                        here ? at.data() : nullptr, whorlInt32, root, comm, stream);
  }
  std::string check() const { return recv == expected ? "" : "wrong data of all-gather-v"; }

  Counts counts, at;
  std::size_t own;
  std::vector<int> send, recv, expected;
  const int* source = nullptr;
};

} // namespace whorl::test
