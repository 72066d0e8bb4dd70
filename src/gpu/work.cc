#include "gpu/work.h"

#include <algorithm>
#include <span>

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

Grid divide(Work& work, std::size_t element_size, unsigned max_blocks) noexcept {
  constexpr unsigned kMinThreads = 128;
  const std::span segments(work.segments, static_cast<std::size_t>(work.n_segments));
  const auto vectors_of = [element_size](const Segment& segment) {
    return (segment.count * element_size + kVectorBytes - 1) / kVectorBytes;
  };
  std::uint64_t all = 0;
  for (const Segment& segment : segments) all += vectors_of(segment);
  unsigned threads = kMinThreads;
  while (threads < unsigned{kThreads} && std::uint64_t{threads} * max_blocks < all) threads *= 2;
  std::uint64_t blocks = 0, most = 0, least = UINT64_MAX;
  for (Segment& segment : segments) {
    const std::uint64_t vectors = vectors_of(segment);
    // In floating point, because the product may exceed 64 bits.
    const auto share =
        static_cast<std::uint64_t>(static_cast<double>(max_blocks) * static_cast<double>(vectors) /
                                   static_cast<double>(std::max<std::uint64_t>(1, all)));
    const std::uint64_t useful = (vectors + threads - 1) / threads;
    segment.first_block = static_cast<std::uint32_t>(blocks);
    const std::uint64_t own = std::max<std::uint64_t>(1, std::min(useful, share));
    blocks += own;
    most = std::max(most, own);
    least = std::min(least, own);
  }
  if (most == least)
    return {static_cast<unsigned>(most), static_cast<unsigned>(segments.size()), threads};
  return {static_cast<unsigned>(blocks), 1, threads};
}

} // namespace whorl::gpu
