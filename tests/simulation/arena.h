#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whorl::simulation {

/// Memory that the simulated ranks share. Accesses to it are simulated; all other memory is private
/// to a fibre, as far as the simulation goes. One object for the whole program.
class Arena {
 public:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  static constexpr std::size_t kPageBytes = 4096;

  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* begin() const noexcept { return base_; }
  bool holds(const volatile void* address) const noexcept { return offset_of(address) < kBytes; }
  std::size_t offset_of(const volatile void* address) const noexcept {
    return static_cast<std::size_t>(static_cast<const volatile std::byte*>(address) - base_);
  }
  /// Frees all memory, and makes it zero again.
  void clear();
  /// Returns whole pages of zeros.
  std::byte* allocate(std::size_t bytes);
  /// Says that the host has no memory for whole pages yet, so that nobody may write there before
  /// back().
  void unback(const std::byte* begin, std::size_t bytes) { set_backed(begin, bytes, false); }
  void back(const std::byte* begin, std::size_t bytes) { set_backed(begin, bytes, true); }
  bool backed(std::size_t offset, std::size_t bytes) const noexcept;
  /// Gives bytes a name for traces and failures; a later name hides an earlier one.
  void name(const volatile void* begin, std::size_t bytes, std::string text);
  /// Describes an address by its innermost name and the distance from the start of that.
  std::string describe(std::size_t offset) const;

 private:
  struct Name {
    std::size_t begin, bytes;
    std::string text;
  };
  void set_backed(const std::byte* begin, std::size_t bytes, bool backed);

  std::byte* base_;
  std::vector<bool> unbacked_; ///< by page; empty: none is
  std::size_t used_ = 0;
  std::vector<Name> names_;
};

Arena& arena() noexcept;

} // namespace whorl::simulation
