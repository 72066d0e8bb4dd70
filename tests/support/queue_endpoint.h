#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/execution.h"
#include "transports/endpoint.h"

namespace whorl::test {

/// One direction of a FIFO inside one thread. A published message points to its source until it is
/// released, so a source that is overwritten too early shows as a wrong result.
struct Queue {
  struct Entry {
    std::vector<std::byte> copy;
    std::span<const std::byte> data;
    Fingerprint fingerprint;
  };
  std::deque<Entry> entries;
  /// Memory in which the receiver expects a message. Messages that are put are written at once.
  struct Exposed {
    std::span<std::byte> memory;
    Fingerprint expected;
  };
  std::map<std::uint64_t, Exposed> exposed;
  std::uint64_t sent = 0, released = 0;
};

/// Endpoint over two queues, with a bounded number of slots.
class QueueEndpoint final : public Endpoint {
 public:
  QueueEndpoint(Queue& out, Queue& in, int slots, std::size_t slot_bytes, bool publishes, bool puts)
      : Endpoint({.recv_buffers_ahead = puts ? 3U : 0U}),
        out_(out),
        in_(in),
        slots_(static_cast<std::size_t>(slots)),
        slot_(slot_bytes),
        publishes_(publishes) {}

  std::span<std::byte> try_put(std::size_t bytes,
                               const Fingerprint& fingerprint) noexcept override {
    if (out_.entries.size() >= slots_) return {};
    const auto found = out_.exposed.find(out_.sent + 1);
    if (found == out_.exposed.end() || found->second.memory.size() != bytes ||
        !(found->second.expected == fingerprint)) {
      return {};
    }
    put_ = found->second.memory;
    out_.exposed.erase(found);
    ++put_messages;
    return put_;
  }
  StoreHint store_hint(std::size_t) const noexcept override { return {.on_trial = trial}; }
  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override {
    EXPECT_GT(number, in_.released);
    EXPECT_LE(number, in_.released + 3);
    EXPECT_GE(destination.size(), kMinSharedBytes);
    EXPECT_TRUE(in_.exposed.try_emplace(number, Queue::Exposed{destination, expected}).second);
    return true;
  }
  std::span<std::byte> try_reserve(std::size_t = kWholeSlot) noexcept override {
    return out_.entries.size() < slots_ ? std::span<std::byte>(slot_) : std::span<std::byte>();
  }
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override {
    if (!put_.empty()) return push({}, std::exchange(put_, {}), fingerprint);
    push({slot_.begin(), slot_.begin() + static_cast<std::ptrdiff_t>(bytes)}, {}, fingerprint);
  }
  bool can_send_descriptor(std::span<const std::byte>) const noexcept override {
    return publishes_;
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override {
    if (!publishes_) return DescriptorSend::kUnreachable;
    if (out_.entries.size() >= slots_) return DescriptorSend::kBusy;
    push({}, source, fingerprint);
    return DescriptorSend::kSent;
  }
  std::uint64_t released() noexcept override { return out_.released; }
  Message try_peek() noexcept override {
    if (in_.entries.empty() || incomplete) return {};
    const Queue::Entry& entry = in_.entries.front();
    static const std::byte kNothing{};
    const std::byte* const data = entry.data.empty() ? &kNothing : entry.data.data();
    return {.data = data, .bytes = entry.data.size(), .fingerprint = entry.fingerprint};
  }
  bool try_hear(Fingerprint& fingerprint) noexcept override {
    if (in_.entries.empty()) return false;
    fingerprint = in_.entries.front().fingerprint;
    return true;
  }
  void release() noexcept override {
    in_.entries.pop_front();
    ++in_.released;
    ++received_;
    in_.exposed.erase(in_.released);
  }

  inline static int put_messages = 0;    ///< number of messages that were put of all endpoints
  inline static bool incomplete = false; ///< whether no payload has come, of all endpoints
  inline static bool trial = false;      ///< state of the trial of stores, for all endpoints

 private:
  void push(std::vector<std::byte> copy, std::span<const std::byte> source,
            const Fingerprint& fingerprint) {
    out_.entries.push_back({std::move(copy), source, fingerprint});
    Queue::Entry& entry = out_.entries.back();
    if (source.empty()) entry.data = entry.copy;
    ++out_.sent;
    ++sent_;
  }

  Queue& out_;
  Queue& in_;
  std::size_t slots_;
  std::vector<std::byte> slot_;
  std::span<std::byte> put_; ///< memory of the message that is committed next
  bool publishes_;
};

/// Endpoints of n ranks in one thread.
class QueueFabric {
 public:
  QueueFabric(int slots, std::size_t slot_bytes, bool publishes, bool puts = false)
      : slots_(slots), slot_bytes_(slot_bytes), publishes_(publishes), puts_(puts) {}

  /// Endpoints of one rank.
  class View final : public Execution::Endpoints {
   public:
    View(QueueFabric& fabric, std::uint32_t rank) : fabric_(fabric), rank_(rank) {}
    Endpoint* find(std::uint32_t peer, std::uint16_t channel) noexcept override {
      return fabric_.find(rank_, peer, channel);
    }

   private:
    QueueFabric& fabric_;
    std::uint32_t rank_;
  };
  View view(int rank) { return {*this, static_cast<std::uint32_t>(rank)}; }

  bool empty() const {
    for (const auto& [key, queue] : queues_) {
      if (!queue.entries.empty()) return false;
    }
    return true;
  }

 private:
  Endpoint* find(std::uint32_t self, std::uint32_t peer, std::uint16_t channel) {
    auto& endpoint = endpoints_[{self, peer, channel}];
    if (endpoint == nullptr) {
      endpoint = std::make_unique<QueueEndpoint>(queues_[{self, peer, channel}],
                                                 queues_[{peer, self, channel}], slots_,
                                                 slot_bytes_, publishes_, puts_);
    }
    return endpoint.get();
  }

  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;
  int slots_;
  std::size_t slot_bytes_;
  bool publishes_, puts_;
  std::map<Key, Queue> queues_;
  std::map<Key, std::unique_ptr<QueueEndpoint>> endpoints_;
};

/// Advances executions in turn until none moves any more. Returns which are complete.
inline std::vector<bool> run_in_turn(std::vector<Execution>& executions) {
  std::vector<bool> done(executions.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < executions.size(); ++i) {
      if (done[i]) continue;
      const Progress progress = executions[i].advance();
      EXPECT_NE(progress, Progress::kFailed);
      done[i] = progress == Progress::kDone;
      moved |= progress == Progress::kAdvanced || done[i];
    }
  }
  return done;
}

} // namespace whorl::test
