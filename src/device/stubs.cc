// Functions of the library in builds without support for devices.
#include "device/common/memory.h"
#include "device/common/support.h"
#include "device/join.h"
#include "device/staged/stream.h"

namespace whorl {

bool devices_possible() noexcept { return false; }
std::string why_no_devices() {
  return "this build of whorl has no support for devices; build it where the CUDA toolkit is";
}
std::string why_no_device_support() { return why_no_devices(); }
void prepare_device(int) {}
const void* device_buffer(const Request&, int, int) noexcept { return nullptr; }
bool lacks_context(void*) noexcept { return false; }
Result<std::shared_ptr<Stream>> device_stream(void*, const void*) {
  return Status::error(Code::kInvalidArgument, why_no_devices());
}
Status device_fault() { return {}; }

int current_device() noexcept { return -1; }
Result<void*> device_alloc(std::size_t) {
  return Status::error(Code::kInvalidUsage, why_no_devices());
}
bool is_device_alloc(const void*) noexcept { return false; }
Status device_free(void*) { return Status::error(Code::kInvalidArgument, why_no_devices()); }

std::shared_ptr<DeviceGroup> join_device_group(const Membership&, std::span<std::byte>, FdChannel*,
                                               const DeviceWatch&, const DeviceRules&) {
  return nullptr;
}

} // namespace whorl
