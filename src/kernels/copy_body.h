#pragma once

// Copies with the registers of the instruction set that the including file is compiled for: past
// the caches, and into them.

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace whorl::kernels {
namespace {

#if defined(__x86_64__)

#if defined(__AVX512F__)
using CopyLanes = __m512i;
[[gnu::always_inline]] inline CopyLanes load(const void* from) { return _mm512_loadu_si512(from); }
[[gnu::always_inline]] inline void stream(void* to, CopyLanes lanes) {
  _mm512_stream_si512(static_cast<CopyLanes*>(to), lanes);
}
#elif defined(__AVX2__)
using CopyLanes = __m256i;
[[gnu::always_inline]] inline CopyLanes load(const void* from) {
  return _mm256_loadu_si256(static_cast<const CopyLanes*>(from));
}
[[gnu::always_inline]] inline void stream(void* to, CopyLanes lanes) {
  _mm256_stream_si256(static_cast<CopyLanes*>(to), lanes);
}
#else
using CopyLanes = __m128i;
[[gnu::always_inline]] inline CopyLanes load(const void* from) {
  return _mm_loadu_si128(static_cast<const CopyLanes*>(from));
}
[[gnu::always_inline]] inline void stream(void* to, CopyLanes lanes) {
  _mm_stream_si128(static_cast<CopyLanes*>(to), lanes);
}
#endif

/// Copies whole lines of 64 bytes of the destination by `store_line(to, from)`, and the bytes
/// before the first and behind the last of them as usual.
template <class StoreLine>
[[gnu::always_inline]] inline void copy_lines(void* destination, const void* source,
                                              std::size_t bytes, StoreLine store_line) {
  constexpr std::size_t kLine = 64;
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = before < bytes ? before : bytes;
  __builtin_memcpy(to, from, head);
  std::size_t done = head;
  for (; done + kLine <= bytes; done += kLine) store_line(to + done, from + done);
  __builtin_memcpy(to + done, from + done, bytes - done);
}

constexpr std::size_t kLanesInLine = 64 / sizeof(CopyLanes);

/// Copies past the caches. Lines leave the core in one piece.
void nontemporal_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  copy_lines(destination, source, bytes, [](char* to, const char* from) {
    for (std::size_t i = 0; i < kLanesInLine; ++i) {
      stream(to + i * sizeof(CopyLanes), load(from + i * sizeof(CopyLanes)));
    }
  });
}

/// Copies through registers, by ordinary stores.
void vector_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  copy_lines(destination, source, bytes, [](char* to, const char* from) {
    CopyLanes lanes[kLanesInLine];
    for (std::size_t i = 0; i < kLanesInLine; ++i) lanes[i] = load(from + i * sizeof(CopyLanes));
    // The compiler must not turn the loop over all lines into a call of memcpy().
    asm volatile("" : "+x"(lanes[0]));
    for (std::size_t i = 0; i < kLanesInLine; ++i) {
      *reinterpret_cast<CopyLanes*>(to + i * sizeof(CopyLanes)) = lanes[i];
    }
  });
}

#else

void nontemporal_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  __builtin_memcpy(destination, source, bytes);
}
void vector_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  __builtin_memcpy(destination, source, bytes);
}

#endif

} // namespace
} // namespace whorl::kernels
