#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace whorl::fuzz {

/// Input of a target, of which parts are taken from the front. Where nothing is left, all bytes are
/// zero.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  std::span<const std::byte> rest() const { return rest_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }
  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> take(std::size_t size) {
    const auto part = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }
  /// Takes the bytes of a value. For types every bit pattern of which is a value.
  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    const auto part = take(sizeof value);
    if (!part.empty()) std::memcpy(static_cast<void*>(&value), part.data(), part.size());
    return value;
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }

 private:
  std::span<const std::byte> rest_;
};

/// Returns the bytes of values, one after the other, as an input.
template <class... T>
std::string bytes_of(const T&... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return out;
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace whorl::fuzz
