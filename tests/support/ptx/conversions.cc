// Conversions. Those of small floating-point numbers follow NVIDIA's model of the instructions, the
// host side of its headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/ptx/instruction_set.h"

namespace whorl::test::ptx {
namespace {

template <class To, class From>
void convert(Thread& t, const Instruction& i) {
  write<To>(t, i.slots[0], static_cast<To>(read<From>(t, i.slots[1])));
}

/// Rounds towards zero; numbers beyond the range become its ends, and what is no number 0.
template <class To, class From>
void truncate(Thread& t, const Instruction& i) {
  using Limits = std::numeric_limits<To>;
  const From value = std::trunc(read<From>(t, i.slots[1]));
  To result = 0;
  if (value >= std::ldexp(From{1}, Limits::digits)) {
    result = Limits::max();
  } else if (value < static_cast<From>(Limits::min())) {
    result = Limits::min();
  } else if (value == value) {
    result = static_cast<To>(value);
  }
  write<To>(t, i.slots[0], result);
}

template <class F>
void for_all_integers(F&& f) {
  f(Named<std::int8_t>{"s8"});
  f(Named<std::uint8_t>{"u8"});
  for_integers(f);
}

void widen_half(Thread& t, const Instruction& i) {
  const __half_raw half{read<std::uint16_t>(t, i.slots[1])};
  write(t, i.slots[0], __half2float(half));
}

/// Puts two codes into one register: that of the first operand into its upper half.
template <class Code>
void narrow_pair(Thread& t, const Instruction& i, Code&& code) {
  const std::uint32_t high = code(read<float>(t, i.slots[1]));
  const std::uint32_t low = code(read<float>(t, i.slots[2]));
  write(t, i.slots[0], high << 16 | low);
}
void narrow_to_halves(Thread& t, const Instruction& i) {
  narrow_pair(t, i, [](float value) { return __half_raw(__float2half_rn(value)).x; });
}
void narrow_to_bfloats(Thread& t, const Instruction& i) {
  narrow_pair(t, i, [](float value) { return __nv_bfloat16_raw(__float2bfloat16_rn(value)).x; });
}

template <__nv_fp8_interpretation_t kFormat>
void narrow_to_bytes(Thread& t, const Instruction& i) {
  const float2 pair{read<float>(t, i.slots[2]), read<float>(t, i.slots[1])};
  write<std::uint16_t>(t, i.slots[0], __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, kFormat));
}
template <__nv_fp8_interpretation_t kFormat>
void widen_bytes(Thread& t, const Instruction& i) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(read<std::uint16_t>(t, i.slots[1]), kFormat);
  write(t, i.slots[0], halves.x | static_cast<std::uint32_t>(halves.y) << 16);
}

} // namespace

void add_conversions(Handlers& handlers) {
  for_all_integers([&](auto from) {
    using From = typename decltype(from)::Type;
    const std::string source = from.name;
    for_all_integers([&](auto to) {
      using To = typename decltype(to)::Type;
      handlers[std::string("cvt.") + to.name + "." + source] = convert<To, From>;
    });
    handlers["cvt.rn.f32." + source] = convert<float, From>;
    handlers["cvt.rn.f64." + source] = convert<double, From>;
    handlers["cvt.rzi." + source + ".f32"] = truncate<From, float>;
    handlers["cvt.rzi." + source + ".f64"] = truncate<From, double>;
  });
  handlers["cvt.f32.f16"] = widen_half;
  handlers["cvt.rn.f16x2.f32"] = narrow_to_halves;
  handlers["cvt.rn.bf16x2.f32"] = narrow_to_bfloats;
  handlers["cvt.rn.satfinite.e4m3x2.f32"] = narrow_to_bytes<__NV_E4M3>;
  handlers["cvt.rn.satfinite.e5m2x2.f32"] = narrow_to_bytes<__NV_E5M2>;
  handlers["cvt.rn.f16x2.e4m3x2"] = widen_bytes<__NV_E4M3>;
  handlers["cvt.rn.f16x2.e5m2x2"] = widen_bytes<__NV_E5M2>;
}

} // namespace whorl::test::ptx
