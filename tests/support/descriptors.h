#pragma once

#include <dirent.h>

namespace whorl::test {

/// Descriptors that this process has open, and some that to count takes.
inline int open_descriptors() {
  int n = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

} // namespace whorl::test
