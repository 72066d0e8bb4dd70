#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace whorl {

/// Describes −errno of a call that makes a descriptor, with the remedy where files are used up.
inline std::string descriptor_error(int error) {
  // ETOOMANYREFS: descriptors on their way to other processes count, too.
  const bool used_up = error == -EMFILE || error == -ENFILE || error == -ETOOMANYREFS;
  return std::generic_category().message(-error) +
         (used_up ? "; raise the limit on open files (ulimit -n)" : "");
}

} // namespace whorl
