#include "exec/move.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace whorl {
namespace {

/// Bytes that are moved to all targets before the next: they and their sources stay in a
/// first-level cache of 32 KiB. Smaller costs calls. A multiple of every element.
constexpr std::size_t kBlock = 4096;

void store(const MoveKernels& kernels, const Target& target, std::size_t offset,
           const std::byte* source, std::size_t bytes) noexcept {
  std::byte* const to = target.data + offset;
  if (to == source) return;
  if (target.stream) {
    kernels.stream_copy(to, source, bytes);
  } else {
    std::memcpy(to, source, bytes);
  }
}

} // namespace

void reduce_into(const MoveKernels& kernels, std::span<const void*> sources,
                 std::span<const Target> targets, std::size_t bytes, int divisor) noexcept {
  const auto reduce = [&](std::byte* to, std::size_t size) {
    void* const destination = to;
    kernels.reduce(sources, {&destination, 1}, size / kernels.element_size, divisor);
  };
  if (targets.size() == 1 && !targets[0].stream) return reduce(targets[0].data, bytes);
  // The result is made where it may stay in the cache, and goes to the other targets from there.
  alignas(64) std::array<std::byte, kBlock> block;
  const auto first = std::find_if(targets.begin(), targets.end(),
                                  [](const Target& target) { return !target.stream; });
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    std::byte* const result = first != targets.end() ? first->data + offset : block.data();
    reduce(result, size);
    for (const Target& target : targets) store(kernels, target, offset, result, size);
    for (const void*& source : sources) source = static_cast<const std::byte*>(source) + size;
  }
}

void copy_into(const MoveKernels& kernels, const std::byte* source, std::span<const Target> targets,
               std::size_t bytes) noexcept {
  if (targets.size() == 1) return store(kernels, targets[0], 0, source, bytes);
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    for (const Target& target : targets) store(kernels, target, offset, source + offset, size);
  }
}

} // namespace whorl
