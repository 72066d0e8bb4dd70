#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace whorl {

/// Outcome of a call. The values are those of `whorlResult_t`.
enum class Code : int {
  kOk = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// The largest code of an error, for codes that come from other processes.
inline constexpr std::uint32_t kLastErrorCode = 6;

/// Success, or a code with an English sentence. Success is a null pointer, so passing it costs
/// nothing. Copies share the text. Set-up code returns a Status; the data path does not.
class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status error(Code code, std::string message) {
    Status status;
    status.error_ = std::make_shared<const Error>(Error{code, std::move(message)});
    return status;
  }
  bool ok() const noexcept { return error_ == nullptr; }
  Code code() const noexcept { return error_ ? error_->code : Code::kOk; }
  /// Returns the sentence; empty for success.
  const std::string& message() const noexcept {
    // Never destroyed, because threads may outlive main(); allocates nothing.
    static const union Empty {
      Empty() noexcept : text() {}
      ~Empty() {}
      std::string text;
    } empty;
    return error_ ? error_->message : empty.text;
  }
  /// Returns the same error with "`context`: " in front; success stays success.
  Status with_context(const std::string& context) const {
    return ok() ? Status() : error(error_->code, context + ": " + error_->message);
  }

 private:
  struct Error {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

/// A value or the error that prevented it.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Calls `body`, which returns a Status; turns an exception into one. For threads and callbacks,
/// out of which no exception may escape.
template <class Body>
Status without_exceptions(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kSystemError, "out of memory");
  } catch (const std::exception& error) {
    return Status::error(Code::kInternalError, error.what());
  }
}

/// Returns from the enclosing function if `expression` is an error.
#define WHORL_TRY(expression)                                                                 \
  do {                                                                                        \
    if (::whorl::Status whorl_status = (expression); !whorl_status.ok()) return whorl_status; \
  } while (false)

} // namespace whorl
