#pragma once

#include <cstdint>
#include <string_view>

namespace whorl::gpu {

/// Kinds of memory, by what can move it. kHost is ordinary memory, including that of
/// whorlMemAlloc(); kPinned is host memory that a device reaches, too; kManaged migrates.
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

/// Returns whether a processor may read and write memory of this kind.
constexpr bool host_can_access(MemoryKind kind) noexcept { return kind != MemoryKind::kDevice; }

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;         ///< device; of all but kHost
  void* context = nullptr; ///< CUcontext; of all but kHost
};

/// Asks the driver, where this process has loaded and initialised one; otherwise, and for a null
/// pointer, returns kHost. Also in builds without support for devices. If the driver does not
/// answer, because its device is lost, say, returns kDevice without a device. Any thread; some
/// hundred nanoseconds, and without a driver milliseconds after a library has been loaded.
MemoryPlace place_of(const void* pointer) noexcept;

} // namespace whorl::gpu
