#pragma once

#include <dirent.h>

namespace whorl::test {

/// Returns the number of descriptors that this process has open, including those that the count
/// opens.
inline int open_descriptors() {
  int n = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

} // namespace whorl::test
