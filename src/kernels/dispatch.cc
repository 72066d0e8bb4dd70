#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/log.h"
#include "base/params.h"
#include "kernels/convert.h"
#include "kernels/kernel_table.h"
#include "kernels/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>

namespace whorl {
namespace {

constexpr std::array<std::string_view, 4> kSimdNames{"scalar", "avx2", "avx512", "neon"};
constexpr std::array<Simd, 4> kBestFirst{Simd::kAvx512, Simd::kAvx2, Simd::kNeon, Simd::kScalar};

/// Returns the table of `simd`, or null if this build has none.
const kernels::KernelTable* table_of(Simd simd) noexcept {
  switch (simd) {
    case Simd::kScalar:
      return &kernels::kScalarKernels;
#if defined(__x86_64__)
    case Simd::kAvx2:
      return &kernels::kAvx2Kernels;
    case Simd::kAvx512:
      return &kernels::kAvx512Kernels;
#elif defined(__aarch64__)
    case Simd::kNeon:
      return &kernels::kNeonKernels;
#endif
    default:
      return nullptr;
  }
}

const kernels::KernelTable& supported_table(Simd simd) noexcept {
  return supported(simd) ? *table_of(simd) : kernels::kScalarKernels;
}

#if defined(__x86_64__)
bool ask_for_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// Returns whether the processor has F16C. Asks it once: in a virtual machine the instruction goes
/// to the hypervisor, which takes microseconds.
bool has_f16c() noexcept {
  static const bool has = ask_for_f16c();
  return has;
}
#endif

Simd choose_simd() {
  const std::string wanted = param_text(Param::kSimd);
  Simd best = Simd::kScalar;
  for (auto simd = kBestFirst.rbegin(); simd != kBestFirst.rend(); ++simd) {
    if (supported(*simd)) best = *simd;
  }
  if (wanted.empty()) return best;
  for (const Simd simd : kBestFirst) {
    if (name_of(simd) == wanted && supported(simd)) return simd;
  }
  log(LogLevel::kWarn,
      fmt::format("WHORL_SIMD=\"{}\" names no instruction set that this build and processor have; "
                  "using {}. Set it to one of scalar, avx2, avx512, neon, or unset it.",
                  wanted, name_of(best)));
  return best;
}

} // namespace

std::string_view name_of(Simd simd) noexcept { return kSimdNames[static_cast<std::size_t>(simd)]; }

bool supported(Simd simd) noexcept {
  if (table_of(simd) == nullptr) return false;
#if defined(__x86_64__)
  // The builtins also check that the operating system saves the wide registers.
  if (simd == Simd::kAvx2) return __builtin_cpu_supports("avx2") != 0 && has_f16c();
  if (simd == Simd::kAvx512) {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
           supported(Simd::kAvx2);
  }
#endif
  return true;
}

Simd default_simd() noexcept {
  static const Simd simd = choose_simd();
  return simd;
}

ReduceKernel reduce_kernel(DataType type, ReduceOp op, Simd simd) noexcept {
  return supported_table(simd).rows[static_cast<std::size_t>(type)].reduce[index_of(op)];
}

CopyKernel nontemporal_copy(Simd simd) noexcept { return supported_table(simd).nontemporal_copy; }
CopyKernel vector_copy(Simd simd) noexcept { return supported_table(simd).vector_copy; }

void nontemporal_fence() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

AverageScale average_scale(DataType type, int ranks) noexcept {
  int k = static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(ranks, 1) - 1)));
  AverageScale scale{};
  const auto set = [&](auto factor) {
    std::memcpy(scale.factor.bytes.data(), &factor, sizeof factor);
    scale.k = k;
  };
  // Partial sums that are rounded up repeatedly exceed the sum of the largest numbers: with fewer
  // digits, from fewer ranks on. `room` makes up for that; `least` is the k of the smallest power
  // of two.
  const auto set_small = [&]<class Float>(Float, int room, int least) {
    k = std::min(k + room, least);
    set(Float::encode(std::ldexp(1.0F, -k)));
  };
  switch (type) {
    case DataType::kFloat32:
      set(std::ldexp(1.0F, -k));
      break;
    case DataType::kFloat64:
      set(std::ldexp(1.0, -k));
      break;
    case DataType::kFloat16:
      set_small(Float16(), ranks > 4096 ? 1 : 0, 24);
      break;
    case DataType::kBfloat16:
      set_small(Bfloat16(), ranks > 512 ? 1 : 0, 126);
      break;
    case DataType::kFloat8e4m3: // saturates
      set_small(Float8e4m3(), 0, 9);
      break;
    case DataType::kFloat8e5m2:
      set_small(Float8e5m2(), ranks > 256 ? 2 : ranks > 16 ? 1 : 0, 16);
      break;
    default:
      break;
  }
  return scale;
}

ScaleKernel scale_kernel(DataType type, Simd simd) noexcept {
  return supported_table(simd).rows[static_cast<std::size_t>(type)].scale;
}

} // namespace whorl
