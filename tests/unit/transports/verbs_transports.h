#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/rig.h"
#include "tests/support/fake_verbs/fabric.h"
#include "transports/verbs/transport.h"

namespace whorl::test {

/// Transports of two ranks, which are threads, over RDMA devices in memory.
class VerbsTransportTest : public ::testing::Test {
 protected:
  VerbsTransportTest()
      : VerbsTransportTest({{.gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")}}}) {}
  explicit VerbsTransportTest(std::vector<FakeFabric::Device> devices)
      : fabric(std::move(devices)), host(fabric.api()) {}
  TransportKind kind() {
    return {.name = "verbs", .mode = Mode::kThreads, .make = [this] {
              return std::make_unique<VerbsTransport>(VerbsPlace{}, &host);
            }};
  }
  /// Connects the ranks and gives `body` the status of each.
  void on_ranks(const std::function<void(Rig&, const Status&, RankContext&)>& body) {
    const std::uint64_t job = fresh_job();
    EXPECT_EQ(failures_of(run_ranks(2, Mode::kThreads,
                                    [&](RankContext& context) {
                                      Rig rig(context, kind(), job, {});
                                      const Status connected = rig.connect();
                                      body(rig, connected, context);
                                      context.barrier();
                                    })),
              "");
  }
  FakeFabric fabric;
  VerbsHost host;
};

} // namespace whorl::test
