#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memory/heap.h"
#include "tests/support/fake_verbs/fabric.h"
#include "transports/verbs/endpoint.h"

namespace whorl::verbs_test {

using FakeFabric = test::FakeFabric;
using verbs::EndpointLayout;

inline constexpr int kSlots = 8;
inline constexpr std::size_t kSlotBytes = 256; // if the test does not say

struct Judge final : VerbsJudge {
  Progress connection_failed(int, const VerbsQueue& queue) noexcept override {
    failure = queue.failure();
    return Progress::kFailed;
  }
  void rail_failed(int, const verbs::RailReport& report, const VerbsQueue&) noexcept override {
    reports.push_back(report);
  }
  bool has_left(int) noexcept override { return left; }
  void read_reports() noexcept override {}
  void malformed(int, const char* what) noexcept override { nonsense = what; }
  std::string failure, nonsense;
  std::vector<verbs::RailReport> reports;
  bool left = false;
};

/// Devices and endpoints of a test.
struct Setting {
  std::size_t slot_bytes = kSlotBytes;
  std::size_t rails = 1;
  std::uint32_t inline_bytes = 256;
};

/// Two ranks, each with an endpoint to the other, and with a device for each rail.
class VerbsEndpoints : public ::testing::Test {
 protected:
  struct Side {
    struct Rail {
      VerbsPort port;
      ibv_mr* region = nullptr;
      std::unique_ptr<VerbsCompletions> completions;
      std::unique_ptr<VerbsQueue> queue;
    };
    Side(VerbsHost& host, const Setting& setting)
        : layout(kSlots, setting.slot_bytes), memory(layout.bytes() / sizeof(Page)) {
      VerbsHost::Hindrances why;
      const auto ports = host.ports({}, &why);
      EXPECT_EQ(ports.size(), setting.rails) << why.why;
      std::vector<VerbsRail> made;
      for (const VerbsPort& port : ports) {
        VerbsDevice& device = *port.device;
        Rail& rail = rails.emplace_back();
        rail.port = port;
        rail.region = device.api->reg_mr(device.domain, bytes(), layout.bytes(), 0);
        rail.completions = std::make_unique<VerbsCompletions>(device);
        EXPECT_TRUE(rail.completions->create(256, nullptr).ok());
        watch.add(*rail.completions);
        rail.queue = std::make_unique<VerbsQueue>(device);
        const Status status =
            rail.queue->create(rail.completions->get(), rail.completions->add(rail.queue.get()),
                               VerbsEndpoint::queue_depth(layout), port, {});
        EXPECT_TRUE(status.ok()) << status.message();
        made.push_back({.queue = rail.queue.get(),
                        .completions = rail.completions.get(),
                        .regions = device.regions.get(),
                        .key = rail.region->lkey});
      }
      endpoint =
          std::make_unique<VerbsEndpoint>(1, 0, layout, bytes(), std::move(made), judge, watch);
    }
    ~Side() {
      endpoint.reset();
      for (Rail& rail : rails) {
        rail.queue.reset();
        rail.completions.reset();
        rail.port.device->api->dereg_mr(rail.region);
      }
    }
    std::byte* bytes() { return memory.data()->bytes; }
    verbs::EndpointAddress address() {
      verbs::EndpointAddress made{.memory = reinterpret_cast<std::uint64_t>(bytes()), .rails = {}};
      for (std::size_t i = 0; i < rails.size(); ++i) {
        made.rails[i] = {.queue = rails[i].queue->number(), .key = rails[i].region->rkey};
      }
      return made;
    }
    void connect(Side& peer) {
      const verbs::EndpointAddress own = address(), remote = peer.address();
      endpoint->set_remote(remote);
      for (std::size_t i = 0; i < rails.size(); ++i) {
        EXPECT_EQ(endpoint->connect(i, own.rails[i], remote.rails[i], peer.rails[i].port.address,
                                    rails[i].port, {}),
                  0);
      }
    }
    VerbsQueue& queue(std::size_t rail = 0) { return *rails[rail].queue; }
    bool send(std::size_t size, int seed) {
      const auto slot = endpoint->try_reserve(size);
      if (slot.empty()) return false;
      std::memset(slot.data(), seed, size);
      endpoint->commit(size, {.sequence = static_cast<std::uint32_t>(seed)});
      return true;
    }
    /// Returns the size of the next message, which must have the bytes and the fingerprint of
    /// `seed`; −1: there is none, −2: another one.
    int receive(int seed) {
      const Message message = endpoint->try_peek();
      if (!message) return -1;
      const bool right =
          message.fingerprint.sequence == static_cast<std::uint32_t>(seed) &&
          std::all_of(message.data, message.data + message.bytes,
                      [&](std::byte byte) { return byte == static_cast<std::byte>(seed); });
      endpoint->release();
      return right ? static_cast<int>(message.bytes) : -2;
    }
    /// Calls progress() as often as a wait does before a completion is looked for.
    Progress poll() {
      Progress last = Progress::kIdle;
      for (int i = 0; i < 32 && last != Progress::kFailed; ++i) last = endpoint->progress();
      return last;
    }

    struct alignas(4096) Page {
      std::byte bytes[4096];
    };
    EndpointLayout layout;
    std::vector<Page> memory;
    std::vector<Rail> rails;
    Judge judge;
    RailWatch watch{judge};
    std::unique_ptr<VerbsEndpoint> endpoint;
  };

  explicit VerbsEndpoints(const Setting& setting = {})
      : fabric(devices(setting)), host(fabric.api()), a(host, setting), b(host, setting) {
    a.connect(b);
    b.connect(a);
  }
  static std::vector<FakeFabric::Device> devices(const Setting& setting) {
    std::vector<FakeFabric::Device> made;
    for (std::size_t i = 0; i < setting.rails; ++i) {
      made.push_back({.name = "fake" + std::to_string(i),
                      .gids = {test::make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")},
                      .inline_bytes = setting.inline_bytes});
    }
    return made;
  }
  /// Hands what the sides have told of rails to the other side.
  void pass_reports() {
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      for (const auto& report : std::exchange(from->judge.reports, {})) {
        to->endpoint->take_report(report);
      }
    }
  }

  FakeFabric fabric;
  VerbsHost host;
  Side a, b;
};

/// Endpoints with slots for messages from and to the heap, and a part of the heap for each.
class VerbsHeap : public VerbsEndpoints {
 protected:
  static constexpr std::size_t kBytes = 8192;
  explicit VerbsHeap(std::size_t rails = 1)
      : VerbsEndpoints({.slot_bytes = 2 * kBytes, .rails = rails}) {
    for (std::byte** memory : {&source, &target}) {
      const auto got = heap_alloc(4 * kBytes);
      EXPECT_TRUE(got.ok());
      *memory = static_cast<std::byte*>(*got);
    }
  }
  ~VerbsHeap() override {
    EXPECT_TRUE(heap_free(source).ok());
    EXPECT_TRUE(heap_free(target).ok());
  }
  bool publish(std::size_t bytes, int seed) {
    std::memset(source, seed, bytes);
    return a.endpoint->try_send_descriptor({source, bytes},
                                           {.sequence = static_cast<std::uint32_t>(seed)}) ==
           DescriptorSend::kSent;
  }
  bool offer(std::uint64_t number, std::size_t bytes, int seed) {
    return b.endpoint->expose_recv_buffer(number, {target, bytes},
                                          {.sequence = static_cast<std::uint32_t>(seed)});
  }
  std::byte* source = nullptr;
  std::byte* target = nullptr;
};

} // namespace whorl::verbs_test
