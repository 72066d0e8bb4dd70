#include "tests/support/fake_cuda/ptx_kernels.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "tests/support/device_image/fatbin.h"
#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/ptx/launch.h"

namespace fake_cuda {
namespace {

namespace ptx = whorl::test::ptx;

bool is_wanted() { return std::getenv("FAKE_CUDA_PTX") != nullptr; }

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "pretended device: %s\n", what.c_str());
  std::abort();
}

/// Memory that kernels of a device can access.
class DeviceMemory final : public ptx::AddressSpace {
 public:
  explicit DeviceMemory(int device) : device_(device) {}
  std::byte* reach(std::uint64_t address, std::size_t bytes) override {
    Memory::Range& known = known_[turn_];
    for (const Memory::Range& range : known_) {
      if (holds(range, address, bytes)) return range.alias + (address - range.begin);
    }
    const Memory::Range found = Memory::all().find(address);
    const bool reachable = found.type == CU_MEMORYTYPE_HOST || found.managed ||
                           found.device == device_ || reaches(device_, found.device);
    if (!reachable || !holds(found, address, bytes)) return nullptr;
    known = found;
    turn_ = (turn_ + 1) % kKnown;
    return found.alias + (address - found.begin);
  }

 private:
  static bool holds(const Memory::Range& range, std::uint64_t address, std::size_t bytes) {
    const std::uint64_t offset = address - range.begin;
    return offset < range.bytes && bytes <= range.bytes - offset;
  }
  static constexpr std::size_t kKnown = 8;
  const int device_;
  Memory::Range known_[kKnown]; ///< ranges that were found last, which a launch keeps
  std::size_t turn_ = 0;
};

class Kernels {
 public:
  static Kernels& all() {
    static auto& instance = *new Kernels;
    return instance;
  }
  /// Returns false if the image has no kernel of this name.
  bool add(CUfunction function, const void* image, const char* name) {
    const std::lock_guard lock(mutex_);
    const std::string& text = text_of(image);
    if (text.find(std::string(".entry ") + name + "(") == std::string::npos) return false;
    places_[function] = {image, name};
    return true;
  }
  /// Returns the kernel, which is read when it is launched first.
  const ptx::Kernel& find(CUfunction function) {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(function);
    if (known != kernels_.end()) return known->second;
    const Place& place = places_.at(function);
    return kernels_[function] = ptx::read_kernel(text_of(place.image), place.name);
  }

 private:
  struct Place {
    const void* image;
    std::string name;
  };
  const std::string& text_of(const void* image) {
    std::string& text = texts_[image];
    if (text.empty()) text = whorl::test::ptx_of(image);
    return text;
  }
  std::mutex mutex_;
  std::map<const void*, std::string> texts_;
  std::map<CUfunction, Place> places_;
  std::map<CUfunction, ptx::Kernel> kernels_;
};

} // namespace

bool add_ptx_kernel(CUfunction function, const void* image, const char* name) {
  if (!is_wanted()) return true;
  try {
    return Kernels::all().add(function, image, name);
  } catch (const std::runtime_error& error) {
    fail(std::string("image of ") + name + ": " + error.what());
  }
}

bool run_as_ptx(CUfunction function, const PtxGrid& grid, const void* parameter,
                std::size_t parameter_bytes, int device) {
  static auto& memory = *new ptx::Memory;
  static std::atomic<std::uint64_t> seed{0};
  if (!is_wanted()) return false;
  try {
    const ptx::Kernel& kernel = Kernels::all().find(function);
    if (kernel.parameter_bytes != parameter_bytes) fail(kernel.name + " has another parameter");
    DeviceMemory space(device);
    ptx::run(kernel,
             {.x = grid.x,
              .y = grid.y,
              .threads = grid.threads,
              .parameter = static_cast<const std::byte*>(parameter),
              .device = device,
              .seed = seed++},
             memory, space);
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
  return true;
}

} // namespace fake_cuda
