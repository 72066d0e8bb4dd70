#pragma once

#include <fmt/format.h>

#include <new>
#include <string>
#include <string_view>

#include "base/membership.h"
#include "base/status.h"

namespace whorl {

/// Calls `send` with what a rank tells its peers when its communicator has failed with `error`: the
/// rank and the error. An error that came from another rank names that rank already; no further
/// name is added.
template <class Send>
void with_error_text(const Membership& membership, const Status& error, Send send) noexcept {
  try {
    if (error.code() == Code::kRemoteError) return send(std::string_view{error.message()});
    send(std::string_view{
        fmt::format("{} gave up: {}", membership.describe(membership.rank), error.message())});
  } catch (const std::bad_alloc&) {
    send(std::string_view{"a rank gave up and has no memory left to say why"});
  }
}

/// Returns the sentence about a rank that has left in good order while this one still needs it.
inline std::string text_of_leaving(const Membership& membership, int peer) {
  return fmt::format(
      "{} has destroyed its communicator, or come to the end of its program, while rank {} still "
      "waits for it: all ranks must make the same calls before that",
      membership.describe(peer), membership.rank);
}

} // namespace whorl
