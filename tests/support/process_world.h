#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_ranks.h"
#include "tests/support/thread_world.h"

namespace whorl::test {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Makes an id on rank 0, and returns it on all ranks.
inline whorlUniqueId shared_id(RankContext& context) {
  whorlUniqueId id{};
  if (context.rank == 0) {
    EXPECT_EQ(failure(whorlGetUniqueId(&id)), "");
  }
  const auto ids = context.allgather(std::as_bytes(std::span(&id, 1)));
  std::memcpy(&id, ids[0].data(), sizeof id);
  return id;
}

/// Makes a communicator of all processes of a run, each with its own variables. Returns nullptr,
/// and records a failure of this process, on error.
inline whorlComm_t join(RankContext& context, const Environment& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const whorlUniqueId id = shared_id(context);
  whorlComm_t comm = nullptr;
  EXPECT_EQ(failure(whorlCommInitRank(&comm, context.nranks, id, context.rank)), "");
  return comm;
}

/// Body of a process that has joined a communicator.
using JoinedBody = std::function<void(RankContext&, whorlComm_t)>;

/// Runs `body` in n processes that form one communicator, each with the variables that
/// `environment` returns for its rank. Returns the failures of all ranks; "" if there is none.
inline std::string run_joined(int n, const std::function<Environment(int rank)>& environment,
                              const JoinedBody& body, const RunOptions& options = {}) {
  const auto join_and_run = [&](RankContext& context) {
    whorlComm_t comm = join(context, environment(context.rank));
    ASSERT_NE(comm, nullptr);
    body(context, comm);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  };
  return failures_of(run_ranks(n, Mode::kProcesses, join_and_run, options));
}
/// Does the same with the same variables on all ranks.
inline std::string run_joined(int n, const Environment& environment, const JoinedBody& body,
                              const RunOptions& options = {}) {
  return run_joined(
      n, [&](int) { return environment; }, body, options);
}

/// Runs `body` with each transport between processes, at the same time: see run_at_once().
inline void with_each_transport(const std::function<void(const char* transport)>& body) {
  constexpr std::array kTransports{"shm", "tcp"};
  EXPECT_EQ(run_at_once(kTransports.size(),
                        [&](int i) { body(kTransports.at(static_cast<std::size_t>(i))); }),
            "");
}

} // namespace whorl::test
