#include "perf/common/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace perf {
namespace {

/// Mixes two numbers into 64 well-spread bits (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + 0x2545f4914f6cdd1du;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Maps random bits evenly to −limit … limit.
std::int64_t within(std::uint64_t bits, std::int64_t limit) {
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * limit + 1)) - limit;
}

/// Returns a magnitude up to which all integers are exact in the type; capped, which suffices.
std::int64_t exact_limit(const TypeInfo& info) {
  return std::int64_t{1} << std::min(info.mantissa_bits + 1, 20);
}

/// Maximum number of ranks that multiply by other than ±1: 2^±6 is in the range of every type.
constexpr int kProductRanks = 6;

/// Returns whether `rank` is among the `chosen` of `nranks` ranks that are selected for `index`.
bool has_turn(int rank, int nranks, std::int64_t chosen, std::size_t index) {
  const auto n = static_cast<std::uint64_t>(nranks);
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) + mix(7, index)) % n) < chosen;
}

/// Truncates `value` to the type's width and extends its sign (or zeros) to 64 bits.
std::uint64_t narrow(const TypeInfo& info, std::uint64_t value) {
  const auto unused = static_cast<unsigned>(64 - 8 * info.bytes);
  if (info.is_signed) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
  }
  return (value << unused) >> unused;
}

void store(Tile& tile, std::size_t index, std::size_t bytes, std::uint64_t bits) {
  std::memcpy(tile.data() + index * bytes, &bits, bytes); // little-endian: low bytes first
}
static_assert(std::endian::native == std::endian::little);

} // namespace

std::uint64_t encode(const TypeInfo& type, double value) {
  if (!type.is_float) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  if (type.bytes == 8) return std::bit_cast<std::uint64_t>(value);
  if (type.bytes == 4) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const int mantissa_bits = type.mantissa_bits;
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 1 : 0;
  std::uint64_t magnitude = 0;
  if (value != 0) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent); // in [0.5, 1)
    const int biased = exponent - 1 + bias;
    if (biased >= 1) {
      magnitude = (static_cast<std::uint64_t>(biased) << mantissa_bits) +
                  static_cast<std::uint64_t>(std::ldexp(2 * fraction - 1, mantissa_bits));
    } else { // subnormal: units of 2^(1 − bias − mantissa_bits)
      magnitude =
          static_cast<std::uint64_t>(std::ldexp(std::fabs(value), bias - 1 + mantissa_bits));
    }
  }
  return magnitude | (sign << (mantissa_bits + type.exponent_bits));
}

Pattern::Pattern(DataType type, Operator op, int nranks)
    : info_(info_of(type)), op_(op), nranks_(nranks) {
  if (op_ != Operator::kNone) reduced_ = make_reduced();
}

const Tile& Pattern::input(int rank) const {
  auto found = inputs_.find(rank);
  if (found == inputs_.end()) found = inputs_.emplace(rank, make_input(rank)).first;
  return found->second;
}

/// Returns a truth value; at most one rank's value decides "or" and "and", and any non-zero byte is
/// true.
std::uint64_t Pattern::truth(int rank, std::size_t index) const {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(rank) + 1, index);
  const bool decides =
      mix(7, index) % static_cast<std::uint64_t>(nranks_ + 1) == static_cast<std::uint64_t>(rank);
  const bool is_and = op_ == Operator::kProd || op_ == Operator::kMin || op_ == Operator::kBand;
  const bool value = op_ == Operator::kBxor ? (bits & 1) != 0 : decides != is_and;
  return value ? 1 + (bits >> 8) % 255 : 0;
}

/// Returns the reduction of all ranks' truth values, which depends only on how many are true.
std::uint64_t Pattern::reduced_truth(std::size_t index) const {
  int number = 0;
  for (int rank = 0; rank < nranks_; ++rank) number += truth(rank, index) != 0 ? 1 : 0;
  switch (op_) {
    case Operator::kProd:
    case Operator::kMin:
    case Operator::kBand:
      return number == nranks_ ? 1 : 0;
    case Operator::kBxor:
      return static_cast<std::uint64_t>(number % 2);
    default:
      return number > 0 ? 1 : 0;
  }
}

std::uint64_t Pattern::integer(int rank, std::size_t index) const {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(rank) + 1, index);
  if (op_ == Operator::kProd) return narrow(info_, bits | 1); // even factors would soon give zeros
  if (op_ == Operator::kAvg) { // small enough not to wrap, except for bytes on over 127 ranks
    const std::int64_t value =
        within(bits, std::clamp<std::int64_t>((std::int64_t{1} << (8 * info_.bytes - 2)) / nranks_,
                                              1, std::int64_t{1} << 30));
    return narrow(info_, static_cast<std::uint64_t>(info_.is_signed ? value : std::abs(value)));
  }
  return narrow(info_, bits);
}

