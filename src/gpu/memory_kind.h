#pragma once

#include <cstdint>
#include <string_view>

namespace whorl::gpu {

/// Where memory lies, as far as it decides who can move it. kHost is ordinary memory, that of
/// whorlMemAlloc() included; kPinned is host memory that a device reaches, too; kManaged moves.
enum class MemoryKind : std::uint8_t { kHost, kPinned, kManaged, kDevice };

constexpr std::string_view name_of(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::kHost:
      return "host memory";
    case MemoryKind::kPinned:
      return "pinned host memory";
    case MemoryKind::kManaged:
      return "managed memory";
    case MemoryKind::kDevice:
      break;
  }
  return "device memory";
}

/// Whether a processor may read and write it.
constexpr bool host_can_access(MemoryKind kind) noexcept { return kind != MemoryKind::kDevice; }

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;         ///< of all but kHost
  void* context = nullptr; ///< CUcontext of all but kHost
};

/// Asks the driver, where there is one and the program has initialised it; otherwise, and for a
/// null pointer, memory is kHost. Where the driver does not answer, because its device is lost,
/// say, memory is kDevice without a device. Any thread; some hundred nanoseconds.
MemoryPlace place_of(const void* pointer) noexcept;

} // namespace whorl::gpu
