#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace whorl {

/// Returns whether −errno says that this process may have no further descriptor; those on their way
/// to other processes count, too.
constexpr bool descriptors_used_up(int error) noexcept {
  return error == -EMFILE || error == -ENFILE || error == -ETOOMANYREFS;
}

/// Describes −errno of a call that makes a descriptor, with the remedy where files are used up.
inline std::string descriptor_error(int error) {
  return std::generic_category().message(-error) +
         (descriptors_used_up(error) ? "; raise the limit on open files (ulimit -n)" : "");
}

} // namespace whorl
