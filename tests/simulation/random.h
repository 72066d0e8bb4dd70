#pragma once

#include <cstdint>

namespace whorl::simulation {

/// Generator of pseudorandom numbers (SplitMix64). The same seed gives the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept { return mix(state_ += 0x9e37'79b9'7f4a'7c15); }
  /// Returns a number below `end`, which is not 0.
  std::uint64_t below(std::uint64_t end) noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * end) >> 64);
  }
  bool chance(unsigned percent) noexcept { return below(100) < percent; }
  /// Returns one of the arguments.
  template <class T, class... Others>
  T one_of(T first, Others... others) noexcept {
    const T all[] = {first, static_cast<T>(others)...};
    return all[below(sizeof...(others) + 1)];
  }
  /// Returns a number that looks random and follows from `value`.
  static std::uint64_t mix(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30)) * 0xbf58'476d'1ce4'e5b9;
    value = (value ^ (value >> 27)) * 0x94d0'49bb'1331'11eb;
    return value ^ (value >> 31);
  }

 private:
  std::uint64_t state_;
};

} // namespace whorl::simulation
