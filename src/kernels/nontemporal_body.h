#pragma once

// The copy past the caches of the instruction set that the including file is compiled for.

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace whorl::kernels {
namespace {

#if defined(__x86_64__)

#if defined(__AVX512F__)
using NontemporalLanes = __m512i;
[[gnu::always_inline]] inline void store(void* to, const void* from) {
  _mm512_stream_si512(static_cast<NontemporalLanes*>(to), _mm512_loadu_si512(from));
}
#elif defined(__AVX2__)
using NontemporalLanes = __m256i;
[[gnu::always_inline]] inline void store(void* to, const void* from) {
  _mm256_stream_si256(static_cast<NontemporalLanes*>(to),
                      _mm256_loadu_si256(static_cast<const NontemporalLanes*>(from)));
}
#else
using NontemporalLanes = __m128i;
[[gnu::always_inline]] inline void store(void* to, const void* from) {
  _mm_stream_si128(static_cast<NontemporalLanes*>(to),
                   _mm_loadu_si128(static_cast<const NontemporalLanes*>(from)));
}
#endif

/// Copies past the caches. Whole lines of 64 bytes are stored so, and leave the core in one piece;
/// the bytes before the first whole line and behind the last one are stored as usual.
void nontemporal_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = before < bytes ? before : bytes;
  __builtin_memcpy(to, from, head);
  std::size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    for (std::size_t part = 0; part < kLine; part += sizeof(NontemporalLanes)) {
      store(to + done + part, from + done + part);
    }
  }
  __builtin_memcpy(to + done, from + done, bytes - done);
}

#else

void nontemporal_copy(void* destination, const void* source, std::size_t bytes) noexcept {
  __builtin_memcpy(destination, source, bytes);
}

#endif

} // namespace
} // namespace whorl::kernels
