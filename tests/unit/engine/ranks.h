#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/support/queue_endpoint.h"

namespace whorl::test {

/// Engines of all ranks of one communicator that share one thread, over queues in memory.
class Ranks {
 public:
  static constexpr std::size_t kSlotBytes = 4096;

  explicit Ranks(int nranks, std::uint64_t workspace_bytes = UINT64_MAX,
                 const char* algorithms = "")
      : fabric_(4, kSlotBytes, /*publishes=*/false) {
    const Shape shape{.nranks = nranks};
    const auto selector = Selector::make(shape, {}, algorithms);
    EXPECT_TRUE(selector.ok());
    for (int rank = 0; rank < nranks; ++rank) {
      auto members = std::make_unique<Membership>();
      members->rank = rank;
      members->nranks = nranks;
      members->slot_bytes = kSlotBytes;
      members->comm_error = &comm_error;
      members->peers.resize(static_cast<std::size_t>(nranks));
      for (int r = 0; r < nranks; ++r) {
        members->peers[static_cast<std::size_t>(r)].rank = static_cast<std::uint32_t>(r);
      }
      Engine::Config config{
          .membership = members.get(),
          .shape = shape,
          .selector = *selector,
          .verify = true,
          .recorder = recorders_.emplace_back(monitor::Recorder::make({}, 16)).get(),
          .workspace_bytes = workspace_bytes};
      auto view = fabric_.view(rank);
      for (std::uint16_t channel = 0; channel < 2; ++channel) {
        auto& endpoints = config.endpoints.emplace_back();
        for (int peer = 0; peer < nranks; ++peer) {
          endpoints.push_back(view.find(static_cast<std::uint32_t>(peer), channel));
        }
      }
      engines.push_back(std::make_unique<Engine>(std::move(config)));
      memberships_.push_back(std::move(members));
    }
  }

  /// Advances all engines until none moves any more. Returns the last result of each.
  std::vector<Progress> advance() {
    std::vector<Progress> all(engines.size(), Progress::kIdle);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < engines.size(); ++rank) {
        if (all[rank] == Progress::kDone || all[rank] == Progress::kFailed) continue;
        all[rank] = engines[rank]->advance();
        moved |= all[rank] != Progress::kIdle;
      }
    }
    return all;
  }
  bool empty() const { return fabric_.empty(); }

  CommError comm_error;

 private:
  QueueFabric fabric_;
  std::vector<std::unique_ptr<Membership>> memberships_;
  std::vector<std::unique_ptr<monitor::Recorder>> recorders_;

 public:
  std::vector<std::unique_ptr<Engine>> engines; ///< destroyed before what they use
};

} // namespace whorl::test
