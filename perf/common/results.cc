#include "perf/common/results.h"

#include <algorithm>

namespace perf {
namespace {

std::size_t count_changed(const std::byte* data, std::size_t count, std::size_t element_bytes) {
  std::size_t changed = 0;
  for (std::size_t i = 0; i < count; ++i, data += element_bytes) {
    changed += std::count(data, data + element_bytes, kUntouched) !=
                       static_cast<std::ptrdiff_t>(element_bytes)
                   ? 1
                   : 0;
  }
  return changed;
}

} // namespace

std::size_t count_wrong_results(const Collective& collective, const Pattern& pattern,
                                const Place& place, std::size_t count, const std::byte* base,
                                bool in_place, std::size_t shift) {
  const std::size_t bytes = pattern.element_bytes();
  const Geometry geometry = collective.geometry(count, place);
  const std::size_t recv_offset = in_place ? geometry.recv_offset : 0;
  const std::size_t send_begin = in_place ? geometry.send_offset : 0;
  const std::size_t send_end = in_place ? send_begin + geometry.send_count : 0;
  const std::size_t end = std::max(recv_offset + geometry.recv_count, send_end);

  std::size_t wrong = 0;
  // Checks that the operation has not changed the elements from `begin` to `stop`.
  const auto check_gap = [&](std::size_t begin, std::size_t stop) {
    const std::size_t own_begin = std::clamp(send_begin, begin, stop);
    const std::size_t own_end = std::clamp(send_end, own_begin, stop);
    wrong += count_changed(base + begin * bytes, own_begin - begin, bytes);
    wrong += count_changed(base + own_end * bytes, stop - own_end, bytes);
    if (own_end > own_begin) {
      wrong += count_wrong(base + own_begin * bytes, own_end - own_begin, pattern.input(place.rank),
                           bytes, own_begin - send_begin + shift);
    }
  };

  std::size_t position = 0;
  for (const Segment& segment : collective.expected(count, place)) { // in ascending order
    const std::size_t begin = recv_offset + segment.offset;
    if (begin > position) check_gap(position, begin);
    const Tile& tile =
        segment.source == Segment::kReduced ? pattern.reduced() : pattern.input(segment.source);
    wrong += count_wrong(base + begin * bytes, segment.count, tile, bytes,
                         segment.source_offset + shift);
    position = begin + segment.count;
  }
  if (end > position) check_gap(position, end);
  return wrong;
}

} // namespace perf
