#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whorl::topology {

/// Set of processing units (hardware threads), by their numbers in the operating system.
class CpuSet {
 public:
  /// Largest number that a set can hold, twice what Linux has; a file that names a larger one is
  /// malformed.
  static constexpr unsigned kMaxCpu = (1U << 14) - 1;

  /// Reads a mask of 32-bit words in hexadecimal, the highest first, as Linux, hwloc and NCCL write
  /// them: "000000ff,ffff0000" or "0x000000ff,0xffff0000". Returns nothing for other text, and for
  /// "0xf...f", by which hwloc means infinitely many.
  static std::optional<CpuSet> parse_mask(std::string_view text);
  /// Returns the mask in hwloc's form, "0x000000ff,0xffff0000"; "0x0" if the set is empty.
  std::string mask() const;
  /// Returns ranges of numbers, "0-3,8"; empty if the set is.
  std::string ranges() const;
  /// Returns the numbers, ascending.
  std::vector<unsigned> numbers() const;

  void add(unsigned cpu);
  bool contains(unsigned cpu) const noexcept;
  bool empty() const noexcept { return words_.empty(); }
  std::size_t count() const noexcept;
  bool intersects(const CpuSet& other) const noexcept;
  bool includes(const CpuSet& other) const noexcept;
  CpuSet& operator|=(const CpuSet& other);

  friend bool operator==(const CpuSet&, const CpuSet&) = default;
  /// Orders sets in some way, for sorting.
  friend auto operator<=>(const CpuSet&, const CpuSet&) = default;

 private:
  void trim();

  std::vector<std::uint64_t> words_; ///< lowest first; the last one is not 0
};

} // namespace whorl::topology
