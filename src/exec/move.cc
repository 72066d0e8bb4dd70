#include "exec/move.h"

#include <algorithm>
#include <array>

namespace whorl {
namespace {

/// Bytes that are moved to all targets before the next: they and their sources stay in a
/// first-level cache of 32 KiB. Smaller costs calls. A multiple of every element.
constexpr std::size_t kBlock = 4096;

Target behind(const Target& target, std::size_t offset) noexcept {
  return {target.data + offset, target.stream};
}

} // namespace

void detail::reduce_into_all(const MoveKernels& kernels, std::span<const void*> sources,
                             std::span<const Target> targets, std::size_t bytes,
                             int divisor) noexcept {
  // The result is made where it may stay in the cache, and goes to the other targets from there.
  alignas(64) std::array<std::byte, kBlock> block;
  const auto first = std::find_if(targets.begin(), targets.end(),
                                  [](const Target& target) { return !target.stream; });
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    std::byte* const result = first != targets.end() ? first->data + offset : block.data();
    reduce(kernels, sources, result, size, divisor);
    for (const Target& target : targets) copy(kernels, result, behind(target, offset), size);
    for (const void*& source : sources) source = static_cast<const std::byte*>(source) + size;
  }
}

void detail::copy_into_all(const MoveKernels& kernels, const std::byte* source,
                           std::span<const Target> targets, std::size_t bytes) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    for (const Target& target : targets) {
      copy(kernels, source + offset, behind(target, offset), size);
    }
  }
}

} // namespace whorl
