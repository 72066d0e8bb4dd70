#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace whorl {

/// Private memory for the slots of all endpoints of a transport; zero at first, and given back by
/// the destructor.
class SlotMemory {
 public:
  /// Time at which the system has to provide the memory.
  enum class Backing : std::uint8_t {
    kOnUse, ///< page by page, when first used
    kWhole, ///< all of it soon: a request that exceeds what the system can promise is refused
  };

  SlotMemory() noexcept = default;
  SlotMemory(SlotMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SlotMemory& operator=(SlotMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SlotMemory();

  /// Maps at least `bytes`, and at least a page. `owner` names what the slots belong to in the
  /// error: "4 TCP connections".
  static Result<SlotMemory> map(std::size_t bytes, Backing backing, std::string_view owner);

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Counts the bytes that the system has provided; 0 if it does not say. Any thread.
  std::size_t resident() const noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

} // namespace whorl
