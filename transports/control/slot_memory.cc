#include "transports/control/slot_memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/system.h"
#include "net/address.h"

namespace whorl {

SlotMemory::~SlotMemory() {
  if (data_ != nullptr) sys().munmap(data_, bytes_);
}

Result<SlotMemory> SlotMemory::map(std::size_t bytes, Backing backing, std::string_view owner) {
  constexpr std::size_t kPage = 4096;
  SlotMemory made;
  made.bytes_ = std::max(bytes, kPage);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (backing == Backing::kOnUse ? MAP_NORESERVE : 0);
  void* memory = nullptr;
  const int result =
      sys().mmap(nullptr, made.bytes_, PROT_READ | PROT_WRITE, flags, -1, 0, &memory);
  if (result < 0) {
    return Status::error(Code::kSystemError,
                         fmt::format("no memory for the slots of {} ({} bytes): {}", owner,
                                     made.bytes_, errno_text(result)));
  }
  made.data_ = static_cast<std::byte*>(memory);
  return made;
}

std::size_t SlotMemory::resident() const noexcept {
  std::size_t bytes = 0;
  return data_ == nullptr || sys().resident(data_, bytes_, &bytes) < 0 ? 0 : bytes;
}

} // namespace whorl
