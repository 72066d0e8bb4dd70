#pragma once

#include <cstdint>

#include "kernels/convert.h"

namespace whorl::gpu {

/// Words in host memory, all equal, that end kernels once they are not 0: a word for each block of
/// a launch. Reads of one address in host memory by several blocks come one after the other, 0.9 µs
/// each on an H100; reads of different sectors of 32 bytes overlap
/// (docs/results/gpu_h100_2026-11-27.md).
struct StopWords {
  static constexpr std::uint32_t kWords = 256;
  struct alignas(32) Word {
    std::uint32_t value;
  };
  Word words[kWords];

  /// Returns the word that block `number` of a launch reads; blocks beyond kWords share words.
  WHORL_HOST_DEVICE const std::uint32_t* of_block(std::uint32_t number) const {
    return &words[number % kWords].value;
  }
  /// Ends kernels, now and later. Any thread.
  void set() noexcept {
    // The first word comes last: who finds it set knows that all others are.
    for (std::uint32_t w = kWords; w > 0; --w) {
      __atomic_store_n(&words[w - 1].value, 1U, __ATOMIC_SEQ_CST);
    }
  }
  bool is_set() const noexcept { return __atomic_load_n(&words[0].value, __ATOMIC_SEQ_CST) != 0; }
};

} // namespace whorl::gpu
