#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <exception>

namespace whorl_torch {

// Header and ranks of a channel, which both its ends know.

inline constexpr int kSender = 0, kReceiver = 1; // ranks of a channel

/// Header of a message, before its elements.
struct MessageHeader {
  std::int64_t tag;
  std::uint64_t bytes;
  std::uint64_t from_device; ///< 1 if the elements come through the communicator for devices
};
static_assert(sizeof(MessageHeader) == 24);

/// Returns the exception being handled, with the ranks of the group added: the library knows only
/// the ranks of the channel.
inline std::exception_ptr with_ranks(int source, int destination) {
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(c10::str("a message from rank ", source, " to rank ", destination,
                               " of the group; \"rank ", kSender, "\" and \"rank ", kReceiver,
                               "\" in the text are these two"));
    return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
}

} // namespace whorl_torch
