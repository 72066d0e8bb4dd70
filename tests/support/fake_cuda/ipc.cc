// IPC handles of the pretended driver, each for the block behind an allocation. Opening a handle of
// an open block again only counts. A block that another process has freed stays mapped, and while
// it is, other memory at the same place of that process cannot be mapped. fake_cuda_mapped()
// returns the number of open blocks.
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

#pragma GCC visibility push(default)

namespace fake_cuda {
namespace {

struct IpcHandle {
  int process, fd, device, offset; ///< no padding: programs compare handles
  std::uintptr_t begin;
  std::size_t bytes;
  unsigned long long id;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

/// Block of another process that is mapped.
struct Import {
  IpcHandle handle; ///< first handle that was opened
  CUdeviceptr address;
  int references;
  bool holds(CUdeviceptr pointer) const {
    return pointer >= address && pointer - address < handle.bytes;
  }
};
struct Imports {
  std::mutex mutex;
  std::map<std::pair<int, unsigned long long>, Import> all; ///< key: process and id
};
Imports& imports() {
  static Imports& instance = *new Imports;
  return instance;
}

bool overlap(const IpcHandle& a, const IpcHandle& b) {
  return a.process == b.process && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

} // namespace

void forget_imports() {
  const std::lock_guard lock(imports().mutex);
  imports().all.clear();
}

} // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

long fake_cuda_mapped() {
  const std::lock_guard lock(imports().mutex);
  return static_cast<long>(imports().all.size());
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  const DriverLock inside;
  if (lost()) return kFault;
  const Memory::Range range = Memory::all().find(pointer);
  if (!range.shareable) return CUDA_ERROR_INVALID_VALUE;
  const Memory::Block block = Memory::all().block_of(range);
  const IpcHandle ipc{
      getpid(),    block.fd,    block.device, static_cast<int>(range.begin - block.begin),
      block.begin, block.bytes, block.id};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &ipc, sizeof ipc);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  const DriverLock inside;
  count_call_that_may_wait();
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (ipc_is_refused()) return CUDA_ERROR_INVALID_VALUE;
  IpcHandle ipc;
  std::memcpy(&ipc, &handle, sizeof ipc);
  if (ipc.device != current_device()) {
    int can = 0;
    cuDeviceCanAccessPeer(&can, current_device(), ipc.device);
    if (can == 0 || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    enable_access(current_device(), ipc.device);
  }
  const std::lock_guard lock(imports().mutex);
  const std::pair key(ipc.process, ipc.id);
  if (const auto found = imports().all.find(key); found != imports().all.end()) {
    ++found->second.references;
    *pointer = found->second.address + static_cast<CUdeviceptr>(ipc.offset);
    return CUDA_SUCCESS;
  }
  for (const auto& [other, import] : imports().all) {
    if (overlap(import.handle, ipc)) return CUDA_ERROR_ALREADY_MAPPED;
  }
  const Memory::Block block{ipc.begin, ipc.bytes, ipc.device, ipc.fd, ipc.id};
  CUdeviceptr base = 0;
  const CUresult result = Memory::all().open_device(ipc.process, block, &base);
  if (result != CUDA_SUCCESS) return result;
  imports().all[key] = {ipc, base, 1};
  *pointer = base + static_cast<CUdeviceptr>(ipc.offset);
  return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  const DriverLock inside;
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize_implicitly();
  const std::lock_guard lock(imports().mutex);
  for (auto one = imports().all.begin(); one != imports().all.end(); ++one) {
    if (!one->second.holds(pointer)) continue;
    if (--one->second.references > 0) return CUDA_SUCCESS;
    const CUdeviceptr base = one->second.address;
    imports().all.erase(one);
    return Memory::all().free_device(base);
  }
  count_stale_call(); // a reset has closed it
  return CUDA_ERROR_INVALID_VALUE;
}

} // extern "C"
