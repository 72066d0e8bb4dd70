#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "engine/request.h"

namespace whorl {

/// Lists the names of the ranks for which `holds`, with commas between them.
template <class Holds>
std::string names_where(std::span<const std::string> names, Holds&& holds) {
  std::string text;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    if (!holds(rank)) continue;
    text += (text.empty() ? "" : ", ") + names[rank];
  }
  return text;
}

/// Makes the error of rank `name`, which has waited in vain for the ranks `missing` to make the
/// call `request`. `one_process`: whether all ranks are in one.
Status late_error(const std::string& name, const Request& request, const std::string& missing,
                  std::uint64_t timeout_ns, bool one_process);

} // namespace whorl
