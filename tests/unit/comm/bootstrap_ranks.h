#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/bootstrap.h"

// Ranks of a rendezvous, each a thread.
namespace whorl {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline Attendant attendant(int rank, int nranks, double timeout_s = 30) {
  Attendant self;
  self.rank = rank;
  self.nranks = nranks;
  self.timeout_ns = static_cast<std::uint64_t>(timeout_s * 1e9);
  return self;
}

inline void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

/// One all-gather of `size` bytes, checked.
inline void exchange(Oob& oob, int rank, int nranks, std::size_t size, int round) {
  const auto value = [&](int r, std::size_t i) {
    return static_cast<std::byte>((r * 31 + round * 7 + static_cast<int>(i)) & 255);
  };
  std::vector<std::byte> mine(size);
  for (std::size_t i = 0; i < size; ++i) mine[i] = value(rank, i);
  std::vector<std::byte> all(size * static_cast<std::size_t>(nranks));
  const Status status = oob.allgather(mine, all);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < nranks; ++r) {
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(value(r, i), all[static_cast<std::size_t>(r) * size + i]) << r << " " << i;
    }
  }
}

/// All ranks meet, exchange, and agree about the identity.
inline void meet(int nranks, const std::function<Result<Rendezvous>(int)>& join) {
  std::vector<Identity> identities(static_cast<std::size_t>(nranks));
  in_threads(nranks, [&](int rank) {
    Result<Rendezvous> rendezvous = join(rank);
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status().message();
    exchange(*rendezvous->oob, rank, nranks, 900, 0);
    exchange(*rendezvous->oob, rank, nranks, 1, 1);
    exchange(*rendezvous->oob, rank, nranks, 0, 2);
    identities[static_cast<std::size_t>(rank)] = rendezvous->identity;
  });
  for (const Identity& identity : identities) {
    EXPECT_EQ(identities[0].secret, identity.secret);
    EXPECT_EQ(identities[0].job, identity.job);
    EXPECT_NE(decltype(identity.secret){}, identity.secret);
  }
}

} // namespace whorl
