// A FIFO in shared memory into which the peer writes anything: the header of the segment, heads,
// slots and the states of ranks. The first byte chooses what the input replaces.
#include <cstring>

#include "input.h"
#include "target.h"
#include "tests/unit/transports/fifo_pair.h"

namespace whorl::fuzz {
namespace {

constexpr std::uint32_t kSlots = 4;
constexpr std::size_t kSlotBytes = 256;

void check_header(Input input) {
  const auto layout =
      SegmentLayout::make({.ranks = 2, .channels = 1, .slots = kSlots, .slot_bytes = kSlotBytes});
  SegmentHeader header{}, right{};
  const auto given = input.take(offsetof(SegmentHeader, comm_error));
  std::memcpy(static_cast<void*>(&header), given.data(), given.size());
  layout->stamp(right);
  const Status checked = layout->check(header);
  if (!checked.ok()) return require_error(checked);
  require(header.size == right.size && header.ranks == right.ranks && header.slots == right.slots &&
              header.slot_bytes == right.slot_bytes && header.channels == right.channels,
          "the header of this shape");
}

void check_shape(Input input) {
  SegmentShape shape;
  shape.ranks = input.take<std::uint32_t>();
  shape.channels = input.take<std::uint32_t>();
  shape.slots = input.take<std::uint32_t>();
  shape.slot_bytes = input.take<std::uint64_t>();
  const auto layout = SegmentLayout::make(shape);
  if (!layout.ok()) return require_error(layout.status());
  require(layout->state_offset(shape.ranks) <= layout->control_bytes(), "states before FIFOs");
  const std::size_t last =
      layout->fifo_offset(shape.channels - 1, shape.ranks - 1, shape.ranks - 1);
  require(last >= layout->control_bytes() && last + layout->fifo().size == layout->size(),
          "all FIFOs within the segment");
}

/// Returns whether the memory of a message is in the FIFO or in the heap of the peer.
bool within(const Pair& pair, const Message& message) {
  const auto inside = [&](const std::byte* begin, std::size_t size) {
    return message.data >= begin && message.bytes <= size &&
           static_cast<std::size_t>(message.data - begin) <= size - message.bytes;
  };
  return inside(pair.memory_, pair.layout_.size()) || inside(pair.heap_.data(), pair.heap_.size());
}

/// Writes parts of the input into the shared memory between the calls of one side.
void check_messages(Input input) {
  Pair pair(kSlots, kSlotBytes);
  FifoEndpoint endpoint = pair.endpoint(0);
  while (!input.empty() && pair.corrupt_.empty()) {
    const std::uint8_t choice = input.byte();
    SlotHeader& slot = pair.slot(1, endpoint.received() % kSlots);
    switch (choice % 8) {
      case 0: {
        std::array<std::byte, sizeof(SlotHeader)> bytes{};
        const auto given = input.take(bytes.size());
        std::copy(given.begin(), given.end(), bytes.begin());
        std::memcpy(static_cast<void*>(&slot), bytes.data(), bytes.size());
        break;
      }
      case 1: // the right number, so that more than that is checked
        slot.flag = (input.take<std::uint64_t>() & ~std::uint64_t{UINT32_MAX}) |
                    static_cast<std::uint32_t>(endpoint.received() + 1);
        break;
      case 2:
        pair.head(0).released = input.take<std::uint64_t>();
        break;
      case 3: {
        ExposedBuffer& exposed = pair.head(0).exposed[input.byte() % kRecvBuffersAhead];
        exposed.number = input.byte();
        exposed.memory = {.offset = input.take<std::uint64_t>(), .bytes = kMinSharedBytes};
        exposed.expected = {};
        break;
      }
      case 4:
        pair.state(1).revoked = input.byte() & 1;
        break;
      case 5:
        if (const auto put = endpoint.try_put(kMinSharedBytes, {}); !put.empty()) {
          require(within(pair, {put.data(), put.size(), {}}), "a buffer of the peer");
          endpoint.commit(put.size(), {});
        }
        break;
      case 6:
        if (const auto reserved = endpoint.try_reserve(); !reserved.empty()) {
          require(within(pair, {reserved.data(), reserved.size(), {}}), "a slot");
          endpoint.commit(0, {});
        }
        break;
      default:
        if (const Message message = endpoint.try_peek()) {
          require(within(pair, message), "a message in shared memory");
          endpoint.release();
        }
    }
    require(endpoint.released() <= endpoint.sent(), "no more released than sent");
  }
}

} // namespace

std::vector<std::string> seeds() {
  const auto layout =
      SegmentLayout::make({.ranks = 2, .channels = 1, .slots = kSlots, .slot_bytes = kSlotBytes});
  SegmentHeader header{};
  layout->stamp(header);
  const std::string stamped(reinterpret_cast<const char*>(&header),
                            offsetof(SegmentHeader, comm_error));
  const std::string shape = bytes_of(2U, 1U, 4U, std::uint64_t{256});
  const std::string small = bytes_of(char{1}, std::uint64_t{40} << 32, char{7});
  const std::string elsewhere = bytes_of(char{1}, std::uint64_t{1} << 63, char{7});
  return {char{0} + stamped, char{1} + shape, char{2} + small + small + elsewhere,
          char{2} + bytes_of(char{6}, char{2}, std::uint64_t{1}, char{3}, char{2}, char{2},
                             std::uint64_t{64}, char{5})};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Input input(data, size);
  switch (input.byte() % 3) {
    case 0:
      check_header(input);
      break;
    case 1:
      check_shape(input);
      break;
    default:
      check_messages(input);
  }
  return 0;
}
