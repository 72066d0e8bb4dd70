#include "simulation/names.h"

#include <fmt/format.h>

#include "simulation/arena.h"

namespace whorl::simulation {
namespace {

template <class T>
void name(const T& object, std::string text) {
  arena().name(&object, sizeof object, std::move(text));
}

} // namespace

void name_state(const RankState& state, int rank) {
  name(state, fmt::format("state {}", rank));
  name(state.attached, fmt::format("state {}.attached", rank));
  name(state.left, fmt::format("state {}.left", rank));
  name(state.revoked, fmt::format("state {}.revoked", rank));
  name(state.touching, fmt::format("state {}.touching", rank));
  name(state.doorbell.sleeping, fmt::format("state {}.sleeping", rank));
  name(state.doorbell.rings, fmt::format("state {}.rings", rank));
  name(state.stuck.changes, fmt::format("state {}.stuck.changes", rank));
  name(state.stuck.words, fmt::format("state {}.stuck.words", rank));
}

void name_fifo(const std::byte* fifo, const FifoShape& shape, const std::string& text) {
  arena().name(fifo, shape.size, text + " ring");
  arena().name(fifo, shape.slots_size, text);
  const FifoHead& head = *reinterpret_cast<const FifoHead*>(fifo);
  name(head.released, text + " released");
  name(head.pace, text + " pace");
  for (std::size_t i = 0; i < head.exposed.size(); ++i) {
    name(head.exposed[i], fmt::format("{} exposed {}", text, i));
  }
  for (std::size_t i = 0; i < shape.positions; ++i) {
    const std::byte* const slot = fifo + sizeof(FifoHead) + i * shape.stride;
    const SlotHeader& header = *reinterpret_cast<const SlotHeader*>(slot);
    arena().name(slot, shape.stride, fmt::format("{} payload {}", text, i));
    name(header.flag, fmt::format("{} flag {}", text, i));
    name(header.fingerprint, fmt::format("{} fingerprint {}", text, i));
    name(header.small, fmt::format("{} small {}", text, i));
  }
}

void name_segment(const std::byte* segment, const SegmentLayout& layout) {
  const SegmentHeader& header = *reinterpret_cast<const SegmentHeader*>(segment);
  name(header, "segment header");
  name(header.comm_error, "comm_error");
  name(header.leavers, "leavers");
  name(header.text, "error text");
  const std::size_t ranks = layout.shape().ranks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    name_state(*reinterpret_cast<const RankState*>(segment + layout.state_offset(rank)),
               static_cast<int>(rank));
    for (std::size_t to = 0; to < ranks; ++to) {
      if (to == rank) continue;
      for (std::size_t channel = 0; channel < layout.shape().channels; ++channel) {
        name_fifo(segment + layout.fifo_offset(channel, rank, to), layout.fifo(),
                  channel == 0 ? fmt::format("fifo {}->{}", rank, to)
                               : fmt::format("fifo {}->{} of channel {}", rank, to, channel));
      }
    }
  }
}

} // namespace whorl::simulation
