#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace whorl {

static_assert(std::endian::native == std::endian::little, "wire formats are little-endian");

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

/// Writer of fixed-size values to a byte string.
class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { put_bytes(std::as_bytes(std::span(&value, 1))); }
  void put_bytes(std::span<const std::byte> bytes);
  const std::vector<std::byte>& bytes() const noexcept { return out_; }

 private:
  std::vector<std::byte> out_;
};

/// Reader of fixed-size values from bytes that need not be trusted. After a read past the end, ok()
/// is false and all further reads give zeros.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) noexcept : in_(in) {}
  template <class T>
  requires std::is_trivially_copyable_v<T> T get()
  noexcept {
    T value{};
    const std::span<const std::byte> bytes = get_bytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  /// Returns the next `size` bytes, or an empty span if fewer are left.
  std::span<const std::byte> get_bytes(std::size_t size) noexcept {
    if (!ok_ || size > in_.size()) {
      ok_ = false;
      return {};
    }
    const auto bytes = in_.first(size);
    in_ = in_.subspan(size);
    return bytes;
  }
  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return in_.size(); }

 private:
  std::span<const std::byte> in_;
  bool ok_ = true;
};

} // namespace whorl
