#include "gpu/work.h"

#include <algorithm>

namespace whorl::gpu {
namespace {

constexpr std::uintptr_t kVectorBytes = 16;

} // namespace

void align(Work& work, std::size_t element_size) noexcept {
  for (int s = 0; s < work.n_segments; ++s) {
    Segment& segment = work.segments[s];
    const auto first = reinterpret_cast<std::uintptr_t>(work.sources[segment.first_source]) +
                       segment.source_offset;
    bool elements = true;
    bool vectors = true;
    const auto look_at = [&](const std::byte* data, std::uint64_t offset) {
      const auto address = reinterpret_cast<std::uintptr_t>(data) + offset;
      elements = elements && address % element_size == 0;
      vectors = vectors && address % kVectorBytes == first % kVectorBytes;
    };
    for (int k = 0; k < segment.sources; ++k) {
      look_at(work.sources[segment.first_source + k], segment.source_offset);
    }
    for (int k = 0; k < segment.destinations; ++k) {
      look_at(work.destinations[segment.first_destination + k], segment.destination_offset);
    }
    segment.access = !elements  ? Segment::Access::kByte
                     : !vectors ? Segment::Access::kElement
                                : Segment::Access::kVector;
  }
}

int max_sources(const Work& work) noexcept {
  const Segment* const begin = work.segments;
  const Segment* const most =
      std::max_element(begin, begin + work.n_segments,
                       [](const Segment& a, const Segment& b) { return a.sources < b.sources; });
  return work.n_segments == 0 ? 0 : most->sources;
}

Grid grid_of(const Work& work, std::size_t element_size, unsigned max_blocks) noexcept {
  constexpr unsigned kMinThreads = 128;
  const auto segments = static_cast<unsigned>(std::max(1, work.n_segments));
  const std::size_t most = std::max(1U, max_blocks / segments);
  const std::size_t vectors = (work.count * element_size + kVectorBytes - 1) / kVectorBytes;
  unsigned threads = kMinThreads;
  while (threads < unsigned{kThreads} && threads * most < vectors) threads *= 2;
  const std::size_t useful = std::max<std::size_t>(1, (vectors + threads - 1) / threads);
  return {static_cast<unsigned>(std::min(useful, most)), threads};
}

} // namespace whorl::gpu
