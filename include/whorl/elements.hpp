/// @file elements.hpp
/// What whorl.hpp makes of C++ types: the datatype of an element, ranges of elements; and errors as
/// exceptions. Included by whorl.hpp.
#ifndef WHORL_ELEMENTS_HPP_
#define WHORL_ELEMENTS_HPP_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "whorl/whorl.h"

namespace whorl {
inline namespace api {

/// A call that did not succeed: its result code, and as what() the library's full sentence.
class Error : public std::runtime_error {
 public:
  Error(whorlResult_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] whorlResult_t code() const noexcept { return code_; }

 private:
  whorlResult_t code_;
};

namespace detail {

/// Throws Error unless `result` is whorlSuccess. `comm` may be null: the thread's last error then.
inline void check(whorlResult_t result, whorlComm_t comm = nullptr) {
  if (result == whorlSuccess) return;
  const char* text = whorlGetLastError(comm);
  if ((text == nullptr || *text == '\0') && comm != nullptr) text = whorlGetLastError(nullptr);
  throw Error(result, text != nullptr && *text != '\0' ? text : whorlGetErrorString(result));
}

inline void require(bool condition, const char* sentence) {
  if (!condition) throw Error(whorlInvalidArgument, sentence);
}

template <class T>
constexpr int builtin_datatype() {
  if constexpr (std::is_same_v<T, std::byte>) {
    return whorlUint8;
  } else if constexpr (std::is_same_v<T, bool>) {
    return whorlBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return whorlFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return whorlFloat64;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    return std::is_signed_v<T> ? whorlInt8 : whorlUint8;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 2) {
    return std::is_signed_v<T> ? whorlInt16 : whorlUint16;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
    return std::is_signed_v<T> ? whorlInt32 : whorlUint32;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    return std::is_signed_v<T> ? whorlInt64 : whorlUint64;
  } else {
    return -1;
  }
}

} // namespace detail

/// The whorl datatype of an element type. Specialize it, with a `static constexpr whorlDataType_t
/// value`, for a 16- or 8-bit floating type of your own.
template <class T>
struct DatatypeOf {};

template <class T>
requires(detail::builtin_datatype<T>() >= 0) struct DatatypeOf<T> {
  static constexpr whorlDataType_t value =
      static_cast<whorlDataType_t>(detail::builtin_datatype<T>());
};

/// A type whose values whorl can move and combine.
template <class T>
concept Element = requires {
  { DatatypeOf<std::remove_cv_t<T>>::value } -> std::convertible_to<whorlDataType_t>;
};

/// `DatatypeOf<T>::value`, whatever the constness of T.
template <Element T>
inline constexpr whorlDataType_t datatype_of = DatatypeOf<std::remove_cv_t<T>>::value;

/// A contiguous range of elements: what a collective reads.
template <class R>
concept Readable = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// A contiguous range of elements that may be written.
template <class R>
concept Writable =
    Readable<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <Readable R>
using ElementType = std::ranges::range_value_t<R>;

/// Two ranges of the same element type.
template <class A, class B>
concept SameElement = std::same_as<std::ranges::range_value_t<A>, std::ranges::range_value_t<B>>;

} // namespace api
} // namespace whorl
#endif // WHORL_ELEMENTS_HPP_
