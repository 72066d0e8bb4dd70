#pragma once

#include <cstdint>
#include <string_view>

namespace whorl {

/// FNV-1a hash over words. Tells settings apart; gives no protection against forgery.
class Hash {
 public:
  void mix(std::uint64_t word) noexcept { value_ = (value_ ^ word) * 0x100000001b3; }
  void mix(std::string_view text) noexcept {
    for (const char c : text) mix(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

} // namespace whorl