double Pattern::real(int rank, std::size_t index) const {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(rank) + 1, index);
  const std::int64_t exact = exact_limit(info_);
  const auto as_double = [](std::int64_t value) { return static_cast<double>(value); };
  switch (op_) {
    case Operator::kMax:
    case Operator::kMin:
      return as_double(within(bits, exact));
    case Operator::kProd: {
      const int power = has_turn(rank, nranks_, kProductRanks, index)
                            ? static_cast<int>(within(bits >> 8, 1))
                            : 0;
      return std::ldexp((bits & 1) != 0 ? -1.0 : 1.0, power);
    }
    case Operator::kAvg:
      if (!std::has_single_bit(static_cast<unsigned>(nranks_))) {
        // Each rank has a common part, so that the sum is n times it, and a part that cancels
        // within a pair of ranks. The pairs change with the index, so that the unpaired rank
        // changes, too. If there are more ranks than exact integers the common part is 0.
        const std::int64_t limit = exact / nranks_;
        const std::int64_t common_limit = (limit + 1) / 2;
        const std::int64_t common = within(mix(0, index), common_limit);
        const int seat = static_cast<int>((static_cast<std::uint64_t>(rank) + mix(5, index)) %
                                          static_cast<std::uint64_t>(nranks_));
        if (seat == nranks_ - 1 && seat % 2 == 0) return as_double(common);
        const int pair = seat / 2;
        std::int64_t part =
            within(mix(static_cast<std::uint64_t>(pair) + 1, index), limit - common_limit);
        if (limit == 0) part = has_turn(pair, nranks_ / 2, exact / 2, index) ? 1 : 0;
        return as_double(common + (seat % 2 == 0 ? part : -part));
      }
      [[fallthrough]];
    default: {
      const std::int64_t sum = op_ == Operator::kMulSum ? exact / kMulSumScalar : exact;
      if (sum >= nranks_) return as_double(within(bits, sum / nranks_));
      return has_turn(rank, nranks_, sum, index) ? ((bits & 1) != 0 ? -1.0 : 1.0) : 0.0;
    }
  }
}

Tile Pattern::make_input(int rank) const {
  Tile tile(kPeriod * info_.bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::uint64_t bits = 0;
    if (op_ == Operator::kNone) {
      bits = mix(static_cast<std::uint64_t>(rank) + 1, i);
    } else if (is_truth(info_)) {
      bits = truth(rank, i);
    } else if (info_.is_float) {
      bits = encode(info_, real(rank, i));
    } else {
      bits = integer(rank, i);
    }
    store(tile, i, info_.bytes, bits);
  }
  return tile;
}

Tile Pattern::make_reduced() const {
  Tile tile(kPeriod * info_.bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    if (is_truth(info_)) {
      store(tile, i, info_.bytes, reduced_truth(i));
      continue;
    }
    if (info_.is_float) {
      double total = real(0, i);
      for (int rank = 1; rank < nranks_; ++rank) {
        const double value = real(rank, i);
        switch (op_) {
          case Operator::kMax:
            total = std::max(total, value);
            break;
          case Operator::kMin:
            total = std::min(total, value);
            break;
          case Operator::kProd:
            total *= value;
            break;
          default:
            total += value;
            break;
        }
      }
      if (op_ == Operator::kAvg) total /= nranks_;
      if (op_ == Operator::kMulSum) total *= kMulSumScalar;
      // A sum or a quotient of zero is +0 in every order.
      store(tile, i, info_.bytes, encode(info_, total == 0 ? 0.0 : total));
      continue;
    }
    std::uint64_t total = integer(0, i);
    for (int rank = 1; rank < nranks_; ++rank) {
      const std::uint64_t value = integer(rank, i);
      const bool less = info_.is_signed
                            ? static_cast<std::int64_t>(value) < static_cast<std::int64_t>(total)
                            : value < total;
      switch (op_) {
        case Operator::kMax:
          total = less ? total : value;
          break;
        case Operator::kMin:
          total = less ? value : total;
          break;
        case Operator::kProd:
          total *= value;
          break;
        case Operator::kBand:
          total &= value;
          break;
        case Operator::kBor:
          total |= value;
          break;
        case Operator::kBxor:
          total ^= value;
          break;
        default:
          total += value;
          break;
      }
    }
    total = narrow(info_, total);
    if (op_ == Operator::kMulSum) total *= kMulSumScalar;
    if (op_ == Operator::kAvg) {
      total = info_.is_signed
                  ? static_cast<std::uint64_t>(static_cast<std::int64_t>(total) / nranks_)
                  : total / static_cast<std::uint64_t>(nranks_);
    }
    store(tile, i, info_.bytes, total);
  }
  return tile;
}

void fill(void* data, std::size_t count, const Tile& tile, std::size_t element_bytes,
          std::size_t start) {
  auto* out = static_cast<std::byte*>(data);
  std::size_t position = start % kPeriod;
  while (count > 0) {
    const std::size_t run = std::min(count, kPeriod - position);
    std::memcpy(out, tile.data() + position * element_bytes, run * element_bytes);
    out += run * element_bytes;
    count -= run;
    position = 0;
  }
}

std::size_t count_wrong(const void* data, std::size_t count, const Tile& tile,
                        std::size_t element_bytes, std::size_t start) {
  const auto* in = static_cast<const std::byte*>(data);
  std::size_t wrong = 0;
  std::size_t position = start % kPeriod;
  while (count > 0) {
    const std::size_t run = std::min(count, kPeriod - position);
    const std::byte* expected = tile.data() + position * element_bytes;
    if (std::memcmp(in, expected, run * element_bytes) != 0) {
      for (std::size_t i = 0; i < run * element_bytes; i += element_bytes) {
        wrong += std::memcmp(in + i, expected + i, element_bytes) != 0 ? 1 : 0;
      }
    }
    in += run * element_bytes;
    count -= run;
    position = 0;
  }
  return wrong;
}

} // namespace perf
