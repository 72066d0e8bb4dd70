#include "engine/workspace.h"

#include <new>

namespace whorl {
namespace {

constexpr std::size_t kAlignment = 64;

} // namespace

void Workspace::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

void Workspace::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
    bytes_ = bytes;
  }
}

} // namespace whorl
