#include "engine/handles.h"

#include <fmt/core.h>

#include <cstring>

#include "base/system.h"

namespace whorl {

Result<std::byte*> reserve_handles(std::size_t count, const char* plural) {
  void* addresses = nullptr;
  const int error = sys().mmap(nullptr, count, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &addresses);
  if (error == 0) return static_cast<std::byte*>(addresses);
  return Status::error(Code::kSystemError,
                       fmt::format("mmap finds no {} addresses for the handles of {}: {}", count,
                                   plural, std::strerror(-error)));
}

Status no_handle_left(std::size_t count, const char* plural) {
  return Status::error(Code::kSystemError,
                       fmt::format("there are {} {}, which is all there can be in one process; "
                                   "destroy those that are not needed any more",
                                   count, plural));
}

} // namespace whorl
