// Two endpoints over one pair of FIFOs, of shapes that are small enough for many laps in a run.
#include <memory>

#include "simulation/exchange.h"
#include "simulation/names.h"
#include "simulation/scenario_list.h"
#include "transports/fifo/endpoint.h"

namespace whorl::simulation {
namespace {

/// Both ends of a pair of FIFOs in the arena, and the host of each.
class FifoPair {
 public:
  FifoPair(const FifoShape& shape, std::uint32_t slots, std::size_t slot_bytes)
      : shape_(shape), slots_(slots), slot_bytes_(slot_bytes) {
    for (auto& fifo : fifos_) {
      fifo = arena().allocate(shape.size);
      arena().unback(fifo, shape.size);
    }
    states_ = reinterpret_cast<RankState*>(arena().allocate(2 * sizeof(RankState)));
    for (int rank = 0; rank < 2; ++rank) {
      name_state(states_[rank], rank);
      name_fifo(fifos_[rank], shape, fmt::format("fifo {}->{}", rank, 1 - rank));
      // A rank has either moved much already, so that laps may become longer, or nothing.
      moved_[rank] = world().random().one_of<std::size_t>(0U, 16U << 20);
      endpoints_[rank] = std::make_unique<FifoEndpoint>(
          FifoEndpoint::Ends{.peer = 1 - rank,
                             .send = fifos_[rank],
                             .receive = fifos_[1 - rank],
                             .slots = slots_,
                             .slot_bytes = slot_bytes_,
                             .shape = &shape_,
                             .own = &states_[rank],
                             .peers = &states_[1 - rank],
                             .moved = &moved_[rank],
                             .only_peer = world().random().chance(50)},
          host_);
    }
  }
  FifoEndpoint& endpoint(int rank) { return *endpoints_[rank]; }

 private:
  class Host final : public FifoHost {
   public:
    bool back(int, std::span<std::byte> part, bool needed) noexcept override {
      if (!needed && world().random().chance(30)) return false;
      arena().back(part.data(), part.size());
      return true;
    }
    bool locate(std::span<const std::byte>, std::uint64_t*) noexcept override { return false; }
    std::byte* resolve(int, const Descriptor&) noexcept override { return nullptr; }
    void corrupt(int peer, const char* what) noexcept override {
      world().fail(fmt::format("rank {} wrote {}", peer, what));
    }
  };

  FifoShape shape_;
  std::uint32_t slots_;
  std::size_t slot_bytes_;
  Host host_;
  std::byte* fifos_[2];
  RankState* states_;
  std::uint64_t moved_[2];
  std::unique_ptr<FifoEndpoint> endpoints_[2];
};

/// Passes streams in both directions at once, and requires that all messages come.
void pass_streams(const FifoShape& shape, std::uint32_t slots, std::size_t slot_bytes,
                  const std::vector<std::size_t>& sizes, std::uint64_t most) {
  FifoPair pair(shape, slots, slot_bytes);
  Stream streams[2];
  for (Stream& stream : streams) {
    stream = {.salt = world().random().next() >> 16,
              .messages = 1 + world().random().below(most),
              .sizes = sizes};
  }
  bool done[2] = {false, false};
  for (int rank = 0; rank < 2; ++rank) {
    world().add(fmt::format("rank {}", rank), [&, rank] {
      CommError error;
      ClockWaiter waiter;
      Sender sender(pair.endpoint(rank), streams[rank], {});
      Receiver receiver(pair.endpoint(rank), streams[1 - rank], {});
      wait_for(Both(sender, receiver), error, waiter, "messages");
      done[rank] = true;
    });
  }
  world().run();
  world().require(done[0] && done[1], "a rank has not come to its end");
}

/// Returns a shape with a ring, which real shapes have with many large slots only.
FifoShape small_ring(std::size_t slots, std::size_t slot_bytes, std::size_t in_slot_bytes) {
  FifoShape shape(slots, slot_bytes, false);
  shape.in_slot_bytes = in_slot_bytes;
  shape.stride = sizeof(SlotHeader) + in_slot_bytes;
  shape.slots_size = round_up(sizeof(FifoHead) + shape.positions * shape.stride, kPageBytes);
  shape.shortest_lap = slots * slot_bytes;
  shape.longest_lap = shape.shortest_lap * (1 + world().random().below(3));
  shape.first_size = shape.slots_size + round_up(shape.shortest_lap + slot_bytes, kPageBytes);
  shape.size = shape.slots_size + round_up(shape.longest_lap + slot_bytes, kPageBytes);
  return shape;
}

} // namespace

void run_slots() {
  const auto slots = static_cast<std::uint32_t>(1 + world().random().below(4));
  const std::size_t slot_bytes = world().random().one_of<std::size_t>(64, 128, 256);
  pass_streams(FifoShape(slots, slot_bytes, true), slots, slot_bytes,
               {0, 1, kSmallBytes - 1, kSmallBytes, kSmallBytes + 1, slot_bytes - 1, slot_bytes},
               12);
}

void run_ring() {
  const auto slots = static_cast<std::uint32_t>(1 + world().random().below(3));
  const std::size_t slot_bytes = world().random().one_of<std::size_t>(256, 2048, 4096);
  const std::size_t in_slot_bytes = world().random().one_of<std::size_t>(64, 128);
  const FifoShape shape = small_ring(slots, slot_bytes, in_slot_bytes);
  pass_streams(shape, slots, slot_bytes,
               {8, kSmallBytes, in_slot_bytes, in_slot_bytes + 1, slot_bytes / 2, slot_bytes - 63,
                slot_bytes, slot_bytes},
               24);
}

void run_real_ring() {
  constexpr std::uint32_t kSlots = 8;
  constexpr std::size_t kSlotBytes = 65536;
  pass_streams(FifoShape(kSlots, kSlotBytes, world().random().chance(50)), kSlots, kSlotBytes,
               {kSmallBytes, 2112, 2113, kSlotBytes - 1, kSlotBytes, kSlotBytes, kSlotBytes}, 30);
}

} // namespace whorl::simulation
